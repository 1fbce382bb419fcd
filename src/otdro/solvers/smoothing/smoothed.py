r"""Algorithm 1, corrected: stochastic descent on the smoothed dual, for any loss and any cost.

.. math:: \min_{\beta, b, \lambda \ge \lambda_{min}}\ \lambda\delta + \sum_i \pi_i\,G_i,\qquad
          G_i = \varepsilon \log \frac1L \sum_k
          \exp\{(\ell(U_k'\beta + b, y_i) - \lambda c(U_k, x_i))/\varepsilon\}\,/\,q_i(U_k)

with U_k from normals of density q_i at the inner maximisers, shaped by the local matrix A(x_i) of
the cost and stretched along beta as the loss is curved; q_i is relative to
N(x_i, (eps/2 lam) A^-1). The Gaussian term, which has no part of the loss in it, is taken off by
the same integral without the loss, :math:`\varepsilon\log E\, e^{-\lambda c/\varepsilon}`, from
draws around the row.

eps falls by stages. A stage takes mini-batch steps preconditioned by the Hessian of a sample, whose
iterates are averaged. The last one is repeated until the excess :math:`g'H^{-1}g/2` found at the
average is small or within its noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...costs import Norm
from ...design import Design
from ...duality import DualRows, Local, Round, factored, newton_step
from ...duality import worst_risk as norm_worst_risk
from ...pairs import generator
from ...problem import Problem, Solution
from ...progress import logger, shown
from ..euclidean.newton import Coordinates
from ..exact import Solver, constant_solution
from ..local_cost import LocalRows, ascend, local_rows, worst_risk
from .quadrature import (
    COOLING,
    Origin,
    Unsmoothed,
    dual_rows,
    lacks_smooth,
    origin_on_ray,
    require,
    require_positive,
    softmax,
    unsmoothed_risk,
)

Array = NDArray[Any]

PROPOSALS = ("maximiser", "centred", "paper")
STOPPING = ("statistical", "paper")
#: Rows of the sample that gives a Hessian, or an estimate of the excess.
SAMPLE = 2048
#: Mini-batch steps between two estimates of the excess.
ROUND = 100
#: Iterates whose mean the printed stopping rule compares with the last.
RECENT = 50
#: Ascent steps to a maximiser before draws are made around it.
ASCENT = 8
#: The largest share of the cost's curvature along beta that the loss takes from a draw's width.
MOST_CURVED = 0.95
#: Ways to diverge, each with what to change.
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
        The last smoothing, relative to the risk of the best constant model. The smoothed risk
        differs from the worst-case risk by a multiple of it.
    M : int >= 1, default 256
        Rows of a mini-batch; more make a step less noisy, and more expensive.
    L : int >= 1, default 32
        Draws per row; more make a step less noisy, and more expensive.
    proposal : {"maximiser", "centred", "paper"}, default "maximiser"
        Where draws come from: around the inner maximiser, around the row (both shaped by the cost
        and importance-corrected), or from N(0, sigma^2 I) as printed.
    stopping : {"statistical", "paper"}, default "statistical"
        Stop when the excess found is below ``tol`` times the risk or twice its own noise; or, as
        printed, when an iterate is within ``tol`` of the mean of the last 50.
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
        """Return the averaged iterate with its unsmoothed risk, exact where the cost is a norm."""
        self._check()
        require(self.lacks(problem))
        require_numbers(problem)
        loss, at, B = problem.loss, None, None
        if problem.geometry == "euclidean" and self.proposal != "paper":
            at = Coordinates(problem)
            X = at.design.dense()
            ball = replace(problem.ball, cost=Norm(2))
            local = local_rows(replace(problem, X=X, ball=ball), X)
            rows = dual_rows(problem, Design(X), Round())
        else:
            X = Design(problem.X).dense()
            local = local_rows(problem, X)
            center = problem.weights @ X if problem.fit_intercept else np.zeros(X.shape[1])
            B = np.broadcast_to(local.inverse, (*X.shape, X.shape[1]))
            rows = dual_rows(problem, Design(X, None, center), Local(B, problem.weights))
        origin = origin_on_ray(rows, loss, B)
        if origin is None:
            return constant_solution(problem)
        objective = Sampler(local, rows, self.L, self.proposal, self.sigma)
        seed = int(generator(self.random_state).randint(2**31 - 1))
        run = Descent(self, objective, problem.constant[1], seed)
        x = run.run(np.concatenate([origin.theta, [origin.b, origin.lam]]))
        coef, b, lam = x[:-2], float(x[-2]), float(x[-1])
        if at is not None:
            reached = unsmoothed_risk(rows, loss, Origin(coef, b, lam), run.eps)
            coef = at.coef(coef)
            return run.solution(problem, coef, at.intercept(b, coef), reached)
        intercept = float(b - objective.center @ coef)
        if problem.ball.cost.is_norm:
            w, z = float(problem.ball.cost.dual_norm(coef)), X @ coef + intercept
            worst: Any = norm_worst_risk(z, problem.y, problem.weights, loss, w, problem.ball)
        else:
            worst = worst_risk(problem, coef, intercept, lam, local)
        return run.solution(
            problem, coef, intercept, Unsmoothed(worst.risk, worst.multiplier, np.inf)
        )

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
class SampledModel:
    """The objective with gradient and Hessian in (beta, b, lam) from some rows and draws.

    ``effective`` is the share of the draws that count.
    """

    objective: float
    grad: Array
    hessian: Array
    effective: float

    @property
    def finite(self) -> bool:
        """Whether all of it are numbers."""
        sizes = (self.objective, self.grad.sum(), self.hessian.sum())
        return bool(np.isfinite(sizes).all())


@dataclass(frozen=True, eq=False)
class Sampler:
    """The smoothed objective in (beta, b, lam) with b that of centred rows.

    ``local`` are the rows with their cost, ``rows`` the same with weights and radius. Draws come
    by the ``proposal``: around the maxima, around the row, or from N(0, sigma^2 I).
    """

    local: LocalRows
    rows: DualRows
    L: int
    proposal: str
    sigma: float

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.rows.design.n)

    @property
    def center(self) -> Array:
        """The row at which the intercept is taken."""
        center = self.rows.design.center
        return np.zeros(self.rows.design.d) if center is None else center

    def model(
        self,
        index: Array,
        x: Array,
        eps: float,
        rng: np.random.Generator,
        *,
        curved: bool = False,
    ) -> SampledModel:
        """Return objective, gradient and, if ``curved``, Hessian from the rows of ``index``."""
        part = self.local.rows(index)
        beta = x[:-2]
        b = float(x[-2] - self.center @ beta)
        lam = float(x[-1])
        m, d, L = *part.X.shape, self.L
        xi = rng.standard_normal((m, L, d))
        U, log_q = self._draws(part, beta, b, lam, eps, xi)
        flat = U.reshape(-1, d)
        value, slope, bend = part.loss.evaluate(flat @ beta + b, np.repeat(part.y, L))
        price = part.cost.price(flat, np.repeat(part.X, L, axis=0), part.order)
        p, log_sum = softmax(((value - lam * price) / eps).reshape(m, L) - log_q)
        base = self._without_loss(part, lam, eps, xi)
        pi = self.rows.weights[index, 0] * (self.n / m)
        mass = (pi[:, None] * p).ravel()
        ones = np.full(len(flat), float(self.rows.fit_intercept))
        R = np.column_stack([flat - self.center, ones])
        # the gradients of l - lam c in (beta, b, lam) at the draws
        a = np.column_stack([slope[:, None] * R, -price])
        delta = float(self.rows.delta[0])
        grad = a.T @ mass
        grad[-1] += delta + pi @ base.price
        H = np.zeros((d + 2, d + 2))
        if curved:
            mean = np.einsum("nk,nkd->nd", p, a.reshape(m, L, -1))
            # the mean of the second derivatives, plus the covariance of the gradients over eps
            H = ((a * mass[:, None]).T @ a - (mean * pi[:, None]).T @ mean) / eps
            H[:-1, :-1] += R.T @ ((mass * bend)[:, None] * R)
            H[-1, -1] -= pi @ base.variance / eps
            if not self.rows.fit_intercept:
                H[-2, -2] = 1.0
        smoothed = eps * (log_sum - np.log(L) - base.log_mass)
        effective = float(np.mean(1 / (L * np.einsum("nk,nk->n", p, p))))
        return SampledModel(lam * delta + float(pi @ smoothed), grad, H, effective)

    def _without_loss(self, part: LocalRows, lam: float, eps: float, xi: Array) -> WithoutLoss:
        """Return log E exp(-lam c/eps) of each row, with mean and variance of c under it.

        The draws share ``xi`` with those of the loss, so that most of the noise cancels.
        """
        m, d = part.X.shape
        if self.proposal == "paper":
            return WithoutLoss(np.zeros(m), np.zeros(m), np.zeros(m))
        V = part.X[:, None] + np.sqrt(eps / (2 * lam)) * xi @ part.inverse_root
        rows = np.repeat(part.X, self.L, axis=0)
        price = part.cost.price(V.reshape(-1, d), rows, part.order).reshape(m, self.L)
        p, log_sum = softmax(-lam * price / eps + (xi**2).sum(axis=2) / 2)
        mean = np.einsum("nk,nk->n", p, price)
        variance = np.einsum("nk,nk->n", p, (price - mean[:, None]) ** 2)
        return WithoutLoss(log_sum - np.log(self.L), mean, variance)

    def _draws(
        self, part: LocalRows, beta: Array, b: float, lam: float, eps: float, xi: Array
    ) -> tuple[Array, Array]:
        """Return draws of shape (m, L, d) and the logarithm of their relative density."""
        m, d = part.X.shape
        if self.proposal == "paper":
            return self.sigma * xi, np.zeros((m, self.L))
        scale = np.sqrt(eps / (2 * lam))
        if self.proposal == "centred":
            return part.X[:, None] + scale * (xi @ part.inverse_root), -(xi**2).sum(axis=2) / 2
        e = np.broadcast_to(part.inverse_root @ beta, (m, d))
        w = np.linalg.norm(e, axis=1)
        tops = _maxima(part, beta, b, lam, w)
        bend = [part.loss.curvature(U @ beta + b, part.y) * w**2 / (2 * lam) for U in tops]
        stretch = 1 / np.sqrt(1 - np.clip(bend, 0.0, MOST_CURVED))
        gains = np.stack([part.gain(U, beta, b, lam) for U in tops]) / eps
        return Whitened(part, e / w[:, None], scale).mixture(tops, stretch, gains, xi)


def _maxima(part: LocalRows, beta: Array, b: float, lam: float, w: Array) -> Array:
    """Return the maxima of every row, ascended to from those under A, x + s A^-1 beta/w^2; where
    one of two is missing, the shoulder that stands for it under A."""
    inner = part.loss.inner(part.X @ beta + b, part.y, w, part.finite_multiplier(lam, w**2))
    starts = part.X + (inner.shift / w**2)[..., None] * part.push(beta)
    if part.cost.euclidean:
        return starts
    tops = np.stack([ascend(part, U, beta, b, lam, ASCENT) for U in starts])
    return np.where(np.isfinite(inner.value)[..., None], tops, starts)


@dataclass(frozen=True, eq=False)
class WithoutLoss:
    """The integral without the loss: its logarithm, and mean and variance of the cost under it."""

    log_mass: Array
    price: Array
    variance: Array


@dataclass(frozen=True, eq=False)
class Whitened:
    """Whitened coordinates of rows: unit vectors e along beta, the scale of a draw."""

    part: LocalRows
    e: Array
    scale: float

    def stretched(self, xi: Array, k: Array) -> Array:
        """Return xi with its part along e multiplied by k, of shape (m, 1) or (m, L)."""
        along = np.einsum("nkd,nd->nk", xi, self.e)
        moved: Array = xi + ((k - 1) * along)[..., None] * self.e[:, None]
        return moved

    def mixture(self, tops: Array, stretch: Array, gains: Array, xi: Array) -> tuple[Array, Array]:
        """Return draws around one or two maxima and the log density of their mixture."""
        m, L, _ = xi.shape
        first = np.full(m, L)
        if len(tops) == 2:
            mass = softmax((gains + np.log(stretch)).T)[0][:, 0]
            first = np.clip(np.round(L * mass), 1, L - 1).astype(int)
        of_first = np.arange(L) < first[:, None]
        k = np.where(of_first, stretch[0][:, None], stretch[-1][:, None])
        top = np.where(of_first[..., None], tops[0][:, None], tops[-1][:, None])
        U = top + self.scale * (self.stretched(xi, k) @ self.part.inverse_root)
        if len(tops) == 1:
            return U, -(xi**2).sum(axis=2) / 2 - np.log(k)
        share = np.stack([first, L - first]) / L
        logs = [
            np.log(share[c])[:, None] + self.log_density(U, tops[c], stretch[c]) for c in (0, 1)
        ]
        return U, np.logaddexp(*logs)

    def log_density(self, U: Array, top: Array, k: Array) -> Array:
        """Return -|xi|^2/2 - log k of the draws of one component."""
        white = (U - top[:, None]) @ self.part.root / self.scale
        xi = self.stretched(white, 1 / k[:, None])
        log: Array = -(xi**2).sum(axis=2) / 2 - np.log(k)[:, None]
        return log


@dataclass(frozen=True, eq=False)
class Excess:
    """The excess g'H^-1 g/2 found, the part of it that noise explains, and the objective."""

    size: float
    noise: float
    objective: float
    effective: float


class Descent:
    """One run: its random numbers, step count and verdict."""

    def __init__(self, settings: Smoothed, objective: Sampler, base: float, seed: int) -> None:
        self.settings = settings
        self.objective = objective
        self.base = base
        self.rng = np.random.default_rng(seed)
        self.step = settings.step
        self.least_lam = 0.0
        self.eps = COOLING * base
        self.n_iter = 0
        self.converged = False
        self.why = ""
        self.excess = Excess(np.inf, 0.0, np.inf, 1.0)

    def run(self, x: Array) -> Array:
        """Let eps fall, then repeat rounds at the last one until the stopping rule or max_iter."""
        self.least_lam = self.settings.lam_min * float(x[-1])
        final = self.settings.eps * self.base
        with shown(self.settings.verbose):
            while True:
                last = self.eps <= final
                x = self._round(x, ROUND if last else ROUND // 4)
                self.excess = self._look(x)
                self._log(x)
                if last and self.settings.stopping == "statistical":
                    most = max(self.settings.tol * self.excess.objective, 2 * self.excess.noise)
                    self.converged = self.excess.size <= most
                if x[-1] <= self.least_lam * (1 + 1e-6):
                    self.why = self.why or BOUND
                self.converged = self.converged and last and not self.why
                if not self.converged and self.n_iter >= self.settings.max_iter:
                    self.why = self.why or f"reached max_iter={self.settings.max_iter}"
                if self.converged or self.why:
                    return x
                if not last:
                    self.eps = max(COOLING * self.eps, final)

    def _rows(self, most: int) -> Array:
        """Return a random sample of the rows."""
        return self.rng.choice(self.objective.n, min(most, self.objective.n), replace=False)

    def _round(self, x: Array, steps: int) -> Array:
        """Take averaged mini-batch steps, kept if the objective of a sample falls."""
        index = self._rows(SAMPLE)
        seed = int(self.rng.integers(2**31))

        def model(x: Array, curved: bool) -> SampledModel:
            rng = np.random.default_rng(seed)
            return self.objective.model(index, x, self.eps, rng, curved=curved)

        now = model(x, curved=True)
        steps = min(steps, self.settings.max_iter - self.n_iter)
        new = self._steps(x, factored(now.hessian), steps) if now.finite else None
        if new is None:
            self.why = WILD
            return x
        if model(new, curved=False).objective <= now.objective:
            return new
        # the Hessian changes within a step, as near ties: shorten it
        self.step /= 2
        return x

    def _steps(self, x: Array, factor: Any, steps: int) -> Array | None:
        """Take mini-batch steps and return the mean of the second half, None without numbers."""
        iterates: list[Array] = []
        for _ in range(steps):
            batch = self._rows(self.settings.M)
            now = self.objective.model(batch, x, self.eps, self.rng)
            if not now.finite:
                return None
            x = self._moved(x, -self.step * cho_solve(factor, now.grad, check_finite=False))
            iterates.append(x)
        self.n_iter += steps
        if self.settings.stopping == "paper" and steps >= RECENT:
            gap = np.linalg.norm(x - np.mean(iterates[-RECENT:], axis=0))
            self.converged = bool(gap <= self.settings.tol)
        return np.asarray(np.mean(iterates[steps // 2 :], axis=0))

    def _moved(self, x: Array, move: Array) -> Array:
        """Return x + move, shortened so that theta moves by half its norm at most.

        lam halves or doubles at most, and stays above its bound.
        """
        w = float(np.linalg.norm(x[:-2]))
        far = float(np.linalg.norm(move[:-2]))
        new: Array = x + move * min(1.0, w / max(2 * far, np.finfo(float).tiny))
        new[-1] = np.clip(new[-1], max(x[-1] / 2, self.least_lam), 2 * x[-1])
        return new

    def _look(self, x: Array) -> Excess:
        """Return the excess at x as two independent samples of rows and draws see it."""
        one, two = (
            self.objective.model(self._rows(SAMPLE), x, self.eps, self.rng, curved=True)
            for _ in (0, 1)
        )
        if not (one.finite and two.finite):
            self.why = WILD
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
