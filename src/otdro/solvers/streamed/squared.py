r"""Squared loss at order 2, from one pass over the rows.

The triangular factor R of the rows (1, z, y) times the roots of their weights, R'R = sum w tt', is
a sample of d + 2 rows with the same mean squared residual for every model. With an intercept its
first line, what t has along 1, is left out: the others are free of it. The methods for rows in
memory solve it, and their dual points are those of all rows after a rotation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ...chunks import Chunk, Sums
from ...problem import Ball, Problem, Solution
from .stream import Reading, Stream

Array = NDArray[Any]

#: Columns that are eliminated at a time.
PANEL = 32


class Triangle:
    """A factor R (p, p) of rows; the sum of two is that of the rows of both."""

    def __init__(self, R: Array) -> None:
        self.R = R

    def __add__(self, other: Triangle) -> Triangle:
        # the rows of the other are a triangle themselves
        p = len(self.R)
        return Triangle(lapack.dtpqrt(p, min(PANEL, p), self.R, other.R)[0])


@dataclass(frozen=True, eq=False)
class TriangleSums:
    """The job that takes the factor of the rows (1, z, y - shift) times the roots of weights."""

    reading: Reading
    shift: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the factor of a chunk."""
        p = len(self.reading.center) + 2
        R = np.zeros((p, p))
        for Z, y, w in self.reading.blocks(chunk, p):
            # columns first, as LAPACK reads them
            T = np.vstack([np.ones(len(y)), Z.T, y - self.shift]) * np.sqrt(w)
            # R'R of the rows of R (p, p) and of more rows (m, p)
            R = lapack.dtpqrt(0, min(PANEL, p), R, T.T)[0]
        return {"triangle": Triangle(R)}


def solve(stream: Stream, ball: Ball, solver: Any) -> Solution:
    """Return the certified solution on the rows of the blocks: one pass."""
    # a target near the mean
    shift = float(np.mean(stream.rows.y)) if stream.fit_intercept else 0.0
    [sums] = stream.chunks.total(TriangleSums(stream.reading, shift))
    R = np.asarray(sums["triangle"].R)
    R = R / abs(R[0, 0])
    mean = R[0, 1:] / R[0, 0] if stream.fit_intercept else np.zeros(len(R) - 1)
    rows = R[int(stream.fit_intercept) :, 1:] * np.sqrt(len(R) - stream.fit_intercept)
    weights = np.full(len(rows), 1 / len(rows))
    problem = Problem(rows[:, :-1], rows[:, -1], weights, stream.loss, ball, fit_intercept=False)
    [[solution]] = solver.solve([problem], [ball.delta])
    b = shift + mean[-1] - mean[:-1] @ solution.coef
    e = rows[:, -1] - rows[:, :-1] @ solution.coef
    return replace(
        solution,
        intercept=float(b),
        mean_loss=float(weights @ stream.loss.value(e, np.zeros(len(e)))),
        dual=None,
    )
