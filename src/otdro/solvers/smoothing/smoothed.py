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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...costs import Norm
from ...design import Design
from ...duality import Local, Round, factored, newton_step
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
    softmax,
    unsmoothed_risk,
)

Array = NDArray[Any]

PROPOSALS = ("maximiser", "centred", "paper")
STOPPING = ("statistical", "paper")
#: Rows of the sample that gives a Hessian, or an estimate of the excess.
SAMPLE = 2048
#: Mini-batch steps between two estimates of the excess; a quarter of them before the last eps.
ROUND = 100
#: Iterates whose mean the printed stopping rule compares with the last.
RECENT = 50
#: Ascent steps to a maximiser before draws are made around it.
ASCENT = 8
#: The largest share of the cost's curvature along beta that the loss takes from a draw's width.
MOST_CURVED = 0.95
#: Why a run ends early, and what to change.
BOUND = ("left lam at its bound", "lower lam_min")
WILD = ("met a value or gradient that is not finite", "raise eps, or lower step,")


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
        require(
            self.lacks(problem),
            eps=self.eps,
            sigma=self.sigma,
            lam_min=self.lam_min,
            step=self.step,
        )
        require_numbers(problem)
        loss, cost, posed, at, B = problem.loss, problem.ball.cost, problem, None, None
        if cost.euclidean and self.proposal != "paper":
            at = Coordinates(problem)
            ball = replace(problem.ball, cost=Norm(2))
            posed = replace(problem, X=at.design.dense(), ball=ball)
        X = Design(posed.X).dense()
        local, center = local_rows(posed, X), np.zeros(X.shape[1])
        norm: Round | Local = Round()
        if at is None:
            center = problem.weights @ X if problem.fit_intercept else center
            B = np.broadcast_to(local.inverse, (*X.shape, X.shape[1]))
            norm = Local(B, problem.weights)
        rows = dual_rows(posed, Design(X, None, center), norm)
        origin = origin_on_ray(rows, loss, B)
        if origin is None:
            return constant_solution(problem)
        sampler = Sampler(posed, local, self.L, self.proposal, self.sigma, center)
        run = Descent(self, sampler, problem.constant[1])
        x = run.run(np.concatenate([origin.theta, [origin.b, origin.lam]]))
        coef, b, lam = x[:-2], float(x[-2]), float(x[-1])
        if at is not None:
            reached = unsmoothed_risk(rows, loss, Origin(coef, b, lam), run.eps)
            coef = at.coef(coef)
            return run.solution(problem, coef, at.intercept(b, coef), reached)
        b -= float(center @ coef)
        if cost.is_norm:
            w, z = float(cost.dual_norm(coef)), X @ coef + b
            worst: Any = norm_worst_risk(z, problem.y, problem.weights, loss, w, problem.ball)
        else:
            worst = worst_risk(problem, coef, b, lam, local)
        return run.solution(problem, coef, b, Unsmoothed(worst.risk, worst.multiplier, np.inf))

    def _check(self) -> None:
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


class SampledModel(NamedTuple):
    """The objective with gradient and Hessian in (beta, b, lam) from some rows and draws.

    ``effective`` is the share of the draws that count.
    """

    objective: float
    grad: Array
    hessian: Array
    effective: float


@dataclass(frozen=True, eq=False)
class Sampler:
    """The smoothed objective in (beta, b, lam) with b that of rows less their ``center``.

    ``local`` are the rows with their cost. Draws come by the ``proposal``: around the maxima,
    around the row, or from N(0, sigma^2 I).
    """

    problem: Problem
    local: LocalRows
    L: int
    proposal: str
    sigma: float
    center: Array | float = 0.0

    def model(
        self, index: Array, x: Array, eps: float, rng: np.random.Generator, curved: bool = False
    ) -> SampledModel:
        """Return objective, gradient and, if ``curved``, Hessian from the rows of ``index``."""
        part, problem = self.local.rows(index), self.problem
        beta = x[:-2]
        b = float(x[-2] - np.sum(self.center * beta))
        lam = float(x[-1])
        m, d, L = *part.X.shape, self.L
        xi = rng.standard_normal((m, L, d))
        if self.proposal == "paper":
            U, log_q, base = self.sigma * xi, np.zeros((m, L)), np.zeros((3, m))
        else:
            U, log_q = self._draws(part, beta, b, lam, eps, xi)
            base = self._without_loss(part, lam, eps, xi)
        flat = U.reshape(-1, d)
        value, slope, bend = part.loss.evaluate(flat @ beta + b, np.repeat(part.y, L))
        price = part.cost.price(flat, np.repeat(part.X, L, axis=0), part.order)
        p, log_sum = softmax((((value - lam * price) / eps).reshape(m, L) - log_q).T)
        pi = problem.weights[index] * (len(problem.y) / m)
        mass = (pi * p).T.ravel()
        ones = np.full(len(flat), float(problem.fit_intercept))
        R = np.column_stack([flat - self.center, ones])
        # the gradients of l - lam c in (beta, b, lam) at the draws
        a = np.column_stack([slope[:, None] * R, -price])
        log_mass, mean_price, variance = base
        grad = a.T @ mass
        grad[-1] += problem.ball.delta + pi @ mean_price
        H = np.zeros((d + 2, d + 2))
        if curved:
            mean = np.einsum("kn,nkd->nd", p, a.reshape(m, L, -1))
            # the mean of the second derivatives, plus the covariance of the gradients over eps
            H = ((a * mass[:, None]).T @ a - (mean * pi[:, None]).T @ mean) / eps
            H[:-1, :-1] += R.T @ ((mass * bend)[:, None] * R)
            H[-1, -1] -= pi @ variance / eps
            if not problem.fit_intercept:
                H[-2, -2] = 1.0
        smoothed = float(pi @ (eps * (log_sum - np.log(L) - log_mass)))
        effective = float(np.mean(1 / (L * np.einsum("kn,kn->n", p, p))))
        return SampledModel(lam * problem.ball.delta + smoothed, grad, H, effective)

    def _without_loss(self, part: LocalRows, lam: float, eps: float, xi: Array) -> Array:
        """Return log E exp(-lam c/eps) of each row, with mean and variance of c under it.

        The draws share ``xi`` with those of the loss, so that most of the noise cancels.
        """
        m, L, d = xi.shape
        V = part.X[:, None] + np.sqrt(eps / (2 * lam)) * xi @ part.inverse_root
        rows = np.repeat(part.X, L, axis=0)
        price = part.cost.price(V.reshape(-1, d), rows, part.order).reshape(m, L).T
        p, log_sum = softmax(-lam * price / eps + (xi**2).sum(axis=2).T / 2)
        mean = np.einsum("kn,kn->n", p, price)
        return np.stack([log_sum - np.log(L), mean, (p * (price - mean) ** 2).sum(axis=0)])

    def _draws(
        self, part: LocalRows, beta: Array, b: float, lam: float, eps: float, xi: Array
    ) -> tuple[Array, Array]:
        """Return draws (m, L, d) of a mixture around the maxima, and its log relative density.

        A component is the normal of the cost, along beta as much wider as the loss is curved.
        """
        m, L, _ = xi.shape
        scale = np.sqrt(eps / (2 * lam))
        e = np.broadcast_to(part.inverse_root @ beta, part.X.shape)
        w = np.linalg.norm(e, axis=1)
        tops, k = part.X[None], np.ones((1, m))
        if self.proposal == "maximiser":
            tops = part.starts(beta, b, lam)
            if not part.cost.euclidean:
                tops = np.stack([ascend(part, U, beta, b, lam, ASCENT) for U in tops])
            bend = part.loss.curvature(tops @ beta + b, np.broadcast_to(part.y, tops.shape[:2]))
            k = 1 / np.sqrt(1 - np.clip(bend * w**2 / (2 * lam), 0.0, MOST_CURVED))

        def stretched(v: Array, k: Array) -> Array:
            """Return v (m, L, d) with its part along e times k."""
            along = np.einsum("nkd,nd->nk", v, e) / w[:, None] ** 2
            return np.asarray(v + ((k - 1) * along)[..., None] * e[:, None])

        gains = np.stack([part.gain(U, beta, b, lam) for U in tops]) / eps
        first = np.full(m, L)
        if len(tops) == 2:
            share = softmax(gains + np.log(k))[0][0]
            first = np.clip(np.round(L * share), 1, L - 1).astype(int)
        count = [first, L - first]
        component, row = (np.arange(L) >= first[:, None]).astype(int), np.arange(m)[:, None]
        moved = stretched(xi, k[component, row])
        U = tops[component, row] + scale * moved @ part.inverse_root
        logs = []
        for c, (top, wide) in enumerate(zip(tops, k[..., None], strict=True)):
            own = stretched((U - top[:, None]) @ part.root / scale, 1 / wide)
            logs.append(np.log(count[c][:, None] / (L * wide)) - (own**2).sum(axis=2) / 2)
        return U, np.logaddexp.reduce(logs)


class Excess(NamedTuple):
    """The excess g'H^-1 g/2 found, the part of it that noise explains, and the objective."""

    size: float
    noise: float
    objective: float
    effective: float


class Descent:
    """One run: its random numbers, step count and verdict."""

    def __init__(self, settings: Smoothed, sampler: Sampler, base: float) -> None:
        self.settings, self.sampler, self.base = settings, sampler, base
        seed = int(generator(settings.random_state).randint(2**31 - 1))
        self.rng = np.random.default_rng(seed)
        self.step, self.least_lam = settings.step, 0.0
        self.eps = COOLING * base
        self.n_iter, self.converged = 0, False
        self.why: tuple[str, str] | None = None
        self.excess = Excess(np.inf, 0.0, np.inf, 0.0)

    def run(self, x: Array) -> Array:
        """Let eps fall, then repeat rounds at the last one until the stopping rule or max_iter."""
        settings = self.settings
        self.least_lam = settings.lam_min * float(x[-1])
        final = settings.eps * self.base
        with shown(settings.verbose):
            while not (self.converged or self.why):
                last = self.eps <= final
                try:
                    x, near = self._round(x, ROUND if last else ROUND // 4)
                    self.excess = self._look(x)
                except FloatingPointError:
                    self.why = WILD
                    break
                size, noise, risk, effective = self.excess
                logger.info(
                    "smoothed: step %d, eps %.3g, lam %.4g, risk %.6g, excess %.2g, "
                    "effective %.0f%%",
                    *(self.n_iter, self.eps, x[-1], risk, size, 100 * effective),
                )
                small = size <= max(settings.tol * risk, 2 * noise)
                settled = near if settings.stopping == "paper" else small
                if x[-1] <= self.least_lam * (1 + 1e-6):
                    self.why = BOUND
                elif last and settled:
                    self.converged = True
                elif self.n_iter >= settings.max_iter:
                    self.why = (f"reached max_iter={settings.max_iter}", "raise L, M or eps")
                elif not last:
                    self.eps = max(COOLING * self.eps, final)
        return x

    def _model(self, index: Array | int, x: Array, **options: Any) -> SampledModel:
        """Return the model of some rows, or of a random sample of that many."""
        n = len(self.sampler.problem.y)
        if isinstance(index, int):
            index = self.rng.choice(n, min(index, n), replace=False)
        model = self.sampler.model(index, x, self.eps, **{"rng": self.rng, **options})
        if not np.isfinite([model.objective, model.grad.sum(), model.hessian.sum()]).all():
            raise FloatingPointError
        return model

    def _round(self, x: Array, steps: int) -> tuple[Array, bool]:
        """Take averaged mini-batch steps, kept if the objective of a sample falls.

        Also return whether the last iterate is near the mean of the recent ones.
        """
        n = len(self.sampler.problem.y)
        index, seed = self.rng.choice(n, min(SAMPLE, n), replace=False), self.rng.integers(2**31)
        before = self._model(index, x, rng=np.random.default_rng(seed), curved=True)
        factor, last, iterates = factored(before.hessian), x, []
        for _ in range(min(steps, self.settings.max_iter - self.n_iter)):
            grad = self._model(self.settings.M, last).grad
            last = self._moved(last, -self.step * cho_solve(factor, grad, check_finite=False))
            iterates.append(last)
        self.n_iter += len(iterates)
        far = np.linalg.norm(last - np.mean(iterates[-RECENT:], axis=0))
        near = len(iterates) >= RECENT and bool(far <= self.settings.tol)
        mean = np.asarray(np.mean(iterates[len(iterates) // 2 :], axis=0))
        if self._model(index, mean, rng=np.random.default_rng(seed)).objective <= before.objective:
            return mean, near
        # the Hessian changes within a step, as near ties: shorten it
        self.step /= 2
        return x, near

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
        one, two = (self._model(SAMPLE, x, curved=True) for _ in (0, 1))
        H = (one.hessian + two.hessian) / 2
        apart = (one.grad - two.grad) / 2
        return Excess(
            size=abs(float(one.grad @ newton_step(two.grad, H))) / 2,
            noise=abs(float(apart @ newton_step(apart, H))) / 2,
            objective=(one.objective + two.objective) / 2,
            effective=min(one.effective, two.effective),
        )

    def solution(
        self, problem: Problem, coef: Array, intercept: float, reached: Unsmoothed
    ) -> Solution:
        """Return the point with its unsmoothed risk, or the constant model where that is better."""
        better = reached.risk <= self.base
        e = self.excess
        risk = reached.risk if better else self.base
        message = (
            f"smoothed dual, proposal {self.settings.proposal!r} at eps={self.eps:.3g}: risk "
            f"{risk:.6g}, estimated excess {e.size:.2g} (noise {e.noise:.2g}), "
            f"{100 * e.effective:.0f}% of the draws count"
        )
        if self.why:
            message = f"{self.why[0]} ({message}); {self.why[1]} of Smoothed,"
        solution = replace(
            constant_solution(problem),
            gap=np.inf,
            n_iter=self.n_iter,
            converged=self.converged,
            message=message,
        )
        if not better:
            words = f"found nothing better than the constant model: {message}"
            return replace(solution, message=words)
        return replace(
            solution,
            coef=coef,
            intercept=intercept,
            multiplier=reached.multiplier,
            objective=reached.risk,
            gap=reached.gap,
        )
