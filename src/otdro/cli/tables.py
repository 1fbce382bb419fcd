"""From a table to the rows and labels that a saved model, or another table, goes with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .options import Reading
from .predict import check_model_columns, features
from .preparing import as_numbers, as_texts, column_as, first_text, split_names
from .reading import locate, read

Array = NDArray[Any]


def table_of(name: str, options: Reading, notes: list[str]) -> Any:
    """Return a table without the columns to leave out; add what there is to say of it."""
    table = read(locate(name, options.decimal), sample=options.sample, seed=options.seed)
    notes += [text for text in table.attrs.get("notes", []) if text not in notes]
    drop = split_names(options.drop, list(table.columns))
    return table.drop(columns=[c for c in drop if c in table.columns])


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
        return np.column_stack([column_as(rest[name], "numbers") for name in rest.columns])
    check_model_columns(names, rest, notes)
    return rest[list(names)]


def _from_fit(model: Any) -> bool:
    """Whether a model was made by ``otdro fit``: then its first step knows the kinds of columns."""
    steps = getattr(model, "named_steps", {})
    return "columns" in steps and hasattr(steps["columns"], "transformers_")


def labels_of(table: Any, target: str, model: Any) -> Array:
    """Return the target as the model's own labels, or as numbers for a regression model.

    A label that the model does not know stays a text, and is refused by name later.
    """
    column = table[target]
    classes = getattr(model, "classes_", None)
    numbers = as_numbers(column)
    if classes is None or np.asarray(classes).dtype.kind in "iufb":
        if numbers is None:
            bad = str(column.iloc[first_text(column)])
            raise UserError(f"the target {target!r} must hold numbers, but it holds {bad!r}.")
        return numbers
    known = {str(c): c for c in classes}
    return np.array([known.get(text, text) for text in as_texts(column)])
