"""Ratios of issue 5 in CPU time of one run: finite support, quadrature."""

import time
from itertools import product

import numpy as np

from otdro.costs import Mahalanobis, Norm
from otdro.losses import Logistic, Squared
from otdro.problem import Ball, Problem
from otdro.solvers import Exact, Quadrature
from otdro.solvers.finite import formulate


def solution(solver, problem):
    """Return the solution of one problem."""
    return solver.solve([problem], [problem.ball.delta])[0][0]


def seconds(call, repeats):
    """Return the least CPU time of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def classes(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X, beta = rng.normal(size=(n, d)), 2 * rng.normal(size=d) / np.sqrt(d)
    return X, np.where(X @ beta + rng.logistic(size=n) > 0, 1.0, -1.0), beta


def rounds(calls, batches, repeats=30):
    """Return the least CPU time of each call over a pass of the batches, the calls by turns."""
    times = np.full(len(calls), np.inf)
    for _ in range(repeats):
        for k, call in enumerate(calls):
            start = time.process_time()
            for index in batches:
                call(index)
            times[k] = min(times[k], (time.process_time() - start) / len(batches))
    return times


def finite(n=200, m=2000, d=10):
    """The exchange over cvxpy with Clarabel on all pairs."""
    import cvxpy as cp

    X, y, _ = classes(n, d)
    S = np.random.default_rng(1).normal(size=(m, d))
    problem = Problem(X, y, np.full(n, 1 / n), Logistic(), Ball(Norm(2), 0.1, 2), True, S)
    found = []
    ours = seconds(lambda: found.append(solution(Exact(tol=1e-8), problem)), 3)
    f, _, _ = formulate(problem)
    theta, b, lam = cp.Variable(d), cp.Variable(), cp.Variable(nonneg=True)
    eta, z = cp.Variable(n), f.nodes @ theta + b
    table = {label: cp.Variable(n + m) for label in (-1.0, 1.0)}
    limits = [cp.logistic(-label * z) <= v for label, v in table.items()]
    limits += [table[y[i]] - lam * f.cost[i] <= eta[i] for i in range(n)]
    program = cp.Problem(cp.Minimize(lam * 0.1 + f.weights @ eta), limits)
    theirs = seconds(lambda: program.solve(solver="CLARABEL"), 1)
    apart = abs(found[-1].objective / program.value - 1)
    print(
        f"finite support, {n} x {m}: {ours / theirs:.4f} of cvxpy with Clarabel "
        f"({ours:.2f} s, {theirs:.1f} s), values apart by {apart:.1e}"
    )


def quadrature():
    """Deterministic smoothing over the exact order-2 fit; at 40 x 30 rows tie for small delta."""
    for n, d in ((40, 30), (500, 10), (5000, 50)):
        X, y, beta = classes(n, d)
        A = np.random.default_rng(3).normal(size=(d, d)) / np.sqrt(d)
        target = X @ beta + np.random.default_rng(2).normal(size=n)
        metrics = {"diagonal": np.diag(np.linspace(0.5, 2, d)), "full": A @ A.T + 0.5 * np.eye(d)}
        for (name, metric), delta in product(metrics.items(), (0.1, 0.05, 0.01)):
            ball = Ball(Mahalanobis(metric), delta, 2)
            for loss, t in ((Logistic(), y), (Squared(), target)):
                compare(f"{name}, delta {delta}", Problem(X, t, np.full(n, 1 / n), loss, ball))


def compare(case, problem):
    """Print the time of Quadrature over that of Exact, and how far apart their risks are."""
    calls = (
        lambda _: solution(Quadrature(), problem),
        lambda _: solution(Exact(), problem),
    )
    smooth, exact = (call(None).objective for call in calls)
    ours, theirs = rounds(calls, [None], 5)
    n, d = problem.X.shape
    print(
        f"quadrature, {type(problem.loss).__name__} {n} x {d}, {case}: {ours / theirs:.2f} times "
        f"exact ({1e3 * ours:.0f} ms), apart by {abs(smooth / exact - 1):.1e}"
    )


if __name__ == "__main__":
    quadrature()
    finite()
