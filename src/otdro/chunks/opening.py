"""Which X is read in chunks, and as what."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from .base import Array, Chunk, Chunks, targets_of
from .dask import DaskRows, is_dask
from .memmap import MappedRows, is_mapped
from .parquet import ParquetRows

#: Bytes of a mapped file above which it is read in chunks: below, a fit in memory is faster and
#: takes a few times as much.
MAPPED_FROM = 2**28


def in_chunks(X: Any) -> bool:
    """Whether X is read in chunks: a folder, a Dask collection, ``Chunks``, a large memmap."""
    if isinstance(X, Chunks | str | PathLike) or is_dask(X):
        return True
    return is_mapped(X) and X.nbytes > MAPPED_FROM


def open_rows(X: Any, y: Any = None, columns: list[str] | None = None) -> Chunks:
    """Return the rows X with targets y; of a folder, y is the name of a column.

    ``columns`` are those to read, where columns have names; None: all.
    """
    if isinstance(X, str | PathLike):
        return ParquetRows(X, _name(y), columns)
    rows = _opened(X, y)
    return rows if columns is None else rows.selected(columns)


def _opened(X: Any, y: Any) -> Chunks:
    if isinstance(X, ParquetRows):
        return X if y is None else X.with_target(_required(_name(y)))
    if isinstance(X, Chunks):
        return X if y is None else WithTarget(X, y)
    if is_dask(X):
        return DaskRows(X, y)
    if is_dask(y):
        raise TypeError("X is a NumPy array and y a Dask one: give both in the same library.")
    return MappedRows(X, y)


def _name(y: Any) -> str | None:
    if y is not None and not isinstance(y, str):
        raise TypeError(
            f"of a folder of Parquet files y is the name of a column, got {type(y).__name__}."
        )
    return y


def _required(name: str | None) -> str:
    assert name is not None
    return name


@dataclass(eq=False)
class WithTarget(Chunks):
    """Rows with targets from memory."""

    rows: Chunks
    y: Any

    def __post_init__(self) -> None:
        self.n, self.d, self.dtype = self.rows.n, self.rows.d, self.rows.dtype
        self.columns = self.rows.columns
        self.y = targets_of(self.y, self.n)

    def __iter__(self) -> Any:
        for chunk in self.rows:
            stop = chunk.start + len(chunk.X)
            yield Chunk(chunk.number, chunk.start, chunk.X, self.y[chunk.start : stop])


@dataclass(frozen=True, eq=False)
class _Targets:
    """The job that collects the targets."""

    def __call__(self, chunk: Chunk) -> dict[str, list[Array]]:
        return {"y": [] if chunk.y is None else [chunk.y]}


def read_target(rows: Chunks) -> Array:
    """Return the targets of all rows as one array: one pass."""
    [found] = rows.total(_Targets())
    return np.concatenate(found["y"])
