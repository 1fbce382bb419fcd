r"""A lower bound on every model's worst-case risk at order 2, from slopes of moved rows.

Atoms of mass m (those of a row sum to its weight) and slope a = dl/dz give

.. math:: F^* \ge -\sum m\,\ell^*(a, y)\quad\text{if}\quad g'C^{-1}g \le \delta,\
          \sum m a = 0,\qquad g = \sum m a z,\ C = \sum m a^2 B_i,

B_i the matrix of the row's dual norm (the identity in round coordinates, where the condition is
:math:`\|g\|^2 \le \delta \sum m a^2`): the adversary moves each atom by :math:`-a B_i C^{-1} g`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside, branch_sums, namespace
from ..losses import Loss
from .chain import DualRows

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Atoms:
    """Branches of rows, arrays of shape (k, n, B): mass, slope, and the ``room`` it has to move."""

    mass: Array
    slope: Array
    room: Array


def lower_bound(rows: DualRows, loss: Loss, atoms: Atoms, reached: Array) -> Array:
    """Return the bound (B,) of slopes made feasible by a shift of b and a growth of theta.

    ``reached`` (k, n, B) is z - b + s, the part of the moved scores that grows with theta: a
    growth moves the slopes by room times it.
    """
    a = _balanced(rows, atoms, atoms.slope)
    h = _balanced(rows, atoms, atoms.room * reached)
    xp = namespace(a)
    pulls = rows.design.adjoint(xp.concat([(atoms.mass * v).sum(axis=0) for v in (a, h)], axis=1))
    g, dg = pulls[:, : len(rows.delta)], pulls[:, len(rows.delta) :]
    eta = rows.dual_norm.first_feasible(g, dg, atoms.mass, a, h, rows.delta)
    lost = ~np.isfinite(eta)
    a = a + beside(np.where(lost, 0.0, eta), a) * h
    conjugate = loss.conjugate(a, xp.broadcast_to(rows.y[:, None], a.shape))
    # an atom without mass may have any slope
    value = -branch_sums(atoms.mass, xp.where(atoms.mass > 0, conjugate, 0.0))
    # losses are nonnegative, so 0 is a bound
    return np.where(lost, 0.0, np.maximum(value, 0.0))


def balance(u: Array, axis: tuple[int, ...] | None = None) -> Array:
    """Return factors in [0, 1], less than 1 for the heavier sign, with which the u sum to zero.

    ``axis``: they sum to zero over these axes, None for all.
    """
    up = np.maximum(u, 0.0).sum(axis=axis, keepdims=True)
    down = np.maximum(-u, 0.0).sum(axis=axis, keepdims=True)
    least, tiny = np.minimum(up, down), np.finfo(float).tiny
    lighter = np.where(u < 0, least / np.maximum(down, tiny), 1.0)
    return np.where(u > 0, least / np.maximum(up, tiny), lighter)


def _balanced(rows: DualRows, atoms: Atoms, a: Array) -> Array:
    """Return a moved, in proportion to the room, to where sum m a = 0."""
    if not rows.fit_intercept:
        return a
    total = branch_sums(atoms.mass, atoms.room)
    excess = branch_sums(atoms.mass, a)
    shift: Array = a - atoms.room * beside(excess / np.maximum(total, np.finfo(float).tiny), a)
    return shift
