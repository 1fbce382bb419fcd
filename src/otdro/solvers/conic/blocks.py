r"""Blocks of equal rows over (theta, xi), and their assembly into one group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...losses.base import Array
from .rows import Map, Rows


@dataclass(frozen=True, eq=False)
class Scalar:
    """An entry of xi: its price in the objective, and where it starts."""

    cost: float
    start: float


#: Coefficients of some scalars.
Line = Mapping[Scalar, float]


@dataclass(frozen=True, eq=False)
class Block:
    r"""Rows max over alpha in [lo, hi] of alpha (h + a'theta + r'xi) - (k0 + k'xi) alpha^2/2.

    The vectors a are the rows of ``matrix``, or ``sign`` times the unit vectors; a block of count 1
    without either has a = 0. ``first`` is where alpha starts if lo = 0 and hi is infinite.
    """

    count: int = 1
    sign: float = 0.0
    matrix: Array | None = None
    r: Line = field(default_factory=dict)
    k: Line = field(default_factory=dict)
    k0: float = 0.0
    lo: float = 0.0
    hi: float = np.inf
    h: Array | float = 0.0
    first: float = 1.0
    breathing: float = 0.0


def at_least_zero(r: Line, h: float = 0.0, first: float = 1.0) -> Block:
    """Return the constraint r'xi + h >= 0, max over alpha >= 0 of -alpha (r'xi + h)."""
    return Block(r={scalar: -value for scalar, value in r.items()}, h=-h, first=first)


class Selection:
    """The map A with rows -sign_i e_(at_i)'."""

    def __init__(self, sign: Array, at: Array, d: int) -> None:
        self.sign, self.at, self.d = sign, at, d

    def scores(self, theta: Array) -> Array:
        """Return A theta."""
        return -self.sign * theta[self.at]

    def adjoint(self, u: Array) -> Array:
        """Return A'u."""
        out = np.zeros((self.d, *u.shape[1:]))
        np.add.at(out, self.at, -(self.sign * u.T).T)
        return out

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A, a diagonal matrix."""
        return np.diag(np.bincount(self.at, D * self.sign**2, minlength=self.d))

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""
        out = np.zeros((len(at), self.d))
        out[np.arange(len(at)), self.at[at]] = -self.sign[at]
        return out


class Table:
    """The map A of a dense matrix."""

    def __init__(self, A: Array) -> None:
        self.A = A

    def scores(self, theta: Array) -> Array:
        """Return A theta."""
        return self.A @ theta

    def adjoint(self, u: Array) -> Array:
        """Return A'u."""
        return self.A.T @ u

    def gram(self, D: Array) -> Array:
        """Return A' diag(D) A."""
        return (self.A.T * D) @ self.A

    def dense(self, at: Array) -> Array:
        """Return some rows of A."""
        return self.A[at]


def coefficients(line: Line, scalars: Sequence[Scalar]) -> Array:
    """Return the coefficients of all scalars, 0 for those not in the line."""
    return np.array([line.get(scalar, 0.0) for scalar in scalars], dtype=float)


def stacked(blocks: Sequence[Block], scalars: Sequence[Scalar], d: int, share: float) -> Rows:
    """Return blocks as one group of rows; without any, an idle row."""
    blocks = blocks or [Block(lo=-1.0, hi=1.0)]
    repeat = np.repeat(np.arange(len(blocks)), [block.count for block in blocks])

    def each(values: Sequence[float] | Sequence[Array]) -> Array:
        return np.array(values, dtype=float)[repeat]

    breathing = each([block.breathing for block in blocks])
    return Rows(
        map=_map(blocks, d),
        w=np.ones(len(repeat)),
        lo=each([block.lo for block in blocks]),
        hi=each([block.hi for block in blocks]),
        h=np.concatenate([np.broadcast_to(block.h, block.count) for block in blocks]),
        R=each([coefficients(block.r, scalars) for block in blocks]),
        K=each([coefficients(block.k, scalars) for block in blocks]),
        k0=each([block.k0 for block in blocks]),
        share=share,
        first=each([block.first for block in blocks]),
        breathing=breathing if breathing.any() else None,
    )


def _map(blocks: Sequence[Block], d: int) -> Map:
    if any(block.matrix is not None for block in blocks):
        return Table(np.vstack([_matrix(block, d) for block in blocks]))
    sign = np.repeat([block.sign for block in blocks], [block.count for block in blocks])
    at = np.concatenate([np.arange(block.count) for block in blocks])
    return Selection(sign, at, d)


def _matrix(block: Block, d: int) -> Array:
    """Return the rows -a of a block."""
    if block.matrix is not None:
        return -block.matrix
    return -block.sign * np.eye(block.count, d)
