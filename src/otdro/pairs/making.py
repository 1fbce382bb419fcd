"""Makers of pairs: from labels, targets, given indices or a graph.

Every maker works on the rows in a canonical order (sorted by their values), so that the order in
which the rows arrive decides nothing: neither ties between equally near neighbours nor the draws
of a subsample.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from .neighbours import NeighbourSearch
from .sets import Listed, Opposite, Pairs, distinct, key
from .teaching import sketch

Array = NDArray[Any]

KINDS = ("each", "nearest", "opposite")
TASKS = ("auto", "classification", "regression")

#: Rows above which neighbours are searched in a random subsample of this size.
MAX_ROWS = 50_000
#: Pairs above which a continuous target, or a learner that needs each pair, takes a subsample.
MAX_PAIRS = 20_000


def generator(random_state: Any) -> np.random.RandomState:
    """Return the generator of a seed; None is the seed 0, so that a fit repeats."""
    seed = 0 if random_state is None else random_state
    found: np.random.RandomState = check_random_state(seed)
    return found


def from_labels(
    X: Array,
    y: Array,
    *,
    kind: str = "each",
    k: int = 5,
    max_rows: int = MAX_ROWS,
    approximate: bool = False,
    random_state: Any = None,
) -> Pairs:
    """Link each row to near rows of its class, and keep it from rows of the others.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Labels of any type.
    kind : {"each", "nearest", "opposite"}
        ``"each"``: the k nearest rows of the same class, and the k nearest of the other classes.
        ``"nearest"``: the k nearest rows, split by whether the labels agree.
        ``"opposite"``: the k nearest rows of the same class, and all pairs of different classes.
    k : int
        Neighbours of a row; where fewer rows are to be had, all of them. A pair that is found from
        both ends counts once.
    max_rows : int
        Above it, neighbours are searched within a random subsample of this many rows (all rows,
        with ``approximate=True``).
    approximate : bool
        Search with pynndescent instead of exactly.
    random_state : int, RandomState or None
        For the subsample; None is the seed 0.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if not (isinstance(k, (int, np.integer)) and k >= 1):
        raise ValueError(f"k must be an integer >= 1, got {k!r}.")
    codes = np.unique(np.asarray(y), return_inverse=True)[1].ravel()
    rng = generator(random_state)
    rows = _canonical(X, codes)
    if len(rows) > max_rows and not approximate:
        rows = rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]
    search = NeighbourSearch(X[rows], int(k), approximate, rng)
    codes = codes[rows]
    if kind == "nearest":
        near = search.within(np.arange(len(rows)))
        same = codes[near[:, 0]] == codes[near[:, 1]]
        must, cannot = near[same], near[~same]
    else:
        must = np.concatenate([search.within(np.flatnonzero(codes == c)) for c in np.unique(codes)])
        cannot = search.across(codes) if kind == "each" else np.empty((0, 2), dtype=int)
    apart = Opposite(rows, codes) if kind == "opposite" else Listed(rows[_once(cannot)])
    return Pairs(Listed(rows[_once(must)]), apart)


def from_target(
    X: Array, y: Array, *, max_pairs: int = MAX_PAIRS, random_state: Any = None
) -> Pairs:
    """Link the pairs with |y_i - y_j| up to its median and keep the others apart.

    All pairs count up to ``max_pairs`` of each kind, beyond that a random subsample. Where the
    median is also the largest difference, pairs at the median are kept apart.
    """
    y = np.asarray(y, dtype=float)
    rows = _canonical(X, y)
    n, wanted = len(rows), 2 * max_pairs
    if n * (n - 1) // 2 <= wanted:
        i, j = np.triu_indices(n, 1)
    else:
        i, j = distinct(n, wanted, generator(random_state))
    index = rows[np.column_stack([i, j])]
    gap = np.abs(y[index[:, 0]] - y[index[:, 1]])
    median = np.median(gap) if len(gap) else 0.0
    near = gap <= median
    if near.all() and median > 0:
        near = gap < median
    return Pairs(Listed(index[near]), Listed(index[~near]))


def from_indices(must: Any, cannot: Any, n_rows: int) -> Pairs:
    """Take pairs as given: two integer arrays of shape (m, 2). A repeated pair counts once.

    Refuses row numbers outside 0..n_rows-1, a row paired with itself, and a pair in both sets.
    """
    pairs = Pairs(_listed(must, "must-link"), _listed(cannot, "cannot-link"))
    pairs.check(n_rows)
    both = np.intersect1d(key(pairs.must.index, n_rows), key(pairs.cannot.index, n_rows))  # type: ignore[union-attr]
    if len(both):
        i, j = divmod(int(both[0]), n_rows)
        raise ValueError(
            f"{len(both)} pair(s) are both must-link and cannot-link, the first is ({i}, {j}); "
            "remove them from one of the two."
        )
    return pairs


def from_graph(graph: Any, labels: Any = None) -> Pairs:
    """Read pairs off the edges of a graph, an (n, n) array or sparse matrix.

    A positive entry is a must-link edge and a negative one a cannot-link edge. In a graph without
    negative entries the labels decide: edges within a class are must-link, edges between classes
    cannot-link.
    """
    A = sparse.coo_array(graph)
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"a graph of pairs must be square, got shape {A.shape}.")
    A.eliminate_zeros()
    edges = np.column_stack(A.coords)
    positive = A.data > 0
    if positive.all() and labels is not None:
        codes = np.unique(np.asarray(labels), return_inverse=True)[1].ravel()
        if len(codes) != A.shape[0]:
            raise ValueError(f"the graph has {A.shape[0]} nodes but there are {len(codes)} labels.")
        positive = codes[edges[:, 0]] == codes[edges[:, 1]]
    elif positive.all():
        raise ValueError(
            "the graph has no cannot-link (negative) edge; add some, or give labels to split by."
        )
    return from_indices(edges[positive], edges[~positive], A.shape[0])


def resolve(pairs: Any, n_rows: int, labels: Any = None) -> Pairs:
    """Return the pairs that a ``Pairs``, two index arrays or a graph stand for."""
    if isinstance(pairs, tuple | list) and len(pairs) == 2:
        return from_indices(pairs[0], pairs[1], n_rows)
    if not isinstance(pairs, Pairs) and np.ndim(pairs) != 2 and not sparse.issparse(pairs):
        raise TypeError(
            f"pairs must be a Pairs, two index arrays or a graph, got {type(pairs).__name__}."
        )
    found: Pairs = pairs if isinstance(pairs, Pairs) else from_graph(pairs, labels)
    found.check(n_rows)
    return found


def target_kind(y: Array, task: str = "auto") -> str:
    """Return "classification" or "regression": ``task``, or with "auto" what y looks like.

    Numbers with a fractional part are a regression target, and so are numbers of which more than
    half are distinct.
    """
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}.")
    if task != "auto":
        return task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = type_of_target(y)
    if kind not in ("binary", "multiclass", "continuous"):
        raise ValueError(f"y must hold one label or one number per row, got a {kind} target.")
    many = kind == "multiclass" and y.dtype.kind in "iuf" and len(np.unique(y)) > len(y) / 2
    return "regression" if kind == "continuous" or many else "classification"


def _canonical(X: Array, y: Array) -> Array:
    """Return the order of the rows by the bytes of (x, y): rows that tie are identical.

    Sparse rows are put in order by ``sketch``.
    """
    if sparse.issparse(X):
        return np.argsort(sketch(X, y), kind="stable")
    rows = np.ascontiguousarray(np.column_stack([X, y]).astype(float) + 0.0)  # -0.0 + 0.0 = 0.0
    return np.argsort(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel())


def _once(index: Array) -> Array:
    """Return each unordered pair once, sorted."""
    if len(index) == 0:
        return index.astype(int)
    n = int(index.max()) + 1
    return np.column_stack(np.divmod(np.unique(key(index, n)), n))


def _listed(index: Any, name: str) -> Listed:
    """Return given pairs; refuse self pairs and what is not integers of shape (m, 2)."""
    index = np.asarray(index)
    if index.size == 0:
        return Listed(np.empty((0, 2), dtype=int))
    if index.ndim != 2 or index.shape[1] != 2 or index.dtype.kind not in "iu":
        raise ValueError(
            f"{name} pairs must be integers of shape (m, 2), got {index.dtype} of {index.shape}."
        )
    if (index < 0).any():
        raise ValueError(f"a {name} pair names row {index.min()}; rows count from 0.")
    alone = index[:, 0] == index[:, 1]
    if alone.any():
        raise ValueError(f"row {index[alone][0, 0]} is {name} with itself; remove such pairs.")
    return Listed(_once(index))
