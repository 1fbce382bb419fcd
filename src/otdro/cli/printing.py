"""Output: 80 columns, colour only on a terminal and never with NO_COLOR; documents of --json."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..costs.table import Grid
from ..progress import logger, watched
from .errors import UserError
from .options import Reading

Item = TypeVar("Item")

#: Columns of a terminal that are used.
WIDTH = 80
#: The version of the documents of ``--json``: it changes when a key changes its meaning.
SCHEMA = 2
#: The audience of what is printed: a person, a program (JSON), or nobody.
_READER = ContextVar("_READER", default="person")


@contextmanager
def read_by(reader: str) -> Iterator[None]:
    """Print for this reader only, and nothing that is for another."""
    token, level = _READER.set(reader), logger.level
    if reader == "nobody":
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _READER.reset(token)
        logger.setLevel(level)


def console(*, error: bool = False) -> Console:
    """Return a console no wider than 80 columns, silent where no person reads."""
    quiet = _READER.get() != "person"
    found = Console(stderr=error, highlight=False, markup=False, emoji=False, quiet=quiet)
    found.width = min(WIDTH, found.width)
    return found


def say(text: str = "", style: str | None = None) -> None:
    """Print a line of results."""
    console().print(text, style=style)


def remark(notes: Iterable[str]) -> None:
    """Print remarks, apart from the results."""
    for text in notes:
        console(error=True).print(f"note: {text}", style="dim")


def tell(document: dict[str, Any], show: Callable[[], None]) -> None:
    """Print a document as JSON for a program, or show it to a person; what is endless is null."""
    if _READER.get() == "program":
        sys.stdout.write(json.dumps(_plain(document), indent=1) + "\n")
    elif _READER.get() == "person":
        show()


def asked(command: str, options: Reading, *names: str) -> dict[str, Any]:
    """Return the part of a document that says what was asked, and of which version."""
    values = {name: getattr(options, name) for name in names}
    return {"command": command, "schema": SCHEMA, "version": __version__, **values}


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


def check_outputs(outputs: dict[str, Path | None], *inputs: str | Path | None) -> None:
    """Refuse files that cannot be written, or that this command reads, before any work is done.

    ``outputs`` maps the options to what they name.
    """
    named = [name for name in inputs if name not in (None, "-")]
    taken = {Path(str(name)).resolve(): "the command reads" for name in named}
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


def heading(text: str) -> None:
    """Print a heading."""
    say()
    say(text, "bold")


def pairs(lines: list[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", overflow="fold")
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(Text(name), Text(value))
    console().print(table)


def grid(table: Grid) -> None:
    """Print a table whose first column holds names.

    On a terminal too narrow for it every line becomes a paragraph: no number is cut.
    """
    head, *body = table.lines()
    if max(map(len, [head, *body])) <= console().width:
        say(head, "bold")
        say("\n".join(body))
        return
    for name, *cells in table.body:
        say(name, "bold")
        pairs([(f"  {title}", cell) for title, cell in zip(table.head[1:], cells, strict=True)])


@contextmanager
def working(text: str, hidden: bool = False) -> Iterator[Callable[[str], None]]:
    """Show what is being done: a terminal has a bar without end, a log a line after some seconds.

    Yields a function that says what is done next.
    """
    shown = console(error=True)
    if hidden or shown.quiet:
        yield lambda text: None
    elif shown.is_terminal:
        parts = (BarColumn(30), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*parts, console=shown, transient=True) as bar:
            task = bar.add_task(text, total=None)
            # drawn at once: the next thing to say may come sooner than the clock of the bar
            yield lambda text: bar.update(task, description=text, refresh=True)
    else:
        with watched(text, lambda doing, s: shown.print(f"{doing}, {s:.0f} s so far")) as doing:
            yield doing


def tracked(items: Iterable[Item], total: int, text: str) -> Iterator[Item]:
    """Yield the items; show how many there were and the time left."""
    start = monotonic()
    with working(text) as doing:
        for done, item in enumerate(items, 1):
            yield item
            left = (monotonic() - start) * (total - done) / done
            doing(f"{text}: {done} of {total} fits done, about {left:.0f} s left")


def _plain(value: Any) -> Any:
    """Return the same of JSON's own types."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return int(value) if isinstance(value, np.integer) else value
