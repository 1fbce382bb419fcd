"""Rows of many columns: structured costs, kernels, and nothing of size d x d."""

import pickle
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import fractional_matrix_power

from otdro import DROClassifier, DRORegressor, load, robust_risk, save
from otdro import design as row_space_module
from otdro.costs import Mahalanobis, Norm
from otdro.costs.mahalanobis import LowRank, blend, identity
from otdro.design import Design, row_space
from otdro.losses import Logistic
from otdro.metrics import Association, Diagonal, GeometricMean, Learned, Spectral
from otdro.metrics.base import of_rows
from otdro.problem import Ball, Problem
from otdro.radius import profile as profile_module
from otdro.solvers import Exact
from otdro.solvers.euclidean import newton as newton_module
from otdro.worst_case import robust_risk_of
from solving import solution

RNG = np.random.default_rng(0)


def structured(d=7, k=2):
    return LowRank(RNG.uniform(0.5, 2, d), RNG.normal(size=(d, k)))


def sparse_rows(n, d, per_row, seed=0):
    """Return a CSR matrix whose first columns carry the labels."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1, -1)
    X = sparse.random_array((n, d), density=per_row / d, rng=rng, format="lil")
    for j in range(3):
        X[:, [j]] = (rng.normal(size=n) + 0.7 * y)[:, None]
    return sparse.csr_array(X), y


def test_products_are_those_of_the_matrix_written_out():
    M = structured()
    A, V = M.toarray(), RNG.normal(size=(7, 3))
    assert_allclose(M @ V, A @ V)
    assert_allclose(M.solve(V), np.linalg.solve(A, V))
    assert_allclose(M.trace, np.trace(A))
    L = M.factor
    theta = L.shortest(V)
    assert_allclose(L @ theta, V)
    assert_allclose((theta**2).sum(axis=0), np.einsum("ij,ij->j", V, np.linalg.solve(A, V)))
    assert_allclose(L.rows(sparse.csr_array(V.T)).toarray(), L.rows(V.T))
    both = blend([M, identity(7)], [0.3, 0.7])
    assert_allclose(both.toarray(), 0.3 * A + 0.7 * np.eye(7))


def test_structured_and_written_costs_agree():
    M = structured()
    one, other = Mahalanobis(M), Mahalanobis(M.toarray())
    W = RNG.normal(size=(2, 4, 7))
    for name in ("norm", "dual_norm", "direction"):
        assert_allclose(getattr(one, name)(W), getattr(other, name)(W))
    assert_allclose(one.distance(W[0], W[1]), other.distance(W[0], W[1]))
    zero = np.zeros(7)
    assert_allclose(one.norm(one.direction(zero)), 1)
    assert_allclose(pickle.loads(pickle.dumps(one)).norm(W), one.norm(W))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
def test_fits_under_both_agree(loss, n, order):
    if (loss, order) == ("squared", 1):
        pytest.skip("order 1 needs a Lipschitz loss")
    M = structured()
    X, y = RNG.normal(size=(n, 7)), np.where(np.arange(n) % 2, 1, -1)
    make = DRORegressor if loss == "squared" else DROClassifier
    fits = [
        make(loss=loss, cost=Mahalanobis(matrix), order=order, delta=0.05, tol=1e-9).fit(rows, y)
        for matrix, rows in ((M, X), (M, sparse.csr_array(X)), (M.toarray(), X))
    ]
    for fit in fits[:2]:
        assert_allclose(fit.robust_risk_, fits[2].robust_risk_, rtol=1e-7)
        assert_allclose(fit.coef_, fits[2].coef_, atol=1e-4)
        assert fit.gap_ <= 1e-8


@pytest.mark.parametrize(
    ("diagonal", "components", "words"),
    [
        (np.array([1.0, 0.0]), np.ones((2, 1)), "smallest entry of a is 0"),
        (np.ones(2), np.ones((3, 1)), "needs a of shape"),
        (np.array([1.0, np.nan]), np.ones((2, 1)), "NaN"),
    ],
)
def test_a_bad_structured_matrix_is_told(diagonal, components, words):
    with pytest.raises(ValueError, match=words):
        Mahalanobis(LowRank(diagonal, components)).check(2)


def test_a_structured_matrix_of_another_size_is_told():
    with pytest.raises(ValueError, match="X has 8 features"):
        Mahalanobis(structured()).check(8)


def test_leading_directions_are_those_of_the_covariance():
    X = RNG.normal(size=(20, 60))
    C = np.cov(X.T, bias=True)
    for rows in (X, sparse.csr_array(X)):
        found = of_rows(Design(rows, center=X.mean(axis=0)), 50).power(0.5, 0.4)
        expected = fractional_matrix_power(0.6 * C * 60 / np.trace(C) + 0.4 * np.eye(60), 0.5).real
        assert_allclose(found.toarray(), expected * 60 / np.trace(expected), atol=1e-8)


def test_iterated_directions_are_those_of_the_decomposition():
    X = RNG.normal(size=(80, 100)) * 0.5 ** np.arange(100)
    C = np.cov(X.T, bias=True)
    size, V = np.linalg.eigh(C)
    size, V = size[-5:], V[:, -5:]
    rest = (np.trace(C) - size.sum()) / 95
    even = V @ np.diag(size - rest) @ V.T + rest * np.eye(100)
    exact = fractional_matrix_power(even * 50 / np.trace(C) + np.eye(100) / 2, 0.5).real
    exact *= 100 / np.trace(exact)
    for rows in (X, RNG.permutation(X)):
        found = of_rows(Design(rows, center=X.mean(axis=0)), 5).power(0.5, 0.5)
        assert_allclose(found.toarray(), exact, atol=1e-8)


def test_the_kernel_replaces_the_decomposition(monkeypatch):
    X = RNG.normal(size=(12, 40))
    center = X.mean(axis=0)
    for rows in (X, sparse.csr_array(X)):
        design = Design(rows, center=center)
        assert_allclose(design.kernel(), (X - center) @ (X - center).T, atol=1e-12)
        monkeypatch.setattr(row_space_module, "DECOMPOSE_UP_TO", 0)
        small, span = row_space(design)
        eta = RNG.normal(size=small.d)
        assert_allclose(design.scores(span.lift(eta)), small.scores(eta), atol=1e-9)
        assert_allclose(span.drop(span.lift(eta)), eta, atol=1e-8)


def test_the_sum_of_squares_of_a_gram_matrix_comes_from_the_kernel():
    X, D = RNG.normal(size=(9, 30)), RNG.uniform(size=9)
    for n in (9, 3):
        for rows in (X[:n], sparse.csr_array(X[:n])):
            design = Design(rows, center=X.mean(axis=0))
            assert_allclose(design.gram_squares(D[:n, None]), np.sum(design.gram(D[:n]) ** 2))


def test_a_learned_cost_of_many_columns_learns_and_is_certified():
    X, y = sparse_rows(80, 5_000, 20)
    model = DROClassifier().fit(X, y)
    assert isinstance(model.cost_.matrix, LowRank)
    assert_allclose(model.cost_.matrix.trace, 5_000)
    assert set(model.cost_.weights_) > {"Euclidean"}
    assert "structured, by Spectral and Association" in model.message_
    spread = np.ptp(model.cost_.matrix.diagonal) + np.abs(model.cost_.matrix.components).max()
    assert spread > 1e-3
    assert model.gap_ <= 1e-6 * np.log(2)
    risk = robust_risk(X, y, model.coef_[0], model.intercept_[0], Logistic(), model.ball_)
    assert_allclose(risk, model.robust_risk_, rtol=1e-8)


def test_nothing_has_as_many_entries_as_columns_squared():
    X, y = sparse_rows(60, 20_000, 30)
    tracemalloc.start()
    DROClassifier(delta="cv", cv=3).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # one array of 20,000 x 20,000 numbers is 3.2 GB
    assert peak < 300e6


def test_the_order_of_the_rows_decides_nothing():
    X, y = sparse_rows(40, 2_500, 20)
    order = np.random.default_rng(1).permutation(40)
    matrices = [Learned().wide().matrices(X[rows], y[rows]) for rows in (np.arange(40), order)]
    v = RNG.normal(size=2_500)
    for one, other in zip(*matrices, strict=True):
        assert_allclose(one @ v, other @ v, rtol=1e-9)


def test_learners_without_structure_are_left_out():
    X, y = sparse_rows(30, 2_100, 10)
    with pytest.warns(UserWarning, match="X has 2100 columns.*the cost is Euclidean"):
        model = DROClassifier(cost=Learned([GeometricMean()]), delta=0.1).fit(X, y)
    assert isinstance(model.cost_, Norm)
    kept = Learned([GeometricMean(), Diagonal()]).wide().learners
    assert [type(learner) for learner in kept] == [Diagonal]
    with pytest.raises(ValueError, match="use power > 0"):
        Spectral(power=-0.5).fit(X)


def test_sparse_steps_agree_with_reduced_ones():
    X, y = sparse_rows(150, 2_200, 5)
    weights = np.full(150, 1 / 150)
    problem = Problem(X, y.astype(float), weights, Logistic(), Ball(Norm(2), 0.05, 1))
    fits = [
        solution(Exact(tol=1e-9), problem),
        solution(Exact(tol=1e-9), Problem(X.toarray(), *vars_of(problem))),
    ]
    assert all(fit.converged for fit in fits)
    assert_allclose(fits[0].objective, fits[1].objective, rtol=1e-8)
    assert_allclose(fits[0].coef, fits[1].coef, atol=1e-4)


def vars_of(problem):
    """Return the fields of a problem after its rows."""
    return problem.y, problem.weights, problem.loss, problem.ball


def test_a_structured_cost_has_the_table_of_the_matrix_written_out():
    M = structured()
    one, other = Mahalanobis(M).table(), Mahalanobis(M.toarray()).table()
    scale = np.r_[0.0, RNG.uniform(0.5, 2, 6)]
    pairs = [(one, other)]
    pairs.append(tuple(Mahalanobis(A).table(scale=scale) for A in (M, M.toarray())))
    for ours, written in pairs:
        assert_allclose(ours.price, written.price)
        for name in ("cheapest", "most_expensive"):
            a, b = getattr(ours, name), getattr(written, name)
            assert_allclose(a.price, b.price)
            assert_allclose(a.loadings, b.loadings, atol=1e-6)


def test_a_wide_model_is_saved(tmp_path):
    X, y = sparse_rows(30, 2_100, 20)
    model = DROClassifier(delta=0.5).fit(X, y)
    assert isinstance(model.cost_.matrix, LowRank)
    save(model, tmp_path / "wide.skops")
    again = load(tmp_path / "wide.skops")
    assert_allclose(again.decision_function(X), model.decision_function(X))
    assert_allclose(again.cost_.dual_norm(model.coef_[0]), model.cost_.dual_norm(model.coef_[0]))
    assert DROClassifier(cost=model.cost_, delta="theory").fit(X, y).delta_ > 0


def test_the_spectrum_of_wide_rows_is_that_of_their_kernel(monkeypatch):
    design, D = Design(RNG.normal(size=(4, 9))), RNG.uniform(size=4)
    written = np.linalg.eigvalsh(profile_module._smaller_gram(design, D))
    monkeypatch.setattr(profile_module, "WRITTEN_UP_TO", 3)
    kernel = profile_module._smaller_gram(design, D)
    assert_allclose(np.linalg.eigvalsh(kernel), written[5:], atol=1e-12)


def test_theory_of_order_two_refuses_wide_rows():
    X, y = sparse_rows(30, 2_100, 20)
    with pytest.raises(ValueError, match="X has 2100 columns, more than 2000"):
        DRORegressor(cost="euclidean", delta="theory").fit(X, y)


def test_a_wide_model_that_learns_nothing_is_told_so():
    X, _ = sparse_rows(40, 2_100, 20)
    y = np.where(np.random.default_rng(5).random(40) < 0.5, 1, -1)
    X = X.multiply(np.r_[1e6, np.ones(2_099)][None]).tocsr()
    with pytest.warns(UserWarning, match="columns are of very different scale"):
        DROClassifier().fit(X, y)


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_sparse_steps_without_the_centre_end_where_dense_ones_do(unit):
    # gradients are measured in units of rho, so that the unit of X changes no accuracy
    X, y = sparse_rows(60, 2_100, 5)
    weights = np.full(60, 1 / 60)
    ball = Ball(Norm(2), 0.02 * unit, 1)
    thin = solution(
        Exact(tol=1e-9), Problem(unit * X, y.astype(float), weights, Logistic(), ball, True)
    )
    rows = unit * X.toarray()
    full = solution(
        Exact(tol=1e-9), Problem(rows, y.astype(float), weights, Logistic(), ball, True)
    )
    assert thin.converged
    assert_allclose(thin.objective, full.objective, rtol=3e-9)
    assert_allclose(unit * thin.coef, unit * full.coef, atol=1e-4)
    assert_allclose(thin.intercept, full.intercept, atol=1e-4)


def test_sparse_wide_folds_are_solved_in_step_as_alone():
    n, d = 60, 2100
    X, y = sparse_rows(n, d, 20)
    loss, solver, problems = Logistic(), Exact(tol=1e-8), []
    for k, cost in enumerate([Norm(2), Mahalanobis(structured(d, 3)), Mahalanobis(identity(d))]):
        weights = np.ones(n)
        weights[k::5] = 0.0
        problems.append(Problem(X, y, weights / weights.sum(), loss, Ball(cost, 0.1, 1)))
    deltas = np.array([10.0, 0.2, 0.1, 0.03])
    for problem, found in zip(problems, solver.solve(problems, deltas), strict=True):
        for delta, mine in zip(deltas, found, strict=True):
            alone = solution(solver, problem.at(delta))
            assert mine.converged
            assert_allclose(mine.objective, alone.objective, atol=2e-8)
            risk = robust_risk_of(problem.at(delta), mine.coef, mine.intercept)
            assert_allclose(risk, mine.objective, rtol=1e-9)


def test_the_path_of_sparse_wide_rows_is_solved_in_step_with_its_folds():
    n, d = 60, 2100
    X, y = sparse_rows(n, d, 20)
    solver, costs = Exact(tol=1e-8), [Mahalanobis(structured(d, 3)), Norm(2)]
    problem = Problem(X, y, np.full(n, 1 / n), Logistic(), Ball(Norm(2), 0.1, 1))
    held, deltas = np.split(np.arange(n), 2), np.array([10.0, 0.2, 0.1, 0.03])
    folds = []
    for rows, cost in zip(held, costs, strict=True):
        weights = np.full(n, 2 / n)
        weights[rows] = 0.0
        folds.append(Problem(X, y, weights, Logistic(), Ball(cost, 0.1, 1)))
    path, *paths = solver.solve([problem, *folds], deltas, tols=[0.0, 1e-4, 1e-4])
    for delta, mine in zip(deltas, path, strict=True):
        assert mine.converged
        assert mine.gap <= 1e-8 * np.log(2)
        assert_allclose(mine.objective, solution(solver, problem.at(delta)).objective, atol=2e-8)
    for fold, found in zip(folds, paths, strict=True):
        for delta, mine in zip(deltas, found, strict=True):
            assert mine.gap <= 1e-4 * np.log(2)
            alone = solution(solver, fold.at(delta))
            assert_allclose(mine.objective, alone.objective, atol=2e-4)


def test_wide_rows_of_torch_take_the_steps_of_numpy(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(newton_module, "REDUCE_UP_TO", 0)
    n, solver, ball = 30, Exact(tol=1e-9), Ball(Norm(2), 0.5, 1)
    X = np.random.default_rng(0).normal(size=(n, 2100))
    y, weights = np.where(X[:, 0] > 0, 1.0, -1.0), np.full(n, 1 / n)
    mine = solution(solver, Problem(X, y, weights, Logistic(), ball))
    parts = [torch.asarray(part) for part in (X, y, weights)]
    its = solution(solver, Problem(*parts, Logistic(), ball))
    assert mine.converged
    assert its.converged
    assert_allclose(its.objective, mine.objective, rtol=1e-12)


def fewer_rows(n=60, d=300, seed=2):
    """Return rows with more columns than there are rows, of which three tell of the label."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.where(X[:, :3].sum(axis=1) + rng.standard_normal(n) > 0, 1, -1)


def test_what_fewer_rows_than_columns_teach_is_structured_and_exact():
    X = fewer_rows()[0]
    C = np.cov(X.T, bias=True)
    w, V = np.linalg.eigh((C * 300 / np.trace(C) + np.eye(300)) / 2)
    Lam = (V * np.sqrt(w)) @ V.T
    found = Spectral().fit(X).metric_
    assert isinstance(found, LowRank)
    assert_allclose(found.toarray(), Lam * 300 / np.trace(Lam), atol=1e-10)
    # a negative power has its largest prices across the rows, which no FF' can say
    assert isinstance(Spectral(-0.5).fit(X).metric_, np.ndarray)
    assert isinstance(Spectral().fit(fewer_rows(301)[0]).metric_, np.ndarray)


def test_a_default_fit_to_fewer_rows_than_columns_is_structured_and_certified():
    X, y = fewer_rows()
    model = DROClassifier(tol=1e-8).fit(X, y)
    assert isinstance(model.cost_.matrix, LowRank)
    assert "X has 300 columns, more than the 60 rows and 256 up to which" in model.message_
    assert model.gap_ <= 1e-7
    written = Mahalanobis(model.cost_.matrix.toarray())
    same = DROClassifier(cost=written, delta=model.delta_, tol=1e-8).fit(X, y)
    assert_allclose(same.robust_risk_, model.robust_risk_, rtol=1e-7)


@pytest.mark.parametrize(
    ("change", "given", "settings"),
    [
        (lambda X: sparse.csr_array(np.where(np.abs(X) > 1, X, 0.0)), {}, {}),
        (lambda X: X.astype(np.float32), {}, {}),
        (lambda X: X, {"sample_weight": np.arange(30) % 5}, {}),
        (lambda X: X, {"unlabelled": fewer_rows(9, 260, 1)[0]}, {}),
        (lambda X: X, {}, {"order": 2}),
        pytest.param(
            *(lambda X: X, {}, {"order": 2, "delta": "theory", "cost": Spectral()}),
            marks=pytest.mark.constant_model("30 rows bear no larger model"),
        ),
        (lambda X: X, {}, {"delta": "theory", "cost": Association()}),
        (lambda X: X, {}, {"label_cost": 1.0}),
        (lambda X: X, {}, {"loss": "hinge", "delta": 0.1}),
        (lambda X: X, {}, {"fit_intercept": False}),
    ],
)
def test_fits_to_fewer_rows_are_those_under_the_matrix_written_out(change, given, settings):
    X, y = fewer_rows(30, 260)
    X = change(X)
    model = DROClassifier(**{"cv": 2} | settings).fit(X, y, **given)
    assert isinstance(model.cost_.matrix, LowRank)
    written = settings | {"cost": Mahalanobis(model.cost_.matrix.toarray()), "delta": model.delta_}
    weight = {key: value for key, value in given.items() if key == "sample_weight"}
    same = DROClassifier(**written).fit(X, y, **weight)
    assert_allclose(same.robust_risk_, model.robust_risk_, rtol=1e-5 if X.dtype == "f4" else 1e-6)


def test_targets_and_classes_of_fewer_rows_than_columns():
    X, _ = fewer_rows(30, 260)
    model = DRORegressor(cv=2).fit(X, X[:, 0] + 0.1 * X[:, 1])
    assert isinstance(model.cost_.matrix, LowRank)
    assert model.gap_ <= 1e-6
    assert DROClassifier(cv=2).fit(X, np.arange(30) % 3).predict(X).shape == (30,)


def test_learners_that_are_named_learn_from_fewer_rows_than_columns_too():
    X, y = fewer_rows(30, 260)
    model = DROClassifier(cost=Learned([GeometricMean(), Spectral()]), cv=2).fit(X, y)
    assert [name.split(",")[0] for name in model.cost_.weights_] == [
        "Euclidean",
        "GeometricMean",
        "Spectral",
    ]
    assert model.cost_.structured


def test_leading_directions_of_rows_far_from_the_origin():
    rng = np.random.default_rng(4)
    spread = np.linalg.qr(rng.standard_normal((2_100, 40)))[0] * np.geomspace(100, 0.01, 40)
    X = rng.standard_normal((40, 40)) @ spread.T
    near, far = (Spectral(1.0).fit(rows).metric_ for rows in (X, X + 1e6))
    assert_allclose(far.trace, 2_100, rtol=1e-9)
    v = rng.standard_normal(2_100)
    assert_allclose(far @ v, near @ v, atol=1e-6 * np.linalg.norm(v))


def test_products_of_single_precision_rows_are_added_up_in_double():
    rng = np.random.default_rng(5)
    X = sparse.csr_array(np.where(rng.random((200, 300)) < 0.5, rng.standard_normal((200, 300)), 0))
    X = X.astype(np.float32)
    assert_allclose(Design(X).kernel(), (X.astype(float) @ X.astype(float).T).toarray(), atol=1e-11)


def test_units_far_apart_keep_a_structured_cost():
    X, y = fewer_rows()
    model = DROClassifier().fit(X * np.geomspace(1, 1e3, 300), y)
    assert "Standardised" in model.cost_.weights_
    assert isinstance(model.cost_.matrix, LowRank)


def test_structured_and_written_matrices_have_a_mean():
    a, F = np.arange(1.0, 5.0), np.ones((4, 1))
    found = blend([LowRank(a, F), np.eye(4)], [0.25, 0.75])
    assert_allclose(found, (np.diag(a) + 1) / 4 + 0.75 * np.eye(4))


def test_the_inverse_of_a_structured_matrix_is_that_of_its_entries():
    M = structured()
    found = profile_module._inverse(Mahalanobis(M), 7)
    assert_allclose(found, np.linalg.inv(M.toarray()), atol=1e-12)


def test_folds_of_order_two_start_from_a_solution_over_other_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(14, 40)), np.where(np.arange(14) % 2, 1, -1)
    X[:, 0] += y
    model = DROClassifier(order=2, delta=0.1, cv=2).fit(X, y)
    assert model.gap_ <= 1e-6 * np.log(2)


def test_dense_columns_of_sparse_rows_are_multiplied_apart():
    X = sparse.csr_array(np.hstack([RNG.normal(size=(9, 12)), RNG.normal(size=(9, 30))]))
    X[:, 12:] = sparse.csr_array(np.where(RNG.random((9, 30)) < 0.1, 1.0, 0.0))
    X = sparse.csr_array(X)
    for rows in (slice(None), slice(2, 5)):
        assert_allclose(Design(X).kernel(rows), (X.toarray() @ X.toarray().T)[rows], atol=1e-12)
