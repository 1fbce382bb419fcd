"""The price of each feature under a cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..costs import Cost
from ..costs.table import CostTable
from .display import Display
from .drawing import FAINT, bars
from .plane import names_of

#: Bars that a picture can hold; of more features the most expensive and the cheapest are drawn.
MOST = 30


@dataclass(eq=False)
class PriceDisplay(Display):
    """The price of moving each feature by one standard deviation, most expensive first.

    Best made by ``from_cost`` or ``from_estimator``.

    Parameters
    ----------
    table : CostTable
        Prices by column, from ``cost.table()``.

    Attributes
    ----------
    ax_, figure_, bars_, mean_
        What ``plot`` drew; ``mean_`` is a line at the mean price.
    """

    table: CostTable

    @classmethod
    def from_cost(
        cls, cost: Cost, X: Any = None, *, feature_names: Any = None, ax: Any = None
    ) -> Self:
        """Draw the prices of a norm cost.

        Parameters
        ----------
        cost : Cost
            A norm, of ``otdro.costs``.
        X : array-like of shape (n, d), default=None
            Rows whose standard deviations are the moves; None: moves of 1.
        feature_names : sequence of str, default=None
            The names of the columns; None: numbers.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        return cls(cost.table(feature_names, X)).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, *, feature_names: Any = None, ax: Any = None
    ) -> Self:
        """Draw the prices of a fitted estimator's cost.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        X : array-like of shape (n, d), default=None
            Rows whose standard deviations are the moves; None: moves of 1.
        feature_names : sequence of str, default=None
            The names of the columns; None: as the fit saw them.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        names = names_of(estimator, feature_names)
        return cls.from_cost(estimator.cost_, X, feature_names=names, ax=ax)

    def _draw(self) -> None:
        """Draw one bar per feature."""
        order = np.argsort(-self.table.price.round(12), kind="stable")
        if len(order) > MOST:
            order = np.concatenate([order[: MOST // 2], order[-MOST // 2 :]])
        names = [self.table.names[j] for j in order]
        self.bars_ = bars(self.ax_, names, self.table.price[order])
        mean = float(self.table.price.mean())
        self.mean_ = self.ax_.axvline(mean, color=FAINT, linewidth=1, zorder=0)
        self.ax_.set_xlabel("price of a move of one standard deviation")
