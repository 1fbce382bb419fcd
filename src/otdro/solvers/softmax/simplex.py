r"""Convex quadratics over simplices, by an active-set method, many at a time.

.. math:: \min_{\lambda \ge 0,\ 1'\lambda = \delta}\ \lambda'Q\lambda/2 - q'\lambda
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality.ties import times

Array = NDArray[Any]

#: Relative to its diagonal, what makes Q definite on directions that are rounding.
RIDGE = 1e-14
#: Gains below this, relative to the size of the terms, are rounding.
ROUNDING = 1e-13
#: Changes of the active set, at most, per coordinate.
CHANGES = 20

TINY = np.finfo(float).tiny


def minimise(Q: Array, q: Array, delta: Array, start: Array) -> Array:
    """Return the minimisers (T, m) of Q (T, m, m), q (T, m), from the supports of ``start``."""
    m = q.shape[1]
    Q = Q.copy()
    diagonal = np.einsum("tii->ti", Q)
    diagonal += RIDGE * np.maximum(diagonal.mean(axis=1, keepdims=True), TINY)
    support = start > 0
    x = start * (delta / start.sum(axis=1))[:, None]
    active = np.arange(len(q))
    for _ in range(CHANGES * m):
        now, on = x[active], support[active]
        new = _on_support(Q[active], q[active], delta[active], on)
        inside = np.where(on, new, np.inf).min(axis=1) > 0
        now, on, over = _changed(Q[active], q[active], now, new, on, inside)
        x[active], support[active] = now, on
        active = active[~over]
        if not len(active):
            break
    return np.maximum(x, 0.0)


def _changed(
    Q: Array, q: Array, x: Array, new: Array, on: Array, inside: Array
) -> tuple[Array, Array, Array]:
    """Return points and supports after one change, and which are over.

    From a minimiser on its support that is ``inside`` the coordinate of the least gradient joins;
    others go towards it until the first coordinate vanishes, which leaves the support.
    """
    each = np.arange(len(x))
    leaves = on & (new <= 0)
    # x/(x - new) is at most 1 where new <= 0 <= x; elsewhere it may overflow
    ratio = np.where(leaves, x / np.where(leaves, np.maximum(x - new, TINY), 1.0), np.inf)
    length = np.where(inside, 1.0, ratio.min(axis=1))
    gone = (ratio <= length[:, None]) & ~inside[:, None]
    x = np.where(gone, 0.0, x + length[:, None] * (new - x))
    g = times(Q, x) - q
    on = on & ~gone
    least = g.argmin(axis=1)
    level = np.where(on, g, -np.inf).max(axis=1)
    size = np.abs(q).max(axis=1) + np.abs(g).max(axis=1)
    over = inside & ((level - g[each, least] <= ROUNDING * size) | on[each, least])
    joins = (inside & ~over) | ~on.any(axis=1)
    on[each[joins], least[joins]] = True
    return x, on, over


def _on_support(Q: Array, q: Array, delta: Array, on: Array) -> Array:
    """Return the minimisers with free signs and sum delta, zero off the supports."""
    used = np.flatnonzero(on.any(axis=0))
    on = on[:, used]
    both = on[:, :, None] & on[:, None, :]
    A = np.where(both, Q[:, used[:, None], used], np.eye(len(used)))
    solved = np.linalg.solve(A, np.stack([np.where(on, q[:, used], 0.0), on * 1.0], axis=2))
    nu = (solved[:, :, 0].sum(axis=1) - delta) / solved[:, :, 1].sum(axis=1)
    found = np.zeros_like(q)
    found[:, used] = solved[:, :, 0] - nu[:, None] * solved[:, :, 1]
    return found
