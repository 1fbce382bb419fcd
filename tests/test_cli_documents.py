"""Documents of ``--json`` hold the keys that docs/cli.md lists; bars and ``--quiet`` everywhere."""

import json
import re

import numpy as np
import pytest

from commands import FAST, call, refused

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


# deltas that happened, and audits beside earlier ones


@pytest.fixture
def batches(saved):
    """Five months of rows from two sites; the rows of May are far away."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.standard_normal((250, 2)), columns=["a", "b"])
    table["city"] = rng.choice(["Rome", "Oslo"], 250)
    month = np.repeat(np.arange(1, 6), 50)
    table["day"] = [f"{k % 28 + 1:02d}.{m:02d}.2024" for k, m in enumerate(month)]
    table["site"] = rng.choice(["north", "south"], 250)
    table.loc[month == 5, "a"] += 2
    table["y"] = np.where(table.a + 0.5 * rng.standard_normal(250) > 0, "yes", "no")
    table.to_csv("all.csv", index=False)
    for m in (1, 4, 5):
        table[month == m].to_csv(f"m{m}.csv", index=False)
    return table


def drifted(capsys, *argv):
    code, out, err = call(capsys, "drift", *argv, "--json")
    assert code == 0, err
    return json.loads(out)


def test_drift_by_months_by_sites_and_of_several_tables(batches, capsys):
    drop = ["--drop", "y,city"]
    months = drifted(capsys, "all.csv", "--by", "day", *drop, "--drop", "site")
    assert [line["new"] for line in months["batches"]] == [f"2024-{m:02d}" for m in range(2, 6)]
    assert months["batches"][0]["old"] == "2024-01"
    assert months["farthest"] == "2024-05"
    assert months["quantiles"]["1"] == max(line["delta"] for line in months["batches"]) > 1
    sites = drifted(capsys, "all.csv", "--by", "site", *drop, "--drop", "day")
    assert [line["new"] for line in sites["batches"]] == ["north", "south"]
    tables = drifted(capsys, "m1.csv", "m4.csv", "m5.csv", "--model", "m.skops", "--target", "y")
    assert [line["new"] for line in tables["batches"]] == ["m4.csv", "m5.csv"]
    assert tables["farthest"] == "m5.csv"
    out = call(capsys, "drift", "all.csv", "--by", "day", *drop)[1]
    assert "Deltas that happened to 4 batches" in out
    assert "a limit on drift is compared with the lower bound" in " ".join(out.split())
    assert "Farthest: 2024-05." in out
    assert max(map(len, out.splitlines())) <= 80
    for argv in (["all.csv"], ["all.csv", "m1.csv", "--by", "day"]):
        assert "or a column by --by, not both" in refused(capsys, "drift", *argv)
    assert "Did you mean 'site'?" in refused(capsys, "drift", "all.csv", "--by", "sites")


def test_fit_takes_the_delta_that_happened(batches, capsys):
    (batches.drop(columns=["site"])).to_csv("fit.csv", index=False)
    months = ["drift", "all.csv", "--by", "day", "--target", "y", "--drop", "site,city", "--json"]
    with open("drift.json", "w") as file:
        file.write(call(capsys, *months)[1])
    asked = ["fit", "fit.csv", "--target", "y", "--no-compare", "--delta-from", "drift.json"]
    told = json.loads(call(capsys, *asked, "--json")[1])
    with open("drift.json") as file:
        found = json.load(file)
    assert told["delta"] == found["quantiles"]["0.8"]
    assert (told["order"], told["scale"]) == (found["order"], "standard")
    assert told["cost"] == "euclidean"
    origin = "the 80% quantile of the 4 drifts in drift.json"
    assert origin in told["notes"][0]
    assert told["delta_by"] == origin
    printed = " ".join(call(capsys, *asked)[1].split())
    assert f"{told['delta']:.4g}, {origin} (a mean move" in printed
    assert "as given" not in printed
    compare = ["compare", *asked[1:4], "--splits", "2", "--delta-from", "drift.json", "--json"]
    assert "80% quantile" in call(capsys, *compare)[1]
    assert "both choose delta" in refused(capsys, *asked, "--delta", "0.1")
    assert "use --order 1" in refused(capsys, *asked, "--order", "2")
    assert "is no document of otdro drift --json" in refused(capsys, *asked[:-1], "fit.csv")
    with open("still.json", "w") as file:
        file.write(call(capsys, "drift", "t.csv", "t.csv", "--target", "y", "--json")[1])
    still = refused(capsys, *asked[:-1], "still.json")
    assert "the drifts in still.json do not exceed their noise" in still
    assert "leave --delta-from out" in still
    # batches of one population have small deltas by chance, which give none either
    rng = np.random.default_rng(0)
    chance = pd.DataFrame(rng.normal(size=(240, 2)), columns=["a", "b"])
    chance["site"] = np.resize(["n", "e", "s", "w"], 240)
    chance.to_csv("chance.csv", index=False)
    told = call(capsys, "drift", "chance.csv", "--by", "site", "--json")[1]
    assert json.loads(told)["quantiles"]["0.8"] > 0
    with open("chance.json", "w") as file:
        file.write(told)
    assert "do not exceed their noise" in refused(capsys, *asked[:-1], "chance.json")
    with open("drift.json", "w") as file:
        json.dump({**found, "schema": 1}, file)
    assert "has schema 1 and this version reads 2" in refused(capsys, *asked)


def test_an_audit_beside_an_earlier_one(batches, capsys):
    audit = ["audit", "m.skops", "m1.csv", "--target", "y"]
    with open("old.json", "w") as file:
        file.write(call(capsys, *audit, "--json")[1])
    code, out, err = call(capsys, *audit, "--check", "old.json")
    assert code == 0, err
    assert "Since old.json of 2" in out
    assert "* nothing changed." in out
    worse = batches[:50].assign(y=np.roll(batches.y[:50], 25))
    worse.to_csv("worse.csv", index=False)
    code, out, err = call(
        capsys, "audit", "m.skops", "worse.csv", *audit[3:], "--check", "old.json"
    )
    assert code == 3, err
    assert "* the audited rows are others." in out
    assert "WORSE" in out
    told = json.loads(call(capsys, *audit, "--check", "old.json", "--json")[1])
    assert told["check"]["worse"] is False
    assert {"bound", "before", "now", "worse"} == set(told["check"]["bounds"][0])
    assert set(told) == documented("audit")
    other = refused(capsys, *audit, "--check", "old.json", "--order", "2")
    assert "is an audit of another order (1, here 2)" in other
    assert "is no document of otdro audit" in refused(capsys, *audit, "--check", "t.csv")


def test_a_constant_of_another_accuracy_is_no_worse_bound(saved, capsys):
    """Twice the rows of one class, all right and far from the boundary, raise every level."""
    rows = pd.DataFrame({"a": [-1.0, 1.0] * 20, "b": 0.0, "city": "Rome"})
    even = rows.assign(y=np.where(rows.a > 0, "yes", "no"))
    even.to_csv("even.csv", index=False)
    far = even[even.y == "no"].assign(a=-1.3)
    pd.concat([even, far]).to_csv("uneven.csv", index=False)
    with open("old.json", "w") as file:
        file.write(call(capsys, "audit", "m.skops", "even.csv", "--target", "y", "--json")[1])
    again = ["audit", "m.skops", "uneven.csv", "--target", "y", "--check", "old.json"]
    told = json.loads(call(capsys, *again, "--json")[1])
    points = [told["breaking_points"]["constant"]]
    with open("old.json") as file:
        points.insert(0, json.load(file)["breaking_points"]["constant"])
    assert points[1] < points[0]
    assert not told["check"]["worse"]
    assert not any("constant" in line["bound"] for line in told["check"]["bounds"])
    code, out, err = call(capsys, *again)
    assert code == 0, err
    assert "a constant's accuracy was 0.5 and is 0.6667" in " ".join(out.split())


def test_a_drift_without_labels_says_so(saved, capsys):
    note = "every column is a feature here: name a column of labels by --target."
    assert note in drifted(capsys, "t.csv", "t.csv")["notes"]
    for known in (["--target", "y"], ["--model", "m.skops"]):
        assert note not in drifted(capsys, "t.csv", "t.csv", *known)["notes"]


def test_what_is_missing_points_to_the_help_of_its_command(saved, capsys):
    assert refused(capsys, "audit", "m.skops", "t.csv").endswith("See otdro audit --help.\n")
    assert refused(capsys, "audits").endswith("See otdro --help.\n")
