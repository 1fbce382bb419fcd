"""What stochastic descent asks of a sample of rows, and the random nodes of linear scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ...duality import DualRows
from ...losses import Loss
from .gaussian_integral import Nodes, peaks, smoothed_rows, softmax
from .smoothed_dual import row_derivatives, spread

Array = NDArray[Any]
Generator = np.random.Generator

#: Samples of the normal kept for reuse.
POOL = 4096
#: Smoothness rho^2/eps from which on a row may have two maxima, or one nearly flat.
NEARLY_FLAT = 0.9
#: Newton steps to a maximum, and what is left of a step that needs no other, in widths of a draw:
#: the weights make up for it.
STEPS, CLOSE = 8, 0.1
#: A width that needs no bound, in standard deviations of the normal.
NARROW = 2.0
#: The least mass, relative to that of a row, for which a component gets a draw.
COUNTS = 1e-6


@dataclass(frozen=True, eq=False)
class SampledGradient:
    """The objective and its gradient in (theta, b, lam) from some rows and draws."""

    objective: float
    grad: Array


@dataclass(frozen=True, eq=False)
class SampledModel(SampledGradient):
    """The same with the Hessian, and ``effective``, the share of the draws that count."""

    hessian: Array
    effective: float


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws g + width xi with log weights log_weight + log_common, one row per column.

    xi and log_weight have shape (L, n) (or (1, n)), the others (n,).
    """

    xi: Array
    g: Array
    width: Array
    log_weight: Array
    log_common: Array

    @property
    def nodes(self) -> Nodes:
        """The same as nodes of shape (n, L)."""
        g = self.g + self.width * self.xi
        return Nodes(g.T, (self.log_weight + self.log_common).T)


@dataclass(eq=False)
class LinearScore:
    r"""Rows under a squared Euclidean cost: only the draw along beta counts, so only it is made.

    ``proposal`` is "maximiser" (normals at the inner maxima, as wide as the integrand there, two
    where there are two) or "centred" (at the row). Draws are stratified, L strata of the normal;
    ``seed`` fixes the pool they come from.
    """

    rows: DualRows
    loss: Loss
    L: int
    proposal: str
    seed: int = 0

    @cached_property
    def pool(self) -> Array:
        """Stratified samples of the normal, one per column, the strata of each in random order."""
        rng = np.random.default_rng((self.seed, self.L))
        strata = rng.permuted(np.tile(np.arange(self.L), (POOL, 1)), axis=1)
        return np.asarray(ndtri((strata.T + rng.random((self.L, POOL))) / self.L))

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.rows.design.n)

    @property
    def smoothness(self) -> float:
        """That of the loss."""
        return float(self.loss.smoothness)

    def normals(self, n: int, rng: Generator) -> Array:
        """Return one sample per row, shape (L, n): the pool from a random column on, and around.

        Every column is as likely for every row, and rows have different ones.
        """
        start = int(rng.integers(POOL))
        if start + n <= POOL:
            return self.pool[:, start : start + n]
        return self.pool.take(np.arange(start, start + n), axis=1, mode="wrap")

    def draws(self, z: Array, y: Array, rho: float, eps: float, rng: Generator) -> Draws:
        """Return draws with the logarithms of their importance weights."""
        xi = self.normals(len(z), rng)
        if self.proposal == "centred":
            zero = np.zeros_like(z)
            return Draws(xi, zero, zero + 1, zero[None], zero - np.log(self.L))
        if self.loss.smoothness * rho**2 < NEARLY_FLAT * eps:
            return _around(*_maximum(self.loss, z, y, rho, eps), xi)
        return _around_peaks(self.loss, z, y, rho, eps, xi)

    def _part(self, index: Array) -> DualRows:
        """Return some rows, with weights that stand for all."""
        rows = self.rows
        return replace(
            rows,
            design=rows.design.rows(index),
            y=rows.y[index],
            weights=rows.weights[index] * (self.n / len(index)),
        )

    def gradient(self, index: Array, x: Array, eps: float, rng: Generator) -> SampledGradient:
        """Return objective and gradient: moments of l' and l' g over the draws."""
        part = self._part(index)
        theta = x[:-2]
        lam = float(x[-1])
        w = float(np.linalg.norm(theta))
        tau = spread(lam, eps)
        rho = w * tau
        z = part.design.scores(theta) + x[-2]
        at = self.draws(z, part.y, rho, eps, rng)
        p, slope, sign = self.loss.slope_and_value(z + rho * at.g, rho * at.width, at.xi, part.y)
        # p = exp(l/eps) times the weight, up to the factor exp(top) of a row
        p *= 1 / eps
        p += at.log_weight
        top = p.max(axis=0)
        p -= top
        np.exp(p, out=p)
        total = p.sum(axis=0)
        slope *= p
        pi = part.weights[:, 0]
        scale = pi * sign / total
        dz = scale * slope.sum(axis=0)
        by_rho = float(dz @ at.g + (scale * at.width) @ np.einsum("kn,kn->n", slope, at.xi))
        grad = np.empty_like(x)
        grad[:-2] = part.design.adjoint(dz) + by_rho * tau / w * theta
        grad[-2] = dz.sum() * part.fit_intercept
        # d tau/d lam = -tau^3/eps
        delta = float(part.delta[0])
        grad[-1] = delta - by_rho * w * tau**3 / eps
        found = eps * (top + at.log_common + np.log(total))
        return SampledGradient(lam * delta + float(pi @ found), grad)

    def model(self, index: Array, x: Array, eps: float, rng: Generator) -> SampledModel:
        """Return objective, gradient and Hessian."""
        part = self._part(index)
        theta = x[:-2]
        lam = float(x[-1])
        w = part.dual_norm.norms(theta[:, None])
        tau = spread(lam, eps)
        rho = float(w[0, 0]) * tau
        z = part.design.scores(theta) + float(x[-2])
        nodes = self.draws(z, part.y, rho, eps, rng).nodes
        rows = smoothed_rows(self.loss, z, part.y, rho, eps, nodes)
        pi = part.weights[:, 0]
        rates = row_derivatives(rows, pi, w[:, 0], tau, eps)
        grad, H = part.derivatives(theta[:, None], w, rates)
        objective = lam * float(part.delta[0]) + float(pi @ rows.value)
        return SampledModel(objective, grad[0], H[0], float(rows.effective.mean() / self.L))


def _maximum(loss: Loss, z: Array, y: Array, rho: float, eps: float) -> tuple[Array, Array]:
    """Return the only maximiser g of l/eps - g^2/2 and its width, by few Newton steps."""
    ratio = rho**2 / eps
    s = ratio * loss.derivative(z, y)
    for _ in range(STEPS):
        slope = loss.derivative(z + s, y)
        bend = 1 - ratio * loss.curvature(z + s, y)
        step = (s - ratio * slope) / bend
        s -= step
        # about this is left of the way
        if ratio * loss.smoothness * (step * step).max() <= CLOSE * rho:
            break
    return s / rho, 1 / np.sqrt(bend)


def _around(g: Array, width: Array, xi: Array) -> Draws:
    """Return draws from one normal per row."""
    # with node = g + width xi: (xi^2 - node^2)/2 + log(width/L)
    log = xi * ((1 - width**2) / 2)
    log -= g * width
    log *= xi
    return Draws(xi, g, width, log, np.log(width / len(xi)) - g**2 / 2)


def _around_peaks(loss: Loss, z: Array, y: Array, rho: float, eps: float, xi: Array) -> Draws:
    """Return draws around one or two maxima.

    Where a row lacks one of two, the shoulder near which it vanished stands for it: the tails of a
    normal at the other one miss the mass there.
    """
    tops = peaks(loss, z, y, rho, eps)
    if len(tops.g) == 1:
        return _around(tops.g[0], tops.width[0], xi)
    # a flat top is no wider than the way to the other, if that is long
    width = np.minimum(tops.width, np.maximum(np.ptp(tops.g, axis=0), NARROW))
    value = loss.value(z + rho * tops.g, np.broadcast_to(y, tops.g.shape)) / eps - tops.g**2 / 2
    return _mixture(tops.g, width, value, xi)


def _mixture(g: Array, width: Array, value: Array, xi: Array) -> Draws:
    """Return draws from two normals, shared by mass, weighted by the mixture's density."""
    L, n = xi.shape
    mass, _ = softmax((value + np.log(width)).T)
    low, high = mass.T > COUNTS
    first = np.clip(np.round(L * mass[:, 0]), low, L - 1.0 * high)
    of_first = np.arange(L)[:, None] < first
    node = xi * np.where(of_first, *width)
    node += np.where(of_first, *g)
    with np.errstate(divide="ignore"):
        log_share = np.log(np.stack([first, L - first])) - np.log(width)
    one, two = (log_share[c] - ((node - g[c]) / width[c]) ** 2 / 2 for c in (0, 1))
    # log of the mixture's density, by log(e^one + e^two), over that of the standard normal
    log = np.log1p(np.exp(-np.abs(one - two)))
    log += np.maximum(one, two)
    log += node**2 / 2
    zero = np.zeros(n)
    return Draws(node, zero, zero + 1, -log, zero)
