"""The path: exact solutions over a grid of deltas, from the zero threshold geometrically down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import numpy
from ..costs import Cost
from ..design import Design, fenced_rows, model_scores
from ..duality import ZeroModel, local_threshold, zero_model
from ..problem import Ball, Problem, Sample, Solution
from ..solvers import Exact, Solver
from .checks import check_deltas, checked_sample

Array = NDArray[Any]

#: Solutions along a path, one list per target vector.
Solved = list[list[Solution]]

#: Default number of deltas.
SIZE = 20
#: The least delta of a grid over the largest, at order 1; squared at order 2, where delta is the
#: square of an order-1 radius.
SPAN = 1e-3
#: Number of deltas for feature maps, whose local matrices hold near the rows (order 2).
LOCAL_SIZE = 12
#: If clipping outliers lowers the zero threshold below this fraction, the grid goes further down.
RAISED = 0.1
#: Deltas that a grid is extended by at most.
FURTHER = 60
#: The gap of solutions from which a delta is computed: thresholds, pilots of the theory, starts of
#: passes over chunks.
PILOT_TOL = 1e-8


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
    sample, cost, order = checked_sample(X, y, loss, cost, order, sample_weight, fit_intercept)
    deltas = default_deltas(sample, cost, order) if deltas is None else check_deltas(deltas)
    solver = Exact(tol=tol, max_iter=max_iter)
    return tidy(sample, deltas, solve_path(sample, cost, order, deltas, solver))


def tidy(sample: Sample, deltas: Array, solved: Solved, **scores: Any) -> Path:
    """Return solutions, one list per target vector, as a path with its fold scores."""

    def table(name: str) -> Array:
        return deltas_first(np.array([[getattr(s, name) for s in row] for row in solved]))

    plain = []
    for y, row in zip(sample.ys, solved, strict=True):
        mean_losses: Any = [s.mean_loss for s in row]
        if any(value is None for value in mean_losses):
            coefs = np.stack([s.coef for s in row])
            intercepts = np.stack([s.intercept for s in row])
            z = model_scores(sample.X, coefs, intercepts)
            mean_losses = numpy(sample.weights @ sample.loss.value(z, y[:, None]))
        plain.append(mean_losses)
    models, risks = (table("coef"), table("intercept")), (table("objective"), table("gap"))
    return Path(deltas, *models, deltas_first(np.array(plain)), *risks, **scores)


def deltas_first(values: Array) -> Array:
    """Return values (K, m, ...) of K target vectors as (m, K, ...), those of one as (m, ...)."""
    return values[0] if len(values) == 1 else np.swapaxes(values, 0, 1)


def over_classes(values: Array) -> Array:
    """Return risks (m,) as they are, and the means over the classes of those (m, K)."""
    return values if values.ndim == 1 else values.mean(axis=1)


def solve_path(sample: Sample, cost: Cost, order: int, deltas: Array, solver: Solver) -> Solved:
    """Return the solutions at every delta (descending), one list per target vector."""
    ball = sample.ball(cost, float(deltas[0]), order)
    return solver.solve([sample.problem(y, ball) for y in sample.ys], deltas)


def default_deltas(sample: Sample, cost: Cost, order: int) -> Array:
    """Return deltas from the largest zero threshold of the target vectors, geometrically down.

    A few rows far out raise that threshold, not the deltas that are of use: the grid then goes on
    to as far below the threshold of the rows on their fence.
    """
    everywhere = sample.support is None
    if cost.geometry == "local" and order == 2 and everywhere:
        B = np.linalg.inv(cost.shape(Design(sample.X).dense()))
        zeros = [_zero(sample.problem(y, Ball(cost, 0.0, 2))) for y in sample.ys]
        top = max(local_threshold(zero, sample.weights, B)[0] for zero in zeros)
        return (top if 0 < top < np.inf else 1.0) * np.geomspace(1, SPAN, LOCAL_SIZE)
    span = np.geomspace(1, SPAN**order, SIZE)
    if not (cost.is_norm and everywhere):
        return (_mean_price(sample, cost, order) or 1.0) * span
    top = max(threshold(sample, y, cost, order) for y in sample.ys)
    # at 0 no column says anything about y: every delta gives the constant model
    deltas = (top or 1.0) * span
    if top == 0 or sample.fence[1].min() == 1:
        return deltas
    near = replace(sample, X=fenced_rows(sample.X))
    fenced = max(threshold(near, y, cost, order) for y in near.ys)
    if not 0 < fenced < RAISED**order * top:
        return deltas
    steps = np.log(fenced / top) / np.log(deltas[1] / deltas[0])
    return extended(deltas, min(int(np.ceil(steps)), FURTHER))


def extended(deltas: Array, further: int) -> Array:
    """Return a geometric grid with so many deltas more below it."""
    ratio = deltas[-1] / deltas[-2]
    return np.append(deltas, deltas[-1] * ratio ** np.arange(1, further + 1))


def _mean_price(sample: Sample, cost: Cost, order: int) -> float:
    """Return the mean cost of moving a row onto another one: with that, anything can be anywhere.

    It starts the grid where the zero threshold has no formula: costs that are no norm, and a
    finite support.
    """
    X = Design(sample.X).dense()
    if sample.support is not None or cost.geometry == "finite":
        support = None if sample.support is None else Design(sample.support).dense()
        return float(np.mean(cost.distance_to_nodes(X, support) ** order))
    shift = max(1, len(X) // 2)
    return float(np.mean(cost.price(X, np.roll(X, shift, axis=0), order)))


def _zero(problem: Problem) -> ZeroModel:
    """Return the model beta = 0, on centred rows."""
    X, weights = problem.X, problem.weights
    center = Design(X).adjoint(weights) if problem.fit_intercept else None
    design = Design(X, center=center)
    return zero_model(design, problem.y, weights, problem.loss, problem.fit_intercept)


def threshold(sample: Sample, y: Array, cost: Cost, order: int) -> float:
    """Return the least delta at which beta = 0 is optimal under a norm.

    A loss with kinks there leaves a choice of slopes; then it is found from solutions, with the
    value of some slopes as upper bound.
    """
    problem = sample.problem(y, Ball(cost, 0.0, order))
    if sample.loss.outputs > 1:
        from ..solvers.softmax import pair_threshold

        found = pair_threshold(problem)
        bound, exact = found.delta, found.least
    else:
        zero = _zero(problem)
        bound = zero.threshold(float(cost.norm(zero.pull)), sample.loss.lipschitz, order)
        exact = zero.unique
    return bound if exact or bound == 0 else _kinked_threshold(sample, y, cost, order, bound)


def _kinked_threshold(sample: Sample, y: Array, cost: Cost, order: int, bound: float) -> float:
    """Return the zero of the convex, decreasing F(0 model) - F*(delta), by Newton from the left."""
    solver = Exact(tol=PILOT_TOL)
    flat = sample.problem(y, Ball(cost, bound, order)).constant[1]
    delta = 0.5 * bound
    while delta < bound:
        [[found]] = solver.solve([sample.problem(y, Ball(cost, delta, order))], [delta])
        rise = flat - found.objective
        # a fall of the risk that its gap explains is none
        if rise <= found.gap or found.multiplier == 0:
            break
        step = min(rise / found.multiplier, bound - delta)
        delta += step
        # the error after a step of Newton's method is in proportion to its square
        if step <= np.sqrt(PILOT_TOL) * delta:
            break
    return delta
