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

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import beside, pick
from .penalty import PairMove, PairPenalty, Quadratic, corrected
from .refinement import fitted
from .rows import SoftmaxRows, inner

Array = NDArray[Any]

#: The share of the predicted decrease that a step must bring, and the halvings of a step.
ARMIJO, HALVINGS = 1e-4, 50
#: Decreases below this, relative to the objective, are rounding; so many of them end the method.
ROUNDING, PATIENCE = 1e-15, 3
#: Operations of a Hessian up to which it is formed in every step, and the steps without it.
CHEAP_UP_TO, QUASI_STEPS = 500_000_000, 30
#: A step that brings less than this share of the target without the Hessian is worth a bound.
WORTH = 0.5
#: The accuracy of a model's minimiser, as a share of the gap so far.
LOOSE = 1e-3

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
    nothing = np.zeros((len(constant), rows.design.d, rows.classes - 1))
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
    curvature = Curvature(problems.rows)
    idle = np.zeros(len(active), dtype=int)
    for n_iter in range(1, max_iter + 1):
        rows, delta = problems.rows, problems.delta
        g = rows.gradient(rows.slopes(p.p))
        model = Quadratic(rows, p.C, g, curvature.at(rows, p, g, n_iter))
        accuracy = np.maximum(target, LOOSE * best.gap[active])
        move = problems.penalty.move(model, delta, accuracy, multipliers)
        dz = rows.scores(move.step, move.shift)
        new, decrease = _line_search(problems, p, move, dz, g)
        best.consider(active, new)
        if curvature.exact or decrease[0] <= WORTH * target[0]:
            q = p.p + rows.bent(p.p, dz)
            q = q if curvature.exact else fitted(rows, p.p, q, move.flows, model.H)
            q = rows.balanced(p.p, q)
            best.bound(active, problems, new, q if delta.all() else rows.on_simplex(q), move.flows)
        # without a penalty nothing bounds models farther out than p, whose slopes leave a gradient
        if curvature.exact and delta.all() and np.any(best.gap[active] > target):
            best.bound(active, problems, new, rows.balanced(p.p, p.p), move.flows)
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


class Curvature:
    """The Hessian of the loss, or in its place for many rows a matrix learned from gradients.

    That one, of a single problem, starts from the mean curvature and is updated so that it maps the
    last step to the change of the gradient (BFGS); after ``QUASI_STEPS`` of them the Hessian itself
    is formed.
    """

    def __init__(self, rows: SoftmaxRows) -> None:
        K, n, d = rows.classes, rows.design.n, rows.design.d
        several = len(rows.weights) > 1
        self.exact = several or n * d**2 * K * (K - 1) <= CHEAP_UP_TO
        self.last: tuple[Array, Array] | None = None
        self.H = np.empty((0, 0))

    def at(self, rows: SoftmaxRows, p: SoftmaxPoints, g: Array, n_iter: int) -> Array:
        """Return the matrices at points of gradient g."""
        self.exact = self.exact or n_iter > QUASI_STEPS
        if self.exact:
            return rows.curvature(p.p)
        x = rows.joined(p.C[0], p.c[0])
        if self.last is None:
            self.H = rows.columns(0).mean_curvature(p.p[0])
        else:
            s, y = x - self.last[0], g[0] - self.last[1]
            Hs = self.H @ s
            if y @ s > 0:
                parts = np.stack([y / np.sqrt(y @ s), Hs / np.sqrt(s @ Hs)])
                self.H += parts.T @ (np.array([[1.0], [-1.0]]) * parts)
        self.last = (x, g[0])
        return self.H[None]


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
