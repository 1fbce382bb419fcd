import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.datasets import make_classification

from otdro import experiment
from otdro.datasets import Dataset, load
from otdro.experiment import Labelled, Plan, Row, rows, run, seed_of, split, tables
from otdro.experiment.comparison import Score, compare, rounds, summarise
from otdro.experiment.run import Clock, Unit
from otdro.experiment.splits import SIZES, folds
from otdro.experiment.table import number
from otdro.scaling import SCALINGS, Asinh, scaler


def toy(name="toy", n=120, seed=0):
    X, y = make_classification(n, 4, n_informative=3, n_redundant=0, random_state=seed)
    return Dataset(name, X, np.where(y, 1.0, -1.0), "classification", "made", "")


def plan(reps=3, methods=("LR", "W"), **kw):
    sets = {"toy": toy(), "too": toy("too", seed=1)}
    sizes = dict.fromkeys(sets, (40, 30, 50))
    return Plan(sets, list(methods), reps, sizes=sizes, **kw)


def bare(found):
    """The rows by key, without what may differ between two runs; as text, for nan is not nan."""
    return {rows.key(row): repr(replace(row, seconds=0.0)) for row in found}


def test_sizes_use_every_row_of_the_sets():
    from otdro.datasets import SPECS

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


def test_folds_shrink_to_the_smallest_class():
    assert folds(np.repeat([1, -1], [3, 20]), 0).get_n_splits() == 3


def test_rows_are_canonical_and_complete(tmp_path):
    found = run(plan(), tmp_path)
    assert [rows.key(row) for row in found] == plan().cells()
    assert (tmp_path / rows.FINAL).read_text() == rows.to_csv(found)
    assert {row.train_rows for row in found} == {40}
    assert all(np.isfinite(row.test_loss) and not row.note for row in found if row.method == "W")


def test_any_order_and_any_backend_give_the_same(tmp_path):
    whole = run(plan(), tmp_path / "a")
    run(plan(reps=1, methods=("W",)), tmp_path / "b")
    backwards = plan(methods=("W", "LR"))
    found = run(backwards, tmp_path / "b", jobs=2, backend="threading")
    assert bare(whole) == bare(found)


def test_a_torn_row_is_cut_off_and_run_again(tmp_path):
    whole = run(plan(), tmp_path / "a")
    (tmp_path / "b").mkdir()
    raw = (tmp_path / "a" / rows.ROWS).read_bytes()
    (tmp_path / "b" / rows.ROWS).write_bytes(raw[: len(raw) // 2])
    assert bare(run(plan(), tmp_path / "b")) == bare(whole)


KILLER = """
import os, random, signal, sys, time
from multiprocessing import get_context
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_experiment import plan
from otdro.experiment import run

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
    command = [sys.executable, "-W", "error", "-c", KILLER, here, str(tmp_path / "killed")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 3
    whole = run(plan(reps=12), tmp_path / "whole")
    kept = rows.read(tmp_path / "killed")
    assert len(kept) == len(whole)
    assert bare(kept) == bare(whole)
    lines = [(tmp_path / f / rows.FINAL).read_text().splitlines() for f in ("killed", "whole")]
    assert len(lines[0]) == len(lines[1])
    assert [x.split(",")[:10] for x in lines[0]] == [x.split(",")[:10] for x in lines[1]]


def test_two_runs_do_not_share_a_folder(tmp_path):
    pytest.importorskip("fcntl")
    with rows.lock(tmp_path), pytest.raises(ValueError, match="another run is writing"):
        run(plan(), tmp_path)


def test_rows_of_another_seed_or_version_are_refused(tmp_path):
    run(plan(reps=1), tmp_path)
    with pytest.raises(ValueError, match="base_seed=0, not 1"):
        run(plan(reps=1, seed=1), tmp_path)
    (tmp_path / rows.ROWS).write_text('{"set": "BC"}\n')
    with pytest.raises(ValueError, match="not a file of rows"):
        run(plan(), tmp_path)


def test_a_failed_fit_is_a_row_with_a_note(tmp_path, monkeypatch):
    from otdro.experiment.methods import METHODS

    def broken(setting):
        class Broken:
            def fit(self, X, y):
                raise ValueError("no luck")

        return Broken()

    monkeypatch.setitem(METHODS, "W", replace(METHODS["W"], build=broken))
    found = run(plan(reps=1), tmp_path)
    notes = {row.method: row.note for row in found}
    assert notes["W"] == "ValueError: no luck"
    assert "-" in tables(found, ["toy", "too"])[0].text()


def test_an_empty_model_predicts_one_class(tmp_path, monkeypatch):
    from sklearn.linear_model import LogisticRegression

    from otdro.experiment.methods import METHODS

    def empty(setting):
        return LogisticRegression(C=1e-9, l1_ratio=1, solver="liblinear")

    monkeypatch.setitem(METHODS, "W", replace(METHODS["W"], build=empty))
    found = run(plan(reps=1, methods=("W",)), tmp_path)
    assert all(0.2 < row.accuracy < 0.8 for row in found)
    assert found[0].test_loss == pytest.approx(np.log(2))


def test_write_atomic_leaves_nothing_half_written(tmp_path, monkeypatch):
    target = tmp_path / "x"
    target.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        experiment.write_atomic(target, "new")
    assert caught.value.filename == str(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


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
    paper = experiment.paper_numbers()
    assert len(paper) == 24
    assert paper["BC", "DRO-NL"]["test"] == (0.119, 0.044)
    assert paper["QSAR", "LR"]["test"] == (35.5, 12.8)


def test_methods_by_name_and_group():
    assert experiment.resolve("ours, l2") == ["L2", "ours"]
    assert experiment.resolve("seven") == ["LR", "LRL1", "DRO-L", "DRO-NL", "L2", "W", "ours"]
    assert set(experiment.resolve(None)) < set(experiment.resolve("all"))
    with pytest.raises(ValueError, match="unknown method 'svm'"):
        experiment.resolve("svm")


@pytest.mark.parametrize("name", experiment.METHODS)
def test_every_method_runs(name, tmp_path):
    found = run(plan(reps=1, methods=[name]), tmp_path)
    assert all(np.isfinite(row.test_loss) for row in found)
    assert all("Error" not in row.note for row in found)


@pytest.mark.parametrize("name", SCALINGS)
def test_scalings_keep_shape_and_tame_tails(name):
    X = np.random.default_rng(0).standard_cauchy((200, 3))
    X[:, 2] = 4.0
    Z = scaler(name).fit_transform(X)
    assert Z.shape == X.shape
    assert np.isfinite(Z).all()
    if name in ("asinh", "auto"):
        assert np.abs(Z).max() < 6
    with pytest.raises(ValueError, match="unknown scaling"):
        scaler("log")


def test_asinh_is_linear_in_the_middle_and_takes_constant_columns():
    X = np.column_stack([np.linspace(-1e-3, 1e-3, 9), np.full(9, 3.0), np.r_[np.zeros(8), 5.0]])
    found = Asinh().fit(X)
    np.testing.assert_array_equal(found.scale_[1:], [1.0, 5.0 / 9])
    assert list(found.get_feature_names_out(["a", "b", "c"])) == ["a", "b", "c"]


def test_comparison_is_paired_and_complete(few_penalties):
    import pandas as pd
    from sklearn.preprocessing import StandardScaler

    data = toy(n=80)
    found = list(
        compare(
            Labelled(pd.DataFrame(data.X), data.y, "classification"),
            StandardScaler(),
            rounds(data.y, "classification", 3, 0),
        )
    )
    told = {(s.method, s.measure): s for s in summarise(found)}
    assert {m for m, _ in told} == {"ours", "plain", "L1", "L2", "constant", "Wasserstein"}
    assert told["ours", "log-loss"].difference == 0
    values = [s.values["log-loss"] for s in found if s.method == "L2"]
    assert told["L2", "log-loss"].mean == pytest.approx(np.mean(values))


@pytest.mark.parametrize("task", ["regression", "multiclass"])
def test_comparison_takes_other_tasks(few_penalties, task):
    import pandas as pd
    from sklearn.preprocessing import StandardScaler

    X = np.random.default_rng(0).standard_normal((45, 3))
    y = X[:, 0] + 0.1 * X[:, 1] if task == "regression" else np.repeat([0, 1, 2], 15)
    kind = "regression" if task == "regression" else "classification"
    data = Labelled(pd.DataFrame(X), y, kind)
    found = list(compare(data, StandardScaler(), rounds(y, kind, 2, 0)))
    assert len(found) == 12
    assert all(np.isfinite(list(s.values.values())).all() for s in found)


def test_plot_draws_one_line_a_method():
    from matplotlib.figure import Figure

    from otdro.plot import comparison

    scores = [Score(m, k, {"log-loss": 0.1 * k + 0.2}) for m in ("ours", "L2") for k in range(4)]
    ax = Figure().subplots()
    assert len(comparison(ax, scores, "log-loss")) == 4
    assert [t.get_text() for t in ax.get_yticklabels()] == ["ours", "L2"]


def test_rows_survive_the_disk(tmp_path):
    row = example()
    rows.append(tmp_path, [row, replace(row, rep=1, test_loss=float("nan"))])
    back = rows.read(tmp_path)
    assert asdict(back[0]) == asdict(row)
    assert np.isnan(back[1].test_loss)
