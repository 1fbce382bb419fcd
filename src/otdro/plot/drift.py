"""Drift per column: how far each moved, and which way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .display import Display
from .drawing import FAINT, OTHER, OURS, bars

#: Bars that a picture can hold: the columns that moved farthest.
MOST = 25
#: A column whose p-value, times the number of columns, is below this is drawn in colour.
LEVEL = 0.05


@dataclass(eq=False)
class DriftDisplay(Display):
    """How far each column moved by itself, farthest first, in its standard deviations.

    A bar is the mean move of a column, coloured where the move is more than noise at 5% (corrected
    for the number of columns); a mark is the change of its mean. Best made by ``from_drift``.

    Parameters
    ----------
    names : list of str
        The names of the columns.
    distance : ndarray of shape (d,)
        The mean move of each column, in its standard deviations.
    shift : ndarray of shape (d,)
        The change of its mean.
    p_value : ndarray of shape (d,)
        Whether it is more than noise.

    Attributes
    ----------
    ax_, figure_, bars_, shift_, zero_
        What ``plot`` drew; ``shift_`` are the marks.
    """

    names: list[str]
    distance: NDArray[Any]
    shift: NDArray[Any]
    p_value: NDArray[Any]

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
        found = drift.columns
        return cls(found.names, found.distance, found.shift, found.p_value).plot(ax=ax)

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
        order = np.argsort(-self.distance, kind="stable")[:MOST]
        beyond = self.p_value[order] * len(self.names) < LEVEL
        colours = [OURS if is_beyond else FAINT for is_beyond in beyond]
        names = [self.names[j] for j in order]
        self.bars_ = bars(self.ax_, names, self.distance[order], color=colours)
        mark = {"marker": "D", "markersize": 5, "linestyle": "none", "color": "black"}
        self.shift_ = self.ax_.plot(self.shift[order], range(len(order)), **mark)[0]
        self.zero_ = self.ax_.axvline(0, color=OTHER, linewidth=0.8)
        self.ax_.set_xlabel("deviations: mean move (bar), shift (mark)")
