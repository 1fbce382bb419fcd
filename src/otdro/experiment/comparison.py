"""Repeated splits of one table of data: our model beside plain, L1 and L2 ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedShuffleSplit,
)
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from ..estimators import DROClassifier, DRORegressor
from .device import Device, recorded
from .environments import (
    LEFT_OUT_ONE_BY_ONE,
    Splits,
    fit_with_unlabelled,
    forward,
    leave_out,
)
from .models import Setting, constant, default_model, plain, tuned_l1, tuned_l2
from .splits import folds

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of a data frame with their targets.

    ``groups`` are the environments of the rows, ``unlabelled`` further rows without a target; None
    if there are none.
    """

    X: Any
    y: Array
    task: str
    groups: Array | None = None
    unlabelled: Any = None

    def part(self, rows: Array) -> Self:
        """Return some of the rows, with all that have no target."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, X=self.X.iloc[rows], y=self.y[rows], groups=groups)


@dataclass(frozen=True)
class Score:
    """The measures of one method on one split."""

    method: str
    split: int
    values: dict[str, float]


@dataclass(frozen=True)
class Summary:
    """The mean of a measure with its standard error, and the paired difference to ours."""

    method: str
    measure: str
    mean: float
    se: float
    difference: float
    difference_se: float


def contenders(
    task: str, n_classes: int, setting: Setting, ours: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the models to compare by name, ours first: with its defaults but for ``ours``."""
    kind = "multiclass" if task == "classification" and n_classes > 2 else task
    model = DROClassifier if task == "classification" else DRORegressor
    return {
        "ours": default_model(task, setting).set_params(**(ours or {})),
        "plain": plain(kind, setting),
        "L1": tuned_l1(kind, setting),
        "L2": tuned_l2(kind, setting),
        "constant": constant(task),
        "Wasserstein": model(cost="euclidean", delta="cv", **setting.ours()),
    }


def inner_folds(y: Array, task: str, seed: int, groups: Array | None = None) -> Any:
    """Return the folds that choose penalties and delta, the same for all models.

    With ``groups`` they leave environments out, if there is more than one.
    """
    if groups is not None and len(np.unique(groups)) > 1:
        found = leave_out(y, task, groups, most=5)
        if found:
            return found
    if task == "classification":
        return folds(y, seed)
    return KFold(max(2, min(5, len(y) // 2)), shuffle=True, random_state=seed)


def rounds(
    y: Array,
    task: str,
    repeats: int | None,
    seed: int,
    groups: Array | None = None,
    in_order: bool = False,
) -> Splits:
    """Return the splits of a comparison: random ones, or such as leave environments out.

    Random ones are five folds, or ``repeats`` splits into four and one fifths.

    ``in_order`` trains on the environments so far and tests on the next.
    """
    if groups is None:
        if repeats is None:
            return list(inner_folds(y, task, seed).split(y, y))
        splitter = StratifiedShuffleSplit if task == "classification" else ShuffleSplit
        return list(splitter(repeats, test_size=0.2, random_state=seed).split(y, y))
    if in_order:
        found = forward(y, task, groups)
    else:
        found = leave_out(y, task, groups, LEFT_OUT_ONE_BY_ONE)
    if not found:
        raise ValueError(
            "no split into environments has training rows of every class; compare without groups."
        )
    return found


def compare(
    data: Labelled,
    preprocessing: Any,
    splits: Splits,
    *,
    methods: list[str] | None = None,
    seed: int = 0,
    ours: Mapping[str, Any] | None = None,
    device: Device | None = None,
) -> Iterator[Score]:
    """Return the scores of every method on every split; preprocessing is fitted inside each.

    ``ours`` are parameters of our model that differ from the defaults. With a ``device`` the fits
    run side by side, their small problems as one batch there.
    """
    known = contenders(data.task, 2, Setting())
    names = [name for name in known if methods is None or name in methods]

    def score(k: int, name: str) -> Score:
        train, test = (data.part(rows) for rows in splits[k])
        cv = inner_folds(train.y, data.task, seed, train.groups)
        setting = Setting(cv=cv, seed=seed)
        model = contenders(data.task, len(np.unique(train.y)), setting, ours)[name]
        pipe = Pipeline([("columns", clone(preprocessing)), ("model", model)])
        # a baseline that does not converge is scored as it is
        with recorded():
            fit_pipeline(pipe, train)
        return Score(name, k, measures(pipe, test))

    cells = [(k, name) for k in range(len(splits)) for name in names]
    if device is None:
        return (score(*cell) for cell in cells)
    tasks = [partial(score, *cell) for cell in cells]
    return device.side_by_side(tasks, [name for _, name in cells])


def fit_pipeline(pipe: Pipeline, data: Labelled) -> None:
    """Fit; ours knows the environments, and rows without labels are there for all."""
    known: dict[str, Any] = {}
    groups = data.groups
    if groups is not None and len(np.unique(groups)) > 1 and has_fit_parameter(pipe[-1], "groups"):
        known = {"groups": groups}
    if data.unlabelled is not None:
        fit_with_unlabelled(pipe, data.X, data.y, data.unlabelled, **known)
    else:
        pipe.fit(data.X, data.y, **{f"model__{name}": value for name, value in known.items()})


def measures(model: Any, data: Labelled) -> dict[str, float]:
    """Return the test measures of a fitted model."""
    X, y = data.X, data.y
    if data.task == "regression":
        error = model.predict(X) - y
        return {"RMSE": float(np.sqrt(np.mean(error**2))), "MAE": float(np.abs(error).mean())}
    classes = model.classes_
    if not hasattr(model, "decision_function"):
        return _of_chances(model, X, y)
    scores = model.decision_function(X)
    if scores.ndim == 1:
        sign = np.where(y == classes[1], 1.0, -1.0)
        loss = float(np.logaddexp(0, -sign * scores).mean())
        # a score of 0 predicts the first class, as scikit-learn does
        return {"log-loss": loss, "accuracy": float(((scores > 0) == (sign > 0)).mean())}
    if not hasattr(model, "predict_proba"):
        return {"log-loss": float("nan"), "accuracy": float((model.predict(X) == y).mean())}
    return _of_chances(model, X, y)


def _of_chances(model: Any, X: Any, y: Array) -> dict[str, float]:
    """Return the measures of a model that gives probabilities."""
    at = np.searchsorted(model.classes_, y)
    chances = model.predict_proba(X)[np.arange(len(y)), at]
    loss = float(-np.log(np.maximum(chances, 1e-300)).mean())
    return {"log-loss": loss, "accuracy": float((model.predict(X) == y).mean())}


def summarise(scores: list[Score]) -> list[Summary]:
    """Return means and standard errors over the splits, and paired ones against ours."""
    methods = list(dict.fromkeys(score.method for score in scores))
    names = list(scores[0].values)
    return [_summary(scores, method, name) for name in names for method in methods]


def _summary(scores: list[Score], method: str, name: str) -> Summary:
    own, ours = _values(scores, method, name), _values(scores, "ours", name)
    difference = own - ours if len(ours) == len(own) else np.full(len(own), np.nan)
    return Summary(
        method,
        name,
        float(own.mean()),
        standard_error(own),
        float(difference.mean()),
        standard_error(difference),
    )


def _values(scores: list[Score], method: str, name: str) -> Array:
    """Return a measure of one method, in the order of the splits."""
    return np.array([score.values[name] for score in scores if score.method == method])


def standard_error(values: Array) -> float:
    """Return sd/sqrt(n), nan for one value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
