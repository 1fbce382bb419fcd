"""The worst-case distribution: in the ball, with the risk it claims, attained where it can be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LinearRegression

from otdro import Ball, DROClassifier, DRORegressor, WorstCase, discrepancy, losses
from otdro.costs import Mahalanobis, Norm
from otdro.problem import Problem
from otdro.worst_case import worst_case
from reference import conic
from tables import COMBINATIONS, DELTAS, Case, constant, fitted, make_loss

SHAPES = ("tall", "wide", "easy", "collinear", "weighted")
CASES = [Case(*c, shape) for c in COMBINATIONS for shape in SHAPES]


def name(case):
    return "-".join(map(str, (case.loss, case.cost, case.order, case.shape)))


def attained(case, model):
    """The table of MATH.md, section 1: where the supremum is a maximum."""
    s, coef = case.sample, np.ravel(model.coef_)
    if not coef.any():
        return True
    on = s.weights > 0
    z = (s.X @ coef + np.ravel(model.intercept_)[0])[on]
    m, e, k = s.y[on] * z, s.y[on] - z, case.form.parameter
    # a margin or residual at the kink itself counts as attained, but only to rounding
    kink = 1e-6
    table = {
        ("logistic", 1): np.full(m.shape, -1.0),
        ("hinge", 1): 1 - m,
        ("huber", 1): np.abs(e) - k,
        ("quantile", 1): (e if k > 0.5 else -e) + 0 * k,
        ("squared_hinge", 2): 1 - m,
    }
    slack = table.get((case.loss, case.order))
    if slack is None:
        return True
    if np.abs(slack).min() < kink and slack.max() < kink:
        return None
    return bool((slack > 0).any())


def at_radii():
    """Yield cases and radii: every combination meets every shape and radius, every shape too.

    The other two thirds of the full product are for test-all.
    """
    for case in CASES:
        combination = COMBINATIONS.index((case.loss, case.cost, case.order))
        place = combination + SHAPES.index(case.shape)
        for turn, delta in enumerate(("tiny", "medium", "huge")):
            marks = [] if (place + turn) % 3 == 0 else [pytest.mark.slow]
            yield pytest.param(case, delta, id=f"{name(case)}-{delta}", marks=marks)


@pytest.mark.parametrize(("case", "delta"), list(at_radii()))
def test_worst_case_is_in_the_ball_and_has_the_robust_risk(case, delta):
    model, _ = fitted(case, DELTAS[delta])
    found, s = model.worst_case(reach=np.inf), case.sample
    assert isinstance(found, WorstCase)
    # in the ball
    assert found.budget <= model.delta_ * (1 + 1e-9)
    moved = conic_distance(case, found.points - s.X[found.origin])
    assert_allclose(found.weights @ moved**case.order, found.budget, rtol=1e-6, atol=1e-15)
    # the masses of a row sum to its weight, labels stay
    assert (found.weights >= 0).all()
    mass = np.bincount(found.origin, found.weights, minlength=len(s.y))
    assert_allclose(mass, s.weights, rtol=1e-12, atol=1e-15)
    assert_allclose(found.targets, s.y[found.origin])
    # the risk it claims is the loss of its points, and the robust risk to the shortfall
    z = found.points @ np.ravel(model.coef_) + np.ravel(model.intercept_)[0]
    there = conic.Sample(found.points, found.targets, found.weights)
    unit = max(model.robust_risk_, 1e-2 * constant(case))
    assert_allclose(found.weights @ conic.plain(case.form, there, z), found.risk, atol=1e-7 * unit)
    assert found.risk >= model.robust_risk_ - found.shortfall - 1e-8 * unit
    assert found.risk <= model.robust_risk_ + 1e-8 * unit
    # attained
    expected = attained(case, model)
    assert expected is None or found.attained == expected
    # a distribution to which the optimum is the plain fit falls short of a model by its gap at most
    rest = model.gap_ if found.equilibrium else 0.0
    assert found.shortfall <= (1e-8 if found.attained else 1e-5) * unit + rest


def conic_distance(case, moves):
    if case.form.matrix is not None:
        return np.sqrt(np.einsum("ni,ij,nj->n", moves, np.array(case.form.matrix), moves))
    return np.linalg.norm(moves, ord=case.form.p, axis=1)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c)))
def test_discrepancy_to_the_data_is_within_the_budget(combination):
    case = Case(*combination, "tall")
    model, _ = fitted(case, DELTAS["medium"])
    found, s = model.worst_case(), case.sample
    data = (s.X, s.y, s.weights)
    distance = discrepancy(found, data, model.cost_, case.order)
    assert 0 < distance <= found.budget * (1 + 1e-9)
    assert_allclose(discrepancy(data, found, model.cost_, case.order), distance, rtol=1e-7)


@pytest.mark.parametrize("loss", losses.KNOWN)
def test_no_ball_no_move(loss):
    case = Case(loss, "euclidean", 2, "tall")
    model, _ = fitted(case, 0.0)
    found = model.worst_case()
    assert found.budget == 0
    assert_allclose(found.points, case.sample.X)
    assert_allclose(found.risk, model.empirical_risk_, rtol=1e-12)


def test_interpolation_moves_half_of_every_row_either_way():
    # a worst case of all residuals zero has its own form: x +- sqrt(delta) Lam^-1 beta/w
    rng = np.random.default_rng(0)
    X, beta = rng.normal(size=(30, 3)), np.array([1.0, -1.0, 2.0])
    lam, delta = np.diag([1.0, 4.0, 0.25]), 0.04
    ball = Ball(Mahalanobis(lam), delta, 2)
    problem = Problem(X, X @ beta, np.full(30, 1 / 30), losses.Squared(), ball)
    found = worst_case(problem, beta, 0.0)
    w = np.sqrt(beta @ np.linalg.solve(lam, beta))
    step = np.sqrt(delta) * np.linalg.solve(lam, beta) / w
    assert found.attained
    assert_allclose(found.risk, delta * w**2, rtol=1e-12)
    assert_allclose(found.budget, delta, rtol=1e-12)
    assert_allclose(np.abs((found.points - X[found.origin]) @ beta), np.sqrt(delta) * w)
    assert_allclose(np.abs(found.points - X[found.origin]), np.tile(np.abs(step), (60, 1)))


def test_fit_that_interpolates_has_a_worst_case():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(10, 30)), rng.normal(size=10)
    model = DRORegressor("squared", cost="euclidean", delta=1e-3, tol=1e-9).fit(X, y)
    assert_allclose(model.predict(X), y, atol=1e-9)
    found = model.worst_case()
    assert found.attained
    assert found.budget <= 1e-3 * (1 + 1e-9)
    assert found.shortfall <= 1e-8 * model.robust_risk_
    assert_allclose(found.risk, model.robust_risk_, rtol=1e-8)


@pytest.fixture(scope="module")
def tied():
    """40 rows of standardised breast cancer at delta = 0.1: a = 0.19, six tied rows (MATH.md 3)."""
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(569)[:40]
    X = X[rows]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, y[rows], DROClassifier(
        "logistic", cost="euclidean", order=2, delta=0.1, tol=1e-9
    ).fit(X, y[rows])  # fmt: skip


def test_below_a_quarter_tied_rows_split_their_mass(tied):
    X, y, model = tied
    w = np.linalg.norm(model.coef_)
    a = 2 * model.multiplier_ / w**2
    assert_allclose(a, 0.19, atol=0.005)
    found = model.worst_case()
    assert found.attained
    assert_allclose(found.budget, 0.1, rtol=1e-9)
    assert found.budget <= 0.1 * (1 + 1e-9)
    assert found.shortfall <= 1e-8
    assert_allclose(found.risk, model.robust_risk_, atol=1e-8)
    split = np.flatnonzero(np.bincount(found.origin) == 2)
    assert len(split) == 6
    margin = np.where(y == 1, 1, -1) * model.decision_function(X)
    assert_allclose(margin[split], 1 / (2 * a), rtol=1e-4)
    assert discrepancy(found, (X, y, None), Norm(2), 2) <= found.budget * (1 + 1e-9)


@pytest.mark.slow
def test_below_a_quarter_the_optimum_is_global(tied):
    X, y, model = tied
    sample = conic.Sample(X, np.where(y == 1, 1.0, -1.0), np.full(40, 1 / 40))
    best = conic.optimum(conic.Form("logistic", 2), sample, 0.1)
    assert abs(model.robust_risk_ - best) <= 1e-7 * best
    assert 0 <= model.gap_ <= 1e-9 * conic.constant_risk(conic.Form("logistic", 2), sample)


def test_labels_of_a_worst_case_are_those_of_the_user():
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[y[:60]]
    X = X[:60, :3] / X[:60, :3].std(axis=0)
    found = DROClassifier("hinge", cost="l1", delta=0.05).fit(X, names).worst_case()
    assert (found.targets == names[found.origin]).all()


def test_each_class_has_its_worst_case():
    X, y = load_iris(return_X_y=True)
    model = DROClassifier(cost="euclidean", delta=0.05, multi_class="ovr").fit(X, y)
    for k in model.classes_:
        found = model.worst_case(class_=k)
        assert found.budget <= 0.05 * (1 + 1e-9)
        assert found.risk >= model.robust_risk_[k] - found.shortfall - 1e-12
        assert ((found.targets > 0) == (y[found.origin] == k)).all()


def test_sparse_rows_have_the_same_worst_case():
    from scipy import sparse

    case = Case("hinge", "euclidean", 2, "tall")
    dense, _ = fitted(case, 0.1)
    s = case.sample
    thin = case.estimator(0.1).fit(sparse.csr_array(s.X), s.y)
    assert_allclose(thin.worst_case().points, dense.worst_case().points, atol=1e-6)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("cost", [Norm(1), Norm(2), Norm(np.inf), Mahalanobis([[2.0, 1], [1, 3]])])
def test_discrepancy_is_the_transport_program(cost, order):
    import cvxpy as cp

    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(5, 2)), rng.normal(size=(6, 2))
    a, b = np.full(5, 0.2), np.array([0.1, 0.3, 0.1, 0.1, 0.2, 0.2])
    s, t = np.array([0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 1, 1])
    C = np.array([[cost.norm(u - v) ** order for v in V] for u in U])
    T = cp.Variable((5, 6), nonneg=True)
    apart = cp.multiply(T, (s[:, None] != t).astype(float))
    program = cp.Problem(
        cp.Minimize(cp.sum(cp.multiply(C, T))),
        [cp.sum(T, axis=1) == a, cp.sum(T, axis=0) == b, apart == 0],
    )
    program.solve(solver=cp.CLARABEL)
    assert_allclose(discrepancy((U, s, a), (V, t, b), cost, order), program.value, rtol=1e-6)
    assert discrepancy((U, s, a), (U, s, a), cost, order) == pytest.approx(0, abs=1e-15)


def test_discrepancy_without_pot_is_the_same(monkeypatch):
    rng = np.random.default_rng(3)
    P = (rng.normal(size=(9, 3)), np.repeat([0, 1, 2], 3), None)
    Q = (rng.normal(size=(9, 3)), np.repeat([0, 1, 2], 3), None)
    with_pot = discrepancy(P, Q, Norm(2), 1)
    monkeypatch.setitem(__import__("sys").modules, "ot", None)
    assert_allclose(discrepancy(P, Q, Norm(2), 1), with_pot, rtol=1e-9)


def test_discrepancy_is_infinite_where_labels_do_not_match():
    X = np.eye(3)
    assert discrepancy((X, [0, 0, 1], None), (X, [0, 1, 1], None), Norm(2), 1) == np.inf


def test_ordinary_least_squares_is_the_start_of_the_path():
    case = Case("squared", "euclidean", 2, "tall")
    s = case.sample
    model, _ = fitted(case, 0.0)
    assert_allclose(model.coef_, LinearRegression().fit(s.X, s.y).coef_, rtol=1e-8)
    assert make_loss("squared").value(0.0, 2.0) == 4.0


def test_where_the_supremum_is_not_attained_moves_stay_among_the_rows():
    """Order 1, logistic: before, 2e-9 of the mass went five million standard deviations away."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X[:80] - X[:80].mean(axis=0)) / X[:80].std(axis=0)
    model = DROClassifier(cost="euclidean", order=1, delta=0.1).fit(X, y[:80])
    found = model.worst_case()
    far = np.linalg.norm(X, axis=1).max()
    length = np.linalg.norm(found.points - X[found.origin], axis=1)
    assert length.max() == pytest.approx(far)
    assert not found.attained
    assert 0 < found.shortfall < 0.2 * model.robust_risk_
    assert found.risk == pytest.approx(model.robust_risk_ - found.shortfall)
    free = model.worst_case(reach=np.inf)
    assert free.shortfall < 1e-5 < found.shortfall
    # other rows have a reach of their own
    other = model.worst_case(rows=(X[:30], y[:30]))
    assert np.linalg.norm(other.points - X[other.origin], axis=1).max() <= far


def test_a_reach_that_is_given_is_honoured_where_the_supremum_is_attained():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X[:80] - X[:80].mean(axis=0)) / X[:80].std(axis=0)
    model = DROClassifier("hinge", cost="euclidean", order=1, delta=0.1).fit(X, y[:80])
    assert model.worst_case().attained
    short = model.worst_case(reach=0.2)
    assert np.linalg.norm(short.points - X[short.origin], axis=1).max() <= 0.2 * (1 + 1e-9)
    assert short.attained == (short.shortfall <= 1e-8 * model.robust_risk_)
