"""From the end of an interior-point run to a certified Solution."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...design import Design
from ...duality import Dual, worst_risk
from ...losses.base import Array
from ...problem import Problem, Solution
from ..base import verdict
from .central_path import Outcome
from .model import Model

#: Coefficients below this share of the largest are tried as zeros if the norm leaves zeros.
NEGLIGIBLE = 1e-6
#: On a tie up to this share of the risk the simpler point wins.
TIE = 1e-13


class Candidate(NamedTuple):
    """Coefficients, an intercept, and a guess of the multiplier (0 for none)."""

    coef: Array
    intercept: float
    multiplier: float


def certified(
    problem: Problem, model: Model, run: Outcome, b: float, goal: float, start: Solution | None
) -> Solution:
    """Return the best of the run, its rounding, the constant model and the start, certified."""
    found = [_constant(problem, b), *_rounded(problem, model, run)]
    if start is not None:
        guess = start.multiplier if np.isfinite(start.multiplier) else 0.0
        found.append(Candidate(start.coef, start.intercept, guess))
    risks = [_risk(problem, point) for point in found]
    # on a tie the simpler point, which stands first, wins
    order = [risks[0].risk * (1 - TIE), *(each.risk for each in risks[1:])]
    j = int(np.argmin(order))
    gap = max(risks[j].risk - run.bound.value, 0.0)
    return Solution(
        coef=found[j].coef,
        intercept=float(found[j].intercept),
        multiplier=risks[j].multiplier,
        objective=risks[j].risk,
        gap=gap,
        n_iter=run.n_iter,
        converged=bool(gap <= goal),
        message=verdict(gap, goal, run.n_iter),
        dual=-model.o * (model.form.steepness(risks[j].risk) * run.bound.alpha),
    )


def worst_constant(problem: Problem, b: float) -> Dual:
    """Return the worst-case risk of a constant score."""
    return _risk(problem, _constant(problem, b))


def _constant(problem: Problem, b: float) -> Candidate:
    return Candidate(np.zeros(problem.X.shape[1]), b, 0.0)


def _risk(problem: Problem, point: Candidate) -> Dual:
    """Return the worst-case risk of a point and its multiplier."""
    z = Design(problem.X).scores(point.coef) + point.intercept
    w = float(problem.ball.cost.dual_norm(point.coef)) if point.coef.any() else 0.0
    y, weights = problem.y, problem.weights
    return worst_risk(z, y, weights, problem.loss, w, problem.ball, point.multiplier)


def _rounded(problem: Problem, model: Model, run: Outcome) -> list[Candidate]:
    """Return the point, after the one with tiny coefficients at zero if the norm leaves zeros."""
    coef = model.design.coef(run.theta)
    small = np.abs(coef) < NEGLIGIBLE * np.abs(coef).max(initial=0.0)
    # nu = w^2/(2 lam)
    ball = problem.ball
    lam = float(ball.gain(ball.cost.dual_norm(coef))) ** 2 / (2 * run.nu)
    center = model.design.origin
    points = []
    for v in (np.where(small, 0.0, coef), coef):
        shift = 0.0 if center is None else float(center @ v)
        points.append(Candidate(v, run.b - shift, lam))
    return points if model.norm.leaves_zeros else points[1:]


def expanded(problem: Problem, place: Array, found: Solution) -> Solution:
    """Return the solution with ``dual`` for every row, at zero weight the slope at the point."""
    assert found.dual is not None
    dual, off = found.dual[place], place < 0
    if off.any():
        z = Design(problem.X).scores(found.coef) + found.intercept
        slopes = problem.loss.derivative(z, np.asarray(problem.y, dtype=float))
        dual = np.where(off, slopes, dual)
    return replace(found, dual=dual)
