"""The axes that a reader can choose: columns, directions of the cost, the model's direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs.directions import principal_directions
from ..costs.table import signed
from ..inspection import Audit
from .markup import isolated, number

Array = NDArray[Any]

#: Columns to choose from, those that break the model first; directions from either end.
COLUMNS, ENDS = 24, 3
#: What the axes are listed under.
MODEL, COLUMN, CHEAP = "The model", "Columns", "Directions of the cost"
#: Columns whose loadings name a direction.
LOADINGS = 2
#: Loadings below this are not told.
LEAST = 0.05
#: Below this, as a ratio of eigenvalues or as a determinant, two unit directions are parallel.
PARALLEL = 1e-9


@dataclass(frozen=True, eq=False)
class Axis:
    """A unit ``direction`` (d,), what it is called, and the kind it is listed under."""

    label: str
    kind: str
    direction: Array


def axes_of(found: Audit) -> list[Axis]:
    """Return the axes, the model's own direction first where it has one."""
    names, d = found.names, len(found.names)
    unit = np.eye(d)
    columns = [Axis(isolated(names[j]), COLUMN, unit[j]) for j in found.columns.order()[:COLUMNS]]
    if d == 1:
        return [*columns, Axis("there is one column only", "Nothing", np.zeros(1))]
    return [*_model_axes(found), *columns, *_learned(found, d)]


def default_axes(axes: list[Axis], d: int) -> tuple[int, int]:
    """Return two columns where there are two, else what the model looks at, then what is cheap."""
    kinds = [axis.kind for axis in axes]
    if d <= 2:
        first = kinds.index(COLUMN)
        # in the order of the table
        return (first, first + 1) if axes[first].direction[0] else (first + 1, first)
    looked = kinds.count(MODEL)
    if looked != 1:
        return 0, 1
    return 0, kinds.index(CHEAP) if CHEAP in kinds else 1


def _model_axes(found: Audit) -> list[Axis]:
    """Return the directions that the model looks at: of the score, or two of several scores."""
    coef = found.model.coef
    # what all classes have in common decides nothing
    seen = coef if found.classes is None else coef - coef.mean(axis=0)
    sizes, directions = np.linalg.svd(seen, full_matrices=False)[1:]
    kept = directions[(sizes > PARALLEL * sizes[0]) & (sizes > 0)][:2]
    if len(kept) == 1:
        # the second of two classes lies upwards
        return [Axis("the model's own direction", MODEL, kept[0] * np.sign(kept[0] @ seen[-1]))]
    words = ("first", "second")[: len(kept)]
    return [
        Axis(f"the model's {word} direction", MODEL, signed(v))
        for word, v in zip(words, kept, strict=True)
    ]


def _learned(found: Audit, d: int) -> list[Axis]:
    """Return the cheapest and the most expensive directions where the cost sets any apart."""
    if not found.cost.euclidean:
        return []
    prices, vectors = principal_directions(found.cost, d)
    if prices[-1] <= prices[0] * (1 + 1e-9):
        return []
    shown = sorted({*range(min(ENDS, d)), *range(max(d - ENDS, 0), d)})
    return [
        Axis(
            f"price {number(prices[k])}: {_spelled(vectors[:, k], found.names)}",
            CHEAP,
            vectors[:, k],
        )
        for k in shown
    ]


def _spelled(vector: Array, names: list[str]) -> str:
    order = np.argsort(-np.abs(vector), kind="stable")[:LOADINGS]
    parts = [f"{vector[j]:+.2f} {isolated(names[j], 20)}" for j in order if abs(vector[j]) >= LEAST]
    return " ".join(parts).replace("-", "−")


def section(coef: Array, first: Array, second: Array) -> Array:
    """Return the slopes (K, 2) of the scores in the coordinates of two axes.

    Coordinates are inner products with the axes, u = G (a, b) with the Gram matrix G of the two,
    so that the slopes in u are G^-1 (B first, B second), with the pseudo-inverse of parallel axes.
    """
    D = np.stack([first, second])
    inverse = np.linalg.pinv(D @ D.T, rcond=PARALLEL, hermitian=True)
    return np.asarray((inverse @ D @ coef.T).T)
