r"""The penalty delta max over pairs of ||B_k - B_l||_*, and what a step of a method needs of it.

Its dual is a flow: vectors v of the pairs with :math:`\sum_p v_p (e_k - e_l)' = -G` for the
gradient G (d, K) of the loss, and the polar norm of G is the least :math:`\sum_p \|v_p\|`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .rows import SoftmaxRows

Array = NDArray[Any]


class PairMove(NamedTuple):
    """A ``step`` of C and ``shift`` of c, the flows v (P, d) of the model, the modelled change
    ``rise`` of the penalty, and the ``multipliers`` (P,) of the pairs where they start a move."""

    step: Array
    shift: Array
    flows: Array
    rise: Any
    multipliers: Array | None = None


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Models g's + s'Hs/2 of the loss at (C, c), s = (C, c) by column, then class; one per problem,
    along the first axis."""

    rows: SoftmaxRows
    C: Array
    g: Array
    H: Array


class PairPenalty(Protocol):
    """The dual norm over pairs of classes of one cost."""

    def norms(self, D: Array) -> Array:
        """Return the dual norms of differences (P, d)."""

    def sizes(self, v: Array) -> Array:
        """Return the norms of flows (P, d)."""

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return a flow (P, d) of the gradient G at B = 0, and a matrix B (d, K) to start along."""

    def move(
        self, model: Quadratic, delta: Array, accuracy: Array, multipliers: Array | None
    ) -> PairMove:
        """Minimise the models plus the penalty, to about ``accuracy``."""


def corrected(rows: SoftmaxRows, G: Array, flows: Array) -> Array:
    """Return flows whose divergence is -G: what is missing goes, evenly, along all pairs."""
    k, j = rows.all_pairs
    missing = -G - np.swapaxes(flows, -1, -2) @ rows.incidence
    if len(k) == flows.shape[-2]:
        spread = (missing[..., k] - missing[..., j]) / rows.classes
    else:
        # pairs of two absent classes carry nothing
        spread = missing @ np.linalg.pinv(rows.incidence)
    return np.asarray(flows + np.swapaxes(spread, -1, -2))
