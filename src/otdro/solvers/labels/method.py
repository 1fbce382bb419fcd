"""The method of labels that change at a price, for losses of one score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import model_scores
from ...duality import Dual, least_finite, priced_risk, priced_tangent
from ...problem import Problem, Solution
from ..euclidean.newton import Coordinates
from ..exact import Method, Starts, duality_gap, each_alone, verdict
from ..norm_rows import FaceRows, norm_rows
from . import interior
from .pieces import Minimum, Place, PricedRows, worst_loss

Array = NDArray[Any]

#: Factors of the coefficients with fixed labels among which a start is chosen.
SCALES = tuple(0.5**k for k in range(7))
#: About how many rows choose the start, and the accuracy of their risk, relative to it.
ROUGH_ROWS, ROUGHLY = 500, 1e-2
#: A first t is this much above the norm of theta, and at least LEAST_T.
ABOVE, LEAST_T = 1.1, 1e-2
#: The accuracy of the risk that is returned, relative to it.
FINELY = 1e-10
#: The share of the class +1 at which a constant model has the largest risk.
EVEN = 0.5
#: Problems with some cuts of a norm at most, and the share of the gap so far to which one is
#: solved.
ROUNDS, LOOSE = 300, 0.1


class PricedLabels(Method):
    """Losses of one score whose worst case is a maximum of smooth pieces."""

    geometries = frozenset({"euclidean", "norm"})
    changes_labels = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse curved losses at order 2 without a Euclidean cost, and other losses."""
        loss, ball = problem.loss, problem.ball
        if worst_loss(loss, ball.order) is None:
            return f"a label_cost at order={ball.order} has no method for {type(loss).__name__}"
        if ball.order == 2 and loss.pieces is None and not ball.cost.euclidean:
            return f"order=2 with {type(loss).__name__} needs a Euclidean or Mahalanobis cost"
        return None

    def solve(
        self,
        problems: list[Problem],
        deltas: Array,
        tols: Sequence[float],
        max_iter: int,
        starts: Sequence[Starts] | None,
    ) -> list[list[Solution]]:
        """Return the solutions from those with fixed labels, which ``starts`` are."""
        assert starts is not None

        def alone(p: int, problem: Problem, fixed: Starts) -> list[Solution]:
            at = Coordinates(problem)
            return [
                _unchanged(problem.at(delta), start, tols[p])
                or _solved(problem.at(delta), at, tols[p], max_iter, start)
                for delta, start in zip(deltas.tolist(), fixed, strict=True)
            ]

        return each_alone(problems, starts, alone)


def _unchanged(problem: Problem, fixed: Solution, tol: float) -> Solution | None:
    """Return the solution with fixed labels where it is one with a label price, else None.

    The price only lets the adversary do more, so that they are the same where it is not used.
    """
    coef, ball = fixed.coef, problem.ball
    z = model_scores(problem.X, coef, fixed.intercept)
    w = float(ball.cost.dual_norm(coef)) if coef.any() else 0.0
    known = (z, problem.y, problem.weights, problem.loss, w, ball)
    if ball.order == 2 and w > 0 and fixed.multiplier > least_finite(problem.loss, w):
        # at the solution's own multiplier, the best one where no label is changed
        risk = float(priced_tangent(*known, fixed.multiplier).value)
    else:
        risk = priced_risk(*known).risk
    gap = fixed.gap + max(risk - fixed.objective, 0.0)
    if gap > max(fixed.gap, tol * problem.constant[1]):
        return None
    return replace(fixed, objective=max(risk, fixed.objective), gap=gap)


def _solved(
    problem: Problem, at: Coordinates, tol: float, max_iter: int, start: Solution
) -> Solution:
    """Return the minimiser from the solution with fixed labels."""
    unit = problem.constant[1]
    target = tol * unit
    rows = priced_rows(problem, at)
    theta, b = at.theta(start.coef), at.centred(start.intercept, start.coef)
    place, dual = _start(rows, theta, b, problem)
    above = dual.risk - (start.objective - start.gap)
    norm = norm_rows(problem.ball.cost, rows.design.d)
    goal = interior.Goal(unit, target, max_iter)
    if norm is None:
        best = _by_cuts(rows, problem, place, above, goal)
    else:
        best = interior.minimise(rows, norm, place, above, goal)
    zero = _constant(rows, problem, best.risk - best.gap)
    if zero is not None and zero.risk <= best.risk:
        best = replace(zero, slopes=best.slopes, n_iter=best.n_iter)
    return _solution(problem, at, best, target)


def priced_rows(problem: Problem, at: Coordinates) -> PricedRows:
    """Return the rows of a problem in its coordinates."""
    ball = problem.ball
    worst = worst_loss(problem.loss, ball.order)
    assert worst is not None
    return PricedRows(
        at.design,
        problem.y,
        problem.weights,
        worst,
        ball.cost,
        ball.delta,
        ball.label_cost,
        problem.fit_intercept,
    )


def _start(rows: PricedRows, theta: Array, b: float, problem: Problem) -> tuple[Place, Dual]:
    """Return the place of least risk along coefficients, and its risk with the best multiplier.

    A price makes coefficients smaller. Only some rows are looked at.
    """
    if not theta.any():
        a = rows.weights * rows.worst.loss.derivative(np.full(len(rows.y), b), rows.y)
        pull = rows.design.adjoint(a)
        theta = -LEAST_T / max(rows.norm(pull), np.finfo(float).tiny) * pull
    z = rows.design.scores(theta)
    some = slice(None, None, max(1, len(z) // ROUGH_ROWS))
    weights = rows.weights[some] / rows.weights[some].sum()
    w = rows.norm(theta)
    ball, loss = problem.ball, problem.loss
    known = [
        priced_risk(k * (z[some] + b), rows.y[some], weights, loss, k * w, ball, rtol=ROUGHLY)
        for k in SCALES
    ]
    best = int(np.argmin([dual.risk for dual in known]))
    scale, dual = SCALES[best], known[best]
    t = max(ABOVE * scale * w, LEAST_T)
    s = np.array([t])
    if rows.worst.scalars == 2:
        growth = rows.worst.growth
        least = 2 * t**2 / growth if growth > 0 else 0.0
        s = np.array([t, max(dual.multiplier, least)])
    return Place(scale * theta, scale * b, s, scale * (z + b)), dual


def _solution(problem: Problem, at: Coordinates, best: Minimum, target: float) -> Solution:
    """Return the solution on the rows as given, at the best multiplier of its coefficients."""
    place = best.place
    coef = at.coef(place.theta)
    w = float(problem.ball.cost.dual_norm(coef)) if coef.any() else 0.0
    dual = _risk(problem, place, w, best.multiplier)
    gap = max(best.gap - (best.risk - dual.risk), 0.0)
    return Solution(
        coef=np.ascontiguousarray(coef),
        intercept=at.intercept(place.b, coef),
        multiplier=dual.multiplier,
        objective=dual.risk,
        gap=gap,
        n_iter=best.n_iter,
        converged=bool(gap <= target),
        message=verdict(gap, target, best.n_iter),
        dual=best.slopes,
    )


def _risk(problem: Problem, place: Place, w: float, guess: float = 0.0) -> Dual:
    """Return the worst-case risk of a place whose coefficients have dual norm w."""
    known = (place.z, problem.y, problem.weights, problem.loss, w, problem.ball)
    return priced_risk(*known, guess=guess, rtol=FINELY)


def _by_cuts(
    rows: PricedRows, problem: Problem, start: Place, above: float, goal: interior.Goal
) -> Minimum:
    """Return the minimum under a norm known only by ``norm``, ``dual_norm`` and ``direction``.

    The dual norm is the largest of its cuts <v, theta>, ||v|| <= 1, and v = direction(theta) is the
    one that is active at theta. A problem with some of them has a smaller risk: its bound is one
    of the least risk, and its minimiser shows the next cut.
    """
    d, cost = rows.design.d, rows.cost
    normals = np.asarray(cost.direction(np.vstack([np.eye(d), -np.eye(d)])))
    best, lower, n_iter = None, 0.0, 0
    for _ in range(ROUNDS):
        reached = above if best is None else best.gap
        rough = goal._replace(target=max(LOOSE * reached, goal.target / 4))
        part = interior.minimise(rows, FaceRows(normals), start, above, rough)
        n_iter += part.n_iter
        lower = max(lower, part.risk - part.gap)
        dual = _risk(problem, part.place, rows.norm(part.place.theta))
        if best is None or dual.risk < best.risk:
            best = replace(part, risk=dual.risk, multiplier=dual.multiplier)
        best = replace(best, gap=duality_gap(best.risk, lower), n_iter=n_iter)
        if best.gap <= goal.target or n_iter >= goal.max_iter:
            break
        normals = np.vstack([normals, cost.direction(part.place.theta)[None]])
    assert best is not None
    return best


def _constant(rows: PricedRows, problem: Problem, lower: float) -> Minimum | None:
    """Return theta = 0 with its gap over a lower bound, None where no constant is finite.

    The adversary may change labels until the class +1 has any mass p' at most delta/kappa away from
    its own; the best constant is that of the most even p'.
    """
    loss, reach = rows.worst.loss, rows.delta / rows.kappa
    p = float(rows.weights @ (rows.y > 0))
    even = float(np.clip(EVEN, p - reach, p + reach))
    b = 0.0
    if rows.fit_intercept and even != EVEN:
        if not 0 < even < 1:
            return None
        b = float(loss.constant(np.array([-1.0, 1.0]), np.array([1 - even, even])))
    n, d = len(rows.y), rows.design.d
    place = Place(np.zeros(d), b, np.zeros(rows.worst.scalars), np.full(n, b))
    dual = _risk(problem, place, 0.0)
    gap = duality_gap(dual.risk, lower)
    return Minimum(place, dual.risk, dual.multiplier, gap, np.zeros(n), 1)
