r"""Columns that matter, where the penalty is the l1 norm and there are many of them.

.. math:: \min_{\beta, b}\ \sum_i \pi_i \ell(x_i'\beta + b, y_i) + \rho\|\beta\|_1

is solved over a few columns; its slopes a, brought to mean zero, are a point of the dual problem of
all columns as soon as :math:`|\sum_i \pi_i a_i x_{ij}| \le \rho` holds for each. Columns that break
it join, and the gap that the slopes prove, shrunk until all hold, says when to stop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design, as_dense
from ...problem import Problem, Solution
from ..base import Method, constant_risk, duality_gap, verdict
from .interior import InteriorPoint

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
        """Refuse few columns, order 2, and other norms."""
        if problem.ball.order == 2 or problem.ball.cost.dual_p != 1:
            return "only the l1 penalty of order 1 has columns that can be left out"
        if problem.X.shape[1] < COLUMNS_FROM:
            return f"fewer than {COLUMNS_FROM} columns are solved for at once"
        return self.inner.lacks(problem)

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser over the columns that matter, certified over all of them."""
        goal, columns = tol * constant_risk(problem)[1], _first(problem, start)
        for _ in range(ROUNDS):
            part = replace(problem, X=_columns(problem.X, columns))
            few = self.inner.solve(part, OUTSIDE * tol, max_iter)
            a = balanced(problem, few.dual)
            pull = np.abs(Design(problem.X).adjoint(problem.weights * a))
            gap = duality_gap(few.objective, _dual_value(problem, a, float(pull.max())))
            if gap <= goal or len(columns) == len(pull):
                break
            columns = _joined(columns, pull, _rho(problem))
        coef = np.zeros(len(pull))
        coef[columns] = few.coef
        said = verdict(gap, goal, few.n_iter)
        return replace(few, coef=coef, gap=gap, converged=gap <= goal, message=said, dual=a)


def _columns(X: Any, columns: Array) -> Any:
    """Return some columns, dense where that is little: their products are then faster."""
    some = X[:, columns]
    return as_dense(some) if some.shape[0] * some.shape[1] <= WRITE_UP_TO else some


def _rho(problem: Problem) -> float:
    return problem.ball.delta * float(problem.loss.lipschitz)


def balanced(problem: Problem, a: Any) -> Array:
    """Return slopes whose mean is zero where there is an intercept: the larger side shrinks."""
    if not problem.fit_intercept:
        return np.asarray(a)
    up, down = problem.weights @ np.maximum(a, 0), problem.weights @ np.maximum(-a, 0)
    least = min(up, down)
    up, down = (max(side, np.finfo(float).tiny) for side in (up, down))
    return np.where(a > 0, a * (least / up), a * (least / down))


def _dual_value(problem: Problem, a: Array, pull: float) -> float:
    """Return the dual value at kappa a, where no column pulls by more than ``pull``."""
    kappa = min(1.0, _rho(problem) / max(pull, np.finfo(float).tiny))
    conjugate = problem.loss.conjugate(kappa * a, problem.y)
    # a row without weight may have any slope
    return -float(problem.weights @ np.where(problem.weights > 0, conjugate, 0.0))


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
    near = np.flatnonzero(pull >= NEARLY * _rho(problem))
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
