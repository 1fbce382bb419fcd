import importlib
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import table1
from datasets import SPECS, Dataset, load
from joblib import parallel_config
from sklearn.base import BaseEstimator
from sklearn.datasets import make_classification
from table1 import METHODS, SIZES, Clock, Plan, Row, Unit, main, number, run, seed_of, split, tables

HERE = str(Path(table1.__file__).parent)


def toy(name="toy", n=120, seed=0):
    X, y = make_classification(n, 4, n_informative=3, n_redundant=0, random_state=seed)
    return Dataset(name, X, np.where(y, 1.0, -1.0), "classification", "made", "")


def plan(reps=3, methods=("LR", "W"), **kw):
    sets = {"toy": toy(), "too": toy("too", seed=1)}
    sizes = dict.fromkeys(sets, (40, 30, 50))
    return Plan(sets, list(methods), reps, sizes=sizes, **kw)


def bare(found):
    """The rows by key, without what may differ between two runs; as text, for nan is not nan."""
    return {row.key: repr(replace(row, seconds=0.0)) for row in found}


def test_sizes_use_every_row_of_the_sets():
    for name, sizes in SIZES.items():
        assert sum(sizes) == SPECS[name].shape[0]


def test_seed_depends_on_set_and_replication_only():
    assert seed_of(0, "BC", 3) == seed_of(0, "BC", 3)
    assert len({seed_of(s, n, r) for s in (0, 1) for n in SIZES for r in range(50)}) == 600


def test_split_is_a_partition_with_both_classes():
    y = load("BC").y
    parts = split(y, SIZES["BC"], 5)
    assert len(parts.train) == 40
    assert len(parts.test) == 329
    assert not set(parts.train) & set(parts.test)
    rare = np.where(np.arange(200) < 8, 1.0, -1.0)
    assert (rare[split(rare, (20, 0, 180), 1).train] == 1).sum() >= 2


def test_rows_are_canonical_and_complete(tmp_path):
    found = run(plan(), tmp_path)
    assert [row.key for row in found] == plan().cells()
    assert (tmp_path / table1.FINAL).read_text() == table1.to_csv(found)
    assert {row.train_rows for row in found} == {40}
    assert all(np.isfinite(row.test_loss) and not row.note for row in found if row.method == "W")


def test_any_order_and_any_backend_give_the_same(tmp_path):
    whole = run(plan(), tmp_path / "a")
    run(plan(reps=1, methods=("W",)), tmp_path / "b")
    backwards = plan(methods=("W", "LR"))
    with parallel_config(backend="threading"):
        found = run(backwards, tmp_path / "b", jobs=2)
    assert bare(whole) == bare(found)


def test_a_torn_row_is_cut_off_and_run_again(tmp_path):
    whole = run(plan(), tmp_path / "a")
    (tmp_path / "b").mkdir()
    raw = (tmp_path / "a" / table1.ROWS).read_bytes()
    (tmp_path / "b" / table1.ROWS).write_bytes(raw[: len(raw) // 2])
    assert bare(run(plan(), tmp_path / "b")) == bare(whole)


KILLER = """
import os, random, signal, sys, time
from multiprocessing import get_context
from pathlib import Path
sys.path.insert(0, sys.argv[1])
sys.path.insert(0, sys.argv[3])
from test_table1 import plan
from table1 import run

folder = Path(sys.argv[2])
random.seed(0)
context = get_context("fork")
killed = 0
for _ in range(10):
    child = context.Process(target=run, args=(plan(reps=12), folder))
    child.start()
    time.sleep(random.uniform(0.02, 0.2))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    killed += child.exitcode == -signal.SIGKILL
run(plan(reps=12), folder)
print(killed)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_killed_ten_times_the_result_is_the_same(tmp_path):
    here = str(__import__("pathlib").Path(__file__).parent)
    command = [sys.executable, "-W", "error", "-c", KILLER, here, str(tmp_path / "killed"), HERE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 3
    whole = run(plan(reps=12), tmp_path / "whole")
    kept = table1.read(tmp_path / "killed")
    assert len(kept) == len(whole)
    assert bare(kept) == bare(whole)
    lines = [(tmp_path / f / table1.FINAL).read_text().splitlines() for f in ("killed", "whole")]
    assert len(lines[0]) == len(lines[1])
    assert [x.split(",")[:10] for x in lines[0]] == [x.split(",")[:10] for x in lines[1]]


def test_two_runs_do_not_share_a_folder(tmp_path):
    pytest.importorskip("fcntl")
    with table1.lock(tmp_path), pytest.raises(ValueError, match="another run is writing"):
        run(plan(), tmp_path)


def test_rows_of_another_seed_or_version_are_refused(tmp_path):
    run(plan(reps=1), tmp_path)
    with pytest.raises(ValueError, match="base_seed=0, not 1"):
        run(plan(reps=1, seed=1), tmp_path)
    (tmp_path / table1.ROWS).write_text('{"set": "BC"}\n')
    with pytest.raises(ValueError, match="not a file of rows"):
        run(plan(), tmp_path)


def broken(setting):
    class Broken(BaseEstimator):
        def fit(self, X, y):
            raise ValueError("no luck")

    return Broken()


def test_a_failed_fit_is_a_row_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "W", replace(METHODS["W"], build=broken))
    found = run(plan(reps=1), tmp_path)
    notes = {row.method: row.note for row in found}
    assert notes["W"] == "ValueError: no luck"
    assert "-" in tables(found, ["toy", "too"])[0].text()


def test_an_empty_model_predicts_one_class(tmp_path, monkeypatch):
    from sklearn.linear_model import LogisticRegression

    def empty(setting):
        return LogisticRegression(C=1e-9, l1_ratio=1, solver="liblinear")

    monkeypatch.setitem(METHODS, "W", replace(METHODS["W"], build=empty))
    found = run(plan(reps=1, methods=("W",)), tmp_path)
    assert all(0.2 < row.accuracy < 0.8 for row in found)
    assert found[0].test_loss == pytest.approx(np.log(2))


def test_the_estimate_weighs_the_sets_that_are_left(monkeypatch):
    units = [Unit("a", 0, ("m",)), Unit("b", 0, ("m",)), Unit("b", 1, ("m",)), Unit("b", 2, ("m",))]
    clock = Clock(units)
    row = example()
    assert clock.tick([replace(row, set="a", seconds=1.0)]) is None
    monkeypatch.setattr("time.perf_counter", lambda: clock.start + 8.0)
    # 4 seconds of work took 8; two units of 3 seconds are left
    assert clock.tick([replace(row, set="b", seconds=3.0)]) == pytest.approx(12.0)


def example(method="ours", rep=0, loss=0.5, name="BC"):
    numbers = {"train_loss": loss, "test_loss": loss, "accuracy": 0.9, "radius": 0.1}
    shared = {"seed": 1, "train_rows": 40, "test_rows": 329, "seconds": 0.1, "intercept": True}
    return Row(name, rep, method, **numbers, **shared, base_seed=0, note="", versions="v")


def test_tables_stand_beside_the_paper():
    found = [
        example(m, rep, 0.1 * rep + d) for rep in (1, 2) for m, d in (("ours", 0), ("DRO-L", 0.1))
    ]
    shown = tables(found)
    text = shown[0].text()
    assert ".126±.034" in text
    assert ".150±.071" in text
    paired = next(t for t in shown if "minus the method, test log-loss, mean" in t.title)
    assert paired.body == [["DRO-L", "-.100±.000", "-", "-", "-", "-", "-"]]
    assert max(len(line) for t in shown for line in t.text().splitlines()) <= 80
    assert "| DRO-L | .250±.071 |" in shown[0].markdown()
    assert r"DRO-L & .250$\pm$.071 &" in shown[0].latex()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1194, ".119"),
        (8.75, "8.75"),
        (35.52, "35.5"),
        (0, ".000"),
        (0.9999, "1.00"),
        (-0.02, "-.020"),
        (5e6, "5e6"),
    ],
)
def test_numbers_are_written_as_in_the_paper(value, text):
    assert number(value) == text


def test_paper_numbers_are_the_whole_table():
    paper = table1.paper_numbers()
    assert len(paper) == 24
    assert paper["BC", "DRO-NL"]["test"] == (0.119, 0.044)
    assert paper["QSAR", "LR"]["test"] == (35.5, 12.8)


def test_methods_by_name_and_group():
    assert table1.resolve("ours, l2") == ["L2", "ours"]
    assert table1.resolve("seven") == ["LR", "LRL1", "DRO-L", "DRO-NL", "L2", "W", "ours"]
    assert set(table1.resolve("default")) < set(table1.resolve("all"))
    with pytest.raises(ValueError, match="unknown method 'svm'"):
        table1.resolve("svm")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs(name, tmp_path):
    found = run(plan(reps=1, methods=[name]), tmp_path)
    assert all(np.isfinite(row.test_loss) for row in found)
    assert all("Error" not in row.note for row in found)


def test_rows_survive_the_disk(tmp_path):
    row = example()
    table1.append(tmp_path, [row, replace(row, rep=1, test_loss=float("nan"))])
    back = table1.read(tmp_path)
    assert asdict(back[0]) == asdict(row)
    assert np.isnan(back[1].test_loss)


def test_the_command_skips_what_is_missing_and_goes_on(here, capsys, monkeypatch):
    monkeypatch.delenv("OTDRO_DATA", raising=False)
    command = ["--sets", "BC,MB", "--methods", "W,ours", "--out", "o"]
    assert main([*command, "--reps", "1"]) == 0
    out, err = capsys.readouterr()
    assert "MB is in no folder searched" in err
    assert ".126±.034" not in out
    assert "2/2" in err
    before = Path("o/results.csv").read_text().splitlines()
    assert main([*command, "--reps", "2"]) == 0
    after = Path("o/results.csv").read_text().splitlines()
    assert after[: len(before)] == before
    assert len(after) == 5
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    names = ["results.csv", "rows.jsonl", "table1.md", "table1.tex", "table1.txt"]
    assert sorted(p.name for p in Path("o").iterdir()) == names
    assert "base_seed=0, not 3" in refused(capsys, *command, "--seed", "3")


def refused(capsys, *argv):
    """Return the sentence with which the command refuses."""
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_bad_options_are_refused(here, capsys, monkeypatch):
    monkeypatch.delenv("OTDRO_DATA", raising=False)
    assert "'iris' is not in the paper's table" in refused(capsys, "--sets", "iris")
    assert "unknown method 'svm'" in refused(capsys, "--methods", "svm")
    assert "--reps must be" in refused(capsys, "--reps", "0")
    assert "none of the data sets" in refused(capsys, "--sets", "MB")
    assert "or methods" in refused(capsys, "--sets", "BC", "--methods", ",")
    Path("file").write_text("")
    assert "is a file" in refused(capsys, "--sets", "BC", "--out", "file")


def test_a_fit_that_raises_fails_the_command_after_all_results(here, capsys, monkeypatch):
    command = ["--sets", "BC", "--methods", "LR,W", "--reps", "2", "--out", "o"]
    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "W", replace(METHODS["W"], build=broken))
        assert main(command) == 1
    out, err = capsys.readouterr()
    assert "2 of 4 fits raised an error: W." in err
    assert "W: 2 of the fits: ValueError: no luck" in out
    assert len(Path("o/results.csv").read_text().splitlines()) == 5
    assert "no luck" in Path("o/table1.txt").read_text()
    # the same command tries them again
    assert main(command) == 0
    assert "no luck" not in Path("o/table1.txt").read_text()


@pytest.mark.slow
def test_the_script_runs_in_two_processes(here):
    command = [sys.executable, f"{HERE}/table1.py", "--sets", "BC", "--methods", "W,ours"]
    rest = ["--reps", "2", "--jobs", "2", "--out", "o"]
    done = subprocess.run([*command, *rest], capture_output=True, text=True, check=True)
    assert "Test log-loss, median" in done.stdout
    assert len(Path("o/results.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("name", sorted(p.stem for p in Path(HERE).glob("*.py")))
def test_every_experiment_finds_what_it_imports(name):
    pytest.importorskip("pandas")
    importlib.import_module(name)
