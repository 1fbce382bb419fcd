r"""Columns that matter, where the penalty is the l1 norm and there are many of them.

.. math:: \min_{\beta, b}\ \sum_i \pi_i \ell(x_i'\beta + b, y_i) + \rho\|\beta\|_1

is solved over a few columns; its slopes a, brought to mean zero, are a point of the dual problem of
all columns as soon as :math:`|\sum_i \pi_i a_i x_{ij}| \le \rho` holds for each. Columns that break
it join, and the gap that the slopes prove, shrunk until all hold, says when to stop. Smooth losses
are solved by proximal Newton steps, others, and where these end early, by interior points.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design, as_dense
from ...problem import Problem, Solution
from ..base import Method, Starts, constant_risk, duality_gap, extrapolated, verdict
from . import proximal_newton
from .interior import InteriorPoint
from .l1_dual import balanced, dual_bound, penalty
from .proximal_newton import PathRows

Array = NDArray[Any]

#: Columns from which only some are solved for, and how many join at first and in a round at least.
COLUMNS_FROM, JOIN = 500, 50
#: From a solution nearby those columns start whose pull is at least this share of rho.
NEARLY = 0.9
#: Coefficients below this share of the largest are not taken over from it.
NEGLIGIBLE = 1e-3
#: The share of the gap that is left to the columns outside.
OUTSIDE = 0.5
#: Entries up to which sparse columns are written out.
WRITE_UP_TO = 2_000_000
#: Rounds; the columns at least double in each, so that the last holds all of them.
ROUNDS = 30


class ActiveColumns(Method):
    """Lipschitz losses at order 1 under a cost whose dual norm is the l1 norm, of many columns."""

    geometries = frozenset({"norm"})
    certifies = "the excess over the least worst-case risk"

    def __init__(self) -> None:
        self.inner = InteriorPoint()

    def lacks(self, problem: Problem) -> str | None:
        """Refuse what the inner method does, few columns, order 2, and other norms."""
        missing = self.inner.lacks(problem)
        if missing is not None:
            return missing
        if problem.ball.order == 2 or problem.ball.cost.dual_p != 1:
            return "only the l1 penalty of order 1 has columns that can be left out"
        if problem.X.shape[1] < COLUMNS_FROM:
            return f"fewer than {COLUMNS_FROM} columns are solved for at once"
        return None

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser over the columns that matter, certified over all of them."""
        if proximal_newton.applies(problem):
            return self._smooth(problem, PathRows(problem.X), tol, max_iter, start)
        return self._over_columns(problem, tol, max_iter, start)

    def _smooth(
        self, problem: Problem, rows: PathRows, tol: float, max_iter: int, start: Solution | None
    ) -> Solution:
        """Return the minimiser of a smooth loss; by interior points where the steps end early."""
        found = proximal_newton.minimise(problem, rows, tol, max_iter, start)
        return found if found.converged else self._over_columns(problem, tol, max_iter, found)

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Solve at every delta; smooth losses from the line in log delta through the last two."""
        if starts is not None or not proximal_newton.applies(problem):
            return super()._solve_path(problem, deltas, tol, max_iter, starts)
        rows = PathRows(problem.X)
        solved: list[Solution] = []
        points: list[Array] = []
        for j, delta in enumerate(deltas.tolist()):
            at, start = problem.at(delta), solved[-1] if solved else None
            if start is not None:
                ahead = extrapolated(points[-2:], deltas[: j + 1])
                start = proximal_newton.better(at, rows, start, ahead)
            solved.append(self._smooth(at, rows, tol, max_iter, start))
            points.append(np.append(solved[-1].coef, solved[-1].intercept))
        return solved

    def _over_columns(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None
    ) -> Solution:
        """Solve by interior points over some columns, more in each round."""
        goal, columns = tol * constant_risk(problem)[1], _first(problem, start)
        for _ in range(ROUNDS):
            part = replace(problem, X=_columns(problem.X, columns))
            few = self.inner._solve_one(part, OUTSIDE * tol, max_iter)
            bound = dual_bound(problem, few.dual)
            gap = duality_gap(few.objective, bound.value)
            if gap <= goal or len(columns) == len(bound.pull):
                break
            columns = _joined(columns, bound.pull, penalty(problem))
        coef = np.zeros(len(bound.pull))
        coef[columns] = few.coef
        said = verdict(gap, goal, few.n_iter)
        return replace(few, coef=coef, gap=gap, converged=gap <= goal, message=said, dual=bound.a)


def _columns(X: Any, columns: Array) -> Any:
    """Return some columns, dense where that is little: their products are then faster."""
    some = X[:, columns]
    return as_dense(some) if some.shape[0] * some.shape[1] <= WRITE_UP_TO else some


def _first(problem: Problem, start: Solution | None) -> Array:
    """Return the columns of a solution nearby and those that its slopes nearly let in."""
    used: Array = np.zeros(0, dtype=int)
    if start is not None and start.dual is not None:
        a, size = balanced(problem, start.dual), np.abs(start.coef)
        used = np.flatnonzero(size > NEGLIGIBLE * size.max())
    else:
        b = constant_risk(problem)[0]
        a = problem.loss.derivative(np.full(len(problem.y), float(b)), problem.y)
        a = balanced(problem, a)
    pull = np.abs(Design(problem.X).adjoint(problem.weights * a))
    near = np.flatnonzero(pull >= NEARLY * penalty(problem))
    if len(near) > JOIN + len(used):
        near = np.argsort(-pull)[: JOIN + len(used)]
    return np.union1d(used, near) if len(used) + len(near) else np.argsort(-pull)[:JOIN]


def _joined(columns: Array, pull: Array, rho: float) -> Array:
    """Return the columns with those that break the constraint most, at most as many as are in."""
    outside = pull.copy()
    outside[columns] = 0.0
    breaking = int(np.count_nonzero(outside > rho))
    # where none breaks it, the gap is rounding of the part: all that is near joins
    count = min(breaking, max(JOIN, len(columns))) or max(JOIN, len(columns))
    return np.union1d(columns, np.argsort(-outside, kind="stable")[:count])
