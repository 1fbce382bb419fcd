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
from ..costs.mahalanobis import blend, identity, is_structured, written
from ..design import FEW_ROWS_UP_TO, WRITTEN_UP_TO, column_scale, column_spreads, is_wide
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
        costs = [cost or Norm(2) for cost in self._learn(sample, unlabelled)]
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

    def _learn(self, sample: Sample, unlabelled: Array | None) -> list[Cost | None]:
        """Return the learned costs, None where the rows have nothing to teach."""
        xp = namespace(sample.ys[0])
        labels = sample.ys[0] if len(sample.ys) == 1 else xp.stack(sample.ys).argmax(axis=0)
        X, y = teaching_rows(sample.X, labels, sample.weights)
        if self.cost is not None:
            try:
                return [self.cost.learn(X, y)]
            except NoPairsError:
                return [clone(self.cost).set_params(metric=None).learn(X, y)]
        if len(np.unique(sketch(X, np.zeros(len(y))))) == 1:
            return [None] * len(self.names)
        task = sample.loss.task
        if self.learned is not None:
            matrices = self.learned.matrices(X, y, task=task, unlabelled=unlabelled)
            return [None, *(None if M is None else Mahalanobis(M) for M in matrices)]
        try:
            return [learn(self.learner, X, y, task=task, unlabelled=unlabelled)]
        except NoPairsError:
            return [None]


def blended(costs: list[Cost], weights: Array, d: int) -> Mahalanobis:
    """Return the cost of sum_c w_c Lambda_c; the Euclidean cost has the identity."""
    learned = [cost.matrix for cost in costs if cost.matrix is not None]
    structured = all(map(is_structured, learned)) and (learned or d > FEW_ROWS_UP_TO)
    same = identity(d) if structured else np.eye(d)
    matrices = [same if cost.matrix is None else cost.matrix for cost in costs]
    return Mahalanobis(blend(matrices, weights))


def resolve(cost: Any, X: Any) -> Candidates:
    """Return the candidates that the parameter ``cost`` of an estimator stands for."""
    if isinstance(cost, str):
        if cost == "learned":
            return _learnable(Learned(), X)
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
    matrix = cost.matrix
    if matrix is None:
        d = len(scale)
        matrix = identity(d) if d > FEW_ROWS_UP_TO else np.eye(d)
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
        ordered = sorted(self.candidates, key=lambda c: (not c.chosen, c.criterion))
        won, *others = ordered
        head = f"{won.name}, the only candidate."
        if self.blended:
            head = (
                f"A blend of {len(others)} costs, weighted by the criterion of\n"
                f"rule {self.rule!r} (less is better):"
            )
        elif others:
            margin = others[0].criterion - won.criterion
            head = (
                f"{won.name} won over {others[0].name}\nby {margin:.3g} in the criterion of "
                f"rule {self.rule!r} (less is better):"
            )
        width = min(max(4, *(len(c.name) for c in self.candidates)), 35)
        weight = f"  {'weight':>6}" if self.blended else ""
        line = f"  {'cost':<{width}}  {'delta':>10}  {'fold score':>10}  {'criterion':>9}"
        lines = [head, line + weight]
        for c in ordered:
            weight = f"  {c.weight:>6.2f}" if self.blended else ""
            lines.append(
                f"{'*' if c.chosen else ' '} {c.name[:width]:<{width}}  {c.delta:>10.4g}  "
                f"{c.score:>10.4g}  {c.criterion:>9.4g}{weight}"
            )
        return "\n".join(lines)
