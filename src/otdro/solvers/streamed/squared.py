r"""Squared loss at order 2: every delta, fold and cost from one pass over the rows.

The factors R of t = (1, z, y) by fold give the spectrum of the training rows of every fold
(``solvers/euclidean/spectral.py``) and the loss on the rows left out; one more pass takes the
residuals of the solutions, and with them the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...duality import rooted
from ...problem import Solution
from ..base import duality_gap
from ..euclidean.spectral import Spectrum, lower_value
from .stream import Stream
from .sums import Models, ResidualSums, TriangleSums, stacked

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FoldFactors:
    """Triangular factors of t = (1, z, y - shift) by fold (F, d + 2, d + 2): R'R sums w tt'."""

    stream: Stream
    table: Array
    shift: float

    @property
    def kappa(self) -> float:
        """That of the loss e^2/(2 kappa)."""
        assert self.stream.loss.pieces is not None
        return self.stream.loss.pieces.kappa

    @cached_property
    def _training(self) -> list[Array]:
        """The factors of the rows outside each fold, and of all rows last."""
        parts = range(len(self.table)) if self.stream.folds.count else ()
        return [stacked(np.delete(self.table, f, axis=0)) for f in parts] + [stacked(self.table)]

    def training(self, left_out: int = -1) -> Array:
        """Return the factor of the rows outside a fold, of weight 1 in all."""
        R = self._training[left_out]
        return R / abs(R[0, 0])

    def mean(self, left_out: int = -1) -> Array:
        """Return the means (z, y) of the rows outside a fold; 0 without an intercept."""
        R = self.training(left_out)
        return R[0, 1:] / R[0, 0] if self.stream.fit_intercept else np.zeros(len(R) - 1)

    def centred(self, left_out: int = -1) -> tuple[Array, Array]:
        """Return rows Z and targets y whose squares are those about the means.

        The first line of R is what t has along 1: with an intercept the others are free of it.
        """
        R = self.training(left_out)[1 if self.stream.fit_intercept else 0 :, 1:]
        return R[:, :-1], R[:, -1]

    def pull(self) -> tuple[Array, float]:
        """Return E zy and E y^2 about the means."""
        Z, y = self.centred()
        return Z.T @ y, float(y @ y)

    def spectrum(self, factor: Array | None, left_out: int = -1) -> Spectrum:
        """Return the spectrum of the training rows in the coordinates of a cost."""
        Z, y = self.centred(left_out)
        return Spectrum.from_rows(Z if factor is None else Z @ factor, y)

    def models(self, factor: Array | None, deltas: Array, left_out: int = -1) -> Models:
        """Return the minimisers at every delta, on centred rows."""
        spectrum = self.spectrum(factor, left_out)
        return self.at(spectrum, _stiffness(spectrum, deltas), factor, left_out)

    def at(
        self, spectrum: Spectrum, stiffness: list[float], factor: Array | None, left_out: int = -1
    ) -> Models:
        """Return the models of a spectrum at some stiffnesses."""
        theta = np.stack([spectrum.theta(each) for each in stiffness], axis=1)
        coef = theta if factor is None else factor @ theta
        mean = self.mean(left_out)
        return Models(coef, mean[-1] - mean[:-1] @ coef + self.shift)

    def held(self, models: Models, fold: int) -> Array:
        """Return the mean loss of models on the rows of a fold."""
        R = self.table[fold]
        e = R @ np.vstack([self.shift - models.b, -models.coef, np.ones(len(models))])
        mass = max(R[0, 0] ** 2, np.finfo(float).tiny)
        return np.asarray(np.einsum("ib,ib->b", e, e) / mass / (2 * self.kappa))


def job(stream: Stream) -> TriangleSums:
    """Return the job that takes the factors, about a target near the mean."""
    return TriangleSums(stream.blocks, shift(stream))


def factors(stream: Stream, found: dict[str, Any]) -> FoldFactors:
    """Return the factors that ``job`` found."""
    return FoldFactors(stream, found["triangles"].factors, shift(stream))


def shift(stream: Stream) -> float:
    """Return a target near the mean; 0 without an intercept."""
    return float(np.mean(stream.kept.ys[0])) if stream.fit_intercept else 0.0


def certified(of: FoldFactors, factor: Array | None, deltas: Array, tol: float) -> list[Solution]:
    """Return the solutions at every delta with their gaps: one pass."""
    stream, kappa = of.stream, of.kappa
    spectrum = of.spectrum(factor)
    stiffness = _stiffness(spectrum, deltas)
    models = of.at(spectrum, stiffness, factor)
    [found] = stream.chunks.total(ResidualSums(stream.blocks, models, of.shift))
    target = tol * of.pull()[1] / (2 * kappa)
    solutions = []
    for j, (delta, each) in enumerate(zip(deltas.tolist(), stiffness, strict=True)):
        e = _residuals(of, factor, models, found, j)
        # where the targets are interpolated the solution attains the bound
        exact = each == spectrum.perp == 0
        # the dual: max <a, y>, |Z'a| <= sqrt(delta), |a| <= 1, E a = 0
        lower = lower_value(float(np.sqrt(delta)), e.w, e.size, e.height, exact)
        dual = rooted(e.square / (2 * kappa), e.w, delta, kappa)
        gap = duality_gap(dual.risk, lower / (2 * kappa))
        coef = np.ascontiguousarray(models.coef[:, j])
        model = (coef, float(models.b[j]), dual.multiplier if e.w > 0 else 0.0)
        risk = e.square / (2 * kappa)
        solutions.append(stream.solution(*model, dual.risk, risk, gap, target, 1))
    return solutions


class Residuals(NamedTuple):
    """Of e at one model: E e^2; of a = (e - E e)/|e| the ``size`` |Z'a| and the ``height`` <a, y>.

    ``w`` is the norm of theta.
    """

    square: float
    size: float
    height: float
    w: float


def _residuals(
    of: FoldFactors, factor: Array | None, models: Models, found: dict[str, Any], j: int
) -> Residuals:
    """Return what a pass found at one model; E e is rounding, since the intercept took it out."""
    n, coef, mean = of.stream.total, models.coef[:, j], of.mean()
    first = float(found["first"][j]) / n if of.stream.fit_intercept else 0.0
    square = float(found["square"][j]) / n
    rms = max(float(np.sqrt(max(square - first**2, 0.0))), np.finfo(float).tiny)
    pull = found["pull"][:, j] / n - first * mean[:-1]
    height = (float(found["height"][j]) / n - first * mean[-1]) / rms
    size = float(np.linalg.norm(pull if factor is None else factor.T @ pull)) / rms
    w = float(np.linalg.norm(coef if factor is None else np.linalg.solve(factor, coef)))
    return Residuals(square, size, height, w)


def _stiffness(spectrum: Spectrum, deltas: Array) -> list[float]:
    """Return the stiffness of every delta."""
    return [spectrum.stiffness(float(delta)) for delta in deltas]
