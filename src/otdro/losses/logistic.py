"""Logistic loss and its order-2 inner supremum."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import entr, expit, logit

from .base import Array, Inner, Loss


class Logistic(Loss):
    r"""Logistic loss :math:`\log(1 + e^{-yz})` for labels in {-1, +1}."""

    task = "classification"
    lipschitz = 1.0
    smoothness = 0.25

    def value(self, z: Array, y: Array) -> Array:
        """Return log(1 + e^-yz)."""
        m = y * z
        return np.log1p(np.exp(-np.abs(m))) + np.maximum(-m, 0)

    def derivative(self, z: Array, y: Array) -> Array:
        """Return -y sigma(-yz)."""
        return -y * expit(-y * z)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return sigma(yz) sigma(-yz)."""
        s = expit(-y * z)
        return s * (1 - s)

    def evaluate(self, z: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature from one exponential."""
        m = y * z
        e = np.exp(-np.abs(m))
        s = np.where(m > 0, e, 1.0) / (1 + e)
        return np.log1p(e) + np.maximum(-m, 0), -y * s, s * (1 - s)

    def constant(self, y: Array, weights: Array) -> float:
        """Return log(pi/(1 - pi)), pi the weight of the label +1."""
        positive = weights[y > 0].sum()
        return float(np.log(positive) - np.log(weights[y < 0].sum()))

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return the negative entropy of alpha = -ya, +inf outside [0, 1]."""
        alpha = -y * a
        inside = (alpha >= 0) & (alpha <= 1)
        alpha = np.clip(alpha, 0, 1)
        return np.where(inside, -entr(alpha) - entr(1 - alpha), np.inf)

    def inner(self, z: Array, y: Array, w: Any, lam: float, guess: Array | None = None) -> Inner:
        r"""With v = -ys >= 0 and a = 2 lam/w^2: maximise log(1 + e^(v - m)) - a v^2/2.

        Stationary where sigma(v - m) = a v. One maximum if a >= 1/4; else up to two, the lower
        with sigma < sig- and the upper with sigma > sig+, sig+- = (1 +- sqrt(1 - 4a))/2. A local
        cost has one w a row.
        """
        m, a = y * z, 2 * lam / np.square(w)
        if np.all(a >= 0.25):
            v = _stationary(m, a, expit(-m) / a, np.broadcast_to(1 / a, m.shape), guess)[None]
            return Inner(_height(v, m, a), -y * v)
        a = np.broadcast_to(a, m.shape)
        root, two = np.sqrt(np.maximum(0.0, 1 - 4 * a)), a < 0.25
        # kept off 0 where a >= 1/4 leaves no second branch
        high, low = (1 + root) / 2, np.maximum((1 - root) / 2, 1e-300)
        # m(s) = s/a - logit(s) falls on (0, sig-), rises to m(sig+) and falls again, so the
        # upper branch needs m < m(sig+) and the lower one m > m(sig-)
        rows = (~two | (m < high / a - logit(high)), two & (m > low / a - logit(low)))
        ends = (
            (np.where(two, high, expit(-m)) / a, 1 / a),
            (expit(-m) / a, low / a),
        )
        v, value = np.zeros((2, len(m))), np.full((2, len(m)), -np.inf)
        for k, r in enumerate(rows):
            v[k, r] = _stationary(m[r], a[r], ends[k][0][r], ends[k][1][r])
            value[k, r] = _height(v[k, r], m[r], a[r])
        return Inner(value, -y * v)


def _height(v: Array, m: Array, a: Any) -> Array:
    """Return log(1 + e^(v - m)) - a v^2/2."""
    x = v - m
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0) - a * v**2 / 2


def _stationary(m: Array, a: Any, low: Array, high: Array, guess: Array | None = None) -> Array:
    """Return the root v in [low, high] of sigma(v - m) = a v, by Newton kept inside a bracket."""
    v = (low + high) / 2 if guess is None else np.clip(guess, low, high)
    for _ in range(80):
        s = expit(v - m)
        f = s - a * v
        # f > 0 left of a maximum: sigma - a v falls through zero there
        low, high = np.where(f > 0, v, low), np.where(f > 0, high, v)
        slope = s * (1 - s) - a
        with np.errstate(divide="ignore", invalid="ignore"):
            step = v - f / slope
        new = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        if np.all(np.abs(new - v) <= 1e-15 * (1 + np.abs(v))):
            return new
        v = new
    return v
