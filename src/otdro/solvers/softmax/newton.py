r"""Newton's method for the mean cross-entropy and a penalty on pairs of classes.

.. math:: \min_{C, c}\ F = \sum_i \pi_i \ell(z_i, y_i) + \delta \max_p \|D_p\|_*,\qquad
          z = (ZC + c)E'.

Problems over the same rows that differ in weights and delta are solved together, along the first
axis of all arrays. Each step minimises a quadratic model of the loss plus the penalty.
Probabilities q continued along the step, and the flows v of the model, corrected so that
:math:`\sum_p v_p(e_k - e_l)' = -Z'(\pi(q - e_y))`, are a point of the dual after shrinking both by
:math:`\min(1, \delta/\sum_p\|v_p\|)`:

.. math:: \max\ -\sum_i \pi_i \sum_k q_{ik}\log q_{ik}\quad\text{s.t.}\quad
          \textstyle\sum_p \|v_p\| \le \delta,\ \sum_i \pi_i (q_i - e_{y_i}) = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import as_index, beside, class_masses, namespace, pick
from ...design import DECOMPOSE_UP_TO, REDUCE_UP_TO, Design, mean, row_space
from ...problem import Problem, Solution
from ..euclidean.newton import Coordinates, subsample
from ..euclidean.order_one import TINY, Batch, descend
from ..euclidean.order_two import ROUGH_STEPS, ROUGH_TOL
from ..exact import Method, Starts, ahead, same_factor, verdict
from .pairs import PairMove, PairPenalty, Quadratic, SoftmaxRows, corrected, inner, pair_penalty

Array = NDArray[Any]

#: The accuracy of a model's minimiser, as a share of what the last step promised.
LOOSE = 1e-3
#: Coefficients below this share of the largest are tried as zeros where the penalty is a sum.
NEGLIGIBLE = 1e-6
#: Scores of all problems up to which folds are solved in step.
IN_STEP_UP_TO = 5_000_000
#: The slope along the first move at least, relative to its penalty: B is the best only nearly.
LEAST_SLOPE = 1e-3


@dataclass(frozen=True, eq=False)
class PairPoints(Batch):
    """Coefficients C (d, K - 1), intercepts c, scores z, probabilities p, the penalty's norm and F.

    ``promised`` is what the last step promised, ``multipliers`` are those of its pairs.
    """

    axis: ClassVar[int] = 0

    C: Array
    c: Array
    z: Array
    p: Array
    norm: Array
    objective: Array
    promised: Array
    multipliers: Array | None


@dataclass(frozen=True, eq=False)
class PairMinima(Batch):
    """Minimisers with their certified gaps, and multipliers where a step nearby can start there."""

    axis: ClassVar[int] = 0

    C: Array
    c: Array
    norm: Array
    objective: Array
    gap: Array
    n_iter: Array
    multipliers: Array | None


class SoftmaxStart(NamedTuple):
    """Coefficients and intercepts, and multipliers of the pairs where they are known."""

    C: Array
    c: Array
    multipliers: Array | None = None


@dataclass(frozen=True, eq=False)
class SoftmaxZero(Batch):
    """The best models without coefficients: intercepts, risk, probabilities p, the gradient G
    (d, K), a flow of that, and a matrix B to start along. They do not depend on delta."""

    axis: ClassVar[int] = 0

    c: Array
    risk: Array
    z: Array
    p: Array
    G: Array
    flows: Array
    B: Array


@dataclass(frozen=True, eq=False)
class PairProblems:
    """Problems over the same rows under one penalty, with their ``delta`` and ``target`` (B,)."""

    kinks: ClassVar[bool] = True
    rate: ClassVar[float] = 0.0

    rows: SoftmaxRows
    penalty: PairPenalty
    delta: Array
    target: Array

    def columns(self, index: Array) -> PairProblems:
        """Return some of the problems."""
        rows = self.rows.columns(index)
        return replace(self, rows=rows, delta=self.delta[index], target=self.target[index])

    def norms(self, C: Array) -> Array:
        """Return the largest norms over pairs."""
        return self.penalty.norms(self.rows.differences(C)).max(axis=-1)

    def at(
        self, C: Array, c: Array, z: Any = None, promised: Any = None, multipliers: Any = None
    ) -> PairPoints:
        """Return the points at (C, c), of scores z where they are known."""
        z = self.rows.scores(C, c) if z is None else z
        (loss, p), norm = self.rows.evaluate(z), self.norms(C)
        F = np.asarray(loss + self.delta * norm)
        return PairPoints(C, c, z, p, norm, F, F if promised is None else promised, multipliers)

    def along(self, zero: SoftmaxZero) -> PairPoints:
        """Return the minimisers of the quadratic models along B."""
        rows = self.rows
        C = zero.B @ rows.basis
        dz = rows.scores(C, 0 * zero.c)
        bend = rows.total(inner(rows.bent(zero.p, dz), dz))
        length = self.length_along(zero, bend)[:, None, None]
        return self.at(length * C, zero.c.copy(), zero.z + beside(length, dz) * dz)

    def length_along(self, zero: SoftmaxZero, bend: Array) -> Array:
        """Return the length of the best move along B where the loss bends by ``bend``."""
        norm = self.norms(zero.B @ self.rows.basis)
        price = self.delta * norm
        down = np.maximum(-np.sum(zero.G * zero.B, axis=(1, 2)) - price, LEAST_SLOPE * price)
        length = np.where(bend > 0, down / np.where(bend > 0, bend, 1), 1 / np.maximum(norm, TINY))
        return np.where(norm > 0, length, 0.0)

    def move(self, x: Any, g: Array, H: Array) -> tuple[PairMove, Array]:
        """Return the minimiser of the models at points, and the slopes of F along the moves."""
        accuracy = np.maximum(self.target, LOOSE * x.promised)
        model = Quadratic(self.rows, x.C, g, H)
        move = self.penalty.move(model, self.delta, accuracy, x.multipliers)
        s = self.rows.joined(move.step, move.shift)
        return move, np.einsum("bi,bi->b", g, s) + move.rise

    def line(self, x: Any) -> PairLine:
        """Return the lines of the next steps."""
        rows = self.rows
        g, H = rows.gradient(rows.slopes(x.p)), rows.curvature(x.p)
        move, descent = self.move(x, g, H)
        return PairLine(self, x, move, descent, rows.scores(move.step, move.shift))

    def after(self, line: PairLine, length: Array) -> Any:
        """Return the points after a share of moves, which add ``line.change`` to the scores."""
        x, move, far = line.x, line.move, length[:, None, None]
        C, c = x.C + far * move.step, x.c + far[:, 0] * move.shift
        z = x.z + beside(far, line.change) * line.change
        return self.at(C, c, z, -line.descent, move.multipliers)

    def lower_bound(self, x: Any, line: PairLine) -> Array:
        """Return the bounds of the probabilities before a step, continued along it and as they are.

        Without a penalty nothing bounds models farther out than the first ones, whose slopes leave
        a gradient.
        """
        rows, p = self.rows, line.x.p
        q = rows.balanced(p, p + rows.bent(p, line.change))
        if self.delta.all():
            still = self.bound(x, rows.balanced(p, p), line.move.flows)
            return np.maximum(self.bound(x, q, line.move.flows), still)
        return self.bound(x, rows.on_simplex(q), line.move.flows)

    def bound(self, at: Any, q: Array, flows: Array) -> Array:
        """Return the dual values of probabilities q with flows made to fit."""
        rows, delta = self.rows, self.delta
        flows = corrected(rows, rows.adjoint(rows.slopes(q)), flows)
        size = self.penalty.sizes(flows).sum(axis=-1)
        shrink = np.where(delta > 0, np.minimum(1.0, delta / np.maximum(size, TINY)), 1.0)
        # without a penalty E a = 0 and Z'(pi a) = 0 hold nearly; the price is that of the point
        price = np.where(delta > 0, 0.0, size * at.norm)
        if rows.fit_intercept and not delta.all():
            price += np.linalg.norm(rows.mean(rows.slopes(q)), axis=-1) * np.linalg.norm(
                at.c, axis=-1
            )
        return np.asarray(np.maximum(rows.dual_value(q, shrink) - price, 0.0))


@dataclass(frozen=True, eq=False)
class PairLine:
    """Points along moves; ``change`` is what the problems know of the rows there."""

    longest: ClassVar[float] = 1.0

    problems: PairProblems
    x: Any
    move: PairMove
    descent: Array
    change: Any

    def at(self, length: Array) -> Any:
        """Return the points after a share (B,) of the moves."""
        return self.problems.after(self, length)

    def columns(self, index: Array) -> PairLine:
        """Return the lines of some problems."""
        some = self.problems.columns(index), self.x.columns(index), self.move.columns(index)
        return PairLine(*some, self.descent[index], pick(self.change, index))


def origin(rows: SoftmaxRows, penalty: PairPenalty, constant: Array) -> SoftmaxZero:
    """Return the models of the intercepts ``constant`` (B, K), the best without coefficients."""
    c = constant @ rows.basis
    z = rows.scores(np.zeros((len(c), rows.d, rows.classes - 1)), c)
    risk, p = rows.evaluate(z)
    G = rows.adjoint(rows.slopes(p))
    return SoftmaxZero(c, np.asarray(risk), z, p, G, *penalty.first(rows, G))


def minimise(
    problems: Any,
    zero: SoftmaxZero,
    max_iter: int,
    start: SoftmaxStart | None = None,
) -> PairMinima:
    """Minimise F until its gap is at most the target, from ``start`` where that is better.

    The problems are those of rows in memory, or of rows in chunks (``solvers/streamed``).
    """
    C, none = np.zeros((len(zero.c), problems.rows.d, problems.rows.classes - 1)), 0 * zero.risk
    nothing = PairPoints(C, zero.c, zero.z, zero.p, none, zero.risk, none, None)
    gap = np.full(len(zero.c), np.inf)
    if problems.delta.all():
        gap = np.maximum(zero.risk - problems.bound(nothing, zero.p, zero.flows), 0.0)
    n_iter = np.ones(len(gap), dtype=int)
    minima = PairMinima(C, zero.c, none, zero.risk, gap, n_iter, None)
    some = np.flatnonzero(gap > problems.target)
    if not len(some):
        return minima
    part, flat = problems.columns(some), zero.columns(some)
    end = descend(part, _first(part, flat, start, some), part.target, max_iter)
    x = end.point
    ends = PairMinima(x.C, x.c, x.norm, x.objective, end.gap, end.n_iter, x.multipliers)
    return minima.replaced(some, ends)


def _first(problems: Any, zero: SoftmaxZero, start: SoftmaxStart | None, some: Array) -> Any:
    """Return the starts where they are better than zero, else the model's minimisers along B."""
    if start is None:
        return problems.along(zero)
    known = None if start.multipliers is None else start.multipliers[some]
    warm = problems.at(start.C[some], start.c[some], multipliers=known)
    cold = np.flatnonzero(~((warm.norm > 0) & (warm.objective < zero.risk)))
    if not len(cold):
        return warm
    return warm.replaced(cold, problems.columns(cold).along(zero.columns(cold)))


class MultinomialNewton(Method):
    """The cross-entropy of several scores at order 1, and at delta = 0."""

    geometries = frozenset({"euclidean", "norm"})
    accepts_zero = True
    several_scores = True
    on_device = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 2, and norms other than Euclidean ones, l1 and linf."""
        ball = problem.ball
        if ball.delta == 0:
            return None
        if ball.order == 2:
            return "the softmax model has no one-dimensional inner problem at order 2"
        if not ball.cost.euclidean and ball.cost.dual_p not in (1.0, np.inf):
            return f"the softmax model needs a Euclidean cost, l1 or linf, not {ball.cost!r}"
        return None

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta, each from those before it."""
        start = None if starts is None else starts[0]
        return _paths(PairCoordinates([problem]), deltas, [tol], max_iter, start)[0]

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions of problems over the same rows, in step where they fit."""
        first, K = problems[0], problems[0].loss.outputs
        n, d = first.X.shape
        masses = [class_masses(p.y, p.weights, K) for p in problems]
        structured = any(p.ball.cost.structured for p in problems)
        small = d <= n and len(problems) * n * K <= IN_STEP_UP_TO
        if len(problems) == 1 or structured or not small or not np.all(masses):
            return super().solve(problems, deltas, tols, max_iter, starts)
        return _paths(PairCoordinates(problems), np.asarray(deltas), tols, max_iter)


class PairCoordinates:
    """Rows of problems, centred; under Euclidean costs whitened, and reduced to their span.

    That is of wide rows, and of those whose columns depend on each other: a step would be free
    along what no row sees. Under costs of several factors the rows stay as they are, and each
    problem has its factor (``SoftmaxRows``).
    """

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        first = problems[0]
        center = mean(first.X, first.weights) if first.fit_intercept else None
        plain, cost = first.ball.delta == 0, first.ball.cost
        self.each = [Coordinates(problem, reduce=False, center=center) for problem in problems]
        alike = not cost.euclidean or len(problems) == 1 or same_factor(problems)
        self.factors = None
        if alike:
            self.design = self.each[0].design
        else:
            eye = np.eye(first.X.shape[1])
            factors = [at.factor for at in self.each]
            self.factors = np.stack([eye if L is None else L for L in factors])
            self.design = Design(first.X, None, center)
        n, d = self.design.n, self.design.d
        few = n * d <= DECOMPOSE_UP_TO
        if alike and (cost.euclidean or plain) and n <= REDUCE_UP_TO and (d > n or few):
            design, span = row_space(self.design, plain)
            if design.d < d:
                self.design = design
                for at in self.each:
                    at.span = span
        if few and self.design.center is not None and not plain:
            # many products with few rows: centre them once
            self.design = Design(self.design.dense())

    @cached_property
    def rows(self) -> SoftmaxRows:
        """The rows in these coordinates."""
        first = self.problems[0]
        weights = namespace(first.weights).stack([problem.weights for problem in self.problems])
        form = (first.loss.outputs, first.fit_intercept)
        return SoftmaxRows(self.design, as_index(first.y), weights, *form, self.factors)

    def inside(self, i: int, coef: Array, intercept: Array, E: Array) -> tuple[Array, Array]:
        """Return (C, c) of coefficients and intercepts of a problem."""
        at = self.each[i]
        return at.theta(coef.T) @ E, at.uncentred(np.asarray(intercept), -coef.T) @ E

    def outside(self, i: int, C: Array, c: Array, E: Array) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) on the rows as given."""
        at = self.each[i]
        B = at.coef(C) @ E.T
        return B.T, at.uncentred(E @ c, B)


def _paths(
    at: PairCoordinates,
    deltas: Array,
    tols: Sequence[float],
    max_iter: int,
    start: Solution | None = None,
) -> list[list[Solution]]:
    """Return the solutions along deltas, each from the line through the two before it."""
    problems, rows = at.problems, at.rows
    known = [problem.constant for problem in problems]
    constant, risk = np.stack([b for b, _ in known]), np.array([risk for _, risk in known])
    penalty = pair_penalty(problems[0].at(float(deltas[0])))
    zero = origin(rows, penalty, constant)
    near = None
    if start is not None:
        C, c = at.inside(0, start.coef, start.intercept, rows.basis)
        near = SoftmaxStart(C[None], c[None])
    last: list[PairMinima] = []
    solved: list[list[Solution]] = [[] for _ in problems]
    for j, delta in enumerate(deltas.tolist()):
        radii = np.full(len(problems), delta)
        each = PairProblems(rows, penalty, radii, np.asarray(tols) * risk)
        near = _extrapolated(last, deltas[: j + 1]) if last else near or _of_part(each)
        last = [*last[-1:], minimise(each, zero, max_iter, near)]
        for i, path in enumerate(solved):
            path.append(_solution(at, each.columns(np.array([i])), i, last[-1]))
    return solved


def _of_part(problems: PairProblems) -> SoftmaxStart | None:
    """Return the minimisers over a part of many rows, None where the rows are few."""
    rows = problems.rows
    if len(rows.weights) > 1:
        return None
    part = subsample(rows.labels, rows.weights.T, range(rows.classes), rows.d)
    if part is None:
        return None
    rows = rows.part(np.arange(rows.design.n)[part])
    masses = class_masses(rows.labels, rows.weights[0], rows.classes)
    b = np.log(masses) * rows.fit_intercept
    zero = origin(rows, problems.penalty, (b - b.mean())[None])
    rough = replace(problems, rows=rows, target=ROUGH_TOL * zero.risk)
    minima = minimise(rough, zero, ROUGH_STEPS)
    return SoftmaxStart(minima.C, minima.c, minima.multipliers)


def _extrapolated(found: list[PairMinima], deltas: Array) -> SoftmaxStart:
    """Return a start at the last of ``deltas``, on the line in log delta through the last two."""
    first, last = found[0], found[-1]
    t = np.where(first.norm > 0, ahead(deltas), 0.0)
    C = last.C + t[:, None, None] * (last.C - first.C)
    return SoftmaxStart(C, last.c + t[:, None] * (last.c - first.c), last.multipliers)


def _solution(at: PairCoordinates, problem: PairProblems, i: int, best: PairMinima) -> Solution:
    """Return the minimum of problem i as a solution on the rows as given."""
    E, target = at.rows.basis, float(problem.target[0])
    coef, intercept = at.outside(i, best.C[i], best.c[i], E)
    gap, n_iter = float(best.gap[i]), int(best.n_iter[i])
    solution = Solution(
        coef=coef,
        intercept=intercept,
        multiplier=float(best.norm[i]),
        objective=float(best.objective[i]),
        gap=gap,
        n_iter=n_iter,
        converged=bool(gap <= target),
        message=verdict(gap, target, n_iter),
    )
    sparse = problem.delta[0] > 0 and at.problems[i].ball.cost.dual_p == 1
    small = np.abs(coef) < NEGLIGIBLE * np.abs(coef).max(initial=0.0)
    if not sparse or not small.any():
        return solution
    # tiny coefficients are zeros where that keeps the solution within the target
    coef = np.where(small, 0.0, coef)
    C, c = at.inside(i, coef, intercept, E)
    point = problem.at(C[None], c[None])
    objective = float(point.objective[0])
    gap = gap + objective - solution.objective
    if gap > max(solution.gap, target):
        return solution
    # the classes' mean, which no score depends on, need not be zero
    norm = float(point.norm[0])
    return replace(solution, coef=coef, objective=objective, gap=max(gap, 0.0), multiplier=norm)


class Threshold(NamedTuple):
    """A delta from which B = 0 is optimal, and whether it is the least one to rounding."""

    delta: float
    least: bool


def pair_threshold(problem: Problem) -> Threshold:
    """Return the size of a flow of the gradient at B = 0: nearly the least for Euclidean costs."""
    penalty, constant = pair_penalty(problem.at(1.0)), problem.constant[0]
    flows = origin(PairCoordinates([problem]).rows, penalty, constant[None]).flows
    return Threshold(float(penalty.sizes(flows).sum()), problem.ball.cost.euclidean)
