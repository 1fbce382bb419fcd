"""Splits of rows that come from several environments, and fits with rows that have no labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

Array = NDArray[Any]
Splits = list[tuple[Array, Array]]

#: Environments each of which is left out in turn; of more, folds hold several.
LEFT_OUT_ONE_BY_ONE = 20


def leave_out(y: Array, task: str, groups: Array, most: int) -> Splits:
    """Return splits that leave whole environments out, at most ``most``.

    Left out are splits whose training rows lack a class; none is left where every one does.
    """
    count = min(most, len(np.unique(groups)))
    if count < 2:
        raise ValueError(
            f"splits that leave environments out need two of them, got {str(groups[0])!r} only."
        )
    found = GroupKFold(count).split(y, y, groups)
    return [pair for pair in found if _teaches(y, task, *pair)]


def forward(y: Array, task: str, groups: Array) -> Splits:
    """Return splits that train on the environments so far and test on the next one.

    Their order is that of the first row of each.
    """
    names = list(dict.fromkeys(groups.tolist()))
    code = np.array([names.index(group) for group in groups.tolist()])
    rounds = [(np.flatnonzero(code < k), np.flatnonzero(code == k)) for k in range(1, len(names))]
    return [pair for pair in rounds if _teaches(y, task, *pair)]


def _teaches(y: Array, task: str, train: Array, test: Array) -> bool:
    """Whether the training rows hold two classes, and every class of the test rows."""
    if task != "classification":
        return True
    known = np.unique(y[train])
    return len(known) > 1 and bool(np.isin(y[test], known).all())


def fit_with_unlabelled(pipe: Pipeline, X: Any, y: Array, unlabelled: Any, **options: Any) -> Any:
    """Fit the steps before the model to all rows, and the model to the labelled ones.

    A model whose fit takes ``unlabelled`` rows gets the others too; elsewhere they only scale.
    """
    columns, model = pipe[:-1], pipe[-1]
    columns.fit(_stacked(X, unlabelled))
    if has_fit_parameter(model, "unlabelled"):
        options = {**options, "unlabelled": columns.transform(unlabelled)}
    model.fit(columns.transform(X), y, **options)
    return pipe


def _stacked(X: Any, more: Any) -> Any:
    """Return the rows of two arrays, or of two tables of the same columns, as one."""
    if hasattr(X, "iloc"):
        import pandas as pd

        return pd.concat([X, more], ignore_index=True)
    return np.vstack([X, more])
