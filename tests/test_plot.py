"""Pictures of balls, regions and worst cases: what is drawn, not how it looks."""

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from otdro import DROClassifier, DRORegressor, MixClassifier, audit, drift, plot, stability
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
    found = plot.BallDisplay.from_cost(cost, X, y, features, ax=ax)
    dots, ball = found.rows_, found.ball_
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
    found = plot.BallDisplay.from_cost(
        Norm(2), frame, None, ("c", 1), ax=ax, center=(5, 6), radius=2
    )
    ball = found.ball_
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("c", "b")
    assert_allclose(np.linalg.norm(ball.get_xy() - [5, 6], axis=1), 2)


def test_continuous_targets_are_one_scatter(ax):
    X, _ = rows()
    (dots,) = plot.BallDisplay.from_cost(Norm(2), X, X[:, 0], ax=ax).rows_
    assert_allclose(dots.get_array(), X[:, 0])


def test_confidence_region_outline_is_the_shadow(ax):
    X, _ = rows(200)
    model = DRORegressor(cost="euclidean", delta=0.01).fit(X, X[:, 0] + X[:, 2])
    y = X[:, 0] + np.random.default_rng(1).standard_normal(200)
    region = model.fit(X, y).confidence_region()
    found = plot.ConfidenceRegionDisplay.from_estimator(model, (0, 2), ax=ax)
    assert len(found.zero_) == 2
    assert_allclose(np.ravel(found.center_.get_data()), region.center[[0, 2]])
    # the shadow touches the marginal intervals
    box = found.region_.get_xy()
    assert_allclose([box.min(axis=0), box.max(axis=0)], region.intervals()[[0, 2]].T, rtol=1e-3)
    assert ax.get_xlabel() == "slope of x0"


def test_confidence_region_refuses_a_slope_that_is_free(ax):
    X, y = rows(200)
    X[:, 2] = 0
    region = DROClassifier(cost="euclidean", delta=0.01).fit(X, y).confidence_region()
    with pytest.raises(ValueError, match="do not determine"):
        plot.ConfidenceRegionDisplay.from_region(region, (0, 2), ax=ax)


def ends(display):
    """Return where the arrows begin and end, in the plane."""
    both = np.array([arrow._posA_posB for arrow in display.arrows_])
    return both[:, 0], both[:, 1]


@pytest.mark.parametrize("cost", [Norm(2), Norm(1), Mahalanobis(MATRIX[:2, :2])], ids=str)
def test_worst_case_arrows_end_on_their_balls(ax, cost):
    X, y = rows(d=2)
    order = 2 if cost.euclidean else 1
    loss = "logistic" if cost.euclidean else "hinge"
    model = DROClassifier(loss, cost=cost, order=order, delta=0.1).fit(X, y)
    found = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, balls=3)
    line = found.boundary_
    assert len(found.rows_) == 2
    assert 1 <= len(found.balls_) <= 3
    assert found.before_ is None
    start, end = ends(found)
    for ball in found.balls_:
        center = (ball.get_xy().min(axis=0) + ball.get_xy().max(axis=0)) / 2
        k = np.linalg.norm(start - center, axis=1).argmin()
        assert_allclose(cost.norm(ball.get_xy() - start[k]), cost.norm(end[k] - start[k]))
    [on] = line.get_segments()
    assert_allclose(model.decision_function(on), 0, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_balls_of_a_supremum_that_is_not_attained_are_those_of_delta(ax, classes):
    X, _ = rows(60, 2)
    y = np.digitize(X[:, 0], [0, 0.7][: classes - 1])
    model = DROClassifier(cost="euclidean", order=1, delta=0.2).fit(X, y)
    assert not model.worst_case().attained
    found = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, balls=1)
    [ball] = found.balls_
    assert_allclose(np.ptp(ball.get_xy(), axis=0), 2 * 0.2, rtol=0.01)
    # the moves themselves are as long as their reach
    assert found.moves.length.max() > 1


def test_worst_case_of_a_cost_that_is_no_norm_has_arrows_only(ax):
    X, y = rows(d=2)
    model = DROClassifier(cost=Graph(5), delta=0.1).fit(X, y)
    found = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax)
    going = (model.worst_case().points != X[model.worst_case().origin]).any(axis=1)
    assert found.balls_ == []
    assert len(found.arrows_) == going.sum()


def test_worst_case_of_chosen_rows_and_more_columns(ax):
    X, y = rows()
    model = DROClassifier(cost=Mahalanobis(MATRIX), order=2, delta=0.1).fit(X, y)
    found = plot.AdversaryDisplay.from_estimator(model, X, y, (0, 2), ax=ax, balls=[4, 7])
    assert len(found.balls_) == 2
    assert_allclose(found.balls_[0].get_xy().mean(axis=0), X[4, [0, 2]], atol=0.02)


@pytest.mark.constant_model("labels of one class teach nothing")
def test_worst_case_of_one_class_and_of_a_regression(ax):
    X, _ = rows(60, 2)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2, [0, 1])
    model = DROClassifier(cost="euclidean", order=2, delta=0.1).fit(X, y)
    line = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, class_=2).boundary_
    [on] = line.get_segments()
    assert_allclose(model.decision_function(on)[:, 2], 0, atol=1e-9)
    reg = DRORegressor(cost="euclidean", delta=0.1).fit(X, X[:, 0] + X[:, 1] ** 2)
    found = plot.AdversaryDisplay.from_estimator(reg, X, X[:, 0], ax=ax, balls=1)
    assert found.boundary_ is None
    assert len(found.balls_) == 1


@pytest.mark.constant_model("the picture of a constant model")
def test_zero_model_has_neither_moves_nor_boundary(ax):
    X, y = rows(d=2)
    model = DROClassifier(cost="euclidean", order=1, delta=100.0).fit(X, y)
    found = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax)
    assert found.arrows_ == []
    assert found.boundary_ is None


def test_axes_are_made_where_none_are_given():
    X, y = rows()
    found = plot.BallDisplay.from_cost(Norm(2), X, y)
    assert found.ax_ is plt.gca()
    assert found.figure_ is plt.gcf()
    plt.close("all")


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((0, 5), "feature 5 is out of range"),
        (("a", 0), "no feature is called 'a'"),
        ("best", "'principal' or 'learned'"),
        ("learned", "needs a Euclidean or Mahalanobis cost"),
    ],
)
def test_refusals(ax, features, message):
    with pytest.raises(ValueError, match=message):
        plot.BallDisplay.from_cost(Norm(1), rows()[0], None, features, ax=ax)


def test_one_column_is_refused(ax):
    with pytest.raises(ValueError, match="two columns or more"):
        plot.BallDisplay.from_cost(Norm(2), rows()[0][:, :1], ax=ax)


def test_other_rows_are_refused(ax):
    X, y = rows()
    model = DROClassifier(cost="euclidean", order=2, delta=0.1).fit(X, y)
    with pytest.raises(ValueError, match="rows that the estimator was fitted on"):
        plot.AdversaryDisplay.from_estimator(model, X[:5], y[:5], ax=ax)


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'otdro\[plot\]'"):
        plot.BallDisplay.from_cost(Norm(2), rows()[0])


def test_settings_of_matplotlib_stay():
    before = dict(matplotlib.rcParams)
    X, y = rows()
    plot.BallDisplay.from_cost(Norm(2), X, y)
    plt.close("all")
    assert dict(matplotlib.rcParams) == before


def test_learned_directions_are_axes_of_the_ball(ax):
    X, y = rows()
    model = DROClassifier(cost=Mahalanobis(MATRIX), order=2, delta=0.25).fit(X, y)
    found = plot.BallDisplay.from_estimator(model, X, y, "learned", ax=ax)
    values = np.linalg.eigvalsh(MATRIX)
    reach = (found.ball_.get_xy() - found.center).max(axis=0)
    assert_allclose(reach, 0.5 / np.sqrt(values[[0, -1]]), rtol=1e-4)


def test_boundary_of_more_columns_is_the_section_at_the_mean(ax):
    X, y = rows()
    model = DROClassifier(cost=Mahalanobis(MATRIX), order=2, delta=0.1).fit(X, y)
    plain = DROClassifier(cost="euclidean", delta=0.0).fit(X, y)
    found = plot.AdversaryDisplay.from_estimator(model, X, y, (0, 2), ax=ax, before=plain)
    for line, fitted in ((found.boundary_, model), (found.before_, plain)):
        [ends] = line.get_segments()
        for u in ends:
            point = X.mean(axis=0)
            point[[0, 2]] = u
            assert_allclose(fitted.decision_function([point]), 0, atol=1e-9)


def test_arrows_are_as_wide_as_their_mass(ax):
    X, y = rows(d=2)
    model = DROClassifier("hinge", cost="euclidean", order=1, delta=0.1).fit(X, y)
    found = plot.AdversaryDisplay.from_estimator(model, X, y, ax=ax, reach=1.0)
    assert found.moves.share.max() <= 1 + 1e-12
    assert found.moves.length.max() <= 1 + 1e-9
    width = np.array([arrow.get_linewidth() for arrow in found.arrows_])
    weight = found.moves.share * found.moves.length
    share = found.moves.share[np.argsort(-weight, kind="stable")]
    assert (np.diff(width[np.argsort(share)]) >= -1e-12).all()


@pytest.fixture(scope="module")
def chosen():
    X, y = rows(120)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    return DROClassifier(cost="euclidean", delta="cv", cv=3).fit(frame, y)


def test_path_draws_risks_score_and_deltas(ax, chosen):
    found = plot.PathDisplay.from_estimator(chosen, ax=ax)
    path = chosen.path_
    assert_allclose(found.robust_.get_ydata(), path.robust_risk)
    assert_allclose(found.empirical_.get_ydata(), path.empirical_risk)
    assert_allclose(found.score_.get_ydata(), -path.score_mean)
    assert_allclose(found.chosen_.get_xdata(), chosen.delta_)
    expected = DROClassifier(cost="euclidean", delta="theory").fit(*rows(120)).delta_
    assert_allclose(found.theory_.get_xdata(), expected)
    assert found.score_ax_ is None


def test_path_of_another_score_has_an_axis_of_its_own(ax):
    X, y = rows(120)
    model = DROClassifier(cost="euclidean", cv=3, scoring="accuracy").fit(X, y)
    found = plot.PathDisplay.from_estimator(model, ax=ax, theory=False)
    assert found.theory_ is None
    assert found.score_ax_ is not found.ax_
    assert_allclose(found.score_.get_ydata(), model.path_.score_mean)


def test_coefficients_along_the_path(ax, chosen):
    found = plot.CoefficientPathDisplay.from_estimator(chosen, ax=ax)
    assert_allclose([line.get_ydata() for line in found.lines_], chosen.path_.coef.T)
    assert {line.get_label() for line in found.lines_} == {"a", "b", "c"}


@pytest.mark.parametrize("form", ["multinomial", "ovr"])
def test_coefficients_of_several_classes_have_a_panel_each(ax, form):
    X, _ = rows(60)
    y = np.array(["c", "b", "a"])[np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])]
    settings = {"deltas": [0.01, 0.1], "cv": 2, "tol": 1e-3}
    model = DROClassifier(cost="euclidean", multi_class=form, **settings).fit(X, y)
    at = {float(delta): k for k, delta in enumerate(model.path_.deltas)}[model.delta_]
    found = plot.CoefficientPathDisplay.from_estimator(model)
    assert [panel.get_title() for panel in found.ax_] == ["class a", "class b", "class c"]
    drawn = np.array([[line.get_ydata()[at] for line in lines] for lines in found.lines_])
    assert_allclose(drawn, model.coef_, atol=1e-2)
    one = plot.CoefficientPathDisplay.from_estimator(model, ax=ax, class_="b")
    assert_allclose([line.get_ydata()[at] for line in one.lines_], drawn[1])
    again = plot.CoefficientPathDisplay.from_estimator(model, ax=plt.subplots(1, 3)[1])
    assert len(again.chosen_) == 3
    with pytest.raises(ValueError, match=r"needs 3 Axes, got 1: pass ax=plt.subplots\(3\)"):
        plot.CoefficientPathDisplay.from_estimator(model, ax=ax)
    with pytest.raises(ValueError, match="class_='d' must be one of the classes"):
        plot.CoefficientPathDisplay.from_estimator(model, ax=ax, class_="d")


def test_a_fit_without_a_path_says_how_to_get_one(ax):
    X, y = rows()
    model = DROClassifier(cost="euclidean", delta=0.1).fit(X, y)
    for display in (plot.PathDisplay, plot.CoefficientPathDisplay):
        with pytest.raises(ValueError, match="Fit it with delta='cv'"):
            display.from_estimator(model, ax=ax)


def test_prices_are_those_of_the_table(ax, chosen):
    X, _ = rows()
    found = plot.PriceDisplay.from_cost(Mahalanobis(MATRIX), X, ax=ax)
    expected = Mahalanobis(MATRIX).table(X=X).price
    assert_allclose([bar.get_width() for bar in found.bars_], np.sort(expected)[::-1])
    found = plot.PriceDisplay.from_estimator(chosen, ax=ax)
    assert {text.get_text() for text in ax.get_yticklabels()} == {"a", "b", "c"}
    many = plot.PriceDisplay.from_cost(Norm(2), feature_names=[f"f{j}" for j in range(50)], ax=ax)
    assert len(many.bars_) == 30


@pytest.fixture(scope="module")
def audits():
    X, y = rows(80)
    models = {"a": LogisticRegression(), "b": LogisticRegression(C=0.01)}
    return {name: audit(model.fit(X, y), X, y) for name, model in models.items()}


def test_certified_accuracy_of_several_models(ax, audits):
    found = plot.CertifiedAccuracyDisplay.from_audits(audits, level=0.7, ax=ax)
    assert [line.get_label() for line in found.lines_] == ["a", "b"]
    for line, audited in zip(found.lines_, audits.values(), strict=True):
        delta, accuracy = line.get_data()
        assert_allclose(accuracy, audited.accuracy(delta))
    assert_allclose(found.level_.get_ydata(), 0.7)
    assert_allclose(ax.get_xlim()[1], max(a.breaking_point(0.5) for a in audits.values()))


def test_certified_accuracy_of_one_model_on_given_deltas(ax, audits):
    X, y = rows(80)
    model = LogisticRegression().fit(X, y)
    found = plot.CertifiedAccuracyDisplay.from_estimator(model, X, y, ax=ax, order=2)
    expected = audit(model, X, y, order=2).accuracy(found.deltas)
    assert_allclose(found.lines_[0].get_ydata(), expected)
    given = plot.CertifiedAccuracyDisplay.from_audits(audits, deltas=[0, 0.1, 0.3], ax=ax)
    assert_allclose(given.lines_[0].get_xdata(), [0, 0.1, 0.3])
    with pytest.raises(ValueError, match="no audit to draw"):
        plot.CertifiedAccuracyDisplay.from_audits({}, ax=ax)


def test_drift_draws_the_columns_that_moved(ax):
    pytest.importorskip("ot")
    X, y = rows(60)
    model = DROClassifier(cost="euclidean", delta=0.1).fit(X, y)
    moved = drift(X, X[:40] + np.array([0, 2.0, 0]), random_state=0)
    found = plot.DriftDisplay.from_drift(moved, ax=ax)
    order = moved.columns.order()
    assert order[0] == 1
    assert_allclose([bar.get_width() for bar in found.bars_], moved.columns.distance[order])
    assert_allclose(found.shift_.get_xdata(), moved.columns.shift[order])
    seen = plot.DriftDisplay.from_estimator(model, X, X[:40], ax=ax, random_state=0)
    assert len(seen.bars_) == 3


def test_the_adversary_of_a_softmax_model_has_moves_and_borders_of_the_classes(ax):
    X, _ = rows(60, 2)
    y = np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])
    model = DROClassifier(cost="euclidean", delta=0.1, multi_class="multinomial").fit(X, y)
    plain = LogisticRegression().fit(X, y)
    shown = plot.AdversaryDisplay.from_estimator(model, X, y, before=plain, ax=ax)
    assert shown.arrows_
    # no move is longer than the largest distance of a row from the mean
    far = np.linalg.norm(X - X.mean(axis=0), axis=1).max()
    assert shown.moves.length.max() <= far * (1 + 1e-9)
    for fitted, borders in ((model, shown.boundary), (plain, shown.before)):
        best = np.sort(fitted.decision_function(np.mean(borders, axis=1)), axis=1)
        assert len(best) >= 2
        assert_allclose(best[:, -1], best[:, -2], atol=1e-9)
    assert len(shown.boundary_.get_segments()) == len(shown.boundary)


def test_stability_draws_refits_against_predictions(ax):
    X, y = rows()
    model = DROClassifier(cost="euclidean", delta=0.05).fit(X, y)
    drawn = plot.StabilityDisplay.from_estimator(model, X, y, refits=5, ax=ax)
    result = stability(model, X, y, refits=5)
    assert_allclose(drawn.points_.get_offsets(), result.instability)
    assert_allclose(np.sort(drawn.interval_[0].get_xdata()), np.sort(result.prediction))
    assert ax.get_xlabel() == "probability of yes"
    assert ax.get_ylabel() == "the same by 5 refits"


def test_averages_are_drawn():
    X, y = rows()
    model = MixClassifier([DROClassifier(cost="euclidean"), DROClassifier(cost="linf")]).fit(X, y)
    plot.CertifiedAccuracyDisplay.from_estimator(model, X, y)
    plot.PriceDisplay.from_estimator(model)
    plot.BallDisplay.from_estimator(model, X, y)
    plot.DriftDisplay.from_estimator(model, (X, y), (X[:20] + 0.1, y[:20]))
    plt.close("all")
    # an average is the solution of no single problem
    with pytest.raises(ValueError, match=r"no worst_case\(\).*one of its members_"):
        plot.AdversaryDisplay.from_estimator(model, X, y)
    with pytest.raises(ValueError, match=r"no path_.*one of its members_"):
        plot.PathDisplay.from_estimator(model)
