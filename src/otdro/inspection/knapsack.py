r"""Certified accuracy: the least share of right rows over a ball, exact for a linear score.

The adversary pays ``price_i`` per mass to bring row i to the wrong side. The largest wrong mass
within the budget delta is a fractional knapsack,

.. math:: \max_{0 \le q_i \le \pi_i} \sum_i q_i
          \quad\text{s.t.}\quad \sum_i q_i\,price_i \le \delta,

solved by taking rows in the order of their prices. It is concave and piecewise linear in delta, so
that the whole curve is one sort and two cumulative sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Masses that differ by this share of the total are equal: the rounding of a sum.
ROUNDING = 1e-12


def prices(distance: Array, order: int, label_cost: float = np.inf) -> Array:
    """Return min(t^p, kappa): a row is made wrong by moving it, or by changing its label."""
    moved: Array = distance if order == 1 else distance**order
    return moved if np.isinf(label_cost) else np.minimum(moved, label_cost)


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """The corners of the curve: with ``budget`` spent, the mass ``wrong`` is wrong, of ``total``.

    Both arrays rise; the first corner holds the rows that are wrong already, at no price.
    """

    budget: Array
    wrong: Array
    total: float

    def accuracy(self, delta: Any) -> Any:
        """Return the least accuracy within the budget; a number or an array, as delta is."""
        found = 1.0 - np.interp(delta, self.budget, self.wrong) / self.total
        return np.clip(found, 0.0, 1.0) if np.ndim(found) else float(min(max(found, 0.0), 1.0))

    def breaking_point(self, level: Any) -> Any:
        """Return the least budget at which accuracy falls to ``level``; inf if it never does."""
        target = (1.0 - np.asarray(level, dtype=float)) * self.total
        reached = target <= self.wrong[-1] + ROUNDING * self.total
        found = np.where(reached, np.interp(target, self.wrong, self.budget), np.inf)
        return found if np.ndim(level) else float(found)


def moved_mass(price: Array, weights: Array, delta: float) -> Array:
    """Return q_i, the mass of each row that the adversary of budget delta makes wrong."""
    order = np.argsort(price, kind="stable")
    each, mass = price[order], weights[order]
    movable = np.isfinite(each)
    each = np.where(movable, each, 0.0)
    before = np.cumsum(mass * each) - mass * each
    # rows at no price are wrong already
    share = np.divide(delta - before, each, out=np.full(len(each), np.inf), where=each > 0)
    q = np.empty_like(weights)
    q[order] = np.where(movable, np.clip(share, 0.0, mass), 0.0)
    return q


def accuracy_curve(price: Array, weights: Array) -> AccuracyCurve:
    """Return the curve of rows with these prices (inf: never wrong) and masses."""
    order = np.argsort(price)
    sorted_price, mass = price[order], weights[order]
    free = int(np.searchsorted(sorted_price, 0.0, side="right"))
    stop = int(np.searchsorted(sorted_price, np.inf, side="left"))
    already = float(mass[:free].sum())
    mass, sorted_price = mass[free:stop], sorted_price[free:stop]
    budget, wrong = np.empty(stop - free + 1), np.empty(stop - free + 1)
    budget[0], wrong[0] = 0.0, already
    sorted_price *= mass
    np.cumsum(sorted_price, out=budget[1:])
    np.cumsum(mass, out=wrong[1:])
    wrong[1:] += already
    return AccuracyCurve(budget, wrong, float(weights.sum()))
