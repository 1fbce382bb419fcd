"""The worst-case risk of any linear model on rows in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..chunks import Chunk, Chunks, Sums, open_rows
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
from ..problem import Ball

Array = NDArray[Any]

#: Rows whose scores are kept, from which the multiplier is known to about this share of itself.
KEPT, DOUBT = 20_000, 0.02
#: The precision of a least value over the multiplier, relative to it: each step is a pass.
PRECISION = 1e-12


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
