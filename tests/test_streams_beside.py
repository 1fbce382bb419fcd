"""Rows in chunks with weights and groups beside them, with many classes, and at order 2."""

from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from table1 import Plan, run

from otdro import DROClassifier, DRORegressor
from otdro.chunks import base, open_rows, parquet
from otdro.costs import Mahalanobis
from otdro.metrics import Learned, Spectral
from otdro.solvers.streamed import stream
from reference import conic
from streaming import FINE, D, N, chunks_of, mapped, write_folder

pytestmark = pytest.mark.usefixtures("few_kept")


@pytest.fixture(scope="module")
def weights():
    """Weights of which some are 0 and one is large."""
    w = np.random.default_rng(1).exponential(size=N)
    w[::7], w[3] = 0.0, 40.0
    return w


@pytest.fixture(scope="module")
def sites():
    """Groups of unlike sizes."""
    return np.random.default_rng(2).choice(list("abcdefgh"), size=N, p=np.arange(1, 9) / 36)


@pytest.fixture(scope="module")
def three(rows):
    """Labels of three classes, one of them rare."""
    rng = np.random.default_rng(3)
    z = (rows[0] - 3) @ rng.standard_normal((D, 3)) / 2 - [0, 0, 1.5]
    return np.array(["x", "y", "z"])[(z + rng.gumbel(size=z.shape)).argmax(axis=1)]


def assert_same(found, memory, atol=1e-6):
    assert np.max(found.gap_) <= 1e-10
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-10)
    assert_allclose(found.empirical_risk_, memory.empirical_risk_, rtol=0, atol=1e-6)
    assert_allclose(found.coef_, memory.coef_, rtol=0, atol=atol)
    assert_allclose(found.intercept_, memory.intercept_, rtol=0, atol=10 * atol)
    assert_allclose(found.multiplier_, memory.multiplier_, rtol=1e-5)


# weights


@pytest.mark.parametrize("class_weight", [None, "balanced", {"yes": 3.0, "no": 0.5}])
def test_weights_of_labels_are_those_of_memory(rows, weights, class_weight):
    X, y, _ = rows
    model = DROClassifier(**FINE, class_weight=class_weight)
    memory = DROClassifier(**FINE | {"tol": 1e-15}, class_weight=class_weight).fit(X, y, weights)
    assert_same(model.fit(chunks_of(X, y), None, sample_weight=weights), memory)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weights_of_targets_are_those_of_memory(rows, weights, fit_intercept):
    X, _, y = rows
    settings = FINE | {"fit_intercept": fit_intercept}
    memory = DRORegressor(**settings).fit(X, y, weights)
    found = DRORegressor(**settings).fit(chunks_of(X, y), None, weights)
    assert_same(found, memory)
    # the scale of weights does not matter
    small = DRORegressor(**settings).fit(chunks_of(X, y), None, 1e-9 * weights)
    assert_allclose(small.coef_, found.coef_, rtol=1e-9)


def test_a_weight_of_two_is_a_row_met_twice(rows):
    X, y, _ = rows
    twice = np.arange(N) % 3 == 0
    weighted = DROClassifier(**FINE).fit(chunks_of(X, y), None, 1.0 + twice)
    again = np.concatenate([np.arange(N), np.flatnonzero(twice)])
    repeated = DROClassifier(**FINE).fit(chunks_of(X[again], y[again]), None)
    assert_allclose(weighted.robust_risk_, repeated.robust_risk_, rtol=0, atol=1e-11)


def test_the_weighted_optimum_is_that_of_a_cone_program(rows, weights):
    X, labels, _ = (part[:80] for part in rows)
    y, w = np.where(labels == "yes", 1.0, -1.0), weights[:80]
    found = DROClassifier(**FINE).fit(chunks_of(X, y), None, w)
    sample = conic.Sample(X, y, w / w.sum())
    best = conic.Model(conic.Form("logistic", 1), sample).solve(0.05)
    assert_allclose(found.robust_risk_, best, rtol=1e-7)


@pytest.mark.parametrize("delta", ["cv", "theory"])
@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_the_weighted_ball_of_rows_that_are_all_kept_is_that_of_memory(
    rows, weights, kind, delta, monkeypatch
):
    monkeypatch.setattr(stream, "KEPT", N)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets
    settings = {"cost": "euclidean", "delta": delta}
    settings |= {"class_weight": "balanced"} if kind is DROClassifier else {}
    found = kind(**settings).fit(chunks_of(X, y), None, weights)
    memory = kind(**settings).fit(X, y, weights)
    assert found.delta_ == memory.delta_
    assert_array_equal(found.coef_, memory.coef_)


def test_effective_rows_set_the_rate(rows):
    X, y, _ = rows
    y = np.repeat(y[::5], 5)
    # the kept rows, every fifth, weigh as much as the others of their five together
    weights = np.where(np.arange(N) % 5 == 0, 4.0, 1.0)
    found = DROClassifier(cost="euclidean").fit(chunks_of(X, y), None, weights)
    memory = DROClassifier(cost="euclidean").fit(X[::5], y[::5])
    # of five rows of weights 4, 1, 1, 1, 1 the effective number is 64/20
    assert_allclose(found.delta_, memory.delta_ / 3.2**0.5, rtol=1e-9)


def test_weights_come_from_every_source(rows, weights, tmp_path, monkeypatch):
    da, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    X, y, _ = rows
    expected = DROClassifier(**FINE).fit(chunks_of(X, y), None, weights)
    folder = write_folder(tmp_path / "data", X, y, weight=weights)
    data = parquet(folder, target="label", sample_weight="weight")
    named = DROClassifier(**FINE).fit(folder, "label", sample_weight="weight")
    opened = [named, DROClassifier(**FINE).fit(data, None)]
    monkeypatch.setattr(base, "SMALL", 0)
    M, W = mapped(tmp_path, X), mapped(tmp_path, weights, "w.bin")
    opened.append(DROClassifier(**FINE).fit(M, y, W))
    with dask.config.set(scheduler="synchronous"):
        A = da.from_array(X, chunks=(400, D))
        opened.append(DROClassifier(**FINE).fit(A, y, da.from_array(weights, chunks=350)))
        opened.append(DROClassifier(**FINE).fit(A, y, weights))
    for found in opened:
        assert found.n_features_in_ == D
        assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.full(N, -1.0), "sample_weight must be nonnegative, got -1 in row 0"),
        (np.where(np.arange(N) == 1234, np.nan, 1.0), "in sample_weight, the first in row 1234"),
        (np.zeros(N), "sample_weight leaves no row with positive weight"),
        (np.ones(N - 1), "X has 1500 rows but sample_weight has shape"),
    ],
)
def test_bad_weights_are_sentences(rows, bad, words):
    X, y, _ = rows
    with pytest.raises(ValueError, match=words):
        DROClassifier(**FINE).fit(chunks_of(X, y), None, bad)


def test_a_class_without_weight_is_refused(rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match="two classes with positive weight"):
        DROClassifier(**FINE).fit(chunks_of(X, y), None, (y == "yes").astype(float))


def test_columns_beside_parquet_rows_are_named(rows, weights, tmp_path):
    X, y, _ = rows
    folder = write_folder(tmp_path / "data", X, y)
    with pytest.raises(TypeError, match="sample_weight is the name of a column, got ndarray"):
        DROClassifier(**FINE).fit(folder, "label", weights)
    with pytest.raises(ValueError, match="have no column 'wrong'"):
        DROClassifier(**FINE).fit(folder, "label", "wrong")
    with pytest.raises(TypeError, match="sample_weight a Dask one"):
        open_rows(mapped(tmp_path, X), y, w=pytest.importorskip("dask.array").ones(N))


# groups


@pytest.mark.parametrize("rule", ["auto", "worst"])
@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_groups_are_left_out_whole_as_in_memory(rows, sites, weights, kind, rule, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", N)
    X, labels, targets = rows
    y = labels if kind is DROClassifier else targets + (sites == "a")
    weights = weights if rule == "worst" else None
    model = kind(cost="euclidean", rule=rule, cv=4)
    memory = clone(model).fit(X, y, weights, groups=sites)
    found = model.fit(chunks_of(X, y), None, weights, groups=sites)
    assert found.delta_ == memory.delta_
    seen, expected = found.path_.environments, memory.path_.environments
    assert_array_equal(seen.names, expected.names)
    assert_array_equal(seen.counts, expected.counts)
    assert_array_equal(seen.losses, expected.losses)


def test_environments_are_those_of_the_kept_rows(rows, sites):
    X, y, _ = rows
    found = DROClassifier(cost="euclidean").fit(chunks_of(X, y), None, groups=sites)
    names, counts = np.unique(sites[::5], return_counts=True)
    assert_array_equal(found.path_.environments.names, names)
    assert_array_equal(found.path_.environments.counts, counts)


def test_groups_come_from_every_source(rows, sites, tmp_path):
    da, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    X, y, _ = rows
    model = DROClassifier(cost="euclidean", deltas=[0.1, 0.01])
    expected = model.fit(chunks_of(X, y), None, groups=sites).path_.score_mean
    folder = write_folder(tmp_path / "data", X, y, site=sites)
    assert_allclose(model.fit(folder, "label", groups="site").path_.score_mean, expected)
    with dask.config.set(scheduler="synchronous"):
        A = da.from_array(X, chunks=(400, D))
        for given in (sites, da.from_array(sites.astype(object), chunks=500)):
            assert_allclose(model.fit(A, y, groups=given).path_.score_mean, expected)


def test_a_learned_cost_takes_weights_groups_and_classes(rows, three, weights, sites):
    X = rows[0]
    data = chunks_of(X, three)
    cost = Learned([Spectral()], how="blend")
    model = DROClassifier(cost=cost, deltas=[0.1, 0.01], multi_class="ovr")
    found = model.fit(data, None, weights, groups=sites)
    assert found.coef_.shape == (3, D)
    assert found.path_.coef.shape == (2, 3, D)
    assert_allclose(sum(found.cost_.weights_.values()), 1)


def test_bad_groups_are_sentences(rows):
    X, y, _ = rows
    model = DROClassifier(cost="euclidean")
    with pytest.raises(ValueError, match="need two groups, got one"):
        model.fit(chunks_of(X, y), None, groups=np.zeros(N))
    holes = np.where(np.arange(N) == 17, np.nan, 1.0)
    with pytest.raises(ValueError, match=r"groups has no value \(NaN or None\) in row 17"):
        model.fit(chunks_of(X, y), None, groups=holes)
    with pytest.warns(UserWarning, match="has 3 groups, fewer than cv=5 folds: using 3"):
        model.fit(chunks_of(X, y), None, groups=np.arange(N) % 3)


# three classes and more


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_one_against_the_rest_is_that_of_memory(rows, three, weights, class_weight):
    X = rows[0]
    settings = {"class_weight": class_weight, "multi_class": "ovr"}
    data = chunks_of(X, three)
    found = DROClassifier(**FINE, **settings).fit(data, None, weights)
    memory = DROClassifier(**FINE | {"tol": 1e-15}, **settings).fit(X, three, weights)
    assert_same(found, memory)
    # the passes of the three models are shared
    assert data.passes <= 6
    assert_array_equal(found.classes_, ["x", "y", "z"])
    assert_array_equal(found.predict(X), memory.predict(X))
    assert_allclose(found.predict_proba(X), memory.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("form", ["ovr", "auto"])
def test_the_ball_of_three_classes_is_that_of_memory(rows, three, form, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", N)
    X = rows[0]
    model = DROClassifier(cost="euclidean", multi_class=form, class_weight="balanced")
    memory = clone(model).fit(X, three)
    found = model.fit(chunks_of(X, three), None)
    assert found.delta_ == memory.delta_
    assert_array_equal(found.path_.deltas, memory.path_.deltas)
    assert_array_equal(found.coef_, memory.coef_)


@pytest.mark.filterwarnings("ignore:every coefficient:UserWarning")
@pytest.mark.parametrize("order", [1, 2])
def test_a_class_that_no_kept_row_has_is_fitted_too(rows, order):
    X, y = rows[0], rows[1].astype("U4")
    # every fifth row is kept
    y[6::75] = "rare"
    settings = FINE | {"order": order, "delta": 1e-3, "multi_class": "ovr"}
    found = DROClassifier(**settings).fit(chunks_of(X, y), None)
    memory = DROClassifier(**settings | {"tol": 1e-13}).fit(X, y)
    assert_same(found, memory, atol=1e-5)


def test_the_largest_delta_by_theory_serves_all_classes(rows, three, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", N)
    X = rows[0]
    found = DROClassifier(cost="euclidean", delta="theory").fit(chunks_of(X, three), None)
    model = DROClassifier(cost="euclidean", delta="theory", multi_class="ovr")
    assert found.delta_ == model.fit(X, three).delta_


# order 2


@pytest.mark.parametrize(
    "settings",
    [
        {"delta": 0.05},
        {"delta": 1e-4},
        {"delta": 0.5},
        {"delta": 0.0},
        {"delta": 0.05, "fit_intercept": False},
        {"delta": 0.05, "class_weight": "balanced"},
        {"delta": 0.05, "cost": Mahalanobis(np.diag(np.arange(1.0, 1 + D)))},
    ],
)
def test_order_two_is_that_of_memory(rows, weights, settings):
    X, y, _ = rows
    data = chunks_of(X, y)
    settings = FINE | {"order": 2} | settings
    found = DROClassifier(**settings).fit(data, None, weights)
    memory = DROClassifier(**settings | {"tol": 1e-13}).fit(X, y, weights)
    assert_same(found, memory)
    assert data.passes <= 8


def test_three_classes_at_order_two(rows, three):
    X = rows[0]
    settings = FINE | {"order": 2}
    found = DROClassifier(**settings).fit(chunks_of(X, three), None)
    assert_same(found, DROClassifier(**settings | {"tol": 1e-13}).fit(X, three))


@pytest.mark.filterwarnings("ignore:every coefficient:UserWarning")
@pytest.mark.parametrize("below", [-1e-3, 1e-8, 1e-4, 0.1])
def test_order_two_near_the_threshold(rows, below):
    X, y, _ = rows
    share = np.mean(y == "yes")
    slopes = np.where(y == "yes", share - 1, share)
    top = np.sum(((X - X.mean(axis=0)).T @ slopes / N) ** 2) / np.mean(slopes**2)
    settings = {"cost": "euclidean", "order": 2, "delta": float(top * (1 - below))}
    found = DROClassifier(**settings, tol=1e-9).fit(chunks_of(X, y), None)
    memory = DROClassifier(**settings, tol=1e-12).fit(X, y)
    assert found.gap_ <= 1e-9
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-9)


def test_the_gap_bounds_the_excess_of_order_two_cut_short(rows):
    X, y, _ = rows
    settings = FINE | {"order": 2, "delta": 1e-3}
    best = DROClassifier(**settings).fit(X, y).robust_risk_
    with pytest.warns(ConvergenceWarning, match="did not reach the gap"):
        found = DROClassifier(**settings, max_iter=2).fit(chunks_of(X, y), None)
    assert -1e-12 < found.robust_risk_ - best <= found.gap_ < 0.1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_with_two_maxima_keep_a_valid_gap():
    # all rows of a class are nearly alike, so that many tie: these are not shared between maxima
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1], 60)
    X = 0.1 * rng.standard_normal((120, 2)) + np.outer(y, [2, 0])
    settings = {"cost": "euclidean", "order": 2, "delta": 1e-3}
    found = DROClassifier(**settings).fit(chunks_of(X, y), None)
    memory = DROClassifier(**settings, tol=1e-12).fit(X, y)
    assert -1e-10 <= found.robust_risk_ - memory.robust_risk_ <= found.gap_ + 1e-10


# joblib on a cluster


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_folds_and_sweeps_run_on_a_dask_cluster(rows, tmp_path):
    distributed = pytest.importorskip("distributed")
    X, y = rows[0][:200], rows[1][:200]
    signs = np.where(y == "yes", 1.0, -1.0)
    made = Dataset("made", X, signs, "classification", "made", "")
    plan = Plan({"made": made}, ["LR"], 2, sizes={"made": (40, 30, 50)})
    # folds of a norm that is not Euclidean are a task each
    model = DROClassifier(cost="linf", deltas=[0.1, 0.03], cv=3)
    expected, swept = clone(model).fit(X, y), run(plan, tmp_path / "here")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        parallel_config(backend="dask"),
    ):
        found = model.fit(X, y)
        there = run(plan, tmp_path / "there", jobs=-1)
        done = client.run(lambda dask_worker: len(dask_worker.state.log))
    assert sum(done.values()) > 0
    assert_array_equal(found.coef_, expected.coef_)
    assert_array_equal(found.path_.score_mean, expected.path_.score_mean)
    # as text, for nan is not nan
    assert [repr(replace(row, seconds=0.0)) for row in there] == [
        repr(replace(row, seconds=0.0)) for row in swept
    ]
