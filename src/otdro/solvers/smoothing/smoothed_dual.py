r"""The smoothed objective over (theta, b, lam) of a linear score and a squared cost.

.. math:: F_\varepsilon = \lambda\delta + \sum_i \pi_i\, G(z_i'\theta + b, \rho_i),\qquad
          \rho_i = w_i\,\tau(\lambda),\quad \tau^2 = \varepsilon/(2\lambda + \varepsilon/s^2),

G as in ``gaussian_integral`` and w_i the dual norm of theta, one for all rows or one per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import (
    DualNorm,
    DualRows,
    RowDerivatives,
    ZeroModel,
    first_multiplier,
    local_threshold,
    zero_model,
)
from ...duality.ties import newton_step
from ...losses import Loss
from ...problem import Problem, Solution
from ..euclidean.coordinates import Coordinates
from .gaussian_integral import SmoothedRows, integrate

Array = NDArray[Any]

#: The first smoothing of every solver, relative to the risk of the best constant.
FIRST_EPS = 0.1
#: Lengths, in standard deviations of the scores, among which a start on a ray is chosen.
LENGTHS = np.geomspace(1e-4, 30, 24)


def dual_rows(problem: Problem, design: Design, dual_norm: DualNorm) -> DualRows:
    """Return the rows of one problem in the coordinates of a design."""
    weights = problem.weights[:, None]
    delta = np.array([problem.ball.delta])
    return DualRows(design, problem.y, weights, delta, problem.fit_intercept, dual_norm)


def spread(lam: float, eps: float, scale: float = np.inf) -> float:
    """Return tau, the width of a unit displacement: 1/tau^2 = 2 lam/eps + 1/scale^2."""
    return float(1 / np.sqrt(2 * lam / eps + 1 / scale**2))


@dataclass(frozen=True, eq=False)
class SmoothedPoint:
    """A triple (theta, b, lam) with its scores z = Z theta + b, dual norms w and objective.

    ``w`` has shape (1,), or (n,) for a local cost.
    """

    theta: Array
    b: float
    lam: float
    z: Array
    w: Array
    rows: SmoothedRows
    objective: float


@dataclass(frozen=True, eq=False)
class SmoothedObjective:
    """The smoothed objective of the rows of one problem at any (theta, b, lam) and eps.

    ``scale`` is the deviation s of the reference normal, ``nodes`` those of an integral.
    """

    rows: DualRows
    loss: Loss
    scale: float
    nodes: int

    @property
    def weights(self) -> Array:
        """The weights of the rows, shape (n,)."""
        return np.asarray(self.rows.weights[:, 0])

    @property
    def delta(self) -> float:
        """The radius."""
        return float(self.rows.delta[0])

    def integrals(self, z: Array, rho: Any, eps: float) -> SmoothedRows | None:
        """Return G of all rows, None where it is infinite."""
        return integrate(self.loss, z, self.rows.y, rho, eps, self.nodes)

    def at(self, theta: Array, b: float, lam: float, z: Array, eps: float) -> SmoothedPoint | None:
        """Return the point, None where the objective is infinite."""
        w = self.rows.dual_norm.norms(theta[:, None])[:, 0]
        rho = w * spread(lam, eps, self.scale)
        # one number where it serves all rows
        rows = self.integrals(z, rho if len(rho) > 1 else float(rho[0]), eps)
        if rows is None:
            return None
        objective = lam * self.delta + float(self.weights @ rows.value)
        return SmoothedPoint(theta, b, lam, z, w, rows, objective)

    def derivatives(self, x: SmoothedPoint, eps: float) -> tuple[Array, Array]:
        """Return gradient (d + 2,) and Hessian in (theta, b, lam)."""
        tau = spread(x.lam, eps, self.scale)
        rates = row_derivatives(x.rows, self.weights, x.w, tau, eps)
        grad, H = self.rows.derivatives(x.theta[:, None], x.w[:, None], rates)
        return grad[0], H[0]


def row_derivatives(
    rows: SmoothedRows, mass: Array, w: Array, tau: float, eps: float
) -> RowDerivatives:
    """Return those of mass G(z, w tau) in (z, w, lam), each of shape (n, 1)."""
    # 1/tau^2 is linear in lam
    tau1 = -(tau**3) / eps
    tau2 = 3 * tau**5 / eps**2
    by_rho = mass * rows.rho
    by_zr = mass * rows.zr
    by_rr = mass * rows.rr
    # d rho/d lam
    rate = w * tau1
    columns = RowDerivatives(
        z=mass * rows.z,
        w=by_rho * tau,
        lam=by_rho * rate,
        zz=mass * rows.zz,
        zw=by_zr * tau,
        zl=by_zr * rate,
        ww=by_rr * tau**2,
        wl=by_rr * tau * rate + by_rho * tau1,
        ll=by_rr * rate**2 + by_rho * w * tau2,
    )
    return RowDerivatives(*(part[:, None] for part in columns))


class Origin(NamedTuple):
    """Where a descent starts."""

    theta: Array
    b: float
    lam: float


def linear_origin(
    rows: DualRows, loss: Loss, at: Coordinates, start: Solution | None
) -> Origin | None:
    """Return a start in round coordinates: the one given, or on the ray against the gradient at 0.

    None where theta = 0 is optimal.
    """
    zero = _zero(rows, loss)
    size = float(np.linalg.norm(zero.pull))
    if zero.threshold(size, loss.lipschitz, 2) <= rows.delta[0]:
        return None
    if start is not None and np.any(start.coef):
        return _given(rows, loss, at, start)
    rate = float(np.sqrt(rows.delta[0] * zero.mean_square))
    direction = _newton_direction(rows, loss, zero)
    if zero.pull @ direction <= rate * np.linalg.norm(direction):
        # only the gradient is sure to descend
        direction = zero.pull
    return _on_ray(rows, loss, zero, direction, rate * float(np.linalg.norm(direction)))


def _given(rows: DualRows, loss: Loss, at: Coordinates, start: Solution) -> Origin:
    """Return a solution nearby as a start."""
    theta = at.theta(start.coef)
    b = at.centred(start.intercept, start.coef)
    if 0 < start.multiplier < np.inf:
        return Origin(theta, b, start.multiplier)
    return _with_multiplier(rows, loss, theta, b)


def local_origin(rows: DualRows, loss: Loss, B: Array) -> Origin | None:
    """Return a start for matrices B of shape (n, d, d), None where theta = 0 is optimal."""
    zero = _zero(rows, loss)
    threshold, direction = local_threshold(zero, rows.weights[:, 0], B)
    if threshold <= rows.delta[0]:
        return None
    # with C = E[l'^2 B] the direction is C^-1 g, and sqrt(delta v'Cv) the price of a step along v
    return _on_ray(rows, loss, zero, direction, float(np.sqrt(rows.delta[0] * threshold)))


def _newton_direction(rows: DualRows, loss: Loss, zero: ZeroModel) -> Array:
    """Return (Z' diag(pi l'') Z + delta E[l''] I)^-1 g: a ball of radius delta adds a ridge."""
    curvature = rows.weights * loss.curvature(np.full_like(rows.y, zero.b), rows.y)[:, None]
    H = rows.gram(curvature)[0]
    H = H + rows.delta[0] * curvature.sum() * np.eye(len(H))
    return -newton_step(zero.pull, H)


def _zero(rows: DualRows, loss: Loss) -> ZeroModel:
    return zero_model(rows.design, rows.y, rows.weights[:, 0], loss, rows.fit_intercept)


def _on_ray(rows: DualRows, loss: Loss, zero: ZeroModel, direction: Array, price: float) -> Origin:
    """Return the point theta = -t v where mean l + price t is least, v the direction.

    ``price`` is sqrt(delta) times the root mean square of w l' at v, were every slope as at zero.
    """
    pi = rows.weights[:, 0]
    z = rows.design.scores(-direction)

    def line(t: float) -> float:
        return float(pi @ loss.value(t * z + zero.b, rows.y)) + price * t

    deviation = float(np.sqrt(pi @ (z - pi @ z) ** 2 + np.finfo(float).tiny))
    # a start need not be precise
    t = min((LENGTHS / deviation).tolist(), key=line)
    return _with_multiplier(rows, loss, -t * direction, zero.b)


def _with_multiplier(rows: DualRows, loss: Loss, theta: Array, b: float) -> Origin:
    """Return the point with a lam near its best."""
    w = rows.dual_norm.norms(theta[:, None])[:, 0]
    z = rows.design.scores(theta) + b
    lam = first_multiplier(z, rows.y, rows.weights[:, 0], loss, w, float(rows.delta[0]))
    return Origin(theta, b, lam)
