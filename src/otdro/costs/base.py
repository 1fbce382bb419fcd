"""The contract of a transport cost c(u, x) = d(u, x)^order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

Array = NDArray[Any]


class Cost(BaseEstimator):  # type: ignore[misc]
    """The geometry of a ball: a distance on rows, whose power ``order`` is the price of a move.

    A subclass writes ``dual_norm`` and ``direction``, from which gradient, adversary's move and
    worst case follow, and ``norm`` (or ``distance``). Arrays act along their last axis.
    """

    def norm(self, v: Array) -> Array:
        """Return ||v||, the price (at order 1) of the displacement v."""
        raise NotImplementedError

    def dual_norm(self, w: Array) -> Array:
        """Return max <w, v> over ||v|| <= 1."""
        raise NotImplementedError

    def direction(self, w: Array) -> Array:
        """Return a maximiser of <w, v> over ||v|| <= 1: a (sub)gradient of the dual norm."""
        raise NotImplementedError

    def transform(self, X: Array) -> Array:
        """Return rows whose plain (l_p) distances are the distances of this cost."""
        raise NotImplementedError

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return np.stack([self.norm(V - u) for u in U]) if len(U) else np.empty((0, len(V)))

    def check(self, n_features: int) -> None:
        """Raise a ValueError if this cost is not well formed for rows of ``n_features`` columns."""

    def factor(self) -> Array | None:
        """Return L with ||v|| = ||L'v||_2, None for the identity; refuse if there is none."""
        raise ValueError(f"{self!r} is not Euclidean after a linear map.")

    @property
    def euclidean(self) -> bool:
        """Whether ``factor`` exists."""
        return type(self).factor is not Cost.factor
