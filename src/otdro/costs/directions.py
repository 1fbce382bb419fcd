"""The directions that a Euclidean cost sets apart: its principal axes with their prices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .base import Array, Cost
from .table import signed


class PrincipalDirections(NamedTuple):
    """Unit directions as columns of ``vectors`` (d, d), by rising ``prices`` of a unit move."""

    prices: Array
    vectors: Array


def principal_directions(cost: Cost, n_features: int) -> PrincipalDirections:
    """Return the eigenvectors of Lam = LL', cheapest first; refuse a cost without them."""
    L = cost.factor()
    matrix = np.eye(n_features) if L is None else L @ L.T
    values, vectors = np.linalg.eigh(matrix)
    columns = np.stack([signed(v) for v in vectors.T], axis=1)
    return PrincipalDirections(np.sqrt(np.maximum(values, 0)), columns)
