"""Steps and descent of the joint Newton method, for many problems at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import (
    as_float,
    beside,
    copied,
    entries,
    namespace,
    numpy,
    pick_columns,
    set_columns,
)
from ...duality.ties import Padded, TieModels, shares_of, solve_each, times
from .joint import JointObjective, JointPoint

Array = NDArray[Any]

#: Floors for the curvature of the inner problem, relative to lam: of an exact step, and of a
#: blunter one where that makes no progress, as near the place where two branches part.
SHARP, BLUNT = 1e-12, 0.2
#: Progress below this share of what is left asks for a blunter step.
PROGRESS = 0.1
#: A decrease below this share of what is left is none; after so many steps of that, blunt ones
#: among them, a problem is left as it is.
STALL, PATIENCE = 1e-4, 4
#: A decrease below this share of the objective is rounding.
STILL = 1e-15
#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Halvings of a step, and how many lengths are tried at first while scores are few, then twice as
#: many each time.
HALVINGS, AT_ONCE, FEW = 50, 4, 10_000
#: After steps that promise more than this times the root of target times F no bound is sought.
HOPE = 10.0
#: The share of the way to w^2/lam = 0 that a step may go.
WAY = 0.9
#: Fits whose target, relative to the objective, is below this get lam alone minimised at the end.
ROUGH_FIT = 1e-5


@dataclass(frozen=True, eq=False)
class JointSteps:
    """Moves (B, d + 2) of all problems, the shares p (n, B) of their models, the slope of F."""

    move: Array
    p: Array
    descent: Array


def newton_steps(objective: JointObjective, x: JointPoint, p: Array, floor: Array) -> JointSteps:
    """Return the minimisers of the models around x, quadratic, with both branches linear."""
    grad, H = objective.derivatives(x, p, floor)
    any_tied = numpy(x.two.any(axis=0))
    tied, free = np.flatnonzero(any_tied), np.flatnonzero(~any_tied)
    move = np.zeros_like(grad)
    if len(free):
        move[free] = -solve_each(H[free], grad[free][:, :, None])[:, :, 0]
    descent = np.einsum("bi,bi->b", grad, move)
    if not len(tied):
        return JointSteps(move, p, descent)
    places = Padded.of(numpy(pick_columns(x.two, tied)).T)
    difference, J = objective.columns(tied).branch_differences(x.columns(tied), places)
    shares = np.where(places.held, entries(p, places.index, tied[:, None]), 0.0)
    # the gradient at p = 0
    base = grad[tied] - times(np.swapaxes(J, 1, 2), shares)
    model = TieModels(base, H[tied], difference, J)
    move[tied], shares, descent[tied] = model.minimise(shares)
    p = copied(p)
    t, r = np.nonzero(places.held)
    p[beside(places.index[t, r], p), beside(tied[t], p)] = beside(shares[t, r], p)
    return JointSteps(move, p, descent)


class JointLine:
    """The points along moves, lam kept positive.

    Two branches of a row tie at a score that depends on w^2/lam =: level, and so does the bend of
    a single one: lam follows from a linear move of the level, so that tied rows, linear in
    (theta, b), stay tied to first order along the whole step.
    """

    def __init__(
        self, objective: JointObjective, x: JointPoint, move: Array, descent: Array
    ) -> None:
        d, product = len(x.theta), objective.rows.dual_norm.product
        self.objective, self.x, self.descent = objective, x, descent
        self.dtheta, self.db = move[:, :d].T, move[:, d]
        self.dz = objective.rows.design.scores(self.dtheta) + beside(self.db, x.z)
        square = product(x.theta, x.theta)
        self.level = square / x.lam
        self.drift = 2 * product(x.theta, self.dtheta) / x.lam - self.level * move[:, -1] / x.lam
        # no longer than the tangent stays above F = 0
        shorter = np.maximum(-self.drift / (WAY * self.level), -descent / x.objective)
        self.longest = 1 / np.maximum(shorter, 1.0)

    def at(self, length: Array) -> JointPoint:
        """Return the points after a share (B,) of the moves."""
        x = self.x
        theta = x.theta + length * self.dtheta
        square = self.objective.rows.dual_norm.product(theta, theta)
        lam = square / (self.level + length * self.drift)
        b = x.b + length * self.db
        z = x.z + beside(length, x.z) * self.dz
        return self.objective.at(theta, b, lam, z, x.shift)

    def low_enough(self, new: JointPoint, length: Array) -> Array:
        """Whether the points after a share of the moves are lower by a part of what it promises."""
        F = self.x.objective
        low: Array = new.objective <= F + ARMIJO * length * self.descent + STILL * np.abs(F)
        return low


def advance(objective: JointObjective, x: JointPoint, steps: JointSteps) -> JointPoint:
    """Return the next points, by the longest of the steps 1, 1/2, ... that descends, or x."""
    line = JointLine(objective, x, steps.move, steps.descent)
    new = line.at(line.longest)
    left = np.flatnonzero(~line.low_enough(new, line.longest))
    return _shortened(objective, x, steps, new, left) if len(left) else new


def _shortened(
    objective: JointObjective, x: JointPoint, steps: JointSteps, new: JointPoint, left: Array
) -> JointPoint:
    """Return ``new`` with the problems ``left`` at a place that descends, or at x.

    The steps 1/2, 1/4, ... are tried, several in one go, of which the lowest is taken.
    """
    tried, at_once = 0, AT_ONCE
    while len(left) and tried < HALVINGS:
        B = len(left)
        at_once = max(1, min(at_once, FEW // (len(x.z) * B), HALVINGS - tried))
        again = np.tile(left, at_once)
        part = (objective.columns(again), x.columns(again))
        line = JointLine(*part, steps.move[again], steps.descent[again])
        length = line.longest * 0.5 ** np.repeat(np.arange(tried, tried + at_once) + 1.0, B)
        near = line.at(length)
        low = line.low_enough(near, length)
        lowest = np.where(low, near.objective, np.inf).reshape(at_once, B).argmin(axis=0)
        pick = lowest * B + np.arange(B)
        good = low[pick]
        new = new.replaced(left[good], near.columns(pick[good]))
        # what is left is seldom much, and goes far
        left = left[~good]
        tried, at_once = tried + at_once, 2 * at_once
    return new.replaced(left, x.columns(left)) if len(left) else new


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


def descend(
    objective: JointObjective,
    x: JointPoint,
    target: Array,
    max_iter: int,
    dual: Array | None = None,
) -> JointMinimum:
    """Minimise from x until each problem's gap is at most its ``target`` (B,).

    ``dual`` (n, B) are mean slopes of rows that problems nearby ended with, nan where unknown.
    """
    everything, best, B = objective, x, len(x.b)
    p, floor, lower = _first_shares(x, dual), np.full(B, SHARP), np.zeros(B)
    shares, gaps, steps = p, np.zeros(B), np.ones(B, dtype=int)
    active, stalls = np.arange(B), np.zeros(B, dtype=int)
    for n_iter in range(1, max_iter + 1):
        ahead = newton_steps(objective, x, p, floor)
        new, p = advance(objective, x, ahead), ahead.p
        fall = x.objective - new.objective
        # far off a bound proves nothing yet: Newton's method squares the gap, relative to F
        promised = -ahead.descent
        hopeless = promised > HOPE * (target[active] * x.objective) ** 0.5
        if n_iter == max_iter or not (hopeless & (fall > STALL * promised)).all():
            lower = np.maximum(lower, objective.lower_bound(new, p))
        gap = np.maximum(new.objective - lower, 0.0)
        # without a bound the gap says nothing: then what the model promised
        left = np.where(lower > 0, gap, promised)
        stalls = np.where(fall <= STALL * left + STILL * new.objective, stalls + 1, 0)
        stuck = stalls >= PATIENCE
        # where progress is small beside what is left the model is too stiff
        floor = np.where((fall < PROGRESS * left) & (floor == SHARP), BLUNT, SHARP)
        x, p = new, _kept_shares(new, x, p)
        over = (gap <= target[active]) | stuck | (n_iter == max_iter)
        if over.any():
            done, keep = np.flatnonzero(over), np.flatnonzero(~over)
            at = active[done]
            best = x if len(at) == B else best.replaced(at, x.columns(done))
            shares = p if len(at) == B else _with_columns(shares, at, pick_columns(p, done))
            gaps[at], steps[at] = gap[done], n_iter
            if not len(keep):
                break
            objective, x, active = objective.columns(keep), x.columns(keep), active[keep]
            p = pick_columns(p, keep)
            floor, lower, stalls = floor[keep], lower[keep], stalls[keep]
    return _minimum(everything, best, shares, gaps, steps, target)


def _minimum(
    objective: JointObjective, x: JointPoint, p: Array, gap: Array, n_iter: Array, target: Array
) -> JointMinimum:
    """Return the points where descents ended, lam settled where they are to be precise."""
    end, fine = x, np.flatnonzero(target < ROUGH_FIT * x.objective)
    if len(fine):
        end = x.replaced(fine, objective.columns(fine).settled(x.columns(fine)))
    gap = np.maximum(gap - (x.objective - end.objective), 0.0)
    dual = objective.dual(end, _kept_shares(end, x, p))
    return JointMinimum(end.theta, end.b, end.lam, end.objective, gap, n_iter, dual)


def _with_columns(v: Array, index: Array, new: Array) -> Array:
    """Return v with some columns replaced."""
    found: Array = copied(v)
    set_columns(found, index, new)
    return found


def _hard_shares(x: JointPoint) -> Array:
    """Return all mass of a row on its higher branch."""
    return as_float(x.value[0] >= x.value[-1])


def _first_shares(x: JointPoint, dual: Array | None) -> Array:
    """Return the masses of first branches that have the mean slopes ``dual``, else all or none."""
    hard, xp = _hard_shares(x), namespace(x.z)
    if dual is None or len(x.value) == 1:
        return hard
    known = shares_of(dual, x.slope)
    found: Array = xp.where(x.two & xp.isfinite(known), known, hard)
    return found


def _kept_shares(x: JointPoint, old: JointPoint, p: Array) -> Array:
    """Return first branches' masses: the model's where a row kept its two, else all or none."""
    return namespace(p).where(x.two & old.two, p, _hard_shares(x))
