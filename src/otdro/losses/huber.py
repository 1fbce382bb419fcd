"""Huber loss."""

from .piecewise import PiecewiseQuadratic


class Huber(PiecewiseQuadratic):
    r"""Huber loss, e = y - z: :math:`e^2/2` for :math:`|e| \le M`, else :math:`M|e| - M^2/2`.

    Parameters
    ----------
    M : float > 0, default=1.35
        The size of a residual from which on the loss is linear, in the unit of the target.
    """

    task = "regression"
    kappa = 1.0

    def __init__(self, M: float = 1.35) -> None:
        self.M = M

    @property
    def slopes(self) -> tuple[float, float]:
        """The range [-M, M] of the derivative."""
        if not self.M > 0:
            raise ValueError(f"Huber needs M > 0, got M={self.M!r}.")
        return -float(self.M), float(self.M)
