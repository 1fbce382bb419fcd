"""The quadratic model of a mean loss plus a norm: its minimiser, and what that proves.

Formulas of the bound are those of ``sweep``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from ...costs.mahalanobis import shortest
from ...duality import AT_THRESHOLD

Array = NDArray[Any]

#: Moves of a score up to which the bound on a row holds, with room (q < 1).
REACH = 0.7
#: The norm of the shrunken solution is met to this, and the steps towards it; what is missed is
#: part of the gap (``shortfall``).
SECULAR_TOL, SECULAR_STEPS = 1e-10, 100


@dataclass(eq=False)
class QuadraticModel:
    """The sums over some rows of their weights, losses, slopes and curvatures at a point.

    ``gradient`` (d + 1,) and ``matrix`` (d + 1, d + 1) have the intercept as last entry.
    """

    mass: float
    value: float
    gradient: Array
    matrix: Array

    def __add__(self, other: QuadraticModel) -> QuadraticModel:
        return QuadraticModel(
            self.mass + other.mass,
            self.value + other.value,
            self.gradient + other.gradient,
            self.matrix + other.matrix,
        )

    def __sub__(self, other: QuadraticModel) -> QuadraticModel:
        return self + other.times(-1.0)

    def times(self, c: float) -> QuadraticModel:
        """Return c times the model."""
        return QuadraticModel(c * self.mass, c * self.value, c * self.gradient, c * self.matrix)

    def after(self, step: Array) -> float:
        """Return the value of the model after a step."""
        return float(self.value + self.gradient @ step + step @ self.matrix @ step / 2)


def bound(reach: float, quartic: Any) -> Array:
    """Return the largest gap that moves of at most ``reach`` allow, inf where that is too far.

    e^-t omega(q(t))/t^4 rises with t from 1/8.
    """
    t = np.clip(reach, 1e-3, REACH)
    q = np.exp(t) * (np.expm1(t) - t)
    omega = q + (1 - q) * np.log1p(-q)
    return np.where(reach <= REACH, np.exp(-t) * omega / t**4 * quartic, np.inf)


def minimiser(
    model: QuadraticModel, point: Array, factor: Any, rho: float, intercept: bool
) -> Array:
    r"""Return the minimiser (beta, b) of a model of mass 1 plus :math:`\rho\|L^{-1}\beta\|_2`.

    With the intercept eliminated and :math:`\beta = L\theta` it is :math:`\theta = (H + \mu
    I)^{-1}c`, :math:`c = H\theta_0 - g`, where :math:`\mu\|\theta\| = \rho`; 0 if ||c|| <= rho.
    """
    G, h, m = model.matrix[:-1, :-1], model.matrix[:-1, -1], model.matrix[-1, -1]
    g, s = model.gradient[:-1], model.gradient[-1]
    beta, b = point[:-1], point[-1]
    if intercept:
        G, g = G - np.outer(h, h / m), g - h * (s / m)
    H, pull, theta = G, g, beta
    if factor is not None:
        H, pull, theta = factor.T @ G @ factor, factor.T @ g, shortest(factor, beta)
    found = _shrunken(H, H @ theta - pull, rho, float(np.linalg.norm(theta)))
    new = found if factor is None else factor @ found
    c = -(s + h @ (new - beta)) / m if intercept else 0.0
    return np.append(new, b + c)


def shortfall(
    model: QuadraticModel, point: Array, new: Array, factor: Any, rho: float, unit: float
) -> float:
    r"""Return what a minimiser that is one up to rounding only adds to the gap.

    The slopes pull by :math:`p = L'(g + Mv)`, which should be of size rho and turned against
    theta: :math:`\rho\|\theta\| + p'\theta` is added, and where :math:`\|p\| > \rho` the slopes are
    shrunk by :math:`\kappa = \rho/\|p\|`. Their dual value is concave along the ray and 0 at its
    end, so at least kappa times the one before: at most :math:`(1/\kappa - 1)` times the ``unit``,
    a bound on the least risk, is lost.
    """
    pull = (model.gradient + model.matrix @ (new - point))[:-1]
    beta = new[:-1]
    w = float(np.linalg.norm(beta if factor is None else shortest(factor, beta)))
    size = float(np.linalg.norm(pull if factor is None else factor.T @ pull))
    return abs(rho * w + float(pull @ beta)) + max(0.0, size / rho - 1) * unit


def _shrunken(H: Array, c: Array, rho: float, guess: float) -> Array:
    """Return theta = (H + mu I)^-1 c with mu ||theta|| = rho.

    1/||theta|| - mu/rho is concave in mu, so Newton's method comes from the right and stays there.
    """
    if np.linalg.norm(c) <= rho * (1 + AT_THRESHOLD):
        return np.zeros_like(c)
    mu = rho / guess if guess > 0 else np.trace(H) / len(c)
    for _ in range(SECULAR_STEPS):
        known = _factored(H, mu)
        theta = dpotrs(known, c)[0]
        w = float(np.linalg.norm(theta))
        if abs(mu * w - rho) <= SECULAR_TOL * rho:
            break
        fall = float(theta @ dpotrs(known, theta)[0]) / w**3 - 1 / rho
        # left of the largest value the slope points away from the root
        mu = mu - (1 / w - mu / rho) / fall if fall < 0 else 2 * mu
    found: Array = theta
    return found


def _factored(H: Array, mu: float) -> Array:
    """Return the upper Cholesky factor of H + mu I, without the checks of SciPy's wrapper."""
    A = H.copy()
    A.flat[:: len(A) + 1] += mu
    # a symmetric matrix is its transpose, which LAPACK reads without a copy
    found, info = dpotrf(A.T, overwrite_a=True)
    if info:
        raise np.linalg.LinAlgError(f"H + {mu:.3g} I is not positive definite.")
    factor: Array = found
    return factor
