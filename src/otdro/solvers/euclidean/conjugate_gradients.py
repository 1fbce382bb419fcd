"""Newton systems of wide rows by conjugate gradients, whose vectors have an entry per row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
    """v = Z'p + cu of every problem, p (n, B), c (B,), with its scores ``z`` = Zv and u'v."""

    p: Array
    c: Array
    z: Array
    along: Array

    def copied(self) -> Vector:
        """Return a copy."""
        return Vector(*(copied(part) for part in (self.p, self.c, self.z, self.along)))

    def add(self, length: Array, other: Vector) -> None:
        """Add a multiple of another vector."""
        length_there = factor_of(length, other.p)
        self.p += length_there * other.p
        self.c += length * other.c
        self.z += length_there * other.z
        self.along += length * other.along

    def turn(self, length: Array, other: Vector) -> None:
        """Become another vector plus a multiple of this one."""
        length_there = factor_of(length, self.p)
        self.p *= length_there
        self.p += other.p
        self.c = other.c + length * self.c
        self.z *= length_there
        self.z += other.z
        self.along = other.along + length * self.along


@dataclass(eq=False)
class Solved:
    """The solution x, and the residual r = Z'p + cu that is left, with Z'p."""

    x: Vector
    r: Vector
    pull: Array


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

    def vector(self, p: Array, c: Array) -> tuple[Vector, Array]:
        """Return Z'p + cu with its scores, and Z'p."""
        pull = self.rows.adjoint(p)
        z = self.rows.scores(pull)
        z += factor_of(c, z) * self.along
        return Vector(p, c, z, dots(self.along, p) + c), pull

    def curved(self, z: Array) -> Array:
        """Return (D - DD'/m) z."""
        return self.D * (z - factor_of(dots(self.D, z) * self.inverse_mass, z))

    def apply(self, v: Vector) -> tuple[Array, Array]:
        """Return A v as p and c."""
        p = self.curved(v.z)
        p += factor_of(self.stiff, v.p) * v.p
        return p, self.stiff * v.c - self.stiffness * v.along

    @cached_property
    def stiff(self) -> Array:
        """The multiple of I in A."""
        return self.stiffness + SOFT_RIDGE

    def solve(self, p: Array, c: Array, rho: Array) -> Solved:
        """Return x with |A x - r| small beside r = Z'p + cu, or where the steps end.

        A gradient ends at rho u: rho is its unit, if there is one. A problem that has ended stays
        as it is.
        """
        r, pull = self.vector(p, c)
        square = inner(r.p, r.c, r)
        rtol = CG_RTOL * np.minimum(1.0, np.sqrt(np.sqrt(square) / np.where(rho > 0, rho, 1.0)))
        goal = rtol**2 * square
        x = Vector(0.0 * r.p, 0.0 * r.c, 0.0 * r.z, 0.0 * r.along)
        direction = r.copied()
        for _ in range(CG_STEPS):
            going = square > goal
            if not going.any():
                break
            image = self.apply(direction)
            length = _ratio(square, inner(*image, direction), going)
            x.add(length, direction)
            r, pull = self.vector(r.p - factor_of(length, r.p) * image[0], r.c - length * image[1])
            before, square = square, inner(r.p, r.c, r)
            direction.turn(_ratio(square, before, going), r)
        return Solved(x, r, pull)


def inner(p: Array, c: Array, v: Vector) -> Array:
    """Return (Z'p + cu)'v."""
    return dots(p, v.z) + c * v.along


def _ratio(above: Array, below: Array, where: Array) -> Array:
    """Return above/below, and 0 elsewhere."""
    found: Array = above / np.where(where, below, np.inf)
    return found
