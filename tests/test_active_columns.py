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
from otdro.solvers.base import duality_gap
from otdro.solvers.conic import active_columns, proximal_newton
from otdro.solvers.conic.active_columns import ActiveColumns
from otdro.solvers.conic.l1_dual import balanced, dual_bound, dual_value
from otdro.solvers.conic.proximal_newton import PathRows
from otdro.solvers.exact import method
from solving import solution

N, D = 60, 600


def problem_of(loss, delta, fit_intercept=True, thin=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < (0.1 if thin else 1.0))
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
    assert isinstance(method(problem), ActiveColumns)
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
    assert_allclose(balanced(problem, np.zeros(N)), 0.0)


def test_all_columns_join_where_few_do_not_do(monkeypatch):
    monkeypatch.setattr(active_columns, "JOIN", 1)
    monkeypatch.setattr(proximal_newton, "applies", lambda problem: False)
    problem = problem_of(losses.Logistic(), 1e-3)
    assert solution(Exact(tol=1e-5), problem).converged


def test_a_default_fit_under_linf_ends():
    problem = problem_of(losses.Logistic(), 0.1)
    model = DROClassifier(cost="linf", cv=3, deltas=[0.2, 0.1, 0.05]).fit(problem.X, problem.y)
    assert model.gap_ <= 1e-6


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("delta", [0.1, 1e-3])
def test_proximal_newton_meets_the_interior_point(delta, fit_intercept):
    problem = problem_of(losses.Logistic(), delta, fit_intercept, thin=delta < 0.01)
    weights = np.where(np.arange(N) % 7 == 0, 0.0, 1.0)
    problem = problem.weighted(weights / weights.sum())
    steps = proximal_newton.minimise(problem, PathRows(problem.X), 1e-8, 200, None)
    other = ActiveColumns()._over_columns(problem, 1e-8, 200, None)
    assert steps.converged
    assert_allclose(steps.objective, other.objective, rtol=2e-8)
    assert steps.objective - dual_bound(problem, steps.dual).value <= steps.gap + 1e-15
    assert_allclose(steps.multiplier, np.abs(steps.coef).sum())
    assert fit_intercept or steps.intercept == 0


def test_steps_that_end_early_leave_the_rest_to_the_interior_point(monkeypatch):
    problem = problem_of(losses.Logistic(), 0.01)
    monkeypatch.setattr(proximal_newton, "PATIENCE", -1)
    assert not proximal_newton.minimise(problem, PathRows(problem.X), 1e-7, 200, None).converged
    assert solution(Exact(tol=1e-7), problem).converged


def test_starts_move_along_the_path_only_where_that_descends():
    problem = problem_of(losses.Logistic(), 0.05)
    start = solution(Exact(tol=1e-6), problem.at(0.06))
    here = np.append(start.coef, start.intercept)
    best = solution(Exact(tol=1e-6), problem)
    moved = proximal_newton.better(
        problem, PathRows(problem.X), start, np.append(best.coef, best.intercept)
    )
    assert np.all(moved.coef * start.coef >= 0)
    assert moved is not start
    assert proximal_newton.better(problem, PathRows(problem.X), start, 50 * here) is start


def test_rows_without_weight_and_what_is_no_number_prove_nothing():
    problem = problem_of(losses.Logistic(), 0.05)
    weights = np.where(np.arange(N) % 4, 1.0, 0.0)
    problem = problem.weighted(weights / weights.sum())
    slopes = problem.loss.derivative(np.zeros(N), problem.y)
    far = np.where(weights > 0, slopes, 5.0)
    value = dual_value(problem, far, 0.0)
    assert value == dual_value(problem, slopes, 0.0)
    assert duality_gap(1.0, np.nan) == duality_gap(np.nan, 0.0) == np.inf
    assert duality_gap(1.0, 2.0) == 0.0
