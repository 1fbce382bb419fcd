"""The Mahalanobis cost after a feature map (DRO-NL)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone

from .base import Array, Cost
from .differences import central
from .learned_matrix import definite_matrix, seeded

#: An eigenvalue of a local matrix this small, relative to the largest entry, is zero.
FLAT = 1e-12


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
        fitted on the features by ``learn``.
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
        done = FeatureMap(features, metric, self.jacobian, self.linearised)
        if hasattr(metric, "fit"):
            done.metric = _slim(definite_matrix(seeded(metric).fit(done.map(X), y)))
        done._check_metric(done.map(X[:1]).shape[1])
        return done

    def _check_metric(self, n_features: int) -> None:
        """Refuse prices that are not positive, or not one for every feature."""
        if self.metric is None:
            return
        metric = np.asarray(self.metric, dtype=float)
        if metric.shape not in ((n_features,), (n_features, n_features)):
            raise ValueError(
                f"metric has shape {metric.shape} but the map has {n_features} features."
            )
        least = metric.min() if metric.ndim == 1 else np.linalg.eigvalsh(metric)[0]
        if not (np.isfinite(metric).all() and least > 0):
            raise ValueError(f"metric must be positive definite, its least value is {least:g}.")

    def stand_in(self) -> FeatureMap:
        """Return the linearised cost."""
        if self.linearised:
            return self
        return FeatureMap(self.features, self.metric, self.jacobian, linearised=True)

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
            i, j = _products(X.shape[1])
            return np.hstack([X, X[:, i] * X[:, j]])
        found = self.features.transform(X)
        found = np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=float)
        if found.ndim != 2 or len(found) != len(X):
            raise ValueError(
                f"the feature map {type(self.features).__name__} must keep the number of rows: it "
                f"returned shape {found.shape} for {len(X)} rows."
            )
        return found

    def transform(self, X: Array) -> Array:
        """Return Phi(X) in coordinates whose Euclidean distances are those of the cost."""
        features, diagonal = self.map(X), self._diagonal()
        if diagonal is not None:
            return features * np.sqrt(diagonal)
        return np.asarray(features @ np.linalg.cholesky(np.asarray(self.metric, dtype=float)))

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return np.asarray(cdist(self.transform(U), self.transform(V)))

    def derivative(self, X: Array) -> Array:
        """Return the Jacobian of Phi at the rows of X, shape (n, l, d)."""
        if self.jacobian is not None:
            return np.asarray(self.jacobian(X), dtype=float)
        if isinstance(self.features, str):
            return _quadratic_jacobian(X)
        if hasattr(self.features, "powers_"):
            return _monomial_jacobian(X, self.features.powers_)
        return central(self.map, X)

    def price(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return ||Phi(u) - Phi(x)||_Lam^order for rows u, x."""
        v = self.map(U) - self.map(X)
        square = np.einsum("nl,nl->n", self._weighted(v), v)
        return np.asarray(np.maximum(square, 0.0) ** (order / 2))

    def price_gradient(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return the gradient of the squared cost, 2 J(u)'Lam (Phi(u) - Phi(x))."""
        push = 2 * self._weighted(self.map(U) - self.map(X))
        if self._plain:
            return _quadratic_pull(U, push)
        return np.asarray(np.einsum("nld,nl->nd", self.derivative(U), push))

    def _weighted(self, v: Array) -> Array:
        """Return the rows Lam v."""
        diagonal = self._diagonal()
        return np.asarray(v @ np.asarray(self.metric) if diagonal is None else v * diagonal)

    @property
    def _plain(self) -> bool:
        """Whether the features are the quadratic ones, whose Jacobian need not be written out."""
        return isinstance(self.features, str) and self.jacobian is None

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

    def _diagonal(self) -> Array | None:
        """Return the entries of a diagonal Lam (1 for the identity), None for a full one."""
        if self.metric is None:
            return np.ones(1)
        return None if np.ndim(self.metric) == 2 else np.asarray(self.metric, dtype=float)

    def _local(self, X: Array) -> Array:
        diagonal = self._diagonal()
        if diagonal is not None and self._plain:
            return _quadratic_shape(X, diagonal)
        J = self.derivative(X)
        scaled = np.asarray(self.metric) @ J if diagonal is None else diagonal[:, None] * J
        A: Array = np.swapaxes(J, 1, 2) @ scaled
        return A


def _slim(matrix: Any) -> Array:
    """Return the diagonal of a matrix that has nothing else, or the matrix."""
    matrix = np.asarray(matrix, dtype=float)
    diagonal = np.diag(matrix)
    return diagonal if np.count_nonzero(matrix) == np.count_nonzero(diagonal) else matrix


@cache
def _products(d: int) -> tuple[Array, Array]:
    """Return the columns j <= k of the products x_j x_k."""
    return np.triu_indices(d)


def _quadratic_shape(X: Array, diagonal: Array) -> Array:
    """Return J'Lam J of the quadratic features for a diagonal Lam, without J.

    With weights W_jk of x_j x_k, A_jk = W_jk x_j x_k off the diagonal, and
    A_kk = Lam_k + 4 W_kk x_k^2 + sum_{j != k} W_jk x_j^2 on it.
    """
    d = X.shape[1]
    diagonal = np.broadcast_to(diagonal, d + d * (d + 1) // 2)
    W = np.zeros((d, d))
    W[_products(d)] = diagonal[d:]
    W += np.triu(W, 1).T
    A: Array = W * X[:, :, None] * X[:, None, :]
    k = np.arange(d)
    A[:, k, k] = diagonal[:d] + X**2 @ W + 3 * np.diag(W) * X**2
    return A


def _quadratic_pull(X: Array, push: Array) -> Array:
    """Return the rows J(x)'p of the quadratic features: p_k + sum_j P_jk x_j, P symmetric.

    P_jk is the entry of p that belongs to x_j x_k, twice that on the diagonal.
    """
    n, d = X.shape
    i, j = _products(d)
    P = np.zeros((n, d, d))
    P[:, i, j] = push[:, d:]
    P += np.swapaxes(P, 1, 2)
    pulled: Array = push[:, :d] + (P @ X[..., None])[..., 0]
    return pulled


def _quadratic_jacobian(X: Array) -> Array:
    n, d = X.shape
    i, j = _products(d)
    J = np.zeros((n, d + len(i), d))
    J[:, np.arange(d), np.arange(d)] = 1.0
    place = d + np.arange(len(i))
    J[:, place, i] += X[:, j]
    J[:, place, j] += X[:, i]
    return J


def _monomial_jacobian(X: Array, powers: Array) -> Array:
    """Return d/dx_k of prod_j x_j^p_j: p_k x_k^(p_k - 1) times the other factors."""
    columns = []
    for k in range(X.shape[1]):
        lower = powers.copy()
        lower[:, k] = np.maximum(powers[:, k] - 1, 0)
        columns.append(powers[:, k] * np.prod(X[:, None, :] ** lower[None], axis=2))
    return np.stack(columns, axis=2)
