r"""Smooth Lipschitz losses at order 2: Newton in (theta, b, lam) together, many problems at a time.

.. math:: \min_{\theta, b, \lambda > 0}\ F = \lambda\delta + \sum_i \pi_i \max_k \psi_{ik},\qquad
          \psi = \ell(z_i + s, y_i) - \lambda s^2/w_i^2,\quad w_i = \|\theta\|_{*, i} .

A row has one stationary s while 2 lam/w^2 is at least the smoothness of the loss, and may have two
(k = 1, 2) below, where F has a kink: the model of a step keeps both branches of such a row linear
and shares its mass between them (``duality.ties``). The gap comes from the slopes of the moved
rows (``duality.bound``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import (
    as_float,
    beside,
    column_sums,
    copied,
    entries,
    namespace,
    numpy,
    pick_columns,
    set_columns,
)
from ...duality import (
    Atoms,
    DualRows,
    RowDerivatives,
    best_multipliers,
    first_multipliers,
    lower_bound,
    move_derivatives,
)
from ...duality.chain import TINY
from ...duality.ties import Padded
from ...losses import Loss
from ...losses.inner import Inner

Array = NDArray[Any]

#: The precision to which a search minimises lam alone at the end.
FINE = 1e-13
#: Newton's steps in lam alone before that search, the step, relative to lam, after which the next
#: would be lost in rounding, as convergence is quadratic, and the least bend.
LAM_STEPS, LAST, FLAT = 3, 1e-6, 1e-13
#: The share of the budget that a first guess of lam is taken to spend at least.
LEAST_SPENT = 1e-6


@dataclass(frozen=True, eq=False)
class JointPoint:
    """Triples (theta, b, lam), one column per problem, the scores z and the branches of each row.

    ``value`` and ``shift`` of the branches have shape (k, n, B), as have ``slope`` and
    ``curvature`` of the loss at the moved scores; ``w`` (1, B) or (n, B). ``two`` (n, B) says
    which rows with a weight have two branches.
    """

    theta: Array
    b: Array
    lam: Array
    z: Array
    w: Array
    value: Array
    shift: Array
    slope: Array
    curvature: Array
    two: Array
    objective: Array

    def on_higher(self, part: Array) -> Array:
        """Return the entries (n, B) of an array of branches where the value is higher."""
        if len(part) == 1:
            only: Array = part[0]
            return only
        return namespace(part).where(self.value[0] >= self.value[1], part[0], part[1])

    def columns(self, index: Array) -> JointPoint:
        """Return some of the problems, ``index`` in their order or with repetitions."""
        if _every(index, len(self.b)):
            return self
        return JointPoint(*(pick_columns(part, index) for part in vars(self).values()))

    def replaced(self, index: Array, other: JointPoint) -> JointPoint:
        """Return the points with those of some problems, in their order, replaced."""
        if not len(other.b):
            return self
        if _every(index, len(self.b)):
            return other
        k = max(len(self.value), len(other.value))
        parts = {}
        for (name, mine), theirs in zip(vars(self).items(), vars(other).values(), strict=True):
            missing = -np.inf if name == "value" else None
            part = copied(_branches(mine, k, missing))
            set_columns(part, index, _branches(theirs, k, missing))
            parts[name] = part
        return JointPoint(**parts)


def _branches(part: Array, k: int, missing: float | None) -> Array:
    """Return an array of branches (., n, B) with k of them, a copy or ``missing`` for a new one."""
    if part.ndim < 3 or len(part) == k:
        return part
    xp = namespace(part)
    new = part[:1] if missing is None else xp.full_like(part[:1], missing)
    found: Array = xp.concat([part, new])
    return found


@dataclass(frozen=True, eq=False)
class JointObjective:
    """The objective of some problems over the same rows: evaluation, model of a step, bound."""

    rows: DualRows
    loss: Loss

    def columns(self, index: Array) -> JointObjective:
        """Return some of the problems, ``index`` in their order or with repetitions."""
        if _every(index, len(self.rows.delta)):
            return self
        return replace(self, rows=self.rows.columns(index))

    @cached_property
    def _targets(self) -> Array:
        """The targets, one column per problem, (n, B)."""
        y = self.rows.y
        return namespace(y).broadcast_to(y[:, None], self.rows.weights.shape)

    def at(
        self, theta: Array, b: Array, lam: Array, z: Array, guess: Array | None = None
    ) -> JointPoint:
        """Evaluate the objective; ``guess`` (k, n, B) are shifts nearby."""
        rows, w, xp = self.rows, self.rows.dual_norm.norms(theta), namespace(z)
        inner = self._inner(z, w, lam, guess)
        value, shift = (part.reshape(-1, *z.shape) for part in inner)
        best, two = value[0], xp.zeros_like(z, dtype=bool if xp is np else xp.bool)
        if len(value) > 1:
            best = xp.max(value, axis=0)
            two = xp.all(xp.isfinite(value), axis=0) & (rows.weights > 0)
        F = lam * rows.delta + column_sums(rows.weights, best)
        moved = z + shift
        _, slope, bend = self.loss.evaluate(moved, self._targets)
        return JointPoint(theta, b, lam, z, w, value, shift, slope, bend, two, F)

    def _inner(self, z: Array, w: Array, lam: Array, guess: Array | None = None) -> Inner:
        """Return the inner maxima, branches of all rows of all problems (k, nB)."""
        # where one number serves all rows of the only problem, the loss need not be told n times
        scale = float(w[0, 0]) if w.shape == (1, 1) else _each_row(w, z)
        price = float(lam[0]) if z.shape[1] == 1 else _each_row(lam, z)
        near = None if guess is None else abs(guess).reshape(len(guess), -1)
        return self.loss.inner(z.ravel(), self._targets.ravel(), scale, price, near)

    def start(self, theta: Array, b: Array, lam: Array | None = None) -> JointPoint:
        """Return the points at (theta, b), with lam near its best where none > 0 is given."""
        z = self.rows.design.scores(theta) + beside(b, self.rows.y)
        lam = np.zeros(len(b)) if lam is None else lam.copy()
        new = np.flatnonzero(~((lam > 0) & np.isfinite(lam)))
        if len(new):
            lam[new] = self.columns(new)._near_best(theta[:, new], pick_columns(z, new))
        return self.at(theta, b, lam, z)

    def _near_best(self, theta: Array, z: Array) -> Array:
        """Return lam near its best: what is spent, E t^2, falls about as its inverse square."""
        rows, w = self.rows, self.rows.dual_norm.norms(theta)
        lam = first_multipliers(z, rows.y, rows.weights, self.loss, w, rows.delta)
        shift = self._inner(z, w, lam).best.shift.reshape(z.shape)
        spent = column_sums(rows.weights, (shift / beside(w, z)) ** 2)
        return np.asarray(lam * np.sqrt(np.maximum(spent / rows.delta, LEAST_SPENT)))

    def settled(self, x: JointPoint) -> JointPoint:
        """Return the points with lam alone minimised to rounding, where that is lower.

        A few steps of Newton's method that knows the kinks do that, else a search.
        """
        new = x
        for _ in range(LAM_STEPS):
            step = self._multiplier_step(new)
            far = ~(np.abs(step) <= LAST * new.lam)
            new = self.at(x.theta, x.b, new.lam + step, x.z, new.shift)
            if not far.any():
                break
        rest = np.flatnonzero(far)
        if len(rest):
            new = new.replaced(rest, self.columns(rest)._by_search(x.columns(rest)))
        lower = new.objective <= x.objective
        return x.replaced(lower, new.columns(lower))

    def _multiplier_step(self, x: JointPoint) -> Array:
        """Return the steps in lam alone to where the slope of F, at a kink its jump, meets zero.

        The slope starts from g with all rows on the branch of the larger move, rises at the rate
        H, and jumps by pi (t_1^2 - t_2^2) at the kinks h_1 <= h_2 <= ... of tied rows: after j of
        them its root is r_j = -(g + jumps)/H, and the one of all is min_j max(r_j, h_j).
        """
        w, lam = beside(x.w, x.z), beside(x.lam, x.z)
        square = (x.shift / w) ** 2
        spent = self.rows.weights * x.on_higher(square)
        # t = s/w moves by -2t/bend, bend = 2 lam - w^2 l''
        bend = 2 * lam - w**2 * x.on_higher(x.curvature)
        H = numpy((4 * spent / namespace(bend).maximum(bend, FLAT * lam)).sum(axis=0))
        slope = self.rows.delta - numpy(spent.sum(axis=0))
        root = -slope / H
        if x.two.any():
            kink, jump = self._kinks(x, square)
            slope = slope - (jump * (kink < 0)).sum(axis=0)
            roots = -(slope + np.cumsum(jump, axis=0)) / H
            first = -(slope / H)
            root = np.minimum(first, np.maximum(roots, kink).min(axis=0))
        return np.clip(root, -x.lam / 2, x.lam)

    def _kinks(self, x: JointPoint, square: Array) -> tuple[Array, Array]:
        """Return the changes (R, B) of lam at which rows change branch, in order, and the jumps."""
        places = Padded.of(numpy(x.two).T)
        at = (places.index, np.arange(len(x.b))[:, None])
        value, t2 = entries(x.value, *at), entries(square, *at)
        apart = np.maximum(t2[0] - t2[1], TINY)
        kink = np.where(places.held, (value[0] - value[1]) / apart, np.inf)
        jump = np.where(places.held, entries(self.rows.weights, *at) * apart, 0.0)
        order = np.argsort(kink, axis=1)
        return np.take_along_axis(kink, order, 1).T, np.take_along_axis(jump, order, 1).T

    def _by_search(self, x: JointPoint) -> JointPoint:
        """Return the points at the best lam, which may be at a kink."""
        rows = self.rows
        sample = (x.z, rows.y, rows.weights, self.loss, x.w, rows.delta)
        lam = np.asarray(best_multipliers(*sample, x.lam, FINE).lam)
        return self.at(x.theta, x.b, lam, x.z)

    def shares(self, x: JointPoint, p: Array) -> Array:
        """Return the masses (k, n, B), summing to 1 per row, p that of a first branch of two."""
        xp = namespace(x.value)
        if len(x.value) == 1:
            return xp.ones_like(x.value)
        # without a weight any share will do
        first = xp.where(x.two, p, as_float(xp.isfinite(x.value[0])))
        return xp.stack([first, 1 - first])

    def derivatives(self, x: JointPoint, p: Array, floor: Array) -> tuple[Array, Array]:
        """Return gradient and Hessian of F with the masses of the branches fixed."""
        # the bend > 0 vanishes where two branches part: there its floor counts
        lam, w = beside(x.lam, x.z), beside(x.w, x.z)
        least = beside(floor * x.lam, x.z)
        bend = namespace(x.z).maximum(2 * lam - w**2 * x.curvature, least)
        each = move_derivatives(x.slope, x.curvature, x.shift / w, w, bend)
        mass = self.rows.weights * self.shares(x, p)
        parts = (mass * namespace(mass).stack(each)).sum(axis=1)
        return self.rows.derivatives(x.theta, x.w, RowDerivatives(*parts))

    def lower_bound(self, x: JointPoint, p: Array) -> Array:
        """Return a bound below the risk of every model, from the slopes at x."""
        atoms = Atoms(self.rows.weights * self.shares(x, p), x.slope, x.curvature)
        return lower_bound(self.rows, self.loss, atoms, x.z - beside(x.b, x.z) + x.shift)

    def dual(self, x: JointPoint, p: Array) -> Array:
        """Return the mean slope of each row over its branches, shape (n, B)."""
        mean: Array = (self.shares(x, p) * x.slope).sum(axis=0)
        return mean

    def branch_differences(self, x: JointPoint, tied: Padded) -> tuple[Array, Array]:
        """Return pi (psi_1 - psi_2) of the ``tied`` rows of every problem, and its gradients.

        Shapes (B, R) and (B, R, d + 2).
        """
        rows, index, d = self.rows, tied.index, len(x.theta)
        B, R = index.shape
        at = (index, np.arange(B)[:, None])
        w = np.broadcast_to(x.w, x.z.shape)[at]
        slope = entries(x.slope, *at)
        t = entries(x.shift, *at) / w
        by_z = slope[0] - slope[1]
        by_w = slope[0] * t[0] - slope[1] * t[1]
        apart = np.empty((B, R, d + 2))
        Z = numpy(rows.design.rows(index.ravel()).dense()).reshape(B, R, d)
        apart[..., :d] = by_z[..., None] * Z
        apart[..., :d] += by_w[..., None] * rows.dual_norm.directions(x.theta, x.w, index)
        apart[..., d] = by_z * rows.fit_intercept
        apart[..., -1] = t[1] ** 2 - t[0] ** 2
        weights, value = entries(rows.weights, *at), entries(x.value, *at)
        difference = weights * (value[0] - value[1])
        mass = weights * tied.held
        return np.where(tied.held, difference, -1.0), mass[..., None] * apart


def _every(index: Array, B: int) -> bool:
    """Whether numbers in increasing order, or a mask, stand for all of B problems."""
    if index.dtype == bool:
        return bool(index.all())
    return len(index) == B and bool((index == np.arange(B)).all())


def _each_row(v: Array, z: Array) -> Array:
    """Return one number per problem, or per row and problem, as the rows of z raveled have them."""
    found: Array = namespace(z).broadcast_to(beside(v, z), z.shape).ravel()
    return found
