"""Which costs to choose among: a specification, the choice itself is made in ``otdro.radius``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator

from ..costs import Mahalanobis, Norm
from ..costs.base import Cost
from ..costs.learned_matrix import check_shrinkage, fitted_matrix, seeded, shrink
from ..pairs import NoPairsError, Pairs
from .base import Array, MetricLearner
from .diagonal import Diagonal
from .geometric_mean import GeometricMean


@dataclass(frozen=True, eq=False)
class Candidate:
    """A learner with a shrinkage; the Euclidean cost is the one without a learner, shrinkage 1."""

    learner: Any
    shrinkage: float

    @property
    def name(self) -> str:
        """A short text for tables."""
        if self.learner is None:
            return "Euclidean"
        return f"{type(self.learner).__name__}, shrinkage {self.shrinkage:g}"


class Learned(BaseEstimator):  # type: ignore[misc]
    """The candidates for the cost: learners times shrinkages, the Euclidean cost always among them.

    The default list is short because choosing among many costs by their fold scores is noisy; the
    evidence is in ``docs/metrics.md``.

    Parameters
    ----------
    learners : sequence of metric learners or None
        Ours, or any object whose fit leaves ``components_`` or ``get_mahalanobis_matrix()``.
        None is ``[Diagonal(shrinkage=0.5), GeometricMean()]``.
    shrinkage : sequence of floats in [0, 1] or None
        Weights of the identity, each tried with each learner. None is each learner's own.
    """

    def __init__(
        self, learners: Sequence[Any] | None = None, shrinkage: Sequence[float] | None = None
    ) -> None:
        self.learners = learners
        self.shrinkage = shrinkage

    def candidates(self) -> list[Candidate]:
        """Return the Euclidean cost and every learner with every shrinkage, in that order."""
        return [Candidate(None, 1.0)] + [
            Candidate(learner, eta) for learner, etas in self._grid() for eta in etas
        ]

    def costs(self, X: Any, y: Any, *, task: str = "auto") -> list[Cost]:
        """Learn the cost of every candidate from these rows, Euclidean where there is nothing.

        Call it on the training rows of a fold only: a metric that has seen the test rows leaks
        their labels.
        """
        matrices = self.matrices(X, y, task=task)
        return [Norm(2)] + [Norm(2) if M is None else Mahalanobis(M) for M in matrices]

    def matrices(self, X: Any, y: Any, *, task: str = "auto") -> list[Array | None]:
        """Return the matrix of every candidate but the Euclidean one, each learner fitted once.

        None stands where the rows have no pairs of a kind, so that nothing can be learned.
        """
        made: dict[tuple[Any, ...], Pairs] = {}
        found: list[Array | None] = []
        for learner, etas in self._grid():
            try:
                solution = _solution(seeded(learner), X, y, task, made)
            except NoPairsError:
                found += [None] * len(etas)
            else:
                found += [shrink(solution, eta) for eta in etas]
        return found

    def _grid(self) -> Iterator[tuple[Any, list[float]]]:
        learners = (
            [Diagonal(shrinkage=0.5), GeometricMean()] if self.learners is None else self.learners
        )
        for learner in learners:
            if not hasattr(learner, "fit"):
                raise TypeError(f"learners must have fit(X, y), got {learner!r}.")
            # a foreign learner has no shrinkage of its own
            own = getattr(learner, "shrinkage", 0.0)
            etas = [own] if self.shrinkage is None else list(self.shrinkage)
            for eta in etas:
                check_shrinkage(eta)
            # eta = 1 is the Euclidean cost, which is there already
            yield learner, [float(eta) for eta in etas if eta < 1]


def _solution(learner: Any, X: Any, y: Any, task: str, made: dict[tuple[Any, ...], Pairs]) -> Array:
    """Fit a learner and return its matrix before shrinkage; ``made`` holds pairs made before."""
    if not isinstance(learner, MetricLearner):
        return fitted_matrix(learner.fit(X, y))
    if learner.task == "auto":
        learner.set_params(task=task)
    # learners that would make the same pairs share them
    key = learner.pair_settings()
    if key not in made:
        made[key] = learner.make_pairs(X, y)
    solution: Array = learner.fit(X, y, pairs=made[key]).solution_
    return solution
