"""Displays of bars and dots: prices and drift by column, and scores of compared methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..comparison import OWN, Score, standard_error
from ..costs import Cost
from ..costs.table import CostTable
from ..inspection.summary import DriftTable
from .display import FAINT, OTHER, OURS, Display, bars, names_of

#: Bars that a picture can hold: of prices the most expensive and the cheapest, of drifts the
#: columns that moved farthest.
MOST = 30
#: A column whose p-value, times the number of columns, is below this is drawn in colour.
LEVEL = 0.05


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


@dataclass(eq=False)
class DriftDisplay(Display):
    """How far each column moved by itself, farthest first, in its standard deviations.

    A bar is the mean move of a column, coloured where the move is more than noise at 5% (corrected
    for the number of columns); a mark is the change of its mean. Best made by ``from_drift``.

    Parameters
    ----------
    table : DriftTable
        Moves by column of the table, from ``drift.columns``; of categories shares of rows.

    Attributes
    ----------
    ax_, figure_, bars_, shift_, zero_
        What ``plot`` drew; ``shift_`` are the marks.
    """

    table: DriftTable

    @classmethod
    def from_drift(cls, drift: Any, *, ax: Any = None) -> Self:
        """Draw the columns of a ``Drift``.

        Parameters
        ----------
        drift : Drift
            From ``otdro.drift``.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        return cls(drift.columns).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, reference: Any, new: Any, *, ax: Any = None, **options: Any
    ) -> Self:
        """Measure the drift of ``new`` from ``reference`` as a model sees it, and draw it.

        Parameters
        ----------
        estimator : fitted linear model or Pipeline
            What sees the rows.
        reference, new : X or tuple (X, y)
            Old and new rows.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        **options
            Go to ``otdro.drift``.
        """
        from ..inspection import drift

        return cls.from_drift(drift(reference, new, model=estimator, **options), ax=ax)

    def _draw(self) -> None:
        """Draw one bar per column."""
        table, order = self.table, self.table.order()[:MOST]
        beyond = table.p_value[order] * len(table) < LEVEL
        colours = [OURS if is_beyond else FAINT for is_beyond in beyond]
        names = [table.label(j) for j in order]
        self.bars_ = bars(self.ax_, names, table.distance[order], color=colours)
        mark = {"marker": "D", "markersize": 5, "linestyle": "none", "color": "black"}
        self.shift_ = self.ax_.plot(table.shift[order], range(len(order)), **mark)[0]
        self.zero_ = self.ax_.axvline(0, color=OTHER, linewidth=0.8)
        unit = "deviations, of categories shares of rows" if any(table.switch) else "deviations"
        self.ax_.set_xlabel(f"{unit}: mean move (bar), shift (mark)")


def comparison(ax: Any, scores: Sequence[Score], measure: str) -> list[Any]:
    """Draw one line per method: its splits as dots, the mean with one standard error either side.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    scores : sequence of Score
        From ``otdro.comparison.compare``.
    measure : str
        The measure to show, e.g. "log-loss".

    Returns
    -------
    list
        What was drawn.
    """
    methods = list(dict.fromkeys(score.method for score in scores))
    artists = []
    for row, method in enumerate(methods):
        values = np.array([s.values[measure] for s in scores if s.method == method])
        colour = OURS if method == OWN else OTHER
        # jitter by position, not at random: the same scores give the same picture
        height = row + 0.22 * np.cos(2.4 * np.arange(len(values)))
        dots = ax.scatter(values, height, s=9, color=colour, alpha=0.35, linewidths=0)
        error = standard_error(values) if len(values) > 1 else 0.0
        mean = ax.errorbar(
            values.mean(), row, xerr=error, fmt="o", color=colour, markersize=6, capsize=3
        )
        artists += [dots, mean]
    ours = [s.values[measure] for s in scores if s.method == OWN]
    if ours:
        ax.axvline(np.mean(ours), color=FAINT, linewidth=0.8, zorder=0)
    values = np.array([s.values[measure] for s in scores])
    # a plain model that has run off to infinity must not flatten the others
    if values.min() > 0 and values.max() > 20 * np.median(values):
        ax.set_xscale("log")
    ax.set_yticks(range(len(methods)), methods)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    ax.set_xlabel(f"test {measure}: splits (dots), mean ± standard error")
    ax.spines[["top", "right"]].set_visible(False)
    return artists
