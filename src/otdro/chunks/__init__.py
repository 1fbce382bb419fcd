"""Rows that come in chunks: larger than memory, or on many machines."""

from __future__ import annotations

from os import PathLike
from typing import Any

from .base import BESIDE, Array, Chunk, Chunks, Job, Sums, in_chunks, is_dask, read_target
from .dask import DaskRows, column_names, map_rows
from .memmap import MappedRows, RowsBeside
from .parquet import ParquetRows, parquet

__all__ = [
    "Array",
    "Chunk",
    "Chunks",
    "Job",
    "Sums",
    "column_names",
    "in_chunks",
    "is_dask",
    "map_rows",
    "open_rows",
    "parquet",
    "read_target",
]


def open_rows(
    X: Any, y: Any = None, columns: list[str] | None = None, *, w: Any = None, group: Any = None
) -> Chunks:
    """Return the rows X with targets y, weights w and groups; of a folder these are names.

    ``columns`` are those to read, where columns have names; None: all.
    """
    beside = {"y": y, "w": w, "group": group}
    if isinstance(X, str | PathLike):
        return ParquetRows(X, _names(beside), columns)
    rows = _opened(X, beside)
    return rows if columns is None else rows.selected(columns)


def _opened(X: Any, beside: dict[str, Any]) -> Chunks:
    if isinstance(X, ParquetRows):
        return X.named(**_names(beside))
    if isinstance(X, Chunks):
        return X if all(v is None for v in beside.values()) else RowsBeside(X, **beside)
    if is_dask(X):
        return DaskRows(X, **beside)
    for part, v in beside.items():
        if is_dask(v):
            raise TypeError(
                f"X is a NumPy array and {BESIDE[part]} a Dask one: give both in the same library."
            )
    return MappedRows(X, **beside)


def _names(beside: dict[str, Any]) -> dict[str, str | None]:
    for part, name in beside.items():
        if name is not None and not isinstance(name, str):
            raise TypeError(
                f"of a folder of Parquet files {BESIDE[part]} is the name of a column, got "
                f"{type(name).__name__}."
            )
    return beside
