"""Problems of smooth losses at order 1 as columns, and steps of their models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .newton import StreamedProblem
from .stream import Constant, Stream
from .sums import Models

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Columns:
    """Problems as columns: ``factors`` L and ``rho`` of each, and the fold it leaves out, or -1.

    ``model`` is its number among those of the stream, one per class where there are more than two.
    ``group`` is the number of the problem over all rows of the same cost, delta and model, whose
    Newton matrix serves those that leave a fold out.
    """

    stream: Stream
    factors: list[Array | None]
    rho: Array
    model: Array
    left_out: Array
    group: Array

    def in_folds(self, factors: list[list[Array | None]]) -> Columns:
        """Return these problems without each fold in turn, fold after fold, with its factors."""
        F, B = len(factors), len(self.rho)
        every = self.part(np.tile(np.arange(B), F))
        of_folds = [L for of_fold in factors for L in of_fold]
        return replace(every, factors=of_folds, left_out=np.repeat(np.arange(F), B))

    def part(self, some: Array) -> Columns:
        """Return some of the problems."""
        each = (self.rho, self.model, self.left_out, self.group)
        factors = [self.factors[j] for j in some]
        return Columns(self.stream, factors, *(part[some] for part in each))

    @property
    def positive(self) -> Array | None:
        """The class that is +1 of each problem, None where there are two classes."""
        return self.model if len(self.stream.models) > 1 else None

    def problem(self, j: int) -> StreamedProblem:
        """Return one of the problems."""
        model = self.stream.models[self.model[j]]
        return StreamedProblem(model, self.factors[j], float(self.rho[j]))

    @cached_property
    def constants(self) -> list[Constant]:
        """The best constant models on the training rows of each problem."""
        pairs = list(zip(self.model.tolist(), self.left_out.tolist(), strict=True))
        known = {(k, f): self.stream.models[k].constant(f) for k, f in set(pairs)}
        return [known[pair] for pair in pairs]

    @property
    def constant_risks(self) -> Array:
        """The risks of these."""
        return np.array([constant.risk for constant in self.constants])

    def lift(self, X: Array) -> Models:
        """Return the models X (d + 1, B), theta and b of every problem, on centred rows."""
        pairs = zip(self.factors, X[:-1].T, strict=True)
        return Models(np.stack([t if L is None else L @ t for L, t in pairs], axis=1), X[-1])

    def drop(self, g: Array) -> Array:
        """Return L'g of every problem."""
        pairs = zip(self.factors, g.T, strict=True)
        return np.stack([v if L is None else L.T @ v for L, v in pairs], axis=1)


@dataclass(frozen=True, eq=False)
class ColumnSteps:
    """A step of every model (d + 1, B), the slope of F along it, and what it may leave to gain."""

    move: Array
    slope: Array
    left: Array

    @classmethod
    def none(cls, d: int, B: int) -> ColumnSteps:
        """Return that of models at rest."""
        return cls(np.zeros((d + 1, B)), np.zeros(B), np.zeros(B))

    def times(self, share: Any) -> ColumnSteps:
        """Return a part of the step; of models at rest it is 0."""
        return ColumnSteps(*(share * part for part in vars(self).values()))

    def or_else(self, other: ColumnSteps, where: Array) -> ColumnSteps:
        """Return the steps, those of another where a condition holds."""
        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return ColumnSteps(*(np.where(where, x, y) for x, y in pairs))
