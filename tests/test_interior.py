"""The interior-point method against cvxpy with Clarabel, which the package itself does not use."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from otdro.costs import Mahalanobis, Norm
from otdro.losses import Absolute, Hinge, Huber, Logistic, Quantile, Squared, SquaredHinge
from otdro.problem import Ball, Problem
from otdro.solvers.conic import InteriorPoint

cp = pytest.importorskip("cvxpy")

TOL = 1e-9
PAIRS = [
    (Hinge(), 1), (Hinge(), 2), (Absolute(), 1), (Absolute(), 2), (Quantile(0.3), 1),
    (Quantile(0.3), 2), (Huber(), 1), (Huber(), 2), (Logistic(), 1), (SquaredHinge(), 2),
    (Squared(), 2),
]  # fmt: skip
COSTS = ["euclidean", "mahalanobis", "l1", "linf"]


def solve(problem, tol=TOL, max_iter=100):
    [[found]] = InteriorPoint().solve([problem], [problem.ball.delta], [tol], max_iter, None)
    return found


def sample(shape, loss):
    rng = np.random.default_rng(3)
    n, d = {"tall": (60, 5), "wide": (15, 30), "separable": (40, 4)}.get(shape, (24, 3))
    X = rng.normal(size=(n, d))
    target = X[:, 0] + (rng.normal(size=n) if shape != "separable" else 0.5)
    if shape == "duplicated":
        X, target = np.repeat(X, 3, axis=0), np.repeat(target, 3)
    if shape == "collinear":
        X = np.column_stack([X, np.full(n, 3.0), X[:, 0] + X[:, 1], X[:, 0]])
    if shape == "indicators":
        # some categories are met by one row alone, and all sum to the constant column
        X = np.eye(5)[np.r_[rng.integers(0, 3, n - 2), 3, 4]]
    y = np.where(target > 0, 1.0, -1.0) if loss.task == "classification" else target
    return X, y


def cost_of(name, d):
    A = np.random.default_rng(5).normal(size=(d, d))
    known = {"euclidean": Norm(2), "l1": Norm(1), "linf": Norm(np.inf)}
    return known.get(name) or Mahalanobis(A @ A.T / d + 0.5 * np.eye(d))


def problem_of(X, y, loss, cost, delta, order, weights=None, fit_intercept=True):
    weights = np.ones(len(y)) if weights is None else weights
    return Problem(X, y, weights / weights.sum(), loss, Ball(cost, delta, order), fit_intercept)


def plain(problem, r):
    """Mean loss of residuals as a cvxpy expression."""
    loss, pi = problem.loss, problem.weights
    if isinstance(loss, Logistic):
        return pi @ cp.logistic(r)
    if isinstance(loss, Huber):
        return pi @ cp.huber(r, loss.M) / 2
    if isinstance(loss, Squared | SquaredHinge):
        return pi @ cp.square(r if isinstance(loss, Squared) else cp.pos(r))
    lo, hi = loss.slopes
    return pi @ cp.maximum(lo * r, hi * r)


def robust(problem, r, norm):
    """Worst-case risk with nu = w^2/(2 lam), its root if it is a square; and constraints."""
    loss, pi, delta = problem.loss, problem.weights, problem.ball.delta
    if delta == 0:
        return plain(problem, r), []
    if problem.ball.order == 1:
        return plain(problem, r) + delta * loss.lipschitz * norm, []
    root = np.sqrt(pi)
    if isinstance(loss, Squared | SquaredHinge):
        active = r if isinstance(loss, Squared) else cp.pos(r)
        return cp.norm(cp.multiply(root, active)) + np.sqrt(delta) * norm, []
    if isinstance(loss, Absolute):
        return plain(problem, r) + np.sqrt(delta) * norm, []
    # nu in units of sqrt(delta), which Clarabel needs
    eta = cp.Variable(nonneg=True)
    nu = np.sqrt(delta) * eta
    ball = cp.quad_over_lin(norm, eta) * np.sqrt(delta) / 2
    lo, hi = loss.slopes
    if not isinstance(loss, Huber):
        return ball + pi @ cp.maximum(lo * r + lo**2 / 2 * nu, hi * r + hi**2 / 2 * nu), []
    # Huber of curvature q = 1 - nu: inf-convolution of a^2/(2q) and M |r - a|
    q, a = cp.Variable(nonneg=True), cp.Variable(len(pi))
    inside = cp.quad_over_lin(cp.multiply(root, a), q) / 2 + hi * (pi @ cp.abs(r - a))
    return ball + inside + hi**2 / 2 * (q + nu - 1), [q + nu >= 1]


def reference(problem):
    """Return the optimal worst-case risk by cvxpy and Clarabel."""
    X, y, cost = problem.X, problem.y, problem.ball.cost
    theta, b = cp.Variable(X.shape[1]), cp.Variable()
    L = cost.factor() if cost.euclidean else None
    z = (X if L is None else X @ L) @ theta + (b if problem.fit_intercept else 0)
    if problem.loss.task == "regression":
        r = y - z
    else:
        r = (0 if isinstance(problem.loss, Logistic) else 1) - cp.multiply(y, z)
    norm = cp.norm(theta, 2 if cost.euclidean else {1: "inf", np.inf: 1}[cost.p])
    value, constraints = robust(problem, r, norm)
    # at beta = 0 Clarabel ends with nu = 0 and the value 0/0: the constant model is the reference
    for goal, limits in ((value, constraints), (plain(problem, r), [theta == 0])):
        program = cp.Problem(cp.Minimize(goal), limits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        if np.isfinite(program.value):
            break
    squared = np.isinf(problem.loss.lipschitz) and problem.ball.delta > 0
    return float(program.value) ** 2 if squared else float(program.value)


CONSTANTS = {}


def constant_risk(problem):
    """Return the least risk of a constant model, which neither rows nor ball change."""
    order, intercept = problem.ball.order, problem.fit_intercept
    key = (repr(problem.loss), order, intercept, problem.y.tobytes(), problem.weights.tobytes())
    if key not in CONSTANTS:
        none = np.zeros((len(problem.y), 1))
        ball = Ball(Norm(2), 0.0, order)
        still = Problem(none, problem.y, problem.weights, problem.loss, ball, intercept)
        CONSTANTS[key] = solve(still, TOL).objective
    return CONSTANTS[key]


def check(problem, optimum=None):
    """Solve a problem and compare with the optimum, that of the reference unless it is known."""
    solution, base = solve(problem, TOL), constant_risk(problem)
    assert solution.converged, solution.message
    assert 0 <= solution.gap <= TOL * base
    assert np.isfinite(solution.coef).all()
    assert np.isfinite(solution.intercept)
    optimum = reference(problem) if optimum is None else optimum
    assert_allclose(solution.objective, optimum, atol=1e-7 * max(optimum, 0.1 * base), rtol=0)
    return solution


DELTAS = {"tall": (0.0, 1e-6, 0.05, 0.5, 20.0), "collinear": (1e-4, 0.05)}


@pytest.mark.parametrize(
    "shape",
    ["tall", "wide", "separable", "collinear", pytest.param("duplicated", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
def test_objective_is_that_of_clarabel(loss, order, shape):
    X, y = sample(shape, loss)
    for name in COSTS:
        deltas = DELTAS.get(shape, (1e-6, 0.05))
        for delta in deltas if name != "mahalanobis" else (0.05,):
            check(problem_of(X, y, loss, cost_of(name, X.shape[1]), delta, order))


@pytest.mark.parametrize("shape", ["wide", "separable", "collinear", "indicators"])
@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
def test_delta_zero_is_the_empirical_risk(loss, order, shape):
    X, y = sample(shape, loss)
    problem = problem_of(X, y, loss, Norm(2), 0.0, order)
    base = constant_risk(problem)
    solution = solve(problem, TOL)
    assert solution.converged
    separable = shape in ("wide", "separable")
    optimum = 0.0 if isinstance(loss, Logistic) and separable else reference(problem)
    assert_allclose(solution.objective, optimum, atol=1e-7 * max(optimum, 0.1 * base), rtol=0)


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
def test_without_intercept(loss, order):
    X, y = sample("tall", loss)
    for name in COSTS:
        solution = check(
            problem_of(X + 0.3, y, loss, cost_of(name, 5), 0.05, order, fit_intercept=False)
        )
        assert solution.intercept == 0


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
@pytest.mark.parametrize("name", COSTS)
def test_gap_bounds_the_suboptimality_of_stopped_iterates(loss, order, name):
    X, y = sample("tall", loss)
    for delta in (0.0, 0.05):
        problem = problem_of(X, y, loss, cost_of(name, 5), delta, order)
        best, base = solve(problem, TOL), constant_risk(problem)
        for max_iter in (1, 3, 8):
            early = solve(problem, TOL, max_iter)
            lower = best.objective - best.gap
            assert early.gap >= early.objective - best.objective
            assert early.objective >= lower
            assert early.converged == (early.gap <= TOL * base)


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
def test_large_delta_returns_exact_zeros(loss, order):
    X, y = sample("tall", loss)
    for name in COSTS:
        solution = solve(problem_of(X, y, loss, cost_of(name, 5), 50.0, order), TOL)
        assert solution.converged
        assert not solution.coef.any()
        assert solution.multiplier == 0


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
@pytest.mark.parametrize("name", COSTS)
def test_integer_weights_are_repeated_rows(loss, order, name):
    X, y = sample("tall", loss)
    count = np.random.default_rng(0).integers(0, 4, len(y))
    cost = cost_of(name, 5)
    weighted = solve(problem_of(X, y, loss, cost, 0.05, order, weights=count), TOL)
    repeated = problem_of(np.repeat(X, count, 0), np.repeat(y, count), loss, cost, 0.05, order)
    assert weighted.converged
    assert_allclose(weighted.objective, solve(repeated, TOL).objective, rtol=1e-8)
    assert weighted.dual.shape == y.shape


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_repeated_and_shuffled_rows_end_at_the_same_point(loss, order, form):
    X, y = sample("tall", loss)
    rng = np.random.default_rng(0)
    count = rng.integers(0, 4, len(y))
    rows = rng.permutation(np.repeat(np.arange(len(y)), count))
    for name in ("euclidean", "linf"):
        cost = cost_of(name, 5)
        one = solve(problem_of(form(X), y, loss, cost, 0.05, order, weights=count), 1e-6)
        two = solve(problem_of(form(X)[rows], y[rows], loss, cost, 0.05, order), 1e-6)
        assert_allclose(one.coef, two.coef, rtol=1e-7)
        assert_allclose(one.intercept, two.intercept, rtol=1e-7)
        assert_allclose(one.dual[rows], two.dual, rtol=1e-6, atol=1e-9)
        assert np.isfinite(one.dual).all()


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05, 20.0])
def test_columns_of_any_scale(loss, order, delta):
    rng = np.random.default_rng(1)
    scale = 10.0 ** np.array([-8, -4, 0, 4, 8])
    Z = rng.normal(size=(50, 5))
    score = Z.sum(1) + rng.normal(size=50)
    y = np.where(score > 0, 1.0, -1.0) if loss.task == "classification" else score
    for name in ("euclidean", "l1", "linf"):
        solution = solve(problem_of(Z * scale, y, loss, cost_of(name, 5), delta, order), TOL)
        assert solution.converged, (name, solution.message)


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
def test_two_rows_one_column(loss, order):
    X = np.array([[0.3], [-0.8]])
    y = np.array([1.0, -1.0]) if loss.task == "classification" else np.array([1.0, 3.0])
    for delta in (0.01, 0.5, 20.0):
        check(problem_of(X, y, loss, cost_of("mahalanobis", 1), delta, order))
        # all norms of one number are its size
        optimum = reference(problem_of(X, y, loss, Norm(2), delta, order))
        for p in (2, 1, np.inf):
            check(problem_of(X, y, loss, Norm(p), delta, order), optimum)


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
@pytest.mark.parametrize("name", COSTS)
def test_multiplier_is_the_derivative_in_delta(loss, order, name):
    X, y = sample("tall", loss)
    cost, delta, h = cost_of(name, 5), 0.02, 2e-5
    low, mid, high = (
        solve(problem_of(X, y, loss, cost, d, order), TOL) for d in (delta - h, delta, delta + h)
    )
    assert_allclose(mid.multiplier, (high.objective - low.objective) / (2 * h), rtol=2e-3)


@pytest.mark.parametrize(("loss", "order"), PAIRS, ids=str)
def test_dual_is_stationary(loss, order):
    X, y = sample("tall", loss)
    problem = problem_of(X, y, loss, Norm(2), 0.05, order)
    solution = solve(problem, 1e-11)
    u = problem.weights * solution.dual
    assert abs(u.sum()) < 1e-12
    # X'(pi dl/dz) = -(penalty rate) beta/w
    g, w = X.T @ u, np.linalg.norm(solution.coef)
    rate = 0.05 * loss.lipschitz if order == 1 else 2 * 0.05 * solution.multiplier / w
    assert_allclose(g, -rate * solution.coef / w, atol=2e-4 * rate)


def test_constant_target_needs_no_iteration():
    X = np.random.default_rng(0).normal(size=(10, 3))
    solution = solve(problem_of(X, np.full(10, 2.0), Absolute(), Norm(2), 0.1, 1))
    assert solution.converged
    assert solution.objective == 0
    assert solution.intercept == 2


def test_sparse_and_single_precision_rows():
    X, y = sample("tall", Hinge())
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    dense = solve(problem_of(X, y, Hinge(), Norm(1), 0.05, 1), 1e-8)
    for other in (sparse.csr_matrix(X), X.astype(np.float32)):
        solution = solve(problem_of(other, y, Hinge(), Norm(1), 0.05, 1), 1e-8)
        assert solution.converged
        assert_allclose(solution.objective, dense.objective, rtol=1e-6)


def test_many_rows_take_the_normal_equations():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20))
    y = np.where(X[:, 0] + rng.normal(size=3000) > 0, 1.0, -1.0)
    for name in COSTS:
        for order in (1, 2):
            assert solve(problem_of(X, y, Hinge(), cost_of(name, 20), 0.01, order), TOL).converged


@pytest.mark.parametrize(
    ("loss", "order", "word"), [(Squared(), 1, "order=2"), (Logistic(), 2, "order=1")]
)
def test_refuses_what_it_cannot_solve(loss, order, word):
    X, y = sample("tall", loss)
    with pytest.raises(ValueError, match=word):
        solve(problem_of(X, y, loss, Norm(2), 0.1, order))


#: 13 rows of 10 whole numbers, and their targets.
WHOLE = np.array([
    [1, -1, 1, 0, 0, 0, 0, -1, 1, -1], [1, 1, 1, 0, -1, 0, 0, 2, 1, 1],
    [0, 1, 1, 0, -2, -1, -2, 1, -2, 0], [2, 0, 1, 1, 0, 1, 0, 1, -1, -1],
    [0, 0, 0, 0, 0, 2, 1, -1, 1, -1], [1, -1, 1, 0, 1, 0, 0, 0, 0, 1],
    [1, 1, -1, 0, 0, 2, 1, 0, 0, -3], [0, -2, 0, 1, 0, -1, -1, 1, -1, 0],
    [-1, 1, 1, 0, -2, 1, -1, -2, -1, 2], [0, 1, 1, 0, 0, 0, -1, 0, 0, 0],
    [0, 0, 1, -1, 0, 0, -1, 0, 1, -1], [1, 1, 0, 2, 0, -2, 0, 1, -2, 0],
    [1, 0, 1, 0, -1, 0, 1, 1, 1, 0],
], dtype=float)  # fmt: skip
TARGETS = np.array([-2.0, 1, 0, 1, 0, -1, 2, -1, -1, 0, -2, 3, 0])


@pytest.mark.parametrize("delta", [9.3e-4, 9.447816868937677e-4, 9.6e-4])
def test_a_root_that_nearly_vanishes_does_not_throw_the_iterates_off(delta):
    """A Newton step raised the mean product four thousandfold, and no later one recovered."""
    ball = Ball(Norm(np.inf), delta, 2, target_cost=0.2860516191131167)
    problem = Problem(WHOLE, TARGETS, np.full(13, 1 / 13), Squared(), ball, False)
    found = solve(problem, tol=1e-6, max_iter=1000)
    assert found.converged
    assert found.gap <= 1e-6 * problem.constant[1]
