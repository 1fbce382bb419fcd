"""The commands and their options: a class per command, whose docstring is its help.

Each field holds its help and what it takes. What a command does is imported when it runs.
"""

# ruff: noqa: RUF009 - `option`, `choice` and `argument` return fields

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from importlib import import_module
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from .. import __version__
from ..wanted import Wanted, is_tolerance
from .errors import UserError

TABLE = "CSV, TSV, Parquet, .xlsx or gzip of text; - is stdin."
IDENTIFIER = "A column that names the rows, such as an id."
CATEGORICAL = "Columns to take as categories: A,B."
KEEP = "Dates or ids to use all the same: A,B."
ORDER = "1 or 2; the model's own, else 1."
MAX_DRIFT = "Exit with 3 if the drift is surely larger."
COSTS = ("learned", "euclidean", "l1", "linf")


AT_LEAST_0 = Wanted(is_tolerance, "be a number >= 0")
AT_LEAST_1 = Wanted(lambda value: value >= 1, "be at least 1")
AT_LEAST_2 = Wanted(lambda value: value >= 2, "be at least 2")


def is_delta(value: str) -> bool:
    """Whether a text is a number >= 0, cv or theory."""
    try:
        return value in ("cv", "theory") or is_tolerance(float(value))
    except ValueError:
        return False


DELTA = Wanted(is_delta, "be a number >= 0, cv or theory")
LOSS = Wanted(is_tolerance, "be a share >= 0")
SHARE = Wanted(lambda value: 0 <= value <= 1, "be in [0, 1]")
INSIDE = Wanted(lambda value: 0 < value < 1, "lie between 0 and 1")


def argument(text: str, default: Any = MISSING) -> Any:
    """Return the field of an argument with its help."""
    return field(default=default, metadata={"typer": typer.Argument(help=text)})


def option(text: str, default: Any = None, *flags: str, wanted: Wanted | None = None) -> Any:
    """Return the field of an option with its help; ``flags`` replace its own name."""
    shown = typer.Option(*flags, help=text)
    return field(default=default, metadata={"typer": shown, "wanted": wanted})


def choice(*values: str, default: str | None = "auto", text: str = "") -> Any:
    """Return the field of an option that takes one of some words."""
    words = f"{', '.join(values[:-1])} or {values[-1]}"
    be = "be" if len(values) == 3 else "be one of"
    wanted = Wanted(lambda value: value in values, f"{be} {words}")
    return option(f"{text}{words}.", default, wanted=wanted)


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of every command."""

    quiet: bool = option("Print nothing but errors.", False, "--quiet", "-q")

    def __post_init__(self) -> None:
        """Refuse what an option does not take."""
        for part in fields(self):
            wanted, value = part.metadata.get("wanted"), getattr(self, part.name)
            if wanted is not None and value is not None and not wanted.accepts(value):
                name = part.name.replace("_", "-")
                raise UserError(f"--{name} must {wanted.words}, got {value}.")


@dataclass(frozen=True, kw_only=True)
class Reading(Output):
    """How tables are read, and the document for programs."""

    as_json: bool = option("Print JSON for machines.", False, "--json")
    drop: list[str] | None = option("Columns to leave out: A,B; may be repeated.")
    sample: int | None = option("Use N random rows, read in one pass.", wanted=AT_LEAST_1)
    seed: int = option("Seed of folds and splits.", 0)
    decimal: str = choice("auto", ".", ",", text="Decimal sign of numbers: ")


@dataclass(frozen=True, kw_only=True)
class Learning(Reading):
    """The table that ``fit`` and ``compare`` learn from, and the parameters of our model."""

    data: str = argument(TABLE)
    target: str = option("The column to predict.", MISSING)
    task: str = choice("auto", "classification", "regression")
    scale: str = choice("auto", "standard", "yeo-johnson", "asinh", "none")
    categorical: list[str] | None = option(CATEGORICAL)
    unlabelled: str | None = option(
        "A table of rows without labels, for scaling and the learned cost."
    )
    groups: str | None = option("Column of the environments that folds leave out.")
    forward: bool = option("With --groups: test on what comes next.", False, "--forward")
    keep: list[str] | None = option(KEEP)
    identifier: str | None = option(IDENTIFIER, None, "--id")
    delta: str = option("A number >= 0, cv or theory.", "cv", wanted=DELTA)
    delta_from: Path | None = option("A --json of otdro drift: the delta of its drifts.")
    source: Path | None = option("A published model: from fit --save, or a CSV of coefficients.")
    cost: str | None = choice(*COSTS, default=None, text="Learned if none is named: ")
    loss: str | None = option("logistic, hinge, squared_hinge; squared, absolute, huber, quantile.")
    order: str = choice("1", "2", "auto", text="The power of the distance: ")
    rule: str | None = option("How folds choose delta: auto, min, 1se, tolerance, ...")
    tolerance: float | None = option("Loss that --rule tolerance may cost: 0.05.", wanted=LOSS)

    @property
    def inputs(self) -> list[Any]:
        """The files that the command reads, None for those that are not named."""
        return [self.data, self.unlabelled, self.delta_from, self.source]

    @property
    def is_of_quantile(self) -> bool:
        """Whether the model is one of a quantile."""
        return self.loss == "quantile" or getattr(self, "quantile", None) is not None


@dataclass(frozen=True, kw_only=True)
class FitOptions(Learning):
    """Fit a robust model to a table and say what was learned."""

    quantile: float | None = option("Fit this quantile, e.g. 0.9.", wanted=INSIDE)
    refits: int | None = option("Fit again to N bootstrap samples: stability.", wanted=AT_LEAST_2)
    save: Path | None = option("File for the model, by skops.")
    report: Path | None = option("HTML page, one file without network.")
    compare: bool = option("Compare with no penalty, L1 and L2.", True)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Learning):
    """Compare a robust model with the usual ones on repeated splits."""

    against: str | None = option("Further models: forest, boosting, splines; A,B.")
    splits: int = option("Random splits.", 20, wanted=AT_LEAST_2)
    plot: Path | None = option("Draw to a .png, .svg or .pdf.")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Output):
    """Predict labels and probabilities, or numbers, for the rows of a table."""

    model: Path = argument("A file from otdro fit --save.")
    data: str = argument(TABLE)
    out: Path | None = option("CSV file; without it, stdout.")
    identifier: str | None = option(IDENTIFIER, None, "--id")
    decimal: str = choice("auto", ".", ",", text="Decimal sign of numbers: ")
    strict: bool = option("Refuse categories that training did not have.", False, "--strict")


@dataclass(frozen=True, kw_only=True)
class AuditOptions(Reading):
    """Say how far the data may move before a linear model fails."""

    model: Path = argument("A linear model saved by otdro fit --save or skops.")
    data: str = argument(TABLE)
    target: str = option("The column to predict.", MISSING)
    new: str | None = option("New rows, whose drift is measured.")
    cost: str | None = choice(*COSTS, default=None, text="The model's own, or ")
    order: int | None = option(ORDER)
    tau: float | None = option("Regression: right is within this of the target.")
    space: str = option("last or raw: the columns that move.", "last")
    groups: str | None = option("A column of groups of rows.")
    identifier: str | None = option(IDENTIFIER, None, "--id")
    require_accuracy: float | None = option("Exit with 3 if less is certified.", wanted=SHARE)
    at_delta: float | None = option("The delta of --require-accuracy.", wanted=AT_LEAST_0)
    max_drift: float | None = option(MAX_DRIFT, wanted=AT_LEAST_0)
    check: Path | None = option("An earlier --json: exit with 3 if a bound got worse.")
    report: Path | None = option("HTML page, one file without network.")


@dataclass(frozen=True, kw_only=True)
class DriftOptions(Reading):
    """Say how far new rows are from old ones."""

    old: str = argument(TABLE)
    new: list[str] | None = argument("Tables of new rows, one for each batch.", None)
    by: str | None = option("A column of dates or sites: its months, or values, are batches.")
    target: str | None = option("The column of labels, if any.")
    model: Path | None = option("A saved linear model.")
    cost: str | None = choice(*COSTS, default=None)
    order: int | None = option(ORDER)
    scale: str = choice(
        "standard", "yeo-johnson", "asinh", "none", default="standard", text="Without a model: "
    )
    categorical: list[str] | None = option(CATEGORICAL)
    keep: list[str] | None = option(KEEP)
    max_drift: float | None = option(MAX_DRIFT, wanted=AT_LEAST_0)


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Output):
    """Show what is learned and whether it pays, on data that needs no file."""

    reps: int = option("Random splits.", 10, wanted=AT_LEAST_2)
    seed: int = option("Seed of folds and splits.", 0)


# The commands.

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    help="Learn from the data what it costs to move it, then fit the model that does best "
    "against every distribution within that cost.",
)

#: The options of each command, and the module with the function of its name.
COMMANDS: dict[str, tuple[type[Output], str]] = {
    "fit": (FitOptions, "fit"),
    "predict": (PredictOptions, "audit"),
    "compare": (CompareOptions, "fit"),
    "audit": (AuditOptions, "audit"),
    "drift": (DriftOptions, "audit"),
    "demo": (DemoOptions, "fit"),
}


@app.callback(invoke_without_command=True)
def otdro(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
) -> None:
    """Print the version, or the help if no command is named."""
    if version:
        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _register(name: str, cls: type[Output], module: str) -> None:
    def command(**given: Any) -> None:
        from .printing import read_by

        options = cls(**given)
        reader = "nobody" if options.quiet else "person"
        with read_by("program" if given.get("as_json") else reader):
            code = getattr(import_module(f".{module}", __package__), name)(options)
        raise typer.Exit(code or 0)

    kinds, own = get_type_hints(cls), signature(cls).parameters
    shown = {f.name: Annotated[kinds[f.name], f.metadata["typer"]] for f in fields(cls)}
    # what all commands share is shown last
    shared = {f.name for f in fields(Reading)}
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [own[n].replace(annotation=shown[n]) for n in sorted(own, key=shared.__contains__)]
    )
    app.command(name, help=cls.__doc__)(command)


for _name, (_cls, _module) in COMMANDS.items():
    _register(_name, _cls, _module)
