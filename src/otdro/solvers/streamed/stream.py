"""Rows in chunks with what a first pass tells of them: the constant model, a part in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Chunks, Sums
from ...losses import Loss
from ...problem import Sample
from .reading import Blocks, Folds, Reading

Array = NDArray[Any]

#: Evenly spaced rows that are kept in memory at least, per column at least, and their bytes at
#: most: starting points, neighbours, fences and noise are found from these.
KEPT, KEPT_PER_COLUMN, KEPT_BYTES = 20_000, 30, 2**27
#: Labels above which a target is none of classes.
LABELS_UP_TO = 1_000


class ByLabel(dict[Any, Any]):
    """A table of arrays by label; the sum of two adds up those of equal labels."""

    def __add__(self, other: ByLabel) -> ByLabel:
        found = ByLabel(self)
        for label, value in other.items():
            found[label] = found[label] + value if label in found else value
        if len(found) > LABELS_UP_TO:
            raise ValueError(
                f"y has more than {LABELS_UP_TO} different values, so it holds no labels: use "
                "DRORegressor for a continuous target."
            )
        return found


@dataclass(frozen=True, eq=False)
class Census:
    """The job of the first pass: counts and sums of rows by label and fold, and some rows.

    ``table`` has one line per fold, the count first, then the sum of the rows. Every ``step``-th
    row is kept. Rows that are not finite are refused here.
    """

    folds: Folds
    step: int
    labelled: bool

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        chunk.require_finite()
        if chunk.y is None:
            raise ValueError("the rows have no targets: name the column or give y.")
        index = chunk.index()
        fold, kept = self.folds.of(index), index % self.step == 0
        labels = np.unique(chunk.y) if self.labelled else [None]
        found = ByLabel()
        for label in labels:
            of = chunk.y == label if self.labelled else np.ones(len(index), dtype=bool)
            found = found + ByLabel({_plain(label): self._table(chunk.X, fold, of)})
        return {
            "table": found,
            "X": [chunk.X[kept]],
            "y": [chunk.y[kept]],
            "index": [index[kept]],
        }

    def _table(self, X: Array, fold: Array, of: Array) -> Array:
        table = np.zeros((self.folds.parts, X.shape[1] + 1))
        for f in range(self.folds.parts):
            rows = of & (fold == f)
            table[f, 0] = np.count_nonzero(rows)
            table[f, 1:] = X[rows].sum(axis=0, dtype=float)
        return table


def _plain(label: Any) -> Any:
    """Return a label as a Python value, which is equal and hashes alike wherever it was read."""
    return label.item() if hasattr(label, "item") else label


class Constant(NamedTuple):
    """The best model with beta = 0 on the training rows: b, its risk, E[a^2] and g = E[a z]."""

    b: float
    risk: float
    mean_square: float
    pull: Array


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows in chunks for one loss: ``counts`` (F, K) and ``sums`` (F, K, d) by fold and class.

    ``X``, ``y`` and ``index`` are the rows kept in memory and their numbers; ``classes`` are the
    labels, None for targets.
    """

    chunks: Chunks
    loss: Loss
    fit_intercept: bool
    folds: Folds
    classes: Array | None
    factors: Array | None
    counts: Array
    sums: Array
    X: Array
    y: Array
    index: Array

    @property
    def reading(self) -> Reading:
        """How labels and weights are read."""
        return Reading(self.classes, self.factors)

    @cached_property
    def center(self) -> Array:
        """The mean row; 0 without an intercept."""
        mean: Array = self.sums.sum(axis=(0, 1)) / self.counts.sum()
        return mean if self.fit_intercept else np.zeros_like(mean)

    @property
    def blocks(self) -> Blocks:
        """The cutter of chunks into centred blocks."""
        return Blocks(self.center, self.reading, self.folds)

    def mass(self, left_out: int = -1) -> Array:
        """Return the weight of each class (K,) in the rows outside a fold."""
        counts = np.delete(self.counts, left_out, axis=0) if left_out >= 0 else self.counts
        weights = counts.sum(axis=0)
        return weights if self.factors is None else weights * self.factors

    def totals(self, left_out: Array) -> Array:
        """Return the weight of the training rows of each of many models."""
        known = {int(f): float(self.mass(int(f)).sum()) for f in np.unique(left_out)}
        return np.array([known[int(f)] for f in left_out])

    def held(self, fold: int) -> float:
        """Return the weight of the rows of a fold."""
        return float(self.mass().sum() - self.mass(fold).sum())

    def constant(self, left_out: int = -1) -> Constant:
        """Return the best constant model of labels on the rows outside a fold."""
        y, mass = np.array([-1.0, 1.0]), self.mass(left_out)
        share = mass / mass.sum()
        b = self.loss.constant(y, share) if self.fit_intercept else 0.0
        z = np.full(2, b)
        a = self.loss.derivative(z, y)
        sums = np.delete(self.sums, left_out, axis=0) if left_out >= 0 else self.sums
        counts = np.delete(self.counts, left_out, axis=0) if left_out >= 0 else self.counts
        rows = sums.sum(axis=0) - counts.sum(axis=0)[:, None] * self.center
        factors = np.ones(2) if self.factors is None else self.factors
        pull = (a * factors) @ rows / mass.sum()
        return Constant(b, float(share @ self.loss.value(z, y)), float(share @ a**2), pull)

    @cached_property
    def kept(self) -> Sample:
        """The rows in memory as a sample."""
        reading = self.reading
        weights = reading.weights(self.y)
        y = reading.targets(self.y)
        return Sample(self.X, [y], weights / weights.sum(), self.loss, self.fit_intercept)

    @property
    def kept_fold(self) -> Array:
        """The fold of each row in memory."""
        return self.folds.of(self.index)

    def weighing(self, factors: Array | None) -> Stream:
        """Return the stream with these weights of the classes."""
        return replace(self, factors=factors)


def _labels(labels: list[Any], y: Array) -> Array:
    """Return the labels as an array of the type of y; text as long as it is."""
    found = np.array(labels)
    return found if y.dtype.kind == "U" else found.astype(y.dtype)


def opened(chunks: Chunks, loss: Loss, fit_intercept: bool, folds: Folds) -> Stream:
    """Return what one pass over the rows tells of them."""
    labelled = loss.task == "classification"
    most = max(1, KEPT_BYTES // (8 * chunks.d))
    size = min(max(KEPT, KEPT_PER_COLUMN * chunks.d), most)
    [found] = chunks.total(Census(folds, -(-chunks.n // size), labelled))
    table = found["table"]
    labels = sorted(table) if labelled else list(table)
    by_label = np.stack([table[label] for label in labels], axis=1)
    y = np.concatenate(found["y"])
    return Stream(
        chunks,
        loss,
        fit_intercept,
        folds,
        _labels(labels, y) if labelled else None,
        None,
        by_label[:, :, 0],
        by_label[:, :, 1:],
        np.concatenate(found["X"]),
        y,
        np.concatenate(found["index"]),
    )
