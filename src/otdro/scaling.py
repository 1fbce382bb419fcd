"""Scaling columns before a model: standard, Yeo-Johnson, asinh of robust units, none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

Array = NDArray[Any]

#: The names of the scalings; "auto" stands for ``AUTO``, for the reasons in
#: ``experiments/reports/scaling.md``.
SCALINGS = ("auto", "standard", "yeo-johnson", "asinh", "none")
AUTO = "asinh"


class Asinh(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Map a column to :math:`\operatorname{asinh}((x - \mathrm{median})/\mathrm{MAD})`.

    Linear in the middle, logarithmic in the tails, so that no row is far out. Where more than half
    of a column is one value the MAD is 0, and the mean absolute deviation takes its place.

    Attributes
    ----------
    center_, scale_ : ndarray of shape (n_features,)
    """

    def fit(self, X: Any, y: Any = None) -> Asinh:
        """Find the median and the spread of every column."""
        X = validate_data(self, X, dtype=np.float64)
        self.center_ = np.median(X, axis=0)
        distance = np.abs(X - self.center_)
        median, mean = np.median(distance, axis=0), distance.mean(axis=0)
        self.scale_ = np.where(median > 0, median, np.where(mean > 0, mean, 1.0))
        return self

    def transform(self, X: Any) -> Array:
        """Return asinh((X - center)/scale)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scaled: Array = np.arcsinh((X - self.center_) / self.scale_)
        return scaled


def scaler(name: str = "auto") -> Any:
    """Return the transformer that a name of ``SCALINGS`` stands for."""
    known = {
        "standard": StandardScaler(),
        "yeo-johnson": PowerTransformer("yeo-johnson"),
        "asinh": make_pipeline(Asinh(), StandardScaler()),
        "none": FunctionTransformer(feature_names_out="one-to-one"),
    }
    if name not in SCALINGS:
        raise ValueError(f"unknown scaling {name!r}; known: {', '.join(SCALINGS)}.")
    return known[AUTO if name == "auto" else name]
