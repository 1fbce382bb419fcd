"""The cross-entropy of several scores per row."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax, xlogy

from .base import Array, Loss


class Softmax(Loss):
    r"""Cross-entropy :math:`\log\sum_k e^{z_k} - z_y` of K scores for labels y in {0, ..., K - 1}.

    Scores have one more axis than labels, the last one, over the classes. Its slope along a move
    that changes the difference of two scores by s is at most ``|s|``: ``lipschitz`` is in this
    unit.

    Parameters
    ----------
    classes : int, default=3
        The number K of scores.
    """

    task = "classification"
    lipschitz = 1.0
    smoothness = 0.5
    minimum_at_infinity = True

    def __init__(self, classes: int = 3) -> None:
        self.classes = classes

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """The number of scores per row."""
        return self.classes

    def value(self, z: Array, y: Array) -> Array:
        """Return log sum_k e^(z_k - z_y)."""
        own = np.take_along_axis(z, _places(z, y), axis=-1)
        return np.asarray(logsumexp(z - own, axis=-1))

    def derivative(self, z: Array, y: Array) -> Array:
        """Return p - e_y, p the probabilities."""
        slope = softmax(z, axis=-1)
        place = _places(z, y)
        np.put_along_axis(slope, place, np.take_along_axis(slope, place, axis=-1) - 1, axis=-1)
        return np.asarray(slope)

    def probability(self, z: Array) -> Array:
        """Return the probabilities of all classes, along the last axis."""
        return np.asarray(softmax(z, axis=-1))

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return the negative entropy of p = a + e_y, +inf off the simplex."""
        p = a.copy()
        place = _places(a, y)
        np.put_along_axis(p, place, np.take_along_axis(p, place, axis=-1) + 1, axis=-1)
        inside = (p >= 0).all(axis=-1)
        return np.where(inside, xlogy(p, np.maximum(p, 0)).sum(axis=-1), np.inf)

    def shares(self, y: Array, weights: Array) -> Array:
        """Return the weight of every class, (K,)."""
        return np.bincount(y.astype(int), weights, minlength=self.classes) / weights.sum()

    def constant(self, y: Array, weights: Array) -> Any:
        """Return the centred logarithms of the shares, (K,); of an absent class far down."""
        b = np.log(np.maximum(self.shares(y, weights), np.finfo(float).tiny))
        return b - b.mean()


def _places(z: Array, y: Array) -> Array:
    """Return the labels as indices along the last axis of the scores."""
    place = np.asarray(y).astype(int)[..., None]
    return np.broadcast_to(place, (*z.shape[:-1], 1))
