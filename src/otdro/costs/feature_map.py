"""The Mahalanobis cost after a feature map (DRO-NL)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone

from ..design import WRITTEN_UP_TO
from .base import Array, Cost, central
from .mahalanobis import definite_matrix, is_structured, seeded

#: An eigenvalue of a local matrix this small, relative to the largest entry, is zero.
FLAT = 1e-12
#: Rows from which the metric of more than ``WRITTEN_UP_TO`` features is learned, at most: with
#: thousands of features more rows would take gigabytes.
LEARN_FROM = 1_000
#: Entries of features or Jacobians that are in memory at a time.
BLOCK = 2**22


@dataclass(eq=False, repr=False)
class FeatureMap(Cost):
    r"""Cost :math:`\|\Phi(u) - \Phi(x)\|_\Lambda` of a move, for a model that stays linear in x.

    Parameters
    ----------
    features : "quadratic", or a transformer
        :math:`\Phi`: all linear and quadratic terms, or any scikit-learn transformer. It should be
        one-to-one, so that a move is never free.
    metric : None, ndarray of shape (l,) or (l, l), or a metric learner
        :math:`\Lambda` on the features: the identity, a diagonal, a full matrix. A learner is
        fitted on the features by ``learn``; of many features it leaves a diagonal and a few
        directions.
    jacobian : callable or None
        X of shape (n, d) to dPhi/dx of shape (n, l, d). None: analytic for polynomials, else
        central differences.
    linearised : bool
        Whether the squared cost is linearised at each row, (u - x)'A(x)(u - x) with A = J'Lam J:
        then a fit is certified. False is the cost itself, for ``solver="smoothed"`` only.
    """

    geometry = "local"
    learns = True

    features: Any = "quadratic"
    metric: Any = None
    jacobian: Any = None
    linearised: bool = True

    def learn(self, X: Array, y: Array) -> FeatureMap:
        """Return the cost with the transformer fitted and the metric learned on the features."""
        features, metric = self.features, self.metric
        if not isinstance(features, str):
            features = clone(features).fit(X)
        fitted = FeatureMap(features, metric, self.jacobian, self.linearised)
        if hasattr(metric, "fit"):
            fitted.metric = fitted._learned_metric(X, y)
        fitted._check_metric(fitted.map(X[:1]).shape[1])
        return fitted

    def _learned_metric(self, X: Array, y: Array) -> Any:
        """Return Lam as the learner leaves it: a diagonal, a full matrix, or a ``LowRank``."""
        if self.map(X[:1]).shape[1] > WRITTEN_UP_TO and len(X) > LEARN_FROM:
            index = np.random.default_rng(0).choice(len(X), LEARN_FROM, replace=False)
            X, y = X[index], y[index]
        matrix = definite_matrix(seeded(self.metric).fit(self.map(X), y))
        if is_structured(matrix):
            return matrix if matrix.components.shape[1] else matrix.diagonal
        diagonal = np.diag(matrix)
        return diagonal if np.count_nonzero(matrix) == np.count_nonzero(diagonal) else matrix

    def _check_metric(self, n_features: int) -> None:
        """Refuse prices that are not positive, or not one for every feature."""
        if self.metric is None:
            return
        shape = np.shape(self.metric)
        if shape not in ((n_features,), (n_features, n_features)):
            raise ValueError(f"metric has shape {shape} but the map has {n_features} features.")
        if is_structured(self.metric):
            self.metric.check()
            return
        metric = np.asarray(self.metric, dtype=float)
        least = metric.min() if metric.ndim == 1 else np.linalg.eigvalsh(metric)[0]
        if not (np.isfinite(metric).all() and least > 0):
            raise ValueError(f"metric must be positive definite, its least value is {least:g}.")

    def check(self, n_features: int) -> None:
        """Refuse an unknown name and a metric that is still to be learned."""
        if isinstance(self.features, str) and self.features != "quadratic":
            raise ValueError(
                f"unknown features={self.features!r}; use 'quadratic' or a transformer."
            )
        if hasattr(self.metric, "fit"):
            raise ValueError("the metric is still to be learned: call learn(X, y) first.")

    def map(self, X: Array) -> Array:
        """Return Phi(X)."""
        if isinstance(self.features, str):
            return quadratic(X.shape[1]).map(X)
        features = self.features.transform(X)
        if hasattr(features, "toarray"):
            features = features.toarray()
        features = np.asarray(features, dtype=float)
        if features.ndim != 2 or len(features) != len(X):
            raise ValueError(
                f"the feature map {type(self.features).__name__} must keep the number of rows: it "
                f"returned shape {features.shape} for {len(X)} rows."
            )
        return features

    def transform(self, X: Array) -> Array:
        """Return Phi(X) in coordinates whose Euclidean distances are those of the cost."""
        features = self.map(X)
        if is_structured(self.metric):
            coordinates: Array = self.metric.transformed(features)
            return coordinates
        diagonal, factor = self._parts()
        return np.asarray(features * np.sqrt(diagonal) if factor is None else features @ factor)

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return np.asarray(cdist(self.transform(U), self.transform(V)))

    def derivative(self, X: Array) -> Array:
        """Return the Jacobian of Phi at the rows of X, shape (n, l, d)."""
        if self.jacobian is not None:
            return np.asarray(self.jacobian(X), dtype=float)
        monomials = self._monomials(X.shape[1])
        return central(self.map, X) if monomials is None else monomials.jacobian(X)

    def price(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return ||Phi(u) - Phi(x)||_Lam^order for rows u, x."""
        v = self.map(U) - self.map(X)
        square = np.einsum("nl,nl->n", self._weighted(v), v)
        return np.asarray(np.maximum(square, 0.0) ** (order / 2))

    def price_gradient(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return the gradient of the squared cost, 2 J(u)'Lam (Phi(u) - Phi(x))."""
        push = 2 * self._weighted(self.map(U) - self.map(X))
        monomials = self._monomials(U.shape[1])
        if monomials is not None:
            return monomials.pull(U, push)
        return np.asarray(np.einsum("nld,nl->nd", self.derivative(U), push))

    def shape(self, X: Array) -> Array:
        """Return A(x) = J'Lam J, the local matrix of the squared cost, shape (n, d, d)."""
        A = self._local(X)
        try:
            np.linalg.cholesky(A - FLAT * np.abs(A).max() * np.eye(X.shape[1]))
        except np.linalg.LinAlgError:
            row = int(np.linalg.eigvalsh(A)[:, 0].argmin())
            raise ValueError(
                f"the feature map is flat at row {row}: a move there is free. "
                "Add the linear terms to the features."
            ) from None
        return A

    def _parts(self) -> tuple[Array, Array | None]:
        """Return a, a scalar or of shape (l,), and F (l, k) or None: Lam = diag(a) + FF'."""
        if self.metric is None:
            return np.ones(()), None
        if is_structured(self.metric):
            return self.metric.diagonal, self.metric.components
        metric = np.asarray(self.metric, dtype=float)
        if metric.ndim == 1:
            return metric, None
        return np.zeros(()), np.linalg.cholesky(metric)

    def _weighted(self, v: Array) -> Array:
        """Return the rows Lam v."""
        diagonal, F = self._parts()
        return np.asarray(v * diagonal if F is None else v * diagonal + (v @ F) @ F.T)

    def _monomials(self, n_features: int) -> Monomials | None:
        """Return the features as products of columns, None where they are something else."""
        if self.jacobian is not None:
            return None
        if isinstance(self.features, str):
            return quadratic(n_features)
        powers = getattr(self.features, "powers_", None)
        return None if powers is None else Monomials.of_powers(powers)

    def _local(self, X: Array) -> Array:
        """Return J'diag(a)J + (J'F)(J'F)', a matrix per row; the rows go in blocks."""
        n, d = X.shape
        monomials = self._monomials(d)
        size = self.map(X[:1]).shape[1]
        # the Jacobian of a polynomial is sparse
        step = max(1, BLOCK // (size if monomials is not None else size * d))
        A = np.empty((n, d, d))
        for start in range(0, n, step):
            rows = X[start : start + step]
            A[start : start + step] = self._local_block(rows, monomials)
        return A

    def _local_block(self, X: Array, monomials: Monomials | None) -> Array:
        diagonal, F = self._parts()
        if monomials is None:
            J = np.swapaxes(self.derivative(X), 1, 2)
            A: Array = (J * diagonal) @ np.swapaxes(J, 1, 2)
            pulled = None if F is None else J @ F
        else:
            A = monomials.gram(X, diagonal)
            pulled = None if F is None else np.stack([*monomials.pulled(X, F)])
        return A if pulled is None else A + pulled @ np.swapaxes(pulled, 1, 2)


@dataclass(frozen=True, eq=False)
class Monomials:
    """Products of columns: feature m is that of the columns in line m of ``columns`` (l, D).

    The number ``d`` in a line, one beyond the last column, stands for the factor 1. The derivative
    of a product is a sum over its places s in the line: the product of the other factors, at the
    column in place s.
    """

    columns: Array
    d: int

    @classmethod
    def of_powers(cls, powers: Array) -> Monomials:
        """Return the products of x_j^p_j for every line p of ``powers`` (l, d)."""
        size, d = powers.shape
        degree = powers.sum(axis=1)
        columns = np.full((size, max(int(degree.max()), 1)), d)
        used = np.arange(columns.shape[1]) < degree[:, None]
        columns[used] = np.repeat(np.tile(np.arange(d), size), powers.ravel())
        return cls(columns, d)

    def map(self, X: Array) -> Array:
        """Return the features, shape (n, l)."""
        return np.asarray(np.prod(self._factors(X), axis=0))

    def jacobian(self, X: Array) -> Array:
        """Return the derivatives, shape (n, l, d)."""
        size = len(self.columns)
        J = np.zeros((len(X), size, self.d + 1))
        for place, slope in enumerate(self._slopes(X)):
            J[:, np.arange(size), self.columns[:, place]] += slope
        return J[..., : self.d]

    def pull(self, X: Array, push: Array) -> Array:
        """Return the rows J(x)'p, p the rows of ``push`` (n, l)."""
        total = np.zeros(X.shape)
        for at, slope in zip(self._column_of_place, self._slopes(X), strict=True):
            total += (slope * push) @ at
        return total

    def gram(self, X: Array, weights: Array) -> Array:
        """Return J(x)'diag(weights)J(x) of every row, shape (n, d, d)."""
        total = np.zeros((len(X), self.d**2))
        slopes = list(self._slopes(X))
        for s, first in enumerate(slopes):
            weighted = first * weights
            for t, second in enumerate(slopes):
                total += (weighted * second) @ self._columns_of_two_places[s][t]
        return total.reshape(-1, self.d, self.d)

    def pulled(self, X: Array, F: Array) -> Iterator[Array]:
        """Yield J(x)'F of every row, shape (d, k); F has shape (l, k)."""
        size = len(self.columns)
        column = self.columns.T.ravel()
        order = np.argsort(column, kind="stable")
        order = order[column[order] < self.d]
        ends = np.cumsum(np.bincount(column[order], minlength=self.d))
        indptr, indices = np.append(0, ends), order % size
        for slopes in np.concatenate([*self._slopes(X)], axis=1):
            # J(x)' in sparse rows
            J = sparse.csr_array((slopes[order], indices, indptr), shape=(self.d, size))
            yield J @ F

    def _factors(self, X: Array) -> list[Array]:
        """Return the factors in every place, each of shape (n, l)."""
        wide = np.column_stack([X, np.ones(len(X))])
        return [wide[:, column] for column in self.columns.T]

    def _slopes(self, X: Array) -> Iterator[Array]:
        """Yield the product of the factors in all other places, for every place."""
        factors = self._factors(X)
        ones = np.ones((len(X), len(self.columns)))
        for place in range(len(factors)):
            others = factors[:place] + factors[place + 1 :]
            yield np.prod(others, axis=0) if others else ones

    @cached_property
    def _column_of_place(self) -> list[Any]:
        """Matrices (l, d), one for each place, with 1 at the column of each feature."""
        return [self._selector(column, self.d, column < self.d) for column in self.columns.T]

    @cached_property
    def _columns_of_two_places(self) -> list[list[Any]]:
        """Matrices (l, d^2), one for every two places, with 1 at the pair of columns."""
        d = self.d
        return [
            [self._selector(i * d + j, d**2, (i < d) & (j < d)) for j in self.columns.T]
            for i in self.columns.T
        ]

    def _selector(self, at: Array, width: int, real: Array) -> Any:
        lines = np.flatnonzero(real)
        ones = np.ones(len(lines))
        return sparse.csr_array((ones, (lines, at[lines])), shape=(len(at), width))


@cache
def quadratic(d: int) -> Monomials:
    """Return the features x_j and x_j x_k, j <= k, of d columns."""
    linear = np.column_stack([np.arange(d), np.full(d, d)])
    return Monomials(np.vstack([linear, np.column_stack(np.triu_indices(d))]), d)
