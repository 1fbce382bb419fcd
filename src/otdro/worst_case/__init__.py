"""The least favourable distribution of a model over its ball, and the discrepancy D_c."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..design import model_scores
from ..losses.base import Array
from ..problem import Problem, Solution
from ..solvers import Exact
from ..solvers.local_cost import worst_risk as local_worst_risk
from .best_response import (
    check_reach,
    default_reach,
    norm_worst_case,
    places_worst_case,
    priced_worst_case,
    softmax_worst_case,
)
from .discrepancy import discrepancy as discrepancy
from .distribution import EQUILIBRIUM, TOLERANCE, plain_bound, scored
from .distribution import WorstCase as WorstCase
from .distribution import risk_of_scores as risk_of_scores
from .equilibrium import least_favourable

#: The gap of a dual point, relative to the robust risk, that an equilibrium is sought with.
FINER = 1e-10


def worst_case(
    problem: Problem,
    coef: Array,
    intercept: Any,
    *,
    fit: Solution | None = None,
    reach: Any = None,
) -> WorstCase:
    """Return the worst case of a linear model over the ball of a problem.

    ``fit`` is the solution of this problem that the model is, if it is one: with its dual point
    the distribution is the equilibrium, wherever there is one.
    ``reach`` bounds the length of a move, ``np.inf`` leaves it free. None does so too where the
    supremum is attained; where it is not, at order 1, moves are at most ``default_reach``.
    """
    bound = None if reach is None or np.isposinf(reach) else reach
    is_norm = problem.ball.cost.is_norm and not problem.finite
    if bound is not None:
        if not is_norm:
            raise ValueError(f"reach needs a cost that is a norm, not {problem.ball.cost!r}.")
        bound = check_reach(bound, problem.ball.order)
    if not is_norm:
        worst = places_worst_case(problem, coef, intercept)
    else:
        worst = _of_a_norm(problem, coef, intercept, bound)
        if fit is not None and fit.dual is not None and bound is None:
            balanced = _equilibrium(problem, fit, fit.dual, worst)
            if balanced is not None:
                return balanced
        if reach is None and not worst.attained and problem.ball.order == 1 and np.any(coef):
            worst = _of_a_norm(problem, coef, intercept, default_reach(problem))
    short = worst.shortfall
    if fit is not None:
        # a fit may state more than the risk of its model: its multiplier is not the best one
        short = max(short, fit.objective - worst.risk)
    robust_risk = worst.risk + short
    fall = robust_risk - plain_bound(problem, coef, intercept, worst)
    flag = bool(fall <= EQUILIBRIUM * robust_risk)
    return replace(worst, shortfall=short, equilibrium=flag)


def _equilibrium(
    problem: Problem, fit: Solution, dual: Array, other: WorstCase
) -> WorstCase | None:
    """Return the least favourable distribution of a fit, None where its gap leaves none to 1e-5.

    ``other`` is the worst case of the model: where that attains the supremum, so does this one.
    """
    if problem.loss.outputs > 1 or np.isfinite(problem.ball.label_cost):
        return None
    if problem.ball.delta == 0:
        # the fit is the plain fit, to its gap
        return replace(other, equilibrium=bool(fit.gap <= EQUILIBRIUM * fit.objective))
    model = scored(problem, fit.coef, fit.intercept)
    worst, lower = least_favourable(model, model, dual, fit.gap)
    highest = (1 - EQUILIBRIUM) * fit.objective
    exists = worst is not None or other.attained
    if exists and lower < highest and fit.gap > FINER * fit.objective:
        # the gap is why: a dual point of a smaller one may do
        tol = FINER * fit.objective / problem.constant[1]
        [[finer]] = Exact(tol).solve([problem], [problem.ball.delta])
        if finer.dual is not None:
            optimum = scored(problem, finer.coef, finer.intercept)
            worst, lower = least_favourable(model, optimum, finer.dual, finer.gap)
    if worst is not None and lower >= highest:
        short = max(0.0, fit.objective - worst.risk)
        attained = other.attained or short <= TOLERANCE * fit.objective
        return replace(worst, shortfall=short, attained=attained, equilibrium=True)
    if model.gain == 0:
        # the risk of a constant model is the same everywhere, but it is not the plain fit
        return replace(other, attained=False)
    return None


def _of_a_norm(problem: Problem, coef: Array, intercept: Any, reach: float | None) -> WorstCase:
    """Return the worst case where rows may move anywhere at the price of a norm."""
    if problem.loss.outputs > 1:
        return softmax_worst_case(problem, coef, intercept, reach)
    model = scored(problem, coef, intercept)
    if np.isfinite(problem.ball.label_cost):
        return priced_worst_case(model, reach)
    return norm_worst_case(model, reach)


def robust_risk_of(problem: Problem, coef: Array, intercept: Any) -> float:
    """Return the worst-case risk of a linear model over the ball of a problem.

    Where the cost is no norm it is found by ascent, from below.
    """
    if problem.finite:
        return places_worst_case(problem, coef, intercept).risk
    if not problem.ball.cost.is_norm:
        return local_worst_risk(problem, coef, intercept).risk
    return risk_of_scores(problem, coef, model_scores(problem.X, coef, intercept)).risk
