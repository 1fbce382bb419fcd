r"""The ball of a fit: its cost and delta as given, from folds, or from theory.

The costs that a fit chooses among are one that is given, or the Euclidean and learned ones. Each
gets a ``Trial``: its folds at every delta, and where the rule would stop. Where columns have very
different spreads, learned costs may measure each column by its own spread.

For rows in chunks the ball is chosen on rows kept in memory and solved over all rows. A delta from
folds or theory on n' rows is for n' rows: that of n rows is

.. math:: \delta_n = \delta_{n'} \sqrt{n'/n}\ \text{(order 1)},\qquad
          \delta_n = \delta_{n'}\, n'/n\ \text{(order 2)},

the rate of the robust Wasserstein profile, n and n' being effective numbers of rows,
:math:`1/\sum_i \pi_i^2`. Deltas of a grid that is given are for all rows. A delta that is given
stays as it is.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from .. import costs as known
from ..arrays import beside, library, namespace, numpy, pick, require_fit
from ..costs import CallableCost, Cost, Mahalanobis, Norm
from ..costs.mahalanobis import blend, identity, is_structured, written
from ..costs.table import Grid
from ..design import (
    FEW_ROWS_UP_TO,
    WRITTEN_UP_TO,
    column_scale,
    column_spreads,
    is_wide,
)
from ..losses import Loss
from ..metrics import Learned, learn
from ..pairs import NoPairsError, sketch, teaching_rows
from ..problem import Ball, Sample, Solution
from ..progress import logger
from ..solvers import Exact, Solver
from .checks import as_cost, check_delta, check_deltas, resolve_order
from .folds import (
    REPEAT_UP_TO,
    REPEATS,
    FoldScores,
    Scorer,
    Split,
    compared,
    cross_validate,
    fold_seed,
    model_scorer,
    splits,
)
from .grid import PILOT_TOL, Path, default_deltas, extended, solve_path, tidy
from .profile import theory_delta
from .rules import Evidence, Verdict, binary_view, by_margins, environment_losses
from .rules import resolve as resolve_rule

if TYPE_CHECKING:
    from ..solvers.streamed import Stream

Array = NDArray[Any]

#: What ``message_`` says of a fit whose rows allow no learning.
NOTHING_LEARNED = "The rows hold nothing to learn a matrix from, so the cost is Euclidean."
#: The Euclidean cost of standardised columns, and what ``message_`` says of it.
STANDARDISED = "Standardised"
MEASURED_BY_SPREAD = (
    "The columns are of very different scale, so the cost measures each by its own spread."
)
NO_METRIC_LEARNED = (
    "The rows hold nothing to learn a metric from, so that of the feature map is the identity."
)
#: Columns whose spreads differ by this factor may have units that have nothing to do with each
#: other; below it a price common to all columns loses little.
FAR_APART = 10.0
#: Paired standard errors that a gain over the Euclidean cost must exceed to count in a blend: where
#: classes are nearly separable a few rows decide on the criterion, and its gains are often noise.
ERRORS = 2.0
#: Usual lengths of a move between rows, or their inverses, up to which rows are taken in the units
#: given: beyond it sums of squares lose their digits to constants of the methods.
FAR_FROM_ONE = 2.0**20
#: Rows from which the length of a usual move is taken.
UNIT_ROWS = 256
#: Deltas that are tried below a grid whose least one is too large: a further factor 1/13.
FURTHER = 7
#: Every such delta of a grid is tried where costs are compared on a part of the rows, or where rows
#: are wide.
EVERY = 3


@dataclass(frozen=True, eq=False)
class Settings:
    """An estimator, whose parameters say how its ball is chosen, and what its fit was given.

    ``rule`` and ``deltas`` stand for the parameters of these names.
    """

    estimator: Any
    rule: str
    deltas: Any
    y: Array
    classes: Array | None
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
class CandidateScore:
    """A cost that was tried: its ``name``, deltas, fold scores, the ``delta`` that the rule chose
    for it with its mean ``score`` (more is better) and the rule's ``criterion`` (less is better),
    whether the cost itself was ``chosen``, and its ``weight`` in the cost of the fit."""

    name: str
    deltas: Array
    score_mean: Array
    score_se: Array
    delta: float
    score: float
    criterion: float
    chosen: bool
    weight: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """The candidates for a cost under one ``rule``, of which the fit took one, or their blend.

    The criterion of rule "auto" is n log of the smoothed out-of-fold loss plus a prior, so that a
    difference of m is a factor exp(m) in likelihood; for the others it is minus the score.
    """

    rule: str
    candidates: list[CandidateScore]

    @property
    def winner(self) -> CandidateScore:
        """The candidate that was chosen."""
        return next(c for c in self.candidates if c.chosen)

    @property
    def blended(self) -> bool:
        """Whether the fit took a blend of the candidates."""
        return sum(c.weight > 0 for c in self.candidates) > 1

    def __str__(self) -> str:
        won, *others = sorted(self.candidates, key=lambda c: (not c.chosen, c.criterion))
        head, by = f"{won.name}, the only candidate.", f"rule {self.rule!r} (less is better):"
        if self.blended:
            head = f"A blend of {len(others)} costs, weighted by the criterion of\n{by}"
        elif others:
            margin = others[0].criterion - won.criterion
            head = f"{won.name} won over {others[0].name}\nby {margin:.3g} in the criterion of {by}"
        body = []
        for c in (won, *others):
            figures = [f"{v:.4g}" for v in (c.delta, c.score, c.criterion)]
            body.append([f"{'*' if c.chosen else ' '} {c.name}", *figures, f"{c.weight:.2f}"])
        columns = ["  cost", "delta", "fold score", "criterion", "weight"]
        return "\n".join([head, *Grid(columns, body).lines()])


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
        mean, se, place = self.folds.mean, self.folds.se, self.verdict.place
        best = (float(self.deltas[place]), float(mean[place]), self.verdict.value)
        return CandidateScore(self.name, self.deltas, mean, se, *best, chosen, weight)


@dataclass(frozen=True, eq=False)
class Candidates:
    """A fixed ``cost``, one ``learner``, or the candidates of a ``Learned`` specification.

    ``note`` is a sentence about the cost for ``message_``, empty if there is nothing to say.
    """

    cost: Cost | None = None
    learner: Any = None
    learned: Learned | None = None
    note: str = ""

    @property
    def names(self) -> list[str]:
        """A short text for each candidate."""
        if self.learned is not None:
            return self.learned.names()
        return [repr(self.cost if self.learner is None else self.learner)]

    def costs(self, sample: Sample, unlabelled: Array | None) -> list[Cost]:
        """Return the candidate costs, learned from the distinct rows of positive weight.

        A candidate for which these rows have nothing to teach is the cost without a learner.
        ``unlabelled`` are rows without labels for the learners that can use them.
        """
        if self.cost is not None and not self.cost.learns:
            return [self.cost]
        xp, task = namespace(sample.ys[0]), sample.loss.task
        labels = sample.ys[0] if len(sample.ys) == 1 else xp.stack(sample.ys).argmax(axis=0)
        X, y = teaching_rows(sample.X, labels, sample.weights)
        costs: list[Cost] = [Norm(2)] * len(self.names)
        try:
            if self.cost is not None:
                costs = [self.cost.learn(X, y)]
            elif len(np.unique(sketch(X, np.zeros(len(y))))) == 1:
                return costs
            elif self.learned is not None:
                matrices = self.learned.matrices(X, y, task=task, unlabelled=unlabelled)
                costs[1:] = [Norm(2) if M is None else Mahalanobis(M) for M in matrices]
            else:
                costs = [learn(self.learner, X, y, task=task, unlabelled=unlabelled)]
        except NoPairsError:
            if self.cost is not None:
                costs = [clone(self.cost).set_params(metric=None).learn(X, y)]
        if library(sample.X) is None or sample.X.shape[1] > WRITTEN_UP_TO:
            return costs
        # on a device matrices are written out
        return [Mahalanobis(written(c.matrix)) if c.structured else c for c in costs]

    def from_all(self, sample: Sample, unlabelled: Array | None) -> tuple[Candidates, list[Cost]]:
        """Return what is left of the candidates, with their costs, after all rows were looked at.

        Where nothing can be learned from all rows, the cost without a learner is the only one.
        """
        costs = self.costs(sample, unlabelled)
        if self.cost is not None:
            asked: Any = self.cost
            found: Any = costs[0]
            lost = asked.learns and asked.metric is not None and found.metric is None
            return (replace(self, note=NO_METRIC_LEARNED) if lost else self), costs
        # the first candidate of a ``Learned`` is the one without a learner
        sought = costs if self.learned is None else costs[1:]
        if sought and all(cost.matrix is None for cost in sought):
            note = f"{NOTHING_LEARNED} {self.note}".strip()
            return Candidates(cost=Norm(2), note=note), [Norm(2)]
        return self, costs


def blended(costs: list[Cost], weights: Array, d: int) -> Mahalanobis:
    """Return the cost of sum_c w_c Lambda_c; the Euclidean cost has the identity."""
    same = identity(d) if d > FEW_ROWS_UP_TO else np.eye(d)
    matrices = [same if cost.matrix is None else cost.matrix for cost in costs]
    return Mahalanobis(blend(matrices, weights))


def resolve_cost(cost: Any, X: Any) -> Candidates:
    """Return the candidates that the parameter ``cost`` of an estimator stands for."""
    cost = Learned() if isinstance(cost, str) and cost == "learned" else as_cost(cost)
    if isinstance(cost, str):
        names = ", ".join([*known.KNOWN, "learned"])
        raise ValueError(f"unknown cost={cost!r}; known: {names}, a Cost or a metric learner.")
    if isinstance(cost, Cost):
        if not cost.learns:
            cost.check(X.shape[1])
        return Candidates(cost=cost)
    if isinstance(cost, type):
        name = cost.__name__
        raise TypeError(f"cost is the class {name}, not an object of it: use cost={name}().")
    if hasattr(cost, "matrices"):
        return _learnable(cost, X)
    if hasattr(cost, "fit"):
        return Candidates(learner=cost)
    if callable(cost):
        return Candidates(cost=CallableCost(cost))
    raise TypeError(
        "cost must be a name, a Cost, a positive definite matrix, a metric learner or a function "
        f"c(u, x), got {cost!r}."
    )


def _learnable(learned: Learned, X: Any) -> Candidates:
    """Return the candidates, of rows of many columns those whose matrices are structured."""
    n, d = X.shape
    # learners that the user names are taken as far as they go
    if not is_wide(X) or (learned.learners is not None and d <= WRITTEN_UP_TO):
        return Candidates(learned=learned)
    wide = learned.wide()
    most = f"the {WRITTEN_UP_TO}" if d > WRITTEN_UP_TO else f"the {n} rows and {FEW_ROWS_UP_TO}"
    many = f"X has {d} columns, more than {most} up to which a full matrix is learned"
    if wide.learners:
        kept = " and ".join(dict.fromkeys(type(learner).__name__ for learner in wide.learners))
        note = f"{many}, so the learned ones are structured, by {kept}."
        return Candidates(learned=wide, note=note)
    note = f"{many}, so the cost is Euclidean."
    warnings.warn(f"{note} Set cost='euclidean' to choose that.", UserWarning, stacklevel=2)
    return Candidates(cost=Norm(2), note=note)


def spreads_far_apart(sample: Sample) -> Array | None:
    """Return the spread of every column where some are far apart, else None.

    They are so by their standard deviations and also with every column on its fence: neither a
    few cells far out nor the long tail of a standardised column makes a unit. Sparse rows have no
    units, since most of their cells say that something is not there.
    """
    X = sample.X
    if hasattr(X, "toarray") or X.shape[1] > WRITTEN_UP_TO:
        return None

    def far_apart(spread: Array) -> bool:
        return len(spread) > 1 and bool(spread.max() > FAR_APART * spread.min())

    rows, weights = numpy(X), numpy(sample.weights)
    plain = column_scale(rows, weights)
    if not far_apart(plain[plain > 0]):
        return None
    spread, has_quartiles = column_spreads(rows, weights)
    known = has_quartiles & (plain > 0) & (spread > 0)
    if not far_apart(spread[known]):
        return None
    # a column without a spread of its own has one price or another: none moves it
    return np.where((plain > 0) & (spread > 0), spread, np.median(spread[known]))


def in_units_of_columns(cost: Cost, scale: Array) -> Mahalanobis:
    r"""Return the cost of rows x whose cost is that of Dx: the matrix :math:`D\Lambda D`."""
    d = len(scale)
    same: Any = identity(d) if d > FEW_ROWS_UP_TO else np.eye(d)
    matrix = same if cost.matrix is None else cost.matrix
    if is_structured(matrix):
        return Mahalanobis(matrix.between(scale))
    return Mahalanobis(scale[:, None] * matrix * scale)


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
        sample, settings, asked = self.sample, self.settings, self.settings.estimator
        n, d = sample.X.shape
        given = (settings.y, settings.classes, settings.sample_weight)
        scorer = None if asked.scoring is None else model_scorer(asked, sample.loss, *given)
        few = by_margins(settings.rule, costs) and n <= REPEAT_UP_TO and d <= WRITTEN_UP_TO
        repeats, seed = (REPEATS if few else 1), fold_seed(asked.random_state)
        pairs = splits(sample, asked.cv, settings.groups, seed, repeats, settings.classes)
        return replace(self, splits=pairs, scorer=scorer)

    def in_units(self, units: Any, price: float) -> RowsInFolds:
        """Return the rows divided by ``units``, with prices and radii divided by ``price``."""
        sample, settings = self.sample, self.settings

        def divided(rows: Any) -> Any:
            if rows is None:
                return None
            if hasattr(rows, "tocsr"):
                return sparse.csr_array(rows.multiply(1 / units))
            return rows * beside(1 / units, rows)

        deltas = None if settings.deltas is None else check_deltas(settings.deltas) / price
        delta = self.delta / price if isinstance(self.delta, float) else self.delta
        sample = replace(
            sample,
            X=divided(sample.X),
            support=divided(sample.support),
            label_cost=sample.label_cost / price,
            target_cost=sample.target_cost / price,
        )
        unlabelled = divided(settings.unlabelled)
        settings = replace(settings, deltas=deltas, unlabelled=unlabelled)
        return replace(self, sample=sample, delta=delta, settings=settings)

    def costs_in_folds(self, tried: Candidates) -> list[list[Cost]]:
        """Return ``learned[f][c]``: cost c learned without fold f."""
        if tried.cost is not None and not tried.cost.learns:
            return [[tried.cost] for _ in self.splits]
        learned: list[list[Cost]] = Parallel(n_jobs=self.settings.estimator.n_jobs)(
            delayed(tried.costs)(self.sample.rows(train), self.settings.unlabelled)
            for train, _ in self.splits
        )
        return learned

    def deltas(self, cost: Cost) -> Array:
        """Return the deltas to try under a cost: one that is given or from theory, or a grid."""
        if isinstance(self.delta, float):
            return np.array([self.delta])
        if self.delta == "theory":
            confidence = self.settings.estimator.confidence
            return np.array([theory_delta(self.sample, cost, self.order, confidence)])
        if self.settings.deltas is not None:
            return check_deltas(self.settings.deltas)[:: self.every]
        grid = default_deltas(self.sample, cost, self.order)
        return (extended(grid, self.further) if self.further else grid)[:: self.every]

    def run(self, names: list[str], costs: list[Cost], learned: list[list[Cost]]) -> list[Trial]:
        """Return one trial per cost; ``learned[f][c]`` is cost c learned without fold f."""
        settings, rule, sample = self.settings, resolve_rule(self.settings.rule), self.sample
        deltas = [self.deltas(cost) for cost in costs]
        # the path of the only cost will be that of the fit
        options = {"n_jobs": settings.estimator.n_jobs, "final": len(costs) == 1}
        given = (sample, self.order, self.solver, self.splits)
        scores = cross_validate(*given, costs, learned, deltas, self.scorer, **options)
        trials, unsolved, begun = [], 0, perf_counter()
        for name, cost, grid, folds in zip(names, costs, deltas, scores, strict=True):
            seconds, begun = (perf_counter() - begun) / len(self.splits), perf_counter()
            for f, best in enumerate(folds.scores.max(axis=1)):
                line = "fold %d of %d: cost %s, best score %.4g, %.2f s"
                logger.info(line, f + 1, len(self.splits), name, best, seconds)
            view, margins = binary_view(sample, folds)
            evidence = Evidence(
                sample=view,
                cost=cost,
                order=self.order,
                deltas=grid,
                folds=margins,
                own_loss=self.scorer is None,
                groups=settings.groups,
                tolerance=settings.estimator.tolerance,
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


def solve_at(
    ball: Ball, sample: Sample, solver: Solver, starts: list[Solution] | None = None
) -> list[Solution]:
    """Return the certified solutions of all target vectors, from solutions near them."""
    problems = [sample.problem(y, ball) for y in sample.ys]
    near = None if starts is None else [[start] for start in starts]
    return [path[0] for path in solver.solve(problems, [ball.delta], near)]


@np.errstate(all="ignore")
def choose(sample: Sample, solver: Solver, settings: Settings) -> Choice:
    """Return the ball that the settings ask for, around rows in memory.

    Rows in very small or large units are measured in others inside, so that the choice does not
    depend on them. Criteria that overflow are not chosen: floating point warnings say no more.
    """
    tried = resolve_cost(settings.estimator.cost, sample.X)
    order = resolve_order(settings.estimator.order, sample.loss, tried.cost)
    delta = check_delta(settings.estimator.delta)
    folds = delta == "cv" or tried.learned is not None
    if settings.unlabelled is not None and tried.cost is not None:
        warnings.warn(
            f"the cost {tried.cost!r} has no use for unlabelled rows, so that they play no part. "
            "Leave them out, or use cost='learned'.",
            UserWarning,
            stacklevel=2,
        )
    if library(sample.X) is None:
        require_fit(sample.X, folds=folds, learned=tried.cost is None)
    rows = RowsInFolds(sample, order, delta, solver, settings)
    unit = _unit(sample, tried.cost) if solver.unit_free else 1.0
    if unit == 1.0:
        return _choose(rows, tried)
    price = unit**order
    return in_given_units(_choose(rows.in_units(unit, price), tried), sample, unit, price)


def _unit(sample: Sample, cost: Cost | None) -> float:
    """Return the power of 2 next to the length of a usual move, 1 where it is usual.

    The move is one standard deviation of every column, of some rows. A cost that is not a norm has
    no unit.
    """
    if cost is not None and not cost.is_norm:
        return 1.0
    n = sample.X.shape[0]
    some = np.unique(np.linspace(0, n - 1, min(n, UNIT_ROWS)).astype(int))
    move = column_scale(pick(sample.X, some), np.full(len(some), 1 / len(some)))
    length = float(np.linalg.norm(move) if cost is None else cost.norm(move))
    if length == 0 or 1 / FAR_FROM_ONE <= length <= FAR_FROM_ONE:
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
        table = []
        for one in path.candidates:
            deltas, delta = one.deltas * price, one.delta * price
            own = name.get(one.name, one.name)
            table.append(replace(one, name=own, deltas=deltas, delta=delta))
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
    settings, asked = rows.settings, rows.settings.estimator
    tried, costs = tried.from_all(rows.sample, settings.unlabelled)
    if rows.delta != "cv" and tried.learned is None:
        ball = rows.sample.ball(costs[0], float(rows.deltas(costs[0])[0]), rows.order)
        return Choice(ball, solve_at(ball, rows.sample, rows.solver), note=tried.note)
    rows = rows.with_folds(costs)
    # folds of rows choose the cost, and folds of environments may then move delta; folds that the
    # user gives, a scorer, and rules of one kind of folds are taken at their word
    of_environments = None
    made_here = asked.cv is None or isinstance(asked.cv, int | np.integer)
    rule = "auto" if settings.rule == "worst" else settings.rule
    if (
        settings.groups is not None
        and asked.scoring is None
        and made_here
        and rows.delta == "cv"
        and by_margins(rule, costs)
    ):
        by_rows = replace(settings, groups=None, rule="auto")
        of_rows = replace(rows, settings=by_rows).with_folds(costs)
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

    def tested(rows: RowsInFolds, learned: list[list[Cost]]) -> Trial:
        [trial] = rows.run([name], [taken(costs)], [[taken(of_fold)] for of_fold in learned])
        return trial

    best = tested(rows, learned)
    given = rows.settings.deltas is not None or rows.delta != "cv"
    # rows of the same environments do not show that labels have no noise in others
    if best.verdict.beyond and not given and of_environments is None:
        rows = replace(rows, further=FURTHER)
        best = tested(rows, learned)
    if of_environments is not None:
        rows = replace(
            rows,
            settings=of_environments.settings,
            splits=of_environments.splits,
            by_rows=best.verdict.place,
        )
        best = tested(rows, rows.costs_in_folds(tried))
    table = []
    for trial, weight in zip(trials or [best], weights.tolist(), strict=True):
        taken_alone = name != "Blend" and weight > 0
        table.append((best if taken_alone else trial).scored(weight, taken_alone))
    if name == "Blend":
        table.append(best.scored(1.0, True))
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
        chosen = solve_at(ball, sample, rows.solver, chosen)
        for of_target, solution in zip(solved, chosen, strict=True):
            of_target[place] = solution
    environments = None
    if groups is not None:
        environments = environment_losses(*binary_view(sample, best.folds), groups)
    scores = {"score_mean": best.folds.mean, "score_se": best.folds.se, "candidates": table}
    of_rows = {"environments": environments, "out_of_fold": best.folds.out_of_fold(place)}
    path = tidy(sample, best.deltas, solved, **scores, **of_rows)
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


def require_method(loss: Loss, cost: Any, order: Any, X: Any) -> int:
    """Return the order of a problem over rows in chunks; refuse one that is not solved there."""
    from ..solvers.streamed import lacks

    tried = resolve_cost(cost, X)
    order = resolve_order(order, loss, tried.cost)
    reason = lacks(loss, order, tried.cost)
    if reason is not None:
        raise ValueError(reason)
    return order


def choose_in_chunks(stream: Stream, sample: Sample, solver: Exact, settings: Settings) -> Choice:
    """Return the ball that the settings ask for, with the certified solutions over all rows.

    ``sample`` are the rows in memory. The path is theirs, with its deltas in the unit of all rows.
    """
    from ..solvers.streamed import solve

    asked = settings.estimator
    order = require_method(stream.loss, asked.cost, asked.order, sample.X)
    kept = 1 / float(sample.weights @ sample.weights)
    ratio = (kept / stream.effective_rows) ** (order / 2)
    if settings.deltas is not None:
        settings = replace(settings, deltas=check_deltas(settings.deltas) / ratio)
    memory = Exact(max(solver.tol, PILOT_TOL), max(solver.max_iter, Exact.max_iter))
    choice = choose(sample, memory, settings)
    starts = choice.solutions
    if isinstance(asked.delta, str):
        note = (
            f"delta is {ratio:.3g} times that of the {len(sample.weights)} rows in memory on which "
            "the ball was chosen."
        )
        logger.info(note)
        choice = in_given_units(choice, sample, unit=1.0, price=ratio)
        choice = replace(choice, note=f"{choice.note} {note}".strip())
        starts = solve_at(choice.ball, sample, memory, starts)
    return replace(choice, solutions=solve(stream, choice.ball, starts, solver))
