r"""The l1 penalty at order 1, where few columns matter: solved over some, certified over all.

.. math:: \min_{\beta, b}\ F = \sum_i \pi_i \ell(x_i'\beta + b, y_i) + \rho\|\beta\|_1

has the dual, over the slopes a of the rows,

.. math:: \max_a\ -\sum_i \pi_i \ell^*(a_i, y_i)\quad\text{s.t.}\quad
          \Big|\sum_i \pi_i a_i x_{ij}\Big| \le \rho\ \ \forall j,\quad \sum_i \pi_i a_i = 0.

Slopes brought to mean zero, and shrunk until no column pulls beyond rho, bound F from below over
all columns. A smooth loss takes proximal Newton steps: at scores z with slopes a and curvatures c
the loss is replaced by its quadratic model,

.. math:: \tfrac12 \sum_i \pi_i c_i (x_i'\beta + b - r_i)^2 + \rho\|\beta\|_1,
          \qquad r_i = z_i - a_i/c_i,

a lasso over the columns in use and those that pull by more than rho, by scikit-learn's coordinate
descent. Kinked losses, and smooth ones whose steps end early, are solved by interior points over
some columns; those that break the constraint join.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from ...design import Design, as_dense
from ...duality import balance
from ...problem import Problem, Solution
from ..euclidean.order_one import SHORTEST, low_enough
from ..exact import Method, duality_gap, verdict
from .interior import InteriorPoint

Array = NDArray[Any]

#: Columns that join in a round, or as many as are in use where that is more.
JOIN = 50
#: Coefficients below this share of the largest are not taken over from it.
NEGLIGIBLE = 1e-3
#: The share of the gap that is left to the columns outside.
OUTSIDE = 0.5
#: Entries of the columns in use up to which they are written out.
WRITE_UP_TO = 10_000_000
#: The least curvature of a row, relative to the largest that the loss has.
LEAST_CURVATURE = 1e-9
#: A model is solved to this share of the goal.
ENOUGH = 0.1


class ActiveColumns(Method):
    """Lipschitz losses at order 1 under a cost whose dual norm is the l1 norm."""

    geometries = frozenset({"norm"})

    def __init__(self) -> None:
        self.inner = InteriorPoint()

    def lacks(self, problem: Problem) -> str | None:
        """Refuse what the inner method does, order 2, and other norms."""
        missing = self.inner.lacks(problem)
        if missing is not None:
            return missing
        if problem.ball.order == 2 or problem.ball.cost.dual_p != 1:
            return "only the l1 penalty of order 1 has columns that can be left out"
        return None

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser over the columns that matter, certified over all of them."""
        if _smooth(problem):
            start = _proximal_newton(problem, tol, max_iter, start)
            if start.converged:
                return start
        goal, columns = tol * problem.constant[1], _first_columns(problem, start)
        while True:
            few = self.inner._solve_one(
                replace(problem, X=_columns(problem.X, columns)), OUTSIDE * tol, max_iter
            )
            bound = dual_bound(problem, few.dual)
            gap = duality_gap(few.objective, bound.value)
            if len(columns) == len(bound.pull):
                gap = min(gap, few.gap)
                break
            if gap <= goal:
                break
            more = _joined(columns, bound.pull, penalty(problem))
            # where none breaks the constraint, the gap is rounding of the part: more join anyhow
            columns = more if len(more) > len(columns) else _joined(columns, bound.pull, -np.inf)
        coef = np.zeros(len(bound.pull))
        coef[columns] = few.coef
        message = verdict(gap, goal, few.n_iter)
        return replace(
            few, coef=coef, gap=gap, converged=gap <= goal, message=message, dual=bound.a
        )


def _smooth(problem: Problem) -> bool:
    """Whether a loss is smooth, without pieces, and some columns can be written out."""
    loss = problem.loss
    smooth = loss.pieces is None and bool(np.isfinite(loss.smoothness))
    return smooth and problem.X.shape[0] * JOIN <= WRITE_UP_TO


def _columns(X: Any, columns: Array) -> Any:
    """Return some columns, dense where that is little: their products are then faster."""
    some = X[:, columns]
    return as_dense(some) if some.shape[0] * some.shape[1] <= WRITE_UP_TO else some


def _first_columns(problem: Problem, start: Solution | None) -> Array:
    """Return the columns of a solution nearby and those that its slopes pull most."""
    used: Array = np.zeros(0, dtype=int)
    if start is not None and start.dual is not None:
        slopes, size = start.dual, np.abs(start.coef)
        used = np.flatnonzero(size > NEGLIGIBLE * size.max())
    else:
        b = np.full(len(problem.y), float(problem.constant[0]))
        slopes = problem.loss.derivative(b, problem.y)
    return _joined(used, dual_bound(problem, slopes).pull, -np.inf)


def _joined(columns: Array, pull: Array, above: float) -> Array:
    """Return the columns with those that pull most, more than ``above``.

    At most as many join as are in, or JOIN.
    """
    outside = pull.copy()
    outside[columns] = -np.inf
    count = min(int(np.count_nonzero(outside > above)), max(JOIN, len(columns)))
    return np.union1d(columns, np.argsort(-outside, kind="stable")[:count])


def penalty(problem: Problem) -> float:
    """Return rho, the price of a unit of the l1 norm."""
    return problem.ball.delta * float(problem.loss.lipschitz)


@dataclass(frozen=True, eq=False)
class Bound:
    """Slopes ``a`` of mean zero, the ``pull`` of each column, the dual ``value`` they prove."""

    a: Array
    pull: Array
    value: float


def dual_bound(problem: Problem, slopes: Any) -> Bound:
    """Return what slopes prove once they balance and shrink until no column pulls beyond rho."""
    pi = problem.weights
    # the larger side shrinks until the mean is zero
    a = np.asarray(slopes * balance(pi * slopes)) if problem.fit_intercept else np.asarray(slopes)
    pull = np.abs(Design(problem.X).adjoint(pi * a))
    largest, rho = float(pull.max()), penalty(problem)
    shrink = rho / largest if largest > rho else 1.0
    conjugate = problem.loss.conjugate(shrink * a, problem.y)
    # a row without weight may have any slope
    return Bound(a, pull, -float(pi @ np.where(pi > 0, conjugate, 0.0)))


@dataclass(frozen=True, eq=False)
class Point:
    """Coefficients, intercept and scores with F there."""

    coef: Array
    b: float
    z: Array
    objective: float


def _point(problem: Problem, coef: Array, b: float, z: Array) -> Point:
    risk = float(problem.weights @ problem.loss.value(z, problem.y))
    return Point(coef, b, z, risk + penalty(problem) * float(np.abs(coef).sum()))


def _proximal_newton(
    problem: Problem, tol: float, max_iter: int, start: Solution | None
) -> Solution:
    """Return the minimiser of a smooth loss, or the best point where the steps end early."""
    X, y, rho = problem.X, problem.y, penalty(problem)
    b, base = problem.constant
    goal = tol * base
    p = _point(problem, np.zeros(X.shape[1]), float(b), np.full(len(y), float(b)))
    if start is not None:
        z = Design(X).scores(start.coef) + start.intercept
        near = _point(problem, start.coef, float(start.intercept), z)
        p = near if near.objective < p.objective else p
    n_iter, falls = 0, True
    while True:
        n_iter += 1
        _, slope, curvature = problem.loss.evaluate(p.z, y)
        bound = dual_bound(problem, slope)
        gap = duality_gap(p.objective, bound.value)
        if gap <= goal or not falls or n_iter >= max_iter:
            break
        columns = _joined(np.flatnonzero(p.coef), bound.pull, rho)
        if len(columns) * len(y) > WRITE_UP_TO:
            break
        bend = np.maximum(curvature, LEAST_CURVATURE * float(problem.loss.smoothness))
        r, D = p.z - slope / bend, problem.weights * bend
        rows = as_dense(X[:, columns])
        center, level = np.zeros(len(columns)), p.b
        if problem.fit_intercept:
            # the best intercept of the model leaves both of them with mean zero
            center, level = D @ rows / D.sum(), float(D @ r / D.sum())
        root = np.sqrt(D)
        A, v = (rows - center) * root[:, None], root * (r - level)
        target = _lasso(A, v, rho, p.coef[columns], ENOUGH * goal)
        step = target - p.coef[columns]
        db = level - float(center @ target) - p.b
        new = _line_search(problem, p, columns, step, db, rows @ step + db, slope)
        falls = new.objective < p.objective
        p = new
    return Solution(
        coef=p.coef,
        intercept=p.b,
        multiplier=float(problem.loss.lipschitz) * float(np.abs(p.coef).sum()),
        objective=p.objective,
        gap=gap,
        n_iter=n_iter,
        converged=gap <= goal,
        message=verdict(gap, goal, n_iter),
        dual=bound.a,
    )


def _lasso(A: Array, v: Array, rho: float, start: Array, gap: float) -> Array:
    r"""Return coefficients within ``gap`` of the least |v - A beta|^2/2 + rho |beta|, or near."""
    if not len(start):
        return start
    scale = max(float(v @ v), np.finfo(float).tiny)
    with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
        # what is left of the gap is known from the loss itself
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, path, _ = enet_path(
            np.asfortranarray(A),
            v,
            l1_ratio=1.0,
            alphas=[rho / len(v)],
            coef_init=start,
            precompute=False,
            tol=gap / scale,
            check_input=False,
        )
    return np.asarray(path[:, 0])


def _line_search(
    problem: Problem, p: Point, columns: Array, step: Array, db: float, dz: Array, slope: Array
) -> Point:
    """Return the point after the longest of the steps 1, 1/2, 1/4, ... that descends."""
    before = p.coef[columns]
    # by convexity F falls along the step at least as its linearised loss and the penalty say
    rise = penalty(problem) * float(np.abs(before + step).sum() - np.abs(before).sum())
    descent = float((problem.weights * slope) @ dz) + rise
    length = 1.0
    while length > SHORTEST:
        coef = p.coef.copy()
        coef[columns] = before + length * step
        new = _point(problem, coef, p.b + length * db, p.z + length * dz)
        if low_enough(p.objective, new.objective, length, descent):
            return new
        length /= 2
    return p
