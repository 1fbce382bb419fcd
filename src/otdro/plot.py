"""Pictures: Axes in, artists out; the caller saves and shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray

from .costs import Cost
from .experiment import Score
from .radius import ConfidenceRegion

#: Colours that a reader with any colour vision can tell apart; ours is the first.
OURS, OTHER, FAINT = "#0072B2", "#555555", "#BBBBBB"
#: Colours and markers of classes, and the colour of a ball.
CLASSES = ["#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"]
MARKERS, BALL = ["o", "s", "^", "D", "v", "P"], "#009E73"


def comparison(ax: Any, scores: Sequence[Score], measure: str) -> list[Any]:
    """Draw one line a method: its splits as dots, the mean with one standard error either side."""
    methods = list(dict.fromkeys(score.method for score in scores))
    artists = []
    for row, method in enumerate(methods):
        values = np.array([s.values[measure] for s in scores if s.method == method])
        colour = OURS if method == "ours" else OTHER
        # jitter by position, not at random: the same scores give the same picture
        height = row + 0.22 * np.cos(2.4 * np.arange(len(values)))
        dots = ax.scatter(values, height, s=9, color=colour, alpha=0.35, linewidths=0)
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        mean = ax.errorbar(
            values.mean(), row, xerr=error, fmt="o", color=colour, markersize=6, capsize=3
        )
        artists += [dots, mean]
    _frame(ax, methods, scores, measure)
    return artists


def _frame(ax: Any, methods: list[str], scores: Sequence[Score], measure: str) -> None:
    ours = [s.values[measure] for s in scores if s.method == "ours"]
    if ours:
        ax.axvline(np.mean(ours), color=FAINT, linewidth=0.8, zorder=0)
    values = np.array([s.values[measure] for s in scores])
    # a plain model that has run off to infinity must not flatten the others
    if values.min() > 0 and values.max() > 20 * np.median(values):
        ax.set_xscale("log")
    ax.set_yticks(range(len(methods)), methods)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    ax.set_xlabel(f"test {measure}: splits (dots), mean ± standard error")
    ax.spines[["top", "right"]].set_visible(False)


def unit_ball(
    cost: Cost,
    X: Any,
    y: Any = None,
    features: Any = (0, 1),
    ax: Any = None,
    *,
    center: Any = None,
    radius: float = 1.0,
) -> list[Any]:
    """Draw the moves that cost at most ``radius``, with the data behind them.

    ``features`` are two columns (numbers, or names of a data frame), or "principal": the first two
    principal directions of X. The ball is that of moves in this plane, the others held still; it
    stands around ``center``, two coordinates in the plane (default: the mean of the rows).
    """
    ax = _axes(ax)
    rows, plane, labels = _plane(X, features)
    dots = _rows(ax, rows, y)
    center = rows.mean(axis=0) if center is None else np.asarray(center, dtype=float)
    ball = _outline(ax, center, radius * sphere(cost, plane))
    _label(ax, labels)
    ax.set_aspect("equal", adjustable="datalim")
    return [*dots, ball]


def confidence_region(
    region: ConfidenceRegion, features: Any = (0, 1), ax: Any = None
) -> list[Any]:
    """Draw the shadow of the region on two slopes, its centre, and the lines where a slope is 0."""
    ax = _axes(ax)
    names = region.feature_names
    i, j = (_column(f, names, len(region.center)) for f in features)
    center, shape = region.section(i, j)
    if not np.isfinite(shape).all():
        raise ValueError(f"the data do not determine the slopes {i} and {j}: no region to draw.")
    values, vectors = np.linalg.eigh(shape)
    ellipse = _outline(ax, center, (circle() * np.sqrt(np.maximum(values, 0))) @ vectors.T)
    middle = ax.plot(*center, marker="+", markersize=9, color="black", linestyle="none")
    zero = [line(0, color=FAINT, linewidth=0.8, zorder=0) for line in (ax.axhline, ax.axvline)]
    _label(ax, [f"slope of {_name(k, names)}" for k in (i, j)])
    return [ellipse, *middle, *zero]


def worst_case(
    estimator: Any,
    X: Any,
    y: Any,
    features: Any = (0, 1),
    ax: Any = None,
    *,
    class_: Any = None,
    balls: int | Sequence[int] = 5,
) -> list[Any]:
    """Draw the training rows, the adversary's moves as arrows, and (two columns) the boundary.

    ``X`` and ``y`` are the rows that ``estimator`` was fitted on. Some rows (``balls``: how many,
    or which) get the ball that their move spends: the places that cost no more than the one taken.
    With more than two columns everything is the shadow on the two ``features``. A cost that is no
    norm has arrows only: its balls differ from place to place.
    """
    ax = _axes(ax)
    rows, plane, labels = _plane(X, features)
    artists = _rows(ax, rows, y)
    moves = _moves(estimator, np.asarray(X, dtype=float), class_)
    if estimator.cost_.is_norm:
        # the ball's shadow on the plane, which holds the shadows of the moves
        shape = estimator.cost_.direction(circle() @ plane.T) @ plane
        for k in _chosen(moves, balls):
            artists.append(_outline(ax, moves.start[k] @ plane, moves.length[k] * shape))
    artists.append(_arrows(ax, moves.start @ plane, (moves.end - moves.start) @ plane))
    if plane.shape[0] == 2 and hasattr(estimator, "classes_"):
        artists += boundary(estimator, ax, class_=class_)
    _label(ax, labels)
    _limits(ax, rows)
    return artists


def boundary(estimator: Any, ax: Any, *, class_: Any = None, **style: Any) -> list[Any]:
    """Draw the line where the score of a classifier of two columns is zero.

    Of a softmax model the lines where the scores of two classes are equal.
    """
    if estimator.loss_.outputs > 1:
        pairs = zip(*np.triu_indices(len(estimator.coef_), 1), strict=True)
        coef, intercept = estimator.coef_, estimator.intercept_
        lines = [_line(ax, coef[k] - coef[j], intercept[k] - intercept[j], style) for k, j in pairs]
        return [line for each in lines for line in each]
    k = 0 if len(estimator.coef_) == 1 else estimator.classes_.tolist().index(class_)
    return _line(ax, estimator.coef_[k], estimator.intercept_[k], style)


def _line(ax: Any, beta: NDArray[Any], b: float, style: dict[str, Any]) -> list[Any]:
    """Draw the line x'beta + b = 0, none for beta = 0."""
    if len(beta) != 2:
        raise ValueError(f"a boundary is a line for two columns, the model has {len(beta)}.")
    if not beta.any():
        return []
    on = -b * beta / (beta @ beta)
    style = {"color": "black", "linewidth": 1.5} | style
    return [ax.axline(on, on + np.array([-beta[1], beta[0]]), **style)]


def circle(points: int = 361) -> NDArray[Any]:
    """Return points of the unit circle, the axes and diagonals among them, shape (points, 2)."""
    angle = np.linspace(0, 2 * np.pi, points)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def sphere(cost: Cost, plane: NDArray[Any]) -> NDArray[Any]:
    """Return coordinates u in the plane (columns, d by 2) of moves with ||plane u|| = 1."""
    u = circle()
    return u / np.asarray(cost.norm(u @ plane.T))[:, None]


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install 'otdro[plot]'.") from None
    return plt.subplots()[1]


def _plane(X: Any, features: Any) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    """Return rows in the plane (n, 2), its directions as columns (d, 2), and the labels."""
    names = getattr(X, "columns", None)
    rows = np.asarray(X, dtype=float)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"a picture needs two columns or more, X has shape {rows.shape}.")
    if isinstance(features, str):
        if features != "principal":
            raise ValueError(f"features must be two columns or 'principal', got {features!r}.")
        rows = rows - rows.mean(axis=0)
        plane = np.linalg.svd(rows, full_matrices=False)[2][:2].T
        return rows @ plane, plane, ["first principal direction", "second principal direction"]
    i, j = (_column(f, names, rows.shape[1]) for f in features)
    plane = np.eye(rows.shape[1])[:, [i, j]]
    return rows @ plane, plane, [_name(i, names), _name(j, names)]


def _column(feature: Any, names: Any, d: int) -> int:
    """Return the place of a column that is given by its number or its name."""
    if isinstance(feature, str):
        known = [] if names is None else [str(name) for name in names]
        if feature not in known:
            raise ValueError(f"no feature is called {feature!r}.")
        return known.index(feature)
    if not 0 <= feature < d:
        raise ValueError(f"feature {feature} is out of range for {d} features.")
    return int(feature)


def _name(j: int, names: Any) -> str:
    return f"x{j}" if names is None else str(names[j])


def _rows(ax: Any, rows: NDArray[Any], y: Any) -> list[Any]:
    """Draw rows: one marker a class, shades for a target of many values."""
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


def _outline(ax: Any, center: NDArray[Any], shape: NDArray[Any]) -> Any:
    """Fill the curve around a centre."""
    from matplotlib.colors import to_rgba

    return ax.fill(
        *(center + shape).T, facecolor=to_rgba(BALL, 0.15), edgecolor=BALL, linewidth=1, zorder=1.5
    )[0]


class _Moves(NamedTuple):
    """Moves of the worst case: the row of X, the distance, both ends."""

    origin: NDArray[Any]
    length: NDArray[Any]
    start: NDArray[Any]
    end: NDArray[Any]


def _moves(estimator: Any, X: NDArray[Any], class_: Any) -> _Moves:
    """Return the moves of the worst case; rows at rest are left out."""
    found = estimator.worst_case() if class_ is None else estimator.worst_case(class_)
    if found.origin.max(initial=-1) >= len(X):
        raise ValueError(f"X has {len(X)} rows; pass the rows that the estimator was fitted on.")
    start, end = X[found.origin], found.points
    cost = estimator.cost_
    length = np.asarray(cost.norm(end - start) if cost.is_norm else norm(end - start, axis=1))
    going = length > 1e-9 * max(float(length.max(initial=0)), 1e-300)
    # no move changes a score of the constant model
    going &= bool(np.any(estimator.coef_))
    return _Moves(found.origin[going], length[going], start[going], end[going])


def _chosen(moves: _Moves, balls: int | Sequence[int]) -> list[int]:
    """Return the moves of the rows asked for, or the longest and then those far from it."""
    if not isinstance(balls, int):
        return [int(k) for k in np.flatnonzero(np.isin(moves.origin, balls))]
    taken: list[int] = []
    apart = moves.length
    for _ in range(min(balls, len(moves.length))):
        taken.append(int(apart.argmax()))
        gone = np.linalg.norm(moves.start[:, None] - moves.start[taken], axis=2).min(axis=1)
        apart = gone * moves.length
    return taken


def _arrows(ax: Any, start: NDArray[Any], move: NDArray[Any]) -> Any:
    return ax.quiver(
        *start.T, *move.T, angles="xy", scale_units="xy", scale=1, width=0.003, color=OTHER,
        zorder=3,
    )  # fmt: skip


def _label(ax: Any, labels: Sequence[str]) -> None:
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    ax.spines[["top", "right"]].set_visible(False)


def _limits(ax: Any, rows: NDArray[Any], margin: float = 0.15) -> None:
    """Show the rows and some room: where the supremum is not attained, moves go far beyond."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    room = margin * np.maximum(high - low, 1e-9)
    ax.set_xlim(low[0] - room[0], high[0] + room[0])
    ax.set_ylim(low[1] - room[1], high[1] + room[1])
