"""What comes beside the rows, one entry each: targets, weights, groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .base import BESIDE, Array, Chunk, Chunks
from .files import read


def vector(v: Any, n: int, name: str) -> Array | None:
    """Return an array of one entry per row, None if there is none; ``name`` is for messages."""
    if v is None:
        return None
    v = v if isinstance(v, np.ndarray) else np.asarray(v)
    if v.ndim == 2 and v.shape[1] == 1:
        v = v[:, 0]
    if v.shape != (n,):
        raise ValueError(f"X has {n} rows but {name} has shape {v.shape}: give one entry per row.")
    return v


@dataclass(frozen=True, eq=False)
class Beside:
    """Arrays of one entry per row, in memory or in mapped files; None for what there is not."""

    parts: dict[str, Array | None]

    @classmethod
    def of(cls, n: int, **parts: Any) -> Beside:
        """Return what is given of y, w and group, with one entry for each of n rows."""
        return cls({part: vector(v, n, BESIDE[part]) for part, v in parts.items()})

    def rows(self, start: int, stop: int) -> dict[str, Any]:
        """Return the entries of some rows."""
        return {part: None if v is None else read(v, start, stop) for part, v in self.parts.items()}


class RowsBeside(Chunks):
    """Rows in chunks, with more beside them from memory or mapped files."""

    def __init__(self, rows: Chunks, **parts: Any) -> None:
        self.n, self.d, self.dtype, self.columns = rows.n, rows.d, rows.dtype, rows.columns
        self.all_rows = rows
        given = {part: v for part, v in parts.items() if v is not None}
        self.beside = Beside.of(self.n, **given)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        for chunk in self.all_rows:
            stop = chunk.start + len(chunk.X)
            yield replace(chunk, **self.beside.rows(chunk.start, stop))
