"""The method of smooth Lipschitz losses at order 2: where to start, batches, solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...arrays import full, namespace, numbers, pick, pick_columns, set_columns
from ...duality import DualRows, Round, ZeroModel, threshold, zero_model
from ...problem import Problem, Solution
from ..base import Array, Starts, constant_solution, duality_gap
from . import newton
from .batch import Batch
from .batched import BatchedMethod
from .coordinates import Coordinates
from .order_one import minimise
from .order_two import JointMinimum, JointObjective, descend

#: The gap, relative to the constant model's risk, to which a starting point is solved.
ROUGH_TOL = 1e-3
#: Newton steps to a starting point.
ROUGH_STEPS = 50
#: A penalty this close to the zero model's threshold still gives a start off zero.
BELOW_THRESHOLD = 0.99


class JointNewton(BatchedMethod):
    """Any smooth Lipschitz loss at order 2."""

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and losses without a largest slope."""
        if not np.isfinite(problem.loss.lipschitz):
            name = type(problem.loss).__name__
            missing = f"Newton's method in lam needs a Lipschitz loss, {name} is not"
            return super().lacks(problem) or missing
        return super().lacks(problem)

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        starts = None if start is None else [replace(start, multiplier=0.0)]
        delta = np.array([problem.ball.delta])
        return self.at_once(problem, problem.weights[:, None], delta, tol, max_iter, starts)[0][0]

    def at_once(
        self,
        problem: Problem,
        weights: Array,
        deltas: Array,
        tol: float,
        max_iter: int,
        starts: Starts | None,
    ) -> list[list[Solution]]:
        """Solve with each column of ``weights`` at every delta, as one batch."""
        at, fixed = Coordinates(problem), (problem.loss, problem.fit_intercept)
        zeros = [zero_model(at.design, problem.y, column, *fixed) for column in weights.T]
        flat = Flat.of(zeros)
        least = threshold(flat.steep, flat.mean_square, problem.loss.lipschitz, 2)
        off_zero = deltas < least[:, None]
        owner, place = np.nonzero(off_zero)
        known = (pick_columns(weights, owner), deltas[place], problem.fit_intercept, Round())
        objective = JointObjective(DualRows(at.design, problem.y, *known), problem.loss)
        near = None if starts is None else [starts[int(j)] for j in place]
        found = iter(
            _off_zero(at, objective, flat.columns(owner), near, tol, max_iter) if len(owner) else []
        )
        return [
            [next(found) if off else _constant(problem.weighted(column), zero) for off in row]
            for row, column, zero in zip(off_zero, weights.T, zeros, strict=True)
        ]


def _off_zero(
    at: Coordinates,
    objective: JointObjective,
    flat: Flat,
    near: Starts | None,
    tol: float,
    max_iter: int,
) -> list[Solution]:
    """Solve problems whose best model is not theta = 0, from solutions nearby if given."""
    target = tol * flat.risk
    start = objective.start(*_first(at, objective, flat, near))
    if near is not None:
        start = start.with_duals(_duals(near, start.z))
    found = descend(objective, start, target, max_iter)
    if near:
        _retried(found, objective, flat, target, max_iter)
    return at.solutions(found, found.lam, found.dual, target)


class Flat(NamedTuple):
    """Of the models theta = 0 of some problems the size of the pull, E[a^2] and the risk, (B,)."""

    steep: Array
    mean_square: Array
    risk: Array

    @classmethod
    def of(cls, zeros: Sequence[ZeroModel]) -> Flat:
        """Return those of zero models in round coordinates."""
        each = [(np.linalg.norm(zero.pull), zero.mean_square, zero.risk) for zero in zeros]
        return cls(*np.array(each).T)

    def columns(self, index: Array) -> Flat:
        """Return those of some problems."""
        return Flat(*(part[index] for part in self))


class First(NamedTuple):
    """Where a descent starts: theta (d, B), b (B,) and lam (B,), None for the best one."""

    theta: Array
    b: Array
    lam: Array | None = None


def _constant(problem: Problem, zero: ZeroModel) -> Solution:
    """Return beta = 0 with the slopes that prove it optimal."""
    conjugate = problem.loss.conjugate(zero.a, problem.y)
    counted = namespace(conjugate).where(problem.weights > 0, conjugate, 0.0)
    bound = -float(problem.weights @ counted)
    gap = duality_gap(zero.risk, bound)
    return replace(constant_solution(problem), gap=gap, dual=zero.a)


def _first(at: Coordinates, objective: JointObjective, flat: Flat, starts: Starts | None) -> First:
    """Return the solutions given, or where there is none those of a subsample or of order 1."""
    if not starts:
        return _subsampled(objective) or _order_one(objective, flat)
    theta, b = at.places(starts)
    lam = np.array([start.multiplier for start in starts])
    cold = np.flatnonzero(~theta.any(axis=0))
    if len(cold):
        part = objective.columns(cold)
        near = part.start(*_order_one(part, flat.columns(cold)))
        theta[:, cold], b[cold], lam[cold] = near.theta, near.b, near.lam
    return First(theta, b, lam)


def _duals(starts: Starts, z: Array) -> Array:
    """Return the mean slopes of the rows that solutions ended with, shape (n, B), nan if none.

    A fold may start from a solution over other rows, whose slopes say nothing of its own.
    """
    n, unknown = len(z), full(len(z), np.nan, z)
    duals = (start.dual for start in starts)
    each = [unknown if dual is None or len(dual) != n else dual for dual in duals]
    found: Array = namespace(z).stack(each, axis=1)
    return found


def _retried(
    found: JointMinimum, objective: JointObjective, flat: Flat, target: Array, max_iter: int
) -> None:
    """Solve again, from afar, what a warm start left uncertified: it may sit on a kink."""
    failed = np.flatnonzero(found.gap > target)
    if not len(failed):
        return
    part = objective.columns(failed)
    cold = part.start(*_order_one(part, flat.columns(failed)))
    again = descend(part, cold, target[failed], max_iter)
    better = again.objective < found.objective[failed]
    for name in JointMinimum.__dataclass_fields__:
        set_columns(
            getattr(found, name), failed[better], pick_columns(getattr(again, name), better)
        )


def _subsampled(objective: JointObjective) -> First | None:
    """Solve on evenly spaced rows of a large problem, for a starting point."""
    rows, loss = objective.rows, objective.loss
    part = newton.subsample(rows.y, rows.weights, loss, rows.design.d)
    if part is None:
        return None
    index = numbers(len(rows.y), rows.y)[part]
    weights = pick(rows.weights, index)
    weights = weights / weights.sum(axis=0)
    design, y = rows.design.rows(index), pick(rows.y, index)
    zeros = [zero_model(design, y, column, loss, rows.fit_intercept) for column in weights.T]
    flat = Flat.of(zeros)
    if np.any(rows.delta >= threshold(flat.steep, flat.mean_square, loss.lipschitz, 2)):
        return None
    few = replace(objective, rows=replace(rows, design=design, y=y, weights=weights))
    start = few.start(*_order_one(few, flat))
    found = descend(few, start, ROUGH_TOL * flat.risk, ROUGH_STEPS)
    return First(found.theta, found.b, found.lam)


def order_one(objective: JointObjective, rho: Array) -> Batch:
    """Return the order-1 problems mean l + rho w on the same rows."""
    rows = objective.rows
    return Batch(rows.design, rows.y, rows.weights, objective.loss, rho, rows.fit_intercept)


def _order_one(objective: JointObjective, flat: Flat) -> First:
    """Return the minimisers of mean l + sqrt(delta) rms(l') w with rms(l') as at theta = 0."""
    rms = np.sqrt(objective.rows.delta * flat.mean_square)
    rho = np.minimum(rms, BELOW_THRESHOLD * flat.steep)
    found = minimise(order_one(objective, rho), ROUGH_TOL * flat.risk, ROUGH_STEPS)
    return First(found.theta, found.b)
