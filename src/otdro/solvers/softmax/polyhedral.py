r"""The pair penalties of the costs l1 and linf, whose models are linear programs with a quadratic.

.. math:: \min_{s, t}\ g's + s'Hs/2 + \delta t\quad\text{s.t.}\quad \|D_p + d_p(s)\|_* \le t,

by Mehrotra's method over slacks y and multipliers x of its linear constraints. The dual norm of
l1 is the largest entry, \|D\| <= t; that of linf their sum, with u >= \|D\| and sum u <= t.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality.ties import factored
from .penalty import PairMove, Quadratic
from .rows import SoftmaxRows

Array = NDArray[Any]
#: A point of the program: the step s, the bounds u of entries (empty if none), and t.
Point = tuple[Array, Array, float]

#: Newton steps at most, and the share of the way to the boundary that one takes.
STEPS, SHORT_OF = 60, 0.99
#: Relative to the penalty, the least accuracy.
ROUNDING = 1e-14


class Reduced(NamedTuple):
    """sum diagonal dD^2 - 2 cross dD dt + on_t dt^2 + sum_p stiffness (lean_p'dD_p)^2."""

    diagonal: Array
    cross: Array
    on_t: float
    lean: Array | None
    stiffness: Array
    parts: Any


class PolyhedralPairs:
    """The largest dual norm where that is polyhedral."""

    @abstractmethod
    def norms(self, D: Array) -> Array:
        """Return the dual norms."""

    @abstractmethod
    def sizes(self, v: Array) -> Array:
        """Return the norms of flows."""

    @abstractmethod
    def begin(self, D: Array, room: float, delta: float) -> tuple[Array, float, Array]:
        """Return u and t with slacks of about ``room``, and multipliers that are feasible."""

    @abstractmethod
    def slacks(self, D: Array, u: Array, t: float) -> Array:
        """Return the slacks, linear in (D, u, t)."""

    @abstractmethod
    def pulls(self, x: Array) -> tuple[Array, Array, float]:
        """Return minus the adjoint of ``slacks``: flows v of D, and those of u and t negated."""

    @abstractmethod
    def reduced(self, W: Array) -> Reduced:
        """Return what is left of sum W dslack^2 as a quadratic of (dD, dt), du minimised out."""

    @abstractmethod
    def eliminated(self, parts: Any, r: Array) -> tuple[Array, Array]:
        """Return what a right-hand side r of u adds to those of D and t."""

    @abstractmethod
    def recovered(self, parts: Any, r: Array, dD: Array, dt: float) -> Array:
        """Return du."""

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return the even flow of a gradient, and zero: a model at zero has no kink to avoid."""
        k, j = rows.pairs
        return np.swapaxes(G[..., j] - G[..., k], -1, -2) / rows.classes, np.zeros_like(G)

    def move(
        self, model: Quadratic, delta: Array, accuracy: Array, multipliers: Array | None
    ) -> PairMove:
        """Minimise each model along its central path."""
        parts = zip(model.C, model.g, model.H, delta, accuracy, strict=True)
        found = [self._one(Quadratic(model.rows, *part[:3]), *part[3:]) for part in parts]
        step, shift, flows, rise, _ = zip(*found, strict=True)
        return PairMove(np.stack(step), np.stack(shift), np.stack(flows), np.array(rise))

    def _one(self, model: Quadratic, delta: float, accuracy: float) -> PairMove:
        rows = model.rows
        D = rows.differences(model.C)
        before = float(self.norms(D).max())
        mixed = rows.incidence @ rows.basis
        s = np.zeros(len(model.g))
        u, t, x = self.begin(D, max(before, accuracy / delta * 1e3, 1e-3), delta)
        y = self.slacks(D, u, t)
        enough = max(0.1 * accuracy, ROUNDING * delta * (1 + t))
        for _ in range(STEPS):
            mu = float(np.sum(x * y)) / x.size
            if mu * x.size <= enough:
                break
            system = _System(self, model, mixed, x / y)
            target = np.zeros_like(x)
            step, dx, dy = self._direction(system, model, s, x, y, delta, target)
            a, b = _longest(y, dy), _longest(x, dx)
            ahead = float(np.sum((x + b * dx) * (y + a * dy))) / x.size
            target = (ahead / mu) ** 3 * mu - dx * dy
            step, dx, dy = self._direction(system, model, s, x, y, delta, target)
            length = min(1.0, SHORT_OF * min(_longest(y, dy), _longest(x, dx)))
            s = s + length * step[0]
            u = u + length * step[1]
            t = t + length * step[2]
            x = x + length * dx
            y = y + length * dy
        dC, dc = model.rows.split(s)
        rise = delta * (float(self.norms(D + rows.differences(dC)).max()) - before)
        return PairMove(dC, dc, self.pulls(x)[0], rise)

    def _direction(
        self,
        system: _System,
        model: Quadratic,
        s: Array,
        x: Array,
        y: Array,
        delta: float,
        target: Array,
    ) -> tuple[Point, Array, Array]:
        """Return the Newton step to x y = target, with those of multipliers and slacks."""
        # the multipliers after the step are target/y - (x/y) dy
        v, on_u, on_t = self.pulls(target / y)
        r = -(model.g + model.H @ s)
        step = system.solve(r, v, on_u, on_t, delta)
        dD = model.rows.differences(model.rows.split(step[0])[0])
        dy = self.slacks(dD, step[1], step[2])
        return step, (target - x * y - x * dy) / y, dy


class _System:
    """Newton's equations of one iterate, reduced to (s, t)."""

    def __init__(self, norm: PolyhedralPairs, model: Quadratic, mixed: Array, W: Array) -> None:
        self.norm = norm
        self.model = model
        self.mixed = mixed
        left = norm.reduced(W)
        self.parts = left.parts
        d, m = model.C.shape
        n = len(model.g)
        M = np.zeros((n + 1, n + 1))
        M[:n, :n] = model.H
        blocks = np.einsum("pj,pa,pb->jab", left.diagonal, mixed, mixed)
        for j in range(d):
            M[j * m : (j + 1) * m, j * m : (j + 1) * m] += blocks[j]
        if left.lean is not None:
            J = (left.lean[:, :, None] * mixed[:, None, :]).reshape(len(mixed), -1)
            M[: d * m, : d * m] += J.T @ (left.stiffness[:, None] * J)
        M[n, : d * m] = M[: d * m, n] = -(left.cross.T @ mixed).ravel()
        M[n, n] = left.on_t
        self.factor = factored(M)

    def solve(self, r: Array, v: Array, on_u: Array, on_t: float, delta: float) -> Point:
        """Return (ds, du, dt)."""
        model, norm = self.model, self.norm
        d, m = model.C.shape
        add_D, add_t = norm.eliminated(self.parts, on_u)
        rhs = np.append(r, 0.0)
        rhs[: d * m] += ((add_D - v).T @ self.mixed).ravel()
        rhs[-1] = on_t - delta + float(add_t.sum())
        found = cho_solve(self.factor, rhs, check_finite=False)
        dD = model.rows.differences(model.rows.split(found[:-1])[0])
        return found[:-1], norm.recovered(self.parts, on_u, dD, float(found[-1])), float(found[-1])


class LargestEntry(PolyhedralPairs):
    """The dual norm of l1: slacks t - D and t + D, of shape (2, P, d)."""

    def norms(self, D: Array) -> Array:
        """Return the largest |D_j|."""
        return np.asarray(np.abs(D).max(axis=-1))

    def sizes(self, v: Array) -> Array:
        """Return the sums of |v_j|."""
        return np.asarray(np.abs(v).sum(axis=-1))

    def begin(self, D: Array, room: float, delta: float) -> tuple[Array, float, Array]:
        """Return t above every entry by ``room``."""
        t = float(np.abs(D).max()) + room
        return np.empty(0), t, np.full((2, *D.shape), delta / (2 * D.size))

    def slacks(self, D: Array, u: Array, t: float) -> Array:
        """Return t -+ D."""
        return np.stack([t - D, t + D])

    def pulls(self, x: Array) -> tuple[Array, Array, float]:
        """Return the flow x+ - x-, and the sum of all."""
        return x[0] - x[1], np.empty(0), float(x.sum())

    def reduced(self, W: Array) -> Reduced:
        """Return W+ (dt - dD)^2 + W- (dt + dD)^2."""
        total = W.sum(axis=0)
        return Reduced(total, W[0] - W[1], float(total.sum()), None, np.empty(0), None)

    def eliminated(self, parts: Any, r: Array) -> tuple[Array, Array]:
        """Return nothing: there is no u."""
        return np.zeros((1, 1)), np.zeros(1)

    def recovered(self, parts: Any, r: Array, dD: Array, dt: float) -> Array:
        """Return nothing."""
        return np.empty(0)


class SumOfEntries(PolyhedralPairs):
    """The dual norm of linf: slacks u - D, u + D and t - sum u, of shape (P, 2d + 1)."""

    def norms(self, D: Array) -> Array:
        """Return the sum of |D_j|."""
        return np.asarray(np.abs(D).sum(axis=-1))

    def sizes(self, v: Array) -> Array:
        """Return the largest |v_j|."""
        return np.asarray(np.abs(v).max(axis=-1))

    def begin(self, D: Array, room: float, delta: float) -> tuple[Array, float, Array]:
        """Return u above |D| and t above its sums."""
        P, d = D.shape
        u = np.abs(D) + room / d
        x = np.full((P, 2 * d + 1), delta / (2 * P))
        x[:, -1] = delta / P
        return u, float(u.sum(axis=1).max()) + room, x

    def slacks(self, D: Array, u: Array, t: float) -> Array:
        """Return u -+ D and t - sum u."""
        return np.hstack([u - D, u + D, t - u.sum(axis=1, keepdims=True)])

    def pulls(self, x: Array) -> tuple[Array, Array, float]:
        """Return the flow x+ - x-, the excess x+ + x- - x_t of u, and the sum of x_t."""
        d = x.shape[1] // 2
        return x[:, :d] - x[:, d:-1], x[:, :d] + x[:, d:-1] - x[:, -1:], float(x[:, -1].sum())

    def reduced(self, W: Array) -> Reduced:
        """Eliminate u from W+ (du - dD)^2 + W- (du + dD)^2 + W_t (dt - sum du)^2.

        With S = W+ + W- and lean = (W+ - W-)/S that leaves gamma (dt - lean'dD)^2 of each pair,
        gamma = W_t/(1 + W_t sum 1/S), and 4 W+ W-/S dD^2.
        """
        d = W.shape[1] // 2
        up, down, omega = W[:, :d], W[:, d:-1], W[:, -1]
        total = up + down
        lean = (up - down) / total
        gamma = omega / (1 + omega * (1 / total).sum(axis=1))
        parts = (total, lean, gamma)
        diagonal = 4 * up * down / total
        return Reduced(diagonal, gamma[:, None] * lean, float(gamma.sum()), lean, gamma, parts)

    def eliminated(self, parts: Any, r: Array) -> tuple[Array, Array]:
        """Return Delta T^-1 r and gamma sum r/S, T = diag S + W_t 11', Delta = S lean."""
        total, lean, gamma = parts
        pushed = gamma * (r / total).sum(axis=1)
        return lean * (r - pushed[:, None]), pushed

    def recovered(self, parts: Any, r: Array, dD: Array, dt: float) -> Array:
        """Return T^-1 (r + Delta dD + W_t dt 1)."""
        total, lean, gamma = parts
        v = r + total * lean * dD
        pushed = gamma * ((v / total).sum(axis=1) - dt)
        return np.asarray((v - pushed[:, None]) / total)


def _longest(v: Array, dv: Array) -> float:
    """Return the longest step in [0, 1] that keeps v + step dv >= 0."""
    fall = dv < 0
    return float(min(1.0, (-v[fall] / dv[fall]).min())) if fall.any() else 1.0
