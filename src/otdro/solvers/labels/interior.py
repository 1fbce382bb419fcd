r"""A primal-dual interior point method for the largest of smooth pieces, under any norm.

.. math:: \min_{\theta, b, s, T}\ \delta\lambda + \sum_i \pi_i T_i\quad\text{s.t.}\quad
          T_i - f_{ij}(z_i, s) = \sigma_{ij} \ge 0,\qquad t \ge \|\theta\|_*.

The multipliers of sigma are the shares q of the pieces in a row, those of the norm are prices
(``norm_rows``). Steps are Mehrotra's, sigma q = mu.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality import factored
from ..exact import duality_gap
from ..norm_rows import NormPoint, NormRows, NormStep
from ..predictor_corrector import SHORT_OF, corrected_step, longest
from .pieces import Minimum, Pieces, Place, PricedRows, along

Array = NDArray[Any]

#: The least and the largest first mu, in units of the risk.
LEAST_FIRST, FIRST = 1e-4, 0.03
#: At order 2 the first t is at most this share above the norm.
MOST_ROOM = 0.1
#: The share of a slack that remains where curvature took more of it.
LEFT = 0.1
#: Pieces that a row does not have are this far below its others, in units of the risk.
FAR_BELOW = 1e3
#: The sum of products, in units of the target, from which on bounds are computed.
WORTH = 3.0
#: Halvings of a step that leaves the domain of the pieces, or multiplies the sum of the products.
HALVINGS = 20
#: Newton steps at most to the least of a barrier problem.
CENTRING = 50
#: The decrease, in units of mu, below which a barrier problem is solved.
CENTRED = 0.1
#: The share of the predicted decrease that such a step must bring.
ARMIJO = 0.1
#: The least mu, in units of the target: smaller ones leave rounding only.
LEAST = 1e-2
#: The length of a step below which the barrier problem is solved instead, at this share of the
#: mean product.
JAMMED, SMALLER = 0.05, 0.1
#: Newton steps to the heights of the rows.
ROOT_STEPS = 8
#: The factor by which a step may increase the sum of the products.
MOST_GROWTH = 2.0


@dataclass(frozen=True, eq=False)
class Iterate:
    """A place with its pieces, heights T (n,), shares q (J, n) and the slacks of the norm."""

    place: Place
    pieces: Pieces
    T: Array
    q: Array
    norm: NormPoint

    @property
    def sigma(self) -> Array:
        """The slacks of the pieces."""
        return np.asarray(self.T - self.pieces.value)

    def total(self, rows: PricedRows) -> float:
        """Return the sum of the products."""
        of_rows = rows.weights @ (self.q * self.sigma).sum(axis=0)
        return float(of_rows) + float(self.norm.total[0])

    @property
    def inside(self) -> bool:
        """Whether slacks and shares are positive numbers, and theta is not 0."""
        value = self.pieces.value
        good = np.isfinite(value) & (value < self.T) & (self.q > 0)
        return bool(good.all() and self.place.theta.any())


class Goal(NamedTuple):
    """The unit of the risk, the gap asked for and the steps at most."""

    unit: float
    target: float
    max_iter: int


class Step(NamedTuple):
    """The moves of (theta, b, s), scores, heights, slacks (J, n), shares, and of the norm.

    ``descent`` is the slope of the barrier problem along it, with the sign of a decrease.
    """

    move: Array
    descent: float
    dz: Array
    raised: Array
    ds: Array
    dq: Array
    norm: NormStep


def minimise(
    rows: PricedRows,
    norm: NormRows,
    start: Place,
    above: float,
    goal: Goal,
) -> Minimum:
    """Return the best place found with its gap.

    ``start`` has a risk of at most ``above`` over the least one.
    """
    unit, target, max_iter = goal
    mu = unit * float(np.clip(above / unit, LEAST_FIRST, FIRST))
    first = _first(rows, norm, start, mu, unit)
    now, solved, n_iter = _centred(rows, norm, first, mu, unit)
    lower, slopes, best = 0.0, np.zeros_like(start.z), None
    while True:
        n_iter += 1
        equations = _Equations(rows, norm, now)
        step = corrected_step(equations, LEAST * target)
        risk = rows.rate * float(now.place.s[-1])
        risk += float(rows.weights @ now.pieces.value.max(axis=0))
        if best is None or risk < best.risk:
            best = Minimum(now.place, risk, rows.worst.rate * now.place.s[-1], np.inf, slopes, 0)
        if equations.total <= WORTH * target:
            for move in (step, None):
                value, mean = equations.bound(move)
                if value > lower:
                    lower, slopes = value, mean
        gap = duality_gap(best.risk, lower)
        if gap <= target or n_iter >= max_iter:
            break
        after, length = _after(equations, step, unit)
        if after is None:
            break
        if length >= JAMMED:
            now, solved = after, True
        else:
            mu = (SMALLER if solved else 1.0) * equations.mean
            now, solved, taken = _centred(rows, norm, now, mu, unit)
            n_iter += taken
    return replace(best, gap=gap, slopes=slopes, n_iter=n_iter)


def _first(rows: PricedRows, norm: NormRows, start: Place, mu: float, unit: float) -> Iterate:
    """Return the iterate at a place whose products are about mu."""
    room = _room(rows, start, mu)
    at = norm.begin(start.theta[:, None], np.array([room]), np.array([mu]))
    s = start.s.copy()
    s[0] = at.t[0]
    if not rows.worst.inside(s):
        s[-1] = 2 * s[0] ** 2 / rows.worst.growth
    return _on_path(rows, replace(start, s=s), _pieces(rows, start.z, s, unit), at, norm, mu)


def _on_path(
    rows: PricedRows, place: Place, pieces: Pieces, at: NormPoint, norm: NormRows, mu: float
) -> Iterate:
    """Return the iterate at a place whose products are all mu: heights with sum mu/sigma = 1."""
    top = pieces.value.max(axis=0)
    behind = top - pieces.value
    h = np.full_like(top, mu)
    for _ in range(ROOT_STEPS):
        # sum mu/(h + behind) is convex and falls: Newton's steps stay below the root
        q = mu / (h + behind)
        h += (q.sum(axis=0) - 1) / (q / (h + behind)).sum(axis=0)
    q = mu / (h + behind)
    return Iterate(
        place, pieces, top + h, q / q.sum(axis=0), replace(at, price=mu * norm.share / at.slack)
    )


def _barrier(rows: PricedRows, norm: NormRows, now: Iterate, mu: float) -> float:
    """Return the objective with the barriers of all slacks at weight mu."""
    heights = now.T - mu * np.log(now.sigma).sum(axis=0)
    outside = mu * float((norm.share * np.log(now.norm.slack)).sum())
    return rows.rate * float(now.place.s[-1]) + float(rows.weights @ heights) - outside


def _centred(
    rows: PricedRows, norm: NormRows, now: Iterate, mu: float, unit: float
) -> tuple[Iterate, bool, int]:
    """Return the least of the barrier problem at mu, whether it was reached, and the steps."""
    now = _on_path(rows, now.place, now.pieces, now.norm, norm, mu)
    value = _barrier(rows, norm, now, mu)
    for n_iter in range(CENTRING):
        equations = _Equations(rows, norm, now)
        step = equations.step(mu)
        if step.descent <= CENTRED * mu:
            return now, True, n_iter
        length = min(1.0, SHORT_OF * equations.longest(step, prices=False))
        for _ in range(HALVINGS):
            after = _along(equations, step, length, unit)
            if after is not None:
                after = _on_path(rows, after.place, after.pieces, after.norm, norm, mu)
                new = _barrier(rows, norm, after, mu)
                if new <= value - ARMIJO * length * step.descent:
                    break
            length /= 2
        else:
            break
        now, value = after, new
    return now, False, n_iter


def _room(rows: PricedRows, start: Place, mu: float) -> float:
    """Return how far above the norm t is where mu is its product with the price of t."""
    w = rows.norm(start.theta)
    if rows.worst.scalars == 1:
        return max(float(start.s[0]) - w, mu / rows.rate)
    pieces = rows.at(start.z, start.s)
    top = pieces.value.argmax(axis=0)[None]
    price = float(rows.weights @ np.take_along_axis(pieces.slope[1], top, axis=0)[0])
    most = MOST_ROOM * w
    return min(mu / price, most) if price > 0 else most


def _pieces(rows: PricedRows, z: Array, s: Array, unit: float) -> Pieces:
    """Return the pieces, those that a row does not have far below the others."""
    pieces = rows.at(z, s)
    least = pieces.value.max(axis=0) - FAR_BELOW * unit
    return replace(pieces, value=np.maximum(pieces.value, least))


def _after(equations: _Equations, step: Step, unit: float) -> tuple[Iterate | None, float]:
    """Return the iterate after a step and its length.

    The step is shortened where curvature makes the products much larger. At rounding, or where a
    piece is infinite, there is no iterate.
    """
    length = min(1.0, SHORT_OF * equations.longest(step))
    for _ in range(HALVINGS):
        after = _along(equations, step, length, unit)
        if after is not None and after.total(equations.rows) <= MOST_GROWTH * equations.total:
            break
        length /= 2
    return (after if after is not None and after.inside else None), length


def _along(equations: _Equations, step: Step, length: float, unit: float) -> Iterate | None:
    """Return the iterate after a part of a step, None outside of the domain of the pieces.

    Heights rise by what curvature adds to the pieces in the mean of their shares, and more where
    it took most of a slack.
    """
    rows, now = equations.rows, equations.now
    place, d = now.place, len(now.place.theta)
    theta = place.theta + length * step.move[:d]
    s = place.s + length * step.move[d + 1 :]
    at = equations.norm.after(
        theta[:, None], now.norm, step.norm.shortened(length), np.array([s[0]])
    )
    s[0] = at.t[0]
    if not rows.worst.inside(s):
        return None
    z = place.z + length * step.dz
    pieces = _pieces(rows, z, s, unit)
    sigma = now.sigma + length * step.ds
    q = now.q + length * step.dq
    T = now.T + length * step.raised
    if len(q) != len(pieces.value):
        q, sigma = _regrouped(q, sigma, pieces.value)
    elif not np.array_equal(pieces.there, now.pieces.there):
        some = (pieces.there != now.pieces.there).any(axis=0)
        q[:, some], sigma[:, some] = _regrouped(q[:, some], sigma[:, some], pieces.value[:, some])
    T = T + (q * (pieces.value + sigma - T)).sum(axis=0) / q.sum(axis=0)
    T = np.maximum(T, (pieces.value + LEFT * sigma).max(axis=0))
    b = place.b + length * float(step.move[d])
    return Iterate(Place(theta, b, s, z), pieces, T, q, at)


def _regrouped(q: Array, sigma: Array, value: Array) -> tuple[Array, Array]:
    """Return shares and slacks of rows of which some pieces are new or gone.

    A label keeps its share and its least slack, from its best piece on; within it products are
    equal.
    """
    n = value.shape[1]
    grouped = value.reshape(2, -1, n)
    least = sigma.reshape(2, -1, n).min(axis=1, keepdims=True)
    slack = least + grouped.max(axis=1, keepdims=True) - grouped
    share = 1 / slack
    share *= q.reshape(2, -1, n).sum(axis=1, keepdims=True) / share.sum(axis=1, keepdims=True)
    return share.reshape(-1, n), slack.reshape(-1, n)


class _Equations:
    """Newton's equations of an iterate, in (theta, b, s)."""

    def __init__(self, rows: PricedRows, norm: NormRows, now: Iterate) -> None:
        self.rows, self.norm, self.now = rows, norm, now
        self.sigma = now.sigma
        self.W = now.q / self.sigma
        self.weight = self.W.sum(axis=0)
        self.share = self.W / self.weight
        theta = now.place.theta
        self.line = norm.linearised(theta[:, None], now.norm)
        self.total = now.total(rows)
        self.count = len(self.sigma) + float(norm.share.sum())
        self.mean = self.total / self.count
        #: (theta, t) among (theta, b, s)
        self.head = np.append(np.arange(len(theta)), len(theta) + 1)
        # sum q f'' + W (f' - mean)(f' - mean)' of every row
        pieces = now.pieces
        off = pieces.slope - (self.share * pieces.slope).sum(axis=1)[:, None]
        bend = np.einsum("kjn,ljn->kln", self.W * off, off)
        bend += np.einsum("jn,kljn->kln", now.q, pieces.bend)
        H = rows.hessian(bend)
        H[np.ix_(self.head, self.head)] += self.line.matrix[:, :, 0]
        self.factor = factored(H)

    def mean_after(self, step: Step, length: float) -> float:
        """Return the mean product after a part of a step."""
        now = self.now
        sigma = self.sigma + length * step.ds
        q = now.q + length * step.dq
        slack = now.norm.slack + length * step.norm.slack
        price = now.norm.price + length * step.norm.price
        left = float(self.rows.weights @ (sigma * q).sum(axis=0)) + float((slack * price).sum())
        return left / self.count

    def step(self, mu: float, last: Step | None = None, length: float = 1.0) -> Step:
        """Return the step to products mu, times their share for the norm, less those of a last."""
        rows, now, d = self.rows, self.now, len(self.now.place.theta)
        products = np.zeros_like(now.q)
        aim = mu * self.norm.share + np.zeros_like(now.norm.slack)
        if last is not None:
            products = last.ds * last.dq
            aim = aim - last.norm.slack * last.norm.price
        slope = now.pieces.slope
        aimed = (mu - products) / self.sigma
        spare = (aimed.sum(axis=0) - 1) / self.weight
        g = rows.gradient(((aimed - self.W * spare) * slope).sum(axis=1))
        g[self.head] += self.line.force(aim)[:, 0]
        move = -np.asarray(cho_solve(self.factor, g, check_finite=False))
        dz = rows.design.scores(move[:d]) + move[d]
        rise = along(slope, [dz, *move[d + 1 :]])
        raised = (self.share * rise).sum(axis=0) + spare
        ds = raised - rise
        dq = aimed - now.q - self.W * ds
        of_norm = self.line.step(move[self.head, None], aim)
        return Step(move, -float(g @ move), dz, raised, ds, dq, of_norm)

    def longest(self, step: Step, prices: bool = True) -> float:
        """Return the longest part of a step, at most all of it, that stays inside.

        Without ``prices`` heights and prices are free.
        """
        now, norm = self.now, self.now.norm
        pairs = [(norm.slack, step.norm.slack), (now.place.s[-1:], step.move[-1:])]
        if prices:
            pairs += [(self.sigma, step.ds), (now.q, step.dq), (norm.price, step.norm.price)]
        return min(1.0, longest(*pairs))

    def bound(self, step: Step | None) -> tuple[float, Array]:
        """Return the bound of shares and slopes, continued along a step, and mean slopes."""
        now, pieces = self.now, self.now.pieces
        q, a = now.q, pieces.slope[0]
        if step is not None:
            q = q + step.dq
            a = a + along(pieces.bend[0], [step.dz, *step.move[len(now.place.theta) + 1 :]])
        return self.rows.bound(pieces.label, pieces.kept, q / q.sum(axis=0), a)
