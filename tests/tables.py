"""The tables that the tests run over: losses x costs x orders, shapes of data, radii."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from otdro import DROClassifier, DRORegressor, losses
from otdro.costs import Mahalanobis, Norm
from reference import conic

#: What each loss of ``losses.__all__`` is built with; the reference needs the number.
PARAMETER = {"huber": {"M": 0.8}, "quantile": {"tau": 0.3}}
COSTS = ("euclidean", "mahalanobis", "l1", "linf")
P = {"euclidean": 2, "mahalanobis": 2, "l1": 1, "linf": np.inf}
SHAPES = ("tall", "wide", "easy", "duplicated", "collinear", "weighted")
DELTAS = {"zero": 0.0, "tiny": 1e-6, "medium": 0.1, "huge": 1e4}


def covered(loss: str, cost: str, order: int) -> bool:
    """Whether issue 2 asks for an exact solution: else the library must refuse."""
    if order == 1:
        return bool(np.isfinite(make_loss(loss).lipschitz))
    return cost in ("euclidean", "mahalanobis") or loss not in ("logistic", "huber")


def make_loss(name: str):
    """Return the loss of a short name, with the parameter of the table."""
    return losses.KNOWN[name](**PARAMETER.get(name, {}))


def kind(loss: str):
    """Return the estimator of the task of a loss."""
    return DROClassifier if losses.KNOWN[loss].task == "classification" else DRORegressor


LOSSES = tuple(losses.KNOWN)
COMBINATIONS = tuple(
    (loss, cost, order) for loss in LOSSES for cost in COSTS for order in (1, 2)
    if covered(loss, cost, order)
)  # fmt: skip
REFUSED = tuple(
    (loss, cost, order) for loss in LOSSES for cost in COSTS for order in (1, 2)
    if not covered(loss, cost, order)
)  # fmt: skip


@cache
def data(shape: str, task: str) -> conic.Sample:
    """Return a sample of a shape: "easy" is separable, or has targets without noise."""
    rng = np.random.default_rng(SHAPES.index(shape))
    n, d = (8, 15) if shape == "wide" else (24, 4)
    X = rng.normal(size=(n, d)) + 0.3
    if shape == "duplicated":
        X = np.repeat(X[: n // 2], 2, axis=0)
    if shape == "collinear":
        X = np.column_stack([X[:, :2], X[:, 0] - 2 * X[:, 1], np.full(n, 3.0), np.zeros(n)])
    beta = np.resize([1.0, -2.0, 0.5, 0.0], X.shape[1])
    noise = rng.normal(size=n) * (shape != "easy")
    z = X @ beta + 0.7
    if task == "regression":
        y = z + noise
    else:
        y = np.where(z + 2 * noise > np.median(z + 2 * noise), 1.0, -1.0)
    weights = rng.integers(0, 4, size=n).astype(float) if shape == "weighted" else np.ones(n)
    return conic.Sample(X, y, weights / weights.sum(), shape != "weighted")


@cache
def matrix(d: int) -> np.ndarray:
    """Return a positive definite matrix of condition about 30."""
    A = np.random.default_rng(99).normal(size=(d, d)) / np.sqrt(d) + 1.5 * np.eye(d)
    return A @ A.T


def make_cost(name: str, d: int):
    """Return the cost of a name for d columns."""
    return Mahalanobis(matrix(d)) if name == "mahalanobis" else Norm(P[name])


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    loss: str
    cost: str
    order: int
    shape: str

    @property
    def sample(self) -> conic.Sample:
        """The data."""
        return data(self.shape, losses.KNOWN[self.loss].task)

    @property
    def form(self) -> conic.Form:
        """The case in the words of the reference."""
        d = self.sample.X.shape[1]
        lam = tuple(map(tuple, matrix(d))) if self.cost == "mahalanobis" else None
        values = PARAMETER.get(self.loss, {"": 0.5})
        return conic.Form(self.loss, self.order, P[self.cost], lam, next(iter(values.values())))

    def estimator(self, delta: float, **settings):
        """Return the unfitted estimator at ``tol=1e-9``."""
        cost = make_cost(self.cost, self.sample.X.shape[1])
        settings = {"tol": 1e-9, "fit_intercept": self.sample.fit_intercept} | settings
        return kind(self.loss)(
            make_loss(self.loss), cost=cost, order=self.order, delta=delta, **settings
        )

    def fit(self, delta: float, **settings):
        """Return the fitted estimator."""
        s = self.sample
        return self.estimator(delta, **settings).fit(s.X, s.y, sample_weight=s.weights)


@cache
def optimum(case: Case, delta: float) -> float:
    """Return the optimum of the reference; without a ball neither cost nor order matter."""
    plain = replace(case, cost="euclidean", order=2)
    if delta == 0 and case != plain:
        return optimum(plain, delta)
    return conic.optimum(case.form, case.sample, delta)


@cache
def constant(case: Case) -> float:
    """Return the risk of the best constant model, the unit of ``tol``."""
    return conic.constant_risk(case.form, case.sample)


@cache
def fitted(case: Case, delta: float) -> tuple:
    """Return the fitted estimator and the texts of the warnings on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = case.fit(delta)
    return model, [str(warning.message) for warning in caught]
