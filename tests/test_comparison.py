"""Comparisons of models on one table, and files that are written whole."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

from otdro.comparison import METHODS, Labelled, Score, compare, folds, rounds, summarise
from otdro.files import write_atomic
from otdro.scaling import SCALINGS, Asinh, scaler


def test_folds_shrink_to_the_smallest_class():
    assert folds(np.repeat([1, -1], [3, 20]), 0).get_n_splits() == 3


def test_write_atomic_leaves_nothing_half_written(tmp_path, monkeypatch):
    target = tmp_path / "x"
    target.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(target, "new")
    assert caught.value.filename == str(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


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

    X, labels = make_classification(80, 4, n_informative=3, n_redundant=0, random_state=0)
    y = np.where(labels, 1.0, -1.0)
    data = Labelled(pd.DataFrame(X), y, "classification")
    found = list(compare(data, StandardScaler(), rounds(y, "classification", 3, 0)))
    told = {(s.method, s.measure): s for s in summarise(found)}
    assert {m for m, _ in told} == set(METHODS)
    assert told["otdro", "log-loss"].difference == 0
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

    scores = [Score(m, k, {"log-loss": 0.1 * k + 0.2}) for m in ("otdro", "L2") for k in range(4)]
    ax = Figure().subplots()
    assert len(comparison(ax, scores, "log-loss")) == 4
    assert [t.get_text() for t in ax.get_yticklabels()] == ["otdro", "L2"]
