"""What a stranger writes by CONTRIBUTING.md, and the tables over it; otdro does not know these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from otdro import DROClassifier, DRORegressor, losses
from otdro.costs import Cost, Mahalanobis, Norm
from otdro.losses import Loss, PiecewiseQuadratic
from reference import strangers as reference
from reference.conic import Sample


class SmoothedHinge(PiecewiseQuadratic):
    """Hinge loss whose kink is an arc of radius 1/2: r^2 up to r = 1/2, r - 1/4 beyond."""

    task = "classification"
    slopes = (0.0, 1.0)
    kappa = 0.5


class TwoSidedHinge(PiecewiseQuadratic):
    """max(r, -r/4), r = 1 - yz: margins above 1 are punished a little too."""

    task = "classification"
    slopes = (-0.25, 1.0)
    kappa = 0.0


class HalfSquared(PiecewiseQuadratic):
    """e^2/2."""

    task = "regression"
    slopes = (-np.inf, np.inf)
    kappa = 1.0


class AsymmetricHuber(PiecewiseQuadratic):
    """e^2/2 for -0.3 <= e <= 0.7, linear beyond."""

    task = "regression"
    slopes = (-0.3, 0.7)
    kappa = 1.0


class LogCosh(Loss):
    """log cosh e."""

    task = "regression"
    lipschitz = 1.0
    smoothness = 1.0

    def value(self, z, y):
        e = np.abs(y - z)
        return e + np.log1p(np.exp(-2 * e)) - np.log(2)

    def derivative(self, z, y):
        return np.tanh(z - y)

    def curvature(self, z, y):
        return 1 - np.tanh(z - y) ** 2


class Softplus(Loss):
    """s log(1 + e^(-yz/s))."""

    task = "classification"
    lipschitz = 1.0

    def __init__(self, scale=2.0):
        self.scale = scale

    @property
    def smoothness(self):
        return 1 / (4 * self.scale)

    def value(self, z, y):
        return self.scale * np.logaddexp(0, -y * z / self.scale)

    def derivative(self, z, y):
        return -y * self._share(z, y)

    def curvature(self, z, y):
        p = self._share(z, y)
        return p * (1 - p) / self.scale

    def _share(self, z, y):
        # 1/(1 + e^(yz/s)) without overflow
        return (1 - np.tanh(y * z / (2 * self.scale))) / 2


class LThreeHalves(Cost):
    """The l_3/2 norm; its dual is the l_3 norm."""

    geometry = "norm"

    def norm(self, v):
        return np.linalg.norm(v, ord=1.5, axis=-1)

    def dual_norm(self, w):
        return np.linalg.norm(w, ord=3, axis=-1)

    def direction(self, w):
        w = np.asarray(w, dtype=float)
        size = self.dual_norm(w)[..., None]
        still = size == 0
        u = w / np.where(still, 1.0, size)
        return np.where(still, np.eye(w.shape[-1])[0], np.sign(u) * u**2)


class GroupNorm(Cost):
    """Sum over groups of columns of their Euclidean norms; its dual is the largest of them."""

    geometry = "norm"

    def __init__(self, groups):
        self.groups = groups

    def check(self, n_features):
        listed = sorted(j for group in self.groups for j in group)
        if listed != list(range(n_features)):
            raise ValueError(f"groups must hold each of {n_features} columns once, got {listed}.")

    def norm(self, v):
        return self._sizes(v).sum(axis=-1)

    def dual_norm(self, w):
        return self._sizes(w).max(axis=-1)

    def direction(self, w):
        w = np.asarray(w, dtype=float)
        best = self._sizes(w).argmax(axis=-1)[..., None]
        member = np.empty(w.shape[-1], dtype=int)
        for k, group in enumerate(self.groups):
            member[list(group)] = k
        v = np.where(member == best, w, 0.0)
        size = np.linalg.norm(v, axis=-1, keepdims=True)
        return np.where(size > 0, v / np.where(size > 0, size, 1.0), np.eye(w.shape[-1])[0])

    def _sizes(self, v):
        v = np.asarray(v, dtype=float)
        return np.stack([np.linalg.norm(v[..., list(g)], axis=-1) for g in self.groups], axis=-1)


class WeightedL1(Cost):
    """sum_j weights_j |v_j|; its dual is the largest |w_j|/weights_j."""

    geometry = "norm"

    def __init__(self, weights):
        self.weights = weights

    def check(self, n_features):
        if np.shape(self.weights) != (n_features,) or np.min(self.weights) <= 0:
            raise ValueError(f"weights must be {n_features} positive numbers.")

    def norm(self, v):
        return np.abs(v) @ np.asarray(self.weights)

    def dual_norm(self, w):
        return (np.abs(w) / self.weights).max(axis=-1)

    def direction(self, w):
        w = np.asarray(w, dtype=float)
        j = (np.abs(w) / self.weights).argmax(axis=-1)[..., None]
        sign = np.where(np.take_along_axis(w, j, -1) < 0, -1.0, 1.0)
        v = np.zeros_like(w)
        np.put_along_axis(v, j, sign / np.asarray(self.weights)[j], -1)
        return v


STRANGE_LOSSES = {
    "smoothed_hinge": SmoothedHinge,
    "two_sided_hinge": TwoSidedHinge,
    "softplus": Softplus,
    "half_squared": HalfSquared,
    "asymmetric_huber": AsymmetricHuber,
    "log_cosh": LogCosh,
}
BUILT_IN_LOSSES = {
    "logistic": losses.Logistic,
    "hinge": losses.Hinge,
    "squared_hinge": losses.SquaredHinge,
    "squared": losses.Squared,
    "absolute": losses.Absolute,
    "huber": lambda: losses.Huber(M=0.8),
    "quantile": lambda: losses.Quantile(tau=0.3),
}
COSTS = {
    "euclidean": lambda d: Norm(2),
    "mahalanobis": lambda d: Mahalanobis(reference.matrix(d)),
    "l1": lambda d: Norm(1),
    "linf": lambda d: Norm(np.inf),
    "three_halves": lambda d: LThreeHalves(),
    "group": lambda d: GroupNorm(reference.groups(d)),
    "weighted_l1": lambda d: WeightedL1(reference.prices(d)),
}
STRANGE_COSTS = ("three_halves", "group", "weighted_l1")
EUCLIDEAN = ("euclidean", "mahalanobis")


def make_loss(name: str) -> Loss:
    """Return the loss of a name."""
    return (STRANGE_LOSSES | BUILT_IN_LOSSES)[name]()


@dataclass(frozen=True)
class Case:
    """A loss, a cost and an order by their names, and the shape of the data."""

    loss: str
    cost: str
    order: int
    shape: str = "tall"

    def __str__(self) -> str:
        return f"{self.loss}-{self.cost}-{self.order}-{self.shape}"

    @property
    def curve(self) -> reference.Curve:
        return reference.CURVES[self.loss]

    @property
    def refusable(self) -> bool:
        """Order 2 of a curved Lipschitz loss needs a Euclidean cost."""
        return self.order == 2 and self.curve.curved and self.cost not in EUCLIDEAN

    @property
    def sample(self) -> Sample:
        return data(self.shape, self.curve.task)

    def make_cost(self) -> Cost:
        return COSTS[self.cost](self.sample.X.shape[1])

    def estimator(self, delta, **settings):
        """Return the unfitted estimator at ``tol=1e-8``."""
        kind = DROClassifier if self.curve.task == "classification" else DRORegressor
        settings = {"tol": 1e-8, "fit_intercept": self.sample.fit_intercept} | settings
        settings = {"cost": self.make_cost(), "order": self.order} | settings
        return kind(make_loss(self.loss), delta=delta, **settings)

    def fit(self, delta, **settings):
        s = self.sample
        return self.estimator(delta, **settings).fit(s.X, s.y, sample_weight=s.weights)

    def unit(self, risk: float) -> float:
        """Return what errors are relative to: the risk, not below 1% of the constant model's."""
        return max(risk, 1e-2 * constant(self))


def combinations(names, costs, order):
    """Return the cases that must be solved."""
    cases = [Case(loss, cost, order) for loss in names for cost in costs]
    solvable = [c for c in cases if order == 2 or np.isfinite(c.curve.lipschitz)]
    return [c for c in solvable if not c.refusable]


CASES = [
    *combinations(STRANGE_LOSSES, COSTS, 1),
    *combinations(STRANGE_LOSSES, COSTS, 2),
    *combinations(BUILT_IN_LOSSES, STRANGE_COSTS, 1),
    *combinations(BUILT_IN_LOSSES, STRANGE_COSTS, 2),
]
REFUSABLE = [
    case
    for loss in STRANGE_LOSSES | BUILT_IN_LOSSES
    for cost in COSTS
    if loss in STRANGE_LOSSES or cost in STRANGE_COSTS
    for case in [Case(loss, cost, 2)]
    if case.refusable
]


@cache
def data(shape: str, task: str) -> Sample:
    """Return "tall" rows, or "wide" ones with weights and without an intercept."""
    wide = shape == "wide"
    rng = np.random.default_rng(27 if wide else 4)
    n, d = (20, 8) if wide else (40, 4)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3) + 0.3
    z = X @ np.resize([1.0, -1.5, 0.5, 0.0], d) + 0.4
    noise = rng.normal(size=n)
    blur = 3.0 if wide else 1.0
    y = z + noise if task == "regression" else np.where(z + blur * noise > 0.3, 1.0, -1.0)
    weights = np.resize([1.0, 3.0, 2.0, 1.0, 0.0, 2.0], n) if wide else np.ones(n)
    return Sample(X, y, weights / weights.sum(), not wide)


BEYOND = "beyond the zero threshold"
DELTAS = {"tall": (0.0, 0.01, 0.1, BEYOND), "wide": (0.1,)}


def radius(case: Case, delta: float | str) -> float:
    """Return delta as a number."""
    if delta == BEYOND:
        return 2 * reference.trivial_radius(case.cost, case.order, case.sample)
    return delta


@cache
def fitted(case: Case, delta: float | str):
    """Return the fitted estimator."""
    return case.fit(radius(case, delta))


@cache
def constant(case: Case) -> float:
    """Return the risk of the best constant model, the unit of ``tol``."""
    return reference.constant_model(case.curve, case.sample).risk


@cache
def solved(case: Case, delta: float) -> reference.Optimum:
    """Return the solution of the reference; without a ball neither cost nor order matter."""
    plain = Case(case.loss, "euclidean", 2, case.shape)
    if delta == 0 and case != plain:
        return solved(plain, 0.0)
    return reference.optimum(case.loss, case.cost, case.order, case.sample, delta)


def optimum(case: Case, delta: float) -> float:
    """Return the least worst-case risk."""
    return solved(case, delta).risk


def brute_force(case: Case, beta: np.ndarray, b: float, delta: float) -> float:
    """Return the worst-case risk of a model over moves on a grid."""
    return reference.brute_force(case.loss, case.cost, case.order, case.sample, beta, b, delta)
