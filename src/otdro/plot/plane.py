"""The plane of a picture: two columns, two principal directions of the rows or of the cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..costs.directions import principal_directions
from ..costs.table import named

Array = NDArray[Any]

#: Points of a circle, one per degree and the first again.
CIRCLE = 361


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane through ``origin`` (d,) with orthonormal ``directions`` (d, 2) and their labels."""

    origin: Array
    directions: Array
    labels: tuple[str, str]

    def coordinates(self, X: Array) -> Array:
        """Return the shadows of rows on the plane, shape (n, 2)."""
        return (X - self.origin) @ self.directions

    def section(self, coef: Array, intercept: float, center: Array) -> tuple[Array, float]:
        """Return slopes g (2,) and a constant h: the score of points of the plane is g'u + h.

        What the plane does not show is held at ``center`` (d,), a point of the rows' space.
        """
        slopes = self.directions.T @ coef
        return slopes, float(coef @ center + intercept - slopes @ self.coordinates(center))


def plane_of(X: Any, features: Any, cost: Cost | None = None) -> Plane:
    """Return the plane that ``features`` asks for.

    Two columns by number or name; "principal", the first two principal directions of the rows; or
    "learned", the cheapest and the most expensive direction of a Euclidean ``cost``.
    """
    rows = np.asarray(X, dtype=float)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"a picture needs two columns or more, X has shape {rows.shape}.")
    d = rows.shape[1]
    if isinstance(features, str):
        return _named_plane(features, rows, cost)
    names = named(None, X, d)
    i, j = (column(f, names) for f in features)
    return Plane(np.zeros(d), np.eye(d)[:, [i, j]], (names[i], names[j]))


def _named_plane(features: str, rows: Array, cost: Cost | None) -> Plane:
    center = rows.mean(axis=0)
    if features == "principal":
        directions = np.linalg.svd(rows - center, full_matrices=False)[2][:2].T
        return Plane(
            center, directions, ("first principal direction", "second principal direction")
        )
    if features != "learned":
        raise ValueError(
            f"features must be two columns, 'principal' or 'learned', got {features!r}."
        )
    if cost is None or not cost.euclidean:
        raise ValueError(
            f"features='learned' needs a Euclidean or Mahalanobis cost, not {cost!r}: its axes are "
            "the cheapest and the most expensive direction. Name two columns, or 'principal'."
        )
    found = principal_directions(cost, rows.shape[1])
    low, high = found.prices[[0, -1]]
    labels = (f"cheapest direction (price {low:.3g})", f"most expensive (price {high:.3g})")
    return Plane(center, found.vectors[:, [0, -1]], labels)


def column(feature: Any, names: list[str]) -> int:
    """Return the place of a column that is given by its number or its name."""
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"no feature is called {feature!r}.")
        return names.index(feature)
    if not 0 <= feature < len(names):
        raise ValueError(f"feature {feature} is out of range for {len(names)} features.")
    return int(feature)


def names_of(estimator: Any, names: Any = None) -> list[str]:
    """Return the names of the columns of a fitted model, as given or as it saw them."""
    names = getattr(estimator, "feature_names_in_", None) if names is None else names
    return named(names, None, estimator.n_features_in_)


def circle() -> Array:
    """Return points of the unit circle, the axes and diagonals among them, shape (CIRCLE, 2)."""
    angle = np.linspace(0, 2 * np.pi, CIRCLE)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def sphere(cost: Cost, directions: Array) -> Array:
    """Return coordinates u in the plane (columns, d by 2) of moves with ||directions u|| = 1."""
    u = circle()
    return u / np.asarray(cost.norm(u @ directions.T))[:, None]
