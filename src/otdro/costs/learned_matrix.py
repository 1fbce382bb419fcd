"""The matrix that a fitted metric learner leaves, whoever wrote the learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from .base import Array
from .low_rank import blend, identity, is_structured

#: The least shrinkage: it keeps the matrix positive definite where what was learned is not.
LEAST_SHRINKAGE = 1e-6


def check_shrinkage(shrinkage: Any) -> None:
    """Refuse a shrinkage outside [0, 1]."""
    if not (isinstance(shrinkage, (int, float, np.number)) and 0 <= shrinkage <= 1):
        raise ValueError(f"shrinkage must be a number in [0, 1], got {shrinkage!r}.")


def shrink(matrix: Any, shrinkage: float) -> Any:
    """Return (1 - eta) matrix d/tr(matrix) + eta I, eta = max(shrinkage, LEAST_SHRINKAGE)."""
    check_shrinkage(shrinkage)
    d, eta = matrix.shape[0], max(float(shrinkage), LEAST_SHRINKAGE)
    if is_structured(matrix):
        return blend([matrix, identity(d)], [(1 - eta) * d / matrix.trace, eta])
    matrix = (matrix + matrix.T) / 2
    metric: Array = (1 - eta) * matrix * (d / np.trace(matrix)) + eta * np.eye(d)
    return metric


def seeded(learner: Any) -> Any:
    """Return an unfitted copy of a learner whose random_state None is the seed 0."""
    learner = clone(learner)
    parameters = learner.get_params(deep=False)
    if "random_state" in parameters and parameters["random_state"] is None:
        learner.set_params(random_state=0)
    return learner


def fitted_matrix(learner: Any) -> Any:
    """Return the matrix of a fitted metric learner, structured or not; refuse other objects.

    It is ``get_mahalanobis_matrix()``, L'L with L = ``components_``, or ``metric_``, whichever the
    learner has first.
    """
    if hasattr(learner, "get_mahalanobis_matrix"):
        matrix = np.asarray(learner.get_mahalanobis_matrix(), dtype=float)
    elif hasattr(learner, "components_"):
        L = np.asarray(learner.components_, dtype=float)
        matrix = L.T @ L
    elif hasattr(learner, "metric_"):
        if is_structured(learner.metric_):
            return learner.metric_
        matrix = np.asarray(learner.metric_, dtype=float)
    else:
        raise TypeError(
            f"{type(learner).__name__} is not a metric learner: after fit it has neither "
            "components_ nor get_mahalanobis_matrix()."
        )
    if not (np.isfinite(matrix).all() and np.trace(matrix) > 0):
        raise ValueError(f"{type(learner).__name__} learned a zero or non-finite matrix.")
    return matrix


def definite_matrix(learner: Any) -> Any:
    """Return the matrix of a fitted learner as a cost needs it: positive definite.

    A learner of otdro leaves that as ``metric_``; the matrix of another one may be singular, and
    gets trace d and the share ``LEAST_SHRINKAGE`` of the identity.
    """
    matrix = fitted_matrix(learner)
    return matrix if hasattr(learner, "metric_") else shrink(matrix, LEAST_SHRINKAGE)
