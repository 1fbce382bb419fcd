r"""The softmax model at order 1: the largest dual norm over pairs of classes.

.. math:: \sup_{P:\,D_c(P,P_n)\le\delta} E_P\,\ell = E\,\ell + \delta \max_{y,\,k\ne y}
          \|B_k - B_y\|_*,

y over the classes of positive weight: a row of class y moves towards looking like class k.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from .labels import least_price
from .multiplier import Dual

Array = NDArray[Any]


class Pair(NamedTuple):
    """The class ``own`` of the rows that move, the class ``other``, and ||B_other - B_own||_*."""

    own: int
    other: int
    norm: float


def pair_norms(cost: Cost, coef: Array) -> Array:
    """Return ||B_k - B_y||_* as a matrix over (y, k)."""
    difference = coef[None, :, :] - coef[:, None, :]
    K = len(coef)
    norms: Array = np.zeros((K, K))
    off = ~np.eye(K, dtype=bool)
    norms[off] = cost.dual_norm(difference[off])
    return norms


def steepest_pair(cost: Cost, coef: Array, present: Array) -> Pair:
    """Return the pair of the largest norm whose own class is ``present`` (K,)."""
    norms = np.where(present[:, None], pair_norms(cost, coef), -1.0)
    own, other = np.unravel_index(int(norms.argmax()), norms.shape)
    return Pair(int(own), int(other), float(norms[own, other]))


def priced_pair_risk(
    z: Array, labels: Array, weights: Array, norm: float, delta: float, kappa: float
) -> Dual:
    """Return the worst-case risk of scores (n, K) where labels change at the price kappa.

    min over t >= norm of delta t + E max(l(z, y), max_j l(z, j) - kappa t): a row of label y gains
    z_y - min z by a change.
    """
    mine = z[np.arange(len(z)), labels]
    gain = mine - z.min(axis=1)
    top = z.max(axis=1)
    plain = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - mine
    rise = least_price(gain, weights, norm, delta, kappa)
    return Dual(rise.risk + float(weights @ plain), rise.multiplier)
