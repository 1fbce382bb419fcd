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

from ...duality.ties import factored
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
    """The largest ||D_p||_2; ``multipliers`` are those of the last step."""

    def __init__(self) -> None:
        self.multipliers: Array | None = None

    def norms(self, D: Array) -> Array:
        """Return ||D||_2."""
        return np.asarray(np.linalg.norm(D, axis=-1))

    def sizes(self, v: Array) -> Array:
        """Return ||v||_2."""
        return np.asarray(np.linalg.norm(v, axis=-1))

    def first(self, rows: SoftmaxRows, G: Array) -> tuple[Array, Array]:
        """Return nearly the least flow: v = w_p y_p at weights w_p ~ ||v_p||, y = -G L(w)^+.

        The largest <-G, B> at pair norms of 1 is at B = y, whose norms are then nearly equal.
        """
        weights = np.full(len(rows.incidence), 1.0)
        size = np.inf
        mixed = rows.incidence @ rows.basis
        pull = -(G @ rows.basis).T
        for _ in range(ROUNDS):
            # L(w) on the complement of 1, where it is definite
            C = np.linalg.solve(mixed.T @ (weights[:, None] * mixed), pull)
            flows = weights[:, None] * (mixed @ C)
            sizes = self.sizes(flows)
            now = float(sizes.sum())
            if now >= (1 - SETTLED) * size or now == 0:
                break
            size = now
            weights = np.maximum(sizes / size, LEAST_SHARE)
        return flows, C.T @ rows.basis.T

    def move(self, model: Quadratic, delta: float, accuracy: float) -> PairMove:
        """Minimise the model by its dual over the multipliers of the pairs."""
        rows = model.rows
        D = rows.differences(model.C)
        norms = self.norms(D)
        top = float(norms.max())
        near = norms > NEGLIGIBLE * top
        u = np.where(near[:, None], D / np.where(near, norms, 1.0)[:, None], 0.0)
        mu = self._guess(norms, delta)
        bend = np.where(near, mu / np.where(near, norms, 1.0), 0.0)
        mixed = rows.incidence @ rows.basis
        J = (u[:, :, None] * mixed[:, None, :]).reshape(len(u), -1)
        M = self._with_curvature(model, mixed, J, bend)
        factor = factored(M)
        full = np.zeros((len(J), len(M)))
        full[:, : J.shape[1]] = J
        solved = cho_solve(factor, np.vstack([model.g[None], full]).T, check_finite=False)
        Q = full @ solved[:, 1:]
        lam = simplex.minimise(
            (Q + Q.T) / 2, norms - full @ solved[:, 0], delta, self._support(norms, mu)
        )
        self.multipliers = lam
        dC, dc = model.split(-(solved[:, 0] + solved[:, 1:] @ lam))
        dD = rows.differences(dC)
        along = np.einsum("pd,pd->p", u, dD)
        flows = lam[:, None] * u + bend[:, None] * (dD - along[:, None] * u)
        return PairMove(dC, dc, flows, delta * (float((norms + along).max()) - top))

    def _support(self, norms: Array, mu: Array) -> Array:
        """Return a first guess of the multipliers with few pairs: the last ones, or the largest."""
        if self.multipliers is not None and len(self.multipliers) == len(norms):
            return mu
        first = np.zeros_like(norms)
        first[int(norms.argmax())] = 1.0
        return first

    def _guess(self, norms: Array, delta: float) -> Array:
        """Return the last multipliers, at first those of the largest norms."""
        if self.multipliers is not None and len(self.multipliers) == len(norms):
            return self.multipliers * (delta / self.multipliers.sum())
        heavy = np.exp(-10 * (1 - norms / norms.max()))
        return np.asarray(delta * heavy / heavy.sum())

    def _with_curvature(self, model: Quadratic, mixed: Array, J: Array, bend: Array) -> Array:
        """Return H + sum_p bend_p (I - u_p u_p') x (mixed_p mixed_p')."""
        d, m = model.C.shape
        M = model.H.copy()
        block = mixed.T @ (bend[:, None] * mixed)
        size = d * m
        M[:size, :size] -= J.T @ (bend[:, None] * J)
        each = np.arange(d)
        M[:size, :size].reshape(d, m, d, m)[each, :, each, :] += block
        return M
