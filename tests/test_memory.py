"""Memory: what a fit needs, what is left, and the refusal before it starts."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from otdro import DROClassifier, arrays
from otdro.design import as_dense


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 10))
    return X, np.where(X[:, 0] + rng.standard_normal(400) > 0, 1, -1)


@pytest.fixture
def little(monkeypatch):
    """Let any need be looked at, and nothing be left."""
    monkeypatch.setattr(arrays, "SMALL", 0)
    monkeypatch.setattr(arrays, "available_memory", lambda: 2**10)


def test_a_fit_beyond_the_memory_is_refused_with_what_would_fit(rows, little):
    words = r"a fit to 400 rows of 10 columns needs about 0\.0 GiB of memory and 0\.0 GiB are free"
    with pytest.raises(MemoryError, match=f"{words}: use cost='euclidean', or a number as delta"):
        DROClassifier().fit(*rows)
    with pytest.raises(MemoryError, match=f"{words}: use a number as delta, or rows in chunks"):
        DROClassifier(cost="euclidean").fit(*rows)
    with pytest.raises(MemoryError, match=f"{words}: use rows in chunks"):
        DROClassifier(cost="euclidean", delta=0.1).fit(*rows)


def test_a_refused_fit_leaves_the_model_as_it_was(rows, monkeypatch):
    model = DROClassifier(cost="euclidean", delta=0.1).fit(*rows)
    before = model.coef_.copy()
    monkeypatch.setattr(arrays, "SMALL", 0)
    monkeypatch.setattr(arrays, "available_memory", lambda: 0)
    with pytest.raises(MemoryError):
        model.fit(*rows)
    np.testing.assert_array_equal(model.coef_, before)


def test_a_small_fit_does_not_ask_the_system(rows, monkeypatch):
    def asked():
        raise AssertionError("the system was asked")

    monkeypatch.setattr(arrays, "available_memory", asked)
    DROClassifier(cost="euclidean", delta=0.1).fit(*rows)


def test_sparse_rows_are_not_written_out_beyond_the_memory(little):
    X = sparse.csr_array((1_000, 2_000))
    with pytest.raises(MemoryError, match="1,000 sparse rows of 2,000 columns as a dense array"):
        as_dense(X)


@pytest.mark.parametrize(
    ("settings", "folds"), [({"delta": 0.1}, False), ({"delta": "cv"}, True)], ids=str
)
def test_the_estimate_is_below_what_a_fit_takes(settings, folds):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 5))
    y = np.where(X[:, 0] + rng.standard_normal(30_000) > 0, 1, -1)
    tracemalloc.start()
    DROClassifier(cost="euclidean", **settings).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    need = arrays.fit_need(X, folds=folds)
    # a lower bound, so that no fit is refused that would have fitted, and not an empty one
    assert peak / 10 < need < peak


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    stat = "anon 5\ninactive_file 200\nactive_file 100\n"
    for name, text in {"max": "5000\n", "current": "4000\n", "stat": stat}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(arrays, "CONTAINER", tmp_path)
    # 5,000 - 4,000 in use, of which 300 are pages of files
    assert arrays.available_memory() == 1300


def test_no_limit_and_no_control_groups_leave_the_memory_of_the_system(tmp_path, monkeypatch):
    for name, text in {"memory.max": "max", "memory.current": "4000", "memory.stat": ""}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(arrays, "CONTAINER", tmp_path)
    system = tmp_path / "system"
    system.write_text("MemTotal: 9 kB\nMemAvailable: 3 kB\n")
    monkeypatch.setattr(arrays, "SYSTEM", system)
    assert arrays.available_memory() == 3 * 1024
    monkeypatch.setattr(arrays, "SYSTEM", tmp_path / "none")
    assert arrays.available_memory() > 2**20
