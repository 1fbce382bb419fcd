"""The adversary's moves: arrows from each row to where its mass goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray

from .drawing import OTHER, axes_or_new, fill_outline, label_axes, scatter_rows, show_rows
from .plane import circle, plane_of

Array = NDArray[Any]

#: Arrows that a picture can hold; of more, those that carry most.
MOST = 400
#: Widths in points of the arrow of a whole row, and of the least mass.
WIDEST, NARROWEST = 1.8, 0.4
#: Lengths below this share of the longest are rows at rest.
AT_REST = 1e-9


class Moves(NamedTuple):
    """Moves of a worst case: the row of X, its share of the row's mass, distance, both ends."""

    origin: Array
    share: Array
    length: Array
    start: Array
    end: Array


class Line(NamedTuple):
    """The line g'u + h = 0 of a plane."""

    slopes: Array
    constant: float


@dataclass(eq=False)
class AdversaryDisplay:
    """Rows, the moves of their mass, and the boundary before and after.

    All coordinates are in the plane. Best made by ``from_estimator``.

    Parameters
    ----------
    rows : ndarray of shape (n, 2)
        The rows.
    moves : Moves
        Where mass starts and ends, and how much.
    labels : tuple of two str
        The names of the axes.
    y : array of shape (n,), default=None
        The classes, for colours.
    boundary, before : Line, default=None
        Where the score of the model is zero, and that of another model, by habit the plain fit.
    balls : list of pairs of ndarrays
        Centres and shapes of what the moves of some rows spend.

    Attributes
    ----------
    ax_, figure_, rows_, balls_, arrows_, boundary_, before_
        What ``plot`` drew; None where there is no line.
    """

    rows: Array
    moves: Moves
    labels: tuple[str, str]
    y: Any = None
    boundary: Line | None = None
    before: Line | None = None
    balls: list[tuple[Array, Array]] = field(default_factory=list)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        features: Any = (0, 1),
        *,
        ax: Any = None,
        before: Any = None,
        class_: Any = None,
        balls: int | Sequence[int] = 5,
        reach: float | None = None,
    ) -> Self:
        """Draw the worst case of a fitted estimator.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            Fitted on ``X`` and ``y``.
        X, y : the rows that it was fitted on
        features : two columns, "principal" or "learned", default=(0, 1)
            The plane; with more than two columns everything is the shadow on it, and the boundary
            is where the score is zero with the other directions at their mean.
        ax : Axes, default=None
        before : fitted model, default=None
            A model (``coef_``, ``intercept_``) whose boundary is drawn dotted: the plain fit.
        class_ : label, default=None
            Of more than two classes, the one whose moves are drawn.
        balls : int or sequence of int, default=5
            How many rows, or which, get the ball that their move spends: the places that cost no
            more than the one taken. Only for norms.
        reach : float, default=None
            The longest move at order 1, as in ``worst_case``.
        """
        plane = plane_of(X, features, estimator.cost_)
        points = np.asarray(X, dtype=float)
        moves = _moves(estimator, points, class_, reach)
        shapes = []
        if estimator.cost_.is_norm:
            # the ball's shadow on the plane, which holds the shadows of the moves
            directions = plane.directions
            shape = estimator.cost_.direction(circle() @ directions.T) @ directions
            chosen = _chosen(moves, balls)
            shapes = [(plane.coordinates(moves.start[k]), moves.length[k] * shape) for k in chosen]
        flat = moves._replace(
            start=plane.coordinates(moves.start), end=plane.coordinates(moves.end)
        )
        center = points.mean(axis=0)
        return cls(
            plane.coordinates(points),
            flat,
            plane.labels,
            y,
            boundary=_line(estimator, class_, plane, center),
            before=_line(before, class_, plane, center),
            balls=shapes,
        ).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw rows, balls, arrows (width by mass) and boundaries.

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
        self.rows_ = scatter_rows(self.ax_, self.rows, self.y)
        self.balls_ = [fill_outline(self.ax_, center, shape) for center, shape in self.balls]
        self.arrows_ = self._arrows()
        self.before_ = _drawn(self.ax_, self.before, color="black", linewidth=1.2, linestyle=":")
        self.boundary_ = _drawn(self.ax_, self.boundary, color="black", linewidth=1.5)
        label_axes(self.ax_, *self.labels)
        show_rows(self.ax_, self.rows)
        return self

    def _arrows(self) -> list[Any]:
        from matplotlib.patches import FancyArrowPatch

        weight = self.moves.share * self.moves.length
        heaviest = np.argsort(-weight, kind="stable")[:MOST]
        arrows = []
        for k in heaviest:
            width = NARROWEST + (WIDEST - NARROWEST) * float(self.moves.share[k])
            arrow = FancyArrowPatch(
                self.moves.start[k],
                self.moves.end[k],
                arrowstyle="-|>",
                mutation_scale=3 + 3 * width,
                linewidth=width,
                color=OTHER,
                shrinkA=0,
                shrinkB=0,
                zorder=3,
            )
            arrows.append(self.ax_.add_patch(arrow))
        return arrows


def _moves(estimator: Any, X: Array, class_: Any, reach: float | None) -> Moves:
    """Return the moves of the worst case; rows at rest are left out."""
    found = estimator.worst_case(class_, reach=reach)
    if found.origin.max(initial=-1) >= len(X):
        raise ValueError(f"X has {len(X)} rows; pass the rows that the estimator was fitted on.")
    start, end = X[found.origin], found.points
    cost = estimator.cost_
    length = np.asarray(cost.norm(end - start) if cost.is_norm else norm(end - start, axis=1))
    going = length > AT_REST * max(float(length.max(initial=0)), np.finfo(float).tiny)
    # no move changes a score of the constant model
    going &= bool(np.any(estimator.coef_))
    mass = np.bincount(found.origin, found.weights, len(X))[found.origin]
    share = np.divide(found.weights, mass, out=np.zeros(len(mass)), where=mass > 0)
    return Moves(found.origin[going], share[going], length[going], start[going], end[going])


def _chosen(moves: Moves, balls: int | Sequence[int]) -> list[int]:
    """Return the moves of the rows asked for, or the longest and then those far from it."""
    if not isinstance(balls, int):
        return [int(k) for k in np.flatnonzero(np.isin(moves.origin, balls))]
    taken: list[int] = []
    apart = moves.length
    for _ in range(min(balls, len(moves.length))):
        taken.append(int(apart.argmax()))
        gone = norm(moves.start[:, None] - moves.start[taken], axis=2).min(axis=1)
        apart = gone * moves.length
    return taken


def _line(model: Any, class_: Any, plane: Any, center: Array) -> Line | None:
    """Return the section of a classifier's boundary; None where there is no single line."""
    if model is None or not hasattr(model, "classes_"):
        return None
    coef = np.atleast_2d(model.coef_)
    if len(coef) > 1 and class_ is None:
        return None
    k = 0 if len(coef) == 1 else model.classes_.tolist().index(class_)
    slopes, constant = plane.section(coef[k], float(np.ravel(model.intercept_)[k]), center)
    return Line(slopes, constant) if slopes.any() else None


def _drawn(ax: Any, line: Line | None, **style: Any) -> Any:
    if line is None:
        return None
    g, h = line
    on = -h * g / (g @ g)
    return ax.axline(on, on + np.array([-g[1], g[0]]), **style)
