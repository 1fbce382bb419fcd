"""Rows in chunks: the same solutions as in memory, few passes, little memory, plain errors."""

import os
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from otdro import Ball, DROClassifier, DRORegressor, arrays, robust_risk
from otdro.chunks import base, open_rows, parquet
from otdro.chunks.memmap import MappedRows, read
from otdro.costs import Mahalanobis, Norm
from otdro.metrics import Learned, Spectral
from otdro.solvers.streamed import stream
from reference import conic
from streaming import FINE, D, N, chunks_of, mapped, write_folder

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
        pytest.param(
            FINE | {"delta": 0.58},
            marks=pytest.mark.constant_model("just beyond the zero threshold"),
        ),
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


@pytest.mark.parametrize(
    ("kind", "order"), [(DROClassifier, 1), (DROClassifier, 2), (DRORegressor, 2)]
)
def test_delta_by_theory_is_that_of_the_kept_rows_at_its_rate(rows, kind, order):
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    model = kind(cost="euclidean", order=order, delta="theory")
    memory = clone(model).fit(X[::5], y[::5])
    found = model.fit(chunks_of(X, y), None)
    # labels weigh as much as in all rows, which moves the profile of every fifth row a little
    assert_allclose(found.delta_, memory.delta_ * 0.2 ** (order / 2), rtol=0.02)
    assert "the 300 rows in memory on which the ball was chosen" in found.message_


@pytest.mark.parametrize("scale", [1e-60, 1e-30, 1e-16, 1e-14, 1e-8, 1e8, 1e14, 1e30])
@pytest.mark.parametrize("kind", ["order 1", "order 2", "softmax", "squared"])
def test_a_fit_does_not_depend_on_the_unit(rows, kind, scale):
    X, labels, targets = rows
    order = 2 if kind in ("order 2", "squared") else 1
    y = {"softmax": np.digitize(targets, [4.0, 6.5]), "squared": targets}.get(kind, labels)
    estimator = DRORegressor if kind == "squared" else DROClassifier
    plain = estimator(cost="euclidean", order=order, delta=0.05).fit(chunks_of(X, y), None)
    model = estimator(cost="euclidean", order=order, delta=0.05 * scale**order)
    scaled = model.fit(chunks_of(scale * X, y), None)
    assert_allclose(scaled.robust_risk_, plain.robust_risk_, rtol=1e-6)
    assert_allclose(scale * scaled.coef_, plain.coef_, rtol=0, atol=1e-3)
    assert_allclose(scale**order * scaled.multiplier_, plain.multiplier_, rtol=1e-3)
    assert scaled.gap_ <= 1e-6 * max(1.0, np.var(targets))


@pytest.mark.parametrize("offset", [1e6, 1e9, 1e11])
@pytest.mark.parametrize("kind", ["order 1", "order 2", "softmax", "squared"])
def test_a_fit_does_not_depend_on_where_its_rows_are(rows, kind, offset):
    X, labels, targets = rows
    order = 2 if kind in ("order 2", "squared") else 1
    y = {"softmax": np.digitize(targets, [4.0, 6.5]), "squared": targets}.get(kind, labels)
    far = X + offset * np.array([1.0, -1.0, 0.0, 1.0, 0.0])
    estimator = DRORegressor if kind == "squared" else DROClassifier
    model = estimator(cost="euclidean", order=order, delta=0.05, tol=1e-9)
    # the differences of rows are exact
    near = clone(model).fit(chunks_of(far - far[0], y), None)
    found = model.fit(chunks_of(far, y), None)
    assert_allclose(found.robust_risk_, near.robust_risk_, rtol=0, atol=1e-9)
    assert_allclose(found.coef_, near.coef_, rtol=0, atol=1e-5)


@pytest.mark.parametrize("read", [chunks_of, lambda X, y: X], ids=["chunks", "memory"])
def test_a_column_whose_rounding_hides_its_rows_is_named(rows, read):
    X, y, _ = rows
    far = X + np.array([0.0, 0.0, 1e14, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"column 2 are near 1e\+14 .* rounding hides"):
        DROClassifier(cost="euclidean", delta=0.05).fit(read(far, y), y)


# folds and learned costs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cost": "euclidean"},
        {"rule": "min"},
        {"rule": "1se"},
        {"random_state": 3},
        {"order": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_the_ball_of_rows_that_are_all_kept_is_that_of_memory(rows, kind, settings, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", N)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    data = chunks_of(X, y)
    found = kind(**settings).fit(data, None)
    memory = kind(**settings).fit(X, y)
    assert data.passes == 1
    assert found.delta_ == memory.delta_
    assert_array_equal(found.cost_.matrix, memory.cost_.matrix)
    assert_array_equal(found.coef_, memory.coef_)
    assert found.gap_ == memory.gap_
    for part in ("deltas", "score_mean", "score_se", "coef", "robust_risk"):
        assert_array_equal(getattr(found.path_, part), getattr(memory.path_, part))


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_the_ball_of_a_dask_data_frame_is_that_of_pandas(rows, kind, monkeypatch):
    dask, dd = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr(stream, "KEPT", N)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y, site=np.arange(N) % 6)
    names = list("abcde")
    memory = kind().fit(frame[names], y, groups=frame.site)
    with dask.config.set(scheduler="synchronous"):
        lazy = dd.from_pandas(frame, npartitions=4)
        found = kind().fit(lazy[names], lazy.y, groups=lazy.site)
    assert_allclose(found.delta_, memory.delta_, rtol=1e-9)
    assert_allclose(found.cost_.matrix, memory.cost_.matrix, rtol=1e-9)
    assert_allclose(found.coef_, memory.coef_, rtol=0, atol=1e-9)
    assert_array_equal(found.feature_names_in_, memory.feature_names_in_)


@pytest.mark.parametrize(
    ("kind", "order"), [(DROClassifier, 1), (DROClassifier, 2), (DRORegressor, 2)]
)
def test_a_ball_chosen_on_kept_rows_has_the_rate_of_the_profile(rows, kind, order):
    X, labels, targets = rows
    # every fifth row is kept, and has every fifth label
    y = np.repeat(labels[::5], 5) if kind is DROClassifier else targets
    found = kind(cost="euclidean", order=order).fit(chunks_of(X, y), None)
    memory = kind(cost="euclidean", order=order).fit(X[::5], y[::5])
    rate = 0.2 ** (order / 2)
    assert_allclose(found.delta_, rate * memory.delta_, rtol=1e-9)
    assert_allclose(found.path_.deltas, rate * memory.path_.deltas, rtol=1e-9)
    # at the largest delta the coefficients are 0 but for rounding
    assert_allclose(found.path_.score_mean[1:], memory.path_.score_mean[1:], rtol=1e-9)
    [candidate] = found.path_.candidates
    assert candidate.delta == found.delta_
    # the solution is that of all rows
    given = kind(cost="euclidean", order=order, delta=found.delta_, tol=1e-9).fit(X, y)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=2e-6)
    assert f"delta is {rate:.3g} times that of the 300 rows" in found.message_


def test_deltas_that_are_given_are_those_of_all_rows(rows):
    X, y, _ = rows
    grid = [0.1, 0.03, 0.01]
    found = DROClassifier(cost="euclidean", deltas=grid).fit(chunks_of(X, y), None)
    assert_allclose(found.path_.deltas, grid)
    assert np.min(np.abs(found.delta_ - np.array(grid))) < 1e-12


def test_a_rare_class_is_kept_with_its_weight(monkeypatch):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((20_000, D))
    y = rng.random(20_000) < 1 / (1 + np.exp(6.0 - 2 * X[:, 0]))
    # 5 of about 250
    monkeypatch.setattr(stream, "KEPT", 400)
    found = DROClassifier(cost="euclidean").fit(chunks_of(X, y, 3000), None)
    memory = DROClassifier(cost="euclidean").fit(X, y)
    new = rng.standard_normal((20_000, D))
    labels = rng.random(20_000) < 1 / (1 + np.exp(6.0 - 2 * new[:, 0]))
    losses = [
        -np.mean(np.log(model.predict_proba(new)[np.arange(20_000), 1 * labels]))
        for model in (found, memory)
    ]
    assert losses[0] < 1.01 * losses[1]


@pytest.mark.parametrize("setting", [{"scoring": "accuracy"}, {"cv": KFold(3)}], ids=str)
def test_a_scorer_or_a_splitter_is_for_the_kept_rows(rows, setting):
    X, y, _ = rows
    y = np.repeat(y[::5], 5)
    settings = {"cost": "euclidean", "deltas": [0.1, 0.03, 0.01]} | setting
    found = DROClassifier(**settings).fit(chunks_of(X, y), None)
    memory = DROClassifier(**settings | {"deltas": np.array(settings["deltas"]) / 0.2**0.5})
    assert_allclose(found.path_.score_mean, memory.fit(X[::5], y[::5]).path_.score_mean)


@pytest.mark.parametrize("size", [1e5, 1e7])
@pytest.mark.parametrize("delta", [0.05, "cv"])
def test_a_row_far_out_leaves_the_gap_of_the_squared_loss(rows, size, delta):
    X, _, y = rows
    spoilt = X.copy()
    spoilt[7] = size
    found = DRORegressor(cost="euclidean", delta=delta, cv=2).fit(chunks_of(spoilt, y), None)
    best = DRORegressor(cost="euclidean", delta=found.delta_).fit(spoilt, y)
    assert found.gap_ <= 1e-6 * found.robust_risk_
    assert found.robust_risk_ <= best.robust_risk_ * (1 + 1e-12)
    assert best.robust_risk_ <= found.robust_risk_ + best.gap_


def test_targets_that_the_columns_tell_are_interpolated(rows):
    X, _, _ = rows
    collinear = np.column_stack([X, X[:, 0] - X[:, 1]])
    model = DRORegressor(cost="euclidean", delta=1e-3)
    found = clone(model).fit(chunks_of(collinear, X @ np.arange(D)), None)
    memory = model.fit(collinear, X @ np.arange(D))
    assert found.gap_ <= 1e-6 * found.robust_risk_
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=1e-9)


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_a_learned_cost_is_blended_from_folds(rows, kind, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", 1000)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    data = chunks_of(X, y)
    found = kind().fit(data, None)
    assert data.passes <= 6
    assert "passes over 1500 rows" in found.message_
    assert_allclose(sum(found.cost_.weights_.values()), 1)
    assert len(found.cost_.weights_) == 4
    assert_allclose(np.trace(found.cost_.matrix), D)
    assert found.gap_ <= 1e-6 * found.robust_risk_ * 10
    given = kind(cost=found.cost_, delta=found.delta_, tol=1e-9).fit(X, y)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=1e-5)


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_columns_far_apart_are_measured_by_their_spread(rows, kind):
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    apart = X * [1, 1000, 0.01, 50, 1]
    found = kind(cv=2).fit(chunks_of(apart, y), None)
    assert "measures each by its own spread" in found.message_
    given = kind(cost=found.cost_, delta=found.delta_, tol=1e-9).fit(apart, y)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=1e-5)


def test_candidates_may_be_chosen_among(rows):
    X, y, _ = rows
    cost = Learned([Spectral()], how="choose")
    found = DROClassifier(cost=cost, delta=0.05).fit(chunks_of(X, y), None)
    assert [c.name for c in found.path_.candidates] == ["Euclidean", "Spectral, shrinkage 0.5"]


def test_passes_are_few(rows):
    X, labels, targets = rows
    for model, y, most in (
        (DROClassifier(cost="euclidean", delta=0.05), labels, 6),
        (DRORegressor(cost="euclidean", delta=0.05), targets, 2),
        (DRORegressor(), targets, 2),
        (DROClassifier(), labels, 6),
    ):
        data = chunks_of(X, y)
        model.fit(data, None)
        assert data.passes <= most


# sources


def test_a_mapped_file_is_read_in_chunks(rows, tmp_path, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(base, "SMALL", 0)
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
    assert_array_equal(np.concatenate([chunk.y for chunk in data]), y)
    assert_allclose(DROClassifier(**FINE).fit(data, None).coef_, found.coef_)
    assert DROClassifier(**FINE).fit(parquet(folder, columns=["c3"]), "label").n_features_in_ == 1


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
    monkeypatch.setattr(base, "SMALL", 0)
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
        ({"multi_class": "softmax"}, "unknown multi_class='softmax'"),
        ({"rule": "worst"}, "rule='worst' needs groups"),
        ({"delta": "cv", "cv": [([0], [1])]}, "a number or a splitter as cv, got list"),
        ({"delta": "cv", "cv": 1}, "at least 2 folds"),
    ],
)
def test_what_chunks_do_not_take_is_a_sentence(rows, settings, words):
    X, y, _ = rows
    model = DROClassifier(**{"cost": "euclidean", "delta": 0.05} | settings)
    with pytest.raises(ValueError, match=words):
        model.fit(chunks_of(X, y), None)
    assert not hasattr(model, "coef_")


def test_a_support_is_for_rows_in_memory(rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match="support is for rows in memory"):
        DROClassifier(**FINE).fit(chunks_of(X, y), None, support=X)


def test_unlabelled_rows_shape_a_learned_cost(rows):
    X, y, _ = rows
    y = np.repeat(y[::5], 5)
    model = DROClassifier(cost=Spectral(), delta=0.05)
    found = clone(model).fit(chunks_of(X, y), None, unlabelled=3 * X[:50] - 6)
    memory = model.fit(X[::5], y[::5], unlabelled=3 * X[:50] - 6)
    assert_allclose(found.cost_.matrix, memory.cost_.matrix, rtol=1e-9)


def test_classes_are_checked(rows):
    X, y, targets = rows
    with pytest.raises(ValueError, match="one class: "):
        DROClassifier(**FINE).fit(chunks_of(X, np.zeros(N)), None)
    with pytest.raises(ValueError, match="more than 1000 different values"):
        DROClassifier(**FINE).fit(chunks_of(X, targets), None)
    with pytest.raises(ValueError, match="X has 1500 rows but y has shape"):
        DROClassifier(**FINE).fit(chunks_of(X, y[:-1]), None)


def test_a_mapped_file_that_cannot_be_streamed_is_read_if_it_fits(rows, tmp_path, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(base, "SMALL", 0)
    M = mapped(tmp_path, X)
    hinge = DROClassifier(loss="hinge", cost="euclidean", delta=0.1)
    assert_allclose(hinge.fit(M, y).coef_, hinge.fit(X, y).coef_)
    three = np.arange(N) % 3
    softmax = DROClassifier(cost="euclidean", delta=0.01, multi_class="multinomial")
    assert_allclose(softmax.fit(M, three).coef_, softmax.fit(X, three).coef_)
    with pytest.raises(ValueError, match="the rows have no targets"):
        DROClassifier(**FINE).fit(M, None)
    monkeypatch.setattr(arrays, "available_memory", lambda: 2**16)
    words = r"needs about 0\.0 GiB of memory and 0\.0 GiB are free.*Hinge is neither"
    with pytest.raises(MemoryError, match=words):
        hinge.fit(M, y)
    with pytest.raises(MemoryError, match="a fit with 5 columns needs about"):
        DROClassifier(**FINE).fit(M, y)


def test_libraries_are_not_mixed(rows, tmp_path, monkeypatch):
    da = pytest.importorskip("dask.array")
    X, y, _ = rows
    monkeypatch.setattr(base, "SMALL", 0)
    with pytest.raises(TypeError, match="both in the same library"):
        open_rows(mapped(tmp_path, X), da.from_array(y, chunks=100))


def test_columns_of_new_rows_are_checked(rows, tmp_path):
    X, y, _ = rows
    found = DROClassifier(**FINE).fit(chunks_of(X, y), None)
    with pytest.raises(ValueError, match="X has 4 columns, but the model has 5"):
        found.predict(chunks_of(X[:, :4].copy(), y))
    signs = np.where(y == "yes", 1, -1)
    for ball, loss, coef, words in (
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
