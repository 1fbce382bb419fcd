r"""Draws in R^d for costs without a one-dimensional form: functions, feature maps, other norms.

.. math:: G_i = \varepsilon \log \frac1L \sum_k
          \exp\{(\ell(U_k'\beta + b) - \lambda c(U_k, x_i))/\varepsilon\}\,/\,q_i(U_k)

with U_k from normals of density q_i at the inner maximisers, shaped by the local matrix A(x_i) of
the cost and stretched along beta as the loss is curved; q_i is relative to
N(x_i, (eps/2 lam) A^-1). The Gaussian term is taken off by the same integral without the loss,
:math:`\varepsilon\log E\, e^{-\lambda c/\varepsilon}`, from draws around the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..feature_map.inner_ascent import LocalRows, ascend
from .gaussian_integral import maxima, softmax
from .linear_score import Estimate

Array = NDArray[Any]

#: Ascent steps to a maximiser before draws are made around it.
ASCENT = 8


@dataclass(frozen=True, eq=False)
class Cloud:
    """The smoothed objective of rows in R^d."""

    terrain: LocalRows
    center: Array
    weights: Array
    delta: float
    fit_intercept: bool
    L: int
    proposal: str
    sigma: float
    smoothness: float = 0.0

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.weights)

    @property
    def d(self) -> int:
        """The number of columns."""
        return int(self.terrain.X.shape[1])

    def gradient(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return objective and gradient from the rows of ``index``."""
        return self._estimate(index, x, eps, rng, second=False)

    def model(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return the same with the Hessian."""
        return self._estimate(index, x, eps, rng, second=True)

    def _estimate(
        self, index: Array, x: Array, eps: float, rng: np.random.Generator, second: bool
    ) -> Estimate:
        part, lam = self.terrain.rows(index), float(x[-1])
        beta, b = x[:-2], float(x[-2] - self.center @ x[:-2])
        U, log_q = self._draws(part, beta, b, lam, eps, rng)
        m, L, d = U.shape
        flat = U.reshape(-1, d)
        y = np.repeat(part.y, L)
        value, slope, bend = part.loss.evaluate(flat @ beta + b, y)
        price = part.cost.price(flat, np.repeat(part.X, L, axis=0), part.order)
        p, log_sum = softmax(((value - lam * price) / eps).reshape(m, L) - log_q)
        pi = self.weights[index] * (self.n / m)
        mass = (pi[:, None] * p).ravel()
        a = np.column_stack([slope[:, None] * (flat - self.center), slope, -price])
        if not self.fit_intercept:
            a[:, -2] = 0.0
        base = self._baseline(part, lam, eps, rng)
        rows = eps * (log_sum - np.log(L) - base.log_mass)
        grad = a.T @ mass
        grad[-1] += self.delta + pi @ base.price
        H = None
        if second:
            H = _covariance(a, mass, p, pi, eps)
            ones = np.full(len(flat), float(self.fit_intercept))
            R = np.column_stack([flat - self.center, ones])
            H[:-1, :-1] += R.T @ ((mass * bend)[:, None] * R)
            H[-1, -1] -= pi @ base.spread / eps
            if not self.fit_intercept:
                H[-2, -2] = 1.0
        objective = lam * self.delta + float(pi @ rows)
        effective = float(np.mean(1 / (L * np.einsum("nk,nk->n", p, p))))
        return Estimate(objective, grad, rows, effective, H)

    def _baseline(self, part: LocalRows, lam: float, eps: float, rng: Any) -> _Baseline:
        """Return log E exp(-lam c/eps) of each row, with mean and variance of c under it."""
        m, d = part.X.shape
        if self.proposal == "paper":
            return _Baseline(np.zeros(m), np.zeros(m), np.zeros(m))
        xi = rng.standard_normal((m, self.L, d))
        factor = np.broadcast_to(np.linalg.cholesky(part.A), (m, d, d))
        V = part.X[:, None] + np.sqrt(eps / (2 * lam)) * _unwhiten(factor, xi)
        rows = np.repeat(part.X, self.L, axis=0)
        price = part.cost.price(V.reshape(-1, d), rows, part.order).reshape(m, self.L)
        p, log_sum = softmax(-lam * price / eps + (xi**2).sum(axis=2) / 2)
        mean = np.einsum("nk,nk->n", p, price)
        spread = np.einsum("nk,nk->n", p, (price - mean[:, None]) ** 2)
        return _Baseline(log_sum - np.log(self.L), mean, spread)

    def _draws(
        self, part: LocalRows, beta: Array, b: float, lam: float, eps: float, rng: Any
    ) -> tuple[Array, Array]:
        """Return draws of shape (m, L, d) and the logarithm of their relative density."""
        m, d = part.X.shape
        xi = rng.standard_normal((m, self.L, d))
        if self.proposal == "paper":
            return self.sigma * xi, np.zeros((m, self.L))
        scale = np.sqrt(eps / (2 * lam))
        factor = np.broadcast_to(np.linalg.cholesky(part.A), (m, d, d))
        if self.proposal == "centred":
            return part.X[:, None] + scale * _unwhiten(factor, xi), -(xi**2).sum(axis=2) / 2
        e = np.linalg.solve(factor, np.broadcast_to(beta[:, None], (m, d, 1)))[..., 0]
        w = np.linalg.norm(e, axis=1)
        frame = _Frame(factor, e / w[:, None], scale)
        tops = _homes(part, beta, b, lam, w, _unwhiten(factor, e[:, None])[:, 0])
        bend = [part.loss.curvature(U @ beta + b, part.y) * w**2 / (2 * lam) for U in tops]
        stretch = 1 / np.sqrt(1 - np.clip(bend, 0.0, 0.95))
        if len(tops) == 2:
            # a flat top is no wider than the way to the other, if that is long
            way = np.abs((tops[0] - tops[1]) @ beta) / (w * scale)
            stretch = np.minimum(stretch, np.maximum(way, 2.0))
        gains = np.stack([part.gain(U, beta, b, lam) for U in tops]) / eps
        return frame.mixture(tops, stretch, gains, xi)


def _homes(part: LocalRows, beta: Array, b: float, lam: float, w: Array, push: Array) -> Array:
    """Return the maxima of every row, ascended to from those under A, x + s push/w^2; where one of
    two is missing, the shoulder that stands for it under A."""
    kappa = lam / w**2
    if np.isinf(part.loss.lipschitz):
        kappa = np.maximum(kappa, 0.51 * part.loss.smoothness)
    inner = maxima(part.loss, part.X @ beta + b, part.y, kappa)
    starts = part.X + (inner.shift / w**2)[..., None] * push
    tops = np.stack([ascend(part, U, beta, b, lam, ASCENT) for U in starts])
    return np.where(np.isfinite(inner.value)[..., None], tops, starts)


@dataclass(frozen=True, eq=False)
class _Baseline:
    """The integral without the loss: its logarithm, and mean and variance of the cost under it."""

    log_mass: Array
    price: Array
    spread: Array


@dataclass(frozen=True, eq=False)
class _Frame:
    """Whitened coordinates: factors of A, unit vectors e along beta, the scale of a draw."""

    factor: Array
    e: Array
    scale: float

    def stretched(self, xi: Array, k: Array) -> Array:
        """Return xi with its part along e multiplied by k."""
        along = np.einsum("nkd,nd->nk", xi, self.e)
        moved: Array = xi + ((k - 1)[:, None] * along)[..., None] * self.e[:, None]
        return moved

    def mixture(self, tops: Array, stretch: Array, gains: Array, xi: Array) -> tuple[Array, Array]:
        """Return draws around one or two maxima and the log density of their mixture."""
        m, L, _ = xi.shape
        if len(tops) == 2:
            mass = softmax((gains + np.log(stretch)).T)[0][:, 0]
            first = np.clip(np.round(L * mass), 1, L - 1).astype(int)
        else:
            first = np.full(m, L)
        use = (np.arange(L) >= first[:, None]).astype(int)
        k = np.where(use == 0, stretch[0][:, None], stretch[-1][:, None])
        along = np.einsum("nkd,nd->nk", xi, self.e)
        moved = xi + ((k - 1) * along)[..., None] * self.e[:, None]
        home = np.where(use[..., None] == 0, tops[0][:, None], tops[-1][:, None])
        U = home + self.scale * _unwhiten(self.factor, moved)
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
        xi = self.stretched(white, 1 / k)
        log: Array = -(xi**2).sum(axis=2) / 2 - np.log(k)[:, None]
        return log


def _unwhiten(factor: Array, xi: Array) -> Array:
    """Return the rows L^-T xi."""
    return np.swapaxes(np.linalg.solve(np.swapaxes(factor, 1, 2), np.swapaxes(xi, 1, 2)), 1, 2)


def _covariance(a: Array, mass: Array, p: Array, pi: Array, eps: float) -> Array:
    """Return the sum over rows of pi Cov(a)/eps under the weights p."""
    m, L = p.shape
    mean = np.einsum("nk,nkd->nd", p, a.reshape(m, L, -1))
    H: Array = (a * mass[:, None]).T @ a - (mean * pi[:, None]).T @ mean
    return H / eps
