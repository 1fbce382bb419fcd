r"""The softmax model whose labels change at the price kappa, at order 1.

.. math:: \min_{C, c, t}\ \delta t + \sum_i \pi_i \Bigl[\log\sum_k e^{z_{ik}}
          + \max_j\{-z_{ij} - \kappa t\,[j \ne y_i]\}\Bigr],\qquad t \ge \max_p \|D_p\|_*,

by Newton's method along smoothings of the maximum, as in ``newton``. With probabilities p of the
scores and shares q of the labels that a row is given, minus Z'(pi (p - q)) is the divergence of
flows v of the pairs, and

.. math:: F^* \ge \sum_i \pi_i H(p_i)/(1 + x/\delta),\qquad
          \textstyle\sum_p \|v_p\| \le \delta + x - \kappa \sum_i \pi_i (1 - q_{iy_i}),

H the entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality import priced_pair_risk
from ...duality.ties import factored
from ..base import duality_gap
from ..softmax.penalty import PairPenalty, corrected
from ..softmax.rows import SoftmaxRows
from .cones import Barrier, Cone
from .newton import ARMIJO, FASTER, FIRST, HALVINGS, LEAST, SETTLED, STEPS

Array = NDArray[Any]

#: The first smoothing from a place whose risk is known to be near the least one, in units of what
#: it may be above that; and the least first one, in units of the risk.
OF_EXCESS, LEAST_FIRST = 0.02, 1e-5
#: How far above the largest norm the first t is.
ABOVE = 1.02


@dataclass(frozen=True, eq=False)
class PricedSoftmax:
    """What does not change: rows, the penalty and the cone of its norm, and the prices."""

    rows: SoftmaxRows
    penalty: PairPenalty
    cone: Cone
    delta: float
    kappa: float

    def other(self) -> Array:
        """Return 1 where a class is not the row's own, (n, K)."""
        other = np.ones((len(self.rows.labels), self.rows.classes))
        other[self.rows.own] = 0.0
        return other

    def norm(self, C: Array) -> float:
        """Return the largest norm over pairs."""
        return float(self.penalty.norms(self.rows.differences(C)).max())

    def place(self, C: Array, c: Array, least: float) -> SoftmaxPlace:
        """Return the place of coefficients, with a t near the best multiplier of theirs."""
        z = self.rows.scores(C, c)
        norm = self.norm(C)
        rows = self.rows
        dual = priced_pair_risk(z, rows.labels, rows.weights, norm, self.delta, self.kappa)
        return SoftmaxPlace(C, c, max(ABOVE * norm, dual.multiplier, least), z)


@dataclass(frozen=True, eq=False)
class SoftmaxPlace:
    """A point (C, c, t) with its scores."""

    C: Array
    c: Array
    t: float
    z: Array

    def moved(self, dC: Array, dc: Array, dt: float, dz: Array, length: float) -> SoftmaxPlace:
        """Return the place after a step."""
        parts = (self.C + length * dC, self.c + length * dc, self.t + length * dt)
        return SoftmaxPlace(*parts, self.z + length * dz)


@dataclass(frozen=True, eq=False)
class PricedSoftmaxMinimum:
    """The best place, its risk and multiplier, the gap, the slopes p - q, the steps."""

    place: SoftmaxPlace
    risk: float
    multiplier: float
    gap: float
    slopes: Array
    n_iter: int


def minimise(
    task: PricedSoftmax,
    place: SoftmaxPlace,
    unit: float,
    target: float,
    max_iter: int,
    known: float = 0.0,
) -> PricedSoftmaxMinimum:
    """Follow the smoothings until the gap is at most ``target``; ``known`` bounds the least risk.

    The first one is less than what the place may be above that.
    """
    best, dual = place, _risk(task, place)
    size = max(unit, dual.risk)
    share = OF_EXCESS * (dual.risk - known) / size if known > 0 else FIRST
    tau, n_iter, lower = size * float(np.clip(share, LEAST_FIRST, FIRST)), 0, 0.0
    slopes = np.zeros_like(place.z)
    while n_iter < max_iter and tau > LEAST * unit:
        place, step, taken = _settle(task, place, tau, min(STEPS, max_iter - n_iter))
        n_iter += taken
        now = _risk(task, place)
        if now.risk < dual.risk:
            best, dual = place, now
        for move in (step, 0 * step):
            bound, found = _lower_bound(task, place, tau, move)
            if bound > lower:
                lower, slopes = bound, found
        if dual.risk - lower <= target:
            break
        tau *= FASTER
    gap = duality_gap(dual.risk, lower)
    return PricedSoftmaxMinimum(best, dual.risk, dual.multiplier, gap, slopes, max(n_iter, 1))


def _risk(task: PricedSoftmax, place: SoftmaxPlace) -> Any:
    rows = task.rows
    norm = task.norm(place.C)
    return priced_pair_risk(place.z, rows.labels, rows.weights, norm, task.delta, task.kappa)


def _settle(
    task: PricedSoftmax, place: SoftmaxPlace, tau: float, steps: int
) -> tuple[SoftmaxPlace, Array, int]:
    """Take Newton steps at one smoothing; return the place before the last one, and that one."""
    value = _value(task, place, tau)
    for taken in range(1, steps + 1):
        g, H = _derivatives(task, place, tau)
        step = -cho_solve(factored(H), g, check_finite=False)
        decrease = -float(g @ step)
        if decrease <= SETTLED * tau or taken == steps:
            break
        dC, dc, dt = _split(task, step)
        dz = task.rows.scores(dC, dc)
        length = 1.0
        for _ in range(HALVINGS):
            new = place.moved(dC, dc, dt, dz, length)
            after = _value(task, new, tau)
            if after <= value - ARMIJO * length * decrease:
                break
            length /= 2
        if not after < value:
            break
        place, value = new, after
    return place, step, taken


def _split(task: PricedSoftmax, step: Array) -> tuple[Array, Array, float]:
    """Return (dC, dc, dt) of a step."""
    d, m = task.rows.design.d, task.rows.classes - 1
    parts = step[:-1].reshape(-1, m)
    dc = parts[d] if task.rows.fit_intercept else np.zeros(m)
    return parts[:d], dc, float(step[-1])


def _heights(task: PricedSoftmax, place: SoftmaxPlace) -> Array:
    """Return h_j = -z_j - kappa t [j != y]."""
    return -place.z - task.kappa * place.t * task.other()


def _soft(h: Array) -> tuple[Array, Array]:
    """Return log sum exp and its gradient along the last axis."""
    top = h.max(axis=1, keepdims=True)
    e = np.exp(h - top)
    total = e.sum(axis=1, keepdims=True)
    return np.log(total[:, 0]) + top[:, 0], e / total


def _value(task: PricedSoftmax, place: SoftmaxPlace, tau: float) -> float:
    """Return the smoothed objective, inf outside its domain."""
    barrier = sum(b.value for b in _barriers(task, place))
    if not np.isfinite(barrier):
        return np.inf
    loss = _soft(place.z)[0] + tau * _soft(_heights(task, place) / tau)[0]
    return float(task.delta * place.t + task.rows.weights @ loss + tau * barrier)


def _barriers(task: PricedSoftmax, place: SoftmaxPlace) -> list[Barrier]:
    """Return the barrier of every pair."""
    return [task.cone.barrier(D, place.t) for D in task.rows.differences(place.C)]


def _derivatives(task: PricedSoftmax, place: SoftmaxPlace, tau: float) -> tuple[Array, Array]:
    """Return gradient and Hessian of the smoothed objective in (C, c, t)."""
    rows, kappa, pi = task.rows, task.kappa, task.rows.weights
    d = rows.design.d
    p = _soft(place.z)[1]
    q = _soft(_heights(task, place) / tau)[1]
    own = q[rows.own]
    k, j = rows.all_pairs
    inner = rows.pair_curvature(pi[:, None] * (p[:, k] * p[:, j] + q[:, k] * q[:, j] / tau))
    size = len(inner) + 1
    g, H = np.zeros(size), np.zeros((size, size))
    H[:-1, :-1] = inner
    # (kappa/tau) (diag q - qq')(1 - e_y) = -(kappa/tau) (diag q - qq') e_y
    cross = q * own[:, None]
    cross[rows.own] -= own
    cross *= kappa / tau
    for at, a in ((g[:-1], p - q), (H[-1, :-1], cross)):
        at[: d * (rows.classes - 1)] = (rows.adjoint(a) @ rows.basis).ravel()
        if rows.fit_intercept:
            at[d * (rows.classes - 1) :] = (pi @ a) @ rows.basis
    H[:-1, -1] = H[-1, :-1]
    g[-1] = task.delta - kappa * float(pi @ (1 - own))
    H[-1, -1] = kappa**2 * float(pi @ (own * (1 - own))) / tau
    _add_barriers(task, place, tau, g, H)
    return g, H


def _add_barriers(task: PricedSoftmax, place: SoftmaxPlace, tau: float, g: Array, H: Array) -> None:
    """Add the barriers of the pairs, over (C, t)."""
    d, m = place.C.shape
    n = d * m
    mixed = task.rows.incidence @ task.rows.basis
    for barrier, row in zip(_barriers(task, place), mixed, strict=True):
        g[:n] += tau * np.outer(barrier.gradient[:-1], row).ravel()
        g[-1] += tau * barrier.gradient[-1]
        H[:n, :n] += tau * np.kron(np.diag(barrier.diagonal[:-1]), np.outer(row, row))
        H[-1, -1] += tau * barrier.diagonal[-1]
        for v, weight in zip(barrier.vectors, barrier.weight, strict=True):
            full = np.zeros(len(g))
            full[:n] = np.outer(v[:-1], row).ravel()
            full[-1] = v[-1]
            H += tau * weight * np.outer(full, full)


def _lower_bound(
    task: PricedSoftmax, place: SoftmaxPlace, tau: float, step: Array
) -> tuple[float, Array]:
    """Return the bound of p and q continued along a Newton step, and p - q."""
    rows, pi = task.rows, task.rows.weights
    dC, dc, dt = _split(task, step)
    dz = rows.scores(dC, dc)
    p = _soft(place.z)[1]
    q = _soft(_heights(task, place) / tau)[1]
    after = p + rows.bent(p, dz)
    q = q + rows.bent(q, -dz - task.kappa * dt * task.other()) / tau
    if rows.fit_intercept:
        mean = np.diag(pi @ p) - (pi[:, None] * p).T @ p
        b = -np.linalg.lstsq(mean, pi @ (after - q), rcond=None)[0]
        after = after + rows.bent(p, np.broadcast_to(b, p.shape))
    heavy = pi > 0
    if after[heavy].min() < 0 or q[heavy].min() < 0:
        return 0.0, p - q
    flows = corrected(rows, rows.adjoint(after - q), _flows(task, place, tau, dC, dt))
    need = float(task.penalty.sizes(flows).sum())
    paid = task.delta - task.kappa * float(pi @ (1 - q[rows.own]))
    excess = max(0.0, need - paid)
    entropy = -np.where(after > 0, after * np.log(np.maximum(after, 1e-300)), 0.0).sum(axis=1)
    return float(pi[heavy] @ entropy[heavy]) / (1 + excess / task.delta), after - q


def _flows(task: PricedSoftmax, place: SoftmaxPlace, tau: float, dC: Array, dt: float) -> Array:
    """Return tau times the barriers' gradients in D, continued along a step."""
    found = []
    for barrier, dD in zip(_barriers(task, place), task.rows.differences(dC), strict=True):
        move = np.append(dD, dt)
        rise = barrier.diagonal * move
        rise = rise + barrier.vectors.T @ (barrier.weight * (barrier.vectors @ move))
        found.append(tau * (barrier.gradient + rise)[:-1])
    return np.stack(found)
