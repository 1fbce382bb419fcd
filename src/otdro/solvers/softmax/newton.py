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
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import as_index, beside, class_masses, full, namespace, pick
from ...design import DECOMPOSE_UP_TO, REDUCE_UP_TO, Design, mean, row_space
from ...problem import Problem, Solution
from ..base import Method, Starts, ahead, constant_risk, same_factor, verdict
from ..euclidean.coordinates import Coordinates
from .penalty import PairMove, PairPenalty, Quadratic, corrected, pair_penalty
from .rows import SoftmaxRows, inner

Array = NDArray[Any]

#: The share of the predicted decrease that a step must bring, and the halvings of a step.
ARMIJO, HALVINGS = 1e-4, 50
#: Decreases below this, relative to the objective, are rounding; so many of them end the method.
ROUNDING, PATIENCE = 1e-15, 3
#: Steps that bring more than this share of the objective take the Hessian of a sample of the rows.
ROUGHLY = 1e-4
#: The accuracy of a model's minimiser, as a share of the gap so far.
LOOSE = 1e-3
#: Coefficients below this share of the largest are tried as zeros where the penalty is a sum.
NEGLIGIBLE = 1e-6
#: Scores of all problems up to which folds are solved in step.
IN_STEP_UP_TO = 5_000_000

TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class SoftmaxPoints:
    """Coefficients C (d, K - 1), intercepts c, scores z, probabilities p, loss and penalty norm."""

    C: Array
    c: Array
    z: Array
    p: Array
    loss: Array
    norm: Array

    def columns(self, index: Array) -> SoftmaxPoints:
        """Return the points of some problems."""
        return SoftmaxPoints(*(pick(getattr(self, part.name), index) for part in fields(self)))

    def put(self, index: Array, points: SoftmaxPoints, some: Array) -> None:
        """Write ``some`` of the points into the places ``index``."""
        for part in fields(self):
            write(getattr(self, part.name), index[some], pick(getattr(points, part.name), some))


def write(x: Array, index: Array, v: Array) -> None:
    """Write v into the problems ``index`` of x, which may be on a device."""
    x[beside(index, x)] = v


class SoftmaxStart(NamedTuple):
    """Coefficients and intercepts, and multipliers of the pairs where they are known."""

    C: Array
    c: Array
    multipliers: Array | None = None


@dataclass(frozen=True, eq=False)
class SoftmaxZero:
    """The best models without coefficients: the gradient G (d, K), a flow of that, and a matrix B
    to start along. They do not depend on delta."""

    points: SoftmaxPoints
    G: Array
    flows: Array
    B: Array

    def columns(self, index: Array) -> SoftmaxZero:
        """Return those of some problems."""
        return SoftmaxZero(
            self.points.columns(index), self.G[index], self.flows[index], self.B[index]
        )


@dataclass(frozen=True, eq=False)
class PairProblems:
    """Problems over the same rows under one penalty, each with its ``delta`` (B,)."""

    rows: SoftmaxRows
    penalty: PairPenalty
    delta: Array

    def columns(self, index: Array) -> PairProblems:
        """Return some of the problems."""
        return PairProblems(self.rows.columns(index), self.penalty, self.delta[index])

    def at(self, C: Array, c: Array, z: Any = None) -> SoftmaxPoints:
        """Return the points at (C, c), of scores z where they are known."""
        z = self.rows.scores(C, c) if z is None else z
        loss, p = self.rows.evaluate(z)
        return SoftmaxPoints(C, c, z, p, loss, self.norms(C))

    def norms(self, C: Array) -> Array:
        """Return the largest norms over pairs."""
        return self.penalty.norms(self.rows.differences(C)).max(axis=-1)

    def value(self, points: SoftmaxPoints) -> Array:
        """Return F."""
        return np.asarray(points.loss + self.delta * points.norm)


def origin(problems: PairProblems, constant: Array) -> SoftmaxZero:
    """Return the models of the intercepts ``constant`` (B, K), the best without coefficients."""
    rows = problems.rows
    nothing = np.zeros((len(constant), rows.d, rows.classes - 1))
    zero = problems.at(nothing, constant @ rows.basis)
    G = rows.adjoint(rows.slopes(zero.p))
    return SoftmaxZero(zero, G, *problems.penalty.first(rows, G))


def minimise(
    problems: PairProblems,
    zero: SoftmaxZero,
    target: Array,
    max_iter: int,
    start: SoftmaxStart | None = None,
) -> Certificate:
    """Minimise F until its gap is at most ``target``, from ``start`` where that is better."""
    best = Certificate(problems, zero)
    active = np.flatnonzero(best.gap > target)
    if not len(active):
        return best
    problems, target = problems.columns(active), target[active]
    p = _first(problems, zero.columns(active), start, active)
    best.consider(active, p)
    multipliers = None
    if start is not None and start.multipliers is not None:
        multipliers = start.multipliers[active]
    idle = np.zeros(len(active), dtype=int)
    rough = problems.rows.sample is not None
    for n_iter in range(1, max_iter + 1):
        rows, delta = problems.rows, problems.delta
        g = rows.gradient(rows.slopes(p.p))
        some = rows.sample if rough else None
        model = Quadratic(rows, p.C, g, (some or rows).curvature(p.p))
        accuracy = np.maximum(target, LOOSE * best.gap[active])
        move = problems.penalty.move(model, delta, accuracy, multipliers)
        dz = rows.scores(move.step, move.shift)
        new, decrease = _line_search(problems, p, move, dz, g)
        best.consider(active, new)
        if not rough:
            q = rows.balanced(p.p, p.p + rows.bent(p.p, dz))
            best.bound(active, problems, new, q if delta.all() else rows.on_simplex(q), move.flows)
        # without a penalty nothing bounds models farther out than p, whose slopes leave a gradient
        if not rough and delta.all() and np.any(best.gap[active] > target):
            best.bound(active, problems, new, rows.balanced(p.p, p.p), move.flows)
        rough = rough and bool((decrease > ROUGHLY * problems.value(p)).any())
        idle = np.where(decrease > 0, 0, idle + 1)
        best.keep(active, n_iter, move.multipliers)
        left = (best.gap[active] > target) & (idle < PATIENCE)
        if not left.any():
            break
        p, multipliers = new, move.multipliers
        if not left.all():
            active, problems, p = active[left], problems.columns(left), p.columns(left)
            target, idle = target[left], idle[left]
            multipliers = None if multipliers is None else multipliers[left]
    return best


def _first(
    problems: PairProblems, zero: SoftmaxZero, start: SoftmaxStart | None, active: Array
) -> SoftmaxPoints:
    """Return the starts where they are better than zero, else the model's minimisers along B."""
    if start is not None:
        warm = problems.at(start.C[active], start.c[active])
        good = (warm.norm > 0) & (problems.value(warm) < zero.points.loss)
        if good.all():
            return warm
    cold = along(problems, zero)
    if start is not None:
        cold.put(np.arange(len(active)), warm, good)
    return cold


def along(problems: PairProblems, zero: SoftmaxZero) -> SoftmaxPoints:
    """Return the minimisers of the quadratic models along B."""
    rows, delta = problems.rows, problems.delta
    C = zero.B @ rows.basis
    dz = rows.scores(C, 0 * zero.points.c)
    norm = problems.norms(C)
    slope = np.sum(zero.G * zero.B, axis=(1, 2)) + delta * norm
    bend = rows.total(inner(rows.bent(zero.points.p, dz), dz))
    down = np.maximum(-slope, 1e-3 * delta * norm)
    length = np.where(bend > 0, down / np.where(bend > 0, bend, 1), 1 / np.maximum(norm, 1e-300))
    length = np.where(norm > 0, length, 0.0)[:, None, None]
    z = zero.points.z + beside(length, dz) * dz
    return problems.at(length * C, zero.points.c.copy(), z)


def _line_search(
    problems: PairProblems, p: SoftmaxPoints, move: PairMove, dz: Array, g: Array
) -> tuple[SoftmaxPoints, Array]:
    """Return the points after the longest of the steps 1, 1/2, ... that descend, and by what."""
    objective = problems.value(p)
    s = problems.rows.joined(move.step, move.shift)
    descent = np.einsum("bi,bi->b", g, s) + move.rise
    length = np.ones(len(g))
    for attempt in range(HALVINGS):
        far = length[:, None, None]
        C, c = p.C + far * move.step, p.c + far[:, 0] * move.shift
        new = problems.at(C, c, p.z + beside(far, dz) * dz)
        value = problems.value(new)
        allowed = objective + ARMIJO * length * descent + ROUNDING * np.abs(objective)
        short = ~(value <= allowed)
        if not short.any():
            break
        length = np.where(short, length / 2 if attempt < HALVINGS - 2 else 0.0, length)
    return new, np.maximum(0.0, objective * (1 - ROUNDING) - value)


class Certificate:
    """The best points and the best lower bounds so far; at first those without coefficients.

    ``slopes`` are the dual ones q - e_y (n, K), ``multipliers`` those of the pairs where a step
    nearby can start from them.
    """

    def __init__(self, problems: PairProblems, zero: SoftmaxZero) -> None:
        self.delta = delta = problems.delta
        everyone = np.arange(len(delta))
        self.points = zero.points.columns(everyone)
        self.objective = zero.points.loss.copy()
        self.lower = np.zeros(len(delta))
        self.slopes = problems.rows.slopes(zero.points.p)
        self.n_iter = np.ones(len(delta), dtype=int)
        self.multipliers: Array | None = None
        if delta.all():
            self.bound(everyone, problems, zero.points, zero.points.p, zero.flows)

    @property
    def gap(self) -> Array:
        """The objectives less the bounds."""
        return np.maximum(0.0, self.objective - self.lower)

    def consider(self, active: Array, points: SoftmaxPoints) -> None:
        """Keep the points that are better."""
        value = points.loss + self.delta[active] * points.norm
        better = value < self.objective[active]
        self.points.put(active, points, better)
        self.objective[active[better]] = value[better]

    def keep(self, active: Array, n_iter: int, multipliers: Array | None) -> None:
        """Keep the number of steps, and the multipliers of the last one."""
        self.n_iter[active] = n_iter
        if multipliers is None:
            return
        if self.multipliers is None:
            self.multipliers = np.ones((len(self.delta), multipliers.shape[1]))
        self.multipliers[active] = multipliers

    def bound(
        self, active: Array, problems: PairProblems, at: SoftmaxPoints, q: Array, flows: Array
    ) -> None:
        """Raise the bounds by the dual values of probabilities q with flows made to fit."""
        rows, delta = problems.rows, problems.delta
        flows = corrected(rows, rows.adjoint(rows.slopes(q)), flows)
        size = problems.penalty.sizes(flows).sum(axis=-1)
        shrink = np.where(delta > 0, np.minimum(1.0, delta / np.maximum(size, TINY)), 1.0)
        # without a penalty E a = 0 and Z'(pi a) = 0 hold nearly; the price is that of the point
        price = np.where(delta > 0, 0.0, size * at.norm)
        if rows.fit_intercept and not delta.all():
            price += np.linalg.norm(rows.mean(rows.slopes(q)), axis=-1) * np.linalg.norm(
                at.c, axis=-1
            )
        value = rows.dual_value(q, shrink) - price
        better = value > self.lower[active]
        self.lower[active[better]] = value[better]
        slopes = beside(shrink[:, None, None], q) * rows.slopes(q)
        write(self.slopes, active[better], pick(slopes, better))


class MultinomialNewton(Method):
    """The cross-entropy of several scores at order 1, and at delta = 0."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
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

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        deltas = np.array([problem.ball.delta])
        return _paths(PairCoordinates([problem]), deltas, [tol], max_iter, start)[0][0]

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta, each from those before it."""
        return _paths(PairCoordinates([problem]), deltas, [tol], max_iter)[0]

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
        return at.theta(coef.T) @ E, _shifted(at, np.asarray(intercept), coef.T) @ E

    def outside(self, i: int, C: Array, c: Array, E: Array) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) on the rows as given."""
        at = self.each[i]
        B = at.coef(C) @ E.T
        return B.T, _shifted(at, E @ c, -B)


def _shifted(at: Coordinates, b: Array, B: Array) -> Array:
    """Return intercepts after a shift of the rows by their centre times B (d, K)."""
    return b if at.center is None else b + at.center @ B


def _paths(
    at: PairCoordinates,
    deltas: Array,
    tols: Sequence[float],
    max_iter: int,
    start: Solution | None = None,
) -> list[list[Solution]]:
    """Return the solutions along deltas, each from the line through the two before it."""
    problems, rows = at.problems, at.rows
    known = [constant_risk(problem) for problem in problems]
    target = np.asarray(tols) * np.array([risk for _, risk in known])
    penalty = pair_penalty(problems[0].at(float(deltas[0])))
    near = None
    if start is not None:
        C, c = at.inside(0, start.coef, start.intercept, rows.basis)
        near = SoftmaxStart(C[None], c[None])
    zero = None
    last: list[Certificate] = []
    solved: list[list[Solution]] = [[] for _ in problems]
    for j, delta in enumerate(deltas.tolist()):
        each = PairProblems(rows, penalty, np.full(len(problems), delta))
        zero = zero or origin(each, np.stack([b for b, _ in known]))
        near = _extrapolated(last, deltas[: j + 1]) if last else near
        last = [*last[-1:], minimise(each, zero, target, max_iter, near)]
        for i, path in enumerate(solved):
            path.append(_solution(at, i, delta, last[-1], float(target[i])))
    return solved


def _extrapolated(found: list[Certificate], deltas: Array) -> SoftmaxStart:
    """Return a start at the last of ``deltas``, on the line in log delta through the last two."""
    first, last = found[0].points, found[-1].points
    t = np.where(first.norm > 0, ahead(deltas), 0.0)
    C = last.C + t[:, None, None] * (last.C - first.C)
    return SoftmaxStart(C, last.c + t[:, None] * (last.c - first.c), found[-1].multipliers)


def _solution(
    at: PairCoordinates, i: int, delta: float, best: Certificate, target: float
) -> Solution:
    """Return the minimum of problem i as a solution on the rows as given."""
    E = at.rows.basis
    coef, intercept = at.outside(i, best.points.C[i], best.points.c[i], E)
    gap, n_iter = float(best.gap[i]), int(best.n_iter[i])
    solution = Solution(
        coef=coef,
        intercept=intercept,
        multiplier=float(best.points.norm[i]),
        objective=float(best.objective[i]),
        gap=gap,
        n_iter=n_iter,
        converged=bool(gap <= target),
        message=verdict(gap, target, n_iter),
        dual=best.slopes[i],
    )
    sparse = delta > 0 and at.problems[i].ball.cost.dual_p == 1
    small = np.abs(coef) < NEGLIGIBLE * np.abs(coef).max(initial=0.0)
    if not sparse or not small.any():
        return solution
    # tiny coefficients are zeros where that keeps the solution within the target
    coef = np.where(small, 0.0, coef)
    C, c = at.inside(i, coef, intercept, E)
    penalty = pair_penalty(at.problems[i].at(delta))
    alone = PairProblems(at.rows.columns([i]), penalty, np.array([delta]))
    point = alone.at(C[None], c[None])
    objective = float(alone.value(point)[0])
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
    rows = PairCoordinates([problem]).rows
    b, _ = constant_risk(problem)
    penalty = pair_penalty(problem.at(1.0))
    scores = full((1, rows.design.n, len(b)), 0.0, problem.y) + beside(b, problem.y)
    slopes = rows.slopes(rows.evaluate(scores)[1])
    flows, _ = penalty.first(rows, rows.adjoint(slopes))
    return Threshold(float(penalty.sizes(flows).sum()), problem.ball.cost.euclidean)
