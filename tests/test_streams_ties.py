"""Order 2 of rows in chunks where rows tie: two best moves of a row share its mass."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer

from otdro import DROClassifier
from otdro.solvers.streamed import stream
from streaming import chunks_of


@pytest.fixture
def two_kept(monkeypatch):
    """Keep two rows of every class in memory."""
    monkeypatch.setattr(stream, "KEPT", 1)
    monkeypatch.setattr(stream, "OF_A_CLASS", 2)


@pytest.mark.usefixtures("two_kept")
@pytest.mark.parametrize("seed", range(6))
def test_ties_of_forty_rows_are_certified(seed):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = np.random.default_rng(seed).choice(len(X), 40, replace=False)
    settings = {"cost": "euclidean", "order": 2, "delta": 0.002}
    memory = DROClassifier(**settings).fit(X[rows], y[rows])
    model = DROClassifier(**settings).fit(chunks_of(X[rows], y[rows], 10), None)
    assert model.gap_ <= 1e-6 * np.log(2)
    assert_allclose(model.robust_risk_, memory.robust_risk_, atol=2e-6)


@pytest.mark.usefixtures("few_kept")
@pytest.mark.parametrize("seed", range(4))
def test_ties_of_rows_that_are_not_in_memory_are_certified(seed):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(1200) < 0.5, 1, -1)
    X = rng.standard_normal((1200, 8))
    # two clusters far apart: the adversary moves few rows, but far
    X[:, :2] += 3 * y[:, None]
    settings = {"cost": "euclidean", "order": 2, "delta": 0.1}
    memory = DROClassifier(**settings).fit(X, y)
    # below 1/4 rows have two best moves
    assert 2 * memory.multiplier_ / np.linalg.norm(memory.coef_) ** 2 < 0.2
    data = chunks_of(X, y, 300)
    model = DROClassifier(**settings).fit(data, None)
    assert model.gap_ <= 1e-6 * np.log(2)
    assert data.passes <= 20
    assert_allclose(model.robust_risk_, memory.robust_risk_, atol=2e-6)


@pytest.mark.filterwarnings("ignore:every coefficient:UserWarning")
@pytest.mark.usefixtures("two_kept")
@pytest.mark.parametrize("seed", range(12))
def test_ties_of_a_handful_of_distinct_rows_are_certified(seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(3, 8)
    distinct = rng.integers(-2, 3, (size, 3)).astype(float)
    X = distinct[rng.integers(0, size, 2000)]
    noise = np.where(rng.random(2000) < 0.5, 1, -1)
    y = np.where(rng.random(2000) < 0.2, noise, np.where(X @ [1, -1, 0.5] > 0, 1, -1))
    settings = {"cost": "euclidean", "order": 2, "delta": 10.0 ** rng.uniform(-4, -1)}
    memory = DROClassifier(**settings).fit(X, y)
    model = DROClassifier(**settings).fit(chunks_of(X, y, 300), None)
    assert model.gap_ <= 1e-6 * np.log(2)
    assert_allclose(model.robust_risk_, memory.robust_risk_, atol=2e-6)
