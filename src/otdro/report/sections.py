"""The sections of the page, as HTML: how good, how far from breaking, the cost, drift, advice."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..comparison import Summary
from ..inspection import Audit, Drift
from ..inspection.certificate import unit_prices
from ..inspection.summary import cost_name
from .markup import bar, isolated, name, number, percent, plain, table
from .pictures import change_text, label, path_chart
from .view import View

#: Lines of a table; what is left out is counted.
LINES = 15
#: Letters of a cost that is written out.
SHORT = 24
#: Levels of accuracy whose breaking points are given, as shares of the accuracy without moves.
KEPT = (0.9, 0.75, 0.5)
#: A mean move below this many standard deviations is within what data do by themselves.
SMALL = 0.25
#: A share of the adversary's budget that makes a column the one to watch.
LARGE = 0.3
#: Worst-case loss above the least possible one by this share is worth a new fit.
WORTH = 0.05
ANSWERS = {
    "inside": "The new rows are inside the ball.",
    "outside": "The new rows are outside the ball.",
    "cannot tell": "At this size one cannot tell whether the new rows are inside the ball.",
}


def lead(view: View) -> str:
    """Return the first sentences: what was audited, and the two figures that matter most."""
    audit, stops = view.audit, view.stops
    n, d = len(audit.weights), len(audit.names)
    right = "right" if audit.tau is None else f"within {number(audit.tau)} of the target"
    broken = float(audit.breaking_point("constant"))
    sentences = [
        f"{n:,} rows, {d:,} columns. The model is {right} on {percent(stops.accuracy[0])} of "
        f"them; a constant model on {percent(audit.constant_accuracy())}.",
        f"Moves of mean cost {number(broken)} make it no better than the constant one"
        f"{_in_words(audit, broken)}."
        if np.isfinite(broken)
        else "No move of the rows makes it as bad as the constant one.",
    ]
    if stops.fitted is not None:
        sentences.append(
            f"It was fitted for delta = {number(stops.deltas[stops.fitted])}, and within that no "
            f"distribution leaves it below {percent(stops.accuracy[stops.fitted])}."
        )
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _in_words(audit: Audit, delta: float) -> str:
    return f": {plain(audit.in_words(delta), 160)}"


def goodness(view: View, model: Any, scores: Sequence[Summary]) -> str:
    """Return how good the model is, compared with what."""
    audit, stops = view.audit, view.stops
    own = [percent(stops.accuracy[0]), number(stops.risk[0])]
    rows = [["this model", *own], ["constant model", percent(audit.constant_accuracy()), ""]]
    head = ["on these rows", "right", "mean loss"]
    parts = [table(head, rows, "These rows as they are"), *_comparisons(scores), _fit(model)]
    path = getattr(model, "path_", None)
    if path is not None and len(path.deltas) > 1:
        chart = path_chart(path, float(model.delta_), model.scoring is None)
        text = "Along the deltas that the folds tried: robust risk (solid), empirical risk (dots)"
        held = ", loss of held-out rows (dashes)" if model.scoring is None else ""
        parts.append(_figure(chart, f"{text}{held}. The upright line is the chosen delta."))
    return "".join(parts)


def _comparisons(scores: Sequence[Summary]) -> list[str]:
    """Return one table per measure of held-out rows."""
    found = []
    for measure in dict.fromkeys(score.measure for score in scores):
        lines = [
            [
                escape("otdro" if s.method == "ours" else s.method),
                f"{number(s.mean)} ± {number(s.se)}",
                "" if s.method == "ours" else f"{number(s.difference)} ± {number(s.difference_se)}",
            ]
            for s in scores
            if s.measure == measure
        ]
        caption = f"{escape(measure)} of held-out rows (mean ± standard error over folds)"
        found.append(table(["model", "mean", "minus otdro"], lines, caption))
    return found


def _fit(model: Any) -> str:
    """Return what an estimator of otdro stored of its fit."""
    if not hasattr(model, "robust_risk_"):
        return ""
    lines = [
        ["delta", number(model.delta_)],
        ["empirical risk", _numbers(model.empirical_risk_)],
        ["robust risk", _numbers(model.robust_risk_)],
        ["certified to (gap)", _numbers(model.gap_)],
        ["cost", escape(cost_name(model.cost_, SHORT))],
        ["order", str(int(model.ball_.order))],
    ]
    return table(["the fit", "value"], lines, "The robust fit")


def _numbers(values: Any) -> str:
    return ", ".join(number(v) for v in np.ravel(values)[:6])


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def breaking(view: View) -> str:
    """Return breaking points, overall, by class and by group."""
    audit = view.audit
    parts: list[tuple[str, dict[str, Any]]] = [("all rows", {})]
    parts += [(name(c), {"class_": c}) for c in audit.present_classes]
    parts += [(f"group {name(g)}", {"group": g}) for g in audit.present_groups]
    lines = [[label, *_points(view, key)] for label, key in parts[: 2 * LINES]]
    at = "the fitted delta"
    if view.stops.fitted is None:
        at = f"delta {number(view.stops.deltas[view.stops.first])}"
    head = ["rows", "right", f"certified at {at}", *(f"{share:.0%} of it left" for share in KEPT)]
    caption = "Breaking points: the delta at which accuracy can fall to a share of what it is"
    return table(head, lines, caption) + _left_out(len(parts), len(lines), "classes and groups")


def _points(view: View, key: dict[str, Any]) -> list[str]:
    audit = view.audit
    accuracy = float(audit.accuracy(0.0, **key))
    first = float(view.stops.deltas[view.stops.first])
    points = [number(audit.breaking_point(share * accuracy, **key)) for share in KEPT]
    return [percent(accuracy), percent(audit.accuracy(first, **key)), *points]


def columns(view: View) -> str:
    """Return what each column is to the adversary."""
    found = view.audit.columns
    order = found.order()
    lines = [
        [
            name(found.names[j]),
            bar(found.share[j], percent(found.share[j])),
            number(found.breaking_point[j]),
            number(found.deviations[j]),
        ]
        for j in order[:LINES]
    ]
    head = ["column", "share of the budget", "breaks the model alone at delta", "in deviations"]
    caption = "Columns, the one that breaks the model most easily first"
    return table(head, lines, caption) + _left_out(len(order), len(lines), "columns")


def first_rows(view: View) -> str:
    """Return the rows that the adversary moves first, with their counterfactuals."""
    audit = view.audit
    # the first rows are always among those that are drawn
    shown = view.first_moved[:LINES]
    lines = [
        [
            f'<button type="button" data-row="{k}">{k}</button>',
            escape(label(view, k)),
            _flips(audit, k),
            f'<span class="long">{escape(change_text(view, k))}</span>',
            number(audit.distance[k]),
        ]
        for k in (int(row) for row in shown)
    ]
    head = ["row", "is", "becomes", "by this change", "distance"]
    caption = "Rows that the adversary moves first (a button shows the row in the picture)"
    return table(head, lines, caption, words=4)


def _flips(audit: Audit, k: int) -> str:
    if audit.classes is None:
        return "too high" if audit.flips_to[k] > 0 else "too low"
    return escape(isolated(audit.flips_to[k]))


def cost(view: View, model: Any) -> str:
    """Return what the cost charges, and which costs were compared."""
    audit = view.audit
    found = audit.cost.table(audit.names, scale=audit.scale)
    low, high = found.cheapest, found.most_expensive
    top = float(found.price.max(initial=0.0)) or 1.0
    order = np.argsort(-found.price.round(12), kind="stable")
    lines = [
        [name(found.names[j]), bar(found.price[j] / top, number(found.price[j]))]
        for j in order[:LINES]
    ]
    words = _direction("cheapest", low, found.names) + _direction(
        "most expensive", high, found.names
    )
    if _same_everywhere(audit):
        words = f"<p>{_unlearned(model)}</p>"
    caption = "Price of moving a column by one standard deviation, the most expensive first"
    prices = table(["column", "price"], lines, caption)
    return words + prices + _left_out(len(order), len(lines), "columns") + _candidates(model)


def _unlearned(model: Any) -> str:
    """Return why a unit of every column costs the same."""
    tried = len(getattr(getattr(model, "path_", None), "candidates", []))
    why = (
        "Learned costs were tried, and the folds preferred one that knows no direction"
        if tried > 1
        else "Nothing was learned about directions (cost='learned' would)"
    )
    return (
        f"{why}: a unit of every column costs the same, and the prices below differ only as the "
        "standard deviations of the columns do."
    )


def _same_everywhere(audit: Audit) -> bool:
    """Whether a unit move costs the same in every column."""
    units = unit_prices(audit.cost, len(audit.names))
    learned = audit.cost.matrix is not None
    return not learned and bool(np.ptp(units) <= 1e-9 * units.max())


def _direction(word: str, direction: Any, names: list[str]) -> str:
    order = np.argsort(-np.abs(direction.loadings), kind="stable")[:4]
    parts = [
        f"{direction.loadings[j]:+.2f}&nbsp;{name(names[j], 28)}".replace("-", "−", 1)
        for j in order
        if abs(direction.loadings[j]) >= 0.05
    ]
    price = number(direction.price)
    return f"<p>The {word} direction costs {price} per deviation: {', '.join(parts)}.</p>"


def _candidates(model: Any) -> str:
    found = getattr(getattr(model, "path_", None), "candidates", [])
    if len(found) < 2:
        return ""
    lines = [
        [
            escape(plain(c.name)) + (" (chosen)" if c.chosen else ""),
            number(c.delta),
            number(c.score),
        ]
        for c in sorted(found, key=lambda c: c.criterion)[:LINES]
    ]
    return table(["cost", "delta", "fold score"], lines, "Costs that the folds compared")


def _left_out(total: int, shown: int, what: str) -> str:
    return (
        f'<p class="note">{total - shown:,} more {what} are not shown.</p>' if total > shown else ""
    )


def drifted(found: Drift | None) -> str:
    """Return the drift of new rows, or how to measure it."""
    if found is None:
        return (
            "<p>No new rows were given. <code>otdro audit MODEL DATA --target COL --new NEW"
            "</code>, or <code>otdro.audit(model, X, y, new=new)</code>, measures how far new "
            "rows are from these and whether the model is still certified there.</p>"
        )
    answer = ANSWERS.get(found.verdict or "", "There is no ball to compare the new rows with.")
    reason = plain(found.reason, 400)
    sentence = f"{answer} {reason[:1].upper()}{reason[1:]}"
    tables = [_figures(found), _accuracies(found), _labels(found), _drifted_columns(found)]
    return f'<p class="verdict">{escape(sentence)}</p><div class="flow">{"".join(tables)}</div>'


def _figures(found: Drift) -> str:
    reference, new = found.rows_used
    lines = [
        [f"transport cost of {reference:,} and {new:,} rows", number(found.estimate)],
        ["the same between random parts of the reference", number(found.noise_floor)],
    ]
    lines += [
        [f"at least, by the {escape(key)} bound", number(value)]
        for key, value in found.lower_bounds.items()
        if value is not None
    ]
    if found.delta is not None:
        lines.append(["delta of the ball", number(found.delta)])
    lines.append(["p-value", number(found.p_value)])
    caption = f"{found.n_new:,} new rows beside {found.n_reference:,}"
    return table(["drift", "value"], lines, caption)


def _accuracies(found: Drift) -> str:
    words = {
        "reference": "these rows",
        "reweighted": "these rows, with the new class shares",
        "new": "the new rows",
    }
    known = [
        [words[key], percent(value)] for key, value in found.accuracy.items() if value is not None
    ]
    if found.certified_accuracy is not None:
        known.append(["certified this far away", percent(found.certified_accuracy)])
    return table(["accuracy on", "right"], known, "Was the certificate kept?") if known else ""


def _labels(found: Drift) -> str:
    shift = found.label_shift
    if shift is None or shift.labels is None:
        return ""
    rows = zip(shift.labels, shift.reference, shift.new, strict=True)
    lines = [[name(label), percent(p), percent(q)] for label, p, q in rows]
    caption = "Class shares: labels do not move, so a change of these is outside every ball"
    return table(["class", "these rows", "new rows"], lines[:LINES], caption)


def _drifted_columns(found: Drift) -> str:
    columns = found.columns
    top = float(np.max(columns.distance, initial=0.0)) or 1.0
    lines = [
        [
            name(columns.names[j]),
            bar(columns.distance[j] / top, number(columns.distance[j])),
            number(columns.shift[j]),
            number(columns.p_value[j]),
        ]
        for j in columns.order()[:LINES]
    ]
    head = ["column", "mean move, in deviations", "change of the mean", "p-value"]
    return table(head, lines, "Columns that moved, the farthest first")


def advice(view: View) -> str:
    """Return the sentences as a list."""
    found = [*_margin(view), *_column(view), *_class(view), *_refit(view), *_drift_advice(view)]
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
    refit = view.stops.refits[stop]
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


def _drift_advice(view: View) -> list[str]:
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
