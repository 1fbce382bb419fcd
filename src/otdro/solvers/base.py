"""The contract of a solver, and the coordinates in which a Euclidean problem is round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator

from ..design import Design, mean, row_space
from ..problem import Problem, Solution

Array = NDArray[Any]

#: Entries of Z up to which a wide problem (d > n) is reduced to the span of its rows.
REDUCE_UP_TO = 50_000_000


class Solver(BaseEstimator):  # type: ignore[misc]
    """Problem in, Solution out; parameters are stored, never written."""

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Minimise the worst-case risk, from ``start`` where the method can use one."""
        raise NotImplementedError


class Coordinates:
    r"""Whitened, centred coordinates: :math:`\beta = LV\theta`, :math:`\|\beta\|_* = \|\theta\|_2`.

    L is the factor of the cost, V spans the rows of a wide problem (else the identity), and the
    intercept is that of the centred rows, :math:`b + \bar x'\beta`.
    """

    def __init__(self, problem: Problem) -> None:
        self.center = mean(problem.X, problem.weights) if problem.fit_intercept else None
        self.factor = problem.ball.cost.factor()
        self.design = Design(problem.X, self.factor, self.center)
        self.basis: Array | None = None
        n, d = self.design.n, self.design.d
        if d > n and n * d <= REDUCE_UP_TO:
            self.design, self.basis = row_space(self.design)

    def theta(self, coef: Array) -> Array:
        """Return the coordinates of coefficients beta."""
        theta = coef if self.factor is None else solve_triangular(self.factor, coef, lower=True)
        return theta if self.basis is None else self.basis.T @ theta

    def coef(self, theta: Array) -> Array:
        """Return beta = L V theta."""
        theta = theta if self.basis is None else self.basis @ theta
        return theta if self.factor is None else self.factor @ theta

    def intercept(self, b: float, coef: Array) -> float:
        """Return the intercept on the rows as given, from that on centred rows."""
        return float(b if self.center is None else b - self.center @ coef)

    def centred(self, intercept: float, coef: Array) -> float:
        """Return the intercept on centred rows, from that on the rows as given."""
        return float(intercept if self.center is None else intercept + self.center @ coef)


def constant_risk(problem: Problem) -> tuple[float, float]:
    """Return the best constant score (0 without an intercept) and its risk, the unit of ``tol``."""
    y, weights = problem.y, problem.weights
    b = problem.loss.constant(y, weights) if problem.fit_intercept else 0.0
    if problem.loss.task == "classification":
        positive = float(weights[y > 0].sum())
        y, weights = np.array([-1.0, 1.0]), np.array([1 - positive, positive])
    return b, float(weights @ problem.loss.value(np.full(len(y), b), y))


def verdict(gap: float, target: float, what: str = "") -> str:
    """Return the message of a solution."""
    if gap <= target:
        return f"gap {gap:.3g} is within the target {target:.3g}"
    return f"stopped with gap {gap:.3g} above the target {target:.3g}{what}"
