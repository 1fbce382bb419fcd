"""Which costs to blend or to choose among; the folds of ``otdro.radius`` decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from sklearn.base import BaseEstimator

from ..costs.mahalanobis import check_shrinkage
from ..pairs import NoPairsError
from ..wanted import Wanted, check_settings, is_list_or_none
from .association import Association
from .base import Array, fitted, shrunk
from .geometric_mean import GeometricMean
from .spectral import Spectral

#: What ``how`` may be.
HOW = ("blend", "choose")
WANTED = {
    "learners": Wanted(is_list_or_none, "a list of metric learners or None"),
    "shrinkage": Wanted(is_list_or_none, "a list of numbers in [0, 1] or None"),
}


def _named(learner: Any) -> str:
    """Return the class of a learner, with the numbers and words that are not its defaults."""
    changed = []
    for key, known in signature(type(learner)).parameters.items():
        value = getattr(learner, key, known.default)
        shown = key not in ("shrinkage", "random_state") and value != known.default
        if shown and isinstance(value, bool | int | float | str):
            changed.append(f"{key}={value!r}")
    return f"{type(learner).__name__}({', '.join(changed)})".removesuffix("()")


@dataclass(eq=False, repr=False)
class Learned(BaseEstimator):  # type: ignore[misc]
    """The candidates for the cost: learners times shrinkages, the Euclidean cost always among them.

    The default list is short because fold scores are noisy; the evidence is in
    ``experiments/reports/metrics.md``.

    Parameters
    ----------
    learners : sequence of metric learners or None
        Those of otdro, or any whose fit leaves ``components_`` or ``get_mahalanobis_matrix()``.
        None is ``[Spectral(), GeometricMean(), Association()]``; where X has more columns than a
        full matrix is learned of, those whose matrices are structured, the first and the last.
    shrinkage : sequence of floats in [0, 1] or None
        Weights of the identity, each tried with each learner. None is each learner's own.
    how : {"blend", "choose"}
        "blend" mixes the matrices, with weights from the criterion of the rule for delta, where a
        gain over the Euclidean cost counts beyond two paired standard errors only; "choose" takes
        the one of the least criterion.
    """

    learners: Sequence[Any] | None = None
    shrinkage: Sequence[float] | None = None
    how: str = "blend"

    def names(self) -> list[str]:
        """Return short texts for the Euclidean cost and every learner with every shrinkage."""
        if not (isinstance(self.how, str) and self.how in HOW):
            raise ValueError(f"how must be 'blend' or 'choose', got {self.how!r}.")
        return ["Euclidean"] + [
            _named(learner) + (f", shrinkage {eta:g}" if eta > 0 else "")
            for learner, etas in self._grid()
            for eta in etas
        ]

    def wide(self) -> Learned:
        """Return the candidates that also learn from rows of many columns (``takes_wide``)."""
        kept = [one for one in self._learners() if getattr(one, "takes_wide", False)]
        return Learned(kept, self.shrinkage, self.how)

    def matrices(
        self, X: Any, y: Any, *, task: str = "auto", unlabelled: Any = None
    ) -> list[Array | None]:
        """Return the matrix of every candidate but the Euclidean one, each learner fitted once.

        None stands where the rows have no pairs of a kind, so that nothing can be learned. Call it
        on the training rows of a fold only: a metric that has seen the test rows leaks their
        labels.
        """
        matrices: list[Array | None] = []
        for learner, etas in self._grid():
            try:
                taught = fitted(learner, X, y, task=task, unlabelled=unlabelled)
            except NoPairsError:
                matrices += [None] * len(etas)
            else:
                matrices += [shrunk(taught, eta) for eta in etas]
        return matrices

    def _learners(self) -> Sequence[Any]:
        default = [Spectral(), GeometricMean(), Association()]
        return default if self.learners is None else self.learners

    def _grid(self) -> Iterator[tuple[Any, list[float]]]:
        check_settings(self, WANTED)
        for learner in self._learners():
            if not hasattr(learner, "fit"):
                raise TypeError(f"learners must have fit(X, y), got {learner!r}.")
            # a foreign learner has no shrinkage of its own
            own = getattr(learner, "shrinkage", 0.0)
            etas = [own] if self.shrinkage is None else list(self.shrinkage)
            for eta in etas:
                check_shrinkage(eta)
            # eta = 1 is the Euclidean cost, which is there already
            yield learner, [float(eta) for eta in etas if eta < 1]
