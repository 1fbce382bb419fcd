"""The worst-case risk and the worst case of any linear model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_X_y

from .. import adversary, certificate, losses
from ..certificate import WorstCase
from ..design import Design
from ..duality import worst_risk
from ..losses import Loss
from ..problem import Ball, Problem
from ..radius.checks import check_targets
from ..solvers.feature_map.geometry import landscape, worst

Array = NDArray[Any]


def robust_risk(X: Any, y: Any, coef: Any, intercept: float, loss: str | Loss, ball: Ball) -> float:
    r"""Return :math:`\sup_{P \in ball} E_P\,\ell(x'\beta + b, y)` around the sample (X, y).

    ``y`` are labels -1/+1 for a loss of classification, targets for one of regression.
    """
    loss = losses.resolve(loss)
    X, y, coef = _sample(X, y, coef, loss)
    ball.cost.check(X.shape[1])
    weights = np.full(len(y), 1 / len(y))
    if not ball.cost.is_norm:
        return adversary.worst_risk(Problem(X, y, weights, loss, ball), coef, float(intercept))
    z = Design(X).scores(coef) + float(intercept)
    return worst_risk(z, y, weights, loss, float(ball.cost.dual_norm(coef)), ball).risk


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


def worst_case(
    problem: Problem, coef: Array, intercept: float, known: tuple[float, float] | None = None
) -> WorstCase:
    """Return a worst case of a linear model over the ball of a problem.

    ``known`` are the multiplier and the robust risk of the model, where a solver found them.
    """
    if problem.ball.cost.is_norm and problem.support is None:
        return certificate.worst_case(
            problem.X, problem.y, problem.weights, coef, intercept, problem.loss, problem.ball
        )
    multiplier, risk = known or _multiplier_and_risk(problem, coef, intercept)
    return adversary.worst_case(problem, coef, intercept, multiplier, risk)


def _multiplier_and_risk(problem: Problem, coef: Array, intercept: float) -> tuple[float, float]:
    """Return the multiplier of the budget (0 where no move is made by it) and the robust risk."""
    if problem.finite or problem.ball.delta == 0 or not np.any(coef):
        return 0.0, adversary.worst_risk(problem, coef, intercept)
    X = Design(problem.X).dense()
    multiplier, risk = worst(problem, landscape(problem, X), coef, intercept)
    return float(multiplier), float(risk)
