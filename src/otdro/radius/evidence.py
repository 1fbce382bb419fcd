"""What a rule for delta may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..problem import Sample
from .environments import Environments, design_effect
from .folds import FoldScores

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a rule may look at: the sample, one cost with its deltas (descending), and its folds.

    ``groups`` are the environments that folds leave out as a whole, None if they leave out rows.
    Where the sample is only a part of the rows that the folds tested, ``distinct`` is the number of
    distinct ones, ``losses`` (m,) their mean out-of-fold loss at every delta and ``environments``
    what they say about these.
    """

    sample: Sample
    cost: Cost
    order: int
    deltas: Array
    folds: FoldScores
    own_loss: bool
    groups: Array | None = None
    distinct: float | None = None
    losses: Array | None = None
    environments: Environments | None = None

    @property
    def rows(self) -> float:
        """The number of distinct rows that the folds tested."""
        return self.sample.distinct if self.distinct is None else self.distinct


def information(evidence: Evidence) -> float:
    """Return how many independent rows the folds speak of, at least one per environment."""
    n = evidence.rows
    if evidence.environments is not None:
        effect, count = evidence.environments.effect, len(evidence.environments.losses.names)
    elif evidence.groups is not None:
        effect = design_effect(evidence.sample, evidence.folds, evidence.groups)
        count = len(np.unique(evidence.groups))
    else:
        return n
    return max(n / effect, min(n, count))


def radius(evidence: Evidence) -> Array:
    """Return delta at order 1, its root at order 2."""
    return evidence.deltas if evidence.order == 1 else np.sqrt(evidence.deltas)
