"""The descent of methods over rows in chunks whose steps take one pass each."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...chunks import Job, Sums
from ...progress import logger
from ..base import duality_gap
from ..euclidean.order_one import ARMIJO, ROUNDING, STILL
from .passes import Passes
from .stream import Stream
from .sums import LENGTHS

Array = NDArray[Any]

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

    def bound(self, x: Any, move: Any, found: Sums) -> float:
        """Return the dual value that a pass took."""

    def point(self, at: Array, place: int, found: Sums) -> Any:
        """Return the point at one of the lengths; only that at the first has derivatives."""


def at_model(task: Descending, at: Array) -> Passes[Any]:
    """Return the point of a model: one pass."""
    found = yield task.job(at, np.zeros_like(at), 1.0)
    return task.point(at, 0, found)


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
        found = yield task.job(x.at, step, move.scale)
        # the slopes along a part of the step need not be feasible
        lower = max(lower, task.bound(x, move, found)) if share == 1 else lower
        ends = ((t, task.point(x.at + t * step, j, found)) for j, t in enumerate(LENGTHS))
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
