r"""Independent optimum of the worst-case risk: cvxpy with Clarabel, nothing of otdro but its nouns.

The objectives are those of MATH.md, sections 2 and 3, with w = ||beta||_* a cone of its own:

================  ====================================================================
order 1           mean l + delta Lip w
squared (hinge)   (rms(r) + sqrt(delta) w)^2, r the residual or the positive part of 1 - m
absolute          mean |e| + sqrt(delta) w
hinge             min_s delta w^2/(4s) + mean (1 - m + s)_+
quantile          min_s delta w^2/(4s) + tau(1 - tau)s + mean rho_tau(e + (2 tau - 1)s)
Huber             min_lam lam delta + mean phi(e, 1 - nu), nu >= w^2/(2 lam), where
                  phi(e, q) = min_{s, p >= max(q, 0)} s^2/(2p) + M|e - s| + (p - q)M^2/2
logistic          min_lam lam delta + mean max_alpha { H(alpha) - alpha m + alpha^2 nu/2 }
================  ====================================================================

The last one has no finite conic form. With alpha on a grid it is one, and bounds the optimum from
below; the maximisers at its solution join the grid until the value of that solution is as low.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, replace
from functools import cache

import clarabel
import cvxpy as cp
import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import entr, expit, log_expit

TOLERANCES = (1e-11, 1e-10, 1e-9, 1e-8)


def precise(problem: cp.Problem, tolerances: tuple[float, ...] = TOLERANCES) -> float:
    """Return the optimum at the strictest tolerance that Clarabel attains."""
    # warm starts help some problems and break others with exponential cones: try both
    for tol, warm in itertools.product(tolerances, (True, False)):
        settings = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tol)
        settings |= {"reduced_" + name: tol for name in settings}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                problem.solve(solver=cp.CLARABEL, max_iter=300, warm_start=warm, **settings)
            except cp.SolverError:
                continue
        if problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return float(problem.value)
    raise AssertionError(f"Clarabel did not solve the reference: {problem.status}")


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows X, labels or targets y, weights of sum 1, and whether there is an intercept."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    fit_intercept: bool = True


@dataclass(frozen=True)
class Form:
    """A loss by name (with M or tau in ``parameter``), the norm of the cost by p, and the order.

    ``matrix`` holds Lambda of a Mahalanobis cost as nested tuples.
    """

    loss: str
    order: int
    p: float = 2
    matrix: tuple | None = None
    parameter: float = 0.5


def lipschitz(form: Form) -> float:
    """Return the largest slope of a loss."""
    tau = form.parameter
    return {"huber": tau, "quantile": max(tau, 1 - tau)}.get(form.loss, 1.0)


def whitening(form: Form, d: int) -> np.ndarray:
    """Return S with ||beta||_* = ||S beta||_q: Lambda^-1/2, or the identity."""
    if form.matrix is None:
        return np.eye(d)
    values, V = np.linalg.eigh(np.array(form.matrix))
    return (V / np.sqrt(values)) @ V.T


def dual_norm(form: Form, beta: np.ndarray) -> float:
    """Return ||beta||_*."""
    q = {1: np.inf, 2: 2, np.inf: 1}[form.p]
    return float(np.linalg.norm(whitening(form, len(beta)) @ beta, q))


def plain(form: Form, sample: Sample, z: np.ndarray) -> np.ndarray:
    """Return the loss of each row at scores z, written out by hand."""
    y, k = sample.y, form.parameter
    e = y - z
    return {
        "logistic": lambda: -log_expit(y * z),
        "hinge": lambda: np.maximum(0, 1 - y * z),
        "squared_hinge": lambda: np.maximum(0, 1 - y * z) ** 2,
        "squared": lambda: e**2,
        "absolute": lambda: np.abs(e),
        "huber": lambda: np.where(np.abs(e) <= k, e**2 / 2, k * np.abs(e) - k**2 / 2),
        "quantile": lambda: np.maximum(k * e, (k - 1) * e),
    }[form.loss]()


def constant_risk(form: Form, sample: Sample) -> float:
    """Return the least risk of a constant score (of the score 0 without an intercept)."""

    def risk(b: float) -> float:
        return float(sample.weights @ plain(form, sample, np.full(len(sample.y), b)))

    if not sample.fit_intercept:
        return risk(0.0)
    # piecewise linear losses have their minimum at a kink
    kinks = min(risk(b) for b in (*sample.y, -1.0, 1.0))
    low, high = sample.y.min() - 5, sample.y.max() + 5
    found = minimize_scalar(risk, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    return min(kinks, float(found.fun))


class Model:
    """The conic program of one form and sample, with delta as its parameter."""

    def __init__(self, form: Form, sample: Sample) -> None:
        self.form, self.sample = form, sample
        d = sample.X.shape[1]
        self.beta, self.b = cp.Variable(d), cp.Variable()
        self.z = sample.X @ self.beta + (self.b if sample.fit_intercept else 0.0)
        self.delta, self.root = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
        self.w = cp.Variable(nonneg=True)
        q = {1: "inf", 2: 2, np.inf: 1}[form.p]
        self.constraints = [cp.norm(whitening(form, d) @ self.beta, q) <= self.w]
        self.square = form.loss in ("squared", "squared_hinge")
        objective = self.one() if form.order == 1 else getattr(self, form.loss)()
        self.problem = cp.Problem(cp.Minimize(objective), self.constraints)

    def solve(self, delta: float) -> float:
        """Return the optimum at a delta."""
        self.delta.value, self.root.value = delta, np.sqrt(delta)
        value = precise(self.problem)
        if delta > 0 and 1e-8 < value < 0.01:
            # Clarabel's precision is absolute: again in units of the optimum
            scaled = cp.Problem(cp.Minimize(self.problem.objective.expr / value), self.constraints)
            value = value * precise(scaled)
        return value**2 if self.square else value

    def mean(self, rows: cp.Expression) -> cp.Expression:
        """Return the weighted mean of rows."""
        return self.sample.weights @ rows

    def one(self) -> cp.Expression:
        """Return mean l + delta Lip w."""
        y, k, z = self.sample.y, self.form.parameter, self.z
        loss = {
            "logistic": lambda: cp.logistic(-cp.multiply(y, z)),
            "hinge": lambda: cp.pos(1 - cp.multiply(y, z)),
            "absolute": lambda: cp.abs(y - z),
            "huber": lambda: cp.huber(y - z, k) / 2,
            "quantile": lambda: cp.maximum(k * (y - z), (k - 1) * (y - z)),
        }[self.form.loss]()
        return self.mean(loss) + self.delta * lipschitz(self.form) * self.w

    def squared(self) -> cp.Expression:
        """Return rms(e) + sqrt(delta) w, the root of the risk."""
        rows = cp.multiply(np.sqrt(self.sample.weights), self.sample.y - self.z)
        return cp.norm(rows) + self.root * self.w

    def squared_hinge(self) -> cp.Expression:
        """Return rms((1 - m)_+) + sqrt(delta) w, the root of the risk."""
        slack = cp.pos(1 - cp.multiply(self.sample.y, self.z))
        return cp.norm(cp.multiply(np.sqrt(self.sample.weights), slack)) + self.root * self.w

    def absolute(self) -> cp.Expression:
        """Return mean |e| + sqrt(delta) w."""
        return self.mean(cp.abs(self.sample.y - self.z)) + self.root * self.w

    def hinge(self) -> cp.Expression:
        """Return delta w^2/(4s) + mean (1 - m + s)_+, s scaled by sqrt(delta)."""
        s = cp.Variable(nonneg=True)
        slack = cp.pos(1 - cp.multiply(self.sample.y, self.z) + self.root * s)
        return self.root * self.over(self.w, 4 * s) + self.mean(slack)

    def quantile(self) -> cp.Expression:
        """Return delta w^2/(4s) + tau(1 - tau)s + mean rho(e + (2tau - 1)s), s scaled likewise."""
        tau, s = self.form.parameter, cp.Variable(nonneg=True)
        e = self.sample.y - self.z + (2 * tau - 1) * self.root * s
        price = self.root * (self.over(self.w, 4 * s) + tau * (1 - tau) * s)
        return price + self.mean(cp.maximum(tau * e, (tau - 1) * e))

    def ratio(self) -> tuple[cp.Expression, cp.Expression]:
        """Return lam delta and nu >= w^2/(2 lam), where mu = sqrt(delta) lam is the variable."""
        mu = cp.Variable(nonneg=True)
        return self.root * mu, self.root * self.over(self.w, 2 * mu)

    def over(self, numerator: cp.Expression, denominator: cp.Expression) -> cp.Variable:
        """Return a variable that is at least numerator^2/denominator, a rotated cone."""
        ratio = cp.Variable(nonneg=True)
        self.constraints.append(cp.quad_over_lin(numerator, denominator) <= ratio)
        return ratio

    def huber(self) -> cp.Expression:
        """Return lam delta + mean phi(e, 1 - nu)."""
        M, (price, nu) = self.form.parameter, self.ratio()
        s, p = cp.Variable(len(self.sample.y)), cp.Variable(nonneg=True)
        self.constraints.append(p >= 1 - nu)
        curved = self.over(cp.multiply(np.sqrt(self.sample.weights), s), 2 * p)
        linear = M * self.mean(cp.abs(self.sample.y - self.z - s))
        return price + curved + linear + (p - 1 + nu) * M**2 / 2


GRID = np.array([0, 1e-4, 1e-2, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.99, 1])


@cache
def model(form: Form, sample: Sample) -> Model:
    """Return the program of a form and a sample, compiled once for all its deltas."""
    return Model(form, sample)


@dataclass(frozen=True, eq=False)
class CutProgram:
    """Least price lam + weights rows, with ||S beta||^2 <= 2 lam nu and, for each cut of a row,

    rows >= slopes (beta, b) + curvature nu + height.

    Written for Clarabel itself: a sequence of these takes cvxpy ten times as long.
    """

    price: float
    weights: np.ndarray
    S: np.ndarray
    row: np.ndarray
    slopes: np.ndarray
    curvature: np.ndarray
    height: np.ndarray

    def solve(self, tolerances: tuple[float, ...]) -> tuple[float, np.ndarray, float, float, float]:
        """Return the value, beta, b, lam and nu at the strictest tolerance that is attained."""
        (k, d), n = (len(self.row), len(self.S)), len(self.weights)
        rows = sparse.csc_array((np.ones(k), (np.arange(k), self.row)), shape=(k, n))
        # ||(2 S beta, 2 lam - nu)|| <= 2 lam + nu is the cone
        one = np.ones((1, 1))
        A = sparse.block_array(
            [
                [self.slopes, None, self.curvature[:, None], -rows],
                [None, -2 * one, -one, None],
                [np.column_stack([-2 * self.S, np.zeros(d)]), None, None, None],
                [None, -2 * one, one, None],
            ],
            format="csc",
        )
        b = np.concatenate([-self.height, np.zeros(d + 2)])
        q = np.concatenate([np.zeros(d + 1), [self.price, 0.0], self.weights])
        cones = [clarabel.NonnegativeConeT(k), clarabel.SecondOrderConeT(d + 2)]
        nothing = sparse.csc_array((len(q), len(q)))
        for tol, ways in itertools.product(tolerances, WAYS):
            settings = strict(tol, *ways)
            found = clarabel.DefaultSolver(nothing, q, A, b, cones, settings).solve()
            if found.status in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
                x = np.array(found.x)
                return found.obj_val, x[:d], x[d], x[d + 1], x[d + 2]
        raise AssertionError(f"Clarabel did not solve the reference: {found.status}")


#: Whether Clarabel scales a program, whose units are those of the solution already, and whether it
#: regularises: nearly parallel cuts are solved by one of these where another makes no progress.
WAYS = ((False, True), (True, True), (True, False))


def strict(tol: float, equilibrated: bool, regularised: bool) -> clarabel.DefaultSettings:
    """Return settings under which nothing less than a tolerance counts as solved."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = 300
    settings.equilibrate_enable = equilibrated
    settings.static_regularization_enable = regularised
    for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas"):
        setattr(settings, name, tol)
        setattr(settings, "reduced_" + name, tol)
    return settings


class Cuts:
    """The order-2 logistic problem over a growing set of slopes alpha of each row."""

    def __init__(self, form: Form, sample: Sample) -> None:
        self.form, self.sample = form, sample
        n = len(sample.y)
        self.row, self.alpha = (v.ravel() for v in np.meshgrid(np.arange(n), GRID, indexing="ij"))

    def solve(self, delta: float) -> float:
        """Return the optimum, bracketed by the cut program and the value of its solution."""
        y, weights, n = self.sample.y, self.sample.weights, len(self.sample.y)
        lower, upper, units = -np.inf, 1.0, (1.0, 1.0, 1.0)
        for _ in range(25):
            value, beta, b, lam = self.program(delta, *units)
            m, w = y * (self.sample.X @ beta + b), dual_norm(self.form, beta)
            lower, upper = max(lower, value), min(upper, logistic_two(m, weights, w, delta))
            if upper - lower <= max(1e-8 * upper, 1e-11):
                return lower
            units = max(w, 1e-6), max(lam, 1e-9), upper
            for new in maximisers(m, w**2 / (2 * units[1])):
                self.row, self.alpha = np.append(self.row, np.arange(n)), np.append(self.alpha, new)
            self.thin()
        raise AssertionError(f"the reference is bracketed only by [{lower}, {upper}]")

    def program(self, delta: float, W: float, L: float, unit: float) -> tuple:
        """Return value, beta, b and lam, where W, L and unit scale w, lam and the value."""
        y, row, alpha = self.sample.y, self.row, self.alpha
        X = self.sample.X
        ones = np.full((len(row), 1), float(self.sample.fit_intercept))
        cuts = CutProgram(
            price=delta * L / unit,
            weights=self.sample.weights,
            S=whitening(self.form, X.shape[1]),
            row=row,
            slopes=-(alpha * y[row] / unit)[:, None] * np.hstack([W * X[row], ones]),
            curvature=alpha**2 / 2 * (W**2 / L) / unit,
            height=(entr(alpha) + entr(1 - alpha)) / unit,
        )
        # the bracket decides when to stop; at 1e-11 most of these programs fail and are tried again
        value, beta, b, lam, _ = cuts.solve(TOLERANCES[1:])
        return unit * value, W * beta, b, L * lam

    def thin(self) -> None:
        """Drop the cuts that repeat another one of their row to 1e-4 of its size."""
        size = np.maximum(np.minimum(self.alpha, 1 - self.alpha), 1e-15)
        side = np.where(self.alpha > 0.5, -1, 1)
        key = np.stack([self.row, np.round(np.log(size) * 1e4) * side])
        keep = np.unique(key, axis=1, return_index=True)[1]
        self.row, self.alpha = self.row[keep], self.alpha[keep]


FINE = expit(np.linspace(-40, 40, 4001))
HALVES = [(half, entr(half) + entr(1 - half)) for half in (FINE[FINE <= 0.5], FINE[FINE >= 0.5])]


def maximisers(m: np.ndarray, nu: float) -> list[np.ndarray]:
    """Return, for each row, the best alpha below and the best above 1/2 of the inner problem."""
    found = []
    for grid, entropy in HALVES:
        best = (entropy + grid**2 * (nu / 2) - m[:, None] * grid).argmax(axis=1)
        low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
        # a cell of 4% is halved to 1e-8 of alpha, whose square is what the value errs by
        for _ in range(22):
            # the derivative log((1 - a)/a) - m + a nu by bisection inside the cell of the grid
            middle = np.minimum((low + high) / 2, 1 - 1e-16)
            rising = np.log1p(-middle) - np.log(middle) - m + middle * nu > 0
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        found.append((low + high) / 2)
    return found


def logistic_two(m: np.ndarray, weights: np.ndarray, w: float, delta: float) -> float:
    """Return the order-2 worst-case logistic risk of margins m by a search over lam."""
    if w * np.sqrt(delta) < 1e-14:
        return float(-weights @ log_expit(m))

    def dual(log_lam: float) -> float:
        lam = np.exp(log_lam)
        nu = w**2 / (2 * lam)
        gains = [entr(a) + entr(1 - a) - a * m + a**2 * nu / 2 for a in maximisers(m, nu)]
        return float(lam * delta + weights @ np.max(gains, axis=0))

    top = np.log(w / (2 * np.sqrt(delta)))
    bottom = top + np.log(np.sqrt(weights @ expit(-m) ** 2)) - 1e-6
    found = minimize_scalar(
        dual, bounds=(bottom - 1e-6, top + 1e-6), method="bounded", options={"xatol": 1e-11}
    )
    return float(found.fun)


def optimum(form: Form, sample: Sample, delta: float) -> float:
    """Return the least worst-case risk."""
    if delta == 0 and form.loss not in ("squared", "squared_hinge"):
        form = replace(form, order=1)
    if form.loss == "logistic" and form.order == 2:
        return Cuts(form, sample).solve(delta)
    return model(form, sample).solve(delta)


def risk(form: Form, sample: Sample, z: np.ndarray, w: float, delta: float) -> float:
    """Return the worst-case risk of scores z with dual norm w, the formulas in numbers."""
    losses, k, mean = plain(form, sample, z), form.parameter, sample.weights
    if delta == 0 or w == 0:
        return float(mean @ losses)
    if form.order == 1:
        return float(mean @ losses + delta * lipschitz(form) * w)
    if form.loss in ("squared", "squared_hinge"):
        return float((np.sqrt(mean @ losses) + np.sqrt(delta) * w) ** 2)
    if form.loss == "absolute":
        return float(mean @ losses + np.sqrt(delta) * w)
    if form.loss == "logistic":
        return logistic_two(sample.y * z, mean, w, delta)
    e = sample.y - z

    def dual(log_lam: float) -> float:
        lam = np.exp(log_lam)
        nu = w**2 / (2 * lam)
        if form.loss == "hinge":
            rows = np.maximum(0, 1 - sample.y * z + nu / 2)
        elif form.loss == "quantile":
            rows = np.maximum(k * e + k**2 * nu / 2, (k - 1) * e + (k - 1) ** 2 * nu / 2)
        else:
            q = 1 - nu
            inside = (np.abs(e) <= k * q) & (q > 0)
            rows = np.where(
                inside, e**2 / (2 * (q if q > 0 else 1.0)), k * np.abs(e) - k**2 * q / 2
            )
        return float(lam * delta + mean @ rows)

    top = np.log(lipschitz(form) * w / (2 * np.sqrt(delta)))
    return line_minimum(dual, top - 40, top + 1e-6)


def line_minimum(f, low: float, high: float) -> float:
    """Return the minimum of a unimodal f by golden sections."""
    golden = (np.sqrt(5) - 1) / 2
    x, y = high - golden * (high - low), low + golden * (high - low)
    fx, fy = f(x), f(y)
    for _ in range(90):
        if fx <= fy:
            high, y, fy = y, x, fx
            x = high - golden * (high - low)
            fx = f(x)
        else:
            low, x, fx = x, y, fy
            y = low + golden * (high - low)
            fy = f(y)
    return float(min(fx, fy))
