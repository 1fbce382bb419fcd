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

from ...costs import Norm
from ...design import Design
from ...problem import Ball, Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.order_one import ROUNDING, STILL
from ..labels.kinked_quadratic import KinkedQuadratic
from ..labels.method import constant_model
from .newton import LENGTHS, SHORTER, StreamedProblem, along_gradient, descends
from .passes import Passes
from .priced_sums import NearRows, PricedMove, PricedSums, worse_label
from .stream import Stream

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
class PricedStream:
    """One problem over a stream: the factor L of its cost, delta > 0 and the price of a label.

    ``near`` rows at most keep both labels in the model of a step.
    """

    stream: Stream
    factor: Array | None
    delta: float
    kappa: float
    near: int = NEAR

    @property
    def plain(self) -> StreamedProblem:
        """The coordinates of the cost."""
        return StreamedProblem(self.stream, self.factor, 0.0)

    @property
    def lipschitz(self) -> float:
        """Lip(l)."""
        return float(self.stream.loss.lipschitz)

    @property
    def rate(self) -> float:
        """The price of one unit of ||theta|| + x."""
        return self.delta * self.lipschitz

    def charge(self, theta: Array, x: float) -> float:
        """Return kappa lam."""
        return self.kappa * self.lipschitz * (float(np.linalg.norm(theta)) + x)


@dataclass(frozen=True, eq=False)
class PricedPoint:
    """(theta, b, x), F and the plain risk there, and the sums of the pass, divided by the mass."""

    theta: Array
    b: float
    x: float
    value: float
    risk: float
    sums: dict[str, Any]
    near: NearRows


class PricedStep(NamedTuple):
    """A move (theta, b, x), the decrease it promises, and the shares of the other labels of near
    rows."""

    theta: Array
    b: float
    x: float
    decrease: float
    shares: Array

    def times(self, share: float) -> PricedStep:
        """Return a part of the step."""
        moved = (share * self.theta, share * self.b, share * self.x, share * self.decrease)
        return PricedStep(*moved, self.shares)


class StepBound(NamedTuple):
    """What the slopes of a step prove but for the conjugates of rows that are not near.

    ``more`` of the score balances them, ``excess`` is what their budget lacks relative to delta,
    ``conjugate`` that of near rows.
    """

    more: float
    excess: float
    conjugate: float


def solve_priced(
    problem: PricedStream, coef: Array, b: float, lam: float, target: float, max_iter: int
) -> Passes[tuple[Solution, float]]:
    """Minimise from (coef, b, lam) on centred rows until the gap is at most ``target``.

    Returns the solution on the rows as given and its empirical risk, pass by pass.
    """
    stream = problem.stream
    constant = _constant(problem, target)
    if constant is not None:
        rows = stream.class_rows()
        z = np.full(len(rows.weights), constant.intercept)
        return constant, float(rows.weights @ stream.loss.value(z, rows.ys[0]))
    theta = problem.plain.theta(coef)
    if not theta.any():
        theta, b = along_gradient(problem.plain, stream.constant())
    x = max(lam / problem.lipschitz - float(np.linalg.norm(theta)), 0.0)
    p, gap, n_iter = yield from _descend(problem, theta, b, x, target, max_iter)
    model = (problem.plain.lift(p.theta), p.b, problem.charge(p.theta, p.x) / problem.kappa)
    return stream.solution(*model, p.value, gap, target, n_iter), p.risk


def _constant(problem: PricedStream, target: float) -> Solution | None:
    """Return the constant model where it is optimal: one row per class tells."""
    rows = problem.stream.class_rows()
    rows = replace(rows, X=rows.X if problem.factor is None else rows.X @ problem.factor)
    ball = Ball(Norm(2), problem.delta, 1, label_cost=problem.kappa)
    return constant_model(rows.problem(rows.ys[0], ball), target)


def _descend(
    problem: PricedStream, theta: Array, b: float, x: float, target: float, max_iter: int
) -> Passes[tuple[PricedPoint, float, int]]:
    """Return the last point, its gap and the number of steps."""
    lower, gap, n_iter, share, idle = 0.0, np.inf, 0, 1.0, 0
    width = _first_width(problem, theta, b, x)
    p = yield from _at(problem, theta, b, x, width)
    step = _step(problem, p, target, target)
    while n_iter < max_iter and share > STILL and idle < PATIENCE:
        n_iter += 1
        dual = _dual(problem, p, step) if share == 1 else None
        width = REACH * _reach(problem, p, step)
        new, bound, length = yield from _pass(problem, p, step.times(share), dual, width)
        lower, before = max(lower, bound), gap
        gap = duality_gap(min(p.value, new.value), lower)
        idle = idle + 1 if gap > ENOUGH * before else 0
        logger.info("pass %d: risk %.9g, gap %.3g", problem.stream.chunks.passes, new.value, gap)
        if length == 0:
            if gap <= target or step.decrease <= ROUNDING * abs(p.value):
                break
            share *= SHORTER
            continue
        p = new if length == 1 else (yield from _at(problem, new.theta, new.b, new.x, width))
        if gap <= target:
            break
        step, share = _step(problem, p, step.decrease, target), 1.0
    return p, gap, n_iter


def _gains(problem: PricedStream, theta: Array, b: float, x: float) -> tuple[Design, Any]:
    """Return the rows in memory, and there what a change of the label gains."""
    stream, sample = problem.stream, problem.stream.kept
    design = Design(sample.X, center=stream.center if stream.fit_intercept else None)
    z = design.scores(problem.plain.lift(theta)) + b
    return design, worse_label(stream.loss, z, sample.ys[0], problem.charge(theta, x))


def _first_width(problem: PricedStream, theta: Array, b: float, x: float) -> float:
    """Return by how much gains change from the solution on some of the rows to that on others."""
    _, at = _gains(problem, theta, b, x)
    return float(np.std(at.gain) * np.sqrt(len(theta) / len(at.gain)))


def _reach(problem: PricedStream, p: PricedPoint, step: PricedStep) -> float:
    """Return the root mean square of the changes of gains along a step, over the rows in memory."""
    design, at = _gains(problem, p.theta, p.b, p.x)
    dz = design.scores(problem.plain.lift(step.theta)) + step.b
    after = problem.charge(p.theta + step.theta, max(p.x + step.x, 0.0))
    change = at.apart * dz - (after - problem.charge(p.theta, p.x))
    return float(np.sqrt(np.mean(change**2)))


def _band(problem: PricedStream, theta: Array, b: float, x: float) -> float:
    """Return the gain within which about as many rows are as stay in memory."""
    n = problem.stream.chunks.n
    if n <= problem.near:
        return np.inf
    size = np.sort(np.abs(_gains(problem, theta, b, x)[1].gain))
    count = min(COUNTED, len(size))
    density = count / len(size) / max(float(size[count - 1]), np.finfo(float).tiny)
    # rows that are alike are at a tie together
    return max(problem.near / 2 / (n * density), ALIKE * float(size.mean()))


def _pass(
    problem: PricedStream, p: PricedPoint, step: PricedStep, dual: StepBound | None, width: float
) -> Passes[tuple[PricedPoint, float, float]]:
    """Return the point after the longest part of a step that descends, the bound, the length.

    A length of 0 means that none descends; a point after a shorter step has no derivatives.
    """
    stream, plain, mass = problem.stream, problem.plain, problem.stream.total
    ends = [_moved(p, step.times(t)) for t in LENGTHS]
    charges = np.array([problem.charge(theta, x) for theta, _, x in ends])
    tied = p.near.number if dual is not None else np.zeros(0, dtype=int)
    move = PricedMove(
        plain.lift(p.theta),
        p.b,
        problem.charge(p.theta, p.x),
        plain.lift(step.theta),
        step.b,
        charges,
        tied,
        0.0 if dual is None else dual.more,
    )
    band = _band(problem, *ends[0])
    found = yield PricedSums(stream.blocks, stream.loss, move, LENGTHS, band, width, problem.near)
    bound = 0.0
    if dual is not None:
        bound = -(float(found["conjugate"]) / mass + dual.conjugate) / (1 + dual.excess)
    for j, t in enumerate(LENGTHS):
        theta, b, x = ends[j]
        value = float(found["values"][j]) / mass + problem.delta / problem.kappa * charges[j]
        if descends(p.value, -t * step.decrease, value):
            return _point(problem, theta, b, x, value, found), max(bound, 0.0), t
    return p, max(bound, 0.0), 0.0


def _moved(p: PricedPoint, step: PricedStep) -> tuple[Array, float, float]:
    return p.theta + step.theta, p.b + step.b, max(p.x + step.x, 0.0)


def _at(
    problem: PricedStream, theta: Array, b: float, x: float, width: float
) -> Passes[PricedPoint]:
    """Return the point of a model: one pass."""
    start = PricedPoint(theta, b, x, np.inf, np.inf, {}, NearRows.none(0, len(theta)))
    still = PricedStep(np.zeros_like(theta), 0.0, 0.0, 0.0, np.zeros(0))
    found, _, _ = yield from _pass(problem, start, still, None, width)
    return found


def _point(
    problem: PricedStream, theta: Array, b: float, x: float, value: float, found: dict[str, Any]
) -> PricedPoint:
    """Return the point whose sums a pass took."""
    mass = problem.stream.total
    names = ("gram", "bend", "mass", "slope", "pull", "changed", "bends")
    sums = {name: found[name] / mass for name in names}
    return PricedPoint(theta, b, x, value, float(found["risk"]) / mass, sums, found["near"])


class _Kinks(NamedTuple):
    """Near rows in the coordinates of theta under their worse label, and their weights.

    ``sign`` is +1 where that is their own, so that a change gains, and else -1.
    """

    Z: Array
    at: Any
    w: Array
    sign: Array


def _kinks(problem: PricedStream, p: PricedPoint) -> _Kinks:
    """Return the near rows at a point."""
    near = p.near
    z = near.Z @ problem.plain.lift(p.theta) + p.b
    at = worse_label(problem.stream.loss, z, near.y, problem.charge(p.theta, p.x), near.gain)
    Z = near.Z if problem.factor is None else near.Z @ problem.factor
    return _Kinks(Z, at, near.w / problem.stream.total, np.where(at.gain > 0, -1.0, 1.0))


def _step(problem: PricedStream, p: PricedPoint, last: float, target: float) -> PricedStep:
    """Return the step to the minimiser of the model; ``last`` is the decrease of the last one."""
    kinks, d = _kinks(problem, p), len(p.theta)
    shares = np.zeros(len(kinks.w))
    # those of the ends of x come last
    prices = np.append(shares, [0.0 if p.x > 0 else 0.5, 0.0])
    tol = max(OF_DECREASE * last, OF_TARGET * target)
    # the curvature of the norm is that of the shares, which the model itself finds
    for _ in range(2):
        model = _model(problem, p, kinks, shares)
        move, prices = model.minimise(prices, tol)
        shares = prices[: len(kinks.w)]
    return PricedStep(move[:d], float(move[d]), float(move[-1]), model.decrease(move), shares)


def _model(problem: PricedStream, p: PricedPoint, kinks: _Kinks, shares: Array) -> KinkedQuadratic:
    """Return the model in (theta, b, x)."""
    stream, drop, d = problem.stream, problem.plain.drop, len(p.theta)
    charge = problem.kappa * problem.lipschitz
    w = float(np.linalg.norm(p.theta))
    u, s = p.theta / w, p.sums
    stiff = problem.rate - charge * float(s["changed"])
    g = np.concatenate([drop(s["pull"]) + stiff * u, [s["slope"], stiff]])
    H = np.zeros((d + 2, d + 2))
    H[:d, :d] = drop(drop(s["gram"]).T)
    H[:d, d] = H[d, :d] = drop(s["bend"])
    H[d, d] = s["mass"]
    # kappa lam = charge (||theta|| + x): the last coordinate of the smoothed gains
    B = np.zeros((d + 2, d + 2))
    B[:, :d] = np.vstack(
        [np.eye(d) if problem.factor is None else problem.factor, np.zeros((2, d))]
    )
    B[d, d], B[d + 1] = 1.0, np.append(-charge * u, [0.0, -charge])
    H += B.T @ s["bends"] @ B
    stiff -= charge * float((kinks.w * kinks.sign) @ shares)
    H[:d, :d] += max(stiff, 0.0) / w * (np.eye(d) - np.outer(u, u))
    apart = kinks.sign * kinks.at.apart
    J = np.column_stack([apart[:, None] * kinks.Z, apart, np.zeros(len(apart))])
    J[:, :d] -= charge * np.outer(kinks.sign, u)
    J[:, -1] = -charge * kinks.sign
    J = kinks.w[:, None] * J
    if not stream.fit_intercept:
        g[d], H[d], H[:, d], H[d, d], J[:, d] = 0.0, 0.0, 0.0, 1.0, 0.0
    # x >= 0: its price is at most that of t, and twice that leaves no choice where they are equal
    # and ||theta|| + x at most doubles: rows that are far from a tie do not hold it in the model
    ends = np.array([-2 * problem.rate, problem.rate + charge])
    J = np.vstack([J, np.column_stack([np.zeros((2, d + 1)), ends])])
    behind = np.append(-kinks.w * np.abs(kinks.at.gain), [ends[0] * p.x, -ends[1] * (w + p.x)])
    return KinkedQuadratic(g, H, behind, J)


def _dual(problem: PricedStream, p: PricedPoint, step: PricedStep) -> StepBound:
    """Return what the shares and slopes of a step prove, all sums of slopes but conjugates known.

    Slopes are a + D dz under the worse label and, of near rows, under both.
    """
    kinks, loss, near = _kinks(problem, p), problem.stream.loss, p.near
    step_x = problem.plain.lift(step.theta)
    z = near.Z @ problem.plain.lift(p.theta) + p.b
    dz = near.Z @ step_x + step.b
    other = np.where(kinks.sign > 0, step.shares, 1 - step.shares)
    w, top = kinks.w, kinks.at
    # masses, slopes, curvatures and labels of pieces: the top ones leave, both labels' enter
    pieces = [(-w, top.a, top.D, top.label)]
    for mass, label in ((w * (1 - other), near.y), (w * other, -near.y)):
        pieces.append((mass, *loss.evaluate(z, label)[1:], label))
    s = p.sums
    bend = s["bend"] + sum(near.Z.T @ (m * D) for m, _, D, _ in pieces)
    mass = s["mass"] + sum(float(m @ D) for m, _, D, _ in pieces)
    slope = s["slope"] + s["bend"] @ step_x + s["mass"] * step.b
    slope += sum(float(m @ (a + D * dz)) for m, a, D, _ in pieces)
    pull = s["pull"] + s["gram"] @ step_x + s["bend"] * step.b
    pull += sum(near.Z.T @ (m * (a + D * dz)) for m, a, D, _ in pieces)
    more = -slope / max(mass, np.finfo(float).tiny) if problem.stream.fit_intercept else 0.0
    changed = s["changed"] + float(w @ (other - (top.gain > 0)))
    need = float(np.linalg.norm(problem.plain.drop(pull + more * bend))) / problem.lipschitz
    excess = max(0.0, need - (problem.delta - problem.kappa * changed)) / problem.delta
    conjugate = sum(
        float(m[m > 0] @ loss.conjugate((a + D * (dz + more))[m > 0], label[m > 0]))
        for m, a, D, label in pieces[1:]
    )
    return StepBound(float(more), excess, conjugate)
