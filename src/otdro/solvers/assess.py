"""The unsmoothed worst-case risk of a point that an approximate solver found, and its gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from ..design import Design
from ..duality import worst_risk
from ..losses import Logistic, Squared
from ..losses.base import Loss
from ..problem import Problem
from . import joint
from .base import Coordinates
from .tilt import maxima

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Assessment:
    """The worst-case ``risk`` at a point, its ``multiplier``, a bound on its excess (inf: none)."""

    risk: float
    multiplier: float
    gap: float


def assess(problem: Problem, coef: Array, intercept: float) -> Assessment:
    """Return the exact worst-case risk of a linear score, and a dual bound where there is one.

    Logistic and squared losses with a Euclidean cost have dual points in closed form; for
    others the gap is inf.
    """
    y, weights, ball = problem.y, problem.weights, problem.ball
    z = Design(problem.X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef))
    if type(problem.loss).inner is Loss.inner and w > 0:
        return _by_search(problem, z, w)
    dual = worst_risk(z, y, weights, problem.loss, w, ball, rtol=1e-10)
    gap = np.inf
    if ball.cost.euclidean and ball.order == 2:
        if isinstance(problem.loss, Squared):
            gap = dual.risk - _squared(problem, z - y)
        elif isinstance(problem.loss, Logistic) and ball.delta > 0 and w > 0:
            gap = dual.risk - _logistic(problem, coef, intercept, dual.multiplier)
    return Assessment(dual.risk, dual.multiplier, max(gap, 0.0))


def _by_search(problem: Problem, z: Array, w: float) -> Assessment:
    """Return the least of lam delta + mean sup over lam, for a loss without its inner supremum."""
    loss, y, pi, delta = problem.loss, problem.y, problem.weights, problem.ball.delta
    growth = loss.smoothness * w**2 / 2 if np.isinf(loss.lipschitz) else 0.0
    middle = np.log(max(w * np.sqrt(pi @ loss.derivative(z, y) ** 2 / (4 * delta)), 1e-12))

    def dual(log_excess: float) -> float:
        lam = growth + float(np.exp(log_excess))
        return float(lam * delta + pi @ maxima(loss, z, y, lam / w**2).value.max(axis=0))

    found = minimize_scalar(dual, bounds=(middle - 6, middle + 6), method="bounded")
    return Assessment(float(found.fun), growth + float(np.exp(found.x)), np.inf)


def _squared(problem: Problem, e: Array) -> float:
    """Return (kappa <a, y>)^2 with a = e/rms and kappa such that ||Z'a|| <= sqrt(delta)."""
    weights = problem.weights
    e = e - weights @ e if problem.fit_intercept else e
    a = -e / max(np.sqrt(weights @ e**2), np.finfo(float).tiny)
    size = float(np.linalg.norm(Coordinates(problem).design.adjoint(weights * a)))
    kappa = min(1.0, np.sqrt(problem.ball.delta) / size) if size > 0 else 1.0
    return float(max(kappa * (weights @ (a * problem.y)), 0.0) ** 2)


def _logistic(problem: Problem, coef: Array, intercept: float, lam: float) -> float:
    """Return the entropy bound of ``joint``, tied rows shared by one step of its model."""
    at = Coordinates(problem)
    model = joint.Joint(
        at.design, problem.y, problem.weights, problem.ball.delta, problem.fit_intercept
    )
    theta, b = at.theta(coef), at.centred(intercept, coef)
    x = model.at(theta, b, lam, at.design.scores(theta) + b)
    _, p, _ = model.step(x, (x.value[0] >= x.value[-1]).astype(float), joint.SHARP)
    return model.lower_bound(x, p)
