"""From an audit to one HTML file: how good, how far from breaking, the cost, drift, advice."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..comparison import Summary, verdict
from ..costs.table import EVEN, ROWS, cost_name
from ..estimators.summary import LISTED, held_out
from ..files import write_atomic
from ..inspection import Audit, Drift, Stability, summary
from . import pictures
from .pictures import View, change_text, extreme_directions, isolated, label, marker, number, plain

#: What to say where the worst-case loss has no bound.
UNBOUNDED = (
    " At order 1 this loss has no bound: moves of little mass, far away. Audit with order=2."
)
#: The title of the table of rows, classes and groups.
BREAKING = "Accuracy, what is certified of it, and the delta at which half of the rows are wrong"
#: What rules that do not compare costs by their fold scores compare them by.
CRITERIA = {
    "auto": "the smoothed loss of held-out rows with a prior on delta",
    "smoothed": "the smoothed loss of held-out rows with a prior on delta",
    "worst": "the loss in the worst environment",
}


def write(file: Any, audit: Audit, **options: Any) -> Path:
    """Write the report of an audit as one HTML file; a report that fails leaves no file behind.

    Parameters
    ----------
    file : path
        Where the page goes; a file that is there is replaced when the new one is whole.
    audit : Audit
        From ``otdro.audit(model, X, y, ...)``; with ``new=`` the page shows what drifted.
    **options
        Those of ``render``: ``model``, ``scores``, ``stability``, ``title``, ...

    Returns
    -------
    Path
    """
    path = Path(file)
    write_atomic(path, render(audit, **options).encode("utf-8", errors="replace"))
    return path


def render(
    audit: Audit,
    *,
    model: Any = None,
    scores: Sequence[Summary] = (),
    stability: Stability | None = None,
    title: str = "Audit of a linear model",
    notes: Sequence[str] = (),
    requirements: Sequence[dict[str, Any]] = (),
    training: bool = False,
    held_out: str = "folds",
    row_names: Sequence[Any] | None = None,
    random_state: int = 0,
) -> str:
    """Return the page as text.

    Parameters
    ----------
    audit : Audit
        From ``otdro.audit(model, X, y, ...)``; with ``new=`` the page shows what drifted.
    model : DROClassifier, DRORegressor or a Pipeline that ends in one, default=None
        The fitted estimator, for its path, risks, costs and held-out rows; any other model is
        passed over.
    scores : sequence of Summary, default=()
        Scores of held-out rows beside other models, as ``otdro fit`` has them.
    stability : Stability, default=None
        From ``otdro.stability(model, X, y)``.
    title : str, default="Audit of a linear model"
        The heading of the page.
    notes : sequence of str, default=()
        Sentences for the reader, e.g. what was done to the columns.
    requirements : sequence of dict, default=()
        What was required, as the document of ``otdro audit --json`` has it: the page says whether
        it is met.
    training : bool, default=False
        Whether the audit is of the rows that the model was fitted on, so that the page says so.
    held_out : str, default="folds"
        How the rows of ``scores`` were held out, in words.
    row_names : sequence of n names, default=None
        What the rows of the audit are called, e.g. their lines in a file; None: 0, 1, ...
    random_state : int, default=0
        Seeds the sample of rows that is drawn where there are many.

    Returns
    -------
    str
    """
    if not isinstance(audit, Audit):
        raise TypeError(
            f"a report is of an Audit, got {type(audit).__name__}: "
            "otdro.report.write(file, otdro.audit(model, X, y))."
        )
    # of a pipeline, the last step
    model = getattr(model, "steps", [("", model)])[-1][1]
    if row_names is not None and len(row_names) != len(audit.weights):
        raise ValueError(f"row_names has {len(row_names)} entries for {len(audit.weights)} rows.")
    view = View(audit, random_state, row_names)
    accuracy, accuracy_cursor = pictures.slider_chart(view, "accuracy")
    risk, risk_cursor = pictures.slider_chart(view, "risk")
    cursors = {"accuracy": accuracy_cursor, "risk": risk_cursor}
    texts = pictures.stop_texts(view)
    rows = "training rows" if training else "audited rows"
    script = _source("page.js")
    # what the page has nothing to show of, for its style
    lacks = {"no-fitted": view.fitted is None, "no-boundary": audit.classes is None}
    said = [*audit.notes, *(audit.drift.notes if audit.drift else ()), *notes]
    parts = {
        "title": escape(plain(title, 120)),
        "version": escape(__version__),
        "css": _source("page.css"),
        "js": script,
        # by which the content security policy knows the one script that may run
        "js-hash": f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        # no HTML parser can leave it early; all that is not ASCII is escaped
        "data": json.dumps(
            pictures.script_data(view, texts, cursors), separators=(",", ":"), allow_nan=False
        ).replace("<", "\\u003c"),
        "lead": listed([summary.requirement_in_words(line) for line in requirements])
        + lead(audit, model, scores, rows, held_out),
        "good": goodness(audit, model),
        "held-out": held_out_rows(model),
        "stability": stable(stability),
        "sampled": _sampled(view),
        "view": pictures.scene(view),
        "legend": _legend(view),
        "accuracy-chart": accuracy,
        "risk-chart": risk,
        "kind": " ".join(name for name, is_missing in lacks.items() if is_missing),
        "last": str(len(view.deltas) - 1),
        "first": str(view.first),
        "fitted": "" if view.fitted is None else str(view.fitted),
        "mark": f"{view.first / max(len(view.deltas) - 1, 1):.4f}",
        "rows": rows,
        "counted": "Rows are counted from 0. " if row_names is None else "",
        "wrong-already": f"{np.count_nonzero((audit.price == 0) & (audit.weights > 0)):,}",
        "x-options": pictures.axis_options(view, 0),
        "y-options": pictures.axis_options(view, 1),
        "unbounded": "" if np.isfinite(view.risk).all() else UNBOUNDED,
        "plain-risk": number(view.risk[0]),
        "rows-first": first_rows(view),
        "breaking": table(*summary.parts_grid(audit), BREAKING),
        "columns": columns(audit),
        "cost": cost(audit, model),
        "drift": drifted(audit.drift),
        "next": listed(summary.still_to_do(audit.advice, requirements)),
        "notes": listed(list(dict.fromkeys(said)), "<h3>Notes</h3>"),
        **{f"at-{key}": escape(value) for key, value in texts[view.first].items()},
    }
    # in one pass: what is put in stays as it is
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: parts[mark[1]], _source("template.html"))


# Texts and tables.


class Html(str):
    """Text that is HTML already; whatever else a table holds is only text."""


def name(value: Any) -> Html:
    """Return a name as HTML, with the whole of it (to a limit) as its title if it was cut."""
    short, whole = plain(value), plain(value, 400)
    title = f' title="{escape(whole)}"' if whole != short else ""
    return Html(f"<bdi{title}>{escape(short)}</bdi>")


def table(
    head: Sequence[str],
    body: Sequence[Sequence[str]],
    caption: str,
    words: int = 1,
    most: int = ROWS,
) -> str:
    """Return a table; the first ``words`` columns are texts, the first of them names.

    Lines after the first ``most`` are counted below.
    """
    if not body:
        return ""
    kind = ["" if j < words else ' class="n"' for j in range(len(head))]
    top = "".join(
        f'<th scope="col"{of}>{_cell(cell)}</th>' for of, cell in zip(kind, head, strict=True)
    )
    lines = [
        f'<tr><th scope="row">{row[0] if isinstance(row[0], Html) else name(row[0])}</th>'
        + "".join(f"<td{of}>{_cell(cell)}</td>" for of, cell in zip(kind[1:], row[1:], strict=True))
        + "</tr>"
        for row in body[:most]
    ]
    title = escape(caption)
    more = f'<p class="note">{len(body) - most:,} more are not shown.</p>'
    # the title stands outside of what scrolls, so that a phone shows all of it
    return (
        f'<div class="titled"><p class="caption" aria-hidden="true">{title}</p>'
        f'<div class="scroll" tabindex="0" role="group" aria-label="{title}">'
        f'<table aria-label="{title}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{more if len(body) > most else ''}</div>"
    )


def _cell(value: str) -> str:
    return value if isinstance(value, Html) else escape(plain(value, 400))


def bar(share: float, text: str) -> Html:
    """Return a bar of a share of the cell's width, with its value beside it."""
    width = 100 * float(np.clip(np.nan_to_num(share), 0, 1))
    return Html(f'<span class="bar" style="--w:{width:.1f}%"></span><span>{escape(text)}</span>')


def listed(sentences: Sequence[str], heading: str = "") -> str:
    """Return sentences as a list below its heading, nothing where there are none."""
    items = "".join(f"<li>{escape(plain(text, 600))}</li>" for text in sentences)
    return f"{heading}<ul>{items}</ul>" if items else ""


def _source(file: str) -> str:
    return files(__package__).joinpath(file).read_text(encoding="utf-8")


# The sections.


def _sampled(view: View) -> str:
    total, shown = len(view.audit.weights), len(view.rows)
    if shown == total:
        return f"All {total:,} rows are drawn; every figure is of all of them."
    return (
        f"{shown:,} of {total:,} rows are drawn, those moved first and a random sample of the "
        "others; every figure is of all rows."
    )


def _legend(view: View) -> str:
    """Return the marks of the classes."""
    classes = [] if view.audit.classes is None else list(view.audit.classes)
    return "".join(
        f'<li><svg viewBox="-6 -6 12 12" aria-hidden="true"><path {marker(k)}/></svg> '
        f"{name(label)}</li>"
        for k, label in enumerate(classes[:12])
    )


def lead(audit: Audit, model: Any, scores: Sequence[Summary], rows: str, held_out: str) -> str:
    """Return the top of the page: the verdict on held-out rows, then the audit of ``rows``."""
    figures = [(name, plain(value, 400)) for name, value in summary.audit_pairs(audit)]
    top = table(["figure", "value"], figures, f"The {rows}", words=2)
    if not scores:
        return top
    cost = getattr(model, "cost", None)
    sentence = verdict(scores, cost if isinstance(cost, str) else None)
    measures = list(dict.fromkeys(score.measure for score in scores))
    lines = []
    for method in dict.fromkeys(score.method for score in scores):
        # in the order of the measures
        own = [score for score in scores if score.method == method]
        difference = "" if own[0] is scores[0] else own[0].minus
        lines.append([method, *(score.value for score in own), difference])
    note = (
        f"Each held-out row was predicted by models fitted without it ({held_out}; mean ± "
        "standard error), which prepared the columns and chose their settings without it too."
    )
    head = ["model", *measures, f"{measures[0]} minus {scores[0].method}"]
    title = "Held-out rows: this model beside others"
    return (
        f'<p class="verdict">{escape(sentence)}</p>{table(head, lines, title)}'
        f'<p class="note">{escape(note)}</p>{top}'
    )


def goodness(audit: Audit, model: Any) -> str:
    """Return the coefficients, what the fit stored, and its path."""
    parts = [_coefficients(audit), _fit(model)]
    path = getattr(model, "path_", None)
    if path is not None and np.count_nonzero(path.deltas) > 1:
        chart = pictures.path_chart(path, float(model.delta_), model.scoring is None)
        text = "Along the deltas that the folds tried: robust risk (solid), empirical risk (dots)"
        held = ", loss of held-out rows (dashes and dots)" if model.scoring is None else ""
        parts.append(_figure(chart, f"{text}{held}. The upright line is the chosen delta."))
    return "".join(parts)


def held_out_rows(model: Any) -> str:
    """Return measures, confusion, calibration and ROC of rows that the models had not seen."""
    tested = held_out(model)
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
        shown = tested.classes[:LISTED]
        lines = [
            [str(label), *(f"{v:,.4g}" for v in row[: len(shown)])]
            for label, row in zip(tested.classes, tested.confusion(), strict=True)
        ]
        caption = "Held-out rows of each class (lines) and the class predicted (columns)"
        head = ["class", *(f"predicted {isolated(label)}" for label in shown)]
        parts.append(table(head, lines, caption, most=LISTED))
        second = isolated(tested.classes[1], 20)
        labels = (f"predicted probability of {second}", "observed share")
    bins = tested.calibration()
    if len(bins) > 1:
        text = "Calibration on held-out rows in bins of equal size; the dotted line is perfect"
        slope = f"slope {number(measures['calibration slope'])}, 1 is perfect"
        parts.append(_figure(pictures.calibration_chart(bins, labels), f"{text} ({slope})."))
    rates = tested.roc()
    if len(rates):
        area = f"ROC curve of held-out rows, area {number(measures['AUC'])}."
        parts.append(_figure(pictures.roc_chart(rates, measures["AUC"]), area))
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
    return f"<h3>Stability</h3>{text}{_figure(pictures.instability_chart(stability), caption)}"


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _coefficients(audit: Audit) -> str:
    """Return the coefficients by column of the table, largest first; categories below theirs."""
    model, groups = audit.model, audit.model.groups
    coef, intercept = model.coef[:LISTED], model.intercept[:LISTED]
    heads = ["coefficient"]
    if audit.classes is not None and len(audit.classes) == 2:
        coef, intercept = coef[[1]] - coef[[0]], intercept[[1]] - intercept[[0]]
        heads = [f"coefficient (above 0: towards {isolated(audit.classes[1])})"]
    elif audit.classes is not None:
        heads = [isolated(c) for c in audit.classes[:LISTED]]
    size = np.abs(coef).max(axis=0)
    ordered = sorted(groups.indices.items(), key=lambda item: -size[item[1]].max())
    body: list[list[str]] = []
    for column, own in ordered[:ROWS]:
        values = dict(zip(own, groups.categories.get(column, []), strict=False))
        if values:
            body.append([column, *[""] * len(heads)])
        for j in sorted(own, key=lambda j: -size[j]):
            head = Html(f"&emsp;{name(values[j])}") if values else groups.names[j]
            body.append([head, *map(number, coef[:, j])])
    body.append(["(intercept)", *map(number, intercept)])
    where = "" if model.front is None else f", in {summary.SPACES[audit.space]}"
    more = "" if len(ordered) <= ROWS else f" ({ROWS} of {len(ordered)} columns)"
    if audit.classes is not None and len(audit.classes) > LISTED:
        more += f" ({LISTED} of {len(audit.classes)} classes)"
    title = f"Coefficients{where}, largest first{more}"
    return table(["column", *heads], body, title, most=len(body))


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
        [key, ", ".join(number(v) for v in np.ravel(getattr(model, attribute))[:LISTED])]
        for key, attribute in figures.items()
        if hasattr(model, attribute)
    ]
    lines += [["cost", cost_name(model.cost_)], ["order", str(int(model.ball_.order))]]
    weights = getattr(model, "weights_", {})
    lines += [
        [f"weight of {part}", summary.share_in_words(share)] for part, share in weights.items()
    ]
    return table(["the fit", "value"], lines, "The robust fit")


def columns(audit: Audit) -> str:
    """Return what the adversary does in each column, its share of the budget as a bar."""
    by_column = audit.columns
    head, body = by_column.grid(len(by_column))
    longest = float(by_column.share.max(initial=0.0)) or 1.0
    for line, j in zip(body, by_column.order(), strict=False):
        line[1] = bar(by_column.share[j] / longest, line[1])
    caption = "Columns, the one by which an adversary breaks the model most easily first"
    return table(head, body, caption)


def first_rows(view: View) -> str:
    """Return the rows that the adversary moves first, with their counterfactuals."""
    audit = view.audit
    lines = []
    # the first rows are always among those that are drawn
    for k in map(int, view.first_moved[:ROWS]):
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
        "shows the row in the picture)"
    )
    return table(head, lines, caption, words=4)


def cost(audit: Audit, model: Any) -> str:
    """Return what the cost charges, and which costs were compared."""
    candidates = getattr(getattr(model, "path_", None), "candidates", [])
    ends = extreme_directions(audit, 1)
    words = "".join(
        f"<p>A unit move (one standard deviation of a number, or one switch of a category) costs "
        f"{number(price)} along the {word} direction: {escape(along)}.</p>"
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
    labels, price = audit.units.labels(), audit.units.prices
    order = np.argsort(-price.round(12), kind="stable")
    highest = float(price.max(initial=0.0)) or 1.0
    body = [[labels[j], bar(price[j] / highest, number(price[j]))] for j in order]
    caption = "Price of moving a column by one standard deviation, or of switching a category"
    prices = table(["column", "price"], body, caption)
    if len(candidates) < 2:
        return words + prices
    compared = [
        [c.name + (" (chosen)" if c.chosen else ""), number(c.delta), number(c.score)]
        for c in sorted(candidates, key=lambda c: c.criterion)
    ]
    others = table(["cost", "delta", "fold score"], compared, "Costs that the folds compared")
    return f'{words}{prices}{others}<p class="note">{escape(_how_compared(model))}</p>'


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
    pairs = dict(summary.drift_pairs(drift))
    answer = pairs.pop("verdict", drift.reason)
    shares = ""
    shift = drift.label_shift
    if shift is not None and shift.labels is not None:
        both = zip(shift.labels, shift.reference, shift.new, strict=True)
        lines = [
            [text, summary.share_in_words(p), summary.share_in_words(q)] for text, p, q in both
        ]
        caption = "Class shares: labels do not move, so a change of these is outside every ball"
        shares = table(["class", "old rows", "new rows"], lines, caption)
    caption = f"{drift.n_new:,} new rows beside {drift.n_reference:,}"
    tables = [
        table(["figure", "value"], list(pairs.items()), caption, words=2),
        shares,
        table(*drift.columns.grid(len(drift.columns)), "Columns, the farthest moved first"),
    ]
    sentence = escape(plain(answer[:1].upper() + answer[1:], 600))
    return f'<p class="verdict">{sentence}</p><div class="flow">{"".join(tables)}</div>'
