"""The solver that fits the problem."""

from __future__ import annotations

from typing import Any

from ..costs.callable import CallableCost
from ..problem import Problem, Solution
from .exact import Exact
from .smoothing.smoothed import Smoothed


class Auto(Exact):
    """Minimise the worst-case risk exactly, or by the smoothed dual if the cost is a function."""

    def __init__(
        self,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(tol, max_iter)
        self.random_state = random_state
        self.verbose = verbose

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the solution of the exact solver or of ``Smoothed`` with its own tolerances."""
        if not isinstance(problem.ball.cost, CallableCost):
            return super().solve(problem, start)
        smoothed = Smoothed(random_state=self.random_state, verbose=self.verbose)
        return smoothed.solve(problem, start)
