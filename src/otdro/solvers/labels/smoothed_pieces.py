r"""The largest of smooth pieces of rows with one score, smoothed.

.. math:: \min_{\theta, b, s}\ \delta\lambda + \sum_i \pi_i\,\tau\log\sum_j e^{f_{ij}/\tau}
          + \tau\,\beta(\theta, s),

beta the barrier of t >= ||theta||_* and of the domain of lambda; the bound is that of the shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import Dual
from ..norm_rows import NormRows
from ..smoothing.quadrature import softmax
from .priced_rows import (
    Accuracy,
    Place,
    PricedMinimum,
    PricedRows,
    Risk,
    along,
    bound,
    curvature,
    gradient,
    hessian,
)
from .smoothings import FIRST, SmoothPlace, follow

Array = NDArray[Any]


def minimise(
    rows: PricedRows, norm: NormRows, place: Place, risk_of: Risk, accuracy: Accuracy
) -> PricedMinimum:
    """Follow the smoothings until the gap is at most the target."""
    task = SmoothedPieces(rows, norm, risk_of)
    # where most labels change, the constant model's risk is no measure of the first smoothing
    tau = FIRST * max(accuracy.unit, task.unsmoothed(place))
    first = SmoothPlace(np.concatenate([place.theta, [place.b], place.s]), place.z)
    found = follow(task, first, tau, accuracy)
    best = task.place(found.at)
    return PricedMinimum(
        best, found.dual.risk, found.dual.multiplier, found.gap, found.slopes, found.n_iter
    )


@dataclass(frozen=True, eq=False)
class SmoothedPieces:
    """The objective over x = (theta, b, s) of rows under a norm."""

    rows: PricedRows
    norm: NormRows
    risk_of: Risk

    def place(self, at: SmoothPlace) -> Place:
        """Return the parts of x."""
        d = self.rows.design.d
        return Place(at.x[:d], float(at.x[d]), at.x[d + 1 :], at.z)

    def step(self, x: Array) -> SmoothPlace:
        """Return a step of x with that of the scores."""
        d = self.rows.design.d
        return SmoothPlace(x, self.rows.design.scores(x[:d]) + x[d])

    def risk(self, at: SmoothPlace) -> Dual:
        """Return the worst-case risk of a place and its multiplier."""
        return Dual(*self.risk_of(self.place(at)))

    def unsmoothed(self, place: Place) -> float:
        """Return the objective itself at a place, its multiplier as it stands there."""
        f = self.rows.worst.at(place.z, self.rows.y, place.s).value
        return float(self.rows.rate * place.s[-1] + self.rows.weights @ f.max(axis=0))

    def value(self, at: SmoothPlace, tau: float) -> float:
        """Return the smoothed objective, inf outside its domain."""
        rows, place = self.rows, self.place(at)
        barrier = self.norm.barrier(place.theta[:, None], float(place.s[0])).value
        inside, _, _ = self._domain(place.s)
        if not np.isfinite(barrier + inside):
            return np.inf
        f = rows.worst.at(place.z, rows.y, place.s).value
        smooth = tau * softmax(f.T / tau)[1]
        return float(rows.rate * place.s[-1] + rows.weights @ smooth + tau * (barrier + inside))

    def _domain(self, s: Array) -> tuple[float, Array, Array]:
        """Return -log(c lam - t^2), or -log lam, and its derivatives in s; nothing at order 1."""
        if self.rows.worst.scalars == 1:
            return 0.0, np.zeros(1), np.zeros((1, 1))
        t, lam = s
        c = self.rows.worst.growth
        room = c * lam - t**2 if c > 0 else lam
        if room <= 0:
            return np.inf, np.zeros(2), np.zeros((2, 2))
        slope = np.array([-2 * t, c]) if c > 0 else np.array([0.0, 1.0])
        bend = np.zeros((2, 2))
        bend[0, 0] = -2.0 if c > 0 else 0.0
        g = -slope / room
        return -float(np.log(room)), g, np.outer(g, g) - bend / room

    def derivatives(self, at: SmoothPlace, tau: float) -> tuple[Array, Array]:
        """Return gradient and Hessian of the smoothed objective."""
        rows, place, d = self.rows, self.place(at), self.rows.design.d
        pieces = rows.worst.at(place.z, rows.y, place.s)
        q = softmax(pieces.value.T / tau)[0].T
        mean = (q * pieces.slope).sum(axis=1)
        g, H = gradient(rows, mean), hessian(rows, curvature(pieces, q, q / tau, mean))
        head = np.append(np.arange(d), d + 1)
        barrier = self.norm.barrier(place.theta[:, None], float(place.s[0]))
        _, slope, bend = self._domain(place.s)
        g[head] += tau * barrier.gradient[:, 0]
        H[np.ix_(head, head)] += tau * barrier.matrix[:, :, 0]
        g[d + 1 :] += tau * slope
        H[d + 1 :, d + 1 :] += tau * bend
        return g, H

    def lower_bound(self, at: SmoothPlace, tau: float, step: SmoothPlace) -> tuple[float, Array]:
        """Return the bound of the shares and slopes at a place, and the mean slope of every row.

        Shares and slopes are continued along a Newton step, where they meet the constraints up to
        second order.
        """
        rows, place = self.rows, self.place(at)
        pieces = rows.worst.at(place.z, rows.y, place.s)
        q = softmax(pieces.value.T / tau)[0].T
        move = [step.z, *step.x[rows.design.d + 1 :]]
        rise = along(pieces.slope, move)
        # where a share would be negative the piece has none
        q = q * np.maximum(1 + (rise - (q * rise).sum(axis=0)) / tau, 0.0)
        a = pieces.slope[0] + along(pieces.bend[0], move)
        return bound(rows, pieces.label, pieces.kept, q / q.sum(axis=0), a)
