"""From a model that was read, rows and options to an audit: everything checked first."""

from __future__ import annotations

from typing import Any

from ..arrays import numpy
from ..entry import check_places
from ..estimators.rows import check_weights, normalise
from ..radius.checks import check_groups
from .certificate import Audit
from .linear import ReadModel
from .rows import Asked, check_grid, check_target, check_tau, require_classes, resolve_ball


def audited(reading: ReadModel, X: Any, y: Any, asked: Asked) -> Audit:
    """Return the audit of a model that was read."""
    linear = reading.model
    check_places(X, y=y, sample_weight=asked.sample_weight)
    rows = reading.rows(X)
    target = check_target(y, rows.shape[0], linear)
    weights = normalise(numpy(check_weights(rows, asked.sample_weight)), "sample_weight")
    regression = linear.classes is None
    if not regression:
        require_classes(target, weights, linear)
        if asked.tau is not None:
            raise ValueError(
                f"tau={asked.tau!r} is for regression; a classifier is right or wrong."
            )
    ball = resolve_ball(asked, linear.ball, rows, target, weights=weights, regression=regression)
    return Audit(
        model=linear,
        X=rows,
        target=target,
        weights=weights,
        groups=check_groups(asked.groups, rows.shape[0]),
        cost=ball.cost,
        order=ball.order,
        tau=check_tau(asked.tau, target, weights) if regression else None,
        space=reading.space,
        notes=reading.notes,
        label_cost=ball.label_cost,
        target_cost=ball.target_cost,
        given_deltas=None if asked.deltas is None else check_grid(asked.deltas),
    )
