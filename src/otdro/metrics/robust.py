"""A learner for pairs of which a part is mislabelled."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from math import ceil

import numpy as np
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning

from ..pairs import MAX_PAIRS, Pairs
from .base import Array, MetricLearner


@dataclass(eq=False, repr=False)
class Robust(MetricLearner):
    r"""Maximise :math:`\mathrm{tr}\,\Lambda(S_{N'} - S_{M'}) - \frac12\|\Lambda\|_F^2`.

    The maximum is over :math:`\Lambda \succeq 0` and over the pairs to keep: M' holds
    :math:`\lceil\alpha |M|\rceil` must-link and N' :math:`\lceil\alpha |N|\rceil` cannot-link
    pairs. Two things make it survive wrong labels. Pairs that swap sides at random turn
    :math:`S_N - S_M` into :math:`(1-a-b)(S_N - S_M)` in expectation, a and b the wrong shares of
    the two sets, and the trace takes the factor out. And the pairs left out are those that
    contradict the others: the longest must-link and the shortest cannot-link ones. (Keeping
    those instead would be convex in :math:`\Lambda`, and would keep precisely the wrong pairs.)

    For fixed pairs the solution is the positive part of :math:`S_{N'} - S_{M'}`; for fixed
    :math:`\Lambda` the best pairs are the :math:`\lceil\alpha|M|\rceil` shortest and
    :math:`\lceil\alpha|N|\rceil` longest. The two steps alternate from :math:`\Lambda = I`; the
    objective never falls, and they stop where it gains less than ``tol`` of itself (at the global
    maximum for alpha = 1, near a local one otherwise). The features must be on one scale.

    Parameters
    ----------
    alpha : float in (0, 1]
        Share of the pairs to keep.
    tol : float
        Stop when the objective gains less than this share.
    max_iter : int
        The most iterations.
    max_pairs : int
        Pairs of a kind above this number are subsampled.

    Other parameters as in ``MetricLearner``.

    Attributes
    ----------
    objective_ : ndarray of shape (n_steps,)
        The objective after each iteration. Zero at the end means that no direction keeps
        cannot-link pairs farther apart than must-link pairs; ``metric_`` is then the identity.
    n_iter_ : int
        Iterations.
    """

    alpha: float = 0.75
    _: KW_ONLY
    tol: float = 1e-4
    max_iter: int = 200
    max_pairs: int = MAX_PAIRS
    shrinkage: float = 0.5

    def solve(self, X: Array, pairs: Pairs) -> Array:
        """Alternate between the kept pairs and the matrix until the objective stays."""
        must, cannot = self._differences(X, pairs, self.max_pairs)
        Lam, objective = np.eye(X.shape[1]), [-np.inf]
        for _ in range(self.max_iter):
            near, far = shortest(must, Lam, self.alpha), shortest(cannot, -Lam, self.alpha)
            # the positive part of the difference of the scatters
            size, V = eigh(far.T @ far / len(far) - near.T @ near / len(near))
            Lam = (V * np.maximum(size, 0.0)) @ V.T
            # at the maximiser tr(Lam G) = |Lam|^2
            objective.append(float((Lam**2).sum() / 2))
            if self.alpha == 1 or objective[-1] - objective[-2] <= self.tol * objective[-1]:
                break
        else:
            warnings.warn(
                f"Robust still gained more than tol={self.tol:g} after max_iter={self.max_iter} "
                "iterations; raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.objective_, self.n_iter_ = np.array(objective[1:]), len(objective) - 1
        return Lam if np.trace(Lam) > 0 else np.eye(len(Lam))


def shortest(D: Array, Lam: Array, alpha: float) -> Array:
    """Return the rows d of the ceil(alpha m) smallest d'Lam d, in their order."""
    squared = ((D @ Lam) * D).sum(axis=1)
    kept: Array = D[np.sort(np.argsort(squared, kind="stable")[: ceil(alpha * len(D))])]
    return kept
