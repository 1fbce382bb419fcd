"""The audit: how far rows may move before a linear model fails, and where it fails first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from ..arrays import check_places, numpy, on_host, pick
from ..costs import Cost, Norm
from ..design import as_dense, column_scale
from ..duality import pair_norms
from ..estimators import DROClassifier, DRORegressor
from ..estimators.columns import Units, units_of
from ..pairs import TEACH_UP_TO, generator
from ..problem import Ball
from ..radius.checks import check_deltas, check_groups, check_weights, normalise
from ..radius.selection import resolve_cost
from .certificate import (
    ROUNDING,
    AccuracyCurve,
    Nearest,
    accuracy_curve,
    budget_shares,
    is_right,
    moved_share,
    nearest_class,
    nearest_error,
    normals,
    robust_risks,
)
from .linear import LinearModel, read
from .summary import ColumnTable, audit_advice, audit_dict, audit_text

Array = NDArray[Any]

#: Number of radii in the default grid.
GRID = 41
#: The default grid ends at this multiple of the breaking point.
GRID_END = 1.25
#: Random directions in which a chance drift is simulated: the mean accuracy is known to about 1%.
CHANCE_DRAWS = 100
#: What happens by chance in a smaller share of the cases is rare: low accuracies, p-values. Without
#: a fitted delta, advice is about the delta that costs this share of the rows.
RARE = 0.05


@dataclass(frozen=True, eq=False)
class Change:
    """What a counterfactual changes in one column: from, to, and that in standard deviations.

    Of a column of categories it is from one to another, and the part of that way.
    """

    column: str
    before: float | str
    after: float | str
    amount: float


@dataclass(frozen=True, eq=False)
class Audit:
    r"""The worst case of a linear model over every distribution within transport cost delta.

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
    drift : Drift or None
        With ``new``, how far the new rows are.
    label_cost, target_cost : float
        The price of changing a label, and of moving a target by one; inf: they stay.
    random_state : int or None
        Seeds the simulation of ``chance_accuracy``.
    """

    model: LinearModel
    X: Any
    target: Array
    weights: Array
    groups: Array | None
    cost: Cost
    order: int
    tau: float | None
    given_deltas: Array | None = None
    drift: Any = None
    label_cost: float = np.inf
    target_cost: float = np.inf
    random_state: Any = None

    @property
    def names(self) -> list[str]:
        """The names of the audited columns."""
        return self.model.names

    @property
    def classes(self) -> Array | None:
        """The labels, None for regression."""
        return self.model.classes

    @property
    def space(self) -> str:
        """The columns that are moved: "last" (in front of the last step) or "raw"."""
        return self.model.space

    @property
    def notes(self) -> list[str]:
        """Sentences on how the model was read."""
        return self.model.notes

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
            return nearest_error(self.target - self.scores[:, 0], self.tau, self._dual_norm)
        return nearest_class(self.scores, self.target, pair_norms(self.cost, self.model.coef))

    @cached_property
    def right(self) -> Array:
        """Which rows the model has right where they are, (n,)."""
        return is_right(self.scores, self.target, self.tau)

    @property
    def distance(self) -> Array:
        """The distance of each row to a flip, 0 where it is wrong already, inf where none flips."""
        return self.nearest.distance

    @property
    def _dual_norm(self) -> float:
        """The largest change of a regression model's score by a move of length 1."""
        return float(self.cost.dual_norm(self.model.coef[0]))

    @property
    def _gain(self) -> float:
        """The largest change of a residual at unit price, by moves of the row and its target."""
        return float(self.ball(0.0).gain(self._dual_norm))

    def ball(self, delta: float) -> Ball:
        """Return the ball of radius delta, in which the audit looks for the worst."""
        return Ball(self.cost, float(delta), self.order, self.label_cost, self.target_cost)

    @cached_property
    def price(self) -> Array:
        """The cost per mass of making each row wrong, by a move or a change of label or target."""
        if self.tau is None:
            return np.minimum(self.distance**self.order, self.label_cost)
        residual = self.target - self.scores[:, 0]
        return nearest_error(residual, self.tau, self._gain).distance ** self.order

    @cached_property
    def relabelled(self) -> Array:
        """Whether changing the label of a row is cheaper than moving it to the wrong side."""
        return np.isfinite(self.label_cost) & (self.price < self.distance**self.order)

    @cached_property
    def part_moved(self) -> Array:
        """The part of the way to its counterfactual that the cheapest change moves each row.

        Where targets move as well, both share the way as w^2 and gain^2 - w^2 at order 2; at order
        1 the cheaper of the two goes all of it.
        """
        if self.tau is None:
            return np.where(self.relabelled, 0.0, 1.0)
        w, gain = self._dual_norm, self._gain
        part = 1.0 if gain == w else (w / gain) ** 2 if self.order == 2 else 0.0
        return np.full(len(self.weights), part)

    @cached_property
    def counterfactuals(self) -> Array:
        """The nearest point of each row on the boundary, (n, d); NaN where no move reaches it."""
        w, index = normals(self.model, self.target, self.nearest)
        points = np.array(numpy(as_dense(self.X)), dtype=float)
        reached = np.isfinite(self.distance)
        direction = self.cost.direction(w)[index[reached]]
        points[reached] -= self.distance[reached, None] * direction
        points[~reached] = np.nan
        return points

    @cached_property
    def flips_to(self) -> Array:
        """The label that wins at the counterfactual; for regression +1 above, -1 below."""
        towards = self.nearest.towards
        return towards if self.classes is None else self.classes[towards]

    def changes(self, row: int) -> list[Change]:
        """Return what the counterfactual of a row changes, the largest change first."""
        before = np.asarray(numpy(as_dense(self.X[[row]])), dtype=float)[0]
        after = self.counterfactuals[row]
        step = after - before
        changes = []
        for name, switch, members in zip(
            self.units.names, self.units.switches, self.units.members, strict=True
        ):
            if switch:
                values = self.model.groups.categories[name]
                # from the category of the row to the one that gains most
                old, new = (int(part[members].argmax()) for part in (before, step))
                changes.append(Change(name, values[old], values[new], float(step[members[new]])))
                continue
            [j] = members
            size = float(step[j] / self.scale[j]) if self.scale[j] > 0 else 0.0
            changes.append(Change(name, float(before[j]), float(after[j]), size))
        moved = [change for change in changes if change.amount and change.before != change.after]
        return sorted(moved, key=lambda change: -abs(change.amount))

    @cached_property
    def scale(self) -> Array:
        """The standard deviation of each column: of the training rows if the fit saved it."""
        own = self.model.scale
        return column_scale(self.X, self.weights) if own is None else own

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
        """Return the best accuracy of a constant: the largest class, or fullest band of 2 tau."""
        rows = self.rows(group=group)
        target, weights = self.target[rows], self.weights[rows] / self.weights[rows].sum()
        if self.tau is None:
            return float(np.bincount(target, weights).max())
        order = np.argsort(target, kind="stable")
        y, mass = target[order], np.concatenate([[0.0], np.cumsum(weights[order])])
        ends = np.searchsorted(y, y + 2 * self.tau, side="right")
        return float((mass[ends] - mass[:-1]).max())

    def curve(self, *, class_: Any = None, group: Any = None) -> AccuracyCurve:
        """Return the whole curve: its corners, between which it is linear."""
        key = (class_, group)
        if key not in self._curves:
            rows = self.rows(class_=class_, group=group)
            self._curves[key] = accuracy_curve(
                self.price[rows], self.weights[rows], self.right[rows]
            )
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
            if self.classes is None:
                raise ValueError(f"a regression model has no classes, got class_={class_!r}.")
            labels = self.classes.tolist()
            if class_ not in labels:
                raise ValueError(f"class_={class_!r} is none of the classes {labels[:20]}.")
            kept &= self.target == labels.index(class_)
        if group is not None:
            if self.groups is None:
                raise ValueError(f"group={group!r} needs groups: pass groups= to audit.")
            members = self.groups == group
            if not np.any(members):
                known = np.unique(self.groups).tolist()[:20]
                raise ValueError(f"group={group!r} is none of the groups {known}.")
            kept &= members
        if not self.weights[kept].sum() > 0:
            raise ValueError(f"no row of positive weight has class_={class_!r}, group={group!r}.")
        return kept

    @property
    def present_classes(self) -> list[Any]:
        """The labels that occur with positive weight; empty for regression."""
        if self.classes is None:
            return []
        return [self.classes[k] for k in np.unique(self.target[self.weights > 0])]

    @property
    def present_groups(self) -> list[Any]:
        """The groups that occur with positive weight; empty if there are none."""
        return [] if self.groups is None else np.unique(self.groups[self.weights > 0]).tolist()

    def chance_accuracy(self, delta: Any, *, low: bool = False) -> Any:
        """Return the mean accuracy after a drift of cost delta in a random direction.

        All rows move by the same vector, whose entries are in proportion to the standard deviations
        of the columns: what chance does, where ``accuracy`` is what an adversary does at the same
        mean cost. It is simulated, 100 times, seeded by ``random_state``.

        Parameters
        ----------
        delta : float or array
            Radii >= 0.
        low : bool, default=False
            Return the accuracy below which 5% of the draws lie, instead of the mean.
        """
        rows, unit_shifts = self._chance
        scores, target, weights = self.scores[rows], self.target[rows], self.weights[rows]
        values = []
        for radius in np.atleast_1d(_radii(delta)):
            shifts = radius ** (1 / self.order) * unit_shifts
            draws = np.full(1, np.nan)
            # an infinite move has no accuracy
            if np.isfinite(shifts).all():
                right = [is_right(scores + shift, target, self.tau) for shift in shifts]
                # a sum of shares may exceed 1 by rounding
                draws = np.minimum(np.array(right) @ weights / weights.sum(), 1.0)
            values.append(np.quantile(draws, RARE) if low else draws.mean())
        return np.array(values) if np.ndim(delta) else float(values[0])

    @cached_property
    def _chance(self) -> tuple[Any, Array]:
        """The rows of the simulation, and what random moves of cost 1 add to their scores.

        The latter has shape (CHANCE_DRAWS, n_scores).
        """
        rng = generator(self.random_state)
        moves = rng.standard_normal((CHANCE_DRAWS, len(self.names))) * self.scale
        size = np.asarray(self.cost.norm(moves))[:, None]
        moves = np.divide(moves, size, out=np.zeros_like(moves), where=size > 0)
        rows: Any = slice(None)
        if len(self.weights) > TEACH_UP_TO:
            rows = rng.choice(np.flatnonzero(self.weights > 0), TEACH_UP_TO)
        return rows, moves @ self.model.coef.T

    def risk(self, delta: Any) -> Any:
        """Return the worst-case mean of the model's loss within delta; inf where it is unbounded.

        Parameters
        ----------
        delta : float or array
            Radii >= 0.
        """
        balls = [self.ball(radius) for radius in np.atleast_1d(_radii(delta))]
        risks = robust_risks(self.model, self.scores, self.target, self.weights, balls)
        return risks if np.ndim(delta) else float(risks[0])

    @cached_property
    def advised_delta(self) -> float:
        """The delta that advice is about: the fitted one, else that which costs 5% of the rows."""
        if self.fitted_delta is not None:
            return self.fitted_delta
        fallen = float(self.breaking_point(max(self.accuracy(0.0) - RARE, 0.0)))
        return fallen if np.isfinite(fallen) else 0.0

    @cached_property
    def advice(self) -> list[str]:
        """What to do next, in sentences: the same in print, in ``to_dict`` and on the page."""
        return audit_advice(self)

    def moved(self, delta: float) -> Array:
        """Return the mass of each row that the adversary of budget delta makes wrong."""
        return self.weights * self.moved_share(delta)

    def moved_share(self, delta: float) -> Array:
        """Return the part of each row that the adversary of budget delta makes wrong."""
        return moved_share(self.price, self.weights, float(_radii(delta)))

    @cached_property
    def deltas(self) -> Array:
        """The radii of the curves: as given, or from 0 to beyond the breaking point."""
        if self.given_deltas is not None:
            return self.given_deltas
        end = GRID_END * self._broken
        return np.linspace(0.0, end if end > 0 else 1.0, GRID)

    @property
    def _broken(self) -> float:
        """The delta at which the model is as bad as a constant, or as bad as it can be."""
        return min(self.breaking_point("constant"), float(self.curve().budget[-1]))

    @cached_property
    def columns(self) -> ColumnTable:
        """What the adversary does in each column; ``print`` it."""
        spent = self.moved(self._broken) * np.where(np.isfinite(self.price), self.price, 0.0)
        # what goes into changes of labels and targets is spent on no column
        spent = spent * self.part_moved
        w, index = normals(self.model, self.target, self.nearest)
        shares = budget_shares(w, index, spent, self.cost)
        alone = self._breaks_alone()
        impossible = self.units.amount(alone, self.order) > self._switchable() * (1 + ROUNDING)
        alone = np.where(impossible, np.inf, alone)
        return ColumnTable(
            names=self.units.names,
            switch=self.units.switches,
            share=np.array([shares[members].sum() for members in self.units.members]),
            breaking_point=alone,
            amount=self.units.amount(alone, self.order),
        )

    @cached_property
    def units(self) -> Units:
        """The move of each column in which deltas are stated."""
        return units_of(self.model.groups, self.model.coef, self.X, self.scale, self.cost)

    def _switchable(self) -> Array:
        """Return the share of the rows that can make the switch of each column, inf for numbers."""
        shares = np.full(len(self.units.names), np.inf)
        for k, members in enumerate(self.units.members):
            if self.units.switches[k]:
                values = np.asarray(numpy(as_dense(self.X[:, members])))
                own = members.index(int(self.units.moves[k].argmin()))
                shares[k] = self.weights @ (values.argmax(axis=1) == own)
        return shares

    def _breaks_alone(self) -> Array:
        """Return the delta at which moves of one column alone make the model a constant's equal."""
        level = self.constant_accuracy()
        points = []
        # the change of each score by a move of unit price, (K,)
        for gain in self.units.moves @ self.model.coef.T / self.units.norms[:, None]:
            if self.tau is None:
                norms = np.abs(gain[:, None] - gain)
                nearest = nearest_class(self.scores, self.target, norms)
            else:
                residual = self.target - self.scores[:, 0]
                nearest = nearest_error(residual, self.tau, abs(float(gain[0])))
            curve = accuracy_curve(nearest.distance**self.order, self.weights, self.right)
            points.append(curve.breaking_point(level))
        return np.array(points)

    @property
    def unit_column(self) -> str:
        """The column in whose unit deltas are stated, ``Units.chosen``."""
        return self.units.names[self.units.chosen]

    @property
    def unit_switch(self) -> str:
        """The switch of that column, "" where it holds numbers."""
        return self.units.switches[self.units.chosen]

    def deviations(self, delta: Any, column: str | None = None) -> Any:
        """Return delta as a mean move of a column, in its standard deviations; arrays too.

        Of a column of categories it is the share of rows that switch.
        """
        place = self.units.chosen if column is None else self._place(column)
        moves = self.units.amount(_radii(delta), self.order, place)
        return moves if np.ndim(delta) else float(moves)

    def _place(self, column: str) -> int:
        names = self.units.names
        if column not in names:
            raise ValueError(f"there is no column {column!r}; the columns are {names[:20]}.")
        return names.index(column)

    def in_words(self, delta: float, column: str | None = None) -> str:
        """Return delta as a move of a column: by default ``unit_column``, any if all agree."""
        place = None if column is None else self._place(column)
        return self.units.in_words(delta, self.order, place)

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


def audit(
    model: Any,
    X: Any,
    y: Any,
    *,
    cost: Any = None,
    order: Any = None,
    deltas: Any = None,
    tau: Any = None,
    space: str = "last",
    sample_weight: Any = None,
    groups: Any = None,
    new: Any = None,
    random_state: Any = None,
) -> Audit:
    """Return the worst case of a fitted linear model around the rows (X, y).

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted model with ``coef_`` and ``intercept_`` whose prediction is the linear score or
        its largest entry: of scikit-learn or otdro, one-vs-rest or multinomial; or a Pipeline that
        ends in one.
    X, y : array-like of shape (n, d) and (n,)
        Labelled rows, best ones that the model has not seen.
    cost : as in the estimators, default=None
        What a move costs. None: the model's own ball, else Euclidean.
    order : {1, 2}, default=None
        The power of the distance that is the cost. None: the model's own, else 1.
    deltas : array-like, default=None
        The radii of the curves. None: from 0 to beyond the breaking point.
    tau : float > 0, default=None
        Regression: a prediction is right while it is within tau of the target. None: half a
        standard deviation of the targets.
    space : {"last", "raw"}, default="last"
        Of a pipeline: the columns that are moved, those in front of the last step, or the raw ones
        where the steps between are affine.
    sample_weight, groups : array-like of shape (n,), default=None
        Weights of the rows, and the group of each, whose accuracies are given apart.
    new : X or (X, y), default=None
        New rows, whose drift from these is measured as well.
    random_state : int, default=None
        Seeds the drift, a learned cost and the simulated chance drift.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from otdro import audit
    >>> X, y = load_iris(return_X_y=True)
    >>> found = audit(LogisticRegression(max_iter=1000).fit(X, y), X, y)
    >>> print(f"{found.accuracy(0):.2f}, at least {found.accuracy(0.1):.2f} within 0.1")
    0.97, at least 0.68 within 0.1
    """
    linear = read(model, X, space)
    check_places(X, y=y, sample_weight=sample_weight)
    rows = linear.rows(X)
    target = check_target(y, rows.shape[0], linear)
    weights = normalise(numpy(check_weights(rows, sample_weight)), "sample_weight")
    regression = linear.classes is None
    if linear.classes is not None:
        present = np.unique(target[weights > 0])
        if len(present) < 2:
            raise ValueError(
                f"y has one class only, {linear.classes[present].tolist()}: an audit needs rows of "
                "two classes."
            )
        if tau is not None:
            raise ValueError(f"tau={tau!r} is for regression; a classifier is right or wrong.")
    ball = resolve_ball(
        cost,
        order,
        linear.ball,
        rows,
        target,
        weights=weights,
        regression=regression,
        random_state=random_state,
    )
    result = Audit(
        model=linear,
        X=rows,
        target=target,
        weights=weights,
        groups=check_groups(groups, rows.shape[0]),
        cost=ball.cost,
        order=ball.order,
        tau=_check_tau(tau, target, weights) if regression else None,
        given_deltas=None if deltas is None else check_deltas(deltas)[::-1],
        label_cost=ball.label_cost,
        target_cost=ball.target_cost,
        random_state=random_state,
    )
    if new is None:
        return result
    # the module of drifts imports this one
    from .drifting import drift_from_audit

    return replace(result, drift=drift_from_audit(result, new, random_state))


def check_target(y: Any, n: int, model: LinearModel, name: str = "y") -> Array:
    """Return class numbers or float targets of n rows."""
    y = column_or_1d(on_host(y))
    if len(y) != n:
        raise ValueError(f"{name} has {len(y)} entries but there are {n} rows.")
    if model.classes is not None:
        return model.codes(y)
    try:
        y = np.asarray(y, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers for a regression model.") from None
    if not np.isfinite(y).all():
        raise ValueError(f"{name} has NaN or infinite values: leave those rows out.")
    return y


def _check_tau(tau: Any, target: Array, weights: Array) -> float:
    """Return the width of the band; None is half a standard deviation of the targets."""
    if tau is None:
        center = float(weights @ target)
        return float(np.sqrt(weights @ (target - center) ** 2)) / 2
    if isinstance(tau, bool) or not (isinstance(tau, Real) and 0 < float(tau) < np.inf):
        raise ValueError(f"tau must be a number > 0, got tau={tau!r}.")
    return float(tau)


def resolve_ball(
    cost: Any,
    order: Any,
    own: Ball | None,
    X: Any,
    target: Array | None,
    *,
    regression: bool,
    weights: Array | None = None,
    random_state: Any = None,
) -> Ball:
    """Return the ball of radius 0 with the cost and the order asked for, else the model's own.

    Without either it is Euclidean of order 1. The prices of labels and targets are in the unit of
    the model's own ball: in any other one they stay.
    """
    own = Ball(Norm(2), 0.0, 1) if own is None else own
    power = own.order if order is None else order
    if isinstance(power, bool) or power not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got order={power!r}.")
    tried = resolve_cost(own.cost if cost is None else cost, X)
    norm = tried.cost
    if norm is None:
        if target is None:
            raise ValueError(f"cost={cost!r} is learned from labels: give the reference as (X, y).")
        mass = np.full(X.shape[0], 1 / X.shape[0]) if weights is None else weights
        # folds choose among several learned costs; a single learner leaves nothing to choose
        delta = "cv" if tried.learned is not None else 0.0
        kind = DRORegressor if regression else DROClassifier
        learner = kind(cost=cost, delta=delta, random_state=random_state)
        rows = np.flatnonzero(mass > 0)
        if len(rows) > TEACH_UP_TO:
            rows = np.sort(generator(random_state).choice(rows, TEACH_UP_TO, replace=False))
        norm = learner.fit(on_host(pick(X, rows)), target[rows], mass[rows]).cost_
    if not norm.is_norm:
        raise ValueError(
            f"an audit needs a cost that is a norm of the move, and {type(norm).__name__} is "
            "not; pass cost='euclidean', 'l1', 'linf', 'learned' or a Mahalanobis."
        )
    norm.check(X.shape[1])
    if cost is None and power == own.order:
        return replace(own, cost=norm, delta=0.0)
    return Ball(norm, 0.0, int(power))
