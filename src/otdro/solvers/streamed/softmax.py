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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Sums
from ...design import Design
from ...problem import Solution
from ..softmax.newton import Certificate, PairProblems, SoftmaxZero, origin
from ..softmax.penalty import PairPenalty, Quadratic, RoundPairs, Unpenalised, corrected
from ..softmax.rows import SoftmaxRows
from .newton import CONSTANT, SHORTER, SHORTEST, TINY, Coordinates, Passes, descend
from .stream import Reading

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SoftmaxSums:
    r"""Sums after a share of a step of one model, and those of the dual point.

    After the share: ``value`` :math:`\sum w\ell`, ``gradient`` and ``hessian`` in (C, c), as
    ``SoftmaxRows`` joins them; ``entropy`` :math:`\sum_i w_i H(q_i)` at the probabilities continued
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
        value = entropy = 0.0
        gradient, hessian = np.zeros(side), np.zeros((side, side))
        # pairs of classes have a weight per row each
        for Z, y, w in self.reading.blocks(chunk, K * (K - 1)):
            design = Design(Z, self.factor)
            rows = SoftmaxRows(design, y.astype(int), w[None], K, self.fit_intercept)
            z, dz = (rows.scores(*rows.split(part[None])) for part in (self.model, self.step))
            _, p = rows.evaluate(z)
            entropy += float(rows.dual_value(p + rows.bent(p, dz), np.array([self.shrink]))[0])
            risk, p = rows.evaluate(z + self.length * dz)
            value += float(risk[0])
            gradient += rows.gradient(rows.slopes(p))[0]
            hessian += rows.curvature(p)[0]
        return {"value": value, "entropy": entropy, "gradient": gradient, "hessian": hessian}


class SoftmaxPoint(NamedTuple):
    """A model (C, c), its mean loss, penalty norm, F, gradient and Hessian of the mean loss."""

    at: Array
    risk: float
    norm: float
    value: float
    g: Array
    H: Array
    lower: float


class SoftmaxMove(NamedTuple):
    """A step, the slope of F along it, its dual point (shrinking, price) and multipliers."""

    step: Array
    slope: float
    shrink: float
    price: float
    multipliers: Array | None
    longest: float = 1.0


@dataclass(frozen=True, eq=False)
class Softmax(Coordinates):
    """One problem of several scores over a stream."""

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

    def step(self, x: SoftmaxPoint, accuracy: float, last: SoftmaxMove | None) -> SoftmaxMove:
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
            return SoftmaxMove(s, slope, 1.0, size * x.norm, move.multipliers)
        return SoftmaxMove(s, slope, min(1.0, delta / max(size, TINY)), 0.0, move.multipliers)

    def after(self, x: SoftmaxPoint, move: SoftmaxMove, length: float) -> Passes:
        """Return the point after a share of a move: one pass."""
        stream, rows, mass = self.stream, self.rows, self.stream.total
        sums = yield SoftmaxSums(
            reading=stream.reading,
            factor=self.factor,
            classes=rows.classes,
            fit_intercept=stream.fit_intercept,
            model=x.at,
            step=move.step,
            length=length,
            shrink=move.shrink,
        )
        at = x.at + length * move.step
        norm = float(self.penalty.norms(rows.differences(rows.split(at)[0])).max())
        risk = sums["value"] / mass
        g, H = sums["gradient"] / mass, sums["hessian"] / mass
        lower = sums["entropy"] / mass - move.price
        return SoftmaxPoint(at, risk, norm, risk + self.delta * norm, g, H, lower)

    def at(self, C: Array, c: Array) -> Passes:
        """Return the point of a model: one pass."""
        at = self.rows.joined(C, c)
        nowhere = SoftmaxMove(np.zeros_like(at), 0.0, 0.0, np.inf, None)
        return self.after(SoftmaxPoint(at, 0.0, 0.0, 0.0, at, at, 0.0), nowhere, 0.0)

    def solve(self, start: Solution, target: float, max_iter: int) -> Passes:
        """Minimise F."""
        stream, flat, rows = self.stream, self.stream.constant, self.rows
        alone = PairProblems(rows, self.penalty, np.array([self.delta]))
        zero = origin(alone, flat.b[None])
        gap = float(Certificate(alone, zero).gap[0])
        message, n_iter = "", 1
        if gap <= target:
            C, c, norm, message = zero.points.C[0], zero.points.c[0], 0.0, CONSTANT
            value = risk = flat.risk
        else:
            x = yield from self._first(start, zero)
            x, gap, n_iter = yield from descend(self, x, target, max_iter)
            (C, c), norm, value, risk = rows.split(x.at), x.norm, x.value, x.risk
        solution = stream.solution(
            rows.basis @ self.lift(C).T,
            rows.basis @ c,
            norm,
            objective=value,
            risk=risk,
            gap=gap,
            target=target,
            n_iter=n_iter,
        )
        return replace(solution, message=message or solution.message)

    def _first(self, start: Solution, zero: SoftmaxZero) -> Passes:
        """Return where to start: F is below that of B = 0, from where no descent ends there."""
        E, flat = self.rows.basis, self.stream.constant
        if start.coef.any():
            x = yield from self.at(self.theta(start.coef.T) @ E, start.intercept @ E)
            if x.value < flat.risk:
                return x
        C, c = zero.B[0] @ E, zero.points.c[0]
        origin = yield from self.at(0 * C, c)
        # the minimiser of the quadratic model along B
        s = self.rows.joined(C, 0 * c)
        norm = float(self.penalty.norms(self.rows.differences(C)).max())
        rise = float(origin.g @ s) + self.delta * norm
        share = max(-rise, 1e-3 * self.delta * norm) / max(float(s @ origin.H @ s), TINY)
        while norm > 0:
            x = yield from self.at(share * C, c)
            if x.value < flat.risk or share * norm < SHORTEST:
                return x
            share *= SHORTER
        return origin
