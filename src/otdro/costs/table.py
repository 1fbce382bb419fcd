"""What a cost charges, in words: the price of each feature, the extreme directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .base import Cost

Array = NDArray[Any]

#: Lines that the text shows; the records hold all of them.
ROWS = 20
#: Loadings of a direction that the text shows.
LOADINGS = 5
#: Letters of a name.
WIDEST = 40
#: What rounding may leave of a difference of equal numbers of a cost, relative to their size.
EVEN = 1e-10
#: The names of the l_p norms as costs, by the exponent of the dual norm.
NORMS: dict[Any, str] = {np.inf: "l1", 2: "euclidean", 1: "linf"}


def cost_name(cost: Cost) -> str:
    """Return the name of a cost in every print and document: that of the parameter, or its class.

    A cost that a fit has learned is "learned".
    """
    kind = "learned" if hasattr(cost, "comparison_") else type(cost).__name__
    return NORMS.get(cost.dual_p, kind)


@dataclass(frozen=True, eq=False)
class Direction:
    """A direction: its ``loadings`` (d,), one standard deviation long, and the ``price`` of it."""

    price: float
    loadings: Array


@dataclass(frozen=True, eq=False)
class CostTable:
    """Prices are distances: what order 1 charges, and the root of what order 2 charges.

    ``price`` (d,) is that of moving feature j by ``move[j]``, one standard deviation (1 for
    standardised columns). ``cheapest`` and ``most_expensive`` are the extremes over all directions
    of unit length in those units.
    """

    names: list[str]
    move: Array
    price: Array
    cheapest: Direction
    most_expensive: Direction

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per feature, in the order of the columns."""
        rows = zip(self.names, self.move.tolist(), self.price.tolist(), strict=True)
        return [{"feature": name, "move": move, "price": price} for name, move, price in rows]

    def __str__(self) -> str:
        title = "Price of moving one feature by one standard deviation, most expensive first"
        order = np.argsort(-(self.price / EVEN).round(), kind="stable")[:ROWS]
        body = [[self.names[j], f"{self.move[j]:.4g}", f"{self.price[j]:.4g}"] for j in order]
        lines = Grid(["feature", "move", "price"], body).lines() + left_out(len(self.names))
        return "\n".join([title, *lines, "", *self._directions()])

    def _directions(self) -> list[str]:
        if self.most_expensive.price <= self.cheapest.price * (1 + EVEN):
            return [f"Every direction costs the same, {self.cheapest.price:.4g}."]
        lines = []
        for word, direction in (
            ("Cheapest", self.cheapest),
            ("Most expensive", self.most_expensive),
        ):
            lines.append(f"{word} direction, price {direction.price:.4g}:")
            lines += self._loadings(direction.loadings)
        return lines

    def _loadings(self, loadings: Array) -> list[str]:
        order = np.argsort(-np.abs(loadings), kind="stable")
        # those that two decimals show as other than zero
        seen = [j for j in order if round(loadings[j], 2) != 0]
        shown = seen[:LOADINGS]
        lines = [f"  {loadings[j]:+.2f} {shorten(self.names[j], WIDEST)}" for j in shown]
        rest = len(seen) - len(shown)
        return lines + ([f"  and {rest} smaller"] if rest else [])


class Grid(NamedTuple):
    """A table for a reader: the heads of its columns, and lines of as many texts."""

    head: list[str]
    body: list[list[str]]

    def lines(self, gap: str = "  ") -> list[str]:
        """Return it in fixed columns with a ``gap`` between them, the first of them names."""
        cells = [[shorten(line[0], WIDEST), *line[1:]] for line in (self.head, *self.body)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return [
            gap.join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
            for line in cells
        ]


def left_out(total: int) -> list[str]:
    """Return the last line of a table that shows the first ``ROWS`` of its lines."""
    return [f"... and {total - ROWS} more"] if total > ROWS else []


def shorten(name: str, width: int) -> str:
    """Return the name, its end cut off if it is longer than ``width``."""
    return name if len(name) <= width else name[: width - 1] + "…"


def named(feature_names: Any, X: Any, d: int) -> list[str]:
    """Return the names given, those of the columns of X, or x0, x1, ..."""
    if feature_names is None:
        feature_names = getattr(X, "columns", None)
    if feature_names is None:
        return [f"x{j}" for j in range(d)]
    names = [str(name) for name in feature_names]
    if len(names) != d:
        raise ValueError(f"feature_names has {len(names)} entries for {d} features.")
    return names


def moves(X: Any, scale: Any, d: int) -> Array:
    """Return the standard deviation of each column of X, ``scale``, or 1."""
    if X is not None and scale is not None:
        raise ValueError("pass X or scale, not both: scale stands for the deviations of X.")
    if X is not None:
        rows = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != d:
            raise ValueError(f"X has shape {rows.shape}, the cost {d} features.")
        return np.asarray(rows.std(axis=0))
    move = np.broadcast_to(np.asarray(1.0 if scale is None else scale, dtype=float), (d,)).copy()
    if not np.isfinite(move).all() or move.min() < 0:
        raise ValueError("scale must be finite and >= 0, one number per feature.")
    return move


def size(matrix: Any, feature_names: Any, X: Any, scale: Any) -> int:
    """Return the number of features that any of the arguments tells."""
    counts = [np.shape(value)[:1] for value in (matrix, feature_names, scale)]
    for count in (*counts, np.shape(X)[1:2]):
        if count:
            return int(count[0])
    raise ValueError("this cost fits any number of features: pass feature_names, X or scale.")


def signed(v: Array) -> Array:
    """Return v or -v, whichever has its largest entry positive."""
    return v if v[np.abs(v).argmax()] > 0 else -v


class PrincipalDirections(NamedTuple):
    """Unit moves as columns of ``vectors``, by rising ``prices``."""

    prices: Array
    vectors: Array


def principal_directions(
    cost: Cost, n_features: int, basis: Array | None = None
) -> PrincipalDirections:
    """Return the eigenvectors of Lam = LL', cheapest first; refuse a cost without them.

    With a ``basis`` (d, k) they are those of B'Lam B, as directions B v with v of length 1: the
    moves are confined to its span, and its columns are their unit.
    """
    B = np.eye(n_features) if basis is None else basis
    moved = B.T if cost.factor() is None else cost.transform(B.T)
    # B'LL'B
    values, vectors = np.linalg.eigh(moved @ moved.T)
    columns = np.stack([signed(v) for v in (B @ vectors).T], axis=1)
    return PrincipalDirections(np.sqrt(np.maximum(values, 0)), columns)
