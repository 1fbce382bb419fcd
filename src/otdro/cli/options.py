"""The options of the commands, each stated once: its name, its default, and what help says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, .xlsx or gzip of text; - is stdin.")]
Target = Annotated[str, typer.Option(help="The column to predict.")]
Categorical = Annotated[list[str] | None, typer.Option(help="Columns to take as categories: A,B.")]
Keep = Annotated[list[str] | None, typer.Option(help="Dates or ids to use all the same: A,B.")]
Drop = Annotated[list[str] | None, typer.Option(help="Columns to leave out: A,B; may be repeated.")]
Decimal = Annotated[str, typer.Option(help="Decimal sign of numbers: auto, . or ,")]
Seed = Annotated[int, typer.Option(help="Seed of folds and splits.")]
OwnOrder = Annotated[int | None, typer.Option(help="1 or 2; the model's own, else 1.")]
MaxDrift = Annotated[float | None, typer.Option(help="Exit with 3 if the drift is surely larger.")]
Report = Annotated[Path | None, typer.Option(help="HTML page, one file without network.")]


#: Who reads what a command prints: a person, a program (JSON), or nobody.
PERSON, PROGRAM, NOBODY = "person", "program", "nobody"


@dataclass(frozen=True)
class Output:
    """What every command prints."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False

    @property
    def reader(self) -> str:
        """Who reads it."""
        return NOBODY if self.quiet else PERSON


@dataclass(frozen=True)
class Document(Output):
    """What commands print that have a document for programs."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False

    @property
    def reader(self) -> str:
        """Who reads it."""
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
