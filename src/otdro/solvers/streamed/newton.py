r"""Newton's method for one problem of smooth losses at order 1, each iteration one pass.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

A pass takes the value, the gradient and the Newton matrix at the end of a step, the values after
half and a quarter of it, and the dual value of the slopes continued along the step,
:math:`\kappa(a + D\,dz)`, whose pull and scale are known before (see ``solvers/euclidean``). No
number per row is kept.

Methods over rows in chunks are generators: each yields the job of its next pass and takes what the
pass found, so that several methods share their passes (``together``).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ...chunks import Chunks, Job, Sums
from ...duality import AT_THRESHOLD, threshold
from ...problem import Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.order_one import ARMIJO, ROUNDING, STILL, length_along_gradient, solve_stiffened
from .stream import CONSTANT, Constant, Stream
from .sums import LENGTHS, ModelStep, NewtonSums

Array = NDArray[Any]

T = TypeVar("T")

#: A method that asks for one pass at a time and returns a result.
Passes = Generator[Job, Sums, T]


def together(chunks: Chunks, methods: Sequence[Passes[T]]) -> list[T]:
    """Return the results of methods over the same rows; each pass serves all that still run."""
    results: dict[int, T] = {}
    jobs: dict[int, Job] = {}
    passed: dict[int, Sums | None] = dict.fromkeys(range(len(methods)))
    while passed:
        jobs.clear()
        for i, sums in passed.items():
            try:
                # the first call starts the method: there is nothing found yet
                jobs[i] = next(methods[i]) if sums is None else methods[i].send(sums)
            except StopIteration as end:
                results[i] = end.value
        passed = dict(zip(jobs, chunks.total(*jobs.values()), strict=True)) if jobs else {}
    return [results[i] for i in range(len(methods))]


#: Coefficients are to move by less than this times the root of the relative gap asked for.
SETTLED = 0.1
#: Where none of the lengths of a step descends, the next pass tries this share of it.
SHORTER = 0.125
#: Steps in a row that leave F where it is before a descent ends.
PATIENCE = 3
#: The accuracy of a step, as a share of the gap so far.
LOOSE = 1e-3


class Descending(Protocol):
    """One problem over a stream.

    Its points have a model ``at``, a vector, and F as ``value``; its moves a ``step`` of the model,
    the ``slope`` of F along it, and the ``scale`` that makes slopes continued along it feasible.
    """

    @property
    def stream(self) -> Stream:
        """The rows."""

    def coefficients(self, at: Array) -> Array:
        """Return the part of a vector that are coefficients."""

    def step(self, x: Any, accuracy: float, last: Any) -> Any:
        """Return the move from a point; ``last`` is the one before, None at first."""

    def job(self, at: Array, step: Array, scale: float) -> Job:
        """Return what a pass takes at the end of a step, at parts of it, and of its dual point."""

    def bound(self, x: Any, move: Any, sums: Sums) -> float:
        """Return the dual value that a pass took."""

    def point(self, at: Array, place: int, sums: Sums) -> Any:
        """Return the point at one of the lengths; only that at the first has derivatives."""


def at_model(task: Descending, at: Array) -> Passes[Any]:
    """Return the point of a model: one pass."""
    sums = yield task.job(at, np.zeros_like(at), 1.0)
    return task.point(at, 0, sums)


def descend(
    task: Descending, x: Any, flat: float, target: float, max_iter: int
) -> Passes[tuple[Any, float, int]]:
    """Return the last point, its gap and the number of steps; ``flat`` is the risk of beta = 0."""
    lower, gap, n_iter, share, idle = 0.0, np.inf, 0, 1.0, 0
    more, fine = True, SETTLED * float(np.sqrt(target / flat))
    move = task.step(x, target, None)
    while n_iter < max_iter and idle < PATIENCE and share > STILL:
        n_iter += 1
        before, step = x.value, share * move.step
        sums = yield task.job(x.at, step, move.scale)
        # the slopes along a part of the step need not be feasible
        lower = max(lower, task.bound(x, move, sums)) if share == 1 else lower
        ends = ((t, task.point(x.at + t * step, j, sums)) for j, t in enumerate(LENGTHS))
        lower_ends = ((t, p) for t, p in ends if descends(before, t * share * move.slope, p.value))
        length, new = next(lower_ends, (0.0, x))
        gap = duality_gap(new.value, lower)
        logger.info("pass %d: risk %.9g, gap %.3g", task.stream.chunks.passes, new.value, gap)
        if length == 0:
            if gap <= target:
                break
            share *= SHORTER
            continue
        x = new if length == 1 else (yield from at_model(task, new.at))
        idle = 0 if x.value < before - ROUNDING * abs(before) else idle + 1
        move, share = task.step(x, max(target, LOOSE * gap), move), 1.0
        moves, size = (longest(task.coefficients(v)) for v in (move.step, x.at))
        # the gap is quadratic in the coefficients: one more step where these are not settled
        if moves <= STILL * size or (gap <= target and (moves <= fine * size or not more)):
            break
        more = more and gap > target
    return x, gap, n_iter


def descends(start: float, slope: float, value: float) -> bool:
    """Whether a value is as far below that at the start of a step as its slope promises."""
    return value <= start + ARMIJO * slope + ROUNDING * abs(start)


def longest(v: Array) -> float:
    """Return the largest size of an entry."""
    return float(np.abs(v).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class NewtonPoint:
    """A model (theta, b), and there: risk, F, mean slope s, g, H - hh'/m, h, m > 0 in theta.

    Without an intercept s and h are 0.
    """

    at: Array
    risk: float
    value: float
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
    """A step of (theta, b), the slope of F along it, and of slopes continued along it the pull and
    what makes them feasible."""

    step: Array
    slope: float
    pull: Array
    scale: float


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

    def solve(
        self, coef: Array, b: Any, lam: float, target: float, max_iter: int
    ) -> Passes[Solution]:
        """Minimise F from a model (coef, b) on centred rows until the gap is at most ``target``.

        ``lam`` is a multiplier near its own. Returns the solution on the rows as given, pass by
        pass.
        """
        raise NotImplementedError

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

    def newton_point(self, at: Array, risk: float, first: Array, second: Array) -> NewtonPoint:
        """Return the point of the means of a t and D tt', t = (z, 1), over centred rows."""
        A, g = self.second(second), self.drop(first[:-1])
        H, h, m = A[:-1, :-1], A[:-1, -1], max(float(A[-1, -1]), np.finfo(float).tiny)
        known = (at, risk, risk + self.rho * float(np.linalg.norm(at[:-1])))
        if not self.stream.fit_intercept:
            return NewtonPoint(*known, 0.0, g, H, np.zeros_like(h), m)
        return NewtonPoint(*known, float(first[-1]), g, H - np.outer(h / m, h), h, m)

    def coefficients(self, at: Array) -> Array:
        """Return theta."""
        return at[:-1]

    def step(self, x: NewtonPoint, accuracy: float, last: NewtonMove | None) -> NewtonMove:
        """Return the Newton step."""
        return newton_step(x, self.rho)

    def job(self, at: Array, step: Array, scale: float) -> NewtonSums:
        """Return what a pass takes."""
        stream, move = self.stream, ModelStep(self.model(at), self.model(step))
        return NewtonSums(stream.blocks, stream.loss, move, scale)

    def bound(self, x: NewtonPoint, move: NewtonMove, sums: Sums) -> float:
        """Return the dual value.

        Without a penalty the pull is 0 to rounding only; its price is |pull| |theta|.
        """
        price = float(np.linalg.norm(move.pull)) * x.w if self.rho == 0 else 0.0
        return -float(sums["conjugate"]) / self.stream.total - price

    def point(self, at: Array, place: int, sums: Sums) -> NewtonPoint:
        """Return the point whose sums a pass took."""
        mass = self.stream.total
        risk = float(sums["values"][place]) / mass
        return self.newton_point(at, risk, sums["first"] / mass, sums["second"] / mass)

    def solve(
        self, coef: Array, b: Any, lam: float, target: float, max_iter: int
    ) -> Passes[Solution]:
        """Minimise F."""
        stream, flat = self.stream, self.stream.constant()
        if self.rests(flat):
            return constant_solution(stream, flat, 1.0, target)
        first = yield from _first(self, np.append(self.theta(coef), b), flat)
        if first is None:
            # slopes shrunk until they are feasible prove the gap
            return constant_solution(stream, flat, self.rho / self.steepness(flat), target)
        p, gap, n_iter = yield from descend(self, first, flat.risk, target, max_iter)
        known = (stream.loss.lipschitz * p.w, p.value, p.risk, gap, target, n_iter)
        return stream.solution(self.lift(p.theta), float(p.at[-1]), *known)


def constant_solution(stream: Stream, flat: Constant, kappa: float, target: float) -> Solution:
    """Return the constant model, certified by kappa times its slopes."""
    y = np.array([-1.0, 1.0])
    a = kappa * stream.loss.derivative(np.full(2, flat.b), y)
    share = stream.signed(stream.mass()) / stream.total
    gap = duality_gap(flat.risk, -float(share @ stream.loss.conjugate(a, y)))
    model = (np.zeros(stream.chunks.d), flat.b, 0.0, flat.risk, flat.risk)
    solution = stream.solution(*model, gap, target, 1)
    return solution if kappa < 1 else replace(solution, message=CONSTANT)


def _first(problem: StreamedProblem, start: Array, flat: Constant) -> Passes[NewtonPoint | None]:
    """Return where to start: F is below that of beta = 0; None where it falls by rounding only."""
    if start[:-1].any():
        p = yield from at_model(problem, start)
        if p.value < flat.risk:
            return p
    steepness = problem.steepness(flat) - problem.rho
    move = along_gradient(problem, problem.rho, flat)
    share = 1.0
    # the slope times the move is rounding where F cannot be seen to fall
    while share * steepness * float(np.linalg.norm(move[:-1])) > ROUNDING * flat.risk:
        p = yield from at_model(problem, flat.at(share * move))
        if p.value < flat.risk:
            return p
        share /= 4
    return None


def newton_step(p: NewtonPoint, rho: float) -> NewtonMove:
    """Return the Newton step with the intercept eliminated."""
    u = p.theta / p.w
    balanced = p.g - p.h * (p.s / p.m)
    stiffness = np.array([rho / p.w])
    step = solve_stiffened(p.H[None], stiffness, u[:, None], -(balanced + rho * u)[:, None])[:, 0]
    db = -(p.s + p.h @ step) / p.m
    slope = float((p.g + rho * u) @ step + p.s * db)
    pull = balanced + p.H @ step
    size = float(np.linalg.norm(pull))
    scale = 1.0 if rho == 0 or size <= rho else rho / size
    return NewtonMove(np.append(step, db), slope, pull, scale)


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
