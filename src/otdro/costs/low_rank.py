"""A large positive definite matrix that is never written out: a diagonal and a few directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.sparse.linalg import LinearOperator, eigsh

from .norm import unit

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class LowRank:
    r"""The matrix :math:`\Lambda = \mathrm{diag}(a) + FF'`, of shape (d, d).

    ``diagonal`` is a (d,), positive; ``components`` is F (d, k), k far below d. Products and
    solutions take O(dk) steps and no array of size d x d is formed, except by ``toarray``.
    """

    diagonal: Array
    components: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return len(self.diagonal), len(self.diagonal)

    @property
    def trace(self) -> float:
        """The sum of the eigenvalues."""
        return float(self.diagonal.sum() + np.sum(self.components**2))

    def __matmul__(self, v: Array) -> Array:
        """Return Lam v for v of shape (d,) or (d, B)."""
        return _scaled(self.diagonal, v) + self.components @ (self.components.T @ v)

    def solve(self, w: Array) -> Array:
        """Return Lam^-1 w, with the k x k matrix I + F'diag(a)^-1 F (Woodbury)."""
        F, light = self.components, _scaled(1 / self.diagonal, w)
        return light - _scaled(1 / self.diagonal, F @ cho_solve(self._inner, F.T @ light))

    def __getstate__(self) -> dict[str, Any]:
        # what is derived is found again; the factor holds the matrix, which files cannot follow
        return {"diagonal": self.diagonal, "components": self.components}

    @cached_property
    def _inner(self) -> Any:
        F = self.components
        return cho_factor(np.eye(F.shape[1]) + F.T @ (F / self.diagonal[:, None]))

    @cached_property
    def factor(self) -> StructuredFactor:
        """L = [diag(a)^(1/2), F], of shape (d, d + k): Lam = LL'. Parts are checked first."""
        self.check()
        return StructuredFactor(self, np.sqrt(self.diagonal))

    def dual_norm(self, w: Array) -> Array:
        """Return the root of w'Lam^-1 w along the last axis."""
        return np.sqrt(np.sum(w * self._solved(w), axis=-1))

    def direction(self, w: Array) -> Array:
        """Return Lam^-1 w over the dual norm."""
        v = unit(self._solved(w))
        along: Array = v / np.linalg.norm(self.transformed(v), axis=-1)[..., None]
        return along

    def transformed(self, X: Array) -> Array:
        """Return X L along the last axis."""
        X = np.asarray(X, dtype=float)
        rows: Array = self.factor.rows(X.reshape(-1, X.shape[-1]))
        return rows.reshape(*X.shape[:-1], -1)

    def _solved(self, w: Array) -> Array:
        """Return Lam^-1 w along the last axis."""
        return self.solve(w.reshape(-1, w.shape[-1]).T).T.reshape(w.shape)

    def toarray(self) -> Array:
        """Return the matrix written out, for small d."""
        return np.diag(self.diagonal) + self.components @ self.components.T

    def in_units(self, scale: Array) -> LowRank:
        """Return D Lam D, D = diag(scale)."""
        return self.between(scale, np.arange(len(scale)))

    def between(self, move: Array, free: Array) -> LowRank:
        """Return D Lam D over the features ``free``, D = diag(move)."""
        return LowRank(
            move**2 * self.diagonal[free], np.asarray(move[:, None] * self.components[free])
        )

    def extremes(self) -> tuple[Array, Array]:
        """Return the unit eigenvectors to the least and the largest eigenvalue, from products."""
        d = self.shape[0]
        start = np.random.default_rng(0).standard_normal(d)
        found = []
        for product in (self.solve, self.__matmul__):
            operator = LinearOperator((d, d), matvec=product, dtype=float)
            found.append(eigsh(operator, k=1, which="LA", v0=start)[1][:, 0])
        return found[0], found[1]

    def check(self) -> None:
        """Refuse parts that do not fit together or a matrix that is not positive definite."""
        a, F = self.diagonal, self.components
        if a.ndim != 1 or F.ndim != 2 or len(F) != len(a):
            raise ValueError(
                f"diag(a) + FF' needs a of shape (d,) and F of shape (d, k), got {a.shape} and "
                f"{F.shape}."
            )
        if not (np.isfinite(a).all() and np.isfinite(F).all()):
            raise ValueError("the cost matrix has NaN or infinite entries.")
        if a.min() <= 0:
            raise ValueError(
                "the cost matrix diag(a) + FF' must be positive definite; the smallest entry of a "
                f"is {a.min():.3g}. Shrink it towards the identity: (1 - eta) * a + eta."
            )

    def __repr__(self) -> str:
        d, k = self.components.shape
        return f"<diagonal plus rank {k} of shape ({d}, {d})>"


@dataclass(frozen=True, eq=False)
class StructuredFactor:
    """L = [diag(root), F] with LL' = ``matrix``; it acts by products only.

    L is wider than it is high. With beta = L theta and theta the shortest such vector the dual
    norm of beta is ||theta||_2 all the same, and a minimiser is the shortest by itself.
    """

    matrix: LowRank
    root: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d + k)."""
        d, k = self.matrix.components.shape
        return d, d + k

    def __matmul__(self, theta: Array) -> Array:
        """Return L theta."""
        d = len(self.root)
        return _scaled(self.root, theta[:d]) + self.matrix.components @ theta[d:]

    def pull(self, g: Array) -> Array:
        """Return L'g."""
        return np.concatenate([_scaled(self.root, g), self.matrix.components.T @ g])

    def rows(self, X: Any) -> Any:
        """Return X L, sparse where X is."""
        low = X @ self.matrix.components
        if hasattr(X, "toarray"):
            both: Any = [X.multiply(self.root[None]), sparse.csr_array(low)]
            return sparse.csr_array(sparse.hstack(both, format="csr"))
        return np.hstack([X * self.root, low])

    def shortest(self, beta: Array) -> Array:
        """Return the shortest theta with L theta = beta, L'Lam^-1 beta."""
        return self.pull(self.matrix.solve(beta))


def is_structured(matrix: Any) -> bool:
    """Whether a matrix is given by a diagonal and a few directions instead of its entries."""
    return isinstance(matrix, LowRank)


def shortest(factor: Any, beta: Array) -> Array:
    """Return the shortest theta with L theta = beta; a factor without structure is triangular."""
    if isinstance(factor, StructuredFactor):
        return factor.shortest(beta)
    found: Array = solve_triangular(factor, beta, lower=True)
    return found


def blend(matrices: Sequence[Any], weights: Sequence[float] | Array) -> Any:
    """Return sum_c w_c Lam_c. Structured if all are: diagonals add, directions go side by side."""
    if not all(map(is_structured, matrices)):
        return np.einsum("c,cij->ij", np.asarray(weights), np.stack([*map(written, matrices)]))
    pairs = list(zip(matrices, weights, strict=True))
    diagonal = sum((w * m.diagonal for m, w in pairs), np.zeros(matrices[0].shape[0]))
    parts = [(m.components, np.sqrt(w)) for m, w in pairs if w > 0]
    ends = np.cumsum([F.shape[1] for F, _ in parts]).tolist()
    side_by_side = np.empty((len(diagonal), ends[-1]))
    for (F, root), end in zip(parts, ends, strict=True):
        np.multiply(F, root, out=side_by_side[:, end - F.shape[1] : end])
    return LowRank(diagonal, side_by_side)


def written(matrix: Any) -> Array:
    """Return the entries of a matrix, structured or not."""
    entries: Array = matrix.toarray() if is_structured(matrix) else matrix
    return entries


def diagonal(matrix: Any) -> Array:
    """Return the diagonal of a matrix, structured or written out."""
    if is_structured(matrix):
        found: Array = matrix.diagonal + np.einsum("ij,ij->i", matrix.components, matrix.components)
        return found
    return np.diag(np.asarray(matrix, dtype=float))


def identity(d: int) -> LowRank:
    """Return I."""
    return of_diagonal(np.ones(d))


def of_diagonal(a: Array) -> LowRank:
    """Return diag(a)."""
    return LowRank(a, np.empty((len(a), 0)))


def _scaled(a: Array, v: Array) -> Array:
    """Return diag(a) v."""
    found: Array = a * v if v.ndim == 1 else a[:, None] * v
    return found
