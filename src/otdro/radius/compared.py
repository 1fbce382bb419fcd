"""The rows on which costs are compared: of many, a part says as much as the choice can use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import numpy
from ..problem import Sample
from .splitting import Split, usable

Array = NDArray[Any]

#: Rows up to which costs are compared on all of them.
ALL_UP_TO = 2_000
#: Rows on which they are compared else, or so many a column, or so many of the rarest class, where
#: that is more.
COMPARE_ON, PER_COLUMN, OF_A_CLASS = 1_000, 10, 100
#: Of the deltas of a grid every such one is tried there, and where a row has many columns.
EVERY = 3


def compared(sample: Sample, splits: list[Split]) -> tuple[Sample, list[Split]]:
    """Return the rows on which costs are compared with what is left of the folds among them.

    Of more than ``ALL_UP_TO`` rows it is a random part, always the same; all rows where such a part
    would lack a class in some fold.
    """
    n, d = sample.X.shape
    rows = np.flatnonzero(numpy(sample.weights) > 0)
    most = max(COMPARE_ON, PER_COLUMN * d, int(np.ceil(OF_A_CLASS / _rarest(sample, rows))))
    if len(rows) <= max(ALL_UP_TO, most):
        return sample, splits
    rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    place = np.full(n, -1)
    place[rows] = np.arange(most)
    fewer = [(_kept(place, train), _kept(place, test)) for train, test in splits]
    part = sample.rows(rows)
    if not all(usable(part, *pair) for pair in fewer):
        return sample, splits
    return part, fewer


def _rarest(sample: Sample, rows: Array) -> float:
    """Return the share of the rarest class among some rows, 1 of targets."""
    if sample.loss.task != "classification":
        return 1.0
    counts = [np.unique(numpy(y)[rows], return_counts=True)[1].min() for y in sample.ys]
    return float(min(counts) / len(rows))


def _kept(place: Array, rows: Array) -> Array:
    """Return where rows are in the part, those that are."""
    found: Array = place[rows]
    return found[found >= 0]
