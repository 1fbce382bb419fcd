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
    StreamCoordinates,
    StreamedProblem,
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
        kept = model.kept.problem(model.kept.ys[0], ball)
        [[start]] = Exact(tol=min(1e-6, max(tol, 1e-9))).solve([kept], [ball.delta])
    b, target = start.intercept + start.coef @ model.center, tol * model.constant().risk
    problem = _problem(model, ball, tol)
    return problem.solve(start.coef, b, float(start.multiplier), target, max_iter)


def _problem(model: Stream, ball: Ball, tol: float) -> StreamCoordinates:
    """Return a problem with the steps that are for it."""
    at, delta = (model, ball.cost.factor()), ball.delta
    if model.loss.outputs > 1:
        return SoftmaxStream(*at, delta)
    if np.isfinite(ball.label_cost) and delta > 0:
        return PricedStream(*at, delta, ball.label_cost, NEAR if tol < FOLD_TOL else NEAR_IN_FOLDS)
    if ball.order == 2 and delta > 0:
        return JointStream(*at, delta)
    return StreamedProblem(*at, delta * model.loss.lipschitz)
