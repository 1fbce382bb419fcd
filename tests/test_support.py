"""Finite support: convergence, steps and gaps where the exchange has a hard time; sublevel sets."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otdro.costs import Norm
from otdro.losses import Absolute, Hinge, Huber, Logistic, Quantile, Squared, SquaredHinge
from otdro.problem import Ball, Problem
from otdro.solvers import Exact
from otdro.worst_case import robust_risk_of
from problems import over_all_pairs
from solving import solution
from strangers import LogCosh


def sample(loss, delta, order=2, n=20, m=30, d=4, seed=0, separable=False):
    rng = np.random.default_rng(seed)
    X, S, beta = rng.normal(size=(n, d)), rng.normal(size=(m, d)), rng.normal(size=d)
    z = X @ beta
    if loss.task == "classification":
        y = np.where(z + (0.0 if separable else rng.logistic(size=n)) > 0, 1.0, -1.0)
    else:
        y = z + rng.normal(size=n)
    return Problem(X, y, np.full(n, 1 / n), loss, Ball(Norm(2), delta, order), True, S)


def assert_equals_conic(found, problem, unit=0.0):
    value, accuracy = over_all_pairs(problem)
    assert_allclose(found.objective, value, rtol=accuracy, atol=accuracy * unit)


LOSSES = [Logistic(), Hinge(), SquaredHinge(), Squared()]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("delta", [1e-5, 1e-3, 0.5, 30.0])
def test_small_and_large_deltas(loss, order, delta):
    problem = sample(loss, delta, order)
    found = solution(Exact(tol=1e-8), problem)
    assert found.converged
    assert found.n_iter <= 100
    assert_equals_conic(found, problem)


@pytest.mark.parametrize("loss", LOSSES[:3], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_rows_that_can_be_separated(loss, order, delta):
    """The risk is near zero and the model large: the scale is that of the constant model."""
    problem = sample(loss, delta, order, d=25, separable=True)
    for tol in (1e-4, 1e-8):
        found = solution(Exact(tol=tol), problem)
        assert found.converged
        assert found.n_iter <= 100
    assert_equals_conic(found, problem, problem.constant[1])


@pytest.mark.parametrize("max_iter", [1, 5, 10, 15])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: type(v).__name__)
def test_a_run_cut_short_states_a_true_gap(loss, max_iter):
    problem = sample(loss, 0.1)
    best = solution(Exact(tol=1e-9), problem).objective
    found = solution(Exact(tol=1e-9, max_iter=max_iter), problem)
    assert found.n_iter <= max_iter
    assert found.objective - found.gap <= best * (1 + 1e-8)
    assert found.objective >= best * (1 - 1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: type(v).__name__)
def test_the_bound_holds_against_larger_models(loss):
    """Along rays to models of any size no risk is below objective less gap."""
    problem = sample(loss, 0.05)
    found = solution(Exact(tol=1e-8), problem)
    rng = np.random.default_rng(1)
    base = np.append(found.coef, found.intercept)
    for size in (1e-3, 1.0, 1e3, 1e6):
        model = base + size * rng.normal(size=len(base))
        risk = robust_risk_of(problem, model[:-1], float(model[-1]))
        assert risk >= found.objective - found.gap


def test_rows_without_weight_are_nodes():
    problem = sample(Logistic(), 0.1)
    weights = np.where(np.arange(20) < 15, 1 / 15, 0.0)
    some = replace(problem, weights=weights)
    nodes = np.vstack([problem.X[15:], problem.support])
    fewer = replace(
        problem, X=problem.X[:15], y=problem.y[:15], weights=weights[:15], support=nodes
    )
    solver = Exact(tol=1e-9)
    assert_allclose(solution(solver, some).objective, solution(solver, fewer).objective, rtol=1e-8)


def test_without_intercept_and_with_a_constant_column():
    problem = sample(Logistic(), 0.1)
    plain = replace(problem, fit_intercept=False)
    found = solution(Exact(tol=1e-9), plain)
    assert found.converged
    assert found.intercept == 0
    assert_equals_conic(found, plain)
    wide = replace(
        problem,
        X=np.column_stack([problem.X, np.ones(20)]),
        support=np.column_stack([problem.support, np.ones(30)]),
    )
    assert_allclose(
        solution(Exact(tol=1e-9), wide).objective,
        solution(Exact(tol=1e-9), problem).objective,
        rtol=1e-8,
    )


def test_targets_that_a_constant_fits():
    problem = sample(Squared(), 0.1)
    found = solution(Exact(), replace(problem, y=np.full(20, 3.0)))
    assert found.converged
    assert_allclose(found.objective, 0, atol=1e-25)
    assert_allclose(found.intercept + problem.X @ found.coef, 3.0)


def test_a_loss_of_which_only_derivatives_are_known():
    problem = sample(LogCosh(), 0.2)
    found = solution(Exact(tol=1e-8), problem)
    assert found.converged
    assert_equals_conic(found, problem)


def test_many_deltas_are_solved_as_one_by_one():
    problem = sample(Logistic(), 1.0)
    deltas = [1.0, 0.1, 0.01]
    many = Exact(tol=1e-9).solve([problem], deltas)[0]
    for delta, found in zip(deltas, many, strict=True):
        alone = solution(Exact(tol=1e-9), replace(problem, ball=Ball(Norm(2), delta, 2)))
        assert found.converged
        assert_allclose(found.objective, alone.objective, rtol=1e-8)


@pytest.mark.parametrize(
    "loss",
    [*LOSSES, Absolute(), Huber(), Quantile(tau=0.3), LogCosh()],
    ids=lambda v: type(v).__name__,
)
def test_ends_of_sublevel_sets(loss):
    """l(o psi(t), y) = t, and the derivatives of psi are those of differences."""
    y = np.array([-1.0, 1.0] if loss.task == "classification" else [-2.0, 0.5, 3.0])
    tips = loss.sublevel(y)
    assert set(tips.of) == set(range(len(y)))
    for level in (1e-4, 0.3, 2.0, 50.0):
        t = np.full(len(tips.of), level)
        psi, first, second = tips.curve(t)
        assert_allclose(loss.value(tips.side * psi, y[tips.of]), t, rtol=1e-9)
        h = 1e-5 * t
        ahead, behind = tips.curve(t + h), tips.curve(t - h)
        assert_allclose((ahead[0] - behind[0]) / (2 * h), first, rtol=1e-5)
        assert_allclose((ahead[1] - behind[1]) / (2 * h), second, rtol=1e-4, atol=1e-9)
        assert (first * tips.steepest >= 1 - 1e-9).all()


def test_dependent_columns_change_nothing():
    """The model of least size in the span is returned: costs are those of the plain columns."""
    problem = sample(Logistic(), 0.1)
    twice = [np.column_stack([Q, Q[:, 0], Q @ [1, 2, 3, 4]]) for Q in (problem.X, problem.support)]

    class First(Norm):
        def distance(self, U, V):
            return super().distance(U[:, :4], V[:, :4])

    ball = Ball(First(2), 0.1, 2)
    plain = solution(Exact(tol=1e-9), problem)
    found = solution(Exact(tol=1e-9), replace(problem, X=twice[0], support=twice[1], ball=ball))
    assert found.converged
    assert_allclose(found.objective, plain.objective, rtol=1e-8)
    assert np.abs(found.coef).max() < 10 * np.abs(plain.coef).max()


def test_more_columns_than_nodes():
    problem = sample(Logistic(), 0.5, n=12, m=10, d=40)
    found = solution(Exact(tol=1e-8), problem)
    assert found.converged
    assert_equals_conic(found, problem)
    z = problem.X @ found.coef + found.intercept
    assert np.abs(z).max() < 1e3


@pytest.mark.parametrize("intercept", [True, False])
def test_a_constant_target_and_a_constant_column(intercept):
    problem = sample(Squared(), 0.01)
    ones = [np.column_stack([np.ones(len(Q)), Q]) for Q in (problem.X, problem.support)]
    flat = replace(problem, X=ones[0], support=ones[1], y=np.full(20, 3.0), fit_intercept=intercept)
    found = solution(Exact(tol=1e-8), flat)
    assert found.converged
    assert found.objective <= 1e-6


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: type(v).__name__)
def test_rows_that_are_all_the_same(loss, order):
    """No move changes a score: the constant model is optimal, to the gap asked for."""
    problem = sample(loss, 0.1, order)
    X, S = np.tile([0.1, 0.3], (20, 1)), np.tile([0.1, 0.3], (5, 1))
    found = solution(Exact(), replace(problem, X=X, support=S))
    assert found.converged
    assert_allclose(found.objective, problem.constant[1], rtol=1e-6)
    assert not found.coef.any()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: type(v).__name__)
def test_columns_that_depend_on_each_other(loss):
    problem = sample(loss, 0.1)
    mixed = np.array([[1, 0, 1, 0.3], [0, 1, -1, 0.1], [1, 1, 0, 2], [0, 2, -2, -1]])
    problem = replace(problem, X=problem.X @ mixed + 3, support=problem.support @ mixed + 3)
    found = solution(Exact(tol=1e-8), problem)
    assert found.converged
    assert_equals_conic(found, problem)
