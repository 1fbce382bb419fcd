"""A lower bound on the optimum of a model: its dual at a feasible multiplier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...duality import balance
from ...losses.base import Array
from .model import Model
from .newton_system import Orthogonal

#: Directions of Z that the free multipliers settle less than this share of the best are left.
SETTLED = 1e-7
#: Rounds of moving a multiplier and clipping it to its box.
REPAIRS = 3


class DualPoint(NamedTuple):
    """A lower bound and the feasible multiplier alpha that proves it."""

    value: float
    alpha: Array


def balanced(m: Model, alpha: Array) -> Array:
    """Return alpha in its box with E o alpha = 0 (if b is free), shrinking the larger side."""
    alpha = m.clipped(alpha)
    if not m.intercept:
        return alpha
    return alpha * balance(m.pi * m.o * alpha)


def dual_point(m: Model, alpha: Array, reach: Array) -> DualPoint:
    """Return the dual value at alpha, made feasible by balancing and by shrinking towards 0.

    Rounding leaves g = Z'(pi o alpha) uncertain by ``noise``, which is charged over the box
    |theta| <= reach. Losses are nonnegative, so 0 is a bound.
    """
    alpha = balanced(m, alpha)
    g = m.adjoint(m.pi * alpha)
    noise = m.form.roundings * m.rounding(alpha)
    blur = np.clip(g, -noise, noise)
    factor, value = m.form.feasible(m.slopes(alpha, g - blur))
    if value > 0:
        value = m.form.charged(value, float(np.abs(blur) @ reach))
    return DualPoint(value, factor * alpha) if value > 0 else DualPoint(0.0, 0.0 * alpha)


def nearest(m: Model, alpha: Array) -> list[Array]:
    """Return Z'(pi o alpha) moved onto the ball that the dual allows, the best move first."""
    g = m.adjoint(m.pi * alpha)
    radii = m.form.radii(m.slopes(alpha, g))
    return [target for radius in radii for target in m.norm.within(g, radius)]


def repaired(m: Model, alpha: Array, target: Array) -> Array:
    """Return alpha moved inside its box so that Z'(pi o alpha) = target and E o alpha = 0."""
    alpha = m.clipped(alpha)
    d = m.design.d
    V = m.o[:, None] if m.intercept else np.empty((len(alpha), 0))
    for _ in range(REPAIRS):
        ends = np.minimum(m.form.curve.hi - alpha, alpha - m.form.curve.lo)
        # outlying rows count like others, or those would be lost in their rounding
        room = np.minimum(ends, 1.0) / np.square(m.outlying)
        # least change in the metric 1/room: alpha - room (A y + o b)
        T = Orthogonal([(m, V, m.pi * room)], d, lift=0.0)
        miss = np.append(m.adjoint(m.pi * alpha) - target, V.T @ (m.pi * alpha))
        inverse = T.truncated(SETTLED)
        y = inverse @ miss
        for _ in range(2):
            y += inverse @ (miss - T.times(y))
        alpha = m.clipped(alpha - room * (m.scores(y[:d]) + V @ y[d:]))
    return alpha
