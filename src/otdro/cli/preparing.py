"""From a table to features, target and task, and to the rows that a saved model takes.

Every choice is reported in a note. The index of a table is the row of the file, from 1. A published
model (a file of ``otdro fit --save``, or coefficients in the units of a table) is averaged with a
fit to the rows at hand, in prepared columns in which both are linear: those of the saved model, or,
for coefficients in raw units, columns that are scaled by an affine map.
"""

from __future__ import annotations

import difflib
import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import balanced_accuracy_score, r2_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from .. import persistence
from ..comparison import MIX, RECALIBRATED, Labelled
from ..estimators.columns import column_groups
from ..inspection.auditing import RARE
from ..inspection.summary import SHOWN
from ..mix import MixClassifier, MixRegressor
from ..scaling import scaler
from . import printing, reading
from .errors import UserError
from .options import Learning

Array = NDArray[Any]

#: Rows of a folder of Parquet files that are read into memory; of more, only the model sees all.
IN_MEMORY = reading.PIECE
#: Integers with at most this many distinct values are taken for labels.
FEW = 10
#: Rows below which folds make no sense.
LEAST = 10
#: Categories of a column that get an indicator of their own.
CATEGORIES = 20
#: A column that alone has more than this balanced accuracy, or R², is named.
LEAK = 0.99
#: Nearest rows by one column that predict another row.
NEIGHBOURS = 3
#: The line of a table of coefficients that holds the intercept.
INTERCEPT = "(intercept)"
#: The name of a published model in a comparison.
SOURCE = "source"
#: The similarity of names from which one may be meant by the other: two of three letters in order
#: count, one run of three letters in names of four and six does not.
CLOSE = 0.65
#: How the name of a column of identifiers ends.
ID_NAME = re.compile(r"(?:^|[_\W])(?:id|uuid|guid|key|index|nr)$|[a-z]I[dD]$|^Unnamed: 0$", re.I)


# What is asked of the model.


def parameters(chosen: Learning) -> dict[str, Any]:
    """Return what was chosen as parameters of the estimator, without those left at defaults."""
    if chosen.tolerance is not None and chosen.rule != "tolerance":
        raise UserError("--tolerance is for --rule tolerance; add that, or leave it out.")
    names = ("cost", "rule", "loss", "tolerance")
    values: dict[str, Any] = {name: getattr(chosen, name) for name in names}
    if chosen.delta != "cv":
        values["delta"] = chosen.delta if chosen.delta == "theory" else float(chosen.delta)
    if chosen.order != "auto":
        values["order"] = int(chosen.order)
    quantile = getattr(chosen, "quantile", None)
    if quantile is not None:
        from ..losses import Quantile

        if chosen.loss not in (None, "quantile"):
            raise UserError(f"--quantile is for --loss quantile, not {chosen.loss}.")
        values["loss"] = Quantile(tau=quantile)
    return {name: value for name, value in values.items() if value is not None}


def with_drift(options: Any) -> tuple[Any, str | None]:
    """Return options whose delta is that of the drifts of --delta-from, and its origin in words.

    It is the 80% quantile, of fewer than five drifts the largest, in the cost and order that they
    were measured in. A delta of 0 would be a fit without any ball, so that it is refused, as are
    drifts that may all be chance.
    """
    file = options.delta_from
    if file is None:
        return options, None
    document = printing.document_of(file, "drift")
    if options.delta != "cv" or options.rule is not None:
        option = "--rule" if options.delta == "cv" else "--delta"
        raise UserError(f"{option} and --delta-from both choose delta; leave one out.")
    delta, order = float(document["quantiles"]["0.8"]), str(document["order"])
    if options.order not in ("auto", order):
        raise UserError(f"the drifts in {file} are of order {order}: use --order {order}.")
    chances = [float(batch["p_value"]) for batch in document["batches"]]
    count = len(chances)
    if delta <= 0 or min(chances) * count > RARE:
        raise UserError(
            f"the drifts in {file} do not exceed their noise (their 80% quantile is "
            f"{delta:.3g}, the least p-value {min(chances):.2g}), so that they give no delta: "
            "leave --delta-from out."
        )
    values = {"delta": repr(delta), "order": order}
    # without a model the drift was measured in its own scaling and cost
    if document["scale"] is not None:
        values["scale"] = document["scale"] if options.scale == "auto" else options.scale
        values["cost"] = options.cost or "euclidean"
    origin = f"the 80% quantile of the {count} drift{'' if count == 1 else 's'} in {file}"
    return replace(options, **values), origin


# A table to learn from.


@dataclass(frozen=True, eq=False)
class Prepared(Labelled):
    """Features as a DataFrame of numbers and texts, the target, and notes for the reader.

    The index of ``X`` names the rows: by their numbers in the file, or by --id. ``kinds`` maps the
    name of each column to "numbers" or "texts". ``folder`` is the source of all rows where these
    are some of many.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    folder: reading.Source | None = None


def prepared(options: Learning) -> Prepared:
    """Read the table that ``fit`` and ``compare`` learn from, and split it."""
    if options.forward and options.groups is None:
        raise UserError("--forward needs --groups COL, the column of the environments in order.")
    source = reading.locate(options.data, options.decimal)
    sample = options.sample
    in_pieces = source.kind == "folder" and sample is None and source.rows() > IN_MEMORY
    if in_pieces:
        for name in ("groups", "unlabelled", "refits", "source"):
            if getattr(options, name, None) is not None:
                raise UserError(f"--{name} is for tables that fit into memory; add --sample N.")
        sample = IN_MEMORY
    data = _split(reading.read(source, sample=sample, seed=options.seed), options, source.notes)
    data.notes[:0] = _leaks(data, options.seed)
    if in_pieces:
        return replace(data, folder=source)
    if options.unlabelled is None:
        return data
    more = reading.read(reading.locate(options.unlabelled, options.decimal))
    for name in data.kinds:
        check_column(reading.origin(name, more.columns) or name, list(more.columns))
    if len(more) < 2:
        raise UserError(f"the table of unlabelled rows has {len(more)} rows; it needs two or more.")
    return replace(data, unlabelled=columns_as(more, data.kinds))


def _split(table: Any, options: Learning, notes: list[str]) -> Prepared:
    """Split a table into features and target, and say what was done with each column."""
    target, groups, identifier = options.target, options.groups, options.identifier
    columns = list(table.columns)
    drop, categorical, keep = (
        split_names(names, columns) for names in (options.drop, options.categorical, options.keep)
    )
    beside = [name for name in (target, groups, identifier) if name is not None]
    for name in (*beside, *drop, *categorical, *keep):
        check_column(name, columns)
    for name in keep:
        if name in drop:
            raise UserError(f"--keep and --drop both name {name!r}; name it once.")
    if target in drop:
        raise UserError(f"--drop names the target {target!r}; name columns beside it.")
    for option, own in (("--groups", groups), ("--id", identifier)):
        if own == target:
            raise UserError(f"{option} {own} is the target; name another column.")
    features = [name for name in columns if name not in (*beside, *drop)]
    if not features:
        raise UserError(f"there is no column beside the target {target!r} to predict from.")
    notes = list(notes)
    table = with_target(table, target, notes)
    y, task = _target(table[target], options.task)
    notes += _labels_alike(y, target)
    if len(y) < LEAST:
        raise UserError(
            f"the table has {len(y)} rows with a target; the folds need {LEAST}: add more."
        )
    environments = None
    if groups is not None:
        environments = required_groups(table[groups]).astype(str).to_numpy(object)
        if len(set(environments)) < 2:
            raise UserError(
                f"all rows are of the environment {environments[0]!r}; folds that leave "
                "environments out need two. Leave --groups out."
            )
    data = usable_columns(table[features], categorical, keep)
    if identifier is not None:
        data.X.index = table[identifier].to_numpy()
    return replace(data, y=y, task=task, groups=environments, notes=notes + data.notes)


def usable_columns(table: Any, categorical: Sequence[str], keep: Sequence[str]) -> Prepared:
    """Return the usable columns of a table, none of them a target, and notes on the others."""
    kept: dict[str, Array] = {}
    notes: list[str] = []
    for name in table.columns:
        kept |= _features(table[name], name in categorical, name in keep, notes)
    if not kept:
        raise UserError("no usable column is left. " + " ".join(notes))
    kinds = {name: "texts" if own.dtype == object else "numbers" for name, own in kept.items()}
    X = pd.DataFrame(kept, index=table.index)
    return Prepared(X, np.zeros(0), "", kinds=kinds, notes=notes)


def split_names(given: Sequence[str] | None, columns: list[str]) -> tuple[str, ...]:
    """Return the names in options such as A,B; a column whose own name has a comma is one name."""
    names: list[str] = []
    for text in given or ():
        parts = [text] if text in columns else [part.strip() for part in text.split(",")]
        names += [part for part in parts if part]
    return tuple(dict.fromkeys(names))


def check_column(name: str, columns: list[str]) -> None:
    """Refuse a name that is no column, and say which may be meant."""
    if name in columns:
        return
    near = difflib.get_close_matches(name, [str(c) for c in columns], 1, CLOSE)
    hint = f"Did you mean {near[0]!r}?" if near else f"The columns are {listed(columns)}."
    raise UserError(f"there is no column {name!r}. {hint}")


def listed(names: Sequence[Any]) -> str:
    """Return the first names of a list, and how many there are if that is not all."""
    more = f", ... ({len(names)} in all)" if len(names) > SHOWN else ""
    return ", ".join(str(name) for name in names[:SHOWN]) + more


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
    return table[present] if count else table


def required_groups(column: Any) -> Any:
    """Return a column of groups; refuse rows without one."""
    missing = column.isna()
    if missing.any():
        raise UserError(
            f"column {column.name!r} has no group in row {missing.idxmax()}: fill it in, or leave "
            "such rows out."
        )
    return column


def _labels_alike(y: Array, target: str) -> list[str]:
    """Return a note where labels differ in nothing but case and blanks."""
    if y.dtype.kind != "U":
        return []
    labels = pd.Series(np.unique(y))
    alike = labels.groupby(labels.str.casefold().str.split().str.join(" "))
    return [
        f"the labels {', '.join(map(repr, same))} of the target {target!r} differ in case or "
        "blanks only, and are taken for different ones; write them alike if they are not."
        for _, same in alike
        if len(same) > 1
    ]


def _target(column: Any, task: str) -> tuple[Array, str]:
    """Return targets as numbers or labels, and the task."""
    name = column.name
    written = reading.numbers_in(column, words=False)
    numbers = None if written is None else written.values
    distinct = int(column.nunique())
    whole = numbers is not None and bool((numbers == np.round(numbers)).all())
    if task == "regression" and numbers is None:
        bad = str(column[reading.first_text(column)])
        raise UserError(f"regression needs numbers, but the target {name!r} holds {bad!r}.")
    if task == "auto" and numbers is not None and distinct > 2 and (not whole or distinct > FEW):
        task = "regression"
    counts = column.astype(str).value_counts()
    if distinct < 2:
        raise UserError(
            f"the target {name!r} has one value only ({counts.index[0]!r}): there is "
            "nothing to predict. Name another --target, or add rows of another value."
        )
    if numbers is not None and task == "regression":
        if not np.isfinite(numbers).all():
            raise UserError(
                f"the target {name!r} has infinite values; correct or remove those rows."
            )
        return numbers, task
    if distinct > max(2, len(column) // 2):
        instead = "" if numbers is None else "--task regression, or "
        raise UserError(
            f"the target {name!r} has {distinct} distinct values in {len(column)} rows; "
            f"use {instead}another --target."
        )
    if counts.min() < 2:
        raise UserError(
            f"class {counts.index[-1]!r} of the target {name!r} has one row; the folds "
            "need at least two. Leave it out or merge it with another."
        )
    # labels like 0.5 are names: a classifier takes no fractions
    plain = written is not None and not written.what
    if numbers is not None and whole and plain and column.dtype.kind != "b":
        return numbers.astype(int), "classification"
    return np.asarray(column.astype(str).tolist(), dtype=str), "classification"


def pipeline(data: Prepared, scale: str, most: int | None = CATEGORIES) -> ColumnTransformer:
    """Return the preprocessing: impute and scale numbers, impute and encode texts.

    At most ``most`` categories of a column get an indicator of their own.
    """
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=most, sparse_output=False
    )
    steps = {
        "numbers": make_pipeline(SimpleImputer(strategy="median"), scaler(scale)),
        "texts": make_pipeline(SimpleImputer(strategy="most_frequent"), encoder),
    }
    columns = {kind: [name for name, own in data.kinds.items() if own == kind] for kind in steps}
    return ColumnTransformer(
        [(kind, step, columns[kind]) for kind, step in steps.items() if columns[kind]],
        sparse_threshold=0,
        verbose_feature_names_out=False,
    )


def _leaks(data: Prepared, seed: int) -> list[str]:
    """Return notes on columns that alone tell the target of rows left out one by one.

    A row is predicted by the ``NEIGHBOURS`` other rows whose value of the column is nearest.
    """
    order = np.random.default_rng(seed).permutation(len(data.y))
    data = data.part(np.sort(order[: reading.HEAD]))
    nearest, score, measure = KNeighborsRegressor(NEIGHBOURS), r2_score, "R²"
    if data.task == "classification":
        nearest, score = KNeighborsClassifier(NEIGHBOURS), balanced_accuracy_score
        measure = "balanced accuracy"
    notes = []
    for name, kind in data.kinds.items():
        column = data.X[name]
        values = column.astype("category").cat.codes if kind == "texts" else column
        values = values.fillna(values.median()).to_numpy(dtype=float)[:, None]
        # without rows to predict, each row is predicted by the others
        share = score(data.y, nearest.fit(values, data.y).predict(None))
        if share > LEAK:
            notes.append(
                f"column {name!r} alone tells the target of rows left out ({measure} {share:.3f}): "
                f"if it is known only after the target, leave it out by --drop {name}."
            )
    return notes


# One column: what it holds.


def _features(column: Any, categorical: bool, keep: bool, notes: list[str]) -> dict[str, Array]:
    """Return what a column is used as, floats or texts, empty if it is left out; and say so."""
    name, missing = column.name, int(column.isna().sum())
    reason = _useless(column)
    if reason:
        notes.append(f"column {name!r} {reason} and is left out.")
        return {}
    dates = not categorical and reading.holds_dates(column)
    if dates and keep:
        names = reading.date_names(column)
        notes.append(f"column {name!r} holds dates and is used as numbers: {', '.join(names)}.")
        notes += _replaced(missing, 0, "by the median", name)
        return {n: reading.number_of_date(n, column) for n in names}
    numbers = None if dates or categorical else reading.numbers_in(column)
    like = None
    if numbers is None and not dates and not categorical:
        _check_mixed(column)
        like = reading.like_numbers(column)
    if not keep and not categorical:
        reason = "holds dates" if dates else _identifies(column, numbers, like)
        if reason:
            notes.append(f"column {name!r} {reason} and is left out; --keep {name} uses it.")
            return {}
    if numbers is None:
        if like is not None:
            notes.append(
                f"column {name!r} holds texts like {like!r}, which are taken as categories; "
                "write plain numbers, as 1234.5, in the file to use them as such."
            )
        notes += _replaced(missing, 0, "by the commonest value", name)
        return {name: reading.as_texts(column)}
    if numbers.what:
        notes.append(f"column {name!r}: {numbers.what} is read.")
    infinite = np.isinf(numbers.values)
    notes += _placeholder(name, numbers.values)
    notes += _replaced(missing, int(infinite.sum()), "by the median", name)
    return {name: np.where(infinite, np.nan, numbers.values)}


def _useless(column: Any) -> str:
    """Return in words why a column has nothing to learn from; "" if it has."""
    present = column.dropna()
    if not len(present):
        return "has no values"
    if present.dtype.kind == "f" and not np.isfinite(present.to_numpy(dtype=float)).any():
        return "has no finite values"
    one_value = len(present) == len(column) and present.astype(str).nunique() == 1
    return "has one value only" if one_value else ""


def _identifies(column: Any, numbers: reading.Numbers | None, like: str | None) -> str:
    """Return in words why a column only names its rows; "" if it does not.

    Such are a counter, distinct whole numbers called ..._id, and texts nearly all distinct.
    """
    rows, present = len(column), column.dropna()
    if numbers is None:
        distinct = int(present.astype(str).nunique())
        if distinct < reading.MOST * rows and distinct <= max(CATEGORIES, reading.MOSTLY * rows):
            return ""
        written = "" if like is None else f", like {like!r},"
        return f"has {distinct} distinct texts{written} in {rows} rows"
    if column.dtype.kind not in "iu":
        return ""
    # the lines of the file count the rows that were dropped too
    lines = np.abs(np.diff(present.index.to_numpy()))
    counter = len(present) == rows and np.array_equal(np.abs(np.diff(present)), lines)
    distinct = int(present.nunique())
    named = bool(ID_NAME.search(str(column.name))) and distinct > reading.MOSTLY * rows
    return "numbers the rows (an identifier)" if named or (counter and distinct == rows) else ""


def _placeholder(name: str, numbers: Array) -> list[str]:
    """Return a note on a number that seems to stand for missing values.

    It is written with nines only, as -999, there twice or more, and far below all other values.
    """
    finite = np.sort(numbers[np.isfinite(numbers)])
    least = finite.min(initial=0.0)
    count = int((finite == least).sum())
    nines = re.fullmatch("-99+", f"{least:g}")
    if not nines or count in (1, len(finite)) or finite[count] <= least / 2:
        return []
    return [
        f"column {name!r} holds {least:g} {count} times, far below its other values: if "
        "that stands for a missing value, leave these cells empty in the file."
    ]


def _check_mixed(column: Any) -> None:
    """Refuse a column of numbers with a few texts among them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return
    present = column.dropna()
    if present.map(lambda value: isinstance(value, list | dict | set | np.ndarray)).any():
        raise UserError(f"column {column.name!r} holds lists; leave it out with --drop.")
    if pd.to_numeric(present.astype(object), errors="coerce").notna().mean() >= reading.MOSTLY:
        row = reading.first_text(column)
        raise UserError(
            f"column {column.name!r} holds text among numbers: {str(column[row])!r} in row "
            f"{row}. Correct it, or use --categorical {column.name} or --drop {column.name}."
        )


def _replaced(missing: int, infinite: int, how: str, name: str = "") -> list[str]:
    """Return a note on missing and infinite values, of the column of a name or of a table."""
    counts = {"missing": missing, "infinite": infinite}
    parts = [f"{n} {kind} value{'' if n == 1 else 's'}" for kind, n in counts.items() if n]
    where = f"column {name!r}: " if name else ""
    verb = "is" if missing + infinite == 1 else "are"
    return [f"{where}{' and '.join(parts)} {verb} replaced {how}."] if parts else []


def columns_as(table: Any, kinds: Mapping[str, str], differences: Differences | None = None) -> Any:
    """Return columns of a table as the numbers or texts that they were when a model was fitted.

    Infinite values become missing ones; ``differences`` counts both.
    """
    columns = {}
    for name, kind in kinds.items():
        if kind == "texts":
            columns[name] = reading.as_texts(table[name])
        elif name in table.columns:
            columns[name] = reading.required_numbers(table[name])
        else:
            columns[name] = reading.number_of_date(name, table[reading.origin(name, table.columns)])
    frame = pd.DataFrame(columns, index=table.index)
    infinite = frame.isin([np.inf, -np.inf])
    if differences is not None:
        differences.infinite += int(infinite.sum().sum())
        differences.missing += int(frame.isna().sum().sum())
    return frame.mask(infinite)


def kinds_of(front: Any) -> dict[str, str]:
    """Return whether columns hold numbers or texts, by a preparation that ``otdro fit`` made.

    Of any other preparation nothing is known.
    """
    steps = getattr(front, "transformers_", [])
    parts = [(kind.rpartition(" ")[2], columns) for kind, _, columns in steps]
    if any(kind not in ("numbers", "texts") for kind, _ in parts):
        return {}
    return {str(name): kind for kind, columns in parts for name in columns}


# A table for a saved model.


def rare_categories(encoder: Any) -> Any:
    """Return the rare categories of each column, None where the encoder joins none."""
    # an encoder that joins none has no such attribute
    return getattr(encoder, "infrequent_categories_", [None] * len(encoder.categories_))


@dataclass
class Differences:
    """Counts of what tables hold that the training rows of a saved model did not."""

    unseen: dict[str, Counter[str]] = field(default_factory=dict)
    #: Columns of training that had rare categories, as which new ones count.
    with_rare: set[str] = field(default_factory=set)
    unused: list[str] = field(default_factory=list)
    missing: int = 0
    infinite: int = 0

    def count_unseen(self, transformer: Any, X: Any) -> None:
        """Count the categories of a table that a fitted preparation of columns does not know."""
        for kind, steps, columns in transformer.transformers_:
            if kind.endswith("texts"):
                encoder = steps[-1]
                parts = zip(columns, encoder.categories_, rare_categories(encoder), strict=True)
                for name, known, rare in parts:
                    new = X[name][X[name].notna() & ~X[name].isin(known)]
                    if len(new):
                        self.unseen.setdefault(str(name), Counter()).update(new)
                    if rare is not None:
                        self.with_rare.add(str(name))

    def unseen_values(self) -> dict[str, str]:
        """Return one text per column: its new categories, and in how many rows each is."""
        return {
            name: f"column {name!r} holds "
            + listed([f"{v!r} ({n} row{'' if n == 1 else 's'})" for v, n in counts.most_common()])
            for name, counts in self.unseen.items()
        }

    def notes(self) -> list[str]:
        """Return remarks for the user, those on new categories first."""
        notes = [
            f"{text}, which the training data did not have: they count as "
            f"{'rare ones' if name in self.with_rare else 'no category'}."
            for name, text in self.unseen_values().items()
        ]
        if self.unused:
            notes.append(f"columns that the model does not use are ignored: {listed(self.unused)}.")
        notes += _replaced(self.missing, 0, "as in the training data")
        return notes + _replaced(0, self.infinite, "as missing ones are in the training data")


def table_of(name: str, options: Any, notes: list[str]) -> Any:
    """Return a table without columns to leave out and rows without a label; add what is to say."""
    source = reading.locate(name, options.decimal)
    table = reading.read(source, sample=options.sample, seed=options.seed)
    notes += [text for text in source.notes if text not in notes]
    drop = split_names(options.drop, list(table.columns))
    table = table.drop(columns=[c for c in drop if c in table.columns])
    if options.target not in table.columns:
        return table
    return with_target(table, options.target, notes)


def model_rows(
    model: Any,
    table: Any,
    differences: Differences,
    beside: Sequence[str | None] = (),
    owner: str = "that the model needs",
) -> Any:
    """Return the columns of a table that the model was fitted to, in its order.

    ``beside`` are columns that need not be the model's: the target, the groups. A model without
    names takes the other columns in the order of the file. ``owner`` says whose columns they are.
    A preparation of columns alone counts as a model.
    """
    names = getattr(model, "feature_names_in_", None)
    # a column of dates may be the model's under the names of its parts
    own = {reading.origin(str(name), table.columns) for name in (() if names is None else names)}
    rest = table.drop(columns=[c for c in beside if c in table.columns and c not in own])
    if names is None:
        count = getattr(model, "n_features_in_", len(rest.columns))
        if count != len(rest.columns):
            raise UserError(
                f"the model has {count} columns and no names for them; the table has "
                f"{len(rest.columns)} beside the target. Leave the others out with --drop."
            )
        return columns_as(rest, dict.fromkeys(rest.columns, "numbers")).to_numpy()
    origins = {str(name): reading.origin(str(name), rest.columns) for name in names}
    missing = [name for name, column in origins.items() if column is None]
    if missing:
        raise UserError(
            f"the table lacks columns {owner}: {listed(missing)}. Add them, or start without them "
            "by --drop."
        )
    front: Any = getattr(model, "named_steps", {}).get("columns", model)
    counted = None
    if hasattr(model, "predict"):
        # what a preparation leaves out and replaces is noted where it is made
        counted = differences
        differences.unused = [str(name) for name in rest.columns if name not in origins.values()]
    kinds = kinds_of(front)
    if not kinds:
        return rest[list(names)]
    frame = columns_as(rest, kinds, counted)[list(names)]
    differences.count_unseen(front, frame)
    return frame


def labels_of(table: Any, target: str, model: Any) -> Array:
    """Return the target as the model's own labels, or as numbers for a regression model.

    A label that the model does not know stays a text, and is refused by name later.
    """
    column = table[target]
    classes = getattr(model, "classes_", None)
    if classes is None or np.asarray(classes).dtype.kind in "iufb":
        return reading.required_numbers(column, words=False)
    known = {str(c): c for c in classes}
    return np.array([known.get(text, text) for text in reading.as_texts(column)])


# A published model.


@dataclass(frozen=True, eq=False)
class Published:
    """A published linear model: ``saved`` is the pipeline, or ``coefficients`` are in raw units."""

    file: str
    saved: Any = None
    coefficients: dict[str, float] | None = None

    def preparation(self, data: Prepared, scale: str) -> Any:
        """Return an unfitted preparation of the columns in which the model is linear."""
        if self.saved is None:
            if scale not in ("auto", "standard", "none"):
                raise UserError(
                    f"--source {self.file} is in raw units, in which --scale {scale} is not "
                    "linear; use --scale standard or none."
                )
            return pipeline(data, "standard" if scale == "auto" else scale, most=None)
        kinds = kinds_of(self.saved[0])
        missing = [name for name in kinds if name not in data.kinds]
        if missing:
            raise UserError(
                f"--source {self.file} needs columns that the table lacks or that are left out: "
                f"{listed(missing)}. Add them, or keep them by --keep."
            )
        other = [name for name, kind in kinds.items() if data.kinds[name] != kind]
        if other:
            raise UserError(
                f"column {other[0]!r} holds {data.kinds[other[0]]}, for --source {self.file} it "
                f"held {kinds[other[0]]}; write it alike."
            )
        parts = self.saved[0].transformers_
        steps = [(kind, FrozenEstimator(step), columns) for kind, step, columns in parts]
        added = {name: kind for name, kind in data.kinds.items() if name not in kinds}
        own = pipeline(replace(data, kinds=added), scale).transformers
        steps += [("more " * len(parts) + kind, step, columns) for kind, step, columns in own]
        return ColumnTransformer(steps, sparse_threshold=0, verbose_feature_names_out=False)

    def linear(self, columns: Any, data: Prepared) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) in fitted prepared columns."""
        names = [str(name) for name in columns.get_feature_names_out()]
        if self.saved is not None:
            coef = np.atleast_2d(self.saved[-1].coef_)
            added = len(names) - coef.shape[1]
            return np.pad(coef, [(0, 0), (0, added)]), np.atleast_1d(self.saved[-1].intercept_)
        raw = dict(self.coefficients or {})
        shift = raw.pop(INTERCEPT)
        coef = np.array([raw.get(name, 0.0) for name in column_groups(columns, names).names])
        # the image of 0 and 1 in every column of numbers gives its affine map
        numbers = [name for name, kind in data.kinds.items() if kind == "numbers"]
        probes = data.X.iloc[[0, 0]].copy()
        probes[numbers] = np.array([[0.0], [1.0]]) @ np.ones((1, len(numbers)))
        zero, one = np.asarray(columns.transform(probes), dtype=float)
        scaled = one != zero
        coef[scaled] /= (one - zero)[scaled]
        return coef[None], np.array([shift - coef[scaled] @ zero[scaled]])

    def models(self, columns: Any, own: Any, data: Prepared) -> dict[str, Any]:
        """Return the source, with its intercept refitted, and averaged with our model."""
        coef, intercept = self.linear(columns, data)
        regression = data.task == "regression"
        fixed: Any = LinearRegression() if regression else LogisticRegression()
        fixed.coef_, fixed.intercept_ = (coef[0], intercept[0]) if regression else (coef, intercept)
        if not regression:
            fixed.classes_ = np.unique(data.y)
        kind = MixRegressor if regression else MixClassifier
        settings = {"cv": own.cv, "random_state": own.random_state}
        sources = [(SOURCE, (coef, intercept))]
        return {
            SOURCE: FrozenEstimator(fixed),
            RECALIBRATED: kind([], sources, **settings),
            MIX: kind([("otdro", clone(own))], sources, **settings),
        }


def published(file: Path | None, data: Prepared) -> Published | None:
    """Return the published model in a file; refuse one that is of another kind than the table."""
    if file is None:
        return None
    if not file.exists():
        raise UserError(f"no such file: {file}. --source names a saved model or coefficients.")
    labels = sorted({str(label) for label in data.y}) if data.task == "classification" else []
    if not zipfile.is_zipfile(file):
        return Published(str(file), coefficients=_coefficients(file, data, labels))
    saved = persistence.load(file)
    steps = getattr(saved, "named_steps", {})
    if not kinds_of(steps.get("columns")) or not hasattr(saved[-1], "coef_"):
        raise UserError(f"--source {file} holds a {type(saved).__name__}, not one of otdro fit.")
    own = sorted(str(label) for label in getattr(saved, "classes_", []))
    if own != labels:
        raise UserError(
            f"--source {file} predicts {listed(own) or 'a number'}, and the target here holds "
            f"{listed(labels) or 'numbers'}; both must be the same."
        )
    return Published(str(file), saved=saved)


def _coefficients(file: Path, data: Prepared, labels: list[str]) -> dict[str, float]:
    """Return the coefficients in a table of ``column,coefficient``; the rest has none."""
    if len(labels) > 2:
        raise UserError(
            f"--source {file} is a table of coefficients, for two classes or a number; the target "
            f"has {len(labels)} classes: use a model from otdro fit --save."
        )
    table = reading.read(reading.locate(str(file)))
    if not {"column", "coefficient"} <= set(table.columns):
        raise UserError(f"--source {file} must have the columns column,coefficient.")
    names = table["column"].astype(str).str.strip().tolist()
    twice = [name for name in names if names.count(name) > 1]
    values = reading.required_numbers(table["coefficient"])
    if twice or not np.isfinite(values).all():
        raise UserError(
            f"--source {file} needs one number for each column; see {listed(twice) or 'the gaps'}."
        )
    if INTERCEPT not in names:
        raise UserError(f"--source {file} has no line {INTERCEPT}; add it, if need be with 0.")
    coefficients = {INTERCEPT: 0.0}
    for name, value in zip(names, values.tolist(), strict=True):
        column, _, category = name.rpartition("=")
        kind, truth = data.kinds.get(column), reading.WORDS.get(category.lower())
        if kind == "numbers" and truth is not None:
            name = column
            if truth == 0:
                # no is one minus yes
                coefficients[INTERCEPT] += value
                value = -value
        elif name != INTERCEPT and kind != "texts" and data.kinds.get(name) != "numbers":
            if name in data.kinds:
                raise UserError(
                    f"column {name!r} holds categories: --source {file} must name them, as "
                    f"{name}=value."
                )
            check_column(column if kind is None and column else name, list(data.kinds))
        coefficients[name] = coefficients.get(name, 0.0) + value
    return coefficients
