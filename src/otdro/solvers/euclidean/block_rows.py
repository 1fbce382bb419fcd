"""Sparse rows of many problems, each under its own cost, as blocks of one sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .stack import AsTheyStand

Array = NDArray[Any]


@dataclass(eq=False)
class BlockRows(AsTheyStand):
    """The rows z_i = L_b'x_i of B problems over the same sparse X, L_b = [diag(root_b), F_b].

    They are the blocks of a block-diagonal matrix, so that the products of all problems are one
    call; ``low`` (B, n, k) holds X F_b. Vectors have the problems along their last axis, as those
    of a ``Design`` in a batch. Nothing is centred: an intercept makes a centre irrelevant. Rows
    that a problem does not use (``used``, (B, n)) are zero.
    """

    X: Any
    roots: Array
    low: Array
    used: Array

    @classmethod
    def of(cls, X: Any, factors: list[Any], used: Array) -> BlockRows:
        """Return the rows of a CSR matrix under the factors of some costs, None for I."""
        n, d = X.shape
        known = [(b, factor) for b, factor in enumerate(factors) if factor is not None]
        k = max((factor.shape[1] - d for _, factor in known), default=0)
        roots, low = np.ones((len(factors), d)), np.zeros((len(factors), n, k))
        for b, factor in known:
            F = factor.matrix.components
            roots[b], low[b, :, : F.shape[1]] = factor.root, used[b][:, None] * (X @ F)
        return cls(X, roots, low, used)

    @property
    def n(self) -> int:
        """The rows of a problem."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """The columns of L."""
        return int(self.roots.shape[1] + self.low.shape[2])

    @property
    def sparse(self) -> bool:
        """They are."""
        return True

    def problems(self, index: Array) -> BlockRows:
        """Return the rows of some problems."""
        return BlockRows(self.X, self.roots[index], self.low[index], self.used[index])

    @cached_property
    def _blocks(self) -> Any:
        """The block-diagonal matrix of X diag(root_b), with columns of zeros in place of X F_b."""
        B, X = len(self.roots), self.X
        number = np.arange(B, dtype=X.indices.dtype)[:, None]
        count = np.diff(X.indptr)
        kept = np.repeat(self.used, count, axis=1)
        values = (X.data * self.roots[:, X.indices])[kept]
        columns = (X.indices + self.d * number)[kept]
        ends = np.append(0, np.cumsum(self.used * count)).astype(X.indptr.dtype)
        return sparse.csr_array((values, columns, ends), shape=(B * self.n, B * self.d))

    @cached_property
    def _transposed(self) -> Any:
        return self._blocks.T

    def scores(self, theta: Array) -> Array:
        """Return Z_b theta_b, shape (n, B)."""
        t = np.ascontiguousarray(theta.T)
        z: Array = (self._blocks @ t.ravel()).reshape(len(t), self.n)
        if self.low.size:
            z += (self.low @ t[:, -self.low.shape[2] :, None])[:, :, 0]
        return z.T

    def adjoint(self, r: Array) -> Array:
        """Return Z_b'r_b, shape (d, B)."""
        rows = np.ascontiguousarray(r.T)
        g: Array = (self._transposed @ rows.ravel()).reshape(len(rows), self.d)
        if self.low.size:
            g[:, -self.low.shape[2] :] = (rows[:, None, :] @ self.low)[:, 0]
        return g.T

    def moments(self, D: Array) -> tuple[Array, Array]:
        """Refuse Z_b' diag(D_b) Z_b: it has the square of the number of columns."""
        raise ValueError(f"matrices of {self.d} x {self.d} entries are not formed.")
