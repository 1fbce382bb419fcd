r"""Targets that move at a price at order 1, by solutions of the same problem whose targets cannot.

With :math:`g(w) = \max(w, 1/\kappa)` the risk is :math:`f + \rho\,g(w)`, f the mean loss and rho =
delta Lip. As :math:`g(w) \ge aw + (1 - a)/\kappa` for every slope a in [0, 1], the problem at the
rate :math:`a\rho`, whose targets stay, bounds it from below; its solution is the solution at a = 1
if w >= 1/kappa there, at a = 0 if w <= 1/kappa there, else at the a where w = 1/kappa. A kinked
loss may have both sides at the same slope; then the best point between them is the solution. Order
2 is a form of the interior point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from ..design import model_scores
from ..duality import worst_risk
from ..problem import Problem, Solution
from .base import constant_risk, verdict

#: The least accuracy of a point between two.
XATOL = 1e-12
#: The accuracy of a point between two, in units of the tolerance.
OF_TOLERANCE = 1e-2
#: The least difference of norms.
TINY = 1e-300
#: Problems solved at most.
ROUNDS = 40
#: The share of the gap asked for that each problem may have.
SHARE = 0.25

#: Solve a problem to a tolerance, from a start.
Solve = Callable[[Problem, float, Solution | None], Solution]


@dataclass(frozen=True, eq=False)
class Trial:
    """A point with its risk as ``solution``, its dual norm w, the slope a it came from, and the
    value of the inner problem there."""

    solution: Solution
    w: float
    a: float
    value: float

    @property
    def risk(self) -> float:
        """The worst-case risk."""
        return self.solution.objective


def solve(problem: Problem, tol: float, base: Solve, start: Solution | None) -> Solution:
    """Return the certified solution at order 1, from solutions on both sides of the slope of g."""
    ball, target = problem.ball, tol * constant_risk(problem)[1]
    still = 1 / ball.target_cost
    rate = ball.delta * problem.loss.lipschitz
    left: Trial | None = None
    right: Trial | None = None
    best: Trial | None = None
    near = start
    bound = -np.inf
    dual = None
    n_iter = 0
    a = 1.0
    for round_ in range(ROUNDS):
        inner = replace(ball, delta=ball.delta * a, target_cost=np.inf)
        near = base(replace(problem, ball=inner), SHARE * tol, near)
        n_iter += near.n_iter
        lower = near.objective - near.gap + rate * still * (1 - a)
        if lower >= bound:
            bound, dual = lower, near.dual
        trial = _trial(problem, near, a)
        tried = [trial] if best is None else [best, trial]
        if trial.w >= still:
            left = trial
        else:
            right = trial
        if left is not None and right is not None:
            tried += _between(problem, left, right, max(XATOL, OF_TOLERANCE * tol))
        best = min(tried, key=lambda one: one.risk)
        if best.risk - bound <= target or right is None or right.a == 0.0:
            break
        a = _next(left, right, still, rate, round_)
    assert best is not None
    gap = max(best.risk - bound, 0.0)
    message = verdict(gap, target, n_iter)
    converged = bool(gap <= target)
    return replace(
        best.solution, gap=gap, n_iter=n_iter, converged=converged, message=message, dual=dual
    )


def _trial(problem: Problem, point: Solution, a: float) -> Trial:
    """Return a point with the risk and multiplier of the problem."""
    w = float(problem.ball.cost.dual_norm(point.coef)) if point.coef.any() else 0.0
    z = model_scores(problem.X, point.coef, point.intercept)
    dual = worst_risk(z, problem.y, problem.weights, problem.loss, w, problem.ball)
    solution = replace(point, objective=dual.risk, multiplier=dual.multiplier)
    return Trial(solution, w, a, point.objective)


def _between(problem: Problem, left: Trial, right: Trial, xatol: float) -> list[Trial]:
    """Return the best point on the segment of two by golden section, and that at the kink of g."""

    def at(t: float) -> Trial:
        x, y = left.solution, right.solution
        coef = (1 - t) * x.coef + t * y.coef
        b = (1 - t) * x.intercept + t * y.intercept
        point = replace(x, coef=coef, intercept=float(b), mean_loss=None)
        return _trial(problem, point, left.a)

    least = minimize_scalar(
        lambda t: at(t).risk, bounds=(0.0, 1.0), method="bounded", options={"xatol": xatol}
    )
    trials = [at(float(least.x))]
    kink = 1 / problem.ball.target_cost
    if left.w > kink > right.w:
        # at the kink of max(w, 1/kappa) a minimiser by values has half of the digits
        trials.append(at(float(brentq(lambda t: at(t).w - kink, 0.0, 1.0, xtol=XATOL))))
    return trials


def _next(left: Trial | None, right: Trial, still: float, rate: float, round_: int) -> float:
    """Return the next slope: 0 first, then by three rules in turn.

    Where the tangents of the inner problem's value, of slopes rho w, meet: there the solutions of
    a kinked loss jump. On the line through the ends; and, if that is not between them, the middle.
    """
    if left is None:
        return 0.0
    low, high = left.a, right.a
    apart = max(left.w - right.w, TINY)
    if round_ % 3 == 0:
        guess = ((right.value - left.value) / rate + left.w * low - right.w * high) / apart
    else:
        guess = low + (high - low) * (left.w - still) / apart
    return float(guess) if low < guess < high and round_ % 3 < 2 else (low + high) / 2
