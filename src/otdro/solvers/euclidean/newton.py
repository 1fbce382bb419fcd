"""The methods of smooth losses at orders 1 and 2: where to start, batches, folds, solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import factor_of, full, namespace, numbers, pick, pick_columns, set_columns
from ...design import Design, mean
from ...duality import DualRows, Round, threshold
from ...losses import Loss
from ...problem import Problem, Solution
from ...progress import logger
from ..base import (
    Method,
    Starts,
    ahead,
    constant_risk,
    constant_solution,
    duality_gap,
    each_alone,
    same_factor,
)
from .coordinates import Coordinates, together
from .order_one import (
    CONTRACTION,
    DENSE_UP_TO,
    Batch,
    Minimum,
    NewtonSystem,
    Rows,
    Start,
    minimise,
    norms,
)
from .order_two import JointMinimum, JointObjective, descend

Array = NDArray[Any]

#: Rows times columns up to which the deltas of a path are solved as one batch.
BATCH_UP_TO = 20_000
#: Entries of the Newton matrices of a batch, above which more problems in it are no faster.
MATRICES_UP_TO = 1_000_000
#: Rows above which a part of them is solved first, for a starting point within statistical error
#: of the answer and for its Newton matrix.
SUBSAMPLE_FROM = 5_000
#: That part is a tenth of the rows, but no more than these.
SUBSAMPLE = 10_000
#: Rows of the part per column at least.
PER_COLUMN = 30
#: Of very many rows the part is one in so many: the error of its answer is then so small that the
#: first Newton step over all rows is the last.
ONE_IN = 20
#: The gap of a starting point, as a share of the error d/part of its part.
ROUGH_SHARE = 0.1
#: Newton steps to a starting point.
ROUGH_STEPS = 50
#: The gap, relative to the constant model's risk, to which a starting point of order 2 is solved.
ROUGH_TOL = 1e-3
#: A penalty this close to the zero model's threshold still gives a start off zero.
BELOW_THRESHOLD = 0.99
#: Columns up to which a path takes a new Newton matrix at every delta: it takes no longer than the
#: steps that it saves.
NEW_MATRIX_UP_TO = 128
#: Entries of sparse wide rows up to which folds are solved in step: there calls take longer than
#: products.
IN_STEP_UP_TO = 100_000


class SmoothMethod(Method):
    """A Newton method for smooth losses; small problems are solved as one batch (``_at_once``)."""

    geometries = frozenset({"euclidean"})
    on_device = True
    certifies = "the excess over the least worst-case risk"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces."""
        loss = problem.loss
        if loss.pieces is not None or not np.isfinite(loss.smoothness):
            return f"Newton's method needs a smooth loss, {type(loss).__name__} has kinks"
        return None

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows, small folds from the first path."""
        first, *folds = problems
        if not folds or not is_small(first):
            return super().solve(problems, deltas, tols, max_iter, starts)
        near = None if starts is None else starts[0]
        path = self._solve_path(first, deltas, tols[0], max_iter, near)
        n, d = first.X.shape
        size = max(1, MATRICES_UP_TO // (len(deltas) * min(n, d) ** 2))
        solved = [path]
        # the same for all folds, so that none depends on its company
        center = mean(first.X, first.weights) if first.fit_intercept else None
        for i in range(0, len(folds), size):
            lot = slice(i, i + size)
            some = (folds[lot], deltas, tols[1:][lot], max_iter, path, center)
            solved += self._at_once(*some)
        return solved

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta: of small problems as one batch."""
        if not is_small(problem):
            return super()._solve_path(problem, deltas, tol, max_iter, starts)
        return self._at_once([problem], deltas, [tol], max_iter, starts)[0]

    def _at_once(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Starts | None,
        center: Array | None = None,
    ) -> list[list[Solution]]:
        """Solve small problems at every delta, as one batch; ``starts`` are near each of them."""
        raise NotImplementedError


def is_small(problem: Problem) -> bool:
    """Whether a path is one batch of Newton steps, which starts nearby make fewer."""
    n, d = problem.X.shape
    return bool(n * min(n, d) <= BATCH_UP_TO)


class Newton(SmoothMethod):
    """Any smooth loss at order 1, and at delta = 0.

    At delta = 0 the slopes must balance, Z'(pi a) = 0, and do to rounding only: the bound takes
    |Z'(pi a)| |theta| off, which is what that costs at the model found, not at every other.
    """

    accepts_zero = True
    certifies = f"{SmoothMethod.certifies}; at delta = 0 up to rounding of the dual point"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and order 2."""
        if problem.ball.order == 2 and problem.ball.delta > 0:
            return super().lacks(problem) or "Newton's method needs order 1"
        return super().lacks(problem)

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows, which share steps and matrices."""
        first, *folds = problems
        n, d = first.X.shape
        together = not is_small(first) and d <= min(n, DENSE_UP_TO)
        if _sparse_and_wide(first):
            together = bool(first.X.nnz <= IN_STEP_UP_TO)
        if folds and together:
            return _in_step(problems, deltas, tols, max_iter)
        return super().solve(problems, deltas, tols, max_iter, starts)

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser, for many rows from that of a part of them."""
        weights, flat = problem.weights[:, None], constant_risk(problem)[1]
        n, d = problem.X.shape
        part = None
        if start is None:
            part = subsample(problem.y, weights, problem.loss, d, n // ONE_IN)
        center = None
        if part is not None:
            share = problem.weights[part]
            center = mean(pick(problem.X, part), share / share.sum())
        at = Coordinates(problem, reduce=not _sparse_and_wide(problem), center=center)
        batch = _batch([problem], at.design, np.array([problem.ball.delta]))
        goal = np.array([tol * flat])
        near: Start | None = None if start is None else at.places([start])
        system: NewtonSystem | None = None
        if part is not None:
            near, system = _of_part(batch, part, tol * flat, max_iter)
        minimum = minimise(batch, goal, max_iter, near, system=system, flat=np.array([flat]))
        return _solutions(at, batch, minimum, goal)[0]

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta: of small problems as one batch, others in turn."""
        if is_small(problem):
            return super()._solve_path(problem, deltas, tol, max_iter, starts)
        at = Coordinates(problem, reduce=not _sparse_and_wide(problem))
        target = np.array([tol * constant_risk(problem)[1]])
        path = Path(_batch([problem], at.design, np.zeros(1)), target, max_iter)
        for delta in deltas.tolist():
            path.go_on(delta)
        return path.solutions(0, at, at.design.d)

    def _at_once(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Starts | None,
        center: Array | None = None,
    ) -> list[list[Solution]]:
        """Solve small problems at every delta, as one batch."""
        P, m = len(problems), len(deltas)
        rows, each = _shared(problems, center)
        targets = [tol * constant_risk(one)[1] for one, tol in zip(problems, tols, strict=True)]
        owner = np.repeat(np.arange(P), m)
        few = _batch(problems, rows, np.zeros(P))
        # the models at theta = 0 do not depend on delta
        zero = few.zero().columns(owner)
        batch = replace(few.columns(owner), rho=_rho(problems[0], np.tile(deltas, P)))
        near = None
        if starts is not None:
            places = [at.places(starts) for at in each]
            near = tuple(np.concatenate(part, axis=-1) for part in zip(*places, strict=True))
        goal = np.repeat(targets, m)
        minima = minimise(batch, goal, max_iter, near, zero)
        if each[0] is each[-1]:
            solved = _solutions(each[0], batch, minima, goal)
            return [solved[p * m : (p + 1) * m] for p in range(P)]
        parts = [np.flatnonzero(owner == p) for p in range(P)]
        return [
            _solutions(at, batch.columns(some), _some(minima, some), goal[some])
            for at, some in zip(each, parts, strict=True)
        ]


def _some(minima: Minimum, index: Array) -> Minimum:
    """Return some of the minima."""
    return Minimum(*(pick_columns(part, index) for part in vars(minima).values()))


def _shared(problems: list[Problem], center: Array | None = None) -> tuple[Rows, list[Coordinates]]:
    """Return the rows of problems over the same X and the coordinates of each."""
    if same_factor(problems):
        at = Coordinates(problems[0], center=center)
        return at.design, [at] * len(problems)
    return together(problems, center=center)


def _sparse_and_wide(problem: Problem) -> bool:
    """Whether products with the rows are shorter than with their kernel."""
    X: Any = problem.X
    n, d = X.shape
    return hasattr(X, "nnz") and d > DENSE_UP_TO and bool(X.nnz < n * n)


class Path:
    """Problems over the same rows along descending deltas, each from the line through two before.

    The Newton matrix of one problem of many columns serves the next delta while it does well.
    """

    def __init__(self, batch: Batch, target: Array, max_iter: int) -> None:
        self.batch, self.target, self.max_iter = batch, target, max_iter
        self.zero, self.system = batch.zero(), NewtonSystem.over(batch.design)
        self.deltas: list[float] = []
        self.minima: list[Minimum] = []

    def go_on(self, delta: float) -> Minimum:
        """Solve at the next delta."""
        self.deltas.append(delta)
        start, B = self._extrapolated(), len(self.target)
        if B > 1 or self.batch.design.d <= NEW_MATRIX_UP_TO:
            self.system = NewtonSystem(CONTRACTION, shared=B > 1)
        rho = np.full(B, delta * self.batch.loss.lipschitz)
        at = replace(self.batch, rho=rho)
        self.minima.append(
            minimise(at, self.target, self.max_iter, start, zero=self.zero, system=self.system)
        )
        if B > 1:
            self.minima[-1].slope = None
        if len(self.minima) > 2:
            self.minima[-3].z = None
        return self.minima[-1]

    def _extrapolated(self) -> Start | None:
        """Return the start at the last delta: the line in log delta through the last two minima."""
        if not self.minima:
            return None
        first, last = self.minima[-2:][0], self.minima[-1]
        t = np.where(first.theta.any(axis=0), ahead(np.array(self.deltas)), 0.0)
        pairs = ((first.theta, last.theta), (first.b, last.b), (first.z, last.z))
        return tuple(v + factor_of(t, v) * (v - u) for u, v in pairs)

    def solutions(self, p: int, at: Coordinates, d: int) -> list[Solution]:
        """Return the solutions of problem p, in its first d coordinates."""
        minima = Minimum.of_problem(self.minima, p, d)
        rho = np.array(self.deltas) * self.batch.loss.lipschitz
        goal = np.full(len(rho), self.target[p])
        return _solutions(at, replace(self.batch, rho=rho), minima, goal)


def _in_step(
    problems: list[Problem], deltas: Array, tols: Sequence[float], max_iter: int
) -> list[list[Solution]]:
    """Solve a problem and its folds at every delta, all steps at a time.

    Folds of many rows differ little from all rows, so that one Newton matrix per delta serves all.
    """
    first = problems[0]
    rows: Rows
    if _sparse_and_wide(first):
        # nothing is centred: an intercept makes a centre irrelevant
        rows, each = together(problems, reduce=False, center=np.zeros(first.X.shape[1]))
    else:
        rows, each = _shared(problems)
    target = np.array(tols) * np.array([constant_risk(one)[1] for one in problems])
    path = Path(_batch(problems, rows, np.zeros(len(problems))), target, max_iter)
    for j, delta in enumerate(deltas.tolist()):
        gap = path.go_on(delta).gap[0]
        logger.info("delta %d of %d with its folds: gap %.2g", j + 1, len(deltas), gap)
    return [path.solutions(p, at, at.d) for p, at in enumerate(each)]


def _batch(problems: list[Problem], rows: Rows, deltas: Array) -> Batch:
    """Return problems over the same rows and targets, each at its delta."""
    first = problems[0]
    # the weights of a problem are next to each other
    weights = namespace(first.weights).stack([one.weights for one in problems]).T
    rho = _rho(first, deltas)
    return Batch(rows, first.y, weights, first.loss, rho, first.fit_intercept)


def _rho(problem: Problem, deltas: Array) -> Array:
    """Return delta Lip; Lip may be infinite where delta = 0."""
    return deltas * problem.loss.lipschitz if deltas.any() else np.zeros(len(deltas))


def _solutions(at: Coordinates, batch: Batch, minima: Minimum, target: Array) -> list[Solution]:
    w, lipschitz = norms(minima.theta), batch.loss.lipschitz
    # Lip may be infinite where delta = 0
    lam = np.array([lipschitz * each if each > 0 else 0.0 for each in w.tolist()])
    # F = mean loss + rho w
    mean_loss = (minima.objective - batch.rho * w).tolist()
    return at.solutions(minima, lam, minima.slope, target, mean_loss)


def subsample(y: Array, weights: Array, loss: Loss, d: int, least: int = 0) -> slice | None:
    """Return evenly spaced rows of a large problem on which to look for a starting point.

    They are ``least`` of n at least. None where the rows are few, or the part lacks a label.
    """
    n = len(y)
    part = max(min(SUBSAMPLE, n // 10), PER_COLUMN * d, least)
    if n < SUBSAMPLE_FROM or part > n / 3:
        return None
    rows = slice(0, n, n // part)
    labels, counted = y[rows], weights[rows] > 0
    if loss.task == "classification" and not all(
        bool((counted & (labels == k)[:, None]).any()) for k in (-1, 1)
    ):
        return None
    return rows


def _of_part(
    batch: Batch, part: slice, target: float, max_iter: int
) -> tuple[Start, NewtonSystem | None]:
    """Return the minimiser over some rows, and its Newton matrix for steps over all of them."""
    # a copy: many passes go over these rows
    rows = numbers(len(batch.y), batch.y)[part]
    weights = pick(batch.weights, rows)
    weights = weights / weights.sum()
    assert isinstance(batch.design, Design)
    design, y = batch.design.rows(rows), pick(batch.y, rows)
    few = Batch(design, y, weights, batch.loss, batch.rho, batch.fit_intercept)
    system = NewtonSystem()
    goal = np.array([max(target, ROUGH_SHARE * design.d / design.n)])
    end = minimise(few, goal, min(max_iter, ROUGH_STEPS), system=system)
    return (end.theta, end.b), system if len(system.residual) else None


class JointNewton(SmoothMethod):
    """Any smooth Lipschitz loss at order 2."""

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and losses without a largest slope."""
        if not np.isfinite(problem.loss.lipschitz):
            name = type(problem.loss).__name__
            missing = f"Newton's method in lam needs a Lipschitz loss, {name} is not"
            return super().lacks(problem) or missing
        return super().lacks(problem)

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        starts = None if start is None else [replace(start, multiplier=0.0)]
        delta = np.array([problem.ball.delta])
        return self._at_once([problem], delta, [tol], max_iter, starts)[0][0]

    def _at_once(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Starts | None,
        center: Array | None = None,
    ) -> list[list[Solution]]:
        """Solve problems at every delta, under one cost as one batch."""
        first, P = problems[0], len(problems)
        if P > 1 and not same_factor(problems):

            def alone(p: int, problem: Problem, _: Starts | None) -> list[Solution]:
                return self._at_once([problem], deltas, [tols[p]], max_iter, starts)[0]

            return each_alone(problems, None, alone)
        at = Coordinates(first, center=center)
        batch = _batch(problems, at.design, np.zeros(P))
        flat = Flat.of(batch)
        least = threshold(flat.steep, flat.mean_square, first.loss.lipschitz, 2)
        off_zero = deltas < least[:, None]
        owner, place = np.nonzero(off_zero)
        moved: Iterator[Solution] = iter([])
        if len(owner):
            rows = DualRows(
                at.design,
                first.y,
                pick_columns(batch.weights, owner),
                deltas[place],
                first.fit_intercept,
                Round(),
            )
            near = None if starts is None else [starts[int(j)] for j in place]
            target = np.asarray(tols)[owner] * flat.risk[owner]
            objective, some = JointObjective(rows, first.loss), flat.columns(owner)
            moved = iter(_off_zero(at, objective, some, near, target, max_iter))
        return [
            [next(moved) if off else _constant(problems[p], flat.slope[:, p]) for off in line]
            for p, line in enumerate(off_zero)
        ]


def _off_zero(
    at: Coordinates,
    objective: JointObjective,
    flat: Flat,
    near: Starts | None,
    target: Array,
    max_iter: int,
) -> list[Solution]:
    """Solve problems whose best model is not theta = 0, from solutions nearby if given."""
    start = objective.start(*_first(at, objective, flat, near))
    if near is not None:
        start = start.with_duals(_duals(near, start.z))
    minima = descend(objective, start, target, max_iter)
    failed = np.flatnonzero(minima.gap > target)
    if near and len(failed):
        # a warm start may sit on a kink: solve again from afar
        part = objective.columns(failed)
        cold = part.start(*_order_one(part, flat.columns(failed)))
        again = descend(part, cold, target[failed], max_iter)
        better = again.objective < minima.objective[failed]
        for name in JointMinimum.__dataclass_fields__:
            new = pick_columns(getattr(again, name), better)
            set_columns(getattr(minima, name), failed[better], new)
    return at.solutions(minima, minima.lam, minima.dual, target)


class Flat(NamedTuple):
    """Of the models theta = 0 of some problems the size of the pull, E[a^2] and the risk, (B,).

    ``slope`` (n, B) are their slopes a.
    """

    steep: Array
    mean_square: Array
    risk: Array
    slope: Array

    @classmethod
    def of(cls, batch: Batch) -> Flat:
        """Return those of a batch."""
        zero = batch.zero()
        slope = zero.points.slope
        risk = batch.mean(zero.points.value)
        return cls(norms(zero.g), batch.mean(slope**2), risk, slope)

    def columns(self, index: Array) -> Flat:
        """Return those of some problems."""
        return Flat(*(pick_columns(part, index) for part in self))


class First(NamedTuple):
    """Where a descent starts: theta (d, B), b (B,) and lam (B,), None for the best one."""

    theta: Array
    b: Array
    lam: Array | None = None


def _constant(problem: Problem, slope: Array) -> Solution:
    """Return beta = 0 with the slopes that prove it optimal."""
    conjugate = problem.loss.conjugate(slope, problem.y)
    counted = namespace(conjugate).where(problem.weights > 0, conjugate, 0.0)
    solution = constant_solution(problem)
    gap = duality_gap(solution.objective, -float(problem.weights @ counted))
    return replace(solution, gap=gap, dual=slope)


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
    stacked: Array = namespace(z).stack(each, axis=1)
    return stacked


def _subsampled(objective: JointObjective) -> First | None:
    """Solve on evenly spaced rows of a large problem, for a starting point."""
    rows, loss = objective.rows, objective.loss
    part = subsample(rows.y, rows.weights, loss, rows.design.d)
    if part is None:
        return None
    index = numbers(len(rows.y), rows.y)[part]
    weights = pick(rows.weights, index)
    weights = weights / weights.sum(axis=0)
    design, y = rows.design.rows(index), pick(rows.y, index)
    flat = Flat.of(Batch(design, y, weights, loss, 0.0 * rows.delta, rows.fit_intercept))
    if np.any(rows.delta >= threshold(flat.steep, flat.mean_square, loss.lipschitz, 2)):
        return None
    few = replace(objective, rows=replace(rows, design=design, y=y, weights=weights))
    start = few.start(*_order_one(few, flat))
    end = descend(few, start, ROUGH_TOL * flat.risk, ROUGH_STEPS)
    return First(end.theta, end.b, end.lam)


def _order_one(objective: JointObjective, flat: Flat) -> First:
    """Return the minimisers of mean l + sqrt(delta) rms(l') w with rms(l') as at theta = 0."""
    rows = objective.rows
    rms = np.sqrt(rows.delta * flat.mean_square)
    rho = np.minimum(rms, BELOW_THRESHOLD * flat.steep)
    batch = Batch(rows.design, rows.y, rows.weights, objective.loss, rho, rows.fit_intercept)
    end = minimise(batch, ROUGH_TOL * flat.risk, ROUGH_STEPS)
    return First(end.theta, end.b)
