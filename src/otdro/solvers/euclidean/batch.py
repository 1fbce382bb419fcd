"""Many problems over the same rows as columns of arrays, and points of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import full, namespace, numbers, numpy, pick_columns, set_columns
from ...design import Design
from ...losses import Loss
from .block_rows import BlockRows
from .stack import Stack

Array = NDArray[Any]


def norms(v: Array) -> Array:
    """Return the Euclidean norm of each column."""
    xp = namespace(v)
    return xp.sqrt(xp.einsum("db,db->b", v, v))


def dots(u: Array, v: Array) -> Array:
    """Return u'v of each column, as NumPy."""
    found: Array = np.vecdot(u.T, v.T) if isinstance(u, np.ndarray) else numpy((u * v).sum(axis=0))
    return found


def by_columns(v: Array) -> Array:
    """Return an array whose columns are contiguous; one on a device has one column only."""
    return np.asfortranarray(v) if isinstance(v, np.ndarray) else v


@dataclass(eq=False)
class Batch:
    """B problems; ``weights`` (n, B) with columns of sum 1, ``rho`` (B,).

    The ``design`` is that of all, with targets ``y`` (n,), or a stack of one each, with y (n, B).
    What has no entry per row is where ``rho`` is: NumPy, but for a stack on a device.
    """

    design: Design | Stack | BlockRows
    y: Array
    weights: Array
    loss: Loss
    rho: Array
    fit_intercept: bool

    def columns(self, index: Array) -> Batch:
        """Return the problems of some columns."""
        weights, rho = pick_columns(self.weights, index), self.rho[index]
        y = self.y if self.y.ndim == 1 else pick_columns(self.y, index)
        return Batch(self.design.problems(index), y, weights, self.loss, rho, self.fit_intercept)

    @property
    def targets(self) -> Array:
        """The targets with an axis of problems, (n, 1) or (n, B)."""
        return self.y[:, None] if self.y.ndim == 1 else self.y

    def small(self, v: Array) -> Array:
        """Return what has no entry per row where it belongs."""
        return numpy(v) if isinstance(self.rho, np.ndarray) else v

    def mean(self, v: Array) -> Array:
        """Return the weighted sum over rows, one per column."""
        if isinstance(v, np.ndarray):
            return np.einsum("nb,nb->b", self.weights, v)
        if self.weights.shape[1] == 1:
            return self.small(self.weights[:, 0] @ v[:, 0])[None]
        return self.small((self.weights * v).sum(axis=0))

    def objective(self, p: Points) -> Array:
        """Return mean l + rho w."""
        return self.mean(p.value) + self.rho * p.w


@dataclass(eq=False)
class Points:
    """Points of a batch, the batch along the last axis; ``z`` includes the intercept."""

    theta: Array
    b: Array
    z: Array
    value: Array
    slope: Array
    curvature: Array

    @cached_property
    def w(self) -> Array:
        """The norms ||theta||_2."""
        return norms(self.theta)

    def columns(self, index: Array) -> Points:
        """Return the points of some columns."""
        parts = (self.theta, self.b, self.z, self.value, self.slope, self.curvature)
        return Points(*(pick_columns(part, index) for part in parts))


@dataclass(eq=False)
class Zero:
    """The points at theta = 0 of a batch and their gradients g = Z'(pi a), (d, B)."""

    points: Points
    g: Array

    def columns(self, index: Array) -> Zero:
        """Return those of some columns."""
        return Zero(self.points.columns(index), self.g[:, index])


@dataclass(eq=False)
class Minimum:
    """What ``minimise`` returns, the batch along the last axis; ``slope`` is the dual point a."""

    theta: Array
    b: Array
    z: Array
    slope: Array
    objective: Array
    gap: Array
    n_iter: Array

    @classmethod
    def empty(cls, batch: Batch) -> Minimum:
        """Return arrays for every problem of a batch."""
        n, d, B = batch.design.n, batch.design.d, len(batch.rho)
        # the entries of a problem are next to each other
        return cls(
            full((B, d), 0.0, batch.rho).T,
            full(B, 0.0, batch.rho),
            full((B, n), 0.0, batch.y).T,
            full((B, n), 0.0, batch.y).T,
            full(B, 0.0, batch.rho),
            full(B, 0.0, batch.rho),
            numbers(B, batch.rho) * 0 + 1,
        )

    @classmethod
    def of_problem(cls, found: list[Minimum], b: int, d: int) -> Minimum:
        """Return the minima of problem b in several batches, in its first d coordinates."""
        return cls(
            np.stack([each.theta[:d, b] for each in found], axis=1),
            np.array([each.b[b] for each in found]),
            np.stack([each.z[:, b] for each in found], axis=1),
            np.stack([each.slope[:, b] for each in found], axis=1),
            np.array([each.objective[b] for each in found]),
            np.array([each.gap[b] for each in found]),
            np.array([each.n_iter[b] for each in found]),
        )

    def store(self, columns: Array, p: Points, objective: Array, gap: Array, n_iter: int) -> None:
        """Write finished points into their columns."""
        set_columns(self.theta, columns, p.theta)
        self.b[columns] = p.b
        set_columns(self.z, columns, p.z)
        set_columns(self.slope, columns, p.slope)
        self.objective[columns], self.gap[columns], self.n_iter[columns] = objective, gap, n_iter
