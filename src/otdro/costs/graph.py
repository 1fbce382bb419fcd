"""The shortest-path cost on a neighbourhood graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, dijkstra
from sklearn.neighbors import NearestNeighbors

from .base import Array, Cost


@dataclass(eq=False, repr=False)
class Graph(Cost):
    """Cost of the shortest path on the k-nearest-neighbour graph of all nodes.

    The adversary moves mass only between nodes: the rows of X and, where given, of ``support``.

    Parameters
    ----------
    k : int, default=10
        Neighbours of a node.
    base : Cost or None, default=None
        How long edges are: a Cost with ``transform``, whose distances are Euclidean there (l_p for
        a norm with p); None is Euclidean.
    """

    geometry = "finite"

    k: int = 10
    base: Any = None

    def check(self, n_features: int) -> None:
        """Refuse a k below 1 and a base that does not fit."""
        if not (isinstance(self.k, int | np.integer) and self.k >= 1):
            raise ValueError(f"Graph needs an integer k >= 1, got k={self.k!r}.")
        if self.base is not None:
            self.base.check(n_features)

    def edges(self, nodes: Array) -> Any:
        """Return the symmetric k-nearest-neighbour graph, a sparse matrix of edge lengths."""
        place = nodes if self.base is None else self.base.transform(nodes)
        p = 2 if self.base is None else self.base.p
        k = min(self.k, len(nodes) - 1)
        length, near = NearestNeighbors(n_neighbors=k, p=p).fit(place).kneighbors()
        pair = np.stack([np.repeat(np.arange(len(nodes)), k), near.ravel()])
        # one edge per pair, whichever end chose it
        pair, first = np.unique(np.sort(pair, axis=0), axis=1, return_index=True)
        # places that a base makes coincide: a length of zero would read as no edge
        exact = np.finfo(float)
        size = np.maximum(length.ravel()[first], max(exact.eps * length.max(), exact.tiny))
        return sparse.csr_array((size, (pair[0], pair[1])), shape=(len(nodes), len(nodes)))

    def distance_to_nodes(self, X: Array, support: Array | None) -> Array:
        """Return the distances from the rows of X to all nodes, the rows of X first.

        Neighbours are distinct places: nodes that coincide are one place.
        """
        nodes = X if support is None else np.vstack([X, support])
        if len(nodes) <= self.k:
            raise ValueError(f"Graph(k={self.k}) needs more than k nodes, got {len(nodes)}.")
        nodes, place = np.unique(nodes, axis=0, return_inverse=True)
        place = place.ravel()  # NumPy 2.0.0 returns a column
        if len(nodes) == 1:
            return np.zeros((len(X), len(place)))
        graph = self.edges(nodes)
        parts, _ = connected_components(graph, directed=False)
        if parts > 1:
            raise ValueError(
                f"the {self.k}-nearest-neighbour graph of {len(nodes)} nodes has {parts} "
                "components, and mass cannot cross between them. Raise k, or drop the nodes apart."
            )
        own, of = np.unique(place[: len(X)], return_inverse=True)
        lengths: Array = dijkstra(graph, directed=False, indices=own)
        return lengths[np.ix_(of, place)]
