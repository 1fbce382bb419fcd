r"""A lower bound for losses with two slopes under local costs: rows share their mass between both.

.. math:: F^* \ge -\sum \pi_i\,\{(1 - p_i)\,\ell^*(lo_i) + p_i\,\ell^*(hi_i)\}\quad\text{if}\quad
          g'C^{-1}g \le \delta,\ \sum \pi_i a_i = 0,

a the mean slope of a row, :math:`g = \sum \pi a z` and C the sum of pi times the mean squared slope
times B_i. The shares p are moved, each in proportion to p (1 - p), until that holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ...duality import first_within
from ...losses import Loss

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SharedSlopes:
    """Rows Z, their matrices B, weights and the ends of their slopes; delta, the intercept."""

    Z: Array
    B: Array
    weights: Array
    low: Array
    high: Array
    delta: float
    fit_intercept: bool

    def bound(self, loss: Loss, y: Array, share: Array) -> float:
        """Return the bound of shares (n,) of the larger slope made feasible, -inf if that fails."""
        room = share * (1 - share)
        p = share - self._offset(room, self.low + share * (self.high - self.low))
        budget, q = self._budget(p)
        if budget > self.delta:
            turn = self.high - self.low
            # d(g'C^-1 g)/dp = 2 pi (z'q da/dp - q'B_i q d(a^2)/dp/2)
            bend = self.high**2 - self.low**2
            steep = (self.Z @ q) * turn - ((self.B @ q) @ q) * bend / 2
            h = -room * steep
            h = h - self._offset(room, turn * h)
            fall = -2 * float(self.weights @ (h * steep))
            eta = first_within(lambda eta: (self._budget(p + eta * h)[0], fall), self.delta)
            if np.isinf(eta):
                return -np.inf
            p = p + eta * h
        ends = (loss.conjugate(self.low, y), loss.conjugate(self.high, y))
        inside = np.isfinite(p) & (p >= 0) & (p <= 1)
        value = np.where(inside, (1 - p) * ends[0] + p * ends[1], np.inf)
        return -float(self.weights @ np.where(self.weights > 0, value, 0.0))

    def _offset(self, room: Array, lack: Array) -> Array:
        """Return the change, in proportion to the room, that makes up for sum pi lack."""
        if not self.fit_intercept:
            return np.zeros_like(room)
        turn = self.high - self.low
        total = float(self.weights @ (room * turn**2))
        return room * turn * (self.weights @ lack) / max(total, np.finfo(float).tiny)

    def _budget(self, p: Array) -> tuple[float, Array]:
        """Return g'C^-1 g and C^-1 g."""
        n, d = self.Z.shape
        g = (self.weights * (self.low + p * (self.high - self.low))) @ self.Z
        square = self.weights * (self.low**2 + p * (self.high**2 - self.low**2))
        C = (square @ self.B.reshape(n, -1)).reshape(d, d)
        try:
            q = cho_solve(cho_factor(C), g)
        except LinAlgError:
            # no slope is left to move
            return np.inf, g
        return float(g @ q), q
