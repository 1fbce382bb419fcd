"""What the page shows of an audit: the stops of its slider, the axes, and the rows drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs.table import EVEN, signed
from ..design import as_dense
from ..inspection import Audit
from ..inspection.auditing import Refit
from ..inspection.certificate import budgets
from .markup import isolated, number, plain, spread

Array = NDArray[Any]

#: Stops of the slider beside the delta that the advice is about.
STOPS = 21
#: Columns to choose from as axes: those that break the model first.
COLUMNS = 24
#: Directions of the cost to choose from, at the cheap end and at the expensive end.
ENDS = 3
#: Group labels of the axis menu.
MODEL, COLUMN, CHEAP = "The model", "Columns", "Directions of the cost"
#: Rows that are drawn.
SHOWN = 600
#: Rows among them that the adversary moves first.
FIRST = 40


@dataclass(frozen=True, eq=False)
class Axis:
    """A unit ``direction`` (d,), what it is called, and the kind it is listed under."""

    label: str
    kind: str
    direction: Array


def axes_of(audit: Audit) -> list[Axis]:
    """Return the axes, the model's own direction first where it has one."""
    d = len(audit.names)
    units = audit.units
    columns = []
    for k in audit.columns.order()[:COLUMNS]:
        direction = units.moves[k] / np.linalg.norm(units.moves[k])
        columns.append(Axis(isolated(units.labels()[k]), COLUMN, direction))
    if d == 1:
        return [*columns, Axis("there is one column only", "Nothing", np.zeros(1))]
    return [*_model_axes(audit), *columns, *_cost_axes(audit)]


def _model_axes(audit: Audit) -> list[Axis]:
    """Return the directions that the model looks at: of the score, or two of several scores."""
    coef = audit.model.coef
    # what all classes have in common decides nothing
    seen = coef if audit.classes is None else coef - coef.mean(axis=0)
    sizes, directions = np.linalg.svd(seen, full_matrices=False)[1:]
    kept = directions[(sizes > EVEN * sizes[0]) & (sizes > 0)][:2]
    if len(kept) == 1:
        # the second of two classes lies upwards
        return [Axis("the model's own direction", MODEL, kept[0] * np.sign(kept[0] @ seen[-1]))]
    words = ("first", "second")[: len(kept)]
    return [
        Axis(f"the model's {word} direction", MODEL, signed(v))
        for word, v in zip(words, kept, strict=True)
    ]


def _cost_axes(audit: Audit) -> list[Axis]:
    """Return the cheapest and the most expensive directions where the cost sets any apart."""
    return [
        Axis(f"price {number(price)}: {isolated(along, 80)}", CHEAP, vector)
        for price, along, vector in extreme_directions(audit, ENDS)
    ]


def extreme_directions(audit: Audit, most: int) -> list[tuple[float, str, Array]]:
    """Return price, parts and vector of the cheapest and the most expensive unit directions.

    There are none where all directions in which rows can move cost the same.
    """
    if not audit.cost.euclidean:
        return []
    groups = audit.model.groups
    prices, vectors = groups.directions(audit.cost)
    if not len(prices) or prices[-1] <= prices[0] * (1 + EVEN):
        return []
    found = []
    for k in sorted({*range(len(prices))[:most], *range(len(prices))[-most:]}):
        parts = groups.along(vectors[:, k]).items()
        along = ", ".join(f"{value:+.2f}".replace("-", "−") + f" {name}" for name, value in parts)
        found.append((float(prices[k]), along, vectors[:, k]))
    return found


def plane_slopes(coef: Array, first: Array, second: Array) -> Array:
    """Return the slopes (K, 2) of the scores in the coordinates of two axes.

    Coordinates are inner products with the axes, u = G (a, b) with the Gram matrix G of the two,
    so that the slopes in u are G^-1 (B first, B second), with the pseudo-inverse of parallel axes.
    """
    D = np.stack([first, second])
    inverse = np.linalg.pinv(D @ D.T, rcond=EVEN, hermitian=True)
    return np.asarray((inverse @ D @ coef.T).T)


@dataclass(frozen=True, eq=False)
class View:
    """An audit as the page draws it: the stops of its slider, its axes, a sample of its rows."""

    audit: Audit
    seed: int = 0
    row_names: Sequence[Any] | None = None

    def row_name(self, k: int) -> str:
        """Return the name of a row for the reader: as given, or its number from 0."""
        return str(k) if self.row_names is None else plain(self.row_names[k])

    @cached_property
    def deltas(self) -> Array:
        """The stops of the slider, from 0 to beyond the fitted delta, (m,)."""
        # a grid that the user gave may be 0 alone
        end = max(float(self.audit.deltas[-1]), self.audit.advised_delta) or 1.0
        # the curve is steepest near 0
        stops = end * np.linspace(0.0, 1.0, STOPS) ** 2
        return np.unique(np.append(stops, self.audit.advised_delta))

    @property
    def first(self) -> int:
        """Where the slider stands at first: at the delta that the advice is about."""
        return int(np.searchsorted(self.deltas, self.audit.advised_delta))

    @property
    def fitted(self) -> int | None:
        """The stop of the fitted delta, where the slider then stands at first."""
        return None if self.audit.fitted_delta is None else self.first

    @cached_property
    def accuracy(self) -> Array:
        """The certified accuracy at the stops."""
        return np.asarray(self.audit.accuracy(self.deltas))

    @cached_property
    def chance(self) -> Array:
        """The accuracy after random drifts of the same cost."""
        return np.asarray(self.audit.chance_accuracy(self.deltas))

    @cached_property
    def risk(self) -> Array:
        """The worst-case loss at the stops."""
        return np.asarray(self.audit.risk(self.deltas))

    @cached_property
    def refits(self) -> list[Refit | None]:
        """The best linear model against each delta, None where it was not solved for."""
        return self.audit.refits(self.deltas)

    @property
    def has_refits(self) -> bool:
        """Whether the best model for each delta is known."""
        return any(refit is not None for refit in self.refits)

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes to choose from."""
        return axes_of(self.audit)

    @cached_property
    def chosen(self) -> tuple[int, int]:
        """The axes at first: two columns where there are two, else what the model looks at."""
        kinds = [axis.kind for axis in self.axes]
        if len(self.audit.names) <= 2:
            first = kinds.index(COLUMN)
            # in the order of the table
            return (first, first + 1) if self.axes[first].direction[0] else (first + 1, first)
        if kinds.count(MODEL) != 1:
            return 0, 1
        return 0, kinds.index(CHEAP) if CHEAP in kinds else 1

    @cached_property
    def first_moved(self) -> Array:
        """The numbers of all rows that can be moved to the wrong side, the cheapest first."""
        price = self.audit.price
        order = np.argsort(price, kind="stable")
        return order[(price[order] > 0) & np.isfinite(price[order])]

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
        going = self.audit.moved_share(float(self.deltas[-1]))[self.rows] > 0
        before, after = self.places
        return [spread(np.append(u, v[going])) for u, v in zip(before, after, strict=True)]

    @cached_property
    def budgets(self) -> tuple[Array, Array]:
        """The budget spent before each row is moved, and what moving all of it costs, (n,) each."""
        return budgets(self.audit.price, self.audit.weights)

    def made_wrong(self, delta: float) -> int:
        """Return how many right rows the adversary of budget delta makes wrong, at least partly."""
        right = self.audit.price > 0
        return int(np.count_nonzero(right & (self.audit.moved(delta) > 0)))

    @property
    def wrong_already(self) -> int:
        """The number of rows that are wrong without any move."""
        return int(np.count_nonzero((self.audit.price == 0) & (self.audit.weights > 0)))

    @cached_property
    def marks(self) -> Array:
        """The number of the class of each drawn row; 0 for regression."""
        own = self.audit.target[self.rows]
        return own if self.audit.classes is not None else np.zeros(len(own), dtype=int)
