"""Products of sparse rows: of their entries, and of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

Array = NDArray[Any]


def pair_products(X: Any, most: int) -> Any:
    """Return the products of all pairs of entries of each CSR row, (n, d^2); None above most."""
    n, d = X.shape
    count = np.diff(X.indptr)
    if int(np.sum(count.astype(float) ** 2)) > most:
        return None
    pairs = np.repeat(count, count)
    left = np.repeat(np.arange(X.nnz), pairs)
    first = np.repeat(np.repeat(X.indptr[:-1], count), pairs)
    right = first + np.arange(len(left)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    place = X.indices[left].astype(np.int64) * d + X.indices[right]
    row = np.repeat(np.arange(n), count**2)
    value = X.data[left].astype(float) * X.data[right]
    return sparse.csr_array((value, (row, place)), shape=(n, d**2))


def written_product(A: Any, B: Any) -> Array:
    """Return AB of two sparse matrices as a dense float64 array.

    scikit-learn adds the terms up where they belong, without a sparse product in between, where
    both are of one precision.
    """
    found = safe_sparse_dot(A, B, dense_output=True) if A.dtype == B.dtype else (A @ B).toarray()
    return np.asarray(found, dtype=float)
