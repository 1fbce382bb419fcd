r"""Local costs: one matrix A(x_i), and so one dual norm w_i, per row.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \sup_s
          \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},\qquad w_i^2 = \beta' A(x_i)^{-1}\beta,

by the Newton method of ``rowwise`` where the loss is smooth and Lipschitz, else by smoothed rows at
a falling eps. A cost that is not linearised goes on from there (``minimise``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality.zero import local_threshold, zero_model
from ...losses import Loss, PiecewiseQuadratic
from ...problem import Problem, Solution
from ..base import Method, Starts, constant_risk, constant_solution, verdict
from ..euclidean import joint
from ..smoothing.gaussian_integral import Tilt, integrate, maxima, softmax
from ..smoothing.quadrature import Smoothing, descend
from ..smoothing.smoothed_dual import Point, Rows, multiplier, spread
from .rowwise import KinkedBound, LocalBound, Rowwise, Slopes

Array = NDArray[Any]
logger = logging.getLogger("otdro")

#: The last smoothing, relative to the risk of the best constant.
EPS = 1e-7
#: Lengths of a first step, in standard deviations of the scores along it.
LENGTHS = np.geomspace(1e-4, 30, 24)
#: Nodes of the trapezoid rule per row and maximum.
NODES = 33
#: The first smoothing, relative to the same risk; the share of ``tol`` at which it is lost in it.
FIRST_EPS, LOST = 0.1, 0.1
#: Other smoothings, relative to the last, at which a bound is sought where that one has none.
OTHERS = (3.0, 0.3, 0.6, 6.0)
#: The Newton decrement, relative to the target, at which shares of rows on a kink are known.
SHARES = 1e-5
TINY = 1e-300
#: The fact that a problem of order 1 lacks.
ORDER_TWO_ONLY = "FeatureMap is solved exactly at order=2 only"
#: Where a descent starts: theta, b and lam.
Origin = tuple[Array, float, float]


@dataclass(frozen=True, eq=False)
class LocalSmoothing(Smoothing):
    """The smoothed objective with B_i = A(x_i)^-1 of shape (n, d, d)."""

    B: Array

    def norms(self, theta: Array) -> tuple[Array, Array]:
        """Return w_i and the rows B_i theta."""
        push = self.B @ theta
        return np.sqrt(np.maximum(push @ theta, TINY)), push

    def at(self, theta: Array, b: float, lam: float, z: Array, eps: float) -> Point | None:
        """Return the point, None where the objective is infinite."""
        w, _ = self.norms(theta)
        rho = w * spread(lam, eps, np.inf)
        pieces = two_slopes(self.rows.loss)
        tilt = (
            integrate(self.rows.loss, z, self.rows.y, rho, eps, self.nodes)
            if pieces is None
            else soft_maximum(pieces, z, self.rows.y, rho, eps)
        )
        if tilt is None:
            return None
        objective = lam * self.rows.delta + float(self.rows.weights @ tilt.value)
        return Point(theta, b, lam, z, tilt, objective, float(w.max()))

    def derivatives(self, x: Point, eps: float) -> tuple[Array, Array]:
        """Return gradient and Hessian in (theta, b, lam): rho_i = w_i tau has gradient tau v_i."""
        rows, t, pi = self.rows, x.tilt, self.rows.weights
        w, push = self.norms(x.theta)
        V, tau = push / w[:, None], spread(x.lam, eps, np.inf)
        tau1, tau2 = -(tau**3) / eps, 3 * tau**5 / eps**2
        Z = np.column_stack([rows.design.dense(), np.full(len(w), float(rows.fit_intercept))])
        V = np.column_stack([V, np.zeros(len(w))])
        steep = pi * t.rho
        cross = Z.T @ ((pi * t.zr)[:, None] * V)
        H = np.zeros((len(x.theta) + 2,) * 2)
        H[:-1, :-1] = Z.T @ ((pi * t.zz)[:, None] * Z) + tau * (cross + cross.T)
        H[:-1, :-1] += V.T @ ((pi * t.rr * tau**2 - steep * tau / w)[:, None] * V)
        H[:-2, :-2] += tau * np.einsum("n,nij->ij", steep / w, self.B)
        mixed = tau1 * (Z.T @ (pi * t.zr * w) + V.T @ (pi * t.rr * tau * w + steep))
        H[:-1, -1] = H[-1, :-1] = mixed
        H[-1, -1] = tau1**2 * (pi @ (t.rr * w**2)) + tau2 * (steep @ w)
        if not rows.fit_intercept:
            H[-2, -2] = 1.0
        grad = np.append(Z.T @ (pi * t.z) + tau * (V.T @ steep), rows.delta + tau1 * (steep @ w))
        return grad, H


def soft_maximum(pieces: PiecewiseQuadratic, z: Array, y: Array, rho: Array, eps: float) -> Tilt:
    """Return eps log of the mean of exp(psi_a/eps) over the two slopes a of the loss.

    psi_a = a r + a^2 rho^2/(2 eps) is the inner supremum along slope a, r the residual.
    """
    a = np.array(pieces.slopes)[:, None]
    psi = a * pieces.residual(z, y) + a**2 * rho**2 / (2 * eps)
    p, log_total = softmax(psi.T / eps)
    p = p.T
    dz = -pieces.orientation(y) * a
    dr = a**2 * rho / eps
    z1, r1 = (p * dz).sum(axis=0), (p * dr).sum(axis=0)
    off_z, off_r = dz - z1, dr - r1
    return Tilt(
        value=eps * (log_total - np.log(2)),
        loss=(p * psi).sum(axis=0),
        z=z1,
        rho=r1,
        zz=(p * off_z**2).sum(axis=0) / eps,
        zr=(p * off_z * off_r).sum(axis=0) / eps,
        rr=(p * (off_r**2 / eps + a**2 / eps)).sum(axis=0),
        effective=np.full(len(z), np.inf),
    )


class Linearised(Method):
    """A feature map linearised at every row."""

    geometries = frozenset({"local"})
    certifies = "the excess over the least worst-case risk under the linearised cost"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse order 1 and costs that are to be solved beyond their linearisation."""
        if problem.ball.order != 2:
            return ORDER_TWO_ONLY
        if not problem.ball.cost.linearised:
            return "the cost is not linearised"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return linearised(problem, tol, max_iter, start)

    def solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta; local matrices are inverted once."""
        return linearised_many(problem, deltas, tol, max_iter)


def linearised(
    problem: Problem, tol: float, max_iter: int, start: Solution | None = None
) -> Solution:
    """Return the solution for A(x) = J(x)'Lam J(x)."""
    return linearised_many(problem, np.array([problem.ball.delta]), tol, max_iter, start)[0]


def linearised_many(
    problem: Problem, deltas: Array, tol: float, max_iter: int, start: Solution | None = None
) -> list[Solution]:
    """Solve at every delta (descending), each from the solution before; A(x) is inverted once."""
    base = constant_risk(problem)[1]
    if problem.ball.order != 2:
        raise ValueError(f"{ORDER_TWO_ONLY}. Use order=2.")
    design, B = centred(problem)
    center = design.center
    method = _exact if _newton_works(problem.loss) else _smoothed
    solved: list[Solution] = []
    last = start
    for delta in deltas:
        fixed = (problem.loss, float(delta), problem.fit_intercept)
        rows = Rows(design, problem.y, problem.weights, *fixed)
        origin = first_point(rows, B)
        if origin is None:
            solved.append(constant_solution(problem))
            continue
        warm = None
        if last is not None and last.multiplier > 0:
            warm = last.coef, last.intercept + float(center @ last.coef), last.multiplier
        last = method(rows, B, warm or origin, base, tol, max_iter)
        if warm and not last.converged:
            # a warm start on a kink can leave no descent; a cold one seldom sits there
            again = method(rows, B, origin, base, tol, max_iter)
            last = min(last, again, key=lambda found: found.objective)
        last = replace(last, intercept=last.intercept - float(center @ last.coef))
        solved.append(last)
        logger.info("delta %.4g: %s", delta, last.message)
    return solved


def _newton_works(loss: Loss) -> bool:
    """Whether the Newton method of ``rowwise`` has this loss: smooth, Lipschitz, not in pieces."""
    smooth = np.isfinite(loss.smoothness) and np.isfinite(loss.lipschitz)
    # ``joint`` knows no other such loss than the one whose infimum is at infinity
    return bool(loss.pieces is None and smooth and loss.minimum_at_infinity)


def _exact(
    rows: Rows, B: Array, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by the Newton method of ``rowwise``."""
    target = tol * base
    found = joint.descend(Rowwise(rows, B), (*origin[:2], None), target, max_iter)
    settled = bool(found.gap <= target)
    message = "linearised feature map: " + verdict(found.gap, target, found.n_iter)
    last = found.objective, found.gap, found.n_iter, settled, message, found.dual
    return Solution(found.theta, found.b, found.lam, *last)


def _smoothed(
    rows: Rows, B: Array, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by smoothing with a falling eps."""
    smooth, target = LocalSmoothing(rows, np.inf, NODES, B), tol * base
    final = max(EPS, LOST * tol) * base
    # shares of rows on a kink are fixed by the last digits of the gradient
    last = target if two_slopes(rows.loss) is None else SHARES * target
    run = descend(smooth, origin, max(FIRST_EPS * base, final), final, last, max_iter)
    x, n_iter = run.x, run.n_iter
    risk, lower = _bounds(smooth, x, run.eps)
    for other in OTHERS:
        if risk - lower <= target or two_slopes(rows.loss) is None:
            break
        # the same model to rounding, other shares: the best bound holds
        eps = other * final
        again = descend(smooth, (x.theta, x.b, x.lam), eps, eps, last, max_iter)
        lower = max(lower, _bounds(smooth, again.x, eps)[1])
        n_iter += again.n_iter
    gap = max(risk - lower, 0.0)
    message = f"linearised feature map at eps={run.eps:.3g}: " + verdict(gap, target, n_iter)
    return Solution(x.theta, x.b, x.lam, risk, gap, n_iter, bool(gap <= target), message)


def first_point(rows: Rows, B: Array) -> Origin | None:
    """Return a start against the first gradient g, None where theta = 0 is optimal."""
    zero = zero_model(rows.design, rows.y, rows.weights, rows.loss, rows.fit_intercept)
    threshold, v = local_threshold(zero, rows.weights, B)
    if threshold <= rows.delta:
        return None
    z = rows.design.scores(-v)
    # d/dt of the worst-case risk at t = 0 along -v, less that of the plain risk
    price = float(np.sqrt(rows.delta * threshold))

    def line(t: float) -> float:
        return float(rows.weights @ rows.loss.value(t * z + zero.b, rows.y)) + t * price

    unit = 1 / np.sqrt(rows.weights @ (z - rows.weights @ z) ** 2 + TINY)
    t = min(unit * LENGTHS, key=line)
    w = float(np.sqrt(np.max((B @ v) @ v))) * t
    return -t * v, zero.b, multiplier(rows, t * z + zero.b, w)


def centred(problem: Problem) -> tuple[Design, Array]:
    """Return the rows, centred where there is an intercept, and B_i = A(x_i)^-1."""
    X = Design(problem.X).dense()
    center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
    return Design(X, None, center), np.linalg.inv(problem.ball.cost.shape(X))


def zero_direction(problem: Problem) -> tuple[float, Array]:
    """Return the least delta at which theta = 0 is optimal, and where the risk falls below it."""
    design, B = centred(problem)
    fixed = (problem.weights, problem.loss, problem.fit_intercept)
    return local_threshold(zero_model(design, problem.y, *fixed), problem.weights, B)


def threshold(problem: Problem) -> float:
    """Return the least delta at which theta = 0 is optimal under the linearised cost."""
    return zero_direction(problem)[0]


def _bounds(smooth: LocalSmoothing, x: Point, eps: float) -> tuple[float, float]:
    """Return the risk at (x, lam) and a bound below it, from rows moved to their maxima."""
    rows, (w, _) = smooth.rows, smooth.norms(x.theta)
    inner = maxima(rows.loss, x.z, rows.y, x.lam / w**2)
    risk = x.lam * rows.delta + float(rows.weights @ inner.value.max(axis=0))
    fixed = (rows.loss, rows.design.dense(), smooth.B, rows.delta, rows.fit_intercept)
    if two_slopes(rows.loss) is not None:
        low, high = rows.loss.slope_range(rows.y)
        share = np.clip((x.tilt.z - low) / (high - low), 0.0, 1.0)
        each = np.arange(len(w))
        slopes = Slopes(each, rows.y, rows.weights, share, share * (1 - share))
        return risk, KinkedBound(*fixed).bound(slopes)
    mass = (softmax(inner.value.T / eps)[0].T * rows.weights).ravel()
    row = np.tile(np.arange(len(w)), len(inner.value))
    y, z = rows.y[row], x.z[row] + inner.shift.ravel()
    a = rows.loss.derivative(z, y)
    slopes = Slopes(row, y, mass, a, _room(rows.loss, a, z, y))
    return risk, LocalBound(*fixed).bound(slopes)


def two_slopes(loss: Loss) -> PiecewiseQuadratic | None:
    """Return the pieces of a loss that has two slopes and no curvature, None for any other."""
    pieces = loss.pieces
    return pieces if pieces is not None and pieces.kappa == 0 else None


def _room(loss: Loss, a: Array, z: Array, y: Array) -> Array:
    """Return how far slopes are from the ends of their range, else the curvature."""
    low, high = loss.slope_range(y)
    if loss.pieces is None or np.isinf(low).any() or np.isinf(high).any():
        return loss.curvature(z, y)
    return np.asarray((high - a) * (a - low))
