"""The cross-entropy of several scores per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import as_index, class_masses, namespace, numbers
from .base import Array, Loss, entropy


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
        xp, own = namespace(z), _own(z, y)
        rise = z - xp.sum(xp.where(own, z, 0.0), axis=-1, keepdims=True)
        top = xp.max(rise, axis=-1)
        rest = xp.sum(xp.where(own, 0.0, xp.exp(rise - top[..., None])), axis=-1)
        # without the term that is 1, so that no digit of a small loss is lost
        rest = xp.where(top > 0, rest + xp.exp(-top) - 1, rest)
        return top + xp.log1p(rest)

    def derivative(self, z: Array, y: Array) -> Array:
        """Return p - e_y, p the probabilities."""
        return self.probability(z) - namespace(z).where(_own(z, y), 1.0, 0.0)

    def probability(self, z: Array) -> Array:
        """Return the probabilities of all classes, along the last axis."""
        xp = namespace(z)
        p = xp.exp(z - xp.max(z, axis=-1, keepdims=True))
        return p / xp.sum(p, axis=-1, keepdims=True)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return the negative entropy of p = a + e_y, +inf off the simplex."""
        xp = namespace(a)
        return -xp.sum(entropy(a + xp.where(_own(a, y), 1.0, 0.0)), axis=-1)

    def shares(self, y: Array, weights: Array) -> Array:
        """Return the weight of every class, (K,)."""
        return class_masses(y, weights, self.classes) / float(weights.sum())

    def constant(self, y: Array, weights: Array) -> Any:
        """Return the centred logarithms of the shares, (K,); of an absent class far down."""
        b = np.log(np.maximum(self.shares(y, weights), np.finfo(float).tiny))
        return b - b.mean()


def _own(z: Array, y: Array) -> Array:
    """Whether a score is that of the own class, along the last axis of the scores."""
    return as_index(y)[..., None] == numbers(z.shape[-1], z)
