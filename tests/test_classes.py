"""The softmax model at order 1: against cvxpy and scikit-learn, its invariances, its worst case."""

from time import process_time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from otdro import DROClassifier, discrepancy, robust_risk
from otdro.costs import Graph, Mahalanobis, Norm
from otdro.losses import Logistic, Softmax
from otdro.problem import Ball, Problem
from otdro.solvers import Exact, Quadrature
from reference import classes as reference
from solving import solution


def softmax(*arguments, **parameters):
    """Return a classifier that is a softmax model unless something else is asked for."""
    return DROClassifier(*arguments, **{"multi_class": "multinomial", **parameters})


def rows(n, d, K, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    z = X @ rng.normal(size=(d, K)) * 1.5 / np.sqrt(d) + rng.gumbel(size=(n, K))
    y = z.argmax(axis=1)
    y[:K] = np.arange(K)
    return X, y


def problem(X, y, K, cost, delta, **more):
    n = len(y)
    ball = Ball(cost, delta, 1)
    return Problem(X, y.astype(float), np.full(n, 1 / n), Softmax(K), ball, **more)


def shapes():
    """Return name, X, y, K: plain and degenerate ones."""
    rng = np.random.default_rng(1)
    X, y = rows(40, 4, 4)
    alone = np.where(y == 3, 0, y)
    alone[5] = 3
    found = {"eight": (*rows(80, 5, 8), 8), "one row": (X, alone, 4)}
    X, y = rows(40, 4, 3)
    found["collinear"] = (np.hstack([X, X[:, :2] @ rng.normal(size=(2, 3))]), y, 3)
    X, y = rows(30, 3, 3)
    found["separable"] = (X + 6 * np.eye(3)[y], y, 3)
    found["wide"] = (*rows(15, 40, 3), 3)
    X, y = rows(50, 4, 5)
    found["units"] = (X * [1, 100, 0.01, 1] + 5, y, 5)
    return found


SHAPES = shapes()
SWEEP = [(s, p, delta) for s in SHAPES for p in (2, 1, np.inf) for delta in (1.0, 0.1, 0.01, 1e-3)]
QUICK = [
    ("one row", 2, 0.03),
    ("separable", np.inf, 0.03),
    ("collinear", 1, 0.01),
    ("wide", 2, 0.1),
]


def agrees(shape, p, delta):
    X, y, K = SHAPES[shape]
    found = solution(Exact(tol=1e-8), problem(X, y, K, Norm(p), delta))
    assert found.converged
    best = reference.softmax(X, y, K, p, delta)
    assert abs(found.objective - best) <= 1e-6
    assert found.objective - found.gap <= best + 1e-7
    assert_allclose(found.coef.sum(axis=0), 0, atol=1e-4)


@pytest.mark.parametrize(("shape", "p", "delta"), QUICK)
def test_agrees_with_a_cone_program(shape, p, delta):
    agrees(shape, p, delta)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "p", "delta"), SWEEP)
def test_agrees_with_a_cone_program_everywhere(shape, p, delta):
    agrees(shape, p, delta)


def test_a_matrix_as_cost_is_the_euclidean_cost_of_other_columns():
    X, y = rows(40, 3, 3)
    L = np.array([[2.0, 0, 0], [0.5, 1, 0], [-0.3, 0.2, 0.5]])
    given = solution(Exact(1e-9), problem(X, y, 3, Mahalanobis(L @ L.T), 0.05))
    round_ = solution(Exact(1e-9), problem(X @ L, y, 3, Norm(2), 0.05))
    assert_allclose(given.objective, round_.objective, atol=1e-8)
    assert_allclose(given.coef, round_.coef @ L.T, atol=1e-4)


def test_no_ball_is_the_plain_fit_of_scikit_learn():
    X, y = rows(200, 4, 4)
    model = softmax(cost="euclidean", delta=0.0, tol=1e-12).fit(X, y)
    plain = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(X, y)
    assert_allclose(model.coef_, plain.coef_ - plain.coef_.mean(axis=0), atol=1e-6)
    assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("p", [2, 1, np.inf])
def test_two_classes_are_the_binary_model(p):
    X, y = rows(60, 3, 2)
    several = solution(Exact(1e-9), problem(X, y, 2, Norm(p), 0.05))
    weights = np.full(60, 1 / 60)
    signs = np.where(y == 1, 1.0, -1.0)
    one = solution(Exact(1e-9), Problem(X, signs, weights, Logistic(), Ball(Norm(p), 0.05, 1)))
    assert_allclose(several.objective, one.objective, atol=2e-8)
    assert_allclose(several.coef[1] - several.coef[0], one.coef, atol=1e-3)


@pytest.mark.parametrize("p", [2, np.inf])
def test_gaps_of_early_stops_hold(p):
    X, y = rows(60, 4, 4)
    case = problem(X, y, 4, Norm(p), 0.01)
    best = solution(Exact(1e-10), case)
    for max_iter in (1, 2, 3, 4):
        early = solution(Exact(1e-12, max_iter), case)
        assert early.objective - early.gap <= best.objective + 1e-12
        assert early.objective >= best.objective - best.gap


def test_relabelling_permutes_and_weights_repeat_rows():
    X, y = rows(60, 3, 3)
    names = np.array(["pear", "apple", "fig"])
    model = softmax(cost="euclidean", delta=0.03, tol=1e-10).fit(X, y)
    renamed = softmax(cost="euclidean", delta=0.03, tol=1e-10).fit(X, names[y])
    assert_array_equal(renamed.classes_, np.sort(names))
    assert_allclose(renamed.coef_, model.coef_[[1, 2, 0]], atol=1e-7)
    assert_array_equal(renamed.predict(X), names[model.predict(X)])
    twice = np.r_[np.arange(60), np.arange(20)]
    repeated = softmax(cost="euclidean", delta=0.03, tol=1e-10).fit(X[twice], y[twice])
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    weighted = softmax(cost="euclidean", delta=0.03, tol=1e-10).fit(X, y, weight)
    assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)


def test_one_vector_more_for_all_classes_changes_nothing():
    X, y = rows(40, 3, 3)
    model = softmax(cost="l1", delta=0.05).fit(X, y)
    moved = model.coef_ + np.array([3.0, -1.0, 2.0])
    risk = robust_risk(X, y, moved, model.intercept_, "logistic", model.ball_)
    assert_allclose(risk, model.robust_risk_, atol=1e-12)


@pytest.mark.parametrize("form", ["multinomial", "ovr"])
def test_a_path_of_three_classes_has_the_deltas_first(form):
    X, y = load_iris(return_X_y=True)
    grid = [0.3, 0.1, 0.03, 0.01]
    settings = {"cost": "euclidean", "deltas": grid, "cv": 2, "rule": "min"}
    model = DROClassifier(multi_class=form, **settings).fit(X[::3], y[::3])
    path = model.path_
    at = path.deltas.tolist().index(model.delta_)
    assert path.coef.shape == (4, 3, 4)
    assert path.intercept.shape == (4, 3)
    assert_allclose(path.coef[at], model.coef_, atol=1e-3)
    assert_allclose(path.intercept[at], model.intercept_, atol=1e-3)
    for name in ("empirical_risk", "robust_risk", "gap"):
        found = getattr(path, name)
        assert found.shape == ((4,) if form == "multinomial" else (4, 3))
        assert_allclose(found[at], getattr(model, f"{name}_"), atol=1e-5)


def test_a_default_fit_of_three_classes():
    X, y = load_iris(return_X_y=True)
    model = DROClassifier(cv=3, rule="min").fit(X, y)
    assert model.coef_.shape == (3, 4)
    for value in (model.robust_risk_, model.gap_, model.empirical_risk_, model.multiplier_):
        assert isinstance(value, float)
    assert isinstance(model.message_, str)
    assert model.path_.coef.shape == (len(model.path_.deltas), 3, 4)
    assert model.path_.coef[0] == pytest.approx(0, abs=1e-9)
    p = model.predict_proba(X)
    z = model.decision_function(X)
    assert_allclose(p, np.exp(z) / np.exp(z).sum(axis=1, keepdims=True))
    assert model.score(X, y) > 0.95
    ovr = softmax(cv=3, rule="min", multi_class="ovr").fit(X, y)
    assert ovr.robust_risk_.shape == (3,)


def test_sparse_rows_and_a_sparse_model():
    X, y = rows(60, 8, 3)
    X[np.abs(X) < 0.7] = 0
    dense = softmax(cost="linf", delta=0.15).fit(X, y)
    csr = softmax(cost="linf", delta=0.15).fit(sparse.csr_array(X), y)
    assert_allclose(csr.robust_risk_, dense.robust_risk_, atol=1e-6)
    assert np.sum(dense.coef_ == 0) >= 3


@pytest.mark.parametrize("cost", ["euclidean", "l1", "linf"])
def test_the_worst_case_of_all_classes(cost):
    X, y = rows(45, 3, 3)
    model = softmax(cost=cost, delta=0.05).fit(X, y)
    far = model.worst_case(reach=np.inf)
    assert not far.attained
    assert far.shortfall <= 1e-5 * model.robust_risk_
    near = model.worst_case(reach=1.0)
    usual = model.worst_case()
    longest = model.cost_.norm(usual.points - X[usual.origin]).max()
    assert_allclose(longest, model.cost_.norm(X - X.mean(axis=0)).max())
    for found in (far, near, usual):
        assert found.budget <= 0.05 * (1 + 1e-9)
        assert found.risk >= model.robust_risk_ - found.shortfall - 1e-9
        assert_allclose(np.bincount(found.origin, found.weights), 1 / 45)
        assert_array_equal(found.targets, y[found.origin])
    assert discrepancy((X, y, None), near, model.cost_, 1) <= 0.05 * (1 + 1e-9)
    lengths = model.cost_.norm(near.points - X[near.origin])
    assert_allclose(np.unique(lengths.round(9)), [0, 1])
    assert model.worst_case(reach=50.0).risk > near.risk
    around = model.worst_case(rows=(X[:9], y[:9]), reach=1.0)
    assert around.origin.max() <= 8


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"loss": "hinge"}, "needs the logistic loss.*multi_class='ovr'"),
        ({"order": 2}, "no one-dimensional inner problem: use order=1"),
        ({"cost": Graph(2)}, "needs a Euclidean cost, 'l1' or 'linf'"),
        ({"cost": lambda u, x: 0.0}, "not a function"),
        ({"delta": "theory"}, "no profile theory"),
        ({"solver": Quadrature()}, "solved exactly only"),
    ],
)
def test_a_softmax_model_that_does_not_exist(given, match):
    X, y = rows(30, 3, 3)
    settings = {"cost": "euclidean", "delta": 0.1, "multi_class": "multinomial"} | given
    with pytest.raises(ValueError, match=match):
        softmax(**settings).fit(X, y)


@pytest.mark.parametrize("given", [{"loss": "hinge"}, {"order": 2}, {"multi_class": "ovr"}])
def test_one_against_the_rest_where_there_is_no_softmax_model(given):
    X, y = rows(30, 3, 3)
    settings = {"cost": "euclidean", "delta": 0.1} | given
    assert DROClassifier(**settings).fit(X, y).robust_risk_.shape == (3,)


def test_folds_taken_together_are_those_taken_alone():
    X, y = rows(60, 4, 3)
    costs = [Norm(2), Mahalanobis(np.diag([1.0, 2.0, 0.5, 1.0])), Norm(2), Norm(2)]
    rng = np.random.default_rng(1)
    weights = rng.random((4, 60)) * (rng.random((4, 60)) > 0.2)
    # a class that a fold does not have leaves its coefficients open
    weights[3, y == 2] = 0.0
    whole = [problem(X, y, 3, cost, 0.1) for cost in costs]
    problems = [p.weighted(w / w.sum()) for p, w in zip(whole, weights, strict=True)]
    solver = Exact(1e-9)
    deltas = np.array([1.0, 0.1, 0.03, 0.01])
    paths = solver.solve(problems, deltas)
    for p, path, unique in zip(problems, paths, [True, True, True, False], strict=True):
        for delta, found in zip(deltas, path, strict=True):
            alone = solution(solver, p.at(float(delta)))
            assert found.converged
            assert_allclose(found.objective, alone.objective, atol=1e-8)
            if unique:
                assert_allclose(found.coef, alone.coef, atol=1e-3)


@pytest.mark.parametrize("seed", [0, 25, 27, 35])
def test_plain_fits_whose_minimiser_is_far_away_are_not_certified_early(seed):
    # some classes are separable from others, and the least risk is only approached
    X, y = rows(24, 4, 4, seed)
    found = softmax(cost="euclidean", delta=0.0).fit(X, y)
    assert_allclose(found.robust_risk_, reference.softmax(X, y, 4, 2, 0.0), atol=1e-6)
    assert found.gap_ <= 1e-6 * np.log(4)


@pytest.mark.parametrize("value", [0.1, 0.7])
def test_a_plain_fit_to_one_constant_column_is_the_constant_model(value):
    y = np.arange(20) % 3
    found = softmax(cost="euclidean", delta=0.0).fit(np.full((20, 1), value), y)
    assert_allclose(found.coef_, 0, atol=1e-6)
    assert found.gap_ <= 1e-12


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.02, 0.07])
def test_columns_that_depend_on_each_other_or_do_not_vary(delta):
    X, y = rows(48, 3, 6, 5)
    X = np.round(X)
    X = np.column_stack([X, X[:, 0], np.full(48, 0.7)])
    found = softmax(cost="euclidean", delta=delta).fit(X, y)
    assert_allclose(found.robust_risk_, reference.softmax(X, y, 6, 2, delta), atol=2e-6)
    assert found.gap_ <= 1e-6 * np.log(6)


@pytest.mark.parametrize("delta", [30.0, 1e6])
def test_a_large_delta_leaves_the_constant_model(delta):
    X, y = rows(30, 3, 3)
    found = solution(Exact(), problem(X, y, 3, Norm(2), delta))
    assert found.converged
    assert not found.coef.any()


def test_forms_that_are_not_known_or_not_needed():
    X, y = rows(30, 3, 3)
    with pytest.raises(ValueError, match="unknown multi_class='softmax'; known: auto"):
        softmax(multi_class="softmax", delta=0.1).fit(X, y)
    with pytest.raises(ValueError, match="leave support out"):
        softmax(multi_class="multinomial", delta=0.1).fit(X, y, support=X)
    with pytest.raises(ValueError, match="one worst case of all classes"):
        softmax(cost="euclidean", delta=0.1).fit(X, y).worst_case(1)
    binary = softmax(cost="euclidean", delta=0.1, multi_class="multinomial").fit(X, y > 0)
    assert "the softmax model is the binary one" in binary.message_
    assert binary.coef_.shape == (1, 3)
    halves = [(np.flatnonzero(y != k), np.flatnonzero(y == k)) for k in range(3)]
    with pytest.raises(ValueError, match=r"none of the 3 splits.*all classes"):
        softmax(cost="euclidean", cv=halves).fit(X, y)


# many classes


def clusters(n, d, K):
    """Return rows of K normal clusters, about as many of each."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % K)
    return 3 * rng.normal(size=(K, d))[y] + rng.normal(size=(n, d)), y


def test_more_than_20_classes_are_one_against_the_rest():
    few = DROClassifier(cost="euclidean", delta=5e-3).fit(*clusters(200, 3, 20))
    assert few.loss_.outputs == 20
    X, y = clusters(210, 3, 21)
    words = "21 classes are more than 20: multi_class='multinomial'"
    for given in (X, pytest.importorskip("dask.array").from_array(X, chunks=(100, 3))):
        many = DROClassifier(cost="euclidean", delta=5e-3).fit(given, y)
        assert many.loss_.outputs == 1
        assert len(many.message_) == 21
        assert words in many.message_[0]
    asked = softmax(cost="euclidean", delta=5e-3).fit(X, y)
    assert asked.loss_.outputs == 21
    assert words not in asked.message_
    # at order 2 there is no softmax model
    squared = DROClassifier(cost="euclidean", delta=1e-4, order=2).fit(X, y)
    assert words not in squared.message_[0]


def test_a_default_fit_of_35_classes_ends():
    X, y = clusters(400, 10, 35)
    start = process_time()
    model = DROClassifier().fit(X, y)
    # about 4 s; the softmax model took more than 6 minutes
    assert process_time() - start < 30
    assert model.score(X, y) > 0.9


def test_steps_of_a_sample_of_many_rows_end_certified():
    # from n d^2 = 2,000,000 on the first steps take the Hessian of some rows
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 20))
    scores = X @ rng.normal(size=(20, 3)) + rng.gumbel(size=(6000, 3))
    # a rare class, of which a sample has few rows
    y = np.where(scores[:, 2] > 9, 2, scores[:, :2].argmax(axis=1))
    for delta in (1e-3, 0.1):
        model = DROClassifier(cost="euclidean", order=1, delta=delta).fit(X, y)
        few = DROClassifier(cost="euclidean", order=1, delta=delta, tol=1e-9).fit(X, y)
        assert model.robust_risk_ - model.gap_ <= few.robust_risk_ <= model.robust_risk_ + 1e-12
        assert model.gap_ <= 1.2e-6
