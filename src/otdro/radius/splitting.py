"""The folds: which rows train and which test, of whole groups where there are any."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)

from ..arrays import library, namespace, numpy, pick
from ..problem import Sample

Array = NDArray[Any]
Split = tuple[Array, Array]

#: Folds of ``cv=None``, as in scikit-learn.
DEFAULT_FOLDS = 5
NO_PAIR = "every split of cv must be a pair (train, test) of arrays of row numbers, got {!r}."


def splits(
    sample: Sample, cv: Any, groups: Any, seed: int, repeats: int = 1, classes: Any = None
) -> list[Split]:
    """Return (train, test) rows; an int makes shuffled folds, stratified by label, repeated.

    With ``groups`` such folds leave whole groups out. A splitter or an iterable of splits is used
    as it is. ``classes`` are the names of the labels. Splits that cannot train are left out; none
    is left only where the folds were made here.
    """
    labels = codes(sample)
    classify = sample.loss.task == "classification"
    count = _number_of_folds(cv, groups)
    if count is not None:
        names = np.unique(labels) if classes is None else classes
        splitters = _folds(labels, count, classify, seed, repeats, names, groups)
    else:
        splitters = [check_cv(_given(cv), labels, classifier=classify)]
    # a splitter is for rows that NumPy can read
    rows = sample.X if library(sample.X) is None else labels[:, None]
    # of many rows the numbers of those that train are as much as a few columns
    short = count is not None and library(sample.X) is None and len(labels) < 2**31
    kind = np.int32 if short else None
    found = [
        _pair(split, len(labels), kind)
        for splitter in splitters
        for split in splitter.split(rows, labels, groups)
    ]
    lacking = [i for i, pair in enumerate(found) if not usable(sample, *pair)]
    if len(lacking) == len(found):
        if count is not None and groups is None:
            return []
        raise ValueError(
            f"none of the {len(found)} splits of cv has training rows of positive weight from "
            f"{'all' if sample.loss.outputs > 1 else 'two'} classes; use other folds or groups, or "
            "a number as delta."
        )
    if lacking:
        warnings.warn(
            f"{len(lacking)} of {len(found)} splits (number {', '.join(map(str, lacking))}) lack a "
            "class or test rows of positive weight and are left out.",
            UserWarning,
            stacklevel=2,
        )
    return [pair for i, pair in enumerate(found) if i not in lacking]


def _given(cv: Any) -> Any:
    """Return a splitter as it is, and an iterable of splits as a list of pairs."""
    if isinstance(cv, str) or hasattr(cv, "split") or not isinstance(cv, Iterable):
        return cv
    listed = list(cv)
    for split in listed:
        if not (isinstance(split, tuple | list | np.ndarray) and len(split) == 2):
            raise ValueError(NO_PAIR.format(split))
    return listed


def _pair(split: Split, n: int, kind: Any) -> Split:
    """Return the rows that train and those that test; refuse what are no numbers of rows."""
    train, test = (np.asarray(part) for part in split)
    for rows in (train, test):
        if rows.dtype.kind not in "biu" or rows.ndim != 1:
            raise ValueError(NO_PAIR.format(split))
        if rows.dtype.kind != "b" and len(rows) and not -n <= rows.min() <= rows.max() < n:
            raise ValueError(
                f"a split of cv names row {int(rows.max())}, and X has {n} rows, 0 to {n - 1}: "
                "make the splits for the rows of this fit."
            )
    return train.astype(kind or train.dtype, copy=False), test.astype(
        kind or test.dtype, copy=False
    )


def codes(sample: Sample) -> Array:
    """Return one label per row (the class number for one-vs-rest), or the target."""
    ys = [numpy(y) for y in sample.ys]
    return ys[0] if len(ys) == 1 else np.stack(ys).argmax(axis=0)


def _number_of_folds(cv: Any, groups: Any) -> int | None:
    """Return how many folds are to be made here, None where ``cv`` says which rows they hold."""
    if cv is None and groups is not None:
        # scikit-learn's default for None, which would pass over the groups
        return DEFAULT_FOLDS
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        return int(cv)
    return None


def _folds(
    labels: Array, k: int, classify: bool, seed: int, repeats: int, names: Any, groups: Any
) -> list[Any]:
    """Return the splitters of k folds, one per repetition, of whole groups if there are any."""
    if k < 2:
        raise ValueError(f"cv must be at least 2 folds, got cv={k}.")
    least, what = len(labels), "the sample"
    if classify:
        counts = np.unique(labels, return_counts=True)[1]
        rare = np.asarray(names).tolist()[int(counts.argmin())]
        least, what = int(counts.min()), f"the class {rare!r}"
    folds = at_most(k, least, what, "row")
    stratify = classify and least >= 2
    if groups is None:
        kind = StratifiedKFold if stratify else KFold
    else:
        count = len(np.unique(groups))
        if count < 2:
            raise ValueError(
                f"folds of whole groups need two groups, got one: {groups[0]!r}. Leave groups out, "
                "or give a number as delta."
            )
        folds = at_most(folds, count, "the sample", "group")
        kind = StratifiedGroupKFold if stratify and count > folds else GroupKFold
        if count == folds:
            # each group is a fold: every repetition would be the same
            repeats = 1
    return [kind(folds, shuffle=True, random_state=(seed + r) % 2**31) for r in range(repeats)]


def at_most(k: int, least: int, what: str, unit: str) -> int:
    """Return the folds that ``least`` units allow, at least 2; warn if they are not k."""
    if least >= k:
        return k
    fewer = max(2, least)
    plural = "" if least == 1 else "s"
    warnings.warn(
        f"{what} has {least} {unit}{plural}, fewer than cv={k} folds: using {fewer}.",
        UserWarning,
        stacklevel=4,
    )
    return fewer


def usable(sample: Sample, train: Array, test: Array) -> bool:
    """Whether a fold can train on some rows, of all classes, and test on others."""
    positive = pick(sample.weights, train) > 0
    if not positive.any() or not (pick(sample.weights, test) > 0).any():
        return False
    if sample.loss.task != "classification":
        return True
    distinct = namespace(sample.weights).unique_values
    return all(len(distinct(pick(y, train)[positive])) == len(distinct(y)) for y in sample.ys)
