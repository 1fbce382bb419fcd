r"""Damped Newton for smooth losses under an order-1 Euclidean cost, many problems at a time.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

Columns of a batch share the rows and differ in weights, rho and (through the design) the cost.
The intercept is minimised out after every step, so that a_i = l'(z_i) sums to zero and, scaled
by kappa = min(1, rho/||Z'(pi a)||), is a point of the dual problem

.. math:: \max\ -\sum_i \pi_i \ell^*(a_i, y_i)\quad\text{s.t.}\quad
          \|Z'(\pi a)\|_2 \le \rho,\ \textstyle\sum_i \pi_i a_i = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from ..design import Design
from ..losses import Loss
from ..problem import Problem, Solution
from .base import Coordinates, constant_risk, verdict

Array = NDArray[Any]

#: Rows above which a tenth of them (at most ``SUBSAMPLE``) gives the starting point.
SUBSAMPLE_FROM, SUBSAMPLE = 5_000, 10_000
#: Rows times columns up to which the deltas of a path are solved as one batch.
BATCH_UP_TO = 20_000
#: Columns above which the Newton system is solved by conjugate gradients, without its matrix.
DENSE_UP_TO = 2_000


@dataclass(eq=False)
class Batch:
    """B problems over one design; ``weights`` (n, B) with columns of sum 1, ``rho`` (B,)."""

    design: Design
    y: Array
    weights: Array
    loss: Loss
    rho: Array
    fit_intercept: bool

    def columns(self, index: Array) -> Batch:
        """Return the problems of some columns."""
        design = self.design
        if design.factor is not None and design.factor.ndim == 3:
            design = Design(design.X, design.factor[index], design.center)
        return Batch(
            design, self.y, self.weights[:, index], self.loss, self.rho[index], self.fit_intercept
        )

    def mean(self, v: Array) -> Array:
        """Return the weighted sum over rows, one a column."""
        return np.einsum("nb,nb->b", self.weights, v)


@dataclass(eq=False)
class Points:
    """Points of a batch, the batch along the last axis; ``z`` is the score without intercept."""

    theta: Array
    b: Array
    z: Array
    value: Array
    slope: Array
    curvature: Array

    def columns(self, index: Array) -> Points:
        """Return the points of some columns."""
        return Points(*(getattr(self, f.name)[..., index] for f in fields(self)))


@dataclass(eq=False)
class Minimum:
    """What ``minimise`` returns, the batch along the last axis; ``slope`` is the dual point a."""

    theta: Array
    b: Array
    slope: Array
    objective: Array
    gap: Array
    n_iter: Array

    @classmethod
    def empty(cls, batch: Batch) -> Minimum:
        """Return arrays for every problem of a batch."""
        n, d, B = batch.design.n, batch.design.d, len(batch.rho)
        return cls(
            np.zeros((d, B)), np.zeros(B), np.zeros((n, B)), np.zeros(B), np.zeros(B), np.ones(B, int)
        )

    def store(self, columns: Array, p: Points, objective: Array, gap: Array, n_iter: int) -> None:
        """Write finished points into their columns."""
        self.theta[:, columns], self.b[columns], self.slope[:, columns] = p.theta, p.b, p.slope
        self.objective[columns], self.gap[columns], self.n_iter[columns] = objective, gap, n_iter


def solve(problem: Problem, tol: float, max_iter: int, start: Solution | None = None) -> Solution:
    """Minimise the robust risk of a smooth loss at order 1 with a Euclidean cost."""
    at = Coordinates(problem)
    target = tol * constant_risk(problem)[1]
    batch = _batch(problem, at, np.array([problem.ball.delta]))
    if start is None:
        first = _subsampled(batch, target, max_iter)
    else:
        b = at.centred(start.intercept, start.coef)
        first = at.theta(start.coef)[:, None], np.array([b])
    found = minimise(batch, np.array([target]), max_iter, first)
    return _solutions(problem, at, found, target)[0]


def solve_many(problem: Problem, deltas: Array, tol: float, max_iter: int) -> list[Solution]:
    """Solve at every delta (descending): small problems as one batch, others each from the last."""
    at = Coordinates(problem)
    target = tol * constant_risk(problem)[1]
    batch = _batch(problem, at, np.asarray(deltas, dtype=float))
    if at.design.n * at.design.d <= BATCH_UP_TO:
        found = minimise(batch, np.full(len(deltas), target), max_iter)
        return _solutions(problem, at, found, target)
    solved: list[Solution] = []
    start = None
    for j in range(len(deltas)):
        found = minimise(batch.columns(np.array([j])), np.array([target]), max_iter, start)
        solved += _solutions(problem, at, found, target)
        start = found.theta, found.b
    return solved


def _batch(problem: Problem, at: Coordinates, deltas: Array) -> Batch:
    weights = np.broadcast_to(problem.weights[:, None], (len(problem.y), len(deltas)))
    rho = deltas * problem.loss.lipschitz
    return Batch(at.design, problem.y, weights, problem.loss, rho, problem.fit_intercept)


def _solutions(
    problem: Problem, at: Coordinates, found: Minimum, target: float
) -> list[Solution]:
    coefs = at.coef(found.theta)
    return [
        Solution(
            coef=np.ascontiguousarray(coefs[:, j]),
            intercept=at.intercept(found.b[j], coefs[:, j]),
            multiplier=problem.loss.lipschitz * float(np.linalg.norm(found.theta[:, j])),
            objective=float(found.objective[j]),
            gap=float(found.gap[j]),
            n_iter=int(found.n_iter[j]),
            converged=bool(found.gap[j] <= target),
            message=verdict(float(found.gap[j]), target),
            dual=found.slope[:, j],
        )
        for j in range(len(found.b))
    ]


def _subsampled(batch: Batch, target: float, max_iter: int) -> tuple[Array, Array] | None:
    """Solve on evenly spaced rows for a starting point within statistical error of the answer."""
    n = batch.design.n
    if n < SUBSAMPLE_FROM:
        return None
    rows = np.linspace(0, n - 1, min(SUBSAMPLE, n // 10)).astype(int)
    y, weights = batch.y[rows], batch.weights[rows]
    if batch.loss.task == "classification" and not all((weights[y == k] > 0).any() for k in (-1, 1)):
        return None
    part = Batch(
        batch.design.rows(rows), y, weights / weights.sum(), batch.loss, batch.rho, batch.fit_intercept
    )
    found = minimise(part, np.array([max(target, 1e-4)]), min(max_iter, 30))
    return found.theta, found.b


def minimise(batch: Batch, target: Array, max_iter: int, start: Any = None) -> Minimum:
    """Minimise each problem of the batch until its gap is at most ``target`` (B,).

    ``start`` is (theta (d, B), b (B,)) or None.
    """
    best, zero = Minimum.empty(batch), zero_model(batch)
    g = batch.design.adjoint(batch.weights * zero.slope)
    steepness = np.linalg.norm(g, axis=0)
    # theta = 0 is optimal iff 0 is in g + rho (unit ball); a itself is then the dual optimum
    best.store(np.arange(len(batch.rho)), zero, batch.mean(zero.value), np.zeros(len(batch.rho)), 1)
    active = np.flatnonzero(steepness > batch.rho)
    if not len(active):
        return best
    batch, target = batch.columns(active), target[active]
    p = _first(batch, zero.columns(active), g[:, active], start and _columns(start, active))
    system = _System(len(batch.rho))
    for n_iter in range(1, max_iter + 1):
        p = settle_intercept(batch, p)
        g, h = _gradients(batch, p)
        objective = batch.mean(p.value) + batch.rho * np.linalg.norm(p.theta, axis=0)
        gap = objective - _scaled_dual(batch, p, g)
        if n_iter < max_iter and (gap > target).any():
            step, db = system.step(batch, p, g, h, gap, target)
            dz = batch.design.scores(step)
            if (batch.rho == 0).any():
                gap = np.where(batch.rho == 0, np.minimum(gap, _newton_gap(batch, p, dz, db)), gap)
            new = _line_search(batch, p, g, step, db, dz, objective)
            moved = np.abs(new.theta - p.theta).max(axis=0) > 1e-15 * np.abs(p.theta).max(axis=0)
            over = (gap <= target) | ~moved
        else:
            new, over = p, np.ones(len(target), dtype=bool)
        if over.any():
            best.store(active[over], p.columns(over), objective[over], gap[over], n_iter)
            if over.all():
                break
            active, target, batch = active[~over], target[~over], batch.columns(~over)
            new = new.columns(~over)
            system.keep(~over)
        p = new
    return best


def zero_model(batch: Batch) -> Points:
    """Return the best model with theta = 0."""
    B = len(batch.rho)
    b = np.zeros(B)
    if batch.fit_intercept:
        b = np.array([batch.loss.constant(batch.y, batch.weights[:, j]) for j in range(B)])
    theta, z = np.zeros((batch.design.d, B)), np.zeros((batch.design.n, B))
    p = Points(theta, b, z, *batch.loss.evaluate(z + b, batch.y[:, None]))
    return settle_intercept(batch, p)


def _columns(start: tuple[Array, Array], index: Array) -> tuple[Array, Array]:
    return start[0][:, index], start[1][index]


def _first(batch: Batch, zero: Points, g: Array, start: tuple[Array, Array] | None) -> Points:
    """Return the start, or where it is zero the minimiser of the quadratic model along -g."""
    steepness = np.linalg.norm(g, axis=0)
    u = -g / steepness
    z = batch.design.scores(u)
    spread = z - batch.mean(z) if batch.fit_intercept else z
    bend = batch.mean(zero.curvature * spread**2)
    # slope -(|g| - rho) and curvature u'Hu along u; the floor caps the move where H vanishes
    floor = 1e-3 * (steepness - batch.rho) * np.sqrt(batch.mean(spread**2))
    length = (steepness - batch.rho) / np.maximum(bend, np.maximum(floor, np.finfo(float).tiny))
    theta, b, z = length * u, zero.b, length * z
    if start is not None and start[0].any():
        warm = start[0].any(axis=0)
        theta = np.where(warm, start[0], theta)
        b = np.where(warm, start[1], b)
        z = np.where(warm, batch.design.scores(start[0]), z)
    return Points(theta, b, z, *batch.loss.evaluate(z + b, batch.y[:, None]))


def settle_intercept(batch: Batch, p: Points) -> Points:
    """Minimise over the intercept alone: Newton on s(b) = sum pi l'(z + b), halved while |s| grows."""
    if not batch.fit_intercept:
        return p
    y = batch.y[:, None]
    s, h = batch.mean(p.slope), batch.mean(p.curvature)
    size = 2e-15 * batch.mean(np.abs(p.slope))
    step = -s / np.maximum(h, np.finfo(float).tiny)
    for _ in range(60):
        if np.all((np.abs(s) <= size) | (np.abs(step) <= 1e-16 * (1 + np.abs(p.b)))):
            break
        value, slope, curvature = batch.loss.evaluate(p.z + (p.b + step), y)
        s_new, h_new = batch.mean(slope), batch.mean(curvature)
        better = np.abs(s_new) < np.abs(s)
        p = Points(
            p.theta,
            np.where(better, p.b + step, p.b),
            p.z,
            np.where(better, value, p.value),
            np.where(better, slope, p.slope),
            np.where(better, curvature, p.curvature),
        )
        s = np.where(better, s_new, s)
        step = np.where(better, -s_new / np.maximum(h_new, np.finfo(float).tiny), step / 2)
    return p


def _gradients(batch: Batch, p: Points) -> tuple[Array, Array]:
    """Return Z'(pi a) and Z'(pi l''), each (d, B), in one pass over the rows."""
    B = len(batch.rho)
    slope, curvature = batch.weights * p.slope, batch.weights * p.curvature
    if not batch.fit_intercept:
        return batch.design.adjoint(slope), np.zeros((batch.design.d, B))
    factor = batch.design.factor
    design = batch.design
    if factor is not None and factor.ndim == 3:
        design = Design(design.X, np.concatenate([factor, factor]), design.center)
    both = design.adjoint(np.concatenate([slope, curvature], axis=1))
    return both[:, :B], both[:, B:]


def _scaled_dual(batch: Batch, p: Points, g: Array) -> Array:
    """Return the dual value at kappa a, never below the trivial bound 0."""
    size = np.linalg.norm(g, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = np.where(size > batch.rho, batch.rho / size, 1.0)
    return np.maximum(0.0, -batch.mean(batch.loss.conjugate(kappa * p.slope, batch.y[:, None])))


def _newton_gap(batch: Batch, p: Points, dz: Array, db: Array) -> Array:
    """Return the gap of rho = 0 from a + l''(dz + db), whose gradient the Newton step cancels."""
    a = p.slope + p.curvature * (dz + db)
    residual = np.linalg.norm(batch.design.adjoint(batch.weights * a), axis=0)
    slack = residual * np.linalg.norm(p.theta, axis=0) + np.abs(batch.mean(a)) * np.abs(p.b)
    lower = -batch.mean(batch.loss.conjugate(a, batch.y[:, None]))
    return np.maximum(batch.mean(p.value) - lower, 0) + slack


class _System:
    """The Newton system (Z'(pi l'')Z - hh'/sum(pi l'') + (rho/w)(I - uu')) step = -(g + rho u)."""

    def __init__(self, size: int) -> None:
        self.H: Array | None = None
        self.gap = np.full(size, np.inf)

    def keep(self, index: Array) -> None:
        """Forget the problems outside ``index``."""
        self.H = None if self.H is None else self.H[index]
        self.gap = self.gap[index]

    def step(
        self, batch: Batch, p: Points, g: Array, h: Array, gap: Array, target: Array
    ) -> tuple[Array, Array]:
        """Return the step in theta (d, B) and the intercept's move that goes with it."""
        mass = np.maximum(batch.mean(p.curvature), np.finfo(float).tiny)
        w = np.linalg.norm(p.theta, axis=0)
        u = p.theta / w
        rhs = -(g + batch.rho * u)
        if batch.design.d > DENSE_UP_TO:
            step = _conjugate_gradients(batch, p, h / mass, u, w, rhs)
        else:
            # an old matrix contracts the gap as much again as it just did: enough if that ends it
            if self.H is None or np.any(gap**2 / self.gap > target):
                H = batch.design.gram(batch.weights * p.curvature)
                self.H = H - np.einsum("ib,jb->bij", h / mass, h)
            step = _solve(self.H, batch.rho / w, u, rhs)
        self.gap = gap
        return step, -np.einsum("db,db->b", h, step) / mass * batch.fit_intercept


def _solve(H: Array, stiffness: Array, u: Array, rhs: Array) -> Array:
    """Solve (H + stiffness (I - uu')) x = rhs for every column, diagonally scaled."""
    d = len(u)
    H = H + stiffness[:, None, None] * (np.eye(d) - np.einsum("ib,jb->bij", u, u))
    diagonal = np.einsum("bii->bi", H)
    s = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    A = H * s[:, :, None] * s[:, None, :]
    np.einsum("bii->bi", A)[:] += 1e-13
    x: Array = s * np.linalg.solve(A, (s * rhs.T)[..., None])[..., 0]
    return x.T


def _conjugate_gradients(
    batch: Batch, p: Points, h: Array, u: Array, w: Array, rhs: Array
) -> Array:
    """Solve the same system, one column at a time, through products with Z only."""
    steps = np.empty_like(rhs)
    for j in range(len(w)):
        one = batch.columns(np.array([j]))
        D = one.weights[:, 0] * p.curvature[:, j]
        mass = D.sum()

        def apply(v: Array, one: Batch = one, D: Array = D, j: int = j, mass: float = mass) -> Array:
            v = v.ravel()
            Hv = one.design.adjoint((D * one.design.scores(v[:, None])[:, 0])[:, None])[:, 0]
            Hv -= mass * h[:, j] * (h[:, j] @ v)
            return Hv + one.rho[0] / w[j] * (v - u[:, j] * (u[:, j] @ v)) + 1e-14 * v

        size = np.linalg.norm(rhs[:, j])
        operator = LinearOperator((len(rhs), len(rhs)), matvec=apply, dtype=float)
        steps[:, j] = cg(operator, rhs[:, j], rtol=min(0.1, np.sqrt(size)) * 0.1, maxiter=200)[0]
    return steps


def _line_search(
    batch: Batch, p: Points, g: Array, step: Array, db: Array, dz: Array, objective: Array
) -> Points:
    """Return the point after the longest of the steps 1, 1/2, 1/4, ... that descends enough."""
    y, w = batch.y[:, None], np.linalg.norm(p.theta, axis=0)
    descent = np.einsum("db,db->b", g + batch.rho * p.theta / w, step)
    length = np.ones(len(w))
    noise = 1e-15 * np.abs(objective)
    for _ in range(50):
        theta, b, z = p.theta + length * step, p.b + length * db, p.z + length * dz
        new = Points(theta, b, z, *batch.loss.evaluate(z + b, y))
        value = batch.mean(new.value) + batch.rho * np.linalg.norm(theta, axis=0)
        short = ~(value <= objective + 1e-4 * length * descent + noise)
        if not short.any():
            return new
        length = np.where(short, length / 2, length)
    length = np.where(short, 0.0, length)
    theta, b, z = p.theta + length * step, p.b + length * db, p.z + length * dz
    return Points(theta, b, z, *batch.loss.evaluate(z + b, y))
