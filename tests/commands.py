"""Calls of the command line in this process, as several test files need them."""

import json
from typing import NamedTuple

from otdro.cli.errors import guard

#: Options of a fit that is quick.
FAST = ["--no-compare", "--delta", "0.1", "--cost", "euclidean"]


def call(capsys, *argv):
    """Run a command; return its exit code, output and errors."""
    code = guard([str(arg) for arg in argv])
    told = capsys.readouterr()
    return code, told.out, told.err


class Told(NamedTuple):
    """What a command printed."""

    out: str
    err: str


def done(capsys, *argv):
    """Run a command that must succeed; return what it printed."""
    code, out, err = call(capsys, *argv)
    assert code == 0, err
    return Told(out, err)


def document(capsys, *argv):
    """Run a command that must succeed with ``--json``; return its document."""
    return json.loads(done(capsys, *argv, "--json").out)


def refused(capsys, *argv):
    """Run a command that must fail; return the one line it says."""
    code, out, err = call(capsys, *argv)
    assert code == 2
    assert out == ""
    assert err.startswith("otdro: error: ")
    assert err.count("\n") == 1
    return err
