"""The Mahalanobis cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from .base import Array, Cost
from .low_rank import LowRank, StructuredFactor, diagonal
from .norm import unit

#: The largest difference across the diagonal, relative to the largest entry, that is rounding.
SYMMETRIC = 1e-10


class Mahalanobis(Cost):
    r"""Cost :math:`\sqrt{(u-x)'\Lambda(u-x)}` with the positive definite matrix Lambda as given.

    With :math:`\Lambda = LL'` it is the Euclidean cost after :math:`x \mapsto L'x`, and its dual
    norm is :math:`\sqrt{\beta'\Lambda^{-1}\beta}`.

    Parameters
    ----------
    matrix : ndarray of shape (d, d) or LowRank
        Lambda, symmetric positive definite; for large d a diagonal plus FF' with few columns, of
        which no entry is written out.

    Examples
    --------
    Moving the first column costs twice as much as moving the second:

    >>> import numpy as np
    >>> from otdro.costs import Mahalanobis
    >>> Mahalanobis(np.diag([4.0, 1.0])).norm(np.eye(2)).tolist()
    [2.0, 1.0]
    """

    geometry = "euclidean"

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def check(self, n_features: int) -> None:
        """Refuse a matrix that is not square, symmetric, positive definite or of another size."""
        matrix = self.matrix if isinstance(self.matrix, LowRank) else self._square()
        if matrix.shape[0] != n_features:
            raise ValueError(
                f"the cost matrix has shape {matrix.shape} but X has {n_features} features."
            )
        self.factor()

    def _square(self) -> Array:
        matrix = np.asarray(self.matrix, dtype=float)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the cost matrix must be square, got shape {matrix.shape}.")
        if not np.isfinite(matrix).all():
            raise ValueError("the cost matrix has NaN or infinite entries.")
        return matrix

    def factor(self) -> Array | StructuredFactor:
        """Return L with LL' = Lambda: lower triangular, or as structured as the matrix is."""
        if isinstance(self.matrix, LowRank):
            self.matrix.check()
            return self.matrix.factor
        return self._cholesky()

    def _cholesky(self) -> Array:
        matrix = self._square()
        asymmetry = np.abs(matrix - matrix.T).max()
        if asymmetry > SYMMETRIC * np.abs(matrix).max():
            raise ValueError(
                f"the cost matrix must be symmetric; entries differ by up to {asymmetry:.3g}."
            )
        try:
            return np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(matrix)[0]
            raise ValueError(
                "the cost matrix must be positive definite; its smallest eigenvalue is "
                f"{smallest:.3g}. Shrink it towards the identity: (1 - eta) * matrix + eta * I."
            ) from None

    def norm(self, v: Array) -> Array:
        """Return ||L'v||_2."""
        return np.linalg.norm(self.transform(v), axis=-1)

    def dual_norm(self, w: Array) -> Array:
        """Return the root of w'Lambda^-1 w."""
        w = np.asarray(w, dtype=float)
        if isinstance(self.matrix, LowRank):
            return np.sqrt(np.sum(w * self._solved(self.matrix, w), axis=-1))
        return np.linalg.norm(self._solve(w), axis=-1)

    def direction(self, w: Array) -> Array:
        """Return Lambda^-1 w over the dual norm."""
        w = np.asarray(w, dtype=float)
        if isinstance(self.matrix, LowRank):
            v = unit(self._solved(self.matrix, w))
            along: Array = v / self.norm(v)[..., None]
            return along
        # L^-T u with u = L^-1 w/||L^-1 w||
        return self._solve(unit(self._solve(w)), trans="T")

    def transform(self, X: Array) -> Array:
        """Return X L, whose Euclidean distances are those of this cost."""
        if isinstance(self.matrix, LowRank):
            X = np.asarray(X, dtype=float)
            rows: Array = self.matrix.factor.rows(X.reshape(-1, X.shape[-1]))
            return rows.reshape(*X.shape[:-1], -1)
        return X @ self._cholesky()

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return cdist(self.transform(U), self.transform(V))

    def _prices(self, move: Array) -> Array:
        """Return the price of moving each feature alone: Lambda_jj^(1/2) times the move."""
        return move * np.sqrt(diagonal(self.matrix))

    def _extreme_loadings(self, move: Array, free: Array) -> tuple[Array, Array]:
        """Return the extremes, of a structured matrix without writing it out."""
        if isinstance(self.matrix, LowRank):
            return self.matrix.between(move, free).extremes()
        return super()._extreme_loadings(move, free)

    def _solved(self, matrix: LowRank, w: Array) -> Array:
        """Return Lambda^-1 w along the last axis."""
        return matrix.solve(w.reshape(-1, w.shape[-1]).T).T.reshape(w.shape)

    def _solve(self, w: Array, trans: str = "N") -> Array:
        columns = w.reshape(-1, w.shape[-1]).T
        found: Array = solve_triangular(  # type: ignore[call-overload]
            self._cholesky(), columns, lower=True, trans=trans
        )
        return found.T.reshape(w.shape)
