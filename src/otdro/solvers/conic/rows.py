r"""Rows of the saddle problem that the interior-point method solves.

Every convex problem of the library reads

.. math:: \min_x \max_{lo \le \alpha \le hi}\; c'\xi + \sum_i w_i\,[\alpha_i r_i(x)
          - \varphi_i(\alpha_i)], \qquad r = h - A\theta + R\xi,

with x = (theta, xi), xi a few scalars (intercept, epigraphs, nu), and a convex phi: mostly
:math:`k_i(x)\,\alpha_i^2/2` with :math:`k = k_0 + K\xi \ge 0`, else the conjugate of a smooth loss.
Sample rows have A = diag(o) Z; a norm of theta and the sign constraints on xi are rows as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(eq=False)
class Rows:
    """Rows and the state of their multipliers: alpha, p (of alpha <= hi) and s (of alpha >= lo).

    ``price`` holds p and s, ``slack`` E = hi - alpha and F = alpha - lo.
    ``share`` weighs the barrier of all rows, ``heavier`` that of each: p (hi - alpha) = s (alpha -
    lo) = share * heavier * mu on the path.
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
    alpha: Array = field(init=False)

    def locate(self, theta: Array, xi: Array) -> None:
        """Set the residual r and the curvature k at (theta, xi)."""
        self.r: Array = self.h - self.map.scores(theta) + self.R @ xi
        self.k: Array = self.k0 + self.K @ xi

    def begin(self, xi: Array) -> None:
        """Start alpha inside its box with p - s = r - k alpha if possible, both well above 0."""
        above = np.isfinite(self.hi)
        below = np.isfinite(self.lo)
        one_sided = below & ~above
        low = np.where(below, self.lo, 0.0)
        high = np.where(above, self.hi, 0.0)
        # a box much wider than the unit of the slopes is one without ends
        room = np.where(one_sided, self.first, np.minimum((high - low) / 2, 1.0))
        top = np.where(one_sided, np.inf, high - room / self.outlying)
        self.alpha = np.clip(0.0, low + room / self.outlying, top)
        #: 1 at the finite ends, hi then lo; at an infinite one the slack stays 1, its multiplier 0
        self.ends = np.stack([above, below]).astype(float)
        g = 0.0 if self.breathing is None else self.breathing * xi[-1]
        # kept beside alpha: hi - alpha loses its digits as alpha tends to hi
        slack = np.stack([high + g - self.alpha, self.alpha - low + g])
        self.slack = np.where(self.ends > 0, slack, 1.0)
        self.price = self.ends * self._prices(one_sided, np.where(one_sided, 1.0, room) + g)
        self.barrier = self.share * self.heavier * self.ends
        self.count = float((self.barrier @ self.w).sum())
        self.free = self.w * ~(above | below)

    def _prices(self, one_sided: Array, room: Array) -> Array:
        """Return p and s with products near ``room``, larger where p - s = r - k alpha is."""
        rest = self.r - self.k * self.alpha
        excess = np.stack([np.maximum(rest, 0.0), np.maximum(-rest, 0.0)])
        # the residual of an outlying row may be of any size, and says nothing yet
        price = self.heavier * room / self.slack + np.where(
            np.asarray(self.outlying) > 1, 0.0, excess
        )
        # one-sided rows: s = -r, so that sign constraints on xi hold along the whole path
        feasible = one_sided & (rest < -FEASIBLE)
        return np.stack([price[0], np.where(feasible, -rest, price[1])])

    def linearise(self) -> None:
        """Set phi', D = dalpha/dr and V = -dr/dxi + alpha dk/dxi."""
        self.P, self.S = self.steep = self.price / self.slack
        if self.conjugate is None:
            self.bend = Bend(self.k * self.alpha, self.k)
        else:
            self.bend = self.conjugate.bend(self.alpha, self.slack)
        self.D = 1 / (self.bend.second + self.P + self.S)
        self.wD = self.w * self.D
        self.V = self.alpha[:, None] * self.K - self.R
        if self.breathing is not None:
            self.V[:, -1] = self.breathing * (self.S - self.P)

    def aim(self, mu: float, corrected: bool = False) -> None:
        """Set the targets of p E, s F and the row residual rho, ``corrected`` by the last step."""
        # Newton on r - phi' - p + s = 0, p E = up, s F = us leaves dalpha = D (rho - v'dx)
        target = mu * self.barrier
        rho = self.r - self.bend.first
        if corrected:
            # Mehrotra: the products of steps that the linearisation dropped
            target -= self.dprice * self.dslack
            rho = rho - self.dk * self.dalpha
        self.force = target / self.slack
        self.rho: Array = rho - self.force[0] + self.force[1]

    def move(self, dtheta: Array, dxi: Array) -> None:
        """Set the Newton step of alpha, p and s that belongs to (dtheta, dxi)."""
        self.slide = self.map.scores(dtheta) + self.V @ dxi
        self.dk: Array = self.K @ dxi
        self.dalpha = self.D * (self.rho - self.slide)
        self.dslack = self.ends * self.dalpha
        np.negative(self.dslack[0], out=self.dslack[0])
        if self.breathing is not None:
            self.dslack += self.ends * (self.breathing * dxi[-1])
        self.dprice: Array = self.force - self.price - self.steep * self.dslack

    def longest(self) -> float:
        """Return the largest step to E, F, p, s >= 0."""
        # 1/step = max of -dv/v; v = dv = 0 where a side of the box is infinite
        fastest = -min(
            float((self.dslack / self.slack).min()),
            float((self.dprice / (self.price + TINY)).min()),
        )
        return 1 / fastest if fastest > 0 else np.inf

    def products(self, step: float) -> Array:
        """Return the products p E and s F after a step, 0 at infinite ends."""
        if step == 0:
            return self.slack * self.price
        product: Array = (self.slack + step * self.dslack) * (self.price + step * self.dprice)
        return product

    def centred(self, step: float, mu: float, products: Array) -> bool:
        """Return whether a step leaves every product p E and s F above a fraction of its target,
        and rows without a box near r = k alpha."""
        if (products < STRAYED * mu * self.barrier).any():
            return False
        if not self.free.any():
            return True
        r = self.r + step * (self.alpha * self.dk - self.slide)
        miss = r - (self.k + step * self.dk) * (self.alpha + step * self.dalpha)
        before = np.abs(self.r - self.k * self.alpha)
        allowed = 0.5 * np.abs(r) + (1 - 0.5 * step) * before
        return float(self.free @ np.abs(miss)) <= float(self.free @ allowed) + TINY

    def total(self, products: Array) -> float:
        """Return the sum of w (p E + s F), which is ``count`` at mu = 1."""
        return float((products @ self.w).sum())

    def advance(self, step: float) -> None:
        """Take a step of the multipliers; r and k follow from ``locate``."""
        self.alpha = self.alpha + step * self.dalpha
        self.price = self.price + step * self.dprice
        self.slack = self.slack + step * self.dslack
