"""How far the data may move before a linear model fails, and where it fails first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import numpy
from ..costs import Cost
from ..design import as_dense, column_scale
from ..duality import pair_norms
from ..problem import Ball
from . import units
from .boundary import (
    Nearest,
    column_norms,
    leaves_band,
    nearest_class,
    part_moved,
)
from .columns import ColumnTable, shares
from .counterfactuals import Change, changes, counterfactuals, normals
from .knapsack import AccuracyCurve, accuracy_curve, moved_mass, prices
from .linear import LinearModel
from .rows import constant_accuracy
from .summary import audit_dict, audit_text
from .worst_loss import robust_risks

Array = NDArray[Any]

#: Points of the default grid, and how far beyond the breaking point it goes.
GRID, BEYOND = 41, 1.25


@dataclass(frozen=True, eq=False)
class Audit:
    r"""What a linear model stands under every distribution within transport cost delta.

    Every delta bounds the mean cost E[c], c = distance^order, of a move of the rows; labels stay
    unless the model's own ball has a price for changing them.
    ``accuracy`` is exact: no distribution within delta has a lower one, and some come
    arbitrarily near. For regression a row is right while the prediction is within ``tau`` of it.

    Attributes
    ----------
    model : LinearModel
        The coefficients that were read out of the model, in the audited columns.
    X, target, weights, groups
        The rows in those columns, class numbers or targets, masses of sum 1, groups or None.
    cost, order
        The price of a move.
    deltas, given_deltas : ndarray
        The radii at which ``to_dict`` and pictures show the curves, from 0; as given or None.
    tau : float or None
        Regression: how near a prediction must be.
    space : str
        "last" or "raw": the columns that are moved.
    notes : list of str
        What the reader should know of how the model was read.
    drift : Drift or None
        With ``new``, how far the new rows are.
    label_cost, target_cost : float
        The price of changing a label, and of moving a target by one; inf: they stay.
    """

    model: LinearModel
    X: Any
    target: Array
    weights: Array
    groups: Array | None
    cost: Cost
    order: int
    tau: float | None
    space: str
    notes: list[str]
    given_deltas: Array | None = None
    drift: Any = None
    label_cost: float = np.inf
    target_cost: float = np.inf

    @property
    def names(self) -> list[str]:
        """The names of the audited columns."""
        return self.model.names

    @property
    def classes(self) -> Array | None:
        """The labels, None for regression."""
        return self.model.classes

    @property
    def fitted_delta(self) -> float | None:
        """The delta that the model was fitted for, in this cost; None if there is none."""
        return self.model.fitted_delta(self.cost, self.order)

    @property
    def audited_delta(self) -> float:
        """The radius that new rows are compared with.

        It is the delta that the model was fitted for, else the largest of the ``deltas`` that were
        given, else that at which the model can be as bad as a constant.
        """
        if self.fitted_delta is not None:
            return self.fitted_delta
        if self.given_deltas is not None:
            return float(self.given_deltas[-1])
        return float(self.breaking_point("constant"))

    @cached_property
    def scores(self) -> Array:
        """The scores of the rows, (n, n_classes), or (n, 1) for regression."""
        return self.model.scores(self.X)

    @cached_property
    def nearest(self) -> Nearest:
        """The distance of each row to the wrong side, and to which class."""
        if self.tau is not None:
            return leaves_band(self.target - self.scores[:, 0], self.tau, self._dual_norm)
        return nearest_class(self.scores, self.target, pair_norms(self.cost, self.model.coef))

    @property
    def distance(self) -> Array:
        """The distance of each row to a flip, 0 where it is wrong already, inf where none flips."""
        return self.nearest.distance

    @property
    def _dual_norm(self) -> float:
        """The largest change of a regression model's score by a move of length 1."""
        return float(self.cost.dual_norm(self.model.coef[0]))

    def ball(self, delta: float) -> Ball:
        """Return the ball of radius delta, in which the audit looks for the worst."""
        return Ball(self.cost, float(delta), self.order, self.label_cost, self.target_cost)

    @cached_property
    def price(self) -> Array:
        """What making each row wrong costs per mass, by a move or a change of label or target."""
        if self.tau is None:
            return prices(self.distance, self.order, self.label_cost)
        gain = float(self.ball(0.0).gain(self._dual_norm))
        residual = self.target - self.scores[:, 0]
        return prices(leaves_band(residual, self.tau, gain).distance, self.order)

    @cached_property
    def relabelled(self) -> Array:
        """Whether changing the label of a row is cheaper than moving it to the wrong side."""
        by_moves = prices(self.distance, self.order)
        return np.isfinite(self.label_cost) & (self.price < by_moves)

    @cached_property
    def part_moved(self) -> Array:
        """The part of the way to its counterfactual that the cheapest change moves each row."""
        if self.tau is None:
            return np.where(self.relabelled, 0.0, 1.0)
        gain = float(self.ball(0.0).gain(self._dual_norm))
        return np.full(len(self.weights), part_moved(self._dual_norm, gain, self.order))

    @cached_property
    def counterfactuals(self) -> Array:
        """The nearest point of each row on the boundary, (n, d); NaN where no move reaches it."""
        return counterfactuals(self.X, self.model, self.target, self.nearest, self.cost)

    @cached_property
    def flips_to(self) -> Array:
        """The label that wins at the counterfactual; for regression +1 above, -1 below."""
        towards = self.nearest.towards
        return towards if self.classes is None else self.classes[towards]

    def changes(self, row: int) -> list[Change]:
        """Return what the counterfactual of a row changes, column by column, largest first."""
        before = np.asarray(numpy(as_dense(self.X[[row]])), dtype=float)[0]
        return changes(before, self.counterfactuals[row], self.names, self.scale)

    @cached_property
    def scale(self) -> Array:
        """The standard deviation of each column."""
        return column_scale(self.X, self.weights)

    def accuracy(self, delta: Any, *, class_: Any = None, group: Any = None) -> Any:
        """Return the least accuracy within delta; a number or an array, as ``delta`` is.

        Of a class or group it is the least accuracy among its rows over the same ball: the
        adversary may spend the whole budget on them.

        Parameters
        ----------
        delta : float or array
            Radii >= 0.
        class_ : label, default=None
            Only the rows of this class.
        group : label, default=None
            Only the rows of this group.
        """
        return self.curve(class_=class_, group=group).accuracy(_radii(delta))

    def breaking_point(self, level: Any, *, class_: Any = None, group: Any = None) -> Any:
        """Return the least delta at which accuracy can fall to ``level``; inf if it never can.

        Parameters
        ----------
        level : float in [0, 1], array or "constant"
            An accuracy; "constant" is that of the best constant model (on the rows of the group, if
            one is named; for a class, where a constant is right always or never, on all rows).
        class_ : label, default=None
            Only the rows of this class.
        group : label, default=None
            Only the rows of this group.
        """
        curve = self.curve(class_=class_, group=group)
        if isinstance(level, str):
            if level != "constant":
                raise ValueError(f"level must be a share in [0, 1] or 'constant', got {level!r}.")
            return curve.breaking_point(self.constant_accuracy(group=group))
        values = np.asarray(level, dtype=float)
        if not np.all((values >= 0) & (values <= 1)):
            raise ValueError(f"level must be a share in [0, 1], got {level!r}.")
        return curve.breaking_point(level)

    def constant_accuracy(self, *, group: Any = None) -> float:
        """Return the accuracy of the best constant model."""
        rows = self.rows(group=group)
        return constant_accuracy(self.target[rows], self.weights[rows], self.tau)

    def curve(self, *, class_: Any = None, group: Any = None) -> AccuracyCurve:
        """Return the whole curve: its corners, between which it is linear."""
        key = (class_, group)
        if key not in self._curves:
            rows = self.rows(class_=class_, group=group)
            self._curves[key] = accuracy_curve(self.price[rows], self.weights[rows])
        return self._curves[key]

    @cached_property
    def _curves(self) -> dict[Any, AccuracyCurve]:
        return {}

    def rows(self, *, class_: Any = None, group: Any = None) -> Any:
        """Return which rows belong to a class and a group: a mask, or a slice of all."""
        if class_ is None and group is None:
            return slice(None)
        kept = np.ones(len(self.weights), dtype=bool)
        if class_ is not None:
            kept &= self.target == _number(class_, self.classes)
        if group is not None:
            kept &= _members(self.groups, group)
        if not self.weights[kept].sum() > 0:
            raise ValueError(f"no row of positive weight has class_={class_!r}, group={group!r}.")
        return kept

    def risk(self, delta: Any) -> Any:
        """Return the worst-case mean of the model's loss within delta; inf where it is endless.

        Parameters
        ----------
        delta : float or array
            Radii >= 0.
        """
        grid = np.atleast_1d(_radii(delta))
        rows = (self.scores, self.target, self.weights)
        found = robust_risks(self.model, *rows, [self.ball(radius) for radius in grid])
        return found if np.ndim(delta) else float(found[0])

    def moved(self, delta: float) -> Array:
        """Return the mass of each row that the adversary of budget delta makes wrong."""
        return moved_mass(self.price, self.weights, float(_radii(delta)))

    @cached_property
    def deltas(self) -> Array:
        """The radii of the curves: as given, or from 0 to beyond the breaking point."""
        if self.given_deltas is not None:
            return self.given_deltas
        budget = self.curve().budget
        end = BEYOND * min(self.breaking_point("constant"), float(budget[-1]))
        return np.linspace(0.0, end if end > 0 else 1.0, GRID)

    @cached_property
    def columns(self) -> ColumnTable:
        """What each column is to the adversary; ``print`` it."""
        broken = min(self.breaking_point("constant"), float(self.curve().budget[-1]))
        spent = self.moved(broken) * np.where(np.isfinite(self.price), self.price, 0.0)
        # what goes into changes of labels and targets is spent on no column
        spent = spent * self.part_moved
        w, of = normals(self.model, self.target, self.nearest)
        alone = self._breaks_alone()
        move = units.mean_move(alone, self.order, self._unit_prices, self.scale)
        return ColumnTable(self.names, shares(w, of, spent, self.cost), alone, move, self.scale)

    @cached_property
    def _unit_prices(self) -> Array:
        return units.unit_prices(self.cost, len(self.names))

    def _breaks_alone(self) -> Array:
        """Return the delta at which moves of one column alone make the model a constant's equal."""
        level, coef = self.constant_accuracy(), self.model.coef
        if self.tau is None and len(coef) > 2:
            return np.array([self._several_break(j, level) for j in range(len(self.names))])
        together = self._by_moves.breaking_point(level)
        beta = coef[-1] if self.tau is not None else coef[1] - coef[0]
        if together == 0:
            return np.zeros(len(beta))
        # one vector: every distance grows by the same factor w/(abs(beta_j)/||e_j||)
        longer = float(self.cost.dual_norm(beta)) * self._unit_prices
        factor = np.divide(longer, np.abs(beta), out=np.full(len(beta), np.inf), where=beta != 0)
        return together * factor**self.order

    def _several_break(self, j: int, level: float) -> float:
        """Return the same for column j of a model with several classes."""
        norms = column_norms(self.model.coef, float(self._unit_prices[j]), j)
        distance = nearest_class(self.scores, self.target, norms).distance
        curve = accuracy_curve(prices(distance, self.order), self.weights)
        return float(curve.breaking_point(level))

    @cached_property
    def _by_moves(self) -> AccuracyCurve:
        """The curve of an adversary who changes no label."""
        return accuracy_curve(prices(self.distance, self.order), self.weights)

    def units(self, delta: float) -> dict[str, float]:
        """Return, for each column, the mean move in standard deviations that costs delta."""
        found = units.mean_move(float(_radii(delta)), self.order, self._unit_prices, self.scale)
        return dict(zip(self.names, found.tolist(), strict=True))

    @property
    def unit_column(self) -> str:
        """The column in whose deviations deltas are stated: of those that vary, first to break."""
        order = self.columns.order()
        varies = order[self.scale[order] > 0]
        return self.names[int(varies[0] if len(varies) else order[0])]

    def deviations(self, delta: Any, column: str | None = None) -> Any:
        """Return delta as a mean move of a column, in its standard deviations; arrays too."""
        j = self.names.index(self.unit_column if column is None else column)
        found = units.mean_move(_radii(delta), self.order, self._unit_prices[j], self.scale[j])
        return found if np.ndim(delta) else float(found)

    def in_words(self, delta: float, column: str | None = None) -> str:
        """Return delta as a mean move of a column: by default ``unit_column``."""
        column = self.unit_column if column is None else column
        if column not in self.names:
            raise ValueError(f"there is no column {column!r}; the columns are {self.names[:20]}.")
        return units.in_words(self.deviations(delta, column), column)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the rows in lists, numbers and strings; see docs/audit.md."""
        return audit_dict(self)

    def summary(self) -> str:
        """Return the audit in words."""
        return audit_text(self)

    def __str__(self) -> str:
        return self.summary()


def _radii(delta: Any) -> Any:
    values = np.asarray(delta, dtype=float)
    if np.isnan(values).any() or (values.size and values.min() < 0):
        raise ValueError(f"delta must be >= 0, got delta={delta!r}.")
    return values if values.ndim else float(values)


def _number(class_: Any, classes: Array | None) -> int:
    if classes is None:
        raise ValueError(f"a regression model has no classes, got class_={class_!r}.")
    found = np.flatnonzero(classes == class_)
    if len(found) == 0:
        raise ValueError(f"class_={class_!r} is none of the classes {classes.tolist()[:20]}.")
    return int(found[0])


def _members(groups: Array | None, group: Any) -> Array:
    if groups is None:
        raise ValueError(f"group={group!r} needs groups: pass groups= to audit.")
    found: Array = groups == group
    if not np.any(found):
        known = np.unique(groups).tolist()[:20]
        raise ValueError(f"group={group!r} is none of the groups {known}.")
    return found
