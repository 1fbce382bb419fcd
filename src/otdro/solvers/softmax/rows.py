r"""The mean cross-entropy of K scores per row, its derivatives and its dual value.

Coefficients are a matrix C of shape (d, K - 1): those of the classes are B = C E' with the columns
of E orthonormal and orthogonal to 1, as adding one vector to all classes changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.special import xlogy

from ...design import Design
from ...duality.ties import factored

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SoftmaxRows:
    """Rows, labels 0 to K - 1 and weights with sum 1."""

    design: Design
    labels: Array
    weights: Array
    classes: int
    fit_intercept: bool

    @cached_property
    def basis(self) -> Array:
        """E of shape (K, K - 1)."""
        K = self.classes
        ones = np.full((K, 1), 1 / np.sqrt(K))
        return np.linalg.qr(np.hstack([ones, np.eye(K)[:, : K - 1]]))[0][:, 1:]

    @cached_property
    def all_pairs(self) -> tuple[Array, Array]:
        """The classes k < l of every pair."""
        k, j = np.triu_indices(self.classes, 1)
        return k, j

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """The classes k < l of every pair, of which one has weight."""
        k, j = self.all_pairs
        present = np.bincount(self.labels, self.weights, minlength=self.classes) > 0
        some = present[k] | present[j]
        return k[some], j[some]

    @cached_property
    def incidence(self) -> Array:
        """e_k - e_l of every pair, (P, K)."""
        k, j = self.pairs
        eye = np.eye(self.classes)
        return eye[k] - eye[j]

    @cached_property
    def own(self) -> tuple[Array, Array]:
        """The index of every row's own score."""
        return np.arange(len(self.labels)), self.labels

    def differences(self, C: Array) -> Array:
        """Return B_k - B_l of every pair, (P, d)."""
        return self.incidence @ (self.basis @ C.T)

    def scores(self, C: Array, c: Array) -> Array:
        """Return Z B + b, (n, K)."""
        return self.design.scores(C) @ self.basis.T + self.basis @ c

    def evaluate(self, z: Array) -> tuple[float, Array]:
        """Return the mean cross-entropy and the probabilities (n, K)."""
        top = z.max(axis=1, keepdims=True)
        p = np.exp(z - top)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        loss = np.log(total[:, 0]) + top[:, 0] - z[self.own]
        return float(self.weights @ loss), p

    def slopes(self, p: Array) -> Array:
        """Return p - e_y."""
        a = p.copy()
        a[self.own] -= 1
        return a

    def adjoint(self, a: Array) -> Array:
        """Return Z'(pi a), (d, K)."""
        return self.design.adjoint(self.weights[:, None] * a)

    def bent(self, p: Array, dz: Array) -> Array:
        """Return (diag p - pp') dz, the change of the probabilities, row by row."""
        return p * (dz - np.einsum("nk,nk->n", p, dz)[:, None])

    def curvature(self, p: Array) -> Array:
        """Return the Hessian in (C, c), index (column, class): shape ((d + 1)(K - 1),) * 2.

        diag p - pp' = sum over pairs of p_k p_l (e_k - e_l)(e_k - e_l)'.
        """
        k, j = self.all_pairs
        return self.pair_curvature(self.weights[:, None] * p[:, k] * p[:, j])

    def pair_curvature(self, D: Array) -> Array:
        """Return sum over rows and pairs of D (e_k - e_l)(e_k - e_l)' x zz', D (n, P) >= 0."""
        d = self.design.d
        k, j = self.all_pairs
        mixed = (self.basis[k] - self.basis[j])[:, :, None]
        outer = mixed * np.swapaxes(mixed, 1, 2)
        side = d + self.fit_intercept
        grams = np.empty((len(k), side, side))
        grams[:, :d, :d] = self.design.gram(D)
        if self.fit_intercept:
            grams[:, d, :d] = grams[:, :d, d] = self.design.adjoint(D).T
            grams[:, d, d] = D.sum(axis=0)
        H = np.tensordot(grams, outer, axes=(0, 0)).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(H).reshape(side * H.shape[1], -1)

    def mean_curvature(self, p: Array) -> Array:
        """Return the curvature as if that of a row did not depend on its place.

        It is Z'(pi Z) times the mean of diag p - pp' over the rows: one Gram matrix for all pairs.
        """
        return np.kron(self.scatter, self.mean_bend(p))

    def mean_bend(self, p: Array) -> Array:
        """Return E'(mean of diag p - pp')E."""
        mean = np.diag(self.weights @ p) - (self.weights[:, None] * p).T @ p
        return np.asarray(self.basis.T @ mean @ self.basis)

    @cached_property
    def scatter(self) -> Array:
        """Z'(pi Z), with a last column of ones if there is an intercept."""
        d = self.design.d
        side = d + self.fit_intercept
        S = np.zeros((side, side))
        S[:d, :d] = self.design.gram(self.weights)
        if self.fit_intercept:
            S[d, :d] = S[:d, d] = self.design.adjoint(self.weights)
            S[d, d] = 1.0
        return S

    def balanced(self, p: Array, q: Array) -> Array:
        """Return q moved by (diag p - pp') b, one b for all rows, to where E q is the shares."""
        if not self.fit_intercept:
            return q
        miss = (self.weights @ self.slopes(q)) @ self.basis
        b = self.basis @ -cho_solve(factored(self.mean_bend(p)), miss, check_finite=False)
        return q + p * (b - (p @ b)[:, None])

    def dual_value(self, q: Array, shrink: float) -> float:
        """Return the mean entropy of shrink q + (1 - shrink) e_y, -inf off the simplex."""
        q = shrink * q
        q[self.own] += 1 - shrink
        weights = self.weights
        if weights.min() == 0:
            q, weights = q[weights > 0], weights[weights > 0]
        if q.min() < 0:
            return -np.inf
        return -float(weights @ xlogy(q, q).sum(axis=1))
