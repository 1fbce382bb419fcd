r"""Algorithm 1, corrected: stochastic descent on the smoothed dual, for any loss and any cost.

.. math:: \min_{\beta, b, \lambda \ge \lambda_{min}}\ \lambda\delta + \sum_i \pi_i\,\varepsilon
          \log E_U \exp\{(\ell(U'\beta + b, y_i) - \lambda c(U, x_i))/\varepsilon\}
          + \text{Gaussian term}

eps falls by stages. A stage takes Newton steps on a fixed sample, then mini-batch steps
preconditioned by the Hessian found there, whose iterates are averaged. It ends when the excess
:math:`g'H^{-1}g/2` found at the average is small or within its noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...design import Design
from ...duality import Local, Round
from ...duality.ties import factored, newton_step
from ...pairs import generator
from ...problem import Problem, Solution
from ...progress import logger, shown
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates
from ..local_cost import local_rows, worst_risk
from .draws import LinearScore, Particles, SampledGradient, SampledModel
from .quadrature import (
    FIRST_EPS,
    Unsmoothed,
    dual_rows,
    lacks_smooth,
    linear_origin,
    local_origin,
    require,
    require_positive,
    unsmoothed_risk,
)

Array = NDArray[Any]

PROPOSALS = ("maximiser", "centred", "paper")
STOPPING = ("statistical", "paper")
#: Rows of the fixed sample of a stage.
SAMPLE = 4096
#: Mini-batch steps between two looks at the excess; a quarter of them at every eps before the last.
ROUND = 100
#: Each eps is this share of the one before.
COOLING = 1 / 5
#: The least risk, relative to the best constant's, by which the last eps is sized.
LEAST_RISK = 0.01
#: Newton steps on a fixed sample.
NEWTON_STEPS = 15
#: The decrement, relative to the objective, at which Newton steps end.
DECREMENT = 1e-4
#: How often a step that does not descend is divided by three.
SHORTER = 9
#: The share of the iterates of a round that are not averaged.
BURN_IN = 0.25
#: Iterates whose mean the printed stopping rule compares with the last.
RECENT = 50
#: Rounds without progress, worth a tenth of ``tol``, that end a run.
STILL_ROUNDS = 4
#: Rounds with a rise, worth ``tol``, that end a run.
RISES = 3
#: The longest move of theta, relative to its norm.
LONGEST = 0.5
#: The most by which lam changes in a step.
FACTOR = 2.0
#: Ways to diverge, each with what to change.
ROSE = "rose over three rounds"
BOUND = "left lam at its bound"
WILD = "met a value or gradient that is not finite"
ADVICE = {BOUND: "lower lam_min", WILD: "raise eps, or lower step,"}
OTHER_ADVICE = "raise L, M or eps"


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

    def _solve_one(self, problem: Problem, start: Solution | None = None) -> Solution:
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
        reached = unsmoothed_risk(rows, problem.loss, x[:-2], float(x[-2]), float(x[-1]), run.eps)
        coef = at.coef(x[:-2])
        return run.solution(problem, coef, at.intercept(float(x[-2]), coef), reached)

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
        worst = worst_risk(problem, coef, intercept, float(x[-1]), local)
        reached = Unsmoothed(float(worst.risk), float(worst.multiplier), np.inf)
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


def lacks_sampled(problem: Problem) -> str | None:
    """Return why draws in R^d do not serve a problem, None if they do."""
    ball = problem.ball
    if ball.delta == 0:
        return "the smoothed dual needs delta > 0; delta=0 is solver='exact'."
    if problem.finite:
        return "the smoothed dual moves mass in R^d; a finite support is solver='exact'."
    if ball.cost.linearised:
        return (
            "FeatureMap(linearised=True) is a cost that only solver='exact' has. Use "
            "linearised=False here."
        )
    if ball.order == 1 and problem.geometry != "function":
        return (
            "order=1 has a kink at the row that the smoothed dual resolves badly. Use "
            "solver='exact', or order=2."
        )
    return None


def require_numbers(problem: Problem) -> None:
    """Refuse a loss that returns NaN or another shape, naming it."""
    y = problem.y
    z = np.linspace(-1.0, 1.0, len(y))
    name = type(problem.loss).__name__
    for method in ("value", "derivative", "curvature"):
        values = np.asarray(getattr(problem.loss, method)(z, y))
        if values.shape != z.shape:
            raise ValueError(
                f"{name}.{method} returned shape {values.shape} for scores of shape {z.shape}."
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{name}.{method} returned NaN or infinite values.")


@dataclass(frozen=True, eq=False)
class Excess:
    """The excess g'H^-1 g/2 found, the part of it that noise explains, and the objective."""

    size: float
    noise: float
    objective: float
    effective: float


class Batches:
    """Random numbers: mini-batches of shuffled passes over n rows, samples, seeds."""

    def __init__(self, n: int, size: int, seed: int) -> None:
        self.n = n
        self.size = min(size, n)
        self.rng = np.random.default_rng(seed)
        self.order = np.empty(0, dtype=int)

    def next(self) -> Array:
        """Return the next mini-batch."""
        if len(self.order) < self.size:
            self.order = np.concatenate([self.order, self.rng.permutation(self.n)])
        now = self.order[: self.size]
        self.order = self.order[self.size :]
        return now

    def sample(self) -> Array:
        """Return a random sample of the rows."""
        return self.rng.permutation(self.n)[:SAMPLE]

    def seed(self) -> int:
        """Return a seed for draws that several points share."""
        return int(self.rng.integers(2**31))


class Descent:
    """One run: its random numbers, step count and verdict."""

    def __init__(
        self, settings: Smoothed, objective: LinearScore | Particles, base: float, seed: int
    ) -> None:
        self.settings = settings
        self.objective = objective
        self.base = base
        self.batches = Batches(objective.n, settings.M, seed)
        self.step = settings.step
        self.least_lam = 0.0
        self.eps = FIRST_EPS * base
        self.n_iter = 0
        self.converged = False
        self.why = ""
        self.excess = Excess(np.inf, 0.0, np.inf, 1.0)

    def run(self, x: Array) -> Array:
        """Let eps fall, then repeat rounds at the last one until the stopping rule or max_iter."""
        self.least_lam = self.settings.lam_min * float(x[-1])
        with shown(self.settings.verbose):
            return self._finish(self._anneal(x))

    def _anneal(self, x: Array) -> Array:
        """Take a short round at every eps before the last, which is relative to the risk found."""
        final = self.settings.eps * self.base
        while self.eps > final:
            x = self._round(x, ROUND // 4)
            now = self.objective.gradient(self.batches.sample(), x, self.eps, self.batches.rng)
            if self.why or not np.isfinite(now.objective):
                self.why = WILD
                break
            risk = np.clip(now.objective, LEAST_RISK * self.base, self.base)
            final = self.settings.eps * float(risk)
            self.eps = max(COOLING * self.eps, final)
            self._log(x)
            if self.eps > final and self._spent():
                self.excess = self._look(x)
                break
        return x

    def _finish(self, x: Array) -> Array:
        """Repeat rounds at the last eps until the stopping rule, a divergence or max_iter."""
        tol = self.settings.tol
        best = np.inf
        still = 0
        rises = 0
        while not self.converged and not self.why:
            x = self._round(x, ROUND)
            self.excess = self._look(x)
            self._log(x)
            risk = self.excess.objective
            still = still + 1 if risk > best * (1 - tol / 10) else 0
            rises = rises + 1 if risk > best * (1 + tol) else 0
            best = min(best, risk)
            if self.settings.stopping == "statistical":
                near = self.excess.size <= max(tol * risk, 2 * self.excess.noise)
                self.converged = bool(near or still >= STILL_ROUNDS > rises)
            self.why = self.why or self._divergence(x, rises)
            self.converged = self.converged and not self.why
            if not self.converged and not self.why:
                self._spent()
        return x

    def _spent(self) -> bool:
        """Whether no step is left, which ends the run."""
        spent = self.n_iter >= self.settings.max_iter
        if spent:
            self.why = f"reached max_iter={self.settings.max_iter}"
        return spent

    def _divergence(self, x: Array, rises: int) -> str:
        """Return how the run went astray, if it did."""
        if x[-1] < self.least_lam or np.isclose(x[-1], self.least_lam):
            return BOUND
        return ROSE if rises >= RISES and not self.converged else ""

    def _round(self, x: Array, steps: int) -> Array:
        """Take Newton steps, then averaged mini-batch steps, kept if the objective falls."""
        x, factor = self._newton(x)
        steps = min(steps, self.settings.max_iter - self.n_iter)
        if self.why or steps <= 0:
            return x
        new = self._steps(x, factor, steps)
        index = self.batches.sample()
        seed = self.batches.seed()
        before, after = (
            self.objective.gradient(index, point, self.eps, np.random.default_rng(seed)).objective
            for point in (x, new)
        )
        if after <= before:
            return new
        # the Hessian changes within a step, as near ties: shorten it
        self.step /= 2
        return x

    def _newton(self, x: Array) -> tuple[Array, Any]:
        """Take Newton steps on one sample with common draws; return a Hessian's factor too."""
        index = self.batches.sample()
        seed = self.batches.seed()

        def model(x: Array) -> SampledModel:
            return self.objective.model(index, x, self.eps, np.random.default_rng(seed))

        now = model(x)
        for _ in range(NEWTON_STEPS):
            if not self._sound(now, now.hessian):
                return x, None
            move = newton_step(now.grad, now.hessian)
            if -(now.grad @ move) <= DECREMENT * abs(now.objective):
                break
            for k in range(SHORTER):
                there = self._moved(x, move / 3**k)
                new = model(there)
                if np.isfinite(new.objective) and new.objective < now.objective:
                    break
            if not new.objective < now.objective:
                break
            x = there
            now = new
        return x, factored(now.hessian) if self._sound(now, now.hessian) else None

    def _sound(self, now: SampledGradient, hessian: Any = 0.0) -> bool:
        """Whether objective, gradient and Hessian are numbers; else the run ends here."""
        sound = all(np.isfinite(part).all() for part in (now.objective, now.grad, hessian))
        if not sound:
            self.why = WILD
        return sound

    def _moved(self, x: Array, move: Array) -> Array:
        """Return x + move, shortened so that theta moves by half its norm at most.

        lam halves or doubles at most, and stays above its bound.
        """
        w = float(np.linalg.norm(x[:-2]))
        far = float(np.linalg.norm(move[:-2]))
        move = move * min(1.0, LONGEST * w / max(far, np.finfo(float).tiny))
        new: Array = x + move
        lam = new[-1]
        if 2 * x[-1] < self.objective.smoothness * w**2:
            # rows with two maxima tie at a margin proportional to w^2/lam, moved as margins are
            level = 1 + 2 * (x[:-2] @ move[:-2]) / w**2 - move[-1] / x[-1]
            lam = x[-1] * (new[:-2] @ new[:-2]) / w**2 / max(level, 1 / FACTOR)
        new[-1] = np.clip(lam, max(x[-1] / FACTOR, self.least_lam), FACTOR * x[-1])
        return new

    def _steps(self, x: Array, factor: Any, steps: int) -> Array:
        """Take mini-batch steps and return the mean of the later iterates."""
        start = x
        iterates: list[Array] = []
        for _ in range(steps):
            now = self.objective.gradient(self.batches.next(), x, self.eps, self.batches.rng)
            if not self._sound(now):
                return start
            x = self._moved(x, -self.step * cho_solve(factor, now.grad, check_finite=False))
            iterates.append(x)
        self.n_iter += steps
        if self.settings.stopping == "paper" and steps >= RECENT:
            gap = np.linalg.norm(x - np.mean(iterates[-RECENT:], axis=0))
            self.converged = bool(gap <= self.settings.tol)
        return np.asarray(np.mean(iterates[int(BURN_IN * steps) :], axis=0))

    def _look(self, x: Array) -> Excess:
        """Return the excess at x as two independent samples of rows and draws see it."""
        one, two = (
            self.objective.model(self.batches.sample(), x, self.eps, self.batches.rng)
            for _ in (0, 1)
        )
        if not (self._sound(one, one.hessian) and self._sound(two, two.hessian)):
            return Excess(np.inf, 0.0, np.inf, 0.0)
        H = (one.hessian + two.hessian) / 2
        apart = (one.grad - two.grad) / 2
        return Excess(
            size=abs(float(one.grad @ newton_step(two.grad, H))) / 2,
            noise=abs(float(apart @ newton_step(apart, H))) / 2,
            objective=(one.objective + two.objective) / 2,
            effective=min(one.effective, two.effective),
        )

    def _log(self, x: Array) -> None:
        logger.info(
            "smoothed: step %d, eps %.3g, lam %.4g, risk %.6g, excess %.2g, effective %.0f%%",
            self.n_iter,
            self.eps,
            x[-1],
            self.excess.objective,
            self.excess.size,
            100 * self.excess.effective,
        )

    def solution(
        self, problem: Problem, coef: Array, intercept: float, reached: Unsmoothed
    ) -> Solution:
        """Return the point with its unsmoothed risk, or the constant model where that is better."""
        if reached.risk <= self.base:
            return Solution(
                coef=coef,
                intercept=intercept,
                multiplier=reached.multiplier,
                objective=reached.risk,
                gap=reached.gap,
                n_iter=self.n_iter,
                converged=self.converged,
                message=self.message(reached.risk),
            )
        return replace(
            constant_solution(problem),
            gap=np.inf,
            n_iter=self.n_iter,
            converged=self.converged,
            message=f"found nothing better than the constant model: {self.message(self.base)}",
        )

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
        return f"{self.why} ({report}); {ADVICE.get(self.why, OTHER_ADVICE)} of Smoothed,"
