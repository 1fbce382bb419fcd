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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..duality import pair_norms, priced_risk, worst_risk
from ..losses import Softmax
from ..problem import Ball
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
        reach = _ratio(mine - scores[:, k], norms[own, k])
        closer = (reach < distance) & (own != k)
        distance[closer] = reach[closer]
        towards[closer] = k
    return Nearest(distance, towards)


def nearest_error(residual: Array, tau: float, w: float) -> Nearest:
    """Return the nearest point at which the prediction is tau off; ``residual`` is y - score."""
    return Nearest(_ratio(tau - np.abs(residual), np.asarray(w)), np.where(residual <= 0, 1, -1))


def _ratio(margin: Array, w: Array) -> Array:
    """Return max(margin, 0)/w; where w = 0 nothing can move: 0 or inf."""
    short = np.maximum(margin, 0.0)
    immovable = np.where(short > 0, np.inf, 0.0)
    w = np.broadcast_to(w, short.shape)
    return np.divide(short, w, out=immovable, where=w > 0)


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

    Both arrays rise; the first corner holds the rows that are wrong already, at no price.
    """

    budget: Array
    wrong: Array
    total: float

    def accuracy(self, delta: Any) -> Any:
        """Return the least accuracy within the budget; a number or an array, as delta is."""
        least = np.clip(1.0 - np.interp(delta, self.budget, self.wrong) / self.total, 0.0, 1.0)
        return least if np.ndim(least) else float(least)

    def breaking_point(self, level: Any) -> Any:
        """Return the least budget at which accuracy falls to ``level``; inf if it never does."""
        target = (1.0 - np.asarray(level, dtype=float)) * self.total
        reached = target <= self.wrong[-1] + ROUNDING * self.total
        budget = np.where(reached, np.interp(target, self.wrong, self.budget), np.inf)
        return budget if np.ndim(level) else float(budget)


def accuracy_curve(price: Array, weights: Array) -> AccuracyCurve:
    """Return the curve of rows with these prices (inf: never wrong) and masses."""
    order = np.argsort(price)
    sorted_price, mass = price[order], weights[order]
    free = int(np.searchsorted(sorted_price, 0.0, side="right"))
    stop = int(np.searchsorted(sorted_price, np.inf, side="left"))
    spent = np.cumsum(sorted_price[free:stop] * mass[free:stop])
    wrong = float(mass[:free].sum()) + np.append(0.0, np.cumsum(mass[free:stop]))
    return AccuracyCurve(np.append(0.0, spent), wrong, float(weights.sum()))


def moved_mass(price: Array, weights: Array, delta: float) -> Array:
    """Return q_i, the mass of each row that the adversary of budget delta makes wrong."""
    order = np.argsort(price, kind="stable")
    movable = np.isfinite(price[order])
    each, mass = np.where(movable, price[order], 0.0), weights[order]
    before = np.cumsum(mass * each) - mass * each
    # rows at no price are wrong already
    share = np.divide(delta - before, each, out=np.full(len(each), np.inf), where=each > 0)
    q = np.empty_like(weights)
    q[order] = np.where(movable, np.clip(share, 0.0, mass), 0.0)
    return q


def shifted_accuracies(
    scores: Array, target: Array, weights: Array, tau: float | None, shifts: Array
) -> Array:
    """Return the accuracy after each of some shifts (m, K) is added to the scores of all rows."""
    rows = np.arange(len(target))
    accuracies = np.empty(len(shifts))
    for k, shift in enumerate(shifts):
        moved = scores + shift
        if tau is not None:
            right = np.abs(target - moved[:, 0]) < tau
        else:
            own = moved[rows, target]
            moved[rows, target] = -np.inf
            right = own > moved.max(axis=1)
        accuracies[k] = weights @ right / weights.sum()
    # a sum of shares may exceed 1 by rounding
    return np.minimum(accuracies, 1.0)


def robust_risks(
    model: LinearModel, scores: Array, target: Array, weights: Array, balls: list[Ball]
) -> Array:
    """Return the worst-case loss over each ball, inf where it is unbounded.

    For several classes it is that of the softmax loss, or the mean of the one-vs-rest losses, each
    with an adversary of its own. ``target`` is the number of the class, or the regression target.
    """
    if model.joint:
        return np.array([_softmax_risk(scores, target, weights, model, ball) for ball in balls])
    if model.classes is None:
        problems = [(scores[:, 0], target, model.coef[0])]
    elif len(model.classes) == 2:
        sign = np.where(target == 1, 1.0, -1.0)
        problems = [(scores[:, 1] - scores[:, 0], sign, model.coef[1] - model.coef[0])]
    else:
        problems = [
            (scores[:, k], np.where(target == k, 1.0, -1.0), model.coef[k])
            for k in range(len(model.classes))
        ]
    risks = [
        [_risk(model, z, y, weights, float(ball.cost.dual_norm(beta)), ball) for ball in balls]
        for z, y, beta in problems
    ]
    return np.mean(risks, axis=0)


def _risk(model: LinearModel, z: Array, y: Array, weights: Array, w: float, ball: Ball) -> float:
    unbounded = ball.order == 1 and not np.isfinite(model.loss.lipschitz)
    if unbounded and ball.delta > 0 and ball.gain(w) > 0:
        return np.inf
    if unbounded or ball.delta == 0:
        return float(weights @ model.loss.value(z, y))
    if np.isfinite(ball.label_cost):
        return priced_risk(z, y, weights, model.loss, w, ball).risk
    return worst_risk(z, y, weights, model.loss, w, ball).risk


def _softmax_risk(
    scores: Array, own: Array, weights: Array, model: LinearModel, ball: Ball
) -> float:
    """Return mean CE + delta max ||B_k - B_y||_* over labels y that occur.

    At order 2 a mean squared move of delta is a mean move of at most sqrt(delta): the same bound
    with that, which is not attained.
    """
    norms = pair_norms(ball.cost, model.coef)
    plain = float(weights @ Softmax(len(model.coef)).value(scores, own))
    slope = float(norms[np.unique(own[weights > 0])].max())
    return plain + slope * (ball.delta if ball.order == 1 else np.sqrt(ball.delta))


def budget_shares(normals: Array, index: Array, spent: Array, cost: Cost) -> Array:
    """Return the part of the budget that goes into each column.

    A move t v(w) costs t = sum_j t w_j v_j/||w||_*, because w/||w||_* is a gradient of the norm
    at v: the terms of the sum are the parts of the columns. ``spent`` is the budget of each row,
    ``index`` the number of its vector among the ``normals``.
    """
    total = float(spent.sum())
    if total <= 0:
        return np.zeros(normals.shape[1])
    w = cost.dual_norm(normals)[:, None]
    v = cost.direction(normals)
    parts = np.divide(normals * v, w, out=np.zeros_like(normals), where=w > 0)
    return np.bincount(index, spent, minlength=len(normals)) @ parts / total


@dataclass(frozen=True, eq=False)
class Units:
    """One move for each column of the table: what deltas and prices are stated in.

    A column of numbers moves by one standard deviation, a column of categories switches from one
    to another: from the commoner of the two that part the scores most at their price.

    Attributes
    ----------
    names : list of str
        The columns; a category is one column, whatever indicators it was made into.
    switches : list of str
        "Leeds -> York" for a category, "" for numbers.
    members : list of lists of int
        The prepared columns that belong to each.
    moves : ndarray of shape (m, d)
        The moves, in the prepared columns: by 1, or the switch.
    scale : ndarray of shape (m,)
        How many of them are the unit: the standard deviation, 1 for a switch.
    norms : ndarray of shape (m,)
        The norms of the moves.
    """

    names: list[str]
    switches: list[str]
    members: list[list[int]]
    moves: Array
    scale: Array
    norms: Array

    @property
    def prices(self) -> Array:
        """The price of the unit of each column, (m,); 0 where a column is constant."""
        return self.norms * self.scale

    def labels(self) -> list[str]:
        """Return the columns with their switches."""
        pairs = zip(self.names, self.switches, strict=True)
        return [f"{name}: {switch}" if switch else name for name, switch in pairs]

    def amount(self, delta: Any, order: int, j: Any = slice(None)) -> Any:
        """Return how much of a move costs delta; inf where nothing does.

        Of numbers it is the mean move m with ||m move||^order = delta, in standard deviations; of
        categories the share of rows that switch.
        """
        prices = self.prices[j]
        is_switch = np.array([bool(switch) for switch in self.switches])[j]
        delta = np.asarray(delta, dtype=float)
        root, whole = np.broadcast_arrays(delta ** (1 / order), prices)
        mean = np.divide(root, whole, out=np.full(root.shape, np.inf), where=whole > 0)
        # a share q of the rows that switch costs q times the price to the power
        return np.where(is_switch, mean**order, mean)


def units_of(model: LinearModel, X: Any, scale: Array, cost: Cost) -> Units:
    """Return the units of a model's columns; ``scale`` (d,) are their standard deviations."""
    groups, eye = model.groups, np.eye(len(scale))
    coef = model.coef
    differences = coef if model.classes is None else (coef[:, None] - coef).reshape(-1, len(scale))
    names, switches, members, moves, sizes = [], [], [], [], []
    for column, own in groups.indices.items():
        if column not in groups.categories or len(own) == 1:
            names += [groups.names[j] for j in own]
            switches += [""] * len(own)
            members += [[j] for j in own]
            moves += list(eye[own])
            sizes += list(scale[own])
            continue
        first, second = np.triu_indices(len(own), 1)
        pairs = eye[own][second] - eye[own][first]
        best = int((np.abs(pairs @ differences.T).max(axis=1) / cost.norm(pairs)).argmax())
        ends = [first[best], second[best]]
        common = np.asarray(X[:, [own[k] for k in ends]].mean(axis=0)).ravel()
        start, end = ends if common[0] >= common[1] else ends[::-1]
        values = groups.categories[column]
        names.append(column)
        switches.append(f"{values[start]} -> {values[end]}")
        members.append(own)
        moves.append(eye[own[end]] - eye[own[start]])
        sizes.append(1.0)
    return Units(
        names=names,
        switches=switches,
        members=members,
        moves=np.array(moves),
        scale=np.array(sizes),
        norms=np.asarray(cost.norm(np.array(moves)), dtype=float),
    )


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
