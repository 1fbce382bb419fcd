"""Displays in a plane: the ball of a cost, the region of two slopes, the adversary's moves.

The plane is two columns, two principal directions of the rows, or two directions of the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray

from ..costs import Cost
from ..costs.table import EVEN, named, principal_directions
from ..inspection.certificate import boundary_lines
from ..radius import ConfidenceRegion
from ..worst_case import WorstCase
from .charts import FAINT, OTHER, Display, fill_outline, label_axes, scatter_rows

Array = NDArray[Any]

#: Points of a circle, one per degree and the first again.
CIRCLE = 361
#: The room around rows, as a share of their width and height.
MARGIN = 0.15
#: Arrows that a picture can hold; of more, those that carry most.
MOST_ARROWS = 400
#: Width in points of the arrow of a whole row.
WIDEST = 1.8
#: Width in points of the arrow of the least mass.
NARROWEST = 0.4


class Plane(NamedTuple):
    """A plane through ``origin`` (d,) with orthonormal ``directions`` (d, 2) and their labels."""

    origin: Array
    directions: Array
    labels: tuple[str, str]

    def coordinates(self, X: Array) -> Array:
        """Return the projections of rows on the plane, shape (n, 2)."""
        return (X - self.origin) @ self.directions


def plane_of(X: Any, features: Any, cost: Cost | None = None) -> Plane:
    """Return the plane that ``features`` asks for.

    Two columns by number or name; "principal", the first two principal directions of the rows; or
    "learned", the cheapest and the most expensive direction of a Euclidean ``cost``.
    """
    rows = np.asarray(X, dtype=float)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"a picture needs two columns or more, X has shape {rows.shape}.")
    d, center = rows.shape[1], rows.mean(axis=0)
    if not isinstance(features, str):
        names = named(None, X, d)
        i, j = (column(f, names) for f in features)
        return Plane(np.zeros(d), np.eye(d)[:, [i, j]], (names[i], names[j]))
    if features == "principal":
        directions = np.linalg.svd(rows - center, full_matrices=False)[2][:2].T
        labels = ("first principal direction", "second principal direction")
        return Plane(center, directions, labels)
    if features != "learned":
        raise ValueError(
            f"features must be two columns, 'principal' or 'learned', got {features!r}."
        )
    if cost is None or not cost.euclidean:
        raise ValueError(
            f"features='learned' needs a Euclidean or Mahalanobis cost, not {cost!r}: its axes are "
            "the cheapest and the most expensive direction. Name two columns, or 'principal'."
        )
    principal = principal_directions(cost, d)
    low, high = principal.prices[[0, -1]]
    labels = (f"cheapest direction (price {low:.3g})", f"most expensive (price {high:.3g})")
    return Plane(center, principal.vectors[:, [0, -1]], labels)


def column(feature: Any, names: list[str]) -> int:
    """Return the place of a column that is given by its number or its name."""
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"no feature is called {feature!r}.")
        return names.index(feature)
    if not 0 <= feature < len(names):
        raise ValueError(f"feature {feature} is out of range for {len(names)} features.")
    return int(feature)


def circle() -> Array:
    """Return points of the unit circle, the axes and diagonals among them, shape (CIRCLE, 2)."""
    angle = np.linspace(0, 2 * np.pi, CIRCLE)
    return np.column_stack([np.cos(angle), np.sin(angle)])


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

    outline: Array
    rows: Array
    center: Array
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
        # moves u of the plane with ||directions u|| = 1
        outline = circle() / np.asarray(cost.norm(circle() @ plane.directions.T))[:, None]
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


@dataclass(eq=False)
class ConfidenceRegionDisplay(Display):
    """The projection of a region on two slopes, its centre, and the lines where a slope is 0.

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

    center: Array
    outline: Array
    labels: tuple[str, str]

    @classmethod
    def from_region(
        cls, region: ConfidenceRegion, features: Any = (0, 1), *, ax: Any = None
    ) -> Self:
        """Draw a region's projection on the slopes of two columns.

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


class Moves(NamedTuple):
    """Moves of a worst case: the row of X, its share of the row's mass, distance, both ends."""

    origin: Array
    share: Array
    length: Array
    start: Array
    end: Array


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
    boundary, before : list of ndarrays of shape (2, 2), default=None
        Segments where the class that the model predicts changes, and those of another model, by
        habit the plain fit.
    balls : list of pairs of ndarrays
        Centres and shapes of what the moves of some rows spend.

    Attributes
    ----------
    ax_, figure_, rows_, balls_, arrows_, boundary_, before_
        What ``plot`` drew; boundaries are collections of lines, None where there is none.
    """

    rows: Array
    moves: Moves
    labels: tuple[str, str]
    y: Any = None
    boundary: list[Array] | None = None
    before: list[Array] | None = None
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
            The plane; with more than two columns everything is projected on it, and the boundary is
            that of the model with the other directions at their mean.
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
        if not hasattr(estimator, "worst_case"):
            raise ValueError(
                f"{type(estimator).__name__} has no worst_case(): give a DROClassifier or "
                "DRORegressor; of an average of models, one of its members_."
            )
        plane = plane_of(X, features, estimator.cost_)
        points = np.asarray(X, dtype=float)
        worst = estimator.worst_case(class_, reach=reach)
        moves = _moves(estimator, points, worst)
        shapes = []
        if estimator.cost_.is_norm:
            # the ball's projection on the plane, which holds the projections of the moves
            directions = plane.directions
            shape = estimator.cost_.direction(circle() @ directions.T) @ directions
            radius = moves.length
            if not worst.attained:
                radius = np.full(len(radius), estimator.delta_ ** (1 / estimator.ball_.order))
            chosen = _chosen(moves, balls)
            shapes = [(plane.coordinates(moves.start[k]), radius[k] * shape) for k in chosen]
        start, end, projected = map(plane.coordinates, (moves.start, moves.end, points))
        center = points.mean(axis=0)
        boundary, plain = (
            _boundary(model, class_, plane, center, projected) for model in (estimator, before)
        )
        flat = moves._replace(start=start, end=end)
        return cls(projected, flat, plane.labels, y, boundary, plain, shapes).plot(ax=ax)

    def _draw(self) -> None:
        """Draw rows, balls, arrows (width by mass) and boundaries."""
        self.rows_ = scatter_rows(self.ax_, self.rows, self.y)
        self.balls_ = [fill_outline(self.ax_, center, shape) for center, shape in self.balls]
        self.arrows_ = self._arrows()
        self.before_ = self._lines(self.before, linewidth=1.2, linestyle=":")
        self.boundary_ = self._lines(self.boundary, linewidth=1.5)
        label_axes(self.ax_, *self.labels)
        # the rows and some room: where the supremum is not attained, moves go far beyond
        x, y = frame_of(self.rows).T
        self.ax_.set(xlim=x, ylim=y)

    def _lines(self, segments: list[Array] | None, **style: Any) -> Any:
        from matplotlib.collections import LineCollection

        if segments is None:
            return None
        return self.ax_.add_collection(
            LineCollection(segments, color="black", zorder=2, **style), autolim=False
        )

    def _arrows(self) -> list[Any]:
        from matplotlib.patches import FancyArrowPatch

        weight = self.moves.share * self.moves.length
        arrows = []
        for k in np.argsort(-weight, kind="stable")[:MOST_ARROWS]:
            width = NARROWEST + (WIDEST - NARROWEST) * float(self.moves.share[k])
            ends = self.moves.start[k], self.moves.end[k]
            style: dict[str, Any] = {"linewidth": width, "mutation_scale": 3 + 3 * width}
            style |= {"color": OTHER, "shrinkA": 0, "shrinkB": 0, "zorder": 3}
            arrow = FancyArrowPatch(*ends, arrowstyle="-|>", **style)
            arrows.append(self.ax_.add_patch(arrow))
        return arrows


def _moves(estimator: Any, X: Array, worst: WorstCase) -> Moves:
    """Return the moves of the worst case; rows at rest are left out."""
    if worst.origin.max(initial=-1) >= len(X):
        raise ValueError(f"X has {len(X)} rows; pass the rows that the estimator was fitted on.")
    start, end = X[worst.origin], worst.points
    cost = estimator.cost_
    length = np.asarray(cost.norm(end - start) if cost.is_norm else norm(end - start, axis=1))
    going = length > EVEN * max(float(length.max(initial=0)), np.finfo(float).tiny)
    # no move changes a score of the constant model
    going &= bool(np.any(estimator.coef_))
    mass = np.bincount(worst.origin, worst.weights, len(X))[worst.origin]
    share = np.divide(worst.weights, mass, out=np.zeros(len(mass)), where=mass > 0)
    return Moves(worst.origin[going], share[going], length[going], start[going], end[going])


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
    model: Any, class_: Any, plane: Plane, center: Array, projected: Array
) -> list[Array] | None:
    """Return the segments of a classifier's boundary in the plane; None where it has none.

    What the plane does not show is held at ``center`` (d,), a point of the rows' space.
    """
    if model is None or not hasattr(model, "classes_"):
        return None
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    if len(coef) == 1 or class_ is not None:
        # one score beside 0
        k = 0 if len(coef) == 1 else model.classes_.tolist().index(class_)
        coef = np.stack([0 * coef[k], coef[k]])
        intercept = np.array([0.0, intercept[k]])
    slopes = coef @ plane.directions
    if not np.ptp(slopes, axis=0).any():
        return None
    at = plane.coordinates(center)
    return boundary_lines(coef @ center + intercept, slopes, at, frame_of(projected))


def frame_of(rows: Array) -> Array:
    """Return the corners [[x0, y0], [x1, y1]] of a frame around the rows with some room."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    room = MARGIN * np.maximum(high - low, 1e-9)
    return np.stack([low - room, high + room])
