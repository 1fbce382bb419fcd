r"""The worst loss of a row as the largest of smooth pieces, of its own label and of the other one.

.. math:: f_i = \max_j f_{ij}(z_i, t, \lambda),\qquad
          f_{ij} = \psi(z_i, y_{ij}) - \kappa\lambda\,[y_{ij} \ne y_i],

t >= ||theta||_*; at order 1 psi is the loss and lambda = Lip t, at order 2 it is the inner
supremum, whose branches, or the pieces of a kinked loss, are pieces each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...duality import move_derivatives
from ...losses import Loss

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SmoothPieces:
    """J pieces of n rows in (z, t) or (z, t, lam).

    Values are (J, n), slopes (p, J, n), curvatures ``bend`` (p, p, J, n); those of B problems have
    these along one more axis, the last.

    ``label`` (J, n) is the label of a piece, ``kept`` (J,) whether it is the row's own. The slope
    in z is dl/dz at the place the row is moved to.
    """

    value: Array
    slope: Array
    bend: Array
    label: Array
    kept: Array

    def problems(self, index: Array) -> SmoothPieces:
        """Return the pieces of some of B problems."""
        value, slope, bend = (part[..., index] for part in (self.value, self.slope, self.bend))
        return SmoothPieces(value, slope, bend, self.label, self.kept)


#: Value (n,), slope (p, n) and curvature (p, p, n) of one piece.
Piece = tuple[Array, Array, Array]


class PricedPieces:
    """The pieces of a loss at an order, those of the other label at kappa per unit of lam.

    ``scalars`` is 1 for t, 2 for t and lam; ``growth`` 2 kappa of a quadratic loss, which needs
    2 kappa lam > t^2, else 0.
    """

    scalars = 2
    growth = 0.0

    def __init__(self, loss: Loss, kappa: float) -> None:
        self.loss = loss
        self.kappa = kappa

    @property
    def price(self) -> float:
        """What a change of label takes off per unit of the last scalar."""
        return self.kappa

    def inside(self, s: Array) -> Any:
        """Whether t and lam are positive, and 2 kappa lam > t^2 of a quadratic loss."""
        return (s.min(axis=0) > 0) & ((self.growth == 0) | (self.growth * s[-1] > s[0] ** 2))

    def under(self, z: Array, label: Array, s: Array) -> list[Piece]:
        """Return the pieces under a label, without its price."""
        raise NotImplementedError

    def at(self, z: Array, y: Array, s: Array) -> SmoothPieces:
        """Return the pieces of both labels."""
        parts = []
        for kept, label in ((True, y), (False, -y)):
            for value, slope, bend in self.under(z, label, s):
                if not kept:
                    value = value - self.price * s[-1]
                    slope[-1] -= self.price
                parts.append((value, slope, bend, label, kept))
        values, slopes, bends, labels, own = zip(*parts, strict=True)
        slopes_of, bends_of = np.stack(slopes, axis=1), np.stack(bends, axis=2)
        return SmoothPieces(np.stack(values), slopes_of, bends_of, np.stack(labels), np.array(own))


class OrderOne(PricedPieces):
    """max(l(z, y), l(z, -y) - kappa Lip t), a piecewise linear loss by its affine pieces."""

    scalars = 1

    @property
    def price(self) -> float:
        """The price of lam = Lip t."""
        return self.kappa * self.loss.lipschitz

    def under(self, z: Array, label: Array, s: Array) -> list[Piece]:
        """Return the loss, or one piece per slope."""
        found = []
        for value, slope, bend in _losses(self.loss, z, label):
            g, h = np.zeros((2, *z.shape)), np.zeros((2, 2, *z.shape))
            g[0] = slope
            h[0, 0] = bend
            found.append((value, g, h))
        return found


def _losses(loss: Loss, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
    """Return value, slope and curvature of a smooth loss, or of the sides of a kinked one."""
    pieces = loss.pieces
    if pieces is None:
        return [loss.evaluate(z, y)]
    r, o = pieces.residual(z, y), pieces.orientation(y)
    zero = np.zeros_like(z)
    return [(a * r, -a * o, zero) for a in pieces.slopes]


class InnerSupremum(PricedPieces):
    """Order 2 of a smooth Lipschitz loss: the branches of its inner supremum under each label."""

    def under(self, z: Array, label: Array, s: Array) -> list[Piece]:
        """Return the branches; a missing one is far below."""
        if z.ndim == 2:
            return self._of_problems(z, label, s)
        t, lam = s
        inner = self.loss.inner(z, label, t, lam)
        found = []
        for value, shift in zip(inner.value, inner.shift, strict=True):
            there = np.isfinite(value)
            _, slope, bend = self.loss.evaluate(z + shift, label)
            stiff = np.maximum(2 * lam - t**2 * bend, 1e-12 * lam)
            d = move_derivatives(slope, bend, shift / t, t, stiff)
            g = np.stack([d.z, d.w, d.lam])
            h = _symmetric(d.zz, d.zw, d.zl, d.ww, d.wl, d.ll)
            g = np.where(there, g, 0.0)
            h = np.where(there, h, 0.0)
            found.append((np.where(there, value, -np.inf), g, h))
        return found

    def _of_problems(self, z: Array, label: Array, s: Array) -> list[Piece]:
        """Return the branches of several problems: their rows, one after the other, are rows."""
        rows = [np.broadcast_to(part, z.shape).ravel() for part in (label, *s)]
        found = self.under(z.ravel(), rows[0], np.stack(rows[1:]))
        return [
            (f.reshape(z.shape), g.reshape(-1, *z.shape), h.reshape(3, 3, *z.shape))
            for f, g, h in found
        ]


class PiecewiseOrderTwo(PricedPieces):
    """Order 2 of a piecewise linear loss: sides a r + a^2 t^2/(4 lam)."""

    def under(self, z: Array, label: Array, s: Array) -> list[Piece]:
        """Return the sides."""
        t, lam = s
        pieces = self.loss.pieces
        assert pieces is not None
        r, o = pieces.residual(z, label), pieces.orientation(label)
        one, zero = np.ones_like(z), np.zeros_like(z)
        found = []
        for a in pieces.slopes:
            v = a**2 * t / (2 * lam)
            g = np.stack([-a * o * one, v * one, -v * t / (2 * lam) * one])
            tt = a**2 / (2 * lam) * one
            h = _symmetric(zero, zero, zero, tt, -tt * t / lam, tt * t**2 / lam**2)
            found.append((a * r + a**2 * t**2 / (4 * lam), g, h))
        return found


class QuadraticOrderTwo(PricedPieces):
    """Order 2 of a one-sided quadratic loss: r_+^2 lam/(2 kappa_l lam - t^2)."""

    def __init__(self, loss: Loss, kappa: float) -> None:
        super().__init__(loss, kappa)
        assert loss.pieces is not None
        self.growth = 2 * loss.pieces.kappa

    def under(self, z: Array, label: Array, s: Array) -> list[Piece]:
        """Return the one piece."""
        t, lam = s
        pieces = self.loss.pieces
        assert pieces is not None
        c = self.growth
        D = c * lam - t**2
        o = pieces.orientation(label)
        r = np.maximum(pieces.residual(z, label), 0.0)
        q = r**2
        g = np.stack([-2 * o * r * lam / D, q * lam * 2 * t / D**2, -q * t**2 / D**2])
        h = _symmetric(
            np.where(r > 0, 2 * lam / D, 0.0),
            -4 * o * r * lam * t / D**2,
            2 * o * r * t**2 / D**2,
            q * lam * (2 / D**2 + 8 * t**2 / D**3),
            q * (2 * t / D**2 - 4 * c * lam * t / D**3),
            q * 2 * c * t**2 / D**3,
        )
        return [(q * lam / D, g, h)]


def _symmetric(zz: Array, zw: Array, zl: Array, ww: Array, wl: Array, ll: Array) -> Array:
    """Return the symmetric matrices (3, 3, n) of these entries."""
    return np.array([[zz, zw, zl], [zw, ww, wl], [zl, wl, ll]])


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
