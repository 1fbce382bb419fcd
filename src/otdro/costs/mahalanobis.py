"""The Mahalanobis cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from .base import Array, Cost
from .norm import unit


class Mahalanobis(Cost):
    r"""Cost :math:`\sqrt{(u-x)'\Lambda(u-x)}` with the positive definite matrix Lambda as given.

    With :math:`\Lambda = LL'` it is the Euclidean cost after :math:`x \mapsto L'x`, and its dual
    norm is :math:`\sqrt{\beta'\Lambda^{-1}\beta}`.
    """

    geometry = "euclidean"

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def check(self, n_features: int) -> None:
        """Refuse a matrix that is not square, symmetric, positive definite or of another size."""
        matrix = self._square()
        if len(matrix) != n_features:
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

    def factor(self) -> Array:
        """Return the lower Cholesky factor L of the matrix."""
        matrix = self._square()
        asymmetry = np.abs(matrix - matrix.T).max()
        if asymmetry > 1e-10 * np.abs(matrix).max():
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
        """Return ||L^-1 w||_2."""
        return np.linalg.norm(self._whiten(w), axis=-1)

    def direction(self, w: Array) -> Array:
        """Return L^-T u with u = L^-1 w/||L^-1 w||, that is Lambda^-1 w over the dual norm."""
        return self._solve(unit(self._whiten(w)), trans="T")

    def transform(self, X: Array) -> Array:
        """Return X L, whose Euclidean distances are those of this cost."""
        return X @ self.factor()

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return cdist(self.transform(U), self.transform(V))

    def _whiten(self, w: Array) -> Array:
        return self._solve(np.asarray(w, dtype=float))

    def _solve(self, w: Array, trans: str = "N") -> Array:
        columns = w.reshape(-1, w.shape[-1]).T
        found: Array = solve_triangular(  # type: ignore[call-overload]
            self.factor(), columns, lower=True, trans=trans
        )
        return found.T.reshape(w.shape)
