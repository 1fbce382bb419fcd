"""Rows without labels in the choice of delta: control variates of the out-of-fold margins."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from otdro import DROClassifier
from otdro.costs import Norm
from otdro.fences import NUMBER_FENCE, fenced
from otdro.losses import Hinge, Logistic
from otdro.problem import Sample
from otdro.radius.evidence import (
    FEW_LABELS,
    LOOK_AT,
    Corrections,
    Evidence,
    correction,
    rows_to_look_at,
)
from otdro.radius.folds import FoldFits, cross_validate, splits
from otdro.radius.rules import NODES, smoothed_loss
from otdro.solvers import Exact

N = 30
RNG = np.random.default_rng(0)
BETA = np.array([3.0, -2.0, 1.0, 0.0])


def draw(n):
    X = RNG.normal(size=(n, 4))
    return X, np.where(X @ BETA + 0.5 * RNG.normal(size=n) > 0, 1.0, -1.0)


X, Y = draw(N)
U, _ = draw(400)
DELTAS = np.array([0.3, 0.1, 0.03])


def evidence(unlabelled):
    sample = Sample(X, [Y], np.full(N, 1 / N), Logistic(), True)
    pairs = splits(sample, 5, None, 0)
    fits = FoldFits(sample, 1, Exact(tol=1e-6), pairs, unlabelled=unlabelled)
    [found] = cross_validate(fits, [Norm(2)], [[Norm(2)]] * 5, [DELTAS])
    return Evidence(sample, Norm(2), 1, DELTAS, found, True)


def test_correction_is_what_the_model_expects_there_minus_here():
    z, tested = RNG.normal(size=(50, 2)) * [1, 5], RNG.normal(size=(8, 2))
    z[0] = 1e6
    weights = RNG.uniform(1, 2, size=8)
    cut = np.minimum(np.abs(z), NUMBER_FENCE * np.quantile(np.abs(z), 0.75, axis=0)) * np.sign(z)
    p = 1 / (1 + np.exp(-tested))
    margin = np.average(p * tested - (1 - p) * tested, axis=0, weights=weights)
    square = np.average(tested**2, axis=0, weights=weights)
    here = [(np.tanh(cut / 2) * cut).mean(axis=0), (cut**2).mean(axis=0)]
    found = correction(Logistic(), z, tested, weights)
    assert_allclose(found, [here[0] - margin, here[1] - square])
    assert_allclose(correction(Logistic(), tested, tested, np.ones(8)), 0, atol=1e-15)


def test_loss_is_that_of_a_gaussian_with_the_corrected_moments():
    e = evidence(U)
    plain = replace(e, folds=replace(e.folds, corrections=None))
    # below 40 rows margins are replaced by a Gaussian altogether
    before, flat = smoothed_loss(plain, N)
    share = len(U) / (len(U) + N) * (1 - before.min() / flat)
    rows, z, weight = e.folds.entries(0, e.sample.weights)
    margin = fenced(z * Y[rows, None], weight)
    mean, square = share * e.folds.corrections.mean(0, e.folds.shares(e.sample.weights))
    at = weight @ margin + mean
    s = np.sqrt(weight @ margin**2 + square - at**2)
    assert (s > (weight @ (margin - weight @ margin) ** 2) ** 0.5 / 2).all()
    x, mass = np.polynomial.hermite_e.hermegauss(NODES)
    gaussian = mass / mass.sum() @ np.logaddexp(0, -(at + s * x[:, None]))
    assert_allclose(smoothed_loss(e, N)[0], gaussian)
    assert np.abs(smoothed_loss(e, N)[0] - before).max() > 1e-3


def test_corrections_lower_the_error_of_the_estimated_loss():
    new, labels = draw(20_000)
    errors = []
    for seed in range(12):
        some, y = draw(N)
        sample = Sample(some, [y], np.full(N, 1 / N), Logistic(), True)
        pairs = splits(sample, 5, None, seed)
        fits = FoldFits(sample, 1, Exact(tol=1e-6), pairs, unlabelled=U)
        [found] = cross_validate(fits, [Norm(2)], [[Norm(2)]] * 5, [DELTAS])
        moments = np.zeros((2, len(DELTAS)))
        for train, test in pairs:
            for j, delta in enumerate(DELTAS):
                model = DROClassifier(cost="euclidean", delta=delta).fit(some[train], y[train])
                m = labels * model.decision_function(new)
                moments[:, j] += np.array([m.mean(), (m**2).mean()]) * len(test) / N
        rows, z, weight = found.entries(0, sample.weights)
        margin = z * y[rows, None]
        own = np.stack([weight @ margin, weight @ margin**2])
        errors.append(
            [own - moments, own + found.corrections.mean(0, found.shares(sample.weights)) - moments]
        )
    plain, corrected = np.sqrt(np.mean(np.square(errors), axis=0))
    assert (corrected < 0.8 * plain).all()


def test_share_fades_with_labels_and_without_signal():
    made = Corrections(400, np.zeros((1, 1, 2, 1)))
    assert made.share(100, 1.0, 0.0) == 0.8
    assert made.share(100, 0.5, 0.5) == 0.2
    assert made.share(100, 1.0, 1.2) == 0.0


def test_which_rows_are_looked_at():
    sample = Sample(X, [Y], np.full(N, 1 / N), Logistic(), True)
    assert rows_to_look_at(None, sample) is None
    assert rows_to_look_at(U, sample) is U
    assert rows_to_look_at(U, replace(sample, loss=Hinge())) is None
    many = np.arange(3.0 * LOOK_AT)[:, None]
    part = rows_to_look_at(many, sample)
    assert len(part) == len(np.unique(part)) == LOOK_AT
    assert part.max() > 2.9 * LOOK_AT
    n = FEW_LABELS + 1
    enough = Sample(np.zeros((n, 4)), [np.ones(n)], np.full(n, 1 / n), Logistic(), True)
    assert rows_to_look_at(U, enough) is None


def test_rows_without_labels_help_to_choose_delta_under_a_fixed_cost():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DROClassifier(cost="euclidean").fit(X, Y, unlabelled=U)
    alone = DROClassifier(cost="euclidean").fit(X, Y)
    assert_array_equal(model.path_.coef, alone.path_.coef)
    values = [made.path_.candidates[0].criterion for made in (model, alone)]
    assert values[0] != values[1]


def test_several_classes_one_against_the_rest():
    y = np.digitize(X @ BETA, [-1.0, 1.0])
    made = DROClassifier(cost="euclidean", multi_class="ovr")
    assert len(made.fit(X, y, unlabelled=U).coef_) == 3


@pytest.mark.parametrize(
    "options",
    [{"rule": "min"}, {"loss": "hinge"}, {"delta": 0.1}, {"scoring": "accuracy"}],
)
def test_rows_that_play_no_part_are_said_to(options):
    with pytest.warns(UserWarning, match="nor the choice of delta has a use for"):
        DROClassifier(**{"cost": "euclidean", "cv": 2, "deltas": DELTAS, **options}).fit(
            X, Y, unlabelled=U
        )


@pytest.mark.parametrize("cost", ["euclidean", "learned"])
def test_rows_unlike_the_labelled_ones_have_no_say_in_delta(cost):
    alone = DROClassifier(cost="euclidean").fit(X, Y)
    with pytest.warns(UserWarning, match="differ from those of X by more than 4 standard errors"):
        model = DROClassifier(cost=cost).fit(X, Y, unlabelled=100 * U)
    assert model.score(U, np.sign(U @ BETA)) > alone.score(U, np.sign(U @ BETA)) - 0.03


def test_a_few_rows_far_out_without_labels_do_not_decide():
    far = U.copy()
    far[:4] *= 1e6
    model = DROClassifier(cost="euclidean").fit(X, Y, unlabelled=far)
    plain = DROClassifier(cost="euclidean").fit(X, Y, unlabelled=U)
    assert plain.delta_ / 2 < model.delta_ < 2 * plain.delta_


def test_rows_unlike_the_labelled_ones_to_one_class_have_no_say_for_the_others():
    y = np.digitize(X @ BETA, [-1.0, 1.0])
    made = DROClassifier(cost="euclidean", multi_class="ovr", random_state=0)
    with pytest.warns(UserWarning, match="differ from those of X"):
        found = made.fit(X, y, unlabelled=U + 3).delta_
    assert found == made.fit(X, y).delta_
