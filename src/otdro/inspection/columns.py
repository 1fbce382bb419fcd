"""Which columns the adversary uses, and which of them can break the model alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..costs.table import ROWS, shorten

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """One entry per column: what it is to the adversary of the model.

    ``share`` (d,) is the part of the adversary's budget that goes into the column, at the
    delta where the model is no better than a constant; the parts sum to 1, and one is negative
    where the cost rewards moving a column along with others. ``breaking_point`` (d,) is the delta
    at which moving that column alone breaks the model, inf if it cannot; ``deviations`` (d,) the
    same as a mean move in standard deviations ``scale`` of the column.
    """

    names: list[str]
    share: Array
    breaking_point: Array
    deviations: Array
    scale: Array

    def __len__(self) -> int:
        return len(self.names)

    def order(self) -> Array:
        """Return the numbers of the columns, the one that breaks the model first at the top."""
        return np.lexsort((-self.share, self.breaking_point))

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per column, in the order of the columns."""
        return [
            {
                "column": self.names[j],
                "share": float(self.share[j]),
                "breaking_point": float(self.breaking_point[j]),
                "deviations": float(self.deviations[j]),
                "scale": float(self.scale[j]),
            }
            for j in range(len(self.names))
        ]

    def __str__(self) -> str:
        width = min(max(6, *(len(name) for name in self.names)), 40)
        lines = [
            f"{'column':<{width}}  {'share of budget':>15}  {'breaks alone at':>15}  "
            f"{'deviations':>10}"
        ]
        shown = self.order()
        lines += [
            f"{shorten(self.names[j], width):<{width}}  {self.share[j]:>15.3f}  "
            f"{self.breaking_point[j]:>15.4g}  {self.deviations[j]:>10.4g}"
            for j in shown[:ROWS]
        ]
        if len(shown) > ROWS:
            lines.append(f"... and {len(shown) - ROWS} more")
        return "\n".join(lines)


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
