"""A fit does not depend on the unit of its rows."""

import numpy as np
import pytest

from otdro import DROClassifier, DRORegressor, robust_risk
from otdro.costs import Mahalanobis

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = np.where(X @ [1.0, -1.0, 0.5, 0.0] + RNG.logistic(size=60) > 0, 1, -1)
T = X @ [1.0, -1.0, 0.5, 0.0] + RNG.standard_normal(60)
SCALES = [1e-60, 1e-30, 1e-16, 1e-14, 1e-10, 1e-8, 1e8, 1e14, 1e30]


#: Losses, costs and orders that have an exact method.
SOLVED = [
    *(("logistic", cost, 1) for cost in ("euclidean", "l1", "linf")),
    *(("huber", cost, 1) for cost in ("euclidean", "l1", "linf")),
    *(("squared_hinge", cost, 2) for cost in ("euclidean", "l1", "linf")),
    *(("squared", cost, 2) for cost in ("euclidean", "l1", "linf")),
    ("logistic", "euclidean", 2),
    ("huber", "euclidean", 2),
]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("loss", "cost", "order"), SOLVED)
def test_a_fit_at_a_given_delta_does_not_depend_on_the_unit(loss, cost, order, scale):
    kind, y = (DROClassifier, Y) if loss in ("logistic", "squared_hinge") else (DRORegressor, T)
    plain = kind(loss, cost=cost, order=order, delta=0.05).fit(X, y)
    scaled = kind(loss, cost=cost, order=order, delta=0.05 * scale**order).fit(scale * X, y)
    assert scaled.robust_risk_ == pytest.approx(plain.robust_risk_, rel=1e-5)
    assert scaled.gap_ <= 1e-5
    assert np.allclose(scale * scaled.coef_, plain.coef_, atol=1e-2)
    again = robust_risk(scale * X, y, np.ravel(scaled.coef_), scaled.intercept_, loss, scaled.ball_)
    assert again == pytest.approx(scaled.robust_risk_, rel=1e-6)


@pytest.mark.parametrize("scale", SCALES)
def test_a_default_fit_does_not_depend_on_the_unit(scale):
    plain, scaled = DROClassifier().fit(X, Y), DROClassifier().fit(scale * X, Y)
    assert scaled.robust_risk_ == pytest.approx(plain.robust_risk_, rel=1e-4)
    assert scaled.delta_ == pytest.approx(scale * plain.delta_, rel=1e-4)
    assert np.allclose(scaled.path_.deltas, scale * plain.path_.deltas, rtol=1e-4)
    assert scaled.cost_.comparison_.winner.delta == pytest.approx(scaled.delta_)


def test_a_default_regression_does_not_depend_on_the_unit():
    plain, scaled = DRORegressor().fit(X, T), DRORegressor().fit(1e-20 * X, T)
    assert scaled.robust_risk_ == pytest.approx(plain.robust_risk_, rel=1e-4)


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_the_unit_of_a_matrix_does_not_matter(factor):
    plain = DROClassifier(cost="euclidean", order=2, delta=0.05).fit(X, Y)
    matrix = Mahalanobis(factor * np.eye(4))
    scaled = DROClassifier(cost=matrix, order=2, delta=0.05 * factor).fit(X, Y)
    assert scaled.robust_risk_ == pytest.approx(plain.robust_risk_, rel=1e-5)


def test_prices_are_in_the_unit_of_the_cost():
    plain = DROClassifier(cost="euclidean", delta=0.05, label_cost=0.5).fit(X, Y)
    scale = 1e-12
    scaled = DROClassifier(cost="euclidean", delta=0.05 * scale, label_cost=0.5 * scale)
    assert scaled.fit(scale * X, Y).robust_risk_ == pytest.approx(plain.robust_risk_, rel=1e-5)
    moved = DRORegressor(cost="euclidean", delta=0.05, target_cost=2.0).fit(X, T)
    unit = DRORegressor(cost="euclidean", delta=0.05 * scale**2, target_cost=2.0 * scale**2)
    assert unit.fit(scale * X, T).robust_risk_ == pytest.approx(moved.robust_risk_, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "order", "delta"),
    [("logistic", 1, 5.3e-6), ("logistic", 2, 1e-10), ("hinge", 1, 5.3e-6)],
)
def test_columns_twelve_digits_apart_are_certified_by_pulls_of_each(loss, order, delta):
    # the squared pull of all columns has no digits left for those of the small ones
    units = np.array([1.0, 1e-4, 1e8])
    for seed in (5, 11, 19):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((30, 3))
        y = np.where(Z.sum(axis=1) + rng.logistic(size=30) > 0, 1, -1)
        model = DROClassifier(loss, cost="euclidean", order=order, delta=delta).fit(Z * units, y)
        plain = DROClassifier(loss, cost="euclidean", order=order, delta=0.0).fit(Z, y)
        for share in (0.1, 0.5, 0.9, 1.0):
            coef = share * plain.coef_[0] / units
            for kept in ([1, 1, 1], [1, 0, 1], [0, 1, 1]):
                other = robust_risk(
                    Z * units, y, coef * kept, plain.intercept_[0], model.loss_, model.ball_
                )
                assert model.robust_risk_ - model.gap_ <= other + 1e-9


def test_a_plain_fit_does_not_depend_on_the_matrix_of_its_cost():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) * [1e-6, 1.0, 1e5]
    y = np.sign(X @ [1e6, 1.0, 1e-5] + rng.standard_normal(40))
    A = rng.standard_normal((3, 3))
    model = DROClassifier(cost=A @ A.T + 0.1 * np.eye(3), delta=0.0).fit(X, y)
    other = DROClassifier(cost="euclidean", delta=0.0).fit(X, y)
    assert model.robust_risk_ - model.gap_ <= other.robust_risk_
