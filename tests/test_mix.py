"""Averages of linear models: weights, refitted intercepts, columns by name, refusals."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import (
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

import otdro
from otdro import DROClassifier, DRORegressor, MixClassifier, MixRegressor, audit, robust_risk
from otdro.comparison import logistic_cv

RNG = np.random.default_rng(0)
BETA = np.array([2.0, -1.0, 0.0])
X = RNG.standard_normal((30, 3))
Y = np.where(X @ BETA + RNG.logistic(size=30) > 0, "yes", "no")
T = X @ BETA + RNG.standard_normal(30)
FAST = [DROClassifier(cost="euclidean", delta=0.1)]
FAST_REGRESSION = [DRORegressor(cost="euclidean", delta=0.01)]


def test_the_model_is_the_weighted_mean_of_its_parts():
    model = MixClassifier(FAST, [(BETA, 3.0)]).fit(X, Y)
    assert sum(model.weights_.values()) == pytest.approx(1)
    w = model.weights_["source"]
    member = model.members_["droclassifier"]
    assert np.allclose(model.coef_, w * BETA + (1 - w) * member.coef_)


def posterior_mean(risk, n):
    """Return the mean weight of a source beside one member, by quadrature of e^(-n risk) prior."""
    v = (np.arange(2_000) + 0.5) / 2_000
    log_p = -n * np.array([risk(each) for each in v]) + np.sqrt(n) / 5 * np.log(1 - v)
    p = np.exp(log_p - log_p.max())
    return v @ p / p.sum()


FOLDS = [(np.arange(15), np.arange(15, 30)), (np.arange(15, 30), np.arange(15))]


def parts_out_of_fold(kind, member, source, X, y):
    """Return the scores of a source, refitted in every fold, and of a member, on tested rows."""
    models = [(only_source(kind, source, X[a], y[a]), clone(member).fit(X[a], y[a]))
              for a, _ in FOLDS]  # fmt: skip
    scores = [[m.coef_.ravel() @ X[b].T + m.intercept_ for m in pair]
              for pair, (_, b) in zip(models, FOLDS, strict=True)]  # fmt: skip
    return np.concatenate(scores, axis=1), np.concatenate([y[b] for _, b in FOLDS])


@pytest.mark.parametrize("source", [BETA, -BETA])
def test_weights_are_the_posterior_mean(source):
    model = MixClassifier(FAST, [(source, 0.0)], cv=FOLDS).fit(X, Y)
    (published, fitted), y = parts_out_of_fold(MixClassifier, FAST[0], (source, 0.0), X, Y)
    signs = np.where(y == "yes", 1, -1)

    def risk(v):
        return np.logaddexp(0, -signs * (v * published + (1 - v) * fitted)).mean()

    assert model.losses_["source"] == pytest.approx(risk(1.0), rel=1e-6)
    assert model.losses_["droclassifier"] == pytest.approx(risk(0.0), rel=1e-3)
    assert model.weights_["source"] == pytest.approx(posterior_mean(risk, 30), abs=0.02)


def test_squared_losses_are_weighed_by_the_gaussian_likelihood():
    model = MixRegressor(FAST_REGRESSION, [(BETA + 1, 0.0)], cv=FOLDS).fit(X, T)
    parts = parts_out_of_fold(MixRegressor, FAST_REGRESSION[0], (BETA + 1, 0.0), X, T)
    (published, fitted), y = parts

    def risk(v):
        return np.mean((y - v * published - (1 - v) * fitted) ** 2)

    least = min(risk(v) for v in np.linspace(0, 1, 401))
    expected = posterior_mean(lambda v: risk(v) / (2 * least), 30)
    assert model.weights_["source"] == pytest.approx(expected, abs=0.02)


def test_repeated_rows_do_not_sharpen_the_weights():
    twice = [np.concatenate([part, part + 30]) for pair in FOLDS for part in pair]
    folds = [(twice[0], twice[1]), (twice[2], twice[3])]
    once = MixClassifier(FAST, [(BETA, 0.0)], cv=FOLDS).fit(X, Y)
    doubled = MixClassifier(FAST, [(BETA, 0.0)], cv=folds).fit(np.tile(X, (2, 1)), np.tile(Y, 2))
    assert doubled.weights_["source"] == pytest.approx(once.weights_["source"], rel=1e-3)


def test_a_generator_may_be_the_seed():
    models = [
        MixClassifier(FAST, [(BETA, 0.0)], random_state=np.random.RandomState(1)).fit(X, Y)
        for _ in range(2)
    ]
    assert models[0].weights_ == models[1].weights_


def test_a_misleading_source_loses_its_weight_with_more_rows():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((400, 3))
    y = rows @ BETA + rng.logistic(size=400) > 0
    weights = [
        MixClassifier(FAST, [(np.array([1.0, 1.0, 1.0]), 0.0)]).fit(rows[:n], y[:n]).weights_
        for n in (20, 80, 400)
    ]
    shares = [each["source"] for each in weights]
    assert shares[0] > shares[1] > shares[2]
    assert shares[2] < 0.03


def test_the_first_of_equal_members_has_the_larger_weight():
    model = MixClassifier([("one", FAST[0]), ("two", FAST[0])]).fit(X, Y)
    # v^(a) has the mean (a + 1)/(a + 2)
    a = np.sqrt(30) / 5
    assert model.weights_["one"] == pytest.approx((a + 1) / (a + 2), abs=0.01)


def test_a_worse_first_member_loses_its_weight_with_more_rows():
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((1_000, 3))
    y = rows @ BETA + rng.logistic(size=1_000) > 0
    members = [DROClassifier(cost="euclidean", delta=delta) for delta in (0.2, 0.01)]
    shares = [
        next(iter(MixClassifier(members).fit(rows[:n], y[:n]).weights_.values()))
        for n in (100, 1_000)
    ]
    assert shares[1] < shares[0] / 2


def test_a_source_without_slopes_is_the_share_of_positives():
    model = only_source(MixClassifier, (np.zeros(3), 4.0), X, Y)
    assert model.predict_proba(X)[:, 1] == pytest.approx((Y == "yes").mean(), abs=1e-9)


def only_source(kind, source, X, y):
    """Return a mixture of one source alone, whose intercept is then the refitted one."""
    return kind([], [source]).fit(X, y)


def test_the_intercept_of_a_source_matches_the_share_of_positives():
    model = only_source(MixClassifier, (BETA, 7.0), X, Y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx((Y == "yes").mean(), abs=1e-9)


def test_the_intercept_of_a_source_leaves_no_mean_residual():
    model = only_source(MixRegressor, (BETA, 7.0), X, T)
    assert model.predict(X).mean() == pytest.approx(T.mean())


def test_the_intercepts_of_a_softmax_source_are_the_best():
    B = np.array([BETA, -BETA, [0.0, 1.0, 1.0]])
    y = np.argmax(X @ B.T + RNG.gumbel(size=(30, 3)), axis=1)
    model = MixClassifier([], [(B, np.zeros(3))], cv=3).fit(X, y)

    def risk(b):
        z = X @ B.T + b
        return np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(30), y])

    best = minimize(risk, np.zeros(3), tol=1e-10)
    assert risk(model.intercept_) <= best.fun + 1e-9


@pytest.mark.parametrize("weighted", [False, True])
def test_worst_case_risk_is_that_of_the_mean_and_below_the_bound(weighted):
    sample_weight = RNG.uniform(1, 2, size=30) if weighted else None
    model = MixClassifier(FAST, [(BETA, 0.0)]).fit(X, Y, sample_weight)
    assert model.robust_risk_ <= model.robust_risk_bound_ + 1e-12
    if not weighted:
        signs = np.where(Y == "yes", 1, -1)
        risk = robust_risk(X, signs, model.coef_[0], model.intercept_[0], "logistic", model.ball_)
        assert model.robust_risk_ == pytest.approx(risk)


def test_a_member_that_chooses_by_folds_is_the_one_fitted_alone():
    model = MixClassifier([DROClassifier()], [(BETA, 0.0)]).fit(X, Y)
    alone = DROClassifier().fit(X, Y)
    assert np.array_equal(model.members_["droclassifier"].coef_, alone.coef_)
    assert model.members_["droclassifier"].cv == 5


def test_out_of_fold_losses_of_a_member_are_those_of_refits():
    folds = [(np.arange(10, 30), np.arange(10)), (np.arange(20), np.arange(20, 30))]
    model = MixClassifier(FAST, cv=folds).fit(X, Y)
    losses = [
        -np.log(clone(FAST[0]).fit(X[train], Y[train]).predict_proba(X[test])
                [np.arange(10), (Y[test] == "yes").astype(int)])
        for train, test in folds
    ]  # fmt: skip
    assert model.losses_["droclassifier"] == pytest.approx(np.mean(losses))


SCALED = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)


@pytest.mark.parametrize("source", [LogisticRegression().fit(X, Y), SCALED, FAST[0].fit(X, Y)])
def test_sources_are_read_in_the_columns_of_x(source):
    model = only_source(MixClassifier, source, X, Y)
    assert np.allclose(
        model.decision_function(X) - model.intercept_, source.decision_function(X)
        - (source.decision_function(X) - X @ model.coef_[0]).mean()
    )  # fmt: skip


def test_columns_of_a_source_are_matched_by_name():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    source = LogisticRegression().fit(frame[["c", "a"]], Y)
    model = only_source(MixClassifier, source, frame, Y)
    assert np.allclose(model.coef_[0], [source.coef_[0, 1], 0.0, source.coef_[0, 0]])


def test_columns_that_x_lacks_are_left_out_with_a_warning():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    source = LogisticRegression().fit(frame, Y)
    with pytest.warns(UserWarning, match=r"columns that X lacks.*'b'"):
        model = only_source(MixClassifier, source, frame[["a", "c"]], Y)
    assert np.allclose(model.coef_, source.coef_[:, [0, 2]])


def test_two_members_without_a_source():
    members = [("dense", FAST[0]), ("sparse", DROClassifier(cost="linf", delta=0.1))]
    model = MixClassifier(members).fit(X, Y)
    assert set(model.weights_) == {"dense", "sparse"}
    assert "fitted to the rows" in str(model)


def test_members_of_scikit_learn_and_pipelines():
    members = [logistic_cv(0, scoring="neg_log_loss"),
               make_pipeline(StandardScaler(), FAST[0])]  # fmt: skip
    model = MixClassifier(members).fit(X, Y)
    assert set(model.weights_) == {"logisticregressioncv", "droclassifier"}
    assert not hasattr(model, "robust_risk_")


def test_three_classes():
    B = np.array([BETA, -BETA, [0.0, 1.0, 1.0]])
    y = np.array(["a", "b", "c"])[np.argmax(X @ B.T + RNG.gumbel(size=(30, 3)), axis=1)]
    model = MixClassifier(FAST, [(B, np.zeros(3))], cv=3).fit(X, y)
    assert model.coef_.shape == (3, 3)
    assert model.robust_risk_ <= model.robust_risk_bound_ + 1e-12
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)
    assert audit(model, X, y).accuracy(0.0) == pytest.approx(model.score(X, y))


def test_sparse_rows_give_the_same_model():
    dense = MixClassifier(FAST, [(BETA, 0.0)]).fit(X, Y)
    sparse = MixClassifier(FAST, [(BETA, 0.0)]).fit(csr_array(X), Y)
    assert np.allclose(dense.coef_, sparse.coef_)


def test_groups_are_left_out_whole_and_divide_the_rows():
    groups = np.repeat(np.arange(6), 5)
    model = MixClassifier(FAST, [(BETA, 0.0)]).fit(X, Y, groups=groups)
    assert sum(model.weights_.values()) == pytest.approx(1)


def test_rows_against_the_sources_are_told():
    model = MixClassifier(FAST, [(-10 * BETA, 0.0)]).fit(X, Y)
    assert "speak against" in model.message_


def test_the_weights_are_told_in_words():
    model = MixClassifier(FAST, [("published in 2019", (BETA, 0.0))]).fit(X, Y)
    assert "is the published model 'published in 2019'" in str(model)


def test_saved_and_audited(tmp_path):
    model = MixClassifier(FAST, [(BETA, 0.0)]).fit(X, Y)
    otdro.save(model, tmp_path / "mix.skops")
    loaded = otdro.load(tmp_path / "mix.skops")
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    report = audit(model, X, Y)
    assert report.accuracy(0.0) == pytest.approx(model.score(X, Y))
    assert otdro.drift(X, X + 1, model=model).estimate > 0


def test_regression_is_saved_and_audited(tmp_path):
    model = MixRegressor(FAST_REGRESSION, [(BETA, 0.0)]).fit(X, T)
    otdro.save(model, tmp_path / "mix.skops")
    assert np.array_equal(otdro.load(tmp_path / "mix.skops").predict(X), model.predict(X))
    assert model.robust_risk_ <= model.robust_risk_bound_ + 1e-12


REFUSED = {
    "other classes": (LogisticRegression().fit(X, Y == "yes"), r"has the classes .* and y has"),
    "other columns": (([1.0, 2.0], 0.0), r"has 2 columns and X has 3"),
    "NaN": (([1.0, np.nan, 0.0], 0.0), "not finite"),
    "not linear": (RandomForestClassifier(3).fit(X, Y), "not a linear model"),
    "not fitted": (LogisticRegression(), "not fitted"),
    "not affine": (
        make_pipeline(PolynomialFeatures(), LogisticRegression(max_iter=1000)).fit(X, Y),
        "not affine",
    ),
    "regression": (LinearRegression().fit(X, T), "not a model for classification"),
    "three numbers": ((BETA, 0.0, 1.0), r"give \(coef, intercept\)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_source_is_refused_by_a_sentence(what):
    source, sentence = REFUSED[what]
    model = MixClassifier(FAST, [source])
    with pytest.raises(ValueError, match=sentence):
        model.fit(X, Y)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("model", "y", "sentence"),
    [
        (MixClassifier([LinearSVC()]), Y, r"'linearsvc' .*gives probabilities"),
        (MixClassifier([DROClassifier("hinge", cost="euclidean", delta=0.1)]), Y, "probabilities"),
        (MixRegressor([HuberRegressor()]), T, r"'huberregressor' .*squared loss"),
        (MixRegressor([Ridge], []), T, "not an estimator"),
        (MixClassifier([]), Y, "at least one model"),
        (MixClassifier([("source", FAST[0])], [(BETA, 0.0)]), Y, "names a member and a source"),
    ],
)
def test_a_bad_member_is_refused_by_name(model, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        model.fit(X, y)


CHECKS = [
    check
    for model in (MixClassifier(FAST), MixRegressor(FAST_REGRESSION))
    for check in estimator_checks_generator(model, mark="skip")
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
@pytest.mark.filterwarnings("ignore:the class .* has .* fewer than cv")
@pytest.mark.constant_model("many checks draw labels that are independent of the rows")
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_steep_source_has_its_intercept_refitted():
    rng = np.random.default_rng(23)
    X = rng.standard_normal((16, 4))
    y = X[:, 0] + rng.standard_normal(16) > 0
    sources = [(1000 * rng.standard_normal(4), 0.0)]
    model = MixClassifier(members=[FAST[0]], sources=sources).fit(X, y)
    assert np.isfinite(model.coef_).all()
