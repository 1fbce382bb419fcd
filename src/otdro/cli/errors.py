"""One sentence and exit code 2 for whatever goes wrong; ``--debug`` shows where."""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import Any


class UserError(Exception):
    """Wrong input, said in one sentence: what is wrong and how to put it right."""


def guard(argv: list[str]) -> int:
    """Run a command and turn every exception into one line and exit code 2."""
    debug = "--debug" in argv
    try:
        return _run([arg for arg in argv if arg != "--debug"])
    except BrokenPipeError:
        # the reader of our output (head, less) has gone: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        sys.stderr.write(f"otdro: error: {sentence(error)}\n")
        return 2


#: Commands and options of earlier versions, with what replaces them.
GONE = {
    "table1": "otdro table1 is now make table1 in the repository (experiments/table1.py).",
    "datasets": "otdro datasets is now python experiments/datasets.py, in the repository.",
    "--device": "--device is gone: leave it out, fits run on the CPU.",
}


def _run(argv: list[str]) -> int:
    for word in [*argv[:1], *(arg.split("=")[0] for arg in argv[1:] if arg.startswith("--"))]:
        if word in GONE:
            raise UserError(GONE[word])
    try:
        from .options import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        raise UserError("the command line needs typer: pip install 'otdro[cli]'.") from None
    code: Any = app(args=argv, standalone_mode=False, prog_name="otdro")
    return code if isinstance(code, int) else 0


def sentence(error: BaseException) -> str:
    """Return one line that says what went wrong and what to do."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "interrupted."
    if hasattr(error, "format_message"):
        text = error.format_message().rstrip(" .")
        context = getattr(error, "ctx", None)
        command = "otdro" if context is None else context.command_path
        return _one_line(f"{text}{'' if text.endswith('?') else '.'} See {command} --help.")
    if isinstance(error, MemoryError):
        return "not enough memory for this table. Use --sample N to fit to N random rows."
    if isinstance(error, ModuleNotFoundError):
        extra = "excel" if (error.name or "").startswith("openpyxl") else "cli"
        return f"this command needs {error.name}: pip install 'otdro[{extra}]'."
    if isinstance(error, OSError) and error.errno is not None:
        return _one_line(_disk(error))
    if isinstance(error, UserError | ValueError | OSError | NotImplementedError):
        return _one_line(in_options(str(error)))
    return _one_line(f"unexpected {type(error).__name__}: {error}. Run with --debug to see where.")


#: A parameter of an estimator with its value, as its messages write it.
PARAMETER = re.compile(
    r"(?<![\w'\"])(cost|delta|loss|order|rule|tolerance|tau|space)='?(-?[\w.]*\w)'?"
)


def in_options(text: str) -> str:
    """Return a message of an estimator with the options of the command for its parameters."""
    return PARAMETER.sub(r"--\1 \2", text)


def _disk(error: OSError) -> str:
    name = error.filename if error.filename is not None else "the file"
    reasons = {
        errno.ENOENT: f"no such file or folder: {name}.",
        errno.EACCES: f"no permission for {name}. Change its rights, or choose another place.",
        errno.ENOSPC: f"the disk is full; {name} was not written. Free some space.",
    }
    return reasons.get(error.errno or 0, f"{name}: {error.strerror}.")


def _one_line(text: str) -> str:
    return " ".join(text.split())
