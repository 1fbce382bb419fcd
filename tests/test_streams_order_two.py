"""Logistic loss at order 2 of rows in chunks: folds, theory, learned costs, risks of any model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otdro import Ball, DROClassifier, robust_risk
from otdro.costs import Norm
from otdro.metrics import Learned, Spectral
from streaming import D, N
from streaming import chunks_of as hundreds

pytestmark = pytest.mark.usefixtures("few_kept")

FEW = [0.3, 0.01, 1e-4]


def chunks_of(X, y):
    """Return rows in a few chunks: there are many problems, and each looks at every chunk."""
    return hundreds(X, y, 700)


def test_a_learned_cost_is_blended_from_folds(rows):
    X, y, _ = rows
    data = chunks_of(X, y)
    model = DROClassifier(order=2, cost=Learned([Spectral()]), cv=2, deltas=FEW)
    found = model.fit(data, None)
    assert data.passes <= 6
    assert_allclose(sum(found.cost_.weights_.values()), 1)
    given = DROClassifier(order=2, cost=found.cost_, delta=found.delta_, tol=1e-9).fit(X, y)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=2e-6)


def test_three_classes_share_delta_and_groups_stay_whole(rows):
    X, y, targets = rows
    three = np.where(targets > 8, "far", y)
    sites = np.arange(N) % 6
    found = DROClassifier(cost="euclidean", order=2, cv=2, deltas=FEW)
    found.fit(chunks_of(X, three), None, groups=sites)
    assert found.coef_.shape == (3, D)
    assert found.path_.environments.names.tolist() == list(range(6))
    settings = {"cost": "euclidean", "order": 2, "delta": found.delta_}
    given = DROClassifier(**settings, tol=1e-9).fit(X, three)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=2e-6)


@pytest.mark.parametrize("norm", [Norm(2), Norm(1)])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "squared", "huber"])
def test_the_risk_of_any_model_is_that_of_memory(rows, loss, norm):
    X, y, targets = rows
    regression = loss in ("squared", "huber")
    y = targets if regression else np.where(y == "yes", 1, -1)
    data = chunks_of(X, y)
    given = (np.linspace(-1, 1, D), 0.3, loss, Ball(norm, 0.2, 2))
    assert_allclose(robust_risk(data, None, *given), robust_risk(X, y, *given), rtol=1e-11)
    assert data.passes == 1


@pytest.mark.parametrize("order", [1, 2])
def test_the_risk_with_a_price_of_labels_is_that_of_memory(rows, order):
    X, y, _ = rows
    y = np.where(y == "yes", 1, -1)
    given = (np.linspace(-1, 1, D), 0.3, "logistic", Ball(Norm(2), 0.2, order, label_cost=0.5))
    assert_allclose(robust_risk(chunks_of(X, y), None, *given), robust_risk(X, y, *given))


def test_a_softmax_risk_is_that_of_memory(rows):
    X, y, targets = rows
    labels = np.where(targets > 8, 2, np.where(y == "yes", 1, 0))
    given = (np.arange(3.0 * D).reshape(3, D) / 9, np.arange(3.0), "logistic")
    given = (*given, Ball(Norm(2), 0.2, 1))
    found = robust_risk(chunks_of(X, labels), None, *given)
    assert_allclose(found, robust_risk(X, labels, *given), rtol=1e-12)


def test_a_default_fit_of_some_thousand_rows(monkeypatch):
    # its folds are solved one by one, each from the constant model at the largest delta
    monkeypatch.setattr("otdro.solvers.streamed.stream.KEPT", 2500)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 12))
    y = X @ rng.standard_normal(12) / 4 + rng.logistic(size=5000) > 0
    found = DROClassifier(order=2).fit(hundreds(X, y, 2000), None)
    given = DROClassifier(order=2, cost=found.cost_, delta=found.delta_, tol=1e-9).fit(X, y)
    assert_allclose(found.robust_risk_, given.robust_risk_, rtol=2e-6)
