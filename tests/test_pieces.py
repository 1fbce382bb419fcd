"""Batches of interior points: losses with pieces beside the conic method, which solves one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otdro.costs import Norm
from otdro.losses import Absolute, Hinge, Huber, PiecewiseQuadratic, Quantile, SquaredHinge
from otdro.problem import Ball, Problem
from otdro.solvers import Exact


class SteepSquaredHinge(PiecewiseQuadratic):
    """2 r^2 for r > 0: 2 kappa is not 1, as it is for the squared losses of the package."""

    task = "classification"
    slopes = (0.0, np.inf)
    kappa = 0.25


LOSSES = [Hinge(), SquaredHinge(), SteepSquaredHinge(), Absolute(), Quantile(0.2), Huber(1.35)]
#: Tolerances of the batches and, below what they can be asked for, of the conic method.
BATCH, CONIC = 1e-6, 1e-9


def rows_of(kind, rng):
    """Return rows with what makes interior points fail: ties, offsets, scales, copies."""
    X = rng.standard_normal((30, 4))
    if kind == "ties":
        return np.round(X)
    if kind == "indicators":
        return (X > 0).astype(float)
    if kind == "offsets":
        return X + 100.0
    if kind == "scales":
        return X * [1e-3, 1.0, 10.0, 1e3]
    if kind == "copies":
        return np.repeat(X[:8], 4, axis=0)[:30]
    if kind == "a constant column":
        return np.column_stack([X, np.ones(30)])
    if kind == "more columns than rows":
        return rng.standard_normal((30, 50))
    return X


def problem(loss, kind, fit_intercept=True, weights=None):
    rng = np.random.default_rng(3)
    X = rows_of(kind, rng)
    y = X[:, 0] / X[:, 0].std() + rng.standard_normal(30)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    weights = np.full(30, 1 / 30) if weights is None else weights
    order = 1 if np.isfinite(loss.lipschitz) else 2
    return Problem(X, y, weights, loss, Ball(Norm(2), 1.0, order), fit_intercept)


def radii(whole):
    """Return deltas from twice the one of the constant model down to nearly none."""
    loss, (b, risk) = whole.loss, whole.constant
    slopes = whole.weights * loss.derivative(np.full(len(whole.y), float(b)), whole.y)
    pull = np.linalg.norm(whole.X.T @ slopes) * np.logspace(0.3, -4, 6)
    if whole.ball.order == 1:
        return pull / loss.lipschitz
    # the root of E r_+^2 has the gradient of the mean loss over 2 root(mean loss)
    return np.square(pull / (2 * np.sqrt(risk)))


KINDS = [
    "ordinary",
    "ties",
    "indicators",
    "offsets",
    "scales",
    "copies",
    "a constant column",
    "more columns than rows",
]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_batches_agree_with_the_conic_method(loss, kind, fit_intercept):
    whole = problem(loss, kind, fit_intercept)
    deltas, unit = radii(whole), whole.constant[1]
    [batch] = Exact(tol=BATCH).solve([whole], deltas)
    [conic] = Exact(tol=CONIC).solve([whole], deltas)
    for each, reference in zip(batch, conic, strict=True):
        assert each.converged
        assert each.gap <= BATCH * unit
        # neither bound is above the other's risk
        assert each.objective - each.gap <= reference.objective + 1e-9 * unit
        assert reference.objective - reference.gap <= each.objective + 1e-9 * unit
        if kind == "ordinary":
            assert_allclose(each.multiplier, reference.multiplier, rtol=1e-2, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_fold_is_solved_as_without_company(loss):
    whole = problem(loss, "ordinary")
    rng = np.random.default_rng(0)
    folds = []
    for part in np.array_split(rng.permutation(30), 3):
        weights = np.full(30, 1 / 20)
        weights[part] = 0.0
        folds.append(whole.weighted(weights))
    deltas = radii(whole)
    together = Exact().solve([whole, *folds], deltas)
    for one, solutions in zip([whole, *folds], together, strict=True):
        [alone] = Exact().solve([one], deltas)
        for solution, single in zip(solutions, alone, strict=True):
            assert solution.converged
            assert_allclose(solution.objective, single.objective, atol=2e-6 * one.constant[1])


@pytest.mark.parametrize("loss", [Absolute(), Huber(1.35)], ids=["absolute", "huber"])
def test_a_constant_target_is_met(loss):
    whole = problem(loss, "ordinary")
    flat = Problem(whole.X, np.full(30, 2.5), whole.weights, loss, whole.ball, True)
    [[solution]] = Exact().solve([flat], [0.1])
    assert solution.converged
    assert not solution.coef.any()
    assert solution.intercept == 2.5
    assert solution.objective == 0
