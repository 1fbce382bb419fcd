r"""What rows without labels say about the margins of models inside folds.

The mean margin :math:`\mathbb{E}[m]` and square :math:`\mathbb{E}[m^2]` over few labelled rows are
noisy. A model with the probability p of the class +1 expects the margin :math:`(2p - 1)z` and the
square :math:`z^2` at a score z, and what it expects of rows without labels minus what it expects
of those that a fold tests is a control variate: its mean is 0, whether the model is right or wrong,
and it moves against the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import numpy
from ..fences import NUMBER_FENCE, fenced
from ..losses import Loss
from ..problem import Sample

Array = NDArray[Any]

#: Rows without labels that are looked at: their own noise hardly counts then.
LOOK_AT = 1_000
#: Standard errors by which rows without labels may differ from the labelled ones by chance; random
#: parts of our data sets differ by 3 at most, but for one in 240.
BY_CHANCE = 4.0
UNLIKE = (
    f"the unlabelled rows differ from those of X by more than {BY_CHANCE:g} standard errors in "
    "what models expect of them, so that they play no part in the choice of delta. Scale them as "
    "X, or leave them out if they come from elsewhere."
)
#: Labelled rows above which nothing is left to correct: the share would be below a hundredth.
FEW_LABELS = 2_500


@dataclass(frozen=True, eq=False)
class Corrections:
    """The control variates of (E m, E m^2), (F, K, 2, m) for folds, targets and deltas, and the
    number of ``rows`` without labels behind them."""

    rows: int
    values: Array

    def mean(self, k: int, shares: Array) -> Array:
        """Return those of a target, (2, m), over folds that have these shares of the rows."""
        return np.tensordot(shares, self.values[:, k], axes=1)

    def errors(self, loss: Loss, found: Array, z: Array, share: Array, n: float) -> float:
        """Return by how many standard errors the rows differ, from the scores z of tested ones.

        It is the larger of both moments, in the median over deltas; ``found`` is ``mean``.
        """
        moments = [numpy(each) for each in expected(loss, fenced(z, share))]
        pi = numpy(share)
        variance = np.stack([pi @ (each - pi @ each) ** 2 for each in moments])
        error = np.sqrt(variance * (1 / n + 1 / self.rows))
        t = np.abs(found) / np.maximum(error, np.finfo(float).tiny)
        return float(np.median(t, axis=1).max())

    def share(self, n: float, h: float, loss: float) -> float:
        """Return the share to use beside n labelled rows whose margins are smoothed by h.

        The best one falls with the noise of the rows without labels, as N/(N + n). A model
        expects little that is true where its ``loss``, relative to the constant model's, is near 1;
        with h the share fades where labels say enough.
        """
        return h * self.rows / (self.rows + n) * max(0.0, 1 - loss)


def rows_to_look_at(unlabelled: Array | None, sample: Sample) -> Array | None:
    """Return the rows without labels that can help a rule to judge margins, None if none can.

    Models without probabilities expect nothing, and many labels need no help. The scores of a
    softmax model were tried as well: nothing was gained.
    """
    loss = sample.loss
    expects = loss.outputs == 1 and loss.probability(np.zeros(1)) is not None
    if unlabelled is None or not expects or len(sample.weights) > FEW_LABELS:
        return None
    if len(unlabelled) <= LOOK_AT:
        return unlabelled
    # a random part, always the same: rows may come in order
    return np.random.default_rng(0).choice(unlabelled, LOOK_AT, replace=False)


def correction(loss: Loss, unlabelled: Array, tested: Array, weights: Array) -> Array:
    """Return the control variates (2, m) from the scores (rows, m) of models of one fold.

    Scores beyond the fence of those without labels count as on it.
    """
    z = numpy(unlabelled)
    fence = NUMBER_FENCE * np.quantile(np.abs(z), 0.75, axis=0)
    here, there = (expected(loss, np.clip(some, -fence, fence)) for some in (z, numpy(tested)))
    pi = numpy(weights) / float(weights.sum())
    return np.stack([u.mean(axis=0) - pi @ t for u, t in zip(here, there, strict=True)])


def expected(loss: Loss, z: Array) -> tuple[Array, Array]:
    """Return the mean and mean square margin, of the shape of z, that a model expects there."""
    p: Any = loss.probability(z)
    q: Any = loss.probability(-z)
    return (p - q) * z, z**2
