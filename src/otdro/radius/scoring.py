"""A score of the user's in the place of the loss."""

from __future__ import annotations

import warnings
from inspect import Parameter, signature
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import check_scoring

from ..losses import Loss

Array = NDArray[Any]


class ModelScorer:
    """A scikit-learn scorer applied to coefficients, through a copy of the estimator.

    ``sample_weight`` (None: no weights) goes to a scorer that takes one; of one that does not,
    a warning says so.
    """

    def __init__(
        self,
        estimator: Any,
        scoring: Any,
        loss: Loss,
        y: Array,
        classes: Array | None,
        sample_weight: Array | None = None,
    ) -> None:
        self.model = clone(estimator)
        self.score = check_scoring(estimator, scoring=scoring)
        self.loss = loss
        self.y = y
        self.classes = classes
        self.name = scoring
        self.weights = sample_weight
        if sample_weight is not None and not _takes_weights(self.score):
            warnings.warn(
                f"scoring={scoring!r} takes no sample_weight: the rows of a fold count alike in "
                "its score.",
                UserWarning,
                stacklevel=4,
            )
            self.weights = None

    def __call__(self, X: Any, rows: Array, coef: Array, intercept: Array) -> float:
        """Return the score of one model on rows X, numbered ``rows`` in the training data."""
        model = self.model
        model.loss_ = self.loss
        model.n_features_in_ = X.shape[1]
        if self.classes is None:
            model.coef_, model.intercept_ = coef[0], float(intercept[0])
        else:
            several = self.loss.outputs > 1
            model.coef_, model.intercept_ = (
                (coef[0], intercept[0]) if several else (coef, intercept)
            )
            model.classes_ = self.classes
        weighted = {} if self.weights is None else {"sample_weight": self.weights[rows]}
        try:
            return float(self.score(model, X, self.y[rows], **weighted))
        except AttributeError as error:
            raise ValueError(
                f"scoring={self.name!r} needs what the loss {model.loss!r} lacks: {error}"
            ) from None


def _takes_weights(scorer: Any) -> bool:
    """Whether a scorer, or the metric that scikit-learn made it from, has a sample_weight."""
    parameters = signature(getattr(scorer, "_score_func", scorer)).parameters
    return "sample_weight" in parameters or any(
        parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
