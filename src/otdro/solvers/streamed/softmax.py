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
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...chunks import Sums
from ...design import Design
from ...problem import Sample, Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.order_one import STILL
from ..softmax.batch import SharedRows
from ..softmax.euclidean import RoundPairs, Unpenalised
from ..softmax.newton import (
    LOOSE,
    PATIENCE,
    ROUNDING,
    Certificate,
    SoftmaxZero,
    along,
    locate,
    origin,
)
from ..softmax.penalty import PairPenalty, Quadratic, corrected
from ..softmax.rows import SoftmaxRows
from .newton import SETTLED, SHORTER, StreamCoordinates, descends, longest
from .passes import Passes
from .softmax_sums import Scores, SoftmaxSums
from .stream import CONSTANT
from .sums import LENGTHS

Array = NDArray[Any]

TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class SoftmaxState:
    """A model (C, c) with its loss, penalty norm, F, gradient g and Hessian H of the loss."""

    at: Scores
    loss: float
    norm: float
    value: float
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


@dataclass(frozen=True, eq=False)
class SoftmaxStream(StreamCoordinates):
    """One problem of several scores over a stream, of delta."""

    delta: float

    @cached_property
    def penalty(self) -> PairPenalty:
        """The largest norm over pairs of classes, or none."""
        return RoundPairs() if self.delta > 0 else Unpenalised()

    @cached_property
    def class_rows(self) -> SoftmaxRows:
        """One row per class, as those of one problem: all that a constant model needs."""
        return self._rows(self.stream.class_rows(), None)

    @property
    def kept_rows(self) -> SoftmaxRows:
        """The rows in memory, as those of one problem."""
        return self._rows(self.stream.kept, self.stream.center)

    def _rows(self, sample: Sample, center: Array | None) -> SoftmaxRows:
        design = SharedRows(Design(sample.X, self.factor, center))
        form = (self.stream.loss.outputs, self.stream.fit_intercept)
        return SoftmaxRows(design, sample.ys[0].astype(int), sample.weights[None], *form)

    def inside(self, coef: Array, b: Array) -> Scores:
        """Return (C, c) of coefficients (K, d) and intercepts (K,) on centred rows."""
        return Scores(self.theta(coef.T) @ self.class_rows.basis, b @ self.class_rows.basis)

    def outside(self, at: Scores) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) on centred rows, those of ``inside``."""
        return self.class_rows.basis @ self.lift(at.C).T, self.class_rows.basis @ at.c


def solve_softmax(
    problem: SoftmaxStream, coef: Array, b: Array, target: float, max_iter: int
) -> Passes[Solution]:
    """Minimise from the model (coef, b) on centred rows until the gap is at most ``target``.

    Returns the solution on the rows as given, pass by pass.
    """
    stream, flat = problem.stream, problem.stream.constant()
    rows, penalty = problem.class_rows, problem.penalty
    zero = origin(rows, penalty, flat.b[None])
    gap = float(Certificate(rows, penalty, np.array([problem.delta]), zero).gap[0])
    if gap <= target:
        model = problem.outside(Scores(zero.points.C[0], zero.points.c[0]))
        found = stream.solution(*model, 0.0, flat.risk, flat.risk, gap, target, 1)
        return replace(found, message=CONSTANT)
    x = yield from _first(problem, problem.inside(coef, b), zero, flat.risk)
    x, gap, n_iter = yield from _descend(problem, x, flat.risk, target, max_iter)
    coef, b = problem.outside(x.at)
    return stream.solution(coef, b, x.norm, x.value, x.loss, gap, target, n_iter)


def _first(
    problem: SoftmaxStream, start: Scores, zero: SoftmaxZero, flat: float
) -> Passes[SoftmaxState]:
    """Return where to start: F is below that of B = 0, from where no descent ends there."""
    if start.C.any():
        x = yield from _at(problem, start)
        if x.value < flat:
            return x
    C, c = _best_along(problem, zero)
    share = 1.0
    while True:
        x = yield from _at(problem, Scores(share * C, c))
        if x.value < flat or share * x.norm < STILL:
            return x
        share *= SHORTER


def _best_along(problem: SoftmaxStream, zero: SoftmaxZero) -> Scores:
    """Return the minimiser of the quadratic model along B, bent as the rows in memory are."""
    rows, penalty = problem.kept_rows, problem.penalty
    here = replace(zero, points=locate(rows, penalty, zero.points.C, zero.points.c))
    found = along(rows, penalty, np.array([problem.delta]), here)
    return Scores(found.C[0], found.c[0])


def _descend(
    problem: SoftmaxStream, x: SoftmaxState, flat: float, target: float, max_iter: int
) -> Passes[tuple[SoftmaxState, float, int]]:
    """Return the last point, its gap and the number of steps; ``flat`` is the risk of B = 0."""
    lower, gap, n_iter, share, idle = 0.0, np.inf, 0, 1.0, 0
    more, fine = True, SETTLED * float(np.sqrt(target / flat))
    move = _step(problem, x, target, None)
    while n_iter < max_iter and idle < PATIENCE and share > STILL:
        n_iter += 1
        before = x.value
        found = yield _job(problem, x.at, move.step.times(share), move.shrink)
        if share == 1:
            dual = found["entropy"] / problem.stream.total - move.price
            lower = max(lower, dual)
        new, length = _longest(problem, x, move, share, found)
        if length == 0:
            gap = duality_gap(before, lower)
            if gap <= target:
                break
            share *= SHORTER
            continue
        x = new if length == 1 else (yield from _at(problem, new.at))
        gap = duality_gap(x.value, lower)
        logger.info("pass %d: risk %.9g, gap %.3g", problem.stream.chunks.passes, x.value, gap)
        idle = 0 if x.value < before - ROUNDING * abs(before) else idle + 1
        move, share = _step(problem, x, max(target, LOOSE * gap), move.multipliers), 1.0
        # the gap is quadratic in the coefficients: one more step where these are not settled
        settled = longest(move.step.C) <= fine * longest(x.at.C)
        if gap <= target and (settled or not more):
            break
        more = more and gap > target
    return x, gap, n_iter


def _longest(
    problem: SoftmaxStream, x: SoftmaxState, move: SoftmaxMove, share: float, found: Sums
) -> tuple[SoftmaxState, float]:
    """Return the point after the longest part of a share that descends, and which, 0 for none.

    A point after a shorter step has the derivatives of the whole one.
    """
    for j, t in enumerate(LENGTHS):
        new = _state(problem, x.at.moved(move.step.times(t * share)), j, found)
        if descends(x.value, t * share * move.slope, new.value):
            return new, t
    return x, 0.0


def _step(
    problem: SoftmaxStream, x: SoftmaxState, accuracy: float, multipliers: Array | None
) -> SoftmaxMove:
    """Return the minimiser of the model at a point, with the dual point that it gives."""
    rows, delta = problem.class_rows, problem.delta
    model = Quadratic(rows, x.at.C[None], x.g[None], x.H[None])
    move = problem.penalty.move(model, np.array([delta]), np.array([accuracy]), multipliers)
    step = Scores(move.step[0], move.shift[0])
    s = step.C.ravel()
    s = np.append(s, step.c) if rows.fit_intercept else s
    # flows that fit the probabilities continued along the step
    G = rows.split(x.g + x.H @ s)[0] @ rows.basis.T
    size = float(problem.penalty.sizes(corrected(rows, G[None], move.flows)).sum())
    # without a penalty the pull is 0 to rounding only; its price is that of the point
    shrink, price = (1.0, size * x.norm) if delta == 0 else (min(1.0, delta / max(size, TINY)), 0.0)
    slope = float(x.g @ s) + float(move.rise[0])
    return SoftmaxMove(step, slope, shrink, price, move.multipliers)


def _at(problem: SoftmaxStream, at: Scores) -> Passes[SoftmaxState]:
    """Return the point of a model: one pass."""
    found = yield _job(problem, at, at.times(0.0), 1.0)
    return _state(problem, at, 0, found)


def _job(problem: SoftmaxStream, at: Scores, step: Scores, shrink: float) -> SoftmaxSums:
    stream = problem.stream
    form = (problem.factor, stream.loss.outputs, stream.fit_intercept)
    return SoftmaxSums(stream.blocks, *form, at, step, shrink)


def _state(problem: SoftmaxStream, at: Scores, place: int, found: Sums) -> SoftmaxState:
    """Return the point whose sums a pass took, its value at one of the lengths."""
    mass = problem.stream.total
    norm = float(problem.penalty.norms(problem.class_rows.differences(at.C)).max())
    loss = float(found["values"][place]) / mass
    value = loss + problem.delta * norm
    return SoftmaxState(at, loss, norm, value, found["gradient"] / mass, found["hessian"] / mass)
