"""The contracts: a solver is what a user sets up, a method is one way to solve some problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..arrays import numpy, pick
from ..problem import Problem, Solution

Array = NDArray[Any]

#: Solutions near those of one problem, one per delta.
Starts = Sequence[Solution]


class Method:
    """One way to solve some problems: it states what it accepts and what its gap certifies.

    A subclass says how one problem is solved at one delta (``_solve_one``), and overrides
    ``_solve_path`` or ``solve`` where deltas or problems can share work.
    """

    #: The geometries of a problem that the method is for.
    geometries: frozenset[str]
    #: What the gap of a solution bounds, in a few words.
    certifies: str
    #: Whether delta = 0, plain empirical risk, is solved too.
    accepts_zero: bool = False
    #: Whether targets may move at a price.
    moves_targets: bool = False
    #: Whether labels may be changed at a price.
    changes_labels: bool = False
    #: Whether it is for losses of several scores per row, else for those of one.
    several_scores: bool = False
    #: Whether rows of another library than NumPy are taken, and stay on their device.
    on_device: bool = False
    #: The least gap, relative to the constant model's risk, that the method can be asked for.
    reaches: float = 0.0

    def lacks(self, problem: Problem) -> str | None:
        """Return the fact that a problem of these geometries lacks, None if it is accepted."""
        raise NotImplementedError

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows and targets at every delta.

        They differ in weights and cost; ``deltas`` are positive and descend, ``tols`` has one
        tolerance per problem. Here each problem is solved by itself.
        """

        def alone(p: int, problem: Problem, near: Starts | None) -> list[Solution]:
            if len(deltas) > 1:
                return self._solve_path(problem, deltas, tols[p], max_iter, near)
            at, start = problem.at(float(deltas[0])), None if near is None else near[0]
            return [self._solve_one(at, tols[p], max_iter, start)]

        return each_alone(problems, starts, alone)

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Minimise the worst-case risk, from ``start`` where the method can use one."""
        raise NotImplementedError

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Solve at every delta, from the starts or each from the solution before it."""
        solved: list[Solution] = []
        for j, delta in enumerate(deltas):
            start = starts[j] if starts is not None else (solved[-1] if solved else None)
            solved.append(self._solve_one(problem.at(float(delta)), tol, max_iter, start))
        return solved


class Solver(BaseEstimator):  # type: ignore[misc]
    """Problems in, solutions out; parameters are stored, never written.

    A subclass says how one problem is solved at one delta (``_solve_one``).
    """

    #: Whether losses of several scores per row are solved too.
    several_scores: bool = False
    #: Whether rows of another library than NumPy are taken, where a method for them is.
    on_device: bool = False
    #: Whether no setting is in the unit of the cost, so that rows may be measured in another one.
    unit_free: bool = False

    def lacks(self, problem: Problem) -> str | None:
        """Return the fact that the problem lacks for this solver, None if it is accepted."""
        return None

    def solve(
        self,
        problems: list[Problem],
        deltas: Any,
        starts: Sequence[Starts] | None = None,
        *,
        tols: Sequence[float] | None = None,
    ) -> list[list[Solution]]:
        """Return the solutions of every problem at every delta: ``result[p][k]``.

        Parameters
        ----------
        problems : list of Problem
            The radius of their balls does not count. Problems over the same arrays ``X`` and
            ``y`` share work where the solver can: a fold is such a problem whose rows left out
            have weight 0. The problem of all rows, with its folds after it, comes first.
        deltas : array-like of shape (m,)
            The radii, descending.
        starts : list of lists of Solution, default=None
            Solutions near those asked for, in the shape of the result.
        tols : list of float, default=None
            For every problem a gap, relative to the risk of its best constant model, that is
            small enough; the solver's own ``tol`` counts where it is larger.
        """
        radii = [float(delta) for delta in deltas]

        def down(p: int, problem: Problem, near: Starts | None) -> list[Solution]:
            solved: list[Solution] = []
            for k, delta in enumerate(radii):
                start = near[k] if near is not None else (solved[-1] if solved else None)
                solved.append(self._solve_one(problem.at(delta), start))
            return solved

        return each_alone(problems, starts, down)

    def _solve_one(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Minimise the worst-case risk, from ``start`` where the solver can use one."""
        raise NotImplementedError


def each_alone(
    problems: list[Problem], starts: Sequence[Starts] | None, solve: Any
) -> list[list[Solution]]:
    """Return ``solve(p, problem, starts)`` of every problem, of several without their empty rows.

    A row without weight counts only where it is a place to which mass may be moved.
    """
    solved = []
    for p, problem in enumerate(problems):
        near = None if starts is None else starts[p]
        empty = numpy(problem.weights <= 0)
        if len(problems) == 1 or problem.finite or not empty.any():
            solved.append(solve(p, problem, near))
            continue
        rows = np.flatnonzero(~empty)
        fewer = replace(
            problem,
            X=pick(problem.X, rows),
            y=pick(problem.y, rows),
            weights=pick(problem.weights, rows),
        )
        if near is not None:
            near = [_with_rows(start, rows, len(empty)) for start in near]
        solved.append([_with_all_rows(one, rows, len(empty)) for one in solve(p, fewer, near)])
    return solved


def _with_rows(solution: Solution, rows: Array, n: int) -> Solution:
    """Return a solution over n rows with the dual point of some of them."""
    if solution.dual is None or len(solution.dual) != n:
        return solution
    return replace(solution, dual=pick(solution.dual, rows))


def _with_all_rows(solution: Solution, rows: Array, n: int) -> Solution:
    """Return the solution of some rows with a dual point of all n: 0 of the rows left out."""
    if solution.dual is None:
        return solution
    part = numpy(solution.dual)
    dual = np.zeros((n, *part.shape[1:]))
    dual[rows] = part
    return replace(solution, dual=dual)


def same_factor(problems: list[Problem]) -> bool:
    """Whether Euclidean costs of problems have the same factor."""
    first, *others = (problem.ball.cost.factor() for problem in problems)
    if first is None:
        return all(factor is None for factor in others)
    return all(
        factor is first or (factor is not None and np.array_equal(factor, first))
        for factor in others
    )


def constant_risk(problem: Problem) -> tuple[Any, float]:
    """Return the best constant score and its risk, the unit of ``tol``."""
    return problem.constant


def constant_solution(problem: Problem) -> Solution:
    """Return beta = 0, which is optimal: at delta no direction pays for its price."""
    b, risk = constant_risk(problem)
    return Solution(
        coef=np.zeros(problem.X.shape[1]),
        intercept=b,
        multiplier=0.0,
        objective=risk,
        gap=0.0,
        n_iter=1,
        converged=True,
        message="the constant model is optimal at this delta",
    )


def ahead(deltas: Array) -> float:
    """Return t with v_3 near v_2 + t (v_2 - v_1) on the line in log delta through two solutions.

    The last three deltas count; t is at most 1, and 0 where there are fewer or the last is 0.
    """
    if len(deltas) < 3 or deltas[-1] <= 0:
        return 0.0
    a, b, c = np.log(deltas[-3:])
    return float(min(1.0, (c - b) / (b - a)))


def duality_gap(risk: float, lower: float) -> float:
    """Return risk - lower, at least 0; inf where it is not a number, which proves nothing."""
    gap = float(risk) - float(lower)
    return np.inf if np.isnan(gap) else max(0.0, gap)


def verdict(gap: float, target: float, n_iter: int) -> str:
    """Return how a method ended, as a clause."""
    steps = f"after {n_iter} iteration{'' if n_iter == 1 else 's'}"
    if gap <= target:
        return f"gap {gap:.3g} is within the target {target:.3g} {steps}"
    return f"stopped {steps} with gap {gap:.3g} above the target {target:.3g}"
