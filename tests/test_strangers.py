"""A stranger's losses and norms, written by CONTRIBUTING.md alone, are solved like the built-in."""

import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from otdro import Ball, DROClassifier, DRORegressor, WorstCase, robust_risk
from otdro.radius import path
from reference import strangers as reference
from strangers import (
    BEYOND,
    BUILT_IN_LOSSES,
    CASES,
    COSTS,
    DELTAS,
    REFUSABLE,
    STRANGE_COSTS,
    STRANGE_LOSSES,
    Case,
    GroupNorm,
    LThreeHalves,
    Softplus,
    WeightedL1,
    brute_force,
    constant,
    fitted,
    make_loss,
    optimum,
    radius,
    solved,
)

SHAPED = [Case(c.loss, c.cost, c.order, shape) for c in CASES for shape in DELTAS]


def at_radii():
    """Yield cases and radii: every loss, cost and order meets both of the radii between the ends.

    The reference takes longest there; the other half of that product is for test-all.
    """
    losses = [*STRANGE_LOSSES, *BUILT_IN_LOSSES]
    for case in SHAPED:
        place = losses.index(case.loss) + list(COSTS).index(case.cost) + case.order
        for delta in DELTAS[case.shape]:
            left = {0: 0.01, 1: 0.1}[place % 2] if case.shape == "tall" else None
            marks = [pytest.mark.slow] if delta == left else []
            if delta == BEYOND:
                marks += [pytest.mark.constant_model("beyond the zero threshold")]
            yield pytest.param(case, delta, id=f"{case}-{delta}", marks=marks)


#: What the reference is good for, relative to the optimum.
REFERENCE = 1e-7

every_fit = pytest.mark.parametrize(("case", "delta"), list(at_radii()))
every_shape = pytest.mark.parametrize("case", SHAPED, ids=str)
every_strange_loss = pytest.mark.parametrize("name", STRANGE_LOSSES)
every_strange_cost = pytest.mark.parametrize("name", STRANGE_COSTS)


def coefficients(model):
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


# the stranger's classes themselves


@every_strange_loss
def test_loss_is_that_of_the_reference(name):
    loss, curve = make_loss(name), reference.CURVES[name]
    rng = np.random.default_rng(0)
    z = rng.normal(scale=3, size=200)
    y = rng.normal(size=200) if loss.task == "regression" else rng.choice([-1.0, 1.0], 200)
    h = 1e-6
    assert loss.task == curve.task
    assert loss.lipschitz == curve.lipschitz
    assert_allclose(loss.value(z, y), curve.of_scores(z, y), atol=1e-12)
    slope = (curve.of_scores(z + h, y) - curve.of_scores(z - h, y)) / (2 * h)
    assert_allclose(loss.derivative(z, y), slope, atol=1e-5)
    assert (loss.curvature(z, y) <= loss.smoothness).all()


@every_strange_cost
def test_cost_is_that_of_the_reference(name):
    cost = COSTS[name](4)
    W = np.random.default_rng(0).normal(size=(3, 5, 4))
    assert_allclose(cost.norm(W), reference.NORMS[name](W))
    assert_allclose(cost.dual_norm(W)[1, 2], reference.DUAL_NORMS[name](W[1, 2]))
    V = cost.direction(W)
    assert_allclose(cost.norm(V), 1.0)
    assert_allclose((W * V).sum(axis=-1), cost.dual_norm(W))
    assert_allclose(cost.norm(cost.direction(np.zeros(4))), cost.norm(cost.direction(np.eye(4)[0])))


@every_strange_loss
def test_loss_survives(name):
    loss = make_loss(name)
    for copy in (clone(loss), pickle.loads(pickle.dumps(loss))):
        assert type(copy) is type(loss)
        assert copy.get_params() == loss.get_params()
    assert clone(Softplus(scale=3.0)).scale == 3.0


@every_strange_cost
def test_cost_survives(name):
    cost = COSTS[name](4)
    for copy in (clone(cost), pickle.loads(pickle.dumps(cost))):
        assert repr(copy) == repr(cost)
        assert_allclose(copy.norm(np.arange(4.0)), cost.norm(np.arange(4.0)))
    assert set(cost.get_params()) <= {"groups", "weights"}


# the reference


@pytest.mark.slow
@every_shape
def test_reference_has_the_risk_of_its_own_solution(case):
    found = solved(case, 0.1)
    risk = brute_force(case, found.beta, found.b, 0.1)
    assert_allclose(risk, found.risk, rtol=1e-4)


@pytest.mark.parametrize("order", [1, 2])
def test_softplus_is_the_logistic_loss_in_other_units(order):
    # s log(1 + e^(-m/s)): coefficients and risk are s times those of s = 1
    softplus = optimum(Case("softplus", "euclidean", order), 0.01)
    logistic = optimum(Case("logistic", "euclidean", order), 0.01)
    assert_allclose(softplus, 2 * logistic, rtol=1e-7)


# the fits


@every_fit
def test_fit_is_the_optimum(case, delta):
    model = fitted(case, delta)
    best = optimum(case, radius(case, delta))
    unit = case.unit(best)
    assert abs(model.robust_risk_ - best) <= 1e-6 * unit
    assert 0 <= model.gap_ <= 1e-8 * constant(case) * (1 + 1e-9)
    assert model.robust_risk_ - best <= model.gap_ + REFERENCE * unit
    assert model.delta_ == radius(case, delta)
    if delta == BEYOND:
        assert_allclose(model.coef_, 0, atol=1e-6)


@pytest.mark.parametrize("case", REFUSABLE, ids=str)
def test_curved_loss_at_order_two_under_another_norm_is_exact_or_refused(case):
    try:
        model = fitted(case, 0.1)
    except ValueError as error:
        assert re.search(r"order=2.*order=1", str(error), re.DOTALL), error  # noqa: PT017
        return
    best = optimum(case, 0.1)
    assert abs(model.robust_risk_ - best) <= 1e-6 * case.unit(best)
    assert model.robust_risk_ - best <= model.gap_ + REFERENCE * case.unit(best)


@pytest.mark.parametrize("case", REFUSABLE, ids=str)
def test_without_a_ball_nothing_is_refused(case):
    model = fitted(case, 0.0)
    best = optimum(case, 0.0)
    assert abs(model.robust_risk_ - best) <= 1e-6 * case.unit(best)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("loss", ["half_squared", "squared", "squared_hinge"])
def test_order_one_needs_a_lipschitz_loss(loss, cost):
    with pytest.raises(ValueError, match=r"order=1 needs a Lipschitz loss.*order=2"):
        Case(loss, cost, 1).fit(0.1)


@pytest.mark.parametrize("cost", [GroupNorm(((0, 1), (1, 2, 3))), WeightedL1([1.0, 2.0])])
def test_check_of_a_cost_is_called(cost):
    case = Case("softplus", "euclidean", 1)
    with pytest.raises(ValueError, match=r"columns once|positive numbers"):
        case.fit(0.1, cost=cost)


# the risk of any model


def repeated(sample):
    """Return rows repeated by their weights, which are multiples of the least of them."""
    times = np.rint(sample.weights / sample.weights[sample.weights > 0].min()).astype(int)
    return np.repeat(sample.X, times, axis=0), np.repeat(sample.y, times)


def priced(case, beta, b, delta):
    ball = Ball(case.make_cost(), delta, case.order)
    return robust_risk(*repeated(case.sample), beta, b, make_loss(case.loss), ball)


@every_shape
def test_robust_risk_of_the_fitted_model(case):
    model = fitted(case, 0.1)
    beta, b = coefficients(model)
    risk = priced(case, beta, b, 0.1)
    unit = case.unit(model.robust_risk_)
    assert abs(risk - model.robust_risk_) <= 1e-7 * unit
    brute = brute_force(case, beta, b, 0.1)
    assert brute <= risk + 1e-9 * unit
    assert_allclose(brute, risk, rtol=1e-4)


@pytest.mark.parametrize("delta", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("case", [*CASES, *REFUSABLE], ids=str)
def test_robust_risk_of_other_coefficients(case, delta):
    beta, b = np.array([0.8, -0.5, 0.3, 0.0]), 0.2
    risk = priced(case, beta, b, delta)
    brute = brute_force(case, beta, b, delta)
    assert brute <= risk * (1 + 1e-9)
    assert_allclose(brute, risk, rtol=1e-4)


# the worst case


@every_shape
def test_worst_case_is_in_the_ball_and_has_the_risk(case):
    model = fitted(case, 0.1)
    found, s = model.worst_case(reach=np.inf), case.sample
    beta, b = coefficients(model)
    unit = case.unit(model.robust_risk_)
    assert isinstance(found, WorstCase)
    moved = reference.NORMS[case.cost](found.points - s.X[found.origin])
    assert found.budget <= 0.1 * (1 + 1e-9)
    assert_allclose(found.weights @ moved**case.order, found.budget, rtol=1e-6, atol=1e-15)
    assert (found.weights >= 0).all()
    mass = np.bincount(found.origin, found.weights, minlength=len(s.y))
    assert_allclose(mass, s.weights, rtol=1e-12, atol=1e-15)
    assert_allclose(found.targets, s.y[found.origin])
    rows = case.curve.of_scores(found.points @ beta + b, found.targets)
    assert_allclose(found.weights @ rows, found.risk, atol=1e-7 * unit)
    assert found.risk <= model.robust_risk_ + 1e-8 * unit
    assert found.risk >= model.robust_risk_ - found.shortfall - 1e-8 * unit
    # an equilibrium may fall short by what the fit itself leaves
    assert found.shortfall <= (1e-8 if found.attained else 1e-5) * unit + model.gap_


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("loss", ["softplus", "log_cosh"])
def test_slope_that_is_never_reached_has_no_order_one_worst_case(loss, cost):
    model = fitted(Case(loss, cost, 1), 0.01)
    assert model.coef_.any()
    assert not model.worst_case().attained
    assert not model.worst_case(reach=np.inf).attained


# the path and the folds


GRID = [0.1, 0.01]
CHOSEN = [
    *[Case(loss, "euclidean", 2) for loss in STRANGE_LOSSES],
    *[Case("logistic", cost, 1) for cost in STRANGE_COSTS],
    *[Case("half_squared", cost, 2) for cost in STRANGE_COSTS],
    Case("smoothed_hinge", "group", 1),
    Case("log_cosh", "three_halves", 1),
]


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_path_is_exact(case):
    s = case.sample
    found = path(s.X, s.y, make_loss(case.loss), case.make_cost(), case.order, GRID, tol=1e-8)
    for delta, risk, gap in zip(GRID, found.robust_risk, found.gap, strict=True):
        best = optimum(case, delta)
        assert abs(risk - best) <= 1e-6 * case.unit(best)
        assert 0 <= gap <= 1e-8 * constant(case) * (1 + 1e-9)


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_path_starts_at_the_zero_threshold(case):
    s = case.sample
    found = path(s.X, s.y, make_loss(case.loss), case.make_cost(), case.order, tol=1e-6)
    assert (np.diff(found.deltas) < 0).all()
    assert_allclose(found.robust_risk[0], constant(case), rtol=1e-5)
    assert (np.diff(found.robust_risk) <= 1e-6 * constant(case)).all()


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_delta_is_chosen_by_folds(case):
    s = case.sample
    model = case.estimator("cv", deltas=GRID, cv=3, random_state=0).fit(s.X, s.y)
    assert model.delta_ in GRID
    assert np.isfinite(model.path_.score_mean).all()
    assert np.isfinite(model.score(s.X, s.y))
    best = optimum(case, model.delta_)
    assert abs(model.robust_risk_ - best) <= 1e-6 * case.unit(best)


@pytest.mark.parametrize("name", ["smoothed_hinge", "asymmetric_huber", "softplus"])
def test_learned_cost_takes_a_stranger(name):
    case = Case(name, "euclidean", 1)
    s = case.sample
    kind = DROClassifier if case.curve.task == "classification" else DRORegressor
    model = kind(make_loss(name), deltas=GRID, random_state=0).fit(s.X, s.y)
    assert np.isfinite(model.score(s.X, s.y))
    assert 0 <= model.gap_ <= 1e-6 * constant(case) * (1 + 1e-9)


def test_estimator_with_strangers_survives():
    case = Case("softplus", "three_halves", 1)
    model = DROClassifier(Softplus(scale=2.0), cost=LThreeHalves(), order=1, delta=0.1)
    copy = clone(model)
    assert isinstance(copy.loss, Softplus)
    assert isinstance(copy.cost, LThreeHalves)
    copy.set_params(loss__scale=3.0)
    assert model.loss.scale == 2.0
    fit = model.fit(case.sample.X, case.sample.y)
    again = pickle.loads(pickle.dumps(fit))
    assert_allclose(again.coef_, fit.coef_)
