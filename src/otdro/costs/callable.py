"""A cost given as a function."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Array, Cost


class CallableCost(Cost):
    """Cost c(u, x) >= 0 itself, a function of batches: rows U and X of shape (m, d) in, (m,) out.

    Parameters
    ----------
    function : callable
        c(U, X), zero at u = x.
    gradient : callable or None, default=None
        dc/du as a function of (U, X), of shape (m, d); None takes central differences.
    """

    geometry = "function"

    def __init__(self, function: Any, gradient: Any = None) -> None:
        self.function = function
        self.gradient = gradient

    def price(self, U: Array, X: Array, order: int = 1) -> Array:
        """Return c(u, x), whatever the order."""
        c = np.asarray(self.function(U, X), dtype=float)
        if c.shape != U.shape[:1]:
            raise ValueError(
                f"the cost {self._name} returned shape {c.shape} for {len(U)} rows; it must "
                f"return one number a row, shape ({len(U)},)."
            )
        if not np.isfinite(c).all() or c.min(initial=0.0) < 0:
            raise ValueError(f"the cost {self._name} returned a negative or non-finite value.")
        return c

    def price_gradient(self, U: Array, X: Array, order: int = 1) -> Array:
        """Return dc/du."""
        if self.gradient is None:
            return central(lambda V: self.price(V, X), U)
        return np.asarray(self.gradient(U, X), dtype=float)

    def verify(self, X: Array) -> None:
        """Refuse a cost that is not zero at u = x, or that is negative nearby."""
        at = self.price(X, X)
        if at.max() > 1e-10:
            raise ValueError(
                f"the cost {self._name} must be zero at u = x; it is {at.max():.3g} at row "
                f"{int(at.argmax())}."
            )
        self.price(X[::-1], X)

    @property
    def _name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def central(f: Any, U: Array, step: float = 1e-5) -> Array:
    """Return the central difference of f, shape (m,) or (m, l), in each column of U, last axis."""
    columns = []
    for j in range(U.shape[1]):
        h = step * (1 + np.abs(U[:, j]))
        up, down = U.copy(), U.copy()
        up[:, j] += h
        down[:, j] -= h
        change = f(up) - f(down)
        columns.append(change / (2 * h if change.ndim == 1 else 2 * h[:, None]))
    return np.stack(columns, axis=-1)
