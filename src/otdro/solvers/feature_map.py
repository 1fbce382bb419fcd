r"""Feature maps linearised at each row: one matrix A(x_i), and so one dual norm w_i, per row.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \sup_s
          \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},\qquad w_i^2 = \beta' A(x_i)^{-1}\beta,

by an interior point of the dual problem where the loss is piecewise quadratic, else by the joint
Newton method, for losses that are smooth and Lipschitz. A cost that is not linearised is for
``Smoothed``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ..design import Design
from ..duality import Dual, DualRows, Local, best_multiplier
from ..losses import Loss, PiecewiseQuadratic
from ..problem import Problem, Solution
from ..progress import logger
from .euclidean.newton import as_solution
from .euclidean.order_one import SHORTEST, Place, descend
from .euclidean.order_two import JointObjective
from .exact import Method, Starts, constant_solution, verdict
from .predictor_corrector import ARMIJO, CENTRED, CENTRING, FALL
from .smoothing import Origin, dual_rows, origin_on_ray

Array = NDArray[Any]


class Linearised(Method):
    """A feature map linearised at every row."""

    geometries = frozenset({"local"})

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1 and costs that are not linearised."""
        if problem.ball.order != 2:
            return "FeatureMap is solved exactly at order=2 only"
        if not problem.ball.cost.linearised:
            return "FeatureMap(linearised=False) has no certificate; use linearised=True"
        loss = problem.loss
        if loss.pieces is None and not np.isfinite([loss.smoothness, loss.lipschitz]).all():
            return (
                "FeatureMap needs a piecewise quadratic loss, or one with bounded first and "
                f"second derivatives, and {type(loss).__name__} is neither"
            )
        return None

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Solve at every delta, each from the solution before; local matrices are inverted once."""
        loss, base = problem.loss, problem.constant[1]
        X = Design(problem.X).dense()
        # rows are centred where there is an intercept
        center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
        design = Design(X, None, center)
        B = np.linalg.inv(problem.ball.cost.shape(X))
        norm = Local(B, problem.weights)
        solved: list[Solution] = []
        last = None if starts is None else starts[0]
        for delta in deltas:
            rows = dual_rows(problem.at(float(delta)), design, norm)
            origin = origin_on_ray(rows, loss, B)
            if origin is None:
                solved.append(constant_solution(problem))
                continue
            if loss.pieces is not None:
                last = _by_slopes(rows, B, loss.pieces, base, tol, max_iter)
            else:
                warm = None
                if last is not None and last.multiplier > 0:
                    b = last.intercept + float(center @ last.coef)
                    warm = Origin(last.coef, b, last.multiplier)
                last = _by_newton(rows, loss, warm or origin, base, tol, max_iter)
                if warm and not last.converged:
                    # a warm start on a kink can leave no descent; a cold one rarely sits there
                    again = _by_newton(rows, loss, origin, base, tol, max_iter)
                    last = min(last, again, key=lambda solution: solution.objective)
            last = replace(
                last,
                intercept=last.intercept - float(center @ last.coef),
                message=f"linearised feature map: {last.message}",
            )
            solved.append(last)
            logger.info("delta %.4g: %s", delta, last.message)
        return solved


def _by_newton(
    rows: DualRows, loss: Loss, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by the joint Newton method."""
    target = tol * base
    objective, goal = JointObjective(rows, loss), np.array([target])
    start = objective.start(Place(origin.theta[:, None], np.array([origin.b])))
    end = descend(objective, start, goal, max_iter)
    run, x = objective.minima(end, goal), end.point
    solution = as_solution(run, 0, run.theta[:, 0], float(run.b[0]), target)
    z, weights, delta = x.z[:, 0], rows.weights[:, 0], float(rows.delta[0])
    best = best_multiplier(z, rows.y, weights, loss, x.w[:, 0], delta, float(x.lam[0]))
    gap = max(solution.gap - (solution.objective - best.value), 0.0)
    return replace(solution, multiplier=best.lam, objective=best.value, gap=gap)


def _by_slopes(
    rows: DualRows, B: Array, loss: PiecewiseQuadratic, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the model of the least worst-case risk found, with the best bound below.

    Rows are centred, the loss is piecewise quadratic.
    """
    program = SlopeProgram(rows, B, loss)
    target = tol * base
    point = program.start()
    # two barriers a row and that of the budget: together they weigh as much as the objective
    mu = base / (2 * len(program.c) + program.heavy)
    coef, intercept, dual = np.zeros(rows.design.d), 0.0, Dual(np.inf, 0.0)
    lower, n_iter = 0.0, 0
    while n_iter < max_iter:
        for _ in range(CENTRING):
            step = program.newton(point, mu)
            n_iter += 1
            new = program.moved(point, step, mu)
            point = point if new is None else new
            if new is None or step.decrement < CENTRED:
                break
        lower = max(lower, program.value(point))
        risk = program.worst_risk(step.coef, step.intercept)
        if risk.risk < dual.risk:
            coef, intercept, dual = step.coef, step.intercept, risk
        # one centre beyond the target: its few steps tell the model apart from its neighbours
        if new is None or dual.risk - lower <= FALL * target:
            break
        mu *= FALL
    gap = max(dual.risk - lower, 0.0)
    return Solution(
        coef=coef,
        intercept=intercept,
        multiplier=dual.multiplier,
        objective=dual.risk,
        gap=gap,
        n_iter=n_iter,
        converged=gap <= target,
        message=verdict(gap, target, n_iter),
    )


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Mean slopes ``a`` (n,) with what is positive inside the set of a row, and what follows.

    ``spread`` is s - a^2, the variance of the slopes of a row; ``rest`` the distance of s, or of a
    where one slope is infinite, to its other bound, 1 where there is none. They are kept as they
    are, since differences of nearly equal numbers say little. ``u`` is C^-1 g and ``room`` is
    delta - g'C^-1 g.
    """

    a: Array
    spread: Array
    rest: Array
    u: Array
    room: float
    triangle: Array


class NewtonStep(NamedTuple):
    """A step, the model that belongs to the point it leads to, and the squared decrement."""

    da: Array
    dv: Array
    coef: Array
    intercept: float
    decrement: float


class SlopeProgram:
    r"""The dual problem of rows X (centred where there is an intercept) with matrices B.

    A loss :math:`\max_{lo \le a \le hi} a r - \kappa a^2/2` of the residual :math:`r = c - oz`,
    with the score :math:`z = x'\beta + b`, has the worst-case risk (w_i^2 = beta'B_i beta)

    .. math:: \min_\lambda\ \lambda\delta + \sum_i \pi_i \max_{lo \le a \le hi}
              a r_i - \frac{a^2}{2}\Bigl(\kappa - \frac{w_i^2}{2\lambda}\Bigr).

    A row may share its mass between slopes; its mean slope a_i and mean squared slope s_i are all
    that count. The least worst-case risk is the largest value of the concave problem

    .. math:: \max_{a, s}\ \sum_i \pi_i (a_i c_i - \kappa s_i/2)\quad\text{s.t.}\quad
              g'C^{-1}g \le \delta,\ \sum_i \pi_i o_i a_i = 0,\
              a_i^2 \le s_i \le (lo + hi) a_i - lo\,hi,

    :math:`g = -\sum_i \pi_i o_i a_i x_i`, :math:`C = \sum_i \pi_i s_i B_i` (the last bound only
    where both slopes are finite). Newton steps with logarithmic barriers stay strictly inside, so
    that every point is a valid lower bound; with nu the multiplier of the first constraint the
    model is :math:`\beta = -2\nu C^{-1}g`, b that of the second.
    """

    def __init__(self, rows: DualRows, B: Array, loss: PiecewiseQuadratic) -> None:
        used = rows.weights[:, 0] > 0
        self.X, self.y, self.B = rows.design.dense()[used], rows.y[used], B[used]
        self.weights, self.delta = rows.weights[used, 0], float(rows.delta[0])
        self.loss, self.fit_intercept = loss, rows.fit_intercept
        self.lo, self.hi = loss.slopes
        below, above = np.isfinite(loss.slopes)
        #: rest = r_0 + r_a a + r_s s
        self.bound = (1.0, 0.0, 0.0)
        if below and above:
            self.bound = (-self.lo * self.hi, self.lo + self.hi, -1.0)
        elif below or above:
            self.bound = (-self.lo, 1.0, 0.0) if below else (self.hi, -1.0, 0.0)
        self.c = loss.residual(np.zeros_like(self.y), self.y)
        self.o = np.asarray(loss.orientation(self.y), dtype=float)
        #: the weight of the budget among the barriers: as much as all rows, so that the centres
        #: stay away from its boundary, along which steps are short
        self.heavy = float(len(self.y))
        #: dg/da, one line per row
        self.pull = -(self.weights * self.o)[:, None] * self.X
        #: the coefficients of the slopes in the condition of the intercept
        self.even = self.weights * self.o

    def point(self, a: Array, spread: Array, rest: Array) -> DualPoint | None:
        """Return a point, None where it is outside."""
        if not ((spread > 0).all() and (rest > 0).all()):
            return None
        n, d = self.X.shape
        C = ((self.weights * (a**2 + spread)) @ self.B.reshape(n, -1)).reshape(d, d)
        triangle = np.linalg.cholesky(C)
        g = a @ self.pull
        half = solve_triangular(triangle, g, lower=True, check_finite=False)
        u = solve_triangular(triangle, half, lower=True, trans="T", check_finite=False)
        room = self.delta - float(half @ half)
        return DualPoint(a, spread, rest, u, room, triangle) if room > 0 else None

    def start(self) -> DualPoint:
        """Return a point strictly inside: slopes of mean zero, small enough for delta."""
        lo, hi = self.lo, self.hi
        size = min(1.0, -lo if lo < 0 else hi, hi)
        a = np.zeros_like(self.c)
        if lo == 0:
            # both classes have the same weight in the condition of the intercept
            masses = np.array([self.weights[self.o < 0].sum(), self.weights[self.o > 0].sum()])
            least = masses[masses > 0].min()
            a = size / 2 * least / masses[(self.o > 0).astype(int)]
        (r_0, r_a, r_s), point = self.bound, None
        while point is None:
            spread = (a - lo) * (hi - a) / 2 if r_s else np.full_like(a, size**2)
            point = self.point(a, spread, r_0 + r_a * a + r_s * (a**2 + spread))
            a = a / 2
        return point

    def value(self, point: DualPoint) -> float:
        """Return the dual objective: a bound below the worst-case risk of every model."""
        square = point.a**2 + point.spread
        return float(self.weights @ (point.a * self.c - self.loss.kappa / 2 * square))

    def barrier(self, point: DualPoint, mu: float) -> float:
        """Return the function whose minimum is the centre: -value/mu and the barriers."""
        logs = np.log(point.spread * point.rest).sum() + self.heavy * np.log(point.room)
        return -self.value(point) / mu - float(logs)

    def newton(self, point: DualPoint, mu: float) -> NewtonStep:
        """Return the Newton step of the barrier function.

        Its coordinates are da and dv = ds - 2a da, the first-order change of the spread.
        """
        a, u, room = point.a, point.u, point.room
        moved = self.B @ u
        # h = g'C^-1 g has dh/dv = -pi u'B u and dh/da = 2 u'dg/da + 2a dh/dv
        rise_v = -self.weights * (moved @ u)
        rise_a = 2 * self.pull @ u + 2 * a * rise_v
        curved = self.weights * self.loss.kappa / (2 * mu)
        grad_a = -self.weights * self.c / mu + 2 * a * curved + self.heavy * rise_a / room
        grad_v = curved - 1 / point.spread + self.heavy * rise_v / room
        aa, vv = 2 / point.spread, 1 / point.spread**2
        p, q = (slope / point.rest for slope in self._rest_slopes(a))
        grad_a -= p
        grad_v -= q
        # det(D + (p, q)(p, q)') without a difference
        determinant = aa * vv + aa * q**2 + vv * p**2
        aa, av, vv = aa + p**2, p * q, vv + q**2
        inverse = np.stack([vv, -av, -av, aa]).T.reshape(-1, 2, 2) / determinant[:, None, None]
        # the Hessian of h is 2 W'C^-1 W with the columns dg/da - 2a pi B u and -pi B u of W
        push = -self.weights[:, None] * moved
        sides = np.stack([self.pull + 2 * a[:, None] * push, push], axis=-1)
        flat = np.moveaxis(sides, 1, 0).reshape(len(u), -1)
        W = solve_triangular(point.triangle, flat, lower=True, check_finite=False)
        W = W.reshape(len(u), -1, 2)
        root = np.sqrt(2 * self.heavy / room)
        along = np.sqrt(self.heavy) / room
        Q = [root * W, along * np.stack([rise_a, rise_v], axis=-1)[None]]
        if self.fit_intercept:
            Q.append(np.stack([self.even, np.zeros_like(a)], axis=-1)[None])
        gradient = np.stack([grad_a, grad_v], axis=-1)
        step, v = self._solved(inverse, np.concatenate(Q), gradient)
        # beta = -2 nu u, nu = mu heavy/room, to first order after the step
        d = len(u)
        turn = solve_triangular(point.triangle, v[:d], lower=True, trans="T", check_finite=False)
        growth = 1 + v[d] / np.sqrt(self.heavy)
        coef = -2 * mu * self.heavy / room * (growth * u + turn / root)
        b = mu * float(v[-1]) if self.fit_intercept else 0.0
        decrement = -float(np.sum(gradient * step))
        return NewtonStep(step[:, 0], step[:, 1], coef, b, decrement)

    def _solved(self, inverse: Array, Q: Array, gradient: Array) -> tuple[Array, Array]:
        """Solve (D + Q'Q) step = -gradient, the last line of Q times the step being zero.

        With v = Q step: (I + Q D^-1 Q') v = -Q D^-1 gradient, where for the last line, the
        condition of the intercept, I is 0 and v its multiplier. Return the step and v.
        """
        light = (inverse @ np.moveaxis(Q, 0, -1)).reshape(-1, len(Q))
        flat = np.moveaxis(Q, 0, -1).reshape(-1, len(Q))
        E = np.ones(len(Q))
        if self.fit_intercept:
            E[-1] = 0.0
        S = light.T @ flat + np.diag(E)
        v = np.linalg.solve(S, -light.T @ gradient.ravel())
        pulled = gradient + (flat @ v).reshape(gradient.shape)
        step = -(inverse @ pulled[..., None])[..., 0]
        if self.fit_intercept:
            # exactly: the bound holds for slopes of mean zero only
            step[:, 0] -= self.even * (self.even @ step[:, 0]) / (self.even @ self.even)
        return step, v

    def _rest_slopes(self, a: Array) -> tuple[Array, float]:
        """Return the derivatives of ``rest`` in the coordinates of a Newton step."""
        _, r_a, r_s = self.bound
        return r_a + 2 * r_s * a, r_s

    def moved(self, point: DualPoint, step: NewtonStep, mu: float) -> DualPoint | None:
        """Return the point after the longest halved step that lowers the barrier function."""
        before = self.barrier(point, mu)
        length = 1.0
        rest_a, rest_v = self._rest_slopes(point.a)
        while length > SHORTEST:
            a = point.a + length * step.da
            # s is linear in the step and a^2 is not
            spread = point.spread + length * step.dv - (length * step.da) ** 2
            rest = point.rest + length * (rest_a * step.da + rest_v * step.dv)
            new = self.point(a, spread, rest)
            if new is not None:
                fall = before - self.barrier(new, mu)
                if fall >= ARMIJO * length * step.decrement:
                    return new
            length /= 2
        return None

    def worst_risk(self, coef: Array, intercept: float) -> Dual:
        """Return the worst-case risk of a model."""
        z = self.X @ coef + intercept
        w = np.sqrt(np.maximum((self.B @ coef) @ coef, 0.0))
        least = best_multiplier(z, self.y, self.weights, self.loss, w, self.delta)
        return Dual(least.value, least.lam)
