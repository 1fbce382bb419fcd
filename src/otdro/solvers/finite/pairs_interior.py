r"""Primal-dual interior-point method over pairs of rows and nodes.

.. math:: \min_{\theta, b, \lambda \ge 0, \eta \ge 0}\ \lambda\delta + \sum_i \pi_i \eta_i
          \quad\text{s.t.}\quad \ell(u_j'\theta + b, y_i) \le \eta_i + \lambda c_{ij} .

Every constraint is written by the ends of the sublevel set of the loss,
:math:`w = \psi(\eta_i + \lambda c_{ij}) - o\,(u_j'\theta + b) \ge 0`: linear in the model, where
the loss itself would look flat to a Newton step from far on its good side. The multipliers p of
these are forces on the scores; :math:`s = p\,\psi'` is the mass that the adversary carries from
row i to node j, and zeta_i, the multiplier of eta_i >= 0, mass without a force. Slacks w are
variables of their own, so that steps need not stay where psi is well approximated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_solve, cholesky, qr

from ...losses.sublevel import Ends

Array = NDArray[Any]

#: The share of the way to the boundary that a step may go.
SHARE = 0.99
#: How often lam is multiplied, and by how much, until masses cost no more than the budget.
RAISES, RAISE = 60, 3.0
#: The least product of a slack and its multiplier that is aimed at, relative to the level.
LEAST_PRODUCT = 0.1
#: The share of the least lack so far that counts as progress, and the steps without it after which
#: rounding is taken to be the cause.
PROGRESS, PATIENCE = 0.9, 5
#: The share of the predictor's step at which the bends of psi are taken: it may end at psi' = inf.
BENT = 0.95
#: Halvings of a step, and the growth of the residual that asks for them.
HALVINGS, GROWTH = 6, 2.0
#: The least pivot, relative to the diagonal, that a Cholesky factor may have.
SOUND = 1e-12
#: What holds a column without constraints, relative to the root of the diagonal.
RIDGE = 1e-15
#: Differences of this size, relative to their terms, are noise.
ROUNDING = 1e-14


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


def _missed(master: Master, x: Array, eta: Array, w: Array) -> tuple[Array, Array, Array]:
    """Return the slack at (x, eta) less w, zero where that is rounding; psi' and psi''."""
    psi, first, second = master.ends.curve(eta[master.row] + x[-1] * master.cost)
    z = master.scores(x)
    missed = psi - z - w
    return (
        np.where(np.abs(missed) > ROUNDING * (np.abs(psi) + np.abs(z)), missed, 0.0),
        first,
        second,
    )


def begin(master: Master, x: Array, eta: Array) -> State:
    """Return a state with slack at (theta, b) whose masses keep the rows' weights and the budget.

    ``eta`` exceeds the losses at the rows. lam grows until masses in inverse proportion to the
    slacks cost no more than delta.
    """
    x = x.copy()
    for _ in range(RAISES):
        w, first, _ = slack(master, x, eta)
        p, zeta = 1 / w, 1 / eta
        total = master.by_row(p * first) + zeta
        p, zeta = p * (master.weights / total)[master.row], zeta * master.weights / total
        if (p * first) @ master.cost <= master.delta:
            break
        x[-1] *= RAISE
    level = float(p @ w + zeta @ eta) / degree(master)
    return State(x, eta, w, p, zeta, level / x[-1])


def degree(master: Master) -> float:
    """Return the sum of the weights of all products: pi_i for a pair and for eta_i, 1 for lam."""
    return float(master.weights[master.row].sum() + master.weights.sum()) + 1.0


def follow(master: Master, state: State, level: float, max_iter: int) -> tuple[State, int]:
    """Take Newton steps, one at least, to complementarity and residual of at most ``level``.

    Products are not driven far below the level, whatever the residual. Also the number of steps.
    """
    least = LEAST_PRODUCT * level / degree(master)
    lowest, since = np.inf, 0
    residual = Residual(master, state)
    for n_iter in range(max_iter):
        lack = max(state.complementarity, residual.size)
        lowest, since = (lack, 0) if lack < PROGRESS * lowest else (lowest, since + 1)
        if (lack <= level and n_iter > 0) or since > PATIENCE:
            return state, n_iter
        new, after = _step(master, state, residual, least)
        if not np.isfinite(new.complementarity + after.size):
            return state, n_iter
        state, residual = new, after
    return state, max_iter


class Residual:
    """What the conditions of optimality lack at a state, and psi', psi'' there.

    ``size`` weighs the forces by the model and masses by the levels that they pay for, and adds
    by how much the losses exceed their levels.
    """

    def __init__(self, master: Master, state: State) -> None:
        self.slack, self.first, self.second = _missed(master, state.x, state.eta, state.w)
        mass = state.p * self.first
        self.x = np.append(master.forces(state.p), master.delta - mass @ master.cost - state.sigma)
        self.eta = master.weights - master.by_row(mass) - state.zeta
        size = np.abs(self.x) @ np.abs(state.x) + np.abs(self.eta) @ state.eta
        self.size = float(size) + _excess(master, state.w + self.slack, self.first)


def _excess(master: Master, actual: Array, first: Array) -> float:
    """Return by how much the rows' largest losses exceed their levels, from slacks and psi'."""
    over = np.maximum(-actual, 0.0) / first
    return float(master.weights @ np.maximum.reduceat(over, master.place[:-1]))


def _step(master: Master, state: State, residual: Residual, least: float) -> tuple[State, Residual]:
    """Mehrotra's predictor and corrector, the latter with the bends of psi as they are.

    The step is halved while it makes the residual much larger than it and the products are.
    """
    newton = PairsNewton(master, state, residual)
    affine = newton.move(0.0, None, 0.0)
    primal, dual = _lengths(master, state, affine, 1.0)
    after = state.moved(affine, primal, dual).complementarity
    now = state.complementarity
    centre = max(min(1.0, (after / now) ** 3) * now / degree(master), least)
    move = newton.move(centre, affine, min(primal, dual))
    primal, dual = _lengths(master, state, move, SHARE)
    for _ in range(HALVINGS):
        new = state.moved(move, primal, dual)
        missed, _, _ = _missed(master, new.x, new.eta, new.w)
        new = replace(new, w=new.w + np.maximum(missed, 0.0))
        found = Residual(master, new)
        if found.size <= GROWTH * max(residual.size, now):
            break
        primal, dual = primal / 2, dual / 2
    return new, found


def _lengths(master: Master, state: State, move: State, share: float) -> tuple[float, float]:
    """Return how far slacks and multipliers may go; one length for both where psi is bent."""
    primal = min(
        _ratio(state.w, move.w), _ratio(state.eta, move.eta), _ratio(state.x[-1:], move.x[-1:])
    )
    sigma = np.array([state.sigma]), np.array([move.sigma])
    dual = min(_ratio(state.p, move.p), _ratio(state.zeta, move.zeta), _ratio(*sigma))
    primal, dual = min(1.0, share * primal), min(1.0, share * dual)
    if not master.ends.linear:
        primal = dual = min(primal, dual)
    return primal, dual


def _ratio(v: Array, move: Array) -> float:
    """Return the longest step that keeps v + step move nonnegative."""
    falls = move < 0
    return float(np.min(v[falls] / -move[falls], initial=np.inf))


class PairsNewton:
    """The Newton system of the optimality conditions at a state: eta by its diagonal, x by Schur.

    With D = p/w the constraints weigh D in the model and B = D psi'^2 - p psi'' in the level.
    """

    def __init__(self, master: Master, state: State, residual: Residual) -> None:
        self.master, self.state, self.residual = master, state, residual
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
        factor = _cholesky(H - (self.E / self.diagonal[:, None]).T @ self.E)
        self.factor = self._orthogonal(np.sqrt(np.diag(H))) if factor is None else factor

    def _orthogonal(self, scale: Array) -> Array:
        """Return the factor of H from a root of it, whose small directions rounding spares.

        Constraints and bends are taken at the level eta_i that answers x; no difference of large
        numbers is left.
        """
        m, s, r, c = self.master, self.state, self.residual, self.master.cost
        answer = self.E / self.diagonal[:, None]
        pull = np.column_stack([-m.ends.side[:, None] * m.nodes[m.node], r.first * c])
        pull -= r.first[:, None] * answer[m.row]
        bend = -answer[m.row]
        bend[:, -1] += c
        parts = [
            np.sqrt(self.D)[:, None] * pull,
            np.sqrt(-s.p * r.second)[:, None] * bend,
            np.sqrt(s.zeta / s.eta)[:, None] * answer,
            np.diag(RIDGE * np.where(scale > 0, scale, 1.0)),
        ]
        parts[-1][-1, -1] += np.sqrt(s.sigma / s.x[-1])
        root: Array = qr(np.vstack(parts), mode="r")[0][: len(scale)]
        return root

    def move(self, centre: float, affine: State | None, length: float) -> State:
        """Return the move to products ``centre`` times the weights.

        What the step ``length`` along ``affine`` leaves to second order is taken off beforehand.
        """
        m, s, c, first = self.master, self.state, self.master.cost, self.residual.first
        lacking, rx, r_eta = self.residual.slack, self.residual.x, self.residual.eta
        goal, goal_eta, goal_lam = centre * m.weights[m.row], centre * m.weights, centre
        if affine is not None:
            bend, extra = self._bends(affine, BENT * length)
            lacking, r_eta = lacking + bend, r_eta - m.by_row(extra)
            rx = np.append(rx[:-1], rx[-1] - extra @ c)
            goal = goal - length**2 * affine.w * affine.p
            goal_eta = goal_eta - length**2 * affine.eta * affine.zeta
            goal_lam = goal_lam - length**2 * affine.x[-1] * affine.sigma
        q = goal / s.w - s.p - self.D * lacking
        v_eta = m.by_row(first * q) - r_eta + goal_eta / s.eta - s.zeta
        v = np.append(-m.forces(q), (first * c) @ q + goal_lam / s.x[-1] - s.sigma) - rx
        dx: Array = cho_solve((self.factor, False), v - self.E.T @ (v_eta / self.diagonal))
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

    def _bends(self, affine: State, length: float) -> tuple[Array, Array]:
        """Return what the linear model of psi and of the masses p psi' misses at a step."""
        m, s, r = self.master, self.state, self.residual
        t = s.eta[m.row] + s.x[-1] * m.cost
        dt = length * (affine.eta[m.row] + affine.x[-1] * m.cost)
        p = s.p + length * affine.p
        before, _, _ = m.ends.curve(t)
        after, first, _ = m.ends.curve(t + dt)
        return after - before - r.first * dt, p * (first - r.first) - s.p * r.second * dt


def _cholesky(H: Array) -> Array | None:
    """Return the upper factor of H, None where less than half of its digits would be right."""
    scale = np.diag(H)
    if not scale.min() > 0:
        return None
    try:
        R = cholesky(H)
    except LinAlgError:
        return None
    return R if (np.diag(R) ** 2 >= SOUND * scale).all() else None
