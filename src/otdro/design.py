"""The rows of a problem, touched only through products: the one module that reads X."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[Any]

#: Products of pairs of entries within rows that are kept.
PRODUCTS_UP_TO = 2_000_000
#: Bytes of a block of rows that is cast, centred or scaled at a time.
BLOCK_BYTES = 2**21


def as_dense(X: Any) -> Array:
    """Return X as a dense array."""
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


class Design:
    r"""The rows :math:`z_i = L'(x_i - \bar x)`, :math:`z_i'\theta = (x_i - \bar x)'\beta`.

    They are never formed: L acts on the coefficients (:math:`\beta = L\theta`), the centre on the
    products.

    ``X`` is a dense float array or CSR matrix of shape (n, d), ``factor`` is L (None: identity) and
    ``center`` the vector subtracted (None: zero).
    Vectors may be batched as columns. Blocks of float32 rows are cast to float64 as they are used.
    """

    def __init__(self, X: Any, factor: Array | None = None, center: Array | None = None) -> None:
        self.X, self.factor, self.center = X, factor, center
        self.n, self.d = X.shape
        self.sparse = bool(sparse.issparse(X))
        self._direct = self.sparse or X.dtype == np.float64

    def rows(self, index: Array) -> Design:
        """Return the design of some rows, with the same factor and centre."""
        return Design(self.X[index], self.factor, self.center)

    def coef(self, theta: Array) -> Array:
        """Return beta = L theta."""
        return theta if self.factor is None else self.factor @ theta

    def _pull(self, g: Array) -> Array:
        """Return L'g."""
        return g if self.factor is None else self.factor.T @ g

    def scores(self, theta: Array) -> Array:
        """Return Z theta, shape (n,) or (n, B)."""
        if theta.ndim == 2 and theta.shape[1] == 1:
            return self.scores(theta[:, 0])[:, None]
        beta = self.coef(theta)
        if self._direct:
            z: Array = self.X @ beta
        else:
            z = np.concatenate([block @ beta for _, block in self._blocks(center=False)])
        if self.center is not None:
            z -= self.center @ beta
        return z

    def adjoint(self, r: Array) -> Array:
        """Return Z'r, shape (d,) or (d, B)."""
        if r.ndim == 2 and r.shape[1] == 1:
            return self.adjoint(r[:, 0])[:, None]
        if self.sparse:
            g: Array = self.X.T @ r
        elif self._direct:
            # (r'X)' reads X along its rows also for a batch
            g = (r.T @ self.X).T
        else:
            g = sum(
                (block.T @ r[rows] for rows, block in self._blocks(center=False)),
                np.zeros((self.d, *r.shape[1:])),
            )
        if self.center is not None:
            g = g - (self.center[:, None] * r.sum(0) if r.ndim == 2 else self.center * r.sum())
        return self._pull(g)

    def gram(self, D: Array) -> Array:
        """Return Z' diag(D) Z for D >= 0, shape (d, d), or (B, d, d) for D of shape (n, B)."""
        return self.moments(D)[0] if D.ndim == 1 or D.shape[1] == 1 else self._gram_batch(D)

    def moments(self, D: Array) -> tuple[Array, Array]:
        """Return Z' diag(D) Z and Z'D for D >= 0, shapes as of ``gram`` and ``adjoint``.

        Of one column they come from one pass over the rows.
        """
        if D.ndim == 2:
            if D.shape[1] > 1:
                return self._gram_batch(D), self.adjoint(D)
            G, s = self.moments(D[:, 0])
            return G[None], s[:, None]
        G, s = self._sparse_moments(D) if self.sparse else self._dense_moments(D, center=False)
        if self.center is not None:
            c, total = self.center, D.sum()
            # sum D (x - c)(x - c)'
            G = G + total * np.outer(c, c) - np.outer(s, c) - np.outer(c, s)
            s = s - total * c
            # where the mean dwarfs the spread, subtracting squares loses digits: centre the rows
            if not self.sparse and not np.all(np.diag(G) > 1e-4 * total * c**2):
                G, s = self._dense_moments(D, center=True)
        return (G if self.factor is None else self.factor.T @ G @ self.factor), self._pull(s)

    def _sparse_moments(self, D: Array) -> tuple[Array, Array]:
        """Return X' diag(D) X and X'D."""
        G: Array = (self.X.T @ self.X.multiply(D[:, None])).toarray().astype(float)
        return G, np.asarray(self.X.T @ D)

    def _dense_moments(self, D: Array, center: bool) -> tuple[Array, Array]:
        """Return X' diag(D) X and X'D, of centred rows if asked; equal entries of D scale both."""
        G, s = np.zeros((self.d, self.d)), np.zeros(self.d)
        equal, root = D[0] if D.min() == D.max() else None, np.sqrt(D)
        for rows, block in self._blocks(center):
            if equal is None:
                S = block * root[rows, None]
                s += root[rows] @ S
            else:
                S = block
                s += np.ones(len(S)) @ S
            G += S.T @ S
        return (G, s) if equal is None else (equal * G, equal * s)

    def _gram_batch(self, D: Array) -> Array:
        B = D.shape[1]
        if not self.sparse and self.n * self.d**2 <= PRODUCTS_UP_TO:
            return np.asarray((D.T @ self._row_products).reshape(B, self.d, self.d))
        G = np.zeros((B, self.d, self.d))
        if self.sparse and self._products is not None:
            G += np.asarray(self._products.T @ D).T.reshape(B, self.d, self.d)
            self._centre_batch(G, D)
        elif self.sparse:
            return np.stack([self.gram(D[:, b]) for b in range(B)])
        else:
            step = max(1, BLOCK_BYTES // (8 * max(1, self.d * min(self.n, 4096))))
            for rows, block in self._blocks(center=True):
                for b in range(0, B, step):
                    W = D[rows, b : b + step].T[:, None, :]
                    G[b : b + step] += (block.T[None] * W) @ block
        if self.factor is None:
            return G
        return np.swapaxes(self.factor, -1, -2) @ G @ self.factor

    @cached_property
    def _row_products(self) -> Array:
        """The products of all pairs of entries of each row z_i, shape (n, d^2)."""
        Z = self.dense()
        return (Z[:, :, None] * Z[:, None, :]).reshape(self.n, -1)

    def _centre_batch(self, G: Array, D: Array) -> None:
        """Turn X'DX into that of centred rows, for every column of D."""
        if self.center is None:
            return
        c, s = self.center, np.asarray(self.X.T @ D).T
        cross = s[:, :, None] * c
        G += D.sum(axis=0)[:, None, None] * np.outer(c, c) - cross - np.swapaxes(cross, 1, 2)

    @cached_property
    def _products(self) -> Any:
        """The products of all pairs of entries of each sparse row, shape (n, d^2); None if many.

        With them the Gram matrices of many weights are one sparse product.
        """
        X = self.X.tocsr()
        count = np.diff(X.indptr)
        if int(np.sum(count.astype(float) ** 2)) > PRODUCTS_UP_TO:
            return None
        pairs = np.repeat(count, count)
        left = np.repeat(np.arange(X.nnz), pairs)
        first = np.repeat(np.repeat(X.indptr[:-1], count), pairs)
        right = first + np.arange(len(left)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        place = X.indices[left].astype(np.int64) * self.d + X.indices[right]
        row = np.repeat(np.arange(self.n), count**2)
        value = X.data[left].astype(float) * X.data[right]
        return sparse.csr_array((value, (row, place)), shape=(self.n, self.d**2))

    def squared_norms(self) -> Array:
        """Return |z_i|^2 of every row."""
        if self.sparse and self.factor is None:
            squares = np.asarray(self.X.multiply(self.X).sum(axis=1), dtype=float).ravel()
            if self.center is None:
                return squares
            shifted = squares - 2 * (self.X @ self.center) + self.center @ self.center
            return np.maximum(shifted, 0.0)
        found = np.empty(self.n)
        for rows, block in self._blocks(center=True):
            Z = block if self.factor is None else block @ self.factor
            found[rows] = np.einsum("ij,ij->i", Z, Z)
        return found

    def dense(self) -> Array:
        """Return Z itself as a float64 array, for factorisations that need it."""
        X = np.asarray(as_dense(self.X), dtype=float)
        Z = X if self.center is None else X - self.center
        return Z if self.factor is None else Z @ self.factor

    def _blocks(self, center: bool) -> Iterator[tuple[slice, Array]]:
        step = max(1, BLOCK_BYTES // (8 * max(1, self.d)))
        for start in range(0, self.n, step):
            rows = slice(start, min(start + step, self.n))
            block = np.asarray(as_dense(self.X[rows]), dtype=float)
            shifted = center and self.center is not None
            yield rows, (block - self.center if shifted else block)


def row_space(design: Design) -> tuple[Design, Array]:
    """Return the design with rows Z V and the orthonormal V (d x rank) that spans the rows of Z.

    A minimiser of any function of Z theta and ||theta||_2 lies in that span: theta = V eta, with
    equal norms.
    """
    U, s, Vt = np.linalg.svd(design.dense(), full_matrices=False)
    keep = s > 1e-14 * max(s[0], np.finfo(float).tiny) if len(s) else np.zeros(0, dtype=bool)
    keep[:1] = True
    return Design(U[:, keep] * s[keep]), Vt[keep].T


def mean(X: Any, weights: Array) -> Array:
    """Return the weighted mean row of X, for weights with sum 1."""
    return Design(X).adjoint(weights)


def column_scale(X: Any, weights: Array) -> Array:
    """Return the weighted standard deviation of every column."""
    center = mean(X, weights)
    if sparse.issparse(X):
        rows: Any = X
        square = np.asarray(rows.multiply(rows).T @ weights)
        return np.sqrt(np.maximum(square - center**2, 0.0))
    return np.sqrt(weights @ (np.asarray(X, dtype=float) - center) ** 2)
