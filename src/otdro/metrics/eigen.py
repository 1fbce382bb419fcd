"""The program as the paper prints it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Array, MetricLearner, generalised_eigh


class Eigen(MetricLearner):
    r"""Minimise :math:`\mathrm{tr}(\Lambda S_M)` subject to :math:`\mathrm{tr}(\Lambda S_N) \ge 1`.

    Linear in :math:`\Lambda`, so the solution has rank one: :math:`vv'` with v the top generalised
    eigenvector of :math:`(S_N, S_M)`. Kept for fidelity to the paper; the shrinkage is what makes
    it a cost. Parameters and attributes as in ``MetricLearner``.
    """

    def __init__(
        self,
        *,
        kind: str = "each",
        k: int = 5,
        shrinkage: float = 0.4,
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

    def program(self, S_M: Array, S_N: Array) -> Array:
        """Return vv'/nu, where S_N v = nu S_M v and v'S_M v = 1."""
        nu, V = generalised_eigh(S_N, S_M)
        Lam: Array = np.outer(V[:, -1], V[:, -1]) / nu[-1]
        return Lam
