"""The worst case is an equilibrium: the model is the best plain answer to its own adversary."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from otdro import DROClassifier
from reference import strangers as reference
from reference.conic import Sample
from strangers import BUILT_IN_LOSSES, COSTS, STRANGE_LOSSES, Case, fitted, make_loss


def attained(case):
    """Whether the supremum is a maximum: the largest slope of a smooth loss is never reached."""
    return case.order == 2 or not isinstance(case.curve, reference.Smooth)


CASES = [
    case
    for loss in (*BUILT_IN_LOSSES, *STRANGE_LOSSES)
    for cost in COSTS
    for order in (1, 2)
    for case in [Case(loss, cost, order)]
    if not case.refusable and (order == 2 or np.isfinite(case.curve.lipschitz)) and attained(case)
]


def plain_fit(model, loss):
    """Return the worst case of a model and the best plain answer to it."""
    found = model.worst_case()
    # a hundredth of what is asserted: split rows make degenerate programs
    settings = {"cost": "euclidean", "order": 2, "delta": 0.0, "tol": 1e-7}
    plain = type(model)(loss, **settings)
    return found, plain.fit(found.points, found.targets, sample_weight=found.weights)


def at_radii():
    """Yield cases and radii: every loss, cost and order meets both; the rest is for test-all."""
    losses = [*BUILT_IN_LOSSES, *STRANGE_LOSSES]
    for case in CASES:
        place = losses.index(case.loss) + list(COSTS).index(case.cost) + case.order
        for turn, delta in enumerate((0.01, 0.1)):
            slow = (place + turn) % 2 == 1
            yield pytest.param(case, delta, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("case", "delta"), list(at_radii()), ids=str)
def test_plain_fit_to_the_worst_case_has_the_robust_risk(case, delta):
    model = fitted(case, delta)
    # every optimum here is below the risk of the constant model
    assert np.abs(model.coef_).max() > 1e-3
    found, plain = plain_fit(model, make_loss(case.loss))
    assert found.attained
    unit = case.unit(model.robust_risk_)
    # the model itself has the robust risk on these rows, so that no plain fit has more
    assert plain.robust_risk_ <= model.robust_risk_ + 1e-7 * unit
    assert plain.robust_risk_ >= model.robust_risk_ - 1e-5 * unit


@pytest.mark.parametrize(
    "case",
    [
        Case("smoothed_hinge", "l1", 1),
        Case("absolute", "linf", 2),
        Case("hinge", "euclidean", 2),
        Case("logistic", "mahalanobis", 2),
    ],
    ids=str,
)
def test_no_model_does_better_on_the_worst_case(case):
    """The same by the conic reference instead of a plain fit."""
    model = fitted(case, 0.1)
    found = model.worst_case()
    assert found.attained
    rows = Sample(found.points, found.targets, found.weights)
    best = reference.optimum(case.loss, "euclidean", 1, rows, 0.0).risk
    assert abs(best - model.robust_risk_) <= 1e-5 * case.unit(model.robust_risk_)


@pytest.mark.parametrize("delta", [0.005, 0.02, 0.1])
def test_tied_rows_share_their_mass_as_the_dual_point_says(delta):
    # 40 standardised rows of breast cancer: 2 lam/w^2 < 1/4, so that some rows have two maximisers
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:40]
    X = X[rows]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = DROClassifier("logistic", cost="euclidean", order=2, delta=delta, tol=1e-9)
    model.fit(X, y[rows])
    assert 2 * model.multiplier_ / np.linalg.norm(model.coef_) ** 2 < 0.25
    found, plain = plain_fit(model, "logistic")
    assert found.attained
    assert found.budget == pytest.approx(delta, rel=1e-6)
    assert plain.robust_risk_ == pytest.approx(model.robust_risk_, rel=1e-5)


def test_balanced_logistic_model_without_slopes_has_no_equilibrium():
    # the slopes at the score 0 are y/2 wherever a row goes: half the mean of yx must vanish, and
    # that takes twice the radius at which the slopes of the model do
    y = np.repeat([-1.0, 1.0], 20)
    X = np.random.default_rng(0).normal(size=(40, 3)) + 0.5 * y[:, None]
    X -= X.mean(axis=0)
    apart = np.linalg.norm((y[:, None] * X).mean(axis=0))
    model = DROClassifier("logistic", cost="euclidean", order=1, delta=0.75 * apart).fit(X, y)
    assert not model.coef_.any()
    assert not model.worst_case().attained
