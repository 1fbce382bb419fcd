"""Every loss x cost x order x shape x delta against the independent conic optimum."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from otdro import Ball, DROClassifier, robust_risk
from otdro.losses import PiecewiseQuadratic
from otdro.problem import Problem
from otdro.solvers import Exact
from reference import conic
from tables import (
    COMBINATIONS,
    DELTAS,
    REFUSED,
    SHAPES,
    Case,
    constant,
    fitted,
    make_cost,
    make_loss,
    optimum,
)

CASES = [Case(*c, shape) for c in COMBINATIONS for shape in SHAPES]


def name(case):
    return "-".join(map(str, (case.loss, case.cost, case.order, case.shape)))


def unit(case, best):
    """The optimum, or the constant model's risk where the optimum is next to nothing of that."""
    return best if best > 1e-2 * constant(case) else constant(case)


def separable(case):
    return case.loss == "logistic" and case.shape in ("wide", "easy")


#: Shapes at the medium delta, the others at the tiny one: the reference of the order-2 logistic
#: loss takes a second each, and so each of its costs still meets each shape and each delta.
MEDIUM = {
    "euclidean": {"tall", "weighted", "wide", "duplicated"},
    "mahalanobis": {"tall", "weighted", "easy", "collinear"},
}


def compared(case, delta):
    """Return a case and a delta; the other half of the order-2 logistic ones is for test-all."""
    curved = (case.loss, case.order) == ("logistic", 2) and delta != "zero"
    slow = curved and (delta == "medium") != (case.shape in MEDIUM[case.cost])
    identity = f"{name(case)}-{delta}"
    return pytest.param(case, delta, id=identity, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(
    ("case", "delta"),
    [compared(case, delta) for case in CASES for delta in ("zero", "tiny", "medium")],
)
def test_objective_is_the_conic_optimum(case, delta):
    model, caught = fitted(case, DELTAS[delta])
    best = optimum(case, DELTAS[delta])
    assert abs(model.robust_risk_ - best) <= 1e-7 * unit(case, best)
    assert 0 <= model.gap_ <= 1e-9 * constant(case) * (1 + 1e-9)
    assert model.n_iter_ >= 1
    if delta == "zero" and separable(case):
        assert ["no minimiser exists" in message for message in caught] == [True]
    else:
        assert caught == []


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_robust_risk_is_that_of_the_coefficients(case, delta):
    """No risk is reported that the coefficients, put into another evaluation, do not have."""
    model, _ = fitted(case, DELTAS[delta])
    s = case.sample
    coef, intercept = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    assert np.isfinite([*coef, intercept]).all()
    assert s.fit_intercept or intercept == 0
    z = s.X @ coef + intercept
    value = conic.risk(case.form, s, z, conic.dual_norm(case.form, coef), DELTAS[delta])
    # rounding of scores that the targets' size sets
    noise = 1e-9 * constant(case)
    assert_allclose(model.robust_risk_, value, rtol=1e-9, atol=noise)
    empirical = s.weights @ conic.plain(case.form, s, z)
    assert_allclose(model.empirical_risk_, empirical, rtol=1e-9, atol=noise)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_robust_risk_anew_is_at_most_the_gap_below(loss, order, tol):
    """The attribute is the solver's bound; the function searches the multiplier anew."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    y = np.where(X @ [1, -1, 0.5, 0] + rng.standard_normal(60) > 0, 1, -1)
    model = DROClassifier(loss, cost="euclidean", order=order, delta=0.1, tol=tol).fit(X, y)
    anew = robust_risk(X, y, model.coef_, model.intercept_, model.loss_, model.ball_)
    assert -1e-12 <= model.robust_risk_ - anew <= model.gap_ + 1e-12


@pytest.mark.parametrize("case", CASES, ids=name)
def test_radius_beyond_the_threshold_gives_the_constant_model(case):
    """Beyond it the optimum is known: the constant model's risk."""
    model, caught = fitted(case, DELTAS["huge"])
    # a delta beyond the threshold is told, and nothing else
    assert all("every coefficient" in text or "hardly better" in text for text in caught)
    assert model.n_iter_ >= 1
    assert 0 <= model.gap_ <= 1e-9 * constant(case) * (1 + 1e-9)
    assert not np.any(model.coef_)
    assert_allclose(model.robust_risk_, constant(case), rtol=1e-9)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("shape", ["tall", "weighted"])
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c)))
def test_gap_bounds_the_suboptimality_of_early_stops(combination, shape, max_iter):
    case = Case(*combination, shape)
    best = optimum(case, DELTAS["medium"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "every coefficient|the model is hardly better")
        model = case.fit(DELTAS["medium"], max_iter=max_iter)
    excess = model.robust_risk_ - best
    assert excess >= -1e-8 * unit(case, best)
    assert excess <= model.gap_ + 1e-8 * unit(case, best)
    certified = model.gap_ <= 1e-9 * constant(case) * (1 + 1e-9)
    assert certified == (not caught)
    for warning in caught:
        assert issubclass(warning.category, ConvergenceWarning)
        assert "gap" in str(warning.message)
        assert "max_iter" in str(warning.message)


@pytest.mark.parametrize(("loss", "cost", "order"), REFUSED)
def test_what_is_not_covered_is_refused_with_a_way_out(loss, cost, order):
    case = Case(loss, cost, order, "tall")
    with pytest.raises(ValueError, match=rf"order={order}.*Use order={3 - order}"):
        case.fit(0.1)


@pytest.mark.parametrize("shape", ["wide", "easy"])
@pytest.mark.parametrize("cost", ["euclidean", "mahalanobis", "l1", "linf"])
def test_separable_logistic_without_a_ball_warns_and_stays_finite(cost, shape):
    case = Case("logistic", cost, 1, shape)
    with pytest.warns(ConvergenceWarning, match="separable"):
        model = case.fit(0.0)
    assert np.isfinite(model.coef_).all()
    assert (model.predict(case.sample.X) == case.sample.y).all()


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(map(str, c)))
def test_robust_risk_is_the_supremum_over_a_grid_of_moves(combination):
    """min over lam of lam delta + mean max_t { l(z + t w) - lam |t|^order }, t on a fine grid."""
    (loss, cost, order), delta = combination, 0.1
    case = Case(loss, cost, order, "tall")
    s = case.sample
    coef = np.array([0.6, -0.3, 0.0, 0.2])
    ball = Ball(make_cost(cost, 4), delta, order)
    ours = robust_risk(s.X, s.y, coef, 0.1, make_loss(loss), ball)
    w = conic.dual_norm(case.form, coef)
    far = 1e7 if order == 1 else 1e2
    t = np.concatenate([np.linspace(-12, 12, 4801), np.geomspace(12, far, 400)])
    t = np.concatenate([t, -np.geomspace(12, far, 400)])
    gains = conic.plain(case.form, s, s.X @ coef + 0.1 + t[:, None] * w)

    def dual(lam):
        return lam * delta + s.weights @ (gains - lam * np.abs(t[:, None]) ** order).max(axis=0)

    # convex in lam: a grid search, then a finer one
    lams = np.geomspace(1e-3, 1e2, 60) * max(w, w**2)
    for _ in range(4):
        values = [dual(lam) for lam in lams]
        k = int(np.argmin(values))
        lams = np.linspace(lams[max(k - 1, 0)], lams[min(k + 1, len(lams) - 1)], 30)
    assert_allclose(ours, min(values), rtol=2e-4)


def multiple(loss, factor):
    """Return a loss with pieces times a number: its slopes times it, its kappa over it."""

    class Multiple(PiecewiseQuadratic):
        task = loss.task
        slopes = tuple(factor * slope for slope in loss.slopes)
        kappa = loss.kappa / factor

    return Multiple()


WITH_PIECES = [c for c in COMBINATIONS if c[0] != "logistic"]


@pytest.mark.parametrize("factor", [0.3, 4.0])
@pytest.mark.parametrize("shape", ["tall", "weighted"])
@pytest.mark.parametrize("combination", WITH_PIECES, ids=lambda c: "-".join(map(str, c)))
def test_a_multiple_of_a_loss_has_the_multiple_of_its_risk(combination, shape, factor):
    case = Case(*combination, shape)
    s, cost, loss = case.sample, make_cost(case.cost, 4), make_loss(case.loss)
    one, other = (
        Exact(tol=1e-10).solve(
            [Problem(s.X, s.y, s.weights, each, Ball(cost, 0.1, case.order), s.fit_intercept)],
            [0.1, 0.01],
        )[0]
        for each in (loss, multiple(loss, factor))
    )
    for single, many in zip(one, other, strict=True):
        assert many.converged
        assert_allclose(many.objective, factor * single.objective, rtol=1e-8)
        assert_allclose(many.multiplier, factor * single.multiplier, rtol=1e-3)
