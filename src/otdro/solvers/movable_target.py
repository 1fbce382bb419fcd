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
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from ..design import model_scores
from ..duality import worst_risk
from ..problem import Problem, Solution
from .base import constant_risk, verdict

Array = NDArray[Any]

#: The accuracy of a point between two, at least and in units of the tolerance, and the least
#: difference of norms.
XATOL, OF_TOLERANCE, TINY = 1e-12, 1e-2, 1e-300
#: Problems solved at most, and the share of the gap asked for that each may have.
ROUNDS, SHARE = 40, 0.25

#: Solve a problem to a tolerance, from a start; and at deltas, descending, to a tolerance.
Solve = Callable[[Problem, float, Solution | None], Solution]
SolvePath = Callable[[Problem, Array, float], list[Solution]]


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
        value = max(found.objective - found.gap, 0.0)
        if self.square is not None:
            return float((np.sqrt(self.square * value) + self._rest(a)) ** 2 / self.square)
        return value + self.problem.loss.lipschitz * self._rest(a)

    def steepness(self, a: float, value: float) -> float:
        """Return the derivative of the bound in the value of the inner problem."""
        if self.square is None:
            return 1.0
        return 1 + self._rest(a) / float(np.sqrt(self.square * max(value, TINY)))

    @property
    def square(self) -> float | None:
        """2 kappa where the root of 2 kappa times the risk is linear in g, else None."""
        pieces = self.problem.loss.pieces
        rooted = self.problem.ball.order == 2 and pieces is not None and pieces.rooted
        return 2 * pieces.kappa if rooted and pieces is not None else None

    def _rest(self, a: float) -> float:
        """Return rho g*(a)."""
        ball = self.problem.ball
        if ball.order == 1:
            return ball.delta * self.still * (1 - a)
        return float(np.sqrt(ball.delta * max(1 - a**2, 0.0))) * self.still

    def excess(self, a: float, w: float) -> float:
        """Return a less the slope of g at w (at the kink of order 1, its sign): rises with a."""
        if self.problem.ball.order == 1:
            return 1.0 if w < self.still else -1.0
        return float(a - w / np.hypot(w, self.still))


def solve(problem: Problem, tol: float, base: Solve, start: Solution | None) -> Solution:
    """Return the certified solution, from solutions on both sides of the slope of g."""
    search = _Search(problem, tol)
    near = start
    while search.open:
        near = base(search.penalty.at(search.a), search.inner_tol(near), near)
        search.take(near)
    return search.solution()


def solve_path(problem: Problem, deltas: Array, tol: float, base: SolvePath) -> list[Solution]:
    """Return the solutions at positive deltas; all that are open take a round together."""
    searches = [_Search(problem.at(float(delta)), tol) for delta in deltas]
    while left := [search for search in searches if search.open]:
        inner = [search.penalty.at(search.a) for search in left]
        rates = np.array([one.ball.delta for one in inner])
        down = np.argsort(-rates, kind="stable")
        share = min(search.inner_tol(search.last) for search in left)
        solved = base(inner[0], rates[down], share)
        for place, found in zip(down.tolist(), solved, strict=True):
            left[place].take(found)
    return [search.solution() for search in searches]


class _Search:
    """The slope of g at one problem: solutions on both sides of it, the best point, the bound.

    A kinked loss may have both at the same slope; then the best point between them is the solution.
    """

    def __init__(self, problem: Problem, tol: float) -> None:
        self.problem = problem
        self.tol = tol
        self.penalty = _Slope(problem)
        self.target = tol * constant_risk(problem)[1]
        pieces = problem.loss.pieces
        self.kinked = problem.ball.order == 1 or pieces is None or not pieces.quadratic
        self.best: _Trial | None = None
        self.left: _Trial | None = None
        self.right: _Trial | None = None
        self.last: Solution | None = None
        self.bound = -np.inf
        self.dual: Array | None = None
        self.n_iter = self.rounds = 0
        self.a = 1.0
        self.open = True

    def inner_tol(self, near: Solution | None) -> float:
        """Return the accuracy of the next inner problem.

        The bound errs by the inner gap times its own steepness, which is 1 at a = 1.
        """
        value = self.target if near is None else max(near.objective, self.target)
        return SHARE * self.tol / self.penalty.steepness(self.a, value)

    def take(self, found: Solution) -> None:
        """Take the solution at the slope a, and go on to the next slope."""
        problem, penalty = self.problem, self.penalty
        self.last = found
        self.n_iter += found.n_iter
        lower = penalty.lower(self.a, found)
        if lower > self.bound:
            self.bound = lower
            steepness = penalty.steepness(self.a, found.objective)
            self.dual = None if found.dual is None else steepness * found.dual
        new = _trial(problem, found, self.a)
        best = _better(self.best, new)
        if penalty.excess(self.a, new.w) < 0:
            self.left = new
        else:
            self.right = new
        if self.left is not None and self.right is not None and self.kinked:
            xatol = max(XATOL, OF_TOLERANCE * self.tol)
            best = _better(best, _between(problem, self.left, self.right, xatol))
        self.best = best
        self.rounds += 1
        settled = self.right is None or self.right.a == 0.0
        done = best.found.objective - self.bound <= self.target or settled
        self.open = not done and self.rounds < ROUNDS
        if self.open and self.right is not None:
            self.a = _next(penalty, self.left, self.right, self.rounds - 1)

    def solution(self) -> Solution:
        """Return the best point with its gap."""
        assert self.best is not None
        found = self.best.found
        gap = max(found.objective - self.bound, 0.0)
        message = verdict(gap, self.target, self.n_iter)
        converged = bool(gap <= self.target)
        return replace(
            found,
            gap=gap,
            n_iter=self.n_iter,
            converged=converged,
            message=message,
            dual=self.dual,
        )


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


def _between(problem: Problem, left: _Trial, right: _Trial, xatol: float) -> _Trial:
    """Return the best point on the segment of two, by golden section."""

    def at(t: float) -> _Trial:
        x, y = left.found, right.found
        coef, b = (1 - t) * x.coef + t * y.coef, (1 - t) * x.intercept + t * y.intercept
        point = replace(x, coef=coef, intercept=float(b), mean_loss=None)
        return _trial(problem, point, left.a)

    t = minimize_scalar(
        lambda t: at(t).found.objective,
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": xatol},
    ).x
    best = at(float(t))
    kink = float(problem.ball.gain(0.0))
    if problem.ball.order == 1 and left.w > kink > right.w:
        # at the kink of max(w, 1/kappa) a minimiser by values has half of the digits
        best = _better(best, at(float(brentq(lambda t: at(t).w - kink, 0.0, 1.0, xtol=XATOL))))
    return best


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
        below, above = penalty.excess(low, left.w), penalty.excess(high, right.w)
        guess = (low * above - high * below) / (above - below)
    return float(guess) if low < guess < high and round_ % 3 < 2 else (low + high) / 2
