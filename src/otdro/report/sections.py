"""The sections of the page, as HTML: how good, how far from breaking, the cost, drift, advice."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..comparison import OWN, Summary, verdict
from ..costs.table import EVEN
from ..estimators.resampling import HeldOut
from ..inspection import Audit, Drift, Stability
from ..inspection.summary import SPACES, chance_words, cost_name
from .markup import bar, isolated, name, number, percent, plain, table
from .pictures import (
    calibration_chart,
    change_text,
    instability_chart,
    label,
    path_chart,
    roc_chart,
)
from .view import View

#: Lines of a table; what is left out is counted.
LINES = 15
#: Letters of a cost that is written out.
SHORT = 24
#: Levels of accuracy whose breaking points are given, as shares of the accuracy without moves.
KEPT = (0.9, 0.75, 0.5)
#: Classes whose coefficients are shown.
CLASSES = 6
ANSWERS = {
    "inside": "The new rows are inside the ball.",
    "outside": "The new rows are outside the ball.",
    "cannot tell": "At this size one cannot tell whether the new rows are inside the ball.",
}


def lead(view: View, model: Any, scores: Sequence[Summary], rows: str, held_out: str) -> str:
    """Return the top of the page: the verdict on held-out rows, then the audit of ``rows``."""
    audit, stops = view.audit, view.stops
    n, d = len(audit.weights), len(audit.names)
    right = "right" if audit.tau is None else f"within {number(audit.tau)} of the target"
    broken = float(audit.breaking_point("constant"))
    start = f"On the {rows} ({n:,} rows, {d:,} columns)"
    sentences = [
        f"{start} the model is {right} in {percent(stops.accuracy[0])}; a constant model in "
        f"{percent(audit.constant_accuracy())}."
    ]
    held = [s for s in scores if s.method == OWN and s.measure == "accuracy"]
    if held:
        sentences[0] += f" On held-out rows it is right in {percent(held[0].mean)}."
    if np.isfinite(broken):
        sentences.append(
            "An adversary that aims at the boundary makes it no better than the constant one by "
            f"moves of mean cost {number(broken)}: {plain(audit.in_words(broken), 160)}. By "
            f"chance, {chance_words(audit, broken)}."
        )
    else:
        sentences.append("No move of the rows makes it as bad as the constant one.")
    if stops.fitted is not None:
        sentences.append(
            f"It was fitted for delta = {number(stops.deltas[stops.fitted])}: no distribution "
            f"within that of the {rows} leaves it below {percent(stops.accuracy[stops.fitted])}."
        )
    return _held_out(model, scores, held_out) + "".join(f"<p>{escape(s)}</p>" for s in sentences)


def _held_out(model: Any, scores: Sequence[Summary], held_out: str) -> str:
    """Return the verdict and the scores of held-out rows, one line per model."""
    if not scores:
        return ""
    cost = getattr(model, "cost", None)
    sentence = verdict(scores, cost if isinstance(cost, str) else None)
    measures = list(dict.fromkeys(score.measure for score in scores))
    by_model: dict[str, dict[str, Summary]] = {}
    for score in scores:
        by_model.setdefault(score.method, {})[score.measure] = score
    lines = []
    for method, by_measure in by_model.items():
        first = by_measure[measures[0]]
        difference = _with_error(first.difference, first.difference_se)
        lines.append(
            [
                escape(method),
                *(_with_error(by_measure[m].mean, by_measure[m].se) for m in measures),
                "" if method == OWN else difference,
            ]
        )
    rows = (
        f"Each held-out row was predicted by models fitted without it ({held_out}; mean ± "
        "standard error)."
    )
    head = ["model", *(escape(m) for m in measures), f"{escape(measures[0])} minus otdro"]
    return (
        f'<p class="verdict">{escape(sentence)}</p>{table(head, lines, "Held-out rows")}'
        f'<p class="note">{escape(rows)}</p>'
    )


def _with_error(mean: float, error: float) -> str:
    """Return a mean with its standard error; what rounding left of 0 is 0."""
    return f"{number(round(mean, 12) + 0.0)} ± {error:.2g}"


def goodness(view: View, model: Any, rows: str) -> str:
    """Return how good the model is on the audited rows, its coefficients, and its fit."""
    audit, stops = view.audit, view.stops
    own = [percent(stops.accuracy[0]), number(stops.risk[0])]
    lines = [["this model", *own], ["constant model", percent(audit.constant_accuracy()), ""]]
    head = ["model", "right", "mean loss"]
    parts = [table(head, lines, f"The {rows}, as they are"), _coefficients(audit), _fit(model)]
    path = getattr(model, "path_", None)
    if path is not None and len(path.deltas) > 1:
        chart = path_chart(path, float(model.delta_), model.scoring is None)
        text = "Along the deltas that the folds tried: robust risk (solid), empirical risk (dots)"
        held = ", loss of held-out rows (dashes)" if model.scoring is None else ""
        caption = f"{text}{held}. The upright line is the chosen delta."
        parts.append(_figure(chart, caption))
    return "".join(parts)


def held_out_rows(tested: HeldOut | None) -> str:
    """Return measures, confusion, calibration and ROC of rows that the models had not seen."""
    if tested is None:
        return ""
    measures = tested.measures()
    of = f"Of {tested.rows:,} training rows, each predicted by models fitted without it: "
    parts = [
        f"<h3>Held-out rows</h3><p>{escape(of + tested.folds)}.</p>",
        table(
            ["measure", "value"],
            [[escape(key), number(value)] for key, value in measures.items()],
            "Held-out rows",
        ),
    ]
    if tested.classes is not None:
        shown = tested.classes[:CLASSES]
        counts = tested.confusion()
        lines = [
            [name(label), *(f"{v:,.4g}" for v in counts[k, : len(shown)])]
            for k, label in enumerate(shown)
        ]
        caption = "Held-out rows of each class (lines) and the class predicted (columns)"
        head = ["class", *(f"predicted {name(label)}" for label in shown)]
        left = _left_out(len(tested.classes), len(shown), "classes")
        parts.append(f"<div>{table(head, lines, caption)}{left}</div>")
    bins = tested.calibration()
    if len(bins) > 1:
        labels = ("predicted", "observed")
        if tested.classes is not None:
            second = isolated(tested.classes[1], 20)
            labels = (f"predicted probability of {second}", "observed share")
        text = "Calibration on held-out rows in bins of equal size; the dotted line is perfect"
        slope = f"slope {number(measures['calibration slope'])}, 1 is perfect"
        parts.append(_figure(calibration_chart(bins, labels), f"{text} ({slope})."))
    rates = tested.roc()
    if len(rates):
        area = f"ROC curve of held-out rows, area {number(measures['AUC'])}."
        parts.append(_figure(roc_chart(rates, measures["AUC"]), area))
    return "".join(parts)


def stable(stability: Stability | None) -> str:
    """Return how much predictions depend on the rows drawn, where it was computed."""
    if stability is None:
        return ""
    title, *sentences = stability.summary().splitlines()
    sentences = [title.removeprefix("Stability: "), *sentences]
    text = "".join(f"<p>{escape(s[:1].upper() + s[1:].rstrip('.'))}.</p>" for s in sentences)
    caption = (
        "An upright line holds 95% of the refits of a training row, against its prediction; the "
        "dotted line is where both agree."
    )
    return f"<h3>Stability</h3>{text}{_figure(instability_chart(stability), caption)}"


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _coefficients(audit: Audit) -> str:
    """Return the coefficients in the audited columns, largest first."""
    model = audit.model
    coef, intercept = model.coef, model.intercept
    heads = ["coefficient"]
    if audit.classes is not None and len(audit.classes) == 2:
        coef, intercept = coef[[1]] - coef[[0]], intercept[[1]] - intercept[[0]]
        heads = [f"coefficient (above 0: towards {name(audit.classes[1])})"]
    elif audit.classes is not None:
        coef, intercept = coef[:CLASSES], intercept[:CLASSES]
        heads = [name(c) for c in audit.classes[:CLASSES]]
    order = np.argsort(-np.abs(coef).max(axis=0), kind="stable")
    lines = [[name(audit.names[j]), *(number(v) for v in coef[:, j])] for j in order[:LINES]]
    lines.append(["(intercept)", *(number(v) for v in intercept)])
    where = "" if model.front is None else f", in {SPACES[audit.space]}"
    left = _left_out(len(order), len(lines) - 1, "columns")
    if audit.classes is not None and len(audit.classes) > CLASSES:
        left += _left_out(len(audit.classes), CLASSES, "classes")
    caption = f"Coefficients{where}, largest first"
    return f"<div>{table(['column', *heads], lines, caption)}{left}</div>"


def _fit(model: Any) -> str:
    """Return what an estimator of otdro stored of its fit."""
    if not hasattr(model, "robust_risk_"):
        return ""
    # an average of models has no risk and gap of its own
    figures = {
        "empirical risk": "empirical_risk_",
        "robust risk": "robust_risk_",
        "certified to (gap)": "gap_",
    }
    lines = [["delta", number(model.delta_)]]
    lines += [[key, _numbers(getattr(model, a))] for key, a in figures.items() if hasattr(model, a)]
    lines += [
        ["cost", escape(cost_name(model.cost_, SHORT))],
        ["order", str(int(model.ball_.order))],
    ]
    weights = getattr(model, "weights_", {})
    lines += [[f"weight of {name(part)}", percent(share)] for part, share in weights.items()]
    return table(["the fit", "value"], lines, "The robust fit")


def _numbers(values: Any) -> str:
    return ", ".join(number(v) for v in np.ravel(values)[:6])


def breaking(view: View) -> str:
    """Return breaking points, overall, by class and by group."""
    audit = view.audit
    parts: list[tuple[str, dict[str, Any]]] = [("all rows", {})]
    parts += [(name(c), {"class_": c}) for c in audit.present_classes]
    parts += [(f"group {name(g)}", {"group": g}) for g in audit.present_groups]
    delta = float(view.stops.deltas[view.stops.first])
    lines = []
    for text, key in parts[: 2 * LINES]:
        accuracy = float(audit.accuracy(0.0, **key))
        points = [number(audit.breaking_point(share * accuracy, **key)) for share in KEPT]
        lines.append([text, percent(accuracy), percent(audit.accuracy(delta, **key)), *points])
    at = "the fitted delta" if view.stops.fitted is not None else f"delta {number(delta)}"
    head = [
        "rows",
        "right",
        f"certified at {at}",
        *(f"falls to {share:.0%} of it" for share in KEPT),
    ]
    caption = "Accuracy, and the delta at which an adversary can lower it to a share of itself"
    return table(head, lines, caption) + _left_out(len(parts), len(lines), "classes and groups")


def _by_column(
    names: Sequence[str],
    order: Any,
    lengths: Any,
    values: Sequence[str],
    others: Sequence[Sequence[str]],
    head: Sequence[str],
    caption: str,
) -> str:
    """Return a table with one line per column: a bar of length 0 to 1, its value, other figures."""
    lines = [
        [name(names[j]), bar(lengths[j], values[j]), *(other[j] for other in others)]
        for j in order[:LINES]
    ]
    return table(["column", *head], lines, caption) + _left_out(len(order), len(lines), "columns")


def _numbered(values: Any) -> list[str]:
    return [number(value) for value in values]


def columns(view: View) -> str:
    """Return what the adversary does in each column."""
    by_column = view.audit.columns
    size = range(len(by_column))
    return _by_column(
        [by_column.label(j) for j in size],
        by_column.order(),
        by_column.share,
        [percent(share) for share in by_column.share],
        (_numbered(by_column.breaking_point), [by_column.cells(j)[-1] for j in size]),
        ["share of the adversary's budget", "breaks the model alone at delta", "by a move of"],
        "Columns, the one by which an adversary breaks the model most easily first",
    )


def first_rows(view: View) -> str:
    """Return the rows that the adversary moves first, with their counterfactuals."""
    audit = view.audit
    lines = []
    # the first rows are always among those that are drawn
    for k in map(int, view.first_moved[:LINES]):
        flips = escape(isolated(audit.flips_to[k]))
        if audit.classes is None:
            flips = "too high" if audit.flips_to[k] > 0 else "too low"
        lines.append(
            [
                f'<button type="button" data-row="{k}">{escape(view.row_name(k))}</button>',
                escape(label(view, k)),
                flips,
                f'<span class="long">{escape(change_text(view, k))}</span>',
                number(audit.distance[k]),
            ]
        )
    head = ["row", "is", "becomes", "by this change", "distance"]
    caption = "Rows that the adversary moves first (a button shows the row in the picture)"
    return table(head, lines, caption, words=4)


def cost(view: View, model: Any) -> str:
    """Return what the cost charges, and which costs were compared."""
    audit = view.audit
    candidates = getattr(getattr(model, "path_", None), "candidates", [])
    prices = audit.cost.table(audit.names, scale=audit.scale)
    each = np.asarray(audit.cost.norm(np.eye(len(audit.names))))
    if audit.cost.matrix is None and np.ptp(each) <= EVEN * each.max():
        why = "Nothing was learned about directions (cost='learned' would)"
        if len(candidates) > 1:
            why = "Learned costs were tried, and the folds preferred one that knows no direction"
        words = (
            f"<p>{why}: a unit of every column costs the same, and the prices below differ only as "
            "the standard deviations of the columns do.</p>"
        )
    else:
        words = _direction("cheapest", prices.cheapest, prices.names)
        words += _direction("most expensive", prices.most_expensive, prices.names)
    price = audit.units.prices
    by_column = _by_column(
        audit.units.labels(),
        np.argsort(-price.round(12), kind="stable"),
        price / (float(price.max(initial=0.0)) or 1.0),
        _numbered(price),
        (),
        ["price"],
        "Price of moving a column by one standard deviation, or of switching a category",
    )
    compared = [
        [
            escape(plain(c.name)) + (" (chosen)" if c.chosen else ""),
            number(c.delta),
            number(c.score),
        ]
        for c in sorted(candidates, key=lambda c: c.criterion)[:LINES]
    ]
    if len(compared) < 2:
        return words + by_column
    head = ["cost", "delta", "fold score"]
    return words + by_column + table(head, compared, "Costs that the folds compared")


def _direction(word: str, direction: Any, names: list[str]) -> str:
    order = np.argsort(-np.abs(direction.loadings), kind="stable")[:4]
    parts = [
        f"{direction.loadings[j]:+.2f}&nbsp;{name(names[j], 28)}".replace("-", "−", 1)
        for j in order
        if abs(direction.loadings[j]) >= 0.05
    ]
    price = number(direction.price)
    return f"<p>The {word} direction costs {price} per deviation: {', '.join(parts)}.</p>"


def _left_out(total: int, shown: int, what: str) -> str:
    if total <= shown:
        return ""
    return f'<p class="note">{total - shown:,} more {what} are not shown.</p>'


def drifted(drift: Drift | None) -> str:
    """Return the drift of new rows, or how to measure it."""
    if drift is None:
        return (
            "<p>No new rows were given. <code>otdro audit MODEL DATA --target COL --new NEW"
            "</code>, or <code>otdro.audit(model, X, y, new=new)</code>, measures how far new "
            "rows are from these and whether the model is still certified there.</p>"
        )
    answer = ANSWERS.get(drift.verdict or "", "There is no ball to compare the new rows with.")
    reason = plain(drift.reason, 400)
    sentence = f"{answer} {reason[:1].upper()}{reason[1:]}"
    by_column = drift.columns
    tables = [
        _distances(drift),
        _accuracies(drift),
        _class_shares(drift),
        _by_column(
            by_column.names,
            by_column.order(),
            by_column.distance / (float(by_column.distance.max(initial=0.0)) or 1.0),
            _numbered(by_column.distance),
            (_numbered(by_column.shift), _numbered(by_column.p_value)),
            ["mean move, in deviations", "change of the mean", "p-value"],
            "Columns that moved, the farthest first",
        ),
    ]
    return f'<p class="verdict">{escape(sentence)}</p><div class="flow">{"".join(tables)}</div>'


def _distances(drift: Drift) -> str:
    """Return the transport cost, its lower bounds, and what each is by chance."""
    reference, new = drift.rows_used
    lines = [
        [f"transport cost of {reference:,} and {new:,} rows", number(drift.estimate)],
        ["the same between random parts of the reference", number(drift.noise_floor)],
        ["p-value", number(drift.p_value)],
    ]
    if drift.delta is not None:
        lines.append(["delta of the ball", number(drift.delta)])
    bounds = [
        [key, number(drift.lower_bounds[key]), number(drift.bound_noise[key]), number(beyond)]
        for key, beyond in drift.beyond_noise.items()
    ]
    caption = f"{drift.n_new:,} new rows beside {drift.n_reference:,}"
    head = ["bound", "at least", "by chance up to", "beyond chance"]
    compared = "Least cost of moving these rows onto the new ones; the last column against delta"
    return table(["drift", "value"], lines, caption) + table(head, bounds, compared)


def _accuracies(drift: Drift) -> str:
    """Return the accuracy on old and new rows, beside what is certified."""
    words = {
        "reference": "these rows",
        "reweighted": "these rows, with the new class shares",
        "new": "the new rows",
    }
    lines = [
        [words[key], percent(value)] for key, value in drift.accuracy.items() if value is not None
    ]
    if drift.certified_accuracy is not None:
        lines.append(["certified this far away", percent(drift.certified_accuracy)])
    right = "right" if drift.tau is None else f"within {number(drift.tau)} of the target"
    return table(["accuracy on", right], lines, "Was the certificate kept?")


def _class_shares(drift: Drift) -> str:
    """Return how the shares of the classes changed, nothing for numbers."""
    shift = drift.label_shift
    if shift is None or shift.labels is None:
        return ""
    shares = zip(shift.labels, shift.reference, shift.new, strict=True)
    lines = [[name(text), percent(p), percent(q)] for text, p, q in shares]
    caption = "Class shares: labels do not move, so a change of these is outside every ball"
    return table(["class", "these rows", "new rows"], lines[:LINES], caption)


def advice(audit: Audit) -> str:
    """Return what to do next, in the sentences of the audit."""
    items = "".join(f"<li>{escape(plain(text, 600))}</li>" for text in audit.advice)
    return f"<ul>{items}</ul>"
