"""The unsmoothed worst-case risk of a point that an approximate solver found, and its gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import Round, worst_risk
from ...losses import Loss
from ...problem import Problem
from ..euclidean.coordinates import Coordinates
from ..euclidean.joint import SHARP, JointObjective, newton_steps
from .smoothed_dual import dual_rows

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Unsmoothed:
    """The worst-case ``risk`` at a point, its ``multiplier``, a bound on its excess (inf: none)."""

    risk: float
    multiplier: float
    gap: float


def unsmoothed_risk(
    problem: Problem, coef: Array, intercept: float, lam: float = 0.0
) -> Unsmoothed:
    """Return the exact worst-case risk of a linear score under a Euclidean cost of order 2.

    ``lam`` is where to look for the multiplier first, if positive. Smooth Lipschitz and quadratic
    losses have a lower bound; for others the gap is inf.
    """
    loss, ball = problem.loss, problem.ball
    z = Design(problem.X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef))
    dual = worst_risk(z, problem.y, problem.weights, loss, w, ball, start=lam)
    if w == 0 or not _bounded_below(loss):
        return Unsmoothed(dual.risk, dual.multiplier, np.inf)
    bound = _lower_bound(problem, coef, intercept, dual.multiplier)
    return Unsmoothed(dual.risk, dual.multiplier, max(dual.risk - bound, 0.0))


def _bounded_below(loss: Loss) -> bool:
    """Whether slopes of moved rows make a good bound: each may change with the score."""
    if loss.pieces is not None:
        return loss.pieces.quadratic
    return bool(np.isfinite(loss.lipschitz))


def _lower_bound(problem: Problem, coef: Array, intercept: float, lam: float) -> float:
    """Return the lower bound of the moved rows, tied rows shared by one step of the model."""
    at = Coordinates(problem)
    objective = JointObjective(dual_rows(problem, at.design, Round()), problem.loss)
    theta = at.theta(coef)[:, None]
    b = np.array([at.centred(intercept, coef)])
    x = objective.start(theta, b, np.array([lam]))
    shares = (x.value[0] >= x.value[-1]).astype(float)
    if x.two.any():
        shares = newton_steps(objective, x, shares, np.array([SHARP])).p
    return float(objective.lower_bound(x, shares)[0])
