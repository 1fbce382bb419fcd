"""Squared loss."""

import numpy as np

from .base import Array
from .piecewise import PiecewiseQuadratic


class Squared(PiecewiseQuadratic):
    r"""Squared loss :math:`(y - z)^2`, without a half."""

    task = "regression"
    slopes = (-np.inf, np.inf)
    kappa = 0.5
    profile = True

    def constant(self, y: Array, weights: Array) -> float:
        """Return the weighted mean of y, of equal targets exactly theirs."""
        mean = float(weights @ y / weights.sum())
        return min(max(mean, float(y.min())), float(y.max()))
