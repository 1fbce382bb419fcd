"""Pictures of balls, regions and worst cases: what is drawn, not how it looks."""

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from otdro import DROClassifier, DRORegressor, plot
from otdro.costs import Graph, Mahalanobis, Norm

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

MATRIX = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])
COSTS = [Norm(1), Norm(2), Norm(np.inf), Mahalanobis(MATRIX)]


@pytest.fixture
def ax():
    yield plt.subplots()[1]
    plt.close("all")


@pytest.fixture(autouse=True)
def no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


def rows(n=40, d=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 0, "yes", "no")


@pytest.mark.parametrize("cost", COSTS, ids=lambda c: repr(c)[:20])
@pytest.mark.parametrize("features", [(0, 2), "principal"])
def test_unit_ball_has_unit_norm(ax, cost, features):
    X, y = rows()
    *dots, ball = plot.unit_ball(cost, X, y, features, ax)
    assert [d.get_label() for d in dots] == ["no", "yes"]
    assert sum(len(d.get_offsets()) for d in dots) == len(X)
    if features == "principal":
        move, center = np.linalg.svd(X - X.mean(axis=0))[2][:2], np.zeros(2)
    else:
        move, center = np.eye(3)[[0, 2]], X[:, [0, 2]].mean(axis=0)
    assert_allclose(cost.norm((ball.get_xy() - center) @ move), 1)


def test_unit_ball_names_center_and_radius(ax):
    X, _ = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    ball = plot.unit_ball(Norm(2), frame, None, ("c", 1), ax, center=(5, 6), radius=2)[-1]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("c", "b")
    assert_allclose(np.linalg.norm(ball.get_xy() - [5, 6], axis=1), 2)


def test_continuous_targets_are_one_scatter(ax):
    X, _ = rows()
    dots, _ = plot.unit_ball(Norm(2), X, X[:, 0], ax=ax)
    assert_allclose(dots.get_array(), X[:, 0])


def test_confidence_region_outline_is_the_shadow(ax):
    X, _ = rows(200)
    model = DRORegressor(cost="euclidean", delta=0.01).fit(X, X[:, 0] + X[:, 2])
    y = X[:, 0] + np.random.default_rng(1).standard_normal(200)
    region = model.fit(X, y).confidence_region()
    outline, middle, *zero = plot.confidence_region(region, (0, 2), ax)
    assert len(zero) == 2
    assert_allclose(np.ravel(middle.get_data()), region.center[[0, 2]])
    # the shadow touches the marginal intervals
    box = outline.get_xy()
    assert_allclose([box.min(axis=0), box.max(axis=0)], region.intervals()[[0, 2]].T, rtol=1e-3)
    assert ax.get_xlabel() == "slope of x0"


def test_confidence_region_refuses_a_slope_that_is_free(ax):
    X, y = rows(200)
    X[:, 2] = 0
    region = DROClassifier(cost="euclidean", delta=0.01).fit(X, y).confidence_region()
    with pytest.raises(ValueError, match="do not determine"):
        plot.confidence_region(region, (0, 2), ax)


@pytest.mark.parametrize("cost", [Norm(2), Norm(1), Mahalanobis(MATRIX[:2, :2])], ids=str)
def test_worst_case_arrows_end_on_their_balls(ax, cost):
    X, y = rows(d=2)
    order = 2 if cost.euclidean else 1
    loss = "logistic" if cost.euclidean else "hinge"
    model = DROClassifier(loss, cost=cost, order=order, delta=0.1).fit(X, y)
    found = plot.worst_case(model, X, y, ax=ax, balls=3)
    dots, balls, arrows, line = found[:2], found[2:-2], found[-2], found[-1]
    assert len(dots) == 2
    assert 1 <= len(balls) <= 3
    start = arrows.get_offsets()
    end = start + np.column_stack([arrows.U, arrows.V])
    for ball in balls:
        center = (ball.get_xy().min(axis=0) + ball.get_xy().max(axis=0)) / 2
        k = np.linalg.norm(start - center, axis=1).argmin()
        assert_allclose(cost.norm(ball.get_xy() - start[k]), cost.norm(end[k] - start[k]))
    on = np.array([line.get_xy1(), line.get_xy2()])
    assert_allclose(model.decision_function(on), 0, atol=1e-9)


def test_worst_case_of_a_cost_that_is_no_norm_has_arrows_only(ax):
    X, y = rows(d=2)
    model = DROClassifier(cost=Graph(5), delta=0.1).fit(X, y)
    found = plot.worst_case(model, X, y, ax=ax)
    going = (model.worst_case().points != X[model.worst_case().origin]).any(axis=1)
    arrows = [artist for artist in found if isinstance(artist, matplotlib.quiver.Quiver)]
    assert len(arrows) == 1
    assert len(arrows[0].U) == going.sum()


def test_worst_case_of_chosen_rows_and_more_columns(ax):
    X, y = rows()
    model = DROClassifier(cost=Mahalanobis(MATRIX), order=2, delta=0.1).fit(X, y)
    found = plot.worst_case(model, X, y, (0, 2), ax, balls=[4, 7])
    assert len(found) == 2 + 2 + 1
    assert_allclose(found[2].get_xy().mean(axis=0), X[4, [0, 2]], atol=0.02)


def test_worst_case_of_one_class_and_of_a_regression(ax):
    X, _ = rows(60, 2)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2, [0, 1])
    model = DROClassifier(cost="euclidean", order=2, delta=0.1).fit(X, y)
    line = plot.worst_case(model, X, y, ax=ax, class_=2)[-1]
    on = np.array([line.get_xy1(), line.get_xy2()])
    assert_allclose(model.decision_function(on)[:, 2], 0, atol=1e-9)
    reg = DRORegressor(cost="euclidean", delta=0.1).fit(X, X[:, 0] + X[:, 1] ** 2)
    assert len(plot.worst_case(reg, X, X[:, 0], ax=ax, balls=1)) == 3


def test_zero_model_has_neither_moves_nor_boundary(ax):
    X, y = rows(d=2)
    model = DROClassifier(cost="euclidean", order=1, delta=100.0).fit(X, y)
    found = plot.worst_case(model, X, y, ax=ax)
    assert len(found) == 3
    assert len(found[-1].U) == 0


def test_axes_are_made_where_none_are_given():
    X, y = rows()
    ball = plot.unit_ball(Norm(2), X, y)[-1]
    assert ball.axes is plt.gca()
    plt.close("all")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, ax: plot.unit_ball(Norm(2), X, None, (0, 5), ax), "feature 5 is out of range"),
        (lambda X, ax: plot.unit_ball(Norm(2), X, None, ("a", 0), ax), "no feature is called 'a'"),
        (lambda X, ax: plot.unit_ball(Norm(2), X, None, "best", ax), "or 'principal'"),
        (lambda X, ax: plot.unit_ball(Norm(2), X[:, :1], None, ax=ax), "two columns or more"),
    ],
)
def test_refusals(ax, call, message):
    with pytest.raises(ValueError, match=message):
        call(rows()[0], ax)


def test_other_rows_and_more_columns_are_refused(ax):
    X, y = rows()
    model = DROClassifier(cost="euclidean", order=2, delta=0.1).fit(X, y)
    with pytest.raises(ValueError, match="rows that the estimator was fitted on"):
        plot.worst_case(model, X[:5], y[:5], ax=ax)
    with pytest.raises(ValueError, match="line for two columns"):
        plot.boundary(model, ax)


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'otdro\[plot\]'"):
        plot.unit_ball(Norm(2), rows()[0])
