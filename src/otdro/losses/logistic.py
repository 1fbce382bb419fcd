"""Logistic loss and its order-2 inner supremum."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import entr, expit, logit

from .base import Array, Loss, SlopeRange
from .inner import Inner
from .softmax import Softmax
from .sublevel import Ends

#: The largest margin whose exponential is a finite number, with room.
LARGEST = 700.0


class Logistic(Loss):
    r"""Logistic loss :math:`\log(1 + e^{-yz})` for labels in {-1, +1}."""

    task = "classification"
    lipschitz = 1.0
    smoothness = 0.25
    minimum_at_infinity = True
    profile = True
    steady = True

    def value(self, z: Array, y: Array) -> Array:
        """Return log(1 + e^-yz)."""
        m = y * z
        return np.log1p(np.exp(-np.abs(m))) + np.maximum(-m, 0)

    def derivative(self, z: Array, y: Array) -> Array:
        """Return -y sigma(-yz)."""
        return -y * expit(-y * z)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return sigma(yz) sigma(-yz)."""
        m = y * z
        return expit(m) * expit(-m)

    def evaluate(self, z: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature from one exponential, in the fewest passes."""
        m = np.asarray(y * z)
        e = np.empty_like(m)
        np.exp(np.negative(np.abs(m, out=e), out=e), out=e)
        value, rest = np.log1p(e), np.minimum(m, 0)
        value -= rest
        # sigma(-|m|) and sigma(|m|): no digit is lost in their product
        e /= np.add(e, 1, out=rest)
        np.subtract(1, e, out=rest)
        bend = e * rest
        np.copyto(e, rest, where=m <= 0)
        e *= y
        return value, np.negative(e, out=e), bend

    def probability(self, z: Array) -> Array:
        """Return sigma(z)."""
        return np.asarray(expit(z))

    def multinomial(self, classes: int) -> Loss:
        """Return the cross-entropy."""
        return Softmax(classes)

    def slope_and_value(self, z: Array, scale: Array, xi: Array, y: Array) -> tuple[Array, ...]:
        """Return log q, 1 - 1/q and -y, q = 1 + e^-yz, in the fewest passes."""
        t = xi * (-y * scale)
        t -= y * z
        if t.max() > LARGEST:
            return super().slope_and_value(z, scale, xi, y)
        q = np.exp(t, out=t)
        q += 1
        value = np.log(q)
        np.divide(-1, q, out=q)
        q += 1
        return value, q, -y

    def slope_range(self, y: Array) -> SlopeRange:
        """Return [-1, 0] for the label +1 and [0, 1] for -1."""
        up = np.asarray(y) > 0
        return SlopeRange(np.where(up, -1.0, 0.0), np.where(up, 0.0, 1.0))

    def score_at(self, slope: Array, y: Array, room: tuple[Array, Array] | None = None) -> Array:
        """Return log(sigma(z)/sigma(-z)), the distances of the slope to the ends of its range."""
        low, high = self.slope_range(y)
        above, below = (slope - low, high - slope) if room is None else room
        return np.log(above / below)

    def constant(self, y: Array, weights: Array) -> float:
        """Return log(pi/(1 - pi)), pi the weight of the label +1."""
        positive = weights[y > 0].sum()
        return float(np.log(positive) - np.log(weights[y < 0].sum()))

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return the negative entropy of alpha = -ya, +inf outside [0, 1]."""
        alpha = -y * a
        # entr is -inf below 0
        return -(entr(alpha) + entr(1 - alpha))

    def sublevel(self, y: Array) -> Ends:
        """Return -y z <= log(e^t - 1)."""
        return Ends(np.arange(len(y)), -y, np.ones(len(y)), _log_expm1)

    def inner(self, z: Array, y: Array, w: Any, lam: Any, guess: Array | None = None) -> Inner:
        r"""With v = -ys >= 0, m = yz and a = 2 lam/w^2: maximise log(1 + e^(v - m)) - a v^2/2.

        Stationary where f(v) = sigma(v - m) - a v = 0. One maximum if a >= 1/4, with v > m iff
        am < 1/2; else up to two, the upper with sigma > sig+ and the lower with sigma < sig-,
        sig+- = (1 +- sqrt(1 - 4a))/2. A local cost has one w a row. Where one of two is missing,
        its shift is that of the shoulder sigma = sig+-, f' = 0.
        """
        m, a = y * z, 2 * lam / np.square(w)
        near = None if guess is None else np.atleast_2d(guess)
        if np.all(a >= 0.25):
            v = _stationary(m, a, *_ends(m, a), None if near is None else near[0])[None]
            return Inner(_height(v, m, a), -y * v)
        a = np.broadcast_to(a, m.shape)
        two = a < 0.25
        low = (1 - np.sqrt(np.maximum(0.0, 1 - 4 * a))) / 2
        # kept off 0 for its logarithm; logit(sig+) = -logit(sig-)
        edge = logit(np.clip(low, np.finfo(float).tiny, 0.5))
        # m(s) = s/a - logit(s) falls on (0, sig-), rises to m(sig+) and falls again, so the
        # upper branch needs m < m(sig+) and the lower one m > m(sig-)
        rows = np.stack([~two | (m < (1 - low) / a + edge), two & (m > low / a - edge)])
        left, right, above = _ends(m, a)
        ends = np.stack([np.where(two, (1 - low) / a, left), expit(-m) / a])
        others = np.stack([np.where(two, 1 / a, right), low / a])
        upper = np.stack([two | above, np.zeros_like(two)])
        v = np.clip([m - edge, m + edge], 0, 1 / a)
        known = near[rows] if near is not None and near.shape == v.shape else None
        m2, a2 = (np.broadcast_to(part, v.shape)[rows] for part in (m, a))
        v[rows] = _stationary(m2, a2, ends[rows], others[rows], upper[rows], known)
        value = np.full(v.shape, -np.inf)
        value[rows] = _height(v[rows], m2, a2)
        return Inner(value, -y * v)


def _log_expm1(t: Array) -> tuple[Array, Array, Array]:
    """Return log(e^t - 1) and its derivatives."""
    e = -np.expm1(-t)
    return t + np.log(e), 1 / e, -(1 - e) / e**2


def _ends(m: Array, a: Any) -> tuple[Array, Array, Array]:
    """Return a bracket of the only root, on one side of v = m, and whether that is above."""
    upper = a * m < 0.5
    return np.where(upper, m, expit(-m) / a), np.where(upper, 1 / a, m), upper


def _height(v: Array, m: Array, a: Any) -> Array:
    """Return log(1 + e^(v - m)) - a v^2/2."""
    x = v - m
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0) - a * v**2 / 2


def _stationary(
    m: Array, a: Any, low: Array, high: Array, upper: Array, guess: Array | None = None
) -> Array:
    """Return the root of f(v) = sigma(v - m) - a v in [low, high] by Newton's method.

    f falls there, concave on an upper branch and convex on a lower one: from the outer end, or
    from its first step on, Newton's method is monotone.
    """
    v = np.where(upper, high, low) if guess is None else np.clip(guess, low, high)
    for _ in range(80):
        s = expit(v - m)
        step = (s - a * v) / np.minimum(s * (1 - s) - a, -1e-300)
        new = np.clip(v - step, low, high)
        move, v = np.abs(new - v), new
        # quadratic convergence: the next step would be lost in rounding
        if np.all(move <= 1e-9 * (1 + v)):
            break
    return v
