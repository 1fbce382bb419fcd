"""Rows of many problems, each with its own, seen through the products of a design."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import namespace, pick

Array = NDArray[Any]


class AsTheyStand:
    """Rows of several problems from which nothing is subtracted."""

    @property
    def d(self) -> int:
        """The columns."""
        raise NotImplementedError

    @property
    def offset(self) -> Array:
        """What is subtracted from each column."""
        return np.zeros(self.d)

    @property
    def rounding(self) -> Array:
        """What is left of the mean square of a column that is constant, beside its own."""
        return np.zeros(self.d)

    def shift(self, theta: Array) -> Array:
        """Return what the centre takes off every score."""
        return np.zeros(theta.shape[1:])

    @property
    def uncentred(self) -> Self:
        """The same."""
        return self


@dataclass(eq=False)
class Stack(AsTheyStand):
    """The rows z_i of B problems as one array Z (B, n, d), where that is.

    Vectors have the problems along their last axis, as those of a ``Design`` in a batch.
    """

    Z: Array

    @property
    def n(self) -> int:
        """The rows of a problem."""
        return int(self.Z.shape[1])

    @property
    def d(self) -> int:
        """The columns."""
        return int(self.Z.shape[2])

    @property
    def sparse(self) -> bool:
        """They are dense."""
        return False

    def problems(self, index: Array) -> Stack:
        """Return the rows of some problems."""
        return Stack(pick(self.Z, index))

    @cached_property
    def _transposed(self) -> Array:
        return namespace(self.Z).matrix_transpose(self.Z)

    def scores(self, theta: Array) -> Array:
        """Return Z_b theta_b, shape (n, B)."""
        found: Array = (self.Z @ theta.T[:, :, None])[:, :, 0].T
        return found

    def adjoint(self, r: Array) -> Array:
        """Return Z_b'r_b, shape (d, B)."""
        found: Array = (r.T[:, None, :] @ self.Z)[:, 0, :].T
        return found

    def moments(self, D: Array) -> tuple[Array, Array]:
        """Return Z_b' diag(D_b) Z_b, shape (B, d, d), and Z_b'D_b, shape (d, B)."""
        return self._transposed @ (D.T[:, :, None] * self.Z), self.adjoint(D)
