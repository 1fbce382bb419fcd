r"""Logistic loss, order 2, one dual norm a row: Newton in (theta, b, lam) on the unsmoothed dual.

.. math:: \min\ \lambda\delta + \sum_i \pi_i \max_s \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},
          \qquad w_i^2 = \theta' B_i\theta .

Kinks (rows with two equal maxima) are passed over by taking one of them: a fast start for
``local``, which certifies the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..losses import Logistic
from .dual_model import Rows
from .quadrature import newton_step

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Place:
    """A triple (theta, b, lam), its scores, dual norms, rows B_i theta, moves and objective."""

    theta: Array
    b: float
    lam: float
    z: Array
    w: Array
    push: Array
    v: Array
    objective: float


def descend(
    rows: Rows, B: Array, origin: tuple[Array, float, float], target: float, max_iter: int
) -> tuple[Array, float, float]:
    """Return (theta, b, lam) after damped Newton steps, until one promises less than ``target``."""
    theta, b, lam = origin
    x = _at(rows, B, theta, b, lam, rows.design.scores(theta) + b)
    for _ in range(max_iter):
        grad, H = _derivatives(rows, B, x)
        move = newton_step(grad, H)
        descent = float(grad @ move)
        new = _line_search(rows, B, x, move, descent)
        if -descent <= target or new is x:
            return new.theta, new.b, new.lam
        x = new
    return x.theta, x.b, x.lam


def _at(rows: Rows, B: Array, theta: Array, b: float, lam: float, z: Array) -> Place:
    push = B @ theta
    w = np.sqrt(np.maximum(push @ theta, 1e-300))
    inner = Logistic().inner(z, rows.y, w, lam)
    best = inner.value.argmax(axis=0)[None]
    value = np.take_along_axis(inner.value, best, 0)[0]
    v = np.abs(np.take_along_axis(inner.shift, best, 0)[0])
    F = float(lam * rows.delta + rows.weights @ value)
    return Place(theta, b, lam, z, w, push, v, F)


def _derivatives(rows: Rows, B: Array, x: Place) -> tuple[Array, Array]:
    """Return gradient and Hessian: psi in (m, w_i, lam) as in ``joint``, w_i with gradient u_i."""
    pi, y, w, lam = rows.weights, rows.y, x.w, x.lam
    s, t = expit(x.v - y * x.z), x.v / w
    s1 = s * (1 - s)
    D = np.maximum(2 * lam - w**2 * s1, 0.05 * lam)
    h = np.stack([-s1 * w, s + s1 * w * t, -2 * t])
    M = pi * h[:, None] * h[None] / D
    M[0, 0] += pi * s1
    M[0, 1] -= pi * s1 * t
    M[1, 0] = M[0, 1]
    M[1, 1] += pi * s1 * t**2
    one = np.full(len(w), float(rows.fit_intercept))
    Z = np.column_stack([rows.design.dense(), one]) * y[:, None]
    U = np.column_stack([x.push / w[:, None], np.zeros(len(w))])
    bent = pi * s * t / w
    d = len(x.theta)
    H = np.zeros((d + 2, d + 2))
    cross = Z.T @ (M[0, 1][:, None] * U)
    H[:-1, :-1] = Z.T @ (M[0, 0][:, None] * Z) + cross + cross.T
    H[:-1, :-1] += U.T @ ((M[1, 1] - bent)[:, None] * U)
    H[:d, :d] += np.tensordot(bent, B, 1)
    H[:-1, -1] = H[-1, :-1] = Z.T @ M[0, 2] + U.T @ M[1, 2]
    H[-1, -1] = M[2, 2].sum()
    if not rows.fit_intercept:
        H[-2, -2] = 1.0
    slope = Z.T @ (-pi * s) + U.T @ (pi * s * t)
    return np.append(slope, rows.delta - pi @ t**2), H


def _line_search(rows: Rows, B: Array, x: Place, move: Array, descent: float) -> Place:
    """Return the place after the longest step 1, 1/2, ... that descends, lam kept positive."""
    d = len(x.theta)
    dz = rows.design.scores(move[:d]) + move[d]
    length = 1.0 if move[-1] >= 0 else min(1.0, -0.9 * x.lam / move[-1])
    for _ in range(12):
        theta, b, lam = (
            x.theta + length * move[:d],
            x.b + length * move[d],
            x.lam + length * move[-1],
        )
        new = _at(rows, B, theta, float(b), float(lam), x.z + length * dz)
        if new.objective <= x.objective + 1e-4 * length * descent:
            return new
        length /= 2
    return x
