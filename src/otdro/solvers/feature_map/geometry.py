"""Costs that are no norm, as the solvers see them: prices and local matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.callable import CallableCost
from ...problem import Problem
from .inner_ascent import LocalRows

Array = NDArray[Any]

#: Entries of all local matrices up to which each row keeps its own.
OWN_UP_TO = 4_000_000
#: The first step of a difference, in standard deviations of its column.
STEP = 0.1
#: The least eigenvalue of a local matrix, relative to its largest.
LEAST = 1e-3


def local_rows(problem: Problem, X: Array) -> LocalRows:
    """Return the rows with their cost, linearised if it says so, and its local matrices."""
    ball, cost = problem.ball, problem.ball.cost
    if problem.finite:
        raise ValueError("the smoothed dual moves mass in R^d; a finite support is solver='exact'.")
    metric = None
    if cost.geometry == "local":
        if ball.order != 2:
            raise ValueError("a FeatureMap needs order=2, where its cost is a square near a row.")
        A = cost.shape(X)
        price = LinearisedPrice(A) if cost.linearised else cost
        metric = None if cost.linearised else cost.quadratic_metric(X.shape[1])
    elif cost.geometry == "function":
        cost.verify(X)
        A = local_matrices(cost, X, ball.delta)
        price = cost
    else:
        if ball.order == 1:
            raise ValueError(
                "order=1 has a kink at the row that the smoothed dual resolves badly. Use "
                "solver='exact', or order=2."
            )
        price = CallableCost(Power(cost, ball.order))
        A = _matrix(cost, X) if cost.euclidean else local_matrices(price, X, ball.delta)
    reach = ball.delta**0.5
    farthest = reach / float(problem.weights[problem.weights > 0].min()) ** 0.5
    return LocalRows(X, problem.y, problem.loss, price, ball.order, A, reach, farthest, metric)


def _matrix(cost: Any, X: Array) -> Array:
    """Return Lam of a Euclidean cost."""
    L = cost.factor()
    return np.eye(X.shape[1]) if L is None else np.asarray(L @ L.T)


@dataclass(frozen=True, eq=False)
class LinearisedPrice:
    """The price (u - x)'A(x)(u - x) of a linearised cost."""

    A: Array

    def rows(self, index: Array) -> LinearisedPrice:
        """Return the prices of some rows."""
        return LinearisedPrice(self.A[index])

    def price(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return one price per row."""
        V = U - X
        return np.asarray(np.einsum("nd,nde,ne->n", V, self.A, V))

    def price_gradient(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return 2 A(x)(u - x)."""
        return np.asarray(2 * np.einsum("nde,ne->nd", self.A, U - X))


@dataclass(frozen=True, eq=False)
class Power:
    """The cost ||u - x||^order as a function of batches."""

    cost: Any
    order: int

    def __call__(self, U: Array, X: Array) -> Array:
        """Return one price per row."""
        return np.asarray(self.cost.norm(U - X) ** self.order)


def local_matrices(cost: CallableCost, X: Array, delta: float) -> Array:
    """Return A with c(x + v, x) ~ v'Av at moves that cost about delta.

    A is one matrix per row, or their mean where that would be large.
    """
    n, d = X.shape
    rows = X if n * d * d <= OWN_UP_TO else X[:: -(-n // 256)]
    unit = np.maximum(X.std(axis=0), 1e-12)
    steps = np.empty(d)
    for j in range(d):
        v = np.eye(d)[j] * unit[j] * STEP
        near, far = (float(cost.price(rows + t * v, rows).mean()) for t in (1.0, 2.0))
        if near <= 0:
            raise ValueError(f"the cost does not charge for a move along column {j}.")
        # c grows like t^degree
        degree = np.clip(np.log2(far / near), 0.5, 8.0)
        steps[j] = STEP * unit[j] * (delta / near) ** (1 / degree)
    A = _second_differences(cost, rows, steps)
    values, vectors = np.linalg.eigh(A)
    values = np.maximum(values, LEAST * values[:, -1:])
    A = np.einsum("nij,nj,nkj->nik", vectors, values, vectors)
    found: Array = A if len(rows) == n else A.mean(axis=0)
    return found


def _second_differences(cost: CallableCost, X: Array, steps: Array) -> Array:
    n, d = X.shape
    A = np.empty((n, d, d))
    moves = np.diag(steps)
    for j in range(d):
        A[:, j, j] = cost.price(X + moves[j], X) / steps[j] ** 2
        for k in range(j):
            plus = cost.price(X + moves[j] + moves[k], X)
            minus = cost.price(X + moves[j] - moves[k], X)
            A[:, j, k] = A[:, k, j] = (plus - minus) / (4 * steps[j] * steps[k])
    return A
