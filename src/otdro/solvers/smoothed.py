r"""Algorithm 1, corrected: stochastic descent on the smoothed dual, for any loss and any cost.

.. math:: \min_{\beta, b, \lambda \ge \lambda_{min}}\ \lambda\delta + \sum_i \pi_i\,\varepsilon
          \log E_U \exp\{(\ell(U'\beta + b, y_i) - \lambda c(U, x_i))/\varepsilon\} + \text{Gaussian term}

eps falls by stages. A stage takes Newton steps on a fixed sample, then mini-batch steps
preconditioned by the Hessian found there, whose iterates are averaged. It ends when the excess
:math:`g'H^{-1}g/2` estimated at the average is small or within its noise.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from sklearn.utils import check_random_state

from ..costs.callable import CallableCost
from ..costs.feature_map import FeatureMap
from ..costs.graph import Graph
from ..design import Design
from ..problem import Problem, Solution
from .assess import assess
from .base import Coordinates, Solver, constant_risk
from .cloud import Cloud, local_matrices
from .dual_model import Rows
from .estimate import Estimate, LinearScore, Oracle
from .local import opening_local
from .polish import Terrain, maximisers
from .quadrature import constant_solution, newton_step, opening

Array = NDArray[Any]
logger = logging.getLogger("otdro")

#: Rows of the fixed sample of a stage.
SAMPLE = 4096
#: Mini-batch steps between two looks at the excess.
ROUND = 100
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
        Log one line a stage and round.
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
        check_loss(problem)
        ball = problem.ball
        if ball.cost.euclidean and ball.order == 2 and self.proposal != "paper":
            return self._linear(problem, start)
        return self._general(problem)

    def _linear(self, problem: Problem, start: Solution | None) -> Solution:
        at, base = Coordinates(problem), constant_risk(problem)[1]
        rows = _rows(problem, at.design)
        origin = opening(rows, at, start)
        if origin is None:
            return constant_solution(problem)
        run = Descent(self, LinearScore(rows, self.L, self.proposal), base)
        x = run.run(np.concatenate([origin[0], origin[1:]]))
        coef = at.coef(x[:-2])
        intercept = at.intercept(float(x[-2]), coef)
        found = assess(problem, coef, intercept)
        return run.solution(coef, intercept, found.multiplier, found.risk, found.gap)

    def _general(self, problem: Problem) -> Solution:
        X = Design(problem.X).dense()
        terrain, degree = landscape(problem, X)
        center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
        rows = _rows(problem, Design(X, None, center))
        B = np.linalg.inv(np.broadcast_to(terrain.A, (len(X), X.shape[1], X.shape[1])))
        origin = opening_local(rows, B)
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
            degree,
        )
        run = Descent(self, cloud, constant_risk(problem)[1])
        x = run.run(np.concatenate([origin[0], origin[1:]]))
        intercept = float(x[-2] - center @ x[:-2])
        lam, risk = worst(problem, terrain, x[:-2], intercept, float(x[-1]))
        return run.solution(x[:-2], intercept, lam, risk, np.inf)

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


def landscape(problem: Problem, X: Array) -> tuple[Terrain, float]:
    """Return the rows with their cost and its local matrices, and the degree of the cost."""
    ball, cost = problem.ball, problem.ball.cost
    if isinstance(cost, Graph) or problem.support is not None:
        raise ValueError("the smoothed dual moves mass in R^d; a finite support is solver='exact'.")
    if isinstance(cost, FeatureMap):
        if ball.order != 2:
            raise ValueError("FeatureMap has a smoothed solver at order=2 only. Use order=2.")
        return Terrain(X, problem.y, problem.loss, cost, 2, cost.shape(X)), 2.0
    if not isinstance(cost, CallableCost):
        if ball.order == 1:
            raise ValueError(
                "order=1 has a kink at the row that the smoothed dual resolves badly. Use "
                "solver='exact', or order=2."
            )
        cost = CallableCost(Power(cost, ball.order))
    cost.verify(X)
    A, degree = local_matrices(cost, X, ball.delta)
    return Terrain(X, problem.y, problem.loss, cost, ball.order, A), degree


@dataclass(frozen=True, eq=False)
class Power:
    """The cost ||u - x||^order as a function of batches."""

    cost: Any
    order: int

    def __call__(self, U: Array, X: Array) -> Array:
        """Return one price a row."""
        return np.asarray(self.cost.norm(U - X) ** self.order)


def worst(
    problem: Problem, terrain: Terrain, beta: Array, b: float, lam: float
) -> tuple[float, float]:
    """Return the best lam near the given one and the worst-case risk there, by ascent in u."""

    def dual(log_lam: float) -> float:
        lam = float(np.exp(log_lam))
        U = maximisers(terrain, beta, b, lam, 40)
        return lam * problem.ball.delta + float(problem.weights @ terrain.gain(U, beta, b, lam))

    middle = float(np.log(lam))
    bounds = (middle - 1.0, middle + 1.0)
    found = minimize_scalar(dual, bounds=bounds, method="bounded", options={"maxiter": 20})
    return float(np.exp(found.x)), float(found.fun)


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


@dataclass(eq=False)
class Excess:
    """The estimated excess g'H^-1 g/2, the part of it that noise explains, and the objective."""

    size: float
    noise: float
    objective: float
    effective: float


class Descent:
    """One run: its random numbers, step count and verdict."""

    def __init__(self, settings: Smoothed, oracle: Oracle, base: float) -> None:
        self.settings, self.oracle, self.base = settings, oracle, base
        seed = check_random_state(settings.random_state).randint(2**31 - 1)
        self.rng = np.random.default_rng(seed)
        self.batch = min(settings.M, oracle.n)
        self.order = np.empty(0, dtype=int)
        self.n_iter, self.converged, self.floor = 0, False, 0.0
        self.eps, self.why, self.step = 0.0, "", settings.step
        self.excess = Excess(np.inf, 0.0, np.inf, 1.0)

    def run(self, x: Array) -> Array:
        """Anneal eps, then repeat rounds at the last one until the stopping rule or max_iter."""
        self.floor = self.settings.lam_min * float(x[-1])
        self.eps, final = 0.1 * self.base, self.settings.eps * self.base
        while self.eps > final:
            x = self._round(x, ROUND // 4)
            risk = min(self.base, max(self._objective(x), 0.01 * self.base))
            final = self.settings.eps * risk
            self.eps = max(self.eps / 5, final)
            self._log(x)
        return self._finish(x)

    def _finish(self, x: Array) -> Array:
        """Repeat rounds at the last eps until the stopping rule, a divergence or max_iter."""
        best, still, rises = np.inf, 0, 0
        while not self.converged and not self.why:
            x = self._round(x, ROUND)
            self.excess = self._look(x)
            self._log(x)
            risk, tol = self.excess.objective, self.settings.tol
            still = still + 1 if risk > best * (1 - tol / 10) else 0
            rises = rises + 1 if risk > best * (1 + tol) else 0
            best = min(best, risk)
            if self.settings.stopping == "statistical":
                near = self.excess.size <= max(tol * risk, 2 * self.excess.noise)
                self.converged = bool(near or still >= 4 > rises)
            if rises >= 3:
                self.why = "rose over three rounds"
            elif x[-1] <= self.floor * (1 + 1e-9):
                self.why = "left lam at its bound"
            elif self.n_iter >= self.settings.max_iter:
                self.why = f"reached max_iter={self.settings.max_iter}"
        return x

    def _round(self, x: Array, steps: int) -> Array:
        """Take Newton steps, then averaged mini-batch steps, kept if they do not raise the objective."""
        x, factor = self._newton(x)
        new = self._steps(x, factor, steps)
        index, seed = self._sample(), int(self.rng.integers(2**31))
        before, after = (
            self.oracle.gradient(index, point, self.eps, np.random.default_rng(seed)).objective
            for point in (x, new)
        )
        if after <= before:
            return new
        # the Hessian changes within a step, as near ties: shorten it
        self.step /= 2
        return x

    def _indices(self) -> Array:
        """Return the next mini-batch of a shuffled pass over the rows."""
        if len(self.order) < self.batch:
            self.order = np.concatenate([self.order, self.rng.permutation(self.oracle.n)])
        now, self.order = self.order[: self.batch], self.order[self.batch :]
        return now

    def _sample(self) -> Array:
        return self.rng.permutation(self.oracle.n)[:SAMPLE]

    def _newton(self, x: Array, steps: int = 15) -> tuple[Array, Any]:
        """Take Newton steps on one sample with common draws; return the factor of the last Hessian."""
        index, seed = self._sample(), int(self.rng.integers(2**31))

        def model(x: Array) -> Estimate:
            return self.oracle.model(index, x, self.eps, np.random.default_rng(seed))

        now = model(x)
        for _ in range(steps):
            move = newton_step(now.grad, _hessian(now))
            if -(now.grad @ move) <= 1e-4 * abs(now.objective):
                break
            length = 1.0
            while length > 1e-4:
                new = model(self._moved(x, length * move))
                if np.isfinite(new.objective) and new.objective < now.objective:
                    break
                length /= 3
            if not new.objective < now.objective:
                break
            x, now = self._moved(x, length * move), new
        H = _hessian(now)
        return x, cho_factor(H + _ridge(H) * np.diag(np.abs(np.diag(H)) + 1e-300))

    def _moved(self, x: Array, move: Array) -> Array:
        w, far = np.linalg.norm(x[:-2]), np.linalg.norm(move[:-2])
        # the coefficients move by half their norm at most; lam halves or doubles at most, and
        # stays above its bound
        move = move * min(1.0, 0.5 * w / max(far, 1e-300))
        new: Array = x + move
        lam = new[-1]
        if 2 * x[-1] < self.oracle.smoothness * w**2:
            # two maxima a row: rows tie at a margin proportional to w^2/lam, moved as margins are
            level = 1 + 2 * (x[:-2] @ move[:-2]) / w**2 - move[-1] / x[-1]
            lam = x[-1] * (new[:-2] @ new[:-2]) / w**2 / max(level, 0.5)
        new[-1] = np.clip(lam, max(x[-1] / 2, self.floor), 2 * x[-1])
        return new

    def _steps(self, x: Array, factor: Any, steps: int) -> Array:
        """Take mini-batch steps and return the mean of the last three quarters of the iterates."""
        mean, count, recent = np.zeros_like(x), 0, []
        for t in range(steps):
            now = self.oracle.gradient(self._indices(), x, self.eps, self.rng)
            if not np.isfinite(now.grad).all():
                raise FloatingPointError(
                    "the gradient of the smoothed risk is not finite; check loss and cost."
                )
            x = self._moved(x, -self.step * cho_solve(factor, now.grad))
            self.n_iter += 1
            recent = [*recent[-49:], x]
            if t >= steps // 4:
                count += 1
                mean += (x - mean) / count
        gap = np.linalg.norm(x - np.mean(recent, axis=0))
        if self.settings.stopping == "paper" and len(recent) == 50 and gap <= self.settings.tol:
            self.converged = True
        return mean

    def _objective(self, x: Array) -> float:
        return self.oracle.gradient(self._sample(), x, self.eps, self.rng).objective

    def _look(self, x: Array) -> Excess:
        """Estimate the excess at x from two independent samples of rows and draws."""
        one, two = (self.oracle.model(self._sample(), x, self.eps, self.rng) for _ in (0, 1))
        H = (_hessian(one) + _hessian(two)) / 2
        size = -float(one.grad @ newton_step(two.grad, H)) / 2
        gap = (one.grad - two.grad) / 2
        noise = -float(gap @ newton_step(gap, H)) / 2
        objective = (one.objective + two.objective) / 2
        return Excess(abs(size), abs(noise), objective, min(one.effective, two.effective))

    def _log(self, x: Array) -> None:
        if self.settings.verbose:
            logger.info(
                "smoothed: step %d, eps %.3g, lam %.4g, risk %.6g, excess %.2g, draws that count %.0f%%",
                self.n_iter,
                self.eps,
                x[-1],
                self.excess.objective,
                self.excess.size,
                100 * self.excess.effective,
            )

    def solution(
        self, coef: Array, intercept: float, lam: float, risk: float, gap: float
    ) -> Solution:
        """Return the point with its unsmoothed risk."""
        message = self.message(risk)
        return Solution(coef, intercept, lam, risk, gap, self.n_iter, self.converged, message)

    def message(self, risk: float) -> str:
        """Return what was done and why it ended."""
        e = self.excess
        report = (
            f"smoothed dual, proposal {self.settings.proposal!r} at eps={self.eps:.3g}: risk "
            f"{risk:.6g}, estimated excess {e.size:.2g} (noise {e.noise:.2g}), "
            f"{100 * e.effective:.0f}% of the draws count"
        )
        if self.converged:
            return report
        return f"{self.why} ({report}); raise L, M or eps of Smoothed,"


def _hessian(estimate: Estimate) -> Array:
    assert estimate.hessian is not None
    return estimate.hessian


def _ridge(H: Array) -> float:
    """Return the least multiple of the diagonal that makes H positive definite."""
    ridge = 1e-10
    while True:
        try:
            np.linalg.cholesky(H + ridge * np.diag(np.abs(np.diag(H)) + 1e-300))
            return ridge
        except np.linalg.LinAlgError:
            ridge *= 10
