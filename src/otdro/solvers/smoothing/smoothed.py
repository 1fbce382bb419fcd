r"""Algorithm 1, corrected: stochastic descent on the smoothed dual, for any loss and any cost.

.. math:: \min_{\beta, b, \lambda \ge \lambda_{min}}\ \lambda\delta + \sum_i \pi_i\,\varepsilon
          \log E_U \exp\{(\ell(U'\beta + b, y_i) - \lambda c(U, x_i))/\varepsilon\}
          + \text{Gaussian term}

eps falls by stages. A stage takes Newton steps on a fixed sample, then mini-batch steps
preconditioned by the Hessian found there, whose iterates are averaged. It ends when the excess
:math:`g'H^{-1}g/2` estimated at the average is small or within its noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from ...costs import FeatureMap
from ...design import Design
from ...problem import Problem, Solution
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates
from ..feature_map.geometry import local_rows
from ..feature_map.linearised import first_point
from ..feature_map.worst import worst_of_rows
from .descent import Descent
from .linear_score import LinearScore
from .particles import Cloud
from .quadrature import opening, require_smooth
from .smoothed_dual import Rows
from .unsmoothed import assess

Array = NDArray[Any]

PROPOSALS = ("maximiser", "centred", "paper")


class Smoothed(Solver):
    """Minimise the smoothed worst-case risk by averaged, preconditioned stochastic steps.

    Parameters
    ----------
    eps : float > 0
        The last smoothing, relative to the risk (of the best constant at first, then of the model).
    M, L : int >= 1
        Rows of a mini-batch and draws a row.
    proposal : {"maximiser", "centred", "paper"}
        Draws around the inner maximiser, around the row (both shaped by the cost and
        importance-corrected), or from N(0, sigma^2 I) as printed.
    stopping : {"statistical", "paper"}
        Stop when the estimated excess is below ``tol`` times the risk or its own noise, or the
        risk gains no tenth of ``tol`` in four rounds; or, as
        printed, when an iterate is within ``tol`` of the mean of the last 50.
    sigma : float > 0
        Of the proposal "paper".
    lam_min : float > 0
        The least multiplier, relative to its value at the start.
    step : float in (0, 1]
        The length of a preconditioned step.
    tol, max_iter
        See ``stopping``; mini-batch steps in all.
    random_state : int, RandomState or None
    verbose : bool
        Show one line a stage and round: on standard error, or, where its INFO level is set to be
        shown, through the logger "otdro".
    """

    def __init__(
        self,
        eps: float = 1e-3,
        M: int = 256,
        L: int = 32,
        proposal: str = "maximiser",
        stopping: str = "statistical",
        sigma: float = 1.0,
        lam_min: float = 1e-6,
        step: float = 0.5,
        tol: float = 1e-3,
        max_iter: int = 2000,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.eps = eps
        self.M = M
        self.L = L
        self.proposal = proposal
        self.stopping = stopping
        self.sigma = sigma
        self.lam_min = lam_min
        self.step = step
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the averaged iterate with its unsmoothed risk, exact for linear scores."""
        self._check(problem)
        require_smooth(problem)
        check_loss(problem)
        ball = problem.ball
        plain = ball.cost.euclidean and ball.order == 2 and not problem.finite
        if plain and self.proposal != "paper":
            return self._linear(problem, start)
        return self._general(problem)

    def _linear(self, problem: Problem, start: Solution | None) -> Solution:
        at, base = Coordinates(problem), constant_risk(problem)[1]
        rows = _rows(problem, at.design)
        origin = opening(rows, at, start)
        if origin is None:
            return constant_solution(problem)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        run = Descent(self, LinearScore(rows, self.L, self.proposal, seed), base)
        x = run.run(np.concatenate([origin[0], origin[1:]]))
        coef = at.coef(x[:-2])
        intercept = at.intercept(float(x[-2]), coef)
        found = assess(problem, coef, intercept, float(x[-1]))
        if not found.risk <= base:
            return run.constant(problem)
        return run.solution(coef, intercept, found.multiplier, found.risk, found.gap)

    def _general(self, problem: Problem) -> Solution:
        X = Design(problem.X).dense()
        terrain = local_rows(problem, X)
        center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
        rows = _rows(problem, Design(X, None, center))
        B = np.linalg.inv(np.broadcast_to(terrain.A, (len(X), X.shape[1], X.shape[1])))
        origin = first_point(rows, B)
        if origin is None:
            return constant_solution(problem)
        cloud = Cloud(
            terrain,
            center,
            problem.weights,
            problem.ball.delta,
            problem.fit_intercept,
            self.L,
            self.proposal,
            self.sigma,
        )
        run = Descent(self, cloud, constant_risk(problem)[1])
        x = run.run(np.concatenate([origin[0], origin[1:]]))
        intercept = float(x[-2] - center @ x[:-2])
        found = worst_of_rows(problem, terrain, x[:-2], intercept, float(x[-1]))
        if not found.risk <= run.base:
            return run.constant(problem)
        return run.solution(x[:-2], intercept, found.multiplier, found.risk, np.inf)

    def _check(self, problem: Problem) -> None:
        if not (np.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"eps must be a number > 0, got eps={self.eps!r}.")
        for name in ("M", "L", "max_iter"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} must be at least 1, got {name}={getattr(self, name)!r}.")
        if self.proposal not in PROPOSALS:
            raise ValueError(f"unknown proposal={self.proposal!r}; known: {', '.join(PROPOSALS)}.")
        if self.stopping not in ("statistical", "paper"):
            raise ValueError(f"stopping must be 'statistical' or 'paper', got {self.stopping!r}.")
        cost = problem.ball.cost
        if isinstance(cost, FeatureMap) and not cost.polish:
            raise ValueError(
                "FeatureMap(polish=False) is the linearised cost, which only solver='exact' has. "
                "Use polish=True here."
            )
        if problem.ball.delta == 0:
            raise ValueError("the smoothed dual needs delta > 0; delta=0 is solver='exact'.")


def _rows(problem: Problem, design: Design) -> Rows:
    return Rows(
        design,
        problem.y,
        problem.weights,
        problem.loss,
        problem.ball.delta,
        problem.fit_intercept,
    )


def check_loss(problem: Problem) -> None:
    """Refuse a loss that returns NaN or another shape, naming it."""
    y = problem.y[:50]
    z = np.linspace(-3, 3, len(y))
    name = type(problem.loss).__name__
    for method in ("value", "derivative", "curvature"):
        found = np.asarray(getattr(problem.loss, method)(z, y))
        if found.shape != z.shape:
            raise ValueError(
                f"{name}.{method} returned shape {found.shape} for scores of shape {z.shape}."
            )
        if not np.isfinite(found).all():
            raise ValueError(f"{name}.{method} returned NaN or infinite values.")
