r"""The worst case of a model under a cost that is no norm, by local ascent.

.. math:: \min_{\lambda \ge 0}\ \lambda\delta + \sum_i \pi_i \max_u
          \{\ell(u'\beta + b, y_i) - \lambda c(u, x_i)\}

The inner problem is not concave: ascent starts from the maxima under the local matrix A(x_i), from
the row and from places far off, and every end is kept. The maxima met on the way over lam are
places for the rows. The risk stated is that of the best distribution over these places within the
budget: it is attained, and a bound below. Only a linearised cost, whose maxima are known, has a
bound above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import TINY
from ..costs import Cost
from ..design import Design
from ..duality import (
    EQUAL,
    FIRST_STEP,
    STEPS,
    TRIES,
    Tangent,
    best_multiplier,
    first_multiplier,
    least,
    place_masses,
)
from ..losses import Loss
from ..problem import Ball, Problem

Array = NDArray[Any]

#: The first step of a difference, in standard deviations of its column.
STEP = 0.1
#: The least power of the length of a move that a cost is taken to grow by.
LEAST_DEGREE = 0.5
#: The least eigenvalue of a local matrix, relative to its largest.
LEAST_EIGENVALUE = 1e-3
#: Multiples of lam under whose linearised maxima ascents start: the smaller, the farther.
NEAR = np.geomspace(0.1, 1.0, 3)
#: Lengths of moves, in units of sqrt(delta), at which ascents start.
LENGTHS = np.geomspace(0.5, 8.0, 3)
#: Price over half the curvature of the loss, at least: below 1/2 a quadratic cost is outgrown.
ABOVE_HALF = 0.51
#: Random directions in which ascents start.
DIRECTIONS = 12
#: What the places may reach less than the dual, relative to it, for a supremum that is attained,
#: and what a search must add to count.
ATTAINED = 1e-8


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Rows, targets, a loss, a cost, its local matrices A: one per row, or one for all.

    ``reach`` is the length of a move at price delta, in units of sqrt(v'Av).
    """

    X: Array
    y: Array
    loss: Loss
    cost: Cost
    order: int
    A: Array
    reach: float = 0.0

    def price(self, U: Array) -> Array:
        """Return c(u, x), one number per row."""
        return self.cost.price(U, self.X, self.order)

    def price_gradient(self, U: Array) -> Array:
        """Return the gradient of the price in u."""
        return self.cost.price_gradient(U, self.X, self.order)

    def gain(self, U: Array, beta: Array, b: float, lam: float) -> Array:
        """Return l(u'beta + b, y) - lam c(u, x)."""
        return np.asarray(self.loss.value(U @ beta + b, self.y) - lam * self.price(U))

    def rows(self, index: Array) -> LocalRows:
        """Return some of the rows."""
        A = self.A[index] if self.A.ndim == 3 else self.A
        return replace(self, X=self.X[index], y=self.y[index], A=A)

    def push(self, beta: Array) -> Array:
        """Return the rows A^-1 beta."""
        return np.broadcast_to(self.inverse @ beta, self.X.shape)

    @cached_property
    def root(self) -> Array:
        """The triangular matrices L with A = LL'."""
        return np.linalg.cholesky(self.A)

    @cached_property
    def inverse_root(self) -> Array:
        """The matrices L^-1."""
        return np.linalg.inv(self.root)

    @cached_property
    def inverse(self) -> Array:
        """The matrices A^-1."""
        return np.swapaxes(self.inverse_root, -1, -2) @ self.inverse_root

    def finite_multiplier(self, lam: float, square: Array) -> Array:
        """Return lam, raised where the loss would outgrow v'Av, ``square`` the squared dual norms.

        The cost itself may keep up with a loss that its local matrix does not.
        """
        multiplier = np.broadcast_to(lam, square.shape)
        if np.isfinite(self.loss.lipschitz):
            return multiplier
        return np.maximum(multiplier, ABOVE_HALF * self.loss.smoothness * square)

    def starts(self, beta: Array, b: float, lam: float) -> Array:
        """Return the maxima under A: x + s A^-1 beta/w^2, s the shift of the score."""
        push = self.push(beta)
        square = np.maximum(push @ beta, TINY)
        multiplier = self.finite_multiplier(lam, square)
        inner = self.loss.inner(self.X @ beta + b, self.y, np.sqrt(square), multiplier)
        shifts = np.where(np.isfinite(inner.value), inner.shift, inner.shift[0])
        return np.asarray(self.X + (shifts / square)[..., None] * push)


def ascend(rows: LocalRows, U: Array, beta: Array, b: float, lam: float, steps: int) -> Array:
    """Return U after steps along (2 lam A - l'' beta beta')^-1 grad, where that is positive.

    The length of a step adapts to the ascent of each row.
    """
    U = U.copy()
    length = np.ones(len(U))
    gain = rows.gain(U, beta, b, lam)
    push = rows.push(beta)
    square = push @ beta
    precision = np.finfo(float).eps ** (2 / 3)
    for _ in range(steps):
        _, slope, bend = rows.loss.evaluate(U @ beta + b, rows.y)
        grad = slope[:, None] * beta - lam * rows.price_gradient(U)
        # Sherman-Morrison: the loss bends along beta only
        left = 2 * lam - bend * square
        along = np.where(left > precision * lam, bend / np.maximum(left, TINY), 0.0)
        move = (rows.inverse @ grad[..., None])[..., 0]
        move = (move + (along * (move @ beta))[:, None] * push) / (2 * lam)
        hope = np.einsum("nd,nd->n", move, grad)
        # a gain of which 1 is a rounding is infinite: the loss outgrows the cost
        active = (hope > precision * (1 + np.abs(gain))) & (gain < 1 / EQUAL)
        active &= length > precision
        if not active.any():
            break
        new = U + (length * active)[:, None] * move
        there = rows.gain(new, beta, b, lam)
        better = active & (there > gain)
        U[better] = new[better]
        gain[better] = there[better]
        length = np.where(better, np.minimum(2 * length, 1.0), length / 2)
    return U


def best_end(
    rows: LocalRows,
    starts: list[Array],
    beta: Array,
    b: float,
    lam: float,
    places: Sequence[Array] = (),
) -> Array:
    """Return for each row the place of largest gain: of ascents from all starts, or of others."""
    batch = rows.rows(np.tile(np.arange(len(rows.X)), len(starts)))
    ends = np.split(ascend(batch, np.vstack(starts), beta, b, lam, STEPS), len(starts))
    ends = [*places, *ends]
    best = np.argmax([rows.gain(U, beta, b, lam) for U in ends], axis=0)
    return np.asarray(np.stack(ends)[best, np.arange(len(best))])


def near_starts(rows: LocalRows, beta: Array, b: float, lam: float) -> list[Array]:
    """Return the maxima under A at several prices, places along +-A^-1 beta, and the row.

    A loss of regression rises on both sides: a cost that is not even may leave the better maximum
    on either one, and a row without a residual is a saddle between them.
    """
    starts = [U for part in NEAR for U in rows.starts(beta, b, part * lam)]
    push = rows.push(beta)
    unit = push / np.sqrt(np.maximum(push @ beta, TINY))[:, None]
    for size in LENGTHS:
        starts += [rows.X + sign * size * rows.reach * unit for sign in (1, -1)]
    return [*starts, rows.X]


def far_starts(rows: LocalRows, beta: Array, b: float, lam: float) -> list[Array]:
    """Return places far off: reflections, whose products of columns are those of the row, the
    other maxima seen from there, and fixed directions at several distances."""
    X = rows.X
    mirrored = near_starts(replace(rows, X=-X), beta, b, lam)
    starts = [V for U in mirrored for V in (U, -U)]
    directions = np.random.default_rng(0).normal(size=(DIRECTIONS, X.shape[1]))
    spread = np.sqrt(np.maximum(np.einsum("...jj->...j", rows.inverse), TINY))
    for v in directions / np.linalg.norm(directions, axis=1, keepdims=True):
        starts += [X + size * rows.reach * spread * v for size in LENGTHS]
    return starts


def local_rows(problem: Problem, X: Array) -> LocalRows:
    """Return the rows with their cost and its local matrices."""
    ball, cost = problem.ball, problem.ball.cost
    if cost.geometry == "local":
        if ball.order != 2:
            raise ValueError("a FeatureMap needs order=2, where its cost is a square near a row.")
        A = cost.shape(X)
    elif cost.euclidean:
        L = cost.factor()
        A = np.eye(X.shape[1]) if L is None else np.asarray(L @ L.T)
    else:
        if cost.geometry == "function":
            cost.verify(X)
        A = local_matrices(cost, X, ball)
    return LocalRows(X, problem.y, problem.loss, cost, ball.order, A, ball.delta**0.5)


def local_matrices(cost: Cost, X: Array, ball: Ball) -> Array:
    """Return A with c(x + v, x) ~ v'Av at moves that cost about delta, by second differences."""
    d = X.shape[1]
    unit = X.std(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    steps = np.empty(d)
    for j in range(d):
        v = np.eye(d)[j] * unit[j] * STEP
        near, far = (float(cost.price(X + t * v, X, ball.order).mean()) for t in (1.0, 2.0))
        if near <= 0:
            raise ValueError(f"the cost does not charge for a move along column {j}.")
        # c grows like t^degree
        degree = max(np.log2(far / near), LEAST_DEGREE)
        steps[j] = STEP * unit[j] * (ball.delta / near) ** (1 / degree)
    # second differences of c, which is 0 and flat at the row
    A = np.empty((len(X), d, d))
    moves = np.diag(steps)
    for j in range(d):
        A[:, j, j] = cost.price(X + moves[j], X, ball.order) / steps[j] ** 2
        for k in range(j):
            plus = cost.price(X + moves[j] + moves[k], X, ball.order)
            minus = cost.price(X + moves[j] - moves[k], X, ball.order)
            A[:, j, k] = A[:, k, j] = (plus - minus) / (4 * steps[j] * steps[k])
    values, vectors = np.linalg.eigh(A)
    values = np.maximum(values, LEAST_EIGENVALUE * values[:, -1:])
    return np.asarray(np.einsum("nij,nj,nkj->nik", vectors, values, vectors))


@dataclass(frozen=True, eq=False)
class LocalWorst:
    """The worst-case ``risk`` found, its ``multiplier``, an ``upper`` bound (inf: none is known).

    ``points`` of shape (n, k, d) are the places of the rows, the row first, with ``loss``,
    ``price`` and ``mass`` of shape (n, k), the best masses within the budget.
    """

    risk: float
    multiplier: float
    upper: float
    points: Array
    loss: Array
    price: Array
    mass: Array


def worst_risk(
    problem: Problem,
    coef: Array,
    intercept: float,
    start: float = 0.0,
    rows: LocalRows | None = None,
) -> LocalWorst:
    """Return the worst case of a model.

    ``start`` is where to look for lam first, if positive; ``rows`` are the rows with their cost,
    where they are at hand.
    """
    if problem.ball.delta == 0 or not np.any(coef):
        # nothing may move, or no move changes a score
        X = Design(problem.X).dense()
        loss = problem.loss.value(X @ coef + intercept, problem.y)
        risk = float(problem.weights @ loss)
        mass = problem.weights[:, None]
        return LocalWorst(risk, 0.0, risk, X[:, None], loss[:, None], 0.0 * mass, mass)
    rows = rows or local_rows(problem, Design(problem.X).dense())
    if problem.ball.cost.linearised:
        return _worst_linearised(problem, rows, coef, intercept, start)
    search, lam = PlaceSearch(problem, rows, coef, intercept), start
    if lam <= 0:
        # the linearised cost's, were slopes as at the row
        z, w = rows.X @ coef + intercept, np.sqrt(rows.push(coef) @ coef)
        lam = first_multiplier(z, rows.y, problem.weights, rows.loss, w, problem.ball.delta)
    for _ in range(TRIES):
        best = least(search.tangent, lam, rtol=ATTAINED / 100)
        lam = best.lam
        before = search.value(lam)
        search.wide(lam)
        after = search.value(lam)
        if after <= before + ATTAINED * abs(before):
            break
    return search.best_masses(best)


class PlaceSearch:
    """Places of the rows met while lam varies, by ascent."""

    def __init__(self, problem: Problem, rows: LocalRows, beta: Array, b: float) -> None:
        self.rows = rows
        self.beta = beta
        self.b = b
        self.delta = problem.ball.delta
        self.weights = problem.weights
        self.places = [rows.X]
        self.far: list[Array] = []

    def tangent(self, lam: float) -> Tangent:
        """Return the dual at lam; its slope is delta - E c at the maxima."""
        rows, at = self.rows, (self.beta, self.b, lam)
        U = best_end(rows, [*near_starts(rows, *at), *self.far], *at)
        price = rows.price(U)
        if not price.any():
            # no move near the rows pays: a far one may
            self.wide(lam)
            U = self.places[-1]
            price = rows.price(U)
        self.places.append(U)
        value = lam * self.delta + float(self.weights @ rows.gain(U, *at))
        return Tangent(lam, value, self.delta - float(self.weights @ price))

    def value(self, lam: float) -> float:
        """Return the dual at lam over the places met."""
        gains = [self.rows.gain(U, self.beta, self.b, lam) for U in self.places]
        return lam * self.delta + float(self.weights @ np.max(gains, axis=0))

    def wide(self, lam: float) -> None:
        """Search far off at lam."""
        rows, at = self.rows, (self.beta, self.b, lam)
        best = best_end(rows, far_starts(rows, *at), *at, self.places)
        self.places.append(best)
        self.far.append(best)

    def best_masses(self, dual: Tangent) -> LocalWorst:
        """Return the places with the best distribution over them."""
        points = np.stack(self.places, axis=1)
        price = np.stack([self.rows.price(U) for U in self.places], axis=1)
        # the row itself where the price is beyond what gains, differences of losses and prices,
        # can resolve
        near = price <= self.delta / ATTAINED
        points = np.where(near[..., None], points, self.rows.X[:, None])
        price = np.where(near, price, 0.0)
        z = points @ self.beta + self.b
        loss = self.rows.loss.value(z, np.broadcast_to(self.rows.y[:, None], z.shape))
        return _over_places(self.weights, self.delta, points, loss, price, dual, np.inf)


def _over_places(
    weights: Array,
    delta: float,
    points: Array,
    loss: Array,
    price: Array,
    dual: Tangent,
    upper: float,
) -> LocalWorst:
    """Return the best masses on places with ``loss`` and ``price`` (n, k).

    Where the supremum is not attained, as mass would go ever farther, the ``dual`` at the best lam
    of all places is above what these reach, and is the risk.
    """
    mass = place_masses(loss.T, price.T, weights, delta).T
    reached = float((mass * loss).sum())
    risk = dual.value if reached < (1 - ATTAINED) * dual.value else reached
    return LocalWorst(risk, dual.lam, max(upper, risk), points, loss, price, mass)


def _worst_linearised(
    problem: Problem, rows: LocalRows, beta: Array, b: float, start: float
) -> LocalWorst:
    """Return the worst case under (u - x)'A(u - x), whose inner maxima are x + s A^-1 beta/w^2.

    The price of such a move is s^2/w^2, so that nothing but scores is searched.
    """
    loss, y, weights, delta = problem.loss, problem.y, problem.weights, problem.ball.delta
    z = rows.X @ beta + b
    push = np.linalg.solve(rows.A, np.broadcast_to(beta[:, None], (len(z), len(beta), 1)))[..., 0]
    w = np.sqrt(push @ beta)
    dual = best_multiplier(z, y, weights, loss, w, delta, start)
    # at slightly smaller and larger multipliers too, as the best one is known to rounding
    inners = [loss.inner(z, y, w, dual.lam * (1 + e)) for e in (-FIRST_STEP, 0.0, FIRST_STEP)]
    shifts = [np.where(np.isfinite(inner.value), inner.shift, 0.0) for inner in inners]
    shift = np.vstack([np.zeros((1, len(z))), *shifts]).T
    price = (shift / w[:, None]) ** 2
    near = price <= delta / ATTAINED
    shift, price = np.where(near, shift, 0.0), np.where(near, price, 0.0)
    points = rows.X[:, None] + (shift / w[:, None] ** 2)[..., None] * push[:, None]
    losses = loss.value(z[:, None] + shift, np.broadcast_to(y[:, None], shift.shape))
    return _over_places(weights, delta, points, losses, price, dual, dual.value)
