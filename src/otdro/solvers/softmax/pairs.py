r"""The mean cross-entropy of K scores per row, and the penalty on pairs of classes.

Coefficients are a matrix C of shape (d, K - 1): those of the classes are B = C E' with the columns
of E orthonormal and orthogonal to 1, as adding one vector to all classes changes nothing. Weights
of shape (B, n) are B problems over the same rows, each in coordinates of its own where the design
has a factor for each: z = L_b'(x - center). Other arrays have the axis of the problems first, too.
What has an entry per row (labels, weights, scores, probabilities, slopes) is where the rows are,
all else NumPy.

The penalty is delta max over pairs of ||B_k - B_l||_*.
Its dual is a flow: vectors v of the pairs with :math:`\sum_p v_p (e_k - e_l)' = -G` for the
gradient G (d, K) of the loss, and the polar norm of G is the least :math:`\sum_p \|v_p\|`.

Under a Euclidean cost, in coordinates where its dual norm is ||.||_2, the model of the largest norm
near differences D is :math:`\max_p \|D_p\| + u_p'd_p`, u = D/||D||, with the curvature
:math:`\sum_p \mu_p (I - u_p u_p')/\|D_p\|` of the Lagrangian: its minimiser follows from a
quadratic over the simplex of the multipliers, and the method is Newton's. Under the costs l1 and
linf the model is a quadratic program,

.. math:: \min_{s, t}\ g's + s'Hs/2 + \delta t\quad\text{s.t.}\quad \|D_p + d_p(s)\|_* \le t,

solved by Mehrotra's method over the slacks of all pairs and their prices (``norm_rows``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...arrays import beside, class_masses, copied, namespace, numbers, numpy, pick, pick_columns
from ...costs import Cost
from ...design import Design
from ...duality import EQUAL, PRECISION, RIDGE, STEPS, factored, solve_each, times
from ...losses.base import Loss, entropy
from ...problem import Problem
from ..euclidean.order_one import Batch
from ..norm_rows import NormPoint, NormRows, NormStep, norm_rows
from ..predictor_corrector import SHORT_OF, corrected_step, longest

Array = NDArray[Any]

#: Probability below 0, in the mean over the rows, that may be left out at a price.
LEFT_OUT = 1e-8
#: The change of a flow, relative to it, that ends its reweighting.
SETTLED = 1e-6
#: The least share of a pair in the weights, so that the pairs stay connected.
LEAST_SHARE = 1e-9
#: Pairs whose norm is below this share of the largest have no part in the curvature.
NEGLIGIBLE = 1e-6

TINY = np.finfo(float).tiny


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
    loss: Loss
    fit_intercept: bool

    def columns(self, index: Any) -> SoftmaxRows:
        """Return some of the problems."""
        design = self.design.problems(index)
        return replace(self, design=design, weights=pick(self.weights, index))

    @property
    def classes(self) -> int:
        """The number of classes K."""
        return self.loss.outputs

    def _each(self, k: int) -> Design:
        """Return the rows of problems of k columns each, one problem after another."""
        return self.design.problems(np.repeat(np.arange(len(self.weights)), k))

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
        flat = np.moveaxis(C, 0, 1).reshape(self.d, -1)
        z = _problems_first(self._each(C.shape[2]).scores(flat), len(C))
        return (z + beside(c[:, None, :], z)) @ beside(self.basis.T, z)

    def adjoint(self, a: Array) -> Array:
        """Return Z'(pi a), (d, K)."""
        flat = _rows_first(self.weights[..., None] * a)
        return np.asarray(_problems_first(self._each(a.shape[2]).adjoint(flat), len(a)))

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

    def part(self, some: slice) -> SoftmaxRows:
        """Return some rows, a copy, their weights scaled to the sum that all have."""
        index = numbers(len(self.labels), self.labels)[some]
        weights = pick_columns(self.weights, index)
        share = weights.sum(axis=-1, keepdims=True) / self.weights.sum(axis=-1, keepdims=True)
        return replace(
            self,
            design=self.design.rows(index),
            labels=pick(self.labels, index),
            weights=weights / share,
        )

    def curvature(self, p: Array) -> Array:
        """Return the Hessian in (C, c), index (column, class): shape ((d + 1)(K - 1),) * 2.

        diag p - pp' = sum over pairs of p_k p_l (e_k - e_l)(e_k - e_l)'.
        """
        k, j = self.all_pairs
        d, m = self.d, self.classes - 1
        D = self.weights[..., None] * pick_columns(p, k) * pick_columns(p, j)
        G, s = self._each(len(k)).moments(_rows_first(D))
        side = d + self.fit_intercept
        moments = np.empty((len(p), len(k), side, side))
        moments[..., :d, :d] = G.reshape(len(p), len(k), d, d)
        if self.fit_intercept:
            moments[..., d, :d] = moments[..., :d, d] = s.T.reshape(len(p), len(k), d)
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
        """Return q without negative entries, rows of sum 1, where those are but ``LEFT_OUT``.

        Where a minimiser is at infinity, probabilities that vanish go below 0 in every step.
        """
        xp = namespace(q)
        below = self.total(xp.sum(xp.maximum(-q, 0.0), axis=-1))
        on = xp.maximum(q, 0.0)
        on = on / xp.sum(on, axis=-1, keepdims=True)
        return xp.where(beside(below[..., None, None] <= LEFT_OUT, q), on, q)

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


def _rows_first(v: Array) -> Array:
    """Return (n, B k) from (B, n, k)."""
    flat: Array = namespace(v).moveaxis(v, 0, 1).reshape(v.shape[1], -1)
    return flat


def _problems_first(v: Array, B: int) -> Array:
    """Return (B, n, k) from (n, B k)."""
    return namespace(v).moveaxis(v.reshape(len(v), B, -1), 1, 0)


@dataclass(frozen=True, eq=False)
class PairMove(Batch):
    """A step of (C, c), the flows v (P, d) of the model, the modelled change ``rise`` of the
    penalty, and the ``multipliers`` (P,) of the pairs where they start a move."""

    axis: ClassVar[int] = 0

    theta: Array
    b: Array
    flows: Array
    rise: Any
    multipliers: Array | None = None


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Models g's + s'Hs/2 of the loss at (C, c), s = (C, c) by column, then class; one per problem,
    along the first axis."""

    rows: SoftmaxRows
    C: Array
    g: Array
    H: Array


class PairPenalty(Protocol):
    """The dual norm over pairs of classes of one cost."""

    def norms(self, D: Array) -> Array:
        """Return the dual norms of differences (P, d)."""

    def sizes(self, v: Array) -> Array:
        """Return the norms of flows (P, d)."""

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return a flow (P, d) of the gradient G at B = 0, and a matrix B (d, K) to start along."""

    def move(
        self, model: Quadratic, delta: Array, accuracy: Array, multipliers: Array | None
    ) -> PairMove:
        """Minimise the models plus the penalty, to about ``accuracy``."""


def corrected(rows: SoftmaxRows, G: Array, flows: Array) -> Array:
    """Return flows whose divergence is -G: what is missing goes, evenly, along all pairs."""
    k, j = rows.all_pairs
    missing = -G - np.swapaxes(flows, -1, -2) @ rows.incidence
    if len(k) == flows.shape[-2]:
        spread = (missing[..., k] - missing[..., j]) / rows.classes
    else:
        # pairs of two absent classes carry nothing
        spread = missing @ np.linalg.pinv(rows.incidence)
    return np.asarray(flows + np.swapaxes(spread, -1, -2))


class RoundPairs:
    """The largest ||D_p||_2."""

    def norms(self, D: Array) -> Array:
        """Return ||D||_2."""
        return np.asarray(np.sqrt(np.einsum("...d,...d->...", D, D)))

    def sizes(self, v: Array) -> Array:
        """Return ||v||_2."""
        return self.norms(v)

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return nearly the least flow: v = w_p y_p at weights w_p ~ ||v_p||, y = -G L(w)^+.

        The largest <-G, B> at pair norms of 1 is at B = y, whose norms are then nearly equal.
        """
        mixed = rows.incidence @ rows.basis
        pull = -np.swapaxes(G @ rows.basis, -1, -2)
        weights = np.ones((*G.shape[:-2], len(mixed)))
        size = np.full(G.shape[:-2], np.inf)
        for _ in range(STEPS):
            # L(w) on the complement of 1, where it is definite
            C = np.linalg.solve(mixed.T @ (weights[..., None] * mixed), pull)
            flows = weights[..., None] * (mixed @ C)
            sizes = self.sizes(flows)
            now = sizes.sum(axis=-1)
            if np.all((now >= (1 - SETTLED) * size) | (now == 0)):
                break
            size = now
            share = sizes / np.where(size > 0, size, 1.0)[..., None]
            weights = np.maximum(share, LEAST_SHARE)
        return flows, np.swapaxes(rows.basis @ C, -1, -2)

    def move(
        self, model: Quadratic, delta: Array, accuracy: Array, multipliers: Array | None
    ) -> PairMove:
        """Minimise the models by their duals over the multipliers of the pairs."""
        rows = model.rows
        D = rows.differences(model.C)
        norms = self.norms(D)
        top = norms.max(axis=1)
        near = norms > NEGLIGIBLE * top[:, None]
        length = np.where(near, norms, 1.0)
        u = np.where(near[:, :, None], D / length[:, :, None], 0.0)
        mu = _heaviest(norms, delta) if multipliers is None else _scaled(multipliers, delta)
        bend = np.where(near, mu / length, 0.0)
        mixed = rows.incidence @ rows.basis
        J = (u[:, :, :, None] * mixed[:, None, :]).reshape(*norms.shape, -1)
        M = _with_curvature(model, mixed, J, bend)
        full = np.zeros((*norms.shape, M.shape[1]))
        full[:, :, : J.shape[2]] = J
        solved = _solved(M, np.concatenate([model.g[:, :, None], np.swapaxes(full, 1, 2)], axis=2))
        Q = full @ solved[:, :, 1:]
        # at first the pair of the largest norm
        support = norms == top[:, None] if multipliers is None else mu
        parts = ((Q + np.swapaxes(Q, 1, 2)) / 2, norms - times(full, solved[:, :, 0]))
        each = zip(*parts, delta, support, strict=True)
        lam = np.array([simplex_quadratic(*part) for part in each])
        dC, dc = model.rows.split(-(solved[:, :, 0] + times(solved[:, :, 1:], lam)))
        dD = rows.differences(dC)
        along = np.einsum("bpd,bpd->bp", u, dD)
        flows = lam[:, :, None] * u + bend[:, :, None] * (dD - along[:, :, None] * u)
        return PairMove(dC, dc, flows, delta * ((norms + along).max(axis=1) - top), lam)


class Unpenalised(RoundPairs):
    """No penalty: the model's minimiser is a plain Newton step."""

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return no flow, and no direction: without a kink Newton's method starts at B = 0.

        Along -G the slopes of a constant column, which are rounding, would lead anywhere.
        """
        return np.zeros((*G.shape[:-2], len(rows.incidence), G.shape[-2])), np.zeros_like(G)

    def move(
        self, model: Quadratic, delta: Array, accuracy: Array, multipliers: Array | None
    ) -> PairMove:
        """Return -H^-1 g; a column of which only rounding is left, a constant one, stays."""
        design, H = model.rows.design, model.H.copy()
        d, m = model.C.shape[-2:]
        diagonal = np.einsum("bii->bi", H)[:, : d * m]
        constant = diagonal <= np.repeat(design.rounding, m)
        diagonal += np.where(constant, np.repeat(design.offset**2, m), 0.0)
        dC, dc = model.rows.split(-solve_each(H, model.g[:, :, None])[:, :, 0])
        flows = np.zeros((len(dC), len(model.rows.incidence), dC.shape[1]))
        return PairMove(dC, dc, flows, np.zeros(len(dC)))


def _solved(M: Array, rhs: Array) -> Array:
    """Return M^-1 rhs; of one problem by its Cholesky factor, the cheapest where M is large."""
    if len(M) > 1:
        return solve_each(M, rhs)
    return np.asarray(cho_solve(factored(M[0]), rhs[0], check_finite=False))[None]


def _scaled(mu: Array, delta: Array) -> Array:
    """Return multipliers with sum delta."""
    return np.asarray(mu * (delta / mu.sum(axis=1))[:, None])


def _heaviest(norms: Array, delta: Array) -> Array:
    """Return a first guess of the multipliers, most of it at the largest norms."""
    return _scaled(np.exp(-10 * (1 - norms / norms.max(axis=1, keepdims=True))), delta)


def _with_curvature(model: Quadratic, mixed: Array, J: Array, bend: Array) -> Array:
    """Return H + sum_p bend_p (I - u_p u_p') x (mixed_p mixed_p')."""
    d, m = model.C.shape[1:]
    M = model.H.copy()
    block = mixed.T @ (bend[:, :, None] * mixed)
    size = d * m
    M[:, :size, :size] -= np.swapaxes(J, 1, 2) @ (bend[:, :, None] * J)
    for j in range(0, size, m):
        M[:, j : j + m, j : j + m] += block
    return M


def simplex_quadratic(Q: Array, q: Array, delta: float, start: Array) -> Array:
    r"""Minimise lam'Q lam/2 - q'lam over lam >= 0, 1'lam = delta, by an active-set method.

    The support of ``start`` comes first. From a minimiser on its support that is inside, the
    coordinate of the least gradient joins; others go towards it until the first coordinate
    vanishes, which leaves the support.
    """
    Q = Q + RIDGE * max(float(np.trace(Q)) / len(q), TINY) * np.eye(len(q))
    x, on = start * (delta / start.sum()), start > 0
    for _ in range(STEPS * len(q)):
        # the minimiser with free signs and sum delta, zero off the support
        rhs = np.stack([q[on], np.ones(on.sum())], axis=1)
        free, one = np.linalg.solve(Q[np.ix_(on, on)], rhs).T
        new = np.zeros_like(q)
        new[on] = free - (free.sum() - delta) / one.sum() * one
        leaves = on & (new <= 0)
        if leaves.any():
            # x/(x - new) is at most 1 where new <= 0 <= x
            ratio = np.full_like(q, np.inf)
            ratio[leaves] = x[leaves] / np.maximum(x - new, TINY)[leaves]
            length = ratio.min()
            x = np.where(ratio <= length, 0.0, x + length * (new - x))
            on = on & (ratio > length)
            if on.any():
                continue
        else:
            x = new
        g = Q @ x - q
        least, level = g.argmin(), np.where(on, g, -np.inf).max()
        size = np.abs(q).max() + np.abs(g).max()
        if on[least] or (on.any() and level - g[least] <= EQUAL * size):
            break
        on[least] = True
    return np.maximum(x, 0.0)


@dataclass(frozen=True, eq=False)
class PolyhedralPairs:
    """The largest dual norm of a cost over pairs, where that is polyhedral."""

    cost: Cost
    slacks: NormRows

    def norms(self, D: Array) -> Array:
        """Return the dual norms."""
        return self.cost.dual_norm(D)

    def sizes(self, v: Array) -> Array:
        """Return the norms of flows."""
        return self.cost.norm(v)

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return the even flow of a gradient, and zero: a model at zero has no kink to avoid."""
        k, j = rows.pairs
        return np.swapaxes(G[..., j] - G[..., k], -1, -2) / rows.classes, np.zeros_like(G)

    def move(
        self, model: Quadratic, delta: Array, accuracy: Array, multipliers: Array | None
    ) -> PairMove:
        """Minimise each model along its central path."""
        parts = zip(model.C, model.g, model.H, delta, accuracy, strict=True)
        found = [self._one(Quadratic(model.rows, *part[:3]), *part[3:]) for part in parts]
        return PairMove(*(np.stack(part) for part in zip(*found, strict=True)))

    def _one(self, model: Quadratic, delta: float, accuracy: float) -> tuple[Array, ...]:
        rows = model.rows
        D = rows.differences(model.C)
        norms = self.norms(D)
        before = float(norms.max())
        t = before + max(before, accuracy / delta * 1e3, 1e-3)
        x = np.append(np.zeros(len(model.g)), t)
        room = t - norms
        # prices of about delta in all
        at = self.slacks.begin(D.T, room, delta * room / len(D))
        enough = max(0.1 * accuracy, PRECISION * delta * (1 + t))
        for _ in range(STEPS):
            if at.total.sum() <= enough:
                break
            central = _Central(self.slacks, D.T, model, delta, x, at)
            step = corrected_step(central)
            length = min(1.0, SHORT_OF * central.longest(step))
            x = x + length * step.move
            t = at.t + length * step.move[-1]
            at = self.slacks.after(D.T, at, step.norm.shortened(length), t)
        dC, dc = rows.split(x[:-1])
        rise = delta * (float(self.norms(D + rows.differences(dC)).max()) - before)
        flows = self.slacks.linearised(D.T, at).force(at.slack * at.price)[:-1].T
        return dC, dc, flows, np.array(rise)


class CentralStep(NamedTuple):
    """The moves of x = (s, t) and of the slacks and prices."""

    move: Array
    norm: NormStep


class _Central:
    """Newton's equations of one iterate, in x = (s, t)."""

    def __init__(
        self,
        slacks: NormRows,
        theta: Array,
        model: Quadratic,
        delta: float,
        x: Array,
        at: NormPoint,
    ) -> None:
        self.rows = model.rows
        self.at = at
        self.line = slacks.linearised(theta, at)
        self.slope = np.append(model.g + model.H @ x[:-1], delta)
        M = self.rows.pair_hessian(self.line.matrix)
        M[:-1, :-1] += model.H
        self.factor = factored(M)

    @property
    def mean(self) -> float:
        """The mean product."""
        return float(self.at.total.sum()) / self.at.slack.size

    def step(self, mu: Any, last: CentralStep | None = None, length: Any = 1.0) -> CentralStep:
        """Return the step to products mu, less those of a last step."""
        aim = np.full_like(self.at.slack, mu)
        if last is not None:
            aim -= last.norm.slack * last.norm.price
        g = self.slope + self.rows.pair_gradient(self.line.force(aim))
        move = -cho_solve(self.factor, g, check_finite=False)
        dD = self.rows.differences(self.rows.split(move[:-1])[0]).T
        dt = np.full((1, dD.shape[1]), move[-1])
        return CentralStep(move, self.line.step(np.append(dD, dt, axis=0), aim))

    def longest(self, step: CentralStep) -> float:
        """Return the longest step to slacks and prices that are not negative."""
        norm, at = step.norm, self.at
        return longest((at.slack, norm.slack), (at.price, norm.price))

    def mean_after(self, step: CentralStep, length: Any) -> float:
        """Return the mean product after a part of a step."""
        slack = self.at.slack + length * step.norm.slack
        return float(np.mean(slack * (self.at.price + length * step.norm.price)))


def pair_penalty(problem: Problem) -> PairPenalty:
    """Return the penalty of the cost of a problem."""
    cost = problem.ball.cost
    if problem.ball.delta == 0:
        return Unpenalised()
    if cost.euclidean:
        return RoundPairs()
    slacks = norm_rows(cost, problem.X.shape[1])
    assert slacks is not None
    return PolyhedralPairs(cost, slacks)
