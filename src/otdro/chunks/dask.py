"""Rows of a Dask array: each pass is one map over its chunks and one tree of sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np
from sklearn.utils.validation import _get_feature_names

from .base import (
    BESIDE,
    Array,
    Chunk,
    Chunks,
    Job,
    Sums,
    add,
    is_dask,
    require_alike,
    require_numbers,
)
from .memmap import column

#: Sums that are added in one task; the tree is fixed, and with it the rounding.
FAN_IN = 8


class DaskRows(Chunks):
    """The rows of a Dask array, under whatever scheduler or client is in use.

    A task holds one chunk, so that the chunks must fit into the memory of a worker. A worker that
    is lost is Dask's business: its tasks run again elsewhere and find the same.
    """

    def __init__(self, X: Any, y: Any, w: Any = None, group: Any = None) -> None:
        names = _get_feature_names(column_names(X))
        self.columns = None if names is None else names.tolist()
        X = _rows(X)
        _require_sizes(X, "X")
        self.n, self.d = (int(size) for size in X.shape)
        self.dtype = X.dtype
        self.sizes = [int(size) for size in X.chunks[0]]
        # of every chunk X and what comes beside it
        parts = [self._blocks(v, part) for part, v in (("y", y), ("w", w), ("group", group))]
        self.parts = list(zip(X.to_delayed().ravel(), *parts, strict=True))

    def _blocks(self, v: Any, part: str) -> list[Any]:
        """Return, of one entry per row, those of each chunk."""
        name = BESIDE[part]
        if v is None:
            return [None] * len(self.sizes)
        if not is_dask(v):
            return np.split(column(np.asarray(v), self.n, name), np.cumsum(self.sizes)[:-1])
        v = _array(v, name)
        _require_sizes(v, name)
        return list(column(v, self.n, name).rechunk((tuple(self.sizes),)).to_delayed().ravel())

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        import dask

        starts = np.cumsum([0, *self.sizes])
        for i, parts in enumerate(self.parts):
            yield Chunk(i, int(starts[i]), *_arrays(dask.compute(*parts)))

    def total(self, *jobs: Job) -> list[Sums]:
        """Return what each job finds, added up over all chunks: one map and one reduction."""
        import dask

        work = dask.delayed((jobs, self.d, self.dtype), pure=False, traverse=False)
        starts = np.cumsum([0, *self.sizes])
        level = [
            dask.delayed(_work, pure=False)(work, i, int(starts[i]), size, *parts)
            for i, (size, parts) in enumerate(zip(self.sizes, self.parts, strict=True))
        ]
        while len(level) > 1:
            level = [
                dask.delayed(reduce, pure=False)(add, level[i : i + FAN_IN])
                for i in range(0, len(level), FAN_IN)
            ]
        self.passes += 1
        found: list[Sums] = level[0].compute()
        return found


def _work(work: tuple[Any, ...], number: int, start: int, size: int, *parts: Any) -> list[Sums]:
    """Return what jobs find in one chunk of rows of d columns of a type."""
    jobs, d, dtype = work
    chunk = Chunk(number, start, *_arrays(parts))
    if len(chunk.X) != size:
        raise ValueError(
            f"chunk {number} of the Dask array has {len(chunk.X)} rows, but {size} were announced: "
            "call X.compute_chunk_sizes() first."
        )
    require_alike(chunk, d, dtype)
    return [job(chunk) for job in jobs]


def _arrays(parts: tuple[Any, ...]) -> list[Any]:
    """Return X and what comes beside it as NumPy arrays; text as str, so that it sorts."""

    def as_array(v: Any) -> Array:
        v = np.asarray(v)
        text = v.dtype.kind == "O" and all(isinstance(entry, str) for entry in v)
        return v.astype(str) if text else v

    return [None if v is None else as_array(v) for v in parts]


def column_names(X: Any) -> Any:
    """Return no rows with the columns of a Dask collection, as a pandas frame or an array."""
    if hasattr(X, "to_dask_array") and X.ndim == 2:
        import pandas

        return pandas.DataFrame(columns=X.columns)
    X = _array(X, "X")
    if X.ndim != 2:
        raise ValueError(f"X must have two axes, rows and columns, got shape {X.shape}.")
    return np.empty((0, X.shape[1]))


def map_rows(function: Callable[[Array], Array], X: Any) -> Any:
    """Return what a function of rows returns for all rows, as a Dask array to be computed.

    It has the chunks of X; those of a data frame are its partitions, whose rows are counted here.
    """
    X = _rows(X)
    meta = function(np.zeros((1, X.shape[1]), dtype=X.dtype))[:0]

    def of_block(rows: Array) -> Array:
        # a partition of a data frame may be empty
        return function(rows) if len(rows) else meta

    if meta.ndim == 1:
        return X.map_blocks(of_block, dtype=meta.dtype, drop_axis=1, meta=meta)
    chunks = (X.chunks[0], meta.shape[1:])
    return X.map_blocks(of_block, dtype=meta.dtype, chunks=chunks, meta=meta)


def _rows(X: Any) -> Any:
    """Return rows as a Dask array of numbers, all columns of a row in one block."""
    X = _array(X, "X")
    require_numbers(X.dtype, "X")
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


def _array(X: Any, name: str) -> Any:
    """Return a Dask array; a data frame is one whose lengths are counted."""
    if hasattr(X, "to_dask_array"):
        # a column of text has a type of pandas' own, which arrays lack
        foreign = X.ndim == 1 and not isinstance(X.dtype, np.dtype)
        return (X.astype(object) if foreign else X).to_dask_array(lengths=True)
    if not hasattr(X, "numblocks"):
        raise TypeError(f"{name} must be a Dask array or data frame, got {type(X).__name__}.")
    return X


def _require_sizes(X: Any, name: str) -> None:
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise ValueError(
            f"the Dask array {name} has chunks of unknown size: call {name}.compute_chunk_sizes() "
            "first."
        )
