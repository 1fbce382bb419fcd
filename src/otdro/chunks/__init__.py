"""Rows that come in chunks: larger than memory, or on many machines."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from .base import BESIDE, Array, Chunk, Chunks, Job, Sums, in_chunks, is_dask
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
]


def open_rows(
    X: Any, y: Any = None, columns: list[str] | None = None, *, w: Any = None, group: Any = None
) -> Chunks:
    """Return the rows X with targets y, weights w and groups; of a folder these are names.

    ``columns`` are those to read, where columns have names; None: all.
    """
    beside = {"y": y, "w": w, "group": group}
    given = {BESIDE[part]: v for part, v in beside.items() if v is not None}
    folder = isinstance(X, str | PathLike)
    for name, v in given.items():
        if (folder or isinstance(X, ParquetRows)) and not isinstance(v, str):
            raise TypeError(
                f"of a folder of Parquet files {name} is the name of a column, got "
                f"{type(v).__name__}."
            )
        if isinstance(X, np.ndarray) and is_dask(v):
            raise TypeError(
                f"X is a NumPy array and {name} a Dask one: give both in the same library."
            )
    if folder:
        return ParquetRows(X, beside, columns)
    if isinstance(X, ParquetRows):
        rows: Chunks = X.named(**beside)
    elif isinstance(X, Chunks):
        rows = RowsBeside(X, **beside) if given else X
    else:
        rows = (DaskRows if is_dask(X) else MappedRows)(X, **beside)
    return rows if columns is None else rows.selected(columns)
