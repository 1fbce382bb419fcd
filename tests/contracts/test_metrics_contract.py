"""What every metric satisfies, and every learner from pairs: all that otdro.metrics exports."""

import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from otdro import metrics
from otdro.costs import Mahalanobis
from otdro.metrics import Blend, GeometricMean, Learned, Metric, MetricLearner, Spectral
from otdro.pairs import from_labels

METRICS = [name for name in metrics.__all__ if name != "Learned"]
LEARNERS = [name for name in METRICS if issubclass(getattr(metrics, name), MetricLearner)]


@pytest.fixture(params=METRICS)
def metric(request):
    if request.param == "Blend":
        return Blend(["euclidean", Spectral(), GeometricMean()])
    made = getattr(metrics, request.param)()
    return made.set_params(random_state=0) if request.param in LEARNERS else made


@pytest.fixture(params=LEARNERS)
def learner(request):
    return getattr(metrics, request.param)(random_state=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.RandomState(0)
    X = rng.randn(80, 4)
    return X, np.where(X[:, 0] + 0.5 * rng.randn(80) > 0, "yes", "no")


def check_metric(matrix, d):
    assert matrix.shape == (d, d)
    assert_array_equal(matrix, matrix.T)
    assert_allclose(np.trace(matrix), d)
    assert np.linalg.eigvalsh(matrix)[0] > 0
    np.linalg.cholesky(matrix)


def test_every_file_of_the_folder_is_exported():
    files = {path.stem for path in Path(metrics.__file__).parent.glob("*.py")}
    exported = {getattr(metrics, name).__module__.rpartition(".")[2] for name in metrics.__all__}
    assert files - {"__init__", "base", "fitting", "leading"} == exported
    for name in METRICS:
        assert issubclass(getattr(metrics, name), Metric)
        assert getattr(metrics, name).__doc__


def test_symmetric_positive_definite_trace_d(metric, data):
    metric.fit(*data)
    check_metric(metric.metric_, 4)
    assert isinstance(metric.cost(), Mahalanobis)
    metric.cost().check(4)
    assert_array_equal(metric.cost().matrix, metric.metric_)


def test_order_of_rows_is_irrelevant(metric, data):
    X, y = data
    X, y = np.vstack([X, X[:20], X[:20]]), np.concatenate([y, y[:20], y[20:40]])  # with duplicates
    order = np.random.RandomState(1).permutation(len(X))
    one = clone(metric).fit(X, y).metric_
    assert_allclose(clone(metric).fit(X[order], y[order]).metric_, one, atol=1e-7)


def test_same_seed_same_metric(metric, data):
    assert_array_equal(clone(metric).fit(*data).metric_, clone(metric).fit(*data).metric_)


def test_labels_of_any_type_give_the_same_metric(metric, data):
    X, y = data
    one = clone(metric).fit(X, y).metric_
    for labels in (y == "yes", np.where(y == "yes", 7, -7), np.where(y == "yes", 1.0, 0.0)):
        assert_allclose(clone(metric).fit(X, labels).metric_, one, atol=1e-12)


def test_the_feature_that_makes_the_target_is_dear(learner, data):
    X, _ = data
    matrix = learner.fit(X, X[:, 0] + 0.1 * np.sin(X[:, 1])).metric_
    check_metric(matrix, 4)
    assert matrix[0, 0] > max(np.diag(matrix)[1:])


def test_several_classes(metric, data):
    X, _ = data
    check_metric(metric.fit(X, np.digitize(X[:, 0], [-0.5, 0.5])).metric_, 4)


@pytest.mark.parametrize("kind", ["each", "nearest", "opposite"])
def test_kinds_of_pairs(learner, data, kind):
    check_metric(learner.set_params(kind=kind, k=8).fit(*data).metric_, 4)


def test_given_pairs_replace_labels(learner, data):
    X, y = data
    pairs = from_labels(X, y, kind="each", k=learner.k)
    by_labels = clone(learner).fit(X, y).metric_
    assert_allclose(clone(learner).fit(X, pairs=pairs).metric_, by_labels, atol=1e-12)
    index = pairs.must.index, pairs.cannot.index
    assert_allclose(clone(learner).fit(X, pairs=index).metric_, by_labels, atol=1e-6)


def test_shrinkage_one_is_the_identity(learner, data):
    learner.fit(*data)
    assert_allclose(learner.shrunk(1.0), np.eye(4), atol=1e-15)
    check_metric(learner.shrunk(0.0), 4)
    assert_allclose(
        clone(learner).set_params(shrinkage=0.3).fit(*data).metric_, learner.shrunk(0.3)
    )


def test_clone_pickle_and_parameters(metric, data):
    parameters = metric.get_params()
    metric.fit(*data)
    assert metric.get_params() == parameters
    assert_array_equal(pickle.loads(pickle.dumps(metric)).metric_, metric.metric_)
    assert not hasattr(clone(metric), "metric_")
    assert repr(metric)


def test_degenerate_data_give_a_positive_definite_metric(metric, data):
    X, y = data
    constant = X.copy()
    constant[:, 2] = 5.0
    wide = np.random.RandomState(0).randn(10, 30)
    cases = {
        "constant feature": (constant, y),
        "all rows equal": (np.ones_like(X), y),
        "duplicated rows": (np.repeat(X[:20], 8, axis=0), np.repeat(y[:20], 8)),
        "fewer rows than features": (wide, np.arange(10) % 2),
        "one member in a class": (X, np.arange(80) == 0),
        "k >= n": (X[:4], [0, 0, 1, 1]),
        "large values": (1e8 * X, y),
        "small values": (1e-8 * X, y),
        "far from the origin": (1e4 + X, y),
    }
    for X, y in cases.values():
        check_metric(clone(metric).fit(X, y).metric_, X.shape[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (np.where(X[3, 1] == X, np.nan, X), y), "NaN"),
        (lambda X, y: (X, np.zeros(80)), "no cannot-link pairs; y must hold two classes"),
        (lambda X, y: (X, np.full(80, 0.5)), "no cannot-link pairs"),
        (lambda X, y: (X, np.where(np.arange(80) == 2, np.nan, X[:, 0])), "y contains NaN"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, y: (X[:1], y[:1]), "minimum of 2"),
        (lambda X, y: (X, [f"label {i}" for i in range(80)]), "no must-link pairs"),
        (lambda X, y: (X, None), "needs y or pairs"),
    ],
)
def test_bad_data_are_refused(learner, data, change, message):
    with pytest.raises(ValueError, match=message):
        learner.fit(*change(*data))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shrinkage": 1.5}, r"shrinkage must be a number in \[0, 1\], got 1.5"),
        ({"shrinkage": "auto"}, "shrinkage must be a number"),
        ({"k": 0}, "k must be an integer >= 1"),
        ({"kind": "knn"}, "kind must be one of"),
        ({"task": "ranking"}, "task must be one of"),
    ],
)
def test_bad_parameters_are_refused(learner, data, parameters, message):
    with pytest.raises(ValueError, match=message):
        learner.set_params(**parameters).fit(*data)


def test_bad_pairs_are_refused(learner, data):
    X, _ = data
    with pytest.raises(ValueError, match="row 80"):
        learner.fit(X, pairs=([[0, 80]], [[1, 2]]))
    with pytest.raises(ValueError, match=r"the first is \(1, 2\)"):
        learner.fit(X, pairs=([[0, 1], [1, 2]], [[2, 1]]))
    with pytest.raises(ValueError, match="itself"):
        learner.fit(X, pairs=([[0, 1]], [[2, 2]]))


def test_figure_1b(learner):
    """Two standard normal features, label the sign of the first: moving along it must cost more."""
    rng = np.random.RandomState(0)
    X = rng.randn(400, 2)
    matrix = learner.fit(X, np.sign(X[:, 0])).metric_
    least = 3 if type(learner).__name__ in ("Eigen", "Xing") else 1.2
    assert matrix[0, 0] / matrix[1, 1] >= least


def test_every_learner_can_be_a_candidate(learner, data):
    matrices = Learned([learner], shrinkage=[0.1, 0.5, 1.0]).matrices(*data)
    assert len(matrices) == 2
    learner.fit(*data)
    assert_allclose(matrices[1], learner.shrunk(0.5))


@pytest.mark.parametrize("name", metrics.__all__)
def test_no_parameter_of_a_learner_takes_what_it_is_not(name):
    kind = getattr(metrics, name)
    X = np.random.default_rng(0).standard_normal((20, 3))
    y = (X[:, 0] > 0).astype(int)
    for parameter in inspect.signature(kind).parameters.values():
        for bad in ("surely not", object(), 1j, int):
            required = {"candidates": ["euclidean"]} if name == "Blend" else {}
            learner = kind(**required | {parameter.name: bad})
            # "one candidate" is said of candidates
            with pytest.raises((ValueError, TypeError), match=parameter.name.removesuffix("s")):
                learner.names() if name == "Learned" else learner.fit(X, y)
