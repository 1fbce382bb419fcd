"""The nearest point of each row at which the model is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import numpy
from ..costs import Cost
from ..design import as_dense
from .boundary import Nearest
from .linear import LinearModel

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Change:
    """What a counterfactual changes in one column: from, to, and that in standard deviations."""

    column: str
    before: float
    after: float
    deviations: float


def normals(model: LinearModel, own: Array, nearest: Nearest) -> tuple[Array, Array]:
    """Return the distinct vectors w whose score x'w falls on the way to the boundary, and of whom.

    They are B_y - B_k for the pairs (y, k) that occur, or -+beta where a prediction leaves above
    or below; the second array holds the number of its vector for each row.
    """
    if model.classes is None:
        return np.vstack([-model.coef[0], model.coef[0]]), (nearest.towards < 0).astype(int)
    K = len(model.classes)
    pairs, of = np.unique(own * K + nearest.towards, return_inverse=True)
    return model.coef[pairs // K] - model.coef[pairs % K], of


def counterfactuals(X: Any, model: LinearModel, own: Array, nearest: Nearest, cost: Cost) -> Array:
    """Return x - t v(w): the nearest point on the boundary, NaN where no move reaches it."""
    w, of = normals(model, own, nearest)
    t = nearest.distance
    found = np.array(numpy(as_dense(X)), dtype=float)
    reached = np.isfinite(t)
    found[reached] -= t[reached, None] * cost.direction(w)[of[reached]]
    found[~reached] = np.nan
    return found


def changes(before: Array, after: Array, names: list[str], scale: Array) -> list[Change]:
    """Return the columns that change, the largest move in standard deviations first."""
    step = np.divide(after - before, scale, out=np.zeros(len(before)), where=scale > 0)
    order = np.argsort(-np.abs(step), kind="stable")
    return [
        Change(names[j], float(before[j]), float(after[j]), float(step[j]))
        for j in order
        if after[j] != before[j]
    ]
