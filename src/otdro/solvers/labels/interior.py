r"""A primal-dual interior point method for the largest of smooth pieces.

.. math:: \min_{\theta, b, s, T}\ \delta\lambda + \sum_i \pi_i T_i\quad\text{s.t.}\quad
          T_i - f_{ij}(z_i, s) = \sigma_{ij} \ge 0,\qquad t \ge \|\theta\|_*,

s = (t,) at order 1, where lambda = Lip t, and (t, lambda) at order 2. The multipliers of sigma are
the shares q of the pieces in a row, those of the norm are prices (``norm_rows``); steps are
Mehrotra's, sigma q = mu. Several problems take their steps together, along the last axis of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs

from ...duality.ties import factored
from ..base import duality_gap
from .newton import (
    Place,
    PricedMinimum,
    PricedRows,
    Risk,
    along,
    bound,
    curvature,
    gradient,
    hessian,
)
from .norm_rows import NormLine, NormPoint, NormRows, NormStep
from .pieces import SmoothPieces

Array = NDArray[Any]

#: Steps at most: where they do not do, smoothings are followed.
STEPS = 80
#: The largest and the least first mu, in units of the risk, and of t at order 2 the largest share
#: that it is above the norm.
FIRST, LEAST_FIRST, MOST_ROOM = 0.03, 1e-4, 0.1
#: The share of the way to the boundary that a step takes, and of a slack that curvature may take.
SHORT_OF, LEFT = 0.995, 0.1
#: Pieces that a row does not have are this far below its others, in units of the risk.
FAR_BELOW = 1e3
#: The sum of products, in units of the target, from which on bounds are worth their time.
WORTH = 3.0
#: Corrections of a step towards the central path, the length from which on it needs none, by how
#: much longer one should make it and the share of that which pays, and products still near mu.
CORRECTIONS, LONG, LONGER, WORTHWHILE, SPREAD = 2, 0.9, 0.3, 0.1, 10.0
#: Halvings of a step that leaves the domain of the pieces, or multiplies the sum of the products.
HALVINGS, MOST_GROWTH = 20, 2.0


@dataclass(frozen=True, eq=False)
class Iterate:
    """Points (theta, b, s) with scores and pieces, heights T (n, B), shares q (J, n, B)."""

    theta: Array
    b: Array
    s: Array
    z: Array
    pieces: SmoothPieces
    T: Array
    q: Array
    norm: NormPoint

    def place(self, j: int) -> Place:
        """Return the point of a problem, and its scores."""
        return Place(self.theta[:, j], float(self.b[j]), self.s[:, j], self.z[:, j])

    @property
    def inside(self) -> Array:
        """Whether slacks and shares are positive numbers, and theta is not 0."""
        value = self.pieces.value
        good = np.isfinite(value) & (value < self.T) & (self.q > 0)
        return np.asarray(good.all(axis=(0, 1)) & self.theta.any(axis=0))

    def problems(self, index: Array) -> Iterate:
        """Return the points of some problems."""
        return Iterate(
            self.theta[:, index],
            self.b[index],
            self.s[:, index],
            self.z[:, index],
            self.pieces.problems(index),
            self.T[:, index],
            self.q[:, :, index],
            self.norm.problems(index),
        )


class Step(NamedTuple):
    """The moves of (theta, b, s), scores, heights, slacks (J, n, B), shares, and of the norm."""

    move: Array
    dz: Array
    raised: Array
    ds: Array
    dq: Array
    norm: NormStep


def minimise(
    rows: PricedRows,
    norm: NormRows,
    place: Place,
    risk_of: Risk,
    known: float,
    unit: float,
    target: float,
    max_iter: int,
) -> PricedMinimum | None:
    """Return the minimum of one problem, as ``minimise_each``."""
    alone = rows.beside([rows])
    risk, lam = risk_of(place)
    first = Place(place.theta[:, None], np.array([place.b]), place.s[:, None], place.z[:, None])
    start = (first, np.array([lam]), np.array([risk - known]))
    accuracy = (np.array([unit]), np.array([target]), max_iter)
    return minimise_each(alone, norm, *start, *accuracy)[0]


def minimise_each(
    rows: PricedRows,
    norm: NormRows,
    first: Place,
    lam: Array,
    above: Array,
    unit: Array,
    target: Array,
    max_iter: int,
) -> list[PricedMinimum | None]:
    """Return the minimum of each problem, None where the steps do not get there.

    ``first`` are places of multipliers ``lam``, their risk at most ``above`` over the least one.
    """
    mu = unit * np.clip(above / unit, LEAST_FIRST, FIRST)
    now = _first(rows, norm, first, lam, mu, unit)
    found: list[PricedMinimum | None] = [None] * len(lam)
    left = np.arange(len(lam))
    lower, slopes = np.zeros(len(left)), np.zeros_like(now.z)
    for n_iter in range(1, min(STEPS, max_iter) + 1):
        system = _PricedEquations(rows, norm, now)
        step = system.step()
        near = system.total <= WORTH * target
        for move in (step, None) if near.any() else ():
            value, mean = system.bound(move)
            better = value > lower
            lower = np.where(better, value, lower)
            slopes = np.where(better, mean, slopes)
        risk = rows.rate * now.s[-1] + rows.weighted_sum(now.pieces.value.max(axis=0))
        done = near & (risk - lower <= target)
        for j in np.flatnonzero(done).tolist():
            known = (now.place(j), float(risk[j]), rows.multiplier(now.s[-1, j]))
            gap = duality_gap(risk[j], lower[j])
            found[left[j]] = PricedMinimum(*known, gap, slopes[:, j], n_iter)
        if done.all():
            break
        after, inside = _after(rows, norm, system, step, unit)
        keep = np.flatnonzero(inside & ~done)
        if not len(keep):
            break
        if len(keep) < len(left):
            rows, after = rows.problems(keep), after.problems(keep)
            left, lower, slopes = left[keep], lower[keep], slopes[:, keep]
            unit, target = unit[keep], target[keep]
        now = after
    return found


def _first(
    rows: PricedRows, norm: NormRows, first: Place, lam: Array, mu: Array, unit: Array
) -> Iterate:
    """Return the iterates at places of multipliers lam whose products are about mu."""
    theta, b, z, t = first.theta, first.b, first.z, first.s[0]
    at = norm.begin(theta, _room(rows, z, t, lam, mu), mu)
    s = np.stack([at.t, lam])[: rows.worst.scalars]
    if rows.worst.growth > 0:
        s[-1] = np.where(rows.worst.inside(s), s[-1], 2 * s[0] ** 2 / rows.worst.growth)
    pieces = _pieces(rows, z, s, unit)
    T = pieces.value.max(axis=0) + len(pieces.value) * mu
    q = 1 / (T - pieces.value)
    return Iterate(theta, b, s, z, pieces, T, q / q.sum(axis=0), at)


def _room(rows: PricedRows, z: Array, t: Array, lam: Array, mu: Array) -> Array:
    """Return how far above the norm t is where mu is its product with the price of t."""
    if rows.worst.scalars == 1:
        return np.maximum(lam / rows.loss.lipschitz - t, mu / rows.rate)
    pieces = rows.worst.at(z, rows.y, np.stack([t, lam]))
    top = pieces.value.argmax(axis=0)[None]
    slope = np.take_along_axis(pieces.slope[1], top, axis=0)[0]
    price = rows.weighted_sum(slope)
    most = MOST_ROOM * t
    return np.where(price > 0, np.minimum(mu / np.where(price > 0, price, 1.0), most), most)


def _pieces(rows: PricedRows, z: Array, s: Array, unit: Array) -> SmoothPieces:
    """Return the pieces, those that a row does not have far below the others."""
    found = rows.worst.at(z, rows.y, s)
    least = found.value.max(axis=0) - FAR_BELOW * unit
    return SmoothPieces(
        np.maximum(found.value, least), found.slope, found.bend, found.label, found.kept
    )


class _PricedEquations:
    """Newton's equations of iterates, in (theta, b, s)."""

    def __init__(self, rows: PricedRows, norm: NormRows, now: Iterate) -> None:
        self.rows = rows
        self.now = now
        self.sigma = now.T - now.pieces.value
        self.W = now.q / self.sigma
        self.weight = self.W.sum(axis=0)
        self.share = self.W / self.weight
        self.barrier = norm.share
        self.line: NormLine = norm.linearised(now.theta, now.norm)
        self.total = _total(rows, now)
        d = len(now.theta)
        #: (theta, t) among (theta, b, s)
        self.head = np.append(np.arange(d), d + 1)
        self.factors = [factored(H) for H in np.moveaxis(self._matrix(), -1, 0)]

    @property
    def mu(self) -> Array:
        """The mean products."""
        return np.asarray(self.total / (len(self.sigma) + float(self.barrier.sum())))

    def _matrix(self) -> Array:
        """Return the Hessians of the rows with what the norm adds, (side, side, B)."""
        pieces = self.now.pieces
        mean = (self.share * pieces.slope).sum(axis=1)
        H = hessian(self.rows, curvature(pieces, self.now.q, self.W, mean))
        H[np.ix_(self.head, self.head)] += self.line.matrix
        return H

    def step(self) -> Step:
        """Return Mehrotra's steps: towards the boundary first, then to where that leaves room."""
        now, none = self.now, np.zeros_like(self.total)
        ahead = self._towards(none, np.zeros_like(self.sigma), 0 * now.norm.slack)
        length = self.longest(ahead)
        sigma, q = self.sigma + length * ahead.ds, now.q + length * ahead.dq
        slack, price = now.norm.slack, now.norm.price
        left = self.rows.weighted_sum((sigma * q).sum(axis=0))
        moved = (slack + length * ahead.norm.slack) * (price + length * ahead.norm.price)
        left += moved.sum(axis=0)
        mu = (left / self.total) ** 3 * self.mu
        dropped = ahead.ds * ahead.dq
        head = ahead.norm.slack * ahead.norm.price
        step = self._towards(mu, dropped, head)
        return self._centred(step, mu, dropped, head)

    def _centred(self, step: Step, mu: Array, dropped: Array, head: Array) -> Step:
        """Return the steps, corrected while that makes one of them longer (Gondzio).

        Products that a longer step would leave far from mu are aimed at the nearest that is not.
        """
        now = self.now
        length = self.longest(step)
        short = length < LONG
        for _ in range(CORRECTIONS):
            if not short.any():
                break
            hoped = np.minimum(1.0, length + LONGER)
            ahead = (self.sigma + hoped * step.ds) * (now.q + hoped * step.dq)
            slack = now.norm.slack + hoped * step.norm.slack
            ahead_head = slack * (now.norm.price + hoped * step.norm.price)
            dropped = dropped - _towards_range(ahead, mu)
            head = head - _towards_range(ahead_head, mu * self.barrier)
            corrected = self._towards(mu, dropped, head)
            reached = self.longest(corrected)
            better = short & (reached >= length + WORTHWHILE * LONGER)
            step = _mixed(better, corrected, step)
            length = np.where(better, reached, length)
            short = better & (length < LONG)
        return step

    def _towards(self, mu: Array, products: Array, head: Array) -> Step:
        """Return the steps to sigma q = mu - products, those of the norm mu share - head."""
        rows, now, d = self.rows, self.now, len(self.now.theta)
        slope = now.pieces.slope
        aimed = (mu - products) / self.sigma
        spare = (aimed.sum(axis=0) - 1) / self.weight
        g = gradient(rows, ((aimed - self.W * spare) * slope).sum(axis=1))
        aim = mu * self.barrier - head
        g[self.head] += self.line.force(aim)
        each = zip(self.factors, g.T, strict=True)
        move = np.stack([-dpotrs(A, v, lower=lower)[0] for (A, lower), v in each], axis=-1)
        dz = rows.design.scores(move[:d]) + move[d]
        rise = along(slope, [dz, *move[d + 1 :]])
        raised = (self.share * rise).sum(axis=0) + spare
        ds = raised - rise
        dq = aimed - now.q - self.W * ds
        return Step(move, dz, raised, ds, dq, self.line.step(move[self.head], aim))

    def longest(self, step: Step) -> Array:
        """Return the longest part of each step, at most all of it, that stays inside."""
        now = self.now
        falls = [
            (-step.ds / self.sigma).max(axis=(0, 1)),
            (-step.dq / now.q).max(axis=(0, 1)),
            (-step.norm.slack / now.norm.slack).max(axis=0),
            (-step.norm.price / now.norm.price).max(axis=0),
            -step.move[-1] / now.s[-1],
        ]
        return np.asarray(1 / np.maximum(1.0, np.max(falls, axis=0)))

    def bound(self, step: Step | None) -> tuple[Array, Array]:
        """Return the bounds of the shares and slopes, continued along a step, and mean slopes."""
        now, pieces = self.now, self.now.pieces
        q, a = now.q, pieces.slope[0]
        if step is not None:
            q = q + step.dq
            a = a + along(pieces.bend[0], [step.dz, *step.move[len(now.theta) + 1 :]])
        return bound(self.rows, pieces.label, pieces.kept, q / q.sum(axis=0), a)


def _mixed(better: Array, new: Step, old: Step) -> Step:
    """Return the new steps of some problems, the old ones of the others."""
    if better.all() or not better.any():
        return new if better.all() else old

    def pick(u: Array, v: Array) -> Array:
        return np.where(better, u, v)

    parts = [pick(u, v) for u, v in zip(new[:-1], old[:-1], strict=True)]
    norm = [pick(u, v) for u, v in zip(new.norm, old.norm, strict=True)]
    return Step(*parts, NormStep(*norm))


def _towards_range(products: Array, mu: Any) -> Array:
    """Return the way of products to [mu/SPREAD, SPREAD mu], at most SPREAD mu down."""
    return np.maximum(np.clip(products, mu / SPREAD, SPREAD * mu) - products, -SPREAD * mu)


def _after(
    rows: PricedRows, norm: NormRows, system: _PricedEquations, step: Step, unit: Array
) -> tuple[Iterate, Array]:
    """Return the iterates after steps, shortened where curvature makes the products much larger.

    At rounding, or where a piece is infinite, the steps of a problem end: it is not inside.
    """
    length = np.minimum(1.0, SHORT_OF * system.longest(step))
    for _ in range(HALVINGS):
        after, within = _along(rows, norm, system, step, length, unit)
        good = within & (_total(rows, after) <= MOST_GROWTH * system.total)
        if good.all():
            break
        length = np.where(good, length, length / 2)
    return after, within & after.inside


def _total(rows: PricedRows, now: Iterate) -> Array:
    """Return the sums of the products."""
    products = (now.q * (now.T - now.pieces.value)).sum(axis=0)
    return np.asarray(rows.weighted_sum(products) + now.norm.total)


def _along(
    rows: PricedRows,
    norm: NormRows,
    system: _PricedEquations,
    step: Step,
    length: Array,
    unit: Array,
) -> tuple[Iterate, Array]:
    """Return the iterates after parts of steps, and which are in the domain of the pieces.

    Heights rise by what curvature adds to the pieces in the mean of their shares, and more where
    it took most of a slack. Outside of the domain the scalars stay what they were.
    """
    now, d = system.now, len(system.now.theta)
    theta = now.theta + length * step.move[:d]
    s = now.s + length * step.move[d + 1 :]
    at = norm.after(theta, now.norm, step.norm.shortened(length), s[0])
    s[0] = at.t
    within = rows.worst.inside(s)
    s = np.where(within, s, now.s)
    z = now.z + length * step.dz
    pieces = _pieces(rows, z, s, unit)
    sigma = system.sigma + length * step.ds
    q = now.q + length * step.dq
    T = now.T + length * step.raised
    if len(q) != len(pieces.value):
        q, sigma = _regrouped(q, sigma, pieces.value)
    T = T + (q * (pieces.value + sigma - T)).sum(axis=0) / q.sum(axis=0)
    T = np.maximum(T, (pieces.value + LEFT * sigma).max(axis=0))
    b = now.b + length * step.move[d]
    return Iterate(theta, b, s, z, pieces, T, q, at), within


def _regrouped(q: Array, sigma: Array, value: Array) -> tuple[Array, Array]:
    """Return shares and slacks of pieces whose number per label has changed.

    A label keeps its share and its least slack, from its best piece on; within it products are
    equal.
    """
    shape = value.shape[1:]
    grouped = value.reshape(2, -1, *shape)
    least = sigma.reshape(2, -1, *shape).min(axis=1, keepdims=True)
    slack = least + grouped.max(axis=1, keepdims=True) - grouped
    share = 1 / slack
    share *= q.reshape(2, -1, *shape).sum(axis=1, keepdims=True) / share.sum(axis=1, keepdims=True)
    return share.reshape(-1, *shape), slack.reshape(-1, *shape)
