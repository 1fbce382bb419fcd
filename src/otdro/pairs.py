"""Pairs of rows: those that a cost should keep near (must-link), and those to keep far apart.

Pairs come from labels, from targets, from a graph or from the user; a set of them gives its scatter
matrix without being written out where it is large. The last part chooses the rows to learn from.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from .arrays import library, numpy, pick
from .design import BLOCK_ENTRIES, WIDE_UP_TO, WRITTEN_UP_TO, Design, as_dense

Array = NDArray[Any]


class Scattered:
    """Pairs whose differences have a scatter matrix: the sum of D'D over ``_parts``, over all."""

    def scatter(self, X: Array) -> Array:
        """Return the mean of (x_i - x_j)(x_i - x_j)'."""
        total = np.zeros((X.shape[1], X.shape[1]))
        for D in self._parts(X):
            total += D.T @ D
        return total / len(self)

    def squares(self, X: Array) -> Array:
        """Return the mean of (x_i - x_j)^2 for each column, the diagonal of ``scatter``."""
        total = np.zeros(X.shape[1])
        for D in self._parts(X):
            total += (D * D).sum(axis=0)
        return total / len(self)

    def __len__(self) -> int:
        raise NotImplementedError

    def _parts(self, X: Array) -> Iterator[Array]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Listed(Scattered):
    """Pairs (i, j) of row numbers, one per line of ``index`` of shape (m, 2)."""

    index: Array

    def __len__(self) -> int:
        return len(self.index)

    @property
    def rows(self) -> Array:
        """The numbers of the rows in all pairs."""
        return self.index

    def _parts(self, X: Array) -> Iterator[Array]:
        """Yield x_i - x_j, a block of pairs at a time.

        Not the Laplacian X'(D - W)X: duplicates must give exactly zero.
        """
        step = max(1, BLOCK_ENTRIES // X.shape[1])
        for start in range(0, len(self), step):
            i, j = self.index[start : start + step].T
            yield X[i] - X[j]

    def sample(self, limit: int, rng: np.random.RandomState) -> Array:
        """Return the pairs, or ``limit`` of them at random if there are more."""
        if len(self) <= limit:
            return self.index
        return self.index[np.sort(rng.choice(len(self), limit, replace=False))]


@dataclass(frozen=True, eq=False)
class Opposite(Scattered):
    """All pairs of rows with different codes, never written out.

    ``rows`` are row numbers in canonical order and ``codes`` their classes 0, 1, ....
    """

    rows: Array
    codes: Array

    def __len__(self) -> int:
        counts = np.bincount(self.codes)
        return int((counts.sum() ** 2 - (counts**2).sum()) // 2)

    def _parts(self, X: Array) -> Iterator[Array]:
        """Yield the centred members of every class, and the shift of its centre, with weights.

        A member meets the n - n_c others, and
        sum_{b<c} n_b n_c |m_b - m_c|^2 = n sum_c n_c |m_c - m|^2.
        """
        X = X[self.rows]
        n, mean = len(X), X.mean(axis=0)
        for c in range(self.codes.max() + 1):
            members = X[self.codes == c]
            centre = members.mean(axis=0)
            yield np.sqrt(n - len(members)) * (members - centre)
            yield np.sqrt(n * len(members)) * (centre - mean)[None]

    def sample(self, limit: int, rng: np.random.RandomState) -> Array:
        """Return all the pairs, or about ``limit`` of them at random if there are more."""
        if len(self) <= limit:
            i, j = np.triu_indices(len(self.rows), 1)
        else:
            share = 2 * len(self) / len(self.rows) ** 2
            # twice as many as needed on average: some coincide
            i, j = distinct(len(self.rows), int(2 * limit / share), rng)
        apart = self.codes[i] != self.codes[j]
        index: Array = self.rows[np.column_stack([i[apart], j[apart]])[:limit]]
        return index


class NoPairsError(ValueError):
    """The rows have no pair of one of the two kinds: there is nothing to learn from them."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Must-link pairs, to be near under the cost, and cannot-link pairs, to be far apart."""

    must: Listed
    cannot: Listed | Opposite

    def check(self, n_rows: int) -> None:
        """Refuse an empty set and row numbers that X does not have."""
        for name, pairs in (("must-link", self.must), ("cannot-link", self.cannot)):
            if len(pairs) == 0:
                raise NoPairsError(f"there are no {name} pairs; {_REMEDY[name]}")
            rows = pairs.rows
            if rows.min() < 0 or rows.max() >= n_rows:
                worst = rows.max() if rows.max() >= n_rows else rows.min()
                raise ValueError(
                    f"a {name} pair names row {worst}, but X has rows 0 to {n_rows - 1}."
                )


_REMEDY = {
    "must-link": "raise k, merge classes that have one member, or give pairs.",
    "cannot-link": "y must hold two classes (or two values); with kind='nearest' raise k or use "
    "kind='each' or 'opposite'.",
}


def distinct(n: int, m: int, rng: np.random.RandomState) -> tuple[Array, Array]:
    """Return about m different unordered pairs i < j out of range(n), at random."""
    i, j = rng.randint(n, size=m), rng.randint(n - 1, size=m)
    index = np.column_stack([i, j + (j >= i)])
    index = index[np.sort(np.unique(key(index, n), return_index=True)[1])]
    return index.min(axis=1), index.max(axis=1)


def key(index: Array, n: int) -> Array:
    """Return one number for each unordered pair of range(n)."""
    low, high = index.min(axis=1), index.max(axis=1)
    return np.asarray(low.astype(np.int64) * n + high)


#: Rows that suffice to make pairs from: the scatter of pairs is known well enough from these, and
#: neighbours are expensive to find.
TEACH_ON = 2_000
#: Rows per column, where that is more; costs are compared on as many.
PER_COLUMN = 10
#: Rows that are used at most, those without labels too.
TEACH_UP_TO = 5_000
#: Decimals to which sketches of equal rows agree.
DIGITS = 9


def unlabelled_rows(X: Any) -> Array:
    """Return rows without labels, a random part (always the same) of more than ``TEACH_UP_TO``."""
    if X.shape[0] > TEACH_UP_TO:
        X = pick(X, np.random.default_rng(0).choice(X.shape[0], TEACH_UP_TO, replace=False))
    return np.asarray(numpy(as_dense(X)), dtype=float)


def sketch(X: Any, y: Array) -> Array:
    """Return one number per (x, y), the same for the same: a fixed Gaussian direction's score."""
    scale = np.random.default_rng(0).standard_normal(X.shape[1] + 1)
    return Design(X).scores(scale[:-1]) + scale[-1] * y


def teaching_rows(X: Any, y: Array, weights: Array) -> tuple[Any, Array]:
    """Return the distinct (x, y) of positive weight, so that a weight of 2 is a row met twice.

    Of more than ``TEACH_ON`` rows a random part (always the same) is used; where they are wide,
    of more than ``WIDE_UP_TO``, and then they stay sparse. Rows on a device come as NumPy.
    """
    index = np.flatnonzero(numpy(weights > 0))
    wide = X.shape[1] > WRITTEN_UP_TO
    enough = min(max(TEACH_ON, PER_COLUMN * X.shape[1]), TEACH_UP_TO)
    most = WIDE_UP_TO if wide else enough
    if len(index) > most:
        index = np.random.default_rng(0).choice(index, most, replace=False)
    X, y = pick(X, index), numpy(pick(y, index))
    X = X if library(X) is None else numpy(X)
    if wide:
        first = np.unique(sketch(X, y).round(DIGITS), return_index=True)[1]
        X = X[first]
        thin = hasattr(X, "toarray")
        return (sparse.csr_array(X) if thin else np.asarray(X, dtype=float)), y[first]
    # -0.0 + 0.0 = 0.0
    rows = np.unique(np.column_stack([as_dense(X), y]).astype(float) + 0.0, axis=0)
    return rows[:, :-1], rows[:, -1]


def nearest(X: Array, rows: Array, others: Array, k: int) -> Array:
    """Return the pairs of each of ``rows`` with its k nearest among ``others``.

    Where both are the same object, no row is its own neighbour.
    """
    own = rows is others
    k = min(k, len(others) - own)
    if k < 1:
        return np.empty((0, 2), dtype=int)
    near = NearestNeighbors(n_neighbors=k).fit(X[others]).kneighbors(None if own else X[rows])[1]
    return np.column_stack([np.repeat(rows, k), others[near.ravel()]])


KINDS = ("each", "nearest", "opposite")
TASKS = ("auto", "classification", "regression")

#: Rows above which neighbours are searched in a random subsample of this size.
MAX_ROWS = 50_000
#: Pairs above which a continuous target, or a learner that needs each pair, takes a subsample.
MAX_PAIRS = 20_000


def generator(random_state: Any) -> np.random.RandomState:
    """Return the generator of a seed; None is the seed 0, so that a fit repeats."""
    seed = 0 if random_state is None else random_state
    rng: np.random.RandomState = check_random_state(seed)
    return rng


def from_labels(
    X: Array,
    y: Array,
    *,
    kind: str = "each",
    k: int = 5,
    max_rows: int = MAX_ROWS,
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
        Above it, neighbours are searched within a random subsample of this many rows.
    random_state : int, RandomState or None
        For the subsample; None is the seed 0.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if not (isinstance(k, (int, np.integer)) and k >= 1):
        raise ValueError(f"k must be an integer >= 1, got {k!r}.")
    codes = np.unique(np.asarray(y), return_inverse=True)[1].ravel()
    rows = _canonical(X, codes)
    if len(rows) > max_rows:
        rng = generator(random_state)
        rows = rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]
    X, codes = X[rows], codes[rows]
    every = np.arange(len(rows))
    if kind == "nearest":
        near = nearest(X, every, every, k)
        same = codes[near[:, 0]] == codes[near[:, 1]]
        must, cannot = near[same], near[~same]
    else:
        members = [np.flatnonzero(codes == c) for c in np.unique(codes)]
        must = np.concatenate([nearest(X, own, own, k) for own in members])
        cannot = np.empty((0, 2), dtype=int)
        if kind == "each":
            far = [nearest(X, own, np.setdiff1d(every, own), k) for own in members]
            cannot = np.concatenate(far)
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
    made: Pairs = pairs if isinstance(pairs, Pairs) else from_graph(pairs, labels)
    made.check(n_rows)
    return made


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
