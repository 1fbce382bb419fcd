"""The costs a fit chooses among: one that is given, or the Euclidean and learned ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from .. import costs as known
from ..costs import CallableCost, Cost, Norm
from ..design import as_dense
from ..metrics import Learned
from ..metrics.base import learn
from ..problem import Sample

Array = NDArray[Any]

#: Entries of X up to which a sparse X is made dense for the metric learners.
DENSE_UP_TO = 20_000_000
#: Rows from which a metric is learned at most.
LEARN_UP_TO = 5_000
#: Columns above which no matrix is learned: it would have d^2 entries.
COLUMNS_UP_TO = 2_000


@dataclass(frozen=True, eq=False)
class Candidates:
    """A fixed ``cost``, one ``learner``, or the candidates of a ``Learned`` specification."""

    cost: Cost | None = None
    learner: Any = None
    learned: Learned | None = None

    @property
    def names(self) -> list[str]:
        """A short text for each candidate."""
        if self.learned is not None:
            return [candidate.name for candidate in self.learned.candidates()]
        return [repr(self.cost if self.learner is None else self.learner)]

    def costs(self, sample: Sample) -> list[Cost]:
        """Return the candidate costs, learned from the distinct rows of positive weight."""
        if self.cost is not None and not hasattr(self.cost, "learn"):
            return [self.cost]
        X, y = distinct_rows(sample)
        if self.cost is not None:
            # a feature map: its transformer and its metric are fitted to these rows
            return [self.cost.learn(X, y)]
        if self.learned is not None:
            return self.learned.costs(X, y, task=sample.loss.task)
        return [learn(clone(self.learner), X, y, task=sample.loss.task)]


def resolve(cost: Any, X: Any) -> Candidates:
    """Return the candidates that the parameter ``cost`` of an estimator stands for."""
    if isinstance(cost, str):
        if cost == "learned":
            return _learnable(Learned(), X)
        if cost not in known.KNOWN:
            names = ", ".join([*known.KNOWN, "learned"])
            raise ValueError(f"unknown cost={cost!r}; known: {names}, a Cost or a metric learner.")
        cost = known.KNOWN[cost]
    if isinstance(cost, Cost):
        if not hasattr(cost, "learn"):
            cost.check(X.shape[1])
        return Candidates(cost=cost)
    if isinstance(cost, Learned):
        return _learnable(cost, X)
    if hasattr(cost, "fit"):
        return Candidates(learner=cost)
    if callable(cost):
        return Candidates(cost=CallableCost(cost))
    raise TypeError(
        f"cost must be a name, a Cost, a metric learner or a function c(u, x), got {cost!r}."
    )


def _learnable(learned: Learned, X: Any) -> Candidates:
    n, d = X.shape
    if d > COLUMNS_UP_TO or (sparse.issparse(X) and n * d > DENSE_UP_TO):
        return Candidates(cost=Norm(2))
    return Candidates(learned=learned)


def distinct_rows(sample: Sample) -> tuple[Array, Array]:
    """Return the distinct (x, y) of positive weight, so that a weight of 2 is a row met twice.

    Of more than ``LEARN_UP_TO`` rows a random part (always the same) is used: the scatter of pairs
    is known well enough from that, and neighbours are dear.
    """
    index = np.flatnonzero(sample.weights > 0)
    if len(index) > LEARN_UP_TO:
        index = np.random.default_rng(0).choice(index, LEARN_UP_TO, replace=False)
    y = sample.ys[0] if len(sample.ys) == 1 else np.stack(sample.ys).argmax(axis=0)
    rows = np.column_stack([as_dense(sample.X[index]), y[index]])
    rows = np.unique(np.asarray(rows, dtype=float), axis=0)
    return rows[:, :-1], rows[:, -1]
