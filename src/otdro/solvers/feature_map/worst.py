r"""The worst-case risk of a model under a cost that is no norm: one evaluation for all who ask.

.. math:: \min_{\lambda \ge 0}\ \lambda\delta + \sum_i \pi_i \max_u
          \{\ell(u'\beta + b, y_i) - \lambda c(u, x_i)\}

The maxima met on the way over lam are places for the rows. The risk stated is that of the best
distribution over these places within the budget: it is attained, and a bound below. A bound above
comes from the local matrices where the cost is linearised; where the features are quadratic, from
boxes if the columns are few, else from the linear terms alone, far above; else none is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import Tangent, best_multiplier, first_multiplier, least, least_finite
from ...problem import Problem
from . import boxes
from .boxes import linear_part
from .geometry import local_rows
from .inner_ascent import LocalRows, ascend_from, best_of, far_starts, next_starts

Array = NDArray[Any]

#: Ascent steps to a maximum.
STEPS = 200
#: Searches far off, each followed by the best lam for the places found.
SEARCHES = 4
#: The precision of the least value over lam, and what a search must add to count, relative.
PRECISION, MORE = 1e-10, 1e-9
#: Prices that count, relative to delta: gains are differences of losses and prices.
FAR_PRICE = 1e9
#: What the places may reach less than the dual, relative to it, for a supremum that is attained.
ATTAINED = 1e-8
#: The bound from boxes is sought to this share of the risk.
BOX_SLACK = 3e-7


@dataclass(frozen=True, eq=False)
class LocalWorst:
    """The worst-case ``risk`` found, its ``multiplier``, an ``upper`` bound (inf: none is known).

    ``points`` of shape (n, k, d) are the places of the rows, the row first, with ``loss`` and
    ``price`` of shape (n, k); the risk is the largest over masses on them within the budget.
    """

    risk: float
    multiplier: float
    upper: float
    points: Array
    loss: Array
    price: Array


def worst_risk(problem: Problem, coef: Array, intercept: float, start: float = 0.0) -> LocalWorst:
    """Return the worst case of a model; ``start`` is where to look for lam first, if positive."""
    rows = local_rows(problem, Design(problem.X).dense())
    return worst_of_rows(problem, rows, coef, intercept, start)


def worst_of_rows(
    problem: Problem,
    rows: LocalRows,
    coef: Array,
    intercept: float,
    start: float = 0.0,
    known: list[Array] | None = None,
    slack: float = BOX_SLACK,
) -> LocalWorst:
    """Return the worst case of a model for rows with their cost, from places known if given."""
    if problem.ball.delta == 0 or not np.any(coef):
        return _unmoved(problem, rows, coef, intercept)
    if problem.geometry == "local" and problem.ball.cost.linearised:
        return worst_linearised(problem, rows, coef, intercept, start)
    search = PlaceSearch(problem, rows, coef, intercept, known or [], slack)
    lam = search.first(start)
    upper = np.inf
    for _ in range(SEARCHES):
        found = least(search.tangent, lam, search.growth, PRECISION)
        before = search.value(found.lam)
        upper = search.wide(found.lam)
        lam = found.lam
        if search.value(lam) <= before + MORE * abs(before):
            break
    return search.best_masses(found, upper)


def _unmoved(problem: Problem, rows: LocalRows, coef: Array, intercept: float) -> LocalWorst:
    """Return the rows where they are: nothing may move, or no move changes a score."""
    loss = problem.loss.value(rows.X @ coef + intercept, problem.y)
    risk = float(problem.weights @ loss)
    return LocalWorst(risk, 0.0, risk, rows.X[:, None], loss[:, None], np.zeros((len(loss), 1)))


class PlaceSearch:
    """Places of the rows met while lam varies, by ascent."""

    growth = 0.0

    def __init__(
        self,
        problem: Problem,
        rows: LocalRows,
        beta: Array,
        b: float,
        known: list[Array],
        slack: float,
    ) -> None:
        self.slack = slack
        self.problem, self.rows, self.beta, self.b = problem, rows, beta, b
        self.delta, self.weights = problem.ball.delta, problem.weights
        self.places = [rows.X, *known]
        self.far = list(known)
        self.last: list[Array] = []

    def first(self, start: float) -> float:
        """Return a lam to start from: the linearised cost's, were slopes as at the row."""
        if start > self.growth:
            return start
        z = self.rows.X @ self.beta + self.b
        w = np.sqrt(self.rows.push(self.beta) @ self.beta)
        return first_multiplier(z, self.rows.y, self.weights, self.rows.loss, w, self.delta)

    def maxima(self, lam: float) -> list[Array]:
        """Return maxima near the rows, from those at the last lam on, and from far places known."""
        starts = [*next_starts(self.rows, self.last, self.beta, self.b, lam), *self.far]
        self.last = ascend_from(self.rows, starts, self.beta, self.b, lam, STEPS)
        return self.last

    def tangent(self, lam: float) -> Tangent:
        """Return the dual at lam; its slope is delta - E c at the maxima."""
        U = best_of(self.rows, self.maxima(lam), self.beta, self.b, lam)
        price = self.rows.price(U)
        if not price.any():
            # no move near the rows pays: a far one may, and from another lam on others do
            self.last = []
            self.wide(lam)
            U = self.places[-1]
            price = self.rows.price(U)
        self.places.append(U)
        gain = self.rows.gain(U, self.beta, self.b, lam)
        value = lam * self.delta + float(self.weights @ gain)
        return Tangent(lam, value, self.delta - float(self.weights @ price))

    def value(self, lam: float) -> float:
        """Return the dual at lam over the places met."""
        gains = [self.rows.gain(U, self.beta, self.b, lam) for U in self.places]
        return lam * self.delta + float(self.weights @ np.max(gains, axis=0))

    def wide(self, lam: float) -> float:
        """Search far off at lam, and return an upper bound on the risk, inf where none is known."""
        rows, beta, b = self.rows, self.beta, self.b
        known = best_of(rows, self.places, beta, b, lam)
        gain = rows.gain(known, beta, b, lam)
        slack = self.slack * abs(self.value(lam))
        found = boxes.bounds(rows, beta, b, lam, gain, slack)
        starts = far_starts(rows, beta, b, lam) if found is None else [found.points]
        ends = ascend_from(rows, starts, beta, b, lam, STEPS)
        best = best_of(rows, [known, *ends], beta, b, lam)
        self.places.append(best)
        self.far.append(best)
        if found is None:
            return self.linear_terms()
        return lam * self.delta + float(self.weights @ found.upper)

    def linear_terms(self) -> float:
        """Return the risk were only linear terms charged, at their least: a bound above.

        With e = u - x and the products q, P >= e'Se, S what Lam leaves of its block of linear
        terms at the best q. Of features that are not quadratic nothing is known.
        """
        metric, rows = self.rows.metric, self.rows
        if metric is None:
            return np.inf
        S = linear_part(metric, len(self.beta))
        w = float(np.sqrt(self.beta @ np.linalg.solve(S, self.beta)))
        z = rows.X @ self.beta + self.b
        found = best_multiplier(z, rows.y, self.weights, rows.loss, w, self.delta)
        return found.value

    def best_masses(self, dual: Tangent, upper: float) -> LocalWorst:
        """Return the places with the best distribution over them, by its dual in lam."""
        near = [self._within(U) for U in self.places]
        points = np.stack(near, axis=1)
        z = points @ self.beta + self.b
        loss = self.rows.loss.value(z, np.broadcast_to(self.rows.y[:, None], z.shape))
        price = np.stack([self.rows.price(U) for U in near], axis=1)
        reached = over_places(self.weights, self.delta, loss, price, dual)
        upper = max(upper, reached.value)
        return LocalWorst(reached.value, reached.lam, upper, points, loss, price)

    def _within(self, U: Array) -> Array:
        """Return the places, the row itself where the price is beyond what a sum can resolve."""
        price = self.rows.price(U)
        return np.where((price <= FAR_PRICE * self.delta)[:, None], U, self.rows.X)


def worst_linearised(
    problem: Problem, rows: LocalRows, beta: Array, b: float, start: float
) -> LocalWorst:
    """Return the worst case under (u - x)'A(u - x), whose inner maxima are x + s A^-1 beta/w^2.

    The price of such a move is s^2/w^2, so that nothing but scores is searched. The shifts met on
    either side of the best lam are the places of the rows.
    """
    loss, y, weights, delta = problem.loss, problem.y, problem.weights, problem.ball.delta
    z = rows.X @ beta + b
    push = np.linalg.solve(rows.A, np.broadcast_to(beta[:, None], (len(z), len(beta), 1)))[..., 0]
    w = np.sqrt(push @ beta)
    shifts = [np.zeros_like(z)]

    def tangent(lam: float) -> Tangent:
        inner = loss.inner(z, y, w, lam)
        shifts.extend(np.where(np.isfinite(inner.value), inner.shift, inner.shift[0]))
        best = inner.best
        value = lam * delta + float(weights @ best.value)
        return Tangent(lam, value, delta - float(weights @ (best.shift / w) ** 2))

    growth = least_finite(loss, w)
    first = start if start > growth else first_multiplier(z, y, weights, loss, w, delta)
    dual = least(tangent, first, growth)
    shift = np.stack(shifts, axis=1)
    price = (shift / w[:, None]) ** 2
    near = price <= FAR_PRICE * delta
    shift, price = np.where(near, shift, 0.0), np.where(near, price, 0.0)
    points = rows.X[:, None] + (shift / w[:, None] ** 2)[..., None] * push[:, None]
    losses = loss.value(z[:, None] + shift, np.broadcast_to(y[:, None], shift.shape))
    reached = over_places(weights, delta, losses, price, dual)
    upper = max(dual.value, reached.value)
    return LocalWorst(reached.value, reached.lam, upper, points, losses, price)


def over_places(weights: Array, delta: float, loss: Array, price: Array, dual: Tangent) -> Tangent:
    """Return the dual over places with ``loss`` and ``price`` (n, k), its multiplier the best one.

    Where the supremum is not attained, as mass would go ever farther, the ``dual`` at the best
    lam is above what the places reach, and is returned.
    """
    each = np.arange(len(loss))

    def tangent(lam: float) -> Tangent:
        gain = loss - lam * price
        best = gain.argmax(axis=1)
        value = lam * delta + float(weights @ gain[each, best])
        return Tangent(lam, value, delta - float(weights @ price[each, best]))

    reached = least(tangent, dual.lam)
    return dual if reached.value < (1 - ATTAINED) * dual.value else reached
