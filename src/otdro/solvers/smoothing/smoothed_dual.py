r"""The smoothed objective over (theta, b, lam) of a linear score and a Euclidean cost of order 2.

.. math:: F_\varepsilon = \lambda\delta + \sum_i \pi_i\, G(z_i'\theta + b, \rho),\qquad
          \rho = \|\theta\|\,\tau(\lambda),\quad \tau^2 = \varepsilon/(2\lambda + \varepsilon/s^2),

G as in ``tilt``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...losses.base import Loss
from .gaussian_integral import Tilt

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """What does not change: the design, targets, weights, loss and radius."""

    design: Design
    y: Array
    weights: Array
    loss: Loss
    delta: float
    fit_intercept: bool

    def gram(self, zz: Array) -> Array:
        """Return Z' diag(pi zz) Z; where zz is constant, from one pass over the rows for all."""
        if zz[0] != zz[-1] or np.ptp(zz) > 0:
            return self.design.gram(self.weights * zz)
        scaled: Array = zz[0] * self.scatter
        return scaled

    @cached_property
    def scatter(self) -> Array:
        """Z' diag(pi) Z."""
        return self.design.gram(self.weights)


@dataclass(frozen=True, eq=False)
class Point:
    """A triple (theta, b, lam), the scores z = Z theta + b, the rows' tilt, the objective, and the
    dual norm w (the largest of them for a local cost)."""

    theta: Array
    b: float
    lam: float
    z: Array
    tilt: Tilt
    objective: float
    w: float


def spread(lam: float, eps: float, scale: float) -> float:
    """Return tau, the width of a unit displacement: 1/tau^2 = 2 lam/eps + 1/scale^2."""
    return float(1 / np.sqrt(2 * lam / eps + 1 / scale**2))


def derivatives(rows: Rows, x: Point, eps: float, scale: float) -> tuple[Array, Array]:
    """Return gradient and Hessian of F in (theta, b, lam), by the chain rule through (z, rho)."""
    t, pi, w, d = x.tilt, rows.weights, x.w, rows.design.d
    u, tau = x.theta / w, spread(x.lam, eps, scale)
    # d tau/d lam = -tau^3/eps
    tau1, tau2 = -(tau**3) / eps, 3 * tau**5 / eps**2
    g_rho, h_rho = float(pi @ t.rho), float(pi @ t.rr)
    A = rows.design.adjoint(np.stack([pi * t.z, pi * t.zz, pi * t.zr], axis=1))
    sums = np.array([pi @ t.z, pi @ t.zz, pi @ t.zr]) * rows.fit_intercept
    A = np.vstack([A, sums])
    jump = np.concatenate([tau * u, [0.0]])
    grad = np.append(A[:, 0] + g_rho * jump, rows.delta + g_rho * w * tau1)
    H = np.zeros((d + 2, d + 2))
    H[:d, :d] = rows.gram(t.zz)
    H[:d, :d] += g_rho * tau / w * (np.eye(d) - np.outer(u, u))
    H[: d + 1, d] = H[d, : d + 1] = A[:, 1]
    cross = np.outer(A[:, 2], jump)
    H[: d + 1, : d + 1] += cross + cross.T + h_rho * np.outer(jump, jump)
    mixed = A[:, 2] * w * tau1 + (h_rho * w + g_rho / tau) * tau1 * jump
    H[: d + 1, -1] = H[-1, : d + 1] = mixed
    H[-1, -1] = h_rho * (w * tau1) ** 2 + g_rho * w * tau2
    if not rows.fit_intercept:
        H[d], H[:, d], H[d, d] = 0.0, 0.0, 1.0
    return grad, H


def first(rows: Rows) -> tuple[Array, float, float] | None:
    """Return (theta, b, lam) to start from, None where theta = 0 is optimal: on the ray against the
    gradient g at the best constant b, the least of mean l + sqrt(delta) rms(l') w.

    theta = 0 is optimal iff sqrt(delta) rms(l') >= ||g||, the slopes at b.
    """
    y, pi, loss = rows.y, rows.weights, rows.loss
    b = loss.constant(y, pi) if rows.fit_intercept else 0.0
    slope = loss.derivative(np.full_like(y, b), y)
    g = rows.design.adjoint(pi * slope)
    size, rms = float(np.linalg.norm(g)), float(np.sqrt(pi @ slope**2))
    if np.sqrt(rows.delta) * rms >= size:
        return None
    z = rows.design.scores(-g / size)
    price = float(np.sqrt(rows.delta)) * rms

    def line(w: float) -> float:
        return float(pi @ loss.value(w * z + b, y)) + price * w

    unit = 1 / np.sqrt(pi @ (z - pi @ z) ** 2 + np.finfo(float).tiny)
    w = _least(line, unit * np.geomspace(1e-4, 30, 24))
    return -w * g / size, b, multiplier(rows, w * z + b, w)


def _least(f: Callable[[float], float], points: Array) -> float:
    """Return the point where the convex f is least, by bisection."""
    low, high = 0, len(points) - 1
    while low < high:
        middle = (low + high) // 2
        falls = f(float(points[middle + 1])) < f(float(points[middle]))
        low, high = (middle + 1, high) if falls else (low, middle)
    return float(points[low])


def multiplier(rows: Rows, z: Array, w: float) -> float:
    """Return a lam near the best one: w rms(l')/(2 sqrt(delta)), beyond the growth of the loss."""
    rms = np.sqrt(rows.weights @ rows.loss.derivative(z, rows.y) ** 2)
    growth = rows.loss.smoothness * w**2 / 2 if np.isinf(rows.loss.lipschitz) else 0.0
    return float(growth + max(w * rms / (2 * np.sqrt(rows.delta)), 1e-12 + 1e-3 * growth))
