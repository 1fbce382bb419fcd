r"""The core that every solver shares: the multiplier, the zero model, the chain rule, bounds, ties.

*The multiplier.* The worst-case risk of given scores is the least value of a convex function of
the multiplier,

.. math:: \sup_{P:\,D_c(P,P_n)\le\delta} E_P\,\ell = \min_{\lambda\ge 0}\ \lambda\delta
          + \sum_i \pi_i \sup_s \bigl\{\ell(z_i + s, y_i) - \lambda\,(|s|/w_i)^{order}\bigr\},

with the displacement s of the score and w = ||beta||_*, the largest gain in score at unit price:
one number, or one per row where the cost is local.

Where labels may be changed at the price kappa the row's supremum is the larger of that of its label
and that of the other label less lambda kappa; at order 1 it is the loss, and lambda >= Lip w. The
softmax model at order 1 has E l + delta max over classes y of positive weight and k != y of
||B_k - B_y||_*: a row of class y moves towards looking like class k.

*The zero model.* With a = dl/dz at the best constant and g = E[a x] (E[a] = 0 with an intercept),
beta = 0 is optimal iff no direction pays for its price,

.. math:: \delta \ge \|g\|/\mathrm{Lip}\ \text{(order 1)},\qquad
          \delta \ge \|g\|^2/E[a^2]\ \text{(order 2)},

and under local costs of order 2 iff :math:`\delta \ge g' E[a^2 B]^{-1} g`.

*The chain rule.* Derivatives of the dual objective in (theta, b, lam), for many problems over the
same rows,

.. math:: F = \lambda\delta + \sum_i \pi_i\,\psi(z_i, w_i, \lambda),\qquad
          z_i = Z_i'\theta + b,\quad w_i = \|\theta\|_{*, i},

from the derivatives of psi in (z, w, lam). The dual norm is that of all rows
(``Round``, in coordinates where it is Euclidean) or one per row (``Local``). Arrays have one
column per problem; w has shape (1, B) or (n, B).

A lower bound on every model's worst-case risk at order 2 comes from slopes of moved rows. Atoms of
mass m (those of a row sum to its weight) and slope a = dl/dz give

.. math:: F^* \ge -\sum m\,\ell^*(a, y)\quad\text{if}\quad g'C^{-1}g \le \delta,\
          \sum m a = 0,\qquad g = \sum m a z,\ C = \sum m a^2 B_i,

B_i the matrix of the row's dual norm (the identity in round coordinates, where the condition is
:math:`\|g\|^2 \le \delta \sum m a^2`): the adversary moves each atom by :math:`-a B_i C^{-1} g`.

*Ties.* Where rows have two maxima, both branches stay in the model and share the row's mass. The
model of a step m is :math:`g_0'm + m'Hm/2 + \sum_r \max(0, d_r + J_r m)` over the rows r with two
branches, g_0 the gradient with all their mass on the second. Its dual is a quadratic program over
the shares p in [0, 1] of the first branches. T problems are solved at a time, each with as many
places as the one with the most rows (R) has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dposv

from .arrays import (
    TINY,
    as_float,
    beside,
    branch_sums,
    class_masses,
    column_sums,
    full,
    namespace,
    numbers,
    numpy,
    pick_columns,
)
from .costs import Cost
from .design import Design
from .losses import Loss
from .problem import Ball, Problem

Array = NDArray[Any]

#: A few roundings of a sum, relative to it: least values are found, and differences taken for none,
#: to this.
PRECISION = 1e-14
#: Numbers this close, relative to their unit, differ by rounding only: a delta and the threshold, a
#: share of a tie and 0 or 1, a need and the budget.
EQUAL = 1e-12
#: Values this close, relative to themselves, are equal.
ROUNDING = 1e-15
#: Tangents in search of a least value, halvings of the bracket down to rounding; Newton steps to
#: the shares of ties.
STEPS = 200
#: Points for lam, after its value is found to the precision asked for.
LAST_POINTS = 2
#: The first step away from a start, relative to it, in search of the other side of the minimum.
FIRST_STEP = 1e-6
#: How far off the multiplier of a model near by may be, and how far a first multiplier keeps from
#: the growth of the loss, relative to these.
NEAR = 1e-3
#: How steps in search of the other side grow.
LONGER = 10.0
#: The least first multiplier, relative to that at which the largest slope spends the budget.
LEAST_FIRST = 1e-6
#: Residuals this small, relative to the targets, sit on a kink.
ON_A_KINK = 1e-9
#: How far beyond the boundary of the feasible slopes a dual point is put, against rounding, as a
#: share of the way there.
BEYOND = 1e-9
#: A sum of slopes below this, relative to their sizes, is rounding.
BALANCED = 1e-11
#: Tries without success after which rounding is taken to be the cause, or a boundary to be far.
TRIES = 8
#: Relative to the diagonal, what makes a matrix definite whose null space is rounding.
RIDGE = 1e-13
#: The lengths of a step that are compared: powers of that to the first end of the box.
POWERS = np.linspace(0, 1, 8)


@dataclass(frozen=True, eq=False)
class Dual:
    """The minimum over lam of the dual: the worst-case ``risk`` and the ``multiplier`` lam."""

    risk: float
    multiplier: float


class Tangent(NamedTuple):
    """Multipliers, the dual objective lam delta + mean psi there, and its slope; numbers or arrays.

    Arrays hold one entry per problem.
    """

    lam: Any
    value: Any
    slope: Any

    def where(self, condition: Array, other: Tangent) -> Tangent:
        """Return this tangent where the condition holds, else the other."""
        return Tangent(*(np.where(condition, a, b) for a, b in zip(self, other, strict=True)))

    def lower(self, other: Tangent) -> Tangent:
        """Return the tangent of the lower value, of equal ones the flatter."""
        rounding = ROUNDING * np.abs(other.value)
        flatter = np.abs(self.slope) < np.abs(other.slope)
        return self.where(self.value < other.value + np.where(flatter, rounding, -rounding), other)


def least(
    tangent: Callable[[Any], Tangent],
    start: Any,
    growth: Any = 0.0,
    rtol: float = PRECISION,
    doubt: float = FIRST_STEP,
) -> Tangent:
    """Return the least values of convex functions of lam > ``growth``, to ``rtol`` of themselves.

    Two tangents of opposite slopes meet at a bound below the least value, and at the kink that
    tied rows make. New points are taken there and, in turn, where the slopes interpolate to zero,
    which is faster where there is no kink. The last of them are for lam, of which values say little
    near a smooth minimum. ``doubt`` is how far off the start may be, relative to it. One function
    per entry of ``start``.
    """
    low = high = np.maximum(start - growth, TINY)
    left = right = best = tangent(growth + low)
    while True:
        # no farther to the other side than the start may be off, at first
        down, up = (left.slope > 0) & (low > TINY), (right.slope < 0) & (high < 1 / TINY)
        if not np.any(down | up):
            break
        low, high = np.where(down, low / (1 + doubt), low), np.where(up, high * (1 + doubt), high)
        new = tangent(growth + np.where(down, low, high))
        best = new.where(down | up, best).lower(best)
        # what was one end is the other end of a shorter bracket
        left, right = new.where(down, right.where(up, left)), left.where(down, new.where(up, right))
        doubt *= LONGER
    rest: Any = LAST_POINTS
    for n in range(STEPS):
        width = right.lam - left.lam
        # equal slopes only where an end is flat already
        turn = np.where(right.slope > left.slope, right.slope - left.slope, 1.0)
        meet = (right.slope * width - (right.value - left.value)) / turn
        lowest = np.minimum(left.value, right.value)
        # two bounds on what is left: the second one is free of the values' rounding
        bound = lowest - (left.value + left.slope * meet)
        bound = np.minimum(bound, np.minimum(-left.slope, right.slope) * width)
        rest = np.where(bound > rtol * np.abs(lowest), LAST_POINTS, rest - 1)
        # nearer to an end than the numbers are apart: the end is the kink
        apart = 4 * np.finfo(float).eps * right.lam
        going = (left.slope < 0) & (right.slope > 0) & (width > 2 * apart) & (rest >= 0)
        if not np.any(going):
            break
        meets = (n % 2 == 1) & (rest == LAST_POINTS)
        way = np.where(meets, meet, -width * left.slope / turn)
        # one side that is nearly vertical leaves both steps at an end: then the middle
        way = width / 2 if n > TRIES and n % 3 == 0 else np.clip(way, apart, width - apart)
        new = tangent(left.lam + np.where(going, way, 0.0))
        best = new.where(going, best).lower(best)
        below = new.slope < 0
        left = new.where(going & below, left)
        right = new.where(going & np.logical_not(below), right)
    return best


def worst_risk(
    z: Array,
    y: Array,
    weights: Array,
    loss: Loss,
    w: Any,
    ball: Ball,
    start: float = 0.0,
    rtol: float = PRECISION,
) -> Dual:
    """Return the worst-case risk of scores z whose coefficients have dual norm w.

    ``start`` is where to look for the multiplier first, if positive; ``rtol`` the precision of the
    risk, where that is found by search.
    """
    plain = float(weights @ loss.value(z, y))
    w = ball.gain(w)
    if np.max(w) == 0:
        return Dual(plain, 0.0)
    if ball.order == 1 and (ball.delta > 0 or np.isfinite(loss.lipschitz)):
        require_lipschitz(loss)
        lam = loss.lipschitz * float(np.max(w))
        return Dual(plain + ball.delta * lam, lam)
    pieces = loss.pieces
    if pieces is not None and pieces.rooted and np.ndim(w) == 0:
        return rooted(plain, float(w), ball.delta, pieces.kappa)
    if ball.delta == 0:
        # d risk/d sqrt(delta) is w times the root mean square slope, so d risk/d delta is infinite
        flat = not (weights * loss.derivative(z, y)).any()
        return Dual(plain, 0.0 if flat else np.inf)
    found = best_multiplier(z, y, weights, loss, w, ball.delta, start, rtol)
    return Dual(found.value, found.lam)


def require_lipschitz(loss: Loss) -> None:
    """Refuse a loss whose worst case under an order-1 cost is infinite."""
    if not np.isfinite(loss.lipschitz):
        raise ValueError(
            f"order=1 needs a Lipschitz loss; {type(loss).__name__} is not, so its worst-case "
            "risk is infinite. Use order=2."
        )


def place_masses(loss: Array, price: Array, weights: Array, delta: float) -> Array:
    r"""Return the masses (k, n) on given places of the largest mean loss within the budget,

    .. math:: \max_{m \ge 0} \sum_{ik} m_{ik}\,\ell_{ik}\quad\text{s.t.}\quad
              \sum_k m_{ik} = \pi_i,\ \sum_{ik} m_{ik}\,c_{ik} \le \delta .

    At a multiplier each row goes to its place of largest loss less price; on either side of the
    best one the rows that differ are tied, and all share their mass so that delta is spent.
    """
    xp = namespace(loss)
    price = price + 0.0 * weights
    # a place of infinite price is none
    within = xp.isfinite(price)
    loss, price = xp.where(within, loss, -np.inf), xp.where(within, price, 0.0)
    count = numbers(len(loss), loss)[:, None]

    def at(lam: float) -> tuple[Array, float, float]:
        """Return the masses at a multiplier, their mean loss and their mean price."""
        gain = loss - lam * price
        # of equal gains the cheapest
        price_of_best = xp.where(gain == xp.max(gain, axis=0), price, np.inf)
        mass = as_float(count == xp.argmin(price_of_best, axis=0)) * weights
        held = mass > 0
        reached, spent = (float(xp.sum(mass * xp.where(held, v, 0.0))) for v in (loss, price))
        return mass, reached, spent

    over = at(0.0)
    if over[2] <= delta:
        return over[0]
    finite = loss[xp.isfinite(loss)]
    under = at(min(float(xp.max(finite) - xp.min(finite)) / max(delta, TINY), 1 / TINY))
    for _ in range(STEPS):
        if under[2] >= delta or over[2] <= under[2]:
            return under[0]
        # the mean loss as a function of the mean price is concave: along its chord
        lam = (over[1] - under[1]) / (over[2] - under[2])
        middle = at(lam)
        level = under[1] - lam * under[2]
        if middle[1] - lam * middle[2] <= level + ROUNDING * abs(level):
            break
        if middle[2] > delta:
            over = middle
        else:
            under = middle
    share = (delta - under[2]) / (over[2] - under[2])
    mass: Array = share * over[0] + (1 - share) * under[0]
    return mass


def rooted(plain: float, w: float, delta: float, kappa: float) -> Dual:
    """Return (rms + sqrt(delta) w)^2/(2 kappa), rms^2 = 2 kappa plain, and its derivative in delta.

    The multiplier is (w^2 + w rms/sqrt(delta))/(2 kappa).
    """
    rms = np.sqrt(2 * kappa * plain)
    risk = (rms + np.sqrt(delta) * w) ** 2 / (2 * kappa)
    if w == 0 or (delta == 0 and rms == 0):
        return Dual(float(risk), w**2 / (2 * kappa))
    steep = w * rms / np.sqrt(delta) if delta > 0 else np.inf
    return Dual(float(risk), float((w**2 + steep) / (2 * kappa)))


def best_multiplier(
    z: Array,
    y: Array,
    weights: Array,
    loss: Loss,
    w: Any,
    delta: float,
    start: float = 0.0,
    rtol: float = PRECISION,
) -> Tangent:
    """Minimise lam delta + mean psi at order 2 for one problem; ``start`` is near, if positive."""
    rows = np.reshape(np.asarray(w, dtype=float), (-1, 1))
    first = np.array([start])
    found = best_multipliers(
        z[:, None], y, weights[:, None], loss, rows, np.array([delta]), first, rtol
    )
    return Tangent(*(float(part[0]) for part in found))


def best_multipliers(
    z: Array,
    y: Array,
    weights: Array,
    loss: Loss,
    w: Array,
    delta: Array,
    start: Array,
    rtol: float = PRECISION,
) -> Tangent:
    """Minimise lam delta + mean psi at order 2; the slope is delta - E t^2, t = s/w.

    One column of ``z`` and ``weights`` per problem, ``w`` of shape (1, B) or (n, B).
    """
    (n, B), flat, xp = z.shape, z.ravel(), namespace(z)
    price = beside(np.square(np.maximum(w, TINY)), z)
    scale = float(w[0, 0]) if w.size == 1 else xp.broadcast_to(beside(w, z), (n, B)).ravel()
    targets = xp.broadcast_to(y[:, None], (n, B)).ravel()

    near: Array | None = None

    def tangent(lam: Array) -> Tangent:
        nonlocal near
        each = float(lam[0]) if B == 1 else xp.broadcast_to(beside(lam, z), (n, B)).ravel()
        inner = loss.inner(flat, targets, scale, each, near)
        best, near = inner.best, xp.abs(inner.shift)
        spent = column_sums(weights, best.shift.reshape(n, B) ** 2 / price)
        value = column_sums(weights, best.value.reshape(n, B))
        return Tangent(lam, lam * delta + value, delta - spent)

    growth = np.array([least_finite(loss, w[:, j]) for j in range(B)])
    known = start > growth
    if known.all():
        return least(tangent, start, growth, rtol)
    guess = first_multipliers(z, y, weights, loss, w, delta)
    return least(tangent, np.where(known, start, guess), growth, rtol, doubt=1 / LONGER)


def least_finite(loss: Loss, w: Any) -> float:
    """Return the lam beyond which every inner supremum is finite: 2 lam > smoothness w^2."""
    if np.isfinite(loss.lipschitz):
        return 0.0
    return float(loss.smoothness * np.max(np.square(w)) / 2)


def first_multiplier(z: Array, y: Array, weights: Array, loss: Loss, w: Any, delta: float) -> float:
    """Return a lam near the best of one problem, w a number or one per row."""
    rows = np.reshape(np.asarray(w, dtype=float), (-1, 1))
    radius = np.array([delta])
    return float(first_multipliers(z[:, None], y, weights[:, None], loss, rows, radius)[0])


def first_multipliers(
    z: Array, y: Array, weights: Array, loss: Loss, w: Array, delta: Array
) -> Array:
    """Return a lam near the best of each problem: t = w l'/(2 lam), as if no slope changed.

    Shapes as of ``best_multipliers``.
    """
    square = column_sums(weights, (beside(w, z) * loss.derivative(z, y[:, None])) ** 2)
    slopes = np.sqrt(square / delta) / 2
    if not np.isfinite(loss.lipschitz):
        growth = loss.smoothness * np.square(w).max(axis=0) / 2
        # away from the growth of the loss by a share of it
        return np.asarray(growth + np.maximum(slopes, NEAR * growth))
    top = loss.lipschitz * np.max(w, axis=0) / (2 * np.sqrt(delta))
    # rows without a slope are moved too once a move is cheap: stay within reach of the bound
    return np.maximum(slopes, LEAST_FIRST * top)


def priced_risk(
    z: Array,
    y: Array,
    weights: Array,
    loss: Loss,
    w: float,
    ball: Ball,
    guess: float = 0.0,
    rtol: float = PRECISION,
) -> Dual:
    """Return the worst-case risk of scores z whose coefficients have dual norm w.

    ``guess`` is a multiplier near the best one, 0 for none; ``rtol`` is of the risk.
    """
    if ball.delta == 0:
        return Dual(float(weights @ loss.value(z, y)), np.inf)
    kappa, delta = ball.label_cost, ball.delta
    if ball.order == 1 or w == 0:
        kept = loss.value(z, y)
        # a loss without a largest slope has an infinite one, and 0 times that is no number
        steepest = loss.lipschitz * w if w > 0 else 0.0
        rise = least_price(loss.value(z, -y) - kept, weights, steepest, delta, kappa)
        return Dual(float(weights @ kept) + rise.risk, rise.multiplier)

    def tangent(lam: Any) -> Tangent:
        return priced_tangent(z, y, weights, loss, w, ball, lam)

    growth = least_finite(loss, w)
    start, doubt = guess, NEAR
    if guess <= growth:
        start = max(first_multiplier(z, y, weights, loss, w, delta), growth + TINY)
        doubt = 1 / LONGER
    found = least(tangent, np.array([start]), np.array([growth]), rtol, doubt)
    return Dual(float(found.value[0]), float(found.lam[0]))


def priced_tangent(
    z: Array, y: Array, weights: Array, loss: Loss, w: float, ball: Ball, lam: Any
) -> Tangent:
    """Return the order-2 dual objective at one multiplier, a number or an array of one."""
    number = float(np.ravel(lam)[0])
    value, price = _inner(z, y, loss, w, number)
    charge = ball.label_cost * number
    # psi <= l + Lip^2 w^2/(4 lam): few labels can pay
    most = loss.value(z, -y) + (loss.lipschitz * w) ** 2 / (4 * number)
    some = np.flatnonzero(most - charge > value)
    changed, beyond = _inner(z[some], -y[some], loss, w, number)
    flip = changed - charge > value[some]
    value[some[flip]] = changed[flip] - charge
    price[some[flip]] = beyond[flip] + ball.label_cost
    slope = ball.delta - float(weights @ price)
    total = lam * ball.delta + float(weights @ value)
    return Tangent(lam, total, np.full(np.shape(lam), slope))


def least_price(gain: Array, weights: Array, lowest: float, delta: float, kappa: float) -> Dual:
    """Return the least of delta lam + E max(0, gain - kappa lam) over lam >= lowest.

    The least lam has at most a mass of delta/kappa that gains more than kappa lam.
    """
    order = np.argsort(-gain)
    place = int(np.searchsorted(np.cumsum(weights[order]), delta / kappa, side="right"))
    least = float(gain[order[place]]) / kappa if place < len(order) else 0.0
    lam = max(lowest, least)
    return Dual(delta * lam + float(weights @ np.maximum(gain - kappa * lam, 0.0)), lam)


def _inner(z: Array, y: Array, loss: Loss, w: float, lam: float) -> tuple[Array, Array]:
    """Return psi of every row at order 2, and what its move costs."""
    best = loss.inner(z, y, w, lam).best
    return best.value, np.square(best.shift / w)


class Pair(NamedTuple):
    """The class ``own`` of the rows that move, the class ``other``, and ||B_other - B_own||_*."""

    own: int
    other: int
    norm: float


def pair_norms(cost: Cost, coef: Array) -> Array:
    """Return ||B_k - B_y||_* as a matrix over (y, k), 0 on the diagonal."""
    norms = np.array([cost.dual_norm(coef - row) for row in coef])
    np.fill_diagonal(norms, 0.0)
    return norms


def steepest_pair(cost: Cost, coef: Array, present: Array) -> Pair:
    """Return the pair of the largest norm whose own class is ``present`` (K,)."""
    norms = np.where(present[:, None], pair_norms(cost, coef), -1.0)
    own, other = np.unravel_index(int(norms.argmax()), norms.shape)
    return Pair(int(own), int(other), float(norms[own, other]))


def present_classes(problem: Problem) -> Array:
    """Return which classes have weight, (K,)."""
    return class_masses(problem.y, problem.weights, problem.loss.outputs) > 0


def pair_risk(problem: Problem, coef: Array, z: Array) -> Dual:
    """Return the worst-case risk of the softmax model with these coefficients and scores (n, K)."""
    ball, weights = problem.ball, problem.weights
    norm = steepest_pair(ball.cost, coef, present_classes(problem)).norm
    return Dual(float(weights @ problem.loss.value(z, problem.y)) + ball.delta * norm, norm)


@dataclass(frozen=True, eq=False)
class ZeroModel:
    """The best constant ``b``, its ``risk``, the slopes ``a`` (n,), the ``pull`` g = Z'(pi a) (d,).

    ``unique`` is False where rows on a kink leave a choice of slopes.
    """

    b: float
    risk: float
    a: Array
    pull: Array
    mean_square: float
    unique: bool

    def threshold(self, size: float, lipschitz: float, order: int) -> float:
        """Return the least delta at which beta = 0 is optimal, ``size`` the norm of the pull.

        Where the slopes are not unique this is a bound from above.
        """
        return float(threshold(size, self.mean_square, lipschitz, order))


def zero_model(
    design: Design, y: Array, weights: Array, loss: Loss, fit_intercept: bool
) -> ZeroModel:
    """Return the best model with beta = 0."""
    b = loss.constant(y, weights) if fit_intercept else 0.0
    z = full(len(y), b, y)
    a, unique = _slopes(loss, z, y, weights, fit_intercept)
    risk = float(weights @ loss.value(z, y))
    pull = design.adjoint(weights * a)
    # of a constant column far from 0 only the rounding of its centre is left
    left = 4 * np.sqrt(len(y)) * np.finfo(float).eps * design.offset * float(weights @ abs(a))
    pull = np.where(np.abs(pull) > left, pull, 0.0)
    return ZeroModel(b, risk, a, pull, float(weights @ a**2), unique)


def threshold(size: Any, mean_square: Any, lipschitz: float, order: int) -> Any:
    """Return ||g||/Lip or ||g||^2/E[a^2], one number or one per problem; 0 where g is rounding."""
    xp = namespace(size)
    real = size > PRECISION * mean_square**0.5
    found = size / lipschitz if order == 1 else size**2 / xp.where(real, mean_square, 1.0)
    return xp.where(real, found, 0.0)


def local_threshold(zero: ZeroModel, weights: Array, B: Array) -> tuple[float, Array]:
    """Return g'E[a^2 B]^-1 g for matrices B of shape (n, d, d), and the direction E[a^2 B]^-1 g."""
    n, d = len(B), len(zero.pull)
    mean = ((weights * zero.a**2) @ B.reshape(n, -1)).reshape(d, d)
    # in units of the columns; singular where every slope is 0, and then g is 0 as well
    unit = np.sqrt(np.diagonal(mean))
    unit = np.where(unit > 0, unit, 1.0)
    g = zero.pull / unit
    scaled = mean / unit[:, None] / unit
    u = np.linalg.lstsq(scaled, g)[0]
    # a pull outside of the range of E[a^2 B] gains at any delta
    lost = np.linalg.norm(g - scaled @ u) > np.sqrt(np.finfo(float).eps) * np.linalg.norm(g)
    return np.inf if lost else float(g @ u), u / unit


def _slopes(
    loss: Loss, z: Array, y: Array, weights: Array, fit_intercept: bool
) -> tuple[Array, bool]:
    """Return dl/dz at the constant with mean zero, and whether no other choice exists."""
    a = loss.derivative(z, y)
    pieces = loss.pieces
    if pieces is None or pieces.kappa > 0:
        return a, True
    xp = namespace(y)
    kinked = xp.abs(pieces.residual(z, y)) <= ON_A_KINK * (1 + float(xp.max(xp.abs(y))))
    a = xp.where(kinked, 0.0, a)
    mass = float(weights[kinked].sum())
    if fit_intercept and mass > 0:
        # rows on the kink share, evenly, what balances the others
        a[kinked] = -float(weights @ a) / mass
    return a, bool(xp.count_nonzero(kinked & (weights > 0)) <= 1)


class RowDerivatives(NamedTuple):
    """First and second derivatives of psi in (z, w, lam) times the mass, each of shape (n, B)."""

    z: Array
    w: Array
    lam: Array
    zz: Array
    zw: Array
    zl: Array
    ww: Array
    wl: Array
    ll: Array


def move_derivatives(
    slope: Array, curvature: Array, t: Array, w: Array, bend: Array
) -> RowDerivatives:
    """Return those of psi = max_t l(z + w t) - lam t^2 at a maximum t, without the mass.

    ``slope`` and ``curvature`` are l' and l'' there, ``bend`` > 0 is -d2/dt2 = 2 lam - w^2 l''.
    """
    # dt is h/bend for the derivatives h of the slope in t, l' w - 2 lam t, in (z, w, lam)
    h_z = w * curvature
    h_w = slope + w * t * curvature
    h_l = -2 * t
    return RowDerivatives(
        z=slope,
        w=slope * t,
        lam=-(t**2),
        zz=curvature + h_z**2 / bend,
        zw=curvature * t + h_z * h_w / bend,
        zl=h_z * h_l / bend,
        ww=curvature * t**2 + h_w**2 / bend,
        wl=h_w * h_l / bend,
        ll=h_l**2 / bend,
    )


class Round:
    """The dual norm ||theta||_2 of all rows: of theta (d, B), and sums of its derivatives."""

    def norms(self, theta: Array) -> Array:
        """Return w = ||theta||_2, of shape (1, B)."""
        return np.maximum(np.linalg.norm(theta, axis=0), TINY)[None]

    def sums(self, theta: Array, w: Array, r: Array) -> Array:
        """Return sum_i r_i u_i = (sum r) u, u the gradient of w, shape (d, B) for r (n, B)."""
        return numpy(r.sum(axis=0)) * theta / w

    def bends(
        self, design: Design, theta: Array, w: Array, pull: Array, rates: RowDerivatives
    ) -> Array:
        """Return the part of the Hessian in theta that w has, shape (B, d, d), for pull = Z'psi_zw.

        It is sum_i psi_zw (z_i u_i' + u_i z_i') + psi_ww u_i u_i' + psi_w times the Hessian of w_i,
        here pull u' + u pull' + (sum psi_ww) uu' + s (I - uu'), s = (sum psi_w)/w.
        """
        u, d = theta / w, len(theta)
        scale = numpy(rates.w.sum(axis=0)) / w[0]
        # vu' + uv' + s I with all that multiplies uu' in v
        v = pull + (numpy(rates.ww.sum(axis=0)) - scale) / 2 * u
        half = _outer(v, u)
        found = half + np.swapaxes(half, 1, 2)
        found.reshape(-1, d * d)[:, :: d + 1] += scale[:, None]
        return found

    def directions(self, theta: Array, w: Array, rows: Array) -> Array:
        """Return u_i of some rows (B, R) of each problem: the same, shape (B, 1, d)."""
        return np.asarray((theta / w).T[:, None])

    def product(self, theta: Array, other: Array) -> Array:
        """Return the inner product whose square root is the dual norm: theta'other, (B,)."""
        return np.vecdot(theta.T, other.T)

    def first_feasible(
        self, g: Array, dg: Array, mass: Array, a: Array, h: Array, delta: Array
    ) -> Array:
        """Return the least eta >= 0, (B,), with (g + eta dg)'C^-1(g + eta dg) <= delta, or inf.

        C = sum mass (a + eta h)^2 B_i over atoms (k, n, B): the budget of moves in proportion to
        the slopes. Here the excess of the squared pull over it is quadratic in eta.
        """
        C = self.product(g, g) - delta * branch_sums(mass, a * a)
        B = self.product(g, dg) - delta * branch_sums(mass, a * h)
        A = self.product(dg, dg) - delta * branch_sums(mass, h * h)
        return feasible_growth(C, B, A)

    def needed(self, g: Array, mass: Array, a: Array) -> Array:
        """Return g'C^-1 g = ||g||^2/sum mass a^2, (B,), what slopes a with the pull g need."""
        square = branch_sums(mass, a * a)
        return self.product(g, g) / np.where(square > 0, square, 1.0)


def feasible_growth(C: Any, B: Any, A: Any, outward: bool = False) -> Array:
    """Return the least eta >= 0 with C + 2 B eta + A eta^2 <= 0, slightly beyond it, or inf.

    ``outward``: from a feasible point go on to the boundary, by the nearest eta < 0.
    """
    discriminant = B**2 - A * C
    lost = (B >= 0) | (discriminant < 0)
    # the form without cancellation
    root = C / np.where(lost, 1.0, -B + np.sqrt(np.where(lost, 0.0, discriminant)))
    inside = np.where(lost, 0.0, root * (1 - BEYOND)) if outward else 0.0
    return np.where(C <= 0, inside, np.where(lost, np.inf, root * (1 + BEYOND)))


class Local:
    """The dual norms w_i^2 = theta'B_i theta of matrices B of shape (n, d, d), as ``Round``."""

    def __init__(self, B: Array, weights: Array) -> None:
        self.B = B
        self.flat = B.reshape(len(B), -1)
        self.mean = self._blend(weights[:, None])[0]

    def _blend(self, r: Array) -> Array:
        """Return sum_i r_i B_i, shape (B, d, d)."""
        d = self.B.shape[1]
        return np.asarray((r.T @ self.flat).reshape(-1, d, d))

    def _pushes(self, theta: Array) -> Array:
        """Return B_i theta, shape (n, d, B)."""
        return np.asarray(self.B @ theta)

    def norms(self, theta: Array) -> Array:
        """Return w_i."""
        square = np.einsum("ndb,db->nb", self._pushes(theta), theta)
        return np.sqrt(np.maximum(square, TINY))

    def sums(self, theta: Array, w: Array, r: Array) -> Array:
        """Return sum r_i B_i theta/w_i."""
        return np.einsum("nb,ndb->db", r / w, self._pushes(theta))

    def bends(
        self, design: Design, theta: Array, w: Array, pull: Array, rates: RowDerivatives
    ) -> Array:
        """Return Z' diag(psi_zw) U and its transpose, U' diag(psi_ww) U, psi_w (B_i - uu')/w_i."""
        Z, push = design.dense(), self._pushes(theta)
        cross = np.einsum("ni,nb,njb->bij", Z, rates.zw / w, push, optimize=True)
        square = (rates.ww - rates.w / w) / w**2
        found = cross + np.swapaxes(cross, 1, 2) + self._blend(rates.w / w)
        return found + np.einsum("nib,nb,njb->bij", push, square, push, optimize=True)

    def directions(self, theta: Array, w: Array, rows: Array) -> Array:
        """Return u_i = B_i theta/w_i."""
        problem = np.arange(len(rows))[:, None]
        return np.einsum("brij,jb->bri", self.B[rows], theta) / w[rows, problem, None]

    def product(self, theta: Array, other: Array) -> Array:
        """Return the mean of theta'B_i other."""
        return np.einsum("db,de,eb->b", theta, self.mean, other)

    def first_feasible(
        self, g: Array, dg: Array, mass: Array, a: Array, h: Array, delta: Array
    ) -> Array:
        """Return it for each problem by Newton steps on the budget, inf where that fails."""
        parts = [(mass * square).sum(axis=0) for square in (a * a, 2 * a * h, h * h)]
        C = [self._blend(part) for part in parts]
        return np.array(
            [
                first_within(g[:, j], dg[:, j], [c[j] for c in C], float(delta[j]))
                for j in range(len(delta))
            ]
        )

    def needed(self, g: Array, mass: Array, a: Array) -> Array:
        """Return g'C^-1 g."""
        C = self._blend((mass * a * a).sum(axis=0))
        return np.array([_quadratic(c, pull) for c, pull in zip(C, g.T, strict=True)])


def _quadratic(C: Array, g: Array) -> float:
    """Return g'C^-1 g, inf where C is singular."""
    try:
        return float(g @ np.linalg.solve(C, g))
    except np.linalg.LinAlgError:
        return np.inf if g.any() else 0.0


def first_within(g: Array, dg: Array, C: list[Array], delta: float) -> float:
    """Return an eta >= 0 near the least with g(eta)'C(eta)^-1 g(eta) <= delta, or inf.

    g is linear and C quadratic in eta; by Newton steps.
    """
    eta = 0.0
    for _ in range(TRIES + 1):
        now = g + eta * dg
        try:
            q = np.linalg.solve(C[0] + eta * C[1] + eta**2 * C[2], now)
        except np.linalg.LinAlgError:
            return np.inf
        value = float(now @ q)
        if value <= delta:
            return eta
        fall = -2 * float(dg @ q) + float(q @ (C[1] + 2 * eta * C[2]) @ q)
        if not (fall > 0 and np.isfinite(value)):
            return np.inf
        # slightly beyond: where the budget is met to rounding the next step would be zero
        eta += (value - delta) / fall * (1 + BEYOND) + EQUAL * delta / fall
    return np.inf


def _outer(a: Array, b: Array) -> Array:
    """Return a_j b_j' for the columns j."""
    return np.einsum("ib,jb->bij", a, b)


@dataclass(frozen=True, eq=False)
class DualRows:
    """What does not change: rows, targets, weights (n, B), radii (B,), dual norm."""

    design: Design
    y: Array
    weights: Array
    delta: Array
    fit_intercept: bool
    dual_norm: Round | Local

    @cached_property
    def scatter(self) -> Array:
        """Z' diag(pi) Z, shape (B, d, d)."""
        return self.design.gram(self.weights)

    def gram(self, zz: Array) -> Array:
        """Return Z' diag(zz) Z; where zz is a multiple of the weights, from one pass for all."""
        on = self.weights > 0
        ratio = zz / namespace(zz).where(on, self.weights, 1.0)
        if ratio.shape[1] == 1 and (least := float(ratio[on].min())) == float(ratio[on].max()):
            scaled: Array = least * self.scatter
            return scaled
        return self.design.gram(zz)

    def derivatives(self, theta: Array, w: Array, rates: RowDerivatives) -> tuple[Array, Array]:
        """Return gradient (B, d + 2) and Hessian (B, d + 2, d + 2) in (theta, b, lam)."""
        (d, B), norm = theta.shape, self.dual_norm
        # one pass over the rows for all first moments
        moments = namespace(rates.z).concat([rates.z, rates.zz, rates.zw, rates.zl], axis=1)
        by_z, by_zz, by_zw, by_zl = self.design.adjoint(moments).T.reshape(4, B, d).swapaxes(1, 2)
        grad, H = np.zeros((B, d + 2)), np.zeros((B, d + 2, d + 2))
        grad[:, :d] = (by_z + norm.sums(theta, w, rates.w)).T
        grad[:, -1] = self.delta + numpy(rates.lam.sum(axis=0))
        H[:, :d, :d] = self.gram(rates.zz) + norm.bends(self.design, theta, w, by_zw, rates)
        H[:, :d, -1] = H[:, -1, :d] = (by_zl + norm.sums(theta, w, rates.wl)).T
        H[:, -1, -1] = numpy(rates.ll.sum(axis=0))
        H[:, d, d] = 1.0
        if self.fit_intercept:
            grad[:, d] = numpy(rates.z.sum(axis=0))
            H[:, :d, d] = H[:, d, :d] = (by_zz + norm.sums(theta, w, rates.zw)).T
            H[:, d, -1] = H[:, -1, d] = numpy(rates.zl.sum(axis=0))
            H[:, d, d] = numpy(rates.zz.sum(axis=0))
        return grad, H

    def columns(self, index: Array) -> DualRows:
        """Return some of the problems."""
        return replace(self, weights=pick_columns(self.weights, index), delta=self.delta[index])


@dataclass(frozen=True, eq=False)
class Atoms:
    """Branches of rows, arrays of shape (k, n, B): mass, slope, and the ``room`` it has to move."""

    mass: Array
    slope: Array
    room: Array


def lower_bound(rows: DualRows, loss: Loss, atoms: Atoms, reached: Array) -> Array:
    """Return the bound (B,) of slopes made feasible by a shift of b and a growth of theta.

    ``reached`` (k, n, B) is z - b + s, the part of the moved scores that grows with theta: a
    growth moves the slopes by room times it.
    """
    a = _balanced(rows, atoms, atoms.slope)
    h = _balanced(rows, atoms, atoms.room * reached)
    xp = namespace(a)
    pulls = rows.design.adjoint(xp.concat([(atoms.mass * v).sum(axis=0) for v in (a, h)], axis=1))
    g, dg = pulls[:, : len(rows.delta)], pulls[:, len(rows.delta) :]
    eta = rows.dual_norm.first_feasible(g, dg, atoms.mass, a, h, rows.delta)
    eta = np.where(np.isfinite(eta), eta, 0.0)
    a = a + beside(eta, a) * h
    # min F at delta (1 + e) is at most (1 + e) min F, since lam delta <= F
    beyond = rows.dual_norm.needed(g + eta * dg, atoms.mass, a) / rows.delta
    conjugate = loss.conjugate(a, xp.broadcast_to(rows.y[:, None], a.shape))
    # an atom without mass may have any slope
    value = -branch_sums(atoms.mass, xp.where(atoms.mass > 0, conjugate, 0.0))
    lost = ~np.isfinite(beyond)
    if rows.fit_intercept:
        # rows without curvature cannot be shifted to where the slopes sum to zero
        size = branch_sums(atoms.mass, abs(a))
        lost |= ~(np.abs(branch_sums(atoms.mass, a)) <= BALANCED * size)
    # losses are nonnegative, so 0 is a bound
    return np.where(lost, 0.0, np.maximum(value, 0.0) / np.maximum(beyond, 1.0))


def balance(u: Array, axis: tuple[int, ...] | None = None) -> Array:
    """Return factors in [0, 1], less than 1 for the heavier sign, with which the u sum to zero.

    ``axis``: they sum to zero over these axes, None for all.
    """
    up = np.maximum(u, 0.0).sum(axis=axis, keepdims=True)
    down = np.maximum(-u, 0.0).sum(axis=axis, keepdims=True)
    least, tiny = np.minimum(up, down), np.finfo(float).tiny
    lighter = np.where(u < 0, least / np.maximum(down, tiny), 1.0)
    return np.where(u > 0, least / np.maximum(up, tiny), lighter)


def _balanced(rows: DualRows, atoms: Atoms, a: Array) -> Array:
    """Return a moved, in proportion to the room, to where sum m a = 0."""
    if not rows.fit_intercept:
        return a
    total = branch_sums(atoms.mass, atoms.room)
    excess = branch_sums(atoms.mass, a)
    shift: Array = a - atoms.room * beside(excess / np.maximum(total, np.finfo(float).tiny), a)
    return shift


@dataclass(frozen=True, eq=False)
class Padded:
    """The entries that count of T problems: their ``index`` (T, R), and which places are ``held``.

    A place that is not held repeats the first entry of its problem.
    """

    index: Array
    held: Array

    @classmethod
    def of(cls, mask: Array) -> Padded:
        """Return the places of the true entries of each row of a mask (T, n)."""
        counts = mask.sum(axis=1)
        most = int(counts.max(initial=0))
        index = np.argsort(~mask, axis=1, kind="stable")[:, :most]
        held = np.arange(most) < counts[:, None]
        return cls(np.where(held, index, index[:, :1]), held)


@dataclass(frozen=True, eq=False)
class TieModels:
    """Models of T problems: ``base`` g_0 (T, D), H (T, D, D), ``difference`` d (T, R), J (T, R, D).

    A place that is not held has J = 0 and d < 0, so that its share is 0.
    """

    base: Array
    H: Array
    difference: Array
    J: Array

    def minimise(self, p: Array) -> tuple[Array, Array, Array]:
        """Return the minimisers m (T, D), the shares p (T, R) of first branches there, and -m'Hm.

        By the dual: min over p in [0, 1] of |g_0 + J'p|^2_{H^-1}/2 - d'p, from the shares p.
        """
        sides = np.concatenate([self.base[:, :, None], np.swapaxes(self.J, 1, 2)], axis=2)
        # H^-1 (g_0, J')
        solved = solve_each(self.H, sides)
        products = self.J @ solved
        p = box_quadratics(products[:, :, 1:], products[:, :, 0] - self.difference, p)
        move = -(solved[:, :, 0] + times(solved[:, :, 1:], p))
        return move, p, -np.einsum("ti,ti->t", move, times(self.H, move))


def times(A: Array, v: Array) -> Array:
    """Return A_t v_t."""
    return np.asarray((A @ v[:, :, None])[:, :, 0])


def factored(H: Array) -> Any:
    """Return the Cholesky factor of H, whose diagonal is raised until it exists."""
    if not np.isfinite(H).all():
        raise np.linalg.LinAlgError("a matrix with infinite entries has no factor")
    ridge = RIDGE
    diagonal = np.where(np.diag(H) > 0, np.diag(H), 1.0)
    while True:
        try:
            return cho_factor(H + ridge * np.diag(diagonal), check_finite=False)
        except np.linalg.LinAlgError:
            ridge *= 100


def newton_step(grad: Array, H: Array) -> Array:
    """Return -H^-1 grad, the diagonal of H raised until it is positive definite."""
    return -np.asarray(cho_solve(factored(H), grad, check_finite=False))


def solve_each(H: Array, rhs: Array) -> Array:
    """Return H_t^-1 rhs_t for rhs (T, D, k), each H_t raised until it is positive definite."""
    diagonal = np.einsum("tii->ti", H)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))[:, :, None]
    scaled = scale * H * np.swapaxes(scale, 1, 2)
    D = H.shape[1]
    scaled.reshape(-1, D * D)[:, :: D + 1] += RIDGE
    return np.asarray(scale * positive_solved(scaled, scale * rhs))


def positive_solved(A: Array, rhs: Array) -> Array:
    """Return A_t^-1 rhs_t for rhs (T, D, k), A_t positive definite but for rounding."""
    if not isinstance(A, np.ndarray):
        found: Array = namespace(A).linalg.solve(A, rhs)
        return found
    solved = np.empty_like(rhs)
    for t, (matrix, right) in enumerate(zip(A, rhs, strict=True)):
        _, x, failed = dposv(matrix.T, right)
        solved[t] = cho_solve(factored(matrix), right) if failed else x
    return solved


def box_quadratics(Q: Array, q: Array, p: Array) -> Array:
    """Minimise p'Q_t p/2 + q_t'p over p in [0, 1] by projected Newton on the free coordinates."""
    p = _settled(p)
    found, active = p.copy(), np.arange(len(p))
    g = times(Q, p) + q
    for _ in range(STEPS):
        step, free = _inward_newton(Q, g, p)
        old, p = p, _settled(_best_along(Q, g, p, step))
        g = times(Q, p) + q
        # a whole step leaves the free coordinates at their minimum
        least = (np.abs(p - old - step) <= EQUAL).all(axis=1) & _optimal_at_ends(g, p, free)
        over = least | (p == old).all(axis=1)
        found[active[over]] = p[over]
        if over.all():
            return found
        if over.any():
            active, Q, q, p, g = (part[~over] for part in (active, Q, q, p, g))
    found[active] = p
    return found


def _settled(p: Array) -> Array:
    """Return shares that are 0 or 1 but for rounding as that."""
    return np.where(p < EQUAL, 0.0, np.where(p > 1 - EQUAL, 1.0, p))


def _inward_newton(Q: Array, g: Array, p: Array) -> tuple[Array, Array]:
    """Return the Newton steps in the coordinates left free: none of them leaves the box at once.

    Of those that descend into the box each alone, one that the joint step takes out is held.
    """
    free = ~(((p <= 0) & (g > 0)) | ((p >= 1) & (g < 0)))
    step = _free_newton(Q, g, free)
    while True:
        outward = ((p <= 0) & (step < 0)) | ((p >= 1) & (step > 0))
        some = np.flatnonzero(outward.any(axis=1))
        if not len(some):
            return step, free
        free &= ~outward
        step[some] = _free_newton(Q[some], g[some], free[some])


def _free_newton(Q: Array, g: Array, free: Array) -> Array:
    """Return the Newton steps in the free coordinates; the others have rows of the identity."""
    block = np.where(free[:, :, None] & free[:, None, :], Q, 0.0)
    diagonal = np.einsum("tii->ti", Q)
    ridge = RIDGE * (np.finfo(float).tiny + diagonal.sum(axis=1, keepdims=True))
    np.einsum("tii->ti", block)[:] = np.where(free, diagonal + ridge, 1.0)
    return np.asarray(np.linalg.solve(block, np.where(free, -g, 0.0)[:, :, None])[:, :, 0])


def _optimal_at_ends(g: Array, p: Array, free: Array) -> Array:
    """Whether no coordinate at an end gains by leaving it; the free ones are at their minimum."""
    return np.asarray((free | np.where(p <= 0, g >= 0, g <= 0)).all(axis=1))


def _best_along(Q: Array, g: Array, p: Array, step: Array) -> Array:
    """Return the lowest of some points along the clipped steps, p where none is lower.

    Up to the first end of the box that it meets a Newton step descends, beyond it may.
    """
    room = np.where(step > 0, 1 - p, p)
    moves = (step != 0) & (room > 0)
    meets = np.where(moves, room, np.inf) / np.where(moves, np.abs(step), 1.0)
    first = np.minimum(meets.min(axis=1), 1.0)
    if (first == 1).all():
        return p + step
    lengths = first[:, None] ** POWERS
    new = np.clip(p[:, None] + lengths[:, :, None] * step[:, None], 0, 1)
    change = new - p[:, None]
    fall = np.einsum("tkr,tkr->tk", change, g[:, None] + change @ Q / 2)
    problem, best = np.arange(len(p)), fall.argmin(axis=1)
    return np.where((fall[problem, best] < 0)[:, None], new[problem, best], p)
