"""``otdro audit``: how far the data may move before a saved model fails; a guard for CI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import inspection
from ..inspection import Audit, Drift, summary
from ..persistence import load as load_any
from . import printing
from .errors import UserError
from .fit import asked, check_writable
from .options import AuditOptions, Requirements
from .predict import counted
from .preparing import check_column, with_target
from .tables import labels_of, model_rows, table_of

#: The exit code where a requirement is not met.
NOT_MET = 3


def check_required(required: Requirements, new: str | None) -> None:
    """Refuse half of a requirement and numbers that are no shares or radii."""
    accuracy, at_delta = required.require_accuracy, required.at_delta
    if (accuracy is None) != (at_delta is None):
        raise UserError("--require-accuracy and --at-delta go together: give both.")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise UserError(f"--require-accuracy must be in [0, 1], got {accuracy:g}.")
    for name, value in (("--at-delta", at_delta), ("--max-drift", required.max_drift)):
        if value is not None and not (np.isfinite(value) and value >= 0):
            raise UserError(f"{name} must be a number >= 0, got {value:g}.")
    if required.max_drift is not None and new is None:
        raise UserError("--max-drift needs new rows: give them by --new.")


def audit(
    options: AuditOptions,
    required: Requirements,
    page: Path | None = None,
) -> int:
    """Audit, print, write the page, and return the exit code."""
    check_required(required, options.new)
    if page is not None:
        check_writable(page)
    with printing.working("reading") as doing:
        model = load_any(options.model)
        found, notes = audited(model, options, doing)
        if page is not None:
            from ..report import write

            doing("writing the page")
            title = f"{options.model.name} on {Path(options.data).name}"
            write(page, found, model=model, title=title, notes=notes)
    told = accuracy_told(found, required)
    if found.drift is not None:
        told += drift_told(found.drift, required.max_drift)
    head = asked("audit", options, "model", "data", "target", "new")
    printing.tell(lambda: document(head, found, told, notes), lambda: show(found))
    return judged(told, notes)


def judged(told: list[dict[str, Any]], notes: list[str]) -> int:
    """Print what was required and whether it holds, and the notes; return the exit code."""
    show_requirements(told)
    printing.remark(notes)
    return 0 if all(line["met"] for line in told) else NOT_MET


def document(
    head: dict[str, Any], found: Audit | Drift, told: list[dict[str, Any]], notes: list[str]
) -> dict[str, Any]:
    """Return the document of ``docs/audit.md``; ``head`` says what was asked."""
    body = found.to_dict()
    return {
        **head,
        **body,
        "notes": notes + body["notes"],
        "requirements": told,
        "met": all(line["met"] for line in told),
    }


def audited(
    model: Any, options: AuditOptions, doing: Callable[[str], None]
) -> tuple[Audit, list[str]]:
    """Read the tables, and return the audit of the model with notes for the reader."""
    notes: list[str] = []
    seen: dict[str, int] = {}
    table = with_target(table_of(options.data, options, notes), options.target, notes)
    groups = None
    if options.groups is not None:
        check_column(options.groups, list(table.columns))
        groups = table[options.groups].to_numpy()
    beside = (options.target, *((options.groups,) if options.groups else ()))
    new = None
    if options.new is not None:
        rows = table_of(options.new, options, notes)
        labelled = options.target in rows.columns
        if labelled:
            rows = with_target(rows, options.target, notes)
        else:
            notes.append(f"the new table has no column {options.target!r}: its labels are unknown.")
        X_new = model_rows(model, rows, beside, seen)
        new = (X_new, labels_of(rows, options.target, model)) if labelled else X_new
    X = model_rows(model, table, beside, seen)
    doing("auditing" if new is None else "auditing, and measuring the drift")
    found = inspection.audit(
        model,
        X,
        labels_of(table, options.target, model),
        cost=options.cost,
        order=options.order,
        tau=options.tau,
        space=options.space,
        groups=groups,
        new=new,
        random_state=options.seed,
    )
    return found, notes + counted(seen)


def accuracy_told(found: Audit, required: Requirements) -> list[dict[str, Any]]:
    """Return the requirement on accuracy and whether it is met."""
    if required.require_accuracy is None or required.at_delta is None:
        return []
    accuracy = found.accuracy(required.at_delta)
    met = bool(accuracy >= required.require_accuracy)
    return [_told("accuracy", required.at_delta, required.require_accuracy, accuracy, met)]


def _told(name: str, at: float | None, required: float, found: float, met: bool) -> dict[str, Any]:
    return {
        "requirement": name,
        "at_delta": at,
        "required": required,
        "found": found,
        "met": met,
    }


def drift_told(found: Drift, most: float | None) -> list[dict[str, Any]]:
    """Return the requirement on drift: no lower bound exceeds it by more than sampling noise."""
    if most is None:
        return []
    bounds = [value for value in found.lower_bounds.values() if value is not None]
    return [_told("drift", None, most, max(bounds), not found.exceeds(most))]


def show(found: Audit) -> None:
    """Print the audit for a person."""
    printing.heading("How far the data may move")
    printing.pairs(summary.audit_pairs(found))
    printing.say()
    printing.grid(*summary.curve_grid(found), ())
    printing.say(summary.unit_note(found))
    parts = summary.parts_grid(found)
    if parts.body:
        printing.say()
        printing.grid(*parts)
    printing.heading("Against whom")
    printing.grid(*found.columns.grid(summary.SHOWN))
    printing.remark(found.notes)
    if found.drift is not None:
        show_drift(found.drift)


def show_drift(found: Drift) -> None:
    """Print a drift for a person."""
    printing.heading("What drifted")
    printing.pairs(summary.drift_pairs(found))
    printing.say()
    printing.grid(*found.columns.grid(summary.SHOWN))
    printing.remark(found.notes)


def show_requirements(told: list[dict[str, Any]]) -> None:
    """Print what was required and whether it holds."""
    for line in told:
        word = "met" if line["met"] else "NOT MET"
        sign = ">=" if line["requirement"] == "accuracy" else "<="
        at = "" if line["at_delta"] is None else f" at delta = {line['at_delta']:g}"
        printing.say(
            f"{word}: {line['requirement']}{at} {sign} {line['required']:g}, "
            f"found {line['found']:.4g}"
        )
