r"""Damped Newton for smooth losses under an order-1 Euclidean cost, many problems at a time.

.. math:: \min_{\theta, b}\ F = \sum_i \pi_i \ell(z_i'\theta + b, y_i) + \rho\|\theta\|_2,
          \qquad \rho = \delta\,\mathrm{Lip}(\ell).

Columns of a batch share the rows and differ in weights, rho and (through the design) the cost.
Slopes a_i = l'(z_i) continued along the Newton step, a + D Z step with the curvatures D of the
Newton matrix, meet the constraints of the dual problem up to second order (scaled by
kappa = min(1, rho/||Z'(pi a)||), exactly):

.. math:: \max\ -\sum_i \pi_i \ell^*(a_i, y_i)\quad\text{s.t.}\quad
          \|Z'(\pi a)\|_2 \le \rho,\ \textstyle\sum_i \pi_i a_i = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from ...design import Design
from ...losses import Loss
from ...problem import Problem, Solution
from ..base import Method, Starts, constant_risk, verdict
from .coordinates import Coordinates

Array = NDArray[Any]

#: Rows above which a part of them (a tenth, at most ``SUBSAMPLE``, at least 30 a column) is solved
#: first, for a starting point within statistical error of the answer.
SUBSAMPLE_FROM, SUBSAMPLE = 5_000, 10_000
#: An old Newton matrix is kept while a step shrinks the gradient by at least this factor.
CONTRACTION = 0.3
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
    """Points of a batch, the batch along the last axis; ``z`` includes the intercept."""

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
class Zero:
    """The points at theta = 0 of a batch and their gradients g = Z'(pi a), (d, B)."""

    points: Points
    g: Array

    def columns(self, index: Array) -> Zero:
        """Return those of some columns."""
        return Zero(self.points.columns(index), self.g[:, index])


@dataclass(eq=False)
class Minimum:
    """What ``minimise`` returns, the batch along the last axis; ``slope`` is the dual point a."""

    theta: Array
    b: Array
    z: Array
    slope: Array
    objective: Array
    gap: Array
    n_iter: Array

    @classmethod
    def empty(cls, batch: Batch) -> Minimum:
        """Return arrays for every problem of a batch."""
        n, d, B = batch.design.n, batch.design.d, len(batch.rho)
        return cls(
            np.zeros((d, B)),
            np.zeros(B),
            np.zeros((n, B)),
            np.zeros((n, B)),
            np.zeros(B),
            np.zeros(B),
            np.ones(B, int),
        )

    def store(self, columns: Array, p: Points, objective: Array, gap: Array, n_iter: int) -> None:
        """Write finished points into their columns."""
        self.theta[:, columns], self.b[columns] = p.theta, p.b
        self.z[:, columns], self.slope[:, columns] = p.z, p.slope
        self.objective[columns], self.gap[columns], self.n_iter[columns] = objective, gap, n_iter


class Newton(Method):
    """Any smooth loss at order 1 (at delta = 0 also at order 2)."""

    geometries = frozenset({"euclidean"})
    certifies = "the excess over the least worst-case risk"
    accepts_zero = True

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and order 2."""
        loss = problem.loss
        if loss.pieces is not None or not np.isfinite(loss.smoothness):
            return f"Newton's method needs a smooth loss, {type(loss).__name__} has kinks"
        if problem.ball.order == 2 and problem.ball.delta > 0:
            return "Newton's method needs order 1"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return solve(problem, tol, max_iter, start)

    def solve_path(
        self, problem: Problem, deltas: Array, tol: float, max_iter: int, starts: Starts | None
    ) -> list[Solution]:
        """Return the solutions at every delta, small problems as one batch."""
        return solve_many(problem, deltas, tol, max_iter, starts)

    def starts_pay(self, problem: Problem) -> bool:
        """Whether a path is one batch of Newton steps, which starts nearby make fewer."""
        return small(problem)


def small(problem: Problem) -> bool:
    """Whether the deltas of a path are solved as one batch."""
    n, d = problem.X.shape
    return bool(n * min(n, d) <= BATCH_UP_TO)


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


def solve_many(
    problem: Problem,
    deltas: Array,
    tol: float,
    max_iter: int,
    starts: Starts | None = None,
) -> list[Solution]:
    """Solve at every delta (descending): small problems as one batch, from ``starts`` if given,
    others each from the last."""
    at = Coordinates(problem)
    target = tol * constant_risk(problem)[1]
    batch = _batch(problem, at, np.asarray(deltas, dtype=float))
    if at.design.n * at.design.d <= BATCH_UP_TO:
        first = None if starts is None else _places(at, list(starts))
        found = minimise(batch, np.full(len(deltas), target), max_iter, first)
        return _solutions(problem, at, found, target)
    solved: list[Solution] = []
    last: list[Minimum] = []
    zero, system = zero_model(batch.columns(np.array([0]))), _System()
    for j in range(len(deltas)):
        start = _extrapolated(last, np.asarray(deltas, dtype=float)[: j + 1])
        one = batch.columns(np.array([j]))
        last = [*last[-1:], minimise(one, np.array([target]), max_iter, start, zero, system)]
        solved += _solutions(problem, at, last[-1], target)
    return solved


def _places(at: Coordinates, starts: list[Solution]) -> tuple[Array, ...]:
    """Return (theta, b) of solutions, in these coordinates."""
    theta = at.theta(np.stack([start.coef for start in starts], axis=1))
    return theta, np.array([at.centred(start.intercept, start.coef) for start in starts])


def _extrapolated(found: list[Minimum], deltas: Array) -> tuple[Array, ...] | None:
    """Return the start at the last of ``deltas``: the line in log delta through the last two."""
    if not found:
        return None
    first, last, share = found[0], found[-1], 0.0
    if len(found) == 2 and deltas[-1] > 0 and first.theta.any():
        a, b, c = np.log(deltas[-3:])
        share = min(1.0, (c - b) / (b - a))
    pairs = ((getattr(m, name) for m in (first, last)) for name in ("theta", "b", "z"))
    return tuple(v + share * (v - u) for u, v in pairs)


def _batch(problem: Problem, at: Coordinates, deltas: Array) -> Batch:
    weights = np.broadcast_to(problem.weights[:, None], (len(problem.y), len(deltas)))
    rho = deltas * problem.loss.lipschitz
    return Batch(at.design, problem.y, weights, problem.loss, rho, problem.fit_intercept)


def _solutions(problem: Problem, at: Coordinates, found: Minimum, target: float) -> list[Solution]:
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
            message=verdict(float(found.gap[j]), target, int(found.n_iter[j])),
            dual=found.slope[:, j],
        )
        for j in range(len(found.b))
    ]


def subsample(batch: Batch) -> Array | None:
    """Return evenly spaced rows of a large problem on which to look for a starting point."""
    n, d = batch.design.n, batch.design.d
    part = max(min(SUBSAMPLE, n // 10), 30 * d)
    if n < SUBSAMPLE_FROM or part > n / 3:
        return None
    rows = np.linspace(0, n - 1, part).astype(int)
    y, weights = batch.y[rows], batch.weights[rows]
    if batch.loss.task == "classification" and not all(
        (weights[y == k] > 0).any() for k in (-1, 1)
    ):
        return None
    return rows


def _subsampled(batch: Batch, target: float, max_iter: int) -> tuple[Array, Array] | None:
    rows = subsample(batch)
    if rows is None:
        return None
    weights = batch.weights[rows]
    few = Batch(
        batch.design.rows(rows),
        batch.y[rows],
        weights / weights.sum(),
        batch.loss,
        batch.rho,
        batch.fit_intercept,
    )
    found = minimise(few, np.array([max(target, 1e-3)]), min(max_iter, 30))
    return found.theta, found.b


def minimise(
    batch: Batch,
    target: Array,
    max_iter: int,
    start: Any = None,
    zero: Zero | None = None,
    system: _System | None = None,
) -> Minimum:
    """Minimise each problem of the batch until its gap is at most ``target`` (B,).

    ``start`` is (theta (d, B), b (B,)), with the scores (n, B) too where known, or None. One
    problem after another of a path may share ``zero``, the model at theta = 0, and ``system``,
    whose matrix serves while it does well.
    """
    best, zero = Minimum.empty(batch), zero or zero_model(batch)
    # theta = 0 is optimal iff 0 is in g + rho (unit ball); a itself is then the dual optimum
    steep = np.linalg.norm(zero.g, axis=0) > batch.rho * (1 + 1e-12)
    active, settled = np.flatnonzero(steep), np.flatnonzero(~steep)
    if len(settled):
        _store_zero(best, batch.columns(settled), zero.columns(settled), settled)
    if not len(active):
        return best
    batch, target = batch.columns(active), target[active]
    p = _first(batch, zero.columns(active), start and _columns(start, active))
    system = (system or _System()).again()
    gap = batch.mean(p.value) + batch.rho * np.linalg.norm(p.theta, axis=0)
    for n_iter in range(1, max_iter + 1):
        system.update(batch, p)
        step, db, pull = system.step(batch, p)
        dz = batch.design.scores(step) + db
        lower = _dual_value(batch, p, p.slope + system.curvature * dz, pull)
        new, objective = _line_search(batch, p, system.g, step, db, dz)
        gap = np.minimum(gap, np.maximum(0.0, objective - lower))
        moved = np.abs(new.theta - p.theta).max(axis=0) > 1e-15 * np.abs(p.theta).max(axis=0)
        # an old matrix can end the steps without a dual point: try the one of this point first
        over = (gap <= target) | (~moved & system.fresh) | (n_iter == max_iter)
        if not (moved | over).all():
            system.spoil()
        if over.any():
            best.store(active[over], new.columns(over), objective[over], gap[over], n_iter)
            if over.all():
                break
            keep = ~over
            active, target, batch, new = (
                active[keep],
                target[keep],
                batch.columns(keep),
                new.columns(keep),
            )
            system.keep(keep)
            gap = gap[keep]
        p = new
    return best


def _store_zero(best: Minimum, batch: Batch, zero: Zero, columns: Array) -> None:
    """Write the model at theta = 0 into the columns where it is optimal."""
    p, flat = zero.points, batch.mean(zero.points.value)
    gap = np.maximum(0.0, flat - _dual_value(batch, p, p.slope, zero.g))
    best.store(columns, p, flat, gap, 1)


def zero_model(batch: Batch) -> Zero:
    """Return the best model with theta = 0, whose slopes sum to zero if there is an intercept."""
    B = len(batch.rho)
    b = np.zeros(B)
    if batch.fit_intercept:
        b = np.array([batch.loss.constant(batch.y, batch.weights[:, j]) for j in range(B)])
    z = np.broadcast_to(b, (batch.design.n, B))
    p = Points(np.zeros((batch.design.d, B)), b, z, *batch.loss.evaluate(z, batch.y[:, None]))
    return Zero(p, batch.design.adjoint(batch.weights * p.slope))


def _columns(start: tuple[Array, ...], index: Array) -> tuple[Array, ...]:
    return tuple(part[..., index] for part in start)


def _first(batch: Batch, zero: Zero, start: tuple[Array, ...] | None) -> Points:
    """Return the start, or where it is no better than zero the best along -g, as a model goes.

    From F(start) < F(0) no descent ends in theta = 0, where F has no derivative.
    """
    if start is None:
        return _points(batch, *_along_gradient(batch, zero))
    theta, b = start[:2]
    z = start[2] if len(start) > 2 else batch.design.scores(theta) + b
    warm = _points(batch, theta, b, z)
    risk = batch.mean(warm.value) + batch.rho * np.linalg.norm(theta, axis=0)
    good = theta.any(axis=0) & (risk < batch.mean(zero.points.value))
    if good.all():
        return warm
    cold = _along_gradient(batch, zero)
    pairs = zip((theta, b, z), cold, strict=True)
    return _points(batch, *(np.where(good, ours, other) for ours, other in pairs))


def _points(batch: Batch, theta: Array, b: Array, z: Array) -> Points:
    return Points(theta, b, z, *batch.loss.evaluate(z, batch.y[:, None]))


def _along_gradient(batch: Batch, zero: Zero) -> tuple[Array, Array, Array]:
    """Return theta, b and the scores of the minimiser of the quadratic model along -g."""
    steepness = np.linalg.norm(zero.g, axis=0)
    u = -zero.g / steepness
    z = batch.design.scores(u)
    spread = z - batch.mean(z) if batch.fit_intercept else z
    bend = batch.mean(zero.points.curvature * spread**2)
    # slope -(|g| - rho) and curvature u'Hu along u; the floor caps the move where H vanishes
    floor = 1e-3 * (steepness - batch.rho) * np.sqrt(batch.mean(spread**2))
    length = (steepness - batch.rho) / np.maximum(bend, np.maximum(floor, np.finfo(float).tiny))
    return length * u, zero.points.b, length * z + zero.points.b


def _dual_value(batch: Batch, p: Points, a: Array, pull: Array) -> Array:
    """Return the dual value at kappa a, where Z'(pi a) = pull; at least 0."""
    size = np.linalg.norm(pull, axis=0)
    free = batch.rho == 0
    kappa = np.where((size > batch.rho) & ~free, batch.rho / np.maximum(size, 1e-300), 1.0)
    conjugate = batch.loss.conjugate(kappa * a, batch.y[:, None])
    # a row without weight may have any slope
    value = -batch.mean(np.where(batch.weights > 0, conjugate, 0.0))
    # without a penalty Z'(pi a) = 0 holds to rounding only; its price is |Z'(pi a)| |theta|
    value -= np.where(free, size * np.linalg.norm(p.theta, axis=0), 0.0)
    return np.maximum(0.0, value)


class _System:
    """The Newton system of (theta, b) with the intercept eliminated,

    (H - hh'/m + (rho/w)(I - uu')) step = -(g + rho u) + h s/m,

    H = Z'(pi D)Z, h = Z'(pi D), m = sum pi D at the curvatures D of when it was last renewed,
    g = Z'(pi a), s = sum pi a at the current point, u = theta/w.
    """

    H: Array
    h: Array
    g: Array
    curvature: Array
    mass: Array

    def __init__(self) -> None:
        self.residual: Array = np.zeros(0)
        self.fresh = False

    def again(self) -> _System:
        """Try the matrix, if there is one, on the next problem: its first step is the test."""
        self.residual = np.full_like(self.residual, np.inf)
        return self

    def spoil(self) -> None:
        """Have the matrix renewed at the next update."""
        self.residual = np.full_like(self.residual, -1.0)

    def keep(self, index: Array) -> None:
        """Forget the problems outside ``index``."""
        self.H, self.h = self.H[index], self.h[:, index]
        self.curvature, self.mass = self.curvature[:, index], self.mass[index]
        self.residual = self.residual[index]

    def update(self, batch: Batch, p: Points) -> None:
        """Take the gradient at p, and the matrix too unless the old one did well enough."""
        self.g = batch.design.adjoint(batch.weights * p.slope)
        u = p.theta / np.linalg.norm(p.theta, axis=0)
        residual = np.linalg.norm(self.g + batch.rho * u, axis=0)
        # the same matrix contracts the gradient about as much again
        self.fresh = not len(self.residual) or bool(np.any(residual > CONTRACTION * self.residual))
        if self.fresh:
            self._renew(batch, p)
        self.residual = residual

    def _renew(self, batch: Batch, p: Points) -> None:
        D, self.curvature = batch.weights * p.curvature, p.curvature
        self.mass = np.maximum(D.sum(axis=0), np.finfo(float).tiny)
        self.h = batch.design.adjoint(D) if batch.fit_intercept else np.zeros_like(self.g)
        if batch.design.d > DENSE_UP_TO:
            self.H = np.empty((len(self.mass), 0, 0))
        else:
            H = batch.design.gram(D)
            self.H = H - np.einsum("ib,jb->bij", self.h / self.mass, self.h)

    def step(self, batch: Batch, p: Points) -> tuple[Array, Array, Array]:
        """Return the step in theta (d, B), the intercept's, and Z'(pi (a + D Z step))."""
        w = np.linalg.norm(p.theta, axis=0)
        u = p.theta / w
        s = batch.mean(p.slope) * batch.fit_intercept
        balanced = self.g - self.h * (s / self.mass)
        rhs = -(balanced + batch.rho * u)
        if batch.design.d > DENSE_UP_TO:
            step = _conjugate_gradients(batch, self, u, w, rhs)
            pull = balanced + self.apply(batch, step)
        else:
            step = _solve(self.H, batch.rho / w, u, rhs)
            pull = balanced + np.einsum("bij,jb->ib", self.H, step)
        db = -(s + np.einsum("db,db->b", self.h, step)) / self.mass * batch.fit_intercept
        return step, db, pull

    def apply(self, batch: Batch, v: Array) -> Array:
        """Return (H - hh'/m) v through products with Z."""
        D = batch.weights * self.curvature
        Hv = batch.design.adjoint(D * batch.design.scores(v))
        return Hv - self.h * (np.einsum("db,db->b", self.h, v) / self.mass)


def _solve(H: Array, stiffness: Array, u: Array, rhs: Array) -> Array:
    """Solve (H + stiffness (I - uu')) x = rhs for every column, diagonally scaled."""
    stiff = stiffness[:, None]
    diagonal = np.einsum("bii->bi", H) + stiff * (1 - u.T**2)
    s = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    q = np.sqrt(stiff) * s * u.T
    A = s[:, :, None] * s[:, None, :]
    A *= H
    A -= q[:, :, None] * q[:, None, :]
    np.einsum("bii->bi", A)[:] += stiff * s**2 + 1e-13
    x: Array = s * np.linalg.solve(A, (s * rhs.T)[..., None])[..., 0]
    return x.T


def _conjugate_gradients(batch: Batch, system: _System, u: Array, w: Array, rhs: Array) -> Array:
    """Solve the system of one problem through products with Z only."""
    if len(w) > 1:
        raise ValueError(f"batches are for at most {DENSE_UP_TO} columns.")

    def apply(v: Array) -> Array:
        v = v.reshape(-1, 1)
        stiff = batch.rho / w * (v - u * (u[:, 0] @ v)) + 1e-14 * v
        return np.asarray(system.apply(batch, v) + stiff)[:, 0]

    operator = LinearOperator((len(rhs), len(rhs)), matvec=apply, dtype=float)
    rtol = 0.01 * min(1.0, float(np.sqrt(np.linalg.norm(rhs))))
    step: Array = cg(operator, rhs[:, 0], rtol=rtol, maxiter=200)[0]
    return step[:, None]


def _line_search(
    batch: Batch, p: Points, g: Array, step: Array, db: Array, dz: Array
) -> tuple[Points, Array]:
    """Return the points after the longest of the steps 1, 1/2, 1/4, ... that descends, and F."""
    y, w = batch.y[:, None], np.linalg.norm(p.theta, axis=0)
    objective = batch.mean(p.value) + batch.rho * w
    descent = np.einsum("db,db->b", g + batch.rho * p.theta / w, step) + batch.mean(p.slope) * db
    length = np.ones(len(w))
    for attempt in range(50):
        theta, z = p.theta + length * step, p.z + length * dz
        new = Points(theta, p.b + length * db, z, *batch.loss.evaluate(z, y))
        value = batch.mean(new.value) + batch.rho * np.linalg.norm(theta, axis=0)
        short = ~(value <= objective + 1e-4 * length * descent + 1e-15 * np.abs(objective))
        if not short.any():
            break
        length = np.where(short, length / 2 if attempt < 48 else 0.0, length)
    return new, value
