r"""Targets that move at a price, by solutions of the same problem whose targets cannot.

With g(w) = max(w, 1/kappa) at order 1 and :math:`g(w) = \sqrt{w^2 + 1/\kappa}` at order 2 the risk
is :math:`f + \rho\,g(w)`, f the mean loss (its root, for losses with a rooted worst case). As
:math:`g(w) \ge aw + g^*(a)` for every slope a in [0, 1], the problem at the rate :math:`a\rho`,
whose targets stay, bounds it from below, and at the a with g'(w) = a its solution is the solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from ..design import model_scores
from ..duality import worst_risk
from ..problem import Problem, Solution
from .base import constant_risk, verdict

#: The accuracy of a point between two, and the least difference of norms.
XATOL, TINY = 1e-12, 1e-300
#: Problems solved at most, and the share of the gap asked for that each may have.
ROUNDS, SHARE = 40, 0.25
#: The least share of a gap that is asked of a solution: beyond it are roundings.
LEAST_SHARE = 1e-4

#: Solve a problem to a tolerance, from a start.
Solve = Callable[[Problem, float, Solution | None], Solution]


def is_linear(problem: Problem) -> bool:
    """Whether the worst-case risk is f + rho g(w), so that slopes of g lead to the solution."""
    pieces = problem.loss.pieces
    if problem.ball.order == 1:
        return True
    return pieces is not None and (pieces.rooted or (pieces.kappa == 0 and sum(pieces.slopes) == 0))


@dataclass(frozen=True, eq=False)
class _Slope:
    """The penalty rho g(w) of a problem, with rho = delta at order 1 and its root at order 2."""

    problem: Problem

    @property
    def still(self) -> float:
        """g(0), the gain of a target that moves alone."""
        return float(self.problem.ball.gain(0.0))

    def at(self, a: float) -> Problem:
        """Return the problem of the rate a rho, whose targets cannot move."""
        ball = self.problem.ball
        inner = replace(ball, delta=ball.delta * a**ball.order, target_cost=np.inf)
        return replace(self.problem, ball=inner)

    def lower(self, a: float, found: Solution) -> float:
        """Return the bound on the risk from the solution at the slope a."""
        loss, ball = self.problem.loss, self.problem.ball
        value = self._value(found)
        rest = self.still * (1 - a if ball.order == 1 else np.sqrt(max(1 - a**2, 0.0)))
        rate = ball.delta if ball.order == 1 else np.sqrt(ball.delta)
        if self._rooted:
            assert loss.pieces is not None
            scale = 2 * loss.pieces.kappa
            return float((np.sqrt(scale * value) + rate * rest) ** 2 / scale)
        return float(value + rate * loss.lipschitz * rest)

    def share(self, a: float, found: Solution) -> float:
        """Return the share of a gap of this bound that the solution at the slope a may have.

        Of a bound that is (root v + rest)^2 it is root v/(root v + rest), v the solution's value.
        """
        if not self._rooted:
            return 1.0
        return float(np.sqrt(self._value(found) / max(self.lower(a, found), TINY)))

    @property
    def _rooted(self) -> bool:
        pieces = self.problem.loss.pieces
        return self.problem.ball.order == 2 and pieces is not None and pieces.rooted

    def _value(self, found: Solution) -> float:
        return max(found.objective - found.gap, 0.0)

    def excess(self, a: float, w: float) -> float:
        """Return a less the slope of g at w (at the kink of order 1, its sign): rises with a."""
        if self.problem.ball.order == 1:
            return 1.0 if w < self.still else -1.0
        return float(a - w / np.hypot(w, self.still))


def solve(problem: Problem, tol: float, base: Solve, start: Solution | None) -> Solution:
    """Return the certified solution, from solutions on both sides of the slope of g.

    A kinked loss may have both at the same slope; then the best point between them is the solution.
    """
    penalty = _Slope(problem)
    target = tol * constant_risk(problem)[1]
    best: _Trial | None = None
    left: _Trial | None = None
    right: _Trial | None = None
    bound, n_iter, a, share = -np.inf, 0, 1.0, 1.0
    near = start
    for round_ in range(ROUNDS):
        near = base(penalty.at(a), SHARE * share * tol, near)
        share = max(penalty.share(a, near), LEAST_SHARE)
        n_iter += near.n_iter
        bound = max(bound, penalty.lower(a, near))
        new = _trial(problem, near, a)
        best = _better(best, new)
        if penalty.excess(a, new.w) < 0:
            left = new
        else:
            right = new
        if left is not None and right is not None:
            best = _better(best, _between(problem, left, right))
        settled = right is None or right.a == 0.0
        if best.found.objective - bound <= target or settled:
            break
        assert right is not None
        a = _next(penalty, left, right, round_)
    assert best is not None
    gap = max(best.found.objective - bound, 0.0)
    message = verdict(gap, target, n_iter)
    converged = bool(gap <= target)
    return replace(best.found, gap=gap, n_iter=n_iter, converged=converged, message=message)


@dataclass(frozen=True, eq=False)
class _Trial:
    """A point with its risk as ``found``, its dual norm w, the slope a it came from, and the value
    of the inner problem there."""

    found: Solution
    w: float
    a: float
    value: float


def _trial(problem: Problem, point: Solution, a: float) -> _Trial:
    """Return a point with the risk and multiplier of the problem."""
    w = float(problem.ball.cost.dual_norm(point.coef)) if point.coef.any() else 0.0
    z = model_scores(problem.X, point.coef, point.intercept)
    risk = worst_risk(z, problem.y, problem.weights, problem.loss, w, problem.ball)
    found = replace(point, objective=risk.risk, multiplier=risk.multiplier)
    return _Trial(found, w, a, point.objective)


def _better(first: _Trial | None, second: _Trial) -> _Trial:
    lower = first is None or second.found.objective < first.found.objective
    return second if lower or first is None else first


def _between(problem: Problem, left: _Trial, right: _Trial) -> _Trial:
    """Return the best point on the segment of two, by golden section."""

    def at(t: float) -> _Trial:
        ends = (left.found, right.found)
        coef, b = ((1 - t) * x + t * y for x, y in zip(*map(_model, ends), strict=True))
        point = replace(left.found, coef=coef, intercept=float(b), mean_loss=None)
        return _trial(problem, point, left.a)

    t = minimize_scalar(
        lambda t: at(t).found.objective,
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": XATOL},
    ).x
    best = at(float(t))
    kink = float(problem.ball.gain(0.0))
    if problem.ball.order == 1 and left.w > kink > right.w:
        # at the kink of max(w, 1/kappa) a minimiser by values has half of the digits
        best = _better(best, at(float(brentq(lambda t: at(t).w - kink, 0.0, 1.0, xtol=XATOL))))
    return best


def _model(point: Solution) -> tuple[Any, Any]:
    return point.coef, point.intercept


def _next(penalty: _Slope, left: _Trial | None, right: _Trial, round_: int) -> float:
    """Return the next slope: 0 first, then by three rules in turn.

    Where the tangents of the inner problem's value, of slopes rho w, meet: there the solutions of
    a kinked loss jump. On the line through the ends; and, if that is not between them, the middle.
    """
    order = penalty.problem.ball.order
    if left is None:
        return 0.0 if order == 1 else right.w / np.hypot(right.w, penalty.still)
    low, high = left.a, right.a
    apart = max(left.w - right.w, TINY)
    rate = penalty.problem.ball.delta * penalty.problem.loss.lipschitz
    if round_ % 3 == 0 and order == 1:
        rise = (right.value - left.value) / rate
        guess = (rise + left.w * low - right.w * high) / apart
    elif order == 1:
        guess = low + (high - low) * (left.w - penalty.still) / apart
    else:
        guess = left.w / np.hypot(left.w, penalty.still)
    return float(guess) if low < guess < high and round_ % 3 < 2 else (low + high) / 2
