r"""The worst loss of a row as the largest of smooth pieces, of its own label and of the other one.

.. math:: f_i = \max_j f_{ij}(z_i, t, \lambda),\qquad
          f_{ij} = \psi(z_i, y_{ij}) - \kappa\lambda\,[y_{ij} \ne y_i],

t >= ||theta||_*; at order 1 psi is the loss and lambda = Lip t, at order 2 it is the inner
supremum, whose branches, or the pieces of a kinked loss, are pieces each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...duality import move_derivatives
from ...losses import Loss

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SmoothPieces:
    """J pieces of n rows in (z, t) or (z, t, lam): value (J, n), slope (J, n, p), bend.

    ``label`` (J, n) is the label of a piece, ``kept`` (J,) whether it is the row's own. The slope
    in z is dl/dz at the place the row is moved to.
    """

    value: Array
    slope: Array
    bend: Array
    label: Array
    kept: Array


class Worst(Protocol):
    """The pieces of a loss at an order; ``scalars`` is 1 for t, 2 for t and lam."""

    scalars: int
    #: 2 kappa of a quadratic loss, which needs 2 kappa lam > t^2; else 0.
    growth: float

    def at(self, z: Array, y: Array, s: Array) -> SmoothPieces:
        """Return the pieces at scores z and scalars s."""


def labelled(parts: list[tuple[Array, Array, Array, Array, bool]]) -> SmoothPieces:
    """Stack (value, slope, bend, label, kept) of all pieces."""
    value, slope, bend, label, kept = zip(*parts, strict=True)
    return SmoothPieces(
        np.stack(value), np.stack(slope), np.stack(bend), np.stack(label), np.array(kept)
    )


class OrderOne:
    """max(l(z, y), l(z, -y) - kappa Lip t), a piecewise linear loss by its affine pieces."""

    scalars = 1
    growth = 0.0

    def __init__(self, loss: Loss, kappa: float) -> None:
        self.loss = loss
        self.kappa = kappa

    def at(self, z: Array, y: Array, s: Array) -> SmoothPieces:
        """Return one piece per label, or one per label and slope."""
        rate = self.kappa * self.loss.lipschitz
        parts = []
        for sign in (1.0, -1.0):
            for value, slope, bend in _losses(self.loss, z, sign * y):
                kept = sign > 0
                g = np.zeros((len(z), 2))
                g[:, 0] = slope
                h = np.zeros((len(z), 2, 2))
                h[:, 0, 0] = bend
                if not kept:
                    value = value - rate * s[0]
                    g[:, 1] = -rate
                parts.append((value, g, h, sign * y, kept))
        return labelled(parts)


def _losses(loss: Loss, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
    """Return value, slope and curvature of a smooth loss, or of the sides of a kinked one."""
    pieces = loss.pieces
    if pieces is None:
        return [loss.evaluate(z, y)]
    r, o = pieces.residual(z, y), pieces.orientation(y)
    zero = np.zeros_like(z)
    return [(a * r, -a * o, zero) for a in pieces.slopes]


class InnerSupremum:
    """Order 2 of a smooth Lipschitz loss: the branches of its inner supremum under each label."""

    scalars = 2
    growth = 0.0

    def __init__(self, loss: Loss, kappa: float) -> None:
        self.loss = loss
        self.kappa = kappa

    def at(self, z: Array, y: Array, s: Array) -> SmoothPieces:
        """Return the branches of both labels; a missing one is far below."""
        t, lam = s
        parts = []
        for sign in (1.0, -1.0):
            label = sign * y
            found = self.loss.inner(z, label, t, lam)
            for value, shift in zip(found.value, found.shift, strict=True):
                there = np.isfinite(value)
                _, slope, bend = self.loss.evaluate(z + shift, label)
                stiff = np.maximum(2 * lam - t**2 * bend, 1e-12 * lam)
                d = move_derivatives(slope, bend, shift / t, t, lam, stiff)
                g = np.stack([d.z, d.w, d.lam - (0.0 if sign > 0 else self.kappa)], axis=1)
                h = _symmetric(d.zz, d.zw, d.zl, d.ww, d.wl, d.ll)
                paid = value - (0.0 if sign > 0 else self.kappa * lam)
                g = np.where(there[:, None], g, 0.0)
                h = np.where(there[:, None, None], h, 0.0)
                parts.append((np.where(there, paid, -np.inf), g, h, label, sign > 0))
        return labelled(parts)


class PiecewiseOrderTwo:
    """Order 2 of a piecewise linear loss: sides a r + a^2 t^2/(4 lam)."""

    scalars = 2
    growth = 0.0

    def __init__(self, loss: Loss, kappa: float) -> None:
        self.loss = loss
        self.kappa = kappa

    def at(self, z: Array, y: Array, s: Array) -> SmoothPieces:
        """Return the sides of both labels."""
        t, lam = s
        pieces = self.loss.pieces
        assert pieces is not None
        parts = []
        one = np.ones_like(z)
        for sign in (1.0, -1.0):
            label = sign * y
            r, o = pieces.residual(z, label), pieces.orientation(label)
            paid = 0.0 if sign > 0 else self.kappa
            for a in pieces.slopes:
                v = a**2 * t / (2 * lam)
                value = a * r + a**2 * t**2 / (4 * lam) - paid * lam
                g = np.stack([-a * o, v * one, (-v * t / (2 * lam) - paid) * one], axis=1)
                tt = a**2 / (2 * lam) * one
                zero = 0 * one
                h = _symmetric(zero, zero, zero, tt, -tt * t / lam, tt * t**2 / lam**2)
                parts.append((value, g, h, label, sign > 0))
        return labelled(parts)


class QuadraticOrderTwo:
    """Order 2 of a one-sided quadratic loss: r_+^2 lam/(2 kappa_l lam - t^2)."""

    scalars = 2

    def __init__(self, loss: Loss, kappa: float) -> None:
        self.loss = loss
        self.kappa = kappa
        assert loss.pieces is not None
        self.growth = 2 * loss.pieces.kappa

    def at(self, z: Array, y: Array, s: Array) -> SmoothPieces:
        """Return one piece per label."""
        t, lam = s
        pieces = self.loss.pieces
        assert pieces is not None
        c = self.growth
        D = c * lam - t**2
        parts = []
        for sign in (1.0, -1.0):
            label = sign * y
            o = pieces.orientation(label)
            r = np.maximum(pieces.residual(z, label), 0.0)
            paid = 0.0 if sign > 0 else self.kappa
            q = r**2
            g = np.stack(
                [-2 * o * r * lam / D, q * lam * 2 * t / D**2, -q * t**2 / D**2 - paid], axis=1
            )
            h = _symmetric(
                np.where(r > 0, 2 * lam / D, 0.0),
                -4 * o * r * lam * t / D**2,
                2 * o * r * t**2 / D**2,
                q * lam * (2 / D**2 + 8 * t**2 / D**3),
                q * (2 * t / D**2 - 4 * c * lam * t / D**3),
                q * 2 * c * t**2 / D**3,
            )
            parts.append((q * lam / D - paid * lam, g, h, label, sign > 0))
        return labelled(parts)


def _symmetric(zz: Array, zw: Array, zl: Array, ww: Array, wl: Array, ll: Array) -> Array:
    """Return the symmetric matrices (n, 3, 3) of these entries."""
    rows = [np.stack(row, axis=1) for row in ([zz, zw, zl], [zw, ww, wl], [zl, wl, ll])]
    return np.stack(rows, axis=1)


def pieces_of(loss: Loss, order: int, kappa: float) -> Any:
    """Return the pieces of a loss at an order, None where it has none."""
    kinked = loss.pieces
    finite = np.isfinite(loss.lipschitz)
    linear = kinked is not None and kinked.kappa == 0 and finite
    smooth = kinked is None and np.isfinite(loss.smoothness) and finite
    if order == 1:
        return OrderOne(loss, kappa) if linear or smooth else None
    if smooth:
        return InnerSupremum(loss, kappa)
    if linear:
        return PiecewiseOrderTwo(loss, kappa)
    if kinked is not None and kinked.rooted and kinked.slopes[0] == 0:
        return QuadraticOrderTwo(loss, kappa)
    return None
