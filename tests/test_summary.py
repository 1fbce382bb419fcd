"""``summary()`` of both estimators: figures that agree with the fit, in print and in HTML."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import log_loss, roc_auc_score

from otdro import DROClassifier, DRORegressor, audit
from otdro.costs import Mahalanobis
from otdro.estimators.summary import held_out


def table(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)) * [1, 10, 0.1], columns=["age", "dose", "ph<b>"])
    y = np.where(X["age"] + 0.5 * rng.normal(size=n) > 0, "ill", "healthy")
    return X, y


def test_summary_holds_the_fit_in_words_and_units():
    X, y = table()
    model = DROClassifier(cost="euclidean", delta=0.02).fit(X, y)
    summary = model.summary(refits=30)
    facts = dict(summary.facts)
    assert facts["fitted to"] == "90 rows, 3 columns"
    assert facts["classes"] == f"healthy {(y == 'healthy').sum()}, ill {(y == 'ill').sum()}"
    assert facts["cost"].startswith("euclidean: ")
    # delta is a move of the column that changes the score most at its price
    assert np.abs(model.coef_[0]).argmax() == 0
    deviations = 0.02 / X["age"].std(ddof=0)
    words = f"a mean move of {deviations:.3g} standard deviations of age"
    assert facts["delta"] == f"0.02, as given: {words}"
    # the same column in the audit, and any one where all columns agree
    assert audit(model, X, y).in_words(0.02) == words
    alike = DROClassifier(cost="euclidean", delta=0.02).fit(X / X.std(ddof=0), y)
    either = "a mean move of 0.02 standard deviations of any one column"
    assert dict(alike.summary(refits=0).facts)["delta"].endswith(either)
    assert audit(alike, X / X.std(ddof=0), y).in_words(0.02) == either
    # prices of 1 and 1.01 are not the same
    near = X / X.std(ddof=0) * [1, 1.01, 1]
    differ = DROClassifier(cost="euclidean", delta=0.02).fit(near, y)
    assert "deviations of age" in audit(differ, near, y).in_words(0.02)
    assert_allclose(summary.coef, model.coef_)
    assert_allclose(summary.scale, X.std(ddof=0))
    assert (summary.interval[0] <= summary.interval[1]).all()
    low, high = summary.interval[:, 0, 0]
    assert low < model.coef_[0, 0] < high
    line = next(line for line in str(summary).splitlines() if line.startswith("age"))
    assert line.endswith("ill")
    assert f"{model.coef_[0, 0]:+.4g}" in line
    assert repr(summary) == str(summary)
    html = summary._repr_html_()
    assert "ph&lt;b&gt;" in html
    assert "<b>" not in html


def test_intervals_cover_the_slopes_of_a_linear_model():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    y = X @ [2.0, 0.0, -1.0] + rng.normal(size=400)
    summary = DRORegressor(cost="euclidean", delta=1e-4).fit(X, y).summary()
    low, high = summary.interval[:, 0]
    assert (low <= np.array([2.0, 0, -1]) + 0.05).all()
    assert (high >= np.array([2.0, 0, -1]) - 0.05).all()
    # a slope of a least-squares fit has standard error 1/sqrt(n)
    assert_allclose(high - low, 2 * 1.96 / np.sqrt(400), rtol=0.3)
    assert [line[-1] for line in summary.coefficients().body[:2]] == ["higher", "lower"]
    assert summary.measures["RMSE"] == pytest.approx(1.0, abs=0.1)
    assert summary.measures["calibration slope"] == pytest.approx(1.0, abs=0.1)


def test_held_out_rows_are_those_of_the_folds_that_chose():
    X, y = table()
    model = DROClassifier(cost="euclidean").fit(X, y)
    tested = held_out(model)
    score = model.path_.out_of_fold.scores[:, 0]
    assert_allclose(tested.score, score)
    positive = y[model.path_.out_of_fold.rows] == "ill"
    p = 1 / (1 + np.exp(-score))
    found = model.summary(refits=0).measures
    assert found["log-loss"] == pytest.approx(log_loss(positive, p))
    assert found["accuracy"] == pytest.approx(((score > 0) == positive).mean())
    assert found["AUC"] == pytest.approx(roc_auc_score(positive, score))
    assert tested.confusion().sum() == pytest.approx(90)
    assert np.trace(tested.confusion()) == pytest.approx(90 * found["accuracy"])
    assert_allclose(tested.confusion().sum(axis=1), [(y == c).sum() for c in model.classes_])
    bins = tested.calibration()
    assert bins[:, 2].sum() == pytest.approx(90)
    assert (bins[:, 2] @ bins[:, 0]) / 90 == pytest.approx(p.mean())
    rates = tested.roc()
    assert np.trapezoid(rates[:, 1], rates[:, 0]) == pytest.approx(found["AUC"])


def test_calibration_slope_undoes_a_scaling_of_the_score():
    from dataclasses import replace

    X, y = table(200)
    tested = held_out(DROClassifier(cost="euclidean", delta=0.01).fit(X, y))
    twice = replace(tested, score=2 * tested.score)
    assert twice.calibration_slope() == pytest.approx(tested.calibration_slope() / 2, rel=1e-3)
    flat = replace(tested, score=0 * tested.score)
    assert np.isnan(flat.calibration_slope())
    apart = replace(tested, score=tested.target - 0.5)
    assert np.isinf(apart.calibration_slope())


def test_several_classes_and_what_is_attacked():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = DROClassifier(cost="euclidean", delta=0.1).fit(X, y)
    summary = model.summary(refits=5)
    assert summary.interval.shape == (2, 3, 4)
    assert {"log-loss", "accuracy", "AUC"} == set(summary.measures)
    assert "not 0" in str(summary)
    assert sum(summary.attacked.values()) == pytest.approx(1.0)
    ovr = DROClassifier(cost="euclidean", delta=0.1, multi_class="ovr").fit(X, y)
    assert ovr.summary(refits=5).interval.shape == (2, 3, 4)
    assert 0.85 < ovr.summary(refits=0).measures["accuracy"] <= 1


def test_attacked_columns_follow_the_cost():
    X, y = table()
    X = X / X.std()
    free = DROClassifier(cost=Mahalanobis(np.diag([1.0, 1.0, 1.0])), delta=0.1).fit(X, y)
    dear = DROClassifier(cost=Mahalanobis(np.diag([1e4, 1.0, 1.0])), delta=0.1).fit(X, y)
    assert next(iter(free.summary(refits=0).attacked)) == "age"
    share = dear.coef_[0] ** 2 / [1e4, 1, 1]
    expected = share / share.sum()
    attacked = dear.summary(refits=0).attacked
    assert_allclose([attacked.get(name, 0.0) for name in X], expected, atol=1e-9)


def test_weights_of_rows_and_classes_count_once():
    X, y = table()
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 2, size=90)
    model = DROClassifier(cost="euclidean", delta=0.05, class_weight={"ill": 5, "healthy": 1})
    model.fit(X, y, weights)
    low, high = model.summary(refits=60).interval[:, 0, 0]
    assert low < model.coef_[0, 0] < high
    doubled = DROClassifier(cost="euclidean", delta=0.05, class_weight={"ill": 25, "healthy": 1})
    other = doubled.fit(X, y, weights).summary(refits=60).interval
    assert not np.allclose(other[:, 0], [[low], [high]])


def test_a_restored_model_says_what_it_has_not_got():
    X, y = load_diabetes(return_X_y=True)
    model = pickle.loads(pickle.dumps(DRORegressor(cost="linf", delta=1e-6).fit(X, y)))
    summary = model.summary()
    assert summary.interval is None
    assert summary.measures == {}
    assert "training rows are not saved" in str(summary)
    assert "linf: the price" in str(summary)


def test_sparse_rows_few_rows_and_other_losses():
    X, y = table()
    rows = sparse.csr_matrix(X.to_numpy())
    model = DROClassifier("hinge", cost="euclidean", delta=0.1).fit(rows, y)
    assert set(model.summary(refits=3).measures) == {"accuracy", "AUC"}
    few = DROClassifier(cost="euclidean", delta=0.01).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    assert few.summary(refits=3).measures == {}
    placed = DROClassifier(cost="euclidean", delta=0.1).fit(X, y, support=X.iloc[:5])
    assert placed.summary(refits=3).interval is None


@pytest.mark.constant_model("the labels are independent of the rows")
def test_rows_without_weight_are_in_no_refit():
    X = np.random.default_rng(0).standard_normal((20, 3))
    weights = np.ones(20)
    weights[2:10] = 0.0
    model = DROClassifier(cost="euclidean", delta=0.1)
    model.fit(X, np.repeat(["a", "b"], 10), sample_weight=weights)
    assert str(model.summary(refits=50))
