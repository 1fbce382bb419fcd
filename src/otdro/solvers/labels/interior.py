r"""A primal-dual interior point method for the largest of smooth pieces.

.. math:: \min_{\theta, b, s, T}\ \delta\lambda + \sum_i \pi_i T_i\quad\text{s.t.}\quad
          T_i - f_{ij}(z_i, s) = \sigma_{ij} \ge 0,\qquad t \ge \|\theta\|_*,

s = (t,) at order 1, where lambda = Lip t, and (t, lambda) at order 2. The multipliers of sigma are
the shares q of the pieces in a row, those of the norm are prices (``norm_rows``); steps are
Mehrotra's, sigma q = mu. Several problems take their steps together, along the last axis of arrays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import duality_gap
from ..norm_rows import NormRows
from .equations import Iterate, PricedEquations, Step, total_of
from .pieces import SmoothPieces
from .priced_rows import Accuracy, Place, PricedMinimum, PricedRows, Risk

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
#: Halvings of a step that leaves the domain of the pieces, or multiplies the sum of the products.
HALVINGS, MOST_GROWTH = 20, 2.0


def minimise(
    rows: PricedRows,
    norm: NormRows,
    place: Place,
    risk_of: Risk,
    known: float,
    accuracy: Accuracy,
) -> PricedMinimum | None:
    """Return the minimum of one problem, as ``minimise_each``; ``known`` bounds the least risk."""
    alone = rows.beside([rows])
    risk, lam = risk_of(place)
    first = Place(place.theta[:, None], np.array([place.b]), place.s[:, None], place.z[:, None])
    start = (first, np.array([lam]), np.array([risk - known]))
    each = Accuracy(np.array([accuracy.unit]), np.array([accuracy.target]), accuracy.max_iter)
    return minimise_each(alone, norm, *start, each)[0]


def minimise_each(
    rows: PricedRows, norm: NormRows, first: Place, lam: Array, above: Array, accuracy: Accuracy
) -> list[PricedMinimum | None]:
    """Return the minimum of each problem, None where the steps do not get there.

    ``first`` are places of multipliers ``lam``, their risk at most ``above`` over the least one.
    """
    unit, target, max_iter = accuracy
    mu = unit * np.clip(above / unit, LEAST_FIRST, FIRST)
    now = _first(rows, norm, first, lam, mu, unit)
    found: list[PricedMinimum | None] = [None] * len(lam)
    left = np.arange(len(lam))
    lower, slopes = np.zeros(len(left)), np.zeros_like(now.z)
    for n_iter in range(1, min(STEPS, max_iter) + 1):
        system = PricedEquations(rows, norm, now)
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
        after, inside = _after(system, step, unit)
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
    return replace(found, value=np.maximum(found.value, least))


def _after(system: PricedEquations, step: Step, unit: Array) -> tuple[Iterate, Array]:
    """Return the iterates after steps, shortened where curvature makes the products much larger.

    At rounding, or where a piece is infinite, the steps of a problem end: it is not inside.
    """
    length = np.minimum(1.0, SHORT_OF * system.longest(step))
    for _ in range(HALVINGS):
        after, within = _along(system, step, length, unit)
        good = within & (total_of(system.rows, after) <= MOST_GROWTH * system.total)
        if good.all():
            break
        length = np.where(good, length, length / 2)
    return after, within & after.inside


def _along(
    system: PricedEquations, step: Step, length: Array, unit: Array
) -> tuple[Iterate, Array]:
    """Return the iterates after parts of steps, and which are in the domain of the pieces.

    Heights rise by what curvature adds to the pieces in the mean of their shares, and more where
    it took most of a slack. Outside of the domain the scalars stay what they were.
    """
    rows, now, d = system.rows, system.now, len(system.now.theta)
    theta = now.theta + length * step.move[:d]
    s = now.s + length * step.move[d + 1 :]
    at = system.norm.after(theta, now.norm, step.norm.shortened(length), s[0])
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
