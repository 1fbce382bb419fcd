"""The softmax model of rows in chunks: the solutions of memory, certified, by folds too."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from otdro import DROClassifier
from otdro.costs import Mahalanobis, Norm
from otdro.losses.softmax import Softmax
from otdro.metrics import Learned, Spectral
from otdro.problem import Sample
from otdro.radius.grid import threshold
from reference import classes
from streaming import FINE, D, N, chunks_of, made_rows

pytestmark = pytest.mark.usefixtures("few_kept")

FEW = [0.3, 0.03, 0.003]


@pytest.fixture(scope="module")
def rows():
    X, _, targets = made_rows()
    labels = np.array(["low", "middle", "high"])[np.digitize(targets, [4.0, 6.5])]
    return X, labels


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"fit_intercept": False},
        {"class_weight": "balanced"},
        {"cost": Mahalanobis(np.diag(np.arange(1.0, 1 + D)))},
        {"delta": 0.3},
        {"delta": 1e-3},
        {"delta": 0.0},
    ],
)
def test_softmax_is_that_of_memory(rows, settings):
    X, y = rows
    weights = np.random.default_rng(1).random(N)
    data = chunks_of(X, y)
    found = DROClassifier(**FINE | settings).fit(data, None, weights)
    memory = DROClassifier(**FINE | {"tol": 1e-14} | settings).fit(X, y, weights)
    assert found.coef_.shape == memory.coef_.shape == (3, D)
    assert found.gap_ <= 2e-11
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-10)
    assert_allclose(found.empirical_risk_, memory.empirical_risk_, rtol=0, atol=1e-7)
    assert_allclose(found.coef_, memory.coef_, rtol=0, atol=1e-6)
    assert_allclose(found.intercept_, memory.intercept_, rtol=0, atol=4e-6)
    assert_allclose(found.multiplier_, memory.multiplier_, rtol=1e-6)
    assert data.passes <= 8
    assert_array_equal(found.classes_, memory.classes_)
    assert_array_equal(found.predict(data), memory.predict(X))
    assert_allclose(found.predict_proba(X).sum(axis=1), 1)


def test_the_optimum_is_that_of_a_cone_program(rows):
    X, y = rows[0][:200], np.unique(rows[1][:200], return_inverse=True)[1]
    found = DROClassifier(**FINE).fit(chunks_of(X, y, 60), None)
    best = classes.softmax(X, y, 3, 2, FINE["delta"])
    assert_allclose(found.robust_risk_, best, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:every coefficient:UserWarning")
def test_near_the_threshold_it_ends(rows):
    X, y = rows
    _, codes = np.unique(y, return_inverse=True)
    sample = Sample(X, [codes.astype(float)], np.full(N, 1 / N), Softmax(3), True)
    top = threshold(sample, sample.ys[0], Norm(2), 1)
    for delta in (top * 1.001, top * (1 - 1e-7), top * 0.99):
        settings = {"cost": "euclidean", "delta": float(delta), "tol": 1e-9}
        found = DROClassifier(**settings).fit(chunks_of(X, y), None)
        memory = DROClassifier(**settings).fit(X, y)
        assert found.gap_ <= 2e-9
        assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=2e-9)


def test_the_gap_bounds_the_excess_of_a_fit_cut_short(rows):
    X, y = rows
    best = DROClassifier(**FINE).fit(X, y).robust_risk_
    with pytest.warns(ConvergenceWarning, match="did not reach the gap"):
        found = DROClassifier(**FINE, max_iter=1).fit(chunks_of(X, y), None)
    assert 0 < found.robust_risk_ - best <= found.gap_ < 0.05


def test_a_class_that_no_kept_row_has_is_fitted_too(rows):
    X, y = rows[0], rows[1].copy()
    # every fifth row is kept
    y[6::75] = "rare"
    found = DROClassifier(**FINE).fit(chunks_of(X, y), None)
    assert found.coef_.shape == (4, D)
    memory = DROClassifier(**FINE).fit(X, y)
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-10)


def test_a_learned_cost_with_groups_and_weights(rows):
    X, y = rows
    weights, sites = np.random.default_rng(1).random(N), np.arange(N) % 6
    data = chunks_of(X, y, 700)
    model = DROClassifier(cost=Learned([Spectral()]), cv=2, deltas=FEW)
    found = model.fit(data, None, weights, groups=sites)
    assert_allclose(sum(found.cost_.weights_.values()), 1)
    assert found.path_.environments.names.tolist() == list(range(6))
    given = DROClassifier(cost=found.cost_, delta=found.delta_, tol=1e-9).fit(X, y, weights)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=2e-6)


def test_two_classes_are_the_binary_model(rows):
    X, y = rows
    two = y == "high"
    found = DROClassifier(**FINE, multi_class="multinomial").fit(chunks_of(X, two), None)
    assert found.coef_.shape == (1, D)
    assert "the softmax model is the binary one" in found.message_
    with pytest.raises(ValueError, match="multi_class='multinomial' at order 2"):
        DROClassifier(**FINE, multi_class="multinomial", order=2).fit(chunks_of(X, y), None)


@pytest.mark.parametrize("seed", range(3))
def test_a_plain_fit_starts_from_the_constant_model(rows, seed, monkeypatch):
    # two rows of each class are in memory: their model is worse than a constant one
    monkeypatch.setattr("otdro.solvers.streamed.stream.KEPT", 1)
    monkeypatch.setattr("otdro.solvers.streamed.stream.OF_A_CLASS", 2)
    X, y = rows[0], np.random.default_rng(seed).permutation(rows[1])
    found = DROClassifier(cost="euclidean", delta=0.0, tol=1e-9).fit(chunks_of(X, y), None)
    memory = DROClassifier(cost="euclidean", delta=0.0, tol=1e-9).fit(X, y)
    assert found.gap_ <= 1e-8
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=0, atol=1e-8)
