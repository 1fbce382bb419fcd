"""What the user asked for, checked: loss, cost, order, delta and the rows."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_X_y, column_or_1d
from sklearn.utils.validation import _check_sample_weight

from .. import costs, losses
from ..arrays import (
    as_float,
    check_places,
    check_vector,
    formats,
    full,
    library,
    missing_entries,
    namespace,
    numpy,
    stays,
)
from ..costs import Cost
from ..losses import Loss
from ..problem import Sample

Array = NDArray[Any]

#: The largest size of an entry or of a target for a loss with squares: its fourth power is a
#: double. The inverse is the least: sums of squares and products of two are then not zero.
LARGEST = 1e75


def checked_sample(
    X: Any, y: Any, loss: Any, cost: Any, order: Any, sample_weight: Any, fit_intercept: bool
) -> tuple[Sample, Cost, int]:
    """Return rows with targets or labels -1/+1, the cost and its order, or say what is wrong."""
    loss = losses.resolve(loss)
    X, y = checked_pair(X, y)
    known = set(namespace(y).unique_values(y).tolist())
    if loss.task == "classification" and known != {-1.0, 1.0}:
        raise ValueError(f"labels must be -1 and +1 here, got {sorted(known)[:5]}.")
    if loss.task == "regression":
        check_targets(y, loss)
    check_places(X, sample_weight=sample_weight)
    weights = normalise(check_weights(X, sample_weight), "sample_weight")
    cost = as_cost(cost)
    if not isinstance(cost, Cost):
        raise ValueError(f"unknown cost={cost!r}; known: {', '.join(costs.KNOWN)}, or a Cost.")
    cost.check(X.shape[1])
    sample = Sample(X, [y], weights, loss, fit_intercept)
    return sample, cost, resolve_order(order, loss, cost)


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


def checked_pair(X: Any, y: Any) -> tuple[Any, Array]:
    """Return rows, where they are, and one finite number per row."""
    check_places(X, y=y)
    if not stays(X):
        X, y = check_X_y(X, y, **formats(X), y_numeric=True)
        return X, np.asarray(y, dtype=float)
    X = check_array(X, **formats(X))
    return X, as_float(check_vector(y, X, "y"))


def check_targets(y: Array, loss: Loss) -> None:
    """Refuse targets whose powers, which a loss with squares needs, have no floating-point number.

    The fourth power of ``LARGEST`` is below the largest double, that of its inverse above the
    least one.
    """
    size = float(abs(y).max())
    large = size > LARGEST and not np.isfinite(loss.lipschitz)
    small = 0 < size < 1 / LARGEST and np.isfinite(loss.smoothness)
    if large or small:
        raise ValueError(
            f"the largest target is {size:.3g} in size, which the loss {type(loss).__name__} "
            f"cannot square: {'divide' if large else 'multiply'} y by a power of ten, so that it "
            f"is between {1 / LARGEST:g} and {LARGEST:g}."
        )


def check_groups(groups: Any, n: int) -> Array | None:
    """Return one group per row as an array, None if there are none; refuse missing values."""
    if groups is None:
        return None
    found: Array = column_or_1d(numpy(groups) if library(groups) else groups)
    if len(found) != n:
        raise ValueError(f"groups has {len(found)} entries but X has {n} rows.")
    missing = missing_entries(found)
    if missing.any():
        raise ValueError(
            f"groups has no value (NaN or None) in row {int(missing.argmax())}: give every row a "
            "group, or leave such rows out."
        )
    return found


def as_cost(cost: Any) -> Any:
    """Return the cost that a name or a matrix stands for: an array, a table or lists of numbers.

    Anything else is returned as it is.
    """
    if isinstance(cost, str):
        return costs.KNOWN.get(cost, cost)
    is_array = isinstance(cost, list | tuple) or hasattr(cost, "__array__")
    if is_array and not isinstance(cost, type | Cost):
        return costs.Mahalanobis(np.asarray(cost, dtype=float))
    return cost


def resolve_order(order: Any, loss: Loss, cost: Cost | None) -> int:
    """Return 1 or 2; "auto" is 1 for a Lipschitz loss with a norm as cost, else 2."""
    if cost is not None and cost.geometry == "function":
        if order != "auto":
            raise ValueError(f"a function is the cost itself: leave order='auto', got {order!r}.")
        return 1
    if isinstance(order, str) and order == "auto":
        norm = cost is None or cost.is_norm
        return 1 if norm and np.isfinite(loss.lipschitz) else 2
    if isinstance(order, Real) and not isinstance(order, bool) and order in (1, 2):
        return int(float(order))
    raise ValueError(f"order must be 1, 2 or 'auto', got order={order!r}.")


def check_delta(delta: Any) -> Any:
    """Return a float >= 0, "cv" or "theory"."""
    if isinstance(delta, str) and delta in ("cv", "theory"):
        return delta
    if isinstance(delta, Real) and not isinstance(delta, bool) and 0 <= float(delta) < np.inf:
        return float(delta)
    raise ValueError(f"delta must be a number >= 0, 'cv' or 'theory', got delta={delta!r}.")


def check_deltas(deltas: Any) -> Array:
    """Return a grid of deltas, descending; refuse an empty, unsorted or negative one."""
    try:
        grid = np.asarray(deltas, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"deltas must be a list of numbers, got deltas={deltas!r}.") from None
    if grid.ndim != 1 or len(grid) == 0:
        raise ValueError(f"deltas must be a list of at least one number, got deltas={deltas!r}.")
    if not np.isfinite(grid).all() or grid.min() < 0:
        raise ValueError(f"deltas must be finite and >= 0, got {grid.min():g} to {grid.max():g}.")
    steps = np.diff(grid)
    if not (np.all(steps < 0) or np.all(steps > 0)):
        raise ValueError("deltas must be sorted, without repetition; sort them.")
    return grid if len(grid) == 1 or steps[0] < 0 else grid[::-1]
