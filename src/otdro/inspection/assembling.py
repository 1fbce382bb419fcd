"""From a model that was read, rows and options to an audit: everything checked first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import numpy
from ..entry import check_places
from ..estimators.rows import check_weights, normalise
from ..radius.checks import check_groups
from .certificate import Audit
from .linear import Reading
from .rows import check_grid, check_target, check_tau, require_classes, resolve_ball


def audited(
    reading: Reading,
    X: Any,
    y: Any,
    cost: Any,
    order: Any,
    deltas: Any,
    tau: Any,
    sample_weight: Any,
    groups: Any,
    random_state: Any,
) -> Audit:
    """Return the audit of a model that was read."""
    linear = reading.model
    check_places(X, y=y, sample_weight=sample_weight)
    rows = reading.rows(X)
    target = check_target(y, rows.shape[0], linear)
    weights = normalise(numpy(check_weights(rows, sample_weight)), "sample_weight")
    if linear.classes is not None:
        require_classes(target, weights, linear)
        if tau is not None:
            raise ValueError(f"tau={tau!r} is for regression; a classifier is right or wrong.")
    regression = linear.classes is None
    asked = (cost, order, linear.ball)
    # the prices of labels and targets are in the unit of the ball's own cost
    own = linear.ball if cost is None and linear.ball is not None else None
    if own is not None and order not in (None, own.order):
        own = None
    cost, order = resolve_ball(*asked, rows, target, weights, regression, random_state)
    return Audit(
        model=linear,
        X=rows,
        target=target,
        weights=weights,
        groups=check_groups(groups, rows.shape[0]),
        cost=cost,
        order=order,
        tau=None if linear.classes is not None else check_tau(tau, target, weights),
        space=reading.space,
        notes=reading.notes,
        label_cost=np.inf if own is None else own.label_cost,
        target_cost=np.inf if own is None else own.target_cost,
        given_deltas=None if deltas is None else check_grid(deltas),
    )
