"""Where the class of the highest score changes, in a plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Section:
    """Scores in a plane: ``constant`` (K,) at its centre and ``slopes`` (K, 2) in its axes."""

    constant: Array
    slopes: Array


def boundary_lines(found: Section, center: Array, box: Array) -> list[Array]:
    """Return the segments (2, 2) in a box where two scores are equal and no other is larger.

    ``center`` (2,) are the plane's centre in its coordinates, ``box`` is [[x0, y0], [x1, y1]].
    """
    segments = []
    K = len(found.constant)
    for k in range(K):
        for m in range(k + 1, K):
            segments += _segment(found, k, m, center, box)
    return segments


def _segment(found: Section, k: int, m: int, center: Array, box: Array) -> list[Array]:
    g = found.slopes[k] - found.slopes[m]
    size = float(g @ g)
    if size == 0:
        return []
    start = center - g * (found.constant[k] - found.constant[m]) / size
    along = np.array([-g[1], g[0]]) / np.sqrt(size)
    # what must be >= 0 along start + t along: the box, and this score above every other
    values = [start - box[0], box[1] - start]
    rates = [along, -along]
    for other in range(len(found.constant)):
        if other not in (k, m):
            s = found.slopes[k] - found.slopes[other]
            c = found.constant[k] - found.constant[other]
            values.append(np.array([c + s @ (start - center)]))
            rates.append(np.array([s @ along]))
    low, high = _interval(np.concatenate(values), np.concatenate(rates))
    return [np.stack([start + low * along, start + high * along])] if low < high else []


def _interval(value: Array, rate: Array) -> tuple[float, float]:
    """Return the t with value + t rate >= 0 in every entry, as (low, high); empty if low > high."""
    if (value[rate == 0] < 0).any():
        return 1.0, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -value / rate
    return float(t[rate > 0].max(initial=-np.inf)), float(t[rate < 0].min(initial=np.inf))
