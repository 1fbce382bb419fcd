"""Exact methods take few iterations: a wrong derivative, bound or step costs more of them.

Such a fault leaves the solution right, since every solution is certified: only the number of
iterations shows it. What is recorded are sums over ``DELTAS``, from cold starts at ``tol=1e-9``,
with NumPy 2.4 and SciPy 1.17.
"""

from dataclasses import replace

import numpy as np
import pytest

from otdro.costs import FeatureMap, Graph, Norm
from otdro.losses import Absolute, Hinge, Huber, Logistic, Squared, SquaredHinge
from otdro.losses.softmax import Softmax
from otdro.problem import Ball, Problem
from otdro.solvers import Exact
from solving import solution
from tables import COMBINATIONS, Case, make_cost, make_loss

DELTAS = (0.3, 0.03, 0.003)
#: Linear algebra libraries round differently, and the last step of a fit may be one more.
SLACK = 1.1


def iterations(problem):
    """Return the iterations of certified solutions at all deltas together."""
    found = [solution(Exact(tol=1e-9), problem.at(delta)) for delta in DELTAS]
    assert all(each.converged for each in found)
    return sum(each.n_iter for each in found)


def assert_no_more_than_allowed(problem):
    """A run cut short takes ``max_iter`` iterations at most, and states a gap that it has."""
    best = solution(Exact(tol=1e-9), problem)
    for max_iter in (1, 3):
        found = solution(Exact(tol=1e-9, max_iter=max_iter), problem)
        assert found.n_iter <= max_iter
        assert found.objective - found.gap <= best.objective * (1 + 1e-9)
        assert found.objective >= best.objective - best.gap


def assert_about(count, recorded):
    assert count <= SLACK * recorded + len(DELTAS) / 2, f"{count} iterations, {recorded} recorded"


#: By loss, order and cost: the sum over the shapes "tall", "wide" and "easy" of tables.py.
NORMS = {
    ("absolute", 1): {"euclidean": 69, "mahalanobis": 70, "l1": 78, "linf": 77},
    ("absolute", 2): {"euclidean": 72, "mahalanobis": 71, "l1": 85, "linf": 82},
    ("hinge", 1): {"euclidean": 98, "mahalanobis": 88, "l1": 103, "linf": 97},
    ("hinge", 2): {"euclidean": 85, "mahalanobis": 85, "l1": 103, "linf": 99},
    ("huber", 1): {"euclidean": 61, "mahalanobis": 61, "l1": 75, "linf": 79},
    ("huber", 2): {"euclidean": 72, "mahalanobis": 67},
    ("logistic", 1): {"euclidean": 43, "mahalanobis": 52, "l1": 82, "linf": 54},
    ("logistic", 2): {"euclidean": 45, "mahalanobis": 48},
    ("quantile", 1): {"euclidean": 73, "mahalanobis": 72, "l1": 88, "linf": 85},
    ("quantile", 2): {"euclidean": 69, "mahalanobis": 75, "l1": 86, "linf": 88},
    ("squared", 2): {"euclidean": 9, "mahalanobis": 9, "l1": 69, "linf": 70},
    ("squared_hinge", 2): {"euclidean": 69, "mahalanobis": 71, "l1": 82, "linf": 73},
}


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c)))
def test_norms(combination):
    loss, cost, order = combination
    total = 0
    for shape in ("tall", "wide", "easy"):
        case = Case(*combination, shape)
        s = case.sample
        ball = Ball(make_cost(cost, s.X.shape[1]), 0.1, order)
        problem = Problem(s.X, s.y, s.weights, make_loss(loss), ball, s.fit_intercept)
        total += iterations(problem)
    assert_no_more_than_allowed(problem)
    assert_about(total, NORMS[loss, order][cost])


RNG = np.random.default_rng(0)
X, S = RNG.normal(size=(40, 5)), RNG.normal(size=(30, 5))
SCORES = X @ [1, -1, 0.5, 0, 0]
NOISE = RNG.logistic(size=40)
TARGETS = {
    "classification": np.where(SCORES + NOISE > 0, 1.0, -1.0),
    "regression": SCORES + NOISE / 2,
    "classes": np.digitize(SCORES + NOISE, [-0.7, 0.7]),
}


def forty_rows(loss, ball, support=None):
    y = TARGETS["classes" if loss.outputs > 1 else loss.task]
    return Problem(X, y, np.full(40, 1 / 40), loss, ball, True, support)


#: Prices of labels and targets: loss, order, p of the norm, recorded.
PRICES = [
    (Logistic(), 1, 2, 35),
    (Logistic(), 1, 1, 27),
    (Logistic(), 1, np.inf, 30),
    (Logistic(), 2, 2, 47),
    (Hinge(), 1, 2, 37),
    (Hinge(), 1, 1, 33),
    (Hinge(), 1, np.inf, 42),
    (Hinge(), 2, 2, 48),
    (Hinge(), 2, 1, 41),
    (Hinge(), 2, np.inf, 54),
    (SquaredHinge(), 2, 2, 47),
    (SquaredHinge(), 2, 1, 35),
    (SquaredHinge(), 2, np.inf, 41),
    (Squared(), 2, 2, 15),
    (Squared(), 2, 1, 23),
    (Squared(), 2, np.inf, 25),
    (Absolute(), 1, 2, 12),
    (Absolute(), 1, 1, 27),
    (Absolute(), 1, np.inf, 33),
    (Absolute(), 2, 2, 30),
    (Absolute(), 2, 1, 30),
    (Absolute(), 2, np.inf, 31),
    (Huber(), 1, 2, 12),
    (Huber(), 1, 1, 24),
    (Huber(), 1, np.inf, 28),
    (Huber(), 2, 2, 27),
]


@pytest.mark.parametrize(("loss", "order", "p", "recorded"), PRICES, ids=repr)
def test_prices_of_labels_and_targets(loss, order, p, recorded):
    price = "label_cost" if loss.task == "classification" else "target_cost"
    problem = forty_rows(loss, Ball(Norm(p), 0.1, order, **{price: 0.5}))
    assert_about(iterations(problem), recorded)
    assert_about(iterations(replace(problem, fit_intercept=False)), 1.1 * recorded)


@pytest.mark.parametrize(("p", "recorded"), [(2, 10), (1, 14), (np.inf, 10)])
def test_several_classes(p, recorded):
    problem = forty_rows(Softmax(), Ball(Norm(p), 0.1, 1))
    assert_about(iterations(problem), recorded)
    assert_no_more_than_allowed(problem)


#: Finite places: loss, order, recorded with a support under a norm, and on a graph.
PLACES = [
    (Logistic(), 1, 54, 42),
    (Logistic(), 2, 41, 41),
    (Hinge(), 1, 63, 49),
    (Hinge(), 2, 48, 47),
    (SquaredHinge(), 1, 56, 41),
    (SquaredHinge(), 2, 38, 39),
    (Squared(), 1, 104, 73),
    (Squared(), 2, 56, 52),
    (Absolute(), 1, 101, 66),
    (Absolute(), 2, 44, 45),
    (Huber(), 1, 82, 66),
    (Huber(), 2, 56, 54),
]


@pytest.mark.parametrize(("loss", "order", "norm", "graph"), PLACES, ids=repr)
def test_finite_places(loss, order, norm, graph):
    problem = forty_rows(loss, Ball(Norm(2), 0.1, order), S)
    assert_about(iterations(problem), norm)
    assert_no_more_than_allowed(problem)
    assert_about(iterations(forty_rows(loss, Ball(Graph(8), 0.1, order), S)), graph)


def test_linearised_feature_map():
    ball = Ball(FeatureMap(linearised=True), 0.1, 2)
    assert_about(iterations(forty_rows(Logistic(), ball)), 8)
