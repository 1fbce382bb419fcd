"""Displays: what all of them share, curves over delta and bars, and displays in a plane.

The plane is two columns, two principal directions of the rows, or two directions of the cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray

from .. import inspection
from ..comparison import OWN, Score, standard_error
from ..costs import Cost
from ..costs.table import EVEN, CostTable, named, principal_directions, shorten
from ..inspection.auditing import RARE
from ..inspection.certificate import boundary_lines
from ..inspection.summary import DriftTable
from ..radius import ConfidenceRegion
from ..radius.grid import over_classes
from ..radius.profile import theory_delta
from ..worst_case import WorstCase

Array = NDArray[Any]

#: Colours that a reader with any colour vision can tell apart; otdro is the first.
OURS, OTHER, FAINT = "#0072B2", "#555555", "#BBBBBB"
#: Colours and markers of classes.
CLASSES = ["#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"]
MARKERS = ["o", "s", "^", "D", "v", "P"]
#: The colour of a ball.
BALL = "#009E73"
#: Colours of lines that are compared, the first for the one in question.
LINES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]
DASHES = ["-", "--", "-.", ":"]
#: Bars that a picture can hold: of prices the most expensive and the cheapest, of drifts the
#: columns that moved farthest.
MOST = 30
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
    ax.set(xlabel=x, ylabel=y)
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


# Curves and bars.


@dataclass(eq=False)
class PathDisplay(Display):
    """Empirical and robust risk along ``deltas``, fold scores, the chosen delta and theory's.

    Best made by ``from_estimator``.

    Parameters
    ----------
    path : object
        ``path_`` of an estimator: ``deltas``, ``empirical_risk``, ``robust_risk``, and fold scores
        ``score_mean`` with ``score_se``, or None.
    chosen, theory : float, default=None
        Deltas to be marked: the one chosen, and that of the profile.
    score_is_loss : bool, default=True
        Whether the score is the negative loss of held-out rows; it is then drawn, with its sign
        changed, beside the risks. Another score gets an axis of its own.

    Attributes
    ----------
    ax_, figure_, empirical_, robust_, score_, score_band_, chosen_, theory_, score_ax_
        What ``plot`` drew; None for what is not drawn.
    """

    path: Any
    chosen: float | None = None
    theory: float | None = None
    score_is_loss: bool = True

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, theory: bool = True) -> Self:
        """Draw the path of an estimator that chose delta by folds (``delta="cv"``).

        One-vs-rest risks are means over the classes.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        theory : bool, default=True
            Whether to mark the delta of the profile theory too, where the loss and the cost have
            one and the training rows are at hand.
        """
        path, mark = path_of(estimator), _theory(estimator) if theory else None
        return cls(path, estimator.delta_, mark, estimator.scoring is None).plot(ax=ax)

    def _draw(self) -> None:
        """Draw against delta on a logarithmic axis."""
        self.ax_.set_xscale("log")
        path = self.path
        risk, plain = over_classes(path.robust_risk), over_classes(path.empirical_risk)
        style: dict[str, Any] = {"label": "robust risk", "color": LINES[0], "linewidth": 1.8}
        self.robust_ = self.ax_.plot(path.deltas, risk, **style)[0]
        style = {"label": "empirical risk", "color": OTHER, "linestyle": "--"}
        self.empirical_ = self.ax_.plot(path.deltas, plain, **style)[0]
        label_axes(self.ax_, "delta (bound on the mean cost of moves)", "risk")
        self.score_ = self.score_band_ = self.score_ax_ = None
        if path.score_mean is not None:
            self._plot_score()
        self.chosen_ = mark_delta(self.ax_, self.chosen, label="chosen delta", color="black")
        style = {"label": "theory's delta", "color": OTHER, "linestyle": ":"}
        self.theory_ = mark_delta(self.ax_, self.theory, **style)
        shown = [self.robust_, self.empirical_, self.score_, self.chosen_, self.theory_]
        legend(self.ax_, handles=[artist for artist in shown if artist is not None])

    def _plot_score(self) -> None:
        ax, sign, label = self.ax_, -1, "loss of held-out rows"
        if not self.score_is_loss:
            ax, sign, label = self.ax_.twinx(), 1, "score of held-out rows"
            ax.spines["top"].set_visible(False)
            ax.set_ylabel(label)
            self.score_ax_ = ax
        deltas, mean, error = self.path.deltas, sign * self.path.score_mean, self.path.score_se
        self.score_ = ax.plot(deltas, mean, color=LINES[1], linestyle="-.", label=label)[0]
        if error is not None:
            style = {"color": LINES[1], "alpha": 0.15, "linewidth": 0}
            self.score_band_ = ax.fill_between(deltas, mean - error, mean + error, **style)


def mark_delta(ax: Any, delta: float | None, **style: Any) -> Any:
    """Draw an upright line at a delta above 0, if there is one."""
    return ax.axvline(delta, linewidth=1, zorder=0, **style) if delta else None


def path_of(estimator: Any) -> Any:
    """Return the path of a fitted estimator; say how to get one where there is none."""
    path = getattr(estimator, "path_", None)
    if path is None:
        how = "it is an average of models: draw one of its members_"
        if hasattr(estimator, "delta"):
            how = f"it was fitted with delta={estimator.delta!r}. Fit it with delta='cv'"
        raise ValueError(f"{type(estimator).__name__} has no path_: {how}.")
    return path


def _theory(estimator: Any) -> float | None:
    """Return the delta of the profile theory, None where it has nothing to say."""
    fitted = getattr(estimator, "_result", None)
    if fitted is None or len(fitted.problems) > 1:
        return None
    sample, ball = fitted.targets.sample, estimator.ball_
    try:
        return theory_delta(sample, ball.cost, ball.order, estimator.confidence)
    except ValueError:
        return None


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

    deltas: Array
    coef: Array
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
        classes = [None] if self.classes is None else self.classes
        panels = _panels(ax, classes)
        # of one model or of each class, (K, m, d)
        coef = self.coef.reshape(len(self.deltas), len(classes), -1).swapaxes(0, 1)
        largest = np.argsort(-np.abs(coef).max(axis=(0, 1)), kind="stable")[: len(LINES)].tolist()
        styles: list[dict[str, Any]] = [
            {"color": FAINT, "linewidth": 0.8, "zorder": 1}
        ] * coef.shape[2]
        for j, colour, dash in zip(largest, LINES, 2 * DASHES, strict=False):
            label = shortened(self.names[j])
            styles[j] = {"color": colour, "linestyle": dash, "linewidth": 1.6, "label": label}
        lines, marks = [], []
        for panel, label, values in zip(panels, classes, coef, strict=True):
            panel.set_xscale("log")
            panel.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
            own = zip(values.T, styles, strict=True)
            lines.append([panel.plot(self.deltas, line, **style)[0] for line, style in own])
            label_axes(panel, "delta (bound on the mean cost of moves)", "coefficient")
            marks.append(mark_delta(panel, self.chosen, color="black"))
            if label is not None:
                panel.set_title(shortened(f"class {label}"))
            if ax is None:
                panel.label_outer()
        legend(panels[0], handles=[lines[0][j] for j in largest], fontsize="small", ncols=2)
        self.figure_ = panels[0].figure
        self.ax_, self.lines_, self.chosen_ = panels, lines, marks
        if self.classes is None:
            self.ax_, self.lines_, self.chosen_ = panels[0], lines[0], marks[0]
        return self


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

    deltas: Array
    accuracy: Mapping[str, Array]
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
            The radii; None is the range in which the first ones fall, with all corners of the
            curves.
        level : float, default=None
            An accuracy that is required, to be marked.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        if not audits:
            raise ValueError("there is no audit to draw: give a dict of names and audits.")
        if deltas is None:
            # to where the last model can be wrong on half of its rows
            ends = [float(audit.breaking_point(0.5)) for audit in audits.values()]
            finite = [end for end in ends if np.isfinite(end) and end > 0]
            end = max(finite, default=1.0)
            corners = np.concatenate([audit.curve().budget for audit in audits.values()])
            deltas = np.unique([0.0, *corners[corners < end], end])
        grid = np.asarray(deltas, dtype=float)
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
        return cls.from_audits(
            {type(estimator).__name__: inspection.audit(estimator, X, y, **options)}, ax=ax
        )

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


@dataclass(eq=False)
class StabilityDisplay(Display):
    """The predictions of refits against that of the model, one point per row and refit.

    Lines join the 2.5 and 97.5% quantiles of the rows. Best made by ``from_stability``.

    Parameters
    ----------
    stability : Stability
        From ``otdro.stability``.

    Attributes
    ----------
    ax_, figure_, points_, interval_, diagonal_
        What ``plot`` drew; ``interval_`` are two lines.
    """

    stability: Any

    @classmethod
    def from_stability(cls, stability: Any, *, ax: Any = None) -> Self:
        """Draw a ``Stability``.

        Parameters
        ----------
        stability : Stability
            From ``otdro.stability``.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        return cls(stability).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, ax: Any = None, **options: Any
    ) -> Self:
        """Refit an estimator to bootstrap samples of its rows and draw the predictions.

        Parameters
        ----------
        estimator : estimator
            Any model that ``otdro.stability`` takes.
        X, y : array-like of shape (n, d) and (n,)
            Its training rows.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        **options
            Go to ``otdro.stability``.
        """
        return cls.from_stability(inspection.stability(estimator, X, y, **options), ax=ax)

    def _draw(self) -> None:
        """Draw points, quantiles and the line where both agree."""
        points = self.stability.instability
        style = {"s": 4, "color": FAINT, "alpha": 0.3, "linewidths": 0, "rasterized": True}
        self.points_ = self.ax_.scatter(*points.T, **style)
        order = np.argsort(self.stability.prediction, kind="stable")
        x = self.stability.prediction[order]
        ends = self.stability.interval[order]
        self.interval_ = self.ax_.plot(x, ends, color=LINES[0], linewidth=1)
        self.diagonal_ = self.ax_.plot(x, x, color="black", linestyle=":", linewidth=1)[0]
        label_axes(self.ax_, self.stability.quantity, f"the same by {self.stability.refits} refits")


def _panels(axes: Any, classes: list[Any]) -> Array:
    """Return one Axes per class: those given, or a column of a new figure with one scale."""
    K = len(classes)
    if axes is None:
        height = 4.8 if K == 1 else 1.2 + 2.2 * K
        return new_figure(K, sharex=True, sharey=True, figsize=(6.4, height))[:, 0]
    panels = np.ravel(np.asarray(axes, dtype=object))
    if len(panels) != K:
        raise ValueError(
            f"one panel for each of the classes {classes} needs {K} Axes, got {len(panels)}: "
            f"pass ax=plt.subplots({K})[1], or draw one class by class_={classes[0]!r}."
        )
    return panels


@dataclass(eq=False)
class PriceDisplay(Display):
    """The price of moving each feature by one standard deviation, most expensive first.

    Best made by ``from_cost`` or ``from_estimator``.

    Parameters
    ----------
    table : CostTable
        Prices by column, from ``cost.table()``.

    Attributes
    ----------
    ax_, figure_, bars_, mean_
        What ``plot`` drew; ``mean_`` is a line at the mean price.
    """

    table: CostTable

    @classmethod
    def from_cost(
        cls, cost: Cost, X: Any = None, *, feature_names: Any = None, ax: Any = None
    ) -> Self:
        """Draw the prices of a norm cost.

        Parameters
        ----------
        cost : Cost
            A norm, of ``otdro.costs``.
        X : array-like of shape (n, d), default=None
            Rows whose standard deviations are the moves; None: moves of 1.
        feature_names : sequence of str, default=None
            The names of the columns; None: numbers.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        return cls(cost.table(feature_names, X)).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, *, feature_names: Any = None, ax: Any = None
    ) -> Self:
        """Draw the prices of a fitted estimator's cost.

        Parameters
        ----------
        estimator : DROClassifier or DRORegressor
            A fitted estimator.
        X : array-like of shape (n, d), default=None
            Rows whose standard deviations are the moves; None: moves of 1.
        feature_names : sequence of str, default=None
            The names of the columns; None: as the fit saw them.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        names = names_of(estimator, feature_names)
        return cls.from_cost(estimator.cost_, X, feature_names=names, ax=ax)

    def _draw(self) -> None:
        """Draw one bar per feature."""
        order = np.argsort(-self.table.price.round(12), kind="stable")
        if len(order) > MOST:
            order = np.concatenate([order[: MOST // 2], order[-MOST // 2 :]])
        names = [self.table.names[j] for j in order]
        self.bars_ = bars(self.ax_, names, self.table.price[order])
        mean = float(self.table.price.mean())
        self.mean_ = self.ax_.axvline(mean, color=FAINT, linewidth=1, zorder=0)
        self.ax_.set_xlabel("price of a move of one standard deviation")


@dataclass(eq=False)
class DriftDisplay(Display):
    """How far each column moved by itself, farthest first, in its standard deviations.

    A bar is the mean move of a column, coloured where the move is more than noise at 5% (corrected
    for the number of columns); a mark is the change of its mean. Best made by ``from_drift``.

    Parameters
    ----------
    table : DriftTable
        Moves by column of the table, from ``drift.columns``; of categories shares of rows.

    Attributes
    ----------
    ax_, figure_, bars_, shift_, zero_
        What ``plot`` drew; ``shift_`` are the marks.
    """

    table: DriftTable

    @classmethod
    def from_drift(cls, drift: Any, *, ax: Any = None) -> Self:
        """Draw the columns of a ``Drift``.

        Parameters
        ----------
        drift : Drift
            From ``otdro.drift``.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        """
        return cls(drift.columns).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, reference: Any, new: Any, *, ax: Any = None, **options: Any
    ) -> Self:
        """Measure the drift of ``new`` from ``reference`` as a model sees it, and draw it.

        Parameters
        ----------
        estimator : fitted linear model or Pipeline
            What sees the rows.
        reference, new : X or tuple (X, y)
            Old and new rows.
        ax : Axes, default=None
            Where to draw; None makes a figure.
        **options
            Go to ``otdro.drift``.
        """
        return cls.from_drift(inspection.drift(reference, new, model=estimator, **options), ax=ax)

    def _draw(self) -> None:
        """Draw one bar per column."""
        table, order = self.table, self.table.order()[:MOST]
        beyond = table.p_value[order] * len(table) < RARE
        colours = [OURS if is_beyond else FAINT for is_beyond in beyond]
        names = [table.label(j) for j in order]
        self.bars_ = bars(self.ax_, names, table.distance[order], color=colours)
        mark = {"marker": "D", "markersize": 5, "linestyle": "none", "color": "black"}
        self.shift_ = self.ax_.plot(table.shift[order], range(len(order)), **mark)[0]
        self.zero_ = self.ax_.axvline(0, color=OTHER, linewidth=0.8)
        unit = "deviations, of categories shares of rows" if any(table.switch) else "deviations"
        self.ax_.set_xlabel(f"{unit}: mean move (bar), shift (mark)")


def comparison(ax: Any, scores: Sequence[Score], measure: str) -> list[Any]:
    """Draw one line per method: its splits as dots, the mean with one standard error either side.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    scores : sequence of Score
        From ``otdro.comparison.compare``.
    measure : str
        The measure to show, e.g. "log-loss".

    Returns
    -------
    list
        What was drawn.
    """
    methods = list(dict.fromkeys(score.method for score in scores))
    artists = []
    for row, method in enumerate(methods):
        values = np.array([s.values[measure] for s in scores if s.method == method])
        colour = OURS if method == OWN else OTHER
        # jitter by position, not at random: the same scores give the same picture
        height = row + 0.22 * np.cos(2.4 * np.arange(len(values)))
        dots = ax.scatter(values, height, s=9, color=colour, alpha=0.35, linewidths=0)
        error = standard_error(values) if len(values) > 1 else 0.0
        mean = ax.errorbar(
            values.mean(), row, xerr=error, fmt="o", color=colour, markersize=6, capsize=3
        )
        artists += [dots, mean]
    ours = [s.values[measure] for s in scores if s.method == OWN]
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
    return artists


# In a plane.


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
