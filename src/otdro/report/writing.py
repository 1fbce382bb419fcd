"""From an audit to one HTML file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..comparison import Summary
from ..estimators import resampling
from ..files import write_atomic
from ..inspection import Audit, Stability
from . import sections
from .markup import json_script, marker, name, number, plain
from .pictures import axis_options, scene, script_data, slider_chart, stop_texts
from .view import View

#: What to say where the worst-case loss has no bound.
UNBOUNDED = (
    " At order 1 this loss has no bound: moves of little mass, far away. Audit with order=2."
)


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
    accuracy, accuracy_cursor = slider_chart(view, "accuracy")
    risk, risk_cursor = slider_chart(view, "risk")
    cursors = {"accuracy": accuracy_cursor, "risk": risk_cursor}
    texts = stop_texts(view)
    rows = "training rows" if training else "audited rows"
    script = _source("page.js")
    parts = {
        "title": escape(plain(title, 120)),
        "version": escape(__version__),
        "css": _source("page.css"),
        "js": script,
        # by which the content security policy knows the one script that may run
        "js-hash": f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        "data": json_script(script_data(view, texts, cursors)),
        "lead": sections.lead(audit, model, scores, rows, held_out),
        "good": sections.goodness(audit, model),
        "held-out": sections.held_out_rows(resampling.held_out(model)),
        "stability": sections.stable(stability),
        "sampled": _sampled(view),
        "view": scene(view),
        "legend": _legend(view),
        "accuracy-chart": accuracy,
        "risk-chart": risk,
        "kind": _kind(view),
        "last": str(len(view.deltas) - 1),
        "first": str(view.first),
        "fitted": "" if view.fitted is None else str(view.fitted),
        "mark": f"{view.first / max(len(view.deltas) - 1, 1):.4f}",
        "rows": rows,
        "counted": "Rows are counted from 0. " if row_names is None else "",
        "wrong-already": f"{view.wrong_already:,}",
        "x-options": axis_options(view, view.chosen[0]),
        "y-options": axis_options(view, view.chosen[1]),
        "unbounded": "" if np.isfinite(view.risk).all() else UNBOUNDED,
        "plain-risk": number(view.risk[0]),
        "rows-first": sections.first_rows(view),
        "breaking": sections.breaking(audit),
        "columns": sections.columns(audit),
        "cost": sections.cost(audit, model),
        "drift": sections.drifted(audit.drift),
        "next": sections.advice(audit),
        "notes": _notes([*audit.notes, *notes]),
        **{f"at-{key}": escape(value) for key, value in texts[view.first].items()},
    }
    # in one pass: what is put in stays as it is
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: parts[mark[1]], _source("template.html"))


def _source(file: str) -> str:
    return files(__package__).joinpath(file).read_text(encoding="utf-8")


def _kind(view: View) -> str:
    """Return what the page has nothing to show of, for its style."""
    lacks = {"no-refits": not view.has_refits, "no-fitted": view.fitted is None}
    return " ".join(name for name, is_missing in lacks.items() if is_missing)


def _sampled(view: View) -> str:
    total, shown = len(view.audit.weights), len(view.rows)
    if shown == total:
        return f"All {total:,} rows are drawn; every figure is of all of them."
    return (
        f"{shown:,} of {total:,} rows are drawn, those moved first and a random sample of the "
        "others; every figure is of all rows."
    )


def _legend(view: View) -> str:
    classes = [] if view.audit.classes is None else list(view.audit.classes)
    marks = [
        f'<li><svg viewBox="-6 -6 12 12" aria-hidden="true"><path {marker(k)}/></svg> '
        f"{name(label)}</li>"
        for k, label in enumerate(classes[:12])
    ]
    if classes:
        marks.append('<li><i class="key own"></i> boundary of this model</li>')
    if classes and view.has_refits:
        marks.append('<li><i class="key refit"></i> boundary refitted for this delta</li>')
    marks.append('<li><i class="key move"></i> move of a row to where it is wrong</li>')
    return "".join(marks)


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(plain(note, 600))}</li>" for note in notes)
    return f"<h3>Notes</h3><ul>{items}</ul>" if items else ""
