r"""The path and the folds of many rows, from about one pass over the rows per delta.

The mean loss about a point is a quadratic model, a sum over the rows, so that the model of a
fold is that of all rows less that of the rows it holds out. What a fold does at a delta,

.. math:: \min_{v, c}\ g'v + sc + \tfrac12\textstyle\sum_i \pi_i D_i(z_i'v + c)^2
          + \rho\|L^{-1}(\beta + v)\|_2,

then needs no rows at all. Slopes continued along the step, a + D t with t = z'v + c, are a point of
the dual problem, and the gap is :math:`\sum_i \pi_i (\ell(z + t) + \ell^*(a + Dt) - (a + Dt)(z +
t))`. For a loss with :math:`|\ell'''| \le \ell''` the slope at z + t is at most :math:`r =
D(e^{|t|} - 1 - |t|)` from a + Dt, the curvature there at least :math:`m = De^{-|t|}`, and where the
slope is s away at least m - s. So each term is at most :math:`\int_0^r (r - s)/(m - s)\,ds =
De^{-|t|}\omega(q)`, :math:`q = r/m` and :math:`\omega(q) = q + (1 - q)\log(1 - q)`: of order
:math:`D t^4/8`, and known without another value of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ...arrays import library
from ...costs import Cost
from ...costs.low_rank import shortest
from ...design import Design, mean
from ...duality import AT_THRESHOLD
from ...problem import Problem, Solution
from ..base import ahead, constant_risk, duality_gap, verdict

Array = NDArray[Any]

#: Rows from which folds are swept, how many of them a column, and columns at most: a sweep forms
#: one Gram matrix a delta, which few columns make cheaper than passes over the rows.
ROWS_FROM, PER_COLUMN, COLUMNS_UP_TO = 2_001, 10, 256
#: Steps over all rows, or of a fold from points of its own, before another method takes over.
OWN_STEPS = 4
#: Moves of a score up to which the bound on a row holds, with room (q < 1).
REACH = 0.7
#: The norm of the shrunken solution is met to this, and the steps towards it.
SECULAR_TOL, SECULAR_STEPS = 1e-13, 100


def applies(problem: Problem) -> bool:
    """Whether the folds of a problem are swept: many rows, few columns, a loss of steady bend.

    Rows on a device are not: there passes are cheap, and Newton's steps stay beside the rows.
    """
    n, d = problem.X.shape
    fits = n >= max(ROWS_FROM, PER_COLUMN * d) and d <= COLUMNS_UP_TO
    steady = problem.loss.steady and problem.ball.delta > 0
    return bool(fits and steady and library(problem.X) is None)


@dataclass(eq=False)
class QuadraticModel:
    """The sums over some rows of their weights, losses, slopes and curvatures at a point.

    ``gradient`` (d + 1,) and ``matrix`` (d + 1, d + 1) have the intercept as last entry.
    """

    mass: float
    value: float
    gradient: Array
    matrix: Array

    def __add__(self, other: QuadraticModel) -> QuadraticModel:
        return QuadraticModel(
            self.mass + other.mass,
            self.value + other.value,
            self.gradient + other.gradient,
            self.matrix + other.matrix,
        )

    def __sub__(self, other: QuadraticModel) -> QuadraticModel:
        return self + other.times(-1.0)

    def times(self, c: float) -> QuadraticModel:
        """Return c times the model."""
        return QuadraticModel(c * self.mass, c * self.value, c * self.gradient, c * self.matrix)

    def after(self, step: Array) -> float:
        """Return the value of the model after a step."""
        return float(self.value + self.gradient @ step + step @ self.matrix @ step / 2)


class Part:
    """The rows that one fold holds out, with scores, slopes and curvatures at the last point.

    Those without weight are left out: they may have any slope.
    """

    def __init__(self, problem: Problem, rows: Array, center: Array | None) -> None:
        rows = rows[problem.weights[rows] > 0]
        self.design = Design(problem.X[rows], center=center)
        self.y, self.weights, self.loss = problem.y[rows], problem.weights[rows], problem.loss

    def model(self, point: Array) -> QuadraticModel:
        """Return the quadratic model at a point (beta, b)."""
        self.z = self.design.scores(point[:-1]) + point[-1]
        value, self.slope, self.curvature = self.loss.evaluate(self.z, self.y)
        self.bend, push = self.weights * self.curvature, self.weights * self.slope
        G, h = self.design.moments_again(self.bend)
        gradient = np.append(self.design.adjoint(push), push.sum())
        matrix = np.block([[G, h[:, None]], [h[None, :], self.bend.sum()]])
        total = float(self.weights.sum())
        return QuadraticModel(total, float(self.weights @ value), gradient, matrix)

    def moves(self, steps: Array) -> tuple[float, Array]:
        """Return the largest |t| over rows and ``steps``, and sum pi D t^4 for each step."""
        t = self.design.scores(steps[:-1])
        t += steps[-1]
        return self._spread(t)

    def after(self, step: Array) -> tuple[float, float, Array]:
        """Return the sum of pi l(z + t), and what ``moves`` returns of this step."""
        t = self.design.scores(step[:-1])
        t += step[-1]
        loss = float(self.weights @ self.loss.value(self.z + t, self.y))
        return loss, *self._spread(t)

    def _spread(self, t: Array) -> tuple[float, Array]:
        np.square(t, out=t)
        reach = float(np.sqrt(t.max()))
        return reach, self.bend @ np.square(t, out=t)

    def excess(self, step: Array) -> float:
        """Return the sum of pi (l(z + t) + l*(a + D t) - (a + D t)(z + t)) itself."""
        t = self.design.scores(step[:-1]) + step[-1]
        a, z = self.slope + self.curvature * t, self.z + t
        terms = self.loss.value(z, self.y) + self.loss.conjugate(a, self.y) - a * z
        return duality_gap(float(self.weights @ terms), 0.0)


def bound(reach: float, quartic: Array) -> Array:
    """Return the largest gap that moves of at most ``reach`` allow, inf where that is too far.

    e^-t omega(q(t))/t^4 rises with t from 1/8.
    """
    t = np.clip(reach, 1e-3, REACH)
    q = np.exp(t) * (np.expm1(t) - t)
    omega = q + (1 - q) * np.log1p(-q)
    return np.where(reach <= REACH, np.exp(-t) * omega / t**4 * quartic, np.inf)


def minimiser(
    model: QuadraticModel, point: Array, factor: Any, rho: float, intercept: bool
) -> Array:
    r"""Return the minimiser (beta, b) of a model of mass 1 plus :math:`\rho\|L^{-1}\beta\|_2`.

    With the intercept eliminated and :math:`\beta = L\theta` it is :math:`\theta = (H + \mu
    I)^{-1}c`, :math:`c = H\theta_0 - g`, where :math:`\mu\|\theta\| = \rho`; 0 if ||c|| <= rho.
    """
    G, h, m = model.matrix[:-1, :-1], model.matrix[:-1, -1], model.matrix[-1, -1]
    g, s = model.gradient[:-1], model.gradient[-1]
    beta, b = point[:-1], point[-1]
    if intercept:
        G, g = G - np.outer(h, h / m), g - h * (s / m)
    H, pull, theta = G, g, beta
    if factor is not None:
        H, pull, theta = factor.T @ G @ factor, factor.T @ g, shortest(factor, beta)
    found = _shrunken(H, H @ theta - pull, rho, float(np.linalg.norm(theta)))
    new = found if factor is None else factor @ found
    c = -(s + h @ (new - beta)) / m if intercept else 0.0
    return np.append(new, b + c)


def shortfall(
    model: QuadraticModel, point: Array, new: Array, factor: Any, rho: float, unit: float
) -> float:
    r"""Return what a minimiser that is one up to rounding only adds to the gap.

    The slopes pull by :math:`p = L'(g + Mv)`, which should be of size rho and turned against
    theta: :math:`\rho\|\theta\| + p'\theta` is added, and where :math:`\|p\| > \rho` the slopes are
    shrunk by :math:`\kappa = \rho/\|p\|`. Their dual value is concave along the ray and 0 at its
    end, so at least kappa times the one before: at most :math:`(1/\kappa - 1)` times the ``unit``,
    a bound on the least risk, is lost.
    """
    pull = (model.gradient + model.matrix @ (new - point))[:-1]
    beta = new[:-1]
    w = float(np.linalg.norm(beta if factor is None else shortest(factor, beta)))
    size = float(np.linalg.norm(pull if factor is None else factor.T @ pull))
    return abs(rho * w + float(pull @ beta)) + max(0.0, size / rho - 1) * unit


def _shrunken(H: Array, c: Array, rho: float, guess: float) -> Array:
    """Return theta = (H + mu I)^-1 c with mu ||theta|| = rho.

    1/||theta|| - mu/rho is concave in mu, so Newton's method comes from the right and stays there.
    """
    if np.linalg.norm(c) <= rho * (1 + AT_THRESHOLD):
        return np.zeros_like(c)
    mu = rho / guess if guess > 0 else np.trace(H) / len(c)
    for _ in range(SECULAR_STEPS):
        known = cho_factor(H + mu * np.eye(len(c)), check_finite=False)
        theta = cho_solve(known, c, check_finite=False)
        w = float(np.linalg.norm(theta))
        if abs(mu * w - rho) <= SECULAR_TOL * rho:
            break
        fall = float(theta @ cho_solve(known, theta, check_finite=False)) / w**3 - 1 / rho
        # left of the largest value the slope points away from the root
        mu = mu - (1 / w - mu / rho) / fall if fall < 0 else 2 * mu
    found: Array = theta
    return found


@dataclass(eq=False)
class End:
    """Where a problem is after a step: (beta, b), its mean loss there, the bound, steps so far.

    The mean loss of a fold may be that of its quadratic model, of third order in the step off.
    """

    point: Array
    value: float
    gap: float
    steps: int


@dataclass(eq=False)
class Found:
    """The solutions at one delta, over all rows and of each fold; None where no step is certain."""

    full: Solution | None
    folds: list[Solution | None]


class Sweep:
    """The problem over all rows and its folds, each with its own cost, along the deltas.

    ``held`` are the rows that each fold leaves out, no row twice, and ``costs`` the folds' own.
    Gaps are at most ``tol`` over all rows and ``fold_tol`` in folds, relative to the risk of the
    best constant model.
    """

    def __init__(
        self, problem: Problem, held: list[Array], costs: list[Cost], tol: float, fold_tol: float
    ) -> None:
        self.problem = problem
        self.center = mean(problem.X, problem.weights) if problem.fit_intercept else None
        self.factors = [*(cost.factor() for cost in costs), problem.ball.cost.factor()]
        rest = problem.weights > 0
        for rows in held:
            rest[rows] = False
        groups = [*held, np.flatnonzero(rest)] if rest.any() else held
        self.parts = [Part(problem, rows, self.center) for rows in groups]
        self.constant, risk = constant_risk(problem)
        risks = [constant_risk(problem.weighted(train_weights(problem, rows)))[1] for rows in held]
        self.units = [*risks, risk]
        self.targets = [*(fold_tol * each for each in risks), tol * risk]

    @property
    def whole(self) -> int:
        """The number of the problem over all rows, which comes after the folds."""
        return len(self.factors) - 1

    def start(self) -> Array:
        """Return the best constant model."""
        return np.append(np.zeros(self.problem.X.shape[1]), self.constant)

    def point(self, solution: Solution) -> Array:
        """Return (beta, b) of a solution on centred rows."""
        return np.append(solution.coef, solution.intercept + self._shift(solution.coef))

    def at(self, delta: float, point: Array) -> Found:
        """Return the solutions at a delta: steps over all rows from a point, then every fold's."""
        try:
            return self._stepped(delta, point)
        except np.linalg.LinAlgError:
            # repeated columns leave rounding of either sign, which a small penalty may not outweigh
            return Found(None, [None] * self.whole)

    def _stepped(self, delta: float, point: Array) -> Found:
        """Return the solutions at a delta from a point, where every matrix is positive definite.

        Folds start where the last step over all rows did, so that they need no passes of their own.
        """
        rho = delta * self.problem.loss.lipschitz
        last = self.whole
        for steps in range(1, OWN_STEPS + 1):
            models = [part.model(point) for part in self.parts]
            total = sum(models[1:], models[0])
            end = self._end(last, total, point, rho, steps)
            if end.gap <= self.targets[last]:
                break
            point = end.point
        else:
            return Found(None, [None] * last)
        ends = self._ends([total - models[f] for f in range(last)], point, rho)
        folds = [self._finished(f, each, rho) for f, each in enumerate(ends)]
        return Found(self._solution(last, end, rho), folds)

    def _shift(self, coef: Array) -> float:
        """Return what the centre adds to the intercept."""
        return 0.0 if self.center is None else float(self.center @ coef)

    def _step(self, f: int, model: QuadraticModel, point: Array, rho: float) -> tuple[Array, float]:
        """Return the minimiser of the model of problem f, and what its rounding adds to the gap."""
        model, factor = model.times(1 / model.mass), self.factors[f]
        new = minimiser(model, point, factor, rho, self.problem.fit_intercept)
        return new, shortfall(model, point, new, factor, rho, self.units[f])

    def _end(self, f: int, model: QuadraticModel, point: Array, rho: float, steps: int) -> End:
        """Return where a problem is after a step from a point, at which the models were taken last.

        Where the bound is too large the gap itself is found.
        """
        new, short = self._step(f, model, point, rho)
        parts = [part for g, part in enumerate(self.parts) if g != f or f == self.whole]
        step = new - point
        losses, reach, quartic = zip(*(part.after(step) for part in parts), strict=True)
        gap = float(bound(max(reach), np.sum(quartic) / model.mass)) + short
        if gap > self.targets[f]:
            gap = sum(part.excess(step) for part in parts) / model.mass + short
        return End(new, sum(losses) / model.mass, gap, steps)

    def _ends(self, trains: list[QuadraticModel], point: Array, rho: float) -> list[End]:
        """Return where the folds are after a step from one point, all rows seen for all at once."""
        found = [self._step(f, train, point, rho) for f, train in enumerate(trains)]
        new, short = zip(*found, strict=True)
        steps = np.stack(new, axis=1) - point[:, None]
        own, masses = np.arange(len(new)), np.array([train.mass for train in trains])
        reach, quartic = 0.0, np.zeros(len(new))
        for g, part in enumerate(self.parts):
            far, sums = part.moves(steps)
            reach = max(reach, far)
            quartic += np.where(own == g, 0.0, sums)
        gaps = bound(reach, quartic / masses) + np.array(short)
        return [
            End(new[f], train.after(steps[:, f]) / train.mass, float(gaps[f]), 1)
            if gaps[f] <= self.targets[f]
            else self._end(f, train, point, rho, 1)
            for f, train in enumerate(trains)
        ]

    def _finished(self, f: int, end: End, rho: float) -> Solution | None:
        """Return the solution of a fold after as many steps of its own as it needs."""
        while end.gap > self.targets[f] and end.steps <= OWN_STEPS:
            models = [part.model(end.point) for g, part in enumerate(self.parts) if g != f]
            end = self._end(f, sum(models[1:], models[0]), end.point, rho, end.steps + 1)
        return self._solution(f, end, rho) if end.gap <= self.targets[f] else None

    def _solution(self, f: int, end: End, rho: float) -> Solution:
        coef, factor = end.point[:-1], self.factors[f]
        w = float(np.linalg.norm(coef if factor is None else shortest(factor, coef)))
        return Solution(
            coef=coef,
            intercept=float(end.point[-1] - self._shift(coef)),
            multiplier=self.problem.loss.lipschitz * w,
            objective=end.value + rho * w,
            gap=end.gap,
            n_iter=end.steps,
            converged=True,
            message=verdict(end.gap, self.targets[f], end.steps),
        )


def train_weights(problem: Problem, held: Array) -> Array:
    """Return the weights of a problem without some rows."""
    weights = problem.weights.copy()
    weights[held] = 0.0
    found: Array = weights / weights.sum()
    return found


def folded(problem: Problem, held: Array, cost: Cost) -> Problem:
    """Return a problem without some rows, under another cost."""
    ball = replace(problem.ball, cost=cost)
    return replace(problem, weights=train_weights(problem, held), ball=ball)


def extrapolated(points: list[Array], deltas: Array) -> Array:
    """Return the start at the last of ``deltas``: the line in log delta through the last points."""
    first, last = points[0], points[-1]
    return last + (ahead(deltas) if first[:-1].any() else 0.0) * (last - first)
