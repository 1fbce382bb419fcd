"""The picture of the view at its first stop, and what the script needs to go on from there."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inspection.certificate import boundary_lines
from .axes import section
from .markup import rounded
from .svg import AWAY, Frame, marker, picture, ticks, written
from .view import View
from .words import row_text

Array = NDArray[Any]

WIDTH, HEIGHT = 600.0, 440.0


def scene(view: View) -> str:
    """Return the picture at the first stop, which the script goes on from."""
    frame = _frame(view)
    i, j = view.chosen
    stop = view.stops.first
    model = view.audit.model
    refit = view.refit_at(stop)
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
    return Frame(WIDTH, HEIGHT, view.ranges[i], view.ranges[j])


def _lines(view: View, coef: Array, intercept: Array, frame: Frame) -> str:
    if view.audit.classes is None:
        return ""
    first, second = (view.directions[k] for k in view.chosen)
    slopes = section(coef, first, second)
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
    refits = [view.refit_at(k) for k in range(len(view.stops.deltas))]
    return {
        "frame": [frame.left, frame.top, frame.inner_width, frame.inner_height],
        "axes": [_axis(view, k) for k in range(len(view.axes))],
        "gram": (view.directions @ view.directions.T).tolist(),
        "own": _projected(view, model.coef, model.intercept) if drawn else None,
        "refits": [
            _projected(view, r.coef, r.intercept) if drawn and r is not None else None
            for r in refits
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
