"""The coefficients along the path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .drawing import DASHES, FAINT, LINES, axes_or_new, label_axes, legend, shortened
from .path import path_of
from .plane import names_of

#: Coefficients that are named; the others are grey.
NAMED = 7


@dataclass(eq=False)
class CoefficientPathDisplay:
    """Coefficients (m, d) along ``deltas`` (m,); the largest are named, the others grey.

    Best made by ``from_estimator``.

    Parameters
    ----------
    deltas : ndarray of shape (m,)
        The radii.
    coef : ndarray of shape (m, d)
        The coefficients along them.
    names : list of str
        The names of the columns.
    chosen : float, default=None
        A delta to be marked.

    Attributes
    ----------
    ax_, figure_, lines_, chosen_
        What ``plot`` drew, one line per column in their order; None where no delta is marked.
    """

    deltas: NDArray[Any]
    coef: NDArray[Any]
    names: list[str]
    chosen: float | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, class_: Any = None, feature_names: Any = None
    ) -> Self:
        """Draw the path of an estimator that chose delta by folds.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        class_ : label, default=None
            Of more than two classes, the one whose coefficients are drawn.
        feature_names : sequence of str, default=None
            The names of the columns; None: as the fit saw them.
        """
        path = path_of(estimator)
        coef = path.coef
        if coef.ndim == 3:
            classes = estimator.classes_.tolist()
            if class_ not in classes:
                raise ValueError(f"class_={class_!r} must be one of the classes {classes}.")
            coef = coef[classes.index(class_)]
        names = names_of(estimator, feature_names)
        return cls(path.deltas, coef, names, estimator.delta_).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw against delta on a logarithmic axis.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self
        """
        self.ax_ = axes_or_new(ax)
        self.figure_ = self.ax_.figure
        self.ax_.set_xscale("log")
        self.ax_.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        largest = np.argsort(-np.abs(self.coef).max(axis=0), kind="stable")[:NAMED].tolist()
        self.lines_ = []
        for j, values in enumerate(self.coef.T):
            style: dict[str, Any] = {"color": FAINT, "linewidth": 0.8, "zorder": 1}
            if j in largest:
                rank = largest.index(j)
                style = {"color": LINES[rank], "linestyle": DASHES[rank], "linewidth": 1.6}
                style["label"] = shortened(self.names[j])
            self.lines_.append(self.ax_.plot(self.deltas, values, **style)[0])
        self.chosen_ = None
        if self.chosen:
            self.chosen_ = self.ax_.axvline(self.chosen, color="black", linewidth=1, zorder=0)
        label_axes(self.ax_, "delta (bound on the mean cost of moves)", "coefficient")
        named = [self.lines_[j] for j in largest]
        legend(self.ax_, handles=named, fontsize="small", ncols=2)
        return self
