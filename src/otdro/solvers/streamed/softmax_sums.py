"""What one pass finds of a softmax model: sums at the end of a step, and of its dual point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Sums
from ...design import Design
from ..softmax.batch import SharedRows
from ..softmax.rows import SoftmaxRows
from .stream import Blocks, RowBlock
from .sums import LENGTHS

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SoftmaxSums:
    r"""Sums at the end of a step of one model, at shorter steps, and those of the dual point.

    After the step: ``gradient`` and ``hessian`` in (C, c), as ``SoftmaxRows`` joins them;
    ``values`` :math:`\sum w\ell` after each of ``LENGTHS`` of the step; ``entropy``
    :math:`\sum_i w_i H(q_i)` at the probabilities continued along the step from its start, shrunk
    towards the labels by ``shrink``.
    """

    blocks: Blocks
    factor: Array | None
    classes: int
    fit_intercept: bool
    at: Array
    step: Array
    shrink: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d, m, side = len(self.blocks.center), self.classes - 1, len(self.at)
        found: Sums = {"gradient": np.zeros(side), "hessian": np.zeros((side, side))}
        found |= {"values": np.zeros(len(LENGTHS)), "entropy": 0.0}
        # pairs of classes have a weight per row each
        for block in self.blocks.of(chunk, max(d, self.classes * m)):
            self._add(found, block)
        return found

    def _add(self, found: Sums, block: RowBlock) -> None:
        design, labels = SharedRows(Design(block.Z, self.factor)), block.y.astype(int)
        rows = SoftmaxRows(design, labels, block.w, self.classes, self.fit_intercept)
        z, dz = (rows.scores(*rows.split(part)) for part in (self.at, self.step))
        _, p = rows.evaluate(z)
        found["entropy"] += float(rows.dual_value(p + rows.bent(p, dz), self.shrink))
        value, p = rows.evaluate(z + dz)
        shorter = [float(rows.evaluate(z + t * dz)[0]) for t in LENGTHS[1:]]
        found["values"] += np.array([float(value), *shorter])
        found["gradient"] += rows.gradient(rows.slopes(p))
        found["hessian"] += rows.curvature(p)
