"""What comes beside the rows, one entry each: targets, weights, groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .base import BESIDE, Array, Chunk, Chunks
from .files import read


def column(v: Any, n: int, name: str) -> Any:
    """Return an array of one entry per row, which may be a table of one column; else refuse."""
    v = v[:, 0] if v.ndim == 2 and v.shape[1] == 1 else v
    if v.shape != (n,):
        raise ValueError(f"X has {n} rows but {name} has shape {v.shape}: give one entry per row.")
    return v


def beside_of(n: int, **parts: Any) -> dict[str, Array]:
    """Return what is given of y, w and group, in memory or in mapped files, of n rows."""
    given = {part: v for part, v in parts.items() if v is not None}
    # an array may be mapped, and stays so
    arrays = {p: v if isinstance(v, np.ndarray) else np.asarray(v) for p, v in given.items()}
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
