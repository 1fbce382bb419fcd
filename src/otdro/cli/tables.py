"""From a table to the rows and labels that a saved model, or another table, goes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .predict import check_model_columns, features
from .preparing import (
    Prepared,
    _as_numbers,
    as_texts,
    check_column,
    column_as,
    feature,
    split_names,
    without_target,
)

Array = NDArray[Any]


def model_rows(model: Any, table: Any, beside: tuple[str, ...], notes: dict[str, int]) -> Any:
    """Return the columns of a table that the model was fitted to, in its order.

    ``beside`` are columns that need not be the model's: the target, the groups. A model without
    names takes the other columns in the order of the file.
    """
    names = getattr(model, "feature_names_in_", None)
    own = set() if names is None else set(names)
    rest = table.drop(columns=[c for c in beside if c in table.columns and c not in own])
    if _from_fit(model):
        return features(model, rest, notes, 0)
    if names is None:
        wanted = getattr(model, "n_features_in_", len(rest.columns))
        if wanted != len(rest.columns):
            raise UserError(
                f"the model has {wanted} columns and no names for them; the table has "
                f"{len(rest.columns)} beside the target. Leave the others out with --drop."
            )
        return _numbers(rest, list(rest.columns)).to_numpy()
    check_model_columns(names, rest, notes)
    return rest[list(names)]


def _from_fit(model: Any) -> bool:
    """Whether a model was made by ``otdro fit``: then its first step knows the kinds of columns."""
    steps = getattr(model, "named_steps", {})
    return "columns" in steps and hasattr(steps["columns"], "transformers_")


def _numbers(table: Any, names: list[str]) -> Any:
    return type(table)({name: column_as(table[name], "numbers") for name in names})


def labels_of(table: Any, target: str, model: Any) -> Array:
    """Return the target as the model's own labels, or as numbers for a regression model.

    A label that the model does not know stays a text, and is refused by name later.
    """
    column = table[target]
    classes = getattr(model, "classes_", None)
    numbers = _as_numbers(column)
    if classes is None or np.asarray(classes).dtype.kind in "iufb":
        if numbers is None:
            bad = next(str(v) for v in column if not _is_number(v))
            raise UserError(f"the target {target!r} must hold numbers, but it holds {bad!r}.")
        return numbers
    known = {str(c): c for c in classes}
    return np.array([known.get(text, text) for text in as_texts(column)])


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def with_target(table: Any, target: str, notes: list[str]) -> Any:
    """Return the rows with a target; say how many have none."""
    check_column(target, list(table.columns))
    present = table[target].notna()
    if not present.any():
        raise UserError(f"the target {target!r} has no values.")
    if not present.all():
        notes.append(without_target(int((~present).sum())))
        table = table[present].reset_index(drop=True)
    return table


def prepared_columns(
    table: Any, categorical: Sequence[str] | None, keep: Sequence[str] | None
) -> Prepared:
    """Return the usable columns of a table without a target, and notes on the others."""
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
    return Prepared(
        type(table)(kept),
        np.zeros(0),
        "classification",
        numbers=kinds["number"],
        texts=kinds["text"],
        notes=notes,
    )


def like(data: Prepared, table: Any) -> Any:
    """Return the columns of another table as those of the first one are."""
    missing = [name for name in data.X.columns if name not in table.columns]
    if missing:
        raise UserError(
            f"the new table lacks columns of the old one: {', '.join(missing[:8])}. Add them, or "
            "leave them out with --drop."
        )
    kind = {**dict.fromkeys(data.numbers, "numbers"), **dict.fromkeys(data.texts, "texts")}
    return type(table)({name: column_as(table[name], kind[name]) for name in data.X.columns})
