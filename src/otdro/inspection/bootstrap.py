r"""Stability: how much the predictions of a model change where other rows had been drawn.

The model is fitted again to B bootstrap samples of its rows. With p_i the prediction of row i and
p_i^b that of refit b (Riley and Collins, 2023, doi:10.1002/bimj.202200302),

.. math:: \text{difference}_i = \frac1B \sum_b |p_i^b - p_i|, \qquad
          \text{flips}_i = \frac1B \sum_b 1[\text{class}_i^b \ne \text{class}_i].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from ..estimators.summary import ENDS, Bootstrap, front_and_last

Array = NDArray[Any]

#: A row is unsure where more than this share of the refits predict another class.
OFTEN = 0.1


@dataclass(frozen=True, eq=False)
class Stability:
    """The predictions of a model beside those of its refits to bootstrap samples.

    Attributes
    ----------
    prediction : ndarray of shape (n,)
        That of the model: the probability of the second of two classes, or of the predicted one of
        several; the score where there are no probabilities; or the predicted number.
    refitted : ndarray of shape (refits, n)
        The same of every refit.
    flip_share : ndarray of shape (n,) or None
        The share of the refits that predict another class for the row; None for regression.
    quantity : str
        What the predictions are, in words.
    rechoose : bool
        Whether the refits chose cost and delta anew.
    """

    prediction: Array
    refitted: Array
    flip_share: Array | None
    quantity: str
    rechoose: bool = False

    @property
    def refits(self) -> int:
        """The number of refits."""
        return len(self.refitted)

    @cached_property
    def interval(self) -> Array:
        """The 2.5 and 97.5% quantiles of the refits, (n, 2)."""
        return np.asarray(np.quantile(self.refitted, ENDS, axis=0).T)

    @cached_property
    def spread(self) -> Array:
        """The standard deviation of the refits, (n,)."""
        return np.asarray(self.refitted.std(axis=0))

    @cached_property
    def difference(self) -> Array:
        """The mean absolute difference of the refits to the prediction of the model, (n,)."""
        return np.asarray(np.abs(self.refitted - self.prediction).mean(axis=0))

    @property
    def flips(self) -> float | None:
        """The share of rows whose class a refit flips, in the mean; None for regression."""
        return None if self.flip_share is None else float(self.flip_share.mean())

    @property
    def instability(self) -> Array:
        """The points of an instability plot: prediction of a row, and of a refit, (refits n, 2)."""
        return np.column_stack([np.tile(self.prediction, self.refits), self.refitted.ravel()])

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of all rows in numbers and strings."""
        width = np.diff(self.interval, axis=1)
        return {
            "refits": self.refits,
            "rechoose": self.rechoose,
            "rows": len(self.prediction),
            "quantity": self.quantity,
            "difference": float(self.difference.mean()),
            "largest_difference": float(self.difference.max()),
            "spread": float(self.spread.mean()),
            "interval_width": float(width.mean()),
            "flips": self.flips,
            "unsure_rows": None
            if self.flip_share is None
            else int((self.flip_share > OFTEN).sum()),
        }

    def summary(self) -> str:
        """Return the stability in words."""
        told = self.to_dict()
        kept = "cost and delta chosen anew" if self.rechoose else "cost and delta kept"
        lines = [
            f"Stability: {self.refits} refits to bootstrap samples of {told['rows']} rows, {kept}",
            f"the {self.quantity} of a row differs by {told['difference']:.3g} in the mean from "
            f"that of a refit (of the least stable row by {told['largest_difference']:.3g})",
            f"95% of the refits lie within a width of {told['interval_width']:.3g} in the mean",
        ]
        if told["flips"] is not None:
            lines.append(
                f"a refit predicts another class for {told['flips']:.1%} of the rows; for "
                f"{told['unsure_rows']} rows more than 1 in 10 refits do"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()


def stability(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    refits: int = 200,
    rechoose: bool = False,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Stability:
    """Return how much predictions change where a model is fitted to bootstrap samples of its rows.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A classifier or regressor of otdro, scikit-learn or others. A fitted one is taken as fitted
        to these rows; another one is fitted to them first, as a copy.
    X, y : array-like of shape (n, d) and (n,)
        The training rows.
    refits : int >= 2, default=200
        The number of bootstrap samples.
    rechoose : bool, default=False
        Whether a refit chooses cost and delta anew and refits the steps in front of the model: the
        spread then includes that of these choices. Models of other packages always choose anew.
    random_state : int, default=None
        Seeds the samples; None is a fixed seed.
    n_jobs : int, default=None
        Refits at the same time, as in joblib; None is 1.

    Returns
    -------
    Stability

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from otdro import DROClassifier, stability
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DROClassifier(cost="euclidean").fit(X[50:], y[50:])
    >>> result = stability(model, X[50:], y[50:], refits=50)
    >>> bool(result.flips < 0.05)
    True
    """
    if isinstance(refits, bool) or not isinstance(refits, Integral) or refits < 2:
        raise ValueError(f"refits must be a whole number >= 2, got refits={refits!r}.")
    y = column_or_1d(y)
    check_consistent_length(X, y)
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        estimator = clone(estimator).fit(X, y)
    front, last = front_and_last(estimator)
    own = _class_numbers(last, X if front is None else front.transform(X))

    def predicted(front: Any, last: Any) -> Array:
        """Return the predictions of the rows and the numbers of the classes predicted, (2, n)."""
        Z = X if front is None else front.transform(X)
        method = "predict"
        if is_classifier(last):
            method = "predict_proba" if hasattr(last, "predict_proba") else "decision_function"
        values = getattr(last, method)(Z)
        if np.ndim(values) == 2:
            # of several classes, those of the class that the model itself predicts
            values = values[np.arange(len(values)), 1 if values.shape[1] == 2 else own]
        return np.stack([values, _class_numbers(last, Z)])

    prediction, classes = predicted(front, last)
    sampled = Bootstrap(estimator, X, y, np.ones(len(y)), bool(rechoose))
    refitted = sampled.collect(predicted, int(refits), random_state, n_jobs)
    flips = (refitted[:, 1] != classes).mean(axis=0)
    return Stability(
        prediction=prediction,
        refitted=refitted[:, 0],
        flip_share=flips if is_classifier(last) else None,
        quantity=_quantity(last),
        rechoose=bool(rechoose),
    )


def _class_numbers(last: Any, Z: Any) -> Array:
    """Return the number of the class that a model predicts for each row; 0 for regression."""
    if not is_classifier(last):
        return np.zeros(Z.shape[0], dtype=int)
    return np.searchsorted(last.classes_, last.predict(Z))


def _quantity(last: Any) -> str:
    """Return what the predictions of a model are, in words."""
    if not is_classifier(last):
        return "prediction"
    kind = "probability" if hasattr(last, "predict_proba") else "score"
    two = len(last.classes_) == 2
    return f"{kind} of {last.classes_[1]!s}" if two else f"{kind} of the predicted class"
