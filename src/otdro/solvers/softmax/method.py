"""The method of the softmax model: coordinates, penalty of the cost, solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import as_index, beside, class_masses, full, namespace
from ...design import DECOMPOSE_UP_TO, REDUCE_UP_TO, row_space
from ...problem import Problem, Solution
from ..base import Method, Starts, ahead, constant_risk, verdict
from ..euclidean.coordinates import Coordinates
from ..norm_rows import norm_rows
from .batch import OwnRows, SharedRows
from .euclidean import RoundPairs, Unpenalised
from .newton import Certificate, PairProblems, SoftmaxStart, minimise, origin
from .penalty import PairPenalty
from .polyhedral import PolyhedralPairs
from .rows import SoftmaxRows

Array = NDArray[Any]

#: Coefficients below this share of the largest are tried as zeros where the penalty is a sum.
NEGLIGIBLE = 1e-6
#: Coefficients of a problem, and products of the entries of its rows, up to which the steps of
#: several problems at once are cheaper than those of one after the other.
BATCH_COEFFICIENTS, BATCH_ENTRIES = 100, 100_000


class MultinomialNewton(Method):
    """The cross-entropy of several scores at order 1, and at delta = 0."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    accepts_zero = True
    several_scores = True
    on_device = True

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

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        deltas = np.array([problem.ball.delta])
        return _in_turn(_Together([problem]), deltas, tol, max_iter, start)[0][0]

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta, each from those before it."""
        return _in_turn(_Together([problem]), np.asarray(deltas, dtype=float), tol, max_iter)[0]

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows, small folds in step."""
        first, *folds = problems
        masses = [class_masses(p.y, p.weights, p.loss.outputs) for p in folds]
        if not folds or not _is_small(first) or not np.all(masses):
            return super().solve(problems, deltas, tols, max_iter, starts)
        path = self._solve_path(first, deltas, tols[0], max_iter, None)
        return [path, *_in_turn(_Together(folds), deltas, min(tols[1:]), max_iter)]


def _is_small(problem: Problem) -> bool:
    """Whether problems are so small that the steps of several at once are cheaper."""
    n, d = problem.X.shape
    K = problem.loss.outputs
    small = (d + 1) * (K - 1) <= BATCH_COEFFICIENTS and n * max(d**2, K) <= BATCH_ENTRIES
    return bool(small and d <= n and problem.ball.cost.euclidean)


class _Together:
    """Problems over the same rows, with weights and costs of their own, in their coordinates."""

    def __init__(self, problems: list[Problem]) -> None:
        self.first = problems[0]
        self.at = [PairCoordinates(problem, len(problems) == 1) for problem in problems]
        if len(problems) == 1:
            rows = self.at[0].rows(self.first)
            self.rows = replace(rows, weights=rows.weights[None])
        else:
            stack = namespace(self.first.weights).stack
            own = OwnRows(stack([at.design.dense() for at in self.at]))
            weights = stack([problem.weights for problem in problems])
            self.rows = replace(self.at[0].rows(self.first), design=own, weights=weights)
        known = [constant_risk(problem) for problem in problems]
        self.constant = np.stack([b for b, _ in known])
        self.unit = np.array([risk for _, risk in known])


def _in_turn(
    problems: _Together, deltas: Array, tol: float, max_iter: int, start: Solution | None = None
) -> list[list[Solution]]:
    """Return the solutions along deltas, each from the line through the two before it."""
    rows, target = problems.rows, tol * problems.unit
    near = None if start is None else problems.at[0].inside(start, rows.basis)
    penalty = pair_penalty(problems.first.at(float(deltas[0])))
    zero = origin(PairProblems(rows, penalty, deltas[:1]), problems.constant)
    solved: list[list[Solution]] = [[] for _ in problems.at]
    last: list[Certificate] = []
    for j, delta in enumerate(deltas.tolist()):
        near = _extrapolated(last, deltas[: j + 1]) if last else near
        each = PairProblems(rows, penalty, np.full(len(target), delta))
        found = minimise(each, zero, target, max_iter, near)
        last = [*last[-1:], found]
        for path, solution in zip(solved, _solutions(problems, delta, found, target), strict=True):
            path.append(solution)
    return solved


def _extrapolated(found: list[Certificate], deltas: Array) -> SoftmaxStart:
    """Return a start at the last of ``deltas``, on the line in log delta through the last two."""
    first, last = found[0].points, found[-1].points
    t = np.where(first.norm > 0, ahead(deltas), 0.0)
    C = last.C + t[:, None, None] * (last.C - first.C)
    return SoftmaxStart(C, last.c + t[:, None] * (last.c - first.c), found[-1].multipliers)


def pair_penalty(problem: Problem) -> PairPenalty:
    """Return the penalty of the cost of a problem."""
    cost = problem.ball.cost
    if problem.ball.delta == 0:
        return Unpenalised()
    if cost.euclidean:
        return RoundPairs()
    slacks = norm_rows(cost, problem.X.shape[1])
    assert slacks is not None
    return PolyhedralPairs(cost, slacks)


class PairCoordinates(Coordinates):
    """Centred rows; under a Euclidean cost whitened, and reduced to their span.

    That is of wide rows, and of those of one problem ``alone`` whose columns depend on each other:
    a step would be free along what no row sees.
    """

    def __init__(self, problem: Problem, alone: bool = True) -> None:
        super().__init__(problem, reduce=False)
        n, d = self.design.n, self.design.d
        plain = problem.ball.delta == 0
        small = alone and n * d <= DECOMPOSE_UP_TO
        round_ = problem.ball.cost.euclidean or plain
        if round_ and n <= REDUCE_UP_TO and (d > n or small):
            design, span = row_space(self.design, plain)
            if design.d < d:
                self.design, self.span = design, span

    def rows(self, problem: Problem) -> SoftmaxRows:
        """Return the rows in these coordinates."""
        labels = as_index(problem.y)
        form = (problem.loss.outputs, problem.fit_intercept)
        return SoftmaxRows(SharedRows(self.design), labels, problem.weights, *form)

    def inside(self, start: Solution, E: Array) -> SoftmaxStart:
        """Return (C, c) of a solution, as those of one problem."""
        B = start.coef.T
        b = self._shifted(np.asarray(start.intercept), B)
        return SoftmaxStart((self.theta(B) @ E)[None], (b @ E)[None])

    def outside(self, C: Array, c: Array, E: Array) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) on the rows as given."""
        B = self.coef(C) @ E.T
        return B.T, self._shifted(E @ c, -B)


def _solutions(
    problems: _Together, delta: float, found: Certificate, targets: Array
) -> list[Solution]:
    """Return the minima as solutions on the rows as given."""
    points, basis = found.points, problems.rows.basis
    problem = problems.first.at(delta)
    sparse = delta > 0 and problem.ball.cost.dual_p == 1
    solved = []
    for i, (at, target) in enumerate(zip(problems.at, targets.tolist(), strict=True)):
        coef, intercept = at.outside(points.C[i], points.c[i], basis)
        gap, n_iter = float(found.gap[i]), int(found.n_iter[i])
        solution = Solution(
            coef=coef,
            intercept=intercept,
            multiplier=float(points.norm[i]),
            objective=float(found.objective[i]),
            gap=gap,
            n_iter=n_iter,
            converged=bool(gap <= target),
            message=verdict(gap, target, n_iter),
            dual=found.slopes[i],
        )
        if sparse:
            rows = problems.rows.columns([i])
            solution = _rounded(problem, at, rows, solution, target)
        solved.append(solution)
    return solved


def _rounded(
    problem: Problem, at: PairCoordinates, rows: SoftmaxRows, found: Solution, target: float
) -> Solution:
    """Return the solution with tiny coefficients set to zero, where that keeps it within target."""
    small = np.abs(found.coef) < NEGLIGIBLE * np.abs(found.coef).max(initial=0.0)
    if not small.any():
        return found
    coef = np.where(small, 0.0, found.coef)
    C, c, _ = at.inside(replace(found, coef=coef), rows.basis)
    alone = PairProblems(rows, pair_penalty(problem), np.array([problem.ball.delta]))
    point = alone.at(C, c)
    norm, objective = float(point.norm[0]), float(alone.value(point)[0])
    gap = found.gap + objective - found.objective
    if gap > max(found.gap, target):
        return found
    # the classes' mean, which no score depends on, need not be zero
    return replace(found, coef=coef, objective=objective, gap=max(gap, 0.0), multiplier=norm)


class Threshold(NamedTuple):
    """A delta from which B = 0 is optimal, and whether it is the least one to rounding."""

    delta: float
    least: bool


def pair_threshold(problem: Problem) -> Threshold:
    """Return the size of a flow of the gradient at B = 0: nearly the least for Euclidean costs."""
    at = PairCoordinates(problem)
    rows = at.rows(problem)
    b, _ = constant_risk(problem)
    penalty = pair_penalty(problem.at(1.0))
    scores = full((at.design.n, len(b)), 0.0, problem.y) + beside(b, problem.y)
    slopes = rows.slopes(rows.evaluate(scores)[1])
    flows, _ = penalty.first(rows, rows.adjoint(slopes))
    return Threshold(float(penalty.sizes(flows).sum()), problem.ball.cost.euclidean)
