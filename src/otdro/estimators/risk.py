"""The worst-case risk of any linear model, on rows in memory or in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..arrays import full, namespace, numpy
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


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Coefficients (d,) or (K, d) with their intercepts, and the loss of their scores."""

    coef: Array
    intercept: Any
    loss: Loss

    def scores(self, chunk: Chunk) -> tuple[Array, Array]:
        """Return scores and labels or targets of a chunk; refuse other labels."""
        chunk.require_finite()
        y = np.asarray(chunk.targets(), dtype=float)
        if self.loss.task == "classification":
            known = (-1, 1) if self.loss.outputs == 1 else tuple(range(self.loss.outputs))
            if not np.isin(y, known).all():
                words = "-1 or +1" if self.loss.outputs == 1 else f"0 to {known[-1]}"
                raise ValueError(f"labels must be {words} here, got {np.unique(y)[:5].tolist()}.")
        return model_scores(chunk.X, self.coef, self.intercept), y


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


def risk_in_chunks(X: Any, y: Any, coef: Any, intercept: Any, loss: Loss, ball: Ball) -> float:
    """Return the worst-case risk of a model on rows in chunks: a pass, at order 2 some more."""
    if not ball.cost.is_norm:
        raise ValueError(
            f"the worst-case risk of rows in chunks is that under a norm, got {ball.cost!r}: use a "
            "norm, or rows that fit into memory."
        )
    if np.isfinite(ball.label_cost):
        raise ValueError("rows in chunks take no price of labels: leave label_cost at inf.")
    rows = open_rows(X, y)
    model = _checked(rows, np.asarray(coef, dtype=float), intercept, loss, ball)
    [found] = rows.total(LossOfRows(model, -(-rows.n // KEPT)))
    plain = found["loss"] / rows.n
    if model.loss.outputs > 1:
        pair = steepest_pair(ball.cost, model.coef, found["rows"] > 0)
        return float(plain + ball.delta * max(pair.norm, 0.0))
    w = float(ball.gain(ball.cost.dual_norm(model.coef)))
    if ball.order == 1:
        return float(plain + ball.delta * loss.lipschitz * w)
    if loss.pieces is not None and loss.pieces.rooted:
        return rooted(plain, w, ball.delta, loss.pieces.kappa).risk
    if w == 0 or ball.delta == 0:
        return float(plain)
    kept = np.concatenate(found["z"]), np.concatenate(found["y"])
    return _over_multipliers(rows, model, w, ball.delta, *kept)


def _checked(rows: Chunks, coef: Array, intercept: Any, loss: Loss, ball: Ball) -> LinearModel:
    """Return the model; refuse coefficients of another shape and losses without a finite risk."""
    K = len(coef) if coef.ndim == 2 and len(coef) > 1 else 1
    if K > 1:
        several = loss if loss.outputs == K else loss.multinomial(K)
        if several is None or ball.order != 1:
            raise ValueError(
                f"coefficients of {K} classes are those of a softmax model, which needs the "
                f"logistic loss and order 1; got {loss!r} and order={ball.order}. Give one line of "
                "coefficients at a time."
            )
        model = LinearModel(coef, np.asarray(intercept, dtype=float).ravel(), several)
    else:
        model = LinearModel(coef.ravel(), float(np.ravel(intercept)[0]), loss)
    if model.coef.shape[-1] != rows.d:
        raise ValueError(f"coef has {model.coef.shape[-1]} entries but X has {rows.d} features.")
    if K > 1 and len(model.intercept) != K:
        raise ValueError(f"coef has {K} lines, but intercept has shape {model.intercept.shape}.")
    ball.cost.check(rows.d)
    if ball.order == 1:
        require_lipschitz(model.loss)
    return model


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
