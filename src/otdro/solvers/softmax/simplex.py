r"""A convex quadratic over a simplex, by an active-set method.

.. math:: \min_{\lambda \ge 0,\ 1'\lambda = \delta}\ \lambda'Q\lambda/2 - q'\lambda
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Relative to its diagonal, what makes Q definite on directions that are rounding.
RIDGE = 1e-14
#: Gains below this, relative to the size of the terms, are rounding.
ROUNDING = 1e-13
#: Changes of the active set, at most, per coordinate.
CHANGES = 20


def minimise(Q: Array, q: Array, delta: float, start: Array) -> Array:
    """Return the minimiser, from the support of ``start``."""
    m = len(q)
    Q = Q + RIDGE * max(float(np.trace(Q)) / m, np.finfo(float).tiny) * np.eye(m)
    support = start > 0
    x = start * (delta / start.sum())
    for _ in range(CHANGES * m):
        on = np.flatnonzero(support)
        new = np.zeros(m)
        new[on] = _on_support(Q[np.ix_(on, on)], q[on], delta)
        if new[on].min() > 0:
            x = new
            g = Q @ x - q
            level = float(g[on].max())
            j = int(g.argmin())
            if level - g[j] <= ROUNDING * (np.abs(q).max() + np.abs(g).max()) or support[j]:
                break
            support[j] = True
            continue
        # towards it until the first coordinate vanishes, which leaves the support
        fall = on[new[on] <= 0]
        ratio = x[fall] / np.maximum(x[fall] - new[fall], np.finfo(float).tiny)
        x = x + float(ratio.min()) * (new - x)
        gone = fall[ratio <= ratio.min()]
        x[gone] = 0.0
        support[gone] = False
        if not support.any():
            support[int((Q @ x - q).argmin())] = True
    return np.maximum(x, 0.0)


def _on_support(Q: Array, q: Array, delta: float) -> Array:
    """Return the minimiser with free signs and sum delta."""
    m = len(q)
    if m == 1:
        return np.array([delta])
    solved = np.linalg.solve(Q, np.stack([q, np.ones(m)], axis=1))
    nu = (solved[:, 0].sum() - delta) / solved[:, 1].sum()
    return np.asarray(solved[:, 0] - nu * solved[:, 1])
