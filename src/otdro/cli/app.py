"""The commands and their options; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

WIDTH = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=WIDTH,
    help="Learn from the data what it costs to move it, then fit the model that does best "
    "against every distribution within that cost.",
)

Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, .xlsx or gzip of text; - is stdin.")]
Target = Annotated[str, typer.Option(help="The column to predict.")]
Task = Annotated[str, typer.Option(help="auto, classification or regression.")]
Scale = Annotated[str, typer.Option(help="auto, standard, yeo-johnson, asinh or none.")]
Drop = Annotated[list[str] | None, typer.Option(help="Columns to leave out: A,B; may be repeated.")]
Keep = Annotated[list[str] | None, typer.Option(help="Dates or ids to use all the same: A,B.")]
Categorical = Annotated[list[str] | None, typer.Option(help="Columns to take as categories: A,B.")]
Decimal = Annotated[str, typer.Option(help="Decimal sign of numbers: auto, . or ,")]
Sample = Annotated[int | None, typer.Option(help="Use N random rows, read in one pass.")]
Seed = Annotated[int, typer.Option(help="Seed of folds and splits.")]
Unlabelled = Annotated[
    str | None, typer.Option(help="A table of rows without labels: they shape the cost.")
]
Groups = Annotated[
    str | None, typer.Option(help="Column of the environments that folds leave out.")
]
Forward = Annotated[bool, typer.Option("--forward", help="With --groups: test on what comes next.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Report = Annotated[Path | None, typer.Option(help="HTML page, one file without network.")]
Folder = Annotated[str | None, typer.Option("--data", help="Folder of data files (OTDRO_DATA).")]


Delta = Annotated[str, typer.Option(help="A number >= 0, cv or theory.")]
Cost = Annotated[str | None, typer.Option(help="learned (the default), euclidean, l1 or linf.")]
Loss = Annotated[
    str | None,
    typer.Option(help="logistic, hinge, squared_hinge; squared, absolute, huber, quantile."),
]
Order = Annotated[str, typer.Option(help="1, 2 or auto: the power of the distance.")]
Rule = Annotated[str | None, typer.Option(help="How folds choose delta: auto, min, 1se, ...")]
QuantileLevel = Annotated[float | None, typer.Option(help="Fit this quantile, e.g. 0.9.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda: solve small problems there as one batch.")
]


@app.callback(invoke_without_command=True)
def otdro(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
) -> None:
    """Say the version, or what there is, if no command is named."""
    if version:
        from .. import __version__

        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("fit")
def fit_command(
    data: Data,
    target: Target,
    task: Task = "auto",
    scale: Scale = "auto",
    delta: Delta = "cv",
    cost: Cost = None,
    loss: Loss = None,
    order: Order = "auto",
    rule: Rule = None,
    quantile: QuantileLevel = None,
    save: Annotated[Path | None, typer.Option(help="File for the model, by skops.")] = None,
    report: Report = None,
    compare: Annotated[bool, typer.Option(help="Compare with no penalty, L1 and L2.")] = True,
    drop: Drop = None,
    categorical: Categorical = None,
    sample: Sample = None,
    seed: Seed = 0,
    unlabelled: Unlabelled = None,
    groups: Groups = None,
    forward: Forward = False,
    keep: Keep = None,
    decimal: Decimal = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a robust model to a table and say what was learned."""
    from .fit import Chosen, Options, fit

    left, texts, kept = (tuple(names or ()) for names in (drop, categorical, keep))
    rows = (left, texts, sample, seed, unlabelled, groups, forward, kept, decimal)
    options = Options(data, target, task, scale, *rows)
    shown = {"against": compare, "as_json": as_json, "quiet": quiet}
    chosen = Chosen(delta, cost, loss, order, rule, quantile)
    fit(options, chosen, save=save, page=report, **shown)


@app.command("predict")
def predict_command(
    model: Annotated[Path, typer.Argument(help="A file from otdro fit --save.")],
    data: Data,
    out: Annotated[Path | None, typer.Option(help="CSV file; without it, stdout.")] = None,
    identifier: Annotated[
        str | None, typer.Option("--id", help="A column to carry over, such as an id.")
    ] = None,
    decimal: Decimal = "auto",
    quiet: Quiet = False,
) -> None:
    """Predict labels and probabilities, or numbers, for the rows of a table."""
    from .predict import predict

    predict(model, data, out, identifier=identifier, decimal=decimal, quiet=quiet)


@app.command("compare")
def compare_command(
    data: Data,
    target: Target,
    splits: Annotated[int, typer.Option(help="Random splits.")] = 20,
    device: Device = None,
    plot: Annotated[Path | None, typer.Option(help="Draw to a .png, .svg or .pdf.")] = None,
    delta: Delta = "cv",
    cost: Cost = None,
    loss: Loss = None,
    order: Order = "auto",
    rule: Rule = None,
    task: Task = "auto",
    scale: Scale = "auto",
    drop: Drop = None,
    categorical: Categorical = None,
    sample: Sample = None,
    seed: Seed = 0,
    unlabelled: Unlabelled = None,
    groups: Groups = None,
    forward: Forward = False,
    keep: Keep = None,
    decimal: Decimal = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a robust model with the usual ones on repeated splits."""
    from .compare import compare
    from .fit import Chosen, Options

    left, texts, kept = (tuple(names or ()) for names in (drop, categorical, keep))
    rows = (left, texts, sample, seed, unlabelled, groups, forward, kept, decimal)
    options = Options(data, target, task, scale, *rows)
    chosen = Chosen(delta, cost, loss, order, rule)
    compare(
        options,
        chosen,
        splits=splits,
        device=device,
        plot=plot,
        as_json=as_json,
        quiet=quiet,
    )


@app.command("audit")
def audit_command(
    model: Annotated[
        Path, typer.Argument(help="A linear model saved by otdro fit --save or skops.")
    ],
    data: Data,
    target: Target,
    new: Annotated[str | None, typer.Option(help="New rows, whose drift is measured.")] = None,
    cost: Annotated[
        str | None, typer.Option(help="euclidean, l1, linf or learned; the model's own.")
    ] = None,
    order: Annotated[int | None, typer.Option(help="1 or 2; the model's own, else 1.")] = None,
    tau: Annotated[
        float | None, typer.Option(help="Regression: right is within this of the target.")
    ] = None,
    space: Annotated[str, typer.Option(help="last or raw: the columns that move.")] = "last",
    groups: Annotated[str | None, typer.Option(help="A column of groups of rows.")] = None,
    require_accuracy: Annotated[
        float | None, typer.Option(help="Exit with 3 if less is certified at --at-delta.")
    ] = None,
    at_delta: Annotated[float | None, typer.Option(help="The delta of --require-accuracy.")] = None,
    max_drift: Annotated[
        float | None, typer.Option(help="Exit with 3 if the drift is surely larger.")
    ] = None,
    report: Report = None,
    drop: Drop = None,
    sample: Sample = None,
    seed: Seed = 0,
    decimal: Decimal = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how far the data may move before a linear model fails."""
    from .audit import AuditOptions, Requirements, audit

    rows = (groups, tuple(drop or ()), sample, seed, decimal)
    options = AuditOptions(model, data, target, new, cost, order, tau, space, *rows)
    required = Requirements(require_accuracy, at_delta, max_drift)
    raise typer.Exit(audit(options, required, page=report, as_json=as_json, quiet=quiet))


@app.command("drift")
def drift_command(
    old: Data,
    new: Data,
    target: Annotated[str | None, typer.Option(help="The column of labels, if any.")] = None,
    model: Annotated[Path | None, typer.Option(help="A saved linear model.")] = None,
    cost: Annotated[str | None, typer.Option(help="euclidean, l1, linf or learned.")] = None,
    order: Annotated[int | None, typer.Option(help="1 or 2; the model's own, else 1.")] = None,
    scale: Annotated[
        str, typer.Option(help="Without a model: standard, yeo-johnson, asinh or none.")
    ] = "standard",
    max_drift: Annotated[
        float | None, typer.Option(help="Exit with 3 if the drift is surely larger.")
    ] = None,
    drop: Drop = None,
    categorical: Categorical = None,
    sample: Sample = None,
    seed: Seed = 0,
    keep: Keep = None,
    decimal: Decimal = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how far new rows are from old ones."""
    from .drift import DriftOptions, drift

    left, texts, kept = (tuple(names or ()) for names in (drop, categorical, keep))
    how = (left, texts, sample, seed, decimal, kept)
    options = DriftOptions(old, new, target, model, cost, order, scale, *how)
    raise typer.Exit(drift(options, max_drift=max_drift, as_json=as_json, quiet=quiet))


@app.command("table1")
def table1_command(
    sets: Annotated[str | None, typer.Option(help="E.g. BC,BN; the default is all six.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="E.g. L2,ours; or seven, default, all.")
    ] = None,
    reps: Annotated[int | None, typer.Option(help="Replications (200).")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes (1); -1 is all cores.")] = None,
    seed: Annotated[int | None, typer.Option(help="Base seed (0).")] = None,
    out: Annotated[str | None, typer.Option(help="Folder of the results (table1).")] = None,
    data: Folder = None,
    backend: Annotated[str | None, typer.Option(help="Backend of joblib.")] = None,
    intercept: Annotated[
        bool | None, typer.Option("--intercept/--no-intercept", help="Fit an intercept.")
    ] = None,
    device: Device = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with these settings.")] = None,
    quiet: Quiet = False,
) -> None:
    """Redo the paper's table; the same command goes on where it was stopped."""
    from .table1 import settings, table1

    given = {
        "sets": sets,
        "methods": methods,
        "reps": reps,
        "jobs": jobs,
        "seed": seed,
        "out": out,
        "data": data,
        "backend": backend,
        "intercept": intercept,
        "device": device,
    }
    table1(settings(config, given), quiet=quiet)


@app.command("datasets")
def datasets_command(
    data: Folder = None,
    fetch: Annotated[
        str | None, typer.Option(help="Names to fetch from openml.org, with commas.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """List the data sets, say where they are, fetch what is missing."""
    from .datasets import datasets

    datasets(data, fetch, quiet=quiet)


@app.command("demo")
def demo_command(
    reps: Annotated[int, typer.Option(help="Random splits.", min=2)] = 10,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Show what is learned and whether it pays, on data that needs no file."""
    from .demo import demo

    demo(reps, seed, quiet=quiet)
