"""Stochastic descent on the smoothed dual: annealed, preconditioned, averaged, watched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils import check_random_state

from ...problem import Problem, Solution
from ...progress import logger, shown
from ..base import constant_solution
from .linear_score import Estimate, Oracle
from .quadrature import newton_step

Array = NDArray[Any]

#: Rows of the fixed sample of a stage.
SAMPLE = 4096
#: Mini-batch steps between two looks at the excess.
ROUND = 100
#: Ways to diverge, each with what to change.
ROSE, BOUND, WILD = (
    "rose over three rounds",
    "left lam at its bound",
    "met a value or gradient that is not finite",
)
ADVICE = {BOUND: "lower lam_min", WILD: "raise eps, or lower step,"}


class Settings(Protocol):
    """What a run reads of the solver's parameters."""

    eps: float
    M: int
    proposal: str
    stopping: str
    lam_min: float
    step: float
    tol: float
    max_iter: int
    random_state: Any
    verbose: bool


@dataclass(eq=False)
class Excess:
    """The estimated excess g'H^-1 g/2, the part of it that noise explains, and the objective."""

    size: float
    noise: float
    objective: float
    effective: float


class Descent:
    """One run: its random numbers, step count and verdict."""

    def __init__(self, settings: Settings, oracle: Oracle, base: float) -> None:
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
        with shown(self.settings.verbose):
            return self._finish(self._anneal(x))

    def _anneal(self, x: Array) -> Array:
        """Take a short round at every eps before the last, which is relative to the risk found."""
        self.eps, final = 0.1 * self.base, self.settings.eps * self.base
        while self.eps > final:
            x = self._round(x, ROUND // 4)
            objective = self._objective(x)
            if self.why or not np.isfinite(objective):
                self.why = WILD
                break
            final = self.settings.eps * min(self.base, max(objective, 0.01 * self.base))
            self.eps = max(self.eps / 5, final)
            self._log(x)
        return x

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
            self.why = self.why or self._divergence(x, rises)
            self.converged = self.converged and not self.why
            if not self.converged and not self.why and self.n_iter >= self.settings.max_iter:
                self.why = f"reached max_iter={self.settings.max_iter}"
        return x

    def _divergence(self, x: Array, rises: int) -> str:
        """Return how the run went astray, if it did."""
        if x[-1] <= self.floor * (1 + 1e-9):
            return BOUND
        return ROSE if rises >= 3 and not self.converged else ""

    def _round(self, x: Array, steps: int) -> Array:
        """Take Newton steps, then averaged mini-batch steps, kept if the objective falls."""
        x, factor = self._newton(x)
        if self.why:
            return x
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
        """Take Newton steps on one sample with common draws; return a Hessian's factor too."""
        index, seed = self._sample(), int(self.rng.integers(2**31))

        def model(x: Array) -> Estimate:
            return self.oracle.model(index, x, self.eps, np.random.default_rng(seed))

        now = model(x)
        for _ in range(steps):
            if not self._sound(now):
                return x, None
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
        return x, cho_factor(_raised(_hessian(now))) if self._sound(now) else None

    def _sound(self, now: Estimate) -> bool:
        """Whether objective, gradient and Hessian are numbers; else the run ends here."""
        parts = (now.objective, now.grad, 0.0 if now.hessian is None else now.hessian)
        sound = all(np.isfinite(part).all() for part in parts)
        if not sound:
            self.why = WILD
        return sound

    def _moved(self, x: Array, move: Array) -> Array:
        w, far = float(np.linalg.norm(x[:-2])), float(np.linalg.norm(move[:-2]))
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
        mean, count, start = np.zeros_like(x), 0, x
        recent: list[Array] = []
        for t in range(steps):
            now = self.oracle.gradient(self._indices(), x, self.eps, self.rng)
            if not self._sound(now):
                return start
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
        if not (self._sound(one) and self._sound(two)):
            return Excess(np.inf, 0.0, np.inf, 0.0)
        H = (_hessian(one) + _hessian(two)) / 2
        size = -float(one.grad @ newton_step(two.grad, H)) / 2
        gap = (one.grad - two.grad) / 2
        noise = -float(gap @ newton_step(gap, H)) / 2
        objective = (one.objective + two.objective) / 2
        return Excess(abs(size), abs(noise), objective, min(one.effective, two.effective))

    def _log(self, x: Array) -> None:
        if self.settings.verbose:
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
        self, coef: Array, intercept: float, lam: float, risk: float, gap: float
    ) -> Solution:
        """Return the point with its unsmoothed risk."""
        message = self.message(risk)
        return Solution(coef, intercept, lam, risk, gap, self.n_iter, self.converged, message)

    def constant(self, problem: Problem) -> Solution:
        """Return the constant model, where descent found nothing better."""
        best = constant_solution(problem)
        message = f"found nothing better than the constant model: {self.message(self.base)}"
        return replace(
            best, gap=np.inf, n_iter=self.n_iter, converged=self.converged, message=message
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
        advice = ADVICE.get(self.why, "raise L, M or eps")
        return f"{self.why} ({report}); {advice} of Smoothed,"


def _hessian(estimate: Estimate) -> Array:
    assert estimate.hessian is not None
    return estimate.hessian


def _raised(H: Array) -> Array:
    """Return H with the least multiple of its diagonal added that makes it positive definite."""
    diagonal = np.abs(np.diag(H))
    scale = np.diag(np.maximum(diagonal, 1e-8 * diagonal.max()))
    ridge = 1e-10
    while True:
        try:
            np.linalg.cholesky(H + ridge * scale)
            return H + ridge * scale
        except np.linalg.LinAlgError:
            ridge *= 10
