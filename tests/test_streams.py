"""Rows in chunks: the same solutions as in memory, few passes, little memory, plain errors."""

import os
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from otdro import Ball, DROClassifier, DRORegressor, memory, robust_risk
from otdro.chunks import open_rows, opening, parquet, read_target
from otdro.chunks.memmap import MappedRows, read
from otdro.costs import Mahalanobis, Norm
from otdro.metrics import Learned, Spectral
from otdro.solvers.streamed import Folds, folds, stream
from otdro.solvers.streamed.folds import KeptCurvature
from otdro.solvers.streamed.newton import NewtonMove, NewtonPoint
from reference import conic
from streaming import FINE, D, N, chunks_of, mapped, splits_of, write_folder

pytestmark = pytest.mark.usefixtures("few_kept")


# the same solutions


@pytest.mark.parametrize(
    "settings",
    [
        FINE,
        FINE | {"fit_intercept": False},
        FINE | {"class_weight": "balanced"},
        FINE | {"class_weight": {"yes": 3.0, "no": 0.5}},
        FINE | {"cost": Mahalanobis(np.diag(np.arange(1.0, 1 + D)))},
        FINE | {"delta": 0.58},
        FINE | {"delta": 1e-3},
        FINE | {"delta": 0.0},
    ],
)
def test_logistic_is_that_of_memory(rows, settings):
    X, y, _ = rows
    found = DROClassifier(**settings).fit(chunks_of(X, y), None)
    # in memory steps end at the gap asked for, which leaves coefficients a root of it away
    memory = DROClassifier(**settings | {"tol": 1e-15}).fit(X, y)
    assert found.gap_ <= 1e-11
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-11)
    assert_allclose(found.empirical_risk_, memory.empirical_risk_, rtol=0, atol=1e-7)
    assert_allclose(found.coef_, memory.coef_, rtol=0, atol=1e-6)
    assert_allclose(found.intercept_, memory.intercept_, rtol=0, atol=1e-6)
    assert_allclose(found.multiplier_, memory.multiplier_, rtol=1e-6)
    assert_array_equal(found.classes_, memory.classes_)


@pytest.mark.filterwarnings("ignore:every coefficient:UserWarning")
@pytest.mark.parametrize("below", [1e-11, 1e-9, 1e-7])
def test_a_delta_just_below_the_threshold_ends(rows, below):
    X, y, _ = rows
    share = np.mean(y == "yes")
    slopes = np.where(y == "yes", share - 1, share)
    top = np.linalg.norm((X - X.mean(axis=0)).T @ slopes / N)
    found = DROClassifier(cost="euclidean", delta=float(top * (1 - below))).fit(
        chunks_of(X, y), None
    )
    assert found.gap_ <= 1e-12
    assert np.abs(found.coef_).max() <= 10 * below


def test_theory_says_why_there_is_no_plain_fit():
    X = np.linspace(-1, 1, 401)[:, None]
    y = np.where(X[:, 0] > 0, "yes", "no")
    model = DROClassifier(cost="euclidean", delta="theory")
    with pytest.raises(ValueError, match="the classes are separable"):
        model.fit(chunks_of(X, y), None)
    # rows of both labels in the one place that separates them
    X, y = np.vstack([X, np.zeros((2, 1))]), np.append(y, ["yes", "no"])
    with pytest.raises(ValueError, match="nearly separable"):
        model.fit(chunks_of(X, y), None)


@pytest.mark.parametrize("cost", ["euclidean", Mahalanobis(np.diag(np.arange(1.0, 1 + D)))])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.3, 100.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.filterwarnings("ignore:every coefficient")
def test_squared_is_that_of_memory(rows, cost, delta, fit_intercept):
    X, _, y = rows
    model = DRORegressor(cost=cost, delta=delta, fit_intercept=fit_intercept, tol=1e-11)
    memory = clone(model).fit(X, y)
    found = model.fit(chunks_of(X, y), None)
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=1e-10)
    assert_allclose(found.empirical_risk_, memory.empirical_risk_, rtol=1e-9)
    assert_allclose(found.coef_, memory.coef_, rtol=0, atol=1e-8)
    assert_allclose(found.intercept_, memory.intercept_, rtol=0, atol=1e-7)


def test_optimum_is_that_of_a_cone_program(rows):
    X, labels, targets = (part[:80] for part in rows)
    signs = np.where(labels == "yes", 1.0, -1.0)
    for model, y, order in (
        (DROClassifier(**FINE), signs, 1),
        (DRORegressor(cost="euclidean", delta=0.05, tol=1e-11), targets, 2),
    ):
        found = model.fit(chunks_of(X, y), None)
        sample = conic.Sample(X, y, np.full(80, 1 / 80))
        form = conic.Form({1: "logistic", 2: "squared"}[order], order)
        assert_allclose(found.robust_risk_, conic.Model(form, sample).solve(0.05), rtol=1e-7)


def test_float32_rows_stay_float32(rows):
    X, y, _ = rows
    small = X.astype(np.float32)
    found = DROClassifier(**FINE).fit(chunks_of(small, y), None)
    memory = DROClassifier(**FINE | {"tol": 1e-15}).fit(small.astype(float), y)
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-11)
    assert_allclose(found.coef_, memory.coef_, rtol=0, atol=1e-6)


def test_the_gap_bounds_the_excess_of_a_fit_cut_short(rows):
    X, y, _ = rows
    best = DROClassifier(**FINE | {"delta": 1e-3}).fit(X, y).robust_risk_
    with pytest.warns(ConvergenceWarning, match=r"did not reach the gap.*max_iter \(now 1\)"):
        found = DROClassifier(**FINE | {"delta": 1e-3}, max_iter=1).fit(chunks_of(X, y), None)
    assert 0 < found.robust_risk_ - best <= found.gap_ < 0.05


@pytest.mark.filterwarnings("default:every coefficient")
def test_above_the_threshold_the_model_is_constant(rows):
    X, y, _ = rows
    with pytest.warns(UserWarning, match="every coefficient of the fit is zero"):
        found = DROClassifier(cost="euclidean", delta=5.0).fit(chunks_of(X, y), None)
    assert not found.coef_.any()
    assert_allclose(found.intercept_, np.log(np.mean(y == "yes") / np.mean(y == "no")))
    assert found.gap_ == 0


def test_delta_by_theory_is_that_of_memory(rows):
    X, labels, targets = rows
    for kind, y in ((DROClassifier, labels), (DRORegressor, targets)):
        found = kind(cost="euclidean", delta="theory").fit(chunks_of(X, y), None)
        memory = kind(cost="euclidean", delta="theory").fit(X, y)
        assert_allclose(found.delta_, memory.delta_, rtol=1e-6)


# folds and learned costs


def test_folds_are_even_and_depend_on_the_seed_alone():
    index = np.arange(100_000)
    fold = Folds(5, 3).of(index)
    assert_array_equal(fold[500:600], Folds(5, 3).of(index[500:600]))
    assert np.all(np.abs(np.bincount(fold) / len(index) - 0.2) < 0.005)
    assert np.mean(fold == Folds(5, 4).of(index)) < 0.22


@pytest.mark.parametrize("rule", ["auto", "min", "1se", "profile"])
def test_folds_choose_the_delta_of_memory(rows, rule, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", N)
    X, labels, targets = rows
    for kind, y in ((DROClassifier, labels), (DRORegressor, targets)):
        cv = splits_of(Folds(5, 0), N)
        found = kind(cost="euclidean", rule=rule).fit(chunks_of(X, y), None)
        memory = kind(cost="euclidean", rule=rule, cv=cv).fit(X, y)
        assert_allclose(found.delta_, memory.delta_, rtol=1e-9)
        assert_allclose(found.path_.deltas, memory.path_.deltas, rtol=1e-9)
        # either solves its folds to a gap of 1e-4, of which scores keep the root
        assert_allclose(found.path_.score_mean, memory.path_.score_mean, rtol=2e-3)
        assert_allclose(found.path_.score_se, memory.path_.score_se, atol=3e-4)


@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_models_of_folds_are_those_of_their_training_rows(monkeypatch, unit):
    # few rows in memory, and models of folds that no pass has looked at but on their own rows
    monkeypatch.setattr(stream, "KEPT", 2000)
    rng = np.random.default_rng(8)
    X = rng.standard_normal((20_000, D)) + 1
    y = rng.random(len(X)) < 1 / (1 + np.exp(-X @ np.arange(D) / 3))
    # columns need not be of one unit
    X[:, 1] *= unit
    data = chunks_of(X, y, rows=3000)
    found = DROClassifier(cost="euclidean").fit(data, None)
    assert data.passes <= 9
    for j in (3, 10, 19):
        losses = []
        for train, test in splits_of(Folds(5, 0), len(X)):
            model = DROClassifier(cost="euclidean", delta=found.path_.deltas[j], tol=1e-9)
            p = model.fit(X[train], y[train]).predict_proba(X[test])
            losses.append(-np.log(np.where(y[test], p[:, 1], p[:, 0])).mean())
        assert_allclose(found.path_.score_mean[j], -np.mean(losses), rtol=0, atol=1e-5)


# a fold without the row starts far from its solution
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_a_row_far_out_leaves_the_grid_of_memory(rows, kind, fit_intercept, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", N)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    spoilt = X.copy()
    spoilt[7] *= 1e5
    model = kind(cost="euclidean", fit_intercept=fit_intercept, cv=2)
    found = clone(model).fit(chunks_of(spoilt, y), None)
    memory = model.set_params(cv=splits_of(Folds(2, 0), N)).fit(spoilt, y)
    assert len(memory.path_.deltas) > 20
    assert_allclose(found.path_.deltas, memory.path_.deltas, rtol=1e-9)


@pytest.mark.parametrize("size", [1e5, 1e7])
@pytest.mark.parametrize("delta", [0.05, "cv"])
def test_a_row_far_out_leaves_the_gap_of_the_squared_loss(rows, size, delta):
    X, _, y = rows
    spoilt = X.copy()
    spoilt[7] = size
    found = DRORegressor(cost="euclidean", delta=delta, cv=2).fit(chunks_of(spoilt, y), None)
    best = DRORegressor(cost="euclidean", delta=found.delta_, tol=1e-9).fit(spoilt, y)
    assert found.gap_ <= 1e-6 * found.robust_risk_
    assert_allclose(found.robust_risk_, best.robust_risk_, rtol=1e-12)


def test_folds_of_nearly_separable_rows_choose_the_delta_of_memory(monkeypatch):
    # margins are smoothed by 40/n of their spread, which is large where classes are apart
    monkeypatch.setattr(stream, "KEPT", 500)
    rng = np.random.default_rng(105)
    X = rng.standard_normal((500, D))
    y = np.where(X @ rng.standard_normal(D) > 0, 1, -1)
    model = DROClassifier(cost="euclidean")
    found = clone(model).fit(chunks_of(X, y), None)
    memory = model.set_params(cv=splits_of(Folds(5, 0), 500)).fit(X, y)
    assert_allclose(found.delta_, memory.delta_, rtol=1e-9)
    assert_allclose(found.path_.score_mean, memory.path_.score_mean, atol=3e-4)


def test_targets_that_the_columns_tell_are_interpolated(rows):
    X, _, _ = rows
    collinear = np.column_stack([X, X[:, 0] - X[:, 1]])
    model = DRORegressor(cost="euclidean", delta=1e-3)
    found = clone(model).fit(chunks_of(collinear, X @ np.arange(D)), None)
    memory = model.fit(collinear, X @ np.arange(D))
    assert found.gap_ <= 1e-6 * found.robust_risk_
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=1e-9)


def test_gaps_of_a_path_are_bounds(rows):
    X, y, _ = rows
    path = DROClassifier(cost="euclidean").fit(chunks_of(X, y), None).path_
    for j in range(0, len(path.deltas), 4):
        best = DROClassifier(cost="euclidean", delta=path.deltas[j], tol=1e-9).fit(X, y)
        assert -1e-9 <= path.robust_risk[j] - best.robust_risk_ <= path.gap[j] + 1e-9
        assert path.gap[j] < 0.02


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_a_learned_cost_is_blended_from_folds(rows, kind, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", 1000)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    data = chunks_of(X, y)
    found = kind().fit(data, None)
    assert data.passes <= 12
    assert "passes over 1500 rows" in found.message_
    assert_allclose(sum(found.cost_.weights_.values()), 1)
    assert len(found.cost_.weights_) == 4
    assert_allclose(np.trace(found.cost_.matrix), D)
    assert found.gap_ <= 1e-6 * found.robust_risk_ * 10
    given = kind(cost=found.cost_, delta=found.delta_, tol=1e-9).fit(X, y)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=1e-5)


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_columns_far_apart_are_measured_by_their_spread_as_in_memory(rows, kind, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", N)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    apart = X * [1, 1000, 0.01, 50, 1]
    data = chunks_of(apart, y)
    found = kind(cv=2).fit(data, None)
    memory = kind(cv=splits_of(Folds(2, 0), N)).fit(apart, y)
    assert data.passes <= 12
    assert "measures each by its own spread" in found.message_
    assert_allclose(found.cost_.matrix, memory.cost_.matrix, rtol=1e-6)
    assert_allclose(found.delta_, memory.delta_, rtol=1e-6)
    assert list(found.cost_.weights_) == list(memory.cost_.weights_)


def test_a_covariance_is_added_up_over_all_rows(rows):
    X, y, _ = rows
    found = DROClassifier(cost=Spectral(), delta=0.05).fit(chunks_of(X, y), None)
    # no row is far out, so that no fence moves one
    assert_allclose(found.cost_.matrix, Spectral().fit(X).metric_, rtol=1e-9, atol=1e-9)


def test_candidates_may_be_chosen_among(rows):
    X, y, _ = rows
    cost = Learned([Spectral()], how="choose")
    found = DROClassifier(cost=cost, delta=0.05).fit(chunks_of(X, y), None)
    assert [c.name for c in found.path_.candidates] == ["Euclidean", "Spectral, shrinkage 0.5"]


def test_passes_are_few(rows):
    X, labels, targets = rows
    for model, y, most in (
        (DROClassifier(cost="euclidean", delta=0.05), labels, 6),
        (DRORegressor(cost="euclidean", delta=0.05), targets, 3),
        (DRORegressor(), targets, 4),
    ):
        data = chunks_of(X, y)
        model.fit(data, None)
        assert data.passes <= most


# sources


def test_a_mapped_file_is_read_in_chunks(rows, tmp_path, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(opening, "MAPPED_FROM", 0)
    M = mapped(tmp_path, X)
    found = DROClassifier(**FINE).fit(M, y)
    assert "passes over" in found.message_
    assert_allclose(found.coef_, DROClassifier(**FINE).fit(chunks_of(X, y), None).coef_)
    assert_array_equal(found.predict(M), found.predict(X))
    assert found.score(M, y) == found.score(X, y)
    signs = np.where(y == "yes", 1.0, -1.0)
    given = (found.coef_, found.intercept_, "logistic", found.ball_)
    assert_allclose(robust_risk(M, signs, *given), robust_risk(X, signs, *given))
    assert_allclose(robust_risk(M, signs, *given), found.robust_risk_)


def test_small_mapped_files_are_read_into_memory(rows, tmp_path):
    X, y, _ = rows
    assert "passes" not in DROClassifier(**FINE).fit(mapped(tmp_path, X), y).message_


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_views_of_mapped_files_are_read_from_their_place(tmp_path, mode):
    X = np.arange(60.0).reshape(20, 3)
    with (tmp_path / "X.bin").open("wb") as file:
        file.write(b"x" * 24)
        X.tofile(file)
    M = np.memmap(tmp_path / "X.bin", float, mode, offset=24, shape=(20, 3))
    assert_array_equal(read(M, 3, 7), X[3:7])
    assert_array_equal(read(M[5:15], 3, 7), X[8:12])
    assert_array_equal(read(M[::2], 3, 7), X[6:14:2])
    assert_array_equal(read(M[:, 1:], 3, 7), X[3:7, 1:])


def test_columns_first_files_are_read_too(tmp_path):
    X = np.arange(60.0).reshape(20, 3)
    assert_array_equal(read(mapped(tmp_path, X, order="F"), 3, 7), X[3:7])


def test_a_folder_of_parquet_files(rows, tmp_path):
    X, y, _ = rows
    folder = write_folder(tmp_path / "data", X, y)
    found = DROClassifier(**FINE).fit(folder, "label")
    expected = DROClassifier(**FINE).fit(chunks_of(X, y), None)
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-9)
    assert list(found.feature_names_in_) == [f"c{j}" for j in range(D)]
    assert found.classes_.tolist() == ["no", "yes"]
    assert_array_equal(found.predict(folder), expected.predict(X))
    assert_array_equal(found.predict(str(folder)), expected.predict(X))
    data = parquet(folder, target="label")
    assert_array_equal(read_target(data), y)
    assert_allclose(DROClassifier(**FINE).fit(data, None).coef_, found.coef_)
    assert DROClassifier(**FINE).fit(parquet(folder, columns=["c1"]), "label").n_features_in_ == 1


def test_a_dask_array(rows):
    da = pytest.importorskip("dask.array")
    dask = pytest.importorskip("dask")
    X, labels, targets = rows
    with dask.config.set(scheduler="synchronous"):
        D_ = da.from_array(X, chunks=(400, 2))
        for kind, y in ((DROClassifier, labels), (DRORegressor, targets)):
            expected = kind(**FINE).fit(chunks_of(X, y), None)
            for given in (y, da.from_array(y, chunks=700)):
                found = kind(**FINE).fit(D_, given)
                assert isinstance(found.coef_, np.ndarray)
                assert_allclose(found.robust_risk_, expected.robust_risk_, rtol=1e-10)
                assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)
            assert_array_equal(found.predict(D_), found.predict(X))


def test_a_dask_data_frame(rows):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    dask = pytest.importorskip("dask")
    X, y, _ = rows
    table = pd.DataFrame(X, columns=list("abcde")).assign(label=y)
    with dask.config.set(scheduler="synchronous"):
        frame = dd.from_pandas(table, npartitions=3)
        found = DROClassifier(**FINE).fit(frame[list("abcde")], frame["label"])
    expected = DROClassifier(**FINE).fit(chunks_of(X, y), None)
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)


def same(found, expected):
    """Check labels for equality and numbers up to the rounding of products in another order."""
    if expected.dtype.kind == "f":
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    else:
        assert_array_equal(found, expected)


def test_a_dask_data_frame_has_the_column_names_of_pandas(rows):
    """Names are kept, and other or reordered columns get the sentence that pandas frames get."""
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    dask = pytest.importorskip("dask")
    X, y, targets = rows
    table = pd.DataFrame(X, columns=list("abcde"))
    with dask.config.set(scheduler="synchronous"):
        for kind, given in ((DROClassifier, y), (DRORegressor, targets)):
            frame = dd.from_pandas(table, npartitions=3)
            model = kind(**FINE).fit(frame, given)
            assert model.feature_names_in_.tolist() == list("abcde")
            methods = ["predict"]
            if kind is DROClassifier:
                methods += ["decision_function", "predict_proba", "predict_log_proba"]
            for method in methods:
                found, expected = getattr(model, method)(frame), getattr(model, method)(table)
                same(found.compute(), expected)
                for other in (
                    table[list("bacde")],
                    table[list("abcd")],
                    table.rename(columns={"e": "f"}),
                ):
                    with pytest.raises(ValueError, match="feature names") as of_pandas:
                        getattr(model, method)(other)
                    with pytest.raises(ValueError, match="feature names") as of_dask:
                        getattr(model, method)(dd.from_pandas(other, npartitions=2))
                    assert str(of_dask.value) == str(of_pandas.value)
            with pytest.warns(UserWarning, match="does not have valid feature names"):
                model.predict(frame.to_dask_array(lengths=True))
    mixed = dd.from_pandas(table.rename(columns={"a": 0}), npartitions=2)
    with pytest.raises(TypeError, match="all input features have string names"):
        DROClassifier(**FINE).fit(mixed, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_predictions_of_a_dask_collection_stay_in_dask(rows, classes):
    """Nothing is computed before it is asked for; chunks, type and shape are known before."""
    da = pytest.importorskip("dask.array")
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    dask = pytest.importorskip("dask")
    X, _, _ = rows
    ranks = X[:, :2].sum(axis=1).argsort().argsort()
    y = np.array(["low", "middle", "high"])[ranks * classes // len(X)]
    model = DROClassifier(**FINE).fit(X, y)
    expected = {
        method: getattr(model, method)(X)
        for method in ("predict", "decision_function", "predict_proba", "predict_log_proba")
    }
    computed = []

    def counted(block):
        computed.append(len(block))
        return block

    plain = da.from_array(X, chunks=(400, 2))
    lazy = plain.map_blocks(counted, dtype=float, meta=np.empty((0, 0)))
    with dask.config.set(scheduler="synchronous"):
        predictions = {method: getattr(model, method)(lazy) for method in expected}
        assert computed == []
        # the predictions are those of the model at the time of the call
        model.fit(-X, y)
        for method, values in expected.items():
            found = predictions[method]
            assert isinstance(found, da.Array)
            assert found.chunks[0] == plain.chunks[0]
            assert found.shape == values.shape
            assert found.dtype == values.dtype
            assert type(found._meta) is np.ndarray
            same(found.compute(), values)
            assert found.compute().dtype == values.dtype
        assert model.score(lazy, y) == model.score(X, y)

        model.fit(X, y)
        frame = dd.from_pandas(pd.DataFrame(X).rename(columns=str), npartitions=3)
        # a partition without rows
        frame = frame.map_partitions(lambda part: part[part.index >= len(X) // 2])
        with pytest.warns(UserWarning, match="X has feature names, but"):
            labels = model.predict(frame)
        assert isinstance(labels, da.Array)
        assert labels.shape == (len(X) - len(X) // 2,)
        assert_array_equal(labels.compute(), expected["predict"][len(X) // 2 :])
        with pytest.raises(ValueError, match="X must have two axes"):
            model.predict(plain[:, 0])
        with pytest.raises(ValueError, match="X has 4 features, but DROClassifier is expecting 5"):
            model.predict(plain[:, :4])


def test_a_fitted_model_travels_and_attacks_given_rows(rows):
    X, y, _ = rows
    found = pickle.loads(pickle.dumps(DROClassifier(**FINE).fit(chunks_of(X, y), None)))
    with pytest.raises(ValueError, match=r"fitted to rows in chunks.*rows=\(X, y\)"):
        found.worst_case()
    worst = found.worst_case(rows=(X, y))
    assert_allclose(worst.risk, found.robust_risk_, atol=worst.shortfall + 1e-9)


# bad input


def test_nan_in_a_late_chunk_is_named(rows):
    X, y, _ = rows
    X = X.copy()
    X[1234, 2] = np.nan
    words = r"chunk 12 \(rows 1200 to 1299\).*row 1234, column 2"
    with pytest.raises(ValueError, match=words):
        DROClassifier(**FINE).fit(chunks_of(X, y), None)


def test_nan_in_the_target_is_named(rows):
    X, _, y = rows
    y = y.copy()
    y[1234] = np.inf
    with pytest.raises(ValueError, match=r"chunk 12 .* in the target, the first in row 1234"):
        DRORegressor(cost="euclidean", delta=0.1).fit(chunks_of(X, y), None)


def test_a_file_that_shrinks_is_an_error(rows, tmp_path, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(opening, "MAPPED_FROM", 0)
    M = mapped(tmp_path, X)
    os.truncate(tmp_path / "X.bin", 40_000)
    with pytest.raises(ValueError, match=r"X\.bin shrank while it was read: it has 40000 bytes"):
        DROClassifier(**FINE).fit(M, y)


def test_a_file_that_shrinks_between_two_chunks_is_an_error(rows, tmp_path):
    X, y, _ = rows
    data = MappedRows(mapped(tmp_path, X), y, chunk_bytes=4000)

    def job(chunk):
        if chunk.number == 3:
            os.truncate(tmp_path / "X.bin", 20_000)
        return {"rows": len(chunk.X)}

    with pytest.raises(ValueError, match="shrank while it was read"):
        data.total(job)


def test_chunks_that_differ_are_refused(rows):
    da = pytest.importorskip("dask.array")
    dask = pytest.importorskip("dask")
    X, y, _ = rows

    def array(*parts):
        blocks = [da.from_delayed(dask.delayed(part), (750, D), dtype=float) for part in parts]
        return da.concatenate(blocks)

    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(ValueError, match=r"chunk 1 .* holds float32.*hold float64"):
            DROClassifier(**FINE).fit(array(X[:750], X[750:].astype(np.float32)), y)
        with pytest.raises(ValueError, match=r"chunk 1 .*\(750, 4\).* have 5 columns"):
            DROClassifier(**FINE).fit(array(X[:750], X[750:, :4]), y)
        with pytest.raises(ValueError, match=r"chunk 1 .* has 700 rows, but 750"):
            DROClassifier(**FINE).fit(array(X[:750], X[800:]), y)


def test_unknown_chunk_sizes_are_refused(rows):
    da = pytest.importorskip("dask.array")
    X, y, _ = rows
    unknown = da.from_array(X, chunks=(400, D))
    unknown = unknown[unknown[:, 0] > -np.inf]
    with pytest.raises(ValueError, match=r"unknown size: call X\.compute_chunk_sizes\(\)"):
        DROClassifier(**FINE).fit(unknown, y)


def test_parquet_files_that_differ_are_refused(rows, tmp_path):
    X, y, _ = rows
    folder = write_folder(tmp_path / "data", X, y)
    pd = pytest.importorskip("pandas")
    last = pd.read_parquet(folder / "part2.parquet")
    last.rename(columns={"c1": "other"}).to_parquet(folder / "part2.parquet", index=False)
    with pytest.raises(ValueError, match=r"part2\.parquet and part0\.parquet differ .*c1, other"):
        DROClassifier(**FINE).fit(folder, "label")
    last.astype({"c1": np.float32}).to_parquet(folder / "part2.parquet", index=False)
    with pytest.raises(ValueError, match=r"'c1' holds float in part2\.parquet but double"):
        DROClassifier(**FINE).fit(folder, "label")
    (folder / "part2.parquet").write_bytes((folder / "part0.parquet").read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"part2\.parquet is not a whole Parquet file"):
        DROClassifier(**FINE).fit(folder, "label")


def test_parquet_names_are_checked(rows, tmp_path):
    X, y, _ = rows
    folder = write_folder(tmp_path / "data", X, y)
    with pytest.raises(ValueError, match="have no column 'wrong'"):
        DROClassifier(**FINE).fit(folder, "wrong")
    with pytest.raises(ValueError, match=r"'label' holds .*string, not numbers"):
        parquet(folder)
    with pytest.raises(TypeError, match="y is the name of a column, got ndarray"):
        DROClassifier(**FINE).fit(folder, y)
    with pytest.raises(ValueError, match="no such folder"):
        DROClassifier(**FINE).fit(tmp_path / "none", "label")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no file \*\.parquet"):
        DROClassifier(**FINE).fit(tmp_path / "empty", "label")
    with pytest.raises(ValueError, match="the rows have no targets"):
        DROClassifier(**FINE).fit(parquet(folder, columns=["c0"]), None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "hinge"}, "squared loss or a smooth Lipschitz loss.*Hinge is neither"),
        ({"cost": "linf"}, "need a Euclidean, Mahalanobis or learned cost"),
        ({"solver": "smoothed"}, "solver='smoothed' is for rows in memory"),
        ({"label_cost": 0.5}, "label_cost=0.5 is for rows in memory"),
        ({"scoring": "accuracy"}, "scoring='accuracy' is for rows in memory"),
        ({"multi_class": "softmax"}, "unknown multi_class='softmax'"),
        ({"rule": "worst"}, "rule='worst' needs groups"),
        ({"delta": "cv", "cv": [([0], [1])]}, "give a number as cv, got list"),
        ({"delta": "cv", "cv": 1}, "at least 2 folds"),
        ({"delta": "cv", "random_state": np.random.RandomState(0)}, "an int or None"),
    ],
)
def test_what_chunks_do_not_take_is_a_sentence(rows, settings, words):
    X, y, _ = rows
    model = DROClassifier(**{"cost": "euclidean", "delta": 0.05} | settings)
    with pytest.raises(ValueError, match=words):
        model.fit(chunks_of(X, y), None)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("name", ["support", "unlabelled"])
def test_arguments_for_rows_in_memory_are_refused(rows, name):
    X, y, _ = rows
    with pytest.raises(ValueError, match=f"{name} is for rows in memory"):
        DROClassifier(**FINE).fit(chunks_of(X, y), None, **{name: X})


def test_classes_are_checked(rows):
    X, y, targets = rows
    with pytest.raises(ValueError, match="one class: "):
        DROClassifier(**FINE).fit(chunks_of(X, np.zeros(N)), None)
    with pytest.raises(ValueError, match="more than 1000 different values"):
        DROClassifier(**FINE).fit(chunks_of(X, targets), None)
    with pytest.raises(ValueError, match="X has 1500 rows but y has shape"):
        DROClassifier(**FINE).fit(chunks_of(X, y[:-1]), None)
    few = np.where(np.arange(N) == 7, "yes", "no")
    with pytest.raises(ValueError, match="leaves a class without any"):
        DROClassifier(cost="euclidean").fit(chunks_of(X, few), None)


def test_a_mapped_file_that_cannot_be_streamed_is_read_if_it_fits(rows, tmp_path, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(opening, "MAPPED_FROM", 0)
    M = mapped(tmp_path, X)
    hinge = DROClassifier(loss="hinge", cost="euclidean", delta=0.1)
    assert_allclose(hinge.fit(M, y).coef_, hinge.fit(X, y).coef_)
    three = np.arange(N) % 3
    softmax = DROClassifier(cost="euclidean", delta=0.01, multi_class="multinomial")
    assert_allclose(softmax.fit(M, three).coef_, softmax.fit(X, three).coef_)
    with pytest.raises(ValueError, match="the rows have no targets"):
        DROClassifier(**FINE).fit(M, None)
    monkeypatch.setattr(memory, "available_memory", lambda: 2**16)
    words = r"needs about 0\.0 GiB of memory and 0\.0 GiB are free.*Hinge is neither"
    with pytest.raises(MemoryError, match=words):
        hinge.fit(M, y)
    with pytest.raises(MemoryError, match="a fit with 5 columns needs about"):
        DROClassifier(**FINE).fit(M, y)


def test_libraries_are_not_mixed(rows, tmp_path, monkeypatch):
    da = pytest.importorskip("dask.array")
    X, y, _ = rows
    monkeypatch.setattr(opening, "MAPPED_FROM", 0)
    with pytest.raises(TypeError, match="both in the same library"):
        open_rows(mapped(tmp_path, X), da.from_array(y, chunks=100))


def test_columns_of_new_rows_are_checked(rows, tmp_path):
    X, y, _ = rows
    found = DROClassifier(**FINE).fit(chunks_of(X, y), None)
    with pytest.raises(ValueError, match="X has 4 columns, but the model has 5"):
        found.predict(chunks_of(X[:, :4].copy(), y))
    signs = np.where(y == "yes", 1, -1)
    for ball, loss, coef, words in (
        (Ball(Norm(2), 0.1, 1, label_cost=1.0), "logistic", np.ones(D), "no price of labels"),
        (Ball(Norm(2), 0.1, 1), "logistic", np.ones(D - 1), "coef has 4 entries but X has 5"),
        (Ball(Norm(2), 0.1, 1), "squared_hinge", np.ones(D), "order=1 needs a Lipschitz loss"),
        (Ball(Norm(2), 0.1, 2), "logistic", np.ones((3, D)), "softmax model, which needs"),
        (Ball(Norm(2), 0.1, 1), "logistic", np.ones((3, D)), "labels must be 0 to 2 here"),
    ):
        with pytest.raises(ValueError, match=words):
            robust_risk(chunks_of(X, signs), None, coef, np.zeros(len(coef)), loss, ball)


# the command line


def test_the_command_line_takes_a_folder(rows, tmp_path, monkeypatch, capsys):
    pytest.importorskip("typer")
    from otdro.cli.errors import guard

    X, y, _ = rows
    folder = write_folder(tmp_path / "data", X, y)
    monkeypatch.setattr("otdro.cli.preparing.IN_MEMORY", 500)
    options = ["--target", "label", "--delta", "0.05", "--cost", "euclidean", "--scale", "none"]
    saved = str(tmp_path / "model.skops")
    assert guard(["fit", str(folder), *options, "--no-compare", "--save", saved]) == 0
    shown = capsys.readouterr()
    assert "fitted to all 1500 rows" in " ".join((shown.out + shown.err).split())
    from otdro import load

    expected = DROClassifier(cost="euclidean", delta=0.05).fit(X, y)
    assert_allclose(load(saved)[-1].robust_risk_, expected.robust_risk_, rtol=1e-5)
    assert guard(["predict", saved, str(folder), "--out", str(tmp_path / "out.csv")]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == N + 1


# many machines


@pytest.fixture
def big():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 10))
    y = np.where(rng.random(40_000) < 1 / (1 + np.exp(-X[:, 0] + X[:, 1] / 2)), 1, 0)
    return X, y


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_four_workers_find_what_memory_finds(big):
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    X, y = big
    # coefficients are known to the root of the gap
    finer = FINE | {"tol": 1e-13}
    memory = DROClassifier(**finer).fit(X, y)
    with (
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, dashboard_address=None
        ) as local,
        distributed.Client(local) as client,
    ):
        assert len(client.scheduler_info()["workers"]) == 4
        found = DROClassifier(**finer).fit(da.from_array(X, chunks=(5000, 10)), y)
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-8)
    assert_allclose(found.coef_, memory.coef_, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_worker_killed_in_mid_fit_changes_nothing(big, monkeypatch):
    import signal

    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    from otdro.chunks.dask import DaskRows

    X, y = big
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        data = da.from_array(X, chunks=(2500, 10))
        whole = DROClassifier(**FINE).fit(data, y)
        killed = []
        total = DaskRows.total

        def killing(self, *jobs):
            # the second pass loses a worker process that this test started, while it runs
            if self.passes == 1 and not killed:
                import threading

                victim = next(iter(cluster.workers.values())).pid
                killed.append(victim)
                threading.Timer(0.05, os.kill, (victim, signal.SIGKILL)).start()
            return total(self, *jobs)

        monkeypatch.setattr(DaskRows, "total", killing)
        found = DROClassifier(**FINE).fit(client.persist(data), y)
        [victim] = killed
        assert victim not in {worker.pid for worker in cluster.workers.values()}
    assert_array_equal(found.coef_, whole.coef_)
    assert found.robust_risk_ == whole.robust_risk_


@pytest.mark.parametrize("order", [1, 2])
def test_a_chunk_of_rows_that_weigh_nothing(rows, order):
    X, y, _ = rows
    weights = (np.arange(len(y)) >= 250).astype(float)
    model = DROClassifier(cost="euclidean", delta=0.02, order=order, tol=1e-9)
    memory = clone(model).fit(X, y, weights)
    found = model.fit(chunks_of(X, y, 100), None, weights)
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=1e-8)


@pytest.mark.parametrize(
    ("theta", "mass", "left"),
    [
        # of the promise .5 the squared turn (1/2)^2 and slope/mass = .5 are left
        ([2.0, 0.0], 1.0, 0.375),
        ([0.0, 0.0], 1.0, 0.5),
        ([2.0, 0.0], np.finfo(float).tiny, 0.5),
    ],
)
def test_what_a_step_of_a_fold_may_leave(theta, mass, left):
    """Without coefficients, or a curvature, to compare a step with it may leave all it promises."""
    none = np.zeros(2)
    point = NewtonPoint(np.append(theta, 0.0), 1.0, 1.0, 0.0, none, np.eye(2), none, mass)
    move = NewtonMove(np.array([1.0, 0.0, 0.0]), -0.5, none, 1.0)
    assert folds._left(point, move, KeptCurvature(np.eye(3), np.inf)) == left
