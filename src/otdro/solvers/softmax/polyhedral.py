r"""The pair penalties of the costs l1 and linf, whose models are linear programs with a quadratic.

.. math:: \min_{s, t}\ g's + s'Hs/2 + \delta t\quad\text{s.t.}\quad \|D_p + d_p(s)\|_* \le t,

by Mehrotra's method over the slacks of all pairs and their prices (``norm_rows``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...costs import Cost
from ...duality.ties import factored
from ..norm_rows import NormPoint, NormRows, NormStep
from .penalty import PairMove, Quadratic
from .rows import SoftmaxRows

Array = NDArray[Any]

#: Newton steps at most, and the share of the way to the boundary that one takes.
STEPS, SHORT_OF = 60, 0.99
#: Relative to the penalty, the least accuracy.
ROUNDING = 1e-14


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
        step, shift, flows, rise, _ = zip(*found, strict=True)
        return PairMove(np.stack(step), np.stack(shift), np.stack(flows), np.array(rise))

    def _one(self, model: Quadratic, delta: float, accuracy: float) -> PairMove:
        rows = model.rows
        D = rows.differences(model.C)
        norms = self.norms(D)
        before = float(norms.max())
        t = before + max(before, accuracy / delta * 1e3, 1e-3)
        x = np.append(np.zeros(len(model.g)), t)
        room = t - norms
        # prices of about delta in all
        at = self.slacks.begin(D.T, room, delta * room / len(D))
        enough = max(0.1 * accuracy, ROUNDING * delta * (1 + t))
        for _ in range(STEPS):
            if at.total.sum() <= enough:
                break
            move, step, length = _Central(self.slacks, D.T, model, delta, x, at).step()
            x = x + length * move
            at = self.slacks.after(D.T, at, step.shortened(length), at.t + length * move[-1])
        dC, dc = rows.split(x[:-1])
        rise = delta * (float(self.norms(D + rows.differences(dC)).max()) - before)
        flows = self.slacks.linearised(D.T, at).force(at.slack * at.price)[:-1].T
        return PairMove(dC, dc, flows, rise)


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

    def step(self) -> tuple[Array, NormStep, float]:
        """Return Mehrotra's step of x and of the slacks, and its length."""
        total = float(self.at.total.sum())
        _, ahead = self._towards(np.zeros_like(self.at.slack))
        length = min(1.0, self._longest(ahead))
        slack, price = self.at.slack + length * ahead.slack, self.at.price + length * ahead.price
        left = float(np.vdot(slack, price)) / total
        mu = left**3 * total / slack.size
        move, step = self._towards(mu - ahead.slack * ahead.price)
        return move, step, min(1.0, SHORT_OF * self._longest(step))

    def _towards(self, aim: Array) -> tuple[Array, NormStep]:
        """Return the step to products ``aim``."""
        g = self.slope + self.rows.pair_gradient(self.line.force(aim))
        move = -cho_solve(self.factor, g, check_finite=False)
        dD = self.rows.differences(self.rows.split(move[:-1])[0]).T
        dt = np.full((1, dD.shape[1]), move[-1])
        return move, self.line.step(np.append(dD, dt, axis=0), aim)

    def _longest(self, step: NormStep) -> float:
        """Return the longest step to slacks and prices that are not negative."""
        fastest = max(np.max(-step.slack / self.at.slack), np.max(-step.price / self.at.price))
        return float(1 / fastest) if fastest > 0 else np.inf
