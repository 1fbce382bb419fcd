"""The exact solver: each problem goes to the method that fits its loss, cost and order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..costs import FeatureMap, Graph, Norm
from ..costs.callable import CallableCost
from ..duality import require_lipschitz
from ..losses import Logistic, Squared
from ..losses.base import PiecewiseQuadratic
from ..problem import Problem, Solution
from .base import Solver
from .conic import interior
from .euclidean import joint, newton, spectral
from .feature_map import linearised as local
from .finite import support

Method = Callable[..., Solution]


class Exact(Solver):
    """Minimise the worst-case risk until a dual point proves the gap.

    ``tol`` is relative to the risk of the best constant model, ``max_iter`` bounds the iterations.
    """

    def __init__(self, tol: float = 1e-6, max_iter: int = 1000) -> None:
        self.tol = tol
        self.max_iter = max_iter

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the certified solution."""
        return method(problem)(problem, self.tol, self.max_iter, start)


def method(problem: Problem) -> Method:
    """Return the method for a problem; refuse what no exact method covers."""
    loss, ball = problem.loss, problem.ball
    if isinstance(ball.cost, CallableCost):
        raise ValueError(
            "the exact solver needs a cost with a geometry, not a function. Use solver='smoothed'."
        )
    if ball.delta > 0 and problem.finite:
        return support.solve
    if ball.delta > 0 and isinstance(ball.cost, FeatureMap):
        return local.solve
    if ball.delta == 0 and isinstance(ball.cost, Graph | FeatureMap):
        # nothing moves: any cost will do
        problem = replace(problem, ball=replace(ball, cost=Norm(2)))
        return partial(_at, problem)
    if ball.order == 1:
        require_lipschitz(loss)
    if not isinstance(loss, PiecewiseQuadratic) and ball.cost.euclidean:
        return _smooth(problem)
    if isinstance(loss, Squared) and ball.cost.euclidean:
        return spectral.solve
    if ball.order == 2 and not ball.cost.euclidean and ball.delta > 0:
        _require_square_root(problem)
    if not isinstance(loss, PiecewiseQuadratic | Logistic):
        raise ValueError(
            f"the exact solver has no method for {type(loss).__name__} with {ball.cost!r}. Use a "
            "Euclidean or Mahalanobis cost, or solver='smoothed'."
        )
    return interior.solve


def _at(
    problem: Problem, given: Problem, tol: float, max_iter: int, start: Solution | None
) -> Solution:
    return method(problem)(problem, tol, max_iter, start)


def _smooth(problem: Problem) -> Method:
    loss, ball = problem.loss, problem.ball
    if not np.isfinite(loss.smoothness):
        raise ValueError(
            f"the exact solver needs a differentiable loss; {type(loss).__name__} states "
            "smoothness=inf. Derive it from PiecewiseQuadratic if it is one."
        )
    if ball.order == 1 or ball.delta == 0:
        return newton.solve
    if isinstance(loss, Logistic):
        return joint.solve
    raise ValueError(
        f"order=2 has no exact method for {type(loss).__name__}. Use order=1 or solver='smoothed'."
    )


def _require_square_root(problem: Problem) -> None:
    loss = problem.loss
    if isinstance(loss, Logistic) or (
        isinstance(loss, PiecewiseQuadratic) and loss.kappa > 0 and np.isfinite(loss.lipschitz)
    ):
        raise ValueError(
            f"order=2 with {type(loss).__name__} needs a Euclidean or Mahalanobis cost, not "
            f"{problem.ball.cost!r}. Use order=1 for this cost."
        )
