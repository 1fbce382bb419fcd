r"""Local costs: one matrix A(x_i), and so one dual norm w_i, per row.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \sup_s
          \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},\qquad w_i^2 = \beta' A(x_i)^{-1}\beta,

by an interior point of the dual problem where the loss is piecewise quadratic, else by the joint
Newton method, for losses that are smooth and Lipschitz. A cost that is not linearised goes on from
there (``minimise``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import DualRows, Local, local_threshold, zero_model
from ...losses import Loss, PiecewiseQuadratic
from ...problem import Problem, Solution
from ...progress import logger
from ..base import Method, Starts, constant_risk, constant_solution, verdict
from ..euclidean.order_two import JointObjective
from ..euclidean.order_two import descend as joint_descend
from ..smoothing.smoothed_dual import Origin, dual_rows, local_origin
from .piecewise import SlopeProgram, solve_slopes

Array = NDArray[Any]

#: The fact that a problem of order 1 lacks.
ORDER_TWO_ONLY = "FeatureMap is solved exactly at order=2 only"


class Linearised(Method):
    """A feature map linearised at every row."""

    geometries = frozenset({"local"})
    certifies = "the excess over the least worst-case risk under the linearised cost"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1 and costs that are to be solved beyond their linearisation."""
        if problem.ball.order != 2:
            return ORDER_TWO_ONLY
        if not problem.ball.cost.linearised:
            return "the cost is not linearised"
        return lacks_loss(problem.loss)

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return linearised(problem, tol, max_iter, start)

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta; local matrices are inverted once."""
        return linearised_many(problem, deltas, tol, max_iter)


def linearised(
    problem: Problem, tol: float, max_iter: int, start: Solution | None = None
) -> Solution:
    """Return the solution for A(x) = J(x)'Lam J(x)."""
    return linearised_many(problem, np.array([problem.ball.delta]), tol, max_iter, start)[0]


def linearised_many(
    problem: Problem, deltas: Array, tol: float, max_iter: int, start: Solution | None = None
) -> list[Solution]:
    """Solve at every delta (descending), each from the solution before; A(x) is inverted once."""
    loss, base = problem.loss, constant_risk(problem)[1]
    design, B = centred(problem)
    norm, center = Local(B, problem.weights), design.center
    solved: list[Solution] = []
    last = start
    for delta in deltas:
        rows = dual_rows(problem.at(float(delta)), design, norm)
        origin = local_origin(rows, loss, B)
        if origin is None:
            solved.append(constant_solution(problem))
            continue
        if loss.pieces is not None:
            last = _by_slopes(rows, B, loss.pieces, base, tol, max_iter)
        else:
            warm = None
            if last is not None and last.multiplier > 0:
                b = last.intercept + float(center @ last.coef)
                warm = Origin(last.coef, b, last.multiplier)
            last = _by_newton(rows, loss, warm or origin, base, tol, max_iter)
            if warm and not last.converged:
                # a warm start on a kink can leave no descent; a cold one rarely sits there
                again = _by_newton(rows, loss, origin, base, tol, max_iter)
                last = min(last, again, key=lambda solution: solution.objective)
        last = replace(last, intercept=last.intercept - float(center @ last.coef))
        solved.append(last)
        logger.info("delta %.4g: %s", delta, last.message)
    return solved


def lacks_loss(loss: Loss) -> str | None:
    """Return why a loss has no certified solution under a local cost, None if it has one."""
    smooth = np.isfinite(loss.smoothness) and np.isfinite(loss.lipschitz)
    if loss.pieces is not None or smooth:
        return None
    return (
        f"FeatureMap needs a piecewise quadratic loss, or one with bounded first and second "
        f"derivatives; {type(loss).__name__} is neither"
    )


def centred(problem: Problem) -> tuple[Design, Array]:
    """Return the rows, centred where there is an intercept, and B_i = A(x_i)^-1."""
    X = Design(problem.X).dense()
    center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
    return Design(X, None, center), np.linalg.inv(problem.ball.cost.shape(X))


def zero_direction(problem: Problem) -> tuple[float, Array]:
    """Return the least delta at which theta = 0 is optimal, and where the risk falls below it."""
    design, B = centred(problem)
    fixed = (problem.weights, problem.loss, problem.fit_intercept)
    return local_threshold(zero_model(design, problem.y, *fixed), problem.weights, B)


def _by_newton(
    rows: DualRows, loss: Loss, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by the joint Newton method."""
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


def _by_slopes(
    rows: DualRows, B: Array, loss: PiecewiseQuadratic, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows of a piecewise quadratic loss."""
    program = SlopeProgram(
        X=rows.design.dense(),
        y=rows.y,
        weights=rows.weights[:, 0],
        B=B,
        loss=loss,
        delta=float(rows.delta[0]),
        fit_intercept=rows.fit_intercept,
    )
    target = tol * base
    model = solve_slopes(program, base, target, max_iter)
    gap = max(model.dual.risk - model.lower, 0.0)
    return Solution(
        coef=model.coef,
        intercept=model.intercept,
        multiplier=model.dual.multiplier,
        objective=model.dual.risk,
        gap=gap,
        n_iter=model.n_iter,
        converged=gap <= target,
        message="linearised feature map: " + verdict(gap, target, model.n_iter),
    )
