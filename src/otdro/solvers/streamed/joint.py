r"""Newton's method for one problem of smooth Lipschitz losses at order 2, each iteration one pass.

.. math:: \min_{\theta, b, \lambda > 0}\ F = \lambda\delta + \sum_i \pi_i \max_s
          \{\ell(z_i'\theta + b + s, y_i) - \lambda s^2/\|\theta\|^2\}

A pass takes F, its gradient and Newton matrix after a step, and the dual value of the slopes before
it. A row with two maxima is moved to the higher one: among many rows few are at a tie, and what
these cost is seen in the gap. No number per row is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import AT_THRESHOLD, feasible_growth, threshold
from ...duality.ties import solve_each
from ...problem import Solution
from ...progress import logger
from ..base import duality_gap
from ..euclidean.joint_newton import BELOW_THRESHOLD
from ..euclidean.joint_steps import ARMIJO, BLUNT, PATIENCE, SHARP, STALL, STILL, WAY
from .joint_sums import FeasibleSlopes, JointSums
from .newton import StreamCoordinates, along_gradient, constant_solution
from .passes import Passes
from .stream import Constant

Array = NDArray[Any]

#: The part of a step that is tried where the longer one does not descend, and the least one.
SHORTER, LEAST = 0.25, 0.01


@dataclass(frozen=True, eq=False)
class JointState:
    """(theta, b, lam) with F, plain risk, gradient and Hessian, and slopes that bound F below.

    ``slopes`` (3,) are the coefficients of feasible slopes, None where none were found; ``lower``
    is the dual value of the slopes before it.
    """

    at: Array
    value: float
    risk: float
    gradient: Array
    hessian: Array
    slopes: Array | None
    lower: float


@dataclass(frozen=True, eq=False)
class JointStream(StreamCoordinates):
    """One problem of order 2 over a stream, of delta > 0."""

    delta: float

    def solve(
        self, coef: Array, b: Any, lam: float, target: float, max_iter: int
    ) -> Passes[Solution]:
        """Minimise F."""
        stream, flat = self.stream, self.stream.constant()
        steep = self.steepness(flat)
        least = threshold(steep, flat.mean_square, stream.loss.lipschitz, order=2)
        if least <= self.delta * (1 + AT_THRESHOLD):
            return constant_solution(stream, flat, 1.0, target)
        first = np.append(self.theta(coef), [b, lam]) if coef.any() and lam > 0 else None
        x = yield from _first(self, first, flat, steep)
        x, gap, n_iter = yield from _descend(self, x, target, max_iter)
        model = (self.lift(x.at[:-2]), float(x.at[-2]), float(x.at[-1]))
        return stream.solution(*model, x.value, x.risk, gap, target, n_iter)


def _first(
    problem: JointStream, start: Array | None, flat: Constant, steep: float
) -> Passes[JointState]:
    """Return where to start: F is below that of beta = 0, from where no descent ends there."""
    if start is not None:
        x = yield from _at(problem, start)
        if x.value < flat.risk:
            return x
    rms = float(np.sqrt(flat.mean_square))
    rho = min(float(np.sqrt(problem.delta)) * rms, BELOW_THRESHOLD * steep)
    move = along_gradient(problem, rho, flat)
    share = 1.0
    while True:
        size = share * float(np.linalg.norm(move[:-1]))
        # of short moves F = lam delta + |theta|^2 E[a^2]/(4 lam)
        lam = size * rms / (2 * float(np.sqrt(problem.delta)))
        x = yield from _at(problem, np.append(flat.at(share * move), lam))
        if x.value < flat.risk or share < STILL:
            return x
        share *= SHORTER


def _descend(
    problem: JointStream, x: JointState, target: float, max_iter: int
) -> Passes[tuple[JointState, float, int]]:
    """Return the last point, its gap and the number of steps."""
    lower, gap, n_iter, stalls, blunt = 0.0, np.inf, 0, 0, False
    share, move = 1.0, _step(x)
    while n_iter < max_iter and stalls < PATIENCE:
        n_iter += 1
        new = yield from _at(problem, x.at + share * move, x)
        lower = max(lower, new.lower)
        gap = duality_gap(min(new.value, x.value), lower)
        logger.info("pass %d: risk %.9g, gap %.3g", problem.stream.chunks.passes, new.value, gap)
        allowed = x.value + ARMIJO * share * float(x.gradient @ move) + STILL * abs(x.value)
        if new.value <= allowed:
            stalls = stalls + 1 if x.value - new.value <= STALL * gap else 0
            x, share, blunt = new, 1.0, False
            if gap <= target:
                break
            move = _step(x)
        elif share > LEAST:
            share *= SHORTER
        elif not blunt:
            # where two maxima of a row part the model is too stiff
            x = yield from _at(problem, x.at, floor=BLUNT)
            share, move, blunt = 1.0, _step(x), True
        else:
            break
    return x, gap, n_iter


def _step(x: JointState) -> Array:
    """Return the Newton step (d + 2,), lam kept positive."""
    move: Array = -solve_each(x.hessian[None], x.gradient[None, :, None])[0, :, 0]
    longest = WAY * x.at[-1] / -move[-1] if move[-1] < 0 else 1.0
    return min(1.0, longest) * move


def _at(
    problem: JointStream, at: Array, before: JointState | None = None, floor: float = SHARP
) -> Passes[JointState]:
    """Return what one pass finds at (theta, b, lam), with the bound of the slopes before it."""
    stream, total = problem.stream, problem.stream.total
    known = None
    if before is not None and before.slopes is not None:
        known = FeasibleSlopes(before.at, before.slopes)
    found = yield JointSums(stream.blocks, stream.loss, problem.factor, at, floor, known)
    gradient, hessian = found["gradient"] / total, found["hessian"] / total
    gradient[-1] += problem.delta
    if not stream.fit_intercept:
        gradient[-2] = hessian[-2] = hessian[:, -2] = 0.0
        hessian[-2, -2] = 1.0
    return JointState(
        at,
        float(at[-1]) * problem.delta + found["value"] / total,
        found["risk"] / total,
        gradient,
        hessian,
        _slopes(problem, found),
        max(0.0, -found["conjugate"] / total) if known is not None else 0.0,
    )


def _slopes(problem: JointStream, found: dict[str, Any]) -> Array | None:
    """Return coefficients of feasible slopes, moved by a shift of b and a growth of theta.

    In units of (a, D, D r): a + eta D r, less the multiple of D that leaves the mean 0.
    """
    total = problem.stream.total
    sums, products = found["sums"] / total, found["products"] / total
    c = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    if problem.stream.fit_intercept:
        c[:, 1] = -(c @ sums) / max(float(sums[1]), np.finfo(float).tiny)
    # (g + eta dg)^2 <= delta E[(a + eta h)^2], quadratic in eta
    pulls = found["pulls"] @ c.T / total
    excess = pulls.T @ pulls - problem.delta * c @ products @ c.T
    eta = float(feasible_growth(excess[0, 0], excess[0, 1], excess[1, 1]))
    if not np.isfinite(eta):
        return None
    slopes: Array = c[0] + eta * c[1]
    return slopes
