"""One price per feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..costs.mahalanobis import of_diagonal
from ..design import is_wide
from ..pairs import Pairs
from .base import MetricLearner, least_spreads


@dataclass(eq=False, repr=False)
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

    takes_wide = True

    power: float = 1.0

    def solve(self, X: Any, pairs: Pairs) -> Any:
        """Return the solution from the diagonals alone, lifted to RIDGE times their means."""
        if not self.power >= 0:
            raise ValueError(f"power must be at least 0, got {self.power!r}.")
        both = pairs.must.squares(X), pairs.cannot.squares(X)
        least = least_spreads(*(float(s.mean()) for s in both))
        s_M, s_N = (s + max(0.0, low - s.min()) for s, low in zip(both, least, strict=True))
        ratio = s_N / s_M
        price = (ratio / ratio.max()) ** self.power
        return of_diagonal(price) if is_wide(X) else np.diag(price)
