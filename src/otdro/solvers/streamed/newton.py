r"""Smooth losses at order 1 for rows in chunks: each step of the descent is one pass.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

The descent is that of rows in memory (``solvers/euclidean/order_one.py``), of all models of
one-vs-rest at a time. A pass takes F, its gradient and Newton matrix at the end of a step, and the
dual value of the slopes continued along the step, :math:`\kappa(a + D\,dz)`, whose pull and scale
are known before. No number per row is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Job, Sums
from ...design import Design
from ...losses import Loss
from ...progress import logger
from ..euclidean.order_one import (
    TINY,
    Batch,
    Descent,
    Line,
    Minima,
    Place,
    WeightedRows,
    Zero,
    dots,
    is_off,
    length_along_gradient,
    minima_of,
    newton_step,
    norms,
    some_of,
)
from .stream import Reading, Stream

Array = NDArray[Any]


def constant_models(models: list[Stream], factor: Array | None) -> Zero:
    """Return the best models at theta = 0: slopes of a constant are the same in all of a class."""
    zeros = []
    for model in models:
        sample = model.class_rows()
        rows, weights = Design(sample.X, factor), sample.weights[:, None]
        data = WeightedRows(rows, sample.ys[0], weights, sample.loss, sample.fit_intercept)
        zeros.append(Zero.of(data))
    return Zero.joined(zeros, list(np.arange(len(zeros))[:, None]))


@dataclass(frozen=True, eq=False)
class NewtonSums:
    r"""Sums after a share of a step of (beta, b), and those of the dual point.

    After the share: ``value`` :math:`\sum w\ell`, ``gradient`` :math:`\sum wat` and ``hessian``
    :math:`\sum wDtt'`, t = (z, 1); ``dual`` :math:`-\sum w\,\ell^*(\kappa(a + D\,dz))` with the
    slopes and curvatures of the start and the changes dz of the whole step. ``both`` (d + 1, 2)
    are the model and the step.
    """

    reading: Reading
    loss: Loss
    both: Array
    length: float
    kappa: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        loss, both, side = self.loss, self.both, len(self.both)
        value, dual = 0.0, 0.0
        first, second = np.zeros(side), np.zeros((side, side))
        for Z, y, w in self.reading.blocks(chunk, side):
            design = Design(Z)
            z, dz = np.ascontiguousarray(design.scores(both[:-1]).T) + both[-1][:, None]
            _, a, D = loss.evaluate(z, y)
            dual -= float(w @ loss.conjugate(self.kappa * (a + D * dz), y))
            if self.length > 0:
                z = z + self.length * dz
            each, a, D = loss.evaluate(z, y)
            value += float(w @ each)
            a, D = w * a, w * D
            gram, bend = design.moments(D)
            first += np.append(design.adjoint(a), a.sum())
            second[:-1, :-1] += gram
            second[-1] += np.append(bend, D.sum())
        second[:-1, -1] = second[-1, :-1]
        return {"value": value, "dual": dual, "gradient": first, "hessian": second}


@dataclass(frozen=True, eq=False)
class StreamedPoints(Batch):
    """Points of a batch with gradient (d + 1, P) and Newton matrix (d + 1, d + 1, P) of the loss.

    ``lower`` is a bound below the least F that the pass to the points proved.
    """

    slope: ClassVar[None] = None

    theta: Array
    b: Array
    objective: Array
    gradient: Array
    hessian: Array
    lower: Array

    @cached_property
    def w(self) -> Array:
        """The norms ||theta||_2."""
        return norms(self.theta)


@dataclass(frozen=True, eq=False)
class Streamed:
    """Objectives of the P models of a stream in the coordinates of its cost: beta = L theta, L its
    ``factor``. The bound that a point proves comes with the pass to it."""

    models: list[Stream]
    factor: Array | None

    @property
    def loss(self) -> Loss:
        """The loss of all models."""
        return self.models[0].loss

    def columns(self, index: Array) -> Self:
        """Return some of the models."""
        models, _, *parts = vars(self).values()
        some = (some_of(part, index, -1) for part in parts)
        return type(self)([models[p] for p in index], self.factor, *some)

    def sums(self, jobs: list[Job]) -> list[Sums]:
        """Return the sums of the jobs of all models over the mass of the rows: one pass."""
        chunks = self.models[0].chunks
        found = chunks.total(*jobs)
        for model, sums in zip(self.models, found, strict=True):
            for name, part in sums.items():
                if isinstance(part, float | np.ndarray):
                    sums[name] = part / model.total
        return found

    def logged(self, x: Any) -> Any:
        """Return the points after a message."""
        logger.info("pass %d: risk %.9g", self.models[0].chunks.passes, x.objective.sum())
        return x

    def lower_bound(self, x: Any, line: Line) -> Array:
        """Return the bounds that came with the points."""
        bound: Array = x.lower
        return bound


@dataclass(frozen=True, eq=False)
class StreamedRisk(Streamed):
    """The objectives F of order 1."""

    rho: Array

    def at(self, theta: Array, b: Array) -> Any:
        """Return the points at (theta, b), which prove nothing: one pass."""
        still, none = np.zeros_like(theta), np.zeros_like(b)
        return self.passed((theta, b), (still, none), none, none)

    def passed(
        self,
        start: tuple[Array, Array],
        step: tuple[Array, Array],
        length: Array,
        kappa: Array,
    ) -> Any:
        """Return the points after a share of steps, with the bounds of scaled slopes: one pass."""
        places = [
            np.append(theta if self.factor is None else self.factor @ theta, b[None], axis=0)
            for theta, b in (start, step)
        ]
        both = np.stack(places, axis=-1)
        jobs: list[Job] = [
            NewtonSums(model.reading, model.loss, both[:, p], float(length[p]), float(kappa[p]))
            for p, model in enumerate(self.models)
        ]
        sums = self.sums(jobs)
        theta = start[0] + length * step[0]
        risk = np.array([each["value"] for each in sums])
        each_of = [self._dropped(each["gradient"], each["hessian"]) for each in sums]
        points = StreamedPoints(
            theta=theta,
            b=start[1] + length * step[1],
            objective=risk + self.rho * norms(theta),
            gradient=np.stack([g for g, _ in each_of], axis=-1),
            hessian=np.stack([H for _, H in each_of], axis=-1),
            lower=np.array([each["dual"] for each in sums]),
        )
        return self.logged(points)

    def _dropped(self, g: Array, H: Array) -> tuple[Array, Array]:
        """Return gradient and Newton matrix in (theta, b) from those in (beta, b)."""
        if self.factor is not None:
            P: Array = np.eye(len(g))
            P[:-1, :-1] = self.factor
            g, H = P.T @ g, P.T @ H @ P
        if not self.models[0].fit_intercept:
            g[-1] = H[-1] = H[:, -1] = 0.0
        H[-1, -1] = max(H[-1, -1], TINY) if self.models[0].fit_intercept else 1.0
        return g, H

    def off(self, zero: Zero) -> Array:
        """Whether theta = 0 is not optimal."""
        return is_off(zero, self.rho)

    def start(self, near: Place) -> Any:
        """Return the points at the places: one pass."""
        return self.at(near.theta, near.b)

    def minima(self, end: Descent, target: Array) -> Minima:
        """Return the ends of descents."""
        return minima_of(end, self.rho, self.loss)

    def from_zero(self, zero: Zero) -> Any:
        """Return the points at the minimisers of the quadratic models along -g: two passes."""
        at = self.at(np.zeros_like(zero.g), zero.b)
        steep = norms(zero.g)
        u = -zero.g / steep
        # b follows
        shift = -dots(at.hessian[-1, :-1], u) / at.hessian[-1, -1]
        along = np.append(u, shift[None], axis=0)
        bend = np.einsum("ib,ijb,jb->b", along, at.hessian, along)
        # scores along u are about 1, the unit of the rows
        length = length_along_gradient(steep, self.rho, bend, 1.0)
        return self.at(length * u, zero.b + length * shift)

    def line(self, x: StreamedPoints) -> Line:
        """Return the lines of Newton steps, with the norms of the pulls of slopes at their ends."""
        w, rho, g, s = np.maximum(x.w, TINY), self.rho, x.gradient[:-1], x.gradient[-1]
        H, h, m = np.moveaxis(x.hessian, -1, 0), x.hessian[-1, :-1], x.hessian[-1, -1]
        matrices = H.copy()
        matrices[:, :-1, :-1] -= np.einsum("ib,jb->bij", h / m, h)
        step, db = newton_step(matrices, g, s, x.theta / w, rho, w)
        pull = norms(g + np.einsum("bij,jb->ib", H[:, :-1, :-1], step) + h * db)
        descent = dots(g + rho * x.theta / w, step) + s * db
        return Line(self, x, Place(step, db), descent, pull)

    def along(self, line: Line, length: Array) -> Any:
        """Return the points after a share (P,) of steps: one pass."""
        x, step, pull = line.x, line.move, line.change
        kappa = np.where(self.rho > 0, np.minimum(1.0, self.rho / np.maximum(pull, TINY)), 1.0)
        new = self.passed((x.theta, x.b), (step.theta, step.b), length, kappa)
        # without a penalty the pull is 0 to rounding only; its price is |pull| |theta|
        new.lower[:] -= np.where(self.rho > 0, 0.0, pull * x.w)
        return new
