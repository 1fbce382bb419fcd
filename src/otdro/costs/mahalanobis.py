"""The Mahalanobis cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.spatial.distance import cdist
from sklearn.base import clone

from .base import Array, Cost
from .norm import unit
from .table import EVEN


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

    def check(self, n_features: int) -> None:
        """Refuse a matrix that is not square, symmetric, positive definite or of another size."""
        L = self.factor()
        if L.shape[0] != n_features:
            raise ValueError(
                f"the cost matrix has shape {np.shape(self.matrix)} but X has {n_features} "
                "features."
            )

    def factor(self) -> Array | StructuredFactor:
        """Return L with LL' = Lambda: lower triangular, or as structured as the matrix is.

        A matrix that is not symmetric or not positive definite is refused.
        """
        if self.structured:
            return self.matrix.factor
        entries = np.asarray(self.matrix, dtype=float)
        if entries.ndim != 2 or entries.shape[0] != entries.shape[1]:
            raise ValueError(f"the cost matrix must be square, got shape {entries.shape}.")
        if not np.isfinite(entries).all():
            raise ValueError("the cost matrix has NaN or infinite entries.")
        asymmetry = np.abs(entries - entries.T).max()
        if asymmetry > EVEN * np.abs(entries).max():
            raise ValueError(
                f"the cost matrix must be symmetric; entries differ by up to {asymmetry:.3g}."
            )
        try:
            return np.linalg.cholesky(entries)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(entries)[0]
            raise ValueError(
                "the cost matrix must be positive definite; its smallest eigenvalue is "
                f"{smallest:.3g}. Shrink it towards the identity: (1 - eta) * matrix + eta * I."
            ) from None

    def norm(self, v: Array) -> Array:
        """Return ||L'v||_2."""
        return np.linalg.norm(self.transform(v), axis=-1)

    def dual_norm(self, w: Array) -> Array:
        """Return ||L^-1 w||_2, the root of w'Lambda^-1 w."""
        columns = np.reshape(w, (-1, np.shape(w)[-1])).T
        sizes = np.linalg.norm(shortest(self.factor(), columns), axis=0)
        return np.asarray(sizes.reshape(np.shape(w)[:-1])[()])

    def direction(self, w: Array) -> Array:
        """Return Lambda^-1 w over the dual norm."""
        w = np.asarray(w, dtype=float)
        columns = w.reshape(-1, w.shape[-1]).T
        L: Any = self.factor()
        solved = self.matrix.solve(columns) if self.structured else cho_solve((L, True), columns)
        v = unit(solved.T.reshape(w.shape))
        along: Array = v / self.norm(v)[..., None]
        return along

    def transform(self, X: Array) -> Array:
        """Return X L, whose Euclidean distances are those of this cost."""
        return self.matrix.transformed(X) if self.structured else X @ self.factor()

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

    def transformed(self, X: Array) -> Array:
        """Return X L along the last axis."""
        X = np.asarray(X, dtype=float)
        rows: Array = self.factor.rows(X.reshape(-1, X.shape[-1]))
        return rows.reshape(*X.shape[:-1], -1)

    def toarray(self) -> Array:
        """Return the matrix written out, for small d."""
        return np.diag(self.diagonal) + self.components @ self.components.T

    def between(self, move: Array, free: Any = slice(None)) -> LowRank:
        """Return D Lam D over the features ``free``, all by default, D = diag(move)."""
        return LowRank(
            move**2 * self.diagonal[free], np.asarray(move[:, None] * self.components[free])
        )

    def extremes(self) -> tuple[Array, Array]:
        """Return the unit eigenvectors to the least and the largest eigenvalue, from products."""
        d = self.shape[0]
        start = np.random.default_rng(0).standard_normal(d)
        vectors = []
        for product in (self.solve, self.__matmul__):
            operator = LinearOperator((d, d), matvec=product, dtype=float)
            vectors.append(eigsh(operator, k=1, which="LA", v0=start)[1][:, 0])
        return vectors[0], vectors[1]

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
    theta: Array = solve_triangular(factor, beta, lower=True)
    return theta


def blend(matrices: Sequence[Any], weights: Sequence[float] | Array) -> Any:
    """Return sum_c w_c Lam_c. Structured if all are: diagonals add, directions go side by side."""
    if not all(map(is_structured, matrices)):
        return np.einsum("c,cij->ij", np.asarray(weights), np.stack([*map(written, matrices)]))
    pairs = list(zip(matrices, weights, strict=True))
    diagonal = sum((w * m.diagonal for m, w in pairs), np.zeros(matrices[0].shape[0]))
    parts = [np.sqrt(w) * m.components for m, w in pairs if w > 0]
    return LowRank(diagonal, np.hstack(parts))


def written(matrix: Any) -> Array:
    """Return the entries of a matrix, structured or not."""
    entries: Array = matrix.toarray() if is_structured(matrix) else matrix
    return entries


def diagonal(matrix: Any) -> Array:
    """Return the diagonal of a matrix, structured or written out."""
    if is_structured(matrix):
        entries: Array = matrix.diagonal + (matrix.components**2).sum(axis=1)
        return entries
    return np.diag(np.asarray(matrix, dtype=float))


def identity(d: int) -> LowRank:
    """Return I."""
    return of_diagonal(np.ones(d))


def of_diagonal(a: Array) -> LowRank:
    """Return diag(a)."""
    return LowRank(a, np.empty((len(a), 0)))


def _scaled(a: Array, v: Array) -> Array:
    """Return diag(a) v."""
    product: Array = a * v if v.ndim == 1 else a[:, None] * v
    return product


#: The least shrinkage: it keeps the matrix positive definite where what was learned is not.
LEAST_SHRINKAGE = 1e-6


def check_shrinkage(shrinkage: Any) -> None:
    """Refuse a shrinkage outside [0, 1]."""
    if not (isinstance(shrinkage, (int, float, np.number)) and 0 <= shrinkage <= 1):
        raise ValueError(f"shrinkage must be a number in [0, 1], got {shrinkage!r}.")


def shrink(matrix: Any, shrinkage: float) -> Any:
    """Return (1 - eta) matrix d/tr(matrix) + eta I, eta = max(shrinkage, LEAST_SHRINKAGE)."""
    check_shrinkage(shrinkage)
    d, eta = matrix.shape[0], max(float(shrinkage), LEAST_SHRINKAGE)
    if is_structured(matrix):
        return blend([matrix, identity(d)], [(1 - eta) * d / matrix.trace, eta])
    matrix = (matrix + matrix.T) / 2
    metric: Array = (1 - eta) * matrix * (d / np.trace(matrix)) + eta * np.eye(d)
    return metric


def seeded(learner: Any) -> Any:
    """Return an unfitted copy of a learner whose random_state None is the seed 0."""
    learner = clone(learner)
    parameters = learner.get_params(deep=False)
    if "random_state" in parameters and parameters["random_state"] is None:
        learner.set_params(random_state=0)
    return learner


def fitted_matrix(learner: Any) -> Any:
    """Return the matrix of a fitted metric learner, structured or not; refuse other objects.

    It is ``get_mahalanobis_matrix()``, L'L with L = ``components_``, or ``metric_``, whichever the
    learner has first.
    """
    if hasattr(learner, "get_mahalanobis_matrix"):
        matrix = np.asarray(learner.get_mahalanobis_matrix(), dtype=float)
    elif hasattr(learner, "components_"):
        L = np.asarray(learner.components_, dtype=float)
        matrix = L.T @ L
    elif hasattr(learner, "metric_"):
        if is_structured(learner.metric_):
            return learner.metric_
        matrix = np.asarray(learner.metric_, dtype=float)
    else:
        raise TypeError(
            f"{type(learner).__name__} is not a metric learner: after fit it has neither "
            "components_ nor get_mahalanobis_matrix()."
        )
    if not (np.isfinite(matrix).all() and np.trace(matrix) > 0):
        raise ValueError(f"{type(learner).__name__} learned a zero or non-finite matrix.")
    return matrix


def definite_matrix(learner: Any) -> Any:
    """Return the matrix of a fitted learner as a cost needs it: positive definite.

    A learner of otdro leaves that as ``metric_``; the matrix of another one may be singular, and
    gets trace d and the share ``LEAST_SHRINKAGE`` of the identity.
    """
    matrix = fitted_matrix(learner)
    return matrix if hasattr(learner, "metric_") else shrink(matrix, LEAST_SHRINKAGE)
