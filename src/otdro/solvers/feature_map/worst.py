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
from functools import cached_property
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
    exact = problem.geometry == "local" and problem.ball.cost.linearised
    kind = LinearisedSearch if exact else PlaceSearch
    search = kind(problem, rows, coef, intercept, known or [], slack)
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
        """Return the places with the best distribution over them, by its dual in lam.

        Where the supremum is not attained, as mass would go ever farther, the ``dual`` at the best
        lam is above what the places reach.
        """
        each = np.arange(len(self.rows.X))
        near = [self._within(U) for U in self.places]
        points = np.stack(near, axis=1)
        z = points @ self.beta + self.b
        loss = self.rows.loss.value(z, np.broadcast_to(self.rows.y[:, None], z.shape))
        prices = [self.rows.price(U) for U in near]
        price = np.stack(prices, axis=1)

        def tangent(lam: float) -> Tangent:
            gain = loss - lam * price
            best = gain.argmax(axis=1)
            value = lam * self.delta + float(self.weights @ gain[each, best])
            return Tangent(lam, value, self.delta - float(self.weights @ price[each, best]))

        found = least(tangent, dual.lam)
        if found.value < (1 - ATTAINED) * dual.value:
            found = dual
        return LocalWorst(found.value, found.lam, max(upper, found.value), points, loss, price)

    def _within(self, U: Array) -> Array:
        """Return the places, the row itself where the price is beyond what a sum can resolve."""
        price = self.rows.price(U)
        return np.where((price <= FAR_PRICE * self.delta)[:, None], U, self.rows.X)


class LinearisedSearch(PlaceSearch):
    """The places of a linearised cost, whose inner maxima are known: x + s A^-1 beta/w^2."""

    @cached_property
    def w(self) -> Array:
        """The dual norm of beta at every row."""
        return np.sqrt(self.rows.push(self.beta) @ self.beta)

    @property
    def growth(self) -> float:  # type: ignore[override]
        """The lam beyond which every inner supremum is finite."""
        return least_finite(self.rows.loss, self.w)

    def maxima(self, lam: float) -> list[Array]:
        """Return the maxima of both branches of a row."""
        rows = self.rows
        inner = rows.loss.inner(rows.X @ self.beta + self.b, rows.y, self.w, lam)
        shifts = np.where(np.isfinite(inner.value), inner.shift, inner.shift[0])
        push = rows.push(self.beta)
        return [rows.X + (s / self.w**2)[:, None] * push for s in shifts]

    def wide(self, lam: float) -> float:
        """Return the dual itself: every maximum is known."""
        self.places += self.maxima(lam)
        return self.value(lam)
