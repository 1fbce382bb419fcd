r"""Sublevel sets of a loss: :math:`\ell(z, y) \le t` is an interval of scores.

Its ends are :math:`o z \le \psi(t)` with o = +1 or -1 and psi concave and increasing, the inverse
of the loss on one side of its minimum. The inequality is linear in the model; only the scalar t is
bent. A side on which the loss does not grow has no end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .inner import DOUBLINGS_TO_FAR, FAR

if TYPE_CHECKING:
    from .base import Loss

Array = NDArray[Any]
Curve = Callable[[Array], tuple[Array, Array, Array]]

#: Halvings of a bracket down to rounding.
HALVINGS = 100


@dataclass(frozen=True, eq=False)
class Ends:
    """Ends of the intervals of targets y: the target each belongs to, o, the largest |dl/dz|.

    ``curve`` maps the levels t > 0, one per end, to psi, psi' and psi''.
    """

    of: Array
    side: Array
    steepest: Array
    curve: Curve
    linear: bool = False


def inverted(loss: Loss, y: Array) -> Ends:
    """Return the ends by bisection, for a loss of which only value and derivatives are known."""
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
    for _ in range(DOUBLINGS_TO_FAR):
        low, high = np.where(beyond(low), 2 * low, low), np.where(beyond(high), high, 2 * high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        far = beyond(middle)
        low, high = np.where(far, low, middle), np.where(far, middle, high)
    first = 1 / np.abs(loss.derivative(side * high, y))
    return high, first, -loss.curvature(side * high, y) * first**3
