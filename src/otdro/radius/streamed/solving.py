"""Certified solutions of smooth losses on a ball, for rows in chunks."""

from __future__ import annotations

import numpy as np

from ...problem import Ball, Solution
from ...solvers import Exact
from ...solvers.streamed import (
    JointStream,
    Passes,
    PricedStream,
    SoftmaxStream,
    Stream,
    StreamedProblem,
    solve,
    solve_joint,
    solve_priced,
    solve_softmax,
)
from ...solvers.streamed.priced import NEAR, NEAR_IN_FOLDS
from ..folds import FOLD_TOL


def method(
    model: Stream, ball: Ball, start: Solution | None, tol: float, max_iter: int
) -> Passes[Solution]:
    """Return the method of a smooth loss.

    It starts from a model near, or from the solution on the rows in memory. ``tol`` is relative to
    the risk of the constant model.
    """
    if start is None:
        problem = model.kept.problem(model.kept.ys[0], ball)
        start = Exact(tol=min(1e-6, max(tol, 1e-9))).solve(problem)
    lam = float(start.multiplier)
    factor, target = ball.cost.factor(), tol * model.constant().risk
    b = start.intercept + start.coef @ model.center
    if model.loss.outputs > 1:
        return solve_softmax(
            SoftmaxStream(model, factor, ball.delta), start.coef, b, target, max_iter
        )
    if np.isfinite(ball.label_cost) and ball.delta > 0:
        most = NEAR if tol < FOLD_TOL else NEAR_IN_FOLDS
        priced = PricedStream(model, factor, ball.delta, ball.label_cost, most)
        return solve_priced(priced, start.coef, b, lam, target, max_iter)
    if ball.order == 2 and ball.delta > 0:
        joint = JointStream(model, factor, ball.delta)
        return solve_joint(joint, start.coef, b, lam, target, max_iter)
    rho = ball.delta * model.loss.lipschitz if ball.delta > 0 else 0.0
    return solve(StreamedProblem(model, factor, rho), start.coef, b, target, max_iter)
