"""The two samples of a drift, checked and brought to the same columns and labels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target

from ..arrays import numpy
from ..costs import Cost
from ..costs.table import named
from ..design import as_dense
from ..problem import Ball
from .assembling import audited
from .bounds import model_vectors
from .certificate import Audit
from .linear import LinearModel, ReadModel, finite_rows, read, require_columns
from .rows import Asked, check_target, resolve_ball

Array = NDArray[Any]

#: New rows below which nothing is said, and old ones, which are split in two.
LEAST_NEW, LEAST_REFERENCE = 10, 20


@dataclass(frozen=True, eq=False)
class TwoSamples:
    """Rows of the reference U and of the new sample V, with what is known beside them.

    ``own_u`` and ``own_v`` are class numbers, all 0 unless ``labelled``; ``labels`` their names.
    ``target_u`` and ``target_v`` are targets of regression. ``vectors`` are the directions that
    the model sees, ``delta`` the radius of the ball that is asked about.
    """

    U: Array
    V: Array
    own_u: Array
    own_v: Array
    labelled: bool
    labels: list[str]
    target_u: Array | None
    target_v: Array | None
    cost: Cost
    order: int
    names: list[str]
    vectors: Array | None = None
    delta: float | None = None
    audit: Audit | None = None
    notes: list[str] = field(default_factory=list)


def against(audit: Audit, reading: ReadModel, new: Any) -> TwoSamples:
    """Return the rows of an audit and new rows."""
    return _assembled(reading, audit.X, audit.target, new, audit.ball(0.0), audit)


def two_samples(reference: Any, new: Any, model: Any, asked: Asked) -> TwoSamples:
    """Return what ``drift`` was given."""
    X, y = _apart(reference)
    if model is None:
        return _without_model(X, y, *_apart(new), asked)
    reading = read(model, X)
    if y is not None:
        return against(audited(reading, X, y, asked), reading, new)
    rows = reading.rows(X, "reference")
    ball = resolve_ball(asked, reading.model.ball, rows, None, regression=False)
    return _assembled(reading, rows, None, new, ball, None)


def _assembled(
    reading: ReadModel, U: Any, target: Array | None, new: Any, ball: Ball, audit: Audit | None
) -> TwoSamples:
    """Return the reference as the model sees it, and the new rows likewise."""
    model = reading.model
    X_new, y_new = _apart(new)
    V = reading.rows(X_new, "new")
    check_sizes(U.shape[0], V.shape[0])
    target_new = None if y_new is None else check_target(y_new, V.shape[0], model, "new y")
    labels = [] if model.classes is None else [str(c) for c in model.classes]
    return replace(
        _beside(U, V, target, target_new, labels, model.names, ball),
        vectors=model_vectors(model.coef, model.classes),
        delta=_radius(model, ball, audit),
        audit=audit,
        notes=list(reading.notes),
    )


def _radius(model: LinearModel, ball: Ball, audit: Audit | None) -> float | None:
    """Return the delta of the ball: the audit's, else the model's own, in the same cost."""
    if audit is None:
        return model.fitted_delta(ball.cost, ball.order)
    delta = audit.audited_delta
    return delta if np.isfinite(delta) else None


def _beside(
    U: Any,
    V: Any,
    target: Array | None,
    target_new: Array | None,
    labels: list[str],
    names: list[str],
    ball: Ball,
) -> TwoSamples:
    """Return both samples; targets are the numbers of the ``labels``, or numbers without any."""
    own_u, own_v = np.zeros(U.shape[0], dtype=int), np.zeros(V.shape[0], dtype=int)
    labelled = False
    if labels and target is not None and target_new is not None:
        labelled = True
        require_known(target, target_new)
        own_u, own_v = target, target_new
    return TwoSamples(
        U=_dense(U),
        V=_dense(V),
        own_u=own_u,
        own_v=own_v,
        labelled=labelled,
        labels=labels,
        target_u=None if labels else target,
        target_v=None if labels else target_new,
        cost=ball.cost,
        order=ball.order,
        names=names,
    )


def require_known(own: Array, new: Array) -> None:
    """Refuse new classes: no row of the reference can be moved to them."""
    if len(np.setdiff1d(new, own)):
        raise ValueError(
            "new has rows of a class that the reference lacks; labels cannot move, so that their "
            "distance is infinite. Leave those rows out, or add such rows to the reference."
        )


def _without_model(X: Any, y: Any, X_new: Any, y_new: Any, asked: Asked) -> TwoSamples:
    """Return the rows as they are."""
    names = named(None, X, np.shape(X)[1] if np.ndim(X) == 2 else 0)
    own = [str(column) for column in getattr(X, "columns", [])]
    require_columns(X_new, own, "new", "the reference", "reference.columns")
    U, V = (
        _dense(finite_rows(rows, len(names), names, name, "the reference"))
        for rows, name in ((X, "reference"), (X_new, "new"))
    )
    check_sizes(len(U), len(V))
    target, target_new, labels = _targets(y, y_new, len(U), len(V))
    ball = resolve_ball(asked, None, U, target, regression=not labels)
    return _beside(U, V, target, target_new, labels, names, ball)


def _targets(y: Any, y_new: Any, n: int, m: int) -> tuple[Array | None, Array | None, list[str]]:
    """Return labels as numbers, or targets, of both samples, and the names of the classes."""
    for values, size, name in ((y, n, "reference"), (y_new, m, "new")):
        if values is not None and len(column_or_1d(values)) != size:
            raise ValueError(f"{name} has {size} rows but {len(values)} labels.")
    if y is None:
        return None, None, []
    y = column_or_1d(y)
    if type_of_target(y) not in ("binary", "multiclass"):
        return y.astype(float), None if y_new is None else np.asarray(y_new, dtype=float), []
    classes, own = np.unique(y, return_inverse=True)
    names = [str(c) for c in classes]
    if y_new is None:
        return own, None, names
    unknown = np.setdiff1d(column_or_1d(y_new), classes)
    if len(unknown):
        raise ValueError(
            f"new has labels that the reference lacks, {unknown[:5].tolist()}: labels cannot "
            "move. Leave those rows out, or add such rows to the reference."
        )
    return own, np.searchsorted(classes, y_new), names


def _apart(given: Any) -> tuple[Any, Any]:
    """Return (X, y) of a pair, (X, None) of rows."""
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(f"rows must be X or a pair (X, y), got {len(given)} things.")
        return given[0], given[1]
    return given, None


def check_sizes(n: int, m: int) -> None:
    """Refuse samples too small to say anything."""
    if m < LEAST_NEW:
        raise ValueError(
            f"there are {m} new rows; fewer than {LEAST_NEW} say nothing of a drift. Gather more."
        )
    if n < LEAST_REFERENCE:
        raise ValueError(
            f"the reference has {n} rows; at least {LEAST_REFERENCE} are needed to split it for "
            "the noise floor."
        )


def _dense(X: Any) -> Array:
    return np.asarray(numpy(as_dense(X)), dtype=np.float64)
