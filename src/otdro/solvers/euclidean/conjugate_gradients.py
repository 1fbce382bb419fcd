"""Newton systems of wide rows by conjugate gradients, whose vectors have an entry per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import copied, factor_of
from ...design import Design
from .batch import dots
from .block_rows import BlockRows
from .stack import Stack

Array = NDArray[Any]

#: The residual to which conjugate gradients go, times the root of the gradient in units of rho, and
#: their steps.
CG_RTOL, CG_STEPS = 0.1, 200
#: Added to an operator: directions that no row settles.
SOFT_RIDGE = 1e-14


@dataclass(eq=False)
class Vector:
    """v = Z'p + cu of every problem, p (n, B), c (B,), with its scores ``z`` = Zv."""

    p: Array
    c: Array
    z: Array

    def add(self, length: Array, other: Vector) -> None:
        """Add a multiple of another vector."""
        self.p += factor_of(length, other.p) * other.p
        self.c += length * other.c
        self.z += factor_of(length, other.z) * other.z


@dataclass(eq=False)
class RowSystem:
    """A = Z'(D - DD'/m)Z + s(I - uu'), one for every problem of a batch.

    ``along`` is Zu. A maps vectors Z'p + cu to such vectors, so that none with an entry per column
    is needed but on the way from p to ZZ'p. With an intercept all p have sum zero, and so has what
    A makes of them: rows may then be taken without their centre. Without one 1/m is 0.
    """

    rows: Design | Stack | BlockRows
    D: Array
    inverse_mass: Array
    stiffness: Array
    along: Array

    def vector(self, p: Array, c: Array) -> Vector:
        """Return Z'p + cu with its scores."""
        z = self.rows.scores(self.rows.adjoint(p))
        return Vector(p, c, z + factor_of(c, z) * self.along)

    def curved(self, z: Array) -> Array:
        """Return (D - DD'/m) z."""
        return self.D * (z - factor_of(dots(self.D, z) * self.inverse_mass, z))

    def apply(self, v: Vector) -> tuple[Array, Array]:
        """Return A v as p and c."""
        stiff = self.stiffness + SOFT_RIDGE
        return (
            self.curved(v.z) + factor_of(stiff, v.p) * v.p,
            stiff * v.c - self.stiffness * self.component(v),
        )

    def component(self, v: Vector) -> Array:
        """Return u'v."""
        return dots(self.along, v.p) + v.c

    def inner(self, p: Array, c: Array, v: Vector) -> Array:
        """Return (Z'p + cu)'v."""
        return dots(p, v.z) + c * self.component(v)

    def solve(self, p: Array, c: Array, rho: Array) -> Vector:
        """Return x with |A x - r| small beside r = Z'p + cu, or where the steps end.

        A gradient ends at rho u: rho is its unit, if there is one. A problem that has ended stays
        as it is.
        """
        r = self.vector(p, c)
        square = self.inner(r.p, r.c, r)
        rtol = CG_RTOL * np.minimum(1.0, np.sqrt(np.sqrt(square) / np.where(rho > 0, rho, 1.0)))
        goal = rtol**2 * square
        x = Vector(0.0 * r.p, 0.0 * r.c, 0.0 * r.z)
        direction = r
        for _ in range(CG_STEPS):
            going = square > goal
            if not going.any():
                break
            image = self.apply(direction)
            length = _ratio(square, self.inner(*image, direction), going)
            x.add(length, direction)
            r = self.vector(r.p - factor_of(length, r.p) * image[0], r.c - length * image[1])
            before, square = square, self.inner(r.p, r.c, r)
            last, direction = direction, Vector(copied(r.p), copied(r.c), copied(r.z))
            direction.add(_ratio(square, before, going), last)
        return x


def _ratio(above: Array, below: Array, where: Array) -> Array:
    """Return above/below, and 0 elsewhere."""
    return np.divide(above, below, out=np.zeros_like(above), where=where)
