"""Barriers of t >= ||theta||_*: value, gradient and Hessian in (theta, t), bounds minimised out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost

Array = NDArray[Any]

#: Newton steps in search of the best bounds of the entries, and the decrement that ends them.
STEPS, SETTLED = 60, 1e-10


class Barrier(NamedTuple):
    """The value, inf outside, the gradient (d + 1,) and the Hessian as diagonal and low rank.

    The Hessian is diag(diagonal) + sum_j weight_j v_j v_j' over rows v of ``vectors``.
    """

    value: float
    gradient: Array
    diagonal: Array
    vectors: Array
    weight: Array


OUTSIDE = Barrier(np.inf, np.empty(0), np.empty(0), np.empty(0), np.empty(0))


class Cone(Protocol):
    """The cone of a norm."""

    def barrier(self, theta: Array, t: float) -> Barrier:
        """Return the barrier at (theta, t)."""


class RoundCone:
    """-log(t^2 - ||theta||^2)."""

    def barrier(self, theta: Array, t: float) -> Barrier:
        """Return the barrier at (theta, t)."""
        s = t**2 - float(theta @ theta)
        if s <= 0 or t <= 0:
            return OUTSIDE
        g = np.append(2 * theta, -2 * t) / s
        diagonal = np.full(len(g), 2 / s)
        diagonal[-1] = -2 / s
        return Barrier(-float(np.log(s)), g, diagonal, g[None], np.ones(1))


class LargestEntryCone:
    """-sum log(t^2 - theta_j^2)."""

    def barrier(self, theta: Array, t: float) -> Barrier:
        """Return the barrier at (theta, t)."""
        s = t**2 - theta**2
        if s.min() <= 0 or t <= 0:
            return OUTSIDE
        d = len(theta)
        vectors = np.zeros((2 * d, d + 1))
        each = np.arange(d)
        up, down = t - theta, t + theta
        vectors[each, each], vectors[d + each, each] = -1.0, 1.0
        vectors[:, d] = 1.0
        g = np.append(1 / up - 1 / down, -float(np.sum(1 / up + 1 / down)))
        weight = np.concatenate([up**-2.0, down**-2.0])
        return Barrier(-float(np.log(s).sum()), g, np.zeros(d + 1), vectors, weight)


class SumOfEntriesCone:
    """The least -sum log(u_j^2 - theta_j^2) - log(t - sum u) over bounds u of the entries."""

    def barrier(self, theta: Array, t: float) -> Barrier:
        """Return the barrier at (theta, t), at the best u."""
        size = np.abs(theta)
        room = t - float(size.sum())
        if room <= 0:
            return OUTSIDE
        rest = self._rest(size, t, room)
        u = rest + np.sqrt(rest**2 + size**2)
        s = 2 * u * rest
        # u -+ theta without the cancellation where theta is near u
        near = s / (u + size)
        up = np.where(theta > 0, near, u + size) ** -2.0
        down = np.where(theta > 0, u + size, near) ** -2.0
        total = up + down
        lean = (up - down) / total
        gamma = rest**-2.0 / (1 + rest**-2.0 * float((1 / total).sum()))
        g = np.append(2 * theta / s, -1 / rest)
        diagonal = np.append(4 * up * down / total, 0.0)
        vector = np.append(-lean, 1.0)[None]
        value = -float(np.log(s).sum()) - float(np.log(rest))
        return Barrier(value, g, diagonal, vector, np.array([gamma]))

    def _rest(self, size: Array, t: float, room: float) -> float:
        """Return r = t - sum u at the best u, u = r + sqrt(r^2 + theta^2) of u^2 - theta^2 = 2ur.

        The root of the convex r + sum u(r) = t by Newton's method from above.
        """
        r = room
        for _ in range(STEPS):
            root = np.sqrt(r**2 + size**2)
            miss = r + float((r + root).sum()) - t
            slope = 1 + len(size) + float((r / np.maximum(root, 1e-300)).sum())
            step = miss / slope
            r = max(r - step, 0.1 * r)
            if abs(step) <= SETTLED * r:
                break
        return float(r)


def cone_of(cost: Cost) -> Cone | None:
    """Return the cone of the dual norm of a cost, None where that is neither l1, l2 nor linf."""
    if cost.euclidean:
        return RoundCone()
    if cost.dual_p == np.inf:
        return LargestEntryCone()
    return SumOfEntriesCone() if cost.dual_p == 1 else None
