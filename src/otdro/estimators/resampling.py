"""A fitted model beside the same model fitted to other samples of its rows: bootstrap and folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import confusion_matrix, log_loss, roc_auc_score, roc_curve
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from ..arrays import numpy
from ..design import column_scale
from ..pairs import generator
from .base import DROEstimator

Array = NDArray[Any]

#: Bins of equal numbers of rows in which predictions are compared with what was observed.
BINS = 10


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

    A row that is drawn k times has k times its weight: so no fold of a refit
    is tested on a copy of a row that it was fitted to. A model that takes no weights is given the
    copies. ``rechoose``: also refit the steps in front and choose cost and delta anew; else the
    steps in front are those of the model, and so are cost and delta of otdro's estimators.
    """

    model: Any
    X: Any
    y: Array
    weights: Array
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
        again = clone(last) if self.rechoose else at_its_ball(last)
        with warnings.catch_warnings():
            # a sample may be separable, or leave a column constant: what counts is the spread
            warnings.simplefilter("ignore")
            if self.rechoose and front is not None:
                front = clone(front).fit(_safe_indexing(self.X, drawn), self.y[drawn])
                Z = front.transform(self.X)
            if has_fit_parameter(again, "sample_weight"):
                weights = self.weights[rows] * count
                again.fit(_safe_indexing(Z, rows), self.y[rows], sample_weight=weights)
            else:
                again.fit(_safe_indexing(Z, drawn), self.y[drawn])
            return value(front, again)

    def _drawn(self, rng: np.random.Generator) -> Array:
        """Return rows with weight, drawn with replacement, anew until all classes are there."""
        some = np.flatnonzero(self.weights)
        classes = 1
        if is_classifier(front_and_last(self.model)[1]):
            classes = len(np.unique(self.y[some]))
        while True:
            drawn = some[rng.integers(len(some), size=len(some))]
            if len(np.unique(self.y[drawn])) >= classes:
                return drawn


def training_rows(model: Any) -> Bootstrap | None:
    """Return the rows that an estimator of otdro was fitted to; None where they are gone.

    The weights are positive with sum 1, and hold those of the classes.
    """
    if not hasattr(model, "_result"):
        return None
    sample, y, *_ = model._result.targets
    X = sample.X if hasattr(sample.X, "tocsr") else numpy(sample.X)
    model = copy(model)
    model.class_weight = None
    return Bootstrap(model, X, numpy(y), numpy(sample.weights))


def training_scale(model: Any) -> Array | None:
    """Return the standard deviations of the columns that an estimator of otdro was fitted to.

    They are saved with a model, the rows are not; members of a mix see the same rows. None for
    models of others.
    """
    rows = training_rows(model)
    if rows is None:
        scales = [training_scale(member) for member in getattr(model, "members_", {}).values()]
        scales = [getattr(model, "_column_scale", None), *scales]
        return next((scale for scale in scales if scale is not None), None)
    return column_scale(rows.X, rows.weights)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What models that did not see a row say of it.

    Attributes
    ----------
    target : ndarray of shape (E,)
        The number of the class, or the target; a row is there once for every fold that tests it.
    score : ndarray of shape (E,) or (E, K)
        Its score, one per class of several; for regression the prediction.
    probability : ndarray of shape (E, n_classes) or None
        Its class probabilities.
    weights : ndarray of shape (E,)
        Of sum 1.
    classes : ndarray of shape (n_classes,) or None
        The labels; None for regression.
    rows : int
        The number of distinct rows.
    folds : str
        Which folds held the rows out, in words.
    """

    target: Array
    score: Array
    probability: Array | None
    weights: Array
    classes: Array | None
    rows: int
    folds: str

    @property
    def predicted(self) -> Array:
        """The numbers of the predicted classes, or the predictions, (E,)."""
        if self.classes is None:
            return self.score
        return self.score.argmax(axis=1) if self.score.ndim == 2 else (self.score > 0).astype(int)

    def measures(self) -> dict[str, float]:
        """Return the measures of the task by name; what does not apply is left out."""
        y, w = self.target, self.weights
        if self.classes is None:
            error = self.score - y
            root = float(np.sqrt(w @ error**2))
            found = {"RMSE": root, "MAE": float(w @ np.abs(error))}
            return found | {"calibration slope": self.calibration_slope()}
        labels = np.arange(len(self.classes))
        found = {"accuracy": float(w @ (self.predicted == y))}
        if self.probability is not None:
            loss = float(log_loss(y, self.probability, sample_weight=w, labels=labels))
            found = {"log-loss": loss, **found}
        if self.score.ndim == 1:
            found["AUC"] = float(roc_auc_score(y, self.score, sample_weight=w))
        elif self.probability is not None:
            found["AUC"] = float(roc_auc_score(y, self.probability, multi_class="ovr"))
        if self.probability is not None and self.score.ndim == 1:
            found["calibration slope"] = self.calibration_slope()
        return found

    def calibration_slope(self) -> float:
        """Return the slope of targets in the predictions, of two classes in the log-odds.

        1 is right, below 1 predictions are too extreme; nan where all predictions are equal, inf
        where they separate the classes.
        """
        z, y = self.score, self.target
        if np.ptp(z) == 0:
            return float("nan")
        if self.classes is None:
            line = LinearRegression().fit(z[:, None], y, sample_weight=self.weights)
            return float(line.coef_[0])
        if z[y == 0].max(initial=-np.inf) < z[y == 1].min(initial=np.inf):
            return float("inf")
        # in units of their spread, so that the solver meets numbers near 1
        line = LogisticRegression(C=np.inf, max_iter=1000)
        line.fit(z[:, None] / z.std(), y, sample_weight=self.weights * len(y))
        return float(line.coef_[0, 0] / z.std())

    def calibration(self) -> Array:
        """Return mean prediction, mean observed, and rows in bins of equal rows: (bins, 3).

        Of two classes the prediction is the probability of the second one; of several classes, and
        without probabilities, there are no bins.
        """
        p = self.score if self.classes is None else None
        if self.probability is not None and self.probability.shape[1] == 2:
            p = self.probability[:, 1]
        if p is None:
            return np.zeros((0, 3))
        bins = np.array_split(np.argsort(p, kind="stable"), min(BINS, len(p)))
        lines = []
        for rows in bins:
            w = self.weights[rows]
            means = [float(w @ values[rows]) / w.sum() for values in (p, self.target)]
            lines.append([*means, w.sum() * self.rows])
        return np.array(lines)

    def roc(self) -> Array:
        """Return false and true positive rates, (m, 2), of two classes; no lines else."""
        if self.classes is None or self.score.ndim == 2:
            return np.zeros((0, 2))
        false, true, _ = roc_curve(self.target, self.score, sample_weight=self.weights)
        return np.column_stack([false, true])

    def confusion(self) -> Array:
        """Return how many rows of each class (lines) are predicted to be of each (columns)."""
        weights = self.weights * self.rows
        labels = np.arange(0 if self.classes is None else len(self.classes))
        return confusion_matrix(self.target, self.predicted, labels=labels, sample_weight=weights)


def held_out(model: Any) -> HeldOut | None:
    """Return the held-out rows of a fitted estimator of otdro.

    They are those of the folds that chose delta or the cost, at what they chose; else of five folds
    at the fitted cost and delta. None where the rows of the fit are gone, or too few.
    """
    rows = training_rows(model)
    if rows is None:
        return None
    tested = getattr(getattr(model, "path_", None), "out_of_fold", None)
    if tested is not None:
        index, score = tested.rows, tested.scores
        folds = "the folds that chose delta and the cost"
    else:
        made = _folds_at_the_ball(rows)
        if made is None:
            return None
        index, score = made
        folds = "folds at the fitted cost and delta"
    score = score[:, 0] if score.ndim == 2 and score.shape[1] == 1 else score
    times = np.bincount(index, minlength=len(rows.y))
    weights = rows.weights[index] / times[index]
    classes = getattr(model, "classes_", None)
    target = rows.y[index]
    return HeldOut(
        target=target if classes is None else np.searchsorted(classes, target),
        score=score,
        probability=model._probabilities(score) if hasattr(model, "predict_proba") else None,
        weights=weights / weights.sum(),
        classes=classes,
        rows=int(np.count_nonzero(times)),
        folds=folds,
    )


def _folds_at_the_ball(rows: Bootstrap) -> tuple[Array, Array] | None:
    """Return row numbers and scores of rows held out by folds at the fitted cost and delta.

    None where there are too few rows, or rows of a class, for two folds.
    """
    classes, y = is_classifier(rows.model), rows.y
    rarest = int(np.unique(y, return_counts=True)[1].min()) if classes else len(y)
    count = min(DROEstimator.cv, rarest)
    if count < 2:
        return None
    kind, method = (StratifiedKFold, "decision_function") if classes else (KFold, "predict")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = cross_val_predict(
            at_its_ball(rows.model),
            rows.X,
            y,
            cv=kind(count, shuffle=True, random_state=0),
            method=method,
            params={"sample_weight": rows.weights},
        )
    return np.arange(len(y)), score
