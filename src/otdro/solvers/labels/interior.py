r"""A primal-dual interior point method for the largest of smooth pieces.

.. math:: \min_{\theta, b, s, T}\ \delta\lambda + \sum_i \pi_i T_i\quad\text{s.t.}\quad
          T_i - f_{ij}(z_i, s) = \sigma_{ij} \ge 0,\qquad t \ge \|\theta\|_*,

s = (t,) at order 1, where lambda = Lip t, and (t, lambda) at order 2. The multipliers of sigma are
the shares q of the pieces in a row, those of the norm are prices (``norm_rows``); steps are
Mehrotra's, sigma q = mu.
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
    """A point (theta, b, s) with its scores and pieces, heights T (n,), shares q (J, n)."""

    theta: Array
    b: float
    s: Array
    z: Array
    pieces: SmoothPieces
    T: Array
    q: Array
    norm: NormPoint

    @property
    def place(self) -> Place:
        """The point and its scores."""
        return Place(self.theta, self.b, self.s, self.z)

    @property
    def inside(self) -> bool:
        """Whether slacks and shares are positive numbers, and theta is not 0."""
        value = self.pieces.value
        good = np.isfinite(value).all() and (value < self.T).all() and (self.q > 0).all()
        return bool(good and self.theta.any())


class Step(NamedTuple):
    """The moves of (theta, b, s), scores, heights, slacks (J, n), shares, and of the norm."""

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
    """Return the minimum from a place, None where the steps do not get there.

    ``known`` is a lower bound of the least risk.
    """
    risk, lam = risk_of(place)
    mu = unit * float(np.clip((risk - known) / unit, LEAST_FIRST, FIRST))
    now = _first(rows, norm, place, lam, mu, unit)
    lower, slopes = 0.0, np.zeros_like(place.z)
    for n_iter in range(1, min(STEPS, max_iter) + 1):
        system = _PricedEquations(rows, norm, now)
        step = system.step()
        if system.total <= WORTH * target:
            risk, lam = risk_of(now.place)
            for move in (step, None):
                value, mean = system.bound(move)
                if value > lower:
                    lower, slopes = value, mean
            if risk - lower <= target:
                gap = duality_gap(risk, lower)
                return PricedMinimum(now.place, risk, lam, gap, slopes, n_iter)
        after = _after(rows, norm, system, step, unit)
        if after is None:
            return None
        now = after
    return None


def _first(
    rows: PricedRows, norm: NormRows, place: Place, lam: float, mu: float, unit: float
) -> Iterate:
    """Return the iterate at a place of multiplier lam whose products are about mu."""
    at = norm.begin(place.theta, _room(rows, place, lam, mu), mu)
    s = np.array([at.t, lam])[: rows.worst.scalars]
    if not rows.worst.inside(s):
        s[-1] = 2 * s[0] ** 2 / rows.worst.growth
    pieces = _pieces(rows, place.z, s, unit)
    T = pieces.value.max(axis=0) + len(pieces.value) * mu
    q = 1 / (T - pieces.value)
    return Iterate(place.theta, place.b, s, place.z, pieces, T, q / q.sum(axis=0), at)


def _room(rows: PricedRows, place: Place, lam: float, mu: float) -> float:
    """Return t above the norm where mu is its product with the price of t."""
    if rows.worst.scalars == 1:
        t = lam / rows.loss.lipschitz
        return max(t - float(place.s[0]), mu / rows.rate)
    pieces = rows.worst.at(place.z, rows.y, np.array([place.s[0], lam]))
    top = pieces.value.argmax(axis=0)[None]
    slope = np.take_along_axis(pieces.slope[1], top, axis=0)[0]
    price = float(rows.weights @ slope)
    most = MOST_ROOM * float(place.s[0])
    return min(mu / price, most) if price > 0 else most


def _pieces(rows: PricedRows, z: Array, s: Array, unit: float) -> SmoothPieces:
    """Return the pieces, those that a row does not have far below the others."""
    found = rows.worst.at(z, rows.y, s)
    least = found.value.max(axis=0) - FAR_BELOW * unit
    return SmoothPieces(
        np.maximum(found.value, least), found.slope, found.bend, found.label, found.kept
    )


class _PricedEquations:
    """Newton's equations of one iterate, in (theta, b, s)."""

    def __init__(self, rows: PricedRows, norm: NormRows, now: Iterate) -> None:
        self.rows = rows
        self.now = now
        self.sigma = now.T - now.pieces.value
        self.W = now.q / self.sigma
        self.weight = self.W.sum(axis=0)
        self.share = self.W / self.weight
        self.barrier = norm.share
        self.line: NormLine = norm.linearised(now.theta, now.norm)
        self.total = float(rows.weights @ (now.q * self.sigma).sum(axis=0)) + now.norm.total
        d = len(now.theta)
        #: (theta, t) among (theta, b, s)
        self.head = np.append(np.arange(d), d + 1)
        self.factor = factored(self._matrix())

    @property
    def mu(self) -> float:
        """The mean product."""
        return self.total / (len(self.sigma) + float(self.barrier.sum()))

    def _matrix(self) -> Array:
        """Return the Hessian of the rows with what the norm adds."""
        pieces = self.now.pieces
        mean = (self.share * pieces.slope).sum(axis=1)
        H = hessian(self.rows, curvature(pieces, self.now.q, self.W, mean))
        H[np.ix_(self.head, self.head)] += self.line.matrix
        return H

    def step(self) -> Step:
        """Return Mehrotra's step: towards the boundary first, then to where that leaves room."""
        now = self.now
        ahead = self._towards(0.0, np.zeros_like(self.sigma), 0 * self.barrier)
        length = self.longest(ahead)
        sigma, q = self.sigma + length * ahead.ds, now.q + length * ahead.dq
        left = float(self.rows.weights @ (sigma * q).sum(axis=0))
        slack, price = now.norm.slack, now.norm.price
        left += float((slack + length * ahead.norm.slack) @ (price + length * ahead.norm.price))
        mu = (left / self.total) ** 3 * self.mu
        dropped = ahead.ds * ahead.dq
        head = ahead.norm.slack * ahead.norm.price
        step = self._towards(mu, dropped, head)
        return self._centred(step, mu, dropped, head)

    def _centred(self, step: Step, mu: float, dropped: Array, head: Array) -> Step:
        """Return the step, corrected while that makes it longer (Gondzio).

        Products that a longer step would leave far from mu are aimed at the nearest that is not.
        """
        now = self.now
        length = self.longest(step)
        for _ in range(CORRECTIONS):
            if length >= LONG:
                break
            hoped = min(1.0, length + LONGER)
            ahead = (self.sigma + hoped * step.ds) * (now.q + hoped * step.dq)
            slack = now.norm.slack + hoped * step.norm.slack
            ahead_head = slack * (now.norm.price + hoped * step.norm.price)
            dropped = dropped - _towards_range(ahead, mu)
            head = head - _towards_range(ahead_head, mu * self.barrier)
            corrected = self._towards(mu, dropped, head)
            reached = self.longest(corrected)
            if reached < length + WORTHWHILE * LONGER:
                break
            step, length = corrected, reached
        return step

    def _towards(self, mu: float, products: Array, head: Array) -> Step:
        """Return the step to sigma q = mu - products, those of the norm mu share - head."""
        rows, now, d = self.rows, self.now, len(self.now.theta)
        slope = now.pieces.slope
        aimed = (mu - products) / self.sigma
        spare = (aimed.sum(axis=0) - 1) / self.weight
        g = gradient(rows, ((aimed - self.W * spare) * slope).sum(axis=1))
        aim = mu * self.barrier - head
        g[self.head] += self.line.force(aim)
        move = -dpotrs(self.factor[0], g, lower=self.factor[1])[0]
        dz = rows.design.scores(move[:d]) + move[d]
        rise = along(slope, [dz, *move[d + 1 :]])
        raised = (self.share * rise).sum(axis=0) + spare
        ds = raised - rise
        dq = aimed - now.q - self.W * ds
        return Step(move, dz, raised, ds, dq, self.line.step(move[self.head], aim))

    def longest(self, step: Step) -> float:
        """Return the longest part of a step, at most all of it, that stays inside."""
        now = self.now
        falls = [
            np.max(-step.ds / self.sigma),
            np.max(-step.dq / now.q),
            np.max(-step.norm.slack / now.norm.slack),
            np.max(-step.norm.price / now.norm.price),
            float(-step.move[-1] / now.s[-1]),
        ]
        return float(1 / max(1.0, *falls))

    def bound(self, step: Step | None) -> tuple[float, Array]:
        """Return the bound of the shares and slopes, continued along a step, and mean slopes."""
        now, pieces = self.now, self.now.pieces
        q, a = now.q, pieces.slope[0]
        if step is not None:
            q = q + step.dq
            a = a + along(pieces.bend[0], [step.dz, *step.move[len(now.theta) + 1 :]])
        return bound(self.rows, pieces.label, pieces.kept, q / q.sum(axis=0), a)


def _towards_range(products: Array, mu: Any) -> Array:
    """Return the way of products to [mu/SPREAD, SPREAD mu], at most SPREAD mu down."""
    return np.maximum(np.clip(products, mu / SPREAD, SPREAD * mu) - products, -SPREAD * mu)


def _after(
    rows: PricedRows, norm: NormRows, system: _PricedEquations, step: Step, unit: float
) -> Iterate | None:
    """Return the iterate after a step, shortened where curvature makes the products much larger."""
    length = min(1.0, SHORT_OF * system.longest(step))
    for _ in range(HALVINGS):
        after = _along(rows, norm, system, step, length, unit)
        if after is not None and _total(rows, after) <= MOST_GROWTH * system.total:
            break
        length /= 2
    # at rounding, or where a piece is infinite, the steps end
    return after if after is not None and after.inside else None


def _total(rows: PricedRows, now: Iterate) -> float:
    """Return the sum of the products."""
    return float(rows.weights @ (now.q * (now.T - now.pieces.value)).sum(axis=0)) + now.norm.total


def _along(
    rows: PricedRows,
    norm: NormRows,
    system: _PricedEquations,
    step: Step,
    length: float,
    unit: float,
) -> Iterate | None:
    """Return the iterate after a part of a step, None outside the domain of the pieces.

    Heights rise by what curvature adds to the pieces in the mean of their shares, and more where
    it took most of a slack.
    """
    now, d = system.now, len(system.now.theta)
    theta = now.theta + length * step.move[:d]
    s = now.s + length * step.move[d + 1 :]
    at = norm.after(theta, now.norm, step.norm.shortened(length), float(s[0]))
    s[0] = at.t
    if not rows.worst.inside(s):
        return None
    z = now.z + length * step.dz
    pieces = _pieces(rows, z, s, unit)
    sigma = system.sigma + length * step.ds
    q = now.q + length * step.dq
    T = now.T + length * step.raised
    if len(q) != len(pieces.value):
        q, sigma = _regrouped(q, sigma, pieces.value)
    T = T + (q * (pieces.value + sigma - T)).sum(axis=0) / q.sum(axis=0)
    T = np.maximum(T, (pieces.value + LEFT * sigma).max(axis=0))
    b = now.b + length * float(step.move[d])
    return Iterate(theta, b, s, z, pieces, T, q, at)


def _regrouped(q: Array, sigma: Array, value: Array) -> tuple[Array, Array]:
    """Return shares and slacks of pieces whose number per label has changed.

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
