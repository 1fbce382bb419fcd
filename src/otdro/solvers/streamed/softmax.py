r"""Newton's method for one softmax model at order 1, each iteration one pass.

.. math:: \min_{C, c}\ F = \sum_i \pi_i \ell(z_i, y_i) + \delta \max_p \|D_p\|_*,\qquad
          z = (ZC + c)E'

(``solvers/softmax``). A pass takes the value, the gradient and the Hessian at the end of a step,
the values after half and a quarter of it, and the dual value of the probabilities continued along
the step, q = p + (diag p - pp') dz. Their gradient is g + H step, so that the flows that fit them,
and the shrinking that makes them feasible, are known before the pass. No number per row is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...problem import Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.order_one import STILL
from ..softmax.batch import SharedRows
from ..softmax.euclidean import RoundPairs, Unpenalised
from ..softmax.newton import (
    ARMIJO,
    LOOSE,
    PATIENCE,
    ROUNDING,
    Certificate,
    SoftmaxZero,
    origin,
)
from ..softmax.penalty import PairMove, PairPenalty, Quadratic, corrected
from ..softmax.rows import SoftmaxRows, inner
from .newton import LENGTHS, SETTLED, SHORTER, longest
from .passes import Passes
from .softmax_sums import Scores, SoftmaxSums
from .stream import CONSTANT, Stream

Array = NDArray[Any]

TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class SoftmaxState:
    """A model (C, c) with its loss, penalty norm, gradient g and Hessian H of the loss."""

    at: Scores
    loss: float
    norm: float
    g: Array
    H: Array


@dataclass(frozen=True, eq=False)
class SoftmaxMove:
    """A step, the slope of F along it, its dual point (shrinking, price) and multipliers."""

    step: Scores
    slope: float
    shrink: float
    price: float
    multipliers: Array | None

    def times(self, share: float) -> SoftmaxMove:
        """Return a part of the step."""
        step = Scores(share * self.step.C, share * self.step.c)
        return replace(self, step=step, slope=share * self.slope)


@dataclass(frozen=True, eq=False)
class SoftmaxStream:
    """One problem over a stream: the factor L of its cost (None: identity) and delta."""

    stream: Stream
    factor: Array | None
    delta: float

    @property
    def penalty(self) -> PairPenalty:
        """The largest norm over pairs of classes, or none."""
        return RoundPairs() if self.delta > 0 else Unpenalised()

    @property
    def class_rows(self) -> SoftmaxRows:
        """One row per class, as those of one problem: all that a constant model needs."""
        sample = self.stream.class_rows()
        return self._rows(Design(sample.X, self.factor), sample.ys[0], sample.weights[None])

    @property
    def kept_rows(self) -> SoftmaxRows:
        """The rows in memory."""
        sample = self.stream.kept
        center = self.stream.center if self.stream.fit_intercept else None
        return self._rows(Design(sample.X, self.factor, center), sample.ys[0], sample.weights)

    def _rows(self, design: Design, y: Array, weights: Array) -> SoftmaxRows:
        form = (self.stream.loss.outputs, self.stream.fit_intercept)
        return SoftmaxRows(SharedRows(design), y.astype(int), weights, *form)

    def inside(self, coef: Array, b: Array, E: Array) -> Scores:
        """Return (C, c) of coefficients (K, d) and intercepts (K,) on centred rows."""
        B = coef.T if self.factor is None else np.linalg.solve(self.factor, coef.T)
        return Scores(B @ E, b @ E)

    def lift(self, at: Scores, E: Array) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) on centred rows, those of ``inside``."""
        B = at.C if self.factor is None else self.factor @ at.C
        return E @ B.T, E @ at.c


def solve_softmax(
    problem: SoftmaxStream, coef: Array, b: Array, target: float, max_iter: int
) -> Passes[tuple[Solution, float]]:
    """Minimise from the model (coef, b) on centred rows until the gap is at most ``target``.

    Returns the solution on the rows as given and its empirical risk, pass by pass.
    """
    rows, penalty = problem.class_rows, problem.penalty
    flat = problem.stream.constant()
    zero = origin(rows, penalty, flat.b[None])
    gap = float(Certificate(rows, penalty, np.array([problem.delta]), zero).gap[0])
    if gap <= target:
        model = problem.lift(Scores(zero.points.C[0], zero.points.c[0]), rows.basis)
        found = problem.stream.solution(*model, 0.0, flat.risk, gap, target, 1)
        return replace(found, converged=True, message=CONSTANT), flat.risk
    x = yield from _first(problem, rows, problem.inside(coef, b, rows.basis), zero, flat.risk)
    x, gap, n_iter = yield from _descend(problem, rows, x, flat.risk, target, max_iter)
    model = problem.lift(x.at, rows.basis)
    robust = x.loss + problem.delta * x.norm
    return problem.stream.solution(*model, x.norm, robust, gap, target, n_iter), x.loss


def _first(
    problem: SoftmaxStream, rows: SoftmaxRows, start: Scores, zero: SoftmaxZero, flat: float
) -> Passes[SoftmaxState]:
    """Return where to start: F is below that of B = 0, from where no descent ends there."""
    if start.C.any():
        x = yield from _at(problem, rows, start)
        if x.loss + problem.delta * x.norm < flat:
            return x
    C, c = zero.B[0] @ rows.basis, zero.points.c[0]
    share = _length_along(problem, rows, C, c, zero)
    while True:
        x = yield from _at(problem, rows, Scores(share * C, c))
        if x.loss + problem.delta * x.norm < flat or share * x.norm < STILL:
            return x
        share *= SHORTER


def _length_along(
    problem: SoftmaxStream, rows: SoftmaxRows, C: Array, c: Array, zero: SoftmaxZero
) -> float:
    """Return the minimiser of the quadratic model along C, bent as the rows in memory are."""
    kept = problem.kept_rows
    dz = kept.scores(C, 0 * c)
    _, p = kept.evaluate(kept.scores(0 * C, c))
    bend = float(kept.total(inner(kept.bent(p, dz), dz)))
    norm = float(problem.penalty.norms(rows.differences(C)).max())
    slope = float(np.sum(zero.G[0] * zero.B[0])) + problem.delta * norm
    return max(-slope, ROUNDING) / max(bend, TINY)


def _descend(
    problem: SoftmaxStream,
    rows: SoftmaxRows,
    x: SoftmaxState,
    flat: float,
    target: float,
    max_iter: int,
) -> Passes[tuple[SoftmaxState, float, int]]:
    """Return the last point, its gap and the number of steps; ``flat`` is the risk of B = 0."""
    lower, gap, n_iter, share, idle = 0.0, np.inf, 0, 1.0, 0
    more, fine = True, SETTLED * float(np.sqrt(target / flat))
    move = _step(problem, rows, x, target, None)
    while n_iter < max_iter and idle < PATIENCE and share > STILL:
        n_iter += 1
        before = x.loss + problem.delta * x.norm
        part = move.times(share)
        found = yield _job(problem, x.at, part.step, move.shrink)
        if share == 1:
            dual = found["entropy"] / problem.stream.total - move.price
            lower = max(lower, dual)
        new, length = _longest(problem, rows, x, part, found)
        if length == 0:
            gap = duality_gap(before, lower)
            if gap <= target:
                break
            share *= SHORTER
            continue
        x = new if length == 1 else (yield from _at(problem, rows, new.at))
        value = x.loss + problem.delta * x.norm
        gap = duality_gap(value, lower)
        logger.info("pass %d: risk %.9g, gap %.3g", problem.stream.chunks.passes, value, gap)
        idle = 0 if value < before - ROUNDING * abs(before) else idle + 1
        move, share = _step(problem, rows, x, max(target, LOOSE * gap), move.multipliers), 1.0
        # the gap is quadratic in the coefficients: one more step where these are not settled
        settled = longest(move.step.C) <= fine * longest(x.at.C)
        if gap <= target and (settled or not more):
            break
        more = more and gap > target
    return x, gap, n_iter


def _longest(
    problem: SoftmaxStream,
    rows: SoftmaxRows,
    x: SoftmaxState,
    part: SoftmaxMove,
    found: dict[str, Any],
) -> tuple[SoftmaxState, float]:
    """Return the point after the longest step that descends, and its length, 0 for none.

    A point after a shorter step has the derivatives of the whole one.
    """
    start = x.loss + problem.delta * x.norm
    for j, t in enumerate(LENGTHS):
        at = Scores(x.at.C + t * part.step.C, x.at.c + t * part.step.c)
        new = _state(problem, rows, at, j, found)
        value = new.loss + problem.delta * new.norm
        if value <= start + ARMIJO * t * part.slope + ROUNDING * abs(start):
            return new, t
    return x, 0.0


def _step(
    problem: SoftmaxStream,
    rows: SoftmaxRows,
    x: SoftmaxState,
    accuracy: float,
    multipliers: Array | None,
) -> SoftmaxMove:
    """Return the minimiser of the model at a point, with the dual point that it gives."""
    model, delta = Quadratic(rows, x.at.C[None], x.g[None], x.H[None]), np.array([problem.delta])
    move = problem.penalty.move(model, delta, np.array([accuracy]), multipliers)
    step = Scores(move.step[0], move.shift[0])
    s = step.C.ravel()
    s = np.append(s, step.c) if rows.fit_intercept else s
    size = _flow(problem, rows, x, s, move)
    free = problem.delta == 0
    return SoftmaxMove(
        step,
        float(x.g @ s) + float(move.rise[0]),
        1.0 if free else min(1.0, problem.delta / max(size, TINY)),
        # without a penalty the pull is 0 to rounding only; its price is that of the point
        size * x.norm if free else 0.0,
        move.multipliers,
    )


def _flow(
    problem: SoftmaxStream, rows: SoftmaxRows, x: SoftmaxState, s: Array, move: PairMove
) -> float:
    """Return the size of flows that fit the probabilities continued along the step."""
    d, m = x.at.C.shape
    G = (x.g + x.H @ s)[: d * m].reshape(d, m) @ rows.basis.T
    flows = corrected(rows, G[None], move.flows)
    return float(problem.penalty.sizes(flows).sum())


def _at(problem: SoftmaxStream, rows: SoftmaxRows, at: Scores) -> Passes[SoftmaxState]:
    """Return the point of a model: one pass."""
    found = yield _job(problem, at, Scores(0 * at.C, 0 * at.c), 1.0)
    return _state(problem, rows, at, 0, found)


def _job(problem: SoftmaxStream, at: Scores, step: Scores, shrink: float) -> SoftmaxSums:
    stream = problem.stream
    form = (problem.factor, stream.loss.outputs, stream.fit_intercept)
    return SoftmaxSums(stream.blocks, *form, at, step, shrink, LENGTHS)


def _state(
    problem: SoftmaxStream, rows: SoftmaxRows, at: Scores, place: int, found: dict[str, Any]
) -> SoftmaxState:
    """Return the point whose sums a pass took, its value at one of the lengths."""
    mass = problem.stream.total
    norm = float(problem.penalty.norms(rows.differences(at.C)).max())
    risk = float(found["values"][place]) / mass
    return SoftmaxState(at, risk, norm, found["gradient"] / mass, found["hessian"] / mass)
