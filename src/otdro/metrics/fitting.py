"""Fitting any metric learner, of otdro or another library, to the rows that it can use."""

from __future__ import annotations

from typing import Any

from ..costs import Mahalanobis
from ..costs.learned_matrix import fitted_matrix, seeded, shrink
from .base import Array, Made, Metric


def learn(
    learner: Any,
    X: Any,
    y: Any,
    *,
    shrinkage: float | None = None,
    task: str = "auto",
    unlabelled: Any = None,
) -> Mahalanobis:
    """Fit a clone of any metric learner and return its cost, trace d.

    Parameters
    ----------
    learner : object
        One of ``otdro.metrics``, or any object with ``fit(X, y)`` that leaves ``components_``
        (M = components_' components_) or has ``get_mahalanobis_matrix()``.
    X, y : arrays
    shrinkage : float in [0, 1] or None
        Weight of the identity; None keeps the learner's own (0 for those of other libraries).
    task : {"auto", "classification", "regression"}
        Set on learners of otdro whose own ``task`` is ``"auto"``.
    unlabelled : array of shape (n_rows, n_features) or None
        More rows, for learners that need no labels.
    """
    taught = fitted(learner, X, y, task=task, unlabelled=unlabelled)
    return Mahalanobis(shrunk(taught, shrinkage))


def shrunk(learner: Any, shrinkage: float | None = None) -> Array:
    """Return the matrix of a fitted learner, trace d, at a shrinkage; None is its own."""
    if not isinstance(learner, Metric):
        return shrink(fitted_matrix(learner), shrinkage or 0.0)
    own = getattr(learner, "shrinkage", None)
    matrix: Array = learner.metric_
    return matrix if shrinkage in (None, own) else learner.shrunk(float(shrinkage or 0.0))


def fitted(
    learner: Any,
    X: Any,
    y: Any,
    *,
    task: str = "auto",
    unlabelled: Any = None,
    made: Made | None = None,
) -> Any:
    """Return a fitted clone of a learner; arguments as in ``learn``.

    ``made`` holds pairs and covariances that were made before, and keeps those made here, so that
    learners that would make the same share them.
    """
    learner = seeded(learner)
    if not isinstance(learner, Metric):
        return learner.fit(X, y)
    return learner.fit_sharing(X, y, unlabelled, task, made)
