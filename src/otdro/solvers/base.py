"""The contracts: a solver is what a user sets up, a method is one way to solve some problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..costs import Cost
from ..problem import Problem, Solution

Array = NDArray[Any]

#: Solutions of problems nearby, one per delta.
Starts = Sequence[Solution]


@dataclass(frozen=True, eq=False)
class Swept:
    """Solutions along the deltas: the ``path`` over all rows, and those of every fold.

    The objective of a fold's solution is that of its quadratic model, not of its rows.
    """

    path: list[Solution]
    folds: list[list[Solution]]


class Method:
    """One way to solve some problems: it states what it accepts and what its gap certifies.

    ``deltas`` of a path are positive and descend; ``accepts_zero`` methods also take delta = 0.
    """

    #: The geometries of a problem that the method is for.
    geometries: frozenset[str]
    #: What the gap of a solution bounds, in a few words.
    certifies: str
    #: Whether delta = 0, plain empirical risk, is solved too.
    accepts_zero: bool = False
    #: Whether targets may move at a price where the risk is not linear in the dual norm.
    moves_targets: bool = False
    #: Whether labels may be changed at a price.
    changes_labels: bool = False
    #: Whether it is for losses of several scores per row, else for those of one.
    several_scores: bool = False
    #: Whether rows of another library than NumPy are taken, and stay on their device.
    on_device: bool = False
    #: Whether a path takes little more than a solution.
    shares_paths: bool = False

    def lacks(self, problem: Problem) -> str | None:
        """Return the fact that a problem of these geometries lacks, None if it is accepted."""
        raise NotImplementedError

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Minimise the worst-case risk, from ``start`` where the method can use one."""
        raise NotImplementedError

    def solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Solve at every delta, each from the solution before it; override to share work."""
        solved: list[Solution] = []
        for j, delta in enumerate(deltas):
            start = starts[j] if starts is not None else (solved[-1] if solved else None)
            solved.append(self.solve(problem.at(float(delta)), tol, max_iter, start))
        return solved

    def solve_each(
        self, problems: list[Problem], tol: float, max_iter: int, starts: Starts
    ) -> list[Solution]:
        """Solve problems over the same rows, each from its start; override to share work."""
        each = zip(problems, starts, strict=True)
        return [self.solve(problem, tol, max_iter, start) for problem, start in each]

    def starts_pay(self, problem: Problem) -> bool:
        """Whether solutions of a sample nearby, one per delta, make a path cheaper.

        Such paths are also cheaper together (``solve_paths``).
        """
        return False

    def solve_paths(
        self,
        problem: Problem,
        weights: Array,
        deltas: Array,
        tol: float,
        max_iter: int,
        starts: Starts | None,
    ) -> list[list[Solution]]:
        """Solve with each column of ``weights`` at every delta; override to share work."""
        known = (deltas, tol, max_iter, starts)
        return [self.solve_path(problem.weighted(column), *known) for column in weights.T]

    def sweeps(self, problem: Problem) -> bool:
        """Whether folds share passes over the rows, each under a cost of its own."""
        return False

    def sweep(
        self,
        problem: Problem,
        held: list[Array],
        costs: list[Cost],
        deltas: Array,
        tol: float,
        fold_tol: float,
        max_iter: int,
    ) -> Swept:
        """Solve over all rows, and without the rows ``held`` by each fold under its own cost.

        No row is held twice. It is for problems that it ``sweeps``.
        """
        raise NotImplementedError

    def folds_together(self, problem: Problem) -> bool:
        """Whether paths over the same rows, of other weights and costs, are cheaper together."""
        return False

    def solve_folds(
        self,
        problems: list[Problem],
        deltas: Array,
        tol: float,
        max_iter: int,
        starts: Starts | None,
    ) -> list[list[Solution]]:
        """Solve problems over the same rows at every delta; override to share work."""
        return [self.solve_path(problem, deltas, tol, max_iter, starts) for problem in problems]


class Solver(BaseEstimator):  # type: ignore[misc]
    """Problem in, Solution out; parameters are stored, never written."""

    #: Whether losses of several scores per row are solved too.
    several_scores: bool = False
    #: Whether rows of another library than NumPy are taken, where a method for them is.
    on_device: bool = False

    def lacks(self, problem: Problem) -> str | None:
        """Return the fact that the problem lacks for this solver, None if it is accepted."""
        return None

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Minimise the worst-case risk, from ``start`` where the method can use one."""
        raise NotImplementedError

    def solve_path(
        self, problem: Problem, deltas: Array, starts: Starts | None = None
    ) -> list[Solution]:
        """Solve at every delta (descending), each from the solution before it."""
        solved: list[Solution] = []
        for delta in deltas:
            start = solved[-1] if solved else None
            solved.append(self.solve(problem.at(float(delta)), start))
        return solved

    def solve_paths(
        self, problem: Problem, weights: Array, deltas: Array, starts: Starts | None = None
    ) -> list[list[Solution]]:
        """Solve with each column of ``weights`` (n, F) at every delta."""
        return [self.solve_path(problem.weighted(w), deltas, starts) for w in weights.T]

    def folds_together(self, problem: Problem) -> bool:
        """Whether paths over the same rows, of other weights and costs, are cheaper together."""
        return False

    def solve_folds(
        self, problems: list[Problem], deltas: Array, starts: Starts | None = None
    ) -> list[list[Solution]]:
        """Solve problems over the same rows, of other weights and costs, at every delta."""
        return [self.solve_path(problem, deltas, starts) for problem in problems]

    def in_folds(self, tol: float) -> Solver:
        """Return the solver at the accuracy of folds, ``tol`` at best; here itself."""
        return self

    def cost_in_folds(self, cost: Cost) -> Cost:
        """Return the cost under which folds are solved: a cheaper one near it where there is."""
        return cost

    def starts_pay(self, problem: Problem) -> bool:
        """Whether a path is cheaper from solutions of a sample nearby, one per delta."""
        return False

    def sweeps(self, problem: Problem) -> bool:
        """Whether folds share passes over the rows (``sweep``)."""
        return False

    def sweep(
        self,
        problem: Problem,
        held: list[Array],
        costs: list[Cost],
        deltas: Array,
        fold_tol: float,
    ) -> Swept:
        """Solve over all rows, and without the rows ``held`` by each fold under its own cost."""
        raise NotImplementedError


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
