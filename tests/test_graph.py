"""Graph costs and finite support: the interior-point exchange against conic and linear programs."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import dijkstra
from sklearn.base import clone

from otdro import DROClassifier
from otdro.costs import FeatureMap, Graph, Mahalanobis, Norm
from otdro.losses import Absolute, Hinge, Huber, Logistic, Quantile, Squared, SquaredHinge
from otdro.problem import Ball, Problem
from otdro.solvers import Exact, Quadrature, Sinkhorn
from problems import over_all_pairs, support_places
from solving import solution


def sample(loss, delta=0.1, cost=None, n=25, m=40, d=3, seed=0, order=2):
    rng = np.random.default_rng(seed)
    X, S, beta = rng.normal(size=(n, d)), rng.normal(size=(m, d)), rng.normal(size=d)
    if loss.task == "classification":
        y = np.where(X @ beta + rng.logistic(size=n) > 0, 1.0, -1.0)
    else:
        y = X @ beta + rng.normal(size=n)
    ball = Ball(Graph(8) if cost is None else cost, delta, order)
    return Problem(X, y, np.full(n, 1 / n), loss, ball, True, S)


LOSSES = [Logistic(), Hinge(), SquaredHinge(), Squared(), Absolute(), Huber(), Quantile(tau=0.3)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_value_equals_the_program_over_all_pairs(loss, delta):
    problem = sample(loss, delta)
    found = solution(Exact(tol=1e-9), problem)
    assert found.converged
    assert_allclose(found.objective, over_all_pairs(problem)[0], rtol=1e-7)


@pytest.mark.parametrize(
    "cost", [Norm(1), Norm(2), Mahalanobis(np.diag([1.0, 2.0, 0.5]))], ids=repr
)
@pytest.mark.parametrize("order", [1, 2])
def test_any_cost_on_a_finite_support(cost, order):
    problem = sample(Logistic(), 0.1, cost, order=order)
    assert_allclose(
        solution(Exact(tol=1e-9), problem).objective, over_all_pairs(problem)[0], rtol=1e-7
    )


def test_the_risk_is_the_linear_program_of_the_adversary():
    """At the solution, max sum p_ij l(u_j, y_i) over masses within the budget, by HiGHS."""
    problem = sample(Logistic(), 0.2)
    found = solution(Exact(tol=1e-9), problem)
    _, cost, _ = support_places(problem)
    nodes = np.vstack([problem.X, problem.support])
    z = nodes @ found.coef + found.intercept
    gain = np.logaddexp(0, -np.outer(problem.y, z))
    n, m = cost.shape
    rows = np.kron(np.eye(n), np.ones((1, m)))
    limit = {"A_ub": cost.ravel()[None], "b_ub": [problem.ball.delta]}
    best = linprog(-gain.ravel(), **limit, A_eq=rows, b_eq=problem.weights, method="highs")
    assert_allclose(-best.fun, found.objective, rtol=1e-7)


def test_a_fine_support_tends_to_the_ball():
    """Support points along the worst directions: the value nears that of all of R^d from below."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1))
    y = np.where(X[:, 0] + rng.logistic(size=40) > 0, 1.0, -1.0)
    ball, weights = Ball(Norm(2), 0.05, 2), np.full(40, 1 / 40)
    grid = np.linspace(-6, 6, 3001)[:, None]
    whole = solution(Exact(), Problem(X, y, weights, Logistic(), ball)).objective
    finite = solution(Exact(), Problem(X, y, weights, Logistic(), ball, True, grid)).objective
    assert finite <= whole * (1 + 1e-6)
    assert_allclose(finite, whole, rtol=1e-4)


def test_without_moves_or_without_extra_points():
    problem = sample(Logistic(), 0.0)
    plain = Problem(problem.X, problem.y, problem.weights, Logistic(), Ball(Norm(2), 0.0, 2))
    assert_allclose(
        solution(Exact(), problem).objective, solution(Exact(), plain).objective, rtol=1e-5
    )
    rows = Problem(
        *(getattr(problem, k) for k in ("X", "y", "weights", "loss")), Ball(Graph(8), 0.1)
    )
    found = solution(Exact(), rows)
    assert found.converged
    assert "pairs kept" in found.message


def test_distance_to_nodes():
    line = np.array([[0.0], [1.0], [3.0], [6.0]])
    lengths = Graph(1).distance_to_nodes(line, None)
    assert_allclose(lengths, np.abs(line - line.T))
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(10, 2)), rng.normal(size=(30, 2))
    lengths = Graph(6).distance_to_nodes(X, S)
    assert lengths.shape == (10, 40)
    assert_allclose(np.diag(lengths), 0)
    straight = np.linalg.norm(X[:, None] - np.vstack([X, S])[None], axis=2)
    assert (lengths >= straight - 1e-12).all()
    edges = Graph(6).edges(np.vstack([X, S]))
    assert_allclose(lengths, dijkstra(edges + edges.T, indices=range(10)))
    scaled = Graph(6, base=Mahalanobis(4 * np.eye(2))).distance_to_nodes(X, S)
    assert_allclose(scaled, 2 * lengths)


def test_coinciding_nodes_are_joined():
    X = np.repeat(np.arange(6.0)[:, None], 2, axis=0)
    lengths = Graph(3).distance_to_nodes(X, None)
    assert np.isfinite(lengths).all()
    assert_allclose(lengths[0, 1], 0, atol=1e-9)


def test_bad_input_is_named():
    problem = sample(Logistic())
    apart = Problem(
        problem.X,
        problem.y,
        problem.weights,
        Logistic(),
        Ball(Graph(3), 0.1, 2),
        True,
        problem.support + 1000.0,
    )
    with pytest.raises(ValueError, match="2 components, and mass cannot cross"):
        solution(Exact(), apart)
    for block, words in ((problem.support[:, :2], "columns"), (problem.support * np.nan, "NaN")):
        other = Problem(
            *(getattr(apart, k) for k in ("X", "y", "weights", "loss", "ball")), True, block
        )
        with pytest.raises(ValueError, match=words):
            solution(Exact(), other)
    with pytest.raises(ValueError, match="k >= 1"):
        Graph(0).check(3)
    with pytest.raises(ValueError, match="more than k nodes"):
        Graph(10).distance_to_nodes(problem.X[:5], None)


def test_settings_survive():
    cost = Graph(4, base=Norm(2))
    for copy in (clone(cost), pickle.loads(pickle.dumps(cost))):
        assert repr(copy) == repr(cost)


def test_the_base_gives_edges_their_length():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    plain, edges = Graph(4), {p: Graph(4, base=Norm(p)).edges(X).tocoo() for p in (1, 2, np.inf)}
    assert_allclose(plain.edges(X).toarray(), edges[2].toarray())
    for p, graph in edges.items():
        i, j = graph.coords
        assert_allclose(graph.data, np.linalg.norm(X[i] - X[j], ord=p, axis=1))
    features = FeatureMap(metric=np.linspace(1, 2, 9))
    graph = Graph(4, base=features).edges(X).tocoo()
    i, j = graph.coords
    assert_allclose(graph.data**2, features.price(X[i], X[j]))


def test_a_feature_map_between_points():
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(25, 2)), rng.normal(size=(15, 2))
    y = np.where(X[:, 0] + rng.normal(size=25) > 0, 1, -1)
    model = DROClassifier(cost=FeatureMap(), order=2, delta=0.3, tol=1e-8).fit(X, y, support=S)
    worst = model.worst_case()
    assert_allclose(worst.risk, model.robust_risk_, atol=1e-7)
    price = model.cost_.price(worst.points, X[worst.origin])
    assert_allclose(worst.weights @ price, 0.3)
    assert DROClassifier(cost=FeatureMap(), order=2).fit(X, y, support=S).delta_ > 0


@pytest.mark.parametrize("solver", ["smoothed", Quadrature(), Sinkhorn()], ids=str)
def test_only_the_exact_solver_takes_a_support(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    model = DROClassifier(cost="euclidean", order=2, delta=0.1, solver=solver)
    with pytest.raises(ValueError, match="solver='exact'"):
        model.fit(X, y, support=X + 1)


def test_a_sparse_support():
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(25, 3)), rng.normal(size=(10, 3))
    y = np.where(X[:, 0] + rng.normal(size=25) > 0, 1, -1)
    model = DROClassifier(cost="euclidean", order=2, delta=0.1)
    dense = model.fit(X, y, support=S).robust_risk_
    thin = model.fit(sparse.csr_array(X), y, support=sparse.csr_array(S)).robust_risk_
    assert_allclose(thin, dense, rtol=1e-7)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: type(v).__name__)
def test_a_graph_over_identical_rows(loss):
    """Neighbours are distinct places, so that copies of a row take no edge away from it."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(24) % 3 > 0, 1.0, -1.0)
    weights = np.full(24, 1 / 24)
    once = Problem(np.full((24, 2), 0.1), y, weights, loss, Ball(Graph(5), 0.1))
    assert solution(Exact(), once).converged
    # each of two places has more copies than the graph has neighbours
    X = np.repeat(rng.normal(size=(2, 2)), 12, axis=0)
    pair = Problem(X, y, weights, loss, Ball(Graph(5), 0.1))
    plain = Problem(X, y, weights, loss, Ball(Norm(2), 0.1), True, X)
    found = solution(Exact(), pair)
    assert found.converged
    assert_allclose(found.objective, solution(Exact(), plain).objective, rtol=2e-6)
