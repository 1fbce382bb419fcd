"""The sections of the page, as HTML: how good, how far from breaking, the cost, drift, advice."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..comparison import OWN, Summary, verdict
from ..costs.table import EVEN, Grid
from ..estimators.resampling import HeldOut
from ..inspection import Audit, Drift, Stability
from ..inspection.summary import (
    SPACES,
    audit_pairs,
    cost_name,
    drift_pairs,
    parts_grid,
)
from .markup import Html, bar, isolated, name, number, percent, plain, table
from .pictures import (
    calibration_chart,
    change_text,
    instability_chart,
    label,
    path_chart,
    roc_chart,
)
from .view import View, extreme_directions

#: Lines of a table; what is left out is counted.
LINES = 15
#: Letters of a cost that is written out.
SHORT = 24
#: What rules that do not compare costs by their fold scores compare them by.
CRITERIA = {
    "auto": "the smoothed loss of held-out rows with a prior on delta",
    "smoothed": "the smoothed loss of held-out rows with a prior on delta",
    "worst": "the loss in the worst environment",
}
#: Classes whose coefficients are shown.
CLASSES = 6


def lead(audit: Audit, model: Any, scores: Sequence[Summary], rows: str, held_out: str) -> str:
    """Return the top of the page: the verdict on held-out rows, then the audit of ``rows``."""
    figures = [(name, plain(value, 400)) for name, value in audit_pairs(audit)]
    top = table(["figure", "value"], figures, f"The {rows}", words=2)
    if not scores:
        return top
    cost = getattr(model, "cost", None)
    sentence = verdict(scores, cost if isinstance(cost, str) else None)
    measures = list(dict.fromkeys(score.measure for score in scores))
    by_model: dict[str, dict[str, Summary]] = {}
    for score in scores:
        by_model.setdefault(score.method, {})[score.measure] = score
    lines = []
    for method, by_measure in by_model.items():
        first = by_measure[measures[0]]
        own = [
            _with_error(by_measure[measure].mean, by_measure[measure].se) for measure in measures
        ]
        difference = _with_error(first.difference, first.difference_se)
        lines.append([method, *own, "" if method == OWN else difference])
    note = (
        f"Each held-out row was predicted by models fitted without it ({held_out}; mean ± "
        "standard error), which prepared the columns and chose their settings without it too."
    )
    head = ["model", *measures, f"{measures[0]} minus otdro"]
    title = "Held-out rows: this model beside others"
    return (
        f'<p class="verdict">{escape(sentence)}</p>{table(head, lines, title)}'
        f'<p class="note">{escape(note)}</p>{top}'
    )


def _with_error(mean: float, error: float) -> str:
    """Return a mean with its standard error; what rounding left of 0 is 0."""
    return f"{number(round(mean, 12) + 0.0)} ± {error:.2g}"


def goodness(audit: Audit, model: Any) -> str:
    """Return the coefficients, what the fit stored, and its path."""
    parts = [_coefficients(audit), _fit(model)]
    path = getattr(model, "path_", None)
    if path is not None and len(path.deltas) > 1:
        chart = path_chart(path, float(model.delta_), model.scoring is None)
        text = "Along the deltas that the folds tried: robust risk (solid), empirical risk (dots)"
        held = ", loss of held-out rows (dashes)" if model.scoring is None else ""
        parts.append(_figure(chart, f"{text}{held}. The upright line is the chosen delta."))
    return "".join(parts)


def held_out_rows(tested: HeldOut | None) -> str:
    """Return measures, confusion, calibration and ROC of rows that the models had not seen."""
    if tested is None:
        return ""
    measures = tested.measures()
    of = (
        f"Of {tested.rows:,} training rows, each predicted by models fitted without it: "
        f"{tested.folds}. The delta and the prepared columns are those of the fit to all rows, so "
        "that these figures may be slightly better than those of a comparison with other models, "
        "which sets both anew in every fold."
    )
    values = [[key, number(value)] for key, value in measures.items()]
    title = "Held-out rows: this model alone"
    parts = [f"<h3>{title}</h3><p>{escape(of)}</p>", table(["measure", "value"], values, title)]
    labels = ("predicted", "observed")
    if tested.classes is not None:
        shown = tested.classes[:CLASSES]
        counts = tested.confusion()[: len(shown), : len(shown)]
        lines = [
            [str(label), *(f"{v:,.4g}" for v in row)]
            for label, row in zip(shown, counts, strict=True)
        ]
        caption = "Held-out rows of each class (lines) and the class predicted (columns)"
        head = ["class", *(f"predicted {isolated(label)}" for label in shown)]
        parts.append(table(head, lines, caption, total=len(tested.classes)))
        second = isolated(tested.classes[1], 20)
        labels = (f"predicted probability of {second}", "observed share")
    bins = tested.calibration()
    if len(bins) > 1:
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
    lines = str(stability).removeprefix("Stability: ").splitlines()
    text = "".join(f"<p>{escape(line[:1].upper() + line[1:])}.</p>" for line in lines)
    caption = (
        "An upright line holds 95% of the refits of a training row, against its prediction; the "
        "dotted line is where both agree."
    )
    return f"<h3>Stability</h3>{text}{_figure(instability_chart(stability), caption)}"


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _coefficients(audit: Audit) -> str:
    """Return the coefficients by column of the table, largest first; categories below theirs."""
    model, groups = audit.model, audit.model.groups
    coef, intercept = model.coef[:CLASSES], model.intercept[:CLASSES]
    heads = ["coefficient"]
    if audit.classes is not None and len(audit.classes) == 2:
        coef, intercept = coef[[1]] - coef[[0]], intercept[[1]] - intercept[[0]]
        heads = [f"coefficient (above 0: towards {isolated(audit.classes[1])})"]
    elif audit.classes is not None:
        heads = [isolated(c) for c in audit.classes[:CLASSES]]
    size = np.abs(coef).max(axis=0)
    blocks: list[tuple[float, list[list[str]]]] = []
    for column, own in groups.indices.items():
        ordered = sorted(own, key=lambda j: -size[j])
        values = dict(zip(own, groups.categories.get(column, []), strict=False))
        lines = [[values.get(j, groups.names[j]), *map(number, coef[:, j])] for j in ordered]
        if values:
            indented = [[Html(f"&emsp;{name(first)}"), *rest] for first, *rest in lines]
            lines = [[column, *[""] * len(heads)], *indented]
        blocks.append((size[ordered[0]], lines))
    blocks.sort(key=lambda block: -block[0])
    body = [line for _, lines in blocks[:LINES] for line in lines]
    body.append(["(intercept)", *map(number, intercept)])
    where = "" if model.front is None else f", in {SPACES[audit.space]}"
    more = "" if len(blocks) <= LINES else f" ({LINES} of {len(blocks)} columns)"
    if audit.classes is not None and len(audit.classes) > CLASSES:
        more += f" ({CLASSES} of {len(audit.classes)} classes)"
    return table(["column", *heads], body, f"Coefficients{where}, largest first{more}")


def _fit(model: Any) -> str:
    """Return what an estimator of otdro stored of its fit."""
    if not hasattr(model, "robust_risk_"):
        return ""
    # an average of models has no risk and gap of its own
    figures = {
        "delta": "delta_",
        "empirical risk": "empirical_risk_",
        "robust risk": "robust_risk_",
        "certified to (gap)": "gap_",
    }
    lines = [
        [key, ", ".join(number(v) for v in np.ravel(getattr(model, attribute))[:CLASSES])]
        for key, attribute in figures.items()
        if hasattr(model, attribute)
    ]
    lines += [["cost", cost_name(model.cost_, SHORT)], ["order", str(int(model.ball_.order))]]
    weights = getattr(model, "weights_", {})
    lines += [[f"weight of {part}", percent(share)] for part, share in weights.items()]
    return table(["the fit", "value"], lines, "The robust fit")


def breaking(audit: Audit) -> str:
    """Return how soon all rows, classes and groups break."""
    caption = "Accuracy, what is certified of it, and the delta at which half of the rows are wrong"
    return table(*parts_grid(audit), caption)


def columns(audit: Audit) -> str:
    """Return what the adversary does in each column, its share of the budget as a bar."""
    by_column = audit.columns
    head, body = by_column.grid(LINES)
    longest = float(by_column.share.max(initial=0.0)) or 1.0
    for line, j in zip(body, by_column.order(), strict=False):
        line[1] = bar(by_column.share[j] / longest, line[1])
    caption = "Columns, the one by which an adversary breaks the model most easily first"
    return table(head, body, caption, total=len(by_column))


def first_rows(view: View) -> str:
    """Return the rows that the adversary moves first, with their counterfactuals."""
    audit = view.audit
    lines = []
    # the first rows are always among those that are drawn
    for k in map(int, view.first_moved[:LINES]):
        flips = isolated(audit.flips_to[k])
        if audit.classes is None:
            flips = "too high" if audit.flips_to[k] > 0 else "too low"
        row = escape(view.row_name(k))
        lines.append(
            [
                Html(f'<button type="button" data-row="{k}">{row}</button>'),
                label(view, k),
                flips,
                Html(f'<span class="long">{escape(change_text(view, k))}</span>'),
                number(audit.distance[k]),
            ]
        )
    head = ["row", "is", "becomes", "by this change", "distance"]
    caption = (
        "Rows that an adversary of the accuracy moves first, the nearest to the boundary (a button "
        "shows the row in the picture). otdro fit prints the first of them too, with their prices."
    )
    return table(head, lines, caption, words=4)


def cost(audit: Audit, model: Any) -> str:
    """Return what the cost charges, and which costs were compared."""
    candidates = getattr(getattr(model, "path_", None), "candidates", [])
    ends = extreme_directions(audit, 1)
    words = "".join(
        f"<p>The {word} direction costs {number(price)} per unit: {escape(along)}.</p>"
        for word, (price, along, _) in zip(("cheapest", "most expensive"), ends, strict=False)
    )
    each = np.asarray(audit.cost.norm(np.eye(len(audit.names))))
    if audit.cost.matrix is None and np.ptp(each) <= EVEN * each.max():
        why = "Nothing was learned about directions (cost='learned' would)"
        if len(candidates) > 1:
            why = "Learned costs were tried, and the folds preferred one that knows no direction"
        words = (
            f"<p>{why}: a unit of every column costs the same, and the prices below differ only as "
            "the standard deviations of the columns do.</p>"
        )
    units, price = audit.units, audit.units.prices
    order = np.argsort(-price.round(12), kind="stable")
    highest = float(price.max(initial=0.0)) or 1.0
    prices = Grid(
        ["column", "price"],
        [[units.labels()[j], bar(price[j] / highest, number(price[j]))] for j in order[:LINES]],
    )
    caption = "Price of moving a column by one standard deviation, or of switching a category"
    compared = [
        [c.name + (" (chosen)" if c.chosen else ""), number(c.delta), number(c.score)]
        for c in sorted(candidates, key=lambda c: c.criterion)[:LINES]
    ]
    head = ["cost", "delta", "fold score"]
    others = ""
    if len(compared) > 1:
        others = table(head, compared, "Costs that the folds compared")
        others += f'<p class="note">{escape(_how_compared(model))}</p>'
    return words + table(*prices, caption, total=len(order)) + others


def _how_compared(model: Any) -> str:
    """Return what a fold score is, and why a cost with a worse one may be chosen."""
    score = "minus the mean loss" if model.scoring is None else "the score by scoring"
    text = f"Fold score: {score} of held-out rows at the delta of each cost; higher is better."
    if model.rule in CRITERIA and (model.scoring is None or model.rule == "worst"):
        text += (
            f" Rule {model.rule!r} compares costs by {CRITERIA[model.rule]}, the best first, so "
            "that a cost with a worse fold score may be chosen."
        )
    if getattr(model.cost_, "weights_", {}):
        text += " The blend is chosen whatever its score: it averages the other costs."
    return text


def drifted(drift: Drift | None) -> str:
    """Return the drift of new rows, or how to measure it."""
    if drift is None:
        return (
            "<p>No new rows were given. <code>otdro audit MODEL DATA --target COL --new NEW"
            "</code>, or <code>otdro.audit(model, X, y, new=new)</code>, measures how far new "
            "rows are from these and whether the model is still certified there.</p>"
        )
    pairs = dict(drift_pairs(drift))
    answer = pairs.pop("verdict", drift.reason)
    shares = ""
    shift = drift.label_shift
    if shift is not None and shift.labels is not None:
        both = zip(shift.labels, shift.reference, shift.new, strict=True)
        lines = [[text, percent(p), percent(q)] for text, p, q in both]
        caption = "Class shares: labels do not move, so a change of these is outside every ball"
        shares = table(["class", "old rows", "new rows"], lines[:LINES], caption, total=len(lines))
    caption = f"{drift.n_new:,} new rows beside {drift.n_reference:,}"
    tables = [
        table(["figure", "value"], list(pairs.items()), caption, words=2),
        shares,
        table(
            *drift.columns.grid(LINES),
            "Columns, the farthest moved first",
            total=len(drift.columns),
        ),
    ]
    sentence = escape(plain(answer[:1].upper() + answer[1:], 600))
    return f'<p class="verdict">{sentence}</p><div class="flow">{"".join(tables)}</div>'


def advice(audit: Audit) -> str:
    """Return what to do next, in the sentences of the audit."""
    items = "".join(f"<li>{escape(plain(text, 600))}</li>" for text in audit.advice)
    return f"<ul>{items}</ul>"
