"""Hinge loss."""

from .piecewise import PiecewiseQuadratic


class Hinge(PiecewiseQuadratic):
    r"""Hinge loss :math:`\max(0, 1 - yz)` for labels in {-1, +1}."""

    task = "classification"
    slopes = (0.0, 1.0)
    kappa = 0.0
