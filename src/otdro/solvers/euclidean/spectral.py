r"""Squared loss, order 2, Euclidean cost: the square-root ridge path from one spectrum.

.. math:: \min_{\theta, b}\ \bigl(\mathrm{rms}(e) + \sqrt\delta\,\|\theta\|_2\bigr)^2/(2\kappa),
          \qquad \mathrm{rms}^2 = \sum_i \pi_i (y_i - z_i'\theta - b)^2,

for the loss e^2/(2 kappa).

With the rows and targets centred and scaled by the root of their weights, Z = U D V', q = U'y and
perp = ||y - Uq||^2, the solution is theta(k) = V diag(D/(D^2 + k)) q for the root k of

.. math:: \sum_j D_j^2 o_j \Big/ \Bigl(\sum_j o_j + perp/k^2\Bigr) = \delta,
          \qquad o_j = q_j^2/(D_j^2 + k)^2 .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from ...arrays import beside, namespace, numpy, pick_columns
from ...design import Design
from ...duality import EQUAL, rooted, threshold
from ...problem import Problem, Solution
from ..exact import Method, Starts, duality_gap, verdict
from .newton import Coordinates

Array = NDArray[Any]

#: The least eigenvalue of Z'Z, relative to the largest, that survives squaring the spectrum.
LEAST_SQUARE = 1e-9
#: The least remainder, relative to ||y||^2, that survives squaring the spectrum.
LEAST_REMAINDER = 1e-6
#: A pull beyond the budget by more than this, relative, is rounding of the residuals.
ROUNDING = 1e-9
TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Z = U D V' of weighted, centred rows through ``D``, ``V``, q = U'y, perp and ||y||^2."""

    D: Array
    V: Array
    q: Array
    perp: float
    size: float

    @classmethod
    def from_rows(cls, Z: Array, y: Array) -> Spectrum:
        """Return the spectrum by a singular value decomposition, accurate to rounding."""
        U, spread, Vt = namespace(Z).linalg.svd(Z, full_matrices=False)
        D, V = numpy(spread), numpy(Vt).T
        rounding = len(D) * np.finfo(float).eps * max(D.max(initial=0), np.finfo(float).tiny)
        keep = D > rounding  # noqa: SIM300
        U, D, V = pick_columns(U, keep), D[keep], V[:, keep]
        q = U.T @ y
        rest = y - U @ q
        rest -= U @ (U.T @ rest)
        perp, size = float(rest @ rest), float(y @ y)
        # a remainder of rounding: the data can be interpolated
        return cls(D, V, numpy(q), perp if perp > EQUAL * size else 0.0, size)

    @classmethod
    def from_gram(cls, design: Design, y: Array, weights: Array) -> Spectrum | None:
        """Return it from Z'Z, one pass, or None where squaring the spectrum loses too much."""
        G, size = design.gram(weights), float(weights @ y**2)
        found = cls.from_moments(G, design.adjoint(weights * y), size)
        kept = len(found.D) == len(G)
        return found if kept and found.perp > LEAST_REMAINDER * size else None

    @classmethod
    def from_moments(cls, G: Array, pull: Array, size: float) -> Spectrum:
        """Return it from G = Z'Z, Z'y and ||y||^2, along the directions that squaring leaves."""
        squares, V = np.linalg.eigh(G)
        keep = squares > LEAST_SQUARE * squares[-1]
        D, V = np.sqrt(squares[keep]), V[:, keep]
        q = (V.T @ pull) / D
        return cls(D, V, q, max(0.0, size - float(q @ q)), size)

    def stiffness(self, delta: float) -> float:
        """Return the k of a delta: inf if theta = 0 is optimal, 0 if the least squares fit is."""
        D, q = self.D, self.q
        pull = float(np.linalg.norm(D * q))
        if delta >= threshold(pull, self.size, np.inf, order=2) * (1 - EQUAL):
            return np.inf
        if delta == 0 or (self.perp == 0 and delta * np.sum(q**2 / D**4) <= np.sum(q**2 / D**2)):
            return 0.0

        squares, goal = D**2, np.log(delta)

        def excess(log_k: float) -> float:
            k = np.exp(log_k)
            o = (q / (squares + k)) ** 2
            return float(np.log(squares @ o) - np.log(o.sum() + self.perp / k**2) - goal)

        low, high = 2 * np.log(D.min()), 2 * np.log(D.max())
        while excess(low) > 0:
            low -= 5.0
        while excess(high) < 0:
            high += 5.0
            if high > 2 * np.log(D.max() / np.finfo(float).eps):
                # within rounding of the threshold
                return np.inf
        return float(np.exp(brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16)))

    def interpolating(self, theta: Array) -> Array:
        """Return (Z'Z)^-1 theta on the span of the rows: Z times it pulls like theta."""
        found: Array = self.V @ ((self.V.T @ theta).T / self.D**2).T
        return found

    def theta(self, k: float) -> Array:
        """Return the minimiser at stiffness k."""
        if np.isinf(k):
            return np.zeros(len(self.V))
        theta: Array = self.V @ (self.D / (self.D**2 + k) * self.q)
        return theta


class Spectral(Method):
    """The squared loss at order 2: the whole path from one spectrum."""

    geometries = frozenset({"euclidean"})
    on_device = True
    accepts_zero = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse other losses than the squared one."""
        pieces = problem.loss.pieces
        if pieces is None or not pieces.quadratic:
            return "a closed form needs the squared loss"
        return None

    def _solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta from one spectrum."""
        return solve_deltas(problem, deltas, tol)


def solve_deltas(problem: Problem, deltas: Array, tol: float) -> list[Solution]:
    """Solve at every delta from one spectrum."""
    at, target = Coordinates(problem), tol * problem.constant[1]
    shift = problem.constant[0]
    y, design = problem.y - shift, at.design
    found: list[Solution] = []
    spectrum = Spectrum.from_gram(design, y, problem.weights) if design.d <= design.n / 2 else None
    if spectrum is not None:
        found = _certified(at, problem, y, spectrum, deltas, target)
    if not found or not all(s.converged for s in found):
        root = problem.weights**0.5
        rows = Spectrum.from_rows(design.dense() * root[:, None], y * root)
        found = _certified(at, problem, y, rows, deltas, target)
    return found


def _certified(
    at: Coordinates,
    problem: Problem,
    y: Array,
    spectrum: Spectrum,
    deltas: Array,
    target: float,
) -> list[Solution]:
    """Return solutions with their gaps; dual: max <a, y>, |Z'a| <= sqrt(delta), |a| <= 1."""
    weights, pieces = problem.weights, problem.loss.pieces
    assert pieces is not None
    shift = float(weights @ (problem.y - y))
    stiffness = [spectrum.stiffness(float(delta)) for delta in deltas]
    theta = np.stack([spectrum.theta(k) for k in stiffness], axis=1)
    e = y[:, None] - at.design.scores(theta)
    b = numpy(weights @ e) if problem.fit_intercept else np.zeros(len(deltas))
    e -= beside(b, e)
    square = numpy(weights @ e**2)
    rms = np.sqrt(square)
    a = e / beside(np.maximum(rms, TINY), e)
    pull = at.design.adjoint(weights[:, None] * a)
    sizes = np.linalg.norm(pull, axis=0)
    far = (sizes > np.sqrt(deltas) * (1 + ROUNDING)) & (deltas > 0)
    if far.any():
        # a row far out has lost the digits of its residual: its slope follows from the others
        excess = pull * np.where(far, 1 - np.sqrt(deltas) / np.maximum(sizes, TINY), 0.0)
        a = a - at.design.scores(spectrum.interpolating(excess))
        a = a / beside(np.maximum(np.sqrt(numpy(weights @ a**2)), 1.0), a)
        sizes = np.linalg.norm(at.design.adjoint(weights[:, None] * a), axis=0)
    heights = numpy(weights @ (a * y[:, None]))
    coefs, solved = at.coef(theta), []
    for j, delta in enumerate(deltas):
        w, root = float(np.linalg.norm(theta[:, j])), float(np.sqrt(delta))
        dual = rooted(float(square[j]) / (2 * pieces.kappa), w, float(delta), pieces.kappa)
        exact = stiffness[j] == 0 and spectrum.perp == 0
        lower = lower_value(root, w, float(sizes[j]), float(heights[j]), exact) / (2 * pieces.kappa)
        gap = duality_gap(dual.risk, lower)
        coef = np.ascontiguousarray(coefs[:, j])
        solved.append(
            Solution(
                coef=coef,
                intercept=at.intercept(float(b[j]) + shift, coef),
                multiplier=dual.multiplier if w > 0 else 0.0,
                objective=dual.risk,
                gap=gap,
                n_iter=1,
                converged=gap <= target,
                message=verdict(gap, target, 1),
                dual=(
                    -at.design.scores(spectrum.interpolating(theta[:, j])) * delta / pieces.kappa
                    if exact
                    # dl/dz at the worst case, where residuals grow by 1 + sqrt(delta) w/rms
                    else -a[:, j] * float((rms[j] + root * w) / pieces.kappa)
                ),
                mean_loss=float(square[j]) / (2 * pieces.kappa),
            )
        )
    return solved


def lower_value(root: float, w: float, size: float, height: float, exact: bool) -> float:
    """Return the bound from a = e/rms(e), |Z'a| = size, <a, y> = height, root = sqrt(delta)."""
    if exact:
        # interpolation: a = sqrt(delta) U D^-1 V'theta/w attains the primal, rounding aside
        return (root * w) ** 2
    # at delta = 0 the constraint is Z'a = 0, met to rounding: its price is |Z'a| |theta|
    kappa = min(1.0, root / size) if root > 0 and size > 0 else 1.0
    lower = kappa * height - (size * w if root == 0 else 0.0)
    return max(lower, 0.0) ** 2
