"""What a cost says of itself: prices, directions, and what it won against."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.base import clone

from otdro import Ball, DROClassifier, robust_risk
from otdro.costs import FeatureMap, Graph, Mahalanobis, Norm
from otdro.metrics import Diagonal, Learned

MATRIX = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])
SCALE = np.array([1.0, 0.5, 3.0])
COSTS = [Norm(1), Norm(2), Norm(np.inf), Mahalanobis(MATRIX)]
every = pytest.mark.parametrize("cost", COSTS, ids=lambda c: repr(c)[:20])


@every
def test_price_is_the_norm_of_one_deviation(cost):
    table = cost.table(scale=SCALE)
    for j, price in enumerate(table.price):
        assert_allclose(price, cost.norm(SCALE[j] * np.eye(3)[j]))


@every
def test_directions_are_the_extremes(cost):
    table = cost.table(scale=SCALE)
    v = np.random.default_rng(0).standard_normal((20_000, 3))
    found = cost.norm(SCALE * v / np.linalg.norm(v, axis=1, keepdims=True))
    assert table.cheapest.price <= found.min()
    assert found.max() <= table.most_expensive.price
    # and both are attained
    for direction in (table.cheapest, table.most_expensive):
        assert_allclose(np.linalg.norm(direction.loadings), 1)
        assert_allclose(cost.norm(SCALE * direction.loadings), direction.price)


def test_mahalanobis_directions_are_eigenvectors():
    table = Mahalanobis(MATRIX).table()
    values = np.linalg.eigvalsh(MATRIX)
    assert_allclose([table.cheapest.price, table.most_expensive.price], np.sqrt(values[[0, -1]]))
    worst = minimize(lambda v: -(v @ MATRIX @ v) / (v @ v), [1.0, 0.5, 0.1]).x
    assert_allclose(
        abs(table.most_expensive.loadings @ worst) / np.linalg.norm(worst), 1, rtol=1e-6
    )


def test_names_and_deviations_come_from_a_data_frame():
    X = pd.DataFrame({"height": [1.0, 2.0, 3.0], "width": [0.0, 0.0, 5.0], "still": [4.0] * 3})
    table = Norm(2).table(X=X)
    assert table.names == ["height", "width", "still"]
    assert_allclose(table.price, X.std(ddof=0))
    assert table.cheapest.loadings[2] == 0
    assert table.records()[0] == {
        "feature": "height",
        "move": table.move[0],
        "price": table.price[0],
    }


def test_text_is_aligned_and_fits_eighty_columns():
    names = [f"a feature with a rather long name, number {j}, which goes on" for j in range(30)]
    table = Mahalanobis(np.diag(np.linspace(1, 4, 30))).table(names)
    lines = str(table).splitlines()
    assert max(map(len, lines)) <= 80
    assert len({len(line) for line in lines[1:22]}) == 1
    assert "... and 10 more" in lines
    assert "Cheapest direction, price 1:" in lines
    assert "Most expensive direction, price 2:" in lines


def test_equal_prices_are_said_to_be_equal():
    assert "Every direction costs the same, 1." in str(Norm(2).table(["a", "b"]))
    assert "Every direction costs the same, 0." in str(Norm(2).table(scale=[0.0, 0.0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Norm(2).table(), "pass feature_names, X or scale"),
        (lambda: Mahalanobis(MATRIX).table(["a"]), "1 entries for 3 features"),
        (lambda: Mahalanobis(MATRIX).table(X=np.ones((4, 2))), r"shape \(4, 2\)"),
        (lambda: Norm(2).table(X=np.ones((4, 2)), scale=[1, 1]), "not both"),
        (lambda: Norm(2).table(scale=[1, -1]), "scale must be finite"),
        (lambda: FeatureMap().table(), "FeatureMap has no table"),
        (lambda: Graph().table(), "Graph has no table"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(60) > 0, "yes", "no")
    return DROClassifier(cost=Learned([Diagonal()], [0.1, 0.5], how="choose")).fit(X, y)


def test_cost_says_what_won_and_by_how_much(fitted):
    found = fitted.cost_.comparison_
    assert found.candidates == fitted.path_.candidates
    assert found.candidates[0].name == "Euclidean"
    assert found.winner.delta == fitted.delta_
    assert found.winner.criterion == min(c.criterion for c in found.candidates)
    assert len(found.candidates) == 3
    text = str(found)
    assert found.winner.name in text.splitlines()[0]
    assert max(map(len, text.splitlines())) <= 80


def test_comparison_survives_pickle_and_skops_and_clone_drops_it(fitted):
    skops = pytest.importorskip("skops.io")
    again = pickle.loads(pickle.dumps(fitted)).cost_
    assert str(again.comparison_) == str(fitted.cost_.comparison_)
    data = skops.dumps(fitted)
    stored = skops.loads(data, trusted=skops.get_untrusted_types(data=data)).cost_
    assert str(stored.comparison_) == str(fitted.cost_.comparison_)
    assert not hasattr(clone(fitted.cost_), "comparison_")


def test_single_candidate_is_named():
    X = np.random.default_rng(1).standard_normal((30, 2))
    model = DROClassifier(cost=Learned([])).fit(X, X[:, 0] > 0)
    assert "only candidate" in str(model.cost_.comparison_)


def test_given_cost_is_left_alone():
    X = np.random.default_rng(1).standard_normal((30, 2))
    cost = Norm(2)
    DROClassifier(cost=cost).fit(X, X[:, 0] > 0)
    assert not hasattr(cost, "comparison_")


@pytest.mark.parametrize("cost", [Norm(1), Mahalanobis(MATRIX), "learned"])
def test_the_cost_of_a_model_keeps_the_names_of_a_data_frame(cost):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["age", "dose", "weight"])
    y = X["age"] + rng.normal(size=60) > 0
    model = DROClassifier(cost=cost, delta=0.01).fit(X, y)
    assert model.ball_.cost is model.cost_
    assert model.cost_.table().names == ["age", "dose", "weight"]
    assert "dose" in str(model.cost_.table())
    assert model.cost_.table(["a", "b", "c"]).names == ["a", "b", "c"]
    renamed = X.set_axis(["d", "e", "f"], axis=1)
    assert model.cost_.table(X=renamed).names == ["d", "e", "f"]
    assert pickle.loads(pickle.dumps(model)).cost_.table().names == ["age", "dose", "weight"]
    # the parameter stays as it is
    assert not hasattr(cost, "feature_names_in_")
    with pytest.raises(ValueError, match=r"X has shape \(4, 2\), the cost 3 features"):
        model.cost_.table(X=np.ones((4, 2)))


def test_costs_and_balls_print_in_a_few_lines():
    matrix = np.eye(40) + 0.1
    short = "Mahalanobis(matrix=<array of shape (40, 40)>)"
    for cost, words in (
        (Mahalanobis(matrix), short),
        (FeatureMap(metric=np.ones(9)), "FeatureMap(metric=<array of shape (9,)>)"),
        (Norm(1), "Norm(p=1)"),
    ):
        assert repr(cost) == words
        assert str(cost).startswith(words)
        assert words in repr(Ball(cost, 0.1))
        assert "\n" not in repr(Ball(cost, 0.1))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 40))
    y = np.where(X[:, 0] + rng.normal(size=80) > 0, 1, -1)
    model = DROClassifier(delta=0.01).fit(X, y)
    assert len(str(model.cost_).splitlines()) <= 4
    assert "Euclidean" in str(model.cost_)
    assert len(str(model.ball_)) < 300
    # a message quotes the cost in one line
    with pytest.raises(ValueError, match=r"array of shape \(40, 40\)") as refused:
        robust_risk(X, y, np.ones((3, 40)), np.zeros(3), "logistic", Ball(Mahalanobis(matrix), 1.0))
    assert "\n" not in str(refused.value)
