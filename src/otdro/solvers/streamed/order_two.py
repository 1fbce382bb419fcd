r"""Smooth Lipschitz losses at order 2 for rows in chunks: each step of the descent is one pass.

The objective and the model of a step are those of ``solvers/euclidean/order_two.py``. A pass takes
F, its gradient and Newton matrix after a step, the rows near a tie with both branches, and the
dual value of the slopes before the step. No number per row is kept but for rows near a tie: a key
of their content, and the share of their mass on the first branch. Equal rows have equal keys.

A bound below the risk of all models takes slopes of the form :math:`c_1 a + c_2 D + c_3 D r`
(``duality.lower_bound``), a, D and r the slope, the curvature and the score less the intercept of a
moved row: sums over these three and their products are all that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Sums
from ...design import Design
from ...duality import AT_THRESHOLD, DualRows, Round, feasible_growth
from ...duality.ties import Padded
from ...losses import Loss
from ...problem import Solution
from ..euclidean.newton import BELOW_THRESHOLD
from ..euclidean.order_two import SHARP, Curve, JointObjective, JointPoint, StepModel, Ties
from .newton import (
    SHORTER,
    SHORTEST,
    TINY,
    Coordinates,
    OrderOne,
    Passes,
    along_gradient,
    certified,
    constant_solution,
    descend,
)
from .stream import Reading, RowBlock

Array = NDArray[Any]

#: Rows with two branches that are in the model of a step, per unknown: those nearest to a tie. At
#: the minimum no more rows than unknowns tie, but for chance.
NEAR_TIES = 4


class RowShares(NamedTuple):
    """Keys of rows, in order, and the share of the mass of each on its first branch."""

    key: Array
    share: Array


NO_SHARES = RowShares(np.zeros(0, dtype=np.uint64), np.zeros(0))


def row_keys(Z: Array, y: Array) -> Array:
    """Return a number for each row (z, y) that is the same for equal rows, wherever they are."""
    content = np.column_stack([Z, y]).view(np.uint64)
    # odd multiples of the golden ratio; the high bits of a number are mixed into the low ones
    odd = np.arange(1, 2 * content.shape[1], 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (content ^ (content >> np.uint64(29))) * odd
    keys: Array = (mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64)
    return keys


@dataclass(frozen=True, eq=False)
class NearTies:
    """Rows with two branches: key, |psi_1 - psi_2|, w times it, its gradient, the share.

    Equal rows are one, of the weight of all.
    """

    key: Array
    distance: Array
    difference: Array
    J: Array
    share: Array

    @classmethod
    def none(cls, D: int) -> NearTies:
        """Return no rows, of gradients of D entries."""
        return cls(NO_SHARES.key, np.zeros(0), np.zeros(0), np.zeros((0, D)), np.zeros(0))

    def __add__(self, other: NearTies) -> NearTies:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = NearTies(*(np.concatenate(pair) for pair in pairs))
        some = nearest(both.key, both.distance, both.J.shape[1])
        key, first, place = np.unique(both.key[some], return_index=True, return_inverse=True)
        difference, J = np.zeros(len(key)), np.zeros((len(key), both.J.shape[1]))
        np.add.at(difference, place, both.difference[some])
        np.add.at(J, place, both.J[some])
        first = some[first]
        return NearTies(key, both.distance[first], difference, J, both.share[first])

    def over(self, mass: float) -> Ties | None:
        """Return the ties of one problem whose weights sum to ``mass``."""
        if not len(self.key):
            return None
        return Ties(
            problem=np.zeros(1, dtype=int),
            index=self.key[None],
            held=np.ones((1, len(self.key)), dtype=bool),
            difference=self.difference[None] / mass,
            J=self.J[None] / mass,
            shares=self.share[None],
        )


class Place(NamedTuple):
    """One (theta, b, lam), arrays of one column as those of ``JointPoint``, and shares of rows."""

    theta: Array
    b: Array
    lam: Array
    shares: RowShares


@dataclass(frozen=True, eq=False)
class StreamPoint:
    """A place with F, the mean loss, the model of the next step, and a bound below all F.

    ``slopes`` (3,) are the coefficients of feasible slopes, None where there are none; ``lower``
    comes from those of the point before it.
    """

    place: Place
    value: float
    risk: float
    model: StepModel
    slopes: Array | None
    lower: float


class JointMove(NamedTuple):
    """A move along a curve, the slope of F along it, and the shares of rows near a tie."""

    curve: Curve
    slope: float
    shares: RowShares

    @property
    def longest(self) -> float:
        """The longest share of the move to be tried."""
        return float(self.curve.longest[0])


@dataclass(frozen=True, eq=False)
class JointSums:
    r"""Sums at a place: ``value`` :math:`\sum w\psi`, its ``gradient`` and ``hessian``, ``risk``
    :math:`\sum w\ell`, and the rows ``near`` a tie.

    Of the three parts of slopes: ``sums`` (3,), ``pulls`` (d, 3) and ``products`` (3, 3).
    ``conjugate`` is :math:`\sum w\,\ell^*` of the ``slopes`` at the place ``before``; without these
    it is 0.
    """

    reading: Reading
    loss: Loss
    factor: Array | None
    fit_intercept: bool
    place: Place
    before: Place | None
    slopes: Array | None

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        d = len(self.place.theta)
        sums: Sums = {"value": 0.0, "risk": 0.0, "conjugate": 0.0, "near": NearTies.none(d + 2)}
        sums |= {"gradient": np.zeros(d + 2), "hessian": np.zeros((d + 2, d + 2))}
        sums |= {"sums": np.zeros(3), "pulls": np.zeros((d, 3)), "products": np.zeros((3, 3))}
        for block in self.reading.blocks(chunk, d):
            self._add(sums, block)
        return sums

    def _add(self, sums: Sums, block: RowBlock) -> None:
        objective, x = self._moved(block, self.place)
        gradient, hessian = objective.derivatives(x, np.array([SHARP]))
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
        if self.before is not None and self.slopes is not None:
            mass, parts = _parts(*self._moved(block, self.before))
            conjugate = self.loss.conjugate(parts @ self.slopes, block.y)
            # a branch without mass may have any slope
            sums["conjugate"] += float(np.sum(mass * np.where(mass > 0, conjugate, 0.0)))

    def _moved(self, block: RowBlock, place: Place) -> tuple[JointObjective, JointPoint]:
        """Return the objective over a block and its point, with known shares of its rows."""
        design, shares = Design(block.Z, self.factor), place.shares
        weights = block.w[:, None]
        rows = DualRows(design, block.y, weights, np.zeros(1), self.fit_intercept, Round())
        objective = JointObjective(rows, self.loss)
        z = design.scores(place.theta) + place.b
        x = objective.at(place.theta, place.b, place.lam, z)
        two = np.flatnonzero(x.two[:, 0])
        if not len(shares.key) or not len(two):
            return objective, x
        key = row_keys(block.Z[two], block.y[two])
        where = np.minimum(np.searchsorted(shares.key, key), len(shares.key) - 1)
        known = shares.key[where] == key
        p = x.p.copy()
        p[two[known], 0] = shares.share[where[known]]
        return objective, replace(x, p=p)


def nearest(key: Array, distance: Array, D: int) -> Array:
    """Return the rows nearest to a tie, ``NEAR_TIES`` different ones for each of D unknowns."""
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    chosen = np.zeros(len(first), dtype=bool)
    chosen[np.argsort(distance[first], kind="stable")[: NEAR_TIES * D]] = True
    return np.flatnonzero(chosen[place])


def _near_ties(objective: JointObjective, x: JointPoint, block: RowBlock) -> NearTies:
    """Return the rows of a block with two branches that are nearest to a tie."""
    index = np.flatnonzero(x.two[:, 0])
    key = row_keys(block.Z[index], block.y[index])
    distance = np.abs(x.value[0, index, 0] - x.value[1, index, 0])
    some = nearest(key, distance, len(x.theta) + 2)
    index = index[some]
    places = Padded(index[None], np.ones((1, len(index)), dtype=bool))
    difference, J = objective.branch_differences(x, places)
    return NearTies(key[some], distance[some], difference[0], J[0], x.p[index, 0])


def _parts(objective: JointObjective, x: JointPoint) -> tuple[Array, Array]:
    """Return the masses (k, m) of branches and a, D and D r of each, (k, m, 3)."""
    mass = objective.rows.weights * x.shares
    a, D = x.slope[..., 0], x.curvature[..., 0]
    reached = (x.z - x.b + x.shift)[..., 0]
    return mass[..., 0], np.stack([a, D, D * reached], axis=-1)


@dataclass(frozen=True, eq=False)
class OrderTwo(Coordinates):
    """One problem of a smooth loss at order 2, of delta > 0."""

    def step(self, x: StreamPoint, accuracy: float, last: Any) -> JointMove:
        """Return the minimiser of the model at a point."""
        move, descent, shares = x.model.minimise()
        ties, table = x.model.ties, x.place.shares
        if ties is not None and shares is not None:
            table = RowShares(ties.index[0], shares[0])
        at = SimpleNamespace(**x.place._asdict(), objective=np.array([x.value]))
        curve = Curve(at, move, descent, Round().product)
        return JointMove(curve, float(descent[0]), table)

    def after(self, x: StreamPoint, move: JointMove, length: float) -> Passes:
        """Return the point after a share of a move: one pass."""
        place = Place(*move.curve.at(np.array([length])), move.shares)
        return self.at(place, x)

    def at(self, place: Place, before: StreamPoint | None = None) -> Passes:
        """Return the point at a place, with the bound of the slopes before it: one pass."""
        stream, mass = self.stream, self.stream.total
        slopes = None if before is None else before.slopes
        sums = yield JointSums(
            reading=stream.reading,
            loss=stream.loss,
            factor=self.factor,
            fit_intercept=stream.fit_intercept,
            place=place,
            before=None if before is None else before.place,
            slopes=slopes,
        )
        gradient, hessian = sums["gradient"] / mass, sums["hessian"] / mass
        gradient[-1] += self.delta
        if not stream.fit_intercept:
            gradient[-2] = hessian[-2] = hessian[:, -2] = 0.0
            hessian[-2, -2] = 1.0
        return StreamPoint(
            place=place,
            value=float(place.lam[0]) * self.delta + sums["value"] / mass,
            risk=sums["risk"] / mass,
            model=StepModel(gradient[None], hessian[None], sums["near"].over(mass)),
            slopes=self._slopes(sums),
            lower=0.0 if slopes is None else -sums["conjugate"] / mass,
        )

    def _slopes(self, sums: Sums) -> Array | None:
        """Return coefficients of feasible slopes, moved by a shift of b and a growth of theta.

        In units of (a, D, D r): a + eta D r, less the multiple of D that leaves the mean 0.
        """
        mass = self.stream.total
        first, products = sums["sums"] / mass, sums["products"] / mass
        c = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        if self.stream.fit_intercept:
            c[:, 1] = -(c @ first) / max(float(first[1]), TINY)
        # (g + eta dg)^2 <= delta E[(a + eta h)^2], quadratic in eta
        pulls = sums["pulls"] @ c.T / mass
        excess = pulls.T @ pulls - self.delta * c @ products @ c.T
        eta = float(feasible_growth(excess[0, 0], excess[0, 1], excess[1, 1]))
        if not np.isfinite(eta):
            return None
        slopes: Array = c[0] + eta * c[1]
        return slopes

    def solve(self, start: Solution, target: float, max_iter: int) -> Passes:
        """Minimise F."""
        least = self.zero.threshold(self.steepness, self.stream.loss.lipschitz, order=2)
        if least <= self.delta * (1 + AT_THRESHOLD):
            return constant_solution(self, 1.0, target)
        x = yield from self._first(start)
        x, gap, n_iter = yield from descend(self, x, target, max_iter)
        theta, b, lam, _ = x.place
        coef = self.lift(theta[:, 0])
        model = (coef, float(b[0]), float(lam[0]), x.value, x.risk)
        return certified(*model, gap=gap, target=target, n_iter=n_iter)

    def _first(self, start: Solution) -> Passes:
        """Return where to start: F is below that of beta = 0, from where no descent ends there."""
        flat = self.zero
        if start.coef.any() and start.multiplier > 0:
            theta = self.theta(start.coef)[:, None]
            b, lam = np.array([start.intercept]), np.array([start.multiplier])
            x = yield from self.at(Place(theta, b, lam, NO_SHARES))
            if x.value < flat.risk:
                return x
        root = float(np.sqrt(flat.mean_square / self.delta))
        plain = OrderOne(self.stream, self.factor, 0.0)
        zero = yield from plain.at(np.append(np.zeros_like(flat.pull), flat.b))
        move = along_gradient(zero, min(root * self.delta, BELOW_THRESHOLD * self.steepness))
        share = 1.0
        while True:
            theta = share * move[:-1, None]
            # of short moves F = lam delta + |theta|^2 E[a^2]/(4 lam)
            lam = np.array([float(np.linalg.norm(theta)) * root / 2])
            x = yield from self.at(Place(theta, flat.b + share * move[-1:], lam, NO_SHARES))
            if x.value < flat.risk or share < SHORTEST:
                return x
            share *= SHORTER
