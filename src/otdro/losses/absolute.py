"""Absolute loss."""

from .piecewise import PiecewiseQuadratic


class Absolute(PiecewiseQuadratic):
    r"""Absolute loss :math:`|y - z|`: the median regression."""

    task = "regression"
    slopes = (-1.0, 1.0)
    kappa = 0.0
