"""Deterministic smoothing and the Sinkhorn ball, against the exact solver and other integrals."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from sklearn.base import clone

from otdro.costs import Norm
from otdro.design import Design
from otdro.duality import Round
from otdro.losses import Hinge, Huber, Logistic, Squared, SquaredHinge
from otdro.losses.base import Loss
from otdro.problem import Ball, Problem
from otdro.solvers import Exact, Quadrature, Sinkhorn
from otdro.solvers.smoothing import Smoothing, dual_rows, integrate, smoothed_risk
from problems import sample
from solving import solution


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize(("n", "d", "delta"), [(40, 30, 0.1), (500, 10, 0.01), (500, 10, 0.1)])
def test_small_eps_reaches_the_exact_optimum(loss, n, d, delta):
    problem = sample(n, d, loss, delta)
    exact, found = solution(Exact(), problem), solution(Quadrature(), problem)
    assert found.converged
    assert_allclose(found.objective, exact.objective, rtol=1e-5)
    assert found.objective - found.gap <= exact.objective * (1 + 1e-9)


@pytest.mark.parametrize(
    ("delta", "seed"), [(0.1, 0), (0.1, 1), (0.05, 0), (0.01, 0), (0.003, 1), (0.001, 0)]
)
def test_tied_rows_are_no_obstacle(delta, seed):
    problem = sample(40, 30, Logistic(), delta, seed)
    found = solution(Quadrature(), problem)
    assert 2 * found.multiplier < problem.ball.cost.dual_norm(found.coef) ** 2 / 4
    assert found.converged
    exact = solution(Exact(tol=1e-8), problem)
    assert_allclose(found.objective, exact.objective, rtol=1e-5)


@pytest.mark.parametrize("loss", [Huber(), SquaredHinge()], ids=lambda v: type(v).__name__)
def test_other_losses_approach_the_exact_optimum(loss):
    problem = sample(60, 3, loss, 0.05)
    exact, found = solution(Exact(), problem), solution(Quadrature(eps=1e-4), problem)
    assert_allclose(found.objective, exact.objective, rtol=1e-3)
    assert found.objective - found.gap <= exact.objective


class HalfSquared(Squared):
    """(y - z)^2/2."""

    kappa = 1.0


def test_half_the_squared_loss_has_half_the_risk():
    """The closed form of the integral, and the gap, hold for any kappa."""
    whole, half = sample(100, 4, Squared(), 0.05), sample(100, 4, HalfSquared(), 0.05)
    one, two = (solution(Quadrature(tol=1e-8), each) for each in (whole, half))
    assert_allclose(two.coef, one.coef, rtol=1e-6)
    assert_allclose(two.objective, one.objective / 2, rtol=1e-10)
    assert two.gap <= 1e-10 * two.objective
    z, y = np.array([-2.0, 0.1, 1.3]), np.array([1.0, 1.0, -1.0])
    closed = integrate(HalfSquared(), z, y, 0.3, 0.2, 41)
    g, weight = np.polynomial.hermite_e.hermegauss(80)
    power = HalfSquared().value(z[:, None] + 0.3 * g, y[:, None]) / 0.2
    mass = weight / np.sqrt(2 * np.pi) * np.exp(power)
    assert_allclose(closed.value, 0.2 * np.log(mass.sum(axis=1)), rtol=1e-10)
    # dG/deps = (G - mean loss)/eps under the weighted normal
    mean = (mass * power * 0.2).sum(axis=1) / mass.sum(axis=1)
    assert_allclose(closed.value - 0.2 * closed.eps, mean, rtol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
def test_gap_of_a_quadratic_loss_where_the_rows_can_nearly_be_interpolated(intercept):
    problem = sample(26, 31, Squared(), 5e-4, seed=3, intercept=intercept)
    found, exact = solution(Quadrature(), problem), solution(Exact(), problem)
    assert found.objective - found.gap <= exact.objective * (1 + 1e-9)
    assert found.gap <= found.objective - exact.objective + 1e-6 * np.mean(problem.y**2)


def test_progress_goes_through_the_logger(caplog):
    problem = sample(40, 3, Logistic(), 0.05)
    with caplog.at_level("INFO", logger="otdro"):
        solution(Quadrature(), problem)
        solution(Sinkhorn(), problem)
    assert "quadrature: step" in caplog.text
    assert "sinkhorn: step" in caplog.text


def test_columns_of_very_different_scales():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) * [1.0, 1e-3]
    y = X[:, 0] + 2000 * X[:, 1] + rng.normal(size=200)
    weights = np.full(200, 1 / 200)
    for loss, target in ((Squared(), y), (Logistic(), np.sign(y))):
        for delta in (1e-3, 0.01, 0.1):
            problem = Problem(X, target, weights, loss, Ball(Norm(2), delta, 2))
            found = solution(Quadrature(), problem)
            assert_allclose(found.objective, solution(Exact(), problem).objective, rtol=1e-5)


def test_without_intercept_and_where_the_constant_is_optimal():
    problem = sample(100, 4, Logistic(), 0.01, intercept=False)
    found = solution(Quadrature(), problem)
    assert found.intercept == 0
    assert_allclose(found.objective, solution(Exact(), problem).objective, rtol=1e-5)
    flat = solution(Quadrature(), sample(100, 4, Logistic(), 50.0))
    assert not flat.coef.any()
    assert flat.gap == 0


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber()], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize(("rho", "eps"), [(0.3, 0.5), (0.2, 0.15), (0.05, 0.02), (0.02, 0.003)])
def test_trapezoid_equals_adaptive_quadrature(loss, rho, eps):
    z, y = np.array([-2.0, 0.1, 1.3, 3.0]), np.array([1.0, 1.0, -1.0, 1.0])
    found = integrate(loss, z, y, rho, eps, 41).value
    for i in range(4):
        top = loss.inner(z[i : i + 1], y[i : i + 1], rho, eps / 2)
        shift, best = (float(v) for v in (top.shift[0, 0], top.value.max()))

        def density(g, i=i, best=best):
            value = loss.value(np.array([z[i] + rho * g]), y[i : i + 1])[0]
            return np.exp((value - best) / eps - g**2 / 2) / np.sqrt(2 * np.pi)

        g = shift / rho
        area = quad(density, g - 12, g + 12, points=[g], limit=200, epsabs=1e-13)[0]
        assert_allclose(
            found[i],
            best + eps * np.log(area),
            atol=1e-9 + (1e-4 if isinstance(loss, Huber) else 1e-6) * eps,
        )


class Plain(Loss):
    """The logistic loss without its inner supremum."""

    task, lipschitz, smoothness = "classification", 1.0, 0.25
    value, derivative, curvature = Logistic.value, Logistic.derivative, Logistic.curvature


@pytest.mark.parametrize("kappa", [0.001, 0.05, 0.1, 0.125, 0.2, 2.0])
def test_maxima_of_a_loss_that_does_not_know_them(kappa):
    m = np.concatenate([np.linspace(-4, 6, 101), [1 / (4 * kappa), -40.0, 800.0]])
    for y in (np.ones_like(m), -np.ones_like(m)):
        ours = Plain().inner(y * m, y, 1.0, kappa)
        theirs = Logistic().inner(y * m, y, 1.0, kappa)
        assert_allclose(ours.value.max(axis=0), theirs.value.max(axis=0), atol=1e-8)


def test_maxima_with_one_kappa_a_row():
    m, kappa = np.linspace(-4, 6, 101), np.geomspace(0.02, 2, 101)
    ours = Logistic().inner(m, np.ones_like(m), 1.0, kappa)
    for i in range(0, 101, 10):
        alone = Logistic().inner(m[i : i + 1], np.ones(1), 1.0, kappa[i]).value.max(axis=0)
        assert_allclose(ours.value.max(axis=0)[i], alone[0], atol=1e-11)


@pytest.mark.parametrize("d", [2, 30])
@pytest.mark.parametrize("eps", [0.5, 0.05, 0.005])
@pytest.mark.parametrize(("lam", "s"), [(0.5, 1.0), (2.0, 1.0), (2.0, 4.0)])
def test_theorem_2(d, eps, lam, s):
    """0 <= phi - phi_eps <= (d eps/2) log(1 + k) + lam mean t^2/(1 + k), k = 2 lam s^2/eps."""
    rng = np.random.default_rng(0)
    z, y, w = rng.normal(size=50), rng.choice([-1.0, 1.0], 50), 1.3
    k = 2 * lam * s**2 / eps
    _, tau, _ = Smoothing(eps, scale=s).at(lam)
    rho = w * tau
    smoothed = integrate(Logistic(), z, y, rho, eps, 401).value - eps * d / 2 * np.log(1 + k)
    inner = Logistic().inner(z, y, w, lam)
    best = inner.value.argmax(axis=0)
    t = inner.shift[best, np.arange(50)] / w
    error = inner.value.max(axis=0) - smoothed
    bound = d * eps / 2 * np.log(1 + k) + lam * t**2 / (1 + k)
    assert (error >= -1e-9).all()
    assert (error <= bound + 1e-9).all()


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_sinkhorn_tends_to_the_transport_ball(loss):
    problem = sample(100, 4, loss, 0.05)
    exact = solution(Exact(), problem).objective
    risks = [solution(Sinkhorn(eps=eps), problem).objective for eps in (1.0, 0.1, 0.01)]
    assert risks == sorted(risks, reverse=True)
    assert_allclose(risks[-1], exact, rtol=2e-3)
    assert risks[-1] > exact


SMOOTHINGS = {"fixed eps": Smoothing(eps=0.2, scale=2.0), "entropic": Smoothing(kappa=0.05)}


@pytest.mark.parametrize("name", SMOOTHINGS)
@pytest.mark.parametrize("loss", [Logistic(), HalfSquared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_gradient_is_that_of_the_objective(name, loss, intercept):
    problem = sample(30, 3, loss, 0.1, intercept=intercept)
    rows = dual_rows(problem, Design(problem.X), Round())
    fixed = (rows, loss, SMOOTHINGS[name], 201)
    v = np.array([0.5, -0.3, 0.8, 0.1, -1.5])
    free = [k for k in range(5) if intercept or k != 3]
    numeric = approx_fprime(v, lambda v: smoothed_risk(v, *fixed)[0], 1e-7)
    assert_allclose(smoothed_risk(v, *fixed)[1][free], numeric[free], atol=1e-5)


def test_refusals_name_the_culprit():
    problem = sample(30, 3, Logistic(), 0.1)
    for solver, word in ((Quadrature(eps=0), "eps"), (Quadrature(nodes=3), "nodes")):
        with pytest.raises(ValueError, match=word):
            solution(solver, problem)
    for ball in (Ball(Norm(1), 0.1, 2), Ball(Norm(2), 0.1, 1)):
        other = Problem(problem.X, problem.y, problem.weights, problem.loss, ball)
        for solver in (Quadrature(), Sinkhorn()):
            with pytest.raises(ValueError, match="order"):
                solution(solver, other)
    with pytest.raises(ValueError, match="Hinge has a kink"):
        solution(Quadrature(), sample(30, 3, Hinge(), 0.1))
    with pytest.raises(ValueError, match="eps"):
        solution(Sinkhorn(eps=-1), problem)


def test_lacks_says_what_solve_refuses():
    problem = sample(30, 3, Logistic(), 0.1)
    for solver in (Quadrature(), Sinkhorn()):
        assert solver.lacks(problem) is None
        assert "delta > 0" in solver.lacks(problem.at(0.0))
        with pytest.raises(ValueError, match="delta > 0"):
            solution(solver, problem.at(0.0))


@pytest.mark.parametrize("solver", [Quadrature(nodes=21), Sinkhorn(eps=0.3)])
def test_settings_survive(solver):
    for copy in (clone(solver), pickle.loads(pickle.dumps(solver))):
        assert repr(copy) == repr(solver)
