"""Where the grid of deltas begins, for rows in chunks: the thresholds of all and of fenced rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...duality import threshold as zero_threshold
from ...solvers.streamed import FencedSums, Stream
from ...solvers.streamed.squared import FoldFactors
from ..thresholds import deltas_from, far_out, threshold

Array = NDArray[Any]


#: The least delta at which models beta = 0 of some rows are optimal, under a cost and an order.
Threshold = Callable[[Cost, int], float]


#: The default deltas under a cost and an order.
Grid = Callable[[Cost, int], Array]


def fenced_job(stream: Stream, center: Array, fence: float, shift: float) -> FencedSums:
    """Return the job that looks for rows far out and sums the rows on their fence."""
    mean = stream.sums.sum(axis=(0, 1)) / stream.masses.sum()
    return FencedSums(replace(stream.blocks, center=center), fence, mean, shift)


def grid_of(stream: Stream, squared: FoldFactors | None, job: FencedSums, found: Any) -> Grid:
    """Return the grid from the thresholds of all rows and, where one is far out, of fenced rows."""
    far = far_out(max(found["farthest"]), found["distance"])
    # the rows of the sums are centred
    sums = found["sums"] + stream.mass()[:, None] * job.blocks.center
    if squared is not None:
        pull, square = squared.pull()
        fenced_pull = _fenced_pull(squared, job, sums[0], found["height"])
        top, near = _of_targets(pull, square), _of_targets(fenced_pull, square)
    else:
        masses = stream.mass()[None]
        fenced = replace(stream, masses=masses, sums=sums[None], factors=None)
        top, near = _of_labels(stream), _of_labels(fenced)

    def deltas(cost: Cost, order: int) -> Array:
        low = partial(near, cost, order) if far else None
        return deltas_from(top(cost, order), low, order)

    return deltas


def _of_labels(stream: Stream) -> Threshold:
    """Return the largest threshold of the models, which one row per class stands for."""
    each = [model.class_rows() for model in stream.models]
    return lambda cost, order: max(threshold(rows, rows.ys[0], cost, order) for rows in each)


def _of_targets(pull: Array, square: float) -> Threshold:
    """Return ||g||^2/E[a^2] from the pull E[x y] and E[y^2], about the means with an intercept."""

    def at(cost: Cost, order: int) -> float:
        return float(zero_threshold(float(cost.norm(pull)), square, np.inf, order))

    return at


def _fenced_pull(squared: FoldFactors, job: FencedSums, total: Array, height: Array) -> Array:
    """Return E[x(y - E y)] of fenced rows, E[xy] without an intercept."""
    R, mass = squared.training(), squared.stream.total
    mean = R[0, -1] / R[0, 0]
    pull: Array = height / mass + job.blocks.center * mean
    if squared.stream.fit_intercept:
        pull = pull - total / mass * mean
    return pull
