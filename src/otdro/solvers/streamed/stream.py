"""Rows in chunks for one loss: how they are read, what a first pass tells, a part in memory.

The first pass (``Census``) counts the rows and sums them by label and fold or group, and keeps
evenly spaced ones in memory. ``Blocks`` cuts chunks into blocks of centred float64 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ...chunks import Chunk, Chunks, Sums
from ...design import Design
from ...losses import Loss
from ...problem import Sample, Solution
from ..base import verdict

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


#: Labels above which a target is none of classes.
LABELS_UP_TO = 1_000
#: Groups whose losses are told apart.
GROUPS_UP_TO = 10_000


class CellSums(dict[tuple[Any, Any], Array]):
    """Sums by label and fold or group; the sum of two adds up those of equal keys."""

    def __add__(self, other: CellSums) -> CellSums:
        total = CellSums(self)
        for key, line in other.items():
            total[key] = total[key] + line if key in total else line
        labels, parts = total.keys_of(0), total.keys_of(1)
        if len(labels) > LABELS_UP_TO:
            raise ValueError(
                f"y has more than {LABELS_UP_TO} different values, so it holds no labels: use "
                "DRORegressor for a continuous target."
            )
        if len(parts) > GROUPS_UP_TO:
            raise ValueError(
                f"groups has more than {GROUPS_UP_TO} different values, each of which has a loss "
                "of its own: put several of them into one group, or leave groups out."
            )
        return total

    def keys_of(self, place: int) -> list[Any]:
        """Return the labels (0), or the folds or groups (1), in order."""
        return sorted({key[place] for key in self})

    def table(self, parts: list[Any], width: int) -> Array:
        """Return the sums as one array, by fold or group, label and column."""
        labels = {label: k for k, label in enumerate(self.keys_of(0))}
        places = {part: i for i, part in enumerate(parts)}
        table = np.zeros((len(places), len(labels), width))
        for (label, part), line in self.items():
            table[places[part], labels[label]] = line
        return table


class FirstRows(dict[Any, Any]):
    """By label the first rows that have it; of the sum of two those of the first count."""

    def __add__(self, other: FirstRows) -> FirstRows:
        return FirstRows({**other, **self})


@dataclass(frozen=True, eq=False)
class Census:
    """The job of the first pass.

    ``cells`` holds by label and by fold or group one line: the number of rows, their weight,
    the sum of the weighted rows. ``square`` is the sum of squared weights. Every ``step``-th row is
    kept, and ``first`` holds one of every label. Rows that are not finite are refused here.
    """

    folds: Folds
    step: int
    labelled: bool
    grouped: bool

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        chunk.require_finite()
        y, index = chunk.targets(), chunk.index()
        w = np.ones(len(index)) if chunk.w is None else np.asarray(chunk.w, dtype=float)
        return {
            "cells": self._cells(chunk, w),
            "square": float(w @ w),
            "kept": [some_rows(chunk, w, np.flatnonzero(index % self.step == 0))],
            "first": self._first(chunk, y, w),
        }

    def _first(self, chunk: Chunk, y: Array, w: Array) -> FirstRows:
        """Return the first row of positive weight of every label."""
        if not self.labelled:
            return FirstRows()
        some = np.flatnonzero(w > 0)
        labels, place = np.unique(y[some], return_index=True)
        rows = [some_rows(chunk, w, some[[i]]) for i in place]
        return FirstRows(zip(labels.tolist(), rows, strict=True))

    def _cells(self, chunk: Chunk, w: Array) -> CellSums:
        labels, label = [None], np.zeros(len(w), dtype=int)
        if self.labelled:
            labels, label = _distinct(chunk.y)
        parts, part = _distinct(chunk.group if self.grouped else self.folds.of(chunk.index()))
        cell, size = label * len(parts) + part, len(labels) * len(parts)
        lines = zip(product(labels, parts), cell_sums(cell, size, w, chunk.X), strict=True)
        return CellSums() + CellSums({key: line for key, line in lines if line[0]})


class KeptRows(NamedTuple):
    """Rows in memory: ``X``, their labels or targets, weights, groups and numbers."""

    X: Array
    y: Array
    w: Array
    group: Array | None
    number: Array


def some_rows(chunk: Chunk, w: Array, some: Array) -> KeptRows:
    """Return some rows of a chunk, with weights w."""
    return KeptRows(*picked((chunk.X, chunk.y, w, chunk.group, chunk.index()), some))


def kept_rows(sums: Sums) -> KeptRows:
    """Return the rows that a census kept, with one of each label that is not among them."""
    rows: list[KeptRows] = sums["kept"]
    met = {label for part in rows for label in part.y[part.w > 0].tolist()}
    rows = rows + [row for label, row in sums["first"].items() if label not in met]
    parts: Any = zip(*rows, strict=True)
    joined: list[Any] = [None if part[0] is None else np.concatenate(part) for part in parts]
    return KeptRows(*joined)


def _distinct(v: Any) -> tuple[list[Any], Array]:
    """Return the values as Python ones, equal wherever they were read, and each entry's place."""
    values, place = np.unique(v, return_inverse=True)
    return values.tolist(), place


def cell_sums(cell: Array, size: int, w: Array, X: Array) -> Array:
    """Return by cell the number of rows, their weight and the sum of wx, shape (size, d + 2)."""
    d = X.shape[1]
    sums = np.empty((size, d + 2))
    sums[:, 0] = np.bincount(cell, minlength=size)
    sums[:, 1] = np.bincount(cell, w, minlength=size)
    sums[:, 2:] = 0.0
    step = max(1, BLOCK_BYTES // (8 * d))
    for start in range(0, len(w), step):
        rows = slice(start, start + step)
        sums[:, 2:] += indicator(cell[rows], size, w[rows]) @ np.asarray(X[rows], dtype=float)
    return sums


def indicator(cell: Array, size: int, w: Array) -> Any:
    """Return the sparse matrix (size, m) that sums rows by cell with weights w."""
    return csr_array((w, (cell, np.arange(len(cell)))), shape=(size, len(cell)))


#: Evenly spaced rows that are kept in memory at least: starting points, neighbours, fences and
#: noise come from these.
KEPT = 20_000
#: Rows in memory per column at least.
KEPT_PER_COLUMN = 200
#: Bytes of the rows in memory at most.
KEPT_BYTES = 2**27

#: Puts whole groups into folds: their names and rows by class (G, K) to folds.
Grouping = Callable[[Array, Array], Folds]


#: What the message of a solution says where beta = 0 is the best.
CONSTANT = "the constant model is optimal at this delta"


class Constant(NamedTuple):
    """The best model with beta = 0 on the training rows: b, its risk, E[a^2] and g = E[a z].

    With K scores per row b has K entries and g, of shape (d, K), K columns.
    """

    b: Any
    risk: float
    mean_square: float
    pull: Array

    def at(self, move: Array) -> Array:
        """Return (theta, b) after a move from theta = 0."""
        return np.append(move[:-1], self.b + move[-1])


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows in chunks for one loss: ``counts`` and ``masses`` (F, K), ``sums`` (F, K, d).

    These are the number of rows, their weight and the weighted sum of rows by fold and class,
    ``square`` the sum of squared weights. ``classes`` are the labels, None for targets; the class
    ``positive`` is +1, the others are -1. The rows of the fold ``left_out`` are not read.
    """

    chunks: Chunks
    loss: Loss
    fit_intercept: bool
    folds: Folds
    classes: Array | None
    counts: Array
    masses: Array
    sums: Array
    square: float
    rows: KeptRows
    factors: Array | None = None
    positive: int = 1
    left_out: int = -1

    @property
    def reading(self) -> Reading:
        """How labels and weights are read."""
        return Reading(self.classes, self.factors, self.positive, self.loss.outputs > 1)

    @cached_property
    def center(self) -> Array:
        """The mean row; 0 without an intercept."""
        mean: Array = self.sums.sum(axis=(0, 1)) / self.masses.sum()
        return mean if self.fit_intercept else np.zeros_like(mean)

    @property
    def blocks(self) -> Blocks:
        """The cutter of chunks into centred blocks."""
        return Blocks(self.center, self.reading, self.folds, self.left_out)

    def mass(self, left_out: int = -1) -> Array:
        """Return the weight of each class (K,) in the rows outside a fold."""
        weights = _outside(self.masses, left_out)
        return weights if self.factors is None else weights * self.factors

    @cached_property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.mass().sum())

    def totals(self, left_out: Array) -> Array:
        """Return the weight of the training rows of each of many models."""
        known = {int(f): float(self.mass(int(f)).sum()) for f in np.unique(left_out)}
        return np.array([known[int(f)] for f in left_out])

    def held(self, fold: int) -> float:
        """Return the weight of the rows of a fold."""
        return float(self.total - self.mass(fold).sum())

    def mean_of_folds(self, values: Array) -> Array:
        """Return sums (F, B) over the rows of every fold, divided by their weight."""
        return values / np.array([[self.held(f)] for f in range(self.folds.count)])

    def signed(self, by_class: Array) -> Array:
        """Return sums by class (K, ...) as those of the labels -1 and +1, (2, ...).

        With several scores per row they stay as they are.
        """
        if self.loss.outputs > 1:
            return by_class
        own = by_class[self.positive]
        return np.stack([by_class.sum(axis=0) - own, own])

    def class_rows(self, left_out: int = -1) -> Sample:
        """Return one row for each class of ``signed``: the centred mean of rows outside a fold.

        Slopes of a constant model are the same for all rows of a class: what they tell of the rows
        follows from these.
        """
        mass = self.mass(left_out)
        centred = _outside(self.sums, left_out)
        centred = centred - _outside(self.masses, left_out)[:, None] * self.center
        weighted = centred if self.factors is None else centred * self.factors[:, None]
        size = self.signed(mass)
        means = self.signed(weighted) / np.maximum(size, np.finfo(float).tiny)[:, None]
        y = np.array([-1.0, 1.0]) if self.loss.outputs == 1 else np.arange(float(len(size)))
        return Sample(means, [y], size / mass.sum(), self.loss, self.fit_intercept)

    def constant(self, left_out: int = -1) -> Constant:
        """Return the best constant model of labels on the rows outside a fold."""
        rows = self.class_rows(left_out)
        [y], share = rows.ys, rows.weights
        several = self.loss.outputs > 1
        b = np.zeros(self.loss.outputs) if several else 0.0
        b = self.loss.constant(y, share) if self.fit_intercept else b
        z = np.tile(b, (len(y), 1)) if several else np.full(len(y), b)
        a = self.loss.derivative(z, y)
        pull = np.tensordot(rows.X, (share * a.T).T, axes=(0, 0))
        square = float(np.tensordot(share, a**2, axes=(0, 0)).sum())
        return Constant(b, float(share @ self.loss.value(z, y)), square, pull)

    @cached_property
    def kept(self) -> Sample:
        """The rows in memory as a sample of this model."""
        rows = self.rows
        weights = self.reading.weights(rows.y, rows.w)
        y = self.reading.targets(rows.y)
        return Sample(rows.X, [y], weights / weights.sum(), self.loss, self.fit_intercept)

    @property
    def kept_design(self) -> Design:
        """The rows in memory, centred."""
        return Design(self.rows.X, center=self.center)

    @cached_property
    def sample(self) -> Sample:
        """The rows in memory as a sample of all models."""
        return replace(self.kept, ys=[model.kept.ys[0] for model in self.models])

    @property
    def all_kept(self) -> bool:
        """Whether all rows are in memory."""
        return len(self.rows.y) == self.chunks.n

    @cached_property
    def kept_fold(self) -> Array:
        """The fold of each row in memory."""
        return self.folds.fold(self.rows.number, self.folds.group(self.rows.group))

    @cached_property
    def models(self) -> list[Stream]:
        """The streams of all models: of more than two classes each in turn is +1."""
        if self.classes is None or len(self.classes) == 2 or self.loss.outputs > 1:
            return [self]
        return [replace(self, positive=k) for k in range(len(self.classes))]

    def outside(self, fold: int) -> Stream:
        """Return the stream of the rows outside a fold; its ``square`` stays that of all rows."""
        others = np.arange(len(self.masses)) != fold
        return replace(
            self,
            counts=self.counts * others[:, None],
            masses=self.masses * others[:, None],
            sums=self.sums * others[:, None, None],
            rows=KeptRows(*picked(self.rows, self.kept_fold != fold)),
            left_out=fold,
        )

    def solution(
        self,
        coef: Array,
        b: Any,
        multiplier: float,
        objective: float,
        risk: float,
        gap: float,
        target: float,
        n_iter: int,
    ) -> Solution:
        """Return the solution on the rows as given of a model (coef, b) on centred rows.

        ``risk`` is its mean loss.
        """
        return Solution(
            coef=coef,
            intercept=b - coef @ self.center,
            multiplier=multiplier,
            objective=objective,
            gap=gap,
            n_iter=n_iter,
            converged=gap <= target,
            message=verdict(gap, target, n_iter),
            mean_loss=risk,
        )


def _outside(by_fold: Array, left_out: int) -> Array:
    """Return sums over the folds, without one."""
    kept = np.delete(by_fold, left_out, axis=0) if left_out >= 0 else by_fold
    total: Array = kept.sum(axis=0)
    return total


def _labels(labels: list[Any], y: Array) -> Array:
    """Return the labels as an array of the type of y; text as long as it is."""
    values = np.array(labels)
    return values if y.dtype.kind == "U" else values.astype(y.dtype)


def opened(
    chunks: Chunks, loss: Loss, fit_intercept: bool, folds: Folds, grouping: Grouping | None = None
) -> Stream:
    """Return what one pass over the rows tells of them; ``grouping`` makes folds of groups."""
    labelled = loss.task == "classification"
    most = max(1, KEPT_BYTES // (8 * chunks.d))
    size = min(max(KEPT, KEPT_PER_COLUMN * chunks.d), most)
    [census] = chunks.total(Census(folds, -(-chunks.n // size), labelled, grouping is not None))
    kept, cells = kept_rows(census), census["cells"]
    parts = list(range(folds.parts)) if grouping is None else cells.keys_of(1)
    table = cells.table(parts, chunks.d + 2)
    if grouping is not None and kept.group is not None:
        folds = grouping(_labels(parts, kept.group), table[:, :, 0])
        table = np.stack([table[folds.fold_of == f].sum(axis=0) for f in range(folds.count)])
    if not table[:, :, 1].any():
        raise ValueError("sample_weight leaves no row with positive weight: give some rows one.")
    return Stream(
        chunks,
        loss,
        fit_intercept,
        folds,
        _labels(cells.keys_of(0), kept.y) if labelled else None,
        counts=table[:, :, 0],
        masses=table[:, :, 1],
        sums=table[:, :, 2:],
        square=census["square"],
        rows=kept,
    )
