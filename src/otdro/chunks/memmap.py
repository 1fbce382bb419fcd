"""Rows in a file that numpy maps into memory, and what comes beside rows: targets, weights, groups.

Mapped files are read with ordinary reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from mmap import ALLOCATIONGRANULARITY
from pathlib import Path
from typing import Any

import numpy as np

from .base import BESIDE, CHUNK_BYTES, Array, Chunk, Chunks, is_mapped, require_numbers


def read(X: Any, start: int, stop: int) -> Array:
    """Return rows of an array, those of a mapped file by reading it; refuse one that shrank."""
    rows = X[start:stop]
    if not is_mapped(X):
        return rows
    # what was changed in a private copy is not in the file
    if X.filename is None or X.mode == "c":
        return np.array(rows)
    # a view need not begin where the map does
    begin = X.offset - X.offset % ALLOCATIONGRANULARITY
    base = np.frombuffer(X._mmap, np.uint8).__array_interface__["data"][0]
    place = int(begin + rows.__array_interface__["data"][0] - base)
    steps = [(size - 1) * max(0, step) for size, step in zip(rows.shape, rows.strides, strict=True)]
    end, size = place + sum(steps) + X.dtype.itemsize, Path(X.filename).stat().st_size
    if size < end:
        raise ValueError(
            f"{Path(X.filename).name} shrank while it was read: it has {size} bytes, and rows up "
            f"to byte {end} are needed. Write it again and fit again."
        )
    if not rows.flags.c_contiguous:
        return np.array(rows)
    return np.fromfile(X.filename, X.dtype, rows.size, offset=place).reshape(rows.shape)


def column(v: Any, n: int, name: str) -> Any:
    """Return an array of one entry per row, which may be a table of one column; else refuse."""
    v = v[:, 0] if v.ndim == 2 and v.shape[1] == 1 else v
    if v.shape != (n,):
        raise ValueError(f"X has {n} rows but {name} has shape {v.shape}: give one entry per row.")
    return v


def beside_of(n: int, **parts: Any) -> dict[str, Array]:
    """Return what is given of y, w and group, in memory or in mapped files, of n rows."""
    # an array may be mapped, and stays so
    arrays = {part: np.asanyarray(v) for part, v in parts.items() if v is not None}
    return {part: column(v, n, BESIDE[part]) for part, v in arrays.items()}


def entries(beside: dict[str, Array], start: int, stop: int) -> dict[str, Any]:
    """Return what comes beside some rows."""
    return {part: read(v, start, stop) for part, v in beside.items()}


class RowsBeside(Chunks):
    """Rows in chunks, with more beside them from memory or mapped files."""

    def __init__(self, rows: Chunks, **parts: Any) -> None:
        self.n, self.d, self.dtype, self.columns = rows.n, rows.d, rows.dtype, rows.columns
        self.all_rows = rows
        self.beside = beside_of(self.n, **parts)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        for chunk in self.all_rows:
            stop = chunk.start + len(chunk.X)
            yield replace(chunk, **entries(self.beside, chunk.start, stop))


class MappedRows(Chunks):
    """The rows of an ``np.memmap``, read from its file: a file that shrinks is an error.

    A page of a mapped file that is no longer there ends the process, so that rows which lie in the
    file one after another are read from it, not through the map.
    """

    def __init__(
        self, X: Any, y: Any, w: Any = None, group: Any = None, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have two axes, rows and columns, got shape {X.shape}.")
        require_numbers(X.dtype, "X")
        self.n, self.d = X.shape
        self.dtype = X.dtype
        self.X = X
        self.beside = beside_of(self.n, y=y, w=w, group=group)
        self.rows = max(1, chunk_bytes // max(1, self.d * X.dtype.itemsize))

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        for number, start in enumerate(range(0, self.n, self.rows)):
            stop = min(start + self.rows, self.n)
            X = read(self.X, start, stop)
            yield Chunk(number, start, X, **entries(self.beside, start, stop))
