"""Stochastic descent on the smoothed dual: eps falls by stages, steps are preconditioned, iterates
averaged, and the excess is looked at between rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality.ties import factored, newton_step
from ...problem import Problem, Solution
from ...progress import logger, shown
from ..base import constant_solution
from .linear_score import LinearScore, SampledGradient, SampledModel
from .particles import Particles
from .smoothed_dual import FIRST_EPS
from .unsmoothed import Unsmoothed

if TYPE_CHECKING:
    from .smoothed import Smoothed

Array = NDArray[Any]

#: Rows of the fixed sample of a stage.
SAMPLE = 4096
#: Mini-batch steps between two looks at the excess, and at every eps before the last.
ROUND, SHORT_ROUND = 100, 25
#: Each eps is this share of the one before.
COOLING = 1 / 5
#: The least risk, relative to the best constant's, by which the last eps is sized.
LEAST_RISK = 0.01
#: Newton steps on a fixed sample, the decrement, relative to the objective, at which they end, and
#: how often a step that does not descend is divided by three.
NEWTON_STEPS, DECREMENT, SHORTER = 15, 1e-4, 9
#: The share of the iterates of a round that are not averaged.
BURN_IN = 0.25
#: Iterates whose mean the printed stopping rule compares with the last.
RECENT = 50
#: Rounds without progress, worth a tenth of ``tol``, or with a rise, worth ``tol``, that end a run.
STILL_ROUNDS, RISES = 4, 3
#: The longest move of theta, relative to its norm, and the most by which lam changes in a step.
LONGEST, FACTOR = 0.5, 2.0
#: A multiplier this close to its bound, relative to it, is at it.
AT_BOUND = 1e-9
#: Ways to diverge, each with what to change.
ROSE = "rose over three rounds"
BOUND = "left lam at its bound"
WILD = "met a value or gradient that is not finite"
ADVICE = {BOUND: "lower lam_min", WILD: "raise eps, or lower step,"}
OTHER_ADVICE = "raise L, M or eps"


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
            x = self._round(x, SHORT_ROUND)
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
        if x[-1] <= self.least_lam * (1 + AT_BOUND):
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
        self, problem: Problem, coef: Array, intercept: float, found: Unsmoothed
    ) -> Solution:
        """Return the point with its unsmoothed risk, or the constant model where that is better."""
        if found.risk <= self.base:
            return Solution(
                coef=coef,
                intercept=intercept,
                multiplier=found.multiplier,
                objective=found.risk,
                gap=found.gap,
                n_iter=self.n_iter,
                converged=self.converged,
                message=self.message(found.risk),
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
