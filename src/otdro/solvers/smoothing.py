r"""The smoothed dual: stochastic for any loss and cost, and without Monte Carlo for linear scores.

``Smoothed`` is Algorithm 1, corrected: stochastic descent for any loss and any cost on

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

``Quadrature`` has a linear score and a squared cost, where a row's integral has one dimension:

.. math:: F_\varepsilon(\theta, b, \lambda) = \lambda\delta + \sum_i \pi_i\,
          G(z_i'\theta + b, \rho),\qquad G(z, \rho) =
          \varepsilon \log E\, e^{\ell(z + \rho g, y)/\varepsilon},

g one standard normal, :math:`\rho = w\tau`, :math:`\tau^2 = \varepsilon/(2\lambda +
\varepsilon/s^2)` and w the dual norm of theta. G is
:math:`\varepsilon\log E_U e^{(\ell - \lambda c)/\varepsilon}` for :math:`U \sim N(x,
s^2\Lambda^{-1})` and the squared cost c, with the Gaussian term :math:`(\varepsilon d/2)\log(1 +
2\lambda s^2/\varepsilon)` added back: it has no part of the loss in it, but would push lam to
:math:`d\varepsilon/(2\delta)`. As eps falls G tends to the inner supremum, with an error of order
eps whatever the dimension.

``Sinkhorn`` has the same integrals at eps = lam kappa. Integrals are by the trapezoid rule. Both
are minimised in (theta, b, log(w^2/lam)) by scipy's BFGS: rows whose inner problem has two equal
maxima stay tied while w^2/lam is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.optimize import minimize

from ..costs import Norm
from ..design import BLOCK_ENTRIES, Design
from ..duality import (
    Atoms,
    Dual,
    DualRows,
    Local,
    Round,
    factored,
    first_multiplier,
    least_finite,
    local_threshold,
    lower_bound,
    newton_step,
    worst_risk,
    zero_model,
)
from ..losses import Loss
from ..pairs import generator
from ..problem import Ball, Problem, Solution
from ..progress import logger, shown
from .euclidean.newton import Coordinates
from .exact import Solver, constant_solution
from .local_cost import LocalRows, LocalWorst, ascend, local_rows
from .local_cost import worst_risk as local_worst_risk

Array = NDArray[Any]

#: Half the width of a window of nodes, in standard deviations.
WINDOW = 8.0
#: The largest step of the trapezoid rule in standard deviations; error 2 exp(-2 pi^2/step^2).
STEP = 0.7
#: The widest deviation by which a window around a maximum is sized.
WIDEST = 10.0
#: The first smoothing, relative to the risk of the best constant, and the ratio of each smoothing
#: to the one before.
COOLING = 0.1
#: Lengths, in standard deviations of the scores, among which a start on a ray is chosen.
LENGTHS = np.geomspace(1e-4, 30, 24)
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


def require(lacks: str | None, **positive: float) -> None:
    """Refuse parameters that are not finite numbers above zero, and a problem that lacks a fact."""
    for name, value in positive.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a number > 0, got {name}={value!r}.")
    if lacks is not None:
        raise ValueError(lacks)


def lacks_smooth(problem: Problem) -> str | None:
    """Return why a loss with a kink is refused: no node sees its second derivative."""
    if np.isfinite(problem.loss.smoothness):
        return None
    return (
        f"the smoothed dual needs a differentiable loss; {type(problem.loss).__name__} has a kink "
        "(smoothness=inf). Use solver='exact' or 'sinkhorn'."
    )


class SmoothedRows(NamedTuple):
    """G of every row and its derivatives in (z, rho, eps), each of shape (n,)."""

    value: Array
    z: Array
    rho: Array
    eps: Array


def integrate(
    loss: Loss, z: Array, y: Array, rho: float, eps: float, K: int
) -> SmoothedRows | None:
    """Return G and its derivatives by K nodes per row and maximum, None where G is infinite."""
    # a loss of quadratic growth outgrows the cost where smoothness rho^2 >= eps
    if 2 * least_finite(loss, rho) >= eps:
        return None
    if loss.pieces is not None and loss.pieces.quadratic:
        return _quadratic(z - y, rho, eps, loss.pieces.kappa)
    most = max(BLOCK_ENTRIES // K, 1)
    blocks = [slice(start, start + most) for start in range(0, len(z), most)]
    parts = [_trapezoid(loss, z[rows], y[rows], rho, eps, K) for rows in blocks]
    return SmoothedRows(*np.concatenate(parts, axis=1))


def _quadratic(e: Array, rho: float, eps: float, kappa: float) -> SmoothedRows:
    """Return the integral of e^2/(2 kappa): G = e^2/(2 kappa q) - (eps/2) log q.

    q = 1 - rho^2/(kappa eps); under the weighted normal the error has mean e/q, variance rho^2/q.
    """
    q = 1 - rho**2 / (kappa * eps)
    power = e**2 / (2 * kappa * q**2)
    value = power * q - eps / 2 * np.log(q)
    mean_loss = power + rho**2 / (2 * kappa * q)
    return SmoothedRows(
        value=value,
        z=e / (kappa * q),
        rho=2 * rho / (kappa * eps) * (power + eps / (2 * q)),
        eps=(value - mean_loss) / eps,
    )


def _trapezoid(loss: Loss, z: Array, y: Array, rho: float, eps: float, K: int) -> SmoothedRows:
    """Return the integrals: moments of l and l' under the nodes weighted by exp(l/eps)."""
    low, high = _windows(loss, z, y, rho, eps, K)
    # one node per row in memory, so that sums over nodes are sums of vectors
    g = low + (high - low) * np.linspace(0, 1, K)[:, None, None]
    log_weight = np.log((high - low) / (K - 1)) - 0.5 * np.log(2 * np.pi) - g**2 / 2
    g, log_weight = g.reshape(-1, len(z)), log_weight.reshape(-1, len(z))
    value, slope, _ = loss.evaluate(z + rho * g, np.broadcast_to(y, g.shape))
    p, log_total = softmax(value / eps + log_weight)
    by_z, by_rho, mean = (np.einsum("kn,kn->n", p, a) for a in (slope, slope * g, value))
    return SmoothedRows(eps * log_total, by_z, by_rho, log_total - mean / eps)


def softmax(log_p: Array) -> tuple[Array, Array]:
    """Return exp(log_p) scaled to sum to 1 along the first axis, and the logarithm of the sum."""
    top = log_p.max(axis=0)
    p = np.exp(log_p - top)
    total = p.sum(axis=0)
    p /= total
    return p, top + np.log(total)


def _windows(loss: Loss, z: Array, y: Array, rho: float, eps: float, K: int) -> tuple[Array, Array]:
    """Return the ends (k, n) of the intervals of K nodes each that hold the mass of a row.

    It is one that holds all of it or, if that is long, one or two around the maxima.
    """
    if np.isfinite(loss.lipschitz):
        far = loss.lipschitz * rho**2 / eps + WINDOW * rho
        # l' lies between its values at -far and +far, and a slope l' moves the normal by rho l'/eps
        low = rho / eps * loss.derivative(z - far, y) - WINDOW
        high = rho / eps * loss.derivative(z + far, y) + WINDOW
        if (high - low).max() <= K * STEP:
            return low[None], high[None]
    inner = loss.inner(z, y, rho, eps / 2)
    g = inner.shift / rho
    # the curvature of g^2/2 - l/eps at a maximum
    curvature = 1 - loss.curvature(z + inner.shift, np.broadcast_to(y, g.shape)) * rho**2 / eps
    half = WINDOW / np.sqrt(np.clip(curvature, WIDEST**-2, 1.0))
    low, high = g - half, g + half
    if len(g) == 1:
        return low, high
    # two windows where they are apart, else one over both, with as many nodes
    exists = np.isfinite(inner.value)
    left = np.where(exists, low, np.inf).min(axis=0)
    right = np.where(exists, high, -np.inf).max(axis=0)
    half = (right - left) * K / (2 * K - 1)
    apart = exists.all(axis=0) & (low.max(axis=0) > high.min(axis=0))
    low = np.where(apart, low, np.stack([left, left + half]))
    high = np.where(apart, high, np.stack([right - half, right]))
    return low, high


def dual_rows(problem: Problem, design: Design, dual_norm: Round | Local) -> DualRows:
    """Return the rows of one problem in the coordinates of a design."""
    weights = problem.weights[:, None]
    delta = np.array([problem.ball.delta])
    return DualRows(design, problem.y, weights, delta, problem.fit_intercept, dual_norm)


class Origin(NamedTuple):
    """Where a descent starts."""

    theta: Array
    b: float
    lam: float


def origin_on_ray(rows: DualRows, loss: Loss, B: Array | None = None) -> Origin | None:
    """Return a start on the ray against the gradient at theta = 0, None where that is optimal.

    ``B`` (n, d, d) are the matrices of the dual norms of the rows, None in round coordinates. With
    C = E[l'^2 B] the ray is along -C^-1 g, and sqrt(delta v'Cv) is the price of a step along v,
    were every slope as at zero.
    """
    pi, delta = rows.weights[:, 0], float(rows.delta[0])
    zero = zero_model(rows.design, rows.y, pi, loss, rows.fit_intercept)
    if B is None:
        threshold = zero.threshold(float(np.linalg.norm(zero.pull)), loss.lipschitz, 2)
        direction = zero.pull / (zero.mean_square or 1.0)
    else:
        threshold, direction = local_threshold(zero, pi, B)
    if threshold <= delta:
        return None
    z = rows.design.scores(-direction)
    price = float(np.sqrt(delta * threshold))

    def line(t: float) -> float:
        return float(pi @ loss.value(t * z + zero.b, rows.y)) + price * t

    deviation = float(np.sqrt(pi @ (z - pi @ z) ** 2 + np.finfo(float).tiny))
    # a start need not be precise
    t = min((LENGTHS / deviation).tolist(), key=line)
    theta = -t * direction
    w = rows.dual_norm.norms(theta[:, None])[:, 0]
    return Origin(theta, zero.b, first_multiplier(t * z + zero.b, rows.y, pi, loss, w, delta))


class Smoothing(NamedTuple):
    """The smoothing eps + kappa lam, and the deviation s = ``scale`` of the reference normal."""

    eps: float = 0.0
    kappa: float = 0.0
    scale: float = np.inf

    def at(self, lam: float) -> tuple[float, float, float]:
        """Return the smoothing e, tau with 1/tau^2 = 2 lam/e + 1/s^2, and dtau/dlam."""
        eps = self.eps + self.kappa * lam
        tau = float(1 / np.sqrt(2 * lam / eps + 1 / self.scale**2))
        return eps, tau, -(tau**3) / eps * (1 - self.kappa * lam / eps)


def smoothed_risk(
    v: Array, rows: DualRows, loss: Loss, smoothing: Smoothing, nodes: int
) -> tuple[float, Array]:
    """Return the objective and its gradient at v = (theta, b, log(w^2/lam)), inf where it is."""
    theta, b = v[:-2], float(v[-2])
    w = float(rows.dual_norm.norms(theta[:, None])[0, 0])
    lam = w**2 / float(np.exp(v[-1]))
    eps, tau, tau_by_lam = smoothing.at(lam)
    G = integrate(loss, rows.design.scores(theta) + b, rows.y, w * tau, eps, nodes)
    if G is None:
        return np.inf, np.zeros_like(v)
    pi, delta = rows.weights[:, 0], float(rows.delta[0])
    by_rho = float(pi @ G.rho)
    by_lam = delta + by_rho * w * tau_by_lam + float(pi @ G.eps) * smoothing.kappa
    grad = np.empty_like(v)
    # w changes rho, and lam = w^2/exp(v) too
    by_w = by_rho * tau + 2 * by_lam * lam / w
    grad[:-2] = rows.design.adjoint(pi * G.z) + by_w / w * theta
    grad[-2] = (pi @ G.z) * rows.fit_intercept
    grad[-1] = -by_lam * lam
    return lam * delta + float(pi @ G.value), grad


def unsmoothed_risk(rows: DualRows, loss: Loss, point: Origin, eps: float) -> tuple[Dual, float]:
    """Return the exact worst-case risk of order 2 of one point in round coordinates, and its gap.

    Rows with two maxima share their mass as at the smoothing ``eps``. A loss with a kink, or one
    that grows faster than linearly and has no pieces, has no lower bound: its gap is inf.
    """
    z = rows.design.scores(point.theta) + point.b
    w = float(np.linalg.norm(point.theta))
    ball = Ball(Norm(2), float(rows.delta[0]))
    dual = worst_risk(z, rows.y, rows.weights[:, 0], loss, w, ball, start=point.lam)
    gap = np.inf
    growth = loss.lipschitz if loss.pieces is None else 0.0
    if np.isfinite(loss.smoothness) and np.isfinite(growth):
        bound = _moved_bound(rows, loss, z, point.b, w, dual.multiplier, eps)
        if loss.pieces is not None and loss.pieces.quadratic:
            bound = max(bound, _root_bound(rows, z) / (2 * loss.pieces.kappa))
        gap = max(dual.risk - bound, 0.0)
    return dual, gap


def _root_bound(rows: DualRows, z: Array) -> float:
    """Return the square of <a, y> at a = e/rms(e) shrunk to |Z'a| <= sqrt(delta).

    a is in the dual of rms(e) + sqrt(delta) w, whose bound holds where residuals nearly vanish.
    """
    pi = rows.weights[:, 0]
    e = rows.y - z
    e = e - (pi @ e) * rows.fit_intercept
    a = e / max(float(np.sqrt(pi @ e**2)), np.finfo(float).tiny)
    size = float(np.linalg.norm(rows.design.adjoint(pi * a)))
    root = float(np.sqrt(rows.delta[0]))
    return max(float(pi @ (a * rows.y)) * root / max(root, size), 0.0) ** 2


def _moved_bound(
    rows: DualRows, loss: Loss, z: Array, b: float, w: float, lam: float, eps: float
) -> float:
    """Return a lower bound on every risk, from rows moved to their maxima at (z, lam)."""
    inner = loss.inner(z, rows.y, w, lam)
    mass = softmax(inner.value / eps)[0] * rows.weights[:, 0]
    reached = z + inner.shift
    y = np.broadcast_to(rows.y, reached.shape)
    slope = loss.derivative(reached, y)
    room = loss.curvature(reached, y)
    if loss.pieces is not None and np.isfinite(loss.pieces.slopes).all():
        # a slope at an end of its range stays there
        low, high = loss.slope_range(y)
        room = (high - slope) * (slope - low)
    atoms = Atoms(mass[..., None], slope[..., None], room[..., None])
    return float(lower_bound(rows, loss, atoms, (reached - b)[..., None])[0])


class LinearSolver(Solver):
    """Quasi-Newton steps at one smoothing after the other, integrals by the trapezoid rule."""

    eps: float
    nodes: int
    tol: float
    max_iter: int
    #: Nodes per row and maximum at least: fewer do not cover a window.
    fewest = 2

    def lacks(self, problem: Problem) -> str | None:
        """Return why the problem has no one-dimensional form, None if it has one."""
        ball, solver = problem.ball, type(self).__name__
        if not ball.cost.euclidean or ball.order != 2 or problem.finite:
            nodes = " and a finite support" if problem.support is not None else ""
            other = "exact" if problem.finite else "smoothed"
            return (
                f"{solver} needs a Euclidean or Mahalanobis cost of order 2 on all of R^d; got "
                f"{ball.cost!r} with order={ball.order}{nodes}. Use order=2, solver='{other}' here."
            )
        if ball.delta == 0:
            return f"{solver} needs delta > 0; delta=0 is plain empirical risk: solver='exact'."
        return None

    def _smoothings(self, problem: Problem) -> list[Smoothing]:
        """Return the smoothings, the last one last."""
        raise NotImplementedError

    def _solve_one(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the point of the least smoothed risk."""
        require(self.lacks(problem), eps=self.eps)
        name = type(self).__name__
        if self.nodes < self.fewest:
            raise ValueError(f"{name} needs nodes >= {self.fewest}, got nodes={self.nodes!r}.")
        loss, at = problem.loss, Coordinates(problem)
        rows = dual_rows(problem, at.design, Round())
        point = origin_on_ray(rows, loss)
        if point is None:
            return constant_solution(problem)
        target = self.tol * problem.constant[1]
        v = np.array([*point.theta, point.b, np.log(point.theta @ point.theta / point.lam)])
        n_iter, curved = 0, np.eye(len(v))
        for smoothing in self._smoothings(problem):
            fixed = (rows, loss, smoothing, self.nodes)
            while not np.isfinite(smoothed_risk(v, *fixed)[0]):
                v[-1] -= np.log(2)
            options: Any = {"maxiter": self.max_iter - n_iter, "gtol": target, "hess_inv0": curved}
            with np.errstate(all="ignore"):
                run = minimize(smoothed_risk, v, fixed, jac=True, method="BFGS", options=options)
            v, curved = run.x, np.asarray(run.hess_inv)
            curved = (curved + curved.T) / 2
            n_iter += int(run.nit)
            logger.info("%s: step %d, risk %.8g", name.lower(), n_iter, run.fun)
            if n_iter >= self.max_iter:
                break
        theta = v[:-2]
        point = Origin(theta, float(v[-2]), float(theta @ theta / np.exp(v[-1])))
        if smoothing.kappa > 0:
            reached, gap = Dual(float(run.fun), point.lam), np.inf
            words = f"Sinkhorn ball of regularisation {smoothing.kappa:.3g}: risk {run.fun:.8g}"
        else:
            reached, gap = unsmoothed_risk(rows, loss, point, smoothing.eps)
            words = (
                f"trapezoid quadrature at eps={smoothing.eps:.3g}: smoothed risk {run.fun:.8g}, "
                f"worst-case risk {reached.risk:.8g}"
            )
        coef, settled = at.coef(theta), n_iter < self.max_iter
        message = (
            f"{words}, gap {gap:.3g}, gradient {np.abs(run.jac).max():.2g} (target {target:.3g})"
        )
        return Solution(
            coef=coef,
            intercept=at.intercept(point.b, coef),
            multiplier=reached.multiplier,
            objective=reached.risk,
            gap=gap,
            n_iter=max(n_iter, 1),
            converged=settled,
            message=message if settled else f"did not settle ({message}); raise eps of {name},",
        )


@dataclass(eq=False, repr=False)
class Quadrature(LinearSolver):
    """Minimise the smoothed worst-case risk by quasi-Newton steps with deterministic integrals.

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
        The largest entry of the last gradient, relative to the risk of the best constant model.
    max_iter : int >= 1, default 1000
        The most quasi-Newton steps, those at all values of eps together.
    """

    fewest = 9

    eps: float = 1e-6
    scale: float = np.inf
    nodes: int = 25
    tol: float = 1e-6
    max_iter: int = 1000

    def lacks(self, problem: Problem) -> str | None:
        """Return why the problem has no one-dimensional form, None if it has one."""
        return super().lacks(problem) or lacks_smooth(problem)

    def _smoothings(self, problem: Problem) -> list[Smoothing]:
        """Return values of eps that fall to the last one."""
        if not self.scale > 0:
            raise ValueError(f"scale must be > 0, got scale={self.scale!r}.")
        base = problem.constant[1]
        final = self.eps * base
        # a loss of quadratic growth keeps lam where the inner problems are concave: no annealing
        eps = [max(COOLING * base, final) if np.isfinite(problem.loss.lipschitz) else final]
        while eps[-1] > final:
            eps.append(max(COOLING * eps[-1], final))
        return [Smoothing(each, scale=self.scale) for each in eps]


@dataclass(eq=False, repr=False)
class Sinkhorn(LinearSolver):
    r"""Minimise the worst-case risk over an entropic transport ball, by quasi-Newton steps.

    .. math:: \min_{\theta, b, \lambda > 0}\ \lambda\delta + \sum_i \pi_i\,\lambda\kappa\log E_g
              \exp\{\ell(z_i'\theta + b + \|\theta\|\sqrt{\kappa/2}\,g, y_i)/(\lambda\kappa)\},

    the worst case over P with
    :math:`\kappa E_i\,KL(P_i \,|\, N(x_i, \tfrac{\kappa}{2}\Lambda^{-1})) \le \delta`: the
    entropic transport cost with regularisation kappa, measured from its least value. It is convex
    in (theta, b, lam), and tends to the transport ball of order 2 as kappa falls.

    Parameters
    ----------
    eps : float > 0, default 0.1
        The regularisation kappa, in units of the cost, relative to delta. The ball tends to the
        transport ball as it falls.
    nodes : int >= 2, default 65
        Nodes of the trapezoid rule per row and maximum; more make the integrals more accurate.
    tol : float >= 0, default 1e-6
        The largest entry of the last gradient, relative to the risk of the best constant model.
    max_iter : int >= 1, default 1000
        The most quasi-Newton steps.
    """

    eps: float = 0.1
    nodes: int = 65
    tol: float = 1e-6
    max_iter: int = 1000

    def _smoothings(self, problem: Problem) -> list[Smoothing]:
        """Return kappa alone."""
        return [Smoothing(kappa=self.eps * problem.ball.delta)]


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
            reached, gap = unsmoothed_risk(rows, loss, Origin(coef, b, lam), run.eps)
            coef = at.coef(coef)
            return run.solution(problem, coef, at.intercept(b, coef), reached, gap)
        b -= float(center @ coef)
        if cost.is_norm:
            w, z = float(cost.dual_norm(coef)), X @ coef + b
            worst: Dual | LocalWorst = worst_risk(
                z, problem.y, problem.weights, loss, w, problem.ball
            )
        else:
            worst = local_worst_risk(problem, coef, b, lam, local)
        return run.solution(problem, coef, b, worst, np.inf)

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
        self,
        problem: Problem,
        coef: Array,
        intercept: float,
        reached: Dual | LocalWorst,
        gap: float,
    ) -> Solution:
        """Return the point with its unsmoothed risk, or the constant model where that is better."""
        e = self.excess
        message = (
            f"smoothed dual, proposal {self.settings.proposal!r} at eps={self.eps:.3g}: risk "
            f"{min(reached.risk, self.base):.6g}, estimated excess {e.size:.2g} "
            f"(noise {e.noise:.2g}), {100 * e.effective:.0f}% of the draws count"
        )
        if self.why:
            message = f"{self.why[0]} ({message}); {self.why[1]} of Smoothed,"
        solution = replace(
            constant_solution(problem), gap=np.inf, n_iter=self.n_iter, converged=self.converged
        )
        if reached.risk > self.base:
            words = f"found nothing better than the constant model: {message}"
            return replace(solution, message=words)
        return replace(
            solution,
            coef=coef,
            intercept=intercept,
            multiplier=reached.multiplier,
            objective=reached.risk,
            gap=gap,
            message=message,
        )
