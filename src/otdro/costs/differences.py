"""Derivatives by differences, for functions of rows without a formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: The step, relative to 1 + the size of an entry: near the cube root of the rounding unit, where
#: the error of the difference and that of rounding balance.
STEP = 1e-5


def central(f: Callable[[Array], Array], U: Array) -> Array:
    """Return the central difference of f, shape (m,) or (m, l), in each column of U, last axis."""
    columns = []
    for j in range(U.shape[1]):
        h = STEP * (1 + np.abs(U[:, j]))
        up, down = U.copy(), U.copy()
        up[:, j] += h
        down[:, j] -= h
        change = f(up) - f(down)
        columns.append(change / (2 * h if change.ndim == 1 else 2 * h[:, None]))
    return np.stack(columns, axis=-1)
