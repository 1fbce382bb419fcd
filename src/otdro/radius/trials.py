"""Trying costs on folds: for each its deltas, what the folds say, and where the rule stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..design import is_wide
from ..problem import Sample
from ..solvers import Solver
from .candidates import Candidates, blended
from .checks import check_deltas
from .compared import EVERY, compared
from .evidence import Evidence
from .folds import FOLD_TOL, AskedPath, FoldFits, FoldScores, cross_validate
from .grid import Solved, solve_path
from .margins import binary_view
from .profile import theory_delta
from .rules import Verdict, by_margins
from .rules import resolve as resolve_rule
from .scoring import ModelScorer
from .splitting import Split
from .thresholds import default_deltas
from .unlabelled import rows_to_look_at

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
    unlabelled: Array | None = None
    sample_weight: Array | None = None


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate cost on its deltas: what its folds said, and where the rule would stop.

    The path over all rows is ``final`` if it has the accuracy of the fit.
    """

    name: str
    cost: Cost
    deltas: Array
    folds: FoldScores
    verdict: Verdict
    final: bool = False


@dataclass(frozen=True, eq=False)
class Trials:
    """What trying costs on the same folds takes."""

    sample: Sample
    order: int
    delta: Any
    solver: Solver
    settings: Settings
    splits: list[Split]
    scorer: ModelScorer | None
    every: int = 1

    def for_weights(self) -> Trials:
        """Return the trials that the weights of a blend come from: of much data, fewer."""
        if not on_a_part(self.delta, self.scorer, self.settings.groups is not None):
            return self
        sample, splits = compared(self.sample, self.splits)
        if sample is self.sample and not is_wide(sample.X):
            return self
        return replace(self, sample=sample, splits=splits, every=EVERY)

    def blend(self, found: list[Trial], weights: Array) -> Trial:
        """Return the trial of the weighted mean of the matrices that others learned."""
        d = self.sample.X.shape[1]
        full = blended([trial.cost for trial in found], weights, d)
        in_folds = [
            [blended(list(costs), weights, d)]
            for costs in zip(*(trial.folds.costs for trial in found), strict=True)
        ]
        [trial] = self.run(Candidates(cost=full, name="Blend"), [full], in_folds)
        return trial

    def each(self, costs: list[Cost]) -> list[Trial]:
        """Return the trials of costs that are known."""
        return [self.run(Candidates(cost=cost), [cost])[0] for cost in costs]

    def run(
        self, tried: Candidates, full: list[Cost], learned: list[list[Cost]] | None = None
    ) -> list[Trial]:
        """Return one trial per candidate; ``full`` are their costs, learned from all rows.

        ``learned`` are those of every fold, where they are known already.
        """
        sample, order, settings = self.sample, self.order, self.settings
        rule = resolve_rule(settings.rule)
        deltas = [
            grid_of(sample, cost, order, self.delta, settings)[:: self.every] for cost in full
        ]
        # the path of the only candidate will be that of the fit
        final = len(full) == 1
        tol = 0.0 if final else FOLD_TOL
        asked = [AskedPath(cost, grid, tol) for cost, grid in zip(full, deltas, strict=True)]
        more = judged_on(sample, full, settings)
        fits = FoldFits(sample, order, self.solver, self.scorer, more)
        scores = cross_validate(fits, tried, asked, self.splits, settings.n_jobs, learned)
        own, groups = self.scorer is None, settings.groups
        views = [binary_view(sample, folds) for folds in scores]
        verdicts = [
            rule(Evidence(view, cost, order, grid, seen, own, groups))
            for cost, grid, (view, seen) in zip(full, deltas, views, strict=True)
        ]
        parts = (tried.names, full, deltas, scores, verdicts, [final] * len(full))
        return [Trial(*part) for part in zip(*parts, strict=True)]

    def path(self, cost: Cost, trial: Trial) -> Solved:
        """Return the path of a trial over all rows under a cost, to the accuracy of the fit.

        One that was found with the folds may lack dual points: that of the chosen delta is found.
        """
        sample, j, path = self.sample, trial.verdict.place, trial.folds.path
        if not trial.final or path is None:
            return solve_path(sample, cost, self.order, trial.deltas, self.solver, path)
        delta = float(trial.deltas[j])
        problems = [sample.problem(y, sample.ball(cost, delta, self.order)) for y in sample.ys]
        for problem, row in zip(problems, path, strict=True):
            if row[j].dual is None:
                [[row[j]]] = self.solver.solve([problem], [delta], [[row[j]]])
        return path


def judged_on(sample: Sample, costs: list[Cost], settings: Settings) -> Array | None:
    """Return the rows without labels that help the rule to judge models, None if none do.

    Environments that folds leave out are unlike the others, so that rows of these say nothing.
    """
    smooths = by_margins(settings.rule, costs) and settings.scoring is None
    if not smooths or settings.groups is not None:
        return None
    return rows_to_look_at(settings.unlabelled, sample)


def on_a_part(delta: Any, scorer: Any, grouped: bool) -> bool:
    """Whether a part of the rows says enough of costs to blend: not at one delta or by groups."""
    return bool(delta == "cv" and scorer is None and not grouped)


def grid_of(sample: Sample, cost: Cost, order: int, delta: Any, settings: Settings) -> Array:
    """Return the deltas to try under a cost."""

    def theory() -> float:
        return theory_delta(sample, cost, order, settings.confidence)

    return resolve_deltas(delta, settings, theory, lambda: default_deltas(sample, cost, order))


def resolve_deltas(
    delta: Any, settings: Settings, theory: Callable[[], float], default: Callable[[], Array]
) -> Array:
    """Return the delta that is given or follows from theory, or the grid given or by default."""
    if isinstance(delta, float):
        return np.array([delta])
    if delta == "theory":
        return np.array([theory()])
    return default() if settings.deltas is None else check_deltas(settings.deltas)
