"""How the labels or targets changed, which no move of the rows explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bounds import line_distance

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class LabelShift:
    """Class shares of both samples and the total variation between them, ``distance``.

    For numbers ``labels`` is None, the shares are empty, and ``distance`` is the mean move of the
    targets in standard deviations of the reference.
    """

    labels: list[str] | None
    reference: Array
    new: Array
    distance: float

    def to_dict(self) -> dict[str, Any]:
        """Return it in lists and numbers."""
        return {
            "labels": self.labels,
            "reference": self.reference.tolist(),
            "new": self.new.tolist(),
            "distance": self.distance,
        }


def of_classes(own_u: Array, own_v: Array, labels: list[str]) -> LabelShift:
    """Return the change of class shares."""
    K = len(labels)
    p, q = (np.bincount(own, minlength=K) / len(own) for own in (own_u, own_v))
    return LabelShift(labels, p, q, float(np.abs(p - q).sum() / 2))


def of_targets(y: Array, z: Array) -> LabelShift:
    """Return the move of the targets."""
    mass = [np.full(len(part), 1 / len(part)) for part in (y, z)]
    distance = line_distance(y, mass[0], z, mass[1], 1)
    scale = float(y.std())
    return LabelShift(None, np.zeros(0), np.zeros(0), distance / scale if scale > 0 else distance)
