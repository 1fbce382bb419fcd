"""The worst-case risk of any linear model, on rows in memory or in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..arrays import full, numpy
from ..chunks import Chunk, Sums, in_chunks, open_rows
from ..design import model_scores
from ..losses import Loss
from ..problem import Ball, Problem
from ..radius.checks import check_targets, checked_pair
from ..worst_case import risk_of_scores, robust_risk_of

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
    B, b = (np.asarray(numpy(part), dtype=float) for part in (coef, intercept))
    loss = losses.resolve(loss)
    if not in_chunks(X):
        X, y = checked_pair(X, y)
        model = _linear_model(B, b, loss, ball, X.shape[1])
        model.check_targets(numpy(y))
        problem = Problem(X, y, full(len(y), 1 / len(y), y), model.loss, ball)
        return robust_risk_of(problem, model.coef, model.intercept)
    if not ball.cost.is_norm:
        raise ValueError(
            f"the worst-case risk of rows in chunks is that under a norm, got {ball.cost!r}: use a "
            "norm, or rows that fit into memory."
        )
    rows = open_rows(X, y)
    model = _linear_model(B, b, loss, ball, rows.d)
    [sums] = rows.total(model)
    z, y = np.concatenate(sums["z"]), np.concatenate(sums["y"])
    weights = full(len(y), 1 / len(y), y)
    return risk_of_scores(Problem(rows, y, weights, model.loss, ball), model.coef, z).risk


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Coefficients (d,) or (K, d) with their intercepts, and the loss of their scores."""

    coef: Array
    intercept: Any
    loss: Loss

    def check_targets(self, y: Array) -> None:
        """Refuse other labels than -1 and +1, or 0 to K - 1, and targets that have no squares."""
        if self.loss.task == "regression":
            check_targets(y, self.loss)
            return
        labels = (-1, 1) if self.loss.outputs == 1 else tuple(range(self.loss.outputs))
        if not np.isin(y, labels).all():
            words = "-1 or +1" if self.loss.outputs == 1 else f"0 to {labels[-1]}"
            raise ValueError(f"labels must be {words} here, got {np.unique(y)[:5].tolist()}.")

    def __call__(self, chunk: Chunk) -> Sums:
        """Return scores and labels or targets of a chunk; refuse other labels."""
        chunk.require_finite()
        y = np.asarray(chunk.targets(), dtype=float)
        self.check_targets(y)
        return {"z": [model_scores(chunk.X, self.coef, self.intercept)], "y": [y]}


def _linear_model(coef: Array, intercept: Array, loss: Loss, ball: Ball, d: int) -> LinearModel:
    """Return the model of rows of d columns; refuse other shapes, and a loss without such a model.

    Several lines of coefficients are a softmax model.
    """
    K = len(coef) if coef.ndim == 2 else 1
    if K > 1:
        several = loss if loss.outputs == K else loss.multinomial(K)
        if several is None or ball.order != 1 or not ball.cost.is_norm:
            raise ValueError(
                f"coefficients of {K} classes are those of a softmax model, which needs the "
                f"logistic loss, order 1 and a norm; got {loss!r}, order={ball.order} and "
                f"{ball.cost!r}. Give one line of coefficients at a time."
            )
        model = LinearModel(coef, intercept.ravel(), several)
    else:
        model = LinearModel(coef.ravel(), float(intercept.ravel()[0]), loss)
    if model.coef.shape[-1] != d:
        raise ValueError(f"coef has {model.coef.shape[-1]} entries but X has {d} features.")
    if K > 1 and len(model.intercept) != K:
        raise ValueError(f"coef has {K} lines, but intercept has shape {intercept.shape}.")
    ball.cost.check(d)
    return model
