"""The rules that choose delta, on scores made by hand and on small problems."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from otdro import DROClassifier, DRORegressor, load, save
from otdro.comparison import logistic_cv
from otdro.costs import Mahalanobis, Norm
from otdro.design import row_shares
from otdro.losses import Logistic, Squared
from otdro.metrics import Learned
from otdro.problem import Sample
from otdro.radius.folds import FoldScores, cross_validate, splits
from otdro.radius.grid import default_deltas
from otdro.radius.rules import (
    PRIOR_SHARE,
    PRIOR_WEIGHT,
    PROFILE_SHARE,
    RULES,
    Evidence,
    criterion,
    profile_median,
    resolve,
    smoothed_loss,
)
from otdro.solvers import Exact

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 5)) @ np.diag([2.0, 1.0, 1.0, 0.5, 0.2])
Z = X @ [1.0, -1.0, 0.5, 0.0, 0.0] + RNG.normal(size=N)
Y = np.where(Z > 0, 1.0, -1.0)
LAM = np.diag([1.0, 2.0, 0.5, 1.0, 3.0]) + 0.2


def by_hand(mean, se):
    """Return evidence whose fold scores have this mean and standard error."""
    mean, se = np.asarray(mean, float), np.asarray(se, float)
    scores = np.stack([mean - se, mean + se])
    folds = FoldScores(scores, [np.arange(2)], [np.zeros((1, 2, len(mean)))])
    sample = Sample(X[:2], [Y[:2]], np.full(2, 0.5), Logistic(), True)
    return Evidence(sample, Norm(2), 1, np.geomspace(1, 0.1, len(mean)), folds, False)


def evidence(cost=None, order=1, loss=None, own_loss=True):
    """Return evidence from five folds of the rows above."""
    cost, loss = cost or Norm(2), loss or Logistic()
    y = Y if loss.task == "classification" else Z
    sample = Sample(X, [y], np.full(N, 1 / N), loss, True)
    deltas, solver = default_deltas(sample, cost, order), Exact(tol=1e-6)
    pairs = splits(sample, 5, None, 0)
    [found] = cross_validate(sample, order, solver, pairs, [cost], [[cost]] * 5, [deltas])
    return Evidence(sample, cost, order, deltas, found, own_loss)


EVIDENCE = {
    "order 1": {},
    "order 2": {"order": 2},
    "Mahalanobis": {"cost": Mahalanobis(LAM)},
    "l1": {"cost": Norm(1)},
    "squared": {"order": 2, "loss": Squared()},
}


def test_minimum_takes_the_best_and_of_equal_ones_the_largest_delta():
    assert RULES["min"](by_hand([-3, -1, -1, -2], [0.1] * 4))[:2] == (1, 1.0)


def test_one_standard_error_takes_the_largest_delta_within_it():
    mean = [-3.0, -1.5, -1.4, -1.0, -2.0]
    assert RULES["1se"](by_hand(mean, [0, 0, 0, 0.45, 0])).place == 2
    assert RULES["1se"](by_hand(mean, [0, 0, 0, 0.0, 9])).place == 3
    assert RULES["1se"](by_hand(mean, [0, 0, 0, 5.0, 0])).place == 0


@pytest.mark.parametrize("name", EVIDENCE)
def test_profile_takes_the_least_delta_above_its_share(name):
    e = evidence(**EVIDENCE[name])
    place = RULES["profile"](e).place
    ratio = e.radius / profile_median(e)
    assert np.all(ratio[: place + 1] >= PROFILE_SHARE)
    assert place == len(ratio) - 1 or ratio[place + 1] < PROFILE_SHARE


@pytest.mark.parametrize("name", EVIDENCE)
def test_profile_median_is_that_of_multiplier_draws(name):
    e = evidence(**EVIDENCE[name])
    sample, y = e.sample, e.sample.ys[0]
    rows, z, share = e.folds.entries(0, sample.weights)
    assert_array_equal(np.sort(rows), np.arange(N))
    assert_allclose(share.sum(), 1)
    xi = np.random.default_rng(1).normal(size=(4_000, N))
    moved = sample.X[rows] - sample.X.mean(axis=0)
    b = sample.loss.constant(y, sample.weights)
    flat = sample.loss.derivative(np.full(N, b), y)
    unit = 1.0 if e.order == 1 else np.sqrt(np.mean(flat**2))
    for j in (0, 8, 19):
        a = sample.loss.derivative(z[:, j], y[rows])
        draws = e.cost.norm((xi * a) @ moved / N)
        assert_allclose(profile_median(e)[j], np.median(draws) / unit, rtol=0.06)


@pytest.mark.parametrize("name", EVIDENCE)
def test_auto_minimises_its_criterion(name):
    e = evidence(**EVIDENCE[name])
    values = criterion(e)
    assert RULES["auto"](e)[:2] == (values.argmin(), values.min())
    prior = np.log(e.radius / (PRIOR_SHARE * profile_median(e))) ** 2
    assert_allclose(values - PRIOR_WEIGHT * prior, N * np.log(smoothed_loss(e, N)[0]))


def test_smoothing_fades_with_rows():
    e = evidence()
    raw = -e.folds.mean
    gap = [np.abs(smoothed_loss(e, n)[0] - raw).max() for n in (40, 400, 40_000, 4_000_000)]
    assert gap[0] > gap[1] > gap[2]
    assert gap[3] < 2e-3


def test_regression_is_not_smoothed():
    e = evidence(order=2, loss=Squared())
    # folds of equal size: the mean over rows is the mean over folds
    assert_allclose(smoothed_loss(e, N)[0], -e.folds.mean)


@pytest.mark.parametrize("loss", [Logistic(), Squared()])
def test_rows_far_out_count_less_and_as_on_their_fence(loss):
    far = X.copy()
    far[:3] *= 1e4
    y = Y if loss.task == "classification" else Z
    sample = Sample(far, [y], np.full(N, 1 / N), loss, True)
    models = np.outer([1.0, -1.0, 0.5, 0.0, 0.0], [0.1, 1.0])
    center, f = row_shares(far)

    def losses(rows):
        folds = FoldScores(np.zeros((1, 2)), [np.arange(N)], [(rows @ models)[None]])
        near = sample if rows is far else replace(sample, X=X, weights=f / f.sum())
        return smoothed_loss(Evidence(near, Norm(2), 1, np.ones(2), folds, True), N)[0]

    # the median score stands for that of the centre
    assert_allclose(losses(far), losses(center + f[:, None] * (far - center)), rtol=0.05)


def test_auto_with_a_scorer_is_the_minimum():
    e = evidence(own_loss=False)
    assert RULES["auto"](e) == RULES["min"](e)


def test_repeated_rows_are_no_information():
    rows = np.repeat(np.arange(20), 3)
    weights = np.full(60, 1 / 60)
    assert Sample(X[rows], [Y[rows]], weights, Logistic(), True).distinct == 20
    weights[:6] = 0
    assert Sample(X[rows], [Y[rows]], weights / weights.sum(), Logistic(), True).distinct == 18


@pytest.mark.parametrize("rule", ["min", "1se", "tolerance", "profile", "auto", "smoothed"])
@pytest.mark.parametrize("make", [DROClassifier, DRORegressor])
def test_every_rule_on_a_small_problem(rule, make):
    y = Y if make is DROClassifier else Z
    model = make(rule=rule, tol=1e-8).fit(X, y)
    assert model.delta_ in model.path_.deltas
    assert [c.name for c in model.path_.candidates][-1] == "Blend"
    assert len(model.path_.candidates) == len(model.cost_.weights_) + 1
    direct = make(cost=model.cost_, delta=model.delta_, tol=1e-8).fit(X, y)
    assert_allclose(model.robust_risk_, direct.robust_risk_, rtol=1e-7)


def test_one_standard_error_is_never_below_the_minimum():
    pairs = list(StratifiedKFold(5).split(X, Y))
    least, cautious = (
        DROClassifier(cost="euclidean", rule=rule, cv=pairs).fit(X, Y).delta_
        for rule in ("min", "1se")
    )
    assert cautious >= least


def test_the_cost_is_chosen_by_the_rule():
    model = DROClassifier(cost=Learned(how="choose"), rule="min").fit(X, Y)
    scores = [c.score for c in model.path_.candidates]
    assert [c.chosen for c in model.path_.candidates].index(True) == int(np.argmax(scores))


def test_a_given_delta_leaves_the_cost_to_the_folds():
    model = DROClassifier(delta=0.05).fit(X, Y)
    assert model.delta_ == 0.05
    assert_allclose(sum(model.cost_.weights_.values()), 1)


@pytest.mark.parametrize("rule", ["best", None, "MIN", 1])
def test_unknown_rule(rule):
    with pytest.raises(ValueError, match="known: auto, min, 1se, profile"):
        resolve(rule)


def test_tolerance_takes_the_largest_delta_within_its_share_of_the_best():
    mean = [-3.0, -1.5, -1.1, -1.0, -2.0]
    e = by_hand(mean, [0.1] * 5)
    for tolerance, place in [(0.0, 3), (0.05, 3), (0.1, 2), (0.11, 2), (0.5, 1), (5.0, 0)]:
        verdict = RULES["tolerance"](replace(e, tolerance=tolerance))
        assert verdict.place == place
        # costs are compared at their best
        assert verdict.value == 1.0
    # of a score such as accuracy, too
    positive = replace(by_hand([0.5, 0.86, 0.9, 0.8], [0.1] * 4), tolerance=0.05)
    assert RULES["tolerance"](positive).place == 1


def by_tolerance(make, tolerances, rows, y, **more):
    """Return the fits of the rule "tolerance", the first of which is that of "min"."""
    fit = {name: more.pop(name) for name in ("groups", "sample_weight") if name in more}
    plain = make(rule="min", **more).fit(rows, y, **fit)
    models = [make(rule="tolerance", tolerance=t, **more).fit(rows, y, **fit) for t in tolerances]
    assert models[0].delta_ == plain.delta_
    assert_array_equal(models[0].coef_, plain.coef_)
    deltas = [model.delta_ for model in models]
    assert deltas == sorted(deltas)
    for t, model in zip(tolerances, models, strict=True):
        path = model.path_
        place = int(np.flatnonzero(path.deltas == model.delta_)[0])
        best = path.score_mean.max()
        assert path.score_mean[place] >= best - t * abs(best)
        assert np.all(path.score_mean[:place] < best - t * abs(best))
    return models


TOLERANCES = [0.0, 0.01, 0.05, 0.3]


@pytest.mark.constant_model("the largest tolerance may allow the constant model")
@pytest.mark.parametrize(
    "case", ["rows", "learned", "l1", "groups", "sparse", "classes", "regression", "weights"]
)
def test_tolerance_is_monotone_and_0_is_the_minimum(case):
    more = {"cost": "euclidean"}
    if case == "learned":
        more = {}
    elif case == "l1":
        more = {"cost": "l1"}
    elif case == "groups":
        more["groups"] = np.arange(N) % 6
    elif case == "weights":
        more["sample_weight"] = 1.0 + np.arange(N) % 3
    rows = sparse.csr_array(X) if case == "sparse" else X
    make = DRORegressor if case == "regression" else DROClassifier
    labels = np.digitize(Z, [-1.0, 1.0]) if case == "classes" else Y
    models = by_tolerance(make, TOLERANCES, rows, Z if case == "regression" else labels, **more)
    assert models[-1].delta_ > models[0].delta_


@pytest.mark.constant_model("the largest tolerance may allow the constant model")
@pytest.mark.parametrize("labels", ["two", "three"])
def test_tolerance_of_rows_in_chunks(labels):
    rows = np.random.default_rng(1).normal(size=(400, 3))
    scores = rows @ [1.0, -1.0, 0.0] + np.random.default_rng(2).normal(size=400)
    in_chunks = da.from_array(rows, chunks=(150, 3))
    y = np.digitize(scores, [0.0] if labels == "two" else [-1.0, 1.0])
    by_tolerance(DROClassifier, TOLERANCES, in_chunks, y, cost="euclidean")


@pytest.mark.parametrize("tolerance", [-0.1, np.inf, np.nan, "5%", None, True])
def test_a_tolerance_is_a_finite_number(tolerance):
    with pytest.raises(ValueError, match="tolerance must be a number >= 0"):
        DROClassifier(rule="tolerance", tolerance=tolerance).fit(X, Y)


def test_a_model_saved_without_a_tolerance_still_loads(tmp_path):
    model = DROClassifier(cost="euclidean", delta=0.1).fit(X, Y)
    del model.tolerance
    assert "tolerance" not in vars(model)
    save(model, tmp_path / "old.skops")
    loaded = load(tmp_path / "old.skops")
    assert loaded.get_params()["tolerance"] == 0.05
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.set_params(rule="tolerance", delta="cv").fit(X, Y).delta_ > 0


def rule_of_one_column(n, noise, seed=0):
    """Return indicators of four columns of three values each; the label is one of the values."""
    rng = np.random.default_rng(seed)
    values = rng.integers(3, size=(n, 4))
    rows = np.concatenate([np.eye(3)[column] for column in values.T], axis=1)
    return rows, np.where((values[:, 0] == 1) ^ (rng.random(n) < noise), 1, -1)


@pytest.mark.parametrize("cost", ["learned", "euclidean"])
@pytest.mark.parametrize("n", [60, 200])
def test_labels_without_noise_leave_little_penalty(cost, n):
    rows, labels = rule_of_one_column(n, 0.0)
    model = DROClassifier(cost=cost).fit(rows, labels)
    new, truth = rule_of_one_column(2_000, 0.0, seed=1)
    tuned = logistic_cv(0, Cs=np.logspace(-4, 4, 9), scoring="neg_log_loss").fit(rows, labels)
    ours, theirs = (log_loss(truth, m.predict_proba(new)) for m in (model, tuned))
    assert ours < 1.5 * theirs
    # the end of a longer grid than usual, with its certificate
    assert model.delta_ == model.path_.deltas[-1] < 1e-4 * model.path_.deltas[0]
    assert model.gap_ <= 1e-6


def test_a_few_wrong_labels_keep_the_penalty():
    rows, labels = rule_of_one_column(200, 0.03)
    model = DROClassifier().fit(rows, labels)
    assert len(model.path_.deltas) == 20
    assert model.delta_ > model.path_.deltas[-1]


def test_given_deltas_are_not_extended():
    rows, labels = rule_of_one_column(100, 0.0)
    model = DROClassifier(deltas=[0.1, 0.01]).fit(rows, labels)
    assert_array_equal(model.path_.deltas, [0.1, 0.01])
