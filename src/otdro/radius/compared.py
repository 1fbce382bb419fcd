"""The rows on which costs are compared: of many, a part says as much as the choice can use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem import Sample
from .splitting import Split, usable

Array = NDArray[Any]

#: Rows up to which costs are compared on all of them.
ALL_UP_TO = 2_000
#: Rows on which they are compared else, or so many a column where that is more.
COMPARE_ON, PER_COLUMN = 1_000, 10
#: Of the deltas of a grid every such one is tried there, and where a row has many columns.
EVERY = 3


def compared(sample: Sample, splits: list[Split]) -> tuple[Sample, list[Split]]:
    """Return the rows on which costs are compared with what is left of the folds among them.

    Of more than ``ALL_UP_TO`` rows it is a random part, always the same; all rows where such a part
    would lack a class in some fold.
    """
    n, d = sample.X.shape
    rows = np.flatnonzero(sample.weights > 0)
    most = max(COMPARE_ON, PER_COLUMN * d)
    if len(rows) <= max(ALL_UP_TO, most):
        return sample, splits
    rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    place = np.full(n, -1)
    place[rows] = np.arange(most)
    fewer = [(_kept(place, train), _kept(place, test)) for train, test in splits]
    part = sample.rows(rows)
    whole = all(len(np.unique(y)) == len(np.unique(y[rows])) for y in _labels(sample))
    if not (whole and all(usable(part, *pair) for pair in fewer)):
        return sample, splits
    return part, fewer


def _labels(sample: Sample) -> list[Array]:
    return sample.ys if sample.loss.task == "classification" else []


def _kept(place: Array, rows: Array) -> Array:
    """Return where rows are in the part, those that are."""
    found: Array = place[rows]
    return found[found >= 0]
