"""Costs that are no norm, as the solvers see them: prices and local matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...problem import Ball, Problem
from .inner_ascent import LocalRows

Array = NDArray[Any]

#: Entries of all local matrices up to which each row keeps its own.
OWN_UP_TO = 4_000_000
#: The rows whose matrices are averaged beyond that.
SHARED = 256
#: The first step of a difference, in standard deviations of its column, and the least deviation.
STEP, LEAST_UNIT = 0.1, 1e-12
#: The least and the largest power of the length of a move that a cost is taken to grow by.
DEGREES = (0.5, 8.0)
#: The least eigenvalue of a local matrix, relative to its largest.
LEAST = 1e-3


def local_rows(problem: Problem, X: Array) -> LocalRows:
    """Return the rows with their cost and its local matrices."""
    ball, cost = problem.ball, problem.ball.cost
    metric = None
    if cost.geometry == "local":
        if ball.order != 2:
            raise ValueError("a FeatureMap needs order=2, where its cost is a square near a row.")
        A = cost.shape(X)
        metric = None if cost.linearised else cost.quadratic_metric(X.shape[1])
    elif cost.euclidean:
        L = cost.factor()
        A = np.eye(X.shape[1]) if L is None else np.asarray(L @ L.T)
    else:
        if cost.geometry == "function":
            cost.verify(X)
        A = local_matrices(cost, X, ball)
    reach = ball.delta**0.5
    farthest = reach / float(problem.weights[problem.weights > 0].min()) ** 0.5
    return LocalRows(X, problem.y, problem.loss, cost, ball.order, A, reach, farthest, metric)


def local_matrices(cost: Cost, X: Array, ball: Ball) -> Array:
    """Return A with c(x + v, x) ~ v'Av at moves that cost about delta, by second differences.

    A is one matrix per row, or their mean where that would be large.
    """
    n, d = X.shape
    rows = X if n * d * d <= OWN_UP_TO else X[:: -(-n // SHARED)]
    unit = np.maximum(X.std(axis=0), LEAST_UNIT)
    steps = np.empty(d)
    for j in range(d):
        v = np.eye(d)[j] * unit[j] * STEP
        near, far = (float(cost.price(rows + t * v, rows, ball.order).mean()) for t in (1.0, 2.0))
        if near <= 0:
            raise ValueError(f"the cost does not charge for a move along column {j}.")
        # c grows like t^degree
        degree = np.clip(np.log2(far / near), *DEGREES)
        steps[j] = STEP * unit[j] * (ball.delta / near) ** (1 / degree)
    A = _second_differences(cost, rows, ball.order, steps)
    values, vectors = np.linalg.eigh(A)
    values = np.maximum(values, LEAST * values[:, -1:])
    A = np.einsum("nij,nj,nkj->nik", vectors, values, vectors)
    found: Array = A if len(rows) == n else A.mean(axis=0)
    return found


def _second_differences(cost: Cost, X: Array, order: int, steps: Array) -> Array:
    n, d = X.shape
    A = np.empty((n, d, d))
    moves = np.diag(steps)
    for j in range(d):
        A[:, j, j] = cost.price(X + moves[j], X, order) / steps[j] ** 2
        for k in range(j):
            plus = cost.price(X + moves[j] + moves[k], X, order)
            minus = cost.price(X + moves[j] - moves[k], X, order)
            A[:, j, k] = A[:, k, j] = (plus - minus) / (4 * steps[j] * steps[k])
    return A
