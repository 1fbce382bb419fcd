r"""Rows of the saddle problem that the interior-point method solves.

Every convex problem of the library reads

.. math:: \min_x \max_{lo \le \alpha \le hi}\; c'\xi + \sum_i w_i\,[\alpha_i r_i(x)
          - k_i(x)\,\alpha_i^2/2], \qquad r = h - A\theta + R\xi,\quad k = k_0 + K\xi \ge 0,

with x = (theta, xi), xi a few scalars (intercept, epigraphs, nu). Sample rows have A = diag(o) Z; a
norm of theta and the sign constraints on xi are rows as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..losses.base import Array


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


@dataclass(eq=False)
class Rows:
    """Rows and the state of their multipliers: alpha, p (of alpha <= hi) and s (of alpha >= lo).

    ``share`` weighs the barrier of a row: p (hi - alpha) = s (alpha - lo) = share * mu on the path.
    ``first`` is where alpha - lo starts if hi is infinite. ``breathing`` marks rows whose box is
    [-g, g], g the last scalar of xi, maximised over as alpha is. ``entropy`` rows have the loss
    log(1 + e^r): the entropy of alpha in [0, 1] in place of -k alpha^2/2.
    """

    map: Map
    w: Array
    lo: Array
    hi: Array
    h: Array
    R: Array
    K: Array
    k0: float = 0.0
    share: float = 1.0
    first: Array | float = 1.0
    breathing: Array | None = None
    entropy: bool = False
    alpha: Array = field(init=False)
    p: Array = field(init=False)
    s: Array = field(init=False)
    E: Array = field(init=False)
    F: Array = field(init=False)

    def locate(self, theta: Array, xi: Array) -> None:
        """Set the residual r and the curvature k at (theta, xi)."""
        self.r: Array = self.h - self.map.scores(theta) + self.R @ xi
        self.k: Array = self.k0 + self.K @ xi

    def begin(self, xi: Array) -> None:
        """Start alpha inside its box with p - s = r - k alpha if possible, both well above 0."""
        self.above, self.below = above, below = np.isfinite(self.hi), np.isfinite(self.lo)
        low, high = np.where(below, self.lo, 0.0), np.where(above, self.hi, 0.0)
        self.alpha = np.where(below & ~above, low + self.first, (low + high) / 2)
        rest = self.r - self.k * self.alpha
        self.p = np.where(above, np.maximum(rest, 0.0) + 1.0, 0.0)
        self.s = np.where(below, np.maximum(-rest, 0.0) + 1.0, 0.0)
        # one-sided rows: s = -r, so that sign constraints on xi hold along the whole path
        self.s = np.where(below & ~above & (rest < -1e-2), -rest, self.s)
        g = 0.0 if self.breathing is None else self.breathing * xi[-1]
        # kept beside alpha: hi - alpha loses its digits as alpha tends to hi
        self.E = self.hi + g - self.alpha
        self.F = self.alpha - self.lo + g
        self.dE = self.dF = self.dp = self.ds = np.zeros_like(self.alpha)

    def linearise(self) -> None:
        """Set D = dalpha/dr and V = -dr/dxi + alpha dk/dxi."""
        self.P, self.S = self.p / self.E, self.s / self.F
        bend = 1 / (self.E * self.F) if self.entropy else self.k
        self.D = 1 / (bend + self.P + self.S)
        self.wD = self.w * self.D
        self.V = self.alpha[:, None] * self.K - self.R
        if self.breathing is not None:
            self.V[:, -1] = self.breathing * (self.S - self.P)

    def aim(self, mu: float, corrected: bool = False) -> None:
        """Set the targets of p E, s F and the row residual rho, ``corrected`` by the last step."""
        # Newton on r - k alpha - p + s = 0, p E = up, s F = us leaves dalpha = D (rho - v'dx); the
        # derivative of the entropy stands for k alpha in logistic rows
        self.up = self.us = np.full_like(self.alpha, self.share * mu)
        rho = self.r - (np.log(self.F / self.E) if self.entropy else self.k * self.alpha)
        if corrected:
            # Mehrotra: the products of steps that the linearisation dropped
            self.up, self.us = self.up - self.dp * self.dE, self.us - self.ds * self.dF
            rho = rho - self.dk * self.dalpha
        self.rho: Array = rho - self.up / self.E + self.us / self.F

    def move(self, dtheta: Array, dxi: Array) -> None:
        """Set the Newton step of alpha, p and s that belongs to (dtheta, dxi)."""
        self.slide = self.map.scores(dtheta) + self.V @ dxi
        self.dk: Array = self.K @ dxi
        self.dalpha = self.D * (self.rho - self.slide)
        dg = 0.0 if self.breathing is None else self.breathing * dxi[-1]
        self.dE, self.dF = dg - self.dalpha, dg + self.dalpha
        self.dp = self.up / self.E - self.p - self.P * self.dE
        self.ds = self.us / self.F - self.s - self.S * self.dF

    def longest(self) -> float:
        """Return the largest step to E, F, p, s >= 0."""
        pairs = ((self.E, self.dE), (self.F, self.dF), (self.p, self.dp), (self.s, self.ds))
        # 1/step = max of -dv/v; v = dv = 0 where a side of the box is infinite
        with np.errstate(divide="ignore", invalid="ignore"):
            fastest = max(float(np.nanmax(-dv / v)) for v, dv in pairs if not np.all(v == 0))
        return 1 / fastest if fastest > 0 else np.inf

    def products(self, step: float) -> list[tuple[Array, Array]]:
        """Return the products p E and s F after a step, with the weights of their rows."""
        out = []
        for on, v, u, dv, du in (
            (self.above, self.E, self.p, self.dE, self.dp),
            (self.below, self.F, self.s, self.dF, self.ds),
        ):
            product = (v[on] + step * dv[on]) * (u[on] + step * du[on])
            out.append((product, self.w[on]))
        return out

    def centred(self, step: float, mu: float) -> bool:
        """Return whether a step leaves every product p E and s F above a fraction of share * mu,
        and rows without a box near r = k alpha."""
        least = 1e-6 * self.share * mu
        if not all(bool(np.all(product >= least)) for product, _ in self.products(step)):
            return False
        free = ~(self.above | self.below)
        r = self.r + step * (self.alpha * self.dk - self.slide)
        miss = r - (self.k + step * self.dk) * (self.alpha + step * self.dalpha)
        before = np.abs(self.r - self.k * self.alpha)
        allowed = 0.5 * np.abs(r) + (1 - 0.5 * step) * before
        return float(self.w @ (free * np.abs(miss))) <= float(self.w @ (free * allowed)) + 1e-300

    def complementarity(self, step: float = 0.0) -> tuple[float, float]:
        """Return the sum of w (p E + s F) after a step, and what it would be at mu = 1."""
        pairs = self.products(step)
        total = sum(float(w @ product) for product, w in pairs)
        return total, self.share * sum(float(w.sum()) for _, w in pairs)

    def advance(self, step: float) -> None:
        """Take a step of the multipliers; r and k follow from ``locate``."""
        self.alpha = self.alpha + step * self.dalpha
        self.p = self.p + step * self.dp
        self.s = self.s + step * self.ds
        self.E = self.E + step * self.dE
        self.F = self.F + step * self.dF
