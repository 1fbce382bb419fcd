"""Fits side by side: one batch of their small problems on a device, the numbers of each alone."""

import json
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification

from otdro.datasets import Dataset
from otdro.experiment import Device, Labelled, Plan, compare, rounds, run
from otdro.experiment.device import recorded
from otdro.scaling import scaler

PLACES = ["cpu", "cuda"]
NUMBERS = ("train_loss", "test_loss", "accuracy", "radius")


@pytest.fixture(params=PLACES)
def device(request):
    return make(request.param)


def make(name):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return Device(name)


def toy(d, seed):
    X, y = make_classification(120, d, n_informative=3, n_redundant=0, random_state=seed)
    return Dataset("toy", X, np.where(y, 1.0, -1.0), "classification", "made", "")


def plan(methods, reps=2):
    """Long and wide rows, whose problems are of two shapes in one batch."""
    sizes = {"long": (40, 30, 50), "wide": (20, 30, 70)}
    return Plan({"long": toy(4, 0), "wide": toy(25, 1)}, methods, reps, sizes=sizes)


def test_replications_side_by_side_are_those_one_by_one(device, tmp_path):
    asked = plan(["LR", "W", "ours"])
    alone = run(asked, tmp_path / "a")
    # some are there already: only the others run
    run(replace(asked, methods=["W"], reps=1), tmp_path / "b")
    found = run(asked, tmp_path / "b", device=device)
    for one, other in zip(alone, found, strict=True):
        values = [[getattr(row, name) for name in NUMBERS] for row in (one, other)]
        np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-6)
        assert (one.set, one.rep, one.method, one.note) == (
            other.set,
            other.rep,
            other.method,
            other.note,
        )
    assert device.problems["LR"] == 0 < device.problems["W"] < device.problems["ours"]
    assert f"were solved on {device.name}; LR ran on the CPU." in device.done()


def test_comparisons_side_by_side_are_those_one_by_one(device, few_penalties):
    pd = pytest.importorskip("pandas")
    data = toy(4, 2)
    rows = Labelled(pd.DataFrame(data.X), data.y, "classification")
    known = (rows, scaler("standard"), rounds(data.y, "classification", 2, 0))
    names = ["ours", "Wasserstein", "constant"]
    alone = list(compare(*known, methods=names))
    found = list(compare(*known, methods=names, device=device))
    assert [(s.method, s.split) for s in found] == [(s.method, s.split) for s in alone]
    for one, other in zip(alone, found, strict=True):
        assert other.values == pytest.approx(one.values, abs=1e-6)


def test_warnings_go_to_the_fit_they_come_from():
    device = make("cpu")

    def task(number):
        with recorded() as caught:
            warnings.warn(f"from {number}", UserWarning, stacklevel=1)
        return [str(w.message) for w in caught]

    before = warnings.showwarning, list(warnings.filters)
    tasks = [lambda k=k: task(k) for k in range(3)]
    assert list(device.side_by_side(tasks, ["fit"] * 3)) == [[f"from {k}"] for k in range(3)]
    assert (warnings.showwarning, list(warnings.filters)) == before


def test_what_a_fit_raises_ends_all_and_leaves_no_thread():
    device, ran = make("cpu"), []

    def fail():
        raise KeyError("gone")

    count = threading.active_count()
    with pytest.raises(KeyError, match="gone"):
        list(device.side_by_side([lambda: ran.append(0), fail, lambda: ran.append(2)], ["x"] * 3))
    assert ran == [0]
    assert threading.active_count() == count


def test_a_device_without_memory_says_what_is_needed(monkeypatch):
    class OutOfMemoryError(RuntimeError):
        pass

    def fail(*args):
        raise OutOfMemoryError

    device = make("cpu")
    monkeypatch.setattr("otdro.experiment.device.minimise_together", fail)
    with pytest.raises(ValueError, match=r"cpu ran out of memory: a batch needs about \d"):
        list(device.side_by_side([lambda: None], ["x"]))


def test_devices_that_are_not_there_are_refused(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(ValueError, match="must be cpu or cuda, got 'tpu'"):
        Device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="there is no CUDA device for --device cuda: use --device"):
        Device("cuda")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ValueError, match=r"--device needs torch: pip install 'otdro\[torch\]'"):
        Device("cpu")


def test_commands_take_a_device(tmp_path, monkeypatch, capsys, few_penalties):
    pytest.importorskip("typer")
    pd = pytest.importorskip("pandas")
    make("cpu")
    from otdro.cli.errors import guard

    monkeypatch.chdir(tmp_path)
    data = toy(3, 3)
    pd.DataFrame(data.X).assign(y=data.y).to_csv("t.csv", index=False)
    command = [
        "compare",
        "t.csv",
        "--target",
        "y",
        "--splits",
        "2",
        "--json",
        "--cost",
        "euclidean",
    ]
    documents = []
    for more in ([], ["--device", "cpu"]):
        assert guard([*command, *more]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    alone, found = documents
    for one, other in zip(alone["comparison"], found["comparison"], strict=True):
        assert other == pytest.approx(one, abs=1e-6, nan_ok=True)
    assert any("problems of ours, Wasserstein were solved on cpu; " in n for n in found["notes"])
    table1 = ["table1", "--sets", "BC", "--methods", "LR,W", "--reps", "2", "--device", "cpu"]
    assert guard(table1) == 0
    assert "problems of W were solved on cpu; LR ran on the CPU." in capsys.readouterr().err
    assert guard([*table1, "--jobs", "2"]) == 2
    assert "--jobs and --backend are for several: leave them out" in capsys.readouterr().err
