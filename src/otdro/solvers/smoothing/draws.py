r"""Random draws for the smoothed dual: along the score for linear scores, in R^d for other costs.

For a linear score and a squared Euclidean cost (``LinearScore``) only the draw along beta counts.
Else (``Particles``: functions, feature maps, other norms)

.. math:: G_i = \varepsilon \log \frac1L \sum_k
          \exp\{(\ell(U_k'\beta + b) - \lambda c(U_k, x_i))/\varepsilon\}\,/\,q_i(U_k)

with U_k from normals of density q_i at the inner maximisers, shaped by the local matrix A(x_i) of
the cost and stretched along beta as the loss is curved; q_i is relative to
N(x_i, (eps/2 lam) A^-1). The Gaussian term is taken off by the same integral without the loss,
:math:`\varepsilon\log E\, e^{-\lambda c/\varepsilon}`, from draws around the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ...duality import DualRows
from ...losses import Loss
from ..local_cost import LocalRows, ascend
from .quadrature import Nodes, peaks, row_derivatives, smoothed_rows, softmax, spread

Array = NDArray[Any]
Generator = np.random.Generator

#: Samples of the normal kept for reuse.
POOL = 4096
#: Smoothness rho^2/eps from which on a row may have two maxima, or one nearly flat.
NEARLY_FLAT = 0.9
#: Newton steps to a maximum.
STEPS = 8
#: What is left of a step that needs no other, in widths of a draw: the weights make up for it.
CLOSE = 0.1
#: A width that needs no bound, in standard deviations of the normal.
NARROW = 2.0
#: The least mass, relative to that of a row, for which a component gets a draw.
COUNTS = 1e-6
#: Ascent steps to a maximiser before draws are made around it.
ASCENT = 8
#: The largest share of the cost's curvature along beta that the loss takes from a draw's width.
MOST_CURVED = 0.95


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

    def draws(self, z: Array, y: Array, rho: float, eps: float, rng: Generator) -> Nodes:
        """Return draws with the logarithms of their importance weights."""
        xi = self.normals(len(z), rng)
        if self.proposal == "centred":
            return Nodes(xi.T, np.full_like(xi.T, -np.log(self.L)))
        if self.loss.smoothness * rho**2 < NEARLY_FLAT * eps:
            return _around(*_maximum(self.loss, z, y, rho, eps), xi)
        return _around_peaks(self.loss, z, y, rho, eps, xi)

    def _at(
        self, index: Array, x: Array, eps: float, rng: Generator
    ) -> tuple[DualRows, Array, float, Array, Nodes]:
        """Return some rows, with weights that stand for all, w, tau, scores and nodes."""
        rows = self.rows
        part = replace(
            rows,
            design=rows.design.rows(index),
            y=rows.y[index],
            weights=rows.weights[index] * (self.n / len(index)),
        )
        w = part.dual_norm.norms(x[:-2, None])
        tau = spread(float(x[-1]), eps)
        z = part.design.scores(x[:-2]) + float(x[-2])
        return part, w, tau, z, self.draws(z, part.y, float(w[0, 0]) * tau, eps, rng)

    def gradient(self, index: Array, x: Array, eps: float, rng: Generator) -> SampledGradient:
        """Return objective and gradient: moments of l' and l' g over the draws."""
        part, w, tau, z, nodes = self._at(index, x, eps, rng)
        size = float(w[0, 0])
        u = z[:, None] + size * tau * nodes.g
        value, slope, _ = self.loss.evaluate(u, np.broadcast_to(part.y[:, None], u.shape))
        p, log_total = softmax(value / eps + nodes.log_weight)
        p *= slope
        pi = part.weights[:, 0]
        dz = pi * p.sum(axis=1)
        by_rho = float(pi @ np.einsum("nk,nk->n", p, nodes.g))
        delta = float(part.delta[0])
        grad = np.empty_like(x)
        grad[:-2] = part.design.adjoint(dz) + by_rho * tau / size * x[:-2]
        grad[-2] = dz.sum() * part.fit_intercept
        # d tau/d lam = -tau^3/eps
        grad[-1] = delta - by_rho * size * tau**3 / eps
        return SampledGradient(float(x[-1]) * delta + eps * float(pi @ log_total), grad)

    def model(self, index: Array, x: Array, eps: float, rng: Generator) -> SampledModel:
        """Return objective, gradient and Hessian."""
        part, w, tau, z, nodes = self._at(index, x, eps, rng)
        rows = smoothed_rows(self.loss, z, part.y, float(w[0, 0]) * tau, eps, nodes)
        pi = part.weights[:, 0]
        rates = row_derivatives(rows, pi, w[:, 0], tau, eps)
        grad, H = part.derivatives(x[:-2, None], w, rates)
        objective = float(x[-1]) * float(part.delta[0]) + float(pi @ rows.value)
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


def _around(g: Array, width: Array, xi: Array) -> Nodes:
    """Return draws from one normal per row."""
    node = g + width * xi
    log = (xi**2 - node**2) / 2 + np.log(width / len(xi))
    return Nodes(node.T, log.T)


def _around_peaks(loss: Loss, z: Array, y: Array, rho: float, eps: float, xi: Array) -> Nodes:
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


def _mixture(g: Array, width: Array, value: Array, xi: Array) -> Nodes:
    """Return draws from two normals, shared by mass, weighted by the mixture's density."""
    L = len(xi)
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
    return Nodes(node.T, -log.T)


@dataclass(frozen=True, eq=False)
class Particles:
    """The smoothed objective of rows in R^d, in (beta, b, lam) with b that of centred rows.

    ``local`` are the rows with their cost, ``rows`` the same with weights and radius. Draws come
    by the ``proposal``: around the maxima, around the row, or from N(0, sigma^2 I). ``smoothness``
    is 0: w is not the norm of beta.
    """

    local: LocalRows
    rows: DualRows
    L: int
    proposal: str
    sigma: float
    smoothness: float = 0.0

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.rows.design.n)

    @property
    def center(self) -> Array:
        """The row at which the intercept is taken."""
        center = self.rows.design.center
        return np.zeros(self.rows.design.d) if center is None else center

    def gradient(self, index: Array, x: Array, eps: float, rng: Generator) -> SampledModel:
        """Return the model: beside the draws its Hessian costs little."""
        return self.model(index, x, eps, rng)

    def model(self, index: Array, x: Array, eps: float, rng: Generator) -> SampledModel:
        """Return objective, gradient and Hessian from the rows of ``index``."""
        part = self.local.rows(index)
        beta = x[:-2]
        b = float(x[-2] - self.center @ beta)
        lam = float(x[-1])
        U, log_q = self._draws(part, beta, b, lam, eps, rng)
        m, L, d = U.shape
        flat = U.reshape(-1, d)
        value, slope, bend = part.loss.evaluate(flat @ beta + b, np.repeat(part.y, L))
        price = part.cost.price(flat, np.repeat(part.X, L, axis=0), part.order)
        p, log_sum = softmax(((value - lam * price) / eps).reshape(m, L) - log_q)
        base = self._without_loss(part, lam, eps, rng)
        pi = self.rows.weights[index, 0] * (self.n / m)
        mass = (pi[:, None] * p).ravel()
        ones = np.full(len(flat), float(self.rows.fit_intercept))
        R = np.column_stack([flat - self.center, ones])
        # the gradients of l - lam c in (beta, b, lam) at the draws
        a = np.column_stack([slope[:, None] * R, -price])
        delta = float(self.rows.delta[0])
        grad = a.T @ mass
        grad[-1] += delta + pi @ base.price
        mean = np.einsum("nk,nkd->nd", p, a.reshape(m, L, -1))
        # the mean of the second derivatives, plus the covariance of the gradients over eps
        H = ((a * mass[:, None]).T @ a - (mean * pi[:, None]).T @ mean) / eps
        H[:-1, :-1] += R.T @ ((mass * bend)[:, None] * R)
        H[-1, -1] -= pi @ base.variance / eps
        if not self.rows.fit_intercept:
            H[-2, -2] = 1.0
        smoothed = eps * (log_sum - np.log(L) - base.log_mass)
        effective = float(np.mean(1 / (L * np.einsum("nk,nk->n", p, p))))
        return SampledModel(lam * delta + float(pi @ smoothed), grad, H, effective)

    def _without_loss(self, part: LocalRows, lam: float, eps: float, rng: Generator) -> WithoutLoss:
        """Return log E exp(-lam c/eps) of each row, with mean and variance of c under it."""
        m, d = part.X.shape
        if self.proposal == "paper":
            return WithoutLoss(np.zeros(m), np.zeros(m), np.zeros(m))
        xi = rng.standard_normal((m, self.L, d))
        V = part.X[:, None] + np.sqrt(eps / (2 * lam)) * _unwhiten(_factors(part), xi)
        rows = np.repeat(part.X, self.L, axis=0)
        price = part.cost.price(V.reshape(-1, d), rows, part.order).reshape(m, self.L)
        p, log_sum = softmax(-lam * price / eps + (xi**2).sum(axis=2) / 2)
        mean = np.einsum("nk,nk->n", p, price)
        variance = np.einsum("nk,nk->n", p, (price - mean[:, None]) ** 2)
        return WithoutLoss(log_sum - np.log(self.L), mean, variance)

    def _draws(
        self, part: LocalRows, beta: Array, b: float, lam: float, eps: float, rng: Generator
    ) -> tuple[Array, Array]:
        """Return draws of shape (m, L, d) and the logarithm of their relative density."""
        m, d = part.X.shape
        xi = rng.standard_normal((m, self.L, d))
        if self.proposal == "paper":
            return self.sigma * xi, np.zeros((m, self.L))
        scale = np.sqrt(eps / (2 * lam))
        factor = _factors(part)
        if self.proposal == "centred":
            return part.X[:, None] + scale * _unwhiten(factor, xi), -(xi**2).sum(axis=2) / 2
        e = np.linalg.solve(factor, np.broadcast_to(beta[:, None], (m, d, 1)))[..., 0]
        w = np.linalg.norm(e, axis=1)
        tops = _maxima(part, beta, b, lam, w, _unwhiten(factor, e[:, None])[:, 0])
        bend = [part.loss.curvature(U @ beta + b, part.y) * w**2 / (2 * lam) for U in tops]
        stretch = 1 / np.sqrt(1 - np.clip(bend, 0.0, MOST_CURVED))
        if len(tops) == 2:
            # a flat top is no wider than the way to the other, if that is long
            way = np.abs((tops[0] - tops[1]) @ beta) / (w * scale)
            stretch = np.minimum(stretch, np.maximum(way, NARROW))
        gains = np.stack([part.gain(U, beta, b, lam) for U in tops]) / eps
        return Whitened(factor, e / w[:, None], scale).mixture(tops, stretch, gains, xi)


def _factors(part: LocalRows) -> Array:
    """Return the Cholesky factors of the local matrices, one per row."""
    m, d = part.X.shape
    return np.broadcast_to(np.linalg.cholesky(part.A), (m, d, d))


def _maxima(part: LocalRows, beta: Array, b: float, lam: float, w: Array, push: Array) -> Array:
    """Return the maxima of every row, ascended to from those under A, x + s push/w^2; where one of
    two is missing, the shoulder that stands for it under A."""
    inner = part.loss.inner(part.X @ beta + b, part.y, w, part.finite_multiplier(lam, w**2))
    starts = part.X + (inner.shift / w**2)[..., None] * push
    tops = np.stack([ascend(part, U, beta, b, lam, ASCENT) for U in starts])
    return np.where(np.isfinite(inner.value)[..., None], tops, starts)


@dataclass(frozen=True, eq=False)
class WithoutLoss:
    """The integral without the loss: its logarithm, and mean and variance of the cost under it."""

    log_mass: Array
    price: Array
    variance: Array


@dataclass(frozen=True, eq=False)
class Whitened:
    """Whitened coordinates: factors of A, unit vectors e along beta, the scale of a draw."""

    factor: Array
    e: Array
    scale: float

    def stretched(self, xi: Array, k: Array) -> Array:
        """Return xi with its part along e multiplied by k, of shape (m, 1) or (m, L)."""
        along = np.einsum("nkd,nd->nk", xi, self.e)
        moved: Array = xi + ((k - 1) * along)[..., None] * self.e[:, None]
        return moved

    def mixture(self, tops: Array, stretch: Array, gains: Array, xi: Array) -> tuple[Array, Array]:
        """Return draws around one or two maxima and the log density of their mixture."""
        m, L, _ = xi.shape
        first = np.full(m, L)
        if len(tops) == 2:
            mass = softmax((gains + np.log(stretch)).T)[0][:, 0]
            first = np.clip(np.round(L * mass), 1, L - 1).astype(int)
        of_first = np.arange(L) < first[:, None]
        k = np.where(of_first, stretch[0][:, None], stretch[-1][:, None])
        top = np.where(of_first[..., None], tops[0][:, None], tops[-1][:, None])
        U = top + self.scale * _unwhiten(self.factor, self.stretched(xi, k))
        if len(tops) == 1:
            return U, -(xi**2).sum(axis=2) / 2 - np.log(k)
        share = np.stack([first, L - first]) / L
        logs = [
            np.log(share[c])[:, None] + self.log_density(U, tops[c], stretch[c]) for c in (0, 1)
        ]
        return U, np.logaddexp(*logs)

    def log_density(self, U: Array, top: Array, k: Array) -> Array:
        """Return -|xi|^2/2 - log k of the draws of one component."""
        white = np.einsum("nkd,nde->nke", U - top[:, None], self.factor) / self.scale
        xi = self.stretched(white, 1 / k[:, None])
        log: Array = -(xi**2).sum(axis=2) / 2 - np.log(k)[:, None]
        return log


def _unwhiten(factor: Array, xi: Array) -> Array:
    """Return the rows L^-T xi."""
    return np.swapaxes(np.linalg.solve(np.swapaxes(factor, 1, 2), np.swapaxes(xi, 1, 2)), 1, 2)
