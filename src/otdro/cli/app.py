"""The commands; what they do is imported when they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import (
    AuditOptions,
    Chosen,
    Data,
    Decimal,
    Device,
    DriftOptions,
    Folder,
    Json,
    MaxDrift,
    Options,
    Quiet,
    Report,
    Requirements,
    Seed,
    Table1,
)

WIDTH = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=WIDTH,
    help="Learn from the data what it costs to move it, then fit the model that does best "
    "against every distribution within that cost.",
)


def command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command: a parameter that is a dataclass stands for an option per field."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        own = signature(run, eval_str=True).parameters
        groups: dict[str, Any] = {
            key: p.annotation for key, p in own.items() if is_dataclass(p.annotation)
        }

        def called(**given: Any) -> None:
            made = {
                key: group(**{field.name: given.pop(field.name) for field in fields(group)})
                for key, group in groups.items()
            }
            run(**made, **given)

        parts: list[Parameter] = []
        for key, parameter in own.items():
            group = groups.get(key)
            parts += signature(group, eval_str=True).parameters.values() if group else [parameter]
        keywords = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in parts]
        called.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
        called.__doc__ = run.__doc__
        app.command(name)(called)
        return run

    return register


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


@command("fit")
def fit_command(
    options: Options,
    chosen: Chosen,
    quantile: Annotated[float | None, typer.Option(help="Fit this quantile, e.g. 0.9.")] = None,
    save: Annotated[Path | None, typer.Option(help="File for the model, by skops.")] = None,
    report: Report = None,
    compare: Annotated[bool, typer.Option(help="Compare with no penalty, L1 and L2.")] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a robust model to a table and say what was learned."""
    from .fit import fit

    shown = {"against": compare, "as_json": as_json, "quiet": quiet}
    fit(options, chosen, quantile=quantile, save=save, page=report, **shown)


@command("predict")
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


@command("compare")
def compare_command(
    options: Options,
    chosen: Chosen,
    splits: Annotated[int, typer.Option(help="Random splits.")] = 20,
    device: Device = None,
    plot: Annotated[Path | None, typer.Option(help="Draw to a .png, .svg or .pdf.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a robust model with the usual ones on repeated splits."""
    from .compare import compare

    shown = {"as_json": as_json, "quiet": quiet}
    compare(options, chosen, splits=splits, device=device, plot=plot, **shown)


@command("audit")
def audit_command(
    options: AuditOptions,
    required: Requirements,
    report: Report = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how far the data may move before a linear model fails."""
    from .audit import audit

    raise typer.Exit(audit(options, required, page=report, as_json=as_json, quiet=quiet))


@command("drift")
def drift_command(
    options: DriftOptions, max_drift: MaxDrift = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Say how far new rows are from old ones."""
    from .drift import drift

    raise typer.Exit(drift(options, max_drift=max_drift, as_json=as_json, quiet=quiet))


def _configured(context: typer.Context, config: Path | None) -> Path | None:
    """Let the settings of a file stand in for the defaults."""
    if config is not None:
        from .table1 import settings

        context.default_map = settings(config)
    return config


@command("table1")
def table1_command(
    asked: Table1,
    config: Annotated[
        Path | None,
        typer.Option(is_eager=True, callback=_configured, help="TOML file with these settings."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Redo the paper's table; the same command goes on where it was stopped."""
    from .table1 import table1

    table1(asked, quiet=quiet)


@command("datasets")
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


@command("demo")
def demo_command(
    reps: Annotated[int, typer.Option(help="Random splits.", min=2)] = 10,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Show what is learned and whether it pays, on data that needs no file."""
    from .demo import demo

    demo(reps, seed, quiet=quiet)
