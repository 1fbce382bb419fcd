r"""One row of the smoothed dual for a linear score, an integral over one standard normal g.

.. math:: G(z, \rho) = \varepsilon \log E\, e^{\ell(z + \rho g, y)/\varepsilon},\qquad
          \rho = w\,\sqrt{\varepsilon / (2\lambda + \varepsilon/s^2)},\quad w = \|\beta\|_*,

is :math:`\varepsilon\log E_U e^{(\ell - \lambda c)/\varepsilon}` for
:math:`U \sim N(x, s^2\Lambda^{-1})` and the squared cost c, with the Gaussian term
:math:`(\varepsilon d/2)\log(1 + 2\lambda s^2/\varepsilon)` added back: it has no part of the loss
in it, but would push lam to :math:`d\varepsilon/(2\delta)`.
As eps falls G tends to the inner supremum, with an error of order eps whatever the dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import least_finite
from ...losses import Loss

Array = NDArray[Any]

#: Half the width of a window of nodes, in standard deviations.
WINDOW = 8.0
#: The largest step of the trapezoid rule in standard deviations; error 2 exp(-2 pi^2/step^2).
STEP = 0.7
#: The least curvature of l/eps - g^2/2 at a maximum by which its window is sized: ten deviations.
FLATTEST = 0.01
#: How close, relative to the growth of the loss, the integrals of a quadratic loss are still made.
NEAR_GROWTH = 1e-12
#: Rows whose nodes are evaluated at a time.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Nodes:
    """Points g of shape (n, K), one row per row, and logarithms of weights for the normal."""

    g: Array
    log_weight: Array


@dataclass(frozen=True, eq=False)
class SmoothedRows:
    """G of every row with its first and second derivatives in (z, rho), each of shape (n,).

    ``loss`` is the mean of the loss under the normal weighted by exp(l/eps), ``effective`` the
    number of nodes that carry it.
    """

    value: Array
    loss: Array
    z: Array
    rho: Array
    zz: Array
    zr: Array
    rr: Array
    effective: Array


def smoothed_rows(
    loss: Loss, z: Array, y: Array, rho: Any, eps: float, nodes: Nodes
) -> SmoothedRows:
    """Return G and its derivatives: moments of l' under the nodes weighted by exp(l/eps).

    ``rho`` is one number, or one per row for a local cost.
    """
    g = nodes.g
    u = z[:, None] + np.reshape(rho, (-1, 1)) * g
    value, slope, bend = loss.evaluate(u, np.broadcast_to(y[:, None], g.shape))
    p, log_total = softmax(value / eps + nodes.log_weight)
    dz = _mean(p, slope)
    dr = _mean(p, slope * g)
    off_r = slope * g - dr[:, None]
    off_z = slope - dz[:, None]
    p_off_z = p * off_z
    p_bend = p * bend
    # second derivatives: E l'' times powers of g, plus the covariance of the gradient over eps
    return SmoothedRows(
        value=eps * log_total,
        loss=_mean(p, value),
        z=dz,
        rho=dr,
        zz=p_bend.sum(axis=1) + _mean(p_off_z, off_z) / eps,
        zr=_mean(p_bend, g) + _mean(p_off_z, off_r) / eps,
        rr=_mean(p_bend, g * g) + _mean(p * off_r, off_r) / eps,
        effective=1 / _mean(p, p),
    )


def _mean(p: Array, a: Array) -> Array:
    """Return the sums of p a over the nodes."""
    return np.asarray(np.einsum("nk,nk->n", p, a))


def softmax(log_p: Array) -> tuple[Array, Array]:
    """Return exp(log_p) scaled to sum to 1 along the last axis, and the logarithm of the sum."""
    top = log_p.max(axis=-1, keepdims=True)
    p = np.exp(log_p - top)
    total = p.sum(axis=-1, keepdims=True)
    p /= total
    return p, (top + np.log(total))[..., 0]


def integrate(loss: Loss, z: Array, y: Array, rho: Any, eps: float, K: int) -> SmoothedRows | None:
    """Return the integrals of every row by trapezoid nodes, None where G is infinite."""
    # a loss of quadratic growth outgrows the cost where smoothness rho^2 >= eps
    if 2 * least_finite(loss, rho) >= eps * (1 - NEAR_GROWTH):
        return None
    if loss.pieces is not None and loss.pieces.quadratic:
        return _quadratic(z - y, rho, eps, loss.pieces.kappa)
    parts = []
    for start in range(0, len(z), BLOCK):
        rows = slice(start, start + BLOCK)
        width = rho if np.size(rho) == 1 else rho[rows]
        nodes = trapezoid(loss, z[rows], y[rows], width, eps, K)
        parts.append(smoothed_rows(loss, z[rows], y[rows], width, eps, nodes))
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(SmoothedRows)]
    return SmoothedRows(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in names)
    )


def _quadratic(e: Array, rho: Any, eps: float, kappa: float) -> SmoothedRows:
    """Return the integral of e^2/(2 kappa): G = e^2/(2 kappa q) - (eps/2) log q.

    q = 1 - rho^2/(kappa eps); under the weighted normal the error has mean e/q, variance rho^2/q.
    """
    ones = np.ones_like(e)
    q = 1 - rho**2 / (kappa * eps)
    q1 = -2 * rho / (kappa * eps)
    q2 = -2 / (kappa * eps)
    power = e**2 / (2 * kappa * q**2)
    by_q = power + eps / (2 * q)
    return SmoothedRows(
        value=power * q - eps / 2 * np.log(q),
        loss=power + rho**2 / (2 * kappa * q),
        z=e / (kappa * q),
        rho=-q1 * by_q,
        zz=ones / (kappa * q),
        zr=-e * q1 / (kappa * q**2),
        rr=-q2 * by_q + q1**2 * (2 * power / q + eps / (2 * q**2)),
        effective=np.inf * ones,
    )


def trapezoid(loss: Loss, z: Array, y: Array, rho: Any, eps: float, K: int) -> Nodes:
    """Return nodes on all of the interval that can carry mass, or, if long, around the maxima."""
    low, high = _reach(loss, z, y, rho, eps)
    if (high - low).max() <= K * STEP:
        return _uniform(low, high, K)
    tops = peaks(loss, z, y, rho, eps)
    low = tops.g - WINDOW * tops.width
    high = tops.g + WINDOW * tops.width
    if len(tops.g) == 1:
        return _uniform(low[0], high[0], K)
    # two windows where they are apart, else one over both, with as many nodes
    left = np.where(tops.exists, low, np.inf).min(axis=0)
    right = np.where(tops.exists, high, -np.inf).max(axis=0)
    half = (right - left) * K / (2 * K - 1)
    apart = tops.exists.all(axis=0) & (low.max(axis=0) > high.min(axis=0))
    low = np.where(apart, low, np.stack([left, left + half]))
    high = np.where(apart, high, np.stack([right - half, right]))
    return _uniform(low, high, K)


def _reach(loss: Loss, z: Array, y: Array, rho: Any, eps: float) -> tuple[Array, Array]:
    """Return the interval of g outside which the weighted normal has mass below 1e-14."""
    if np.isinf(loss.lipschitz):
        return np.full_like(z, -np.inf), np.full_like(z, np.inf)
    far = loss.lipschitz * rho**2 / eps + WINDOW * rho
    # l' lies between its values at -far and +far, and a slope l' moves the normal by rho l'/eps
    low = rho / eps * loss.derivative(z - far, y)
    high = rho / eps * loss.derivative(z + far, y)
    return low - WINDOW, high + WINDOW


@dataclass(frozen=True, eq=False)
class Peaks:
    """Maximisers g of l/eps - g^2/2, their widths, and which of them exist; a row per branch."""

    g: Array
    width: Array
    exists: Array


def peaks(loss: Loss, z: Array, y: Array, rho: Any, eps: float) -> Peaks:
    """Return the maxima; where one of two is missing, the place that the loss gives for it."""
    inner = loss.inner(z, y, rho, eps / 2)
    g = inner.shift / rho
    curvature = loss.curvature(z + inner.shift, np.broadcast_to(y, g.shape))
    flat = np.clip(1 - curvature * rho**2 / eps, FLATTEST, 1.0)
    return Peaks(g, 1 / np.sqrt(flat), np.isfinite(inner.value))


def _uniform(low: Array, high: Array, K: int) -> Nodes:
    """Return K nodes on the interval of each row, or on each of its two intervals."""
    fraction = np.linspace(0, 1, K).reshape(-1, *(1,) * low.ndim)
    # one row per column in memory, so that sums over nodes are sums of vectors
    g = low + (high - low) * fraction
    log = np.log((high - low) / (K - 1)) - 0.5 * np.log(2 * np.pi) - g**2 / 2
    n = low.shape[-1]
    return Nodes(g.reshape(-1, n).T, log.reshape(-1, n).T)
