r"""The certificates of a linear model: exact worst cases over a transport ball, in closed form.

Scores :math:`s_k = x'B_k + b_k`, own class y, cost c = distance^p with a dual norm. The nearest
point at which a row is wrong is

.. math:: t_i = \min_{k \ne y} \frac{\max(s_y - s_k, 0)}{\|B_y - B_k\|_*}, \qquad
          x_i' = x_i - t_i\, v(B_y - B_k),

with v(w) the unit-norm maximiser of <w, v>. For regression a row is wrong where the prediction is
tau or more off: :math:`t_i = \max(\tau - |e_i|, 0)/\|\beta\|_*`. The boundary counts as wrong: the
worst case is a limit.

The adversary pays ``price_i`` per mass to make row i wrong, and the largest wrong mass within the
budget delta is a fractional knapsack,

.. math:: \max_{0 \le q_i \le \pi_i} \sum_i q_i
          \quad\text{s.t.}\quad \sum_i q_i\,price_i \le \delta,

solved by taking rows in the order of their prices. It is concave and piecewise linear in delta, so
that the whole curve is one sort and two cumulative sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..estimators.columns import column_parts
from ..losses import Softmax
from ..problem import Ball, Problem
from ..worst_case import risk_of_scores
from .linear import LinearModel

Array = NDArray[Any]

#: Masses that differ by this share of the total are equal: the rounding of a sum.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest wrong point of each row: its ``distance``, and which boundary it lies on.

    ``towards`` (n,) is the number of the class that wins there; for regression +1 where the
    prediction leaves above, -1 below.
    """

    distance: Array
    towards: Array


def nearest_class(scores: Array, own: Array, norms: Array) -> Nearest:
    """Return the nearest point of each row at which another class wins.

    ``norms`` (K, K) holds the dual norms of the differences of coefficients.
    """
    n, K = scores.shape
    mine = scores[np.arange(n), own]
    distance = np.full(n, np.inf)
    towards = (own + 1) % K
    for k in range(K):
        margin = mine - scores[:, k]
        # the first of equal scores wins, as in predict
        beaten = (margin < 0) | ((margin == 0) & (k < own))
        reach = _ratio(margin, norms[own, k], beaten)
        closer = (reach < distance) & (own != k)
        distance[closer] = reach[closer]
        towards[closer] = k
    return Nearest(distance, towards)


def nearest_error(residual: Array, tau: float, w: float) -> Nearest:
    """Return the nearest point at which the prediction is tau off; ``residual`` is y - score."""
    margin = tau - np.abs(residual)
    return Nearest(_ratio(margin, np.asarray(w), margin <= 0), np.where(residual <= 0, 1, -1))


def _ratio(margin: Array, w: Array, beaten: Array) -> Array:
    """Return max(margin, 0)/w; where w = 0 nothing can move: 0 for what is beaten, else inf."""
    immovable = np.where(beaten, 0.0, np.inf)
    w = np.broadcast_to(w, margin.shape)
    return np.divide(np.maximum(margin, 0.0), w, out=immovable, where=w > 0)


def normals(model: LinearModel, own: Array, nearest: Nearest) -> tuple[Array, Array]:
    """Return the distinct vectors w whose score x'w falls on the way to the boundary, and an index.

    They are B_y - B_k for the pairs (y, k) that occur, or -+beta where a prediction leaves above
    or below; the index (n,) is the number of its vector for each row.
    """
    if model.classes is None:
        return np.vstack([-model.coef[0], model.coef[0]]), (nearest.towards < 0).astype(int)
    K = len(model.classes)
    pairs, index = np.unique(own * K + nearest.towards, return_inverse=True)
    return model.coef[pairs // K] - model.coef[pairs % K], index


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """The corners of the curve: with ``budget`` spent, the mass ``wrong`` is wrong, of ``total``.

    Both arrays rise; the first corner holds the rows that any move makes wrong, at no price.
    ``at_rest`` is the mass that is wrong where nothing moves: rows on the boundary may be right.
    """

    budget: Array
    wrong: Array
    total: float
    at_rest: float

    def accuracy(self, delta: Any) -> Any:
        """Return the least accuracy within the budget; a number or an array, as delta is."""
        moved = np.interp(delta, self.budget, self.wrong)
        wrong = np.where(np.asarray(delta) > 0, moved, self.at_rest)
        least = np.clip(1.0 - wrong / self.total, 0.0, 1.0)
        return least if np.ndim(least) else float(least)

    def breaking_point(self, level: Any) -> Any:
        """Return the least budget at which accuracy falls to ``level``; inf if it never does."""
        target = (1.0 - np.asarray(level, dtype=float)) * self.total
        reached = target <= self.wrong[-1] + ROUNDING * self.total
        budget = np.where(reached, np.interp(target, self.wrong, self.budget), np.inf)
        return budget if np.ndim(level) else float(budget)


def accuracy_curve(price: Array, weights: Array, right: Array) -> AccuracyCurve:
    """Return the curve of rows with these prices (inf: never wrong) and masses.

    ``right`` says which rows are right where they are.
    """
    order = np.argsort(price)
    sorted_price, mass = price[order], weights[order]
    free = int(np.searchsorted(sorted_price, 0.0, side="right"))
    stop = int(np.searchsorted(sorted_price, np.inf, side="left"))
    spent = np.cumsum(sorted_price[free:stop] * mass[free:stop])
    wrong = float(mass[:free].sum()) + np.append(0.0, np.cumsum(mass[free:stop]))
    at_rest = float(weights[~right].sum())
    return AccuracyCurve(np.append(0.0, spent), wrong, float(weights.sum()), at_rest)


def budgets(price: Array, weights: Array) -> tuple[Array, Array]:
    """Return the budget that is spent before each row is moved, and what moving all of it costs.

    Rows are moved in the order of their prices; one that cannot be moved costs inf.
    """
    movable = np.isfinite(price)
    cost = np.where(movable, np.where(movable, price, 0.0) * weights, np.inf)
    order = np.argsort(price, kind="stable")
    before = np.empty(len(price))
    before[order] = np.append(0.0, np.cumsum(cost[order])[:-1])
    return before, cost


def moved_share(price: Array, weights: Array, delta: float) -> Array:
    """Return the part of each row that the adversary of budget delta makes wrong."""
    before, cost = budgets(price, weights)
    # rows at no price are wrong already
    share = (cost == 0).astype(float)
    np.divide(delta - before, cost, out=share, where=(cost > 0) & np.isfinite(cost))
    return np.clip(share, 0.0, 1.0)


def is_right(scores: Array, target: Array, tau: float | None) -> Array:
    """Return whether each row is right: its class wins, or its prediction is within tau.

    The first of equal scores wins, as in ``predict``.
    """
    if tau is not None:
        return np.abs(target - scores[:, 0]) < tau
    return np.asarray(scores.argmax(axis=1) == target)


def robust_risks(
    model: LinearModel, scores: Array, target: Array, weights: Array, balls: list[Ball]
) -> Array:
    """Return the worst-case loss over each ball, inf where it is unbounded.

    For several classes it is that of the softmax loss, or the mean of the one-vs-rest losses, each
    with an adversary of its own. ``target`` is the number of the class, or the regression target.
    """
    K, loss = len(model.coef), model.loss
    if model.joint:
        loss, problems = Softmax(K), [(scores, target, model.coef)]
        # a mean squared move of delta is a mean move of at most sqrt(delta): a bound, not attained
        balls = [replace(ball, delta=ball.delta ** (1 / ball.order), order=1) for ball in balls]
    elif model.classes is None:
        problems = [(scores[:, 0], target, model.coef[0])]
    elif K == 2:
        sign = np.where(target == 1, 1.0, -1.0)
        problems = [(scores[:, 1] - scores[:, 0], sign, model.coef[1] - model.coef[0])]
    else:
        signs = np.where(target[:, None] == np.arange(K), 1.0, -1.0)
        problems = list(zip(scores.T, signs.T, model.coef, strict=True))

    def risk(z: Array, y: Array, coef: Array, ball: Ball) -> float:
        unbounded = ball.order == 1 and not np.isfinite(loss.lipschitz)
        if ball.delta == 0 or (unbounded and ball.gain(float(np.any(coef))) == 0):
            return float(weights @ loss.value(z, y))
        if unbounded:
            return np.inf
        # the rows matter by their scores only
        return risk_of_scores(Problem(None, y, weights, loss, ball), coef, z).risk

    risks = [[risk(z, y, coef, ball) for ball in balls] for z, y, coef in problems]
    return np.asarray(np.mean(risks, axis=0))


def budget_shares(normals: Array, index: Array, spent: Array, cost: Cost) -> Array:
    """Return the part of the budget that goes into each column.

    ``spent`` is the budget of each row, ``index`` the number of its vector among the ``normals``.
    """
    share = np.bincount(index, spent, minlength=len(normals)) / (float(spent.sum()) or 1.0)
    return np.asarray(share @ column_parts(normals, cost))


def boundary_lines(constant: Array, slopes: Array, center: Array, box: Array) -> list[Array]:
    """Return the segments (2, 2) in a box of a plane where two scores are equal and largest.

    ``constant`` (K,) are the scores at ``center`` (2,), ``slopes`` (K, 2) those along the axes;
    ``box`` is [[x0, y0], [x1, y1]].
    """
    segments = []
    K = len(constant)
    for k in range(K):
        for m in range(k + 1, K):
            g = slopes[k] - slopes[m]
            size = float(g @ g)
            if size == 0:
                continue
            start = center - g * (constant[k] - constant[m]) / size
            along = np.array([-g[1], g[0]]) / np.sqrt(size)
            # these must be >= 0 along start + t along: the box, and this score minus every other
            others = [other for other in range(K) if other not in (k, m)]
            above = slopes[k] - slopes[others]
            excess = constant[k] - constant[others] + above @ (start - center)
            value = np.concatenate([start - box[0], box[1] - start, excess])
            rate = np.concatenate([along, -along, above @ along])
            low, high = _interval(value, rate)
            if low < high:
                segments.append(np.stack([start + low * along, start + high * along]))
    return segments


def _interval(value: Array, rate: Array) -> tuple[float, float]:
    """Return the t with value + t rate >= 0 in every entry, as (low, high); empty if low > high."""
    if (value[rate == 0] < 0).any():
        return 1.0, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -value / rate
    return float(t[rate > 0].max(initial=-np.inf)), float(t[rate < 0].min(initial=np.inf))
