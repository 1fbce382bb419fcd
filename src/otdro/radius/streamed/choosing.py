"""The ball of a fit to rows in chunks: folds, deltas and costs share the passes over them.

What is learned from neighbours, and the noise that the rules weigh against, come from the rows in
memory; losses, covariances, thresholds and solutions from all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...chunks import Job
from ...costs import Cost
from ...design import Design
from ...duality import threshold
from ...problem import Ball, Solution
from ...solvers import Exact
from ...solvers.streamed import Models, ScatterSums, Stream, StreamedProblem, solve
from ...solvers.streamed import squared as by_moments
from .. import candidates as cost_candidates
from ..candidates import Candidates, blended
from ..checks import check_delta, check_deltas, resolve_order
from ..comparison import Comparison
from ..folds import FoldScores
from ..grid import SIZE, SPAN, Path
from ..rules import Evidence
from ..rules import resolve as resolve_rule
from ..selection import Settings, Trial, blend_weights, scores_told
from . import fits
from .learning import candidates_of, covariances, fence_of, from_scatter, takes_covariance
from .task import Task
from .theory import theory_profile

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class StreamedChoice:
    """The ball, the certified solution on it with its plain risk, and the path of the folds."""

    ball: Ball
    solution: Solution
    risk: float
    path: Path | None
    note: str


def choose(stream: Stream, settings: Settings, tol: float, max_iter: int) -> StreamedChoice:
    """Return the ball that the settings ask for, and the solution on it."""
    sample = stream.kept
    tried = cost_candidates.resolve(settings.cost, sample.X)
    order, delta = order_of(settings, stream), check_delta(settings.delta)
    task = _looked(Task(stream, order, delta, settings, tol, max_iter), tried)
    left, full = tried.from_all(sample)
    full = from_scatter(task, left, full, -1)
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
    stream = task.stream
    jobs: list[Job] = []
    squared = stream.loss.pieces is not None
    if squared:
        jobs.append(by_moments.job(stream))
    scatter = any(takes_covariance(c) for c in candidates_of(tried))
    if scatter:
        center, fence = fence_of(stream)
        jobs.append(ScatterSums(replace(stream.blocks, center=center), fence))
    if not jobs:
        return task
    found = stream.chunks.total(*jobs)
    moments = by_moments.moments(stream, found[0]) if squared else None
    return replace(task, moments=moments, covariance=covariances(found[-1]) if scatter else None)


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
    return solve(StreamedProblem(stream, factor, rho), *start, target, task.max_iter)


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
        from_scatter(task, tried, tried.costs(sample.rows(np.flatnonzero(kept != f))), f)
        for f in task.folds
    ]
    blends = tried.learned is not None and tried.learned.how == "blend" and len(full) > 1
    found = _tried(task, tried.names, full, learned, certify=not blends)
    best = min(found, key=lambda each: each.trial.verdict.value)
    weights, trials = None, [each.trial for each in found]
    if blends and tried.learned is not None:
        weights = blend_weights(trials, tried.learned.candidates())
        d = task.stream.chunks.d
        mixed = [[blended(list(costs), weights, d)] for costs in learned]
        [best] = _tried(task, ["Blend"], [blended(full, weights, d)], mixed, certify=True)
    trial = best.trial
    table = scores_told(trials, weights, trial)
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
    solver = fits.by_moments if task.moments is not None else fits.by_newton
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


def _fold_scores(task: Task, one: fits.Fits, costs: list[Cost]) -> FoldScores:
    """Return the scores of all rows, with the tested rows in memory and their model scores."""
    stream = task.stream
    rows = [np.flatnonzero(stream.kept_fold == f) for f in task.folds]
    shift = task.moments.shift if task.moments is not None else 0.0
    z = [
        (Design(stream.X[part], center=stream.center).scores(m.coef) + m.b + shift)[None]
        for part, m in zip(rows, one.in_folds, strict=True)
    ]
    return FoldScores(-one.held, rows, z, costs)
