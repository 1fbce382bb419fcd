"""Rows without labels: they shape a learned cost, and have no other part in a fit."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otdro import DROClassifier
from otdro.metrics import Spectral

RNG = np.random.default_rng(0)
BETA = np.array([3.0, -2.0, 1.0, 0.0])
X = RNG.normal(size=(30, 4))
Y = np.where(X @ BETA + 0.5 * RNG.normal(size=30) > 0, 1.0, -1.0)
U = RNG.normal(size=(400, 4))


@pytest.mark.parametrize("cost", ["learned", Spectral()])
def test_rows_without_labels_shape_a_learned_cost(cost):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DROClassifier(cost=cost).fit(X, Y, unlabelled=U)
    alone = DROClassifier(cost=cost).fit(X, Y)
    assert not np.allclose(model.cost_.matrix, alone.cost_.matrix)


def test_rows_without_labels_have_no_part_in_the_choice_of_delta():
    with pytest.warns(UserWarning, match="has no use for unlabelled rows"):
        model = DROClassifier(cost="euclidean").fit(X, Y, unlabelled=U)
    alone = DROClassifier(cost="euclidean").fit(X, Y)
    assert model.delta_ == alone.delta_
    assert_array_equal(model.coef_, alone.coef_)


def test_a_few_rows_far_out_without_labels_do_not_decide():
    far = U.copy()
    far[:4] *= 1e6
    model = DROClassifier().fit(X, Y, unlabelled=far)
    plain = DROClassifier().fit(X, Y, unlabelled=U)
    assert plain.delta_ / 2 < model.delta_ < 2 * plain.delta_
