r"""Primal-dual interior-point method over pairs of rows and nodes.

.. math:: \min_{\theta, b, \lambda \ge 0, \eta}\ \lambda\delta + \sum_i \pi_i \eta_i
          \quad\text{s.t.}\quad \ell(u_j'\theta + b, y_i) - \lambda c_{ij} \le \eta_i .

The multipliers s_ij are the mass that the adversary carries from row i to node j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..losses.base import Loss, PiecewiseQuadratic

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Constraints: row, node, target, cost; ``slope`` is the piece of a piecewise linear loss."""

    row: Array
    node: Array
    y: Array
    cost: Array
    loss: Loss
    slope: Array | None

    def evaluate(self, z: Array) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature in the score of each pair."""
        if self.slope is None:
            return self.loss.evaluate(z, self.y)
        assert isinstance(self.loss, PiecewiseQuadratic)
        r = self.loss.residual(z, self.y)
        return self.slope * r, -self.loss.orientation(self.y) * self.slope, np.zeros_like(z)


@dataclass(frozen=True, eq=False)
class Master:
    """The problem over some pairs."""

    pairs: Pairs
    nodes: Array
    weights: Array
    delta: float
    fit_intercept: bool

    def by_row(self, v: Array) -> Array:
        """Return the sum over the pairs of each row."""
        return np.bincount(self.pairs.row, v, minlength=len(self.weights))


@dataclass(eq=False)
class State:
    """(theta, b, lam), eta, masses s (last: of lam >= 0), a lower bound, the steps taken."""

    x: Array
    eta: Array
    s: Array
    lower: float = -np.inf
    n_iter: int = 0


@dataclass(frozen=True, eq=False)
class Slack:
    """Constraint values g < 0 (last: -lam), slopes and curvatures of the pairs at a state."""

    g: Array
    value: Array
    slope: Array
    curvature: Array


def evaluate(master: Master, x: Array, eta: Array) -> Slack:
    """Return g_ij = l - lam c - eta and the derivatives of l."""
    p = master.pairs
    z = (master.nodes @ x[:-2] + x[-2])[p.node]
    value, slope, curvature = p.evaluate(z)
    g = value - x[-1] * p.cost - eta[p.row]
    return Slack(np.append(g, -x[-1]), value, slope, curvature)


def minimise(master: Master, x: Array, target: float, max_iter: int) -> State:
    """Follow the central path from (theta, b, lam) until the bound is within ``target``."""
    state, slack = _begin(master, x)
    best = state
    for n_iter in range(1, max_iter + 1):
        barrier = -float(slack.g @ state.s) / (10 * len(state.s))
        moves = _direction(master, state, slack, barrier)
        new, slack = _search(master, state, slack, moves, barrier)
        stuck = new is state
        state = new
        lower = _lower(master, state, slack)
        state.lower, state.n_iter = lower, n_iter
        objective = state.x[-1] * master.delta + master.weights @ state.eta
        if lower > best.lower or best.n_iter == 0:
            best = state
        if objective - lower <= target or stuck:
            break
    return State(state.x, state.eta, state.s, max(best.lower, state.lower), n_iter)


def _begin(master: Master, x: Array) -> tuple[State, Slack]:
    """Raise eta and lam until every constraint has slack; masses on the central path there."""
    x = x.copy()
    x[-1] = max(x[-1], 1e-3)
    slack = evaluate(master, x, np.zeros(len(master.weights)))
    eta = np.full(len(master.weights), -np.inf)
    np.maximum.at(eta, master.pairs.row, slack.g[:-1])
    eta += 0.1 * max(float(np.abs(eta).mean()), 1e-6)
    slack = evaluate(master, x, eta)
    s = -1 / slack.g
    total = master.by_row(s[:-1])
    s[:-1] *= (master.weights / total)[master.pairs.row]
    s[-1] *= float(np.mean(s[:-1] * -slack.g[:-1]))
    return State(x, eta, s), slack


def _columns(master: Master, slack: Slack) -> Array:
    """Return the gradient of l - lam c in (theta, b, lam), one row a pair."""
    p = master.pairs
    J = np.empty((len(p.row), master.nodes.shape[1] + 2))
    J[:, :-2] = master.nodes[p.node] * slack.slope[:, None]
    J[:, -2] = slack.slope * master.fit_intercept
    J[:, -1] = -p.cost
    return J


def _direction(
    master: Master, state: State, slack: Slack, barrier: float
) -> tuple[Array, Array, Array]:
    """Return the Newton move of (x, eta, s): eta by its diagonal, x by the Schur complement."""
    p, n = master.pairs, len(master.weights)
    J, D = _columns(master, slack), state.s / -slack.g
    push = barrier / -slack.g
    D1 = D[:-1]
    q = len(state.x)
    E = np.empty((n, q))
    for k in range(q):
        E[:, k] = master.by_row(D1 * J[:, k])
    diagonal = master.by_row(D1)
    H = (J * D1[:, None]).T @ J - (E / diagonal[:, None]).T @ E
    bend = np.bincount(p.node, state.s[:-1] * slack.curvature, minlength=len(master.nodes))
    U = np.column_stack([master.nodes, np.full(len(master.nodes), float(master.fit_intercept))])
    H[:-1, :-1] += (U * bend[:, None]).T @ U
    H[-1, -1] += D[-1]
    rx = -(J.T @ push[:-1])
    rx[-1] += push[-1] - master.delta
    r_eta = master.by_row(push[:-1]) - master.weights
    dx = _solve(H, rx + E.T @ (r_eta / diagonal))
    d_eta = (r_eta + E @ dx) / diagonal
    dg = np.append(J @ dx - d_eta[p.row], -dx[-1])
    return dx, d_eta, push - state.s + D * dg


def _solve(H: Array, r: Array) -> Array:
    scale = np.where(np.diag(H) > 0, np.diag(H), 1.0)
    ridge = 1e-15
    while True:
        try:
            factor = cho_factor(H + ridge * np.diag(scale))
        except LinAlgError:
            ridge *= 100
            continue
        x: Array = cho_solve(factor, r)
        return x + cho_solve(factor, r - H @ x)


def _search(
    master: Master,
    state: State,
    slack: Slack,
    moves: tuple[Array, Array, Array],
    barrier: float,
) -> tuple[State, Slack]:
    """Return the longest step that stays inside and lowers the residual of the central path."""
    dx, d_eta, ds = moves
    shrink = ds < 0
    length = min(1.0, 0.99 * float(np.min(-state.s[shrink] / ds[shrink], initial=1 / 0.99)))
    now = _residual(master, state, slack, barrier)
    for _ in range(40):
        new = State(state.x + length * dx, state.eta + length * d_eta, state.s + length * ds)
        trial = evaluate(master, new.x, new.eta)
        inside = trial.g.max() < 0
        if inside and _residual(master, new, trial, barrier) <= (1 - 0.01 * length) * now:
            return new, trial
        length /= 2
    return state, slack


def _stationarity(master: Master, state: State, slack: Slack) -> tuple[Array, Array]:
    p, s = master.pairs, state.s[:-1]
    mass = np.bincount(p.node, s * slack.slope, minlength=len(master.nodes))
    rx = np.empty_like(state.x)
    rx[:-2] = master.nodes.T @ mass
    rx[-2] = mass.sum() * master.fit_intercept
    rx[-1] = master.delta - s @ p.cost - state.s[-1]
    return rx, master.weights - master.by_row(s)


def _residual(master: Master, state: State, slack: Slack, barrier: float) -> float:
    rx, r_eta = _stationarity(master, state, slack)
    center = -state.s * slack.g - barrier
    return float(np.sqrt(rx @ rx + r_eta @ r_eta + center @ center))


def _lower(master: Master, state: State, slack: Slack) -> float:
    """Return a bound on the risk of every model up to twice as large: masses scaled to the rows'
    weights and the budget carry risk sum s l, less what stationarity lacks."""
    p = master.pairs
    s = state.s[:-1] * (master.weights / master.by_row(state.s[:-1]))[p.row]
    spent = float(s @ p.cost)
    if spent > master.delta:
        # mass beyond the budget stays at its row, where the cost is zero
        home = p.cost == 0
        excess = 1 - master.delta / spent
        back = master.by_row(np.where(home, 0.0, s)) * excess
        homes = np.maximum(master.by_row(home.astype(float)), 1)
        s = np.where(home, s + (back / homes)[p.row], s * (1 - excess))
    mass = np.bincount(p.node, s * slack.slope, minlength=len(master.nodes))
    r = np.append(master.nodes.T @ mass, mass.sum() * master.fit_intercept)
    size = float(np.linalg.norm(state.x[:-1]))
    return float(s @ slack.value) - float(np.linalg.norm(r)) * (1 + 3 * size)
