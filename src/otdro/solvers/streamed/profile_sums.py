"""What one pass finds at a plain fit, for delta by theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Sums
from ...design import Design
from ...losses import Loss
from .reading import Blocks
from .sums import first_sums, second_sums

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ProfileSums:
    r"""Sums of w q tt', t = (z, 1), at one model: ``slopes`` (d + 1, d + 1) at q = a^2.

    ``bends`` are those at q = D, ``squares`` at q = D^2 and ``mixed`` (d + 1,) the sum of w a D t;
    ``weights`` is the sum of w^2, ``least`` holds the least margins.
    """

    blocks: Blocks
    loss: Loss
    coef: Array
    b: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        side = len(self.coef) + 1
        found: Sums = {name: np.zeros((side, side)) for name in ("slopes", "bends", "squares")}
        found |= {"mixed": np.zeros(side), "weights": 0.0, "least": []}
        for block in self.blocks.of(chunk, side):
            design = Design(block.Z)
            z = design.scores(self.coef) + self.b
            _, a, D = self.loss.evaluate(z, block.y)
            for name, q in (("slopes", a**2), ("bends", D), ("squares", D**2)):
                found[name] += second_sums(design, block.w * q)
            found["mixed"] += first_sums(design, block.w * a * D)
            found["weights"] += float(block.w @ block.w)
            found["least"] += [float((block.y * z).min(initial=np.inf))]
        return found
