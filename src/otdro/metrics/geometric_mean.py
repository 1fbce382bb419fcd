"""The geometric mean of the two scatters."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.linalg import eigh, solve_triangular

from .base import Array, MetricLearner


@dataclass(eq=False, repr=False)
class GeometricMean(MetricLearner):
    r"""Minimise :math:`\mathrm{tr}(\Lambda S_M) + \mathrm{tr}(\Lambda^{-1} S_N)` (t = 1/2).

    The solution is the midpoint of the geodesic from :math:`S_M^{-1}` to :math:`S_N`; other t take
    the point :math:`S_M^{-1} \#_t S_N`, which minimises :math:`(1-t)\,\delta^2(\Lambda, S_M^{-1}) +
    t\,\delta^2(\Lambda, S_N)`, :math:`\delta` the Riemannian distance of positive definite matrices
    (Zadeh, Hosseini and Sra, 2016).

    Parameters
    ----------
    t : float in [0, 1]
        0 gives :math:`S_M^{-1}`, 1 gives :math:`S_N`.

    Other parameters and attributes as in ``MetricLearner``.
    """

    t: float = 0.25
    _: KW_ONLY
    shrinkage: float = 0.5

    def program(self, S_M: Array, S_N: Array) -> Array:
        """Return C^-T (C'S_N C)^t C^-1, S_M = CC'."""
        C = np.linalg.cholesky(S_M)
        size, U = eigh(C.T @ S_N @ C)
        V = solve_triangular(C, U, lower=True, trans="T")
        # rounding may leave a tiny negative eigenvalue when S_N is nearly singular
        return (V * np.maximum(size, 0.0) ** self.t) @ V.T
