"""Worst cases where labels may be changed at a price: the best of a few places of every row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design import Design, as_dense
from ..duality import priced_risk
from ..problem import Problem
from .distribution import TOLERANCE, WorstCase
from .order_one import check_reach, steepest_sign
from .places import spend

Array = NDArray[Any]


def priced_worst_case(
    problem: Problem, coef: Array, intercept: float, reach: Any = None
) -> WorstCase:
    """Return a worst case of a model: rows keep or change their label, and move or stay.

    At order 2 a row's places are its inner maximisers under both labels. At order 1 labels change
    where that gains more than a move does, and a little mass goes far for the rest of the budget;
    within a ``reach``, rows move by 0 or the whole of it.
    """
    ball = problem.ball
    z = Design(problem.X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef)) if coef.any() else 0.0
    risk = priced_risk(z, problem.y, problem.weights, problem.loss, w, ball)
    if reach is not None:
        shifts = _both_signs(problem, z, w * check_reach(reach, ball.order))
        return _spent(problem, coef, z, w, shifts, risk.risk)
    if ball.order == 2 and w > 0 and ball.delta > 0:
        shifts = [
            problem.loss.inner(z, sign * problem.y, w, risk.multiplier).best.shift
            for sign in (1.0, -1.0)
        ]
        return _spent(problem, coef, z, w, shifts, risk.risk)
    return _far(problem, coef, z, w, risk.risk, risk.multiplier)


def _both_signs(problem: Problem, z: Array, length: float) -> list[Array]:
    """Return the better of the shifts +-length under each label."""
    found = []
    for sign in (1.0, -1.0):
        label = sign * problem.y
        up, down = (problem.loss.value(z + s * length, label) for s in (1.0, -1.0))
        found.append(np.where(up >= down, length, -length))
    return found


def _spent(
    problem: Problem, coef: Array, z: Array, w: float, shifts: list[Array], risk: float
) -> WorstCase:
    """Return the best use of the budget over staying and moving, under both labels."""
    ball, y = problem.ball, problem.y
    zero = np.zeros_like(z)
    kept, changed = shifts
    shift = np.stack([zero, kept, zero, changed], axis=1)
    label = np.stack([y, y, -y, -y], axis=1)
    loss = problem.loss.value(z[:, None] + shift, label)
    price = np.abs(shift / w if w > 0 else shift) ** ball.order
    price = price + np.where(label != y[:, None], ball.label_cost, 0.0)
    row, place, mass = spend(loss, price, problem.weights, ball.delta)
    return _distribution(
        problem, coef, z, w, row, mass, shift[row, place], label[row, place], risk, True
    )


def _far(problem: Problem, coef: Array, z: Array, w: float, risk: float, lam: float) -> WorstCase:
    """Return labels changed where that gains at least lam kappa, and the rest of delta far away."""
    ball, y = problem.ball, problem.y
    loss = np.stack([problem.loss.value(z, y), problem.loss.value(z, -y)], axis=1)
    worth = loss[:, 1] - loss[:, 0] >= lam * ball.label_cost * (1 - TOLERANCE)
    loss[~worth, 1] = -np.inf
    price = np.tile([0.0, ball.label_cost], (len(y), 1))
    row, place, mass = spend(loss, price, problem.weights, ball.delta)
    label = np.where(place == 0, y[row], -y[row])
    rest = ball.delta - float(mass[place == 1].sum()) * ball.label_cost
    still = np.zeros(len(row))
    found = _distribution(problem, coef, z, w, row, mass, still, label, risk, True)
    if w == 0 or rest <= TOLERANCE * ball.delta:
        return found
    sign = steepest_sign(z[row], label, problem.loss)
    share = 1.0
    while True:
        shift = np.concatenate([still, sign * w * rest / share])
        masses = np.concatenate([(1 - share) * mass, share * mass])
        both, labels = np.concatenate([row, row]), np.concatenate([label, label])
        found = _distribution(problem, coef, z, w, both, masses, shift, labels, risk, False)
        if found.shortfall <= TOLERANCE * risk or share < np.finfo(float).eps:
            return found
        share /= 4


def _distribution(
    problem: Problem,
    coef: Array,
    z: Array,
    w: float,
    row: Array,
    mass: Array,
    shift: Array,
    label: Array,
    risk: float,
    attained: bool,
) -> WorstCase:
    """Return the atoms with mass; rows without weight keep one."""
    ball = problem.ball
    keep = (mass > 0) | (problem.weights[row] == 0)
    row, mass, shift, label = row[keep], mass[keep], shift[keep], label[keep]
    t = shift / w if w > 0 else np.zeros_like(shift)
    price = np.abs(t) ** ball.order + np.where(label != problem.y[row], ball.label_cost, 0.0)
    direction = np.asarray(ball.cost.direction(coef), dtype=float)
    reached = float(mass @ problem.loss.value(z[row] + shift, label))
    short = max(0.0, risk - reached)
    return WorstCase(
        points=as_dense(problem.X)[row] + np.outer(t, direction),
        targets=label,
        weights=mass,
        origin=row,
        budget=float(mass @ price),
        risk=reached,
        attained=attained and short <= TOLERANCE * risk,
        shortfall=short,
    )
