"""Newton's method on the smoothed dual along a path of falling eps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality.ties import newton_step
from ...progress import logger
from .smoothed_dual import Origin, SmoothedObjective, SmoothedPoint

Array = NDArray[Any]

#: Each eps is this share of the one before, where inner problems have several maxima.
COOLING = 1 / 8
#: 2 lam over smoothness w^2 from which on inner problems count as concave: with room for lam to
#: fall with eps.
CONCAVE = 1.6
#: The step of a difference in eps, relative to it.
DIFFERENCE = 1e-4
#: The decrement to reach at an eps before the last, relative to it: near ties a stage must fix the
#: rows' shares, worth eps times their weights, for its tangent to hold.
CONCAVE_STAGE, TIED_STAGE = 1e-2, 1e-5
#: That at the last eps, relative to the target.
CONCAVE_LAST, TIED_LAST = 0.1, 1e-3
#: The share of the way to lam = 0 that a step may go.
WAY = 0.9
#: The share of the predicted decrease that a step must bring, and rounding of the objective.
ARMIJO, ROUNDING = 1e-4, 1e-14
#: Halvings of a step.
HALVINGS = 25


@dataclass(eq=False)
class NewtonRun:
    """The last point, the smoothing there, the steps taken, and whether Newton's method settled."""

    x: SmoothedPoint
    eps: float
    n_iter: int
    settled: bool


def descend(
    objective: SmoothedObjective,
    origin: Origin,
    eps: float,
    final: float,
    target: float,
    max_iter: int,
) -> NewtonRun:
    """Minimise at eps, and at smaller and smaller ones, each from the solution before."""
    z = objective.rows.design.scores(origin.theta) + origin.b
    x = _finite(objective, origin, z, eps)
    n_iter = 0
    while True:
        last = target if eps <= final else None
        run = _minimise(objective, x, eps, last, max_iter - n_iter)
        n_iter += run.n_iter
        logger.info(
            "newton: step %d, eps %.3g, lam %.4g, smoothed risk %.8g",
            n_iter,
            eps,
            run.x.lam,
            run.x.objective,
        )
        if eps <= final or n_iter >= max_iter:
            return NewtonRun(run.x, float(eps), max(n_iter, 1), run.settled and eps <= final)
        new = final if concave(objective, run.x) else max(final, COOLING * eps)
        x = _predicted(objective, run.x, eps, new)
        eps = new


def concave(objective: SmoothedObjective, x: SmoothedPoint) -> bool:
    """Whether every inner problem is, 2 lam > smoothness w^2, with room."""
    return bool(2 * x.lam > CONCAVE * objective.loss.smoothness * x.w.max() ** 2)


def _predicted(
    objective: SmoothedObjective, x: SmoothedPoint, eps: float, new: float
) -> SmoothedPoint:
    """Return the point of the tangent to the path of minimisers x(eps) at the smaller eps ``new``,
    or x itself where that is lower: H x'(eps) = -dgrad/deps.

    Rows that two maxima share keep their shares along the path, which is straight near eps = 0: the
    values of the two differ by a multiple of eps.
    """
    still = _finite(objective, Origin(x.theta, x.b, x.lam), x.z, new)
    if concave(objective, x):
        return still
    below = eps * (1 - DIFFERENCE)
    near = objective.at(x.theta, x.b, x.lam, x.z, below)
    if near is None:
        return still
    grad, H = objective.derivatives(x, eps)
    change = (grad - objective.derivatives(near, below)[0]) / (DIFFERENCE * eps)
    ahead = _line(objective, x, newton_step(grad + (new - eps) * change, H), new)(1.0)
    return still if ahead is None or ahead.objective > still.objective else ahead


def _finite(objective: SmoothedObjective, origin: Origin, z: Array, eps: float) -> SmoothedPoint:
    """Return the point, lam doubled until the objective is finite."""
    theta, b, lam = origin
    while (x := objective.at(theta, b, lam, z, eps)) is None:
        lam *= 2
    return x


def _minimise(
    objective: SmoothedObjective, x: SmoothedPoint, eps: float, target: float | None, max_iter: int
) -> NewtonRun:
    """Take damped Newton steps until the decrement is within ``_enough``, or rounding stops it."""
    for n_iter in range(1, max_iter + 1):
        grad, H = objective.derivatives(x, eps)
        move = newton_step(grad, H)
        descent = float(grad @ move)
        new = _line_search(objective, x, move, descent, eps)
        # the step after a small decrement costs no derivatives, and squares what is left
        if -descent <= _enough(concave(objective, x), eps, target):
            return NewtonRun(x if new is None else new, eps, n_iter, True)
        if new is None:
            return NewtonRun(x, eps, n_iter, target is not None and -descent <= target)
        x = new
    return NewtonRun(x, eps, max_iter, False)


def _enough(concave: bool, eps: float, target: float | None) -> float:
    """Return the decrement to reach at eps; ``target`` is that of the last eps, None before it."""
    if target is None:
        return (CONCAVE_STAGE if concave else TIED_STAGE) * eps
    return (CONCAVE_LAST if concave else TIED_LAST) * target


def _line(
    objective: SmoothedObjective, x: SmoothedPoint, move: Array, eps: float
) -> Callable[[float], SmoothedPoint | None]:
    """Return the points along a move as a function of the length, lam kept positive."""
    d = objective.rows.design.d
    dtheta = move[:d]
    db = float(move[d])
    dlam = float(move[-1])
    dz = objective.rows.design.scores(dtheta) + db
    # rows with two maxima tie at a margin proportional to the level w^2/lam: moved linearly, as
    # margins are, it keeps tied rows tied along the whole step
    smoothness = objective.loss.smoothness
    tied = np.isfinite(smoothness) and 2 * x.lam < smoothness * x.w.max() ** 2
    base = x.lam
    change = dlam
    if tied:
        square = _product(objective, x.theta, x.theta)
        base = square / x.lam
        change = base * (2 * _product(objective, x.theta, dtheta) / square - dlam / x.lam)
    longest = min(1.0, -WAY * base / change) if change < 0 else 1.0

    def at(length: float) -> SmoothedPoint | None:
        t = length * longest
        theta = x.theta + t * dtheta
        lam = base + t * change
        if tied:
            lam = _product(objective, theta, theta) / lam
        return objective.at(theta, x.b + t * db, lam, x.z + t * dz, eps)

    return at


def _product(objective: SmoothedObjective, theta: Array, other: Array) -> float:
    """Return the inner product of the dual norm, averaged over rows."""
    return float(objective.rows.dual_norm.product(theta[:, None], other[:, None])[0])


def _line_search(
    objective: SmoothedObjective, x: SmoothedPoint, move: Array, descent: float, eps: float
) -> SmoothedPoint | None:
    """Return the point after the longest step 1, 1/2, ... that descends, None if none does."""
    at = _line(objective, x, move, eps)
    length = 1.0
    for _ in range(HALVINGS):
        new = at(length)
        slack = ARMIJO * length * descent + ROUNDING * abs(x.objective)
        if new is not None and new.objective <= x.objective + slack:
            return new
        length /= 2
    return None
