"""Rows in chunks for one loss: the first pass over them, rows kept in memory, blocks of rows.

The first pass (``Census``) counts and sums the rows by label and keeps evenly spaced ones in
memory, and more of a rare class. ``Reading`` cuts chunks into blocks of centred float64 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ...chunks import Chunk, Chunks, Sums
from ...design import BLOCK_ENTRIES
from ...losses import Loss
from ...problem import Sample

Array = NDArray[Any]

#: Evenly spaced rows that are kept in memory: cost and delta are chosen on these.
KEPT = 20_000
#: Bytes of the rows in memory at most.
KEPT_BYTES = 2**27
#: Rows that are kept of a class that is rare among the evenly spaced ones.
OF_A_CLASS = 100
#: Labels above which a target is none of classes.
LABELS_UP_TO = 1_000


class KeptRows(NamedTuple):
    """Rows in memory: ``X``, labels or targets, and weights and groups where they are given."""

    X: Array
    y: Array
    w: Array | None
    group: Array | None

    def some(self, index: Array | slice) -> KeptRows:
        """Return some of the rows."""
        parts: list[Any] = [None if part is None else part[index] for part in self]
        return KeptRows(*parts)

    @classmethod
    def joined(cls, rows: Sequence[KeptRows]) -> KeptRows:
        """Return the rows of several, one after another."""
        columns: Any = zip(*rows, strict=True)
        parts: list[Any] = [None if v[0] is None else np.concatenate(v) for v in columns]
        return cls(*parts)


class ClassSums:
    """By label one line: the number of rows, their weight, the sums of w^2 and of w (x - origin).

    The origin is a row, so that rows far from 0 lose no digits to their offset.
    """

    def __init__(self, origin: Array | None, lines: dict[Any, Array]) -> None:
        if len(lines) > LABELS_UP_TO:
            raise ValueError(
                f"y has more than {LABELS_UP_TO} different values, so it holds no labels: use "
                "DRORegressor for a continuous target."
            )
        self.origin = origin
        self.lines = lines

    def __add__(self, other: ClassSums) -> ClassSums:
        if self.origin is None or other.origin is None:
            return other if self.origin is None else self
        lines = dict(self.lines)
        for label, line in other.lines.items():
            moved = line.copy()
            moved[3:] += line[1] * (other.origin - self.origin)
            lines[label] = lines[label] + moved if label in lines else moved
        return ClassSums(self.origin, lines)


class FirstRows(dict[Any, KeptRows]):
    """By label its first rows: ``OF_A_CLASS``, or fewer where rows are wide and labels many."""

    def __add__(self, other: FirstRows) -> FirstRows:
        both = FirstRows({**other, **self})
        for label in self.keys() & other.keys():
            both[label] = KeptRows.joined([self[label], other[label]])
        return both.cut()

    def cut(self) -> FirstRows:
        """Return as many rows of each label as are kept."""
        size = 8 * sum(rows.X.shape[1] for rows in self.values())
        most = max(2, min(OF_A_CLASS, KEPT_BYTES // max(1, size)))
        return FirstRows({label: rows.some(slice(most)) for label, rows in self.items()})


@dataclass(frozen=True, eq=False)
class Census:
    """The job of the first pass: sums by class, every ``step``-th row, the first rows of a label.

    Rows that are not finite are refused here.
    """

    step: int
    labelled: bool

    def __call__(self, chunk: Chunk) -> Sums:
        """Return what a chunk holds."""
        chunk.require_finite()
        rows = KeptRows(chunk.X, chunk.targets(), chunk.w, chunk.group)
        w = np.ones(len(rows.y)) if rows.w is None else np.asarray(rows.w, dtype=float)
        labels, code = [None], np.zeros(len(w), dtype=int)
        if self.labelled:
            values, code = np.unique(rows.y, return_inverse=True)
            # as Python values they are equal wherever they were read
            labels = values.tolist()
        evenly = np.flatnonzero(chunk.index() % self.step == 0)
        first = FirstRows()
        if self.labelled and self.step > 1:
            for k, label in enumerate(labels):
                first[label] = rows.some(np.flatnonzero((code == k) & (w > 0))[:OF_A_CLASS])
        sums = ClassSums(None, {})
        if len(w):
            origin = np.asarray(rows.X[0], dtype=float)
            lines = _class_lines(rows.X, origin, code, len(labels), w)
            sums = ClassSums(origin, dict(zip(labels, lines, strict=True)))
        return {"classes": sums, "kept": [rows.some(evenly)], "first": first.cut()}


def _class_lines(X: Array, origin: Array, code: Array, size: int, w: Array) -> Array:
    """Return the lines (size, d + 3) of ``ClassSums``."""
    d = X.shape[1]
    lines = np.zeros((size, d + 3))
    for column, v in enumerate((None, w, w * w)):
        lines[:, column] = np.bincount(code, v, minlength=size)
    step = max(1, BLOCK_ENTRIES // d)
    for start in range(0, len(w), step):
        rows = slice(start, start + step)
        part = code[rows]
        indicator = csr_array((w[rows], (part, np.arange(len(part)))), shape=(size, len(part)))
        lines[:, 3:] += indicator @ (X[rows] - origin)
    return lines


def kept_rows(evenly: list[KeptRows], first: FirstRows) -> KeptRows:
    """Return evenly spaced rows; of a class that is rare among them its first rows instead."""
    rows = KeptRows.joined(evenly)
    used = rows.y if rows.w is None else rows.y[rows.w > 0]
    rare = [label for label, some in first.items() if np.sum(used == label) < len(some.y)]
    if not rare:
        return rows
    others = rows.some(np.flatnonzero(~np.isin(rows.y, rare)))
    return KeptRows.joined([others, *(first[label] for label in rare)])


class RowBlock(NamedTuple):
    """Some rows of a chunk, of positive weight: centred ``Z`` (m, d), targets and weights (m,)."""

    Z: Array
    y: Array
    w: Array


@dataclass(frozen=True, eq=False)
class Reading:
    """Cuts chunks into blocks of rows (x - center)/unit with their targets and weights.

    ``classes`` are the labels, None for targets: number ``positive`` is +1 and the others are -1,
    or each is its number where a model has ``several`` scores. ``factors`` are the weights of the
    classes.
    """

    center: Array
    unit: float
    classes: Array | None
    factors: Array
    positive: int
    several: bool

    def blocks(self, chunk: Chunk, width: int) -> Iterator[RowBlock]:
        """Yield the blocks of a chunk; ``width`` numbers of a row are at hand at a time."""
        step = max(1, BLOCK_ENTRIES // max(width, len(self.center)))
        for start in range(0, len(chunk.X), step):
            rows = slice(start, start + step)
            y = chunk.targets()[rows]
            w = np.ones(len(y)) if chunk.w is None else np.asarray(chunk.w[rows], dtype=float)
            Z = chunk.X[rows] - self.center
            if self.unit != 1:
                Z *= 1 / self.unit
            if self.classes is not None:
                code = np.searchsorted(self.classes, y)
                w = w * self.factors[code]
                y = code if self.several else np.where(code == self.positive, 1, -1)
            used = w > 0
            y = np.asarray(y, dtype=float)
            if used.all():
                yield RowBlock(Z, y, w)
            elif used.any():
                yield RowBlock(Z[used], y[used], w[used])


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows in chunks for one loss, measured in ``unit``.

    By class (one for targets): ``counts``, weights ``masses`` and sums of squared weights
    ``squares`` (K,), and the weighted ``sums`` (K, d) of the rows less ``origin``. ``classes`` are
    the labels, None for targets; the class ``positive`` is +1, the others are -1. ``factors`` are
    the weights of the classes, ``rows`` those kept in memory.
    """

    chunks: Chunks
    loss: Loss
    fit_intercept: bool
    classes: Array | None
    counts: Array
    masses: Array
    squares: Array
    sums: Array
    origin: Array
    rows: KeptRows
    factors: Array
    positive: int = 1
    unit: float = 1.0

    @property
    def all_kept(self) -> bool:
        """Whether all rows are in memory."""
        return len(self.rows.y) == self.chunks.n

    @cached_property
    def center(self) -> Array:
        """The mean row; 0 without an intercept."""
        if not self.fit_intercept:
            return np.zeros_like(self.origin)
        mean: Array = self.origin + self.sums.sum(axis=0) / self.masses.sum()
        return mean

    @property
    def reading(self) -> Reading:
        """How chunks are read."""
        several = self.loss.outputs > 1
        return Reading(self.center, self.unit, self.classes, self.factors, self.positive, several)

    @property
    def mass(self) -> Array:
        """The weight of each class (K,)."""
        return self.masses * self.factors

    @cached_property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.mass.sum())

    @property
    def effective_rows(self) -> float:
        """1/sum pi^2, the number of rows of equal weights that tell as much."""
        return self.total**2 / float(np.sum(self.squares * np.square(self.factors)))

    def class_rows(self) -> Sample:
        """Return one row per class, its mean row: -1 and +1, or all where scores are several.

        Slopes of a constant model are the same for all rows of a class: what they tell of the rows
        follows from these.
        """
        mass = self.mass
        sums = self.sums - self.masses[:, None] * (self.center - self.origin)
        sums = sums * (self.factors / self.unit)[:, None]
        y = np.arange(float(len(mass)))
        if self.loss.outputs == 1:
            own = np.arange(len(mass)) == self.positive
            sums = np.stack([sums[~own].sum(axis=0), sums[own].sum(axis=0)])
            mass = np.array([mass[~own].sum(), mass[own].sum()])
            y = np.array([-1.0, 1.0])
        share = mass / self.total
        return Sample(sums / mass[:, None], [y], share, self.loss, self.fit_intercept)

    @property
    def models(self) -> list[Stream]:
        """The streams of all models: of more than two classes each in turn is +1."""
        if self.classes is None or len(self.classes) == 2 or self.loss.outputs > 1:
            return [self]
        return [replace(self, positive=k) for k in range(len(self.classes))]


def opened(chunks: Chunks, loss: Loss, fit_intercept: bool) -> Stream:
    """Return what one pass over the rows tells of them."""
    labelled = loss.task == "classification"
    size = max(1, min(KEPT, KEPT_BYTES // (8 * chunks.d)))
    [census] = chunks.total(Census(-(-chunks.n // size), labelled))
    rows, sums = kept_rows(census["kept"], census["first"]), census["classes"]
    labels = sorted(sums.lines) if labelled else [None]
    table = np.array([sums.lines[label] for label in labels])
    if not table[:, 1].any():
        raise ValueError("sample_weight leaves no row with positive weight: give some rows one.")
    classes = None
    if labelled:
        classes = np.array(labels)
        classes = classes if rows.y.dtype.kind == "U" else classes.astype(rows.y.dtype)
    return Stream(
        chunks=chunks,
        loss=loss,
        fit_intercept=fit_intercept,
        classes=classes,
        counts=table[:, 0],
        masses=table[:, 1],
        squares=table[:, 2],
        sums=table[:, 3:],
        origin=sums.origin,
        rows=rows,
        factors=np.ones(len(table)),
    )
