"""Arrays of torch and CuPy: the numbers of NumPy, on their device, as arrays of their kind."""

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone

from otdro import Ball, DROClassifier, DRORegressor, audit, robust_risk
from otdro.arrays import BLOCK_ROWS, library, numpy
from otdro.costs import Norm
from otdro.design import Design, row_shares
from otdro.losses import Logistic
from otdro.metrics import Blend, Diagonal, GeometricMean, Spectral
from otdro.problem import Problem
from otdro.radius import path
from otdro.solvers import Exact
from solving import solution

#: Where arrays may be; NumPy itself is what the others are compared with.
PLACES = ["torch-cpu", "torch-cuda", "cupy"]


@pytest.fixture(autouse=True)
def dispatch(monkeypatch):
    """scikit-learn's array API dispatch, as a user sets it."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with sklearn.config_context(array_api_dispatch=True):
        yield


@pytest.fixture(params=PLACES)
def kind(request, monkeypatch):
    """A function that makes arrays of a library on a device."""
    return maker(request.param, monkeypatch)


@pytest.fixture(params=["numpy", *PLACES])
def any_kind(request, monkeypatch):
    """The same, NumPy among them."""
    return maker(request.param, monkeypatch)


def maker(name, monkeypatch):
    if name == "numpy":
        return np.asarray
    pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
    if name == "cupy":
        cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
        return cupy.asarray
    torch = pytest.importorskip("torch", reason="torch is not installed")
    device = name.removeprefix("torch-")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")

    def refuse(*args, **kwargs):
        raise AssertionError("an array on a device was copied to NumPy behind the scenes")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    return lambda x: torch.tensor(np.ascontiguousarray(x), device=device)


def torch_array(monkeypatch):
    return maker("torch-cpu", monkeypatch)


def rows(n=150, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (1 + np.arange(d)) / 3 + 1
    score = (X - 1) @ rng.standard_normal(d)
    y = np.where(score + rng.logistic(size=n) > 0, 1, 0)
    return X, y, score + rng.standard_normal(n)


def same_kind(found, given):
    assert library(found) == library(given)
    if library(given) is not None:
        assert found.device == given.device


#: Deltas of folds that are to be quick.
FEW = [0.2, 0.1, 0.05]
CLASSIFIERS = {
    "order 1": {"cost": "euclidean", "delta": 0.05},
    "order 2": {"cost": "euclidean", "delta": 0.05, "order": 2},
    "plain": {"cost": "euclidean", "delta": 0.0},
    "no intercept": {"cost": "euclidean", "delta": 0.05, "fit_intercept": False},
    "matrix": {"cost": np.diag([1.0, 2.0, 3.0, 4.0, 5.0]), "delta": 0.05},
    "balanced": {"cost": "euclidean", "delta": 0.05, "class_weight": "balanced"},
    "theory": {"cost": "euclidean", "delta": "theory"},
    "folds": {"cost": "euclidean", "delta": "cv"},
    "folds, order 2": {"cost": "euclidean", "delta": "cv", "order": 2, "cv": 3},
    "scoring": {"cost": "euclidean", "delta": "cv", "scoring": "accuracy"},
    "learned": {"delta": "cv", "cv": 3},
    "learner": {"cost": Diagonal(), "delta": 0.05},
}
REGRESSORS = {
    "squared": {"cost": "euclidean", "delta": 0.05},
    "folds": {"cost": "euclidean", "delta": "cv"},
    "learned": {"delta": "cv", "cv": 3},
}


def same_classifier(found, expected, X, kind):
    """Check that a classifier of arrays of a kind is that of NumPy, and answers in that kind."""
    assert found.robust_risk_ == pytest.approx(expected.robust_risk_, abs=1e-8)
    assert found.delta_ == pytest.approx(expected.delta_, rel=1e-8)
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        answer = getattr(found, method)(kind(X))
        same_kind(answer, kind(X))
        np.testing.assert_allclose(numpy(answer), getattr(expected, method)(X), atol=1e-6)
    same_kind(found.coef_, kind(X))
    same_kind(found.intercept_, kind(X))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier_is_that_of_numpy(kind, name):
    X, y, _ = rows()
    model = DROClassifier(tol=1e-10, **CLASSIFIERS[name])
    expected, found = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
    same_classifier(found, expected, X, kind)


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressor_is_that_of_numpy(kind, name):
    X, _, y = rows()
    model = DRORegressor(tol=1e-10, **REGRESSORS[name])
    expected, found = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
    assert found.robust_risk_ == pytest.approx(expected.robust_risk_, abs=1e-8)
    assert found.delta_ == pytest.approx(expected.delta_, rel=1e-8)
    same_kind(found.predict(kind(X)), kind(X))
    np.testing.assert_allclose(numpy(found.predict(kind(X))), expected.predict(X), atol=1e-6)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.constant_model("the worst case of a constant model is one of the two")
@pytest.mark.parametrize("delta", [0.05, 5.0])
def test_worst_case_stays_on_the_device(kind, order, delta):
    X, y, _ = rows()
    model = DROClassifier(cost="euclidean", delta=delta, order=order, tol=1e-10)
    expected, fitted = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
    for asked in ({}, {"rows": (kind(X), kind(y))}):
        plain = {} if not asked else {"rows": (X, y)}
        found, known = fitted.worst_case(**asked), expected.worst_case(**plain)
        same_kind(found.points, kind(X))
        assert found.risk == pytest.approx(known.risk, abs=1e-8)
        assert found.budget == pytest.approx(known.budget, abs=1e-8)
        np.testing.assert_allclose(numpy(found.points), known.points, atol=1e-6)


def test_squared_worst_case_and_weights(kind):
    X, _, y = rows()
    weights = np.random.default_rng(1).uniform(0.5, 1.5, len(y))
    model = DRORegressor(cost="euclidean", delta=0.05, tol=1e-10)
    expected = clone(model).fit(X, y, sample_weight=weights).worst_case()
    found = clone(model).fit(kind(X), kind(y), sample_weight=kind(weights)).worst_case()
    same_kind(found.points, kind(X))
    np.testing.assert_allclose(numpy(found.points), expected.points, atol=1e-6)


def test_groups_may_be_on_the_device(kind):
    X, y, _ = rows(60, 3)
    groups = np.arange(60) % 3
    model = DROClassifier(cost="euclidean", delta="cv", deltas=FEW, cv=3, tol=1e-10)
    expected = clone(model).fit(X, y, groups=groups)
    for given in (groups, kind(groups)):
        found = clone(model).fit(kind(X), kind(y), groups=given)
        assert found.robust_risk_ == pytest.approx(expected.robust_risk_, abs=1e-8)
        seen = audit(found, kind(X), kind(y), groups=given)
        known = audit(expected, X, y, groups=groups)
        assert seen.accuracy(0.1, group=1) == pytest.approx(known.accuracy(0.1, group=1))


def test_one_vs_rest_and_names_of_labels(kind):
    X, _, score = rows()
    y = np.digitize(score, [-1, 1])
    model = DROClassifier(cost="euclidean", delta=0.05, tol=1e-10, multi_class="ovr")
    expected, found = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
    np.testing.assert_allclose(found.robust_risk_, expected.robust_risk_, atol=1e-8)
    same_kind(found.predict(kind(X)), kind(X))
    np.testing.assert_allclose(numpy(found.predict_proba(kind(X))), expected.predict_proba(X))
    names = np.array(["a", "b", "c"])
    by_name = clone(model).fit(kind(X), names[y])
    assert (by_name.predict(kind(X)) == names[expected.predict(X)]).all()


SEVERAL = {
    "order 1": {"cost": "euclidean", "delta": 0.05},
    "plain": {"cost": "euclidean", "delta": 0.0},
    "no intercept": {"cost": "euclidean", "delta": 0.05, "fit_intercept": False},
    "matrix": {"cost": np.diag([1.0, 2.0, 3.0, 4.0, 5.0]), "delta": 0.05},
    "balanced": {"cost": "euclidean", "delta": 0.05, "class_weight": "balanced"},
    "folds": {"cost": "euclidean", "delta": "cv", "cv": 3, "deltas": FEW},
    "scoring": {"cost": "euclidean", "delta": "cv", "cv": 3, "scoring": "accuracy", "deltas": FEW},
    "learned": {"delta": "cv", "cv": 3, "deltas": FEW},
    "l1": {"cost": "l1", "delta": 0.05},
    "linf": {"cost": "linf", "delta": 0.05},
}


def three_classes(n=150, d=5):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * (1 + np.arange(d)) / 3 + 1
    score = (X - 1) @ rng.standard_normal((d, 3))
    return X, (score + rng.gumbel(size=(n, 3))).argmax(axis=1)


@pytest.mark.parametrize("name", SEVERAL)
def test_softmax_model_is_that_of_numpy(kind, name):
    X, y = three_classes()
    model = DROClassifier(tol=1e-10, **SEVERAL[name])
    expected, found = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
    assert found.loss_.outputs == 3
    same_classifier(found, expected, X, kind)


def test_softmax_model_of_weights_names_and_two_classes(kind):
    X, y = three_classes()
    weights = np.random.default_rng(1).uniform(0.5, 1.5, len(y))
    model = DROClassifier(cost="euclidean", delta=0.05, tol=1e-10, multi_class="multinomial")
    expected = clone(model).fit(X, y, sample_weight=weights)
    found = clone(model).fit(kind(X), kind(y), sample_weight=kind(weights))
    assert found.robust_risk_ == pytest.approx(expected.robust_risk_, abs=1e-8)
    names = np.array(["a", "b", "c"])
    by_name = clone(model).fit(kind(X), names[y])
    assert (by_name.predict(kind(X)) == names[clone(model).fit(X, y).predict(X)]).all()
    # of two classes the softmax model is the binary one, anywhere
    assert "Two classes" in clone(model).fit(kind(X), kind(1 * (y > 0))).message_


@pytest.mark.parametrize("reach", [None, 0.5])
@pytest.mark.parametrize("cost", ["euclidean", "linf"])
def test_softmax_worst_case_stays_on_the_device(kind, cost, reach):
    X, y = three_classes()
    model = DROClassifier(cost=cost, delta=0.05, tol=1e-10)
    expected, fitted = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
    for asked, plain in (({}, {}), ({"rows": (kind(X), kind(y))}, {"rows": (X, y)})):
        found = fitted.worst_case(**asked, reach=reach)
        known = expected.worst_case(**plain, reach=reach)
        for part in ("points", "targets", "weights", "origin"):
            same_kind(getattr(found, part), kind(X))
            given = numpy(getattr(found, part))
            np.testing.assert_allclose(given, getattr(known, part), rtol=1e-6, atol=1e-6)
        assert found.risk == pytest.approx(known.risk, abs=1e-8)
        assert found.budget == pytest.approx(known.budget, abs=1e-8)


def test_softmax_risk_and_audit(kind):
    X, y = three_classes()
    model = DROClassifier(cost="euclidean", delta=0.05, tol=1e-10)
    expected, fitted = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
    parts = (fitted.coef_, fitted.intercept_, "logistic", fitted.ball_)
    found = robust_risk(kind(X), kind(y), *parts)
    assert found == pytest.approx(fitted.robust_risk_, abs=1e-8)
    seen, known = audit(fitted, kind(X), kind(y)), audit(expected, X, y)
    for delta in (0.0, 0.1):
        assert seen.accuracy(delta) == pytest.approx(known.accuracy(delta), abs=1e-8)
        assert seen.risk(delta) == pytest.approx(known.risk(delta), abs=1e-8)
    np.testing.assert_allclose(seen.counterfactuals, known.counterfactuals, atol=1e-6)


def test_softmax_model_of_many_wide_and_float32_rows(kind):
    model = DROClassifier(cost="euclidean", delta=0.05, tol=1e-10)
    X, y = three_classes(40, 90)
    wide = clone(model).fit(kind(X), kind(y)).robust_risk_
    assert wide == pytest.approx(clone(model).fit(X, y).robust_risk_, abs=1e-8)
    X, y = three_classes(3_000)
    expected = clone(model).fit(X, y).robust_risk_
    assert clone(model).fit(kind(X), kind(y)).robust_risk_ == pytest.approx(expected, abs=1e-8)
    short = clone(model).set_params(tol=1e-6).fit(kind(X.astype(np.float32)), kind(y))
    assert short.robust_risk_ == pytest.approx(expected, rel=1e-5)


def test_risk_path_and_audit(kind):
    X, y, _ = rows()
    labels = 2.0 * y - 1
    beta = np.array([1.0, 0.5, 0.0, -0.5, 0.2])
    for order in (1, 2):
        ball = Ball(Norm(2), 0.1, order)
        found = robust_risk(kind(X), kind(labels), kind(beta), 0.0, "logistic", ball)
        assert found == pytest.approx(robust_risk(X, labels, beta, 0.0, "logistic", ball))
    found, expected = path(kind(X), kind(labels)), path(X, labels)
    np.testing.assert_allclose(found.robust_risk, expected.robust_risk, atol=1e-8)
    model = DROClassifier(cost="euclidean", delta=0.05, tol=1e-10)
    seen = audit(clone(model).fit(kind(X), kind(y)), kind(X), kind(y))
    known = audit(clone(model).fit(X, y), X, y)
    assert seen.accuracy(0.1) == pytest.approx(known.accuracy(0.1), abs=1e-8)
    assert seen.risk(0.1) == pytest.approx(known.risk(0.1), abs=1e-8)
    np.testing.assert_allclose(seen.counterfactuals, known.counterfactuals, atol=1e-6)


@pytest.mark.parametrize(
    "learner", [Diagonal(), Spectral(), GeometricMean(), Blend([Diagonal(), Spectral()])]
)
def test_learners_take_arrays_of_a_device(kind, learner):
    X, y, _ = rows()
    found, expected = clone(learner).fit(kind(X), kind(y)), clone(learner).fit(X, y)
    np.testing.assert_allclose(found.metric_, expected.metric_)


def test_wide_and_long_rows(kind):
    # through the span of the rows, and through a part of them as start
    for n, d in ((40, 90), (9_000, 6)):
        X, y, _ = rows(n, d)
        model = DROClassifier(cost="euclidean", delta=0.05, tol=1e-10)
        expected, found = clone(model).fit(X, y), clone(model).fit(kind(X), kind(y))
        assert found.robust_risk_ == pytest.approx(expected.robust_risk_, abs=1e-8)


@pytest.mark.parametrize("n", [60, 310])
def test_costs_that_few_rows_teach_are_written_out_for_a_device(kind, n):
    """Of 310 rows the folds have fewer than columns."""
    X, y, _ = rows(n, 290)
    model = DROClassifier(cv=2)
    expected = clone(model).fit(X, y)
    found = model.fit(kind(X), kind(y))
    assert found.robust_risk_ == pytest.approx(expected.robust_risk_, abs=1e-7)
    assert found.delta_ == pytest.approx(expected.delta_, rel=1e-6)


def test_products_of_blocks_of_rows(kind):
    rng = np.random.default_rng(0)
    X, r = rng.standard_normal((2 * BLOCK_ROWS + 7, 3)), rng.uniform(size=(2 * BLOCK_ROWS + 7, 2))
    center = np.array([3.0, 0.0, -1.0])
    L = np.linalg.cholesky(np.eye(3) + 0.3)
    expected, found = Design(X, L, center), Design(kind(X), L, center)
    theta = rng.standard_normal((3, 2))
    np.testing.assert_allclose(numpy(found.scores(theta)), expected.scores(theta), atol=1e-10)
    np.testing.assert_allclose(found.adjoint(kind(r)), expected.adjoint(r), atol=1e-8)
    np.testing.assert_allclose(found.gram(kind(r)), expected.gram(r), atol=1e-8)
    np.testing.assert_allclose(numpy(found.squared_norms()), expected.squared_norms())
    far = Design(kind(X + 1e6), center=center + 1e6).gram(kind(r[:, 0]))
    np.testing.assert_allclose(far, Design(X, center=center).gram(r[:, 0]), rtol=1e-6)
    for weights in (None, r[:, 0]):
        given = None if weights is None else kind(weights)
        np.testing.assert_allclose(numpy(row_shares(kind(X), given)[1]), row_shares(X, weights)[1])


def test_float32_rows_are_within_1e_5_of_float64(kind):
    X, y, target = rows(3_000, 6)
    for model, t in (
        (DROClassifier(cost="euclidean", delta=0.02), y),
        (DROClassifier(cost="euclidean", delta=0.02, order=2), y),
        (DRORegressor(cost="euclidean", delta=0.02), target),
    ):
        expected = clone(model).fit(X, t).robust_risk_
        found = clone(model).fit(kind(X.astype(np.float32)), kind(t)).robust_risk_
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_no_number_certifies_no_model():
    X, y, weights = np.full((4, 2), np.nan), np.array([1.0, -1.0, 1.0, -1.0]), np.full(4, 0.25)
    problem = Problem(X, y, weights, Logistic(), Ball(Norm(2), 0.1, 1))
    assert not solution(Exact(1e-6, 5), problem).converged


def test_mixed_arrays_are_refused(monkeypatch):
    kind = torch_array(monkeypatch)
    X, y, _ = rows()
    model = DROClassifier(cost="euclidean", delta=0.05)
    with pytest.raises(ValueError, match="X is an array of torch on cpu and y one of NumPy"):
        model.fit(kind(X), y)
    with pytest.raises(ValueError, match="X is an array of NumPy and y one of torch on cpu"):
        model.fit(X, kind(y))
    with pytest.raises(ValueError, match="y one of torch on meta: move one of them"):
        model.fit(kind(X), kind(y).to("meta"))
    with pytest.raises(ValueError, match="sample_weight one of NumPy"):
        model.fit(kind(X), kind(y), sample_weight=np.ones(len(y)))
    with pytest.raises(ValueError, match="X is an array of NumPy and y one of torch"):
        model.fit(sparse.csr_array(X), kind(y))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_rows_on_a_device_are_refused(monkeypatch):
    kind = torch_array(monkeypatch)
    X, y, _ = rows()
    with pytest.raises(ValueError, match="rows on a device must be dense"):
        DROClassifier(cost="euclidean", delta=0.05).fit(kind(X).to_sparse_csr(), kind(y))


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "hinge", "cost": "euclidean"},
        {"cost": "linf"},
        {"cost": "euclidean", "label_cost": 1.0},
        {"cost": "euclidean", "solver": "smoothed"},
    ],
)
def test_what_runs_on_numpy_only_says_so(monkeypatch, settings):
    kind = torch_array(monkeypatch)
    X, y, _ = rows()
    with pytest.raises(ValueError, match=r"NumPy arrays.*torch on cpu.*copy X and y to NumPy"):
        DROClassifier(delta=0.05, **settings).fit(kind(X), kind(y))


def test_bad_numbers_on_a_device(monkeypatch):
    kind = torch_array(monkeypatch)
    X, y, target = rows()
    with pytest.raises(ValueError, match="Input y contains NaN"):
        DRORegressor(delta=0.05).fit(kind(X), kind(np.where(y > 0, np.nan, target)))
    with pytest.raises(ValueError, match=r"y has shape \(10,\), but X has 150 rows"):
        DROClassifier(delta=0.05).fit(kind(X), kind(y[:10]))
    with pytest.raises(ValueError, match="got one class"):
        DROClassifier(delta=0.05).fit(kind(X), kind(0 * y))


def test_a_device_out_of_memory_is_told_what_was_needed(monkeypatch):
    kind = torch_array(monkeypatch)
    import torch

    X, y, _ = rows()

    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("otdro.design.gram_of_rows", full)
    with pytest.raises(MemoryError, match=r"ran out of memory: X has .* GiB and a fit needs about"):
        DROClassifier(cost="euclidean", delta=0.05).fit(kind(X), kind(y))


def test_without_dispatch_arrays_become_numpy():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, y, _ = rows()
    with sklearn.config_context(array_api_dispatch=False):
        model = DROClassifier(cost="euclidean", delta=0.05).fit(torch.tensor(X), torch.tensor(y))
    assert isinstance(model.coef_, np.ndarray)


def test_a_saved_model_is_of_no_device(monkeypatch):
    import pickle

    kind = torch_array(monkeypatch)
    X, y, _ = rows()
    model = DROClassifier(cost="euclidean", delta=0.05).fit(kind(X), kind(y))
    again = pickle.loads(pickle.dumps(model))
    assert isinstance(again.coef_, np.ndarray)
    np.testing.assert_allclose(again.predict_proba(X), numpy(model.predict_proba(kind(X))))
