"""Bad input is refused in a sentence, and nothing is fitted; awkward input works."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import NotFittedError

from otdro import Ball, DROClassifier, DRORegressor, discrepancy, losses, robust_risk
from otdro.costs import Mahalanobis, Norm
from otdro.losses import Huber, Quantile
from tables import LOSSES, make_loss

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3))
Z = X @ [1.0, -1.0, 0.5] + RNG.normal(size=20)
Y = np.where(Z > 0, 1, -1)
ONES = np.ones(20)


def spoiled(a, value):
    a = np.array(a, dtype=float)
    a.flat[4] = value
    return a


def classifier(**settings):
    return DROClassifier(**{"cost": "euclidean", "delta": 0.1} | settings)


def regressor(**settings):
    return DRORegressor(**{"cost": "euclidean", "delta": 0.1} | settings)


ASYMMETRIC, INDEFINITE = np.eye(3), np.diag([1.0, 2.0, -0.25])
ASYMMETRIC[0, 1] = 0.5
BAD = {
    "nan in X": (classifier(), (spoiled(X, np.nan), Y), "NaN"),
    "inf in X": (classifier(), (spoiled(X, np.inf), Y), "infinity"),
    "nan in sparse X": (classifier(), (sparse.csr_array(spoiled(X, np.nan)), Y), "NaN"),
    "nan in y": (regressor(), (X, spoiled(Z, np.nan)), "NaN"),
    "inf in y": (regressor(), (X, spoiled(Z, -np.inf)), "infinity"),
    "nan in weights": (regressor(), (X, Z, spoiled(ONES, np.nan)), "sample_weight.*NaN"),
    "inf in weights": (regressor(), (X, Z, spoiled(ONES, np.inf)), "sample_weight.*infinity"),
    "negative weight": (regressor(), (X, Z, spoiled(ONES, -1.0)), "sample_weight.*-1"),
    "zero weights": (regressor(), (X, Z, 0 * ONES), "[Ss]ample.weight"),
    "short weights": (regressor(), (X, Z, ONES[:5]), "sample_weight|inconsistent"),
    "one class": (classifier(), (X, ONES), "class"),
    "one class with weight": (classifier(), (X, Y, (Y > 0).astype(float)), r"class.*\[1\]"),
    "continuous labels": (classifier(), (X, Z), "continuous"),
    "lengths": (classifier(), (X, Y[:-1]), "inconsistent"),
    "one-dimensional X": (classifier(), (X[:, 0], Y), "2D"),
    "one row": (classifier(), (X[:1], Y[:1]), "1 sample|minimum of 2"),
    "two columns of targets": (regressor(), (X, np.stack([Z, Z], 1)), "1d|y should be"),
    "negative delta": (classifier(delta=-0.1), (X, Y), "delta.*-0.1"),
    "nan delta": (classifier(delta=np.nan), (X, Y), "delta.*nan"),
    "infinite delta": (classifier(delta=np.inf), (X, Y), "delta.*inf"),
    "unknown delta": (classifier(delta="best"), (X, Y), "delta.*'best'"),
    "no delta": (classifier(delta=None), (X, Y), "delta.*None"),
    "order 3": (classifier(order=3), (X, Y), r"order.*1, 2.*order=3"),
    "order text": (classifier(order="two"), (X, Y), "order.*'two'"),
    "order 1, squared": (regressor(order=1), (X, Z), "order=1 needs a Lipschitz.*Use order=2"),
    "order 1, squared hinge": (
        classifier(loss="squared_hinge", order=1), (X, Y), "order=1 needs a Lipschitz",
    ),
    "unknown loss": (classifier(loss="log"), (X, Y), "'log'.*logistic, squared_hinge"),
    "unknown regression loss": (regressor(loss="l2"), (X, Z), "'l2'.*squared"),
    "loss of the other task": (classifier(loss="squared"), (X, Y), "classification.*logistic"),
    "label loss for targets": (regressor(loss="hinge"), (X, Z), "regression.*absolute"),
    "loss class": (regressor(loss=Huber), (X, Z), "loss"),
    "M": (regressor(loss=Huber(-1.0)), (X, Z), "M > 0.*-1"),
    "tau": (regressor(loss=Quantile(1.5)), (X, Z), "tau.*1.5"),
    "unknown cost": (classifier(cost="l3"), (X, Y), "'l3'.*euclidean, l1, linf"),
    "cost number": (classifier(cost=3), (X, Y), "cost"),
    "p": (classifier(cost=Norm(3)), (X, Y), "p=3"),
    "not square": (classifier(cost=Mahalanobis(np.ones((3, 2)))), (X, Y), r"square.*\(3, 2\)"),
    "not symmetric": (classifier(cost=Mahalanobis(ASYMMETRIC)), (X, Y), "symmetric.*0.5"),
    "not definite": (classifier(cost=Mahalanobis(INDEFINITE)), (X, Y), "eigenvalue is -0.25"),
    "nan matrix": (classifier(cost=Mahalanobis(spoiled(np.eye(3), np.nan))), (X, Y), "NaN"),
    "other size": (classifier(cost=Mahalanobis(np.eye(4))), (X, Y), r"\(4, 4\).*3 features"),
    "unknown solver": (classifier(solver="sgd"), (X, Y), "'sgd'.*exact"),
    "class weight": (classifier(class_weight="even"), (X, Y), "class_weight"),
    "tol": (classifier(tol=-1.0), (X, Y), "tol.*-1"),
    "nan tol": (classifier(tol=np.nan), (X, Y), "tol.*nan"),
    "max_iter": (classifier(max_iter=0), (X, Y), "max_iter.*0"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refused_in_a_sentence_and_nothing_fitted(case):
    model, arguments, match = BAD[case]
    with pytest.raises((ValueError, TypeError), match=f"(?s){match}"):
        model.fit(*arguments)
    left = [name for name in vars(model) if name.endswith("_") or name.startswith("_")]
    assert set(left) <= {"n_features_in_"}


@pytest.mark.parametrize("case", BAD)
def test_a_refused_fit_does_not_touch_an_earlier_one(case):
    model, arguments, _ = BAD[case]
    first = (classifier() if isinstance(model, DROClassifier) else regressor()).fit(
        X, Y if isinstance(model, DROClassifier) else Z
    )
    coef = first.coef_.copy()
    with pytest.raises((ValueError, TypeError)):
        first.set_params(**model.get_params(deep=False)).fit(*arguments)
    assert_allclose(first.coef_, coef)


PARAMETERS = [
    (kind, name)
    for kind in (DROClassifier, DRORegressor)
    for name in kind().get_params()
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), PARAMETERS)
def test_no_parameter_takes_what_it_is_not(kind, name):
    y = Y if kind is DROClassifier else Z
    for bad in ("surely not", object(), 1j, b"x", {"a": 1}, int):
        for given in ({"delta": 0.1}, {"delta": "cv"}):
            model = kind(**{"cost": "euclidean"} | given | {name: bad})
            with pytest.raises((ValueError, TypeError), match=f"(?s){name}"):
                model.fit(X, y)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("fit_intercept", "yes"), ("fit_intercept", 1), ("n_jobs", "a"), ("n_jobs", 0),
        ("n_jobs", 1.5), ("verbose", None), ("verbose", -1), ("confidence", 95),
        ("confidence", True), ("tol", True), ("tol", np.inf), ("max_iter", True),
        ("random_state", True), ("random_state", 2**40), ("rule", ["min"]), ("cv", 1), ("cv", True),
        ("deltas", "0.1"), ("deltas", {"a": 1}), ("scoring", {"a": "accuracy"}), ("scoring", int),
        ("class_weight", {1: -1.0, -1: 2.0}), ("class_weight", {1: "heavy", -1: 2.0}),
    ],
)  # fmt: skip
def test_a_parameter_of_another_type_or_range_is_named_with_its_value(name, bad):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got {name}="):
        DROClassifier(**{"cost": "euclidean", "delta": 0.1} | {name: bad}).fit(X, Y)


@pytest.mark.parametrize(
    ("cv", "match"),
    [
        ([1, 2], "pair .train, test. .*got 1"),
        ([([0.5, 1.5], [2.0])], "row numbers, got"),
        ([(np.arange(30), np.arange(5))], "names row 29, and X has 20 rows"),
    ],
)
def test_splits_that_are_none_are_refused(cv, match):
    with pytest.raises(ValueError, match=match):
        DROClassifier(cost="euclidean", cv=cv).fit(X, Y)


def test_a_class_in_place_of_an_object_says_how_to_make_one():
    with pytest.raises(
        TypeError, match=r"cost is the class Mahalanobis.* use cost=Mahalanobis\(\)"
    ):
        classifier(cost=Mahalanobis).fit(X, Y)


@pytest.mark.parametrize("model", [classifier(), regressor()], ids=["classifier", "regressor"])
def test_use_before_fit(model):
    for method in ("predict", "worst_case"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(*([X] if method == "predict" else []))


def test_another_number_of_features():
    for model, y in ((classifier(), Y), (regressor(), Z)):
        with pytest.raises(ValueError, match=r"2 features.*expecting 3"):
            model.fit(X, y).predict(X[:, :2])


def test_worst_case_of_an_unknown_class():
    y = np.arange(20) % 3
    model = classifier(multi_class="ovr").fit(X, y)
    for bad in (None, 7):
        with pytest.raises(ValueError, match=r"class_=.*\[0, 1, 2\]"):
            model.worst_case(bad)
    with pytest.raises(ValueError, match="no classes"):
        regressor().fit(X, Z).worst_case(1)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"delta": -1.0}, "delta"), ({"delta": np.nan}, "delta"), ({"order": 3}, "order"),
    ],
)  # fmt: skip
def test_ball_refuses(change, match):
    with pytest.raises(ValueError, match=match):
        Ball(**{"cost": Norm(2), "delta": 0.1, "order": 1} | change)


def test_robust_risk_refuses():
    ball = Ball(Norm(2), 0.1, 1)
    with pytest.raises(ValueError, match="4 entries but X has 3"):
        robust_risk(X, Y, np.ones(4), 0.0, "logistic", ball)
    with pytest.raises(ValueError, match="-1 or"):
        robust_risk(X, Z, np.ones(3), 0.0, "logistic", ball)
    with pytest.raises(ValueError, match="Lipschitz"):
        robust_risk(X, Z, np.ones(3), 0.0, "squared", ball)
    with pytest.raises(ValueError, match=r"'log'.*logistic"):
        robust_risk(X, Y, np.ones(3), 0.0, "log", ball)


def test_discrepancy_refuses():
    P = (X, Y, None)
    with pytest.raises(ValueError, match="order"):
        discrepancy(P, P, Norm(2), 0)
    with pytest.raises(ValueError, match="columns"):
        discrepancy(P, (X[:, :2], Y, None), Norm(2), 1)
    with pytest.raises(ValueError, match="Q"):
        discrepancy(P, (X, Y, -ONES), Norm(2), 1)


SETTINGS = [(loss, cost) for loss in LOSSES for cost in ("euclidean", "l1", "linf")]
over = pytest.mark.parametrize(("loss", "cost"), SETTINGS, ids=lambda v: str(v))


def fit(loss, cost, rows, z, **settings):
    label = losses.KNOWN[loss].task == "classification"
    kind = DROClassifier if label else DRORegressor
    y = np.where(z > np.median(z), 1, -1) if label else z
    model = kind(make_loss(loss), cost=cost, delta=0.1, **settings).fit(rows, y)
    for value in (model.coef_, model.intercept_, model.robust_risk_, model.gap_):
        assert np.isfinite(value).all()
    return model


@over
def test_columns_of_sizes_1e_minus_8_to_1e8(loss, cost):
    rows = RNG.normal(size=(40, 5)) * np.logspace(-8, 8, 5)
    z = rows @ np.logspace(8, -8, 5) + RNG.normal(size=40)
    fit(loss, cost, rows, z)


@over
def test_constant_and_duplicated_columns(loss, cost):
    rows = np.column_stack([X, X[:, 0], np.full(20, 7.0), np.zeros(20)])
    one, two = fit(loss, cost, rows, Z, tol=1e-9), fit(loss, cost, rows[:, :4], Z, tol=1e-9)
    assert_allclose(one.robust_risk_, two.robust_risk_, rtol=1e-7)


@over
@pytest.mark.constant_model("two rows may teach nothing")
def test_two_rows(loss, cost):
    fit(loss, cost, X[:2], np.array([0.0, 1.0]))


@over
def test_one_column(loss, cost):
    fit(loss, cost, X[:, :1], Z)


@over
def test_only_constant_columns(loss, cost):
    model = fit(loss, cost, np.ones((20, 2)), Z)
    assert not np.any(model.coef_)


@over
def test_large_targets_far_from_zero(loss, cost):
    fit(loss, cost, X + 1e4, 1e3 * Z + 1e6)


@pytest.mark.parametrize(
    "loss", [name for name in LOSSES if "h" not in name and name != "logistic"]
)
def test_constant_targets(loss):
    """No risk at all: the constant model, with a gap of zero and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DRORegressor(make_loss(loss), cost="euclidean", delta=0.1).fit(X, np.full(20, 3.0))
    assert_allclose(model.predict(X), 3.0)
    assert model.gap_ == pytest.approx(0, abs=1e-12)


def test_a_class_without_weight_among_three():
    X, y = np.arange(24.0).reshape(12, 2), np.repeat([0, 1, 2], 4)
    model = DROClassifier(cost="euclidean", delta=0.1)
    with pytest.raises(ValueError, match=r"classes \[2\] have no weight"):
        model.fit(X, y, sample_weight=(y < 2).astype(float))


@pytest.mark.parametrize("name", ["support", "unlabelled"])
def test_further_rows_have_the_columns_of_X_by_name(name):
    """0.598 became 0.628 where reordered columns were taken by position."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("abc"))
    y = np.where(X["a"] > 0, 1, 0)
    model = DROClassifier(delta=0.1)
    model.fit(X, y, **{name: X})
    with pytest.raises(ValueError, match=f"{name} has the columns of X in another order"):
        model.fit(X, y, **{name: X[list("cab")]})
    with pytest.raises(ValueError, match=r"lacks the columns \['a'\] and has the columns \['d'\]"):
        model.fit(X, y, **{name: X.rename(columns={"a": "d"})})
    with pytest.warns(UserWarning, match="by position"):
        model.fit(X, y, **{name: X.to_numpy()})
    with pytest.warns(UserWarning, match="by position"):
        model.fit(X.to_numpy(), y, **{name: X})


@pytest.mark.parametrize("order", [1, 2])
def test_a_delta_that_cannot_be_told_from_zero_is_refused(order):
    X, y = np.array([[0.0], [1.0], [2.0]]), [0, 1, 1]
    with pytest.raises(ValueError, match=r"delta=1e-320 is too small.*use delta=0"):
        DROClassifier(cost="euclidean", order=order, delta=1e-320).fit(X, y)


@pytest.mark.parametrize("scale", [1e-100, 1e-200, 1e-310])
def test_rows_whose_squares_vanish_are_refused(scale):
    """The default fit ended in a cost matrix with NaN, or in a constant model without a word."""
    with pytest.raises(ValueError, match="scale the columns"):
        DROClassifier().fit(scale * X, Y)


def test_a_norm_of_another_exponent_is_refused_for_three_classes():
    """It ended in KeyError: 3."""
    labels = np.arange(20) % 3
    for delta in (0.1, "cv"):
        with pytest.raises(ValueError, match="p = 1, 2 or inf"):
            DROClassifier(cost=Norm(3), delta=delta).fit(X, labels)


@pytest.mark.parametrize("absent", ["NA", "None", "NaN"])
@pytest.mark.parametrize(
    "kind", ["object", "list", "str", "string", "category", "frame", "Int64", "boolean", "float"]
)
def test_missing_labels_are_counted_and_the_first_is_named(absent, kind):
    pd = pytest.importorskip("pandas")
    value = {"NA": pd.NA, "None": None, "NaN": np.nan}[absent]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    positive = X[:, 0] + rng.standard_normal(60) > 0
    y = np.where(positive, "yes", "no").astype(object)
    y[[7, 9]] = value
    numbers = [None if i in (7, 9) else int(positive[i]) for i in range(60)]
    labels = {
        "object": y,
        "list": y.tolist(),
        "str": pd.Series(y),
        "string": pd.Series(y, dtype="string"),
        "category": pd.Series(y, dtype="category"),
        "frame": pd.DataFrame({"y": y}),
        "Int64": pd.Series(numbers, dtype="Int64"),
        "boolean": pd.Series(numbers, dtype="boolean"),
        "float": np.array([np.nan if one is None else one for one in numbers]),
    }[kind]
    words = r"labels are missing .* in 2 of 60 rows of y, the first in row 7: leave such rows out"
    with pytest.raises(ValueError, match=words):
        DROClassifier(cost="euclidean", delta=0.1).fit(X, labels)


@pytest.mark.parametrize("absent", ["NA", "None", "NaN"])
def test_missing_labels_and_groups_of_rows_in_chunks_are_named(absent):
    da = pytest.importorskip("dask.array")
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    value = {"NA": pd.NA, "None": None, "NaN": np.nan}[absent]
    X = np.random.default_rng(0).standard_normal((60, 3))
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    complete = y.astype(str)
    y[[27, 29]] = value
    rows = da.from_array(X, chunks=(20, 3))
    model = DROClassifier(cost="euclidean", delta=0.1)
    words = r"labels are missing .* in 2 of the 20 rows of chunk 1 .*, the first in row 27"
    for labels in (y, da.from_array(y, chunks=20), dd.from_pandas(pd.Series(y), npartitions=2)):
        with pytest.raises(ValueError, match=words):
            model.fit(rows, labels)
    for given in (rows, X):
        with pytest.raises(ValueError, match=r"groups has no value .* in row 27"):
            model.fit(given, complete, groups=y)


TEXT = np.array([[1.0, "Leeds"], [2.0, "York"], [3.0, "York"]], dtype=object)
BALL = Ball(Norm(2), 0.1, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: classifier().fit(TEXT, [0, 1, 1]),
        lambda: regressor().fit(X[:2], ["Leeds", "York"]),
        lambda: classifier().fit(X[:, :2], Y).predict(TEXT),
        lambda: classifier().fit(X[:, :2], Y).worst_case(rows=(TEXT, Y[:3])),
        lambda: classifier().fit(X[:, :2], Y, support=TEXT),
        lambda: robust_risk(TEXT, [1, -1, 1], [1.0, 0.0], 0.0, "logistic", BALL),
        lambda: discrepancy((TEXT, [1, 1, 1], None), (X[:3, :2], [1, 1, 1], None), Norm(2), 1),
    ],
)
def test_text_among_numbers_is_refused_in_a_sentence(call):
    with pytest.raises(ValueError, match="holds text, 'Leeds' first, where numbers are needed"):
        call()


@pytest.mark.parametrize("reach", ["a", [1.0], None])
def test_a_reach_is_a_number(reach):
    model = classifier().fit(X, Y)
    if reach is None:
        assert model.worst_case(reach=reach).budget <= model.delta_ * (1 + 1e-9)
        return
    with pytest.raises(ValueError, match="reach must be a number > 0, got reach="):
        model.worst_case(reach=reach)


@pytest.mark.parametrize(
    ("coef", "intercept"), [([np.nan, 1.0], 0.0), ([0.0, np.inf], 0.0), ([0.0, 1.0], np.nan)]
)
def test_the_risk_of_no_number_is_none(coef, intercept):
    with pytest.raises(ValueError, match="coef or intercept has NaN or infinite"):
        robust_risk(X[:, :2], Y, coef, intercept, "logistic", BALL)
