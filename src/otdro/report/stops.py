"""The stops of the slider: at each delta what this model and the best model against it stand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inspection import Audit
from ..radius import Path, path

Array = NDArray[Any]

#: Stops of the slider beside the delta that the model was fitted for.
STOPS = 21
#: Entries of X up to which the best model is solved for at every stop: smooth losses, others.
SMOOTH_ENTRIES, OTHER_ENTRIES = 1_000_000, 100_000
#: The loss of accuracy at which the slider stands where the model was fitted for no delta.
FALL = 0.05
#: The gap of those solutions, relative to the risk of a constant: more digits than are shown.
TOL = 1e-5


@dataclass(frozen=True, eq=False)
class Stops:
    """Rising ``deltas`` (m,) with certified accuracy and worst-case loss of the audited model.

    ``refits`` are the best linear models against each delta above 0 on the same rows, in the order
    of ``deltas`` (None where they were not solved for). ``first`` is where the slider
    stands at first: the fitted delta, else the first delta that costs a twentieth of the rows.
    """

    deltas: Array
    accuracy: Array
    risk: Array
    first: int
    fitted: int | None
    refits: list[Refit] | None


@dataclass(frozen=True, eq=False)
class Refit:
    """The linear model with the least worst-case loss at one delta, and what it certifies there."""

    coef: Array
    intercept: Array
    accuracy: float
    empirical_risk: float
    robust_risk: float


def stops_of(found: Audit) -> Stops:
    """Return the stops of an audit."""
    # a grid that the user gave may be 0 alone
    end = float(found.deltas[-1]) or 1.0
    # the curve is steepest near 0
    deltas = end * np.linspace(0.0, 1.0, STOPS) ** 2
    fitted = found.fitted_delta
    if fitted is not None and fitted <= 2 * end:
        deltas = np.unique(np.append(deltas, fitted))
    place = int(np.flatnonzero(deltas == fitted)[0]) if fitted in deltas else None
    accuracy = np.asarray(found.accuracy(deltas))
    fallen = np.flatnonzero(accuracy <= accuracy[0] - FALL)
    first = place if place is not None else int(fallen[0]) if len(fallen) else 0
    risk = np.asarray(found.risk(deltas))
    return Stops(deltas, accuracy, risk, first, place, _refits(found, deltas[deltas > 0]))


def _refits(found: Audit, deltas: Array) -> list[Refit] | None:
    """Return the best models at ``deltas`` (rising), None where they are not to be had quickly."""
    loss = found.model.loss
    entries = found.X.shape[0] * found.X.shape[1]
    many = found.classes is not None and len(found.classes) > 2
    endless = found.order == 1 and not np.isfinite(loss.lipschitz)
    limit = SMOOTH_ENTRIES if np.isfinite(loss.smoothness) else OTHER_ENTRIES
    priced = np.isfinite(min(found.label_cost, found.target_cost))
    if many or endless or priced or entries > limit:
        return None
    y = found.target if found.classes is None else np.where(found.target == 1, 1.0, -1.0)
    ball = (found.cost, found.order, deltas[::-1])
    try:
        solved = path(found.X, y, loss, *ball, sample_weight=found.weights, tol=TOL)
    except ValueError:
        # no exact method for this loss, norm and order
        return None
    return [_refit(found, solved, k) for k in range(len(deltas))][::-1]


def _refit(found: Audit, solved: Path, k: int) -> Refit:
    """Return the k-th model of a path with its certified accuracy at its own delta."""
    coef, intercept = solved.coef[[k]], solved.intercept[[k]]
    if found.classes is not None:
        coef, intercept = np.vstack([0 * coef, coef]), np.append(0.0, intercept)
    linear = replace(found.model, coef=coef, intercept=intercept)
    return Refit(
        coef,
        intercept,
        replace(found, model=linear).accuracy(float(solved.deltas[k])),
        float(solved.empirical_risk[k]),
        float(solved.robust_risk[k]),
    )
