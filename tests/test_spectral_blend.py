"""Spectral and blended metrics, rows without labels, and what one bad row may do to a metric."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from otdro import DROClassifier, DRORegressor
from otdro.costs import Norm
from otdro.design import fenced, fenced_rows, row_shares, weighted_quantile
from otdro.losses import Logistic
from otdro.metrics import Blend, Diagonal, GeometricMean, Learned, Spectral, learn
from otdro.problem import Sample
from otdro.radius.folds import FoldScores
from otdro.radius.rules import Evidence, Verdict, smoothed
from otdro.radius.selection import ERRORS, Trial, blend_weights, excess

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 4)) @ np.array(
    [[2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0.5], [0, 0, 0, 0.3]]
)
Y = np.where(X[:, 0] - X[:, 2] + 0.5 * RNG.standard_normal(60) > 0, 1, -1)
U = RNG.standard_normal((300, 4)) * [3.0, 1, 1, 1]


@pytest.mark.parametrize("power", [0.5, 1, -0.5, 0, 0.75])
@pytest.mark.parametrize("shrinkage", [0.1, 0.5, 1])
def test_spectral_is_a_power_of_the_shrunk_covariance(power, shrinkage):
    C = np.cov(X.T, bias=True)
    w, V = np.linalg.eigh((1 - shrinkage) * C * 4 / np.trace(C) + shrinkage * np.eye(4))
    Lam = (V * w**power) @ V.T
    found = Spectral(power, shrinkage).fit(X)
    assert_allclose(found.metric_, Lam * 4 / np.trace(Lam), atol=1e-12)
    assert_allclose(found.covariance_, C, atol=1e-12)


@pytest.mark.parametrize("power", [0.5, -0.5])
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_fewer_rows_than_columns_span_the_covariance(power, n):
    rows = np.repeat(RNG.standard_normal((n, 12)) + 5.0, 2 if n == 1 else 1, axis=0)
    C = np.cov(rows.T, bias=True)
    shrunk = C * 12 / np.trace(C) / 2 + np.eye(12) / 2 if n > 1 else np.eye(12)
    w, V = np.linalg.eigh(shrunk)
    Lam = (V * w**power) @ V.T
    assert_allclose(Spectral(power).fit(rows).metric_, Lam * 12 / np.trace(Lam), atol=1e-12)


@pytest.mark.parametrize("unlabelled", [None, U])
def test_learners_share_a_covariance_as_if_each_had_its_own(unlabelled):
    learners = [Spectral(), Spectral(0.75, 0.3), Spectral(within=True), Spectral(2.0, within=True)]
    together = Learned(learners).matrices(X, Y, unlabelled=unlabelled)
    for learner, Lam in zip(learners, together, strict=True):
        alone = learn(learner, X, Y, unlabelled=unlabelled).matrix
        assert_allclose(Lam, alone, atol=1e-12)


def test_spectral_within_classes_ignores_what_is_between():
    shifted = X + 10 * (Y > 0)[:, None]
    inside = Spectral(within=True)
    assert_allclose(inside.fit(shifted, Y).metric_, inside.fit(X, Y).metric_, atol=1e-10)


def test_spectral_turns_with_the_rows():
    Q = np.linalg.qr(RNG.standard_normal((4, 4)))[0]
    Lam = Spectral().fit(X).metric_
    assert_allclose(Spectral().fit(X @ Q).metric_, Q.T @ Lam @ Q, atol=1e-10)


def test_blend_is_the_weighted_sum():
    parts = [np.eye(4), Spectral().fit(X).metric_, GeometricMean(random_state=0).fit(X, Y).metric_]
    candidates = ["euclidean", Spectral(), GeometricMean()]
    blend = Blend(candidates, [1, 2, 5]).fit(X, Y)
    assert_allclose(blend.metric_, (parts[0] + 2 * parts[1] + 5 * parts[2]) / 8, atol=1e-12)
    assert_allclose(Blend(candidates).fit(X, Y).metric_, sum(parts) / 3, atol=1e-12)
    assert_allclose(blend.weights_, [0.125, 0.25, 0.625])


def test_blend_takes_learners_of_other_libraries_and_other_blends():
    nca = NeighborhoodComponentsAnalysis(max_iter=3, random_state=0)
    blend = Blend([nca, Blend([Spectral(), "euclidean"])]).fit(X, Y)
    assert_allclose(np.trace(blend.metric_), 4)
    np.linalg.cholesky(blend.metric_)


def test_unlabelled_rows_enter_the_covariance_and_nothing_else():
    both = Spectral().fit(np.vstack([X, U])).metric_
    assert_allclose(learn(Spectral(), X, Y, unlabelled=U).matrix, both)
    pairs = GeometricMean(random_state=0).fit(X, Y).metric_
    assert_allclose(learn(GeometricMean(), X, Y, unlabelled=U).matrix, pairs)
    assert_allclose(
        learn(Blend([Spectral(), GeometricMean()]), X, Y, unlabelled=U).matrix, (both + pairs) / 2
    )
    within = Spectral(within=True)
    assert_allclose(learn(within, X, Y, unlabelled=U).matrix, within.fit(X, Y).metric_)


@pytest.mark.parametrize("make", [DROClassifier, DRORegressor])
def test_a_fit_with_unlabelled_rows_uses_their_covariance(make):
    y = Y if make is DROClassifier else X[:, 0] + 0.1 * RNG.standard_normal(60)
    model = make(cost=Spectral(), delta=0.1).fit(X, y, unlabelled=U)
    assert_allclose(model.cost_.matrix, Spectral().fit(np.vstack([X, U])).metric_)
    learned = make().fit(X, y, unlabelled=U)
    assert not np.allclose(learned.cost_.matrix, make().fit(X, y).cost_.matrix)
    assert len(learned.worst_case().origin) >= 60
    assert learned.worst_case().origin.max() < 60


@pytest.mark.parametrize(
    ("unlabelled", "message"),
    [
        (U[:, :3], "unlabelled has 3 columns but X has 4"),
        (np.where(U > 2, np.nan, U), "unlabelled contains NaN"),
        (U[:1], "minimum of 2 is required by unlabelled"),
        (U[0], "1D array"),
    ],
)
def test_bad_unlabelled_rows(unlabelled, message):
    with pytest.raises(ValueError, match=message):
        DROClassifier().fit(X, Y, unlabelled=unlabelled)


def test_unlabelled_rows_without_a_learned_cost_are_said_to_be_useless():
    with pytest.warns(UserWarning, match="has no use for unlabelled rows"):
        DROClassifier(cost="euclidean", delta=0.1).fit(X, Y, unlabelled=U)


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (Spectral(power=np.inf), ValueError, "power must be a finite number, got power=inf"),
        (Spectral(power="half"), ValueError, "power must be a finite number"),
        (Spectral(shrinkage=0), ValueError, r"shrinkage must be a number in \(0, 1\], got 0"),
        (Spectral(shrinkage=1.2), ValueError, r"\(0, 1\], got 1.2"),
        (Blend([]), ValueError, "at least one candidate"),
        (Blend("euclidean"), ValueError, "in a list"),
        (Blend([3]), TypeError, "metric learner or 'euclidean', got 3"),
        (Blend(["l1"]), TypeError, "got 'l1'"),
        (Blend(["euclidean", Spectral()], [1]), ValueError, "2 candidates but weights of shape"),
        (Blend(["euclidean", Spectral()], [1, -1]), ValueError, "at least 0"),
        (Blend(["euclidean", Spectral()], [0, 0]), ValueError, "not all 0"),
        (Blend(["euclidean", Spectral()], [np.nan, 1]), ValueError, "must be finite"),
    ],
)
def test_bad_parameters(made, error, message):
    with pytest.raises(error, match=message):
        made.fit(X, Y)


def test_within_needs_classes():
    with pytest.raises(ValueError, match=r"needs labels: call fit\(X, y\)"):
        Spectral(within=True).fit(X)
    with pytest.raises(ValueError, match="continuous target"):
        Spectral(within=True).fit(X, X[:, 0])


def test_how_is_blend_or_choose():
    with pytest.raises(ValueError, match="how must be 'blend' or 'choose', got 'vote'"):
        DROClassifier(cost=Learned(how="vote")).fit(X, Y)


def test_the_default_is_one_certified_blend():
    model = DROClassifier(tol=1e-8).fit(X, Y)
    weights = model.cost_.weights_
    assert_allclose(sum(weights.values()), 1)
    assert min(weights.values()) > 0
    table = model.cost_.comparison_
    assert table.blended
    assert [c.name for c in table.candidates] == [*weights, "Blend"]
    assert_allclose([c.weight for c in table.candidates], [*weights.values(), 1])
    matrices = Learned().matrices(np.unique(np.c_[X, Y], axis=0)[:, :4], _sorted_labels())
    parts = [np.eye(4), *matrices]
    assert_allclose(
        model.cost_.matrix, sum(w * M for w, M in zip(weights.values(), parts, strict=True))
    )
    assert model.gap_ <= 1e-8
    assert "A blend of" in str(table)
    assert max(map(len, str(table).splitlines())) <= 80


def _sorted_labels():
    return np.unique(np.c_[X, Y], axis=0)[:, 4]


def _trial(value, scores, slope=1.0, repeats=1):
    """Return a trial of one delta whose folds, of one row each, had these scores."""
    scores = np.asarray(scores, dtype=float)[:, None]
    rows = [np.array([f % (len(scores) // repeats)]) for f in range(len(scores))]
    folds = FoldScores(scores, rows, [])
    return Trial("", Norm(2), np.ones(1), folds, Verdict(0, value, 1.0, slope))


def test_weights_fall_with_the_excess():
    scores, values = np.arange(5.0), np.array([0.0, 3.0, -3.0, -2.0])
    found = [_trial(value, scores) for value in values]
    # equal scores in all folds: the difference has no error, so that gains count in full
    assert_allclose(np.diff(np.log(blend_weights(found))), -np.diff(values))


def test_a_gain_counts_beyond_its_errors_and_a_loss_in_full():
    rng = np.random.default_rng(3)
    mine, its = rng.normal(size=(2, 10))
    error = 2.5 * np.std(mine - its, ddof=1) / np.sqrt(10)
    reference = _trial(0.0, its, slope=1.5)
    for value in (-1.9 * error, -2.0 * error, -5 * error, 7.0):
        expected = value if value > 0 else min(0.0, value + ERRORS * error)
        found = excess(_trial(value, mine, slope=2.5), reference)
        assert_allclose(found, expected, atol=1e-12 * error)


def test_repeated_folds_and_single_ones_say_nothing_of_the_error():
    mine, its = _trial(0.0, [0.0, 1.0, 3.0] * 4, repeats=4), _trial(0.0, [0.0] * 12, repeats=4)
    once = np.std([0.0, 1.0, 3.0] * 4, ddof=1) / np.sqrt(3)
    assert_allclose(mine.folds.paired_error(0, its.folds, 0), once)
    # one fold has no error that could be known: no gain counts
    assert excess(_trial(-100.0, [0.0]), _trial(0.0, [-1.0])) == 0.0


def test_the_slope_of_the_criterion_is_that_of_n_log_loss():
    sample = Sample(X, [Y], np.full(len(Y), 1 / len(Y)), Logistic(), True)
    rows = [np.arange(0, len(Y), 2), np.arange(1, len(Y), 2)]
    z = [(2 * X[part, :1] * np.array([[1.0, 0.5]]))[None] for part in rows]
    pairs = zip(rows, z, strict=True)
    scores = -np.stack([np.logaddexp(0, -Y[r, None] * f[0]).mean(axis=0) for r, f in pairs])
    folds = FoldScores(scores, rows, z)
    verdict = smoothed(Evidence(sample, Norm(2), 1, np.array([0.2, 0.1]), folds, True))
    assert_allclose(verdict.slope * -folds.mean[verdict.place], sample.distinct)


def test_choosing_is_still_there():
    model = DROClassifier(cost=Learned([Diagonal(shrinkage=0.5), GeometricMean()], how="choose"))
    table = model.fit(X, Y).cost_.comparison_
    assert not table.blended
    assert table.winner.criterion == min(c.criterion for c in table.candidates)
    assert [c.weight for c in table.candidates].count(1.0) == 1


def test_fenced_rows_lie_on_or_inside_the_fence():
    bad = X.copy()
    bad[5, 2] = 1e6
    center, f = row_shares(bad)
    assert f[5] < 1e-4
    assert np.all(f[np.arange(60) != 5] == 1)
    assert np.abs(center - X.mean(axis=0)).max() < 0.5
    moved = fenced_rows(bad)
    assert_allclose(moved[np.arange(60) != 5], bad[np.arange(60) != 5])
    assert np.linalg.norm(moved[5] - center) < 20
    # clean Gaussian rows are all inside
    assert fenced_rows(X) is X


def test_equal_rows_have_no_fence():
    rows = np.full((10, 3), 0.1)
    assert_allclose(fenced_rows(rows), rows)
    assert_allclose(row_shares(sparse.csr_array(rows))[1], 1)


def test_sparse_rows_have_the_same_fence():
    bad = np.where(np.abs(X) > 1, X, 0.0)
    bad[5, 2] = 1e4
    for one, other in zip(row_shares(bad), row_shares(sparse.csr_array(bad)), strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_numbers_are_cut_on_both_sides():
    v = np.concatenate([np.linspace(-1, 1, 99), [1e5]])[:, None]
    found = fenced(v, np.full(100, 0.01))
    assert found.max() < 4
    assert_allclose(found[:99], v[:99])
    mostly_zero = np.concatenate([np.zeros(90), np.ones(10)])[:, None]
    assert_allclose(fenced(mostly_zero, np.full(100, 0.01)), mostly_zero)


def test_weighted_quantile_counts_a_weight_as_repetition():
    v, weights = RNG.standard_normal((7, 3)), np.array([1, 2, 3, 1, 1, 4, 2.0])
    repeated = np.repeat(v, weights.astype(int), axis=0)
    equal = np.full(14, 1 / 14)
    for q in (0.25, 0.5, 0.75):
        one = weighted_quantile(v, weights, q)
        assert_allclose(one, weighted_quantile(repeated, equal, q))
        assert_allclose(one, np.quantile(repeated, q, axis=0, method="inverted_cdf"))


@pytest.mark.parametrize(
    "made", [Spectral(), Diagonal(), GeometricMean(), Blend([Spectral(), GeometricMean()])]
)
def test_one_bad_cell_does_not_decide_what_is_learned(made):
    clean = made.fit(X, Y).metric_
    bad = X.copy()
    bad[5, 2] = 1e6
    learned = made.fit(bad, Y).metric_
    assert np.linalg.norm(learned - clean, 2) < 0.6 * np.linalg.norm(clean, 2)


@pytest.mark.parametrize(("n", "cell"), [(100, 1000.0), (100, 100.0), (1000, 1e4), (50, 1e4)])
@pytest.mark.parametrize("cost", ["learned", "euclidean"])
def test_one_bad_cell_does_not_decide_on_delta(n, cell, cost):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n + 1000, 5))
    y = np.where(rows @ [3, -2, 1, 0, 0.5] > 0, 1, -1)
    dirty = rows[:n].copy()
    dirty[0, 1] = cell
    model = DROClassifier(cost=cost).fit(dirty, y[:n])
    path = model.path_
    hits = ((rows[n:] @ path.coef.T + path.intercept) > 0) == (y[n:, None] > 0)
    # no delta recovers a column that one row has spoilt; the rule is to be near the best of them
    assert model.score(rows[n:], y[n:]) >= hits.mean(axis=0).max() - 0.04


def test_candidates_of_one_class_have_names_of_their_own():
    names = Learned([Spectral(), Spectral(0.75, shrinkage=0.5)]).names()
    assert names == ["Euclidean", "Spectral, shrinkage 0.5", "Spectral(power=0.75), shrinkage 0.5"]
