"""A positive definite matrix with all its entries, as a Mahalanobis cost uses it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from .norm import unit

Array = NDArray[Any]

#: The largest difference across the diagonal, relative to the largest entry, that is rounding.
SYMMETRIC = 1e-10


@dataclass(frozen=True, eq=False)
class Written:
    """The matrix Lam = LL' of shape (d, d), L lower triangular; along the last axis of arrays."""

    entries: Array

    @classmethod
    def of(cls, matrix: Any) -> Written:
        """Return a matrix as given by a user; refuse one that is not square or not finite."""
        entries = np.asarray(matrix, dtype=float)
        if entries.ndim != 2 or entries.shape[0] != entries.shape[1]:
            raise ValueError(f"the cost matrix must be square, got shape {entries.shape}.")
        if not np.isfinite(entries).all():
            raise ValueError("the cost matrix has NaN or infinite entries.")
        return cls(entries)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d, d)."""
        return self.entries.shape

    @cached_property
    def factor(self) -> Array:
        """L; a matrix that is not symmetric or not positive definite is refused."""
        asymmetry = np.abs(self.entries - self.entries.T).max()
        if asymmetry > SYMMETRIC * np.abs(self.entries).max():
            raise ValueError(
                f"the cost matrix must be symmetric; entries differ by up to {asymmetry:.3g}."
            )
        try:
            return np.linalg.cholesky(self.entries)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(self.entries)[0]
            raise ValueError(
                "the cost matrix must be positive definite; its smallest eigenvalue is "
                f"{smallest:.3g}. Shrink it towards the identity: (1 - eta) * matrix + eta * I."
            ) from None

    def dual_norm(self, w: Array) -> Array:
        """Return ||L^-1 w||_2, the root of w'Lam^-1 w."""
        return np.linalg.norm(self._solved(w), axis=-1)

    def direction(self, w: Array) -> Array:
        """Return Lam^-1 w over the dual norm: L^-T u with u = L^-1 w/||L^-1 w||."""
        return self._solved(unit(self._solved(w)), trans="T")

    def transformed(self, X: Array) -> Array:
        """Return X L."""
        return X @ self.factor

    def _solved(self, w: Array, trans: str = "N") -> Array:
        columns = w.reshape(-1, w.shape[-1]).T
        found: Array = solve_triangular(  # type: ignore[call-overload]
            self.factor, columns, lower=True, trans=trans
        )
        return found.T.reshape(w.shape)
