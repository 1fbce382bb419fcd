"""Prices by what a feature alone tells of the label."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.feature_selection import f_classif, f_regression

from otdro import DROClassifier, DRORegressor
from otdro.costs.mahalanobis import LowRank
from otdro.metrics import Association

RNG = np.random.default_rng(5)
X = RNG.standard_normal((80, 4)) @ np.diag([1.0, 3.0, 0.1, 1.0])
Y = np.where(X[:, 0] + 0.3 * X[:, 1] + RNG.standard_normal(80) > 0, 1, -1)
T = X[:, 0] + 0.3 * X[:, 1] + RNG.standard_normal(80)


def price(F, power=0.5, noise=2.0):
    lam = (1 + F / noise) ** power
    return lam * len(lam) / lam.sum()


@pytest.mark.parametrize("cuts", [[0.0], [-0.5, 0.5], [-1.0, 0.0, 1.0]])
def test_statistic_of_classes_is_that_of_the_analysis_of_variance(cuts):
    y = np.digitize(T, cuts)
    found = Association().fit(X, y)
    n, K = len(y), len(cuts) + 1
    # n in place of the n - K degrees of freedom
    assert_allclose(found.statistic_, f_classif(X, y)[0] * n / (n - K))
    assert_allclose(found.metric_, np.diag(price(found.statistic_)), atol=1e-5)


def test_statistic_of_a_target_is_that_of_a_line():
    found = Association().fit(X, T)
    assert_allclose(found.statistic_, f_regression(X, T)[0] * 80 / 78)


@pytest.mark.parametrize("y", [Y, T])
def test_statistic_does_not_depend_on_units(y):
    one = Association().fit(X, y).metric_
    # rows are scaled as wholes, so that fences stay where they are
    assert_allclose(Association().fit(7 * X - 5, y).metric_, one, atol=1e-9)
    assert_allclose(np.diag(Association().fit(X[:, ::-1], y).metric_), np.diag(one)[::-1])


def test_parameters_act_as_stated():
    F = Association().fit(X, Y).statistic_
    assert_allclose(np.diag(Association(1.0, 3.0).fit(X, Y).metric_), price(F, 1.0, 3.0), atol=1e-4)
    assert_allclose(Association(0).fit(X, Y).metric_, np.eye(4), atol=1e-12)
    half = Association(shrinkage=0.5).fit(X, Y).metric_
    assert_allclose(half, (np.diag(price(F)) + np.eye(4)) / 2, atol=1e-12)


def test_a_huge_power_leaves_the_largest_price_alone():
    Lam = np.diag(Association(1e4).fit(X, Y).metric_)
    assert_allclose(Lam.max(), 4, rtol=1e-5)
    assert Lam.min() > 0


def test_what_explains_all_is_bounded_and_what_explains_nothing_is_even():
    alone = np.c_[Y, np.full(80, 3.0), X[:, 0]].astype(float)
    F = Association().fit(alone, Y).statistic_
    assert_allclose(F[:2], [80 / 0.05, 0.0], atol=1e-6)
    for y, task in ((np.ones(80), "classification"), (np.full(80, 0.5), "regression")):
        assert_allclose(Association(task=task).fit(X, y).metric_, np.eye(4), atol=1e-12)


def test_one_far_target_or_row_moves_prices_little():
    far, row = T.copy(), X.copy()
    far[3], row[3] = 1e6, 1e6
    one = Association(task="regression").fit(X, T).metric_
    for found in (Association(task="regression").fit(X, far), Association().fit(row, T)):
        assert_allclose(found.metric_, one, atol=0.25)


@pytest.mark.parametrize("d", [30, 2_100])
def test_sparse_rows_have_the_prices_of_dense_ones(d):
    rows = sparse.random_array((60, d), density=0.1, format="csr", rng=1)
    y = np.where(RNG.standard_normal(60) > 0, "a", "b")
    thin, dense = Association().fit(rows, y), Association().fit(rows.toarray(), y)
    assert_allclose(thin.statistic_, dense.statistic_, atol=1e-8)
    if d > 2_000:
        assert isinstance(thin.metric_, LowRank)
        assert_allclose(thin.metric_.trace, d)


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({}, None, "needs y"),
        ({}, Y[:-1], "inconsistent numbers of samples"),
        ({}, np.where(np.arange(80) == 2, np.nan, T), "y contains NaN"),
        ({"power": -1.0}, Y, "power must be at least 0, got -1.0"),
        ({"noise": 0.0}, Y, "noise must be a finite number > 0, got noise=0.0"),
        ({"noise": np.inf}, Y, "noise must be a finite number > 0, got noise=inf"),
        ({"shrinkage": 2}, Y, r"shrinkage must be a number in \[0, 1\], got 2"),
        ({"task": "ranking"}, Y, "task must be one of"),
    ],
)
def test_bad_input_is_refused(parameters, y, message):
    with pytest.raises(ValueError, match=message):
        Association(**parameters).fit(X, y)


@pytest.mark.parametrize(("make", "y"), [(DROClassifier, Y), (DRORegressor, T)])
def test_it_is_a_cost_and_part_of_the_default(make, y):
    model = make(cost=Association(), delta=0.1).fit(X, y)
    assert_allclose(model.cost_.matrix, Association().fit(X, y).metric_, atol=1e-12)
    assert model.gap_ <= 1e-7
    assert "Association" in make(cv=3).fit(X, y).cost_.weights_
