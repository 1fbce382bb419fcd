"""Costs that are no norm, as the solvers see them: prices, local matrices, worst case by ascent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.callable import CallableCost
from ...costs.feature_map import FeatureMap
from ...duality import Tangent, least
from ...problem import Problem
from .inner_ascent import Terrain, maximisers

Array = NDArray[Any]

#: Entries of all local matrices up to which each row keeps its own.
OWN_UP_TO = 4_000_000
#: Ascent steps to a maximum.
ASCENT = 200


def landscape(problem: Problem, X: Array) -> Terrain:
    """Return the rows with their cost, linearised if it says so, and its local matrices."""
    ball, cost = problem.ball, problem.ball.cost
    reach = ball.delta**0.5
    if problem.finite:
        raise ValueError("the smoothed dual moves mass in R^d; a finite support is solver='exact'.")
    if isinstance(cost, FeatureMap):
        if ball.order != 2:
            raise ValueError("a FeatureMap needs order=2, where its cost is a square near a row.")
        A = cost.shape(X)
        price = cost if cost.polish else LinearisedPrice(A)
        return Terrain(X, problem.y, problem.loss, price, 2, A, reach)
    if not isinstance(cost, CallableCost):
        if ball.order == 1:
            raise ValueError(
                "order=1 has a kink at the row that the smoothed dual resolves badly. Use "
                "solver='exact', or order=2."
            )
        power = CallableCost(Power(cost, ball.order))
        if cost.euclidean:
            L = cost.factor()
            A = np.eye(X.shape[1]) if L is None else L @ L.T
            return Terrain(X, problem.y, problem.loss, power, ball.order, A, reach)
        cost = power
    cost.verify(X)
    A = local_matrices(cost, X, ball.delta)
    return Terrain(X, problem.y, problem.loss, cost, ball.order, A, reach)


@dataclass(frozen=True, eq=False)
class LinearisedPrice:
    """The price (u - x)'A(x)(u - x) of a linearised cost."""

    A: Array

    def rows(self, index: Array) -> LinearisedPrice:
        """Return the prices of some rows."""
        return LinearisedPrice(self.A[index])

    def price(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return one price a row."""
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
        """Return one price a row."""
        return np.asarray(self.cost.norm(U - X) ** self.order)


def worst(
    problem: Problem, terrain: Terrain, beta: Array, b: float, lam: float = 0.0
) -> tuple[float, float]:
    """Return the best lam and the worst-case risk there, by ascent in u, from a start if given.

    The dual is convex in lam, with the slope delta - E c at the maximisers.
    """
    delta, pi = problem.ball.delta, problem.weights

    def tangent(lam: float) -> Tangent:
        U = maximisers(terrain, beta, b, lam, ASCENT)
        price = terrain.cost.price(U, terrain.X, terrain.order)
        value = lam * delta + float(pi @ terrain.gain(U, beta, b, lam))
        return Tangent(lam, value, delta - float(pi @ price))

    if not lam > 0:
        # the linearised cost, were every slope as at the row: E (l' w)^2 = 4 lam^2 delta
        slope = terrain.loss.derivative(terrain.X @ beta + b, terrain.y)
        square = float(pi @ ((terrain.push(beta) @ beta) * slope**2))
        lam = float(np.sqrt(square / (4 * delta))) + 1e-12
    found = least(tangent, lam, rtol=1e-9)
    return found.lam, found.value


def local_matrices(cost: CallableCost, X: Array, delta: float) -> Array:
    """Return A with c(x + v, x) ~ v'Av at moves that cost about delta.

    A is one matrix a row, or their mean where that would be large.
    """
    n, d = X.shape
    rows = X if n * d * d <= OWN_UP_TO else X[:: -(-n // 256)]
    unit = np.maximum(X.std(axis=0), 1e-12)
    steps = np.empty(d)
    for j in range(d):
        v = np.eye(d)[j] * unit[j] * 0.1
        near, far = (float(cost.price(rows + t * v, rows).mean()) for t in (1.0, 2.0))
        if near <= 0:
            raise ValueError(f"the cost does not charge for a move along column {j}.")
        # c grows like t^degree
        degree = np.clip(np.log2(far / near), 0.5, 8.0)
        steps[j] = 0.1 * unit[j] * (delta / near) ** (1 / degree)
    A = _second_differences(cost, rows, steps)
    values, vectors = np.linalg.eigh(A)
    values = np.maximum(values, 1e-3 * values[:, -1:])
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
