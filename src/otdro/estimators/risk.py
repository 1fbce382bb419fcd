"""The worst-case risk of any linear model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_X_y

from .. import losses
from ..losses import Loss
from ..problem import Ball, Problem
from ..radius.checks import check_targets
from ..worst_case import robust_risk_of

Array = NDArray[Any]


def robust_risk(X: Any, y: Any, coef: Any, intercept: float, loss: str | Loss, ball: Ball) -> float:
    r"""Return :math:`\sup_{P \in ball} E_P\,\ell(x'\beta + b, y)` around the sample (X, y).

    ``y`` are labels -1/+1 for a loss of classification, targets for one of regression.
    """
    loss = losses.resolve(loss)
    X, y, coef = _sample(X, y, coef, loss)
    ball.cost.check(X.shape[1])
    problem = Problem(X, y, np.full(len(y), 1 / len(y)), loss, ball)
    return robust_risk_of(problem, coef, float(intercept))


def _sample(X: Any, y: Any, coef: Any, loss: Loss) -> tuple[Any, Array, Array]:
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
    coef = np.asarray(coef, dtype=float).ravel()
    if len(coef) != X.shape[1]:
        raise ValueError(f"coef has {len(coef)} entries but X has {X.shape[1]} features.")
    y = np.asarray(y, dtype=float)
    if loss.task == "regression":
        check_targets(y, loss)
    elif not np.isin(y, (-1, 1)).all():
        raise ValueError(f"labels must be -1 or +1 here, got {np.unique(y)[:5].tolist()}.")
    return X, y, coef
