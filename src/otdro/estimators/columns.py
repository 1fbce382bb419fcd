"""The columns of a table as a reader thinks of them: what is made of each, and its unit.

A column of categories becomes several indicators that sum to one. A reader thinks of it as one
column whose values are switched, so that tables, prices and moves are told by ``ColumnGroups``,
which is read out of the fitted steps in front of a model. ``Units`` states a delta as a move of
one of these columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from ..costs import Cost
from ..costs.table import EVEN, PrincipalDirections, principal_directions

Array = NDArray[Any]

#: The category of values that share an indicator because each is rare.
OTHER = "other values"
#: Classes up to which all pairs of them are compared; of more, each class with the mean.
ALL_PAIRS_UP_TO = 10
#: Parts of a direction or of a move, and columns, that a sentence names.
PARTS = 3
#: The least loading among the parts of a direction.
LEAST = 0.05


@dataclass(frozen=True)
class Switch:
    """A move within one column of categories, as the largest switch in it.

    ``size`` is the mass that leaves its categories: of a mean move of rows, the share of the rows.
    """

    column: str
    before: str
    after: str
    size: float

    def __str__(self) -> str:
        return f"{self.column}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class ColumnGroups:
    """The prepared columns that stem from each column of a table.

    Attributes
    ----------
    names : list of str
        The prepared columns; an indicator is called ``column=value``.
    indices : dict
        Of each column of the table, its prepared columns.
    categories : dict
        Of each column of categories, what its indicators stand for, in the order of ``indices``.
    dropped : dict
        The same of columns whose encoder drops a category, and that category last: it has no
        indicator, so that a move of one indicator is a switch.
    """

    names: list[str]
    indices: dict[str, list[int]]
    categories: dict[str, list[str]]
    dropped: dict[str, list[str]] = field(default_factory=dict)

    @property
    def numbers(self) -> list[int]:
        """The prepared columns that are no indicators."""
        return [j for name, own in self.indices.items() if name not in self.categories for j in own]

    def sums(self, values: Array) -> dict[str, float]:
        """Return the sum of the values (d,) of the prepared columns, by column of the table."""
        return {name: float(np.sum(values[own])) for name, own in self.indices.items()}

    def switch(self, column: str, move: Array) -> Switch:
        """Return the part of a move (d,) that lies in a column of categories."""
        own, values = move[self.indices[column]], self.categories[column]
        size = float(np.abs(own).sum()) / 2
        return Switch(column, values[int(own.argmin())], values[int(own.argmax())], size)

    def directions(self, cost: Cost, scale: Array) -> PrincipalDirections:
        """Return the principal directions of a cost among those in which rows can move.

        The unit is one standard deviation of a column of numbers, ``scale`` (d,), or one switch in
        a column of categories, whose indicators sum to one: their moves sum to zero.
        """
        d = len(self.names)
        basis = [np.diag(np.where(scale > 0, scale, 1.0))[:, self.numbers]]
        for column in self.categories:
            own = self.indices[column]
            part = np.zeros((d, len(own) - 1))
            part[own] = np.linalg.svd(np.eye(len(own)) - 1 / len(own))[0][:, : len(own) - 1]
            # a switch moves two indicators by 1
            part *= np.sqrt(2)
            basis.append(part)
        return principal_directions(cost, d, np.hstack(basis))

    def along(self, direction: Array, scale: Array) -> dict[str, float]:
        """Return the largest parts of a direction or its opposite, in the same units."""
        unit = np.where(scale > 0, scale, 1.0)
        sizes = {self.names[j]: float(direction[j] / unit[j]) for j in self.numbers}
        for column in self.categories:
            name = str(self.switch(column, direction))
            sizes[name] = float(np.ptp(direction[self.indices[column]])) / 2
        ordered = sorted(sizes, key=lambda name: -abs(sizes[name]))[:PARTS]
        if sizes[ordered[0]] < 0:
            # a direction and its opposite cost the same
            return self.along(-direction, scale)
        return {name: round(sizes[name], 3) for name in ordered if abs(sizes[name]) > LEAST}


def column_groups(front: Any, names: list[str]) -> ColumnGroups:
    """Return the groups of the columns ``names`` that the fitted steps ``front`` make.

    Columns whose origin cannot be read stand for themselves, all of them if ``front`` is None.
    """
    origins = [_Origin(name) for name in names]
    if front is not None:
        try:
            traced = _traced(front, [_Origin(str(name)) for name in front.feature_names_in_])
        except (AttributeError, KeyError, TypeError, ValueError):
            # a step without names, or one that makes other columns than it says
            traced = []
        if len(traced) == len(names):
            origins = traced
    shown = list(names)
    indices: dict[str, list[int]] = {}
    categories: dict[str, list[str]] = {}
    for j, origin in enumerate(origins):
        indices.setdefault(origin.column, []).append(j)
        if origin.category is not None:
            shown[j] = f"{origin.column}={origin.category}"
            categories.setdefault(origin.column, []).append(origin.category)
    # a column that is used both as numbers and as categories is told by its prepared columns
    both = [name for name, values in categories.items() if len(values) < len(indices[name])]
    for name in both:
        del categories[name]
        for j in indices.pop(name):
            indices[shown[j]] = [j]
    without = {
        o.column: o.dropped for o in origins if o.dropped is not None and o.column in indices
    }
    dropped = {name: [*categories.pop(name), value] for name, value in without.items()}
    return ColumnGroups(shown, indices, categories, dropped)


class _Origin(NamedTuple):
    """The column of the table that a prepared column stems from, and the category, if it is one.

    ``dropped`` is the category of the same column that has no indicator.
    """

    column: str
    category: str | None = None
    dropped: str | None = None


def _traced(step: Any, origins: list[_Origin]) -> list[_Origin]:
    """Return the origins of the columns that a fitted step makes of columns with ``origins``."""
    if isinstance(step, FrozenEstimator):
        return _traced(step.estimator, origins)
    if isinstance(step, Pipeline):
        for _, part in step.steps:
            origins = _traced(part, origins)
        return origins
    if isinstance(step, ColumnTransformer):
        places = np.arange(len(origins))
        by_name = {str(name): j for j, name in enumerate(step.feature_names_in_)}
        made: dict[int, _Origin] = {}
        for name, part, columns in step.transformers_:
            if isinstance(part, str) and part == "drop":
                continue
            listed = not isinstance(columns, slice) and len(columns) and isinstance(columns[0], str)
            chosen = [by_name[str(c)] for c in columns] if listed else places[columns]
            outputs = _traced(part, [origins[j] for j in chosen])
            place = step.output_indices_[name]
            made.update(zip(range(place.start, place.stop), outputs, strict=True))
        return [made[j] for j in sorted(made)]
    if isinstance(step, OneHotEncoder):
        return [made for k, origin in enumerate(origins) for made in _indicators(step, k, origin)]
    if step is None or step == "passthrough":
        return origins
    # a step that changes values but no column keeps the names
    given = [f"{j}" for j in range(len(origins))]
    names = getattr(step, "feature_names_in_", given)
    known = dict(zip((str(name) for name in names), origins, strict=True))
    return [known.get(str(n), _Origin(str(n))) for n in step.get_feature_names_out(names)]


def _indicators(encoder: OneHotEncoder, k: int, origin: _Origin) -> list[_Origin]:
    """Return what the indicators of the k-th column of an encoder stand for, in their order."""
    joined = getattr(encoder, "infrequent_categories_", [None] * (k + 1))[k]
    rare = set() if joined is None else set(joined)
    known = encoder.categories_[k]
    values = [str(v) for v in known if v not in rare] + [OTHER] * bool(rare)
    dropped = None
    if encoder.drop_idx_ is not None and encoder.drop_idx_[k] is not None:
        value = known[encoder.drop_idx_[k]]
        dropped = OTHER if value in rare else str(value)
        values.remove(dropped)
    return [_Origin(origin.column, value, dropped) for value in values]


def score_vectors(coef: Array) -> Array:
    """Return the directions that a model sees: its coefficients, or differences of its classes'.

    Of many classes they are the differences from the mean, one per class.
    """
    if len(coef) == 1:
        return coef
    if len(coef) > ALL_PAIRS_UP_TO:
        return coef - coef.mean(axis=0)
    first, second = np.triu_indices(len(coef), 1)
    return coef[first] - coef[second]


def column_parts(vectors: Array, cost: Cost) -> Array:
    """Return the part (K, d) of the price of a move along direction(w) that each column has.

    Such a move changes the score x'w most. It costs 1 = sum_j w_j v_j/||w||_*, because w/||w||_* is
    a gradient of the norm at v: the terms are the parts. Zeros for w = 0.
    """
    norms = cost.dual_norm(vectors)[:, None]
    products = vectors * cost.direction(vectors)
    return np.divide(products, norms, out=np.zeros_like(vectors), where=norms > 0)


@dataclass(frozen=True, eq=False)
class Units:
    """One move for each column of the table: what deltas and prices are stated in.

    A column of numbers moves by one standard deviation, a column of categories switches from one
    to another: from the commoner of the two that part the scores most at their price.

    Attributes
    ----------
    names : list of str
        The columns; a category is one column, whatever indicators it was made into.
    switches : list of str
        "Leeds -> York" for a category, "" for numbers.
    members : list of lists of int
        The prepared columns that belong to each.
    moves : ndarray of shape (m, d)
        The moves, in the prepared columns: by 1, or the switch.
    scale : ndarray of shape (m,)
        How many of them are the unit: the standard deviation, 1 for a switch.
    norms, gain : ndarray of shape (m,)
        The norms of the moves, and the largest change of a score by a move of norm 1.
    """

    names: list[str]
    switches: list[str]
    members: list[list[int]]
    moves: Array
    scale: Array
    norms: Array
    gain: Array

    @property
    def prices(self) -> Array:
        """The price of the unit of each column, (m,); 0 where a column is constant."""
        return self.norms * self.scale

    @property
    def chosen(self) -> int:
        """The column that deltas are stated in: the one that changes a score most at its price.

        It is the same for every delta and for all rows in which the same columns vary.
        """
        return int(np.where(self.scale > 0, self.gain, -1.0).argmax())

    def labels(self) -> list[str]:
        """Return the columns with their switches."""
        pairs = zip(self.names, self.switches, strict=True)
        return [f"{name}: {switch}" if switch else name for name, switch in pairs]

    def amount(self, delta: Any, order: int, j: Any = slice(None)) -> Any:
        """Return how much of a move costs delta; inf where nothing does.

        Of numbers it is the mean move m with ||m move||^order = delta, in standard deviations; of
        categories the share of rows that switch.
        """
        prices = self.prices[j]
        is_switch = np.array([bool(switch) for switch in self.switches])[j]
        delta = np.asarray(delta, dtype=float)
        root, whole = np.broadcast_arrays(delta ** (1 / order), prices)
        mean = np.divide(root, whole, out=np.full(root.shape, np.inf), where=whole > 0)
        # a share q of the rows that switch costs q times the price to the power
        return np.where(is_switch, mean**order, mean)

    def in_words(self, delta: float, order: int, j: int | None = None) -> str:
        """Return delta as a move of a column, by default the chosen one."""
        column = self.chosen if j is None else j
        amount = float(self.amount(delta, order, column))
        if not np.isfinite(amount):
            return "no move at all reaches it"
        name, switch = self.names[column], self.switches[column]
        numbers = np.array([not switch for switch in self.switches]) & (self.scale > 0)
        prices = self.prices[numbers]
        if j is None and not switch and len(prices) > 1 and np.ptp(prices) <= EVEN * prices.max():
            name = "any one column" + ("" if numbers.all() else " of numbers")
        return amount_in_words(amount, name, switch)


def amount_in_words(amount: float, column: str, switch: str) -> str:
    """Return a move of one column: in deviations, or as a share of rows that switch."""
    if switch and amount > 1:
        return f"more than a switch of {column}, {switch}, in all rows"
    if switch:
        return f"a switch of {column}, {switch}, in {amount:.2%} of rows"
    return f"a mean move of {amount:.3g} standard deviations of {column}"


def units_of(groups: ColumnGroups, coef: Array, X: Any, scale: Array, cost: Cost) -> Units:
    """Return the units of the columns of rows X for a model with coefficients (K, d).

    ``scale`` (d,) are the standard deviations of the prepared columns.
    """
    vectors = score_vectors(coef)
    # name, switch, prepared columns, and from which of them to which the move goes
    units: list[tuple[str, str, list[int], int, int]] = []
    for column, own in groups.indices.items():
        if column not in groups.categories or len(own) == 1:
            units += [(groups.names[j], "", [j], j, j) for j in own]
            continue
        first, second = (np.array(own)[k] for k in np.triu_indices(len(own), 1))
        pairs = np.zeros((len(first), len(scale)))
        pairs[np.arange(len(first)), first] = -1.0
        pairs[np.arange(len(first)), second] = 1.0
        best = int((np.abs(pairs @ vectors.T).max(axis=1) / cost.norm(pairs)).argmax())
        both = [int(first[best]), int(second[best])]
        common = np.asarray(X[:, both].mean(axis=0)).ravel()
        start, end = both if common[0] >= common[1] else both[::-1]
        values = dict(zip(own, groups.categories[column], strict=True))
        units.append((column, f"{values[start]} -> {values[end]}", own, start, end))
    names, switches, members, starts, ends = map(list, zip(*units, strict=True))
    is_switch = np.array([bool(switch) for switch in switches])
    moves = np.zeros((len(names), len(scale)))
    moves[np.arange(len(names)), starts] = -1.0
    moves[np.arange(len(names)), ends] = 1.0
    norms = np.asarray(cost.norm(moves), dtype=float)
    return Units(
        names=names,
        switches=switches,
        members=members,
        moves=moves,
        scale=np.where(is_switch, 1.0, scale[ends]),
        norms=norms,
        gain=np.abs(moves @ vectors.T).max(axis=1) / norms,
    )
