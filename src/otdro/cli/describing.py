"""A fitted model in words and numbers: prices, coefficients, delta, what the adversary attacks."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimators.columns import ColumnGroups
from ..estimators.summary import cost_in_words
from ..inspection import Audit
from ..inspection.summary import SHOWN
from .preparing import Prepared

Array = NDArray[Any]

#: Features above which the directions of a cost are not computed: they take the cube of it.
WIDE = 2_000


def directions(cost: Any, features: ColumnGroups, most: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Return the cheapest and the most expensive directions that a row can move in.

    The indicators of a column of categories sum to one, so that only directions in which they
    sum to zero are moves: switches from one category to another.
    """
    if cost.matrix is None or len(features.names) > WIDE:
        return {}
    found = features.directions(cost)
    priced = [
        {"price": float(price), "along": features.along(vector)}
        for price, vector in zip(found.prices, found.vectors.T, strict=True)
    ]
    return {"cheapest": priced[:most], "most_expensive": priced[::-1][:most]}


def switches(cost: Any, features: ColumnGroups) -> dict[str, dict[str, float]]:
    """Return the prices of the cheapest and most expensive switch of each text column."""
    if cost.matrix is None:
        return {}
    unit = np.eye(len(features.names))
    priced = {}
    for column, values in features.categories.items():
        own = zip(values, unit[features.indices[column]], strict=True)
        prices = sorted(
            (float(cost.norm(end - start)), f"{before} <-> {after}")
            for (before, start), (after, end) in combinations(own, 2)
        )
        if prices:
            priced[column] = {name: price for price, name in (prices[0], prices[-1])}
    return priced


def coefficients(model: Any, features: ColumnGroups) -> dict[str, Any]:
    """Return all coefficients by column, largest first; of several classes, by class.

    Of a column of categories they are {category: coefficient}.
    """
    by_class = []
    for row in np.atleast_2d(model.coef_):
        columns: dict[str, Any] = {}
        for column, own in features.indices.items():
            values = row[own].tolist()
            known = features.categories.get(column)
            named = None if known is None else dict(zip(known, values, strict=True))
            columns[column] = values[0] if named is None else _largest_first(named)
        by_class.append(_largest_first(columns))
    if len(by_class) == 1:
        return by_class[0]
    return {str(c): columns for c, columns in zip(model.classes_, by_class, strict=True)}


def _largest_first(values: dict[str, Any]) -> dict[str, Any]:
    """Return coefficients by their size; that of a column is the largest of its categories."""

    def size(name: str) -> float:
        value = values[name]
        return max(map(abs, value.values())) if isinstance(value, dict) else abs(value)

    return {name: values[name] for name in sorted(values, key=size, reverse=True)}


def attack(model: Any, audited: Audit, data: Prepared) -> dict[str, Any]:
    """Return the rows that are cheapest to make wrong, and the columns of the worst-case loss.

    Rows are those of the index of ``data.X`` with the price of their move, as in an audit. A
    column's share is of the change of the score; of a column of categories, ``switches`` has the
    largest switch and its mass in rows: a row may go a part of the way. Of several models the
    columns are those of the class whose risk rises most. A model that was fitted to more rows than
    are at hand is attacked on those that are.
    """
    class_, coef = None, np.atleast_2d(model.coef_)
    if np.ndim(model.robust_risk_) > 0:
        rise = np.ravel(model.robust_risk_) - np.ravel(model.empirical_risk_)
        class_ = model.classes_[rise.argmax()]
        coef = coef[[rise.argmax()]]
    # an average of models has no worst case of its own
    if not (hasattr(model, "worst_case") and model.delta_ > 0 and np.any(model.coef_)):
        return {}
    Z, features = audited.X, audited.model.groups
    worst = model.worst_case(class_, rows=None if data.folder is None else (Z, data.y))
    moved = worst.points - Z[worst.origin]
    if len(coef) > 1:
        # of the softmax model: the difference of the two classes whose scores part most
        change = moved @ coef.T
        coef = coef[change.argmax(axis=1)] - coef[change.argmin(axis=1)]
    changes = features.sums(worst.weights @ np.abs(moved * coef))
    total = sum(changes.values())
    shares = {column: change / total for column, change in changes.items() if change > 0}
    columns = dict(list(_largest_first(shares).items())[:SHOWN])
    switched = {}
    for column in columns:
        if column in features.categories:
            switch = features.switch(column, worst.weights @ moved)
            mass = worst.weights @ np.abs(moved[:, features.indices[column]]).sum(axis=1) / 2
            switched[column] = {"from": switch.before, "to": switch.after, "rows": float(mass)}
    movable = (audited.price > 0) & np.isfinite(audited.price)
    cheapest = [i for i in np.argsort(audited.price, kind="stable") if movable[i]][:SHOWN]
    return {
        "class": None if class_ is None else str(class_),
        "rows": {str(data.X.index[i]): float(audited.price[i]) for i in cheapest},
        "columns": columns,
        "switches": switched,
        "shortfall": float(worst.shortfall),
    }


def described(model: Any, audited: Audit, delta_by: str) -> dict[str, Any]:
    """Return what there is to say of our estimator, audited on the rows that it was fitted to."""
    cost, features = model.cost_, audited.model.groups
    words = cost_in_words(cost)
    return {
        "loss": str(getattr(model, "loss", type(getattr(model, "loss_", None)).__name__.lower())),
        "cost": words.partition(":")[0],
        "cost_in_words": words,
        "order": int(model.ball_.order),
        "delta": float(model.delta_),
        "delta_by": delta_by,
        "delta_in_words": audited.in_words(float(model.delta_)),
        # an average of models has no certificate of its own
        "empirical_risk": getattr(model, "empirical_risk_", None),
        "robust_risk": model.robust_risk_,
        "gap": getattr(model, "gap_", None),
        "directions": directions(cost, features),
        "switches": switches(cost, features),
        "coefficients": coefficients(model, features),
        "weights": getattr(model, "weights_", None),
    }


# The same for a person.


def directions_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the cost in words, with the prices of moves and switches if it has a matrix."""
    found = report["directions"]
    if not found:
        return [("cost", report["cost_in_words"])]
    lines = [("cost", f"{report['cost_in_words']}; price of a unit move along")]
    for name, title in (("cheapest", "  cheapest"), ("most_expensive", "  most expensive")):
        for way in found[name]:
            along = ", ".join(f"{value:+.2f} {key}" for key, value in way["along"].items())
            lines.append((title, f"{way['price']:.3g}: {along}"))
            title = ""
    for column, prices in list(report["switches"].items())[:SHOWN]:
        lines.append((f"  switch {column}", first(prices, ".3g")))
    return lines


def coefficients_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the largest coefficients, a line per column; of several classes a line per class."""
    by_column = report["coefficients"]
    if len(report["classes"]) <= 2:
        return [
            (column, first(value, "+.4g") if isinstance(value, dict) else f"{value:+.4g}")
            for column, value in list(by_column.items())[:SHOWN]
        ]
    lines = []
    for label, columns in by_column.items():
        flat: dict[str, float] = {}
        for column, value in columns.items():
            if isinstance(value, dict):
                flat |= {f"{column}={category}": own for category, own in value.items()}
            else:
                flat[column] = value
        lines.append((label, first(_largest_first(flat), "+.3g")))
    return lines


def attack_told(worst: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the columns and rows that the adversary attacks."""
    lines = [] if worst["class"] is None else [("class", worst["class"])]
    columns = first(worst["columns"], ".0%")
    lines.append(("columns", f"{columns} (shares of the change of the score)"))
    if worst["switches"]:
        moved = [
            f"{column}: {switch['from']} -> {switch['to']}, {switch['rows']:.1%} of rows' worth"
            for column, switch in worst["switches"].items()
        ]
        lines.append(("switches", f"{'; '.join(moved)} (a row may go a part of the way)"))
    if worst["rows"]:
        rows = first({f"row {name}": price for name, price in worst["rows"].items()}, ".3g")
        lines.append(("rows", f"{rows} (cheapest to make wrong, and at which cost)"))
    return lines


def first(values: dict[str, float], form: str, most: int = 4) -> str:
    """Return the first names with their values, and how many there are more."""
    text = ", ".join(f"{name} {value:{form}}" for name, value in list(values.items())[:most])
    return text + (f" and {len(values) - most} more" if len(values) > most else "")


def risks_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return delta and its meaning, and the risks with their certificate."""
    by = report["delta_by"]
    if not by.startswith("the "):
        by = {"cv": "chosen by folds", "theory": "chosen by theory"}.get(by, "as given")
    lines = [("delta", f"{report['delta']:.4g}, {by} ({report['delta_in_words']})")]
    classes = report.get("classes", [])
    robust = _risk(report["robust_risk"], classes)
    if report["gap"] is None:
        return [*lines, ("robust risk", f"{robust} (of the average)")]
    gap = float(np.max(report["gap"]))
    certified = f"certified to {gap:.1g}" if gap > 0 else "exact up to rounding"
    lines.append(("empirical risk", _risk(report["empirical_risk"], classes)))
    return [*lines, ("robust risk", f"{robust} ({certified})")]


def _risk(value: Any, classes: list[str]) -> str:
    """Return a number, or one for every class with its name."""
    values = np.ravel(value)
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return ", ".join(f"{name} {v:.4g}" for name, v in zip(classes, values, strict=True))
