r"""The joint form with targets that move at the price kappa: w^2 + 1/kappa in the place of w^2.

To the rows of ``Joint`` comes a coordinate that is not free, :math:`\gamma = \kappa^{-1/2}`, with
the penalty :math:`rate\,\gamma^2/(2\nu)`; in the dual, :math:`polar^2 + \alpha_0^2 \le rate\,A`,
and the value rises by :math:`\gamma\alpha_0`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...losses.base import Array
from .blocks import Block
from .forms import Joint, Multiple, Parts, Slopes
from .norms import PenaltyNorm


@dataclass(frozen=True, eq=False)
class JointWithTarget(Joint):
    """``Joint`` of sqrt(w^2 + gamma^2), gamma = ``still``."""

    still: float = 0.0

    def parts(self, norm: PenaltyNorm, d: int) -> Parts:
        """Return the rows of ``Joint`` and that of the coordinate that is not free."""
        parts = super().parts(norm, d)
        assert parts.nu is not None
        # rate gamma^2/(2 nu) = max over alpha of alpha gamma - nu alpha^2/(2 rate)
        moving = Block(h=self.still, k={parts.nu: 1 / self.rate}, lo=-np.inf)
        return replace(parts, blocks=(*parts.blocks, moving))

    def risk(self, pi: Array, r: Array, w: float, nu: float) -> float:
        """Return the risk at nu."""
        return super().risk(pi, r, float(np.hypot(w, self.still)), nu)

    def feasible(self, slopes: Slopes) -> Multiple:
        """Return the better of the slopes and the multiple that ``Joint`` takes."""
        plain = super().feasible(slopes)
        return max((self._value(s, slopes) for s in (1.0, plain.factor)), key=lambda m: m.value)

    def _value(self, s: float, slopes: Slopes) -> Multiple:
        """Return s gain + gamma sqrt(rate A - s^2 polar^2) - kappa A/2 at the best A."""
        kappa, polar = self.curve.kappa, s * slopes.polar
        least = max(s**2 * slopes.square, polar**2 / self.rate)
        most = 2 * (self._mid * s * slopes.mean + self._bend) if self._bounded else np.inf
        if least > most:
            return Multiple(0.0, 0.0)
        A = most
        if kappa > 0:
            best = (polar**2 + (self.still * self.rate / kappa) ** 2) / self.rate
            A = min(most, max(least, best))
        room = max(self.rate * A - polar**2, 0.0)
        return Multiple(s, s * slopes.gain + self.still * float(np.sqrt(room)) - kappa * A / 2)

    def rescaled(self, unit: float, slope: float, size: float) -> JointWithTarget:
        """Return the form in units of residuals, of slopes, and of columns of Z."""
        inner = super().rescaled(unit, slope, size)
        return JointWithTarget(inner.curve, inner.rate, self.still * size / unit)
