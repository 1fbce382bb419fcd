"""What the Newton methods share: paths and folds of small problems are one batch."""

from __future__ import annotations

import numpy as np

from ...problem import Problem, Solution
from ..base import Array, Method, Starts

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
        return super().solve_path(problem, deltas, tol, max_iter, starts)

    def solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta: small problems as one batch, others in turn."""
        known = (np.asarray(deltas, dtype=float), tol, max_iter, starts)
        if not self.starts_pay(problem):
            return self.in_turn(problem, *known)
        return self.at_once(problem, problem.weights[:, None], *known)[0]

    def solve_paths(
        self,
        problem: Problem,
        weights: Array,
        deltas: Array,
        tol: float,
        max_iter: int,
        starts: Starts | None,
    ) -> list[list[Solution]]:
        """Return the solutions with each column of ``weights``, of small problems in batches."""
        known = (np.asarray(deltas, dtype=float), tol, max_iter, starts)
        if not self.starts_pay(problem):
            return super().solve_paths(problem, weights, *known)
        n, d = problem.X.shape
        lot = max(1, MATRICES_UP_TO // (len(deltas) * min(n, d) ** 2))
        lots = [weights[:, i : i + lot] for i in range(0, weights.shape[1], lot)]
        return [path for part in lots for path in self.at_once(problem, part, *known)]

    def starts_pay(self, problem: Problem) -> bool:
        """Whether a path is one batch of Newton steps, which starts nearby make fewer."""
        n, d = problem.X.shape
        return bool(n * min(n, d) <= BATCH_UP_TO)
