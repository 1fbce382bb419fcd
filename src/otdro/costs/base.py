"""The contract of a transport cost c(u, x) = d(u, x)^order."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .table import CostTable, Direction, moves, named, signed, size

Array = NDArray[Any]

#: What a cost is to a solver; see ``Cost.geometry``.
Geometry = Literal["euclidean", "norm", "local", "finite", "function"]


class Cost(BaseEstimator):  # type: ignore[misc]
    """The geometry of a ball: a distance on rows, whose power ``order`` is the price of a move.

    A subclass states its ``geometry``, by which a solver knows what it can ask for:

    * ``"norm"`` (the default): ``norm`` of the move u - x, ``dual_norm`` and ``direction``, from
      which gradient, adversary's move and worst case follow;
    * ``"euclidean"``: the same, and ``factor``, the linear map after which it is Euclidean;
    * ``"local"``: ``price`` of moves, and ``shape``, a matrix per row;
    * ``"finite"``: ``distance_to_nodes`` only, mass moves between given points;
    * ``"function"``: ``price`` only, the cost itself and not a power of a distance.

    Arrays act along their last axis.
    """

    #: What this cost is to a solver.
    geometry: Geometry = "norm"
    #: The exponent of the dual norm where that is an l_p norm, else None.
    dual_p: float | None = None
    #: The exponent of the plain distances between transformed rows.
    p: float = 2
    #: Lam where the distance is the root of v'Lam v with a given matrix, else None.
    matrix: Any = None
    #: Whether ``factor`` acts by products only.
    structured: bool = False
    #: Whether ``learn`` has to see rows before the cost can be used.
    learns: bool = False
    #: Whether a local cost stands for (u - x)'A(x)(u - x), A from ``shape``.
    linearised: bool = False

    def norm(self, v: Array) -> Array:
        """Return ||v||, the price (at order 1) of the displacement v."""
        raise NotImplementedError

    def dual_norm(self, w: Array) -> Array:
        """Return max <w, v> over ||v|| <= 1."""
        raise NotImplementedError

    def direction(self, w: Array) -> Array:
        """Return a maximiser of <w, v> over ||v|| <= 1: a (sub)gradient of the dual norm."""
        raise NotImplementedError

    def transform(self, X: Array) -> Array:
        """Return rows whose plain (l_p) distances are the distances of this cost."""
        raise NotImplementedError

    def price(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return the cost of moving the rows X to U, one number per row: ||u - x||^order."""
        return np.asarray(self.norm(U - X) ** order)

    def price_gradient(self, U: Array, X: Array, order: int = 2) -> Array:
        """Return the gradient of ``price`` in the rows of U; here by differences."""
        return central(lambda V: self.price(V, X, order), U)

    def shape(self, X: Array) -> Array:
        """Return A(x) of a local cost, (n, d, d): near x it is (u - x)'A(u - x) at order 2."""
        raise NotImplementedError

    def distance(self, U: Array, V: Array) -> Array:
        """Return the matrix of distances between the rows of U and the rows of V."""
        return np.stack([self.norm(V - u) for u in U]) if len(U) else np.empty((0, len(V)))

    def check(self, n_features: int) -> None:
        """Raise a ValueError if this cost is not well formed for rows of ``n_features`` columns."""

    def verify(self, X: Array) -> None:
        """Raise a ValueError if a cost that is a function is none on these rows."""

    def learn(self, X: Array, y: Array) -> Cost:
        """Return the cost with what it learns from rows."""
        return self

    def factor(self) -> Any:
        """Return L with ||v|| = ||L'v||_2, None for the identity; refuse if there is none.

        L is an array, or of a structured matrix an object with products only.
        """
        raise ValueError(f"{self!r} is not Euclidean after a linear map.")

    def distance_to_nodes(self, X: Array, support: Array | None) -> Array:
        """Return the distances from the rows of X to all nodes, the rows of X first."""
        return self.distance(X, X if support is None else np.vstack([X, support]))

    @property
    def is_norm(self) -> bool:
        """Whether the distance is a norm of u - x: ``dual_norm`` and ``direction`` exist."""
        return self.geometry in ("euclidean", "norm")

    @property
    def euclidean(self) -> bool:
        """Whether ``factor`` exists."""
        return self.geometry == "euclidean"

    def table(self, feature_names: Any = None, X: Any = None, *, scale: Any = None) -> CostTable:
        """Return the price of moving each feature by one standard deviation, and the directions.

        ``print`` it.

        Parameters
        ----------
        feature_names : sequence of str, default=None
            The names of the columns; None: those of a data frame X, or of the data frame that the
            model of this cost was fitted to, else x0, x1, ...
        X : array-like of shape (n, d), default=None
            Rows whose columns have the deviations.
        scale : array-like of shape (d,), default=None
            The deviations; without them and X they are 1, as for standardised columns.
        """
        if not self.is_norm:
            raise ValueError(f"{type(self).__name__} has no table: its prices vary with the place.")
        if feature_names is None and not hasattr(X, "columns"):
            feature_names = getattr(self, "feature_names_in_", None)
        d = size(self.matrix, feature_names, X, scale)
        self.check(d)
        move = moves(X, scale, d)
        cheapest, most_expensive = self._extremes(move)
        names = named(feature_names, X, d)
        return CostTable(names, move, self._prices(move), cheapest, most_expensive)

    def __repr__(self) -> str:
        """Return the parameters that differ from their defaults, arrays by their shapes."""
        brief = copy(self)
        for name, value in self.get_params(deep=False).items():
            if hasattr(value, "__array__") and np.ndim(value) > 0:
                setattr(brief, name, _Shape(np.shape(value)))
        return str(BaseEstimator.__repr__(brief))

    def __str__(self) -> str:
        lines = [repr(self)]
        weights = getattr(self, "weights_", {})
        if weights:
            shares = [f"{share:.2f} {name}" for name, share in weights.items()]
            lines.append(f"a blend of {'; '.join(shares)}")
        if self.matrix is not None:
            lines.append("table() has the price of moving each column")
        return "\n".join(lines)

    def _prices(self, move: Array) -> Array:
        """Return the price of moving each feature alone by ``move``."""
        return self.norm(np.diag(move))

    def _extremes(self, move: Array) -> tuple[Direction, Direction]:
        """Return the extremes of ||D v|| over |v|_2 = 1, D = diag(move), v = 0 where D is."""
        free = np.flatnonzero(move > 0)
        if len(free) == 0:
            still = Direction(0.0, np.zeros_like(move))
            return still, still
        extremes = []
        for v in self._extreme_loadings(move[free], free):
            loadings = np.zeros_like(move)
            loadings[free] = signed(v)
            extremes.append(Direction(float(self.norm(move * loadings)), loadings))
        return extremes[0], extremes[1]

    def _extreme_loadings(self, move: Array, free: Array) -> tuple[Array, Array]:
        """Return the eigenvectors of D Lam D to its least and largest eigenvalues."""
        L = self.factor()
        half = np.diag(move) if L is None else move[:, None] * L[free]
        vectors = np.linalg.eigh(half @ half.T)[1]
        return vectors[:, 0], vectors[:, -1]


class _Shape:
    """Stands for an array in the text of a cost."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __repr__(self) -> str:
        return f"<array of shape {self.shape}>"


#: The step, relative to 1 + the size of an entry: at the cube root of the rounding unit the error
#: of the difference and that of rounding balance.
STEP = np.cbrt(np.finfo(float).eps)


def central(f: Callable[[Array], Array], U: Array) -> Array:
    """Return the central difference of f, shape (m,) or (m, l), in each column of U, last axis."""
    columns = []
    for j in range(U.shape[1]):
        h = STEP * (1 + np.abs(U[:, j]))
        up, down = U.copy(), U.copy()
        up[:, j] += h
        down[:, j] -= h
        change = f(up) - f(down)
        columns.append(change / (2 * h if change.ndim == 1 else 2 * h[:, None]))
    return np.stack(columns, axis=-1)
