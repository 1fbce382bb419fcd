"""A fitted model in words and numbers: prices, coefficients, delta, what the adversary attacks."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimators import summary
from ..estimators.columns import ColumnGroups
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
    told = [
        {"price": float(price), "along": features.along(vector)}
        for price, vector in zip(found.prices, found.vectors.T, strict=True)
    ]
    count = min(most, len(told))
    return {"cheapest": told[:count], "most_expensive": told[::-1][:count]}


def switches(cost: Any, features: ColumnGroups) -> dict[str, dict[str, float]]:
    """Return the prices of the cheapest and most expensive switch of each text column."""
    if cost.matrix is None:
        return {}
    unit = np.eye(len(features.names))
    priced = {}
    for column, values in features.categories.items():
        own = list(zip(values, features.indices[column], strict=True))
        prices = sorted(
            (float(cost.norm(unit[b] - unit[a])), f"{before} <-> {after}")
            for (before, a), (after, b) in combinations(own, 2)
        )
        if prices:
            priced[column] = {name: price for price, name in (prices[0], prices[-1])}
    return priced


def coefficients(model: Any, features: ColumnGroups) -> dict[str, Any]:
    """Return all coefficients by column, largest first; of several classes, by class.

    Of a column of categories they are {category: coefficient}.
    """
    told = []
    for row in np.atleast_2d(model.coef_):
        columns: dict[str, Any] = {}
        for column, own in features.indices.items():
            columns[column] = float(row[own[0]])
            if column in features.categories:
                values = zip(features.categories[column], row[own].tolist(), strict=True)
                columns[column] = _largest_first(dict(values))
        told.append(_largest_first(columns))
    if len(told) == 1:
        return told[0]
    return {str(c): row for c, row in zip(model.classes_, told, strict=True)}


def _largest_first(values: dict[str, Any]) -> dict[str, Any]:
    """Return coefficients by their size; that of a column is the largest of its categories."""

    def size(name: str) -> float:
        value = values[name]
        return max(map(abs, value.values())) if isinstance(value, dict) else abs(value)

    return {name: values[name] for name in sorted(values, key=size, reverse=True)}


def attack(model: Any, Z: Array, features: ColumnGroups, data: Prepared) -> dict[str, Any]:
    """Return the rows that the worst case moves most, and the columns that it moves them in.

    Rows are those of the index of ``data.X``. A column's share is of the change of the score; of a
    column of categories, ``switches`` has the largest switch and its mass in rows: a row may go a
    part of the way. Of several models it is that of the class whose risk rises most. A model that
    was fitted to more rows than are at hand is attacked on (Z, y).
    """
    class_, coef = None, np.atleast_2d(model.coef_)
    if np.ndim(model.robust_risk_) > 0:
        rise = np.ravel(model.robust_risk_) - np.ravel(model.empirical_risk_)
        class_ = model.classes_[rise.argmax()]
        coef = coef[[rise.argmax()]]
    if not hasattr(model, "worst_case"):
        return {}
    if not (model.delta_ > 0 and np.any(model.coef_) and model.cost_.is_norm):
        return {}
    worst = model.worst_case(class_, rows=None if data.folder is None else (Z, data.y))
    moved = worst.points - Z[worst.origin]
    spent = worst.weights * model.cost_.norm(moved) ** int(model.ball_.order)
    by_row = np.bincount(worst.origin, spent, minlength=len(Z))
    if len(coef) > 1:
        # of the softmax model: the difference of the two classes whose scores part most
        change = moved @ coef.T
        coef = coef[change.argmax(axis=1)] - coef[change.argmin(axis=1)]
    by_column = worst.weights @ np.abs(moved * coef)
    tiny = np.finfo(float).tiny
    row_shares = by_row / max(float(by_row.sum()), tiny)
    columns = features.sums(by_column / max(float(by_column.sum()), tiny))
    largest = [list(columns)[j] for j in _largest(np.array(list(columns.values())))]
    mean = worst.weights @ moved
    switched = {}
    for column in largest:
        if column in features.categories:
            switch = features.switch(column, mean)
            mass = worst.weights @ np.abs(moved[:, features.indices[column]]).sum(axis=1) / 2
            switched[column] = {"from": switch.before, "to": switch.after, "rows": float(mass)}
    return {
        "class": None if class_ is None else str(class_),
        "rows": {str(data.X.index[i]): float(row_shares[i]) for i in _largest(row_shares)},
        "columns": {column: columns[column] for column in largest},
        "switches": switched,
        "shortfall": float(worst.shortfall),
    }


def _largest(shares: Array) -> list[int]:
    """Return the places of the largest shares that are not 0."""
    return [int(i) for i in np.argsort(-shares, kind="stable")[:SHOWN] if shares[i] > 0]


def described_model(model: Any, features: ColumnGroups, delta: str) -> dict[str, Any]:
    """Return what there is to say of our estimator, with the names of its features."""
    words = summary.COST_WORDS.get(model.cost_.dual_p, type(model.cost_).__name__)
    if getattr(model.cost_, "weights_", None):
        words = summary.cost_in_words(model.cost_)
    return {
        "loss": str(getattr(model, "loss", type(getattr(model, "loss_", None)).__name__.lower())),
        "cost": words.partition(":")[0],
        "cost_in_words": words,
        "order": int(model.ball_.order),
        "delta": float(model.delta_),
        "delta_by": delta,
        # an average of models has no certificate of its own
        "empirical_risk": getattr(model, "empirical_risk_", None),
        "robust_risk": model.robust_risk_,
        "gap": getattr(model, "gap_", None),
        "directions": directions(model.cost_, features),
        "switches": switches(model.cost_, features),
        "coefficients": coefficients(model, features),
    }


# The same for a person.


def directions_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the cost in words, with the prices of moves and switches if it has a matrix."""
    found = report["directions"]
    if not found:
        return [("cost", report["cost_in_words"])]
    lines = [("cost", f"{report['cost_in_words']}; price of a unit move along")]
    for name in ("cheapest", "most_expensive"):
        for k, way in enumerate(found[name]):
            along = ", ".join(f"{value:+.2f} {key}" for key, value in way["along"].items())
            lines.append(
                (f"  {name.replace('_', ' ')}" if k == 0 else "", f"{way['price']:.3g}: {along}")
            )
    for column, prices in list(report["switches"].items())[:SHOWN]:
        told = ", ".join(f"{pair} {price:.3g}" for pair, price in prices.items())
        lines.append((f"  switch {column}", told))
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
    rows = {f"row {name}": share for name, share in worst["rows"].items()}
    lines = [("columns", f"{first(worst['columns'], '.0%')} (shares of the change of the score)")]
    if worst["switches"]:
        moved = [
            f"{column}: {switch['from']} -> {switch['to']}, {switch['rows']:.1%} of rows' worth"
            for column, switch in worst["switches"].items()
        ]
        lines.append(("switches", f"{'; '.join(moved)} (a row may go a part of the way)"))
    lines.append(("rows", f"{first(rows, '.0%')} (shares of the budget that raises the loss most)"))
    return lines if worst["class"] is None else [("class", worst["class"]), *lines]


def first(values: dict[str, float], form: str, most: int = 4) -> str:
    """Return the first names with their values, and how many there are more."""
    text = ", ".join(f"{name} {value:{form}}" for name, value in list(values.items())[:most])
    return text + (f" and {len(values) - most} more" if len(values) > most else "")


def risks_told(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return delta and its meaning, and the risks with their certificate."""
    words = {"cv": "chosen by folds", "theory": "chosen by theory"}
    by = report["delta_by"]
    by = by if by.startswith("the ") else words.get(by, "as given")
    unit = report.get("delta_in_words")
    meaning = unit or f"bound on the mean cost, order {report['order']}"
    classes = report.get("classes", [])
    delta = ("delta", f"{report['delta']:.4g}, {by} ({meaning})")
    if report["gap"] is None:
        return [delta, ("robust risk", f"{_risk(report['robust_risk'], classes)} (of the average)")]
    gap = float(np.max(report["gap"]))
    certified = f"certified to {gap:.1g}" if gap > 0 else "exact up to rounding"
    return [
        delta,
        ("empirical risk", _risk(report["empirical_risk"], classes)),
        ("robust risk", f"{_risk(report['robust_risk'], classes)} ({certified})"),
    ]


def _risk(value: Any, classes: list[str]) -> str:
    """Return a number, or one for every class with its name."""
    values = np.ravel(value)
    if len(values) == 1:
        return f"{values[0]:.4g}"
    names = classes if len(classes) == len(values) else [str(k) for k in range(len(values))]
    return ", ".join(f"{name} {v:.4g}" for name, v in zip(names, values, strict=True))
