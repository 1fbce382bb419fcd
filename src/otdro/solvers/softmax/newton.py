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

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import as_index, beside, class_masses
from ...design import DECOMPOSE_UP_TO, REDUCE_UP_TO, Design, row_space
from ...problem import Problem, Solution
from ..euclidean.newton import Coordinates, Path, SmoothMethod, as_solution
from ..euclidean.order_one import (
    LEAST_BEND,
    TINY,
    Batch,
    Descent,
    Line,
    Minima,
    NewtonSystem,
    Place,
    minimise,
)
from ..exact import Starts
from .pairs import (
    NEGLIGIBLE,
    PairMove,
    PairPenalty,
    Quadratic,
    SoftmaxRows,
    complement,
    corrected,
    inner,
    pair_penalty,
)

Array = NDArray[Any]

#: The accuracy of a model's minimiser, as a share of what the last step promised.
LOOSE = 1e-3
#: Scores of all problems up to which folds are solved in step.
IN_STEP_UP_TO = 5_000_000


@dataclass(frozen=True, eq=False)
class PairPoints(Batch):
    """Coefficients theta = C (d, K - 1), intercepts b = c, scores z, probabilities p, the largest
    norm w of a pair and F.

    ``promised`` is what the last step promised, ``multipliers`` are those of its pairs.
    """

    axis: ClassVar[int] = 0

    theta: Array
    b: Array
    z: Array
    p: Array
    w: Array
    objective: Array
    promised: Array
    multipliers: Array | None


@dataclass(frozen=True, eq=False)
class PairMinima(Minima):
    """Minimisers of a batch, theta = C; lam is the largest norm of a pair."""

    axis: ClassVar[int] = 0

    multipliers: Array | None = None

    def beyond(self, before: Self, t: float) -> PairPlace:
        """Return the places on the line from other minima through these, t times as far on."""
        far = np.where(before.lam > 0, t, 0.0)[:, None]
        theta = self.theta + far[:, :, None] * (self.theta - before.theta)
        return PairPlace(theta, self.b + far * (self.b - before.b), self.multipliers)


@dataclass(frozen=True, eq=False)
class PairPlace(Place):
    """Places (C, c), with the multipliers of the pairs as lam."""

    axis: ClassVar[int] = 0


@dataclass(frozen=True, eq=False)
class SoftmaxZero(Batch):
    """The best models without coefficients: intercepts, risk, probabilities p, the gradient G
    (d, K), a flow of that, a matrix B to start along, and the gap at a delta."""

    axis: ClassVar[int] = 0

    b: Array
    risk: Array
    z: Array
    p: Array
    G: Array
    flows: Array
    B: Array
    gap: Array

    def minima(self) -> PairMinima:
        """Return them as minimisers."""
        theta, none = np.zeros((*self.G.shape[:2], self.b.shape[1])), np.zeros_like(self.risk)
        steps, risk = np.ones(len(none), dtype=int), self.risk
        return PairMinima(theta, self.b, none, risk, risk, self.gap, steps, None)


@dataclass(frozen=True, eq=False)
class PairProblems:
    """Problems over the same rows under one penalty, with their ``delta`` and ``target`` (B,)."""

    rows: SoftmaxRows
    penalty: PairPenalty
    delta: Array
    target: Array

    def columns(self, index: Array) -> PairProblems:
        """Return some of the problems."""
        rows = self.rows.columns(index)
        return replace(self, rows=rows, delta=self.delta[index], target=self.target[index])

    def part(self, some: slice) -> PairProblems:
        """Return the problems over some of the rows."""
        return replace(self, rows=self.rows.part(some))

    def norms(self, C: Array) -> Array:
        """Return the largest norms over pairs."""
        return self.penalty.norms(self.rows.differences(C)).max(axis=-1)

    def at(
        self, C: Array, c: Array, z: Any = None, promised: Any = None, multipliers: Any = None
    ) -> Any:
        """Return the points at (C, c), of scores z where they are known."""
        z = self.rows.scores(C, c) if z is None else z
        (loss, p), norm = self.rows.evaluate(z), self.norms(C)
        F = np.asarray(loss + self.delta * norm)
        return PairPoints(C, c, z, p, norm, F, F if promised is None else promised, multipliers)

    def at_zero(self, zero: SoftmaxZero) -> SoftmaxZero:
        """Return the models at zero with their gaps."""
        if not self.delta.all():
            return zero
        bound = self.bound(zero, 0.0 * zero.risk, zero.p, zero.flows)
        return replace(zero, gap=np.maximum(zero.risk - bound, 0.0))

    def off(self, zero: SoftmaxZero) -> Array:
        """Whether the model at zero is not good enough."""
        return np.asarray(zero.gap > self.target)

    def start(self, near: Place) -> Any:
        """Return the points at the places."""
        return self.at(near.theta, near.b, multipliers=near.lam)

    def from_zero(self, zero: SoftmaxZero) -> Any:
        """Return the minimisers of the quadratic models along B."""
        rows = self.rows
        C = zero.B @ rows.basis
        dz = rows.scores(C, 0 * zero.b)
        bend = rows.total(inner(rows.bent(zero.p, dz), dz))
        length = self.length_along(zero, bend)[:, None, None]
        return self.at(length * C, zero.b.copy(), zero.z + beside(length, dz) * dz)

    def minima(self, end: Descent, target: Array) -> PairMinima:
        """Return the ends of descents."""
        x = end.point
        mean_loss = x.objective - self.delta * x.w
        ends = (x.theta, x.b, x.w, x.objective, mean_loss, end.gap, end.n_iter, None)
        return PairMinima(*ends, x.multipliers)

    def length_along(self, zero: SoftmaxZero, bend: Array) -> Array:
        """Return the length of the best move along B where the loss bends by ``bend``."""
        norm = self.norms(zero.B @ self.rows.basis)
        price = self.delta * norm
        down = np.maximum(-np.sum(zero.G * zero.B, axis=(1, 2)) - price, LEAST_BEND * price)
        length = np.where(bend > 0, down / np.where(bend > 0, bend, 1), 1 / np.maximum(norm, TINY))
        return np.where(norm > 0, length, 0.0)

    def move(self, x: Any, g: Array, H: Array) -> tuple[PairMove, Array]:
        """Return the minimiser of the models at points, and the slopes of F along the moves."""
        accuracy = np.maximum(self.target, LOOSE * x.promised)
        model = Quadratic(self.rows, x.theta, g, H)
        move = self.penalty.move(model, self.delta, accuracy, x.multipliers)
        s = self.rows.joined(move.theta, move.b)
        return move, np.einsum("bi,bi->b", g, s) + move.rise

    def line(self, x: Any) -> Line:
        """Return the lines of the next steps."""
        rows = self.rows
        g, H = rows.gradient(rows.slopes(x.p)), rows.curvature(x.p)
        move, descent = self.move(x, g, H)
        return Line(self, x, move, descent, rows.scores(move.theta, move.b))

    def along(self, line: Line, length: Array) -> Any:
        """Return the points after a share of moves, which add ``line.change`` to the scores."""
        x, move, far = line.x, line.move, length[:, None, None]
        C, c = x.theta + far * move.theta, x.b + far[:, 0] * move.b
        z = x.z + beside(far, line.change) * line.change
        return self.at(C, c, z, -line.descent, move.multipliers)

    def lower_bound(self, x: Any, line: Line) -> Array:
        """Return the bounds of the probabilities before a step, continued along it and as they are.

        Without a penalty nothing bounds models farther out than the first ones, whose slopes leave
        a gradient.
        """
        rows, p = self.rows, line.x.p
        q = rows.balanced(p, p + rows.bent(p, line.change))
        if self.delta.all():
            still = self.bound(x, x.w, rows.balanced(p, p), line.move.flows)
            return np.maximum(self.bound(x, x.w, q, line.move.flows), still)
        return self.bound(x, x.w, rows.on_simplex(q), line.move.flows)

    def bound(self, at: Any, w: Array, q: Array, flows: Array) -> Array:
        """Return the dual values of probabilities q with flows made to fit."""
        rows, delta = self.rows, self.delta
        flows = corrected(rows, rows.adjoint(rows.slopes(q)), flows)
        size = self.penalty.sizes(flows).sum(axis=-1)
        shrink = np.where(delta > 0, np.minimum(1.0, delta / np.maximum(size, TINY)), 1.0)
        # without a penalty E a = 0 and Z'(pi a) = 0 hold nearly; the price is that of the point
        price = np.where(delta > 0, 0.0, size * w)
        if rows.fit_intercept and not delta.all():
            price += np.linalg.norm(rows.mean(rows.slopes(q)), axis=-1) * np.linalg.norm(
                at.b, axis=-1
            )
        return np.asarray(np.maximum(rows.dual_value(q, shrink) - price, 0.0))


def origin(rows: SoftmaxRows, penalty: PairPenalty) -> SoftmaxZero:
    """Return the best models without coefficients."""
    each = [rows.loss.constant(rows.labels, weights) for weights in rows.weights]
    c = rows.fit_intercept * (np.stack(each) @ rows.basis)
    z = rows.scores(np.zeros((len(c), rows.d, rows.classes - 1)), c)
    risk, p = rows.evaluate(z)
    G, gap = rows.adjoint(rows.slopes(p)), np.full(len(c), np.inf)
    return SoftmaxZero(c, np.asarray(risk), z, p, G, *penalty.first(rows, G), gap)


class MultinomialNewton(SmoothMethod):
    """The cross-entropy of several scores at order 1, and at delta = 0."""

    geometries = frozenset({"euclidean", "norm"})
    accepts_zero = True
    several_scores = True
    # each delta starts from the solutions before it
    batch_up_to = 0

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

    def _together(self, problems: list[Problem]) -> bool:
        """Whether the scores are few, and each problem has all classes."""
        (n, d), K = problems[0].X.shape, problems[0].loss.outputs
        small = d <= n and len(problems) * n * K <= IN_STEP_UP_TO
        structured = any(p.ball.cost.structured for p in problems)
        masses = [class_masses(p.y, p.weights, K) for p in problems]
        return bool(small and not structured and np.all(masses))

    def data(
        self, problems: list[Problem], at: list[Coordinates], rows: Design, weights: Array
    ) -> PairProblems:
        """Return the problems, their deltas to be set.

        A step would be free along what no row sees, where columns depend on each other: of few rows
        the coordinates are reduced to their span.
        """
        first, none = problems[0], np.zeros(len(problems))
        few = rows.n * rows.d <= DECOMPOSE_UP_TO and rows.n <= REDUCE_UP_TO
        if few and first.ball.cost.euclidean and rows is at[0].design and at[0].span is None:
            design, span = row_space(rows, first.ball.delta == 0)
            if design.d < rows.d:
                rows = design
                for own in at:
                    own.span = span
        each = SoftmaxRows(rows, as_index(first.y), weights.T, first.loss, first.fit_intercept)
        return PairProblems(each, pair_penalty(first), none, none)

    def zero(self, data: PairProblems) -> SoftmaxZero:
        """Return the best models without coefficients."""
        return origin(data.rows, data.penalty)

    def minimise(
        self,
        data: PairProblems,
        deltas: Array,
        zero: SoftmaxZero,
        target: Array,
        max_iter: int,
        start: Any,
        system: NewtonSystem,
    ) -> PairMinima:
        """Minimise each problem until its gap is at most its target."""
        each = replace(data, delta=deltas, target=target)
        minima: PairMinima = minimise(each, each.at_zero(zero), target, max_iter, start)
        return minima

    def places(self, at: list[Coordinates], starts: Starts) -> PairPlace:
        """Return the places of solutions."""
        E = complement(len(starts[0].intercept))
        theta, b = zip(*(each.place(s) for each, s in zip(at, starts, strict=True)), strict=True)
        return PairPlace(np.stack(theta) @ E, np.stack(b) @ E)

    def solutions(self, path: Path, p: int, minima: PairMinima, deltas: Array) -> list[Solution]:
        """Return the minimum of problem p; tiny coefficients are zeros where the penalty is a sum
        and the solution stays within the target."""
        at, target = path.at[p], float(path.target[p])
        E = path.data.rows.basis
        B = at.coef(minima.theta[0]) @ E.T
        solution = as_solution(minima, 0, B.T, at.uncentred(E @ minima.b[0], B), target)
        coef = solution.coef
        small = np.abs(coef) < NEGLIGIBLE * np.abs(coef).max(initial=0.0)
        if not (deltas[0] > 0 and path.problems[p].ball.cost.dual_p == 1 and small.any()):
            return [solution]
        fewer = replace(solution, coef=np.where(small, 0.0, coef))
        place = self.places([at], [fewer])
        x = replace(path.data.columns(np.array([p])), delta=deltas).start(place)
        objective = float(x.objective[0])
        gap = max(solution.gap + objective - solution.objective, 0.0)
        if gap > max(solution.gap, target):
            return [solution]
        # the classes' mean, which no score depends on, need not be zero
        return [replace(fewer, objective=objective, gap=gap, multiplier=float(x.w[0]))]


class Threshold(NamedTuple):
    """A delta from which B = 0 is optimal, and whether it is the least one to rounding."""

    delta: float
    least: bool


def pair_threshold(problem: Problem) -> Threshold:
    """Return the size of a flow of the gradient at B = 0: nearly the least for Euclidean costs."""
    path = Path(MultinomialNewton(), [problem.at(1.0)], np.ones(1), 1)
    size = float(path.data.penalty.sizes(path.zero.flows).sum())
    return Threshold(size, problem.ball.cost.euclidean)
