"""The costs a fit chooses among: one that is given, or the Euclidean and learned ones.

Where columns have very different spreads, learned costs may measure each column by its own spread
(``spreads_far_apart``). ``Comparison`` is what a fit says about the costs that it tried.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .. import costs as known
from ..arrays import library, namespace, numpy
from ..costs import CallableCost, Cost, Mahalanobis, Norm
from ..costs.mahalanobis import blend, identity, is_structured, of_diagonal, written
from ..design import FEW_ROWS_UP_TO, WRITTEN_UP_TO, column_scale, is_wide
from ..fences import column_spreads
from ..metrics import Learned, learn
from ..pairs import NoPairsError, sketch, teaching_rows
from ..problem import Sample
from .checks import is_array

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


@dataclass(frozen=True, eq=False)
class Candidates:
    """A fixed ``cost``, one ``learner``, or the candidates of a ``Learned`` specification.

    ``unlabelled`` are rows without labels for the learners that can use them. ``note`` is a
    sentence about the cost for ``message_``, empty if there is nothing to say. ``name`` is the
    short text for a cost or learner whose own is long, as that of a matrix.
    """

    cost: Cost | None = None
    learner: Any = None
    learned: Learned | None = None
    unlabelled: Array | None = None
    note: str = ""
    name: str = ""

    @property
    def names(self) -> list[str]:
        """A short text for each candidate."""
        if self.learned is not None:
            return [candidate.name for candidate in self.learned.candidates()]
        return [self.name or repr(self.cost if self.learner is None else self.learner)]

    def costs(self, sample: Sample) -> list[Cost]:
        """Return the candidate costs, learned from the distinct rows of positive weight.

        A candidate for which these rows have nothing to teach is the cost without a learner.
        """
        if self.cost is not None and not self.cost.learns:
            return [self.cost]
        return self._or_even(self._learn(sample), sample)

    def from_all(self, sample: Sample) -> tuple[Candidates, list[Cost]]:
        """Return what is left of the candidates, with their costs, after all rows were looked at.

        Where nothing can be learned from all rows, the cost without a learner is the only one.
        """
        if self.cost is not None:
            [cost] = self.costs(sample)
            lost = self.cost.learns and _metric_lost(self.cost, cost)
            return (replace(self, note=NO_METRIC_LEARNED) if lost else self), [cost]
        found = self._learn(sample)
        # the first candidate of a ``Learned`` is the one without a learner
        sought = found if self.learned is None else found[1:]
        if sought and all(cost is None for cost in sought):
            even = Norm(2)
            return Candidates(cost=even, note=f"{NOTHING_LEARNED} {self.note}".strip()), [even]
        return self, self._or_even(found, sample)

    def _learn(self, sample: Sample) -> list[Cost | None]:
        """Return the learned costs, None where the rows have nothing to teach."""
        xp = namespace(sample.ys[0])
        labels = sample.ys[0] if len(sample.ys) == 1 else xp.stack(sample.ys).argmax(axis=0)
        X, y = teaching_rows(sample.X, labels, sample.weights)
        if self.cost is not None:
            return [_feature_map(self.cost, X, y)]
        alike = len(np.unique(sketch(X, np.zeros(len(y))))) == 1
        task, more = sample.loss.task, self.unlabelled
        if self.learned is not None:
            if alike:
                return [None] * len(self.names)
            matrices = self.learned.matrices(X, y, task=task, unlabelled=more)
            return [None, *(None if M is None else Mahalanobis(M) for M in matrices)]
        try:
            return [None if alike else learn(self.learner, X, y, task=task, unlabelled=more)]
        except NoPairsError:
            return [None]

    def _or_even(self, found: list[Cost | None], sample: Sample) -> list[Cost]:
        return [Norm(2) if cost is None else within_reach(cost, sample.X) for cost in found]


def within_reach(cost: Cost, X: Any) -> Cost:
    """Return a learned cost as rows on a device can use it: up to 2,000 columns written out."""
    if library(X) is None or not cost.structured or X.shape[1] > WRITTEN_UP_TO:
        return cost
    return Mahalanobis(written(cost.matrix))


def blended(costs: list[Cost], weights: Array, d: int) -> Mahalanobis:
    """Return the cost of sum_c w_c Lambda_c; the Euclidean cost has the identity."""
    learned = [cost.matrix for cost in costs if cost.matrix is not None]
    structured = all(map(is_structured, learned)) and (learned or d > FEW_ROWS_UP_TO)
    same = identity(d) if structured else np.eye(d)
    matrices = [same if cost.matrix is None else cost.matrix for cost in costs]
    return Mahalanobis(blend(matrices, weights))


def _feature_map(cost: Any, X: Array, y: Array) -> Cost:
    """Return a cost with its transformer and its metric fitted to these rows.

    Where they have nothing to teach the metric is the identity.
    """
    try:
        found: Cost = cost.learn(X, y)
    except NoPairsError:
        found = clone(cost).set_params(metric=None).learn(X, y)
    return found


def _metric_lost(asked: Any, found: Any) -> bool:
    """Whether a metric was to be learned and none was."""
    return asked.metric is not None and found.metric is None


def resolve(cost: Any, X: Any, unlabelled: Array | None = None) -> Candidates:
    """Return the candidates that the parameter ``cost`` of an estimator stands for."""
    if isinstance(cost, str):
        if cost == "learned":
            return _learnable(Learned(), X, unlabelled)
        if cost not in known.KNOWN:
            names = ", ".join([*known.KNOWN, "learned"])
            raise ValueError(f"unknown cost={cost!r}; known: {names}, a Cost or a metric learner.")
        cost = known.KNOWN[cost]
    elif is_array(cost) and not isinstance(cost, type | Cost):
        cost = Mahalanobis(np.asarray(cost, dtype=float))
    if isinstance(cost, Cost):
        if not cost.learns:
            cost.check(X.shape[1])
        return Candidates(cost=cost)
    if isinstance(cost, type):
        name = cost.__name__
        raise TypeError(f"cost is the class {name}, not an object of it: use cost={name}().")
    if hasattr(cost, "matrices"):
        return _learnable(cost, X, unlabelled)
    if hasattr(cost, "fit"):
        return Candidates(learner=cost, unlabelled=unlabelled)
    if callable(cost):
        return Candidates(cost=CallableCost(cost))
    raise TypeError(
        "cost must be a name, a Cost, a positive definite matrix, a metric learner or a function "
        f"c(u, x), got {cost!r}."
    )


def _learnable(learned: Learned, X: Any, unlabelled: Array | None) -> Candidates:
    """Return the candidates, of rows of many columns those whose matrices are structured."""
    n, d = X.shape
    # learners that the user names are taken as far as they go
    if not is_wide(X) or (learned.learners is not None and d <= WRITTEN_UP_TO):
        return Candidates(learned=learned, unlabelled=unlabelled)
    wide = learned.wide()
    most = f"the {WRITTEN_UP_TO}" if d > WRITTEN_UP_TO else f"the {n} rows and {FEW_ROWS_UP_TO}"
    many = f"X has {d} columns, more than {most} up to which a full matrix is learned"
    if wide.learners:
        kept = " and ".join(dict.fromkeys(type(learner).__name__ for learner in wide.learners))
        note = f"{many}, so the learned ones are structured, by {kept}."
        return Candidates(learned=wide, unlabelled=unlabelled, note=note)
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
    rows, weights = numpy(X), numpy(sample.weights)
    plain = column_scale(rows, weights)
    if not _far_apart(plain[plain > 0]):
        return None
    spread, has_quartiles = column_spreads(rows, weights)
    known = has_quartiles & (plain > 0) & (spread > 0)
    if not _far_apart(spread[known]):
        return None
    # a column without a spread of its own has one price or another: none moves it
    return np.where((plain > 0) & (spread > 0), spread, np.median(spread[known]))


def _far_apart(spread: Array) -> bool:
    return len(spread) > 1 and bool(spread.max() > FAR_APART * spread.min())


def in_units_of_columns(cost: Cost, scale: Array) -> Mahalanobis:
    r"""Return the cost of rows x whose cost is that of Dx: the matrix :math:`D\Lambda D`."""
    matrix = cost.matrix
    if matrix is None:
        many = len(scale) > FEW_ROWS_UP_TO
        return Mahalanobis(of_diagonal(scale**2) if many else np.diag(scale**2))
    if is_structured(matrix):
        return Mahalanobis(matrix.in_units(scale))
    return Mahalanobis(scale[:, None] * matrix * scale)


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
    ``margin`` of m is a factor exp(m) in likelihood; for the others it is minus the score.
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

    @property
    def runner_up(self) -> CandidateScore | None:
        """The best of the others, None if there was one candidate only."""
        others = [c for c in self.candidates if not c.chosen]
        return min(others, key=lambda c: c.criterion, default=None)

    @property
    def margin(self) -> float:
        """The criterion of the runner-up minus that of the winner, inf without a runner-up.

        It may be negative for a blend, which is taken for what it is worth on average.
        """
        second = self.runner_up
        return np.inf if second is None else second.criterion - self.winner.criterion

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per candidate, in the order they were given."""
        names = ("name", "delta", "score", "criterion", "chosen", "weight")
        return [{name: getattr(c, name) for name in names} for c in self.candidates]

    def __str__(self) -> str:
        width = min(max(4, *(len(c.name) for c in self.candidates)), 35)
        weight = f"  {'weight':>6}" if self.blended else ""
        head = f"  {'cost':<{width}}  {'delta':>10}  {'fold score':>10}  {'criterion':>9}"
        lines = [head + weight]
        for c in sorted(self.candidates, key=lambda c: (not c.chosen, c.criterion)):
            weight = f"  {c.weight:>6.2f}" if self.blended else ""
            lines.append(
                f"{'*' if c.chosen else ' '} {c.name[:width]:<{width}}  {c.delta:>10.4g}  "
                f"{c.score:>10.4g}  {c.criterion:>9.4g}{weight}"
            )
        return "\n".join([self._headline(), *lines])

    def _headline(self) -> str:
        second = self.runner_up
        if second is None:
            return f"{self.winner.name}, the only candidate."
        if self.blended:
            parts = [c for c in self.candidates if not c.chosen]
            return (
                f"A blend of {len(parts)} costs, weighted by the criterion of\n"
                f"rule {self.rule!r} (less is better):"
            )
        return (
            f"{self.winner.name} won over {second.name}\nby {self.margin:.3g} in the criterion of "
            f"rule {self.rule!r} (less is better):"
        )
