"""What the Newton methods share: paths and folds of small problems are one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import namespace
from ...problem import Problem, Solution
from ..base import Array, Method, Starts, each_alone, same_factor

#: Rows times columns up to which the deltas of a path are solved as one batch.
BATCH_UP_TO = 20_000
#: Entries of the Newton matrices of a batch, above which more problems in it are no faster.
MATRICES_UP_TO = 1_000_000


class BatchedMethod(Method):
    """A Newton method for smooth losses; a subclass says how a batch is solved (``at_once``)."""

    geometries = frozenset({"euclidean"})
    on_device = True
    certifies = "the excess over the least worst-case risk"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces."""
        loss = problem.loss
        if loss.pieces is not None or not np.isfinite(loss.smoothness):
            return f"Newton's method needs a smooth loss, {type(loss).__name__} has kinks"
        return None

    def at_once(
        self,
        problem: Problem,
        weights: Array,
        deltas: Array,
        tol: float,
        max_iter: int,
        starts: Starts | None,
    ) -> list[list[Solution]]:
        """Solve with each column of ``weights`` at every delta, as one batch."""
        raise NotImplementedError

    def in_turn(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Solve a problem too large for a batch at every delta, from the solution before it."""
        return super()._solve_path(problem, deltas, tol, max_iter, starts)

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta: small problems as one batch, others in turn."""
        known = (np.asarray(deltas, dtype=float), tol, max_iter, starts)
        if not self.is_small(problem):
            return self.in_turn(problem, *known)
        return self.at_once(problem, problem.weights[:, None], *known)[0]

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows, small ones from the first path."""
        first, *folds = problems
        if not folds or not self.is_small(first):
            return super().solve(problems, deltas, tols, max_iter, starts)
        near = None if starts is None else starts[0]
        path = self._solve_path(first, deltas, tols[0], max_iter, near)
        return [path, *self._from_path(folds, deltas, min(tols[1:]), max_iter, path)]

    def _from_path(
        self, problems: list[Problem], deltas: Array, tol: float, max_iter: int, path: Starts
    ) -> list[list[Solution]]:
        """Solve small problems from a path nearby: under one cost they are one batch."""
        if not same_factor(problems):
            return each_alone(
                problems,
                None,
                lambda _, problem, __: self._solve_path(problem, deltas, tol, max_iter, path),
            )
        first = problems[0]
        n, d = first.X.shape
        weights = namespace(first.weights).stack([each.weights for each in problems], axis=1)
        lot = max(1, MATRICES_UP_TO // (len(deltas) * min(n, d) ** 2))
        lots = [weights[:, i : i + lot] for i in range(0, len(problems), lot)]
        parts = (self.at_once(first, part, deltas, tol, max_iter, path) for part in lots)
        return [each for part in parts for each in part]

    def is_small(self, problem: Problem) -> bool:
        """Whether a path is one batch of Newton steps, which starts nearby make fewer."""
        n, d = problem.X.shape
        return bool(n * min(n, d) <= BATCH_UP_TO)
