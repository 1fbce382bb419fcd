"""The path: exact solutions over a grid of deltas, over all rows and without those of folds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside, full, numpy, pick
from ..costs import Cost
from ..design import model_scores
from ..problem import Sample, Solution
from ..solvers import Exact, Solver
from .checks import check_deltas, resolve_cost, resolve_order, validated
from .thresholds import default_deltas

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Path:
    """Solutions along ``deltas`` (descending), and their fold scores where there were folds.

    Parameters
    ----------
    deltas : ndarray of shape (m,)
        The radii, descending.
    coef : ndarray of shape (m, d), or (m, K, d) of K > 2 classes
        The coefficients; the deltas are the first axis always.
    intercept : ndarray of shape (m,), or (m, K) of K > 2 classes
        The intercepts.
    empirical_risk, robust_risk, gap : ndarray of shape (m,), or (m, K) for one-vs-rest
        The mean loss, the worst case and its certificate; one number for all classes of a softmax
        model.
    score_mean, score_se : ndarray of shape (m,) or None
        Mean score over folds, larger is better, and its standard error; None without folds.
    candidates : list
        One entry for each cost that was tried.
    environments : Environments or None
        Where rows came in groups, the loss of each.
    """

    deltas: Array
    coef: Array
    intercept: Array
    empirical_risk: Array
    robust_risk: Array
    gap: Array
    score_mean: Array | None = None
    score_se: Array | None = None
    candidates: list[Any] = field(default_factory=list)
    environments: Any = None


def path(
    X: Any,
    y: Any,
    loss: Any = "logistic",
    cost: Any = "euclidean",
    order: Any = "auto",
    deltas: Any = None,
    *,
    sample_weight: Any = None,
    fit_intercept: bool = True,
    tol: float = 1e-9,
    max_iter: int = 1000,
) -> Path:
    """Return exact solutions on a grid of deltas, from the zero threshold down.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The rows.
    y : array-like of shape (n,)
        Labels -1/+1 for a loss of classification, targets for one of regression.
    loss, cost, order : as in the estimators
        The cost may not be learned here: learn it first.
    deltas : array-like of shape (m,), default=None
        The radii, descending; None: 20, geometric.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights of the rows.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    tol, max_iter : float and int
        The gap asked for, relative to the risk of the best constant model, and the most
        iterations.

    Returns
    -------
    Path

    Examples
    --------
    >>> from otdro.radius import path
    >>> found = path([[0.0], [1.0], [2.0], [3.0]], [-1, -1, 1, 1], deltas=[1.0, 0.1])
    >>> found.coef[:, 0].round(3).tolist()
    [0.0, 2.038]
    """
    loss, X, y, weights = validated(X, y, loss, sample_weight)
    cost = resolve_cost(cost)
    cost.check(X.shape[1])
    order = resolve_order(order, loss, cost)
    sample = Sample(X, [y], weights, loss, fit_intercept)
    deltas = default_deltas(sample, cost, order) if deltas is None else check_deltas(deltas)
    solver = Exact(tol=tol, max_iter=max_iter)
    return tidy(sample, deltas, solve_path(sample, cost, order, deltas, solver))


def tidy(sample: Sample, deltas: Array, solved: list[list[Solution]], **scores: Any) -> Path:
    """Return solutions, one list per target vector, as a path."""
    loss = sample.loss
    plain = []
    for y, row in zip(sample.ys, solved, strict=True):
        known = [s.mean_loss for s in row]
        if all(value is not None for value in known):
            plain.append(np.array(known))
            continue
        coefs, intercepts = np.stack([s.coef for s in row]), np.stack([s.intercept for s in row])
        z = model_scores(sample.X, coefs, intercepts)
        plain.append(numpy(sample.weights @ loss.value(z, y[:, None])))
    return tabled(deltas, solved, np.array(plain), **scores)


def tabled(deltas: Array, solved: list[list[Solution]], risk: Array, **scores: Any) -> Path:
    """Return solutions, one list per target vector, with their plain risks (K, m) as a path."""

    def table(name: str) -> Array:
        return deltas_first(np.array([[getattr(s, name) for s in row] for row in solved]))

    return Path(
        deltas=deltas,
        coef=table("coef"),
        intercept=table("intercept"),
        empirical_risk=deltas_first(risk),
        robust_risk=table("objective"),
        gap=table("gap"),
        **scores,
    )


def deltas_first(values: Array) -> Array:
    """Return values (K, m, ...) of K target vectors as (m, K, ...), those of one as (m, ...)."""
    return values[0] if len(values) == 1 else np.swapaxes(values, 0, 1)


def over_classes(values: Array) -> Array:
    """Return risks (m,) as they are, and the means over the classes of those (m, K)."""
    return values if values.ndim == 1 else values.mean(axis=1)


#: Solutions along a path, one list per target vector.
Solved = list[list[Solution]]


def solve_path(
    sample: Sample,
    cost: Cost,
    order: int,
    deltas: Array,
    solver: Solver,
    starts: Solved | None = None,
) -> Solved:
    """Return the solutions at every delta (descending), one list per target vector.

    ``starts`` are solutions nearby, in the same shape.
    """
    ball = sample.ball(cost, float(deltas[0]), order)
    return solver.solve([sample.problem(y, ball) for y in sample.ys], deltas, starts)


def solve_with_folds(
    sample: Sample,
    cost: Cost,
    folds: list[Array],
    costs: list[Cost],
    order: int,
    deltas: Array,
    solver: Solver,
    tol: float,
    fold_tol: float,
) -> tuple[Solved, list[Solved]]:
    """Return the path over all rows and those of the training rows of every fold, in one call.

    ``costs`` are the folds' own. A fold has all rows, those left out without weight, so that the
    solver can share passes over them; where rows are places for mass they are left out.
    """
    ball = sample.ball(cost, float(deltas[0]), order)
    balls = [sample.ball(of_fold, float(deltas[0]), order) for of_fold in costs]
    problems, tols = [], []
    for k, y in enumerate(sample.ys):
        whole = sample.problem(y, ball)
        problems.append(whole)
        tols.append(tol)
        for rows, fold_ball in zip(folds, balls, strict=True):
            if whole.finite:
                part = sample.rows(rows)
                problems.append(part.problem(part.ys[k], fold_ball))
            else:
                weights = _training_weights(sample.weights, rows)
                problems.append(sample.problem(y, fold_ball).weighted(weights))
            tols.append(fold_tol)
    solved = solver.solve(problems, deltas, tols=tols)
    each = [solved[i : i + 1 + len(folds)] for i in range(0, len(solved), 1 + len(folds))]
    paths = [path for path, *_ in each]
    return paths, [list(fold) for fold in zip(*(rest for _, *rest in each), strict=True)]


def _training_weights(weights: Array, rows: Array) -> Array:
    """Return the weights of all rows in a fold that trains on some of them."""
    part = pick(weights, rows)
    inside: Array = full(len(weights), 0.0, weights)
    inside[beside(rows, weights)] = part / part.sum()
    return inside
