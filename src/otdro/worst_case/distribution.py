"""The nouns: a worst-case distribution, a model on its rows, and their moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import namespace, numbers
from ..duality import Dual
from ..problem import Problem

Array = NDArray[Any]

#: Relative to the robust risk, what a distribution may fall short by where none attains it.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class WorstCase:
    r"""A distribution in the ball whose risk is the worst-case risk, to ``shortfall``.

    Of a fitted model it is the least favourable distribution: the plain fit to it, without a
    ball, is the model itself.

    Parameters
    ----------
    points : ndarray of shape (k, d)
        Where mass is.
    targets : ndarray of shape (k,)
        The labels or targets of the points.
    weights : ndarray of shape (k,)
        Their masses; those of the points of a row sum to the row's weight.
    origin : ndarray of shape (k,)
        The row of X that each point was moved from.
    budget : float
        The mean cost of the move, at most delta.
    risk : float
        The mean loss of the model under this distribution.
    attained : bool
        False where no distribution attains the supremum (mass would escape to infinity), or, for
        the constant model, where none has it as its plain fit.
    shortfall : float
        By how much the risk falls short of the supremum.

    Examples
    --------
    >>> from otdro import DRORegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.2, 1.8, 3.1]
    >>> model = DRORegressor(cost="euclidean", delta=0.01).fit(X, y)
    >>> worst = model.worst_case()
    >>> round(worst.budget, 6), worst.attained
    (0.01, True)
    >>> bool(abs(worst.risk - model.robust_risk_) < 1e-6)
    True
    """

    points: Array
    targets: Array
    weights: Array
    origin: Array
    budget: float
    risk: float
    attained: bool
    shortfall: float


@dataclass(frozen=True, eq=False)
class ScoredModel:
    """A linear model on the rows of a problem: their scores z, and its worst case.

    ``w`` is the dual norm of the coefficients, ``gain`` the largest change of a score, or of a
    residual where targets move, at unit price.
    """

    problem: Problem
    coef: Array
    z: Array
    w: float
    gain: float
    worst: Dual


@dataclass(frozen=True, eq=False)
class Moves:
    """Atoms: the ``origin`` row, its ``mass``, the signed ``shift`` of its score, and its label.

    ``labels`` is None where rows keep theirs.
    """

    origin: Array
    mass: Array
    shift: Array
    attained: bool
    labels: Array | None = None

    def without_empty(self, n: int) -> Moves:
        """Return the atoms with mass, and one for each row without weight."""
        xp, keep = namespace(self.mass), self.mass > 0
        lonely = xp.ones_like(self.mass[:n], dtype=keep.dtype)
        lonely[self.origin[keep]] = False
        # the first atom of each row, in the order of the atoms
        order = xp.argsort(self.origin, stable=True)
        sorted_ = self.origin[order]
        first = xp.zeros_like(keep)
        first[order[:1]] = True
        first[order[1:]] = sorted_[1:] != sorted_[:-1]
        keep = keep | (lonely[self.origin] & first)
        labels = None if self.labels is None else self.labels[keep]
        return Moves(self.origin[keep], self.mass[keep], self.shift[keep], self.attained, labels)

    def spending(self, w: float, delta: float) -> Moves:
        """Return the moves with their shifts scaled so that E (s/w)^2 = delta to rounding."""
        spent = float(self.mass @ (self.shift / w) ** 2)
        scale = np.sqrt(delta / spent) if spent > 0 else 1.0
        return Moves(self.origin, self.mass, self.shift * scale, self.attained)


def still(weights: Array, attained: bool = True) -> Moves:
    """Return no moves."""
    n = len(weights)
    return Moves(numbers(n, weights), weights, 0.0 * weights, attained)


def branches(masses: list[Array], shifts: list[Array], attained: bool) -> Moves:
    """Return atoms from masses and shifts of all rows, one pair of arrays (n,) per branch."""
    n, xp = len(masses[0]), namespace(masses[0])
    origin = xp.concat([numbers(n, masses[0])] * len(masses))
    return Moves(origin, xp.concat(masses), xp.concat(shifts), attained).without_empty(n)
