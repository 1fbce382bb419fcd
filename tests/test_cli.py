import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import FAST, call, refused

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")

from otdro import persistence  # noqa: E402
from otdro.cli.errors import guard, sentence  # noqa: E402


def test_fit_tells_what_it_did_and_predict_repeats_it(here, table, capsys):
    table.drop(columns="size").to_csv("t.csv", index=False)
    code, out, err = call(capsys, "fit", "t.csv", "--target", "y", "--save", "m.skops", *FAST)
    assert code == 0
    assert "classification (2 classes" in out
    assert "robust risk" in out
    assert "7 missing values are replaced by the median" in err
    assert "'id' has 120 distinct texts" in err
    assert max(map(len, (out + err).splitlines())) <= 80
    mixed = table[["city", "c", "b", "flag", "a", "size"]]
    mixed.to_parquet("p.parquet")
    code, out, err = call(capsys, "predict", "m.skops", "p.parquet")
    assert code == 0
    assert "ignored: size" in err
    found = pd.read_csv(io.StringIO(out))
    assert list(found.columns) == ["prediction", "p_no", "p_yes"]
    np.testing.assert_allclose(found.p_no + found.p_yes, 1)
    assert (found.prediction == table.y).mean() > 0.8


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "-", "semicolon.txt"])
def test_every_kind_of_file_gives_the_same_model(here, table, capsys, name, monkeypatch):
    data = table[["a", "c", "y"]]
    writers = {
        "t.parquet": lambda: data.to_parquet(name),
        "t.tsv": lambda: data.to_csv(name, sep="\t", index=False),
        "semicolon.txt": lambda: data.to_csv(name, sep=";", index=False),
        "-": lambda: data.to_csv("stdin", index=False),
    }
    writers.get(name, lambda: data.to_csv(name, index=False))()
    if name == "-":
        raw = io.BytesIO(Path("stdin").read_bytes())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(raw))
    code, out, _ = call(capsys, "fit", name, "--target", "y", "--json", *FAST)
    assert code == 0
    report = json.loads(out)
    data.to_csv("plain.csv", index=False)
    plain = json.loads(call(capsys, "fit", "plain.csv", "--target", "y", "--json", *FAST)[1])
    assert report["coefficients"] == pytest.approx(plain["coefficients"])


def test_defaults_learn_a_cost_and_compare(here, table, capsys, few_penalties):
    table[["a", "b", "c", "y"]].to_csv("t.csv", index=False)
    code, out, _ = call(capsys, "fit", "t.csv", "--target", "y", "--json", "--save", "m.skops")
    assert code == 0
    report = json.loads(out)
    assert report["delta"] > 0
    # the words of model.summary()
    assert report["cost"] == "learned"
    facts = dict(persistence.load("m.skops")[-1].summary().facts)
    assert facts["cost"].startswith(f"{report['cost_in_words']}; order")
    assert report["robust_risk"] >= report["empirical_risk"]
    assert {s["method"] for s in report["comparison"]} == {
        "otdro",
        "no penalty",
        "L1",
        "L2",
        "a constant",
    }


def test_the_target_cannot_be_dropped(here, table, capsys):
    table.to_csv("t.csv", index=False)
    told = refused(capsys, "fit", "t.csv", "--target", "y", "--drop", "y,a")
    assert "--drop names the target 'y'" in told


@pytest.mark.parametrize("scale", ["standard", "yeo-johnson", "asinh", "none", "auto"])
def test_regression_with_every_scaling_survives_the_disk(here, table, capsys, scale):
    table[["a", "b", "c", "size"]].to_csv("t.csv", index=False)
    options = ["--scale", scale, "--save", "m.skops", "--quiet", *FAST]
    assert call(capsys, "fit", "t.csv", "--target", "size", *options) == (0, "", "")
    code, _, _ = call(capsys, "predict", "m.skops", "t.csv", "--out", "p.csv", "--quiet")
    assert code == 0
    assert sorted(os.listdir()) == ["m.skops", "p.csv", "t.csv"]
    found = pd.read_csv("p.csv").prediction
    assert np.corrcoef(found, table["size"])[0, 1] > 0.8


def test_numbers_as_labels_and_the_task_override(here, capsys):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.standard_normal(60), "k": np.repeat([0, 1, 2], 20)})
    data.to_csv("t.csv", index=False)
    told = json.loads(call(capsys, "fit", "t.csv", "--target", "k", "--json", *FAST)[1])
    assert told["classes"] == ["0", "1", "2"]
    options = ["--task", "regression", "--json", *FAST]
    assert json.loads(call(capsys, "fit", "t.csv", "--target", "k", *options)[1])["classes"] == []


def test_predict_streams_in_pieces(here, table, capsys, monkeypatch):
    table[["a", "c", "y"]].to_csv("t.csv", index=False)
    call(capsys, "fit", "t.csv", "--target", "y", "--save", "m.skops", "-q", *FAST)
    whole = call(capsys, "predict", "m.skops", "t.csv")[1]
    monkeypatch.setattr("otdro.cli.audit.PIECE", 7)
    pieces = call(capsys, "predict", "m.skops", "t.csv")[1]
    first, second = (pd.read_csv(io.StringIO(text)) for text in (whole, pieces))
    pd.testing.assert_frame_equal(first, second, rtol=1e-9)


def test_sample_is_one_seeded_pass(here, table, capsys, monkeypatch):
    from otdro.cli import reading

    table.to_csv("t.csv", index=False)
    monkeypatch.setattr(reading, "PIECE", 11)
    found = [reading.read(reading.locate("t.csv"), sample=30, seed=s) for s in (0, 0, 1)]
    assert [len(f) for f in found] == [30, 30, 30]
    assert found[0].id.tolist() == found[1].id.tolist() != found[2].id.tolist()
    assert found[0].id.is_unique


BAD_TABLES = {
    "is empty": "",
    "has column names but no rows": "a,y\n",
    "no column beside the target": "y\nu\nv\n",
    "has one value only ('u')": "a,y\n1,u\n2,u\n",
    "'oops' in row 3": "a,y\n1,u\n2,v\noops,u\n" + "4,v\n" * 9,
    "two columns called 'a'": "a,a,y\n1,2,u\n3,4,v\n",
    "not a regular table": "a,b,y\n1,2,u\n3,4,5,6,v\n",
    "begins with numbers": "1,2,3\n4,5,6\n",
    "has one row; the folds need": "a,y\n1,u\n2,u\n3,u\n4,v\n",
    "has no values": "a,y\n1,\n2,\n",
    "no usable column": "a,y\n" + ",u\n,v\n" * 5,
    "has one value only and is left out": "a,y\n" + "3,u\n3,v\n" * 5,
    "'a' has no finite values and is left out": "a,y\n" + "inf,u\ninf,v\n" * 5,
    "has 4 rows with a target; the folds need 10": "a,y\n1,u\n2,v\n3,u\n4,v\n",
    "distinct values in 6 rows": "a,y\n1,p\n2,q\n3,r\n4,s\n5,t\n6,u\n",
}


@pytest.mark.parametrize("message", BAD_TABLES)
def test_a_bad_table_is_one_sentence(here, capsys, message):
    Path("t.csv").write_text(BAD_TABLES[message])
    assert message in refused(capsys, "fit", "t.csv", "--target", "y")


def test_bad_files_are_one_sentence(here, capsys, table):
    assert "no such file: x.csv" in refused(capsys, "fit", "x.csv", "--target", "y")
    assert "is a folder" in refused(capsys, "fit", ".", "--target", "y")
    Path("z.csv").write_bytes(b"PK\x03\x04rest")
    assert "zip archive" in refused(capsys, "fit", "z.csv", "--target", "y")
    Path("n.csv").write_bytes(b"a,y\n\0\0\0")
    assert "not a text table" in refused(capsys, "fit", "n.csv", "--target", "y")
    Path("l.csv").write_bytes("a,y\n1,caf\xe9\n2,u\n".encode("latin1"))
    assert "not UTF-8" in refused(capsys, "fit", "l.csv", "--target", "y")
    table.to_csv("t.csv.gz", index=False)
    Path("t.csv.gz").write_bytes(Path("t.csv.gz").read_bytes()[:-40])
    assert "gzip" in refused(capsys, "fit", "t.csv.gz", "--target", "y")
    table.to_parquet("t.parquet")
    Path("t.parquet").write_bytes(Path("t.parquet").read_bytes()[:-40])
    assert "not a whole Parquet" in refused(capsys, "fit", "t.parquet", "--target", "y")


def test_marks_line_ends_and_blanks_do_not_matter(here, table, capsys):
    text = table[["a", "c", "y"]].to_csv(index=False)
    Path("plain.csv").write_text(text)
    Path("odd.csv").write_text("\ufeff" + text.replace(",", " , "), newline="\r\n")
    told = [
        json.loads(call(capsys, "fit", name, "--target", "y", "--json", *FAST)[1])["coefficients"]
        for name in ("plain.csv", "odd.csv")
    ]
    assert told[0] == pytest.approx(told[1])


def test_mixed_types_in_parquet_are_told(here, capsys):
    pd.DataFrame({"a": [[1], [2]] * 5, "y": list("uv" * 5)}).to_parquet("t.parquet")
    assert "holds lists" in refused(capsys, "fit", "t.parquet", "--target", "y")


def test_bad_options_are_one_sentence(here, capsys, table):
    table.to_csv("t.csv", index=False)
    fit = ["fit", "t.csv", "--target", "y"]
    assert "Did you mean 'city'?" in refused(capsys, "fit", "t.csv", "--target", "cty")
    assert "Missing option '--target'" in refused(capsys, "fit", "t.csv")
    assert "No such command 'fot'" in refused(capsys, "fot")
    assert "--delta must be a number" in refused(capsys, *fit, "--delta", "-1")
    assert "--scale must be one of" in refused(capsys, *fit, "--scale", "log")
    assert "--task must be" in refused(capsys, *fit, "--task", "guess")
    assert "regression needs numbers" in refused(capsys, *fit, "--task", "regression")
    assert "no column 'zz'" in refused(capsys, *fit, "--drop", "zz")
    assert "--cost must be one of learned" in refused(capsys, *fit, "--cost", "l7", "--no-compare")
    assert "no folder" in refused(capsys, *fit, "--save", "no/m.skops")
    assert "--sample" in refused(capsys, *fit, "--sample", "0")
    assert "--splits" in refused(capsys, "compare", *fit[1:], "--splits", "1")


def test_a_table_beyond_the_memory_says_what_it_needs(here, capsys, monkeypatch):
    from otdro.cli import reading

    with Path("big.csv").open("wb") as file:
        file.write(b"a,y\n" + b"1.0,u\n2.0,v\n" * 1000)
        file.truncate(2 * 2**30)
    monkeypatch.setattr(reading, "available_memory", lambda: 2**30)
    told = refused(capsys, "fit", "big.csv", "--target", "y")
    assert "needs about 6.0 GiB of memory and 1.0 GiB are free. Use --sample N" in told


def test_no_permission_and_a_full_disk_leave_nothing(here, table, capsys, monkeypatch):
    table[["a", "c", "y"]].to_csv("t.csv", index=False)
    fit = ["fit", "t.csv", "--target", "y", "--save", "m.skops", *FAST]
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda *args: False)
        assert "no permission to write" in refused(capsys, *fit)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        assert "the disk is full; m.skops was not written" in refused(capsys, *fit)
    assert os.listdir() == ["t.csv"]


def test_debug_shows_the_traceback(here):
    from otdro.cli.errors import UserError

    with pytest.raises(UserError, match="no such file"):
        guard(["fit", "x.csv", "--target", "y", "--debug"])


def test_what_is_unforeseen_is_still_one_line():
    assert sentence(KeyboardInterrupt()) == "interrupted."
    assert "--sample" in sentence(MemoryError())
    assert "pip install 'otdro[cli]'" in sentence(ModuleNotFoundError(name="skops"))
    assert "pip install 'otdro[excel]'" in sentence(ModuleNotFoundError(name="openpyxl"))
    assert (
        sentence(RuntimeError("a\nb"))
        == "unexpected RuntimeError: a b. Run with --debug to see where."
    )


def test_predict_names_what_is_wrong(here, table, capsys):
    table[["a", "c", "city", "y"]].to_csv("t.csv", index=False)
    call(capsys, "fit", "t.csv", "--target", "y", "--save", "m.skops", "-q", *FAST)
    table[["a"]].to_csv("few.csv", index=False)
    assert "lacks columns that the model needs: c, city" in refused(
        capsys, "predict", "m.skops", "few.csv"
    )
    Path("bad.csv").write_text("a,c,city\n1,2,Rome\n1,x,Bonn\n")
    told = refused(capsys, "predict", "m.skops", "bad.csv", "--out", "p.csv")
    assert "'c' must hold numbers, but row 2 holds 'x'" in told
    assert "no such model" in refused(capsys, "predict", "none.skops", "t.csv")
    assert "not a model saved by otdro" in refused(capsys, "predict", "t.csv", "t.csv")
    Path("new.csv").write_text("a,c,city\n1,2,Paris\n,2,Rome\n")
    code, _, err = call(capsys, "predict", "m.skops", "new.csv")
    assert code == 0
    assert "column 'city' holds 'Paris' (1 row), which the training data did not" in err
    assert "1 missing value is replaced" in err
    assert not [name for name in os.listdir() if name.endswith((".tmp", "p.csv"))]


class Stranger:
    """A type that no model of ours has."""


def test_loading_refuses_unknown_types(here, capsys, table):
    skops = pytest.importorskip("skops.io")
    skops.dump({"a": Stranger()}, "m.skops")
    table.to_csv("t.csv", index=False)
    told = refused(capsys, "predict", "m.skops", "t.csv")
    assert "types that no model of otdro has" in told
    skops.dump({"a": 1}, "d.skops")
    assert "holds a dict" in refused(capsys, "predict", "d.skops", "t.csv")


def test_compare_prints_and_draws(here, table, capsys, few_penalties):
    table[["a", "b", "y"]].to_csv("t.csv", index=False)
    options = ["--splits", "2", "--plot", "c.png"]
    code, out, _ = call(capsys, "compare", "t.csv", "--target", "y", *options)
    assert code == 0
    assert "Euclidean cost" in out
    assert max(map(len, out.splitlines())) <= 80
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    wrong = ["--splits", "2", "--plot", "c.docx"]
    assert ".png" in refused(capsys, "compare", "t.csv", "--target", "y", "--json", *wrong)


@pytest.mark.parametrize(
    ("command", "replacement"),
    [
        (["table1", "--reps", "2"], "make table1"),
        (["datasets"], "python experiments/datasets.py"),
        (["compare", "t.csv", "--target", "y", "--device", "cuda"], "leave it out"),
    ],
    ids=lambda v: v[0],
)
def test_what_is_gone_names_its_replacement(here, capsys, command, replacement):
    assert replacement in refused(capsys, *command)


def test_demo_needs_nothing(here, capsys, monkeypatch, few_penalties):
    monkeypatch.delenv("OTDRO_DATA", raising=False)
    code, out, _ = call(capsys, "demo", "--reps", "2")
    assert code == 0
    assert "robust risk" in out
    # the first table is one where a learned cost wins; the last line of each part says whether
    first, second = " ".join(out.split()).split("2. Real")
    assert re.search(r"Verdict: Better than [^;.]*Euclidean cost", first)
    assert re.search(r"Verdict: .*Euclidean cost", second)
    assert max(map(len, out.splitlines())) <= 80
    assert os.listdir() == []


def test_no_colour_off_a_terminal_or_with_no_color(capsys, monkeypatch):
    from otdro.cli import printing

    assert not printing.console().is_terminal
    monkeypatch.setenv("NO_COLOR", "1")
    assert printing.console().no_color
    monkeypatch.setenv("COLUMNS", "200")
    assert printing.console().width == 80


def test_help_of_every_command_fits_the_terminal(capsys):
    for command in ([], ["fit"], ["predict"], ["compare"], ["demo"]):
        code, out, _ = call(capsys, *command, "--help")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
    assert call(capsys)[0] == 0
    assert call(capsys, "--version")[1].count(".") >= 1


def test_the_command_itself_runs_and_fails_with_2():
    command = [sys.executable, "-c", "from otdro.cli import main; main()", "fit", "no.csv"]
    done = subprocess.run([*command, "--target", "y"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("otdro: error: no such file: no.csv")
