r"""Mehrotra's predictor-corrector along the central path of a saddle problem.

8 to 25 Newton steps of O(n d^2) each, with O(n) memory beside X; every iterate is bounded from
both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...design import Design
from ...losses.base import Array
from .bounds import DualPoint, dual_point, nearest, repaired
from .model import Model, Saddle, saddle
from .newton_system import Move, NewtonSystem

#: Iterations without progress of the gap before the method gives up.
PATIENCE = 12
#: Dense problems of at most this n d^2 take QR steps from the start, where they cost nothing.
SMALL = 1_000_000
#: The share of the way to the boundary that a step takes.
SHORT_OF = 0.995
#: A corrected step below this is worse than a centring one.
TOO_SHORT = 0.1
#: Centring of a Newton step that follows too short a one.
CENTRING = 0.5
#: The least share of mu that the predictor may promise.
LEAST_SHARE = 1e-2
#: A step that leaves pairs behind is shortened by this factor, so many times.
SHORTER = 0.8
SHORTENINGS = 12
#: Barriers of the head rows, relative to those of the sample, of the paths after the first.
SHARES = (1.0, 1e-2, 1e2)
#: A mu below this share of the goal is no progress.
BEYOND_GOAL = 1e-3
#: Iterations without progress before the Newton steps take the QR.
FIRST_STALL = 2
#: Progress is a fall by this factor.
PROGRESS = 0.9


def is_small(design: Design) -> bool:
    """Return whether QR steps and a dense copy of the rows cost nothing."""
    return not design.sparse and design.n * design.d**2 <= SMALL


@dataclass(frozen=True, eq=False)
class Outcome:
    """A point of a model with its nu (inf without one), the best lower bound, the iterations."""

    theta: Array
    b: float
    nu: float
    bound: DualPoint
    n_iter: int


def iterate(model: Model, goal: float, max_iter: int) -> Outcome:
    """Follow the central path of a scaled model until the gap is at most ``goal``.

    A path that strays too far to return is left for one with a heavier barrier on the head rows.
    """
    best = Best(model, goal)
    n_iter = 0
    for share in (None, *SHARES):
        q = saddle(model)
        if share is not None:
            q = replace(q, head=replace(q.head, share=share, first=1.0))
        end = follow_path(q, best, n_iter, max_iter)
        n_iter = end.n_iter
        best.finish(end.sample)
        if best.gap <= goal or n_iter >= max_iter:
            break
    return best.outcome(n_iter)


class PathEnd(NamedTuple):
    """The multipliers of sample and head rows where a path was left, the iterations so far."""

    sample: Array
    head: Array
    n_iter: int


def follow_path(q: Saddle, best: Best, n_iter: int, max_iter: int) -> PathEnd:
    """Take predictor-corrector steps from the start of q, ``n_iter`` of them spent before."""
    theta = np.zeros_like(best.theta)
    xi = q.start.copy()
    best.restart()
    points = [rows.begin(theta, xi) for rows in q.groups]
    while n_iter < max_iter:
        n_iter += 1
        groups = [point.linearised() for point in points]
        mu = _mean_product(q, [point.products for point in points])
        best.update(q, points[0].alpha, theta, xi, mu)
        if best.done:
            break
        try:
            newton = NewtonSystem(q, groups, xi, best.careful)
            move, length = _corrected(newton, mu)
        except np.linalg.LinAlgError:
            break
        theta = theta + length * move.dtheta
        xi = xi + length * move.dxi
        points = [step.taken(length, theta, xi) for step in move.rows]
    return PathEnd(points[0].alpha, points[1].alpha, n_iter)


def _mean_product(q: Saddle, products: list[Array]) -> float:
    """Return mu, the mean complementarity."""
    count = sum(rows.count for rows in q.groups)
    total = sum(rows.total(product) for rows, product in zip(q.groups, products, strict=True))
    return total / count if count > 0 else 0.0


def _corrected(newton: NewtonSystem, mu: float) -> tuple[Move, float]:
    """Return Mehrotra's corrected step and its length."""
    q, groups = newton.q, newton.groups
    first = newton.step([at.aim(0.0) for at in groups])
    length = _length(first, 1.0)
    ahead = _mean_product(q, [step.products(length) for step in first.rows])
    sigma = min(1.0, max(ahead / mu, LEAST_SHARE) if mu > 0 else 0.0) ** 3
    pairs = zip(groups, first.rows, strict=True)
    move = newton.step([at.aim(sigma * mu, last) for at, last in pairs], first)
    length = _centred(q, move, _length(move, SHORT_OF))
    if length < TOO_SHORT:
        # the second-order terms can mislead far from the path: centre without them
        move = newton.step([at.aim(CENTRING * mu) for at in groups])
        length = _centred(q, move, _length(move, SHORT_OF))
    return move, length


def _centred(q: Saddle, move: Move, length: float) -> float:
    """Shorten a step until no product of a pair falls far behind the others, if that can be."""
    shorter = length
    for _ in range(SHORTENINGS):
        products = [step.products(shorter) for step in move.rows]
        mu = _mean_product(q, products)
        pairs = zip(move.rows, products, strict=True)
        if all(step.centred(shorter, mu, product) for step, product in pairs):
            return shorter
        shorter *= SHORTER
    return length


def _length(move: Move, fraction: float) -> float:
    return min(1.0, fraction * min(step.longest() for step in move.rows))


class Best:
    """The best point and the best lower bound seen along the path.

    The path ends at a gap of ``goal``, or at a mean complementarity of ``enough``.
    """

    def __init__(self, model: Model, goal: float, enough: float = 0.0) -> None:
        self.model = model
        self.goal = goal
        self.enough = enough
        self.theta = np.zeros(model.design.d)
        self.b = 0.0
        self.nu = np.inf
        self.upper = np.inf
        self.bound = DualPoint(0.0, np.zeros_like(model.c))
        self.careful = is_small(model.design)
        self.restart()

    def restart(self) -> None:
        """Forget the progress, not the bounds."""
        self.marks = np.full(3, np.inf)
        self.since = 0
        self.near = False

    def outcome(self, n_iter: int) -> Outcome:
        """Return the best point and bound."""
        return Outcome(self.theta, self.b, self.nu, self.bound, n_iter)

    @property
    def gap(self) -> float:
        """The upper bound less the lower bound."""
        return self.upper - self.bound.value

    @property
    def done(self) -> bool:
        """Whether the path need not be followed any farther."""
        return self.near or self.gap <= self.goal or self.since > PATIENCE

    def update(self, q: Saddle, alpha: Array, theta: Array, xi: Array, mu: float) -> None:
        """Bound the optimum from both sides at the iterate, alpha that of the sample rows."""
        self.last = theta
        self._lower_upper(q, theta, xi)
        self.raise_bound(alpha)
        self.near = mu <= self.enough
        if mu <= self.goal and self.gap > self.goal and self.enough == 0:
            self.finish(alpha)
        # past the goal a smaller mu is no progress
        progress = np.array([self.gap, self.upper, max(mu, BEYOND_GOAL * self.goal)])
        self.since = 0 if np.any(progress < PROGRESS * self.marks) else self.since + 1
        self.marks = np.minimum(self.marks, progress)
        # a first stall is mostly one of the squared condition of the Newton matrix
        self.careful = self.careful or self.since > FIRST_STALL or mu <= self.goal

    def _lower_upper(self, q: Saddle, theta: Array, xi: Array) -> None:
        m = self.model
        b = float(xi[0]) if m.intercept else 0.0
        nu = np.inf if q.nu < 0 else float(xi[q.nu])
        if nu <= 0:
            # rounding can leave nu >= 0 behind
            return
        upper = m.form.risk(m.pi, m.residual(theta, b), m.norm.value(theta), nu)
        if upper < self.upper:
            self.theta = theta
            self.b = b
            self.nu = nu
            self.upper = upper

    def raise_bound(self, alpha: Array) -> None:
        """Take the bound of a multiplier if it is the best so far."""
        bound = dual_point(self.model, alpha, 2 * np.abs(self.theta))
        if bound.value > self.bound.value:
            self.bound = bound

    def finish(self, alpha: Array) -> None:
        """Repair the multiplier of an iterate where shrinking it alone leaves too large a gap."""
        # moving g onto its bound costs a share of the penalty, shrinking alpha one of the risk
        for target in nearest(self.model, alpha):
            if self.gap > self.goal:
                self.raise_bound(repaired(self.model, alpha, target))
