"""An audit as the page draws it: the rows and axes to show, and where the adversary takes rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design import as_dense
from ..inspection import Audit
from .axes import Axis, axes_of, default_axes
from .stops import Stops
from .svg import spread

Array = NDArray[Any]

#: Rows that are drawn, and those among them that the adversary moves first.
SHOWN, FIRST = 600, 40


@dataclass(frozen=True, eq=False)
class View:
    """An audit as the page draws it: a sample of its rows, its stops, its axes."""

    audit: Audit
    stops: Stops
    seed: int = 0

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes to choose from."""
        return axes_of(self.audit)

    @cached_property
    def chosen(self) -> tuple[int, int]:
        """The axes at first."""
        return default_axes(self.axes, len(self.audit.names))

    @cached_property
    def order(self) -> Array:
        """The numbers of all rows, the cheapest to make wrong first."""
        return np.argsort(self.audit.price, kind="stable")

    @cached_property
    def first_moved(self) -> Array:
        """The numbers of all rows that can be moved to the wrong side, the cheapest first."""
        price = self.audit.price[self.order]
        return self.order[(price > 0) & np.isfinite(price)]

    @cached_property
    def rows(self) -> Array:
        """The numbers of the rows that are drawn, rising."""
        n = len(self.audit.weights)
        if n <= SHOWN:
            return np.arange(n)
        early = self.first_moved[:FIRST]
        others = np.setdiff1d(np.arange(n), early)
        rng = np.random.default_rng(self.seed)
        return np.sort(np.append(early, rng.choice(others, SHOWN - len(early), replace=False)))

    @cached_property
    def sample(self) -> Audit:
        """The audit of the drawn rows alone: their counterfactuals are all that is needed of it."""
        parts = {name: getattr(self.audit, name)[self.rows] for name in ("X", "target", "weights")}
        return replace(self.audit, **parts, groups=None, drift=None)

    @cached_property
    def center(self) -> Array:
        """The mean of all rows, (d,)."""
        return np.asarray(self.audit.weights @ self.audit.X, dtype=float).ravel()

    @cached_property
    def directions(self) -> Array:
        """The axes as rows, (m, d)."""
        return np.stack([axis.direction for axis in self.axes])

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """Where the drawn rows are and where they are taken, (m, n) each, along every axis."""
        before = np.asarray(as_dense(self.sample.X), dtype=float)
        part = self.sample.part_moved[:, None]
        # a row whose label is changed stays where it is, also where no move would reach a boundary
        move = np.where(part > 0, part * (self.sample.counterfactuals - before), 0.0)
        return self.directions @ before.T, self.directions @ (before + move).T

    @cached_property
    def ranges(self) -> list[tuple[float, float]]:
        """What each axis shows: all drawn rows, and where they go by the last stop."""
        going = self.shares(float(self.stops.deltas[-1])) > 0
        before, after = self.places
        return [spread(np.append(u, v[going])) for u, v in zip(before, after, strict=True)]

    @cached_property
    def all_budgets(self) -> tuple[Array, Array]:
        """The budget spent before each row is moved, and what moving all of it costs."""
        price, weights = self.audit.price[self.order], self.audit.weights[self.order]
        spend = np.where(np.isfinite(price), price * weights, np.inf)
        found = np.empty((2, len(price)))
        found[:, self.order] = np.append(0.0, np.cumsum(spend)[:-1]), spend
        return found[0], found[1]

    @cached_property
    def budgets(self) -> tuple[Array, Array]:
        """The same of the drawn rows."""
        before, spend = self.all_budgets
        return before[self.rows], spend[self.rows]

    def wrong(self, delta: float) -> int:
        """Return how many rows the adversary of budget delta makes wrong, in part or wholly."""
        before, spend = self.all_budgets
        touched = (spend == 0) | ((before < delta) & np.isfinite(spend))
        return int(np.count_nonzero(touched & (self.audit.weights > 0)))

    def shares(self, delta: float) -> Array:
        """Return the part of each drawn row that the adversary of budget delta makes wrong."""
        before, spend = self.budgets
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.clip((delta - before) / spend, 0, 1)
        return np.where(spend == 0, 1.0, np.nan_to_num(share))

    @cached_property
    def marks(self) -> Array:
        """The number of the class of each drawn row; 0 for regression."""
        own = self.audit.target[self.rows]
        return own if self.audit.classes is not None else np.zeros(len(own), dtype=int)

    def refit_at(self, stop: int) -> Any:
        """Return the best model against the delta of a stop, None at 0 or where there is none."""
        refits = self.stops.refits
        if refits is None or self.stops.deltas[stop] == 0:
            return None
        return refits[stop - (len(self.stops.deltas) - len(refits))]
