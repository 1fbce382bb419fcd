r"""Smooth Lipschitz losses at order 2: Newton in (theta, b, lam) together, many problems at a time.

.. math:: \min_{\theta, b, \lambda > 0}\ F = \lambda\delta + \sum_i \pi_i \max_k \psi_{ik},\qquad
          \psi = \ell(z_i + s, y_i) - \lambda s^2/w_i^2,\quad w_i = \|\theta\|_{*, i} .

A row has one stationary s while 2 lam/w^2 is at least the smoothness of the loss, and may have two
(k = 1, 2) below, where F has a kink: the model of a step keeps both branches of such a row linear
and shares its mass between them (``duality.ties``). The gap comes from the slopes of the moved
rows (``duality.bound``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import (
    Atoms,
    DualRows,
    RowDerivatives,
    best_multipliers,
    lower_bound,
    move_derivatives,
)
from ...duality.ties import TieModel, factored, solve_each
from ...losses import Loss

Array = NDArray[Any]

#: Floors for the curvature of the inner problem, relative to lam: of an exact step, and of a
#: blunter one where that makes no progress, as near the place where two branches part.
SHARP, BLUNT = 1e-12, 0.2
#: Progress below this share of the gap asks for a blunter step.
PROGRESS = 0.1
#: A decrease below this share of the gap is none; after so many steps of that, blunt ones among
#: them, a problem is left as it is.
STALL, PATIENCE = 1e-3, 4
#: A decrease below this share of the objective is rounding.
STILL = 1e-14
#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Halvings of a step.
HALVINGS = 50
#: The share of the way to lam = 0 that a step may go.
WAY = 0.9
#: The precision to which lam alone is minimised at a start, and at the end of fits whose target,
#: relative to the objective, is below ``ROUGH_FIT``.
ROUGH, FINE, ROUGH_FIT = 1e-3, 1e-13, 1e-5


@dataclass(frozen=True, eq=False)
class JointPoint:
    """Triples (theta, b, lam), one column per problem, the scores z and the branches of each row.

    ``value`` and ``shift`` of the branches have shape (k, n, B), as have ``slope`` and
    ``curvature`` of the loss at the moved scores; ``w`` (1, B) or (n, B).
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
    objective: Array

    @property
    def two(self) -> Array:
        """Which rows have two branches, shape (n, B)."""
        if len(self.value) == 1:
            return np.zeros(self.z.shape, dtype=bool)
        return np.asarray(np.isfinite(self.value).all(axis=0))

    def columns(self, index: Array) -> JointPoint:
        """Return some of the problems."""
        return JointPoint(**{name: part[..., index] for name, part in vars(self).items()})

    def replaced(self, index: Array, other: JointPoint) -> JointPoint:
        """Return the points with those of some problems replaced."""
        k = max(len(self.value), len(other.value))
        parts = {}
        for (name, mine), theirs in zip(vars(self).items(), vars(other).values(), strict=True):
            missing = -np.inf if name == "value" else None
            part = _branches(mine, k, missing).copy()
            part[..., index] = _branches(theirs, k, missing)
            parts[name] = part
        return JointPoint(**parts)


def _branches(part: Array, k: int, missing: float | None) -> Array:
    """Return an array of branches (., n, B) with k of them, a copy or ``missing`` for a new one."""
    if part.ndim < 3 or len(part) == k:
        return part
    new = part[:1] if missing is None else np.full_like(part[:1], missing)
    return np.concatenate([part, new])


@dataclass(frozen=True, eq=False)
class JointObjective:
    """The objective of some problems over the same rows: evaluation, model of a step, bound."""

    rows: DualRows
    loss: Loss

    def columns(self, index: Array) -> JointObjective:
        """Return some of the problems."""
        return replace(self, rows=self.rows.columns(index))

    def at(
        self, theta: Array, b: Array, lam: Array, z: Array, guess: Array | None = None
    ) -> JointPoint:
        """Evaluate the objective; ``guess`` (k, n, B) are shifts nearby."""
        rows, w = self.rows, self.rows.dual_norm.norms(theta)
        (n, B), flat = z.shape, (-1, *z.shape)
        # where one number serves all rows of the only problem, the loss need not be told n times
        scale = float(w[0, 0]) if w.shape == (1, 1) else np.broadcast_to(w, (n, B)).ravel()
        price = float(lam[0]) if B == 1 else np.broadcast_to(lam, (n, B)).ravel()
        y = np.broadcast_to(rows.y[:, None], (n, B)).ravel()
        near = None if guess is None else np.abs(guess).reshape(len(guess), -1)
        inner = self.loss.inner(z.ravel(), y, scale, price, near)
        value, shift = inner.value.reshape(flat), inner.shift.reshape(flat)
        best = value[0] if len(value) == 1 else value.max(axis=0)
        F = lam * rows.delta + np.einsum("nb,nb->b", rows.weights, best)
        moved = z + shift
        _, slope, bend = self.loss.evaluate(moved, np.broadcast_to(rows.y[:, None], moved.shape))
        return JointPoint(theta, b, lam, z, w, value, shift, slope, bend, F)

    def start(self, theta: Array, b: Array, lam: Array | None = None) -> JointPoint:
        """Return the points at (theta, b), with lam near its best unless it is given."""
        z = self.rows.design.scores(theta) + b
        if lam is None:
            lam = self._multipliers(theta, z, np.zeros(len(b)), ROUGH)
        return self.at(theta, b, lam, z)

    def _multipliers(self, theta: Array, z: Array, first: Array, rtol: float) -> Array:
        rows, w = self.rows, self.rows.dual_norm.norms(theta)
        sample = (z, rows.y, rows.weights, self.loss)
        return np.asarray(best_multipliers(*sample, w, rows.delta, first, rtol).lam)

    def settled(self, x: JointPoint) -> JointPoint:
        """Return the points with lam alone minimised to rounding, where that is lower."""
        new = self.at(x.theta, x.b, self._multipliers(x.theta, x.z, x.lam, FINE), x.z)
        return new if (new.objective <= x.objective).all() else x

    def shares(self, x: JointPoint, p: Array) -> Array:
        """Return the masses (k, n, B), summing to 1 per row, p that of a first branch of two."""
        if len(x.value) == 1:
            return np.ones_like(x.value)
        exists = np.isfinite(x.value)
        first = np.where(exists.all(axis=0), p, exists[0].astype(float))
        return np.stack([first, 1 - first])

    def derivatives(self, x: JointPoint, p: Array, floor: Array) -> tuple[Array, Array]:
        """Return gradient and Hessian of F with the masses of the branches fixed."""
        # the bend > 0 vanishes where two branches part: there its floor counts
        bend = np.maximum(2 * x.lam - x.w**2 * x.curvature, floor * x.lam)
        each = move_derivatives(x.slope, x.curvature, x.shift / x.w, x.w, x.lam, bend)
        mass = self.rows.weights * self.shares(x, p)
        if len(mass) == 1:
            parts = {name: mass[0] * part[0] for name, part in vars(each).items()}
        else:
            parts = {name: (mass * part).sum(axis=0) for name, part in vars(each).items()}
        return self.rows.derivatives(x.theta, x.w, RowDerivatives(**parts))

    def lower_bound(self, x: JointPoint, p: Array) -> Array:
        """Return a bound below the risk of every model, from the slopes at x."""
        atoms = Atoms(self.rows.weights * self.shares(x, p), x.slope, x.curvature)
        return lower_bound(self.rows, self.loss, atoms, x.z - x.b + x.shift)

    def dual(self, x: JointPoint, p: Array) -> Array:
        """Return the mean slope of each row over its branches, shape (n, B)."""
        return np.asarray((self.shares(x, p) * x.slope).sum(axis=0))

    def branch_differences(self, x: JointPoint, j: int, two: Array) -> tuple[Array, Array]:
        """Return pi (psi_1 - psi_2) of rows ``two`` of problem j, and its gradients."""
        rows, d = self.rows, len(x.theta)
        pi = rows.weights[two, j]
        w = np.broadcast_to(x.w[:, j], len(rows.y))[two]
        slope = x.slope[:, two, j]
        t = x.shift[:, two, j] / w
        apart = np.zeros((len(two), d + 2))
        by_w = slope * t
        u = rows.dual_norm.directions(x.theta, x.w, j, two)
        apart[:, :d] = (slope[0] - slope[1])[:, None] * rows.design.rows(two).dense()
        apart[:, :d] += (by_w[0] - by_w[1])[:, None] * u
        apart[:, d] = (slope[0] - slope[1]) * rows.fit_intercept
        apart[:, -1] = t[1] ** 2 - t[0] ** 2
        return pi * (x.value[0, two, j] - x.value[1, two, j]), pi[:, None] * apart


@dataclass(eq=False)
class JointSteps:
    """Moves (B, d + 2) of all problems, the shares p (n, B) of their models, the slope of F."""

    move: Array
    p: Array
    descent: Array
    models: dict[int, TieModel]


def newton_steps(objective: JointObjective, x: JointPoint, p: Array, floor: Array) -> JointSteps:
    """Return the minimisers of the models around x, quadratic, with both branches linear."""
    grad, H = objective.derivatives(x, p, floor)
    two = x.two
    tied = np.flatnonzero(two.any(axis=0))
    move = np.zeros_like(grad)
    free = np.setdiff1d(np.arange(len(grad)), tied)
    if len(free):
        move[free] = -solve_each(H[free], grad[free])
    descent = np.einsum("bi,bi->b", grad, move)
    p, models = p.copy(), {}
    for j in tied:
        rows = np.flatnonzero(two[:, j])
        difference, J = objective.branch_differences(x, int(j), rows)
        # the gradient at p = 0
        base = grad[j] - J.T @ p[rows, j]
        models[int(j)] = TieModel(base, H[j], factored(H[j]), difference, J)
        move[j], p[rows, j], descent[j] = models[int(j)].minimise(p[rows, j])
    return JointSteps(move, p, descent, models)


class JointLine:
    """The points along moves, lam kept positive.

    Where rows have two branches they tie at scores that depend on w^2/lam =: level. There lam
    follows from a linear move of the level, so that tied rows, linear in (theta, b), stay tied
    to first order along the whole step.
    """

    def __init__(self, objective: JointObjective, x: JointPoint, move: Array) -> None:
        d, product = len(x.theta), objective.rows.dual_norm.product
        self.objective, self.x = objective, x
        self.dtheta, self.db = move[:, :d].T, move[:, d]
        self.dz = objective.rows.design.scores(self.dtheta) + self.db
        self.tied = x.two.any(axis=0)
        square = product(x.theta, x.theta)
        level = square / x.lam
        drift = level * (2 * product(x.theta, self.dtheta) / square - move[:, -1] / x.lam)
        self.base = np.where(self.tied, level, x.lam)
        self.change = np.where(self.tied, drift, move[:, -1])
        falls = self.change < 0
        steepest = np.where(falls, self.change, -1.0)
        self.longest = np.where(falls, np.minimum(1.0, -WAY * self.base / steepest), 1.0)

    def at(self, length: Array) -> JointPoint:
        """Return the points after a share (B,) of the moves."""
        x, product = self.x, self.objective.rows.dual_norm.product
        theta = x.theta + length * self.dtheta
        mixed = self.base + length * self.change
        lam = (
            np.where(self.tied, product(theta, theta) / mixed, mixed) if self.tied.any() else mixed
        )
        b = x.b + length * self.db
        return self.objective.at(theta, b, lam, x.z + length * self.dz, x.shift)


def _low_enough(new: JointPoint, x: JointPoint, descent: Array) -> Array:
    return new.objective <= x.objective + ARMIJO * descent + STILL / 10 * np.abs(x.objective)


def advance(
    objective: JointObjective, x: JointPoint, p: Array, floor: Array
) -> tuple[JointPoint, Array]:
    """Return the next points and the shares of their models.

    The longest of the steps 1, 1/2, ... that descends is taken; where ties turn the whole step
    down, one that knows their curvature is tried before shorter ones.
    """
    steps = newton_steps(objective, x, p, floor)
    line = JointLine(objective, x, steps.move)
    new = line.at(line.longest)
    bad = np.flatnonzero(~_low_enough(new, x, line.longest * steps.descent))
    if len(bad):
        for j in bad[line.longest[bad] == 1]:
            if int(j) in steps.models:
                _try_curved(objective, x, steps, new, int(j))
        part = JointLine(objective.columns(bad), x.columns(bad), steps.move[bad])
        new = new.replaced(bad, _shortened(part, steps.descent[bad]))
    return new, steps.p


def _shortened(line: JointLine, descent: Array) -> JointPoint:
    """Return the points after the longest of the steps 1, 1/2, ... that descend, or no step."""
    length, x = line.longest, line.x
    new = line.at(length)
    for _ in range(HALVINGS):
        good = _low_enough(new, x, length * descent)
        if good.all():
            return new
        length = np.where(good, length, length / 2)
        new = line.at(length)
    # no decrease is left along the moves of these problems
    return line.at(np.where(_low_enough(new, x, length * descent), length, 0.0))


def _try_curved(
    objective: JointObjective, x: JointPoint, steps: JointSteps, there: JointPoint, j: int
) -> None:
    """Replace the move of problem j by one with the differences' curvature as seen ``there``.

    Tied rows leave their tie by the curvature, which the first move does not know.
    """
    rows = np.flatnonzero(x.two[:, j])
    model, weights = steps.models[j], objective.rows.weights
    kept = there.two[rows, j]
    difference = model.difference.copy()
    still = rows[kept]
    if len(there.value) == 2:
        apart = weights[still, j] * (there.value[0, still, j] - there.value[1, still, j])
        difference[kept] = apart - model.J[kept] @ steps.move[j]
    move, p, descent = model.minimise(steps.p[rows, j], difference)
    one = np.array([j])
    line = JointLine(objective.columns(one), x.columns(one), move[None])
    near = line.at(line.longest)
    if _low_enough(near, x.columns(one), line.longest * descent).all():
        steps.move[j], steps.p[rows, j], steps.descent[j] = move, p, descent


@dataclass(eq=False)
class JointMinimum:
    """The last points of a descent and their certificates, one column per problem."""

    theta: Array
    b: Array
    lam: Array
    objective: Array
    gap: Array
    n_iter: Array
    dual: Array

    @classmethod
    def empty(cls, d: int, n: int, B: int) -> JointMinimum:
        """Return arrays for B problems."""
        scalars = (np.zeros(B) for _ in range(4))
        b, lam, objective, gap = scalars
        return cls(np.zeros((d, B)), b, lam, objective, gap, np.ones(B, int), np.zeros((n, B)))


def descend(objective: JointObjective, x: JointPoint, target: Array, max_iter: int) -> JointMinimum:
    """Minimise from x until each problem's gap is at most its ``target`` (B,)."""
    (n, B), d = x.z.shape, len(x.theta)
    found, active = JointMinimum.empty(d, n, B), np.arange(B)
    p, floor, lower = _hard_shares(x), np.full(B, SHARP), np.zeros(B)
    stalls = np.zeros(B, dtype=int)
    for n_iter in range(1, max_iter + 1):
        new, p = advance(objective, x, p, floor)
        lower = np.maximum(lower, objective.lower_bound(new, p))
        gap = np.maximum(new.objective - lower, 0.0)
        fall = x.objective - new.objective
        stalls = np.where(fall <= STALL * gap, stalls + 1, 0)
        stuck = stalls >= PATIENCE
        # where progress is small beside the gap the model is too stiff
        floor = np.where((fall < PROGRESS * gap) & (floor == SHARP), BLUNT, SHARP)
        x, p = new, _kept_shares(new, x, p)
        over = (gap <= target[active]) | stuck | (n_iter == max_iter)
        if over.any():
            done = np.flatnonzero(over)
            fine = bool((target[active[done]] < ROUGH_FIT * x.objective[done]).any())
            _store(found, active[done], objective.columns(done), x.columns(done), p[:, done], fine)
            found.gap[active[done]] = gap[done] - (
                x.objective[done] - found.objective[active[done]]
            )
            found.n_iter[active[done]] = n_iter
            keep = np.flatnonzero(~over)
            if not len(keep):
                break
            objective, x, active = objective.columns(keep), x.columns(keep), active[keep]
            p, floor, lower, stalls = p[:, keep], floor[keep], lower[keep], stalls[keep]
    found.gap = np.maximum(found.gap, 0.0)
    return found


def _store(
    found: JointMinimum,
    at: Array,
    objective: JointObjective,
    x: JointPoint,
    p: Array,
    fine: bool,
) -> None:
    """Write finished problems into their columns, lam settled where they are to be precise."""
    before, x = x, objective.settled(x) if fine else x
    found.theta[:, at], found.b[at], found.lam[at] = x.theta, x.b, x.lam
    found.objective[at] = x.objective
    found.dual[:, at] = objective.dual(x, _kept_shares(x, before, p))


def _hard_shares(x: JointPoint) -> Array:
    """Return all mass of a row on its higher branch."""
    return (x.value[0] >= x.value[-1]).astype(float)


def _kept_shares(x: JointPoint, old: JointPoint, p: Array) -> Array:
    """Return first branches' masses: the model's where a row kept its two, else all or none."""
    return np.where(x.two & old.two, p, _hard_shares(x))
