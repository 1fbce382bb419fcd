"""What a stochastic solver asks of a sample of rows, and the random nodes of linear scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .gaussian_integral import Nodes, first_order, peaks, softmax, tilt
from .smoothed_dual import Point, Rows, derivatives, spread

Array = NDArray[Any]

#: Samples of the normal kept for reuse.
POOL = 4096


@dataclass(frozen=True, eq=False)
class Estimate:
    """Monte Carlo objective with its gradient in (theta, b, lam); ``rows`` is the smoothed loss of
    each row, ``effective`` the share of draws that count, nan where it was not asked for."""

    objective: float
    grad: Array
    rows: Array
    effective: float = np.nan
    hessian: Array | None = None


class Oracle(Protocol):
    """The smoothed objective of a problem, estimated from some rows and fresh draws."""

    @property
    def n(self) -> int:
        """The number of rows."""

    @property
    def smoothness(self) -> float:
        """That of the loss where w is the norm of theta, else 0."""

    def gradient(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return objective and gradient from the rows of ``index``, scaled to the whole sample."""

    def model(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return the same with the Hessian."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws g + width xi with log weights log_weight + log_common, one row a column: xi and
    log_weight of shape (L, n) (or (1, n)), the others of shape (n,)."""

    xi: Array
    g: Array
    width: Array
    log_weight: Array
    log_common: Array

    @property
    def nodes(self) -> Nodes:
        """The same as nodes of shape (n, L)."""
        g, log_weight = self.g + self.width * self.xi, self.log_weight + self.log_common
        return Nodes(g.T, log_weight.T)


class LinearScore:
    r"""Rows under a squared Euclidean cost: only the draw along beta counts, so only it is made.

    ``proposal`` is "maximiser" (normals at the inner maxima, as wide as the integrand there, two
    where there are two) or "centred" (at the row). Draws are stratified, L strata of the normal;
    ``seed`` fixes the pool they come from.
    """

    def __init__(self, rows: Rows, L: int, proposal: str, seed: int = 0) -> None:
        self.rows, self.L, self.proposal, self.seed = rows, L, proposal, seed
        self.d = rows.design.d

    @cached_property
    def pool(self) -> Array:
        """Stratified samples of the normal, one a column, the strata of each in random order."""
        rng = np.random.default_rng((self.seed, self.L))
        strata = rng.permuted(np.tile(np.arange(self.L), (POOL, 1)), axis=1)
        return np.asarray(ndtri((strata.T + rng.random((self.L, POOL))) / self.L))

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.rows.design.n)

    @property
    def smoothness(self) -> float:
        """That of the loss, 0 where it has none."""
        bound = float(self.rows.loss.smoothness)
        return bound if np.isfinite(bound) else 0.0

    def normals(self, n: int, rng: np.random.Generator) -> Array:
        """Return one sample a row, shape (L, n): the pool from a random column on, around its end.

        Every column is as likely for every row, and rows have different ones.
        """
        start = int(rng.integers(POOL))
        if start + n <= POOL:
            return self.pool[:, start : start + n]
        return self.pool.take(np.arange(start, start + n), axis=1, mode="wrap")

    def draws(self, z: Array, y: Array, rho: float, eps: float, rng: np.random.Generator) -> Draws:
        """Return draws with the logarithms of their importance weights."""
        xi = self.normals(len(z), rng)
        if self.proposal == "centred":
            zero = np.zeros_like(z)
            return Draws(xi, zero, zero + 1, zero[None], zero - np.log(self.L))
        g, width, value = centres(self.rows.loss, z, y, rho, eps)
        if len(g) == 2:
            return _mixture(g, width, value / eps, xi)
        g, width = g[0], width[0]
        # with node = g + width xi: (xi^2 - node^2)/2 + log(width/L)
        log = xi * ((1 - width**2) / 2)
        log -= g * width
        log *= xi
        return Draws(xi, g, width, log, np.log(width / self.L) - g**2 / 2)

    def _tilted(
        self, index: Array, x: Array, eps: float, rng: np.random.Generator
    ) -> tuple[Rows, Point]:
        rows = self.rows
        share = self.n / len(index)
        part = replace(
            rows,
            design=rows.design.rows(index),
            y=rows.y[index],
            weights=rows.weights[index] * share,
        )
        theta, b, lam = x[:-2], float(x[-2]), float(x[-1])
        z = part.design.scores(theta) + b
        w = float(np.linalg.norm(theta))
        rho = w * spread(lam, eps, np.inf)
        t = tilt(rows.loss, z, part.y, rho, eps, self.draws(z, part.y, rho, eps, rng).nodes)
        objective = lam * rows.delta + float(part.weights @ t.value)
        return part, Point(theta, b, lam, z, t, objective, w)

    def gradient(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return objective and gradient: moments of l' and l' g over the draws."""
        rows, theta, lam = self.rows, x[:-2], float(x[-1])
        design, y = rows.design.rows(index), rows.y[index]
        pi = rows.weights[index] * (self.n / len(index))
        w, tau = float(np.linalg.norm(theta)), spread(lam, eps, np.inf)
        z = design.scores(theta) + x[-2]
        at = self.draws(z, y, w * tau, eps, rng)
        p, slope, sign = first_order(rows.loss, z + w * tau * at.g, w * tau * at.width, at.xi, y)
        # p = exp(l/eps) times the weight, up to the factor exp(top) of a row
        p *= 1 / eps
        p += at.log_weight
        top = p.max(axis=0)
        p -= top
        np.exp(p, out=p)
        total = p.sum(axis=0)
        slope *= p
        pi_p = pi * sign / total
        dz = pi_p * slope.sum(axis=0)
        steep = float(dz @ at.g + (pi_p * at.width) @ np.einsum("kn,kn->n", slope, at.xi))
        grad = np.empty(self.d + 2)
        grad[:-2] = design.adjoint(dz) + steep * tau / w * theta
        grad[-2] = dz.sum() * rows.fit_intercept
        grad[-1] = rows.delta - steep * w * tau**3 / eps
        found = eps * (top + at.log_common + np.log(total))
        return Estimate(lam * rows.delta + float(pi @ found), grad, found)

    def model(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return objective, gradient and Hessian."""
        part, p = self._tilted(index, x, eps, rng)
        grad, H = derivatives(part, p, eps, np.inf)
        effective = float(p.tilt.effective.mean() / self.L)
        return Estimate(p.objective, grad, p.tilt.value, effective, H)


def centres(loss: Any, z: Array, y: Array, rho: float, eps: float) -> tuple[Array, Array, Array]:
    """Return maximisers, widths and values of l - eps g^2/2; few Newton steps if concave.

    Where a row lacks one of two maxima, the shoulder near which it vanished stands for it: the
    tails of a normal at the other one miss the mass there.
    """
    if loss.smoothness * rho**2 >= 0.9 * eps:
        g, width, _ = peaks(loss, z, y, rho, eps)
        value = loss.value(z + rho * g, np.broadcast_to(y, g.shape)) - eps * g**2 / 2
        if len(g) == 2:
            # a flat top is no wider than the way to the other, if that is long
            width = np.minimum(width, np.maximum(np.ptp(g, axis=0), 2.0))
        return g, width, value
    ratio = rho**2 / eps
    s = ratio * loss.derivative(z, y)
    for _ in range(8):
        slope, bend = loss.derivative(z + s, y), 1 - ratio * loss.curvature(z + s, y)
        step = (s - ratio * slope) / bend
        s -= step
        # about this is left, and the weights make up for a tenth of a draw's width
        if ratio * loss.smoothness * ((step * step).max()) <= 0.1 * rho:
            break
    return s[None] / rho, 1 / np.sqrt(bend)[None], np.zeros((1, len(z)))


def _mixture(g: Array, width: Array, value: Array, xi: Array) -> Draws:
    """Return draws from two normals, shared by mass, weighted by the mixture's density."""
    L, n = xi.shape
    mass, _ = softmax((value + np.log(width)).T)
    # a component gets one draw at least where its mass may count
    low, high = mass.T > 1e-6
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
