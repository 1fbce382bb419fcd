r"""A local cost itself: the least worst-case risk by quasi-Newton steps and an exchange of places.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \max_u
          \{\ell(u'\beta + b, y_i) - \lambda c(u, x_i)\}

Steps start from the linearised solution. The problem over the places that the adversary was seen
to use is convex, and its optimum is below the worst-case risk of every model: it says how far the
point found is from the best one, and where to go on.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...design import Design
from ...problem import Problem, Solution
from ..base import Method, constant_risk
from ..finite.support import solve_over_places
from .geometry import local_rows
from .inner_ascent import LocalRows, ascend_from, best_of, near_starts
from .linearised import ORDER_TWO_ONLY, linearised
from .worst import LocalWorst, worst_of_rows

Array = NDArray[Any]
logger = logging.getLogger("otdro")

#: Ascent steps to a maximum while a model is fitted.
STEPS = 60
#: Quasi-Newton steps, and the gradient at which they end.
QUASI_NEWTON, GRADIENT = 100, 1e-8
#: Exchanges of places, at most, and the places of a row that take part.
EXCHANGES, PLACES = 12, 8
#: The share of ``tol`` to which the problem over places is solved.
FINER = 0.1


class InnerAscent(Method):
    """A feature map itself, from its linearised solution."""

    geometries = frozenset({"local"})
    certifies = (
        "the excess over the least worst-case risk, for the quadratic features of up to three "
        "columns; else nothing: the inner problem is not concave"
    )

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1."""
        return ORDER_TWO_ONLY if problem.ball.order != 2 else None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        linear = linearised(problem, tol, max_iter, start)
        if not np.any(linear.coef):
            return linear
        return minimise_by_ascent(problem, linear, tol, max_iter)


def minimise_by_ascent(
    problem: Problem, linear: Solution, tol: float, max_iter: int
) -> Solution:
    """Minimise the worst-case risk from the linearised solution.

    ``converged`` says that no model has a risk lower by more than ``tol`` times the constant's,
    were the places found the only ones.
    """
    rows = local_rows(problem, Design(problem.X).dense())
    base = constant_risk(problem)[1]
    start = worst_of_rows(problem, rows, linear.coef, linear.intercept, linear.multiplier)
    run = Exchange(problem, rows, tol, max_iter)
    run.add(linear.coef, linear.intercept, start)
    n_iter = linear.n_iter + run.quasi_newton(linear.coef, linear.intercept, linear.multiplier)
    while run.excess > tol * base and run.rounds < EXCHANGES:
        n_iter += run.exchange()
    return run.solution(linear, start.risk, base, n_iter)


class Exchange:
    """The best model so far with its worst case, the places met, and a bound on every model."""

    def __init__(self, problem: Problem, rows: LocalRows, tol: float, max_iter: int) -> None:
        self.problem, self.rows, self.tol, self.max_iter = problem, rows, tol, max_iter
        self.places: list[Array] = []
        self.best: tuple[Array, float, LocalWorst] | None = None
        self.lower, self.rounds = 0.0, 0

    @property
    def excess(self) -> float:
        """How far the risk found is above the bound on every model."""
        return self.worst.risk - self.lower

    @property
    def worst(self) -> LocalWorst:
        """The worst case of the best model."""
        assert self.best is not None
        return self.best[2]

    def add(self, coef: Array, intercept: float, worst: LocalWorst) -> None:
        """Keep the places of a model, and the model if it is the best."""
        gain = worst.loss - worst.multiplier * worst.price
        top = np.argsort(-gain, axis=1)[:, :PLACES]
        each = np.arange(len(gain))
        self.places += [worst.points[each, k] for k in top.T]
        if self.best is None or worst.risk < self.worst.risk:
            self.best = (coef, intercept, worst)

    def quasi_newton(self, coef: Array, intercept: float, lam: float) -> int:
        """Minimise over (beta, b, log lam) with Danskin's gradient; return the steps."""
        first = np.concatenate([coef, [intercept, np.log(lam)]])
        risk = RiskOverPlaces(self.problem, self.rows, self._seen())
        found = minimize(
            risk,
            first,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": QUASI_NEWTON, "gtol": GRADIENT},
        )
        self._evaluate(found.x[:-2], float(found.x[-2]), float(np.exp(found.x[-1])))
        return int(found.nit)

    def exchange(self) -> int:
        """Minimise over the places met, raise the bound, and look at the model found there."""
        self.rounds += 1
        points = np.stack([self.rows.X, *self.places], axis=1)
        price = np.stack(
            [self.rows.cost.price(U, self.rows.X) for U in (self.rows.X, *self.places)], axis=1
        )
        found = solve_over_places(self.problem, points, price, FINER * self.tol, self.max_iter)
        self.lower = max(self.lower, found.objective - found.gap)
        if self.excess <= self.tol * constant_risk(self.problem)[1] or not np.any(found.coef):
            return found.n_iter
        self._evaluate(found.coef, found.intercept, found.multiplier)
        return found.n_iter

    def _evaluate(self, coef: Array, intercept: float, lam: float) -> None:
        worst = worst_of_rows(self.problem, self.rows, coef, intercept, lam, self._seen())
        self.add(coef, intercept, worst)

    def _seen(self) -> list[Array]:
        """Return the places of the best model, as starts."""
        return self.places[:PLACES]

    def solution(self, linear: Solution, start: float, base: float, n_iter: int) -> Solution:
        """Return the best model, and what is known of its risk."""
        assert self.best is not None
        coef, intercept, _ = self.best
        worst = worst_of_rows(self.problem, self.rows, coef, intercept)
        converged = worst.risk - self.lower <= self.tol * base
        message = "\n".join([f"risk {worst.risk} lower {self.lower} upper {worst.upper} rounds {self.rounds} start {start}"])
        gap = worst.upper - self.lower
        return Solution(
            coef, intercept, worst.multiplier, worst.risk, gap, n_iter, bool(converged), message
        )


class RiskOverPlaces:
    """The worst-case risk and its gradient in (beta, b, log lam), by ascent."""

    def __init__(self, problem: Problem, rows: LocalRows, seen: list[Array]) -> None:
        self.problem, self.rows, self.seen = problem, rows, seen

    def __call__(self, v: Array) -> tuple[float, Array]:
        """Return value and gradient at v."""
        p, rows, delta = self.problem, self.rows, self.problem.ball.delta
        beta, b, lam = v[:-2], float(v[-2]), float(np.exp(np.clip(v[-1], -30, 30)))
        starts = near_starts(rows, beta, b, lam) + self.seen
        U = best_of(rows, ascend_from(rows, starts, beta, b, lam, STEPS), beta, b, lam)
        z = U @ beta + b
        slope = p.weights * p.loss.derivative(z, p.y)
        price = rows.cost.price(U, rows.X, rows.order)
        value = lam * delta + p.weights @ (p.loss.value(z, p.y) - lam * price)
        tail = [slope.sum() * p.fit_intercept, lam * (delta - p.weights @ price)]
        return float(value), np.concatenate([U.T @ slope, tail])
