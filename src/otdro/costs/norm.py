"""The l_1, l_2 and l_inf norms as costs."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from .base import Array, Cost, Geometry

_DUAL = {1: np.inf, 2: 2, np.inf: 1}
_METRIC = {1: "cityblock", 2: "euclidean", np.inf: "chebyshev"}


class Norm(Cost):
    r"""Cost :math:`\|u - x\|_p`, p in {1, 2, inf}; the penalty it gives is the dual norm.

    ``Norm(inf)`` charges the largest move and penalises :math:`\|\beta\|_1`, as the lasso does.

    Parameters
    ----------
    p : {1, 2, inf}, default=2
        The exponent.

    Examples
    --------
    >>> import numpy as np
    >>> from otdro.costs import Norm
    >>> float(Norm(np.inf).dual_norm(np.array([3.0, -4.0])))
    7.0
    """

    def __init__(self, p: float = 2) -> None:
        self.p = p

    @property
    def geometry(self) -> Geometry:  # type: ignore[override]
        """Euclidean for p = 2, else a norm."""
        return "euclidean" if self.p == 2 else "norm"

    @property
    def dual_p(self) -> float:  # type: ignore[override]
        """The exponent q of the dual norm, 1/p + 1/q = 1."""
        self.check(0)
        return float(_DUAL[self.p])

    def check(self, n_features: int) -> None:
        """Refuse a p other than 1, 2 or inf."""
        if self.p not in _DUAL:
            raise ValueError(f"Norm needs p = 1, 2 or inf, got p={self.p!r}.")

    def norm(self, v: Array) -> Array:
        """Return the l_p norm."""
        return np.linalg.norm(v, ord=self.p, axis=-1)

    def dual_norm(self, w: Array) -> Array:
        """Return the l_q norm, 1/p + 1/q = 1."""
        return np.linalg.norm(w, ord=self.dual_p, axis=-1)

    def direction(self, w: Array) -> Array:
        """Return a unit vector v with the largest <w, v>.

        It is ``w/||w||_2`` for p = 2, sign(w) for p = inf, and the signed unit vector of the
        largest entry for p = 1.
        """
        w = np.asarray(w, dtype=float)
        if self.p == np.inf:
            # sign(0) := 1 keeps the norm of the direction at 1 without changing <w, v>
            return np.where(w < 0, -1.0, 1.0)
        if self.p == 1:
            j = np.abs(w).argmax(axis=-1)[..., None]
            v = np.zeros_like(w)
            np.put_along_axis(v, j, np.where(np.take_along_axis(w, j, -1) < 0, -1.0, 1.0), -1)
            return v
        return unit(w)

    def transform(self, X: Array) -> Array:
        """Return X itself."""
        return X

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return cdist(U, V, _METRIC[self.p])  # type: ignore[call-overload]

    def factor(self) -> None:
        """Return None, the identity, for p = 2."""
        if self.p != 2:
            super().factor()

    def _extreme_loadings(self, move: Array, free: Array) -> tuple[Array, Array]:
        """Return the extremes: one feature alone, or (p = 1) D 1 up and (p = inf) D^-1 1 down."""
        axes = np.eye(len(move))
        low, high = axes[move.argmin()], axes[move.argmax()]
        if self.p == 1:
            return low, unit(move)
        return (unit(1 / move), high) if self.p == np.inf else (low, high)


def unit(w: Array) -> Array:
    """Return w/||w||_2, the first unit vector where w = 0."""
    w = np.asarray(w, dtype=float)
    size = np.linalg.norm(w, axis=-1, keepdims=True)
    first = np.zeros_like(w)
    first[..., 0] = 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, w / size, first)
