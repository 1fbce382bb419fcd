"""The same model fitted to bootstrap samples of its rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from ..pairs import generator
from .base import DROEstimator

Array = NDArray[Any]


def front_and_last(model: Any) -> tuple[Any, Any]:
    """Return the steps in front of a model, None where there are none, and its last step."""
    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, Pipeline):
        return None, model
    return (model[:-1] if len(model.steps) > 1 else None), model.steps[-1][1]


def at_its_ball(model: Any) -> Any:
    """Return an unfitted copy; an estimator of otdro keeps the cost and delta it was fitted at."""
    again = clone(model)
    if isinstance(model, DROEstimator) and hasattr(model, "ball_"):
        again.set_params(cost=model.cost_, order=int(model.ball_.order), delta=model.delta_)
    return again.set_params(n_jobs=None) if "n_jobs" in again.get_params() else again


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Refits of a fitted ``model`` to samples, drawn with replacement, of rows (X, y).

    A row that is drawn k times has k times its weight (``weights``, None: 1): so no fold of a refit
    is tested on a copy of a row that it was fitted to. A model that takes no weights is given the
    copies. ``rechoose``: also refit the steps in front and choose cost and delta anew; else the
    steps in front are those of the model, and so are cost and delta of otdro's estimators.
    """

    model: Any
    X: Any
    y: Array
    weights: Array | None = None
    rechoose: bool = False

    def collect(
        self,
        value: Callable[[Any, Any], Array],
        refits: int,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> Array:
        """Return value(front, last) of every refit, stacked: (refits, ...)."""
        rng = generator(random_state)
        seeds = rng.randint(np.iinfo(np.int32).max, size=refits)
        front, last = front_and_last(self.model)
        Z = self.X
        if front is not None and not self.rechoose:
            Z = front.transform(self.X)
        job = delayed(self._refit)
        return np.stack(Parallel(n_jobs=n_jobs)(job(seed, Z, front, last, value) for seed in seeds))

    def _refit(
        self, seed: int, Z: Any, front: Any, last: Any, value: Callable[[Any, Any], Array]
    ) -> Array:
        """Return the value of one refit."""
        drawn = self._drawn(np.random.default_rng(seed))
        rows, count = np.unique(drawn, return_counts=True)
        own = np.ones(len(self.y)) if self.weights is None else self.weights
        again = clone(last) if self.rechoose else at_its_ball(last)
        with warnings.catch_warnings():
            # a sample may be separable, or leave a column constant: what counts is the spread
            warnings.simplefilter("ignore")
            if self.rechoose and front is not None:
                front = clone(front).fit(_safe_indexing(self.X, drawn), self.y[drawn])
                Z = front.transform(self.X)
            if has_fit_parameter(again, "sample_weight"):
                weights = own[rows] * count
                again.fit(_safe_indexing(Z, rows), self.y[rows], sample_weight=weights)
            else:
                again.fit(_safe_indexing(Z, drawn), self.y[drawn])
            return value(front, again)

    def _drawn(self, rng: np.random.Generator) -> Array:
        """Return row numbers drawn with replacement, anew until every class is among them."""
        n = len(self.y)
        classes = len(np.unique(self.y)) if is_classifier(front_and_last(self.model)[1]) else 1
        while True:
            drawn = rng.integers(n, size=n)
            if len(np.unique(self.y[drawn])) >= classes:
                return drawn
