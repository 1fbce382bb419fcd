r"""Worst-case risk at given coefficients, through the dual of the transport problem.

.. math:: \sup_{P:\,D_c(P,P_n)\le\delta} E_P\,\ell = \min_{\lambda\ge 0}\ \lambda\delta
          + \sum_i \pi_i \sup_s \bigl\{\ell(z_i + s, y_i) - \lambda\,(|s|/w)^{order}\bigr\},

with the displacement s of the score and w = ||beta||_*, the largest gain in score at unit price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from .losses import Loss, PiecewiseQuadratic
from .problem import Ball

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dual:
    """The minimum over lam of the dual: the worst-case ``risk`` and the ``multiplier`` lam."""

    risk: float
    multiplier: float


def worst_risk(
    z: Array, y: Array, weights: Array, loss: Loss, w: float, ball: Ball, rtol: float = 1e-14
) -> Dual:
    """Return the worst-case risk of scores z whose coefficients have dual norm w.

    ``rtol`` is the relative precision of lam, where that is found by search.
    """
    plain = float(weights @ loss.value(z, y))
    if w == 0:
        return Dual(plain, 0.0)
    if ball.order == 1:
        require_lipschitz(loss)
        return Dual(plain + ball.delta * loss.lipschitz * w, loss.lipschitz * w)
    if isinstance(loss, PiecewiseQuadratic) and np.isinf(loss.lipschitz):
        return _quadratic_growth(plain, w, ball.delta)
    if ball.delta == 0:
        # d risk/d sqrt(delta) is w times the root mean square slope, so d risk/d delta is infinite
        flat = not np.any(weights * loss.derivative(z, y))
        return Dual(plain, 0.0 if flat else np.inf)
    return _line_minimum(z, y, weights, loss, w, ball.delta, rtol)


def require_lipschitz(loss: Loss) -> None:
    """Refuse a loss whose worst case under an order-1 cost is infinite."""
    if not np.isfinite(loss.lipschitz):
        raise ValueError(
            f"order=1 needs a Lipschitz loss; {type(loss).__name__} is not, so its worst-case "
            "risk is infinite. Use order=2."
        )


def _quadratic_growth(plain: float, w: float, delta: float) -> Dual:
    # squared and squared hinge: (rms + sqrt(delta) w)^2 at lam = w^2 + w rms/sqrt(delta)
    rms = np.sqrt(plain)
    steep = w * rms / np.sqrt(delta) if delta > 0 else (np.inf if rms > 0 else 0.0)
    return Dual(float((rms + np.sqrt(delta) * w) ** 2), float(w**2 + steep))


def _line_minimum(
    z: Array, y: Array, weights: Array, loss: Loss, w: float, delta: float, rtol: float
) -> Dual:
    """Minimise the convex lam delta + mean psi: the root of mean t^2 = delta, or its jump."""

    def spent(lam: float) -> float:
        inner = loss.inner(z, y, w, lam)
        best = inner.value.argmax(axis=0)
        t = np.take_along_axis(inner.shift, best[None], axis=0)[0] / w
        return float(weights @ t**2)

    def dual(lam: float) -> float:
        return float(lam * delta + weights @ loss.inner(z, y, w, lam).value.max(axis=0))

    # the moves are |s| <= Lip w^2/(2 lam), so mean t^2 <= delta once lam >= Lip w/(2 sqrt(delta))
    high = low = float(np.log(loss.lipschitz * w / (2 * np.sqrt(delta))))
    while spent(np.exp(low)) < delta:
        low -= 1.0
    if low == high:
        return Dual(dual(np.exp(high)), float(np.exp(high)))
    root = brentq(lambda x: np.log(max(spent(np.exp(x)), 1e-300) / delta), low, high, xtol=rtol)
    lam = min((np.exp(root), np.exp(root - rtol), np.exp(root + rtol)), key=dual)
    return Dual(dual(lam), float(lam))
