"""Steps and descent of the joint Newton method, for many problems at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality.ties import TieModel, factored, solve_each
from .joint import JointObjective, JointPoint

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
STILL = 1e-15
#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Halvings of a step.
HALVINGS = 50
#: The share of the way to lam = 0 that a step may go.
WAY = 0.9
#: Fits whose target, relative to the objective, is below this get lam alone minimised at the end.
ROUGH_FIT = 1e-5


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
    return new.objective <= x.objective + ARMIJO * descent + STILL * np.abs(x.objective)


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
