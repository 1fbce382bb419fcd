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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ...chunks import Sums
from ...duality import AT_THRESHOLD, threshold
from ...problem import Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.newton_matrix import solve_stiffened
from ..euclidean.order_one import ARMIJO, ROUNDING, STILL, length_along_gradient
from .passes import Passes
from .stream import CONSTANT, Constant, Stream
from .sums import LENGTHS, ModelStep, NewtonSums

Array = NDArray[Any]

#: Coefficients are to move by less than this times the root of the relative gap asked for.
SETTLED = 0.1
#: Where none of these descends, the next pass tries this share of the step.
SHORTER = 0.125


@dataclass(frozen=True, eq=False)
class NewtonPoint:
    """A model (theta, b), and there: risk, mean slope s, g, H - hh'/m, h, m > 0 in theta.

    Without an intercept s and h are 0.
    """

    at: Array
    risk: float
    s: float
    g: Array
    H: Array
    h: Array
    m: float

    @property
    def theta(self) -> Array:
        """The coefficients."""
        return self.at[:-1]

    @property
    def w(self) -> float:
        """The norm of theta."""
        return float(np.linalg.norm(self.theta))


class NewtonMove(NamedTuple):
    """A step of (theta, b), the slope of F along it, and the pull of slopes continued along it."""

    step: Array
    slope: float
    pull: Array


@dataclass(frozen=True, eq=False)
class StreamCoordinates:
    """A stream in the coordinates of a cost: beta = L theta, L its factor (None: identity)."""

    stream: Stream
    factor: Array | None

    def lift(self, theta: Array) -> Array:
        """Return beta = L theta."""
        return theta if self.factor is None else self.factor @ theta

    def drop(self, g: Array) -> Array:
        """Return L'g."""
        return g if self.factor is None else self.factor.T @ g

    def theta(self, coef: Array) -> Array:
        """Return theta with L theta = beta."""
        return coef if self.factor is None else np.linalg.solve(self.factor, coef)

    def second(self, A: Array) -> Array:
        """Return sums of D tt', t = (z, 1), in these coordinates."""
        if self.factor is None:
            return A
        P = block_diag(self.factor, [[1.0]])
        dropped: Array = P.T @ A @ P
        return dropped

    def model(self, at: Array) -> Array:
        """Return (beta, b) of (theta, b)."""
        return np.append(self.lift(at[:-1]), at[-1])

    def steepness(self, flat: Constant) -> float:
        """Return the norm of the gradient at beta = 0."""
        return float(np.linalg.norm(self.drop(flat.pull)))


@dataclass(frozen=True, eq=False)
class StreamedProblem(StreamCoordinates):
    """One problem over a stream, of the penalty rho."""

    rho: float

    def rests(self, flat: Constant) -> bool:
        """Whether the constant model is optimal."""
        least = threshold(self.steepness(flat), flat.mean_square, 1.0, order=1)
        return bool(least <= self.rho * (1 + AT_THRESHOLD))

    def value(self, at: Array, risk: float) -> float:
        """Return F at (theta, b)."""
        return risk + self.rho * float(np.linalg.norm(at[:-1]))

    def point(self, at: Array, risk: float, first: Array, second: Array) -> NewtonPoint:
        """Return the point of the means of a t and D tt', t = (z, 1), over centred rows."""
        A, g = self.second(second), self.drop(first[:-1])
        H, h, m = A[:-1, :-1], A[:-1, -1], max(float(A[-1, -1]), np.finfo(float).tiny)
        if not self.stream.fit_intercept:
            return NewtonPoint(at, risk, 0.0, g, H, np.zeros_like(h), m)
        return NewtonPoint(at, risk, float(first[-1]), g, H - np.outer(h / m, h), h, m)


def solve(
    problem: StreamedProblem, coef: Array, b: float, target: float, max_iter: int
) -> Passes[Solution]:
    """Minimise from the model (coef, b) on centred rows until the gap is at most ``target``.

    Returns the solution on the rows as given, pass by pass.
    """
    stream, flat = problem.stream, problem.stream.constant()
    if problem.rests(flat):
        return _zero(problem, flat, target)
    first = yield from _first(problem, np.append(problem.theta(coef), b), flat)
    if first is None:
        return _zero(problem, flat, target)
    p, gap, n_iter = yield from _descend(problem, first, flat.risk, target, max_iter)
    known = (stream.loss.lipschitz * p.w, problem.value(p.at, p.risk), p.risk, gap, target, n_iter)
    return stream.solution(problem.lift(p.theta), float(p.at[-1]), *known)


def _zero(problem: StreamedProblem, flat: Constant, target: float) -> Solution:
    """Return the constant model; its slopes, shrunk until they are feasible, prove the gap."""
    size = problem.steepness(flat)
    kappa = problem.rho / size if size > problem.rho * (1 + AT_THRESHOLD) else 1.0
    return constant_solution(problem.stream, flat, kappa, target)


def constant_solution(stream: Stream, flat: Constant, kappa: float, target: float) -> Solution:
    """Return the constant model, certified by kappa times its slopes."""
    y = np.array([-1.0, 1.0])
    a = kappa * stream.loss.derivative(np.full(2, flat.b), y)
    share = stream.signed(stream.mass()) / stream.total
    gap = duality_gap(flat.risk, -float(share @ stream.loss.conjugate(a, y)))
    model = (np.zeros(stream.chunks.d), flat.b, 0.0, flat.risk, flat.risk)
    found = stream.solution(*model, gap, target, 1)
    return found if kappa < 1 else replace(found, message=CONSTANT)


def _first(problem: StreamedProblem, start: Array, flat: Constant) -> Passes[NewtonPoint | None]:
    """Return where to start: F is below that of beta = 0; None where it falls by rounding only."""
    p = yield from _at(problem, start)
    if p.w > 0 and problem.value(p.at, p.risk) < flat.risk:
        return p
    return (yield from _along_gradient(problem, flat))


def _descend(
    problem: StreamedProblem, p: NewtonPoint, flat: float, target: float, max_iter: int
) -> Passes[tuple[NewtonPoint, float, int]]:
    """Return the last point, its gap and the number of steps."""
    lower, gap, n_iter, share, more = 0.0, np.inf, 0, 1.0, True
    move, fine = newton_step(p, problem.rho), SETTLED * np.sqrt(target / flat)
    while n_iter < max_iter and share > STILL:
        n_iter += 1
        new, value, length, dual = yield from _pass(problem, p, move, share)
        # the slopes along a part of the step need not be feasible
        lower = max(lower, dual) if share == 1 else lower
        gap = duality_gap(value, lower)
        logger.info("pass %d: risk %.9g, gap %.3g", problem.stream.chunks.passes, value, gap)
        if length == 0:
            share *= SHORTER
            continue
        p = new if length == 1 else (yield from _at(problem, new.at))
        move, share = newton_step(p, problem.rho), 1.0
        moves = longest(move.step[:-1]) / longest(p.theta)
        # the gap is quadratic in the coefficients: one more step where these are not settled
        if moves <= STILL or (gap <= target and (moves <= fine or not more)):
            break
        more = more and gap > target
    return p, gap, n_iter


def descends(start: float, slope: float, value: float) -> bool:
    """Whether a value is as far below that at the start of a step as its slope promises."""
    return value <= start + ARMIJO * slope + ROUNDING * abs(start)


def longest(v: Array) -> float:
    """Return the largest size of an entry."""
    return float(np.abs(v).max(initial=0.0))


def newton_step(p: NewtonPoint, rho: float) -> NewtonMove:
    """Return the Newton step with the intercept eliminated."""
    u = p.theta / p.w
    balanced = p.g - p.h * (p.s / p.m)
    stiffness = np.array([rho / p.w])
    step = solve_stiffened(p.H[None], stiffness, u[:, None], -(balanced + rho * u)[:, None])[:, 0]
    db = -(p.s + p.h @ step) / p.m
    slope = float((p.g + rho * u) @ step + p.s * db)
    return NewtonMove(np.append(step, db), slope, balanced + p.H @ step)


def _pass(
    problem: StreamedProblem, p: NewtonPoint, move: NewtonMove, share: float
) -> Passes[tuple[NewtonPoint, float, float, float]]:
    """Return the point after the longest part of a share that descends, F there, which part it is
    and the dual value.

    A part of 0 means that none descends; a point after a shorter step has no derivatives. The
    slopes of all of the step stay the dual point.
    """
    rho, size = problem.rho, float(np.linalg.norm(move.pull))
    free = rho == 0
    kappa = 1.0 if free or size <= rho else rho / size
    step, mass = share * move.step, problem.stream.total
    found = yield _job(problem, p.at, step, kappa)
    # without a penalty the pull is 0 to rounding only; its price is |pull| |theta|
    dual = -float(found["conjugate"]) / mass - (size * p.w if free else 0.0)
    start = problem.value(p.at, p.risk)
    for j, t in enumerate(LENGTHS):
        at, risk = p.at + t * step, float(found["values"][j]) / mass
        value = problem.value(at, risk)
        if descends(start, t * share * move.slope, value):
            return _point(problem, at, risk, found), value, t, dual
    return p, start, 0.0, dual


def _at(problem: StreamedProblem, at: Array) -> Passes[NewtonPoint]:
    """Return the point of a model: one pass."""
    found = yield _job(problem, at, np.zeros_like(at), 1.0)
    return _point(problem, at, float(found["values"][0]) / problem.stream.total, found)


def _job(problem: StreamedProblem, at: Array, step: Array, kappa: float) -> NewtonSums:
    stream, move = problem.stream, ModelStep(problem.model(at), problem.model(step))
    return NewtonSums(stream.blocks, stream.loss, move, kappa)


def _point(problem: StreamedProblem, at: Array, risk: float, found: Sums) -> NewtonPoint:
    """Return the point whose sums a pass took."""
    mass = problem.stream.total
    return problem.point(at, risk, found["first"] / mass, found["second"] / mass)


def _along_gradient(problem: StreamedProblem, flat: Constant) -> Passes[NewtonPoint | None]:
    """Return the best model along -g from beta = 0; shorter moves where the risk does not fall.

    None where F cannot be seen to fall: the slope times the move is rounding.
    """
    steepness = problem.steepness(flat) - problem.rho
    move = along_gradient(problem, problem.rho, flat)
    share = 1.0
    while share * steepness * float(np.linalg.norm(move[:-1])) > ROUNDING * flat.risk:
        p = yield from _at(problem, flat.at(share * move))
        if problem.value(p.at, p.risk) < flat.risk:
            return p
        share /= 4
    return None


def along_gradient(problem: StreamCoordinates, rho: float, flat: Constant) -> Array:
    """Return the move of (theta, b) from beta = 0 to the least of the model along -g.

    Its penalty is rho, and it bends as the rows in memory do.
    """
    stream, sample = problem.stream, problem.stream.kept
    g = problem.drop(flat.pull)
    steepness = float(np.linalg.norm(g))
    z = stream.kept_design.scores(problem.lift(-g / steepness))
    shift = float(sample.weights @ z) if stream.fit_intercept else 0.0
    spread = z - shift
    D = sample.loss.curvature(np.full(len(z), flat.b), sample.ys[0])
    bend = float(sample.weights @ (D * spread**2))
    size = float(sample.weights @ spread**2) ** 0.5
    length = float(length_along_gradient(steepness, rho, bend, size))
    return -length * np.append(g / steepness, shift)
