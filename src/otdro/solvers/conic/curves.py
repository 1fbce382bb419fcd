r"""The loss of a row as :math:`\max_{lo \le \alpha \le hi} \alpha r - \varphi(\alpha)`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...losses import Loss
from ...losses.base import Array
from .rows import Bend

#: Curvatures below this share of the largest are lost in rounding; the barrier rules there.
FLAT = 1e-16


@dataclass(frozen=True)
class Pieces:
    """A piecewise quadratic loss, phi = kappa alpha^2/2 on [lo, hi]."""

    lo: float
    hi: float
    kappa: float
    conjugate: None = None

    def attained(self, r: Array, k: float) -> Array:
        """Return the alpha in [lo, hi] that maximises alpha r - k alpha^2/2, k >= 0."""
        if k > 0:
            return np.clip(r / k, self.lo, self.hi)
        return np.where(r > 0, self.hi, np.where(r < 0, self.lo, 0.0))

    def at_curvature(self, r: Array, k: float) -> Array:
        """Return max over alpha in [lo, hi] of alpha r - k alpha^2/2; inf if it has no bound."""
        if k <= 0 and np.isinf(max(-self.lo, self.hi)):
            return np.full_like(r, np.inf)
        alpha = self.attained(r, k)
        return alpha * r - k * alpha**2 / 2

    def loss(self, r: Array) -> Array:
        """Return the loss of every row."""
        return self.at_curvature(r, self.kappa)

    def phi(self, alpha: Array) -> Array:
        """Return kappa alpha^2/2."""
        return self.kappa * alpha**2 / 2

    def slope_unit(self, unit: float) -> float:
        """Return the largest slope, or unit/kappa if that is less."""
        largest = max(-self.lo, self.hi)
        return min(largest, unit / self.kappa) if self.kappa > 0 else largest

    def rescaled(self, unit: float, slope: float) -> Pieces:
        """Return the loss over unit * slope, of residuals over ``unit``."""
        return Pieces(self.lo / slope, self.hi / slope, self.kappa * slope / unit)


@dataclass(frozen=True, eq=False)
class Smooth:
    """A smooth Lipschitz loss of the score, r = z: phi is its conjugate.

    Residuals are scores over ``unit``, alpha is dl/dz over ``slope``.
    """

    source: Loss
    y: Array
    lo: Array
    hi: Array
    unit: float = 1.0
    slope: float = 1.0
    kappa: float = 0.0

    @property
    def conjugate(self) -> Smooth:
        """The curve itself."""
        return self

    def bend(self, alpha: Array, slack: Array) -> Bend:
        """Return the score z at which dl/dz = alpha, and dz/dalpha."""
        room = (self.slope * slack[1], self.slope * slack[0])
        z = self.source.score_at(self.slope * alpha, self.y, room)
        curvature = np.maximum(self.source.curvature(z, self.y), FLAT * self.source.smoothness)
        return Bend(z / self.unit, self.slope / (self.unit * curvature))

    def loss(self, r: Array) -> Array:
        """Return the loss of every row."""
        return self.source.value(self.unit * r, self.y) / (self.unit * self.slope)

    def phi(self, alpha: Array) -> Array:
        """Return the conjugate of every row."""
        return self.source.conjugate(self.slope * alpha, self.y) / (self.unit * self.slope)

    def slope_unit(self, unit: float) -> float:
        """Return the largest slope."""
        return float(self.source.lipschitz)

    def rescaled(self, unit: float, slope: float) -> Smooth:
        """Return the loss over unit * slope, of residuals over ``unit``."""
        return replace(
            self,
            lo=self.lo / slope,
            hi=self.hi / slope,
            unit=self.unit * unit,
            slope=self.slope * slope,
        )


#: A convex loss of the residual r, by its slopes alpha in [lo, hi] and their convex phi(alpha).
Curve = Pieces | Smooth
