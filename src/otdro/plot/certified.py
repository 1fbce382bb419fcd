"""Certified accuracy against delta: which model breaks first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .display import Display
from .drawing import DASHES, FAINT, LINES, label_axes, legend, shortened

#: Points of a curve where no deltas are given.
POINTS = 201


@dataclass(eq=False)
class CertifiedAccuracyDisplay(Display):
    """The least accuracy under any distribution within transport cost delta, one line per model.

    Models are comparable where they were audited under the same cost and order. Best made by
    ``from_audits``.

    Parameters
    ----------
    deltas : ndarray of shape (m,)
        The radii.
    accuracy : mapping of str to ndarray of shape (m,)
        The curve of each model.
    level : float, default=None
        An accuracy that is required, to be marked.

    Attributes
    ----------
    ax_, figure_, lines_, level_
        What ``plot`` drew, one line per name.
    """

    deltas: NDArray[Any]
    accuracy: Mapping[str, NDArray[Any]]
    level: float | None = None

    @classmethod
    def from_audits(
        cls,
        audits: Mapping[str, Any],
        *,
        deltas: Any = None,
        level: float | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw audits by name.

        Parameters
        ----------
        audits : mapping of str to Audit
            From ``otdro.audit``, all under the same cost and order.
        deltas : array-like, default=None
            The radii; None is the range in which the first ones fall.
        level : float, default=None
            An accuracy that is required, to be marked.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        if not audits:
            raise ValueError("there is no audit to draw: give a dict of names and audits.")
        grid = _range(audits) if deltas is None else np.asarray(deltas, dtype=float)
        curves = {str(name): np.asarray(audit.accuracy(grid)) for name, audit in audits.items()}
        return cls(grid, curves, level).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, ax: Any = None, **options: Any
    ) -> Self:
        """Audit a fitted linear model on labelled rows and draw its curve.

        Parameters
        ----------
        estimator : fitted linear model
            Any model that ``otdro.audit`` takes.
        X, y : array-like of shape (n, d) and (n,)
            Labelled rows.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        **options
            Go to ``otdro.audit``.
        """
        from ..inspection import audit

        return cls.from_audits({type(estimator).__name__: audit(estimator, X, y, **options)}, ax=ax)

    def _draw(self) -> None:
        """Draw one line per model."""
        self.lines_ = []
        for k, (name, values) in enumerate(self.accuracy.items()):
            style = {"color": LINES[k % len(LINES)], "linestyle": DASHES[k % len(DASHES)]}
            line = self.ax_.plot(self.deltas, values, label=shortened(name, 40), **style)[0]
            self.lines_.append(line)
        self.level_ = None
        if self.level is not None:
            self.level_ = self.ax_.axhline(self.level, color=FAINT, linewidth=1, zorder=0)
        label_axes(self.ax_, "delta (mean cost of moves)", "certified accuracy")
        self.ax_.set_ylim(0, 1.02)
        self.ax_.set_xlim(0, float(self.deltas[-1]) or 1.0)
        legend(self.ax_)


def _range(audits: Mapping[str, Any]) -> NDArray[Any]:
    """Return deltas from 0 to where the last model can be wrong on half of its rows."""
    ends = [float(audit.breaking_point(0.5)) for audit in audits.values()]
    finite = [end for end in ends if np.isfinite(end) and end > 0]
    return np.linspace(0, max(finite, default=1.0), POINTS)
