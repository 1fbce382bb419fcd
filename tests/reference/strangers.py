r"""Independent optimum for losses and norms that otdro does not know: cvxpy with Clarabel.

A loss is the largest of its tangents in the residual r (1 - yz or -yz for labels, y - z for
targets), l = max over lo <= alpha <= hi of alpha r - l*(alpha), and w = ||beta||_* is a cone:

====================  =======================================================================
order 1               mean l + delta max(-lo, hi) w
r^2/(2 kappa)         (rms(r) + sqrt(delta) w)^2/(2 kappa), r or its positive part
piecewise quadratic   min over nu > 0, q >= max(kappa - nu, 0), a of
                      delta w^2/(2 nu) + mean a^2/(2 q) + max(hi (R - a), lo (R - a)) - c lo hi/2
                      with c = q + nu - kappa and R = r + c (lo + hi)/2
any other             min over nu > 0 of delta w^2/(2 nu) + mean max_alpha alpha r - l*(alpha)
                      + nu alpha^2/2, by cuts in alpha: from below by the program, from above by
                      the value of its solution
====================  =======================================================================

The third line: the inner supremum is max_alpha alpha r - (kappa - nu) alpha^2/2. On [lo, hi]
alpha^2 <= (lo + hi) alpha - lo hi with equality at the ends, so that any q >= kappa - nu gives a
bound from above, tight at q = max(kappa - nu, 0): where kappa < nu the maximum is at an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import entr, expit

from .conic import CutProgram, Sample, line_minimum, precise


@dataclass(frozen=True)
class Curve:
    """A loss by its tangents: the slopes [lo, hi] and the conjugate kappa alpha^2/2.

    ``offset`` is the residual of labels at z = 0.
    """

    task: str
    lo: float
    hi: float
    kappa: float
    offset: float = 1.0

    @property
    def lipschitz(self) -> float:
        return max(-self.lo, self.hi)

    @property
    def curved(self) -> bool:
        """Whether order 2 needs a Euclidean cost: bounded slopes, not piecewise linear."""
        return bool(np.isfinite(self.lipschitz) and self.kappa > 0)

    def residual(self, z, y):
        """Return r at scores z, numbers or a cvxpy expression."""
        return self.offset - cp.multiply(y, z) if self.task == "classification" else y - z

    def of_scores(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the loss of each row."""
        return self.value(self.offset - y * z if self.task == "classification" else y - z)

    def value(self, r: np.ndarray) -> np.ndarray:
        """Return r^2/(2 kappa) between the kinks kappa lo and kappa hi, a tangent beyond."""
        if self.kappa == 0:
            return np.maximum(self.hi * r, self.lo * r)
        inside = np.clip(r, self.kappa * self.lo, self.kappa * self.hi)
        return inside**2 / (2 * self.kappa) + inside / self.kappa * (r - inside)

    def mean(self, r: cp.Expression, weights: np.ndarray) -> cp.Expression:
        """Return the mean loss as a convex expression."""
        if self.kappa == 0:
            return weights @ cp.maximum(self.hi * r, self.lo * r)
        a = cp.Variable(len(weights))
        curved = cp.sum_squares(cp.multiply(np.sqrt(weights), a)) / (2 * self.kappa)
        return curved + weights @ cp.maximum(self.hi * (r - a), self.lo * (r - a))


@dataclass(frozen=True)
class Smooth(Curve):
    """s log(1 + e^(r (hi - lo)/s)) + lo r - floor: softplus, logistic and log-cosh.

    log cosh r = log(1 + e^2r) - r - log 2 has the slopes -1 and 1, s = 1 and the floor log 2.
    """

    scale: float = 1.0

    @property
    def width(self) -> float:
        return self.hi - self.lo

    def value(self, r: np.ndarray) -> np.ndarray:
        u = self.width * r / self.scale
        return self.scale * np.logaddexp(0, u) + self.lo * r - self.floor

    @property
    def floor(self) -> float:
        """What a symmetric loss is lowered by to have the infimum 0."""
        return self.scale * np.log(2) if self.lo < 0 else 0.0

    def mean(self, r: cp.Expression, weights: np.ndarray) -> cp.Expression:
        u = self.width * r / self.scale
        return weights @ (self.scale * cp.logistic(u) + self.lo * r) - self.floor

    def tangent(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return alpha and -l*(alpha) at the share p in [0, 1] of the slopes."""
        alpha = self.lo + self.width * p
        return alpha, self.scale * (entr(p) + entr(1 - p)) - self.floor


INF = np.inf
LABELS, TARGETS = "classification", "regression"
CURVES = {
    "smoothed_hinge": Curve(LABELS, 0.0, 1.0, 0.5),
    "two_sided_hinge": Curve(LABELS, -0.25, 1.0, 0.0),
    "softplus": Smooth(LABELS, 0.0, 1.0, 1.0, 0.0, scale=2.0),
    "half_squared": Curve(TARGETS, -INF, INF, 1.0),
    "asymmetric_huber": Curve(TARGETS, -0.3, 0.7, 1.0),
    "log_cosh": Smooth(TARGETS, -1.0, 1.0, 1.0, scale=1.0),
    "logistic": Smooth(LABELS, 0.0, 1.0, 1.0, 0.0, scale=1.0),
    "hinge": Curve(LABELS, 0.0, 1.0, 0.0),
    "squared_hinge": Curve(LABELS, 0.0, INF, 0.5),
    "squared": Curve(TARGETS, -INF, INF, 0.5),
    "absolute": Curve(TARGETS, -1.0, 1.0, 0.0),
    "huber": Curve(TARGETS, -0.8, 0.8, 1.0),
    "quantile": Curve(TARGETS, -0.7, 0.3, 0.0),
}


@cache
def matrix(d: int) -> np.ndarray:
    """Return a positive definite matrix."""
    A = np.random.default_rng(7).normal(size=(d, d)) / np.sqrt(d) + 1.2 * np.eye(d)
    return A @ A.T


@cache
def root(d: int) -> np.ndarray:
    """Return the symmetric square root of the matrix."""
    values, V = np.linalg.eigh(matrix(d))
    return (V * np.sqrt(values)) @ V.T


def groups(d: int) -> tuple[tuple[int, ...], ...]:
    """Return groups of columns of sizes 1, 2, 2, ..., not in their order."""
    return ((d - 1,), *(tuple(range(k, min(k + 2, d - 1))) for k in range(0, d - 1, 2)))


def prices(d: int) -> np.ndarray:
    """Return the weights of the weighted l1 norm."""
    return np.linspace(0.7, 2.0, d)


#: ||v|| of the moves of a cost, along the last axis.
NORMS = {
    "euclidean": lambda v: np.sqrt((v**2).sum(axis=-1)),
    "mahalanobis": lambda v: np.sqrt(((v @ root(v.shape[-1])) ** 2).sum(axis=-1)),
    "l1": lambda v: np.abs(v).sum(axis=-1),
    "linf": lambda v: np.abs(v).max(axis=-1),
    "three_halves": lambda v: (np.abs(v) ** 1.5).sum(axis=-1) ** (2 / 3),
    "group": lambda v: sum(np.sqrt((v[..., g] ** 2).sum(axis=-1)) for g in columns(v)),
    "weighted_l1": lambda v: np.abs(v) @ prices(v.shape[-1]),
}
#: ||beta||_* of coefficients.
DUAL_NORMS = {
    "euclidean": lambda w: np.linalg.norm(w),
    "mahalanobis": lambda w: np.linalg.norm(np.linalg.solve(root(len(w)), w)),
    "l1": lambda w: np.abs(w).max(),
    "linf": lambda w: np.abs(w).sum(),
    "three_halves": lambda w: (np.abs(w) ** 3).sum() ** (1 / 3),
    "group": lambda w: max(np.linalg.norm(w[g]) for g in columns(w)),
    "weighted_l1": lambda w: (np.abs(w) / prices(len(w))).max(),
}
#: The same as cones.
CONES = {
    "euclidean": lambda w: cp.norm(w, 2),
    "mahalanobis": lambda w: cp.norm(np.linalg.inv(root(w.size)) @ w, 2),
    "l1": lambda w: cp.norm(w, "inf"),
    "linf": lambda w: cp.norm(w, 1),
    "three_halves": lambda w: cp.norm(w, 3),
    "group": lambda w: cp.max(cp.hstack([cp.norm(w[g], 2) for g in columns(w)])),
    "weighted_l1": lambda w: cp.norm(cp.multiply(1 / prices(w.size), w), "inf"),
}


def whitening(norm: str, d: int) -> np.ndarray:
    """Return S with ||beta||_* = ||S beta||_2; refuse a cost that has none."""
    if norm == "euclidean":
        return np.eye(d)
    if norm == "mahalanobis":
        return np.linalg.inv(root(d))
    raise ValueError(
        f"the cut program of a smooth loss at order 2 needs a Euclidean dual norm, got {norm!r}: "
        "use 'euclidean' or 'mahalanobis', or order 1."
    )


def columns(v) -> list[list[int]]:
    """Return the groups of the columns of v."""
    return [list(g) for g in groups(v.shape[-1])]


class Optimum(NamedTuple):
    """The least worst-case risk, and coefficients that have it."""

    risk: float
    beta: np.ndarray
    b: float


def constant_model(curve: Curve, sample: Sample) -> Optimum:
    """Return the best model without slopes (the score 0 without an intercept)."""

    def risk(b: float) -> float:
        return float(sample.weights @ curve.of_scores(np.full(len(sample.y), b), sample.y))

    zero = np.zeros(sample.X.shape[1])
    if not sample.fit_intercept:
        return Optimum(risk(0.0), zero, 0.0)
    low, high = sample.y.min() - 5, sample.y.max() + 5
    found = minimize_scalar(risk, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    # a piecewise linear loss has its least mean at a kink
    best = min((*sample.y, -1.0, 1.0, found.x), key=risk)
    return Optimum(risk(best), zero, float(best))


class Program:
    """The conic program of a loss, a norm and an order on a sample, with delta as a parameter."""

    def __init__(self, curve: Curve, norm: str, order: int, sample: Sample) -> None:
        self.curve = curve
        self.sample = sample
        self.beta = cp.Variable(sample.X.shape[1])
        self.b = cp.Variable()
        z = sample.X @ self.beta + (self.b if sample.fit_intercept else 0.0)
        self.r = curve.residual(z, sample.y)
        self.delta = cp.Parameter(nonneg=True)
        self.root = cp.Parameter(nonneg=True)
        self.w = cp.Variable(nonneg=True)
        self.constraints = [CONES[norm](self.beta) <= self.w]
        self.square = np.isinf(curve.lipschitz)
        self.objective = self.order_one() if order == 1 else self.order_two()
        self.problem = cp.Problem(cp.Minimize(self.objective), self.constraints)

    def solve(self, delta: float) -> Optimum:
        """Return the optimum at a delta."""
        self.delta.value = delta
        self.root.value = np.sqrt(delta)
        value = precise(self.problem)
        if delta > 0 and 1e-8 < value < 0.01:
            # Clarabel's precision is absolute: again in units of the optimum
            scaled = cp.Problem(cp.Minimize(self.objective / value), self.constraints)
            value = value * precise(scaled)
        value = value**2 if self.square else value
        return Optimum(value, self.beta.value, float(self.b.value or 0.0))

    def order_one(self) -> cp.Expression:
        """Return mean l + delta Lip w."""
        mean = self.curve.mean(self.r, self.sample.weights)
        return mean + self.delta * self.curve.lipschitz * self.w

    def order_two(self) -> cp.Expression:
        if self.square:
            return self.root_of_the_square()
        lo, hi, kappa = self.curve.lo, self.curve.hi, self.curve.kappa
        weights = self.sample.weights
        # nu in units of sqrt(delta): delta w^2/(2 nu) = sqrt(delta) w^2/(2 unit)
        unit = cp.Variable(nonneg=True)
        nu = cp.Variable(nonneg=True)
        self.constraints.append(nu == self.root * unit)
        price = self.root * self.over(self.w, 2 * unit)
        if kappa == 0:
            R = self.r + nu * (lo + hi) / 2
            return price + weights @ cp.maximum(hi * R, lo * R) - nu * lo * hi / 2
        q = cp.Variable(nonneg=True)
        self.constraints.append(q >= kappa - nu)
        a = cp.Variable(len(weights))
        c = q + nu - kappa
        rest = self.r + c * (lo + hi) / 2 - a
        curved = self.over(cp.multiply(np.sqrt(weights), a), 2 * q)
        return price + curved + weights @ cp.maximum(hi * rest, lo * rest) - c * lo * hi / 2

    def root_of_the_square(self) -> cp.Expression:
        """Return (rms(r) + sqrt(delta) w)/sqrt(2 kappa), the root of the risk."""
        r = self.r if self.curve.lo < 0 else cp.pos(self.r)
        rms = cp.norm(cp.multiply(np.sqrt(self.sample.weights), r))
        return (rms + self.root * self.w) / np.sqrt(2 * self.curve.kappa)

    def over(self, numerator: cp.Expression, denominator: cp.Expression) -> cp.Variable:
        """Return a variable that is at least |numerator|^2/denominator, a rotated cone."""
        ratio = cp.Variable(nonneg=True)
        self.constraints.append(cp.quad_over_lin(numerator, denominator) <= ratio)
        return ratio


@cache
def program(curve: Curve, norm: str, order: int, sample: Sample) -> Program:
    """Return the program of a loss, a norm and an order, compiled once for all its deltas."""
    return Program(curve, norm, order, sample)


SHARES = np.array([0, 1e-4, 1e-2, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 0.9999, 1])
#: Early programs of a sequence need not be precise, and their cuts are often nearly parallel.
CUT_TOLERANCES = (1e-10, 1e-9, 1e-8, 1e-7)
FINE = expit(np.linspace(-40, 40, 161))


class Cuts:
    """The order-2 problem of a smooth loss over a growing set of tangents of each row."""

    def __init__(self, curve: Smooth, norm: str, sample: Sample) -> None:
        self.curve = curve
        self.norm = norm
        self.sample = sample
        n = len(sample.y)
        self.row = np.repeat(np.arange(n), len(SHARES))
        self.share = np.tile(SHARES, n)

    def solve(self, delta: float) -> Optimum:
        """Return the optimum, bracketed by the cut program and the value of its solution."""
        s = self.sample
        lower = -np.inf
        best = constant_model(self.curve, s)
        size, unit = 1.0, best.risk
        for _ in range(25):
            value, beta, b, nu = self.program(delta, size, unit)
            z = s.X @ beta + b
            w = float(DUAL_NORMS[self.norm](beta))
            lower = max(lower, value)
            found = Optimum(smooth_risk(self.curve, s, z, w, delta), beta, b)
            best = min(best, found, key=lambda model: model.risk)
            if best.risk - lower <= max(2e-8 * best.risk, 1e-11):
                return best
            size = max(w, 1e-6)
            unit = best.risk
            r = self.curve.offset - s.y * z if self.curve.task == LABELS else s.y - z
            for new in best_shares(self.curve, r, nu):
                self.row = np.append(self.row, np.arange(len(s.y)))
                self.share = np.append(self.share, new)
            self.thin()
        raise AssertionError(f"the reference is bracketed only by [{lower}, {best.risk}]")

    def program(self, delta: float, size: float, unit: float) -> tuple:
        """Return value, beta, b and nu; ``size`` and ``unit`` scale w and the value."""
        s = self.sample
        alpha, height = self.curve.tangent(self.share)
        # r = offset - yz or y - z: its value at z = 0 and its slope in z
        labels = self.curve.task == LABELS
        origin = (np.full(len(s.y), self.curve.offset) if labels else s.y)[self.row]
        slope = (-s.y if labels else -np.ones(len(s.y)))[self.row]
        ones = np.full((len(self.row), 1), float(s.fit_intercept))
        # nu in units of sqrt(delta) w
        scale = np.sqrt(delta) * size
        cuts = CutProgram(
            price=scale / unit,
            weights=s.weights,
            S=whitening(self.norm, s.X.shape[1]),
            row=self.row,
            slopes=(alpha * slope / unit)[:, None] * np.hstack([size * s.X[self.row], ones]),
            curvature=alpha**2 / 2 * scale / unit,
            height=(alpha * origin + height) / unit,
        )
        value, beta, b, _, nu = cuts.solve(CUT_TOLERANCES)
        return unit * value, size * beta, b, scale * nu

    def thin(self) -> None:
        """Drop the cuts that repeat another one of their row to 1e-4 of its size."""
        size = np.maximum(np.minimum(self.share, 1 - self.share), 1e-15)
        side = np.where(self.share > 0.5, -1, 1)
        key = np.stack([self.row, np.round(np.log(size) * 1e4) * side])
        keep = np.unique(key, axis=1, return_index=True)[1]
        self.row = self.row[keep]
        self.share = self.share[keep]


def best_shares(curve: Smooth, r: np.ndarray, nu: float) -> list[np.ndarray]:
    """Return the best share p of the slopes of each row below 1/2, and the best above."""
    found = []
    for grid in (FINE[FINE <= 0.5], FINE[FINE >= 0.5]):
        best = gain(curve, r[:, None], grid, nu).argmax(axis=1)
        low = grid[np.maximum(best - 1, 0)]
        high = grid[np.minimum(best + 1, len(grid) - 1)]
        # a cell of a factor e is halved to 1e-8 of p, whose square is what the value errs by
        for _ in range(27):
            # the derivative in p by bisection inside the cell of the grid
            p = np.minimum((low + high) / 2, 1 - 1e-16)
            alpha = curve.lo + curve.width * p
            rises = curve.scale * (np.log1p(-p) - np.log(p)) + curve.width * (r + nu * alpha) > 0
            low, high = np.where(rises, p, low), np.where(rises, high, p)
        found.append((low + high) / 2)
    return found


def gain(curve: Smooth, r: np.ndarray, p: np.ndarray, nu: float) -> np.ndarray:
    """Return alpha r - l*(alpha) + nu alpha^2/2."""
    alpha, height = curve.tangent(p)
    return alpha * r + height + nu * alpha**2 / 2


def smooth_risk(curve: Smooth, s: Sample, z: np.ndarray, w: float, delta: float) -> float:
    """Return the order-2 worst-case risk of scores z, a search over lam = w^2/(2 nu)."""
    if w * np.sqrt(delta) < 1e-14:
        return float(s.weights @ curve.of_scores(z, s.y))
    r = curve.offset - s.y * z if curve.task == LABELS else s.y - z

    def dual(log_lam: float) -> float:
        lam = np.exp(log_lam)
        nu = w**2 / (2 * lam)
        rows = np.max([gain(curve, r, p, nu) for p in best_shares(curve, r, nu)], axis=0)
        return float(lam * delta + s.weights @ rows)

    # the moves t <= Lip w/(2 lam) have the mean square delta
    top = np.log(curve.lipschitz * w / (2 * np.sqrt(delta))) + 1e-6
    found = minimize_scalar(
        dual, bounds=(top - 20, top), method="bounded", options={"xatol": 1e-9, "maxiter": 200}
    )
    return float(min(found.fun, dual(top)))


def optimum(loss: str, norm: str, order: int, sample: Sample, delta: float) -> Optimum:
    """Return the least worst-case risk and its model."""
    curve = CURVES[loss]
    if delta >= trivial_radius(norm, order, sample):
        return constant_model(curve, sample)
    if delta == 0 and np.isfinite(curve.lipschitz):
        # nothing moves: neither norm nor order matter
        return program(curve, "euclidean", 1, sample).solve(0.0)
    if isinstance(curve, Smooth) and order == 2:
        return Cuts(curve, norm, sample).solve(delta)
    return program(curve, norm, order, sample).solve(delta)


def trivial_radius(norm: str, order: int, sample: Sample) -> float:
    """Return a radius from which on no model is better than the constant ones.

    With the budget mean ||x||^order the adversary may move the score of each row by ||x|| w either
    way. The score of the constant model lies between, so that one end has at least its loss.
    """
    return float(sample.weights @ NORMS[norm](sample.X) ** order)


#: Moves t of a row in units of delta^(1/order). At order 2 the best one is within 0.6%, which
#: costs (0.6%)^2 of its price; at order 1 it is none or goes far.
NEAR = np.geomspace(1e-2, 1e2, 801)
FAR = np.geomspace(1e-2, 1e7, 101)


def brute_force(
    loss: str, norm: str, order: int, sample: Sample, beta: np.ndarray, b: float, delta: float
) -> float:
    """Return the worst-case risk over moves on a grid, by golden sections over the multiplier.

    It is below the supremum, by about 1e-5 of it.
    """
    curve = CURVES[loss]
    w = float(DUAL_NORMS[norm](beta))
    z = sample.X @ beta + b
    plain = curve.of_scores(z, sample.y)
    if delta == 0 or w == 0:
        return float(sample.weights @ plain)
    t = (FAR if order == 1 else NEAR) * delta ** (1 / order)
    y = sample.y[:, None]
    ahead = curve.of_scores(z[:, None] + w * t, y)
    behind = curve.of_scores(z[:, None] - w * t, y)
    moved = np.column_stack([plain, np.maximum(ahead, behind)])
    price = np.append(0.0, t**order)

    def dual(log_lam: float) -> float:
        lam = np.exp(log_lam)
        return float(lam * delta + sample.weights @ (moved - lam * price).max(axis=1))

    middle = np.log(sample.weights @ plain + w) - np.log(delta)
    return line_minimum(dual, middle - 40, middle + 40)
