"""The nodes of a finite support, and the problem over pairs of rows and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ...design import Design
from ...losses.base import Loss
from ...problem import Problem
from .pairs_interior import Master

Array = NDArray[Any]

#: What centring leaves of nodes that coincide, relative to their size.
ROUNDING = 1e-14
#: The least size of a column, and of a direction, relative to the largest.
LEAST_COLUMN, LEAST_DIRECTION = 1e-12, 1e-11


@dataclass(frozen=True, eq=False)
class Finite:
    """Nodes (centred and scaled columns), costs of shape (n, m), targets, weights and loss."""

    nodes: Array
    cost: Array
    y: Array
    weights: Array
    loss: Loss
    fit_intercept: bool

    @cached_property
    def columns(self) -> Array:
        """The nodes and a column for the intercept, of zeros where there is none."""
        return np.column_stack([self.nodes, np.full(len(self.nodes), float(self.fit_intercept))])

    @property
    def mean_cost(self) -> float:
        """The mean cost of a pair."""
        return float(self.cost.mean())

    def labels(self) -> list[Array]:
        """Return the rows of each label, all rows where targets are numbers."""
        if self.loss.task == "regression":
            return [np.ones(len(self.y), dtype=bool)]
        return [self.y == label for label in np.unique(self.y)]

    def gains(self, x: Array) -> Array:
        """Return l(u_j'theta + b, y_i) - lam c_ij for all pairs."""
        z = self.columns @ x[:-1]
        labels, which = np.unique(self.y, return_inverse=True)
        if len(labels) <= 2:
            # two labels need two rows of losses, whatever n
            table = np.stack([self.loss.value(z, np.full_like(z, label)) for label in labels])
            gains = table[which]
        else:
            shape = (len(self.y), len(z))
            y = np.broadcast_to(self.y[:, None], shape)
            gains = self.loss.value(np.broadcast_to(z, shape), y)
        found: Array = gains - x[-1] * self.cost
        return found

    def node(self, row: Array, place: Array) -> Array:
        """Return the node of pairs."""
        return place

    def over(self, kept: Array, delta: float) -> Master:
        """Return the problem over the kept pairs."""
        row, place = np.nonzero(kept)
        tips = self.loss.sublevel(self.y[row])
        row, place = row[tips.of], place[tips.of]
        cost = self.cost[row, place]
        node = self.node(row, place)
        return Master(row, node, cost, tips, self.columns, self.weights, delta)


class OwnPlaces(Finite):
    """Every row has places of its own: ``cost`` of shape (n, k), the nodes row after row."""

    def gains(self, x: Array) -> Array:
        """Return l(u_ik'theta + b, y_i) - lam c_ik."""
        z = (self.columns @ x[:-1]).reshape(self.cost.shape)
        y = np.broadcast_to(self.y[:, None], z.shape)
        return np.asarray(self.loss.value(z, y) - x[-1] * self.cost)

    def node(self, row: Array, place: Array) -> Array:
        """Return the node of pairs."""
        return np.asarray(row * self.cost.shape[1] + place)


@dataclass(frozen=True, eq=False)
class Formulated:
    """The problem in coordinates theta: beta = ``back`` theta, nodes less their ``center``."""

    finite: Finite
    center: Array
    back: Array


def formulate(problem: Problem) -> Formulated:
    """Return the problem over the nodes of its support."""
    nodes, cost = places(problem)
    # a row without weight is a node only
    moves = problem.weights > 0
    return formulate_places(problem, Finite, nodes, cost[moves], moves)


def formulate_places(
    problem: Problem, kind: type[Finite], nodes: Array, cost: Array, moves: Array
) -> Formulated:
    """Return the problem of the rows that move, nodes centred where there is an intercept."""
    center = nodes.mean(axis=0) if problem.fit_intercept else np.zeros(nodes.shape[1])
    rounding = ROUNDING * float(np.abs(nodes).max())
    place, back = _coordinates(nodes - center, rounding)
    fixed = (problem.weights[moves], problem.loss, problem.fit_intercept)
    return Formulated(kind(place, cost, problem.y[moves], *fixed), center, back)


def _coordinates(nodes: Array, rounding: float) -> tuple[Array, Array]:
    """Return scaled columns, or coordinates in their span where they depend on each other, and E.

    A direction that no node has would leave theta free along it; columns of the size of
    ``rounding`` are none.
    """
    scale = np.sqrt((nodes**2).mean(axis=0))
    varies = scale > max(LEAST_COLUMN * float(scale.max()), rounding)
    scale = np.where(varies, scale, 1.0)
    place = np.where(varies, nodes / scale, 0.0)
    R = np.linalg.qr(place, mode="r")
    _, sizes, Vt = np.linalg.svd(R, full_matrices=False)
    V = Vt[sizes > LEAST_DIRECTION * sizes[0]].T
    if V.shape[1] == nodes.shape[1]:
        return place, np.diag(1 / scale)
    return place @ V, V / scale[:, None]


def places(problem: Problem) -> tuple[Array, Array]:
    """Return the nodes, the rows first, and the costs (n, m) of moving a row to a node."""
    X = _dense(problem.X)
    S = None if problem.support is None else _dense(problem.support)
    if S is not None and (S.ndim != 2 or S.shape[1] != X.shape[1]):
        raise ValueError(f"support has shape {S.shape} but X has {X.shape[1]} columns.")
    if S is not None and not np.isfinite(S).all():
        raise ValueError("support has NaN or infinite entries.")
    ball = problem.ball
    nodes = X if S is None else np.vstack([X, S])
    distance = ball.cost.distance_to_nodes(X, S)
    cost = distance**ball.order
    np.fill_diagonal(cost, 0.0)
    return nodes, cost


def _dense(block: Any) -> Array:
    return Design(block).dense() if sparse.issparse(block) else np.asarray(block, dtype=float)
