"""What an audit is asked for, checked: targets, the cost, the radii and the width of the band."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from ..arrays import pick
from ..costs import Cost, Norm
from ..entry import on_host
from ..estimators import DROClassifier, DRORegressor
from ..pairs import generator
from ..problem import Ball
from ..radius import candidates
from ..radius.candidates import Candidates
from ..radius.checks import check_deltas
from .linear import LinearModel

Array = NDArray[Any]

#: Rows from which a learned cost is learned at most, drawn at random; more would take long.
LEARN_FROM = 5_000


@dataclass(frozen=True, eq=False)
class Asked:
    """What was asked for beside the model and the rows; see ``audit``."""

    cost: Any = None
    order: Any = None
    deltas: Any = None
    tau: Any = None
    sample_weight: Any = None
    groups: Any = None
    random_state: Any = None


def check_target(y: Any, n: int, model: LinearModel, name: str = "y") -> Array:
    """Return class numbers or float targets of n rows."""
    y = column_or_1d(on_host(y))
    if len(y) != n:
        raise ValueError(f"{name} has {len(y)} entries but there are {n} rows.")
    if model.classes is not None:
        return model.codes(y)
    try:
        y = np.asarray(y, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers for a regression model.") from None
    if not np.isfinite(y).all():
        raise ValueError(f"{name} has NaN or infinite values: leave those rows out.")
    return y


def require_classes(codes: Array, weights: Array, model: LinearModel) -> None:
    """Refuse rows of one class only: their accuracy says nothing of the others."""
    assert model.classes is not None
    present = np.unique(codes[weights > 0])
    if len(present) < 2:
        raise ValueError(
            f"y has one class only, {model.classes[present].tolist()}: an audit needs rows of two "
            "classes."
        )


def resolve_ball(
    asked: Asked,
    own: Ball | None,
    X: Any,
    target: Array | None,
    *,
    regression: bool,
    weights: Array | None = None,
) -> Ball:
    """Return the ball of radius 0 with the cost and the order asked for, else the model's own.

    Without either it is Euclidean of order 1. The prices of labels and targets are in the unit of
    the model's own ball: in any other one they stay.
    """
    if own is None:
        own = Ball(Norm(2), 0.0, 1)
    order = own.order if asked.order is None else asked.order
    if isinstance(order, bool) or order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got order={order!r}.")
    tried = candidates.resolve(own.cost if asked.cost is None else asked.cost, X)
    found = tried.cost
    if found is None:
        mass = np.full(X.shape[0], 1 / X.shape[0]) if weights is None else weights
        found = _learned_cost(tried, asked, X, target, mass, regression)
    if not found.is_norm:
        raise ValueError(
            f"an audit needs a cost that is a norm of the move, and {type(found).__name__} is "
            "not; pass cost='euclidean', 'l1', 'linf', 'learned' or a Mahalanobis."
        )
    found.check(X.shape[1])
    if asked.cost is None and order == own.order:
        return replace(own, cost=found, delta=0.0)
    return Ball(found, 0.0, int(order))


def _learned_cost(
    tried: Candidates,
    asked: Asked,
    X: Any,
    target: Array | None,
    weights: Array,
    regression: bool,
) -> Cost:
    """Return the cost that the estimators learn from these rows."""
    cost, seed = asked.cost, asked.random_state
    if target is None:
        raise ValueError(f"cost={cost!r} is learned from labels: give the reference as (X, y).")
    rows = np.flatnonzero(weights > 0)
    if len(rows) > LEARN_FROM:
        rows = np.sort(generator(seed).choice(rows, LEARN_FROM, replace=False))
    kind = DRORegressor if regression else DROClassifier
    # folds choose among several learned costs; of one learner nothing is left to choose
    delta = "cv" if tried.learned is not None else 0.0
    learner = kind(cost=cost, delta=delta, random_state=seed)
    return learner.fit(on_host(pick(X, rows)), target[rows], weights[rows]).cost_


def check_grid(deltas: Any) -> Array:
    """Return the radii, rising."""
    return check_deltas(deltas)[::-1]


def check_tau(tau: Any, target: Array, weights: Array) -> float:
    """Return the width of the band; None is half a standard deviation of the targets."""
    if tau is None:
        center = float(weights @ target)
        return float(np.sqrt(weights @ (target - center) ** 2)) / 2
    if isinstance(tau, bool) or not (isinstance(tau, Real) and 0 < float(tau) < np.inf):
        raise ValueError(f"tau must be a number > 0, got tau={tau!r}.")
    return float(tau)


def constant_accuracy(target: Array, weights: Array, tau: float | None) -> float:
    """Return the best accuracy of a constant: the largest class, or the fullest band of 2 tau."""
    weights = weights / weights.sum()
    if tau is None:
        return float(np.bincount(target, weights).max())
    order = np.argsort(target, kind="stable")
    y, mass = target[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    ends = np.searchsorted(y, y + 2 * tau, side="right")
    return float((mass[ends] - mass[:-1]).max())
