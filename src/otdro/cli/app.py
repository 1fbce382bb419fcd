"""The commands; what they do is imported when they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    Document,
    DriftOptions,
    MaxDrift,
    Options,
    Output,
    Report,
    Requirements,
    Seed,
)

WIDTH = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=WIDTH,
    help="Learn from the data what it costs to move it, then fit the model that does best "
    "against every distribution within that cost.",
)


def command(
    name: str, output: type[Output] = Output
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command: a parameter that is a dataclass stands for an option per field."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        own = signature(run, eval_str=True).parameters
        groups: dict[str, Any] = {
            key: p.annotation for key, p in own.items() if is_dataclass(p.annotation)
        }

        def called(**given: Any) -> None:
            from .printing import read_by

            made = {key: _filled(group, given) for key, group in groups.items()}
            with read_by(_filled(output, given).reader):
                run(**made, **given)

        parts: list[Parameter] = []
        for key, parameter in own.items():
            parts += _options(groups[key]) if key in groups else [parameter]
        keywords = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in (*parts, *_options(output))]
        called.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
        called.__doc__ = run.__doc__
        app.command(name)(called)
        return run

    return register


def _options(group: Any) -> Iterable[Parameter]:
    return signature(group, eval_str=True).parameters.values()


def _filled(group: Any, given: dict[str, Any]) -> Any:
    return group(**{field.name: given.pop(field.name) for field in fields(group)})


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


@command("fit", Document)
def fit_command(
    options: Options,
    chosen: Chosen,
    quantile: Annotated[float | None, typer.Option(help="Fit this quantile, e.g. 0.9.")] = None,
    save: Annotated[Path | None, typer.Option(help="File for the model, by skops.")] = None,
    report: Report = None,
    compare: Annotated[bool, typer.Option(help="Compare with no penalty, L1 and L2.")] = True,
) -> None:
    """Fit a robust model to a table and say what was learned."""
    from .fit import fit

    fit(options, chosen, quantile=quantile, save=save, page=report, against=compare)


@command("predict")
def predict_command(
    model: Annotated[Path, typer.Argument(help="A file from otdro fit --save.")],
    data: Data,
    out: Annotated[Path | None, typer.Option(help="CSV file; without it, stdout.")] = None,
    identifier: Annotated[
        str | None, typer.Option("--id", help="A column to carry over, such as an id.")
    ] = None,
    decimal: Decimal = "auto",
) -> None:
    """Predict labels and probabilities, or numbers, for the rows of a table."""
    from .predict import predict

    predict(model, data, out, identifier=identifier, decimal=decimal)


@command("compare", Document)
def compare_command(
    options: Options,
    chosen: Chosen,
    splits: Annotated[int, typer.Option(help="Random splits.")] = 20,
    plot: Annotated[Path | None, typer.Option(help="Draw to a .png, .svg or .pdf.")] = None,
) -> None:
    """Compare a robust model with the usual ones on repeated splits."""
    from .compare import compare

    compare(options, chosen, splits=splits, plot=plot)


@command("audit", Document)
def audit_command(
    options: AuditOptions,
    required: Requirements,
    report: Report = None,
) -> None:
    """Say how far the data may move before a linear model fails."""
    from .audit import audit

    raise typer.Exit(audit(options, required, page=report))


@command("drift", Document)
def drift_command(options: DriftOptions, max_drift: MaxDrift = None) -> None:
    """Say how far new rows are from old ones."""
    from .drift import drift

    raise typer.Exit(drift(options, max_drift=max_drift))


@command("demo")
def demo_command(
    reps: Annotated[int, typer.Option(help="Random splits.", min=2)] = 10,
    seed: Seed = 0,
) -> None:
    """Show what is learned and whether it pays, on data that needs no file."""
    from .demo import demo

    demo(reps, seed)
