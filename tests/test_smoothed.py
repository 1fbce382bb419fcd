"""The stochastic solver against the exact one and the quadrature; costs given as functions."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from otdro.costs import CallableCost, FeatureMap, Graph, Norm
from otdro.duality import worst_risk
from otdro.losses import Hinge, Logistic, Squared
from otdro.losses.base import Loss
from otdro.problem import Ball, Problem
from otdro.solvers import Exact, Quadrature, Smoothed, resolve
from otdro.solvers.local_cost import local_rows
from otdro.solvers.smoothing import Sampler
from problems import sample
from solving import solution


def replaced(problem, cost, order=2, **fields):
    values = {**vars(problem), "ball": Ball(cost, problem.ball.delta, order), **fields}
    return Problem(**values)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize(("n", "d", "delta"), [(40, 30, 0.1), (500, 10, 0.01), (5000, 50, 0.05)])
def test_default_settings_come_within_a_percent(loss, n, d, delta):
    problem = sample(n, d, loss, delta)
    exact, found = solution(Exact(), problem), solution(Smoothed(random_state=0), problem)
    assert found.converged
    assert_allclose(found.objective, exact.objective, rtol=1e-2)
    assert found.objective - found.gap <= exact.objective * (1 + 1e-9)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize(("n", "d", "delta"), [(40, 30, 0.1), (500, 10, 0.01)])
def test_ten_times_the_draws(loss, n, d, delta):
    problem = sample(n, d, loss, delta)
    found = solution(Smoothed(L=320, random_state=0), problem)
    assert_allclose(found.objective, solution(Exact(), problem).objective, rtol=2e-3)


@pytest.mark.parametrize("d", [5, 100])
@pytest.mark.parametrize("eps", [1e-1, 1e-3])
def test_effective_draws_at_the_solution(d, eps):
    problem = sample(200, d, Logistic(), 0.05)
    found = solution(Quadrature(), problem)
    local = local_rows(problem, problem.X)
    sampler = Sampler(problem, local, 64, "maximiser", 1.0)
    x = np.concatenate([found.coef, [found.intercept, found.multiplier]])
    rng = np.random.default_rng(0)
    assert sampler.model(np.arange(50), x, eps * found.objective, rng).effective >= 0.5


def test_a_function_as_cost_gives_the_known_optimum():
    problem = sample(150, 4, Logistic(), 0.05)
    L = problem.ball.cost.factor()
    given = replaced(problem, CallableCost(lambda u, x: (((u - x) @ L) ** 2).sum(axis=1)))
    found = solution(resolve("auto", 1e-6, 1000, random_state=0, cost=given.ball.cost), given)
    exact = solution(Exact(), problem)
    assert_allclose(found.objective, exact.objective, rtol=1e-2)
    z, w = problem.X @ found.coef + found.intercept, problem.ball.cost.dual_norm(found.coef)
    risk = worst_risk(z, problem.y, problem.weights, problem.loss, float(w), problem.ball).risk
    assert_allclose(found.objective, risk, rtol=1e-3)
    with pytest.raises(ValueError, match="smoothed"):
        solution(Exact(), given)


def test_a_cost_that_grows_faster_than_squares():
    problem = sample(100, 2, Logistic(), 0.01)

    def quartic(u, x):
        v = ((u - x) ** 2).sum(axis=1)
        return v + v**2

    found = solution(Smoothed(random_state=0), replaced(problem, CallableCost(quartic)))
    square = solution(Exact(), replaced(problem, Norm(2)))
    assert found.converged
    # more expensive moves leave the adversary less
    assert found.objective < square.objective


def test_deterministic_for_a_random_state():
    problem = sample(60, 3, Logistic(), 0.05)
    one, two = (solution(Smoothed(random_state=3), problem) for _ in (0, 1))
    assert_allclose(one.coef, two.coef, rtol=0)
    assert one.message == two.message


def test_none_is_a_fixed_seed():
    problem = sample(60, 3, Logistic(), 0.05)
    found = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        found.append(solution(Smoothed(), problem))
    np.testing.assert_array_equal(found[0].coef, found[1].coef)
    assert found[0].message == found[1].message


def test_settings_are_passed_on_and_defaults_are_its_own():
    own = Smoothed()
    problem = replaced(
        sample(30, 2, Logistic(), 0.1),
        CallableCost(lambda u, x: ((u - x) ** 2).sum(axis=1)),
    )
    for name in ("auto", "smoothed"):
        cost = problem.ball.cost
        kept = resolve(name, 1e-6, 1000, cost=cost)
        asked = resolve(name, 1e-2, 7, random_state=5, verbose=True, cost=cost)
        assert (kept.tol, kept.max_iter) == (own.tol, own.max_iter)
        assert (asked.tol, asked.max_iter) == (1e-2, 7)
        assert (asked.random_state, asked.verbose) == (5, True)
    short = solution(resolve("auto", 1e-12, 1, cost=problem.ball.cost), problem)
    assert not short.converged
    assert short.n_iter == 1
    assert "max_iter=1" in short.message


def test_lacks_says_what_solve_refuses():
    problem = sample(30, 2, Logistic(), 0.1)
    refused = {
        "order=1": replaced(problem, Norm(2), order=1),
        "finite support": replaced(problem, Graph(3)),
        "kink": replaced(problem, Norm(2), loss=Hinge()),
        "linearised": replaced(problem, FeatureMap(linearised=True)),
        "delta > 0": problem.at(0.0),
    }
    assert Smoothed().lacks(problem) is None
    for words, other in refused.items():
        assert words in Smoothed().lacks(other)
        with pytest.raises(ValueError, match=words):
            solution(Smoothed(), other)


@pytest.mark.parametrize("proposal", ["centred", "paper"])
def test_other_proposals_run(proposal):
    problem = sample(60, 2, Logistic(), 0.05)
    settings = {"eps": 0.1, "proposal": proposal, "max_iter": 300, "random_state": 0}
    found = solution(Smoothed(**settings, sigma=2.0, L=64), replaced(problem, Norm(2)))
    assert np.isfinite(found.objective)
    assert proposal in found.message


def test_stopping_as_printed_and_the_step_limit():
    problem = sample(60, 3, Logistic(), 0.05)
    assert solution(Smoothed(stopping="paper", tol=1e-2, random_state=0), problem).converged
    short = solution(Smoothed(stopping="paper", tol=1e-12, max_iter=1, random_state=0), problem)
    assert not short.converged
    assert "max_iter" in short.message


class Broken(Loss):
    """A loss that answers ``self.answer``."""

    task, lipschitz, smoothness = "classification", 1.0, 1.0

    def __init__(self, answer="nan"):
        self.answer = answer

    def value(self, z, y):
        return np.full_like(z, np.nan) if self.answer == "nan" else z[:1]

    derivative = curvature = value


def test_bad_input_is_named():
    problem = sample(30, 2, Logistic(), 0.1)
    settings = {"eps": 0.0, "L": 0, "M": 0, "proposal": "none", "stopping": "never"}
    for name, value in settings.items():
        with pytest.raises(ValueError, match=name):
            solution(Smoothed(**{name: value}), problem)
    for answer, words in (("nan", "NaN"), ("shape", "shape")):
        bad = Problem(problem.X, problem.y, problem.weights, Broken(answer), problem.ball)
        with pytest.raises(ValueError, match=f"Broken.*{words}"):
            solution(Smoothed(), bad)
    costs = {
        "zero at u = x": lambda u, x: 1 + ((u - x) ** 2).sum(axis=1),
        "negative": lambda u, x: -((u - x) ** 2).sum(axis=1),
        "shape": lambda u, x: (u - x) ** 2,
    }
    for words, function in costs.items():
        with pytest.raises(ValueError, match=words):
            solution(Smoothed(), replaced(problem, CallableCost(function)))
    with pytest.raises(ValueError, match="kink"):
        solution(Smoothed(), replaced(problem, Norm(2), loss=Hinge()))
    with pytest.raises(ValueError, match="order=1"):
        solution(Smoothed(), replaced(problem, Norm(2), order=1))
    with pytest.raises(ValueError, match="finite support"):
        solution(Smoothed(), replaced(problem, Graph(3)))
    with pytest.raises(ValueError, match="known"):
        resolve("fastest", 1e-6, 10)


def test_settings_survive():
    solver = Smoothed(L=7, random_state=1)
    for copy in (clone(solver), pickle.loads(pickle.dumps(solver))):
        assert repr(copy) == repr(solver)


@pytest.mark.parametrize("name", ["custom_loss.py", "custom_cost.py"])
def test_the_how_to_page_holds_the_recipes(name):
    root = Path(__file__).parents[1]
    recipe = (root / "examples" / name).read_text()
    assert f"```python\n{recipe}```" in (root / "docs" / "custom.md").read_text()
    exec(compile(recipe, name, "exec"), {"__name__": "__main__"})
