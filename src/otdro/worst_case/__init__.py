"""The least favourable distribution of a model over its ball, and the discrepancy D_c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..design import model_scores
from ..duality import priced_risk, worst_risk
from ..losses.base import Array
from ..problem import Problem
from . import places
from .discrepancy import discrepancy as discrepancy
from .distribution import WorstCase as WorstCase
from .labels import priced_worst_case
from .norms import default_reach, norm_worst_case
from .softmax import softmax_risk, softmax_worst_case


def worst_case(
    problem: Problem,
    coef: Array,
    intercept: Any,
    *,
    dual: Array | None = None,
    gap: float = np.inf,
    reach: Any = None,
) -> WorstCase:
    """Return the worst case of a linear model over the ball of a problem.

    ``dual`` holds the slopes of the dual point of a fit and ``gap`` its gap, where they are
    known: then the distribution is the equilibrium.
    ``reach`` bounds the length of a move, ``np.inf`` leaves it free. None does so too where the
    supremum is attained; where it is not, at order 1, moves are at most ``default_reach``.
    """
    bound = None if reach is None or np.isposinf(reach) else reach
    if not problem.ball.cost.is_norm or problem.finite:
        if bound is not None:
            raise ValueError(f"reach needs a cost that is a norm, not {problem.ball.cost!r}.")
        return places.worst_case(problem, coef, intercept)
    found = _of_a_norm(problem, coef, intercept, dual, gap, bound)
    if reach is None and not found.attained and problem.ball.order == 1 and np.any(coef):
        return _of_a_norm(problem, coef, intercept, dual, gap, default_reach(problem))
    return found


def _of_a_norm(
    problem: Problem, coef: Array, intercept: Any, dual: Array | None, gap: float, reach: Any
) -> WorstCase:
    """Return the worst case where rows may move anywhere at the price of a norm."""
    if problem.loss.outputs > 1:
        return softmax_worst_case(problem, coef, intercept, reach)
    if np.isfinite(problem.ball.label_cost):
        return priced_worst_case(problem, coef, intercept, reach)
    return norm_worst_case(problem, coef, intercept, dual, gap, reach)


def robust_risk_of(problem: Problem, coef: Array, intercept: Any) -> float:
    """Return the worst-case risk of a linear model over the ball of a problem."""
    if problem.loss.outputs > 1:
        return softmax_risk(problem, coef, intercept)
    if not problem.ball.cost.is_norm or problem.finite:
        return places.worst_risk(problem, coef, intercept)
    z = model_scores(problem.X, coef, intercept)
    w = float(problem.ball.cost.dual_norm(coef))
    if np.isfinite(problem.ball.label_cost):
        return priced_risk(z, problem.y, problem.weights, problem.loss, w, problem.ball).risk
    return worst_risk(z, problem.y, problem.weights, problem.loss, w, problem.ball).risk
