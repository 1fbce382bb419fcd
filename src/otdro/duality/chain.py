r"""Derivatives of the dual objective in (theta, b, lam), for many problems over the same rows.

.. math:: F = \lambda\delta + \sum_i \pi_i\,\psi(z_i, w_i, \lambda),\qquad
          z_i = Z_i'\theta + b,\quad w_i = \|\theta\|_{*, i},

by the chain rule from the derivatives of psi in (z, w, lam). The dual norm is that of all rows
(``Round``, in coordinates where it is Euclidean) or one per row (``Local``). Arrays have one
column per problem; w has shape (1, B) or (n, B).

A lower bound on every model's worst-case risk at order 2 comes from slopes of moved rows. Atoms of
mass m (those of a row sum to its weight) and slope a = dl/dz give

.. math:: F^* \ge -\sum m\,\ell^*(a, y)\quad\text{if}\quad g'C^{-1}g \le \delta,\
          \sum m a = 0,\qquad g = \sum m a z,\ C = \sum m a^2 B_i,

B_i the matrix of the row's dual norm (the identity in round coordinates, where the condition is
:math:`\|g\|^2 \le \delta \sum m a^2`): the adversary moves each atom by :math:`-a B_i C^{-1} g`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside, branch_sums, namespace, numpy, pick_columns
from ..design import Design
from ..losses import Loss

Array = NDArray[Any]

#: The least dual norm, so that it can be divided by.
TINY = 1e-300


class RowDerivatives(NamedTuple):
    """First and second derivatives of psi in (z, w, lam) times the mass, each of shape (n, B)."""

    z: Array
    w: Array
    lam: Array
    zz: Array
    zw: Array
    zl: Array
    ww: Array
    wl: Array
    ll: Array


def move_derivatives(
    slope: Array, curvature: Array, t: Array, w: Array, bend: Array
) -> RowDerivatives:
    """Return those of psi = max_t l(z + w t) - lam t^2 at a maximum t, without the mass.

    ``slope`` and ``curvature`` are l' and l'' there, ``bend`` > 0 is -d2/dt2 = 2 lam - w^2 l''.
    """
    # dt is h/bend for the derivatives h of the slope in t, l' w - 2 lam t, in (z, w, lam)
    h_z = w * curvature
    h_w = slope + w * t * curvature
    h_l = -2 * t
    return RowDerivatives(
        z=slope,
        w=slope * t,
        lam=-(t**2),
        zz=curvature + h_z**2 / bend,
        zw=curvature * t + h_z * h_w / bend,
        zl=h_z * h_l / bend,
        ww=curvature * t**2 + h_w**2 / bend,
        wl=h_w * h_l / bend,
        ll=h_l**2 / bend,
    )


class DualNorm(Protocol):
    """The dual norms of theta (d, B) and sums over rows of their derivatives."""

    def norms(self, theta: Array) -> Array:
        """Return w, of shape (1, B) or (n, B)."""

    def sums(self, theta: Array, w: Array, r: Array) -> Array:
        """Return sum_i r_i u_i, u the gradient of w, shape (d, B) for r (n, B)."""

    def bends(
        self, design: Design, theta: Array, w: Array, pull: Array, rates: RowDerivatives
    ) -> Array:
        """Return the part of the Hessian in theta that w has, shape (B, d, d), for pull = Z'psi_zw.

        It is sum_i psi_zw (z_i u_i' + u_i z_i') + psi_ww u_i u_i' + psi_w times the Hessian of w_i.
        """

    def directions(self, theta: Array, w: Array, rows: Array) -> Array:
        """Return u_i of some rows (B, R) of each problem, shape (B, 1, d) or (B, R, d)."""

    def product(self, theta: Array, other: Array) -> Array:
        """Return the inner product whose square root is the dual norm, averaged over rows, (B,)."""

    def first_feasible(
        self, g: Array, dg: Array, mass: Array, a: Array, h: Array, delta: Array
    ) -> Array:
        """Return the least eta >= 0, (B,), with (g + eta dg)'C^-1(g + eta dg) <= delta, or inf.

        C = sum mass (a + eta h)^2 B_i over atoms (k, n, B): the budget of moves in proportion to
        the slopes.
        """

    def needed(self, g: Array, mass: Array, a: Array) -> Array:
        """Return g'C^-1 g, (B,), the budget that slopes a with the pull g need."""


class Round:
    """The dual norm ||theta||_2 of all rows."""

    def norms(self, theta: Array) -> Array:
        """Return ||theta||_2."""
        return np.maximum(np.linalg.norm(theta, axis=0), TINY)[None]

    def sums(self, theta: Array, w: Array, r: Array) -> Array:
        """Return (sum r) u."""
        return numpy(r.sum(axis=0)) * theta / w

    def bends(
        self, design: Design, theta: Array, w: Array, pull: Array, rates: RowDerivatives
    ) -> Array:
        """Return pull u' + u pull' + (sum psi_ww) uu' + s (I - uu'), s = (sum psi_w)/w."""
        u, d = theta / w, len(theta)
        scale = numpy(rates.w.sum(axis=0)) / w[0]
        # vu' + uv' + s I with all that multiplies uu' in v
        v = pull + (numpy(rates.ww.sum(axis=0)) - scale) / 2 * u
        half = _outer(v, u)
        found = half + np.swapaxes(half, 1, 2)
        found.reshape(-1, d * d)[:, :: d + 1] += scale[:, None]
        return found

    def directions(self, theta: Array, w: Array, rows: Array) -> Array:
        """Return u, the same for all rows."""
        return np.asarray((theta / w).T[:, None])

    def product(self, theta: Array, other: Array) -> Array:
        """Return theta'other."""
        return np.vecdot(theta.T, other.T)

    def first_feasible(
        self, g: Array, dg: Array, mass: Array, a: Array, h: Array, delta: Array
    ) -> Array:
        """Return it from the excess of the squared pull over the budget, quadratic in eta."""
        C = self.product(g, g) - delta * branch_sums(mass, a * a)
        B = self.product(g, dg) - delta * branch_sums(mass, a * h)
        A = self.product(dg, dg) - delta * branch_sums(mass, h * h)
        return feasible_growth(C, B, A)

    def needed(self, g: Array, mass: Array, a: Array) -> Array:
        """Return ||g||^2 / sum mass a^2."""
        square = branch_sums(mass, a * a)
        return self.product(g, g) / np.where(square > 0, square, 1.0)


def feasible_growth(C: Any, B: Any, A: Any, outward: bool = False) -> Array:
    """Return the least eta >= 0 with C + 2 B eta + A eta^2 <= 0, slightly beyond it, or inf.

    ``outward``: from a feasible point go on to the boundary, by the nearest eta < 0.
    """
    discriminant = B**2 - A * C
    lost = (B >= 0) | (discriminant < 0)
    # the form without cancellation
    root = C / np.where(lost, 1.0, -B + np.sqrt(np.where(lost, 0.0, discriminant)))
    inside = np.where(lost, 0.0, root * (1 - BEYOND)) if outward else 0.0
    return np.where(C <= 0, inside, np.where(lost, np.inf, root * (1 + BEYOND)))


#: How far beyond the boundary of the feasible slopes a dual point is put, against rounding, as a
#: share of the way there.
BEYOND = 1e-9
#: The same as a share of the budget.
WITHIN = 1e-12
#: A sum of slopes below this, relative to their sizes, is rounding.
BALANCED = 1e-11
#: Newton steps to the boundary; more would not be near it.
TRIES = 6


class Local:
    """The dual norms w_i^2 = theta'B_i theta of matrices B of shape (n, d, d)."""

    def __init__(self, B: Array, weights: Array) -> None:
        self.B = B
        self.flat = B.reshape(len(B), -1)
        self.mean = self._blend(weights[:, None])[0]

    def _blend(self, r: Array) -> Array:
        """Return sum_i r_i B_i, shape (B, d, d)."""
        d = self.B.shape[1]
        return np.asarray((r.T @ self.flat).reshape(-1, d, d))

    def _pushes(self, theta: Array) -> Array:
        """Return B_i theta, shape (n, d, B)."""
        return np.asarray(self.B @ theta)

    def norms(self, theta: Array) -> Array:
        """Return w_i."""
        square = np.einsum("ndb,db->nb", self._pushes(theta), theta)
        return np.sqrt(np.maximum(square, TINY))

    def sums(self, theta: Array, w: Array, r: Array) -> Array:
        """Return sum r_i B_i theta/w_i."""
        return np.einsum("nb,ndb->db", r / w, self._pushes(theta))

    def bends(
        self, design: Design, theta: Array, w: Array, pull: Array, rates: RowDerivatives
    ) -> Array:
        """Return Z' diag(psi_zw) U and its transpose, U' diag(psi_ww) U, psi_w (B_i - uu')/w_i."""
        Z, push = design.dense(), self._pushes(theta)
        cross = np.einsum("ni,nb,njb->bij", Z, rates.zw / w, push, optimize=True)
        square = (rates.ww - rates.w / w) / w**2
        found = cross + np.swapaxes(cross, 1, 2) + self._blend(rates.w / w)
        return found + np.einsum("nib,nb,njb->bij", push, square, push, optimize=True)

    def directions(self, theta: Array, w: Array, rows: Array) -> Array:
        """Return u_i = B_i theta/w_i."""
        problem = np.arange(len(rows))[:, None]
        return np.einsum("brij,jb->bri", self.B[rows], theta) / w[rows, problem, None]

    def product(self, theta: Array, other: Array) -> Array:
        """Return the mean of theta'B_i other."""
        return np.einsum("db,de,eb->b", theta, self.mean, other)

    def first_feasible(
        self, g: Array, dg: Array, mass: Array, a: Array, h: Array, delta: Array
    ) -> Array:
        """Return it for each problem by Newton steps on the budget, inf where that fails."""
        parts = [(mass * square).sum(axis=0) for square in (a * a, 2 * a * h, h * h)]
        C = [self._blend(part) for part in parts]
        return np.array(
            [
                _budget_root(g[:, j], dg[:, j], [c[j] for c in C], float(delta[j]))
                for j in range(len(delta))
            ]
        )

    def needed(self, g: Array, mass: Array, a: Array) -> Array:
        """Return g'C^-1 g."""
        C = self._blend((mass * a * a).sum(axis=0))
        return np.array([_quadratic(c, pull) for c, pull in zip(C, g.T, strict=True)])


def _quadratic(C: Array, g: Array) -> float:
    """Return g'C^-1 g, inf where C is singular."""
    try:
        return float(g @ np.linalg.solve(C, g))
    except np.linalg.LinAlgError:
        return np.inf if g.any() else 0.0


def _budget_root(g: Array, dg: Array, C: list[Array], delta: float) -> float:
    """Return an eta near the least with g(eta)'C(eta)^-1 g(eta) <= delta, C quadratic in eta."""

    def budget(eta: float) -> tuple[float, float]:
        now = g + eta * dg
        try:
            q = np.linalg.solve(C[0] + eta * C[1] + eta**2 * C[2], now)
        except np.linalg.LinAlgError:
            return np.inf, 0.0
        fall = -2 * float(dg @ q) + float(q @ (C[1] + 2 * eta * C[2]) @ q)
        return float(now @ q), fall

    return first_within(budget, delta)


def first_within(budget: Callable[[float], tuple[float, float]], delta: float) -> float:
    """Return an eta >= 0 near the least with a budget of at most delta, by Newton steps, or inf.

    ``budget`` returns the value at an eta, and how fast it falls there.
    """
    eta = 0.0
    for _ in range(TRIES + 1):
        value, fall = budget(eta)
        if value <= delta:
            return eta
        if not (fall > 0 and np.isfinite(value)):
            return np.inf
        # slightly beyond: where the budget is met to rounding the next step would be zero
        eta += (value - delta) / fall * (1 + BEYOND) + WITHIN * delta / fall
    return np.inf


def _outer(a: Array, b: Array) -> Array:
    """Return a_j b_j' for the columns j."""
    return np.einsum("ib,jb->bij", a, b)


@dataclass(frozen=True, eq=False)
class DualRows:
    """What does not change: rows, targets, weights (n, B), radii (B,), dual norm."""

    design: Design
    y: Array
    weights: Array
    delta: Array
    fit_intercept: bool
    dual_norm: DualNorm

    @cached_property
    def scatter(self) -> Array:
        """Z' diag(pi) Z, shape (B, d, d)."""
        return self.design.gram(self.weights)

    def gram(self, zz: Array) -> Array:
        """Return Z' diag(zz) Z; where zz is a multiple of the weights, from one pass for all."""
        on = self.weights > 0
        ratio = zz / namespace(zz).where(on, self.weights, 1.0)
        if ratio.shape[1] == 1 and (least := float(ratio[on].min())) == float(ratio[on].max()):
            scaled: Array = least * self.scatter
            return scaled
        return self.design.gram(zz)

    def derivatives(self, theta: Array, w: Array, rates: RowDerivatives) -> tuple[Array, Array]:
        """Return gradient (B, d + 2) and Hessian (B, d + 2, d + 2) in (theta, b, lam)."""
        (d, B), norm = theta.shape, self.dual_norm
        # one pass over the rows for all first moments
        moments = namespace(rates.z).concat([rates.z, rates.zz, rates.zw, rates.zl], axis=1)
        by_z, by_zz, by_zw, by_zl = self.design.adjoint(moments).T.reshape(4, B, d).swapaxes(1, 2)
        grad, H = np.zeros((B, d + 2)), np.zeros((B, d + 2, d + 2))
        grad[:, :d] = (by_z + norm.sums(theta, w, rates.w)).T
        grad[:, -1] = self.delta + numpy(rates.lam.sum(axis=0))
        H[:, :d, :d] = self.gram(rates.zz) + norm.bends(self.design, theta, w, by_zw, rates)
        H[:, :d, -1] = H[:, -1, :d] = (by_zl + norm.sums(theta, w, rates.wl)).T
        H[:, -1, -1] = numpy(rates.ll.sum(axis=0))
        H[:, d, d] = 1.0
        if self.fit_intercept:
            grad[:, d] = numpy(rates.z.sum(axis=0))
            H[:, :d, d] = H[:, d, :d] = (by_zz + norm.sums(theta, w, rates.zw)).T
            H[:, d, -1] = H[:, -1, d] = numpy(rates.zl.sum(axis=0))
            H[:, d, d] = numpy(rates.zz.sum(axis=0))
        return grad, H

    def columns(self, index: Array) -> DualRows:
        """Return some of the problems."""
        return replace(self, weights=pick_columns(self.weights, index), delta=self.delta[index])


@dataclass(frozen=True, eq=False)
class Atoms:
    """Branches of rows, arrays of shape (k, n, B): mass, slope, and the ``room`` it has to move."""

    mass: Array
    slope: Array
    room: Array


def lower_bound(rows: DualRows, loss: Loss, atoms: Atoms, reached: Array) -> Array:
    """Return the bound (B,) of slopes made feasible by a shift of b and a growth of theta.

    ``reached`` (k, n, B) is z - b + s, the part of the moved scores that grows with theta: a
    growth moves the slopes by room times it.
    """
    a = _balanced(rows, atoms, atoms.slope)
    h = _balanced(rows, atoms, atoms.room * reached)
    xp = namespace(a)
    pulls = rows.design.adjoint(xp.concat([(atoms.mass * v).sum(axis=0) for v in (a, h)], axis=1))
    g, dg = pulls[:, : len(rows.delta)], pulls[:, len(rows.delta) :]
    eta = rows.dual_norm.first_feasible(g, dg, atoms.mass, a, h, rows.delta)
    eta = np.where(np.isfinite(eta), eta, 0.0)
    a = a + beside(eta, a) * h
    # min F at delta (1 + e) is at most (1 + e) min F, since lam delta <= F
    beyond = rows.dual_norm.needed(g + eta * dg, atoms.mass, a) / rows.delta
    conjugate = loss.conjugate(a, xp.broadcast_to(rows.y[:, None], a.shape))
    # an atom without mass may have any slope
    value = -branch_sums(atoms.mass, xp.where(atoms.mass > 0, conjugate, 0.0))
    lost = ~np.isfinite(beyond)
    if rows.fit_intercept:
        # rows without curvature cannot be shifted to where the slopes sum to zero
        size = branch_sums(atoms.mass, abs(a))
        lost |= ~(np.abs(branch_sums(atoms.mass, a)) <= BALANCED * size)
    # losses are nonnegative, so 0 is a bound
    return np.where(lost, 0.0, np.maximum(value, 0.0) / np.maximum(beyond, 1.0))


def balance(u: Array, axis: tuple[int, ...] | None = None) -> Array:
    """Return factors in [0, 1], less than 1 for the heavier sign, with which the u sum to zero.

    ``axis``: they sum to zero over these axes, None for all.
    """
    up = np.maximum(u, 0.0).sum(axis=axis, keepdims=True)
    down = np.maximum(-u, 0.0).sum(axis=axis, keepdims=True)
    least, tiny = np.minimum(up, down), np.finfo(float).tiny
    lighter = np.where(u < 0, least / np.maximum(down, tiny), 1.0)
    return np.where(u > 0, least / np.maximum(up, tiny), lighter)


def _balanced(rows: DualRows, atoms: Atoms, a: Array) -> Array:
    """Return a moved, in proportion to the room, to where sum m a = 0."""
    if not rows.fit_intercept:
        return a
    total = branch_sums(atoms.mass, atoms.room)
    excess = branch_sums(atoms.mass, a)
    shift: Array = a - atoms.room * beside(excess / np.maximum(total, np.finfo(float).tiny), a)
    return shift
