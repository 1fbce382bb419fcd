"""The pictures of the page: rows with the adversary's moves, curves over delta, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
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
    model = view.audit.model
    refit = view.refits[view.first]
    dashed = _lines(view, refit.coef, refit.intercept, frame) if refit is not None else ""
    clip = (
        f'<defs><clipPath id="inside"><rect x="{frame.left:g}" y="{frame.top:g}" '
        f'width="{frame.inner_width:g}" height="{frame.inner_height:g}"/></clipPath></defs>'
    )
    content = (
        f"{clip}{frame.axes(view.axes[i].label, view.axes[j].label)}"
        f'<g clip-path="url(#inside)">{_points(view, frame, float(view.deltas[view.first]))}'
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
    share = view.audit.moved_share(delta)[view.rows]
    groups: dict[str, list[str]] = {"moves": [], "starts": [], "ends": []}
    for k, c in enumerate(view.marks):
        mark = marker(int(c))
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


def script_data(
    view: View, texts: list[dict[str, str]], cursors: dict[str, list[list[float]]]
) -> dict[str, Any]:
    """Return all that the script needs, in lists, numbers and strings."""
    frame = _frame(view)
    before, after = view.places
    budget, spend = (values[view.rows] for values in view.budgets)
    model = view.audit.model
    drawn = view.audit.classes is not None
    return {
        "frame": [frame.left, frame.top, frame.inner_width, frame.inner_height],
        "axes": [_axis(view, k) for k in range(len(view.axes))],
        "gram": (view.directions @ view.directions.T).tolist(),
        "own": _projected(view, model.coef, model.intercept) if drawn else None,
        "refits": [
            _projected(view, r.coef, r.intercept) if drawn and r is not None else None
            for r in view.refits
        ],
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


def slider_chart(view: View, measure: str) -> tuple[str, list[list[float]]]:
    """Return "accuracy" or "risk" against delta, and where its cursor stands at every stop."""
    audit, deltas = view.audit, view.deltas
    end = float(deltas[-1])
    span = np.array([0.0, end])
    if measure == "accuracy":
        values, label, best = view.accuracy, "certified accuracy", "accuracy"
        # the curve has corners between the stops
        grid = np.linspace(0.0, end, POINTS)
        curves = [
            (span, np.full(2, audit.constant_accuracy()), "reference"),
            (deltas, view.chance, "chance"),
            (grid, np.asarray(audit.accuracy(grid)), "own"),
        ]
        y = (0.0, 1.02)
    else:
        values, label, best = view.risk, "worst-case loss", "robust_risk"
        curves = [(deltas, values, "own")]
        low, high = spread(np.append(0.0, values[np.isfinite(values)]))
        y = (max(low, 0.0), high)
    if view.fitted is not None:
        curves.append((np.full(2, deltas[view.fitted]), np.array(y), "fitted"))
    refits = [np.nan if refit is None else getattr(refit, best) for refit in view.refits]
    curves.append((deltas, np.array(refits), "refit"))
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, (0.0, end), y)
    bounded = np.isfinite(values)
    across, up = frame.px(deltas), np.where(bounded, frame.py(np.where(bounded, values, 0)), AWAY)
    places = [[round(float(a), 1), round(float(b), 1)] for a, b in zip(across, up, strict=True)]
    a, b = places[view.first]
    cursor = (
        f'<g class="cursor" id="cursor-{measure}"><line x1="{a}" x2="{a}" y1="{frame.top:g}" '
        f'y2="{frame.top + frame.inner_height:g}"/><circle cx="{a}" cy="{b}" r="4.5"/></g>'
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
    return picture(frame.width, frame.height, title, f"{frame.axes(*labels)}{lines}{extra}")


def path_chart(path: Any, delta: float, score_is_loss: bool) -> str:
    """Return risks and, where it is a loss, the score of the folds along the path of a fit."""
    deltas = np.log10(path.deltas)
    curves = [
        (deltas, over_classes(path.robust_risk), "own"),
        (deltas, over_classes(path.empirical_risk), "plain"),
    ]
    if path.score_mean is not None and score_is_loss:
        curves.append((deltas, -path.score_mean, "folds"))
    y = spread(np.concatenate([values for _, values, _ in curves]))
    if delta > 0:
        curves.append((np.full(2, np.log10(delta)), np.array(y), "fitted"))
    x = (float(deltas.min()), float(deltas.max()))
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, x, y, logarithmic=True)
    return _chart(frame, "Losses along the path of deltas", ("delta", "loss"), curves)


def calibration_chart(bins: Array, labels: tuple[str, str]) -> str:
    """Return what was observed against what was predicted, in bins; the diagonal is perfect."""
    limits = spread(bins[:, :2])
    ends = np.array(limits)
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, limits, limits)
    curves = [(ends, ends, "plain"), (bins[:, 0], bins[:, 1], "own")]
    title = "Calibration: observed against predicted in bins of held-out rows"
    return _chart(frame, title, labels, curves, frame.dots(bins[:, 0], bins[:, 1], "own"))


def roc_chart(rates: Array, area: float) -> str:
    """Return true against false positive rates."""
    frame = Frame(CHART_WIDTH, CHART_HEIGHT, (0.0, 1.0), (0.0, 1.02))
    ends = np.array([0.0, 1.0])
    curves = [(ends, ends, "plain"), (rates[:, 0], rates[:, 1], "own")]
    title = f"ROC curve of held-out rows, area {area:.3f}"
    return _chart(frame, title, ("false positive rate", "true positive rate"), curves)


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
    title = "95% of the refits of each row against its prediction"
    labels = (stability.quantity, "the same by refits")
    return _chart(frame, title, labels, [(x, x, "plain")], f'<g class="ranges">{lines}</g>')


def stop_texts(view: View) -> list[dict[str, str]]:
    """Return what the page prints at every stop."""
    n = len(view.audit.weights)
    texts = []
    for k, delta in enumerate(view.deltas):
        refit = view.refits[k]
        of_the_fit = ", the delta of the fit" if k == view.fitted else ""
        texts.append(
            {
                "delta": number(delta),
                "words": plain(view.audit.in_words(float(delta)), 160) + of_the_fit,
                "accuracy": percent(view.accuracy[k]),
                "risk": number(view.risk[k]),
                "chance": percent(view.chance[k]),
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
    turn = number(view.budgets[0][k])
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
