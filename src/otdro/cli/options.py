"""The options of the commands: a class per command, whose docstring is its help.

A field without a default is an argument of the command line, ``--target`` excepted; the others are
options of their own names. Below are the checks of options that several commands share.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import UserError


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of every command."""

    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class Document(Output):
    """Options of commands that can print a document for programs."""

    as_json: bool = False


@dataclass(frozen=True, kw_only=True)
class Reading(Document):
    """How tables are read."""

    drop: list[str] | None = None
    sample: int | None = None
    seed: int = 0
    decimal: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Learning(Reading):
    """The table that ``fit`` and ``compare`` learn from, and the parameters of our model."""

    data: str
    target: str
    task: str = "auto"
    scale: str = "auto"
    categorical: list[str] | None = None
    unlabelled: str | None = None
    groups: str | None = None
    forward: bool = False
    keep: list[str] | None = None
    identifier: str | None = None
    delta: str = "cv"
    delta_from: Path | None = None
    source: Path | None = None
    cost: str | None = None
    loss: str | None = None
    order: str = "auto"
    rule: str | None = None
    tolerance: float | None = None


@dataclass(frozen=True, kw_only=True)
class FitOptions(Learning):
    """Fit a robust model to a table and say what was learned."""

    quantile: float | None = None
    refits: int | None = None
    save: Path | None = None
    report: Path | None = None
    compare: bool = True


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Learning):
    """Compare a robust model with the usual ones on repeated splits."""

    against: str | None = None
    splits: int = 20
    plot: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Output):
    """Predict labels and probabilities, or numbers, for the rows of a table."""

    model: Path
    data: str
    out: Path | None = None
    identifier: str | None = None
    decimal: str = "auto"
    strict: bool = False


@dataclass(frozen=True, kw_only=True)
class AuditOptions(Reading):
    """Say how far the data may move before a linear model fails."""

    model: Path
    data: str
    target: str
    new: str | None = None
    cost: str | None = None
    order: int | None = None
    tau: float | None = None
    space: str = "last"
    groups: str | None = None
    identifier: str | None = None
    require_accuracy: float | None = None
    at_delta: float | None = None
    max_drift: float | None = None
    check: Path | None = None
    report: Path | None = None


@dataclass(frozen=True, kw_only=True)
class DriftOptions(Reading):
    """Say how far new rows are from old ones."""

    old: str
    new: list[str] | None = None
    by: str | None = None
    target: str | None = None
    model: Path | None = None
    cost: str | None = None
    order: int | None = None
    scale: str = "standard"
    categorical: list[str] | None = None
    keep: list[str] | None = None
    max_drift: float | None = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Output):
    """Show what is learned and whether it pays, on data that needs no file."""

    reps: int = 10
    seed: int = 0


#: The help of an option, or of a command's option where the same name means something else there.
HELP = {
    "against": "Further models: forest, boosting, splines; A,B.",
    "as_json": "Print JSON for machines.",
    "at_delta": "The delta of --require-accuracy.",
    "audit cost": "euclidean, l1, linf or learned; the model's own.",
    "audit groups": "A column of groups of rows.",
    "audit model": "A linear model saved by otdro fit --save or skops.",
    "audit new": "New rows, whose drift is measured.",
    "audit order": "1 or 2; the model's own, else 1.",
    "by": "A column of dates or sites: its months, or values, are batches.",
    "categorical": "Columns to take as categories: A,B.",
    "check": "An earlier --json: exit with 3 if a bound got worse.",
    "compare": "Compare with no penalty, L1 and L2.",
    "cost": "learned (the default), euclidean, l1 or linf.",
    "data": "CSV, TSV, Parquet, .xlsx or gzip of text; - is stdin.",
    "decimal": "Decimal sign of numbers: auto, . or ,",
    "delta": "A number >= 0, cv or theory.",
    "delta_from": "A --json of otdro drift: the delta of its drifts.",
    "drift cost": "euclidean, l1, linf or learned.",
    "drift order": "1 or 2; the model's own, else 1.",
    "drift model": "A saved linear model.",
    "drift scale": "Without a model: standard, yeo-johnson, asinh or none.",
    "drift target": "The column of labels, if any.",
    "drop": "Columns to leave out: A,B; may be repeated.",
    "forward": "With --groups: test on what comes next.",
    "groups": "Column of the environments that folds leave out.",
    "identifier": "A column that names the rows, such as an id.",
    "keep": "Dates or ids to use all the same: A,B.",
    "loss": "logistic, hinge, squared_hinge; squared, absolute, huber, quantile.",
    "max_drift": "Exit with 3 if the drift is surely larger.",
    "new": "Tables of new rows, one for each batch.",
    "old": "CSV, TSV, Parquet, .xlsx or gzip of text; - is stdin.",
    "order": "1, 2 or auto: the power of the distance.",
    "out": "CSV file; without it, stdout.",
    "plot": "Draw to a .png, .svg or .pdf.",
    "predict model": "A file from otdro fit --save.",
    "quantile": "Fit this quantile, e.g. 0.9.",
    "quiet": "Print nothing but errors.",
    "report": "HTML page, one file without network.",
    "refits": "Fit again to N bootstrap samples: stability.",
    "reps": "Random splits.",
    "require_accuracy": "Exit with 3 if less is certified at --at-delta.",
    "rule": "How folds choose delta: auto, min, 1se, tolerance, ...",
    "sample": "Use N random rows, read in one pass.",
    "save": "File for the model, by skops.",
    "scale": "auto, standard, yeo-johnson, asinh or none.",
    "seed": "Seed of folds and splits.",
    "source": "A published model: from fit --save, or a CSV of coefficients.",
    "space": "last or raw: the columns that move.",
    "splits": "Random splits.",
    "strict": "Refuse categories that training did not have.",
    "target": "The column to predict.",
    "task": "auto, classification or regression.",
    "tau": "Regression: right is within this of the target.",
    "tolerance": "With --rule tolerance: the loss it may cost, e.g. 0.05.",
    "unlabelled": "A table of rows without labels, for cost, delta and scale.",
}


#: Drifts whose least p-value, times their number, is above this may all be chance.
SIGNIFICANT = 0.05
#: The version of the documents of ``--json``: it changes when a key changes its meaning.
SCHEMA = 2


# Checks that commands share.


def parameters(chosen: Learning, quantile: float | None = None) -> dict[str, Any]:
    """Return what was chosen as parameters of the estimator, without those left at defaults."""
    values: dict[str, Any] = {"cost": chosen.cost, "rule": chosen.rule, "loss": chosen.loss}
    if chosen.tolerance is not None:
        if chosen.rule != "tolerance":
            raise UserError("--tolerance is for --rule tolerance; add that, or leave it out.")
        if not (math.isfinite(chosen.tolerance) and chosen.tolerance >= 0):
            raise UserError(f"--tolerance must be a share >= 0, got {chosen.tolerance:g}.")
        values["tolerance"] = chosen.tolerance
    if chosen.delta != "cv":
        values["delta"] = chosen.delta if chosen.delta == "theory" else _radius(chosen.delta)
    if chosen.order not in ("auto", "1", "2"):
        raise UserError(f"--order must be 1, 2 or auto, got {chosen.order!r}.")
    if chosen.order != "auto":
        values["order"] = int(chosen.order)
    if quantile is not None:
        from ..losses import Quantile

        if chosen.loss not in (None, "quantile"):
            raise UserError(f"--quantile is for --loss quantile, not {chosen.loss}.")
        if not 0 < quantile < 1:
            raise UserError(f"--quantile must lie between 0 and 1, got {quantile:g}.")
        values["loss"] = Quantile(tau=quantile)
    return {name: value for name, value in values.items() if value is not None}


def document_of(path: Path, command: str) -> dict[str, Any]:
    """Return a document that ``--json`` printed; refuse what is none of this command."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeError):
        document = None
    if not isinstance(document, dict) or document.get("command") != command:
        raise UserError(f"{path} is no document of otdro {command} --json; make one.")
    if document.get("schema") != SCHEMA:
        raise UserError(
            f"{path} has schema {document.get('schema')} and this version reads {SCHEMA}; make it "
            f"again by otdro {command} --json."
        )
    return document


def with_drift(options: Any) -> tuple[Any, str | None]:
    """Return options whose delta is that of the drifts of --delta-from, and its origin in words.

    It is the 80% quantile, of fewer than five drifts the largest, in the cost and order that they
    were measured in. A delta of 0 would be a fit without any ball, so that it is refused, as are
    drifts that may all be chance.
    """
    if options.delta_from is None:
        return options, None
    document = document_of(options.delta_from, "drift")
    for option, default in (("delta", "cv"), ("rule", None)):
        if getattr(options, option) != default:
            raise UserError(f"--{option} and --delta-from both choose delta; leave one out.")
    delta, order = float(document["quantiles"]["0.8"]), str(document["order"])
    if options.order not in ("auto", order):
        raise UserError(
            f"the drifts in {options.delta_from} are of order {order}: use --order {order}."
        )
    told = min(float(batch["p_value"]) for batch in document["batches"])
    if delta <= 0 or told * len(document["batches"]) > SIGNIFICANT:
        raise UserError(
            f"the drifts in {options.delta_from} do not exceed their noise (their 80% quantile is "
            f"{delta:.3g}, the least p-value {told:.2g}), so that they give no delta: leave "
            "--delta-from out."
        )
    values = {"delta": repr(delta), "order": order}
    # without a model the drift was measured in its own scaling and cost
    if document["scale"] is not None:
        values["scale"] = document["scale"] if options.scale == "auto" else options.scale
        values["cost"] = options.cost or "euclidean"
    count = len(document["batches"])
    origin = (
        f"the 80% quantile of the {count} drift{'' if count == 1 else 's'} in {options.delta_from}"
    )
    return replace(options, **values), origin


def check_radius(option: str, value: float | None) -> None:
    """Refuse a radius that is no number >= 0."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise UserError(f"{option} must be a number >= 0, got {value:g}.")


def _radius(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value >= 0):
        raise UserError(f"--delta must be a number >= 0, cv or theory, got {text!r}.")
    return value


def check_outputs(outputs: dict[str, Path | None], *inputs: str | Path | None) -> None:
    """Refuse files that cannot be written, or that this command reads, before any work is done.

    ``outputs`` maps the options to what they name.
    """
    taken = {
        Path(name).resolve(): "the command reads"
        for name in inputs
        if name is not None and name != "-"
    }
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise UserError(f"{path} is a folder; name a file in it.")
        if not path.parent.is_dir():
            raise UserError(f"there is no folder {path.parent}; make it first.")
        if not os.access(path.parent, os.W_OK):
            raise UserError(f"no permission to write in {path.parent}. Choose another place.")
        if path.resolve() in taken:
            raise UserError(
                f"{option} {path} would replace a file that {taken[path.resolve()]}; name another."
            )
        taken[path.resolve()] = f"{option} names"


def asked(command: str, options: Reading, *names: str) -> dict[str, Any]:
    """Return the part of a document that says what was asked, and of which version."""
    from .. import __version__

    values = {name: getattr(options, name) for name in names}
    texts = {name: None if value is None else str(value) for name, value in values.items()}
    return {"command": command, "schema": SCHEMA, "version": __version__, **texts}
