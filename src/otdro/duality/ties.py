r"""Steps where rows have two maxima: both branches stay in the model and share the row's mass.

The model of a step m is :math:`g_0'm + m'Hm/2 + \sum_r \max(0, d_r + J_r m)` over the rows r with
two branches, g_0 the gradient with all their mass on the second. Its dual is a quadratic program
over the shares p in [0, 1] of the first branches. T problems are solved at a time, each with as
many places as the one with the most rows (R) has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dposv

from ..arrays import namespace

Array = NDArray[Any]

#: Relative to the diagonal, what makes a matrix definite whose null space is rounding.
RIDGE = 1e-13
#: Columns from which the systems of a batch are factored one by one: half the work of what NumPy
#: does with all of them.
CHOLESKY_FROM = 16
#: Newton steps to the shares.
STEPS = 200
#: The lengths of a step that are compared: powers of that to the first end of the box.
POWERS = np.linspace(0, 1, 8)
#: A share this close to 0 or 1 is there: what rounding leaves would hold up every step.
AT_END = 1e-12


@dataclass(frozen=True, eq=False)
class Padded:
    """The entries that count of T problems: their ``index`` (T, R), and which places are ``held``.

    A place that is not held repeats the first entry of its problem.
    """

    index: Array
    held: Array

    @classmethod
    def of(cls, mask: Array) -> Padded:
        """Return the places of the true entries of each row of a mask (T, n)."""
        counts = mask.sum(axis=1)
        most = int(counts.max(initial=0))
        index = np.argsort(~mask, axis=1, kind="stable")[:, :most]
        held = np.arange(most) < counts[:, None]
        return cls(np.where(held, index, index[:, :1]), held)


def shares_of(mean: Array, slope: Array) -> Array:
    """Return the shares in [0, 1] of first branches whose two slopes (2, ...) have this mean.

    Where the slopes are equal any share would do.
    """
    xp = namespace(mean)
    apart = slope[0] - slope[1]
    found: Array = xp.clip((mean - slope[1]) / xp.where(apart == 0, 1.0, apart), 0.0, 1.0)
    return found


@dataclass(frozen=True, eq=False)
class TieModels:
    """Models of T problems: ``base`` g_0 (T, D), H (T, D, D), ``difference`` d (T, R), J (T, R, D).

    A place that is not held has J = 0 and d < 0, so that its share is 0.
    """

    base: Array
    H: Array
    difference: Array
    J: Array

    def minimise(self, p: Array) -> tuple[Array, Array, Array]:
        """Return the minimisers m (T, D), the shares p (T, R) of first branches there, and -m'Hm.

        By the dual: min over p in [0, 1] of |g_0 + J'p|^2_{H^-1}/2 - d'p, from the shares p.
        """
        sides = np.concatenate([self.base[:, :, None], np.swapaxes(self.J, 1, 2)], axis=2)
        # H^-1 (g_0, J')
        solved = solve_each(self.H, sides)
        products = self.J @ solved
        p = box_quadratics(products[:, :, 1:], products[:, :, 0] - self.difference, p)
        move = -(solved[:, :, 0] + times(solved[:, :, 1:], p))
        return move, p, -np.einsum("ti,ti->t", move, times(self.H, move))


def times(A: Array, v: Array) -> Array:
    """Return A_t v_t."""
    return np.asarray((A @ v[:, :, None])[:, :, 0])


def factored(H: Array) -> Any:
    """Return the Cholesky factor of H, whose diagonal is raised until it exists."""
    ridge = RIDGE
    diagonal = np.where(np.diag(H) > 0, np.diag(H), 1.0)
    while True:
        try:
            return cho_factor(H + ridge * np.diag(diagonal), check_finite=False)
        except np.linalg.LinAlgError:
            ridge *= 100


def newton_step(grad: Array, H: Array) -> Array:
    """Return -H^-1 grad, the diagonal of H raised until it is positive definite."""
    return -np.asarray(cho_solve(factored(H), grad, check_finite=False))


def solve_each(H: Array, rhs: Array) -> Array:
    """Return H_t^-1 rhs_t for rhs (T, D, k), each H_t raised until it is positive definite."""
    diagonal = np.einsum("tii->ti", H)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))[:, :, None]
    scaled = scale * H * np.swapaxes(scale, 1, 2)
    D = H.shape[1]
    scaled.reshape(-1, D * D)[:, :: D + 1] += RIDGE
    return np.asarray(scale * positive_solved(scaled, scale * rhs))


def positive_solved(A: Array, rhs: Array) -> Array:
    """Return A_t^-1 rhs_t for rhs (T, D, k), A_t positive definite but for rounding.

    By Cholesky's factors: small systems many at a time, others one by one; a device does them all.
    """
    if not isinstance(A, np.ndarray):
        found: Array = namespace(A).linalg.solve(A, rhs)
        return found
    if len(A) > 1 and A.shape[1] < CHOLESKY_FROM:
        try:
            np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            pass
        else:
            return np.linalg.solve(A, rhs)
    return np.array([_solve_positive(*pair) for pair in zip(A, rhs, strict=True)])


def _solve_positive(A: Array, rhs: Array) -> Array:
    """Solve one system, its diagonal raised until it is positive definite."""
    _, x, failed = dposv(A.T, rhs)
    return np.asarray(cho_solve(factored(A), rhs) if failed else x)


def box_quadratics(Q: Array, q: Array, p: Array) -> Array:
    """Minimise p'Q_t p/2 + q_t'p over p in [0, 1] by projected Newton on the free coordinates."""
    p = _settled(p)
    found, active = p.copy(), np.arange(len(p))
    g = times(Q, p) + q
    for _ in range(STEPS):
        step, free = _inward_newton(Q, g, p)
        old, p = p, _settled(_best_along(Q, g, p, step))
        g = times(Q, p) + q
        # a whole step leaves the free coordinates at their minimum
        least = (np.abs(p - old - step) <= AT_END).all(axis=1) & _optimal_at_ends(g, p, free)
        over = least | (p == old).all(axis=1)
        found[active[over]] = p[over]
        if over.all():
            return found
        if over.any():
            active, Q, q, p, g = (part[~over] for part in (active, Q, q, p, g))
    found[active] = p
    return found


def _settled(p: Array) -> Array:
    """Return shares that are 0 or 1 but for rounding as that."""
    return np.where(p < AT_END, 0.0, np.where(p > 1 - AT_END, 1.0, p))


def _inward_newton(Q: Array, g: Array, p: Array) -> tuple[Array, Array]:
    """Return the Newton steps in the coordinates left free: none of them leaves the box at once.

    Of those that descend into the box each alone, one that the joint step takes out is held.
    """
    free = ~(((p <= 0) & (g > 0)) | ((p >= 1) & (g < 0)))
    step = _free_newton(Q, g, free)
    while True:
        outward = ((p <= 0) & (step < 0)) | ((p >= 1) & (step > 0))
        some = np.flatnonzero(outward.any(axis=1))
        if not len(some):
            return step, free
        free &= ~outward
        step[some] = _free_newton(Q[some], g[some], free[some])


def _free_newton(Q: Array, g: Array, free: Array) -> Array:
    """Return the Newton steps in the free coordinates; the others have rows of the identity."""
    block = np.where(free[:, :, None] & free[:, None, :], Q, 0.0)
    diagonal = np.einsum("tii->ti", Q)
    ridge = RIDGE * (np.finfo(float).tiny + diagonal.sum(axis=1, keepdims=True))
    np.einsum("tii->ti", block)[:] = np.where(free, diagonal + ridge, 1.0)
    return np.asarray(np.linalg.solve(block, np.where(free, -g, 0.0)[:, :, None])[:, :, 0])


def _optimal_at_ends(g: Array, p: Array, free: Array) -> Array:
    """Whether no coordinate at an end gains by leaving it; the free ones are at their minimum."""
    return np.asarray((free | np.where(p <= 0, g >= 0, g <= 0)).all(axis=1))


def _best_along(Q: Array, g: Array, p: Array, step: Array) -> Array:
    """Return the lowest of some points along the clipped steps, p where none is lower.

    Up to the first end of the box that it meets a Newton step descends, beyond it may.
    """
    room = np.where(step > 0, 1 - p, p)
    moves = (step != 0) & (room > 0)
    meets = np.where(moves, room, np.inf) / np.where(moves, np.abs(step), 1.0)
    first = np.minimum(meets.min(axis=1), 1.0)
    if (first == 1).all():
        return p + step
    lengths = first[:, None] ** POWERS
    new = np.clip(p[:, None] + lengths[:, :, None] * step[:, None], 0, 1)
    change = new - p[:, None]
    fall = np.einsum("tkr,tkr->tk", change, g[:, None] + change @ Q / 2)
    problem, best = np.arange(len(p)), fall.argmin(axis=1)
    return np.where((fall[problem, best] < 0)[:, None], new[problem, best], p)
