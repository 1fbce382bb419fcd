r"""Feature maps linearised at each row: one matrix A(x_i), and so one dual norm w_i, per row.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \sup_s
          \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},\qquad w_i^2 = \beta' A(x_i)^{-1}\beta,

by the joint Newton method where the loss is smooth and Lipschitz, else by smoothed rows at a
falling eps. A cost that is not linearised is for ``Smoothed``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..design import Design
from ..duality import DualRows, Local, first_within
from ..losses import Loss
from ..problem import Problem, Solution
from ..progress import logger
from .base import Method, Starts, constant_risk, constant_solution, verdict
from .euclidean.order_two import JointObjective
from .euclidean.order_two import descend as joint_descend
from .smoothing.quadrature import (
    FIRST_EPS,
    Origin,
    SmoothedObjective,
    SmoothedPoint,
    SmoothedRows,
    descend,
    dual_rows,
    local_origin,
    moved_bound,
    softmax,
)

Array = NDArray[Any]

#: The last smoothing, relative to the risk of the best constant.
EPS = 1e-7
#: Nodes of the trapezoid rule per row and maximum.
NODES = 33
#: The share of ``tol`` at which a smoothing is lost in it.
LOST = 0.1
#: Other smoothings, relative to the last, at which a bound is sought where that one has none.
OTHERS = (3.0, 0.3, 0.6, 6.0)
#: The Newton decrement, relative to the target, at which shares of rows on a kink are known.
SHARES = 1e-5


class Linearised(Method):
    """A feature map linearised at every row."""

    geometries = frozenset({"local"})
    certifies = "the excess over the least worst-case risk under the linearised cost"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1 and costs that are not linearised."""
        if problem.ball.order != 2:
            return "FeatureMap is solved exactly at order=2 only"
        if not problem.ball.cost.linearised:
            return "FeatureMap(linearised=False) has no certificate; use linearised=True"
        return None

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        deltas = np.array([problem.ball.delta])
        return minimise_linearised(problem, deltas, tol, max_iter, start)[0]

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta; local matrices are inverted once."""
        return minimise_linearised(problem, deltas, tol, max_iter)


def minimise_linearised(
    problem: Problem, deltas: Array, tol: float, max_iter: int, start: Solution | None = None
) -> list[Solution]:
    """Solve at every delta (descending), each from the solution before; A(x) is inverted once."""
    loss, base = problem.loss, constant_risk(problem)[1]
    X = Design(problem.X).dense()
    # rows are centred where there is an intercept
    center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
    design = Design(X, None, center)
    B = np.linalg.inv(problem.ball.cost.shape(X))
    norm = Local(B, problem.weights)
    smooth = loss.pieces is None and np.isfinite(loss.smoothness)
    method = _exact if smooth and np.isfinite(loss.lipschitz) else _smoothed
    solved: list[Solution] = []
    last = start
    for delta in deltas:
        rows = dual_rows(problem.at(float(delta)), design, norm)
        origin = local_origin(rows, loss, B)
        if origin is None:
            solved.append(constant_solution(problem))
            continue
        warm = None
        if last is not None and last.multiplier > 0:
            b = last.intercept + float(center @ last.coef)
            warm = Origin(last.coef, b, last.multiplier)
        last = method(rows, loss, warm or origin, base, tol, max_iter)
        if warm and not last.converged:
            # a warm start on a kink can leave no descent; a cold one rarely sits there
            again = method(rows, loss, origin, base, tol, max_iter)
            last = min(last, again, key=lambda solution: solution.objective)
        last = replace(last, intercept=last.intercept - float(center @ last.coef))
        solved.append(last)
        logger.info("delta %.4g: %s", delta, last.message)
    return solved


def _exact(
    rows: DualRows, loss: Loss, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by the joint Newton method."""
    target = tol * base
    objective = JointObjective(rows, loss)
    start = objective.start(origin.theta[:, None], np.array([origin.b]))
    run = joint_descend(objective, start, np.array([target]), max_iter)
    gap, n_iter = float(run.gap[0]), int(run.n_iter[0])
    return Solution(
        coef=run.theta[:, 0],
        intercept=float(run.b[0]),
        multiplier=float(run.lam[0]),
        objective=float(run.objective[0]),
        gap=gap,
        n_iter=n_iter,
        converged=gap <= target,
        message="linearised feature map: " + verdict(gap, target, n_iter),
        dual=run.dual[:, 0],
    )


class SoftMaximum(SmoothedObjective):
    """The smoothed objective of a loss with two slopes: a soft maximum over them, no integral."""

    def integrals(self, z: Array, rho: Any, eps: float) -> SmoothedRows | None:
        """Return eps log of the mean of exp(psi_a/eps) over the two slopes a of the loss.

        psi_a = a r + a^2 rho^2/(2 eps) is the inner supremum along slope a, r the residual.
        """
        pieces, y = self.loss.pieces, self.rows.y
        assert pieces is not None
        a = np.array(pieces.slopes)[:, None]
        psi = a * pieces.residual(z, y) + a**2 * rho**2 / (2 * eps)
        p, log_total = softmax(psi.T / eps)
        p = p.T
        dz = -pieces.orientation(y) * a
        dr = a**2 * rho / eps
        z1, r1 = (p * dz).sum(axis=0), (p * dr).sum(axis=0)
        off_z, off_r = dz - z1, dr - r1
        return SmoothedRows(
            value=eps * (log_total - np.log(2)),
            loss=(p * psi).sum(axis=0),
            z=z1,
            rho=r1,
            zz=(p * off_z**2).sum(axis=0) / eps,
            zr=(p * off_z * off_r).sum(axis=0) / eps,
            rr=(p * (off_r**2 / eps + a**2 / eps)).sum(axis=0),
            effective=np.full(len(z), np.inf),
        )


def _smoothed(
    rows: DualRows, loss: Loss, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by smoothing with a falling eps."""
    kinked = two_slopes(loss)
    smooth = (SoftMaximum if kinked else SmoothedObjective)(rows, loss, np.inf, NODES)
    target = tol * base
    final = max(EPS, LOST * tol) * base
    # shares of rows on a kink are fixed by the last digits of the gradient
    last = SHARES * target if kinked else target
    run = descend(smooth, origin, max(FIRST_EPS * base, final), final, last, max_iter)
    x, n_iter = run.x, run.n_iter
    risk, lower = _bounds(smooth, x, run.eps)
    for other in OTHERS:
        if risk - lower <= target or not kinked:
            break
        # the same model to rounding, other shares: the best bound holds
        eps = other * final
        again = descend(smooth, Origin(x.theta, x.b, x.lam), eps, eps, last, max_iter)
        lower = max(lower, _bounds(smooth, again.x, eps)[1])
        n_iter += again.n_iter
    gap = max(risk - lower, 0.0)
    message = f"linearised feature map at eps={run.eps:.3g}: " + verdict(gap, target, n_iter)
    return Solution(
        coef=x.theta,
        intercept=x.b,
        multiplier=x.lam,
        objective=risk,
        gap=gap,
        n_iter=n_iter,
        converged=bool(gap <= target),
        message=message,
    )


def _bounds(smooth: SmoothedObjective, x: SmoothedPoint, eps: float) -> tuple[float, float]:
    """Return the risk at (x, lam) and a bound below it, from rows moved to their maxima."""
    rows, loss, weights = smooth.rows, smooth.loss, smooth.weights
    inner = loss.inner(x.z, rows.y, x.w, x.lam)
    risk = x.lam * smooth.delta + float(weights @ inner.value.max(axis=0))
    if two_slopes(loss):
        low, high = loss.slope_range(rows.y)
        share = np.clip((x.rows.z - low) / (high - low), 0.0, 1.0)
        norm = rows.dual_norm
        assert isinstance(norm, Local)
        fixed = (low, high, smooth.delta, rows.fit_intercept)
        slopes = SharedSlopes(rows.design.dense(), norm.B, weights, *fixed)
        return risk, slopes.bound(loss, rows.y, share)
    return risk, moved_bound(rows, loss, x.z, x.b, x.w, x.lam, eps)


def two_slopes(loss: Loss) -> bool:
    """Whether a loss has two slopes and no curvature."""
    return loss.pieces is not None and loss.pieces.kappa == 0


@dataclass(frozen=True, eq=False)
class SharedSlopes:
    r"""A lower bound for losses with two slopes: rows share their mass between both.

    .. math:: F^* \ge -\sum \pi_i\,\{(1 - p_i)\,\ell^*(lo_i) + p_i\,\ell^*(hi_i)\}
              \quad\text{if}\quad g'C^{-1}g \le \delta,\ \sum \pi_i a_i = 0,

    a the mean slope of a row, :math:`g = \sum \pi a z` and C the sum of pi times the mean squared
    slope times B_i. The shares p are moved, each in proportion to p (1 - p), until that holds.
    Rows Z, their matrices B, weights and the ends of their slopes; delta, the intercept.
    """

    Z: Array
    B: Array
    weights: Array
    low: Array
    high: Array
    delta: float
    fit_intercept: bool

    def bound(self, loss: Loss, y: Array, share: Array) -> float:
        """Return the bound of shares (n,) of the larger slope made feasible, -inf if that fails."""
        room = share * (1 - share)
        p = share - self._offset(room, self.low + share * (self.high - self.low))
        budget, q = self._budget(p)
        if budget > self.delta:
            turn = self.high - self.low
            # d(g'C^-1 g)/dp = 2 pi (z'q da/dp - q'B_i q d(a^2)/dp/2)
            bend = self.high**2 - self.low**2
            steep = (self.Z @ q) * turn - ((self.B @ q) @ q) * bend / 2
            h = -room * steep
            h = h - self._offset(room, turn * h)
            fall = -2 * float(self.weights @ (h * steep))
            eta = first_within(lambda eta: (self._budget(p + eta * h)[0], fall), self.delta)
            if np.isinf(eta):
                return -np.inf
            p = p + eta * h
        ends = (loss.conjugate(self.low, y), loss.conjugate(self.high, y))
        inside = np.isfinite(p) & (p >= 0) & (p <= 1)
        value = np.where(inside, (1 - p) * ends[0] + p * ends[1], np.inf)
        return -float(self.weights @ np.where(self.weights > 0, value, 0.0))

    def _offset(self, room: Array, lack: Array) -> Array:
        """Return the change, in proportion to the room, that makes up for sum pi lack."""
        if not self.fit_intercept:
            return np.zeros_like(room)
        turn = self.high - self.low
        total = float(self.weights @ (room * turn**2))
        return room * turn * (self.weights @ lack) / max(total, np.finfo(float).tiny)

    def _budget(self, p: Array) -> tuple[float, Array]:
        """Return g'C^-1 g and C^-1 g."""
        n, d = self.Z.shape
        g = (self.weights * (self.low + p * (self.high - self.low))) @ self.Z
        square = self.weights * (self.low**2 + p * (self.high**2 - self.low**2))
        C = (square @ self.B.reshape(n, -1)).reshape(d, d)
        try:
            q = cho_solve(cho_factor(C), g)
        except LinAlgError:
            # no slope is left to move
            return np.inf, g
        return float(g @ q), q
