r"""Finite support and graphs: the adversary moves mass only between given nodes u_j.

.. math:: \min_{\beta, b, \lambda \ge 0}\ \lambda\delta + \sum_i \pi_i \max_j
          \{\ell(u_j'\beta + b, y_i) - \lambda c_{ij}\},

the nodes being the rows and the points of ``support``, c the cost to the power of the order. Few
pairs (i, j) bind: an interior-point method follows the central path of the problem over some
pairs, and on its way down the pairs that its point violates are added. With levels eta_i,

.. math:: \min_{\theta, b, \lambda \ge 0, \eta \ge 0}\ \lambda\delta + \sum_i \pi_i \eta_i
          \quad\text{s.t.}\quad \ell(u_j'\theta + b, y_i) \le \eta_i + \lambda c_{ij} .

Every constraint is written by the ends of the sublevel set of the loss,
:math:`w = \psi(\eta_i + \lambda c_{ij}) - o\,(u_j'\theta + b) \ge 0`: linear in the model, where
the loss itself would look flat to a Newton step from far on its good side. The multipliers p of
these are forces on the scores; :math:`s = p\,\psi'` is the mass that the adversary carries from
row i to node j, and zeta_i, the multiplier of eta_i >= 0, mass without a force. Slacks w are
variables of their own, so that steps need not stay where psi is well approximated. The n levels go
by a diagonal, and a dense system of d + 2 unknowns is left.

The gap holds against every model, to rounding. Masses s with row sums pi and cost at most delta,
and slopes a in the domain of the conjugate with :math:`\sum_{ij} s_{ij} a_{ij} u_j = 0`, bound the
optimum below by :math:`-\sum_{ij} s_{ij}\,\ell^*(a_{ij}, y_i)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_solve

from ..arrays import TINY
from ..design import Design
from ..duality import EQUAL, PRECISION, TRIES, factored
from ..losses.base import Ends, Loss
from ..problem import Problem, Solution
from ..progress import logger
from .exact import Method, Starts, constant_solution, verdict
from .predictor_corrector import FALL, LAST, SHORT_OF, corrected_step, follow, longest

Array = NDArray[Any]

#: Nodes near a row to start with, and the most pairs that a row gains at a time.
PAIRS = 4


class FiniteSupport(Method):
    """Any loss over a finite support, or a cost on a graph."""

    geometries = frozenset({"finite"})

    def lacks(self, problem: Problem) -> str | None:
        """Accept every problem over nodes."""
        return None

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions: costs are computed once, pairs are kept from delta to delta."""
        if problem.constant[1] <= PRECISION**2 * max(float(np.abs(problem.y).max()), TINY):
            # the constant fits every row wherever it is moved
            return [constant_solution(problem)] * len(deltas)
        finite, center, back = formulate(problem)
        kept = _initial(finite)
        solved = []
        for delta in deltas:
            point, kept = exchange(finite, float(delta), problem.constant, tol, max_iter, kept)
            coef = back @ point.coef
            solved.append(
                replace(point, coef=coef, intercept=float(point.intercept - center @ coef))
            )
            logger.info("delta %.4g: %s", delta, point.message)
        return solved


@dataclass(frozen=True, eq=False)
class Finite:
    """Nodes (centred and scaled columns), costs of shape (n, m), targets, weights and loss."""

    nodes: Array
    cost: Array
    y: Array
    weights: Array
    loss: Loss
    fit_intercept: bool

    @cached_property
    def columns(self) -> Array:
        """The nodes and a column for the intercept, of zeros where there is none."""
        return np.column_stack([self.nodes, np.full(len(self.nodes), float(self.fit_intercept))])

    def gains(self, x: Array) -> Array:
        """Return l(u_j'theta + b, y_i) - lam c_ij for all pairs."""
        z = self.columns @ x[:-1]
        # two labels need two rows of losses, whatever n
        labels, which = np.unique(self.y, return_inverse=True)
        losses = self.loss.value(*np.broadcast_arrays(z, labels[:, None]))
        return np.asarray(losses[which] - x[-1] * self.cost)

    def over(self, kept: Array, delta: float) -> Master:
        """Return the problem over the kept pairs."""
        row, node = np.nonzero(kept)
        ends = self.loss.sublevel(self.y[row])
        row, node = row[ends.of], node[ends.of]
        cost = self.cost[row, node]
        return Master(row, node, cost, ends, self.columns, self.weights, delta)


def formulate(problem: Problem) -> tuple[Finite, Array, Array]:
    """Return the problem over the nodes of its support, centred where there is an intercept.

    In its coordinates theta, beta = ``back`` theta and nodes are less their ``center``.
    """
    nodes, cost = places(problem)
    # a row without weight is a node only
    moves = problem.weights > 0
    center = nodes.mean(axis=0) if problem.fit_intercept else np.zeros(nodes.shape[1])
    place, back = _coordinates(nodes - center, PRECISION * float(np.abs(nodes).max()))
    finite = Finite(
        nodes=place,
        cost=cost[moves],
        y=problem.y[moves],
        weights=problem.weights[moves],
        loss=problem.loss,
        fit_intercept=problem.fit_intercept,
    )
    return finite, center, back


def _coordinates(nodes: Array, rounding: float) -> tuple[Array, Array]:
    """Return scaled columns, or coordinates in their span where they depend on each other, and E.

    A direction that no node has would leave theta free along it; columns of the size of
    ``rounding`` are none.
    """
    scale = np.sqrt((nodes**2).mean(axis=0))
    varies = scale > max(EQUAL * float(scale.max()), rounding)
    scale = np.where(varies, scale, 1.0)
    place = np.where(varies, nodes / scale, 0.0)
    R = np.linalg.qr(place, mode="r")
    _, sizes, Vt = np.linalg.svd(R, full_matrices=False)
    V = Vt[sizes > EQUAL * sizes[0]].T
    if V.shape[1] == nodes.shape[1]:
        return place, np.diag(1 / scale)
    return place @ V, V / scale[:, None]


def places(problem: Problem) -> tuple[Array, Array]:
    """Return the nodes, the rows first, and the costs (n, m) of moving a row to a node."""
    X, S = (
        Design(block).dense() if sparse.issparse(block) else block
        for block in (problem.X, problem.support)
    )
    X = np.asarray(X, dtype=float)
    S = None if S is None else np.asarray(S, dtype=float)
    if S is not None and (S.ndim != 2 or S.shape[1] != X.shape[1]):
        raise ValueError(f"support has shape {S.shape} but X has {X.shape[1]} columns.")
    if S is not None and not np.isfinite(S).all():
        raise ValueError("support has NaN or infinite entries.")
    ball = problem.ball
    nodes = X if S is None else np.vstack([X, S])
    distance = ball.cost.distance_to_nodes(X, S)
    cost = distance**ball.order
    np.fill_diagonal(cost, 0.0)
    return nodes, cost


@dataclass(frozen=True, eq=False)
class Master:
    """Constraints sorted by row: row, node, cost, ends; nodes with a column for the intercept."""

    row: Array
    node: Array
    cost: Array
    ends: Ends
    nodes: Array
    weights: Array
    delta: float

    @cached_property
    def place(self) -> Array:
        """The first constraint of each row, and the number of all."""
        return np.searchsorted(self.row, np.arange(len(self.weights) + 1))

    @cached_property
    def degree(self) -> float:
        """The sum of the weights of all products: pi_i for a pair and for eta_i, 1 for lam."""
        return float(self.weights[self.row].sum() + self.weights.sum()) + 1.0

    def by_row(self, v: Array) -> Array:
        """Return the sum over the constraints of each row."""
        return np.bincount(self.row, v, minlength=len(self.weights))

    def by_node(self, v: Array) -> Array:
        """Return the sum over the constraints of each node."""
        return np.bincount(self.node, v, minlength=len(self.nodes))

    def forces(self, p: Array) -> Array:
        """Return sum p o u, zero where no change of the model gains."""
        return self.nodes.T @ self.by_node(p * self.ends.side)

    def scores(self, x: Array) -> Array:
        """Return o (u'theta + b) of every constraint."""
        return self.ends.side * (self.nodes @ x[:-1])[self.node]


@dataclass(frozen=True, eq=False)
class State:
    """(theta, b, lam), eta, slacks w, and the multipliers: p of w, zeta of eta, sigma of lam."""

    x: Array
    eta: Array
    w: Array
    p: Array
    zeta: Array
    sigma: float

    @property
    def complementarity(self) -> float:
        """The sum of all slacks times multipliers: the gap, once both sides are feasible."""
        return float(self.p @ self.w + self.zeta @ self.eta + self.sigma * self.x[-1])

    def moved(self, move: State, primal: float, dual: float) -> State:
        """Return the state after a step."""
        return State(
            self.x + primal * move.x,
            self.eta + primal * move.eta,
            self.w + primal * move.w,
            self.p + dual * move.p,
            self.zeta + dual * move.zeta,
            self.sigma + dual * move.sigma,
        )


def slack(master: Master, x: Array, eta: Array) -> tuple[Array, Array, Array]:
    """Return psi(eta + lam c) - o z, psi' and psi''."""
    psi, first, second = master.ends.curve(eta[master.row] + x[-1] * master.cost)
    return psi - master.scores(x), first, second


def begin(master: Master, x: Array, eta: Array) -> State:
    """Return a state with slack at (theta, b) whose masses keep the rows' weights and the budget.

    ``eta`` exceeds the losses at the rows. lam grows until masses in inverse proportion to the
    slacks cost no more than delta.
    """
    x = x.copy()
    while True:
        w, first, _ = slack(master, x, eta)
        p, zeta = 1 / w, 1 / eta
        total = master.by_row(p * first) + zeta
        p, zeta = p * (master.weights / total)[master.row], zeta * master.weights / total
        if (p * first) @ master.cost <= master.delta:
            break
        x[-1] *= 2
    level = float(p @ w + zeta @ eta) / master.degree
    return State(x, eta, w, p, zeta, level / x[-1])


def descend(master: Master, state: State, level: float, max_iter: int) -> tuple[State, int]:
    """Take Newton steps, one at least, to complementarity and residual of at most ``level``.

    Products are not driven far below the level, whatever the residual. Also the number of steps.
    """
    least = FALL * level / master.degree
    lacks: list[float] = []

    def done(now: tuple[State, Residual]) -> bool:
        lacks.append(max(now[0].complementarity, now[1].size))
        stuck = len(lacks) - 1 - int(np.argmin(lacks)) > TRIES
        return (lacks[-1] <= level and len(lacks) > 1) or stuck

    def advance(now: tuple[State, Residual]) -> tuple[State, Residual] | None:
        new, after = PairsEquations(master, *now).after(least)
        return (new, after) if np.isfinite(new.complementarity + after.size) else None

    (state, _), steps = follow((state, Residual(master, state)), advance, done, max_iter)
    return state, steps


class Residual:
    """What the conditions of optimality lack at a state, and psi', psi'' there.

    ``slack`` is that of the constraints less w, zero where that is rounding. ``size`` weighs the
    forces by the model and masses by the levels that they pay for, and adds by how much the losses
    exceed their levels.
    """

    def __init__(self, master: Master, state: State) -> None:
        psi, self.first, self.second = master.ends.curve(
            state.eta[master.row] + state.x[-1] * master.cost
        )
        z = master.scores(state.x)
        missed = psi - z - state.w
        noise = PRECISION * (np.abs(psi) + np.abs(z))
        self.slack = np.where(np.abs(missed) > noise, missed, 0.0)
        mass = state.p * self.first
        self.x = np.append(master.forces(state.p), master.delta - mass @ master.cost - state.sigma)
        self.eta = master.weights - master.by_row(mass) - state.zeta
        size = np.abs(self.x) @ np.abs(state.x) + np.abs(self.eta) @ state.eta
        # by how much the rows' largest losses exceed their levels
        over = np.maximum(-(state.w + self.slack), 0.0) / self.first
        excess = master.weights @ np.maximum.reduceat(over, master.place[:-1])
        self.size = float(size + excess)


class PairsEquations:
    """Newton's equations of the optimality conditions: eta by its diagonal, x by Schur.

    With D = p/w the constraints weigh D in the model and B = D psi'^2 - p psi'' in the level.
    A length is that of the slacks and that of the
    multipliers, which are equal where psi is bent.
    """

    def __init__(self, master: Master, state: State, residual: Residual) -> None:
        self.master = master
        self.state = state
        self.residual = residual
        self.mean = state.complementarity / master.degree
        m, s, c = master, state, master.cost
        self.D = s.p / s.w
        B = self.D * residual.first**2 - s.p * residual.second
        cross = self.D * residual.first * m.ends.side
        shape = len(m.weights), len(m.nodes)
        coupling = sparse.csr_array((cross, m.node, m.place), shape=shape)
        self.E = np.column_stack([-(coupling @ m.nodes), m.by_row(B * c)])
        self.diagonal = m.by_row(B) + s.zeta / s.eta
        H = np.empty((len(s.x), len(s.x)))
        H[:-1, :-1] = (m.nodes * m.by_node(self.D)[:, None]).T @ m.nodes
        H[-1, :-1] = H[:-1, -1] = -(m.nodes.T @ m.by_node(cross * c))
        H[-1, -1] = B @ c**2 + s.sigma / s.x[-1]
        self.factor = factored(H - (self.E / self.diagonal[:, None]).T @ self.E)

    def longest(self, move: State) -> Array:
        """Return how far slacks and multipliers may go."""
        s = self.state
        primal = longest((s.w, move.w), (s.eta, move.eta), (s.x[-1:], move.x[-1:]))
        sigma = (np.array([s.sigma]), np.array([move.sigma]))
        lengths = np.array([primal, longest((s.p, move.p), (s.zeta, move.zeta), sigma)])
        return lengths if self.master.ends.linear else np.full(2, lengths.min())

    def mean_after(self, move: State, length: Array) -> float:
        """Return the mean product after a step."""
        return self.state.moved(move, *length).complementarity / self.master.degree

    def after(self, least: float) -> tuple[State, Residual]:
        """Return the state after Mehrotra's step, and what the conditions lack there.

        Products are not aimed below ``least``. The step is halved while the residual is more than
        twice what it and the products were.
        """
        move = corrected_step(self, least)
        length = np.minimum(1.0, SHORT_OF * self.longest(move))
        while True:
            new = self.state.moved(move, *length)
            missed = Residual(self.master, new).slack
            new = replace(new, w=new.w + np.maximum(missed, 0.0))
            residual = Residual(self.master, new)
            # as the length tends to 0 the residual tends to that of the state
            if not residual.size > 2 * max(self.residual.size, self.state.complementarity):
                break
            length = length / 2
        return new, residual

    def step(self, mu: float, last: State | None = None, length: Any = 1.0) -> State:
        """Return the step to products ``mu`` times the weights.

        What ``length`` times the step ``last`` leaves to second order is taken off beforehand.
        """
        m, s, c, first = self.master, self.state, self.master.cost, self.residual.first
        lacking, rx, r_eta = self.residual.slack, self.residual.x, self.residual.eta
        goal, goal_eta, goal_lam = mu * m.weights[m.row], mu * m.weights, mu
        if last is not None:
            reach = float(np.min(length))
            goal = goal - reach**2 * last.w * last.p
            goal_eta = goal_eta - reach**2 * last.eta * last.zeta
            goal_lam = goal_lam - reach**2 * last.x[-1] * last.sigma
        q = goal / s.w - s.p - self.D * lacking
        v_eta = m.by_row(first * q) - r_eta + goal_eta / s.eta - s.zeta
        v = np.append(-m.forces(q), (first * c) @ q + goal_lam / s.x[-1] - s.sigma) - rx
        dx: Array = cho_solve(self.factor, v - self.E.T @ (v_eta / self.diagonal))
        d_eta = (v_eta - self.E @ dx) / self.diagonal
        dw = first * (d_eta[m.row] + c * dx[-1]) - m.scores(dx)
        return State(
            dx,
            d_eta,
            dw + lacking,
            q - self.D * dw,
            (goal_eta - s.zeta * d_eta) / s.eta - s.zeta,
            float((goal_lam - s.sigma * dx[-1]) / s.x[-1] - s.sigma),
        )


def exchange(
    finite: Finite,
    delta: float,
    base: tuple[float, float],
    tol: float,
    max_iter: int,
    kept: Array,
) -> tuple[Solution, Array]:
    """Follow the central path, with the violated pairs added at every level, to a small gap.

    Return the solution in (theta, b), and the pairs kept.
    """
    target, n_iter, last = tol * base[1], 0, 0
    x, eta = _constant(finite, base, delta)
    # no loss is negative
    best, lower, level = (np.inf, x), 0.0, base[1]
    master = finite.over(kept, delta)
    state = begin(master, x, eta)
    while n_iter < max_iter:
        state, steps = descend(master, state, level, max_iter - n_iter)
        n_iter += steps
        gains = finite.gains(state.x)
        top = gains.max(axis=1)
        objective = float(state.x[-1] * delta + finite.weights @ top)
        best = min(best, (objective, state.x), key=lambda pair: pair[0])
        if state.complementarity <= target or n_iter >= max_iter:
            lower = max(lower, bound(master, finite, state))
        stuck = steps == 0 and state.complementarity > level
        last += level <= LAST * target
        if best[0] - lower <= target or last > TRIES or stuck:
            break
        new = _violated(gains, kept, state.eta)
        if new.any():
            kept = kept | new
            master = finite.over(kept, delta)
            state = widen(master, state, ~new[master.row, master.node], top)
        level = max(FALL * state.complementarity, LAST * target)
    gap, (objective, x) = max(best[0] - lower, 0.0), best
    pairs = f"; finite support, {int(kept.sum())} of {kept.size} pairs kept"
    solution = Solution(
        coef=x[:-2],
        intercept=float(x[-2]),
        multiplier=float(x[-1]),
        objective=objective,
        gap=gap,
        n_iter=n_iter,
        converged=bool(gap <= target),
        message=verdict(gap, target, n_iter) + pairs,
    )
    return solution, kept


def _constant(finite: Finite, base: tuple[float, float], delta: float) -> tuple[Array, Array]:
    """Return the constant model with a price of the mean cost, and levels above its losses."""
    x = np.zeros(finite.nodes.shape[1] + 2)
    x[-2] = base[0]
    # no loss is negative, so that lam delta exceeds no risk worth having
    x[-1] = base[1] / max(float(finite.cost.mean()), delta)
    loss = finite.loss.value(np.full(len(finite.y), base[0]), finite.y)
    return x, loss + 0.5 * base[1]


def _initial(finite: Finite) -> Array:
    """Return the nearest nodes of every row, and of every node the nearest row of each label.

    The latter bound every score, without which the first problems have no solution.
    """
    cost = finite.cost
    kept = np.zeros(cost.shape, dtype=bool)
    near = np.argpartition(cost, min(PAIRS, cost.shape[1]) - 1, axis=1)[:, :PAIRS]
    np.put_along_axis(kept, near, True, axis=1)
    # targets that are numbers count as one label
    labels = finite.y if finite.loss.task == "classification" else np.zeros_like(finite.y)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        kept[rows[cost[rows].argmin(axis=0)], np.arange(cost.shape[1])] = True
    return kept | (cost == 0)


def _violated(gains: Array, kept: Array, eta: Array) -> Array:
    """Return up to PAIRS pairs per row outside ``kept`` whose gain exceeds eta."""
    over = np.where(kept, -np.inf, gains - eta[:, None])
    take = min(PAIRS, over.shape[1])
    top = np.argpartition(over, -take, axis=1)[:, -take:]
    new = np.zeros_like(kept)
    np.put_along_axis(new, top, np.take_along_axis(over, top, axis=1) > 0, axis=1)
    return new


def widen(master: Master, state: State, old: Array, top: Array) -> State:
    """Return the state over more pairs: rows that they violate are raised above ``top``."""
    level = state.complementarity / master.degree
    raised = np.zeros(len(top), dtype=bool)
    raised[master.row[~old]] = True
    eta = np.where(raised, np.maximum(state.eta, top + level), state.eta)
    w, _, _ = slack(master, state.x, eta)
    keep = old & ~raised[master.row]
    w[keep] = state.w[keep[old]]
    w = np.maximum(w, TINY)
    p = np.empty_like(w)
    p[old] = state.p
    now = float(state.p @ w[old] + state.zeta @ eta + state.sigma * state.x[-1]) / master.degree
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
    fit = min(1.0, float(np.min(master.weights / total)) * (1 - EQUAL))
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
    balanced = None
    for _ in range(TRIES):
        total = np.maximum(master.by_row(p / master.ends.steepest), TINY)
        if balanced is not None and (total <= (1 + EQUAL) * master.weights).all():
            break
        p = p * np.minimum(1.0, master.weights / total)[master.row]
        square = p**2
        weight = np.sqrt(master.by_node(square))
        Q, R = np.linalg.qr(master.nodes * weight[:, None])
        for _ in range(2):
            v = Q @ np.linalg.lstsq(R.T, master.forces(p), rcond=PRECISION)[0]
            p = p - square * master.ends.side * (v / np.maximum(weight, TINY))[master.node]
        p = np.maximum(p, 0.0)
        balanced = p if np.abs(master.forces(p)).max() <= 10 * PRECISION * size else None
    return balanced
