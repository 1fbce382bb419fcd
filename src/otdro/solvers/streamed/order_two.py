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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Job, Sums
from ...design import Design
from ...duality import BEYOND, DualRows, Padded, Round, feasible_growth
from ...losses import Loss
from ..euclidean.order_one import TINY, Batch, Descent, Line, Minima, Place, Zero, norms
from ..euclidean.order_two import JointObjective, JointPoint, JointSteps, StepModel, Ties
from .newton import Streamed, StreamedRisk
from .stream import Reading, RowBlock

Array = NDArray[Any]

#: Rows with two branches that are in the model of a step, per unknown: those nearest to a tie. At
#: the minimum no more rows than unknowns tie, but for chance.
NEAR_TIES = 4


@dataclass(frozen=True, eq=False)
class RowShares:
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


class SharedPlace(NamedTuple):
    """One (theta, b, lam), arrays of one column as those of ``JointPoint``, and shares of rows."""

    theta: Array
    b: Array
    lam: Array
    shares: RowShares


@dataclass(frozen=True, eq=False)
class StreamedJointPoints(Batch):
    """Points of P models: for each the ``model`` of its next step and the ``shares`` of its rows.

    ``slopes`` (3, P) are the coefficients of feasible slopes, nan where there are none; ``lower``
    is the bound of those of the point before.
    """

    theta: Array
    b: Array
    lam: Array
    objective: Array
    mean_loss: Array
    slopes: Array
    lower: Array
    model: Array
    shares: Array

    def place(self, p: int) -> SharedPlace:
        """Return the place of one model."""
        at = slice(p, p + 1)
        return SharedPlace(self.theta[:, at], self.b[at], self.lam[at], self.shares[p])


@dataclass(frozen=True, eq=False)
class JointSums:
    r"""Sums at a place: ``value`` :math:`\sum w\psi`, its ``gradient`` and ``hessian``, ``risk``
    :math:`\sum w\ell`, and the rows ``near`` a tie.

    Of the three parts of slopes: ``sums`` (3,), ``pulls`` (d, 3) and ``products`` (3, 3).
    ``conjugate`` is :math:`\sum w\,\ell^*` of the ``slopes`` at the place ``before``; it is 0 where
    they are nan.
    """

    reading: Reading
    loss: Loss
    factor: Array | None
    fit_intercept: bool
    place: SharedPlace
    before: SharedPlace | None
    slopes: Array

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
        gradient, hessian = objective.derivatives(x)
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
        if self.before is not None and not np.isnan(self.slopes).any():
            mass, parts = _parts(*self._moved(block, self.before))
            conjugate = self.loss.conjugate(parts @ self.slopes, block.y)
            # a branch without mass may have any slope
            sums["conjugate"] += float(np.sum(mass * np.where(mass > 0, conjugate, 0.0)))

    def _moved(self, block: RowBlock, place: SharedPlace) -> tuple[JointObjective, JointPoint]:
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
class StreamedJoint(JointSteps, Streamed):
    """The objectives of order 2, each at its ``delta`` > 0; ``zero`` are those at theta = 0."""

    delta: Array
    zero: Zero

    @property
    def product(self) -> Any:
        """The inner product whose root is the dual norm."""
        return Round().product

    def penalised(self, rho: Array) -> StreamedRisk:
        """Return the objectives of order 1 with penalties rho."""
        return StreamedRisk(self.models, self.factor, rho)

    def start(self, near: Place) -> Any:
        """Return the points at the places, with lam as at theta = 0 where none > 0 is given."""
        # of short moves F = lam delta + |theta|^2 E[a^2]/(4 lam)
        short = norms(near.theta) * np.sqrt(self.zero.mean_square / self.delta) / 2
        lam = short if near.lam is None else np.where(near.lam > 0, near.lam, short)
        unknown = np.array([NO_SHARES] * len(near.b), dtype=object)
        return self.passed((near.theta, near.b, lam), unknown)

    def line(self, x: StreamedJointPoints) -> Line:
        """Return the lines of the minimisers of the models of a step."""
        moves, descents, shares = [], [], []
        for model, known in zip(x.model, x.shares, strict=True):
            move, descent, new = model.minimise()
            moves.append(move[0])
            descents.append(descent[0])
            shares.append(known if new is None else RowShares(model.ties.index[0], new[0]))
        change = np.array(shares, dtype=object)
        return self.along_move(x, np.array(moves), np.array(descents), change)

    def along(self, line: Line, length: Array) -> Any:
        """Return the points after a share (P,) of moves: one pass."""
        return self.passed(self.place(line, length), line.change, line.x)

    def passed(
        self,
        at: tuple[Array, Array, Array],
        shares: Array,
        before: StreamedJointPoints | None = None,
    ) -> Any:
        """Return the points (theta, b, lam), with the bounds of those before: one pass."""
        theta, b, lam = at
        none = np.full(len(b), np.nan)
        empty = np.full(len(b), None, dtype=object)
        parts = (theta, b, lam, none, none, np.full((3, len(b)), np.nan), none, empty, shares)
        new = StreamedJointPoints(*parts)
        jobs: list[Job] = [
            JointSums(
                reading=model.reading,
                loss=model.loss,
                factor=self.factor,
                fit_intercept=model.fit_intercept,
                place=new.place(p),
                before=None if before is None else before.place(p),
                slopes=np.full(3, np.nan) if before is None else before.slopes[:, p],
            )
            for p, model in enumerate(self.models)
        ]
        found = self.sums(jobs)
        points = replace(
            new,
            objective=lam * self.delta + np.array([sums["value"] for sums in found]),
            mean_loss=np.array([sums["risk"] for sums in found]),
            slopes=np.stack([self._slopes(p, sums) for p, sums in enumerate(found)], axis=-1),
            lower=-np.array([sums["conjugate"] for sums in found]),
            model=np.array([self._model(p, sums) for p, sums in enumerate(found)], dtype=object),
        )
        return self.logged(points)

    def _model(self, p: int, sums: Sums) -> StepModel:
        """Return the model of a step of one problem."""
        gradient, hessian = sums["gradient"], sums["hessian"]
        gradient[-1] += self.delta[p]
        if not self.models[p].fit_intercept:
            gradient[-2] = hessian[-2] = hessian[:, -2] = 0.0
            hessian[-2, -2] = 1.0
        ties = sums["near"].over(self.models[p].total)
        return StepModel(gradient[None], hessian[None], ties)

    def _slopes(self, p: int, sums: Sums) -> Array:
        """Return coefficients of feasible slopes, moved by a shift of b and a growth of theta.

        In units of (a, D, D r): a + eta D r, less the multiple of D that leaves the mean 0.
        """
        first, delta = sums["sums"], float(self.delta[p])
        c = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        if self.models[p].fit_intercept:
            c[:, 1] = -(c @ first) / max(float(first[1]), TINY)
        # (g + eta dg)^2 <= delta E[(a + eta h)^2], quadratic in eta
        pulls, budget = sums["pulls"] @ c.T, delta * c @ sums["products"] @ c.T
        excess = pulls.T @ pulls - budget
        eta = float(feasible_growth(excess[0, 0], excess[0, 1], excess[1, 1]))
        move = np.array([1.0, eta])
        # squares of columns of different scales lose digits: measured anew
        if np.isfinite(eta) and np.sum((pulls @ move) ** 2) <= move @ budget @ move * (1 + BEYOND):
            return c[0] + eta * c[1]
        return np.full(3, np.nan)

    def minima(self, end: Descent, target: Array) -> Minima:
        """Return the ends of descents."""
        x: StreamedJointPoints = end.point
        parts = (x.theta, x.b, x.lam, x.objective, x.mean_loss, end.gap, end.n_iter, None)
        return Minima(*parts)
