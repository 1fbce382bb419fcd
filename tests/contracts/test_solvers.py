"""The contract of a solver, over every class that ``otdro.solvers`` exports."""

import inspect
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from otdro import solvers
from otdro.problem import Ball, Problem, Solution
from solving import solution
from tables import COMBINATIONS, Case, constant, make_cost, make_loss, optimum

#: Solvers of another problem (smoothed, regularised) have files of their own, named here.
ELSEWHERE = {
    "Smoothed": "test_smoothed.py",
    "Quadrature": "test_quadrature.py",
    "Sinkhorn": "test_quadrature.py",
}
SOLVERS = {
    name: kind for name in solvers.__all__ if isinstance(kind := getattr(solvers, name), type)
}
EXACT = [kind for name, kind in SOLVERS.items() if name not in ELSEWHERE]
every = pytest.mark.parametrize("kind", EXACT)
over = pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c)))


def problem(case, delta=0.1):
    s = case.sample
    ball = Ball(make_cost(case.cost, s.X.shape[1]), delta, case.order)
    return Problem(s.X, s.y, s.weights, make_loss(case.loss), ball, s.fit_intercept)


@pytest.mark.parametrize("kind", SOLVERS.values())
def test_parameters_are_stored_and_survive(kind):
    solver = kind()
    for copy in (clone(solver), pickle.loads(pickle.dumps(solver))):
        assert repr(copy) == repr(solver)
    names = ["self", "problems", "deltas", "starts", "tols"]
    assert list(inspect.signature(kind.solve).parameters) == names


@every
@over
def test_solution_is_certified_and_agrees_with_the_reference(kind, combination):
    case = Case(*combination, "tall")
    solver = kind(tol=1e-9)
    before = repr(solver)
    found = solution(solver, problem(case))
    assert repr(solver) == before
    assert isinstance(found, Solution)
    assert found.converged
    assert found.message
    assert 0 <= found.gap <= 1e-9 * constant(case) * (1 + 1e-9)
    best = optimum(case, 0.1)
    assert abs(found.objective - best) <= 1e-7 * best
    assert found.n_iter >= 1


@every
@over
def test_multiplier_is_the_derivative_of_the_risk_in_delta(kind, combination):
    case, h = Case(*combination, "tall"), 1e-4
    solver = kind(tol=1e-9)
    low, at, high = (solution(solver, problem(case, 0.1 + k * h)) for k in (-1, 0, 1))
    # the optimal value is concave in delta, so lam is between the one-sided differences
    slack = 1e-4 * at.multiplier + 1e-6
    assert at.multiplier <= (at.objective - low.objective) / h + slack
    assert at.multiplier >= (high.objective - at.objective) / h - slack


@every
@over
def test_warm_start_ends_at_the_same_optimum(kind, combination):
    case = Case(*combination, "tall")
    solver = kind(tol=1e-9)
    first = solution(solver, problem(case, 0.12))
    warm, cold = solution(solver, problem(case), first), solution(solver, problem(case))
    assert warm.converged
    assert_allclose(warm.objective, cold.objective, rtol=1e-8)


@every
@over
def test_dual_point_has_a_zero_mean_and_no_slope_above_the_lipschitz_constant(kind, combination):
    """With an intercept the slopes of the loss at the worst case cancel in the mean."""
    case = Case(*combination, "tall")
    p = problem(case)
    found = solution(kind(tol=1e-9), p)
    if found.dual is None:
        return
    assert found.dual.shape == p.y.shape
    assert np.isfinite(found.dual).all()
    size = np.abs(found.dual).max()
    assert abs(p.weights @ found.dual) <= 1e-4 * size
    assert size <= p.loss.lipschitz * (1 + 1e-9)


@every
@over
def test_delta_zero_is_plain_empirical_risk(kind, combination):
    case = Case(*combination, "tall")
    p = problem(case, 0.0)
    found = solution(kind(tol=1e-9), p)
    value = p.weights @ p.loss.value(p.X @ found.coef + found.intercept, p.y)
    assert_allclose(found.objective, value, rtol=1e-9)


@pytest.mark.parametrize("name", ["auto", "exact"])
def test_names_resolve_to_solvers_with_the_settings(name):
    found = solvers.resolve(name, 1e-5, 7)
    solver = getattr(found, "exact", found)
    assert (solver.tol, solver.max_iter) == (1e-5, 7)


def test_an_unknown_solver_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=r"unknown solver='newton'.*exact"):
        solvers.resolve("newton", 1e-6, 100)
