r"""Newton's method where labels change at the price kappa, at order 1, each iteration one pass.

.. math:: \min_{\theta, b, x \ge 0}\ F = \delta\lambda + \sum_i \pi_i \max\{\ell(z_i, y_i),\
          \ell(z_i, -y_i) - \kappa\lambda\}, \qquad \lambda = \mathrm{Lip}\,(\|\theta\| + x).

The model of a step is that of ``solvers/labels/tied_rows.py``: quadratic, with a kink for each row
near a tie. These rows are in memory; a few more are smoothed while steps are long. The dual point
of a step, its shares and continued slopes, is taken by the pass after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ...costs import Norm
from ...problem import Ball, Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.order_one import ROUNDING, STILL
from ..labels.kinked_quadratic import KinkedQuadratic
from ..labels.method import constant_model
from .newton import SHORTER, Passes, StreamCoordinates, along_gradient, descends
from .priced_sums import Labelled, NearRows, PricedSums, worse_label
from .sums import LENGTHS, ModelStep

Array = NDArray[Any]

#: Rows near a tie that keep both labels, and those of fits as rough as folds.
NEAR, NEAR_IN_FOLDS = 2_000, 500
#: The part of the last step's changes within which a next one is expected.
REACH = 1.0
#: Rows in memory nearest to a tie that tell how many of all rows are.
COUNTED = 50
#: Passes in a row that leave the gap above this part of itself before a fit ends without it.
PATIENCE, ENOUGH = 8, 0.9
#: Gains this small, relative to their mean, are none.
ALIKE = 1e-9
#: The accuracy of a step's model, relative to the last decrease and to the target.
OF_DECREASE, OF_TARGET = 1e-3, 1e-2


@dataclass(frozen=True, eq=False)
class PricedStream(StreamCoordinates):
    """One problem over a stream, of delta > 0 and the price of a label.

    ``near`` rows at most keep both labels in the model of a step.
    """

    delta: float
    kappa: float
    near: int = NEAR

    @property
    def lipschitz(self) -> float:
        """Lip(l)."""
        return float(self.stream.loss.lipschitz)

    @property
    def rate(self) -> float:
        """The price of one unit of ||theta|| + x."""
        return self.delta * self.lipschitz

    def charge(self, at: Array) -> float:
        """Return kappa lam at (theta, b, x)."""
        return self.kappa * self.lipschitz * (float(np.linalg.norm(at[:-2])) + float(at[-1]))

    def solve(
        self, coef: Array, b: Any, lam: float, target: float, max_iter: int
    ) -> Passes[Solution]:
        """Minimise F."""
        stream = self.stream
        constant = _constant(self, target)
        if constant is not None:
            rows = stream.class_rows()
            z = np.full(len(rows.weights), constant.intercept)
            risk = float(rows.weights @ stream.loss.value(z, rows.ys[0]))
            return replace(constant, mean_loss=risk)
        start = np.append(self.theta(coef), b)
        if not coef.any():
            flat = stream.constant()
            start = flat.at(along_gradient(self, 0.0, flat))
        x = max(lam / self.lipschitz - float(np.linalg.norm(start[:-1])), 0.0)
        p, gap, n_iter = yield from _descend(self, np.append(start, x), target, max_iter)
        model = self.model(p.at[:-1])
        known = (float(model[-1]), self.charge(p.at) / self.kappa, p.value, p.risk)
        return stream.solution(model[:-1], *known, gap, target, n_iter)


@dataclass(frozen=True, eq=False)
class PricedPoint:
    """(theta, b, x), F and the plain risk there, and the sums of the pass, divided by the mass."""

    at: Array
    value: float
    risk: float
    sums: dict[str, Any]
    near: NearRows


class PricedStep(NamedTuple):
    """A move of (theta, b, x), the decrease it promises, and the shares of the other labels of near
    rows."""

    move: Array
    decrease: float
    shares: Array


class StepBound(NamedTuple):
    """What the slopes of a step prove but for the conjugates of rows that are not near.

    ``more`` of the score balances them, ``excess`` is what their budget lacks relative to delta,
    ``conjugate`` that of near rows.
    """

    more: float
    excess: float
    conjugate: float


def _constant(problem: PricedStream, target: float) -> Solution | None:
    """Return the constant model where it is optimal: one row per class tells."""
    rows = problem.stream.class_rows()
    rows = replace(rows, X=rows.X if problem.factor is None else rows.X @ problem.factor)
    ball = Ball(Norm(2), problem.delta, 1, label_cost=problem.kappa)
    return constant_model(rows.problem(rows.ys[0], ball), target)


def _descend(
    problem: PricedStream, at: Array, target: float, max_iter: int
) -> Passes[tuple[PricedPoint, float, int]]:
    """Return the last point, its gap and the number of steps."""
    lower, gap, n_iter, share, idle = 0.0, np.inf, 0, 1.0, 0
    width = _first_width(problem, at)
    p = yield from _at(problem, at, width)
    step = _step(problem, p, target, target)
    while n_iter < max_iter and share > STILL and idle < PATIENCE:
        n_iter += 1
        dual = _dual(problem, p, step) if share == 1 else None
        width = REACH * _reach(problem, p, step)
        new, bound, length = yield from _pass(problem, p, step, share, dual, width)
        lower, before = max(lower, bound), gap
        gap = duality_gap(min(p.value, new.value), lower)
        idle = idle + 1 if gap > ENOUGH * before else 0
        logger.info("pass %d: risk %.9g, gap %.3g", problem.stream.chunks.passes, new.value, gap)
        if length == 0:
            if gap <= target or step.decrease <= ROUNDING * abs(p.value):
                break
            share *= SHORTER
            continue
        p = new if length == 1 else (yield from _at(problem, new.at, width))
        if gap <= target:
            break
        step, share = _step(problem, p, step.decrease, target), 1.0
    return p, gap, n_iter


def _gains(problem: PricedStream, at: Array) -> Labelled:
    """Return what a change of the label gains of the rows in memory."""
    stream, model = problem.stream, problem.model(at[:-1])
    z = stream.kept_design.scores(model[:-1]) + model[-1]
    return worse_label(stream.loss, z, stream.kept.ys[0], problem.charge(at))


def _first_width(problem: PricedStream, at: Array) -> float:
    """Return by how much gains change from the solution on some of the rows to that on others."""
    gain = _gains(problem, at).gain
    return float(np.std(gain) * np.sqrt((len(at) - 2) / len(gain)))


def _reach(problem: PricedStream, p: PricedPoint, step: PricedStep) -> float:
    """Return the root mean square of the changes of gains along a step, over the rows in memory."""
    move = problem.model(step.move[:-1])
    dz = problem.stream.kept_design.scores(move[:-1]) + move[-1]
    rise = problem.charge(_moved(p.at, step.move)) - problem.charge(p.at)
    change = _gains(problem, p.at).apart * dz - rise
    return float(np.sqrt(np.mean(change**2)))


def _band(problem: PricedStream, at: Array) -> float:
    """Return the gain within which about as many rows are as stay in memory."""
    n = problem.stream.chunks.n
    if n <= problem.near:
        return np.inf
    size = np.sort(np.abs(_gains(problem, at).gain))
    count = min(COUNTED, len(size))
    density = count / len(size) / max(float(size[count - 1]), np.finfo(float).tiny)
    # rows that are alike are at a tie together
    return max(problem.near / 2 / (n * density), ALIKE * float(size.mean()))


def _pass(
    problem: PricedStream,
    p: PricedPoint,
    step: PricedStep,
    share: float,
    dual: StepBound | None,
    width: float,
) -> Passes[tuple[PricedPoint, float, float]]:
    """Return the point after the longest part of a share that descends, the bound, which part.

    0 means that none descends; a point after a shorter step has no derivatives.
    """
    stream, mass, move = problem.stream, problem.stream.total, share * step.move
    ends = [_moved(p.at, t * move) for t in LENGTHS]
    charges = np.array([problem.charge(end) for end in ends])
    tied, more = (np.zeros(0, dtype=int), 0.0) if dual is None else (p.near.number, dual.more)
    found = yield PricedSums(
        stream.blocks,
        stream.loss,
        ModelStep(problem.model(p.at[:-1]), problem.model(move[:-1])),
        problem.charge(p.at),
        charges,
        tied,
        more,
        _band(problem, ends[0]),
        width,
        problem.near,
    )
    bound = 0.0
    if dual is not None:
        bound = -(float(found["conjugate"]) / mass + dual.conjugate) / (1 + dual.excess)
    values = found["values"] / mass + problem.delta / problem.kappa * charges
    for end, value, t in zip(ends, values.tolist(), LENGTHS, strict=True):
        if descends(p.value, -t * share * step.decrease, value):
            sums = {name: found[name] / mass for name in ("first", "second", "changed", "bends")}
            new = PricedPoint(end, value, float(found["risk"]) / mass, sums, found["near"])
            return new, max(bound, 0.0), t
    return p, max(bound, 0.0), 0.0


def _moved(at: Array, move: Array) -> Array:
    """Return (theta, b, x) after a move, x at least 0."""
    end: Array = at + move
    end[-1] = max(end[-1], 0.0)
    return end


def _at(problem: PricedStream, at: Array, width: float) -> Passes[PricedPoint]:
    """Return the point of a model: one pass."""
    start = PricedPoint(at, np.inf, np.inf, {}, NearRows.none(0, len(at) - 2))
    still = PricedStep(np.zeros_like(at), 0.0, np.zeros(0))
    found, _, _ = yield from _pass(problem, start, still, 1.0, None, width)
    return found


class _Kinks(NamedTuple):
    """Near rows t = (z, 1) under their worse label, and their weights.

    ``sign`` is +1 where that is their own, so that a change gains, and else -1.
    """

    T: Array
    z: Array
    at: Labelled
    w: Array
    sign: Array


def _kinks(problem: PricedStream, p: PricedPoint) -> _Kinks:
    """Return the near rows at a point."""
    near = p.near
    T = np.column_stack([near.Z, np.ones(len(near.y))])
    z = T @ problem.model(p.at[:-1])
    at = worse_label(problem.stream.loss, z, near.y, problem.charge(p.at), near.gain)
    return _Kinks(T, z, at, near.w / problem.stream.total, np.where(at.gain > 0, -1.0, 1.0))


def _step(problem: PricedStream, p: PricedPoint, last: float, target: float) -> PricedStep:
    """Return the step to the minimiser of the model; ``last`` is the decrease of the last one."""
    kinks = _kinks(problem, p)
    shares = np.zeros(len(kinks.w))
    # those of the ends of x come last
    prices = np.append(shares, [0.0 if p.at[-1] > 0 else 0.5, 0.0])
    tol = max(OF_DECREASE * last, OF_TARGET * target)
    # the curvature of the norm is that of the shares, which the model itself finds
    for _ in range(2):
        model = _model(problem, p, kinks, shares)
        move, prices = model.minimise(prices, tol)
        shares = prices[: len(kinks.w)]
    return PricedStep(move, model.decrease(move), shares)


def _model(problem: PricedStream, p: PricedPoint, kinks: _Kinks, shares: Array) -> KinkedQuadratic:
    """Return the model in (theta, b, x)."""
    theta, x, d = p.at[:-2], float(p.at[-1]), len(p.at) - 2
    charge = problem.kappa * problem.lipschitz
    w = float(np.linalg.norm(theta))
    u, s = theta / w, p.sums
    # t = (z, 1) and -kappa lam = -charge (||theta|| + x) in (theta, b, x)
    B = block_diag(problem.lift(np.eye(d)), [[1.0]], [[-charge]])
    B[-1, :d] = -charge * u
    changed = float(s["changed"])
    g = B.T @ np.append(s["first"], changed)
    g[:d] += problem.rate * u
    g[-1] += problem.rate
    H = B.T @ s["bends"] @ B
    H[:-1, :-1] += problem.second(s["second"])
    stiff = problem.rate - charge * (changed + float((kinks.w * kinks.sign) @ shares))
    H[:d, :d] += max(stiff, 0.0) / w * (np.eye(d) - np.outer(u, u))
    apart = np.column_stack([kinks.at.apart[:, None] * kinks.T, np.ones(len(kinks.w))])
    J = (kinks.w * kinks.sign)[:, None] * (apart @ B)
    if not problem.stream.fit_intercept:
        g[d], H[d], H[:, d], H[d, d], J[:, d] = 0.0, 0.0, 0.0, 1.0, 0.0
    # x >= 0: its price is at most that of t, and twice that leaves no choice where they are equal
    # and ||theta|| + x at most doubles: rows that are far from a tie do not hold it in the model
    ends = np.array([-2 * problem.rate, problem.rate + charge])
    J = np.vstack([J, np.column_stack([np.zeros((2, d + 1)), ends])])
    behind = np.append(-kinks.w * np.abs(kinks.at.gain), [ends[0] * x, -ends[1] * (w + x)])
    return KinkedQuadratic(g, H, behind, J)


def _dual(problem: PricedStream, p: PricedPoint, step: PricedStep) -> StepBound:
    """Return what the shares and slopes of a step prove, all sums of slopes but conjugates known.

    Slopes are a + D dz under the worse label and, of near rows, under both.
    """
    kinks, loss, y = _kinks(problem, p), problem.stream.loss, p.near.y
    T, w, top, s = kinks.T, kinks.w, kinks.at, p.sums
    move = problem.model(step.move[:-1])
    dz = T @ move
    other = np.where(kinks.sign > 0, step.shares, 1 - step.shares)
    # masses, slopes, curvatures and labels of pieces: the top ones leave, both labels' enter
    pieces = [(-w, top.a, top.D, top.label)]
    for mass, label in ((w * (1 - other), y), (w * other, -y)):
        pieces.append((mass, *loss.evaluate(kinks.z, label)[1:], label))
    bend = s["second"][-1] + sum(T.T @ (m * D) for m, _, D, _ in pieces)
    first = s["first"] + s["second"] @ move
    first = first + sum(T.T @ (m * (a + D * dz)) for m, a, D, _ in pieces)
    more = 0.0
    if problem.stream.fit_intercept:
        more = -float(first[-1]) / max(float(bend[-1]), np.finfo(float).tiny)
    changed = s["changed"] + float(w @ (other - (top.gain > 0)))
    pull = problem.drop((first + more * bend)[:-1])
    need = float(np.linalg.norm(pull)) / problem.lipschitz
    excess = max(0.0, need - (problem.delta - problem.kappa * changed)) / problem.delta
    conjugate = sum(
        float(m[m > 0] @ loss.conjugate((a + D * (dz + more))[m > 0], label[m > 0]))
        for m, a, D, label in pieces[1:]
    )
    return StepBound(more, excess, conjugate)
