"""What a stochastic solver asks of a sample of rows, and the random nodes of linear scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .dual_model import Point, Rows, derivatives, spread
from .tilt import Nodes, peaks, softmax, tilt

Array = NDArray[Any]

#: Samples of the normal kept for reuse.
POOL = 4096


@dataclass(frozen=True, eq=False)
class Estimate:
    """Monte Carlo objective with its gradient in (theta, b, lam); ``effective`` is the share of
    draws that count, ``rows`` the smoothed loss of each row."""

    objective: float
    grad: Array
    effective: float
    rows: Array
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


class LinearScore:
    r"""Rows under a squared Euclidean cost: only the draw along beta counts, so only it is made.

    ``proposal`` is "maximiser" (normals at the inner maxima, as wide as the integrand there, two
    where there are two) or "centred" (at the row). Draws are stratified, L strata of the normal.
    """

    def __init__(self, rows: Rows, L: int, proposal: str) -> None:
        self.rows, self.L, self.proposal = rows, L, proposal
        self.d = rows.design.d

    @cached_property
    def pool(self) -> Array:
        """Stratified samples of the normal, made once, of which every row draws one at a time."""
        u = np.random.default_rng(0).random((POOL, self.L))
        return np.asarray(ndtri((np.arange(self.L) + u) / self.L))

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.rows.design.n)

    @property
    def smoothness(self) -> float:
        """That of the loss, 0 where it has none."""
        bound = float(self.rows.loss.smoothness)
        return bound if np.isfinite(bound) else 0.0

    def nodes(self, z: Array, y: Array, rho: float, eps: float, rng: np.random.Generator) -> Nodes:
        """Return random nodes with the logarithms of their importance weights."""
        loss, L = self.rows.loss, self.L
        xi = self.pool[rng.integers(POOL, size=len(z))]
        if self.proposal == "centred":
            return Nodes(xi, np.full((len(z), 1), -np.log(L)))
        g, width, value = centres(loss, z, y, rho, eps)
        if len(g) == 1:
            node = g[0][:, None] + width[0][:, None] * xi
            log = (xi**2 - node**2) / 2 + np.log(width[0] / L)[:, None]
            return Nodes(node, log)
        return _mixture(g, width, value / eps, xi, rng)

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
        t = tilt(rows.loss, z, part.y, rho, eps, self.nodes(z, part.y, rho, eps, rng))
        objective = lam * rows.delta + float(part.weights @ t.value)
        return part, Point(theta, b, lam, z, t, objective, w)

    def gradient(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return objective and gradient: moments of l' and l' g over the draws."""
        rows, theta, lam = self.rows, x[:-2], float(x[-1])
        design, y = rows.design.rows(index), rows.y[index]
        pi = rows.weights[index] * (self.n / len(index))
        w, tau = float(np.linalg.norm(theta)), spread(lam, eps, np.inf)
        z = design.scores(theta) + x[-2]
        nodes = self.nodes(z, y, w * tau, eps, rng)
        value, slope, _ = rows.loss.evaluate(z[:, None] + w * tau * nodes.g, y[:, None])
        value /= eps
        value += nodes.log_weight
        p, log_sum = softmax(value)
        slope *= p
        dz, steep = slope.sum(axis=1), float(pi @ np.einsum("nk,nk->n", slope, nodes.g))
        grad = np.empty(self.d + 2)
        grad[:-2] = design.adjoint(pi * dz) + steep * tau / w * theta
        grad[-2] = (pi @ dz) * rows.fit_intercept
        grad[-1] = rows.delta - steep * w * tau**3 / eps
        effective = float(np.mean(1 / np.einsum("nk,nk->n", p, p))) / self.L
        found = eps * log_sum
        return Estimate(lam * rows.delta + float(pi @ found), grad, effective, found)

    def model(self, index: Array, x: Array, eps: float, rng: np.random.Generator) -> Estimate:
        """Return objective, gradient and Hessian."""
        part, p = self._tilted(index, x, eps, rng)
        grad, H = derivatives(part, p, eps, np.inf)
        effective = float(p.tilt.effective.mean() / self.L)
        return Estimate(p.objective, grad, effective, p.tilt.value, H)


def centres(loss: Any, z: Array, y: Array, rho: float, eps: float) -> tuple[Array, Array, Array]:
    """Return maximisers, widths and values of l - eps g^2/2; few Newton steps if concave."""
    if loss.smoothness * rho**2 >= 0.9 * eps:
        g, width, exists = peaks(loss, z, y, rho, eps)
        value = loss.value(z + rho * g, np.broadcast_to(y, g.shape)) - eps * g**2 / 2
        return g, width, np.where(exists, value, -np.inf)
    ratio = rho**2 / eps
    s = ratio * loss.derivative(z, y)
    for _ in range(3):
        slope, bend = loss.derivative(z + s, y), loss.curvature(z + s, y)
        s = s - (s - ratio * slope) / (1 - ratio * bend)
    width = 1 / np.sqrt(1 - ratio * loss.curvature(z + s, y))
    return s[None] / rho, width[None], np.zeros((1, len(z)))


def _mixture(g: Array, width: Array, value: Array, xi: Array, rng: np.random.Generator) -> Nodes:
    """Return draws from two normals, shared by mass, weighted by the mixture's density."""
    n, L = xi.shape
    mass, _ = softmax((value + np.log(width)).T)
    # each component gets one draw at least where it exists
    first = np.clip(np.round(L * mass[:, 0]), np.isfinite(value[0]), L - np.isfinite(value[1]))
    upper = rng.permuted(np.tile(np.arange(L), (n, 1)), axis=1) < first[:, None]
    share = np.stack([first / L, 1 - first / L])
    node = np.where(
        upper,
        g[0][:, None] + width[0][:, None] * xi,
        g[1][:, None] + width[1][:, None] * xi,
    )
    with np.errstate(divide="ignore"):
        log_share = np.log(share) - np.log(width)
    far = (node[None] - g[:, :, None]) / width[:, :, None]
    density = np.logaddexp(*(log_share[:, :, None] - far**2 / 2))
    return Nodes(node, -(node**2) / 2 - density - np.log(L))
