"""The method of smooth losses at order 1: where to start, batches, solutions."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import factor_of, library, numbers, pick, pick_columns
from ...costs import Cost
from ...design import Design, mean
from ...losses import Loss
from ...problem import Problem, Solution
from ..base import Starts, Swept, ahead, constant_risk
from .batch import Batch, Minimum, norms
from .batched import BatchedMethod
from .block_rows import BlockRows
from .coordinates import Coordinates
from .newton_matrix import DENSE_UP_TO, NewtonMatrix
from .order_one import Start, minimise, zero_points
from .stack import Stack
from .sweep import Sweep, applies, folded

Array = NDArray[Any]

log = logging.getLogger("otdro")

#: Rows above which a part of them is solved first, for a starting point within statistical error
#: of the answer and for its Newton matrix: a tenth, at most ``SUBSAMPLE``, at least 30 per column.
SUBSAMPLE_FROM, SUBSAMPLE, PER_COLUMN = 5_000, 10_000, 30
#: Of very many rows the part is one in so many: the error of its answer is then so small that the
#: first Newton step over all rows is the last.
ONE_IN = 20
#: The gap of a starting point, as a share of the error d/part of its part, and the steps to it.
ROUGH_SHARE, ROUGH_STEPS = 0.1, 30
#: Entries of the rows of a stack of problems, each with its own copy, that are solved at a time.
ROWS_UP_TO = 1_000_000
#: Entries of sparse wide rows up to which folds are solved in step, as blocks of one matrix.
IN_STEP_UP_TO = 100_000


class Newton(BatchedMethod):
    """Any smooth loss at order 1, and at delta = 0.

    At delta = 0 the slopes must balance, Z'(pi a) = 0, and do to rounding only: ``dual_value``
    takes |Z'(pi a)| |theta| off, which is what that costs at the model found, not at every other.
    """

    accepts_zero = True
    certifies = f"{BatchedMethod.certifies}; at delta = 0 up to rounding of the dual point"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and order 2."""
        if problem.ball.order == 2 and problem.ball.delta > 0:
            return super().lacks(problem) or "Newton's method needs order 1"
        return super().lacks(problem)

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser, for many rows from that of a part of them."""
        weights, flat = problem.weights[:, None], constant_risk(problem)[1]
        n, d = problem.X.shape
        part = None
        if start is None:
            part = subsample(problem.y, weights, problem.loss, d, n // ONE_IN)
        at = self._coordinates(problem, part)
        batch = _batch(problem, at, weights, np.array([problem.ball.delta]))
        goal = np.array([tol * flat])
        first: Start | None = None if start is None else at.places([start])
        system: NewtonMatrix | None = NewtonMatrix.over(at.design)
        if part is not None:
            first, system = _of_part(batch, part, tol * flat, max_iter)
        found = minimise(batch, goal, max_iter, first, system=system, flat=np.array([flat]))
        return _solutions(problem, at, found, goal, batch.rho)[0]

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
        F, m = weights.shape[1], len(deltas)
        at = Coordinates(problem)
        targets = [tol * constant_risk(problem.weighted(column))[1] for column in weights.T]
        # the models at theta = 0 do not depend on delta
        flat = zero_points(_batch(problem, at, weights, np.zeros(F)))
        owner = np.repeat(np.arange(F), m)
        zero = flat.columns(owner)
        batch = _batch(problem, at, pick_columns(weights, owner), np.tile(deltas, F))
        first = None if starts is None else tuple(np.tile(part, F) for part in at.places(starts))
        found = minimise(batch, np.repeat(targets, m), max_iter, first, zero)
        solved = _solutions(problem, at, found, np.repeat(targets, m), batch.rho)
        return [solved[f * m : (f + 1) * m] for f in range(F)]

    def folds_together(self, problem: Problem) -> bool:
        """Whether paths under other costs are cheaper together: those of short products."""
        return self.starts_pay(problem) or _in_step(problem)

    def solve_folds(
        self,
        problems: list[Problem],
        deltas: Array,
        tol: float,
        max_iter: int,
        starts: Starts | None,
    ) -> list[list[Solution]]:
        """Solve problems each under its own cost at every delta, the rows of all in one stack."""
        if _in_step(problems[0]):
            tols = np.full(len(problems), tol)
            return _solve_in_step(problems, np.asarray(deltas), tols, max_iter)
        one = problems[0]
        if library(one.y) is not None or one.y.ndim != 1 or one.loss.task == "regression":
            return super().solve_folds(problems, deltas, tol, max_iter, starts)
        m, (n, d) = len(deltas), one.X.shape
        ats = [Coordinates(problem) for problem in problems]
        batches, targets = [], []
        firsts: list[Start | None] = []
        for problem, at in zip(problems, ats, strict=True):
            weights = pick_columns(problem.weights[:, None], np.zeros(m, dtype=int))
            batches.append(_batch(problem, at, weights, np.asarray(deltas)))
            targets.append(np.full(m, tol * constant_risk(problem)[1]))
            firsts.append(None if starts is None else at.places(starts))
        lot = max(1, ROWS_UP_TO // (m * n * min(n, d)))
        minima: list[Minimum] = []
        for i in range(0, len(problems), lot):
            part = slice(i, i + lot)
            minima += _minimise_stack(batches[part], targets[part], firsts[part], max_iter)
        return [
            _solutions(problem, at, minimum, target, batch.rho)
            for problem, at, minimum, target, batch in zip(
                problems, ats, minima, targets, batches, strict=True
            )
        ]

    def _coordinates(self, problem: Problem, part: slice | None = None) -> Coordinates:
        """Return coordinates; sparse rows that are few columns each stay as they are.

        They are centred on the mean of ``part`` of the rows, where that is given.
        """
        center = None if part is None else _mean_of(problem, part)
        return Coordinates(problem, reduce=not _sparse_and_wide(problem), center=center)

    def in_turn(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Solve at every delta from the line through the last two solutions."""
        at, target = self._coordinates(problem), np.array([tol * constant_risk(problem)[1]])
        one = _batch(problem, at, problem.weights[:, None], deltas[:1])
        found, rho = _along(one, deltas, target, max_iter), deltas * problem.loss.lipschitz
        if at.span is not None and library(problem.X) is None:
            # of few rows the coefficients of all deltas are one product
            path = Minimum.of_problem(found, 0, at.design.d)
            return _solutions(problem, at, path, np.full(len(deltas), target[0]), rho)
        each = zip(found, rho, strict=True)
        return [_solutions(problem, at, one, target, np.array([r]))[0] for one, r in each]

    def sweeps(self, problem: Problem) -> bool:
        """Whether folds share passes over the rows: these are many, and the loss is steady.

        Sparse wide ones are solved in step with the path, to which a product more is little.
        """
        return applies(problem) or _in_step(problem)

    def sweep(
        self,
        problem: Problem,
        held: list[Array],
        costs: list[Cost],
        deltas: Array,
        tol: float,
        fold_tol: float,
        max_iter: int,
    ) -> Swept:
        """Solve over all rows and without those of each fold, from passes that all share."""
        if _in_step(problem):
            folds = [folded(problem, *pair) for pair in zip(held, costs, strict=True)]
            tols = np.append(np.full(len(folds), fold_tol), tol)
            *solved, path = _solve_in_step([*folds, problem], deltas, tols, max_iter)
            return Swept(path, solved)
        sweep = Sweep(problem, held, costs, tol, fold_tol)
        swept = Swept([], [[] for _ in held])
        for j, delta in enumerate(deltas.tolist()):
            found = sweep.at(deltas[: j + 1])
            full = found.full
            if full is None:
                full = self.solve(problem.at(delta), tol, max_iter)
                sweep.went_on(full)
            log.info("delta %d of %d with its folds: gap %.2g", j + 1, len(deltas), full.gap)
            swept.path.append(full)
            for f, known in enumerate(found.folds):
                if known is None:
                    alone = folded(problem.at(delta), held[f], costs[f])
                    known = self.solve(alone, fold_tol, max_iter, full)
                swept.folds[f].append(known)
        return swept


def _minimise_stack(
    batches: list[Batch], targets: list[Array], starts: list[Start | None], max_iter: int
) -> list[Minimum]:
    """Return the minima of batches of labels over different rows, solved as one batch.

    Rows that only others have get weight 0, and columns that only others have are zero. theta = 0
    stands for no start.
    """
    n = max(batch.design.n for batch in batches)
    d = max(batch.design.d for batch in batches)
    sizes = [len(target) for target in targets]
    ends = np.cumsum(sizes).tolist()
    Z, y = np.zeros((len(batches), n, d)), np.ones((n, len(batches)))
    theta, b, weights = np.zeros((d, ends[-1])), np.zeros(ends[-1]), np.zeros((n, ends[-1]))
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    for k, (batch, start, part) in enumerate(zip(batches, starts, parts, strict=True)):
        rows, columns = batch.design.n, batch.design.d
        assert isinstance(batch.design, Design)
        Z[k, :rows, :columns] = batch.design.dense()
        y[:rows, k] = batch.y
        weights[:rows, part] = batch.weights
        if start is not None:
            theta[:columns, part], b[part] = start[:2]
    owner = np.repeat(np.arange(len(batches)), sizes)
    rho = np.concatenate([batch.rho for batch in batches])
    first = batches[0]
    whole = Batch(Stack(Z[owner]), y[:, owner], weights, first.loss, rho, first.fit_intercept)
    minimum = minimise(whole, np.concatenate(targets), max_iter, (theta, b))
    return [
        Minimum(
            theta=minimum.theta[: batch.design.d, part],
            b=minimum.b[part],
            z=minimum.z[: batch.design.n, part],
            slope=minimum.slope[: batch.design.n, part],
            objective=minimum.objective[part],
            gap=minimum.gap[part],
            n_iter=minimum.n_iter[part],
        )
        for batch, part in zip(batches, parts, strict=True)
    ]


def _along(batch: Batch, deltas: Array, target: Array, max_iter: int) -> list[Minimum]:
    """Return the minima of a batch at every delta, from the line through the last two."""
    found: list[Minimum] = []
    zero, system = zero_points(batch), NewtonMatrix.over(batch.design)
    for j, delta in enumerate(deltas):
        rho = np.full(len(target), delta * batch.loss.lipschitz)
        start = _extrapolated(found[-2:], deltas[: j + 1])
        # a matrix serves the next delta while it has all problems
        system = system if len(target) == 1 else NewtonMatrix.over(batch.design)
        one = replace(batch, rho=rho)
        found.append(minimise(one, target, max_iter, start, zero, system))
    return found


def _sparse_and_wide(problem: Problem) -> bool:
    """Whether products with the rows are shorter than with their kernel."""
    X: Any = problem.X
    n, d = X.shape
    return hasattr(X, "nnz") and d > DENSE_UP_TO and bool(X.nnz < n * n)


def _in_step(problem: Problem) -> bool:
    """Whether such rows are so few numbers that calling a product takes as long as it does."""
    return _sparse_and_wide(problem) and bool(problem.X.nnz <= IN_STEP_UP_TO)


def _solve_in_step(
    problems: list[Problem], deltas: Array, tols: Array, max_iter: int
) -> list[list[Solution]]:
    """Solve problems over the same sparse rows at every delta, as blocks of one matrix."""
    first, origin = problems[0], np.zeros(problems[0].X.shape[1])
    ats = [Coordinates(each, reduce=False, center=origin) for each in problems]
    weights = np.stack([each.weights for each in problems]).T
    rows = BlockRows.of(first.X, [at.factor for at in ats], weights.T > 0)
    rho = deltas * first.loss.lipschitz
    each_rho = np.full(len(problems), rho[0])
    batch = Batch(rows, first.y, weights, first.loss, each_rho, first.fit_intercept)
    target = tols * np.array([constant_risk(each)[1] for each in problems])
    found = _along(batch, deltas, target, max_iter)
    solved = []
    for b, (each, at) in enumerate(zip(problems, ats, strict=True)):
        path = Minimum.of_problem(found, b, at.d)
        solved.append(_solutions(each, at, path, np.full(len(deltas), target[b]), rho))
    return solved


def _extrapolated(found: list[Minimum], deltas: Array) -> Start | None:
    """Return the start at the last of ``deltas``: the line in log delta through the last two."""
    if not found:
        return None
    first, last = found[0], found[-1]
    t = np.where(first.theta.any(axis=0), ahead(deltas), 0.0)
    pairs = ((first.theta, last.theta), (first.b, last.b), (first.z, last.z))
    return tuple(v + factor_of(t, v) * (v - u) for u, v in pairs)


def _batch(problem: Problem, at: Coordinates, weights: Array, deltas: Array) -> Batch:
    """Return the problems of the columns of ``weights``, each at its delta."""
    rho = deltas * problem.loss.lipschitz if deltas.any() else np.zeros(len(deltas))
    return Batch(at.design, problem.y, weights, problem.loss, rho, problem.fit_intercept)


def _solutions(
    problem: Problem, at: Coordinates, found: Minimum, target: Array, rho: Array
) -> list[Solution]:
    w, lipschitz = norms(found.theta), problem.loss.lipschitz
    # Lip may be infinite where delta = 0
    lam = np.array([lipschitz * each if each > 0 else 0.0 for each in w.tolist()])
    # F = mean loss + rho w
    mean_loss = (found.objective - rho * w).tolist()
    return at.solutions(found, lam, found.slope, target, mean_loss)


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


def _mean_of(problem: Problem, rows: slice) -> Array:
    """Return the mean of some rows."""
    weights = problem.weights[rows]
    return mean(pick(problem.X, rows), weights / weights.sum())


def _of_part(
    batch: Batch, part: slice, target: float, max_iter: int
) -> tuple[Start, NewtonMatrix | None]:
    """Return the minimiser over some rows, and its Newton matrix for steps over all of them."""
    # a copy: many passes go over these rows
    rows = numbers(len(batch.y), batch.y)[part]
    weights = pick(batch.weights, rows)
    weights = weights / weights.sum()
    assert isinstance(batch.design, Design)
    design, y = batch.design.rows(rows), pick(batch.y, rows)
    few = Batch(design, y, weights, batch.loss, batch.rho, batch.fit_intercept)
    system = NewtonMatrix()
    goal = np.array([max(target, ROUGH_SHARE * design.d / design.n)])
    found = minimise(few, goal, min(max_iter, ROUGH_STEPS), system=system)
    known = len(system.residual) > 0
    return (found.theta, found.b), system.lent() if known else None
