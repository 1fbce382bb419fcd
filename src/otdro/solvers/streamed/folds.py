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

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from ...problem import Solution
from ...progress import logger
from ..euclidean.order_one import ARMIJO, ROUNDING
from .newton import (
    NewtonMove,
    NewtonPoint,
    StreamedProblem,
    along_gradient,
    longest,
    newton_step,
)
from .stream import Constant, Stream
from .sums import DualSums, HeldSums, Models, RiskSums, second_sums

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Columns:
    """Problems as columns: ``factors`` L and ``rho`` of each, and the fold it leaves out, or -1.

    ``model`` is its number among those of the stream, one per class where there are more than two.
    ``group`` is the number of the problem over all rows of the same cost, delta and model, whose
    Newton matrix serves those that leave a fold out.
    """

    stream: Stream
    factors: list[Array | None]
    rho: Array
    model: Array
    left_out: Array
    group: Array

    def in_folds(self, factors: list[list[Array | None]]) -> Columns:
        """Return these problems without each fold in turn, fold after fold, with its factors."""
        F, B = len(factors), len(self.rho)
        every = self.part(np.tile(np.arange(B), F))
        of_folds = [L for of_fold in factors for L in of_fold]
        return replace(every, factors=of_folds, left_out=np.repeat(np.arange(F), B))

    def part(self, some: Array) -> Columns:
        """Return some of the problems."""
        each = (self.rho, self.model, self.left_out, self.group)
        factors = [self.factors[j] for j in some]
        return Columns(self.stream, factors, *(part[some] for part in each))

    @property
    def positive(self) -> Array | None:
        """The class that is +1 of each problem, None where there are two classes."""
        return self.model if len(self.stream.models) > 1 else None

    def problem(self, j: int) -> StreamedProblem:
        """Return one of the problems."""
        model = self.stream.models[self.model[j]]
        return StreamedProblem(model, self.factors[j], float(self.rho[j]))

    @cached_property
    def constants(self) -> list[Constant]:
        """The best constant models on the training rows of each problem."""
        pairs = list(zip(self.model.tolist(), self.left_out.tolist(), strict=True))
        known = {(k, f): self.stream.models[k].constant(f) for k, f in set(pairs)}
        return [known[pair] for pair in pairs]

    @property
    def constant_risks(self) -> Array:
        """The risks of these."""
        return np.array([constant.risk for constant in self.constants])

    def lift(self, X: Array) -> Models:
        """Return the models X (d + 1, B), theta and b of every problem, on centred rows."""
        pairs = zip(self.factors, X[:-1].T, strict=True)
        return Models(np.stack([t if L is None else L @ t for L, t in pairs], axis=1), X[-1])

    def drop(self, g: Array) -> Array:
        """Return L'g of every problem."""
        pairs = zip(self.factors, g.T, strict=True)
        return np.stack([v if L is None else L.T @ v for L, v in pairs], axis=1)


@dataclass(frozen=True, eq=False)
class ColumnSteps:
    """A step of every model (d + 1, B), the slope of F along it, and what it may leave to gain."""

    move: Array
    slope: Array
    left: Array

    @classmethod
    def none(cls, d: int, B: int) -> ColumnSteps:
        """Return that of models at rest."""
        return cls(np.zeros((d + 1, B)), np.zeros(B), np.zeros(B))

    def times(self, share: Any) -> ColumnSteps:
        """Return a part of the step; of models at rest it is 0."""
        return ColumnSteps(*(share * part for part in vars(self).values()))

    def or_else(self, other: ColumnSteps, where: Array) -> ColumnSteps:
        """Return the steps, those of another where a condition holds."""
        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return ColumnSteps(*(np.where(where, x, y) for x, y in pairs))


#: The share of its mean that the diagonal of a matrix is raised by: rows in memory may be few.
RAISED = 1e-6


class KeptCurvature(NamedTuple):
    """E[D tt'], t = (z, 1), and how many rows bear it: (sum D)^2/sum D^2."""

    second: Array
    rows: float


def of_kept(problem: StreamedProblem, at: Array, left_out: int) -> KeptCurvature:
    """Return that of the rows in memory outside a fold at a model (theta, b)."""
    stream, sample = problem.stream, problem.stream.kept
    z = stream.kept_design.scores(problem.lift(at[:-1])) + at[-1]
    share = sample.weights * (stream.kept_fold != left_out)
    D = share / share.sum() * sample.loss.curvature(z, sample.ys[0])
    # the rows in memory are noise only where there are others
    tiny = np.finfo(float).tiny
    rows = np.inf if stream.all_kept else float(D.sum()) ** 2 / max(float(D @ D), tiny)
    return KeptCurvature(second_sums(stream.kept_design, D), rows)


@dataclass(frozen=True, eq=False)
class Correction:
    """T with T K T' = A, K of the rows in memory and A of all rows, at the model number ``model``
    under the price ``rho``.

    Noise of the rows in memory is nearly the same at models nearby: T takes it off theirs too.
    """

    model: int
    rho: float
    T: Array

    def of(self, matrix: KeptCurvature) -> KeptCurvature:
        """Return a matrix of the rows in memory as that of all rows would be."""
        return matrix._replace(second=self.T @ _raised(matrix.second) @ self.T.T)


def correction(model: int, rho: float, kept: KeptCurvature, everywhere: Array) -> Correction:
    """Return the correction of a matrix of the rows in memory by E[D tt'] of all rows."""
    root = cholesky(_raised(everywhere), lower=True)
    known = cholesky(_raised(kept.second), lower=True)
    # T = root known^-1
    return Correction(model, rho, solve_triangular(known.T, root.T, lower=False).T)


def nearest(corrections: list[Correction], model: int, rho: float) -> Correction | None:
    """Return the one of the same model whose price is the nearest, None where there is none."""
    same = [each for each in corrections if each.model == model]

    def apart(each: Correction) -> float:
        # prices of a path are geometric
        low, high = sorted((rho, each.rho))
        return float(high / low) if low > 0 else np.inf

    return min(same, key=apart, default=None)


def _raised(A: Array) -> Array:
    # each entry by a share of its own: columns may be of very different units
    return A + np.diag(np.maximum(RAISED * np.diag(A), np.finfo(float).tiny))


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
    state, before, fixed = _started(columns, start)
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
        before, seen = np.where(worse, before, state), seen | ~worse
        objective = np.where(worse, objective, F)
        done = (-step.slope <= goal * flat) & ~worse
        logger.info("folds: pass %d, %d of %d to go", number + 1, np.sum(~done), len(done))
        if done.all() or number == PASSES - 1:
            break
        step, moved = step.times(~done), np.flatnonzero(~done)
        state = before + step.move
    unsolved = worse | (-step.slope > tol * flat)
    state = np.where(seen, before, state)
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
    [new_sums] = stream.chunks.total(job)
    seconds: Array = new_sums.pop("second")
    everywhere = {}
    for name, new in new_sums.items():
        shape = (*new.shape[:-1], state.shape[1])
        everywhere[name] = known[name].copy() if known else np.zeros(shape)
        everywhere[name][..., some] = new
    return everywhere, seconds


def _bent(columns: Columns, fixed: Array) -> Array:
    """Return the models whose matrices over all rows are worth their sums."""
    if columns.stream.all_kept:
        return np.arange(0)
    places = []
    for k in np.unique(columns.model):
        some = np.flatnonzero((columns.model == k) & ~fixed)
        places += [some[int(share * len(some))] for share in BENT_AT if len(some)]
    return np.unique(np.array(places, dtype=int))


def _corrections(columns: Columns, state: Array, bent: Array, seconds: Array) -> list[Correction]:
    """Return what the matrices of models over all rows say of those of the rows in memory."""
    corrections = []
    for j, second in zip(bent.tolist(), seconds, strict=True):
        problem = columns.problem(j)
        kept = of_kept(problem, state[:, j], -1)
        model, total = int(columns.model[j]), problem.stream.total
        corrections.append(correction(model, problem.rho, kept, second / total))
    return corrections


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


def _solutions(full: Columns, end: Descended, conjugate: Array, tol: float) -> list[Solution]:
    """Return the models over all rows with the gaps that conjugates of their slopes prove."""
    stream, state, target = full.stream, end.state, tol * full.constant_risks
    models, w = full.lift(state), _norms(state)
    risk = end.sums["value"].sum(axis=0) / stream.total
    objective, lam = risk + full.rho * w, stream.loss.lipschitz * w
    gap = np.maximum(0.0, objective + conjugate)
    parts = (part.tolist() for part in (models.b, lam, objective, risk, gap, target))
    each = zip(models.coef.T, *parts, repeat(end.passes))
    return [stream.solution(*known) for known in each]


def _dual_job(full: Columns, end: Descended) -> DualSums:
    """Return the job of the dual values of slopes of models over all rows, made feasible."""
    stream, sums, models = full.stream, end.sums, full.lift(end.state)
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
