"""The commands; what they do is imported when they run."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from . import options

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    help="Learn from the data what it costs to move it, then fit the model that does best "
    "against every distribution within that cost.",
)

#: The options of each command, and the module with the function of its name.
COMMANDS: dict[str, tuple[type[options.Output], str]] = {
    "fit": (options.FitOptions, "fit"),
    "predict": (options.PredictOptions, "predict"),
    "compare": (options.CompareOptions, "fit"),
    "audit": (options.AuditOptions, "audit"),
    "drift": (options.DriftOptions, "audit"),
    "demo": (options.DemoOptions, "fit"),
}


@app.callback(invoke_without_command=True)
def otdro(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
) -> None:
    """Print the version, or the help if no command is named."""
    if version:
        from .. import __version__

        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _register(name: str, cls: type[options.Output], module: str) -> None:
    def command(**given: Any) -> None:
        from .printing import read_by

        asked = cls(**given)
        with read_by("program" if given.get("as_json") else "nobody" if asked.quiet else "person"):
            code = getattr(import_module(f".{module}", __package__), name)(asked)
        raise typer.Exit(code or 0)

    kinds, own = get_type_hints(cls), signature(cls).parameters
    shown = {f.name: Annotated[kinds[f.name], f.metadata["typer"]] for f in fields(cls)}
    # what is asked for first, what all commands share last
    shared = {f.name for f in fields(options.Reading)}
    order = sorted(own, key=lambda n: (own[n].default is not Parameter.empty, n in shared))
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [own[n].replace(annotation=shown[n]) for n in order]
    )
    app.command(name, help=cls.__doc__)(command)


for _name, (_cls, _module) in COMMANDS.items():
    _register(_name, _cls, _module)
