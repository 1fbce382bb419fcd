r"""Rows whose worst loss is the largest of smooth pieces: derivatives and a bound.

With masses :math:`m = \pi q`, slopes a of the pieces, and phi the mass whose label changes,

.. math:: F^* \ge -\sum m\,\ell^*(a) / (1 + x/\delta)

if :math:`\sum m a = 0` and the budget :math:`\delta + x - \kappa\varphi` pays for the moves:
:math:`\|\sum m a z\|/\mathrm{Lip}` at order 1, :math:`\|\sum m a z\|^2/\sum m a^2` at order 2 (the
risk is concave in delta, so that a budget which is x too large costs a share of x/delta).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...design import Design
from ...duality import balance
from ...losses import Loss
from .pieces import PricedPieces, SmoothPieces

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class PricedRows:
    """What does not change: rows, labels, weights, the loss's pieces, and the prices.

    Of B problems at once delta is (B,), and labels and weights have one more axis for them.
    """

    design: Design
    y: Array
    weights: Array
    loss: Loss
    worst: PricedPieces
    delta: Any
    kappa: float
    fit_intercept: bool
    #: the norms of the columns of an array, or of a vector
    polar: Callable[[Array], Any]

    def beside(self, others: Sequence[PricedRows]) -> PricedRows:
        """Return several problems, each with the delta and the weights of one."""
        weights = np.stack([one.weights for one in others], axis=1)
        deltas = np.array([one.delta for one in others])
        return replace(self, y=self.y[:, None], weights=weights, delta=deltas)

    def problems(self, index: Array) -> PricedRows:
        """Return some of several problems."""
        return replace(self, weights=self.weights[:, index], delta=self.delta[index])

    def weighted_sum(self, v: Array) -> Array:
        """Return sum pi v of several problems."""
        return np.einsum("nb,nb->b", self.weights, v)

    def multiplier(self, last: Any) -> float:
        """Return lambda from the last scalar of a place."""
        return float(last * (self.loss.lipschitz if self.worst.scalars == 1 else 1.0))

    @property
    def rate(self) -> Any:
        """The price of one unit of the last scalar: delta Lip of t, or delta of lam."""
        return self.delta * (self.loss.lipschitz if self.worst.scalars == 1 else 1.0)


@dataclass(frozen=True, eq=False)
class Place:
    """A point (theta, b, s) with its scores, or points of several problems as columns."""

    theta: Array
    b: Any
    s: Array
    z: Array

    def problems(self, index: Array) -> Place:
        """Return the points of some problems."""
        return Place(self.theta[:, index], self.b[index], self.s[:, index], self.z[:, index])


@dataclass(frozen=True, eq=False)
class PricedMinimum:
    """The best point, its risk and multiplier, the gap, the mean slopes of the rows, the steps."""

    place: Place
    risk: float
    multiplier: float
    gap: float
    slopes: Array
    n_iter: int


class Accuracy(NamedTuple):
    """The unit of the risk, the gap asked for and the steps at most, of one or several problems."""

    unit: Any
    target: Any
    max_iter: int


#: The risk and the multiplier of scores and coefficients.
Risk = Callable[[Place], tuple[float, float]]


def curvature(pieces: SmoothPieces, q: Array, W: Array, mean: Array) -> Array:
    """Return sum q f'' + W (f' - mean)(f' - mean)' of every row, shape (p, p, n)."""
    off = pieces.slope - mean[:, None]
    weighted = W * off
    bend = np.empty((len(off), *off.shape[:1], *off.shape[2:]))
    for k in range(len(off)):
        for j in range(k + 1):
            bend[k, j] = (weighted[k] * off[j]).sum(axis=0)
            if pieces.bend[k, j].any():
                bend[k, j] += (q * pieces.bend[k, j]).sum(axis=0)
            bend[j, k] = bend[k, j]
    return bend


def gradient(rows: PricedRows, mean: Array) -> Array:
    """Return the gradient in (theta, b, s) from the mean slopes (p, n) of the rows in (z, s)."""
    d = rows.design.d
    mean = rows.weights * mean
    g = np.zeros((d + 1 + rows.worst.scalars, *mean.shape[2:]))
    g[:d] = rows.design.adjoint(mean[0])
    g[d:] = mean.sum(axis=1)
    g[-1] += rows.rate
    if not rows.fit_intercept:
        g[d] = 0.0
    return g


#: Z' diag(D) Z and Z'D of weights D.
Moments = Callable[[Array], tuple[Array, Array]]


def hessian(rows: PricedRows, bend: Array, moments: Moments | None = None) -> Array:
    """Return the Hessian in (theta, b, s) from the curvatures (p, p, n) of the rows in (z, s).

    Of several problems they are along its last axis.
    """
    d = rows.design.d
    bend = rows.weights * bend
    side = d + 1 + rows.worst.scalars
    H = np.zeros((side, side, *bend.shape[3:]))
    moments = moments or rows.design.moments
    G, H[:d, d] = moments(np.maximum(bend[0, 0], 0.0))
    H[:d, :d] = G if G.ndim == 2 else np.moveaxis(G, 0, -1)
    for k in range(1, len(bend)):
        if bend[0, k].any():
            H[:d, d + k] = rows.design.adjoint(bend[0, k])
    H[d:, :d] = np.swapaxes(H[:d, d:], 0, 1)
    H[d:, d:] = bend.sum(axis=2)
    if not rows.fit_intercept:
        H[d, :] = H[:, d] = 0.0
        H[d, d] = 1.0
    return H


def along(derivatives: Array, move: Sequence[Any]) -> Array:
    """Return the change (J, n) along a move of (z, s), from derivatives (p, J, n)."""
    return np.asarray(sum(slope * dv for slope, dv in zip(derivatives, move, strict=True)))


def bound(rows: PricedRows, label: Array, kept: Array, q: Array, a: Array) -> tuple[Any, Array]:
    """Return the bound of shares q and slopes a (J, n) of pieces, and the rows' mean slopes.

    ``label`` (J, n) is that of a piece, ``kept`` (J,) whether it is the row's own. Of several
    problems, along the last axis of q and a, there is one each; a negative share bounds nothing.
    """
    least = q.min(axis=(0, 1))
    mass = rows.weights * np.maximum(q, 0.0)
    if rows.fit_intercept:
        # slopes with sum m a = 0, those of the heavier sign made smaller
        a = a * balance(mass * a, axis=(0, 1))
    pull = np.sum(mass * a, axis=0)
    changed = mass[~kept].sum(axis=(0, 1))
    size = rows.polar(rows.design.adjoint(pull))
    if rows.worst.scalars == 1:
        need = size / rows.loss.lipschitz
    else:
        square = np.sum(mass * a**2, axis=(0, 1))
        need = np.where(square > 0, size**2 / np.where(square > 0, square, 1.0), 0.0)
    excess = np.maximum(0.0, need - (rows.delta - rows.kappa * changed))
    conjugate = np.where(mass > 0, rows.loss.conjugate(a, label), 0.0)
    value = -np.sum(mass * conjugate, axis=(0, 1)) / (1 + excess / rows.delta)
    mean = pull / np.where(rows.weights > 0, rows.weights, 1.0)
    return np.where(np.isfinite(value) & (least >= 0), value, 0.0), mean
