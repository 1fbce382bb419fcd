r"""The pair penalty of a Euclidean cost, in coordinates where its dual norm is ||.||_2.

Near differences D the model of the largest norm is :math:`\max_p \|D_p\| + u_p'd_p`, u = D/||D||,
with the curvature :math:`\sum_p \mu_p (I - u_p u_p')/\|D_p\|` of the Lagrangian: its minimiser
follows from a quadratic over the simplex of the multipliers, and the method is Newton's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...duality.ties import factored, solve_each, times
from . import simplex
from .penalty import PairMove, Quadratic
from .rows import SoftmaxRows

Array = NDArray[Any]

#: Rounds of reweighting towards the least flow of a gradient, and the change that ends them.
ROUNDS, SETTLED = 200, 1e-6
#: The least share of a pair in the weights, so that the pairs stay connected.
LEAST_SHARE = 1e-9
#: Pairs whose norm is below this share of the largest have no part in the curvature.
NEGLIGIBLE = 1e-6


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
        for _ in range(ROUNDS):
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
        lam = simplex.minimise(
            (Q + np.swapaxes(Q, 1, 2)) / 2,
            norms - times(full, solved[:, :, 0]),
            delta,
            _steepest(norms) if multipliers is None else mu,
        )
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


def _steepest(norms: Array) -> Array:
    """Return a first support: the pair of the largest norm."""
    first = np.zeros_like(norms)
    first[np.arange(len(norms)), norms.argmax(axis=1)] = 1.0
    return first


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
