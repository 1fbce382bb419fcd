"""Worst cases under norm costs: shifts of scores, turned into moves of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_float, beside, full, namespace, numbers, numpy
from ..design import Design, as_dense, mean
from ..duality import worst_risk
from ..problem import Problem
from ..solvers.base import constant_risk
from .distribution import Moves, ScoredModel, WorstCase, still
from .order_one import AT_A_KINK, STEEP, check_reach, moves_within, order_one_moves, steep_shares
from .order_two import order_two_moves

Array = NDArray[Any]

#: A direction that has the dual norm to this serves as one of the adversary.
ALIGNED = 1e-6
#: What an equilibrium may fall short by, relative to the robust risk; and where the gap is below
#: ``TIGHT`` times the constant model's risk, relative to the larger of the robust risk and a
#: hundredth of that.
EQUILIBRIUM, EXACT = 1e-5, 1e-8
TIGHT, SMALL_RISK = 2e-9, 1e-2
#: How far off its kink a row may be, in units of the gap relative to the constant model's risk,
#: and at most, relative to the target.
OFF_A_KINK, FARTHEST_OFF = 1e3, 1e-2


def norm_worst_case(
    problem: Problem,
    coef: Array,
    intercept: float,
    dual: Array | None,
    gap: float,
    reach: Any,
) -> WorstCase:
    """Return the worst case of a model; with the ``dual`` point of a fit, its equilibrium.

    A dual point too rough for one is not used: the distribution is then worst for the model.
    """
    ball = problem.ball
    z = Design(problem.X).scores(coef) + intercept
    w = float(ball.cost.dual_norm(coef))
    gain = float(ball.gain(w))
    if gain == 0 and ball.delta > 0 and dual is not None:
        return _constant(problem, z, dual)
    worst = worst_risk(z, problem.y, problem.weights, problem.loss, w, ball)
    model = ScoredModel(problem, coef, z, w, gain, worst)
    if dual is not None and reach is None:
        moves = _moves(model, dual, None, _kink(problem, gap))
        found = moved(model, moves, _direction(problem, coef, w, dual))
        if found.shortfall <= _allowed(problem, worst.risk, gap):
            return found
    found = moved(model, _moves(model, None, reach), ball.cost.direction(coef))
    if reach is None:
        return found
    return replace(found, attained=found.shortfall <= EXACT * worst.risk)


def default_reach(problem: Problem) -> float | None:
    """Return the largest distance of a row from the mean, in the cost; None if that is zero."""
    on, cost = problem.weights > 0, problem.ball.cost
    center = mean(problem.X, problem.weights)
    if cost.euclidean:
        square = Design(problem.X, cost.factor(), center).squared_norms()[on]
        far = float(square.max()) ** 0.5
    else:
        rows = numpy(as_dense(problem.X))[numpy(on)]
        far = float(cost.norm(rows - numpy(center)).max())
    return far if far > 0 else None


def _allowed(problem: Problem, risk: float, gap: float) -> float:
    """Return what an equilibrium may fall short by, for a fit of this gap."""
    constant = constant_risk(problem)[1]
    if gap > TIGHT * constant:
        return EQUILIBRIUM * risk
    return EXACT * max(risk, SMALL_RISK * constant)


def _kink(problem: Problem, gap: float) -> float:
    """Return how far off a kink the residuals of rows on it may be, in a fit of this gap."""
    share = gap / max(constant_risk(problem)[1], np.finfo(float).tiny)
    return min(max(AT_A_KINK, OFF_A_KINK * share), FARTHEST_OFF)


def _moves(model: ScoredModel, dual: Array | None, reach: Any, kink: float = AT_A_KINK) -> Moves:
    """Return the moves of the scores at the order of the ball."""
    ball = model.problem.ball
    if model.gain == 0 or ball.delta == 0:
        return still(model.problem.weights)
    if reach is not None:
        return moves_within(model, check_reach(reach, ball.order))
    if ball.order == 1:
        return order_one_moves(model, dual, kink)
    return order_two_moves(model, dual)


def moved(model: ScoredModel, moves: Moves, direction: Array) -> WorstCase:
    """Return the points: a shift s of the score is a move of |s|/w along the direction.

    Where targets may move, a part of the shift is theirs.
    """
    problem, w, origin = model.problem, model.w, moves.origin
    ball = problem.ball
    own, targets = _parts(problem, w, moves.shift)
    t = own / w if w > 0 else 0.0 * moves.shift
    y = (problem.y[origin] if moves.labels is None else moves.labels) - targets
    gain = float(model.coef @ direction) if w > 0 else 0.0
    reached = float(moves.mass @ problem.loss.value(model.z[origin] + t * gain, y))
    spent = abs(t) ** ball.order
    if targets.any():
        spent = spent + ball.target_cost * abs(targets) ** ball.order
    if moves.labels is not None:
        spent = spent + np.where(y != problem.y[origin], ball.label_cost, 0.0)
    return WorstCase(
        points=as_dense(problem.X)[origin] + t[:, None] * beside(direction, t),
        targets=y,
        weights=moves.mass,
        origin=origin,
        budget=float(moves.mass @ spent),
        risk=reached,
        attained=moves.attained,
        shortfall=max(0.0, model.worst.risk - reached),
    )


def _parts(problem: Problem, w: float, shift: Array) -> tuple[Array, Array]:
    """Return the shares of a shift of the residual that rows and targets move by.

    At least cost: in the ratio w^2 to 1/kappa at order 2, all by the cheaper one at order 1.
    """
    ball = problem.ball
    if not np.isfinite(ball.target_cost):
        return shift, 0.0 * shift
    if ball.order == 1:
        share = 1.0 if w * ball.target_cost >= 1 else 0.0
    else:
        share = w**2 / (w**2 + 1 / ball.target_cost)
    return share * shift, (1 - share) * shift


def _direction(problem: Problem, coef: Array, w: float, dual: Array | None) -> Array:
    """Return the direction of the moves: that of the dual point, -E[a x] over its norm.

    The cost's own maximiser serves where that is the only one, or without a dual point.
    """
    cost = problem.ball.cost
    own = np.asarray(cost.direction(coef), dtype=float)
    if cost.euclidean or dual is None or w == 0:
        return own
    pull = Design(problem.X).adjoint(problem.weights * dual)
    size = float(cost.norm(pull))
    if size == 0:
        return own
    return -pull / size if -float(coef @ pull) >= (1 - ALIGNED) * w * size else own


def _constant(problem: Problem, z: Array, dual: Array) -> WorstCase:
    """Return the distribution whose plain fit is beta = 0, if the ball has one.

    Rows of slope a move against E[a x] =: g until E[a x] = 0: at order 2 all in proportion to a,
    for ||g||^2/E[a^2]; at order 1 those of the largest slope, for ||g||/max |a|.
    """
    ball, weights = problem.ball, problem.weights
    g = Design(problem.X).adjoint(weights * dual)
    size = float(ball.cost.norm(g))
    if ball.order == 2:
        square = float(weights @ dual**2)
        length = -dual / square if square > 0 else 0.0 * dual
        masses, origin, moves = weights, numbers(len(dual), dual), length
    else:
        origin, masses, moves = _steepest_rows(problem, z, dual)
    budget = float(masses @ abs(moves * size) ** ball.order)
    exists = size == 0 or budget <= ball.delta * (1 + STEEP)
    if size == 0 or not exists:
        origin, masses, moves = numbers(len(dual), dual), weights, 0.0 * dual
    rows, y = as_dense(problem.X), problem.y[origin]
    risk = float(masses @ problem.loss.value(z[origin], y))
    return WorstCase(
        points=rows[origin] + moves[:, None] * beside(g, moves),
        targets=y,
        weights=masses,
        origin=origin,
        budget=min(budget, ball.delta) if exists and size > 0 else 0.0,
        risk=risk,
        attained=bool(exists),
        shortfall=0.0,
    )


def _steepest_rows(problem: Problem, z: Array, dual: Array) -> tuple[Array, Array, Array]:
    """Return atoms of the steepest slopes: origin, mass, and the move in multiples of g."""
    weights, xp, n = problem.weights, namespace(dual), len(dual)
    up, down = steep_shares(z, problem.y, problem.loss, dual)
    if float(weights @ (up + down)) > STEEP:
        top = problem.loss.lipschitz
    else:
        top = float(abs(dual[weights > 0]).max())
        up, down = (as_float(sign * dual >= top * (1 - STEEP)) for sign in (1.0, -1.0))
    mass = float(weights @ (up + down))
    length = 1 / (top * mass) if top * mass > 0 else 0.0
    origin = xp.concat([numbers(n, dual)] * 3)
    masses = xp.concat([weights * up, weights * down, weights * (1 - up - down)])
    moves = xp.concat([full(n, -length, dual), full(n, length, dual), full(n, 0.0, dual)])
    found = Moves(origin, masses, moves, True).without_empty(n)
    return found.origin, found.mass, found.shift
