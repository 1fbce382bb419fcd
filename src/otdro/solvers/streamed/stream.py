"""Rows in chunks with what a first pass tells of them: the constant model, a part in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunks
from ...design import Design
from ...losses import Loss
from ...problem import Sample, Solution
from ..base import verdict
from .census import Census, KeptRows, kept_rows
from .reading import Blocks, Folds, Reading, picked

Array = NDArray[Any]

#: Evenly spaced rows that are kept in memory at least, per column at least, and their bytes at
#: most: starting points, neighbours, fences and noise are found from these.
KEPT, KEPT_PER_COLUMN, KEPT_BYTES = 20_000, 200, 2**27

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
    found: Array = kept.sum(axis=0)
    return found


def _labels(labels: list[Any], y: Array) -> Array:
    """Return the labels as an array of the type of y; text as long as it is."""
    found = np.array(labels)
    return found if y.dtype.kind == "U" else found.astype(y.dtype)


def opened(
    chunks: Chunks, loss: Loss, fit_intercept: bool, folds: Folds, grouping: Grouping | None = None
) -> Stream:
    """Return what one pass over the rows tells of them; ``grouping`` makes folds of groups."""
    labelled = loss.task == "classification"
    most = max(1, KEPT_BYTES // (8 * chunks.d))
    size = min(max(KEPT, KEPT_PER_COLUMN * chunks.d), most)
    [found] = chunks.total(Census(folds, -(-chunks.n // size), labelled, grouping is not None))
    kept, cells = kept_rows(found), found["cells"]
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
        square=found["square"],
        rows=kept,
    )
