"""Stability: refits to bootstrap samples, per row and in words."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from otdro import DROClassifier, DRORegressor, MixClassifier, Stability, stability
from otdro.comparison import logistic_cv
from otdro.estimators.summary import Bootstrap


def two_classes(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.8 * rng.normal(size=n) > 0, "yes", "no")
    return X, y


def test_a_refit_with_weights_is_the_fit_to_the_repeated_rows():
    X, y = two_classes()
    model = DROClassifier(cost="euclidean", tol=1e-10).fit(X, y)
    drawn = []

    class Recording(Bootstrap):
        def _drawn(self, rng):
            drawn.append(super()._drawn(rng))
            return drawn[-1]

    coef = Recording(model, X, y, np.ones(len(y))).collect(lambda _, last: last.coef_[0], refits=3)
    for rows, own in zip(drawn, coef, strict=True):
        again = DROClassifier(cost=model.cost_, order=1, delta=model.delta_, tol=1e-10)
        assert_allclose(again.fit(X[rows], y[rows]).coef_[0], own, atol=1e-5)


def test_figures_are_those_of_the_refits():
    X, y = two_classes()
    model = DROClassifier(cost="euclidean").fit(X, y)
    result = stability(model, X, y, refits=40)
    assert isinstance(result, Stability)
    p = model.predict_proba(X)[:, 1]
    assert_allclose(result.prediction, p)
    assert result.refitted.shape == (40, 60)
    assert_allclose(result.difference, np.abs(result.refitted - p).mean(axis=0))
    assert_allclose(result.spread, result.refitted.std(axis=0))
    assert_allclose(result.interval, np.quantile(result.refitted, [0.025, 0.975], axis=0).T)
    assert_allclose(result.flip_share, ((result.refitted > 0.5) != (p > 0.5)).mean(axis=0))
    assert result.flips == pytest.approx(result.flip_share.mean())
    assert_allclose(result.instability[:60], np.column_stack([p, result.refitted[0]]))
    assert "probability of yes" in str(result)
    assert f"{result.flips:.1%}" in result.summary()
    assert result.to_dict()["difference"] == pytest.approx(result.difference.mean())


def test_more_rows_are_more_stable_and_choosing_anew_is_less():
    few, many = (stability(DROClassifier(delta=0.05, cost="euclidean"), *two_classes(n), refits=30)
                 for n in (40, 1_000))  # fmt: skip
    assert many.difference.mean() < few.difference.mean() / 2
    X, y = two_classes()
    model = DROClassifier(cost="euclidean").fit(X, y)
    kept = stability(model, X, y, refits=30)
    anew = stability(model, X, y, refits=30, rechoose=True)
    assert anew.rechoose
    assert anew.spread.mean() > kept.spread.mean()
    assert "chosen anew" in str(anew)


def test_the_model_stays_as_it_was_and_jobs_change_nothing():
    X, y = two_classes()
    model = DROClassifier(cost="euclidean").fit(X, y)
    coef, parameters = model.coef_.copy(), model.get_params()
    one = stability(model, X, y, refits=6)
    two = stability(model, X, y, refits=6, n_jobs=2)
    assert_allclose(one.refitted, two.refitted, rtol=0, atol=1e-12)
    assert_allclose(model.coef_, coef)
    assert model.get_params() == parameters
    other = stability(model, X, y, refits=6, random_state=1)
    assert not np.array_equal(one.refitted, other.refitted)


def test_an_unfitted_model_is_fitted_as_a_copy():
    X, y = two_classes()
    model = DROClassifier(cost="euclidean", delta=0.1)
    assert stability(model, X, y, refits=3).flips is not None
    assert not hasattr(model, "coef_")


def test_three_classes_targets_and_models_of_others():
    X, y = load_iris(return_X_y=True)
    several = stability(DROClassifier(cost="euclidean", delta=0.1), X, y, refits=5)
    assert several.quantity == "probability of the predicted class"
    assert (several.prediction >= 1 / 3).all()
    assert stability(LinearSVC(), X[50:], y[50:], refits=5).quantity == "score of 2"
    tuned = logistic_cv(0, scoring="neg_log_loss")
    assert 0 <= stability(tuned, X[50:], y[50:], refits=2).flips <= 1
    mix = MixClassifier([DROClassifier(cost="euclidean"), DROClassifier(cost="linf")])
    assert 0 <= stability(mix, X[50:], y[50:], refits=2).flips <= 1
    X, y = load_diabetes(return_X_y=True)
    numbers = stability(DRORegressor(cost="euclidean", delta=1e-4), X, y, refits=5)
    assert numbers.flips is None
    assert numbers.quantity == "prediction"
    # takes no weights: rows are repeated
    assert stability(KNeighborsRegressor(), X, y, refits=3).spread.mean() > 0


@pytest.mark.parametrize("rechoose", [False, True])
def test_a_pipeline_over_a_table(rechoose):
    X, y = two_classes(80)
    table = pd.DataFrame(X, columns=list("abcd"))
    table["city"] = np.where(np.arange(80) % 9 == 0, "rare", "usual")
    columns = make_column_transformer(
        (StandardScaler(), list("abcd")),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["city"]),
    )
    model = make_pipeline(columns, DROClassifier(cost="euclidean", delta=0.1)).fit(table, y)
    result = stability(model, table, y, refits=5, rechoose=rechoose)
    assert_allclose(result.prediction, model.predict_proba(table)[:, 1])


def test_a_class_of_two_rows_is_in_every_sample():
    X, y = two_classes()
    y = np.where(np.arange(60) < 2, "rare", "usual")
    assert stability(DROClassifier(cost="euclidean", delta=0.01), X, y, refits=20).refits == 20


@pytest.mark.parametrize("refits", [1, 2.5, True, "many"])
def test_refits_are_a_whole_number(refits):
    with pytest.raises(ValueError, match="refits must be a whole number >= 2"):
        stability(DROClassifier(), *two_classes(), refits=refits)
