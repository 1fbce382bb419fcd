import os
from pathlib import Path

import datasets
import numpy as np
import pytest
from datasets import DatasetUnavailableError, Spec, fetch, fingerprint, keep, load, main

HERE = os.environ.get(datasets.FOLDER)
needs_data = pytest.mark.skipif(not HERE, reason="OTDRO_DATA names no folder of data files")
TINY = Spec("tiny", "tiny", "tiny.csv.gz", (3, 2), counts=(1, 2), openml=("Tiny", 7))
TEXT = "a,b,y\n1,2,1\n3,4,-1\n5,6,-1\n"


@needs_data
@pytest.mark.parametrize("name", [n for n in datasets.SPECS if n != "MB"])
def test_every_file_passes_its_own_checks(name):
    if datasets.SPECS[name].file and datasets.SPECS[name].find() is None:
        pytest.skip(f"{name} is not in {HERE}")
    data = load(name, download=False)
    assert data.X.shape == datasets.SPECS[name].shape
    assert data.task == datasets.SPECS[name].task
    assert len(data.sha256) == 64
    kinds = None if data.groups is None else len(np.unique(data.groups))
    assert kinds == datasets.SPECS[name].environments


MOVED = Spec("moved", "moved", "shift/moved.csv", (3, 2), counts=(1, 2), environments=2)


@pytest.mark.parametrize(
    ("words", "groups"), [("east,west,east", ["east", "west", "east"]), ("2,10,2", [2, 10, 2])]
)
def test_environments_are_the_column_before_the_last(tmp_path, words, groups):
    rows = zip(("1,2", "3,4", "5,6"), words.split(","), (1, -1, -1), strict=True)
    text = "".join(f"{x},{env},{y}\n" for x, env, y in rows)
    (tmp_path / "shift").mkdir()
    (tmp_path / "shift" / "moved.csv").write_text("a,b,env,y\n" + text)
    data = MOVED.read(tmp_path)
    np.testing.assert_array_equal(data.X, [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(data.y, [1, -1, -1])
    np.testing.assert_array_equal(data.groups, groups)
    one = Spec("moved", "moved", "shift/moved.csv", (3, 2), environments=3)
    with pytest.raises(ValueError, match="has 2 environments; moved has 3"):
        one.read(tmp_path)
    with pytest.raises(DatasetUnavailableError, match=r"Put shift/gas_drift.csv.gz .*then env"):
        load("gas_drift", folder=tmp_path, download=False)


def test_breast_cancer_needs_no_file():
    data = load("wdbc", folder="/nowhere")
    assert data.name == "BC"
    assert (data.y == 1).sum() == 357


def test_names_have_aliases_and_errors_list_them():
    assert datasets.spec("BankNote").name == "BN"
    with pytest.raises(ValueError, match=r"unknown data set 'iris'; known: BC, BN"):
        load("iris")


def test_a_set_placed_by_hand_is_found(tmp_path):
    (tmp_path / "tiny.csv").write_text(TEXT)
    data = TINY.read(tmp_path)
    np.testing.assert_array_equal(data.y, [1, -1, -1])
    assert data.sha256 == fingerprint(data.X, data.y)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,y\n1,2,1\n3,4,-1\n", "has 2 rows and 2 features; tiny has 3 and 2"),
        ("a,b,y\n1,2,1\n3,4,1\n5,6,-1\n", "2 rows labelled"),
        ("a,b,y\n1,2,1\n3,x,-1\n5,6,-1\n", "not a comma-separated table of numbers"),
        ("a,b,y\n1,nan,1\n3,4,-1\n5,6,-1\n", "missing or infinite"),
    ],
)
def test_a_file_that_does_not_match_is_refused(tmp_path, text, message):
    (tmp_path / "tiny.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        TINY.read(tmp_path)


def test_other_values_than_the_reference_are_refused(tmp_path):
    (tmp_path / "tiny.csv").write_text(TEXT)
    other = Spec("tiny", "tiny", "tiny.csv.gz", (3, 2), counts=(1, 2), sha256="0" * 64)
    with pytest.raises(ValueError, match="sha256"):
        other.read(tmp_path)


def test_without_file_or_download_the_message_says_what_to_do(monkeypatch):
    monkeypatch.delenv(datasets.FOLDER, raising=False)
    with pytest.raises(DatasetUnavailableError, match=r"Put mb.csv.gz .* OTDRO_DATA or --data"):
        load("MB", download=False)
    with pytest.raises(DatasetUnavailableError, match="has no address"):
        load("yacht")


class Bunch:
    """What scikit-learn's fetch_openml returns, as far as it is used."""

    def __init__(self, name="tiny", labels=("g", "h", "h")):
        self.details = {"name": name}
        self.data = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        self.target = np.array(labels)


def test_a_download_is_checked_and_its_classes_told_apart_by_count(monkeypatch):
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **kw: Bunch())
    np.testing.assert_array_equal(fetch(TINY).y, [1, -1, -1])
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **kw: Bunch(name="huge"))
    with pytest.raises(ValueError, match="is 'huge', not 'Tiny'"):
        fetch(TINY)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **kw: Bunch(labels="ggg"))
    with pytest.raises(ValueError, match="classes of"):
        fetch(TINY)


def test_offline_is_said_plainly(monkeypatch):
    def fail(**kw):
        raise OSError("Name or service not known")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    with pytest.raises(DatasetUnavailableError, match=r"openml.org cannot be reached .*Put tiny"):
        fetch(TINY)


def refused(capsys, *argv):
    """Return the sentence with which the command refuses."""
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_command_lists_and_fetches(here, capsys, monkeypatch):
    monkeypatch.delenv("OTDRO_DATA", raising=False)
    main([])
    out = capsys.readouterr().out
    assert "--fetch MB" in out
    assert "no folder searched" in out
    assert "no folder nope" in refused(capsys, "--data", "nope")
    assert "name a folder to keep MB in" in refused(capsys, "--fetch", "MB")
    assert "unknown data set 'iris'" in refused(capsys, "--fetch", "iris")

    def offline(**kw):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    text = refused(capsys, "--fetch", "BN", "--data", ".")
    assert "openml.org cannot be reached (no network). Put bn.csv.gz" in text


def test_what_is_kept_is_found_again(here):
    pytest.importorskip("pandas")
    data = load("BC")
    keep(data, Path("bc.csv.gz"))
    again = Spec("BC", "", "bc.csv.gz", (569, 30), counts=(357, 212), sha256=data.sha256).read(".")
    np.testing.assert_array_equal(again.X, data.X)
    assert os.listdir() == ["bc.csv.gz"]
