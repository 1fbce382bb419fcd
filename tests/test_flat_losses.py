"""A loss with flat and linear parts, of which only value and derivatives are known."""

import numpy as np
import pytest

from otdro import Ball
from otdro.costs import Norm
from otdro.losses import Loss, PiecewiseQuadratic
from otdro.problem import Problem
from otdro.solvers import Exact

KAPPA = 0.03


class Arc(Loss):
    """Hinge loss whose kink is an arc: no curvature on either side of it."""

    task = "classification"
    lipschitz = 1.0
    smoothness = 1 / KAPPA

    def value(self, z, y):
        r = 1 - y * z
        alpha = np.clip(r / KAPPA, 0, 1)
        return alpha * r - KAPPA * alpha**2 / 2

    def derivative(self, z, y):
        return -y * np.clip((1 - y * z) / KAPPA, 0, 1)

    def curvature(self, z, y):
        r = 1 - y * z
        return np.where((r > 0) & (r < KAPPA), 1 / KAPPA, 0.0)


class Pieces(PiecewiseQuadratic):
    """The same loss by its slopes."""

    task = "classification"
    slopes = (0.0, 1.0)
    kappa = KAPPA


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("delta", [0.3, 0.1])
def test_a_bound_is_below_the_optimum(seed, order, delta):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 5))
    z = X @ rng.standard_normal(5)
    y = np.where(rng.random(30) < 1 / (1 + np.exp(-2 * z)), 1.0, -1.0)
    weights, ball = np.full(30, 1 / 30), Ball(Norm(2), delta, order)
    [[known]] = Exact(tol=1e-9).solve([Problem(X, y, weights, Pieces(), ball)], [delta])
    [[mine]] = Exact(max_iter=30).solve([Problem(X, y, weights, Arc(), ball)], [delta])
    assert mine.objective - mine.gap <= known.objective + 1e-8


def test_the_conjugate_of_an_end_of_the_slopes():
    y = np.array([1.0, -1.0, 1.0, -1.0])
    slopes = np.array([-1.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(
        Arc().conjugate(slopes, y), Pieces().conjugate(slopes, y), atol=1e-12
    )
