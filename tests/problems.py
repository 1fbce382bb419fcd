"""Problems under a Mahalanobis cost at order 2, and programs over all pairs of a finite support."""

import warnings

import numpy as np
import pytest

from otdro.costs import Mahalanobis
from otdro.losses import Absolute, Hinge, Huber, Logistic, Quantile, Squared, SquaredHinge
from otdro.problem import Ball, Problem
from strangers import LogCosh


def sample(n, d, loss, delta, seed=0, intercept=True):
    """Return n rows with targets of a linear model, labels by logistic noise."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d)) / np.sqrt(d)
    X, beta = rng.normal(size=(n, d)), 2 * rng.normal(size=d) / np.sqrt(d)
    if loss.task == "classification":
        y = np.where(X @ beta + rng.logistic(size=n) > 0, 1.0, -1.0)
    else:
        y = X @ beta + rng.normal(size=n)
    ball = Ball(Mahalanobis(A @ A.T + 0.5 * np.eye(d)), delta, 2)
    return Problem(X, y, np.full(n, 1 / n), loss, ball, intercept)


def support_places(problem):
    """Return the scaled nodes of a finite support with a column for the intercept, costs, rows.

    Costs are those of the rows that have weight, which are the last result.
    """
    X, S = (
        None if A is None else np.asarray(A.toarray() if hasattr(A, "toarray") else A)
        for A in (problem.X, problem.support)
    )
    nodes = X if S is None else np.vstack([X, S])
    cost = problem.ball.cost.distance_to_nodes(X, S) ** problem.ball.order
    np.fill_diagonal(cost, 0.0)
    if problem.fit_intercept:
        nodes = nodes - nodes.mean(axis=0)
    size = np.sqrt((nodes**2).mean(axis=0))
    nodes = nodes / np.where(size > 1e-12 * size.max(), size, 1.0)
    columns = np.column_stack([nodes, np.full(len(nodes), float(problem.fit_intercept))])
    moves = np.flatnonzero(problem.weights > 0)
    return columns, cost[moves], moves


def over_all_pairs(problem):
    """Return the value of cvxpy with Clarabel on every pair, and its accuracy.

    1e-7 where Clarabel reaches its tolerances; it does not for some of the largest and smallest
    deltas, and is then off by up to 2e-6. Where it breaks off, it takes shorter steps.
    """
    cp = pytest.importorskip("cvxpy")
    columns, cost, moves = support_places(problem)
    theta, lam = cp.Variable(columns.shape[1]), cp.Variable(nonneg=True)
    eta, z = cp.Variable(len(moves)), columns @ theta
    forms = {
        Logistic: lambda y: cp.logistic(-y * z),
        Hinge: lambda y: cp.pos(1 - y * z),
        SquaredHinge: lambda y: cp.square(cp.pos(1 - y * z)),
        Squared: lambda y: cp.square(y - z),
        Absolute: lambda y: cp.abs(y - z),
        Huber: lambda y: cp.huber(y - z, 1.35) / 2,
        Quantile: lambda y: cp.maximum(0.3 * (y - z), -0.7 * (y - z)),
        LogCosh: lambda y: cp.logistic(2 * (y - z)) - (y - z) - np.log(2),
    }
    form = forms[type(problem.loss)]
    pairs = enumerate(zip(problem.y[moves], cost, strict=True))
    limits = [form(y) - lam * c <= eta[i] for i, (y, c) in pairs]
    risk = lam * problem.ball.delta + problem.weights[moves] @ eta
    program = cp.Problem(cp.Minimize(risk), limits)
    accuracy = {"tol_gap_rel": 1e-9, "tol_gap_abs": 1e-9, "tol_feas": 1e-8}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        try:
            program.solve(solver="CLARABEL", **accuracy)
        except cp.SolverError:
            program.solve(solver="CLARABEL", **accuracy, max_step_fraction=0.9)
    return program.value, 1e-7 if program.status == "optimal" else 2e-6
