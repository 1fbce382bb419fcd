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

from ...chunks import Chunk, Sums
from ...design import Design
from ...problem import Sample, Solution
from ..euclidean.order_one import STILL
from ..softmax.newton import Certificate, PairProblems, SoftmaxZero, along, origin
from ..softmax.penalty import PairPenalty, Quadratic, RoundPairs, Unpenalised, corrected
from ..softmax.rows import SoftmaxRows
from .newton import SHORTER, Passes, StreamCoordinates, at_model, descend
from .stream import CONSTANT, Blocks, RowBlock
from .sums import LENGTHS

Array = NDArray[Any]

TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class SoftmaxSums:
    r"""Sums at the end of a step of one model, at shorter steps, and those of the dual point.

    After the step: ``gradient`` and ``hessian`` in (C, c), as ``SoftmaxRows`` joins them;
    ``values`` :math:`\sum w\ell` after each of ``LENGTHS`` of the step; ``entropy``
    :math:`\sum_i w_i H(q_i)` at the probabilities continued along the step from its start, shrunk
    towards the labels by ``shrink``.
    """

    blocks: Blocks
    factor: Array | None
    classes: int
    fit_intercept: bool
    at: Array
    step: Array
    shrink: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d, m, side = len(self.blocks.center), self.classes - 1, len(self.at)
        found: Sums = {"gradient": np.zeros(side), "hessian": np.zeros((side, side))}
        found |= {"values": np.zeros(len(LENGTHS)), "entropy": 0.0}
        # pairs of classes have a weight per row each
        for block in self.blocks.of(chunk, max(d, self.classes * m)):
            self._add(found, block)
        return found

    def _add(self, found: Sums, block: RowBlock) -> None:
        design, form = Design(block.Z, self.factor), (self.classes, self.fit_intercept)
        rows = SoftmaxRows(design, block.y.astype(int), block.w[None], *form)
        z, dz = (rows.scores(*rows.split(part[None])) for part in (self.at, self.step))
        _, p = rows.evaluate(z)
        entropy = rows.dual_value(p + rows.bent(p, dz), np.array([self.shrink]))
        found["entropy"] += float(entropy[0])
        values, p = rows.evaluate(z + dz)
        shorter = [rows.evaluate(z + t * dz)[0] for t in LENGTHS[1:]]
        found["values"] += np.concatenate([values, *shorter])
        found["gradient"] += rows.gradient(rows.slopes(p))[0]
        found["hessian"] += rows.curvature(p)[0]


@dataclass(frozen=True, eq=False)
class SoftmaxState:
    """A model (C, c) with its loss, penalty norm, F, gradient g and Hessian H of the loss."""

    at: Array
    loss: float
    norm: float
    value: float
    g: Array
    H: Array


@dataclass(frozen=True, eq=False)
class SoftmaxMove:
    """A step, the slope of F along it, its dual point (shrinking, price) and multipliers."""

    step: Array
    slope: float
    scale: float
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
        design = Design(sample.X, self.factor, center)
        form = (self.stream.loss.outputs, self.stream.fit_intercept)
        return SoftmaxRows(design, sample.ys[0].astype(int), sample.weights[None], *form)

    def inside(self, coef: Array, b: Array) -> Array:
        """Return (C, c) of coefficients (K, d) and intercepts (K,) on centred rows."""
        E = self.class_rows.basis
        return self.class_rows.joined(self.theta(coef.T) @ E, b @ E)

    def outside(self, at: Array) -> tuple[Array, Array]:
        """Return coefficients (K, d) and intercepts (K,) on centred rows, those of ``inside``."""
        C, c = self.class_rows.split(at)
        return self.class_rows.basis @ self.lift(C).T, self.class_rows.basis @ c

    def coefficients(self, at: Array) -> Array:
        """Return C."""
        return self.class_rows.split(at)[0]

    def step(self, x: SoftmaxState, accuracy: float, last: SoftmaxMove | None) -> SoftmaxMove:
        """Return the minimiser of the model at a point, with the dual point that it gives."""
        rows, delta = self.class_rows, self.delta
        model = Quadratic(rows, self.coefficients(x.at)[None], x.g[None], x.H[None])
        known = None if last is None else last.multipliers
        move = self.penalty.move(model, np.array([delta]), np.array([accuracy]), known)
        s = rows.joined(move.step[0], move.shift[0])
        # flows that fit the probabilities continued along the step
        G = self.coefficients(x.g + x.H @ s) @ rows.basis.T
        size = float(self.penalty.sizes(corrected(rows, G[None], move.flows)).sum())
        slope = float(x.g @ s) + float(move.rise[0])
        if delta == 0:
            # the pull is 0 to rounding only; its price is that of the point
            return SoftmaxMove(s, slope, 1.0, size * x.norm, move.multipliers)
        return SoftmaxMove(s, slope, min(1.0, delta / max(size, TINY)), 0.0, move.multipliers)

    def job(self, at: Array, step: Array, scale: float) -> SoftmaxSums:
        """Return what a pass takes."""
        form = (self.factor, self.stream.loss.outputs, self.stream.fit_intercept)
        return SoftmaxSums(self.stream.blocks, *form, at, step, scale)

    def bound(self, x: SoftmaxState, move: SoftmaxMove, found: Sums) -> float:
        """Return the dual value."""
        return float(found["entropy"]) / self.stream.total - move.price

    def point(self, at: Array, place: int, found: Sums) -> SoftmaxState:
        """Return the point whose sums a pass took."""
        mass = self.stream.total
        norms = self.penalty.norms(self.class_rows.differences(self.coefficients(at)))
        loss, norm = float(found["values"][place]) / mass, float(norms.max())
        sums = (found["gradient"] / mass, found["hessian"] / mass)
        return SoftmaxState(at, loss, norm, loss + self.delta * norm, *sums)

    def solve(
        self, coef: Array, b: Any, lam: float, target: float, max_iter: int
    ) -> Passes[Solution]:
        """Minimise F."""
        stream, flat = self.stream, self.stream.constant()
        rows = self.class_rows
        alone = PairProblems(rows, self.penalty, np.array([self.delta]))
        zero = origin(alone, flat.b[None])
        gap = float(Certificate(alone, zero).gap[0])
        if gap <= target:
            model = self.outside(rows.joined(zero.points.C[0], zero.points.c[0]))
            found = stream.solution(*model, 0.0, flat.risk, flat.risk, gap, target, 1)
            return replace(found, message=CONSTANT)
        x = yield from _first(self, self.inside(coef, b), zero, flat.risk)
        x, gap, n_iter = yield from descend(self, x, flat.risk, target, max_iter)
        coef, b = self.outside(x.at)
        return stream.solution(coef, b, x.norm, x.value, x.loss, gap, target, n_iter)


def _first(
    problem: SoftmaxStream, start: Array, zero: SoftmaxZero, flat: float
) -> Passes[SoftmaxState]:
    """Return where to start: F is below that of B = 0, from where no descent ends there."""
    if problem.coefficients(start).any():
        x = yield from at_model(problem, start)
        if x.value < flat:
            return x
    C, c = _best_along(problem, zero)
    share = 1.0
    while True:
        x = yield from at_model(problem, problem.class_rows.joined(share * C, c))
        if x.value < flat or share * x.norm < STILL:
            return x
        share *= SHORTER


def _best_along(problem: SoftmaxStream, zero: SoftmaxZero) -> tuple[Array, Array]:
    """Return the minimiser of the quadratic model along B, bent as the rows in memory are."""
    kept = PairProblems(problem.kept_rows, problem.penalty, np.array([problem.delta]))
    found = along(kept, replace(zero, points=kept.at(zero.points.C, zero.points.c)))
    return found.C[0], found.c[0]
