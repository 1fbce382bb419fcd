r"""The smoothed dual of a linear score and a squared cost without Monte Carlo.

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

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...costs import Norm
from ...design import Design
from ...duality import (
    Atoms,
    DualRows,
    Local,
    Round,
    first_multiplier,
    least_finite,
    local_threshold,
    lower_bound,
    worst_risk,
    zero_model,
)
from ...losses import Loss
from ...problem import Ball, Problem, Solution
from ...progress import logger
from ..euclidean.newton import Coordinates
from ..exact import Solver, constant_solution

Array = NDArray[Any]

#: Half the width of a window of nodes, in standard deviations.
WINDOW = 8.0
#: The largest step of the trapezoid rule in standard deviations; error 2 exp(-2 pi^2/step^2).
STEP = 0.7
#: Fewer nodes do not cover a window of eight deviations to either side.
FEWEST_NODES = 9
#: The least curvature of l/eps - g^2/2 at a maximum by which its window is sized: ten deviations.
FLATTEST = 0.01
#: Rows whose nodes are evaluated at a time.
BLOCK = 8192
#: The first smoothing, relative to the risk of the best constant, and the ratio of each smoothing
#: to the one before.
COOLING = 0.1
#: Lengths, in standard deviations of the scores, among which a start on a ray is chosen.
LENGTHS = np.geomspace(1e-4, 30, 24)


def require(lacks: str | None) -> None:
    """Refuse a problem that lacks something."""
    if lacks is not None:
        raise ValueError(lacks)


def require_positive(**parameters: float) -> None:
    """Refuse parameters that are not finite numbers above zero."""
    for name, value in parameters.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a number > 0, got {name}={value!r}.")


def lacks_linear(problem: Problem, solver: str) -> str | None:
    """Return why a problem has no one-dimensional form, None if it has one."""
    ball = problem.ball
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


def lacks_smooth(problem: Problem) -> str | None:
    """Return why a loss with a kink is refused: no node sees its second derivative."""
    if np.isfinite(problem.loss.smoothness):
        return None
    return (
        f"the smoothed dual needs a differentiable loss; {type(problem.loss).__name__} has a kink "
        "(smoothness=inf). Use solver='exact' or 'sinkhorn'."
    )


@dataclass(frozen=True, eq=False)
class Nodes:
    """Points g of shape (n, K), one row per row, and logarithms of weights for the normal."""

    g: Array
    log_weight: Array


@dataclass(frozen=True, eq=False)
class SmoothedRows:
    """G of every row and its derivatives in (z, rho, eps), each of shape (n,)."""

    value: Array
    z: Array
    rho: Array
    eps: Array


def smoothed_rows(
    loss: Loss, z: Array, y: Array, rho: float, eps: float, nodes: Nodes
) -> SmoothedRows:
    """Return G and its derivatives: moments of l and l' under the nodes weighted by exp(l/eps)."""
    u = z[:, None] + rho * nodes.g
    value, slope, _ = loss.evaluate(u, np.broadcast_to(y[:, None], u.shape))
    p, log_total = softmax(value / eps + nodes.log_weight)
    return SmoothedRows(
        value=eps * log_total,
        z=_mean(p, slope),
        rho=_mean(p, slope * nodes.g),
        eps=log_total - _mean(p, value) / eps,
    )


def _mean(p: Array, a: Array) -> Array:
    """Return the sums of p a over the nodes."""
    return np.asarray(np.einsum("nk,nk->n", p, a))


def softmax(log_p: Array) -> tuple[Array, Array]:
    """Return exp(log_p) scaled to sum to 1 along the last axis, and the logarithm of the sum."""
    top = log_p.max(axis=-1, keepdims=True)
    p = np.exp(log_p - top)
    total = p.sum(axis=-1, keepdims=True)
    p /= total
    return p, (top + np.log(total))[..., 0]


def integrate(
    loss: Loss, z: Array, y: Array, rho: float, eps: float, K: int
) -> SmoothedRows | None:
    """Return the integrals of every row by trapezoid nodes, None where G is infinite."""
    # a loss of quadratic growth outgrows the cost where smoothness rho^2 >= eps
    if 2 * least_finite(loss, rho) >= eps:
        return None
    if loss.pieces is not None and loss.pieces.quadratic:
        return _quadratic(z - y, rho, eps, loss.pieces.kappa)
    parts = []
    for start in range(0, len(z), BLOCK):
        rows = slice(start, start + BLOCK)
        nodes = trapezoid(loss, z[rows], y[rows], rho, eps, K)
        parts.append(smoothed_rows(loss, z[rows], y[rows], rho, eps, nodes))
    names = [field.name for field in fields(SmoothedRows)]
    return SmoothedRows(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in names)
    )


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


def trapezoid(loss: Loss, z: Array, y: Array, rho: float, eps: float, K: int) -> Nodes:
    """Return nodes on all of the interval that can carry mass, or, if long, around the maxima."""
    low, high = _reach(loss, z, y, rho, eps)
    if (high - low).max() <= K * STEP:
        return _uniform(low, high, K)
    tops = peaks(loss, z, y, rho, eps)
    low = tops.g - WINDOW * tops.width
    high = tops.g + WINDOW * tops.width
    if len(tops.g) == 1:
        return _uniform(low[0], high[0], K)
    # two windows where they are apart, else one over both, with as many nodes
    left = np.where(tops.exists, low, np.inf).min(axis=0)
    right = np.where(tops.exists, high, -np.inf).max(axis=0)
    half = (right - left) * K / (2 * K - 1)
    apart = tops.exists.all(axis=0) & (low.max(axis=0) > high.min(axis=0))
    low = np.where(apart, low, np.stack([left, left + half]))
    high = np.where(apart, high, np.stack([right - half, right]))
    return _uniform(low, high, K)


def _reach(loss: Loss, z: Array, y: Array, rho: float, eps: float) -> tuple[Array, Array]:
    """Return the interval of g outside which the weighted normal has mass below 1e-14."""
    if np.isinf(loss.lipschitz):
        return np.full_like(z, -np.inf), np.full_like(z, np.inf)
    far = loss.lipschitz * rho**2 / eps + WINDOW * rho
    # l' lies between its values at -far and +far, and a slope l' moves the normal by rho l'/eps
    low = rho / eps * loss.derivative(z - far, y)
    high = rho / eps * loss.derivative(z + far, y)
    return low - WINDOW, high + WINDOW


@dataclass(frozen=True, eq=False)
class Peaks:
    """Maximisers g of l/eps - g^2/2, their widths, and which of them exist; a row per branch."""

    g: Array
    width: Array
    exists: Array


def peaks(loss: Loss, z: Array, y: Array, rho: float, eps: float) -> Peaks:
    """Return the maxima; where one of two is missing, the place that the loss gives for it."""
    inner = loss.inner(z, y, rho, eps / 2)
    g = inner.shift / rho
    curvature = loss.curvature(z + inner.shift, np.broadcast_to(y, g.shape))
    flat = np.clip(1 - curvature * rho**2 / eps, FLATTEST, 1.0)
    return Peaks(g, 1 / np.sqrt(flat), np.isfinite(inner.value))


def _uniform(low: Array, high: Array, K: int) -> Nodes:
    """Return K nodes on the interval of each row, or on each of its two intervals."""
    fraction = np.linspace(0, 1, K).reshape(-1, *(1,) * low.ndim)
    # one row per column in memory, so that sums over nodes are sums of vectors
    g = low + (high - low) * fraction
    log = np.log((high - low) / (K - 1)) - 0.5 * np.log(2 * np.pi) - g**2 / 2
    n = low.shape[-1]
    return Nodes(g.reshape(-1, n).T, log.reshape(-1, n).T)


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
    return origin_at(rows, loss, -t * direction, zero.b)


def origin_at(rows: DualRows, loss: Loss, theta: Array, b: float) -> Origin:
    """Return a point with a lam near its best."""
    w = rows.dual_norm.norms(theta[:, None])[:, 0]
    z = rows.design.scores(theta) + b
    lam = first_multiplier(z, rows.y, rows.weights[:, 0], loss, w, float(rows.delta[0]))
    return Origin(theta, b, lam)


class Smoothing(NamedTuple):
    """The smoothing eps and the deviation tau of a unit displacement at lam, with derivatives."""

    eps: float
    tau: float
    eps_by_lam: float
    tau_by_lam: float


def reference_smoothing(lam: float, eps: float, scale: float = np.inf) -> Smoothing:
    """Return that of a fixed eps, 1/tau^2 = 2 lam/eps + 1/scale^2."""
    tau = float(1 / np.sqrt(2 * lam / eps + 1 / scale**2))
    return Smoothing(eps, tau, 0.0, -(tau**3) / eps)


def entropic_smoothing(lam: float, kappa: float) -> Smoothing:
    """Return that of an entropic ball: eps = lam kappa, and tau does not depend on lam."""
    return Smoothing(lam * kappa, float(np.sqrt(kappa / 2)), kappa, 0.0)


def smoothed_risk(
    v: Array, rows: DualRows, loss: Loss, smoothing: Callable[[float], Smoothing], nodes: int
) -> tuple[float, Array]:
    """Return the objective and its gradient at v = (theta, b, log(w^2/lam)), inf where it is."""
    theta, b = v[:-2], float(v[-2])
    w = float(rows.dual_norm.norms(theta[:, None])[0, 0])
    lam = w**2 / float(np.exp(v[-1]))
    at = smoothing(lam)
    G = integrate(loss, rows.design.scores(theta) + b, rows.y, w * at.tau, at.eps, nodes)
    if G is None:
        return np.inf, np.zeros_like(v)
    pi, delta = rows.weights[:, 0], float(rows.delta[0])
    by_rho = float(pi @ G.rho)
    by_lam = delta + by_rho * w * at.tau_by_lam + float(pi @ G.eps) * at.eps_by_lam
    grad = np.empty_like(v)
    # w changes rho, and lam = w^2/exp(v) too
    by_w = by_rho * at.tau + 2 * by_lam * lam / w
    grad[:-2] = rows.design.adjoint(pi * G.z) + by_w / w * theta
    grad[-2] = (pi @ G.z) * rows.fit_intercept
    grad[-1] = -by_lam * lam
    return lam * delta + float(pi @ G.value), grad


class SmoothedMinimum(NamedTuple):
    """A point, its smoothed risk, the steps taken and the largest entry of the gradient there."""

    theta: Array
    b: float
    lam: float
    risk: float
    n_iter: int
    gradient: float
    inverse_hessian: Array


def minimise_smoothed(
    rows: DualRows,
    loss: Loss,
    origin: Origin,
    smoothing: Callable[[float], Smoothing],
    nodes: int,
    gtol: float,
    max_iter: int,
    inverse_hessian: Array | None = None,
) -> SmoothedMinimum:
    """Return the minimum near an origin, whose lam is doubled until the objective is finite.

    ``inverse_hessian`` is that of a problem nearby, with which BFGS starts.
    """
    theta, b, lam = origin
    square = float(theta @ theta)
    fixed = (rows, loss, smoothing, nodes)
    start = np.concatenate([theta, [b, np.log(square / lam)]])
    while not np.isfinite(smoothed_risk(start, *fixed)[0]):
        start[-1] -= np.log(2)
    options: Any = {"maxiter": max_iter, "gtol": gtol, "hess_inv0": inverse_hessian}
    with np.errstate(all="ignore"):
        run = minimize(smoothed_risk, start, fixed, jac=True, method="BFGS", options=options)
    theta = run.x[:-2]
    curved = np.asarray(run.hess_inv)
    return SmoothedMinimum(
        theta=theta,
        b=float(run.x[-2]),
        lam=float(theta @ theta / np.exp(run.x[-1])),
        risk=float(run.fun),
        n_iter=int(run.nit),
        gradient=float(np.abs(run.jac).max()),
        inverse_hessian=(curved + curved.T) / 2,
    )


@dataclass(frozen=True, eq=False)
class Unsmoothed:
    """The worst-case ``risk`` at a point, its ``multiplier``, a bound on its excess (inf: none)."""

    risk: float
    multiplier: float
    gap: float


def unsmoothed_risk(rows: DualRows, loss: Loss, point: Origin, eps: float) -> Unsmoothed:
    """Return the exact worst-case risk of order 2 of one point, in round coordinates.

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
        bound = moved_bound(rows, loss, z, point.b, w, dual.multiplier, eps)
        if loss.pieces is not None and loss.pieces.quadratic:
            bound = max(bound, _root_bound(rows, z) / (2 * loss.pieces.kappa))
        gap = max(dual.risk - bound, 0.0)
    return Unsmoothed(dual.risk, dual.multiplier, gap)


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


def moved_bound(
    rows: DualRows, loss: Loss, z: Array, b: float, w: float, lam: float, eps: float
) -> float:
    """Return a lower bound on every risk, from rows moved to their maxima at (z, lam)."""
    inner = loss.inner(z, rows.y, w, lam)
    mass = softmax(inner.value.T / eps)[0].T * rows.weights[:, 0]
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


@dataclass(eq=False, repr=False)
class Quadrature(Solver):
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
        require_positive(eps=self.eps)
        if not self.scale > 0:
            raise ValueError(f"scale must be > 0, got scale={self.scale!r}.")
        if self.nodes < FEWEST_NODES:
            raise ValueError(f"Quadrature needs nodes >= {FEWEST_NODES}, got nodes={self.nodes!r}.")
        require(self.lacks(problem))
        loss, at = problem.loss, Coordinates(problem)
        rows = dual_rows(problem, at.design, Round())
        origin = _origin(rows, loss, at, start)
        if origin is None:
            return constant_solution(problem)
        base = problem.constant[1]
        final, target = self.eps * base, self.tol * base
        # a loss of quadratic growth keeps lam where the inner problems are concave: no annealing
        eps = final if np.isinf(loss.lipschitz) else max(COOLING * base, final)
        n_iter = 0
        curved = None
        while True:
            smoothing = partial(reference_smoothing, eps=eps, scale=self.scale)
            left = self.max_iter - n_iter
            best = minimise_smoothed(
                rows, loss, origin, smoothing, self.nodes, target, left, curved
            )
            curved = best.inverse_hessian
            n_iter += best.n_iter
            origin = Origin(best.theta, best.b, best.lam)
            logger.info("quadrature: step %d, eps %.3g, risk %.8g", n_iter, eps, best.risk)
            if eps <= final or n_iter >= self.max_iter:
                break
            eps = max(COOLING * eps, final)
        point = unsmoothed_risk(rows, loss, origin, eps)
        settled = eps <= final and n_iter < self.max_iter
        coef = at.coef(best.theta)
        message = (
            f"trapezoid quadrature at eps={eps:.3g}: smoothed risk {best.risk:.8g}, worst-case "
            f"risk {point.risk:.8g}, gap {point.gap:.3g}, gradient {best.gradient:.2g} (target "
            f"{target:.3g})"
        )
        return Solution(
            coef=coef,
            intercept=at.intercept(best.b, coef),
            multiplier=point.multiplier,
            objective=point.risk,
            gap=point.gap,
            n_iter=max(n_iter, 1),
            converged=settled,
            message=message if settled else f"did not settle ({message}); raise eps of Quadrature,",
        )


@dataclass(eq=False, repr=False)
class Sinkhorn(Solver):
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

    def lacks(self, problem: Problem) -> str | None:
        """Return why the problem has no one-dimensional form, None if it has one."""
        return lacks_linear(problem, "Sinkhorn")

    def _solve_one(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the minimiser; ``objective`` is the Sinkhorn risk, without a gap."""
        require_positive(eps=self.eps)
        require(self.lacks(problem))
        at = Coordinates(problem)
        rows = dual_rows(problem, at.design, Round())
        origin = _origin(rows, problem.loss, at, start)
        if origin is None:
            return constant_solution(problem)
        kappa = self.eps * problem.ball.delta
        best = minimise_smoothed(
            rows,
            problem.loss,
            origin,
            partial(entropic_smoothing, kappa=kappa),
            self.nodes,
            self.tol * problem.constant[1],
            self.max_iter,
        )
        logger.info("sinkhorn: step %d, risk %.8g", best.n_iter, best.risk)
        coef = at.coef(best.theta)
        settled = best.n_iter < self.max_iter
        message = (
            f"Sinkhorn ball of regularisation {kappa:.3g}: risk {best.risk:.8g}, gradient "
            f"{best.gradient:.2g}; no gap"
        )
        return Solution(
            coef=coef,
            intercept=at.intercept(best.b, coef),
            multiplier=best.lam,
            objective=best.risk,
            gap=np.inf,
            n_iter=max(best.n_iter, 1),
            converged=settled,
            message=message if settled else f"did not settle ({message})",
        )


def _origin(rows: DualRows, loss: Loss, at: Coordinates, start: Solution | None) -> Origin | None:
    """Return the point of a solution near the one asked for, or one on a ray; None: theta = 0."""
    ray = origin_on_ray(rows, loss)
    if ray is None or start is None or not np.any(start.coef):
        return ray
    theta, b = at.theta(start.coef), at.centred(start.intercept, start.coef)
    return origin_at(rows, loss, theta, b)
