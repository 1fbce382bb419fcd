"""The coefficients along the path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .drawing import (
    DASHES,
    FAINT,
    LINES,
    axes_or_new,
    label_axes,
    legend,
    panels_or_new,
    shortened,
)
from .path import path_of
from .plane import names_of

#: Coefficients that are named; the others are grey.
NAMED = 7


@dataclass(eq=False)
class CoefficientPathDisplay:
    """Coefficients along ``deltas`` (m,); the largest are named, the others grey.

    Several classes have one panel each, in which a column keeps its colour. Best made by
    ``from_estimator``.

    Parameters
    ----------
    deltas : ndarray of shape (m,)
        The radii.
    coef : ndarray of shape (m, d) or (m, K, d)
        The coefficients along them, of one model or of each class.
    names : list of str
        The names of the columns.
    chosen : float, default=None
        A delta to be marked.
    classes : list of K labels, default=None
        The classes of the panels.

    Attributes
    ----------
    ax_, figure_, lines_, chosen_
        What ``plot`` drew, one line per column in their order; None where no delta is marked.
        With panels ``ax_`` (K,) is an array, ``lines_`` and ``chosen_`` are lists of K.
    """

    deltas: NDArray[Any]
    coef: NDArray[Any]
    names: list[str]
    chosen: float | None = None
    classes: list[Any] | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, class_: Any = None, feature_names: Any = None
    ) -> Self:
        """Draw the path of an estimator that chose delta by folds.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        ax : Axes or sequence of Axes, default=None
            Where to draw, one for each panel; None makes a figure.
        class_ : label, default=None
            Of more than two classes, the one whose coefficients are drawn; None draws a panel for
            each.
        feature_names : sequence of str, default=None
            The names of the columns; None: as the fit saw them.
        """
        path = path_of(estimator)
        names = names_of(estimator, feature_names)
        coef, classes = path.coef, None
        if coef.ndim == 3:
            classes = estimator.classes_.tolist()
        if classes is not None and class_ is not None:
            if class_ not in classes:
                raise ValueError(f"class_={class_!r} must be one of the classes {classes}.")
            coef, classes = coef[:, classes.index(class_)], None
        return cls(path.deltas, coef, names, estimator.delta_, classes).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw against delta on a logarithmic axis.

        Parameters
        ----------
        ax : Axes or sequence of Axes, default=None
            Where to draw, one for each panel; None makes a figure.

        Returns
        -------
        self
        """
        if self.classes is None:
            self.ax_ = axes_or_new(ax)
            self.figure_ = self.ax_.figure
            self.lines_, self.chosen_ = self._panel(self.ax_, self.coef)
            self._legend(self.ax_, self.lines_)
            return self
        self.ax_ = panels_or_new(ax, self.classes)
        self.figure_ = self.ax_[0].figure
        by_class = np.swapaxes(self.coef, 0, 1)
        drawn = [self._panel(*panel) for panel in zip(self.ax_, by_class, strict=True)]
        self.lines_ = [lines for lines, _ in drawn]
        self.chosen_ = [mark for _, mark in drawn]
        for panel, label in zip(self.ax_, self.classes, strict=True):
            panel.set_title(shortened(f"class {label}"))
            if ax is None:
                panel.label_outer()
        self._legend(self.ax_[0], self.lines_[0])
        return self

    def _largest(self) -> list[int]:
        """Return the columns that are named, those with the largest coefficients first."""
        size = np.abs(self.coef).max(axis=tuple(range(self.coef.ndim - 1)))
        found: list[int] = np.argsort(-size, kind="stable")[:NAMED].tolist()
        return found

    def _panel(self, ax: Any, coef: NDArray[Any]) -> tuple[list[Any], Any]:
        """Draw the coefficients (m, d) of one model; return its lines and the mark of delta."""
        ax.set_xscale("log")
        ax.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        largest = self._largest()
        lines = []
        for j, values in enumerate(coef.T):
            style: dict[str, Any] = {"color": FAINT, "linewidth": 0.8, "zorder": 1}
            if j in largest:
                rank = largest.index(j)
                style = {"color": LINES[rank], "linestyle": DASHES[rank], "linewidth": 1.6}
                style["label"] = shortened(self.names[j])
            lines.append(ax.plot(self.deltas, values, **style)[0])
        label_axes(ax, "delta (bound on the mean cost of moves)", "coefficient")
        if not self.chosen:
            return lines, None
        return lines, ax.axvline(self.chosen, color="black", linewidth=1, zorder=0)

    def _legend(self, ax: Any, lines: list[Any]) -> None:
        named = [lines[j] for j in self._largest()]
        legend(ax, handles=named, fontsize="small", ncols=2)
