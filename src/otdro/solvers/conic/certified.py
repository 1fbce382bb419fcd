"""From the end of an interior-point run to a certified Solution."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...design import Design
from ...losses.base import Array
from ...problem import Problem, Solution
from ..base import verdict
from .bounds import Floor, best_nu, risk, spread
from .model import Model


@dataclass(frozen=True, eq=False)
class Run:
    """A point of a model, the best lower bound found, and the iterations spent."""

    theta: Array
    b: float
    floor: Floor
    n_iter: int


def certified(
    problem: Problem, model: Model, run: Run, b: float, goal: float, start: Solution | None
) -> Solution:
    """Return the best of the run, its rounding, the constant model and the start, certified."""
    zero = (np.zeros(problem.X.shape[1]), b)
    coef = model.design.coef(run.theta)
    found = [zero, *_rounded(model, coef, run.b)]
    if start is not None:
        found.append((start.coef, start.intercept))
    raw = replace(model, design=Design(model.design.X))
    cost = problem.ball.cost
    scored = [
        (risk(raw, raw.residual(v, a), float(cost.dual_norm(v))), j)
        for j, (v, a) in enumerate(found)
    ]
    # on a tie the simpler point, which stands first, wins
    objective, j = min(scored, key=lambda s: (s[0] * (1 + 1e-13 * (s[1] > 0)), s[1]))
    coef, intercept = found[j]
    gap = max(objective - run.floor.value, 0.0)
    return Solution(
        coef=coef,
        intercept=float(intercept),
        multiplier=_multiplier(raw, coef, intercept, float(cost.dual_norm(coef)), problem),
        objective=objective,
        gap=gap,
        n_iter=run.n_iter,
        converged=bool(gap <= goal),
        message=verdict(gap, goal, run.n_iter),
        dual=_dual(model, run, objective),
    )


def _rounded(model: Model, coef: Array, centred: float) -> list[tuple[Array, float]]:
    """Return the point, after the one with tiny coefficients set to zero if the penalty is l1."""
    points = []
    for v in (np.where(np.abs(coef) < 1e-6 * np.abs(coef).max(initial=0.0), 0.0, coef), coef):
        shift = 0.0 if model.design.center is None else float(model.design.center @ v)
        points.append((v, centred - shift))
    return points if model.dual == 1 else points[1:]


def _multiplier(raw: Model, coef: Array, b: float, w: float, problem: Problem) -> float:
    """Return lam = d objective/d delta."""
    if w == 0:
        return 0.0
    if problem.ball.order == 1:
        return float(problem.loss.lipschitz * w)
    if raw.form == "linear":
        # sqrt(delta) hi w
        return raw.rate * w / (2 * problem.ball.delta)
    r = raw.residual(coef, b)
    if np.isinf(raw.hi):
        # (rms + sqrt(delta) w)^2/(2 kappa)
        rms = spread(raw, r)
        tail = 0.0 if rms == 0 else w * rms / raw.rate if raw.rate > 0 else np.inf
        return (w**2 + tail) / (2 * raw.kappa)
    return w**2 / (2 * best_nu(raw, r, w)) if raw.rate > 0 else np.inf


def _dual(model: Model, run: Run, objective: float) -> Array:
    """Return dl/dz = -o alpha of every row."""
    # with a root E alpha^2 = 1; the worst residual is alpha sqrt(2 kappa objective)
    slope = np.sqrt(2 * objective / model.kappa) if model.form == "root" else 1.0
    return -model.o * (slope * run.floor.alpha)


def expanded(problem: Problem, place: Array, found: Solution) -> Solution:
    """Return the solution with ``dual`` for every row, at zero weight the slope at the point."""
    assert found.dual is not None
    dual, off = found.dual[place], place < 0
    if off.any():
        z = Design(problem.X).scores(found.coef) + found.intercept
        slopes = problem.loss.derivative(z, np.asarray(problem.y, dtype=float))
        dual = np.where(off, slopes, dual)
    return replace(found, dual=dual)
