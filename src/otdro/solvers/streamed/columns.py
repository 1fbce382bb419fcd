"""Problems of smooth losses at order 1 as columns, their models, and steps of these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .newton import StreamedProblem
from .stream import Stream

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Columns:
    """Problems as columns: ``factors`` L and ``rho`` of each, and the fold it leaves out.

    ``model`` is its number among those of the stream, one per class where there are more than two.
    ``group`` is the number of the problem over all rows of the same cost, delta and model, whose
    Newton matrix serves those that leave a fold out.
    """

    factors: list[Array | None]
    rho: Array
    model: Array
    left_out: Array
    group: Array

    @classmethod
    def everywhere(cls, factors: list[Array | None], rho: Array, model: Array) -> Columns:
        """Return problems over all rows."""
        B = len(rho)
        return cls(factors, rho, model, np.full(B, -1), np.arange(B))

    def in_folds(self, factors: list[list[Array | None]]) -> Columns:
        """Return these problems without each fold in turn, fold after fold, with its factors."""
        F, every = len(factors), [L for of_fold in factors for L in of_fold]
        left_out = np.repeat(np.arange(F), len(self.rho))
        return Columns(
            every, np.tile(self.rho, F), np.tile(self.model, F), left_out, np.tile(self.group, F)
        )

    def part(self, some: Array) -> Columns:
        """Return some of the problems."""
        each = (self.rho, self.model, self.left_out, self.group)
        return Columns([self.factors[j] for j in some], *(part[some] for part in each))

    def positive(self, stream: Stream) -> Array | None:
        """Return the class that is +1 of each problem, None where there are two classes."""
        return self.model if len(stream.models) > 1 else None

    def problem(self, stream: Stream, j: int) -> StreamedProblem:
        """Return one of the problems."""
        return StreamedProblem(stream.models[self.model[j]], self.factors[j], float(self.rho[j]))

    def lift(self, theta: Array) -> Array:
        """Return beta = L theta of every problem."""
        pairs = zip(self.factors, theta.T, strict=True)
        return np.stack([t if L is None else L @ t for L, t in pairs], axis=1)

    def drop(self, g: Array) -> Array:
        """Return L'g of every problem."""
        pairs = zip(self.factors, g.T, strict=True)
        return np.stack([v if L is None else L.T @ v for L, v in pairs], axis=1)


@dataclass(frozen=True, eq=False)
class Iterates:
    """Models (theta (d, B), b) in the coordinates of their costs; ``fixed`` ones are constant."""

    theta: Array
    b: Array
    fixed: Array

    @property
    def w(self) -> Array:
        """The norms of theta."""
        return np.linalg.norm(self.theta, axis=0)

    def or_else(self, other: Iterates, where: Array) -> Iterates:
        """Return the models, those of another where a condition holds."""
        theta = np.where(where, other.theta, self.theta)
        return replace(self, theta=theta, b=np.where(where, other.b, self.b))

    def moved(self, step: ColumnSteps) -> Iterates:
        """Return the models after a step."""
        return replace(self, theta=self.theta + step.theta, b=self.b + step.b)


@dataclass(frozen=True, eq=False)
class ColumnSteps:
    """A step of every model, the slope of F along it, and what it may leave to be gained."""

    theta: Array
    b: Array
    slope: Array
    left: Array

    @classmethod
    def none(cls, d: int, B: int) -> ColumnSteps:
        """Return that of models at rest."""
        return cls(np.zeros((d, B)), *(np.zeros(B) for _ in range(3)))

    def times(self, share: Any) -> ColumnSteps:
        """Return a part of the step; of models at rest it is 0."""
        return ColumnSteps(*(share * part for part in vars(self).values()))

    def or_else(self, other: ColumnSteps, where: Array) -> ColumnSteps:
        """Return the steps, those of another where a condition holds."""
        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return ColumnSteps(*(np.where(where, x, y) for x, y in pairs))
