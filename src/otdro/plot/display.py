"""What the displays share: the base class, colours, rows, outlines, labels and bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..costs.table import named, shorten

#: Colours that a reader with any colour vision can tell apart; otdro is the first.
OURS, OTHER, FAINT = "#0072B2", "#555555", "#BBBBBB"
#: Colours and markers of classes.
CLASSES = ["#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"]
MARKERS = ["o", "s", "^", "D", "v", "P"]
#: The colour of a ball.
BALL = "#009E73"
#: Colours of lines that are compared, the first for the one in question.
LINES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2))]


class Display:
    """A picture: its data are attributes, and so is what ``plot`` draws."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw the picture.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self
        """
        self.ax_ = new_figure()[0, 0] if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw()
        return self

    def _draw(self) -> None:
        raise NotImplementedError


def new_figure(rows: int = 1, **options: Any) -> NDArray[Any]:
    """Return the Axes of a new figure, shape (rows, 1)."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install 'otdro[plot]'.") from None
    axes: NDArray[Any] = plt.subplots(rows, layout="constrained", squeeze=False, **options)[1]
    return axes


def scatter_rows(ax: Any, rows: NDArray[Any], y: Any) -> list[Any]:
    """Draw rows: one marker per class, shades for a target of many values."""
    style = {"s": 22, "linewidths": 0.5, "edgecolors": "white", "zorder": 2}
    if y is None:
        return [ax.scatter(*rows.T, color=OTHER, **style)]
    y = np.asarray(y)
    labels = np.unique(y)
    if len(labels) > len(CLASSES):
        return [ax.scatter(*rows.T, c=y, cmap="viridis", **style)]
    return [
        ax.scatter(*rows[y == label].T, color=colour, marker=marker, label=str(label), **style)
        for label, colour, marker in zip(labels, CLASSES, MARKERS, strict=False)
    ]


def fill_outline(ax: Any, center: NDArray[Any], shape: NDArray[Any]) -> Any:
    """Fill the curve around a centre."""
    from matplotlib.colors import to_rgba

    return ax.fill(
        *(center + shape).T, facecolor=to_rgba(BALL, 0.15), edgecolor=BALL, linewidth=1, zorder=1.5
    )[0]


def label_axes(ax: Any, x: str, y: str) -> None:
    """Name both axes and leave the frame open."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)


def legend(ax: Any, **options: Any) -> Any:
    """Name what is drawn, on a ground that hides lines behind the names."""
    return ax.legend(**({"framealpha": 0.85, "edgecolor": "none"} | options))


def bars(ax: Any, names: Sequence[str], values: NDArray[Any], **style: Any) -> Any:
    """Draw one horizontal bar per name, the first on top."""
    drawn = ax.barh(np.arange(len(values)), values, **({"color": OURS, "height": 0.7} | style))
    ax.set_yticks(np.arange(len(values)), [shortened(name) for name in names])
    ax.set_ylim(len(values) - 0.4, -0.6)
    ax.spines[["top", "right"]].set_visible(False)
    return drawn


def shortened(name: str, width: int = 28) -> str:
    """Return a name that fits beside a bar; a dollar sign is a dollar sign."""
    return shorten(name, width).replace("$", r"\$")


def names_of(estimator: Any, names: Any = None) -> list[str]:
    """Return the names of the columns of a fitted model, as given or as it saw them."""
    names = getattr(estimator, "feature_names_in_", None) if names is None else names
    return named(names, None, estimator.n_features_in_)
