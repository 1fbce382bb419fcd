r"""The worst-case risk of given scores: the least value of a convex function of the multiplier.

.. math:: \sup_{P:\,D_c(P,P_n)\le\delta} E_P\,\ell = \min_{\lambda\ge 0}\ \lambda\delta
          + \sum_i \pi_i \sup_s \bigl\{\ell(z_i + s, y_i) - \lambda\,(|s|/w_i)^{order}\bigr\},

with the displacement s of the score and w = ||beta||_*, the largest gain in score at unit price:
one number, or one per row where the cost is local.

Where labels may be changed at the price kappa the row's supremum is the larger of that of its label
and that of the other label less lambda kappa; at order 1 it is the loss, and lambda >= Lip w. The
softmax model at order 1 has E l + delta max over classes y of positive weight and k != y of
||B_k - B_y||_*: a row of class y moves towards looking like class k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_float, beside, class_masses, column_sums, namespace, numbers
from ..costs import Cost
from ..losses import Loss
from ..problem import Ball, Problem

Array = NDArray[Any]

#: The least value is found to this share of itself: a few roundings of a sum.
PRECISION = 1e-14
#: The first step away from a start, relative to it, in search of the other side of the minimum.
FIRST_STEP = 1e-6
#: The same from a start that says little: slopes as they are without a move.
UNKNOWN = 0.1
#: How steps in search of the other side grow.
LONGER = 10.0
#: Tangents in search of a least value: halvings of the bracket down to rounding.
STEPS = 200
#: Tangents after which every third step halves the bracket.
PATIENT = 20
#: Values this close, relative to themselves, are equal.
ROUNDING = 1e-15
#: Multipliers below this are zero.
TINY = 1e-300
#: How far a first multiplier keeps from the growth of the loss, relative to it.
OFF_GROWTH = 1e-3
#: The least first multiplier, relative to that at which the largest slope spends the budget.
LEAST_FIRST = 1e-6


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
    which is faster where there is no kink. ``doubt`` is how far off the start may be, relative to
    it. One function per entry of ``start``.
    """
    left, right = _bracketed(tangent, np.maximum(start - growth, TINY), growth, doubt)
    best = left.where(left.value < right.value, right)
    for n in range(STEPS):
        width = right.lam - left.lam
        # equal slopes only where an end is flat already
        turn = np.where(right.slope > left.slope, right.slope - left.slope, 1.0)
        meet = (right.slope * width - (right.value - left.value)) / turn
        lowest = np.minimum(left.value, right.value)
        # two bounds on what is left: the second one is free of the values' rounding
        bound = lowest - (left.value + left.slope * meet)
        bound = np.minimum(bound, np.minimum(-left.slope, right.slope) * width)
        far = bound > rtol * np.abs(lowest)
        open_ = (left.slope < 0) & (right.slope > 0)
        # nearer to an end than the numbers are apart: the end is the kink
        apart = 4 * np.finfo(float).eps * right.lam
        inside = (meet > apart) & (meet < width - apart)
        if not np.any(far & open_ & inside):
            break
        root = -width * left.slope / turn
        # slopes of very different size put the root on an end, and one side nearly vertical
        # leaves both steps there: then the middle
        shy = (root <= apart) | (root >= width - apart)
        way = np.where(shy, meet, root) if n % 2 == 0 else meet
        way = width / 2 if n > PATIENT and n % 3 == 0 else way
        new = tangent(left.lam + np.where(open_ & inside, way, 0.0))
        best = new.where(new.value < best.value, best)
        below = new.slope < 0
        moves = far & open_ & inside
        left = new.where(moves & below, left)
        right = new.where(moves & np.logical_not(below), right)
    # at a kink both ends are beside the least value, which is where the tangents meet
    # (where that is an end to rounding, just inside of it: below the growth of a loss an end is
    # a huge number)
    near = np.clip(meet, apart, np.maximum(width - apart, apart))
    kink = tangent(left.lam + np.where(open_, near, 0.0))
    found = _flattest(tangent, left, right, kink)
    # values near the growth of a loss are rough: what was lower before is the least
    return best.where(best.value < found.value - ROUNDING * np.abs(found.value), found)


def _flattest(
    tangent: Callable[[Any], Tangent], left: Tangent, right: Tangent, kink: Tangent
) -> Tangent:
    """Return the lowest of the tangents and of the zero of the slope between them.

    Values say little about lam near a smooth minimum: of equal ones the flattest is taken.
    """
    for _ in range(2):
        turn = np.where(right.slope > left.slope, right.slope - left.slope, np.inf)
        root = tangent(left.lam - (right.lam - left.lam) * np.minimum(left.slope, 0.0) / turn)
        below = root.slope < 0
        left, right = root.where(below, left), root.where(np.logical_not(below), right)
    lowest = np.minimum(np.minimum(left.value, right.value), kink.value)
    found = kink
    for other in (left, right):
        equal = other.value <= lowest + ROUNDING * np.abs(lowest)
        flatter = np.abs(other.slope) < np.abs(found.slope)
        lower = other.value < found.value - ROUNDING * np.abs(lowest)
        found = other.where(lower | (equal & flatter), found)
    return found


def _bracketed(
    tangent: Callable[[Any], Tangent], excess: Any, growth: Any, doubt: float
) -> tuple[Tangent, Tangent]:
    """Return tangents on either side of the least value, close to the start if it is good."""
    left = right = tangent(growth + excess)
    low = high = excess
    reach = doubt
    while True:
        down = (left.slope > 0) & (low > TINY)
        up = (right.slope < 0) & (high < 1 / TINY)
        if not np.any(down | up):
            return left, right
        low = np.where(down, low / (1 + reach), low)
        high = np.where(up, high * (1 + reach), high)
        new = tangent(growth + np.where(down, low, high))
        left, right = (
            new.where(down, right.where(up, left)),
            left.where(down, new.where(up, right)),
        )
        reach *= LONGER


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
    if ball.order == 1:
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

    dear = at(0.0)
    if dear[2] <= delta:
        return dear[0]
    finite = loss[xp.isfinite(loss)]
    cheap = at(min(float(xp.max(finite) - xp.min(finite)) / max(delta, TINY), 1 / TINY))
    for _ in range(STEPS):
        if cheap[2] >= delta or dear[2] <= cheap[2]:
            return cheap[0]
        # the mean loss as a function of the mean price is concave: along its chord
        lam = (dear[1] - cheap[1]) / (dear[2] - cheap[2])
        middle = at(lam)
        level = cheap[1] - lam * cheap[2]
        if middle[1] - lam * middle[2] <= level + ROUNDING * abs(level):
            break
        if middle[2] > delta:
            dear = middle
        else:
            cheap = middle
    share = (delta - cheap[2]) / (dear[2] - cheap[2])
    mass: Array = share * dear[0] + (1 - share) * cheap[0]
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
    return least(tangent, np.where(known, start, guess), growth, rtol, doubt=UNKNOWN)


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
        return np.asarray(growth + np.maximum(slopes, OFF_GROWTH * growth))
    top = loss.lipschitz * np.max(w, axis=0) / (2 * np.sqrt(delta))
    # rows without a slope are moved too once a move is cheap: stay within reach of the bound
    return np.maximum(slopes, LEAST_FIRST * top)


#: How far off the multiplier of a model near by may be, relative to it.
NEAR = 1e-3


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
        doubt = UNKNOWN
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
