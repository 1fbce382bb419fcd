"""Defects of the estimators that were found in use, each by a test that failed before its fix."""

import ast
import inspect
import logging
import pickle
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from otdro import DROClassifier, DRORegressor, estimators, metrics, robust_risk
from otdro.costs import FeatureMap, Norm
from otdro.losses import Logistic, Squared
from otdro.metrics import Diagonal, GeometricMean, Learned
from otdro.problem import Sample, Solution
from otdro.radius import path
from otdro.radius.folds import splits
from otdro.solvers import Exact, Smoothed

RNG = np.random.default_rng(0)
N = 48
X = RNG.normal(size=(N, 3))
Z = X @ [1.0, -1.0, 0.5] + RNG.normal(size=N)
Y = np.where(Z > 0, "b", "a")
GROUPS = np.arange(N) % 12

few = pytest.mark.filterwarnings(
    "ignore:.*fewer than cv=5 folds:UserWarning", "ignore:.*splits .*left out:UserWarning"
)


def finite(model):
    for name in ("coef_", "intercept_", "robust_risk_", "gap_", "delta_"):
        assert np.isfinite(getattr(model, name)).all()
    return model


# --- rows from which nothing can be learned


def nonzero(k):
    y = np.zeros(N)
    y[:k] = 1 + np.arange(k)
    return y


@pytest.mark.parametrize("delta", ["cv", 0.1])
@pytest.mark.parametrize("y", [np.ones(N), np.zeros(N)], ids=["ones", "zeros"])
def test_constant_targets(y, delta):
    model = finite(DRORegressor(delta=delta).fit(X, y))
    assert_allclose(model.predict(X), y, atol=1e-12)
    # the rows alone teach the spectral part of the blend; what needs targets has nothing
    taught = Learned([Diagonal(), GeometricMean()])
    model = finite(DRORegressor(cost=taught, delta=delta).fit(X, y))
    assert_allclose(model.predict(X), y, atol=1e-12)
    assert model.cost_.p == Norm(2).p
    assert "nothing to learn" in model.message_
    assert model.message_.endswith("so the cost is Euclidean.")


@pytest.mark.parametrize("delta", ["cv", "theory", 0.1])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.constant_model("almost all targets are the same")
def test_few_targets_that_are_not_zero(k, delta):
    model = finite(DRORegressor(delta=delta).fit(X, nonzero(k)))
    # all rows can teach a matrix, though some folds cannot
    assert "nothing to learn" not in model.message_
    assert len(model.path_.candidates) == 5


@few
@pytest.mark.parametrize("n", [2, 3, 4])
def test_two_to_four_rows(n):
    finite(DRORegressor().fit(X[:n], Z[:n]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = finite(DROClassifier().fit(X[:n], np.arange(n) % 2))
    assert ("no folds" in model.message_) == (n == 2)


@few
def test_no_folds_are_told():
    with pytest.warns(UserWarning, match=r"The 2 rows allow no folds.*number as delta"):
        model = DROClassifier().fit(X[:2], ["a", "b"])
    grid = model.path_.deltas
    assert model.delta_ == grid[len(grid) // 2]
    assert model.path_.score_mean is None
    with pytest.warns(UserWarning, match="The 3 rows allow no folds"):
        model = DROClassifier(multi_class="ovr").fit(X[:3], ["a", "b", "c"])
    assert all("no folds" in text for text in model.message_)
    assert len(model.message_) == 3


@pytest.mark.parametrize("cost", ["learned", GeometricMean(), Learned([Diagonal()])], ids=str)
def test_rows_that_are_all_alike(cost):
    for model, y in ((DROClassifier(cost=cost), Y), (DRORegressor(cost=cost), Z)):
        finite(model.fit(np.ones((N, 2)), y))
        assert not np.any(model.coef_)
        assert "nothing to learn" in model.message_


def test_a_learner_without_pairs_inside_a_fold():
    model = finite(DRORegressor(cost=GeometricMean()).fit(X, nonzero(1)))
    assert_allclose(model.cost_.matrix, GeometricMean(task="regression").fit(X, nonzero(1)).metric_)
    constant = finite(
        DRORegressor(cost=FeatureMap(metric=Diagonal()), delta=0.1).fit(X, np.ones(N))
    )
    assert "the identity" in constant.message_
    assert constant.cost_.metric is None


# --- targets that have no square


@pytest.mark.parametrize("size", [1e76, 1e100, 1e150, 1e200, 1e-100, 1e-200])
def test_targets_without_a_square_are_refused(size):
    refused = pytest.raises(ValueError, match=r"largest target is .* (divide|multiply) y by")
    with refused:
        DRORegressor(cost="euclidean", delta=0.1).fit(X, size * Z)
    with refused:
        robust_risk(X, size * Z, np.ones(3), 0.0, "squared", ball())
    with refused:
        path(X, size * Z, "squared")


def ball():
    return DRORegressor(cost="euclidean", delta=0.1).fit(X, Z).ball_


@pytest.mark.parametrize(
    "cost", ["euclidean", pytest.param("linf", marks=pytest.mark.slow), "learned"]
)
@pytest.mark.parametrize("size", [1e-74, 1e74])
def test_targets_near_the_limits_scale_the_model(cost, size):
    one = DRORegressor(cost=cost).fit(X, Z)
    other = finite(DRORegressor(cost=cost).fit(X, size * Z))
    assert_allclose(other.delta_, one.delta_, rtol=1e-6)
    assert_allclose(other.coef_ / size, one.coef_, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("loss", ["absolute", "quantile"])
@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_losses_without_squares_take_any_targets(loss, size):
    finite(DRORegressor(loss, cost="euclidean", delta=0.1).fit(X, size * Z))


# --- the global generator


def disturb(state):
    """Set the generator that fits must not look at."""
    np.random.seed(state)  # noqa: NPY002


LEARNERS = [n for n in metrics.__all__ if issubclass(getattr(metrics, n), metrics.MetricLearner)]


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("n", [300, 400])
def test_fits_do_not_depend_on_the_global_generator(n, seed):
    rows = np.random.default_rng(1).normal(size=(n, 3))
    z = rows @ [1.0, -1.0, 0.5] + np.sin(5 * rows[:, 0])
    for kind, y in ((DROClassifier, z > 0), (DRORegressor, z)):
        found = []
        for state in (1, 2):
            disturb(state)
            found.append(kind(random_state=seed, cv=2, deltas=[0.1, 0.01]).fit(rows, y))
        assert_array_equal(found[0].coef_, found[1].coef_)
        assert_array_equal(found[0].path_.score_mean, found[1].path_.score_mean)
        assert found[0].delta_ == found[1].delta_


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_do_not_depend_on_the_global_generator(name, seed):
    rows = np.random.default_rng(1).normal(size=(400, 3))
    z = rows @ [1.0, -1.0, 0.5] + np.sin(5 * rows[:, 0])
    for y in (z, z > 0):
        found = []
        for state in (1, 2):
            disturb(state)
            found.append(getattr(metrics, name)(random_state=seed, kind="opposite").fit(rows, y))
        assert_array_equal(found[0].metric_, found[1].metric_)


def test_a_foreign_learner_has_a_fixed_seed_too():
    learner = NeighborhoodComponentsAnalysis(init="random", max_iter=3)
    found = []
    for state in (1, 2):
        disturb(state)
        found.append(DROClassifier(cost=learner, delta=0.1).fit(X, Y).coef_)
    assert_array_equal(*found)
    assert learner.random_state is None


# --- groups


def sample():
    y = np.where(Y == "b", 1.0, -1.0)
    return Sample(X, [y], np.full(N, 1 / N), Logistic(), True)


@pytest.mark.parametrize(("kind", "y"), [(DROClassifier, Y), (DRORegressor, Z)])
def test_a_number_of_folds_keeps_groups_together(kind, y):
    folds = StratifiedGroupKFold if kind is DROClassifier else GroupKFold
    settings = {"cost": "euclidean", "rule": "min"}
    model = kind(cv=3, **settings).fit(X, y, groups=GROUPS)
    splitter = folds(3, shuffle=True, random_state=0)
    same = kind(cv=splitter, **settings).fit(X, y, groups=GROUPS)
    assert_array_equal(model.path_.score_mean, same.path_.score_mean)
    without = kind(cv=3, **settings).fit(X, y)
    assert np.abs(model.path_.score_mean - without.path_.score_mean).max() > 1e-6
    by_default = kind(cv=None, **settings).fit(X, y, groups=GROUPS)
    five = kind(cv=5, **settings).fit(X, y, groups=GROUPS)
    assert_array_equal(by_default.path_.score_mean, five.path_.score_mean)


def test_every_fold_leaves_whole_groups_out():
    pairs = splits(sample(), 4, GROUPS, 0, repeats=3)
    assert len(pairs) == 12
    for train, test in pairs:
        assert not set(GROUPS[train]) & set(GROUPS[test])
        assert len(set(Y[train])) == 2
    shuffled = splits(sample(), 4, GROUPS, 1)
    assert any(set(a[1]) != set(b[1]) for a, b in zip(pairs, shuffled, strict=False))


def test_fewer_groups_than_folds():
    three = np.arange(N) % 3
    with pytest.warns(UserWarning, match="3 groups, fewer than cv=5 folds: using 3"):
        pairs = splits(sample(), 5, three, 0, repeats=3)
    # each group is a fold, once
    assert len(pairs) == 3
    assert sorted(set(three[test]).pop() for _, test in pairs) == [0, 1, 2]


def test_a_group_that_holds_a_class_is_left_out_aloud():
    y = np.where(np.arange(N) < 12, "b", "a")
    groups = np.arange(N) // 12
    with (
        pytest.warns(UserWarning, match="4 groups, fewer than cv=5"),
        pytest.warns(UserWarning, match="1 of 4 splits .*lack a class"),
    ):
        model = DROClassifier(cost="euclidean").fit(X, y, groups=groups)
    assert np.isfinite(model.path_.score_mean).all()


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        (np.zeros(N), r"need two groups, got one"),
        (np.zeros(N - 1), rf"groups has {N - 1} entries but X has {N} rows"),
        (np.where(np.arange(N) == 7, np.nan, GROUPS), r"NaN or None\) in row 7"),
        (np.array([None if i == 3 else "g" for i in range(N)], dtype=object), "in row 3"),
    ],
    ids=["one", "length", "nan", "none"],
)
def test_groups_that_cannot_be_used(groups, match):
    for model, y in ((DROClassifier(), Y), (DRORegressor(), Z)):
        with pytest.raises(ValueError, match=match):
            model.fit(X, y, groups=groups)


def test_groups_as_texts():
    names = np.array([f"patient {g}" for g in GROUPS])
    one = DROClassifier(cost="euclidean").fit(X, Y, groups=names)
    two = DROClassifier(cost="euclidean").fit(X, Y, groups=list(names))
    assert_array_equal(one.coef_, two.coef_)


# --- a fit that fails, and one that comes after another


def test_a_path_does_not_outlive_its_fit():
    model = DROClassifier(cost="euclidean").fit(X, Y)
    assert hasattr(model, "path_")
    model.set_params(delta=0.1).fit(X, Y)
    assert not hasattr(model, "path_")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_an_interrupted_fit_leaves_the_earlier_one(monkeypatch, kind, error):
    import pandas as pd

    y = Y if kind is DROClassifier else Z
    model = kind(cost="euclidean").fit(pd.DataFrame(X, columns=list("abc")), y)
    before = dict(vars(model))

    def interrupted(self, problems, deltas, starts=None, *, tols=None):
        raise error

    monkeypatch.setattr(Exact, "solve", interrupted)
    model.set_params(delta=0.3)
    with pytest.raises(error):
        model.fit(X[:, :2], np.where(np.arange(N) % 2, "x", "y") if kind is DROClassifier else Z)
    after = dict(vars(model))
    assert after.pop("delta") == 0.3
    before.pop("delta")
    assert list(after) == list(before) or set(after) == set(before)
    assert all(after[name] is before[name] for name in before)
    fresh = kind(cost="euclidean", delta=0.1)
    with pytest.raises(error):
        fresh.fit(X, y)
    assert not [name for name in vars(fresh) if name.endswith("_")]


# --- messages


class Stopped(Exact):
    """Stops at once, and says so as solvers do."""

    def solve(self, problems, deltas, starts=None, *, tols=None):
        clause = "stopped after 2 iterations with gap 0.477 above the target 9.67e-07"
        d = problems[0].X.shape[1]
        stopped = Solution(np.zeros(d), 0.0, 0.0, 1.0, 0.477, 2, False, clause)
        return [[stopped] for _ in problems]


def test_a_warning_is_one_sentence_of_what_happened_and_one_of_what_to_do():
    model = DROClassifier(cost="euclidean", delta=0.1, solver=Stopped(tol=1e-7, max_iter=2))
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, Y)
    assert [str(w.message) for w in caught] == [
        "the fit did not reach the gap asked for: stopped after 2 iterations with gap 0.477 above "
        "the target 9.67e-07. Raise max_iter (now 2), raise tol (now 1e-07), or scale the columns "
        "of X."
    ]
    assert caught[0].filename == __file__


def test_a_warning_names_the_class():
    model = DROClassifier(cost="euclidean", delta=0.1, solver=Stopped(), multi_class="ovr")
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, np.arange(N) % 3)
    assert len(caught) == 3
    assert "the fit of class 1 against the rest did not" in str(caught[1].message)


# --- worst cases


def test_a_restored_model_says_what_it_lacks():
    for model, y in ((DROClassifier(cost="l1", delta=0.1), Y), (DRORegressor(delta=0.1), Z)):
        restored = pickle.loads(pickle.dumps(model.fit(X, y)))
        with pytest.raises(ValueError, match=r"restored from disk.*rows=\(X, y\)"):
            restored.worst_case()
        with pytest.raises(ValueError, match=r"confidence_region\(\).*restored.*fit again"):
            restored.confidence_region()


MODELS = {
    "norm": (DROClassifier("hinge", cost="l1", delta=0.1), Y),
    "order 2": (DROClassifier(cost="euclidean", order=2, delta=0.05), Y),
    "regression": (DRORegressor("huber", cost="euclidean", delta=0.1), Z),
    "feature map": (DROClassifier(cost=FeatureMap(), delta=0.01), Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_worst_case_around_given_rows(name):
    model, y = MODELS[name]
    model = clone(model).fit(X, y)
    own = model.worst_case()
    restored = pickle.loads(pickle.dumps(model))
    same = restored.worst_case(rows=(X, y))
    assert_allclose(same.risk, own.risk, rtol=1e-3)
    assert_array_equal(np.unique(same.targets), np.unique(own.targets))
    other = restored.worst_case(rows=(X[:10], y[:10]))
    assert other.budget <= model.delta_ * (1 + 1e-9)
    assert other.origin.max() == 9
    signs = np.where(y == "b", 1.0, -1.0) if y is Y else y
    intercept = float(np.ravel(model.intercept_)[0])
    risk = robust_risk(X[:10], signs[:10], model.coef_, intercept, model.loss, model.ball_)
    assert_allclose(other.risk, risk, rtol=1e-3)


@pytest.mark.constant_model("labels of one class teach nothing")
def test_worst_case_of_one_class_around_given_rows():
    y = np.array(["p", "q", "r"])[np.arange(N) % 3]
    model = DROClassifier(cost="euclidean", delta=0.1, multi_class="ovr").fit(X, y)
    found = model.worst_case("q", rows=(sparse.csr_array(X), list(y)))
    assert_allclose(found.risk, model.worst_case("q").risk)


def test_worst_case_over_a_support():
    model = DROClassifier(cost="euclidean", delta=0.1).fit(X, Y, support=X + 0.3)
    found = model.worst_case(rows=(X[:9], Y[:9]))
    allowed = {tuple(row) for row in np.vstack([X[:9], X + 0.3])}
    assert {tuple(row) for row in found.points} <= allowed
    with pytest.raises(ValueError, match=r"support.*restored"):
        pickle.loads(pickle.dumps(model)).worst_case(rows=(X[:9], Y[:9]))


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ((X[:, :2], Y), "2 features.*expecting 3"),
        ((X, np.where(Y == "a", "a", "c")), r"does not know, \['c'\].*\['a', 'b'\]"),
        ((X, Y[:-1]), rf"{N} rows in X but {N - 1} entries"),
        (X, "pair"),
    ],
    ids=["columns", "labels", "lengths", "no pair"],
)
def test_rows_that_cannot_be_asked_about(rows, match):
    with pytest.raises(ValueError, match=match):
        DROClassifier(cost="euclidean", delta=0.1).fit(X, Y).worst_case(rows=rows)


def test_targets_of_rows_are_numbers():
    model = DRORegressor(cost="euclidean", delta=0.1).fit(X, Z)
    with pytest.raises(ValueError, match="NaN"):
        model.worst_case(rows=(X, np.full(N, np.nan)))


def test_moves_within_reach():
    """The best of moves of at most R, and what it falls short of the worst case by."""
    model = DROClassifier(cost="euclidean", order=1, delta=0.1).fit(X, Y)
    short = []
    for reach in (0.5, 2.0, 50.0):
        found = model.worst_case(reach=reach)
        moved = np.linalg.norm(found.points - X[found.origin], axis=1)
        assert moved.max() <= reach * (1 + 1e-9)
        assert found.budget <= 0.1 * (1 + 1e-9)
        assert found.risk >= model.robust_risk_ - found.shortfall - 1e-9
        short.append(found.shortfall)
    assert short[0] > short[1] > short[2] >= 0
    with pytest.raises(ValueError, match="reach=-1"):
        model.worst_case(reach=-1.0)
    with pytest.raises(ValueError, match="order 1"):
        DRORegressor(cost="euclidean", delta=0.1).fit(X, Z).worst_case(reach=1.0)


# --- foreign learners


@pytest.mark.parametrize("n_components", [None, 2])
def test_a_feature_map_takes_a_foreign_learner(n_components):
    learner = NeighborhoodComponentsAnalysis(n_components=n_components, max_iter=3)
    model = DROClassifier(cost=FeatureMap(metric=learner, linearised=True), delta=0.01).fit(X, Y)
    assert np.isfinite(model.coef_).all()
    matrix = model.cost_.metric
    assert matrix.shape == (9, 9)
    assert_allclose(np.trace(matrix), 9)
    assert np.linalg.eigvalsh(matrix)[0] > 0


def test_what_is_no_metric_learner_is_refused():
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(TypeError, match="not a metric learner"):
        DROClassifier(cost=FeatureMap(metric=LogisticRegression()), delta=0.01).fit(X, Y)


# --- too large to learn


def test_many_columns_are_told():
    wide = np.tile(X, (1, 667))
    cost = Learned([GeometricMean()])
    said = "X has 2001 columns, more than the 2000 up to which a full matrix is learned"
    with pytest.warns(UserWarning, match=f"{said}, so the cost is Euclidean"):
        model = DROClassifier(cost=cost, delta=0.1).fit(wide, Y)
    assert re.search(rf"{said}, so the cost is Euclidean\.$", model.message_)


# --- weights in scoring


def test_a_scorer_gets_the_sample_weights():
    weights = np.random.default_rng(3).uniform(0.1, 3, size=N)
    pairs = [(np.arange(0, 30), np.arange(30, N)), (np.arange(18, N), np.arange(18))]
    settings = {"cost": "euclidean", "cv": pairs, "deltas": [0.3, 0.01]}
    model = DROClassifier(scoring="accuracy", **settings).fit(X, Y, sample_weight=weights)
    by_hand = [
        [
            accuracy_score(Y[test], one.predict(X[test]), sample_weight=weights[test])
            for delta in (0.3, 0.01)
            for one in [
                DROClassifier(cost="euclidean", delta=delta).fit(X[train], Y[train], weights[train])
            ]
        ]
        for train, test in pairs
    ]
    assert_allclose(model.path_.score_mean, np.mean(by_hand, axis=0))
    made = DROClassifier(scoring=make_scorer(accuracy_score), **settings)
    assert_array_equal(made.fit(X, Y, weights).path_.score_mean, model.path_.score_mean)


def test_class_weights_are_for_training_only():
    seen = []

    def scorer(model, X, y, sample_weight=None):
        seen.append(sample_weight)
        return model.score(X, y, sample_weight)

    settings = {"cost": "euclidean", "scoring": scorer, "deltas": [0.1, 0.01], "cv": 2}
    DROClassifier(class_weight="balanced", **settings).fit(X, Y)
    assert seen
    assert all(weight is None for weight in seen)


def test_a_scorer_without_weights_is_told():
    def plain(model, X, y):
        return model.score(X, y)

    model = DROClassifier(cost="euclidean", scoring=plain, deltas=[0.1, 0.01], cv=2)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        model.fit(X, Y, sample_weight=np.ones(N))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y)


# --- progress


@pytest.mark.parametrize("solver", ["auto", "exact"])
@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_verbose_shows_folds_and_solver_on_standard_error(capsys, solver, n_jobs):
    model = DRORegressor(verbose=True, solver=solver, cv=3, rule="min", n_jobs=n_jobs).fit(X, Z)
    shown = capsys.readouterr()
    assert shown.out == ""
    for name in ("Euclidean", "Spectral", "GeometricMean"):
        assert re.search(rf"fold 3 of 3: cost {name}.*, best score -?[\d.]+, [\d.]+ s", shown.err)
    assert f"fit: delta {model.delta_:.4g}, {model.n_iter_} iterations" in shown.err
    DRORegressor(solver=solver, cv=3, rule="min").fit(X, Z)
    assert capsys.readouterr().err == ""


def test_progress_goes_to_the_users_logging_where_there_is_some(caplog):
    with caplog.at_level(logging.INFO, logger="otdro"):
        model = DROClassifier(verbose=True, cv=2, cost="euclidean", rule="min", multi_class="ovr")
        model.fit(X, np.arange(N) % 3)
    assert any("fold 2 of 2" in line for line in caplog.messages)
    assert any(line.startswith("fit of class 2 against the rest:") for line in caplog.messages)


# --- tol and max_iter


@pytest.mark.parametrize("settings", [{"tol": 1e-3}, {"max_iter": 7}])
def test_settings_that_a_solver_object_would_not_see_are_refused(settings):
    [(name, value)] = settings.items()
    model = DROClassifier(cost="euclidean", delta=0.1, solver=Exact(), **settings)
    with pytest.raises(ValueError, match=rf"{name}={value!r} would not.*solver=Exact\({name}="):
        model.fit(X, Y)


def test_settings_reach_the_smoothed_solver(monkeypatch):
    seen = []

    def solve(self, problems, deltas, starts=None, *, tols=None):
        seen.append((self.tol, self.max_iter))
        return Exact().solve(problems, deltas)

    monkeypatch.setattr(Smoothed, "solve", solve)
    for settings in ({}, {"tol": 1e-2}, {"max_iter": 55}):
        DROClassifier(cost="euclidean", delta=0.1, solver="smoothed", **settings).fit(X, Y)
    own = Smoothed()
    assert seen == [(own.tol, own.max_iter), (1e-2, own.max_iter), (own.tol, 55)]


# --- documentation


@pytest.mark.parametrize("kind", [DROClassifier, DRORegressor])
def test_every_parameter_and_attribute_is_documented(kind):
    text = inspect.getdoc(kind)
    for name, parameter in inspect.signature(kind).parameters.items():
        stated = re.search(rf"(?m)^{name} : .*default=(.*)$", text)
        value = np.inf if stated[1] == "inf" else ast.literal_eval(stated[1])
        assert value == parameter.default, name
    y = Y if kind is DROClassifier else Z
    model = kind().fit(X, y)
    for name in vars(model):
        if name.endswith("_"):
            assert re.search(rf"(?m)^{name} : ", text), name
    assert not re.search("<[a-z]+>", text)
    fit = inspect.getdoc(kind.fit)
    for name in inspect.signature(kind.fit).parameters:
        assert name == "self" or re.search(rf"(?m)^{name} : ", fit), name


def test_the_package_has_the_names_of_the_module():
    assert estimators.DROClassifier is DROClassifier
    assert estimators.DRORegressor is DRORegressor
    assert estimators.robust_risk is robust_risk


def test_a_loss_of_ones_own_may_give_probabilities():
    class Sharp(Logistic):
        def probability(self, z):
            return 1 / (1 + np.exp(-2 * z))

    model = DROClassifier(Sharp(), cost="euclidean", delta=0.1).fit(X, Y)
    z = model.decision_function(X)
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-2 * z)))
    assert Squared().probability(z) is None


def test_probabilities_far_from_every_class():
    model = DROClassifier(cost="euclidean", delta=1e-4, multi_class="ovr").fit(X, np.arange(N) % 3)
    model.intercept_ = model.intercept_ - 5e3
    p = model.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0)
    assert_array_equal(p.argmax(axis=1), model.decision_function(X).argmax(axis=1))


@pytest.mark.parametrize("value", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_array])
def test_a_constant_column_changes_no_plain_fit(value, labels, rows):
    # rounding of its centre was taken for a column that separates the classes
    y = np.digitize(Z, [0.0] if labels == 2 else [-0.5, 0.5])
    plain = DROClassifier(cost="euclidean", delta=0).fit(X, y)
    beside = DROClassifier(cost="euclidean", delta=0).fit(rows(np.c_[np.full(N, value), X]), y)
    assert_allclose(beside.robust_risk_, plain.robust_risk_, atol=1e-6)
    assert_allclose(beside.coef_[:, 1:], plain.coef_, atol=2e-3)
    assert_allclose(beside.coef_[:, 0], 0, atol=1e-9)


@pytest.mark.parametrize(("scale", "delta"), [(1e-2, 1e-4), (1e-3, 1e-6), (1e-4, 1e-5)])
def test_columns_that_only_a_row_far_out_moves(scale, delta):
    # once that row is settled they are constant, and nothing but the penalty draws them to 0
    rng = np.random.default_rng(1)
    rows = scale * np.c_[rng.standard_normal((100, 10)), np.zeros((100, 3))]
    y = rows[:, 0] + scale * rng.standard_normal(100) > 0
    rows[3] = 10.0 * rng.choice([-1, 1], 13)
    model = DROClassifier(cost="euclidean", delta=delta, order=1).fit(rows, y)
    assert model.n_iter_ < 30
    assert model.gap_ <= 1e-6


@pytest.mark.parametrize(("cost", "labels"), [("l1", 2), ("euclidean", 2), ("linf", 3)])
def test_labels_that_all_change(cost, labels):
    # the risk is far above that of the constant model, which was the measure of the first smoothing
    y = np.where(np.arange(N) == 5, 1, -1) if labels == 2 else np.minimum(np.arange(N), 2)
    loss = "hinge" if labels == 2 else "logistic"
    model = DROClassifier(loss, cost=cost, order=1, delta=0.01, label_cost=0.01).fit(X, y)
    # the coefficients 0 are best once every label may be changed
    assert_allclose(model.robust_risk_, 1.0 if labels == 2 else np.log(2), atol=1e-5)


@pytest.mark.parametrize(("delta", "price"), [(0, 0.01), (1e-3, 10.0), (0.05, 0.01)])
def test_prices_of_labels_on_nearly_separable_rows(delta, price):
    # rows of one branch of the inner supremum get two on the way; delta = 0 has no multiplier
    y = np.where(X[:, 0] > 0, 1, -1)
    weights = 10.0 ** RNG.uniform(-4, 4, N)
    model = DROClassifier(cost="euclidean", order=2, delta=delta, label_cost=price)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the classes are separable")
        model.fit(X, y, sample_weight=weights)
    worst = model.worst_case()
    assert worst.budget <= delta + 1e-12
    assert worst.risk >= model.robust_risk_ - worst.shortfall - 1e-9


def test_a_refusal_names_only_what_is_missing():
    with pytest.raises(ValueError, match=r"no exact method: order=2 with Logistic needs a Euclid"):
        DROClassifier(cost="linf", order=2, delta=0.1).fit(X, Y)


@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_array])
def test_entries_whose_squares_overflow_are_refused(rows):
    with pytest.raises(ValueError, match=r"X has entries up to .*e\+160, .*scale the columns"):
        DROClassifier(cost="euclidean", delta=0.1).fit(rows(1e160 * X), Y)


@pytest.mark.parametrize("cost", ["euclidean", "l1", "linf"])
@pytest.mark.parametrize("seed", range(3))
def test_sparse_rows_with_a_constant_column_are_solved(cost, seed):
    """The square of a constant column less that of its centre may round to below 0."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(22, 3))
    rows[:, 0] = 3.0
    y = rows @ rng.normal(size=3) + rng.normal(size=22)
    model = DRORegressor(loss="absolute", cost=cost, order=1, delta=5e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.fit(sparse.csr_array(rows), y)
        dense = clone(model).fit(rows, y)
    assert found.robust_risk_ == pytest.approx(dense.robust_risk_, abs=2e-6)
