r"""Damped Newton for smooth losses under an order-1 Euclidean cost, many problems at a time.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

Columns of a batch share the rows and differ in weights, costs and rho. Its dual problem is

.. math:: \max\ -\sum_i \pi_i \ell^*(a_i, y_i)\quad\text{s.t.}\quad
          \|Z'(\pi a)\|_2 \le \rho,\ \textstyle\sum_i \pi_i a_i = 0.

The slopes a_i = l'(z_i) of any point, moved in proportion to the curvatures D to where they are
feasible (``Batch.lower_bound``), certify a gap of second order in the gradient. That needs no
Newton matrix, so steps may use the matrix of another point, of other weights or of some rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import (
    beside,
    copied,
    factor_of,
    full,
    namespace,
    numbers,
    numpy,
    pick,
    pick_columns,
    set_columns,
)
from ...design import Design
from ...duality import AT_THRESHOLD, feasible_growth, threshold
from ...duality.ties import RIDGE, positive_solved
from ...losses import Loss
from .coordinates import FactoredRows

Array = NDArray[Any]
Rows = Design | FactoredRows

#: A bound is sought where the gap expected after a step is at most this times the target.
HOPE = 10.0
#: The gap expected after a step with a new matrix, as a share of the promise squared over F.
QUADRATIC = 0.1
#: A start this much below the constant models, relative to their risk, is surely none of them.
CLEARLY_BELOW = 1e-6
#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Halvings of a step; the last one is a step of zero.
HALVINGS = 50
#: Steps below this, relative to the point, are rounding.
STILL = 1e-15
#: Decreases below this, relative to the objective, are rounding.
ROUNDING = 1e-15
#: Of the first move along the gradient: the least curvature, relative to the slope.
LEAST_BEND = 1e-3
#: An old Newton matrix is kept while a step shrinks the gradient by at least this factor.
CONTRACTION = 0.3
#: The same where a new matrix takes no longer than the rest of a step.
CHEAP_CONTRACTION = 0.1
#: Operations n d^2 of a new matrix up to which that is so.
CHEAP_UP_TO = 10_000_000
#: Columns above which the Newton system is solved by conjugate gradients, without its matrix.
DENSE_UP_TO = 2_000
#: Operations of the Newton systems of a batch up to which they are solved on the host: launching
#: kernels on a device takes longer.
ON_HOST_UP_TO = 10_000_000
#: Conjugate gradients end at this times the root of the gradient in units of rho.
CG_RTOL = 0.1
#: Steps of conjugate gradients at most.
CG_STEPS = 200
#: Added to the operator of conjugate gradients, for directions that no row settles.
SOFT_RIDGE = 1e-14

TINY = float(np.finfo(float).tiny)

#: Where a descent starts: theta (d, B), b (B,), and the scores (n, B) where they are known.
Start = tuple[Array, ...]


def norms(v: Array) -> Array:
    """Return the Euclidean norm of each column."""
    return np.sqrt(np.einsum("db,db->b", v, v))


def dots(u: Array, v: Array) -> Array:
    """Return u'v of each column, as NumPy."""
    products: Array
    products = np.vecdot(u.T, v.T) if isinstance(u, np.ndarray) else numpy((u * v).sum(axis=0))
    return products


def _largest(v: Array) -> Array:
    """Return the largest size of an entry of each column."""
    return np.max(np.abs(v), axis=0)


@dataclass(eq=False)
class Points:
    """Points of a batch, the batch along the last axis; ``z`` includes the intercept."""

    theta: Array
    b: Array
    z: Array
    value: Array
    slope: Array
    curvature: Array

    @cached_property
    def w(self) -> Array:
        """The norms ||theta||_2."""
        return norms(self.theta)

    def columns(self, index: Array) -> Points:
        """Return the points of some columns."""
        parts = (self.theta, self.b, self.z, self.value, self.slope, self.curvature)
        return Points(*(pick_columns(part, index) for part in parts))


@dataclass(eq=False)
class Zero:
    """The points at theta = 0 of a batch and their gradients g = Z'(pi a), (d, B)."""

    points: Points
    g: Array

    def columns(self, index: Array) -> Zero:
        """Return those of some columns."""
        return Zero(self.points.columns(index), self.g[:, index])


@dataclass(eq=False)
class Batch:
    """B problems over the same rows; ``weights`` (n, B) with columns of sum 1, ``rho`` (B,)."""

    design: Rows
    y: Array
    weights: Array
    loss: Loss
    rho: Array
    fit_intercept: bool

    def columns(self, index: Array) -> Batch:
        """Return the problems of some columns."""
        design, weights = self.design.problems(index), pick_columns(self.weights, index)
        return Batch(design, self.y, weights, self.loss, self.rho[index], self.fit_intercept)

    def mean(self, v: Array) -> Array:
        """Return the weighted sum over rows, one per column."""
        if isinstance(v, np.ndarray):
            return np.einsum("nb,nb->b", self.weights, v)
        if self.weights.shape[1] == 1:
            return numpy(self.weights[:, 0] @ v[:, 0])[None]
        return numpy((self.weights * v).sum(axis=0))

    def at(self, theta: Array, b: Array, z: Array | None = None) -> Points:
        """Return the points at (theta, b), with scores z where they are known."""
        z = self.design.scores(theta) + factor_of(b, self.y) if z is None else z
        return Points(theta, b, z, *self.loss.evaluate(z, self.y[:, None]))

    def objective(self, p: Points) -> Array:
        """Return mean l + rho w."""
        return self.mean(p.value) + self.rho * p.w

    def zero(self) -> Zero:
        """Return the best models with theta = 0, whose slopes sum to zero with an intercept."""
        B = len(self.rho)
        b = np.zeros(B)
        if self.fit_intercept:
            b = np.array([self.loss.constant(self.y, self.weights[:, j]) for j in range(B)])
        z = namespace(self.y).broadcast_to(beside(b, self.y), (self.design.n, B))
        p = self.at(np.zeros((self.design.d, B)), b, z)
        return Zero(p, self.design.adjoint(self.weights * p.slope))

    def lower_bound(self, p: Points) -> Array:
        """Return a bound (B,) below F of every model, from the slopes at p.

        They are shifted by a multiple of D until they sum to zero, then grown along D z'theta
        until their pull is feasible; where that does not help they are scaled.
        """
        a, growth = p.slope, p.curvature * (p.z - factor_of(p.b, p.z))
        if self.fit_intercept:
            mass = np.maximum(self.mean(p.curvature), TINY)
            a = a - factor_of(self.mean(a) / mass, a) * p.curvature
            growth = growth - factor_of(self.mean(growth) / mass, a) * p.curvature
        B, free = len(self.rho), self.rho == 0
        both = namespace(a).concat([self.weights * a, self.weights * growth], axis=1)
        # one product for all columns takes little longer than for half of them
        pulls = self.design.problems(np.tile(np.arange(B), 2)).adjoint(both)
        g, dg = pulls[:, :B], pulls[:, B:]
        size = norms(g)
        eta = feasible_growth(size**2 - self.rho**2, dots(g, dg), dots(dg, dg))
        grown = np.isfinite(eta) & ~free
        kappa = np.where(grown | free, 1.0, self.rho / np.maximum(size, TINY))
        a = factor_of(kappa, a) * (a + factor_of(np.where(grown, eta, 0.0), a) * growth)
        conjugate = self.loss.conjugate(a, self.y[:, None])
        # a row without weight may have any slope
        value = -self.mean(namespace(a).where(self.weights > 0, conjugate, 0.0))
        # without a penalty Z'(pi a) = 0 holds to rounding only; its price is |Z'(pi a)| |theta|
        value = value - np.where(free, size * p.w, 0.0)
        return np.maximum(np.where(np.isnan(value), 0.0, value), 0.0)


@dataclass(eq=False)
class Minimum:
    """What ``minimise`` returns, the batch along the last axis; ``slope`` is the dual point a.

    A path forgets scores and slopes that nobody asks for again.
    """

    theta: Array
    b: Array
    z: Any
    slope: Any
    objective: Array
    gap: Array
    n_iter: Array

    @classmethod
    def empty(cls, batch: Batch) -> Minimum:
        """Return arrays for every problem of a batch."""
        n, d, B = batch.design.n, batch.design.d, len(batch.rho)
        # the entries of a problem are next to each other
        z, slope = full((B, n), 0.0, batch.y).T, full((B, n), 0.0, batch.y).T
        theta, number = np.zeros((B, d)).T, np.ones(B, dtype=int)
        return cls(theta, np.zeros(B), z, slope, np.zeros(B), np.zeros(B), number)

    @classmethod
    def of_problem(cls, minima: list[Minimum], b: int, d: int) -> Minimum:
        """Return the minima of problem b in several batches, in its first d coordinates."""
        slope = None
        if minima[0].slope is not None:
            stack = namespace(minima[0].slope).stack
            slope = stack([each.slope[:, b] for each in minima], axis=1)
        return cls(
            np.stack([each.theta[:d, b] for each in minima], axis=1),
            np.array([each.b[b] for each in minima]),
            None,
            slope,
            np.array([each.objective[b] for each in minima]),
            np.array([each.gap[b] for each in minima]),
            np.array([each.n_iter[b] for each in minima]),
        )

    def store(self, columns: Array, p: Points, objective: Array, gap: Array, n_iter: int) -> None:
        """Write finished points into their columns."""
        self.theta[:, columns] = p.theta
        self.b[columns] = p.b
        set_columns(self.z, columns, p.z)
        set_columns(self.slope, columns, p.slope)
        self.objective[columns], self.gap[columns], self.n_iter[columns] = objective, gap, n_iter


def minimise(
    batch: Batch,
    target: Array,
    max_iter: int,
    start: Start | None = None,
    zero: Zero | None = None,
    system: NewtonSystem | None = None,
    flat: Array | None = None,
) -> Minimum:
    """Minimise each problem of the batch until its gap is at most ``target`` (B,).

    One problem after another of a path may share ``zero``, the model at theta = 0, and ``system``,
    whose matrix serves while it does well. With the risks ``flat`` (B,) of the constant models a
    start that is below them needs no model at theta = 0.
    """
    end, B = Minimum.empty(batch), len(target)
    if start is not None and flat is not None and (_largest(start[0]) > 0).all():
        p = batch.at(*start)
        if (batch.objective(p) < (1 - CLEARLY_BELOW) * flat).all():
            return _descend(end, batch, np.arange(B), p, target, max_iter, system)
    zero = zero or batch.zero()
    # at the threshold of the penalty rho = delta Lip the slopes themselves are the dual optimum
    square = batch.mean(zero.points.slope**2)
    off = ~(threshold(norms(zero.g), square, 1.0, order=1) <= batch.rho * (1 + AT_THRESHOLD))
    active, settled = np.flatnonzero(off), np.flatnonzero(~off)
    if len(settled):
        few, p = batch.columns(settled), zero.points.columns(settled)
        risk = few.mean(p.value)
        gap = np.maximum(risk - few.lower_bound(p), 0.0)
        end.store(settled, p, risk, gap, 1)
        if not len(active):
            return end
        batch, target, zero = batch.columns(active), target[active], zero.columns(active)
        start = None if start is None else tuple(pick_columns(part, active) for part in start)
        if system is not None and len(system.residual):
            system.keep(active)
    return _descend(end, batch, active, _first(batch, zero, start), target, max_iter, system)


def _descend(
    end: Minimum,
    batch: Batch,
    active: Array,
    p: Points,
    target: Array,
    max_iter: int,
    system: NewtonSystem | None,
) -> Minimum:
    """Write the minima of the problems ``active`` into ``end``, from the points p."""
    system = (system or NewtonSystem.over(batch.design)).retried()
    value = batch.objective(p)
    gap = value
    for n_iter in range(1, max_iter + 1):
        system.update(batch, p)
        step, db, dz = system.step(batch, p)
        descent = system.slope_along(batch, p, step, db, dz)
        new, objective = _line_search(batch, p, value, step, db, dz, descent)
        # far off a bound proves nothing yet
        expected = np.where(
            system.fresh, QUADRATIC * descent**2 / value, system.expected_gap(batch.rho, p.w)
        )
        near = (expected <= HOPE * target) | (n_iter == max_iter)
        if near.any():
            certified = np.maximum(objective - batch.lower_bound(new), 0.0)
            # a problem must not depend on its company
            gap = np.where(near, np.minimum(gap, certified), gap)
        moved = _largest(new.theta - p.theta) > STILL * _largest(p.theta)
        # an old matrix can end the steps: try the one of this point first
        over = (gap <= target) | (~moved & system.fresh) | (n_iter == max_iter)
        system.discard(~(moved | over))
        if over.any():
            end.store(active[over], new.columns(over), objective[over], gap[over], n_iter)
            if over.all():
                break
            keep = ~over
            active, target, gap = active[keep], target[keep], gap[keep]
            objective = objective[keep]
            batch, new = batch.columns(keep), new.columns(keep)
            system.keep(keep)
        p, value = new, objective
    return end


def _first(batch: Batch, zero: Zero, start: Start | None) -> Points:
    """Return the start, or where it is no better than zero the best along -g, as a model goes.

    From F(start) < F(0) no descent ends in theta = 0, where F has no derivative.
    """
    if start is None:
        return batch.at(*_along_gradient(batch, zero))
    theta, b = start[:2]
    warm = batch.at(*start)
    good = (_largest(theta) > 0) & (batch.objective(warm) < batch.mean(zero.points.value))
    if good.all():
        return warm
    cold = _along_gradient(batch, zero)
    z = namespace(warm.z).where(beside(good, warm.z), warm.z, cold[2])
    return batch.at(np.where(good, theta, cold[0]), np.where(good, b, cold[1]), z)


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
    least = LEAST_BEND * (steepness - rho) * spread
    return (steepness - rho) / np.maximum(bend, np.maximum(least, TINY))


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
    length = np.ones_like(objective)
    for attempt in range(HALVINGS):
        z = p.z + factor_of(length, dz) * dz
        new = batch.at(p.theta + length * step, p.b + length * db, z)
        value = batch.objective(new)
        allowed = objective + ARMIJO * length * descent + ROUNDING * abs(objective)
        short = ~(value <= allowed)
        if not short.any():
            break
        length = np.where(short, length / 2 if attempt < HALVINGS - 2 else 0.0, length)
    return new, value


class NewtonSystem:
    """The Newton system of (theta, b) with the intercept eliminated,

    (H - hh'/m + (rho/w)(I - uu')) step = -(g + rho u) + h s/m,

    H = Z'(pi D)Z, h = Z'(pi D), m = sum pi D at the curvatures D of when it was last renewed,
    g = Z'(pi a), s = sum pi a at the current point, u = theta/w. Each problem of a batch is
    renewed by its own need, so that its steps do not depend on its company; problems that are
    folds of each other begin with the matrix of the first (``shared``). Above ``DENSE_UP_TO``
    columns the matrix is not formed (``RowSystem``).
    """

    H: Array
    h: Array
    g: Array
    s: Array
    mass: Array

    def __init__(self, contraction: float = CONTRACTION, shared: bool = False) -> None:
        self.contraction = contraction
        self.shared = shared
        self.residual: Array = np.zeros(0)
        self.fresh: Array = np.zeros(0, dtype=bool)
        # by which the last step shrank the gradient
        self.rate: Array = np.zeros(0)

    @classmethod
    def over(cls, design: Rows) -> NewtonSystem:
        """Return that of problems over some rows, renewed more often where that is cheap."""
        cheap = design.n * design.d**2 <= CHEAP_UP_TO
        return cls(CHEAP_CONTRACTION if cheap else CONTRACTION)

    def retried(self) -> NewtonSystem:
        """Try the matrix, if there is one, on the next problem: its first step is the test."""
        self.residual = np.full_like(self.residual, np.inf)
        return self

    def discard(self, some: Array) -> None:
        """Have the matrices of some problems renewed at the next update."""
        self.residual = np.where(some, -1.0, self.residual)

    def keep(self, index: Array) -> None:
        """Forget the problems outside ``index``."""
        self.residual = self.residual[index]
        if self.H.shape[1]:
            self.H, self.h, self.mass = pick(self.H, index), self.h[:, index], self.mass[index]

    def update(self, batch: Batch, p: Points) -> None:
        """Take the gradient at p, and the matrix too unless the old one did well enough."""
        self.s = batch.mean(p.slope)
        if batch.design.d > DENSE_UP_TO:
            self.H = np.empty((len(self.s), 0, 0))
            self.residual, self.rate = 0.0 * self.s, 0.0 * self.s
            self.fresh = np.ones(len(self.s), dtype=bool)
            return
        self.g = batch.design.adjoint(batch.weights * p.slope)
        residual = norms(self.g + batch.rho * (p.theta / p.w))
        # the same matrix contracts the gradient about as much again
        known = len(self.residual) > 0
        self.fresh = residual > self.contraction * self.residual if known else residual >= 0
        if self.shared and not known:
            one = np.zeros(1, dtype=int)
            H, h, mass = _matrices(batch.columns(one), p.columns(one))
            self.H, self.h = batch.design.lent(numpy(H[0]), h[:, 0], len(residual))
            self.H, self.mass = beside(self.H, H), np.repeat(mass, len(residual))
        elif self.fresh.all():
            self.H, self.h, self.mass = _matrices(batch, p)
        elif self.fresh.any():
            new = self.fresh
            H, self.h[:, new], self.mass[new] = _matrices(batch.columns(new), p.columns(new))
            self.H[beside(new, self.H)] = beside(numpy(H), self.H)
        self.rate = np.full(len(residual), self.contraction)
        if known:
            measured = residual / np.maximum(self.residual, TINY)
            self.rate = np.where(self.residual < np.inf, np.minimum(measured, 1.0), self.rate)
        self.residual = residual

    def expected_gap(self, rho: Array, w: Array) -> Array:
        """Return the gap of a gradient e that is as much shorter as the last step made it.

        It is |e|^2 w/(2 rho), and |e| w without a penalty.
        """
        size = self.rate * self.residual
        return np.where(rho > 0, size**2 * w / (2 * np.where(rho > 0, rho, 1.0)), size * w)

    def step(self, batch: Batch, p: Points) -> tuple[Array, Array, Array]:
        """Return the step in theta (d, B), that of the intercept, and what it adds to scores."""
        s = self.s * batch.fit_intercept
        if batch.design.d > DENSE_UP_TO:
            return _by_products(batch, p, s)
        u, H = p.theta / p.w, self.H
        rhs = self.h * (s / self.mass) - self.g - batch.rho * u
        step = numpy(solve_stiffened(H, *(beside(part, H) for part in (batch.rho / p.w, u, rhs))))
        db = -(s + dots(self.h, step)) / self.mass * batch.fit_intercept
        return step, db, batch.design.scores(step) + factor_of(db, batch.y)

    def slope_along(self, batch: Batch, p: Points, step: Array, db: Array, dz: Array) -> Array:
        """Return the derivative of F along a step."""
        penalty = batch.rho * dots(p.theta / p.w, step)
        if batch.design.d > DENSE_UP_TO:
            return batch.mean(p.slope * dz) + penalty
        return dots(self.g, step) + self.s * db + penalty


def _matrices(batch: Batch, p: Points) -> tuple[Array, Array, Array]:
    """Return H - hh'/m, h and m at the curvatures of p; H, where it is large, beside the rows."""
    D = batch.weights * p.curvature
    m = np.maximum(numpy(D.sum(axis=0)), TINY)
    H, h = batch.design.moments(D)
    if batch.fit_intercept:
        H = _eliminated(H, h, m, batch, batch.rho / p.w)
    B, d = H.shape[:2]
    return H if B * d**3 <= ON_HOST_UP_TO else beside(H, D), h * batch.fit_intercept, m


def _eliminated(H: Array, h: Array, m: Array, batch: Batch, stiffness: Array) -> Array:
    """Return H - hh'/m; columns that are constant, so intercepts themselves, are kept apart.

    Of such a column only rounding is left. Where the stiffness is more than that, it alone draws
    the coefficient to 0; else the inverse would be anything, and the column's own square, before
    the centre was subtracted, leaves the coefficient where it is.
    """
    design = batch.design
    left = H - np.einsum("ib,jb->bij", h / m, h)
    centred = np.einsum("bii->bi", H)
    rounding = m[:, None] * design.rounding + design.n * np.finfo(float).eps * centred
    constant = np.einsum("bii->bi", left) <= rounding
    if not constant.any():
        return left
    apart = constant[:, :, None] | constant[:, None, :]
    square = np.abs(centred) + m[:, None] * design.offset**2
    loose = constant & (stiffness[:, None] <= rounding)
    alone = np.where(loose, square, 0.0)[:, :, None] * np.eye(H.shape[1])
    return np.where(apart, alone, left)


def solve_stiffened(H: Array, stiffness: Array, u: Array, rhs: Array) -> Array:
    """Solve (H + stiffness (I - uu')) x = rhs for every column."""
    xp, stiff, d = namespace(H), stiffness[:, None], H.shape[1]
    q = xp.sqrt(stiff) * u.T
    A = H - q[:, :, None] * q[:, None, :]
    i = numbers(d, A)
    diagonal = A[:, i, i] + stiff
    A[:, i, i] = diagonal + RIDGE * xp.where(diagonal > 0, diagonal, 1.0)
    return positive_solved(A, rhs.T[:, :, None])[:, :, 0].T


def _by_products(batch: Batch, p: Points, s: Array) -> tuple[Array, Array, Array]:
    """Return what ``NewtonSystem.step`` does, from products with Z only.

    With an intercept sparse rows X need no centre c: Z'p = X'p - c 1'p = X'p for p with sum zero,
    as (D - DD'/m)q has.
    """
    centreless = batch.fit_intercept and batch.design.sparse
    rows = batch.design.uncentred if centreless else batch.design
    D = _by_columns(batch.weights * p.curvature)
    mass = np.maximum(numpy(D.sum(axis=0)), TINY)
    inverse_mass = batch.fit_intercept / mass
    u = _by_columns(p.theta / p.w)
    along = _by_columns((p.z - factor_of(p.b, p.z)) / factor_of(p.w, p.z))
    # g - h s/m = Z'(pi a - D s/m)
    balanced = batch.weights * p.slope - factor_of(s / mass, D) * D
    system = RowSystem(rows, D, inverse_mass, batch.rho / p.w, along)
    x = system.solve(-balanced, -batch.rho, batch.rho)
    step = rows.adjoint(x.p)
    # slopes sum to zero after the step: s + D'(Z step) + m db = 0, whatever is the centre
    db = -(s + dots(D, x.z)) * inverse_mass
    dz = x.z + factor_of(db, x.z)
    if centreless:
        # the move along u was scored with the centre
        db = db + batch.design.shift(step)
    return step + x.c * u, db, dz


def _by_columns(v: Array) -> Array:
    """Return an array whose columns are contiguous; one on a device has one column only."""
    return np.asfortranarray(v) if isinstance(v, np.ndarray) else v


@dataclass(eq=False)
class Vector:
    """v = Z'p + cu of every problem, p (n, B), c (B,), with its scores ``z`` = Zv and u'v."""

    p: Array
    c: Array
    z: Array
    along: Array

    def plus(self, length: Array, other: Vector) -> None:
        """Add a multiple of another vector."""
        there = factor_of(length, other.p)
        self.p += there * other.p
        self.c += length * other.c
        self.z += there * other.z
        self.along += length * other.along

    def inner(self, p: Array, c: Array) -> Array:
        """Return (Z'p + cu)'v."""
        return dots(p, self.z) + c * self.along


@dataclass(eq=False)
class RowSystem:
    """A = Z'(D - DD'/m)Z + s(I - uu'), one for every problem of a batch.

    ``along`` is Zu. A maps vectors Z'p + cu to such vectors, so that none with an entry per column
    is needed but on the way from p to ZZ'p. With an intercept all p have sum zero, and so has what
    A makes of them: rows may then be taken without their centre. Without one 1/m is 0.
    """

    rows: Rows
    D: Array
    inverse_mass: Array
    stiffness: Array
    along: Array

    def vector(self, p: Array, c: Array) -> Vector:
        """Return Z'p + cu with its scores."""
        z = self.rows.scores(self.rows.adjoint(p))
        z += factor_of(c, z) * self.along
        return Vector(p, c, z, dots(self.along, p) + c)

    def apply(self, v: Vector) -> tuple[Array, Array]:
        """Return A v as p and c."""
        stiff = self.stiffness + SOFT_RIDGE
        p = self.D * (v.z - factor_of(dots(self.D, v.z) * self.inverse_mass, v.z))
        p += factor_of(stiff, v.p) * v.p
        return p, stiff * v.c - self.stiffness * v.along

    def solve(self, p: Array, c: Array, rho: Array) -> Vector:
        """Return x with |A x - r| small beside r = Z'p + cu, or where the steps end.

        A gradient ends at rho u: rho is its unit, if there is one. A problem that has ended stays
        as it is.
        """
        r = self.vector(p, c)
        square = r.inner(r.p, r.c)
        rtol = CG_RTOL * np.minimum(1.0, np.sqrt(np.sqrt(square) / np.where(rho > 0, rho, 1.0)))
        goal = rtol**2 * square
        x = Vector(0.0 * r.p, 0.0 * r.c, 0.0 * r.z, 0.0 * r.along)
        direction = Vector(*(copied(part) for part in (r.p, r.c, r.z, r.along)))
        for _ in range(CG_STEPS):
            going = square > goal
            if not going.any():
                break
            image = self.apply(direction)
            length = square / np.where(going, direction.inner(*image), np.inf)
            x.plus(length, direction)
            r = self.vector(r.p - factor_of(length, r.p) * image[0], r.c - length * image[1])
            before, square = square, r.inner(r.p, r.c)
            share, old = square / np.where(going, before, np.inf), direction
            direction = Vector(*(copied(part) for part in (r.p, r.c, r.z, r.along)))
            direction.plus(share, old)
        return x
