"""The program as the paper prints it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.linalg import eigh

from ..pairs import Pairs
from .base import Array, MetricLearner, scatters


@dataclass(eq=False, repr=False)
class Eigen(MetricLearner):
    r"""Minimise :math:`\mathrm{tr}(\Lambda S_M)` subject to :math:`\mathrm{tr}(\Lambda S_N) \ge 1`.

    Linear in :math:`\Lambda`, so the solution has rank one: :math:`vv'` with v the top generalised
    eigenvector of :math:`(S_N, S_M)`. Kept for fidelity to the paper; the shrinkage is what makes
    it a cost. Parameters and attributes as in ``MetricLearner``.
    """

    _: KW_ONLY
    shrinkage: float = 0.4

    def solve(self, X: Array, pairs: Pairs) -> Array:
        """Return the solution for S_N without its ridge.

        Along a direction in which no pair differs, as that of a constant column, the ridges alone
        would decide, and could tie with a direction that tells the classes apart.
        """
        S_M, ridged = scatters(X, pairs)
        S_N = pairs.cannot.scatter(X)
        return self.program(S_M, S_N if S_N.any() else ridged)

    def program(self, S_M: Array, S_N: Array) -> Array:
        """Return vv'/nu, where S_N v = nu S_M v and v'S_M v = 1."""
        nu, V = eigh(S_N, S_M)
        return np.asarray(np.outer(V[:, -1], V[:, -1]) / nu[-1])
