r"""Sinkhorn DRO for linear scores and squared Euclidean costs, one-dimensional as ``Quadrature``.

.. math:: \min_{\theta, b, \lambda > 0}\ \lambda\delta + \sum_i \pi_i\,\lambda\kappa\log E_g
          \exp\{\ell(z_i'\theta + b + \|\theta\|\sqrt{\kappa/2}\,g, y_i)/(\lambda\kappa)\},

the worst case over P with
:math:`\kappa E_i\,KL(P_i \,|\, N(x_i, \tfrac{\kappa}{2}\Lambda^{-1})) \le \delta`: the entropic
transport cost with regularisation kappa, measured from its least value. It is convex in
(theta, b, lam), and tends to the transport ball of order 2 as kappa falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...problem import Problem, Solution
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates
from .gaussian_integral import integrate
from .quadrature import opening, require_linear
from .smoothed_dual import Rows

Array = NDArray[Any]


class Sinkhorn(Solver):
    """Minimise the worst-case risk over an entropic transport ball, by quasi-Newton steps.

    Parameters
    ----------
    eps : float > 0
        The regularisation kappa, in units of the cost, relative to delta.
    nodes : int >= 9
        Nodes of the trapezoid rule a row and maximum.
    tol : float
        The last gradient, relative to the risk of the best constant model.
    max_iter : int
    """

    def __init__(
        self, eps: float = 0.1, nodes: int = 65, tol: float = 1e-6, max_iter: int = 1000
    ) -> None:
        self.eps = eps
        self.nodes = nodes
        self.tol = tol
        self.max_iter = max_iter

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the minimiser; ``objective`` is the Sinkhorn risk, without a gap."""
        if not (np.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"eps must be a number > 0, got eps={self.eps!r}.")
        require_linear(problem, "Sinkhorn")
        at, base = Coordinates(problem), constant_risk(problem)[1]
        rows = Rows(
            at.design,
            problem.y,
            problem.weights,
            problem.loss,
            problem.ball.delta,
            problem.fit_intercept,
        )
        origin = opening(rows, at, start)
        if origin is None:
            return constant_solution(problem)
        kappa = self.eps * problem.ball.delta
        first = np.concatenate([origin[0], [origin[1], np.log(origin[2])]])
        while not np.isfinite(risk(first, rows, kappa, self.nodes)[0]):
            first[-1] += 0.5
        options: Any = {"maxiter": self.max_iter, "gtol": self.tol * base, "ftol": 1e-15}
        args = (rows, kappa, self.nodes)
        found = minimize(risk, first, args, jac=True, method="L-BFGS-B", options=options)
        return self._solution(at, found, kappa)

    def _solution(self, at: Coordinates, found: Any, kappa: float) -> Solution:
        coef = at.coef(found.x[:-2])
        settled = bool(found.nit < self.max_iter)
        message = (
            f"Sinkhorn ball of regularisation {kappa:.3g}: risk {found.fun:.8g}, gradient "
            f"{np.abs(found.jac).max():.2g}; no gap"
        )
        return Solution(
            coef,
            at.intercept(float(found.x[-2]), coef),
            float(np.exp(found.x[-1])),
            float(found.fun),
            np.inf,
            max(int(found.nit), 1),
            settled,
            message if settled else f"did not settle ({message})",
        )


def risk(v: Array, rows: Rows, kappa: float, nodes: int) -> tuple[float, Array]:
    """Return the objective and its gradient at v = (theta, b, log lam), inf where it is."""
    theta, b, lam = v[:-2], float(v[-2]), float(np.exp(v[-1]))
    w = max(float(np.linalg.norm(theta)), 1e-300)
    eta, root = lam * kappa, np.sqrt(kappa / 2)
    z = rows.design.scores(theta) + b
    t = integrate(rows.loss, z, rows.y, w * root, eta, nodes)
    if t is None:
        return np.inf, np.zeros_like(v)
    pi = rows.weights
    value = float(pi @ t.value)
    grad = np.empty_like(v)
    grad[:-2] = rows.design.adjoint(pi * t.z) + (pi @ t.rho) * root / w * theta
    grad[-2] = (pi @ t.z) * rows.fit_intercept
    # d/d log lam of eta log E e^(l/eta) is G - E_q l
    grad[-1] = lam * rows.delta + value - float(pi @ t.loss)
    return lam * rows.delta + value, grad
