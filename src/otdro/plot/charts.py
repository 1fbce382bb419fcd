"""Displays of curves over delta, of bars and of dots, and what all displays share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .. import inspection
from ..comparison import OWN, Score, standard_error
from ..costs import Cost
from ..costs.table import CostTable, named, shorten
from ..inspection.auditing import RARE
from ..inspection.summary import DriftTable
from ..radius.grid import over_classes
from ..radius.profile import theory_delta

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
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2))]
#: Points of a curve of certified accuracy where no deltas are given.
POINTS = 201
#: Bars that a picture can hold: of prices the most expensive and the cheapest, of drifts the
#: columns that moved farthest.
MOST = 30


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
        self.chosen_ = self._mark(self.chosen, label="chosen delta", color="black")
        self.theory_ = self._mark(self.theory, label="theory's delta", color=OTHER, linestyle=":")
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

    def _mark(self, delta: float | None, **style: Any) -> Any:
        return self.ax_.axvline(delta, linewidth=1, zorder=0, **style) if delta else None


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
        several = self.classes is not None
        classes = [None] if self.classes is None else self.classes
        panels = _panels(ax, classes)
        coef = np.swapaxes(self.coef, 0, 1) if several else [self.coef]
        drawn = [self._panel(*panel) for panel in zip(panels, coef, strict=True)]
        self.figure_ = panels[0].figure
        self.ax_, self.lines_, self.chosen_ = panels[0], *drawn[0]
        if several:
            self.ax_ = panels
            self.lines_ = [lines for lines, _ in drawn]
            self.chosen_ = [mark for _, mark in drawn]
            for panel, label in zip(panels, classes, strict=True):
                panel.set_title(shortened(f"class {label}"))
                if ax is None:
                    panel.label_outer()
        named = [drawn[0][0][j] for j in self._largest()]
        legend(panels[0], handles=named, fontsize="small", ncols=2)
        return self

    def _largest(self) -> list[int]:
        """Return the columns that are named, those with the largest coefficients first."""
        size = np.abs(self.coef).max(axis=tuple(range(self.coef.ndim - 1)))
        return [int(j) for j in np.argsort(-size, kind="stable")[: len(LINES)]]

    def _panel(self, ax: Any, coef: Array) -> tuple[list[Any], Any]:
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
            The radii; None is the range in which the first ones fall.
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
            deltas = np.linspace(0, max(finite, default=1.0), POINTS)
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
