r"""A primal-dual interior point method for the largest of smooth pieces, under Euclidean costs.

.. math:: \min_{\theta, b, x, T}\ \delta\lambda + \sum_i \pi_i T_i\quad\text{s.t.}\quad
          T_i - f_{ij}(z_i, t, \lambda) = s_{ij} \ge 0,

t = ||theta|| + r with r >= 0 at order 1, where lambda = Lip t, and t = ||theta|| at order 2, where
the risk grows in t: x is r or lambda. The multipliers of s are the shares q of the pieces in a row,
that of r is nu; steps are Mehrotra's, s q = tau and r nu = tau.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality.ties import factored
from ..base import duality_gap
from .newton import Place, PricedMinimum, PricedRows, Risk, bound, gradient, hessian
from .pieces import SmoothPieces

Array = NDArray[Any]

#: Steps at most: where they do not do, smoothings are followed.
STEPS = 40
#: The first product s q, in units of the risk, the least first r, as a share of the norm, and the
#: first lam, relative to that of the place.
FIRST, FIRST_ROOM, ABOVE = 0.1, 0.1, 1.1
#: The share of the way to the boundary that a step takes, and of a slack that curvature may take.
SHORT_OF, LEFT = 0.995, 0.1
#: Pieces that a row does not have are this far below its others, in units of the risk.
FAR_BELOW = 1e3
#: The products s q, in units of the target, from which on bounds are worth their time.
WORTH = 3.0


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point (theta, b, x) with its scores, heights T (n,), shares q (J, n), and nu."""

    theta: Array
    b: float
    x: float
    z: Array
    T: Array
    q: Array
    nu: float


class Step(NamedTuple):
    """The moves of (theta, b, x), scores, heights, slacks (J, n), shares and nu."""

    move: Array
    dz: Array
    raised: Array
    ds: Array
    dq: Array
    dnu: float


def minimise(
    rows: PricedRows, place: Place, risk_of: Risk, unit: float, target: float, max_iter: int
) -> PricedMinimum | None:
    """Return the minimum from a place with coefficients, None where the steps do not get there."""
    now = _first(rows, place, risk_of(place)[1], unit)
    lower, slopes = 0.0, np.zeros_like(place.z)
    for n_iter in range(1, min(STEPS, max_iter) + 1):
        system = _PricedEquations(rows, now, unit)
        step = system.step()
        found = system.place
        if system.total <= WORTH * target:
            risk, lam = risk_of(found)
            for move in (step, None):
                value, mean = system.bound(move)
                if value > lower:
                    lower, slopes = value, mean
            if risk - lower <= target:
                gap = duality_gap(risk, lower)
                return PricedMinimum(found, risk, lam, gap, slopes, n_iter)
        after = _after(rows, now, system, step, unit)
        if after is None:
            return None
        now = after
    return None


def _first(rows: PricedRows, place: Place, lam: float, unit: float) -> Iterate:
    """Return the iterate at a place of multiplier lam whose products s q are about FIRST."""
    w = float(np.linalg.norm(place.theta))
    one = rows.worst.scalars == 1
    x = max(lam / rows.loss.lipschitz - w, FIRST_ROOM * w) if one else ABOVE * lam
    f = _pieces(rows, place.theta, place.z, x, unit).value
    T = f.max(axis=0) + len(f) * FIRST * unit
    q = 1 / (T - f)
    return Iterate(place.theta, place.b, x, place.z, T, q / q.sum(axis=0), FIRST * unit / x)


def _scalars(rows: PricedRows, theta: Array, x: float) -> Array:
    """Return (t,) or (t, lam)."""
    w = float(np.linalg.norm(theta))
    return np.array([w + x]) if rows.worst.scalars == 1 else np.array([w, x])


def _pieces(rows: PricedRows, theta: Array, z: Array, x: float, unit: float) -> SmoothPieces:
    """Return the pieces, those that a row does not have far below the others."""
    found = rows.worst.at(z, rows.y, _scalars(rows, theta, x))
    least = found.value.max(axis=0) - FAR_BELOW * unit
    return SmoothPieces(
        np.maximum(found.value, least), found.slope, found.bend, found.label, found.kept
    )


class _PricedEquations:
    """Newton's equations of one iterate, in (theta, b, x)."""

    def __init__(self, rows: PricedRows, now: Iterate, unit: float) -> None:
        self.rows = rows
        self.now = now
        self.one = rows.worst.scalars == 1
        self.pieces = _pieces(rows, now.theta, now.z, now.x, unit)
        self.s = now.T - self.pieces.value
        self.W = now.q / self.s
        self.share = self.W / self.W.sum(axis=0)
        self.w = float(np.linalg.norm(now.theta))
        self.u = now.theta / self.w
        self.place = Place(now.theta, now.b, _scalars(rows, now.theta, now.x), now.z)
        self.total = float(np.sum(rows.weights * now.q * self.s))
        self.total += now.x * now.nu if self.one else 0.0
        mean = np.einsum("jn,jnp->np", self.share, self.pieces.slope)
        off = self.pieces.slope - mean
        self.bend = np.einsum("jn,jnpq->npq", now.q, self.pieces.bend)
        self.bend += np.einsum("jn,jnp,jnq->npq", self.W, off, off)
        self.factor: Any = None

    @property
    def mu(self) -> float:
        """The mean product s q, one of which is that of r."""
        return self.total / (len(self.s) + self.one)

    def step(self) -> Step:
        """Return Mehrotra's step: towards the boundary first, then to where that leaves room."""
        now = self.now
        nothing = np.zeros_like(self.s)
        ahead = self._towards(0.0, nothing, 0.0)
        length = self.longest(ahead)
        s, q = self.s + length * ahead.ds, now.q + length * ahead.dq
        left = float(np.sum(self.rows.weights * s * q))
        if self.one:
            left += (now.x + length * ahead.move[-1]) * (now.nu + length * ahead.dnu)
        tau = (left / self.total) ** 3 * self.mu
        return self._towards(tau, ahead.ds * ahead.dq, float(ahead.move[-1]) * ahead.dnu)

    def _towards(self, tau: float, products: Array, product: float) -> Step:
        """Return the step to s q = tau - products and r nu = tau - product."""
        rows, now, d = self.rows, self.now, len(self.now.theta)
        aimed = (tau - products) / self.s
        spare = (aimed.sum(axis=0) - 1) / self.W.sum(axis=0)
        q = aimed - self.W * spare
        g = gradient(rows, np.einsum("jn,jnp->np", q, self.pieces.slope))
        pull = (tau - product) / now.x if self.one else 0.0
        if self.factor is None:
            self.factor = factored(self._curved(hessian(rows, self.bend), g))
        g = self._chained(g)
        g[-1] -= pull
        move = -cho_solve(self.factor, g, check_finite=False)
        dz = rows.design.scores(move[:d]) + move[d]
        dt = float(self.u @ move[:d])
        ds = np.array([dt + move[-1]]) if self.one else np.array([dt, move[-1]])
        rise = self.pieces.slope[:, :, 0] * dz + self.pieces.slope[:, :, 1:] @ ds
        raised = np.sum(self.share * rise, axis=0) + spare
        slack = raised - rise
        dq = aimed - now.q - self.W * slack
        dnu = pull - now.nu - now.nu / now.x * float(move[-1]) if self.one else 0.0
        return Step(move, dz, raised, slack, dq, dnu)

    def _chained(self, g: Array) -> Array:
        """Return a gradient in (theta, b, x) from that in (theta, b, s), t = ||theta|| + ..."""
        d = len(self.u)
        out = np.append(g[: d + 1], g[-1])
        out[:d] += g[d + 1] * self.u
        return out

    def _curved(self, H: Array, g: Array) -> Array:
        """Return the Hessian in (theta, b, x), with g_t (I - uu')/w of the norm."""
        d = len(self.u)
        chain = np.zeros((len(H), d + 2))
        chain[: d + 1, : d + 1] = np.eye(d + 1)
        chain[d + 1, :d] = self.u
        chain[-1, -1] = 1.0
        M = chain.T @ H @ chain
        price = self.now.nu if self.one else max(float(g[d + 1]), 0.0)
        M[:d, :d] += price / self.w * (np.eye(d) - np.outer(self.u, self.u))
        M[-1, -1] += self.now.nu / self.now.x if self.one else 0.0
        return np.asarray(M)

    def longest(self, step: Step) -> float:
        """Return the longest part of a step, at most all of it, that stays inside."""
        now = self.now
        scalars = np.array([now.x, now.nu])
        moves = np.array([step.move[-1], step.dnu])
        falls = [np.max(-step.ds / self.s), np.max(-step.dq / now.q), np.max(-moves / scalars)]
        return float(1 / max(1.0, *falls))

    def bound(self, step: Step | None) -> tuple[float, Array]:
        """Return the bound of the shares and slopes, continued along a step, and mean slopes."""
        q, a = self.now.q, self.pieces.slope[:, :, 0]
        if step is not None:
            q = q + step.dq
            a = a + self.pieces.bend[:, :, 0, 0] * step.dz
            if not self.one:
                s = np.array([float(self.u @ step.move[: len(self.u)]), step.move[-1]])
                a = a + self.pieces.bend[:, :, 0, 1:] @ s
        return bound(self.rows, self.pieces, q / q.sum(axis=0), a)


def _after(
    rows: PricedRows, now: Iterate, system: _PricedEquations, step: Step, unit: float
) -> Iterate | None:
    """Return the iterate after a step, its heights raised where curvature took the slack."""
    d = len(now.theta)
    length = min(1.0, SHORT_OF * system.longest(step))
    theta = now.theta + length * step.move[:d]
    x = now.x + length * float(step.move[-1])
    if not theta.any():
        return None
    z = now.z + length * step.dz
    f = _pieces(rows, theta, z, x, unit).value
    # rows of one branch and of two are different systems
    if f.shape != system.s.shape:
        return None
    kept = LEFT * (system.s + length * step.ds)
    T = np.maximum(now.T + length * step.raised, (f + kept).max(axis=0))
    q = now.q + length * step.dq
    # at rounding, or where a piece is infinite, the steps end
    if not (np.isfinite(f).all() and (f < T).all() and (q > 0).all()):
        return None
    b = now.b + length * float(step.move[d])
    return Iterate(theta, b, x, z, T, q, now.nu + length * step.dnu)
