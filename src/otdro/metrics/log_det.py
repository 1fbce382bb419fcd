"""The log-determinant program."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from .base import Array, MetricLearner


@dataclass(eq=False, repr=False)
class LogDet(MetricLearner):
    r"""Minimise :math:`\mathrm{tr}(\Lambda S_M) - \mu\log\det\Lambda` where cannot-links are far.

    Far is :math:`\mathrm{tr}(\Lambda S_N) \ge 1`.
    With :math:`S_N V = S_M V \mathrm{diag}(\nu)`, :math:`V'S_MV = I`, the solution is
    :math:`\mu V \mathrm{diag}(1/(1 - \kappa\nu)) V' = \mu (S_M - \kappa S_N)^{-1}`.

    Parameters
    ----------
    mu : float > 0
        In units of :math:`1/\sum\nu`, so that it has no scale: from 1 on the constraint is slack
        and the solution is :math:`S_M^{-1}`; towards 0 it is that of ``Eigen``.

    Other parameters and attributes as in ``MetricLearner``.
    """

    mu: float = 0.5
    _: KW_ONLY
    shrinkage: float = 0.5

    def program(self, S_M: Array, S_N: Array) -> Array:
        """Return mu V diag(1/(1 - kappa nu)) V'."""
        nu, V = eigh(S_N, S_M)
        slack = 1 - multiplier(nu / nu[-1], self.mu) * nu / nu[-1]
        return np.asarray(self.mu / nu.sum() * (V / slack) @ V.T)


def multiplier(nu: Array, mu: float) -> float:
    """Return kappa >= 0 with mu sum nu/(1 - kappa nu) = sum nu for max nu = 1, or 0 if mu >= 1."""
    if mu >= 1:
        return 0.0

    # in s = 1 - kappa, so that nearness to the pole at 1 keeps its digits
    def excess(s: float) -> float:
        return float(mu * (nu / (1 - (1 - s) * nu)).sum() - nu.sum())

    # the top term alone is mu/s <= sum nu at the root, which is above half of mu / sum nu
    exact = np.finfo(float)
    return 1 - float(brentq(excess, mu / nu.sum() / 2, 1.0, xtol=exact.tiny, rtol=4 * exact.eps))
