"""The method of the softmax model: coordinates, penalty of the cost, solutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs.low_rank import shortest
from ...design import Design, Span, mean, row_space
from ...problem import Problem, Solution
from ..base import Method, Starts, constant_risk, verdict
from .euclidean import RoundPairs
from .newton import SoftmaxMinimum, Unpenalised, locate, minimise, origin
from .penalty import PairPenalty
from .polyhedral import LargestEntry, SumOfEntries
from .rows import SoftmaxRows

Array = NDArray[Any]

#: Coefficients below this share of the largest are tried as zeros where the penalty is a sum.
NEGLIGIBLE = 1e-6
#: Rows up to which a wide problem (d > n) is reduced to their span.
REDUCE_UP_TO = 5_000


class MultinomialNewton(Method):
    """The cross-entropy of several scores at order 1, and at delta = 0."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    accepts_zero = True
    several_scores = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 2, and norms other than Euclidean ones, l1 and linf."""
        ball = problem.ball
        if ball.delta == 0:
            return None
        if ball.order == 2:
            return "the softmax model has no one-dimensional inner problem at order 2"
        if not ball.cost.euclidean and ball.cost.dual_p not in (1.0, np.inf):
            return f"the softmax model needs a Euclidean cost, l1 or linf, not {ball.cost!r}"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        [found] = _solved(problem, [problem.ball.delta], tol, max_iter, start)
        return found

    def solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta, each from the last, over the same rows."""
        return _solved(problem, np.asarray(deltas, dtype=float).tolist(), tol, max_iter, None)


def _solved(
    problem: Problem, deltas: list[float], tol: float, max_iter: int, start: Solution | None
) -> list[Solution]:
    """Return the solutions along deltas, each from the one before it."""
    at = PairCoordinates(problem)
    rows = at.rows(problem)
    b, risk = constant_risk(problem)
    near = None if start is None else at.inside(start, rows.basis)
    penalty = pair_penalty(problem.at(deltas[0]))
    zero = origin(rows, penalty, b)
    solved = []
    last: list[SoftmaxMinimum] = []
    for j, delta in enumerate(deltas):
        now = problem.at(delta)
        near = _ahead(last, deltas[: j + 1]) if last else near
        found = minimise(rows, penalty, delta, zero, tol * risk, max_iter, near)
        last = [*last[-1:], found]
        solved.append(_solution(now, at, rows, found, tol * risk))
    return solved


def _ahead(found: list[SoftmaxMinimum], deltas: list[float]) -> tuple[Array, Array]:
    """Return a start at the last of ``deltas``, on the line in log delta through the last two."""
    first, last = found[0].point, found[-1].point
    if len(found) < 2 or deltas[-1] == 0 or first.norm == 0:
        return last.C, last.c
    a, b, c = np.log(deltas[-3:])
    ahead = min(1.0, (c - b) / (b - a))
    return last.C + ahead * (last.C - first.C), last.c + ahead * (last.c - first.c)


def pair_penalty(problem: Problem) -> PairPenalty:
    """Return the penalty of the cost of a problem."""
    cost = problem.ball.cost
    if problem.ball.delta == 0:
        return Unpenalised()
    if cost.euclidean:
        return RoundPairs()
    return SumOfEntries() if cost.dual_p == 1 else LargestEntry()


class PairCoordinates:
    """Centred rows; under a Euclidean cost whitened, and reduced to the span of wide ones."""

    def __init__(self, problem: Problem) -> None:
        self.center = mean(problem.X, problem.weights) if problem.fit_intercept else None
        cost = problem.ball.cost
        self.factor = cost.factor() if cost.euclidean else None
        self.design = Design(problem.X, self.factor, self.center)
        self.span: Span | None = None
        n, d = self.design.n, self.design.d
        round_ = cost.euclidean or problem.ball.delta == 0
        if round_ and d > n and n <= REDUCE_UP_TO:
            self.design, self.span = row_space(self.design, problem.ball.delta == 0)

    def rows(self, problem: Problem) -> SoftmaxRows:
        """Return the rows in these coordinates."""
        labels = problem.y.astype(int)
        form = (problem.loss.outputs, problem.fit_intercept)
        return SoftmaxRows(self.design, labels, problem.weights, *form)

    def inside(self, start: Solution, E: Array) -> tuple[Array, Array]:
        """Return (C, c) of a solution."""
        B = start.coef.T
        b = np.asarray(start.intercept)
        b = b if self.center is None else b + self.center @ B
        B = B if self.factor is None else shortest(self.factor, B)
        B = B if self.span is None else self.span.drop(B)
        return B @ E, b @ E

    def outside(self, C: Array, c: Array, E: Array) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) on the rows as given."""
        B = C if self.span is None else self.span.lift(C)
        B = B if self.factor is None else self.factor @ B
        coef = E @ B.T
        b = E @ c
        return coef, b if self.center is None else b - coef @ self.center


def _solution(
    problem: Problem, at: PairCoordinates, rows: SoftmaxRows, found: SoftmaxMinimum, target: float
) -> Solution:
    point = found.point
    coef, intercept = at.outside(point.C, point.c, rows.basis)
    solution = Solution(
        coef=coef,
        intercept=intercept,
        multiplier=point.norm,
        objective=found.objective,
        gap=found.gap,
        n_iter=found.n_iter,
        converged=bool(found.gap <= target),
        message=verdict(found.gap, target, found.n_iter),
        dual=found.slopes,
    )
    sparse = problem.ball.delta > 0 and problem.ball.cost.dual_p == 1
    return _rounded(problem, at, rows, solution, target) if sparse else solution


def _rounded(
    problem: Problem, at: PairCoordinates, rows: SoftmaxRows, found: Solution, target: float
) -> Solution:
    """Return the solution with tiny coefficients set to zero, where that keeps it within target."""
    small = np.abs(found.coef) < NEGLIGIBLE * np.abs(found.coef).max(initial=0.0)
    if not small.any():
        return found
    coef = np.where(small, 0.0, found.coef)
    C, c = at.inside(replace(found, coef=coef), rows.basis)
    point = locate(rows, pair_penalty(problem), C, c)
    objective = point.loss + problem.ball.delta * point.norm
    gap = found.gap + objective - found.objective
    if gap > max(found.gap, target):
        return found
    # the classes' mean, which no score depends on, need not be zero
    return replace(found, coef=coef, objective=objective, gap=max(gap, 0.0), multiplier=point.norm)


class Threshold(NamedTuple):
    """A delta from which B = 0 is optimal, and whether it is the least one to rounding."""

    delta: float
    least: bool


def pair_threshold(problem: Problem) -> Threshold:
    """Return the size of a flow of the gradient at B = 0: nearly the least for Euclidean costs."""
    at = PairCoordinates(problem)
    rows = at.rows(problem)
    b, _ = constant_risk(problem)
    p = rows.evaluate(np.tile(b, (at.design.n, 1)))[1]
    penalty = pair_penalty(problem.at(1.0))
    flows, _ = penalty.first(rows, rows.adjoint(rows.slopes(p)))
    return Threshold(float(penalty.sizes(flows).sum()), problem.ball.cost.euclidean)
