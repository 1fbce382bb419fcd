r"""Rows whose label may change at the price kappa: the worst loss is the largest of smooth pieces.

.. math:: \min_{\theta, b, s}\ \delta\lambda + \sum_i \pi_i \max_j f_{ij}(z_i, s),\qquad
          f_{ij} = \psi(z_i, y_{ij}) - \kappa\lambda\,[y_{ij} \ne y_i],

s = (t,) at order 1, where psi is the loss and lambda = Lip t, and (t, lambda) at order 2, where psi
is the inner supremum; t >= ||theta||_*. The branches of psi, or the sides of a loss with a kink,
are pieces each.

With shares q of the pieces, masses :math:`m = \pi q`, slopes a of the pieces and phi the mass whose
label changes, a bound below the least risk is

.. math:: F^* \ge -\sum m\,\ell^*(a) / (1 + x/\delta)

if :math:`\sum m a = 0` and the budget :math:`\delta + x - \kappa\varphi` pays for the moves:
:math:`\|\sum m a z\|/\mathrm{Lip}` at order 1, :math:`\|\sum m a z\|^2/\sum m a^2` at order 2 (the
risk is concave in delta, so that a budget which is x too large costs a share of x/delta).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import Cost
from ...design import Design
from ...duality import balance, move_derivatives
from ...losses import Loss
from ..euclidean.order_one import SHARP

Array = NDArray[Any]

#: Value, dl/dz, d2l/dz2 and displacement of the score (n,) of one piece.
Branch = tuple[Array, Array, Array, Array]


@dataclass(frozen=True, eq=False)
class Pieces:
    """J pieces of n rows in (z, s): ``value`` (J, n), ``slope`` (p, J, n), ``bend`` (p, p, J, n).

    ``label`` (J, n) is the label of a piece, ``kept`` (J,) whether it is the row's own. The slope
    in z is dl/dz at the place the row is moved to. ``there`` (J, n) are the pieces that exist.
    """

    value: Array
    slope: Array
    bend: Array
    label: Array
    kept: Array
    there: Array


class WorstLoss:
    """The pieces of a loss at an order: of a piecewise linear one its sides, else its branches.

    ``scalars`` is 1 for t, 2 for t and lam; ``growth`` is 2 kappa_l of a quadratic loss, whose
    domain is 2 kappa_l lam > t^2, else 0; ``rate`` is lambda per unit of the last scalar.
    """

    def __init__(self, loss: Loss, order: int) -> None:
        pieces = loss.pieces
        self.loss, self.scalars = loss, order
        self.growth = 2 * pieces.kappa if pieces is not None and order == 2 else 0.0
        self.rate = float(loss.lipschitz) if order == 1 else 1.0

    def inside(self, s: Array) -> bool:
        """Whether t and lam are positive and in the domain of a quadratic loss."""
        return bool(s.min() > 0 and (self.growth == 0 or self.growth * s[-1] > s[0] ** 2))

    def under(self, z: Array, label: Array, s: Array) -> list[tuple[Array, Array, Array]]:
        """Return value (n,), slope (p, n) and curvature (p, p, n) in (z, s) of each piece.

        Pieces are those under a label, without its price; the value of a missing one is -inf.
        """
        found = []
        for value, slope, bend, shift in self._branches(z, label, s):
            if self.scalars == 1:
                zero = np.zeros_like(z)
                g, h = np.stack([slope, zero]), np.stack([[bend, zero], [zero, zero]])
            else:
                (t, lam), there = s, np.isfinite(value)
                stiff = np.maximum(2 * lam - t**2 * bend, SHARP * lam)
                d = move_derivatives(slope, bend, shift / t, t, stiff)
                g = np.where(there, np.stack([d.z, d.w, d.lam]), 0.0)
                H = np.array([[d.zz, d.zw, d.zl], [d.zw, d.ww, d.wl], [d.zl, d.wl, d.ll]])
                h = np.where(there, H, 0.0)
                value = np.where(there, value, -np.inf)
            found.append((value, g, h))
        return found

    def _branches(self, z: Array, label: Array, s: Array) -> list[Branch]:
        """Return the sides of a piecewise linear loss, else the branches of the inner supremum."""
        pieces, zero = self.loss.pieces, np.zeros_like(z)
        if pieces is not None and pieces.kappa == 0:
            r, o = pieces.residual(z, label), pieces.orientation(label)
            # a score moves by -a o t^2/(2 lam), which adds a^2 t^2/(4 lam)
            reach = s[0] ** 2 / (2 * s[1]) if self.scalars == 2 else 0.0
            return [
                (a * r + a**2 * reach / 2, -a * o + zero, zero, -a * o * reach + zero)
                for a in pieces.slopes
            ]
        if self.scalars == 1:
            return [(*self.loss.evaluate(z, label), zero)]
        inner = self.loss.inner(z, label, *s)
        return [
            (value, *self.loss.evaluate(z + shift, label)[1:], shift)
            for value, shift in zip(inner.value, inner.shift, strict=True)
        ]


def worst_loss(loss: Loss, order: int) -> WorstLoss | None:
    """Return the pieces of a loss at an order, None where it has none."""
    kinked = loss.pieces
    finite = np.isfinite(loss.lipschitz)
    linear = kinked is not None and kinked.kappa == 0 and finite
    smooth = kinked is None and np.isfinite(loss.smoothness) and finite
    quadratic = kinked is not None and kinked.rooted and kinked.slopes[0] == 0
    if linear or smooth or (order == 2 and quadratic):
        return WorstLoss(loss, order)
    return None


@dataclass(frozen=True, eq=False)
class Place:
    """A point (theta, b, s) with the scores z of the rows."""

    theta: Array
    b: float
    s: Array
    z: Array


@dataclass(frozen=True, eq=False)
class Minimum:
    """A point with its risk and multiplier, the gap, the mean slopes of the rows, the steps."""

    place: Place
    risk: float
    multiplier: float
    gap: float
    slopes: Array
    n_iter: int


@dataclass(frozen=True, eq=False)
class PricedRows:
    """Rows in the coordinates of a cost, their labels and weights, the loss, and the prices."""

    design: Design
    y: Array
    weights: Array
    worst: WorstLoss
    cost: Cost
    delta: float
    kappa: float
    fit_intercept: bool

    @property
    def rate(self) -> float:
        """The price of one unit of the last scalar: delta Lip of t, or delta of lam."""
        return self.delta * self.worst.rate

    def norm(self, theta: Array) -> float:
        """Return the dual norm of coordinates."""
        return float(np.linalg.norm(theta) if self.cost.euclidean else self.cost.dual_norm(theta))

    def at(self, z: Array, s: Array) -> Pieces:
        """Return the pieces of both labels."""
        price = self.kappa * self.worst.rate
        parts = []
        for kept, label in ((True, self.y), (False, -self.y)):
            for height, slope, bend in self.worst.under(z, label, s):
                if not kept:
                    slope[-1] -= price
                parts.append((height - price * s[-1] * (not kept), slope, bend, label, kept))
        values, slopes, bends, labels, own = zip(*parts, strict=True)
        value = np.stack(values)
        return Pieces(
            value=value,
            slope=np.stack(slopes, axis=1),
            bend=np.stack(bends, axis=2),
            label=np.stack(labels),
            kept=np.array(own),
            there=np.isfinite(value),
        )

    def gradient(self, mean: Array) -> Array:
        """Return the gradient in (theta, b, s) from mean slopes (p, n) of the rows in (z, s)."""
        d = self.design.d
        mean = self.weights * mean
        g = np.zeros(d + 1 + self.worst.scalars)
        g[:d] = self.design.adjoint(mean[0])
        g[d:] = mean.sum(axis=1)
        g[-1] += self.rate
        if not self.fit_intercept:
            g[d] = 0.0
        return g

    def hessian(self, bend: Array) -> Array:
        """Return the Hessian in (theta, b, s) from curvatures (p, p, n) of the rows in (z, s)."""
        d = self.design.d
        bend = self.weights * bend
        side = d + 1 + self.worst.scalars
        H = np.zeros((side, side))
        H[:d, :d], H[:d, d] = self.design.moments(np.maximum(bend[0, 0], 0.0))
        for k in range(1, len(bend)):
            if bend[0, k].any():
                H[:d, d + k] = self.design.adjoint(bend[0, k])
        H[d:, :d] = H[:d, d:].T
        H[d:, d:] = bend.sum(axis=2)
        if not self.fit_intercept:
            H[d, :] = H[:, d] = 0.0
            H[d, d] = 1.0
        return H

    def polar(self, g: Array) -> float:
        """Return the norm of a gradient in theta."""
        return float(np.linalg.norm(g) if self.cost.euclidean else self.cost.norm(g))

    def bound(self, label: Array, kept: Array, q: Array, a: Array) -> tuple[float, Array]:
        """Return the bound of shares q and slopes a (J, n) of pieces, and the rows' mean slopes.

        ``label`` (J, n) is that of a piece, ``kept`` (J,) whether it is the row's own.
        """
        mass = self.weights * np.maximum(q, 0.0)
        if self.fit_intercept:
            # slopes with sum m a = 0, those of the heavier sign made smaller
            a = a * balance(mass * a, axis=(0, 1))
        pull = np.sum(mass * a, axis=0)
        changed = float(mass[~kept].sum())
        size = self.polar(self.design.adjoint(pull))
        if self.worst.scalars == 1:
            need = size / self.worst.loss.lipschitz
        else:
            square = float(np.sum(mass * a**2))
            need = size**2 / square if square > 0 else 0.0
        excess = max(0.0, need - (self.delta - self.kappa * changed))
        conjugate = np.where(mass > 0, self.worst.loss.conjugate(a, label), 0.0)
        value = -float(np.sum(mass * conjugate)) / (1 + excess / self.delta)
        mean = pull / np.where(self.weights > 0, self.weights, 1.0)
        return (value if np.isfinite(value) and q.min() >= 0 else 0.0), mean


def along(derivatives: Array, move: Sequence[Any]) -> Array:
    """Return the change (J, n) along a move of (z, s), from derivatives (p, J, n)."""
    return np.asarray(sum(slope * dv for slope, dv in zip(derivatives, move, strict=True)))
