"""The rows of a fit and of a question, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from ..arrays import (
    as_float,
    beside,
    full,
    library,
    namespace,
    numpy,
    place,
    require_one_place,
)
from ..losses import Loss

Array = NDArray[Any]

#: Formats of X that are taken as they are.
FORMATS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


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


def check_rows(rows: Any, X: Any, name: str, least: int = 1) -> Any:
    """Return further ``rows`` as an array with the columns of X, None if there are none."""
    if rows is None:
        return None
    check_places(X, **{name: rows})
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


def formats(X: Any) -> dict[str, Any]:
    """Return what ``validate_data`` takes X as: CSR, float64 and float32, on a device dense."""
    if not stays(X):
        return FORMATS
    xp = namespace(X)
    return {"dtype": [xp.float64, xp.float32]}


def stays(X: Any) -> bool:
    """Whether X is an array of another library than NumPy that is to stay where it is.

    So it is under scikit-learn's array API dispatch; without it what can be is NumPy's.
    """
    if library(X) is None:
        return False
    dispatch = bool(get_config()["array_api_dispatch"])
    if not dispatch and str(X.device) != "cpu":
        raise ValueError(
            f"X is an array of {place(X)}, which needs scikit-learn's array API dispatch: set the "
            "environment variable SCIPY_ARRAY_API=1 and call "
            "sklearn.set_config(array_api_dispatch=True)."
        )
    if (dispatch and "sparse" in str(getattr(X, "layout", ""))) or hasattr(X, "tocsr"):
        raise ValueError(
            f"X is a sparse array of {place(X)}; rows on a device must be dense. Use X.to_dense(), "
            "or a SciPy CSR matrix, which stays sparse."
        )
    return dispatch


def check_places(X: Any, **others: Any) -> None:
    """Refuse arrays of a call that are not all of one library and on one device."""
    if get_config()["array_api_dispatch"]:
        require_one_place(X, others)


def check_vector(v: Any, X: Any, name: str) -> Any:
    """Return one number per row of X, on its device; refuse other shapes and what is not finite."""
    v = beside(np.asarray(v) if library(v) is None else v, X)
    xp = namespace(X)
    if v.ndim == 2 and v.shape[1] == 1:
        v = v[:, 0]
    if v.ndim != 1 or v.shape[0] != X.shape[0]:
        raise ValueError(
            f"{name} has shape {tuple(v.shape)}, but X has {X.shape[0]} rows: give one number per "
            "row."
        )
    if xp.isdtype(v.dtype, "real floating") and not bool(xp.all(xp.isfinite(v))):
        raise ValueError(f"Input {name} contains NaN or infinity.")
    return v


def is_numeric(labels: Any) -> bool:
    """Whether labels are numbers, which an array on a device can hold."""
    return library(labels) is not None or np.asarray(labels).dtype.kind in "biuf"


def class_codes(y: Any) -> tuple[Array, Any]:
    """Return the distinct labels, sorted, and the number of each row's label among them."""
    if library(y) is None:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        return classes, codes
    xp = namespace(y)
    ends = xp.stack([xp.min(y), xp.max(y)])
    two = bool(xp.all((y == ends[0]) | (y == ends[1])))
    # two labels need no sorting of all rows
    known = xp.unique_values(ends) if two else xp.unique_values(y)
    check_classification_targets(numpy(known))
    return numpy(known), xp.searchsorted(known, y)


def class_masses(codes: Any, weights: Any, count: int) -> Array:
    """Return the weight of every class."""
    if library(codes) is None:
        return np.bincount(codes, weights, minlength=count)
    return np.array([float(weights[codes == k].sum()) for k in range(count)])


def check_weights(X: Any, sample_weight: Any) -> Array:
    """Return nonnegative weights of the rows, 1 each if none are given."""
    if library(X) is None:
        weights: Array = _check_sample_weight(sample_weight, X, dtype=np.float64)
    elif sample_weight is None:
        return full(X.shape[0], 1.0, X)
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
