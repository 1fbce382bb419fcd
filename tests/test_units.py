"""Columns in units that are far apart: the learned cost measures each by its spread."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from otdro import DROClassifier, DRORegressor
from otdro.losses import Logistic
from otdro.problem import Sample
from otdro.radius.selection import FAR_APART, spreads_far_apart

UNITS = np.array([1e-3, 1.0, 1e3, 30.0])
SAID = "each by its own spread"


def rows(seed=0, n=60):
    """Return four columns of unit variance of which the first two decide."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    z = 2 * X[:, 0] - 2 * X[:, 1]
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1, -1), z


def sample(X, weights=None):
    n = X.shape[0]
    weights = np.full(n, 1 / n) if weights is None else weights
    return Sample(X, [np.where(np.arange(n) % 2, 1.0, -1.0)], weights, Logistic(), True)


def test_default_fit_is_that_of_standardised_columns():
    X, y, _ = rows()
    test, t, _ = rows(1, 2000)
    far = DROClassifier().fit(X * UNITS, y)
    near = DROClassifier().fit(X, y)
    assert SAID in far.message_
    assert SAID not in near.message_
    assert next(iter(far.cost_.weights_)) == "Standardised"
    accuracy = far.score(test * UNITS, t)
    assert accuracy > near.score(test, t) - 0.02
    # moves have one price in raw units: only the column of the largest is safe, and says nothing
    lost = DROClassifier(cost="euclidean").fit(X * UNITS, y)
    assert accuracy > lost.score(test * UNITS, t) + 0.1


def test_units_that_are_far_apart_do_not_matter():
    X, y, z = rows(2)
    rng = np.random.default_rng(3)
    for model, target in ((DROClassifier(), y), (DRORegressor(), z + rng.standard_normal(len(z)))):
        scores = []
        for units in (UNITS, UNITS * [3, 0.2, 5, 0.7]):
            fitted = model.fit(X * units, target)
            assert SAID in fitted.message_
            scores.append(fitted.coef_.ravel() * units)
        assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def test_three_classes_and_weights():
    X, _, z = rows(4, 90)
    classes = np.digitize(z, [-1, 1])
    weights = np.random.default_rng(5).uniform(0.5, 2, size=90)
    model = DROClassifier().fit(X * UNITS, classes, sample_weight=weights)
    assert SAID in model.message_
    assert model.score(X * UNITS, classes) > 0.7


def test_folds_may_prefer_the_units_as_they_are():
    # small columns that are noise: the price of a move in them is better left low
    rng = np.random.default_rng(6)
    X = rng.standard_normal((60, 30)) * np.r_[20.0, np.ones(29)]
    y = np.where(X[:, 0] > 0, 1, -1)
    model = DROClassifier().fit(X, y)
    assert SAID not in model.message_
    assert "Euclidean" in model.cost_.weights_


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X,
        # one cell, one row far out
        lambda X: X + 1e4 * np.eye(len(X), 4),
        lambda X: np.vstack([X, np.full(4, 1e6)]),
        # mostly one number, as indicators are: no spread of its own
        lambda X: np.column_stack([X, np.arange(len(X)) < 2]),
        lambda X: X * np.array([1, 1, 1, 0.9 * FAR_APART]),
        lambda X: np.column_stack([X, np.full(len(X), 1e6)]),
        lambda X: sparse.csr_array(X * UNITS),
        lambda X: np.tile(X * UNITS, 600),
        lambda X: X[:, :1],
        lambda X: 0 * X,
    ],
)
def test_units_are_left_alone(change):
    X, _, _ = rows(n=100)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    assert spreads_far_apart(sample(change(X))) is None


def test_a_long_tail_is_no_unit():
    # standardised columns of which one has nearly all rows in a narrow part
    rng = np.random.default_rng(7)
    X = rng.standard_normal((200, 2))
    X[:, 1] = np.where(np.arange(200) < 20, 10 * X[:, 1], 0.01 * X[:, 1])
    assert spreads_far_apart(sample(X / X.std(axis=0))) is None


def test_spreads_ignore_cells_far_out():
    X, _, _ = rows(n=100)
    clean = spreads_far_apart(sample(X * UNITS))
    bad = X * UNITS
    bad[0] = 1e4 * UNITS
    assert_allclose(spreads_far_apart(sample(bad)), clean, rtol=0.15)
    # a weight of 0 is a row that is not there
    weights = np.r_[0.0, np.ones(99)] / 99
    assert_allclose(spreads_far_apart(sample(bad, weights)), clean, rtol=0.05)
    constant = np.column_stack([X * UNITS, np.ones(100)])
    assert np.all(spreads_far_apart(sample(constant)) > 0)


def test_spreads_of_indicators_ignore_cells_far_out():
    X, _, _ = rows(n=100)
    rare = np.arange(100)[:, None] % [7, 15] == 0
    table = np.column_stack([X * UNITS, rare])
    clean = spreads_far_apart(sample(table))[-2:]
    assert_allclose(clean, rare.std(axis=0))
    # at most as if the two cells lay at 6, the fence of ones
    table[1:3, -2:] = 1e4
    bad = spreads_far_apart(sample(table))[-2:]
    assert np.all(bad**2 < clean**2 + 0.02 * 6**2)


def test_a_cell_far_out_in_a_small_column_does_not_decide():
    # among large columns its row is not far out, but it is where columns are measured by spreads
    X, y, _ = rows(7, 60)
    test, t, _ = rows(8, 2000)
    units = np.array([1.0, 1.0, 1e4, 1.0])
    X[0, 3] = 1e4
    model = DROClassifier().fit(X * units, y)
    assert SAID in model.message_
    assert model.score(test * units, t) > DROClassifier().fit(X[1:], y[1:]).score(test, t) - 0.03


@pytest.mark.parametrize("change", [1.0, [0.1, 1.0, 10.0, 100.0]])
def test_the_matrix_is_that_of_rows_in_units(change):
    X, y, _ = rows(8)
    units = UNITS * change
    model = DROClassifier().fit(X * units, y)
    assert SAID in model.message_
    # the standardised columns have the price 1 on average
    scale = spreads_far_apart(sample(X * units))
    scale = scale * np.sqrt(np.mean((scale.min() / scale) ** 2)) / scale.min()
    near = DROClassifier().fit(X * units / scale, y)
    assert_allclose(model.coef_ * scale, near.coef_, rtol=1e-6)
    assert_allclose(model.delta_, near.delta_, rtol=1e-6)
    assert_allclose(model.cost_.norm(X * units), near.cost_.norm(X * units / scale), rtol=1e-6)
    assert_allclose(model.robust_risk_, near.robust_risk_, rtol=1e-9)
