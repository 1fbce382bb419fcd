"""``otdro drift``: how far the rows of a new table are from those of an old one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import inspection
from ..inspection import Drift
from ..persistence import load as load_any
from . import printing
from .audit import check_required, document, drift_told, judged, show_drift
from .errors import UserError
from .fit import asked
from .options import DriftOptions, Requirements
from .predict import counted
from .preparing import pipeline, usable_columns, with_target
from .tables import labels_of, model_rows, table_of


def drift(options: DriftOptions, max_drift: float | None = None) -> int:
    """Measure, print, and return the exit code."""
    check_required(Requirements(max_drift=max_drift), options.new)
    with printing.working("reading") as doing:
        found, notes = measured(options, doing)
    told = drift_told(found, max_drift)
    head = asked("drift", options, "old", "new", "target", "model")
    printing.tell(lambda: document(head, found, told, notes), lambda: show_drift(found))
    return judged(told, notes)


def measured(options: DriftOptions, doing: Callable[[str], None]) -> tuple[Drift, list[str]]:
    """Read the tables and return the drift with notes for the reader."""
    notes: list[str] = []
    old, new = (_table(name, options, notes) for name in (options.old, options.new))
    model = None if options.model is None else load_any(options.model)
    if model is None:
        rows = _scaled(old, new, options, notes)
    else:
        seen: dict[str, int] = {}
        beside = () if options.target is None else (options.target,)
        rows = [model_rows(model, table, beside, seen) for table in (old, new)]
        notes += counted(seen)
    given = [
        (X, _labels(table, options, model)) if _labelled(table, options) else X
        for X, table in zip(rows, (old, new), strict=True)
    ]
    doing("measuring the drift")
    found = inspection.drift(
        *given,
        cost=options.cost,
        order=options.order,
        model=model,
        random_state=options.seed,
    )
    return found, notes


def _table(name: str, options: DriftOptions, notes: list[str]) -> Any:
    table = table_of(name, options, notes)
    if _labelled(table, options):
        assert options.target is not None
        return with_target(table, options.target, notes)
    return table


def _labelled(table: Any, options: DriftOptions) -> bool:
    return options.target is not None and options.target in table.columns


def _labels(table: Any, options: DriftOptions, model: Any) -> Any:
    assert options.target is not None
    if model is not None:
        return labels_of(table, options.target, model)
    return table[options.target].to_numpy()


def _scaled(old: Any, new: Any, options: DriftOptions, notes: list[str]) -> list[Any]:
    """Return both tables, imputed, encoded and scaled as the old one says."""
    if options.target is not None and not _labelled(old, options):
        raise UserError(f"the old table has no column {options.target!r}. Check --target.")
    beside = [] if options.target is None else [options.target]
    data = usable_columns(old.drop(columns=beside), options.categorical, options.keep)
    notes += data.notes
    front = pipeline(data, options.scale).set_output(transform="pandas")
    first = front.fit_transform(data.X)
    missing = [name for name in data.X.columns if name not in new.columns]
    if missing:
        raise UserError(
            f"the new table lacks columns of the old one: {', '.join(missing[:8])}. Add them, or "
            "leave them out with --drop."
        )
    return [first, front.transform(data.like(new))]
