"""The path: exact at every delta, monotone, and from the zero threshold down."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from otdro import Ball, DROClassifier, DRORegressor, robust_risk
from otdro.costs import Mahalanobis, Norm
from otdro.losses import Logistic
from otdro.problem import Problem, Sample
from otdro.radius import Path, path
from otdro.radius.grid import SIZE, SPAN, default_deltas, threshold
from otdro.solvers import Exact
from solving import solution
from tables import COMBINATIONS, data, make_cost, make_loss

CASES = [
    (loss, cost, order)
    for loss, cost, order in COMBINATIONS
    if loss in ("logistic", "squared", "hinge", "absolute") and cost != "linf"
]
#: Losses without a kink, whose zero threshold is a formula.
SMOOTH = ("logistic", "squared")


class Setting:
    """A loss, cost and order on the rows of the tables."""

    def __init__(self, loss, cost, order, shape="tall"):
        self.loss, self.order = make_loss(loss), order
        self.rows = data(shape, self.loss.task)
        self.cost = make_cost(cost, self.rows.X.shape[1])

    def problem(self, delta):
        s, ball = self.rows, Ball(self.cost, float(delta), self.order)
        return Problem(s.X, s.y, s.weights, self.loss, ball, s.fit_intercept)

    def cold(self, delta):
        return solution(Exact(tol=1e-10), self.problem(delta))

    def path(self, deltas=None, **settings):
        s = self.rows
        return path(
            s.X, s.y, self.loss, self.cost, self.order, deltas, sample_weight=s.weights,
            fit_intercept=s.fit_intercept, **settings,
        )  # fmt: skip

    @property
    def flat(self):
        return self.problem(1.0).constant[1]


@cache
def solved(case):
    return Setting(*case).path()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_point_is_a_cold_exact_solution(case):
    found = solved(case)
    cold = [Setting(*case).cold(delta).objective for delta in found.deltas[::2]]
    assert_allclose(found.robust_risk[::2], cold, rtol=1e-7)
    assert np.all(found.gap <= 1e-9 * Setting(*case).flat)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_risks_and_coefficients_belong_together(case):
    s, found = Setting(*case), solved(case)
    for j in (3, 11, 19):
        ball = Ball(s.cost, float(found.deltas[j]), s.order)
        risk = robust_risk(s.rows.X, s.rows.y, found.coef[j], found.intercept[j], s.loss, ball)
        assert_allclose(found.robust_risk[j], risk, rtol=1e-8)
    z = s.rows.X @ found.coef.T + found.intercept
    assert_allclose(found.empirical_risk, s.loss.value(z, s.rows.y[:, None]).mean(axis=0))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_robust_risk_is_monotone_in_delta(case):
    found = solved(case)
    assert np.all(np.diff(found.deltas) < 0)
    assert np.all(np.diff(found.robust_risk) <= 1e-8 * Setting(*case).flat)
    if case[2] == 1:
        # the penalty adds to the empirical risk, so that this one falls too
        assert np.all(np.diff(found.empirical_risk) <= 1e-4 * Setting(*case).flat)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_grid_starts_at_the_zero_threshold(case):
    s, found = Setting(*case), solved(case)
    top = found.deltas[0]
    below = s.cold(0.99 * top)
    assert np.abs(below.coef).max() > 1e-4
    assert below.objective < s.flat * (1 - 1e-8)
    if case[0] in SMOOTH:
        # rounding decides on which side of its own threshold a delta lies
        assert_allclose(found.coef[0], 0, atol=1e-6)
        assert_allclose(found.robust_risk[0], s.flat, rtol=1e-9)
        assert_array_equal(s.cold(top * (1 + 1e-9)).coef, 0)
    else:
        # found by solving: to about 1e-6 of the risk
        assert_allclose(found.robust_risk[0], s.flat, rtol=2e-6)
        assert np.abs(s.cold(1.01 * top).coef).max() < 1e-5


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_grid_is_geometric_of_twenty(case):
    found = solved(case)
    assert found.coef.shape == (20, 4)
    assert_allclose(found.deltas[-1] / found.deltas[0], 1e-3 ** case[2])
    assert_allclose(np.diff(np.log(found.deltas), 2), 0, atol=1e-9)


@pytest.mark.parametrize("shape", ["wide", "easy", "duplicated", "collinear", "weighted"])
@pytest.mark.parametrize("case", [("logistic", "mahalanobis", 1), ("squared", "euclidean", 2)])
def test_awkward_rows(case, shape):
    s = Setting(*case, shape)
    found = s.path()
    cold = [s.cold(delta).objective for delta in found.deltas]
    assert_allclose(found.robust_risk, cold, rtol=1e-7, atol=1e-10 * s.flat)
    assert_array_equal(found.coef[0], 0)


@pytest.mark.constant_model("a path begins where the model is constant")
def test_large_problems_go_delta_by_delta():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_500, 20))
    y = np.where(X @ rng.normal(size=20) + 4 * rng.normal(size=1_500) > 0, 1.0, -1.0)
    found = path(X, y)
    for delta, risk in list(zip(found.deltas, found.robust_risk, strict=True))[::4]:
        cold = DROClassifier(cost="euclidean", delta=delta, tol=1e-10).fit(X, y)
        assert_allclose(risk, cold.robust_risk_, rtol=1e-7)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("shape", [(30, 4), (24, 30)])
def test_weights_of_some_rows_are_the_fits_of_these_rows(order, shape):
    rng = np.random.default_rng(order)
    X, y = rng.normal(size=shape), rng.choice([-1.0, 1.0], shape[0])
    loss, cost, n = make_loss("logistic"), make_cost("euclidean", shape[1]), shape[0]
    trains = [np.delete(np.arange(n), slice(k, None, 5)) for k in range(5)]
    weights = np.zeros((n, 5))
    for f, rows in enumerate(trains):
        weights[rows, f] = 1 / len(rows)
    problem = Problem(X, y, np.full(n, 1 / n), loss, Ball(cost, 0.3, order))
    deltas, solver = np.array([0.3, 0.1, 0.02, 0.0]), Exact(tol=1e-9)
    folds = [problem.weighted(column) for column in weights.T]
    for problems in (folds, [problem, *folds]):
        together = solver.solve(problems, deltas)
        for rows, found in zip(trains, together[-5:], strict=True):
            part = Problem(X[rows], y[rows], np.full(len(rows), 1 / len(rows)), loss, problem.ball)
            for mine, alone in zip(found, solver.solve([part], deltas)[0], strict=True):
                assert mine.converged
                assert mine.dual.shape == (n,)
                assert_allclose(mine.objective, alone.objective, atol=2e-9)


@pytest.mark.parametrize("shape", [(30, 4), (24, 30)])
def test_problems_under_their_own_costs_are_solved_together_as_alone(shape):
    rng = np.random.default_rng(7)
    (n, d), loss, solver = shape, make_loss("logistic"), Exact(tol=1e-9)
    X, y = rng.normal(size=shape), rng.choice([-1.0, 1.0], n)
    problems = []
    for k in range(3):
        A, weights = rng.normal(size=(d, d)) / np.sqrt(d), np.ones(n)
        weights[k::5] = 0.0
        ball = Ball(Mahalanobis(A @ A.T + np.eye(d)), 0.3, 1)
        problems.append(Problem(X, y, weights / weights.sum(), loss, ball))
    deltas = np.array([0.3, 0.1, 0.02])
    for problem, found in zip(problems, solver.solve(problems, deltas), strict=True):
        for mine, alone in zip(found, solver.solve([problem], deltas)[0], strict=True):
            assert mine.converged
            assert mine.dual.shape == (n,)
            assert_allclose(mine.objective, alone.objective, atol=2e-9)


@pytest.mark.parametrize("case", [("logistic", "euclidean", 1), ("hinge", "l1", 1)], ids=str)
def test_explicit_deltas(case):
    s = Setting(*case)
    down = s.path([0.3, 0.1, 0.01, 0.0])
    up = s.path([0.0, 0.01, 0.1, 0.3])
    assert_array_equal(down.deltas, [0.3, 0.1, 0.01, 0.0])
    assert_array_equal(up.deltas, down.deltas)
    assert_allclose(up.coef, down.coef)
    assert_allclose(down.robust_risk, [s.cold(d).objective for d in down.deltas], rtol=1e-7)
    assert_allclose(down.robust_risk[-1], down.empirical_risk[-1])


def test_nothing_to_learn_gives_the_constant_model_everywhere():
    X, y = np.zeros((6, 2)), np.array([1.0, -1, 1, -1, 1, -1])
    found = path(X, y)
    assert found.deltas[0] == 1.0
    assert_array_equal(found.coef, 0)
    assert_allclose(found.robust_risk, np.log(2))


def test_the_threshold_of_several_targets_is_the_largest():
    rng = np.random.default_rng(3)
    X, classes = rng.normal(size=(40, 3)), rng.integers(0, 3, size=40)
    ys = [np.where(classes == k, 1.0, -1.0) for k in range(3)]
    cost, loss = make_cost("euclidean", 3), make_loss("logistic")
    sample = Sample(X, ys, np.full(40, 1 / 40), loss, True)
    tops = [threshold(sample, y, cost, 1) for y in ys]
    assert_allclose(default_deltas(sample, cost, 1)[0], max(tops))


FIELDS = ("deltas", "intercept", "empirical_risk", "robust_risk", "gap", "score_mean", "score_se")


def check_fields(model, m, lead=()):
    found = model.path_
    assert isinstance(found, Path)
    for name in FIELDS:
        shared = name in ("deltas", "score_mean", "score_se")
        assert getattr(found, name).shape == ((m,) if shared else (m, *lead)), name
    assert found.coef.shape == (m, *lead, model.n_features_in_)
    assert sum(c.chosen for c in found.candidates) == 1
    j = int(np.flatnonzero(found.deltas == model.delta_)[0])
    coef, risk = found.coef[j], found.robust_risk[j]
    assert_array_equal(coef, model.coef_ if lead or model.coef_.ndim == 1 else model.coef_[0])
    assert_array_equal(risk, model.robust_risk_)
    chosen = next(c for c in found.candidates if c.chosen)
    assert chosen.delta == model.delta_
    assert_array_equal(chosen.score_mean, found.score_mean)


def test_fitted_classifier_carries_its_path():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 3))
    y = np.where(X[:, 0] + rng.normal(size=40) > 0, "yes", "no")
    model = DROClassifier().fit(X, y)
    check_fields(model, 20)
    assert len(model.path_.candidates) == len(model.cost_.weights_) + 1
    check_fields(DROClassifier(cost="euclidean", deltas=[0.5, 0.1]).fit(X, y), 2)


def test_fitted_one_vs_rest_carries_its_path():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(45, 3)), np.repeat([0, 1, 2], 15)
    check_fields(DROClassifier(cost="euclidean", multi_class="ovr").fit(X, y), 20, (3,))


def test_fitted_regressor_carries_its_path():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(40, 3))
    check_fields(DRORegressor().fit(X, X[:, 0] + rng.normal(size=40)), 20)


def test_a_number_as_delta_leaves_no_path():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(20, 2))
    model = DRORegressor(cost="euclidean", delta=0.1).fit(X, X[:, 0])
    assert not hasattr(model, "path_")


BAD = {
    "empty": ([], "at least one"),
    "a number": (0.1, "list"),
    "unsorted": ([0.1, 0.3, 0.2], "sort"),
    "repeated": ([0.3, 0.3, 0.2], "sort"),
    "negative": ([0.1, -0.2], ">= 0.*-0.2"),
    "nan": ([0.1, np.nan], "finite"),
    "infinite": ([np.inf, 0.1], "finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_deltas(case):
    deltas, match = BAD[case]
    s = data("tall", "classification")
    with pytest.raises(ValueError, match=match):
        path(s.X, s.y, deltas=deltas)
    with pytest.raises(ValueError, match=match):
        DROClassifier(cost="euclidean", deltas=deltas).fit(s.X, s.y)


def test_bad_arguments_of_path():
    s = data("tall", "classification")
    for settings, match in (
        ({"loss": "log"}, "'log'.*logistic"),
        ({"cost": "l3"}, "'l3'.*euclidean"),
        ({"order": 3}, "order=3"),
        ({"cost": make_cost("mahalanobis", 7)}, "4 features"),
        ({"sample_weight": 0 * s.y}, "positive weight|weight"),
    ):
        with pytest.raises(ValueError, match=match):
            path(s.X, s.y, **settings)
    with pytest.raises(ValueError, match=r"-1 and \+1"):
        path(s.X, s.y + 1)


@pytest.mark.parametrize("order", [1, 2])
def test_the_grid_goes_on_where_one_row_raised_the_threshold(order):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X[:, 0] + rng.logistic(size=60) > 0, 1.0, -1.0)
    spoilt = X.copy()
    spoilt[0] *= 1e4
    weights = np.full(60, 1 / 60)
    clean, bad = (
        default_deltas(Sample(rows, [y], weights, Logistic(), True), Norm(2), order)
        for rows in (X, spoilt)
    )
    assert len(clean) == SIZE
    assert clean[-1] == pytest.approx(clean[0] * SPAN**order)
    # it starts at its own threshold and ends about where that of the others does
    assert bad[0] > 10**order * clean[0]
    assert bad[-1] < 10**order * clean[-1]
    assert_allclose(bad[1:] / bad[:-1], bad[1] / bad[0])


def test_one_row_far_out_leaves_the_default_its_accuracy():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2050, 4))
    y = X @ [2.0, -1.0, 1.0, 0.0] + rng.logistic(size=2050) > 0
    spoilt = X[:50].copy()
    spoilt[0] *= 1e4
    clean, bad = (
        DROClassifier(random_state=0).fit(rows, y[:50]).score(X[50:], y[50:])
        for rows in (X[:50], spoilt)
    )
    assert bad >= clean - 0.04
