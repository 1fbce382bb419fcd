r"""Moves at order 1: the budget is spent where the slope is the Lipschitz constant.

There a move of the score by s gains exactly Lip |s|. The dual point says which part of a row on a
kink has that slope: slope a = p high + (1 - p) low of the ends of its range moves p up and 1 - p
down. A loss that never reaches its Lipschitz constant has no worst case: mass goes far.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_float, full, namespace
from ..losses import Loss
from .distribution import TOLERANCE, Moves, ScoredModel, branches

Array = NDArray[Any]

#: A slope within this of the Lipschitz constant, relative to it, is that constant.
STEEP = 1e-9
#: Residuals this small, relative to the target, sit on a kink.
AT_A_KINK = 1e-6
#: Less mass than this is none.
NO_MASS = 1e-9


def order_one_moves(model: ScoredModel, dual: Array | None, kink: float) -> Moves:
    """Return the moves that spend delta at the largest slope, or those of a mass that goes far.

    Residuals of at most ``kink``, relative to the target, sit on a kink.
    """
    problem, weights = model.problem, model.problem.weights
    up, down = steep_shares(model.z, problem.y, problem.loss, dual, kink)
    mass = float(weights @ (up + down))
    if mass <= NO_MASS:
        return _far(model)
    shift = full(len(weights), model.gain * problem.ball.delta / mass, weights)
    masses = [weights * up, weights * down, weights * (1 - up - down)]
    return branches(masses, [shift, -shift, 0 * shift], attained=True)


def steep_shares(
    z: Array, y: Array, loss: Loss, dual: Array | None, kink: float = AT_A_KINK
) -> tuple[Array, Array]:
    """Return the shares of each row whose slope is +Lip, for ever upwards, and -Lip, downwards."""
    low, high = loss.slope_range(y)
    steep_up = high >= loss.lipschitz * (1 - STEEP)
    steep_down = -low >= loss.lipschitz * (1 - STEEP)
    pieces = loss.pieces
    if pieces is None:
        # a smooth loss tends to its slopes and never has them
        return full(len(y), 0.0, y), full(len(y), 0.0, y)
    slope = loss.derivative(z, y)
    room = STEEP * loss.lipschitz
    xp, up, down = namespace(z), as_float(slope >= high - room), as_float(slope <= low + room)
    if pieces.kappa == 0 and dual is not None:
        kinked = xp.abs(pieces.residual(z, y)) <= kink * xp.maximum(xp.abs(y), 1.0)
        share = xp.clip((dual - low) / (high - low), 0.0, 1.0)
        up, down = xp.where(kinked, share, up), xp.where(kinked, 1 - share, down)
    return steep_up * up, steep_down * down


def _far(model: ScoredModel) -> Moves:
    """Return a small share of every row moved far: eps by delta/eps falls short by O(eps)."""
    z, y, weights, loss = model.z, model.problem.y, model.problem.weights, model.problem.loss
    budget = model.gain * model.problem.ball.delta
    length = steepest_sign(z, y, loss) * budget
    stays = loss.value(z, y)
    risk = float(weights @ stays) + loss.lipschitz * budget
    eps = 0.5
    while eps > np.finfo(float).eps:
        far = (1 - eps) * stays + eps * loss.value(z + length / eps, y)
        if risk - weights @ far <= TOLERANCE * risk:
            break
        eps /= 4
    shifts = [0.0 * length, length / eps]
    return branches([(1 - eps) * weights, eps * weights], shifts, attained=False)


def steepest_sign(z: Array, y: Array, loss: Loss) -> Array:
    """Return the sign of the score's move along which the loss is, in the end, steepest."""
    low, high = loss.slope_range(y)
    xp, even = namespace(z), 2 * as_float(loss.derivative(z, y) >= 0) - 1
    return xp.where(high > -low, 1.0, xp.where(high < -low, -1.0, even))


def moves_within(model: ScoredModel, reach: float) -> Moves:
    """Return the worst moves of at most ``reach`` in the cost's distance.

    A convex loss is moved by 0 or by the whole reach: rows in the order of their gain
    g = max over both signs of (l(z +- R w) - l(z))/R, until the budget is spent.
    """
    z, y, weights, loss = model.z, model.problem.y, model.problem.weights, model.problem.loss
    shift = reach * model.gain
    stays = loss.value(z, y)
    up, down = (loss.value(z + sign * shift, y) - stays for sign in (1.0, -1.0))
    gain = namespace(stays).maximum(up, down)
    sign = 2 * as_float(up >= down) - 1
    moved = most_gaining(gain, weights, model.problem.ball.delta / reach)
    return branches([moved, weights - moved], [sign * shift, 0.0 * sign], attained=True)


def most_gaining(gain: Array, weights: Array, room: float) -> Array:
    """Return the mass of each row that moves: in the order of their gain, ``room`` in all.

    A row that gains nothing stays.
    """
    xp = namespace(gain)
    order = xp.argsort(-gain, stable=True)
    before = weights[order].cumsum(0) - weights[order]
    moved = 0.0 * weights
    moved[order] = xp.minimum(xp.maximum(room - before, 0.0), weights[order])
    return xp.where(gain > 0, moved, 0.0)


def check_reach(reach: Any, order: int) -> float:
    """Return a reach > 0; refuse it at order 2, where moves are bounded by themselves."""
    if order != 1:
        raise ValueError(f"reach is for order 1; at order={order} far moves are expensive anyway.")
    if not (isinstance(reach, Real) and 0 < float(reach) < np.inf):
        raise ValueError(f"reach must be a number > 0, got reach={reach!r}.")
    return float(reach)
