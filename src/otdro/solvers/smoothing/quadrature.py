r"""The smoothed dual without Monte Carlo, for linear scores and squared Euclidean costs.

.. math:: \min_{\theta, b, \lambda}\ \lambda\delta + \sum_i \pi_i\,\varepsilon\log E_g
          \exp\{\ell(z_i'\theta + b + \rho g, y_i)/\varepsilon\},\qquad
          \rho^2 = \|\theta\|^2\,\varepsilon/(2\lambda + \varepsilon/s^2),

one-dimensional integrals by the trapezoid rule, damped Newton, and eps annealed from a tenth of the
best constant's risk along the path of minimisers. The reference for ``Smoothed``, and a solver by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...duality import Round
from ...problem import Problem, Solution
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates
from .newton_path import NewtonRun, descend
from .requirements import lacks_linear, lacks_smooth, require, require_positive
from .smoothed_dual import FIRST_EPS, SmoothedObjective, dual_rows, linear_origin
from .unsmoothed import Unsmoothed, unsmoothed_risk

#: Fewer nodes do not cover a window of eight deviations to either side.
FEWEST_NODES = 9


@dataclass(eq=False, repr=False)
class Quadrature(Solver):
    """Minimise the smoothed worst-case risk by Newton's method with deterministic integrals.

    Parameters
    ----------
    eps : float > 0, default 1e-6
        The last smoothing, relative to the risk of the best constant model. The smoothed risk
        differs from the worst-case risk by a multiple of it.
    scale : float > 0, default inf
        The standard deviation s of the reference normal N(x, s^2 Lam^-1), in units of the cost;
        inf leaves the shape to the cost alone.
    nodes : int >= 9, default 25
        Nodes of the trapezoid rule per row and maximum; more make the integrals more accurate.
    tol : float >= 0, default 1e-6
        The last Newton decrement, relative to the risk of the best constant model.
    max_iter : int >= 1, default 1000
        The most Newton steps, those at all values of eps together.
    """

    eps: float = 1e-6
    scale: float = np.inf
    nodes: int = 25
    tol: float = 1e-6
    max_iter: int = 1000

    def lacks(self, problem: Problem) -> str | None:
        """Return why the problem has no one-dimensional form, None if it has one."""
        return lacks_linear(problem, "Quadrature") or lacks_smooth(problem)

    def _solve_one(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the minimiser of the smoothed risk with its unsmoothed risk and gap."""
        self._check()
        require(self.lacks(problem))
        at = Coordinates(problem)
        rows = dual_rows(problem, at.design, Round())
        origin = linear_origin(rows, problem.loss, at, start)
        if origin is None:
            return constant_solution(problem)
        objective = SmoothedObjective(rows, problem.loss, self.scale, self.nodes)
        base = constant_risk(problem)[1]
        final = self.eps * base
        # a loss of quadratic growth keeps lam where the inner problems are concave: no annealing
        eps = final if np.isinf(problem.loss.lipschitz) else max(FIRST_EPS * base, final)
        run = descend(objective, origin, eps, final, self.tol * base, self.max_iter)
        found = unsmoothed_risk(rows, problem.loss, run.x.theta, run.x.b, run.x.lam)
        return _solution(at, run, found, self.tol * base)

    def _check(self) -> None:
        require_positive(eps=self.eps)
        if not self.scale > 0:
            raise ValueError(f"scale must be > 0, got scale={self.scale!r}.")
        if self.nodes < FEWEST_NODES:
            raise ValueError(f"Quadrature needs nodes >= {FEWEST_NODES}, got nodes={self.nodes!r}.")


def _solution(at: Coordinates, run: NewtonRun, found: Unsmoothed, target: float) -> Solution:
    coef = at.coef(run.x.theta)
    message = (
        f"trapezoid quadrature at eps={run.eps:.3g}: smoothed risk {run.x.objective:.8g}, "
        f"worst-case risk {found.risk:.8g}, gap {found.gap:.3g} (target {target:.3g})"
    )
    if not run.settled:
        message = f"did not settle ({message}); raise eps of Quadrature,"
    return Solution(
        coef=coef,
        intercept=at.intercept(run.x.b, coef),
        multiplier=found.multiplier,
        objective=found.risk,
        gap=found.gap,
        n_iter=run.n_iter,
        converged=run.settled,
        message=message,
    )
