"""The radius at which noise alone moves the coefficients: the unit of the prior for delta."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from ..arrays import full, namespace, numpy
from ..design import Design
from ..problem import Sample
from .evidence import Evidence, information

Array = NDArray[Any]

#: Draws behind the profile of norms that are not Euclidean.
DRAWS = 200
#: Entries of the draws that are looked at in one go.
DRAWN_ENTRIES = 2**18
#: Rows times squared columns above which tr S^2 is found at a few deltas only, and how many.
INTERPOLATE_FROM, KNOTS = 20_000_000, 5


def profile_median(evidence: Evidence) -> Array:
    r"""Return, for each delta, the median radius at which noise alone moves the coefficients.

    It is the median of :math:`\|\frac1n \sum_i \xi_i a_i (x_i - \bar x)\|` over standard normal
    multipliers, :math:`a_i = \ell'(z_i)` at out-of-fold scores, over the Lipschitz constant; at
    order 2 over the root mean square of :math:`\ell'` at the best constant. n is ``information``:
    rows of one environment that tell the same average no noise away. Rows that no fold tested do
    not count, and those far out count as on a fence.
    """
    sample = evidence.sample
    norms = _euclidean_norms if evidence.cost.euclidean else _drawn_norms
    found = [norms(evidence, k) / _unit(sample, y, evidence.order) for k, y in enumerate(sample.ys)]
    return np.mean(found, axis=0) / np.sqrt(information(evidence))


def _unit(sample: Sample, y: Array, order: int) -> float:
    """Return Lip(l) at order 1, the root mean square of l' at the best constant at order 2."""
    if order == 1:
        return float(sample.loss.lipschitz)
    b = sample.loss.constant(y, sample.weights) if sample.fit_intercept else 0.0
    a = sample.loss.derivative(full(len(y), b, y), y)
    return max(float(sample.weights @ a**2) ** 0.5, np.finfo(float).tiny)


def _squares(evidence: Evidence, k: int, columns: slice) -> Array:
    """Return the weights a^2 (n, m) of the outer products of rows, on the fence, at some deltas."""
    sample = evidence.sample
    rows, z, share = evidence.folds.entries(k, sample.weights, columns)
    a = sample.loss.derivative(z, sample.ys[k][rows, None])
    square = share[:, None] * a**2
    n, xp = len(sample.weights), namespace(square)
    D = xp.stack([xp.bincount(rows, column, minlength=n) for column in square.T], axis=1)
    D *= sample.fence[1][:, None] ** 2
    return D


def _euclidean_norms(evidence: Evidence, k: int) -> Array:
    """Return the median of |N(0, S)|, S = sum D (z - c)(z - c)', at every delta.

    It needs the trace of S and that of S^2 only. The second, relative to the square of the first,
    varies slowly with delta; of many rows it is found at ``KNOTS`` deltas and interpolated.
    """
    sample, m = evidence.sample, len(evidence.deltas)
    center = sample.fence[0] if sample.fit_intercept else None
    design = Design(sample.X, evidence.cost.factor(), center)
    length, knots = design.squared_norms(), _knots(design, m)
    trace, share = np.zeros(m), np.zeros(m)
    for columns in evidence.folds.blocks():
        D = _squares(evidence, k, columns)
        trace[columns] = numpy(length @ D)
        for j in range(columns.start, columns.stop):
            if j in knots and trace[j] > 0:
                share[j] = design.gram_square(D[:, j - columns.start]) / trace[j] ** 2
    if len(knots) < m:
        share = PchipInterpolator(knots, share[knots])(np.arange(m))
    return _median_norm(trace, share)


def _knots(design: Design, m: int) -> list[int]:
    """Return the places of the deltas at which a Gram matrix is formed."""
    if design.n <= design.d or design.n * design.d**2 <= INTERPOLATE_FROM or m <= KNOTS:
        return list(range(m))
    return [int(j) for j in np.linspace(0, m - 1, KNOTS).round()]


def _drawn_norms(evidence: Evidence, k: int) -> Array:
    """Return the same under another norm, from draws."""
    sample = evidence.sample
    xi = np.random.default_rng(0).standard_normal((len(sample.weights), DRAWS))
    design = Design(sample.X, center=sample.fence[0] if sample.fit_intercept else None)
    step = max(1, DRAWN_ENTRIES // design.d)
    draws = [np.ascontiguousarray(xi[:, i : i + step]) for i in range(0, DRAWS, step)]

    def lengths(root: Array) -> Array:
        pulls = (design.adjoint(some * root) for some in draws)
        return np.concatenate([evidence.cost.norm(pull.T) for pull in pulls])

    found = [
        np.median(lengths(np.sqrt(column)[:, None]))
        for columns in evidence.folds.blocks()
        for column in _squares(evidence, k, columns).T
    ]
    return np.array(found)


def _median_norm(trace: Array, share: Array) -> Array:
    """Return the median of |N(0, S)|: chi-square of equal mean and variance, Wilson-Hilferty.

    ``share`` is tr S^2/(tr S)^2, one over the degrees of freedom.
    """
    found: Array = np.sqrt(trace * (1 - 2 * share / 9) ** 3)
    return found
