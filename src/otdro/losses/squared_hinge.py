"""Squared hinge loss."""

import numpy as np

from .piecewise import PiecewiseQuadratic


class SquaredHinge(PiecewiseQuadratic):
    r"""Squared hinge loss :math:`\max(0, 1 - yz)^2` for labels in {-1, +1}."""

    task = "classification"
    slopes = (0.0, np.inf)
    kappa = 0.5
