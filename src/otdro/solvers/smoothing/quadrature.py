r"""The smoothed dual without Monte Carlo, for linear scores and squared Euclidean costs.

.. math:: \min_{\theta, b, \lambda}\ \lambda\delta + \sum_i \pi_i\,\varepsilon\log E_g
          \exp\{\ell(z_i'\theta + b + \rho g, y_i)/\varepsilon\},\qquad
          \rho^2 = \|\theta\|^2\,\varepsilon/(2\lambda + \varepsilon/s^2),

one-dimensional integrals by the trapezoid rule, damped Newton, and eps annealed from a tenth of the
best constant's risk along the path of minimisers. The reference for ``Smoothed``, and a solver by
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ...problem import Problem, Solution
from ..base import Solver, constant_risk, constant_solution
from ..euclidean.coordinates import Coordinates
from .gaussian_integral import integrate
from .smoothed_dual import Point, Rows, derivatives, first, multiplier, spread
from .unsmoothed import assess

Array = NDArray[Any]


class Quadrature(Solver):
    """Minimise the smoothed worst-case risk by Newton's method with deterministic integrals.

    Parameters
    ----------
    eps : float > 0
        The last smoothing, relative to the risk of the best constant model.
    scale : float > 0
        The standard deviation s of the reference normal N(x, s^2 Lam^-1), in units of the cost;
        inf leaves the shape to the cost alone.
    nodes : int >= 9
        Nodes of the trapezoid rule a row and maximum.
    tol : float
        The last Newton decrement, relative to the same risk.
    max_iter : int
        Newton steps in all.
    """

    def __init__(
        self,
        eps: float = 1e-6,
        scale: float = np.inf,
        nodes: int = 25,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> None:
        self.eps = eps
        self.scale = scale
        self.nodes = nodes
        self.tol = tol
        self.max_iter = max_iter

    def solve(self, problem: Problem, start: Solution | None = None) -> Solution:
        """Return the minimiser of the smoothed risk with its unsmoothed risk and gap."""
        self._check()
        require_linear(problem, "Quadrature")
        require_smooth(problem)
        at, base = Coordinates(problem), constant_risk(problem)[1]
        rows = Rows(
            at.design,
            problem.y,
            problem.weights,
            problem.loss,
            problem.ball.delta,
            problem.fit_intercept,
        )
        origin = opening(rows, at, start)
        if origin is None:
            return constant_solution(problem)
        smooth = Smoothing(rows, self.scale, self.nodes)
        final = self.eps * base
        # a loss of quadratic growth keeps lam where the inner problems are concave: no annealing
        eps = final if np.isinf(problem.loss.lipschitz) else max(0.1 * base, final)
        run = descend(smooth, origin, eps, final, self.tol * base, self.max_iter)
        return _solution(problem, at, run, self.tol * base)

    def _check(self) -> None:
        if not (np.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"eps must be a number > 0, got eps={self.eps!r}.")
        if not self.scale > 0:
            raise ValueError(f"scale must be > 0, got scale={self.scale!r}.")
        if self.nodes < 9:
            raise ValueError(f"Quadrature needs nodes >= 9, got nodes={self.nodes!r}.")


def require_linear(problem: Problem, who: str) -> None:
    """Refuse what has no one-dimensional form."""
    ball = problem.ball
    if not ball.cost.euclidean or ball.order != 2 or problem.support is not None:
        raise ValueError(
            f"{who} needs a Euclidean or Mahalanobis cost of order 2 on all of R^d; got "
            f"{ball.cost!r} with order={ball.order}"
            f"{'' if problem.support is None else ' and a finite support'}. Use order=2, "
            f"solver='{'exact' if problem.finite else 'smoothed'}' here."
        )
    if ball.delta == 0:
        raise ValueError(f"{who} needs delta > 0; delta=0 is plain empirical risk: solver='exact'.")


def require_smooth(problem: Problem) -> None:
    """Refuse a loss with a kink, whose second derivative no node sees."""
    if not np.isfinite(problem.loss.smoothness):
        raise ValueError(
            f"the smoothed dual needs a differentiable loss; {type(problem.loss).__name__} has a "
            "kink (smoothness=inf). Use solver='exact' or 'sinkhorn'."
        )


def concave(x: Point, rows: Rows) -> bool:
    """Whether every inner problem is, 2 lam > smoothness w^2, with room to fall with eps."""
    return bool(2 * x.lam > 1.6 * rows.loss.smoothness * x.w**2)


def cooler(eps: float, final: float, x: Point, rows: Rows) -> float:
    """Return the next smoothing: the last one if every inner problem is concave, else an eighth."""
    return final if concave(x, rows) else max(final, eps / 8)


def opening(
    rows: Rows, at: Coordinates, start: Solution | None
) -> tuple[Array, float, float] | None:
    """Return (theta, b, lam) to start from: the one given, or a point on the first gradient."""
    ray = first(rows)
    if ray is None or start is None or not np.any(start.coef):
        return ray
    theta, b = at.theta(start.coef), at.centred(start.intercept, start.coef)
    z = rows.design.scores(theta) + b
    lam = multiplier(rows, z, float(np.linalg.norm(theta)))
    return theta, b, start.multiplier if 0 < start.multiplier < np.inf else lam


@dataclass(frozen=True, eq=False)
class Smoothing:
    """The smoothed objective of some rows at any (theta, b, lam) and eps."""

    rows: Rows
    scale: float
    nodes: int

    def at(self, theta: Array, b: float, lam: float, z: Array, eps: float) -> Point | None:
        """Return the point, None where the objective is infinite."""
        w = float(np.linalg.norm(theta))
        rho = w * spread(lam, eps, self.scale)
        tilt = integrate(self.rows.loss, z, self.rows.y, rho, eps, self.nodes)
        if tilt is None:
            return None
        objective = lam * self.rows.delta + float(self.rows.weights @ tilt.value)
        return Point(theta, b, lam, z, tilt, objective, w)

    def derivatives(self, x: Point, eps: float) -> tuple[Array, Array]:
        """Return gradient and Hessian in (theta, b, lam)."""
        return derivatives(self.rows, x, eps, self.scale)


@dataclass(eq=False)
class Run:
    """The last point, the smoothing there, the steps taken, and whether Newton's method settled."""

    x: Point
    eps: float
    n_iter: int
    settled: bool


def descend(
    smooth: Smoothing,
    origin: tuple[Array, float, float],
    eps: float,
    final: float,
    target: float,
    max_iter: int,
) -> Run:
    """Minimise at eps, and at smaller and smaller ones, each from the solution before."""
    theta, b, lam = origin
    z = smooth.rows.design.scores(theta) + b
    n_iter, x = 0, _finite(smooth, theta, b, lam, z, eps)
    while True:
        last = target if eps <= final else None
        x, steps, settled = _minimise(smooth, x, eps, last, max_iter - n_iter)
        n_iter += steps
        if eps <= final or n_iter >= max_iter:
            return Run(x, float(eps), max(n_iter, 1), settled and eps <= final)
        new = cooler(eps, final, x, smooth.rows)
        x, eps = predicted(smooth, x, eps, new), new


def predicted(smooth: Smoothing, x: Point, eps: float, new: float) -> Point:
    """Return the point of the tangent to the path of minimisers x(eps) at the smaller eps ``new``,
    or x itself where that is lower: H x'(eps) = -dgrad/deps.

    Rows that two maxima share keep their shares along the path, which is straight near eps = 0: the
    values of the two differ by a multiple of eps.
    """
    still = _finite(smooth, x.theta, x.b, x.lam, x.z, new)
    if concave(x, smooth.rows):
        return still
    near = smooth.at(x.theta, x.b, x.lam, x.z, eps * (1 - 1e-4))
    if near is None:
        return still
    grad, H = smooth.derivatives(x, eps)
    bend = (grad - smooth.derivatives(near, eps * (1 - 1e-4))[0]) / (1e-4 * eps)
    ahead = step(smooth, x, newton_step(grad + (new - eps) * bend, H), new)(1.0)
    return still if ahead is None or ahead.objective > still.objective else ahead


def _finite(smooth: Smoothing, theta: Array, b: float, lam: float, z: Array, eps: float) -> Point:
    """Return the point, lam doubled until the objective is finite."""
    while (x := smooth.at(theta, b, lam, z, eps)) is None:
        lam *= 2
    return x


def _minimise(
    smooth: Smoothing, x: Point, eps: float, target: float | None, max_iter: int
) -> tuple[Point, int, bool]:
    """Take damped Newton steps until the decrement is within ``enough``, or rounding stops it."""
    for n_iter in range(1, max_iter + 1):
        grad, H = smooth.derivatives(x, eps)
        move = newton_step(grad, H)
        descent = float(grad @ move)
        if -descent <= enough(concave(x, smooth.rows), eps, target):
            return x, n_iter, True
        new = line_search(smooth, x, move, descent, eps)
        if new is x:
            return x, n_iter, target is not None and -descent <= target
        x = new
    return x, max_iter, False


def enough(concave: bool, eps: float, target: float | None) -> float:
    """Return the decrement to reach at eps; ``target`` is that of the last eps, None before it.

    Near ties the last digits are dear, but a stage must fix the rows' shares, worth eps times
    their weights, for its tangent to hold.
    """
    if target is None:
        return 1e-2 * eps if concave else 1e-5 * eps
    return 1e-6 * target if concave else 1e-3 * target


def newton_step(grad: Array, H: Array) -> Array:
    """Return -(H + ridge)^-1 grad with the least ridge that makes the matrix positive definite."""
    scale = np.where(np.diag(H) > 0, np.diag(H), 1.0)
    ridge = 1e-14
    while True:
        try:
            factor = cho_factor(H + ridge * np.diag(scale))
            return -np.asarray(cho_solve(factor, grad, check_finite=False))
        except LinAlgError:
            ridge *= 30


def step(smooth: Smoothing, x: Point, move: Array, eps: float) -> Callable[[float], Point | None]:
    """Return the points along a move as a function of the length, lam kept positive."""
    d = smooth.rows.design.d
    dz = smooth.rows.design.scores(move[:d]) + move[d]
    level = x.w**2 / x.lam
    drift = level * (2 * (x.theta @ move[:d]) / (x.theta @ x.theta) - move[-1] / x.lam)
    # with two maxima a row, rows tie at a margin proportional to w^2/lam: moved linearly, as
    # margins are, it keeps tied rows tied along the whole step
    tied = 2 * x.lam < smooth.rows.loss.smoothness * x.w**2 and np.isfinite(
        smooth.rows.loss.smoothness
    )
    base, change = (level, drift) if tied else (x.lam, move[-1])
    longest = min(1.0, -0.9 * base / change) if change < 0 else 1.0

    def at(length: float) -> Point | None:
        t = length * longest
        theta, mixed = x.theta + t * move[:d], base + t * change
        ratio = float(theta @ theta) / float(x.theta @ x.theta)
        lam = x.w**2 * ratio / mixed if tied else mixed
        return smooth.at(theta, x.b + t * float(move[d]), lam, x.z + t * dz, eps)

    return at


def line_search(smooth: Smoothing, x: Point, move: Array, descent: float, eps: float) -> Point:
    """Return the point after the longest step 1, 1/2, ... that descends."""
    at, length = step(smooth, x, move, eps), 1.0
    for _ in range(25):
        new = at(length)
        slack = 1e-4 * length * descent + 1e-14 * abs(x.objective)
        if new is not None and new.objective <= x.objective + slack:
            return new
        length /= 2
    return x


def _solution(problem: Problem, at: Coordinates, run: Run, target: float) -> Solution:
    coef = at.coef(run.x.theta)
    intercept = at.intercept(run.x.b, coef)
    found = assess(problem, coef, intercept, run.x.lam)
    message = (
        f"trapezoid quadrature at eps={run.eps:.3g}: smoothed risk {run.x.objective:.8g}, "
        f"worst-case risk {found.risk:.8g}, gap {found.gap:.3g} (target {target:.3g})"
    )
    if not run.settled:
        message = f"did not settle ({message}); raise eps of Quadrature,"
    return Solution(
        coef, intercept, found.multiplier, found.risk, found.gap, run.n_iter, run.settled, message
    )
