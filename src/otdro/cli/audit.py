"""``otdro predict``, ``otdro audit`` and ``otdro drift``: what is asked of a saved model.

Audit and drift say how far the data may move, and how far it has moved. Both are guards for CI:
they leave with 3 where a required accuracy or drift bound is not met.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np

from .. import inspection, persistence
from ..costs.table import Grid
from ..files import replacing
from ..inspection import Audit, Drift, summary
from ..inspection.auditing import RARE
from ..inspection.drifting import DELTA, Drifts, Step
from ..inspection.record import changes
from . import preparing, printing
from .errors import UserError
from .options import AuditOptions, DriftOptions, PredictOptions
from .reading import PIECE, PLAIN, days_in, holds_dates, locate, numbers_in, pieces

#: The exit code where a requirement is not met.
NOT_MET = 3
#: Why a drift without a ball has no verdict.
NO_BALL = "there is no ball to compare with: "
#: Texts that a spreadsheet takes for formulas; numbers and single signs are none.
FORMULA = re.compile(rf"(?!{PLAIN}$)[=+\-@].")


# otdro predict


def predict(options: PredictOptions) -> None:
    """Read the table in pieces, predict, and write in pieces; nothing half-written is left."""
    model, out, identifier = options.model, options.out, options.identifier
    printing.check_outputs({"--out": out}, model, options.data)
    fitted = persistence.load(model)
    if not hasattr(fitted, "feature_names_in_"):
        raise UserError(f"{model} holds a {type(fitted).__name__}, not a model from otdro fit.")
    if out is not None and out.suffix not in (".csv", ".tsv", ".txt", ""):
        raise UserError(
            f"predictions are written as CSV; {out} ends in {out.suffix}: name a .csv file."
        )
    separator = "\t" if out is not None and out.suffix == ".tsv" else ","
    differences = preparing.Differences()
    # on a terminal that shows the predictions themselves a bar would be in their way
    hidden = out is None and sys.stdout.isatty()
    target = nullcontext(sys.stdout.buffer) if out is None else replacing(out)
    with target as file, printing.working("predicting", hidden) as doing:
        source = locate(options.data, options.decimal)
        done, marked = 0, False
        for piece in pieces(source, PIECE):
            X = preparing.model_rows(fitted, piece, differences, (identifier,))
            if options.strict and differences.unseen:
                unseen = "; ".join(differences.unseen_values().values())
                raise UserError(
                    f"{unseen}: the training data did not have that. Correct it, or leave "
                    "--strict out."
                )
            rows = predictions(fitted, X)
            if identifier is not None:
                preparing.check_column(identifier, list(piece.columns))
                rows.insert(0, identifier, piece[identifier].to_numpy())
            texts = rows.select_dtypes(exclude="number")
            safe = texts.map(_no_formula)
            marked |= not safe.equals(texts)
            rows = rows.assign(**safe).rename(columns=_no_formula)
            rows.to_csv(file, index=False, header=done == 0, sep=separator, mode="wb")
            done += len(rows)
            doing(f"predicting, {done:,} rows done")
    notes = [*source.notes, *differences.notes()]
    if marked:
        notes.append("texts that a spreadsheet would run as formulas have a ' in front.")
    printing.remark(notes)


def _no_formula(value: Any) -> Any:
    """Return a text that a spreadsheet would take for a formula with a quote in front."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def predictions(model: Any, X: Any) -> Any:
    """Return a table of predictions, with one probability per class where the model has them."""
    columns: dict[str, Any] = {"prediction": model.predict(X)}
    if hasattr(model, "predict_proba"):
        chances = model.predict_proba(X)
        columns |= {f"p_{c}": chances[:, k] for k, c in enumerate(model.classes_)}
    return type(X)(columns)


# otdro audit


def audit(options: AuditOptions) -> int:
    """Audit, print, write the page, and return the exit code."""
    if (options.require_accuracy is None) != (options.at_delta is None):
        raise UserError("--require-accuracy and --at-delta go together: give both.")
    if options.max_drift is not None and options.new is None:
        raise UserError("--max-drift needs new rows: give them by --new.")
    page = options.report
    printing.check_outputs(
        {"--report": page}, options.model, options.data, options.new, options.check
    )
    earlier = None if options.check is None else printing.document_of(options.check, "audit")
    with printing.working("reading") as doing:
        model = persistence.load(options.model)
        result, rows, notes = audited(model, options, doing)
        requirements = []
        required = options.require_accuracy
        if required is not None:
            found = result.accuracy(options.at_delta)
            requirements.append(_requirement("accuracy", options.at_delta, required, found))
        requirements += _limit(options.max_drift, [result.drift])
        if page is not None:
            from ..report import write

            doing("writing the page")
            title = f"{options.model.name} on {Path(options.data).name}"
            told = {"title": title, "notes": notes, "requirements": requirements}
            write(page, result, model=model, row_names=rows, **told)
    check = None if earlier is None else checked(earlier, result, str(options.check))
    head = {**printing.asked("audit", options, "model", "data", "target", "new"), "check": check}
    document = {**head, **result.to_dict()}
    document["advice"] = summary.still_to_do(result.advice, requirements)
    code = _told(
        document, result, lambda: _show_audit(result, document["advice"]), requirements, notes
    )
    if check is not None:
        _show_check(check)
    return NOT_MET if check is not None and check["worse"] else code


def audited(
    model: Any, options: AuditOptions, doing: Callable[[str], None]
) -> tuple[Audit, list[str], list[str]]:
    """Read the tables; return the audit, the names of its rows, and notes for the reader."""
    notes: list[str] = []
    differences = preparing.Differences()
    target, beside = options.target, (options.target, options.groups, options.identifier)
    table = preparing.table_of(options.data, options, notes)
    for name in filter(None, beside):
        preparing.check_column(name, list(table.columns))
    groups = None
    if options.groups is not None:
        groups = preparing.required_groups(table[options.groups]).to_numpy()
    names = table.index if options.identifier is None else table[options.identifier]
    new = None
    if options.new is not None:
        rows = preparing.table_of(options.new, options, notes)
        if target not in rows.columns:
            notes.append(f"the new table has no column {target!r}: its labels are unknown.")
        new = _labelled(rows, preparing.model_rows(model, rows, differences, beside), target, model)
    X = preparing.model_rows(model, table, differences, beside)
    doing("auditing" if new is None else "auditing, and measuring the drift")
    with warnings.catch_warnings(record=True, action="always") as caught:
        result = inspection.audit(
            model,
            X,
            preparing.labels_of(table, target, model),
            cost=options.cost,
            order=options.order,
            tau=options.tau,
            space=options.space,
            groups=groups,
            new=new,
            random_state=options.seed,
        )
    notes += [str(each.message) for each in caught if str(each.message) not in result.notes]
    return result, [str(name) for name in names], notes + differences.notes()


# What changed since an earlier audit.


def checked(earlier: dict[str, Any], result: Audit, file: str) -> dict[str, Any]:
    """Return what changed since an earlier audit, and whether a bound got worse.

    Certified accuracy and worst-case loss are compared at the deltas of the earlier curve, where
    they changed most for the worse. A breaking point of None is never reached. That of a
    constant's accuracy is compared if this accuracy is the same in both audits: with other shares
    of the classes it is the breaking point of another level.
    """
    now = result.to_dict()
    # the record tells costs of one name apart
    old, new = ({**told, "cost": told["record"]["conditions"]["cost"]} for told in (earlier, now))
    for key in ("task", "cost", "order", "space"):
        if old[key] != new[key]:
            raise UserError(
                f"{file} is an audit of another {key} ({earlier[key]!r}, here {now[key]!r}), so "
                "that its bounds cannot be compared. Audit in the same way, or leave --check out."
            )
    before, after = earlier["breaking_points"], now["breaking_points"]
    changed = changes(earlier, now)
    # name, before, now, and 1 where less is worse, else -1
    bounds = [("accuracy", earlier["accuracy"], now["accuracy"], 1)]
    levels = earlier["constant_accuracy"], now["constant_accuracy"]
    if isclose(*levels):
        name = "delta of a constant's accuracy"
        bounds.append((name, before["constant"], after["constant"], 1))
    else:
        changed.append(
            f"a constant's accuracy was {levels[0]:.4g} and is {levels[1]:.4g}: the deltas at "
            "which the model is as bad are of different levels, and not compared."
        )
    for level, delta in after["levels"].items():
        bounds.append((f"delta of accuracy {level}", before["levels"].get(level), delta, 1))
    # an endless loss is None, here NaN
    curve = {key: np.array(earlier["curve"][key], float) for key in ("delta", "accuracy", "risk")}
    deltas = curve["delta"]
    curves = [("accuracy", curve["accuracy"], result.accuracy(deltas), 1)]
    if np.isfinite(curve["risk"]).any():
        curves.append(("worst-case loss", curve["risk"], result.risk(deltas), -1))
    for what, old_curve, new_curve, sign in curves:
        k = int(np.nanargmax(sign * (old_curve - new_curve)))
        bounds.append((f"{what} within delta {deltas[k]:.4g}", old_curve[k], new_curve[k], sign))
    lines = [_bound(*bound) for bound in bounds]
    return {
        "file": file,
        "date": earlier["record"]["date"],
        "changed": changed,
        "bounds": lines,
        "worse": any(line["worse"] for line in lines),
    }


def _bound(name: str, before: Any, now: Any, sign: int) -> dict[str, Any]:
    """Return a bound before and now; worse is less for ``sign`` 1, more for -1.

    None stands for infinity. Versions differ in rounding, which makes no bound worse.
    """
    before, now = (np.inf if value is None else float(value) for value in (before, now))
    worse = sign * now < sign * before and not np.isclose(before, now)
    return {"bound": name, "before": before, "now": now, "worse": bool(worse)}


def _show_check(check: dict[str, Any]) -> None:
    printing.heading(f"Since {check['file']} of {check['date']}")
    changed = check["changed"]
    if not changed:
        only_bounds = any(b["before"] != b["now"] for b in check["bounds"])
        changed = ["bounds changed, and nothing else." if only_bounds else "nothing changed."]
    for line in changed:
        printing.say(f"* {line}")
    printing.say()
    body = [
        [b["bound"], f"{b['before']:.4g}", f"{b['now']:.4g}", "WORSE" if b["worse"] else ""]
        for b in check["bounds"]
    ]
    printing.grid(Grid(["bound", "before", "now", " "], body))
    printing.say(
        "within delta: of the deltas of the earlier curve, the one at which the accuracy, or the "
        "loss, changed most for the worse."
    )


# otdro drift


def drift(options: DriftOptions) -> int:
    """Measure how far batches are from old rows, print, and return the exit code."""
    news, target = options.new or [], options.target
    if bool(news) == (options.by is not None):
        raise UserError("name one or more tables of new rows, or a column by --by, not both.")
    notes: list[str] = []
    if options.model is None and target is None:
        notes.append("every column is a feature here: name a column of labels by --target.")
    differences = preparing.Differences()
    with printing.working("reading") as doing:
        model = None if options.model is None else persistence.load(options.model)
        tables = [preparing.table_of(name, options, notes) for name in (options.old, *news)]
        batch, in_time = None, False
        if options.by is not None:
            preparing.check_column(options.by, list(tables[0].columns))
            batch = tables[0][options.by].dropna()
            in_time = holds_dates(batch)
            batch = days_in(batch).dt.strftime("%Y-%m") if in_time else batch.astype(str)
            if len(batch) < len(tables[0]):
                lost = len(tables[0]) - len(batch)
                rows_are = "1 row is" if lost == 1 else f"{lost} rows are"
                notes.append(f"{rows_are} left out, without a value of {options.by!r}.")
            if options.by in getattr(model, "feature_names_in_", ()):
                notes.append(
                    f"column {options.by!r} makes the batches and is a feature of the model: its "
                    "values are part of the distance; compare without a model to leave them out."
                )
            tables = [tables[0].loc[batch.index]]
        seen_by, beside, owner = model, (target, options.by), "that the model needs"
        if model is None:
            old = tables[0].drop(columns=[] if options.by is None else options.by)
            seen_by, owner = _preparation(old, options, notes), "of the old one"
        rows = [preparing.model_rows(seen_by, t, differences, beside, owner) for t in tables]
        samples = [_labelled(t, X, target, model) for t, X in zip(tables, rows, strict=True)]
        doing("measuring the drift")
        settings = {"cost": options.cost, "order": options.order, "random_state": options.seed}
        settings["model"] = seen_by
        if batch is not None:
            # months are compared with the one before them, other batches with all others together
            X, y = samples[0] if isinstance(samples[0], tuple) else (samples[0], None)
            result = inspection.drifts(X, batch.to_numpy(str), y, ordered=in_time, **settings)
        else:
            old = Path(options.old).name
            steps = [
                Step(old, Path(name).name, inspection.drift(samples[0], new, **settings))
                for name, new in zip(news, samples[1:], strict=True)
            ]
            result = Drifts(steps, False, [])
    farthest = max(result.steps, key=lambda step: step.delta)
    batches = result.to_dict()
    head = {
        **printing.asked("drift", options, "old", "by", "target", "model"),
        "new": news,
        "scale": None if model is not None else options.scale,
        "batches": batches["steps"],
        "quantiles": batches["quantiles"],
        "farthest": farthest.new,
    }

    def show() -> None:
        if len(result.steps) > 1:
            title, *table = Drifts.summary(result).splitlines()
            printing.heading(title.partition(",")[0])
            printing.grid(result.grid())
            printing.say(f"{table[len(result.steps) + 1].capitalize()}. Farthest: {farthest.new}.")
            printing.say(DELTA)
        _show_drift(farthest.drift)

    requirements = _limit(options.max_drift, [step.drift for step in result.steps])
    notes = differences.notes() + notes + result.notes
    document = {**head, **farthest.drift.to_dict()}
    if model is None:
        document["reason"] = f"{NO_BALL}name a model by --model."
    elif farthest.drift.delta is None and target is None:
        document["reason"] = (
            f"{NO_BALL}the model was fitted for no delta; name the column of labels by --target."
        )
    return _told(document, farthest.drift, show, requirements, notes)


def _labelled(table: Any, X: Any, target: str | None, model: Any) -> Any:
    """Return the rows X of a table, with their labels where it has any."""
    if target is None or target not in table.columns:
        return X
    if model is not None:
        return X, preparing.labels_of(table, target, model)
    # amounts are numbers, not labels
    numbers = numbers_in(table[target], words=False)
    if numbers is not None and numbers.what:
        return X, numbers.values
    return X, table[target].to_numpy()


def _preparation(old: Any, options: DriftOptions, notes: list[str]) -> Any:
    """Return the steps that impute, encode and scale the columns of a table, fitted to it."""
    if options.target is not None:
        preparing.check_column(options.target, list(old.columns))
        old = old.drop(columns=options.target)
    names = list(old.columns)
    categorical, keep = (
        preparing.split_names(given, names) for given in (options.categorical, options.keep)
    )
    data = preparing.usable_columns(old, categorical, keep)
    notes += data.notes
    return preparing.pipeline(data, options.scale).fit(data.X)


# What is required, and what is printed.


def _requirement(
    what: str, at_delta: float | None, required: float, found: float, beside: Sequence[str] = ()
) -> Any:
    """Return a requirement of a document: at least so much accuracy, or at most so much drift.

    What no distance measures, ``beside``, meets no requirement.
    """
    met = found >= required if what == "accuracy" else found <= required and not beside
    line = {"requirement": what, "at_delta": at_delta, "required": required}
    return line | {"found": found, "beside": list(beside), "met": bool(met)}


def _limit(most: float | None, drifts: Sequence[Drift]) -> list[Any]:
    """Return the requirement on drift: no lower bound exceeds it by more than sampling noise.

    Class shares that differ beyond chance, of any of the batches, and categories that no old row
    has are in no distance: they are named.
    """
    if most is None:
        return []
    beside = []
    for drift in drifts:
        shift = drift.label_shift
        if shift and shift.p_value is not None and shift.p_value * len(drifts) < RARE:
            beside.append(f"other class shares, {summary.shares_in_words(shift)}")
        for column, rows in drift.new_values.items():
            beside.append(f"values of {column!r} that no old row has, in {rows} rows")
    found = max(max(drift.beyond_noise.values()) for drift in drifts)
    return [_requirement("drift", None, most, found, beside)]


def _told(
    document: dict[str, Any],
    result: Audit | Drift,
    show: Callable[[], None],
    requirements: list[Any],
    notes: list[str],
) -> int:
    """Print the result, what was required and whether it holds; return the exit code."""
    met = all(line["met"] for line in requirements)
    document["notes"] = notes + document["notes"]
    document |= {"requirements": requirements, "met": met}
    printing.tell(document, show)
    for line in requirements:
        printing.say(summary.requirement_in_words(line))
    drift = result.drift if isinstance(result, Audit) else None
    said = [*notes, *result.notes, *(() if drift is None else drift.notes)]
    printing.remark(list(dict.fromkeys(said)))
    return 0 if met else NOT_MET


def _show_drift(result: Drift) -> None:
    printing.heading("What drifted")
    printing.pairs(summary.drift_pairs(result))
    printing.say()
    printing.grid(result.columns.grid(summary.SHOWN))


def _show_audit(result: Audit, advice: list[str]) -> None:
    printing.heading("How far the data may move")
    printing.pairs(summary.audit_pairs(result))
    printing.say()
    printing.grid(summary.curve_grid(result))
    printing.say(summary.curve_note(result))
    parts = summary.parts_grid(result)
    if parts.body:
        printing.say()
        printing.grid(parts)
    printing.heading("Against whom")
    printing.grid(result.columns.grid(summary.SHOWN))
    printing.say(summary.BUDGET)
    if result.drift is not None:
        _show_drift(result.drift)
    printing.heading("What to do next")
    for sentence in advice:
        printing.say(f"* {sentence}")
