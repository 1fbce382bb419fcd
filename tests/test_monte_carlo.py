"""Monte Carlo values and gradients of the smoothed dual within three standard errors of integrals.

The log of a mean and a ratio of means are biased, by one over the number of draws; the mean itself
is not. With T = exp{(G - G*)/eps}, the estimate G of a row's smoothed loss beside its integral G*,

    E T = 1,    E T grad G = grad G*

hold exactly for importance draws, so three standard errors of independent replications are the
whole tolerance. With many draws the bias is lost in the error, and G and grad G agree as they are.
Both tests see mass that a proposal leaves to its tails: T is then too small nearly always.
"""

import numpy as np
import pytest

from otdro.costs import CallableCost
from otdro.losses import Logistic
from otdro.problem import Ball, Problem
from otdro.solvers.local_cost import local_rows
from otdro.solvers.smoothing import Sampler, integrate

N, D, DELTA, SIGMA = 20, 3, 0.1, 2.0
THETA = np.array([0.6, -0.3, 0.4, 0.1])
#: Multiplier and smoothing; 2 lam/w^2 is 2.0 and 0.2, above and below smoothness = 1/4.
ONE, TWO, TWO_WIDE = (0.6, 0.3), (0.06, 0.1), (0.06, 2.0)
CASES = [
    ("maximiser", ONE),
    ("maximiser", TWO),
    ("centred", ONE),
    ("centred", TWO_WIDE),
    ("paper", ONE),
    ("paper", TWO_WIDE),
]
SEEDS = range(5)


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    y = np.where(X @ [1.5, -0.5, 1.0] + rng.logistic(size=N) > 0, 1.0, -1.0)
    return X, y


def sampler(proposal, L):
    X, y = data()
    cost = CallableCost(lambda u, v: ((u - v) ** 2).sum(axis=1))
    problem = Problem(X, y, np.full(N, 1 / N), Logistic(), Ball(cost, DELTA, 2))
    return Sampler(problem, local_rows(problem, X), L, proposal, SIGMA)


def integral(proposal, index, x, eps):
    """Return lam delta + mean G* over the rows of ``index``, by the trapezoid rule."""
    (X, y), lam, beta = data(), x[-1], x[:D]
    X, y = X[index], y[index]
    variance, extra, center = eps / (2 * lam), 0.0, X
    if proposal == "paper":
        # N(0, sigma^2) exp(-lam |u - x|^2/eps) is a normal times a constant
        total = variance + SIGMA**2
        extra = eps * (D * np.log(variance / total) - (X**2).sum(axis=1) / total) / 2
        center, variance = X * SIGMA**2 / total, variance * SIGMA**2 / total
    rho = float(np.linalg.norm(beta) * np.sqrt(variance))
    value = integrate(Logistic(), center @ beta + x[D], y, rho, eps, 801).value
    return lam * DELTA + float(np.mean(value + extra))


def reference(proposal, index, x, eps):
    """Return the integral and its gradient, by central differences."""
    steps = 1e-4 * np.eye(len(x))
    ends = [[integral(proposal, index, x + s * e, eps) for s in (1, -1)] for e in steps]
    return integral(proposal, index, x, eps), np.array([(a - b) / 2e-4 for a, b in ends])


def scores(draws, exact):
    """Return the distances from the exact values in standard errors."""
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return (draws.mean(axis=0) - exact) / error


@pytest.mark.parametrize(("proposal", "at"), CASES)
def test_unbiased_for_any_number_of_draws(proposal, at):
    lam, eps = at
    x, L, repeats = np.append(THETA, lam), 64, 200
    found = []
    for seed in SEEDS:
        estimator, index = sampler(proposal, L), np.array([seed])
        rng = np.random.default_rng(seed)
        value, grad = reference(proposal, index, x, eps)
        draws = []
        for _ in range(repeats):
            e = estimator.model(index, x, eps, rng)
            T = np.exp((e.objective - value) / eps)
            price = np.append(np.zeros(D + 1), DELTA)
            draws.append(np.append(T, T * (e.grad - price)))
        found.append(scores(np.array(draws), np.append(1.0, grad - price)))
    # all seeds together within three, and single ones but for one in thirty: of the 150 of all
    # cases chance alone puts one beyond
    assert np.abs(np.sum(found, axis=0)).max() / np.sqrt(len(SEEDS)) <= 3
    assert (np.abs(found) > 3).sum() <= 1


@pytest.mark.parametrize(("proposal", "at"), CASES)
def test_values_and_gradients_with_many_draws(proposal, at):
    lam, eps = at
    x, L, repeats = np.append(THETA, lam), 4096, 30
    index = np.arange(N)
    value, grad = reference(proposal, index, x, eps)
    estimator = sampler(proposal, L)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(repeats):
        e = estimator.model(index, x, eps, rng)
        draws.append(np.append(e.objective, e.grad))
    assert np.abs(scores(np.array(draws), np.append(value, grad))).max() <= 3
