"""Bounds on the optimum of a model: its risk at a point, its dual at a feasible multiplier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import entr

from ...losses.base import Array
from .model import Model
from .newton_system import Orthogonal


class Floor(NamedTuple):
    """A lower bound and the feasible multiplier alpha that proves it."""

    value: float
    alpha: Array


def attained(m: Model, r: Array, k: float) -> Array:
    """Return the alpha in [lo, hi] that maximises alpha r - k alpha^2/2, k >= 0."""
    if k > 0:
        return np.clip(r / k, m.lo, m.hi)
    return np.where(r > 0, m.hi, np.where(r < 0, m.lo, np.clip(0.0, m.lo, m.hi)))


def envelope(m: Model, r: Array, k: float) -> Array:
    """Return max over alpha in [lo, hi] of alpha r - k alpha^2/2, or log(1 + e^r)."""
    if m.entropy:
        return np.logaddexp(0.0, r)
    alpha = attained(m, r, k)
    return alpha * r - k * alpha**2 / 2


def spread(m: Model, r: Array) -> float:
    """Return sqrt(E r^2), with r_+ for a loss that is flat below 0."""
    active = r if m.lo < 0 else np.maximum(r, 0.0)
    return float(np.sqrt(m.pi @ active**2))


def risk(m: Model, r: Array, w: float, nu: float | None = None) -> float:
    """Return the worst-case risk at residuals r and ||theta|| = w, at its best nu unless given."""
    if m.form == "root":
        return (spread(m, r) + m.rate * w) ** 2 / (2 * m.kappa)
    if m.form != "quadratic" or w == 0:
        return float(m.pi @ envelope(m, r, m.kappa)) + m.rate * w
    nu = best_nu(m, r, w) if nu is None else nu
    return m.rate * w**2 / (2 * nu) + _at_nu(m, r, nu)


def _at_nu(m: Model, r: Array, nu: float) -> float:
    if m.kappa == 0:
        return float(m.pi @ envelope(m, r + nu * (m.lo + m.hi) / 2, 0.0)) - nu * m.lo * m.hi / 2
    # past nu = kappa the ends of [lo, hi] = [-M, M] win: M |r| + (nu - kappa) M^2/2
    over = max(nu - m.kappa, 0.0) * m.hi**2 / 2
    return float(m.pi @ envelope(m, r, max(m.kappa - nu, 0.0))) + over


def _slope_nu(m: Model, r: Array, nu: float) -> float:
    """Return the derivative of ``_at_nu`` in nu, E of half the squared slope at the worst case."""
    if m.kappa == 0:
        alpha = attained(m, r + nu * (m.lo + m.hi) / 2, 0.0)
        return float(m.pi @ ((m.lo + m.hi) * alpha - m.lo * m.hi)) / 2
    if nu >= m.kappa:
        return m.hi**2 / 2
    return float(m.pi @ attained(m, r, m.kappa - nu) ** 2) / 2


def best_nu(m: Model, r: Array, w: float) -> float:
    """Return the minimiser of rate w^2/(2 nu) + ``_at_nu``, by bisection on the derivative."""
    # the slope is at most max(lo^2, hi^2)/2
    low = np.sqrt(m.rate) * w / max(-m.lo, m.hi)
    high = low
    while 2 * high**2 * _slope_nu(m, r, high) < m.rate * w**2:
        high *= 2
        if not np.isfinite(high):
            return float(low)
    for _ in range(60):
        middle = (low + high) / 2
        if 2 * middle**2 * _slope_nu(m, r, middle) < m.rate * w**2:
            low = middle
        else:
            high = middle
    return float(high)


def balanced(m: Model, alpha: Array) -> Array:
    """Return alpha in its box with E o alpha = 0 (if b is free), shrinking the larger side."""
    alpha = np.clip(alpha, m.lo, m.hi)
    if not m.intercept:
        return alpha
    u = m.pi * m.o * alpha
    plus, minus = float(u[u > 0].sum()), -float(u[u < 0].sum())
    if plus > minus:
        return np.where(u > 0, alpha * (minus / plus), alpha)
    return np.where(u < 0, alpha * (plus / minus), alpha) if minus > plus else alpha


def floor(m: Model, alpha: Array, reach: Array) -> Floor:
    """Return the dual value at alpha, made feasible by balancing and by shrinking towards 0.

    Rounding leaves g = Z'(pi o alpha) uncertain by ``noise``, which is charged over the box |theta|
    <= reach; without a penalty g must be 0 up to that. Losses are nonnegative, so 0 is a bound.
    """
    alpha = balanced(m, alpha)
    g = np.abs(m.adjoint(m.pi * alpha))
    blur = np.minimum(g, m.noise)
    polar = m.polar(g - blur)
    gain, square = float(m.pi @ (alpha * m.c)), float(m.pi @ alpha**2)
    shrink, value = _dual(m, alpha, polar, gain, square)
    if m.form == "plain":
        # rounding accumulates over the rows
        blur = g
        value = value if np.all(g <= 1e4 * m.noise) else 0.0
    charge = float(blur @ reach)
    value -= 2 * charge * np.sqrt(value / (2 * m.kappa)) if m.form == "root" else charge
    return Floor(value, shrink * alpha) if value > 0 else Floor(0.0, 0.0 * alpha)


def _dual(m: Model, alpha: Array, polar: float, gain: float, square: float) -> tuple[float, float]:
    """Return the factor that makes alpha feasible and the dual value there."""
    if m.form == "root":
        # E alpha c subject to ||g|| <= rate, E alpha^2 <= 1; the risk is its square over 2 kappa
        shrink = min(_ratio(m.rate, polar), _ratio(1.0, np.sqrt(square)))
        return shrink, (max(shrink * gain, 0.0)) ** 2 / (2 * m.kappa)
    if m.form == "quadratic":
        return _dual_quadratic(m, alpha, polar, gain, square)
    shrink = 1.0 if m.form == "plain" else min(1.0, _ratio(m.rate, polar))
    if m.entropy:
        a = shrink * alpha
        return shrink, shrink * gain + float(m.pi @ (entr(a) + entr(1 - a)))
    return shrink, shrink * gain - m.kappa * shrink**2 * square / 2


def _dual_quadratic(
    m: Model, alpha: Array, polar: float, gain: float, square: float
) -> tuple[float, float]:
    if m.kappa > 0:
        # split masses: E alpha^2 <= A <= hi^2 and ||g||^2 <= rate A, value E alpha c - kappa A/2
        A = max(square, polar**2 / m.rate)
        shrink = min(1.0, _ratio(m.hi, np.sqrt(A)))
        return shrink, shrink * gain - m.kappa * shrink**2 * A / 2
    # s^2 ||g||^2 <= rate (s (lo + hi) E alpha - lo hi), the larger root s
    a, half = polar**2, m.rate * (m.lo + m.hi) * float(m.pi @ alpha) / 2
    top = half + np.sqrt(max(half**2 - a * m.rate * m.lo * m.hi, 0.0))
    shrink = min(1.0, _ratio(float(top), a))
    return shrink, shrink * gain


def nearest(m: Model, alpha: Array) -> list[Array]:
    """Return Z'(pi o alpha) moved onto the ball that the dual allows, the best move first."""
    g, bound = m.adjoint(m.pi * alpha), _radius(m, alpha)
    scaled = g * min(1.0, _ratio(bound, m.polar(g)))
    # clipping costs less, but leaves the range of Z' if columns are collinear
    return [np.clip(g, -bound, bound), scaled] if m.dual == 1 else [scaled]


def _radius(m: Model, alpha: Array) -> float:
    """Return the largest ||Z'(pi o alpha)|| that the dual allows at this alpha."""
    if m.form == "linear":
        return m.rate
    if m.form == "quadratic" and m.kappa == 0:
        square = float(m.pi @ ((m.lo + m.hi) * alpha - m.lo * m.hi))
        return float(np.sqrt(m.rate * max(square, 0.0)))
    if m.form == "plain":
        return 0.0
    size = float(np.sqrt(m.pi @ alpha**2))
    return m.rate * size if m.form == "root" else float(np.sqrt(m.rate)) * size


def _ratio(a: float, b: float) -> float:
    return float(a / b) if b > 0 else np.inf


def repaired(m: Model, alpha: Array, target: Array) -> Array:
    """Return alpha moved inside its box so that Z'(pi o alpha) = target and E o alpha = 0."""
    alpha = np.clip(alpha, m.lo, m.hi)
    for _ in range(3):
        room = np.minimum(np.minimum(m.hi - alpha, alpha - m.lo), 1.0)
        V = m.o[:, None] if m.intercept else np.empty((len(alpha), 0))
        # least change in the metric 1/room: alpha - room (A y + o b)
        T = Orthogonal([(m, V, m.pi * room)], m.design.d, lift=0.0)
        miss = np.append(m.adjoint(m.pi * alpha) - target, V.T @ (m.pi * alpha))
        inverse = T.truncated(1e-7)
        y = inverse @ miss
        for _ in range(2):
            y += inverse @ (miss - T.times(y))
        d = m.design.d
        alpha = np.clip(alpha - room * (m.scores(y[:d]) + V @ y[d:]), m.lo, m.hi)
    return alpha


def constant(m: Model) -> float:
    """Return the intercept of the best constant model."""
    if not m.intercept:
        return 0.0
    if m.entropy:
        share = float(m.pi @ (m.o > 0))
        return float(np.log(share / (1 - share))) if 0 < share < 1 else np.sign(share - 0.5) * 40.0
    knots = m.c * m.o
    if m.kappa > 0:
        return _centre(m, float(knots.min()), float(knots.max()))
    # slope in b: it starts at -hi (o = 1) or lo (o = -1) a row and gains hi - lo at each knot c/o
    order = np.argsort(knots)
    start = float(m.pi @ np.where(m.o > 0, -m.hi, m.lo))
    slope = start + np.cumsum(m.pi[order]) * (m.hi - m.lo)
    return float(knots[order[min(int(np.searchsorted(slope, 0.0)), len(order) - 1)]])


def _centre(m: Model, low: float, high: float) -> float:
    for _ in range(100):
        b = (low + high) / 2
        if not low < b < high:
            break
        if m.pi @ (m.o * attained(m, m.c - m.o * b, m.kappa)) > 0:
            low = b
        else:
            high = b
    return (low + high) / 2
