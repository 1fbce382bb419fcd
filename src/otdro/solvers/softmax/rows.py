r"""The mean cross-entropy of K scores per row, its derivatives and its dual value.

Coefficients are a matrix C of shape (d, K - 1): those of the classes are B = C E' with the columns
of E orthonormal and orthogonal to 1, as adding one vector to all classes changes nothing. Weights
of shape (B, n) are B problems over the same rows, and every other array has that axis first too.
What has an entry per row (labels, weights, scores, probabilities, slopes) is where the rows are,
all else NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import beside, class_masses, copied, namespace, numbers, numpy, pick, pick_columns
from ...duality.ties import solve_each
from ...losses.softmax import entropy
from .batch import Products

Array = NDArray[Any]

#: Probability below 0, in the mean over the rows, that may be left out at a price.
NEGLIGIBLE = 1e-8


@cache
def complement(K: int) -> Array:
    """Return E of shape (K, K - 1)."""
    ones = np.full((K, 1), 1 / np.sqrt(K))
    return np.linalg.qr(np.hstack([ones, np.eye(K)[:, : K - 1]]))[0][:, 1:]


@cache
def classes_of_pairs(K: int) -> tuple[Array, Array]:
    """Return the classes k < l of every pair."""
    k, j = np.triu_indices(K, 1)
    return k, j


@dataclass(frozen=True, eq=False)
class SoftmaxRows:
    """Rows, labels 0 to K - 1 and weights with sum 1, of shape (n,) or (B, n).

    Of several problems each has all classes.
    """

    design: Products
    labels: Array
    weights: Array
    classes: int
    fit_intercept: bool

    def columns(self, index: Any) -> SoftmaxRows:
        """Return some of the problems."""
        weights = pick(self.weights, index)
        return replace(self, design=self.design.columns(index), weights=weights)

    @property
    def basis(self) -> Array:
        """E of shape (K, K - 1)."""
        return complement(self.classes)

    @property
    def all_pairs(self) -> tuple[Array, Array]:
        """The classes k < l of every pair."""
        return classes_of_pairs(self.classes)

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """The classes k < l of every pair, of which one has weight."""
        k, j = self.all_pairs
        total = self.weights.reshape(-1, len(self.labels)).sum(axis=0)
        present = class_masses(self.labels, total, self.classes) > 0
        some = present[k] | present[j]
        return k[some], j[some]

    @cached_property
    def incidence(self) -> Array:
        """e_k - e_l of every pair, (P, K)."""
        k, j = self.pairs
        eye = np.eye(self.classes)
        return eye[k] - eye[j]

    @cached_property
    def own(self) -> tuple[Any, Array, Array]:
        """The index of every row's own score."""
        return ..., numbers(len(self.labels), self.labels), self.labels

    def differences(self, C: Array) -> Array:
        """Return B_k - B_l of every pair, (P, d)."""
        return (self.incidence @ self.basis) @ np.swapaxes(C, -1, -2)

    def scores(self, C: Array, c: Array) -> Array:
        """Return Z B + b, (n, K)."""
        z = self.design.scores(C)
        return (z + beside(c[..., None, :], z)) @ beside(self.basis.T, z)

    def mean(self, a: Array) -> Array:
        """Return the weighted sum over the rows of a (n, K)."""
        return numpy((self.weights[..., None, :] @ a)[..., 0, :])

    def total(self, v: Array) -> Array:
        """Return the weighted sum over the rows of v (n,)."""
        return numpy(namespace(v).einsum("...n,...n->...", self.weights, v))

    def evaluate(self, z: Array) -> tuple[Any, Array]:
        """Return the mean cross-entropy and the probabilities (n, K)."""
        xp = namespace(z)
        top = xp.max(z, axis=-1, keepdims=True)
        p = xp.exp(z - top)
        total = xp.sum(p, axis=-1, keepdims=True)
        p /= total
        loss = xp.log(total[..., 0]) + top[..., 0] - z[self.own]
        return self.total(loss), p

    def slopes(self, p: Array) -> Array:
        """Return p - e_y."""
        a = copied(p)
        a[self.own] -= 1
        return a

    def adjoint(self, a: Array) -> Array:
        """Return Z'(pi a), (d, K)."""
        return self.design.adjoint(self.weights[..., None] * a)

    def gradient(self, a: Array) -> Array:
        """Return the gradient of the loss in (C, c) at slopes a, by column, then class."""
        g = self.adjoint(a) @ self.basis
        g = g.reshape(*g.shape[:-2], -1)
        return np.append(g, self.mean(a) @ self.basis, axis=-1) if self.fit_intercept else g

    def joined(self, C: Array, c: Array) -> Array:
        """Return the vector of (C, c), by column, then class, c last if there is an intercept."""
        s = C.reshape(*C.shape[:-2], -1)
        return np.append(s, c, axis=-1) if self.fit_intercept else s

    def split(self, s: Array) -> tuple[Array, Array]:
        """Return (C, c) of a vector by column, then class; c is 0 without an intercept."""
        d, m = self.design.d, self.classes - 1
        parts = s.reshape(*s.shape[:-1], -1, m)
        c = parts[..., d, :] if self.fit_intercept else np.zeros((*s.shape[:-1], m))
        return parts[..., :d, :], c

    def bent(self, p: Array, dz: Array) -> Array:
        """Return (diag p - pp') dz, the change of the probabilities, row by row."""
        return p * (dz - inner(p, dz)[..., None])

    def curvature(self, p: Array) -> Array:
        """Return the Hessian in (C, c), index (column, class): shape ((d + 1)(K - 1),) * 2.

        diag p - pp' = sum over pairs of p_k p_l (e_k - e_l)(e_k - e_l)'.
        """
        k, j = self.all_pairs
        both = pick_columns(p, k) * pick_columns(p, j)
        return self.pair_curvature(self.weights[..., None] * both)

    def pair_curvature(self, D: Array) -> Array:
        """Return sum over rows and pairs of D (e_k - e_l)(e_k - e_l)' x zz', D (n, P) >= 0."""
        d = self.design.d
        k, j = self.all_pairs
        mixed = (self.basis[k] - self.basis[j])[:, :, None]
        outer = (mixed * np.swapaxes(mixed, 1, 2)).reshape(len(k), -1)
        side, m = d + self.fit_intercept, self.classes - 1
        grams = np.empty((*D.shape[:-2], len(k), side, side))
        grams[..., :d, :d] = self.design.grams(D)
        if self.fit_intercept:
            pulls = np.swapaxes(self.design.adjoint(D), -1, -2)
            grams[..., d, :d] = grams[..., :d, d] = pulls
            grams[..., d, d] = numpy(D.sum(axis=-2))
        # index (..., class, class, column, column)
        H = outer.T @ grams.reshape(*grams.shape[:-2], -1)
        H = np.moveaxis(
            H.reshape(*H.shape[:-2], m, m, side, side), (-2, -4, -1, -3), (-4, -3, -2, -1)
        )
        return np.ascontiguousarray(H).reshape(*H.shape[:-4], side * m, side * m)

    def pair_gradient(self, slope: Array) -> Array:
        """Return the gradient in (C, c, t) of a sum over pairs of functions of (D_p, t).

        ``slope`` (d + 1, P) are the gradients of the functions.
        """
        g = slope[:-1] @ (self.incidence @ self.basis)
        none = np.zeros(self.fit_intercept * (self.classes - 1))
        return np.concatenate([g.ravel(), none, [slope[-1].sum()]])

    def pair_hessian(self, bend: Array) -> Array:
        """Return the Hessian in (C, c, t) of the sum from those of the functions, (.., .., P)."""
        d, m = self.design.d, self.classes - 1
        n, size = d * m, (d + self.fit_intercept) * m + 1
        mixed = self.incidence @ self.basis
        outer = (mixed[:, :, None] * mixed[:, None, :]).reshape(len(mixed), -1)
        inner = (bend[:d, :d].reshape(d * d, -1) @ outer).reshape(d, d, m, m)
        H = np.zeros((size, size))
        H[:n, :n] = np.swapaxes(inner, 1, 2).reshape(n, n)
        H[-1, :n] = H[:n, -1] = (bend[d, :d] @ mixed).ravel()
        H[-1, -1] = bend[d, d].sum()
        return H

    def mean_curvature(self, p: Array) -> Array:
        """Return the curvature as if that of a row did not depend on its place.

        It is Z'(pi Z) times the mean of diag p - pp' over the rows: one Gram matrix for all pairs.
        """
        d = self.design.d
        side = d + self.fit_intercept
        S = np.zeros((side, side))
        S[:d, :d] = self.design.grams(self.weights[:, None])[0]
        if self.fit_intercept:
            S[d, :d] = S[:d, d] = self.design.adjoint(self.weights[:, None])[:, 0]
            S[d, d] = 1.0
        return np.kron(S, self.mean_bend(p))

    def mean_bend(self, p: Array) -> Array:
        """Return E'(mean of diag p - pp')E."""
        q = p @ beside(self.basis, p)
        of_squares = np.swapaxes(self.basis, -1, -2) @ (self.mean(p)[..., None] * self.basis)
        squares = namespace(q).swapaxes(self.weights[..., None] * q, -1, -2) @ q
        return np.asarray(of_squares - numpy(squares))

    def balanced(self, p: Array, q: Array) -> Array:
        """Return q moved by (diag p - pp') b, one b for all rows, to where E q is the shares."""
        if not self.fit_intercept:
            return q
        bend = self.mean_bend(p)
        miss = self.mean(self.slopes(q)) @ self.basis
        m = len(bend[-1])
        b = -solve_each(bend.reshape(-1, m, m), miss.reshape(-1, m, 1)).reshape(*miss.shape, 1)
        shift = self.basis @ b
        return q + p * (beside(np.swapaxes(shift, -1, -2), p) - p @ beside(shift, p))

    def on_simplex(self, q: Array) -> Array:
        """Return q without negative entries, rows of sum 1, where those are but ``NEGLIGIBLE``.

        Where a minimiser is at infinity, probabilities that vanish go below 0 in every step.
        """
        xp = namespace(q)
        below = self.total(xp.sum(xp.maximum(-q, 0.0), axis=-1))
        on = xp.maximum(q, 0.0)
        on = on / xp.sum(on, axis=-1, keepdims=True)
        return xp.where(beside(below[..., None, None] <= NEGLIGIBLE, q), on, q)

    def dual_value(self, q: Array, shrink: Any) -> Any:
        """Return the mean entropy of shrink q + (1 - shrink) e_y, -inf off the simplex."""
        xp, part = namespace(q), beside(np.asarray(shrink)[..., None], q)
        q = part[..., None] * q
        q[self.own] += 1 - part
        # a row without weight may have any probabilities
        off = xp.any((xp.min(q, axis=-1) < 0) & (self.weights > 0), axis=-1)
        value = self.total(xp.sum(entropy(xp.maximum(q, 0.0)), axis=-1))
        return np.where(numpy(off), -np.inf, value)


def inner(u: Array, v: Array) -> Array:
    """Return u'v of every row, over the classes along the last axis."""
    return namespace(u).einsum("...k,...k->...", u, v)
