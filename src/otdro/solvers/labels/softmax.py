r"""The softmax model whose labels change at the price kappa, at order 1.

.. math:: \min_{C, c, t}\ \delta t + \sum_i \pi_i \Bigl[\log\sum_k e^{z_{ik}}
          + \max_j\{-z_{ij} - \kappa t\,[j \ne y_i]\}\Bigr],\qquad t \ge \max_p \|D_p\|_*,

by Newton's method along smoothings of the maximum. With probabilities p of the
scores and shares q of the labels that a row is given, minus Z'(pi (p - q)) is the divergence of
flows v of the pairs, and

.. math:: F^* \ge \sum_i \pi_i H(p_i)/(1 + x/\delta),\qquad
          \textstyle\sum_p \|v_p\| \le \delta + x - \kappa \sum_i \pi_i (1 - q_{iy_i}),

H the entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import Dual, priced_pair_risk
from ...losses.softmax import entropy
from ..norm_rows import Barrier, NormRows
from ..smoothing.quadrature import softmax
from ..softmax.penalty import PairPenalty, corrected
from ..softmax.rows import SoftmaxRows
from .priced_rows import Accuracy
from .smoothings import FIRST, SmoothMinimum, SmoothPlace, follow

Array = NDArray[Any]

#: The first smoothing from a place whose risk is known to be near the least one, in units of what
#: it may be above that; and the least first one, in units of the risk.
OF_EXCESS, LEAST_FIRST = 0.02, 1e-5
#: How far above the largest norm the first t is.
ABOVE = 1.02


def minimise(
    task: PricedSoftmax, at: SmoothPlace, accuracy: Accuracy, known: float
) -> SmoothMinimum:
    """Follow the smoothings until the gap is at most the target; ``known`` bounds the least risk.

    The first one is less than what the place may be above that.
    """
    risk = task.risk(at).risk
    size = max(accuracy.unit, risk)
    share = OF_EXCESS * (risk - known) / size if known > 0 else FIRST
    tau = size * float(np.clip(share, LEAST_FIRST, FIRST))
    return follow(task, at, tau, accuracy)


@dataclass(frozen=True, eq=False)
class PricedSoftmax:
    """The objective over x = (C, c, t): rows, the penalty, the slacks of its norm, the prices."""

    rows: SoftmaxRows
    penalty: PairPenalty
    norm: NormRows
    delta: float
    kappa: float

    def step(self, x: Array) -> SmoothPlace:
        """Return a step of x with that of the scores."""
        C, c = self.rows.split(x[:-1])
        return SmoothPlace(x, self.rows.scores(C, c))

    def place(self, C: Array, c: Array, least: float) -> SmoothPlace:
        """Return the place of coefficients, with a t near the best multiplier of theirs."""
        at = self.step(np.append(self.rows.joined(C, c), 0.0))
        t = max(ABOVE * self._largest(at), self.risk(at).multiplier, least)
        return SmoothPlace(np.append(at.x[:-1], t), at.z)

    def _largest(self, at: SmoothPlace) -> float:
        """Return the largest norm over pairs."""
        return float(self.penalty.norms(self._differences(at.x)).max())

    def _differences(self, x: Array) -> Array:
        """Return B_k - B_l of every pair, (P, d)."""
        return self.rows.differences(self.rows.split(x[:-1])[0])

    def risk(self, at: SmoothPlace) -> Dual:
        """Return the worst-case risk of a place and its multiplier."""
        rows = self.rows
        known = (at.z, rows.labels, rows.weights, self._largest(at), self.delta, self.kappa)
        return priced_pair_risk(*known)

    def _other(self) -> Array:
        """Return 1 where a class is not the row's own, (n, K)."""
        other = np.ones((len(self.rows.labels), self.rows.classes))
        other[self.rows.own] = 0.0
        return other

    def _heights(self, at: SmoothPlace) -> Array:
        """Return h_j = -z_j - kappa t [j != y]."""
        return -at.z - self.kappa * at.x[-1] * self._other()

    def _barrier(self, at: SmoothPlace) -> Barrier:
        """Return the barriers of all pairs."""
        return self.norm.barrier(self._differences(at.x).T, float(at.x[-1]))

    def value(self, at: SmoothPlace, tau: float) -> float:
        """Return the smoothed objective, inf outside its domain."""
        barrier = self._barrier(at).value
        if not np.isfinite(barrier):
            return np.inf
        loss = softmax(at.z)[1] + tau * softmax(self._heights(at) / tau)[1]
        return float(self.delta * at.x[-1] + self.rows.weights @ loss + tau * barrier)

    def derivatives(self, at: SmoothPlace, tau: float) -> tuple[Array, Array]:
        """Return gradient and Hessian of the smoothed objective."""
        rows, kappa, pi = self.rows, self.kappa, self.rows.weights
        p = softmax(at.z)[0]
        q = softmax(self._heights(at) / tau)[0]
        own = q[rows.own]
        k, j = rows.all_pairs
        size = len(at.x)
        g, H = np.zeros(size), np.zeros((size, size))
        bend = p[:, k] * p[:, j] + q[:, k] * q[:, j] / tau
        H[:-1, :-1] = rows.pair_curvature(pi[:, None] * bend)
        # (kappa/tau) (diag q - qq')(1 - e_y) = -(kappa/tau) (diag q - qq') e_y
        cross = q * own[:, None]
        cross[rows.own] -= own
        H[-1, :-1] = H[:-1, -1] = rows.gradient(kappa / tau * cross)
        H[-1, -1] = kappa**2 * float(pi @ (own * (1 - own))) / tau
        g[:-1] = rows.gradient(p - q)
        g[-1] = self.delta - kappa * float(pi @ (1 - own))
        barrier = self._barrier(at)
        g += tau * rows.pair_gradient(barrier.gradient)
        H += tau * rows.pair_hessian(barrier.matrix)
        return g, H

    def lower_bound(self, at: SmoothPlace, tau: float, step: SmoothPlace) -> tuple[float, Array]:
        """Return the bound of p and q continued along a Newton step, and p - q."""
        rows, pi = self.rows, self.rows.weights
        p = softmax(at.z)[0]
        q = softmax(self._heights(at) / tau)[0]
        after = p + rows.bent(p, step.z)
        q = q + rows.bent(q, -step.z - self.kappa * step.x[-1] * self._other()) / tau
        if rows.fit_intercept:
            mean = np.diag(pi @ p) - (pi[:, None] * p).T @ p
            b = -np.linalg.lstsq(mean, pi @ (after - q), rcond=None)[0]
            after = after + rows.bent(p, np.broadcast_to(b, p.shape))
        heavy = pi > 0
        if after[heavy].min() < 0 or q[heavy].min() < 0:
            return 0.0, p - q
        flows = corrected(rows, rows.adjoint(after - q), self._flows(at, tau, step))
        need = float(self.penalty.sizes(flows).sum())
        paid = self.delta - self.kappa * float(pi @ (1 - q[rows.own]))
        excess = max(0.0, need - paid)
        mean_entropy = float(pi[heavy] @ entropy(after[heavy]).sum(axis=1))
        return mean_entropy / (1 + excess / self.delta), after - q

    def _flows(self, at: SmoothPlace, tau: float, step: SmoothPlace) -> Array:
        """Return tau times the barriers' gradients in D, continued along a step."""
        barrier, dD = self._barrier(at), self._differences(step.x).T
        move = np.append(dD, np.full((1, dD.shape[1]), step.x[-1]), axis=0)
        moved = barrier.gradient + np.einsum("ijp,jp->ip", barrier.matrix, move)
        return np.asarray(tau * moved[:-1].T)
