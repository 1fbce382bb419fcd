"""Rows in a file that numpy maps into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .base import CHUNK_BYTES, Chunk, Chunks, require_numbers
from .beside import beside_of, entries
from .files import read


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
