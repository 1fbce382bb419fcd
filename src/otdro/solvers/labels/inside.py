"""Coordinates of a problem whose labels change at a price, and the risk of places in them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import Dual, priced_risk, priced_tangent
from ...losses import Loss
from ...problem import Ball, Problem, Solution
from ..base import verdict
from ..euclidean.coordinates import Coordinates
from ..norm_rows import norm_rows
from .pieces import pieces_of
from .priced_rows import Place, PricedMinimum, PricedRows

Array = NDArray[Any]

#: A first t this much above the norm of theta, and the least first t.
ABOVE, LEAST_T = 1.1, 1e-2
#: Factors of coefficients and of the multiplier in search of a start, each taken while it pays and
#: HALVINGS times at most, and about how many rows tell.
SMALLER, LARGER_LAM, SMALLER_LAM = (0.5, 0.5), (1.0, 2.0), (1.0, 0.5)
HALVINGS, ROUGH_ROWS = 6, 500
#: The accuracy of the risk that is returned.
FINELY = 1e-10
#: The gap, relative to the risk, from which on the multiplier of order 2 need not be the best one.
LOOSE = 1e-5
#: All rows.
ALL = slice(None)


class Inside:
    """A problem in centred coordinates, whitened under a Euclidean cost."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        cost, ball = problem.ball.cost, problem.ball
        self.coordinates = Coordinates(problem)
        self.norm_rows = norm_rows(cost, self.coordinates.design.d)
        self.rows = PricedRows(
            self.coordinates.design,
            problem.y,
            problem.weights,
            problem.loss,
            pieces_of(problem.loss, ball.order, ball.label_cost),
            ball.delta,
            ball.label_cost,
            problem.fit_intercept,
            lambda g: np.linalg.norm(g, axis=0) if cost.euclidean else cost.norm(g.T),
        )

    def at(self, problem: Problem) -> Inside:
        """Return a problem that differs in delta and weights only."""
        other = copy(self)
        other.problem = problem
        other.rows = replace(self.rows, delta=problem.ball.delta, weights=problem.weights)
        return other

    @property
    def newton(self) -> bool:
        """Whether steps with tied rows are for this problem: a smooth loss, a Euclidean cost."""
        return self.problem.ball.cost.euclidean and self.problem.loss.pieces is None

    def norm(self, theta: Array) -> float:
        """Return the dual norm of coordinates."""
        cost = self.problem.ball.cost
        return float(np.linalg.norm(theta) if cost.euclidean else cost.dual_norm(theta))

    def place(self, coef: Array, intercept: float) -> Place:
        """Return a place inside the domain at coefficients."""
        theta, b = self.coordinates.theta(coef), self.coordinates.centred(intercept, coef)
        return self._inside(theta, b, self.rows.design.scores(theta) + b)

    def _inside(self, theta: Array, b: float, z: Array, multiplier: float = 0.0) -> Place:
        """Return a place inside the domain, of this multiplier where it can be."""
        t = max(ABOVE * self.norm(theta), LEAST_T)
        s = np.array([t])
        if self.rows.worst.scalars == 2:
            root = np.sqrt(self.rows.delta)
            growth = self.rows.worst.growth
            least = 2 * t**2 / growth if growth > 0 else 0.0
            lam = multiplier if multiplier > least else max(t / root, least)
            s = np.array([t, lam])
        return Place(theta, b, s, z)

    def nearer(self, place: Place, multiplier: float, smaller: bool) -> Place:
        """Return a place of less risk along that of fixed labels and its multiplier.

        The price makes multipliers larger and coefficients smaller. Only some rows are looked at.
        """
        some = slice(None, None, max(1, len(place.z) // ROUGH_ROWS))
        place = self._inside(place.theta, place.b, place.z, multiplier)
        risk = self.risk(place, some)[0]
        halves = [SMALLER] if smaller else []
        joint = self.rows.worst.scalars == 2
        moves = [LARGER_LAM, *halves, LARGER_LAM, SMALLER_LAM] if joint else halves
        for by, of_lam in moves:
            for _ in range(HALVINGS):
                theta, b, z = by * place.theta, by * place.b, by * place.z
                new = self._inside(theta, b, z, of_lam * float(place.s[-1]))
                after = self.risk(new, some)[0]
                if not after < risk:
                    break
                place, risk = new, after
        return place

    def risk(
        self, place: Place, some: slice = ALL, norm: Callable[[Array], float] | None = None
    ) -> tuple[float, float]:
        """Return the worst-case risk of a place, over some of the rows, and its multiplier.

        At order 2 they are those of its own multiplier, which is near the best one. ``norm`` is
        the dual norm, that of the cost if None.
        """
        known = self._known(place, some, norm)
        if self.rows.worst.scalars == 2 and known[-2] > 0:
            lam = float(place.s[-1])
            return float(priced_tangent(*known, lam).value), lam
        found = priced_risk(*known)
        return found.risk, found.multiplier

    def _known(
        self, place: Place, some: slice = ALL, norm: Callable[[Array], float] | None = None
    ) -> tuple[Array, Array, Array, Loss, float, Ball]:
        """Return what the worst-case risk of a place over some rows depends on."""
        p = self.problem
        weights = p.weights[some]
        if some != ALL:
            weights = weights / weights.sum()
        w = (norm or self.norm)(place.theta)
        return place.z[some], p.y[some], weights, p.loss, w, p.ball

    def solution(self, found: PricedMinimum, target: float) -> Solution:
        """Return the solution on the rows as given."""
        place = found.place
        dual = Dual(found.risk, found.multiplier)
        if self.rows.worst.scalars == 1 or target <= LOOSE * found.risk:
            dual = priced_risk(*self._known(place), guess=found.multiplier, rtol=FINELY)
        gap = max(found.gap - (found.risk - dual.risk), 0.0)
        coef = self.coordinates.coef(place.theta)
        return Solution(
            coef=np.ascontiguousarray(coef),
            intercept=self.coordinates.intercept(place.b, coef),
            multiplier=dual.multiplier,
            objective=dual.risk,
            gap=gap,
            n_iter=found.n_iter,
            converged=bool(gap <= target),
            message=verdict(gap, target, found.n_iter),
            dual=found.slopes,
        )
