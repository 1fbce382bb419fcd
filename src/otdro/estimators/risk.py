"""The worst-case risk of any linear model, on rows in memory or in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..arrays import full, numpy
from ..chunks import Chunk, Chunks, Sums, in_chunks, open_rows
from ..design import model_scores
from ..duality import (
    Tangent,
    best_multiplier,
    least,
    least_finite,
    require_lipschitz,
    rooted,
    steepest_pair,
)
from ..losses import Loss
from ..problem import Ball, Problem
from ..radius.checks import check_targets, checked_pair
from ..worst_case import robust_risk_of

Array = NDArray[Any]

#: Rows in chunks whose scores are kept: the first multiplier is the best one for them.
KEPT = 20_000
#: The share of itself to which that multiplier is known.
DOUBT = 0.02
#: The precision of a least value over the multiplier, relative to it: each step is a pass.
PRECISION = 1e-12


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
    if in_chunks(X):
        rows = open_rows(X, y)
        return _risk_in_chunks(rows, _linear_model(B, b, losses.resolve(loss), ball, rows.d), ball)
    X, y = checked_pair(X, y)
    model = _linear_model(B, b, losses.resolve(loss), ball, X.shape[1])
    model.check_targets(numpy(y))
    problem = Problem(X, y, full(len(y), 1 / len(y), y), model.loss, ball)
    return robust_risk_of(problem, model.coef, model.intercept)


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

    def scores(self, chunk: Chunk) -> tuple[Array, Array]:
        """Return scores and labels or targets of a chunk; refuse other labels."""
        chunk.require_finite()
        y = np.asarray(chunk.targets(), dtype=float)
        self.check_targets(y)
        return model_scores(chunk.X, self.coef, self.intercept), y


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


@dataclass(frozen=True, eq=False)
class LossOfRows:
    """The job that adds up the loss; every ``step``-th score and target is kept.

    ``rows`` (K,) counts the labels of a softmax model.
    """

    model: LinearModel
    step: int

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        z, y = self.model.scores(chunk)
        some = chunk.index() % self.step == 0
        found: Sums = {"loss": float(self.model.loss.value(z, y).sum())}
        found |= {"z": [z[some]], "y": [y[some]]}
        K = self.model.loss.outputs
        found["rows"] = np.bincount(y.astype(int), minlength=K) if K > 1 else np.zeros(1)
        return found


@dataclass(frozen=True, eq=False)
class MovedRows:
    """The job that adds up, at a multiplier, sup_s l(z + s) - lam (s/w)^2 and the price spent."""

    model: LinearModel
    w: float
    lam: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        z, y = self.model.scores(chunk)
        best = self.model.loss.inner(z, y, self.w, self.lam).best
        return {
            "value": float(best.value.sum()),
            "spent": float(((best.shift / self.w) ** 2).sum()),
        }


def _risk_in_chunks(rows: Chunks, model: LinearModel, ball: Ball) -> float:
    """Return the worst-case risk of a model on rows in chunks: a pass, at order 2 some more."""
    loss = model.loss
    if not ball.cost.is_norm:
        raise ValueError(
            f"the worst-case risk of rows in chunks is that under a norm, got {ball.cost!r}: use a "
            "norm, or rows that fit into memory."
        )
    if np.isfinite(ball.label_cost):
        raise ValueError("rows in chunks take no price of labels: leave label_cost at inf.")
    if ball.order == 1:
        require_lipschitz(loss)
    [sums] = rows.total(LossOfRows(model, -(-rows.n // KEPT)))
    plain = sums["loss"] / rows.n
    if loss.outputs > 1:
        pair = steepest_pair(ball.cost, model.coef, sums["rows"] > 0)
        return float(plain + ball.delta * max(pair.norm, 0.0))
    w = float(ball.gain(ball.cost.dual_norm(model.coef)))
    if ball.order == 1:
        return float(plain + ball.delta * loss.lipschitz * w)
    if loss.pieces is not None and loss.pieces.rooted:
        return rooted(plain, w, ball.delta, loss.pieces.kappa).risk
    if w == 0 or ball.delta == 0:
        return float(plain)
    kept = np.concatenate(sums["z"]), np.concatenate(sums["y"])
    return _over_multipliers(rows, model, w, ball.delta, *kept)


def _over_multipliers(
    rows: Chunks, model: LinearModel, w: float, delta: float, z: Array, y: Array
) -> float:
    """Return the least lam delta + mean psi; each multiplier is a pass.

    The first one is the best for the kept scores z.
    """

    def tangent(lam: Array) -> Tangent:
        [found] = rows.total(MovedRows(model, w, float(lam[0])))
        value = lam * delta + found["value"] / rows.n
        return Tangent(lam, value, np.array([delta - found["spent"] / rows.n]))

    weights = np.full(len(z), 1 / len(z))
    start = best_multiplier(z, y, weights, model.loss, w, delta, rtol=PRECISION).lam
    growth = np.array([least_finite(model.loss, w)])
    return float(least(tangent, np.array([start]), growth, PRECISION, DOUBT).value[0])
