r"""Newton's method for the largest of smooth pieces, along smoothings of the maximum.

.. math:: \min_x\ F_\tau(x) = c'x + \sum_i \pi_i\,\tau\log\sum_j e^{f_{ij}(x)/\tau}
          + \tau\,\beta(x),

beta the barrier of the domain. As tau falls the shares :math:`q_{ij} \propto e^{f_{ij}/\tau}`
become those of the adversary's labels, and with them comes a bound below every risk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...duality import Dual
from ...duality.ties import newton_step
from ..base import duality_gap
from .priced_rows import Accuracy

Array = NDArray[Any]

#: The first smoothing, the factor from one to the next, and the least one, in units of the risk.
FIRST, FASTER, LEAST = 0.1, 0.15, 1e-13
#: Newton steps at one smoothing, the decrease (in units of tau) that ends them, and step lengths.
STEPS, SETTLED, ARMIJO, HALVINGS = 200, 1e-3, 0.1, 40


@dataclass(frozen=True, eq=False)
class SmoothPlace:
    """A vector x with the scores of the rows, which are linear in it."""

    x: Array
    z: Array

    def moved(self, step: SmoothPlace, length: float) -> SmoothPlace:
        """Return the place after a part of a step."""
        return SmoothPlace(self.x + length * step.x, self.z + length * step.z)


class SmoothedMaximum(Protocol):
    """The objective at every smoothing, the risk that it tends to, and bounds below that."""

    def step(self, x: Array) -> SmoothPlace:
        """Return a step of x with that of the scores."""

    def risk(self, at: SmoothPlace) -> Dual:
        """Return the worst-case risk of a place and its multiplier."""

    def value(self, at: SmoothPlace, tau: float) -> float:
        """Return F_tau, inf outside its domain."""

    def derivatives(self, at: SmoothPlace, tau: float) -> tuple[Array, Array]:
        """Return gradient and Hessian of F_tau."""

    def lower_bound(self, at: SmoothPlace, tau: float, step: SmoothPlace) -> tuple[float, Array]:
        """Return the bound of shares and slopes continued along a step, and the slopes."""


@dataclass(frozen=True, eq=False)
class SmoothMinimum:
    """The best place, its risk, the gap, the slopes of the bound, the steps."""

    at: SmoothPlace
    dual: Dual
    gap: float
    slopes: Array
    n_iter: int


def follow(task: SmoothedMaximum, at: SmoothPlace, tau: float, accuracy: Accuracy) -> SmoothMinimum:
    """Follow the smoothings from tau until the gap is at most the target."""
    unit, target, max_iter = accuracy
    best, dual, n_iter, lower = at, task.risk(at), 0, 0.0
    slopes = np.zeros_like(at.z)
    last: SmoothPlace | None = None
    while n_iter < max_iter and tau > LEAST * unit:
        at, step, taken = _settle(task, at, tau, min(STEPS, max_iter - n_iter))
        n_iter += taken
        now = task.risk(at)
        if now.risk < dual.risk:
            best, dual = at, now
        for share in (1.0, 0.0):
            bound, found = task.lower_bound(at, tau, SmoothPlace(share * step.x, share * step.z))
            if bound > lower:
                lower, slopes = bound, found
        if dual.risk - lower <= target:
            break
        ahead = at if last is None else _ahead(task, last, at, tau)
        last, at, tau = at, ahead, tau * FASTER
    return SmoothMinimum(best, dual, duality_gap(dual.risk, lower), slopes, max(n_iter, 1))


def _ahead(task: SmoothedMaximum, last: SmoothPlace, at: SmoothPlace, tau: float) -> SmoothPlace:
    """Return the line through two minimisers at the next smoothing, the last one if that is worse.

    The minimisers at tau over the factor and at tau are nearly on a line in tau.
    """
    change = SmoothPlace(at.x - last.x, at.z - last.z)
    ahead = at.moved(change, FASTER)
    after = tau * FASTER
    return ahead if task.value(ahead, after) < task.value(at, after) else at


def _settle(
    task: SmoothedMaximum, at: SmoothPlace, tau: float, steps: int
) -> tuple[SmoothPlace, SmoothPlace, int]:
    """Take Newton steps at one smoothing; return the place before the last one, and that one."""
    value = task.value(at, tau)
    for taken in range(1, steps + 1):
        g, H = task.derivatives(at, tau)
        step = task.step(newton_step(g, H))
        decrease = -float(g @ step.x)
        if decrease <= SETTLED * tau or taken == steps:
            break
        length = 1.0
        for _ in range(HALVINGS):
            new = at.moved(step, length)
            after = task.value(new, tau)
            if after <= value - ARMIJO * length * decrease:
                break
            length /= 2
        if not after < value:
            break
        at, value = new, after
    return at, step, taken
