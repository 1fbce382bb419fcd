r"""What a rule for delta may look at: out-of-fold scores, environments, rows without labels.

Rows without labels: the mean margin :math:`\mathbb{E}[m]` and square :math:`\mathbb{E}[m^2]` over
few labelled rows are noisy. A model with the probability p of the class +1 expects the margin
:math:`(2p - 1)z` and the square :math:`z^2` at a score z, and what it expects of rows without
labels minus what it expects of those that a fold tests is a control variate: its mean is 0, whether
the model is right or wrong, and it moves against the noise.

The softmax model has one margin per row: the cross-entropy of a row is :math:`\log(1 + e^{-m})` of
:math:`m = \log(p_y/(1 - p_y))`, so that a rule for the logistic loss of margins holds for it with m
as score and +1 as label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import as_index, beside, full, namespace, numbers, numpy, pick
from ..costs import Cost, Norm
from ..fences import NUMBER_FENCE, fenced
from ..losses import Logistic, Loss
from ..problem import Sample
from .grid import OutOfFold, Solved

Array = NDArray[Any]

#: Scores of tested rows that a rule looks at in one go.
ENTRIES = 1_000_000
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


@dataclass(frozen=True, eq=False)
class FoldScores:
    """The folds of one cost: ``scores`` (F, m), larger is better, and what they come from.

    Of each fold ``rows`` are those it tested and ``z`` (K, rows, m) their model scores. ``path`` is
    the path over all rows, ``corrections`` what rows without labels say, and ``unsolved`` the
    number of fits inside folds that did not reach their gap.
    """

    scores: Array
    rows: list[Array]
    z: list[Array]
    path: Solved | None = None
    corrections: Corrections | None = None
    unsolved: int = 0

    def entries(
        self, k: int, weights: Array, columns: slice = slice(None)
    ) -> tuple[Array, Array, Array]:
        """Return tested rows (E,), their scores (E, m) for target k, and their shares (E,) of 1.

        A row that several folds tested shares its weight among its entries; one that no fold
        tested has none. ``columns`` are the deltas asked for.
        """
        rows, times = self.tested
        share = weights[rows] / times
        z = namespace(weights).concat([z[k][:, columns] for z in self.z])
        return rows, z, share / share.sum()

    def shares(self, weights: Array) -> Array:
        """Return the share of the tested weight that each fold has, (F,)."""
        _, _, share = self.entries(0, weights, slice(0))
        ends = np.cumsum([len(rows) for rows in self.rows])[:-1]
        return np.array([part.sum() for part in np.split(numpy(share), ends)])

    @cached_property
    def tested(self) -> tuple[Array, Array]:
        """The tested rows, fold after fold (E,), and how often each of them is tested."""
        rows, z = np.concatenate(self.rows), self.z[0]
        return beside(rows, z), beside(np.bincount(rows)[rows], z)

    def out_of_fold(self, place: int) -> OutOfFold:
        """Return the scores of tested rows at one delta."""
        scores = [numpy(z[:, :, place]) for z in self.z]
        # of K targets (K, rows), of a softmax model (1, rows, K)
        each = [part[0] if part.ndim == 3 else part.T for part in scores]
        return OutOfFold(np.concatenate(self.rows), np.concatenate(each))

    def blocks(self) -> list[slice]:
        """Return the deltas in parts of at most ``ENTRIES`` scores, so that copies are small."""
        return blocks(self.scores.shape[1], sum(len(rows) for rows in self.rows))

    @property
    def mean(self) -> Array:
        """The mean score over folds."""
        return self.scores.mean(axis=0)

    @property
    def se(self) -> Array:
        """Its standard error."""
        F = len(self.scores)
        return self.scores.std(axis=0, ddof=1) / np.sqrt(F) if F > 1 else np.zeros_like(self.mean)

    @property
    def repeats(self) -> float:
        """How often a tested row is tested."""
        rows = np.concatenate(self.rows)
        return len(rows) / len(np.unique(rows))

    def paired_error(self, place: int, other: FoldScores, other_place: int) -> float:
        """Return the standard error of the mean difference to other scores on the same folds.

        Folds of a repetition say nothing new: F of them in r repetitions count as F/r.
        """
        difference = self.scores[:, place] - other.scores[:, other_place]
        F = len(difference)
        if F == 1:
            return float(np.inf)
        return float(difference.std(ddof=1) * np.sqrt(self.repeats / F))


def blocks(m: int, tested: int) -> list[slice]:
    """Return m deltas in parts of at most ``ENTRIES`` scores of so many tested rows."""
    step = max(1, ENTRIES // max(tested, 1))
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


@dataclass(frozen=True, eq=False)
class EnvironmentLosses:
    """The mean out-of-fold loss of each environment along the deltas, ``losses`` (G, m).

    ``names`` (G,) are the groups that some fold tested, ``counts`` (G,) their rows of positive
    weight, ``errors`` (G, m) the standard errors of the losses, from the spread of the rows. An
    environment of one class, or of one row, has a mean loss like any other.
    """

    names: Array
    counts: Array
    losses: Array
    errors: Array

    @property
    def worst(self) -> Array:
        """The largest of them at every delta."""
        found: Array = self.losses.max(axis=0)
        return found

    @property
    def shrunken(self) -> Array:
        """The losses (G, m) moved to their mean by the share of their spread that is noise."""
        mean, noise = self.losses.mean(axis=0), self.errors**2
        spread = ((self.losses - mean) ** 2).sum(axis=0) / max(1, len(self.losses) - 1)
        between = np.maximum(spread - noise.mean(axis=0), 0.0)
        share = between / np.maximum(between + noise, np.finfo(float).tiny)
        found: Array = mean + share * (self.losses - mean)
        return found


def environment_losses(sample: Sample, folds: FoldScores, groups: Array) -> EnvironmentLosses:
    """Return what the folds say about every group of rows; weights have no part in the errors."""
    names, code = np.unique(groups, return_inverse=True)
    rows, times = (numpy(each) for each in folds.tested)
    of_rows, positive = code[rows], numpy(sample.weights)[rows] > 0
    counts = np.bincount(of_rows, positive / times, minlength=len(names))

    def means(values: Array, share: Array) -> Array:
        total = np.zeros((len(names), values.shape[1]))
        np.add.at(total, of_rows, share[:, None] * values)
        mass = np.bincount(of_rows, share, minlength=len(names))
        kept: Array = total[counts > 0] / mass[counts > 0, None]
        return kept

    losses, variances = [], []
    for k, y in enumerate(sample.ys):
        _, z, share = folds.entries(k, sample.weights)
        loss = numpy(sample.loss.value(z, pick(y, rows)[:, None]))
        losses.append(means(loss, numpy(share)))
        each = positive / times
        variances.append(means(loss**2, each) - means(loss, each) ** 2)
    seen = np.round(counts[counts > 0]).astype(int)
    errors = np.sqrt(np.maximum(np.mean(variances, axis=0), 0.0) / seen[:, None])
    return EnvironmentLosses(names[counts > 0], seen, np.mean(losses, axis=0), errors)


def design_effect(losses: Array, groups: Array) -> float:
    r"""Return by what number rows must be divided, because those of an environment are alike.

    It is Kish's :math:`1 + (\bar m - 1)\rho`, with :math:`\rho` the share of the variance of the
    out-of-fold losses (n,) that is between environments (one-way analysis of variance) and
    :math:`\bar m = \sum_g m_g^2/\sum_g m_g` rows an environment.
    """
    code = np.unique(groups, return_inverse=True)[1]
    m = np.bincount(code).astype(float)
    G, n = len(m), float(len(losses))
    if G < 2 or n <= G:
        return 1.0
    mean = np.bincount(code, losses) / m
    between = m @ (mean - losses.mean()) ** 2 / (G - 1)
    within = ((losses - mean[code]) ** 2).sum() / (n - G)
    size = (n - m @ m / n) / (G - 1)
    total = between + (size - 1) * within
    rho = max(between - within, 0.0) / total if total > 0 else 0.0
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


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a rule may look at: the sample, one cost with its deltas (descending), and its folds.

    ``groups`` are the environments that folds leave out as a whole, None if they leave out rows.
    ``tolerance`` is the parameter of the estimators, ``by_rows`` the place that folds of rows
    chose, where folds of environments follow them.
    """

    sample: Sample
    cost: Cost
    order: int
    deltas: Array
    folds: FoldScores
    own_loss: bool
    groups: Array | None = None
    tolerance: float = 0.05
    by_rows: int | None = None


def information(evidence: Evidence) -> float:
    """Return how many independent rows the folds speak of, at least one per environment."""
    n = evidence.sample.distinct
    if evidence.groups is None:
        return n
    # rows without weight are none
    present = numpy(evidence.sample.weights > 0)
    place = int(evidence.folds.mean.argmax())
    losses = _row_losses(evidence.sample, evidence.folds, place)[present]
    effect = design_effect(losses, evidence.groups[present])
    return max(n / effect, min(n, len(np.unique(evidence.groups))))


def radius(evidence: Evidence) -> Array:
    """Return delta at order 1, its root at order 2."""
    return evidence.deltas if evidence.order == 1 else np.sqrt(evidence.deltas)


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
    _, risk = sample.problem(y, sample.ball(Norm(2), 0.0, 1)).constant
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
