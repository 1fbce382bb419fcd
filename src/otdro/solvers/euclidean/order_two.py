r"""Smooth Lipschitz losses at order 2: Newton in (theta, b, lam) together, many problems at a time.

.. math:: \min_{\theta, b, \lambda > 0}\ F = \lambda\delta + \sum_i \pi_i \max_k \psi_{ik},\qquad
          \psi = \ell(z_i + s, y_i) - \lambda s^2/w_i^2,\quad w_i = \|\theta\|_{*, i} .

A row has one stationary s while 2 lam/w^2 is at least the smoothness of the loss, and may have two
(k = 1, 2) below, where F has a kink: the model of a step keeps both branches of such a row linear
and shares its mass between them (``duality``). The gap comes from the slopes of the moved
rows (``duality.lower_bound``).

``JointObjective`` evaluates rows in memory, ``solvers/streamed/order_two.py`` rows in chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import (
    as_float,
    beside,
    column_sums,
    copied,
    entries,
    namespace,
    numpy,
    pick_columns,
)
from ...duality import (
    LEAST_FIRST,
    STEPS,
    Atoms,
    DualRows,
    Padded,
    RowDerivatives,
    TieModels,
    first_multipliers,
    lower_bound,
    move_derivatives,
    solve_each,
    threshold,
    times,
)
from ...losses import Loss
from ...losses.base import Inner
from .order_one import (
    SHARP,
    Batch,
    Descent,
    Line,
    Minima,
    NewtonSystem,
    PenalisedRisk,
    Place,
    WeightedRows,
    Zero,
    is_every,
    minimise,
    norms,
)

Array = NDArray[Any]

#: The share of the way to w^2/lam = 0 that a step may go.
WAY = 0.9
#: The gap, relative to the constant model's risk, to which a starting point is solved.
ROUGH_TOL = 1e-3
#: A penalty this close to the zero model's threshold still gives a start off zero.
BELOW_THRESHOLD = 0.99


@dataclass(frozen=True, eq=False)
class JointPoint(Batch):
    """Triples (theta, b, lam), one column per problem, the scores z and the branches of each row.

    ``value`` and ``shift`` of the branches have shape (k, n, B), as have ``slope`` and
    ``curvature`` of the loss at the moved scores; ``w`` (1, B) or (n, B). ``two`` (n, B) says
    which rows with a weight have two branches, ``p`` (n, B) is the share of the first one.
    """

    theta: Array
    b: Array
    lam: Array
    z: Array
    w: Array
    value: Array
    shift: Array
    slope: Array
    curvature: Array
    two: Array
    p: Array
    objective: Array

    @classmethod
    def joined(cls, parts: list[JointPoint], index: list[Array]) -> JointPoint:
        """Return the problems of several batches, all with as many branches as one of them."""
        k = max(len(part.value) for part in parts)
        return super().joined([part._with_branches(k) for part in parts], index)

    def _with_branches(self, k: int) -> JointPoint:
        """Return the points with k branches: a new one is a copy of the first, of no value."""
        if len(self.value) == k:
            return self
        xp = namespace(self.value)
        new = {"value": xp.concat([self.value, xp.full_like(self.value[:1], -np.inf)])}
        for name in ("shift", "slope", "curvature"):
            part = getattr(self, name)
            new[name] = xp.concat([part, part[:1]])
        return replace(self, **new)

    @property
    def shares(self) -> Array:
        """The masses (k, n, B) of branches, which sum to 1 per row."""
        xp = namespace(self.value)
        if len(self.value) == 1:
            return xp.ones_like(self.value)
        # without a weight any share will do
        first = xp.where(self.two, self.p, as_float(xp.isfinite(self.value[0])))
        return xp.stack([first, 1 - first])


@dataclass(frozen=True, eq=False)
class Ties:
    """Rows with two branches of the problems ``problem`` (T,): their numbers ``index`` (T, R).

    Only places that are ``held`` count. ``difference`` (T, R) is pi (psi_1 - psi_2), J (T, R, D)
    its gradient and ``shares`` (T, R) are the masses of first branches.
    """

    problem: Array
    index: Array
    held: Array
    difference: Array
    J: Array
    shares: Array


@dataclass(frozen=True, eq=False)
class StepModel:
    """The models of steps of B problems: gradient (B, D), Hessian (B, D, D) and kinks."""

    gradient: Array
    hessian: Array
    ties: Ties | None

    def minimise(self) -> tuple[Array, Array, Array | None]:
        """Return the moves (B, D), the slopes of F along them and the shares of tied rows."""
        gradient, H, ties = self.gradient, self.hessian, self.ties
        move = np.zeros_like(gradient)
        free = np.arange(len(move)) if ties is None else np.delete(range(len(move)), ties.problem)
        if len(free):
            move[free] = -solve_each(H[free], gradient[free][:, :, None])[:, :, 0]
        descent = np.einsum("bi,bi->b", gradient, move)
        if ties is None:
            return move, descent, None
        tied, shares = ties.problem, np.where(ties.held, ties.shares, 0.0)
        # the gradient with all mass on second branches
        base = gradient[tied] - times(np.swapaxes(ties.J, 1, 2), shares)
        model = TieModels(base, H[tied], ties.difference, ties.J)
        move[tied], shares, descent[tied] = model.minimise(shares)
        return move, descent, shares


@dataclass(frozen=True, eq=False)
class Curve(Batch):
    """Moves of (theta, b), and level = w^2/lam with its move ``drift``, by which lam follows.

    Two branches of a row tie at a score that depends on the level, and so does the bend of a single
    one: lam follows from a linear move of the level, so that tied rows, linear in (theta, b), stay
    tied to first order along the whole step, and lam stays positive.
    """

    theta: Array
    b: Array
    level: Array
    drift: Array


class JointSteps:
    """The steps of an objective in (theta, b, lam), for rows in memory and in chunks."""

    loss: Any
    delta: Any
    #: The inner product whose square root is the dual norm.
    product: Any
    #: ``penalised(rho)`` are the objectives of order 1, ``start(near)`` the points at places.
    penalised: Any
    start: Any

    def off(self, zero: Zero) -> Array:
        """Whether theta = 0 is not optimal."""
        size = norms(zero.g)
        return np.asarray(
            self.delta < threshold(size, zero.mean_square, self.loss.lipschitz, order=2)
        )

    def from_zero(self, zero: Zero) -> Any:
        """Return the minimisers of mean l + sqrt(delta) rms(l') w with rms(l') as at theta = 0."""
        root = np.sqrt(self.delta * zero.mean_square)
        risk = self.penalised(np.minimum(root, BELOW_THRESHOLD * norms(zero.g)))
        near = minimise(risk, zero, ROUGH_TOL * zero.risk, STEPS)
        return self.start(Place(near.theta, near.b))

    def along_move(self, x: Any, move: Array, descent: Array, change: Any) -> Line:
        """Return the lines along moves (B, d + 2), no longer than the tangent stays above F = 0."""
        d = len(x.theta)
        dtheta, level = move[:, :d].T, self.product(x.theta, x.theta) / x.lam
        drift = 2 * self.product(x.theta, dtheta) / x.lam - level * move[:, -1] / x.lam
        shorter = np.maximum(-drift / (WAY * level), -descent / x.objective)
        curve = Curve(dtheta, move[:, d], level, drift)
        return Line(self, x, curve, descent, change, 1 / np.maximum(shorter, 1.0))

    def place(self, line: Line, length: Array) -> tuple[Array, Array, Array]:
        """Return theta, b and lam after a share (B,) of the moves."""
        x, move = line.x, line.move
        theta = x.theta + length * move.theta
        lam = self.product(theta, theta) / (move.level + length * move.drift)
        return theta, x.b + length * move.b, lam


@dataclass(frozen=True, eq=False)
class JointObjective(JointSteps):
    """The objective of some problems over the same rows: evaluation, model of a step, bound."""

    rows: DualRows
    loss: Loss

    def columns(self, index: Array) -> JointObjective:
        """Return some of the problems, ``index`` in their order or with repetitions."""
        if is_every(index, len(self.rows.delta)):
            return self
        return replace(self, rows=self.rows.columns(index))

    @property
    def delta(self) -> Array:
        """The radii."""
        return self.rows.delta

    def penalised(self, rho: Array) -> PenalisedRisk:
        """Return the objectives of order 1 with penalties rho."""
        rows, B = self.rows, len(rho)
        data = WeightedRows(rows.design, rows.y, rows.weights, self.loss, rows.fit_intercept)
        return PenalisedRisk(data, rho, NewtonSystem(B), np.arange(B))

    @cached_property
    def _targets(self) -> Array:
        """The targets, one column per problem, (n, B)."""
        y = self.rows.y
        return namespace(y).broadcast_to(y[:, None], self.rows.weights.shape)

    def at(
        self, theta: Array, b: Array, lam: Array, z: Array, near: JointPoint | None = None
    ) -> JointPoint:
        """Evaluate the objective.

        ``near`` is a point whose shifts are guesses of these, and whose shares stay those of rows
        that keep their two branches. All mass of other rows is on the higher branch.
        """
        rows, w, xp = self.rows, self.rows.dual_norm.norms(theta), namespace(z)
        inner = self._inner(z, w, lam, None if near is None else near.shift)
        value, shift = (part.reshape(-1, *z.shape) for part in inner)
        best, two = value[0], xp.zeros_like(z, dtype=bool if xp is np else xp.bool)
        p = as_float(value[0] >= value[-1])
        if len(value) > 1:
            best = xp.max(value, axis=0)
            two = xp.all(xp.isfinite(value), axis=0) & (rows.weights > 0)
            p = p if near is None else xp.where(two & near.two, near.p, p)
        F = lam * rows.delta + column_sums(rows.weights, best)
        _, slope, bend = self.loss.evaluate(z + shift, self._targets)
        return JointPoint(theta, b, lam, z, w, value, shift, slope, bend, two, p, F)

    def _inner(self, z: Array, w: Array, lam: Array, guess: Array | None = None) -> Inner:
        """Return the inner maxima, branches of all rows of all problems (k, nB)."""
        # pass a scalar where one serves all rows: broadcasting n copies is slower
        scale = float(w[0, 0]) if w.shape == (1, 1) else _each_row(w, z)
        price = float(lam[0]) if z.shape[1] == 1 else _each_row(lam, z)
        near = None if guess is None else abs(guess).reshape(len(guess), -1)
        return self.loss.inner(z.ravel(), self._targets.ravel(), scale, price, near)

    def start(self, near: Place) -> JointPoint:
        """Return the points at the places, with lam near its best where none > 0 is given."""
        theta, b = near.theta, near.b
        z = self.rows.design.scores(theta) + beside(b, self.rows.y)
        lam = np.zeros(len(b)) if near.lam is None else near.lam.copy()
        new = np.flatnonzero(~((lam > 0) & np.isfinite(lam)))
        if len(new):
            lam[new] = self.columns(new)._near_best(theta[:, new], pick_columns(z, new))
        return self.at(theta, b, lam, z)

    def _near_best(self, theta: Array, z: Array) -> Array:
        """Return lam near its best: what is spent, E t^2, falls about as its inverse square."""
        rows, w = self.rows, self.rows.dual_norm.norms(theta)
        lam = first_multipliers(z, rows.y, rows.weights, self.loss, w, rows.delta)
        shift = self._inner(z, w, lam).best.shift.reshape(z.shape)
        spent = column_sums(rows.weights, (shift / beside(w, z)) ** 2)
        return np.asarray(lam * np.sqrt(np.maximum(spent / rows.delta, LEAST_FIRST)))

    def derivatives(self, x: JointPoint) -> tuple[Array, Array]:
        """Return gradient and Hessian of F with the masses of the branches fixed."""
        # the bend > 0 vanishes where two branches part: there its floor counts
        lam, w = beside(x.lam, x.z), beside(x.w, x.z)
        bend = namespace(x.z).maximum(2 * lam - w**2 * x.curvature, SHARP * lam)
        each = move_derivatives(x.slope, x.curvature, x.shift / w, w, bend)
        mass = self.rows.weights * x.shares
        parts = (mass * namespace(mass).stack(each)).sum(axis=1)
        return self.rows.derivatives(x.theta, x.w, RowDerivatives(*parts))

    def model(self, x: JointPoint) -> StepModel:
        """Return the models of the next steps."""
        gradient, hessian = self.derivatives(x)
        tied = np.flatnonzero(numpy(x.two.any(axis=0)))
        if not len(tied):
            return StepModel(gradient, hessian, None)
        places = Padded.of(numpy(pick_columns(x.two, tied)).T)
        difference, J = self.columns(tied).branch_differences(x.columns(tied), places)
        shares = entries(x.p, places.index, tied[:, None])
        ties = Ties(tied, places.index, places.held, difference, J, shares)
        return StepModel(gradient, hessian, ties)

    @property
    def product(self) -> Any:
        """The inner product whose root is the dual norm."""
        return self.rows.dual_norm.product

    def line(self, x: JointPoint) -> Line:
        """Return the lines of the next moves, from the points with the shares of their models."""
        model = self.model(x)
        move, descent, shares = model.minimise()
        if model.ties is not None and shares is not None:
            p, ties = copied(x.p), model.ties
            t, r = np.nonzero(ties.held)
            at = (beside(ties.index[t, r], p), beside(ties.problem[t], p))
            p[at] = beside(shares[t, r], p)
            x = replace(x, p=p)
        d = len(x.theta)
        dz = self.rows.design.scores(move[:, :d].T) + beside(move[:, d], x.z)
        return self.along_move(x, move, descent, dz)

    def along(self, line: Line, length: Array) -> JointPoint:
        """Return the points after a share (B,) of moves; ``line.change`` is that of the scores."""
        x = line.x
        z = x.z + beside(length, x.z) * line.change
        return self.at(*self.place(line, length), z, x)

    def minima(self, end: Descent, target: Array) -> Minima:
        """Return the ends of descents."""
        x: JointPoint = end.point
        # the mean slope of each row over its branches
        dual = (x.shares * x.slope).sum(axis=0)
        mean_loss = column_sums(self.rows.weights, self.loss.value(x.z, self._targets))
        ends = (x.theta, x.b, x.lam, x.objective, mean_loss, end.gap, end.n_iter, dual)
        return Minima(*ends)

    def branch_differences(self, x: JointPoint, tied: Padded) -> tuple[Array, Array]:
        """Return pi (psi_1 - psi_2) of the ``tied`` rows of every problem, and its gradients.

        Shapes (B, R) and (B, R, d + 2).
        """
        rows, index, d = self.rows, tied.index, len(x.theta)
        B, R = index.shape
        at = (index, np.arange(B)[:, None])
        w = np.broadcast_to(x.w, x.z.shape)[at]
        slope = entries(x.slope, *at)
        t = entries(x.shift, *at) / w
        by_z = slope[0] - slope[1]
        by_w = slope[0] * t[0] - slope[1] * t[1]
        apart = np.empty((B, R, d + 2))
        Z = numpy(rows.design.rows(index.ravel()).dense()).reshape(B, R, d)
        apart[..., :d] = by_z[..., None] * Z
        apart[..., :d] += by_w[..., None] * rows.dual_norm.directions(x.theta, x.w, index)
        apart[..., d] = by_z * rows.fit_intercept
        apart[..., -1] = t[1] ** 2 - t[0] ** 2
        weights, value = entries(rows.weights, *at), entries(x.value, *at)
        difference = weights * (value[0] - value[1])
        mass = weights * tied.held
        return np.where(tied.held, difference, -1.0), mass[..., None] * apart

    def lower_bound(self, x: JointPoint, line: Line) -> Array:
        """Return a bound below the risk of every model, from the slopes at x."""
        atoms = Atoms(self.rows.weights * x.shares, x.slope, x.curvature)
        return lower_bound(self.rows, self.loss, atoms, x.z - beside(x.b, x.z) + x.shift)


def _each_row(v: Array, z: Array) -> Array:
    """Return one number per problem, or per row and problem, as the rows of z raveled have them."""
    repeated: Array = namespace(z).broadcast_to(beside(v, z), z.shape).ravel()
    return repeated
