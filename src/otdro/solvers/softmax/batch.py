"""Products with the rows of many problems: the same rows for all, or rows of their own."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import beside, namespace, numpy, pick
from ...design import PRODUCTS_UP_TO, Design

Array = NDArray[Any]


class Products(Protocol):
    """Products with rows Z (n, d), along the last two axes of arrays.

    What has an entry per row is where Z is, all else NumPy.
    """

    n: int
    d: int

    @property
    def offset(self) -> Array:
        """What is subtracted from each column, (d,)."""

    @property
    def rounding(self) -> Array:
        """What is left of the mean square of a column that is constant, (d,)."""

    def columns(self, index: Any) -> Products:
        """Return those of some problems."""

    def scores(self, C: Array) -> Array:
        """Return Z C, (n, k) from (d, k)."""

    def adjoint(self, a: Array) -> Array:
        """Return Z'a, (d, k) from (n, k)."""

    def grams(self, D: Array) -> Array:
        """Return Z' diag(D) Z of every column of D (n, k) >= 0, (k, d, d)."""


class SharedRows:
    """One design for all problems."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.n = design.n
        self.d = design.d

    @property
    def offset(self) -> Array:
        """That of the design."""
        return self.design.offset

    @property
    def rounding(self) -> Array:
        """That of the design."""
        return self.design.rounding

    def columns(self, index: Any) -> SharedRows:
        """Return the same rows."""
        return self

    def scores(self, C: Array) -> Array:
        """Return Z C."""
        return _as_one_matrix(self.design.scores, C)

    def adjoint(self, a: Array) -> Array:
        """Return Z'a."""
        return _as_one_matrix(self.design.adjoint, a)

    def grams(self, D: Array) -> Array:
        """Return Z' diag(D) Z of every column of D; of many rows one by one, by symmetry."""
        flat = namespace(D).moveaxis(D, -2, 0)
        columns = flat.reshape(self.n, -1)
        if self.n * self.d**2 <= PRODUCTS_UP_TO:
            found = self.design.gram(columns)
        else:
            found = np.stack([self.design.gram(columns[:, j]) for j in range(columns.shape[1])])
        return found.reshape(*flat.shape[1:], self.d, self.d)


class OwnRows:
    """Rows Z (B, n, d), those of each problem."""

    def __init__(self, Z: Array) -> None:
        self.Z = Z
        self.n, self.d = Z.shape[1:]

    @property
    def offset(self) -> Array:
        """Nothing: the rows are as they stand here."""
        return np.zeros(self.d)

    @property
    def rounding(self) -> Array:
        """Nothing."""
        return np.zeros(self.d)

    def columns(self, index: Any) -> OwnRows:
        """Return those of some problems."""
        part = OwnRows(pick(self.Z, index))
        if "_products" in self.__dict__:
            part.__dict__["_products"] = pick(self._products, index)
        return part

    def scores(self, C: Array) -> Array:
        """Return Z C."""
        return self.Z @ beside(C, self.Z)

    def adjoint(self, a: Array) -> Array:
        """Return Z'a."""
        return numpy(namespace(a).swapaxes(self.Z, 1, 2) @ a)

    @cached_property
    def _products(self) -> Array:
        """The products of all pairs of entries of each row, (B, n, d^2)."""
        return (self.Z[..., :, None] * self.Z[..., None, :]).reshape(*self.Z.shape[:2], -1)

    def grams(self, D: Array) -> Array:
        """Return Z' diag(D) Z of every column of D."""
        found = numpy(namespace(D).swapaxes(D, 1, 2) @ self._products)
        return found.reshape(*found.shape[:2], self.d, self.d)


def _as_one_matrix(product: Any, a: Array) -> Any:
    """Return a product with a (s, k), or with a (B, s, k) as one of B k columns."""
    if a.ndim == 2:
        return product(a)
    B, s, k = a.shape
    if B == 1:
        return product(a[0])[None]
    found = product(namespace(a).moveaxis(a, 1, 0).reshape(s, B * k))
    return namespace(found).moveaxis(found.reshape(-1, B, k), 0, 1)
