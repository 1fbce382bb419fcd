"""Labels that change at a price, of rows in chunks: the solutions of memory and cone programs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from otdro import DROClassifier, DRORegressor
from otdro.costs import Mahalanobis
from otdro.losses import Squared
from otdro.radius.streamed import solving
from otdro.solvers.streamed import Folds
from streaming import D, N, chunks_of, splits_of

pytestmark = pytest.mark.usefixtures("few_kept")


def agrees(model, X, y, weights=None, passes=9):
    """Fit in chunks and in memory; the two must be the same."""
    data = chunks_of(X, y)
    found = clone(model).fit(data, None, weights)
    memory = model.fit(X, y, weights)
    assert np.all(found.gap_ <= model.tol)
    assert data.passes <= passes
    assert_allclose(found.robust_risk_, memory.robust_risk_, rtol=1e-8)
    assert_allclose(found.coef_, memory.coef_, atol=1e-4)
    assert found.ball_.label_cost == memory.ball_.label_cost
    return found


# at the last price no label pays, and no row is near a tie
@pytest.mark.parametrize("price", [0.2, 1.0, 1e3])
@pytest.mark.parametrize("delta", [1e-3, 0.02])
def test_labels_change_at_the_price_of_memory(rows, price, delta):
    X, y, _ = rows
    agrees(DROClassifier(cost="euclidean", delta=delta, label_cost=price, tol=1e-9), X, y)


@pytest.mark.parametrize("price", [0.3, 2.0])
def test_optima_are_those_of_cone_programs(rows, price):
    reference = pytest.importorskip("reference.classes")
    X, labels, targets = (part[:120] for part in rows)
    y = np.where(labels == "yes", 1, -1)
    model = DROClassifier(cost="euclidean", delta=0.02, label_cost=price, tol=1e-8)
    best = reference.label_price(X, y, "logistic", 1, 2, price, 0.02)
    assert_allclose(model.fit(chunks_of(X, y, 30), None).robust_risk_, best, atol=1e-7)
    moving = DRORegressor(cost="euclidean", delta=0.02, target_cost=price, tol=1e-8)
    best = reference.target_price(X, targets, Squared(), 2, 2, price, 0.02)
    assert_allclose(moving.fit(chunks_of(X, targets, 30), None).robust_risk_, best, rtol=1e-7)


@pytest.mark.parametrize("near", [50, 400])
def test_few_rows_near_a_tie_do(rows, near, monkeypatch):
    monkeypatch.setattr(solving, "NEAR", near)
    X, y, _ = rows
    agrees(DROClassifier(cost="euclidean", delta=0.01, label_cost=0.5, tol=1e-8), X, y, passes=12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weights_and_a_matrix(rows, fit_intercept):
    X, y, _ = rows
    weights = np.random.default_rng(3).random(N)
    cost = Mahalanobis(np.diag(np.arange(1.0, 1 + D)))
    model = DROClassifier(cost=cost, delta=0.02, label_cost=1.0, tol=1e-9)
    agrees(model.set_params(fit_intercept=fit_intercept), X, y, weights)


def test_one_class_against_the_rest(rows):
    X, y, _ = rows
    three = np.where(X[:, 0] > 4, "c", y)
    model = DROClassifier(cost="euclidean", delta=0.01, label_cost=0.3, tol=1e-9)
    agrees(model.set_params(multi_class="ovr"), X, three)


@pytest.mark.filterwarnings("ignore:every coefficient:UserWarning")
def test_the_constant_model_is_told_by_the_classes(rows):
    X, y, _ = rows
    found = agrees(DROClassifier(cost="euclidean", delta=0.4, label_cost=0.2), X, y, passes=1)
    assert not found.coef_.any()


def test_the_gap_bounds_the_excess_of_a_fit_cut_short(rows):
    X, y, _ = rows
    model = DROClassifier(cost="euclidean", delta=0.01, label_cost=0.3, tol=1e-10)
    best = clone(model).fit(X, y).robust_risk_
    for steps in (1, 2):
        with pytest.warns(UserWarning, match="did not reach the gap"):
            found = clone(model).set_params(max_iter=steps).fit(chunks_of(X, y), None)
        assert -1e-9 <= found.robust_risk_ - best <= found.gap_ + 1e-9


def test_folds_choose_the_delta_of_memory(rows):
    X, y, _ = rows
    model = DROClassifier(
        cost="euclidean", label_cost=0.3, cv=2, deltas=np.geomspace(0.02, 2e-4, 5)
    )
    found = clone(model).fit(chunks_of(X, y), None)
    memory = model.set_params(cv=splits_of(Folds(2, 0), N)).fit(X, y)
    assert found.delta_ == memory.delta_
    assert_allclose(found.path_.score_mean, memory.path_.score_mean, atol=1e-3)
    assert_allclose(found.path_.robust_risk, memory.path_.robust_risk, rtol=1e-3)


@pytest.mark.parametrize("settings", [{"order": 2}, {"classes": 3}])
def test_order_two_and_several_scores_are_refused(rows, settings):
    X, y, _ = rows
    y = np.where(X[:, 0] > 4, "c", y) if settings.pop("classes", 2) == 3 else y
    model = DROClassifier(cost="euclidean", delta=0.01, label_cost=0.3, **settings)
    with pytest.raises(ValueError, match=r"label_cost=0\.3 is for rows in chunks at order=1"):
        model.fit(chunks_of(X, y), None)


def test_a_price_is_chosen_for_the_worst_environment(rows):
    X, y, _ = rows
    groups = np.arange(len(y)) % 4
    model = DROClassifier(cost="euclidean", rule="worst", label_cost="cv", cv=2)
    found = model.fit(chunks_of(X, y), None, groups=groups)
    # few rows in memory gain nothing by a price
    assert found.ball_.label_cost == np.inf
    assert_allclose(found.path_.environments.names, range(4))
    assert found.gap_ <= 1e-7
