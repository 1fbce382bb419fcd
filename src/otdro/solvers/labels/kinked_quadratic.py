r"""The least of a quadratic with kinks, the model of a step.

.. math:: \min_m\ g'm + \tfrac12 m'Hm + \sum_r \max(0, d_r + J_r m)

with shares p in [0, 1] of the kinks: Hm + g + J'p = 0. Where the kinks that m lies on are known,
this is one linear system; else an interior point method finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dgesv, dpotrs

from ...duality.ties import RIDGE, factored, newton_step

Array = NDArray[Any]

#: Guesses of the kinks that m lies on, each corrected by the last, before interior points.
GUESSES = 4
#: Shares this near to 0 or 1 are guessed to be there.
EDGE = 1e-2
#: Interior points at most, the first product relative to the mean size of d, and the share of the
#: way to the boundary that a step takes; and the length of a step that leaves nothing of the miss.
STEPS, FIRST, SHORT_OF, LONG = 60, 0.1, 0.99, 0.9


@dataclass(frozen=True, eq=False)
class KinkedQuadratic:
    """g (D,), H (D, D), d (R,) and J (R, D)."""

    g: Array
    H: Array
    d: Array
    J: Array

    def decrease(self, m: Array) -> float:
        """Return the value at 0 less that at m."""
        smooth = float(self.g @ m) + float(m @ self.H @ m) / 2
        kinks = np.maximum(self.d + self.J @ m, 0.0).sum() - np.maximum(self.d, 0.0).sum()
        return -(smooth + float(kinks))

    def minimise(self, p: Array | None, tol: float) -> tuple[Array, Array]:
        """Return (m, p), from shares near by if known, to ``tol`` by interior points."""
        if not len(self.d):
            return newton_step(self.g, self.H), np.zeros(0)
        found = None if p is None else self._on_kinks(p)
        return self._interior(tol) if found is None else found

    def _on_kinks(self, p: Array) -> tuple[Array, Array] | None:
        """Return (m, p) if the kinks that m lies on are soon guessed, those of p inside first."""
        on, above = (p > EDGE) & (p < 1 - EDGE), p >= 1 - EDGE
        size = len(self.g)
        for _ in range(GUESSES):
            J = self.J[on]
            if len(J) > size:
                return None
            K = np.zeros((size + len(J), size + len(J)))
            K[:size, :size], K[:size, size:], K[size:, :size] = self.H, J.T, J
            K[np.diag_indices(size)] += RIDGE * np.diag(self.H)
            side = -np.concatenate([self.g + self.J[above].sum(axis=0), self.d[on]])
            solved, failed = dgesv(K, side)[2:]
            if failed or not np.isfinite(solved).all():
                return None
            m, share = solved[:size], solved[size:]
            after = self.d + self.J @ m
            leaves = np.zeros_like(on)
            leaves[on] = (share < 0) | (share > 1)
            crossed = ~on & ((after > 0) != above)
            if not (leaves.any() or crossed.any()):
                p = above.astype(float)
                p[on] = share
                return m, p
            up = np.zeros_like(on)
            up[on] = share > 1
            above = (above & ~crossed) | up
            on = (on & ~leaves) | crossed
        return None

    def _interior(self, tol: float) -> tuple[Array, Array]:
        """Return (m, p) by Mehrotra's steps over heights u: u p_0 and (u - d - Jm) p_1 go to 0."""
        mu = FIRST * float(np.abs(self.d).mean())
        # the central u of each row: mu/u + mu/(u - d) = 1
        u = (self.d + 2 * mu + np.hypot(self.d, 2 * mu)) / 2
        slack = np.stack([u, u - self.d])
        now = _Between(self, np.zeros_like(self.g), slack, mu / slack)
        for _ in range(STEPS):
            now, length = now.after()
            if now.total <= tol and length > LONG:
                break
        return now.m, now.P[1]


class _Between:
    """m with the slacks u and u - d - Jm (2, R) and their prices P = (1 - p, p)."""

    def __init__(self, model: KinkedQuadratic, m: Array, slack: Array, P: Array) -> None:
        self.model, self.m, self.slack, self.P = model, m, slack, P
        self.total = float(np.vdot(slack, P))

    def after(self) -> tuple[_Between, float]:
        """Return the next point, by Mehrotra's step, and the length of that."""
        slack, P = self.slack, self.P
        self._factor()
        _, ds, dP = self._towards(np.zeros_like(P))
        length = _longest(slack, P, ds, dP)
        left = float(np.vdot(slack + length * ds, P + length * dP))
        mu = (left / self.total) ** 3 * self.total / P.size
        ds *= dP
        dm, ds, dP = self._towards((mu - ds) / slack)
        length = min(1.0, SHORT_OF * _longest(slack, P, ds, dP))
        moved = (self.m + length * dm, slack + length * ds, P + length * dP)
        return _Between(self.model, *moved), length

    def _factor(self) -> None:
        """Factor the matrix of m, heights eliminated."""
        H, J = self.model.H, self.model.J
        self.W = self.P / self.slack
        self.share = self.W[1] / self.W.sum(axis=0)
        S = np.sqrt(self.W[0] * self.share)[:, None] * J
        self.factor = factored(H + S.T @ S)
        self.slope = H @ self.m + self.model.g

    def _towards(self, aimed: Array) -> tuple[Array, Array, Array]:
        """Return the moves of m, of the slacks and of P to products slack * aimed."""
        J = self.model.J
        spare = (aimed.sum(axis=0) - 1) * self.share
        dm = -dpotrs(self.factor[0], self.slope + J.T @ (aimed[1] - spare), self.factor[1])[0]
        de = J @ dm
        du = spare / self.W[1] + self.share * de
        ds = np.stack([du, du - de])
        return dm, ds, aimed - self.P - self.W * ds


def _longest(slack: Array, P: Array, ds: Array, dP: Array) -> float:
    """Return the longest part of a step, at most all of it, that stays positive."""
    return float(1 / max(1.0, np.max(-ds / slack), np.max(-dP / P)))
