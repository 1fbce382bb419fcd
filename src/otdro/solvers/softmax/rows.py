r"""The mean cross-entropy of K scores per row, its derivatives and its dual value.

Coefficients are a matrix C of shape (d, K - 1): those of the classes are B = C E' with the columns
of E orthonormal and orthogonal to 1, as adding one vector to all classes changes nothing. Weights
of shape (B, n) are B problems over the same rows, each in coordinates of its own where ``factors``
(B, d, d) are given: z = L_b'(x - center). Every other array has the axis of the problems first too.
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
from ...design import PRODUCTS_UP_TO, Design
from ...duality import solve_each
from ...losses.base import entropy

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
    """Rows, labels 0 to K - 1 and weights (B, n) with sum 1.

    Of several problems each has all classes.
    """

    design: Design
    labels: Array
    weights: Array
    classes: int
    fit_intercept: bool
    factors: Array | None = None

    def columns(self, index: Any) -> SoftmaxRows:
        """Return some of the problems."""
        factors = None if self.factors is None else self.factors[index]
        return replace(self, weights=pick(self.weights, index), factors=factors)

    @property
    def d(self) -> int:
        """The columns."""
        return self.design.d

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
        present = class_masses(self.labels, self.weights.sum(axis=0), self.classes) > 0
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
        V = C if self.factors is None else self.factors @ C
        if len(V) == 1:
            z = self.design.scores(V[0])[None]
        else:
            flat = np.moveaxis(V, 0, 1).reshape(self.d, -1)
            z = _problems_first(self.design.scores(flat), len(V))
        return (z + beside(c[:, None, :], z)) @ beside(self.basis.T, z)

    def adjoint(self, a: Array) -> Array:
        """Return Z'(pi a), (d, K)."""
        return self._pulls(self.weights[..., None] * a)

    def _pulls(self, a: Array) -> Array:
        """Return Z'a, (d, k) from (n, k)."""
        if len(a) == 1:
            g = self.design.adjoint(a[0])[None]
        else:
            flat = namespace(a).moveaxis(a, 0, 1).reshape(self.design.n, -1)
            g = _problems_first(self.design.adjoint(flat), len(a))
        return g if self.factors is None else np.swapaxes(self.factors, 1, 2) @ g

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
        d, m = self.d, self.classes - 1
        parts = s.reshape(*s.shape[:-1], -1, m)
        c = parts[..., d, :] if self.fit_intercept else np.zeros((*s.shape[:-1], m))
        return parts[..., :d, :], c

    def bent(self, p: Array, dz: Array) -> Array:
        """Return (diag p - pp') dz, the change of the probabilities, row by row."""
        return p * (dz - inner(p, dz)[..., None])

    def part(self, index: Array) -> SoftmaxRows:
        """Return some rows, their weights scaled to the sum that all have."""
        weights = self.weights[:, beside(index, self.weights)]
        share = weights.sum(axis=-1, keepdims=True) / self.weights.sum(axis=-1, keepdims=True)
        return replace(
            self,
            design=self.design.rows(index),
            labels=pick(self.labels, index),
            weights=weights / share,
        )

    def curvature(self, p: Array) -> Array:
        """Return the Hessian in (C, c), index (column, class): shape ((d + 1)(K - 1),) * 2.

        diag p - pp' = sum over pairs of p_k p_l (e_k - e_l)(e_k - e_l)'. The Gram matrices of many
        rows are taken one by one, by symmetry.
        """
        k, j = self.all_pairs
        design, d, m = self.design, self.d, self.classes - 1
        D = self.weights[..., None] * pick_columns(p, k) * pick_columns(p, j)
        flat = namespace(D).moveaxis(D, 0, 1).reshape(design.n, -1)
        if design.n * d**2 <= PRODUCTS_UP_TO:
            grams = design.gram(flat)
        else:
            grams = np.stack([design.gram(flat[:, i]) for i in range(flat.shape[1])])
        grams = grams.reshape(len(p), len(k), d, d)
        if self.factors is not None:
            L = self.factors[:, None]
            grams = np.swapaxes(L, 2, 3) @ grams @ L
        side = d + self.fit_intercept
        moments = np.empty((len(p), len(k), side, side))
        moments[..., :d, :d] = grams
        if self.fit_intercept:
            moments[..., d, :d] = moments[..., :d, d] = np.swapaxes(self._pulls(D), 1, 2)
            moments[..., d, d] = numpy(D.sum(axis=-2))
        mixed = (self.basis[k] - self.basis[j])[:, :, None]
        outer = (mixed * np.swapaxes(mixed, 1, 2)).reshape(len(k), -1)
        # index (problem, class, class, column, column)
        H = outer.T @ moments.reshape(len(p), len(k), -1)
        H = np.transpose(H.reshape(-1, m, m, side, side), (0, 3, 1, 4, 2))
        return np.ascontiguousarray(H).reshape(-1, side * m, side * m)

    def pair_gradient(self, slope: Array) -> Array:
        """Return the gradient in (C, c, t) of a sum over pairs of functions of (D_p, t).

        ``slope`` (d + 1, P) are the gradients of the functions.
        """
        g = slope[:-1] @ (self.incidence @ self.basis)
        none = np.zeros(self.fit_intercept * (self.classes - 1))
        return np.concatenate([g.ravel(), none, [slope[-1].sum()]])

    def pair_hessian(self, bend: Array) -> Array:
        """Return the Hessian in (C, c, t) of the sum from those of the functions, (.., .., P)."""
        d, m = self.d, self.classes - 1
        n, size = d * m, (d + self.fit_intercept) * m + 1
        mixed = self.incidence @ self.basis
        outer = (mixed[:, :, None] * mixed[:, None, :]).reshape(len(mixed), -1)
        inner = (bend[:d, :d].reshape(d * d, -1) @ outer).reshape(d, d, m, m)
        H = np.zeros((size, size))
        H[:n, :n] = np.swapaxes(inner, 1, 2).reshape(n, n)
        H[-1, :n] = H[:n, -1] = (bend[d, :d] @ mixed).ravel()
        H[-1, -1] = bend[d, d].sum()
        return H

    def balanced(self, p: Array, q: Array) -> Array:
        """Return q moved by (diag p - pp') b, one b for all rows, to where E q is the shares."""
        if not self.fit_intercept:
            return q
        # E'(mean of diag p - pp')E
        u = p @ beside(self.basis, p)
        bend = self.basis.T @ (self.mean(p)[..., None] * self.basis)
        bend -= numpy(namespace(u).swapaxes(self.weights[..., None] * u, 1, 2) @ u)
        miss = self.mean(self.slopes(q)) @ self.basis
        shift = -self.basis @ solve_each(bend, miss[..., None])
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


def _problems_first(v: Array, B: int) -> Array:
    """Return (B, n, k) from (n, B k)."""
    return namespace(v).moveaxis(v.reshape(len(v), B, -1), 1, 0)
