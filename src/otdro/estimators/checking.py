"""The settings of an estimator, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer_names

from ..radius.checks import check_deltas
from ..radius.rules import RULES
from ..wanted import (
    COUNT,
    SEED,
    TOLERANCE,
    TRUTH,
    Wanted,
    check_settings,
    is_number,
    is_truth,
    is_whole,
)


def check_parameters(estimator: Any) -> None:
    """Refuse a setting that its parameter does not take, whether or not this fit would use it."""
    check_settings(estimator, WANTED)
    if estimator.deltas is not None:
        check_deltas(estimator.deltas)


def _is_verbosity(value: Any) -> bool:
    return is_truth(value) or (is_whole(value) and value >= 0)


def _is_number_of_jobs(value: Any) -> bool:
    return value is None or (is_whole(value) and value != 0)


def _is_probability(value: Any) -> bool:
    return is_number(value) and 0 < value < 1


def _is_rule(value: Any) -> bool:
    return isinstance(value, str) and value in RULES


def _is_scorer(value: Any) -> bool:
    if isinstance(value, str):
        return value in get_scorer_names()
    return value is None or (callable(value) and not isinstance(value, type))


def _makes_folds(value: Any) -> bool:
    if is_truth(value) or isinstance(value, str | bytes | Mapping | type):
        return False
    if is_whole(value):
        return bool(value >= 2)
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return value is None or hasattr(value, "split") or isinstance(value, Iterable)


def _weighs_classes(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(is_number(weight) and 0 <= weight < np.inf for weight in value.values())
    return value is None or (isinstance(value, str) and value == "balanced")


#: What is checked here; ``loss``, ``cost``, ``order``, ``delta``, ``solver``, ``multi_class`` and
#: the prices of labels and targets are checked where they are resolved.
WANTED = {
    "fit_intercept": TRUTH,
    "class_weight": Wanted(
        _weighs_classes, "a dict from labels to weights >= 0, 'balanced' or None"
    ),
    "cv": Wanted(
        _makes_folds, "a whole number (at least 2 folds), a splitter, an iterable of splits or None"
    ),
    "scoring": Wanted(
        _is_scorer,
        "a name of sklearn.metrics.get_scorer_names(), a function of (model, X, y) or None",
    ),
    "rule": Wanted(_is_rule, f"one of {', '.join(RULES)}"),
    "confidence": Wanted(_is_probability, "a number between 0 and 1"),
    "n_jobs": Wanted(_is_number_of_jobs, "a whole number other than 0, or None"),
    "random_state": SEED,
    "tol": TOLERANCE,
    "max_iter": COUNT,
    "verbose": Wanted(_is_verbosity, "True, False or a whole number >= 0"),
}
