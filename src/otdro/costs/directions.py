"""The directions that a Euclidean cost sets apart: its principal axes with their prices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .base import Array, Cost
from .table import signed


class PrincipalDirections(NamedTuple):
    """Unit directions as columns of ``vectors``, by rising ``prices`` of a unit move."""

    prices: Array
    vectors: Array


def principal_directions(
    cost: Cost, n_features: int, basis: Array | None = None
) -> PrincipalDirections:
    """Return the eigenvectors of Lam = LL', cheapest first; refuse a cost without them.

    With an orthonormal ``basis`` (d, k) they are those of B'Lam B, as directions B v: the moves are
    confined to its span.
    """
    B = np.eye(n_features) if basis is None else basis
    moved = B.T if cost.factor() is None else cost.transform(B.T)
    # B'LL'B
    values, vectors = np.linalg.eigh(moved @ moved.T)
    columns = np.stack([signed(v) for v in (B @ vectors).T], axis=1)
    return PrincipalDirections(np.sqrt(np.maximum(values, 0)), columns)
