"""Certified accuracy against linear programs and searches; counterfactuals; what may be audited."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    PowerTransformer,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC

from otdro import (
    Ball,
    DROClassifier,
    DRORegressor,
    MixClassifier,
    audit,
    load,
    robust_risk,
    save,
)
from otdro.costs import FeatureMap, Mahalanobis, Norm
from otdro.metrics import GeometricMean
from strangers import LThreeHalves

D = 3
MATRIX = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.4], [0.0, -0.4, 0.7]])
COSTS = {
    "euclidean": Norm(2),
    "l1": Norm(1),
    "linf": Norm(np.inf),
    "mahalanobis": Mahalanobis(MATRIX),
    "l3/2": LThreeHalves(),
}
#: ||v|| of a cvxpy expression, and the dual norm of a vector, written apart from the package.
NORMS = {
    "euclidean": lambda v: cp.norm(v, 2),
    "l1": lambda v: cp.norm(v, 1),
    "linf": lambda v: cp.norm(v, "inf"),
    "mahalanobis": lambda v: cp.norm(np.linalg.cholesky(MATRIX).T @ v, 2),
    "l3/2": lambda v: cp.pnorm(v, 1.5),
}
DUALS = {
    "euclidean": lambda w: np.sqrt(w @ w),
    "l1": lambda w: np.abs(w).max(),
    "linf": lambda w: np.abs(w).sum(),
    "mahalanobis": lambda w: np.sqrt(w @ np.linalg.solve(MATRIX, w)),
    "l3/2": lambda w: (np.abs(w) ** 3).sum() ** (1 / 3),
}


def binary(seed=0, n=24):
    """Return rows, labels, weights of which some are 0, and a fitted model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    y = np.where(X @ [1.0, -2.0, 0.5] + rng.normal(size=n) > 0.2, "yes", "no")
    weights = rng.integers(0, 4, size=n).astype(float)
    return X, y, weights, LogisticRegression().fit(X, y)


def blobs(n=60):
    X, y = make_blobs(n, D, centers=4, cluster_std=3.0, random_state=3)
    return X, y, LogisticRegression(max_iter=1000).fit(X, y)


def program(price, weights, delta):
    """Return the largest wrong mass by a linear program over moved masses."""
    free = np.where(np.isfinite(price), weights, 0.0)
    found = linprog(
        -np.ones(len(price)),
        A_ub=np.where(np.isfinite(price), price, 0.0)[None],
        b_ub=[delta],
        bounds=np.column_stack([np.zeros(len(price)), free]),
        method="highs",
    )
    return -found.fun


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("seed", range(3))
def test_certified_accuracy_is_a_linear_program(cost, order, seed):
    X, y, weights, model = binary(seed)
    found = audit(model, X, y, cost=COSTS[cost], order=order, sample_weight=weights)
    pi = weights / weights.sum()
    margin = np.where(y == "yes", 1, -1) * (X @ model.coef_[0] + model.intercept_[0])
    price = (np.maximum(margin, 0) / DUALS[cost](model.coef_[0])) ** order
    for delta in [0.0, 1e-3, 0.05, 0.2, 1.0, 100.0]:
        assert_allclose(found.accuracy(delta), 1 - program(price, pi, delta), atol=1e-9, rtol=0)
    for label in ("yes", "no"):
        rows = y == label
        wrong = program(price[rows], pi[rows], 0.1) / pi[rows].sum()
        assert_allclose(found.accuracy(0.1, class_=label), 1 - wrong, atol=1e-9, rtol=0)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("cost", COSTS)
def test_several_classes_and_a_band_are_linear_programs_too(cost, order):
    X, y, model = blobs()
    groups = np.arange(len(y)) % 3
    weights = np.random.default_rng(0).integers(0, 4, size=len(y)).astype(float)
    given = {"cost": COSTS[cost], "order": order, "sample_weight": weights}
    found = audit(model, X, y, groups=groups, **given)
    scores = X @ model.coef_.T + model.intercept_
    t = [
        min(
            max(scores[i, y[i]] - scores[i, k], 0) / DUALS[cost](model.coef_[y[i]] - model.coef_[k])
            for k in range(4)
            if k != y[i]
        )
        for i in range(len(y))
    ]
    assert_allclose(found.distance, t, rtol=1e-12)
    pi = weights / weights.sum()
    for delta in [0.0, 0.1, 1.0]:
        expected = 1 - program(np.array(t) ** order, pi, delta)
        assert_allclose(found.accuracy(delta), expected, atol=1e-9)
        rows = groups == 1
        wrong = program(np.array(t)[rows] ** order, pi[rows], delta) / pi[rows].sum()
        assert_allclose(found.accuracy(delta, group=1), 1 - wrong, atol=1e-9)
    reg = Ridge().fit(X, X @ [1.0, 0.0, -1.0] + y)
    target = X @ [1.0, 0.0, -1.0] + y
    band = audit(reg, X, target, tau=1.0, **given)
    e = np.abs(target - reg.predict(X))
    price = (np.maximum(1.0 - e, 0) / DUALS[cost](reg.coef_)) ** order
    for delta in [0.0, 0.1, 1.0]:
        assert_allclose(band.accuracy(delta), 1 - program(price, pi, delta), atol=1e-9)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("cost", ["euclidean", "linf", "mahalanobis"])
def test_no_search_finds_a_worse_distribution(cost, order):
    X, y, weights, model = binary(1)
    c, delta = COSTS[cost], 0.1
    found = audit(model, X, y, cost=c, order=order, sample_weight=weights)
    pi, rng = weights / weights.sum(), np.random.default_rng(0)
    beta, least = model.coef_[0], 1.0
    for trial in range(1000):
        # random moves of random rows, half of them along the boundary's normal, scaled to the ball
        v = rng.normal(size=X.shape) * (rng.random((len(X), 1)) < rng.random())
        if trial % 2:
            v = np.where(y == "yes", -1, 1)[:, None] * np.abs(v[:, :1]) * c.direction(beta)
        spent = pi @ c.norm(v) ** order
        v *= (delta / spent) ** (1 / order) if spent > 0 else 0.0
        predicted = np.where((X + v) @ beta + model.intercept_ > 0, "yes", "no")
        least = min(least, pi @ (predicted == y))
        assert pi @ c.norm(v) ** order <= delta * (1 + 1e-9)
    assert least >= found.accuracy(delta) - 1e-12
    # and the certificate is reached: rows past their counterfactuals, in the order of the prices
    q = found.moved(delta)
    past = X + 1.000001 * (found.counterfactuals - X)
    wrong = model.predict(past) != y
    already = model.predict(X) != y
    reached = pi @ already + (q * ~already) @ wrong
    assert_allclose(1 - reached, found.accuracy(delta), atol=1e-12)
    assert q @ found.price <= delta * (1 + 1e-12)


@pytest.mark.parametrize("cost", COSTS)
def test_distances_of_several_classes_are_projections(cost):
    X, y, model = blobs(8)
    found = audit(model, X, y, cost=COSTS[cost])
    rows = [i for i in range(len(y)) if found.distance[i] > 0][:4]
    for i in rows:
        values = []
        for k in set(range(4)) - {y[i]}:
            v = cp.Variable(D)
            gap = model.coef_[y[i]] - model.coef_[k]
            gap_b = model.intercept_[y[i]] - model.intercept_[k]
            problem = cp.Problem(cp.Minimize(NORMS[cost](v)), [gap @ (X[i] + v) + gap_b <= 0])
            values.append(problem.solve(solver="CLARABEL"))
        assert_allclose(found.distance[i], min(values), rtol=1e-6)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("kind", ["binary", "classes", "band"])
def test_counterfactuals_lie_on_the_boundary_and_none_is_nearer(cost, kind):
    if kind == "binary":
        X, y, _, model = binary()
    else:
        X, y, model = blobs()
    if kind == "band":
        y = X @ [1.0, 0.0, -1.0] + y
        model = Ridge().fit(X, y)
    c = COSTS[cost]
    found = audit(model, X, y, cost=c, tau=1.0 if kind == "band" else None)
    right = found.distance > 0
    at = found.model.scores(found.counterfactuals)[right]
    if kind == "band":
        off = np.abs(at[:, 0] - y[right]) - 1.0
    else:
        own, towards = found.target[right], found.nearest.towards[right]
        each = np.arange(len(own))
        off = at[each, own] - at[each, towards]
        assert_allclose(at[each, towards], at.max(axis=1), atol=1e-9)
    assert np.abs(off).max() <= 1e-9
    assert_allclose(c.norm(found.counterfactuals - X)[right], found.distance[right], rtol=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(300):
        v = rng.normal(size=X.shape)
        v *= (rng.random(len(X)) * found.distance * (1 - 1e-9) / c.norm(v))[:, None]
        if kind == "band":
            still = np.abs(model.predict(X + v) - y) < 1.0
        else:
            still = model.predict(X + v) == y
        assert still[right].all()


def test_a_price_of_labels_breaks_a_model_that_no_move_breaks():
    X, y, _, _ = binary()
    model = DROClassifier(cost="euclidean", order=2, delta=0.01, label_cost=1.0).fit(X, y)
    model.coef_ = np.zeros_like(model.coef_)
    found = audit(model, X, y)
    right = found.accuracy(0.0)
    # every row that is right changes its label, at price 1
    assert found.breaking_point(0.0) == pytest.approx(right)
    assert audit(model, X, y, order=1).breaking_point(0.0) == np.inf


def test_breaking_points_are_where_the_curve_crosses():
    X, y, weights, model = binary()
    found = audit(model, X, y, sample_weight=weights, order=2)
    for level in [0.8, 0.5, 0.1, 0.0]:
        delta = found.breaking_point(level)
        assert_allclose(found.accuracy(delta), level, atol=1e-12)
    assert found.breaking_point(found.accuracy(0.0)) == 0.0
    assert found.breaking_point(1.0) == 0.0
    constant = max(weights[y == c].sum() for c in ("yes", "no")) / weights.sum()
    assert found.breaking_point("constant") == found.breaking_point(constant)
    for part in ({"class_": "yes"}, {"class_": "no"}):
        point = found.breaking_point(0.5, **part)
        assert_allclose(found.accuracy(point, **part), 0.5, atol=1e-12)
    grid = np.linspace(0, 1, 200)
    curve = found.accuracy(grid)
    assert curve.shape == grid.shape
    assert np.all(np.diff(curve) <= 1e-15)
    assert np.all(np.diff(curve, 2) >= -1e-12)


def test_a_model_without_slopes_cannot_be_moved():
    X, y, _, model = binary()
    model.coef_ = np.zeros_like(model.coef_)
    found = audit(model, X, y)
    assert found.accuracy(1e9) == found.accuracy(0.0)
    assert found.breaking_point(0.0) == np.inf
    assert set(found.distance) == {0.0, np.inf}
    assert np.isnan(found.counterfactuals[np.isinf(found.distance)]).all()
    assert "Audit" in str(found)


@pytest.mark.parametrize("order", [1, 2])
def test_risk_is_the_robust_risk(order):
    X, y, _, model = binary()
    found = audit(model, X, y, order=order, cost="l1")
    signs = np.where(y == "yes", 1.0, -1.0)
    ball = Ball(Norm(1), 0.3, order)
    expected = robust_risk(X, signs, model.coef_[0], model.intercept_[0], "logistic", ball)
    assert_allclose(found.risk(0.3), expected, rtol=1e-9)
    assert found.risk(np.array([0.0, 0.3])).shape == (2,)


def test_risk_of_a_loss_without_a_bound_is_infinite_at_order_one():
    X, _, _, _ = binary()
    y = X @ [1.0, 0.0, 2.0] + 0.1
    found = audit(Ridge().fit(X, y), X, y)
    assert found.risk(0.1) == np.inf
    assert np.isfinite(found.risk(0.0))
    assert np.isfinite(audit(Ridge().fit(X, y), X, y, order=2).risk(0.1))


def test_softmax_risk_has_the_largest_pair_as_slope():
    X, y, model = blobs()
    found = audit(model, X, y)
    assert found.model.joint
    slope = max(np.linalg.norm(a - b) for a in model.coef_ for b in model.coef_)
    plain = -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean()
    assert_allclose(found.risk(0.2), plain + 0.2 * slope, rtol=1e-10)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("order", [1, 2])
def test_columns_share_the_budget_and_break_alone(cost, order):
    X, y, _, model = binary()
    found = audit(model, X, y, cost=COSTS[cost], order=order)
    table = found.columns
    assert_allclose(table.share.sum(), 1.0)
    level = found.constant_accuracy()
    for j in range(D):
        unit = np.eye(D)[j]
        one = abs(model.coef_[0, j]) / COSTS[cost].norm(unit)
        margin = np.where(y == "yes", 1, -1) * (X @ model.coef_[0] + model.intercept_[0])
        price = (np.maximum(margin, 0) / one) ** order
        # rows become wrong in the order of their prices until the accuracy is that of a constant
        ordered = np.sort(price)
        spent = np.cumsum(ordered) / len(y)
        wrong = np.arange(1, len(y) + 1) / len(y)
        expected = np.interp(1 - level, wrong, spent)
        assert_allclose(table.breaking_point[j], expected, rtol=1e-9)
    assert len(table.records()) == len(table) == D
    assert "share of budget" in str(table)


def test_columns_of_several_classes():
    X, y, model = blobs()
    found = audit(model, X, y)
    assert_allclose(found.columns.share.sum(), 1.0)
    assert np.all(found.columns.breaking_point >= found.breaking_point("constant"))


def test_units_are_mean_moves_that_cost_delta():
    X, y, _, model = binary()
    found = audit(model, X, y, cost=Mahalanobis(MATRIX), order=2)
    for j, name in enumerate(found.names):
        move = np.zeros(D)
        move[j] = found.deviations(0.4, name) * X[:, j].std()
        assert_allclose(Mahalanobis(MATRIX).norm(move) ** 2, 0.4)
    assert_allclose(found.deviations([0.1, 0.4], "x1")[1], found.deviations(0.4, "x1"))
    assert "standard deviations of x1" in found.in_words(0.4, "x1")
    assert found.in_words(np.inf) == "no move at all reaches it"


def test_a_column_that_does_not_vary_is_no_unit():
    X, y, _, model = binary()
    model.coef_ = np.array([[1.0, -2.0, 50.0]])
    X[:, 2] = 0.0
    found = audit(model, X, y)
    assert found.columns.order()[0] == 2
    assert found.unit_column != "x2"
    assert np.isfinite(found.deviations(0.1))
    assert found.deviations(0.1, "x2") == np.inf


def test_changes_name_the_columns_that_move():
    X, y, _, model = binary()
    found = audit(model, X, y, cost="l1")
    row = int(np.argmax(found.distance))
    [change] = found.changes(row)
    j = int(np.abs(model.coef_[0]).argmax())
    assert change.column == f"x{j}"
    assert_allclose(abs(change.after - change.before), found.distance[row])


MODELS = [
    LogisticRegression(),
    LinearSVC(),
    SGDClassifier(random_state=0),
    RidgeClassifier(),
    SVC(kernel="linear"),
    OneVsRestClassifier(LinearSVC()),
    DROClassifier(cost="euclidean", delta=0.1),
    GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}),
    make_pipeline(StandardScaler(), PCA(2), LogisticRegression()),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_any_linear_classifier(model):
    X, y, _, _ = binary(n=60)
    model.fit(X, y)
    found = audit(model, X, y)
    assert_allclose(found.accuracy(0.0), model.score(X, y))
    assert found.to_dict()["task"] == "classification"


@pytest.mark.parametrize(
    "model", [LinearSVC(), OneVsRestClassifier(LogisticRegression()), RidgeClassifier()],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_one_vs_rest(model):
    X, y, _ = blobs()
    found = audit(model.fit(X, y), X, y, order=2)
    assert_allclose(found.accuracy(0.0), model.score(X, y))
    assert not found.model.joint
    assert np.isfinite(found.risk(0.1))


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (Ridge(), "Squared"),
        (Lasso(0.01), "Squared"),
        (HuberRegressor(), "Huber"),
        (QuantileRegressor(quantile=0.3, alpha=0.0), "Quantile"),
        (DRORegressor(cost="linf", delta=0.01), "Squared"),
    ],
    ids=lambda v: str(v)[:12],
)
def test_any_linear_regression(model, loss):
    X, _, _, _ = binary()
    y = X @ [1.0, 0.0, 2.0] + 0.1 * X[:, 1] ** 2
    found = audit(model.fit(X, y), X, y, order=2, tau=0.2)
    assert type(found.model.loss).__name__ == loss
    assert_allclose(found.accuracy(0.0), (np.abs(model.predict(X) - y) < 0.2).mean())
    if loss == "Huber":
        assert_allclose(found.model.loss.M, model.epsilon * model.scale_)
    if loss == "Quantile":
        assert found.model.loss.tau == 0.3


def test_own_ball_is_the_default():
    X, y, _, _ = binary(n=60)
    model = DROClassifier(cost=Mahalanobis(MATRIX), delta=0.07, order=2).fit(X, y)
    found = audit(model, X, y)
    assert found.cost is model.cost_
    assert found.order == 2
    assert found.fitted_delta == 0.07
    assert_allclose(found.risk(0.07), model.robust_risk_, rtol=1e-7)
    assert audit(model, X, y, cost="l1").fitted_delta is None


@pytest.mark.parametrize("cost", ["learned", GeometricMean()], ids=str)
def test_learned_costs(cost):
    X, y, _, model = binary(n=60)
    found = audit(model, X, y, cost=cost)
    assert found.cost.is_norm
    assert found.accuracy(0.0) == model.score(X, y)


@pytest.mark.parametrize("steps", [
    [StandardScaler()], [MinMaxScaler(), PCA(2)], [StandardScaler(), SelectKBest(k=2)],
], ids=["scaled", "rotated", "selected"])  # fmt: skip
def test_raw_space_sees_through_affine_steps(steps):
    pd = pytest.importorskip("pandas")
    X, y, _, _ = binary(n=60)
    X = pd.DataFrame(1000 + 7 * X, columns=["a", "b", "c"])
    model = make_pipeline(*steps, LogisticRegression()).fit(X, y)
    found = audit(model, X, y, space="raw")
    assert found.names == ["a", "b", "c"]
    scores = found.model.scores(X.to_numpy())
    assert_allclose(scores[:, 1] - scores[:, 0], model.decision_function(X), atol=1e-9)


def bent_between_rows(X):
    # as affine as the identity at the mean, a deviation from it, and far out
    return X - 2.0 * ((X > -1.5) & (X < -1.0))


@pytest.mark.parametrize(
    "step",
    [PowerTransformer(), MinMaxScaler(clip=True), FunctionTransformer(bent_between_rows)],
    ids=["bent", "clipped", "written"],
)
def test_raw_space_falls_back_with_a_note(step):
    X, y, _, _ = binary(n=60)
    model = make_pipeline(step, LogisticRegression()).fit(X, y)
    with pytest.warns(UserWarning, match=f"{type(step).__name__} is not affine"):
        found = audit(model, X, y, space="raw")
    assert found.space == "last"
    assert "in front of the last step" in found.notes[-1]


def test_sparse_and_float32_rows():
    from scipy import sparse

    X, y, _, model = binary(n=60)
    dense = audit(model, X, y)
    for rows in (sparse.csr_matrix(X), sparse.coo_array(X), X.astype(np.float32)):
        found = audit(model, rows, y)
        assert_allclose(found.accuracy(0.1), dense.accuracy(0.1), atol=1e-6)
        assert_allclose(found.counterfactuals, dense.counterfactuals, atol=1e-5)
        assert_allclose(found.scale, dense.scale, rtol=1e-5)


def bad(**changes):
    X, y, _, model = binary(n=30)
    given = {"model": model, "X": X, "y": y} | changes
    return given.pop("model"), given.pop("X"), given.pop("y"), given


X0, Y0, _, _ = binary(n=30)
BAD = {
    "not linear": (bad(model=RandomForestClassifier(5).fit(X0, Y0)), "not a linear model"),
    "not fitted": (bad(model=LogisticRegression()), "not fitted: call fit"),
    "no model": (bad(model="model.skops"), "not a scikit-learn model"),
    "other columns": (bad(X=X0[:, :2]), "the model has 3 columns"),
    "NaN": (bad(X=np.where(X0 > 1, np.nan, X0)), "NaN or infinite values, first in column"),
    "texts": (bad(X=np.full((30, 3), "a")), "holds text, .* where numbers are needed"),
    "one class": (bad(y=np.full(30, "yes")), "one class only"),
    "unknown labels": (bad(y=np.full(30, "maybe")), "does not know, \\['maybe'\\]"),
    "lengths": (bad(y=Y0[:5]), "5 entries but there are 30 rows"),
    "order": (bad(order=3), "order must be 1 or 2"),
    "cost": (bad(cost=FeatureMap()), "needs a cost that is a norm"),
    "cost name": (bad(cost="l7"), "unknown cost='l7'"),
    "space": (bad(space="middle"), "space must be 'last' or 'raw'"),
    "tau": (bad(tau=1.0), "tau=1.0 is for regression"),
    "weights": (bad(sample_weight=-np.ones(30)), "must be nonnegative"),
    "groups": (bad(groups=[1, 2]), "groups has 2 entries"),
    "deltas": (bad(deltas=[0.1, -1.0]), "finite and >= 0"),
    "empty": (bad(X=X0[:0], y=Y0[:0]), "0 sample"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_answered_with_a_sentence(case):
    (model, X, y, given), text = BAD[case]
    with pytest.raises((ValueError, TypeError), match=text):
        audit(model, X, y, **given)


def test_more_bad_input():
    X, y, _, model = binary(n=30)
    found = audit(model, X, y)
    for call, text in [
        (lambda: found.accuracy(-1.0), "delta must be >= 0"),
        (lambda: found.accuracy(0.1, class_="maybe"), "none of the classes"),
        (lambda: found.accuracy(0.1, group=1), "needs groups"),
        (lambda: found.breaking_point(1.5), "a share in"),
        (lambda: found.breaking_point("half"), "'constant'"),
        (lambda: found.in_words(0.1, "age"), "there is no column 'age'"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    three = SVC(kernel="linear").fit(*blobs()[:2])
    with pytest.raises(ValueError, match="6 rows of coefficients for 4 classes"):
        audit(three, *blobs()[:2])
    with pytest.raises(ValueError, match="another link function"):
        audit(PoissonRegressor().fit(X, np.exp(X[:, 0])), X, np.exp(X[:, 0]))
    with pytest.raises(ValueError, match="2 targets"):
        audit(Ridge().fit(X, X[:, :2]), X, X[:, 0])
    with pytest.raises(ValueError, match="must hold numbers"):
        audit(Ridge().fit(X, X[:, 0]), X, y)
    with pytest.raises(ValueError, match="tau must be a number > 0"):
        audit(Ridge().fit(X, X[:, 0]), X, X[:, 0], tau=-1)


def test_other_columns_and_categories():
    pd = pytest.importorskip("pandas")
    from sklearn.preprocessing import OneHotEncoder

    X, y, _, _ = binary(n=30)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LogisticRegression().fit(frame, y)
    with pytest.raises(ValueError, match=r"lacks the columns \['a'\]"):
        audit(model, frame.rename(columns={"a": "z"}), y)
    with pytest.raises(ValueError, match="another order"):
        audit(model, frame[["c", "b", "a"]], y)
    city = pd.DataFrame({"city": np.where(X[:, 0] > 0, "Rome", "Bonn")})
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(city, y)
    with pytest.raises(ValueError, match="unknown categories"):
        audit(model, city.replace("Rome", "Oslo"), y)


def test_frozen_and_printed():
    X, y, _, model = binary(n=30)
    found = audit(model, X, y, groups=np.arange(30) % 2, deltas=[0.0, 0.1, 0.2])
    with pytest.raises(AttributeError):
        found.order = 2
    text = str(found)
    assert text == found.summary()
    for part in ("certified", "as bad as a constant", "group 1", "standard deviations of"):
        assert part in text
    assert found.to_dict()["curve"]["delta"] == [0.0, 0.1, 0.2]


def test_a_class_without_weight_is_no_class():
    X, y, _, model = binary(n=30)
    weights = (y == "yes").astype(float)
    with pytest.raises(ValueError, match="one class only"):
        audit(model, X, y, sample_weight=weights)


def test_the_price_of_a_label_caps_the_price_of_a_row():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(30) > 0, 1, -1)
    model = DROClassifier(cost="euclidean", delta=0.05, label_cost=0.4).fit(X, y)
    found = audit(model, X, y)
    assert_allclose(found.price, np.minimum(found.distance, 0.4))
    assert found.price.max() == 0.4
    # in another unit the price means nothing
    assert audit(model, X, y, cost="linf").label_cost == np.inf


def least_accuracy(options, mass, delta):
    """Return 1 - the largest wrong mass: a linear program over the ways (price, wrong) of rows."""
    price = np.concatenate([[p for p, _ in ways] for ways in options])
    wrong = np.concatenate([[w for _, w in ways] for ways in options])
    of = np.repeat(np.arange(len(options)), [len(ways) for ways in options])
    masses = (of == np.arange(len(options))[:, None]).astype(float)
    found = linprog(-wrong, price[None], [delta], masses, mass, bounds=(0, None))
    return 1 + found.fun / mass.sum()


@pytest.mark.parametrize("order", [1, 2])
def test_classes_under_changes_of_labels_are_of_the_rows_that_had_the_label(order):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((24, 2))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(24) > 0, "yes", "no")
    model = DROClassifier(cost="euclidean", order=order, delta=0.05, label_cost=0.4).fit(X, y)
    found = audit(model, X, y)
    assert found.relabelled.any()
    assert not found.relabelled.all()
    for label in ("yes", "no"):
        rows = y == label
        ways = [[(0.0, float(t == 0)), (t**order, 1.0), (0.4, 1.0)] for t in found.distance[rows]]
        for delta in (0.02, 0.1):
            expected = least_accuracy(ways, found.weights[rows], delta)
            assert_allclose(found.accuracy(delta, class_=label), expected, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kappa", [0.05, 0.5, 5.0])
def test_targets_that_move_at_a_price_widen_what_the_band_must_stand(order, kappa):
    """A row leaves the band by t and s with w t + s = margin, at t^p + kappa s^p."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((25, 2))
    y = X @ [1.0, -0.5] + 0.3 * rng.standard_normal(25)
    settings = {"loss": "absolute", "cost": "euclidean", "order": order, "delta": 0.02}
    model = DRORegressor(**settings, target_cost=kappa).fit(X, y)
    found = audit(model, X, y, tau=1.0)
    w = float(np.linalg.norm(model.coef_))
    s = np.linspace(0, 1, 4001)
    for margin, price in zip(w * found.distance, found.price, strict=True):
        ways = (margin * (1 - s) / w) ** order + kappa * (margin * s) ** order
        assert_allclose(price, ways.min(), rtol=1e-4)
        assert price <= ways.min() + 1e-12
    assert_allclose(found.risk(model.delta_), model.robust_risk_, rtol=1e-6)
    assert audit(model, X, y, tau=1.0, order=3 - order).target_cost == np.inf


def test_the_worst_loss_of_an_audit_knows_the_price_of_labels():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(30) > 0, 1, -1)
    model = DROClassifier(cost="euclidean", delta=0.05, label_cost=0.4).fit(X, y)
    assert_allclose(audit(model, X, y).risk(0.05), model.robust_risk_, rtol=1e-6)


def test_class_weights_are_named_and_sample_weights_count():
    X, y, _, _ = binary(n=40)
    weight = np.where(y == "yes", 3.0, 1.0)
    model = LogisticRegression(class_weight="balanced").fit(X, y)
    found = audit(model, X, y, sample_weight=weight)
    assert any("class_weight='balanced'" in note for note in found.notes)
    right = model.predict(X) == y
    assert found.accuracy(0.0) == pytest.approx(np.average(right, weights=weight))


def test_groups_that_are_not_shown_are_counted():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    model = DROClassifier(cost="euclidean", delta=0.1).fit(X, y)
    assert "... and 6 more" in str(audit(model, X, y, groups=np.arange(60) % 14))


def test_the_table_has_the_line_of_the_fitted_delta():
    X, y, _, _ = binary(n=60)
    for delta in (0.0123, 0.3):
        model = DROClassifier(cost="euclidean", delta=delta).fit(X, y)
        found = audit(model, X, y)
        [line] = [line for line in str(found).splitlines() if line.startswith("fitted ")]
        assert line.split()[1] == f"{delta:g}"
        assert f"{found.accuracy(delta):.1%}" in line
        assert f"{found.risk(delta):.4g}" in line
    assert "fitted " not in str(audit(LogisticRegression().fit(X, y), X, y))


def simulated(found, delta, draws, rng):
    """Return accuracies after shifts of all rows in a random direction, one cost at a time."""
    accuracies = []
    for _ in range(draws):
        move = rng.standard_normal(len(found.names)) * found.scale
        move *= delta ** (1 / found.order) / found.cost.norm(move)
        scores = found.model.scores(found.X + move)
        if found.tau is not None:
            right = np.abs(found.target - scores[:, 0]) < found.tau
        else:
            right = scores.argmax(axis=1) == found.target
        accuracies.append(found.weights @ right)
    return np.array(accuracies)


@pytest.mark.parametrize("kind", ["binary", "classes", "band"])
@pytest.mark.parametrize("order", [1, 2])
def test_chance_drift_has_the_cost_of_the_adversary(kind, order):
    X, y, _, model = binary(n=80)
    if kind != "binary":
        X, y, model = blobs(80)
    if kind == "band":
        y = X @ [1.0, 0.0, -1.0] + y
        model = Ridge().fit(X, y)
    tau = 1.0 if kind == "band" else None
    settings = {"order": order, "cost": Mahalanobis(MATRIX), "tau": tau, "random_state": 3}
    found = audit(model, X, y, **settings)
    delta = found.breaking_point("constant")
    draws = simulated(found, delta, 1000, np.random.default_rng(0))
    error = draws.std() / np.sqrt(100)
    assert abs(found.chance_accuracy(delta) - draws.mean()) < 4 * error
    low = found.chance_accuracy(delta, low=True)
    assert abs(low - np.quantile(draws, 0.05)) < 0.05
    # no chance is worse than the adversary
    grid = np.linspace(0, delta, 5)
    assert (found.chance_accuracy(grid) >= found.accuracy(grid) - 1e-12).all()
    assert found.chance_accuracy(0.0) == pytest.approx(found.accuracy(0.0))
    assert audit(model, X, y, **settings).chance_accuracy(delta) == found.chance_accuracy(delta)


def test_print_and_document_have_the_adversary_beside_chance():
    X, y, _, model = binary(n=60)
    found = audit(model, X, y)
    delta = found.breaking_point("constant")
    lines = dict(line.split(": ", 1) for line in str(found).splitlines() if ": " in line)
    assert f"delta = {delta:.4g}" in lines["as bad as that at"]
    assert "by an adversary that aims at the boundary" in lines["as bad as that at"]
    assert f"{found.chance_accuracy(delta):.1%} right" in lines["by chance there"]
    told = found.to_dict()
    assert told["chance_at_breaking_point"]["mean"] == found.chance_accuracy(delta)
    assert_allclose(told["curve"]["chance_accuracy"], found.chance_accuracy(found.deltas))
    immovable = audit(DROClassifier(cost="euclidean", delta=0.0).fit(X, y), X, y)
    assert "by chance there" in str(immovable)


def test_advice_is_the_same_in_print_and_document():
    X, y, _, _ = binary(n=60)
    for model in (
        LogisticRegression(C=1e4),
        DROClassifier(cost="euclidean", delta=0.1),
        DROClassifier(cost="euclidean", delta=0.002),
    ):
        found = audit(model.fit(X, y), X, y)
        assert found.to_dict()["advice"] == found.advice
        assert all(f"* {sentence}" in str(found) for sentence in found.advice)
        assert "larger delta" not in " ".join(found.advice)
        # a loss on these rows says nothing of a fit to them
        assert not any("it again" in sentence for sentence in found.advice)


def categories(order=1, classes=2):
    """Return a fitted pipeline over numbers and a column of categories, and its rows."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"age": rng.normal(50, 10, 200), "city": rng.choice(["A", "B", "C"], 200)})
    score = (table["age"] - 50) / 10 + 2.0 * (table["city"] == "B")
    y = np.digitize(score + rng.normal(size=200), [0.5, 2.0][: classes - 1])
    columns = make_column_transformer(
        (StandardScaler(), ["age"]),
        (OneHotEncoder(sparse_output=False), ["city"]),
        verbose_feature_names_out=False,
    )
    model = DROClassifier(cost="euclidean", order=order, delta=0.02)
    return make_pipeline(columns, model).fit(table, y), table, y


@pytest.mark.parametrize("order", [1, 2])
def test_a_category_is_one_column_whose_unit_is_a_switch(order):
    model, table, y = categories(order)
    found = audit(model, table, y)
    assert found.columns.names == ["age", "city"]
    assert found.columns.switch[0] == ""
    # B parts the scores from the others: the switch is between it and another
    assert "B" in found.columns.switch[1].split(" -> ")
    assert found.columns.share.sum() == pytest.approx(1.0)
    # a share q of rows that switch at distance sqrt(2) has mean cost q sqrt(2)^order
    delta = 0.03
    assert found.deviations(delta, "city") == pytest.approx(delta / np.sqrt(2) ** order)
    words = found.in_words(delta, "city")
    share = f"{delta / 2 ** (order / 2):.2%}"
    assert words == f"a switch of city, {found.columns.switch[1]}, in {share} of rows"
    assert f"city: {found.columns.switch[1]}" in str(found)
    assert "city=" not in str(found)
    # moves of the switch alone change the score by the difference of two coefficients
    start, end = found.columns.switch[1].split(" -> ")
    beta = found.model.coef[1]
    names = [name.rpartition("=")[2] for name in found.names]
    gain = abs(beta[names.index(end)] - beta[names.index(start)]) / np.sqrt(2)
    both = found.breaking_point("constant")
    expected = both * (np.linalg.norm(beta) / gain) ** order
    assert found.columns.breaking_point[1] == pytest.approx(expected)


def test_a_counterfactual_names_the_categories():
    model, table, y = categories()
    found = audit(model, table, y)
    row = int(np.flatnonzero((found.distance > 0) & (table["city"] == "A"))[0])
    changes = {change.column: change for change in found.changes(row)}
    assert set(changes) <= {"age", "city"}
    city = changes["city"]
    assert city.before == "A"
    assert city.after in ("B", "C")
    assert city.amount > 0


def test_several_classes_have_switches_too():
    model, table, y = categories(classes=3)
    found = audit(model, table, y)
    assert found.columns.names == ["age", "city"]
    assert " -> " in found.columns.switch[1]
    assert np.isfinite(found.columns.breaking_point).all()
    keys = {"column", "switch", "share", "breaking_point", "amount"}
    assert keys == set(found.columns.records()[0])


def test_a_row_of_score_zero_has_the_class_that_predict_returns():
    X = np.array([[-2.0], [-1.0], [0.0], [0.0], [1.0], [2.0]])
    y = np.array(["no", "no", "no", "yes", "yes", "yes"])
    flat = DROClassifier(cost="euclidean", delta=0.1).fit(X, y)
    flat.coef_, flat.intercept_ = 0 * flat.coef_, 0 * flat.intercept_
    three = LogisticRegression().fit(X, [0, 0, 1, 1, 2, 2])
    three.coef_, three.intercept_ = np.array([[1.0], [1.0], [0.0]]), np.zeros(3)
    slope = LogisticRegression().fit(X, y)
    slope.intercept_ = 0 * slope.intercept_
    for model, target in ((flat, y), (slope, y), (three, np.array([0, 0, 1, 1, 2, 2]))):
        found = audit(model, X, target)
        assert found.accuracy(0.0) == pytest.approx(model.score(X, target))
        assert found.chance_accuracy(0.0) == pytest.approx(model.score(X, target))
    assert audit(flat, X, y).accuracy(10.0) == pytest.approx(0.5)
    # a row on the boundary is wrong after any move
    assert audit(slope, X, y).accuracy(1e-9) == pytest.approx(4 / 6)


@pytest.mark.parametrize("order", [1, 2])
def test_a_switch_in_more_rows_than_its_category_has_breaks_no_model(order):
    """The city says little: only moves of more rows than there are make the model a constant's."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(size=300), "city": rng.choice(["A", "B", "C"], 300)})
    y = (table["age"] + 0.3 * (table["city"] == "B") > 0).astype(int)
    front = make_column_transformer(
        (StandardScaler(), ["age"]),
        (OneHotEncoder(sparse_output=False), ["city"]),
        verbose_feature_names_out=False,
    )
    model = make_pipeline(front, LogisticRegression()).fit(table, y)
    found = audit(model, table, y, order=order)
    [age, city] = found.columns.records()
    assert np.isfinite(age["breaking_point"])
    assert (city["breaking_point"], city["amount"]) == (np.inf, np.inf)
    assert found.in_words(9.0, "city").startswith("more than a switch of city")
    [line] = [line for line in str(found.columns).splitlines() if line.startswith("city")]
    assert line.split()[-2:] == ["cannot", "-"]


def test_deltas_are_in_deviations_of_the_training_rows(tmp_path):
    pytest.importorskip("skops")
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(60, 2)) * [1.0, 4.0], rng.normal(size=(40, 2)) * [3.0, 1.0]
    y, z = (X[:, 0] > 0).astype(int), (Z[:, 0] > 0).astype(int)
    model = make_pipeline(StandardScaler(), DROClassifier(cost="euclidean", delta=0.1)).fit(X, y)
    fitted = audit(model, X, y)
    save(model, tmp_path / "model.skops")
    for own in (model, load(tmp_path / "model.skops")):
        found = audit(own, Z, z)
        assert_allclose(found.scale, fitted.scale)
        assert found.in_words(0.1) == fitted.in_words(0.1)
        assert found.in_words(0.1) in str(found)
        line = "deviations: standard deviations of the training rows, after StandardScaler"
        assert line in str(found).splitlines()
    mix = MixClassifier([DROClassifier(cost="euclidean", delta=0.1)]).fit(X, y)
    save(mix, tmp_path / "mix.skops")
    assert_allclose(audit(load(tmp_path / "mix.skops"), Z, z).scale, X.std(axis=0))
    frozen = make_pipeline(FrozenEstimator(StandardScaler().fit(X)), LogisticRegression())
    assert (
        audit(frozen.fit(X, y), Z, z).model.deviations_of == "of these rows, after StandardScaler"
    )
    assert "standard deviations of these rows\n" in str(audit(LogisticRegression().fit(X, y), Z, z))
    raw = audit(model, Z, z, space="raw")
    assert_allclose(raw.scale, Z.std(axis=0))
    assert raw.model.deviations_of == "of these rows"


def test_a_class_that_no_move_breaks_cannot_be_half_wrong():
    X = np.random.default_rng(0).normal(size=(160, D))
    y = np.array(["no", "yes"]).repeat([66, 94])
    model = LogisticRegression().fit(X, y)
    model.coef_, model.intercept_ = 0 * model.coef_, np.ones(1)
    found = audit(model, X, y)
    lines = {line[:9]: line for line in str(found).splitlines()}
    assert lines["class yes"].endswith("cannot")
    # 94 of 160 rows are 58.75%, and half of the last digit is rounded up
    assert lines["all rows "].split()[2] == "58.8%"
    assert "a constant model: 58.8%" in str(found)
