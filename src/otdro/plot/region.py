"""The confidence region of two slopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..costs.table import named
from ..radius import ConfidenceRegion
from .display import Display
from .drawing import FAINT, fill_outline, label_axes
from .plane import circle, column


@dataclass(eq=False)
class ConfidenceRegionDisplay(Display):
    """The shadow of a region on two slopes, its centre, and the lines where a slope is 0.

    Best made by ``from_estimator`` or ``from_region``.

    Parameters
    ----------
    center : ndarray of shape (2,)
        The middle of the region.
    outline : ndarray of shape (k, 2)
        Its border, around the middle.
    labels : tuple of two str
        The names of the slopes.

    Attributes
    ----------
    ax_, figure_, region_, center_, zero_
        What ``plot`` drew; ``zero_`` are two lines.
    """

    center: NDArray[Any]
    outline: NDArray[Any]
    labels: tuple[str, str]

    @classmethod
    def from_region(
        cls, region: ConfidenceRegion, features: Any = (0, 1), *, ax: Any = None
    ) -> Self:
        """Draw a region's shadow on the slopes of two columns.

        Parameters
        ----------
        region : ConfidenceRegion
            From ``confidence_region()`` of an estimator.
        features : two columns, default=(0, 1)
            By number or name.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        names = named(region.feature_names, None, len(region.center))
        i, j = (column(f, names) for f in features)
        center, shape = region.section(i, j)
        if not np.isfinite(shape).all():
            raise ValueError(f"the data do not determine the slopes {i} and {j}: nothing to draw.")
        values, vectors = np.linalg.eigh(shape)
        outline = (circle() * np.sqrt(np.maximum(values, 0))) @ vectors.T
        labels = (f"slope of {names[i]}", f"slope of {names[j]}")
        return cls(center, outline, labels).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        features: Any = (0, 1),
        *,
        ax: Any = None,
        confidence: float | None = None,
    ) -> Self:
        """Draw the region of a fitted estimator.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        features : two columns, default=(0, 1)
            By number or name.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        confidence : float in (0, 1), default=None
            None is the estimator's own.
        """
        return cls.from_region(estimator.confidence_region(confidence), features, ax=ax)

    def _draw(self) -> None:
        """Draw the region, its centre and the two axes of zero slopes."""
        self.region_ = fill_outline(self.ax_, self.center, self.outline)
        mark = {"marker": "+", "markersize": 9, "color": "black", "linestyle": "none"}
        self.center_ = self.ax_.plot(*self.center, **mark)[0]
        faint = {"color": FAINT, "linewidth": 0.8, "zorder": 0}
        self.zero_ = [self.ax_.axhline(0, **faint), self.ax_.axvline(0, **faint)]
        label_axes(self.ax_, *self.labels)
