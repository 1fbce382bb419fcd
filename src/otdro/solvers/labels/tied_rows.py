r"""Newton steps in which rows near a tie keep both their pieces, under Euclidean costs.

.. math:: \min_{\theta, b, x}\ \delta\lambda + \sum_i \pi_i \max_j f_{ij}(z_i, s)

with t = ||theta|| + x, x >= 0, at order 1, where lambda = Lip t and x is the best one of each
(theta, b), and t = ||theta||, lambda = x at order 2. The model of a step is quadratic with a kink
:math:`\pi_i \max(0, f_{i2} - f_{i1})` for each of the rows whose two best pieces are near each
other (``kinked_quadratic``): as the shares of these pieces are then those of the minimiser of the
model, the steps converge as Newton's do where nothing is tied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...duality.labels import least_price
from ..base import duality_gap
from .kept_moments import KeptMoments
from .kinked_quadratic import KinkedQuadratic
from .pieces import SmoothPieces
from .priced_rows import (
    Accuracy,
    Moments,
    Place,
    PricedMinimum,
    PricedRows,
    along,
    bound,
    gradient,
    hessian,
)
from .smoothings import ARMIJO

Array = NDArray[Any]

#: Steps and halvings of one: where they do not do, interior points are tried.
STEPS, HALVINGS = 30, 12
#: Kinks in the model of a step at most: these many, so many per column and a share of the rows.
KINKS, PER_COLUMN, PER_ROW = 20, 4, 0.04
#: And those within this share of the last step's largest change of a difference of two pieces.
REACH = 0.25
#: The decrease, in units of the risk, from which on the curvature of all rows is taken anew.
SETTLED = 5e-4
#: The accuracy of a step's model, relative to the last decrease and to the target.
OF_DECREASE, OF_TARGET = 1e-3, 1e-2


@dataclass(frozen=True, eq=False)
class TiedPoint:
    """(theta, b, x) with scores, scalars s, pieces and the objective."""

    theta: Array
    b: float
    x: float
    z: Array
    s: Array
    pieces: SmoothPieces
    value: float

    @property
    def place(self) -> Place:
        """The point in (theta, b, s)."""
        return Place(self.theta, self.b, self.s, self.z)


class TiedStep(NamedTuple):
    """A move of (theta, b, x) and of the scores, the decrease it promises, shares (J, n) there.

    ``reach`` is the largest change of a difference of two pieces: a next step is shorter.
    """

    move: Array
    dz: Array
    decrease: float
    q: Array
    reach: float


def minimise(
    rows: PricedRows, place: Place, lam: float, accuracy: Accuracy
) -> PricedMinimum | None:
    """Return the minimum from a place with coefficients, None where the steps do not get there."""
    unit, target, max_iter = accuracy
    kept = KeptMoments(rows.design)
    now = _at(rows, place.theta, place.b, lam, place.z)
    last = TiedStep(np.zeros(0), np.zeros(0), unit, np.zeros((0, 0)), np.inf)
    for n_iter in range(1, min(STEPS, max_iter) + 1):
        if now is None:
            return None
        moments = kept.exactly if last.decrease <= SETTLED * unit else kept.about
        step = _Tied(rows, now, last, moments).step(
            max(OF_DECREASE * last.decrease, OF_TARGET * target)
        )
        if step.decrease <= target:
            found = _certified(rows, now, step, n_iter)
            if found.gap <= target:
                return found
        now, last = _search(rows, now, step), step
    return None


def _at(rows: PricedRows, theta: Array, b: float, x: float, z: Array) -> TiedPoint | None:
    """Return the point, at order 1 with the best x; None outside the domain of the pieces."""
    w = float(np.linalg.norm(theta))
    if w == 0:
        return None
    if rows.worst.scalars == 2:
        s = np.array([w, x])
        if not rows.worst.inside(s):
            return None
        pieces = rows.worst.at(z, rows.y, s)
    else:
        pieces, s = _with_room(rows, z, w)
        x = float(s[0]) - w
    value = rows.rate * float(s[-1]) + float(rows.weights @ pieces.value.max(axis=0))
    return TiedPoint(theta, b, x, z, s, pieces, value)


def _with_room(rows: PricedRows, z: Array, w: float) -> tuple[SmoothPieces, Array]:
    """Return the pieces of order 1 and their s = (t,) at the best t >= w."""
    pieces = rows.worst.at(z, rows.y, np.zeros(1))
    gain = pieces.value[1] - pieces.value[0]
    Lip = rows.loss.lipschitz
    t = least_price(gain, rows.weights, Lip * w, rows.delta, rows.kappa).multiplier / Lip
    pieces.value[1] += pieces.slope[1, 1] * t
    return pieces, np.array([t])


class _Tied:
    """The model of a step: the two best pieces of rows near a tie, the best one of the others."""

    def __init__(self, rows: PricedRows, now: TiedPoint, last: TiedStep, moments: Moments) -> None:
        self.rows, self.now = rows, now
        pieces, n = now.pieces, len(now.z)
        each = np.arange(n)
        self.top = pieces.value.argmax(axis=0)
        lower = pieces.value.copy()
        lower[self.top, each] = -np.inf
        second = lower.argmax(axis=0)
        behind = pieces.value[self.top, each] - lower[second, each]
        behind[rows.weights == 0] = np.inf
        most = min(n, KINKS + PER_COLUMN * rows.design.d + int(PER_ROW * n))
        near = np.argpartition(behind, most - 1)[:most]
        self.near = near[behind[near] < REACH * last.reach]
        self.second = second[self.near]
        self.behind = behind[self.near]
        #: shares of the second pieces, as the last step left them
        self.p = np.zeros(len(self.near))
        self.knows = len(last.q) == len(pieces.value)
        if self.knows:
            known = last.q[:, self.near]
            pair = known[self.second, np.arange(len(self.near))]
            own = known[self.top[self.near], np.arange(len(self.near))]
            self.p = pair / np.maximum(pair + own, np.finfo(float).tiny)
        self.model = self._model(moments)

    def _model(self, moments: Moments) -> KinkedQuadratic:
        """Return the model in (theta, b, x)."""
        rows, now, near = self.rows, self.now, self.near
        pieces, d = now.pieces, len(now.theta)
        each = np.arange(len(now.z))
        slope, bend = pieces.slope[:, self.top, each], pieces.bend[:, :, self.top, each]
        other = pieces.slope[:, self.second, near]
        apart = other - slope[:, near]
        bend[:, :, near] += self.p * (pieces.bend[:, :, self.second, near] - bend[:, :, near])
        weight = rows.weights[near]
        u = now.theta / float(np.linalg.norm(now.theta))
        # t = ||theta|| + ..: its slope is that of the shares, its own curvature (I - uu')/||theta||
        g = gradient(rows, slope)
        pull = float(g[d + 1]) + float((weight * self.p) @ apart[1])
        M = _in_theta(now, u, hessian(rows, bend, moments), pull)
        J = np.zeros((len(near), d + 2))
        J[:, :d] = apart[0][:, None] * rows.design.rows(near).dense() + np.outer(apart[1], u)
        if rows.fit_intercept:
            J[:, d] = apart[0]
        J[:, -1] = apart[-1]
        J *= weight[:, None]
        difference = -weight * self.behind
        base = np.append(g[: d + 1], g[-1])
        base[:d] += g[d + 1] * u
        if rows.worst.scalars == 1:
            # x >= 0: its price is at most that of t
            J = np.vstack([J, np.append(np.zeros(d + 1), -rows.rate)])
            difference = np.append(difference, -rows.rate * now.x)
        return KinkedQuadratic(base, M, difference, J)

    def step(self, tol: float) -> TiedStep:
        """Return the step to the minimiser of the model."""
        rows, now, d = self.rows, self.now, len(self.now.theta)
        p = self.p
        if rows.worst.scalars == 1:
            p = np.append(p, 0.0 if now.x > 0 else 0.5)
        move, p = self.model.minimise(p if self.knows else None, tol)
        dz = rows.design.scores(move[:d]) + move[d]
        q = np.zeros_like(now.pieces.value)
        q[self.top, np.arange(len(now.z))] = 1.0
        share = p[: len(self.near)]
        q[self.top[self.near], self.near] = 1 - share
        q[self.second, self.near] = share
        change = (self.model.J @ move)[: len(self.near)] / rows.weights[self.near]
        reach = float(np.abs(change).max(initial=0.0))
        return TiedStep(move, dz, self.model.decrease(move), q, reach)


def _in_theta(now: TiedPoint, u: Array, H: Array, pull: float) -> Array:
    """Return the Hessian in (theta, b, x) from that in (theta, b, s), t = ||theta|| + .."""
    d = len(u)
    M = np.delete(np.delete(H, d + 1, axis=0), d + 1, axis=1) if len(H) > d + 2 else H
    w = float(np.linalg.norm(now.theta))
    h, pull = H[:, d + 1], max(pull, 0.0) / w
    along_u = np.outer(u, h[:d] + (h[d + 1] - pull) / 2 * u)
    M[:d, :d] += along_u + along_u.T
    M[np.arange(d), np.arange(d)] += pull
    M[:d, d:] += np.outer(u, [h[d], h[-1]])
    M[d:, :d] = M[:d, d:].T
    return M


def _certified(rows: PricedRows, now: TiedPoint, step: TiedStep, n_iter: int) -> PricedMinimum:
    """Return a point with its gap, from the shares and slopes at the end of the step."""
    d, pieces = len(now.theta), now.pieces
    dt = float(now.theta @ step.move[:d]) / float(np.linalg.norm(now.theta))
    ds = [dt + step.move[-1]] if rows.worst.scalars == 1 else [dt, step.move[-1]]
    a = pieces.slope[0] + along(pieces.bend[0], [step.dz, *ds])
    lower, slopes = bound(rows, pieces.label, pieces.kept, step.q, a)
    lam = rows.multiplier(now.s[-1])
    return PricedMinimum(now.place, now.value, lam, duality_gap(now.value, lower), slopes, n_iter)


def _search(rows: PricedRows, now: TiedPoint, step: TiedStep) -> TiedPoint | None:
    """Return the point after the longest of the steps 1, 1/2, ... that descends, None if none."""
    d = len(now.theta)
    length = 1.0
    for _ in range(HALVINGS):
        theta = now.theta + length * step.move[:d]
        b, x = np.array([now.b, now.x]) + length * step.move[d:]
        new = _at(rows, theta, float(b), float(x), now.z + length * step.dz)
        if new is not None and new.value <= now.value - ARMIJO * length * step.decrease:
            return new
        length /= 2
    return None
