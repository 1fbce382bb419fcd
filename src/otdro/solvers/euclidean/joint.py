r"""Logistic loss, order 2, Euclidean cost: Newton in (theta, b, lam) together.

.. math:: \min_{\theta, b, \lambda > 0}\ F = \lambda\delta + \sum_i \pi_i \max_k \psi_{ik},\qquad
          \psi = \log(1 + e^{v - m}) - \lambda v^2/w^2,\quad w = \|\theta\|_2 .

A row has one stationary v while a = 2 lam/w^2 >= 1/4, and up to two (k = 1, 2) below, where F has
a kink: the model of a step keeps both branches of such a row linear and shares its mass p between
them, a quadratic program whose dual is a box problem in p. Atoms (i, k) of mass pi_i p_ik with
slopes alpha = sigma(v - m) give the lower bound

.. math:: F^* \ge \sum \pi p\,H(\alpha)\quad\text{if}\quad \|\sum \pi p\,\alpha y z\|_2^2 \le
          \delta \sum \pi p\,\alpha^2,\ \sum \pi p\,\alpha y = 0,

H the entropy: the adversary moves atom (i, k) against its label by sqrt(delta) alpha/rms(alpha).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import entr, expit

from ...costs import Norm
from ...design import Design
from ...duality import worst_risk
from ...losses import Logistic
from ...problem import Ball, Problem, Solution
from ..base import Method, constant_risk, verdict
from . import newton
from .coordinates import Coordinates

Array = NDArray[Any]


#: Floors for the curvature of the inner problem, relative to lam.
SHARP, BLUNT = 1e-12, 0.2


@dataclass(frozen=True, eq=False)
class Atoms:
    """Branches of rows: ``row``, mass ``p``, label y, displacement v, alpha = sigma(v - m)."""

    row: Array
    p: Array
    y: Array
    v: Array
    alpha: Array


@dataclass(frozen=True, eq=False)
class Point:
    """A triple (theta, b, lam) with the scores z = Z theta + b and both branches of every row.

    ``w`` is the dual norm of theta, one number or, for a local cost, one a row.
    """

    theta: Array
    b: float
    lam: float
    z: Array
    value: Array
    v: Array
    objective: float
    w: Any


class Joint:
    """The objective of one problem: evaluation, model of a step, lower bound."""

    def __init__(self, design: Design, y: Array, weights: Array, delta: float, intercept: bool):
        self.design, self.y, self.weights, self.delta = design, y, weights, delta
        self.fit_intercept = intercept
        self.loss = Logistic()

    def order_one(self, rho: float) -> newton.Batch:
        """Return the order-1 problem mean l + rho w on the same rows."""
        return newton.Batch(
            self.design,
            self.y,
            self.weights[:, None],
            self.loss,
            np.array([rho]),
            self.fit_intercept,
        )

    def start(self, theta: Array, b: float, lam: float | None = None) -> Point:
        """Return the point at (theta, b), with the best lam unless one is given."""
        z = self.design.scores(theta) + b
        return self.at(theta, b, self._multiplier(theta, z) if lam is None else lam, z)

    def _multiplier(self, theta: Array, z: Array) -> float:
        """Return lam near its best: E t^2 = delta with v = w sqrt(delta) alpha/rms(alpha)."""
        w, v = float(np.linalg.norm(theta)), np.zeros_like(z)
        for _ in range(3):
            alpha = expit(v - self.y * z)
            rms = np.sqrt(self.weights @ alpha**2)
            v = w * np.sqrt(self.delta) * alpha / rms
        lam = float(w * rms / (2 * np.sqrt(self.delta)))
        if 2 * lam >= 0.3 * w**2:
            return lam
        # two branches: the iteration above may follow the wrong one
        ball = Ball(Norm(2), self.delta, 2)
        return worst_risk(z, self.y, self.weights, self.loss, w, ball, rtol=0.01).multiplier

    def settle(self, x: Point) -> Point:
        """Minimise over lam alone, by Newton steps on delta - E t^2; ties fix it already."""
        for _ in range(2):
            if len(x.value) == 2:
                break
            t = x.v[0] / x.w
            s = expit(x.v[0] - self.y * x.z)
            bend = self.weights @ (4 * t**2 / (2 * x.lam - x.w**2 * s * (1 - s)))
            lam = x.lam - (self.delta - self.weights @ t**2) / bend
            if not 0.5 * x.lam < lam < 2 * x.lam:
                break
            new = self.at(x.theta, x.b, float(lam), x.z, x.v[0])
            if new.objective >= x.objective:
                break
            x = new
        return x

    def norms(self, theta: Array) -> Any:
        """Return the dual norm of theta."""
        return float(np.linalg.norm(theta))

    def directions(self, x: Point, rows: Array) -> Array:
        """Return the gradient of the dual norm, one for all rows or one a row."""
        return np.asarray(x.theta / x.w)

    def square(self, theta: Array, other: Array) -> float:
        """Return the inner product whose square root is the dual norm."""
        return float(theta @ other)

    def part(self, rows: Array) -> Joint:
        """Return the objective of some rows."""
        weights = self.weights[rows]
        design, total = self.design.rows(rows), weights.sum()
        return Joint(design, self.y[rows], weights / total, self.delta, self.fit_intercept)

    def at(self, theta: Array, b: float, lam: float, z: Array, guess: Array | None = None) -> Point:
        """Evaluate the objective."""
        w = self.norms(theta)
        inner = self.loss.inner(z, self.y, w, lam, guess)
        F = float(lam * self.delta + self.weights @ inner.value.max(axis=0))
        return Point(theta, b, lam, z, inner.value, np.abs(inner.shift), F, w)

    def atoms(self, x: Point, p: Array | None = None) -> Atoms:
        """Return the atoms of a point: both branches of a row that has two, else the only one.

        ``p`` is the mass of the first branch; by default the larger branch takes all.
        """
        n = len(self.y)
        if p is None:
            p = (x.value[0] >= x.value[-1]).astype(float)
        if len(x.value) == 1:
            row, branch, mass = np.arange(n), np.zeros(n, dtype=int), np.ones(n)
        else:
            exists = np.isfinite(x.value)
            p = np.where(exists.all(axis=0), p, exists[0].astype(float))
            row, branch = np.nonzero(exists.T)
            mass = np.where(branch == 0, p[row], 1 - p[row])
        v = x.v[branch, row]
        alpha = expit(v - self.y[row] * x.z[row])
        return Atoms(row, mass, self.y[row], v, alpha)

    def by_row(self, atoms: Atoms, r: Array) -> Array:
        """Return pi times the sum over the atoms of each row."""
        if len(atoms.row) == len(self.y):
            # one atom a row, in order
            return self.weights * r
        return self.weights * np.bincount(atoms.row, r, minlength=len(self.y))

    def adjoint(self, atoms: Atoms, r: Array) -> Array:
        """Return sum over atoms of pi z r, for columns r, and the same with z replaced by 1."""
        rows = np.stack([self.by_row(atoms, column) for column in r.T], axis=1)
        return np.vstack([self.design.adjoint(rows), rows.sum(axis=0) * self.fit_intercept])

    def derivatives(self, x: Point, atoms: Atoms, floor: float) -> tuple[Array, Array]:
        """Return gradient and Hessian of F with the masses of the atoms fixed."""
        w, lam, u = x.w, x.lam, x.theta / x.w
        s, t, pi = atoms.alpha, atoms.v / w, atoms.p * self.weights[atoms.row]
        s1 = s * (1 - s)
        # in (m, w, lam) psi has gradient (-s, st, -t^2), Hessian s1 (1, -t, 0)(1, -t, 0)' + hh'/D
        # D > 0 vanishes at a = 1/4, m = 2, where the two branches part: there its floor counts
        D = np.maximum(2 * lam - w**2 * s1, floor * lam)
        h = np.stack([-s1 * w, s + s1 * w * t, -2 * t])
        M = h[:, None] * h[None] / D
        M[0, 0] += s1
        M[0, 1] -= s1 * t
        M[1, 1] += s1 * t**2
        g = np.stack([-s, s * t, -(t**2)])
        p, y = atoms.p, atoms.y
        columns = np.stack([p * y * g[0], p * M[0, 0], p * y * M[0, 1], p * y * M[0, 2]], axis=1)
        A = self.adjoint(atoms, columns)
        d = self.design.d
        grad, H = np.zeros(d + 2), np.zeros((d + 2, d + 2))
        grad[: d + 1] = A[:, 0]
        grad[:d] += (pi @ g[1]) * u
        grad[-1] = self.delta + pi @ g[2]
        H[:d, :d] = self.design.gram(self.by_row(atoms, atoms.p * M[0, 0])) + (pi @ g[1]) / w * (
            np.eye(d) - np.outer(u, u)
        )
        H[: d + 1, d] = H[d, : d + 1] = A[:, 1]
        for k, column in ((2, u), (3, None)):
            if column is not None:
                cross = np.outer(A[:, k], column)
                H[: d + 1, :d] += cross
                H[:d, : d + 1] += cross.T
            else:
                H[: d + 1, -1] += A[:, k]
                H[-1, : d + 1] += A[:, k]
        H[:d, :d] += (pi @ M[1, 1]) * np.outer(u, u)
        H[:d, -1] += (pi @ M[1, 2]) * u
        H[-1, :d] += (pi @ M[1, 2]) * u
        H[-1, -1] += pi @ M[2, 2]
        if not self.fit_intercept:
            H[d, :] = H[:, d] = 0.0
            H[d, d] = 1.0
        return grad, H

    def branch_gradients(self, x: Point, rows: Array) -> tuple[Array, Array]:
        """Return pi (psi_1 - psi_2) and its gradient for rows with two branches."""
        w = np.broadcast_to(x.w, len(self.y))[rows]
        y, pi = self.y[rows], self.weights[rows]
        s = expit(x.v[:, rows] - y * x.z[rows])
        t = x.v[:, rows] / w
        ds, dst, dt2 = s[0] - s[1], (s * t)[0] - (s * t)[1], (t**2)[0] - (t**2)[1]
        Z = self.design.rows(rows).dense()
        J = np.empty((len(rows), self.design.d + 2))
        J[:, :-2] = (-ds * y)[:, None] * Z + dst[:, None] * self.directions(x, rows)
        J[:, -2] = -ds * y * self.fit_intercept
        J[:, -1] = -dt2
        difference = pi * (x.value[0, rows] - x.value[1, rows])
        return difference, pi[:, None] * J

    def step(self, x: Point, p: Array, floor: float) -> tuple[Array, Array, float]:
        """Return the minimiser of the model, the first branches' masses there, and its descent."""
        model = self.model(x, p, floor)
        return model.minimise(p, model.difference)

    def model(self, x: Point, p: Array, floor: float) -> Model:
        """Return the model of F around x: quadratic, with both branches of a row linear."""
        grad, H = self.derivatives(x, self.atoms(x, p), floor)
        two = np.flatnonzero(np.isfinite(x.value).all(axis=0) & (len(x.value) == 2))
        difference, J = self.branch_gradients(x, two) if len(two) else (np.zeros(0), H[:0])
        # grad_0 is the gradient at p = 0
        return Model(grad - J.T @ p[two], H, _factor(H), two, difference, J)

    def lower_bound(self, x: Point, p: Array) -> float:
        """Return the entropy of atoms made feasible by a shift of b and a growth of theta."""
        atoms = self.atoms(x, p)
        pi = atoms.p * self.weights[atoms.row]
        alpha, y = atoms.alpha, atoms.y
        s1 = alpha * (1 - alpha)
        if self.fit_intercept:
            alpha = alpha - y * s1 * (pi @ (alpha * y)) / max(pi @ s1, np.finfo(float).tiny)
        rms = np.sqrt(pi @ alpha**2)
        # along theta -> (1 + eta) theta the slopes move by s1 (t - y z'u), raising
        # sqrt(delta) rms(alpha) - |sum pi alpha y z|
        move = (x.z[atoms.row] - x.b) / x.w
        h = s1 * (np.sqrt(self.delta) * alpha / rms - y * move)
        if self.fit_intercept:
            h = h - y * s1 * (pi @ (h * y)) / max(pi @ s1, np.finfo(float).tiny)
        A = self.adjoint(atoms, np.stack([atoms.p * y * alpha, atoms.p * y * h], axis=1))[:-1]
        eta = _first_feasible(A[:, 0], A[:, 1], alpha, h, pi, self.delta)
        if not np.isfinite(eta):
            return 0.0
        alpha = alpha + eta * h
        if alpha.min() < 0 or alpha.max() > 1:
            return 0.0
        return float(pi @ (entr(alpha) + entr(1 - alpha)))


@dataclass(frozen=True, eq=False)
class Model:
    """grad_0'm + m'Hm/2 + sum over rows ``two`` of max(0, difference + J m)."""

    base: Array
    H: Array
    factor: Any
    two: Array
    difference: Array
    J: Array

    def minimise(self, p: Array, difference: Array) -> tuple[Array, Array, float]:
        """Return the minimiser m, the masses p of first branches there, and -m'Hm.

        By the dual: min over p in [0, 1] of |grad_0 + J'p|^2_{H^-1}/2 - difference'p.
        """
        J, two = self.J, self.two
        if len(two):
            HJ = cho_solve(self.factor, J.T)
            p = p.copy()
            p[two] = box_quadratic(J @ HJ, HJ.T @ self.base - difference, p[two])
        move = -cho_solve(self.factor, self.base + J.T @ p[two])
        return move, p, -float(move @ self.H @ move)

    def corrected(
        self, p: Array, move: Array, weights: Array, there: Point
    ) -> tuple[Array, Array, float]:
        """Return the minimiser with the differences' curvature as seen ``there``, after the move.

        Tied rows leave their tie by the curvature, which the move itself does not know.
        """
        kept = (
            np.isfinite(there.value[:, self.two]).all(axis=0)
            if len(there.value) == 2
            else np.zeros(len(self.two), dtype=bool)
        )
        difference = self.difference.copy()
        rows = self.two[kept]
        apart = weights[rows] * (there.value[0, rows] - there.value[-1, rows])
        difference[kept] = apart - self.J[kept] @ move
        return self.minimise(p, difference)


def _first_feasible(g: Array, dg: Array, alpha: Array, h: Array, pi: Array, delta: float) -> float:
    """Return the least eta >= 0 with |g + eta dg|^2 <= delta sum pi (alpha + eta h)^2."""
    C = g @ g - delta * (pi @ alpha**2)
    if C <= 0:
        return 0.0
    B = g @ dg - delta * (pi @ (alpha * h))
    A = dg @ dg - delta * (pi @ h**2)
    discriminant = B**2 - A * C
    if B >= 0 or discriminant < 0:
        return np.inf
    # the smaller positive root, in the form without cancellation, and a hair beyond it
    return float(C / (-B + np.sqrt(discriminant))) * (1 + 1e-9)


def _factor(H: Array) -> Any:
    """Return the Cholesky factor of H, whose diagonal is raised until it exists."""
    ridge = 1e-13
    diagonal = np.where(np.diag(H) > 0, np.diag(H), 1.0)
    while True:
        try:
            return cho_factor(H + ridge * np.diag(diagonal))
        except np.linalg.LinAlgError:
            ridge *= 100


def box_quadratic(Q: Array, q: Array, p: Array) -> Array:
    """Minimise p'Qp/2 + q'p over p in [0, 1] by projected Newton on the free coordinates."""
    ridge = 1e-13 * (1e-300 + np.trace(Q))
    value = p @ Q @ p / 2 + q @ p
    for _ in range(200):
        g = Q @ p + q
        free = ~(((p <= 0) & (g > 0)) | ((p >= 1) & (g < 0)))
        if not free.any():
            break
        step = np.zeros_like(p)
        block = Q[np.ix_(free, free)]
        step[free] = -np.linalg.solve(block + ridge * np.eye(len(block)), g[free])
        length, new = 1.0, p
        while length > 1e-10:
            new = np.clip(p + length * step, 0, 1)
            now = new @ Q @ new / 2 + q @ new
            if now <= value + 1e-4 * g @ (new - p):
                break
            length /= 2
        if np.abs(new - p).max() <= 1e-15 or now >= value:
            break
        p, value = new, now
    return p


class JointNewton(Method):
    """Any smooth Lipschitz loss at order 2."""

    geometries = frozenset({"euclidean"})
    certifies = "the excess over the least worst-case risk"

    def lacks(self, problem: Problem) -> str | None:
        """Refuse losses with kinks or pieces, and order 1."""
        loss = problem.loss
        if loss.pieces is not None or not np.isfinite(loss.smoothness):
            return f"Newton's method needs a smooth loss, {type(loss).__name__} has kinks"
        return None

    def solve(
        self, problem: Problem, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Return the minimiser."""
        return solve(problem, tol, max_iter, start)


def solve(problem: Problem, tol: float, max_iter: int, start: Solution | None = None) -> Solution:
    """Minimise the robust logistic risk at order 2."""
    at = Coordinates(problem)
    target = tol * constant_risk(problem)[1]
    joint = Joint(at.design, problem.y, problem.weights, problem.ball.delta, problem.fit_intercept)
    zero, threshold = _zero(joint)
    if joint.delta >= threshold:
        dual = zero.slope[:, 0]
        return _solution(
            at, target, Found(zero.theta[:, 0], zero.b[0], 0.0, zero.objective[0], dual)
        )
    if start is None or not np.any(start.coef):
        first = _subsampled(joint) or _order_one(joint, zero)
    else:
        first = at.theta(start.coef), at.centred(start.intercept, start.coef), None
    found = descend(joint, first, target, max_iter)
    if found.gap > target and start is not None:
        # a warm start on a kink can leave no descent; a cold one seldom sits there
        again = descend(joint, _order_one(joint, zero), target, max_iter)
        found = min(found, again, key=lambda f: f.objective)
    return _solution(at, target, found)


#: Where a descent starts: theta, b and lam (None: the best one).
First = tuple[Array, float, float | None]


@dataclass(eq=False)
class Found:
    """The last point of a descent and its certificate."""

    theta: Array
    b: float
    lam: float
    objective: float
    dual: Array
    gap: float = 0.0
    n_iter: int = 1


def descend(joint: Joint, first: First, target: float, max_iter: int) -> Found:
    """Minimise from (theta, b, lam)."""
    x = joint.start(*first)
    p, floor = _shares(x), SHARP
    for n_iter in range(1, max_iter + 1):  # noqa: B007
        new, p = _advance(joint, x, p, floor)
        gap = max(0.0, new.objective - joint.lower_bound(new, p))
        still = x.objective - new.objective <= 1e-14 * x.objective
        stuck = still and floor == BLUNT
        # where progress is small beside the gap the model is too stiff
        floor = BLUNT if x.objective - new.objective < 0.1 * gap and floor == SHARP else SHARP
        x, p = new, _shares(new, x, p)
        if gap <= target or stuck:
            break
    before, x = x.objective, joint.settle(x)
    gap = max(0.0, gap - (before - x.objective))
    atoms = joint.atoms(x, p)
    dual = np.bincount(atoms.row, -atoms.y * atoms.p * atoms.alpha, minlength=len(joint.y))
    return Found(x.theta, x.b, x.lam, x.objective, dual, gap, n_iter)


def _shares(x: Point, old: Point | None = None, p: Array | None = None) -> Array:
    """Return first branches' masses: the model's where a row kept its two, else all or none."""
    hard = (x.value[0] >= x.value[-1]).astype(float)
    if old is None or p is None or len(x.value) < 2 or len(old.value) < 2:
        return hard
    both = np.isfinite(x.value).all(axis=0) & np.isfinite(old.value).all(axis=0)
    return np.where(both, p, hard)


def _zero(joint: Joint) -> tuple[newton.Minimum, float]:
    """Return the model theta = 0 and the least delta at which it is optimal."""
    batch = joint.order_one(np.inf)
    zero = newton.minimise(batch, np.zeros(1), 1)
    a = zero.slope[:, 0]
    g = joint.design.adjoint(joint.weights * a)
    return zero, float(g @ g / (joint.weights @ a**2))


def _subsampled(joint: Joint) -> First | None:
    """Solve on evenly spaced rows of a large problem, for a starting point."""
    rows = newton.subsample(joint.order_one(0.0))
    if rows is None:
        return None
    few = joint.part(rows)
    zero, threshold = _zero(few)
    if few.delta >= threshold:
        return None
    found = descend(few, _order_one(few, zero), 1e-3 * float(zero.objective[0]), 30)
    return found.theta, found.b, found.lam


def _order_one(joint: Joint, zero: newton.Minimum) -> First:
    """Return the minimiser of mean l + sqrt(delta) rms(l') w with rms(l') as at theta = 0."""
    a = zero.slope[:, 0]
    rms = np.sqrt(joint.weights @ a**2)
    steep = np.linalg.norm(joint.design.adjoint(joint.weights * a))
    batch = joint.order_one(min(np.sqrt(joint.delta) * rms, 0.99 * steep))
    found = newton.minimise(batch, np.array([1e-3 * float(zero.objective[0])]), 50)
    return found.theta[:, 0], float(found.b[0]), None


class _Line:
    """The points along a move, lam kept positive.

    Rows tie at m = w^2/(4 lam) =: level. With ties lam follows from a linear move of level, so
    that tied rows, linear in (theta, b), stay tied along the whole step.
    """

    def __init__(self, joint: Joint, x: Point, move: Array) -> None:
        d = joint.design.d
        self.joint, self.x, self.move = joint, x, move
        self.dz = joint.design.scores(move[:d]) + move[d]
        self.tied = len(x.value) == 2
        square = joint.square(x.theta, x.theta)
        level = square / (4 * x.lam)
        drift = level * (2 * joint.square(x.theta, move[:d]) / square - move[-1] / x.lam)
        self.base, self.change = (level, drift) if self.tied else (x.lam, move[-1])
        self.longest = 1.0 if self.change >= 0 else min(1.0, -0.9 * self.base / self.change)

    def at(self, length: float) -> Point:
        """Return the point after a share of the move."""
        joint, x, d = self.joint, self.x, self.joint.design.d
        theta, mixed = x.theta + length * self.move[:d], self.base + length * self.change
        lam = joint.square(theta, theta) / (4 * mixed) if self.tied else mixed
        return joint.at(theta, x.b + length * self.move[d], lam, x.z + length * self.dz, x.v[0])


def _lower(new: Point, x: Point, descent: float) -> bool:
    return new.objective <= x.objective + 1e-4 * descent + 1e-15 * x.objective


def _advance(joint: Joint, x: Point, p: Array, floor: float) -> tuple[Point, Array]:
    """Return the next point and the masses of its model.

    The longest of the steps 1, 1/2, ... that descends is taken; where ties turn the whole step
    down, one that knows their curvature is tried before shorter ones.
    """
    model = joint.model(x, p, floor)
    move, share, descent = model.minimise(p, model.difference)
    line = _Line(joint, x, move)
    length, new = line.longest, line.at(line.longest)
    if length == 1 and len(model.two) and not _lower(new, x, descent):
        again, other, fall = model.corrected(p, move, joint.weights, new)
        bent = _Line(joint, x, again)
        there = bent.at(bent.longest)
        if _lower(there, x, bent.longest * fall):
            return there, other
    for _ in range(50):
        if _lower(new, x, length * descent):
            return new, share
        length /= 2
        new = line.at(length)
    return x, share


def _solution(at: Coordinates, target: float, found: Found) -> Solution:
    coef = at.coef(found.theta)
    return Solution(
        coef=coef,
        intercept=at.intercept(float(found.b), coef),
        multiplier=float(found.lam),
        objective=float(found.objective),
        gap=float(found.gap),
        n_iter=found.n_iter,
        converged=bool(found.gap <= target),
        message=verdict(found.gap, target, found.n_iter),
        dual=found.dual,
    )
