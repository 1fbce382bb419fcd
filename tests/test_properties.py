"""Identities that hold for every sample, by hypothesis."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor

from otdro import Ball, DROClassifier, DRORegressor, losses, robust_risk
from otdro.costs import Mahalanobis, Norm
from tables import COMBINATIONS, make_cost, make_loss

pytestmark = pytest.mark.constant_model("hypothesis draws radii on both sides of the threshold")

over = pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c)))
# several exact fits each: 2 of the quick profile's 40 examples, 5 of the whole one's 100
few = settings(max_examples=settings.default.max_examples // 20)
radii = st.floats(1e-3, 2.0)


@st.composite
def samples(draw, task):
    """A sample of 6 to 20 rows and 1 to 4 columns with both labels, of some seed and scale."""
    n, d = draw(st.integers(6, 20)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.normal(size=(n, d)) * draw(st.sampled_from([0.1, 1.0, 10.0]))
    z = X @ rng.normal(size=d) + rng.normal(size=n)
    return X, (z if task == "regression" else np.where(z > np.median(z), 1.0, -1.0))


def fit(combination, X, y, delta, cost=None, weights=None, **more):
    loss, name, order = combination
    kind = DROClassifier if losses.KNOWN[loss].task == "classification" else DRORegressor
    cost = make_cost(name, X.shape[1]) if cost is None else cost
    model = kind(make_loss(loss), cost=cost, order=order, delta=delta, tol=1e-9, **more)
    return model.fit(X, y, sample_weight=weights)


def task(combination):
    return losses.KNOWN[combination[0]].task


@over
@few
@given(data=st.data(), a=radii, b=radii)
def test_optimal_risk_is_nondecreasing_and_concave_in_delta(combination, data, a, b):
    X, y = data.draw(samples(task(combination)))
    low, high = sorted((a, b))
    at = [fit(combination, X, y, d).robust_risk_ for d in (low, (low + high) / 2, high)]
    unit = 1e-8 * at[2]
    assert at[0] <= at[1] + unit
    assert at[1] <= at[2] + unit
    assert at[1] >= (at[0] + at[2]) / 2 - unit


@over
@settings(max_examples=10)
@given(data=st.data(), a=radii, b=radii)
def test_risk_of_given_coefficients_is_nondecreasing_and_concave_in_delta(combination, data, a, b):
    loss, name, order = combination
    X, y = data.draw(samples(task(combination)))
    coef = np.linspace(-1, 1, X.shape[1]) + 0.1
    cost = make_cost(name, X.shape[1])
    low, high = sorted((a, b))
    at = [
        robust_risk(X, y, coef, 0.3, make_loss(loss), Ball(cost, d, order))
        for d in (low, (low + high) / 2, high)
    ]
    assert at[0] <= at[1] * (1 + 1e-10)
    assert at[1] <= at[2] * (1 + 1e-10)
    assert at[1] >= (at[0] + at[2]) / 2 * (1 - 1e-10)


@pytest.mark.parametrize(
    "combination", [c for c in COMBINATIONS if c[1] == "mahalanobis"], ids=str
)  # fmt: skip
@few
@given(data=st.data(), delta=radii, seed=st.integers(0, 1000))
def test_invariant_under_a_linear_map_of_rows_and_metric(combination, data, delta, seed):
    """X -> XA with Lam -> A^-1 Lam A^-T moves the same points at the same price."""
    X, y = data.draw(samples(task(combination)))
    d = X.shape[1]
    A = np.random.default_rng(seed).normal(size=(d, d)) + 2 * np.eye(d)
    assume(np.linalg.cond(A) < 50)
    lam = make_cost("mahalanobis", d).matrix
    inverse = np.linalg.inv(A)
    mapped = inverse @ lam @ inverse.T
    one = fit(combination, X, y, delta)
    two = fit(combination, X @ A, y, delta, cost=Mahalanobis((mapped + mapped.T) / 2))
    assert_allclose(two.robust_risk_, one.robust_risk_, rtol=1e-7)


@over
@few
@given(data=st.data(), delta=radii, seed=st.integers(0, 1000))
def test_integer_weights_are_repeated_rows(combination, data, delta, seed):
    X, y = data.draw(samples(task(combination)))
    times = np.random.default_rng(seed).integers(0, 4, size=len(y))
    assume(len(np.unique(y[times > 0])) > 1)
    one = fit(combination, X, y, delta, weights=times)
    two = fit(combination, np.repeat(X, times, axis=0), np.repeat(y, times), delta)
    assert_allclose(one.robust_risk_, two.robust_risk_, rtol=1e-7)
    assert_allclose(one.delta_, two.delta_)


@over
@few
@given(data=st.data(), delta=radii, seed=st.integers(0, 1000))
def test_order_of_rows_is_irrelevant(combination, data, delta, seed):
    X, y = data.draw(samples(task(combination)))
    rows = np.random.default_rng(seed).permutation(len(y))
    one, two = fit(combination, X, y, delta), fit(combination, X[rows], y[rows], delta)
    assert_allclose(one.robust_risk_, two.robust_risk_, rtol=1e-7)


@settings(max_examples=20)
@given(sample=samples("regression"))
def test_delta_zero_is_least_squares(sample):
    X, y = sample
    ours = DRORegressor("squared", cost="euclidean", delta=0.0, tol=1e-9).fit(X, y)
    theirs = LinearRegression().fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-8)
    assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6, atol=1e-8)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), order=st.sampled_from([1, 2]))
def test_delta_zero_is_logistic_regression(seed, order):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] + 1.5 * rng.normal(size=60) > 0, 1, -1)
    ours = DROClassifier(cost="euclidean", order=order, delta=0.0, tol=1e-9).fit(X, y)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-4)
    assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-4, atol=1e-4)


@settings(max_examples=20)
@given(sample=samples("regression"), tau=st.floats(0.1, 0.9))
def test_delta_zero_is_quantile_regression(sample, tau):
    X, y = sample
    ours = DRORegressor(losses.Quantile(tau), cost="euclidean", delta=0.0, tol=1e-9).fit(X, y)
    theirs = QuantileRegressor(quantile=tau, alpha=0.0).fit(X, y)
    e = y - theirs.predict(X)
    assert_allclose(ours.robust_risk_, np.maximum(tau * e, (tau - 1) * e).mean(), atol=1e-8)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), delta=st.floats(1e-3, 1.0), n=st.integers(8, 30))
def test_diagonal_metric_with_squared_loss_is_adaptive_ridge(seed, delta, n):
    """DRO_RA: rms(y - X beta) + sqrt(delta sum_j beta_j^2/alpha_j), Lam = diag(alpha)."""
    rng = np.random.default_rng(seed)
    X, alpha = rng.normal(size=(n, 3)), rng.uniform(0.2, 5, size=3)
    y = X @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=n)
    model = DRORegressor("squared", cost=Mahalanobis(np.diag(alpha)), delta=delta, tol=1e-9)
    model.fit(X, y)
    rms = np.sqrt(np.mean((y - model.predict(X)) ** 2))
    penalty = np.sqrt(delta * np.sum(model.coef_**2 / alpha))
    assert_allclose(model.robust_risk_, (rms + penalty) ** 2, rtol=1e-10)
    # stationary: X'e/(n rms) = sqrt(delta) beta/alpha/w where beta is not zero
    if np.any(model.coef_):
        e = y - model.predict(X)
        w = np.sqrt(np.sum(model.coef_**2 / alpha))
        left = (X - X.mean(axis=0)).T @ e / (n * rms)
        assert_allclose(left, np.sqrt(delta) * model.coef_ / alpha / w, atol=1e-6)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), delta=st.floats(1e-3, 1.0))
def test_identity_metric_is_the_euclidean_cost(seed, delta):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(15, 3)), rng.normal(size=15)
    kinds = (Norm(2), "euclidean", Mahalanobis(np.eye(3)))
    risks = [
        DRORegressor("huber", cost=c, delta=delta, tol=1e-9).fit(X, y).robust_risk_ for c in kinds
    ]
    assert_allclose(risks, risks[0], rtol=1e-9)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100), order=st.sampled_from([1, 2]))
def test_scale_of_the_metric_is_the_scale_of_delta(seed, scale, order):
    """The ball of radius delta under k Lam is that of radius delta/k^(order/2) under Lam."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 2))
    y = np.where(X[:, 0] + rng.normal(size=20) > 0, 1, -1)
    assume(len(np.unique(y)) == 2)
    one = DROClassifier(
        "hinge", cost=Mahalanobis(scale * np.eye(2)), order=order, delta=0.1, tol=1e-9
    )
    two = DROClassifier(
        "hinge", cost=Norm(2), order=order, delta=0.1 / scale ** (order / 2), tol=1e-9
    )
    assert_allclose(one.fit(X, y).robust_risk_, two.fit(X, y).robust_risk_, rtol=1e-7)
