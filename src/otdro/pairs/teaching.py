"""The rows that pairs are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design import as_dense

Array = NDArray[Any]

#: Rows from which pairs are made at most: the scatter of pairs is known well enough from these,
#: and neighbours are expensive to find.
TEACH_UP_TO = 5_000


def unlabelled_rows(X: Any) -> Array:
    """Return rows without labels, a random part (always the same) of more than ``TEACH_UP_TO``."""
    if X.shape[0] > TEACH_UP_TO:
        X = X[np.random.default_rng(0).choice(X.shape[0], TEACH_UP_TO, replace=False)]
    return np.asarray(as_dense(X), dtype=float)


def teaching_rows(X: Any, y: Array, weights: Array) -> tuple[Array, Array]:
    """Return the distinct (x, y) of positive weight, so that a weight of 2 is a row met twice.

    Of more than ``TEACH_UP_TO`` rows a random part (always the same) is used.
    """
    index = np.flatnonzero(weights > 0)
    if len(index) > TEACH_UP_TO:
        index = np.random.default_rng(0).choice(index, TEACH_UP_TO, replace=False)
    rows = np.column_stack([as_dense(X[index]), y[index]])
    rows = np.unique(np.asarray(rows, dtype=float), axis=0)
    return rows[:, :-1], rows[:, -1]
