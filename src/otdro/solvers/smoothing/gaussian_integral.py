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

from ...losses import Inner, Logistic, Loss, PiecewiseQuadratic, Squared

Array = NDArray[Any]

#: Half the width of a window of nodes, in standard deviations.
WINDOW = 8.0
#: The largest step of the trapezoid rule in standard deviations; error 2 exp(-2 pi^2/step^2).
STEP = 0.7
#: The largest margin whose exponential is a finite number, with room.
LARGEST = 700.0
#: Rows whose nodes are evaluated at a time.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Nodes:
    """Points g of shape (n, K) and logarithms of weights for the standard normal, one row a row."""

    g: Array
    log_weight: Array


@dataclass(frozen=True, eq=False)
class Tilt:
    """G of every row with its first and second derivatives in (z, rho), the mean of the loss under
    the tilted normal, and the effective number of nodes."""

    value: Array
    loss: Array
    z: Array
    rho: Array
    zz: Array
    zr: Array
    rr: Array
    effective: Array


def tilt(loss: Loss, z: Array, y: Array, rho: Any, eps: float, nodes: Nodes) -> Tilt:
    """Return G and its derivatives: moments of l' under the nodes weighted by exp(l/eps).

    ``rho`` is one number, or one a row for a local cost.
    """
    g, rho = nodes.g, np.reshape(rho, (-1, 1))
    value, d1, d2 = loss.evaluate(z[:, None] + rho * g, np.broadcast_to(y[:, None], g.shape))
    p, log_total = softmax(value / eps + nodes.log_weight)
    dz, dr = _mean(p, d1), _mean(p, d1 * g)
    move, d1 = d1 * g - dr[:, None], d1 - dz[:, None]
    pd, p2 = p * d1, p * d2
    # second derivatives: E l'' times powers of g, plus the covariance of the gradient over eps
    return Tilt(
        value=eps * log_total,
        loss=_mean(p, value),
        z=dz,
        rho=dr,
        zz=p2.sum(axis=1) + _mean(pd, d1) / eps,
        zr=_mean(p2, g) + _mean(pd, move) / eps,
        rr=_mean(p2, g * g) + _mean(p * move, move) / eps,
        effective=1 / _mean(p, p),
    )


def _mean(p: Array, a: Array) -> Array:
    """Return the sums of p a over the nodes."""
    return np.asarray(np.einsum("nk,nk->n", p, a))


def first_order(
    loss: Loss, z: Array, scale: Array, xi: Array, y: Array
) -> tuple[Array, Array, Array]:
    """Return l, d and e with l' = e d at the scores z + scale xi; xi, l, d of shape (L, n)."""
    if type(loss) is Logistic:
        t = xi * (-y * scale)
        t -= y * z
        if t.max() <= LARGEST:
            return *_softplus(t), -y
    u = z + scale * xi
    value, slope, _ = loss.evaluate(u, np.broadcast_to(y, u.shape))
    return value, slope, np.ones_like(z)


def _softplus(t: Array) -> tuple[Array, Array]:
    """Return log q and 1 - 1/q, q = 1 + e^t, in the fewest passes; t is overwritten."""
    q = np.exp(t, out=t)
    q += 1
    value = np.log(q)
    np.divide(-1, q, out=q)
    q += 1
    return value, q


def softmax(log_p: Array) -> tuple[Array, Array]:
    """Return exp(log_p) scaled to sum to 1 along the last axis, and the logarithm of the sum."""
    top = log_p.max(axis=-1, keepdims=True)
    p = np.exp(log_p - top)
    total = p.sum(axis=-1, keepdims=True)
    p /= total
    return p, (top + np.log(total))[..., 0]


def integrate(loss: Loss, z: Array, y: Array, rho: Any, eps: float, K: int) -> Tilt | None:
    """Return the tilt of every row by trapezoid nodes, None where G is infinite."""
    if unbounded(loss, rho, eps):
        return None
    if isinstance(loss, Squared):
        return _squared(z - y, rho, eps)
    parts = []
    for start in range(0, len(z), BLOCK):
        rows = slice(start, start + BLOCK)
        width = rho if np.ndim(rho) == 0 else rho[rows]
        nodes = trapezoid(loss, z[rows], y[rows], width, eps, K)
        parts.append(tilt(loss, z[rows], y[rows], width, eps, nodes))
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(Tilt)]
    return Tilt(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _squared(e: Array, rho: Any, eps: float) -> Tilt:
    """Return the integral of a squared error: G = e^2/q - (eps/2) log q, q = 1 - 2 rho^2/eps."""
    q, q1 = 1 - 2 * rho**2 / eps, -4 * rho / eps
    q2, ones = q1 / rho, np.ones_like(e)
    power = e**2 / q**2
    return Tilt(
        value=e**2 / q - eps / 2 * np.log(q),
        loss=power + rho**2 / q,
        z=2 * e / q,
        rho=-q1 * (power + eps / (2 * q)),
        zz=2 / q * ones,
        zr=-2 * e * q1 / q**2,
        rr=-q2 * (power + eps / (2 * q)) + q1**2 * (2 * power / q + eps / (2 * q**2)),
        effective=np.inf * ones,
    )


def unbounded(loss: Loss, rho: Any, eps: float) -> bool:
    """Whether a loss of quadratic growth outgrows the cost: 2 lam <= smoothness w^2."""
    return bool(
        np.isinf(loss.lipschitz) and loss.smoothness * np.max(rho) ** 2 >= eps * (1 - 1e-12)
    )


def trapezoid(loss: Loss, z: Array, y: Array, rho: Any, eps: float, K: int) -> Nodes:
    """Return nodes on all of the interval that can carry mass, or, if long, around the maxima."""
    low, high = _reach(loss, z, y, rho, eps)
    if (high - low).max() <= K * STEP:
        return _uniform(low, high, K)
    g, width, exists = peaks(loss, z, y, rho, eps)
    low, high = g - WINDOW * width, g + WINDOW * width
    if len(g) == 1:
        return _uniform(low[0], high[0], K)
    # two windows where they are apart, else one over both, with as many nodes
    left = np.where(exists, low, np.inf).min(axis=0)
    right = np.where(exists, high, -np.inf).max(axis=0)
    half = (right - left) * K / (2 * K - 1)
    apart = exists.all(axis=0) & (low.max(axis=0) > high.min(axis=0))
    low = np.where(apart, low, np.stack([left, left + half]))
    high = np.where(apart, high, np.stack([right - half, right]))
    return _uniform(low, high, K)


def _reach(loss: Loss, z: Array, y: Array, rho: Any, eps: float) -> tuple[Array, Array]:
    """Return the interval of g outside which the weighted normal has mass below 1e-14."""
    if np.isinf(loss.lipschitz):
        return np.full_like(z, -np.inf), np.full_like(z, np.inf)
    far = loss.lipschitz * rho**2 / eps + WINDOW * rho
    # l' lies between its values at -far and +far, and a slope l' moves the normal by rho l'/eps
    low, high = (rho / eps * loss.derivative(z + s, y) for s in (-far, far))
    return low - WINDOW, high + WINDOW


def peaks(loss: Loss, z: Array, y: Array, rho: Any, eps: float) -> tuple[Array, Array, Array]:
    """Return the maximisers g of l/eps - g^2/2, their widths, and which of them exist."""
    inner = maxima(loss, z, y, eps / (2 * rho**2))
    g = inner.shift / rho
    bend = loss.curvature(z + inner.shift, np.broadcast_to(y, g.shape)) * rho**2 / eps
    return g, 1 / np.sqrt(np.clip(1 - bend, 0.01, 1.0)), np.isfinite(inner.value)


def maxima(loss: Loss, z: Array, y: Array, kappa: Any) -> Inner:
    """Return the outermost local maxima of l(z + s) - kappa s^2, kappa one number or one a row."""
    if isinstance(loss, PiecewiseQuadratic):
        return _piecewise(loss, z, y, np.broadcast_to(kappa, z.shape))
    if type(loss) is Logistic:
        return loss.inner(z, y, 1.0, kappa)
    both = np.broadcast_to(y, (2, *y.shape))
    shift = _outermost(loss, z, both, kappa)
    value = loss.value(z + shift, both) - kappa * shift**2
    same = np.abs(shift[0] - shift[1]) <= 1e-6 * (1 + np.abs(shift[0]))
    if same.all():
        return Inner(value[:1], shift[:1])
    value[1, same] = -np.inf
    return Inner(value, shift)


def _piecewise(loss: PiecewiseQuadratic, z: Array, y: Array, kappa: Array) -> Inner:
    """Return the maxima over alpha of alpha r - q alpha^2/2, q = loss.kappa - 1/(2 kappa)."""
    r, (lo, hi) = loss.residual(z, y), loss.slopes
    nu = 1 / (2 * kappa)
    q = loss.kappa - nu
    ends = [end if np.isfinite(end) else 0.0 for end in (hi, lo)]
    bent = np.clip(r / np.where(q > 0, q, 1.0), lo, hi)
    alpha = np.where(q > 0, bent, np.array(ends)[:, None])
    value = alpha * r - q * alpha**2 / 2
    shift = -loss.orientation(y) * nu * alpha
    if (q > 0).all():
        return Inner(value[:1], shift[:1])
    value[1, q > 0] = -np.inf
    return Inner(value, shift)


def _outermost(loss: Loss, z: Array, y: Array, kappa: Any) -> Array:
    """Return the largest and the smallest root of f(s) = l'(z + s) - 2 kappa s.

    l' does not fall, so that s -> l'(z + s)/(2 kappa) falls to the largest root from above and
    rises to the smallest from below; a Newton step is taken where it stays on that side.
    """
    sign = np.array([[1.0], [-1.0]])
    s = _beyond(loss, z, y, kappa, sign)
    slope = loss.derivative(z + s, y)
    for _ in range(60):
        fixed = slope / (2 * kappa)
        f, bend = slope - 2 * kappa * s, loss.curvature(z + s, y) - 2 * kappa
        newton = np.where(bend < 0, s - f / np.minimum(bend, -1e-300), fixed)
        there = loss.derivative(z + newton, y)
        better = (sign * (there - 2 * kappa * newton) <= 0) & (sign * (fixed - newton) > 0)
        new = np.where(better, newton, fixed)
        done = np.abs(new - s).max() <= 1e-8 * (1 + np.abs(new).max())
        s, slope = new, np.where(better, there, loss.derivative(z + fixed, y))
        if done:
            break
    return s


def _beyond(loss: Loss, z: Array, y: Array, kappa: Any, sign: Array) -> Array:
    """Return a point beyond every root of l'(z + s) = 2 kappa s on either side."""
    if np.isfinite(loss.lipschitz):
        far = np.ones_like(z) * (sign * loss.lipschitz / (2 * kappa))
        return np.asarray(far)
    far = sign * (1.0 + np.abs(z))
    for _ in range(60):
        short = sign * (loss.derivative(z + far, y) - 2 * kappa * far) > 0
        if not short.any():
            break
        far = np.where(short, 2 * far, far)
    return far


def _uniform(low: Array, high: Array, K: int) -> Nodes:
    """Return K nodes on the interval of each row, or on each of its two intervals."""
    fraction = np.linspace(0, 1, K).reshape(-1, *(1,) * low.ndim)
    # one row a column in memory, so that sums over nodes are sums of vectors
    g = low + (high - low) * fraction
    log = np.log((high - low) / (K - 1)) - 0.5 * np.log(2 * np.pi) - g**2 / 2
    n = low.shape[-1]
    return Nodes(g.reshape(-1, n).T, log.reshape(-1, n).T)
