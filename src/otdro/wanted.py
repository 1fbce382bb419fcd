"""What a parameter takes, as a test and in words; the one sentence that refuses other values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np


class Wanted(NamedTuple):
    """Whether a value is one of those that a parameter takes, and these in words."""

    accepts: Callable[[Any], bool]
    words: str


def check_settings(owner: Any, table: Mapping[str, Wanted]) -> None:
    """Refuse a value that its parameter does not take; ``owner`` may lack some of the table."""
    for name, wanted in table.items():
        if not hasattr(owner, name):
            continue
        value = getattr(owner, name)
        if not wanted.accepts(value):
            raise ValueError(f"{name} must be {wanted.words}, got {name}={value!r}.")


def is_truth(value: Any) -> bool:
    """Whether a value is True or False."""
    return isinstance(value, bool | np.bool_)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, Integral) and not is_truth(value)


def is_number(value: Any) -> bool:
    """Whether a value is a real number; True and False are none."""
    return isinstance(value, Real) and not is_truth(value)


def is_finite(value: Any) -> bool:
    """Whether a value is a real number that is neither infinite nor NaN."""
    return is_number(value) and bool(np.isfinite(value))


def is_tolerance(value: Any) -> bool:
    """Whether a value is a finite number >= 0."""
    return is_number(value) and 0 <= value < np.inf


def is_count(value: Any) -> bool:
    """Whether a value is a whole number >= 1."""
    return is_whole(value) and value >= 1


def is_seed(value: Any) -> bool:
    """Whether a value seeds numpy's RandomState, is one, or is None."""
    if is_whole(value):
        return bool(0 <= value < 2**32)
    return value is None or isinstance(value, np.random.RandomState)


def is_list(value: Any) -> bool:
    """Whether a value can be gone through one by one; texts are none."""
    return isinstance(value, Iterable) and not isinstance(value, str | type)


def is_list_or_none(value: Any) -> bool:
    """Whether a value is a list, or None."""
    return value is None or is_list(value)


TRUTH = Wanted(is_truth, "True or False")
TOLERANCE = Wanted(is_tolerance, "a number >= 0")
COUNT = Wanted(is_count, "an integer >= 1")
SEED = Wanted(is_seed, "a whole number from 0 to 2**32 - 1, a RandomState or None")
