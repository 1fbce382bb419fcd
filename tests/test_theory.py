"""delta="theory" and the confidence region: laws, scaling, refusals and coverage."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from scipy.stats import chi2
from sklearn.datasets import load_iris

from otdro import DROClassifier, DRORegressor
from otdro.costs import Mahalanobis, Norm
from otdro.losses import Logistic, Squared
from otdro.problem import Sample
from otdro.radius import confidence_region, theory
from otdro.radius.profile import ROWS_PER_SLOPE, chi_square_quantile, chi_square_tail

N, D = 80, 3
BETA, INTERCEPT = np.array([1.0, -0.5, 0.0]), 0.3
LAM = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])


def draw(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) @ np.array([[1, 0.5, 0], [0, 1, 0], [0.3, 0, 0.7]]) + 0.4
    z = X @ BETA + INTERCEPT
    return X, z + rng.normal(size=n), np.where(rng.uniform(size=n) < expit(z), 1.0, -1.0)


X, Z, Y = draw()
KINDS = {
    "squared, 2": (DRORegressor, Z, {"order": 2}),
    "logistic, 1": (DROClassifier, Y, {"order": 1}),
    "logistic, 2": (DROClassifier, Y, {"order": 2}),
}


@pytest.mark.parametrize("confidence", [0.001, 0.05, 0.5, 0.55, 0.95, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("d", [1, 2, 3, 10, 300])
def test_quantile_of_equal_weights_is_that_of_chi_square(d, confidence):
    found = chi_square_quantile(np.full(d, 0.7), confidence)
    assert_allclose(found, 0.7 * chi2(d).ppf(confidence), rtol=1e-6)


@pytest.mark.parametrize(
    "omega", [[1.0, 0.5, 0.1], [1.0, 1e-3, 1e-6], np.arange(1.0, 21.0), [3.0, 3.0, 0.01]], ids=str
)
def test_quantile_against_draws(omega):
    omega = np.array(omega)
    draws = np.random.default_rng(0).chisquare(1, size=(40_000, len(omega))) @ omega
    for confidence in (0.1, 0.5, 0.9, 0.95):
        share = np.mean(draws <= chi_square_quantile(omega, confidence))
        error = np.sqrt(confidence * (1 - confidence) / len(draws))
        assert abs(share - confidence) <= 4 * error


def test_quantile_of_nothing_is_zero_and_zeros_do_not_count():
    assert chi_square_quantile(np.zeros(3), 0.9) == 0
    assert_allclose(
        chi_square_quantile(np.array([1.0, 0.0, 0.4]), 0.9),
        chi_square_quantile(np.array([1.0, 0.4]), 0.9),
    )
    assert_allclose(chi_square_tail(np.ones(1), 3.84), chi2(1).sf(3.84), rtol=1e-8)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("c", [1e-4, 0.3, 7.0, 1e6])
@pytest.mark.parametrize("matrix", [np.eye(D), LAM], ids=["identity", "Lam"])
def test_scale_of_the_cost(name, c, matrix):
    make, y, settings = KINDS[name]
    one, other = (
        make(cost=Mahalanobis(s * matrix), delta="theory", **settings).fit(X, y) for s in (1.0, c)
    )
    factor = c if settings["order"] == 2 else np.sqrt(c)
    assert_allclose(other.delta_, factor * one.delta_, rtol=1e-6)
    assert_allclose(other.coef_, one.coef_, atol=1e-6)
    assert_allclose(other.intercept_, one.intercept_, atol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_the_identity_matrix_is_the_euclidean_cost(name):
    make, y, settings = KINDS[name]
    deltas = [
        make(cost=cost, delta="theory", **settings).fit(X, y).delta_
        for cost in (Mahalanobis(np.eye(D)), "euclidean")
    ]
    assert_allclose(deltas[0], deltas[1], rtol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_deterministic_and_the_same_by_function(name):
    make, y, settings = KINDS[name]
    first, second = (
        make(cost="euclidean", delta="theory", random_state=seed, **settings).fit(X, y)
        for seed in (0, 1)
    )
    assert first.delta_ == second.delta_
    assert_array_equal(first.coef_, second.coef_)
    loss = "squared" if make is DRORegressor else "logistic"
    assert first.delta_ == theory(X, y, loss, "euclidean", settings["order"])
    assert not hasattr(first, "path_")


@pytest.mark.parametrize("name", KINDS)
def test_more_confidence_needs_more_delta_and_more_rows_less(name):
    make, y, settings = KINDS[name]

    def delta(confidence=0.95, copies=1):
        model = make(cost="euclidean", delta="theory", confidence=confidence, **settings)
        return model.fit(np.tile(X, (copies, 1)), np.tile(y, copies)).delta_

    assert 0 < delta(0.5) < delta(0.9) < delta(0.95) < delta(0.99)
    factor = 4 if settings["order"] == 2 else 2
    assert_allclose(delta(), factor * delta(copies=4), rtol=1e-5)


def test_linear_spectrum_is_that_of_the_sheet():
    e = np.linalg.lstsq(np.column_stack([X, np.ones(N)]), Z, rcond=None)
    beta = e[0][:D]
    sigma2 = float(e[1][0]) / N
    centred = X - X.mean(axis=0)
    s = np.linalg.eigvals(LAM @ (centred.T @ centred / N)).real
    w2 = beta @ np.linalg.solve(LAM, beta)
    omega = sigma2 * s / (sigma2 + w2 * s)
    found = theory(X, Z, "squared", Mahalanobis(LAM))
    assert_allclose(found, chi_square_quantile(omega, 0.95) / N, rtol=1e-6)


def test_order_one_bound_against_draws():
    model = DROClassifier(cost="euclidean", delta=0, tol=1e-10).fit(X, Y)
    r = expit(-Y * model.decision_function(X))
    p = expit(model.decision_function(X))
    D_ = p * (1 - p)
    moved = X - D_ @ X / D_.sum()
    S = (moved * (r**2)[:, None]).T @ moved / N
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(D), S, size=40_000)
    share = np.mean(np.linalg.norm(draws, axis=1) / np.sqrt(N) <= theory(X, Y))
    assert abs(share - 0.95) <= 4 * np.sqrt(0.95 * 0.05 / 40_000)


@pytest.mark.parametrize("order", [1, 2])
def test_separable_classes(order):
    y = np.where(X[:, 0] > np.median(X[:, 0]), "right", "left")
    model = DROClassifier(cost="euclidean", delta="theory", order=order).fit(X, y)
    assert 0 < model.delta_ < 10
    assert np.abs(model.coef_).max() > 0
    assert model.score(X, y) > 0.8
    assert np.isfinite(model.confidence_region().intervals()).all()


def test_fewer_rows_than_columns():
    rng = np.random.default_rng(2)
    wide = rng.normal(size=(15, 30))
    target = wide[:, 0] + rng.normal(size=15)
    for make, y in ((DRORegressor, target), (DROClassifier, target > 0)):
        assert 0 < make(cost="euclidean", delta="theory").fit(wide, y).delta_ < 1e3


def test_one_vs_rest_takes_the_largest():
    rows, y = load_iris(return_X_y=True)
    rows = rows + np.random.default_rng(0).normal(size=rows.shape)
    model = DROClassifier(cost="euclidean", delta="theory").fit(rows, y)
    each = [theory(rows, np.where(y == k, 1.0, -1.0)) for k in range(3)]
    assert_allclose(model.delta_, max(each), rtol=1e-12)
    with pytest.raises(ValueError, match="two classes"):
        model.confidence_region()


def test_a_learned_cost_is_chosen_at_its_own_delta():
    model = DROClassifier(delta="theory").fit(X, Y)
    assert len(model.path_.candidates) == 5
    assert_allclose(model.delta_, theory(X, Y, cost=model.cost_), rtol=1e-12)


REFUSED = {
    "hinge": (DROClassifier(loss="hinge", cost="euclidean", delta="theory"), "Hinge.*'cv'"),
    "absolute": (DRORegressor(loss="absolute", cost="euclidean", delta="theory"), "Absolute"),
    "l1": (DROClassifier(cost="l1", delta="theory"), "Mahalanobis.*'cv'"),
    "squared, order 1": (DRORegressor(cost="euclidean", order=1, delta="theory"), "Use order=2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    model, match = REFUSED[name]
    with pytest.raises(ValueError, match=match):
        model.fit(X, Z if isinstance(model, DRORegressor) else Y)


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 1.5, np.nan, "high", None])
def test_bad_confidence(confidence):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        theory(X, Y, confidence=confidence)


#: Enough rows of either class for a region.
MORE, MORE_Z, MORE_Y = draw(2 * N)


def region_of(make, y, **settings):
    return make(**{"cost": "euclidean", "delta": 0.1} | settings).fit(MORE, y).confidence_region()


@pytest.mark.parametrize(("make", "y"), [(DROClassifier, MORE_Y), (DRORegressor, MORE_Z)])
def test_region_geometry(make, y):
    region = region_of(make, y)
    assert region.contains(region.center)
    assert not region.contains(region.center + 100)
    intervals = region.intervals()
    assert intervals.shape == (D, 2)
    assert_allclose(intervals.mean(axis=1), region.center)
    S = region.covariance()
    for j in range(D):
        # where the ellipsoid touches its box
        touch = np.sqrt(region.delta) * S[:, j] / np.sqrt(S[j, j])
        assert_allclose(region.center[j] + touch[j], intervals[j, 1])
        assert region.contains(region.center + touch * (1 - 1e-9))
        assert not region.contains(region.center + touch * (1 + 1e-9))
    center, shape = region.section(2, 0)
    assert_allclose(center, region.center[[2, 0]])
    assert_allclose(np.sqrt(np.diag(shape)), (intervals[:, 1] - region.center)[[2, 0]])
    with pytest.raises(ValueError, match=r"2 entries.*3"):
        region.contains(np.zeros(2))


def test_region_does_not_depend_on_delta_and_grows_with_confidence():
    first, second = region_of(DROClassifier, MORE_Y), region_of(DROClassifier, MORE_Y, delta=0.15)
    assert_allclose(first.intervals(), second.intervals())
    model = DROClassifier(cost="euclidean", delta=0.1).fit(MORE, MORE_Y)
    width = [np.ptp(model.confidence_region(c).intervals(), axis=1) for c in (0.5, 0.9, 0.99)]
    assert np.all(width[0] < width[1])
    assert np.all(width[1] < width[2])
    with pytest.raises(ValueError, match="strictly between"):
        model.confidence_region(1.0)


def test_region_refuses_what_the_theory_does_not_cover():
    with pytest.raises(ValueError, match="Hinge"):
        region_of(DROClassifier, MORE_Y, loss="hinge")
    with pytest.raises(ValueError, match="Euclidean and Mahalanobis"):
        region_of(DROClassifier, MORE_Y, cost="l1")


@pytest.mark.parametrize("matrix", [None, LAM], ids=["identity", "Lam"])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=["linear", "logistic"])
def test_coverage(loss, matrix):
    """120 replications of 400 rows; 500 and more sizes are in experiments/theory_coverage.py."""
    count, n = 120, 400
    cost = Norm(2) if matrix is None else Mahalanobis(matrix)
    hits = 0
    for seed in range(count):
        rows, z, labels = draw(n, 1_000 + seed)
        y = z if isinstance(loss, Squared) else labels
        sample = Sample(rows, [y], np.full(n, 1 / n), loss, True)
        hits += confidence_region(sample, y, cost, 0.95).contains(BETA)
    assert abs(hits / count - 0.95) <= 3.5 * np.sqrt(0.95 * 0.05 / count)


def coverage_of_regions(rows_per_slope, d=4, count=200):
    """Return the share of regions of 95% that hold the true slopes of a linear model."""
    rng = np.random.default_rng(0)
    n = rows_per_slope * d
    hits = 0
    for _ in range(count):
        X = rng.standard_normal((n, d))
        beta = rng.standard_normal(d) / np.sqrt(d)
        y = X @ beta + rng.standard_normal(n)
        sample = Sample(X, [y], np.full(n, 1 / n), Squared(), True)
        hits += confidence_region(sample, y, Norm(2), 0.95).contains(beta)
    return hits / count


@pytest.mark.filterwarnings("ignore:the confidence region is asymptotic")
def test_the_threshold_of_rows_is_where_regions_stop_covering():
    least = ROWS_PER_SLOPE["regression"]
    assert coverage_of_regions(least) >= 0.93
    assert coverage_of_regions(least // 3) <= 0.92
    assert coverage_of_regions(5) <= 0.84
    assert coverage_of_regions(3) <= 0.72


def test_few_rows_for_many_slopes_are_told():
    """60 rows of 30 columns gave slopes of +-10,000 without a word."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 30))
    y = np.where(X[:, 0] + rng.normal(size=60) > 0, 1, -1)
    model = DROClassifier(cost="euclidean", delta=0.1).fit(X, y)
    with pytest.warns(UserWarning, match=r"rows of the rarer class are few for 30 slopes"):
        model.confidence_region()
    line = DRORegressor(cost="euclidean", delta=0.1).fit(X, X[:, 0])
    with pytest.warns(UserWarning, match=r"60 rows are few for 30 slopes"):
        line.confidence_region()
