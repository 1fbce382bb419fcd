"""Drift: bounds never above exact transport, a valid p-value, three answers, bad input."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom, chi2_contingency, wasserstein_distance
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from otdro import Drift, DROClassifier, DRORegressor, audit, discrepancy, drift
from otdro.costs import Mahalanobis, Norm
from strangers import LThreeHalves

ot = pytest.importorskip("ot")


def costs(d, rng):
    A = rng.normal(size=(d, d)) + 2 * np.eye(d)
    return [Norm(2), Norm(1), Norm(np.inf), Mahalanobis(A @ A.T), LThreeHalves()]


def labels(n, classes, rng):
    """Return labels of which every class occurs."""
    return rng.permutation(
        np.concatenate([np.arange(classes), rng.integers(classes, size=n - classes)])
    )


def linear_model(coef, classes):
    """Return a fitted model with given coefficients."""
    model = LogisticRegression() if classes > 1 else Ridge()
    model.coef_, model.intercept_ = coef, np.zeros(len(coef))
    if classes > 1:
        model.classes_ = np.arange(classes)
    return model


def random_pair(rng):
    """Return two samples of random sizes, shapes and classes, and what to compare them with."""
    n, m, d = int(rng.integers(20, 81)), int(rng.integers(12, 81)), int(rng.integers(1, 7))
    classes = int(rng.integers(1, 4))
    U = rng.normal(size=(n, d)) * rng.exponential(size=d)
    V = rng.standard_t(3, size=(m, d)) * rng.exponential() + rng.normal(size=d) * rng.exponential()
    options = {
        "cost": costs(d, rng)[rng.integers(5)],
        "order": int(rng.integers(1, 3)),
        "model": linear_model(rng.normal(size=(max(classes, 1) if classes > 2 else 1, d)), classes),
    }
    if classes == 1:
        return U, V, options
    return (U, labels(n, classes, rng)), (V, labels(m, classes, rng)), options


def emd(reference, new, cost, order):
    """Return the exact transport cost within classes by POT, apart from the package's own way."""
    (U, yu), (V, yv) = (
        sample if isinstance(sample, tuple) else (sample, np.zeros(len(sample)))
        for sample in (reference, new)
    )
    total = 0.0
    for label in np.unique(yv):
        C = np.array([[cost.norm(v - u) ** order for v in V[yv == label]] for u in U[yu == label]])
        a, b = (np.full(size, 1 / size) for size in C.shape)
        total += (yv == label).mean() * ot.emd2(a, b, C, numItermax=1_000_000)
    return total


def test_bounds_are_never_above_exact_transport():
    rng = np.random.default_rng(0)
    share = {"mean": [], "gelbrich": [], "score": []}
    for _ in range(60):
        reference, new, options = random_pair(rng)
        found = drift(reference, new, **options)
        for name, bound in found.lower_bounds.items():
            if bound is not None:
                assert bound <= found.estimate * (1 + 1e-10) + 1e-12
                share[name].append(bound / found.estimate)
    # they are not trivial either
    assert np.mean(share["mean"]) > 0.3
    assert np.mean(share["gelbrich"]) > 0.4
    assert np.mean(share["score"]) > 0.1


def test_transport_cost_is_that_of_pot():
    rng = np.random.default_rng(2)
    for _ in range(4):
        reference, new, options = random_pair(rng)
        exact = emd(reference, new, options["cost"], options["order"])
        assert_allclose(drift(reference, new, **options).estimate, exact, rtol=1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_scores_and_targets_are_transported_by_sorting(order):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(31, 2)), rng.exponential(size=(30, 2))
    beta = np.array([[2.0, -1.0]])
    options = {"model": linear_model(beta, 1), "order": order}
    found = drift((X, X[:, 0]), (Z, Z[:, 0]), **options)
    u, v = X @ beta[0], Z @ beta[0]
    masses = np.full(31, 1 / 31), np.full(30, 1 / 30)
    exact = ot.emd2(*masses, np.abs(u[:, None] - v) ** order) / 5 ** (order / 2)
    assert_allclose(found.lower_bounds["score"], exact, rtol=1e-9)
    moved = wasserstein_distance(X[:, 0], Z[:, 0]) / X[:, 0].std()
    assert_allclose(found.label_shift.distance, moved, rtol=1e-9)


def test_gelbrich_is_exact_for_a_linear_map_of_the_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    A = np.array([[1.5, 0.2, 0.0], [0.2, 0.8, 0.1], [0.0, 0.1, 1.0]])
    found = drift(X, X @ A + 0.3, order=2)
    assert_allclose(found.lower_bounds["gelbrich"], found.estimate, rtol=1e-9)


def rejections(draws, shift, rng, n=30, m=20, d=3, classes=2):
    """Return how often the p-value is at most 5%, for a shift of the mean of column 0."""
    count = 0
    for _ in range(draws):
        U, V = rng.normal(size=(n, d)), rng.normal(size=(m, d))
        V[:, 0] += shift
        found = drift((U, labels(n, classes, rng)), (V, labels(m, classes, rng)))
        count += found.p_value <= 0.05
    return count


def test_the_p_value_is_valid():
    found = rejections(300, 0.0, np.random.default_rng(0))
    low, high = binom.interval(0.99, 300, 0.05)
    assert low <= found <= high


def test_the_p_value_of_large_samples_is_valid_and_sees_small_shifts():
    rng = np.random.default_rng(0)
    count, seen = 0, 0
    for _ in range(6):
        U, V = rng.normal(size=(2100, 2)), rng.normal(size=(2000, 2))
        count += drift(U, V).p_value <= 0.05
        seen += drift(U, V + 0.12).p_value <= 0.05
    assert count <= binom.ppf(0.995, 6, 0.05)
    assert seen == 6


def test_the_p_value_sees_a_shift():
    assert rejections(40, 1.5, np.random.default_rng(1)) >= 36


def two(seed=0, n=300, m=120, shift=0.0):
    rng = np.random.default_rng(seed)
    U, V = rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) + np.array([shift, 0.0])
    return U, (U[:, 0] > 0).astype(int), V, (V[:, 0] > shift).astype(int)


def test_drift_of_rows_alone():
    U, _, V, _ = two(shift=1.0)
    found = drift(U, V)
    assert isinstance(found, Drift)
    assert found.lower_bounds["gelbrich"] is None
    assert found.lower_bounds["score"] is None
    assert found.verdict is None
    exact = discrepancy((U, np.zeros(300), None), (V, np.zeros(120), None), Norm(2), 1)
    assert_allclose(found.estimate, exact)
    assert found.lower_bounds["mean"] <= exact
    assert found.noise_floor < exact
    assert found.p_value <= 0.01
    assert found.columns.order()[0] == 0
    assert abs(found.columns.shift[0] - 1.0) < 0.3
    assert_allclose(
        found.columns.distance[0], wasserstein_distance(U[:, 0], V[:, 0]) / U[:, 0].std()
    )
    assert "transport cost" in str(found)


def test_rows_of_one_population_are_at_the_noise_floor():
    U, _, V, _ = two(1, n=600, m=300)
    found = drift(U, V, order=2)
    assert found.rows_used == (600, 300)
    assert found.estimate < 1.3 * found.noise_floor
    assert found.p_value > 0.05
    assert found.lower_bounds["mean"] <= 2 * found.bound_noise["mean"]


def test_labels_move_within_their_class_and_shares_are_told_apart():
    U, yu, V, yv = two(shift=0.3)
    keep = (yv == 0) | (np.arange(120) % 3 == 0)
    found = drift((U, yu), (V[keep], yv[keep]))
    share = yv[keep].mean()
    assert_allclose(found.label_shift.new, [1 - share, share])
    assert_allclose(found.label_shift.distance, abs(share - yu.mean()))
    weights = np.where(yu == 1, share / (yu == 1).sum(), (1 - share) / (yu == 0).sum())
    exact = discrepancy((U, yu, weights), (V[keep], yv[keep], None), Norm(2), 1)
    assert_allclose(found.estimate, exact)
    assert f"1 {yu.mean():.1%} -> {share:.1%} (p-value" in str(found)


def test_three_answers():
    U, yu, V, yv = two(n=600, m=300)
    model = LogisticRegression().fit(U, yu)
    far = drift((U, yu), (V + 2.0, yv), model=model)
    assert far.verdict == "outside"
    near = drift((U, yu), (U[:100] + 0.01, yu[:100]), model=model)
    near_all = drift((U, yu), (U + 0.01, yu), model=model)
    assert near_all.verdict == "inside"
    assert_allclose(near_all.estimate, 0.01 * np.sqrt(2), rtol=1e-6)
    assert near.verdict in ("inside", "cannot tell")
    unlabelled = drift((U, yu), U + 0.01, model=model)
    assert unlabelled.verdict == "cannot tell"
    assert "label some of the new rows" in unlabelled.reason
    assert drift((U, yu), V + 2.0, model=model).verdict == "outside"
    assert unlabelled.certified_accuracy is None


@pytest.mark.parametrize("order", [1, 2])
def test_roots_of_bounds_and_their_noise_are_compared_with_that_of_delta(order):
    U, yu, V, yv = two(n=300, m=200, shift=0.6)
    model = LogisticRegression().fit(U, yu)
    found = drift((U, yu), (V, yv), model=model, order=order)
    margins = [
        found.lower_bounds[name] ** (1 / order) - found.bound_noise[name] ** (1 / order)
        for name, bound in found.lower_bounds.items()
        if bound is not None
    ]
    delta = max(margins) ** order
    assert_allclose(max(found.beyond_noise.values()), delta)
    for factor, verdicts in ((0.99, {"outside"}), (1.01, {"inside", "cannot tell"})):
        deltas = [0.0, factor * delta]
        at = audit(model, U, yu, deltas=deltas, order=order, new=(V, yv)).drift
        assert at.verdict in verdicts
    # the scores moved by less than delta, and labels are known: the model cannot tell them apart
    wide = [0.0, 1.01 * found.lower_bounds["score"]]
    assert audit(model, U, yu, deltas=wide, order=order, new=(V, yv)).drift.verdict == "inside"
    assert audit(model, U, yu, deltas=wide, order=order, new=V).drift.verdict != "inside"


def test_a_verdict_by_scores_alone_says_so():
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(300, 3)), rng.normal(size=(200, 3))
    # a column that the model does not see moves far
    V[:, 2] += 5.0
    coef = np.array([[1.0, 0.0, 0.0]])
    yu, yv = (U[:, 0] > 0).astype(int), (V[:, 0] > 0).astype(int)
    model = linear_model(coef, 2)
    found = audit(model, U, yu, deltas=[0.0, 0.5], new=(V, yv)).drift
    assert found.lower_bounds["score"] <= 0.5
    # the rows are surely outside by the mean bound, and are told so
    assert found.verdict == "outside"
    V[:, 2] -= 5.0
    near = audit(model, U, yu, deltas=[0.0, 0.3], new=(V, yv)).drift
    assert near.estimate > 0.3
    assert near.verdict == "inside"
    assert near.reason.startswith("the scores of this model moved by")
    assert f"their transport cost is {near.estimate:.4g}" in near.reason


def categories(n, share, rng):
    """Return a table of numbers and a column of categories."""
    pd = pytest.importorskip("pandas")
    city = np.where(rng.random(n) < share, "York", "Leeds")
    return pd.DataFrame({"age": rng.normal(size=n), "city": city})


@pytest.mark.parametrize("seen_by", ["model", "transformer"])
def test_a_category_is_one_column_of_a_drift(seen_by):
    rng = np.random.default_rng(0)
    old, new = categories(200, 0.3, rng), categories(150, 0.7, rng)
    front = make_column_transformer(
        (StandardScaler(), ["age"]),
        (OneHotEncoder(sparse_output=False), ["city"]),
        verbose_feature_names_out=False,
    )
    y = old["age"] > 0
    model = make_pipeline(front, LogisticRegression()).fit(old, y)
    found = drift(old, new, model=model if seen_by == "model" else model[0])
    assert found.columns.names == ["age", "city"]
    assert found.columns.switch == ["", "Leeds -> York"]
    moved = (new["city"] == "York").mean() - (old["city"] == "York").mean()
    assert_allclose([found.columns.shift[1], found.columns.distance[1]], moved)
    assert found.columns.p_value[1] < 0.01
    assert found.columns.order()[0] == 1
    assert re.search(rf"city: Leeds -> York +\+{moved:.1%} of rows", str(found))
    assert "city=" not in str(found)


def test_a_value_that_no_reference_row_has_is_outside_of_every_ball():
    rng = np.random.default_rng(0)
    old = categories(200, 0.3, rng)
    front = make_column_transformer(
        (StandardScaler(), ["age"]),
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["city"]),
        verbose_feature_names_out=False,
    )
    y = np.where(old["age"] > 0, 1, 0)
    model = make_pipeline(front, DROClassifier(cost="euclidean", delta=0.3)).fit(old, y)
    same = drift((old, y), (old, y), model=model)
    assert same.verdict == "inside"
    assert same.new_values == {}
    new = old.copy()
    new.loc[:19, "city"] = "Bath"
    found = drift((old, y), (new, y), model=model)
    assert found.verdict == "outside"
    assert found.new_values == {"city": 20}
    assert "values that no reference row has are in no ball: city (20 rows)" in found.reason
    assert found.columns.switch[1].endswith("-> another value")
    assert_allclose(found.columns.shift[1], 0.1)
    assert found.to_dict()["new_values"] == {"city": 20}
    told = audit(model, old, y, new=(new, y)).advice
    assert "have values that these rows do not have, in city" in told[-1]


def test_the_certificate_holds_for_the_batch():
    rng = np.random.default_rng(0)
    for seed in range(6):
        U, yu, V, yv = two(seed, n=120, m=80, shift=0.2 * seed)
        noise = rng.random(80) < 0.1
        yv = np.where(noise, 1 - yv, yv)
        yu = np.where(rng.random(120) < 0.1, 1 - yu, yu)
        model = LogisticRegression().fit(U, yu)
        for order in (1, 2):
            found = drift((U, yu), (V, yv), model=model, order=order)
            assert found.accuracy["new"] >= found.certified_accuracy - 1e-12
            assert found.certified_accuracy <= found.accuracy["reweighted"]


@pytest.mark.parametrize("hospital", ["cleveland", "hungarian", "switzerland", "va"])
def test_the_certificate_holds_for_a_hospital(hospital):
    path = Path(os.environ.get("OTDRO_DATA", "")) / "shift" / "heart4.csv.gz"
    if not path.exists():
        pytest.skip("needs shift/heart4.csv.gz in the folder that OTDRO_DATA names")
    pd = pytest.importorskip("pandas")
    rows = pd.read_csv(path)
    new, old = rows[rows.env == hospital], rows[rows.env != hospital]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(old[::2].drop(columns=["env", "y"]), old[::2].y)
    reference = (old[1::2].drop(columns=["env", "y"]), old[1::2].y)
    found = drift(reference, (new.drop(columns=["env", "y"]), new.y), model=model)
    assert found.verdict == "outside"
    assert found.accuracy["new"] >= found.certified_accuracy
    assert found.label_shift.distance > 0.1


def test_a_models_own_ball_is_asked_about():
    U, yu, V, _ = two(n=300)
    model = DROClassifier(cost="l1", delta=0.2).fit(U, yu)
    found = drift(U, V, model=model)
    assert (found.delta, found.order) == (0.2, 1)
    assert found.cost is model.cost_
    assert found.verdict == "cannot tell"
    assert drift(U, V + 1.0, model=model).verdict == "outside"
    assert drift(U, V, model=model, cost="linf").delta is None


def test_audit_with_new_rows():
    U, yu, V, yv = two()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(U, yu)
    found = audit(model, U, yu, new=(V, yv), random_state=3)
    same = drift((U, yu), (V, yv), model=model, random_state=3)
    assert found.drift.to_dict() == same.to_dict()
    assert found.drift.delta == found.breaking_point("constant")
    assert "Drift of 120 new rows" in str(found)
    far = audit(model, U, yu, new=(V + 3.0, yv))
    assert far.advice[-1].endswith("find out why, and fit again with them.")
    far = audit(model, U, yu, new=V + 3.0)
    assert far.advice[-1].endswith("find out why, label some of them, and fit again with them.")
    assert audit(model, U, yu, deltas=[0.0, 0.3], new=V).drift.delta == 0.3


def test_regression_targets_are_reported_and_not_moved():
    U, _, V, _ = two(shift=0.5)
    model = Ridge().fit(U, U[:, 0])
    found = drift((U, U[:, 0]), (V, V[:, 0]), model=model)
    assert found.verdict in ("outside", "cannot tell")
    assert found.label_shift.labels is None
    assert found.label_shift.distance > 0.3
    assert found.accuracy["new"] == 1.0
    plain = drift((U, U[:, 0]), (V, V[:, 0]))
    assert plain.label_shift.distance == found.label_shift.distance


def test_drift_of_targets_states_the_comparison_and_speaks_of_no_class():
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(60, 3)), rng.normal(size=(20, 3))
    y, z = U[:, 0] + 0.3 * rng.normal(size=60), V[:, 0] + 0.3 * rng.normal(size=20)
    model = DRORegressor(cost="euclidean", delta=0.001).fit(U, y)
    found = audit(model, U, y, new=(V, z)).drift
    name = max(found.beyond_noise, key=found.beyond_noise.get)
    assert found.lower_bounds[name] > 10 * found.delta
    assert found.verdict == "cannot tell"
    numbers = (
        found.lower_bounds[name],
        found.bound_noise[name],
        found.beyond_noise[name],
        found.delta,
    )
    for part in (found.reason, str(found)):
        assert all(f"{value:.4g}" in part for value in numbers)
    assert "class" not in found.reason
    assert "label" not in found.reason
    # the band within which a prediction is right is that of the audit, and said
    assert found.tau == audit(model, U, y).tau
    assert f"(within {found.tau:.4g} of the target)" in str(found)
    assert found.to_dict()["tau"] == found.tau
    wide = audit(model, U, y, tau=3.0, new=(V, z))
    assert wide.drift.tau == 3.0
    assert not any("label" in sentence for sentence in wide.advice)


def test_large_samples_are_drawn_from():
    U, yu, V, yv = two(n=2500, m=2100, shift=0.1)
    found = drift((U, yu), (V, yv))
    assert found.rows_used == (1000, 1000)
    assert any("random rows" in note for note in found.notes)
    assert found.p_value <= 0.05
    assert drift((U, yu), (V, yv)).to_dict() == found.to_dict()


def test_a_small_batch_beside_a_large_reference():
    U, yu, V, yv = two(n=5000, m=25, shift=1.0)
    found = drift((U, yu), (V, yv))
    assert found.rows_used == (1000, 25)
    assert found.p_value <= 0.05


def test_sparse_rows_and_one_class_of_new_rows():
    from scipy import sparse

    U, yu, V, yv = two()
    rows = sparse.csr_matrix(U), sparse.csr_array(V)
    assert_allclose(drift(*rows).estimate, drift(U, V).estimate)
    only = drift((U, yu), (V[yv == 1], yv[yv == 1]))
    weights = (yu == 1).astype(float)
    exact = discrepancy((U, yu, weights), (V[yv == 1], yv[yv == 1], None), Norm(2), 1)
    assert_allclose(only.estimate, exact)


def test_learned_cost():
    U, yu, V, _ = two()
    model = LogisticRegression().fit(U, yu)
    assert drift((U, yu), V, model=model, cost="learned").cost.is_norm
    assert drift((U, yu), V, cost="learned").cost.is_norm
    with pytest.raises(ValueError, match="learned from labels"):
        drift(U, V, cost="learned")


U0, YU, V0, YV = two()
YALL = np.arange(20)
BAD = {
    "one column": ((U0[:, 0], V0), {}, "Expected 2D array, got 1D array"),
    "all classes differ": (
        ((U0[:20], np.arange(20)), (V0[:20], np.arange(20))),
        {},
        "classes of few rows",
    ),
    "few rows": ((U0, V0[:9]), {}, "there are 9 new rows"),
    "small reference": ((U0[:15], V0), {}, "the reference has 15 rows"),
    "columns": ((U0, V0[:, :1]), {}, "the reference has 2 columns"),
    "NaN": ((U0, np.where(V0 > 1, np.nan, V0)), {}, "new has NaN"),
    "reference NaN": ((np.where(U0 > 1, np.nan, U0), V0), {}, "reference has NaN"),
    "new labels": (((U0, YU), (V0, YV + 1)), {}, "labels that the reference lacks"),
    "lengths": (((U0, YU[:5]), (V0, YV)), {}, "reference has 300 rows but 5 labels"),
    "order": ((U0, V0), {"order": 3}, "order must be 1 or 2"),
    "cost": ((U0, V0), {"cost": "l7"}, "unknown cost"),
    "triple": (((U0, YU, YU), V0), {}, "X or a pair"),
    "unfitted": ((U0, V0), {"model": LogisticRegression()}, "not fitted"),
    "unknown": (
        ((U0, YU), (V0, YV + 5)),
        {"model": LogisticRegression().fit(U0, YU)},
        "does not know",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_answered_with_a_sentence(case):
    (reference, new), given, text = BAD[case]
    with pytest.raises((ValueError, TypeError), match=text):
        drift(reference, new, **given)


def test_other_columns_and_classes():
    pd = pytest.importorskip("pandas")
    old = pd.DataFrame(U0, columns=["a", "b"])
    new = pd.DataFrame(V0, columns=["a", "c"])
    with pytest.raises(ValueError, match=r"lacks the columns \['b'\]"):
        drift(old, new)
    with pytest.raises(ValueError, match="another order"):
        drift(old, new.rename(columns={"c": "b"})[["b", "a"]])
    with pytest.raises(ValueError, match="reference holds text"):
        drift(old.assign(b="x"), new.rename(columns={"c": "b"}))
    three = LogisticRegression().fit(U0, np.arange(300) % 3)
    with pytest.raises(ValueError, match="labels that the reference lacks"):
        drift((U0, YU), (V0, YV + 1), model=three)


def shares(old, new, seed=0):
    """Return labelled samples of one population in each class, with these counts of the classes."""
    rng = np.random.default_rng(seed)
    samples = []
    for counts in (old, new):
        y = np.repeat(np.arange(len(counts)), counts)
        samples.append((rng.normal(size=(len(y), 2)) + 4 * y[:, None], y))
    return samples


def test_other_class_shares_are_outside_the_ball_and_told():
    old, new = shares((160, 40), (160, 120))
    # a ball that holds every distance
    with pytest.warns(UserWarning, match="every coefficient of the fit is zero"):
        model = DROClassifier(cost="euclidean", delta=2.0).fit(*old)
    found = drift(old, new, model=model)
    assert max(found.beyond_noise.values()) < found.delta
    assert found.verdict == "outside"
    p_value = chi2_contingency([[160, 40], [160, 120]], correction=False).pvalue
    assert_allclose(found.label_shift.p_value, p_value)
    words = f"1 20.0% -> 42.9% (p-value {p_value:.2g})"
    assert words in found.reason
    [line] = [line for line in str(found).splitlines() if line.startswith("class shares: ")]
    assert words in line
    assert found.to_dict()["label_shift"]["p_value"] == found.label_shift.p_value
    advice = audit(model, *old, new=new).advice[-1]
    assert "other class shares" in advice
    assert words in advice
    # weighted rows of the audit have the weighted shares, and say less
    weighted = audit(model, *old, new=new, sample_weight=np.where(old[1] == 1, 3.0, 1.0)).drift
    assert_allclose(weighted.label_shift.reference[1], 120 / 280)
    assert weighted.label_shift.p_value == pytest.approx(1.0)
    assert weighted.verdict == "inside"
    # shares that chance explains are no drift, and labels that change at a price may differ
    assert drift(old, shares((160, 40), (160, 45))[1], model=model).verdict == "inside"
    priced = DROClassifier(cost="euclidean", delta=2.0, label_cost=1.0).fit(*old)
    assert drift(old, new, model=priced).verdict == "cannot tell"


def test_the_p_value_of_categories_is_that_of_a_chi_square_test():
    pd = pytest.importorskip("pandas")
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    old = pd.DataFrame({"city": rng.choice([*"abcdefgh"], 300)})
    new = pd.DataFrame({"city": rng.choice([*"abcdefgh"], 200)})
    front = make_column_transformer((OneHotEncoder(sparse_output=False), ["city"]))
    front = make_pipeline(front.set_params(verbose_feature_names_out=False)).fit(old)
    counts = [frame.city.value_counts().sort_index() for frame in (old, new)]
    expected = chi2_contingency(counts, correction=False).pvalue
    assert_allclose(drift(old, new, model=front).columns.p_value, expected)
    # of rows that are reweighted to the new class shares the effective size counts
    y, z = np.repeat([0, 1], [20, 280]), np.repeat([0, 1], 100)
    found = drift((old, y), (new, z), model=front).columns.p_value[0]
    mass = np.where(y == 0, 0.5 / 20, 0.5 / 280)
    size = 1 / np.sum(mass**2)
    p = np.array([mass[old.city == c].sum() for c in "abcdefgh"])
    table = np.array([size * p, counts[1]])
    assert_allclose(found, chi2_contingency(table, correction=False).pvalue)


@pytest.mark.parametrize("drop", ["first", "if_binary", ["Leeds"]])
@pytest.mark.parametrize("cities", [["Leeds", "York"], ["Bath", "Leeds", "York"]])
def test_a_dropped_category_is_a_value_of_its_column(drop, cities):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    old = pd.DataFrame({"city": rng.choice(cities, 200), "age": rng.normal(size=200)})
    new = old.assign(city=np.where(old["city"] == "Leeds", "York", old["city"]))
    tables = []
    for kept in (None, drop):
        encoder = OneHotEncoder(sparse_output=False, drop=kept)
        front = make_column_transformer(
            (encoder, ["city"]), remainder="passthrough", verbose_feature_names_out=False
        ).fit(old)
        tables.append(drift(old, new, model=front).columns)
    plain, dropped = tables
    assert dropped.names == plain.names == ["city", "age"]
    assert dropped.switch == plain.switch == ["Leeds -> York", ""]
    assert_allclose(dropped.shift, plain.shift, atol=1e-12)
    assert_allclose(dropped.p_value, plain.p_value)
    assert_allclose(dropped.shift[0], (old["city"] == "Leeds").mean())
