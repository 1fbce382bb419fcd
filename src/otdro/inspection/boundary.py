r"""The distance of each row to the wrong side of a linear model, and the nearest point there.

Scores :math:`s_k = x'B_k + b_k`, own class y, dual norm of the cost:

.. math:: t_i = \min_{k \ne y} \frac{\max(s_y - s_k, 0)}{\|B_y - B_k\|_*}, \qquad
          x_i' = x_i - t_i\, v(B_y - B_k),

with v(w) the unit-norm maximiser of <w, v>. A prediction that leaves "within tau of the target" is
at :math:`t_i = \max(\tau - |e_i|, 0)/\|\beta\|_*`. The boundary counts as wrong: the worst
case is a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest wrong point of each row: its ``distance``, and which boundary it lies on.

    ``towards`` (n,) is the number of the class that wins there; for regression +1 where the
    prediction leaves above, -1 below.
    """

    distance: Array
    towards: Array


def column_norms(coef: Array, unit_price: float, j: int) -> Array:
    """Return the dual norms of pairs where only column j moves: abs(B_kj - B_lj)/||e_j||."""
    return np.abs(coef[:, None, j] - coef[None, :, j]) / unit_price


def nearest_class(scores: Array, own: Array, norms: Array) -> Nearest:
    """Return the nearest point of each row at which another class wins."""
    n, K = scores.shape
    rows = np.arange(n)
    mine = scores[rows, own]
    distance, towards = np.full(n, np.inf), (own + 1) % K
    for k in range(K):
        reach = ratio(mine - scores[:, k], norms[own, k])
        reach[own == k] = np.inf
        closer = reach < distance
        distance = np.where(closer, reach, distance)
        towards = np.where(closer, k, towards)
    return Nearest(distance, towards)


def leaves_band(residual: Array, tau: float, w: float) -> Nearest:
    """Return the nearest point at which the prediction is tau off; ``residual`` is y - score."""
    up = np.where(residual <= 0, 1, -1)
    return Nearest(ratio(tau - np.abs(residual), np.asarray(w)), up)


def part_moved(w: float, gain: float, order: int) -> float:
    """Return the part of a row's own way to the wrong side where its target moves as well.

    ``gain`` is the largest change of a residual at unit price, w that of a move of the row alone:
    at order 2 both share the way as w^2 and gain^2 - w^2, at order 1 the cheaper goes all of it.
    """
    if gain == w:
        return 1.0
    return (w / gain) ** 2 if order == 2 else 0.0


def ratio(margin: Array, w: Array) -> Array:
    """Return max(margin, 0)/w; where w = 0 nothing can move: 0 or inf."""
    short = np.maximum(margin, 0.0)
    stuck = np.where(short > 0, np.inf, 0.0)
    w = np.broadcast_to(w, short.shape)
    return np.divide(short, w, out=stuck, where=w > 0)
