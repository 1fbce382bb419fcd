r"""Sinkhorn DRO for linear scores and squared Euclidean costs, one-dimensional as ``Quadrature``.

.. math:: \min_{\theta, b, \lambda > 0}\ \lambda\delta + \sum_i \pi_i\,\lambda\kappa\log E_g
          \exp\{\ell(z_i'\theta + b + \|\theta\|\sqrt{\kappa/2}\,g, y_i)/(\lambda\kappa)\},

the worst case over P with
:math:`\kappa E_i\,KL(P_i \,|\, N(x_i, \tfrac{\kappa}{2}\Lambda^{-1})) \le \delta`: the entropic
transport cost with regularisation kappa, measured from its least value. It is convex in
(theta, b, lam), and tends to the transport ball of order 2 as kappa falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...duality import DualRows, Round
from ...losses import Loss
from ...problem import Problem, Solution
from ...progress import logger
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates
from .gaussian_integral import integrate
from .requirements import lacks_linear, require, require_positive
from .smoothed_dual import dual_rows, linear_origin

Array = NDArray[Any]

#: A decrease of the risk, relative to it, at which quasi-Newton steps end: rounding.
STILL = 1e-15
#: How log lam grows in search of a finite risk.
GROWTH = 0.5


@dataclass(eq=False, repr=False)
class Sinkhorn(Solver):
    """Minimise the worst-case risk over an entropic transport ball, by quasi-Newton steps.

    Parameters
    ----------
    eps : float > 0, default 0.1
        The regularisation kappa, in units of the cost, relative to delta. The ball tends to the
        transport ball as it falls.
    nodes : int >= 2, default 65
        Nodes of the trapezoid rule per row and maximum; more make the integrals more accurate.
    tol : float >= 0, default 1e-6
        The largest entry of the last gradient, relative to the risk of the best constant model.
    max_iter : int >= 1, default 1000
        The most quasi-Newton steps.
    """

    eps: float = 0.1
    nodes: int = 65
    tol: float = 1e-6
    max_iter: int = 1000

    def lacks(self, problem: Problem) -> str | None:
        """Return why the problem has no one-dimensional form, None if it has one."""
        return lacks_linear(problem, "Sinkhorn")

    def _solve_one(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the minimiser; ``objective`` is the Sinkhorn risk, without a gap."""
        require_positive(eps=self.eps)
        require(self.lacks(problem))
        at = Coordinates(problem)
        rows = dual_rows(problem, at.design, Round())
        origin = linear_origin(rows, problem.loss, at, start)
        if origin is None:
            return constant_solution(problem)
        kappa = self.eps * problem.ball.delta
        fixed = (rows, problem.loss, kappa, self.nodes)
        first = np.concatenate([origin.theta, [origin.b, np.log(origin.lam)]])
        while not np.isfinite(risk(first, *fixed)[0]):
            first[-1] += GROWTH
        tolerance = self.tol * constant_risk(problem)[1]
        options: Any = {"maxiter": self.max_iter, "gtol": tolerance, "ftol": STILL}
        found = minimize(risk, first, fixed, jac=True, method="L-BFGS-B", options=options)
        logger.info("sinkhorn: step %d, risk %.8g", found.nit, found.fun)
        return self._solution(at, found, kappa)

    def _solution(self, at: Coordinates, found: Any, kappa: float) -> Solution:
        coef = at.coef(found.x[:-2])
        settled = bool(found.nit < self.max_iter)
        message = (
            f"Sinkhorn ball of regularisation {kappa:.3g}: risk {found.fun:.8g}, gradient "
            f"{np.abs(found.jac).max():.2g}; no gap"
        )
        return Solution(
            coef=coef,
            intercept=at.intercept(float(found.x[-2]), coef),
            multiplier=float(np.exp(found.x[-1])),
            objective=float(found.fun),
            gap=np.inf,
            n_iter=max(int(found.nit), 1),
            converged=settled,
            message=message if settled else f"did not settle ({message})",
        )


def risk(v: Array, rows: DualRows, loss: Loss, kappa: float, nodes: int) -> tuple[float, Array]:
    """Return the objective and its gradient at v = (theta, b, log lam), inf where it is."""
    theta = v[:-2]
    lam = float(np.exp(v[-1]))
    w = float(rows.dual_norm.norms(theta[:, None])[0, 0])
    root = np.sqrt(kappa / 2)
    z = rows.design.scores(theta) + float(v[-2])
    found = integrate(loss, z, rows.y, w * root, lam * kappa, nodes)
    if found is None:
        return np.inf, np.zeros_like(v)
    pi = rows.weights[:, 0]
    mean = float(pi @ found.value)
    budget = lam * float(rows.delta[0])
    grad = np.empty_like(v)
    grad[:-2] = rows.design.adjoint(pi * found.z) + (pi @ found.rho) * root / w * theta
    grad[-2] = (pi @ found.z) * rows.fit_intercept
    # d/d log lam of eta log E e^(l/eta), eta = lam kappa, is G minus the weighted mean loss
    grad[-1] = budget + mean - float(pi @ found.loss)
    return budget + mean, grad
