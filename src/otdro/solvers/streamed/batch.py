r"""Many problems of smooth losses at order 1 at a time: folds, deltas and costs share the passes.

Steps are Newton's with matrices of the rows in memory, which the first pass corrects by those of
all rows at a few models: what is left of their error contracts the distance to the minimiser in
every pass. Passes look at the models over all rows, whose
sums by fold are those of every fold's training rows too: of many rows the model of a fold is one
step away from there, which no pass needs to look at but the last, at the rows of that fold.
Certificates are of the problems over all rows: slopes of one sign are scaled down until their mean
is zero, then all until :math:`\|Z'(\pi a)\| \le \rho`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...problem import Solution
from ...progress import logger
from ..euclidean.order_one import ARMIJO, ROUNDING
from .columns import Columns, ColumnSteps
from .curvature import Correction, KeptCurvature, correction, nearest, of_kept
from .descent import longest
from .newton import (
    NewtonMove,
    NewtonPoint,
    along_gradient,
    newton_step,
)
from .sums import DualSums, HeldSums, Models, RiskSums

Array = NDArray[Any]

#: Passes over the rows that folds take at most.
PASSES = 6
#: The decrease, relative to the constant model's risk, below which a certificate is worth a pass:
#: its gap is of the order of the root.
CERTIFIED = 1e-8
#: Where along a path matrices of all rows are taken.
BENT_AT = (0.25, 0.75)


@dataclass(frozen=True, eq=False)
class Minima:
    """B solutions over all rows, F models of folds for each, and what these lose, ``held``
    (F, B), on the rows they leave out.

    ``unsolved`` counts the models that did not reach the decrease asked for.
    """

    solved: list[Solution]
    in_folds: list[Models]
    held: Array
    unsolved: int


def minimise(
    full: Columns,
    in_folds: list[list[Array | None]],
    start: Models,
    tol: float,
) -> Minima:
    """Minimise problems over all rows, and without each fold, until a step promises little.

    That is ``tol`` relative to the risk of the constant model. ``in_folds`` are the factors of
    every problem outside each fold, ``start`` models near all of them.
    """
    everywhere = _descended(full, start, tol, min(tol, CERTIFIED))
    folds = full.in_folds(in_folds)
    state, unsolved = _inside(folds, full, everywhere, tol)
    models = folds.lift(state)
    by_fold = [models.columns(np.flatnonzero(folds.left_out == f)) for f in range(len(in_folds))]
    stream = full.stream
    held = HeldSums(stream.blocks, stream.loss, by_fold, full.positive)
    # bounds of the models over all rows and losses on the folds left out: one pass
    bound, losses = stream.chunks.total(_dual_job(full, everywhere), held)
    return Minima(
        _solutions(full, everywhere, bound["conjugate"] / stream.total, tol),
        by_fold,
        stream.mean_of_folds(losses["value"]),
        int(np.sum(everywhere.unsolved) + np.sum(unsolved)),
    )


@dataclass(frozen=True, eq=False)
class Descended:
    """Models (d + 1, B), the sums by fold at them, and which missed the decrease asked for.

    ``corrections`` are those of the matrices of rows in memory that it found, in ``passes``.
    """

    state: Array
    sums: dict[str, Array]
    unsolved: Array
    corrections: list[Correction]
    passes: int


def _descended(
    columns: Columns,
    start: Models,
    tol: float,
    goal: float,
    corrections: list[Correction] | None = None,
) -> Descended:
    """Return the models after steps of which the next promises less than ``goal``, in passes.

    Those are unsolved for which it promises more than ``tol``. Corrections of the matrices of rows
    in memory that are not known come from the first pass.
    """
    state, found, fixed = _started(columns, start)
    step = ColumnSteps.none(*start.coef.shape)
    flat = columns.constant_risks
    # from F below that of beta = 0 no descent ends there, where F has no derivative
    objective = np.where(fixed, np.inf, flat)
    sums: dict[str, Array] = {}
    moved, seen = np.arange(len(fixed)), np.zeros(len(fixed), dtype=bool)
    for number in range(PASSES):
        bent = _bent(columns, fixed) if corrections is None else np.arange(0)
        new, seconds = _evaluated(columns, state, moved, sums, bent)
        if corrections is None:
            corrections = _corrections(columns, state, bent, seconds)
        training = _training(columns, new)
        F = training["value"] + columns.rho * _norms(state)
        worse = objective + ARMIJO * step.slope + ROUNDING * np.abs(F) < F
        # where a step did not descend, half of it is tried from the model before
        back = step.times(0.5) if number else _from_zero(columns, worse)
        free = moved[~fixed[moved]]
        step = _newton(columns, state, training, free, corrections).or_else(back, worse)
        # of the constant model before the first descent no sums are known
        sums = {k: np.where(worse & seen, sums[k], new[k]) for k in new} if sums else new
        found, seen = np.where(worse, found, state), seen | ~worse
        objective = np.where(worse, objective, F)
        done = (-step.slope <= goal * flat) & ~worse
        logger.info("folds: pass %d, %d of %d to go", number + 1, np.sum(~done), len(done))
        if done.all() or number == PASSES - 1:
            break
        step, moved = step.times(~done), np.flatnonzero(~done)
        state = found + step.move
    unsolved = worse | (-step.slope > tol * flat)
    state = np.where(seen, found, state)
    return Descended(state, sums, unsolved, corrections or [], number + 1)


def _norms(state: Array) -> Array:
    """Return the norms of theta."""
    return np.linalg.norm(state[:-1], axis=0)


def _inside(
    folds: Columns, full: Columns, everywhere: Descended, tol: float
) -> tuple[Array, Array]:
    """Return the models of folds, and which of them are unsolved.

    Each is a step away from that of its group over all rows, where the sums are known. Those for
    which that step may leave more than ``tol`` go on from there, in passes of their own.
    """
    of, near = folds.group, everywhere.state
    state, _, fixed = _started(folds, full.lift(near).columns(of))
    # where the model over all rows is constant there is no matrix to step with
    moving = _norms(near)[of] > 0
    sums = {name: part[..., of] for name, part in everywhere.sums.items()}
    known, some = everywhere.corrections, np.flatnonzero(~fixed & moving)
    step = _newton(folds, state, _training(folds, sums), some, known)
    state = state + step.move
    far = np.flatnonzero(~(fixed | (moving & (step.left <= tol * folds.constant_risks))))
    unsolved = np.zeros(len(of), dtype=bool)
    if len(far):
        part = folds.part(far)
        rest = _descended(part, part.lift(state[:, far]), tol, tol, known)
        state[:, far], unsolved[far] = rest.state, rest.unsolved
    return state, unsolved


def _started(columns: Columns, start: Models) -> tuple[Array, Array, Array]:
    """Return the models (d + 1, B) to start from, the constant ones, and where these stay.

    That is where they are optimal.
    """
    state = np.vstack([np.zeros_like(start.coef), [flat.b for flat in columns.constants]])
    zero, fixed = state.copy(), np.zeros(len(start), dtype=bool)
    for j, constant in enumerate(columns.constants):
        problem, coef = columns.problem(j), start.coef[:, j]
        fixed[j] = problem.rests(constant)
        if coef.any() and not fixed[j]:
            state[:, j] = np.append(problem.theta(coef), start.b[j])
        elif not fixed[j]:
            state[:, j] = constant.at(along_gradient(problem, problem.rho, constant))
    return state, zero, fixed


def _from_zero(columns: Columns, some: Array) -> ColumnSteps:
    """Return, for some problems, the move from the constant model along the gradient there."""
    step = ColumnSteps.none(columns.stream.chunks.d, len(some))
    for j in np.flatnonzero(some):
        problem, constant = columns.problem(int(j)), columns.constants[j]
        step.move[:, j] = along_gradient(problem, problem.rho, constant)
        steepness = problem.steepness(constant) - problem.rho
        step.slope[j] = -steepness * float(np.linalg.norm(step.move[:-1, j]))
    return step


def _evaluated(
    columns: Columns,
    state: Array,
    some: Array,
    known: dict[str, Array],
    bent: Array,
) -> tuple[dict[str, Array], Array]:
    """Return the sums by fold at the models, those of ``some`` anew: one pass.

    Beside them, of the models ``bent`` among these, the sums of w D tt'.
    """
    stream, part = columns.stream, columns.part(some)
    signed = np.flatnonzero(part.left_out < 0)
    models = part.lift(state[:, some])
    job = RiskSums(stream.blocks, stream.loss, models, signed, bent, part.positive)
    [found] = stream.chunks.total(job)
    seconds: Array = found.pop("second")
    everywhere = {}
    for name, new in found.items():
        shape = (*new.shape[:-1], state.shape[1])
        everywhere[name] = known[name].copy() if known else np.zeros(shape)
        everywhere[name][..., some] = new
    return everywhere, seconds


def _bent(columns: Columns, fixed: Array) -> Array:
    """Return the models whose matrices over all rows are worth their sums."""
    if columns.stream.all_kept:
        return np.arange(0)
    found = []
    for k in np.unique(columns.model):
        some = np.flatnonzero((columns.model == k) & ~fixed)
        found += [some[int(share * len(some))] for share in BENT_AT if len(some)]
    return np.unique(np.array(found, dtype=int))


def _corrections(columns: Columns, state: Array, bent: Array, seconds: Array) -> list[Correction]:
    """Return what the matrices of models over all rows say of those of the rows in memory."""
    found = []
    for j, second in zip(bent.tolist(), seconds, strict=True):
        problem = columns.problem(j)
        kept = of_kept(problem, state[:, j], -1)
        model, total = int(columns.model[j]), problem.stream.total
        found.append(correction(model, problem.rho, kept, second / total))
    return found


def _training(columns: Columns, sums: dict[str, Array]) -> dict[str, Array]:
    """Return value and first sums over the training rows, divided by their weight."""
    fold, total = columns.left_out, columns.stream.totals(columns.left_out)
    trains = (np.arange(columns.stream.folds.parts)[:, None] != fold) / total
    return {name: np.einsum("f...b,fb->...b", sums[name], trains) for name in ("value", "first")}


def _newton(
    columns: Columns,
    state: Array,
    sums: dict[str, Any],
    some: Array,
    corrections: list[Correction],
) -> ColumnSteps:
    """Return the step of some problems with matrices from the rows in memory.

    Where these are all rows each problem has that of its own training rows. Where they are a part,
    noise counts more than a fold, and a group has one.
    """
    step = ColumnSteps.none(len(state) - 1, len(columns.rho))
    every = columns.stream.all_kept
    group = np.arange(len(columns.group)) if every else columns.group
    for number in np.unique(group[some]):
        members = some[group[some] == number]
        first = int(members[np.argmin(columns.left_out[members])])
        left_out = int(columns.left_out[first]) if every else -1
        matrix = of_kept(columns.problem(first), state[:, first], left_out)
        near_by = nearest(corrections, int(columns.model[first]), float(columns.rho[first]))
        matrix = matrix if near_by is None else near_by.of(matrix)
        for j in members:
            problem = columns.problem(int(j))
            known = (state[:, j], float(sums["value"][j]), sums["first"][:, j])
            near = problem.newton_point(*known, matrix.second)
            move = newton_step(near, problem.rho)
            step.move[:, j], step.slope[j] = move.step, move.slope
            step.left[j] = _left(near, move, matrix)
    return step


def _left(p: NewtonPoint, move: NewtonMove, matrix: KeptCurvature) -> float:
    """Return how much of F a step may leave to be gained, to first order.

    Of what it promises it leaves the squares of the relative errors of its matrix: d/rows of noise,
    and the changes along the step, of the curvature of the penalty and of that of the loss, which
    changes no faster than the scores.
    """
    if longest(p.theta) == 0 or p.m <= np.finfo(float).tiny:
        # nothing to compare with: the whole promise may be left
        return -move.slope
    turned = longest(move.step[:-1]) / longest(p.theta)
    errors = len(p.theta) / matrix.rows + turned**2 - move.slope / p.m
    return -move.slope * errors


def _solutions(full: Columns, found: Descended, conjugate: Array, tol: float) -> list[Solution]:
    """Return the models over all rows with the gaps that conjugates of their slopes prove."""
    stream, state, target = full.stream, found.state, tol * full.constant_risks
    models, w = full.lift(state), _norms(state)
    risk = found.sums["value"].sum(axis=0) / stream.total
    objective, lam = risk + full.rho * w, stream.loss.lipschitz * w
    gap = np.maximum(0.0, objective + conjugate)
    parts = (part.tolist() for part in (models.b, lam, objective, risk, gap, target))
    each = zip(models.coef.T, *parts, repeat(found.passes))
    return [stream.solution(*known) for known in each]


def _dual_job(full: Columns, found: Descended) -> DualSums:
    """Return the job of the dual values of slopes of models over all rows, made feasible."""
    stream, sums, models = full.stream, found.sums, full.lift(found.state)
    rise = sums["rising"]
    fall = sums["first"].sum(axis=0) - rise
    rising, falling = rise[-1], -fall[-1]
    tiny = np.finfo(float).tiny
    up = down = np.ones(len(models))
    if stream.fit_intercept:
        up = np.minimum(1.0, falling / np.maximum(rising, tiny))
        down = np.minimum(1.0, rising / np.maximum(falling, tiny))
    size = np.linalg.norm(full.drop((up * rise + down * fall)[:-1]), axis=0) / stream.total
    kappa = np.minimum(1.0, full.rho / np.maximum(size, tiny))
    scales = (kappa * up, kappa * down)
    return DualSums(stream.blocks, stream.loss, models, *scales, full.positive)
