r"""The inner supremum of a cost that is no norm, by local ascent from the linearised solution.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \max_u
          \{\ell(u'\beta + b, y_i) - \lambda c(u, x_i)\}

with c the cost itself. The inner problem is not concave: ascent starts from the maxima under
the local matrix A(x_i) and from the row, and keeps the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...problem import Problem, Solution
from ..base import constant_risk

Array = NDArray[Any]

#: Ascent steps to a maximum while a model is fitted.
STEPS = 60
#: A gain that counts as infinite: the loss outgrows the cost.
ENDLESS = 1e30
#: Multiples of lam under whose linearised maxima ascents start: the smaller, the farther.
NEAR = (0.1, 0.3, 0.6, 1.0)
#: Multiples of lam whose maxima a thorough search starts from.
ASIDE = (0.7, 0.9, 1.1)
#: Where ascents start on either side of a row, in units of ``reach``.
LOOKS = (-6.0, -2.5, -1.0, 1.0, 2.5, 6.0)


@dataclass(frozen=True, eq=False)
class Terrain:
    """Rows, targets, a loss, a cost with ``price`` and ``price_gradient``, its local matrices A.

    ``reach`` is the length of a move at price delta, in units of sqrt(u'Au).
    """

    X: Array
    y: Array
    loss: Any
    cost: Any
    order: int
    A: Array
    reach: float = 0.0

    def gain(self, U: Array, beta: Array, b: float, lam: float) -> Array:
        """Return l(u'beta + b, y) - lam c(u, x)."""
        price = self.cost.price(U, self.X, self.order)
        return np.asarray(self.loss.value(U @ beta + b, self.y) - lam * price)

    def uphill(self, U: Array, beta: Array, b: float, lam: float) -> Array:
        """Return the gradient of the gain in u."""
        slope = self.loss.derivative(U @ beta + b, self.y)
        push: Array = slope[:, None] * beta
        price: Array = self.cost.price_gradient(U, self.X, self.order)
        return push - lam * price

    def rows(self, index: Array) -> Terrain:
        """Return some of the rows."""
        own = self.A.ndim == 3
        cost = self.cost.rows(index) if hasattr(self.cost, "rows") else self.cost
        A = self.A[index] if own else self.A
        part = replace(self, X=self.X[index], y=self.y[index], A=A, cost=cost)
        # known already, and dear: the cache of ``inverse``
        part.__dict__["inverse"] = self.inverse[index] if own else self.inverse
        return part

    def push(self, beta: Array) -> Array:
        """Return the rows A^-1 beta."""
        return np.broadcast_to(self.inverse @ beta, self.X.shape)

    @cached_property
    def inverse(self) -> Array:
        """The matrices A^-1."""
        return np.linalg.inv(self.A)

    def starts(self, beta: Array, b: float, lam: float) -> list[Array]:
        """Return the maxima under A: x + s A^-1 beta/w^2, s the shift of the score."""
        push = self.push(beta)
        square = np.maximum(push @ beta, 1e-300)
        kappa = lam / square
        if np.isinf(self.loss.lipschitz):
            kappa = np.maximum(kappa, 0.51 * self.loss.smoothness)
        inner = self.loss.inner(self.X @ beta + b, self.y, 1.0, kappa)
        shifts = np.where(np.isfinite(inner.value), inner.shift, inner.shift[0])
        return [self.X + (s / square)[:, None] * push for s in shifts]


def ascend(
    terrain: Terrain, U: Array, beta: Array, b: float, lam: float, steps: int, tol: float = 1e-9
) -> Array:
    """Return U after steps along (2 lam A - l'' beta beta')^-1 grad, where that is positive, each
    row's length adapted to its own ascent."""
    U, length = U.copy(), np.ones(len(U))
    gain, push = terrain.gain(U, beta, b, lam), terrain.push(beta)
    square = push @ beta
    for _ in range(steps):
        grad = terrain.uphill(U, beta, b, lam)
        bend = terrain.loss.curvature(U @ beta + b, terrain.y)
        # Sherman-Morrison: the loss bends along beta only
        left = 2 * lam - bend * square
        along = np.where(left > 1e-3 * lam, bend / np.maximum(left, 1e-300), 0.0)
        move = (terrain.inverse @ grad[..., None])[..., 0]
        move = (move + (along * (move @ beta))[:, None] * push) / (2 * lam)
        hope = np.einsum("nd,nd->n", move, grad)
        active = (hope > tol * (1 + np.abs(gain))) & (gain < ENDLESS)
        if not active.any():
            break
        new = U + (length * active)[:, None] * move
        there = terrain.gain(new, beta, b, lam)
        better = active & (there > gain)
        U[better], gain[better] = new[better], there[better]
        length = np.where(better, np.minimum(1.5 * length, 4.0), length / 3)
    return U


def ascents(terrain: Terrain, beta: Array, b: float, lam: float, steps: int) -> list[Array]:
    """Return the ends of the ascents from the maxima under A and from the row.

    A loss of regression rises on both sides: a cost that is not even may leave the better maximum
    on either one, and a row without a residual is a saddle between them.
    """
    starts = [U for part in NEAR for U in terrain.starts(beta, b, part * lam)]
    push = terrain.push(beta)
    square = np.maximum(push @ beta, 1e-300)
    if terrain.loss.task == "regression":
        unit = push / np.sqrt(square)[:, None]
        starts += [terrain.X + sign * terrain.reach * unit for sign in LOOKS]
    if np.isinf(terrain.loss.lipschitz):
        # where a cost grows no faster than the loss, it is overtaken far from a flat row
        far = (3 + 3 * np.abs(terrain.X @ beta + b)) / square
        starts += [terrain.X + (sign * far)[:, None] * push for sign in (1, -1)]
    return together(terrain, [*starts, terrain.X], beta, b, lam, steps)


def together(
    terrain: Terrain, starts: list[Array], beta: Array, b: float, lam: float, steps: int
) -> list[Array]:
    """Return the ends of the ascents from all starts, as one batch of rows."""
    rows = terrain.rows(np.tile(np.arange(len(terrain.X)), len(starts)))
    return np.split(ascend(rows, np.vstack(starts), beta, b, lam, steps), len(starts))


def maximisers(
    terrain: Terrain, beta: Array, b: float, lam: float, steps: int, thorough: bool = False
) -> Array:
    """Return the best of the ascents; ``thorough``: also of those from maxima at other lam."""
    tops = ascents(terrain, beta, b, lam, steps)
    if thorough:
        others = [U for part in ASIDE for U in ascents(terrain, beta, b, part * lam, steps)]
        tops += together(terrain, others, beta, b, lam, steps)
    gains = np.stack([terrain.gain(U, beta, b, lam) for U in tops])
    best = gains.argmax(axis=0)
    chosen: Array = np.stack(tops)[best, np.arange(len(best))]
    return chosen


def polished(problem: Problem, terrain: Terrain, linear: Solution) -> Solution:
    """Minimise over (beta, b, log lam) by quasi-Newton steps with Danskin's gradient.

    Where a thorough search finds more risk at the minimum, minimise again with that search.
    """
    first = np.concatenate([linear.coef, [linear.intercept, np.log(linear.multiplier)]])
    risk = _Risk(problem, terrain)
    start, v, n_iter, value = risk(first)[0], first, linear.n_iter, np.inf
    for risk.thorough in (False, True):
        now = risk(v)[0]
        if risk.thorough and now <= (1 + 1e-6) * value:
            break
        found = minimize(
            risk, v, jac=True, method="L-BFGS-B", options={"maxiter": 100, "gtol": 1e-8}
        )
        v, n_iter = (found.x if found.fun <= now else v), n_iter + int(found.nit)
        value = min(float(found.fun), now)
    base, d = constant_risk(problem)[1], len(linear.coef)
    message = (
        f"feature map polished row by row: worst-case risk {value:.6g}; the linearised solution "
        f"has {start:.6g} under this cost ({linear.objective:.6g} under its own), a difference of "
        f"{(start - value) / base:.2g} of the constant's risk; no gap: the inner problem is not "
        "concave"
    )
    lam = float(np.exp(v[-1]))
    return Solution(v[:d], float(v[d]), lam, value, np.inf, n_iter, True, message)


class _Risk:
    """The worst-case risk and its gradient in (beta, b, log lam)."""

    def __init__(self, problem: Problem, terrain: Terrain) -> None:
        self.problem, self.terrain, self.thorough = problem, terrain, False

    def __call__(self, v: Array) -> tuple[float, Array]:
        """Return value and gradient at v."""
        p, terrain, delta = self.problem, self.terrain, self.problem.ball.delta
        beta, b, lam = v[:-2], float(v[-2]), float(np.exp(np.clip(v[-1], -30, 30)))
        U = maximisers(terrain, beta, b, lam, STEPS, self.thorough)
        z = U @ beta + b
        slope = p.weights * p.loss.derivative(z, p.y)
        price = terrain.cost.price(U, terrain.X, terrain.order)
        value = lam * delta + p.weights @ (p.loss.value(z, p.y) - lam * price)
        tail = [slope.sum() * p.fit_intercept, lam * (delta - p.weights @ price)]
        return float(value), np.concatenate([U.T @ slope, tail])
