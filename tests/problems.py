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
