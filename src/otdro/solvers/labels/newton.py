r"""Newton's method for the largest of smooth pieces, along smoothings of the maximum.

.. math:: \min_{\theta, b, s}\ \delta\lambda + \sum_i \pi_i\,\tau\log\sum_j e^{f_{ij}/\tau}
          + \tau\,\beta(\theta, s),

beta the barrier of t >= ||theta||_* and of the domain of lambda. As tau falls the shares
:math:`q_{ij} \propto e^{f_{ij}/\tau}` become those of the adversary's labels. With masses
:math:`m = \pi q` and slopes a of the pieces, and phi the mass whose label changes,

.. math:: F^* \ge -\sum m\,\ell^*(a) / (1 + x/\delta)

if :math:`\sum m a = 0` and the budget :math:`\delta + x - \kappa\varphi` pays for the moves:
:math:`\|\sum m a z\|/\mathrm{Lip}` at order 1, :math:`\|\sum m a z\|^2/\sum m a^2` at order 2 (the
risk is concave in delta, so that a budget which is x too large costs a share of x/delta).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ...design import Design
from ...duality import balance
from ...duality.ties import factored
from ...losses import Loss
from ..base import duality_gap
from .cones import Cone
from .pieces import SmoothPieces, Worst

Array = NDArray[Any]

#: The first smoothing, the factor from one to the next, and the least one, in units of the risk.
FIRST, FASTER, LEAST = 0.1, 0.15, 1e-13
#: Newton steps at one smoothing, the decrease (in units of tau) that ends them, and step lengths.
STEPS, SETTLED, ARMIJO, HALVINGS = 200, 1e-3, 0.1, 40


@dataclass(frozen=True, eq=False)
class PricedRows:
    """What does not change: rows, labels, weights, the loss's pieces, the cone, and the prices.

    Of B problems at once delta is (B,), and labels and weights have one more axis for them.
    """

    design: Design
    y: Array
    weights: Array
    loss: Loss
    worst: Worst
    #: None for a norm that is known by its cuts
    cone: Cone | None
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


#: The risk and the multiplier of scores and coefficients.
Risk = Callable[[Place], tuple[float, float]]


def minimise(
    rows: PricedRows,
    place: Place,
    risk_of: Risk,
    unit: float,
    target: float,
    max_iter: int,
) -> PricedMinimum:
    """Follow the smoothings until the gap is at most ``target``; ``unit`` is that of the risk."""
    best, (risk, lam) = place, risk_of(place)
    # where most labels change, the constant model's risk is no measure of the first smoothing
    tau, n_iter, lower = FIRST * max(unit, _unsmoothed(rows, place)), 0, 0.0
    slopes = np.zeros_like(place.z)
    last: Place | None = None
    while n_iter < max_iter and tau > LEAST * unit:
        place, step, taken = _settle(rows, place, tau, min(STEPS, max_iter - n_iter))
        n_iter += taken
        now = risk_of(place)
        if now[0] < risk:
            best, (risk, lam) = place, now
        for move in (step, 0 * step):
            bound, mean = lower_bound(rows, place, tau, move)
            if bound > lower:
                lower, slopes = bound, mean
        if risk - lower <= target:
            break
        # the minimisers of smoothings are nearly on a line in tau
        ahead = place if last is None else _ahead(rows, last, place, tau)
        last, place, tau = place, ahead, tau * FASTER
    return PricedMinimum(best, risk, lam, duality_gap(risk, lower), slopes, max(n_iter, 1))


def _ahead(rows: PricedRows, last: Place, place: Place, tau: float) -> Place:
    """Return the line through two minimisers at the next smoothing, the last one if that is worse.

    Their smoothings are tau and tau over the factor.
    """
    along = (FASTER - 1) * tau / (tau - tau / FASTER)
    pairs = [(getattr(last, name), getattr(place, name)) for name in ("theta", "b", "s", "z")]
    ahead = Place(*(v + along * (v - u) for u, v in pairs))
    after = tau * FASTER
    return ahead if _value(rows, ahead, after) < _value(rows, place, after) else place


def _settle(rows: PricedRows, place: Place, tau: float, steps: int) -> tuple[Place, Array, int]:
    """Take Newton steps at one smoothing; return the place before the last one, and that one."""
    value = _value(rows, place, tau)
    for taken in range(1, steps + 1):
        g, H = _derivatives(rows, place, tau)
        step = -cho_solve(factored(H), g, check_finite=False)
        decrease = -float(g @ step)
        if decrease <= SETTLED * tau or taken == steps:
            break
        new, after = _search(rows, place, step, tau, value, decrease)
        if not after < value:
            break
        place, value = new, after
    return place, step, taken


def _search(
    rows: PricedRows, place: Place, step: Array, tau: float, value: float, decrease: float
) -> tuple[Place, float]:
    """Return the place after the longest of the steps 1, 1/2, ... that descends."""
    d = rows.design.d
    dz = rows.design.scores(step[:d]) + step[d]
    length = 1.0
    for _ in range(HALVINGS):
        new = Place(
            place.theta + length * step[:d],
            place.b + length * step[d],
            place.s + length * step[d + 1 :],
            place.z + length * dz,
        )
        after = _value(rows, new, tau)
        if after <= value - ARMIJO * length * decrease:
            return new, after
        length /= 2
    return place, value


def _value(rows: PricedRows, place: Place, tau: float) -> float:
    """Return the smoothed objective, inf outside its domain."""
    assert rows.cone is not None
    barrier = rows.cone.barrier(place.theta, float(place.s[0])).value
    inside, _, _ = _domain(rows, place.s)
    if not np.isfinite(barrier + inside):
        return np.inf
    f = rows.worst.at(place.z, rows.y, place.s).value
    top = f.max(axis=0)
    smooth = top + tau * np.log(np.exp((f - top) / tau).sum(axis=0))
    return float(rows.rate * place.s[-1] + rows.weights @ smooth + tau * (barrier + inside))


def _unsmoothed(rows: PricedRows, place: Place) -> float:
    """Return the objective itself at a place, its multiplier as it stands there."""
    f = rows.worst.at(place.z, rows.y, place.s).value
    return float(rows.rate * place.s[-1] + rows.weights @ f.max(axis=0))


def _domain(rows: PricedRows, s: Array) -> tuple[float, Array, Array]:
    """Return -log(c lam - t^2), or -log lam, and its derivatives in s; nothing at order 1."""
    if rows.worst.scalars == 1:
        return 0.0, np.zeros(1), np.zeros((1, 1))
    t, lam = s
    c = rows.worst.growth
    room = c * lam - t**2 if c > 0 else lam
    if room <= 0:
        return np.inf, np.zeros(2), np.zeros((2, 2))
    slope = np.array([-2 * t, c]) if c > 0 else np.array([0.0, 1.0])
    bend = np.zeros((2, 2))
    bend[0, 0] = -2.0 if c > 0 else 0.0
    g = -slope / room
    return -float(np.log(room)), g, np.outer(g, g) - bend / room


def shares(pieces: SmoothPieces, tau: float) -> Array:
    """Return q (J, n)."""
    top = pieces.value.max(axis=0)
    q = np.exp((pieces.value - top) / tau)
    return np.asarray(q / q.sum(axis=0))


def _derivatives(rows: PricedRows, place: Place, tau: float) -> tuple[Array, Array]:
    """Return gradient and Hessian of the smoothed objective in (theta, b, s)."""
    pieces = rows.worst.at(place.z, rows.y, place.s)
    q = shares(pieces, tau)
    mean = (q * pieces.slope).sum(axis=1)
    g, H = gradient(rows, mean), hessian(rows, curvature(pieces, q, q / tau, mean))
    _add_barriers(rows, place, tau, g, H)
    return g, H


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


def _add_barriers(rows: PricedRows, place: Place, tau: float, g: Array, H: Array) -> None:
    """Add those of the cone, over (theta, t), and of the domain, over s."""
    d = rows.design.d
    at = np.append(np.arange(d), d + 1)
    assert rows.cone is not None
    cone = rows.cone.barrier(place.theta, float(place.s[0]))
    g[at] += tau * cone.gradient
    block = np.diag(cone.diagonal) + cone.vectors.T @ (cone.weight[:, None] * cone.vectors)
    H[np.ix_(at, at)] += tau * block
    _, slope, bend = _domain(rows, place.s)
    g[d + 1 :] += tau * slope
    H[d + 1 :, d + 1 :] += tau * bend


def lower_bound(rows: PricedRows, place: Place, tau: float, step: Array) -> tuple[float, Array]:
    """Return the bound of the shares and slopes at a place, and the mean slope of every row.

    Shares and slopes are continued along a Newton step, where they meet the constraints up to
    second order.
    """
    d = rows.design.d
    pieces = rows.worst.at(place.z, rows.y, place.s)
    q = shares(pieces, tau)
    move = [rows.design.scores(step[:d]) + step[d], *step[d + 1 :]]
    rise = along(pieces.slope, move)
    # where a share would be negative the piece has none
    q = q * np.maximum(1 + (rise - (q * rise).sum(axis=0)) / tau, 0.0)
    a = pieces.slope[0] + along(pieces.bend[0], move)
    return bound(rows, pieces.label, pieces.kept, q / q.sum(axis=0), a)


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
