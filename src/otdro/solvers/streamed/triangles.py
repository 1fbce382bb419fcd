"""Triangular factors of rows: R with R'R = T'T, added up without squaring.

A sum of squares of rows one of which is 1e5 times as long as the others has lost ten digits of
these; a factor has lost five.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ...chunks import Chunk, Sums
from .reading import Blocks

Array = NDArray[Any]

#: Columns that are eliminated at a time.
PANEL = 32


def stacked(triangles: Array) -> Array:
    """Return the factor of the rows of several factors (k, p, p)."""
    found: Array = triangles[0]
    for R in triangles[1:]:
        # the rows of R are a triangle themselves
        found = np.asarray(lapack.dtpqrt(len(R), min(PANEL, len(R)), found, R)[0])
    return found


class Triangles:
    """Factors (F, p, p) of the rows of F parts; the sum of two is that of the rows of both."""

    def __init__(self, factors: Array) -> None:
        self.factors = factors

    def __add__(self, other: Triangles) -> Triangles:
        pairs = zip(self.factors, other.factors, strict=True)
        return Triangles(np.stack([stacked(np.stack(pair)) for pair in pairs]))


@dataclass(frozen=True, eq=False)
class TriangleSums:
    """``triangles`` (F, d + 2, d + 2): by fold, the factors of (1, z, y - shift) times root w."""

    blocks: Blocks
    shift: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the factors of a chunk."""
        size, parts = len(self.blocks.center) + 2, self.blocks.folds.parts
        found = np.zeros((parts, size, size))
        for f, block in self.blocks.by_fold(chunk, size):
            # columns first, as LAPACK reads them
            T = np.vstack([np.ones(len(block.y)), block.Z.T, block.y - self.shift])
            T *= np.sqrt(block.w)
            # R'R of the rows of R (p, p) and of more rows (m, p)
            found[f] = lapack.dtpqrt(0, min(PANEL, size), found[f], T.T)[0]
        return {"triangles": Triangles(found)}
