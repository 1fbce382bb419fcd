"""Marks of the page: texts, tables and pictures as HTML and SVG, and the texts of the slider.

Whatever a column or a class is called, it is text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costs.table import EVEN, WIDEST, shorten, signed
from ..design import WRITTEN_UP_TO, as_dense
from ..estimators.columns import PARTS
from ..inspection import Audit, Stability
from ..inspection.auditing import Change
from ..inspection.certificate import boundary_lines, budgets
from ..inspection.summary import share_in_words
from ..radius.grid import over_classes

Array = NDArray[Any]

#: Around a name inside a sentence without markup: its direction stays its own.
ISOLATE, POP = "\u2068", "\u2069"
#: Control characters and halves of characters.
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: The width of a character of an axis label, at the size of the style for telephones.
CHARACTER = 10.0
#: Markers of classes, around the origin; the style has as many colours.
MARKERS = [
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3.2-3.2h6.4v6.4h-6.4z",
    "M0-4.2l4 7.2h-8z",
    "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
    "M0 4.2l4-7.2h-8z",
    "M-1.4-4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
]
#: Stops of the slider beside the delta that the advice is about.
STOPS = 21
#: Columns to choose from as axes: those that break the model first.
COLUMNS = 24
#: Directions of the cost to choose from, at the cheap end and at the expensive end.
ENDS = 3
#: Rows that are drawn.
SHOWN = 600
#: Rows among them that the adversary moves first.
FIRST = 40


# Texts and tables.


def plain(value: Any, longest: int = WIDEST) -> str:
    """Return a short text without control characters or halves of characters."""
    text = str(value)[: longest + 1]
    return shorten(HIDDEN.sub(lambda c: " " if c[0].isspace() else "\ufffd", text), longest)


def isolated(value: Any, longest: int = WIDEST) -> str:
    """Return a name for places that hold no markup: options, SVG texts, sentences."""
    return f"{ISOLATE}{plain(value, longest)}{POP}"


def number(value: Any, digits: int = 4) -> str:
    """Return four significant digits, as print does; an infinite value is a sign."""
    text = f"{float(value):,.{digits}g}"
    if "e+0" in text:
        # up to 1e10 without a power of ten
        text = f"{float(text):,.0f}"
    return text.replace("-", "−").replace("nan", "–").replace("inf", "∞")


def rounded(values: Any, digits: int = 5) -> Any:
    """Return an array as nested lists of numbers with so many digits, null where it is infinite."""
    if np.ndim(values):
        return [rounded(part, digits) for part in values]
    return float(f"{values:.{digits}g}") if np.isfinite(values) else None


def marker(k: int) -> str:
    """Return colour and shape of the k-th class; pairs repeat after 36 classes."""
    size = len(MARKERS)
    return f'class="c{k % size}" d="{MARKERS[(k + k // size) % size]}"'


@dataclass(frozen=True, eq=False)
class Frame:
    """The ranges that a picture shows, and its size in units of its view box.

    ``logarithmic``: x is the logarithm to base 10 of what the axis names.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 420.0
    height: float = 250.0
    left: float = 60.0
    margin: float = 12.0
    below: float = 42.0
    logarithmic: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, width and height of what is drawn on."""
        width, height = self.width - self.left - self.margin, self.height - self.margin - self.below
        return self.left, self.margin, width, height

    def px(self, x: Any) -> Any:
        """Return places from left to right."""
        (low, high), (left, _, width, _) = self.x, self.box
        return left + (np.asarray(x) - low) / (high - low) * width

    def py(self, y: Any) -> Any:
        """Return places from top to bottom."""
        (low, high), (_, top, _, height) = self.y, self.box
        return top + (high - np.asarray(y)) / (high - low) * height

    def axes(self, x_label: str, y_label: str) -> str:
        """Return ticks, grid lines and labels of both axes."""
        left, top, width, height = self.box
        base, marks, levels = top + height, ticks(*self.x), ticks(*self.y)
        across = "".join(
            f'<line x1="{p:.1f}" x2="{p:.1f}" y1="{top:g}" y2="{base:g}"/>'
            f'<text x="{p:.1f}" y="{base + 15:g}" text-anchor="middle">'
            f"{number(10**tick, 3) if self.logarithmic else written(tick)}</text>"
            for tick, p in zip(marks, self.px(marks), strict=True)
        )
        up = "".join(
            f'<line x1="{left:g}" x2="{left + width:g}" y1="{p:.1f}" y2="{p:.1f}"/>'
            f'<text x="{left - 6:g}" y="{p + 4:.1f}" text-anchor="end">{written(tick)}</text>'
            for tick, p in zip(levels, self.py(levels), strict=True)
        )
        x, y = left + width / 2, top + height / 2
        return (
            f'<g class="axis axis-x">{across}<text class="label" x="{x:g}" '
            f'y="{self.height - 6:g}" text-anchor="middle">{escape(fitted(x_label, width))}</text>'
            f'</g><g class="axis axis-y">{up}<text class="label" transform="translate(15 {y:g}) '
            f'rotate(-90)" text-anchor="middle">{escape(fitted(y_label, height))}</text></g>'
        )

    def curve(self, x: Array, y: Array, kind: str) -> str:
        """Return a line through points; it breaks where a value is not finite."""
        parts: list[str] = []
        pen = "M"
        for px, py in zip(self.px(x), self.py(y), strict=True):
            if np.isfinite(py):
                parts.append(f"{pen}{px:.1f} {py:.1f}")
            pen = "L" if np.isfinite(py) else "M"
        return f'<path class="curve {kind}" d="{"".join(parts)}"/>'


def fitted(label: str, room: float) -> str:
    """Return a label, its end left out where it is longer than ``room``."""
    # the letters of some scripts are as wide as two of others; marks have no width
    widths = [
        2 if unicodedata.east_asian_width(c) in "WF" else c not in (ISOLATE, POP) for c in label
    ]
    most = int(room / CHARACTER)
    if sum(widths) <= most:
        return label
    kept = label[: int(np.searchsorted(np.cumsum(widths), most))].rstrip() + "…"
    return kept + POP * (kept.count(ISOLATE) - kept.count(POP))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers in the range: steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10((high - low) / most))
    step = next(power * k for k in (1, 2, 5, 10) if (high - low) / (power * k) <= most)
    first = np.ceil(low / step - 1e-9)
    last = np.floor(high / step + 1e-9)
    # + 0.0: no negative zero
    return [float(f"{k * step:.12g}") + 0.0 for k in np.arange(first, last + 1)]


def written(value: float) -> str:
    """Return a round number with all its digits."""
    return f"{value:.7g}".replace("-", "−")


def spread(values: Array, margin: float = 0.06) -> tuple[float, float]:
    """Return the range of the finite values with some room, never empty."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    room = margin * (high - low) if high > low else max(abs(high), 1.0) * margin
    return low - room, high + room


def picture(frame: Frame, title: str, content: str, extra: str = "") -> str:
    """Return an SVG with a title for those who do not see it."""
    return (
        f'<svg viewBox="0 0 {frame.width:g} {frame.height:g}" role="img" '
        f'aria-label="{escape(title)}" {extra}>{content}</svg>'
    )


# The view: what is drawn of an audit.


class Axis(NamedTuple):
    """A unit ``direction`` (d,), what it is called, and the kind it is listed under."""

    label: str
    kind: str
    direction: Array


def axes_of(audit: Audit) -> list[Axis]:
    """Return the axes: the directions that the model looks at, columns, directions of the cost.

    The first two are drawn at first: two columns where there are two, else what the model looks at.
    """
    units, coef = audit.units, audit.model.coef
    order = audit.columns.order()[:COLUMNS]
    few = len(audit.names) <= 2
    columns = [
        Axis(
            isolated(units.labels()[k]), "Columns", units.moves[k] / np.linalg.norm(units.moves[k])
        )
        # two columns in the order of the table
        for k in (np.sort(order) if few else order)
    ]
    if len(audit.names) == 1:
        return [*columns, Axis("there is one column only", "Nothing", np.zeros(1))]
    # what all classes have in common decides nothing
    seen = coef if audit.classes is None else coef - coef.mean(axis=0)
    sizes, directions = np.linalg.svd(seen, full_matrices=False)[1:]
    kept = directions[(sizes > EVEN * sizes[0]) & (sizes > 0)][:2]
    own = [
        Axis(f"the model's {word} direction", "The model", signed(v))
        for word, v in zip(("first", "second"), kept, strict=False)
    ]
    if len(kept) == 1:
        # the second of two classes lies upwards
        up = kept[0] * np.sign(kept[0] @ seen[-1])
        own = [Axis("the model's own direction", "The model", up)]
    priced = [
        Axis(f"price {number(price)}: {isolated(along, 80)}", "Directions of the cost", vector)
        for price, along, vector in extreme_directions(audit, ENDS)
    ]
    if few:
        return [*columns, *own, *priced]
    # beside one direction of the model, the cheapest of the cost
    beside = priced[: 2 - len(own)]
    return [*own, *beside, *columns, *priced[len(beside) :]]


def extreme_directions(audit: Audit, most: int) -> list[tuple[float, str, Array]]:
    """Return price, parts and direction of the cheapest and the most expensive unit moves.

    There are none where all directions in which rows can move cost the same, and of wide tables.
    """
    # directions take the cube of the columns
    if not audit.cost.euclidean or len(audit.names) > WRITTEN_UP_TO:
        return []
    groups = audit.model.groups
    prices, vectors = groups.directions(audit.cost, audit.scale)
    if not len(prices) or prices[-1] <= prices[0] * (1 + EVEN):
        return []
    found = []
    for k in sorted({*range(len(prices))[:most], *range(len(prices))[-most:]}):
        parts = groups.along(vectors[:, k], audit.scale).items()
        along = ", ".join(f"{value:+.2f}".replace("-", "−") + f" {name}" for name, value in parts)
        found.append((float(prices[k]), along, vectors[:, k] / np.linalg.norm(vectors[:, k])))
    return found


@dataclass(frozen=True, eq=False)
class View:
    """An audit as the page draws it: the stops of its slider, its axes, a sample of its rows."""

    audit: Audit
    seed: int = 0
    row_names: Sequence[Any] | None = None

    def row_name(self, k: int) -> str:
        """Return the name of a row for the reader: as given, or its number from 0."""
        return str(k) if self.row_names is None else plain(self.row_names[k])

    @cached_property
    def deltas(self) -> Array:
        """The stops of the slider, from 0 to beyond the fitted delta, (m,)."""
        # a grid that the user gave may be 0 alone
        end = max(float(self.audit.deltas[-1]), self.audit.advised_delta) or 1.0
        # the curve is steepest near 0
        stops = end * np.linspace(0.0, 1.0, STOPS) ** 2
        return np.unique(np.append(stops, self.audit.advised_delta))

    @property
    def first(self) -> int:
        """Where the slider stands at first: at the delta that the advice is about."""
        return int(np.searchsorted(self.deltas, self.audit.advised_delta))

    @property
    def fitted(self) -> int | None:
        """The stop of the fitted delta, where the slider then stands at first."""
        return None if self.audit.fitted_delta is None else self.first

    @cached_property
    def risk(self) -> Array:
        """The worst-case loss at the stops."""
        return np.asarray(self.audit.risk(self.deltas))

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes to choose from."""
        return axes_of(self.audit)

    @cached_property
    def first_moved(self) -> Array:
        """The numbers of all rows that can be moved to the wrong side, the cheapest first."""
        price = self.audit.price
        order = np.argsort(price, kind="stable")
        return order[(price[order] > 0) & np.isfinite(price[order])]

    @cached_property
    def rows(self) -> Array:
        """The numbers of the rows that are drawn, rising."""
        n = len(self.audit.weights)
        if n <= SHOWN:
            return np.arange(n)
        early = self.first_moved[:FIRST]
        others = np.setdiff1d(np.arange(n), early)
        rng = np.random.default_rng(self.seed)
        return np.sort(np.append(early, rng.choice(others, SHOWN - len(early), replace=False)))

    @cached_property
    def sample(self) -> Audit:
        """The audit of the drawn rows alone: their counterfactuals are all that is needed of it."""
        parts = {name: getattr(self.audit, name)[self.rows] for name in ("X", "target", "weights")}
        return replace(self.audit, **parts, groups=None, drift=None)

    @cached_property
    def center(self) -> Array:
        """The mean of all rows, (d,)."""
        return np.asarray(self.audit.weights @ self.audit.X, dtype=float).ravel()

    @cached_property
    def directions(self) -> Array:
        """The axes as rows, (m, d)."""
        return np.stack([axis.direction for axis in self.axes])

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """Where the drawn rows are and where they are taken, (m, n) each, along every axis."""
        before = np.asarray(as_dense(self.sample.X), dtype=float)
        part = self.sample.part_moved[:, None]
        # a row whose label is changed stays where it is, also where no move would reach a boundary
        move = np.where(part > 0, part * (self.sample.counterfactuals - before), 0.0)
        return self.directions @ before.T, self.directions @ (before + move).T

    @cached_property
    def ranges(self) -> list[tuple[float, float]]:
        """What each axis shows: all drawn rows, and where they go by the last stop."""
        going = self.audit.moved_share(float(self.deltas[-1]))[self.rows] > 0
        before, after = self.places
        return [spread(np.append(u, v[going])) for u, v in zip(before, after, strict=True)]

    @property
    def frame(self) -> Frame:
        """The frame of the two axes at first."""
        # on a phone the ticks are as wide as this
        return Frame(self.ranges[0], self.ranges[1], 600.0, 440.0, left=84.0)

    @cached_property
    def budgets(self) -> tuple[Array, Array]:
        """The budget spent before each row is moved, and what moving all of it costs, (n,) each."""
        return budgets(self.audit.price, self.audit.weights)


def scene(view: View) -> str:
    """Return the picture at the first stop, which the script goes on from."""
    frame, model = view.frame, view.audit.model
    left, top, width, height = frame.box
    content = (
        f'<defs><clipPath id="inside"><rect x="{left:g}" y="{top:g}" width="{width:g}" '
        f'height="{height:g}"/></clipPath></defs>'
        f"{frame.axes(view.axes[0].label, view.axes[1].label)}"
        f'<g clip-path="url(#inside)">{_points(view, frame, float(view.deltas[view.first]))}'
        f'<g id="own-lines">{_lines(view, model.coef, model.intercept, frame)}</g>'
        # at the corner, outside of what is drawn on
        '<circle id="ring" r="8"/></g>'
    )
    title = "Rows in two axes, where the adversary takes them, and the boundary of the model"
    return picture(frame, title, content, 'id="view" tabindex="0" aria-describedby="row-says"')


def _lines(view: View, coef: Array, intercept: Array, frame: Frame) -> str:
    """Return the boundary of a classifier in the plane of the two axes at first.

    Coordinates are inner products with the axes, u = G (a, b) with the Gram matrix G of the two,
    so that the slopes in u are G^-1 (B first, B second), with the pseudo-inverse of parallel axes.
    """
    if view.audit.classes is None:
        return ""
    D = view.directions[:2]
    slopes = (np.linalg.pinv(D @ D.T, rcond=EVEN, hermitian=True) @ D @ coef.T).T
    box = np.array([frame.x, frame.y]).T
    segments = boundary_lines(coef @ view.center + intercept, slopes, D @ view.center, box)
    return "".join(
        '<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"/>'.format(
            *(v for x, y in segment for v in (float(frame.px(x)), float(frame.py(y))))
        )
        for segment in segments
    )


def _points(view: View, frame: Frame, delta: float) -> str:
    """Return the drawn rows before and after their moves, and the moves."""
    before, after = view.places
    x, y = frame.px(before[0]), frame.py(before[1])
    # a row that no move makes wrong stays
    u, v = np.where(np.isfinite(after[:2]), (frame.px(after[0]), frame.py(after[1])), (x, y))
    share = view.audit.moved_share(delta)[view.rows]
    groups: dict[str, list[str]] = {"moves": [], "starts": [], "ends": []}
    for k, target in enumerate(view.audit.target[view.rows]):
        mark = marker(0 if view.audit.classes is None else int(target))
        seen = "visible" if share[k] > 0 else "hidden"
        groups["moves"].append(
            f'<line x1="{x[k]:.1f}" y1="{y[k]:.1f}" x2="{u[k]:.1f}" y2="{v[k]:.1f}" '
            f'visibility="{seen}"/>'
        )
        ends = (("starts", x, y, 1 - 0.7 * share[k]), ("ends", u, v, share[k]))
        for name, across, up, opacity in ends:
            groups[name].append(
                f'<path {mark} transform="translate({across[k]:.1f} {up[k]:.1f})" '
                f'opacity="{opacity:.2f}"/>'
            )
    return "".join(f'<g id="{name}">{"".join(parts)}</g>' for name, parts in groups.items())


def script_data(view: View, texts: list[dict[str, str]], cursors: dict[str, Any]) -> dict[str, Any]:
    """Return all that the script needs, in lists, numbers and strings."""
    _, _, width, height = view.frame.box
    before, after = view.places
    budget, spend = (values[view.rows] for values in view.budgets)
    axes = [
        {
            "across": fitted(axis.label, width),
            "up": fitted(axis.label, height),
            "low": low,
            "high": high,
            "ticks": ticks(low, high),
            "says": [written(tick) for tick in ticks(low, high)],
            "center": float(axis.direction @ view.center),
        }
        for axis, (low, high) in zip(view.axes, view.ranges, strict=True)
    ]
    own, model = None, view.audit.model
    if view.audit.classes is not None:
        own = {
            "at": (model.coef @ view.center + model.intercept).tolist(),
            "slopes": (model.coef @ view.directions.T).tolist(),
        }
    return {
        "frame": list(view.frame.box),
        "axes": axes,
        "gram": (view.directions @ view.directions.T).tolist(),
        "own": own,
        "deltas": view.deltas.tolist(),
        "texts": texts,
        "before": rounded(before),
        "after": rounded(after),
        "budget": rounded(budget, 8),
        "spend": rounded(spend, 8),
        "rows": view.rows.tolist(),
        "says": [row_text(view, int(k)) for k in view.rows],
        "cursors": cursors,
    }


def axis_options(view: View, chosen: int) -> str:
    """Return the choices of a list of axes, by kind."""
    kinds: dict[str, str] = {}
    for k, (label, kind, _) in enumerate(view.axes):
        selected = " selected" if k == chosen else ""
        option = f'<option value="{k}"{selected}>{escape(label)}</option>'
        kinds[kind] = kinds.get(kind, "") + option
    return "".join(f'<optgroup label="{kind}">{own}</optgroup>' for kind, own in kinds.items())


def slider_chart(view: View, measure: str) -> tuple[str, list[list[float]]]:
    """Return "accuracy" or "risk" against delta, and where its cursor stands at every stop."""
    audit, deltas = view.audit, view.deltas
    end = float(deltas[-1])
    if measure == "accuracy":
        values, label = np.asarray(audit.accuracy(deltas)), "certified accuracy"
        frame = Frame((0.0, end), (0.0, 1.02))
        # the curve has corners between the stops: one point for each unit of the width
        grid = np.linspace(0.0, end, int(frame.box[2]) + 1)
        curves = [
            (np.array([0.0, end]), np.full(2, audit.constant_accuracy()), "reference"),
            (deltas, np.asarray(audit.chance_accuracy(deltas)), "chance"),
            (grid, np.asarray(audit.accuracy(grid)), "own"),
        ]
    else:
        values, label = view.risk, "worst-case loss"
        frame = Frame((0.0, end), (0.0, spread(np.append(0.0, values))[1]))
        curves = [(deltas, values, "own")]
    if view.fitted is not None:
        curves.append((np.full(2, deltas[view.fitted]), np.array(frame.y), "fitted"))
    # a loss without a bound stands at the upper end
    heights = frame.py(np.minimum(values, frame.y[1]))
    places = np.round(np.column_stack([frame.px(deltas), heights]), 1).tolist()
    (a, b), (_, top, _, height) = places[view.first], frame.box
    cursor = (
        f'<g class="cursor" id="cursor-{measure}"><line x1="{a}" x2="{a}" y1="{top:g}" '
        f'y2="{top + height:g}"/><circle cx="{a}" cy="{b}" r="4.5"/></g>'
    )
    title = f"{label} from {values[0]:.3g} at delta 0 to {values[-1]:.3g} at delta {end:.3g}"
    return _chart(frame, title, ("delta: mean cost of the moves", label), curves, cursor), places


def _chart(
    frame: Frame,
    title: str,
    labels: tuple[str, str],
    curves: Sequence[tuple[Array, Array, str]],
    extra: str = "",
) -> str:
    """Return a picture of curves (x, y, kind)."""
    lines = "".join(frame.curve(*curve) for curve in curves)
    return picture(frame, title, f"{frame.axes(*labels)}{lines}{extra}")


def _upright(x: Array, low: Array, high: Array, kind: str) -> tuple[Array, Array, str]:
    """Return upright lines as one curve that breaks between them."""
    y = np.column_stack([low, high, np.full(len(x), np.nan)])
    return np.repeat(x, 3), y.ravel(), kind


def path_chart(path: Any, delta: float, score_is_loss: bool) -> str:
    """Return risks and, where it is a loss, the score of the folds along the path of a fit."""
    # delta = 0 has no place on a logarithmic axis
    seen = path.deltas > 0
    deltas = np.log10(path.deltas[seen])
    losses = {"own": over_classes(path.robust_risk), "plain": over_classes(path.empirical_risk)}
    if path.score_mean is not None and score_is_loss:
        losses["folds"] = -path.score_mean
    y = spread(np.concatenate([values[seen] for values in losses.values()]))
    frame = Frame((float(deltas.min()), float(deltas.max())), y, logarithmic=True)
    curves = [(deltas, values[seen], kind) for kind, values in losses.items()]
    if delta > 0:
        curves.append((np.full(2, np.log10(delta)), np.array(y), "fitted"))
    return _chart(frame, "Losses along the path of deltas", ("delta", "loss"), curves)


def calibration_chart(bins: Array, labels: tuple[str, str]) -> str:
    """Return what was observed against what was predicted, in bins; the diagonal is perfect."""
    limits = spread(bins[:, :2])
    ends, (x, y) = np.array(limits), bins.T[:2]
    # lines of no length are dots
    curves = [(ends, ends, "plain"), (x, y, "own"), _upright(x, y, y, "dots")]
    title = "Calibration: observed against predicted in bins of held-out rows"
    return _chart(Frame(limits, limits), title, labels, curves)


def roc_chart(rates: Array, area: float) -> str:
    """Return true against false positive rates."""
    ends = np.array([0.0, 1.0])
    curves = [(ends, ends, "plain"), (rates[:, 0], rates[:, 1], "own")]
    title = f"ROC curve of held-out rows, area {area:.3f}"
    labels = ("false positive rate", "true positive rate")
    return _chart(Frame((0.0, 1.0), (0.0, 1.02)), title, labels, curves)


def instability_chart(stability: Stability) -> str:
    """Return the range of the refits of each row against its prediction."""
    order = np.argsort(stability.prediction, kind="stable")
    order = order[np.linspace(0, len(order) - 1, min(len(order), SHOWN)).astype(int)]
    x, ends = stability.prediction[order], stability.interval[order]
    limits = spread(np.concatenate([x, ends.ravel()]))
    curves = [(x, x, "plain"), _upright(x, ends[:, 0], ends[:, 1], "ranges")]
    title = "95% of the refits of each row against its prediction"
    labels = (stability.quantity, "the same by refits")
    return _chart(Frame(limits, limits), title, labels, curves)


def stop_texts(view: View) -> list[dict[str, str]]:
    """Return what the page prints at every stop."""
    audit, n = view.audit, len(view.audit.weights)
    accuracy, chance = audit.accuracy(view.deltas), audit.chance_accuracy(view.deltas)
    texts = []
    for k, delta in enumerate(view.deltas):
        of_the_fit = ", the delta of the fit" if k == view.fitted else ""
        # rows that were right and are wrong now, at least partly
        wrong = np.count_nonzero((audit.price > 0) & (audit.moved(float(delta)) > 0))
        texts.append(
            {
                "delta": number(delta),
                "words": plain(audit.in_words(float(delta)), 160) + of_the_fit,
                "accuracy": share_in_words(accuracy[k]),
                "risk": number(view.risk[k]),
                "chance": share_in_words(chance[k]),
                "wrong": f"{wrong:,} of {n:,}",
            }
        )
    return texts


def row_text(view: View, k: int) -> str:
    """Return one line on a drawn row."""
    distance, turn = number(view.audit.distance[k]), number(view.budgets[0][k])
    head = f"Row {view.row_name(k)}, {label(view, k)}"
    if view.audit.distance[k] == 0:
        return f"{head}: wrong without any move."
    if not np.isfinite(view.audit.price[k]):
        return f"{head}: no move makes it wrong."
    change = change_text(view, k)
    if view.audit.part_moved[k] == 0:
        return f"{head}: {change} above delta {turn}."
    return f"{head}: {distance} from a flip, moved above delta {turn}; {change}."


def label(view: View, k: int) -> str:
    """Return the class or the target of a row."""
    if view.audit.classes is None:
        return f"target {number(view.audit.target[k])}"
    return isolated(view.audit.classes[int(view.audit.target[k])])


def change_text(view: View, k: int) -> str:
    """Return what the counterfactual of a drawn row changes, largest first."""
    if view.audit.part_moved[k] == 0:
        return f"its {'target' if view.audit.classes is None else 'label'} is changed"
    changed = view.sample.changes(int(np.searchsorted(view.rows, k)))
    parts = [f"{isolated(change.column, 24)} {_step(change)}" for change in changed[:PARTS]]
    rest = len(changed) - len(parts)
    return ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")


def _step(change: Change) -> str:
    """Return a change of one column from one value to another."""
    if isinstance(change.before, str) or isinstance(change.after, str):
        ends = (isolated(end, 20) for end in (change.before, change.after))
        return f"{' → '.join(ends)} ({share_in_words(change.amount)} of the way)"
    before, after = number(change.before), number(change.after)
    # four digits may hide a small change
    step = f"{before} by {change.after - change.before:+.2g}".replace("-", "−")
    return f"{before} → {after}" if before != after else step
