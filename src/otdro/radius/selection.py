"""The ball of a fit: its cost and delta as given, from folds, or from theory.

``choose_ball`` is the one chooser. It asks a ``FoldLosses`` for costs learned from rows, for deltas
to try, and for what models fitted inside folds lose; the subclass for rows in chunks
(``radius.chunks``) answers the same questions from passes over them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from operator import itemgetter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..arrays import library, numpy, pick
from ..costs import Cost
from ..design import WRITTEN_UP_TO, Design, is_wide
from ..memory import require_fit
from ..pairs import generator
from ..problem import Ball, Sample, Solution
from ..solvers import Solver
from . import candidates as cost_candidates
from .candidates import (
    Candidates,
    CandidateScore,
    Comparison,
    blended,
    measured_by,
    spreads_far_apart,
)
from .checks import check_delta, check_deltas, resolve_order
from .evidence import (
    EnvironmentLosses,
    Evidence,
    FoldScores,
    binary_view,
    environment_losses,
    rows_to_look_at,
)
from .folds import FoldFits, ModelScorer, Split, compared, cross_validate, splits
from .grid import Path, Solved, default_deltas, solve_path, tidy
from .profile import theory_delta
from .rules import REPEAT_UP_TO, REPEATS, Verdict, by_margins
from .rules import resolve as resolve_rule

Array = NDArray[Any]

#: Paired standard errors that a gain over the Euclidean cost must exceed to count in a blend: where
#: classes are nearly separable a few rows decide on the criterion, and its gains are often noise.
ERRORS = 2.0
#: Usual lengths of a move between rows within which rows are taken in the units given: beyond them
#: sums of squares lose their digits to constants of the methods.
SMALL_UNIT = 2.0**-20
#: The other end.
LARGE_UNIT = 2.0**40
#: Rows from which the length of a usual move is taken.
UNIT_ROWS = 256
#: Deltas that are tried below a grid whose least one is too large: a further factor 1/13.
FURTHER = 7
#: Every such delta of a grid is tried where costs are compared on a part of the rows, or where rows
#: are wide.
EVERY = 3


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
    tolerance: float = 0.05
    groups: Array | None = None
    unlabelled: Array | None = None
    sample_weight: Array | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """The ball, the certified solutions on it, one per target vector, and the path if folds chose.

    ``note`` is a sentence on how the ball was chosen that the user should see, or empty.
    """

    ball: Ball
    solutions: list[Solution]
    path: Path | None = None
    note: str = ""


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
    final: bool


@dataclass(frozen=True, eq=False)
class FoldLosses:
    """Rows in memory: the costs learned from them, the deltas to try and what folds lose.

    Every ``every``-th delta of a grid is tried, and ``further`` ones below it. ``by_rows`` is the
    place of the grid that folds of rows chose, where folds of environments follow them.
    """

    sample: Sample
    order: int
    delta: Any
    solver: Solver
    settings: Settings
    splits: list[Split] = field(default_factory=list)
    scorer: ModelScorer | None = None
    every: int = 1
    further: int = 0
    by_rows: int | None = None

    def costs(self, tried: Candidates) -> tuple[Candidates, list[Cost]]:
        """Return what is left of the candidates, and their costs learned from all rows."""
        return tried.from_all(self.sample)

    def costs_in_folds(self, tried: Candidates) -> list[list[Cost]]:
        """Return ``learned[f][c]``: cost c learned without fold f."""
        if tried.cost is not None and not tried.cost.learns:
            return [[tried.cost] for _ in self.splits]
        learned: list[list[Cost]] = Parallel(n_jobs=self.settings.n_jobs)(
            delayed(tried.costs)(self.sample.rows(train)) for train, _ in self.splits
        )
        return learned

    def with_folds(self, costs: list[Cost]) -> FoldLosses:
        """Return these rows with their folds: none where rows are too few.

        Folds are repeated where rows are few, not wide, and the rule can use it.
        """
        sample, settings = self.sample, self.settings
        n, d = sample.X.shape
        scorer = None
        if settings.scoring is not None:
            scorer = ModelScorer(
                settings.estimator,
                settings.scoring,
                sample.loss,
                settings.y,
                settings.classes,
                settings.sample_weight,
            )
        few = n <= REPEAT_UP_TO and d <= WRITTEN_UP_TO and by_margins(settings.rule, costs)
        # None is a fixed seed, so that a fit repeats
        state = settings.random_state
        seed = 0 if state is None else int(generator(state).randint(2**31 - 1))
        repeats = REPEATS if few else 1
        pairs = splits(sample, settings.cv, settings.groups, seed, repeats, settings.classes)
        return replace(self, splits=pairs, scorer=scorer)

    def rows_choose_first(self, costs: list[Cost]) -> bool:
        """Whether folds of rows choose the cost, and folds of environments may then move delta.

        Folds that the user gives, a scorer, and rules of one kind of folds are taken at their word.
        """
        settings = self.settings
        made_here = settings.cv is None or isinstance(settings.cv, int | np.integer)
        if settings.groups is None or settings.scoring is not None or not made_here:
            return False
        rule = "auto" if settings.rule == "worst" else settings.rule
        return self.delta == "cv" and by_margins(rule, costs)

    def in_units(self, units: Array) -> FoldLosses:
        """Return these rows with what is far out measured in units of the columns."""
        return replace(self, sample=replace(self.sample, units=units))

    def deltas(self, cost: Cost) -> Array:
        """Return the deltas to try under a cost: one that is given or from theory, or a grid."""
        if isinstance(self.delta, float):
            return np.array([self.delta])
        if self.delta == "theory":
            return np.array([self.theory_delta(cost)])
        given = self.settings.deltas
        grid = self.default_deltas(cost) if given is None else check_deltas(given)
        if self.further and given is None:
            ratio = grid[-1] / grid[-2]
            grid = np.append(grid, grid[-1] * ratio ** np.arange(1, self.further + 1))
        return grid[:: self.every]

    def theory_delta(self, cost: Cost) -> float:
        """Return the delta of the robust Wasserstein profile."""
        return theory_delta(self.sample, cost, self.order, self.settings.confidence)

    def default_deltas(self, cost: Cost) -> Array:
        """Return the grid from the zero threshold down."""
        return default_deltas(self.sample, cost, self.order)

    def scores(
        self,
        names: list[str],
        costs: list[Cost],
        learned: list[list[Cost]],
        deltas: list[Array],
        final: bool,
    ) -> list[FoldScores]:
        """Return what the folds say of every cost along its deltas."""
        fits = FoldFits(
            sample=self.sample,
            order=self.order,
            solver=self.solver,
            splits=self.splits,
            scorer=self.scorer,
            unlabelled=judged_on(self.sample, costs, self.settings),
            n_jobs=self.settings.n_jobs,
        )
        return cross_validate(fits, costs, learned, deltas, final=final)

    def evidence(self, cost: Cost, deltas: Array, folds: FoldScores) -> Evidence:
        """Return what a rule may look at."""
        view, margins = binary_view(self.sample, folds)
        own, groups = self.scorer is None, self.settings.groups
        return Evidence(view, cost, self.order, deltas, margins, own, groups)

    def run(self, names: list[str], costs: list[Cost], learned: list[list[Cost]]) -> list[Trial]:
        """Return one trial per cost; ``learned[f][c]`` is cost c learned without fold f."""
        rule = resolve_rule(self.settings.rule)
        deltas = [self.deltas(cost) for cost in costs]
        # the path of the only cost will be that of the fit
        final = len(costs) == 1
        scores = self.scores(names, costs, learned, deltas, final)
        unsolved = sum(folds.unsolved for folds in scores)
        if unsolved:
            warnings.warn(
                f"{unsolved} fits inside folds did not reach their gap; they are scored all the "
                "same. Raise max_iter or scale the columns of X.",
                ConvergenceWarning,
                stacklevel=2,
            )
        trials = []
        for name, cost, grid, folds in zip(names, costs, deltas, scores, strict=True):
            evidence = self.evidence(cost, grid, folds)
            verdict = rule(
                replace(evidence, tolerance=self.settings.tolerance, by_rows=self.by_rows)
            )
            trials.append(Trial(name, cost, grid, folds, verdict, final))
        return trials

    def to_compare(self) -> FoldLosses:
        """Return the rows on which costs are compared.

        Of much data a part says as much as the choice can use, but not at one delta, by a scorer or
        by environments.
        """
        if self.delta != "cv" or self.scorer is not None or self.settings.groups is not None:
            return self
        sample, pairs = compared(self.sample, self.splits)
        if sample is self.sample and not is_wide(sample.X):
            return self
        return replace(self, sample=sample, splits=pairs, every=EVERY)

    def compare(self, tried: Candidates, costs: list[Cost]) -> tuple[list[Trial], list[list[Cost]]]:
        """Return the trials that the weights of a blend come from, and the costs in their folds."""
        part = self.to_compare()
        learned = part.costs_in_folds(tried)
        return part.run(tried.names, costs, learned), learned

    def environments(self, folds: FoldScores) -> EnvironmentLosses | None:
        """Return the losses of the environments, None where rows have none."""
        if self.settings.groups is None:
            return None
        return environment_losses(*binary_view(self.sample, folds), self.settings.groups)

    def path(self, best: Trial) -> Solved:
        """Return the path of a trial over all rows, certified at the chosen delta."""
        j, path = best.verdict.place, best.folds.path
        # scores of rows, of which there may be many, are not needed any more
        best.folds.z.clear()
        if path is None or not best.final:
            path = solve_path(self.sample, best.cost, self.order, best.deltas, self.solver)
        chosen = [row[j] for row in path]
        # passes that folds share leave no dual point
        if any(s.dual is None and s.mean_loss is not None for s in chosen):
            ball = self.sample.ball(best.cost, float(best.deltas[j]), self.order)
            for row, solution in zip(path, self.solutions(ball, chosen), strict=True):
                row[j] = solution
        return path

    def solutions(self, ball: Ball, starts: list[Solution] | None) -> list[Solution]:
        """Return the certified solutions of all target vectors, from solutions near them."""
        problems = [self.sample.problem(y, ball) for y in self.sample.ys]
        near = None if starts is None else [[start] for start in starts]
        return [path[0] for path in self.solver.solve(problems, [ball.delta], near)]


def choose(sample: Sample, solver: Solver, settings: Settings) -> Choice:
    """Return the ball that the settings ask for, around rows in memory.

    Rows in very small or large units are measured in others inside, so that the choice does not
    depend on them.
    """
    tried = cost_candidates.resolve(settings.cost, sample.X, settings.unlabelled)
    order = resolve_order(settings.order, sample.loss, tried.cost)
    unit = _unit(sample, tried.cost) if solver.unit_free else 1.0
    if unit == 1.0:
        return _choose(sample, solver, settings, tried, order)
    # distances are in units of ``unit``, and so are prices and radii
    price = unit**order
    inside = replace(
        sample,
        X=sample.X * (1 / unit),
        support=None if sample.support is None else sample.support * (1 / unit),
        label_cost=sample.label_cost / price,
        target_cost=sample.target_cost / price,
    )
    given = isinstance(settings.delta, Real) and not isinstance(settings.delta, bool)
    asked = replace(
        settings,
        delta=settings.delta / price if given else settings.delta,
        deltas=None if settings.deltas is None else np.asarray(settings.deltas) / price,
        unlabelled=None if settings.unlabelled is None else settings.unlabelled * (1 / unit),
    )
    return in_given_units(_choose(inside, solver, asked, tried, order), sample, unit, price)


def _unit(sample: Sample, cost: Cost | None) -> float:
    """Return the power of 2 next to the length of a usual move between rows, 1 where it is usual.

    A cost that is not a norm has no unit.
    """
    if cost is not None and not cost.is_norm:
        return 1.0
    n = sample.X.shape[0]
    some = np.unique(np.linspace(0, n - 1, min(n, UNIT_ROWS)).astype(int))
    rows: Any = pick(sample.X, some)
    if hasattr(rows, "nnz"):
        # written out, wide rows would be larger than all of X
        lengths = np.sqrt(Design(rows).squared_norms())
    else:
        moves = numpy(rows) - numpy(rows).mean(axis=0)
        lengths = np.linalg.norm(moves, axis=1) if cost is None else numpy(cost.norm(moves))
    length = float(np.sqrt(np.mean(lengths**2)))
    if length == 0 or SMALL_UNIT <= length <= LARGE_UNIT:
        return 1.0
    return float(2.0 ** np.round(np.log2(length)))


def in_given_units(choice: Choice, sample: Sample, unit: float, price: float) -> Choice:
    """Return a choice for rows divided by ``unit`` as one for the rows themselves."""

    def scored(one: CandidateScore) -> CandidateScore:
        return replace(one, deltas=one.deltas * price, delta=one.delta * price)

    solutions = [
        replace(s, coef=s.coef / unit, multiplier=s.multiplier / price) for s in choice.solutions
    ]
    path = choice.path
    if path is not None:
        path = replace(
            path,
            deltas=path.deltas * price,
            coef=path.coef / unit,
            candidates=[scored(one) for one in path.candidates],
        )
    ball = sample.ball(choice.ball.cost, choice.ball.delta * price, choice.ball.order)
    compared = getattr(ball.cost, "comparison_", None)
    if compared is not None:
        ball.cost.comparison_ = replace(compared, candidates=[*map(scored, compared.candidates)])
    return replace(choice, ball=ball, solutions=solutions, path=path)


def _choose(
    sample: Sample, solver: Solver, settings: Settings, tried: Candidates, order: int
) -> Choice:
    """Return the ball that the settings ask for, in the units of the sample."""
    delta = check_delta(settings.delta)
    folds = delta == "cv" or tried.learned is not None
    costs = [] if tried.cost is None else [tried.cost]
    given = settings.unlabelled is not None and tried.cost is not None
    if given and not (folds and judged_on(sample, costs, settings) is not None):
        warnings.warn(
            f"neither the cost {tried.cost!r} nor the choice of delta has a use for unlabelled "
            "rows, so that they play no part. Leave them out, or use cost='learned' or delta='cv' "
            "with the rule 'auto'.",
            UserWarning,
            stacklevel=2,
        )
    if library(sample.X) is None:
        written = not is_wide(sample.X)
        require_fit(sample.X, folds=folds, learned=tried.cost is None, written=written)
    return choose_ball(FoldLosses(sample, order, delta, solver, settings), tried)


def choose_ball(data: FoldLosses, tried: Candidates) -> Choice:
    """Return the ball: cost and delta by the same folds, or one of them where both are given."""
    folds = data.delta == "cv" or tried.learned is not None
    tried, costs = data.costs(tried)
    if not folds:
        ball = data.sample.ball(costs[0], float(data.deltas(costs[0])[0]), data.order)
        return Choice(ball, data.solutions(ball, None), note=tried.note)
    resolve_rule(data.settings.rule)
    data = data.with_folds(costs)
    of_environments = None
    if data.rows_choose_first(costs):
        rows = replace(data.settings, groups=None, rule="auto")
        of_rows = replace(data, settings=rows).with_folds(costs)
        if of_rows.splits:
            of_environments, data = data, of_rows
    if not data.splits:
        return _without_folds(data, costs[0])
    if tried.learned is not None:
        data, tried, costs = _in_units(data, tried, costs)
    weights = None
    taken: Callable[[list[Cost]], Cost]
    if len(costs) > 1 and tried.learned is not None and tried.learned.how == "blend":
        trials, learned = data.compare(tried, costs)
        weights = blend_weights(trials)
        taken = partial(blended, weights=weights, d=data.sample.X.shape[1])
        in_folds = [[taken(of_fold)] for of_fold in learned]
        [best] = data.run(["Blend"], [taken(costs)], in_folds)
    else:
        learned = data.costs_in_folds(tried)
        trials = data.run(tried.names, costs, learned)
        best = min(trials, key=lambda trial: trial.verdict.value)
        taken = itemgetter(trials.index(best))
        in_folds = [[taken(of_fold)] for of_fold in learned]
    if best.verdict.beyond and data.settings.deltas is None and data.delta == "cv":
        data = replace(data, further=FURTHER)
        [further] = data.run([best.name], [best.cost], in_folds)
        trials = [further if trial is best else trial for trial in trials]
        best = further
    if of_environments is not None:
        data = replace(
            data,
            settings=of_environments.settings,
            splits=of_environments.splits,
            by_rows=best.verdict.place,
        )
        in_folds = [[taken(of_fold)] for of_fold in data.costs_in_folds(tried)]
        [moved] = data.run([best.name], [best.cost], in_folds)
        trials = [moved if trial is best else trial for trial in trials]
        best = moved
    table = candidate_scores(trials, weights, best)
    if tried.learned is not None:
        # made here, not the user's own: it may carry what it was made of
        best.cost.comparison_ = Comparison(data.settings.rule, table)
        if weights is not None:
            best.cost.weights_ = {t.name: float(w) for t, w in zip(trials, weights, strict=True)}
    environments = data.environments(best.folds)
    place = best.verdict.place
    out_of_fold = best.folds.out_of_fold(place)
    solved = data.path(best)
    path = tidy(
        data.sample,
        best.deltas,
        solved,
        score_mean=best.folds.mean,
        score_se=best.folds.se,
        candidates=table,
        environments=environments,
        out_of_fold=out_of_fold,
    )
    ball = data.sample.ball(best.cost, float(best.deltas[place]), data.order)
    return Choice(ball, [row[place] for row in solved], path, tried.note)


def _in_units(
    data: FoldLosses, tried: Candidates, costs: list[Cost]
) -> tuple[FoldLosses, Candidates, list[Cost]]:
    """Measure columns that are far apart by their spread, where the folds prefer that.

    Unlike a blend this is a choice: in a mean of two matrices that are far apart each column would
    have the larger of two prices, and the large columns would decide alone. What is far out is
    measured likewise: a cell may be so in a small column though its row is not among large ones.
    """
    units = spreads_far_apart(data.sample)
    if units is None:
        return data, tried, costs
    spread = measured_by(units, tried)
    by_spread = data.in_units(units)
    even, even_spread = tried.even(data.sample), spread.even(data.sample)
    [own], _ = data.compare(Candidates(cost=even), [even])
    [measured], _ = by_spread.compare(Candidates(cost=even_spread), [even_spread])
    if own.verdict.value < measured.verdict.value:
        return data, tried, costs
    return by_spread, *by_spread.costs(spread)


def _without_folds(data: FoldLosses, cost: Cost) -> Choice:
    """Take the first candidate and the middle of its deltas, with a warning: there are no folds."""
    sample, grid = data.sample, data.deltas(cost)
    place = len(grid) // 2
    delta = float(grid[place])
    note = (
        f"The {len(sample.weights)} rows allow no folds that could choose, so delta={delta:.3g} "
        f"is the middle of the grid, under the cost {cost!r}."
    )
    warnings.warn(f"{note} Give more rows, or a number as delta.", UserWarning, stacklevel=2)
    solved = solve_path(sample, cost, data.order, grid, data.solver)
    ball = sample.ball(cost, delta, data.order)
    return Choice(ball, [row[place] for row in solved], tidy(sample, grid, solved), note)


def judged_on(sample: Sample, costs: list[Cost], settings: Settings) -> Array | None:
    """Return the rows without labels that help the rule to judge models, None if none do.

    Environments that folds leave out are unlike the others, so that rows of these say nothing.
    """
    smooths = by_margins(settings.rule, costs) and settings.scoring is None
    if not smooths or settings.groups is not None:
        return None
    return rows_to_look_at(settings.unlabelled, sample)


def blend_weights(trials: list[Trial]) -> Array:
    r"""Return :math:`w_c \propto \exp(-\mathrm{excess}_c/\mathrm{unit})`.

    The excess is over the Euclidean cost, the first.
    """
    unit = max(min(trial.verdict.unit for trial in trials), np.finfo(float).tiny)
    over = np.array([excess(trial, trials[0]) for trial in trials])
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


def candidate_scores(
    trials: list[Trial], weights: Array | None, best: Trial
) -> list[CandidateScore]:
    """Return what the folds said about every candidate, and about their blend if that is taken."""

    def scored(trial: Trial, weight: float, chosen: bool) -> CandidateScore:
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

    if weights is None:
        return [scored(trial, float(trial is best), trial is best) for trial in trials]
    parts = [scored(trial, float(w), False) for trial, w in zip(trials, weights, strict=True)]
    return [*parts, scored(best, 1.0, True)]
