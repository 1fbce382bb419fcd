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
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunks import Chunk, Chunks, Job, Sums
from ...design import Design
from ...duality import AT_THRESHOLD, ZeroModel, zero_model
from ...duality.ties import solve_each
from ...losses import Loss
from ...problem import Solution
from ...progress import logger
from ..base import duality_gap, verdict
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


def descend(task: Any, x: Any, target: float, max_iter: int) -> Passes:
    """Return the last point, its gap and the number of steps, as a tuple.

    A task has ``step``, the move from a point, and ``after``, the point after a share of a move.
    Points have the ``value`` of F and ``lower``, a bound below the least F that the pass to them
    proved; moves the ``slope`` of F along them and the ``longest`` share to be tried.
    """
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
    """A problem over a stream in the coordinates of its cost: beta = L theta, L its factor."""

    stream: Stream
    factor: Array | None
    delta: float

    def lift(self, theta: Array) -> Array:
        """Return beta = L theta."""
        return theta if self.factor is None else self.factor @ theta

    def theta(self, coef: Array) -> Array:
        """Return theta with L theta = beta."""
        return coef if self.factor is None else np.linalg.solve(self.factor, coef)

    @cached_property
    def zero(self) -> ZeroModel:
        """The best constant model of one score, whose slopes are the same in all of a class."""
        rows = self.stream.class_rows()
        design, [y] = Design(rows.X, self.factor), rows.ys
        return zero_model(design, y, rows.weights, rows.loss, rows.fit_intercept)

    @property
    def steepness(self) -> float:
        """The norm of the gradient at beta = 0."""
        return float(np.linalg.norm(self.zero.pull))

    def solve(self, start: Solution, target: float, max_iter: int) -> Passes:
        """Minimise F from a solution nearby; the solution is that of the rows of the blocks."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class NewtonSums:
    r"""Sums after a share of a step of (beta, b), and those of the dual point.

    After the share: ``value`` :math:`\sum w\ell`, ``gradient`` :math:`\sum wat` and ``hessian``
    :math:`\sum wDtt'`, t = (z, 1); ``dual`` :math:`-\sum w\,\ell^*(\kappa(a + D\,dz))` with the
    slopes and curvatures of the start and the changes dz of the whole step. ``both`` (d + 1, 2)
    are the model and the step.
    """

    reading: Reading
    loss: Loss
    both: Array
    length: float
    kappa: float

    def __call__(self, chunk: Chunk) -> Sums:
        """Return the sums over a chunk."""
        loss, both, side = self.loss, self.both, len(self.both)
        value, dual = 0.0, 0.0
        first, second = np.zeros(side), np.zeros((side, side))
        for Z, y, w in self.reading.blocks(chunk, side):
            design = Design(Z)
            z, dz = np.ascontiguousarray(design.scores(both[:-1]).T) + both[-1][:, None]
            _, a, D = loss.evaluate(z, y)
            dual -= float(w @ loss.conjugate(self.kappa * (a + D * dz), y))
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
        return {"value": value, "dual": dual, "gradient": first, "hessian": second}


class Point(NamedTuple):
    """A model, its mean loss, penalty norm and F, gradient and Newton matrix of the mean loss."""

    at: Array
    risk: float
    norm: float
    value: float
    g: Array
    H: Array
    lower: float


class Move(NamedTuple):
    """A step of a model and the slope of F along it; ``scale`` makes slopes continued along it
    feasible, but for the ``price`` of their pull."""

    step: Array
    slope: float
    scale: float
    price: float
    multipliers: Array | None = None
    longest: float = 1.0


class OrderOne(Coordinates):
    """The mean loss plus rho times a norm, or delta = 0; here of one score: models (theta, b)."""

    @property
    def rho(self) -> float:
        """The penalty."""
        return self.delta * self.stream.loss.lipschitz if self.delta > 0 else 0.0

    def norm(self, at: Array) -> float:
        """Return |theta|."""
        return float(np.linalg.norm(at[:-1]))

    def inside(self, coef: Array, intercept: Any) -> Array:
        """Return (theta, b)."""
        return np.append(self.theta(coef), intercept)

    def outside(self, at: Array) -> tuple[Array, Any]:
        """Return (beta, b)."""
        return self.lift(at[:-1]), float(at[-1])

    def step(self, x: Point, accuracy: float, last: Move | None) -> Move:
        """Return the Newton step."""
        rho, w = self.rho, max(x.norm, TINY)
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
            return Move(step, slope, 1.0, size * x.norm)
        return Move(step, slope, min(1.0, rho / max(size, TINY)), 0.0)

    def job(self, at: Array, move: Move, length: float) -> Job:
        """Return what a pass takes."""
        both = np.column_stack([np.append(*self.outside(part)) for part in (at, move.step)])
        return NewtonSums(
            reading=self.stream.reading,
            loss=self.stream.loss,
            both=both,
            length=length,
            kappa=move.scale,
        )

    def constant(self, target: float) -> tuple[Solution, bool]:
        """Return the constant model with its gap, and whether it is optimal.

        Its slopes, shrunk until they are feasible, are the dual point.
        """
        steep, zero = self.steepness, self.zero
        optimal = bool(zero.threshold(steep, 1.0, order=1) <= self.rho * (1 + AT_THRESHOLD))
        return constant_solution(self, 1.0 if optimal else self.rho / steep, target), optimal

    def along(self, zero: Point) -> tuple[Array, float]:
        """Return the move to the least of the model along -g."""
        move = along_gradient(zero, self.rho)
        return move, (self.norm(zero.g) - self.rho) * self.norm(move)

    def dropped(self, g: Array, H: Array) -> tuple[Array, Array]:
        """Return gradient and Newton matrix in (theta, b) from those in (beta, b)."""
        if self.factor is not None:
            P: Array = np.eye(len(g))
            P[:-1, :-1] = self.factor
            g, H = P.T @ g, P.T @ H @ P
        if not self.stream.fit_intercept:
            g[-1] = H[-1] = H[:, -1] = 0.0
        H[-1, -1] = max(H[-1, -1], TINY) if self.stream.fit_intercept else 1.0
        return g, H

    def after(self, x: Point, move: Move, length: float) -> Passes:
        """Return the point after a share of a move: one pass."""
        sums = yield self.job(x.at, move, length)
        mass, at = self.stream.total, x.at + length * move.step
        norm, risk = self.norm(at), sums["value"] / mass
        g, H = self.dropped(sums["gradient"] / mass, sums["hessian"] / mass)
        lower = sums["dual"] / mass - move.price
        return Point(at, risk, norm, risk + self.rho * norm, g, H, lower)

    def at(self, at: Array) -> Passes:
        """Return the point of a model: one pass."""
        nowhere = Move(np.zeros_like(at), 0.0, 0.0, np.inf)
        return self.after(Point(at, 0.0, 0.0, 0.0, at, at, 0.0), nowhere, 0.0)

    def solve(self, start: Solution, target: float, max_iter: int) -> Passes:
        """Minimise F from a solution nearby."""
        constant, optimal = self.constant(target)
        x = None
        if not optimal:
            x = yield from self._first(start, constant)
        if x is None:
            return constant
        x, gap, n_iter = yield from descend(self, x, target, max_iter)
        coef, b = self.outside(x.at)
        lam = self.stream.loss.lipschitz * x.norm
        return certified(coef, b, lam, x.value, x.risk, gap=gap, target=target, n_iter=n_iter)

    def _first(self, start: Solution, constant: Solution) -> Passes:
        """Return where to start: F is below that of beta = 0; None where it falls by rounding."""
        least = constant.objective
        if start.coef.any():
            x = yield from self.at(self.inside(start.coef, start.intercept))
            if x.value < least:
                return x
        zero = yield from self.at(self.inside(constant.coef, constant.intercept))
        if self.rho == 0:
            # without a penalty F has no kink there
            return zero
        move, fall = self.along(zero)
        while fall > ROUNDING * least:
            x = yield from self.at(zero.at + move)
            if x.value < least:
                return x
            move, fall = SHORTER * move, SHORTER * fall
        return None


def along_gradient(zero: Point, rho: float) -> Array:
    """Return the move of (theta, b) from theta = 0 to the least of the model along -g."""
    steep = float(np.linalg.norm(zero.g[:-1]))
    u = -np.append(zero.g[:-1] / steep, 0.0)
    # b follows
    u[-1] = -(zero.H[-1, :-1] @ u[:-1]) / zero.H[-1, -1]
    # scores along u are about 1, the unit of the rows
    move: Array = length_along_gradient(steep, rho, float(u @ zero.H @ u), 1.0) * u
    return move


def constant_solution(task: Coordinates, kappa: float, target: float) -> Solution:
    """Return the constant model, certified by kappa times its slopes."""
    rows, zero, loss = task.stream.class_rows(), task.zero, task.stream.loss
    dual = -float(rows.weights @ loss.conjugate(kappa * zero.a, rows.ys[0]))
    gap, nothing = duality_gap(zero.risk, dual), np.zeros(task.stream.chunks.d)
    risks = (zero.risk, zero.risk)
    solution = certified(nothing, zero.b, 0.0, *risks, gap=gap, target=target, n_iter=1)
    return solution if kappa < 1 else replace(solution, message=CONSTANT)


def certified(
    coef: Array,
    b: Any,
    multiplier: float,
    objective: float,
    risk: float,
    *,
    gap: float,
    target: float,
    n_iter: int,
) -> Solution:
    """Return the solution of a model on the rows of the blocks; ``risk`` is its mean loss."""
    return Solution(
        coef=coef,
        intercept=b,
        multiplier=multiplier,
        objective=objective,
        gap=gap,
        n_iter=n_iter,
        converged=gap <= target,
        message=verdict(gap, target, n_iter),
        mean_loss=risk,
    )


#: What the message of a solution says where beta = 0 is the best.
CONSTANT = "the constant model is optimal at this delta"
