"""The worst-case risk of any linear model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..arrays import full, namespace, numpy
from ..chunks import in_chunks
from ..losses import Loss
from ..problem import Ball, Problem
from ..radius.checks import check_targets, checked_pair
from ..worst_case import robust_risk_of
from .streamed_risk import risk_in_chunks

Array = NDArray[Any]


def robust_risk(X: Any, y: Any, coef: Any, intercept: Any, loss: str | Loss, ball: Ball) -> float:
    r"""Return :math:`\sup_{P \in ball} E_P\,\ell(x'\beta + b, y)` around the sample (X, y).

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The rows.
    y : array-like of shape (n,)
        Labels -1/+1 for a loss of classification, targets for one of regression.
    coef : array-like of shape (d,) or (K, d)
        The coefficients. With K > 1 lines it is the risk of the softmax model at order 1, and
        ``y`` are labels 0 to K - 1.
    intercept : float or array-like of shape (K,)
        The intercept.
    loss : str or Loss
        A short name, or an object of ``otdro.losses``.
    ball : Ball
        Cost, delta and order.

    Returns
    -------
    float

    Examples
    --------
    The worst case of a hinge loss at order 1 is its mean plus delta times the dual norm:

    >>> from otdro import Ball, robust_risk
    >>> from otdro.costs import Norm
    >>> X, y = [[1.0, 0.0], [-1.0, 0.0]], [1, -1]
    >>> robust_risk(X, y, [3.0, 4.0], 0.0, "hinge", Ball(Norm(2), 0.1, order=1))
    0.5
    """
    loss = losses.resolve(loss)
    if in_chunks(X):
        return risk_in_chunks(X, y, coef, intercept, loss, ball)
    if len(getattr(coef, "shape", np.shape(coef))) == 2 and len(coef) > 1:
        B, b = (np.asarray(numpy(part), dtype=float) for part in (coef, intercept))
        return _softmax_risk(X, y, B, b, loss, ball)
    X, y, coef = _sample(X, y, coef, loss)
    ball.cost.check(X.shape[1])
    problem = Problem(X, y, full(len(y), 1 / len(y), y), loss, ball)
    return robust_risk_of(problem, coef, float(np.ravel(numpy(intercept))[0]))


def _softmax_risk(X: Any, y: Any, coef: Array, intercept: Array, loss: Loss, ball: Ball) -> float:
    K = len(coef)
    several = loss if loss.outputs == K else loss.multinomial(K)
    if several is None or ball.order != 1 or not ball.cost.is_norm:
        raise ValueError(
            f"coefficients of {K} classes are those of a softmax model, which needs the logistic "
            f"loss, order 1 and a norm; got {loss!r}, order={ball.order} and {ball.cost!r}. Give "
            "one line of coefficients at a time."
        )
    X, y = checked_pair(X, y)
    if coef.shape[1] != X.shape[1] or intercept.shape != (K,):
        raise ValueError(
            f"coef has shape {coef.shape} and intercept {intercept.shape}, but X has "
            f"{X.shape[1]} features."
        )
    known = namespace(y).unique_values(y).tolist()
    if not set(known) <= set(range(K)):
        raise ValueError(f"labels must be 0 to {K - 1} here, got {known[:5]}.")
    ball.cost.check(X.shape[1])
    problem = Problem(X, y, full(len(y), 1 / len(y), y), several, ball)
    return robust_risk_of(problem, coef, intercept)


def _sample(X: Any, y: Any, coef: Any, loss: Loss) -> tuple[Any, Array, Array]:
    X, y = checked_pair(X, y)
    coef = np.asarray(numpy(coef), dtype=float).ravel()
    if len(coef) != X.shape[1]:
        raise ValueError(f"coef has {len(coef)} entries but X has {X.shape[1]} features.")
    if loss.task == "regression":
        check_targets(y, loss)
    elif not (abs(y) == 1).all():
        raise ValueError(f"labels must be -1 or +1 here, got {np.unique(numpy(y))[:5].tolist()}.")
    return X, y, coef
