"""The methods of labels that change at a price: which steps, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import model_scores
from ...duality import least_finite, priced_risk, priced_tangent
from ...problem import Problem, Solution
from ..base import Method, Starts, constant_risk, each_alone, same_factor
from . import constant, cuts, interior, tied_rows, together
from .inside import Inside
from .pieces import pieces_of
from .priced_rows import Accuracy, Place, PricedMinimum
from .smoothed_pieces import minimise

Array = NDArray[Any]

#: Rows up to which folds are solved together, and scores of problems whose steps are.
TOGETHER_UP_TO, ENTRIES = 500, 40_000
#: Multiples of delta by way of which a minimum is found that steps from fixed labels do not find.
LARGER = tuple(2.0**k for k in range(12, -1, -1))


class PricedLabels(Method):
    """Losses of one score whose worst case is a maximum of smooth pieces."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    changes_labels = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse curved losses at order 2 without a Euclidean cost, and other losses."""
        loss, ball = problem.loss, problem.ball
        if pieces_of(loss, ball.order, ball.label_cost) is None:
            return f"a label_cost at order={ball.order} has no method for {type(loss).__name__}"
        curved = loss.pieces is None
        if ball.order == 2 and curved and not ball.cost.euclidean:
            return f"order=2 with {type(loss).__name__} needs a Euclidean or Mahalanobis cost"
        return None

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        at = Inside(problem)
        b, unit = constant_risk(problem)
        accuracy = Accuracy(unit, tol * unit, max_iter)
        found = None if start is None else _from_start(at, start, accuracy)
        if found is None:
            zero = at.place(np.zeros(problem.X.shape[1]), b)
            if at.norm_rows is None:
                found = cuts.minimise(at, zero, 0.0, accuracy)
            else:
                found = minimise(at.rows, at.norm_rows, zero, at.risk, accuracy)
        return at.solution(found, accuracy.target)

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions from those with fixed labels, which ``starts`` are."""
        assert starts is not None
        first, *folds = problems
        smooth = first.loss.pieces is None
        few = first.X.shape[0] <= TOGETHER_UP_TO
        if folds and smooth and few and first.ball.cost.euclidean and same_factor(folds):
            path = self._from_fixed_labels([first], deltas, tols[0], max_iter, starts[:1])
            tol = min(tols[1:])
            return path + self._from_fixed_labels(folds, deltas, tol, max_iter, starts[1:])

        def alone(p: int, problem: Problem, fixed: Starts) -> list[Solution]:
            return self._from_fixed_labels([problem], deltas, tols[p], max_iter, [fixed])[0]

        return each_alone(problems, starts, alone)

    def _from_fixed_labels(
        self,
        problems: list[Problem],
        deltas: Array,
        tol: float,
        max_iter: int,
        fixed: Sequence[Starts],
    ) -> list[list[Solution]]:
        """Return paths with a label price from those with fixed labels, under the same cost.

        The price only lets the adversary do more, so that solutions are the same where the price
        is not used. The steps of the others are taken together; what these do not solve is solved
        alone.
        """
        each = [problem.at(float(delta)) for problem in problems for delta in deltas]
        starts = [solution for path in fixed for solution in path]
        solved = [_unchanged(*pair, tol) for pair in zip(each, starts, strict=True)]
        left = [j for j, one in enumerate(solved) if one is None]
        if len(left) == 1:
            [j] = left
            solved[j] = self._solve_one(each[j], tol, max_iter, starts[j])
        elif left:
            rest, near = [each[j] for j in left], [starts[j] for j in left]
            for j, one in zip(left, self._solve_each(rest, tol, max_iter, near), strict=True):
                solved[j] = one
        flat = [one for one in solved if one is not None]
        m = len(deltas)
        return [flat[k * m : (k + 1) * m] for k in range(len(problems))]

    def _solve_each(
        self, problems: list[Problem], tol: float, max_iter: int, starts: Starts
    ) -> list[Solution]:
        """Solve problems that differ in weights and delta, from those with fixed labels."""
        alike = Inside(problems[0])
        each = [alike.at(problem) for problem in problems]
        unit = np.array([constant_risk(problem)[1] for problem in problems])
        found: list[PricedMinimum | None] = []
        size = max(1, ENTRIES // len(problems[0].weights))
        for k in range(0, len(problems), size):
            part = slice(k, k + size)
            accuracy = Accuracy(unit[part], tol * unit[part], max_iter)
            found += together.minimise_each(each[part], starts[part], accuracy)
        return [
            self._solve_one(at.problem, tol, max_iter, start)
            if minimum is None
            else at.solution(minimum, target)
            for at, start, minimum, target in zip(each, starts, found, tol * unit, strict=True)
        ]


def _unchanged(problem: Problem, fixed: Solution, tol: float) -> Solution | None:
    """Return the solution with fixed labels where it is one with a label price, else None."""
    coef, ball = fixed.coef, problem.ball
    z = model_scores(problem.X, coef, fixed.intercept)
    w = float(ball.cost.dual_norm(coef)) if coef.any() else 0.0
    known = (z, problem.y, problem.weights, problem.loss, w, ball)
    if ball.order == 2 and w > 0 and fixed.multiplier > least_finite(problem.loss, w):
        # at the solution's own multiplier, the best one where no label is changed
        risk = float(priced_tangent(*known, fixed.multiplier).value)
    else:
        risk = priced_risk(*known).risk
    gap = fixed.gap + max(risk - fixed.objective, 0.0)
    if gap > max(fixed.gap, tol * constant_risk(problem)[1]):
        return None
    return replace(fixed, objective=max(risk, fixed.objective), gap=gap)


def _from_start(at: Inside, start: Solution, accuracy: Accuracy) -> PricedMinimum | None:
    """Return the minimum from the solution with fixed labels, None where no steps get there."""
    rows, below = at.rows, start.objective - start.gap
    fixed = (at.place(start.coef, start.intercept), start.multiplier)
    place = at.nearer(*fixed, smaller=at.newton)
    risk, lam = at.risk(place)
    found = constant.minimise(rows, risk, accuracy.target)
    if found is not None:
        return found
    if at.norm_rows is None:
        return cuts.minimise(at, place, below, accuracy)
    moves = bool(start.coef.any())
    if moves and at.newton:
        found = tied_rows.minimise(rows, place, lam, accuracy)
    # interior points take fewer steps from coefficients that are too large, where they get there
    for smaller in (False, True):
        if found is None and (moves or not at.problem.ball.cost.euclidean):
            known = (at.nearer(*fixed, smaller), at.risk, below)
            found = interior.minimise(rows, at.norm_rows, *known, accuracy)
    if found is None and moves and rows.worst.scalars == 2:
        found = _from_larger_deltas(at, *fixed, below, accuracy)
    return found


def _from_larger_deltas(
    at: Inside, place: Place, lam: float, below: float, accuracy: Accuracy
) -> PricedMinimum | None:
    """Return the minimum by way of larger deltas, each from the one before, None if there is none.

    Where rows are separable and delta is small the best multiplier is far from that of fixed
    labels. ``below`` bounds the least risk at this delta, and with it those at larger ones.
    """
    assert at.norm_rows is not None
    found: PricedMinimum | None = None
    for factor in LARGER:
        one = at.at(at.problem.at(factor * at.rows.delta))
        begin = one.nearer(place, lam, smaller=False)
        found = None
        if at.newton:
            best = one.risk(begin)[1]
            found = tied_rows.minimise(one.rows, begin, best, accuracy)
        if found is None:
            found = interior.minimise(one.rows, at.norm_rows, begin, one.risk, below, accuracy)
        if found is not None:
            place, lam = found.place, found.multiplier
    return found


def constant_model(problem: Problem, target: float) -> Solution | None:
    """Return the model theta = 0 where it is certified to be optimal; only class means matter."""
    at = Inside(problem)
    found = constant.minimise(at.rows, np.inf, target)
    return None if found is None else at.solution(found, target)
