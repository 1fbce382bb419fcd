r"""The smoothed dual of a linear score and a squared cost without Monte Carlo.

.. math:: F_\varepsilon(\theta, b, \lambda) = \lambda\delta + \sum_i \pi_i\,
          G(z_i'\theta + b, \rho_i),\qquad G(z, \rho) =
          \varepsilon \log E\, e^{\ell(z + \rho g, y)/\varepsilon},

g one standard normal, :math:`\rho_i = w_i\tau`, :math:`\tau^2 = \varepsilon/(2\lambda +
\varepsilon/s^2)` and w_i the dual norm of theta, one for all rows or one per row. G is
:math:`\varepsilon\log E_U e^{(\ell - \lambda c)/\varepsilon}` for :math:`U \sim N(x,
s^2\Lambda^{-1})` and the squared cost c, with the Gaussian term :math:`(\varepsilon d/2)\log(1 +
2\lambda s^2/\varepsilon)` added back: it has no part of the loss in it, but would push lam to
:math:`d\varepsilon/(2\delta)`. As eps falls G tends to the inner supremum, with an error of order
eps whatever the dimension.

Integrals are by the trapezoid rule; ``Quadrature`` takes damped Newton steps along the path of
minimisers of falling eps, from a tenth of the best constant's risk on, and is the reference for
``Smoothed``; ``Sinkhorn`` has the same integrals with eps = lam kappa.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...costs import Norm
from ...design import Design
from ...duality import (
    Atoms,
    DualNorm,
    DualRows,
    Round,
    RowDerivatives,
    ZeroModel,
    first_multiplier,
    least_finite,
    local_threshold,
    lower_bound,
    worst_risk,
    zero_model,
)
from ...duality.ties import newton_step
from ...losses import Loss
from ...problem import Ball, Problem, Solution
from ...progress import logger
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates

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
#: The first smoothing of every solver, relative to the risk of the best constant.
FIRST_EPS = 0.1
#: Lengths, in standard deviations of the scores, among which a start on a ray is chosen.
LENGTHS = np.geomspace(1e-4, 30, 24)
#: Each eps is this share of the one before, where inner problems have several maxima.
COOLING = 1 / 8
#: 2 lam over smoothness w^2 from which on inner problems count as concave: with room for lam to
#: fall with eps.
CONCAVE = 1.6
#: The step of a difference in eps, relative to it.
DIFFERENCE = 1e-4
#: The decrement to reach at an eps before the last, relative to it: near ties a stage must fix the
#: rows' shares, worth eps times their weights, for its tangent to hold.
STAGE = 1e-5
#: The decrement to reach at the last eps, relative to the target.
LAST = 1e-3
#: The share of the way to lam = 0 that a step may go.
WAY = 0.9
#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Rounding of the objective.
ROUNDING = 1e-14
#: Halvings of a step.
HALVINGS = 25


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
    """G of every row with its first and second derivatives in (z, rho), each of shape (n,).

    ``loss`` is the mean of the loss under the normal weighted by exp(l/eps), ``effective`` the
    number of nodes that carry it.
    """

    value: Array
    loss: Array
    z: Array
    rho: Array
    zz: Array
    zr: Array
    rr: Array
    effective: Array


def smoothed_rows(
    loss: Loss, z: Array, y: Array, rho: Any, eps: float, nodes: Nodes
) -> SmoothedRows:
    """Return G and its derivatives: moments of l' under the nodes weighted by exp(l/eps).

    ``rho`` is one number, or one per row for a local cost.
    """
    g = nodes.g
    u = z[:, None] + np.reshape(rho, (-1, 1)) * g
    value, slope, bend = loss.evaluate(u, np.broadcast_to(y[:, None], g.shape))
    p, log_total = softmax(value / eps + nodes.log_weight)
    dz = _mean(p, slope)
    dr = _mean(p, slope * g)
    off_r = slope * g - dr[:, None]
    off_z = slope - dz[:, None]
    p_off_z = p * off_z
    p_bend = p * bend
    # second derivatives: E l'' times powers of g, plus the covariance of the gradient over eps
    return SmoothedRows(
        value=eps * log_total,
        loss=_mean(p, value),
        z=dz,
        rho=dr,
        zz=p_bend.sum(axis=1) + _mean(p_off_z, off_z) / eps,
        zr=_mean(p_bend, g) + _mean(p_off_z, off_r) / eps,
        rr=_mean(p_bend, g * g) + _mean(p * off_r, off_r) / eps,
        effective=1 / _mean(p, p),
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


def integrate(loss: Loss, z: Array, y: Array, rho: Any, eps: float, K: int) -> SmoothedRows | None:
    """Return the integrals of every row by trapezoid nodes, None where G is infinite."""
    # a loss of quadratic growth outgrows the cost where smoothness rho^2 >= eps
    if 2 * least_finite(loss, rho) >= eps:
        return None
    if loss.pieces is not None and loss.pieces.quadratic:
        return _quadratic(z - y, rho, eps, loss.pieces.kappa)
    parts = []
    for start in range(0, len(z), BLOCK):
        rows = slice(start, start + BLOCK)
        width = rho if np.size(rho) == 1 else rho[rows]
        nodes = trapezoid(loss, z[rows], y[rows], width, eps, K)
        parts.append(smoothed_rows(loss, z[rows], y[rows], width, eps, nodes))
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(SmoothedRows)]
    return SmoothedRows(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in names)
    )


def _quadratic(e: Array, rho: Any, eps: float, kappa: float) -> SmoothedRows:
    """Return the integral of e^2/(2 kappa): G = e^2/(2 kappa q) - (eps/2) log q.

    q = 1 - rho^2/(kappa eps); under the weighted normal the error has mean e/q, variance rho^2/q.
    """
    ones = np.ones_like(e)
    q = 1 - rho**2 / (kappa * eps)
    q1 = -2 * rho / (kappa * eps)
    q2 = -2 / (kappa * eps)
    power = e**2 / (2 * kappa * q**2)
    by_q = power + eps / (2 * q)
    return SmoothedRows(
        value=power * q - eps / 2 * np.log(q),
        loss=power + rho**2 / (2 * kappa * q),
        z=e / (kappa * q),
        rho=-q1 * by_q,
        zz=ones / (kappa * q),
        zr=-e * q1 / (kappa * q**2),
        rr=-q2 * by_q + q1**2 * (2 * power / q + eps / (2 * q**2)),
        effective=np.inf * ones,
    )


def trapezoid(loss: Loss, z: Array, y: Array, rho: Any, eps: float, K: int) -> Nodes:
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


def _reach(loss: Loss, z: Array, y: Array, rho: Any, eps: float) -> tuple[Array, Array]:
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


def peaks(loss: Loss, z: Array, y: Array, rho: Any, eps: float) -> Peaks:
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


def dual_rows(problem: Problem, design: Design, dual_norm: DualNorm) -> DualRows:
    """Return the rows of one problem in the coordinates of a design."""
    weights = problem.weights[:, None]
    delta = np.array([problem.ball.delta])
    return DualRows(design, problem.y, weights, delta, problem.fit_intercept, dual_norm)


def spread(lam: float, eps: float, scale: float = np.inf) -> float:
    """Return tau, the width of a unit displacement: 1/tau^2 = 2 lam/eps + 1/scale^2."""
    return float(1 / np.sqrt(2 * lam / eps + 1 / scale**2))


@dataclass(frozen=True, eq=False)
class SmoothedPoint:
    """A triple (theta, b, lam) with its scores z = Z theta + b, dual norms w and objective.

    ``w`` has shape (1,), or (n,) for a local cost.
    """

    theta: Array
    b: float
    lam: float
    z: Array
    w: Array
    rows: SmoothedRows
    objective: float


@dataclass(frozen=True, eq=False)
class SmoothedObjective:
    """The smoothed objective of the rows of one problem at any (theta, b, lam) and eps.

    ``scale`` is the deviation s of the reference normal, ``nodes`` those of an integral.
    """

    rows: DualRows
    loss: Loss
    scale: float
    nodes: int

    @property
    def weights(self) -> Array:
        """The weights of the rows, shape (n,)."""
        return np.asarray(self.rows.weights[:, 0])

    @property
    def delta(self) -> float:
        """The radius."""
        return float(self.rows.delta[0])

    def integrals(self, z: Array, rho: Any, eps: float) -> SmoothedRows | None:
        """Return G of all rows, None where it is infinite."""
        return integrate(self.loss, z, self.rows.y, rho, eps, self.nodes)

    def at(self, theta: Array, b: float, lam: float, z: Array, eps: float) -> SmoothedPoint | None:
        """Return the point, None where the objective is infinite."""
        w = self.rows.dual_norm.norms(theta[:, None])[:, 0]
        rho = w * spread(lam, eps, self.scale)
        # one number where it serves all rows
        rows = self.integrals(z, rho if len(rho) > 1 else float(rho[0]), eps)
        if rows is None:
            return None
        objective = lam * self.delta + float(self.weights @ rows.value)
        return SmoothedPoint(theta, b, lam, z, w, rows, objective)

    def derivatives(self, x: SmoothedPoint, eps: float) -> tuple[Array, Array]:
        """Return gradient (d + 2,) and Hessian in (theta, b, lam)."""
        tau = spread(x.lam, eps, self.scale)
        rates = row_derivatives(x.rows, self.weights, x.w, tau, eps)
        grad, H = self.rows.derivatives(x.theta[:, None], x.w[:, None], rates)
        return grad[0], H[0]


def row_derivatives(
    rows: SmoothedRows, mass: Array, w: Array, tau: float, eps: float
) -> RowDerivatives:
    """Return those of mass G(z, w tau) in (z, w, lam), each of shape (n, 1)."""
    # 1/tau^2 is linear in lam
    tau1 = -(tau**3) / eps
    tau2 = 3 * tau**5 / eps**2
    by_rho = mass * rows.rho
    by_zr = mass * rows.zr
    by_rr = mass * rows.rr
    # d rho/d lam
    rate = w * tau1
    columns = RowDerivatives(
        z=mass * rows.z,
        w=by_rho * tau,
        lam=by_rho * rate,
        zz=mass * rows.zz,
        zw=by_zr * tau,
        zl=by_zr * rate,
        ww=by_rr * tau**2,
        wl=by_rr * tau * rate + by_rho * tau1,
        ll=by_rr * rate**2 + by_rho * w * tau2,
    )
    return RowDerivatives(*(part[:, None] for part in columns))


class Origin(NamedTuple):
    """Where a descent starts."""

    theta: Array
    b: float
    lam: float


def linear_origin(
    rows: DualRows, loss: Loss, at: Coordinates, start: Solution | None
) -> Origin | None:
    """Return a start in round coordinates: the one given, or on the ray against the gradient at 0.

    None where theta = 0 is optimal.
    """
    zero = zero_model(rows.design, rows.y, rows.weights[:, 0], loss, rows.fit_intercept)
    size = float(np.linalg.norm(zero.pull))
    if zero.threshold(size, loss.lipschitz, 2) <= rows.delta[0]:
        return None
    if start is not None and np.any(start.coef):
        theta, b = at.theta(start.coef), at.centred(start.intercept, start.coef)
        if 0 < start.multiplier < np.inf:
            return Origin(theta, b, start.multiplier)
        return _with_multiplier(rows, loss, theta, b)
    rate = float(np.sqrt(rows.delta[0] * zero.mean_square))
    # (Z' diag(pi l'') Z + delta E[l''] I)^-1 g: a ball of radius delta adds a ridge
    curvature = rows.weights * loss.curvature(np.full_like(rows.y, zero.b), rows.y)[:, None]
    H = rows.gram(curvature)[0]
    direction = -newton_step(zero.pull, H + rows.delta[0] * curvature.sum() * np.eye(len(H)))
    if zero.pull @ direction <= rate * np.linalg.norm(direction):
        # only the gradient is sure to descend
        direction = zero.pull
    return _on_ray(rows, loss, zero, direction, rate * float(np.linalg.norm(direction)))


def local_origin(rows: DualRows, loss: Loss, B: Array) -> Origin | None:
    """Return a start for matrices B of shape (n, d, d), None where theta = 0 is optimal."""
    zero = zero_model(rows.design, rows.y, rows.weights[:, 0], loss, rows.fit_intercept)
    threshold, direction = local_threshold(zero, rows.weights[:, 0], B)
    if threshold <= rows.delta[0]:
        return None
    # with C = E[l'^2 B] the direction is C^-1 g, and sqrt(delta v'Cv) the price of a step along v
    return _on_ray(rows, loss, zero, direction, float(np.sqrt(rows.delta[0] * threshold)))


def _on_ray(rows: DualRows, loss: Loss, zero: ZeroModel, direction: Array, price: float) -> Origin:
    """Return the point theta = -t v where mean l + price t is least, v the direction.

    ``price`` is sqrt(delta) times the root mean square of w l' at v, were every slope as at zero.
    """
    pi = rows.weights[:, 0]
    z = rows.design.scores(-direction)

    def line(t: float) -> float:
        return float(pi @ loss.value(t * z + zero.b, rows.y)) + price * t

    deviation = float(np.sqrt(pi @ (z - pi @ z) ** 2 + np.finfo(float).tiny))
    # a start need not be precise
    t = min((LENGTHS / deviation).tolist(), key=line)
    return _with_multiplier(rows, loss, -t * direction, zero.b)


def _with_multiplier(rows: DualRows, loss: Loss, theta: Array, b: float) -> Origin:
    """Return the point with a lam near its best."""
    w = rows.dual_norm.norms(theta[:, None])[:, 0]
    z = rows.design.scores(theta) + b
    lam = first_multiplier(z, rows.y, rows.weights[:, 0], loss, w, float(rows.delta[0]))
    return Origin(theta, b, lam)


@dataclass(eq=False)
class NewtonRun:
    """The last point, the smoothing there, the steps taken, and whether Newton's method settled."""

    x: SmoothedPoint
    eps: float
    n_iter: int
    settled: bool


def descend(
    objective: SmoothedObjective,
    origin: Origin,
    eps: float,
    final: float,
    target: float,
    max_iter: int,
) -> NewtonRun:
    """Minimise at eps, and at smaller and smaller ones, each from the solution before."""
    z = objective.rows.design.scores(origin.theta) + origin.b
    x = _finite(objective, origin, z, eps)
    n_iter = 0
    while True:
        last = target if eps <= final else None
        run = _minimise(objective, x, eps, last, max_iter - n_iter)
        n_iter += run.n_iter
        logger.info(
            "newton: step %d, eps %.3g, lam %.4g, smoothed risk %.8g",
            n_iter,
            eps,
            run.x.lam,
            run.x.objective,
        )
        if eps <= final or n_iter >= max_iter:
            return NewtonRun(run.x, float(eps), max(n_iter, 1), run.settled and eps <= final)
        new = final if concave(objective, run.x) else max(final, COOLING * eps)
        x = _predicted(objective, run.x, eps, new)
        eps = new


def concave(objective: SmoothedObjective, x: SmoothedPoint) -> bool:
    """Whether every inner problem is, 2 lam > smoothness w^2, with room."""
    return bool(2 * x.lam > CONCAVE * objective.loss.smoothness * x.w.max() ** 2)


def _predicted(
    objective: SmoothedObjective, x: SmoothedPoint, eps: float, new: float
) -> SmoothedPoint:
    """Return the point of the tangent to the path of minimisers x(eps) at the smaller eps ``new``,
    or x itself where that is lower: H x'(eps) = -dgrad/deps.

    Rows that two maxima share keep their shares along the path, which is straight near eps = 0: the
    values of the two differ by a multiple of eps.
    """
    still = _finite(objective, Origin(x.theta, x.b, x.lam), x.z, new)
    if concave(objective, x):
        return still
    below = eps * (1 - DIFFERENCE)
    near = objective.at(x.theta, x.b, x.lam, x.z, below)
    if near is None:
        return still
    grad, H = objective.derivatives(x, eps)
    change = (grad - objective.derivatives(near, below)[0]) / (DIFFERENCE * eps)
    ahead = _line(objective, x, newton_step(grad + (new - eps) * change, H), new)(1.0)
    return still if ahead is None or ahead.objective > still.objective else ahead


def _finite(objective: SmoothedObjective, origin: Origin, z: Array, eps: float) -> SmoothedPoint:
    """Return the point, lam doubled until the objective is finite."""
    theta, b, lam = origin
    while (x := objective.at(theta, b, lam, z, eps)) is None:
        lam *= 2
    return x


def _minimise(
    objective: SmoothedObjective, x: SmoothedPoint, eps: float, target: float | None, max_iter: int
) -> NewtonRun:
    """Take damped Newton steps until the decrement is small enough, or rounding stops it.

    ``target`` is that of the last eps, None before it.
    """
    for n_iter in range(1, max_iter + 1):
        grad, H = objective.derivatives(x, eps)
        move = newton_step(grad, H)
        descent = float(grad @ move)
        new = _line_search(objective, x, move, descent, eps)
        enough = STAGE * eps if target is None else LAST * target
        # the step after a small decrement costs no derivatives, and squares what is left
        if -descent <= enough:
            return NewtonRun(x if new is None else new, eps, n_iter, True)
        if new is None:
            return NewtonRun(x, eps, n_iter, target is not None and -descent <= target)
        x = new
    return NewtonRun(x, eps, max_iter, False)


def _line(
    objective: SmoothedObjective, x: SmoothedPoint, move: Array, eps: float
) -> Callable[[float], SmoothedPoint | None]:
    """Return the points along a move as a function of the length, lam kept positive."""
    d = objective.rows.design.d
    dtheta = move[:d]
    db = float(move[d])
    dlam = float(move[-1])
    dz = objective.rows.design.scores(dtheta) + db
    # rows with two maxima tie at a margin proportional to the level w^2/lam: moved linearly, as
    # margins are, it keeps tied rows tied along the whole step
    smoothness = objective.loss.smoothness
    tied = np.isfinite(smoothness) and 2 * x.lam < smoothness * x.w.max() ** 2
    base = x.lam
    change = dlam
    if tied:
        square = _product(objective, x.theta, x.theta)
        base = square / x.lam
        change = base * (2 * _product(objective, x.theta, dtheta) / square - dlam / x.lam)
    longest = min(1.0, -WAY * base / change) if change < 0 else 1.0

    def at(length: float) -> SmoothedPoint | None:
        t = length * longest
        theta = x.theta + t * dtheta
        lam = base + t * change
        if tied:
            lam = _product(objective, theta, theta) / lam
        return objective.at(theta, x.b + t * db, lam, x.z + t * dz, eps)

    return at


def _product(objective: SmoothedObjective, theta: Array, other: Array) -> float:
    """Return the inner product of the dual norm, averaged over rows."""
    return float(objective.rows.dual_norm.product(theta[:, None], other[:, None])[0])


def _line_search(
    objective: SmoothedObjective, x: SmoothedPoint, move: Array, descent: float, eps: float
) -> SmoothedPoint | None:
    """Return the point after the longest step 1, 1/2, ... that descends, None if none does."""
    at = _line(objective, x, move, eps)
    length = 1.0
    for _ in range(HALVINGS):
        new = at(length)
        slack = ARMIJO * length * descent + ROUNDING * abs(x.objective)
        if new is not None and new.objective <= x.objective + slack:
            return new
        length /= 2
    return None


@dataclass(frozen=True, eq=False)
class Unsmoothed:
    """The worst-case ``risk`` at a point, its ``multiplier``, a bound on its excess (inf: none)."""

    risk: float
    multiplier: float
    gap: float


def unsmoothed_risk(
    rows: DualRows, loss: Loss, theta: Array, b: float, lam: float, eps: float
) -> Unsmoothed:
    """Return the exact worst-case risk of order 2 of one point, in round coordinates.

    ``lam`` is where to look for the multiplier first; rows with two maxima share their mass as at
    the smoothing ``eps``. A loss with a kink, or one that grows faster than linearly and has no
    pieces, has no lower bound: its gap is inf.
    """
    z = rows.design.scores(theta) + b
    w = float(rows.dual_norm.norms(theta[:, None])[0, 0])
    ball = Ball(Norm(2), float(rows.delta[0]))
    dual = worst_risk(z, rows.y, rows.weights[:, 0], loss, w, ball, start=lam)
    gap = np.inf
    growth = loss.lipschitz if loss.pieces is None else 0.0
    if np.isfinite(loss.smoothness) and np.isfinite(growth):
        bound = moved_bound(rows, loss, z, b, w, dual.multiplier, eps)
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
    rows: DualRows, loss: Loss, z: Array, b: float, w: Any, lam: float, eps: float
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
    """Minimise the smoothed worst-case risk by Newton's method with deterministic integrals.

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
        The last Newton decrement, relative to the risk of the best constant model.
    max_iter : int >= 1, default 1000
        The most Newton steps, those at all values of eps together.
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
        at = Coordinates(problem)
        rows = dual_rows(problem, at.design, Round())
        origin = linear_origin(rows, problem.loss, at, start)
        if origin is None:
            return constant_solution(problem)
        objective = SmoothedObjective(rows, problem.loss, self.scale, self.nodes)
        base = constant_risk(problem)[1]
        final = self.eps * base
        # a loss of quadratic growth keeps lam where the inner problems are concave: no annealing
        eps = final if np.isinf(problem.loss.lipschitz) else max(FIRST_EPS * base, final)
        run = descend(objective, origin, eps, final, self.tol * base, self.max_iter)
        point = unsmoothed_risk(rows, problem.loss, run.x.theta, run.x.b, run.x.lam, run.eps)
        coef = at.coef(run.x.theta)
        message = (
            f"trapezoid quadrature at eps={run.eps:.3g}: smoothed risk {run.x.objective:.8g}, "
            f"worst-case risk {point.risk:.8g}, gap {point.gap:.3g} (target {self.tol * base:.3g})"
        )
        return Solution(
            coef=coef,
            intercept=at.intercept(run.x.b, coef),
            multiplier=point.multiplier,
            objective=point.risk,
            gap=point.gap,
            n_iter=run.n_iter,
            converged=run.settled,
            message=message
            if run.settled
            else f"did not settle ({message}); raise eps of Quadrature,",
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
        origin = linear_origin(rows, problem.loss, at, start)
        if origin is None:
            return constant_solution(problem)
        kappa = self.eps * problem.ball.delta
        fixed = (rows, problem.loss, kappa, self.nodes)
        first = np.concatenate([origin.theta, [origin.b, np.log(origin.lam)]])
        while not np.isfinite(sinkhorn_risk(first, *fixed)[0]):
            first[-1] += np.log(2)
        tolerance = self.tol * constant_risk(problem)[1]
        options: Any = {"maxiter": self.max_iter, "gtol": tolerance, "ftol": ROUNDING}
        run = minimize(sinkhorn_risk, first, fixed, jac=True, method="L-BFGS-B", options=options)
        logger.info("sinkhorn: step %d, risk %.8g", run.nit, run.fun)
        coef = at.coef(run.x[:-2])
        settled = bool(run.nit < self.max_iter)
        message = (
            f"Sinkhorn ball of regularisation {kappa:.3g}: risk {run.fun:.8g}, gradient "
            f"{np.abs(run.jac).max():.2g}; no gap"
        )
        return Solution(
            coef=coef,
            intercept=at.intercept(float(run.x[-2]), coef),
            multiplier=float(np.exp(run.x[-1])),
            objective=float(run.fun),
            gap=np.inf,
            n_iter=max(int(run.nit), 1),
            converged=settled,
            message=message if settled else f"did not settle ({message})",
        )


def sinkhorn_risk(
    v: Array, rows: DualRows, loss: Loss, kappa: float, nodes: int
) -> tuple[float, Array]:
    """Return the objective and its gradient at v = (theta, b, log lam), inf where it is."""
    theta = v[:-2]
    lam = float(np.exp(v[-1]))
    w = float(rows.dual_norm.norms(theta[:, None])[0, 0])
    root = np.sqrt(kappa / 2)
    z = rows.design.scores(theta) + float(v[-2])
    G = integrate(loss, z, rows.y, w * root, lam * kappa, nodes)
    if G is None:
        return np.inf, np.zeros_like(v)
    pi = rows.weights[:, 0]
    mean = float(pi @ G.value)
    budget = lam * float(rows.delta[0])
    grad = np.empty_like(v)
    grad[:-2] = rows.design.adjoint(pi * G.z) + (pi @ G.rho) * root / w * theta
    grad[-2] = (pi @ G.z) * rows.fit_intercept
    # d/d log lam of eta log E e^(l/eta), eta = lam kappa, is G minus the weighted mean loss
    grad[-1] = budget + mean - float(pi @ G.loss)
    return budget + mean, grad
