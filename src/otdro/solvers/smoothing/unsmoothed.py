"""The unsmoothed worst-case risk of a point that an approximate solver found, and its gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import worst_risk
from ...problem import Problem
from ..euclidean.coordinates import Coordinates
from ..euclidean.joint import SHARP, newton_steps
from ..euclidean.joint_newton import joint_objective

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Assessment:
    """The worst-case ``risk`` at a point, its ``multiplier``, a bound on its excess (inf: none)."""

    risk: float
    multiplier: float
    gap: float


def assess(problem: Problem, coef: Array, intercept: float, lam: float = 0.0) -> Assessment:
    """Return the exact worst-case risk of a linear score, and a dual bound where there is one.

    ``lam`` is where to look for the multiplier first, if positive. Logistic and squared losses
    with a Euclidean cost have dual points in closed form; for others the gap is inf.
    """
    loss, ball = problem.loss, problem.ball
    z = Design(problem.X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef))
    dual = worst_risk(z, problem.y, problem.weights, loss, w, ball, start=lam)
    gap = np.inf
    if ball.cost.euclidean and ball.order == 2:
        if loss.pieces is not None and loss.pieces.quadratic:
            gap = dual.risk - _squared(problem, z - problem.y)
        elif loss.pieces is None and np.isfinite(loss.lipschitz) and ball.delta > 0 and w > 0:
            gap = dual.risk - _smooth(problem, coef, intercept, dual.multiplier)
    return Assessment(dual.risk, dual.multiplier, max(gap, 0.0))


def _squared(problem: Problem, e: Array) -> float:
    """Return (kappa <a, y>)^2 with a = e/rms and kappa such that ||Z'a|| <= sqrt(delta)."""
    weights = problem.weights
    e = e - weights @ e if problem.fit_intercept else e
    a = -e / max(np.sqrt(weights @ e**2), np.finfo(float).tiny)
    size = float(np.linalg.norm(Coordinates(problem).design.adjoint(weights * a)))
    kappa = min(1.0, np.sqrt(problem.ball.delta) / size) if size > 0 else 1.0
    pieces = problem.loss.pieces
    assert pieces is not None
    return float(max(kappa * (weights @ (a * problem.y)), 0.0) ** 2 / (2 * pieces.kappa))


def _smooth(problem: Problem, coef: Array, intercept: float, lam: float) -> float:
    """Return the lower bound of the moved rows, tied rows shared by one step of the model."""
    at = Coordinates(problem)
    fixed = (problem.y, problem.weights, problem.loss, problem.fit_intercept)
    objective = joint_objective(at.design, *fixed, np.array([problem.ball.delta]))
    theta, b = at.theta(coef)[:, None], np.array([at.centred(intercept, coef)])
    x = objective.start(theta, b, np.array([lam]))
    hard = (x.value[0] >= x.value[-1]).astype(float)
    p = newton_steps(objective, x, hard, np.array([SHARP])).p
    return float(objective.lower_bound(x, p)[0])
