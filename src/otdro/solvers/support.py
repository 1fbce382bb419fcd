r"""Finite support: the adversary moves mass only between given nodes u_j.

.. math:: \min_{\beta, b, \lambda \ge 0}\ \lambda\delta + \sum_i \pi_i \max_j
          \{\ell(u_j'\beta + b, y_i) - \lambda c_{ij}\},

the nodes being the rows and the points of ``support``, c the cost to the power of the order. Few
pairs (i, j) bind: an interior-point method solves the problem over some pairs, the pairs that
its solution violates most are added, until none is violated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..costs.graph import Graph
from ..design import Design
from ..losses.base import Loss, PiecewiseQuadratic
from ..problem import Problem, Solution
from .base import constant_risk, verdict
from .pairs_newton import Master, Pairs, State, minimise

Array = NDArray[Any]

#: Nodes a row starts with, near ones and ones spread over all costs, and the most it gains a round.
NEAR, SPREAD, GAIN = 4, 8, 4
#: Newton steps of a round that is to be followed by others.
STEPS = 40


@dataclass(frozen=True, eq=False)
class Finite:
    """Nodes (centred and scaled columns), costs of shape (n, m), targets, weights and loss."""

    nodes: Array
    cost: Array
    y: Array
    weights: Array
    loss: Loss
    fit_intercept: bool

    def gains(self, x: Array) -> Array:
        """Return l(u_j'theta + b, y_i) - lam c_ij for all pairs."""
        z = self.nodes @ x[:-2] + x[-2]
        labels, which = np.unique(self.y, return_inverse=True)
        if len(labels) <= 2:
            # two labels need two rows of losses, whatever n
            table = np.stack([self.loss.value(z, np.full_like(z, label)) for label in labels])
            gains = table[which]
        else:
            shape = (len(self.y), len(z))
            y = np.broadcast_to(self.y[:, None], shape)
            gains = self.loss.value(np.broadcast_to(z, shape), y)
        found: Array = gains - x[-1] * self.cost
        return found


def solve(problem: Problem, tol: float, max_iter: int, start: Solution | None = None) -> Solution:
    """Minimise the worst-case risk over distributions on the nodes."""
    finite, center, scale = formulate(problem)
    base = constant_risk(problem)
    found = exchange(finite, problem.ball.delta, base, tol, max_iter)
    coef = found.x[:-2] / scale
    intercept = float(found.x[-2] - (center @ coef if problem.fit_intercept else 0.0))
    target = tol * base[1]
    kept = f"; finite support, {found.kept} of {finite.cost.size} pairs kept"
    return Solution(
        coef,
        intercept,
        float(found.x[-1]),
        found.objective,
        found.gap,
        found.n_iter,
        bool(found.gap <= target),
        verdict(found.gap, target) + kept,
    )


def formulate(problem: Problem) -> tuple[Finite, Array, Array]:
    """Return the nodes in scaled columns, their centre and scale, and all costs."""
    X, S = (_dense(block) for block in (problem.X, problem.support))
    assert X is not None
    if S is not None and (S.ndim != 2 or S.shape[1] != X.shape[1]):
        raise ValueError(f"support has shape {S.shape} but X has {X.shape[1]} columns.")
    if S is not None and not np.isfinite(S).all():
        raise ValueError("support has NaN or infinite entries.")
    ball = problem.ball
    nodes = X if S is None else np.vstack([X, S])
    if isinstance(ball.cost, Graph):
        distance = ball.cost.path_lengths(X, S)
    else:
        distance = ball.cost.distance(X, nodes)
    center = nodes.mean(axis=0) if problem.fit_intercept else np.zeros(X.shape[1])
    scale = np.maximum(np.sqrt(((nodes - center) ** 2).mean(axis=0)), 1e-300)
    scale = np.where(scale > 1e-12 * scale.max(), scale, 1.0)
    place = (nodes - center) / scale
    cost = distance**ball.order
    np.fill_diagonal(cost, 0.0)
    args = problem.y, problem.weights, problem.loss, problem.fit_intercept
    return Finite(place, cost, *args), center, scale


def _dense(block: Any) -> Array | None:
    if block is None:
        return None
    return Design(block).dense() if sparse.issparse(block) else np.asarray(block, dtype=float)


@dataclass(frozen=True, eq=False)
class Found:
    """The point (theta, b, lam), its exact risk and gap, the Newton steps and pairs it took."""

    x: Array
    objective: float
    gap: float
    n_iter: int
    kept: int


def exchange(
    finite: Finite, delta: float, base: tuple[float, float], tol: float, max_iter: int
) -> Found:
    """Add violated pairs and solve again, more accurately each round, until the gap is small."""
    kept = _initial(finite.cost)
    x = np.zeros(finite.nodes.shape[1] + 2)
    x[-2], x[-1] = base[0], 1.0
    target, rough, n_iter = tol * base[1], 1e-3 * base[1], 0
    best, lower, steps = (np.inf, x), -np.inf, STEPS
    while n_iter < max_iter:
        master = Master(
            pairs(finite, kept), finite.nodes, finite.weights, delta, finite.fit_intercept
        )
        budget = min(steps, max_iter - n_iter)
        state: State = minimise(master, best[1], max(rough, 0.3 * target), budget)
        n_iter += state.n_iter
        x, lower = state.x, max(lower, state.lower)
        gains = finite.gains(x)
        objective = float(x[-1] * delta + finite.weights @ gains.max(axis=1))
        best = min(best, (objective, x), key=lambda pair: pair[0])
        if best[0] - lower <= target:
            break
        new = _violated(gains, kept, state.eta, 0.1 * max(best[0] - lower, target))
        if not new.any():
            if rough < 0.01 * target and steps > 10 * STEPS:
                break
            rough, steps = rough / 100, 2 * steps
        kept |= new
    gap = max(best[0] - lower, 0.0)
    return Found(best[1], best[0], gap, max(n_iter, 1), int(kept.sum()))


def _initial(cost: Array) -> Array:
    """Return the nearest nodes of every row, and nodes spread evenly over the order of its costs.

    Far nodes keep the first problems bounded, where the near ones can be separated.
    """
    m = cost.shape[1]
    order = np.argsort(cost, axis=1)
    place = np.union1d(np.arange(min(NEAR, m)), np.linspace(0, m - 1, min(SPREAD, m)).astype(int))
    kept = np.zeros(cost.shape, dtype=bool)
    np.put_along_axis(kept, order[:, place], True, axis=1)
    np.fill_diagonal(kept, True)
    return kept


def _violated(gains: Array, kept: Array, eta: Array, slack: float) -> Array:
    """Return up to GAIN pairs a row outside ``kept`` whose gain exceeds eta + slack."""
    over = np.where(kept, -np.inf, gains - eta[:, None])
    take = min(GAIN, over.shape[1])
    top = np.argpartition(over, -take, axis=1)[:, -take:]
    new = np.zeros_like(kept)
    np.put_along_axis(new, top, np.take_along_axis(over, top, axis=1) > slack, axis=1)
    return new


def pairs(finite: Finite, kept: Array) -> Pairs:
    """Return the kept pairs; a piecewise linear loss gives two linear functions a pair."""
    row, node = np.nonzero(kept)
    loss = finite.loss
    y, cost = finite.y[row], finite.cost[row, node]
    if not (isinstance(loss, PiecewiseQuadratic) and loss.kappa == 0):
        return Pairs(row, node, y, cost, loss, None)
    slopes = np.repeat(loss.slopes, len(row))
    row, node, y, cost = (np.tile(part, 2) for part in (row, node, y, cost))
    return Pairs(row, node, y, cost, loss, slopes)
