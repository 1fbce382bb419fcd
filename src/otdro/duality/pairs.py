r"""The softmax model at order 1: the largest dual norm over pairs of classes.

.. math:: \sup_{P:\,D_c(P,P_n)\le\delta} E_P\,\ell = E\,\ell + \delta \max_{y,\,k\ne y}
          \|B_k - B_y\|_*,

y over the classes of positive weight: a row of class y moves towards looking like class k.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_index, class_masses
from ..costs import Cost
from ..losses import Softmax
from ..problem import Problem
from .labels import least_price
from .multiplier import Dual

Array = NDArray[Any]


class Pair(NamedTuple):
    """The class ``own`` of the rows that move, the class ``other``, and ||B_other - B_own||_*."""

    own: int
    other: int
    norm: float


def pair_norms(cost: Cost, coef: Array) -> Array:
    """Return ||B_k - B_y||_* as a matrix over (y, k), 0 on the diagonal."""
    norms = np.array([cost.dual_norm(coef - row) for row in coef])
    np.fill_diagonal(norms, 0.0)
    return norms


def steepest_pair(cost: Cost, coef: Array, present: Array) -> Pair:
    """Return the pair of the largest norm whose own class is ``present`` (K,)."""
    norms = np.where(present[:, None], pair_norms(cost, coef), -1.0)
    own, other = np.unravel_index(int(norms.argmax()), norms.shape)
    return Pair(int(own), int(other), float(norms[own, other]))


def present_classes(problem: Problem) -> Array:
    """Return which classes have weight, (K,)."""
    return class_masses(problem.y, problem.weights, problem.loss.outputs) > 0


def pair_risk(problem: Problem, coef: Array, z: Array) -> Dual:
    """Return the worst-case risk of the softmax model with these coefficients and scores (n, K)."""
    ball, weights = problem.ball, problem.weights
    norm = steepest_pair(ball.cost, coef, present_classes(problem)).norm
    if np.isfinite(ball.label_cost):
        labels = as_index(problem.y)
        return priced_pair_risk(z, labels, weights, norm, ball.delta, ball.label_cost)
    return Dual(float(weights @ problem.loss.value(z, problem.y)) + ball.delta * norm, norm)


def priced_pair_risk(
    z: Array, labels: Array, weights: Array, norm: float, delta: float, kappa: float
) -> Dual:
    """Return the worst-case risk of scores (n, K) where labels change at the price kappa.

    min over t >= norm of delta t + E max(l(z, y), max_j l(z, j) - kappa t): a row of label y gains
    z_y - min z by a change.
    """
    gain = z[np.arange(len(z)), labels] - z.min(axis=1)
    plain = float(weights @ Softmax(z.shape[1]).value(z, labels))
    rise = least_price(gain, weights, norm, delta, kappa)
    return Dual(plain + rise.risk, rise.multiplier)
