"""Which X is read in chunks, and as what."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from .base import BESIDE, Array, Chunk, Chunks, Sums, is_dask, is_mapped
from .dask import DaskRows
from .memmap import MappedRows, RowsBeside
from .parquet import ParquetRows

#: Bytes of a mapped file above which it is read in chunks: below, a fit in memory is faster and
#: takes a few times as much.
MAPPED_FROM = 2**28


def in_chunks(X: Any) -> bool:
    """Whether X is read in chunks: a folder, a Dask collection, ``Chunks``, a large memmap."""
    if isinstance(X, Chunks | str | PathLike) or is_dask(X):
        return True
    return is_mapped(X) and X.nbytes > MAPPED_FROM


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


def _targets(chunk: Chunk) -> Sums:
    """Return the targets of a chunk."""
    return {"y": [] if chunk.y is None else [chunk.y]}


def read_target(rows: Chunks) -> Array:
    """Return the targets of all rows as one array: one pass."""
    [found] = rows.total(_targets)
    return np.concatenate(found["y"])
