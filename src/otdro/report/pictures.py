"""The pictures of the page: rows with the adversary's moves, curves over delta, and their texts."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inspection import Stability
from ..inspection.auditing import Change
from ..inspection.certificate import boundary_lines
from ..radius.grid import over_classes
from .markup import (
    AWAY,
    Frame,
    isolated,
    marker,
    number,
    percent,
    picture,
    plain,
    rounded,
    spread,
    ticks,
    written,
)
from .view import View, plane_slopes

Array = NDArray[Any]

#: Size of the picture of rows, in units of its view box.
WIDTH, HEIGHT = 600.0, 440.0
#: Size of a chart.
CHART_WIDTH, CHART_HEIGHT = 420.0, 250.0
#: Points of the accuracy curve.
POINTS = 241
#: Rows whose range of refits is drawn.
DRAWN = 300
#: Columns that the text of a row names.
NAMED = 3


def scene(view: View) -> str:
    """Return the picture at the first stop, which the script goes on from."""
    frame = _frame(view)
    i, j = view.chosen
    stop = view.stops.first
    model = view.audit.model
    refit = view.stops.refits[stop]
    dashed = _lines(view, refit.coef, refit.intercept, frame) if refit is not None else ""
    clip = (
        f'<defs><clipPath id="inside"><rect x="{frame.left:g}" y="{frame.top:g}" '
        f'width="{frame.inner_width:g}" height="{frame.inner_height:g}"/></clipPath></defs>'
    )
    content = (
        f"{clip}{frame.axes(view.axes[i].label, view.axes[j].label)}"
        f'<g clip-path="url(#inside)">{_points(view, frame, float(view.stops.deltas[stop]))}'
        f'<g id="refit-lines">{dashed}</g>'
        f'<g id="own-lines">{_lines(view, model.coef, model.intercept, frame)}</g>'
        f'<circle id="ring" r="8" cx="{AWAY:g}" cy="{AWAY:g}"/></g>'
    )
    title = "Rows in two axes, where the adversary takes them, and the boundary of the model"
    return picture(
        WIDTH, HEIGHT, title, content, 'id="view" tabindex="0" aria-describedby="row-says"'
    )


def _frame(view: View) -> Frame:
    """Return the frame of the two axes at first."""
    i, j = view.chosen
    # on a phone the ticks are as wide as this
    return Frame(WIDTH, HEIGHT, view.ranges[i], view.ranges[j], left=84.0)


def _lines(view: View, coef: Array, intercept: Array, frame: Frame) -> str:
    if view.audit.classes is None:
        return ""
    first, second = (view.directions[k] for k in view.chosen)
    slopes = plane_slopes(coef, first, second)
    box = np.array([[frame.x[0], frame.y[0]], [frame.x[1], frame.y[1]]])
    center = view.directions[list(view.chosen)] @ view.center
    return "".join(
        '<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"/>'.format(
            *(v for x, y in segment for v in (float(frame.px(x)), float(frame.py(y))))
        )
        for segment in boundary_lines(coef @ view.center + intercept, slopes, center, box)
    )


def _points(view: View, frame: Frame, delta: float) -> str:
    i, j = view.chosen
    before, after = view.places
    x, y = frame.px(before[i]), frame.py(before[j])
    u, v = (np.nan_to_num(p, nan=AWAY) for p in (frame.px(after[i]), frame.py(after[j])))
    share = view.shares(delta)
    moves, starts, ends = [], [], []
    for k, c in enumerate(view.marks):
        mark = marker(int(c))
        seen = "visible" if share[k] > 0 else "hidden"
        moves.append(
            f'<line x1="{x[k]:.1f}" y1="{y[k]:.1f}" x2="{u[k]:.1f}" y2="{v[k]:.1f}" '
            f'visibility="{seen}"/>'
        )
        starts.append(
            f'<path {mark} transform="translate({x[k]:.1f} {y[k]:.1f})" '
            f'opacity="{1 - 0.7 * share[k]:.2f}"/>'
        )
        ends.append(
            f'<path {mark} transform="translate({u[k]:.1f} {v[k]:.1f})" opacity="{share[k]:.2f}"/>'
        )
    groups = (("moves", moves), ("starts", starts), ("ends", ends))
    return "".join(f'<g id="{name}">{"".join(parts)}</g>' for name, parts in groups)


def script_data(
    view: View, texts: list[dict[str, str]], cursors: dict[str, list[list[float]]]
) -> dict[str, Any]:
    """Return all that the script needs, in lists, numbers and strings."""
    frame = _frame(view)
    before, after = view.places
    budget, spend = view.budgets
    model = view.audit.model
    drawn = view.audit.classes is not None
    return {
        "frame": [frame.left, frame.top, frame.inner_width, frame.inner_height],
        "axes": [_axis(view, k) for k in range(len(view.axes))],
        "gram": (view.directions @ view.directions.T).tolist(),
        "own": _projected(view, model.coef, model.intercept) if drawn else None,
        "refits": [
            _projected(view, r.coef, r.intercept) if drawn and r is not None else None
            for r in view.stops.refits
        ],
        "deltas": view.stops.deltas.tolist(),
        "texts": texts,
        "before": rounded(before),
        "after": rounded(after),
        "budget": rounded(budget, 8),
        "spend": rounded(spend, 8),
        "rows": view.rows.tolist(),
        "says": [row_text(view, int(k)) for k in view.rows],
        "cursors": cursors,
    }


def _axis(view: View, k: int) -> dict[str, Any]:
    low, high = view.ranges[k]
    frame = _frame(view)
    return {
        "across": frame.across(view.axes[k].label),
        "up": frame.up(view.axes[k].label),
        "low": low,
        "high": high,
        "ticks": ticks(low, high),
        "says": [written(tick) for tick in ticks(low, high)],
        "center": float(view.directions[k] @ view.center),
    }


def _projected(view: View, coef: Array, intercept: Array) -> dict[str, Any]:
    at_center = coef @ view.center + intercept
    return {"at": at_center.tolist(), "slopes": (coef @ view.directions.T).tolist()}


def axis_options(view: View, chosen: int) -> str:
    """Return the choices of a list of axes, by kind."""
    kinds = list(dict.fromkeys(axis.kind for axis in view.axes))
    parts = []
    for kind in kinds:
        inner = "".join(
            f'<option value="{k}"{" selected" if k == chosen else ""}>{escape(axis.label)}</option>'
            for k, axis in enumerate(view.axes)
            if axis.kind == kind
        )
        parts.append(f'<optgroup label="{kind}">{inner}</optgroup>')
    return "".join(parts)


def accuracy_chart(view: View) -> tuple[str, list[list[float]]]:
    """Return certified accuracy against delta, and where its cursor stands at every stop."""
    audit, stops = view.audit, view.stops
    end = float(stops.deltas[-1])
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, (0.0, end), (0.0, 1.02))
    grid = np.linspace(0.0, end, POINTS)
    parts = [frame.axes("delta: mean cost of the moves", "certified accuracy")]
    parts.append(frame.level(audit.constant_accuracy(), "reference"))
    parts += _marks(frame, view, "accuracy")
    parts.append(frame.curve(stops.deltas, stops.chance, "chance"))
    parts.append(frame.curve(grid, np.asarray(audit.accuracy(grid)), "own"))
    title = (
        f"Certified accuracy falls from {stops.accuracy[0]:.1%} at delta 0 to "
        f"{stops.accuracy[-1]:.1%} at delta {end:.3g}"
    )
    return _with_cursor(frame, "accuracy", parts, stops.accuracy, view, title)


def risk_chart(view: View) -> tuple[str, list[list[float]]]:
    """Return worst-case loss against delta, and where its cursor stands at every stop."""
    stops = view.stops
    finite = stops.risk[np.isfinite(stops.risk)]
    low, high = spread(np.append(0.0, finite))
    end = float(stops.deltas[-1])
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, (0.0, end), (max(low, 0.0), high))
    parts = [frame.axes("delta: mean cost of the moves", "worst-case loss")]
    parts += _marks(frame, view, "robust_risk")
    parts.append(frame.curve(stops.deltas, stops.risk, "own"))
    title = f"Worst-case loss rises from {stops.risk[0]:.3g} to {stops.risk[-1]:.3g}"
    return _with_cursor(frame, "risk", parts, stops.risk, view, title)


def _marks(frame: Frame, view: View, name: str) -> list[str]:
    """Return the line of the fitted delta, and a figure of the best model for each delta."""
    stops = view.stops
    marks = []
    if stops.fitted is not None:
        marks.append(frame.upright(float(stops.deltas[stops.fitted]), "fitted"))
    if view.has_refits:
        values = [np.nan if refit is None else getattr(refit, name) for refit in stops.refits]
        marks.append(frame.curve(stops.deltas, np.array(values), "refit"))
    return marks


def _with_cursor(
    frame: Frame, name: str, parts: list[str], values: Array, view: View, title: str
) -> tuple[str, list[list[float]]]:
    """Return a chart whose cursor is at the first stop, and the places of the cursor."""
    x = frame.px(view.stops.deltas)
    bounded = np.isfinite(values)
    y = np.where(bounded, frame.py(np.where(bounded, values, 0.0)), AWAY)
    places = [[round(float(a), 1), round(float(b), 1)] for a, b in zip(x, y, strict=True)]
    a, b = places[view.stops.first]
    base = frame.top + frame.inner_height
    cursor = (
        f'<g class="cursor" id="cursor-{name}"><line x1="{a}" x2="{a}" y1="{frame.top:g}" '
        f'y2="{base:g}"/><circle cx="{a}" cy="{b}" r="4.5"/></g>'
    )
    return picture(frame.width, frame.height, title, "".join(parts) + cursor), places


def path_chart(path: Any, delta: float, score_is_loss: bool) -> str:
    """Return risks and, where it is a loss, the score of the folds along the path of a fit."""
    deltas = np.log10(path.deltas)
    robust = over_classes(path.robust_risk)
    plain = over_classes(path.empirical_risk)
    curves = [(robust, "own"), (plain, "plain")]
    if path.score_mean is not None and score_is_loss:
        curves.append((-path.score_mean, "folds"))
    low, high = spread(np.concatenate([values for values, _ in curves]))
    across = (float(deltas.min()), float(deltas.max()))
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, across, (low, high), logarithmic=True)
    parts = [frame.axes("delta", "loss")]
    if delta > 0:
        parts.append(frame.upright(float(np.log10(delta)), "fitted"))
    parts += [frame.curve(deltas, values, kind) for values, kind in curves]
    return picture(frame.width, frame.height, "Losses along the path of deltas", "".join(parts))


def calibration_chart(bins: Array, labels: tuple[str, str]) -> str:
    """Return what was observed against what was predicted, in bins; the diagonal is perfect."""
    low, high = spread(bins[:, :2])
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, (low, high), (low, high))
    ends = np.array([low, high])
    parts = [frame.axes(*labels), frame.curve(ends, ends, "plain")]
    parts += [frame.curve(bins[:, 0], bins[:, 1], "own"), frame.dots(bins[:, 0], bins[:, 1], "own")]
    title = "Calibration: observed against predicted in bins of held-out rows"
    return picture(frame.width, frame.height, title, "".join(parts))


def roc_chart(rates: Array, area: float) -> str:
    """Return true against false positive rates."""
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, (0.0, 1.0), (0.0, 1.02))
    ends = np.array([0.0, 1.0])
    parts = [frame.axes("false positive rate", "true positive rate")]
    parts += [frame.curve(ends, ends, "plain"), frame.curve(rates[:, 0], rates[:, 1], "own")]
    title = f"ROC curve of held-out rows, area {area:.3f}"
    return picture(frame.width, frame.height, title, "".join(parts))


def instability_chart(stability: Stability) -> str:
    """Return the range of the refits of each row against its prediction."""
    order = np.argsort(stability.prediction, kind="stable")
    order = order[np.linspace(0, len(order) - 1, min(len(order), DRAWN)).astype(int)]
    x, ends = stability.prediction[order], stability.interval[order]
    limits = spread(np.concatenate([x, ends.ravel()]))
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, limits, limits)
    lines = "".join(
        f'<line x1="{a:.1f}" x2="{a:.1f}" y1="{b:.1f}" y2="{c:.1f}"/>'
        for a, (b, c) in zip(frame.px(x), frame.py(ends), strict=True)
    )
    parts = [frame.axes(stability.quantity, "the same by refits")]
    parts += [f'<g class="ranges">{lines}</g>', frame.curve(x, x, "plain")]
    title = "95% of the refits of each row against its prediction"
    return picture(frame.width, frame.height, title, "".join(parts))


def stop_texts(view: View) -> list[dict[str, str]]:
    """Return what the page prints at every stop."""
    n = len(view.audit.weights)
    texts = []
    for k, delta in enumerate(view.stops.deltas):
        refit = view.stops.refits[k]
        of_the_fit = ", the delta of the fit" if k == view.stops.fitted else ""
        texts.append(
            {
                "delta": number(delta),
                "words": plain(view.audit.in_words(float(delta)), 160) + of_the_fit,
                "accuracy": percent(view.stops.accuracy[k]),
                "risk": number(view.stops.risk[k]),
                "chance": percent(view.stops.chance[k]),
                "wrong": f"{view.made_wrong(float(delta)):,} of {n:,}",
                "refit-accuracy": "–" if refit is None else percent(refit.accuracy),
                "refit-risk": "–" if refit is None else number(refit.robust_risk),
                "refit-plain": "–" if refit is None else number(refit.empirical_risk),
            }
        )
    return texts


def row_text(view: View, k: int) -> str:
    """Return one line on a drawn row."""
    distance = float(view.audit.distance[k])
    head = f"Row {view.row_name(k)}, {label(view, k)}"
    if distance == 0:
        return f"{head}: wrong without any move."
    if not np.isfinite(view.audit.price[k]):
        return f"{head}: no move makes it wrong."
    turn = number(view.all_budgets[0][k])
    if view.audit.part_moved[k] == 0:
        return f"{head}: {change_text(view, k)} above delta {turn}."
    return (
        f"{head}: {number(distance)} from a flip, moved above delta {turn}; {change_text(view, k)}."
    )


def label(view: View, k: int) -> str:
    """Return the class or the target of a row."""
    if view.audit.classes is None:
        return f"target {number(view.audit.target[k])}"
    return isolated(view.audit.classes[int(view.audit.target[k])])


def change_text(view: View, k: int) -> str:
    """Return what the counterfactual of a drawn row changes, largest first."""
    if view.audit.part_moved[k] == 0:
        return f"its {'target' if view.audit.classes is None else 'label'} is changed"
    i = int(np.searchsorted(view.rows, k))
    changed = view.sample.changes(i)
    parts = []
    for change in changed[:NAMED]:
        parts.append(f"{isolated(change.column, 24)} {_step(change)}")
    rest = len(changed) - len(parts)
    return ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")


def _step(change: Change) -> str:
    """Return a change of one column from one value to another."""
    if isinstance(change.before, str) or isinstance(change.after, str):
        ends = (isolated(end, 20) for end in (change.before, change.after))
        return f"{' → '.join(ends)} ({percent(change.amount)} of the way)"
    before, after = number(change.before), number(change.after)
    # three digits may hide a small change
    step = f"{before} by {change.after - change.before:+.2g}".replace("-", "−")
    return f"{before} → {after}" if before != after else step
