"""The path: exact solutions over a grid of deltas that starts where the zero model stops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..design import Design, as_dense
from ..losses import Loss
from ..problem import Ball, Sample, Solution
from ..solvers import Exact, Solver
from ..solvers.base import constant_risk
from ..solvers.feature_map import linearised as local
from ..solvers.finite.nodes import places
from .checks import check_deltas, resolve_cost, resolve_order, validated

Array = NDArray[Any]

#: Default number of deltas, and how far below the zero threshold they reach (order 1; squared at
#: order 2, where delta is the square of an order-1 radius).
SIZE, SPAN = 20, 1e-3
#: The same for feature maps, whose local matrices hold near the rows (order 2).
LOCAL_SIZE, LOCAL_SPAN = 12, 1e-3


@dataclass(frozen=True, eq=False)
class Path:
    """Solutions along ``deltas`` (descending), and their fold scores where there were folds.

    ``coef`` (m, d) and ``intercept`` (m,), with a leading axis of K for one-vs-rest, as have
    ``empirical_risk``, ``robust_risk`` and ``gap``. ``score_mean`` and ``score_se`` (m,) are over
    folds, larger is better; ``candidates`` has one entry a cost that was tried.
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

    ``y`` are labels -1/+1 for a loss of classification, targets for one of regression; ``deltas``
    are descending (default: 20, geometric).
    """
    loss, X, y, weights = validated(X, y, loss, sample_weight)
    cost = resolve_cost(cost)
    cost.check(X.shape[1])
    order = resolve_order(order, loss, cost)
    sample = Sample(X, [y], weights, loss, fit_intercept)
    deltas = default_deltas(sample, cost, order) if deltas is None else check_deltas(deltas)
    solver = Exact(tol=tol, max_iter=max_iter)
    return tidy(sample, deltas, solve_path(sample, cost, order, deltas, solver), squeeze=True)


def tidy(
    sample: Sample, deltas: Array, solved: list[list[Solution]], squeeze: bool, **scores: Any
) -> Path:
    """Return solutions, one list a target vector, as a path; ``squeeze`` drops the axis of one."""

    def table(name: str) -> Array:
        values = np.array([[getattr(s, name) for s in row] for row in solved])
        return values[0] if squeeze and len(solved) == 1 else values

    design, loss = Design(sample.X), sample.loss
    plain = []
    for y, row in zip(sample.ys, solved, strict=True):
        z = design.scores(np.stack([s.coef for s in row], axis=1)) + [s.intercept for s in row]
        plain.append(sample.weights @ loss.value(z, y[:, None]))
    risk = np.array(plain)
    return Path(
        deltas=deltas,
        coef=table("coef"),
        intercept=table("intercept"),
        empirical_risk=risk[0] if squeeze and len(solved) == 1 else risk,
        robust_risk=table("objective"),
        gap=table("gap"),
        **scores,
    )


def default_deltas(sample: Sample, cost: Cost, order: int, size: int = SIZE) -> Array:
    """Return deltas from the largest zero threshold of the target vectors, geometrically down."""
    if cost.geometry == "local" and order == 2 and sample.support is None:
        ball = Ball(cost, 1.0, order)
        top = max(local.threshold(sample.problem(y, ball)) for y in sample.ys)
        return max(top, 1e-300) * np.geomspace(1, LOCAL_SPAN, LOCAL_SIZE)
    if cost.is_norm and sample.support is None:
        top = max(threshold(sample, y, cost, order) for y in sample.ys)
    else:
        top = _mean_price(sample, cost, order)
    if not top > 0:
        # no column says anything about y: every delta gives the constant model
        top = 1.0
    return top * np.geomspace(1, SPAN**order, size)


def _mean_price(sample: Sample, cost: Cost, order: int) -> float:
    """Return the mean cost of moving a row onto another one: with that, anything can be anywhere.

    It starts the grid where the zero threshold has no formula: costs that are no norm, and a
    finite support.
    """
    X = as_dense(sample.X)
    problem = sample.problem(sample.ys[0], Ball(cost, 1.0, order))
    if problem.finite:
        return float(np.mean(places(problem)[1]))
    shift = max(1, len(X) // 2)
    return float(np.mean(cost.price(X, np.roll(X, shift, axis=0), order)))


def threshold(sample: Sample, y: Array, cost: Cost, order: int) -> float:
    r"""Return the least delta at which beta = 0 is optimal.

    With a = dl/dz at the best constant and g = E[a x], E[a] = 0 with an intercept, it is
    :math:`\|g\|/\mathrm{Lip}` at order 1 and :math:`\|g\|^2/E[a^2]` at order 2. A loss with kinks
    there leaves a choice of a; then it is found from solutions, with this value as upper bound.
    """
    loss, weights = sample.loss, sample.weights
    b = loss.constant(y, weights) if sample.fit_intercept else 0.0
    a, unique = _slopes(loss, y, weights, b, sample.fit_intercept)
    center = Design(sample.X).adjoint(weights) if sample.fit_intercept else None
    g = Design(sample.X, center=center).adjoint(weights * a)
    size, square = float(cost.norm(g)), float(weights @ a**2)
    if square == 0 or size <= 1e-14 * np.sqrt(square):
        return 0.0
    bound = size / loss.lipschitz if order == 1 else size**2 / square
    return bound if unique else _kinked_threshold(sample, y, cost, order, bound)


def _slopes(
    loss: Loss, y: Array, weights: Array, b: float, fit_intercept: bool
) -> tuple[Array, bool]:
    """Return dl/dz at the constant b with mean zero, and whether no other choice exists."""
    z = np.full(len(y), b)
    a = loss.derivative(z, y)
    pieces = loss.pieces
    if pieces is None or pieces.kappa > 0:
        return a, True
    r = pieces.residual(z, y)
    free = np.abs(r) <= 1e-9 * (1 + np.abs(y).max())
    a = np.where(free, 0.0, a)
    mass = float(weights[free].sum())
    if fit_intercept and mass > 0:
        # rows on the kink share, evenly, what balances the others
        a[free] = -float(weights @ a) / mass
    return a, bool(np.count_nonzero(free & (weights > 0)) <= 1)


def _kinked_threshold(sample: Sample, y: Array, cost: Cost, order: int, bound: float) -> float:
    """Return the zero of the convex, decreasing F(0 model) - F*(delta), by Newton from the left."""
    solver = Exact(tol=1e-7, max_iter=200)
    flat = constant_risk(sample.problem(y, Ball(cost, bound, order)))[1]
    delta = 0.5 * bound
    for _ in range(12):
        found = solver.solve(sample.problem(y, Ball(cost, delta, order)))
        rise = flat - found.objective
        if rise <= 1e-6 * flat or found.multiplier == 0:
            break
        step = min(rise / found.multiplier, bound - delta)
        delta += step
        if step <= 1e-4 * delta:
            break
    return delta


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
    ball = Ball(cost, float(deltas[0]), order)
    return [
        solver.solve_path(sample.problem(y, ball), deltas, start)
        for y, start in zip(sample.ys, first, strict=True)
    ]
