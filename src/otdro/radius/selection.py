"""The ball of a fit: its cost and delta as given, from folds, or from theory."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import library, numpy
from ..costs import Cost
from ..design import WRITTEN_UP_TO, is_wide
from ..losses import Loss
from ..memory import require_fit
from ..pairs import generator
from ..problem import Ball, Sample, Solution
from ..solvers import Solver
from . import candidates as cost_candidates
from .candidates import Candidates, measured_by
from .checks import check_delta, resolve_order
from .comparison import CandidateScore, Comparison
from .environments import environment_losses
from .grid import OutOfFold, Path, solve_path, tidy
from .margins import binary_view
from .prices import open_price, with_prices
from .profile import theory_delta
from .rules import REPEAT_UP_TO, REPEATS, by_margins
from .rules import resolve as resolve_rule
from .scoring import ModelScorer
from .splitting import Split, splits
from .trials import Settings, Trial, Trials, grid_of, judged_on
from .units import spreads_far_apart

Array = NDArray[Any]

#: Paired standard errors that a gain over the Euclidean cost must exceed to count in a blend: where
#: classes are nearly separable a few rows decide on the criterion, and its gains are often noise.
ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class Choice:
    """The ball, with the path where folds chose, and the solutions on it where they are final.

    ``note`` is a sentence on how the ball was chosen that the user should see, or empty.
    """

    ball: Ball
    path: Path | None = None
    solutions: list[Solution] | None = None
    note: str = ""

    def noting(self, sentence: str) -> Choice:
        """Return the choice with one more sentence before its note."""
        return replace(self, note=f"{sentence} {self.note}".strip())


@dataclass(frozen=True, eq=False)
class Compared:
    """What folds say about a sample: the best trial, what they said of all, and a note."""

    trials: Trials
    best: Trial
    table: list[CandidateScore]
    note: str

    def choice(self) -> Choice:
        """Return the ball of the best trial, with the path over all rows."""
        return _chosen(self.trials, self.best, self.table, self.note)


def choose(sample: Sample, solver: Solver, settings: Settings) -> Choice:
    """Return the ball that the settings ask for; a price "cv" is the best of a few."""
    name = open_price(sample)
    if name is None:
        found = _compared(sample, solver, settings, priced=False)
        return found if isinstance(found, Choice) else found.choice()
    *prices, fixed = with_prices(sample, name, settings)
    first = _compared(fixed, solver, settings, priced=True)
    if isinstance(first, Choice):
        # too few rows for folds: labels and targets stay
        return first
    others = [_compared(tried, solver, settings, priced=True) for tried in prices]
    each = [first, *(other for other in others if isinstance(other, Compared))]
    return min(each, key=lambda found: found.best.verdict.value).choice()


def _compared(
    sample: Sample, solver: Solver, settings: Settings, *, priced: bool
) -> Compared | Choice:
    """Return what folds say where they are to choose, a price too if ``priced``, else the ball."""
    tried = cost_candidates.resolve(settings.cost, sample.X, settings.unlabelled)
    order = resolve_order(settings.order, sample.loss, tried.cost)
    delta = check_delta(settings.delta)
    folds = priced or delta == "cv" or tried.learned is not None
    if settings.unlabelled is not None and tried.cost is not None:
        _warn_of_useless_rows(sample, tried.cost, settings, folds=folds)
    _require_memory(sample.X, tried, folds=folds)
    tried, full = tried.from_all(sample)
    if folds:
        return _from_folds(sample, tried, full, order, delta, solver, settings)
    if delta == "theory":
        delta = theory_delta(sample, full[0], order, settings.confidence)
    return Choice(sample.ball(full[0], delta, order), note=tried.note)


def _warn_of_useless_rows(sample: Sample, cost: Cost, settings: Settings, *, folds: bool) -> None:
    """Say that rows without labels play no part where a cost is given and no rule looks at them."""
    if not folds or judged_on(sample, [cost], settings) is None:
        warnings.warn(
            f"neither the cost {cost!r} nor the choice of delta has a use for unlabelled rows, so "
            "that they play no part. Leave them out, or use cost='learned' or delta='cv' with the "
            "rule 'auto'.",
            UserWarning,
            stacklevel=2,
        )


def _require_memory(X: Any, tried: Candidates, *, folds: bool) -> None:
    """Refuse a fit that cannot fit into the memory of this machine, where that holds the rows."""
    if library(X) is None:
        require_fit(X, folds=folds, learned=tried.cost is None, written=not is_wide(X))


def _from_folds(
    sample: Sample,
    tried: Candidates,
    full: list[Cost],
    order: int,
    delta: Any,
    solver: Solver,
    settings: Settings,
) -> Compared | Choice:
    """Compare costs and deltas by the same folds; a delta that is given leaves the cost to choose.

    ``full`` are the costs of the candidates ``tried``, learned from all rows.
    """
    resolve_rule(settings.rule)
    scorer = _scorer(settings, sample.loss)
    folds = _splits(sample, full, settings)
    if not folds:
        return _without_folds(sample, full[0], order, delta, solver, settings)
    trials = Trials(sample, order, delta, solver, settings, folds, scorer)
    if tried.learned is not None:
        trials, tried, full = _in_units(trials, tried, full)
    blends = tried.blends and len(full) > 1
    found = (trials.for_weights() if blends else trials).run(tried, full)
    best = min(found, key=lambda trial: trial.verdict.value)
    weights = None
    if blends:
        weights = blend_weights(found)
        best = trials.blend(found, weights)
    table = noted(settings, tried, found, weights, best)
    return Compared(trials, best, table, tried.note)


def _in_units(
    trials: Trials, tried: Candidates, full: list[Cost]
) -> tuple[Trials, Candidates, list[Cost]]:
    """Measure columns that are far apart by their spread, where the folds prefer that.

    Unlike a blend this is a choice: in a mean of two matrices that are far apart each column would
    have the larger of two prices, and the large columns would decide alone. What is far out is
    measured likewise: a cell may be so in a small column though its row is not among large ones.
    """
    units = spreads_far_apart(trials.sample)
    if units is None:
        return trials, tried, full
    spread = measured_by(units, tried)
    by_spread = replace(trials, sample=replace(trials.sample, units=units))
    [own] = trials.for_weights().each([tried.even(trials.sample)])
    [measured] = by_spread.for_weights().each([spread.even(trials.sample)])
    if own.verdict.value < measured.verdict.value:
        return trials, tried, full
    return by_spread, *spread.from_all(trials.sample)


def noted(
    settings: Settings, tried: Candidates, found: list[Trial], weights: Array | None, best: Trial
) -> list[CandidateScore]:
    """Return what the folds said about every candidate; a learned cost carries it too."""
    table = candidate_scores(found, weights, best)
    if tried.learned is not None:
        # made here, not the user's own: it may carry what it was made of
        best.cost.comparison_ = Comparison(settings.rule, table)
        if weights is not None:
            best.cost.weights_ = {t.name: float(w) for t, w in zip(found, weights, strict=True)}
    return table


def blend_weights(found: list[Trial]) -> Array:
    r"""Return :math:`w_c \propto \exp(-\mathrm{excess}_c/\mathrm{unit})`.

    The excess is over the Euclidean cost, the first.
    """
    unit = max(min(trial.verdict.unit for trial in found), np.finfo(float).tiny)
    over = np.array([excess(trial, found[0]) for trial in found])
    weights = np.exp((over.min() - over) / unit)
    return weights / weights.sum()


def excess(trial: Trial, reference: Trial) -> float:
    """Return the criterion of a trial minus that of another on the same folds.

    A loss counts in full, a gain as far as it exceeds ``ERRORS`` paired standard errors.
    """
    mine, its = trial.verdict, reference.verdict
    difference = mine.value - its.value
    if difference >= 0:
        return difference
    # the steeper of the two slopes: a loss near zero is known badly
    error = max(mine.slope, its.slope) * trial.folds.paired_error(
        mine.place, reference.folds, its.place
    )
    return min(0.0, difference + ERRORS * error)


def _chosen(trials: Trials, best: Trial, table: list[CandidateScore], note: str) -> Choice:
    """Return the ball of a trial, with the path over all rows."""
    sample, groups = trials.sample, trials.settings.groups
    near = trials.solver.cost_in_folds(best.cost)
    known: dict[str, Any] = {
        "score_mean": best.folds.mean,
        "score_se": best.folds.se,
        "candidates": table,
    }
    if groups is not None:
        known["environments"] = environment_losses(*binary_view(sample, best.folds), groups)
    known["out_of_fold"] = OutOfFold(
        np.concatenate(best.folds.rows),
        np.concatenate([_scores_at(z, best.verdict.place) for z in best.folds.z]),
    )
    best.folds.forget_rows()
    solved, linear = trials.path(near, best), best.folds.path is not None
    path = tidy(sample, best.deltas, solved, linear=linear, **known)
    j = best.verdict.place
    final = [row[j] for row in solved] if near is best.cost else None
    ball = sample.ball(best.cost, float(best.deltas[j]), trials.order)
    return Choice(ball, path, final, note)


def _scores_at(z: Array, place: int) -> Array:
    """Return the scores (rows, K) at one delta from those of a fold, (K, rows, m) or of softmax."""
    scores = numpy(z[:, :, place])
    return scores[0] if scores.ndim == 3 else scores.T


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
    """Take the first candidate and the middle of its deltas, with a warning: there are no folds."""
    grid = grid_of(sample, cost, order, delta, settings)
    place = len(grid) // 2
    chosen = float(grid[place])
    note = (
        f"The {len(sample.weights)} rows allow no folds that could choose, so delta={chosen:.3g} "
        f"is the middle of the grid, under the cost {cost!r}."
    )
    warnings.warn(f"{note} Give more rows, or a number as delta.", UserWarning, stacklevel=2)
    near = solver.cost_in_folds(cost)
    solved = solve_path(sample, near, order, grid, solver)
    path = tidy(sample, grid, solved)
    final = [row[place] for row in solved] if near is cost else None
    return Choice(sample.ball(cost, chosen, order), path, final, note)


def _splits(sample: Sample, costs: list[Cost], settings: Settings) -> list[Split]:
    """Return the folds, repeated where rows are few, not wide, and the rule can use it."""
    n, d = sample.X.shape
    few = n <= REPEAT_UP_TO and d <= WRITTEN_UP_TO and by_margins(settings.rule, costs)
    repeats = REPEATS if few else 1
    seed = _seed(settings.random_state)
    return splits(sample, settings.cv, settings.groups, seed, repeats, settings.classes)


def candidate_scores(
    found: list[Trial], weights: Array | None, best: Trial
) -> list[CandidateScore]:
    """Return what the folds said about every candidate, and about their blend if that is taken."""
    if weights is None:
        return [_score(trial, float(trial is best), trial is best) for trial in found]
    parts = [_score(trial, float(w), False) for trial, w in zip(found, weights, strict=True)]
    return [*parts, _score(best, 1.0, True)]


def _score(trial: Trial, weight: float, chosen: bool) -> CandidateScore:
    place, folds = trial.verdict.place, trial.folds
    return CandidateScore(
        trial.name,
        trial.deltas,
        folds.mean,
        folds.se,
        float(trial.deltas[place]),
        float(folds.mean[place]),
        trial.verdict.value,
        chosen,
        weight,
    )


def _seed(random_state: Any) -> int:
    """Return the seed of the folds; None is 0, so that a fit repeats."""
    if random_state is None:
        return 0
    return int(generator(random_state).randint(2**31 - 1))
