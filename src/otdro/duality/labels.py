r"""The worst-case risk of given scores where labels may be changed at the price kappa.

.. math:: \min_{\lambda}\ \lambda\delta + \sum_i \pi_i \max\bigl\{\psi(z_i, y_i; \lambda),\
          \psi(z_i, -y_i; \lambda) - \lambda\kappa\bigr\},

psi the inner supremum at order 2; at order 1 the loss, and lambda >= Lip w.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..problem import Ball
from .multiplier import (
    PRECISION,
    TINY,
    UNKNOWN,
    Dual,
    Tangent,
    first_multiplier,
    least,
    least_finite,
)

Array = NDArray[Any]

#: How far off the multiplier of a model near by may be, relative to it.
NEAR = 1e-3


def priced_risk(
    z: Array,
    y: Array,
    weights: Array,
    loss: Loss,
    w: float,
    ball: Ball,
    guess: float = 0.0,
    rtol: float = PRECISION,
) -> Dual:
    """Return the worst-case risk of scores z whose coefficients have dual norm w.

    ``guess`` is a multiplier near the best one, 0 for none; ``rtol`` is of the risk.
    """
    if ball.delta == 0:
        return Dual(float(weights @ loss.value(z, y)), np.inf)
    kappa, delta = ball.label_cost, ball.delta
    if ball.order == 1 or w == 0:
        kept = loss.value(z, y)
        # a loss without a largest slope has an infinite one, and 0 times that is no number
        steepest = loss.lipschitz * w if w > 0 else 0.0
        rise = least_price(loss.value(z, -y) - kept, weights, steepest, delta, kappa)
        return Dual(float(weights @ kept) + rise.risk, rise.multiplier)

    def tangent(lam: Any) -> Tangent:
        return priced_tangent(z, y, weights, loss, w, ball, lam)

    growth = least_finite(loss, w)
    start, doubt = guess, NEAR
    if guess <= growth:
        start = max(first_multiplier(z, y, weights, loss, w, delta), growth + TINY)
        doubt = UNKNOWN
    found = least(tangent, np.array([start]), np.array([growth]), rtol, doubt)
    return Dual(float(found.value[0]), float(found.lam[0]))


def priced_tangent(
    z: Array, y: Array, weights: Array, loss: Loss, w: float, ball: Ball, lam: Any
) -> Tangent:
    """Return the order-2 dual objective at one multiplier, a number or an array of one."""
    number = float(np.ravel(lam)[0])
    value, price = _inner(z, y, loss, w, number)
    charge = ball.label_cost * number
    # psi <= l + Lip^2 w^2/(4 lam): few labels can pay
    most = loss.value(z, -y) + (loss.lipschitz * w) ** 2 / (4 * number)
    some = np.flatnonzero(most - charge > value)
    changed, beyond = _inner(z[some], -y[some], loss, w, number)
    flip = changed - charge > value[some]
    value[some[flip]] = changed[flip] - charge
    price[some[flip]] = beyond[flip] + ball.label_cost
    slope = ball.delta - float(weights @ price)
    total = lam * ball.delta + float(weights @ value)
    return Tangent(lam, total, np.full(np.shape(lam), slope))


def least_price(gain: Array, weights: Array, lowest: float, delta: float, kappa: float) -> Dual:
    """Return the least of delta lam + E max(0, gain - kappa lam) over lam >= lowest.

    The least lam has at most a mass of delta/kappa that gains more than kappa lam.
    """
    order = np.argsort(-gain)
    place = int(np.searchsorted(np.cumsum(weights[order]), delta / kappa, side="right"))
    least = float(gain[order[place]]) / kappa if place < len(order) else 0.0
    lam = max(lowest, least)
    return Dual(delta * lam + float(weights @ np.maximum(gain - kappa * lam, 0.0)), lam)


def least_prices(gain: Array, weights: Array, lowest: Array, delta: Array, kappa: float) -> Array:
    """Return the multipliers of ``least_price`` for the columns of gains and weights (n, B)."""
    order = np.argsort(-gain, axis=0)
    light = np.cumsum(np.take_along_axis(weights, order, axis=0), axis=0) <= delta / kappa
    place = np.minimum(light.sum(axis=0), len(gain) - 1)
    each = np.arange(len(place))
    least = np.where(light.all(axis=0), 0.0, gain[order[place, each], each] / kappa)
    return np.asarray(np.maximum(lowest, least))


def _inner(z: Array, y: Array, loss: Loss, w: float, lam: float) -> tuple[Array, Array]:
    """Return psi of every row at order 2, and what its move costs."""
    best = loss.inner(z, y, w, lam).best
    return best.value, np.square(best.shift / w)
