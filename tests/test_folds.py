"""delta="cv": which folds, which scores, what is reported, and that nothing leaks into a fold."""

import re
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit

from otdro import DROClassifier, DRORegressor
from otdro.costs import Mahalanobis, Norm
from otdro.losses import Logistic
from otdro.metrics import GeometricMean, Learned
from otdro.problem import Sample
from otdro.radius.folds import splits

N, D = 48, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Z = X @ [1.0, -1.0, 0.5, 0.0] + RNG.normal(size=N)
Y = np.where(Z > 0, "b", "a")
GROUPS = np.arange(N) // 4


def classifier(**settings):
    return DROClassifier(**{"cost": "euclidean", "rule": "min"} | settings)


def regressor(**settings):
    return DRORegressor(**{"cost": "euclidean", "rule": "min"} | settings)


def sample(labels, weights=None):
    weights = np.ones(len(labels)) if weights is None else weights
    y = np.where(labels == np.unique(labels)[-1], 1.0, -1.0)
    return Sample(X[: len(labels)], [y], weights / weights.sum(), Logistic(), True)


def manual_scores(model, pairs, y, loss):
    """Fit scikit-learn style, one delta and one split at a time."""
    table = []
    for train, test in pairs:
        row = []
        for delta in model.path_.deltas:
            one = type(model)(cost=model.cost_, delta=delta, tol=1e-8).fit(X[train], y[train])
            row.append(-loss(one, X[test], y[test]))
        table.append(row)
    return np.array(table)


def log_loss(model, X, y):
    p = model.predict_proba(X)[np.arange(len(y)), (y == model.classes_[1]).astype(int)]
    return -np.log(p).mean()


def square(model, X, y):
    return np.mean((model.predict(X) - y) ** 2)


@pytest.mark.parametrize(
    ("make", "y", "loss"), [(classifier, Y, log_loss), (regressor, Z, square)], ids=["log", "sq"]
)
@pytest.mark.constant_model("a path begins where the model is constant")
def test_scores_are_those_of_fits_to_the_training_rows(make, y, loss):
    pairs = list(KFold(3, shuffle=True, random_state=1).split(X))
    model = make(cv=pairs).fit(X, y)
    by_hand = manual_scores(model, pairs, y, loss)
    # inside folds models are solved to FOLD_TOL
    assert_allclose(model.path_.score_mean, by_hand.mean(axis=0), rtol=2e-2)
    se = by_hand.std(axis=0, ddof=1) / np.sqrt(3)
    assert_allclose(model.path_.score_se, se, rtol=5e-2, atol=2e-3)
    assert model.delta_ == model.path_.deltas[model.path_.score_mean.argmax()]


SPLITTERS = {
    "int": (3, None),
    "None": (None, None),
    "StratifiedKFold": (StratifiedKFold(4), None),
    "KFold": (KFold(3, shuffle=True, random_state=2), None),
    "GroupKFold": (GroupKFold(3), GROUPS),
    "TimeSeriesSplit": (TimeSeriesSplit(3), None),
}


@pytest.mark.parametrize("name", SPLITTERS)
def test_a_splitter_and_its_splits_agree(name):
    cv, groups = SPLITTERS[name]
    model = classifier(cv=cv).fit(X, Y, groups=groups)
    again = cv
    if name == "int":
        again = StratifiedKFold(cv, shuffle=True, random_state=0)
    if name == "None":
        again = StratifiedKFold(5)
    pairs = list(again.split(X, Y, groups))
    by_list = classifier(cv=pairs).fit(X, Y)
    by_iterator = classifier(cv=iter(pairs)).fit(X, Y)
    for other in (by_list, by_iterator):
        assert_array_equal(model.path_.score_mean, other.path_.score_mean)
        assert_array_equal(model.coef_, other.coef_)


@pytest.mark.parametrize("name", SPLITTERS)
def test_every_splitter_serves_the_default_rule_and_regression(name):
    cv, groups = SPLITTERS[name]
    if name != "StratifiedKFold":
        model = regressor(cv=cv, rule="auto").fit(X, Z, groups=groups)
        assert np.isfinite(model.path_.score_mean).all()
    model = classifier(cv=cv, rule="auto").fit(X, Y, groups=groups)
    assert np.isfinite(model.path_.score_mean).all()


def test_groups_are_kept_together():
    pairs = splits(sample(Y), GroupKFold(3), GROUPS, 0)
    for train, test in pairs:
        assert not set(GROUPS[train]) & set(GROUPS[test])
    with pytest.raises(ValueError, match="groups"):
        classifier(cv=GroupKFold(3)).fit(X, Y)


def test_an_explicit_splitter_is_never_altered():
    labels = np.array([1] + [0] * 14 + [1] * 2 + [0] * 13)
    for cv in (KFold(9), TimeSeriesSplit(4), [(np.arange(20), np.arange(20, 30))]):
        pairs = splits(sample(labels), cv, None, 0, repeats=3)
        wanted = cv if isinstance(cv, list) else list(cv.split(X[:30]))
        assert len(pairs) == len(wanted)
        for (train, test), (train_, test_) in zip(pairs, wanted, strict=True):
            assert_array_equal(train, train_)
            assert_array_equal(test, test_)


def test_only_an_int_is_repeated():
    assert len(splits(sample(Y), 3, None, 0, repeats=3)) == 9
    assert len(splits(sample(Y), StratifiedKFold(3), None, 0, repeats=3)) == 3


@pytest.mark.parametrize("least", [4, 3, 2])
def test_too_few_of_a_class_gives_fewer_folds_with_a_warning(least):
    y = np.array(["rare"] * least + ["usual"] * (N - least))
    with pytest.warns(UserWarning, match=f"'rare'.*{least} rows.*cv=5.*using {least}"):
        model = classifier().fit(X, y)
    same = classifier(cv=StratifiedKFold(least, shuffle=True, random_state=0)).fit(X, y)
    assert_array_equal(model.path_.score_mean, same.path_.score_mean)


def test_the_rare_class_of_several_is_named():
    y = np.array(["x"] * 20 + ["rare"] * 3 + ["z"] * 25)
    with pytest.warns(UserWarning, match="'rare'.*3 rows"):
        classifier().fit(X, y)


def test_too_few_rows_for_the_folds():
    with pytest.warns(UserWarning, match="sample has 4 rows.*cv=5.*using 4"):
        regressor(deltas=[0.1, 0.01]).fit(X[:4], Z[:4])


def test_no_split_with_two_classes_is_an_error():
    y = np.array(["a"] * 24 + ["b"] * 24)
    halves = [(np.arange(24), np.arange(24, 48)), (np.arange(24, 48), np.arange(24))]
    with pytest.raises(ValueError, match=r"none of the 2 splits.*two classes"):
        classifier(cv=halves).fit(X, y)


def test_a_split_without_two_classes_is_left_out_aloud():
    y = np.array(["a"] * 24 + ["b"] * 24)
    good = (np.arange(12, 36), np.r_[:12, 36:48])
    bad = (np.arange(24), np.arange(24, 48))
    with pytest.warns(UserWarning, match=r"1 of 2 splits \(number 0\)"):
        model = classifier(cv=[bad, good]).fit(X, y)
    alone = classifier(cv=[good]).fit(X, y)
    assert_array_equal(model.path_.score_mean, alone.path_.score_mean)
    assert_array_equal(alone.path_.score_se, 0)


@pytest.mark.parametrize("cv", [1, 0, -3])
def test_bad_numbers_of_folds(cv):
    with pytest.raises(ValueError, match="at least 2 folds"):
        classifier(cv=cv).fit(X, Y)


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc", "f1_macro"])
def test_scoring_by_name(scoring):
    from sklearn.metrics import get_scorer

    pairs = list(StratifiedKFold(3).split(X, Y))
    model = classifier(cv=pairs, scoring=scoring, deltas=[0.1, 0.03, 0.01]).fit(X, Y)
    by_hand = manual_scores(model, pairs, Y, lambda *a: -get_scorer(scoring)(*a))
    assert_allclose(model.path_.score_mean, by_hand.mean(axis=0), rtol=1e-2)
    by_object = classifier(cv=pairs, scoring=get_scorer(scoring), deltas=[0.1, 0.03, 0.01])
    assert_array_equal(by_object.fit(X, Y).path_.score_mean, model.path_.score_mean)


def test_scoring_by_callable():
    error = make_scorer(mean_absolute_error, greater_is_better=False)
    pairs = list(KFold(3).split(X))
    model = regressor(cv=pairs, scoring=error).fit(X, Z)
    named = regressor(cv=pairs, scoring="neg_mean_absolute_error").fit(X, Z)
    plain = regressor(
        cv=pairs, scoring=lambda m, X, y: -np.abs(m.predict(X) - y).mean()
    ).fit(X, Z)  # fmt: skip
    assert_array_equal(model.path_.score_mean, named.path_.score_mean)
    assert_allclose(model.path_.score_mean, plain.path_.score_mean)
    assert (model.path_.score_mean < 0).all()


def test_the_default_score_is_the_own_loss():
    pairs = list(StratifiedKFold(3).split(X, Y))
    own = classifier(cv=pairs).fit(X, Y)
    named = classifier(cv=pairs, scoring="neg_log_loss").fit(X, Y)
    assert_allclose(own.path_.score_mean, named.path_.score_mean)
    assert own.delta_ == named.delta_


def test_scoring_of_several_classes():
    y = np.digitize(Z, [-0.7, 0.7])
    for form in ("ovr", "multinomial"):
        model = classifier(scoring="accuracy", cv=3, multi_class=form).fit(X, y)
        assert 1 / 3 < model.path_.score_mean.max() <= 1


def test_a_scorer_that_needs_probabilities():
    with pytest.raises(ValueError, match=r"(?s)neg_log_loss.*hinge.*predict_proba"):
        classifier(loss="hinge", scoring="neg_log_loss", cv=3).fit(X, Y)


def test_an_unknown_scorer():
    with pytest.raises(ValueError, match="guesswork"):
        classifier(scoring="guesswork").fit(X, Y)


def test_a_score_that_is_no_number_is_an_error():
    ys = np.array(["a", "b"] * 24)
    single = [(np.arange(2, 48), np.arange(1)), (np.arange(40), np.arange(40, 48))]
    nan = lambda model, X, y: np.nan if len(y) == 1 else 0.5  # noqa: E731
    with pytest.raises(ValueError, match=r"fold\(s\) 0"):
        classifier(cv=single, scoring=nan).fit(X, ys)


BAD = {
    "rule": ({"rule": "best"}, "one of auto, min.*'best'"),
    "delta": ({"delta": "guess"}, "'guess'.*'cv'.*'theory'|'cv'.*'theory'.*'guess'"),
    "confidence 0": ({"delta": "theory", "confidence": 0.0}, "confidence.*0"),
    "confidence 1": ({"delta": "theory", "confidence": 1}, "confidence.*1"),
    "confidence text": ({"delta": "theory", "confidence": "high"}, "confidence.*high"),
    "order": ({"order": 3}, "order=3"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings(case):
    settings, match = BAD[case]
    with pytest.raises(ValueError, match=match):
        classifier(**settings).fit(X, Y)


def test_folds_that_do_not_converge_are_reported_by_number():
    pairs = list(StratifiedKFold(2).split(X, Y))
    with pytest.warns(ConvergenceWarning) as caught:
        model = classifier(cv=pairs, max_iter=1, deltas=[0.01, 0.001]).fit(X, Y)
    text = [str(w.message) for w in caught if "fold" in str(w.message)]
    assert len(text) == 1
    # those of the 4 whose gap could change the choice
    assert re.match("[1-4] fits inside folds did not", text[0])
    assert len(model.path_.score_mean) == 2


#: Fits whose folds are solved at the same time: losses, costs, orders, rules, classes, weights.
AT_THE_SAME_TIME = (
    {
        f"{loss} {cost}": (DROClassifier, {"loss": loss, "cost": cost})
        for loss in ("logistic", "hinge", "squared_hinge")
        for cost in ("learned", "euclidean", "l1", "linf")
    }
    | {
        f"{loss} {cost}": (DRORegressor, {"loss": loss, "cost": cost})
        for loss in ("squared", "absolute", "huber")
        for cost in ("learned", "linf")
    }
    | {
        "order 2": (DROClassifier, {"order": 2}),
        "rule min": (DROClassifier, {"rule": "min"}),
        "accuracy": (DROClassifier, {"scoring": "accuracy"}),
        "chosen": (DROClassifier, {"cost": Learned(how="choose")}),
        "one-vs-rest": (DROClassifier, {"multi_class": "ovr"}),
        "softmax": (DROClassifier, {"multi_class": "multinomial"}),
    }
)


@pytest.mark.constant_model("a fold of so few rows may choose the constant model")
@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", AT_THE_SAME_TIME)
def test_workers_change_no_bit(case, backend):
    make, settings = AT_THE_SAME_TIME[case]
    rows, y = X[:30, :4], Y[:30]
    if make is DRORegressor:
        y = Z[:30]
    elif case in ("one-vs-rest", "softmax"):
        y = np.digitize(rows[:, 0], [-0.5, 0.5])
    settings = {"cv": 2, "random_state": 4, "deltas": [0.3, 0.1, 0.03], **settings}
    one = make(n_jobs=1, **settings).fit(rows, y)
    with parallel_config(backend=backend):
        two = make(n_jobs=2, **settings).fit(rows, y)
    assert two.delta_ == one.delta_
    assert_array_equal(two.coef_, one.coef_)
    assert_array_equal(two.gap_, one.gap_)
    assert_array_equal(two.path_.score_mean, one.path_.score_mean)
    assert_array_equal(two.path_.coef, one.path_.coef)


@pytest.mark.parametrize(("max_iter", "told"), [(1, True), (4, False)])
def test_folds_warn_only_of_gaps_that_could_change_the_choice(max_iter, told):
    # after four steps gaps are below a thousandth of the risk, above what is asked for
    settings = {"deltas": [0.1, 0.05], "tol": 1e-14, "max_iter": max_iter}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = classifier(**settings).fit(X, Y)
    assert any("inside folds" in str(w.message) for w in caught) == told
    close = classifier(deltas=[0.1, 0.05]).fit(X, Y)
    if not told:
        assert model.delta_ == close.delta_


@pytest.mark.parametrize("seed", [None, 3])
def test_the_same_seed_gives_the_same_bits(seed):
    first = DROClassifier(random_state=seed).fit(X, Y)
    second = DROClassifier(random_state=seed).fit(X, Y)
    assert first.delta_ == second.delta_
    assert_array_equal(first.coef_, second.coef_)
    assert_array_equal(first.path_.score_mean, second.path_.score_mean)


def test_another_seed_gives_other_folds():
    scores = [classifier(random_state=s).fit(X, Y).path_.score_mean for s in (0, 1)]
    assert np.abs(scores[0] - scores[1]).max() > 1e-6


@pytest.mark.parametrize("cost", ["euclidean", "learned"])
def test_the_model_is_the_certified_one_at_its_ball(cost):
    model = DROClassifier(cost=cost, tol=1e-9).fit(X, Y)
    direct = DROClassifier(cost=model.cost_, delta=model.delta_, tol=1e-9).fit(X, Y)
    assert 0 <= model.gap_ <= 1e-9 * np.log(2)
    assert_allclose(model.robust_risk_, direct.robust_risk_, rtol=2e-9)
    assert_allclose(model.coef_, direct.coef_, atol=1e-4)
    assert_allclose(model.intercept_, direct.intercept_, atol=1e-4)


def test_the_chosen_cost_is_learned_from_all_rows():
    y = np.where(Z > 0, 1.0, -1.0)
    model = DROClassifier(cost=GeometricMean(), rule="min", cv=3).fit(X, y)
    learned = GeometricMean().fit(X, y)
    assert_allclose(model.cost_.matrix, learned.metric_, rtol=1e-10)


def chance(seed, cost, n=30, d=15):
    """Return minus the fold scores, averaged over the path, of labels made by coin."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.permutation(np.resize([-1.0, 1.0], n))
    if cost == "leaked":
        cost = Mahalanobis(GeometricMean(shrinkage=0.01).fit(X, y).metric_)
    model = DROClassifier(cost=cost, rule="min", random_state=seed).fit(X, y)
    return [-c.score_mean.mean() for c in model.path_.candidates]


@pytest.mark.slow
def test_random_labels_are_not_beaten():
    losses = np.array([chance(seed, "learned") for seed in range(12)])
    se = losses.std(axis=0, ddof=1) / np.sqrt(len(losses))
    assert np.all(losses.mean(axis=0) >= np.log(2) - 2 * se)


def test_a_cost_learned_outside_the_folds_would_be_seen_to_leak():
    inside = np.mean([chance(s, GeometricMean(shrinkage=0.01)) for s in range(8)])
    outside = np.mean([chance(s, "leaked") for s in range(8)])
    assert outside < inside - 0.05


@pytest.mark.parametrize("rule", ["min", "1se", "profile", "auto"])
@pytest.mark.parametrize("cost", ["euclidean", "learned"])
def test_integer_weights_are_repeated_rows(rule, cost):
    counts = np.random.default_rng(8).integers(0, 4, size=N)
    rows = np.repeat(np.arange(N), counts)
    pairs = list(KFold(3, shuffle=True, random_state=3).split(X))
    repeated = [tuple(np.flatnonzero(np.isin(rows, part)) for part in pair) for pair in pairs]
    for make, y in ((DROClassifier, Y), (DRORegressor, Z)):
        settings = {"cost": cost, "rule": rule, "tol": 1e-9}
        weighted = make(cv=pairs, **settings).fit(X, y, sample_weight=counts)
        again = make(cv=repeated, **settings).fit(X[rows], y[rows])
        assert_allclose(weighted.path_.deltas, again.path_.deltas, rtol=1e-9)
        assert_allclose(weighted.path_.score_mean, again.path_.score_mean, rtol=1e-3)
        assert_allclose(weighted.delta_, again.delta_, rtol=1e-9)
        assert_allclose(weighted.coef_, again.coef_, atol=1e-4)


def test_rows_without_weight_do_not_matter():
    weights = np.r_[np.ones(40), np.zeros(8)]
    pairs = list(KFold(4).split(X[:40]))
    few = classifier(cv=pairs).fit(X[:40], Y[:40])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        more = classifier(cv=pairs).fit(X, Y, sample_weight=weights)
    assert_allclose(more.coef_, few.coef_, atol=1e-5)
    assert more.cost_.p == Norm(2).p
