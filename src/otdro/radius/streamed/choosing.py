"""The ball of a fit to rows in chunks: folds, deltas and costs share the passes over them.

What is learned from neighbours, and the noise that the rules weigh against, come from the rows in
memory; losses, covariances, thresholds and solutions from all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...chunks import Job, Sums
from ...costs import Cost
from ...design import Design
from ...problem import Ball, Solution
from ...solvers import Exact
from ...solvers.streamed import Stream, together
from ...solvers.streamed import squared as by_factors
from .. import candidates as cost_candidates
from ..candidates import Candidates, blended, measured_by
from ..checks import check_delta, resolve_order
from ..environments import Environments
from ..evidence import Evidence
from ..folds import FoldScores
from ..grid import tabled
from ..margins import binary_view
from ..rules import resolve as resolve_rule
from ..selection import Choice, blend_weights, noted
from ..splitting import usable
from ..trials import Settings, Trial, Trials, on_a_part, resolve_deltas
from ..units import spreads_far_apart
from . import fits
from .grouping import environments_of
from .kept import kept_splits, with_price
from .learning import (
    candidates_of,
    covariances,
    fence_of,
    from_scatter,
    scatter_job,
    takes_covariance,
)
from .solving import method
from .task import Task
from .theory import theory_of
from .thresholds import fenced_job, grid_of

Array = NDArray[Any]


def choose(stream: Stream, settings: Settings, tol: float, max_iter: int) -> Choice:
    """Return the ball that the settings ask for, and the solution on it."""
    tried, delta = (
        cost_candidates.resolve(settings.cost, stream.rows.X),
        check_delta(settings.delta),
    )
    order = resolve_order(settings.order, stream.loss, tried.cost)
    reason = lacks(stream.loss, order, tried, stream.label_cost)
    if reason is not None:
        raise ValueError(reason)
    stream = with_price(stream, settings, tol, max_iter)
    sample = stream.sample
    units = None if tried.learned is None else spreads_far_apart(sample)
    task = _looked(Task(stream, order, delta, settings, tol, max_iter, units=units), tried)
    left, full = tried.from_all(sample)
    full = from_scatter(task, left, full, -1)
    if delta == "theory":
        known = (order, settings.confidence, task.squared)
        task = replace(task, theory=theory_of(stream, full[0], *known))
    if delta == "cv" or left.learned is not None:
        return _from_folds(task, left, full)
    ball = task.ball(full[0], _deltas(task, full[0])[0])
    return Choice(ball, None, _solved(task, ball, None), left.note)


def lacks(loss: Any, order: int, tried: Candidates, label_cost: Any = np.inf) -> str | None:
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
    if label_cost != np.inf and (order == 2 or loss.outputs > 1):
        return (
            f"label_cost={label_cost!r} is for rows in chunks at order=1 and for one score per "
            "row: use order=1 and, of three classes or more, multi_class='ovr', or rows that fit "
            "into memory."
        )
    return None


def _looked(task: Task, tried: Candidates) -> Task:
    """Return the task after the pass that takes factors, scatter and fenced sums, where needed."""
    stream, looks = task.stream, dict[str, tuple[Job, Callable[[Sums], Any]]]()
    scatter = any(takes_covariance(c) for c in candidates_of(tried))
    if stream.loss.pieces is not None:
        looks["squared"] = by_factors.job(stream), partial(by_factors.factors, stream)
    if scatter:
        looks["covariance"] = scatter_job(stream), covariances
    if scatter and task.units is not None:
        looks["covariance_in_units"] = scatter_job(stream, task.units), covariances
    if task.delta == "cv" and task.settings.deltas is None:
        fenced = fenced_job(stream, *fence_of(stream), by_factors.shift(stream))
        looks["grid"] = fenced, lambda found: grid_of(stream, task.squared, fenced, found)
    found = stream.chunks.total(*(job for job, _ in looks.values())) if looks else []
    for (name, (_, of)), sums in zip(looks.items(), found, strict=True):
        # the grid follows from the factors, which come first
        task = replace(task, **{name: of(sums)})
    return task


def _solved(task: Task, ball: Ball, starts: list[Solution] | None) -> list[Solution]:
    """Return the certified solutions, one for each model, from models near them."""
    stream, factor = task.stream, ball.cost.factor()
    if task.squared is not None:
        return by_factors.certified(task.squared, factor, np.array([ball.delta]), task.tol)
    methods = [
        method(model, ball, None if starts is None else starts[k], task.tol, task.max_iter)
        for k, model in enumerate(stream.models)
    ]
    solutions = together(stream.chunks, methods)
    if ball.order == 2 and ball.delta == 0:
        # the risk rises with the root of delta
        rates = [np.inf if solution.coef.any() else 0.0 for solution in solutions]
        solutions = [replace(s, multiplier=m) for s, m in zip(solutions, rates, strict=True)]
    return solutions


def _deltas(task: Task, cost: Cost) -> Array:
    """Return the grid of deltas, or the one that is given."""

    def theory() -> float:
        assert task.theory is not None
        return task.theory(cost)

    def default() -> Array:
        assert task.grid is not None
        return task.grid(cost, task.order)

    return resolve_deltas(task.delta, task.settings, theory, default)


@dataclass(frozen=True, eq=False)
class Tried:
    """A cost with what its folds said, and what that says about the environments."""

    trial: Trial
    environments: Environments | None


def _from_folds(task: Task, tried: Candidates, full: list[Cost]) -> Choice:
    """Choose cost and delta by the same folds."""
    tried, full = _in_units(task, tried, full)
    learned = _outside(task, tried)
    if not tried.blends or len(full) == 1:
        found = _tried(task, tried.names, full, learned)
        best = min(found, key=lambda each: each.trial.verdict.value)
        weights, trials = None, [each.trial for each in found]
    else:
        trials = _compared(task, tried, full, learned)
        weights = blend_weights(trials)
        d = task.stream.chunks.d
        mixed = [[blended(costs, weights, d)] for costs in learned]
        [best] = _tried(task, ["Blend"], [blended(full, weights, d)], mixed)
    table = noted(task.settings, tried, trials, weights, best.trial)
    return _chosen(task, best, table, tried.note)


def _in_units(task: Task, tried: Candidates, full: list[Cost]) -> tuple[Candidates, list[Cost]]:
    """Return the candidates with columns far apart measured by their spread, if folds prefer it."""
    if task.units is None or tried.learned is None:
        return tried, full
    spread = measured_by(task.units, tried)
    own, measured = (
        _compared(task, Candidates(cost=even), [even], [[even] for _ in task.folds])[0]
        for even in (each.even(task.stream.kept) for each in (tried, spread))
    )
    if own.verdict.value < measured.verdict.value:
        return tried, full
    spread, costs = spread.from_all(task.stream.sample)
    return spread, from_scatter(task, spread, costs, -1)


def _compared(
    task: Task, tried: Candidates, full: list[Cost], learned: list[list[Cost]]
) -> list[Trial]:
    """Return what folds say of costs to compare, ``learned`` those outside each fold.

    Where rows in memory would be compared on a part of them, the part is of the rows kept here.
    """
    kept = _kept_trials(task)
    if kept is None:
        return [each.trial for each in _tried(task, tried.names, full, learned)]
    return kept.run(tried, full, learned)


def _kept_trials(task: Task) -> Trials | None:
    """Return the trials on a part of the rows in memory; None where all rows are to be asked."""
    stream, sample = task.stream, task.stream.sample
    splits = kept_splits(stream)
    grouped = stream.folds.groups is not None
    if not on_a_part(task.delta, None, grouped) or not all(usable(sample, *s) for s in splits):
        return None
    solver = Exact(tol=task.tol, max_iter=task.max_iter)
    trials = Trials(sample, task.order, task.delta, solver, task.settings, splits, None)
    return trials.for_weights()


def _outside(task: Task, tried: Candidates) -> list[list[Cost]]:
    """Return the costs of the candidates learned from the rows outside each fold."""
    sample, kept = task.stream.sample, task.stream.kept_fold
    return [
        from_scatter(task, tried, tried.costs(sample.rows(np.flatnonzero(kept != f))), f)
        for f in task.folds
    ]


def _chosen(task: Task, best: Tried, table: list[Any], note: str) -> Choice:
    """Return the ball of the best cost, the solutions on it, and the path."""
    trial, j = best.trial, best.trial.verdict.place
    ball = task.ball(trial.cost, trial.deltas[j])
    near = trial.folds.path or []
    solutions = _solved(task, ball, [path[j] for path in near])
    pairs = zip(near, solutions, strict=True)
    solved = [[*path[:j], found, *path[j + 1 :]] for path, found in pairs]
    path = tabled(
        trial.deltas,
        solved,
        np.array([[found.mean_loss for found in path] for path in solved]),
        score_mean=trial.folds.mean,
        score_se=trial.folds.se,
        candidates=table,
        environments=None if best.environments is None else best.environments.losses,
    )
    return Choice(ball, path, solutions, note)


def _tried(
    task: Task, names: list[str], full: list[Cost], learned: list[list[Cost]]
) -> list[Tried]:
    """Return what the folds say of every cost; ``learned`` are those outside each fold."""
    deltas = [_deltas(task, cost) for cost in full]
    by_cost = list(zip(*learned, strict=True))
    found = fits.of_costs(task, full, by_cost, deltas)
    rule, stream = resolve_rule(task.settings.rule), task.stream
    distinct = stream.kept.distinct / len(stream.rows.y) * stream.chunks.n
    results = []
    for c, (one, seen) in enumerate(zip(found, environments_of(task, found), strict=True)):
        folds = _fold_scores(task, one, list(by_cost[c]))
        share = np.array([stream.held(f) for f in task.folds])
        losses = share @ one.held / share.sum()
        view, margins = binary_view(stream.sample, folds)
        known = (task.order, deltas[c], margins, True, None, distinct, losses, seen)
        verdict = rule(Evidence(view, full[c], *known))
        trial = Trial(names[c], full[c], deltas[c], folds, verdict)
        results.append(Tried(trial, seen))
    return results


def _fold_scores(task: Task, one: fits.Fits, costs: list[Cost]) -> FoldScores:
    """Return the scores of all rows, with the tested rows in memory and their model scores."""
    stream, K = task.stream, len(one.solved)
    rows = [np.flatnonzero(stream.kept_fold == f) for f in task.folds]
    z = []
    for part, models in zip(rows, one.in_folds, strict=True):
        scores = models.scores(Design(stream.rows.X[part] - stream.center))
        shape = (len(part), K, len(models) // K, *scores.shape[2:])
        z.append(np.moveaxis(scores.reshape(shape), 1, 0))
    return FoldScores(-one.held, rows, z, costs, one.solved)
