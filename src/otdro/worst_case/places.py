r"""Worst cases under costs that are no norm, and over a finite support: the best of given places.

.. math:: \max_{m \ge 0} \sum_{ik} m_{ik}\,\ell_{ik}\quad\text{s.t.}\quad
          \sum_k m_{ik} = \pi_i,\ \sum_{ik} m_{ik}\,c_{ik} \le \delta

over places k of each row i, with the loss l and the price c there. Under a finite support the
places are its nodes and the maximum is the worst-case risk; else they are the row and the maxima of
:math:`\ell - \lambda c` found by ascent, and what is missing to the dual value is the shortfall.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem import Problem
from ..solvers.finite import places as support_places
from ..solvers.local_cost import worst_risk as local_worst_risk
from .distribution import WorstCase

Array = NDArray[Any]

#: A risk this close to its bound above, relative to it, is attained.
ATTAINED = 1e-5


def worst_case(problem: Problem, coef: Array, intercept: float) -> WorstCase:
    """Return a worst case of a model."""
    if problem.finite:
        nodes, price = support_places(problem)
        z = np.broadcast_to(nodes @ coef + intercept, price.shape)
        loss = problem.loss.value(z, np.broadcast_to(problem.y[:, None], price.shape))
        # all rows share the nodes
        points = np.broadcast_to(nodes, (len(price), *nodes.shape))
        return _best_masses(problem, points, loss, price)
    # one evaluation for all who ask: the multiplier of a fit would start another search
    found = local_worst_risk(problem, coef, intercept)
    reached = _best_masses(problem, found.points, found.loss, found.price)
    return replace(
        reached,
        attained=bool(found.upper - reached.risk <= ATTAINED * abs(reached.risk)),
        shortfall=max(0.0, found.risk - reached.risk),
    )


def worst_risk(problem: Problem, coef: Array, intercept: float) -> float:
    """Return the worst-case risk of a model; by ascent, from below, where the cost is no norm."""
    if problem.finite:
        return worst_case(problem, coef, intercept).risk
    return local_worst_risk(problem, coef, intercept).risk


def _best_masses(problem: Problem, points: Array, loss: Array, price: Array) -> WorstCase:
    """Return the distribution of the largest risk over the places (n, k, d), within the budget."""
    row, place, mass = spend(loss, price, problem.weights, problem.ball.delta)
    return WorstCase(
        points=points[row, place],
        targets=problem.y[row],
        weights=mass,
        origin=row,
        budget=float(mass @ price[row, place]),
        risk=float(mass @ loss[row, place]),
        attained=True,
        shortfall=0.0,
    )


def spend(loss: Array, price: Array, weights: Array, delta: float) -> tuple[Array, Array, Array]:
    """Return (row, place, mass) of the maximum: a fractional knapsack over the rows' upper hulls.

    A row starts where it is, at no price, and goes along its hull of (price, loss), whose slopes
    fall; the budget is spent on the steepest pieces of all rows, and only the last one is split.
    """
    hulls = [_hull(loss[i], price[i]) for i in range(len(weights))]
    row = np.concatenate([np.full(len(h) - 1, i) for i, h in enumerate(hulls)]).astype(int)
    start = np.concatenate([h[:-1] for h in hulls]).astype(int)
    end = np.concatenate([h[1:] for h in hulls]).astype(int)
    rise, extra = loss[row, end] - loss[row, start], price[row, end] - price[row, start]
    order = np.argsort(-rise / extra, kind="stable")
    order = order[weights[row[order]] > 0]
    spent = np.cumsum((weights[row] * extra)[order])
    full = int(np.searchsorted(spent, delta, side="right"))
    place = np.array([h[0] for h in hulls])
    for j in order[:full]:
        place[row[j]] = end[j]
    each, mass = np.arange(len(weights)), weights.astype(float)
    if full == len(order) or delta == 0:
        return each, place, mass
    last = order[full]
    before = spent[full - 1] if full else 0.0
    share = (delta - before) / (spent[full] - before)
    i = row[last]
    mass[i] = weights[i] * (1 - share)
    return np.append(each, i), np.append(place, end[last]), np.append(mass, weights[i] * share)


def _hull(loss: Array, price: Array) -> Array:
    """Return the places on the upper hull of (price, loss), from the cheapest up to the top."""
    order = np.lexsort((-loss, price))
    rising = loss[order] > np.concatenate([[-np.inf], np.maximum.accumulate(loss[order])[:-1]])
    hull: list[int] = []
    for k in order[rising & np.isfinite(price[order])]:
        while len(hull) > 1 and _below(loss, price, hull[-2], hull[-1], k):
            hull.pop()
        hull.append(int(k))
    return np.array(hull)


def _below(loss: Array, price: Array, a: int, b: int, c: int) -> bool:
    """Whether b is on or below the line from a to c."""
    rise = (loss[b] - loss[a]) * (price[c] - price[a])
    return bool(rise <= (loss[c] - loss[a]) * (price[b] - price[a]))
