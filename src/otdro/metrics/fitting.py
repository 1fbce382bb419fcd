"""Fitting any metric learner, of otdro or another library, to the rows that it can use."""

from __future__ import annotations

from typing import Any

from ..costs import Mahalanobis
from ..costs.learned_matrix import fitted_matrix, seeded, shrink
from .base import Array, Metric, MetricLearner
from .spectral import Spectral


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
    made: dict[tuple[Any, ...], Any] | None = None,
) -> Any:
    """Return a fitted clone of a learner; arguments as in ``learn``.

    ``made`` holds pairs and covariances that were made before, and keeps those made here, so that
    learners that would make the same share them.
    """
    learner = seeded(learner)
    if made is not None and isinstance(learner, Spectral):
        key = ("covariance", learner.within)
        if key in made:
            return learner.of_same_rows(made[key])
        more = unlabelled is not None
        made[key] = learner.fit_with(X, y, unlabelled) if more else learner.fit(X, y)
        return made[key]
    if isinstance(learner, MetricLearner):
        if learner.task == "auto":
            learner.set_params(task=task)
        if y is None or made is None:
            return learner.fit(X, y)
        key = learner.pair_settings()
        if key not in made:
            made[key] = learner.make_pairs(X, y)
        return learner.fit(X, y, pairs=made[key])
    if unlabelled is None or not isinstance(learner, Metric):
        return learner.fit(X, y)
    return learner.fit_with(X, y, unlabelled)
