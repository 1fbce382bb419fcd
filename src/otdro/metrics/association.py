"""One price per feature, by what the feature alone tells of the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..costs.mahalanobis import check_shrinkage, of_diagonal
from ..design import Design, column_scale, fenced, is_wide, mean
from .base import Array, Metric

#: The least share of a feature's variance that counts as unexplained: with few rows a feature may
#: separate them by chance, and its statistic would be without bound.
LEAST_UNEXPLAINED = 0.05


@dataclass(eq=False, repr=False)
class Association(Metric):
    r"""Price feature j at :math:`\lambda_j = (1 + F_j/c)^p`.

    :math:`F_j = \frac{n}{k}\,R_j^2/(1 - R_j^2)`, where :math:`R_j^2` is the share of the
    variance of feature j that the labels explain: by the means of the K classes
    (:math:`k = K - 1`), or by a line in the target (k = 1). Features that tell nothing have F
    about 1. A move of one that tells much is expensive, so that the model may rely on it; the
    penalty of the robust problem is that of an adaptive ridge.

    Parameters
    ----------
    power : float >= 0
        The exponent p; 0 gives the identity.
    noise : float > 0
        The number c: what F must reach before it counts.
    shrinkage : float in [0, 1]
        Weight of the identity; values below 1e-6 count as 1e-6.
    task : {"auto", "classification", "regression"}
        Whether y holds labels or a continuous target; ``"auto"`` decides by
        ``otdro.pairs.target_kind``.

    Attributes
    ----------
    metric_ : ndarray of shape (n_features, n_features)
        Diagonal, trace n_features; a ``LowRank`` of more than 2,000 features, or of more than 256
        and more than there are rows.
    statistic_ : ndarray of shape (n_features,)
        F.
    solution_ : ndarray of shape (n_features, n_features)
        The prices, the largest 1, before trace and shrinkage.
    """

    takes_wide = True

    power: float = 0.5
    noise: float = 2.0
    shrinkage: float = 0.0
    task: str = "auto"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn ``metric_`` from labels or targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,)
            Labels or targets.
        """
        X = self._rows(X)
        check_shrinkage(self.shrinkage)
        if not self.power >= 0:
            raise ValueError(f"power must be at least 0, got {self.power!r}.")
        U, k = self._explaining(X, y)
        # R_j^2 = |U'(x_j - mean)|^2/|x_j - mean|^2, U orthonormal up to its sum; 0 of a constant
        n = X.shape[0]
        even = np.full(n, 1 / n)
        explained = np.sum(Design(X, center=mean(X, even)).adjoint(U) ** 2, axis=1)
        total = n * column_scale(X, even) ** 2
        share = np.divide(explained, total, out=np.zeros_like(total), where=total > 0)
        self.statistic_ = n / k * share / np.maximum(1 - share, LEAST_UNEXPLAINED)
        price = 1 + self.statistic_ / self.noise
        price = (price / price.max()) ** self.power
        self.solution_ = of_diagonal(price) if is_wide(X) else np.diag(price)
        self.metric_ = self.shrunk(self.shrinkage)
        return self

    def _explaining(self, X: Any, y: Any) -> tuple[Array, int]:
        """Return unit vectors (n, m), with the mean what the labels may explain, and k."""
        if y is None:
            raise ValueError("Association.fit needs y.")
        y, kind = self._labels(X, y, self.task)
        if kind == "regression":
            t = y - np.median(y)
            t = fenced(t[:, None], np.ones(len(t)))
            t = t - t.mean()
            return t / (np.linalg.norm(t) or 1.0), 1
        codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
        members = codes[:, None] == np.arange(len(counts))
        return members / np.sqrt(counts), max(len(counts) - 1, 1)
