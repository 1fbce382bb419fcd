"""The adversary's moves: arrows from each row to where its mass goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray

from ..inspection.certificate import boundary_lines
from ..worst_case import WorstCase
from .display import Display
from .drawing import OTHER, fill_outline, frame_of, label_axes, scatter_rows, show_rows
from .plane import Plane, circle, plane_of

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

    def drawn(self, ax: Any, **style: Any) -> Any:
        """Draw the whole line."""
        g, h = self
        on = -h * g / (g @ g)
        return ax.axline(on, on + np.array([-g[1], g[0]]), **style)


class Borders(NamedTuple):
    """Segments (m, 2, 2) of a plane where the class of the highest score changes."""

    segments: Array

    def drawn(self, ax: Any, **style: Any) -> Any:
        """Draw all segments."""
        from matplotlib.collections import LineCollection

        return ax.add_collection(LineCollection(list(self.segments), zorder=2, **style))


@dataclass(eq=False)
class AdversaryDisplay(Display):
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
    boundary, before : Line or Borders, default=None
        Where the class that the model predicts changes, and that of another model, by habit the
        plain fit.
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
    boundary: Line | Borders | None = None
    before: Line | Borders | None = None
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
        X, y : array-like
            The rows that it was fitted on.
        features : two columns, "principal" or "learned", default=(0, 1)
            The plane; with more than two columns everything is the shadow on it, and the boundary
            is that of the model with the other directions at their mean.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        before : fitted model, default=None
            A model (``coef_``, ``intercept_``) whose boundary is drawn dotted: the plain fit.
        class_ : label, default=None
            Of more than two classes that are models against the rest, the one whose moves are
            drawn. A softmax model has one adversary of all classes: None.
        balls : int or sequence of int, default=5
            How many rows, or which, get the ball that their move spends: the places that cost no
            more than the one taken. Where the supremum is not attained a move is as long as
            ``reach`` lets it, and the balls are those of delta: what every row could spend if all
            spent the same. Only for norms.
        reach : float, default=None
            The longest move at order 1, as in ``worst_case``.
        """
        plane = plane_of(X, features, estimator.cost_)
        points = np.asarray(X, dtype=float)
        worst = estimator.worst_case(class_, reach=reach)
        moves = _moves(estimator, points, worst)
        shapes = []
        if estimator.cost_.is_norm:
            # the ball's shadow on the plane, which holds the shadows of the moves
            directions = plane.directions
            shape = estimator.cost_.direction(circle() @ directions.T) @ directions
            radius = moves.length
            if not worst.attained:
                radius = np.full(len(radius), estimator.delta_ ** (1 / estimator.ball_.order))
            chosen = _chosen(moves, balls)
            shapes = [(plane.coordinates(moves.start[k]), radius[k] * shape) for k in chosen]
        flat = moves._replace(
            start=plane.coordinates(moves.start), end=plane.coordinates(moves.end)
        )
        center = points.mean(axis=0)
        shadows = plane.coordinates(points)
        return cls(
            shadows,
            flat,
            plane.labels,
            y,
            boundary=_boundary(estimator, class_, plane, center, shadows),
            before=_boundary(before, class_, plane, center, shadows),
            balls=shapes,
        ).plot(ax=ax)

    def _draw(self) -> None:
        """Draw rows, balls, arrows (width by mass) and boundaries."""
        self.rows_ = scatter_rows(self.ax_, self.rows, self.y)
        self.balls_ = [fill_outline(self.ax_, center, shape) for center, shape in self.balls]
        self.arrows_ = self._arrows()
        dots = {"color": "black", "linewidth": 1.2, "linestyle": ":"}
        self.before_ = None if self.before is None else self.before.drawn(self.ax_, **dots)
        line = {"color": "black", "linewidth": 1.5}
        self.boundary_ = None if self.boundary is None else self.boundary.drawn(self.ax_, **line)
        label_axes(self.ax_, *self.labels)
        show_rows(self.ax_, self.rows)

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


def _moves(estimator: Any, X: Array, found: WorstCase) -> Moves:
    """Return the moves of the worst case; rows at rest are left out."""
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


def _boundary(
    model: Any, class_: Any, plane: Plane, center: Array, shadows: Array
) -> Line | Borders | None:
    """Return the section of a classifier's boundary; None where the model has none."""
    if model is None or not hasattr(model, "classes_"):
        return None
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    scores = [plane.section(b, float(a), center) for b, a in zip(coef, intercept, strict=True)]
    if len(scores) > 1 and class_ is None:
        slopes, constant = (np.array(part) for part in zip(*scores, strict=True))
        box = frame_of(shadows)
        return Borders(np.array(boundary_lines(constant, slopes, np.zeros(2), box)))
    line = Line(*scores[0 if len(scores) == 1 else model.classes_.tolist().index(class_)])
    return line if line.slopes.any() else None
