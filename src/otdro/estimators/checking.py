"""The settings of an estimator, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import get_scorer_names

from ..radius.checks import check_deltas
from ..radius.rules import RULES


class Wanted(NamedTuple):
    """Whether a value is one of those that a parameter takes, and these in words."""

    accepts: Callable[[Any], bool]
    words: str


def check_parameters(estimator: Any) -> None:
    """Refuse a setting that its parameter does not take, whether or not this fit would use it."""
    for name, wanted in WANTED.items():
        if not hasattr(estimator, name):
            continue
        value = getattr(estimator, name)
        if not wanted.accepts(value):
            raise ValueError(f"{name} must be {wanted.words}, got {name}={value!r}.")
    if estimator.deltas is not None:
        check_deltas(estimator.deltas)


def is_truth(value: Any) -> bool:
    """Whether a value is True or False."""
    return isinstance(value, bool | np.bool_)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, Integral) and not is_truth(value)


def is_number(value: Any) -> bool:
    """Whether a value is a real number; True and False are none."""
    return isinstance(value, Real) and not is_truth(value)


def _is_verbosity(value: Any) -> bool:
    return is_truth(value) or (is_whole(value) and value >= 0)


def _is_number_of_jobs(value: Any) -> bool:
    return value is None or (is_whole(value) and value != 0)


def _is_probability(value: Any) -> bool:
    return is_number(value) and 0 < value < 1


def _is_tolerance(value: Any) -> bool:
    return is_number(value) and 0 <= value < np.inf


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 1


def _is_seed(value: Any) -> bool:
    if is_whole(value):
        # what numpy's RandomState takes
        return bool(0 <= value < 2**32)
    return value is None or isinstance(value, np.random.RandomState)


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
    "fit_intercept": Wanted(is_truth, "True or False"),
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
    "random_state": Wanted(_is_seed, "a whole number from 0 to 2**32 - 1, a RandomState or None"),
    "tol": Wanted(_is_tolerance, "a number >= 0"),
    "max_iter": Wanted(_is_count, "an integer >= 1"),
    "verbose": Wanted(_is_verbosity, "True, False or a whole number >= 0"),
}
