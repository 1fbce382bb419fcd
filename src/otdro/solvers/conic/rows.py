r"""Rows of the saddle problem that the interior-point method solves.

Every convex problem of the library reads

.. math:: \min_x \max_{lo \le \alpha \le hi}\; c'\xi + \sum_i w_i\,[\alpha_i r_i(x)
          - \varphi_i(\alpha_i)], \qquad r = h - A\theta + R\xi,

with x = (theta, xi), xi a few scalars (intercept, epigraphs, nu), and a convex phi: mostly
:math:`k_i(x)\,\alpha_i^2/2` with :math:`k = k_0 + K\xi \ge 0`, else the conjugate of a smooth loss.
Sample rows have A = diag(o) Z; a norm of theta and the sign constraints on xi are rows as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from ...losses.base import Array

#: Below every multiplier that is not 0 at an infinite end of a box.
TINY = 1e-300
#: A pair whose product is below this share of the mean is off the central path.
STRAYED = 1e-6
#: Residuals below minus this of a sign constraint start it feasible.
FEASIBLE = 1e-2


class Map(Protocol):
    """The matrix A of a group of rows, by its products."""

    def scores(self, theta: Array) -> Array:
        """Return A theta."""

    def adjoint(self, u: Array) -> Array:
        """Return A'u for a vector or columns."""

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A."""

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""


class Bend(NamedTuple):
    """phi' and phi'' of every row."""

    first: Array
    second: Array


class Conjugate(Protocol):
    """A convex function phi of the multiplier of each row."""

    def bend(self, alpha: Array, slack: Array) -> Bend:
        """Return phi' and phi'' at alpha, whose distances to hi and lo are ``slack``."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a saddle problem, as they are before and after every step.

    ``share`` weighs the barrier of all rows, ``heavier`` that of each: p (hi - alpha) = s (alpha -
    lo) = share * heavier * mu on the path, p and s the prices of alpha <= hi and alpha >= lo.
    ``first`` is where alpha - lo starts if hi is infinite. ``outlying`` >= 1 is how many times
    larger than is usual a row is; its multiplier starts that much nearer to 0, as it must end.
    ``breathing`` marks rows whose box is [-g, g], g the last scalar of xi, maximised over as alpha
    is. ``conjugate`` is phi where that is not k alpha^2/2.
    """

    map: Map
    w: Array
    lo: Array
    hi: Array
    h: Array
    R: Array
    K: Array
    k0: Array | float = 0.0
    share: float = 1.0
    heavier: Array | float = 1.0
    first: Array | float = 1.0
    outlying: Array | float = 1.0
    breathing: Array | None = None
    conjugate: Conjugate | None = None

    @cached_property
    def ends(self) -> Array:
        """1 at the finite ends, hi then lo; at an infinite one the slack stays 1, its price 0."""
        return np.stack([np.isfinite(self.hi), np.isfinite(self.lo)]).astype(float)

    @cached_property
    def barrier(self) -> Array:
        """The products p E and s F at mu = 1."""
        return np.asarray(self.share * self.heavier * self.ends)

    @cached_property
    def scalars(self) -> Array:
        """The places of the scalars of xi that the rows depend on."""
        used = np.abs(self.R).sum(axis=0) + np.abs(self.K).sum(axis=0)
        if self.breathing is not None:
            used[-1] = 1.0
        return np.flatnonzero(used)

    @cached_property
    def count(self) -> float:
        """The weighted sum of the products at mu = 1."""
        return self.total(self.barrier)

    @cached_property
    def free(self) -> Array:
        """The weights of rows without a box, 0 for the others."""
        return np.asarray(self.w * ~self.ends.any(axis=0))

    def total(self, products: Array) -> float:
        """Return the sum of w (p E + s F)."""
        return float((products @ self.w).sum())

    def residual(self, theta: Array, xi: Array) -> tuple[Array, Array]:
        """Return r and the curvature k at (theta, xi)."""
        return self.h - self.map.scores(theta) + self.R @ xi, self.k0 + self.K @ xi

    def begin(self, theta: Array, xi: Array) -> RowPoint:
        """Return alpha inside its box with p - s = r - k alpha if possible, both well above 0."""
        above, below = self.ends > 0
        one_sided = below & ~above
        low = np.where(below, self.lo, 0.0)
        high = np.where(above, self.hi, 0.0)
        # a box much wider than the unit of the slopes is one without ends
        room = np.where(one_sided, self.first, np.minimum((high - low) / 2, 1.0))
        top = np.where(one_sided, np.inf, high - room / self.outlying)
        alpha = np.clip(0.0, low + room / self.outlying, top)
        g = 0.0 if self.breathing is None else self.breathing * xi[-1]
        slack = np.stack([high + g - alpha, alpha - low + g])
        slack = np.where(self.ends > 0, slack, 1.0)
        r, k = self.residual(theta, xi)
        price = self._prices(r - k * alpha, slack, one_sided, np.where(one_sided, 1.0, room) + g)
        return RowPoint(self, r, k, alpha, slack, self.ends * price)

    def _prices(self, rest: Array, slack: Array, one_sided: Array, room: Array) -> Array:
        """Return p and s with products near ``room``, larger where p - s = r - k alpha is."""
        excess = np.stack([np.maximum(rest, 0.0), np.maximum(-rest, 0.0)])
        # the residual of an outlying row may be of any size, and says nothing yet
        price = self.heavier * room / slack + np.where(np.asarray(self.outlying) > 1, 0.0, excess)
        # one-sided rows: s = -r, so that sign constraints on xi hold along the whole path
        feasible = one_sided & (rest < -FEASIBLE)
        return np.stack([price[0], np.where(feasible, -rest, price[1])])


@dataclass(frozen=True, eq=False)
class RowPoint:
    """Residuals r, curvatures k and multipliers alpha of rows, with their ``slack`` and ``price``.

    ``slack`` holds E = hi - alpha and F = alpha - lo, kept beside alpha as hi - alpha loses its
    digits where alpha tends to hi; ``price`` their multipliers p and s.
    """

    rows: Rows
    r: Array
    k: Array
    alpha: Array
    slack: Array
    price: Array

    @property
    def products(self) -> Array:
        """The products p E and s F, 0 at infinite ends."""
        return np.asarray(self.slack * self.price)

    def linearised(self) -> LinearRows:
        """Return phi', D = dalpha/dr and V = -dr/dxi + alpha dk/dxi."""
        rows = self.rows
        P, S = steep = self.price / self.slack
        if rows.conjugate is None:
            bend = Bend(self.k * self.alpha, self.k)
        else:
            bend = rows.conjugate.bend(self.alpha, self.slack)
        V = self.alpha[:, None] * rows.K - rows.R
        if rows.breathing is not None:
            V[:, -1] = rows.breathing * (S - P)
        D = 1 / (bend.second + P + S)
        return LinearRows(self, bend, steep, D, rows.w * D, V)


@dataclass(frozen=True, eq=False)
class LinearRows:
    """Rows around a point: ``steep`` holds p/E and s/F, D is dalpha/dr, V = -dr/dxi + alpha dk/dxi.

    Newton on r - phi' - p + s = 0, p E = up, s F = us leaves dalpha = D (rho - v'dx).
    """

    point: RowPoint
    bend: Bend
    steep: Array
    D: Array
    mass: Array
    V: Array

    @property
    def rows(self) -> Rows:
        """The rows themselves."""
        return self.point.rows

    def aim(self, mu: float, last: RowStep | None = None) -> Aim:
        """Return the targets at mu, corrected by what the linearisation dropped of a ``last`` step.

        Mehrotra's correction: the products of steps.
        """
        target = mu * self.rows.barrier
        rho = self.point.r - self.bend.first
        if last is not None:
            target -= last.dprice * last.dslack
            rho = rho - last.dk * last.dalpha
        force = target / self.point.slack
        return Aim(force, rho - force[0] + force[1])

    def step(self, aim: Aim, dtheta: Array, dxi: Array) -> RowStep:
        """Return the Newton step of alpha, p and s that belongs to (dtheta, dxi)."""
        rows = self.rows
        slide = rows.map.scores(dtheta) + self.V @ dxi
        dalpha = self.D * (aim.rho - slide)
        dslack = rows.ends * dalpha
        np.negative(dslack[0], out=dslack[0])
        if rows.breathing is not None:
            dslack += rows.ends * (rows.breathing * dxi[-1])
        dprice = aim.force - self.point.price - self.steep * dslack
        return RowStep(self.point, slide, rows.K @ dxi, dalpha, dslack, dprice)


class Aim(NamedTuple):
    """The targets of p E and s F over the slack (``force``), and the row residual ``rho``."""

    force: Array
    rho: Array


@dataclass(frozen=True, eq=False)
class RowStep:
    """A step of the multipliers of rows from a point."""

    point: RowPoint
    slide: Array
    dk: Array
    dalpha: Array
    dslack: Array
    dprice: Array

    def longest(self) -> float:
        """Return the largest step to E, F, p, s >= 0."""
        # 1/step = max of -dv/v; v = dv = 0 where a side of the box is infinite
        fastest = -min(
            float((self.dslack / self.point.slack).min()),
            float((self.dprice / (self.point.price + TINY)).min()),
        )
        return 1 / fastest if fastest > 0 else np.inf

    def products(self, length: float) -> Array:
        """Return the products p E and s F after a share of the step, 0 at infinite ends."""
        slack = self.point.slack + length * self.dslack
        return np.asarray(slack * (self.point.price + length * self.dprice))

    def centred(self, length: float, mu: float, products: Array) -> bool:
        """Return whether a step leaves every product p E and s F above a fraction of its target,
        and rows without a box near r = k alpha."""
        x, rows = self.point, self.point.rows
        if (products < STRAYED * mu * rows.barrier).any():
            return False
        if not rows.free.any():
            return True
        r = x.r + length * (x.alpha * self.dk - self.slide)
        miss = r - (x.k + length * self.dk) * (x.alpha + length * self.dalpha)
        before = np.abs(x.r - x.k * x.alpha)
        allowed = 0.5 * np.abs(r) + (1 - 0.5 * length) * before
        return float(rows.free @ np.abs(miss)) <= float(rows.free @ allowed) + TINY

    def taken(self, length: float, theta: Array, xi: Array) -> RowPoint:
        """Return the point after a share of the step, at the new (theta, xi)."""
        x = self.point
        return RowPoint(
            x.rows,
            *x.rows.residual(theta, xi),
            x.alpha + length * self.dalpha,
            x.slack + length * self.dslack,
            x.price + length * self.dprice,
        )
