"""The ball of a fit: its cost and delta as given, from folds, or from theory.

``choose`` is the one chooser; ``radius.chunks`` calls it for the rows that are kept in memory. Each
candidate cost gets a ``Trial``: its folds at every delta, and where the rule would stop.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ..arrays import beside, library, numpy, pick, require_fit
from ..costs import Cost, Norm
from ..design import WRITTEN_UP_TO, Design, is_wide
from ..pairs import generator
from ..problem import Ball, Sample, Solution
from ..solvers import Solver
from . import candidates as cost_candidates
from .candidates import (
    MEASURED_BY_SPREAD,
    STANDARDISED,
    Candidates,
    CandidateScore,
    Comparison,
    blended,
    in_units_of_columns,
    spreads_far_apart,
)
from .checks import check_delta, check_deltas, resolve_order
from .folds import (
    REPEAT_UP_TO,
    REPEATS,
    FoldScores,
    Scorer,
    Split,
    compared,
    cross_validate,
    model_scorer,
    splits,
)
from .grid import Path, default_deltas, solve_path, tidy
from .profile import theory_delta
from .rules import Evidence, Verdict, binary_view, by_margins, environment_losses
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
    """A candidate cost on its deltas: what its folds said, and where the rule would stop."""

    name: str
    cost: Cost
    deltas: Array
    folds: FoldScores
    verdict: Verdict

    def scored(self, weight: float, chosen: bool) -> CandidateScore:
        """Return what the folds said, with the weight of this cost in that of the fit."""
        place, folds = self.verdict.place, self.folds
        return CandidateScore(
            self.name,
            self.deltas,
            folds.mean,
            folds.se,
            float(self.deltas[place]),
            float(folds.mean[place]),
            self.verdict.value,
            chosen,
            weight,
        )


@dataclass(frozen=True, eq=False)
class RowsInFolds:
    """The rows of a fit, how its ball is chosen, and the folds.

    Every ``every``-th delta of a grid is tried, and ``further`` ones below it. ``by_rows`` is the
    place of the grid that folds of rows chose, where folds of environments follow them.
    """

    sample: Sample
    order: int
    delta: Any
    solver: Solver
    settings: Settings
    splits: list[Split] = field(default_factory=list)
    scorer: Scorer | None = None
    every: int = 1
    further: int = 0
    by_rows: int | None = None

    def with_folds(self, costs: list[Cost]) -> RowsInFolds:
        """Return these rows with their folds: none where rows are too few.

        Folds are repeated where rows are few, not wide, and the rule can use it.
        """
        sample, settings = self.sample, self.settings
        n, d = sample.X.shape
        scorer = None
        if settings.scoring is not None:
            scorer = model_scorer(
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

    def in_units(self, units: Any, price: float) -> RowsInFolds:
        """Return the rows divided by ``units``, with prices and radii divided by ``price``."""
        sample, settings = self.sample, self.settings

        def divided(rows: Any) -> Any:
            if rows is None or np.ndim(units) == 0:
                return None if rows is None else rows * (1 / units)
            is_sparse = bool(sparse.issparse(rows))
            if is_sparse:
                return sparse.csr_array(rows.multiply(1 / units))
            return rows * beside(1 / units, rows)

        return replace(
            self,
            sample=replace(
                sample,
                X=divided(sample.X),
                support=divided(sample.support),
                label_cost=sample.label_cost / price,
                target_cost=sample.target_cost / price,
            ),
            delta=self.delta / price if isinstance(self.delta, float) else self.delta,
            settings=replace(
                settings,
                deltas=None if settings.deltas is None else check_deltas(settings.deltas) / price,
                unlabelled=divided(settings.unlabelled),
            ),
        )

    def costs_in_folds(self, tried: Candidates) -> list[list[Cost]]:
        """Return ``learned[f][c]``: cost c learned without fold f."""
        if tried.cost is not None and not tried.cost.learns:
            return [[tried.cost] for _ in self.splits]
        learned: list[list[Cost]] = Parallel(n_jobs=self.settings.n_jobs)(
            delayed(tried.costs)(self.sample.rows(train), self.settings.unlabelled)
            for train, _ in self.splits
        )
        return learned

    def deltas(self, cost: Cost) -> Array:
        """Return the deltas to try under a cost: one that is given or from theory, or a grid."""
        if isinstance(self.delta, float):
            return np.array([self.delta])
        if self.delta == "theory":
            confidence = self.settings.confidence
            return np.array([theory_delta(self.sample, cost, self.order, confidence)])
        if self.settings.deltas is not None:
            return check_deltas(self.settings.deltas)[:: self.every]
        grid = default_deltas(self.sample, cost, self.order)
        if self.further:
            ratio = grid[-1] / grid[-2]
            grid = np.append(grid, grid[-1] * ratio ** np.arange(1, self.further + 1))
        return grid[:: self.every]

    def run(self, names: list[str], costs: list[Cost], learned: list[list[Cost]]) -> list[Trial]:
        """Return one trial per cost; ``learned[f][c]`` is cost c learned without fold f."""
        settings, rule = self.settings, resolve_rule(self.settings.rule)
        deltas = [self.deltas(cost) for cost in costs]
        scores = cross_validate(
            self.sample,
            self.order,
            self.solver,
            self.splits,
            costs,
            learned,
            deltas,
            names=names,
            scorer=self.scorer,
            n_jobs=settings.n_jobs,
            # the path of the only cost will be that of the fit
            final=len(costs) == 1,
        )
        trials, unsolved = [], 0
        for name, cost, grid, folds in zip(names, costs, deltas, scores, strict=True):
            view, margins = binary_view(self.sample, folds)
            evidence = Evidence(
                sample=view,
                cost=cost,
                order=self.order,
                deltas=grid,
                folds=margins,
                own_loss=self.scorer is None,
                groups=settings.groups,
                tolerance=settings.tolerance,
                by_rows=self.by_rows,
            )
            trials.append(Trial(name, cost, grid, folds, rule(evidence)))
            unsolved += folds.unsolved
        if unsolved:
            warnings.warn(
                f"{unsolved} fits inside folds did not reach their gap; they are scored all the "
                "same. Raise max_iter or scale the columns of X.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return trials

    def compare(self, tried: Candidates, costs: list[Cost]) -> tuple[list[Trial], list[list[Cost]]]:
        """Return the trials that the weights of a blend come from, and the costs in their folds.

        Of much data a part says as much as the choice can use, but not at one delta, by a scorer or
        by environments.
        """
        part = self
        if self.delta == "cv" and self.scorer is None and self.settings.groups is None:
            sample, pairs = compared(self.sample, self.splits)
            if sample is not self.sample or is_wide(sample.X):
                part = replace(self, sample=sample, splits=pairs, every=EVERY)
        learned = part.costs_in_folds(tried)
        return part.run(tried.names, costs, learned), learned

    def solutions(self, ball: Ball, starts: list[Solution] | None = None) -> list[Solution]:
        """Return the certified solutions of all target vectors, from solutions near them."""
        problems = [self.sample.problem(y, ball) for y in self.sample.ys]
        near = None if starts is None else [[start] for start in starts]
        return [path[0] for path in self.solver.solve(problems, [ball.delta], near)]


@np.errstate(all="ignore")
def choose(sample: Sample, solver: Solver, settings: Settings) -> Choice:
    """Return the ball that the settings ask for, around rows in memory.

    Rows in very small or large units are measured in others inside, so that the choice does not
    depend on them. Criteria that overflow are not chosen: floating point warnings say no more.
    """
    tried = cost_candidates.resolve(settings.cost, sample.X)
    order = resolve_order(settings.order, sample.loss, tried.cost)
    delta = check_delta(settings.delta)
    folds = delta == "cv" or tried.learned is not None
    if settings.unlabelled is not None and tried.cost is not None:
        warnings.warn(
            f"the cost {tried.cost!r} has no use for unlabelled rows, so that they play no part. "
            "Leave them out, or use cost='learned'.",
            UserWarning,
            stacklevel=2,
        )
    if library(sample.X) is None:
        written = not is_wide(sample.X)
        require_fit(sample.X, folds=folds, learned=tried.cost is None, written=written)
    rows = RowsInFolds(sample, order, delta, solver, settings)
    unit = _unit(sample, tried.cost) if solver.unit_free else 1.0
    if unit == 1.0:
        return _choose(rows, tried)
    return in_given_units(
        _choose(rows.in_units(unit, unit**order), tried), sample, unit, unit**order
    )


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


def in_given_units(choice: Choice, sample: Sample, unit: Any, price: float) -> Choice:
    """Return a choice for rows divided by ``unit`` as one for the rows of ``sample``.

    Its radii were divided by ``price``. A ``unit`` of every column changes the cost as well.
    """
    cost = choice.ball.cost
    name = {}
    if np.ndim(unit) > 0:
        cost = in_units_of_columns(cost, 1 / unit)
        name = {"Euclidean": STANDARDISED}

    solutions = [
        replace(s, coef=s.coef / unit, multiplier=s.multiplier / price) for s in choice.solutions
    ]
    path = choice.path
    if path is not None:
        table = [
            replace(
                one,
                name=name.get(one.name, one.name),
                deltas=one.deltas * price,
                delta=one.delta * price,
            )
            for one in path.candidates
        ]
        path = replace(path, deltas=path.deltas * price, coef=path.coef / unit, candidates=table)
        compared = getattr(choice.ball.cost, "comparison_", None)
        if compared is not None:
            _describe(cost, compared.rule, table)
    ball = sample.ball(cost, choice.ball.delta * price, choice.ball.order)
    return replace(choice, ball=ball, solutions=solutions, path=path)


def _describe(cost: Any, rule: str, table: list[CandidateScore]) -> None:
    """Let a learned cost, which is not the user's own, carry what it was made of."""
    cost.comparison_ = Comparison(rule, table)
    if cost.comparison_.blended:
        cost.weights_ = {one.name: one.weight for one in table if not one.chosen}


def _choose(rows: RowsInFolds, tried: Candidates) -> Choice:
    """Return the ball: cost and delta by the same folds, or one of them where both are given."""
    folds = rows.delta == "cv" or tried.learned is not None
    tried, costs = tried.from_all(rows.sample, rows.settings.unlabelled)
    if not folds:
        ball = rows.sample.ball(costs[0], float(rows.deltas(costs[0])[0]), rows.order)
        return Choice(ball, rows.solutions(ball), note=tried.note)
    resolve_rule(rows.settings.rule)
    rows = rows.with_folds(costs)
    of_environments = None
    if rows.rows_choose_first(costs):
        settings = replace(rows.settings, groups=None, rule="auto")
        of_rows = replace(rows, settings=settings).with_folds(costs)
        if of_rows.splits:
            of_environments, rows = rows, of_rows
    if not rows.splits:
        return _without_folds(rows, costs[0])
    if tried.learned is not None:
        units = _preferred_units(rows)
        if units is not None:
            measured = rows if of_environments is None else of_environments
            choice = _choose(measured.in_units(units, 1.0), tried)
            choice = in_given_units(choice, rows.sample, units, 1.0)
            return replace(choice, note=f"{MEASURED_BY_SPREAD} {choice.note}".strip())
    rows, best, table = _best_trial(rows, tried, costs, of_environments)
    return _along_path(rows, best, table, tried.note)


def _best_trial(
    rows: RowsInFolds, tried: Candidates, costs: list[Cost], of_environments: RowsInFolds | None
) -> tuple[RowsInFolds, Trial, list[CandidateScore]]:
    """Return the trial of the candidates' blend, or of the best of them, and what folds said.

    The rows have the folds of that trial: those ``of_environments`` follow, if there are any.
    """
    trials: list[Trial] = []
    weights, name = np.ones(1), tried.names[0]
    if len(costs) == 1:
        learned = rows.costs_in_folds(tried)
    else:
        trials, learned = rows.compare(tried, costs)
        weights, name = blend_weights(trials), "Blend"
        if tried.learned is not None and tried.learned.how == "choose":
            least = int(np.argmin([trial.verdict.value for trial in trials]))
            weights, name = np.eye(len(costs))[least], tried.names[least]

    def taken(costs: list[Cost]) -> Cost:
        if name == "Blend":
            return blended(costs, weights, rows.sample.X.shape[1])
        return costs[int(weights.argmax())]

    cost, in_folds = taken(costs), [[taken(of_fold)] for of_fold in learned]
    [best] = rows.run([name], [cost], in_folds)
    given = rows.settings.deltas is not None or rows.delta != "cv"
    # rows of the same environments do not show that labels have no noise in others
    if best.verdict.beyond and not given and of_environments is None:
        rows = replace(rows, further=FURTHER)
        [best] = rows.run([name], [cost], in_folds)
    if of_environments is not None:
        rows = replace(
            rows,
            settings=of_environments.settings,
            splits=of_environments.splits,
            by_rows=best.verdict.place,
        )
        in_folds = [[taken(of_fold)] for of_fold in rows.costs_in_folds(tried)]
        [best] = rows.run([name], [cost], in_folds)
    shares = zip(trials or [best], weights.tolist(), strict=True)
    if name == "Blend":
        table = [trial.scored(weight, False) for trial, weight in shares] + [best.scored(1.0, True)]
    else:
        table = [
            (best if weight else trial).scored(weight, bool(weight)) for trial, weight in shares
        ]
    if tried.learned is not None:
        _describe(best.cost, rows.settings.rule, table)
    return rows, best, table


def _along_path(rows: RowsInFolds, best: Trial, table: list[CandidateScore], note: str) -> Choice:
    """Return the choice of a trial, with the path over all rows certified at its delta."""
    sample, place, groups = rows.sample, best.verdict.place, rows.settings.groups
    ball = sample.ball(best.cost, float(best.deltas[place]), rows.order)
    solved = best.folds.path or []
    chosen = [of_target[place] for of_target in solved]
    # passes that folds share leave no dual point
    if any(s.dual is None and s.mean_loss is not None for s in chosen):
        chosen = rows.solutions(ball, chosen)
        for of_target, solution in zip(solved, chosen, strict=True):
            of_target[place] = solution
    environments = None
    if groups is not None:
        environments = environment_losses(*binary_view(sample, best.folds), groups)
    path = tidy(
        sample,
        best.deltas,
        solved,
        score_mean=best.folds.mean,
        score_se=best.folds.se,
        candidates=table,
        environments=environments,
        out_of_fold=best.folds.out_of_fold(place),
    )
    return Choice(ball, chosen, path, note)


def _preferred_units(rows: RowsInFolds) -> Array | None:
    r"""Return the spreads of columns that are far apart, where the folds prefer these as units.

    They are multiplied by a number such that :math:`\sum_j 1/u_j^2 = d`. Unlike a blend this is a
    choice: in a mean of two matrices that are far apart each column would have the larger of two
    prices, and the large columns would decide alone.
    """
    spreads = spreads_far_apart(rows.sample)
    if spreads is None:
        return None
    # relative to the least: the inverse squares of very large units would vanish
    scale = spreads.min() / spreads
    units = np.sqrt(np.mean(scale**2)) / scale
    even = [Norm(2)]
    [own], _ = rows.compare(Candidates(cost=even[0]), even)
    [measured], _ = rows.in_units(units, 1.0).compare(Candidates(cost=even[0]), even)
    return None if own.verdict.value < measured.verdict.value else units


def _without_folds(rows: RowsInFolds, cost: Cost) -> Choice:
    """Take the first candidate and the middle of its deltas, with a warning: there are no folds."""
    sample, grid = rows.sample, rows.deltas(cost)
    place = len(grid) // 2
    delta = float(grid[place])
    note = (
        f"The {len(sample.weights)} rows allow no folds that could choose, so delta={delta:.3g} "
        f"is the middle of the grid, under the cost {cost!r}."
    )
    warnings.warn(f"{note} Give more rows, or a number as delta.", UserWarning, stacklevel=2)
    solved = solve_path(sample, cost, rows.order, grid, rows.solver)
    ball = sample.ball(cost, delta, rows.order)
    return Choice(ball, [row[place] for row in solved], tidy(sample, grid, solved), note)


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
