r"""Newton's method along smoothings of the largest piece, under Euclidean costs and of many rows.

.. math:: \min_{\theta, b, x}\ \delta\lambda + \sum_i \pi_i\,\tau\log\sum_j e^{f_{ij}(z_i, s)/\tau}

with t = ||theta|| + x, x >= 0, at order 1, where lambda = Lip t, and t = ||theta||, lambda = x at
order 2, where the risk grows in t: no barrier is needed. A smoothing adds tau times the mass of the
rows within tau of a tie, which is of order tau^2 where rows are many: few smoothings do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality.ties import factored
from ..base import duality_gap
from .kept_moments import KeptMoments
from .newton import (
    ARMIJO,
    HALVINGS,
    Moments,
    Place,
    PricedMinimum,
    PricedRows,
    Risk,
    curvature,
    gradient,
    hessian,
    lower_bound,
)
from .pieces import SmoothPieces

Array = NDArray[Any]

#: Rows per column from which on these steps are fewer than those of interior points.
FROM = 100
#: The first smoothing, in units of the risk, and the limits of the factor to the next.
FIRST, FASTEST, SLOWEST = 0.1, 0.05, 0.5
#: What a smoothing should add at the end, relative to the target.
SPARE = 0.5
#: Newton steps in all, and the decrease, relative to what a smoothing adds, that ends its steps;
#: relative to the smoothing, the decrease from which on a step brings the shares to their places.
STEPS, SETTLED, EXACT = 40, 0.3, 1e-3
#: Coefficients this much smaller than at the start are on their way to zero, which smoothings take
#: long to reach.
COLLAPSED = 0.1
#: What a smoothing adds, relative to the target, up to which a bound may prove the gap.
WORTH = 1.5


@dataclass(frozen=True, eq=False)
class SmoothPoint:
    """(theta, b, x) with scores and scalars s, pieces, shares q and the smoothed objective.

    ``added`` is the part of the objective that smoothing adds.
    """

    theta: Array
    b: float
    x: float
    z: Array
    s: Array
    pieces: SmoothPieces
    q: Array
    value: float
    added: float

    @property
    def place(self) -> Place:
        """The point in (theta, b, s)."""
        return Place(self.theta, self.b, self.s, self.z)


class SmoothStep(NamedTuple):
    """A move of (theta, b, x) and the decrease that it promises."""

    move: Array
    decrease: float


class Settled(NamedTuple):
    """About the minimiser of a smoothing."""

    point: SmoothPoint
    tau: float


def minimise(
    rows: PricedRows, place: Place, risk_of: Risk, unit: float, target: float, max_iter: int
) -> PricedMinimum | None:
    """Return the minimum from a place with coefficients, None where the steps do not get there."""
    lam = risk_of(place)[1]
    x = lam
    if rows.worst.scalars == 1:
        x = max(lam / rows.loss.lipschitz - float(np.linalg.norm(place.theta)), 0.0)
    tau = FIRST * unit
    kept = KeptMoments(rows.design)
    now = _at(rows, place.theta, place.b, x, place.z, tau)
    last: Settled | None = None
    for n_iter in range(1, min(STEPS, max_iter) + 1):
        if now is None:
            return None
        step = _step(rows, now, tau, kept.about)
        if step.decrease <= SETTLED * now.added and now.added > WORTH * target:
            if np.linalg.norm(now.theta) < COLLAPSED * np.linalg.norm(place.theta):
                return None
            after = tau * float(np.clip(np.sqrt(SPARE * target / now.added), FASTEST, SLOWEST))
            settled = Settled(now, tau)
            now = _ahead(rows, last, settled, after)
            if now is None:
                return None
            last, tau = settled, after
            step = _step(rows, now, tau, kept.about)
        elif step.decrease <= EXACT * tau:
            # the slopes meet the constraints of the dual problem along the step of all rows
            step = _step(rows, now, tau, kept.exactly)
            found = _certified(rows, now, tau, step, risk_of, n_iter)
            if found.gap <= target:
                return found
        now = _search(rows, now, step, tau)
    return None


def _ahead(
    rows: PricedRows, last: Settled | None, settled: Settled, tau: float
) -> SmoothPoint | None:
    """Return the line through two settled points at the next smoothing, the last one if worse."""
    p = settled.point
    here = _at(rows, p.theta, p.b, p.x, p.z, tau)
    if last is None:
        return here
    along = (tau - settled.tau) / (settled.tau - last.tau)
    names = ("theta", "b", "x", "z")
    pairs = [(getattr(last.point, name), getattr(p, name)) for name in names]
    theta, b, x, z = (v + along * (v - u) for u, v in pairs)
    there = _at(rows, theta, b, max(x, 0.0), z, tau)
    return here if there is None or (here is not None and here.value <= there.value) else there


def _certified(
    rows: PricedRows, now: SmoothPoint, tau: float, step: SmoothStep, risk_of: Risk, n_iter: int
) -> PricedMinimum:
    """Return a point with its gap."""
    risk, lam = risk_of(now.place)
    d = len(now.theta)
    dt = float(now.theta @ step.move[:d]) / float(np.linalg.norm(now.theta))
    ds = [dt + step.move[-1]] if rows.worst.scalars == 1 else [dt, step.move[-1]]
    lower, slopes = lower_bound(rows, now.place, tau, np.append(step.move[: d + 1], ds))
    return PricedMinimum(now.place, risk, lam, duality_gap(risk, lower), slopes, n_iter)


def _at(
    rows: PricedRows, theta: Array, b: float, x: float, z: Array, tau: float
) -> SmoothPoint | None:
    """Return the point, None outside the domain of the pieces."""
    w = float(np.linalg.norm(theta))
    s = np.array([w + x]) if rows.worst.scalars == 1 else np.array([w, x])
    if not rows.worst.inside(s):
        return None
    pieces = rows.worst.at(z, rows.y, s)
    top = pieces.value.max(axis=0)
    q = np.exp((pieces.value - top) / tau)
    total = q.sum(axis=0)
    added = tau * float(rows.weights @ np.log(total))
    value = rows.rate * float(s[-1]) + float(rows.weights @ top) + added
    return SmoothPoint(theta, b, x, z, s, pieces, q / total, value, added)


def _step(rows: PricedRows, now: SmoothPoint, tau: float, moments: Moments) -> SmoothStep:
    """Return the Newton step in (theta, b, x), with x >= 0 at order 1."""
    mean = (now.q * now.pieces.slope).sum(axis=1)
    H = hessian(rows, curvature(now.pieces, now.q, now.q / tau, mean), moments)
    g, M = _in_theta(now, gradient(rows, mean), H)
    bounded = rows.worst.scalars == 1
    if bounded and now.x == 0 and g[-1] >= 0:
        move = _with_last(M, g, 0.0)
    else:
        move = -cho_solve(factored(M), g, check_finite=False)
        if bounded and now.x + move[-1] < 0:
            move = _with_last(M, g, -now.x)
    return SmoothStep(move, -float(g @ move))


def _in_theta(now: SmoothPoint, g: Array, H: Array) -> tuple[Array, Array]:
    """Return gradient and Hessian in (theta, b, x) from those in (theta, b, s), t = ||theta|| + ..

    The second derivatives of the norm are g_t (I - uu')/||theta||.
    """
    d = len(now.theta)
    w = float(np.linalg.norm(now.theta))
    u = now.theta / w
    chain = np.zeros((len(H), d + 2))
    chain[: d + 1, : d + 1] = np.eye(d + 1)
    chain[d + 1, :d] = u
    chain[-1, -1] = 1.0
    M = chain.T @ H @ chain
    M[:d, :d] += max(float(g[d + 1]), 0.0) / w * (np.eye(d) - np.outer(u, u))
    return chain.T @ g, M


def _with_last(M: Array, g: Array, dx: float) -> Array:
    """Return the Newton step whose last entry is given."""
    rest = g[:-1] + dx * M[:-1, -1]
    return np.append(-cho_solve(factored(M[:-1, :-1]), rest, check_finite=False), dx)


def _search(rows: PricedRows, now: SmoothPoint, step: SmoothStep, tau: float) -> SmoothPoint | None:
    """Return the point after the longest of the steps 1, 1/2, ... that descends, None if none."""
    d = len(now.theta)
    dz = rows.design.scores(step.move[:d]) + step.move[d]
    length = 1.0
    for _ in range(HALVINGS):
        theta = now.theta + length * step.move[:d]
        b, x = np.array([now.b, now.x]) + length * step.move[d:]
        new = _at(rows, theta, float(b), float(x), now.z + length * dz, tau)
        if new is not None and new.value <= now.value - ARMIJO * length * step.decrease:
            return new
        length /= 2
    return None
