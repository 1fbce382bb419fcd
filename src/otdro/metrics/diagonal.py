"""One price a feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Array, MetricLearner


class Diagonal(MetricLearner):
    r"""Price feature j at :math:`\lambda_j = (S_N)_{jj}^p / (S_M)_{jj}^p`.

    It minimises :math:`\sum_j p\lambda_j^{1/p} (S_M)_{jj} - (S_N)_{jj}\log\lambda_j`
    over diagonal matrices: the penalty of the robust problem is then that of an adaptive ridge.

    Parameters
    ----------
    power : float >= 0
        The exponent p; 0 gives the identity.

    Other parameters and attributes as in ``MetricLearner``.
    """

    def __init__(
        self,
        power: float = 1.0,
        *,
        kind: str = "each",
        k: int = 5,
        shrinkage: float = 0.1,
        task: str = "auto",
        approximate: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            kind=kind,
            k=k,
            shrinkage=shrinkage,
            task=task,
            approximate=approximate,
            random_state=random_state,
        )
        self.power = power

    def check_parameters(self) -> None:
        """Refuse a negative power."""
        if not self.power >= 0:
            raise ValueError(f"power must be at least 0, got {self.power!r}.")

    def program(self, S_M: Array, S_N: Array) -> Array:
        """Return the diagonal matrix of ratios to the power p."""
        ratio = np.diag(S_N) / np.diag(S_M)
        return np.diag((ratio / ratio.max()) ** self.power)
