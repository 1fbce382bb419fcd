r"""Newton's method for the mean cross-entropy and a penalty on pairs of classes.

.. math:: \min_{C, c}\ F = \sum_i \pi_i \ell(z_i, y_i) + \delta \max_p \|D_p\|_*,\qquad
          z = (ZC + c)E'.

Each step minimises a quadratic model of the loss plus the penalty. Probabilities q continued along
the step, and the flows v of the model, corrected so that
:math:`\sum_p v_p(e_k - e_l)' = -Z'(\pi(q - e_y))`, are a point of the dual after shrinking both by
:math:`\min(1, \delta/\sum_p\|v_p\|)`:

.. math:: \max\ -\sum_i \pi_i \sum_k q_{ik}\log q_{ik}\quad\text{s.t.}\quad
          \textstyle\sum_p \|v_p\| \le \delta,\ \sum_i \pi_i (q_i - e_{y_i}) = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality.ties import factored
from .penalty import PairMove, PairPenalty, Quadratic, corrected
from .refinement import fitted
from .rows import SoftmaxRows

Array = NDArray[Any]

#: The share of the predicted decrease that a step must bring, and the halvings of a step.
ARMIJO, HALVINGS = 1e-4, 50
#: Decreases below this, relative to the objective, are rounding; so many of them end the method.
ROUNDING, PATIENCE = 1e-15, 3
#: Operations of a Hessian up to which it is formed in every step, and the steps without it.
CHEAP_UP_TO, QUASI_STEPS = 500_000_000, 30
#: A step that brings less than this share of the target without the Hessian is worth a bound.
WORTH = 2.0
#: The accuracy of a model's minimiser, as a share of the gap so far.
LOOSE = 1e-3


@dataclass(frozen=True, eq=False)
class Point:
    """Coefficients C (d, K - 1), intercepts c, scores z, probabilities p, loss and penalty norm."""

    C: Array
    c: Array
    z: Array
    p: Array
    loss: float
    norm: float


@dataclass(frozen=True, eq=False)
class SoftmaxMinimum:
    """The best point, its objective and gap, the dual slopes q - e_y (n, K), the steps taken."""

    point: Point
    objective: float
    gap: float
    slopes: Array
    n_iter: int


class Unpenalised:
    """No penalty: the model's minimiser is a plain Newton step."""

    def norms(self, D: Array) -> Array:
        """Return ||D||_2, which has no price."""
        return np.asarray(np.linalg.norm(D, axis=-1))

    def sizes(self, v: Array) -> Array:
        """Return ||v||_2."""
        return np.asarray(np.linalg.norm(v, axis=-1))

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return no flow, and the steepest descent."""
        return np.zeros((len(rows.incidence), len(G))), -G

    def move(self, model: Quadratic, delta: float, accuracy: float) -> PairMove:
        """Return -H^-1 g."""
        dC, dc = model.split(-cho_solve(factored(model.H), model.g, check_finite=False))
        return PairMove(dC, dc, np.zeros((len(model.rows.incidence), len(dC))), 0.0)


@dataclass(frozen=True, eq=False)
class Origin:
    """The best model without coefficients: its gradient G (d, K), a flow of that, and a matrix B to
    start along. It does not depend on delta."""

    point: Point
    G: Array
    flows: Array
    B: Array


def origin(rows: SoftmaxRows, penalty: PairPenalty, constant: Array) -> Origin:
    """Return the model of the intercepts ``constant`` (K,), the best ones without coefficients."""
    zero = locate(rows, penalty, np.zeros((rows.design.d, rows.classes - 1)), constant @ rows.basis)
    G = rows.adjoint(rows.slopes(zero.p))
    return Origin(zero, G, *penalty.first(rows, G))


def minimise(
    rows: SoftmaxRows,
    penalty: PairPenalty,
    delta: float,
    zero: Origin,
    target: float,
    max_iter: int,
    start: tuple[Array, Array] | None = None,
) -> SoftmaxMinimum:
    """Minimise F until its gap is at most ``target``, from ``start`` (C, c) where it is better."""
    best = Certificate(rows, penalty, delta)
    best.consider(zero.point)
    if delta > 0:
        best.bound(zero.point, zero.point.p, zero.flows)
    if best.gap <= target:
        return best.minimum(1)
    p = _first(rows, penalty, delta, zero, start)
    best.consider(p)
    curvature = Curvature(rows)
    idle = 0
    for n_iter in range(1, max_iter + 1):
        g = _gradient(rows, p.p)
        model = Quadratic(rows, p.C, g, curvature.at(p, g, n_iter))
        move = penalty.move(model, delta, max(target, LOOSE * best.gap))
        dz = rows.scores(move.step, move.shift)
        new, decrease = _line_search(rows, penalty, delta, p, move, dz, g)
        best.consider(new)
        if curvature.exact or decrease <= WORTH * target:
            q = p.p + rows.bent(p.p, dz)
            q = q if curvature.exact else fitted(rows, p.p, q, move.flows, model.H)
            best.bound(new, rows.balanced(p.p, q), move.flows)
        if curvature.exact and best.gap > target:
            best.bound(new, rows.balanced(p.p, p.p), move.flows)
        idle = 0 if decrease > 0 else idle + 1
        if best.gap <= target or idle >= PATIENCE:
            break
        p = new
    return best.minimum(n_iter)


def locate(rows: SoftmaxRows, penalty: PairPenalty, C: Array, c: Array, z: Any = None) -> Point:
    """Return the point at (C, c), of scores z where they are known."""
    z = rows.scores(C, c) if z is None else z
    loss, p = rows.evaluate(z)
    return Point(C, c, z, p, loss, float(penalty.norms(rows.differences(C)).max()))


def _gradient(rows: SoftmaxRows, p: Array) -> Array:
    """Return the gradient of the loss in (C, c), by column, then class."""
    a = rows.slopes(p)
    g = (rows.adjoint(a) @ rows.basis).ravel()
    return np.append(g, (rows.weights @ a) @ rows.basis) if rows.fit_intercept else g


def _first(
    rows: SoftmaxRows,
    penalty: PairPenalty,
    delta: float,
    origin: Origin,
    start: tuple[Array, Array] | None,
) -> Point:
    """Return the start if it is better than zero, else the model's minimiser along B."""
    zero = origin.point
    if start is not None:
        warm = locate(rows, penalty, *start)
        if warm.norm > 0 and warm.loss + delta * warm.norm < zero.loss:
            return warm
    C = origin.B @ rows.basis
    if not C.any():
        return zero
    dz = rows.scores(C, 0 * zero.c)
    norm = float(penalty.norms(rows.differences(C)).max())
    slope = float(np.sum(origin.G * origin.B)) + delta * norm
    bend = float(rows.weights @ np.einsum("nk,nk->n", rows.bent(zero.p, dz), dz))
    length = max(-slope, 1e-3 * delta * norm) / bend if bend > 0 else 1 / max(norm, 1e-300)
    return locate(rows, penalty, length * C, zero.c, zero.z + length * dz)


def _line_search(
    rows: SoftmaxRows,
    penalty: PairPenalty,
    delta: float,
    p: Point,
    move: PairMove,
    dz: Array,
    g: Array,
) -> tuple[Point, float]:
    """Return the point after the longest of the steps 1, 1/2, ... that descends, and by what."""
    objective = p.loss + delta * p.norm
    s = np.append(move.step.ravel(), move.shift) if rows.fit_intercept else move.step.ravel()
    descent = float(g @ s) + move.rise
    length = 1.0
    for _ in range(HALVINGS):
        new = locate(
            rows, penalty, p.C + length * move.step, p.c + length * move.shift, p.z + length * dz
        )
        value = new.loss + delta * new.norm
        if value <= objective + ARMIJO * length * descent + ROUNDING * abs(objective):
            return new, max(0.0, objective * (1 - ROUNDING) - value)
        length /= 2
    return p, 0.0


class Curvature:
    """The Hessian of the loss, or in its place for many rows a matrix learned from gradients.

    That one starts from the mean curvature and is updated so that it maps the last step to the
    change of the gradient (BFGS); after ``QUASI_STEPS`` of them the Hessian itself is formed.
    """

    def __init__(self, rows: SoftmaxRows) -> None:
        self.rows = rows
        K, n, d = rows.classes, rows.design.n, rows.design.d
        self.exact = n * d**2 * K * (K - 1) <= CHEAP_UP_TO
        self.last: tuple[Array, Array] | None = None
        self.H = np.empty((0, 0))

    def at(self, p: Point, g: Array, n_iter: int) -> Array:
        """Return the matrix at a point of gradient g."""
        self.exact = self.exact or n_iter > QUASI_STEPS
        if self.exact:
            return self.rows.curvature(p.p)
        x = np.append(p.C.ravel(), p.c) if self.rows.fit_intercept else p.C.ravel()
        if self.last is None:
            self.H = self.rows.mean_curvature(p.p)
        else:
            s, y = x - self.last[0], g - self.last[1]
            Hs = self.H @ s
            if y @ s > 0:
                parts = np.stack([y / np.sqrt(y @ s), Hs / np.sqrt(s @ Hs)])
                self.H += parts.T @ (np.array([[1.0], [-1.0]]) * parts)
        self.last = (x, g)
        return self.H


class Certificate:
    """The best point and the best lower bound so far."""

    def __init__(self, rows: SoftmaxRows, penalty: PairPenalty, delta: float) -> None:
        self.rows = rows
        self.penalty = penalty
        self.delta = delta
        self.objective = np.inf
        self.lower = 0.0
        self.point: Point | None = None
        self.slopes: Array | None = None

    @property
    def gap(self) -> float:
        """The objective less the bound."""
        return max(0.0, self.objective - self.lower)

    def consider(self, point: Point) -> None:
        """Keep a point that is better."""
        value = point.loss + self.delta * point.norm
        if value < self.objective:
            self.objective = value
            self.point = point

    def bound(self, at: Point, q: Array, flows: Array) -> None:
        """Raise the bound by the dual value of probabilities q with flows made to fit."""
        rows = self.rows
        flows = corrected(rows, rows.adjoint(rows.slopes(q)), flows)
        sizes = self.penalty.sizes(flows)
        if self.delta == 0:
            # Z'(pi a) = 0 holds to rounding only; its price is that of the point
            price = float(sizes.sum()) * at.norm
            value, shrink = rows.dual_value(q, 1.0) - price, 1.0
        else:
            shrink = min(1.0, self.delta / max(float(sizes.sum()), np.finfo(float).tiny))
            value = rows.dual_value(q, shrink)
        if value > self.lower or self.slopes is None:
            self.lower = max(self.lower, value)
            self.slopes = shrink * rows.slopes(q)

    def minimum(self, n_iter: int) -> SoftmaxMinimum:
        """Return what was found."""
        assert self.point is not None
        assert self.slopes is not None
        return SoftmaxMinimum(self.point, self.objective, self.gap, self.slopes, n_iter)
