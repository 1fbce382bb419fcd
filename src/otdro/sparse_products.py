"""Products of sparse rows: of their entries, and of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

Array = NDArray[Any]

#: The share of rows with an entry in a sparse column above which products may take it as dense, and
#: the passes over a matrix of products from which they do.
DENSE_COLUMN, DENSE_FROM = 0.1, 8


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


def row_products(X: Any, rows: slice) -> Array:
    """Return XX' of CSR rows, or some of its rows.

    Columns in which more than ``DENSE_COLUMN`` of the rows have an entry are a dense block, where
    that spares many passes over XX': a column of c entries adds c^2 products.
    """
    n, d = X.shape
    # what certificates rest on is added up in float64
    X = X.astype(np.float64, copy=False)
    filled = np.bincount(X.indices, minlength=d) / n
    thick = filled > DENSE_COLUMN
    if np.sum(filled[thick] ** 2) < DENSE_FROM:
        return written_product(X if rows == slice(None) else X[rows], X.T)
    heavy = thick[X.indices]
    thin = _entries(X, ~heavy, X.indices, d)
    K = written_product(thin if rows == slice(None) else thin[rows], thin.T)
    place = (np.cumsum(thick) - 1).astype(X.indices.dtype)
    block = _entries(X, heavy, place[X.indices], int(thick.sum())).toarray()
    K += block[rows] @ block.T
    return K


def _entries(X: Any, kept: Array, columns: Array, d: int) -> Any:
    """Return the CSR matrix of some entries of another, in columns 0 to d of their own."""
    ends = np.append(0, np.cumsum(kept))[X.indptr].astype(X.indptr.dtype)
    return sparse.csr_array((X.data[kept], columns[kept], ends), shape=(X.shape[0], d))


def written_product(A: Any, B: Any) -> Array:
    """Return AB of two sparse matrices as a dense float64 array.

    scikit-learn adds the terms up where they belong, without a sparse product in between, where
    both are of one precision.
    """
    found = safe_sparse_dot(A, B, dense_output=True) if A.dtype == B.dtype else (A @ B).toarray()
    return np.asarray(found, dtype=float)
