"""The deltas of a grid: from the least at which the zero model is optimal, geometrically down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside
from ..costs import Cost
from ..design import Design, mean
from ..duality import ZeroModel, local_threshold, zero_model
from ..fences import fenced_rows
from ..problem import Ball, Problem, Sample
from ..solvers import Exact
from ..solvers.base import constant_risk

Array = NDArray[Any]

#: Default number of deltas, and how far below the zero threshold they reach (order 1; squared at
#: order 2, where delta is the square of an order-1 radius).
SIZE, SPAN = 20, 1e-3
#: The same for feature maps, whose local matrices hold near the rows (order 2).
LOCAL_SIZE, LOCAL_SPAN = 12, 1e-3
#: Of the threshold, its part that is left by rows on the fence where the grid goes further, by how
#: many deltas at most; and the share of the distances of a row that may have raised it.
RAISED, FURTHER, LONE = 0.1, 60, 0.01
#: The gap of the solutions by which a threshold is sought where a kink leaves no formula, their
#: iterations, and how many gaps a fall of the risk must exceed.
KINKED_TOL, KINKED_STEPS, ABOVE_GAP = 1e-7, 200, 10.0
#: Newton steps to that threshold, and the last step, relative to it.
NEWTON_STEPS, NEAR_ENOUGH = 12, 1e-4


def default_deltas(sample: Sample, cost: Cost, order: int) -> Array:
    """Return deltas from the largest zero threshold of the target vectors, geometrically down.

    A few rows far out raise that threshold, not the deltas that are of use: the grid then goes on
    to as far below the threshold of the rows on their fence.
    """
    everywhere = sample.support is None
    if cost.geometry == "local" and order == 2 and everywhere:
        top = max(_local_threshold(sample, y, cost) for y in sample.ys)
        return (top or 1.0) * np.geomspace(1, LOCAL_SPAN, LOCAL_SIZE)
    if not (cost.is_norm and everywhere):
        return (_mean_price(sample, cost, order) or 1.0) * np.geomspace(1, SPAN**order, SIZE)
    top = max(threshold(sample, y, cost, order) for y in sample.ys)

    def low() -> float:
        near = replace(sample, X=fenced_rows(sample.X, sample.units))
        return max(threshold(near, y, cost, order) for y in near.ys)

    return deltas_from(top, low if _rows_far_out(sample) else None, order)


def deltas_from(top: float, low: Callable[[], float] | None, order: int) -> Array:
    """Return deltas from the threshold ``top``, geometrically down.

    ``low`` is the threshold of the rows on their fence, None where no row is far out.
    """
    # at 0 no column says anything about y: every delta gives the constant model
    deltas = (top or 1.0) * np.geomspace(1, SPAN**order, SIZE)
    fenced = low() if low is not None and top > 0 else top
    if not 0 < fenced < RAISED**order * top:
        return deltas
    ratio = SPAN ** (order / (SIZE - 1))
    further = min(int(np.ceil(np.log(fenced / top) / np.log(ratio))), FURTHER)
    return np.append(deltas, deltas[-1] * ratio ** np.arange(1, further + 1))


def _rows_far_out(sample: Sample) -> bool:
    """Whether a row is far out, by the distances from the mean."""
    X, weights = sample.X, sample.weights
    if sample.units is not None:
        X = X / beside(sample.units, X)
    distance = weights * Design(X, center=mean(X, weights)).squared_norms() ** 0.5
    return far_out(float(distance.max()), float(distance.sum()))


def far_out(largest: float, total: float) -> bool:
    """Whether one row has a share in the distances from the mean that many rows cannot have."""
    return largest >= LONE * total


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
        if found.least or found.delta == 0:
            return found.delta
        return _kinked_threshold(sample, y, cost, order, found.delta)
    zero = _zero(problem)
    bound = zero.threshold(float(cost.norm(zero.pull)), sample.loss.lipschitz, order)
    if zero.unique or bound == 0:
        return bound
    return _kinked_threshold(sample, y, cost, order, bound)


def _local_threshold(sample: Sample, y: Array, cost: Cost) -> float:
    """Return the least delta at which beta = 0 is optimal under a linearised cost."""
    B = np.linalg.inv(cost.shape(Design(sample.X).dense()))
    zero = _zero(sample.problem(y, Ball(cost, 0.0, 2)))
    return local_threshold(zero, sample.weights, B)[0]


def _kinked_threshold(sample: Sample, y: Array, cost: Cost, order: int, bound: float) -> float:
    """Return the zero of the convex, decreasing F(0 model) - F*(delta), by Newton from the left."""
    solver = Exact(tol=KINKED_TOL, max_iter=KINKED_STEPS)
    flat = constant_risk(sample.problem(y, Ball(cost, bound, order)))[1]
    delta = 0.5 * bound
    for _ in range(NEWTON_STEPS):
        [[found]] = solver.solve([sample.problem(y, Ball(cost, delta, order))], [delta])
        rise = flat - found.objective
        if rise <= ABOVE_GAP * KINKED_TOL * flat or found.multiplier == 0:
            break
        step = min(rise / found.multiplier, bound - delta)
        delta += step
        if step <= NEAR_ENOUGH * delta:
            break
    return delta
