"""A power of the covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from sklearn.utils.validation import check_is_fitted

from ..design import WRITTEN_UP_TO, Design, is_wide, mean
from .base import RANK, Array, Leading, Metric, of_rows


@dataclass(eq=False, repr=False)
class Spectral(Metric):
    r"""Price moves by the spread of the rows.

    :math:`\Lambda \propto ((1-s)\,C\,d/\mathrm{tr}\,C + sI)^p`, C the covariance of the rows.
    With p > 0 moves along their main directions are expensive, so that a model may rely on these;
    with p < 0 it is the other way round; p = 0 is the Euclidean cost. No labels are needed, and
    rows without labels sharpen C.

    Parameters
    ----------
    power : float
        The exponent p.
    shrinkage : float in (0, 1]
        The weight s of the identity, inside the power.
    within : bool
        Whether C is the covariance within the classes of y; then labels are needed.

    Attributes
    ----------
    metric_ : ndarray of shape (n_features, n_features)
        Symmetric positive definite, trace n_features; a ``LowRank`` of more than 2,000 features,
        or with p > 0 of more than 256 and more than there are rows.
    covariance_ : ndarray of shape (n_features, n_features)
        C; where ``metric_`` is a ``LowRank`` its ``Leading`` directions. Of more than 2,000
        features the spread along all others is taken as even, for which p must be positive.
    """

    takes_wide = True

    power: float = 0.5
    shrinkage: float = 0.5
    within: bool = False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn ``metric_`` from the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,), default=None
            Labels, needed where ``within`` asks for the covariance within classes.
        """
        X = self._rows(X)
        n, d = X.shape
        if d > WRITTEN_UP_TO:
            if self.within or self.power <= 0:
                raise ValueError(
                    f"Spectral(power={self.power!r}, within={self.within!r}) learns from at most "
                    f"{WRITTEN_UP_TO} columns, and X has {d}: use power > 0 and within=False."
                )
            center = mean(X, np.full(n, 1 / n))
            self._directions = of_rows(Design(X, center=center), RANK)
            self.covariance_: Any = self._directions
        else:
            D = self._deviations(X, y)
            if n < d:
                self._directions = of_rows(Design(D), n)
            else:
                spread, V = eigh(D.T @ D / n)
                self._directions = Leading(V, np.maximum(spread, 0.0), 0.0)
            structured = is_wide(X) and self.power > 0
            self.covariance_ = self._directions if structured else D.T @ D / n
        self.metric_ = self.shrunk(self.shrinkage)
        return self

    def fit_with(self, X: Any, y: Any, unlabelled: Any, task: str) -> Self:
        """Fit to labelled and unlabelled rows together, unless classes are asked for."""
        if unlabelled is None or self.within:
            return self.fit(X, y)
        if sparse.issparse(X):
            both: Any = [X, sparse.csr_array(unlabelled)]
            return self.fit(sparse.csr_array(sparse.vstack(both, format="csr")))
        return self.fit(np.vstack([X, unlabelled]))

    def _deviations(self, X: Array, y: Any) -> Array:
        """Return the rows minus their mean, or that of their class."""
        if not self.within:
            return X - X.mean(axis=0)
        if y is None:
            raise ValueError("Spectral(within=True) needs labels: call fit(X, y).")
        y, kind = self._labels(X, y, "auto")
        if kind == "regression":
            raise ValueError(
                "Spectral(within=True) needs classes, and y is a continuous target: use "
                "within=False."
            )
        codes = np.unique(y, return_inverse=True)[1]
        means = np.stack([X[codes == k].mean(axis=0) for k in range(codes.max() + 1)])
        return X - means[codes]

    def shrunk(self, shrinkage: float) -> Any:
        """Return the metric that another ``shrinkage`` gives, without learning again."""
        check_is_fitted(self, "covariance_")
        if not (isinstance(shrinkage, (int, float, np.number)) and 0 < shrinkage <= 1):
            raise ValueError(f"shrinkage must be a number in (0, 1], got {shrinkage!r}.")
        if isinstance(self.covariance_, Leading):
            return self._directions.power(self.power, shrinkage)
        return self._directions.written_power(self.power, shrinkage)
