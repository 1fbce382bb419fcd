r"""A local cost itself: the least worst-case risk by quasi-Newton steps and an exchange of places.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \max_u
          \{\ell(u'\beta + b, y_i) - \lambda c(u, x_i)\}

Steps start from the linearised solution. The problem over the places that the adversary was seen
to use is convex, and its optimum is below the worst-case risk of every model: it says how far the
point found is from the best one, and where to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...design import Design
from ...problem import Problem, Solution
from ...progress import logger
from ..base import Method, constant_risk, constant_solution
from ..finite.support import solve_over_places
from .geometry import local_rows
from .inner_ascent import LocalRows, ascend_from, next_starts
from .linearised import ORDER_TWO_ONLY, lacks_loss, linearised, zero_direction
from .worst import LocalWorst, worst_of_rows

Array = NDArray[Any]

#: Ascent steps to a maximum while a model is fitted.
STEPS = 60
#: Quasi-Newton steps, and the gradient at which they end.
QUASI_NEWTON, GRADIENT = 100, 1e-8
#: Exchanges of places, at most, and the places of a row that a model adds.
EXCHANGES, PLACES = 30, 4
#: Columns above which no exchange can prove much, and the exchanges there.
MANY_COLUMNS, FEW_EXCHANGES = 10, 3
#: Places closer than this, relative to the size of a row, are one place.
SAME = 1e-5
#: The shares of ``tol`` for the problem over places, for the bound above the risk, and for the
#: excess over the bound below it: their sum is less than one.
OVER_PLACES, ABOVE, BELOW = 0.1, 0.3, 0.5
#: Logarithms of multipliers stay here, whatever a line search tries.
LOG_MULTIPLIERS = (-30.0, 30.0)
#: The spread of scores of a model near the constant one.
SMALL = 0.1


class InnerAscent(Method):
    """A feature map itself, from its linearised solution."""

    geometries = frozenset({"local"})
    certifies = (
        "the excess over the least worst-case risk, for the quadratic features of up to three "
        "columns; else nothing: the inner problem is not concave"
    )

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1."""
        return ORDER_TWO_ONLY if problem.ball.order != 2 else lacks_loss(problem.loss)

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        linear = linearised(problem, tol, max_iter, start)
        found = minimise_by_ascent(problem, linear, tol, max_iter)
        logger.info("feature map: %s", found.message)
        return found


def minimise_by_ascent(problem: Problem, linear: Solution, tol: float, max_iter: int) -> Solution:
    """Minimise the worst-case risk from the linearised solution.

    ``converged`` says that no model has a risk lower by more than ``tol`` times the constant's.
    """
    run = Exchange(problem, tol, max_iter)
    n_iter = linear.n_iter
    if np.any(linear.coef):
        point = (linear.coef, linear.intercept, linear.multiplier)
        start = run.look(*point).risk
        n_iter += run.quasi_newton(*point)
    else:
        start = linear.objective
        coef = small_model(problem)
        if not np.any(coef):
            return linear
        run.look(coef, linear.intercept, 0.0)
    most = FEW_EXCHANGES if problem.X.shape[1] > MANY_COLUMNS else EXCHANGES
    while not run.done and run.rounds < most:
        n_iter += run.exchange()
    return run.solution(start, linear.objective, n_iter)


@dataclass(frozen=True, eq=False)
class TriedModel:
    """A model and its worst-case risk."""

    coef: Array
    intercept: float
    risk: float


class Exchange:
    """The best model so far, the places met, and a bound below the risk of every model."""

    def __init__(self, problem: Problem, tol: float, max_iter: int) -> None:
        self.problem, self.tol, self.max_iter = problem, tol, max_iter
        self.rows = local_rows(problem, Design(problem.X).dense())
        b, self.base = constant_risk(problem)
        self.best = TriedModel(np.zeros(self.rows.X.shape[1]), b, self.base)
        self.points = [self.rows.X]
        self.lower, self.rounds = 0.0, 0

    @property
    def done(self) -> bool:
        """Whether no model is much better than the best."""
        return self.best.risk - self.lower <= BELOW * self.tol * self.base

    def look(self, coef: Array, intercept: float, lam: float) -> LocalWorst:
        """Find the worst case of a model; keep its places, and the model if it is the best."""
        seen = self.points[-PLACES:] if len(self.points) > PLACES else []
        worst = worst_of_rows(self.problem, self.rows, coef, intercept, lam, seen)
        self.points += distinct(worst, self.rows.X)
        if worst.risk < self.best.risk:
            self.best = TriedModel(coef, intercept, worst.risk)
        return worst

    def quasi_newton(self, coef: Array, intercept: float, lam: float) -> int:
        """Minimise over (beta, b, log lam) with Danskin's gradient; return the steps."""
        first = np.concatenate([coef, [intercept, np.log(lam)]])
        found = minimize(
            RiskByAscent(self.problem, self.rows, self.points[-PLACES:]),
            first,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": QUASI_NEWTON, "gtol": GRADIENT},
        )
        self.look(found.x[:-2], float(found.x[-2]), float(np.exp(found.x[-1])))
        return int(found.nit)

    def exchange(self) -> int:
        """Minimise over the places met, raise the bound, and look at the model found there."""
        self.rounds += 1
        points = np.stack(self.points, axis=1)
        price = np.stack([self.rows.price(U) for U in self.points], axis=1)
        tol = OVER_PLACES * self.tol
        found = solve_over_places(self.problem, points, price, tol, self.max_iter)
        self.lower = max(self.lower, found.objective - found.gap)
        if not self.done and np.any(found.coef):
            # half of the way: the optimum over places jumps where they say little
            coef = (self.best.coef + found.coef) / 2
            self.look(coef, (self.best.intercept + found.intercept) / 2, found.multiplier)
        return found.n_iter

    def solution(self, start: float, linearised: float, n_iter: int) -> Solution:
        """Return the best model with the worst case that any later evaluation finds too.

        ``start`` is the risk of the linearised solution under the cost, ``linearised`` its own.
        """
        best, target = self.best, self.tol * self.base
        if not np.any(best.coef):
            gap = max(best.risk - self.lower, 0.0)
            found = replace(constant_solution(self.problem), gap=gap, n_iter=n_iter)
            return replace(found, converged=bool(gap <= target))
        slack = ABOVE * target / best.risk
        worst = worst_of_rows(self.problem, self.rows, best.coef, best.intercept, slack=slack)
        gap = max(worst.upper - self.lower, 0.0)
        excess = max(worst.risk, best.risk) - self.lower
        known = _risk(worst, self.rows.X.shape[1], target)
        report = (
            f"feature map itself, row by row: {known}; no model has less than "
            f"{self.lower:.7g}; the linearised solution has {start:.6g} under this cost "
            f"({linearised:.6g} under its own), a difference of "
            f"{(start - worst.risk) / self.base:.2g} of the constant's risk"
        )
        if excess > target:
            report = f"stopped {excess:.3g} above the bound on every model ({report})"
        return Solution(
            coef=best.coef,
            intercept=best.intercept,
            multiplier=worst.multiplier,
            objective=worst.risk,
            gap=gap,
            n_iter=n_iter,
            converged=bool(excess <= target),
            message=report,
        )


def _risk(worst: LocalWorst, d: int, target: float) -> str:
    """Return what is known of a risk, as a clause."""
    if worst.upper - worst.risk <= target:
        return f"worst-case risk {worst.risk:.7g}, at most {worst.upper:.7g}"
    above = f"at most {worst.upper:.4g}" if np.isfinite(worst.upper) else "no bound above is known"
    return (
        f"worst-case risk {worst.risk:.7g} by a search in {d} columns, which may miss a far move: "
        f"a bound below, {above}"
    )


def distinct(worst: LocalWorst, X: Array) -> list[Array]:
    """Return up to PLACES places of each row that differ, those of the largest gains first."""
    gain = worst.loss - worst.multiplier * worst.price
    order = np.argsort(-gain, axis=1)
    each = np.arange(len(X))
    best = worst.points[each, order[:, 0]]
    found = np.repeat(best[:, None], PLACES, axis=1)
    used = np.ones(len(X), dtype=int)
    near = SAME * (1 + np.linalg.norm(X, axis=1))
    for k in order.T[1:]:
        U = worst.points[each, k]
        apart = np.linalg.norm(found - U[:, None], axis=2).min(axis=1)
        new = (apart > near) & (used < PLACES)
        found[new, used[new]] = U[new]
        used[new] += 1
    return list(np.swapaxes(found, 0, 1))


def small_model(problem: Problem) -> Array:
    """Return coefficients near zero along which the linearised risk falls first."""
    _, direction = zero_direction(problem)
    z = Design(problem.X).scores(direction)
    spread = float(np.sqrt(problem.weights @ (z - problem.weights @ z) ** 2))
    return np.asarray(-SMALL * direction / spread) if spread > 0 else np.zeros_like(direction)


class RiskByAscent:
    """The worst-case risk and its gradient in (beta, b, log lam), by ascent."""

    def __init__(self, problem: Problem, rows: LocalRows, seen: list[Array]) -> None:
        self.problem, self.rows, self.seen = problem, rows, seen
        self.last: list[Array] = []

    def __call__(self, v: Array) -> tuple[float, Array]:
        """Return value and gradient at v."""
        p, rows, delta = self.problem, self.rows, self.problem.ball.delta
        beta, b = v[:-2], float(v[-2])
        lam = float(np.exp(np.clip(v[-1], *LOG_MULTIPLIERS)))
        starts = [*next_starts(rows, self.last, beta, b, lam), *self.seen]
        self.last = ascend_from(rows, starts, beta, b, lam, STEPS)
        U = self.last[0]
        z = U @ beta + b
        slope = p.weights * p.loss.derivative(z, p.y)
        price = rows.price(U)
        value = lam * delta + p.weights @ (p.loss.value(z, p.y) - lam * price)
        tail = [slope.sum() * p.fit_intercept, lam * (delta - p.weights @ price)]
        return float(value), np.concatenate([U.T @ slope, tail])
