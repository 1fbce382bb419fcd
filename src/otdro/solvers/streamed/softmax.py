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
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Job, Sums
from ...design import Design
from ...losses import Loss
from ...problem import Ball, Solution
from ..euclidean.newton import as_solution
from ..euclidean.order_one import TINY, Batch, Line, minimise
from ..softmax.newton import PairPlace, PairProblems, SoftmaxZero, origin
from ..softmax.pairs import RoundPairs, SoftmaxRows, Unpenalised, corrected
from .newton import Streamed
from .stream import Reading, Stream

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SoftmaxSums:
    r"""Sums after a share of a step of one model, and those of the dual point.

    After the share: ``value`` :math:`\sum w\ell`, ``gradient`` and ``hessian`` in (C, c), as
    ``SoftmaxRows`` joins them; ``dual`` :math:`\sum_i w_i H(q_i)` at the probabilities continued
    along the whole step from its start, shrunk towards the labels by ``shrink``.
    """

    reading: Reading
    factor: Array | None
    loss: Loss
    fit_intercept: bool
    model: Array
    step: Array
    length: float
    shrink: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        K, side = self.loss.outputs, len(self.model)
        value, dual = 0.0, 0.0
        gradient, hessian = np.zeros(side), np.zeros((side, side))
        # pairs of classes have a weight per row each
        for Z, y, w in self.reading.blocks(chunk, K * (K - 1)):
            design = Design(Z, self.factor)
            rows = SoftmaxRows(design, y.astype(int), w[None], self.loss, self.fit_intercept)
            z, dz = (rows.scores(*rows.split(part[None])) for part in (self.model, self.step))
            _, p = rows.evaluate(z)
            dual += float(rows.dual_value(p + rows.bent(p, dz), np.array([self.shrink]))[0])
            risk, p = rows.evaluate(z + self.length * dz)
            value += float(risk[0])
            gradient += rows.gradient(rows.slopes(p))[0]
            hessian += rows.curvature(p)[0]
        return {"value": value, "dual": dual, "gradient": gradient, "hessian": hessian}


@dataclass(frozen=True, eq=False)
class StreamedPairPoints(Batch):
    """The one model of a stream with gradient and Hessian of the loss in (C, c).

    ``lower`` is a bound below the least F that the pass to the point proved.
    """

    axis: ClassVar[int] = 0

    theta: Array
    b: Array
    w: Array
    objective: Array
    promised: Array
    multipliers: Array | None
    gradient: Array
    hessian: Array
    lower: Array


@dataclass(frozen=True, eq=False)
class StreamedPairs(PairProblems):
    """The one problem of a stream; ``rows`` has one row per class, all a constant model needs."""

    stream: Streamed

    def columns(self, index: Array) -> StreamedPairs:
        """Return the problem."""
        return self

    def at(
        self, C: Array, c: Array, z: Any = None, promised: Any = None, multipliers: Any = None
    ) -> Any:
        """Return the point at (C, c), which proves nothing: one pass."""
        return self.passed((C, c), (0 * C, 0 * c), 0.0, 0.0, np.inf)

    def passed(
        self,
        start: tuple[Array, Array],
        step: tuple[Array, Array],
        length: float,
        shrink: float,
        price: float,
    ) -> Any:
        """Return the point after a share of a step, with the bound along the step: one pass."""
        stream = self.stream.models[0]
        job: Job = SoftmaxSums(
            reading=stream.reading,
            factor=self.stream.factor,
            loss=stream.loss,
            fit_intercept=stream.fit_intercept,
            model=self.rows.joined(*start)[0],
            step=self.rows.joined(*step)[0],
            length=length,
            shrink=shrink,
        )
        [sums] = self.stream.sums([job])
        C, c = (at + length * by for at, by in zip(start, step, strict=True))
        norm = self.norms(C)
        F = sums["value"] + self.delta * norm
        lower = np.array([max(sums["dual"] - price, 0.0)])
        parts = (norm, F, F, None, sums["gradient"][None], sums["hessian"][None], lower)
        return self.stream.logged(StreamedPairPoints(C, c, *parts))

    def from_zero(self, zero: SoftmaxZero) -> Any:
        """Return the minimiser of the quadratic model along B: two passes."""
        C = zero.B @ self.rows.basis
        at = self.at(np.zeros_like(C), zero.b)
        s = self.rows.joined(C, 0 * zero.b)
        bend = np.einsum("bi,bij,bj->b", s, at.hessian, s)
        return self.at(self.length_along(zero, bend)[:, None, None] * C, zero.b)

    def line(self, x: Any) -> Line:
        """Return the line of the next step, with the size of the flows of the dual point there."""
        rows = self.rows
        move, descent = self.move(x, x.gradient, x.hessian)
        s = rows.joined(move.theta, move.b)[0]
        # flows that fit the probabilities continued along the step
        G = rows.split(x.gradient[0] + x.hessian[0] @ s)[0] @ rows.basis.T
        size = self.penalty.sizes(corrected(rows, G[None], move.flows)).sum(axis=-1)
        return Line(self, x, move, descent, size)

    def along(self, line: Line, length: Array) -> Any:
        """Return the point after a share of a move: one pass."""
        x, move, delta = line.x, line.move, float(self.delta[0])
        size, steps = float(line.change[0]), ((x.theta, x.b), (move.theta, move.b))
        # without a penalty the pull is 0 to rounding only; its price is that of the point
        price = size * float(x.w[0]) if delta == 0 else 0.0
        shrink = min(1.0, delta / max(size, TINY)) if delta > 0 else 1.0
        new = self.passed(*steps, float(length[0]), shrink, price)
        return replace(new, promised=-line.descent, multipliers=move.multipliers)

    def lower_bound(self, x: Any, line: Any) -> Array:
        """Return the bound that came with the point."""
        return self.stream.lower_bound(x, line)


def solve(stream: Stream, ball: Ball, start: Solution, solver: Any) -> Solution:
    """Return the certified solution of the softmax model from a solution nearby."""
    factor, sample = ball.cost.factor(), stream.class_rows()
    labels = sample.ys[0].astype(int)
    design, weights = Design(sample.X, factor), sample.weights[None]
    rows = SoftmaxRows(design, labels, weights, stream.loss, stream.fit_intercept)
    penalty = RoundPairs() if ball.delta > 0 else Unpenalised()
    zero = origin(rows, penalty)
    target = solver.tol * float(zero.risk[0])
    delta = np.array([ball.delta])
    chunks = Streamed([stream], factor)
    problem = StreamedPairs(rows, penalty, delta, np.array([target]), chunks)
    theta = start.coef.T if factor is None else np.linalg.solve(factor, start.coef.T)
    E = rows.basis
    near = PairPlace((theta @ E)[None], (start.intercept @ E)[None]) if theta.any() else None
    minima = minimise(problem, problem.at_zero(zero), problem.target, solver.max_iter, near)
    B = minima.theta[0] @ E.T
    coef = B if factor is None else factor @ B
    return as_solution(minima, 0, coef.T, E @ minima.b[0], target)
