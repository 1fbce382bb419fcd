"""How the targets and the folds of a row are read off a chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk

Array = NDArray[Any]

#: Bytes of a block of rows, as float64, that is worked on at a time.
BLOCK_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class Folds:
    """The fold of each row by its number: ``count`` folds, 0 for none, shuffled by ``seed``."""

    count: int = 0
    seed: int = 0

    @property
    def parts(self) -> int:
        """How many parts the rows fall into."""
        return max(1, self.count)

    def of(self, index: Array) -> Array:
        """Return the fold of the rows of these numbers."""
        if self.count == 0:
            return np.zeros(len(index), dtype=int)
        # the finaliser of splitmix64: neighbours and multiples fall into unrelated folds
        v = index.astype(np.uint64) + np.uint64((self.seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray((v ^ (v >> np.uint64(31))) % np.uint64(self.count), dtype=int)


@dataclass(frozen=True, eq=False)
class Reading:
    """Labels become -1/+1 with the weight of their class, targets stay numbers of weight 1.

    ``classes`` are the two labels, the second is +1; None for targets.
    """

    classes: Array | None = None
    factors: Array | None = None

    def codes(self, y: Array) -> Array:
        """Return the number of the class of each row; without classes 0."""
        if self.classes is None:
            return np.zeros(len(y), dtype=int)
        return np.searchsorted(self.classes, y)

    def targets(self, y: Array) -> Array:
        """Return -1/+1, or the targets as float64."""
        if self.classes is None:
            return np.asarray(y, dtype=float)
        return np.where(y == self.classes[1], 1.0, -1.0)

    def weights(self, y: Array) -> Array:
        """Return the weight of each row."""
        if self.factors is None:
            return np.ones(len(y))
        return self.factors[self.codes(y)]


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of a chunk, centred: ``Z`` (m, d), targets, weights and folds (m,)."""

    Z: Array
    y: Array
    w: Array
    fold: Array


@dataclass(frozen=True, eq=False)
class Blocks:
    """Cuts chunks into blocks of centred float64 rows; ``width`` numbers of a row are at hand."""

    center: Array
    reading: Reading
    folds: Folds

    def of(self, chunk: Chunk, width: int) -> Iterator[RowBlock]:
        """Yield the blocks of a chunk."""
        assert chunk.y is not None
        step = max(1, BLOCK_BYTES // (8 * max(width, len(self.center))))
        for start in range(0, len(chunk.X), step):
            rows = slice(start, start + step)
            y = chunk.y[rows]
            yield RowBlock(
                chunk.X[rows] - self.center,
                self.reading.targets(y),
                self.reading.weights(y),
                self.folds.of(chunk.index()[rows]),
            )
