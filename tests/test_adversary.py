"""Worst cases where the cost is no norm: the knapsack over places, feature maps, support."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from sklearn.preprocessing import PolynomialFeatures

from otdro import DROClassifier, DRORegressor, robust_risk
from otdro.costs import FeatureMap, Graph, Mahalanobis, Norm
from otdro.losses import Hinge, Logistic
from otdro.problem import Ball, Problem
from otdro.worst_case import worst_case


def data(seed=0, n=24, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ np.linspace(1.5, -1, d) + rng.logistic(size=n) > 0, 1, -1)
    return X, y, rng.normal(size=(30, d))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.01, 0.3, 5.0]))
def test_the_worst_case_over_a_support_is_the_linear_program(seed, delta):
    # rounded, so that prices and losses tie
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 7), rng.integers(0, 7)
    X, S = rng.normal(size=(n, 2)).round(1), rng.normal(size=(m, 2)).round(1)
    y, weights = rng.choice([-1.0, 1.0], size=n), rng.dirichlet(np.ones(n))
    coef, b = rng.normal(size=2).round(1), 0.3
    problem = Problem(X, y, weights, Hinge(), Ball(Norm(1), delta, 1), support=S)
    worst = worst_case(problem, coef, b)
    assert_allclose(np.bincount(worst.origin, worst.weights, minlength=n), weights)
    assert worst.weights.min() >= 0
    assert worst.budget <= delta + 1e-12
    nodes = np.vstack([X, S])
    price = np.abs(X[:, None] - nodes[None]).sum(axis=2)
    loss = np.maximum(1 - y[:, None] * (nodes @ coef + b), 0)
    program = linprog(
        -loss.ravel(),
        A_ub=price.ravel()[None],
        b_ub=[delta],
        A_eq=np.kron(np.eye(n), np.ones((1, len(nodes)))),
        b_eq=weights,
    )
    assert_allclose(worst.risk, -program.fun, atol=1e-9)


CASES = {
    "graph": (Graph(8), False),
    "graph and support": (Graph(8), True),
    "support": (Norm(2), True),
    "linearised": (FeatureMap(linearised=True), False),
}


@pytest.mark.parametrize(("name", "delta"), list(product(CASES, [0.01, 0.3])))
def test_the_worst_case_attains_the_robust_risk(name, delta):
    X, y, S = data()
    cost, more = CASES[name]
    model = DROClassifier(cost=cost, order=2, delta=delta, tol=1e-8)
    model.fit(X, y, support=S if more else None)
    worst = model.worst_case()
    assert worst.budget <= delta * (1 + 1e-9)
    assert worst.shortfall <= 1e-7
    assert_allclose(worst.risk, model.robust_risk_, atol=1e-7)
    assert_allclose(np.bincount(worst.origin, worst.weights), np.full(len(y), 1 / len(y)))
    assert (worst.targets == y[worst.origin]).all()
    z = worst.points @ model.coef_[0] + model.intercept_[0]
    assert_allclose(worst.weights @ np.logaddexp(0, -worst.targets * z), worst.risk)
    if more:
        places = np.vstack([X, S])
        assert all((places == u).all(axis=1).any() for u in worst.points)


@pytest.mark.parametrize("cost", [Graph(8), FeatureMap(linearised=True)], ids=repr)
def test_a_row_without_weight_stays_out(cost):
    X, y, _ = data()
    weights = np.ones(len(y))
    weights[:10] = 0
    model = DROClassifier(cost=cost, order=2, delta=0.1, tol=1e-8)
    worst = model.fit(X, y, sample_weight=weights).worst_case()
    assert_allclose(np.bincount(worst.origin, worst.weights), weights / weights.sum())
    assert_allclose(worst.risk, model.robust_risk_, atol=1e-7)


def test_prices_of_a_worst_case_of_a_feature_map_itself_are_those_of_the_cost():
    X, y, _ = data(1)
    settings = {"solver": "smoothed", "random_state": 0}
    model = DROClassifier(cost=FeatureMap(linearised=False), delta=0.2, **settings).fit(X, y)
    worst = model.worst_case()
    price = model.cost_.price(worst.points, X[worst.origin])
    assert_allclose(worst.weights @ price, worst.budget)
    assert_allclose(worst.budget, 0.2)


def test_a_function_and_a_regression():
    X, y, _ = data(2)

    def cost(u, x):
        return ((u - x) ** 2).sum(axis=1) + 0.3 * ((u - x) ** 4).sum(axis=1)

    model = DROClassifier(cost=cost, delta=0.1, solver="smoothed", random_state=0).fit(X, y)
    assert_allclose(model.worst_case().risk, model.robust_risk_, rtol=1e-4)
    rng = np.random.default_rng(0)
    target = X[:, 0] + 0.5 * rng.normal(size=len(X))
    line = DRORegressor(cost=FeatureMap(), delta=0.1).fit(X, target)
    assert_allclose(line.worst_case().risk, line.robust_risk_, rtol=1e-6)


def test_a_constant_model_stays_where_it_is():
    X, y, _ = data()
    model = DROClassifier(cost=FeatureMap(), order=2, delta=1e6).fit(X, y)
    assert not model.coef_.any()
    assert_allclose(model.worst_case().points, X)


@pytest.mark.parametrize("cost", [FeatureMap(linearised=True), FeatureMap(), Graph(8)], ids=repr)
def test_robust_risk_of_a_model_is_that_of_its_fit(cost):
    X, y, _ = data()
    model = DROClassifier(cost=cost, order=2, delta=0.1, tol=1e-8).fit(X, y)
    risk = robust_risk(X, y, model.coef_, model.intercept_[0], "logistic", model.ball_)
    assert_allclose(risk, model.robust_risk_, rtol=1e-7)


SEPARATED = np.array([[5.0, 0], [6, 1], [7, -1], [-5, 0], [-6, 0.5], [-7, 1]])


@pytest.mark.parametrize(
    "loss",
    [
        "logistic",
        pytest.param("hinge", marks=pytest.mark.slow),
        pytest.param("squared_hinge", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("size", [0.1, 4.0])
@pytest.mark.parametrize("delta", [0.1, 40.0])
def test_robust_risk_of_large_margins_under_an_identity_map(loss, size, delta):
    y, coef = np.sign(SEPARATED[:, 0]), [size, 0.0]
    identity = FeatureMap(PolynomialFeatures(1, include_bias=False).fit(SEPARATED))
    risks = [
        robust_risk(SEPARATED, y, coef, 0.0, loss, Ball(c, delta, 2)) for c in (identity, Norm(2))
    ]
    assert_allclose(risks[0], risks[1], rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber"])
@pytest.mark.parametrize("delta", [0.1, 3.0])
def test_robust_risk_of_a_regression_under_an_identity_map(loss, delta):
    X, _, _ = data()
    y = X @ [1, 2, 0.4] + np.random.default_rng(0).normal(size=len(X))
    identity = FeatureMap(PolynomialFeatures(1, include_bias=False).fit(X))
    risks = [
        robust_risk(X, y, [1, 2, 0.4], 0.0, loss, Ball(c, delta, 2)) for c in (identity, Norm(2))
    ]
    assert_allclose(risks[0], risks[1], rtol=1e-6)


def test_robust_risk_under_a_linear_map_is_the_norms():
    X, y, _ = data()
    A = np.diag([1.0, 2.0, 0.5])

    class Linear:
        def fit(self, X):
            return self

        def transform(self, X):
            return X @ np.sqrt(A)

    coef = np.array([1.0, -0.4, 0.2])
    costs = FeatureMap(Linear()), Mahalanobis(A)
    risks = [robust_risk(X, y, coef, 0.1, Logistic(), Ball(cost, 0.1, 2)) for cost in costs]
    assert_allclose(risks[0], risks[1], rtol=1e-8)
    plain = robust_risk(X, y, coef, 0.1, Logistic(), Ball(costs[0], 0.0, 2))
    assert_allclose(plain, np.logaddexp(0, -y * (X @ coef + 0.1)).mean())


@pytest.mark.parametrize("linearised", [True, False])
def test_nothing_moves_at_delta_zero_at_any_order(linearised):
    X, y, _ = data()
    model = DROClassifier(cost=FeatureMap(linearised=linearised), order=1, delta=0.0).fit(X, y)
    worst = model.worst_case()
    assert_allclose(worst.points, X)
    assert worst.budget == 0
    assert_allclose(worst.risk, model.robust_risk_)
