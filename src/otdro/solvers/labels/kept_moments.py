"""Z' diag(D) Z from step to step: only rows whose weight has changed are multiplied again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design

Array = NDArray[Any]

#: Changes of a weight, relative to it, and weights, relative to their mean, that do not matter.
CHANGE, LIGHT = 0.1, 0.01
#: The share of changed rows above which all are multiplied.
MANY = 0.25


class KeptMoments:
    """Moments of weights that are within CHANGE of those asked for, or those of all rows."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.D: Array | None = None
        self.G = np.zeros((design.d, design.d))
        self.s = np.zeros(design.d)

    def about(self, D: Array) -> tuple[Array, Array]:
        """Return Z' diag(D) Z and Z'D, of nearly these weights."""
        if self.D is None:
            return self.exactly(D)
        change = D - self.D
        rows = np.flatnonzero(np.abs(change) > CHANGE * D + LIGHT * float(D.mean()))
        if len(rows) > MANY * len(D):
            return self.exactly(D)
        if not len(rows):
            return self.G, self.s
        part = self.design.rows(rows)
        for sign in (1.0, -1.0):
            G, s = part.moments(np.maximum(sign * change[rows], 0.0))
            self.G = self.G + sign * G
            self.s = self.s + sign * s
        self.D[rows] = D[rows]
        return self.G, self.s

    def exactly(self, D: Array) -> tuple[Array, Array]:
        """Return Z' diag(D) Z and Z'D."""
        self.D = D.copy()
        self.G, self.s = self.design.moments(D)
        return self.G, self.s
