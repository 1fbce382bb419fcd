"""Where the grid of deltas begins, for rows in chunks: the thresholds of all and of fenced rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...duality import threshold as zero_threshold
from ...problem import Sample
from ...solvers.streamed import FencedSums, Stream
from ...solvers.streamed.squared import FoldFactors
from ..thresholds import deltas_from, far_out, threshold

Array = NDArray[Any]


class Zero(Protocol):
    """The models beta = 0 of rows: what the thresholds follow from."""

    def threshold(self, cost: Cost, order: int) -> float:
        """Return the least delta at which all of them are optimal."""


@dataclass(frozen=True, eq=False)
class LabelledZero:
    """Those of labels, which one row per class stands for: one sample per model."""

    rows: list[Sample]

    def threshold(self, cost: Cost, order: int) -> float:
        """Return the largest of the models."""
        return max(threshold(rows, rows.ys[0], cost, order) for rows in self.rows)


@dataclass(frozen=True, eq=False)
class SquaredZero:
    """That of targets: the pull E[x y] and E[y^2], about the means with an intercept."""

    pull: Array
    square: float

    def threshold(self, cost: Cost, order: int) -> float:
        """Return ||g||^2/E[a^2]."""
        return float(zero_threshold(float(cost.norm(self.pull)), self.square, np.inf, order))


@dataclass(frozen=True, eq=False)
class Zeros:
    """The zero models of all rows, and of the rows on their fence; None where none is far out."""

    everywhere: Zero
    near: Zero | None

    def deltas(self, cost: Cost, order: int) -> Array:
        """Return the default grid of deltas under a cost."""
        near = self.near
        low = None if near is None else (lambda: near.threshold(cost, order))
        return deltas_from(self.everywhere.threshold(cost, order), low, order)


def fenced_job(stream: Stream, center: Array, fence: float, shift: float) -> FencedSums:
    """Return the job that looks for rows far out and sums the rows on their fence."""
    mean = stream.sums.sum(axis=(0, 1)) / stream.masses.sum()
    return FencedSums(replace(stream.blocks, center=center), fence, mean, shift)


def zeros(stream: Stream, squared: FoldFactors | None, job: FencedSums, found: Any) -> Zeros:
    """Return the zero models of all rows and, where a row is far out, those of fenced rows."""
    far = far_out(max(found["farthest"]), found["distance"])
    # the rows of the sums are centred
    sums = found["sums"] + stream.mass()[:, None] * job.blocks.center
    if squared is not None:
        pull, square = squared.pull()
        fenced_pull = _fenced_pull(squared, job, sums[0], found["height"])
        return Zeros(SquaredZero(pull, square), SquaredZero(fenced_pull, square) if far else None)
    masses = stream.mass()[None]
    fenced = replace(stream, masses=masses, sums=sums[None], factors=None)
    return Zeros(_labelled(stream), _labelled(fenced) if far else None)


def _labelled(stream: Stream) -> LabelledZero:
    return LabelledZero([model.class_rows() for model in stream.models])


def _fenced_pull(squared: FoldFactors, job: FencedSums, total: Array, height: Array) -> Array:
    """Return E[x(y - E y)] of fenced rows, E[xy] without an intercept."""
    R, mass = squared.training(), squared.stream.total
    mean = R[0, -1] / R[0, 0]
    pull: Array = height / mass + job.blocks.center * mean
    if squared.stream.fit_intercept:
        pull = pull - total / mass * mean
    return pull
