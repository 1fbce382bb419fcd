"""``otdro audit`` and ``otdro drift``: how far the data may move, and how far it has moved.

Both are guards for CI: they leave with 3 where a required accuracy or drift bound is not met.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import inspection, persistence
from ..inspection import Audit, Drift, summary
from . import printing
from .errors import UserError
from .options import AuditOptions, DriftOptions, asked, check_outputs
from .preparing import (
    Differences,
    check_column,
    columns_as,
    labels_of,
    listed,
    model_rows,
    pipeline,
    table_of,
    usable_columns,
    with_target,
)
from .values import origin

#: The exit code where a requirement is not met.
NOT_MET = 3


def audit(options: AuditOptions) -> int:
    """Audit, print, write the page, and return the exit code."""
    accuracy, at_delta, page = options.require_accuracy, options.at_delta, options.report
    if (accuracy is None) != (at_delta is None):
        raise UserError("--require-accuracy and --at-delta go together: give both.")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise UserError(f"--require-accuracy must be in [0, 1], got {accuracy:g}.")
    _check_radius("--at-delta", at_delta)
    _check_radius("--max-drift", options.max_drift)
    if options.max_drift is not None and options.new is None:
        raise UserError("--max-drift needs new rows: give them by --new.")
    check_outputs({"--report": page}, options.model, options.data, options.new)
    with printing.working("reading") as doing:
        model = persistence.load(options.model)
        result, rows, notes = audited(model, options, doing)
        if page is not None:
            from ..report import write

            doing("writing the page")
            title = f"{options.model.name} on {Path(options.data).name}"
            write(page, result, model=model, title=title, notes=notes, row_names=rows)
    requirements: list[dict[str, Any]] = []
    if accuracy is not None and at_delta is not None:
        certified = result.accuracy(at_delta)
        met = bool(certified >= accuracy)
        values = {"at_delta": at_delta, "required": accuracy, "found": certified, "met": met}
        requirements.append({"requirement": "accuracy", **values})
    if result.drift is not None:
        requirements += _drift_requirement(result.drift, options.max_drift)
    head = asked("audit", options, "model", "data", "target", "new")
    return _told(head, result, lambda: _show_audit(result), requirements, notes)


def audited(
    model: Any, options: AuditOptions, doing: Callable[[str], None]
) -> tuple[Audit, list[str], list[str]]:
    """Read the tables; return the audit, the names of its rows, and notes for the reader."""
    notes: list[str] = []
    differences = Differences()
    target, beside = options.target, (options.target, options.groups, options.identifier)
    table = with_target(table_of(options.data, options, notes), target, notes)
    groups = None
    if options.groups is not None:
        check_column(options.groups, list(table.columns))
        groups = table[options.groups].to_numpy()
    names = table.index
    if options.identifier is not None:
        check_column(options.identifier, list(table.columns))
        names = table[options.identifier]
    new = None
    if options.new is not None:
        rows = table_of(options.new, options, notes)
        if target in rows.columns:
            rows = with_target(rows, target, notes)
            new = (model_rows(model, rows, differences, beside), labels_of(rows, target, model))
        else:
            notes.append(f"the new table has no column {target!r}: its labels are unknown.")
            new = model_rows(model, rows, differences, beside)
    X = model_rows(model, table, differences, beside)
    doing("auditing" if new is None else "auditing, and measuring the drift")
    result = inspection.audit(
        model,
        X,
        labels_of(table, target, model),
        cost=options.cost,
        order=options.order,
        tau=options.tau,
        space=options.space,
        groups=groups,
        new=new,
        random_state=options.seed,
    )
    return result, [str(name) for name in names], notes + differences.notes()


def drift(options: DriftOptions) -> int:
    """Measure, print, and return the exit code."""
    _check_radius("--max-drift", options.max_drift)
    with printing.working("reading") as doing:
        result, notes = measured(options, doing)
    head = asked("drift", options, "old", "new", "target", "model")
    requirements = _drift_requirement(result, options.max_drift)
    return _told(head, result, lambda: _show_drift(result), requirements, notes)


def measured(options: DriftOptions, doing: Callable[[str], None]) -> tuple[Drift, list[str]]:
    """Read the tables and return the drift with notes for the reader."""
    notes: list[str] = []
    target = options.target
    tables = [table_of(name, options, notes) for name in (options.old, options.new)]
    labelled = [target is not None and target in table.columns for table in tables]
    for k in (0, 1):
        if labelled[k]:
            tables[k] = with_target(tables[k], str(target), notes)
    model = None if options.model is None else persistence.load(options.model)
    differences = Differences()
    if model is not None:
        rows = [model_rows(model, table, differences, (target,)) for table in tables]
    elif target is not None and not labelled[0]:
        raise UserError(f"the old table has no column {target!r}. Check --target.")
    else:
        rows = _scaled(tables[0], tables[1], options, notes, differences)
    samples: list[Any] = []
    for table, X, has_labels in zip(tables, rows, labelled, strict=True):
        y = None
        if has_labels:
            y = table[target].to_numpy() if model is None else labels_of(table, str(target), model)
        samples.append(X if y is None else (X, y))
    doing("measuring the drift")
    result = inspection.drift(
        *samples,
        cost=options.cost,
        order=options.order,
        model=model,
        random_state=options.seed,
    )
    return result, differences.notes() + notes


def _scaled(
    old: Any, new: Any, options: DriftOptions, notes: list[str], differences: Differences
) -> list[Any]:
    """Return both tables, imputed, encoded and scaled as the old one says."""
    beside = [] if options.target is None else [options.target]
    data = usable_columns(old.drop(columns=beside), options.categorical, options.keep)
    notes += data.notes
    missing = [name for name in data.kinds if origin(name, new.columns) is None]
    if missing:
        raise UserError(
            f"the new table lacks columns of the old one: {listed(missing)}. Add them, or "
            "leave them out with --drop."
        )
    front = pipeline(data, options.scale).set_output(transform="pandas")
    first, second = front.fit_transform(data.X), columns_as(new, data.kinds)
    differences.count_unseen(front, second)
    return [first, front.transform(second)]


# Requirements.


def _check_radius(option: str, value: float | None) -> None:
    if value is not None and not (np.isfinite(value) and value >= 0):
        raise UserError(f"{option} must be a number >= 0, got {value:g}.")


def _drift_requirement(result: Drift, most: float | None) -> list[dict[str, Any]]:
    """Return the requirement on drift: no lower bound exceeds it by more than sampling noise."""
    if most is None:
        return []
    beyond = max(result.beyond_noise.values())
    values = {"at_delta": None, "required": most, "found": beyond, "met": beyond <= most}
    return [{"requirement": "drift", **values}]


def _told(
    head: dict[str, Any],
    result: Audit | Drift,
    show: Callable[[], None],
    requirements: list[dict[str, Any]],
    notes: list[str],
) -> int:
    """Print the result, what was required and whether it holds; return the exit code."""
    met = all(line["met"] for line in requirements)

    def document() -> dict[str, Any]:
        body = result.to_dict()
        rest = {"notes": notes + body["notes"], "requirements": requirements, "met": met}
        return {**head, **body, **rest}

    printing.tell(document, show)
    for line in requirements:
        word = "met" if line["met"] else "NOT MET"
        sign = ">=" if line["requirement"] == "accuracy" else "<="
        at = "" if line["at_delta"] is None else f" at delta = {line['at_delta']:g}"
        printing.say(
            f"{word}: {line['requirement']}{at} {sign} {line['required']:g}, "
            f"found {line['found']:.4g}"
        )
    printing.remark(notes)
    return 0 if met else NOT_MET


def _show_drift(result: Drift) -> None:
    printing.heading("What drifted")
    printing.pairs(summary.drift_pairs(result))
    printing.say()
    printing.grid(*result.columns.grid(summary.SHOWN))
    printing.remark(result.notes)


def _show_audit(result: Audit) -> None:
    printing.heading("How far the data may move")
    printing.pairs(summary.audit_pairs(result))
    printing.say()
    printing.grid(*summary.curve_grid(result), ())
    printing.say(summary.curve_note(result))
    parts = summary.parts_grid(result)
    if parts.body:
        printing.say()
        printing.grid(*parts)
    printing.heading("Against whom")
    printing.grid(*result.columns.grid(summary.SHOWN))
    printing.remark(result.notes)
    if result.drift is not None:
        _show_drift(result.drift)
    printing.heading("What to do next")
    for sentence in result.advice:
        printing.say(f"* {sentence}")
