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
    out_of_fold : OutOfFold or None
        The scores of rows at the chosen delta, by models that did not see them.
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
    out_of_fold: OutOfFold | None = None


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Scores of rows at the chosen delta, by models that did not see them.

    ``rows`` (E,) are the numbers of the tested rows, a row once for every fold that tests it, and
    ``scores`` (E, K) their scores, K = 1 for two classes and for regression.
    """

    rows: Array
    scores: Array


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


def tidy(
    sample: Sample,
    deltas: Array,
    solved: list[list[Solution]],
    linear: bool = False,
    **scores: Any,
) -> Path:
    """Return solutions, one list per target vector, as a path.

    ``linear``: at order 1 the plain risk is the robust one less delta times the multiplier.
    """

    loss = sample.loss
    plain = []
    for y, row in zip(sample.ys, solved, strict=True):
        if linear:
            pairs = zip(row, deltas.tolist(), strict=True)
            plain.append(np.array([s.objective - delta * s.multiplier for s, delta in pairs]))
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

    ``starts`` are those of a sample nearby, for methods that profit from them.
    """
    first = starts if starts is not None else [None] * len(sample.ys)
    ball = sample.ball(cost, float(deltas[0]), order)
    return [
        solver.solve_path(sample.problem(y, ball), deltas, start)
        for y, start in zip(sample.ys, first, strict=True)
    ]


def solve_weighted(
    sample: Sample,
    folds: list[Array],
    cost: Cost,
    order: int,
    deltas: Array,
    solver: Solver,
    starts: Solved,
) -> list[Solved]:
    """Return the solutions on the rows of every fold, the other rows without weight."""
    weights = fold_weights(sample, folds)
    ball = sample.ball(cost, float(deltas[0]), order)
    solved = [
        solver.solve_paths(sample.problem(y, ball), weights, deltas, start)
        for y, start in zip(sample.ys, starts, strict=True)
    ]
    return [list(of_fold) for of_fold in zip(*solved, strict=True)]


def sweeps(
    sample: Sample, cost: Cost, order: int, deltas: Array, folds: list[Array], solver: Solver
) -> bool:
    """Whether the path and the folds, given by their training rows, share passes over the rows.

    They can where every row is left out once at most.
    """
    ball = sample.ball(cost, float(deltas[-1]), order)
    if not solver.sweeps(sample.problem(sample.ys[0], ball)):
        return False
    n = len(sample.weights)
    left = np.full(n, len(folds))
    for rows in folds:
        met = np.bincount(rows, minlength=n)
        if met.max() > 1:
            return False
        left -= met
    return bool(left.max() <= 1)


def sweep(
    sample: Sample,
    folds: list[Array],
    cost: Cost,
    costs: list[Cost],
    order: int,
    deltas: Array,
    solver: Solver,
    tol: float,
) -> tuple[Solved, list[Solved]]:
    """Return the path over all rows and that of every fold, ``costs`` the folds' own."""
    held = [_others(rows, len(sample.weights)) for rows in folds]
    ball = sample.ball(cost, float(deltas[0]), order)
    found = [solver.sweep(sample.problem(y, ball), held, costs, deltas, tol) for y in sample.ys]
    paths = [swept.path for swept in found]
    return paths, [list(fold) for fold in zip(*(swept.folds for swept in found), strict=True)]


def _others(rows: Array, n: int) -> Array:
    """Return the numbers up to n, ascending, that are not among ``rows``."""
    left = np.ones(n, dtype=bool)
    left[rows] = False
    found: Array = np.flatnonzero(left).astype(rows.dtype)
    return found


def fold_weights(sample: Sample, folds: list[Array]) -> Array:
    """Return the weights (n, F) that every fold gives to all rows."""
    weights = full((len(sample.weights), len(folds)), 0.0, sample.weights)
    for f, rows in enumerate(folds):
        part = pick(sample.weights, rows)
        weights[beside(rows, weights), f] = part / part.sum()
    return weights


def solve_folds(
    sample: Sample,
    folds: list[Array],
    costs: list[Cost],
    order: int,
    deltas: Array,
    solver: Solver,
    starts: Solved | None,
) -> list[Solved]:
    """Return the solutions on the rows of every fold under its own cost, all folds at once."""
    weights = fold_weights(sample, folds)
    solved = []
    first = starts if starts is not None else [None] * len(sample.ys)
    for y, near in zip(sample.ys, first, strict=True):
        balls = [sample.ball(cost, float(deltas[0]), order) for cost in costs]
        problems = [
            sample.problem(y, ball).weighted(column)
            for ball, column in zip(balls, weights.T, strict=True)
        ]
        solved.append(solver.solve_folds(problems, deltas, near))
    return [list(of_fold) for of_fold in zip(*solved, strict=True)]
