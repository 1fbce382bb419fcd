r"""The constraint t >= ||theta||_* by slacks with prices, for interior points.

Slacks :math:`c_k(\theta, t) \ge 0`, concave, have prices p and products c p = mu share. Newton's
equations of p' = aim/c - (p/c) dc, aim = mu share less the products that a last step dropped, add

.. math:: \sum_k (p_k/c_k) \nabla c_k \nabla c_k' - p_k \nabla^2 c_k \quad\text{and}\quad
          -\sum_k (\mathrm{aim}_k/c_k) \nabla c_k

to the matrix and the gradient in (theta, t). Everything is of B problems, along the last axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class NormPoint:
    """t (B,) above the norm of theta, the slacks (K, B), their prices, bounds (d, B) of entries."""

    t: Array
    slack: Array
    price: Array
    bounds: Array

    @property
    def total(self) -> Array:
        """The sums of the products."""
        return np.asarray((self.slack * self.price).sum(axis=0))


class NormStep(NamedTuple):
    """The moves of the slacks, of their prices and of the bounds."""

    slack: Array
    price: Array
    bounds: Array

    def shortened(self, length: Any) -> NormStep:
        """Return a part of the step."""
        return NormStep(length * self.slack, length * self.price, length * self.bounds)


class NormLine:
    """Slacks around points, by their gradients (K, d + 1) in (theta, t), the same everywhere.

    ``matrix`` (d + 1, d + 1, B) is what they add to the Hessian.
    """

    matrix: Array

    def __init__(self, at: NormPoint, gradients: Array) -> None:
        self.at = at
        self.steep = at.price / at.slack
        self.gradients = gradients
        each = [(gradients.T * steep) @ gradients for steep in self.steep.T]
        self.matrix = np.stack(each, axis=-1)

    def force(self, aim: Array) -> Array:
        """Return what the slacks add to the gradient in (theta, t), -sum (aim/c) grad c."""
        return np.asarray(-self.gradients.T @ (aim / self.at.slack))

    def moves(self, move: Array, aim: Array) -> tuple[Array, Array]:
        """Return dc of the slacks and the moves of the bounds that belong to one of (theta, t)."""
        return self.gradients @ move, self.at.bounds

    def step(self, move: Array, aim: Array) -> NormStep:
        """Return dc and dp = aim/c - p - (p/c) dc, and the moves of the bounds."""
        slack, bounds = self.moves(move, aim)
        price = aim / self.at.slack - self.at.price - self.steep * slack
        return NormStep(slack, price, bounds)


class NormRows:
    """The slacks of a norm; ``share`` (K, 1) weighs their products."""

    share: Array

    def begin(self, theta: Array, room: Array, mu: Array) -> NormPoint:
        """Return t about ``room`` above the norm of theta, with products mu share."""
        raise NotImplementedError

    def linearised(self, theta: Array, at: NormPoint) -> NormLine:
        """Return the slacks around a point."""
        raise NotImplementedError

    def after(self, theta: Array, at: NormPoint, step: NormStep, t: Array) -> NormPoint:
        """Return the point at theta after a step, which took t along."""
        return NormPoint(t, at.slack + step.slack, at.price + step.price, at.bounds + step.bounds)


class RoundRows(NormRows):
    """t - ||theta||^2/t, which is smooth at theta = 0; kept as a variable that t follows."""

    share = np.ones((1, 1))

    def begin(self, theta: Array, room: Array, mu: Array) -> NormPoint:
        """Return t = ||theta|| + room."""
        square = np.einsum("db,db->b", theta, theta)
        t = np.sqrt(square) + room
        slack = (t - square / t)[None]
        return NormPoint(t, slack, mu / slack, np.zeros((0, len(room))))

    def linearised(self, theta: Array, at: NormPoint) -> NormLine:
        """Return the slack with its curvature."""
        return _Round(theta, at)

    def after(self, theta: Array, at: NormPoint, step: NormStep, t: Array) -> NormPoint:
        """Return the t of which the slack after the step is the one."""
        slack = at.slack + step.slack
        t = (slack[0] + np.sqrt(slack[0] ** 2 + 4 * np.einsum("db,db->b", theta, theta))) / 2
        return NormPoint(t, slack, at.price + step.price, at.bounds)


class _Round(NormLine):
    """t - ||theta||^2/t around points."""

    def __init__(self, theta: Array, at: NormPoint) -> None:
        self.at = at
        self.steep = at.price / at.slack
        v = theta / at.t
        square = np.einsum("db,db->b", v, v)
        self.gradient = np.append(-2 * v, (1 + square)[None], axis=0)
        self.matrix = self.steep[0] * self.gradient[:, None] * self.gradient
        d = len(theta)
        curved = 2 * at.price[0] / at.t
        self.matrix[np.arange(d), np.arange(d)] += curved
        self.matrix[:d, d] -= curved * v
        self.matrix[d, :d] -= curved * v
        self.matrix[d, d] += curved * square

    def force(self, aim: Array) -> Array:
        """Return -(aim/c) grad c."""
        return -(aim / self.at.slack) * self.gradient

    def moves(self, move: Array, aim: Array) -> tuple[Array, Array]:
        """Return grad c move."""
        return (self.gradient * move).sum(axis=0)[None], self.at.bounds


class FaceRows(NormRows):
    """t - <v, theta> for the rows v (K, d) of ``normals``; together they count as one."""

    def __init__(self, normals: Array) -> None:
        self.normals = normals
        self.share = np.full((len(normals), 1), 1 / len(normals))

    def begin(self, theta: Array, room: Array, mu: Array) -> NormPoint:
        """Return t = max <v, theta> + room."""
        heights = self.normals @ theta
        t = heights.max(axis=0) + room
        slack = t - heights
        return NormPoint(t, slack, mu * self.share / slack, np.zeros((0, len(room))))

    def linearised(self, theta: Array, at: NormPoint) -> NormLine:
        """Return the slacks: they are linear."""
        return NormLine(at, np.append(-self.normals, np.ones((len(self.normals), 1)), 1))


class SumRows(NormRows):
    """u - theta, u + theta and t - sum u with bounds u of the entries."""

    def __init__(self, d: int) -> None:
        self.share = np.append(np.full(2 * d, 0.5 / d), 1.0)[:, None]

    def begin(self, theta: Array, room: Array, mu: Array) -> NormPoint:
        """Return bounds above |theta| by half of the room together, and t by the rest."""
        u = np.abs(theta) + 0.5 * room / len(theta)
        slack = np.concatenate([u - theta, u + theta, 0.5 * room[None]])
        t = u.sum(axis=0) + 0.5 * room
        return NormPoint(t, slack, mu * self.share / slack, u)

    def linearised(self, theta: Array, at: NormPoint) -> NormLine:
        """Return the slacks, the bounds eliminated."""
        return _Bounded(at)


class _Bounded(NormLine):
    r"""u -+ theta and t - sum u around a point, u eliminated from their equations

    .. math:: (D + \omega 11')\,du = f_+ + f_- - f_0 - E\,d\theta + \omega\,dt,

    f = aim/c, D and E the sum and the difference (second less first) of p/c of u -+ theta, omega
    that of t - sum u.
    """

    def __init__(self, at: NormPoint) -> None:
        self.at = at
        self.steep = at.price / at.slack
        d = len(self.steep) // 2
        above, below = self.steep[:d], self.steep[d:-1]
        self.D = above + below
        self.E = below - above
        self.omega = self.steep[-1]
        self.rank = self.omega / (1 + self.omega * (1 / self.D).sum(axis=0))
        pulled = self.omega * self._inverse(np.ones_like(self.D))
        lean = self.E / self.D
        matrix = np.zeros((d + 1, d + 1, self.D.shape[1]))
        # D - E (D + omega 11')^-1 E, D - E^2/D without cancellation
        matrix[:d, :d] = self.rank * lean[:, None] * lean
        matrix[np.arange(d), np.arange(d)] += 4 * above * below / self.D
        matrix[:d, d] = matrix[d, :d] = self.E * pulled
        matrix[d, d] = self.rank
        self.matrix = matrix

    def _inverse(self, v: Array) -> Array:
        """Return (D + omega 11')^-1 v."""
        v = v / self.D
        return np.asarray(v - self.rank * v.sum(axis=0) / self.D)

    def _forces(self, aim: Array) -> tuple[Array, Array, Array]:
        """Return f_+, f_- and f_0."""
        f = aim / self.at.slack
        d = len(self.D)
        return f[:d], f[d:-1], f[-1]

    def force(self, aim: Array) -> Array:
        """Return what the slacks add to the gradient in (theta, t)."""
        up, down, last = self._forces(aim)
        u = self._inverse(up + down - last)
        return np.append(up - down + self.E * u, [-last - self.omega * u.sum(axis=0)], axis=0)

    def moves(self, move: Array, aim: Array) -> tuple[Array, Array]:
        """Return the moves of slacks and bounds."""
        up, down, last = self._forces(aim)
        theta, t = move[:-1], move[-1]
        u = self._inverse(up + down - last - self.E * theta + self.omega * t)
        return np.concatenate([u - theta, u + theta, [t - u.sum(axis=0)]]), u


def norm_rows(cost: Cost, d: int) -> NormRows | None:
    """Return the slacks of the dual norm of a cost, None where that is neither l1, l2 nor linf."""
    if cost.euclidean:
        return RoundRows()
    if cost.dual_p == np.inf:
        return FaceRows(np.vstack([np.eye(d), -np.eye(d)]))
    return SumRows(d) if cost.dual_p == 1 else None
