"""The Mahalanobis cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from .base import Array, Cost
from .low_rank import LowRank, StructuredFactor, diagonal, is_structured
from .written import Written


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

    @property
    def structured(self) -> bool:  # type: ignore[override]
        """Whether the matrix is a ``LowRank``."""
        return is_structured(self.matrix)

    @property
    def _definite(self) -> Written | LowRank:
        return self.matrix if self.structured else Written.of(self.matrix)

    def check(self, n_features: int) -> None:
        """Refuse a matrix that is not square, symmetric, positive definite or of another size."""
        matrix = self._definite
        if matrix.shape[0] != n_features:
            raise ValueError(
                f"the cost matrix has shape {matrix.shape} but X has {n_features} features."
            )
        self.factor()

    def factor(self) -> Array | StructuredFactor:
        """Return L with LL' = Lambda: lower triangular, or as structured as the matrix is."""
        return self._definite.factor

    def norm(self, v: Array) -> Array:
        """Return ||L'v||_2."""
        return np.linalg.norm(self.transform(v), axis=-1)

    def dual_norm(self, w: Array) -> Array:
        """Return the root of w'Lambda^-1 w."""
        return self._definite.dual_norm(np.asarray(w, dtype=float))

    def direction(self, w: Array) -> Array:
        """Return Lambda^-1 w over the dual norm."""
        return self._definite.direction(np.asarray(w, dtype=float))

    def transform(self, X: Array) -> Array:
        """Return X L, whose Euclidean distances are those of this cost."""
        return self._definite.transformed(X)

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return cdist(self.transform(U), self.transform(V))

    def _prices(self, move: Array) -> Array:
        """Return the price of moving each feature alone: Lambda_jj^(1/2) times the move."""
        return move * np.sqrt(diagonal(self.matrix))

    def _extreme_loadings(self, move: Array, free: Array) -> tuple[Array, Array]:
        """Return the extremes, of a structured matrix without writing it out."""
        if self.structured:
            return self.matrix.between(move, free).extremes()
        return super()._extreme_loadings(move, free)
