"""A delta in words: how far all rows would have to move along one column to cost as much."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost

Array = NDArray[Any]


def unit_prices(cost: Cost, d: int) -> Array:
    """Return ||e_j|| of every column."""
    return np.asarray(cost.norm(np.eye(d)), dtype=float)


def mean_move(delta: Any, order: int, unit_price: Any, scale: Any) -> Any:
    """Return m with ||m scale e_j||^order = delta: the move, in standard deviations ``scale``."""
    size = np.asarray(unit_price * scale, dtype=float)
    root = np.asarray(delta, dtype=float) ** (1.0 / order)
    root, size = np.broadcast_arrays(root, size)
    return np.divide(root, size, out=np.full(root.shape, np.inf), where=size > 0)


def in_words(deviations: float, column: str) -> str:
    """Return the sentence."""
    if not np.isfinite(deviations):
        return "no move at all reaches it"
    return f"a mean move of {deviations:.3g} standard deviations of {column}"
