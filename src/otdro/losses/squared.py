"""Squared loss."""

import numpy as np

from .base import PiecewiseQuadratic


class Squared(PiecewiseQuadratic):
    r"""Squared loss :math:`(y - z)^2`, without a half."""

    task = "regression"
    slopes = (-np.inf, np.inf)
    kappa = 0.5
