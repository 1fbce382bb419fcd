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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import library
from ...costs import Cost
from ...costs.mahalanobis import shortest
from ...design import Design, mean
from ...problem import Problem, Solution
from ..base import ahead, constant_risk, duality_gap, verdict
from .quadratic_model import QuadraticModel, bound, minimiser, shortfall

Array = NDArray[Any]

#: Rows from which folds are swept, how many of them a column, and columns at most: a sweep forms
#: one Gram matrix a delta, which few columns make cheaper than passes over the rows.
ROWS_FROM, PER_COLUMN, COLUMNS_UP_TO = 2_001, 10, 256
#: Steps over all rows, or of a fold from points of its own, before another method takes over.
OWN_STEPS = 4


def applies(problem: Problem) -> bool:
    """Whether the folds of a problem are swept: many rows, few columns, a loss of steady bend.

    Rows on a device are not: there passes are cheap, and Newton's steps stay beside the rows.
    """
    n, d = problem.X.shape
    fits = n >= max(ROWS_FROM, PER_COLUMN * d) and d <= COLUMNS_UP_TO
    steady = problem.loss.steady and problem.ball.delta > 0
    return bool(fits and steady and library(problem.X) is None)


class Part:
    """The rows that one fold holds out, with scores, slopes and curvatures at the last point.

    Those without weight are left out: they may have any slope. ``end`` are the scores after the
    last step over all rows.
    """

    def __init__(self, problem: Problem, rows: Array, center: Array | None) -> None:
        rows = rows[problem.weights[rows] > 0]
        self.design = Design(problem.X[rows], center=center)
        self.y, self.weights, self.loss = problem.y[rows], problem.weights[rows], problem.loss

    def scores(self, point: Array) -> Array:
        """Return the scores z'beta + b of points (beta, b), one or the columns of an array."""
        z = self.design.scores(point[:-1])
        z += point[-1]
        return z

    def model(self, z: Array) -> QuadraticModel:
        """Return the quadratic model at a point with the scores z."""
        self.z = z
        value, self.slope, self.curvature = self.loss.evaluate(self.z, self.y)
        self.bend, push = self.weights * self.curvature, self.weights * self.slope
        G, h = self.design.moments_again(self.bend)
        gradient = np.append(self.design.adjoint(push), push.sum())
        matrix = np.empty((len(h) + 1, len(h) + 1))
        matrix[:-1, :-1], matrix[:-1, -1], matrix[-1, :-1] = G, h, h
        matrix[-1, -1] = self.bend.sum()
        total = float(self.weights.sum())
        return QuadraticModel(total, float(self.weights @ value), gradient, matrix)

    def moves(self, steps: Array) -> ScoreMoves:
        """Return what ``steps`` (d + 1, F) do to the scores, the last one over all rows."""
        t = self.scores(steps)
        self.end = self.z + t[:, -1]
        np.square(t, out=t)
        reach = np.array([t.max(), t[:, -1].max()]) ** 0.5
        return ScoreMoves(reach, self.bend @ np.square(t, out=t))

    def value(self) -> float:
        """Return the sum of pi l after the last step over all rows."""
        return float(self.weights @ self.loss.value(self.end, self.y))

    def excess(self, step: Array) -> float:
        """Return the sum of pi (l(z + t) + l*(a + D t) - (a + D t)(z + t)) itself."""
        # scores are moved again: to keep those of all folds would take several times their memory
        t = self.scores(step)
        a, z = self.slope + self.curvature * t, self.z + t
        terms = self.loss.value(z, self.y) + self.loss.conjugate(a, self.y) - a * z
        return duality_gap(float(self.weights @ terms), 0.0)


class ScoreMoves(NamedTuple):
    """The largest |t| over rows and steps and that of the last step, and sum pi D t^4 of each."""

    reach: Array
    quartic: Array


class ScoredPoint(NamedTuple):
    """A point (beta, b) and the scores of every part's rows there."""

    point: Array
    scores: list[Array]

    def beyond(self, other: ScoredPoint, t: float) -> ScoredPoint:
        """Return the place t times the way from another one further; scores are linear in it."""
        pairs = zip(other.scores, self.scores, strict=True)
        point = self.point + t * (self.point - other.point)
        return ScoredPoint(point, [v + t * (v - u) for u, v in pairs])


@dataclass(eq=False)
class End:
    """Where a problem is after a step: (beta, b), its mean loss there, the bound, steps so far.

    The mean loss of a fold is that of its quadratic model, of third order in the step off.
    """

    point: Array
    value: float
    gap: float
    steps: int


class QuadraticModels(NamedTuple):
    """The quadratic models of every fold and of all rows, last, about one point."""

    each: list[QuadraticModel]
    point: Array


@dataclass(eq=False)
class Found:
    """The solutions at one delta, over all rows and of each fold; None where no step is certain."""

    full: Solution | None
    folds: list[Solution | None]


class Sweep:
    """The problem over all rows and its folds, each with its own cost, along the deltas.

    ``held`` are the rows that each fold leaves out, no row twice, and ``costs`` the folds' own.
    Gaps are at most ``tol`` over all rows and ``fold_tol`` in folds, relative to the risk of the
    best constant model. Steps begin on the line through the last ``places`` over all rows.
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
        self.places = [self._place(np.append(np.zeros(problem.X.shape[1]), self.constant))]
        self.models: QuadraticModels | None = None

    @property
    def whole(self) -> int:
        """The number of the problem over all rows, which comes after the folds."""
        return len(self.factors) - 1

    def _place(self, point: Array) -> ScoredPoint:
        """Return a point with the scores of all rows."""
        return ScoredPoint(point, [part.scores(point) for part in self.parts])

    def _passed(self, place: ScoredPoint) -> None:
        """Keep the last two solutions over all rows."""
        self.places = [*self.places[-1:], place]

    def went_on(self, solution: Solution) -> None:
        """Take note of a solution over all rows that another method found."""
        b = solution.intercept + self._shift(solution.coef)
        self._passed(self._place(np.append(solution.coef, b)))

    def at(self, deltas: Array) -> Found:
        """Return the solutions at the last of the deltas so far."""
        first, last = self.places[0], self.places[-1]
        try:
            start = last.beyond(first, share_ahead(first.point, deltas))
            delta = float(deltas[-1])
            return self._from_last(delta, start) or self._stepped(delta, start)
        except np.linalg.LinAlgError:
            # repeated columns leave rounding of either sign, which a small penalty may not outweigh
            return Found(None, [None] * self.whole)

    def _from_last(self, delta: float, place: ScoredPoint) -> Found | None:
        """Return the solutions from the models of the delta before, where these serve again.

        They are not asked where their bound at ``place``, which is about where the solution over
        all rows will be, is above its target already.
        """
        if self.models is None or self._bound_at(place) > self.targets[self.whole]:
            return None
        rho = delta * self.problem.loss.lipschitz
        ends = self._ends(*self.models, rho, 1)
        if any(end.gap > target for end, target in zip(ends, self.targets, strict=True)):
            return None
        return self._found(ends, rho)

    def _bound_at(self, place: ScoredPoint) -> float:
        """Return the bound of the models of all rows where the scores are those of a place."""
        assert self.models is not None
        moves = [z - part.z for part, z in zip(self.parts, place.scores, strict=True)]
        reach = max(float(np.abs(t).max()) for t in moves)
        quartic = sum(float(part.bend @ t**4) for part, t in zip(self.parts, moves, strict=True))
        return float(bound(reach, quartic / self.models.each[-1].mass))

    def _stepped(self, delta: float, place: ScoredPoint) -> Found:
        """Return the solutions at a delta from a place, where every matrix is positive definite.

        Folds start where the last step over all rows did, and take it in the same pass.
        """
        rho, last = delta * self.problem.loss.lipschitz, self.whole
        for steps in range(1, OWN_STEPS + 1):
            parts = zip(self.parts, place.scores, strict=True)
            models = [part.model(z) for part, z in parts]
            total = sum(models[1:], models[0])
            self.models = QuadraticModels(
                [*(total - models[f] for f in range(last)), total], place.point
            )
            ends = self._ends(*self.models, rho, steps)
            if ends[last].gap <= self.targets[last]:
                return self._found(ends, rho)
            place = ScoredPoint(ends[last].point, [part.end for part in self.parts])
        self.models = None
        return Found(None, [None] * last)

    def _found(self, ends: list[End], rho: float) -> Found:
        """Return the solutions where all problems are after their last common step."""
        *folds, end = ends
        self._passed(ScoredPoint(end.point, [part.end for part in self.parts]))
        solved = [self._finished(f, each, rho) for f, each in enumerate(folds)]
        return Found(self._solution(self.whole, end, rho), solved)

    def _shift(self, coef: Array) -> float:
        """Return what the centre adds to the intercept."""
        return 0.0 if self.center is None else float(self.center @ coef)

    def _step(self, f: int, model: QuadraticModel, point: Array, rho: float) -> tuple[Array, float]:
        """Return the minimiser of the model of problem f, and what its rounding adds to the gap."""
        model, factor = model.times(1 / model.mass), self.factors[f]
        new = minimiser(model, point, factor, rho, self.problem.fit_intercept)
        return new, shortfall(model, point, new, factor, rho, self.units[f])

    def _rows_of(self, f: int) -> list[Part]:
        """Return the rows of problem f: all but those it holds out."""
        return [part for g, part in enumerate(self.parts) if g != f or f == self.whole]

    def _ends(
        self, models: list[QuadraticModel], point: Array, rho: float, steps: int
    ) -> list[End]:
        """Return where all problems are after a step from one point, in one pass over the rows."""
        found = [self._step(f, model, point, rho) for f, model in enumerate(models)]
        new, short = zip(*found, strict=True)
        moved = np.stack(new, axis=1) - point[:, None]
        moves = [part.moves(moved) for part in self.parts]
        far, reach = np.max([each.reach for each in moves], axis=0)
        quartic = np.sum([each.quartic for each in moves], axis=0)
        for f in range(self.whole):
            quartic[f] -= moves[f].quartic[f]
        ends = []
        for f, model in enumerate(models):
            gap = float(bound(reach if f == self.whole else far, quartic[f] / model.mass))
            if gap + short[f] > self.targets[f]:
                # the bound is too large: the gap itself
                gap = self._excess(f, model, moved[:, f])
            value = model.after(moved[:, f]) / model.mass
            ends.append(End(new[f], value, gap + short[f], steps))
        ends[-1].value = sum(part.value() for part in self.parts) / models[-1].mass
        return ends

    def _excess(self, f: int, model: QuadraticModel, step: Array) -> float:
        return sum(part.excess(step) for part in self._rows_of(f)) / model.mass

    def _finished(self, f: int, end: End, rho: float) -> Solution | None:
        """Return the solution of a fold after as many steps of its own as it needs."""
        for _ in range(OWN_STEPS):
            if end.gap <= self.targets[f]:
                return self._solution(f, end, rho)
            # parts take the point of this fold
            self.models = None
            models = [part.model(part.scores(end.point)) for part in self._rows_of(f)]
            model = sum(models[1:], models[0])
            new, short = self._step(f, model, end.point, rho)
            step = new - end.point
            gap = self._excess(f, model, step) + short
            end = End(new, model.after(step) / model.mass, gap, end.steps + 1)
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
            mean_loss=end.value,
        )


def train_weights(problem: Problem, held: Array) -> Array:
    """Return the weights of a problem without some rows."""
    weights = problem.weights.copy()
    weights[held] = 0.0
    found: Array = weights / weights.sum()
    return found


def held_rows(problem: Problem, folds: list[Problem]) -> list[Array] | None:
    """Return the rows that each fold leaves out of a problem, None where they are no such folds.

    A fold has the weights of the problem, 0 of the rows left out, scaled to sum 1; no row is left
    out twice.
    """
    weights = problem.weights
    times, held = np.zeros(len(weights), dtype=int), []
    for fold in folds:
        rows = np.flatnonzero((fold.weights == 0) & (weights > 0))
        if not np.allclose(fold.weights, train_weights(problem, rows), rtol=1e-9, atol=0.0):
            return None
        times[rows] += 1
        held.append(rows)
    return held if times.max(initial=0) <= 1 else None


def folded(problem: Problem, held: Array, cost: Cost) -> Problem:
    """Return a problem without some rows, under another cost."""
    ball = replace(problem.ball, cost=cost)
    return replace(problem, weights=train_weights(problem, held), ball=ball)


def share_ahead(first: Array, deltas: Array) -> float:
    """Return t of ``ahead``, 0 where the first of two points (beta, b) is a constant model."""
    return ahead(deltas) if first[:-1].any() else 0.0


def extrapolated(points: list[Array], deltas: Array) -> Array:
    """Return the start at the last of ``deltas``: the line in log delta through the last points."""
    first, last = points[0], points[-1]
    return last + share_ahead(first, deltas) * (last - first)
