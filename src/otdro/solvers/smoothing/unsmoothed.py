"""The unsmoothed worst-case risk of a point that an approximate solver found, and its gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import worst_risk
from ...losses import Logistic, Squared
from ...losses.base import Loss
from ...problem import Problem
from ..euclidean import joint
from ..euclidean.coordinates import Coordinates
from .gaussian_integral import maxima

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
    y, weights, ball = problem.y, problem.weights, problem.ball
    z = Design(problem.X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef))
    logistic = isinstance(problem.loss, Logistic)
    if w > 0 and ball.delta > 0 and (logistic or type(problem.loss).inner is Loss.inner):
        risk, lam = _least(problem, z, w, lam)
    else:
        dual = worst_risk(z, y, weights, problem.loss, w, ball, rtol=1e-10)
        risk, lam = dual.risk, dual.multiplier
    gap = np.inf
    if ball.cost.euclidean and ball.order == 2:
        if isinstance(problem.loss, Squared):
            gap = risk - _squared(problem, z - y)
        elif logistic and ball.delta > 0 and w > 0:
            gap = risk - _logistic(problem, coef, intercept, lam)
    return Assessment(risk, lam, max(gap, 0.0))


class Tangent(NamedTuple):
    """A multiplier, the dual objective lam delta + mean psi there, and its slope."""

    lam: float
    value: float
    slope: float


def _least(problem: Problem, z: Array, w: float, start: float) -> tuple[float, float]:
    """Return the least of the convex lam delta + mean psi over lam > growth, and lam."""
    loss, y, pi, delta = problem.loss, problem.y, problem.weights, problem.ball.delta
    growth = loss.smoothness * w**2 / 2 if np.isinf(loss.lipschitz) else 0.0

    def tangent(excess: float) -> Tangent:
        inner = maxima(loss, z, y, (growth + excess) / w**2)
        best = inner.value.argmax(axis=0)[None]
        value, shift = (np.take_along_axis(a, best, axis=0)[0] for a in inner)
        # d psi/d lam = -t^2, t = shift/w
        slope = delta - float(pi @ (shift / w) ** 2)
        return Tangent(excess, float((growth + excess) * delta + pi @ value), slope)

    if not start > growth:
        start = growth + max(w * float(np.sqrt(pi @ loss.derivative(z, y) ** 2 / delta)) / 2, 1e-12)
    found = descend(tangent, *bracket(tangent, start - growth))
    return found.value, growth + found.lam


def bracket(tangent: Callable[[float], Tangent], start: float) -> tuple[Tangent, Tangent]:
    """Return tangents on either side of the least value, close to the start if it is good."""
    left = right = tangent(start)
    reach = 1e-6
    while left.slope > 0 and left.lam > 1e-300:
        left, right, reach = tangent(left.lam / (1 + reach)), left, 10 * reach
    while right.slope < 0:
        left, right, reach = right, tangent(right.lam * (1 + reach)), 10 * reach
    return left, right


def descend(
    tangent: Callable[[float], Tangent], left: Tangent, right: Tangent, rtol: float = 1e-12
) -> Tangent:
    """Return the least value within ``rtol`` of itself: where two tangents meet is a bound below
    it, and the kink that tied rows make."""
    for _ in range(100):
        if not left.slope < 0 < right.slope:
            break
        excess = right.slope * (right.lam - left.lam) - (right.value - left.value)
        step = excess / (right.slope - left.slope)
        least = min(left.value, right.value)
        if least - (left.value + left.slope * step) <= rtol * least:
            break
        new = tangent(left.lam + step)
        left, right = (new, right) if new.slope < 0 else (left, new)
    return min(left, right, key=lambda t: t.value)


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
