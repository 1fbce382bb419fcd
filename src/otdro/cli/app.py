"""The commands; what they do is imported when they run."""

from __future__ import annotations

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
    "compare": (options.CompareOptions, "compare"),
    "audit": (options.AuditOptions, "audit"),
    "drift": (options.DriftOptions, "audit"),
    "demo": (options.DemoOptions, "compare"),
}
#: Names of options that are not those of their fields, or that have no opposite.
FLAGS = {
    "as_json": ["--json"],
    "forward": ["--forward"],
    "identifier": ["--id"],
    "quiet": ["--quiet", "-q"],
    "strict": ["--strict"],
}
#: Arguments that may be left out, by command.
ARGUMENTS = {("drift", "new")}
#: Options that several commands have, which help lists last.
SHARED = set(signature(options.Reading).parameters)


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

    kinds = get_type_hints(cls)
    parameters = []
    for field, parameter in signature(cls).parameters.items():
        text = options.HELP.get(f"{name} {field}") or options.HELP[field]
        required = parameter.default is Parameter.empty
        shown: Any = typer.Option(*FLAGS.get(field, []), help=text)
        if (required and field != "target") or (name, field) in ARGUMENTS:
            shown = typer.Argument(help=text)
        parameters.append(parameter.replace(annotation=Annotated[kinds[field], shown]))
    # what is asked for first, what all commands share last
    parameters.sort(key=lambda p: (p.default is not Parameter.empty, p.name in SHARED))
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app.command(name, help=cls.__doc__)(command)


for _name, (_cls, _module) in COMMANDS.items():
    _register(_name, _cls, _module)
