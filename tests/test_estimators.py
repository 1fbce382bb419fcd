"""The estimators as a scikit-learn user meets them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from otdro import Ball, DROClassifier, DRORegressor, losses
from otdro.costs import Mahalanobis, Norm
from otdro.losses import Huber, Logistic, Quantile
from otdro.solvers import Exact
from tables import COMBINATIONS, LOSSES, Case, fitted, kind


@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    return X, np.where(X[:, 0] - X[:, 1] + rng.normal(size=60) > 0, 1, -1)


@pytest.fixture(scope="module")
def targets():
    X, y = load_diabetes(return_X_y=True)
    return X[:80] * 20, y[:80] / 50


@pytest.mark.parametrize("loss", LOSSES)
def test_fitted_attributes_have_their_shapes(loss, binary, targets):
    X, y = binary if kind(loss) is DROClassifier else targets
    model = kind(loss)(loss, cost="euclidean", delta=0.05).fit(X, y)
    d = X.shape[1]
    assert model.coef_.shape == ((1, d) if kind(loss) is DROClassifier else (d,))
    assert np.shape(model.intercept_) == ((1,) if kind(loss) is DROClassifier else ())
    for value in (model.multiplier_, model.empirical_risk_, model.robust_risk_, model.gap_):
        assert isinstance(value, float)
    assert model.delta_ == 0.05
    assert isinstance(model.ball_, Ball)
    assert model.ball_.cost is model.cost_
    assert model.n_features_in_ == d
    assert isinstance(model.n_iter_, int)
    assert model.n_iter_ >= 1
    assert model.empirical_risk_ <= model.robust_risk_
    assert model.ball_.order == (1 if np.isfinite(losses.KNOWN[loss]().lipschitz) else 2)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("form", ["csr", "float32", "frame"])
def test_the_kind_of_array_does_not_change_the_answer(combination, form):
    case = Case(*combination, "tall")
    dense, _ = fitted(case, 0.1)
    s = case.sample
    X = {
        "csr": lambda: sparse.csr_array(s.X),
        "float32": lambda: s.X.astype(np.float32),
        "frame": lambda: pd.DataFrame(s.X, columns=list("abcd")),
    }[form]()
    tol = 1e-6 if form == "float32" else 1e-9
    model = case.estimator(0.1, tol=tol).fit(X, s.y)
    assert_allclose(
        model.robust_risk_, dense.robust_risk_, rtol=1e-5 if form == "float32" else 1e-7
    )
    assert model.coef_.dtype == np.float64
    if form == "frame":
        assert list(model.feature_names_in_) == list("abcd")
        with pytest.raises(ValueError, match="feature names"):
            model.predict(X.rename(columns={"a": "z"}))


def test_sparse_rows_stay_sparse(monkeypatch):
    wide = sparse.random_array((200, 40), density=0.1, rng=np.random.default_rng(0), format="csr")
    labels = np.where(np.arange(200) % 3 > 0, 1, -1)
    # d x d products may be dense, rows may not
    monkeypatch.setattr("otdro.solvers.conic.interior.MERGE_UP_TO", 0)
    monkeypatch.setattr(sparse.csr_array, "toarray", _dense_square)
    for loss in ("logistic", "hinge"):
        model = DROClassifier(loss, cost="euclidean", order=1, delta=0.01).fit(wide, labels)
        assert model.predict(wide).shape == (200,)


def _dense_square(self, order=None, out=None):
    assert self.shape[0] == self.shape[1], "the rows were made dense"
    return np.asarray(sparse.coo_array(self).toarray(order, out))


@pytest.mark.parametrize(
    "labels",
    [
        (0, 1), ("no", "yes"), (False, True), (3, 7), (-1.0, 1.0), (np.int8(2), np.int8(1)),
    ],
    ids=str,
)  # fmt: skip
def test_labels_of_any_type(labels, binary):
    X, y = binary
    names = np.array(labels)[(y > 0).astype(int)]
    model = DROClassifier(cost="euclidean", delta=0.05).fit(X, names)
    plain = DROClassifier(cost="euclidean", delta=0.05).fit(X, y)
    assert_array_equal(model.classes_, np.unique(names))
    assert model.predict(X).dtype == names.dtype
    assert_allclose(model.robust_risk_, plain.robust_risk_, rtol=1e-6)
    assert (model.predict(X) == names).mean() == (plain.predict(X) == y).mean()


def test_object_labels_of_pandas(binary):
    X, y = binary
    names = pd.Series(np.where(y > 0, "yes", "no"), dtype="category")
    model = DROClassifier(cost="euclidean", delta=0.05).fit(X, names)
    assert set(model.predict(X)) == {"yes", "no"}


def test_more_than_two_classes_are_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    one_each = {"cost": "euclidean", "delta": 0.02, "tol": 1e-9, "multi_class": "ovr"}
    model = DROClassifier(**one_each).fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    for value in (model.robust_risk_, model.gap_, model.empirical_risk_, model.multiplier_):
        assert value.shape == (3,)
    for k in range(3):
        one = DROClassifier(cost="euclidean", delta=0.02, tol=1e-9).fit(X, y == k)
        assert_allclose(model.robust_risk_[k], one.robust_risk_, rtol=1e-8)
        assert_allclose(model.coef_[k], one.coef_[0], atol=1e-4)
    p = model.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0)
    assert_array_equal(model.predict(X), p.argmax(axis=1))
    assert model.decision_function(X).shape == (150, 3)
    assert model.score(X, y) > 0.9


def test_probabilities_are_those_of_the_score(binary):
    X, y = binary
    model = DROClassifier(cost="linf", delta=0.02).fit(X, y)
    p = model.predict_proba(X)
    assert_allclose(p[:, 1], 1 / (1 + np.exp(-model.decision_function(X))))
    assert_allclose(model.predict_log_proba(X), np.log(p))
    assert_array_equal(model.predict(X), np.where(p[:, 1] > 0.5, 1, -1))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_only_the_logistic_loss_has_probabilities(loss, binary):
    model = DROClassifier(loss, cost="euclidean", delta=0.1).fit(*binary)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as raised:
        model.predict_proba(binary[0])
    assert "loss='logistic'" in str(raised.value.__cause__)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cost", ["euclidean", "linf"])
def test_without_intercept_the_score_is_zero_at_the_origin(loss, cost, binary, targets):
    X, y = binary if kind(loss) is DROClassifier else targets
    order = 2 if cost == "euclidean" or not np.isfinite(losses.KNOWN[loss]().lipschitz) else 1
    model = kind(loss)(loss, cost=cost, order=order, delta=0.02, fit_intercept=False).fit(X, y)
    assert np.all(model.intercept_ == 0)
    score = model.decision_function if kind(loss) is DROClassifier else model.predict
    assert_allclose(score(np.zeros((1, X.shape[1]))), 0.0)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_count_rows(loss, binary, targets):
    X, y = binary if kind(loss) is DROClassifier else targets
    times = np.random.default_rng(0).integers(0, 3, size=len(y))
    model = kind(loss)(loss, cost="euclidean", delta=0.02, tol=1e-9)
    one = clone(model).fit(X, y, sample_weight=times)
    two = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    scaled = clone(model).fit(X, y, sample_weight=1e6 * times)
    assert_allclose(one.robust_risk_, two.robust_risk_, rtol=1e-8)
    assert_allclose(scaled.robust_risk_, one.robust_risk_, rtol=1e-8)


def test_class_weight_is_a_weight_of_rows(binary):
    X, y = binary
    model = DROClassifier(cost="euclidean", delta=0.02, tol=1e-9)
    weights = np.where(y > 0, 3.0, 1.0)
    one = clone(model).set_params(class_weight={-1: 1.0, 1: 3.0}).fit(X, y)
    assert_allclose(one.robust_risk_, clone(model).fit(X, y, weights).robust_risk_, rtol=1e-8)
    balanced = clone(model).set_params(class_weight="balanced").fit(X, y)
    equal = np.where(y > 0, 1 / (y > 0).sum(), 1 / (y < 0).sum())
    assert_allclose(balanced.robust_risk_, clone(model).fit(X, y, equal).robust_risk_, rtol=1e-8)


SETTINGS = {
    "loss": [Huber(0.7), Quantile(0.2), "absolute"],
    "cost": [Norm(1), Mahalanobis(np.diag(np.arange(1.0, 11.0))), "linf"],
}


def test_grid_search_over_losses_and_costs(targets):
    X, y = targets
    search = GridSearchCV(DRORegressor(cost="euclidean", delta=0.1), SETTINGS, cv=3).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert np.isfinite(search.best_estimator_.predict(X)).all()


def test_in_a_pipeline_and_under_cross_validation(binary):
    X, y = binary
    model = make_pipeline(StandardScaler(), DROClassifier("hinge", cost="l1", delta=0.05))
    assert cross_val_score(model, X, y, cv=3).mean() > 0.6


@pytest.mark.parametrize(
    "model",
    [
        DRORegressor(Huber(0.7), cost=Mahalanobis(np.eye(10)), order=2, delta=0.1),
        DRORegressor("quantile", cost="l1", delta=0.1, solver=Exact(tol=1e-7)),
        DRORegressor("squared", cost="euclidean", delta=0.1),
    ],
    ids=["huber", "quantile", "squared"],
)
def test_a_model_survives_clone_pickle_and_skops(model, targets):
    from skops import io

    X, y = targets
    blank = clone(model)
    assert not hasattr(blank, "coef_")
    assert repr(blank) == repr(model)
    fit = clone(model).fit(X, y)
    saved = io.dumps(fit)
    trusted = [name for name in io.get_untrusted_types(data=saved) if name.startswith("otdro.")]
    assert trusted == io.get_untrusted_types(data=saved)
    for copy in (pickle.loads(pickle.dumps(fit)), io.loads(saved, trusted=trusted)):
        assert_array_equal(copy.predict(X), fit.predict(X))
        assert copy.robust_risk_ == fit.robust_risk_


def test_fit_writes_no_parameter(binary):
    X, y = binary
    matrix = np.eye(5)
    model = DROClassifier(cost=Mahalanobis(matrix), delta=0.05)
    before = dict(model.get_params(deep=False))
    model.fit(X, y)
    after = model.get_params(deep=False)
    assert all(after[name] is before[name] for name in before)
    assert_array_equal(matrix, np.eye(5))


def test_fit_leaves_the_data_alone(binary):
    X, y = binary
    for order in ("C", "F"):
        A, b, w = np.array(X, order=order), y.copy(), np.ones(60)
        for a in (A, b, w):
            a.setflags(write=False)
        DROClassifier(cost="linf", delta=0.05).fit(A, b, sample_weight=w)
        assert_array_equal(A, X)


def test_defaults_come_from_the_loss_order_auto(targets):
    X, y = targets
    assert DRORegressor("squared", cost="euclidean", delta=0.1).fit(X, y).ball_.order == 2
    assert DRORegressor("absolute", cost="linf", delta=0.1).fit(X, y).ball_.order == 1


def test_small_radius_approaches_unpenalised_logistic_regression(binary):
    X, y = binary
    ours = DROClassifier(cost="euclidean", delta=1e-9, tol=1e-9).fit(X, y)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)


def test_repeated_fits_agree_and_forget(binary):
    X, y = binary
    model = DROClassifier("hinge", cost="euclidean", delta=0.1).fit(X, y)
    first = model.coef_.copy()
    model.fit(X[:30, :2], y[:30])
    assert model.coef_.shape == (1, 2)
    assert_array_equal(model.fit(X, y).coef_, first)


# what a fit says of a model that learned nothing


def _apart():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [1.0, 1e5, 1.0]
    return X, (X[:, 0] + 0.3 * rng.normal(size=120) > 0).astype(int)


def test_columns_of_very_different_scale_are_named():
    X, y = _apart()
    said = r"column 1 \(standard deviation .*e\+0\d\) against .*column [02].*scale them first"
    with pytest.warns(UserWarning, match=said):
        DROClassifier(cost="euclidean").fit(X, y)


def test_a_delta_beyond_the_threshold_is_told_with_it():
    X, y = _apart()
    X = X / [1.0, 1e5, 1.0]
    with pytest.warns(UserWarning, match=r"delta=50 is at or above 0\.\d+.*smaller delta"):
        model = DROClassifier(cost="euclidean", delta=50.0).fit(X, y)
    assert not model.coef_.any()


def test_a_cost_may_be_a_matrix():
    from otdro.costs import Mahalanobis
    from otdro.radius import theory

    X, y = _apart()
    X = X / [1.0, 1e5, 1.0]
    matrix = np.diag([1.0, 4.0, 2.0])
    wrapped = DROClassifier(cost=Mahalanobis(matrix), delta=0.1).fit(X, y)
    for given in (matrix, matrix.tolist()):
        np.testing.assert_array_equal(
            DROClassifier(cost=given, delta=0.1).fit(X, y).coef_, wrapped.coef_
        )
    signs = np.where(y == 1, 1.0, -1.0)
    assert theory(X, signs, cost=matrix) == theory(X, signs, cost=Mahalanobis(matrix))
    with pytest.raises(ValueError, match="must be positive definite"):
        DROClassifier(cost=-matrix, delta=0.1).fit(X, y)
    with pytest.raises(ValueError, match="must be square"):
        DROClassifier(cost=[1.0, 2.0], delta=0.1).fit(X, y)


class Interrupted(Logistic):
    """The logistic loss of a user who presses Ctrl-C at the ``after``-th value."""

    def __init__(self, after=5):
        self.after = after
        self.left = after

    def value(self, z, y):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().value(z, y)


@pytest.mark.parametrize("after", [0, 5, 40])
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(after):
    rows = np.random.default_rng(0).normal(size=(40, 3))
    y = rows[:, 0] + np.random.default_rng(1).normal(size=40) > 0
    model = DROClassifier(cost="euclidean").fit(rows, y)
    model.set_params(loss=Interrupted(after), cost="learned", random_state=1)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows * 2, ~y)
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())
    fresh = DROClassifier(loss=Interrupted(after))
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(rows, y)
    assert not [name for name in vars(fresh) if name.endswith("_")]


def test_a_long_fit_says_what_is_left(monkeypatch, caplog):
    monkeypatch.setattr("otdro.progress.LONG", 0.001)
    rows = np.random.default_rng(0).normal(size=(60, 20))
    DROClassifier().fit(rows, rows[:, 0] + np.random.default_rng(1).normal(size=60) > 0)
    lines = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    # each line comes after twice as long
    assert 2 <= len(lines) <= 20
    assert all(line.startswith("the fit has taken") for line in lines)
    assert any("parts done; then those of the chosen cost" in line for line in lines)
    caplog.clear()
    monkeypatch.undo()
    DROClassifier(cost="euclidean", delta=0.1).fit(rows, rows[:, 0] > 0)
    assert not caplog.records
