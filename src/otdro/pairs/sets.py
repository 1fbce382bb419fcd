"""Sets of pairs of rows: listed one by one, or all pairs of different classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Pairs whose differences are in memory at a time.
BLOCK = 2**14
#: Entries of differences of dense rows that are squared at a time.
CACHED = 2**16
#: Pairs drawn for those wanted, as some coincide: a multiple and a few.
MORE, SPARE = 1.1, 10


def _few_columns(X: Any, pairs: int) -> Iterator[slice]:
    """Yield the columns of dense rows in parts whose differences stay in the cache."""
    d = X.shape[1]
    step = d if hasattr(X, "toarray") else max(1, CACHED // max(pairs, 1))
    for start in range(0, d, step):
        yield slice(start, min(start + step, d))


def _column_squares(D: Any) -> Array:
    """Return the sum of squares of every column."""
    if hasattr(D, "toarray"):
        return np.asarray(D.power(2).sum(axis=0))
    return np.asarray(np.einsum("ij,ij->j", D, D))


@dataclass(frozen=True, eq=False)
class Listed:
    """Pairs (i, j) of row numbers, one per line of ``index`` of shape (m, 2)."""

    index: Array

    def __len__(self) -> int:
        return len(self.index)

    def scatter(self, X: Array) -> Array:
        """Return the mean of (x_i - x_j)(x_i - x_j)', a block of pairs at a time."""
        # differences, not the Laplacian X'(D - W)X: duplicates must give exactly zero
        S = np.zeros((X.shape[1], X.shape[1]))
        for start in range(0, len(self), BLOCK):
            i, j = self.index[start : start + BLOCK].T
            D = X[i] - X[j]
            S += D.T @ D
        return S / len(self)

    def squares(self, X: Array) -> Array:
        """Return the mean of (x_i - x_j)^2 for each column, the diagonal of ``scatter``."""
        total = np.zeros(X.shape[1])
        for start in range(0, len(self), BLOCK):
            i, j = self.index[start : start + BLOCK].T
            for columns in _few_columns(X, len(i)):
                some = X[:, columns]
                total[columns] += _column_squares(some[i] - some[j])
        return total / len(self)

    def sample(self, limit: int, rng: np.random.RandomState) -> Array:
        """Return the pairs, or ``limit`` of them at random if there are more."""
        if len(self) <= limit:
            return self.index
        return self.index[np.sort(rng.choice(len(self), limit, replace=False))]


@dataclass(frozen=True, eq=False)
class Opposite:
    """All pairs of rows with different codes, never written out.

    ``rows`` are row numbers in canonical order and ``codes`` their classes 0, 1, ....
    """

    rows: Array
    codes: Array

    def __len__(self) -> int:
        counts = np.bincount(self.codes)
        return int((counts.sum() ** 2 - (counts**2).sum()) // 2)

    def scatter(self, X: Array) -> Array:
        """Return the mean of (x_i - x_j)(x_i - x_j)' from class means and class scatters."""
        S = np.zeros((X.shape[1], X.shape[1]))
        for inside, C, outside, shift in self._classes(X):
            S += inside * C.T @ C + outside * np.outer(shift, shift)
        return S / len(self)

    def squares(self, X: Array) -> Array:
        """Return the mean of (x_i - x_j)^2 for each column, the diagonal of ``scatter``."""
        total = np.zeros(X.shape[1])
        for inside, C, outside, shift in self._classes(X):
            total += inside * (C**2).sum(axis=0) + outside * shift**2
        return total / len(self)

    def _classes(self, X: Array) -> Iterator[tuple[int, Array, int, Array]]:
        """Yield n - n_c, the centred members, n n_c and the centre's shift of every class c.

        A member meets the n - n_c others, and
        sum_{b<c} n_b n_c |m_b - m_c|^2 = n sum_c n_c |m_c - m|^2.
        """
        X = X[self.rows]
        n, mean = len(X), X.mean(axis=0)
        for c in range(self.codes.max() + 1):
            members = X[self.codes == c]
            centre = members.mean(axis=0)
            yield n - len(members), members - centre, n * len(members), centre - mean

    def sample(self, limit: int, rng: np.random.RandomState) -> Array:
        """Return all the pairs, or about ``limit`` of them at random if there are more."""
        if len(self) <= limit:
            i, j = np.triu_indices(len(self.rows), 1)
        else:
            share = 2 * len(self) / len(self.rows) ** 2
            i, j = distinct(len(self.rows), int(MORE * limit / share) + SPARE, rng)
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
            rows = pairs.index if isinstance(pairs, Listed) else pairs.rows
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
