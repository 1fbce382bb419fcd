r"""Moves at order 2: each row goes to its inner maximiser, rows with two share their mass.

The shares follow from the dual point: mean slope a = p a_1 + (1 - p) a_2 over the branches. Where
the inner problem is flat (a quadratic piece whose curvature the cost just cancels), a row may go
either way by any length, and its second moment is what is left of the budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_float, full, namespace, numbers
from ..duality.ties import shares_of
from ..losses import PiecewiseQuadratic
from .distribution import TOLERANCE, Moves, ScoredModel, branches

Array = NDArray[Any]

#: Branches whose values differ by less, relative to 1 + the value, are equal.
TIED = 1e-7


def order_two_moves(model: ScoredModel, dual: Array | None) -> Moves:
    """Return the moves to the inner maximisers at the multiplier of the worst case."""
    z, y, weights, loss = model.z, model.problem.y, model.problem.weights, model.problem.loss
    w, delta, lam = model.gain, model.problem.ball.delta, model.worst.multiplier
    pieces = loss.pieces
    if pieces is not None and pieces.rooted:
        if not (weights * loss.value(z, y)).any():
            return _from_zero_risk(model, pieces, dual)
        # every residual grows by the factor 1 + sqrt(delta) w/rms
        grown = Moves(numbers(len(y), y), weights, loss.derivative(z, y), attained=True)
        return grown.spending(w, delta)
    inner = loss.inner(z, y, w, lam)
    if len(inner.value) == 1:
        if pieces is not None and dual is not None:
            return _with_flat_rows(model, pieces, dual)
        best = Moves(numbers(len(y), y), weights, inner.shift[0], attained=True)
        return best.spending(w, delta)
    xp = namespace(z)
    two = xp.all(xp.isfinite(inner.value), axis=0)
    share = as_float(xp.argmax(inner.value, axis=0) == 0)
    if dual is None:
        share = _spending_shares(inner.value, inner.shift / w, weights, delta)
    else:
        moved = z + inner.shift
        slope = loss.derivative(moved, xp.broadcast_to(y, moved.shape))
        share = xp.where(two & (slope[0] != slope[1]), shares_of(dual, slope), share)
    found = branches([weights * share, weights * (1 - share)], list(inner.shift), attained=True)
    return found.spending(w, delta)


def _spending_shares(value: Array, t: Array, weights: Array, delta: float) -> Array:
    """Return shares of first branches: the better one's, ties such that the budget is spent."""
    xp, best = namespace(value), as_float(value[0] >= value[1])
    higher = xp.maximum(value[0], value[1])
    finite = xp.all(xp.isfinite(value), axis=0)
    apart = xp.abs(xp.where(finite, value[0], 0.0) - xp.where(finite, value[1], 0.0))
    cost = t**2
    tied = finite & (apart <= TIED * (1 + xp.abs(higher))) & (cost[0] != cost[1])
    fixed = float(weights @ xp.where(tied, 0.0, best * cost[0] + (1 - best) * cost[1]))
    cheap, expensive = xp.minimum(cost[0], cost[1]), xp.maximum(cost[0], cost[1])
    least, most = (float((weights * part)[tied].sum()) for part in (cheap, expensive))
    part = min(max((delta - fixed - least) / (most - least), 0.0), 1.0) if most > least else 0.0
    first = as_float(cost[0] > cost[1])
    return xp.where(tied, first * part + (1 - first) * (1 - part), best)


def _with_flat_rows(model: ScoredModel, pieces: PiecewiseQuadratic, dual: Array) -> Moves:
    """Return the moves where rows without a residual may be split, for what the budget leaves.

    Such a row keeps its mean slope and sends equal parts, in slope, to both sides.
    """
    z, y, weights = model.z, model.problem.y, model.problem.weights
    w, delta, lam = model.gain, model.problem.ball.delta, model.worst.multiplier
    nu = w**2 / (2 * lam)
    sign = -pieces.orientation(y)
    shift = pieces.inner(z, y, w, lam).shift[0]
    lo, hi = pieces.slopes
    alpha = sign * dual
    xp, near = namespace(z), pieces.residual(z, y)
    flat = (xp.abs(near) <= TIED * (1 + xp.abs(y))) & (alpha > lo) & (alpha < hi)
    base = xp.where(flat, nu * alpha, sign * shift)
    spent = float(weights @ (base / w) ** 2)
    # the most that splitting all the way to the ends adds to E alpha^2
    room = xp.where(flat, (hi - alpha) * (alpha - lo), 0.0)
    most = float(weights @ room) * (nu / w) ** 2 if flat.any() else 0.0
    if not (most > 0 and spent < delta):
        moves = Moves(numbers(len(y), y), weights, shift, attained=True)
        return moves.spending(w, delta)
    part = min(1.0, (delta - spent) / most) if np.isfinite(most) else 0.0
    spread = as_float(flat) * float(np.sqrt(part))
    up = xp.where(flat, alpha + spread * (hi - alpha), alpha)
    down = xp.where(flat, alpha - spread * (alpha - lo), alpha)
    share = xp.where(flat & (up > down), (alpha - down) / xp.where(up > down, up - down, 1.0), 1.0)
    shifts = [xp.where(flat, sign * nu * up, shift), xp.where(flat, sign * nu * down, shift)]
    found = branches([weights * share, weights * (1 - share)], shifts, attained=True)
    return found.spending(w, delta)


def _from_zero_risk(model: ScoredModel, pieces: PiecewiseQuadratic, dual: Array | None) -> Moves:
    """Return the worst case of a quadratic loss without risk, from nowhere steep."""
    z, y, weights = model.z, model.problem.y, model.problem.weights
    w, delta = model.gain, model.problem.ball.delta
    if pieces.quadratic:
        return _either_way(weights, pieces.kappa, w, delta, dual)
    # flat beside a quadratic side: a mass eps of the nearest row at distance sqrt(delta/eps) has
    # the risk (sqrt(delta) w - slack sqrt(eps))^2/(2 kappa)
    n, (lo, _) = len(y), pieces.slopes
    side = 1.0 if lo == 0 else -1.0
    slack = namespace(z).where(weights > 0, -side * pieces.residual(z, y), np.inf)
    i = int(slack.argmin())
    eps = float(weights[i])
    if slack[i] > 0:
        eps = min(eps, (TOLERANCE * np.sqrt(delta) * w / (2 * slack[i])) ** 2)
    away = -side * float(pieces.orientation(y)[i]) * w * np.sqrt(delta / eps)
    moved = full(n, 0.0, z)
    moved[i] = eps
    shifts = [full(n, 0.0, z), full(n, away, z)]
    return branches([weights - moved, moved], shifts, attained=bool(slack[i] <= 0))


def _either_way(weights: Array, kappa: float, w: float, delta: float, dual: Array | None) -> Moves:
    """Return each row moved by t either way, E t^2 = delta, slopes +-w t/kappa of mean ``dual``."""
    xp, none = namespace(weights), 0.0 * weights
    least = none if dual is None else (dual * kappa / w) ** 2
    rest = delta - float(weights @ least)
    if rest < 0:
        least, rest = none, delta
    t = xp.sqrt(least + rest)
    slope = none if dual is None or not least.any() else dual
    share = xp.clip((1 + slope * kappa / xp.where(t > 0, w * t, 1.0)) / 2, 0.0, 1.0)
    return branches([weights * share, weights * (1 - share)], [w * t, -w * t], attained=True)
