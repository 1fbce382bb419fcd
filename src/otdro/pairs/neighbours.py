"""The nearest rows of a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors

from ..design import WRITTEN_UP_TO

Array = NDArray[Any]

#: Pairs up to which neighbours are read off a table of all distances: no tree pays there.
TABLE_UP_TO = 250_000
#: Links of a row in an approximate index at least: with fewer the search misses neighbours.
LEAST_LINKS = 15


@dataclass(frozen=True, eq=False)
class NeighbourSearch:
    """The k nearest rows, exactly (scikit-learn) or not (pynndescent)."""

    X: Array
    k: int
    approximate: bool
    rng: np.random.RandomState

    def within(self, rows: Array) -> Array:
        """Return pairs (row, near row) among ``rows``, a row not being its own neighbour."""
        k = min(self.k, len(rows) - 1)
        if k < 1:
            return np.empty((0, 2), dtype=int)
        if self.approximate:
            near = self._index(self.X[rows], k + 1).neighbor_graph[0]
            return _link(rows, rows, _others(near, k))
        if len(rows) ** 2 <= TABLE_UP_TO:
            distance = self._squares_among(rows)
            np.fill_diagonal(distance, np.inf)
            return _link(rows, rows, np.argpartition(distance, k - 1, axis=1)[:, :k])
        return _link(rows, rows, NearestNeighbors(n_neighbors=k).fit(self.X[rows]).kneighbors()[1])

    def across(self, codes: Array) -> Array:
        """Return pairs (row, near row) of different classes, given by their codes."""
        parts = [(np.flatnonzero(codes == c), np.flatnonzero(codes != c)) for c in np.unique(codes)]
        if len(parts) == 2 and not self.approximate and _tabled(*parts[0]):
            # each of two classes asks for the distances to the other
            table = self._squares(*parts[0])
            tables = [table, np.ascontiguousarray(table.T)]
            pairs = zip(parts, tables, strict=True)
            return np.concatenate([self._read_off(*part, square) for part, square in pairs])
        return np.concatenate([self.between(*part) for part in parts])

    def between(self, rows: Array, others: Array) -> Array:
        """Return pairs (row, near row), the second among ``others``."""
        k = min(self.k, len(others))
        if k < 1:
            return np.empty((0, 2), dtype=int)
        if self.approximate:
            near = self._index(self.X[others], k).query(self.X[rows], k=k)[0]
        elif _tabled(rows, others):
            return self._read_off(rows, others, self._squares(rows, others))
        else:
            index = NearestNeighbors(n_neighbors=k).fit(self.X[others])
            near = index.kneighbors(self.X[rows])[1]
        return _link(rows, others, near)

    def _read_off(self, rows: Array, others: Array, squares: Array) -> Array:
        """Return the pairs of ``between`` from a table of the squared distances."""
        k = min(self.k, len(others))
        return _link(rows, others, np.argpartition(squares, k - 1, axis=1)[:, :k])

    def _squares_among(self, rows: Array) -> Array:
        """Return the squared distances among some rows; of dense ones each is found once."""
        if sparse.issparse(self.X) or self.X.shape[1] > WRITTEN_UP_TO:
            return self._squares(rows, rows)
        return np.asarray(squareform(pdist(self.X[rows], "sqeuclidean")))

    def _squares(self, rows: Array, others: Array) -> Array:
        """Return the squared distances of some rows to others."""
        if sparse.issparse(self.X) and self.X.shape[0] ** 2 <= TABLE_UP_TO:
            return self._table[np.ix_(rows, others)]
        return _squares(self.X[rows], self.X[others])

    @cached_property
    def _table(self) -> Array:
        """The squared distances of all sparse rows: one product takes less than its parts."""
        return _squares(self.X, self.X)

    def _index(self, X: Array, k: int) -> Any:
        try:
            from pynndescent import NNDescent
        except ImportError:
            raise ImportError(
                "approximate=True needs pynndescent: pip install 'otdro[neighbors]'."
            ) from None
        seed = self.rng.randint(2**31 - 1)
        return NNDescent(X, n_neighbors=min(max(k, LEAST_LINKS), len(X)), random_state=seed)


def _tabled(rows: Array, others: Array) -> bool:
    """Whether a table of the distances between some rows and others pays."""
    return len(rows) * len(others) <= TABLE_UP_TO


def _squares(U: Any, V: Any) -> Array:
    """Return all squared distances."""
    if sparse.issparse(U) or U.shape[1] > WRITTEN_UP_TO:
        return np.asarray(euclidean_distances(U, V, squared=True))
    return np.asarray(cdist(U, V, "sqeuclidean"))


def _link(rows: Array, others: Array, near: Array) -> Array:
    """Return the pairs (rows[i], others[near[i, l]]), leaving out missing (-1) and self pairs."""
    i, j = np.repeat(rows, near.shape[1]), near.ravel()
    i, j = i[j >= 0], others[j[j >= 0]]
    return np.asarray(np.column_stack([i, j])[i != j])


def _others(near: Array, k: int) -> Array:
    """Return the first k entries of each line other than its own number, -1 where none is left."""
    own = near == np.arange(len(near))[:, None]
    last = np.argsort(own | (near < 0), axis=1, kind="stable")
    return np.take_along_axis(np.where(own, -1, near), last, axis=1)[:, :k]
