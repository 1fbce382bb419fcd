r"""Squared loss at order 2 from moments: every delta, fold and cost from one pass over the rows.

The moments of t = (1, z, y) by fold give the spectrum of the training rows of every fold
(``solvers/euclidean/spectral.py``) and the loss on the rows left out; one more pass takes the
residuals of the solutions, and with them the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import rooted
from ...losses import PiecewiseQuadratic
from ...problem import Solution
from ..base import duality_gap, verdict
from ..euclidean.spectral import Spectrum, lower_value
from .stream import Stream
from .sums import Models, MomentSums, ResidualSums

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FoldMoments:
    """Sums of tt', t = (1, z, y - shift), by fold (F, d + 2, d + 2)."""

    stream: Stream
    table: Array
    shift: float

    def training(self, left_out: int) -> Array:
        """Return the sums over the rows outside a fold."""
        total: Array = self.table.sum(axis=0)
        return total - self.table[left_out] if left_out >= 0 else total

    def centred(self, left_out: int = -1) -> tuple[Array, Array, float, Array]:
        """Return E zz', E zy, E y^2 about the means (with an intercept), and the means (z, y)."""
        M = self.training(left_out)
        M = M / M[0, 0]
        mean = M[0, 1:] if self.stream.fit_intercept else np.zeros(len(M) - 1)
        C = M[1:, 1:] - np.outer(mean, mean)
        return C[:-1, :-1], C[:-1, -1], float(C[-1, -1]), mean

    def spectrum(self, factor: Array | None, left_out: int = -1) -> Spectrum:
        """Return the spectrum of the training rows in the coordinates of a cost."""
        G, pull, size, _ = self.centred(left_out)
        if factor is not None:
            G, pull = factor.T @ G @ factor, factor.T @ pull
        return Spectrum.from_moments(G, pull, size)

    def models(self, factor: Array | None, deltas: Array, left_out: int = -1) -> Models:
        """Return the minimisers at every delta, on centred rows and targets less the shift."""
        spectrum = self.spectrum(factor, left_out)
        theta = np.stack([spectrum.theta(spectrum.stiffness(float(t))) for t in deltas], axis=1)
        coef = theta if factor is None else factor @ theta
        mean = self.centred(left_out)[3]
        b = mean[-1] - mean[:-1] @ coef
        return Models(coef, b, np.full(len(deltas), left_out))

    def held(self, models: Models, fold: int) -> Array:
        """Return the mean squared residual of models on the rows of a fold."""
        M = self.table[fold]
        u = np.vstack([-models.b, -models.coef, np.ones(len(models))])
        mass = max(M[0, 0], np.finfo(float).tiny)
        return np.maximum(0.0, np.einsum("ib,ij,jb->b", u, M, u)) / mass


def job(stream: Stream) -> MomentSums:
    """Return the job that takes the moments, about a target near the mean."""
    return MomentSums(stream.blocks, shift(stream))


def moments(stream: Stream, found: dict[str, Any]) -> FoldMoments:
    """Return the moments that ``job`` found."""
    return FoldMoments(stream, found["moments"], shift(stream))


def shift(stream: Stream) -> float:
    """Return a target near the mean; 0 without an intercept."""
    return float(np.mean(stream.kept.ys[0])) if stream.fit_intercept else 0.0


def certified(
    of: FoldMoments, factor: Array | None, deltas: Array, tol: float
) -> tuple[list[Solution], Array]:
    """Return the solutions at every delta with their gaps, and their plain risks: one pass."""
    stream = of.stream
    pieces = stream.loss.pieces
    assert pieces is not None
    models = of.models(factor, deltas)
    [found] = stream.chunks.total(ResidualSums(stream.blocks, models, of.shift))
    target = tol * of.centred()[2] / (2 * pieces.kappa)
    solutions = [
        _solution(of, factor, models, found, j, float(delta), pieces, target)
        for j, delta in enumerate(deltas)
    ]
    return solutions, found["square"] / stream.total / (2 * pieces.kappa)


def _solution(
    of: FoldMoments,
    factor: Array | None,
    models: Models,
    found: dict[str, Any],
    j: int,
    delta: float,
    pieces: PiecewiseQuadratic,
    target: float,
) -> Solution:
    """Return the solution of one delta; dual: max <a, y>, |Z'a| <= sqrt(delta), |a| <= 1, E a = 0.

    a = (e - E e)/|e|; the mean is rounding, since the intercept took it out.
    """
    n, stream = of.stream.total, of.stream
    coef = np.ascontiguousarray(models.coef[:, j])
    first, mean = float(found["first"][j]) / n, of.centred()[3]
    first = first if stream.fit_intercept else 0.0
    square = max(float(found["square"][j]) / n - first**2, 0.0)
    rms = max(float(np.sqrt(square)), np.finfo(float).tiny)
    pull = found["pull"][:, j] / n - first * mean[:-1]
    height = (float(found["height"][j]) / n - first * mean[-1]) / rms
    size = float(np.linalg.norm(pull if factor is None else factor.T @ pull)) / rms
    w = float(np.linalg.norm(coef if factor is None else np.linalg.solve(factor, coef)))
    dual = rooted(float(found["square"][j]) / n / (2 * pieces.kappa), w, delta, pieces.kappa)
    lower = lower_value(float(np.sqrt(delta)), w, size, height, False) / (2 * pieces.kappa)
    gap = duality_gap(dual.risk, lower)
    return Solution(
        coef=coef,
        intercept=float(models.b[j]) + of.shift - float(stream.center @ coef),
        multiplier=dual.multiplier if w > 0 else 0.0,
        objective=dual.risk,
        gap=gap,
        n_iter=1,
        converged=gap <= target,
        message=verdict(gap, target, 1),
    )
