"""Which columns moved between two samples, each by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import kolmogorov

from ..design import column_scale
from .by_column import ByColumn
from .pair import MatchedSamples

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class DriftTable(ByColumn):
    """One entry per column, in units of the standard deviation ``scale`` of the reference.

    ``shift`` (d,) is the change of the mean, ``distance`` (d,) the mean move of the column alone
    (its one-dimensional transport cost of order 1), ``p_value`` (d,) that of the Kolmogorov-Smirnov
    distance of that column, not corrected for the number of columns. Where labels are known the
    reference is weighted to the new class shares first.
    """

    shift: Array
    distance: Array
    p_value: Array
    scale: Array
    shown = {
        "shift": ("mean shift", "+.3f"),
        "distance": ("distance", ".3f"),
        "p_value": ("p-value", ".2g"),
    }

    def order(self) -> Array:
        """Return the numbers of the columns, the one that moved farthest first."""
        return np.argsort(-self.distance, kind="stable")


def moved_columns(samples: MatchedSamples, names: list[str]) -> DriftTable:
    """Return the table of two samples."""
    P, Q = samples.reference, samples.new
    scale = column_scale(P.rows, P.mass)
    unit = np.where(scale > 0, scale, 1.0)
    shift = (Q.mass @ Q.rows - P.mass @ P.rows) / unit
    signed = np.concatenate([P.mass, -Q.mass])
    sizes = [1 / float(np.sum(sample.mass**2)) for sample in (P, Q)]
    root = np.sqrt(sizes[0] * sizes[1] / (sizes[0] + sizes[1]))
    found = np.array([_gaps(P.rows[:, j], Q.rows[:, j], signed) for j in range(len(names))])
    return DriftTable(names, shift, found[:, 0] / unit, kolmogorov(root * found[:, 1]), scale)


def _gaps(u: Array, v: Array, signed: Array) -> tuple[float, float]:
    """Return the integral and the maximum of abs(F - G), the distribution functions of two samples.

    The integral is the one-dimensional transport cost of order 1, the maximum the
    Kolmogorov-Smirnov distance. ``signed`` are the masses of u and, negative, of v.
    """
    values = np.concatenate([u, v])
    order = np.argsort(values)
    step = np.diff(values[order])
    gap = np.abs(np.cumsum(signed[order])[:-1])
    return float(gap @ step), float(gap[step > 0].max(initial=0.0))
