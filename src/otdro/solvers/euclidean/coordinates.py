"""Centred coordinates, in which Euclidean problems are round: one problem, or many over X."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.mahalanobis import shortest
from ...design import REDUCE_UP_TO, Design, Span, mean, row_space
from ...problem import Problem
from ..exact import Starts

Array = NDArray[Any]


class Coordinates:
    r"""Whitened, centred coordinates: :math:`\beta = LV\theta`, :math:`\|\beta\|_* = \|\theta\|_2`.

    L is the factor of the cost, V spans the rows of a wide problem (else the identity), and the
    intercept is that of the centred rows, :math:`b + \bar x'\beta`. Methods that need products
    with the rows only, and these sparse, do without V (``reduce`` False). ``center`` stands in for
    the mean row: any point near it serves.
    """

    span: Span | None

    def __init__(self, problem: Problem, reduce: bool = True, center: Array | None = None) -> None:
        self.center = None
        if problem.fit_intercept:
            self.center = mean(problem.X, problem.weights) if center is None else center
        cost = problem.ball.cost
        self.factor = cost.factor() if cost.euclidean else None
        self.X, self.span = problem.X, None
        if reduce and cost.euclidean and _is_wide(problem.X, self.d):
            self.design, self.span = row_space(self.design, problem.ball.delta == 0)

    @property
    def d(self) -> int:
        """The columns of L."""
        return int(self.X.shape[1] if self.factor is None else self.factor.shape[1])

    @cached_property
    def design(self) -> Design:
        """The rows in these coordinates."""
        return Design(self.X, self.factor, self.center)

    def theta(self, coef: Array) -> Array:
        """Return the coordinates of coefficients beta."""
        theta = coef if self.factor is None else shortest(self.factor, coef)
        return theta if self.span is None else self.span.drop(theta)

    def coef(self, theta: Array) -> Array:
        """Return beta = L V theta."""
        theta = theta if self.span is None else self.span.lift(theta)
        return theta if self.factor is None else self.factor @ theta

    def intercept(self, b: float, coef: Array) -> float:
        """Return the intercept on the rows as given, from that on centred rows."""
        return float(self.uncentred(b, coef))

    def uncentred(self, b: Any, coef: Array) -> Any:
        """Return the intercepts on the rows as given, one per column of coefficients."""
        return self._shifted(b, -coef)

    def centred(self, intercept: float, coef: Array) -> float:
        """Return the intercept on centred rows, from that on the rows as given."""
        return float(self._shifted(intercept, coef))

    def _shifted(self, b: Any, coef: Array) -> Any:
        return b if self.center is None else b + self.center @ coef

    def places(self, starts: Starts) -> tuple[Array, Array]:
        """Return theta (d, B) and the intercepts on centred rows of solutions."""
        coef = np.stack([start.coef for start in starts], axis=1)
        return self.theta(coef), self._shifted(np.array([s.intercept for s in starts]), coef)


def _is_wide(X: Any, d: int) -> bool:
    """Whether rows of d coordinates are reduced to their span."""
    return bool(d > X.shape[0] and X.shape[0] <= REDUCE_UP_TO)


class FactoredRows(Design):
    """The rows z_i = L_b'(x_i - c) of B problems over the same X, each under its own cost.

    ``factors`` (P, d, d) are the matrices L (None: the identity), problem b has that of number
    ``owner[b]``. Vectors have the problems along their last axis.
    """

    def __init__(self, X: Any, factors: list[Any], center: Array | None) -> None:
        super().__init__(X, None, center)
        self.base = Design(X, None, center)
        eye = np.eye(self.d)
        self.factors = np.stack([eye if L is None else L for L in factors])
        self.owner = np.arange(len(factors))

    def problems(self, index: Array) -> FactoredRows:
        """Return the rows of some problems."""
        some = copy(self)
        some.owner = self.owner[index]
        return some

    def lifted(self, theta: Array) -> Array:
        """Return L_b theta_b."""
        if theta.ndim == 1:
            return np.asarray(self.factors[self.owner[0]] @ theta)
        return np.asarray((self.factors[self.owner] @ theta.T[:, :, None])[:, :, 0].T)

    def _pull(self, g: Array) -> Array:
        """Return L_b'g_b."""
        if g.ndim == 1:
            return np.asarray(g @ self.factors[self.owner[0]])
        return np.asarray((g.T[:, None, :] @ self.factors[self.owner])[:, 0].T)

    def moments(self, D: Array) -> tuple[Array, Array]:
        """Return Z_b' diag(D_b) Z_b, shape (B, d, d), and Z_b'D_b, shape (d, B)."""
        G, s = self.base.moments(D)
        L = self.factors[self.owner]
        return np.swapaxes(L, 1, 2) @ G @ L, self._pull(s)

    @property
    def offset(self) -> Array:
        """|L|'|c|, what is subtracted from each column, shape (B, d)."""
        return np.asarray(self.base.offset @ np.abs(self.factors))[self.owner]

    @property
    def rounding(self) -> Array:
        """What is left of the mean square of a column that is constant."""
        return self.offset**2 * self.left_of_squares
