"""Products with the rows of many problems: the same rows for all, or rows of their own."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import beside, namespace, numpy, pick
from ...design import PRODUCTS_UP_TO, Design

Array = NDArray[Any]


class SharedRows:
    """One design, of one problem: products along the last two axes of arrays, Z (n, d).

    What has an entry per row is where Z is, all else NumPy. ``offset`` and ``rounding`` (d,) are
    those of the design.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        self.n, self.d = design.n, design.d
        self.offset, self.rounding = design.offset, design.rounding

    def columns(self, index: Any) -> SharedRows:
        """Return the same rows."""
        return self

    def scores(self, C: Array) -> Array:
        """Return Z C, (n, k) from (d, k)."""
        return self.design.scores(C) if C.ndim == 2 else self.design.scores(C[0])[None]

    def adjoint(self, a: Array) -> Array:
        """Return Z'a, (d, k) from (n, k)."""
        return self.design.adjoint(a) if a.ndim == 2 else self.design.adjoint(a[0])[None]

    def grams(self, D: Array) -> Array:
        """Return Z' diag(D) Z of every column of D (n, k) >= 0, (k, d, d).

        Of many rows they are taken one by one, by symmetry.
        """
        columns = D.reshape(self.n, -1)
        if self.n * self.d**2 <= PRODUCTS_UP_TO:
            found = self.design.gram(columns)
        else:
            found = np.stack([self.design.gram(columns[:, j]) for j in range(columns.shape[1])])
        return found if D.ndim == 2 else found[None]


class OwnRows:
    """Rows Z (B, n, d), those of each problem, with the products of ``SharedRows``."""

    def __init__(self, Z: Array) -> None:
        self.Z = Z
        _, self.n, self.d = Z.shape
        # nothing is subtracted from these rows
        self.offset = self.rounding = np.zeros(self.d)

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


#: Products with the rows of one problem, or of several.
Products = SharedRows | OwnRows
