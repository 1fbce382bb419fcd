"""The methods of smooth losses at orders 1 and 2: coordinates, batches of problems, starts.

Euclidean problems are round in whitened, centred coordinates. Problems over the same rows that
share steps are one batch, and a path starts near what was solved before.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky

from ...arrays import namespace, pick
from ...costs.mahalanobis import StructuredFactor, shortest
from ...design import REDUCE_UP_TO, WRITTEN_UP_TO, Design, Span, mean, row_space
from ...duality import STEPS, DualRows, Round
from ...problem import Problem, Solution
from ...progress import logger
from ..exact import Method, Starts, ahead, each_alone, same_factor, verdict
from . import order_one
from .order_one import (
    Minima,
    NewtonSystem,
    PenalisedRisk,
    Place,
    WeightedRows,
    Zero,
)
from .order_two import ROUGH_TOL, JointObjective

Array = NDArray[Any]

#: Rows times columns up to which all deltas of a path are solved as one batch.
BATCH_UP_TO = 20_000
#: The same of order 1, whose single problems keep their Newton matrices from delta to delta.
BATCH_ORDER_ONE_UP_TO = 6_000
#: Rows from which a tenth of them, but no more than these, is solved first, for a starting point
#: within statistical error of the answer and for its Newton matrix.
SUBSAMPLE = 10_000
#: Rows of the part per column at least.
PER_COLUMN = 30


class Coordinates:
    r"""Whitened, centred coordinates: :math:`\beta = LV\theta`, :math:`\|\beta\|_* = \|\theta\|_2`.

    L is the factor of the cost, V spans the rows of a wide problem (else the identity), and the
    intercept is that of the centred rows, :math:`b + \bar x'\beta`. Methods that need products
    with the rows only, and these sparse, do without V (``reduce`` False). ``center`` stands in for
    the mean row: any point near it serves.
    """

    span: Span | None

    def __init__(self, problem: Problem, reduce: bool = True, center: Array | None = None) -> None:
        self.center = None
        if problem.fit_intercept:
            self.center = mean(problem.X, problem.weights) if center is None else center
        cost = problem.ball.cost
        self.factor = cost.factor() if cost.euclidean else None
        self.X, self.span = problem.X, None
        if reduce and cost.euclidean and _is_wide(problem.X, self.d):
            self.design, self.span = row_space(self.design, problem.ball.delta == 0)

    @property
    def d(self) -> int:
        """The columns of L."""
        return int(self.X.shape[1] if self.factor is None else self.factor.shape[1])

    @cached_property
    def design(self) -> Design:
        """The rows in these coordinates."""
        return Design(self.X, self.factor, self.center)

    def theta(self, coef: Array) -> Array:
        """Return the coordinates of coefficients beta."""
        theta = coef if self.factor is None else shortest(self.factor, coef)
        return theta if self.span is None else self.span.drop(theta)

    def coef(self, theta: Array) -> Array:
        """Return beta = L V theta."""
        theta = theta if self.span is None else self.span.lift(theta)
        return theta if self.factor is None else self.factor @ theta

    def intercept(self, b: float, coef: Array) -> float:
        """Return the intercept on the rows as given, from that on centred rows."""
        return float(self.uncentred(b, coef))

    def uncentred(self, b: Any, coef: Array) -> Any:
        """Return the intercepts on the rows as given, one per column of coefficients."""
        return self._shifted(b, -coef)

    def centred(self, intercept: float, coef: Array) -> float:
        """Return the intercept on centred rows, from that on the rows as given."""
        return float(self._shifted(intercept, coef))

    def _shifted(self, b: Any, coef: Array) -> Any:
        return b if self.center is None else b + self.center @ coef

    def place(self, start: Solution) -> tuple[Array, Any]:
        """Return theta and the intercept on centred rows of a solution."""
        coef = start.coef.T
        return self.theta(coef), self._shifted(start.intercept, coef)


def _is_wide(X: Any, d: int) -> bool:
    """Whether rows of d coordinates are reduced to their span."""
    return bool(d > X.shape[0] and X.shape[0] <= REDUCE_UP_TO)


class FactoredRows(Design):
    """The rows z_i = L_b'(x_i - c) of B problems over the same X, each under its own cost.

    ``factors`` (P, d, d) are the matrices L (None: the identity), problem b has that of number
    ``owner[b]``. Vectors have the problems along their last axis.
    """

    def __init__(self, X: Any, factors: list[Any], center: Array | None) -> None:
        super().__init__(X, None, center)
        self.base = Design(X, None, center)
        eye = np.eye(self.d)
        self.factors = np.stack([eye if L is None else L for L in factors])
        self.owner = np.arange(len(factors))

    def problems(self, index: Array) -> FactoredRows:
        """Return the rows of some problems."""
        some = copy(self)
        some.owner = self.owner[index]
        return some

    def lifted(self, theta: Array) -> Array:
        """Return L_b theta_b."""
        if theta.ndim == 1:
            return np.asarray(self.factors[self.owner[0]] @ theta)
        return np.asarray((self.factors[self.owner] @ theta.T[:, :, None])[:, :, 0].T)

    def _pull(self, g: Array) -> Array:
        """Return L_b'g_b."""
        if g.ndim == 1:
            return np.asarray(g @ self.factors[self.owner[0]])
        return np.asarray((g.T[:, None, :] @ self.factors[self.owner])[:, 0].T)

    def moments(self, D: Array) -> tuple[Array, Array]:
        """Return Z_b' diag(D_b) Z_b, shape (B, d, d), and Z_b'D_b, shape (d, B)."""
        G, s = self.base.moments(D)
        L = self.factors[self.owner]
        return np.swapaxes(L, 1, 2) @ G @ L, self._pull(s)

    @property
    def offset(self) -> Array:
        """|L|'|c|, what is subtracted from each column, shape (B, d)."""
        return np.asarray(self.base.offset @ np.abs(self.factors))[self.owner]

    @property
    def rounding(self) -> Array:
        """What is left of the mean square of a column that is constant."""
        return self.offset**2 * self.left_of_squares


class SmoothMethod(Method):
    """A Newton method for smooth losses: problems and deltas that share steps are one batch."""

    geometries = frozenset({"euclidean"})
    on_device = True
    #: Whether lam is minimised together with the model, as order 2 needs.
    joint = False
    #: Rows times columns up to which all deltas of a path are one batch.
    batch_up_to = BATCH_UP_TO

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
        """Return the solutions of problems over the same rows and targets at every delta.

        Small problems are solved at all deltas at a time, others one delta after another, each
        from the line in log delta through the two solutions before it.
        """
        if len(problems) > 1 and not self._together(problems):

            def alone(p: int, problem: Problem, near: Starts | None) -> list[Solution]:
                own = None if near is None else [near]
                return self.solve([problem], deltas, [tols[p]], max_iter, own)[0]

            return each_alone(problems, starts, alone)
        path = Path(self, problems, np.asarray(tols), max_iter)
        size = len(deltas) if self.is_small(problems[0]) else 1
        for j in range(0, len(deltas), size):
            lot = slice(j, j + size)
            near = None if starts is None else [start for each in starts for start in each[lot]]
            path.go_on(deltas[lot], near)
        return path.solved

    def is_small(self, problem: Problem) -> bool:
        """Whether all deltas of a path are one batch."""
        n, d = problem.X.shape
        return bool(n * min(n, d) <= self.batch_up_to)

    def _together(self, problems: list[Problem]) -> bool:
        """Whether problems over the same rows are one batch."""
        raise NotImplementedError

    def data(
        self, problems: list[Problem], at: list[Coordinates], rows: Design, weights: Array
    ) -> Any:
        """Return the rows, in the coordinates of problems, with their weights (n, P)."""
        first = problems[0]
        return WeightedRows(rows, first.y, weights, first.loss, first.fit_intercept)

    def zero(self, data: Any) -> Any:
        """Return the best models at theta = 0."""
        return Zero.of(data)

    def places(self, at: list[Coordinates], starts: Starts) -> Place:
        """Return the places of solutions, as many of each problem."""
        owner = np.arange(len(starts)) * len(at) // len(starts)
        each = [at[p].place(start) for p, start in zip(owner, starts, strict=True)]
        theta, b = zip(*each, strict=True)
        return Place(np.stack(theta, axis=1), np.array(b))

    def solutions(self, path: Path, p: int, minima: Any, deltas: Array) -> list[Solution]:
        """Return the minima of problem p at some deltas on the rows as given."""
        coefs = path.at[p].coef(minima.theta)
        b, target = path.at[p].uncentred(minima.b, coefs).tolist(), float(path.target[p])
        return [as_solution(minima, j, coefs[:, j], b[j], target) for j in range(len(deltas))]

    def minimise(
        self,
        data: Any,
        deltas: Array,
        zero: Any,
        target: Array,
        max_iter: int,
        start: Any,
        system: NewtonSystem,
    ) -> Any:
        """Minimise B problems, each at its delta (B,), until the gaps are at most ``target`` (B,).

        ``zero`` are the models at theta = 0; steps may use the matrices of ``system``.
        """
        if self.joint:
            rows = DualRows(data.rows, data.y, data.weights, deltas, data.fit_intercept, Round())
            joint = JointObjective(rows, data.loss)
            return order_one.minimise(joint, zero, target, max_iter, start)
        # Lip may be infinite where delta = 0
        rho = deltas * data.loss.lipschitz if deltas.any() else 0.0 * deltas
        risk = PenalisedRisk(data, rho, system, np.arange(len(deltas)))
        return order_one.minimise(risk, zero, target, max_iter, start)


def _sparse_and_wide(problem: Problem) -> bool:
    """Whether products with the rows are shorter than with their kernel."""
    X: Any = problem.X
    n, d = X.shape
    return hasattr(X, "nnz") and d > WRITTEN_UP_TO and bool(max(X.nnz, BATCH_UP_TO) < n * n)


class Path:
    """Problems over the same rows along descending deltas."""

    def __init__(
        self, method: SmoothMethod, problems: list[Problem], tols: Array, max_iter: int
    ) -> None:
        self.method, self.problems, self.max_iter = method, problems, max_iter
        first, P = problems[0], len(problems)
        # the weights of a problem are next to each other
        weights = namespace(first.weights).stack([one.weights for one in problems]).T
        part = subsample(first, weights) if P == 1 else None
        self.at, rows = _coordinates(problems, part)
        self.data = method.data(problems, self.at, rows, weights)
        self.part = None if part is None else self.data.part(part)
        self.target = tols * np.array([one.constant[1] for one in problems])
        self.zero = method.zero(self.data)
        self.system = NewtonSystem(P, shared=P > 1 and rows is self.at[0].design)
        self.solved: list[list[Solution]] = [[] for _ in problems]
        self.deltas: list[float] = []
        self.last: list[Any] = []

    def go_on(self, deltas: Array, near: Starts | None) -> None:
        """Solve at the next deltas, of one as a step of the path, of several as one batch."""
        P, m = len(self.problems), len(deltas)
        owner = np.repeat(np.arange(P), m)
        self.deltas.append(float(deltas[-1]))
        system = self.system.retried() if m == 1 else NewtonSystem(P * m)
        minima = self.method.minimise(
            data=self.data.columns(owner),
            deltas=np.tile(deltas, P),
            zero=self.zero.columns(owner),
            target=self.target[owner],
            max_iter=self.max_iter,
            start=self._start(near),
            system=system,
        )
        # what has an entry per row is not kept of folds of many rows
        kept = P == 1 or self.method.is_small(self.problems[0])
        ends = minima if kept else replace(minima, dual=None)
        for p in range(P):
            own = ends.columns(np.flatnonzero(owner == p))
            self.solved[p] += self.method.solutions(self, p, own, deltas)
        self.last = [*self.last[-1:], minima]
        if P > 1:
            logger.info("delta %.3g with its folds: gap %.2g", deltas[-1], minima.gap[m - 1])

    def _start(self, near: Starts | None) -> Any:
        """Return where to start: near given solutions, the path so far, or a part of the rows."""
        if near is not None:
            return self.method.places(self.at, near)
        if self.last:
            return self.last[-1].beyond(self.last[0], ahead(np.array(self.deltas)))
        return None if self.part is None else self._of_part(self.part)

    def _of_part(self, part: Any) -> Any:
        """Return the minimiser over some rows; its Newton matrix serves steps over all of them."""
        zero = self.method.zero(part)
        end = self.method.minimise(
            data=part,
            deltas=np.array(self.deltas),
            zero=zero,
            target=ROUGH_TOL * zero.risk,
            max_iter=min(self.max_iter, STEPS),
            start=None,
            system=self.system,
        )
        self.system.retried()
        return end.beyond(end, 0.0)


def _coordinates(problems: list[Problem], part: slice | None) -> tuple[list[Coordinates], Design]:
    """Return the coordinates of problems over the same X, and the rows in them.

    All have one centre, the mean row; of many rows that of a part of them will do.
    """
    first, center = problems[0], None
    if first.fit_intercept:
        rows = slice(None) if part is None else part
        share = first.weights[rows]
        center = mean(pick(first.X, rows), share / share.sum())
    reduce = len(problems) == 1 and not _sparse_and_wide(first)
    at = [Coordinates(problem, reduce=reduce, center=center) for problem in problems]
    if not first.ball.cost.euclidean or same_factor(problems):
        return at, at[0].design
    for each in at:
        if isinstance(each.factor, StructuredFactor):
            each.factor = cholesky(each.factor.matrix.toarray(), lower=True)
    return at, FactoredRows(first.X, [each.factor for each in at], center)


def as_solution(minima: Minima, j: int, coef: Array, intercept: Any, target: float) -> Solution:
    """Return minimum j with its coefficients on the rows as given, certified if on target."""
    gap, n_iter = float(minima.gap[j]), int(minima.n_iter[j])
    return Solution(
        coef=np.ascontiguousarray(coef),
        intercept=intercept,
        multiplier=float(minima.lam[j]),
        objective=float(minima.objective[j]),
        gap=gap,
        n_iter=n_iter,
        converged=bool(gap <= target),
        message=verdict(gap, target, n_iter),
        dual=None if minima.dual is None else minima.dual[:, j],
        mean_loss=float(minima.mean_loss[j]),
    )


def subsample(problem: Problem, weights: Array) -> slice | None:
    """Return evenly spaced rows of a large problem on which to look for a starting point.

    None where the rows are few, or the part lacks one of the labels.
    """
    y, loss = problem.y, problem.loss
    n, d = problem.X.shape
    part = max(min(SUBSAMPLE, n // 10), PER_COLUMN * d)
    if n < SUBSAMPLE or part > n / 3:
        return None
    rows = slice(0, n, n // part)
    if loss.task == "classification":
        labels = range(loss.outputs) if loss.outputs > 1 else (-1, 1)
        used = weights[rows, 0] > 0
        if not all(bool((used & (y[rows] == k)).any()) for k in labels):
            return None
    return rows


class Newton(SmoothMethod):
    """Any smooth loss at order 1, and at delta = 0.

    At delta = 0 the slopes must balance, Z'(pi a) = 0, and do to rounding only: the bound takes
    |Z'(pi a)| |theta| off, which is what that costs at the model found, not at every other.
    """

    accepts_zero = True
    batch_up_to = BATCH_ORDER_ONE_UP_TO

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and order 2."""
        if problem.ball.order == 2 and problem.ball.delta > 0:
            return super().lacks(problem) or "Newton's method needs order 1"
        return super().lacks(problem)

    def _together(self, problems: list[Problem]) -> bool:
        n, d = problems[0].X.shape
        return bool(d <= min(n, WRITTEN_UP_TO))


class JointNewton(SmoothMethod):
    """Any smooth Lipschitz loss at order 2."""

    joint = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and losses without a largest slope."""
        if not np.isfinite(problem.loss.lipschitz):
            name = type(problem.loss).__name__
            missing = f"Newton's method in lam needs a Lipschitz loss, {name} is not"
            return super().lacks(problem) or missing
        return super().lacks(problem)

    def _together(self, problems: list[Problem]) -> bool:
        n, d = problems[0].X.shape
        return self.is_small(problems[0]) and d <= n and same_factor(problems)
