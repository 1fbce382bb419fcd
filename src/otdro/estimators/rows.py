"""The rows of a fit and of a question, checked."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _get_feature_names

from ..arrays import as_float, full, library, namespace, numpy
from ..entry import check_places, check_vector
from ..losses import Loss

Array = NDArray[Any]

#: Entries up to which sums of squares of rows, and products of two, stay finite.
LARGEST = 1e75
#: The largest entry from which on sums of squares of rows, and products of two, are not zero.
SMALLEST = 1e-75
#: Names of columns that an error quotes, at most.
SHOWN = 5


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of a fit.

    ``ys`` are the target vectors, one for each problem to solve, ``weights`` those of the rows
    with sum 1, ``y`` the labels or targets as given and ``classes`` the distinct labels (None for
    regression). ``sample_weight`` are the weights as given, None if there were none. ``loss`` is
    that of the softmax model, None where it is the estimator's own. ``prices`` are those of a
    label or target, ``note`` is a sentence about the model for ``message_``.
    """

    ys: list[Array]
    weights: Array
    y: Array
    classes: Array | None
    sample_weight: Array | None
    loss: Loss | None = None
    prices: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def check_rows(rows: Any, X: Any, name: str, names: Array | None, least: int = 1) -> Any:
    """Return further ``rows`` as an array with the columns of X, None if there are none.

    ``names`` are those of the columns of X, None if they have none.
    """
    if rows is None:
        return None
    check_places(X, **{name: rows})
    check_names(rows, name, names)
    rows = check_array(
        numpy(rows) if library(rows) is not None else rows,
        accept_sparse="csr",
        dtype=np.float64,
        input_name=name,
        ensure_min_samples=least,
        estimator=name,
    )
    if rows.shape[1] != X.shape[1]:
        raise ValueError(f"{name} has {rows.shape[1]} columns but X has {X.shape[1]}.")
    return rows


def check_names(rows: Any, name: str, names: Array | None) -> None:
    """Refuse rows whose columns have other names than those of X, or another order of them.

    Where only one of the two has names, columns are taken by position, with a warning.
    """
    own = _get_feature_names(rows)
    if own is None and names is None:
        return
    if own is None or names is None:
        with_names, without = ("X", name) if own is None else (name, "X")
        warnings.warn(
            f"{with_names} has feature names, but {without} has none: the columns of {name} are "
            "taken by position.",
            UserWarning,
            stacklevel=2,
        )
        return
    if len(own) == len(names) and all(own == names):
        return
    missing = [one for one in names.tolist() if one not in set(own)]
    further = [one for one in own.tolist() if one not in set(names)]
    if missing or further:
        parts = [("lacks the columns", missing), ("has the columns", further)]
        what = " and ".join(f"{verb} {some[:SHOWN]}" for verb, some in parts if some)
        raise ValueError(f"{name} {what}, unlike X: give it the columns of X.")
    raise ValueError(
        f"{name} has the columns of X in another order: pass {name}[X.columns] instead."
    )


def check_magnitude(X: Any) -> None:
    """Refuse rows whose squares are beyond the largest number, or below the smallest."""
    if library(X) is not None:
        return
    if isinstance(X, np.ndarray) and X.flags.forc:
        every = X.ravel(order="K")
        with np.errstate(over="ignore", invalid="ignore"):
            squares = float(every @ every)
        # one pass where two would be needed: no entry is above the sum of squares, or 1
        if SMALLEST <= squares <= LARGEST:
            return
    largest = max(abs(float(X.max())), abs(float(X.min())))
    if 0 < largest < SMALLEST:
        raise ValueError(
            f"X has entries up to {largest:.3g} only, whose squares are below the smallest number: "
            f"scale the columns so that some are above {SMALLEST:.0g}."
        )
    if largest > LARGEST:
        raise ValueError(
            f"X has entries up to {largest:.3g}, whose squares are beyond the largest number: "
            f"scale the columns so that they are below {LARGEST:.0g}."
        )


def is_numeric(labels: Any) -> bool:
    """Whether labels are numbers, which an array on a device can hold."""
    return library(labels) is not None or np.asarray(labels).dtype.kind in "biuf"


def class_codes(y: Any) -> tuple[Array, Any]:
    """Return the distinct labels, sorted, and the number of each row's label among them."""
    if library(y) is None and y.dtype.kind not in "biuf":
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        return classes, codes
    xp = namespace(y)
    low, high = xp.min(y), xp.max(y)
    upper = y == high
    # two labels need no sorting of all rows
    if bool(low < high) and bool(xp.all(upper | (y == low))):
        known = numpy(xp.stack([low, high]))
        # whole numbers are labels; others are for scikit-learn to judge
        if np.any(known != np.round(known)):
            check_classification_targets(known)
        return known, 1 * upper
    # the standard leaves the order of distinct values open
    known = xp.sort(xp.unique_values(y))
    check_classification_targets(numpy(y) if library(y) is None else numpy(known))
    return numpy(known), xp.searchsorted(known, y)


def check_weights(X: Any, sample_weight: Any) -> Array:
    """Return nonnegative weights of the rows, 1 each if none are given."""
    if sample_weight is None:
        weights: Array = full(X.shape[0], 1.0, X)
        return weights
    if library(X) is None:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    else:
        weights = as_float(check_vector(sample_weight, X, "sample_weight"))
    if weights.min() < 0:
        raise ValueError(f"sample_weight must be nonnegative, got {float(weights.min()):g}.")
    return weights


def normalise(weights: Array, name: str) -> Array:
    """Return the weights divided by their sum; refuse a sum of 0, naming where they came from."""
    total = weights.sum()
    if not total > 0:
        raise ValueError(f"{name} leaves no row with positive weight.")
    return weights / total


def check_pair(rows: Any) -> tuple[Any, Any]:
    """Return (X, y); refuse what is not a pair."""
    if not (isinstance(rows, tuple | list) and len(rows) == 2):
        raise ValueError(f"rows must be a pair (X, y), got {type(rows).__name__}.")
    return rows[0], rows[1]


def require_classes(classes: Array, mass: Array) -> None:
    """Refuse fewer than two classes of positive weight, and classes without weight."""
    if np.count_nonzero(mass) < 2:
        raise ValueError(
            f"the classifier needs two classes with positive weight, got one class: "
            f"{classes[mass > 0].tolist()}."
        )
    if not mass.all():
        raise ValueError(
            f"the classes {classes[mass == 0].tolist()} have no weight: leave their rows out."
        )
