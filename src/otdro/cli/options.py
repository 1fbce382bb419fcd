"""The options of the commands, each stated once: its name, its default, and what help says.

Below them are the checks of options that several commands share.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import UserError

Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, .xlsx or gzip of text; - is stdin.")]
Target = Annotated[str, typer.Option(help="The column to predict.")]
Categorical = Annotated[list[str] | None, typer.Option(help="Columns to take as categories: A,B.")]
Keep = Annotated[list[str] | None, typer.Option(help="Dates or ids to use all the same: A,B.")]
Drop = Annotated[list[str] | None, typer.Option(help="Columns to leave out: A,B; may be repeated.")]
Decimal = Annotated[str, typer.Option(help="Decimal sign of numbers: auto, . or ,")]
Seed = Annotated[int, typer.Option(help="Seed of folds and splits.")]
OwnOrder = Annotated[int | None, typer.Option(help="1 or 2; the model's own, else 1.")]
MaxDrift = Annotated[float | None, typer.Option(help="Exit with 3 if the drift is surely larger.")]
Identifier = Annotated[
    str | None, typer.Option("--id", help="A column that names the rows, such as an id.")
]
Report = Annotated[Path | None, typer.Option(help="HTML page, one file without network.")]


#: The audience of what a command prints: a person, a program (JSON), or nobody.
PERSON, PROGRAM, NOBODY = "person", "program", "nobody"


@dataclass(frozen=True)
class Output:
    """Options of every command."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False

    @property
    def reader(self) -> str:
        """The audience of the output."""
        return NOBODY if self.quiet else PERSON


@dataclass(frozen=True)
class Document(Output):
    """Options of commands that can print a document for programs."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False

    @property
    def reader(self) -> str:
        """The audience of the output."""
        return PROGRAM if self.as_json else super().reader


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How tables are read."""

    drop: Drop = None
    sample: Annotated[int | None, typer.Option(help="Use N random rows, read in one pass.")] = None
    seed: Seed = 0
    decimal: Decimal = "auto"


@dataclass(frozen=True)
class Options(Reading):
    """The table that ``fit`` and ``compare`` learn from."""

    data: Data
    target: Target
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto"
    scale: Annotated[str, typer.Option(help="auto, standard, yeo-johnson, asinh or none.")] = "auto"
    categorical: Categorical = None
    unlabelled: Annotated[
        str | None, typer.Option(help="A table of rows without labels, for cost, delta and scale.")
    ] = None
    groups: Annotated[
        str | None, typer.Option(help="Column of the environments that folds leave out.")
    ] = None
    forward: Annotated[
        bool, typer.Option("--forward", help="With --groups: test on what comes next.")
    ] = False
    keep: Keep = None
    identifier: Identifier = None


@dataclass(frozen=True)
class Chosen:
    """What is fitted: the options of our model."""

    delta: Annotated[str, typer.Option(help="A number >= 0, cv or theory.")] = "cv"
    cost: Annotated[
        str | None, typer.Option(help="learned (the default), euclidean, l1 or linf.")
    ] = None
    loss: Annotated[
        str | None,
        typer.Option(help="logistic, hinge, squared_hinge; squared, absolute, huber, quantile."),
    ] = None
    order: Annotated[str, typer.Option(help="1, 2 or auto: the power of the distance.")] = "auto"
    rule: Annotated[
        str | None, typer.Option(help="How folds choose delta: auto, min, 1se, ...")
    ] = None


@dataclass(frozen=True)
class AuditOptions(Reading):
    """What ``audit`` looks at."""

    model: Annotated[
        Path, typer.Argument(help="A linear model saved by otdro fit --save or skops.")
    ]
    data: Data
    target: Target
    new: Annotated[str | None, typer.Option(help="New rows, whose drift is measured.")] = None
    cost: Annotated[
        str | None, typer.Option(help="euclidean, l1, linf or learned; the model's own.")
    ] = None
    order: OwnOrder = None
    tau: Annotated[
        float | None, typer.Option(help="Regression: right is within this of the target.")
    ] = None
    space: Annotated[str, typer.Option(help="last or raw: the columns that move.")] = "last"
    groups: Annotated[str | None, typer.Option(help="A column of groups of rows.")] = None
    identifier: Identifier = None


@dataclass(frozen=True)
class Requirements:
    """What must hold for exit code 0: accuracy at a delta, a largest drift."""

    require_accuracy: Annotated[
        float | None, typer.Option(help="Exit with 3 if less is certified at --at-delta.")
    ] = None
    at_delta: Annotated[float | None, typer.Option(help="The delta of --require-accuracy.")] = None
    max_drift: MaxDrift = None


@dataclass(frozen=True)
class DriftOptions(Reading):
    """What ``drift`` measures."""

    old: Data
    new: Data
    target: Annotated[str | None, typer.Option(help="The column of labels, if any.")] = None
    model: Annotated[Path | None, typer.Option(help="A saved linear model.")] = None
    cost: Annotated[str | None, typer.Option(help="euclidean, l1, linf or learned.")] = None
    order: OwnOrder = None
    scale: Annotated[
        str, typer.Option(help="Without a model: standard, yeo-johnson, asinh or none.")
    ] = "standard"
    categorical: Categorical = None
    keep: Keep = None


# Checks that commands share.


def parameters(chosen: Chosen, quantile: float | None = None) -> dict[str, Any]:
    """Return what was chosen as parameters of the estimator, without those left at defaults."""
    values: dict[str, Any] = {"cost": chosen.cost, "rule": chosen.rule, "loss": chosen.loss}
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
    return {"command": command, "version": __version__, **texts}
