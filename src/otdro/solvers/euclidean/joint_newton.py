"""The method of smooth Lipschitz losses at order 2: where to start, batches, solutions."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...design import Design
from ...duality import DualRows, Round, ZeroModel, zero_model
from ...losses import Loss
from ...problem import Problem, Solution
from ..base import Array, Method, Starts, constant_risk, constant_solution, verdict
from . import newton
from .batch import Batch
from .coordinates import Coordinates
from .joint import JointObjective
from .joint_steps import JointMinimum, descend
from .order_one import minimise

#: The gap, relative to the constant model's risk, to which a starting point is solved.
ROUGH_TOL = 1e-3
#: Newton steps to a starting point.
ROUGH_STEPS = 50
#: A penalty this close to the zero model's threshold still gives a start off zero.
BELOW_THRESHOLD = 0.99


class JointNewton(Method):
    """Any smooth Lipschitz loss at order 2."""

    geometries = frozenset({"euclidean"})
    certifies = "the excess over the least worst-case risk"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and losses without a largest slope."""
        loss = problem.loss
        if loss.pieces is not None or not np.isfinite(loss.smoothness):
            return f"Newton's method needs a smooth loss, {type(loss).__name__} has kinks"
        if not np.isfinite(loss.lipschitz):
            return f"Newton's method in lam needs a Lipschitz loss, {type(loss).__name__} is not"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        starts = None if start is None else [replace(start, multiplier=0.0)]
        return self._solved(problem, np.array([problem.ball.delta]), tol, max_iter, starts)[0]

    def solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta: small problems as one batch, others in turn."""
        if not self.starts_pay(problem):
            return super().solve_path(problem, deltas, tol, max_iter, starts)
        return self._solved(problem, np.asarray(deltas, dtype=float), tol, max_iter, starts)

    def starts_pay(self, problem: Problem) -> bool:
        """Whether a path is one batch of Newton steps, which starts nearby make fewer."""
        return newton.small(problem)

    def _solved(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        at, target = Coordinates(problem), tol * constant_risk(problem)[1]
        fixed = (problem.y, problem.weights, problem.loss, problem.fit_intercept)
        zero = zero_model(at.design, *fixed)
        size = float(np.linalg.norm(zero.pull))
        positive = np.flatnonzero(deltas < zero.threshold(size, problem.loss.lipschitz, 2))
        solved = [_constant(problem, zero)] * len(deltas)
        if not len(positive):
            return solved
        objective = joint_objective(at.design, *fixed, deltas[positive])
        near = None if starts is None else [starts[int(j)] for j in positive]
        first = _first(at, objective, zero, near)
        goals = np.full(len(positive), target)
        found = descend(objective, objective.start(*first), goals, max_iter)
        if starts:
            _retried(found, objective, zero, target, max_iter)
        for j, solution in zip(positive, solutions(at, found, target), strict=True):
            solved[j] = solution
        return solved


class First(NamedTuple):
    """Where a descent starts: theta (d, B), b (B,) and lam (B,), None for the best one."""

    theta: Array
    b: Array
    lam: Array | None = None


def joint_objective(
    design: Design, y: Array, weights: Array, loss: Loss, fit_intercept: bool, deltas: Array
) -> JointObjective:
    """Return the objective of the problems at some deltas."""
    columns = np.broadcast_to(weights[:, None], (len(y), len(deltas)))
    return JointObjective(DualRows(design, y, columns, deltas, fit_intercept, Round()), loss)


def _constant(problem: Problem, zero: ZeroModel) -> Solution:
    """Return beta = 0 with the slopes that prove it optimal."""
    conjugate = problem.loss.conjugate(zero.a, problem.y)
    bound = -float(problem.weights @ np.where(problem.weights > 0, conjugate, 0.0))
    gap = max(0.0, zero.risk - bound)
    return replace(constant_solution(problem), gap=gap, dual=zero.a)


def _first(
    at: Coordinates, objective: JointObjective, zero: ZeroModel, starts: Starts | None
) -> First:
    """Return the solutions given, or where there is none those of a subsample or of order 1."""
    if not starts:
        return _subsampled(objective) or _order_one(objective, zero)
    theta = at.theta(np.stack([start.coef for start in starts], axis=1))
    b = np.array([at.centred(start.intercept, start.coef) for start in starts])
    lam = np.array([start.multiplier for start in starts])
    cold = np.flatnonzero(~theta.any(axis=0))
    if len(cold):
        part = objective.columns(cold)
        near = part.start(*_order_one(part, zero))
        theta[:, cold], b[cold], lam[cold] = near.theta, near.b, near.lam
    known = bool(np.all((lam > 0) & np.isfinite(lam)))
    return First(theta, b, lam if known else None)


def _retried(
    found: JointMinimum, objective: JointObjective, zero: ZeroModel, target: float, max_iter: int
) -> None:
    """Solve again, from afar, what a warm start left uncertified: it may sit on a kink."""
    failed = np.flatnonzero(found.gap > target)
    if not len(failed):
        return
    part = objective.columns(failed)
    cold = part.start(*_order_one(part, zero))
    again = descend(part, cold, np.full(len(failed), target), max_iter)
    better = again.objective < found.objective[failed]
    for name in JointMinimum.__dataclass_fields__:
        getattr(found, name)[..., failed[better]] = getattr(again, name)[..., better]


def _subsampled(objective: JointObjective) -> First | None:
    """Solve on evenly spaced rows of a large problem, for a starting point."""
    rows = objective.rows
    index = newton.subsample(order_one(objective, np.zeros(len(rows.delta))))
    if index is None:
        return None
    weights = rows.weights[index, 0] / rows.weights[index, 0].sum()
    fixed = (rows.y[index], weights, objective.loss, rows.fit_intercept)
    design = rows.design.rows(index)
    zero = zero_model(design, *fixed)
    size = float(np.linalg.norm(zero.pull))
    if rows.delta.max() >= zero.threshold(size, objective.loss.lipschitz, 2):
        return None
    few = joint_objective(design, *fixed, rows.delta)
    start = few.start(*_order_one(few, zero))
    found = descend(few, start, np.full(len(rows.delta), ROUGH_TOL * zero.risk), ROUGH_STEPS)
    return First(found.theta, found.b, found.lam)


def order_one(objective: JointObjective, rho: Array) -> Batch:
    """Return the order-1 problems mean l + rho w on the same rows."""
    rows = objective.rows
    return Batch(rows.design, rows.y, rows.weights, objective.loss, rho, rows.fit_intercept)


def _order_one(objective: JointObjective, zero: ZeroModel) -> First:
    """Return the minimisers of mean l + sqrt(delta) rms(l') w with rms(l') as at theta = 0."""
    steep = float(np.linalg.norm(zero.pull))
    rms = float(np.sqrt(zero.mean_square))
    rho = np.minimum(np.sqrt(objective.rows.delta) * rms, BELOW_THRESHOLD * steep)
    goal = np.full(len(rho), ROUGH_TOL * zero.risk)
    found = minimise(order_one(objective, rho), goal, ROUGH_STEPS)
    return First(found.theta, found.b)


def solutions(at: Coordinates, found: JointMinimum, target: float) -> list[Solution]:
    """Return the solutions of a descent, in the coordinates of the rows as given."""
    coefs = at.coef(found.theta)
    solved = []
    for j in range(len(found.b)):
        coef = np.ascontiguousarray(coefs[:, j])
        gap, n_iter = float(found.gap[j]), int(found.n_iter[j])
        solved.append(
            Solution(
                coef=coef,
                intercept=at.intercept(float(found.b[j]), coef),
                multiplier=float(found.lam[j]),
                objective=float(found.objective[j]),
                gap=gap,
                n_iter=n_iter,
                converged=bool(gap <= target),
                message=verdict(gap, target, n_iter),
                dual=found.dual[:, j],
            )
        )
    return solved
