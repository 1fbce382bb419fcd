r"""Finite support: the adversary moves mass only between given nodes u_j.

.. math:: \min_{\beta, b, \lambda \ge 0}\ \lambda\delta + \sum_i \pi_i \max_j
          \{\ell(u_j'\beta + b, y_i) - \lambda c_{ij}\},

the nodes being the rows and the points of ``support``, c the cost to the power of the order. Few
pairs (i, j) bind: an interior-point method follows the central path of the problem over some
pairs, and on its way down the pairs that its point violates are added.

The gap holds against every model, to rounding. Masses s with row sums pi and cost at most delta,
and slopes a in the domain of the conjugate with :math:`\sum_{ij} s_{ij} a_{ij} u_j = 0`, bound the
optimum below by :math:`-\sum_{ij} s_{ij}\,\ell^*(a_{ij}, y_i)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...problem import Problem, Solution
from ...progress import logger
from ..base import Method, Starts, constant_risk, verdict
from .nodes import Finite, Formulated, OwnPlaces, formulate, formulate_places
from .pairs_interior import Master, State, begin, degree, follow, slack

Array = NDArray[Any]

#: Nodes near a row and rows near a node to start with; the most pairs a row gains at a time.
NEAR, ROWS, GAIN = 4, 1, 4
#: The factor by which the complementarity falls between two looks at all pairs, the most Newton
#: steps between them, the last level relative to the target, and the looks at that level.
FALL, STEPS, LAST, PATIENCE = 0.1, 50, 1e-2, 8
#: The excess of a pair's gain over its row's level, relative to the complementarity or, if that is
#: larger, the target, from which it is violated.
VIOLATED = 0.1
#: Projections of the forces; the sum that they leave, relative to its terms, that is rounding; and
#: the directions of nodes, relative to the largest, that are.
PASSES, BALANCED, SINGULAR = 8, 1e-13, 1e-14
#: Masses that differ by this share of themselves are equal; a risk this small, relative to the
#: targets, is none; what may be divided by.
ROUNDING, NO_RISK, TINY = 1e-12, 1e-28, 1e-300


class FiniteSupport(Method):
    """Any loss over a finite support, or a cost on a graph."""

    geometries = frozenset({"finite"})
    certifies = "the excess over the least worst-case risk, for every model"

    def lacks(self, problem: Problem) -> str | None:
        """Accept every problem over nodes."""
        return None

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return solve_deltas(problem, [problem.ball.delta], tol, max_iter)[0]

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta, costs and pairs shared."""
        return solve_deltas(problem, deltas, tol, max_iter)


def solve_deltas(
    problem: Problem, deltas: Sequence[float] | Array, tol: float, max_iter: int
) -> list[Solution]:
    """Return the solutions at positive deltas: costs are computed once, pairs are kept on."""
    formulated = formulate(problem)
    finite, base = formulated.finite, constant_risk(problem)
    kept, solved = _initial(finite), []
    for delta in deltas:
        found = exchange(finite, float(delta), base, tol, max_iter, kept)
        kept = found.kept
        count = f"; finite support, {int(kept.sum())} of {finite.cost.size} pairs kept"
        solved.append(_solution(formulated, found, tol * base[1], count))
        logger.info("delta %.4g: %s", delta, solved[-1].message)
    return solved


def solve_over_places(
    problem: Problem, points: Array, price: Array, tol: float, max_iter: int
) -> Solution:
    """Minimise the worst case over places of their own (n, k, d) for the rows, with their prices.

    Its ``objective`` less ``gap`` bounds below the risk of every model against moves to anywhere.
    """
    moves = problem.weights > 0
    n, k, d = points[moves].shape
    nodes = points[moves].reshape(n * k, d)
    formulated = formulate_places(problem, OwnPlaces, nodes, price[moves], moves)
    base = constant_risk(problem)
    kept = np.ones((n, k), dtype=bool)
    found = exchange(formulated.finite, problem.ball.delta, base, tol, max_iter, kept)
    return _solution(formulated, found, tol * base[1], "; places given")


def _solution(formulated: Formulated, found: Exchanged, target: float, remark: str) -> Solution:
    """Return the point found in the problem's own coordinates."""
    coef = formulated.back @ found.x[:-2]
    return Solution(
        coef=coef,
        intercept=float(found.x[-2] - formulated.center @ coef),
        multiplier=float(found.x[-1]),
        objective=found.objective,
        gap=found.gap,
        n_iter=found.n_iter,
        converged=bool(found.gap <= target),
        message=verdict(found.gap, target, found.n_iter) + remark,
    )


@dataclass(frozen=True, eq=False)
class Exchanged:
    """The point (theta, b, lam), its exact risk and gap, the Newton steps, the pairs kept."""

    x: Array
    objective: float
    gap: float
    n_iter: int
    kept: Array


def exchange(
    finite: Finite,
    delta: float,
    base: tuple[float, float],
    tol: float,
    max_iter: int,
    kept: Array,
) -> Exchanged:
    """Follow the central path, with the violated pairs added at every level, to a small gap."""
    target, n_iter, last = tol * base[1], 0, 0
    x, eta = _constant(finite, base, delta)
    if base[1] <= NO_RISK * max(float(np.abs(finite.y).max()), TINY):
        # the constant fits every row wherever it is moved
        x[-1] = 0.0
        return Exchanged(x, base[1], 0.0, 1, kept)
    master = finite.over(kept, delta)
    state = begin(master, x, eta)
    # no loss is negative
    best, lower, level = (np.inf, x), 0.0, base[1]
    while n_iter < max_iter:
        state, steps = follow(master, state, level, min(STEPS, max_iter - n_iter))
        n_iter += steps
        gains = finite.gains(state.x)
        top = gains.max(axis=1)
        objective = float(state.x[-1] * delta + finite.weights @ top)
        best = min(best, (objective, state.x), key=lambda pair: pair[0])
        if state.complementarity <= target or n_iter >= max_iter:
            lower = max(lower, bound(master, finite, state))
        stuck = steps == 0 and state.complementarity > level
        last += level <= LAST * target
        if best[0] - lower <= target or last > PATIENCE or stuck:
            break
        slackness = VIOLATED * max(target, state.complementarity)
        new = _violated(gains, kept, state.eta + slackness)
        if new.any():
            kept = kept | new
            master = finite.over(kept, delta)
            state = widen(master, state, ~new[master.row, master.node], top)
        level = max(FALL * state.complementarity, LAST * target)
    return Exchanged(best[1], best[0], max(best[0] - lower, 0.0), max(n_iter, 1), kept)


def _constant(finite: Finite, base: tuple[float, float], delta: float) -> tuple[Array, Array]:
    """Return the constant model with a price of the mean cost, and levels above its losses."""
    x = np.zeros(finite.nodes.shape[1] + 2)
    x[-2] = base[0]
    # no loss is negative, so that lam delta exceeds no risk worth having
    x[-1] = base[1] / max(finite.mean_cost, delta)
    loss = finite.loss.value(np.full(len(finite.y), base[0]), finite.y)
    return x, loss + 0.5 * base[1]


def _initial(finite: Finite) -> Array:
    """Return the nearest nodes of every row, and of every node the nearest rows of each label.

    The latter bound every score, without which the first problems have no solution.
    """
    cost = finite.cost
    kept = np.zeros(cost.shape, dtype=bool)
    near = np.argpartition(cost, min(NEAR, cost.shape[1]) - 1, axis=1)[:, :NEAR]
    np.put_along_axis(kept, near, True, axis=1)
    for label in finite.labels():
        rows = np.flatnonzero(label)
        near = np.argpartition(cost[rows], min(ROWS, len(rows)) - 1, axis=0)[:ROWS]
        kept[rows[near], np.arange(cost.shape[1])] = True
    return kept | (cost == 0)


def _violated(gains: Array, kept: Array, eta: Array) -> Array:
    """Return up to GAIN pairs per row outside ``kept`` whose gain exceeds eta."""
    over = np.where(kept, -np.inf, gains - eta[:, None])
    take = min(GAIN, over.shape[1])
    top = np.argpartition(over, -take, axis=1)[:, -take:]
    new = np.zeros_like(kept)
    np.put_along_axis(new, top, np.take_along_axis(over, top, axis=1) > 0, axis=1)
    return new


def widen(master: Master, state: State, old: Array, top: Array) -> State:
    """Return the state over more pairs: rows that they violate are raised above ``top``."""
    level = state.complementarity / degree(master)
    raised = np.zeros(len(top), dtype=bool)
    raised[master.row[~old]] = True
    eta = np.where(raised, np.maximum(state.eta, top + level), state.eta)
    w, _, _ = slack(master, state.x, eta)
    keep = old & ~raised[master.row]
    w[keep] = state.w[keep[old]]
    w = np.maximum(w, TINY)
    p = np.empty_like(w)
    p[old] = state.p
    now = float(state.p @ w[old] + state.zeta @ eta + state.sigma * state.x[-1]) / degree(master)
    p[~old] = now * master.weights[master.row[~old]] / w[~old]
    return State(state.x, eta, w, p, state.zeta, state.sigma)


def bound(master: Master, finite: Finite, state: State) -> float:
    """Return a lower bound on the risk of every model, from masses and forces made feasible.

    Forces p are projected on sum p o u = 0, each changed in proportion to itself, and scaled down
    until rows and budget can carry them: mass left over has slope 0 and adds nothing.
    """
    p = _balanced(master, state.p)
    if p is None:
        return -np.inf
    _, first, _ = slack(master, state.x, state.eta)
    steepest = master.ends.steepest
    least = p / steepest
    total = np.maximum(master.by_row(least), TINY)
    fit = min(1.0, float(np.min(master.weights / total)) * (1 - ROUNDING))
    p, least, total = fit * p, fit * least, fit * total
    mass = np.maximum(p * first, least)
    excess = np.maximum(master.by_row(mass) - total, TINY)
    share = np.clip((master.weights - total) / excess, 0.0, 1.0)
    mass = least + share[master.row] * (mass - least)
    fit = min(1.0, master.delta / max(float(mass @ master.cost), TINY))
    slope = np.minimum(p / np.maximum(mass, TINY), steepest)
    y = finite.y[master.row]
    conjugate = finite.loss.conjugate(np.where(mass > 0, slope * master.ends.side, 0.0), y)
    return -fit * float(mass @ conjugate)


def _balanced(master: Master, p: Array) -> Array | None:
    """Return forces >= 0 near p that rows can carry and whose sum p o u vanishes, None without.

    Each pass scales rows that carry too much, takes p + p^2 o u'v, the least change relative to
    p, and cuts off what is negative.
    """
    size = float(np.abs(master.nodes).max()) * float(p.sum())
    found = None
    for _ in range(PASSES):
        total = np.maximum(master.by_row(p / master.ends.steepest), TINY)
        if found is not None and (total <= (1 + ROUNDING) * master.weights).all():
            break
        p = p * np.minimum(1.0, master.weights / total)[master.row]
        square = p**2
        weight = np.sqrt(master.by_node(square))
        Q, R = np.linalg.qr(master.nodes * weight[:, None])
        for _ in range(2):
            v = Q @ np.linalg.lstsq(R.T, master.forces(p), rcond=SINGULAR)[0]
            p = p - square * master.ends.side * (v / np.maximum(weight, TINY))[master.node]
        p = np.maximum(p, 0.0)
        found = p if np.abs(master.forces(p)).max() <= BALANCED * size else None
    return found
