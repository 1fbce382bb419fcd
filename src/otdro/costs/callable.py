"""A cost given as a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .base import Array, Cost
from .table import EVEN


@dataclass(eq=False, repr=False)
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

    function: Any
    gradient: Any = None

    def price(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return c(u, x), whatever the order."""
        c = np.asarray(self.function(U, X), dtype=float)
        if c.shape != U.shape[:1]:
            raise ValueError(
                f"the cost {self._name} returned shape {c.shape} for {len(U)} rows; it must "
                f"return one number per row, shape ({len(U)},)."
            )
        if not np.isfinite(c).all() or c.min(initial=0.0) < 0:
            raise ValueError(f"the cost {self._name} returned a negative or non-finite value.")
        return c

    def price_gradient(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return dc/du, whatever the order."""
        if self.gradient is None:
            return super().price_gradient(U, X, order)
        return np.asarray(self.gradient(U, X), dtype=float)

    def verify(self, X: Array) -> None:
        """Refuse a cost that is not zero at u = x, or that is negative nearby."""
        at = self.price(X, X)
        if at.max() > EVEN:
            raise ValueError(
                f"the cost {self._name} must be zero at u = x; it is {at.max():.3g} at row "
                f"{int(at.argmax())}."
            )
        self.price(X[::-1], X)

    @property
    def _name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def is_function(cost: Any) -> bool:
    """Whether a cost, as a user gives it, is a function c(u, x) and has no geometry."""
    if isinstance(cost, Cost):
        return cost.geometry == "function"
    return callable(cost) and not isinstance(cost, type) and not hasattr(cost, "fit")
