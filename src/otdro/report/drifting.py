"""What drifted, as HTML."""

from __future__ import annotations

from html import escape

import numpy as np

from ..inspection import Drift
from .markup import bar, name, number, percent, plain, table

#: Columns that the table shows.
LINES = 15
ANSWERS = {
    "inside": "The new rows are inside the ball.",
    "outside": "The new rows are outside the ball.",
    "cannot tell": "At this size one cannot tell whether the new rows are inside the ball.",
}


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
    tables = [_figures(found), _accuracies(found), _labels(found), _columns(found)]
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


def _columns(found: Drift) -> str:
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
