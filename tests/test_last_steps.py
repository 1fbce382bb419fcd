"""Where searches end: the least value of a function of plain numbers, bounds at the last step."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otdro import DROClassifier
from otdro.costs import Norm
from otdro.duality import Tangent, least
from otdro.losses import Absolute, Hinge, Logistic, Loss, Quantile
from otdro.problem import Ball, Problem
from otdro.solvers import Exact
from solving import solution


@pytest.mark.parametrize("start", [0.9, 5.0, 1000.0])
def test_least_value_is_the_same_for_python_and_numpy_numbers(start):
    # ~True is -2 in Python, which is as true as True: it must not stand for "not"
    def least_of(number):
        def tangent(lam):
            lam = number(lam)
            return Tangent(lam, (lam - 3) ** 4 + 1, 4 * (lam - 3) ** 3)

        return float(least(tangent, start).lam)

    assert least_of(float) == least_of(np.float64)
    assert_allclose(least_of(float), 3.0, rtol=1e-4)


def separable(n=30, d=20, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def test_the_last_step_allowed_has_a_bound_though_it_is_far_off():
    X, y = separable()
    ball = Ball(Norm(2), 0.15, 1)
    problem = Problem(X, y, np.full(len(y), 1 / len(y)), Logistic(), ball)
    short = solution(Exact(tol=1e-9, max_iter=1), problem)
    assert short.gap < 0.01 * short.objective


@pytest.mark.parametrize(("order", "delta"), [(1, 0.1), (2, 0.5)])
def test_a_fit_cut_short_says_how_far_off_it_is(order, delta):
    X, y = separable()
    settings = {"cost": "euclidean", "order": order, "delta": delta}
    exact = DROClassifier(**settings).fit(X, y)
    with pytest.warns(UserWarning, match="did not reach the gap"):
        short = DROClassifier(**settings, max_iter=2).fit(X, y)
    assert 0 <= short.robust_risk_ - exact.robust_risk_ <= short.gap_ < short.robust_risk_


@pytest.mark.parametrize("loss", [Absolute(), Quantile(tau=0.3), Quantile(tau=0.9), Hinge()])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_constant_of_a_loss_without_curvature_is_a_kink_of_least_loss(loss, n):
    rng = np.random.default_rng(n)
    y = rng.normal(size=n).round(1) if loss.task == "regression" else rng.choice([-1.0, 1.0], n)
    weights = np.append(1.0, rng.integers(0, 4, n - 1))
    weights /= weights.sum()
    found = loss.constant(y, weights)
    searched = Loss.constant(loss, y, weights)
    assert found in y or loss.task == "classification"
    at = [weights @ loss.value(np.full(n, b), y) for b in (found, searched)]
    assert at[0] <= at[1] + 1e-12
