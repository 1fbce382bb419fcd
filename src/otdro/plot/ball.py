"""The ball of a cost over two features, two principal or two learned directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from .display import Display
from .drawing import fill_outline, label_axes, scatter_rows
from .plane import plane_of, sphere


@dataclass(eq=False)
class BallDisplay(Display):
    """The moves in a plane that cost at most ``radius``, around ``center``, the rows behind them.

    Best made by ``from_cost`` or ``from_estimator``.

    Parameters
    ----------
    outline : ndarray of shape (k, 2)
        Moves of unit price in the plane, the other directions held still.
    rows : ndarray of shape (n, 2)
        The rows in the plane.
    center : ndarray of shape (2,)
        The middle of the ball.
    labels : tuple of two str
        The names of the axes.
    radius : float, default=1
        The price of a move to the border.
    y : array of shape (n,), default=None
        The classes, for colours.

    Attributes
    ----------
    ax_, figure_, rows_, ball_
        What ``plot`` drew: one scatter per class, and a polygon.
    """

    outline: NDArray[Any]
    rows: NDArray[Any]
    center: NDArray[Any]
    labels: tuple[str, str]
    radius: float = 1.0
    y: Any = None

    @classmethod
    def from_cost(
        cls,
        cost: Cost,
        X: Any,
        y: Any = None,
        features: Any = (0, 1),
        *,
        ax: Any = None,
        center: Any = None,
        radius: float = 1.0,
    ) -> Self:
        """Draw the ball of a norm cost.

        Parameters
        ----------
        cost : Cost
            A norm, of ``otdro.costs``.
        X, y : the rows, and their classes or None
            What is drawn behind the ball.
        features : two columns, "principal" or "learned", default=(0, 1)
            The plane: numbers, or names of the columns of a data frame.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        center : two floats, default=None
            The middle of the ball in that plane; None is the mean of the rows.
        radius : float, default=1
            The price of a move to the border.
        """
        plane = plane_of(X, features, cost)
        rows = plane.coordinates(np.asarray(X, dtype=float))
        at = rows.mean(axis=0) if center is None else np.asarray(center, dtype=float)
        outline = sphere(cost, plane.directions)
        return cls(outline, rows, at, plane.labels, radius, y).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, features: Any = (0, 1), **options: Any
    ) -> Self:
        """Draw the ball of a fitted estimator's cost, by default with its radius delta^(1/p).

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        X, y : the rows, and their classes or None
            What is drawn behind the ball.
        features : two columns, "principal" or "learned", default=(0, 1)
            The plane: numbers, or names of the columns of a data frame.
        **options
            ``ax``, ``center`` and ``radius``, as in ``from_cost``.
        """
        ball = estimator.ball_
        options = {"radius": ball.delta ** (1 / ball.order)} | options
        return cls.from_cost(estimator.cost_, X, y, features, **options)

    def _draw(self) -> None:
        """Draw rows and ball, with the same unit on both axes."""
        self.rows_ = scatter_rows(self.ax_, self.rows, self.y)
        self.ball_ = fill_outline(self.ax_, self.center, self.radius * self.outline)
        label_axes(self.ax_, *self.labels)
        self.ax_.set_aspect("equal", adjustable="datalim")
