"""The regression model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from ..arrays import as_float
from ..chunks import is_dask
from ..problem import Sample
from ..radius.checks import check_targets
from .base import DROEstimator, Fitted, LinearScores, Targets, documented
from .parameters import fit_price

Array = NDArray[Any]


class LinearRegressor(RegressorMixin, LinearScores):  # type: ignore[misc]
    """Predictions for rows, from the coefficients of a fitted regression."""

    def predict(self, X: Any) -> Any:
        """Return x'beta + b.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with the columns of the fit; of a Dask array or data frame the result is a Dask
            array that is computed later.

        Returns
        -------
        ndarray of shape (n,)
            The predictions.
        """
        if is_dask(X):
            return self._of_dask(X, "predict")
        return self._scores(X)


@documented
@dataclass(eq=False, repr=False, match_args=False)
class DRORegressor(LinearRegressor, DROEstimator):
    r"""Linear regression that does best against every distribution within transport cost delta.

    .. math:: \min_{\beta, b}\ \sup_{P:\,D_c(P, P_n)\le\delta} E_P\,\ell(x'\beta + b, y)

    Parameters
    ----------
    loss : {"squared", "absolute", "huber", "quantile"} or Loss, default="squared"
        The loss of a score and a target: e^2 (no half) of the residual e, abs(e),
        ``Huber(M=1.35)`` or ``Quantile(tau=0.5)``. Squares need targets between 1e-75 and 1e75 in
        size.
    <model>
    <choice>
    target_cost : float > 0, default=inf
        The price kappa at which the adversary may move a target by t, kappa abs(t) at order 1 and
        kappa t^2 at order 2, beside the price of moving the row; inf: targets cannot be moved. Rows
        in memory only.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The coefficients beta.
    intercept_ : float
        The intercept b.
    multiplier_ : float
        The derivative of the robust risk in delta.
    empirical_risk_ : float
        The mean loss of the training rows.
    robust_risk_ : float
        The largest mean loss over the ball, as the solver bounded it: ``otdro.robust_risk`` of the
        same model, which finds the best multiplier anew, is never above it and at most ``gap_``
        below.
    gap_ : float
        At most by this much ``robust_risk_`` exceeds the least possible one; absolute.
    message_ : str
        How the solver ended, and what was particular about the cost or the choice of delta.
    <attributes>

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from otdro import DRORegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X, y = scale(X), scale(y)
    >>> model = DRORegressor(cost="euclidean").fit(X[:100], y[:100])
    >>> print(f"delta {model.delta_:.4f}, R^2 {model.score(X[100:], y[100:]):.2f}")
    delta 0.0099, R^2 0.47
    """

    _task: ClassVar[str] = "regression"

    loss: Any = "squared"
    target_cost: Any = field(default=np.inf, kw_only=True)

    def _targets(self, y: Array, sample: Sample) -> Targets:
        y = as_float(y)
        check_targets(y, sample.loss)
        price = fit_price(self, "target_cost", sample.support)
        return Targets(replace(sample, ys=[y], target_cost=price), y)

    def _store(self, fitted: Fitted) -> None:
        super()._store(fitted)
        self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0])
