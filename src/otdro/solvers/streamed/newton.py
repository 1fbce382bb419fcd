r"""Newton's method for one problem of smooth losses at order 1, each iteration one pass.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

A pass takes the value, the gradient and the Newton matrix at the end of a step, the values after
half and a quarter of it, and the dual value of the slopes continued along the step,
:math:`\kappa(a + D\,dz)`, whose pull and scale are known before (see ``solvers/euclidean``). No
number per row is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import AT_THRESHOLD, threshold
from ...problem import Solution
from ...progress import logger
from ..base import duality_gap, verdict
from ..euclidean.newton_matrix import solve_stiffened
from ..euclidean.order_one import ARMIJO, LEAST_BEND, ROUNDING, STILL
from .stream import Constant, Stream
from .sums import NewtonSums

Array = NDArray[Any]

#: The lengths of a step that one pass tries.
LENGTHS = (1.0, 0.5, 0.25)
#: Coefficients are to move by less than this times the root of the relative gap asked for.
SETTLED = 0.1
#: Where none of these descends, the next pass tries this share of the step.
SHORTER = 0.125


@dataclass(frozen=True, eq=False)
class NewtonPoint:
    """A model theta (d,), b, and there: risk, mean slope s, g, H - hh'/m, h, m in theta."""

    theta: Array
    b: float
    risk: float
    s: float
    g: Array
    H: Array
    h: Array
    m: float

    @property
    def w(self) -> float:
        """The norm of theta."""
        return float(np.linalg.norm(self.theta))


@dataclass(frozen=True, eq=False)
class NewtonMove:
    """A step (theta, b), the slope of F along it, and the pull of slopes continued along it."""

    theta: Array
    b: float
    slope: float
    pull: Array

    def times(self, share: float) -> NewtonMove:
        """Return a part of the step; the slopes of all of it stay the dual point."""
        return replace(self, theta=share * self.theta, b=share * self.b, slope=share * self.slope)


@dataclass(frozen=True, eq=False)
class StreamedProblem:
    """One problem over a stream: the factor L of its cost (None: identity) and rho."""

    stream: Stream
    factor: Array | None
    rho: float

    def lift(self, theta: Array) -> Array:
        """Return beta = L theta."""
        return theta if self.factor is None else self.factor @ theta

    def drop(self, g: Array) -> Array:
        """Return L'g."""
        return g if self.factor is None else self.factor.T @ g

    def theta(self, coef: Array) -> Array:
        """Return theta with L theta = beta."""
        return coef if self.factor is None else np.linalg.solve(self.factor, coef)


def solve(
    problem: StreamedProblem, coef: Array, b: float, target: float, max_iter: int
) -> tuple[Solution, float]:
    """Minimise from the model (coef, b) on centred rows until the gap is at most ``target``.

    Returns the solution on the rows as given and its empirical risk.
    """
    stream, lipschitz = problem.stream, problem.stream.loss.lipschitz
    flat = stream.constant()
    size = float(np.linalg.norm(problem.drop(flat.pull)))
    if threshold(size, flat.mean_square, 1.0, order=1) <= problem.rho * (1 + AT_THRESHOLD):
        return _zero(problem, flat, target), flat.risk
    first = _first(problem, coef, b, flat)
    if first is None:
        return _zero(problem, flat, target), flat.risk
    p, gap, n_iter = _descend(problem, first, flat.risk, target, max_iter)
    beta, w = problem.lift(p.theta), p.w
    objective = p.risk + problem.rho * w
    found = Solution(
        coef=beta,
        intercept=p.b - float(stream.center @ beta),
        multiplier=lipschitz * w if w > 0 else 0.0,
        objective=objective,
        gap=gap,
        n_iter=n_iter,
        converged=gap <= target,
        message=verdict(gap, target, n_iter),
    )
    return found, p.risk


def _zero(problem: StreamedProblem, flat: Constant, target: float) -> Solution:
    """Return the constant model; its slopes, shrunk until they are feasible, prove the gap."""
    stream, y = problem.stream, np.array([-1.0, 1.0])
    size = float(np.linalg.norm(problem.drop(flat.pull)))
    kappa = problem.rho / size if size > problem.rho * (1 + AT_THRESHOLD) else 1.0
    a = kappa * stream.loss.derivative(np.full(2, flat.b), y)
    mass = stream.mass()
    gap = duality_gap(flat.risk, -float(mass @ stream.loss.conjugate(a, y)) / float(mass.sum()))
    clause = "the constant model is optimal at this delta"
    if kappa < 1:
        clause = verdict(gap, target, 1)
    zero = np.zeros(stream.chunks.d)
    return Solution(zero, flat.b, 0.0, flat.risk, gap, 1, gap <= target, clause)


def _first(problem: StreamedProblem, coef: Array, b: float, flat: Constant) -> NewtonPoint | None:
    """Return where to start: F is below that of beta = 0; None where it falls by rounding only."""
    p = _at(problem, problem.theta(coef), b)
    if p.w > 0 and p.risk + problem.rho * p.w < flat.risk:
        return p
    return _along_gradient(problem, flat)


def _descend(
    problem: StreamedProblem, p: NewtonPoint, flat: float, target: float, max_iter: int
) -> tuple[NewtonPoint, float, int]:
    """Return the last point, its gap and the number of steps."""
    lower, gap, n_iter, share, more = 0.0, np.inf, 0, 1.0, True
    move, fine = _newton(problem, p), SETTLED * np.sqrt(target / flat)
    while n_iter < max_iter and share > STILL:
        n_iter += 1
        new, value, length, dual = _pass(problem, p, move.times(share), move)
        # the slopes along a part of the step need not be feasible
        lower = max(lower, dual) if share == 1 else lower
        gap = duality_gap(value, lower)
        logger.info("pass %d: risk %.9g, gap %.3g", problem.stream.chunks.passes, value, gap)
        if length == 0:
            share *= SHORTER
            continue
        p = new if length == 1 else _at(problem, new.theta, new.b)
        move, share = _newton(problem, p), 1.0
        moves = _longest(move.theta) / _longest(p.theta)
        # the gap is quadratic in the coefficients: one more step where these are not settled
        if moves <= STILL or (gap <= target and (moves <= fine or not more)):
            break
        more = more and gap > target
    return p, gap, n_iter


def _longest(v: Array) -> float:
    return float(np.abs(v).max(initial=0.0))


def _newton(problem: StreamedProblem, p: NewtonPoint) -> NewtonMove:
    """Return the Newton step with the intercept eliminated."""
    u, rho = p.theta / p.w, problem.rho
    s = p.s if problem.stream.fit_intercept else 0.0
    balanced = p.g - p.h * (s / p.m)
    stiffness = np.array([rho / p.w])
    step = solve_stiffened(p.H[None], stiffness, u[:, None], -(balanced + rho * u)[:, None])[:, 0]
    db = -(s + p.h @ step) / p.m if problem.stream.fit_intercept else 0.0
    slope = float((p.g + rho * u) @ step + p.s * db)
    return NewtonMove(step, float(db), slope, balanced + p.H @ step)


def _pass(
    problem: StreamedProblem, p: NewtonPoint, part: NewtonMove, whole: NewtonMove
) -> tuple[NewtonPoint, float, float, float]:
    """Return the point after the longest step that descends, F there, its length, the dual value.

    A length of 0 means that none descends; a point after a shorter step has no derivatives.
    """
    rho, size = problem.rho, float(np.linalg.norm(whole.pull))
    free = rho == 0
    kappa = 1.0 if free or size <= rho else rho / size
    found = _sums(problem, p.theta, p.b, part.theta, part.b, kappa)
    mass = float(problem.stream.mass().sum())
    # without a penalty the pull is 0 to rounding only; its price is |pull| |theta|
    dual = -float(found["conjugate"]) / mass - (size * p.w if free else 0.0)
    start = p.risk + rho * p.w
    for j, t in enumerate(LENGTHS):
        theta, b = p.theta + t * part.theta, p.b + t * part.b
        risk = float(found["values"][j]) / mass
        value = risk + rho * float(np.linalg.norm(theta))
        if value <= start + ARMIJO * t * part.slope + ROUNDING * abs(start):
            return _point(problem, theta, b, risk, found), value, t, dual
    return p, start, 0.0, dual


def _at(problem: StreamedProblem, theta: Array, b: float) -> NewtonPoint:
    """Return the point of a model: one pass."""
    found = _sums(problem, theta, b, np.zeros_like(theta), 0.0, 1.0)
    risk = float(found["values"][0]) / float(problem.stream.mass().sum())
    return _point(problem, theta, b, risk, found)


def _sums(
    problem: StreamedProblem, theta: Array, b: float, step: Array, db: float, kappa: float
) -> dict[str, Any]:
    stream = problem.stream
    models = (problem.lift(theta), b, problem.lift(step), db)
    job = NewtonSums(stream.blocks, stream.loss, *models, kappa, LENGTHS)
    return stream.chunks.total(job)[0]


def _point(
    problem: StreamedProblem, theta: Array, b: float, risk: float, found: dict[str, Any]
) -> NewtonPoint:
    """Return the point whose sums a pass took, in the coordinates of theta."""
    mass = float(problem.stream.mass().sum())
    m = max(float(found["mass"]) / mass, np.finfo(float).tiny)
    h = problem.drop(found["bend"] / mass)
    H = problem.drop(problem.drop(found["gram"] / mass).T)
    if problem.stream.fit_intercept:
        H = H - np.outer(h / m, h)
    else:
        h = np.zeros_like(h)
    g = problem.drop(found["pull"] / mass)
    return NewtonPoint(theta, b, risk, float(found["slope"]) / mass, g, H, h, m)


def _along_gradient(problem: StreamedProblem, flat: Constant) -> NewtonPoint | None:
    """Return the best model along -g from beta = 0; shorter moves where the risk does not fall.

    None where F cannot be seen to fall: the slope times the move is rounding.
    """
    steepness = float(np.linalg.norm(problem.drop(flat.pull))) - problem.rho
    theta, b = along_gradient(problem, flat)
    share = 1.0
    while share * steepness * float(np.linalg.norm(theta)) > ROUNDING * flat.risk:
        p = _at(problem, share * theta, flat.b + share * (b - flat.b))
        if p.risk + problem.rho * p.w < flat.risk:
            return p
        share /= 4
    return None


def along_gradient(problem: StreamedProblem, flat: Constant) -> tuple[Array, float]:
    """Return theta and b that minimise the model along -g, bent as the rows in memory are."""
    stream, sample = problem.stream, problem.stream.kept
    g = problem.drop(flat.pull)
    steepness = float(np.linalg.norm(g))
    z = Design(sample.X, center=stream.center).scores(problem.lift(-g / steepness))
    shift = float(sample.weights @ z) if stream.fit_intercept else 0.0
    spread = z - shift
    D = sample.loss.curvature(np.full(len(z), flat.b), sample.ys[0])
    # slope -(|g| - rho) along u; the least bend caps the move where the curvature vanishes
    least = LEAST_BEND * (steepness - problem.rho) * np.sqrt(float(sample.weights @ spread**2))
    bend = max(float(sample.weights @ (D * spread**2)), least, np.finfo(float).tiny)
    length = (steepness - problem.rho) / bend
    return -length * g / steepness, flat.b - length * shift
