"""Choosing the ball: its cost and its radius delta."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import costs
from .costs import Cost
from .losses import Loss
from .problem import Ball
from .solvers import Solver

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of an estimator that say how its ball is chosen."""

    cost: Any
    order: Any
    delta: Any
    fit_intercept: bool
    cv: Any
    scoring: Any
    rule: str
    deltas: Any
    confidence: float
    n_jobs: int | None
    random_state: Any
    verbose: bool
    estimator: Any
    groups: Any = None
    support: Any = None


@dataclass(frozen=True, eq=False)
class Choice:
    """The ball, and the path it was chosen from, if any."""

    ball: Ball
    path: Any = None


def choose(
    X: Any, ys: list[Array], weights: Array, loss: Loss, solver: Solver, settings: Settings
) -> Choice:
    """Return the ball that the settings ask for."""
    cost = resolve_cost(settings.cost)
    cost.check(X.shape[1])
    order = resolve_order(settings.order, loss, cost)
    return Choice(Ball(cost, resolve_delta(settings.delta), order))


def resolve_cost(cost: Any) -> Cost:
    """Return the cost that a name or an object stands for."""
    if isinstance(cost, str) and cost in costs.KNOWN:
        return costs.KNOWN[cost]
    if isinstance(cost, Cost):
        return cost
    raise ValueError(f"unknown cost={cost!r}; known: {', '.join(costs.KNOWN)}, or a Cost.")


def resolve_order(order: Any, loss: Loss, cost: Cost) -> int:
    """Return 1 or 2; "auto" is 1 for a Lipschitz loss with a norm as cost, else 2."""
    if isinstance(order, str) and order == "auto":
        return 1 if np.isfinite(loss.lipschitz) else 2
    if order in (1, 2) and not isinstance(order, bool):
        return int(order)
    raise ValueError(f"order must be 1, 2 or 'auto', got order={order!r}.")


def resolve_delta(delta: Any) -> float:
    """Return a number >= 0."""
    if isinstance(delta, Real) and not isinstance(delta, bool) and np.isfinite(delta) and delta >= 0:
        return float(delta)
    raise ValueError(f"delta must be a number >= 0, got delta={delta!r}.")
