"""The unsmoothed worst-case risk of a point that an approximate solver found, and its gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Norm
from ...duality import DualRows, worst_risk
from ...losses import Loss
from ...problem import Ball
from ..euclidean.order_two import SHARP, JointObjective, JointPoint

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Unsmoothed:
    """The worst-case ``risk`` at a point, its ``multiplier``, a bound on its excess (inf: none)."""

    risk: float
    multiplier: float
    gap: float


def unsmoothed_risk(
    rows: DualRows, loss: Loss, theta: Array, b: float, lam: float = 0.0
) -> Unsmoothed:
    """Return the exact worst-case risk of order 2 of one point, in round coordinates.

    ``lam`` is where to look for the multiplier first, if positive. Smooth Lipschitz and quadratic
    losses have a lower bound; for others the gap is inf.
    """
    z = rows.design.scores(theta) + b
    w = float(rows.dual_norm.norms(theta[:, None])[0, 0])
    ball = Ball(Norm(2), float(rows.delta[0]))
    dual = worst_risk(z, rows.y, rows.weights[:, 0], loss, w, ball, start=lam)
    bounded = np.isfinite(loss.lipschitz) if loss.pieces is None else loss.pieces.quadratic
    gap = np.inf
    if bounded:
        objective = JointObjective(rows, loss)
        x = objective.start(theta[:, None], np.array([b]), np.array([dual.multiplier]))
        bound = _lower_bound(objective, x)
        if loss.pieces is not None:
            bound = max(bound, _root_bound(rows, z) / (2 * loss.pieces.kappa))
        gap = max(dual.risk - bound, 0.0)
    return Unsmoothed(dual.risk, dual.multiplier, gap)


def _root_bound(rows: DualRows, z: Array) -> float:
    """Return the square of <a, y> at a = e/rms(e) shrunk to |Z'a| <= sqrt(delta).

    a is in the dual of rms(e) + sqrt(delta) w, whose bound holds where residuals nearly vanish.
    """
    pi = rows.weights[:, 0]
    e = rows.y - z
    e = e - (pi @ e) * rows.fit_intercept
    a = e / max(float(np.sqrt(pi @ e**2)), np.finfo(float).tiny)
    size = float(np.linalg.norm(rows.design.adjoint(pi * a)))
    root = float(np.sqrt(rows.delta[0]))
    return max(float(pi @ (a * rows.y)) * root / max(root, size), 0.0) ** 2


def _lower_bound(objective: JointObjective, x: JointPoint) -> float:
    """Return the lower bound of the moved rows, tied rows shared by one step of the model."""
    if x.two.any():
        x, _, _ = objective.shared(x, np.array([SHARP]))
    return float(objective.lower_bound(x)[0])
