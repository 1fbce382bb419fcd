"""The ball of a fit: its cost and delta as given, from folds, or from theory."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..losses import Loss
from ..pairs import generator
from ..problem import Ball, Sample, Solution
from ..solvers import Solver
from . import candidates as cost_candidates
from .candidates import Candidates
from .checks import check_delta, check_deltas, resolve_order
from .comparison import CandidateScore, Comparison
from .folds import FOLD_TOL, FoldScores, ModelScorer, Split, cross_validate, splits
from .grid import Path, default_deltas, solve_path, tidy
from .margins import binary_view
from .prices import open_price, with_prices
from .profile import theory_delta
from .rules import REPEAT_UP_TO, REPEATS, Evidence, Verdict
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
    groups: Array | None = None
    sample_weight: Array | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """The ball, with the path where folds chose, and the solutions on it where they are final.

    ``note`` is a sentence on how the ball was chosen that the user should see, or empty.
    """

    ball: Ball
    path: Path | None = None
    solutions: list[Solution] | None = None
    note: str = ""
    criterion: float = np.inf

    def noting(self, sentence: str) -> Choice:
        """Return the choice with one more sentence before its note."""
        return replace(self, note=f"{sentence} {self.note}".strip())


def choose(sample: Sample, solver: Solver, settings: Settings) -> Choice:
    """Return the ball that the settings ask for; a price "cv" is the best of a few."""
    name = open_price(sample)
    if name is not None:
        found = [choose(tried, solver, settings) for tried in with_prices(sample, name, settings)]
        return min(found, key=lambda choice: choice.criterion)
    tried = cost_candidates.resolve(settings.cost, sample.X)
    order = resolve_order(settings.order, sample.loss, tried.cost)
    delta = check_delta(settings.delta)
    tried, full = tried.from_all(sample)
    if delta == "cv" or tried.learned is not None:
        return _from_folds(sample, tried, full, order, delta, solver, settings)
    if delta == "theory":
        delta = theory_delta(sample, full[0], order, settings.confidence)
    return Choice(sample.ball(full[0], delta, order), note=tried.note)


def _from_folds(
    sample: Sample,
    tried: Candidates,
    full: list[Cost],
    order: int,
    delta: Any,
    solver: Solver,
    settings: Settings,
) -> Choice:
    """Choose cost and delta by the same folds; a delta that is given leaves the cost to choose.

    ``full`` are the costs of the candidates ``tried``, learned from all rows.
    """
    rule = resolve_rule(settings.rule)
    scorer = _scorer(settings, sample.loss)
    pairs = _splits(sample, full, settings)
    if not pairs:
        return _without_folds(sample, full[0], order, delta, solver, settings)
    deltas = [_deltas(sample, cost, order, delta, settings) for cost in full]
    starts = [
        solve_path(sample, cost, order, grid, solver.in_folds(FOLD_TOL))
        if solver.starts_pay(sample.problem(sample.ys[0], sample.ball(cost, grid[0], order)))
        else None
        for cost, grid in zip(full, deltas, strict=True)
    ]
    shared = (solver, pairs, scorer, settings.n_jobs, starts)
    scores = cross_validate(sample, tried, order, deltas, *shared)
    views = [binary_view(sample, folds) for folds in scores]
    verdicts = [
        rule(Evidence(view, cost, order, grid, seen, scorer is None))
        for cost, grid, (view, seen) in zip(full, deltas, views, strict=True)
    ]
    best = int(np.argmin([verdict.value for verdict in verdicts]))
    table = _compared(tried.names, deltas, scores, verdicts, best)
    cost = full[best]
    if tried.learned is not None:
        # made here, not the user's own: it may carry what it won against
        cost.comparison_ = Comparison(settings.rule, table)
    near = solver.cost_in_folds(cost)
    solved = solve_path(sample, near, order, deltas[best], solver, starts[best])
    known = {"score_mean": scores[best].mean, "score_se": scores[best].se, "candidates": table}
    path = tidy(sample, deltas[best], solved, squeeze=True, **known)
    j = verdicts[best].place
    ball = sample.ball(cost, float(deltas[best][j]), order)
    final = [row[j] for row in solved] if near is cost else None
    return Choice(ball, path, final, tried.note, verdicts[best].value)


def _scorer(settings: Settings, loss: Loss) -> ModelScorer | None:
    if settings.scoring is None:
        return None
    return ModelScorer(
        settings.estimator,
        settings.scoring,
        loss,
        settings.y,
        settings.classes,
        settings.sample_weight,
    )


def _without_folds(
    sample: Sample, cost: Cost, order: int, delta: Any, solver: Solver, settings: Settings
) -> Choice:
    """Take the first candidate and the middle of its deltas, where no fold can be made, aloud."""
    grid = _deltas(sample, cost, order, delta, settings)
    place = len(grid) // 2
    chosen = float(grid[place])
    note = (
        f"The {len(sample.weights)} rows allow no folds that could choose, so delta={chosen:.3g} "
        f"is the middle of the grid, under the cost {cost!r}."
    )
    warnings.warn(f"{note} Give more rows, or a number as delta.", UserWarning, stacklevel=2)
    near = solver.cost_in_folds(cost)
    solved = solve_path(sample, near, order, grid, solver)
    path = tidy(sample, grid, solved, squeeze=True)
    final = [row[place] for row in solved] if near is cost else None
    return Choice(sample.ball(cost, chosen, order), path, final, note)


def _splits(sample: Sample, costs: list[Cost], settings: Settings) -> list[Split]:
    """Return the folds, repeated where rows are few and the rule can use it."""
    few = len(sample.weights) <= REPEAT_UP_TO and settings.rule in ("auto", "smoothed")
    repeats = REPEATS if few and all(cost.is_norm for cost in costs) else 1
    seed = _seed(settings.random_state)
    return splits(sample, settings.cv, settings.groups, seed, repeats, settings.classes)


def _compared(
    names: list[str],
    deltas: list[Array],
    scores: list[FoldScores],
    verdicts: list[Verdict],
    best: int,
) -> list[CandidateScore]:
    """Return what the folds said about every candidate."""
    return [
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
            zip(names, deltas, scores, verdicts, strict=True)
        )
    ]


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
    return int(generator(random_state).randint(2**31 - 1))
