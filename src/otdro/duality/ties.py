r"""Steps where rows have two maxima: both branches stay in the model and share the row's mass.

The model of a step m is :math:`g_0'm + m'Hm/2 + \sum_r \max(0, d_r + J_r m)` over the rows r with
two branches, g_0 the gradient with all their mass on the second. Its dual is a quadratic program
over the shares p in [0, 1] of the first branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

Array = NDArray[Any]

#: Relative to the diagonal, what makes a matrix definite whose null space is rounding.
RIDGE = 1e-13
#: Changes of shares below this are rounding.
STILL = 1e-15


@dataclass(frozen=True, eq=False)
class TieModel:
    """The model of one problem: ``base`` g_0, its Hessian H and factor, the differences d and J."""

    base: Array
    H: Array
    factor: Any
    difference: Array
    J: Array

    def minimise(self, p: Array, difference: Array | None = None) -> tuple[Array, Array, float]:
        """Return the minimiser m, the shares p of first branches there, and -m'Hm.

        By the dual: min over p in [0, 1] of |g_0 + J'p|^2_{H^-1}/2 - d'p.
        """
        difference = self.difference if difference is None else difference
        HJ = cho_solve(self.factor, self.J.T, check_finite=False)
        p = box_quadratic(self.J @ HJ, HJ.T @ self.base - difference, p)
        move = -cho_solve(self.factor, self.base + self.J.T @ p, check_finite=False)
        return move, p, -float(move @ self.H @ move)


def factored(H: Array) -> Any:
    """Return the Cholesky factor of H, whose diagonal is raised until it exists."""
    ridge = RIDGE
    diagonal = np.where(np.diag(H) > 0, np.diag(H), 1.0)
    while True:
        try:
            return cho_factor(H + ridge * np.diag(diagonal), check_finite=False)
        except np.linalg.LinAlgError:
            ridge *= 100


def solve_each(H: Array, rhs: Array) -> Array:
    """Return H_j^-1 rhs_j for the problems j, each raised until it is positive definite."""
    diagonal = np.einsum("bii->bi", H)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = scale[:, :, None] * H * scale[:, None, :]
    np.einsum("bii->bi", scaled)[:] += RIDGE
    try:
        np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        return np.stack([cho_solve(factored(A), r) for A, r in zip(H, rhs, strict=True)])
    return np.asarray(scale * np.linalg.solve(scaled, (scale * rhs)[..., None])[..., 0])


def box_quadratic(Q: Array, q: Array, p: Array) -> Array:
    """Minimise p'Qp/2 + q'p over p in [0, 1] by projected Newton on the free coordinates."""
    ridge = RIDGE * (np.finfo(float).tiny + np.trace(Q))
    value = p @ Q @ p / 2 + q @ p
    for _ in range(200):
        g = Q @ p + q
        free = ~(((p <= 0) & (g > 0)) | ((p >= 1) & (g < 0)))
        if not free.any():
            break
        step = np.zeros_like(p)
        block = Q[np.ix_(free, free)]
        step[free] = -np.linalg.solve(block + ridge * np.eye(len(block)), g[free])
        new, now = _projected(Q, q, p, step, g, value)
        if np.abs(new - p).max() <= STILL or now >= value:
            break
        exact = (new == p + step).all()
        p, value = new, now
        if exact and _optimal_at_ends(Q @ p + q, p, free):
            break
    return p


def _optimal_at_ends(g: Array, p: Array, free: Array) -> bool:
    """Whether no coordinate at an end gains by leaving it; the free ones are at their minimum."""
    ends = ~free
    return bool(np.all(np.where(p[ends] <= 0, g[ends] >= 0, g[ends] <= 0)))


def _projected(
    Q: Array, q: Array, p: Array, step: Array, g: Array, value: float
) -> tuple[Array, float]:
    """Return the point after the longest step 1, 1/2, ... that descends once clipped."""
    length, new, now = 1.0, p, value
    while length > 1e-10:
        new = np.clip(p + length * step, 0, 1)
        now = float(new @ Q @ new / 2 + q @ new)
        if now <= value + 1e-4 * g @ (new - p):
            break
        length /= 2
    return new, now
