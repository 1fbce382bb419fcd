"""Documents of ``--json`` hold the keys that docs/cli.md lists; bars and ``--quiet`` everywhere."""

import json
import re

import numpy as np
import pytest

from commands import FAST, call

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")
pytest.importorskip("ot")

from otdro import persistence  # noqa: E402
from pages import ROOT  # noqa: E402

FIT = ("fit", "t.csv", "--target", "y", *FAST)
COMPARE = ("compare", "t.csv", "--target", "y", "--splits", "2", "--cost", "euclidean")
AUDIT = ("audit", "m.skops", "t.csv", "--target", "y", "--new", "t.csv")
DRIFT = ("drift", "t.csv", "t.csv", "--target", "y")
PREDICT = ("predict", "m.skops", "t.csv", "--out", "p.csv")


@pytest.fixture
def saved(here, capsys):
    """A table and a model of it in the working folder."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((60, 2)), columns=["a", "b"])
    table["city"] = rng.choice(["Rome", "Oslo"], 60)
    table["y"] = np.where(table.a + 0.5 * rng.standard_normal(60) > 0, "yes", "no")
    table.to_csv("t.csv", index=False)
    assert call(capsys, *FIT, "--save", "m.skops", "-q")[0] == 0
    return here


def documented(command):
    """Return the keys that the table of a command lists."""
    text = (ROOT / "docs" / "cli.md").read_text()
    table = text.split(f"| key of `{command}` | |\n")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("asked", [FIT, COMPARE, AUDIT, DRIFT], ids=lambda asked: asked[0])
def test_a_document_holds_exactly_the_keys_of_the_page(saved, capsys, few_penalties, asked):
    code, out, err = call(capsys, *asked, "--json")
    assert code == 0
    assert err == ""
    told = json.loads(out)
    assert set(told) == documented(asked[0])
    assert told["command"] == asked[0]


def test_a_learned_cost_and_files_change_no_key(saved, capsys):
    written = ("--save", "n.skops", "--report", "r.html")
    asked = ("fit", "t.csv", "--target", "y", "--no-compare", *written)
    told = json.loads(call(capsys, *asked, "--json")[1])
    assert set(told) == documented("fit")
    assert (told["saved"], told["report"]) == ("n.skops", "r.html")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((*FIT, "--report", "r.html"), "writing the page"),
        ((*AUDIT, "--report", "r.html"), "measuring the drift"),
        (DRIFT, "measuring the drift"),
        (PREDICT, "predicting, 60 rows done"),
    ],
    ids=lambda asked: asked[0] if isinstance(asked, tuple) else "",
)
def test_a_bar_on_terminals_only(saved, capsys, monkeypatch, asked, says):
    assert says not in call(capsys, *asked)[2]
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, err = call(capsys, *asked)
    assert says in err
    assert says not in out
    assert call(capsys, *asked, "--quiet")[1:] == ("", "")


def test_quiet_is_an_option_of_every_command(here, capsys):
    for command in ["fit", "predict", "compare", "audit", "drift", "demo"]:
        assert "--quiet" in call(capsys, command, "--help")[1]


@pytest.mark.slow
def test_a_quiet_demonstration(here, capsys):
    assert call(capsys, "demo", "--reps", "2", "-q") == (0, "", "")


def test_the_model_of_a_reported_audit_is_loaded_once(saved, capsys, monkeypatch):
    loaded, load = [], persistence.load
    monkeypatch.setattr(persistence, "load", lambda path: loaded.append(path) or load(path))
    assert call(capsys, *AUDIT, "--report", "a.html", "-q")[0] == 0
    assert len(loaded) == 1
