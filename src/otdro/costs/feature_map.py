"""The Mahalanobis cost after a feature map (DRO-NL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone

from ..design import BLOCK_ENTRIES, WIDE_UP_TO, WRITTEN_UP_TO
from .base import Array, Cost, central
from .mahalanobis import definite_matrix, is_structured, seeded

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
        fitted on the features by ``learn``; of many features it leaves a diagonal and a few
        directions.
    jacobian : callable or None
        X of shape (n, d) to dPhi/dx of shape (n, l, d). None: analytic for "quadratic", else
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
            # as the learner leaves it: a full matrix or a ``LowRank``, or a diagonal
            if fitted.map(X[:1]).shape[1] > WRITTEN_UP_TO and len(X) > WIDE_UP_TO:
                index = np.random.default_rng(0).choice(len(X), WIDE_UP_TO, replace=False)
                X, y = X[index], y[index]
            matrix = definite_matrix(seeded(metric).fit(fitted.map(X), y))
            if is_structured(matrix):
                fitted.metric = matrix if matrix.components.shape[1] else matrix.diagonal
            else:
                prices = np.diag(matrix)
                even = np.count_nonzero(matrix) == np.count_nonzero(prices)
                fitted.metric = prices if even else matrix
        fitted._check_metric(fitted.map(X[:1]).shape[1])
        return fitted

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
            j, k = np.triu_indices(X.shape[1])
            return np.column_stack([X, X[:, j] * X[:, k]])
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

    @property
    def _analytic(self) -> bool:
        """Whether derivatives are those of the quadratic features, which have formulas."""
        return isinstance(self.features, str) and self.jacobian is None

    def derivative(self, X: Array) -> Array:
        """Return the Jacobian of Phi at the rows of X, shape (n, l, d)."""
        if self.jacobian is not None:
            return np.asarray(self.jacobian(X), dtype=float)
        if not self._analytic:
            return central(self.map, X)
        d = X.shape[1]
        j, k = np.triu_indices(d)
        product = d + np.arange(len(j))
        J = np.zeros((len(X), d + len(j), d))
        J[:, np.arange(d), np.arange(d)] = 1
        J[:, product, j] += X[:, k]
        J[:, product, k] += X[:, j]
        return J

    def price(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return ||Phi(u) - Phi(x)||_Lam^order for rows u, x."""
        v = self.map(U) - self.map(X)
        square = np.einsum("nl,nl->n", self._weighted(v), v)
        return np.asarray(np.maximum(square, 0.0) ** (order / 2))

    def price_gradient(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return the gradient of the squared cost, 2 J(u)'Lam (Phi(u) - Phi(x))."""
        push = 2 * self._weighted(self.map(U) - self.map(X))
        if not self._analytic:
            return np.asarray(np.einsum("nld,nl->nd", self.derivative(U), push))
        linear, S = gradient_of_quadratic(push, U.shape[1])
        return np.asarray(linear + np.einsum("nde,ne->nd", S, U))

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

    def _local(self, X: Array) -> Array:
        """Return J'diag(a)J + (J'F)(J'F)', a matrix per row; the rows go in blocks."""
        n, d = X.shape
        size = self.map(X[:1]).shape[1]
        a, F = self._parts()
        F = np.empty((size, 0)) if F is None else F
        if self._analytic:
            linear, S = gradient_of_quadratic(np.broadcast_to(a, size), d)
            constant, T = gradient_of_quadratic(F.T, d)
        A = np.empty((n, d, d))
        step = max(1, BLOCK_ENTRIES // (size * d))
        for start in range(0, n, step):
            rows = X[start : start + step]
            if self._analytic:
                # (e_j x_k + e_k x_j)(e_j x_k + e_k x_j)' of every product, with its price
                block = S * rows[:, :, None] * rows[:, None, :]
                block[:, np.arange(d), np.arange(d)] += linear + rows**2 @ S
                pulled = constant.T + np.moveaxis(rows @ T, 0, -1)
            else:
                J = np.swapaxes(self.derivative(rows), 1, 2)
                block = (J * a) @ np.swapaxes(J, 1, 2)
                pulled = J @ F
            A[start : start + step] = block + pulled @ np.swapaxes(pulled, 1, 2)
        return A


def gradient_of_quadratic(v: Array, d: int) -> tuple[Array, Array]:
    """Return g and S with gradient g + S x of v'Phi(x), Phi the features x_j and x_j x_k, j <= k.

    ``v`` has the features along its last axis, g has shape (..., d) and S (..., d, d).
    """
    j, k = np.triu_indices(d)
    S = np.zeros((*v.shape[:-1], d, d))
    S[..., j, k] = v[..., d:]
    return v[..., :d], S + np.swapaxes(S, -1, -2)
