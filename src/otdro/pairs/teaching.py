"""The rows that pairs are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import library, numpy, pick
from ..design import WRITTEN_UP_TO, Design, as_dense

Array = NDArray[Any]

#: Rows that suffice to make pairs from, or so many a column where that is more: the scatter of
#: pairs is known well enough from these, and neighbours are expensive to find.
TEACH_ON, PER_COLUMN = 2_000, 10
#: Rows that are used at most, those without labels too.
TEACH_UP_TO = 5_000
#: The same where a row has many columns: a table of all pairs of rows takes part.
WIDE_UP_TO = 1_000
#: Columns by which rows of many columns are put in order where these tell all of them apart.
COMPARED_FIRST, MANY_COLUMNS = 8, 256
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
    rows = distinct_rows(np.asarray(np.column_stack([as_dense(X), y]), dtype=float))
    return rows[:, :-1], rows[:, -1]


def distinct_rows(rows: Array) -> Array:
    """Return the distinct rows of a float64 array, in the order of their first entries that differ.

    Where a few of many columns tell all rows apart, no others are compared.
    """
    rows = np.ascontiguousarray(rows) + 0.0  # -0.0 + 0.0 = 0.0
    if rows.shape[1] > MANY_COLUMNS:
        first = _ordered_strings(rows[:, :COMPARED_FIRST])
        order = np.argsort(first)
        if (first[order][1:] != first[order][:-1]).all():
            return rows[order]
    rows = rows[np.argsort(_ordered_strings(rows))]
    new = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
    return rows[new]


def _ordered_strings(rows: Array) -> Array:
    """Return a string of bytes per row, in the order of the rows.

    The bytes of a positive number with its sign bit set, and those of a negative one with all bits
    turned, have the order of the numbers.
    """
    bits = np.ascontiguousarray(rows).view(np.int64)
    ordered = np.where(bits < 0, ~bits, bits ^ np.iinfo(np.int64).min).view(np.uint64)
    strings = np.ascontiguousarray(ordered.astype(">u8"))
    return strings.view(np.dtype((np.void, 8 * rows.shape[1]))).ravel()
