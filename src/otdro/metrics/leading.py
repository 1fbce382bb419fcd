"""The covariance of rows of many columns: its leading directions, the rest taken as even."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from ..costs.low_rank import LowRank
from ..design import Design, mean

Array = NDArray[Any]

#: Leading directions that are kept.
RANK = 50
#: Rows up to which the leading directions are found directly; of more, by iteration.
ALL_UP_TO = 600
#: Directions that the iteration carries beyond those kept, its rounds, and its seed.
SPARE, ROUNDS, SEED = 10, 8, 0


@dataclass(frozen=True, eq=False)
class Leading:
    r"""The matrix :math:`V\mathrm{diag}(\lambda)V' + \bar\lambda(I - VV')`.

    ``vectors`` V (d, k) are orthonormal, ``spread`` lambda (k,) is the variance along them and
    ``rest`` the mean variance along all directions across them.
    """

    vectors: Array
    spread: Array
    rest: float

    def power(self, p: float, shrinkage: float) -> LowRank:
        """Return ((1 - s) C d/tr C + s I)^p scaled to trace d, p > 0; I where C = 0."""
        price, even = self._prices(p, shrinkage)
        rise = np.sqrt(np.maximum(price - even, 0.0))
        return LowRank(np.full(len(self.vectors), even), self.vectors * rise)

    def written_power(self, p: float, shrinkage: float) -> Array:
        """Return the same written out, for any p."""
        V, (price, even) = self.vectors, self._prices(p, shrinkage)
        d, k = V.shape
        Lam: Array = (V * price) @ V.T if k == d else even * np.eye(d) + (V * (price - even)) @ V.T
        return (Lam + Lam.T) / 2

    def _prices(self, p: float, shrinkage: float) -> tuple[Array, float]:
        """Return the eigenvalues of the power along the vectors, and the one across them."""
        d, k = self.vectors.shape
        trace = self.spread.sum() + (d - k) * self.rest
        if trace == 0:
            return np.ones(k), 1.0
        price = ((1 - shrinkage) * self.spread * (d / trace) + shrinkage) ** p
        even = float(((1 - shrinkage) * self.rest * (d / trace) + shrinkage) ** p)
        unit = d / (price.sum() + (d - k) * even)
        return unit * price, unit * even


def leading(X: Any) -> Leading:
    """Return the leading directions of the covariance of the rows X, dense or CSR."""
    n = X.shape[0]
    return of_rows(Design(X, center=mean(X, np.full(n, 1 / n))), RANK)


def of_rows(design: Design, rank: int) -> Leading:
    """Return at most ``rank`` leading directions of rows z, those of E[zz'].

    They come from the n x n kernel ZZ' = U s^2 U': V = Z'U/s.
    """
    n, d = design.n, design.d
    K = design.kernel()
    total = float(np.trace(K))
    square, U = _top(K, design, rank)
    some = square > n * np.finfo(float).eps * max(total, np.finfo(float).tiny)
    square, U = square[some], U[:, some]
    if design.center is not None:
        # of rows of mean zero 1'U = 0: made so to rounding, a centre drops out of Z'U
        U = U - U.mean(axis=0)
    vectors = design.uncentred.adjoint(U / np.sqrt(square))
    rest = max(total - float(square.sum()), 0.0) / (d - len(square))
    # what rounding leaves of directions that all rows lack
    rest = rest if rest > np.finfo(float).eps * total else 0.0
    return Leading(vectors, square / n, rest / n)


def _top(K: Array, design: Design, rank: int) -> tuple[Array, Array]:
    """Return the leading eigenvalues and eigenvectors of K.

    Many rows go through rounds of subspace iteration from fixed directions of the columns, so that
    the order of the rows decides nothing.
    """
    n = len(K)
    if n <= max(ALL_UP_TO, rank):
        square, U = eigh(K, subset_by_index=[max(0, n - rank), n - 1], check_finite=False)
        return square[::-1], U[:, ::-1]
    begin = np.random.default_rng(SEED).standard_normal((design.d, rank + SPARE))
    Q = np.linalg.qr(design.scores(begin))[0]
    for _ in range(ROUNDS):
        Q = np.linalg.qr(K @ Q)[0]
    square, turn = np.linalg.eigh(Q.T @ K @ Q)
    return square[::-1][:rank], (Q @ turn)[:, ::-1][:, :rank]


def stacked(X: Any, more: Any) -> Any:
    """Return the rows of both, sparse where the first are."""
    if sparse.issparse(X):
        both: Any = [X, sparse.csr_array(more)]
        return sparse.csr_array(sparse.vstack(both, format="csr"))
    return np.vstack([X, more])
