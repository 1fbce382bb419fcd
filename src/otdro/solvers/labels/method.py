"""The method of labels that change at a price: where to start, coordinates, solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design, mean
from ...duality import priced_risk, priced_tangent
from ...losses import Loss
from ...problem import Ball, Problem, Solution
from ..base import Method, constant_risk, verdict
from ..euclidean.coordinates import Coordinates
from ..softmax.method import MultinomialNewton, PairCoordinates, pair_penalty
from . import constant, cuts, interior, tied_rows
from .cones import cone_of
from .newton import Place, PricedMinimum, PricedRows, Risk, minimise
from .norm_rows import norm_rows
from .pieces import pieces_of
from .softmax import PricedSoftmax, SoftmaxPlace
from .softmax import minimise as minimise_softmax

Array = NDArray[Any]

#: A first t this much above the norm of theta, and the least first t.
ABOVE, LEAST_T = 1.1, 1e-2
#: Factors of coefficients and of the multiplier in search of a start, each taken while it pays and
#: HALVINGS times at most, and about how many rows tell.
SMALLER, LARGER_LAM, SMALLER_LAM = (0.5, 0.5), (1.0, 2.0), (1.0, 0.5)
HALVINGS, ROUGH_ROWS = 6, 500
#: The accuracy of the risk that is returned.
FINELY = 1e-10
#: All rows.
ALL = slice(None)


class PricedLabels(Method):
    """Losses of one score whose worst case is a maximum of smooth pieces."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    changes_labels = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse curved losses at order 2 without a Euclidean cost, and other losses."""
        loss, ball = problem.loss, problem.ball
        if pieces_of(loss, ball.order, ball.label_cost) is None:
            return f"a label_cost at order={ball.order} has no method for {type(loss).__name__}"
        curved = loss.pieces is None
        if ball.order == 2 and curved and not ball.cost.euclidean:
            return f"order=2 with {type(loss).__name__} needs a Euclidean or Mahalanobis cost"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        at = _Inside(problem)
        b, unit = constant_risk(problem)
        target = tol * unit
        found = None if start is None else _from_start(at, start, unit, target, max_iter)
        if found is None:
            zero = at.place(np.zeros(problem.X.shape[1]), b)
            if at.norm_rows is None:
                found = at.by_cuts(zero, 0.0, unit, target, max_iter)
        if found is None:
            found = minimise(at.rows, zero, at.risk, unit, target, max_iter)
        return at.solution(found, target)


def _from_start(
    at: _Inside, start: Solution, unit: float, target: float, max_iter: int
) -> PricedMinimum | None:
    """Return the minimum from the solution with fixed labels, None where no steps get there."""
    rows, below = at.rows, start.objective - start.gap
    fixed = (at.place(start.coef, start.intercept), start.multiplier)
    place = at.nearer(*fixed, smaller=at.newton)
    risk, lam = at.risk(place)
    found = constant.minimise(rows, at.risk, risk, target)
    if found is not None:
        return found
    if at.norm_rows is None:
        return at.by_cuts(place, below, unit, target, max_iter)
    moves = bool(start.coef.any())
    if moves and at.newton:
        found = tied_rows.minimise(rows, place, lam, unit, target, max_iter)
    # interior points take fewer steps from coefficients that are too large, where they get there
    for smaller in (False, True):
        if found is None and (moves or at.round is None):
            known = (at.nearer(*fixed, smaller), at.risk, below, unit, target, max_iter)
            found = interior.minimise(rows, at.norm_rows, *known)
    return found


def constant_model(problem: Problem, target: float) -> Solution | None:
    """Return the model theta = 0 where it is certified to be optimal; only class means matter."""
    at = _Inside(problem)
    found = constant.minimise(at.rows, at.risk, np.inf, target)
    return None if found is None else at.solution(found, target)


class PricedMultinomial(Method):
    """The softmax model at order 1 whose labels change at a price."""

    geometries = frozenset({"euclidean", "norm"})
    certifies = "the excess over the least worst-case risk"
    changes_labels = True
    several_scores = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse what the softmax model refuses."""
        return MultinomialNewton().lacks(problem)

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser, from the constant model."""
        ball = problem.ball
        at = PairCoordinates(problem)
        rows = at.rows(problem)
        cone = cone_of(ball.cost)
        assert cone is not None
        task = PricedSoftmax(rows, pair_penalty(problem), cone, ball.delta, ball.label_cost)
        b, unit = constant_risk(problem)
        C = np.zeros((rows.design.d, rows.classes - 1))
        c = b @ rows.basis
        first = SoftmaxPlace(C, c, LEAST_T, rows.scores(C, c))
        found = minimise_softmax(task, first, unit, tol * unit, max_iter)
        coef, intercept = at.outside(found.place.C, found.place.c, rows.basis)
        return Solution(
            coef=coef,
            intercept=intercept,
            multiplier=found.multiplier,
            objective=found.risk,
            gap=found.gap,
            n_iter=found.n_iter,
            converged=bool(found.gap <= tol * unit),
            message=verdict(found.gap, tol * unit, found.n_iter),
            dual=found.slopes,
        )


class _Inside:
    """A problem in centred coordinates, whitened under a Euclidean cost."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        cost, ball = problem.ball.cost, problem.ball
        self.round = Coordinates(problem) if cost.euclidean else None
        self.center = mean(problem.X, problem.weights) if problem.fit_intercept else None
        design = Design(problem.X, center=self.center) if self.round is None else self.round.design
        self.norm_rows = norm_rows(cost, design.d)
        self.rows = PricedRows(
            design,
            problem.y,
            problem.weights,
            problem.loss,
            pieces_of(problem.loss, ball.order, ball.label_cost),
            cone_of(cost),
            ball.delta,
            ball.label_cost,
            problem.fit_intercept,
            lambda g: float(np.linalg.norm(g) if cost.euclidean else cost.norm(g)),
        )

    @property
    def newton(self) -> bool:
        """Whether steps with tied rows are for this problem: a smooth loss, a Euclidean cost."""
        return self.round is not None and self.problem.loss.pieces is None

    def norm(self, theta: Array) -> float:
        """Return the dual norm of coordinates."""
        cost = self.problem.ball.cost
        return float(np.linalg.norm(theta) if cost.euclidean else cost.dual_norm(theta))

    def place(self, coef: Array, intercept: float) -> Place:
        """Return a place inside the domain at coefficients."""
        theta = coef if self.round is None else self.round.theta(coef)
        b = float(intercept if self.center is None else intercept + self.center @ coef)
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

    def by_cuts(
        self, place: Place, below: float, unit: float, target: float, max_iter: int
    ) -> PricedMinimum:
        """Return the minimum under a norm that has no rows of its own."""
        risk, lam = self.risk(place)
        first = PricedMinimum(place, risk, lam, risk - below, np.zeros_like(place.z), 0)
        cost = self.problem.ball.cost
        return cuts.minimise(self.rows, cost, first, self.risk_under, unit, target, max_iter)

    def risk_under(self, norm: Callable[[Array], float]) -> Risk:
        """Return the risk and multiplier of places under another dual norm."""
        return lambda place: self.risk(place, norm=norm)

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
        dual = priced_risk(*self._known(place), guess=found.multiplier, rtol=FINELY)
        gap = max(found.gap - (found.risk - dual.risk), 0.0)
        coef = place.theta if self.round is None else self.round.coef(place.theta)
        b = place.b if self.center is None else place.b - self.center @ coef
        return Solution(
            coef=np.ascontiguousarray(coef),
            intercept=float(b),
            multiplier=dual.multiplier,
            objective=dual.risk,
            gap=gap,
            n_iter=found.n_iter,
            converged=bool(gap <= target),
            message=verdict(gap, target, found.n_iter),
            dual=found.slopes,
        )
