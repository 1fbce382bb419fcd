r"""The softmax model as rules see it: one margin per row.

The cross-entropy of a row is :math:`\log(1 + e^{-m})` of :math:`m = \log(p_y/(1 - p_y))`, so that a
rule for the logistic loss of margins holds for it with m as score and +1 as label.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_index, full, namespace, numbers, pick
from ..costs import Norm
from ..losses import Logistic
from ..problem import Sample
from ..solvers.base import constant_risk
from .folds import FoldScores

Array = NDArray[Any]


class TrueClass(Logistic):
    """The logistic loss of the margin of the own class among K.

    A mean slope a e_y of the rows pulls the K scores apart: its polar norm over pairs of classes is
    at most sqrt(K - 1) times that of a single score, which is the unit of ``lipschitz``.
    """

    def __init__(self, classes: int = 2, risk: float = 1.0) -> None:
        self.classes = classes
        self.risk = risk

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """1/sqrt(K - 1)."""
        return float(1 / np.sqrt(self.classes - 1))

    def constant(self, y: Array, weights: Array) -> float:
        """Return the margin whose loss is the best constant model's risk."""
        return -float(np.log(np.expm1(self.risk)))


def binary_view(sample: Sample, folds: FoldScores) -> tuple[Sample, FoldScores]:
    """Return the sample and folds of a softmax model with margins as scores; others unchanged."""
    K = sample.loss.outputs
    if K == 1:
        return sample, folds
    [y] = sample.ys
    pairs = zip(folds.rows, folds.z, strict=True)
    z = [true_class_margin(scores[0], pick(y, rows))[None] for rows, scores in pairs]
    _, risk = constant_risk(sample.problem(y, sample.ball(Norm(2), 0.0, 1)))
    view = replace(sample, ys=[full(len(y), 1.0, y)], loss=TrueClass(K, risk))
    return view, replace(folds, z=z)


def true_class_margin(z: Array, y: Array) -> Array:
    """Return z_y - log sum over the other classes of e^z_k, (n, m) from scores (n, m, K)."""
    xp = namespace(z)
    own = (as_index(y)[:, None] == numbers(z.shape[-1], z))[:, None, :]
    mine = xp.sum(xp.where(own, z, 0.0), axis=-1)
    others = xp.where(own, -np.inf, z)
    top = xp.max(others, axis=-1)
    return mine - top - xp.log(xp.sum(xp.exp(others - top[..., None]), axis=-1))
