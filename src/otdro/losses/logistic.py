"""Logistic loss and its order-2 inner supremum."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit

from ..arrays import TINY, as_float, mass, namespace
from .base import HALVINGS, Array, Ends, Inner, Loss, SlopeRange, entropy
from .softmax import Softmax

#: The step, relative to 1 + the place, after which the next one would be lost in rounding:
#: convergence is quadratic.
NEXT_IS_ROUNDING = np.sqrt(np.finfo(float).eps)


class Logistic(Loss):
    r"""Logistic loss :math:`\log(1 + e^{-yz})` for labels in {-1, +1}."""

    task = "classification"
    lipschitz = 1.0
    smoothness = 0.25
    minimum_at_infinity = True
    profile = True

    def value(self, z: Array, y: Array) -> Array:
        """Return log(1 + e^-yz)."""
        m = y * z
        xp = namespace(m)
        value: Array = xp.log1p(xp.exp(-xp.abs(m))) + xp.maximum(-m, 0.0)
        return value

    def derivative(self, z: Array, y: Array) -> Array:
        """Return -y sigma(-yz)."""
        return -y * _sigma(-y * z)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return sigma(yz) sigma(-yz)."""
        m = y * z
        return _sigma(m) * _sigma(-m)

    def evaluate(self, z: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature from one exponential, in the fewest passes."""
        m = y * z
        xp = namespace(m)
        e = xp.abs(m)
        e *= -1.0
        e = xp.exp(e)
        value, rest = xp.log1p(e), xp.minimum(m, 0.0)
        value -= rest
        # sigma(-|m|) and sigma(|m|): no digit is lost in their product
        e /= e + 1
        rest = 1 - e
        bend = e * rest
        e = xp.where(m <= 0, rest, e)
        e *= -y
        return value, e, bend

    def probability(self, z: Array) -> Array:
        """Return sigma(z)."""
        return _sigma(z)

    def multinomial(self, classes: int) -> Loss:
        """Return the cross-entropy."""
        return Softmax(classes)

    def slope_range(self, y: Array) -> SlopeRange:
        """Return [-1, 0] for the label +1 and [0, 1] for -1."""
        up = as_float(y) > 0
        high = as_float(~up)
        return SlopeRange(high - 1.0, high)

    def score_at(self, slope: Array, y: Array, room: tuple[Array, Array] | None = None) -> Array:
        """Return log(sigma(z)/sigma(-z)), the distances of the slope to the ends of its range."""
        low, high = self.slope_range(y)
        above, below = (slope - low, high - slope) if room is None else room
        return namespace(above).log(above / below)

    def constant(self, y: Array, weights: Array) -> float:
        """Return log(pi/(1 - pi)), pi the weight of the label +1."""
        positive, negative = mass(weights, y > 0), mass(weights, y < 0)
        return float(np.log(positive) - np.log(negative))

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return the negative entropy of alpha = -ya, +inf outside [0, 1]."""
        alpha = -y * a
        return -(entropy(alpha) + entropy(1 - alpha))

    def sublevel(self, y: Array) -> Ends:
        """Return -y z <= log(e^t - 1)."""
        return Ends(np.arange(len(y)), -y, np.ones(len(y)), _log_expm1)

    def inner(self, z: Array, y: Array, w: Any, lam: Any, guess: Array | None = None) -> Inner:
        r"""With v = -ys >= 0, m = yz and a = 2 lam/w^2: maximise log(1 + e^(v - m)) - a v^2/2.

        Stationary where f(v) = sigma(v - m) - a v = 0. One maximum if a >= 1/4, with v > m iff
        am < 1/2; else up to two, the upper with sigma > sig+ and the lower with sigma < sig-,
        sig+- = (1 +- sqrt(1 - 4a))/2. A local cost has one w per row. Where one of two is missing,
        its shift is that of the shoulder sigma = sig+-, f' = 0.
        """
        m, a = y * z, 2 * lam / w**2
        xp = namespace(m)
        near = guess if guess is None or guess.ndim == 2 else guess[None]
        if _all(a >= self.smoothness):
            low, high, upper = _ends(m, a)
            first = xp.where(upper, high, low) if near is None else near[0]
            v = _newton(m, a, low, high, first)[None]
            return Inner(_height(v, m, a), -y * v)
        if xp is not np and isinstance(a, float):
            a = xp.full_like(m, a)
        exists, low, high, first = _brackets(m, a)
        v = _newton(m, a, low, high, first if near is None or near.shape != low.shape else near)
        return Inner(xp.where(exists, _height(v, m, a), -np.inf), -y * v)


def _brackets(m: Array, a: Any) -> tuple[Array, Array, Array, Array]:
    """Return of the two branches (2, n) whether they exist, two ends of the root of f, a start.

    A row with a >= 1/4 has its only root in the first branch. A branch that does not exist has the
    shoulder as both ends.
    """
    xp = namespace(m)
    two = a < Logistic.smoothness
    low = (1 - xp.sqrt(xp.maximum(1 - 4 * a, 0.0))) / 2
    high = 1 - low
    # kept off 0 for its logarithm; logit(sig+) = -logit(sig-)
    edge = _logit(xp.maximum(low, np.finfo(float).tiny))
    # m(s) = s/a - logit(s) falls on (0, sig-), rises to m(sig+) and falls again, so the
    # upper branch needs m < m(sig+) and the lower one m > m(sig-)
    upper = xp.logical_not(two) | (m < high / a + edge)
    exists = xp.stack([upper, two & (m > low / a - edge)])
    shoulder = xp.minimum(xp.maximum(xp.stack([m - edge, m + edge]), 0.0), 1 / a)
    begin, end = xp.empty_like(shoulder), xp.empty_like(shoulder)
    begin[0], end[0] = high / a, 1 / a
    begin[1], end[1] = _sigma(-m) / a, low / a
    # from the outer end
    first = xp.stack([end[0], begin[1]])
    if not _all(two):
        left, right, above = _ends(m, a)
        begin[0], end[0] = xp.where(two, begin[0], left), xp.where(two, end[0], right)
        first[0] = xp.where(two | above, end[0], begin[0])
    return (exists, xp.where(exists, begin, shoulder), xp.where(exists, end, shoulder), first)


def _sigma(x: Array) -> Array:
    """Return 1/(1 + e^-x)."""
    xp = namespace(x)
    return expit(x) if xp is np else 1 / (1 + xp.exp(-x))


def _logit(p: Array) -> Array:
    """Return log(p/(1 - p))."""
    xp = namespace(p)
    return logit(p) if xp is np else xp.log(p) - xp.log1p(-p)


def _all(condition: Any) -> bool:
    """Whether a condition, of a number or of rows, holds throughout."""
    return condition if isinstance(condition, bool) else bool(namespace(condition).all(condition))


def _log_expm1(t: Array) -> tuple[Array, Array, Array]:
    """Return log(e^t - 1) and its derivatives."""
    e = -np.expm1(-t)
    return t + np.log(e), 1 / e, -(1 - e) / e**2


def _ends(m: Array, a: Any) -> tuple[Array, Array, Array]:
    """Return a bracket of the only root, on one side of v = m, and whether that is above."""
    xp, upper = namespace(m), a * m < 0.5
    return xp.where(upper, m, _sigma(-m) / a), xp.where(upper, 1 / a, m), upper


def _height(v: Array, m: Array, a: Any) -> Array:
    """Return log(1 + e^(v - m)) - a v^2/2."""
    x = v - m
    xp = namespace(x)
    return xp.log1p(xp.exp(-xp.abs(x))) + xp.maximum(x, 0.0) - a * v**2 / 2


def _newton(m: Array, a: Any, low: Array, high: Array, v: Array) -> Array:
    """Return the root of f(v) = sigma(v - m) - a v in [low, high] by Newton's method from v on.

    f falls there, concave on an upper branch and convex on a lower one: from the outer end, or
    from its first step on, Newton's method is monotone.
    """
    xp = namespace(m)
    v = _within(v, low, high)
    for _ in range(HALVINGS):
        s = _sigma(v - m)
        step = (s - a * v) / xp.minimum(s * (1 - s) - a, -TINY)
        new = _within(v - step, low, high)
        move, v = xp.abs(new - v), new
        if _all(move <= NEXT_IS_ROUNDING * (1 + v)):
            break
    return v


def _within(v: Array, low: Array, high: Array) -> Array:
    """Return v moved into [low, high]."""
    xp = namespace(v)
    inside: Array = xp.minimum(xp.maximum(v, low), high)
    return inside
