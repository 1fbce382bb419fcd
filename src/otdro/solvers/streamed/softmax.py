r"""Newton's method for one softmax model at order 1, each iteration one pass.

.. math:: \min_{C, c}\ F = \sum_i \pi_i \ell(z_i, y_i) + \delta \max_p \|D_p\|_*,\qquad
          z = (ZC + c)E'

(``solvers/softmax``). A pass takes the value, the gradient and the Hessian after a step, and the
dual value of the probabilities continued along the step, q = p + (diag p - pp') dz. Their gradient
is g + H step, so that the flows that fit them, and the shrinking that makes them feasible, are
known before the pass. No number per row is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Job, Sums
from ...design import Design
from ...problem import Solution
from ..softmax.newton import Certificate, PairProblems, SoftmaxZero, origin
from ..softmax.penalty import PairPenalty, Quadratic, RoundPairs, Unpenalised, corrected
from ..softmax.rows import SoftmaxRows
from .newton import CONSTANT, TINY, Move, OrderOne, Point, certified
from .stream import Reading

Array = NDArray[Any]

#: The slope along the first move at least, relative to its penalty: B is the best only nearly.
LEAST_SLOPE = 1e-3


@dataclass(frozen=True, eq=False)
class SoftmaxSums:
    r"""Sums after a share of a step of one model, and those of the dual point.

    After the share: ``value`` :math:`\sum w\ell`, ``gradient`` and ``hessian`` in (C, c), as
    ``SoftmaxRows`` joins them; ``dual`` :math:`\sum_i w_i H(q_i)` at the probabilities continued
    along the whole step from its start, shrunk towards the labels by ``shrink``.
    """

    reading: Reading
    factor: Array | None
    classes: int
    fit_intercept: bool
    model: Array
    step: Array
    length: float
    shrink: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        K, side = self.classes, len(self.model)
        value, dual = 0.0, 0.0
        gradient, hessian = np.zeros(side), np.zeros((side, side))
        # pairs of classes have a weight per row each
        for Z, y, w in self.reading.blocks(chunk, K * (K - 1)):
            design = Design(Z, self.factor)
            rows = SoftmaxRows(design, y.astype(int), w[None], K, self.fit_intercept)
            z, dz = (rows.scores(*rows.split(part[None])) for part in (self.model, self.step))
            _, p = rows.evaluate(z)
            dual += float(rows.dual_value(p + rows.bent(p, dz), np.array([self.shrink]))[0])
            risk, p = rows.evaluate(z + self.length * dz)
            value += float(risk[0])
            gradient += rows.gradient(rows.slopes(p))[0]
            hessian += rows.curvature(p)[0]
        return {"value": value, "dual": dual, "gradient": gradient, "hessian": hessian}


class Softmax(OrderOne):
    """Several scores at order 1, or delta = 0: models are (C, c)."""

    @cached_property
    def penalty(self) -> PairPenalty:
        """The largest norm over pairs of classes, or none."""
        return RoundPairs() if self.delta > 0 else Unpenalised()

    @cached_property
    def rows(self) -> SoftmaxRows:
        """One row per class, as those of one problem: all that a constant model needs."""
        sample, loss = self.stream.class_rows(), self.stream.loss
        design, weights = Design(sample.X, self.factor), sample.weights[None]
        labels = sample.ys[0].astype(int)
        return SoftmaxRows(design, labels, weights, loss.outputs, self.stream.fit_intercept)

    @property
    def problems(self) -> PairProblems:
        """The problem of one row per class."""
        return PairProblems(self.rows, self.penalty, np.array([self.delta]))

    def norm(self, at: Array) -> float:
        """Return the largest norm over pairs of classes."""
        return float(self.penalty.norms(self.rows.differences(self.rows.split(at)[0])).max())

    def inside(self, coef: Array, intercept: Any) -> Array:
        """Return (C, c)."""
        E = self.rows.basis
        return self.rows.joined(self.theta(coef.T) @ E, intercept @ E)

    def outside(self, at: Array) -> tuple[Array, Any]:
        """Return coefficients (K, d) and intercepts (K,)."""
        C, c = self.rows.split(at)
        return self.rows.basis @ self.lift(C).T, self.rows.basis @ c

    def step(self, x: Point, accuracy: float, last: Move | None) -> Move:
        """Return the minimiser of the model at a point, with the dual point that it gives."""
        rows, delta = self.rows, self.delta
        model = Quadratic(rows, rows.split(x.at)[0][None], x.g[None], x.H[None])
        known = None if last is None else last.multipliers
        move = self.penalty.move(model, np.array([delta]), np.array([accuracy]), known)
        s = rows.joined(move.step[0], move.shift[0])
        # flows that fit the probabilities continued along the step
        G = rows.split(x.g + x.H @ s)[0] @ rows.basis.T
        size = float(self.penalty.sizes(corrected(rows, G[None], move.flows)).sum())
        slope = float(x.g @ s) + float(move.rise[0])
        if delta == 0:
            # the pull is 0 to rounding only; its price is that of the point
            return Move(s, slope, 1.0, size * x.norm, move.multipliers)
        return Move(s, slope, min(1.0, delta / max(size, TINY)), 0.0, move.multipliers)

    def job(self, at: Array, move: Move, length: float) -> Job:
        """Return what a pass takes."""
        return SoftmaxSums(
            reading=self.stream.reading,
            factor=self.factor,
            classes=self.rows.classes,
            fit_intercept=self.stream.fit_intercept,
            model=at,
            step=move.step,
            length=length,
            shrink=move.scale,
        )

    def dropped(self, g: Array, H: Array) -> tuple[Array, Array]:
        """Return gradient and Newton matrix, which are in (C, c) already."""
        return g, H

    @cached_property
    def origin(self) -> SoftmaxZero:
        """The constant model, a flow of its gradient and a matrix B to start along."""
        return origin(self.problems, self.stream.constant[0][None])

    def constant(self, target: float) -> tuple[Solution, bool]:
        """Return the constant model with the gap that a flow of its gradient proves."""
        gap = float(Certificate(self.problems, self.origin).gap[0])
        (b, risk), nothing = self.stream.constant, np.zeros((self.rows.classes, self.rows.d))
        risks = (risk, risk)
        solution = certified(nothing, b, 0.0, *risks, gap=gap, target=target, n_iter=1)
        return replace(solution, message=CONSTANT), gap <= target

    def along(self, zero: Point) -> tuple[Array, float]:
        """Return the move to the least of the quadratic model along a matrix B."""
        C = self.origin.B[0] @ self.rows.basis
        s = self.rows.joined(C, np.zeros(C.shape[1]))
        price = self.delta * self.norm(s)
        down = max(-float(zero.g @ s) - price, LEAST_SLOPE * price)
        length = down / max(float(s @ zero.H @ s), TINY)
        return length * s, length * down
