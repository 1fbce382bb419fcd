"""Worst cases of the softmax model: rows move along differences of two classes' coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import (
    as_float,
    as_index,
    beside,
    flatnonzero,
    namespace,
)
from ..design import as_dense, model_scores
from ..duality import pair_norms, pair_risk, present_classes, steepest_pair
from ..problem import Problem
from .distribution import TOLERANCE, WorstCase
from .labels import with_changed_labels
from .order_one import check_reach, most_gaining

Array = NDArray[Any]


def softmax_worst_case(problem: Problem, coef: Array, intercept: Array, reach: Any) -> WorstCase:
    """Return a worst case: a little mass far away, or the worst moves of at most ``reach``.

    The supremum is not attained: rows of the class with the steepest pair go far towards looking
    like the other class. Within a reach each row moves by 0 or the whole of it, along the
    difference to its own class that raises its loss most.
    """
    ball, weights = problem.ball, problem.weights
    labels = as_index(problem.y)
    z = model_scores(problem.X, coef, intercept)
    if np.isfinite(ball.label_cost):
        # a row gains most by the label of its least score
        gain, least = z[np.arange(len(z)), labels] - z.min(axis=1), z.argmin(axis=1).astype(float)
        dual = pair_risk(problem, coef, z)

        def moved_on(changed: Problem) -> WorstCase:
            return softmax_worst_case(changed, coef, intercept, reach)

        return with_changed_labels(problem, gain, least, dual, moved_on)
    plain = problem.loss.value(z, labels)
    pair = steepest_pair(ball.cost, coef, present_classes(problem))
    risk = float(weights @ plain) + ball.delta * pair.norm
    if reach is not None:
        reach = check_reach(reach, ball.order)
    if pair.norm == 0 or ball.delta == 0:
        return _moved(problem, coef, intercept, 0 * weights, labels, 1.0, risk)
    if reach is not None:
        mass, other = _within(problem, coef, z, plain, reach)
        return _moved(problem, coef, intercept, mass, other, reach, risk)
    own = labels == pair.own
    share = 1.0
    total = float((weights * own).sum())
    other = 0 * labels + pair.other
    while True:
        # a share of every row of the class, by delta over that mass: what is missing vanishes
        mass = namespace(weights).where(own, share * weights, 0.0)
        length = ball.delta / (share * total)
        found = _moved(problem, coef, intercept, mass, other, length, risk)
        if found.shortfall <= TOLERANCE * risk or share < np.finfo(float).eps:
            return found
        share /= 4


def softmax_risk(problem: Problem, coef: Array, intercept: Array) -> float:
    """Return the mean cross-entropy plus delta times the largest norm over pairs.

    Where labels change at a price, the worst case of that.
    """
    return pair_risk(problem, coef, model_scores(problem.X, coef, intercept)).risk


def directions(problem: Problem, coef: Array) -> Array:
    """Return the unit moves along B_k - B_y, shape (y, k, d); zero for k = y and equal classes."""
    difference = coef[None, :, :] - coef[:, None, :]
    moves = np.asarray(problem.ball.cost.direction(difference), dtype=float)
    return np.where((pair_norms(problem.ball.cost, coef) > 0)[:, :, None], moves, 0.0)


def _within(
    problem: Problem, coef: Array, z: Array, plain: Array, reach: float
) -> tuple[Array, Array]:
    """Return the mass of each row that moves by the reach, and towards which class."""
    labels = as_index(problem.y)
    xp = namespace(z)
    # scores of all classes change by the move times every B
    shift = beside(reach * (directions(problem, coef) @ coef.T), z)
    moved = z[:, None, :] + shift[labels]
    gains = problem.loss.value(moved, labels[:, None]) - plain[:, None]
    gain = xp.max(gains, axis=1)
    mass = most_gaining(gain, problem.weights, problem.ball.delta / reach)
    return mass, xp.argmax(gains, axis=1)


def _moved(
    problem: Problem,
    coef: Array,
    intercept: Array,
    mass: Array,
    other: Array,
    length: float,
    risk: float,
) -> WorstCase:
    """Return the rows with ``mass`` of each moved by ``length`` towards the class ``other``."""
    labels = as_index(problem.y)
    rest = problem.weights - mass
    goes = flatnonzero(mass > 0)
    stays = flatnonzero((rest > 0) | (mass == 0))
    X = as_dense(problem.X)
    xp = namespace(X)
    step = length * beside(directions(problem, coef), X)[labels[goes], other[goes]]
    origin = xp.concat([stays, goes])
    points = xp.concat([as_float(X[stays]), X[goes] + step])
    weights = xp.concat([rest[stays], mass[goes]])
    reached = float(
        weights @ problem.loss.value(model_scores(points, coef, intercept), labels[origin])
    )
    return WorstCase(
        points=points,
        targets=problem.y[origin],
        weights=weights,
        origin=origin,
        budget=length * float(mass[goes].sum()),
        risk=reached,
        attained=len(goes) == 0,
        shortfall=max(0.0, risk - reached),
    )
