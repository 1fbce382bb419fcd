r"""The worst-case risk of given scores: the least value of a convex function of the multiplier.

.. math:: \sup_{P:\,D_c(P,P_n)\le\delta} E_P\,\ell = \min_{\lambda\ge 0}\ \lambda\delta
          + \sum_i \pi_i \sup_s \bigl\{\ell(z_i + s, y_i) - \lambda\,(|s|/w_i)^{order}\bigr\},

with the displacement s of the score and w = ||beta||_*, the largest gain in score at unit price:
one number, or one per row where the cost is local.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..problem import Ball

Array = NDArray[Any]

#: The least value is found to this share of itself: a few roundings of a sum.
PRECISION = 1e-14
#: The first step away from a start, relative to it, in search of the other side of the minimum.
FIRST_STEP = 1e-6
#: Multipliers below this are zero.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Dual:
    """The minimum over lam of the dual: the worst-case ``risk`` and the ``multiplier`` lam."""

    risk: float
    multiplier: float


class Tangent(NamedTuple):
    """A multiplier, the dual objective lam delta + mean psi there, and its slope."""

    lam: float
    value: float
    slope: float


def least(
    tangent: Callable[[float], Tangent],
    start: float,
    growth: float = 0.0,
    rtol: float = PRECISION,
) -> Tangent:
    """Return the least value of a convex function of lam > ``growth``, to ``rtol`` of itself.

    Two tangents of opposite slopes meet at a bound below the least value, and at the kink that
    tied rows make. New points are taken there and, in turn, where the slopes interpolate to zero,
    which is faster where there is no kink.
    """
    left, right = _bracket(tangent, max(start - growth, TINY), growth)
    for n in range(200):
        if not left.slope < 0 < right.slope:
            break
        width = right.lam - left.lam
        meet = (right.slope * width - (right.value - left.value)) / (right.slope - left.slope)
        lowest = min(left.value, right.value)
        if lowest - (left.value + left.slope * meet) <= rtol * abs(lowest):
            # at a kink both ends are beside the least value, which is where the tangents meet
            return min(left, right, tangent(left.lam + meet), key=lambda t: t.value)
        root = width * left.slope / (left.slope - right.slope)
        new = tangent(left.lam + (meet if n % 2 else root))
        if not left.lam < new.lam < right.lam:
            break
        left, right = (new, right) if new.slope < 0 else (left, new)
    return min(left, right, key=lambda t: t.value)


def _bracket(
    tangent: Callable[[float], Tangent], excess: float, growth: float
) -> tuple[Tangent, Tangent]:
    """Return tangents on either side of the least value, close to the start if it is good."""
    left = right = tangent(growth + excess)
    reach, low, high = FIRST_STEP, excess, excess
    while left.slope > 0 and low > TINY:
        low /= 1 + reach
        left, right, reach = tangent(growth + low), left, 10 * reach
    while right.slope < 0 and high < 1 / TINY:
        high *= 1 + reach
        left, right, reach = right, tangent(growth + high), 10 * reach
    return left, right


def worst_risk(
    z: Array,
    y: Array,
    weights: Array,
    loss: Loss,
    w: Any,
    ball: Ball,
    start: float = 0.0,
    rtol: float = PRECISION,
) -> Dual:
    """Return the worst-case risk of scores z whose coefficients have dual norm w.

    ``start`` is where to look for the multiplier first, if positive; ``rtol`` the precision of the
    risk, where that is found by search.
    """
    plain = float(weights @ loss.value(z, y))
    if np.max(w) == 0:
        return Dual(plain, 0.0)
    if ball.order == 1:
        require_lipschitz(loss)
        lam = loss.lipschitz * float(np.max(w))
        return Dual(plain + ball.delta * lam, lam)
    pieces = loss.pieces
    if pieces is not None and pieces.rooted and np.ndim(w) == 0:
        return rooted(plain, float(w), ball.delta, pieces.kappa)
    if ball.delta == 0:
        # d risk/d sqrt(delta) is w times the root mean square slope, so d risk/d delta is infinite
        flat = not np.any(weights * loss.derivative(z, y))
        return Dual(plain, 0.0 if flat else np.inf)
    found = best_multiplier(z, y, weights, loss, w, ball.delta, start, rtol)
    return Dual(found.value, found.lam)


def require_lipschitz(loss: Loss) -> None:
    """Refuse a loss whose worst case under an order-1 cost is infinite."""
    if not np.isfinite(loss.lipschitz):
        raise ValueError(
            f"order=1 needs a Lipschitz loss; {type(loss).__name__} is not, so its worst-case "
            "risk is infinite. Use order=2."
        )


def rooted(plain: float, w: float, delta: float, kappa: float) -> Dual:
    """Return (rms + sqrt(delta) w)^2/(2 kappa), rms^2 = 2 kappa plain, and its derivative in delta.

    The multiplier is (w^2 + w rms/sqrt(delta))/(2 kappa).
    """
    rms = np.sqrt(2 * kappa * plain)
    risk = (rms + np.sqrt(delta) * w) ** 2 / (2 * kappa)
    if w == 0 or (delta == 0 and rms == 0):
        return Dual(float(risk), w**2 / (2 * kappa))
    steep = w * rms / np.sqrt(delta) if delta > 0 else np.inf
    return Dual(float(risk), float((w**2 + steep) / (2 * kappa)))


def best_multiplier(
    z: Array,
    y: Array,
    weights: Array,
    loss: Loss,
    w: Any,
    delta: float,
    start: float = 0.0,
    rtol: float = PRECISION,
) -> Tangent:
    """Minimise lam delta + mean psi at order 2; its slope is delta - E t^2, t = s/w."""
    price = np.square(np.maximum(w, TINY))

    def tangent(lam: float) -> Tangent:
        best = loss.inner(z, y, w, lam).best
        spent = float(weights @ (best.shift**2 / price))
        return Tangent(lam, float(lam * delta + weights @ best.value), delta - spent)

    growth = least_finite(loss, w)
    if not start > growth:
        start = first_multiplier(z, y, weights, loss, w, delta)
    return least(tangent, start, growth, rtol)


def least_finite(loss: Loss, w: Any) -> float:
    """Return the lam beyond which every inner supremum is finite: 2 lam > smoothness w^2."""
    if np.isfinite(loss.lipschitz):
        return 0.0
    return float(loss.smoothness * np.max(np.square(w)) / 2)


def first_multiplier(z: Array, y: Array, weights: Array, loss: Loss, w: Any, delta: float) -> float:
    """Return a lam near the best: t = w l'/(2 lam), as if no slope changed on the way."""
    square = float(weights @ np.square(w * loss.derivative(z, y)))
    slopes = float(np.sqrt(square / delta)) / 2
    growth = least_finite(loss, w)
    if growth > 0:
        # away from the growth of the loss by a share of it
        return growth + max(slopes, 1e-3 * growth)
    top = loss.lipschitz * float(np.max(w)) / (2 * float(np.sqrt(delta)))
    # rows without a slope are moved too once a move is cheap: stay within reach of the bound
    return max(slopes, 1e-6 * top)
