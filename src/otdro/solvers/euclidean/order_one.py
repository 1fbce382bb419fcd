r"""Damped Newton for smooth losses under an order-1 Euclidean cost, many problems at a time.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

Columns of a batch share the rows and differ in weights and rho. Slopes a_i = l'(z_i) continued
along the Newton step, a + D Z step with the curvatures D of the Newton matrix, meet the
constraints of the dual problem up to second order (scaled by kappa = min(1, rho/||Z'(pi a)||),
exactly):

.. math:: \max\ -\sum_i \pi_i \ell^*(a_i, y_i)\quad\text{s.t.}\quad
          \|Z'(\pi a)\|_2 \le \rho,\ \textstyle\sum_i \pi_i a_i = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import (
    as_float,
    beside,
    factor_of,
    flatnonzero,
    full,
    namespace,
    numbers,
    pick_columns,
)
from ...duality import AT_THRESHOLD, threshold
from .batch import Batch, Minimum, Points, Zero, norms
from .newton_matrix import NewtonMatrix

Array = NDArray[Any]

#: A borrowed matrix is left for the true one once a step of that is expected to be the last:
#: Newton's method squares the gap, relative to the risk.
LAST_STEP = 0.5
#: While steps promise to lower F by more than this times F, no bound below is sought.
HOPE = 0.1
#: A start this much below the constant models, relative to their risk, is surely none of them.
CLEARLY_BELOW = 1e-6
#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Halvings of a step; the last one is a step of zero.
HALVINGS = 50
#: Steps and decreases below these, relative to point and objective, are rounding.
STILL, ROUNDING = 1e-15, 1e-15
#: Of the first move along the gradient: the least curvature, relative to the slope.
LEAST_BEND = 1e-3

#: Where a descent starts: theta (d, B), b (B,), and the scores (n, B) where they are known.
Start = tuple[Array, ...]


def minimise(
    batch: Batch,
    target: Array,
    max_iter: int,
    start: Start | None = None,
    zero: Zero | None = None,
    system: NewtonMatrix | None = None,
    flat: Array | None = None,
) -> Minimum:
    """Minimise each problem of the batch until its gap is at most ``target`` (B,).

    One problem after another of a path may share ``zero``, the model at theta = 0, and ``system``,
    whose matrix serves while it does well. With the risks ``flat`` (B,) of the constant models a
    start that is below them needs no model at theta = 0.
    """
    best = Minimum.empty(batch)
    p = None if start is None or flat is None else _below(batch, start, flat)
    if p is not None:
        return _descend(best, batch, numbers(len(target), batch.rho), p, target, max_iter, system)
    zero = zero or zero_points(batch)
    steep = norms(zero.g)
    # at the threshold of the penalty rho = delta Lip the slopes themselves are the dual optimum
    square = batch.mean(zero.points.slope**2)
    off = ~(threshold(steep, square, 1.0, order=1) <= batch.rho * (1 + AT_THRESHOLD))
    active, settled = flatnonzero(off), flatnonzero(~off)
    if len(settled):
        _store_zero(best, batch.columns(settled), zero.columns(settled), settled)
    if not len(active):
        return best
    near = start
    if len(settled):
        batch, target, zero = batch.columns(active), target[active], zero.columns(active)
        near = None if start is None else tuple(pick_columns(part, active) for part in start)
    p = _first(batch, zero, near)
    return _descend(best, batch, active, p, target, max_iter, system)


def _descend(
    best: Minimum,
    batch: Batch,
    active: Array,
    p: Points,
    target: Array,
    max_iter: int,
    system: NewtonMatrix | None,
) -> Minimum:
    """Write the minima of the problems ``active`` into ``best``, from the points p."""
    system = (system or NewtonMatrix.over(batch.design)).retried()
    value = batch.objective(p)
    gap, xp = value, namespace(p.theta)
    for n_iter in range(1, max_iter + 1):
        system.update(batch, p)
        step, db, pull = system.step(batch, p)
        descent = system.slope_along(batch, p, step, db)
        if system.borrowed and _nearly_there(value, descent, target):
            system.renew(batch, p)
            step, db, pull = system.step(batch, p)
            descent = system.slope_along(batch, p, step, db)
        dz = system.moves(batch, step, db)
        new, objective = _line_search(batch, p, value, step, db, dz, descent)
        # far off a dual point proves nothing yet, nor does one of other rows
        near = n_iter == max_iter or not (HOPE * value < -descent).all()
        if near and not system.borrowed:
            lower = dual_value(batch, p, p.slope + system.curvature * dz, pull)
            gap = xp.minimum(gap, xp.maximum(objective - lower, 0.0))
        moved = _largest(new.theta - p.theta) > STILL * _largest(p.theta)
        # an old matrix can end the steps without a dual point: try the one of this point first
        over = (gap <= target) | (~moved & system.fresh) | (n_iter == max_iter)
        system.discard(~(moved | over))
        if over.any():
            if over.all():
                best.store(active, new, objective, gap, n_iter)
                break
            best.store(active[over], new.columns(over), objective[over], gap[over], n_iter)
            keep = ~over
            active, target, gap = active[keep], target[keep], gap[keep]
            objective = objective[keep]
            batch, new = batch.columns(keep), new.columns(keep)
            system.keep(keep)
        p, value = new, objective
    return best


def _nearly_there(value: Array, descent: Array, target: Array) -> bool:
    """Whether the decrease that a step promises is so small that a true Newton step ends it."""
    return bool((-descent <= LAST_STEP * (target * value) ** 0.5).all())


def _largest(v: Array) -> Array:
    """Return the largest size of an entry of each column."""
    return namespace(v).max(abs(v), axis=0)


def _store_zero(best: Minimum, batch: Batch, zero: Zero, columns: Array) -> None:
    """Write the model at theta = 0 into the columns where it is optimal."""
    p, flat = zero.points, batch.mean(zero.points.value)
    gap = namespace(flat).maximum(flat - dual_value(batch, p, p.slope, zero.g), 0.0)
    best.store(columns, p, flat, gap, 1)


def zero_points(batch: Batch) -> Zero:
    """Return the best models with theta = 0, whose slopes sum to zero if there is an intercept."""
    B = len(batch.rho)
    b = full(B, 0.0, batch.rho)
    if batch.fit_intercept:
        b = _constants(batch)
    z = namespace(batch.y).broadcast_to(beside(b, batch.y), (batch.design.n, B))
    p = points(batch, full((batch.design.d, B), 0.0, batch.rho), b, z)
    return Zero(p, batch.design.adjoint(batch.weights * p.slope))


def _constants(batch: Batch) -> Array:
    """Return the best constant score of each problem; many at a time where labels decide it."""
    if batch.y.ndim == 1:
        columns = range(len(batch.rho))
        return np.array([batch.loss.constant(batch.y, batch.weights[:, j]) for j in columns])
    positive = batch.small((batch.weights * as_float(batch.y > 0)).sum(axis=0))
    return batch.loss.constant_of_share(positive)


def points(batch: Batch, theta: Array, b: Array, z: Array) -> Points:
    """Return the points at (theta, b) with scores z."""
    return Points(theta, b, z, *batch.loss.evaluate(z, batch.targets))


def _at(batch: Batch, start: Start) -> Points:
    """Return the points at a start."""
    theta, b = start[:2]
    z = start[2] if len(start) > 2 else batch.design.scores(theta) + factor_of(b, batch.y)
    return points(batch, theta, b, z)


def _below(batch: Batch, start: Start, flat: Array) -> Points | None:
    """Return the points at a start, None where one of them is not clearly below its flat risk."""
    if not (_largest(start[0]) > 0).all():
        return None
    warm = _at(batch, start)
    return warm if (batch.objective(warm) < (1 - CLEARLY_BELOW) * flat).all() else None


def _first(batch: Batch, zero: Zero, start: Start | None) -> Points:
    """Return the start, or where it is no better than zero the best along -g, as a model goes.

    From F(start) < F(0) no descent ends in theta = 0, where F has no derivative.
    """
    if start is None:
        return points(batch, *_along_gradient(batch, zero))
    theta, b = start[:2]
    warm = _at(batch, start)
    z = warm.z
    good = (_largest(theta) > 0) & (batch.objective(warm) < batch.mean(zero.points.value))
    if good.all():
        return warm
    cold = _along_gradient(batch, zero)
    xp = namespace(theta)
    theta, b = xp.where(good, theta, cold[0]), xp.where(good, b, cold[1])
    return points(batch, theta, b, namespace(z).where(beside(good, z), z, cold[2]))


def _along_gradient(batch: Batch, zero: Zero) -> tuple[Array, Array, Array]:
    """Return theta, b and the scores of the minimiser of the quadratic model along -g."""
    steepness = norms(zero.g)
    u = -zero.g / steepness
    z = batch.design.scores(u)
    # the rows are centred on a mean that need not be that of these weights
    shift = batch.mean(z) if batch.fit_intercept else 0.0 * steepness
    spread = z - factor_of(shift, z)
    bend = batch.mean(zero.points.curvature * spread**2)
    length = length_along_gradient(steepness, batch.rho, bend, batch.mean(spread**2) ** 0.5)
    b = zero.points.b - length * shift
    return length * u, b, factor_of(length, z) * z + factor_of(b, z)


def length_along_gradient(steepness: Any, rho: Any, bend: Any, spread: Any) -> Any:
    """Return the length of the best move along -g from theta = 0, as a quadratic model goes.

    F falls with |g| - rho and bends with u'Hu =: ``bend`` along it; ``spread`` is the root mean
    square of the scores there, by which the least bend caps the move where H vanishes.
    """
    xp = namespace(steepness)
    least = LEAST_BEND * (steepness - rho) * spread
    return (steepness - rho) / xp.maximum(bend, xp.maximum(least, np.finfo(float).tiny))


def dual_value(batch: Batch, p: Points, a: Array, pull: Array) -> Array:
    """Return the dual value at kappa a, where Z'(pi a) = pull; at least 0."""
    size = norms(pull)
    free, xp = batch.rho == 0, namespace(size)
    shrink = batch.rho / xp.maximum(size, np.finfo(float).tiny)
    kappa = xp.where((size <= batch.rho) | free, 1.0, shrink)
    conjugate = batch.loss.conjugate(factor_of(kappa, a) * a, batch.targets)
    # a row without weight may have any slope
    value = -batch.mean(namespace(a).where(batch.weights > 0, conjugate, 0.0))
    # without a penalty Z'(pi a) = 0 holds to rounding only; its price is |Z'(pi a)| |theta|
    value -= xp.where(free, size * p.w, 0.0)
    return xp.maximum(value, 0.0)


def _line_search(
    batch: Batch,
    p: Points,
    objective: Array,
    step: Array,
    db: Array,
    dz: Array,
    descent: Array,
) -> tuple[Points, Array]:
    """Return the points after the longest of the steps 1, 1/2, 1/4, ... that descends, and F.

    ``objective`` is that at p, ``descent`` its derivative along the step.
    """
    xp = namespace(objective)
    length = xp.ones_like(objective)
    for attempt in range(HALVINGS):
        z = p.z + factor_of(length, dz) * dz
        new = points(batch, p.theta + length * step, p.b + length * db, z)
        value = batch.objective(new)
        allowed = objective + ARMIJO * length * descent + ROUNDING * abs(objective)
        short = ~(value <= allowed)
        if not short.any():
            break
        length = xp.where(short, length / 2 if attempt < HALVINGS - 2 else 0.0, length)
    return new, value
