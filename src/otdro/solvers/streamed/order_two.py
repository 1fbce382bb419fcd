r"""Smooth Lipschitz losses at order 2 for rows in chunks: each step of the descent is one pass.

The objective, the model of a step and the rules are those of ``solvers/euclidean/order_two.py``. A
pass takes F, its gradient and Newton matrix after a step, the rows near a tie with both branches,
and the dual value of the slopes before the step. No number per row is kept but for rows near a
tie: their number, and the share of their mass on the first branch.

A bound below the risk of all models takes slopes of the form :math:`c_1 a + c_2 D + c_3 D r`
(``duality.lower_bound``), a, D and r the slope, the curvature and the score less the intercept of a
moved row: sums over these three and their products are all that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Sums
from ...design import Design
from ...duality import AT_THRESHOLD, DualRows, Round, feasible_growth, threshold
from ...duality.ties import Padded
from ...losses import Loss
from ...problem import Solution
from ...progress import logger
from ..euclidean.newton import BELOW_THRESHOLD
from ..euclidean.order_two import (
    SHARP,
    STILL,
    Curve,
    JointObjective,
    JointPoint,
    Progress,
    StepModel,
    Ties,
)
from .newton import Passes, StreamCoordinates, along_gradient, constant_solution
from .stream import Blocks, Constant, RowBlock

Array = NDArray[Any]

#: The part of a step that the next pass tries where the longer one does not descend.
SHORTER = 0.25
#: Rows with two branches that are in the model of a step, per unknown: those nearest to a tie. At
#: the minimum no more rows than unknowns tie, but for chance.
NEAR_TIES = 4


class RowShares(NamedTuple):
    """Row numbers, in order, and the share of the mass of each on its first branch."""

    number: Array
    share: Array


@dataclass(frozen=True, eq=False)
class NearTies:
    """Rows with two branches: number, |psi_1 - psi_2|, w times it, its gradient, the share."""

    number: Array
    distance: Array
    difference: Array
    J: Array
    share: Array

    @classmethod
    def none(cls, D: int) -> NearTies:
        """Return no rows, of gradients of D entries."""
        return cls(np.zeros(0, dtype=int), np.zeros(0), np.zeros(0), np.zeros((0, D)), np.zeros(0))

    def __add__(self, other: NearTies) -> NearTies:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = [np.concatenate(pair) for pair in pairs]
        # rows in the order of their numbers: chunks may come in any
        some = np.argsort(both[1], kind="stable")[: NEAR_TIES * self.J.shape[1]]
        some = some[np.argsort(both[0][some])]
        return NearTies(*(part[some] for part in both))

    def over(self, mass: float) -> Ties | None:
        """Return the ties of one problem whose weights sum to ``mass``."""
        if not len(self.number):
            return None
        held = np.ones((1, len(self.number)), dtype=bool)
        kinks = (self.difference[None] / mass, self.J[None] / mass, self.share[None])
        return Ties(np.zeros(1, dtype=int), self.number[None], held, *kinks)


@dataclass(frozen=True, eq=False)
class StreamPoint:
    """One (theta, b, lam), arrays of one column as those of ``JointPoint``, with F and the rest.

    ``shares`` are those of rows with two branches, ``slopes`` (3,) the coefficients of feasible
    slopes, None where there are none; ``lower`` is the dual value of the slopes of the point
    before it, ``risk`` the mean loss.
    """

    theta: Array
    b: Array
    lam: Array
    shares: RowShares
    objective: Array
    risk: float
    model: StepModel
    slopes: Array | None
    lower: float


@dataclass(frozen=True, eq=False)
class JointSums:
    r"""Sums at a place: ``value`` :math:`\sum w\psi`, its ``gradient`` and ``hessian``, ``risk``
    :math:`\sum w\ell`, and the rows ``near`` a tie.

    Of the three parts of slopes: ``sums`` (3,), ``pulls`` (d, 3) and ``products`` (3, 3).
    ``conjugate`` is :math:`\sum w\,\ell^*` of the slopes of the point ``before``; without these it
    is 0. ``floor`` is the least curvature of the inner problem, relative to lam.
    """

    blocks: Blocks
    loss: Loss
    factor: Array | None
    fit_intercept: bool
    place: tuple[Array, Array, Array]
    shares: RowShares
    floor: float
    before: StreamPoint | None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d = len(self.place[0])
        sums: Sums = {"value": 0.0, "risk": 0.0, "conjugate": 0.0, "near": NearTies.none(d + 2)}
        sums |= {"gradient": np.zeros(d + 2), "hessian": np.zeros((d + 2, d + 2))}
        sums |= {"sums": np.zeros(3), "pulls": np.zeros((d, 3)), "products": np.zeros((3, 3))}
        for block in self.blocks.of(chunk, d):
            self._add(sums, block)
        return sums

    def _add(self, sums: Sums, block: RowBlock) -> None:
        objective, x = self._moved(block, self.place, self.shares)
        gradient, hessian = objective.derivatives(x, np.array([self.floor]))
        sums["value"] += float(x.objective[0])
        sums["risk"] += float(block.w @ self.loss.value(x.z[:, 0], block.y))
        sums["gradient"] += gradient[0]
        sums["hessian"] += hessian[0]
        if x.two.any():
            sums["near"] += _near_ties(objective, x, block)
        mass, parts = _parts(objective, x)
        weighted = mass[..., None] * parts
        sums["sums"] += weighted.sum(axis=(0, 1))
        sums["pulls"] += objective.rows.design.adjoint(weighted.sum(axis=0))
        sums["products"] += np.einsum("kmi,kmj->ij", weighted, parts)
        if self.before is not None and self.before.slopes is not None:
            x0 = self.before
            objective, x = self._moved(block, (x0.theta, x0.b, x0.lam), x0.shares)
            mass, parts = _parts(objective, x)
            conjugate = self.loss.conjugate(parts @ x0.slopes, block.y)
            # a branch without mass may have any slope
            sums["conjugate"] += float(np.sum(mass * np.where(mass > 0, conjugate, 0.0)))

    def _moved(
        self, block: RowBlock, place: tuple[Array, Array, Array], shares: RowShares
    ) -> tuple[JointObjective, JointPoint]:
        """Return the objective over a block and its point, with known shares of its rows."""
        design, (theta, b, lam) = Design(block.Z, self.factor), place
        weights = block.w[:, None]
        rows = DualRows(design, block.y, weights, np.zeros(1), self.fit_intercept, Round())
        objective = JointObjective(rows, self.loss)
        x = objective.at(theta, b, lam, design.scores(theta) + b)
        if not len(shares.number) or not x.two.any():
            return objective, x
        where = np.minimum(np.searchsorted(shares.number, block.number), len(shares.number) - 1)
        known = (shares.number[where] == block.number) & x.two[:, 0]
        p = np.where(known, shares.share[where], x.p[:, 0])
        return objective, replace(x, p=p[:, None])


def _near_ties(objective: JointObjective, x: JointPoint, block: RowBlock) -> NearTies:
    """Return the rows of a block with two branches that are nearest to a tie."""
    index = np.flatnonzero(x.two[:, 0])
    distance = np.abs(x.value[0, index, 0] - x.value[1, index, 0])
    some = np.argsort(distance, kind="stable")[: NEAR_TIES * (len(x.theta) + 2)]
    index, distance = index[some], distance[some]
    places = Padded(index[None], np.ones((1, len(index)), dtype=bool))
    difference, J = objective.branch_differences(x, places)
    return NearTies(block.number[index], distance, difference[0], J[0], x.p[index, 0])


def _parts(objective: JointObjective, x: JointPoint) -> tuple[Array, Array]:
    """Return the masses (k, m) of branches and a, D and D r of each, (k, m, 3)."""
    mass = objective.rows.weights * x.shares
    a, D = x.slope[..., 0], x.curvature[..., 0]
    reached = (x.z - x.b + x.shift)[..., 0]
    return mass[..., 0], np.stack([a, D, D * reached], axis=-1)


@dataclass(frozen=True, eq=False)
class JointStream(StreamCoordinates):
    """One problem of order 2 over a stream, of delta > 0."""

    delta: float

    def solve(
        self, coef: Array, b: Any, lam: float, target: float, max_iter: int
    ) -> Passes[Solution]:
        """Minimise F."""
        stream, flat = self.stream, self.stream.constant()
        steep = self.steepness(flat)
        least = threshold(steep, flat.mean_square, stream.loss.lipschitz, order=2)
        if least <= self.delta * (1 + AT_THRESHOLD):
            return constant_solution(stream, flat, 1.0, target)
        x = yield from self._first(coef, b, lam, flat, steep)
        progress, n_iter = Progress.begun(np.array([target])), 0
        while n_iter < max_iter:
            n_iter += 1
            if progress.floor[0] != SHARP:
                # where two maxima of a row part the model is too stiff
                x = yield from self._at((x.theta, x.b, x.lam), x.shares, x, progress.floor[0])
                progress.lower = np.maximum(progress.lower, x.lower)
            move, descent, shares = x.model.minimise()
            new = yield from self._advance(x, move, descent, shares)
            progress.lower = np.maximum(progress.lower, new.lower)
            over = progress.over(new.objective, x.objective - new.objective, descent)
            x = new
            known = (stream.chunks.passes, x.objective[0], progress.gap[0])
            logger.info("pass %d: risk %.9g, gap %.3g", *known)
            if over[0]:
                break
        model = (self.lift(x.theta[:, 0]), float(x.b[0]), float(x.lam[0]))
        gap = float(progress.gap[0])
        return stream.solution(*model, float(x.objective[0]), x.risk, gap, target, n_iter)

    def _first(
        self, coef: Array, b: float, lam: float, flat: Constant, steep: float
    ) -> Passes[StreamPoint]:
        """Return where to start: F is below that of beta = 0, from where no descent ends there."""
        none = RowShares(np.zeros(0, dtype=int), np.zeros(0))
        if coef.any() and lam > 0:
            place = (self.theta(coef)[:, None], np.array([b]), np.array([lam]))
            x = yield from self._at(place, none)
            if x.objective[0] < flat.risk:
                return x
        rms = float(np.sqrt(flat.mean_square))
        rho = min(float(np.sqrt(self.delta)) * rms, BELOW_THRESHOLD * steep)
        move = along_gradient(self, rho, flat)
        share = 1.0
        while True:
            at = flat.at(share * move)
            # of short moves F = lam delta + |theta|^2 E[a^2]/(4 lam)
            first = np.linalg.norm(at[:-1]) * rms / (2 * float(np.sqrt(self.delta)))
            x = yield from self._at((at[:-1, None], at[-1:], np.array([first])), none)
            if x.objective[0] < flat.risk or share < STILL:
                return x
            share *= SHORTER

    def _advance(
        self, x: StreamPoint, move: Array, descent: Array, shares: Array | None
    ) -> Passes[StreamPoint]:
        """Return the next point, by the longest of the steps 1, 1/4, ... that descends, or x.

        The rows of the model have its shares there.
        """
        ties, table = x.model.ties, x.shares
        if ties is not None and shares is not None:
            table = RowShares(ties.index[0], shares[0])
        curve = Curve(x, move, descent, Round().product)
        length, before, lower = curve.longest, x, 0.0
        while length[0] > STILL:
            new = yield from self._at(curve.at(length), table, before)
            lower = max(lower, new.lower)
            if curve.low_enough(new.objective, length)[0]:
                return replace(new, lower=lower)
            length = SHORTER * length
            # the slopes of x have been judged by the first pass
            before = replace(x, slopes=None)
        new = yield from self._at((x.theta, x.b, x.lam), table)
        return replace(new, lower=lower)

    def _at(
        self,
        place: tuple[Array, Array, Array],
        shares: RowShares,
        before: StreamPoint | None = None,
        floor: float = SHARP,
    ) -> Passes[StreamPoint]:
        """Return what one pass finds at (theta, b, lam), with the bound of the slopes before it."""
        stream, mass = self.stream, self.stream.total
        fixed = (stream.blocks, stream.loss, self.factor, stream.fit_intercept)
        sums = yield JointSums(*fixed, place, shares, floor, before)
        gradient, hessian = sums["gradient"] / mass, sums["hessian"] / mass
        gradient[-1] += self.delta
        if not stream.fit_intercept:
            gradient[-2] = hessian[-2] = hessian[:, -2] = 0.0
            hessian[-2, -2] = 1.0
        judged = before is not None and before.slopes is not None
        return StreamPoint(
            *place,
            shares,
            place[2] * self.delta + sums["value"] / mass,
            sums["risk"] / mass,
            StepModel(gradient[None], hessian[None], sums["near"].over(mass)),
            self._slopes(sums),
            max(0.0, -sums["conjugate"] / mass) if judged else 0.0,
        )

    def _slopes(self, sums: Sums) -> Array | None:
        """Return coefficients of feasible slopes, moved by a shift of b and a growth of theta.

        In units of (a, D, D r): a + eta D r, less the multiple of D that leaves the mean 0.
        """
        mass = self.stream.total
        first, products = sums["sums"] / mass, sums["products"] / mass
        c = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        if self.stream.fit_intercept:
            c[:, 1] = -(c @ first) / max(float(first[1]), np.finfo(float).tiny)
        # (g + eta dg)^2 <= delta E[(a + eta h)^2], quadratic in eta
        pulls = sums["pulls"] @ c.T / mass
        excess = pulls.T @ pulls - self.delta * c @ products @ c.T
        eta = float(feasible_growth(excess[0, 0], excess[0, 1], excess[1, 1]))
        if not np.isfinite(eta):
            return None
        slopes: Array = c[0] + eta * c[1]
        return slopes
