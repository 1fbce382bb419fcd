"""The feature-map cost: Jacobians, the linearised fit, learned metrics."""

import pickle
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from otdro import DROClassifier, DRORegressor, metrics, robust_risk
from otdro.costs import FeatureMap, Mahalanobis
from otdro.costs.base import central
from otdro.costs.mahalanobis import LowRank
from otdro.duality import Tangent, least
from otdro.losses import Absolute, Hinge, Huber, Logistic, Quantile, Squared, SquaredHinge
from otdro.metrics import (
    Blend,
    Diagonal,
    Eigen,
    GeometricMean,
    LogDet,
    Robust,
    Spectral,
    Xing,
)
from otdro.problem import Ball, Problem
from otdro.radius import path
from otdro.solvers import Exact, Smoothed
from otdro.worst_case import robust_risk_of
from solving import solution

MAP = np.array([[1.0, 0.3], [0.0, 0.8]])


def sample(cost, delta, loss=None, n=40, order=2):
    loss = Logistic() if loss is None else loss
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    score = X @ [1.5, -1.0] + 0.3
    noisy = score + (rng.logistic(size=n) if loss.task == "classification" else rng.normal(size=n))
    y = np.where(noisy > 0, 1.0, -1.0) if loss.task == "classification" else noisy
    return Problem(X, y, np.full(n, 1 / n), loss, Ball(cost, delta, order))


def transformers():
    linear = FunctionTransformer(lambda X: X)
    return {
        "quadratic": "quadratic",
        "polynomial": PolynomialFeatures(3, include_bias=False),
        "pipeline": make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False)),
        "kernel": FeatureUnion(
            [("x", linear), ("rbf", RBFSampler(n_components=5, random_state=0))]
        ),
    }


@pytest.mark.parametrize("name", list(transformers()))
def test_jacobian_and_price_gradient(name):
    X = np.random.default_rng(1).normal(size=(7, 2))
    y = np.array([1, -1, 1, -1, 1, 1, -1])
    cost = FeatureMap(transformers()[name]).learn(X, y)
    assert_allclose(cost.derivative(X), central(cost.map, X), atol=1e-7)
    U = X + 0.3
    numeric = central(lambda V: cost.price(V, X), U)
    assert_allclose(cost.price_gradient(U, X), numeric, atol=1e-6)
    v = 1e-4 * np.array([[0.6, -0.8]])
    local = np.einsum("nd,nde,ne->n", v + 0 * X, cost.shape(X), v + 0 * X)
    assert_allclose(cost.price(X + v, X), local, rtol=1e-2)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber()], ids=lambda v: type(v).__name__)
def test_a_linear_map_is_a_mahalanobis_cost(loss):
    cost = FeatureMap(FunctionTransformer(lambda X: X @ MAP))
    found = solution(Exact(), sample(cost, 0.05, loss))
    exact = solution(Exact(), sample(Mahalanobis(MAP @ MAP.T), 0.05, loss))
    assert_allclose(found.objective, exact.objective, rtol=2e-6)
    assert_allclose(found.coef, exact.coef, atol=2e-3)
    assert found.gap <= 1e-6 * exact.objective


def conic_bound(problem, found):
    """The risk of the best model when each row may only go where the solution sends it.

    That is a lower bound on every model's worst case; cvxpy finds it.
    """
    X, y, cost, lam = problem.X, problem.y, problem.ball.cost, cp.Variable(nonneg=True)
    B = np.linalg.inv(cost.shape(X))
    push = B @ found.coef
    w = np.sqrt(push @ found.coef)
    z = X @ found.coef + found.intercept
    inner = problem.loss.inner(z, y, w, found.multiplier)
    beta, b, eta = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable(len(y))
    limits = []
    for s, value in zip(inner.shift, inner.value, strict=True):
        real = np.isfinite(value)
        U = X[real] + (s / w**2)[real, None] * push[real]
        loss = cp.logistic(-cp.multiply(y[real], U @ beta + b))
        limits.append(loss - lam * (s / w)[real] ** 2 <= eta[real])
    program = cp.Problem(cp.Minimize(lam * problem.ball.delta + problem.weights @ eta), limits)
    program.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return program.value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delta", [1e-6, 1e-4, 1e-3, 0.1, 1.0, 3.0])
def test_linearised_is_exact_for_the_logistic_loss(seed, delta):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(15, 3))
    # separable for seed 1: at a small delta rows have two equal maxima
    noise = rng.logistic(size=15) if seed != 1 else 0.0
    y = np.where(X @ [2.0, -1.0, 0.5] + noise > 0, 1.0, -1.0)
    cost = FeatureMap(metric=rng.uniform(0.3, 3, size=9), linearised=True)
    problem = Problem(X, y, np.full(15, 1 / 15), Logistic(), Ball(cost, delta, 2))
    assert solution(Exact(tol=1e-9), problem).gap <= 1e-9 * np.log(2)
    # cvxpy takes the places from the solution, so that these must be accurate
    found = solution(Exact(tol=1e-13), problem)
    if np.any(found.coef) and delta > 1e-6:
        # below, Clarabel's own accuracy ends
        assert_allclose(found.objective, conic_bound(problem, found), atol=1e-7)


@pytest.mark.parametrize("loss", [Squared(), Huber(), SquaredHinge()], ids=repr)
@pytest.mark.parametrize("delta", [0.01, 0.3])
@pytest.mark.parametrize("intercept", [True, False])
def test_linearised_gaps_of_smooth_losses(loss, delta, intercept):
    problem = sample(FeatureMap(metric=np.linspace(0.5, 2, 5), linearised=True), delta, loss)
    weights = np.where(np.arange(40) < 30, 1 / 30, 0.0)
    problem = replace(problem, weights=weights, fit_intercept=intercept)
    found = solution(Exact(tol=1e-8), problem)
    assert found.converged
    assert found.gap <= 1e-8 * problem.constant[1]
    # no other model has less risk than objective - gap
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-2, 1.0):
        coef = found.coef + size * rng.normal(size=2)
        b = found.intercept + size * rng.normal() * intercept
        risk = robust_risk_of(problem, coef, b)
        assert risk >= found.objective - found.gap
        assert_allclose(risk, found.objective, atol=10 * size * (1 + size))


def test_the_shape_of_quadratic_features_needs_no_jacobian():
    X = np.random.default_rng(0).normal(size=(5, 4))
    prices = np.linspace(1, 2, 14)
    for metric, matrix in ((None, np.eye(14)), (prices, np.diag(prices))):
        short = FeatureMap(metric=metric)
        full = FeatureMap(metric=matrix, jacobian=FeatureMap().derivative)
        assert_allclose(short.shape(X), full.shape(X), atol=1e-12)
        assert_allclose(short.price(X + 0.3, X), full.price(X + 0.3, X))
        slopes = [cost.price_gradient(X + 0.3, X) for cost in (short, full)]
        assert_allclose(*slopes, atol=1e-12)


def test_order_one_is_refused_by_every_way_in():
    problem = sample(FeatureMap(), 0.1)
    for cost in (FeatureMap(), FeatureMap(linearised=True)):
        with pytest.raises(ValueError, match="order=2 only"):
            path(problem.X, problem.y, cost=cost, order=1, deltas=[0.5, 0.1])
        with pytest.raises(ValueError, match="order=2 only"):
            DROClassifier(cost=cost, order=1).fit(problem.X, problem.y)


def test_a_path_may_end_in_no_ball():
    problem = sample(FeatureMap(), 0.1)
    found = path(
        problem.X, problem.y, cost=FeatureMap(linearised=True), order=2, deltas=[0.5, 0.1, 0.0]
    )
    assert_allclose(found.robust_risk[2], found.empirical_risk[2])
    model = DROClassifier(cost=FeatureMap(linearised=True), order=2, deltas=[0.5, 0.1, 0.0])
    assert model.fit(problem.X, problem.y).delta_ in (0.5, 0.1, 0.0)


@pytest.mark.parametrize(
    ("metric", "match"),
    [
        (np.ones(3), "5 features"),
        (np.eye(3), "5 features"),
        (-np.ones(5), "positive"),
        (np.array([1, 1, np.nan, 1, 1]), "positive"),
    ],
)
def test_a_metric_that_does_not_fit(metric, match):
    problem = sample(FeatureMap(), 0.1)
    with pytest.raises(ValueError, match=match):
        DROClassifier(cost=FeatureMap(metric=metric), delta=0.1).fit(problem.X, problem.y)


def test_a_learned_diagonal_is_kept_as_one():
    problem = sample(FeatureMap(), 0.1)
    assert FeatureMap(metric=Diagonal()).learn(problem.X, problem.y).metric.shape == (5,)
    assert FeatureMap(metric=GeometricMean()).learn(problem.X, problem.y).metric.shape == (5, 5)


def test_a_fit_is_of_the_linearised_cost_and_the_cost_itself_is_refused():
    problem = sample(FeatureMap(), 0.1)
    model = DROClassifier(cost=FeatureMap(), cv=2, random_state=0).fit(problem.X, problem.y)
    assert model.message_.startswith("linearised feature map: gap")
    assert model.gap_ <= 1e-6
    for solver in ("auto", "exact"):
        itself = DROClassifier(cost=FeatureMap(linearised=False), delta=0.1, solver=solver)
        with pytest.raises(ValueError, match=r"linearised=True.*solver='smoothed'"):
            itself.fit(problem.X, problem.y)


def grid_risk(problem, found, far=4.0, fine=0.3):
    """The dual at the solution's lam by dense search: a wide grid, a fine one around each row."""
    cost, lam, total = problem.ball.cost, found.multiplier, 0.0
    wide, near = np.linspace(-far, far, 161), np.linspace(-fine, fine, 121)
    square = [np.stack(np.meshgrid(g, g), axis=-1).reshape(-1, 2) for g in (wide, near)]
    for x, y, pi in zip(problem.X, problem.y, problem.weights, strict=True):
        U = np.vstack([square[0], x + square[1]])
        price = cost.price(U, np.broadcast_to(x, U.shape))
        gain = (
            problem.loss.value(U @ found.coef + found.intercept, np.full(len(U), y)) - lam * price
        )
        total += pi * gain.max()
    return lam * problem.ball.delta + total


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2])
def test_the_risk_under_the_cost_itself_equals_a_dense_search(delta):
    problem = sample(FeatureMap(linearised=False), delta)
    found = solution(Exact(), sample(FeatureMap(), delta))
    worst = robust_risk_of(problem, found.coef, found.intercept)
    # the least over lam is at most the value at any
    lams = found.multiplier * np.linspace(0.7, 1.3, 13)
    dual = min(grid_risk(problem, replace(found, multiplier=lam)) for lam in lams)
    assert_allclose(worst, dual, atol=2e-3)


def test_the_linearised_risk_tends_to_that_of_the_cost_itself():
    """The risks differ by O(delta): the cost is a square to first order in the move."""
    deltas = np.array([1e-5, 1e-4, 1e-3])
    apart = []
    for delta in deltas:
        found = solution(Exact(tol=1e-9), sample(FeatureMap(), delta))
        itself = sample(FeatureMap(linearised=False), delta)
        apart.append(abs(robust_risk_of(itself, found.coef, found.intercept) - found.objective))
    rate = np.polyfit(np.log(deltas), np.log(apart), 1)[0]
    assert 0.8 <= rate <= 1.6


@pytest.mark.slow
def test_smoothed_has_no_linearised_cost():
    problem = sample(FeatureMap(linearised=True), 0.05)
    with pytest.raises(ValueError, match="Use linearised=False"):
        solution(Smoothed(random_state=0), problem)
    model = DROClassifier(
        cost=FeatureMap(linearised=False),
        deltas=[0.5, 0.05],
        solver=Smoothed(max_iter=100, random_state=0),
        cv=2,
    )
    assert model.fit(problem.X, problem.y).delta_ in (0.5, 0.05)


def test_smoothed_does_no_worse_under_the_cost_itself_than_the_linearised_fit():
    problem = sample(FeatureMap(linearised=False), 0.05)
    found = solution(Smoothed(random_state=0), problem)
    linear = solution(Exact(), sample(FeatureMap(), 0.05))
    assert_allclose(
        robust_risk_of(problem, found.coef, found.intercept), found.objective, rtol=1e-6
    )
    assert found.objective <= 1.002 * robust_risk_of(problem, linear.coef, linear.intercept)


def test_the_metric_is_learned_on_the_features():
    problem = sample(FeatureMap(metric=GeometricMean()), 0.05)
    cost = problem.ball.cost.learn(problem.X, problem.y)
    assert cost.metric.shape == (5, 5)
    assert hasattr(problem.ball.cost.metric, "fit")
    learned = Problem(problem.X, problem.y, problem.weights, problem.loss, Ball(cost, 0.05, 2))
    assert np.isfinite(solution(Exact(), learned).objective)
    with pytest.raises(ValueError, match="learn"):
        problem.ball.cost.check(2)


def test_bad_input_is_named():
    half = FunctionTransformer(lambda X: X[::2])
    with pytest.raises(ValueError, match="FunctionTransformer must keep the number of rows"):
        solution(Exact(), sample(FeatureMap(half), 0.1))
    flat = FunctionTransformer(lambda X: X[:, :1])
    with pytest.raises(ValueError, match="flat"):
        solution(Exact(), sample(FeatureMap(flat), 0.1))
    with pytest.raises(ValueError, match="cubic"):
        FeatureMap("cubic").check(2)
    for solver, cost in ((Exact(), FeatureMap()), (Smoothed(), FeatureMap(linearised=False))):
        with pytest.raises(ValueError, match="order=2"):
            solution(solver, sample(cost, 0.1, order=1))


def test_settings_survive():
    cost = FeatureMap(PolynomialFeatures(2), np.eye(2))
    for copy in (clone(cost), pickle.loads(pickle.dumps(cost))):
        assert repr(copy) == repr(cost)


@pytest.mark.parametrize("loss", [Hinge(), Absolute(), Quantile(tau=0.3)], ids=repr)
@pytest.mark.parametrize("delta", [0.001, 0.01, 0.1])
def test_linearised_gaps_of_losses_with_a_kink(loss, delta):
    problem = sample(FeatureMap(metric=np.linspace(0.5, 2, 5), linearised=True), delta, loss)
    found = solution(Exact(), problem)
    assert found.converged
    assert found.gap <= 1e-6 * problem.constant[1]
    risk = robust_risk_of(problem, found.coef, found.intercept)
    assert_allclose(risk, found.objective, rtol=1e-6)


def reflected(d, seed):
    """Rows whose mirror images -x are cheap to reach: products are expensive, signs are not."""
    rng = np.random.default_rng(seed)
    y = np.repeat([1.0, -1.0], 10)
    X = 1.5 * y[:, None] + 0.4 * rng.normal(size=(20, d))
    terms = d * (d + 1) // 2
    return X, y, FeatureMap(metric=np.r_[np.full(d, 0.05), np.full(terms, 4.0)], linearised=False)


def dense_risk(X, y, coef, loss, cost, delta):
    """The dual over a grid of places: a bound below the worst-case risk, to the grid."""
    d = X.shape[1]
    axis = np.linspace(-6, 6, 4001) if d == 1 else np.linspace(-4, 4, 201)
    grid = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    value = np.stack([loss.value(grid @ coef, np.full(len(grid), label)) for label in y])
    price = np.stack([cost.price(grid, np.broadcast_to(x, grid.shape)) for x in X])

    def tangent(lam):
        gain = value - lam * price
        best = gain.argmax(axis=1)
        rows = np.arange(len(y))
        slope = delta - price[rows, best].mean()
        return Tangent(lam, lam * delta + gain[rows, best].mean(), slope)

    return least(tangent, 1.0).value


@pytest.mark.parametrize("name", ["logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("delta", [0.1, 1.0])
@pytest.mark.parametrize("d", [1, 2])
def test_a_reflection_is_not_missed(name, delta, d):
    """Local ascent from near the rows understates this risk by up to 80%."""
    X, y, cost = reflected(d, seed=1)
    loss = {"logistic": Logistic(), "hinge": Hinge(), "squared_hinge": SquaredHinge()}[name]
    coef = np.ones(d)
    risk = robust_risk(X, y, coef, 0.0, name, Ball(cost, delta, 2))
    assert risk >= (1 - 1e-6) * dense_risk(X, y, coef, loss, cost, delta)


@pytest.mark.parametrize("d", [4, 6])
def test_a_reflection_is_tried_in_any_dimension(d):
    """Sending rows to -x, as far as the budget goes, is one distribution in the ball."""
    X, y, cost = reflected(d, seed=1)
    coef, delta = np.ones(d), 0.2
    price = cost.price(-X, X)
    share = min(1.0, delta / price.mean())
    plain, there = (np.logaddexp(0, -y * (U @ coef)).mean() for U in (X, -X))
    risk = robust_risk(X, y, coef, 0.0, "logistic", Ball(cost, delta, 2))
    assert risk >= (1 - share) * plain + share * there


FITS = {
    "logistic": DROClassifier,
    "hinge": DROClassifier,
    "squared": DRORegressor,
    "absolute": DRORegressor,
}


@pytest.mark.parametrize("d", [1, *(pytest.param(d, marks=pytest.mark.slow) for d in (2, 5))])
@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("delta", [0.02, 0.3, 4.0])
def test_the_risks_of_a_fit_are_one_number(name, d, delta):
    rng = np.random.default_rng(10 * d)
    X = rng.normal(size=(20, d))
    z = X @ rng.normal(size=d) + 0.3
    noisy = FITS[name] is DRORegressor
    y = z + rng.normal(size=20) if noisy else np.where(z + rng.logistic(size=20) > 0, 1, -1)
    model = FITS[name](loss=name, cost=FeatureMap(), order=2, delta=delta).fit(X, y)
    coef, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    again = robust_risk(X, y, coef, b, name, model.ball_)
    worst = model.worst_case()
    assert_allclose(again, model.robust_risk_, rtol=1e-9)
    assert_allclose(worst.risk, model.robust_risk_, rtol=1e-9)
    assert worst.budget <= delta * (1 + 1e-9)


LEARNERS = [Blend([Spectral(), GeometricMean(), "euclidean"])] + [
    getattr(metrics, name)() for name in metrics.__all__ if name not in ("Blend", "Learned")
]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
@pytest.mark.parametrize(("n", "d"), [(25, 22), (20, 70)])
def test_a_feature_map_of_many_columns_is_certified_with_every_learner(n, d, learner):
    """From 22 columns on the features are more than 256 and more than the rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=n) > 0, 1, 0)
    model = DROClassifier(cost=FeatureMap(metric=learner, linearised=True), delta=2.0).fit(X, y)
    assert model.gap_ <= 1e-6 * np.log(2)
    ball = model.ball_
    signs = 2.0 * y - 1
    risk = robust_risk(X, signs, model.coef_[0], model.intercept_[0], Logistic(), ball)
    assert_allclose(risk, model.robust_risk_, rtol=1e-9, atol=model.gap_)
    for size in (1e-3, 0.1):
        coef = model.coef_[0] + size * rng.normal(size=d) / np.sqrt(d)
        other = robust_risk(X, signs, coef, model.intercept_[0], Logistic(), ball)
        assert other >= model.robust_risk_ - model.gap_


def test_local_matrices_of_a_structured_metric():
    rng = np.random.default_rng(0)
    X, U = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    structured = LowRank(rng.uniform(0.5, 2, 14), rng.normal(size=(14, 2)))
    for features in ("quadratic", PolynomialFeatures(2, include_bias=False).fit(X)):
        few = FeatureMap(features, structured)
        full = FeatureMap(features, structured.toarray())
        assert_allclose(few.shape(X), full.shape(X), rtol=1e-12)
        assert_allclose(few.price(U, X), full.price(U, X), rtol=1e-12)
        assert_allclose(few.price_gradient(U, X), full.price_gradient(U, X), rtol=1e-12)
        assert_allclose(few.distance(U, X), full.distance(U, X), rtol=1e-12)


def test_a_learner_of_few_rows_learns_in_their_span():
    """The program of rows in coordinates of their span, turned back, is that of the rows."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 6))
    y = np.where(Z[:, 0] > 0, 1, -1)
    V = np.linalg.qr(rng.normal(size=(300, 6)))[0]
    for learner in (GeometricMean(), Eigen(), LogDet(), Robust(), Xing(tol=1e-7)):
        few, many = clone(learner).fit(Z, y), clone(learner).fit(Z @ V.T, y)
        turned = V @ few.solution_ @ V.T
        assert_allclose(
            many.solution_.toarray(),
            turned,
            atol=1e-3 * np.abs(turned).max(),
            err_msg=repr(learner),
        )
        assert_allclose(np.trace(many.metric_.toarray()), 300)
