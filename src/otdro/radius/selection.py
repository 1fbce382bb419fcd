"""The ball of a fit: its cost and delta as given, from folds, or from theory."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .. import costs
from ..costs import CallableCost, Cost
from ..losses import Loss
from ..problem import Ball, Solution
from ..solvers import Solver
from . import candidates as cost_candidates
from .candidates import Candidates
from .comparison import CandidateScore, Comparison
from .folds import ModelScorer, cross_validate, splits
from .grid import Path, Sample, default_deltas, solve_path, tidy
from .profile import theory_delta
from .rules import REPEAT_UP_TO, REPEATS, Evidence
from .rules import resolve as resolve_rule

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of an estimator that say how its ball is chosen."""

    cost: Any
    order: Any
    delta: Any
    cv: Any
    scoring: Any
    rule: str
    deltas: Any
    confidence: float
    n_jobs: int | None
    random_state: Any
    estimator: Any
    y: Array
    classes: Array | None
    groups: Any = None


@dataclass(frozen=True, eq=False)
class Choice:
    """The ball, with the path and the solutions on it where folds chose."""

    ball: Ball
    path: Path | None = None
    solutions: list[Solution] | None = None


def choose(sample: Sample, solver: Solver, settings: Settings) -> Choice:
    """Return the ball that the settings ask for."""
    tried = cost_candidates.resolve(settings.cost, sample.X)
    order = resolve_order(settings.order, sample.loss, tried.cost)
    delta = check_delta(settings.delta)
    if isinstance(delta, float) and tried.learned is None:
        return Choice(Ball(tried.costs(sample)[0], delta, order))
    if delta == "theory" and tried.learned is None:
        cost = tried.costs(sample)[0]
        return Choice(Ball(cost, theory_delta(sample, cost, order, settings.confidence), order))
    return _from_folds(sample, tried, order, delta, solver, settings)


def _from_folds(
    sample: Sample, tried: Candidates, order: int, delta: Any, solver: Solver, settings: Settings
) -> Choice:
    """Choose cost and delta by the same folds; a delta that is given leaves the cost to choose."""
    rule = resolve_rule(settings.rule)
    full = tried.costs(sample)
    deltas = [_deltas(sample, cost, order, delta, settings) for cost in full]
    scorer = None
    if settings.scoring is not None:
        scorer = ModelScorer(settings.estimator, settings.scoring, settings.y, settings.classes)
    seed = _seed(settings.random_state)
    few = len(sample.weights) <= REPEAT_UP_TO and settings.rule in ("auto", "smoothed")
    few &= all(cost.is_norm for cost in full)
    repeats = REPEATS if few else 1
    pairs = splits(sample, settings.cv, settings.groups, seed, repeats, settings.classes)
    scores = cross_validate(sample, tried, order, deltas, solver, pairs, scorer, settings.n_jobs)
    verdicts = [
        rule(Evidence(sample, cost, order, grid, folds, scorer is None))
        for cost, grid, folds in zip(full, deltas, scores, strict=True)
    ]
    best = int(np.argmin([verdict.value for verdict in verdicts]))
    table = [
        CandidateScore(
            name,
            grid,
            folds.mean,
            folds.se,
            float(grid[verdict.place]),
            float(folds.mean[verdict.place]),
            verdict.value,
            c == best,
        )
        for c, (name, grid, folds, verdict) in enumerate(
            zip(tried.names, deltas, scores, verdicts, strict=True)
        )
    ]
    if tried.learned is not None:
        # made here, not the user's own: it may carry what it won against
        full[best].comparison_ = Comparison(settings.rule, table)
    solved = solve_path(sample, full[best], order, deltas[best], solver)
    path = tidy(
        sample,
        deltas[best],
        solved,
        squeeze=True,
        score_mean=scores[best].mean,
        score_se=scores[best].se,
        candidates=table,
    )
    j = verdicts[best].place
    return Choice(Ball(full[best], float(deltas[best][j]), order), path, [row[j] for row in solved])


def _deltas(sample: Sample, cost: Cost, order: int, delta: Any, settings: Settings) -> Array:
    if isinstance(delta, float):
        return np.array([delta])
    if delta == "theory":
        return np.array([theory_delta(sample, cost, order, settings.confidence)])
    if settings.deltas is not None:
        return check_deltas(settings.deltas)
    return default_deltas(sample, cost, order)


def _seed(random_state: Any) -> int:
    """Return the seed of the folds; None is 0, so that a fit repeats."""
    if random_state is None:
        return 0
    return int(check_random_state(random_state).randint(2**31 - 1))


def resolve_cost(cost: Any) -> Cost:
    """Return the cost that a name or a Cost stands for."""
    if isinstance(cost, str) and cost in costs.KNOWN:
        return costs.KNOWN[cost]
    if isinstance(cost, Cost):
        return cost
    raise ValueError(f"unknown cost={cost!r}; known: {', '.join(costs.KNOWN)}, or a Cost.")


def resolve_order(order: Any, loss: Loss, cost: Cost | None) -> int:
    """Return 1 or 2; "auto" is 1 for a Lipschitz loss with a norm as cost, else 2."""
    if isinstance(cost, CallableCost):
        if order != "auto":
            raise ValueError(f"a function is the cost itself: leave order='auto', got {order!r}.")
        return 1
    if isinstance(order, str) and order == "auto":
        norm = cost is None or cost.is_norm
        return 1 if norm and np.isfinite(loss.lipschitz) else 2
    if not isinstance(order, bool) and order in (1, 2):
        return int(order)
    raise ValueError(f"order must be 1, 2 or 'auto', got order={order!r}.")


def check_delta(delta: Any) -> Any:
    """Return a float >= 0, "cv" or "theory"."""
    if isinstance(delta, str) and delta in ("cv", "theory"):
        return delta
    if isinstance(delta, Real) and not isinstance(delta, bool) and 0 <= float(delta) < np.inf:
        return float(delta)
    raise ValueError(f"delta must be a number >= 0, 'cv' or 'theory', got delta={delta!r}.")


def check_deltas(deltas: Any) -> Array:
    """Return a grid of deltas, descending; refuse an empty, unsorted or negative one."""
    grid = np.asarray(deltas, dtype=float)
    if grid.ndim != 1 or len(grid) == 0:
        raise ValueError(f"deltas must be a list of at least one number, got {deltas!r}.")
    if not np.isfinite(grid).all() or grid.min() < 0:
        raise ValueError(f"deltas must be finite and >= 0, got {grid.min():g} to {grid.max():g}.")
    steps = np.diff(grid)
    if not (np.all(steps < 0) or np.all(steps > 0)):
        raise ValueError("deltas must be sorted, without repetition; sort them.")
    return grid if len(grid) == 1 or steps[0] < 0 else grid[::-1]
