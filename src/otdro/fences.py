"""How far out a row or a number may count: beyond a fence it is taken as lying on the fence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .arrays import as_float, beside, full, namespace
from .design import Design

Array = NDArray[Any]

#: The fence about a centre, in medians of the distance from it.
ROW_FENCE = 6.0
#: The fence about 0, in upper quartiles of the size.
NUMBER_FENCE = 4.0
#: Rounds in which centre and fence settle at most; each takes most of an outlier's pull away.
ROUNDS = 20


def row_shares(X: Any, weights: Array | None = None) -> tuple[Array, Array]:
    r"""Return the centre c and :math:`f_i = \min(1, r/\|x_i - c\|)`, r = 6 medians of the distance.

    The row :math:`c + f_i(x_i - c)` is on or inside the fence of radius r, and
    :math:`c = \sum_i \pi_i f_i x_i / \sum_i \pi_i f_i`: Huber's estimate of the centre.
    """
    n = X.shape[0]
    pi = full(n, 1 / n, X) if weights is None else weights / weights.sum()
    f = full(n, 1.0, X)
    for _ in range(ROUNDS):
        center = Design(X).adjoint(pi * f) / float(pi @ f)
        distance = Design(X, center=center).squared_norms() ** 0.5
        fence = ROW_FENCE * float(weighted_quantile(distance[:, None], pi, 0.5)[0])
        if fence == 0:
            # half of the rows are one row: nothing says what is far
            return center, full(n, 1.0, X)
        before, f = f, fence / namespace(distance).maximum(distance, fence)
        if (before == f).all():
            break
    return center, f


def fenced_rows(X: Any) -> Any:
    """Return the rows, those outside the fence of ``row_shares`` moved onto it.

    Sparse rows are drawn to 0 and not to the centre, so that they stay sparse: they are then no
    farther from the centre than the fence plus the centre's own length.
    """
    center, f = row_shares(X)
    if f.min() == 1:
        return X
    if hasattr(X, "toarray"):
        return sparse.csr_array(X.multiply(f[:, None]))
    center = beside(center, X)
    return center + f[:, None] * (X - center)


def fenced(v: Array, weights: Array) -> Array:
    """Return v (n, m), in each column cut at 4 upper quartiles of the size on either side."""
    fence = NUMBER_FENCE * weighted_quantile(abs(v), weights, 0.75)
    xp = namespace(v)
    # a column of which three quarters are 0 has no scale
    fence = xp.where(fence > 0, fence, np.inf)
    return xp.minimum(xp.maximum(v, -fence), fence)


def column_spreads(X: Array, weights: Array) -> tuple[Array, Array]:
    """Return the standard deviations of the columns, each fenced about its median, and whether
    the column has upper quartiles of its own: one of which three quarters are one number has none.

    Its fence is six medians of the deviations that are not 0, as of an indicator its few ones.
    """
    v = X - weighted_quantile(X, weights, 0.5)
    size = abs(v)
    fence = NUMBER_FENCE * weighted_quantile(size, weights, 0.75)
    has_quartiles = fence > 0
    for j in np.flatnonzero(~has_quartiles):
        away = (size[:, j] > 0) & (weights > 0)
        if away.any():
            fence[j] = ROW_FENCE * weighted_quantile(size[away, j, None], weights[away], 0.5)[0]
    v = np.clip(v, -fence, fence)
    pi = weights / weights.sum()
    return np.sqrt(pi @ (v - pi @ v) ** 2), has_quartiles


def weighted_quantile(v: Array, weights: Array, q: float) -> Array:
    """Return the least value in each column of v (n, m) below which the weights reach q."""
    xp = namespace(v)
    if len(weights) and weights.min() == weights.max():
        last = max(int(np.ceil(q * len(weights) * (1 - 1e-12))) - 1, 0)
        ordered = np.partition(v, last, axis=0) if xp is np else xp.sort(v, axis=0)
        return ordered[last]
    order = xp.argsort(v, axis=0)
    # rounding must not lift the quantile of equal weights by a place
    reached = weights[order].cumsum(0) >= q * weights.sum() * (1 - 1e-12)
    place = xp.take_along_axis(order, xp.argmax(as_float(reached), axis=0)[None], axis=0)
    quantile: Array = xp.take_along_axis(v, place, axis=0)[0]
    return quantile
