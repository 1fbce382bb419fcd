"""Problems under a Mahalanobis cost at order 2, as the tests of the smoothed solvers need them."""

import numpy as np

from otdro.costs import Mahalanobis
from otdro.problem import Ball, Problem


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
