"""Prepared columns and the columns of a table that they stem from.

A column of categories becomes several indicators that sum to one. A reader thinks of it as one
column whose values are switched, so that tables, prices and moves are told by ``ColumnGroups``.
It is read out of the fitted steps in front of a model, which are saved with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

Array = NDArray[Any]

#: The category of values that share an indicator because each is rare.
OTHER = "other values"


@dataclass(frozen=True)
class Switch:
    """A move within one column of categories, as the largest switch in it.

    ``size`` is the mass that leaves its categories: of a mean move of rows, the share of the rows.
    """

    column: str
    before: str
    after: str
    size: float

    def __str__(self) -> str:
        return f"{self.column}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class ColumnGroups:
    """The prepared columns that stem from each column of a table.

    Attributes
    ----------
    names : list of str
        The prepared columns; an indicator is called ``column=value``.
    indices : dict
        Of each column of the table, its prepared columns.
    categories : dict
        Of each column of categories, what its indicators stand for, in the order of ``indices``.
    """

    names: list[str]
    indices: dict[str, list[int]]
    categories: dict[str, list[str]]

    @property
    def numbers(self) -> list[int]:
        """The prepared columns that are no indicators."""
        return [j for name, own in self.indices.items() if name not in self.categories for j in own]

    def sums(self, values: Array) -> dict[str, float]:
        """Return the sum of the values (d,) of the prepared columns, by column of the table."""
        return {name: float(np.sum(values[own])) for name, own in self.indices.items()}

    def switch(self, column: str, move: Array) -> Switch:
        """Return the part of a move (d,) that lies in a column of categories."""
        own, values = move[self.indices[column]], self.categories[column]
        size = float(np.abs(own).sum()) / 2
        return Switch(column, values[int(own.argmin())], values[int(own.argmax())], size)


def column_groups(front: Any, names: list[str]) -> ColumnGroups:
    """Return the groups of the columns ``names`` that the fitted steps ``front`` make.

    Columns whose origin cannot be read stand for themselves, all of them if ``front`` is None.
    """
    origins = [_Origin(name) for name in names]
    if front is not None:
        try:
            traced = _traced(front, [_Origin(str(name)) for name in front.feature_names_in_])
        except (AttributeError, KeyError, TypeError, ValueError):
            # a step without names, or one that makes other columns than it says
            traced = []
        if len(traced) == len(names):
            origins = traced
    shown = list(names)
    indices: dict[str, list[int]] = {}
    categories: dict[str, list[str]] = {}
    for j, origin in enumerate(origins):
        indices.setdefault(origin.column, []).append(j)
        if origin.category is not None:
            shown[j] = f"{origin.column}={origin.category}"
            categories.setdefault(origin.column, []).append(origin.category)
    # a column that is used both as numbers and as categories is told by its prepared columns
    both = [name for name, values in categories.items() if len(values) < len(indices[name])]
    for name in both:
        del categories[name]
        for j in indices.pop(name):
            indices[shown[j]] = [j]
    return ColumnGroups(shown, indices, categories)


@dataclass(frozen=True)
class _Origin:
    """The column of the table that a prepared column stems from, and the category, if it is one."""

    column: str
    category: str | None = None


def _traced(step: Any, origins: list[_Origin]) -> list[_Origin]:
    """Return the origins of the columns that a fitted step makes of columns with ``origins``."""
    if isinstance(step, FrozenEstimator):
        return _traced(step.estimator, origins)
    if isinstance(step, Pipeline):
        for _, part in step.steps:
            origins = _traced(part, origins)
        return origins
    if isinstance(step, ColumnTransformer):
        places = np.arange(len(origins))
        by_name = {str(name): j for j, name in enumerate(step.feature_names_in_)}
        made: dict[int, _Origin] = {}
        for name, part, columns in step.transformers_:
            if isinstance(part, str) and part == "drop":
                continue
            listed = not isinstance(columns, slice) and len(columns) and isinstance(columns[0], str)
            chosen = [by_name[str(c)] for c in columns] if listed else places[columns]
            outputs = _traced(part, [origins[j] for j in chosen])
            place = step.output_indices_[name]
            made.update(zip(range(place.start, place.stop), outputs, strict=True))
        return [made[j] for j in sorted(made)]
    if isinstance(step, OneHotEncoder):
        if step.drop_idx_ is not None:
            raise ValueError("an encoder that drops a category shows no switch to it")
        return [
            _Origin(origin.column, category)
            for k, origin in enumerate(origins)
            for category in _categories(step, k)
        ]
    if step is None or step == "passthrough":
        return origins
    # a step that changes values but no column keeps the names
    given = [f"{j}" for j in range(len(origins))]
    names = getattr(step, "feature_names_in_", given)
    known = dict(zip((str(name) for name in names), origins, strict=True))
    return [known.get(str(n), _Origin(str(n))) for n in step.get_feature_names_out(names)]


def _categories(encoder: OneHotEncoder, k: int) -> list[str]:
    """Return what the indicators of the k-th column of an encoder stand for, in their order."""
    rare = getattr(encoder, "infrequent_categories_", [None] * (k + 1))[k]
    known = encoder.categories_[k]
    values = [str(v) for v in known if rare is None or v not in set(rare)]
    return values if rare is None else [*values, OTHER]
