"""Equal rows as one row of their total weight, in an order that the data alone fix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...losses.base import Array
from ...problem import Problem

#: Entries of X up to which rows are merged and ordered, which copies X.
MERGE_UP_TO = 500_000


def merged(problem: Problem) -> tuple[Problem, Array]:
    """Return the problem over distinct rows of positive weight, and the place of each row there.

    Integer weights and repeated rows so become one problem, to the order of its rows; a row of
    zero weight has the place -1.
    """
    X, y, pi = problem.X, np.asarray(problem.y, dtype=float), problem.weights
    on = np.flatnonzero(pi > 0)
    place = np.full(len(y), -1)
    first, place[on] = on, np.arange(len(on))
    if X.shape[0] * X.shape[1] <= MERGE_UP_TO:
        _, at, where = np.unique(_keys(X, y)[on], return_index=True, return_inverse=True)
        if _equal(X, y, on, on[at][where]):
            first, place[on] = on[at], where
    total = np.bincount(place[on], pi[on])
    if len(first) < len(y) or np.any(first[1:] < first[:-1]):
        X, y = X[first], y[first]
    return replace(problem, X=X, y=y, weights=total / total.sum()), place


def _equal(X: Any, y: Array, one: Array, two: Array) -> bool:
    """Return whether rows are equal, pair by pair."""
    apart = one != two
    one, two = one[apart], two[apart]
    if len(one) == 0:
        return True
    differ = X[one] != X[two]
    count = differ.nnz if hasattr(differ, "nnz") else np.count_nonzero(differ)
    return bool(count == 0 and np.all(y[one] == y[two]))


def _keys(X: Any, y: Array) -> Array:
    """Return a number for each row, equal for equal rows: integer sums of bits are exact."""
    # odd factors, fixed for good
    factors = np.random.default_rng(0).integers(0, 2**62, X.shape[1] + 1, dtype=np.int64) * 2 + 1
    if hasattr(X, "tocsr"):
        bits = X.copy() if X.has_canonical_format else X.tocoo().tocsr()
        bits.data = _bits(bits.data)
        keys = bits @ factors[1:]
    else:
        keys = _bits(X) @ factors[1:]
    return np.asarray(keys + _bits(y) * factors[0])


def _bits(values: Array) -> Array:
    """Return the bits of floating-point numbers, those of 0.0 for -0.0."""
    bits = np.ascontiguousarray(np.asarray(values, dtype=float) + 0.0).view(np.int64)
    # numbers with short mantissas end in zeros: spread what they have over all bits
    return bits ^ (bits >> 29) ^ (bits >> 43)
