r"""Algorithm 1, corrected: stochastic descent on the smoothed dual, for any loss and any cost.

.. math:: \min_{\beta, b, \lambda \ge \lambda_{min}}\ \lambda\delta + \sum_i \pi_i\,\varepsilon
          \log E_U \exp\{(\ell(U'\beta + b, y_i) - \lambda c(U, x_i))/\varepsilon\}
          + \text{Gaussian term}

eps falls by stages. A stage takes Newton steps on a fixed sample, then mini-batch steps
preconditioned by the Hessian found there, whose iterates are averaged. It ends when the excess
:math:`g'H^{-1}g/2` found at the average is small or within its noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import Local, Round
from ...pairs import generator
from ...problem import Problem, Solution
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates
from ..local_cost import local_rows, worst_risk
from .descent import Descent
from .linear_score import LinearScore
from .particles import Particles
from .requirements import (
    lacks_sampled,
    lacks_smooth,
    require,
    require_numbers,
    require_positive,
)
from .smoothed_dual import dual_rows, linear_origin, local_origin
from .unsmoothed import Unsmoothed, unsmoothed_risk

Array = NDArray[Any]

PROPOSALS = ("maximiser", "centred", "paper")
STOPPING = ("statistical", "paper")


@dataclass(eq=False, repr=False)
class Smoothed(Solver):
    """Minimise the smoothed worst-case risk by averaged, preconditioned stochastic steps.

    Parameters
    ----------
    eps : float > 0, default 1e-3
        The last smoothing, relative to the risk (of the best constant at first, then of the
        model). The smoothed risk differs from the worst-case risk by a multiple of it.
    M : int >= 1, default 256
        Rows of a mini-batch; more make a step less noisy, and more expensive.
    L : int >= 1, default 32
        Draws per row; more make a step less noisy, and more expensive.
    proposal : {"maximiser", "centred", "paper"}, default "maximiser"
        Where draws come from: around the inner maximiser, around the row (both shaped by the cost
        and importance-corrected), or from N(0, sigma^2 I) as printed.
    stopping : {"statistical", "paper"}, default "statistical"
        Stop when the excess found is below ``tol`` times the risk or its own noise, or the risk
        gains no tenth of ``tol`` in four rounds; or, as printed, when an iterate is within ``tol``
        of the mean of the last 50.
    sigma : float > 0, default 1
        The standard deviation of the proposal "paper", in units of the columns; others ignore it.
    lam_min : float > 0, default 1e-6
        The least multiplier, relative to its value at the start.
    step : float in (0, 1], default 0.5
        The length of a preconditioned step; it is halved where a round does not descend.
    tol : float >= 0, default 1e-3
        The excess asked for, relative to the risk; with ``stopping="paper"`` a distance.
    max_iter : int >= 1, default 2000
        The most mini-batch steps.
    random_state : int, RandomState or None, default None
        Seeds the draws and the mini-batches; None is a fixed seed.
    verbose : bool, default False
        Show one line per stage and round: on standard error, or, where its INFO level is set to be
        shown, through the logger "otdro".
    """

    eps: float = 1e-3
    M: int = 256
    L: int = 32
    proposal: str = "maximiser"
    stopping: str = "statistical"
    sigma: float = 1.0
    lam_min: float = 1e-6
    step: float = 0.5
    tol: float = 1e-3
    max_iter: int = 2000
    random_state: Any = None
    verbose: bool = False

    def lacks(self, problem: Problem) -> str | None:
        """Return why draws do not serve the problem, None if they do."""
        return lacks_sampled(problem) or lacks_smooth(problem)

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the averaged iterate with its unsmoothed risk, exact for linear scores."""
        self._check()
        require(self.lacks(problem))
        require_numbers(problem)
        if problem.geometry == "euclidean" and self.proposal != "paper":
            return self._linear(problem, start)
        return self._general(problem)

    def _linear(self, problem: Problem, start: Solution | None) -> Solution:
        at = Coordinates(problem)
        rows = dual_rows(problem, at.design, Round())
        origin = linear_origin(rows, problem.loss, at, start)
        if origin is None:
            return constant_solution(problem)
        seed = self._seed()
        objective = LinearScore(rows, problem.loss, self.L, self.proposal, seed)
        run = Descent(self, objective, constant_risk(problem)[1], seed)
        x = run.run(np.concatenate([origin.theta, [origin.b, origin.lam]]))
        found = unsmoothed_risk(rows, problem.loss, x[:-2], float(x[-2]), float(x[-1]))
        coef = at.coef(x[:-2])
        return run.solution(problem, coef, at.intercept(float(x[-2]), coef), found)

    def _general(self, problem: Problem) -> Solution:
        X = Design(problem.X).dense()
        local = local_rows(problem, X)
        center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
        B = np.broadcast_to(local.inverse, (*X.shape, X.shape[1]))
        rows = dual_rows(problem, Design(X, None, center), Local(B, problem.weights))
        origin = local_origin(rows, problem.loss, B)
        if origin is None:
            return constant_solution(problem)
        objective = Particles(local, rows, self.L, self.proposal, self.sigma)
        run = Descent(self, objective, constant_risk(problem)[1], self._seed())
        x = run.run(np.concatenate([origin.theta, [origin.b, origin.lam]]))
        coef = x[:-2]
        intercept = float(x[-2] - center @ coef)
        found = worst_risk(problem, coef, intercept, float(x[-1]), local)
        reached = Unsmoothed(float(found.risk), float(found.multiplier), np.inf)
        return run.solution(problem, coef, intercept, reached)

    def _seed(self) -> int:
        return int(generator(self.random_state).randint(2**31 - 1))

    def _check(self) -> None:
        require_positive(eps=self.eps, sigma=self.sigma, lam_min=self.lam_min, step=self.step)
        for name in ("M", "L", "max_iter"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} must be at least 1, got {name}={getattr(self, name)!r}.")
        for name, known in (("proposal", PROPOSALS), ("stopping", STOPPING)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"unknown {name}={value!r}; known: {', '.join(known)}.")
