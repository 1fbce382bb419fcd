"""Columns that look like features and are not: dates, identifiers, numbers in other writing."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: 2024-01-31, 31.01.2024, 1/31/24, each with or without a time of day.
DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))"
    r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
#: A number with a unit, such as 12%, $5 or 3 kg; also with a typeset minus, or in the parentheses
#: of accountants; its thousands may be set apart by blanks or apostrophes.
WITH_UNIT = (
    r"[$€£¥]?\s*[+\-−]?\(?\d+(?:['’ \u00a0\u202f]\d{3})*(?:[.,]\d+)?\)?"
    r"\s*(?:[%$€£¥]|[a-zA-Z]{1,3})?"
)
#: A time of day.
TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
#: How the name of a column of identifiers ends.
ID_NAME = re.compile(r"(?:^|[_\W])(?:id|uuid|guid|key|index|nr)$|[a-z]I[dD]$|^Unnamed: 0$", re.I)
#: What files write for a missing number.
PLACEHOLDERS = (-99.0, -999.0, -9999.0, -99999.0)
#: The share of values that decides.
MOST = 0.9
#: A column named as an identifier is one if more than this share of its values are distinct.
DISTINCT = 0.5


def holds_dates(column: Any) -> bool:
    """Whether a column holds dates: as such, as texts, or as whole numbers like 20240131."""
    if column.dtype.kind in "mM":
        return True
    present = column.dropna()
    if column.dtype.kind in "iu":
        return _compact_dates(present)
    texts = _texts(present)
    return texts is not None and float(texts.str.fullmatch(DATE).mean()) >= MOST


def _compact_dates(present: Any) -> bool:
    import pandas as pd

    if not len(present) or not present.between(19000101, 21001231).all():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        days = pd.to_datetime(present.astype(str), format="%Y%m%d", errors="coerce")
    return float(days.notna().mean()) >= MOST and present.nunique() > 1


def placeholder(numbers: Array) -> float | None:
    """Return the number that seems to stand for missing values, None if there is none.

    It is one of ``PLACEHOLDERS``, there twice or more, and far below all other values.
    """
    finite = numbers[np.isfinite(numbers)]
    for value in PLACEHOLDERS:
        others = finite[finite != value]
        if len(others) and len(finite) - len(others) > 1 and others.min() > value / 2:
            return value
    return None


def holds_identifiers(column: Any) -> bool:
    """Whether whole numbers only name their rows: a counter, or distinct ones called ..._id."""
    present = column.dropna()
    if column.dtype.kind not in "iu" or not len(present):
        return False
    distinct = int(present.nunique())
    values = present.to_numpy()
    counter = distinct == len(column) and int(np.ptp(values)) == len(column) - 1
    in_order = counter and bool((np.abs(np.diff(values)) == 1).all())
    named = bool(ID_NAME.search(str(column.name)))
    return in_order or (named and distinct > DISTINCT * len(column))


def written_number(column: Any) -> str | None:
    """Return a value of a column of numbers with a unit, or in a writing that is not read as one.

    None if it is no such column.
    """
    texts = _texts(column.dropna())
    if texts is None:
        return None
    like = texts.str.fullmatch(f"{WITH_UNIT}|{TIME}") & texts.str.contains(r"\d")
    return str(texts.iloc[0]) if float(like.mean()) >= MOST else None


def _texts(present: Any) -> Any:
    """Return the values as stripped texts, None if some are something else."""
    if not len(present) or not present.map(lambda value: isinstance(value, str)).all():
        return None
    return present.astype(object).str.strip()
