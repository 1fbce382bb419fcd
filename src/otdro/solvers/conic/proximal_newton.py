r"""Proximal Newton steps for smooth losses under an l1 penalty, where columns are many.

.. math:: \min_{\beta, b}\ F = \sum_i \pi_i \ell(x_i'\beta + b, y_i) + \rho\|\beta\|_1

At a point with scores z, slopes a and curvatures c the loss is replaced by its quadratic model,

.. math:: \tfrac12 \sum_i \pi_i c_i (x_i'\beta + b - r_i)^2 + \rho\|\beta\|_1,
          \qquad r_i = z_i - a_i/c_i,

a lasso over the columns that are in use and those that pull by more than rho. Its coordinate
descent is scikit-learn's; where that takes long, the signs it found are kept and the model is
solved on their face. The gap is that over all columns (``l1_dual``).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from ...design import Design, as_dense
from ...problem import Problem, Solution
from ..base import constant_risk, duality_gap, verdict
from .l1_dual import dual_bound, penalty

Array = NDArray[Any]

#: Entries of the columns in use up to which they are written out.
WRITE_UP_TO = 10_000_000
#: Columns that join in a step, or as many as are in use where that is more.
JOIN = 100
#: The least curvature of a row, relative to the largest that the loss has.
LEAST_CURVATURE = 1e-9
#: The gap of a model, relative to that of the point; of a step that brought nothing it shrinks.
MODEL_GAP, CLOSER = 0.1, 0.1
#: A model need not be solved closer than this share of the goal.
ENOUGH = 0.3
#: Rounds of coordinate descent before a model is solved on the face of its signs.
EPOCHS = 60
#: Added to the diagonal of a face's matrix, relative to it.
LIFT = 1e-13
#: The share of the predicted decrease that a step must bring, and the halvings of one.
ARMIJO, HALVINGS = 1e-4, 40
#: Decreases below this, relative to F, are rounding.
ROUNDING = 1e-15
#: Steps that bring nothing before the descent gives up.
PATIENCE = 4


@dataclass(frozen=True, eq=False)
class Point:
    """Coefficients, intercept and scores with F there."""

    coef: Array
    b: float
    z: Array
    objective: float


def applies(problem: Problem) -> bool:
    """Whether a loss is smooth, without pieces, and the rows can be written out in parts."""
    loss = problem.loss
    smooth = loss.pieces is None and bool(np.isfinite(loss.smoothness))
    return smooth and problem.X.shape[0] * JOIN <= WRITE_UP_TO


class PathRows:
    """The rows X of the problems of a path, for products and by columns.

    What is written for one step lies where that of the step before lay: new memory for it would
    take longer to get than to fill.
    """

    def __init__(self, X: Any) -> None:
        self.design = Design(X)
        # X' by rows: some of its rows are found at once
        self.by_column = X.T.tocsr() if hasattr(X, "tocsr") else X.T
        self._places = np.empty((2, 0, X.shape[0]))

    def columns(self, index: Array) -> tuple[Array, Array]:
        """Return X' of some columns as an array by rows, and an array of that shape to write to."""
        if len(index) > self._places.shape[1]:
            self._places = np.empty((2, 2 * len(index), self.design.n))
        rows, room = self._places[:, : len(index)]
        some = self.by_column[index]
        if hasattr(some, "toarray") and some.dtype == rows.dtype:
            some.toarray(out=rows)
        else:
            rows[:] = as_dense(some)
        return rows, room

    def at(self, problem: Problem, coef: Array, b: float) -> Point:
        """Return the point of a model."""
        z = self.design.scores(coef) + b
        return Point(coef, b, z, _objective(problem, z, coef))


def minimise(
    problem: Problem, rows: PathRows, tol: float, max_iter: int, start: Solution | None
) -> Solution:
    """Return the minimiser, or the best point where the steps end before its gap is met."""
    b, base = constant_risk(problem)
    goal = tol * base
    p = _first(problem, rows, float(b), start)
    share, idle, n_iter = MODEL_GAP, 0, 0
    while True:
        n_iter += 1
        _, slope, curvature = problem.loss.evaluate(p.z, problem.y)
        bound = dual_bound(problem, slope, rows.design)
        gap = duality_gap(p.objective, bound.value)
        if gap <= goal or idle > PATIENCE or n_iter >= max_iter:
            break
        columns = _working(p, bound.pull, penalty(problem))
        if len(columns) * len(p.z) > WRITE_UP_TO:
            break
        model = _model(problem, p, *rows.columns(columns), columns, slope, curvature)
        target = model.minimiser(p.coef[columns], max(share * gap, ENOUGH * goal))
        new = _line_search(problem, p, model, target, slope)
        idle = 0 if new.objective < p.objective - ENOUGH * goal else idle + 1
        share = MODEL_GAP if idle == 0 else share * CLOSER
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


def better(problem: Problem, rows: PathRows, start: Solution, point: Array) -> Solution:
    """Return a start moved to the coefficients and the intercept of ``point`` if F is less there.

    Coefficients that changed their sign on the way are zero.
    """
    coef = np.where(point[:-1] * start.coef > 0, point[:-1], 0.0)
    moved = rows.at(problem, coef, float(point[-1]))
    if moved.objective >= rows.at(problem, start.coef, float(start.intercept)).objective:
        return start
    return replace(start, coef=moved.coef, intercept=moved.b)


def _objective(problem: Problem, z: Array, coef: Array) -> float:
    risk = float(problem.weights @ problem.loss.value(z, problem.y))
    return risk + penalty(problem) * float(np.abs(coef).sum())


def _first(problem: Problem, rows: PathRows, b: float, start: Solution | None) -> Point:
    """Return the start, or the best constant where that is better."""
    zero = np.zeros(problem.X.shape[1])
    constant = Point(zero, b, np.full(len(problem.y), b), 0.0)
    constant = replace(constant, objective=_objective(problem, constant.z, zero))
    if start is None:
        return constant
    near = rows.at(problem, start.coef, float(start.intercept))
    return near if near.objective < constant.objective else constant


def _working(p: Point, pull: Array, rho: float) -> Array:
    """Return the columns in use and those that pull most beyond rho."""
    used = np.flatnonzero(p.coef)
    outside = pull.copy()
    outside[used] = 0.0
    joining = np.flatnonzero(outside > rho)
    most = max(JOIN, len(used))
    if len(joining) > most:
        joining = joining[np.argsort(-outside[joining], kind="stable")[:most]]
    return np.union1d(used, joining)


@dataclass(frozen=True, eq=False)
class Lasso:
    r"""The lasso :math:`\tfrac12|v - A\beta|^2 + \rho|\beta|_1`, its intercept at its best.

    ``rows`` is X' of the ``columns``, ``At`` is A', ``center`` and ``level`` are the means of X and
    r with the weights pi c.
    """

    columns: Array
    rows: Array
    At: Array
    v: Array
    center: Array
    level: float
    rho: float

    def minimiser(self, start: Array, gap: float) -> Array:
        """Return coefficients within ``gap`` of the least value, or near them."""
        if not len(start):
            return start
        scale = max(float(self.v @ self.v), np.finfo(float).tiny)
        with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
            # what is left of the gap is known from the loss itself
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, found, _, epochs = enet_path(
                self.At.T,
                self.v,
                l1_ratio=1.0,
                alphas=[self.rho / len(self.v)],
                coef_init=start,
                precompute=False,
                tol=gap / scale,
                max_iter=EPOCHS,
                check_input=False,
                return_n_iter=True,
            )
        coef: Array = found[:, 0]
        return self._on_face(coef) if epochs[0] >= EPOCHS else coef

    def _on_face(self, coef: Array) -> Array:
        """Return the point towards the minimiser with these signs, as far as they hold."""
        used = np.flatnonzero(coef)
        if not 0 < len(used) <= len(self.v):
            return coef
        w, B = coef[used], self.At if len(used) == len(coef) else self.At[used]
        sign = np.sign(w)
        H = B @ B.T
        H.ravel()[:: len(H) + 1] *= 1 + LIFT
        try:
            factor = cho_factor(H, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return coef
        step = cho_solve(factor, B @ self.v - self.rho * sign, check_finite=False) - w
        crossing = (w + step) * sign < 0
        length = float((-w[crossing] / step[crossing]).min(initial=1.0))
        moved = coef.copy()
        moved[used] = w + length * step
        return moved


def _model(
    problem: Problem,
    p: Point,
    rows: Array,
    room: Array,
    columns: Array,
    slope: Array,
    curvature: Array,
) -> Lasso:
    """Return the quadratic model at a point, over some columns, whose X' are the ``rows``.

    A' is written to ``room``.
    """
    bend = np.maximum(curvature, LEAST_CURVATURE * float(problem.loss.smoothness))
    D, r = problem.weights * bend, p.z - slope / bend
    center, level = np.zeros(len(columns)), 0.0
    if problem.fit_intercept:
        center, level = rows @ D / D.sum(), float(D @ r / D.sum())
    else:
        r = r - p.b
    root = np.sqrt(D)
    # by rows: coordinate descent reads A by columns
    At = np.subtract(rows, center[:, None], out=room)
    At *= root
    return Lasso(columns, rows, At, root * (r - level), center, level, penalty(problem))


def _line_search(problem: Problem, p: Point, model: Lasso, target: Array, slope: Array) -> Point:
    """Return the point after the longest of the steps 1, 1/2, 1/4, ... that descends."""
    before = p.coef[model.columns]
    step = target - before
    db = model.level - float(model.center @ target) - p.b if problem.fit_intercept else 0.0
    dz = step @ model.rows + db
    # by convexity F falls along the step at least as its linearised loss and the penalty say
    rise = model.rho * float(np.abs(target).sum() - np.abs(before).sum())
    descent = float((problem.weights * slope) @ dz) + rise
    length = 1.0
    for _ in range(HALVINGS):
        coef = p.coef.copy()
        coef[model.columns] = before + length * step
        z = p.z + length * dz
        objective = _objective(problem, z, coef)
        if objective <= p.objective + ARMIJO * length * descent + ROUNDING * abs(p.objective):
            return Point(coef, p.b + length * db, z, objective)
        length /= 2
    return p
