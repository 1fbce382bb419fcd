"""Quantile (pinball) loss."""

from .piecewise import PiecewiseQuadratic


class Quantile(PiecewiseQuadratic):
    r"""Pinball loss :math:`\max(\tau e, (\tau - 1) e)`, e = y - z: tau-quantile regression.

    Parameters
    ----------
    tau : float in (0, 1), default=0.5
        The quantile.
    """

    task = "regression"
    kappa = 0.0

    def __init__(self, tau: float = 0.5) -> None:
        self.tau = tau

    @property
    def slopes(self) -> tuple[float, float]:
        """The range [tau - 1, tau] of the derivative."""
        if not 0 < self.tau < 1:
            raise ValueError(f"Quantile needs 0 < tau < 1, got tau={self.tau!r}.")
        return float(self.tau) - 1, float(self.tau)
