r"""Any norm, known by ``norm``, ``dual_norm`` and ``direction`` alone.

The dual norm is the largest of its cuts, :math:`\|\theta\|_* = \max_{\|v\| \le 1} \langle v,
\theta\rangle`, and v = direction(theta) is the one that is active at theta. A master problem has
some of them, and the second-order term that they lack near the best point so far,

.. math:: \max_k \langle v_k, \theta\rangle + (\theta - c)'H(\theta - c)/2,\qquad
          H = \sum_k a_k \nabla^2\|\cdot\|_*(\theta_k)\ /\ \sum_k a_k,

the Hessian of the Lagrangian at the multipliers a of the last master, by differences of
``direction``. Polyhedral norms need no H and end in finitely many rounds; for others the method
is Newton's. The bounds are those of the norm itself, whatever the master.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...losses.base import Array
from .central_path import Best, Outcome, follow_path
from .model import Model, saddle
from .norms import CutNorm, UnitCost

#: The steps of differences of ``direction``, relative to a coefficient.
DIFFERENCE = 1e-4
#: Coefficients below this share of the largest take steps of that share.
SMALLEST = 1e-4
#: Differences to both sides that are that much apart, relative to their size, meet a kink.
KINK = 0.5
#: A master is solved to this share of the gap so far: its minimiser only suggests cuts.
LOOSE = 1e-2
#: Cuts with a smaller share of the multipliers have no part in the curvature.
ACTIVE = 1e-3
#: Newton steps of one master.
STEPS = 60
#: Above this number of cuts per column the less active half is dropped.
CUTS_PER_COLUMN = 40
#: Eigenvalues of a curvature below this share of the largest are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Cuts:
    """The cuts v, rows of ``normal``, and the points ``at`` where they are active."""

    normal: Array
    at: Array

    def with_points(self, cost: UnitCost, points: Array) -> Cuts:
        """Return these and the cuts at some more points."""
        normal = np.vstack([self.normal, cost.direction(points)])
        return Cuts(normal, np.vstack([self.at, points]))

    def kept(self, index: Array) -> Cuts:
        """Return some of the cuts."""
        return Cuts(self.normal[index], self.at[index])


def first_cuts(cost: UnitCost, d: int) -> Cuts:
    """Return the cuts at the unit vectors, in both directions."""
    points = np.vstack([np.eye(d), -np.eye(d)])
    return Cuts(cost.direction(points), points)


def iterate_cuts(model: Model, cost: UnitCost, goal: float, max_iter: int) -> Outcome:
    """Solve masters with more and more cuts until the gap is at most ``goal``.

    An iteration is a master: at most ``max_iter``.
    """
    d = model.design.d
    cuts = first_cuts(cost, d)
    root = np.empty((0, d))
    best = Best(model, goal)
    n_iter = 0
    while best.gap > goal and n_iter < max_iter:
        n_iter += 1
        best.model = replace(model, norm=CutNorm(cost, cuts.normal, root, best.theta))
        best.enough = LOOSE * max(min(best.gap, 1.0), goal)
        q = saddle(best.model)
        multipliers = follow_path(q, best, 0, STEPS).head[: len(cuts.normal)]
        root = _curvature(cost, cuts, multipliers, best.theta)
        cuts = _thinned(cuts, multipliers)
        if best.last.any():
            cuts = cuts.with_points(cost, best.last[None])
    return best.outcome(n_iter)


def _thinned(cuts: Cuts, multipliers: Array) -> Cuts:
    """Return the cuts, without the less active half if there are many."""
    most = CUTS_PER_COLUMN * cuts.normal.shape[1]
    if len(multipliers) <= most:
        return cuts
    active = np.argsort(-multipliers)[: most // 2]
    return cuts.kept(np.sort(active))


def _curvature(cost: UnitCost, cuts: Cuts, multipliers: Array, centre: Array) -> Array:
    """Return L with L'L = sum_k a_k H_k, the Hessians taken at the size of the centre."""
    d = len(centre)
    size = float(cost.dual_norm(centre))
    if size == 0:
        return np.empty((0, d))
    active = multipliers > ACTIVE * multipliers.sum()
    H = np.zeros((d, d))
    for point, a in zip(cuts.at[active], multipliers[active], strict=True):
        H += a * hessian(cost, point * (size / float(cost.dual_norm(point))))
    values, vectors = np.linalg.eigh(H)
    positive = values > ROUNDING * max(values[-1], 0.0)
    return np.sqrt(values[positive])[:, None] * vectors[:, positive].T


def hessian(cost: UnitCost, point: Array) -> Array:
    """Return the second derivatives of the dual norm at a point, 0 across kinks."""
    size = np.maximum(np.abs(point), SMALLEST * np.abs(point).max())
    step = DIFFERENCE * size
    here = cost.direction(point)
    ahead = (cost.direction(point + np.diag(step)) - here) / step[:, None]
    behind = (here - cost.direction(point - np.diag(step))) / step[:, None]
    apart = np.linalg.norm(ahead - behind, axis=1)
    larger = np.maximum(np.linalg.norm(ahead, axis=1), np.linalg.norm(behind, axis=1))
    smooth = apart <= KINK * larger
    H = (ahead + behind) / 2 * smooth[:, None] * smooth
    return (H + H.T) / 2
