"""The worst case is an equilibrium: the model is the best plain answer to its own adversary."""

import numpy as np
import pytest

from otdro import DROClassifier
from reference import strangers as reference
from reference.conic import Sample
from strangers import BUILT_IN_LOSSES, COSTS, STRANGE_LOSSES, Case, fitted, make_loss

CASES = [
    case
    for loss in (*BUILT_IN_LOSSES, *STRANGE_LOSSES)
    for cost in COSTS
    for order in (1, 2)
    for case in [Case(loss, cost, order)]
    if not case.refusable and (order == 2 or np.isfinite(case.curve.lipschitz))
]


@pytest.mark.parametrize("delta", [0.01, 0.1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_plain_fit_to_the_worst_case_has_the_robust_risk(case, delta):
    model = fitted(case, delta)
    found = model.worst_case()
    if not (found.attained and np.any(model.coef_)):
        pytest.skip("no equilibrium is claimed")
    settings = {"cost": "euclidean", "order": 2, "tol": 1e-9}
    plain = type(model)(make_loss(case.loss), delta=0.0, **settings)
    plain.fit(found.points, found.targets, sample_weight=found.weights)
    unit = case.unit(model.robust_risk_)
    # the model itself has the robust risk on these rows: no plain fit has more
    assert plain.robust_risk_ <= model.robust_risk_ + 1e-7 * unit
    assert plain.robust_risk_ >= model.robust_risk_ - 1e-5 * unit


@pytest.mark.parametrize("case", [Case("smoothed_hinge", "l1", 1), Case("absolute", "linf", 2),
                                  Case("logistic", "euclidean", 2)], ids=str)  # fmt: skip
def test_no_model_at_all_does_better_on_the_worst_case(case):
    """The same by the conic reference instead of a plain fit."""
    model = fitted(case, 0.01)
    found = model.worst_case()
    assert found.attained
    rows = Sample(found.points, found.targets, found.weights)
    best = reference.optimum(case.loss, "euclidean", 1, rows, 0.0)
    unit = case.unit(model.robust_risk_)
    assert abs(best - model.robust_risk_) <= 1e-5 * unit


def test_balanced_logistic_model_without_slopes_has_no_equilibrium():
    # slopes y/2 at the score 0 whatever the move: the means of the classes meet only within
    # twice the zero threshold
    rng = np.random.default_rng(0)
    y = np.repeat([-1.0, 1.0], 20)
    X = rng.normal(size=(40, 3)) + 0.5 * y[:, None]
    X -= X.mean(axis=0)
    apart = np.linalg.norm((y[:, None] * X).mean(axis=0))
    model = DROClassifier("logistic", cost="euclidean", order=1, delta=0.75 * apart).fit(X, y)
    assert not model.coef_.any()
    assert not model.worst_case().attained
