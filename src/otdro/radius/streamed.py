"""The ball of a fit to rows in chunks: folds, deltas and costs share the passes over them.

What is learned from neighbours, and the noise that the rules weigh against, come from the rows in
memory; losses, covariances, thresholds and solutions from all rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..costs import Cost, Mahalanobis
from ..design import Design
from ..duality import threshold
from ..fences import ROW_FENCE, row_shares, weighted_quantile
from ..metrics import Candidate
from ..problem import Ball, Solution
from ..solvers import Exact
from ..solvers.streamed import (
    Columns,
    Minima,
    Models,
    Problem,
    ScatterSums,
    Stream,
    minimise,
    solve,
)
from ..solvers.streamed import squared as by_moments
from ..solvers.streamed.squared import Moments
from . import candidates as cost_candidates
from .candidates import Candidates, blended
from .checks import check_delta, check_deltas, resolve_order
from .comparison import Comparison
from .folds import FOLD_TOL, FoldScores
from .grid import SIZE, SPAN, Path, solve_path
from .rules import Evidence
from .rules import resolve as resolve_rule
from .selection import Settings, Trial, _compared, _weights
from .streamed_theory import Profile, theory_profile

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class StreamedChoice:
    """The ball, the certified solution on it with its plain risk, and the path of the folds."""

    ball: Ball
    solution: Solution
    risk: float
    path: Path | None
    note: str


@dataclass(frozen=True, eq=False)
class Task:
    """A stream with what a fit asks of it; ``moments`` where the loss is squared."""

    stream: Stream
    order: int
    delta: Any
    settings: Settings
    tol: float
    max_iter: int
    moments: Moments | None = None
    covariance: list[Array] | None = None
    profile: Profile | None = None

    @property
    def folds(self) -> range:
        """The folds."""
        return range(self.stream.folds.count)


def choose(stream: Stream, settings: Settings, tol: float, max_iter: int) -> StreamedChoice:
    """Return the ball that the settings ask for, and the solution on it."""
    sample = stream.kept
    tried = cost_candidates.resolve(settings.cost, sample.X)
    order, delta = order_of(settings, stream), check_delta(settings.delta)
    task = _looked(Task(stream, order, delta, settings, tol, max_iter), tried)
    left, full = tried.from_all(sample)
    full = _from_scatter(task, left, full, -1)
    if delta == "theory":
        profile = theory_profile(stream, full[0], settings.confidence, task.moments)
        task = replace(task, profile=profile)
    if delta == "cv" or left.learned is not None:
        return _from_folds(task, left, full)
    ball = Ball(full[0], float(_deltas(task, full[0])[0]), order)
    solution, risk = _solved(task, ball, None)
    return StreamedChoice(ball, solution, risk, None, left.note)


def order_of(settings: Settings, stream: Stream) -> int:
    """Return the order; refuse a loss, order or cost that is not solved in chunks."""
    loss = stream.loss
    cost = cost_candidates.resolve(settings.cost, stream.X).cost
    order = resolve_order(settings.order, loss, cost)
    reason = lacks(loss, order, cost)
    if reason is not None:
        raise ValueError(reason)
    return order


def lacks(loss: Any, order: int, cost: Cost | None) -> str | None:
    """Return why a problem is not solved in chunks, None if it is."""
    name = type(loss).__name__
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
    if order != 1:
        return f"rows in chunks are fitted at order 1 with {name}, got order=2. Use order=1."
    return None


def _looked(task: Task, tried: Candidates) -> Task:
    """Return the task after the pass that takes moments and scatter, if either is needed."""
    stream, jobs = task.stream, []
    squared = stream.loss.pieces is not None
    if squared:
        jobs.append(by_moments.job(stream))
    scatter = any(_takes_covariance(c) for c in _candidates(tried))
    if scatter:
        center, fence = _fence(stream)
        jobs.append(ScatterSums(replace(stream.blocks, center=center), fence))
    if not jobs:
        return task
    found = stream.chunks.total(*jobs)
    moments = by_moments.moments(stream, found[0]) if squared else None
    return replace(task, moments=moments, covariance=_covariances(found[-1]) if scatter else None)


def _candidates(tried: Candidates) -> list[Candidate]:
    """Return the candidates in the order of their costs."""
    if tried.learned is not None:
        return tried.learned.candidates()
    return [] if tried.learner is None else [Candidate(tried.learner, tried.learner.shrinkage)]


def _takes_covariance(candidate: Candidate) -> bool:
    """Whether the covariance of the rows is all that a learner needs."""
    return hasattr(candidate.learner, "of_covariance") and not candidate.needs_labels


def _fence(stream: Stream) -> tuple[Array, float]:
    """Return the centre of the rows and the distance from it at which they are held."""
    sample = stream.kept
    center, _ = row_shares(sample.X, sample.weights)
    distance = np.sqrt(Design(sample.X, center=center).squared_norms())
    fence = ROW_FENCE * float(weighted_quantile(distance[:, None], sample.weights, 0.5)[0])
    return center, fence or np.inf


def _covariances(found: dict[str, Any]) -> list[Array]:
    """Return the covariance outside each fold, and that of all rows last."""
    parts = len(found["count"])
    total = {name: found[name].sum(axis=0) for name in found}
    tables = [{k: total[k] - found[k][f] for k in total} for f in range(parts)] + [total]
    covariances = []
    for table in tables:
        n = max(float(table["count"]), 1.0)
        mean = table["first"] / n
        covariances.append(table["second"] / n - np.outer(mean, mean))
    return covariances


def _from_scatter(task: Task, tried: Candidates, costs: list[Cost], fold: int) -> list[Cost]:
    """Return the costs of the candidates, with the covariance of all training rows where it is
    what a learner needs."""
    if task.covariance is None:
        return costs
    found = list(costs)
    for c, candidate in enumerate(_candidates(tried)):
        if _takes_covariance(candidate):
            learner = clone(candidate.learner).of_covariance(task.covariance[fold])
            found[c] = Mahalanobis(learner.shrunk(candidate.shrinkage))
    return found


def _solved(task: Task, ball: Ball, start: tuple[Array, float] | None) -> tuple[Solution, float]:
    """Return the certified solution and its plain risk, from a model near it."""
    stream, factor = task.stream, ball.cost.factor()
    if task.moments is not None:
        solutions, risks = by_moments.certified(
            task.moments, factor, np.array([ball.delta]), task.tol
        )
        return solutions[0], float(risks[0])
    if start is None:
        problem = stream.kept.problem(stream.kept.ys[0], ball)
        near = Exact(tol=min(1e-6, max(task.tol, 1e-9))).solve(problem)
        start = near.coef, near.intercept + float(stream.center @ near.coef)
    target = task.tol * stream.constant().risk
    rho = ball.delta * stream.loss.lipschitz if ball.delta > 0 else 0.0
    return solve(Problem(stream, factor, rho), *start, target, task.max_iter)


def _deltas(task: Task, cost: Cost) -> Array:
    """Return the grid of deltas, or the one that is given."""
    settings, stream = task.settings, task.stream
    if isinstance(task.delta, float):
        return np.array([task.delta])
    if task.profile is not None:
        return np.array([task.profile.delta(cost, settings.confidence)])
    if settings.deltas is not None:
        return check_deltas(settings.deltas)
    if task.moments is not None:
        _, pull, mean_square, _ = task.moments.centred()
    else:
        flat = stream.constant()
        pull, mean_square = flat.pull, flat.mean_square
    size = float(cost.norm(pull))
    top = float(threshold(size, mean_square, stream.loss.lipschitz, task.order))
    return (top or 1.0) * np.geomspace(1, SPAN**task.order, SIZE)


@dataclass(frozen=True, eq=False)
class Tried:
    """A cost with its deltas, those learned outside each fold, and its models over all rows."""

    trial: Trial
    everywhere: Models
    objective: Array
    risk: Array
    gap: Array


def _from_folds(task: Task, tried: Candidates, full: list[Cost]) -> StreamedChoice:
    """Choose cost and delta by the same folds."""
    settings = task.settings
    sample, kept = task.stream.kept, task.stream.kept_fold
    learned = [
        _from_scatter(task, tried, tried.costs(sample.rows(np.flatnonzero(kept != f))), f)
        for f in task.folds
    ]
    blends = tried.learned is not None and tried.learned.how == "blend" and len(full) > 1
    found = _tried(task, tried.names, full, learned, certify=not blends)
    best = min(found, key=lambda each: each.trial.verdict.value)
    weights, trials = None, [each.trial for each in found]
    if blends and tried.learned is not None:
        weights = _weights(trials, tried.learned.candidates())
        d = task.stream.chunks.d
        mixed = [[blended(list(costs), weights, d)] for costs in learned]
        [best] = _tried(task, ["Blend"], [blended(full, weights, d)], mixed, certify=True)
    trial = best.trial
    table = _compared(trials, weights, trial)
    if tried.learned is not None:
        trial.cost.comparison_ = Comparison(settings.rule, table)
        if weights is not None:
            trial.cost.weights_ = {t.name: float(w) for t, w in zip(trials, weights, strict=True)}
    return _chosen(task, best, table, tried.note)


def _chosen(task: Task, best: Tried, table: list[Any], note: str) -> StreamedChoice:
    """Return the ball of the best cost, the solution on it, and the path."""
    trial, stream = best.trial, task.stream
    j = trial.verdict.place
    ball = Ball(trial.cost, float(trial.deltas[j]), task.order)
    start = best.everywhere.coef[:, j], float(best.everywhere.b[j])
    solution, risk = _solved(task, ball, start)
    shift = task.moments.shift if task.moments is not None else 0.0
    coef = best.everywhere.coef.T.copy()
    intercept = best.everywhere.b + shift - coef @ stream.center
    path = Path(
        deltas=trial.deltas,
        coef=coef,
        intercept=intercept,
        empirical_risk=best.risk.copy(),
        robust_risk=best.objective.copy(),
        gap=best.gap.copy(),
        score_mean=trial.folds.mean,
        score_se=trial.folds.se,
        candidates=table,
    )
    path.coef[j], path.intercept[j], path.empirical_risk[j] = (
        solution.coef,
        solution.intercept,
        risk,
    )
    path.robust_risk[j], path.gap[j] = solution.objective, solution.gap
    return StreamedChoice(ball, solution, risk, path, note)


def _tried(
    task: Task, names: list[str], full: list[Cost], learned: list[list[Cost]], certify: bool
) -> list[Tried]:
    """Return what the folds say of every cost; ``learned`` are those outside each fold."""
    deltas = [_deltas(task, cost) for cost in full]
    by_cost = list(zip(*learned, strict=True))
    solver = _by_moments if task.moments is not None else _by_newton
    found = solver(task, full, by_cost, deltas, certify)
    rule, stream = resolve_rule(task.settings.rule), task.stream
    distinct = stream.kept.distinct / len(stream.y) * stream.chunks.n
    results = []
    for c, one in enumerate(found):
        folds = _fold_scores(task, one, list(by_cost[c]))
        share = np.array([stream.held(f) for f in task.folds])
        losses = share @ one.held / share.sum()
        evidence = Evidence(
            stream.kept, full[c], task.order, deltas[c], folds, True, None, distinct, losses
        )
        trial = Trial(names[c], full[c], deltas[c], None, folds, rule(evidence))
        results.append(Tried(trial, one.everywhere, one.objective, one.risk, one.gap))
    return results


@dataclass(frozen=True, eq=False)
class Fits:
    """One cost: models over all rows with F, plain risk and gap (m,), those of each fold, and
    their mean losses ``held`` (F, m) on its rows."""

    everywhere: Models
    objective: Array
    risk: Array
    gap: Array
    in_folds: list[Models]
    held: Array


def _fold_scores(task: Task, one: Fits, costs: list[Cost]) -> FoldScores:
    """Return the scores of all rows, with the tested rows in memory and their model scores."""
    stream = task.stream
    rows = [np.flatnonzero(stream.kept_fold == f) for f in task.folds]
    shift = task.moments.shift if task.moments is not None else 0.0
    z = [
        (Design(stream.X[part], center=stream.center).scores(m.coef) + m.b + shift)[None]
        for part, m in zip(rows, one.in_folds, strict=True)
    ]
    return FoldScores(-one.held, rows, z, costs)


def _by_moments(
    task: Task, full: list[Cost], learned: list[Any], deltas: list[Array], certify: bool
) -> list[Fits]:
    """Return the fits of the squared loss, all from moments; certificates take one pass."""
    moments, pieces = task.moments, task.stream.loss.pieces
    assert moments is not None
    assert pieces is not None
    found = []
    for cost, in_folds, grid in zip(full, learned, deltas, strict=True):
        models = [moments.models(c.factor(), grid, f) for f, c in enumerate(in_folds)]
        held = [moments.held(m, f) / (2 * pieces.kappa) for f, m in enumerate(models)]
        risk = objective = gap = np.full(len(grid), np.inf)
        if certify:
            solutions, risk = by_moments.certified(moments, cost.factor(), grid, task.tol)
            objective = np.array([s.objective for s in solutions])
            gap = np.array([s.gap for s in solutions])
        everywhere = moments.models(cost.factor(), grid)
        found.append(Fits(everywhere, objective, risk, gap, models, np.stack(held)))
    return found


def _by_newton(
    task: Task, full: list[Cost], learned: list[Any], deltas: list[Array], certify: bool
) -> list[Fits]:
    """Return the fits of a smooth loss: all costs, folds and deltas as one batch."""
    stream = task.stream
    starts = [
        solve_path(stream.kept, cost, task.order, grid, Exact(tol=FOLD_TOL))[0]
        for cost, grid in zip(full, deltas, strict=True)
    ]
    factors, rho, left_out, group, coef, b = [], [], [], [], [], []
    for c, (cost, in_folds) in enumerate(zip(full, learned, strict=True)):
        for fold, one in [(-1, cost), *enumerate(in_folds)]:
            L = one.factor()
            for j, near in enumerate(starts[c]):
                factors.append(L)
                rho.append(deltas[c][j] * stream.loss.lipschitz)
                left_out.append(fold)
                group.append(sum(map(len, deltas[:c])) + j)
                coef.append(near.coef)
                b.append(near.intercept + float(stream.center @ near.coef))
    columns = Columns(factors, np.array(rho), np.array(left_out), np.array(group))
    found = minimise(stream, columns, np.stack(coef, axis=1), np.array(b), FOLD_TOL, certify)
    if found.unsolved:
        warnings.warn(
            f"{found.unsolved} fits inside folds did not reach their gap; they are scored all the "
            "same. Scale the columns of X.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return _split(found, deltas, stream.folds.count)


def _split(found: Minima, deltas: list[Array], folds: int) -> list[Fits]:
    """Return the fits of every cost out of a batch, in which folds follow all rows."""
    results, place = [], 0
    for grid in deltas:
        m = len(grid)
        parts = [slice(place + i * m, place + (i + 1) * m) for i in range(folds + 1)]
        models = [
            Models(found.models.coef[:, part], found.models.b[part], found.models.left_out[part])
            for part in parts
        ]
        held = np.stack([found.held[part] for part in parts[1:]])
        whole = parts[0]
        results.append(
            Fits(
                models[0],
                found.objective[whole],
                found.risk[whole],
                found.gap[whole],
                models[1:],
                held,
            )
        )
        place += (folds + 1) * m
    return results
