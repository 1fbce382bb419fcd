r"""Problems that differ in delta and in the weights of rows: their steps are taken together.

The steps start from the solutions with fixed labels, whose risks bound those with a price from
below. At order 2 the price makes multipliers larger: one of less risk,
:math:`2^k\lambda`, is looked for first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import least_finite
from ...duality.labels import least_prices
from ...problem import Solution
from ..base import Starts
from . import constant, interior
from .inside import ABOVE, HALVINGS, LARGER_LAM, LEAST_T, ROUGH_ROWS, SMALLER_LAM, Inside
from .priced_rows import Accuracy, Place, PricedMinimum, PricedRows

Array = NDArray[Any]


def minimise_each(
    each: list[Inside], starts: Starts, accuracy: Accuracy
) -> list[PricedMinimum | None]:
    """Return the minimum of each problem from its start, None where no steps get there."""
    at = each[0]
    rows = at.rows.beside([one.rows for one in each])
    place, lam, risk = _places(at, rows, starts)
    known = zip(each, risk.tolist(), accuracy.target.tolist(), strict=True)
    found = [constant.minimise(one.rows, above, goal) for one, above, goal in known]
    left = np.array([one is None for one in found]) & place.theta.any(axis=0)
    moving = np.flatnonzero(left)
    if at.norm_rows is None or not len(moving):
        return found
    below = np.array([start.objective - start.gap for start in starts])
    first = (place.problems(moving), lam[moving], (risk - below)[moving])
    part = accuracy._replace(unit=accuracy.unit[moving], target=accuracy.target[moving])
    minima = interior.minimise_each(rows.problems(moving), at.norm_rows, *first, part)
    for j, one in zip(moving.tolist(), minima, strict=True):
        found[j] = one
    return found


def _places(at: Inside, rows: PricedRows, starts: Starts) -> tuple[Place, Array, Array]:
    """Return the places of solutions with fixed labels, multipliers near the best, and risks."""
    theta, b = at.coordinates.places(_moving(starts))
    z = rows.design.scores(theta) + b
    w = np.array([at.norm(one) for one in theta.T])
    t = np.maximum(ABOVE * w, LEAST_T)
    if rows.worst.scalars == 1:
        kept = rows.loss.value(z, rows.y)
        gain = rows.loss.value(z, -rows.y) - kept
        lowest = rows.loss.lipschitz * w
        lam = least_prices(gain, rows.weights, lowest, rows.delta, rows.kappa)
        paid = rows.weighted_sum(kept + np.maximum(gain - rows.kappa * lam, 0.0))
        return Place(theta, b, t[None], z), lam, rows.delta * lam + paid
    lam, risk = _multipliers(rows, z, np.maximum(w, LEAST_T), starts)
    return Place(theta, b, np.stack([t, lam]), z), lam, risk


def _moving(starts: Starts) -> list[Solution]:
    """Return the solutions, a constant one replaced by the next that has coefficients."""
    found: list[Solution] = []
    for start in reversed(starts):
        found.append(start if start.coef.any() or not found else found[-1])
    return found[::-1]


def _multipliers(rows: PricedRows, z: Array, w: Array, starts: Starts) -> tuple[Array, Array]:
    """Return multipliers of order 2 near the best and their risks over some of the rows."""
    some = slice(None, None, max(1, len(z) // ROUGH_ROWS))
    weights = rows.weights[some] / rows.weights[some].sum(axis=0)

    def risk_of(lam: Array) -> Array:
        value = rows.worst.at(z[some], rows.y[some], np.stack([w, lam])).value.max(axis=0)
        return np.asarray(rows.delta * lam + (weights * value).sum(axis=0))

    known = np.array([start.multiplier for start in starts])
    least = np.array([2 * least_finite(rows.loss, size) for size in w.tolist()])
    lam = np.where(known > least, known, np.maximum(w / np.sqrt(rows.delta), least))
    risk = risk_of(lam)
    for _, factor in (LARGER_LAM, SMALLER_LAM):
        for _ in range(HALVINGS):
            new = np.maximum(factor * lam, least)
            after = risk_of(new)
            better = after < risk
            if not better.any():
                break
            lam, risk = np.where(better, new, lam), np.where(better, after, risk)
    return lam, risk
