"""Rows in a file that numpy maps into memory."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import ALLOCATIONGRANULARITY
from pathlib import Path
from typing import Any

import numpy as np

from .base import CHUNK_BYTES, Array, Chunk, Chunks, require_numbers, targets_of


class MappedRows(Chunks):
    """The rows of an ``np.memmap``, read from its file: a file that shrinks is an error.

    A page of a mapped file that is no longer there ends the process, so that rows which lie in the
    file one after another are read from it, not through the map.
    """

    def __init__(self, X: Any, y: Any, chunk_bytes: int = CHUNK_BYTES) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have two axes, rows and columns, got shape {X.shape}.")
        require_numbers(X.dtype, "X")
        self.n, self.d = X.shape
        self.dtype = X.dtype
        self.X = X
        self.y = targets_of(y, self.n)
        self.rows = max(1, chunk_bytes // max(1, self.d * X.dtype.itemsize))

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        for number, start in enumerate(range(0, self.n, self.rows)):
            stop = min(start + self.rows, self.n)
            y = None if self.y is None else read(self.y, start, stop)
            yield Chunk(number, start, read(self.X, start, stop), y)


def is_mapped(X: Any) -> bool:
    """Whether an array is, or is a view of, a file that numpy maps into memory."""
    return isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None


def read(X: Any, start: int, stop: int) -> Array:
    """Return rows of an array, those of a mapped file by reading it."""
    if not is_mapped(X):
        return X[start:stop]
    file = X.filename
    # what was changed in a private copy is not in the file
    if file is None or X.mode == "c":
        return np.array(X[start:stop])
    if not X.flags.c_contiguous:
        _require_length(file, _place(X) + _reach(X))
        return np.array(X[start:stop])
    width = int(np.prod(X.shape[1:], dtype=int))
    count = (stop - start) * width
    place = _place(X) + start * width * X.dtype.itemsize
    found = np.fromfile(file, X.dtype, count, offset=place)
    if len(found) != count:
        _require_length(file, place + count * X.dtype.itemsize)
        raise ValueError(f"{Path(file).name} changed while it was read.")
    return found.reshape(stop - start, *X.shape[1:])


def _place(X: Any) -> int:
    """Return where in its file an array begins; a view need not begin where the map does."""
    begin = X.offset - X.offset % ALLOCATIONGRANULARITY
    base = np.frombuffer(X._mmap, np.uint8).__array_interface__["data"][0]
    return int(begin + X.__array_interface__["data"][0] - base)


def _reach(X: Array) -> int:
    """Return how many bytes after its beginning an array ends."""
    steps = [(size - 1) * max(0, step) for size, step in zip(X.shape, X.strides, strict=True)]
    return sum(steps) + X.dtype.itemsize


def _require_length(file: Any, least: int) -> None:
    size = Path(file).stat().st_size
    if size < least:
        raise ValueError(
            f"{Path(file).name} shrank while it was read: it has {size} bytes, and rows up to byte "
            f"{least} are needed. Write it again and fit again."
        )
