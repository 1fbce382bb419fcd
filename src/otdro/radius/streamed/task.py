"""What a fit to rows in chunks asks for, and what its second pass found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...costs import Cost
from ...problem import Ball
from ...solvers.streamed import Stream
from ...solvers.streamed.squared import FoldFactors
from ..trials import Settings
from .theory import Profile
from .thresholds import Grid

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """A stream with what a fit asks of it; ``squared`` where the loss is squared.

    ``units`` are the spreads of columns that are far apart. A ``covariance`` is that outside each
    fold, that of all rows last; that in units is of the columns over their spreads.
    """

    stream: Stream
    order: int
    delta: Any
    settings: Settings
    tol: float
    max_iter: int
    squared: FoldFactors | None = None
    units: Array | None = None
    covariance: list[Array] | None = None
    covariance_in_units: list[Array] | None = None
    theory: Profile | None = None
    grid: Grid | None = None

    @property
    def folds(self) -> range:
        """The folds."""
        return range(self.stream.folds.count)

    def ball(self, cost: Cost, delta: Any) -> Ball:
        """Return a ball with the prices of the stream."""
        return self.stream.kept.ball(cost, delta, self.order)
