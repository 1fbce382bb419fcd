r"""Descent over rows in chunks, each step one pass; and smooth losses at order 1.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

A pass takes F, its gradient and Newton matrix at the end of a step, and the dual value of the
slopes continued along the step, :math:`\kappa(a + D\,dz)`, whose pull and scale are known before
(see ``solvers/euclidean``). No number per row is kept.

Methods over rows in chunks are generators: each yields the job of its next pass and takes what the
pass found, so that the models of several classes share their passes (``together``).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ...chunks import Chunk, Chunks, Job, Sums
from ...design import Design
from ...duality import AT_THRESHOLD, threshold
from ...duality.ties import solve_each
from ...losses import Loss
from ...problem import Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.order_one import length_along_gradient
from .stream import Reading, Stream

Array = NDArray[Any]

#: A method that asks for one pass at a time and returns a result.
Passes = Generator[Job, Sums, Any]

#: The share of the predicted decrease that a step must bring.
ARMIJO = 1e-4
#: Decreases below this, relative to F, are rounding.
ROUNDING = 1e-15
#: The part of a step that the next pass tries where the longer one does not descend.
SHORTER = 0.25
#: The shortest step that is tried.
SHORTEST = 1e-6
#: A decrease below this share of the gap is none.
STALL = 1e-4
#: Steps in a row without a decrease after which a descent ends.
PATIENCE = 4
#: The accuracy of a step, as a share of the gap so far.
LOOSE = 1e-3

TINY = np.finfo(float).tiny


def together(chunks: Chunks, methods: Sequence[Passes]) -> list[Any]:
    """Return the results of methods over the same rows; each pass serves all that still run."""
    results: dict[int, Any] = {}
    passed: dict[int, Sums | None] = dict.fromkeys(range(len(methods)))
    while passed:
        jobs: dict[int, Job] = {}
        for i, sums in passed.items():
            try:
                # the first call starts the method: there is nothing found yet
                jobs[i] = next(methods[i]) if sums is None else methods[i].send(sums)
            except StopIteration as end:
                results[i] = end.value
        passed = dict(zip(jobs, chunks.total(*jobs.values()), strict=True)) if jobs else {}
    return [results[i] for i in range(len(methods))]


class Task(Protocol):
    """One problem over a stream.

    Its points have the ``value`` of F and ``lower``, a bound below the least F that the pass to
    them proved; its moves the ``slope`` of F along them and the ``longest`` share to be tried.
    """

    @property
    def stream(self) -> Stream:
        """The rows."""

    def step(self, x: Any, accuracy: float, last: Any) -> Any:
        """Return the move from a point; ``last`` is the one before, None at first."""

    def after(self, x: Any, move: Any, length: float) -> Passes:
        """Return the point after a share of a move: one pass."""


def descend(task: Task, x: Any, target: float, max_iter: int) -> Passes:
    """Return the last point, its gap and the number of steps, as a tuple."""
    lower, gap, stalls, n_iter, move = 0.0, np.inf, 0, 0, None
    while n_iter < max_iter and gap > target and stalls < PATIENCE:
        n_iter += 1
        move = task.step(x, max(target, LOOSE * gap), move)
        length = move.longest
        while True:
            new = yield from task.after(x, move, length)
            lower = max(lower, new.lower)
            promised = ARMIJO * length * move.slope
            if length == 0 or new.value <= x.value + promised + ROUNDING * abs(x.value):
                break
            length = SHORTER * length if length > SHORTEST else 0.0
        fall = x.value - new.value
        gap = duality_gap(new.value, lower)
        logger.info("pass %d: risk %.9g, gap %.3g", task.stream.chunks.passes, new.value, gap)
        # without a bound the gap says nothing: then what the step promised
        left = gap if lower > 0 else -move.slope
        stalls = stalls + 1 if fall <= STALL * left + ROUNDING * abs(x.value) else 0
        x = new
    return x, gap, n_iter


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A stream in the coordinates of a cost: beta = L theta, L its factor (None: identity)."""

    stream: Stream
    factor: Array | None
    delta: float

    def lift(self, theta: Array) -> Array:
        """Return beta = L theta."""
        return theta if self.factor is None else self.factor @ theta

    def drop(self, g: Array) -> Array:
        """Return L'g."""
        return g if self.factor is None else self.factor.T @ g

    def theta(self, coef: Array) -> Array:
        """Return theta with L theta = beta."""
        return coef if self.factor is None else np.linalg.solve(self.factor, coef)

    def steepness(self) -> float:
        """Return the norm of the gradient at beta = 0."""
        return float(np.linalg.norm(self.drop(self.stream.constant.pull)))

    def solve(self, start: Solution, target: float, max_iter: int) -> Passes:
        """Minimise F from a solution nearby, in the unit of the stream."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class NewtonSums:
    r"""Sums after a share of a step of (coef, b), and those of the dual point.

    After the share: ``value`` :math:`\sum w\ell`, ``first`` :math:`\sum wat` and ``second``
    :math:`\sum wDtt'`, t = (z, 1); ``conjugate`` :math:`\sum w\,\ell^*(\kappa(a + D\,dz))` with the
    slopes and curvatures of the start and the changes dz of the whole step.
    """

    reading: Reading
    loss: Loss
    model: Array
    step: Array
    length: float
    kappa: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        loss, side = self.loss, len(self.model)
        both = np.column_stack([self.model, self.step])
        value, conjugate = 0.0, 0.0
        first, second = np.zeros(side), np.zeros((side, side))
        for Z, y, w in self.reading.blocks(chunk, side):
            design = Design(Z)
            z, dz = np.ascontiguousarray(design.scores(both[:-1]).T) + both[-1][:, None]
            _, a, D = loss.evaluate(z, y)
            conjugate += float(w @ loss.conjugate(self.kappa * (a + D * dz), y))
            if self.length > 0:
                z = z + self.length * dz
            each, a, D = loss.evaluate(z, y)
            value += float(w @ each)
            a, D = w * a, w * D
            gram, bend = design.moments(D)
            first += np.append(design.adjoint(a), a.sum())
            second[:-1, :-1] += gram
            second[-1] += np.append(bend, D.sum())
        second[:-1, -1] = second[-1, :-1]
        return {"value": value, "conjugate": conjugate, "first": first, "second": second}


class NewtonPoint(NamedTuple):
    """A model (theta, b), its mean loss, F, the gradient and Newton matrix of the mean loss."""

    at: Array
    risk: float
    value: float
    g: Array
    H: Array
    lower: float

    @property
    def w(self) -> float:
        """The norm of theta."""
        return float(np.linalg.norm(self.at[:-1]))


class NewtonMove(NamedTuple):
    """A step of (theta, b), the slope of F along it; ``scale`` makes slopes continued along it
    feasible, but for the ``price`` of their pull."""

    step: Array
    slope: float
    scale: float
    price: float
    longest: float = 1.0


@dataclass(frozen=True, eq=False)
class OrderOne(Coordinates):
    """One problem of a smooth loss at order 1, or of delta = 0."""

    @property
    def rho(self) -> float:
        """The penalty."""
        return self.delta * self.stream.loss.lipschitz if self.delta > 0 else 0.0

    def model(self, at: Array) -> Array:
        """Return (beta, b) of (theta, b)."""
        return np.append(self.lift(at[:-1]), at[-1])

    def step(self, x: NewtonPoint, accuracy: float, last: Any) -> NewtonMove:
        """Return the Newton step."""
        rho, w = self.rho, max(x.w, TINY)
        u = x.at[:-1] / w
        stiffened = x.H.copy()
        stiffened[:-1, :-1] += rho / w * (np.eye(len(u)) - np.outer(u, u))
        gradient = x.g + rho * np.append(u, 0.0)
        step = -solve_each(stiffened[None], gradient[None, :, None])[0, :, 0]
        # slopes sum to 0 after the step
        step[-1] = -(x.g[-1] + x.H[-1, :-1] @ step[:-1]) / x.H[-1, -1]
        size = float(np.linalg.norm(x.g[:-1] + x.H[:-1] @ step))
        slope = float(gradient @ step)
        if rho == 0:
            # the pull is 0 to rounding only
            return NewtonMove(step, slope, 1.0, size * x.w)
        return NewtonMove(step, slope, min(1.0, rho / max(size, TINY)), 0.0)

    def after(self, x: NewtonPoint, move: NewtonMove, length: float) -> Passes:
        """Return the point after a share of a move: one pass."""
        stream, mass = self.stream, self.stream.total
        sums = yield NewtonSums(
            reading=stream.reading,
            loss=stream.loss,
            model=self.model(x.at),
            step=self.model(move.step),
            length=length,
            kappa=move.scale,
        )
        at = x.at + length * move.step
        g = np.append(self.drop(sums["first"][:-1]), sums["first"][-1]) / mass
        H = sums["second"] / mass
        if self.factor is not None:
            P = block_diag(self.factor, [[1.0]])
            H = P.T @ H @ P
        if not stream.fit_intercept:
            g[-1] = H[-1] = H[:, -1] = 0.0
        H[-1, -1] = max(H[-1, -1], TINY) if stream.fit_intercept else 1.0
        risk = float(sums["value"]) / mass
        value = risk + self.rho * float(np.linalg.norm(at[:-1]))
        return NewtonPoint(at, risk, value, g, H, -float(sums["conjugate"]) / mass - move.price)

    def at(self, at: Array) -> Passes:
        """Return the point of a model: one pass."""
        nowhere = NewtonMove(np.zeros_like(at), 0.0, 0.0, np.inf)
        return self.after(NewtonPoint(at, 0.0, 0.0, at, at, 0.0), nowhere, 0.0)

    def solve(self, start: Solution, target: float, max_iter: int) -> Passes:
        """Minimise F."""
        stream, flat = self.stream, self.stream.constant
        steep = self.steepness()
        if threshold(steep, flat.mean_square, 1.0, order=1) <= self.rho * (1 + AT_THRESHOLD):
            return constant_solution(stream, 1.0, target)
        x = yield from self._first(start, steep)
        if x is None:
            # slopes shrunk until they are feasible prove the gap
            return constant_solution(stream, self.rho / steep, target)
        x, gap, n_iter = yield from descend(self, x, target, max_iter)
        return stream.solution(
            self.lift(x.at[:-1]),
            float(x.at[-1]),
            stream.loss.lipschitz * x.w,
            objective=x.value,
            risk=x.risk,
            gap=gap,
            target=target,
            n_iter=n_iter,
        )

    def _first(self, start: Solution, steep: float) -> Passes:
        """Return where to start: F is below that of beta = 0; None where it falls by rounding."""
        flat = self.stream.constant
        if start.coef.any():
            x = yield from self.at(np.append(self.theta(start.coef), start.intercept))
            if x.value < flat.risk:
                return x
        move = yield from along_gradient(self, self.rho)
        # the slope times the move is rounding where F cannot be seen to fall
        while (steep - self.rho) * float(np.linalg.norm(move[:-1])) > ROUNDING * flat.risk:
            x = yield from self.at(np.append(move[:-1], flat.b + move[-1]))
            if x.value < flat.risk:
                return x
            move = SHORTER * move
        return None


def along_gradient(task: Coordinates, rho: float) -> Passes:
    """Return the move of (theta, b) from beta = 0 to the least of the model along -g: one pass."""
    flat = task.stream.constant
    plain = OrderOne(task.stream, task.factor, 0.0)
    zero = yield from plain.at(np.append(np.zeros_like(flat.pull), flat.b))
    g = task.drop(flat.pull)
    steep = float(np.linalg.norm(g))
    u = -np.append(g / steep, 0.0)
    # b follows
    u[-1] = -(zero.H[-1, :-1] @ u[:-1]) / zero.H[-1, -1]
    # scores along u are about 1, the unit of the rows
    move: Array = length_along_gradient(steep, rho, float(u @ zero.H @ u), 1.0) * u
    return move


def constant_solution(stream: Stream, kappa: float, target: float) -> Solution:
    """Return the constant model, certified by kappa times its slopes."""
    flat, rows = stream.constant, stream.class_rows()
    [y] = rows.ys
    a = kappa * stream.loss.derivative(np.full(2, flat.b), y)
    gap = duality_gap(flat.risk, -float(rows.weights @ stream.loss.conjugate(a, y)))
    nothing = np.zeros(stream.chunks.d)
    risks = {"objective": flat.risk, "risk": flat.risk, "gap": gap}
    solution = stream.solution(nothing, flat.b, 0.0, **risks, target=target, n_iter=1)
    return solution if kappa < 1 else replace(solution, message=CONSTANT)


#: What the message of a solution says where beta = 0 is the best.
CONSTANT = "the constant model is optimal at this delta"
