"""The audit of a model around labelled rows, with the drift of new ones where there are any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .assembling import audited
from .certificate import Audit
from .drifting import measured
from .linear import read
from .rows import Asked
from .samples import against


def audit(
    model: Any,
    X: Any,
    y: Any,
    *,
    cost: Any = None,
    order: Any = None,
    deltas: Any = None,
    tau: Any = None,
    space: str = "last",
    sample_weight: Any = None,
    groups: Any = None,
    new: Any = None,
    random_state: Any = None,
) -> Audit:
    """Return what a fitted linear model stands around the rows (X, y).

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted model with ``coef_`` and ``intercept_`` whose prediction is the linear score or
        its largest entry: of scikit-learn or otdro, one-vs-rest or multinomial; or a Pipeline that
        ends in one.
    X, y : array-like of shape (n, d) and (n,)
        Labelled rows, best ones that the model has not seen.
    cost : as in the estimators, default=None
        What a move costs. None: the model's own ball, else Euclidean.
    order : {1, 2}, default=None
        The power of the distance that is the cost. None: the model's own, else 1.
    deltas : array-like, default=None
        The radii of the curves. None: from 0 to beyond the breaking point.
    tau : float > 0, default=None
        Regression: a prediction is right while it is within tau of the target. None: half a
        standard deviation of the targets.
    space : {"last", "raw"}, default="last"
        Of a pipeline: the columns that are moved, those in front of the last step, or the raw ones
        where the steps between are affine.
    sample_weight, groups : array-like of shape (n,), default=None
        Weights of the rows, and the group of each, whose accuracies are given apart.
    new : X or (X, y), default=None
        New rows, whose drift from these is measured as well.
    random_state : int, default=None
        Seeds the drift and a learned cost.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from otdro import audit
    >>> X, y = load_iris(return_X_y=True)
    >>> found = audit(LogisticRegression(max_iter=1000).fit(X, y), X, y)
    >>> print(f"{found.accuracy(0):.2f}, at least {found.accuracy(0.1):.2f} within 0.1")
    0.97, at least 0.68 within 0.1
    """
    reading = read(model, X, space)
    asked = Asked(cost, order, deltas, tau, sample_weight, groups, random_state)
    found = audited(reading, X, y, asked)
    if new is None:
        return found
    return replace(found, drift=measured(against(found, reading, new), random_state))
