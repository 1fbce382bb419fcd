"""Defects of the command line that were found by users, each with what must hold instead."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import otdro
from commands import FAST, call, document, done, refused
from otdro.inspection.summary import audit_pairs

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")

#: The button of a row that is named by its id.
BUTTON = r">p\d+</button>"
FIT = ["--target", "y", *FAST]


@pytest.fixture
def people(here):
    """A table with a city, an id, and a target that is missing in some rows, as people.csv."""
    rng = np.random.default_rng(0)
    n = 80
    table = pd.DataFrame(rng.standard_normal((n, 2)), columns=["a", "b"])
    table["city"] = rng.choice(["Rome", "Bonn", "Oslo"], n)
    table["who"] = [f"p{k}" for k in range(n)]
    table["y"] = np.where(table.a + 0.3 * rng.standard_normal(n) > 0, "yes", "no")
    table.loc[:9, "y"] = None
    table.to_csv("people.csv", index=False)
    return table


# compare


def test_compare_prints_every_model_once(people, capsys, few_penalties):
    options = ["--splits", "2", "--drop", "who,city", "--cost", "euclidean"]
    out = done(capsys, "compare", "people.csv", "--target", "y", *options).out
    for measure in ("log-loss", "accuracy"):
        part = out[out.index(measure) :].split("\n\n")[0]
        for name in ("otdro", "no penalty", "L1", "L2", "Euclidean cost"):
            assert sum(line.startswith(name) for line in part.splitlines()) == 1, name
        assert sum(line.startswith("a constant") for line in part.splitlines()) == 1


# outputs and inputs


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "people.csv", *FIT, "--save", "./people.csv"],
        ["fit", "people.csv", *FIT, "--report", "people.csv"],
        ["fit", "people.csv", *FIT, "--unlabelled", "more.csv", "--save", "more.csv"],
        ["fit", "people.csv", *FIT, "--save", "same", "--report", "same"],
        ["fit", "people.csv", *FIT, "--source", "m.skops", "--save", "m.skops"],
        ["compare", "plot.png", "--target", "y", "--plot", "plot.png"],
        ["predict", "m.skops", "people.csv", "--out", "people.csv"],
        ["predict", "m.csv", "people.csv", "--out", "m.csv"],
        ["audit", "m.skops", "people.csv", "--target", "y", "--report", "m.skops"],
        ["audit", "m.skops", "people.csv", "--target", "y", "--new", "n", "--report", "n"],
    ],
    ids=" ".join,
)
def test_outputs_never_replace_inputs(people, capsys, command):
    # none of the inputs is a table or a model, so any work would end in another sentence
    for name in ("more.csv", "plot.png", "m.skops", "m.csv", "n", "people.csv"):
        Path(name).write_text(name)
    assert "would replace a file that" in refused(capsys, *command)
    for name in ("more.csv", "plot.png", "m.skops", "m.csv", "n", "people.csv"):
        assert Path(name).read_text() == name


KILLED = """
import os, signal
from pathlib import Path
from otdro.files import replacing
with replacing(Path("x.csv")) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_the_next_save_removes_what_a_killed_one_left(here):
    from otdro.files import replacing, write_atomic

    subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert len(os.listdir()) == 1
    with replacing(Path("x.csv")) as file:
        # a save that is under way is left alone, and so are files of other names
        own = os.listdir()
        Path(".x.csv.notes.txt").write_text("mine")
        Path(".xxcsv.1.tmp").write_text("mine")
        done = subprocess.run(
            [sys.executable, "-c", "from pathlib import Path; from otdro.files import write_atomic;"
             "write_atomic(Path('x.csv'), 'other')"],
            check=True,
        )  # fmt: skip
        assert done.returncode == 0
        assert set(own) <= set(os.listdir())
        file.write(b"whole")
    write_atomic(Path("x.csv"), "new")
    assert sorted(os.listdir()) == [".x.csv.notes.txt", ".xxcsv.1.tmp", "x.csv"]


def test_a_spreadsheet_runs_no_label_and_no_id(people, capsys):
    people = people.dropna().copy()
    people["y"] = np.where(people.y == "yes", "=cmd|'/c calc'!A1", "-")
    people["who"] = ["@SUM(1)", "+1-1", "-5", "plain", *people.who[4:]]
    people.to_csv("t.csv", index=False)
    done(capsys, "fit", "t.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    told = done(capsys, "predict", "m.skops", "t.csv", "--id", "who", "--out", "p.csv")
    found = pd.read_csv("p.csv", dtype=str)
    assert found.who[:4].tolist() == ["'@SUM(1)", "'+1-1", "-5", "plain"]
    assert set(found.prediction) <= {"'=cmd|'/c calc'!A1", "-"}
    assert "a ' in front" in told.err


def test_a_damaged_model_is_refused_with_a_sentence(people, capsys):
    done(capsys, "fit", "people.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    whole = Path("m.skops").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(whole)
        at = rng.integers(len(damaged) - 200)
        damaged[at : at + 40] = rng.bytes(40)
        Path("d.skops").write_bytes(damaged)
        code, _, err = call(capsys, "predict", "d.skops", "people.csv")
        if code:
            assert "unexpected" not in err
            assert "Fit it again" in err or "not a model" in err


def test_an_overlong_cell_is_refused_with_a_sentence(people, capsys):
    people["a"] = people.a.astype(object)
    people.loc[3, "a"] = "x" * 200_000
    people.to_csv("t.csv", index=False)
    said = refused(capsys, "fit", "t.csv", *FIT)
    assert "t.csv is not a regular table" in said
    assert "unexpected" not in said


# row numbers


def attacked(report):
    """Return the names of the rows that are cheapest to make wrong."""
    return [line["row"] for line in report["attack"]["rows"]]


def test_rows_are_numbered_as_in_the_file(people, capsys):
    table = people.drop(columns="who")
    report = document(capsys, "fit", "people.csv", *FIT, "--drop", "who", "--report", "r.html")
    # the first ten rows have no target, so that no number up to ten is a row of the fit
    assert all(int(row) > 10 for row in attacked(report))
    near = table.dropna()
    assert set(attacked(report)) <= {str(row + 1) for row in near.index}
    page = Path("r.html").read_text()
    shown = re.findall(r">(\d+)</button>", page)
    assert shown
    assert all(int(row) > 10 for row in shown)
    # the page and the print speak of one adversary, that of the accuracy
    first = attacked(report)
    assert first == shown[: len(first)]
    prices = [line["price"] for line in report["attack"]["rows"]]
    assert prices == sorted(prices)
    table["b"] = table.b.astype(object)
    table.loc[70, "b"] = "text"
    table.to_csv("bad.csv", index=False)
    assert "'text' in row 71" in refused(capsys, "fit", "bad.csv", *FIT)
    sampled = document(capsys, "fit", "people.csv", *FIT, "--drop", "who", "--sample", "40")
    assert set(attacked(sampled)) <= {str(row + 1) for row in near.index}


def test_ids_are_carried_into_fit_audit_and_report(people, capsys):
    options = ["--id", "who", "--save", "m.skops", "--report", "r.html"]
    report = document(capsys, "fit", "people.csv", *FIT, *options)
    assert all(row.startswith("p") for row in attacked(report))
    assert not any("who" in name for name in report["coefficients"])
    assert re.search(BUTTON, Path("r.html").read_text())
    audit = ["audit", "m.skops", "people.csv", "--target", "y", "--id", "who"]
    told = done(capsys, *audit, "--report", "a.html")
    assert "ignored" not in told.err
    assert re.search(BUTTON, Path("a.html").read_text())
    assert "--id y is the target" in refused(capsys, "fit", "people.csv", *FIT, "--id", "y")


# categories that training did not have


def test_unseen_categories_are_named_counted_and_refused_if_asked(people, capsys):
    done(capsys, "fit", "people.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    new = people.drop(columns=["who", "y"])
    new.loc[:3, "city"] = "York"
    new.loc[7, "city"] = "Bath"
    new.to_csv("new.csv", index=False)
    told = done(capsys, "predict", "m.skops", "new.csv")
    words = "column 'city' holds 'York' (4 rows), 'Bath' (1 row)"
    assert words in " ".join(told.err.split())
    assert len(pd.read_csv(io.StringIO(told.out))) == len(new)
    strict = ["predict", "m.skops", "new.csv", "--strict", "--out", "p.csv"]
    assert words in refused(capsys, *strict)
    assert not Path("p.csv").exists()
    assert call(capsys, "predict", "m.skops", "people.csv", "--strict")[0] == 0


def test_drift_names_unseen_categories_first(people, capsys):
    old = people.drop(columns=["who", "y"])
    old.loc[5, "a"] = np.nan
    old.to_csv("old.csv", index=False)
    new = old.copy()
    new.loc[:3, "city"] = "York"
    new.to_csv("new.csv", index=False)
    told = document(capsys, "drift", "old.csv", "new.csv")
    assert "column 'city' holds 'York' (4 rows)" in told["notes"][0]
    assert {line["column"] for line in told["by_column"]} == {"a", "b", "city"}
    # also where the drift itself has a note: of targets that are numbers it sees rows only
    printed = done(capsys, "drift", "old.csv", "new.csv", "--target", "a").err
    assert printed.startswith("note: column 'city' holds 'York'")
    assert "the targets moved by" in printed


# many classes


def test_a_note_says_that_many_classes_are_one_against_the_rest(here, capsys):
    rng = np.random.default_rng(0)
    label = np.resize(np.arange(21), 210)
    table = pd.DataFrame(rng.standard_normal((210, 3)) + label[:, None], columns=list("abc"))
    table.assign(y=[f"c{k}" for k in label]).to_csv("many.csv", index=False)
    note = "each of the 21 classes is fitted against the rest"
    assert any(note in text for text in document(capsys, "fit", "many.csv", *FIT)["notes"])
    table.assign(y=[f"c{k % 20}" for k in label]).to_csv("few.csv", index=False)
    notes = document(capsys, "fit", "few.csv", *FIT)["notes"]
    assert not any("against the rest" in text for text in notes)


# words


def test_a_mistyped_command_is_answered_by_a_sentence(here, capsys):
    said = refused(capsys, "fitt", "t.csv")
    assert "Did you mean" in said
    assert "?." not in said


def test_a_gap_of_zero_is_not_a_certificate_to_zero(people, capsys):
    options = ["--target", "a", "--drop", "who,y,city", "--no-compare", "--cost", "euclidean"]
    out = done(capsys, "fit", "people.csv", *options, "--delta", "0.1").out
    assert "certified to 0)" not in out


def test_dir_shows_the_public_names():
    assert sorted(dir(otdro)) == sorted([*otdro.__all__, "__version__"])


def test_a_long_comparison_says_how_far_it_is_also_in_a_log(people, capsys, monkeypatch):
    compare = ["compare", "people.csv", "--target", "y", "--splits", "2", "--drop", "who,city"]
    assert "fits done" not in done(capsys, *compare, "--cost", "euclidean").err
    monkeypatch.setattr("otdro.progress.LONG", 0.001)
    told = done(capsys, *compare, "--cost", "euclidean")
    assert re.search(r"comparing models: \d+ of 12 fits done, about \d+ s left", told.err)
    assert "fits done" not in told.out
    assert call(capsys, *compare, "--cost", "euclidean", "--quiet") == (0, "", "")


def test_a_cost_has_one_name_in_prints_documents_and_pages(people, capsys):
    from otdro.costs import Mahalanobis, Norm
    from otdro.costs.table import cost_name

    names = [cost_name(cost) for cost in (Norm(2), Norm(1), Norm(np.inf), Mahalanobis(np.eye(2)))]
    assert names == ["euclidean", "l1", "linf", "Mahalanobis"]
    for name in ("learned", "euclidean"):
        fit = ["fit", "people.csv", "--target", "y", "--drop", "who", "--no-compare"]
        told = document(capsys, *fit, "--cost", name, "--save", "m.skops", "--report", "f.html")
        assert told["cost"] == name
        assert told["cost_in_words"].startswith(f"{name}: ")
        audit = ["audit", "m.skops", "people.csv", "--target", "y"]
        assert document(capsys, *audit)["cost"] == name
        assert re.search(rf"cost, order +{name}, 1", done(capsys, *audit, "--report", "a.html").out)
        for page in ("f.html", "a.html"):
            assert f'<bdi>cost</bdi></th><td class="n">{name}</td>' in Path(page).read_text()
    drift = ["drift", "people.csv", "--by", "city", "--drop", "who"]
    assert document(capsys, *drift)["cost"] == "euclidean"
    assert "cost euclidean of order 1" in str(
        otdro.drift(people[["a", "b"]][:40], people[["a", "b"]][40:])
    )


def test_a_check_says_whether_anything_changed_and_which_delta_it_shows(people, capsys):
    done(capsys, "fit", "people.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    audit = ["audit", "m.skops", "people.csv", "--target", "y"]
    old = document(capsys, *audit)
    Path("old.json").write_text(json.dumps(old))
    out = " ".join(done(capsys, *audit, "--check", "old.json").out.split())
    assert "* nothing changed." in out
    assert "the accuracy, or the loss, changed most for the worse" in out
    old["breaking_points"]["levels"]["0.5"] /= 2
    Path("old.json").write_text(json.dumps(old))
    changed = document(capsys, *audit, "--check", "old.json")["check"]["changed"]
    assert changed[0].startswith("the breaking points, levels, 0.5: ")
    out = " ".join(done(capsys, *audit, "--check", "old.json").out.split())
    assert f"* {changed[0]}" in out
    assert "nothing else" not in out


def test_a_check_prints_all_that_its_document_says(people, capsys):
    done(capsys, "fit", "people.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    audit = ["audit", "m.skops", "people.csv", "--target", "y"]
    grouped = document(capsys, *audit, "--groups", "city")
    Path("old.json").write_text(json.dumps(grouped))
    changed = document(capsys, *audit, "--check", "old.json")["check"]["changed"]
    assert "the breaking points of groups, Bonn: only before." in changed
    out = " ".join(done(capsys, *audit, "--check", "old.json").out.split())
    assert all(f"* {sentence}" in out for sentence in changed)
    assert "nothing else" not in out


def test_rows_of_one_id_are_all_listed(people, capsys):
    options = ["fit", "people.csv", *FIT, "--drop", "city"]
    by_number = document(capsys, *options, "--id", "who")["attack"]["rows"]
    people.assign(who="same").to_csv("people.csv", index=False)
    rows = document(capsys, *options, "--id", "who")["attack"]["rows"]
    prices = [line["price"] for line in rows]
    assert attacked({"attack": {"rows": rows}}) == ["same"] * len(by_number)
    assert prices == [line["price"] for line in by_number] == sorted(prices)
    out = " ".join(done(capsys, *options, "--id", "who").out.split())
    told = ", ".join(f"row same {price:.3g}" for price in prices[:4])
    assert f"{told} and {len(prices) - 4} more" in out


def test_drift_by_a_column_of_the_model(people, capsys):
    people["day"] = pd.date_range("2023-01-01", periods=80, freq="D").strftime("%Y-%m-%d")
    people.to_csv("t.csv", index=False)
    fit = ["fit", "t.csv", *FIT, "--drop", "who", "--keep", "day"]
    done(capsys, *fit, "--save", "m.skops", "-q")
    for by in ("city", "day"):
        drift = ["drift", "t.csv", "--by", by, "--model", "m.skops", "--target", "y"]
        told = document(capsys, *drift)
        assert not any("ignored" in note and by in note for note in told["notes"])
        assert "city" in {line["column"] for line in told["by_column"]}


def test_only_close_names_are_suggested(people, capsys):
    people.rename(columns={"a": "opened"}).to_csv("t.csv", index=False)
    said = refused(capsys, "fit", "t.csv", "--target", "nope")
    assert "there is no column 'nope'. The columns are opened, b, city, who, y." in said


def test_a_drift_without_a_model_names_the_option(people, capsys):
    drift = ["drift", "people.csv", "--by", "city", "--drop", "who", "--target", "y"]
    told = document(capsys, *drift)
    assert told["verdict"] is None
    assert told["reason"] == "there is no ball to compare with: name a model by --model."


def test_a_drift_of_a_model_without_a_delta_names_the_option(people, capsys):
    skops = pytest.importorskip("skops.io")
    skops.dump(LogisticRegression().fit(people[["a", "b"]], people.a > 0), "theirs.skops")
    people.to_csv("t.csv", index=False)
    told = document(capsys, "drift", "t.csv", "t.csv", "--model", "theirs.skops")
    assert told["reason"].endswith("fitted for no delta; name the column of labels by --target.")


def test_a_limit_on_drift_is_not_met_by_what_no_distance_measures(people, capsys):
    people = people.dropna().drop(columns="who")
    people.to_csv("old.csv", index=False)
    drift = ["drift", "old.csv", "new.csv", "--target", "y", "--max-drift", "50"]
    people.to_csv("new.csv", index=False)
    assert document(capsys, *drift)["requirements"][0]["beside"] == []
    people.assign(city=["York", "Bath", *people.city[2:]]).to_csv("new.csv", index=False)
    code, out, _ = call(capsys, *drift)
    assert code == 3
    assert "values of 'city' that no old row has, in 2 rows" in " ".join(out.split())
    common = people[(people.y == "yes") | (np.arange(len(people)) % 5 == 0)]
    common.to_csv("new.csv", index=False)
    code, out, _ = call(capsys, *drift)
    assert code == 3
    assert "NOT MET: drift <= 50, found" in out
    assert "; other class shares, no " in " ".join(out.split())


def test_no_delta_is_printed_where_nothing_breaks_a_model(monkeypatch):
    X = np.arange(20.0)[:, None]
    found = otdro.audit(LogisticRegression().fit(X, X[:, 0] > 9), X, X[:, 0] > 9)
    monkeypatch.setattr(otdro.Audit, "breaking_point", lambda *_, **__: np.inf)
    assert audit_pairs(found)[-1] == ("as bad as that at", "no delta: no move at all reaches it")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("logistik", "there is no --loss logistik; the losses for classification are hinge, "
         "logistic, squared_hinge. Did you mean 'logistic'?"),
        ("foo", "are hinge, logistic, squared_hinge.\n"),
        ("squared", "--loss squared is for regression, not classification; use one of hinge"),
    ],
)  # fmt: skip
def test_a_loss_that_is_none_of_the_task_names_those_that_are(people, capsys, loss, said):
    assert said in refused(capsys, "fit", "people.csv", "--target", "y", "--loss", loss)


def test_advice_is_for_the_command_and_not_repeated(people, capsys):
    done(capsys, "fit", "people.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    audit = ["audit", "m.skops", "people.csv", "--target", "y"]
    guard = ["--require-accuracy", "0.5", "--at-delta", "0.01"]
    assert any("--require-accuracy" in text for text in document(capsys, *audit)["advice"])
    told = document(capsys, *audit, *guard, "--report", "r.html")
    assert not any("--require-accuracy" in text for text in told["advice"])
    assert "--require-accuracy" not in done(capsys, *audit, *guard).out
    assert any("in Python a larger class_weight" in text for text in told["advice"])


def test_an_id_that_is_written_is_not_called_ignored(people, capsys):
    done(capsys, "fit", "people.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    told = done(capsys, "predict", "m.skops", "people.csv", "--id", "who")
    assert "columns that the model does not use are ignored: y." in told.err


def test_what_options_take_is_said_in_options(people, capsys):
    fit = ["fit", "people.csv", "--target", "y", "--drop", "who", "--no-compare"]
    commands = [
        fit,
        ["audit", "m.skops", "people.csv", "--target", "y"],
        ["drift", "people.csv", "--by", "city"],
    ]
    for command in commands:
        said = refused(capsys, *command, "--cost", "foo")
        assert "--cost must be one of learned, euclidean, l1 or linf, got foo." in said
    err = " ".join(done(capsys, *fit, "--cost", "euclidean", "--delta", "30").err.split())
    assert "--delta 30 is at or above" in err
    assert "Use a smaller delta, or --delta cv." in err
    assert "got --rule foo." in refused(capsys, *fit, "--rule", "foo")
    help_text = " ".join(done(capsys, "fit", "--help").out.split())
    assert "A table of rows without labels, for scaling and the learned cost." in help_text


def test_a_drift_says_how_many_batches_have_rows_enough(people, capsys):
    people["day"] = pd.date_range("2023-01-01", periods=80, freq="4D").strftime("%Y-%m-%d")
    people.to_csv("t.csv", index=False)
    said = refused(capsys, "drift", "t.csv", "--by", "day")
    assert "a drift needs two batches of 20 rows or more, and 0 of the 11 batches" in said
    assert "(2023-01, 2023-02, 2023-03, ...) have as many" in said


def test_a_gap_in_groups_names_the_column(people, capsys):
    done(capsys, "fit", "people.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
    people["site"] = ["s1", "s2"] * 40
    people.loc[11, "site"] = None
    people.to_csv("t.csv", index=False)
    said = refused(capsys, "audit", "m.skops", "t.csv", "--target", "y", "--groups", "site")
    assert "column 'site' has no group in row 12" in said


def test_an_unseen_category_is_a_rare_one_or_none(people, capsys):
    for most, words in ((3, "no category"), (30, "rare ones")):
        people["city"] = [f"c{k % most}" for k in range(80)]
        people.to_csv("t.csv", index=False)
        done(capsys, "fit", "t.csv", "--save", "m.skops", "-q", "--drop", "who", *FIT)
        people.drop(columns="who").assign(city="York").to_csv("new.csv", index=False)
        err = " ".join(done(capsys, "predict", "m.skops", "new.csv").err.split())
        assert (
            f"'York' (80 rows), which the training data did not have: they count as {words}." in err
        )


# notes on what is read


def test_a_row_counter_is_one_where_rows_without_a_target_are_left_out(people, capsys):
    people["line"] = np.arange(len(people))
    people.loc[40, "y"] = None
    people.to_csv("people.csv", index=False)
    err = " ".join(done(capsys, "fit", "people.csv", *FIT).err.split())
    assert "column 'line' numbers the rows (an identifier) and is left out" in err


def test_batches_say_what_they_leave_out_and_that_their_column_is_a_feature(people, capsys):
    people.loc[20:22, "city"] = None
    people.to_csv("people.csv", index=False)
    done(capsys, "fit", "people.csv", *FIT, "--save", "m.otdro")
    err = " ".join(
        done(capsys, "drift", "people.csv", "--by", "city", "--model", "m.otdro").err.split()
    )
    assert "3 rows are left out, without a value of 'city'" in err
    assert "column 'city' makes the batches and is a feature of the model" in err


def test_a_note_of_an_audit_is_told_once_and_one_of_its_drift_on_the_page(people, capsys):
    people[people.y.notna()].to_csv("people.csv", index=False)
    done(capsys, "fit", "people.csv", *FIT, "--save", "m.otdro")
    few = people[people.y.notna()].iloc[:25].drop(columns="y")
    few.to_csv("new.csv", index=False)
    told = ["audit", "m.otdro", "people.csv", "--target", "y", "--space", "raw"]
    said = document(capsys, *told, "--new", "new.csv", "--report", "r.html")
    page = Path("r.html").read_text()
    assert said["drift"]["notes"]
    for note in said["drift"]["notes"]:
        assert page.count(note.split(":")[0].split(",")[0]) >= 1
    err = " ".join(done(capsys, *told, "--new", "new.csv").err.split())
    assert err.count("is not affine") == 1
