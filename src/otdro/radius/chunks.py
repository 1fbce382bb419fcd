"""What the chooser asks of rows in chunks: folds, deltas and costs share the passes over them.

What is learned from neighbours, and the noise that the rules weigh against, come from rows kept in
memory; losses, covariances, thresholds and solutions from all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..chunks import Job, Sums
from ..costs import Cost, Mahalanobis, Norm
from ..design import Design
from ..duality import threshold as zero_threshold
from ..fences import ROW_FENCE, row_shares, weighted_quantile
from ..metrics import Candidate
from ..problem import Ball, Solution
from ..solvers import Exact
from ..solvers.streamed import (
    Columns,
    FencedSums,
    Folds,
    GroupSums,
    HeldSums,
    JointStream,
    Minima,
    Models,
    Passes,
    ProfileSums,
    ScatterSums,
    SoftmaxStream,
    Stream,
    StreamCoordinates,
    StreamedProblem,
    minimise,
    squared,
    together,
)
from ..solvers.streamed.folds import PASSES
from . import candidates as cost_candidates
from .candidates import Candidates, in_own_units, spreads_far_apart
from .checks import check_delta, resolve_order
from .evidence import (
    EnvironmentLosses,
    Environments,
    Evidence,
    FoldScores,
    binary_view,
    effect_of_sums,
)
from .folds import FOLD_TOL, at_most, usable
from .grid import Solved, deltas_from, far_out, solve_path, threshold
from .profile import (
    check_profile,
    normal_radius,
    profile_radius,
    smooth_profile,
    squared_profile,
)
from .selection import Choice, FoldLosses, Settings, Trial, choose_ball

Array = NDArray[Any]

#: Bytes of Newton matrices that are at hand at a time.
LOT_BYTES = 2**27
#: The gap of the plain fit behind a delta by theory, relative to the constant model's risk.
PILOT_TOL = 1e-9
#: The steps of that fit at most: where it takes more, classes are separable.
PILOT_STEPS = 60


def choose(stream: Stream, settings: Settings, tol: float, max_iter: int) -> Choice:
    """Return the ball that the settings ask for, and the solutions on it."""
    tried = cost_candidates.resolve(settings.cost, stream.rows.X)
    order = resolve_order(settings.order, stream.loss, tried.cost)
    reason = lacks(stream.loss, order, tried)
    if reason is not None:
        raise ValueError(reason)
    delta = check_delta(settings.delta)
    data = ChunkedFoldLosses(
        stream.sample, order, delta, Exact(tol, max_iter), settings, stream=stream
    )
    return choose_ball(data.looked_at(tried), tried)


def lacks(loss: Any, order: int, tried: Candidates) -> str | None:
    """Return why a problem is not solved in chunks, None if it is."""
    name, cost = type(loss).__name__, tried.cost
    if cost is not None and not cost.euclidean:
        return (
            f"rows in chunks need a Euclidean, Mahalanobis or learned cost, got {cost!r}: use "
            "cost='euclidean', or rows that fit into memory."
        )
    if loss.pieces is not None and loss.pieces.quadratic:
        if order == 2:
            return None
        return f"order=1 needs a Lipschitz loss; {name} is not. Use order=2."
    smooth = loss.pieces is None and np.isfinite(loss.smoothness * loss.lipschitz)
    if not smooth or loss.task != "classification":
        return (
            "rows in chunks are fitted with the squared loss or a smooth Lipschitz loss of labels, "
            f"as 'logistic'; {name} is neither. Use one of these, or rows that fit into memory."
        )
    return None


def group_folds(folds: Folds, names: Array, counts: Array) -> Folds:
    """Return folds that leave whole groups out, with like numbers of rows of every class.

    ``counts`` (G, K) are the rows of each group by class. The largest groups come first, each into
    the fold that has the least of its classes so far; the seed decides between equal groups.
    """
    if len(names) < 2:
        raise ValueError(
            f"folds of whole groups need two groups, got one: {names[0]!r}. Leave groups out, or "
            "give a number as delta."
        )
    count = at_most(folds.count, len(names), "the sample", "group")
    share = counts / np.maximum(counts.sum(axis=0), 1)
    fold_of, load = np.zeros(len(names), dtype=int), np.zeros((count, counts.shape[1]))
    shuffled = np.random.default_rng(folds.seed).permutation(len(names))
    order = shuffled[np.argsort(-counts[shuffled].sum(axis=1), kind="stable")]
    for g in order:
        # sum over folds of load^2 grows by 2 load'share + share'share
        growth = load @ share[g]
        fold_of[g] = np.lexsort((load.sum(axis=1), growth.round(12)))[0]
        load[fold_of[g]] += share[g]
    return Folds(count, folds.seed, names, fold_of)


@dataclass(frozen=True, eq=False)
class ChunkedFoldLosses(FoldLosses):
    """Rows in chunks, ``sample`` those kept in memory; ``factors`` where the loss is squared.

    A ``covariance`` is that outside each fold, that of all rows last; that in units is of the
    columns over their spreads. ``thresholds`` are functions of the cost: the zero threshold of all
    rows and, where a row is far out, that of the rows on their fence.
    """

    solver: Exact
    stream: Stream = field(kw_only=True)
    factors: squared.FoldFactors | None = None
    covariance: list[Array] | None = None
    covariance_in_units: list[Array] | None = None
    thresholds: tuple[Threshold, Threshold | None] | None = None

    def looked_at(self, tried: Candidates) -> ChunkedFoldLosses:
        """Return the rows after the pass that takes factors, scatter and fenced sums, if needed."""
        stream, looks = self.stream, dict[str, tuple[Job, Callable[[Sums], Any]]]()
        units = None if tried.learned is None else spreads_far_apart(self.sample)
        scatter = any(_takes_covariance(c) for c in _candidates(tried))
        if stream.loss.pieces is not None:
            looks["factors"] = squared.job(stream), partial(squared.factors, stream)
        if scatter:
            looks["covariance"] = _scatter_job(stream), _covariances
        if scatter and units is not None:
            looks["covariance_in_units"] = _scatter_job(stream, units), _covariances
        fenced = None
        if self.delta == "cv" and self.settings.deltas is None:
            center, fence = _fence(stream)
            mean = stream.sums.sum(axis=(0, 1)) / stream.masses.sum()
            blocks = replace(stream.blocks, center=center)
            fenced = FencedSums(blocks, fence, mean, squared.shift(stream))
            looks["thresholds"] = fenced, lambda sums: sums
        totals = stream.chunks.total(*(job for job, _ in looks.values())) if looks else []
        parts = zip(looks.items(), totals, strict=True)
        seen = {name: read(sums) for (name, (_, read)), sums in parts}
        if fenced is not None:
            seen["thresholds"] = _thresholds(
                stream, seen.get("factors"), fenced, seen["thresholds"]
            )
        return replace(self, **seen)

    def costs(self, tried: Candidates) -> tuple[Candidates, list[Cost]]:
        """Return what is left of the candidates, and their costs learned from all rows."""
        left, costs = tried.from_all(self.sample)
        return left, self._from_scatter(left, costs, -1)

    def costs_in_folds(self, tried: Candidates) -> list[list[Cost]]:
        """Return ``learned[f][c]``: cost c learned without fold f."""
        if tried.cost is not None and not tried.cost.learns:
            return [[tried.cost] for _ in self.splits]
        kept = self.stream.kept_fold
        learned = []
        for f in range(self.stream.folds.count):
            costs = tried.costs(self.sample.rows(np.flatnonzero(kept != f)))
            learned.append(self._from_scatter(tried, costs, f))
        return learned

    def _from_scatter(self, tried: Candidates, costs: list[Cost], fold: int) -> list[Cost]:
        """Return the costs, with the covariance of all training rows where a learner needs it."""
        units = tried.units
        covariance = self.covariance if units is None else self.covariance_in_units
        if covariance is None:
            return costs
        costs = list(costs)
        for c, candidate in enumerate(_candidates(tried)):
            if _takes_covariance(candidate):
                learner = clone(candidate.learner).of_covariance(covariance[fold])
                matrix = learner.shrunk(candidate.shrinkage)
                costs[c] = Mahalanobis(matrix if units is None else in_own_units(units, matrix))
        return costs

    def with_folds(self, costs: list[Cost]) -> FoldLosses:
        """Return these rows with the folds of the rows in memory."""
        fold, count = self.stream.kept_fold, self.stream.folds.count
        pairs = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]
        return replace(self, splits=pairs)

    def in_units(self, units: Array) -> FoldLosses:
        """Return these rows: only their costs are in units."""
        return self

    def theory_delta(self, cost: Cost) -> float:
        """Return the largest profile delta of the models."""
        check_profile(self.stream.kept, cost, self.settings.confidence)
        return self._profile(cost)

    @cached_property
    def _profile(self) -> Profile:
        """The profile delta of a cost, with plain fits to all rows as pilots."""
        stream, confidence = self.stream, self.settings.confidence
        if self.factors is not None:
            return _squared_profile(self.factors, confidence)
        smooth = [_smooth_profile(model, self.order, confidence) for model in stream.models]
        profiles = together(stream.chunks, smooth)
        return lambda cost: max(profile(cost) for profile in profiles)

    def default_deltas(self, cost: Cost) -> Array:
        """Return the grid from the zero threshold of all rows down."""
        assert self.thresholds is not None
        top, near = self.thresholds
        low = None if near is None else partial(near, cost, self.order)
        return deltas_from(top(cost, self.order), low, self.order)

    def to_compare(self) -> FoldLosses:
        """Return the rows on which costs are compared: some of those in memory if possible."""
        grouped = self.stream.folds.groups is not None
        if self.delta != "cv" or grouped or not all(usable(self.sample, *s) for s in self.splits):
            return self
        in_memory = FoldLosses(
            sample=self.sample,
            order=self.order,
            delta=self.delta,
            solver=self.solver,
            settings=self.settings,
            splits=self.splits,
        )
        return in_memory.to_compare()

    def compare(self, tried: Candidates, costs: list[Cost]) -> tuple[list[Trial], list[list[Cost]]]:
        """Return the trials that the weights of a blend come from, and the costs in their folds."""
        learned = self.costs_in_folds(tried)
        return self.to_compare().run(tried.names, costs, learned), learned

    def scores(
        self,
        names: list[str],
        costs: list[Cost],
        learned: list[list[Cost]],
        deltas: list[Array],
        tol: float,
    ) -> list[FoldScores]:
        """Return what the folds say of every cost along its deltas, from shared passes."""
        stream = self.stream
        if self.factors is not None:
            fits = [
                self._by_factors(cost, [of_fold[c] for of_fold in learned], grid)
                for c, (cost, grid) in enumerate(zip(costs, deltas, strict=True))
            ]
        else:
            fits = self._by_steps(costs, learned, deltas)
        seen = self._environments(fits)
        share = np.array([stream.held(f) for f in range(stream.folds.count)])
        rows = [test for _, test in self.splits]
        return [
            FoldScores(
                scores=-fit.held,
                rows=rows,
                z=self._kept_scores(rows, fit),
                path=fit.solved,
                unsolved=fit.unsolved,
                losses=share @ fit.held / share.sum(),
                environments=environments,
            )
            for fit, environments in zip(fits, seen, strict=True)
        ]

    def _kept_scores(self, rows: list[Array], fit: Fits) -> list[Array]:
        """Return the scores (K, rows, m) of the tested rows in memory, one array per fold."""
        stream, K = self.stream, len(fit.solved)
        scores = []
        for part, models in zip(rows, fit.in_folds, strict=True):
            z = models.scores(Design(stream.rows.X[part] - stream.center))
            shape = (len(part), K, len(models) // K, *z.shape[2:])
            scores.append(np.moveaxis(z.reshape(shape), 1, 0))
        return scores

    def evidence(self, cost: Cost, deltas: Array, folds: FoldScores) -> Evidence:
        """Return what a rule may look at."""
        view, margins = binary_view(self.sample, folds)
        return Evidence(
            sample=view,
            cost=cost,
            order=self.order,
            deltas=deltas,
            folds=margins,
            own_loss=True,
            distinct=self.sample.distinct / len(self.stream.rows.y) * self.stream.chunks.n,
            losses=folds.losses,
            environments=folds.environments,
        )

    def environments(self, folds: FoldScores) -> EnvironmentLosses | None:
        """Return the losses of the environments, None where rows have none."""
        return None if folds.environments is None else folds.environments.losses

    def path(self, best: Trial) -> Solved:
        """Return the path of a trial over all rows, certified at the chosen delta."""
        j, path = best.verdict.place, best.folds.path
        assert path is not None
        ball = self.sample.ball(best.cost, float(best.deltas[j]), self.order)
        for row, solution in zip(path, self.solutions(ball, [row[j] for row in path]), strict=True):
            row[j] = solution
        return path

    def solutions(self, ball: Ball, starts: list[Solution] | None) -> list[Solution]:
        """Return the certified solutions of all models, from models near them."""
        stream, tol, max_iter = self.stream, self.solver.tol, self.solver.max_iter
        if self.factors is not None:
            deltas = np.array([ball.delta])
            return squared.certified(self.factors, ball.cost.factor(), deltas, tol)
        methods = [
            _method(model, ball, None if starts is None else starts[k], tol, max_iter)
            for k, model in enumerate(stream.models)
        ]
        solutions = together(stream.chunks, methods)
        if ball.order == 2 and ball.delta == 0:
            # the risk rises with the root of delta
            rates = [np.inf if solution.coef.any() else 0.0 for solution in solutions]
            solutions = [replace(s, multiplier=m) for s, m in zip(solutions, rates, strict=True)]
        return solutions

    def _by_factors(self, cost: Cost, in_folds: list[Cost], deltas: Array) -> Fits:
        """Return the fits of the squared loss, all from factors; certificates take one pass."""
        assert self.factors is not None
        factors = self.factors
        models = [factors.models(c.factor(), deltas, f) for f, c in enumerate(in_folds)]
        held = np.stack([factors.held(m, f) for f, m in enumerate(models)])
        solved = squared.certified(factors, cost.factor(), deltas, self.solver.tol)
        return Fits([solved], models, held)

    def _by_steps(
        self, costs: list[Cost], learned: list[list[Cost]], deltas: list[Array]
    ) -> list[Fits]:
        """Return the fits of a smooth loss: all costs, folds, models and deltas share passes."""
        stream, order = self.stream, self.order
        starts = [
            solve_path(self.sample, cost, order, grid, Exact(tol=FOLD_TOL))
            for cost, grid in zip(costs, deltas, strict=True)
        ]
        # all problems over all rows: cost, model and delta
        sizes = [(len(stream.models), len(grid)) for grid in deltas]
        numbers = [(c, k, j) for c, size in enumerate(sizes) for k, j in np.ndindex(size)]
        model = np.array([k for _, k, _ in numbers])
        delta = np.array([deltas[c][j] for c, _, j in numbers])
        near = [starts[c][k][j] for c, k, j in numbers]
        each_cost = [[part[c] for c, *_ in numbers] for part in (costs, *learned)]
        if stream.loss.outputs == 1 and order == 1:
            full, *in_folds = ([cost.factor() for cost in part] for part in each_cost)
            everywhere = (np.full(len(delta), -1), np.arange(len(delta)))
            columns = Columns(stream, full, delta * stream.loss.lipschitz, model, *everywhere)
            minima = minimise(columns, in_folds, Models.of(near, stream.center), FOLD_TOL)
        else:
            minima = self._one_by_one(each_cost, model, delta, near)
        fits, place = [], 0
        for K, m in sizes:
            whole = place + np.arange(K * m).reshape(K, m)
            fits.append(
                Fits(
                    [[minima.solved[i] for i in of_model] for of_model in whole],
                    [of_fold.columns(whole.ravel()) for of_fold in minima.in_folds],
                    minima.held[:, whole].mean(axis=1),
                    # counted once, for all costs
                    minima.unsolved if place == 0 else 0,
                )
            )
            place += K * m
        return fits

    def _one_by_one(
        self, costs: list[list[Cost]], model: Array, delta: Array, near: list[Solution]
    ) -> Minima:
        """Return the fits at order 2 and of softmax models, whose methods share passes."""
        stream = self.stream
        streams = [stream, *(stream.outside(f) for f in range(stream.folds.count))]
        each = list(zip(model, delta, near, strict=True))
        methods = [
            _method(part.models[k], self.sample.ball(cost, t, self.order), start, FOLD_TOL, PASSES)
            for part, of_part in zip(streams, costs, strict=True)
            for cost, (k, t, start) in zip(of_part, each, strict=True)
        ]
        # as many methods at a time as their matrices leave memory for
        side = (stream.chunks.d + 2) * max(1, stream.loss.outputs - 1)
        size = max(1, LOT_BYTES // (8 * side**2))
        lots = [methods[i : i + size] for i in range(0, len(methods), size)]
        solved = [result for lot in lots for result in together(stream.chunks, lot)]
        full, *folds = (solved[i : i + len(each)] for i in range(0, len(solved), len(each)))
        models = [Models.of(of_fold, stream.center) for of_fold in folds]
        positive = model if len(stream.models) > 1 else None
        [sums] = stream.chunks.total(HeldSums(stream.blocks, stream.loss, models, positive))
        unsolved = sum(not solution.converged for solution in solved)
        return Minima(full, models, stream.mean_of_folds(sums["value"]), unsolved)

    def _environments(self, fits: list[Fits]) -> list[Environments | None]:
        """Return what the fits of every cost lose in each group, None without groups: one pass."""
        stream, names = self.stream, self.stream.folds.groups
        if names is None:
            return [None] * len(fits)
        jobs = []
        for fit in fits:
            K, m = len(fit.solved), fit.held.shape[1]
            positive = None if K == 1 else np.repeat(np.arange(K), m)
            jobs.append(GroupSums(stream.blocks, stream.loss, fit.in_folds, m, positive))
        seen: list[Environments | None] = []
        for fit, sums in zip(fits, stream.chunks.total(*jobs), strict=True):
            kept = sums["weight"] > 0
            losses = sums["weighted"][kept] / sums["weight"][kept, None]
            rows, place = sums["rows"][kept], int(fit.held.mean(axis=0).argmin())
            effect = effect_of_sums(rows, sums["loss"][kept, place], sums["square"][kept, place])
            each = EnvironmentLosses(names[kept], rows.astype(int), losses)
            seen.append(Environments(each, effect))
        return seen


@dataclass(frozen=True, eq=False)
class Fits:
    """One cost: K models over all rows along m deltas, those of each fold, and what they lose.

    ``solved`` are the solutions over all rows, m of each of the K; ``in_folds`` the models of each
    fold (K m, one of the K after another), and ``held`` (F, m) their mean losses on its rows, over
    the K.
    """

    solved: Solved
    in_folds: list[Models]
    held: Array
    unsolved: int = 0


def _method(
    model: Stream, ball: Ball, start: Solution | None, tol: float, max_iter: int
) -> Passes[Solution]:
    """Return the method of a smooth loss.

    It starts from a model near, or from the solution on the rows in memory. ``tol`` is relative to
    the risk of the constant model.
    """
    if start is None:
        kept = model.kept.problem(model.kept.ys[0], ball)
        [[start]] = Exact(tol=min(1e-6, max(tol, 1e-9))).solve([kept], [ball.delta])
    factor, delta = ball.cost.factor(), ball.delta
    problem: StreamCoordinates
    if model.loss.outputs > 1:
        problem = SoftmaxStream(model, factor, delta)
    elif ball.order == 2 and delta > 0:
        problem = JointStream(model, factor, delta)
    else:
        problem = StreamedProblem(model, factor, delta * model.loss.lipschitz)
    b, target = start.intercept + start.coef @ model.center, tol * model.constant().risk
    return problem.solve(start.coef, b, float(start.multiplier), target, max_iter)


#: The least delta at which models beta = 0 of some rows are optimal, under a cost and an order.
Threshold = Callable[[Cost, int], float]


def _thresholds(
    stream: Stream, factors: squared.FoldFactors | None, job: FencedSums, sums: Sums
) -> tuple[Threshold, Threshold | None]:
    """Return the thresholds of all rows and, where one is far out, of the rows on their fence."""
    far = far_out(max(sums["farthest"]), sums["distance"])
    # the rows of the sums are centred
    total = sums["sums"] + stream.mass()[:, None] * job.blocks.center
    if factors is not None:
        pull, square = factors.pull()
        R, mass = factors.training(), stream.total
        mean = R[0, -1] / R[0, 0]
        fenced_pull = sums["height"] / mass + job.blocks.center * mean
        if stream.fit_intercept:
            fenced_pull = fenced_pull - total[0] / mass * mean
        top, near = _of_targets(pull, square), _of_targets(fenced_pull, square)
    else:
        masses = stream.mass()[None]
        fenced = replace(stream, masses=masses, sums=total[None], factors=None)
        top, near = _of_labels(stream), _of_labels(fenced)
    return top, near if far else None


def _of_labels(stream: Stream) -> Threshold:
    """Return the largest threshold of the models, which one row per class stands for."""
    each = [model.class_rows() for model in stream.models]
    return lambda cost, order: max(threshold(rows, rows.ys[0], cost, order) for rows in each)


def _of_targets(pull: Array, square: float) -> Threshold:
    """Return ||g||^2/E[a^2] from the pull E[x y] and E[y^2], about the means with an intercept."""

    def at(cost: Cost, order: int) -> float:
        return float(zero_threshold(float(cost.norm(pull)), square, np.inf, order))

    return at


def _candidates(tried: Candidates) -> list[Candidate]:
    """Return the candidates in the order of their costs."""
    if tried.learned is not None:
        return tried.learned.candidates()
    return [] if tried.learner is None else [Candidate(tried.learner, tried.learner.shrinkage)]


def _takes_covariance(candidate: Candidate) -> bool:
    """Whether the covariance of the rows is all that a learner needs."""
    return hasattr(candidate.learner, "of_covariance") and not candidate.needs_labels


def _fence(stream: Stream, units: Array | None = None) -> tuple[Array, float]:
    """Return the centre of the rows and the distance from it, in units, at which they are held."""
    sample = stream.kept
    X = sample.X if units is None else sample.X / units
    center, _ = row_shares(X, sample.weights)
    distance = np.sqrt(Design(X, center=center).squared_norms())
    fence = ROW_FENCE * float(weighted_quantile(distance[:, None], sample.weights, 0.5)[0])
    return center if units is None else center * units, fence or np.inf


def _scatter_job(stream: Stream, units: Array | None = None) -> ScatterSums:
    """Return the job that takes the covariance of the columns in units."""
    center, fence = _fence(stream, units)
    return ScatterSums(replace(stream.blocks, center=center), fence, units)


def _covariances(sums: Sums) -> list[Array]:
    """Return the covariance outside each fold, and that of all rows last, from sums of tt'.

    t = (z, 1) has the weight as its last sum.
    """
    total = sums["second"].sum(axis=0)
    covariances = []
    for second in (*(total - part for part in sums["second"]), total):
        mean = second / max(float(second[-1, -1]), 1.0)
        covariances.append(mean[:-1, :-1] - np.outer(mean[-1, :-1], mean[-1, :-1]))
    return covariances


#: What a plain fit tells of delta: that of the profile under a cost.
Profile = Callable[[Cost], float]


def _squared_profile(factors: squared.FoldFactors, confidence: float) -> Profile:
    Z, _ = factors.centred()
    coef = factors.models(None, np.zeros(1)).coef[:, 0]
    # E e^2 at the least squares fit is what is left of the targets off the span of the rows
    sigma2 = factors.spectrum(None).perp
    n = factors.stream.total**2 / factors.stream.square
    moments = (coef, sigma2, Z.T @ Z, 1 / factors.kappa, n)
    return lambda cost: profile_radius(squared_profile(cost, *moments), confidence)


def _smooth_profile(stream: Stream, order: int, confidence: float) -> Passes[Profile]:
    """Return the profile delta as a function of the cost, from one pass at the plain fit."""
    kept = stream.kept.problem(stream.kept.ys[0], Ball(Norm(2), 0.0, 1))
    [[plain]] = Exact(tol=1e-6, max_iter=PILOT_STEPS).solve([kept], [0.0])
    start = plain.coef, plain.intercept + float(stream.center @ plain.coef)
    target = PILOT_TOL * stream.constant().risk
    problem = StreamedProblem(stream, None, 0.0)
    pilot = yield from problem.solve(*start, 0.0, target, PILOT_STEPS)
    b = pilot.intercept + float(stream.center @ pilot.coef)
    sums = yield ProfileSums(stream.blocks, stream.loss, pilot.coef, b)
    if min(sums["least"]) > 0:
        raise ValueError(
            "delta='theory' needs a plain fit to all rows, and the classes are separable: use "
            "delta='cv' or a number."
        )
    if not pilot.converged:
        raise ValueError(
            f"delta='theory' needs a plain fit to all rows, and it {pilot.message}: the classes "
            "are nearly separable, or columns differ much in scale. Scale them, or use delta='cv' "
            "or a number."
        )
    mean = {name: sums[name] / stream.total for name in ("slopes", "bends", "squares", "mixed")}
    n = stream.total**2 / float(sums["weights"])
    slopes, bends = mean["slopes"], mean["bends"]
    if order == 2:
        # xt = (z, 1), the 1 only with an intercept; the profile is that of any centre
        side = len(pilot.coef) + stream.fit_intercept
        second = [mean[name][:side, :side] for name in ("slopes", "bends", "squares")]
        moments = (pilot.coef, *second, mean["mixed"][:side], float(slopes[-1, -1]), n)
        return lambda cost: profile_radius(smooth_profile(cost, *moments), confidence)
    # E a^2 (z - c)(z - c)'; a free intercept takes out the mean c, weighted by the curvature
    S = slopes[:-1, :-1]
    if stream.fit_intercept:
        c = bends[-1, :-1] / bends[-1, -1]
        cross = np.outer(slopes[-1, :-1], c)
        S = S - cross - cross.T + slopes[-1, -1] * np.outer(c, c)

    def radius(cost: Cost) -> float:
        L = cost.factor()
        return normal_radius(S if L is None else L.T @ S @ L, confidence, n)

    return radius
