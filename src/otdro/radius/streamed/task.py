"""What a fit to rows in chunks asks for, and what its second pass found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...solvers.streamed import Stream
from ...solvers.streamed.squared import FoldMoments
from ..trials import Settings
from .theory import Profile
from .thresholds import Zeros

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """A stream with what a fit asks of it; ``moments`` where the loss is squared."""

    stream: Stream
    order: int
    delta: Any
    settings: Settings
    tol: float
    max_iter: int
    moments: FoldMoments | None = None
    covariance: list[Array] | None = None
    profiles: list[Profile] | None = None
    zeros: Zeros | None = None

    @property
    def folds(self) -> range:
        """The folds."""
        return range(self.stream.folds.count)
