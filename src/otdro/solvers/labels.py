r"""Labels that may be changed at the price kappa, for losses of one score.

The worst loss of a row is the largest of smooth pieces,

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

The method is a primal-dual interior point, under any norm, of

.. math:: \min_{\theta, b, s, T}\ \delta\lambda + \sum_i \pi_i T_i\quad\text{s.t.}\quad
          T_i - f_{ij}(z_i, s) = \sigma_{ij} \ge 0,\qquad t \ge \|\theta\|_* .

The multipliers of sigma are the shares q of the pieces in a row, those of the norm are prices
(``norm_rows``). Steps are Mehrotra's, sigma q = mu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from ..costs import Cost, Norm
from ..design import Design, model_scores
from ..duality import (
    PRECISION,
    TRIES,
    Dual,
    balance,
    factored,
    least_finite,
    move_derivatives,
    priced_risk,
    priced_tangent,
)
from ..losses import Loss
from ..problem import Problem, Solution
from .euclidean.newton import Coordinates
from .euclidean.order_one import SHARP, SHORTEST
from .exact import Method, duality_gap, verdict
from .norm_rows import FaceRows, NormPoint, NormRows, NormStep, norm_rows
from .predictor_corrector import (
    ARMIJO,
    CENTRED,
    CENTRING,
    FALL,
    LAST,
    SHORT_OF,
    corrected_step,
    longest,
)

Array = NDArray[Any]

#: The first mu at most, in units of the risk.
FIRST = 0.03
#: The norm of the coefficients that take the place of zero at the start.
LEAST_NORM = 1e-2
#: The first t is this share above the norm: at least at order 1, at most at order 2.
SHARE_OF_NORM = 0.1
#: The share of a slack that remains where curvature took more of it, and of t^2/lam on its line.
LEFT = 0.1
#: Progress is a fall of the gap, or of the sum of the products, by this factor.
PROGRESS = 0.9
#: The factor by which a step may increase the sum of the products.
MOST_GROWTH = 2.0

#: Value, dl/dz, d2l/dz2 and displacement of the score (n,) of one piece, and whether that is held.
Movement = tuple[Array, Array, Array, Array, Array]


@dataclass(frozen=True, eq=False)
class Pieces:
    """J pieces of n rows in (z, s): ``value`` (J, n), ``slope`` (p, J, n), ``bend`` (p, p, J, n).

    The first half is of the row's own label, the other half of the other one. The slope in z is
    dl/dz at the place the row is moved to; ``cut`` (n,) parts the displacements of a smooth loss.
    """

    value: Array
    slope: Array
    bend: Array
    cut: Array


class WorstLoss:
    """The pieces of a loss at an order: of a piecewise linear one its sides, of a smooth one
    at order 2 the best displacements of two parts.

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

    def under(
        self, z: Array, label: Array, s: Array, cut: Array
    ) -> list[tuple[Array, Array, Array]]:
        """Return value (n,), slope (p, n) and curvature (p, p, n) in (z, s) of each piece.

        Pieces are those under a label, without its price.
        """
        t, lam, p, found = s[0], s[-1], self.scalars + 1, []
        for value, slope, bend, shift, held in self._movements(z, label, t, lam, cut):
            # what is held does not follow (z, s)
            stiff = np.where(held, np.inf, np.maximum(2 * lam - t**2 * bend, SHARP * lam))
            d = move_derivatives(slope, bend, shift / t, t, stiff)
            H = np.array([[d.zz, d.zw, d.zl], [d.zw, d.ww, d.wl], [d.zl, d.wl, d.ll]])
            found.append((value, np.stack([d.z, d.w, d.lam])[:p], H[:p, :p]))
        return found

    def _movements(
        self, z: Array, label: Array, t: float, lam: float, cut: Array
    ) -> list[Movement]:
        """Return the sides of a piecewise linear loss, or the best displacements, as pieces.

        At order 2 those of a smooth loss, in units of t, are above or below ``cut``, a number per
        row: a part has a best one wherever (z, s) is, so that no piece jumps, and is convex in it.
        """
        pieces, still = self.loss.pieces, np.zeros_like(z)
        free, held = still > 0, still == 0
        linear = pieces is not None and pieces.kappa == 0
        sides = [self.loss.evaluate(z, label)]
        if pieces is not None and linear:
            r, o = pieces.residual(z, label), pieces.orientation(label)
            sides = [(a * r, -a * o + still, still) for a in pieces.slopes]
        if self.scalars == 1:
            return [(*side, still, held) for side in sides]
        if linear:
            # a score moves by -a o t^2/(2 lam), which adds a^2 t^2/(4 lam)
            reach = t**2 / (2 * lam)
            return [(v + a**2 * reach / 2, a, bend, a * reach, free) for v, a, bend in sides]
        inner = self.loss.inner(z, label, t, lam)
        if pieces is not None:
            best = inner.best
            return [(best.value, *self.loss.evaluate(z + best.shift, label)[1:], best.shift, free)]
        parts = []
        for side in (1, -1):
            shift, ends = t * cut, held
            value = self.loss.value(z + shift, label) - lam * cut**2
            for other, by in zip(inner.value, inner.shift, strict=True):
                better = (side * (by - t * cut) >= 0) & (other > value)
                value, shift = np.where(better, other, value), np.where(better, by, shift)
                ends = ends & ~better
            parts.append((value, *self.loss.evaluate(z + shift, label)[1:], shift, ends))
        return parts


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
    """The rows of a problem in the coordinates of its cost, and the pieces of its loss."""

    problem: Problem
    design: Design
    worst: WorstLoss

    @property
    def y(self) -> Array:
        """The labels."""
        return self.problem.y

    @property
    def weights(self) -> Array:
        """The weights."""
        return self.problem.weights

    @property
    def rate(self) -> float:
        """The price of one unit of the last scalar: delta Lip of t, or delta of lam."""
        return self.problem.ball.delta * self.worst.rate

    @property
    def cost(self) -> Cost:
        """The norm of the coordinates."""
        cost = self.problem.ball.cost
        return Norm(2) if cost.euclidean else cost

    def norm(self, theta: Array) -> float:
        """Return the dual norm of coordinates."""
        return float(self.cost.dual_norm(theta))

    def risk(
        self, place: Place, w: float | None = None, guess: float = 0.0, rtol: float = PRECISION
    ) -> Dual:
        """Return the worst-case risk of a place whose coefficients have dual norm w."""
        of, w = self.problem, self.norm(place.theta) if w is None else w
        return priced_risk(place.z, of.y, of.weights, of.loss, w, of.ball, guess, rtol)

    def at(self, z: Array, s: Array, cut: Array | None = None) -> Pieces:
        """Return the pieces of both labels; no ``cut``: it is where a score becomes 0."""
        cut = -z / s[0] if cut is None else cut
        price = self.problem.ball.label_cost * self.worst.rate
        own, changed = (self.worst.under(z, label, s, cut) for label in (self.y, -self.y))
        values, slopes, bends = zip(*own, *changed, strict=True)
        value, slope = np.stack(values), np.stack(slopes, axis=1)
        value[len(own) :] -= price * s[-1]
        slope[-1, len(own) :] -= price
        return Pieces(value, slope, np.stack(bends, axis=2), cut)

    def gradient(self, mean: Array) -> Array:
        """Return the gradient in (theta, b, s) from mean slopes (p, n) of the rows in (z, s)."""
        d = self.design.d
        mean = self.weights * mean
        g = np.zeros(d + 1 + self.worst.scalars)
        g[:d] = self.design.adjoint(mean[0])
        g[d:] = mean.sum(axis=1)
        g[-1] += self.rate
        if not self.problem.fit_intercept:
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
        if not self.problem.fit_intercept:
            H[d, :] = H[:, d] = 0.0
            H[d, d] = 1.0
        return H

    def bound(self, q: Array, a: Array) -> tuple[float, Array]:
        """Return the bound of shares q and slopes a (J, n) of pieces, and the rows' mean slopes."""
        ball, J = self.problem.ball, len(q)
        mass = self.weights * np.maximum(q, 0.0)
        if self.problem.fit_intercept:
            # slopes with sum m a = 0, those of the heavier sign made smaller
            a = a * balance(mass * a, axis=(0, 1))
        pull = np.sum(mass * a, axis=0)
        changed = float(mass[J // 2 :].sum())
        size = float(self.cost.norm(self.design.adjoint(pull)))
        if self.worst.scalars == 1:
            need = size / self.worst.loss.lipschitz
        else:
            square = float(np.sum(mass * a**2))
            need = size**2 / square if square > 0 else 0.0
        excess = max(0.0, need - (ball.delta - ball.label_cost * changed))
        label = np.repeat([1.0, -1.0], J // 2)[:, None] * self.y
        conjugate = np.where(mass > 0, self.worst.loss.conjugate(a, label), 0.0)
        value = -float(np.sum(mass * conjugate)) / (1 + excess / ball.delta)
        mean = pull / np.where(self.weights > 0, self.weights, 1.0)
        return (value if np.isfinite(value) and q.min() >= 0 else 0.0), mean


def along(derivatives: Array, move: Sequence[Any]) -> Array:
    """Return the change (J, n) along a move of (z, s), from derivatives (p, J, n)."""
    return np.asarray(sum(slope * dv for slope, dv in zip(derivatives, move, strict=True)))


@dataclass(frozen=True, eq=False)
class Iterate:
    """A place with its pieces, heights T (n,), shares q (J, n) and the slacks of the norm."""

    place: Place
    pieces: Pieces
    T: Array
    q: Array
    norm: NormPoint

    @property
    def sigma(self) -> Array:
        """The slacks of the pieces."""
        return np.asarray(self.T - self.pieces.value)

    def total(self, rows: PricedRows) -> float:
        """Return the sum of the products."""
        of_rows = rows.weights @ (self.q * self.sigma).sum(axis=0)
        return float(of_rows) + float(self.norm.total[0])

    @property
    def inside(self) -> bool:
        """Whether slacks and shares are positive numbers, and theta is not 0."""
        value = self.pieces.value
        good = np.isfinite(value) & (value < self.T) & (self.q > 0)
        return bool(good.all() and self.place.theta.any())


class Goal(NamedTuple):
    """The unit of the risk, the gap asked for and the steps at most."""

    unit: float
    target: float
    max_iter: int


class Step(NamedTuple):
    """The moves of (theta, b, s), scores, heights, slacks (J, n), shares, and of the norm.

    ``descent`` is the slope of the barrier problem along it, with the sign of a decrease.
    """

    move: Array
    descent: float
    dz: Array
    raised: Array
    ds: Array
    dq: Array
    norm: NormStep


def minimise(
    rows: PricedRows,
    norm: NormRows,
    start: Place,
    above: float,
    goal: Goal,
) -> Minimum:
    """Return the best place found with its gap.

    ``start`` has a risk of at most ``above`` over the least one.
    """
    unit, target, max_iter = goal
    mu = min(max(above, target), FIRST * unit)
    now, solved, n_iter = _centred(rows, norm, _first(rows, norm, start, mu), mu)
    lower, slopes, best = 0.0, np.zeros_like(start.z), None
    marks, marked = np.full(2, np.inf), n_iter
    while True:
        n_iter += 1
        equations = _Equations(rows, norm, now)
        step = corrected_step(equations, LAST * target)
        risk = rows.rate * float(now.place.s[-1])
        risk += float(rows.weights @ now.pieces.value.max(axis=0))
        if best is None or risk < best.risk:
            best = Minimum(now.place, risk, rows.worst.rate * now.place.s[-1], np.inf, slopes, 0)
        for move in (step, None):
            value, mean = equations.bound(move)
            if value > lower:
                lower, slopes = value, mean
        gap = duality_gap(best.risk, lower)
        progress = np.array([gap, equations.total])
        if (progress < PROGRESS * marks).any():
            marks, marked = np.minimum(marks, progress), n_iter
        if gap <= target or n_iter >= min(max_iter, marked + CENTRING):
            break
        after, length = _after(equations, step)
        if after is None:
            break
        # a shorter step is jammed: the barrier problem is solved instead
        if length >= FALL:
            now, solved = after, True
        else:
            mu = (FALL if solved else 1.0) * equations.mean
            now, solved, taken = _centred(rows, norm, now, mu)
            n_iter += taken
    return replace(best, gap=gap, slopes=slopes, n_iter=n_iter)


def _first(rows: PricedRows, norm: NormRows, start: Place, mu: float) -> Iterate:
    """Return the iterate at a place whose products are about mu."""
    room = _room(rows, start, mu)
    at = norm.begin(start.theta[:, None], np.array([room]), np.array([mu]))
    s = start.s.copy()
    s[0] = at.t[0]
    if not rows.worst.inside(s):
        s[-1] = 2 * s[0] ** 2 / rows.worst.growth
    return _on_path(rows, replace(start, s=s), rows.at(start.z, s), at, norm, mu)


def _on_path(
    rows: PricedRows, place: Place, pieces: Pieces, at: NormPoint, norm: NormRows, mu: float
) -> Iterate:
    """Return the iterate at a place whose products are all mu: heights with sum mu/sigma = 1."""
    top = pieces.value.max(axis=0)
    behind = top - pieces.value
    h = np.full_like(top, mu)
    for _ in range(TRIES):
        # sum mu/(h + behind) is convex and falls: Newton's steps stay below the root
        q = mu / (h + behind)
        h += (q.sum(axis=0) - 1) / (q / (h + behind)).sum(axis=0)
    q = mu / (h + behind)
    return Iterate(
        place, pieces, top + h, q / q.sum(axis=0), replace(at, price=mu * norm.share / at.slack)
    )


def _barrier(rows: PricedRows, norm: NormRows, now: Iterate, mu: float) -> float:
    """Return the objective with the barriers of all slacks at weight mu."""
    heights = now.T - mu * np.log(now.sigma).sum(axis=0)
    outside = mu * float((norm.share * np.log(now.norm.slack)).sum())
    return rows.rate * float(now.place.s[-1]) + float(rows.weights @ heights) - outside


def _centred(
    rows: PricedRows, norm: NormRows, now: Iterate, mu: float
) -> tuple[Iterate, bool, int]:
    """Return the least of the barrier problem at mu, whether it was reached, and the steps."""
    now = _on_path(rows, now.place, now.pieces, now.norm, norm, mu)
    value = _barrier(rows, norm, now, mu)
    for n_iter in range(CENTRING):
        equations = _Equations(rows, norm, now)
        step = equations.step(mu)
        if step.descent <= CENTRED * mu:
            return now, True, n_iter
        length = min(1.0, SHORT_OF * equations.longest(step, prices=False))
        # shorter steps lower the barrier by rounding only
        while length > np.sqrt(PRECISION):
            after = _along(equations, step, length, now.pieces.cut)
            if after is not None:
                after = _on_path(rows, after.place, after.pieces, after.norm, norm, mu)
                new = _barrier(rows, norm, after, mu)
                if new <= value - ARMIJO * length * step.descent:
                    break
            length /= 2
        else:
            break
        # the displacements are parted anew
        place = after.place
        now = _on_path(rows, place, rows.at(place.z, place.s), after.norm, norm, mu)
        value = _barrier(rows, norm, now, mu)
    return now, False, n_iter


def _room(rows: PricedRows, start: Place, mu: float) -> float:
    """Return how far above the norm t is where mu is its product with the price of t."""
    share = SHARE_OF_NORM * rows.norm(start.theta)
    if rows.worst.scalars == 1:
        return max(share, mu / rows.rate)
    pieces = rows.at(start.z, start.s)
    top = pieces.value.argmax(axis=0)[None]
    price = float(rows.weights @ np.take_along_axis(pieces.slope[1], top, axis=0)[0])
    return min(mu / price, share) if price > 0 else share


def _after(equations: _Equations, step: Step) -> tuple[Iterate | None, float]:
    """Return the iterate after a step and its length.

    The step is shortened where curvature makes the products much larger. At rounding, or where a
    piece is infinite, there is no iterate.
    """
    length = min(1.0, SHORT_OF * equations.longest(step))
    after = None
    while length > SHORTEST:
        after = _along(equations, step, length)
        if after is not None and after.total(equations.rows) <= MOST_GROWTH * equations.total:
            break
        length /= 2
    return (after if after is not None and after.inside else None), length


def _along(
    equations: _Equations, step: Step, length: float, cut: Array | None = None
) -> Iterate | None:
    """Return the iterate after a part of a step, None outside of the domain of the pieces.

    Heights rise by what curvature adds to the pieces in the mean of their shares, and more where
    it took most of a slack.
    """
    rows, now = equations.rows, equations.now
    place, d = now.place, len(now.place.theta)
    theta = place.theta + length * step.move[:d]
    s = place.s + length * step.move[d + 1 :]
    at = equations.norm.after(
        theta[:, None], now.norm, step.norm.shortened(length), np.array([s[0]])
    )
    s[0] = at.t[0]
    if len(s) == 2:
        # gains depend on t^2/lam, which moves in a straight line unless most of it would go
        (t, lam), (dt, dlam) = place.s, step.move[d + 1 :]
        left = 1 + length * (2 * dt / t - dlam / lam)
        s[1] = lam * (s[0] / t) ** 2 / left if left > LEFT else s[1]
    if not rows.worst.inside(s):
        return None
    z = place.z + length * step.dz
    pieces = rows.at(z, s, cut)
    sigma = now.sigma + length * step.ds
    q = now.q + length * step.dq
    T = now.T + length * step.raised
    T = T + (q * (pieces.value + sigma - T)).sum(axis=0) / q.sum(axis=0)
    T = np.maximum(T, (pieces.value + LEFT * sigma).max(axis=0))
    b = place.b + length * float(step.move[d])
    return Iterate(Place(theta, b, s, z), pieces, T, q, at)


class _Equations:
    """Newton's equations of an iterate, in (theta, b, s)."""

    def __init__(self, rows: PricedRows, norm: NormRows, now: Iterate) -> None:
        self.rows, self.norm, self.now = rows, norm, now
        self.sigma = now.sigma
        self.W = now.q / self.sigma
        self.weight = self.W.sum(axis=0)
        self.share = self.W / self.weight
        theta = now.place.theta
        self.line = norm.linearised(theta[:, None], now.norm)
        self.total = now.total(rows)
        self.count = len(self.sigma) + float(norm.share.sum())
        self.mean = self.total / self.count
        #: (theta, t) among (theta, b, s)
        self.head = np.append(np.arange(len(theta)), len(theta) + 1)
        # sum q f'' + W (f' - mean)(f' - mean)' of every row
        pieces = now.pieces
        off = pieces.slope - (self.share * pieces.slope).sum(axis=1)[:, None]
        bend = np.einsum("kjn,ljn->kln", self.W * off, off)
        bend += np.einsum("jn,kljn->kln", now.q, pieces.bend)
        H = rows.hessian(bend)
        H[np.ix_(self.head, self.head)] += self.line.matrix[:, :, 0]
        self.factor = factored(H)

    def mean_after(self, step: Step, length: float) -> float:
        """Return the mean product after a part of a step."""
        now = self.now
        sigma = self.sigma + length * step.ds
        q = now.q + length * step.dq
        slack = now.norm.slack + length * step.norm.slack
        price = now.norm.price + length * step.norm.price
        left = float(self.rows.weights @ (sigma * q).sum(axis=0)) + float((slack * price).sum())
        return left / self.count

    def step(self, mu: float, last: Step | None = None, length: float = 1.0) -> Step:
        """Return the step to products mu, times their share for the norm, less those of a last."""
        rows, now, d = self.rows, self.now, len(self.now.place.theta)
        products = np.zeros_like(now.q)
        aim = mu * self.norm.share + np.zeros_like(now.norm.slack)
        if last is not None:
            products = last.ds * last.dq
            aim = aim - last.norm.slack * last.norm.price
        slope = now.pieces.slope
        aimed = (mu - products) / self.sigma
        spare = (aimed.sum(axis=0) - 1) / self.weight
        g = rows.gradient(((aimed - self.W * spare) * slope).sum(axis=1))
        g[self.head] += self.line.force(aim)[:, 0]
        move = -np.asarray(cho_solve(self.factor, g, check_finite=False))
        dz = rows.design.scores(move[:d]) + move[d]
        rise = along(slope, [dz, *move[d + 1 :]])
        raised = (self.share * rise).sum(axis=0) + spare
        ds = raised - rise
        dq = aimed - now.q - self.W * ds
        of_norm = self.line.step(move[self.head, None], aim)
        return Step(move, -float(g @ move), dz, raised, ds, dq, of_norm)

    def longest(self, step: Step, prices: bool = True) -> float:
        """Return the longest part of a step, at most all of it, that stays inside.

        Without ``prices`` heights and prices are free.
        """
        now, norm = self.now, self.now.norm
        pairs = [(norm.slack, step.norm.slack), (now.place.s[-1:], step.move[-1:])]
        if prices:
            pairs += [(self.sigma, step.ds), (now.q, step.dq), (norm.price, step.norm.price)]
        return min(1.0, longest(*pairs))

    def bound(self, step: Step | None) -> tuple[float, Array]:
        """Return the bound of shares and slopes, continued along a step, and mean slopes."""
        now, pieces = self.now, self.now.pieces
        q, a = now.q, pieces.slope[0]
        if step is not None:
            q = q + step.dq
            a = a + along(pieces.bend[0], [step.dz, *step.move[len(now.place.theta) + 1 :]])
        return self.rows.bound(q / q.sum(axis=0), a)


class PricedLabels(Method):
    """Losses of one score whose worst case is a maximum of smooth pieces."""

    geometries = frozenset({"euclidean", "norm"})
    changes_labels = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse curved losses at order 2 without a Euclidean cost, and other losses."""
        loss, ball = problem.loss, problem.ball
        if worst_loss(loss, ball.order) is None:
            return f"a label_cost at order={ball.order} has no method for {type(loss).__name__}"
        if ball.order == 2 and loss.pieces is None and not ball.cost.euclidean:
            return f"order=2 with {type(loss).__name__} needs a Euclidean or Mahalanobis cost"
        return None

    def _solve_one(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the solution from the one with fixed labels, which ``start`` is."""
        assert start is not None
        return _unchanged(problem, start, tol) or _solved(problem, tol, max_iter, start)


def _unchanged(problem: Problem, fixed: Solution, tol: float) -> Solution | None:
    """Return the solution with fixed labels where it is one with a label price, else None.

    The price only lets the adversary do more, so that they are the same where it is not used.
    """
    coef, ball, loss = fixed.coef, problem.ball, problem.loss
    y, weights, lam = problem.y, problem.weights, fixed.multiplier
    z = model_scores(problem.X, coef, fixed.intercept)
    w = float(ball.cost.dual_norm(coef)) if coef.any() else 0.0
    if ball.order == 2 and w > 0 and lam > least_finite(loss, w):
        # at the solution's own multiplier, the best one where no label is changed
        risk = float(priced_tangent(z, y, weights, loss, w, ball, lam).value)
    else:
        risk = priced_risk(z, y, weights, loss, w, ball).risk
    gap = fixed.gap + max(risk - fixed.objective, 0.0)
    if gap > max(fixed.gap, tol * problem.constant[1]):
        return None
    return replace(fixed, objective=max(risk, fixed.objective), gap=gap)


def _solved(problem: Problem, tol: float, max_iter: int, start: Solution) -> Solution:
    """Return the minimiser from the solution with fixed labels."""
    unit = problem.constant[1]
    target = tol * unit
    at, worst = Coordinates(problem), worst_loss(problem.loss, problem.ball.order)
    assert worst is not None
    rows = PricedRows(problem, at.design, worst)
    theta, b = at.theta(start.coef), at.centred(start.intercept, start.coef)
    first, risk = _start(rows, theta, b)
    above = risk - (start.objective - start.gap)
    norm = norm_rows(problem.ball.cost, rows.design.d)
    goal = Goal(unit, target, max_iter)
    if norm is None:
        best = _by_cuts(rows, first, above, goal)
    else:
        best = minimise(rows, norm, first, above, goal)
    zero = _constant(rows, best.risk - best.gap)
    if zero is not None and zero.risk <= best.risk:
        best = replace(zero, slopes=best.slopes, n_iter=best.n_iter)
    coef = at.coef(best.place.theta)
    intercept = at.intercept(best.place.b, coef)
    # the risk is that of the rows as given
    place = replace(best.place, z=model_scores(problem.X, coef, intercept))
    w = float(problem.ball.cost.dual_norm(coef)) if coef.any() else 0.0
    dual = rows.risk(place, w, best.multiplier)
    gap = max(best.gap - (best.risk - dual.risk), 0.0)
    return Solution(
        coef=np.ascontiguousarray(coef),
        intercept=intercept,
        multiplier=dual.multiplier,
        objective=dual.risk,
        gap=gap,
        n_iter=best.n_iter,
        converged=bool(gap <= target),
        message=verdict(gap, target, best.n_iter),
        dual=best.slopes,
    )


def _start(rows: PricedRows, theta: Array, b: float) -> tuple[Place, float]:
    """Return a place along coefficients, short ones where these are 0, and its risk.

    A price makes coefficients smaller: they are halved while the risk falls.
    """
    if not theta.any():
        a = rows.weights * rows.worst.loss.derivative(np.full(len(rows.y), b), rows.y)
        pull = rows.design.adjoint(a)
        theta = -LEAST_NORM / max(rows.norm(pull), np.finfo(float).tiny) * pull
    w = rows.norm(theta)
    place = Place(theta, b, np.array([w]), rows.design.scores(theta) + b)
    dual = rows.risk(place, w, rtol=FALL)
    while w > LEAST_NORM:
        half = Place(*(part / 2 for part in vars(place).values()))
        at_half = rows.risk(half, w / 2, rtol=FALL)
        if at_half.risk >= dual.risk:
            break
        place, dual, w = half, at_half, w / 2
    if rows.worst.scalars == 2:
        growth = rows.worst.growth
        least = 2 * w**2 / growth if growth > 0 else 0.0
        place = replace(place, s=np.array([w, max(dual.multiplier, least)]))
    return place, dual.risk


def _by_cuts(rows: PricedRows, start: Place, above: float, goal: Goal) -> Minimum:
    """Return the minimum under a norm known only by ``norm``, ``dual_norm`` and ``direction``.

    The dual norm is the largest of its cuts <v, theta>, ||v|| <= 1, and v = direction(theta) is the
    one that is active at theta. A problem with some of them has a smaller risk: its bound is one
    of the least risk, and its minimiser shows the next cut.
    """
    d, cost = rows.design.d, rows.cost
    normals = np.asarray(cost.direction(np.vstack([np.eye(d), -np.eye(d)])))
    best, lower, n_iter = None, 0.0, 0
    while True:
        reached = above if best is None else best.gap
        rough = goal._replace(target=max(FALL * reached, goal.target / 4))
        part = minimise(rows, FaceRows(normals), start, above, rough)
        n_iter += part.n_iter
        lower = max(lower, part.risk - part.gap)
        dual = rows.risk(part.place)
        if best is None or dual.risk < best.risk:
            best = replace(part, risk=dual.risk, multiplier=dual.multiplier)
        best = replace(best, gap=duality_gap(best.risk, lower), n_iter=n_iter)
        if best.gap <= goal.target or n_iter >= goal.max_iter:
            return best
        normals = np.vstack([normals, cost.direction(part.place.theta)[None]])


def _constant(rows: PricedRows, lower: float) -> Minimum | None:
    """Return theta = 0 with its gap over a lower bound, None where no constant is finite.

    The adversary may change labels until the class +1 has any mass p' at most delta/kappa away from
    its own; the best constant is that of the most even p'.
    """
    loss, ball = rows.worst.loss, rows.problem.ball
    reach = ball.delta / ball.label_cost
    p = float(rows.weights @ (rows.y > 0))
    # by symmetry the risk of the best constant is largest where half of the mass is +1
    even = float(np.clip(0.5, p - reach, p + reach))
    b = 0.0
    if rows.problem.fit_intercept and even != 0.5:
        if not 0 < even < 1:
            return None
        b = float(loss.constant(np.array([-1.0, 1.0]), np.array([1 - even, even])))
    n, d = len(rows.y), rows.design.d
    place = Place(np.zeros(d), b, np.zeros(rows.worst.scalars), np.full(n, b))
    dual = rows.risk(place, 0.0)
    gap = duality_gap(dual.risk, lower)
    return Minimum(place, dual.risk, dual.multiplier, gap, np.zeros(n), 1)
