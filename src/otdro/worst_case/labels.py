"""Worst cases where labels may be changed at a price: the best of a few places of every row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design import Design
from ..duality import priced_risk
from ..problem import Problem
from .distribution import TOLERANCE, Moves, ScoredModel, ScoredRows, WorstCase
from .norms import moved
from .order_one import check_reach, steepest_sign
from .places import spend

Array = NDArray[Any]


def priced_worst_case(problem: Problem, coef: Array, intercept: float, reach: Any) -> WorstCase:
    """Return a worst case of a model: rows keep or change their label, and move or stay.

    At order 2 a row's places are its inner maximisers under both labels. At order 1 labels change
    where that gains more than a move does, and a little mass goes far for the rest of the budget;
    within a ``reach``, rows move by 0 or the whole of it.
    """
    ball = problem.ball
    z = Design(problem.X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef)) if coef.any() else 0.0
    worst = priced_risk(z, problem.y, problem.weights, problem.loss, w, ball)
    rows = ScoredRows(z, problem.y, problem.weights, problem.loss, w, ball.delta)
    model = ScoredModel(problem, coef, w, rows, worst)
    if reach is not None:
        return _spent(model, _both_signs(rows, w * check_reach(reach, ball.order)))
    if ball.order == 2 and w > 0 and ball.delta > 0:
        shifts = [
            problem.loss.inner(z, sign * problem.y, w, worst.multiplier).best.shift
            for sign in (1.0, -1.0)
        ]
        return _spent(model, shifts)
    return _far(model)


def _both_signs(rows: ScoredRows, length: float) -> list[Array]:
    """Return the better of the shifts +-length under each label."""
    found = []
    for sign in (1.0, -1.0):
        label = sign * rows.y
        up, down = (rows.loss.value(rows.z + s * length, label) for s in (1.0, -1.0))
        found.append(np.where(up >= down, length, -length))
    return found


def _spent(model: ScoredModel, shifts: list[Array]) -> WorstCase:
    """Return the best use of the budget over staying and moving, under both labels."""
    ball, rows, w = model.problem.ball, model.rows, model.w
    z, y = rows.z, rows.y
    zero = np.zeros_like(z)
    kept, changed = shifts
    shift = np.stack([zero, kept, zero, changed], axis=1)
    label = np.stack([y, y, -y, -y], axis=1)
    loss = rows.loss.value(z[:, None] + shift, label)
    price = np.abs(shift / w if w > 0 else shift) ** ball.order
    price = price + np.where(label != y[:, None], ball.label_cost, 0.0)
    row, place, mass = spend(loss, price, rows.weights, ball.delta)
    return _distribution(model, Moves(row, mass, shift[row, place], True, label[row, place]))


def _far(model: ScoredModel) -> WorstCase:
    """Return labels changed where that gains at least lam kappa, and the rest of delta far away."""
    ball, rows, worst = model.problem.ball, model.rows, model.worst
    z, y = rows.z, rows.y
    loss = np.stack([rows.loss.value(z, y), rows.loss.value(z, -y)], axis=1)
    worth = loss[:, 1] - loss[:, 0] >= worst.multiplier * ball.label_cost * (1 - TOLERANCE)
    loss[~worth, 1] = -np.inf
    price = np.tile([0.0, ball.label_cost], (len(y), 1))
    row, place, mass = spend(loss, price, rows.weights, ball.delta)
    label = np.where(place == 0, y[row], -y[row])
    rest = ball.delta - float(mass[place == 1].sum()) * ball.label_cost
    still = np.zeros(len(row))
    if model.w == 0 or rest <= TOLERANCE * ball.delta:
        return _distribution(model, Moves(row, mass, still, True, label))
    length = steepest_sign(z[row], label, rows.loss) * model.w * rest
    share = 1.0
    while True:
        moves = Moves(
            origin=np.concatenate([row, row]),
            mass=np.concatenate([(1 - share) * mass, share * mass]),
            shift=np.concatenate([still, length / share]),
            attained=False,
            labels=np.concatenate([label, label]),
        )
        found = _distribution(model, moves)
        if found.shortfall <= TOLERANCE * worst.risk or share < np.finfo(float).eps:
            return found
        share /= 4


def _distribution(model: ScoredModel, moves: Moves) -> WorstCase:
    """Return the atoms with mass; rows without weight keep one."""
    direction = np.asarray(model.problem.ball.cost.direction(model.coef), dtype=float)
    found = moved(model, moves.without_empty(len(model.rows.z)), direction)
    close = found.shortfall <= TOLERANCE * model.worst.risk
    return replace(found, attained=moves.attained and close)
