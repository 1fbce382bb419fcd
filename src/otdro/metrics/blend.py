"""A mixture of what several learners say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from ..arrays import on_host
from ..costs.mahalanobis import blend, identity, shrink
from ..design import is_wide
from ..wanted import check_settings, is_list
from .base import WANTED, Array, Metric, fitted, shrunk


@dataclass(eq=False, repr=False)
class Blend(Metric):
    r"""The convex combination :math:`\Lambda = \sum_c w_c \Lambda_c` of metrics of trace d.

    A move is expensive if some candidate says so: the blend gives up part of the gain of the best
    candidate for never being far behind it, and is still one positive definite matrix, hence one
    certified ball.

    Parameters
    ----------
    candidates : sequence
        Metric learners (others than those of otdro: see ``otdro.metrics.learn``), or "euclidean".
    weights : sequence of floats >= 0 or None
        One per candidate, their ratios matter. None: equal ones.

    Attributes
    ----------
    metric_ : ndarray of shape (n_features, n_features)
        Symmetric positive definite, trace n_features.
    weights_ : ndarray of shape (n_candidates,)
        The weights, of sum 1.
    metrics_ : list of ndarray of shape (n_features, n_features)
        What each candidate learned.
    """

    candidates: Sequence[Any]
    weights: Sequence[float] | None = None

    def fit(self, X: Any, y: Any = None) -> Blend:
        """Let every candidate learn, and mix the results.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,), default=None
            Labels or targets, for the candidates that need them.
        """
        return self.fit_with(X, y, None, "auto")

    def fit_with(self, X: Any, y: Any, unlabelled: Any, task: str) -> Blend:
        """The same, with rows without labels for the candidates that they help."""
        X, y = on_host(X), on_host(y)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        self.weights_ = self._weights()
        d = X.shape[1]
        self.metrics_ = [
            (identity(d) if is_wide(X) else np.eye(d))
            if isinstance(candidate, str)
            else shrunk(fitted(candidate, X, y, unlabelled=unlabelled))
            for candidate in self.candidates
        ]
        self.metric_ = blend(self.metrics_, self.weights_)
        return self

    def _weights(self) -> Array:
        """Return the weights with sum 1, or say what is wrong with them or the candidates."""
        check_settings(self, WANTED)
        some = self.candidates
        if not is_list(some) or len(some) == 0:
            raise ValueError(f"Blend needs at least one candidate in a list, got {some!r}.")
        for candidate in self.candidates:
            if not (hasattr(candidate, "fit") or candidate == "euclidean"):
                raise TypeError(
                    f"a candidate of Blend is a metric learner or 'euclidean', got {candidate!r}."
                )
        count = len(self.candidates)
        weights = np.asarray(np.ones(count) if self.weights is None else self.weights, dtype=float)
        if weights.shape != (count,):
            raise ValueError(
                f"Blend has {count} candidates but weights of shape {weights.shape}: give one each."
            )
        if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
            text = "the weights of a Blend must be finite, at least 0 and not all 0"
            raise ValueError(f"{text}, got {self.weights!r}.")
        return weights / weights.sum()

    def shrunk(self, shrinkage: float) -> Array:
        """Return the blend shrunk towards the identity."""
        return shrink(self.metric_, shrinkage)
