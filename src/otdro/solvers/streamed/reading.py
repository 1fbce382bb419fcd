"""How the targets and the folds of a row are read off a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk

Array = NDArray[Any]

#: Bytes of a block of rows, as float64, that is worked on at a time: what is made of it is small
#: enough for memory that is used again, which new memory takes longer than the work.
BLOCK_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class Folds:
    """The fold of each row: ``count`` folds, 0 for none, shuffled by ``seed``.

    It follows from the number of the row or, where there are ``groups`` (sorted), from its group,
    whose fold is the one at its place in ``fold_of``.
    """

    count: int = 0
    seed: int = 0
    groups: Array | None = None
    fold_of: Array | None = None

    @property
    def parts(self) -> int:
        """How many parts the rows fall into."""
        return max(1, self.count)

    def of(self, index: Array) -> Array:
        """Return the fold of the rows of these numbers, where groups play no part."""
        if self.count == 0:
            return np.zeros(len(index), dtype=int)
        # the finaliser of splitmix64: neighbours and multiples fall into unrelated folds
        v = index.astype(np.uint64) + np.uint64((self.seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray((v ^ (v >> np.uint64(31))) % np.uint64(self.count), dtype=int)

    def group(self, names: Array | None) -> Array | None:
        """Return the places of groups among all of them, None where folds have none."""
        if self.groups is None or names is None:
            return None
        return np.searchsorted(self.groups, names)

    def fold(self, index: Array, group: Array | None) -> Array:
        """Return the fold of rows by their numbers and the places of their groups."""
        if self.fold_of is None or group is None:
            return self.of(index)
        return np.asarray(self.fold_of[group])


@dataclass(frozen=True, eq=False)
class Reading:
    """Labels become -1/+1 with the weight of their class, targets stay numbers of weight 1.

    ``classes`` are the labels, of which number ``positive`` is +1 and the others -1; None for
    targets. For a model of ``several`` scores labels become their numbers.
    """

    classes: Array | None = None
    factors: Array | None = None
    positive: int = 1
    several: bool = False

    def codes(self, y: Array) -> Array:
        """Return the number of the class of each row; without classes 0."""
        if self.classes is None:
            return np.zeros(len(y), dtype=int)
        return np.searchsorted(self.classes, y)

    def targets(self, y: Array) -> Array:
        """Return -1/+1, the numbers of the labels, or the targets as float64."""
        if self.classes is None:
            return np.asarray(y, dtype=float)
        if self.several:
            return self.codes(y).astype(float)
        return np.where(y == self.classes[self.positive], 1.0, -1.0)

    def weights(self, y: Array, w: Array | None) -> Array:
        """Return the weight of each row, its own times that of its class."""
        own = np.ones(len(y)) if w is None else np.asarray(w, dtype=float)
        return own if self.factors is None else own * self.factors[self.codes(y)]


def picked(parts: Sequence[Any], some: Array) -> list[Any]:
    """Return the entries of some rows of arrays, where there are any."""
    return [None if part is None else part[some] for part in parts]


class RowBlock(NamedTuple):
    """Some rows of a chunk, of positive weight: centred ``Z`` (m, d), targets and weights (m,).

    ``label`` is what y was read from, ``number`` that of a row among all; ``group`` are the places
    of the groups among all of them, None where folds have none.
    """

    Z: Array
    label: Array
    y: Array
    w: Array
    number: Array
    group: Array | None


@dataclass(frozen=True, eq=False)
class Blocks:
    """Cuts chunks into blocks of centred float64 rows; ``width`` numbers of a row are at hand.

    The rows of the fold ``left_out`` are not among them.
    """

    center: Array
    reading: Reading
    folds: Folds
    left_out: int = -1

    def of(self, chunk: Chunk, width: int) -> Iterator[RowBlock]:
        """Yield the blocks of a chunk, without the rows that weigh nothing or are left out."""
        step = self._step(width)
        for start in range(0, len(chunk.X), step):
            rows = slice(start, start + step)
            yield from self._block(chunk, rows, self._fold(chunk, rows))

    def by_fold(self, chunk: Chunk, width: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield the blocks of a chunk, each of rows of one fold, with its number."""
        if self.folds.parts == 1:
            yield from ((0, block) for block in self.of(chunk, width))
            return
        fold, step = self._fold(chunk, slice(0, len(chunk.X))), self._step(width)
        for f in range(self.folds.parts):
            places = np.flatnonzero(fold == f)
            for start in range(0, len(places), step):
                some = places[start : start + step]
                yield from ((f, block) for block in self._block(chunk, some, fold[some]))

    def _step(self, width: int) -> int:
        """Return the number of rows of a block."""
        return max(1, BLOCK_BYTES // (8 * max(width, len(self.center))))

    def _group(self, chunk: Chunk, some: Array | slice) -> Array | None:
        return self.folds.group(None if chunk.group is None else chunk.group[some])

    def _fold(self, chunk: Chunk, some: slice) -> Array:
        return self.folds.fold(chunk.index(some), self._group(chunk, some))

    def _block(self, chunk: Chunk, some: Array | slice, fold: Array) -> Iterator[RowBlock]:
        """Yield those of some rows of a chunk that count, if there are any."""
        y = chunk.targets()[some]
        w = self.reading.weights(y, None if chunk.w is None else chunk.w[some])
        known = (y, self.reading.targets(y), w, chunk.index(some), self._group(chunk, some))
        block = RowBlock(chunk.X[some] - self.center, *known)
        used = (w > 0) & (fold != self.left_out)
        if used.any():
            yield block if used.all() else RowBlock(*picked(block, used))

    def targets(self, block: RowBlock, positive: Array | None) -> Array:
        """Return targets (m, 1), or those of models whose classes +1 are ``positive``, (m, B)."""
        if positive is None:
            return block.y[:, None]
        return np.where(self.reading.codes(block.label)[:, None] == positive, 1.0, -1.0)
