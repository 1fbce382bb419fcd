r"""Local costs: one matrix A(x_i), and so one dual norm w_i, per row.

.. math:: \min_{\beta, b, \lambda}\ \lambda\delta + \sum_i \pi_i \sup_s
          \{\ell(z_i + s, y_i) - \lambda s^2/w_i^2\},\qquad w_i^2 = \beta' A(x_i)^{-1}\beta,

by the joint Newton method where the loss is smooth and Lipschitz, else by smoothed rows at a
falling eps. A cost that is not linearised goes on from there (``minimise``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import Atoms, DualRows, Local, local_threshold, lower_bound, zero_model
from ...losses import Loss
from ...problem import Problem, Solution
from ...progress import logger
from ..base import Method, Starts, constant_risk, constant_solution, verdict
from ..euclidean.order_two import JointObjective
from ..euclidean.order_two import descend as joint_descend
from ..smoothing.gaussian_integral import SmoothedRows, softmax
from ..smoothing.newton_path import descend
from ..smoothing.smoothed_dual import (
    FIRST_EPS,
    Origin,
    SmoothedObjective,
    SmoothedPoint,
    dual_rows,
    local_origin,
)
from .kinked_bound import SharedSlopes

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
#: The fact that a problem of order 1 lacks.
ORDER_TWO_ONLY = "FeatureMap is solved exactly at order=2 only"


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
    loss, base = problem.loss, constant_risk(problem)[1]
    design, B = centred(problem)
    norm, center = Local(B, problem.weights), design.center
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
            last = min(last, again, key=lambda found: found.objective)
        last = replace(last, intercept=last.intercept - float(center @ last.coef))
        solved.append(last)
        logger.info("delta %.4g: %s", delta, last.message)
    return solved


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


def _exact(
    rows: DualRows, loss: Loss, origin: Origin, base: float, tol: float, max_iter: int
) -> Solution:
    """Return the solution on centred rows by the joint Newton method."""
    target = tol * base
    objective = JointObjective(rows, loss)
    start = objective.start(origin.theta[:, None], np.array([origin.b]))
    found = joint_descend(objective, start, np.array([target]), max_iter)
    gap, n_iter = float(found.gap[0]), int(found.n_iter[0])
    return Solution(
        coef=found.theta[:, 0],
        intercept=float(found.b[0]),
        multiplier=float(found.lam[0]),
        objective=float(found.objective[0]),
        gap=gap,
        n_iter=n_iter,
        converged=gap <= target,
        message="linearised feature map: " + verdict(gap, target, n_iter),
        dual=found.dual[:, 0],
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
    mass = softmax(inner.value.T / eps)[0].T * weights
    z = x.z + inner.shift
    y = np.broadcast_to(rows.y, z.shape)
    a = loss.derivative(z, y)
    atoms = Atoms(mass[..., None], a[..., None], _room(loss, a, z, y)[..., None])
    bound = lower_bound(rows, loss, atoms, (z - x.b)[..., None])
    return risk, float(bound[0])


def two_slopes(loss: Loss) -> bool:
    """Whether a loss has two slopes and no curvature."""
    return loss.pieces is not None and loss.pieces.kappa == 0


def _room(loss: Loss, a: Array, z: Array, y: Array) -> Array:
    """Return how far slopes are from the ends of their range, else the curvature."""
    low, high = loss.slope_range(y)
    if loss.pieces is None or np.isinf(low).any() or np.isinf(high).any():
        return loss.curvature(z, y)
    return np.asarray((high - a) * (a - low))
