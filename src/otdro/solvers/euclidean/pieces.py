r"""Losses with pieces at order 1: interior points of many problems at a time, for folds.

.. math:: \min_{\theta, b}\ \max_{lo \le \alpha \le hi}\
          \sum_i \pi_i (\alpha_i r_i - \kappa\alpha_i^2/2) + \rho\|\theta\|_2,\qquad
          r_i = c_i - o_i (z_i'\theta + b),\quad \rho = \delta\,\mathrm{Lip}(\ell).

Multipliers l and m of the rooms alpha - lo and hi - alpha, t > ||theta|| in place of the norm, and
its slope g with ||g|| < 1 leave

.. math:: r - \kappa\alpha + l - m = 0,\quad l(\alpha - lo) = m(hi - \alpha) = \mu,\quad
          t - \theta'g = 2\mu/\rho,\quad \theta = tg,\quad
          \textstyle\sum \pi\alpha o z = \rho g,\ \sum \pi\alpha o = 0

for mu to 0. A step eliminates the rows: its matrix is that of Newton's method for a smooth loss of
curvature 1/E, so all problems and deltas of a path with folds are one batch. The slopes alpha stay
inside their range; balanced and scaled they certify the gap. ``conic`` solves other norms and
orders, one problem at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...duality.chain import balance
from ...duality.ties import solve_each
from ...losses import PiecewiseQuadratic
from ...problem import Problem
from .newton import SmoothMethod
from .order_one import (
    DENSE_UP_TO,
    Batch,
    Minima,
    NewtonSystem,
    Start,
    WeightedRows,
    Zero,
    dots,
    norms,
)

Array = NDArray[Any]

#: The share of the way to the boundary that a step may go.
WAY = 0.99
#: Steps at most.
STEPS = 40
#: How the rooms at both ends grow with alpha.
ENDS = np.array([1.0, -1.0])[:, None, None]


@dataclass(frozen=True, eq=False)
class Interior(Batch):
    """Points of a batch: theta and g (d, B), b and t (B,), alpha (n, B).

    ``multipliers`` (2, n, B) are those of the rooms at both ends.
    """

    theta: Array
    b: Array
    t: Array
    g: Array
    alpha: Array
    multipliers: Array

    def moved(self, step: Step, share: Array) -> Interior:
        """Return the points after a share (B,) of the steps."""
        return Interior(*(v + share * dv for v, dv in zip(vars(self).values(), step, strict=True)))


class Step(NamedTuple):
    """A step from a point, in the same order."""

    theta: Array
    b: Array
    t: Array
    g: Array
    alpha: Array
    multipliers: Array


class Aims(NamedTuple):
    """What a step aims at: products of rooms and multipliers, t - theta'g and theta - t g."""

    rows: Any
    cone: Any
    aligned: Any


@dataclass(frozen=True, eq=False)
class Saddle:
    """The saddle functions of B problems over the same rows."""

    data: WeightedRows
    rho: Array
    loss: PiecewiseQuadratic

    @property
    def side(self) -> Array:
        """-dr/dz (n, 1)."""
        side: Array = self.loss.orientation(self.data.y)[:, None]
        return side

    def columns(self, index: Array) -> Saddle:
        """Return some of the problems."""
        return Saddle(self.data.columns(index), self.rho[index], self.loss)

    def room(self, x: Interior) -> Array:
        """Return alpha - lo and hi - alpha, (2, n, B)."""
        lo, hi = self.loss.slopes
        return np.stack([x.alpha - lo, hi - x.alpha])

    def residual(self, x: Interior) -> Array:
        """Return r (n, B)."""
        z = self.data.rows.scores(x.theta) + x.b
        return self.loss.residual(z, self.data.y[:, None])

    def start(self, zero: Zero) -> Interior:
        """Return points at theta = 0 with slopes in the middle of their range."""
        (lo, hi), (n, B) = self.loss.slopes, self.data.weights.shape
        middle, flat = (lo + hi) / 2, np.zeros_like(zero.g)
        r = self.loss.residual(np.tile(zero.b, (n, 1)), self.data.y[:, None])
        pull = r - self.loss.kappa * middle
        multipliers = np.maximum(np.stack([-pull, pull]), 0.0) + zero.risk
        spread = self.data.mean(multipliers.sum(axis=0)) * (hi - lo) / 2
        alpha = np.full((n, B), middle)
        return Interior(flat, zero.b, spread / self.rho, flat, alpha, multipliers)

    def mu(self, x: Interior) -> Array:
        """Return the mean complementarity (B,)."""
        rows = self.data.mean((x.multipliers * self.room(x)).sum(axis=0))
        return (rows + self.rho * (x.t - dots(x.theta, x.g))) / 4

    def minima(self, x: Interior, zero: Zero, n_iter: int) -> Minima:
        """Return the models, or constant ones that are no worse, with their gaps."""
        data, y = self.data, self.data.y[:, None]
        a = -self.side * x.alpha
        if data.fit_intercept:
            a = a * balance(data.weights * a, axis=(0,))
        size = norms(data.rows.adjoint(data.weights * a))
        a = a * (self.rho / np.maximum(size, self.rho))
        lower = np.maximum(-data.mean(self.loss.conjugate(a, y)), 0.0)
        mean_loss = data.mean(self.loss.value(data.rows.scores(x.theta) + x.b, y))
        w = norms(x.theta)
        moved = mean_loss + self.rho * w < zero.risk
        theta, b = np.where(moved, x.theta, 0.0), np.where(moved, x.b, zero.b)
        mean_loss, w = np.where(moved, mean_loss, zero.risk), np.where(moved, w, 0.0)
        objective = mean_loss + self.rho * w
        return Minima(
            theta=theta,
            b=b,
            lam=self.loss.lipschitz * w,
            objective=objective,
            mean_loss=mean_loss,
            gap=np.maximum(objective - lower, 0.0),
            n_iter=np.full(len(w), n_iter),
            dual=a,
        )

    def improved(self, x: Interior) -> Interior:
        """Return the points after a step of Mehrotra's method."""
        mu, system = self.mu(x), System.at(self, x)
        affine = system.step(Aims(0.0, 0.0 * mu, 0.0))
        ahead = x.moved(affine, system.longest(affine))
        centre = mu * (self.mu(ahead) / mu) ** 3
        # less the products of the steps, which the linear system leaves out
        aims = Aims(
            rows=centre - affine.multipliers * ENDS * affine.alpha,
            cone=2 * centre / self.rho + dots(affine.theta, affine.g),
            aligned=affine.t * affine.g,
        )
        step = system.step(aims)
        return x.moved(step, WAY * system.longest(step))


@dataclass(frozen=True, eq=False)
class System:
    """The linear system of the steps from a point: D = pi/E, H = Z'DZ - hh'/mass + rho/t I."""

    saddle: Saddle
    x: Interior
    r: Array
    room: Array
    E: Array
    D: Array
    H: Array
    h: Array
    mass: Array

    @classmethod
    def at(cls, saddle: Saddle, x: Interior) -> System:
        """Return the system at a point."""
        data, room = saddle.data, saddle.room(x)
        E = saddle.loss.kappa + (x.multipliers / room).sum(axis=0)
        D = data.weights / E
        H, h = data.rows.moments(D)
        mass = D.sum(axis=0)
        H = H + (saddle.rho / x.t)[:, None, None] * np.eye(len(x.theta))
        if data.fit_intercept:
            H = H - np.einsum("ib,jb->bij", h / mass, h)
        return cls(saddle, x, saddle.residual(x), room, E, D, H, h, mass)

    def step(self, aims: Aims) -> Step:
        """Return the steps to the aims."""
        x, data, side, rho = self.x, self.saddle.data, self.saddle.side, self.saddle.rho
        ends = (ENDS * aims.rows / self.room).sum(axis=0)
        pull = self.r - self.saddle.loss.kappa * x.alpha + ends
        moved = side * (data.weights * x.alpha + self.D * pull)
        total = moved.sum(axis=0)
        # t dg = dtheta - g dt + e,  c dt = k + v'dtheta
        e = x.theta - x.t * x.g - aims.aligned
        v, c = x.theta / x.t + x.g, 1 + dots(x.theta, x.g) / x.t
        k = aims.cone - x.t + dots(x.theta, x.g) + dots(x.theta, e) / x.t
        rhs = data.rows.adjoint(moved) - rho * x.g - rho / x.t * (e - x.g * (k / c))
        if data.fit_intercept:
            rhs = rhs - self.h * (total / self.mass)
        first, second = np.moveaxis(solve_each(self.H, np.stack([rhs.T, x.g.T], axis=2)), 2, 0)
        # (H - rho/(t c) g v') dtheta = rhs
        part = rho / (x.t * c)
        dtheta = first.T + second.T * (part * dots(v, first.T) / (1 - part * dots(v, second.T)))
        db = (total - dots(self.h, dtheta)) / self.mass * data.fit_intercept
        dt = (k + dots(v, dtheta)) / c
        dg = (dtheta - x.g * dt + e) / x.t
        dr = -side * (data.rows.scores(dtheta) + db)
        # rows without weight stay where they are
        on = data.weights > 0
        dalpha = on * (dr + pull) / self.E
        multipliers = (aims.rows - ENDS * x.multipliers * dalpha) / self.room
        return Step(dtheta, db, dt, dg, dalpha, on * (multipliers - x.multipliers))

    def longest(self, step: Step) -> Array:
        """Return the shares (B,) of steps to the boundary, at most 1."""
        x = self.x
        rates = np.maximum(-ENDS * step.alpha / self.room, -step.multipliers / x.multipliers)
        fastest = np.maximum(rates.max(axis=(0, 1)), 1.0)
        still = np.zeros_like(x.t)
        cones = (
            _to_cone(x.t, x.theta, step.t, step.theta),
            _to_cone(1 + still, x.g, still, step.g),
        )
        return np.minimum(1 / fastest, np.minimum(*cones))


def _to_cone(t: Array, v: Array, dt: Array, dv: Array) -> Array:
    """Return the shares a at which t + a dt = ||v + a dv||, at most 1."""
    # (t + a dt)^2 - |v + a dv|^2 = room + 2 a half + a^2 bend
    room, half, bend = t**2 - dots(v, v), t * dt - dots(v, dv), dt**2 - dots(dv, dv)
    root = np.sqrt(np.maximum(half**2 - bend * room, 0.0))
    # the least positive root is room/(root - half)
    away = root - half
    meets = (half**2 >= bend * room) & (away > room)
    return np.where(meets, room / np.where(meets, away, 1.0), 1.0)


class Pieces(SmoothMethod):
    """Lipschitz losses with pieces at order 1."""

    on_device = False
    reaches = 1e-8

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses without pieces, and losses without a largest slope."""
        pieces = problem.loss.pieces
        if pieces is None or not np.isfinite(pieces.slopes).all() or problem.ball.order == 2:
            return "interior points of batches are for Lipschitz losses with pieces at order 1"
        if min(problem.X.shape) > DENSE_UP_TO:
            return f"interior points of batches are for at most {DENSE_UP_TO:,} rows or columns"
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
        start: Start | None,
        system: NewtonSystem,
    ) -> Minima:
        """Minimise mean l + delta Lip w until the gaps are on target."""
        loss = data.loss
        assert isinstance(loss, PiecewiseQuadratic)
        saddle = Saddle(data, deltas * loss.lipschitz, loss)
        x, active = saddle.start(zero), np.arange(len(deltas))
        best = saddle.minima(x, zero, 1)
        for n_iter in range(1, min(STEPS, max_iter) + 1):
            x = saddle.improved(x)
            new = saddle.minima(x, zero.columns(active), n_iter)
            better = np.flatnonzero(new.gap < best.gap[active])
            best = best.replaced(active[better], new.columns(better))
            going = np.flatnonzero(~(best.gap[active] <= target[active]))
            if not len(going):
                break
            saddle, x, active = saddle.columns(going), x.columns(going), active[going]
        return best
