r"""Sublevel sets of a loss: :math:`\ell(z, y) \le t` is an interval of scores.

Its ends are :math:`o z \le \psi(t)` with o = +1 or -1 and psi concave and increasing, the inverse
of the loss on one side of its minimum. The inequality is linear in the model; only the scalar t is
bent. A side on which the loss does not grow has no end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Logistic, Loss, PiecewiseQuadratic

Array = NDArray[Any]
Curve = Callable[[Array], tuple[Array, Array, Array]]

#: Scores up to which the end of a loss without a formula is sought.
FAR = 2.0**50


@dataclass(frozen=True, eq=False)
class Ends:
    """Ends of the intervals of targets y: the target each belongs to, o, the largest |dl/dz|.

    ``curve`` maps the levels t > 0, one an end, to psi, psi' and psi''.
    """

    of: Array
    side: Array
    steepest: Array
    curve: Curve
    linear: bool = False


def ends(loss: Loss, y: Array) -> Ends:
    """Return the ends of {z : l(z, y_k) <= t}, those of one target next to each other."""
    if isinstance(loss, PiecewiseQuadratic):
        return _piecewise(loss, y)
    if isinstance(loss, Logistic):
        return Ends(np.arange(len(y)), -y, np.ones(len(y)), _logistic)
    return _inverted(loss, y)


def _logistic(t: Array) -> tuple[Array, Array, Array]:
    """Return log(e^t - 1) and its derivatives."""
    e = -np.expm1(-t)
    return t + np.log(e), 1 / e, -(1 - e) / e**2


def _piecewise(loss: PiecewiseQuadratic, y: Array) -> Ends:
    """The residual r = shift - orientation z lies between the ends of the loss in r."""
    lo, hi = loss.slopes
    sides = [(sign, slope) for sign, slope in ((1.0, hi), (-1.0, -lo)) if slope > 0]
    of = np.repeat(np.arange(len(y)), len(sides))
    sign, slope = (np.tile(part, len(y)) for part in zip(*sides, strict=True))
    y = y[of]
    shift = sign if loss.task == "classification" else sign * y
    curve = partial(_residual, shift, slope, loss.kappa)
    return Ends(of, -sign * loss.orientation(y), slope, curve, linear=loss.kappa == 0)


def _residual(shift: Array, slope: Array, kappa: float, t: Array) -> tuple[Array, Array, Array]:
    """Return sqrt(2 kappa t) - shift up to the kink t = kappa slope^2/2, linear beyond it."""
    if kappa == 0:
        return t / slope - shift, 1 / slope, np.zeros_like(t)
    bent = t <= kappa * slope**2 / 2
    root = np.sqrt(2 * kappa * t)
    first = np.where(bent, kappa / root, 1 / slope)
    # an infinite slope has no kink, so that its product is not taken
    far = t / slope + kappa * np.where(np.isfinite(slope), slope, 0.0) / 2
    return np.where(bent, root, far) - shift, first, np.where(bent, -first / (2 * t), 0.0)


def _inverted(loss: Loss, y: Array) -> Ends:
    """Ends by bisection, for a loss of which only value and derivatives are known."""
    pair = np.repeat(np.arange(len(y)), 2)
    side = np.tile([-1.0, 1.0], len(y))
    steepest = side * loss.derivative(side * FAR, y[pair])
    grows = steepest > 0
    of, side = pair[grows], side[grows]
    return Ends(of, side, steepest[grows], partial(_bisected, loss, y[of], side))


def _bisected(loss: Loss, y: Array, side: Array, t: Array) -> tuple[Array, Array, Array]:
    """Return psi with l(o psi, y) = t where the loss grows with o z, and its derivatives."""

    def beyond(v: Array) -> Array:
        z = side * v
        return (side * loss.derivative(z, y) > 0) & (loss.value(z, y) > t)

    low, high = np.full(len(t), -1.0), np.full(len(t), 1.0)
    for _ in range(50):
        low, high = np.where(beyond(low), 2 * low, low), np.where(beyond(high), high, 2 * high)
    for _ in range(100):
        middle = (low + high) / 2
        far = beyond(middle)
        low, high = np.where(far, low, middle), np.where(far, middle, high)
    first = 1 / np.abs(loss.derivative(side * high, y))
    return high, first, -loss.curvature(side * high, y) * first**3
