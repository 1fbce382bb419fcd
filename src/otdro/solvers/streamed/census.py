"""The first pass: how many rows there are, their sums by label and fold or group, some of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ...chunks import Chunk, Sums
from .reading import BLOCK_BYTES, Folds, picked

Array = NDArray[Any]

#: Labels above which a target is none of classes.
LABELS_UP_TO = 1_000
#: Groups whose losses are told apart.
GROUPS_UP_TO = 10_000


class CellSums(dict[tuple[Any, Any], Array]):
    """Sums by label and fold or group; the sum of two adds up those of equal keys."""

    def __add__(self, other: CellSums) -> CellSums:
        found = CellSums(self)
        for key, line in other.items():
            found[key] = found[key] + line if key in found else line
        labels, parts = found.keys_of(0), found.keys_of(1)
        if len(labels) > LABELS_UP_TO:
            raise ValueError(
                f"y has more than {LABELS_UP_TO} different values, so it holds no labels: use "
                "DRORegressor for a continuous target."
            )
        if len(parts) > GROUPS_UP_TO:
            raise ValueError(
                f"groups has more than {GROUPS_UP_TO} different values, each of which has a loss "
                "of its own: put several of them into one group, or leave groups out."
            )
        return found

    def keys_of(self, place: int) -> list[Any]:
        """Return the labels (0), or the folds or groups (1), in order."""
        return sorted({key[place] for key in self})

    def table(self, parts: list[Any], width: int) -> Array:
        """Return the sums as one array, by fold or group, label and column."""
        labels = {label: k for k, label in enumerate(self.keys_of(0))}
        places = {part: i for i, part in enumerate(parts)}
        found = np.zeros((len(places), len(labels), width))
        for (label, part), line in self.items():
            found[places[part], labels[label]] = line
        return found


class FirstRows(dict[Any, Any]):
    """By label the first rows that have it; of the sum of two those of the first count."""

    def __add__(self, other: FirstRows) -> FirstRows:
        return FirstRows({**other, **self})


@dataclass(frozen=True, eq=False)
class Census:
    """The job of the first pass.

    ``cells`` holds by label and by fold or group one line: the number of rows, their weight,
    the sum of the weighted rows. ``square`` is the sum of squared weights. Every ``step``-th row is
    kept, and ``first`` holds one of every label. Rows that are not finite are refused here.
    """

    folds: Folds
    step: int
    labelled: bool
    grouped: bool

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        chunk.require_finite()
        y, index = chunk.targets(), chunk.index()
        w = np.ones(len(index)) if chunk.w is None else np.asarray(chunk.w, dtype=float)
        return {
            "cells": self._cells(chunk, w),
            "square": float(w @ w),
            "kept": [some_rows(chunk, w, np.flatnonzero(index % self.step == 0))],
            "first": self._first(chunk, y, w),
        }

    def _first(self, chunk: Chunk, y: Array, w: Array) -> FirstRows:
        """Return the first row of positive weight of every label."""
        if not self.labelled:
            return FirstRows()
        some = np.flatnonzero(w > 0)
        labels, place = np.unique(y[some], return_index=True)
        rows = [some_rows(chunk, w, some[[i]]) for i in place]
        return FirstRows(zip(labels.tolist(), rows, strict=True))

    def _cells(self, chunk: Chunk, w: Array) -> CellSums:
        labels, label = [None], np.zeros(len(w), dtype=int)
        if self.labelled:
            labels, label = _distinct(chunk.y)
        parts, part = _distinct(chunk.group if self.grouped else self.folds.of(chunk.index()))
        cell, size = label * len(parts) + part, len(labels) * len(parts)
        lines = zip(product(labels, parts), cell_sums(cell, size, w, chunk.X), strict=True)
        return CellSums() + CellSums({key: line for key, line in lines if line[0]})


class KeptRows(NamedTuple):
    """Rows in memory: ``X``, their labels or targets, weights, groups and numbers."""

    X: Array
    y: Array
    w: Array
    group: Array | None
    number: Array


def some_rows(chunk: Chunk, w: Array, some: Array) -> KeptRows:
    """Return some rows of a chunk, with weights w."""
    return KeptRows(*picked((chunk.X, chunk.y, w, chunk.group, chunk.index()), some))


def kept_rows(found: Sums) -> KeptRows:
    """Return the rows that a census kept, with one of each label that is not among them."""
    rows: list[KeptRows] = found["kept"]
    met = {label for part in rows for label in part.y[part.w > 0].tolist()}
    rows = rows + [row for label, row in found["first"].items() if label not in met]
    parts: Any = zip(*rows, strict=True)
    joined: list[Any] = [None if part[0] is None else np.concatenate(part) for part in parts]
    return KeptRows(*joined)


def _distinct(v: Any) -> tuple[list[Any], Array]:
    """Return the values as Python ones, equal wherever they were read, and each entry's place."""
    values, place = np.unique(v, return_inverse=True)
    return values.tolist(), place


def cell_sums(cell: Array, size: int, w: Array, X: Array) -> Array:
    """Return by cell the number of rows, their weight and the sum of wx, shape (size, d + 2)."""
    d = X.shape[1]
    found = np.empty((size, d + 2))
    found[:, 0] = np.bincount(cell, minlength=size)
    found[:, 1] = np.bincount(cell, w, minlength=size)
    found[:, 2:] = 0.0
    step = max(1, BLOCK_BYTES // (8 * d))
    for start in range(0, len(w), step):
        rows = slice(start, start + step)
        found[:, 2:] += indicator(cell[rows], size, w[rows]) @ np.asarray(X[rows], dtype=float)
    return found


def indicator(cell: Array, size: int, w: Array) -> Any:
    """Return the sparse matrix (size, m) that sums rows by cell with weights w."""
    return csr_array((w, (cell, np.arange(len(cell)))), shape=(size, len(cell)))
