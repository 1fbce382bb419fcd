"""In which units the columns are measured: their own, or, far apart, each in its own spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import numpy
from ..costs.mahalanobis import is_structured, of_diagonal
from ..design import FEW_ROWS_UP_TO, WRITTEN_UP_TO, column_scale
from ..fences import column_spreads
from ..problem import Sample

Array = NDArray[Any]

#: Columns whose spreads differ by this factor may have units that have nothing to do with each
#: other; below it a price common to all columns loses little.
FAR_APART = 10.0


def spreads_far_apart(sample: Sample) -> Array | None:
    """Return the spread of every column where some are far apart, else None.

    They are so by their standard deviations and also with every column on its fence: neither a
    few cells far out nor the long tail of a standardised column makes a unit. Sparse rows have no
    units, since most of their cells say that something is not there.
    """
    X = sample.X
    if hasattr(X, "toarray") or X.shape[1] > WRITTEN_UP_TO:
        return None
    rows, weights = numpy(X), numpy(sample.weights)
    plain = column_scale(rows, weights)
    if not _far_apart(plain[plain > 0]):
        return None
    spread, has_quartiles = column_spreads(rows, weights)
    known = has_quartiles & (plain > 0) & (spread > 0)
    if not _far_apart(spread[known]):
        return None
    # a column without a spread of its own has one price or another: none moves it
    return np.where((plain > 0) & (spread > 0), spread, np.median(spread[known]))


def _far_apart(spread: Array) -> bool:
    return len(spread) > 1 and bool(spread.max() > FAR_APART * spread.min())


def in_own_units(units: Array, matrix: Any = None) -> Any:
    r"""Return the matrix on rows x of a cost on x/units: :math:`D\Lambda D`, without one of I.

    :math:`D \propto \mathrm{diag}(1/\mathrm{units})` has :math:`\mathrm{tr}\,D^2 = d`.
    """
    # relative to the least: the inverse squares of very large units would vanish
    price = units.min() / units
    price = price * np.sqrt(len(units) / np.sum(price**2))
    if matrix is None:
        return of_diagonal(price**2) if len(price) > FEW_ROWS_UP_TO else np.diag(price**2)
    return matrix.in_units(price) if is_structured(matrix) else price[:, None] * matrix * price
