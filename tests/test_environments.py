"""Rows from several environments: folds, losses, rules, splits, and the command line."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GroupKFold

from commands import document, done, refused
from otdro import DROClassifier, DRORegressor
from otdro.comparison import forward, inner_folds, leave_out, rounds
from otdro.costs import Norm
from otdro.losses import Logistic
from otdro.problem import Sample
from otdro.radius.folds import FoldScores
from otdro.radius.rules import (
    EnvironmentLosses,
    Evidence,
    design_effect,
    environment_losses,
    profile_median,
)

RNG = np.random.default_rng(5)
GROUPS = np.repeat(["a", "b", "c", "d", "e"], 20)
SHIFT = np.repeat(RNG.standard_normal((5, 3)) * [0, 0, 3.0], 20, axis=0)
X = RNG.standard_normal((100, 3)) + SHIFT
Z = X @ [1.5, -1.0, 0] + RNG.standard_normal(100)
Y = np.where(Z > 0, 1, -1)


@pytest.mark.parametrize("make", [DROClassifier, DRORegressor])
def test_path_holds_the_loss_of_each_environment(make):
    y = Y if make is DROClassifier else Z
    model = make(cost="euclidean").fit(X, y, groups=GROUPS)
    found = model.path_.environments
    assert_array_equal(found.names, list("abcde"))
    assert_array_equal(found.counts, [20] * 5)
    assert found.losses.shape == (5, len(model.path_.deltas))
    # every fold is one environment: the mean over folds is that over environments
    assert_allclose(found.losses.mean(axis=0), -model.path_.score_mean)
    assert make(cost="euclidean").fit(X, y).path_.environments is None


def test_loss_of_an_environment_is_that_of_a_model_that_has_not_seen_it():
    model = DROClassifier(cost="euclidean", deltas=[0.1]).fit(X, Y, groups=GROUPS)
    rest, held = GROUPS != "c", GROUPS == "c"
    other = DROClassifier(cost="euclidean", delta=0.1).fit(X[rest], Y[rest])
    loss = np.logaddexp(0, -Y[held] * other.decision_function(X[held])).mean()
    assert_allclose(
        model.path_.environments.losses[2, 0], loss, rtol=1e-2
    )  # fold models are solved to 1e-4


def test_worst_is_nearly_the_least_loss_of_the_worst_environment_next_to_auto():
    auto = DROClassifier(cost="euclidean").fit(X, Y, groups=GROUPS)
    model = DROClassifier(cost="euclidean", rule="worst").fit(X, Y, groups=GROUPS)
    found, deltas = model.path_.environments, model.path_.deltas.tolist()
    values, place = found.shrunken.max(axis=0), deltas.index(model.delta_)
    best = values.argmin()
    error = found.errors[found.losses[:, best].argmax(), best]
    assert values[place] <= values[best] + error
    # no delta nearer to that of "auto" would do
    start = deltas.index(auto.delta_)
    assert min(start, best) <= place <= max(start, best)
    between = range(min(start, place) + (start > place), max(start, place) + (start > place))
    assert all(values[j] > values[best] + error for j in between)


def test_noise_moves_the_losses_of_environments_to_their_mean():
    losses = np.array([[1.0], [2.0], [6.0]])

    def shrunken(error):
        return EnvironmentLosses(np.arange(3), np.ones(3), losses, np.full((3, 1), error)).shrunken

    assert_allclose(shrunken(0.0), losses)
    assert_allclose(shrunken(1e3), [[3.0]] * 3)
    # spread 7, of which 4 is noise: 3/7 of the distances are left
    assert_allclose(shrunken(2.0), 3 + 3 / 7 * (losses - 3))


def test_worst_needs_groups():
    with pytest.raises(ValueError, match=r"rule='worst' needs the environments .*groups"):
        DROClassifier(rule="worst").fit(X, Y)


def evidence_of(losses):
    """Return a sample and folds with given losses, one row a loss."""
    n = len(losses)
    sample = Sample(np.zeros((n, 1)), [np.ones(n)], np.full(n, 1 / n), Logistic(), True)
    # log(1 + exp(-z)) = loss
    z = -np.log(np.expm1(losses))[None, :, None]
    return sample, FoldScores(np.array([[-np.mean(losses)]]), [np.arange(n)], [z])


def test_design_effect_is_one_for_like_environments_and_their_size_for_unlike_ones():
    groups = np.repeat(np.arange(10), 50)
    assert 1 <= design_effect(np.exp(0.3 * RNG.standard_normal(500)), groups) < 4
    means = np.exp(np.repeat(RNG.standard_normal(10), 50))
    assert_allclose(design_effect(means, groups), 50, rtol=1e-6)
    mixed = means * np.exp(0.5 * RNG.standard_normal(500))
    assert 5 < design_effect(mixed, groups) < 50


def test_rows_without_weight_have_no_part_in_the_design_effect():
    groups, losses = np.repeat(np.arange(10), 6), np.exp(RNG.standard_normal(60))

    def worth(losses, groups, weights):
        sample, folds = evidence_of(losses)
        rows = np.arange(len(losses))[:, None].astype(float)
        sample = Sample(rows, sample.ys, weights / weights.sum(), Logistic(), True)
        return Evidence(sample, Norm(2), 1, np.ones(1), folds, True, groups).information

    weights = np.where(np.arange(60) % 3 == 0, 0.0, 1.0)
    kept = weights > 0
    assert_allclose(worth(losses, groups, weights), worth(losses[kept], groups[kept], np.ones(40)))


def test_design_effect_of_single_rows_is_one():
    losses = np.exp(RNG.standard_normal(20))
    assert design_effect(losses, np.arange(20)) == 1
    assert design_effect(losses, np.zeros(20)) == 1


def test_the_noise_radius_of_environments_is_that_of_the_rows_they_are_worth():
    groups = np.repeat(np.arange(10), 50)
    sample, folds = evidence_of(np.exp(np.repeat(RNG.standard_normal(10), 50)))
    sample = Sample(RNG.standard_normal((500, 3)), sample.ys, sample.weights, Logistic(), True)
    rows = Evidence(sample, Norm(2), 1, np.array([0.1]), folds, True)
    environments = replace(rows, groups=groups)
    assert_allclose(environments.information, 10)
    # the same moments of rows, but ten of them instead of 500
    assert_allclose(profile_median(environments), np.sqrt(50) * profile_median(rows))


def test_losses_are_weighted_and_untested_environments_left_out():
    losses = np.array([1.0, 2.0, 3.0, 4.0])
    sample, folds = evidence_of(losses)
    sample = Sample(sample.X, sample.ys, np.array([0.4, 0.2, 0.2, 0.2]), Logistic(), True)
    part = FoldScores(folds.scores, [np.arange(3)], [folds.z[0][:, :3]])
    found = environment_losses(sample, part, np.array(["u", "u", "v", "w"]))
    assert_array_equal(found.names, ["u", "v"])
    assert_allclose(found.losses[:, 0], [(2 * 1 + 2) / 3, 3.0])


def test_groups_of_one_row_and_of_one_class_are_usable():
    single = DROClassifier(cost="euclidean", cv=5).fit(X, Y, groups=np.arange(100))
    assert single.path_.environments.losses.shape[0] == 100
    by_class = np.where((Y > 0) & (np.arange(100) % 2 == 0), "up", GROUPS)
    found = DROClassifier(cost="euclidean").fit(X, Y, groups=by_class).path_.environments
    assert "up" in found.names
    assert np.isfinite(found.losses).all()


def test_one_group_is_refused():
    with pytest.raises(ValueError, match="folds of whole groups need two groups, got one"):
        DROClassifier().fit(X, Y, groups=np.zeros(100))


def subjects(seed, spread, count=24, rows=12):
    """Return rows that are copies of 24 subjects up to a spread, their labels and subjects."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((count, 10))
    labels = np.where(centers[:, 0] + 0.7 * rng.standard_normal(count) > 0, 1, -1)
    who = np.repeat(np.arange(count), rows)
    return centers[who] + spread * rng.standard_normal((len(who), 10)), labels[who], who


def test_folds_of_subjects_overrule_folds_of_their_copies():
    rows, y, who = subjects(0, 0.2)
    by_rows = DROClassifier(cost="euclidean").fit(rows, y)
    by_groups = DROClassifier(cost="euclidean").fit(rows, y, groups=who)
    assert by_groups.delta_ > 2 * by_rows.delta_
    losses = by_groups.path_.environments.losses.mean(axis=0)
    deltas = by_groups.path_.deltas.tolist()
    assert losses[deltas.index(by_groups.delta_)] < 0.85 * losses[deltas.index(by_rows.delta_)]


@pytest.mark.parametrize("make", [DROClassifier, DRORegressor])
def test_environments_that_differ_by_chance_change_nothing(make):
    rng = np.random.default_rng(1)
    y = Y if make is DROClassifier else Z
    groups = rng.integers(8, size=100)
    plain, grouped = make().fit(X, y), make().fit(X, y, groups=groups)
    assert plain.delta_ == grouped.delta_
    assert_allclose(plain.coef_, grouped.coef_)
    assert grouped.path_.environments.losses.shape == (8, len(grouped.path_.deltas))


def test_folds_that_the_user_gives_have_the_only_say():
    rows, y, who = subjects(1, 2.0)
    pairs = list(GroupKFold(5).split(rows, y, who))
    model = DROClassifier(cost="euclidean", cv=pairs).fit(rows, y, groups=who)
    ignored = DROClassifier(cost="euclidean", cv=pairs).fit(rows, y)
    assert_allclose(model.path_.score_mean, ignored.path_.score_mean)


def test_splits_leave_environments_out():
    for train, test in leave_out(Y, "classification", GROUPS, most=5):
        assert not set(GROUPS[train]) & set(GROUPS[test])
    assert len(leave_out(Y, "classification", GROUPS, most=5)) == 5
    with pytest.raises(ValueError, match="need two of them, got 'x' only"):
        leave_out(Y, "classification", np.full(100, "x"), most=5)


def test_forward_trains_on_the_past():
    names = np.repeat(["mar", "jan", "feb"], [40, 30, 30])
    found = forward(Y, "classification", names)
    assert [set(names[test]) for _, test in found] == [{"jan"}, {"feb"}]
    assert set(names[found[1][0]]) == {"mar", "jan"}


def test_splits_without_every_class_are_left_out():
    y = np.where(GROUPS == "a", 1, -1)
    assert leave_out(y, "classification", GROUPS, most=5) != []
    with pytest.raises(ValueError, match="no split into environments"):
        rounds(np.where(GROUPS == "e", 1, -1), "classification", None, 0, GROUPS, in_order=True)


def test_inner_folds_of_one_environment_are_those_of_rows():
    assert hasattr(inner_folds(Y, "classification", 0, np.zeros(100)), "split")
    assert len(inner_folds(Y, "classification", 0, GROUPS)) == 5


@pytest.fixture
def table(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(X, columns=["p", "q", "r"])
    frame["env"], frame["y"] = GROUPS, np.where(Y > 0, "yes", "no")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    more = pd.DataFrame(RNG.standard_normal((40, 3)), columns=["p", "q", "r"])
    more.to_csv(tmp_path / "more.csv", index=False)
    return tmp_path


def test_fit_with_groups_and_unlabelled_rows(table, capsys):
    rows, more = table / "rows.csv", table / "more.csv"
    shared = ("--target", "y", "--groups", "env", "--unlabelled", more, "--no-compare")
    report = document(capsys, "fit", rows, *shared)
    assert report["environments"] == 5
    assert report["unlabelled"] == 40
    assert "env" not in report["coefficients"]


@pytest.mark.parametrize(
    ("options", "heading"),
    [
        pytest.param((), "Each env left out in turn", marks=pytest.mark.slow),
        (("--forward",), "Trained on the past"),
    ],
)
def test_compare_leaves_environments_out(table, capsys, few_penalties, options, heading):
    shared = ("--target", "y", "--groups", "env", "--cost", "euclidean")
    assert heading in done(capsys, "compare", table / "rows.csv", *shared, *options).out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--forward",), "--forward needs --groups"),
        (("--groups", "nev"), "Did you mean 'env'"),
        (("--groups", "y"), "is the target"),
        (("--unlabelled", "{folder}/one.csv"), "it needs two"),
        (("--unlabelled", "{folder}/other.csv"), "there is no column"),
        (("--unlabelled", "{folder}/text.csv"), "must hold numbers, but row 2 holds 'high'"),
        (("--groups", "same"), "need two. Leave --groups out"),
        (("--groups", "gaps"), "has no group in row 2"),
    ],
)
def test_bad_options_are_one_sentence(table, capsys, options, message):
    import pandas as pd

    frame = pd.read_csv(table / "rows.csv")
    frame["same"], frame["gaps"] = 1, np.where(np.arange(100) == 1, np.nan, 2.0)
    frame.to_csv(table / "more_columns.csv", index=False)
    frame[["p", "q", "r"]].head(1).to_csv(table / "one.csv", index=False)
    frame[["p", "q"]].to_csv(table / "other.csv", index=False)
    frame[["p", "q", "r"]].head(3).astype(object).replace({"p": {frame["p"][1]: "high"}}).to_csv(
        table / "text.csv", index=False
    )
    rows = "more_columns.csv" if options[-1] in ("same", "gaps") else "rows.csv"
    given = [option.format(folder=table) for option in options]
    dropped = () if "--groups" in options else ("--drop", "env")
    said = refused(capsys, "fit", table / rows, "--target", "y", *dropped, *given)
    assert message in " ".join(said.split())
