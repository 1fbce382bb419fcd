r"""The inner supremum of a cost that is no norm, by local ascent.

.. math:: \max_u\ \ell(u'\beta + b, y_i) - \lambda c(u, x_i)

is not concave: ascent starts from the maxima under the local matrix A(x_i), from the row, and,
where asked, from places far off, and every end is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...losses import Loss

Array = NDArray[Any]

#: A gain that counts as infinite: the loss outgrows the cost.
ENDLESS = 1e12
#: Multiples of lam under whose linearised maxima ascents start: the smaller, the farther.
NEAR = (0.1, 0.3, 0.6, 1.0)
#: Distances, from ``reach`` to ``farthest``, at which ascents start where the loss rises.
ALONG = 3
#: Where a loss without a largest slope looks for a cost that it outgrows, in scores: the closer
#: the price to the growth of the loss, the farther off.
FAR_SCORES = (3.0, 3e3, 3e6)
#: Price over half the curvature of the loss, at least: below 1/2 a quadratic cost is outgrown.
ABOVE_HALF = 0.51
#: Directions, and distances in units of ``reach``, of the starts of a wide search.
DIRECTIONS, DISTANCES = 12, (0.5, 2.0, 8.0)
#: Steps from every start, and the places of a row that go on from there.
FEW, KEPT = 12, 4
#: The least curvature along the coefficients, relative to lam, at which a Newton step is trusted.
CURVED = 1e-3
#: The ascent that a step promises, relative to 1 + the gain, below which a row is at its maximum.
AT_TOP = 1e-9
#: How steps grow after an ascent, their longest length, and how they shrink after a fall.
GROW, LONGEST, SHRINK = 1.5, 4.0, 1 / 3
#: The least squared dual norm, so that it can be divided by.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Rows, targets, a loss, a cost, its local matrices A: one per row, or one for all.

    ``reach`` is the length of a move at price delta, in units of sqrt(v'Av), ``farthest`` that of
    a row that spends all of the budget; ``metric`` is Lam where the cost is that of all linear and
    quadratic features, else None.
    """

    X: Array
    y: Array
    loss: Loss
    cost: Cost
    order: int
    A: Array
    reach: float = 0.0
    farthest: float = np.inf
    metric: Array | None = None

    def price(self, U: Array) -> Array:
        """Return c(u, x), one number per row."""
        return self.cost.price(U, self.X, self.order)

    def price_gradient(self, U: Array) -> Array:
        """Return the gradient of the price in u."""
        return self.cost.price_gradient(U, self.X, self.order)

    def gain(self, U: Array, beta: Array, b: float, lam: float) -> Array:
        """Return l(u'beta + b, y) - lam c(u, x)."""
        return np.asarray(self.loss.value(U @ beta + b, self.y) - lam * self.price(U))

    def gain_gradient(self, U: Array, beta: Array, b: float, lam: float) -> Array:
        """Return the gradient of the gain in u."""
        slope = self.loss.derivative(U @ beta + b, self.y)
        push: Array = slope[:, None] * beta
        return push - lam * self.price_gradient(U)

    def rows(self, index: Array) -> LocalRows:
        """Return some of the rows."""
        own = self.A.ndim == 3
        A = self.A[index] if own else self.A
        part = replace(self, X=self.X[index], y=self.y[index], A=A)
        # known already, and expensive: the cache of ``inverse``
        part.__dict__["inverse"] = self.inverse[index] if own else self.inverse
        return part

    def push(self, beta: Array) -> Array:
        """Return the rows A^-1 beta."""
        return np.broadcast_to(self.inverse @ beta, self.X.shape)

    @cached_property
    def inverse(self) -> Array:
        """The matrices A^-1."""
        return np.linalg.inv(self.A)

    def finite_multiplier(self, lam: float, square: Array) -> Array:
        """Return lam, raised where the loss would outgrow v'Av, ``square`` the squared dual norms.

        The cost itself may keep up with a loss that its local matrix does not.
        """
        multiplier = np.broadcast_to(lam, square.shape)
        if np.isfinite(self.loss.lipschitz):
            return multiplier
        return np.maximum(multiplier, ABOVE_HALF * self.loss.smoothness * square)

    def starts(self, beta: Array, b: float, lam: float) -> list[Array]:
        """Return the maxima under A: x + s A^-1 beta/w^2, s the shift of the score."""
        push = self.push(beta)
        square = np.maximum(push @ beta, TINY)
        multiplier = self.finite_multiplier(lam, square)
        inner = self.loss.inner(self.X @ beta + b, self.y, np.sqrt(square), multiplier)
        shifts = np.where(np.isfinite(inner.value), inner.shift, inner.shift[0])
        most = self.farthest * np.sqrt(square)
        return [self.X + (np.clip(s, -most, most) / square)[:, None] * push for s in shifts]


def ascend(rows: LocalRows, U: Array, beta: Array, b: float, lam: float, steps: int) -> Array:
    """Return U after steps along (2 lam A - l'' beta beta')^-1 grad, where that is positive.

    The length of a step adapts to the ascent of each row.
    """
    U = U.copy()
    length = np.ones(len(U))
    gain = rows.gain(U, beta, b, lam)
    push = rows.push(beta)
    square = push @ beta
    for _ in range(steps):
        grad = rows.gain_gradient(U, beta, b, lam)
        bend = rows.loss.curvature(U @ beta + b, rows.y)
        # Sherman-Morrison: the loss bends along beta only
        left = 2 * lam - bend * square
        along = np.where(left > CURVED * lam, bend / np.maximum(left, TINY), 0.0)
        move = (rows.inverse @ grad[..., None])[..., 0]
        move = (move + (along * (move @ beta))[:, None] * push) / (2 * lam)
        hope = np.einsum("nd,nd->n", move, grad)
        active = (hope > AT_TOP * (1 + np.abs(gain))) & (gain < ENDLESS)
        if not active.any():
            break
        new = U + (length * active)[:, None] * move
        there = rows.gain(new, beta, b, lam)
        better = active & (there > gain)
        U[better] = new[better]
        gain[better] = there[better]
        length = np.where(better, np.minimum(GROW * length, LONGEST), SHRINK * length)
    return U


def ascend_from(
    rows: LocalRows, starts: list[Array], beta: Array, b: float, lam: float, steps: int
) -> list[Array]:
    """Return the best ends of ascents from all starts, at most KEPT for each row, best first.

    All starts take a few steps, as one batch of rows; the best of them go on.
    """
    places = _batch(rows, starts, beta, b, lam, min(steps, FEW))
    places = _ranked(rows, places, beta, b, lam)
    if steps > FEW:
        places = _batch(rows, places, beta, b, lam, steps - FEW)
    return _ranked(rows, places, beta, b, lam)


def _batch(
    rows: LocalRows, starts: list[Array], beta: Array, b: float, lam: float, steps: int
) -> list[Array]:
    batch = rows.rows(np.tile(np.arange(len(rows.X)), len(starts)))
    return np.split(ascend(batch, np.vstack(starts), beta, b, lam, steps), len(starts))


def _ranked(rows: LocalRows, places: list[Array], beta: Array, b: float, lam: float) -> list[Array]:
    """Return the places of each row with the largest gains, the largest first."""
    gains = np.stack([rows.gain(U, beta, b, lam) for U in places])
    order = np.argsort(-gains, axis=0, kind="stable")[:KEPT]
    stacked = np.stack(places)
    return [stacked[k, np.arange(len(k))] for k in order]


def near_starts(rows: LocalRows, beta: Array, b: float, lam: float) -> list[Array]:
    """Return the maxima under A at several prices, places along A^-1 beta, and the row.

    A loss of regression rises on both sides: a cost that is not even may leave the better maximum
    on either one, and a row without a residual is a saddle between them.
    """
    starts = [U for part in NEAR for U in rows.starts(beta, b, part * lam)]
    push = rows.push(beta)
    square = np.maximum(push @ beta, TINY)
    unit = push / np.sqrt(square)[:, None]
    up = np.ones_like(rows.y) if rows.loss.task == "regression" else -rows.y
    sides = (1.0, -1.0) if rows.loss.task == "regression" else (1.0,)
    for size in np.geomspace(rows.reach, min(rows.farthest, ENDLESS), ALONG):
        starts += [rows.X + (side * size * up)[:, None] * unit for side in sides]
    if np.isinf(rows.loss.lipschitz):
        # where a cost grows no faster than the loss, it is overtaken far from a flat row
        score = (1 + np.abs(rows.X @ beta + b)) / square
        for far in FAR_SCORES:
            starts += [rows.X + (side * far * up * score)[:, None] * push for side in sides]
    return [*starts, rows.X]


def next_starts(
    rows: LocalRows, last: list[Array], beta: Array, b: float, lam: float
) -> list[Array]:
    """Return the maxima of a problem nearby, those under A, and the row.

    A loss without a largest slope may outgrow the cost from one lam to the next: it starts anew.
    """
    if not last or np.isinf(rows.loss.lipschitz):
        return [*near_starts(rows, beta, b, lam), *last]
    return [*last, *rows.starts(beta, b, lam), rows.X]


def far_starts(rows: LocalRows, beta: Array, b: float, lam: float) -> list[Array]:
    """Return places far off: reflections, whose products of columns are those of the row, the
    other maxima seen from there, and fixed directions at several distances."""
    X = rows.X
    starts = [-U for U in near_starts(replace(rows, X=-X), beta, b, lam)]
    starts += [-X, *near_starts(replace(rows, X=-X), beta, b, lam)]
    d = X.shape[1]
    for j in range(min(d, DIRECTIONS)):
        flipped = X.copy()
        flipped[:, j] *= -1
        starts.append(flipped)
    directions = np.random.default_rng(0).normal(size=(DIRECTIONS, d))
    spread = np.sqrt(np.maximum(np.einsum("...jj->...j", rows.inverse), TINY))
    for v in directions / np.linalg.norm(directions, axis=1, keepdims=True):
        starts += [X + size * rows.reach * spread * v for size in DISTANCES]
    return starts


def best_of(rows: LocalRows, places: list[Array], beta: Array, b: float, lam: float) -> Array:
    """Return the best place of every row."""
    gains = np.stack([rows.gain(U, beta, b, lam) for U in places])
    best = gains.argmax(axis=0)
    chosen: Array = np.stack(places)[best, np.arange(len(best))]
    return chosen
