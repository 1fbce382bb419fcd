r"""The inner supremum of any convex loss, :math:`\max_s \ell(z + s, y) - \kappa s^2`, by search.

A stationary point solves f(s) = l'(z + s) - 2 kappa s = 0, and a maximum is where f falls through
0. All lie between the limits of l' over 2 kappa. Where 2 kappa >= smoothness the problem is
concave and f has one root; else there may be several, and a scan keeps the two best of each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import namespace

if TYPE_CHECKING:
    from .base import Loss

Array = NDArray[Any]

#: Scores beyond this are not sought, and the doublings of a bracket from 1 up to it.
FAR, DOUBLINGS_TO_FAR = 2.0**50, 50
#: Cells of the scan of a row that may have several maxima.
CELLS = 128
#: Steps of a bracketed Newton iteration: halvings alone would leave 2^-60 of the bracket.
STEPS = 60
#: A step this small, relative to 1 + the shift, is rounding.
STILL = 1e-15
#: Doublings in search of a bracket for a loss without a largest slope, and scores that far out
#: at which every loss is finite.
DOUBLINGS, NEARER = 13, 1e4


class Inner(NamedTuple):
    r"""Local maxima of :math:`s \mapsto \ell(z_i + s, y_i) - (\lambda/w_i^2) s^2`.

    A row of each array is a branch. ``value`` is -inf where a row lacks that branch; ``shift`` is
    the maximiser s, the displacement of the score.
    """

    value: Array
    shift: Array

    @property
    def best(self) -> Inner:
        """The global maximum of every row, arrays of shape (n,)."""
        if len(self.value) == 1:
            return Inner(self.value[0], self.shift[0])
        xp = namespace(self.value)
        top = xp.argmax(self.value, axis=0)[None]
        value, shift = (xp.take_along_axis(part, top, axis=0)[0] for part in self)
        return Inner(value, shift)


def local_maxima(loss: Loss, z: Array, y: Array, kappa: Any) -> Inner:
    """Return the maximum of every row, or its two best local maxima, the larger shift first."""
    kappa = np.broadcast_to(np.asarray(kappa, dtype=float), z.shape)
    low, high = _bracket(loss, z, y, kappa)
    several = 2 * kappa < loss.smoothness
    endless = ~np.isfinite(low) | ~np.isfinite(high)
    low, high = np.where(endless, 0.0, low), np.where(endless, 0.0, high)
    if not several.any():
        shift = _fall(loss, z, y, kappa, low, high)
        return Inner(_gain(loss, z, y, kappa, shift)[None], shift[None])
    shift = np.tile(_fall(loss, z, y, kappa, low, high), (2, 1))
    exists = np.zeros(shift.shape, dtype=bool)
    exists[0] = True
    rows = np.flatnonzero(several & ~endless)
    at = (loss, z[rows], y[rows], kappa[rows])
    shift[:, rows], exists[:, rows] = _two_best(*at, low[rows], high[rows])
    value = np.where(exists, _gain(loss, z, y, kappa, shift), -np.inf)
    value[0, endless] = np.inf
    if not exists[1].any():
        return Inner(value[:1], shift[:1])
    return Inner(value, shift)


def slope_limit(loss: Loss, y: Array, sign: float) -> Array:
    """Return dl/dz far out, at scores of ``FAR`` or, where that overflows, of ``NEARER``."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        limit = loss.derivative(np.full_like(y, sign * FAR), y)
    return np.where(np.isfinite(limit), limit, loss.derivative(np.full_like(y, sign * NEARER), y))


def _gain(loss: Loss, z: Array, y: Array, kappa: Array, s: Array) -> Array:
    """Return l(z + s) - kappa s^2, for one shift per row or for branches of them."""
    return loss.value(z + s, np.broadcast_to(y, s.shape)) - kappa * s**2


def _bracket(loss: Loss, z: Array, y: Array, kappa: Array) -> tuple[Array, Array]:
    """Return shifts with f(low) >= 0 >= f(high), infinite where the loss outgrows the cost."""
    if np.isfinite(loss.lipschitz):
        reach = loss.lipschitz / (2 * kappa)
        low, high = loss.derivative(z - reach, y), loss.derivative(z + reach, y)
        # l' is between its values at the ends of the reach
        return low / (2 * kappa), high / (2 * kappa)
    return _doubled(loss, z, y, kappa, -1.0), _doubled(loss, z, y, kappa, 1.0)


def _doubled(loss: Loss, z: Array, y: Array, kappa: Array, sign: float) -> Array:
    # a loss that is flat near the row may outgrow the cost all the same, farther out
    last = z + sign * NEARER * (1.0 + np.abs(z))
    endless = sign * (loss.derivative(last, y) - 2 * kappa * (last - z)) > 0
    far = sign * (1.0 + np.abs(z))
    for _ in range(DOUBLINGS):
        short = sign * (loss.derivative(z + far, y) - 2 * kappa * far) > 0
        if not short.any():
            break
        far = np.where(short, 2 * far, far)
    return np.where(endless, sign * np.inf, far)


def _fall(loss: Loss, z: Array, y: Array, kappa: Array, low: Array, high: Array) -> Array:
    """Return a root of f in [low, high], f(low) >= 0 >= f(high), by bracketed Newton steps."""
    s = (low + high) / 2
    for _ in range(STEPS):
        slope = loss.derivative(z + s, y)
        f = slope - 2 * kappa * s
        low, high = np.where(f >= 0, s, low), np.where(f >= 0, high, s)
        bend = loss.curvature(z + s, y) - 2 * kappa
        step = f / np.where(bend < 0, -bend, np.inf)
        new = np.where(
            (s + step > low) & (s + step < high) & (bend < 0), s + step, (low + high) / 2
        )
        moved = np.abs(new - s)
        s = new
        if np.all(moved <= STILL * (1 + np.abs(s))):
            break
    return s


def _two_best(
    loss: Loss, z: Array, y: Array, kappa: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Return the shifts (2, n) of the two best falls of f on a scan, and which of them exist."""
    grid = low + (high - low) * np.linspace(0.0, 1.0, CELLS + 1)[:, None]
    f = loss.derivative(z + grid, np.broadcast_to(y, grid.shape)) - 2 * kappa * grid
    f[0], f[-1] = np.maximum(f[0], 0.0), np.minimum(f[-1], 0.0)
    falls = (f[:-1] >= 0) & (f[1:] <= 0) & ((f[:-1] > 0) | (f[1:] < 0))
    falls[0] |= ~falls.any(axis=0)
    height = np.where(falls, _gain(loss, z, y, kappa, grid[:-1]), -np.inf)
    first = height.argmax(axis=0)
    np.put_along_axis(height, first[None], -np.inf, axis=0)
    second = height.argmax(axis=0)
    exists = np.take_along_axis(height, second[None], axis=0)[0] > -np.inf
    # the larger shift first, so that a branch keeps its place from one point to the next
    upper, lower = np.maximum(first, second), np.minimum(first, second)
    cells = (np.where(exists, upper, first), lower)
    found = []
    for cell in cells:
        left, right = (np.take_along_axis(grid, (cell + k)[None], axis=0)[0] for k in (0, 1))
        found.append(_fall(loss, z, y, kappa, left, right))
    shift = np.stack([found[0], np.where(exists, found[1], found[0])])
    return shift, np.stack([np.ones_like(exists), exists])
