"""The worst-case loss of a linear model over balls of growing radius."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..duality import pair_norms, priced_pair_risk, priced_risk, worst_risk
from ..losses import Softmax
from ..problem import Ball
from .linear import LinearModel

Array = NDArray[Any]


def robust_risks(
    model: LinearModel,
    scores: Array,
    target: Array,
    weights: Array,
    balls: list[Ball],
) -> Array:
    """Return the worst-case loss over each ball, inf where there is no finite one.

    Of several classes it is that of the softmax loss, or the mean of the one-vs-rest losses, each
    with an adversary of its own. ``target`` is the number of the class, or the regression target.
    """
    if model.joint:
        return np.array([_softmax(scores, target, weights, model.coef, ball) for ball in balls])
    problems = _problems(model, scores, target)
    found = [
        [_risk(model, z, y, weights, float(ball.cost.dual_norm(beta)), ball) for ball in balls]
        for z, y, beta in problems
    ]
    return np.mean(found, axis=0)


def _problems(model: LinearModel, scores: Array, target: Array) -> list[tuple[Array, Array, Array]]:
    """Return (scores, targets, coefficients) of each problem with one score."""
    if model.classes is None:
        return [(scores[:, 0], target, model.coef[0])]
    if len(model.classes) == 2:
        beta = model.coef[1] - model.coef[0]
        return [(scores[:, 1] - scores[:, 0], np.where(target == 1, 1.0, -1.0), beta)]
    return [
        (scores[:, k], np.where(target == k, 1.0, -1.0), model.coef[k])
        for k in range(len(model.classes))
    ]


def _risk(model: LinearModel, z: Array, y: Array, weights: Array, w: float, ball: Ball) -> float:
    endless = ball.order == 1 and not np.isfinite(model.loss.lipschitz)
    if endless and ball.delta > 0 and ball.gain(w) > 0:
        return np.inf
    if endless or ball.delta == 0:
        return float(weights @ model.loss.value(z, y))
    if np.isfinite(ball.label_cost):
        return priced_risk(z, y, weights, model.loss, w, ball).risk
    return worst_risk(z, y, weights, model.loss, w, ball).risk


def _softmax(
    scores: Array,
    own: Array,
    weights: Array,
    coef: Array,
    ball: Ball,
) -> float:
    """Return mean CE + delta max ||B_k - B_y||_* over labels y that occur, or may be changed to.

    At order 2 a mean squared move of delta is a mean move of at most sqrt(delta): the same bound
    with that, which is not attained.
    """
    norms = pair_norms(ball.cost, coef)
    if np.isfinite(ball.label_cost):
        top = float(norms.max())
        return priced_pair_risk(scores, own, weights, top, ball.delta, ball.label_cost).risk
    plain = float(weights @ Softmax(len(coef)).value(scores, own))
    slope = float(norms[np.unique(own[weights > 0])].max())
    return plain + slope * (ball.delta if ball.order == 1 else np.sqrt(ball.delta))
