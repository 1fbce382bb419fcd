"""The solver that fits the problem."""

from __future__ import annotations

from collections.abc import Callable

from ..costs import Cost
from ..problem import Problem, Solution
from .base import Array, Solver, Starts, Swept
from .exact import Exact


class Auto(Solver):
    """Minimise the worst-case risk exactly, or by the smoothed dual where no exact method is.

    Parameters
    ----------
    exact : Exact
        The solver of every problem but those of a cost that is a function.
    smoothed : callable
        Makes the solver of those.
    """

    several_scores = True
    on_device = True

    def __init__(self, exact: Exact, smoothed: Callable[[], Solver]) -> None:
        self.exact = exact
        self.smoothed = smoothed

    def chosen(self, problem: Problem) -> Solver:
        """Return the solver of a problem: only a cost that is a function is not exact."""
        if problem.geometry == "function" and problem.ball.delta > 0:
            return self.smoothed()
        return self.exact

    def lacks(self, problem: Problem) -> str | None:
        """Return the fact that the problem lacks, None if it is accepted."""
        return self.chosen(problem).lacks(problem)

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the solution of the solver that fits."""
        return self.chosen(problem).solve(problem, start)

    def solve_path(
        self, problem: Problem, deltas: Array, starts: Starts | None = None
    ) -> list[Solution]:
        """Return the solutions at every delta."""
        return self.chosen(problem.at(float(deltas[0]))).solve_path(problem, deltas, starts)

    def solve_paths(
        self, problem: Problem, weights: Array, deltas: Array, starts: Starts | None = None
    ) -> list[list[Solution]]:
        """Return the solutions with each column of ``weights`` at every delta."""
        return self.chosen(problem).solve_paths(problem, weights, deltas, starts)

    def folds_together(self, problem: Problem) -> bool:
        """Whether paths over the same rows, of other weights and costs, are cheaper together."""
        return self.chosen(problem).folds_together(problem)

    def solve_folds(
        self, problems: list[Problem], deltas: Array, starts: Starts | None = None
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows at every delta."""
        return self.chosen(problems[0]).solve_folds(problems, deltas, starts)

    def in_folds(self, tol: float) -> Auto:
        """Return the solver with a gap of ``tol`` at best."""
        return Auto(self.exact.in_folds(tol), self.smoothed)

    def cost_in_folds(self, cost: Cost) -> Cost:
        """Return the cost, or a cheaper one near it."""
        return self.exact.cost_in_folds(cost)

    def starts_pay(self, problem: Problem) -> bool:
        """Whether a path is cheaper from solutions of a sample nearby."""
        return self.chosen(problem).starts_pay(problem)

    def sweeps(self, problem: Problem) -> bool:
        """Whether folds share passes over the rows."""
        return self.chosen(problem).sweeps(problem)

    def sweep(
        self,
        problem: Problem,
        held: list[Array],
        costs: list[Cost],
        deltas: Array,
        fold_tol: float,
    ) -> Swept:
        """Return the solutions over all rows and of every fold, from passes that they share."""
        return self.chosen(problem).sweep(problem, held, costs, deltas, fold_tol)
