"""What to do next: sentences that follow from the figures of the audit."""

from __future__ import annotations

from html import escape

import numpy as np

from .markup import isolated, number, percent
from .view import View

#: A mean move below this many standard deviations is within what data do by themselves.
SMALL = 0.25
#: A share of the adversary's budget that makes a column the one to watch.
LARGE = 0.3
#: Worst-case loss above the least possible one by this share is worth a new fit.
WORTH = 0.05


def advice(view: View) -> str:
    """Return the sentences as a list."""
    found = [*_margin(view), *_column(view), *_class(view), *_refit(view), *_drift(view)]
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in found) + "</ul>"


def _margin(view: View) -> list[str]:
    audit = view.audit
    broken = float(audit.breaking_point("constant"))
    if broken == 0:
        return [
            "The model is no better than a constant one on these rows: look at the target and the "
            "columns before anything else."
        ]
    found = audit.columns
    first = int(found.order()[0])
    alone = float(found.deviations[first])
    if alone < SMALL:
        return [
            f"Moving {isolated(found.names[first])} alone, by a mean of {number(alone)} standard "
            "deviations, makes it no better than a constant. Do not rely on it where that column "
            "drifts; fit again with a larger delta."
        ]
    return [
        f"No column alone breaks it within a mean move of {number(SMALL)} standard deviations; "
        f"the first to do so is {isolated(found.names[first])}, at {number(alone)}."
    ]


def _column(view: View) -> list[str]:
    found = view.audit.columns
    top = int(np.argmax(found.share))
    if not found.share[top] >= LARGE:
        return []
    return [
        f"Watch the column {isolated(found.names[top])}: {percent(found.share[top])} of the "
        "adversary's budget goes into it. Check how it is measured, and who can change it."
    ]


def _class(view: View) -> list[str]:
    audit = view.audit
    if audit.classes is None:
        return []
    delta = float(view.stops.deltas[view.stops.first])
    values = {c: float(audit.accuracy(delta, class_=c)) for c in audit.present_classes}
    worst = min(values, key=values.__getitem__)
    return [
        f"The weakest class is {isolated(worst)}: at delta "
        f"{number(delta)} an adversary that attacks it alone leaves {percent(values[worst])} of "
        "its rows right. More of its rows, or a larger class_weight, would help first."
    ]


def _refit(view: View) -> list[str]:
    stop = view.stops.first
    refit = view.refit_at(stop)
    risk = float(view.stops.risk[stop])
    if refit is None or not np.isfinite(risk):
        return []
    delta = number(view.stops.deltas[stop])
    if risk <= (1 + WORTH) * refit.robust_risk:
        return [
            f"No linear model does much better against delta {delta} on these rows: worst-case "
            f"loss {number(risk)}, the least possible {number(refit.robust_risk)}."
        ]
    return [
        f"A model fitted for delta {delta} on these rows has worst-case loss "
        f"{number(refit.robust_risk)} instead of {number(risk)}: fit one with delta={delta}."
    ]


def _drift(view: View) -> list[str]:
    drift = view.audit.drift
    if drift is None:
        return [
            "Before deployment, guard it: otdro audit MODEL DATA --target COL "
            "--require-accuracy A --at-delta D ends with 3 where the bound is not met."
        ]
    moved = isolated(drift.columns.names[int(drift.columns.order()[0])])
    known = {
        "inside": "The new rows are within what was certified: keep watching them.",
        "outside": (
            f"The new rows are farther away than what was certified, {moved} farthest: find out "
            "why, label some of them, and fit again with them or with a larger delta."
        ),
        "cannot tell": (
            "Whether the new rows are within what was certified cannot be told: gather more of "
            "them, with labels."
        ),
    }
    return [known[drift.verdict]] if drift.verdict in known else []
