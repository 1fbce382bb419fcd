"""l1 penalties of many columns: solved over a few, certified over all."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from otdro import DROClassifier, losses
from otdro.costs import Norm
from otdro.problem import Ball, Problem
from otdro.solvers import Exact
from otdro.solvers.conic import InteriorPoint
from otdro.solvers.exact import duality_gap
from solving import solution

N, D = 60, 600


def problem_of(loss, delta, fit_intercept=True, thin=False, seed=0, d=D):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)) * (rng.random((N, d)) < (0.1 if thin else 1.0))
    z = X[:, :4] @ np.array([2.0, -1.0, 1.0, 0.5]) + 0.3 * rng.normal(size=N)
    y = np.where(z > 0, 1.0, -1.0) if loss.task == "classification" else z
    X = sparse.csr_array(X) if thin else X
    return Problem(X, y, np.full(N, 1 / N), loss, Ball(Norm(np.inf), delta, 1), fit_intercept)


@pytest.mark.parametrize(
    ("loss", "thin", "fit_intercept"),
    [
        (losses.Logistic(), False, True),
        (losses.Hinge(), True, True),
        (losses.Absolute(), True, False),
    ],
)
def test_the_gap_over_all_columns_is_true(loss, thin, fit_intercept):
    problem = problem_of(loss, 0.05, fit_intercept, thin)
    found = solution(Exact(tol=1e-6), problem)
    X = problem.X.toarray() if thin else problem.X
    beta, b = cp.Variable(D), cp.Variable()
    z = X @ beta + (b if fit_intercept else 0.0)
    values = {
        "Logistic": lambda: cp.sum(cp.logistic(-cp.multiply(problem.y, z))),
        "Hinge": lambda: cp.sum(cp.pos(1 - cp.multiply(problem.y, z))),
        "Absolute": lambda: cp.norm(z - problem.y, 1),
    }
    loss_sum = values[type(loss).__name__]()
    least = cp.Problem(cp.Minimize(loss_sum / N + 0.05 * cp.norm(beta, 1)))
    least.solve(solver=cp.CLARABEL)
    assert found.converged
    assert_allclose(found.objective, least.value, rtol=3e-6)
    assert np.count_nonzero(np.abs(found.coef) > 1e-4) < N


def test_a_path_takes_its_columns_along_and_slopes_balance():
    problem = problem_of(losses.Logistic(), 0.1)
    solved = Exact(tol=1e-5).solve([problem], np.array([0.1, 0.05, 0.02]))[0]
    for delta, found in zip((0.1, 0.05, 0.02), solved, strict=True):
        alone = solution(Exact(tol=1e-7), problem.at(delta))
        assert found.objective - alone.objective <= found.gap + 1e-7
        pull = problem.X.T @ (problem.weights * found.dual)
        assert np.abs(pull).max() <= delta * (1 + 1e-2)
        assert abs(problem.weights @ found.dual) < 1e-12


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.Absolute()], ids=repr)
def test_all_columns_join_where_few_do_not_do(loss):
    # a small delta lets as many columns in as there are rows
    assert solution(Exact(tol=1e-6), problem_of(loss, 1e-4)).converged


def test_a_default_fit_under_linf_ends():
    problem = problem_of(losses.Logistic(), 0.1)
    model = DROClassifier(cost="linf", cv=3, deltas=[0.2, 0.1, 0.05]).fit(problem.X, problem.y)
    assert model.gap_ <= 1e-6


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("delta", [0.1, 1e-3])
@pytest.mark.parametrize("d", [5, 40, 300, D])
def test_steps_over_some_columns_meet_the_interior_point_over_all(d, delta, fit_intercept):
    problem = problem_of(losses.Logistic(), delta, fit_intercept, thin=delta < 0.01, d=d)
    weights = np.where(np.arange(N) % 7 == 0, 0.0, 1.0)
    problem = problem.weighted(weights / weights.sum())
    found = solution(Exact(tol=1e-8), problem)
    [[other]] = InteriorPoint().solve([problem], [delta], [1e-8], 200, None)
    assert found.converged
    assert_allclose(found.objective, other.objective, atol=1e-8)
    assert found.objective - found.gap <= other.objective
    assert_allclose(found.multiplier, np.abs(found.coef).sum())
    assert fit_intercept or found.intercept == 0


def test_a_gap_at_rounding_is_reached():
    for delta in (0.1, 1e-2, 1e-4):
        found = solution(Exact(tol=1e-12), problem_of(losses.Logistic(), delta, d=30))
        assert found.gap <= 1e-11


def test_gaps_of_early_stops_hold():
    problem = problem_of(losses.Logistic(), 0.01)
    best = solution(Exact(tol=1e-9), problem)
    for max_iter in (1, 2, 4):
        early = solution(Exact(1e-9, max_iter), problem)
        assert early.objective - early.gap <= best.objective
        assert early.objective >= best.objective - best.gap


def test_what_is_no_number_proves_nothing():
    assert duality_gap(1.0, np.nan) == duality_gap(np.nan, 0.0) == np.inf
    assert duality_gap(1.0, 2.0) == 0.0
