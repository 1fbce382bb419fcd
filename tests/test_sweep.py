"""The path and the folds of many rows from shared passes, and costs compared on a part of them."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.model_selection import ShuffleSplit

from otdro import DROClassifier
from otdro.costs import Mahalanobis, Norm
from otdro.losses import Logistic
from otdro.problem import Ball, Problem, Sample
from otdro.radius.folds import COMPARE_ON, compared, splits
from otdro.radius.grid import default_deltas
from otdro.solvers import Exact
from solving import solution

N, D = 2_100, 5


def rows(n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.5, 2, d) + 0.3
    return X, np.where(X @ np.linspace(1, -1, d) + rng.logistic(size=n) > 0, 1.0, -1.0)


def sample_of(X, y, fit_intercept=True, weights=None):
    weights = np.full(len(y), 1 / len(y)) if weights is None else weights / weights.sum()
    return Sample(X, [y], weights, Logistic(), fit_intercept)


def costs_of(folds, d=D):
    rng = np.random.default_rng(1)
    factors = [np.eye(d) + 0.1 * rng.normal(size=(d, d)) for _ in range(folds)]
    return [Mahalanobis(L @ L.T) for L in factors]


def train_problem(sample, train, cost, delta):
    weights = np.zeros_like(sample.weights)
    weights[train] = sample.weights[train] / sample.weights[train].sum()
    return Problem(
        sample.X, sample.ys[0], weights, sample.loss, Ball(cost, delta, 1), sample.fit_intercept
    )


def solved(sample, trains, costs, deltas, solver, fold_tol):
    """Return the path over all rows under the Euclidean cost, and that of every fold."""
    every = [(np.arange(len(sample.weights)), Norm(2)), *zip(trains, costs, strict=True)]
    problems = [train_problem(sample, *pair, float(deltas[0])) for pair in every]
    path, *folds = solver.solve(problems, deltas, tols=[0.0, *[fold_tol] * len(trains)])
    return path, folds


def risk(problem, model):
    return problem.weights @ problem.loss.value(
        problem.X @ model.coef + model.intercept, problem.y
    ) + problem.ball.delta * problem.ball.cost.dual_norm(model.coef)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", ["dense", "sparse", "float32"])
def test_gaps_bound_the_excess_of_path_and_folds(kind, fit_intercept):
    X, y = rows()
    if kind == "sparse":
        X = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
    elif kind == "float32":
        X = X.astype(np.float32)
    sample = sample_of(X, y, fit_intercept, weights=np.linspace(1, 2, N))
    trains = [train for train, _ in splits(sample, 4, None, 0)]
    deltas = default_deltas(sample, Norm(2), 1)[::4]
    costs, solver = costs_of(4), Exact(tol=1e-7)
    path, folds = solved(sample, trains, costs, deltas, solver, 1e-4)
    every = [(np.arange(N), Norm(2), path, 1e-7)]
    every += [(t, c, f, 1e-4) for t, c, f in zip(trains, costs, folds, strict=True)]
    for train, cost, found, tol in every:
        for delta, mine in zip(deltas, found, strict=True):
            problem = train_problem(sample, train, cost, float(delta))
            least = solution(Exact(tol=1e-11), problem)
            excess = risk(problem, mine) - least.objective
            assert -1e-10 <= excess <= mine.gap + 1e-10
            assert mine.converged
            assert mine.gap <= tol * np.log(2)
            assert_allclose(mine.objective, risk(problem, mine), rtol=1e-6)
    assert [s.objective for s in path] == pytest.approx(
        [
            risk(train_problem(sample, np.arange(N), Norm(2), t), s)
            for t, s in zip(deltas, path, strict=True)
        ],
        rel=1e-9,
    )


def test_gaps_bound_the_excess_of_many_deltas():
    X, y = rows()
    sample = sample_of(X, y)
    trains = [train for train, _ in splits(sample, 3, None, 0)]
    deltas, costs = np.geomspace(1e-2, 1e-5, 12), costs_of(3)
    path, folds = solved(sample, trains, costs, deltas, Exact(), 1e-4)
    every = [(np.arange(N), Norm(2), path, 1e-6)]
    every += [(t, c, f, 1e-4) for t, c, f in zip(trains, costs, folds, strict=True)]
    for train, cost, found, tol in every:
        for delta, mine in zip(deltas, found, strict=True):
            problem = train_problem(sample, train, cost, float(delta))
            excess = risk(problem, mine) - solution(Exact(tol=1e-11), problem).objective
            assert -1e-10 <= excess <= mine.gap + 1e-10
            assert mine.gap <= tol * np.log(2)


def test_a_swept_fold_is_the_solution_of_cvxpy():
    X, y = rows()
    sample = sample_of(X, y)
    trains = [train for train, _ in splits(sample, 3, None, 0)]
    deltas, costs = np.array([0.1]), costs_of(3)
    _, folds = solved(sample, trains, costs, deltas, Exact(tol=1e-8), 1e-8)
    beta, b, t = cp.Variable(D), cp.Variable(), trains[0]
    half = np.linalg.inv(np.linalg.cholesky(costs[0].matrix))
    loss = cp.sum(cp.logistic(-cp.multiply(y[t], X[t] @ beta + b))) / len(t)
    least = cp.Problem(cp.Minimize(loss + 0.1 * cp.norm(half @ beta)))
    least.solve(solver=cp.CLARABEL)
    problem = train_problem(sample, t, costs[0], 0.1)
    assert_allclose(risk(problem, folds[0][0]), least.value, rtol=1e-7)


def test_rows_that_no_fold_tests_and_rows_tested_twice():
    X, y = rows()
    sample = sample_of(X, y)
    deltas, solver = default_deltas(sample, Norm(2), 1)[5:8], Exact(tol=1e-7)
    once = [np.arange(300, N)]
    for trains in (once, [np.arange(300, N), np.arange(200, N)]):
        _, folds = solved(sample, trains, [Norm(2)] * len(trains), deltas, solver, 1e-5)
        for train, found in zip(trains, folds, strict=True):
            problem = train_problem(sample, train, Norm(2), float(deltas[1]))
            least = solution(Exact(tol=1e-10), problem)
            assert risk(problem, found[1]) - least.objective <= 1e-5


def test_deltas_far_below_the_threshold_are_found_from_nowhere():
    X, y = rows(seed=3)
    X[:, 0] *= 100
    sample = sample_of(X, y)
    trains = [train for train, _ in splits(sample, 3, None, 0)]
    deltas = np.array([1e-4, 1e-6])
    path, folds = solved(sample, trains, [Norm(2)] * 3, deltas, Exact(), 1e-4)
    assert all(s.converged for way in [path, *folds] for s in way)


def test_rows_without_weight_prove_nothing():
    X, y = rows(seed=4)
    weights = np.ones(N)
    weights[::10] = 0.0
    X[::10] *= 30
    sample = sample_of(X, y, weights=weights)
    trains = [train for train, _ in splits(sample, 3, None, 0)]
    deltas = default_deltas(sample, Norm(2), 1)
    path, _ = solved(sample, trains, [Norm(2)] * 3, deltas, Exact(), 1e-4)
    for delta, found in zip(deltas, path, strict=True):
        problem = train_problem(sample, np.arange(N), Norm(2), float(delta))
        excess = risk(problem, found) - solution(Exact(tol=1e-11), problem).objective
        assert excess <= found.gap + 1e-11
        assert found.converged


def test_repeated_columns_of_any_scale_are_solved():
    X, y = rows(d=20, seed=5)
    X = X * np.geomspace(1, 1e7, 20)
    sample = sample_of(np.column_stack([X, X[:, -3:]]), y)
    trains = [train for train, _ in splits(sample, 3, None, 0)]
    deltas = default_deltas(sample, Norm(2), 1)[0] * np.geomspace(1, 1e-9, 10)
    path, folds = solved(sample, trains, [Norm(2)] * 3, deltas, Exact(), 1e-4)
    assert all(s.converged for way in [path, *folds] for s in way)


def test_a_fit_of_many_rows_is_certified_and_its_path_is_whole():
    X, y = rows(2_600, 6)
    model = DROClassifier().fit(X, y)
    path = model.path_
    assert path.deltas.shape == path.score_mean.shape == (20,)
    assert max(path.gap.max(), model.gap_) <= 1e-6
    j = int(np.flatnonzero(path.deltas == model.delta_)[0])
    assert_allclose(path.coef[j], model.coef_[0])
    assert_allclose(path.robust_risk[j], model.robust_risk_)
    z = X @ path.coef.T + path.intercept
    assert_allclose(path.empirical_risk, Logistic().value(z, y[:, None]).mean(axis=0), rtol=1e-9)
    assert model.worst_case().risk == pytest.approx(model.robust_risk_, rel=0.05)
    assert len(path.candidates[0].deltas) < 20 == len(path.candidates[-1].deltas)
    assert_allclose(sum(model.cost_.weights_.values()), 1.0)
    given = DROClassifier(cv=ShuffleSplit(3, random_state=0)).fit(X, y)
    assert given.gap_ <= 1e-6


def test_few_rows_are_compared_whole_and_many_in_part():
    X, y = rows(2 * COMPARE_ON)
    sample = sample_of(X, y)
    folds = splits(sample, 5, None, 0)
    assert compared(sample, folds)[0] is sample
    X, y = rows(3_000)
    sample = sample_of(X, y)
    folds = splits(sample, 5, None, 0)
    part, fewer = compared(sample, folds)
    assert len(part.weights) == COMPARE_ON == sum(len(test) for _, test in fewer)
    for (train, test), (few, tested) in zip(folds, fewer, strict=True):
        assert {tuple(row) for row in part.X[few]} <= {tuple(row) for row in X[train]}
        assert {tuple(row) for row in part.X[tested]} <= {tuple(row) for row in X[test]}
    rare = np.where(np.arange(3_000) < 10, 1.0, -1.0)
    sample = sample_of(X, rare)
    assert compared(sample, splits(sample, 5, None, 0))[0] is sample
