"""Where the grid of deltas begins, for rows in chunks: the thresholds of all and of fenced rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...duality import threshold
from ...losses import Loss
from ...solvers.streamed import FencedSums, Stream
from ...solvers.streamed.squared import FoldMoments
from ..grid import deltas_from, far_out

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ZeroPulls:
    """The models beta = 0, one per model: pulls g (d,) and mean squared slopes.

    ``near`` are those of the rows on their fence, None where no row is far out.
    """

    loss: Loss
    pulls: list[Array]
    squares: list[float]
    near: list[Array] | None

    def deltas(self, cost: Cost, order: int) -> Array:
        """Return the default grid of deltas under a cost."""
        near = self.near
        low = None if near is None else (lambda: self._largest(near, cost, order))
        return deltas_from(self._largest(self.pulls, cost, order), low, order)

    def _largest(self, pulls: list[Array], cost: Cost, order: int) -> float:
        return max(
            float(threshold(float(cost.norm(pull)), square, self.loss.lipschitz, order))
            for pull, square in zip(pulls, self.squares, strict=True)
        )


def fenced_job(stream: Stream, center: Array, fence: float, shift: float) -> FencedSums:
    """Return the job that looks for rows far out and sums the rows on their fence."""
    mean = stream.sums.sum(axis=(0, 1)) / stream.masses.sum()
    return FencedSums(replace(stream.blocks, center=center), fence, mean, shift)


def zero_pulls(
    stream: Stream, moments: FoldMoments | None, job: FencedSums, found: Any
) -> ZeroPulls:
    """Return the zero models of all rows and, where a row is far out, those of fenced rows."""
    far = far_out(max(found["farthest"]), found["distance"])
    # the rows of the sums are centred
    sums = found["sums"] + stream.mass()[:, None] * job.blocks.center
    if moments is not None:
        _, pull, square, _ = moments.centred()
        near = [_fenced_pull(moments, job, sums[0], found["height"])] if far else None
        return ZeroPulls(stream.loss, [pull], [square], near)
    flats = [model.constant() for model in stream.models]
    pulls, squares = [flat.pull for flat in flats], [flat.mean_square for flat in flats]
    if not far:
        return ZeroPulls(stream.loss, pulls, squares, None)
    counts, masses = stream.counts.sum(axis=0)[None], stream.mass()[None]
    fenced = replace(stream, counts=counts, masses=masses, sums=sums[None], factors=None)
    near = [model.constant().pull for model in fenced.models]
    return ZeroPulls(stream.loss, pulls, squares, near)


def _fenced_pull(moments: FoldMoments, job: FencedSums, total: Array, height: Array) -> Array:
    """Return E[x(y - E y)] of fenced rows, E[xy] without an intercept."""
    M = moments.training(-1)
    mass, first = M[0, 0], M[0, -1]
    pull: Array = (height + job.blocks.center * first) / mass
    if moments.stream.fit_intercept:
        pull = pull - np.multiply(total / mass, first / mass)
    return pull
