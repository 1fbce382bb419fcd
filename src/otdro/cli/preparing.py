"""From a table to features, target and task; every choice is reported."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..comparison import Labelled
from .columns import holds_dates, holds_identifiers, placeholder, written_number
from .errors import UserError

Array = NDArray[Any]

#: Integers with at most this many distinct values are taken for labels.
FEW = 10
#: Rows below which folds make no sense.
LEAST = 10
#: A text column with more distinct values than this share of the rows is an identifier.
DISTINCT = 0.5
#: From this share on it is one in a table of any size.
IDENTIFIER = 0.9
#: Categories of a column that get an indicator of their own.
CATEGORIES = 20


@dataclass(frozen=True, eq=False)
class Prepared(Labelled):
    """Features as a DataFrame of numbers and texts, the target, and notes for the reader."""

    numbers: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def like(self, table: Any, first: int = 0) -> Any:
        """Return these columns of another table, whose first row is ``first``, as they are here."""
        kind = {**dict.fromkeys(self.numbers, "numbers"), **dict.fromkeys(self.texts, "texts")}
        return type(table)({c: column_as(table[c], kind[c], first) for c in self.X.columns})


def prepare(
    table: Any,
    target: str,
    task: str = "auto",
    drop: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    groups: str | None = None,
    keep: Sequence[str] | None = None,
) -> Prepared:
    """Split a table into features and target, and say what was done with each column."""
    columns = list(table.columns)
    drop, categorical, keep = (split_names(n, columns) for n in (drop, categorical, keep))
    both = [name for name in keep if name in drop]
    if both:
        raise UserError(f"--keep and --drop both name {both[0]!r}; name it once.")
    beside = {target} if groups is None else {target, groups}
    for name in (target, *beside, *drop, *categorical, *keep):
        check_column(name, columns)
    if target in drop:
        raise UserError(f"--drop names the target {target!r}; name columns beside it.")
    if groups == target:
        raise UserError(f"--groups {groups} is the target; name the column of the environments.")
    if beside.union(drop) == set(columns):
        raise UserError(f"there is no column beside the target {target!r} to predict from.")
    notes = list(table.attrs.get("notes", []))
    table = with_target(table, target, notes)
    y, task = target_of(table[target], task)
    notes += labels_alike(y, target)
    if len(y) < LEAST:
        raise UserError(
            f"the table has {len(y)} rows with a target; the folds need {LEAST}: add more."
        )
    environments = None if groups is None else environments_of(table[groups])
    found = usable_columns(table.drop(columns=list(beside.union(drop))), categorical, keep)
    return replace(found, y=y, task=task, groups=environments, notes=notes + found.notes)


def usable_columns(
    table: Any, categorical: Sequence[str] | None, keep: Sequence[str] | None
) -> Prepared:
    """Return the usable columns of a table, none of them a target, and notes on the others."""
    kept: dict[str, Any] = {}
    kinds: dict[str, list[str]] = {"number": [], "text": []}
    notes: list[str] = []
    categorical, keep = (split_names(n, list(table.columns)) for n in (categorical, keep))
    for name in table.columns:
        column, kind, note = feature(table[name], name in categorical, name in keep)
        notes += [note] if note else []
        if kind in kinds:
            kinds[kind].append(name)
            kept[name] = column
    if not kept:
        raise UserError("no usable column is left. " + " ".join(notes))
    X, (numbers, texts) = type(table)(kept), kinds.values()
    return Prepared(X, np.zeros(0), "", numbers=numbers, texts=texts, notes=notes)


def split_names(given: Sequence[str] | None, columns: list[str]) -> tuple[str, ...]:
    """Return the names in options such as A,B; a column whose own name has a comma is one name."""
    found: list[str] = []
    for text in given or ():
        parts = [text] if text in columns else [part.strip() for part in text.split(",")]
        found += [part for part in parts if part]
    return tuple(dict.fromkeys(found))


def environments_of(column: Any) -> Array:
    """Return the environment of every row as text; refuse missing ones, and one for all."""
    missing = column.isna().to_numpy()
    if missing.any():
        raise UserError(
            f"column {column.name!r} has no environment in row {int(missing.argmax()) + 1}: fill "
            "it in, or leave such rows out."
        )
    found = np.array([str(value) for value in column], dtype=object)
    if len(set(found)) < 2:
        raise UserError(
            f"all rows are of the environment {found[0]!r}; folds that leave environments out "
            "need two. Leave --groups out."
        )
    return found


def unlabelled_of(table: Any, data: Prepared) -> Any:
    """Return the features of rows without labels as those of the labelled rows are."""
    for name in (*data.numbers, *data.texts):
        check_column(name, list(table.columns))
    if len(table) < 2:
        raise UserError(
            f"the table of unlabelled rows has {len(table)} rows; it needs two or more."
        )
    return data.like(table)


def check_column(name: str, columns: list[str]) -> None:
    """Refuse a name that is no column, and say which may be meant."""
    if name in columns:
        return
    near = difflib.get_close_matches(name, [str(c) for c in columns], 1)
    hint = f"Did you mean {near[0]!r}?" if near else "The columns are " + _listed(columns) + "."
    raise UserError(f"there is no column {name!r}. {hint}")


def _listed(names: list[str], most: int = 8) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(str(name) for name in names[:most]) + more


def with_target(table: Any, target: str, notes: list[str]) -> Any:
    """Return the rows with a target; say how many have none."""
    check_column(target, list(table.columns))
    present = table[target].notna()
    count = int((~present).sum())
    if count == len(table):
        raise UserError(f"the target {target!r} has no values.")
    if count:
        rows = "1 row without a target is" if count == 1 else f"{count} rows without a target are"
        notes.append(f"{rows} left out.")
        table = table[present].reset_index(drop=True)
    return table


def labels_alike(y: Array, target: str) -> list[str]:
    """Return a note where labels differ in nothing but case and blanks."""
    if y.dtype.kind != "U":
        return []
    alike: dict[str, list[str]] = {}
    for label in np.unique(y).tolist():
        alike.setdefault(" ".join(label.casefold().split()), []).append(repr(label))
    return [
        f"the labels {', '.join(same)} of the target {target!r} differ in case or blanks only, and "
        "are taken for different ones; write them alike if they are not."
        for same in alike.values()
        if len(same) > 1
    ]


def target_of(column: Any, task: str) -> tuple[Array, str]:
    """Return targets as numbers or labels, and the task."""
    numbers = as_numbers(column)
    if task == "regression":
        if numbers is None:
            bad = str(column.iloc[first_text(column)])
            raise UserError(
                f"regression needs numbers, but the target {column.name!r} holds {bad!r}."
            )
        return _finite(numbers, column.name), "regression"
    distinct = int(column.nunique())
    if task == "auto" and numbers is not None and distinct > 2:
        whole = bool((numbers == np.round(numbers)).all())
        if not whole or distinct > FEW:
            return _finite(numbers, column.name), "regression"
    return _labels(column, numbers, distinct), "classification"


def _labels(column: Any, numbers: Array | None, distinct: int) -> Array:
    counts = column.astype(str).value_counts()
    if distinct < 2:
        raise UserError(
            f"the target {column.name!r} has one value only ({counts.index[0]!r}): there is "
            "nothing to predict. Name another --target, or add rows of another value."
        )
    if distinct > max(2, len(column) // 2):
        instead = "" if numbers is None else "--task regression, or "
        raise UserError(
            f"the target {column.name!r} has {distinct} distinct values in {len(column)} rows; "
            f"use {instead}another --target."
        )
    if counts.min() < 2:
        raise UserError(
            f"class {counts.index[-1]!r} of the target {column.name!r} has one row; the folds "
            "need at least two. Leave it out or merge it with another."
        )
    # labels like 0.5 are names: a classifier takes no fractions
    if numbers is not None and column.dtype.kind != "b" and (numbers == np.round(numbers)).all():
        return numbers.astype(int)
    return np.asarray(column.astype(str).tolist(), dtype=str)


def _finite(numbers: Array, name: str) -> Array:
    if not np.isfinite(numbers).all():
        raise UserError(f"the target {name!r} has infinite values; correct or remove those rows.")
    if np.ptp(numbers) == 0:
        raise UserError(f"the target {name!r} has one value only; there is nothing to predict.")
    return numbers


def feature(column: Any, categorical: bool = False, keep: bool = False) -> tuple[Any, str, str]:
    """Return the column as numbers or texts, its kind, and a note (or an empty one)."""
    reason = _useless(column)
    if reason:
        return None, "left out", f"column {column.name!r} {reason} and is left out."
    wanted = categorical or keep
    if not wanted and holds_dates(column):
        return None, "left out", _left_out(column, "holds dates")
    if not wanted and holds_identifiers(column):
        return None, "left out", _left_out(column, "numbers the rows (an identifier)")
    numbers = None if categorical else as_numbers(column)
    if numbers is not None:
        infinite = np.isinf(numbers)
        note = _imputed(column.name, np.isnan(numbers), "the median", infinite)
        note = f"{_doubted(column.name, numbers)} {note}".strip()
        return np.where(infinite, np.nan, numbers), "number", note
    if not categorical:
        _check_mixed(column)
    texts = as_texts(column)
    distinct, rows = int(column.dropna().astype(str).nunique()), len(column)
    nearly_all = distinct >= IDENTIFIER * rows
    unit = None if wanted else written_number(column)
    if not wanted and (nearly_all or (distinct > CATEGORIES and distinct > DISTINCT * rows)):
        like = "" if unit is None else f", like {unit!r},"
        why = f"has {distinct} distinct texts{like} in {rows} rows"
        return None, "left out", _left_out(column, why)
    note = _imputed(column.name, column.isna().to_numpy(), "the commonest value")
    if unit is not None:
        note = (
            f"column {column.name!r} holds texts like {unit!r}, which are taken as categories; "
            f"write plain numbers, as 1234.5, in the file to use them as such. {note}"
        ).strip()
    return texts, "text", note


def _left_out(column: Any, why: str) -> str:
    return f"column {column.name!r} {why} and is left out; --keep {column.name} uses it."


def _useless(column: Any) -> str:
    """Say why a column has nothing to learn from; an empty text if it has."""
    present = column.dropna()
    if not len(present):
        return "has no values"
    if present.dtype.kind == "f":
        present = present[np.isfinite(present.to_numpy(dtype=float))]
    if not len(present):
        return "has no finite values"
    one_value = len(present) == len(column) and present.astype(str).nunique() == 1
    return "has one value only" if one_value else ""


def _doubted(name: str, numbers: Array) -> str:
    value = placeholder(numbers)
    if value is None:
        return ""
    count = int((numbers == value).sum())
    return (
        f"column {name!r} holds {value:g} {count} times, far below its other values: if that "
        "stands for a missing value, leave these cells empty in the file."
    )


def _imputed(name: str, missing: Array, by: str, infinite: Array | None = None) -> str:
    subject = absent_values(int(missing.sum()), 0 if infinite is None else int(infinite.sum()))
    return f"column {name!r}: {subject} replaced by {by}." if subject else ""


def absent_values(missing: int, infinite: int = 0) -> str:
    """Return the subject of a sentence on missing and infinite values; "" if there are none."""
    parts = []
    for count, kind in ((missing, "missing"), (infinite, "infinite")):
        if count:
            parts.append(f"{count} {kind} value{'' if count == 1 else 's'}")
    return " and ".join(parts) + (" is" if missing + infinite == 1 else " are") if parts else ""


def as_texts(column: Any) -> Array:
    """Return texts as an object array, nan where missing."""
    values = np.array([str(value) for value in column], dtype=object)
    values[column.isna().to_numpy()] = np.nan
    return values


def as_numbers(column: Any) -> Array | None:
    """Return floats, nan where missing; None if some value is not a number or a truth value."""
    import pandas as pd

    if column.dtype.kind in "mMcO" or not pd.api.types.is_numeric_dtype(column.dtype):
        present = column.dropna()
        if present.map(lambda value: isinstance(value, bool | np.bool_)).all():
            return np.array([np.nan if pd.isna(v) else float(v) for v in column])
        if isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind in "mMc":
            return None
        column = pd.to_numeric(column.astype(object), errors="coerce")
        if column.isna().sum() > len(column) - len(present):
            return None
    values: Array = column.to_numpy(dtype=float, na_value=np.nan)
    return values


def column_as(column: Any, kind: str, first: int = 0) -> Any:
    """Return a column as the numbers or texts of a model's; ``first`` is its first row."""
    if kind == "texts":
        return as_texts(column)
    numbers = numbers_of(column, first)
    return np.where(np.isinf(numbers), np.nan, numbers)


def numbers_of(column: Any, first: int = 0) -> Array:
    """Return a column as numbers, nan where missing; refuse texts, by the row of the first one."""
    numbers = as_numbers(column)
    if numbers is None:
        row = first_text(column)
        raise UserError(
            f"column {column.name!r} must hold numbers, but row {first + row + 1} holds "
            f"{str(column.iloc[row])!r}."
        )
    return numbers


def first_text(column: Any) -> int:
    """Return the first row of a column that holds something other than a number."""
    import pandas as pd

    bad = pd.to_numeric(column.astype(object), errors="coerce").isna() & column.notna()
    return int(bad.to_numpy().argmax())


def _check_mixed(column: Any) -> None:
    """Refuse a column of numbers with a few texts among them."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return
    present = column.dropna()
    if present.map(lambda value: isinstance(value, list | dict | set | np.ndarray)).any():
        raise UserError(f"column {column.name!r} holds lists; leave it out with --drop.")
    numbers = pd.to_numeric(present.astype(object), errors="coerce")
    if numbers.notna().mean() >= 0.5:
        row = int(numbers.index[numbers.isna()][0])
        raise UserError(
            f"column {column.name!r} holds text among numbers: {str(column[row])!r} in row "
            f"{row + 1}. Correct it, or use --categorical {column.name} or --drop {column.name}."
        )


def pipeline(data: Prepared, scale: str) -> Any:
    """Return the preprocessing: impute and scale numbers, impute and encode texts."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    from ..scaling import SCALINGS, scaler

    if scale not in SCALINGS:
        raise UserError(f"--scale must be one of {', '.join(SCALINGS)}, got {scale!r}.")
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=CATEGORIES, sparse_output=False
    )
    parts = [
        ("numbers", make_pipeline(SimpleImputer(strategy="median"), scaler(scale)), data.numbers),
        ("texts", make_pipeline(SimpleImputer(strategy="most_frequent"), encoder), data.texts),
    ]
    return ColumnTransformer(
        [part for part in parts if part[2]], sparse_threshold=0, verbose_feature_names_out=False
    )
