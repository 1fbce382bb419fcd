"""The contract of a loss: elementwise in the score z = x'beta + b, convex, with infimum zero."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

Array = NDArray[Any]


class Inner(NamedTuple):
    r"""Local maxima of :math:`s \mapsto \ell(z_i + s, y_i) - (\lambda/w^2) s^2`.

    A row of each array is a branch. ``value`` is -inf where a row lacks that branch; ``shift`` is
    the maximiser s, the displacement of the score.
    """

    value: Array
    shift: Array


class Loss(BaseEstimator):  # type: ignore[misc]
    r"""A convex loss :math:`\ell(z, y) \ge 0` of the score z with infimum 0.

    A subclass sets ``task`` (``"classification"``: y in {-1, +1}, or ``"regression"``),
    ``lipschitz`` (the largest slope in z, inf if there is none) and ``smoothness`` (the largest
    second derivative, inf if there is a kink), and writes ``value``, ``derivative`` and
    ``curvature``. With ``inner`` it also serves order-2 costs exactly.
    """

    task: ClassVar[str]
    lipschitz: float
    smoothness: float
    #: Whether the loss falls for ever, so that separable labels have no minimiser at delta = 0.
    minimum_at_infinity: ClassVar[bool] = False

    def value(self, z: Array, y: Array) -> Array:
        """Return l(z, y)."""
        raise NotImplementedError

    def probability(self, z: Array) -> Array | None:
        """Return P(y = +1 given score z), that of -1 being at -z; None where there is none."""
        return None

    def derivative(self, z: Array, y: Array) -> Array:
        """Return dl/dz, a subgradient at kinks."""
        raise NotImplementedError

    def curvature(self, z: Array, y: Array) -> Array:
        """Return d2l/dz2, zero at kinks."""
        raise NotImplementedError

    def evaluate(self, z: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature together; override where they share work."""
        return self.value(z, y), self.derivative(z, y), self.curvature(z, y)

    def constant(self, y: Array, weights: Array) -> float:
        """Return the constant score b that minimises sum_i weights_i l(b, y_i), by bisection."""
        if self.task == "classification":
            mass = [weights[y < 0].sum(), weights[y > 0].sum()]
            y, weights = np.array([-1.0, 1.0]), np.array(mass)
        low, high = min(-1.0, float(y.min())), max(1.0, float(y.max()))
        while weights @ self.derivative(np.full_like(y, high), y) < 0 and high < 2**50:
            high *= 2
        while weights @ self.derivative(np.full_like(y, low), y) > 0 and low > -(2**50):
            low *= 2
        for _ in range(120):
            b = (low + high) / 2
            if weights @ self.derivative(np.full_like(y, b), y) < 0:
                low = b
            else:
                high = b
        return (low + high) / 2

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return sup_z a z - l(z, y); here by bisection on the derivative, +inf off its range."""
        low, high = np.full(np.shape(a), -1.0), np.full(np.shape(a), 1.0)
        for _ in range(40):
            low = np.where(self.derivative(low, y) > a, 2 * low, low)
            high = np.where(self.derivative(high, y) < a, 2 * high, high)
        for _ in range(100):
            middle = (low + high) / 2
            below = self.derivative(middle, y) < a
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        attained = (self.derivative(low, y) <= a) & (a <= self.derivative(high, y))
        return np.where(attained, a * low - self.value(low, y), np.inf)

    def inner(self, z: Array, y: Array, w: float, lam: float, guess: Array | None = None) -> Inner:
        r"""Maximise :math:`\ell(z + s, y) - \lambda s^2 / w^2` over the shift s of the score.

        ``guess`` may hold \|s\| of a problem nearby, to start an iteration from.
        """
        raise ValueError(
            f"order=2 needs the inner supremum of the loss, which {type(self).__name__} does not "
            "define. Write its `inner` method, or use order=1 or solver='smoothed'."
        )


class PiecewiseQuadratic(Loss):
    r"""Losses :math:`\max_{lo \le \alpha \le hi} \alpha r - \kappa\alpha^2/2` of a residual r.

    The residual is 1 - yz for labels and y - z for targets. Every loss of this family is fixed by
    ``slopes`` = (lo, hi) and ``kappa``; value, derivative, conjugate and the inner supremum follow.
    """

    kappa: ClassVar[float]

    @property
    def slopes(self) -> tuple[float, float]:
        """The range [lo, hi] of the derivative in r."""
        raise NotImplementedError

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """The largest slope."""
        lo, hi = self.slopes
        return max(-lo, hi)

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        """The largest second derivative, 1/kappa."""
        return 1 / self.kappa if self.kappa > 0 else np.inf

    def residual(self, z: Array, y: Array) -> Array:
        """Return r = 1 - yz (labels) or y - z (targets)."""
        return 1 - y * z if self.task == "classification" else y - z

    def orientation(self, y: Array) -> Array:
        """Return -dr/dz: y for labels, 1 for targets."""
        return y if self.task == "classification" else np.ones_like(y)

    def slope(self, r: Array) -> Array:
        """Return the maximising alpha at r."""
        lo, hi = self.slopes
        if self.kappa > 0:
            return np.clip(r / self.kappa, lo, hi)
        return np.where(r > 0, hi, np.where(r < 0, lo, np.clip(0.0, lo, hi)))

    def value(self, z: Array, y: Array) -> Array:
        """Return max over alpha in [lo, hi] of alpha r - kappa alpha^2/2."""
        r = self.residual(z, y)
        alpha = self.slope(r)
        return alpha * r - self.kappa * alpha**2 / 2

    def derivative(self, z: Array, y: Array) -> Array:
        """Return -alpha dr/dz with the sign of the orientation."""
        return -self.orientation(y) * self.slope(self.residual(z, y))

    def curvature(self, z: Array, y: Array) -> Array:
        """Return 1/kappa strictly between the kinks, else 0."""
        r = self.residual(z, y)
        if self.kappa == 0:
            return np.zeros_like(r)
        lo, hi = self.slopes
        return np.where((r > self.kappa * lo) & (r < self.kappa * hi), 1 / self.kappa, 0.0)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return kappa alpha^2/2 - alpha c at alpha = -a/orientation, c = 1 or y, +inf outside."""
        lo, hi = self.slopes
        alpha = -a * self.orientation(y)
        c = 1.0 if self.task == "classification" else y
        inside = (alpha >= lo) & (alpha <= hi)
        return np.where(inside, self.kappa * alpha**2 / 2 - alpha * c, np.inf)

    def inner(self, z: Array, y: Array, w: float, lam: float, guess: Array | None = None) -> Inner:
        r"""Return max_alpha alpha r - (kappa - nu) alpha^2/2 with nu = w^2/(2 lam)."""
        r, sign = self.residual(z, y), -self.orientation(y)
        nu = w**2 / (2 * lam)
        q = self.kappa - nu
        lo, hi = self.slopes
        if q > 0:
            alpha = np.clip(r / q, lo, hi)[None]
        else:
            # convex in alpha: the maximum is at an end of [lo, hi], at 0 if an end is infinite
            ends = [a if np.isfinite(a) else 0.0 for a in (hi, lo)]
            alpha = np.outer(ends, np.ones_like(r))
        value = alpha * r - q * alpha**2 / 2
        if q <= 0 and not (np.isfinite(lo) and np.isfinite(hi)):
            grows = self._unbounded(r, q)
            value = np.where(grows, np.inf, value)
        return Inner(value, sign * nu * alpha)

    def _unbounded(self, r: Array, q: float) -> Array:
        """Where alpha r - q alpha^2/2 with q <= 0 has no upper bound on [lo, hi]."""
        if q < 0:
            return np.ones_like(r, dtype=bool)
        lo, hi = self.slopes
        return (np.isinf(hi) & (r > 0)) | (np.isinf(lo) & (r < 0))
