"""Which columns the adversary uses, and which of them can break the model alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from .by_column import ByColumn

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ColumnTable(ByColumn):
    """One entry per column: what it is to the adversary of the model.

    ``share`` (d,) is the part of the adversary's budget that goes into the column, at the
    delta where the model is no better than a constant; the parts sum to 1, and one is negative
    where the cost rewards moving a column along with others. ``breaking_point`` (d,) is the delta
    at which moving that column alone breaks the model, inf if it cannot; ``deviations`` (d,) the
    same as a mean move in standard deviations ``scale`` of the column.
    """

    share: Array
    breaking_point: Array
    deviations: Array
    scale: Array
    shown = {
        "share": ("share of budget", ".3f"),
        "breaking_point": ("breaks alone at", ".4g"),
        "deviations": ("deviations", ".3g"),
    }

    def order(self) -> Array:
        """Return the numbers of the columns, the one that breaks the model first at the top."""
        return np.lexsort((-self.share, self.breaking_point))


def shares(normals: Array, of: Array, spent: Array, cost: Cost) -> Array:
    """Return the part of the budget that goes into each column.

    A move t v(w) costs t = sum_j t w_j v_j/||w||_*, because w/||w||_* is a gradient of the norm
    at v: the terms of the sum are the parts of the columns. ``spent`` is the budget of each row,
    ``of`` the number of its vector among the ``normals``.
    """
    total = float(spent.sum())
    if total <= 0:
        return np.zeros(normals.shape[1])
    w = cost.dual_norm(normals)
    v = cost.direction(normals)
    parts = np.divide(normals * v, w[:, None], out=np.zeros_like(normals), where=w[:, None] > 0)
    return np.bincount(of, spent, minlength=len(normals)) @ parts / total
