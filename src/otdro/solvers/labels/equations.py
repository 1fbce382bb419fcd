"""Newton's equations of the interior point method for the largest of smooth pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs

from ...duality.ties import RIDGE, factored
from ..norm_rows import NormLine, NormPoint, NormRows, NormStep
from .pieces import SmoothPieces
from .priced_rows import Place, PricedRows, along, bound, curvature, gradient, hessian

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Iterate:
    """Points (theta, b, s) with scores and pieces, heights T (n, B), shares q (J, n, B)."""

    theta: Array
    b: Array
    s: Array
    z: Array
    pieces: SmoothPieces
    T: Array
    q: Array
    norm: NormPoint

    def place(self, j: int) -> Place:
        """Return the point of a problem, and its scores."""
        return Place(self.theta[:, j], float(self.b[j]), self.s[:, j], self.z[:, j])

    @property
    def inside(self) -> Array:
        """Whether slacks and shares are positive numbers, and theta is not 0."""
        value = self.pieces.value
        good = np.isfinite(value) & (value < self.T) & (self.q > 0)
        return np.asarray(good.all(axis=(0, 1)) & self.theta.any(axis=0))

    def problems(self, index: Array) -> Iterate:
        """Return the points of some problems."""
        each = (self.theta, self.b, self.s, self.z, self.T, self.q)
        theta, b, s, z, T, q = (part[..., index] for part in each)
        pieces, norm = self.pieces.problems(index), self.norm.problems(index)
        return Iterate(theta, b, s, z, pieces, T, q, norm)


class Step(NamedTuple):
    """The moves of (theta, b, s), scores, heights, slacks (J, n, B), shares, and of the norm."""

    move: Array
    dz: Array
    raised: Array
    ds: Array
    dq: Array
    norm: NormStep


def total_of(rows: PricedRows, now: Iterate) -> Array:
    """Return the sums of the products."""
    products = (now.q * (now.T - now.pieces.value)).sum(axis=0)
    return np.asarray(rows.weighted_sum(products) + now.norm.total)


class PricedEquations:
    """Newton's equations of iterates, in (theta, b, s)."""

    def __init__(self, rows: PricedRows, norm: NormRows, now: Iterate) -> None:
        self.rows, self.norm, self.now = rows, norm, now
        self.sigma = now.T - now.pieces.value
        self.W = now.q / self.sigma
        self.weight = self.W.sum(axis=0)
        self.share = self.W / self.weight
        self.line: NormLine = norm.linearised(now.theta, now.norm)
        self.total = total_of(rows, now)
        d = len(now.theta)
        #: (theta, t) among (theta, b, s)
        self.head = np.append(np.arange(d), d + 1)
        self.solve = inverse_of(self._matrix())

    @property
    def mu(self) -> Array:
        """The mean products."""
        return np.asarray(self.total / (len(self.sigma) + float(self.norm.share.sum())))

    def _matrix(self) -> Array:
        """Return the Hessians of the rows with what the norm adds, (side, side, B)."""
        pieces = self.now.pieces
        mean = (self.share * pieces.slope).sum(axis=1)
        H = hessian(self.rows, curvature(pieces, self.now.q, self.W, mean))
        H[np.ix_(self.head, self.head)] += self.line.matrix
        return H

    def step(self) -> Step:
        """Return Mehrotra's steps: towards the boundary first, then to where that leaves room."""
        now, none = self.now, np.zeros_like(self.total)
        ahead = self._towards(none, np.zeros_like(self.sigma), 0 * now.norm.slack)
        length = self.longest(ahead)
        sigma, q = self.sigma + length * ahead.ds, now.q + length * ahead.dq
        slack, price = now.norm.slack, now.norm.price
        left = self.rows.weighted_sum((sigma * q).sum(axis=0))
        moved = (slack + length * ahead.norm.slack) * (price + length * ahead.norm.price)
        left += moved.sum(axis=0)
        mu = (left / self.total) ** 3 * self.mu
        return self._towards(mu, ahead.ds * ahead.dq, ahead.norm.slack * ahead.norm.price)

    def _towards(self, mu: Array, products: Array, head: Array) -> Step:
        """Return the steps to sigma q = mu - products, those of the norm mu share - head."""
        rows, now, d = self.rows, self.now, len(self.now.theta)
        slope = now.pieces.slope
        aimed = (mu - products) / self.sigma
        spare = (aimed.sum(axis=0) - 1) / self.weight
        g = gradient(rows, ((aimed - self.W * spare) * slope).sum(axis=1))
        aim = mu * self.norm.share - head
        g[self.head] += self.line.force(aim)
        move = -self.solve(g)
        dz = rows.design.scores(move[:d]) + move[d]
        rise = along(slope, [dz, *move[d + 1 :]])
        raised = (self.share * rise).sum(axis=0) + spare
        ds = raised - rise
        dq = aimed - now.q - self.W * ds
        return Step(move, dz, raised, ds, dq, self.line.step(move[self.head], aim))

    def longest(self, step: Step) -> Array:
        """Return the longest part of each step, at most all of it, that stays inside."""
        now = self.now
        falls = [
            _most(-step.ds / self.sigma),
            _most(-step.dq / now.q),
            (-step.norm.slack / now.norm.slack).max(axis=0),
            (-step.norm.price / now.norm.price).max(axis=0),
            -step.move[-1] / now.s[-1],
        ]
        return np.asarray(1 / np.maximum(1.0, np.max(falls, axis=0)))

    def bound(self, step: Step | None) -> tuple[Array, Array]:
        """Return the bounds of the shares and slopes, continued along a step, and mean slopes."""
        now, pieces = self.now, self.now.pieces
        q, a = now.q, pieces.slope[0]
        if step is not None:
            q = q + step.dq
            a = a + along(pieces.bend[0], [step.dz, *step.move[len(now.theta) + 1 :]])
        return bound(self.rows, pieces.label, pieces.kept, q / q.sum(axis=0), a)


def _most(v: Array) -> Array:
    """Return the largest entry of each problem, of shape (J, n, B)."""
    return np.asarray(v.max(axis=0).max(axis=0))


def inverse_of(H: Array) -> Callable[[Array], Array]:
    """Return the solution v (side, B) of H_b v_b = g_b as a function of g, for H (side, side, B).

    A matrix that is not positive definite has its diagonal raised until it is.
    """
    matrices = np.moveaxis(H, -1, 0)
    if len(matrices) > 1:
        diagonal = np.einsum("bii->bi", matrices)
        scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        scaled = scale[:, :, None] * matrices * scale[:, None, :]
        np.einsum("bii->bi", scaled)[:] += RIDGE
        try:
            L = np.linalg.inv(np.linalg.cholesky(scaled))
        except np.linalg.LinAlgError:
            pass
        else:
            return lambda g: _solved(L, scale, g)
    factors = [factored(matrix) for matrix in matrices]

    def each(g: Array) -> Array:
        known = zip(factors, g.T, strict=True)
        return np.stack([dpotrs(A, v, lower=lower)[0] for (A, lower), v in known], axis=-1)

    return each


def _solved(L: Array, scale: Array, g: Array) -> Array:
    """Return the solution from inverses of Cholesky factors of scaled matrices."""
    v = L @ (scale * g.T)[:, :, None]
    return np.asarray(scale * (np.swapaxes(L, 1, 2) @ v)[:, :, 0]).T
