r"""What one pass finds where labels may be changed at a price, at order 1.

The worst loss of a row is :math:`\max\{\ell(z, y),\ \ell(z, -y) - \kappa\lambda\}`. Rows whose two
losses are near each other are handed back, for both to stay in the model of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Sums
from ...design import Design
from ...losses import Loss
from .stream import Blocks, RowBlock
from .sums import LENGTHS, ModelStep, first_sums, second_sums

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class NearRows:
    """The rows ``Z`` whose losses under both labels are nearest, with y, w and their numbers.

    ``gain`` is what a change of the label gains; of the sum of two the ``most`` nearest remain.
    """

    most: int
    Z: Array
    y: Array
    w: Array
    number: Array
    gain: Array

    @classmethod
    def none(cls, most: int, d: int) -> NearRows:
        """Return no rows of d columns."""
        empty = np.zeros(0)
        return cls(most, np.zeros((0, d)), empty, empty, np.zeros(0, dtype=int), empty)

    @property
    def parts(self) -> tuple[Array, ...]:
        """What there is of each row."""
        return self.Z, self.y, self.w, self.number, self.gain

    def __add__(self, other: NearRows) -> NearRows:
        pairs = zip(self.parts, other.parts, strict=True)
        return NearRows(self.most, *(np.concatenate(pair) for pair in pairs)).nearest()

    def nearest(self) -> NearRows:
        """Return the nearest of these rows, in their order."""
        if len(self.y) <= self.most:
            return self
        some = np.sort(np.argpartition(np.abs(self.gain), self.most - 1)[: self.most])
        return NearRows(self.most, *(part[some] for part in self.parts))


class Labelled(NamedTuple):
    """Slope and curvature of rows under their worse label, which it is, and what a change gains.

    ``apart`` is the slope of that gain in the score.
    """

    value: Array
    a: Array
    D: Array
    label: Array
    gain: Array
    apart: Array


def worse_label(
    loss: Loss, z: Array, y: Array, charge: float, gain: Array | None = None
) -> Labelled:
    """Return the rows under the label of the larger loss, a change of it charged.

    A ``gain`` that is known decides: at a tie it has the sign that rounding gave it.
    """
    own, a, D = loss.evaluate(z, y)
    other, slope, bend = loss.evaluate(z, -y)
    gain = other - charge - own if gain is None else gain
    flip = gain > 0
    return Labelled(
        np.maximum(own, other - charge),
        np.where(flip, slope, a),
        np.where(flip, bend, D),
        np.where(flip, -y, y),
        gain,
        slope - a,
    )


@dataclass(frozen=True, eq=False)
class PricedSums:
    r"""Sums at the end of a step, at its parts, and those of the dual point.

    ``charge`` is kappa lam at the model, ``charges`` that after each of ``LENGTHS`` of the step;
    ``values`` are :math:`\sum w \max` there. At the end ``risk`` is :math:`\sum w\ell` under the
    own label, ``first`` and ``second`` are as in ``NewtonSums`` under the worse one, and
    ``changed`` is the weight of changed labels. ``near`` are the ``most`` rows that gain least, of
    those that gain less than ``band``. Others that gain less than ``width`` bend as a maximum that
    is smoothed over it: ``bends`` (d + 2, d + 2) sums these curvatures in (z, 1, -kappa lam).

    ``tied`` are the numbers of rows whose shares are known; the slopes of the others, continued
    along the step and by ``more`` of the score, are a dual point, of which ``conjugate`` is the
    sum.
    """

    blocks: Blocks
    loss: Loss
    move: ModelStep
    charge: float
    charges: Array
    tied: Array
    more: float
    band: float
    width: float
    most: int

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d = len(self.move.model) - 1
        found: Sums = dict.fromkeys(("conjugate", "changed", "risk"), 0.0)
        found |= {"first": np.zeros(d + 1), "second": np.zeros((d + 1, d + 1))}
        found |= {"values": np.zeros(len(LENGTHS)), "bends": np.zeros((d + 2, d + 2))}
        found["near"] = NearRows.none(self.most, d)
        for block in self.blocks.of(chunk, d):
            self._add(found, block)
        return found

    def _add(self, found: Sums, block: RowBlock) -> None:
        design, y, w, loss = Design(block.Z), block.y, block.w, self.loss
        z, dz = self.move.scores(design)
        at = worse_label(loss, z, y, self.charge)
        free = ~np.isin(block.number, self.tied)
        a = at.a + at.D * (dz + self.more)
        found["conjugate"] += w[free] @ loss.conjugate(a[free], at.label[free])
        end = worse_label(loss, z + dz, y, float(self.charges[0]))
        shorter = [
            w @ worse_label(loss, z + t * dz, y, float(charge)).value
            for t, charge in zip(LENGTHS[1:], self.charges[1:], strict=True)
        ]
        found["values"] += np.array([w @ end.value, *shorter])
        found["risk"] += float(w @ loss.value(z + dz, y))
        found["first"] += first_sums(design, w * end.a)
        found["second"] += second_sums(design, w * end.D)
        found["changed"] += float(w @ (end.gain > 0))
        self._add_ties(found, block, end)

    def _add_ties(self, found: Sums, block: RowBlock, end: Labelled) -> None:
        size = np.abs(end.gain)
        near = size < self.band
        rows = (block.Z, block.y, block.w, block.number, end.gain)
        found["near"] += NearRows(self.most, *(part[near] for part in rows)).nearest()
        some = ~near & (size < self.width)
        if some.any():
            # max(0, v) smoothed over |v| < h has the curvature 1/(2h) there
            apart = end.apart[some]
            J = np.column_stack([apart[:, None] * block.Z[some], apart, np.ones(len(apart))])
            found["bends"] += J.T @ ((block.w[some] / (2 * self.width))[:, None] * J)
