"""The values of one column: numbers however they are written, texts and dates.

Percentages, amounts with a unit, and yes and no are numbers. A date becomes numbers whose names
say how they follow from it, so that a saved model can be given the date again.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .errors import UserError

Array = NDArray[Any]

#: The share of the values that must be of a kind for a column to hold it.
MOST = 0.9
#: The share of the values from which on a column holds mostly that.
MOSTLY = 0.5
#: 2024-01-31, 31.01.2024, 1/31/24, each with or without a time of day.
DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))"
    r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
#: A time of day.
TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
#: A number with a unit, such as 12%, $5 or 3 kg; also with a typeset minus, or in the parentheses
#: of accountants; its thousands may be set apart by blanks, apostrophes, commas or dots.
WRITTEN = re.compile(
    r"(?P<paren>\()?\s*(?P<minus>[+\-−])?\s*(?P<before>[$€£¥]|EUR|USD|GBP|CHF|JPY)?\s*"
    r"(?P<sign>[+\-−])?(?P<digits>\d+(?:[.,'’ \u00a0\u202f]\d+)*)"
    r"\s*\)?\s*(?P<unit>[%$€£¥]|[a-zA-Z]{1,3})?\s*\)?"
)
#: Of each decimal sign, numbers whose thousands the other sign may set apart.
NUMBER = {
    ".": r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?(?:[eE][+-]?\d+)?",
    ",": r"[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?(?:[eE][+-]?\d+)?",
}
#: A number as a computer writes it.
PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
#: Currencies that are written before amounts whose thousands commas set apart.
ENGLISH = ("$", "£", "¥", "USD", "GBP", "JPY")
#: Words for truth values.
WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
#: The numbers that a date becomes.
OF_DATE = re.compile(r"(?:(month|weekday) of (.+)|days of (.+) since (\d{4}-\d{2}-\d{2}))")


class Numbers(NamedTuple):
    """A column as floats, nan where missing, and what was read as numbers in words, or ""."""

    values: Array
    what: str = ""


def as_texts(column: Any) -> Array:
    """Return texts as an object array, nan where missing."""
    values = np.array([str(value) for value in column], dtype=object)
    values[column.isna().to_numpy()] = np.nan
    return values


def numbers_in(column: Any, *, words: bool = True) -> Numbers | None:
    """Return a column as numbers, also percentages and amounts; None if it holds texts.

    Without ``words`` yes and no are texts, as in a target.
    """
    if column.dtype.kind not in "mMc" and not isinstance(column.dtype, pd.CategoricalDtype):
        plain = column
        if not pd.api.types.is_numeric_dtype(column.dtype):
            plain = pd.to_numeric(column.astype(object), errors="coerce")
        if plain.isna().sum() == column.isna().sum():
            return Numbers(plain.to_numpy(dtype=float, na_value=np.nan))
    texts = texts_in(column.dropna())
    if texts is None:
        return None
    lower = texts.str.lower()
    if words and lower.isin(WORDS).all():
        values, what = lower.map(WORDS), "yes or true as 1 and no or false as 0"
    elif WRITTEN.fullmatch(texts.iloc[0]) and texts.str.fullmatch(WRITTEN.pattern).all():
        parts = texts.str.extract(WRITTEN.pattern)[list(WRITTEN.groupindex)].fillna("")
        digits = parts.digits.str.replace(r"['’ \u00a0\u202f](?=\d{3})", "", regex=True)
        decimal = _decimal(digits, english=set(parts.before) <= set(ENGLISH))
        if decimal is None or (parts.before + parts.unit).nunique() > 1:
            return None
        values = in_computer_writing(digits, decimal).astype(float)
        minus = parts.minus.isin(["-", "−"]) | parts.sign.isin(["-", "−"]) | (parts.paren == "(")
        values = values.where(~minus, -values)
        what = f"{texts.iloc[0]} as {values.iloc[0]:g}"
    else:
        return None
    return Numbers(values.reindex(column.index).to_numpy(dtype=float), what)


def in_computer_writing(texts: Any, decimal: str) -> Any:
    """Return texts of numbers without signs between thousands, and with a decimal dot."""
    thousands = "," if decimal == "." else "."
    return texts.str.replace(thousands, "", regex=False).str.replace(decimal, ".", regex=False)


def _decimal(digits: Any, english: bool) -> str | None:
    """Return the decimal sign of digits; None if they are no numbers, or both signs may be it."""
    fitting = [sign for sign, form in NUMBER.items() if digits.str.fullmatch(form).all()]
    certain = english and not digits.str.contains(".", regex=False).any()
    if len(fitting) == 2 and not (certain or digits.str.isdigit().all()):
        return None
    return fitting[0] if fitting else None


def required_numbers(column: Any, *, words: bool = True) -> Array:
    """Return a column as numbers, nan where missing; refuse texts, by the row of the first one."""
    numbers = numbers_in(column, words=words)
    if numbers is None:
        row = first_text(column)
        raise UserError(
            f"column {column.name!r} must hold numbers, but row {row} holds {str(column[row])!r}."
        )
    return numbers.values


def first_text(column: Any) -> Any:
    """Return the row of the first value of a column that is no number."""
    bad = pd.to_numeric(column.astype(object), errors="coerce").isna() & column.notna()
    return bad.idxmax()


def texts_in(present: Any) -> Any:
    """Return the values as stripped texts, None if some are something else."""
    if not len(present) or not present.map(lambda value: isinstance(value, str)).all():
        return None
    return present.astype(object).str.strip()


def like_numbers(column: Any) -> str | None:
    """Return a value of a column of amounts or times that are not read as numbers, else None."""
    texts = texts_in(column.dropna())
    if texts is None:
        return None
    like = texts.str.fullmatch(f"(?:{WRITTEN.pattern})|{TIME}")
    return str(texts.iloc[0]) if float(like.mean()) >= MOST else None


# Dates.


def holds_dates(column: Any) -> bool:
    """Whether a column holds dates: as such, as texts, or as whole numbers like 20240131."""
    if column.dtype.kind in "mM":
        return True
    present = column.dropna()
    if column.dtype.kind not in "iu":
        texts = texts_in(present)
        return texts is not None and float(texts.str.fullmatch(DATE).mean()) >= MOST
    if not len(present) or not present.between(19000101, 21001231).all():
        return False
    return float(days_in(present).notna().mean()) >= MOST and present.nunique() > 1


def days_in(column: Any) -> Any:
    """Return the days of a column of dates, without the time of day; what is none is missing."""
    if column.dtype.kind == "M":
        return column.dt.tz_localize(None).dt.normalize()
    if column.dtype.kind in "iu":
        return pd.to_datetime(column.astype(str), format="%Y%m%d", errors="coerce")
    texts = column.astype(object).str.extract(r"^\s*(\d+[-/.]\d+[-/.]\d+)")[0]
    order = "%d-%m"
    # with slashes the month may come first
    slashes = texts[texts.str.match(r"\d\d?/", na=False)]
    if len(slashes):
        parts = slashes.str.split("[-/.]", expand=True, regex=True).astype(int)
        is_day = (parts > 12).any()
        if is_day[0] == is_day[1]:
            raise UserError(
                f"column {column.name!r} holds {slashes.iloc[0]}, whose month may be the first or "
                "the second number; write dates like 2024-01-31."
            )
        order = "%d-%m" if is_day[0] else "%m-%d"
    written = texts.str.replace("[/.]", "-", regex=True)
    dates = pd.to_datetime(written, format="%Y-%m-%d", errors="coerce")
    # of two digits, up to 68 is this century, as in POSIX
    for form in (f"{order}-%Y", f"{order}-%y"):
        dates = dates.fillna(pd.to_datetime(written, format=form, errors="coerce"))
    return dates


def date_names(column: Any) -> list[str]:
    """Return the names of the numbers that a column of dates becomes.

    They are days since the first, and the month and the weekday where these recur.
    """
    days = days_in(column)
    first, last = days.min(), days.max()
    names = [f"days of {column.name} since {first:%Y-%m-%d}"]
    if last > first + pd.DateOffset(years=1):
        names.append(f"month of {column.name}")
    if last > first + pd.DateOffset(months=1) and days.dt.day_of_week.nunique() > 1:
        names.append(f"weekday of {column.name}")
    return names


def origin(name: str, columns: Any) -> str | None:
    """Return the column of a table that a column of a model is read from, None if it has none."""
    if name in columns:
        return name
    parts = OF_DATE.fullmatch(name)
    date = None if parts is None else parts[2] or parts[3]
    return date if date in columns else None


def number_of_date(name: str, column: Any) -> Array:
    """Return the number ``name`` of a column of dates, a weekday from 1 (Monday) to 7."""
    parts = OF_DATE.fullmatch(name)
    assert parts is not None
    days = days_in(column)
    bad = days.isna() & column.notna()
    if bad.any():
        row = bad.idxmax()
        raise UserError(
            f"column {column.name!r} must hold dates, but row {row} holds {str(column[row])!r}."
        )
    if parts[1] is not None:
        values = days.dt.month if parts[1] == "month" else days.dt.day_of_week + 1
    else:
        values = (days - pd.Timestamp(parts[4])).dt.days
    return np.asarray(values, dtype=float)
