"""What the page shows of an audit: the stops of its slider, the axes, and the rows drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs.table import EVEN, principal_directions, signed
from ..design import as_dense
from ..inspection import Audit
from ..inspection.auditing import Refit
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
#: Columns whose loadings name a direction.
LOADINGS = 2
#: Loadings below this are not printed.
LEAST = 0.05
#: Rows that are drawn.
SHOWN = 600
#: Rows among them that the adversary moves first.
FIRST = 40


@dataclass(frozen=True, eq=False)
class Stops:
    """Rising ``deltas`` (m,) with certified accuracy and worst-case loss of the audited model.

    ``chance`` is the accuracy after a random drift of the same cost. ``refits`` are the best linear
    models against each delta on the same rows, None where they were not solved for. ``first`` is
    where the slider stands at first, the delta that the advice is about; ``fitted`` is the place of
    the fitted delta.
    """

    deltas: Array
    accuracy: Array
    chance: Array
    risk: Array
    first: int
    fitted: int | None
    refits: list[Refit | None]


def stops_of(audit: Audit) -> Stops:
    """Return the stops of the slider for an audit: from 0 to beyond the fitted delta."""
    fitted, advised = audit.fitted_delta, audit.advised_delta
    # a grid that the user gave may be 0 alone
    end = max(float(audit.deltas[-1]), advised) or 1.0
    # the curve is steepest near 0
    deltas = np.unique(np.append(end * np.linspace(0.0, 1.0, STOPS) ** 2, advised))
    return Stops(
        deltas=deltas,
        accuracy=np.asarray(audit.accuracy(deltas)),
        chance=np.asarray(audit.chance_accuracy(deltas)),
        risk=np.asarray(audit.risk(deltas)),
        first=int(np.searchsorted(deltas, advised)),
        fitted=None if fitted is None else int(np.searchsorted(deltas, fitted)),
        refits=audit.refits(deltas),
    )


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
    return [*_model_axes(audit), *columns, *_cost_axes(audit, d)]


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


def _cost_axes(audit: Audit, d: int) -> list[Axis]:
    """Return the cheapest and the most expensive directions where the cost sets any apart."""
    if not audit.cost.euclidean:
        return []
    prices, vectors = principal_directions(audit.cost, d)
    if prices[-1] <= prices[0] * (1 + EVEN):
        return []
    axes = []
    for k in sorted({*range(min(ENDS, d)), *range(max(d - ENDS, 0), d)}):
        vector = vectors[:, k]
        order = np.argsort(-np.abs(vector), kind="stable")[:LOADINGS]
        parts = [
            f"{vector[j]:+.2f} {isolated(audit.names[j], 20)}".replace("-", "−", 1)
            for j in order
            if abs(vector[j]) >= LEAST
        ]
        axes.append(Axis(f"price {number(prices[k])}: {' '.join(parts)}", CHEAP, vector))
    return axes


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
    """An audit as the page draws it: a sample of its rows, its stops, its axes."""

    audit: Audit
    stops: Stops
    seed: int = 0
    row_names: Sequence[Any] | None = None

    def row_name(self, k: int) -> str:
        """Return the name of a row for the reader: as given, or its number from 0."""
        return str(k) if self.row_names is None else plain(self.row_names[k])

    @property
    def has_refits(self) -> bool:
        """Whether the best model for each delta is known."""
        return any(refit is not None for refit in self.stops.refits)

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
        budgets = np.empty((2, len(price)))
        budgets[:, self.order] = np.append(0.0, np.cumsum(spend)[:-1]), spend
        return budgets[0], budgets[1]

    @cached_property
    def budgets(self) -> tuple[Array, Array]:
        """The same of the drawn rows."""
        before, spend = self.all_budgets
        return before[self.rows], spend[self.rows]

    def made_wrong(self, delta: float) -> int:
        """Return how many right rows the adversary of budget delta makes wrong, at least partly."""
        before, spend = self.all_budgets
        touched = (spend > 0) & (before < delta) & np.isfinite(spend)
        return int(np.count_nonzero(touched & (self.audit.weights > 0)))

    @property
    def wrong_already(self) -> int:
        """The number of rows that are wrong without any move."""
        return int(np.count_nonzero((self.audit.price == 0) & (self.audit.weights > 0)))

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
