"""Piecewise quadratic losses: two slopes and a curvature say everything."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..arrays import as_float, beside, mass, namespace, numpy
from .base import Array, Ends, Inner, Loss, SlopeRange


class PiecewiseQuadratic(Loss):
    r"""Losses :math:`\max_{lo \le \alpha \le hi} \alpha r - \kappa\alpha^2/2` of a residual r.

    The residual is 1 - yz for labels and y - z for targets. Every loss of this family is fixed by
    ``slopes`` = (lo, hi) with lo <= 0 <= hi and ``kappa`` >= 0; value, derivative, conjugate and
    the inner supremum follow.
    """

    kappa: ClassVar[float]

    @property
    def slopes(self) -> tuple[float, float]:
        """The range [lo, hi] of the derivative in r."""
        raise NotImplementedError

    @property
    def pieces(self) -> PiecewiseQuadratic:
        """The loss itself."""
        return self

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """The largest slope."""
        lo, hi = self.slopes
        return max(-lo, hi)

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        """The largest second derivative, 1/kappa."""
        return 1 / self.kappa if self.kappa > 0 else np.inf

    @property
    def quadratic(self) -> bool:
        """Whether the loss is r^2/(2 kappa) throughout."""
        lo, hi = self.slopes
        return bool(np.isinf(lo) and np.isinf(hi))

    @property
    def rooted(self) -> bool:
        """Whether the worst case of order 2 has a root, (sqrt(E l) + sqrt(delta/(2 kappa)) w)^2.

        So it is where each side of the residual is quadratic throughout or without loss.
        """
        lo, hi = self.slopes
        return self.kappa > 0 and bool(np.isinf(max(-lo, hi))) and {-lo, hi} <= {0.0, np.inf}

    def residual(self, z: Array, y: Array) -> Array:
        """Return r = 1 - yz (labels) or y - z (targets)."""
        return 1 - y * z if self.task == "classification" else y - z

    def orientation(self, y: Array) -> Array:
        """Return -dr/dz: y for labels, 1 for targets."""
        return y if self.task == "classification" else namespace(y).ones_like(y)

    def slope(self, r: Array) -> Array:
        """Return the maximising alpha at r."""
        (lo, hi), xp = self.slopes, namespace(r)
        if self.kappa > 0:
            return xp.clip(r / self.kappa, lo, hi)
        up, down = as_float(r > 0), as_float(r < 0)
        return hi * up + lo * down

    def value(self, z: Array, y: Array) -> Array:
        """Return max over alpha in [lo, hi] of alpha r - kappa alpha^2/2."""
        r = self.residual(z, y)
        alpha = self.slope(r)
        return alpha * r - self.kappa * alpha**2 / 2

    def derivative(self, z: Array, y: Array) -> Array:
        """Return alpha dr/dz."""
        return -self.orientation(y) * self.slope(self.residual(z, y))

    def curvature(self, z: Array, y: Array) -> Array:
        """Return 1/kappa strictly between the kinks, else 0."""
        r = self.residual(z, y)
        if self.kappa == 0:
            return namespace(r).zeros_like(r)
        lo, hi = self.slopes
        return as_float((r > self.kappa * lo) & (r < self.kappa * hi)) / self.kappa

    def constant(self, y: Array, weights: Array) -> float:
        """Return the first kink from which on the mean loss does not fall, if kappa = 0.

        Targets y are kinks of slopes -hi before and -lo after: it is their hi/(hi - lo) quantile.
        """
        if self.kappa > 0:
            return super().constant(y, weights)
        lo, hi = self.slopes
        if self.task == "classification":
            return 1.0 if hi * mass(weights, y > 0) > hi * mass(weights, y < 0) else -1.0
        y, weights = numpy(y), numpy(weights)
        order = np.argsort(y, kind="stable")
        share = np.cumsum(weights[order])
        # a share of the weight within the roundings of the sum is equal to the quantile
        rounding = len(y) * np.finfo(float).eps
        at = np.searchsorted(share, (hi / (hi - lo) - rounding) * share[-1])
        return float(y[order[at]])

    def slope_range(self, y: Array) -> SlopeRange:
        """Return [-hi, -lo], for the label -1 [lo, hi]."""
        lo, hi = self.slopes
        y = as_float(y)
        up, xp, ones = self.orientation(y) > 0, namespace(y), namespace(y).ones_like(y)
        return SlopeRange(xp.where(up, -hi * ones, lo), xp.where(up, -lo * ones, hi))

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return kappa alpha^2/2 - alpha c at alpha = -a/orientation, c = 1 or y, +inf outside."""
        lo, hi = self.slopes
        alpha = -a * self.orientation(y)
        c = 1.0 if self.task == "classification" else y
        inside = (alpha >= lo) & (alpha <= hi)
        return namespace(alpha).where(inside, self.kappa * alpha**2 / 2 - alpha * c, np.inf)

    def sublevel(self, y: Array) -> Ends:
        """Return the ends of the residual r = shift - orientation z, in the score."""
        lo, hi = self.slopes
        sides = [(sign, slope) for sign, slope in ((1.0, hi), (-1.0, -lo)) if slope > 0]
        of = np.repeat(np.arange(len(y)), len(sides))
        sign, slope = (np.tile(part, len(y)) for part in zip(*sides, strict=True))
        y = y[of]
        shift = sign if self.task == "classification" else sign * y
        curve = partial(_end_of_residual, shift, slope, self.kappa)
        return Ends(of, -sign * self.orientation(y), slope, curve, linear=self.kappa == 0)

    def inner(self, z: Array, y: Array, w: Any, lam: Any, guess: Array | None = None) -> Inner:
        r"""Return max_alpha alpha r - (kappa - nu) alpha^2/2 with nu = w^2/(2 lam)."""
        r = self.residual(z, y)
        xp = namespace(r)
        nu = w**2 / (2 * lam) + xp.zeros_like(r)
        q = self.kappa - nu
        lo, hi = self.slopes
        curved = q > 0
        alpha = xp.clip(r / xp.where(curved, q, 1.0), lo, hi)[None]
        if not curved.all():
            # convex in alpha: the maximum is at an end of [lo, hi], at 0 if an end is infinite
            ends = np.array([[hi if np.isfinite(hi) else 0.0], [lo if np.isfinite(lo) else 0.0]])
            alpha = xp.where(curved, alpha, beside(ends, r))
        value = alpha * r - q * alpha**2 / 2
        value[1:, curved] = -np.inf
        value[:, ~curved & self._unbounded(r, q)] = np.inf
        return Inner(value, -self.orientation(y) * nu * alpha)

    def _unbounded(self, r: Array, q: Array) -> Array:
        """Where alpha r - q alpha^2/2 with q <= 0 has no upper bound on [lo, hi]."""
        lo, hi = self.slopes
        up, down = np.isinf(hi), np.isinf(lo)
        return (q < 0) & (up | down) | (up & (r > 0)) | (down & (r < 0))


def _end_of_residual(
    shift: Array, slope: Array, kappa: float, t: Array
) -> tuple[Array, Array, Array]:
    """Return sqrt(2 kappa t) - shift up to the kink t = kappa slope^2/2, linear beyond it."""
    if kappa == 0:
        return t / slope - shift, 1 / slope, np.zeros_like(t)
    bent = t <= kappa * slope**2 / 2
    root = np.sqrt(2 * kappa * t)
    first = np.where(bent, kappa / root, 1 / slope)
    # an infinite slope has no kink, so that its product is not taken
    far = t / slope + kappa * np.where(np.isfinite(slope), slope, 0.0) / 2
    return np.where(bent, root, far) - shift, first, np.where(bent, -first / (2 * t), 0.0)
