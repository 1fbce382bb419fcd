r"""Losses with pieces: interior points of many problems at a time.

Such a loss is :math:`\max_{lo \le \alpha \le hi} \alpha r - \kappa\alpha^2/2` of a residual
:math:`r = c - o (z'\theta + b)`. At order 1 (``Sum``) and, where one end is 0 and the other
infinite, at order 2 (``Root``, sigma a variable in place of kappa) the problems are

.. math:: \min_{\theta, b}\ \max_{lo \le \alpha \le hi}\ \sum_i \pi_i (\alpha_i r_i
          - \kappa\alpha_i^2/2) + \rho\|\theta\|_2,\qquad
          \min_{\theta, b, \sigma}\ \max_{\alpha}\ \sum_i \pi_i (\alpha_i r_i
          - \sigma\alpha_i^2/2) + \sigma/2 + \rho\|\theta\|_2.

The second is :math:`\sqrt{E\,r_+^2} + \rho\|\theta\|`, the root of 2 kappa times the risk.
Multipliers m_e >= 0 of the rooms at the finite ends, |alpha - e|, a number t > ||theta|| in place
of the norm, and the slope g of the norm, ||g|| < 1, leave

.. math:: r - \sigma\alpha + \textstyle\sum_e \pm m_e = 0,\quad m_e |\alpha - e| = \mu,\quad
          t - \theta'g = 2\mu/\rho,\quad \theta = tg,\quad
          \textstyle\sum \pi\alpha o z = \rho g,\ \sum \pi\alpha o = 0

and sigma (1 - E alpha^2) = 2 mu where sigma is a variable, for mu to 0. A step eliminates the rows:
its matrix is that of Newton's method for a smooth loss of curvature 1/E, so that all problems and
deltas of a path with folds are one batch. The slopes alpha stay between the ends; balanced and
scaled they certify the gap. ``conic`` solves other norms and orders, one problem at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...design import WRITTEN_UP_TO
from ...duality import ROUNDING, balance, solve_each
from ...losses import PiecewiseQuadratic
from ...problem import Problem
from ..predictor_corrector import SHORT_OF, corrected_step
from .newton import SmoothMethod
from .order_one import (
    TINY,
    Batch,
    Minima,
    NewtonSystem,
    Place,
    WeightedRows,
    Zero,
    dots,
    norms,
    unless,
)

Array = NDArray[Any]

#: Steps at most.
STEPS = 40


@dataclass(frozen=True, eq=False)
class Interior(Batch):
    """Points of a batch: theta and g (d, B), b, t and sigma (B,), alpha (n, B).

    ``multipliers`` (k, n, B) are those of the rooms at the k finite ends.
    """

    theta: Array
    b: Array
    t: Array
    g: Array
    sigma: Array
    alpha: Array
    multipliers: Array

    def moved(self, step: Interior, share: Array) -> Interior:
        """Return the points after a share (B,) of the steps, which are made of the same parts."""
        moves = zip(vars(self).values(), vars(step).values(), strict=True)
        return Interior(*(v + share * dv for v, dv in moves))


@dataclass(frozen=True, eq=False)
class Saddle:
    """The saddle functions of B problems over the same rows."""

    data: WeightedRows
    rho: Array
    loss: PiecewiseQuadratic

    #: Whether sigma is a variable, and ||alpha|| <= 1.
    free_sigma = False

    @property
    def side(self) -> Array:
        """-dr/dz (n, 1)."""
        side: Array = self.loss.orientation(self.data.y)[:, None]
        return side

    @property
    def ends(self) -> tuple[Array, Array]:
        """The finite ends and how the rooms there grow with alpha, (k, 1, 1)."""
        ends, signs = np.array(self.loss.slopes), np.array([1.0, -1.0])
        finite = np.isfinite(ends)
        return ends[finite][:, None, None], signs[finite][:, None, None]

    def columns(self, index: Array) -> Saddle:
        """Return some of the problems."""
        return type(self)(self.data.columns(index), self.rho[index], self.loss)

    def room(self, alpha: Array) -> Array:
        """Return the distances of alpha to the ends, (k, n, B)."""
        ends, signs = self.ends
        return np.maximum(signs * (alpha - ends), TINY)

    def residual(self, theta: Array, b: Array) -> Array:
        """Return r (n, B)."""
        z = self.data.rows.scores(theta) + b
        return self.loss.residual(z, self.data.y[:, None])

    def start(self, zero: Zero) -> Interior:
        """Return points at theta = 0, in the middle."""
        flat = np.zeros_like(zero.g)
        sigma, alpha, multipliers = self.middle(self.residual(flat, zero.b), zero.risk)
        spread = self.data.mean((multipliers * self.room(alpha)).sum(axis=0))
        t = 2 / len(multipliers) * spread / self.rho
        return Interior(flat, zero.b, t, flat, sigma, alpha, multipliers)

    def middle(self, r: Array, risk: Array) -> tuple[Array, Array, Array]:
        """Return sigma, alpha and multipliers inside, for residuals of a mean loss."""
        raise NotImplementedError

    def mu(self, x: Interior) -> Array:
        """Return the mean complementarity (B,)."""
        rows = self.data.mean((x.multipliers * self.room(x.alpha)).sum(axis=0))
        cone = self.rho * (x.t - dots(x.theta, x.g))
        if not self.free_sigma:
            return (rows + cone) / (len(x.multipliers) + 2)
        return (rows + cone + x.sigma * self.inside(x)) / (len(x.multipliers) + 4)

    def inside(self, x: Interior) -> Array:
        """Return 1 - E alpha^2 (B,)."""
        return 1 - self.data.mean(x.alpha**2)

    def minima(self, x: Interior, zero: Zero, n_iter: int) -> Minima:
        """Return the models, or constant ones that are no worse, with their gaps."""
        data = self.data
        mean_loss = data.mean(self.loss.value(data.rows.scores(x.theta) + x.b, data.y[:, None]))
        w = norms(x.theta)
        moved = self.risk(mean_loss, w) < zero.risk * (1 - ROUNDING)
        theta, b = np.where(moved, x.theta, 0.0), np.where(moved, x.b, zero.b)
        mean_loss, w = np.where(moved, mean_loss, zero.risk), np.where(moved, w, 0.0)
        a = -self.side * x.alpha
        if data.fit_intercept:
            a = a * balance(data.weights * a, axis=(0,))
        objective = self.risk(mean_loss, w)
        a, lower = self.bound(a, norms(data.rows.adjoint(data.weights * a)), objective)
        gap = np.maximum(objective - np.maximum(lower, 0.0), 0.0)
        lam, steps = self.multiplier(mean_loss, w), np.full(len(w), n_iter)
        return Minima(theta, b, lam, objective, mean_loss, gap, steps, a)

    def risk(self, mean_loss: Array, w: Array) -> Array:
        """Return the worst-case risk (B,)."""
        raise NotImplementedError

    def multiplier(self, mean_loss: Array, w: Array) -> Array:
        """Return the best multiplier (B,) of delta."""
        raise NotImplementedError

    def bound(self, a: Array, size: Array, risk: Array) -> tuple[Array, Array]:
        """Return feasible slopes and the risk that they prove, from balanced ones a (n, B).

        ``size`` are the norms of Z'(pi a).
        """
        raise NotImplementedError


class Sum(Saddle):
    """Lipschitz losses at order 1: the mean loss plus rho = delta Lip times the norm."""

    def middle(self, r: Array, risk: Array) -> tuple[Array, Array, Array]:
        """Return slopes in the middle of their range."""
        sigma, alpha = np.full(r.shape[1], self.loss.kappa), np.full(r.shape, self.ends[0].mean())
        pull = r - sigma * alpha
        return sigma, alpha, np.maximum(-self.ends[1] * pull, 0.0) + risk

    def risk(self, mean_loss: Array, w: Array) -> Array:
        """Return E l + rho w."""
        return mean_loss + self.rho * w

    def multiplier(self, mean_loss: Array, w: Array) -> Array:
        """Return Lip w."""
        return self.loss.lipschitz * w

    def bound(self, a: Array, size: Array, risk: Array) -> tuple[Array, Array]:
        """Return -E l*(a) with |Z'(pi a)| <= rho."""
        a = a * (self.rho / np.maximum(size, self.rho))
        return a, -self.data.mean(self.loss.conjugate(a, self.data.y[:, None]))


class Root(Saddle):
    """One-sided squares at order 2: (sqrt(E r_+^2) + rho w)^2/(2 kappa), rho = sqrt(delta)."""

    free_sigma = True

    def middle(self, r: Array, risk: Array) -> tuple[Array, Array, Array]:
        """Return slopes of mean square 1/2, those of the residuals plus their root mean square."""
        sigma, sign = np.sqrt(2 * self.loss.kappa * risk), self.ends[1]
        alpha = sign[0] * sigma + np.where(sign[0] * r > 0, r, 0.0)
        sigma = np.sqrt(2 * self.data.mean(alpha**2))
        return sigma, alpha / sigma, sign * (alpha - r)

    def risk(self, mean_loss: Array, w: Array) -> Array:
        """Return (sqrt(E r_+^2) + rho w)^2/(2 kappa)."""
        twice = 2 * self.loss.kappa
        return (np.sqrt(twice * mean_loss) + self.rho * w) ** 2 / twice

    def multiplier(self, mean_loss: Array, w: Array) -> Array:
        """Return the derivative of the risk in delta = rho^2."""
        twice = 2 * self.loss.kappa
        return (np.sqrt(twice * mean_loss) + self.rho * w) * w / (twice * self.rho)

    def bound(self, a: Array, size: Array, risk: Array) -> tuple[Array, Array]:
        """Return (E alpha c)^2/(2 kappa) with E alpha^2 <= 1 and |Z'(pi a)| <= rho.

        The slopes of the loss at the worst case are alpha sqrt(2 risk/kappa).
        """
        kappa = self.loss.kappa
        alpha = -self.side * a
        gain = self.data.mean(alpha * self.loss.residual(0.0 * a, self.data.y[:, None]))
        scale = np.maximum(np.sqrt(self.data.mean(alpha**2)), size / self.rho)
        root = np.maximum(gain, 0.0) / np.maximum(scale, TINY)
        return a * (np.sqrt(2 * risk / kappa) / np.maximum(scale, TINY)), root**2 / (2 * kappa)


@dataclass(frozen=True, eq=False)
class System:
    """The linear system of the steps from a point.

    Rows have curvatures D = pi/E. ``border`` (B, d, k) and ``corner`` (B, k, k) are the columns of
    b and sigma where these are variables; H = Z'DZ - border corner^-1 border' + rho/t I.
    """

    saddle: Saddle
    x: Interior
    r: Array
    room: Array
    E: Array
    D: Array
    H: Array
    border: Array
    corner: Array

    @classmethod
    def at(cls, saddle: Saddle, x: Interior) -> System:
        """Return the system at a point."""
        data, room = saddle.data, saddle.room(x.alpha)
        E = x.sigma + (x.multipliers / room).sum(axis=0)
        D = data.weights / E
        H, h = data.rows.moments(D)
        # residuals change by -o dz - alpha dsigma
        along, borders = [], []
        if data.fit_intercept:
            along, borders = [np.ones_like(D)], [h]
        if saddle.free_sigma:
            along.append(saddle.side * x.alpha)
            borders.append(data.rows.adjoint(D * along[-1]))
        B, k = len(x.b), len(along)
        corner = np.empty((B, k, k))
        for i in range(k):
            for j in range(k):
                corner[:, i, j] = (D * along[i] * along[j]).sum(axis=0)
        if saddle.free_sigma:
            corner[:, -1, -1] += saddle.inside(x) / (2 * x.sigma)
        border = np.stack(borders, axis=2).swapaxes(0, 1) if k else np.empty((B, len(h), 0))
        H = H - border @ np.linalg.solve(corner, border.swapaxes(1, 2))
        H += (saddle.rho / x.t)[:, None, None] * np.eye(len(h))
        r = saddle.residual(x.theta, x.b)
        return cls(saddle, x, r, room, E, D, H, border, corner)

    @property
    def mean(self) -> Array:
        """The mean products now."""
        return self.saddle.mu(self.x)

    def mean_after(self, step: Interior, length: Array) -> Array:
        """Return the mean products after shares of steps."""
        return self.saddle.mu(self.x.moved(step, length))

    def step(self, mu: Array, last: Interior | None = None, length: Any = 1.0) -> Interior:
        """Return the steps to products mu, less those of a last step that are not linear."""
        x, saddle, data, side = self.x, self.saddle, self.saddle.data, self.saddle.side
        rho, sign = saddle.rho, saddle.ends[1]
        # of rooms and multipliers; t - theta'g; theta - t g; sigma alpha; sigma (1 - E alpha^2)
        rows, cone, aligned, bent, sphere = mu, 2 * mu / rho, 0.0 * x.g, 0.0 * x.alpha, 2 * mu
        if last is not None:
            rows = rows - last.multipliers * sign * last.alpha
            cone = cone + dots(last.theta, last.g)
            aligned, bent = last.t * last.g, last.sigma * last.alpha
            turned = 2 * last.sigma * data.mean(x.alpha * last.alpha)
            sphere = sphere + x.sigma * data.mean(last.alpha**2) + turned
        ends = (sign * rows / self.room).sum(axis=0)
        pull = self.r - x.sigma * x.alpha + ends - bent
        moved = side * (data.weights * x.alpha + self.D * pull)
        # t dg = dtheta - g dt + e,  c dt = k + v'dtheta
        e = x.theta - x.t * x.g - aligned
        v, c = x.theta / x.t + x.g, 1 + dots(x.theta, x.g) / x.t
        k = cone - x.t + dots(x.theta, x.g) + dots(x.theta, e) / x.t
        rhs = data.rows.adjoint(moved) - rho * x.g - rho / x.t * (e - x.g * (k / c))
        totals = [moved.sum(axis=0)] if data.fit_intercept else []
        if saddle.free_sigma:
            short = saddle.inside(x) - sphere / x.sigma
            totals.append((self.D * x.alpha * pull).sum(axis=0) - short / 2)
        total = np.stack(totals, axis=1)[:, :, None] if totals else np.empty((len(c), 0, 1))
        rhs = rhs - (self.border @ np.linalg.solve(self.corner, total))[:, :, 0].T
        first, second = np.moveaxis(solve_each(self.H, np.stack([rhs.T, x.g.T], axis=2)), 2, 0)
        # (H - rho/(t c) g v') dtheta = rhs
        part = rho / (x.t * c)
        share = part * dots(v, first.T) / (1 - part * dots(v, second.T))
        dtheta = first.T + second.T * share
        rest = total - self.border.swapaxes(1, 2) @ dtheta.T[:, :, None]
        others = iter(np.linalg.solve(self.corner, rest)[:, :, 0].T)
        db = next(others) if data.fit_intercept else np.zeros_like(c)
        dsigma = next(others) if saddle.free_sigma else np.zeros_like(c)
        dt = (k + dots(v, dtheta)) / c
        dg = (dtheta - x.g * dt + e) / x.t
        dr = -side * (data.rows.scores(dtheta) + db) - dsigma * x.alpha
        # rows without weight stay where they are
        on = data.weights > 0
        dalpha = on * (dr + pull) / self.E
        multipliers = (rows - sign * x.multipliers * dalpha) / self.room
        return Interior(dtheta, db, dt, dg, dsigma, dalpha, on * (multipliers - x.multipliers))

    def longest(self, step: Interior) -> Array:
        """Return the shares (B,) of steps to the boundary, at most 1."""
        x = self.x
        rates = np.maximum(
            -self.saddle.ends[1] * step.alpha / self.room, -step.multipliers / x.multipliers
        )
        fastest = np.maximum(rates.max(axis=(0, 1)), 1.0)
        still = np.zeros_like(x.t)
        cones = [
            _to_cone(x.t, x.theta, step.t, step.theta),
            _to_cone(1 + still, x.g, still, step.g),
        ]
        if self.saddle.free_sigma:
            fastest = np.maximum(fastest, -step.sigma / x.sigma)
            root = np.sqrt(self.saddle.data.weights)
            cones.append(_to_cone(1 + still, root * x.alpha, still, root * step.alpha))
        return np.minimum(1 / fastest, np.min(cones, axis=0))


def _to_cone(t: Array, v: Array, dt: Array, dv: Array) -> Array:
    """Return the shares a at which t + a dt = ||v + a dv||, at most 1."""
    # (t + a dt)^2 - |v + a dv|^2 = room + 2 a half + a^2 bend
    room, half = np.maximum(t**2 - dots(v, v), 0.0), t * dt - dots(v, dv)
    bend = dt**2 - dots(dv, dv)
    root = np.sqrt(np.maximum(half**2 - bend * room, 0.0))
    # the least positive root is room/(root - half)
    away = root - half
    meets = (half**2 >= bend * room) & (away > room)
    return np.where(meets, room / np.where(meets, away, 1.0), 1.0)


class Pieces(SmoothMethod):
    """Lipschitz losses with pieces at order 1, one-sided squares at order 2."""

    on_device = False
    reaches = 1e-8

    def lacks(self, problem: Problem) -> str | None:
        """Refuse other losses and orders, and more columns than a matrix of theirs allows."""
        pieces, order = problem.loss.pieces, problem.ball.order
        sums = pieces is not None and order == 1 and bool(np.isfinite(pieces.slopes).all())
        rooted = pieces is not None and order == 2 and pieces.rooted and not pieces.quadratic
        if not sums and not rooted:
            return "batches of interior points are for losses with pieces whose worst case is a sum"
        if min(problem.X.shape) > WRITTEN_UP_TO:
            return f"batches of interior points are for at most {WRITTEN_UP_TO:,} rows or columns"
        return None

    def _together(self, problems: list[Problem]) -> bool:
        n, d = problems[0].X.shape
        return bool(d <= n)

    def minimise(
        self,
        data: WeightedRows,
        deltas: Array,
        zero: Zero,
        target: Array,
        max_iter: int,
        start: Place | None,
        system: NewtonSystem,
    ) -> Minima:
        """Minimise the worst-case risk until the gaps are on target."""
        loss, unit = data.loss, 1.0
        assert isinstance(loss, PiecewiseQuadratic)
        if loss.kappa == 0 and loss.task == "regression" and zero.risk.any():
            # without a kink in units of the targets they are measured by their risk
            unit = float(2.0 ** np.round(np.log2(zero.risk.max())))
            data = replace(data, y=data.y / unit)
            zero = replace(zero, b=zero.b / unit, risk=zero.risk / unit)
        saddle: Saddle
        if np.isfinite(loss.lipschitz):
            saddle = Sum(data, deltas * loss.lipschitz, loss)
        else:
            saddle = Root(data, np.sqrt(deltas), loss)

        def moved(index: Array) -> Minima:
            some, first = saddle.columns(index), zero.columns(index)
            return _minimised(some, first, target[index] / unit, max_iter)

        # no loss is left where the constant has none
        minima = unless(zero, zero.risk > 0, moved)
        sizes = ("theta", "b", "lam", "objective", "mean_loss", "gap")
        return replace(minima, **{name: unit * getattr(minima, name) for name in sizes})


def _minimised(saddle: Saddle, zero: Zero, target: Array, max_iter: int) -> Minima:
    """Return the best points of at most ``STEPS`` steps."""
    x, active = saddle.start(zero), np.arange(len(target))
    best = saddle.minima(x, zero, 1)
    for n_iter in range(1, min(STEPS, max_iter) + 1):
        system = System.at(saddle, x)
        step = corrected_step(system)
        x = x.moved(step, SHORT_OF * system.longest(step))
        new = saddle.minima(x, zero.columns(active), n_iter)
        better = np.flatnonzero(new.gap < best.gap[active])
        best = best.replaced(active[better], new.columns(better))
        going = np.flatnonzero(~(best.gap[active] <= target[active]))
        if not len(going):
            break
        saddle, x, active = saddle.columns(going), x.columns(going), active[going]
    return best
