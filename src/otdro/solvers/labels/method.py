"""The methods of labels that change at a price: which steps, and from where."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...problem import Problem, Solution
from ..base import Method, Starts, constant_risk, verdict
from ..norm_rows import norm_rows
from ..softmax.method import MultinomialNewton, PairCoordinates, pair_penalty
from . import constant, cuts, interior, tied_rows, together
from .inside import LEAST_T, Inside
from .pieces import pieces_of
from .priced_rows import Accuracy, Place, PricedMinimum
from .smoothed_pieces import minimise
from .softmax import PricedSoftmax
from .softmax import minimise as minimise_softmax

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

    def solve(
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

    def folds_together(self, problem: Problem) -> bool:
        """Whether the problems are so small that the steps of several at once are cheaper."""
        smooth = problem.loss.pieces is None
        few = problem.X.shape[0] <= TOGETHER_UP_TO
        return bool(smooth and few and problem.ball.cost.euclidean)

    def solve_each(
        self, problems: list[Problem], tol: float, max_iter: int, starts: Starts
    ) -> list[Solution]:
        """Solve problems that differ in weights and delta, from those with fixed labels.

        Their steps are taken together; what these do not solve is solved alone.
        """
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
            self.solve(at.problem, tol, max_iter, start)
            if minimum is None
            else at.solution(minimum, target)
            for at, start, minimum, target in zip(each, starts, found, tol * unit, strict=True)
        ]


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


class PricedMultinomial(Method):
    """The softmax model at order 1 whose labels change at a price."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    changes_labels = True
    several_scores = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse what the softmax model refuses."""
        return MultinomialNewton().lacks(problem)

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser, from that with fixed labels or the constant model."""
        ball = problem.ball
        at = PairCoordinates(problem)
        rows = at.rows(problem)
        norm = norm_rows(ball.cost, rows.design.d)
        assert norm is not None
        task = PricedSoftmax(rows, pair_penalty(problem), norm, ball.delta, ball.label_cost)
        b, unit = constant_risk(problem)
        C, c, known = np.zeros((rows.design.d, rows.classes - 1)), b @ rows.basis, 0.0
        if start is not None and start.coef.any():
            inside = at.inside(start, rows.basis)
            C, c, known = inside.C[0], inside.c[0], start.objective - start.gap
        first = task.place(C, c, LEAST_T)
        found = minimise_softmax(task, first, Accuracy(unit, tol * unit, max_iter), known)
        coef, intercept = at.outside(*rows.split(found.at.x[:-1]), rows.basis)
        return Solution(
            coef=coef,
            intercept=intercept,
            multiplier=found.dual.multiplier,
            objective=found.dual.risk,
            gap=found.gap,
            n_iter=found.n_iter,
            converged=bool(found.gap <= tol * unit),
            message=verdict(found.gap, tol * unit, found.n_iter),
            dual=found.slopes,
        )
