"""Rows from several environments: the loss of each, and how many rows all of them are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import numpy
from ..problem import Sample
from .folds import FoldScores

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class EnvironmentLosses:
    """The mean out-of-fold loss of each environment along the deltas, ``losses`` (G, m).

    ``names`` (G,) are the groups that some fold tested, ``counts`` (G,) their rows of positive
    weight. An environment of one class, or of one row, has a mean loss like any other.
    """

    names: Array
    counts: Array
    losses: Array

    @property
    def worst(self) -> Array:
        """The largest of them at every delta."""
        found: Array = self.losses.max(axis=0)
        return found


class Environments(NamedTuple):
    """What the folds say about every environment, and their ``design_effect``."""

    losses: EnvironmentLosses
    effect: float


def environment_losses(sample: Sample, folds: FoldScores, groups: Array) -> EnvironmentLosses:
    """Return what the folds say about every group of rows."""
    parts = [_totals(sample, folds, groups, k) for k in range(len(sample.ys))]
    names = np.unique(groups)
    positive = numpy(sample.weights > 0)
    counts = np.array([np.count_nonzero(positive[groups == g]) for g in names])
    mass = parts[0][1]
    kept = mass > 0
    losses = np.mean([total[kept] / share[kept, None] for total, share in parts], axis=0)
    return EnvironmentLosses(names[kept], counts[kept], losses)


def _totals(sample: Sample, folds: FoldScores, groups: Array, k: int) -> tuple[Array, Array]:
    """Return the summed loss (G, m) and mass (G,) of every group for the target vector k."""
    rows, z, share = folds.entries(k, sample.weights)
    loss = numpy(share[:, None] * sample.loss.value(z, sample.ys[k][rows, None]))
    rows, share = numpy(rows), numpy(share)
    names, code = np.unique(groups, return_inverse=True)
    total = np.zeros((len(names), z.shape[1]))
    np.add.at(total, code[rows], loss)
    return total, np.bincount(code[rows], share, minlength=len(names))


def design_effect(sample: Sample, folds: FoldScores, groups: Array) -> float:
    r"""Return by what number rows must be divided, because those of an environment are alike.

    It is Kish's :math:`1 + (\bar m - 1)\rho`, with :math:`\rho` the share of the variance of the
    out-of-fold losses that is between environments (one-way analysis of variance, at the delta of
    the best mean score) and :math:`\bar m = \sum_g m_g^2/\sum_g m_g` rows an environment. Rows
    without weight are none.
    """
    place, present = int(folds.mean.argmax()), numpy(sample.weights > 0)
    code = np.unique(groups[present], return_inverse=True)[1]
    loss = _row_losses(sample, folds, place)[present]
    each = (np.bincount(code), np.bincount(code, loss), np.bincount(code, loss**2))
    return effect_of_sums(*each)


def effect_of_sums(m: Array, total: Array, square: Array) -> float:
    """Return the design effect of groups of m rows whose losses, and their squares, sum to these.

    All have one entry per group.
    """
    m = m.astype(float)
    G, n = len(m), float(m.sum())
    if G < 2 or n <= G:
        return 1.0
    mean = total / m
    between = m @ (mean - total.sum() / n) ** 2 / (G - 1)
    # a row alone in its group, or the like of the others, leaves rounding
    within = np.maximum(square - m * mean**2, 0.0).sum() / (n - G)
    size = (n - m @ m / n) / (G - 1)
    spread = max(between - within, 0.0)
    total = between + (size - 1) * within
    rho = spread / total if total > 0 else 0.0
    return float(1 + (m @ m / n - 1) * rho)


def _row_losses(sample: Sample, folds: FoldScores, place: int) -> Array:
    """Return the out-of-fold loss of every row at one delta, over its folds and target vectors.

    A row that no fold tested has the mean loss of the others.
    """
    losses = []
    for k, y in enumerate(sample.ys):
        rows, z, _ = folds.entries(k, sample.weights)
        value = numpy(sample.loss.value(z[:, place], y[rows]))
        rows = numpy(rows)
        count = np.bincount(rows, minlength=len(y))
        total = np.bincount(rows, value, minlength=len(y))
        losses.append(np.where(count > 0, total / np.maximum(count, 1), value.mean()))
    found: Array = np.mean(losses, axis=0)
    return found
