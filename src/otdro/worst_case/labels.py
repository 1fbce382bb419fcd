"""Worst cases where labels may be changed at a price: the best of a few places of every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design import Design
from ..duality import Dual, priced_risk
from ..problem import Problem
from .distribution import TOLERANCE, Moves, ScoredModel, WorstCase
from .norms import moved, norm_worst_case
from .order_one import check_reach, most_gaining
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
    model = ScoredModel(problem, coef, z, w, w, worst)
    if reach is not None:
        return _spent(model, _both_signs(model, w * check_reach(reach, ball.order)))
    if ball.order == 2 and w > 0 and ball.delta > 0:
        shifts = [
            problem.loss.inner(z, sign * problem.y, w, worst.multiplier).best.shift
            for sign in (1.0, -1.0)
        ]
        return _spent(model, shifts)
    gain = problem.loss.value(z, -problem.y) - problem.loss.value(z, problem.y)

    def moved_on(changed: Problem) -> WorstCase:
        return norm_worst_case(changed, coef, intercept, None, np.inf, None)

    return with_changed_labels(problem, gain, -problem.y, worst, moved_on)


def _both_signs(model: ScoredModel, length: float) -> list[Array]:
    """Return the better of the shifts +-length under each label."""
    found = []
    for sign in (1.0, -1.0):
        label = sign * model.problem.y
        up, down = (model.problem.loss.value(model.z + s * length, label) for s in (1.0, -1.0))
        found.append(np.where(up >= down, length, -length))
    return found


def _spent(model: ScoredModel, shifts: list[Array]) -> WorstCase:
    """Return the best use of the budget over staying and moving, under both labels."""
    problem, ball, w = model.problem, model.problem.ball, model.w
    z, y = model.z, problem.y
    zero = np.zeros_like(z)
    kept, changed = shifts
    shift = np.stack([zero, kept, zero, changed], axis=1)
    label = np.stack([y, y, -y, -y], axis=1)
    loss = problem.loss.value(z[:, None] + shift, label)
    price = np.abs(shift / w if w > 0 else shift) ** ball.order
    price = price + np.where(label != y[:, None], ball.label_cost, 0.0)
    row, place, mass = spend(loss, price, problem.weights, ball.delta)
    return _distribution(model, Moves(row, mass, shift[row, place], True, label[row, place]))


def with_changed_labels(
    problem: Problem,
    gain: Array,
    other: Array,
    worst: Dual,
    moved_on: Callable[[Problem], WorstCase],
) -> WorstCase:
    """Return labels changed to ``other`` where that gains most, and what is left of delta on moves.

    A row changes where it gains more than lam kappa, and of rows that gain just as much what the
    budget allows. ``moved_on`` is the worst case of the changed rows, whose labels stay.
    """
    ball, weights = problem.ball, problem.weights
    mass = most_gaining(gain, weights, ball.delta / ball.label_cost)
    mass = np.where(gain >= worst.multiplier * ball.label_cost * (1 - TOLERANCE), mass, 0.0)
    goes = np.flatnonzero(mass > 0)
    stays = np.flatnonzero((mass < weights) | (mass == 0))
    origin = np.concatenate([stays, goes])
    spent = float(mass.sum()) * ball.label_cost
    changed = replace(
        problem,
        X=problem.X[origin],
        y=np.concatenate([problem.y[stays], other[goes]]),
        weights=np.concatenate([(weights - mass)[stays], mass[goes]]),
        ball=replace(ball, delta=max(ball.delta - spent, 0.0), label_cost=np.inf),
    )
    found = moved_on(changed)
    short = max(0.0, worst.risk - found.risk)
    return replace(
        found,
        origin=origin[found.origin],
        budget=found.budget + spent,
        attained=found.attained and short <= TOLERANCE * worst.risk,
        shortfall=short,
    )


def _distribution(model: ScoredModel, moves: Moves) -> WorstCase:
    """Return the atoms with mass; rows without weight keep one."""
    direction = np.asarray(model.problem.ball.cost.direction(model.coef), dtype=float)
    found = moved(model, moves.without_empty(len(model.z)), direction)
    close = found.shortfall <= TOLERANCE * model.worst.risk
    return replace(found, attained=moves.attained and close)
