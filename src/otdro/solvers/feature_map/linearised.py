r"""Local costs: one matrix A(x_i), and so one dual norm w_i, a row.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \sup_s
          \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},\qquad w_i^2 = \beta' A(x_i)^{-1}\beta,

by the Newton method of ``rowwise`` for the logistic loss, else by the smoothed dual
at a falling eps. A ``FeatureMap`` goes on from there to its own cost (``polish``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.feature_map import FeatureMap
from ...design import Design
from ...duality import Atoms, DualRows, local_threshold, lower_bound, zero_model
from ...duality import Local as LocalNorm
from ...losses import Loss
from ...problem import Problem, Solution
from ..base import Method, Starts, constant_risk, constant_solution, verdict
from ..euclidean.joint import JointObjective
from ..euclidean.joint_steps import descend as joint_descend
from ..smoothing.gaussian_integral import softmax
from ..smoothing.newton_path import descend
from ..smoothing.smoothed_dual import (
    Origin,
    SmoothedObjective,
    SmoothedPoint,
    dual_rows,
    local_origin,
)
from . import inner_ascent as polish
from .geometry import landscape

Array = NDArray[Any]

#: The last smoothing, relative to the risk of the best constant.
EPS = 1e-7


class Linearised(Method):
    """A feature map linearised at every row."""

    geometries = frozenset({"local"})
    certifies = "the excess over the least worst-case risk under the linearised cost"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1 and costs that are to be solved beyond their linearisation."""
        if problem.ball.order != 2:
            return "FeatureMap is solved exactly at order=2 only"
        if problem.ball.cost.polish:
            return "the cost is not linearised"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return linearised(problem, tol, max_iter, start)

    def solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta; local matrices are inverted once."""
        return linearised_many(problem, deltas, tol, max_iter)


class InnerAscent(Method):
    """A feature map itself, from its linearised solution."""

    geometries = frozenset({"local"})
    certifies = "nothing: the inner problem is not concave"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1."""
        if problem.ball.order != 2:
            return "FeatureMap is solved exactly at order=2 only"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return solve(problem, tol, max_iter, start)


def solve(problem: Problem, tol: float, max_iter: int, start: Solution | None = None) -> Solution:
    """Minimise under the linearised cost, then, if the cost asks for it, under the cost itself."""
    cost = problem.ball.cost
    assert isinstance(cost, FeatureMap)
    linear = linearised(problem, tol, max_iter, start)
    if not cost.polish or not np.any(linear.coef):
        return linear
    return polish.polished(problem, landscape(problem, Design(problem.X).dense()), linear)


def linearised(
    problem: Problem, tol: float, max_iter: int, start: Solution | None = None
) -> Solution:
    """Return the solution for A(x) = J(x)'Lam J(x)."""
    return linearised_many(problem, np.array([problem.ball.delta]), tol, max_iter, start)[0]


def linearised_many(
    problem: Problem, deltas: Array, tol: float, max_iter: int, start: Solution | None = None
) -> list[Solution]:
    """Solve at every delta (descending), each from the solution before; A(x) is inverted once."""
    cost, base = problem.ball.cost, constant_risk(problem)[1]
    assert isinstance(cost, FeatureMap)
    if problem.ball.order != 2:
        raise ValueError("FeatureMap is solved exactly at order=2 only. Use order=2.")
    X = Design(problem.X).dense()
    B = np.linalg.inv(cost.shape(X))
    center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
    design = Design(X, None, center)
    norm = LocalNorm(B, problem.weights)
    smooth = problem.loss.pieces is None and np.isfinite(problem.loss.smoothness)
    method = _exact if smooth else _smoothed
    solved: list[Solution] = []
    last = start
    for delta in deltas:
        rows = dual_rows(problem.at(float(delta)), design, norm)
        origin = local_origin(rows, problem.loss, B)
        if origin is None:
            solved.append(constant_solution(problem))
            continue
        warm = None
        if last is not None and last.multiplier > 0:
            b = last.intercept + float(center @ last.coef)
            warm = Origin(last.coef, b, last.multiplier)
        last = method(rows, problem.loss, warm or origin, base, tol, max_iter)
        if warm and not last.converged:
            # a warm start on a kink can leave no descent; a cold one seldom sits there
            again = method(rows, problem.loss, origin, base, tol, max_iter)
            last = min(last, again, key=lambda found: found.objective)
        last = replace(last, intercept=last.intercept - float(center @ last.coef))
        solved.append(last)
    return solved


def _exact(
    rows: DualRows, loss: Loss, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by the Newton method of ``rowwise``."""
    target = tol * base
    objective = JointObjective(rows, loss)
    start = objective.start(origin.theta[:, None], np.array([origin.b]))
    found = joint_descend(objective, start, np.array([target]), max_iter)
    gap, n_iter = float(found.gap[0]), int(found.n_iter[0])
    return Solution(
        coef=found.theta[:, 0],
        intercept=float(found.b[0]),
        multiplier=float(found.lam[0]),
        objective=float(found.objective[0]),
        gap=gap,
        n_iter=n_iter,
        converged=gap <= target,
        message="linearised feature map: " + verdict(gap, target, n_iter),
        dual=found.dual[:, 0],
    )


def _smoothed(
    rows: DualRows, loss: Loss, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by smoothing with a falling eps."""
    smooth = SmoothedObjective(rows, loss, np.inf, 33)
    target = tol * base
    # smoothing a tenth of the gap asked for is lost in it
    final = max(EPS, 0.1 * tol) * base
    run = descend(smooth, origin, max(0.1 * base, final), final, target, max_iter)
    x = run.x
    risk, lower = _bounds(smooth, x, run.eps)
    gap = max(risk - lower, 0.0)
    message = f"linearised feature map at eps={run.eps:.3g}: " + verdict(gap, target, run.n_iter)
    return Solution(x.theta, x.b, x.lam, risk, gap, run.n_iter, bool(gap <= target), message)


def threshold(problem: Problem) -> float:
    """Return the least delta at which theta = 0 is optimal under the linearised cost."""
    X = Design(problem.X).dense()
    center = problem.weights @ X if problem.fit_intercept else None
    fixed = (problem.y, problem.weights, problem.loss, problem.fit_intercept)
    zero = zero_model(Design(X, None, center), *fixed)
    return local_threshold(zero, problem.weights, np.linalg.inv(problem.ball.cost.shape(X)))[0]


def _bounds(smooth: SmoothedObjective, x: SmoothedPoint, eps: float) -> tuple[float, float]:
    """Return the risk at (x, lam) and a bound below it, from rows moved to their maxima."""
    rows, loss = smooth.rows, smooth.loss
    inner = loss.inner(x.z, rows.y, x.w, x.lam)
    risk = x.lam * smooth.delta + float(smooth.weights @ inner.value.max(axis=0))
    mass = softmax(inner.value.T / eps)[0].T * smooth.weights
    z = x.z + inner.shift
    y = np.broadcast_to(rows.y, z.shape)
    a = loss.derivative(z, y)
    atoms = Atoms(mass[..., None], a[..., None], _room(loss, a, z, y)[..., None])
    bound = lower_bound(rows, loss, atoms, (z - x.b)[..., None])
    return risk, float(bound[0])


def _room(loss: Loss, a: Array, z: Array, y: Array) -> Array:
    """Return how far slopes are from the ends of their range, else the curvature."""
    if loss.pieces is None or np.isinf(loss.lipschitz):
        return loss.curvature(z, y)
    low, high = loss.slope_range(y)
    return (high - a) * (a - low)
