"""The pictures of the page: rows with the adversary's moves, curves over delta, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costs.table import EVEN, signed
from ..design import as_dense
from ..estimators.columns import PARTS
from ..inspection import Audit, Stability
from ..inspection.auditing import Change
from ..inspection.certificate import boundary_lines, budgets
from ..inspection.summary import share_in_words
from ..radius.grid import over_classes
from . import markup
from .markup import Frame, isolated, marker, number, picture, plain, spread, ticks

Array = NDArray[Any]

#: Stops of the slider beside the delta that the advice is about.
STOPS = 21
#: Columns to choose from as axes: those that break the model first.
COLUMNS = 24
#: Directions of the cost to choose from, at the cheap end and at the expensive end.
ENDS = 3
#: Group labels of the axis menu.
MODEL, COLUMN, CHEAP = "The model", "Columns", "Directions of the cost"
#: Rows that are drawn.
SHOWN = 600
#: Rows among them that the adversary moves first.
FIRST = 40
#: Where a mark is out of sight.
AWAY = -20.0
#: Width and height of a chart, in units of its view box.
CHART = 420.0, 250.0
#: Points of the accuracy curve.
POINTS = 241


class Axis(NamedTuple):
    """A unit ``direction`` (d,), what it is called, and the kind it is listed under."""

    label: str
    kind: str
    direction: Array


def axes_of(audit: Audit) -> list[Axis]:
    """Return the axes: the directions that the model looks at, columns, directions of the cost."""
    units, coef = audit.units, audit.model.coef
    columns = []
    for k in audit.columns.order()[:COLUMNS]:
        direction = units.moves[k] / np.linalg.norm(units.moves[k])
        columns.append(Axis(isolated(units.labels()[k]), COLUMN, direction))
    if len(audit.names) == 1:
        return [*columns, Axis("there is one column only", "Nothing", np.zeros(1))]
    # what all classes have in common decides nothing
    seen = coef if audit.classes is None else coef - coef.mean(axis=0)
    sizes, directions = np.linalg.svd(seen, full_matrices=False)[1:]
    kept = directions[(sizes > EVEN * sizes[0]) & (sizes > 0)][:2]
    own = [
        Axis(f"the model's {word} direction", MODEL, signed(v))
        for word, v in zip(("first", "second"), kept, strict=False)
    ]
    if len(kept) == 1:
        # the second of two classes lies upwards
        own = [Axis("the model's own direction", MODEL, kept[0] * np.sign(kept[0] @ seen[-1]))]
    priced = [
        Axis(f"price {number(price)}: {isolated(along, 80)}", CHEAP, vector)
        for price, along, vector in extreme_directions(audit, ENDS)
    ]
    return [*own, *columns, *priced]


def extreme_directions(audit: Audit, most: int) -> list[tuple[float, str, Array]]:
    """Return price, parts and direction of the cheapest and the most expensive unit moves.

    There are none where all directions in which rows can move cost the same.
    """
    if not audit.cost.euclidean:
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
    def chosen(self) -> tuple[int, int]:
        """The axes at first: two columns where there are two, else what the model looks at."""
        kinds = [axis.kind for axis in self.axes]
        if len(self.audit.names) <= 2:
            first = kinds.index(COLUMN)
            # in the order of the table
            return (first, first + 1) if self.axes[first].direction[0] else (first + 1, first)
        if kinds.count(MODEL) != 1:
            return 0, 1
        return 0, kinds.index(CHEAP) if CHEAP in kinds else 1

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
        i, j = self.chosen
        # on a phone the ticks are as wide as this
        return Frame(600.0, 440.0, self.ranges[i], self.ranges[j], left=84.0)

    @cached_property
    def budgets(self) -> tuple[Array, Array]:
        """The budget spent before each row is moved, and what moving all of it costs, (n,) each."""
        return budgets(self.audit.price, self.audit.weights)


def scene(view: View) -> str:
    """Return the picture at the first stop, which the script goes on from."""
    frame, model = view.frame, view.audit.model
    i, j = view.chosen
    left, top, width, height = frame.box
    content = (
        f'<defs><clipPath id="inside"><rect x="{left:g}" y="{top:g}" width="{width:g}" '
        f'height="{height:g}"/></clipPath></defs>'
        f"{frame.axes(view.axes[i].label, view.axes[j].label)}"
        f'<g clip-path="url(#inside)">{_points(view, frame, float(view.deltas[view.first]))}'
        f'<g id="own-lines">{_lines(view, model.coef, model.intercept, frame)}</g>'
        f'<circle id="ring" r="8" cx="{AWAY:g}" cy="{AWAY:g}"/></g>'
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
    D = view.directions[list(view.chosen)]
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
    i, j = view.chosen
    before, after = view.places
    x, y = frame.px(before[i]), frame.py(before[j])
    u, v = (np.nan_to_num(p, nan=AWAY) for p in (frame.px(after[i]), frame.py(after[j])))
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
            "across": markup.fitted(axis.label, width),
            "up": markup.fitted(axis.label, height),
            "low": low,
            "high": high,
            "ticks": ticks(low, high),
            "says": [markup.written(tick) for tick in ticks(low, high)],
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
        "before": markup.rounded(before),
        "after": markup.rounded(after),
        "budget": markup.rounded(budget, 8),
        "spend": markup.rounded(spend, 8),
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
        # the curve has corners between the stops
        grid = np.linspace(0.0, end, POINTS)
        curves = [
            (np.array([0.0, end]), np.full(2, audit.constant_accuracy()), "reference"),
            (deltas, np.asarray(audit.chance_accuracy(deltas)), "chance"),
            (grid, np.asarray(audit.accuracy(grid)), "own"),
        ]
        y = (0.0, 1.02)
    else:
        values, label = view.risk, "worst-case loss"
        curves = [(deltas, values, "own")]
        low, high = spread(np.append(0.0, values[np.isfinite(values)]))
        y = (max(low, 0.0), high)
    if view.fitted is not None:
        curves.append((np.full(2, deltas[view.fitted]), np.array(y), "fitted"))
    frame = Frame(*CHART, (0.0, end), y)
    bounded = np.isfinite(values)
    across, up = frame.px(deltas), np.where(bounded, frame.py(np.where(bounded, values, 0)), AWAY)
    places = np.round(np.column_stack([across, up]), 1).tolist()
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


def path_chart(path: Any, delta: float, score_is_loss: bool) -> str:
    """Return risks and, where it is a loss, the score of the folds along the path of a fit."""
    # delta = 0 has no place on a logarithmic axis
    seen = path.deltas > 0
    deltas = np.log10(path.deltas[seen])
    curves = [
        (deltas, over_classes(path.robust_risk)[seen], "own"),
        (deltas, over_classes(path.empirical_risk)[seen], "plain"),
    ]
    if path.score_mean is not None and score_is_loss:
        curves.append((deltas, -path.score_mean[seen], "folds"))
    y = spread(np.concatenate([values for _, values, _ in curves]))
    if delta > 0:
        curves.append((np.full(2, np.log10(delta)), np.array(y), "fitted"))
    x = (float(deltas.min()), float(deltas.max()))
    frame = Frame(*CHART, x, y, logarithmic=True)
    return _chart(frame, "Losses along the path of deltas", ("delta", "loss"), curves)


def calibration_chart(bins: Array, labels: tuple[str, str]) -> str:
    """Return what was observed against what was predicted, in bins; the diagonal is perfect."""
    limits = spread(bins[:, :2])
    ends, frame = np.array(limits), Frame(*CHART, limits, limits)
    marks = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3"/>'
        for a, b in zip(frame.px(bins[:, 0]), frame.py(bins[:, 1]), strict=True)
    )
    curves = [(ends, ends, "plain"), (bins[:, 0], bins[:, 1], "own")]
    title = "Calibration: observed against predicted in bins of held-out rows"
    return _chart(frame, title, labels, curves, f'<g class="dots own">{marks}</g>')


def roc_chart(rates: Array, area: float) -> str:
    """Return true against false positive rates."""
    ends, frame = np.array([0.0, 1.0]), Frame(*CHART, (0.0, 1.0), (0.0, 1.02))
    curves = [(ends, ends, "plain"), (rates[:, 0], rates[:, 1], "own")]
    title = f"ROC curve of held-out rows, area {area:.3f}"
    return _chart(frame, title, ("false positive rate", "true positive rate"), curves)


def instability_chart(stability: Stability) -> str:
    """Return the range of the refits of each row against its prediction."""
    order = np.argsort(stability.prediction, kind="stable")
    order = order[np.linspace(0, len(order) - 1, min(len(order), SHOWN)).astype(int)]
    x, ends = stability.prediction[order], stability.interval[order]
    limits = spread(np.concatenate([x, ends.ravel()]))
    frame = Frame(*CHART, limits, limits)
    lines = "".join(
        f'<line x1="{a:.1f}" x2="{a:.1f}" y1="{b:.1f}" y2="{c:.1f}"/>'
        for a, (b, c) in zip(frame.px(x), frame.py(ends), strict=True)
    )
    title = "95% of the refits of each row against its prediction"
    labels = (stability.quantity, "the same by refits")
    return _chart(frame, title, labels, [(x, x, "plain")], f'<g class="ranges">{lines}</g>')


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
