r"""Rules that choose delta: each maps what the folds of a cost say to a place on the grid.

To add a rule, write a function from ``Evidence`` to ``Verdict`` and name it in ``RULES``. Below the
rules are their parts: the smoothed out-of-fold loss, the radius at which noise alone moves the
coefficients, which is the unit of the prior for delta, and the losses of environments.

The softmax model has one margin per row: the cross-entropy of a row is :math:`\log(1 + e^{-m})` of
:math:`m = \log(p_y/(1 - p_y))`, so that a rule for the logistic loss of margins holds for it with m
as score and +1 as label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside, full, namespace, numpy, pick
from ..costs import Cost, Norm
from ..design import Design, fenced, weighted_quantile
from ..losses import Logistic
from ..problem import Ball, Sample
from .folds import FoldScores

Array = NDArray[Any]

#: Multiple of the profile's median that "profile" takes.
PROFILE_SHARE = 0.4
#: Multiple of the profile's median about which "smoothed" has its prior.
PRIOR_SHARE = 0.35
#: Precision of that prior, in the logarithm of the radius.
PRIOR_WEIGHT = 2.0
#: The share of the mean loss of environments that their folds must promise to gain.
GAIN = 0.1
#: The share of the way, in the logarithm of delta, that is then taken.
WAY = 0.75
#: The share of the tested rows, those of the least margins, that say how far margins fall.
TAIL = 0.25
#: The share of wrong rows below which labels count as being without noise. On tables of rules
#: without noise the tail expects less from 50 rows on; on digits, the cleanest real ones, more.
NO_WRONG_ROWS = 1 / 2_000
#: Distinct rows up to which "smoothed" replaces the out-of-fold margins by a Gaussian altogether.
SMOOTHING = 40
#: Nodes of the quadrature over that Gaussian.
NODES = 15
#: Draws behind the profile of norms that are not Euclidean.
DRAWS = 200
#: Deltas at which tr S^2 is found.
KNOTS = 5


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a rule may look at: the sample, one cost with its deltas (descending), and its folds.

    ``own_loss``: the scores of the folds are minus the loss, not those of a scorer. ``groups`` are
    the environments that folds leave out as a whole, None if they leave out rows. ``tolerance`` is
    the parameter of the estimators, ``by_rows`` the place that folds of rows chose, where folds of
    environments follow them.
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

    @property
    def radius(self) -> Array:
        """Delta at order 1, its root at order 2."""
        return self.deltas if self.order == 1 else np.sqrt(self.deltas)

    @cached_property
    def information(self) -> float:
        """How many independent rows the folds speak of, at least one per environment."""
        n = self.sample.distinct
        if self.groups is None:
            return n
        # rows without weight are none
        present = numpy(self.sample.weights > 0)
        losses = row_losses(self.sample, self.folds)[present, int(self.folds.mean.argmax())]
        # a row that no fold tested has the mean loss of the others
        losses = np.where(np.isfinite(losses), losses, np.nanmean(losses))
        effect = design_effect(losses, self.groups[present])
        return max(n / effect, min(n, len(np.unique(self.groups))))


class Verdict(NamedTuple):
    """A place on the grid, and the ``value`` by which candidate costs are compared: less is better.

    A difference of ``unit`` divides the weight of a candidate in a blend by e. ``slope`` is how
    much the value changes with the mean score of the folds there. ``beyond``: the place is the
    last, and smaller deltas should be tried.
    """

    place: int
    value: float
    unit: float
    slope: float = 1.0
    beyond: bool = False


Rule = Callable[[Evidence], Verdict]


def minimum(evidence: Evidence) -> Verdict:
    """The delta of the best mean score; of equal ones the largest."""
    return _scored(evidence, int(evidence.folds.mean.argmax()))


def one_standard_error(evidence: Evidence) -> Verdict:
    """The largest delta whose mean score is within one standard error of the best."""
    mean, se = evidence.folds.mean, evidence.folds.se
    best = int(mean.argmax())
    return _scored(evidence, int(np.flatnonzero(mean >= mean[best] - se[best])[0]))


def within_tolerance(evidence: Evidence) -> Verdict:
    """The largest delta whose mean score is below the best by at most a share ``tolerance`` of it.

    Costs are compared at their best scores, so that the tolerance moves delta only.
    """
    best, mean = minimum(evidence), evidence.folds.mean
    enough = mean >= mean.max() - evidence.tolerance * abs(mean.max())
    return best._replace(place=int(enough.argmax()))


def _scored(evidence: Evidence, place: int) -> Verdict:
    return Verdict(place, -float(evidence.folds.mean[place]), float(evidence.folds.se[place]))


def profile(evidence: Evidence) -> Verdict:
    """The least delta whose radius is at least ``PROFILE_SHARE`` times the profile's median."""
    if not evidence.cost.is_norm:
        raise ValueError(f"rule='profile' needs a cost that is a norm, not {evidence.cost!r}.")
    enough = evidence.radius >= PROFILE_SHARE * profile_median(evidence)
    # from the largest delta down, the last before the condition first fails
    place = max(0, int(np.argmin(enough)) - 1) if not enough.all() else len(enough) - 1
    return _scored(evidence, place)


def worst(evidence: Evidence) -> Verdict:
    """The delta nearest to that of "auto" with nearly the least loss in the worst environment.

    Losses are moved to their mean as far as they are noise, and nearly is within one standard
    error: the worst of few environments is worst by chance too.
    """
    if evidence.groups is None:
        raise ValueError("rule='worst' needs the environments of the rows: fit(X, y, groups=...).")
    environments = environment_losses(evidence.sample, evidence.folds, evidence.groups)
    values = environments.shrunken.max(axis=0)
    best, start = int(values.argmin()), smoothed(evidence).place
    error = environments.errors[environments.losses[:, best].argmax(), best]
    way = np.arange(start, best, 1 if best > start else -1)
    enough = way[values[way] <= values[best] + error]
    spread = float(environments.losses[:, best].std() / np.sqrt(len(environments.names)))
    return Verdict(int(enough[0]) if len(enough) else best, float(values[best]), spread)


def smoothed(evidence: Evidence) -> Verdict:
    r"""The minimiser of :math:`n\log L_h(\delta) + 2\log^2(R/(0.35\,P))`.

    L_h is the out-of-fold loss with margins smoothed towards a Gaussian of equal mean and
    variance, by h = min(1, 40/n): at small n the rare large errors that decide are missing from
    the folds. R is the radius, P the profile's median: a log-normal prior that the first term
    outweighs as n grows. Margins far out count as on a fence; rows far out too, and the less the
    farther they are. n is the number of distinct
    rows; where folds leave out environments it is divided by their ``design_effect``, because rows
    of one environment tell the same; where folds of rows chose before, those of environments move
    their choice, most of the way, where the mean loss of environments falls by more than ``GAIN``
    of it. With a scorer of the user's, or a cost that is no norm (and
    so has no profile), it is the best mean score. Where the folds say that labels have no noise,
    it is the least delta.
    """
    if not (evidence.own_loss and evidence.cost.is_norm):
        return minimum(evidence)
    values = criterion(evidence)
    place = int(values.argmin())
    # d(n log L) = (n/L) dL
    loss = max(-float(evidence.folds.mean[place]), float(np.finfo(float).tiny))
    slope = evidence.information / loss
    verdict = Verdict(place, float(values[place]), 1.0, slope)
    by_rows, groups = evidence.by_rows, evidence.groups
    if by_rows is not None and groups is not None:
        # few environments are few data: they move the choice only where it clearly gains
        losses = environment_losses(evidence.sample, evidence.folds, groups).losses.mean(axis=0)
        way = WAY if losses[place] < (1 - GAIN) * losses[by_rows] else 0.0
        return verdict._replace(place=int(np.round(by_rows + way * (place - by_rows))))
    if labels_without_noise(evidence):
        return verdict._replace(place=len(values) - 1, beyond=True)
    return verdict


def criterion(evidence: Evidence) -> Array:
    """Return the criterion that ``smoothed`` minimises, one value per delta."""
    n = evidence.information
    noise = np.maximum(PRIOR_SHARE * profile_median(evidence), np.finfo(float).tiny)
    prior = np.log(np.maximum(evidence.radius, np.finfo(float).tiny) / noise) ** 2
    loss, flat = smoothed_loss(evidence, n)
    # constant targets leave no loss but rounding: then the prior decides
    least = max(np.finfo(float).eps * flat, np.finfo(float).tiny)
    return n * np.log(np.maximum(loss, least)) + PRIOR_WEIGHT * prior


def labels_without_noise(evidence: Evidence) -> bool:
    r"""Whether the margins of tested rows leave no wrong ones to expect, and grow as delta falls.

    At the least delta no tested row may be wrong, and the least margin must be the largest of the
    path. Below the lower quartile q the margins have an exponential tail of mean excess s: it
    expects the share :math:`e^{-q/s}/4` of wrong rows.
    """
    loss, folds = evidence.sample.loss, evidence.folds
    if loss.task != "classification" or loss.probability(np.zeros(1)) is None:
        return False
    for k, y in enumerate(evidence.sample.ys):
        rows, z, share = folds.entries(k, evidence.sample.weights)
        margins, pi = numpy(z * y[rows, None]), numpy(share)
        least = margins[pi > 0].min(axis=0)
        if least[-1] <= 0 or least[-1] < least.max():
            return False
        q = weighted_quantile(margins[:, -1:], pi, TAIL)[0]
        below = pi * (margins[:, -1] <= q)
        s = below @ (q - margins[:, -1]) / below.sum()
        if TAIL * np.exp(-q / max(s, np.finfo(float).tiny)) > NO_WRONG_ROWS:
            return False
    return True


RULES: dict[str, Rule] = {
    "auto": smoothed,
    "min": minimum,
    "1se": one_standard_error,
    "profile": profile,
    "smoothed": smoothed,
    "tolerance": within_tolerance,
    "worst": worst,
}


def by_margins(rule: Any, costs: list[Cost]) -> bool:
    """Whether a rule judges these costs by the margins of tested rows, not by the mean score."""
    return resolve(rule) is smoothed and all(cost.is_norm for cost in costs)


def resolve(rule: Any) -> Rule:
    """Return the rule of a name."""
    if not (isinstance(rule, str) and rule in RULES):
        raise ValueError(f"unknown rule={rule!r}; known: {', '.join(RULES)}.")
    return RULES[rule]


def smoothed_loss(evidence: Evidence, n: float) -> tuple[Array, float]:
    """Return L_h for every delta, and the loss of the best constant as its unit.

    L_h is the mean loss at margins mu + sqrt(1 - h^2)(m - mu) + h s N(0, 1), by quadrature, mu and
    s the mean and deviation of the margins m. Margins are fenced: one row far out must not decide
    on delta. A row at k times its fence counts 1/k, with its score on the fence about the median:
    models fitted to such rows say nothing about others.
    """
    sample, loss = evidence.sample, evidence.sample.loss
    h = min(1.0, SMOOTHING / n) if loss.task == "classification" else 0.0
    nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
    ball, flat, losses = Ball(evidence.cost, 0.0, evidence.order), [], []
    for k, target in enumerate(sample.ys):
        flat.append(sample.problem(target, ball).constant[1])
        rows, z, share = evidence.folds.entries(k, sample.weights)
        inside = sample.fence[1][rows]
        if inside.min() < 1:
            c = weighted_quantile(z, share, 0.5)
            z, share = c + inside[:, None] * (z - c), share * inside / (share @ inside)
        y = target[rows, None]
        if h == 0:
            losses.append(numpy(share @ loss.value(z, y)))
            continue
        margin = fenced(z * y, share)
        mu = share @ margin
        s = (share @ (margin - mu) ** 2) ** 0.5
        centre = mu + np.sqrt(1 - h**2) * (margin - mu)
        at_nodes = [numpy(share @ loss.value((centre + h * s * float(x)) * y, y)) for x in nodes]
        losses.append(mass / mass.sum() @ np.stack(at_nodes))
    return np.mean(losses, axis=0), float(np.mean(flat))


def profile_median(evidence: Evidence) -> Array:
    r"""Return, for each delta, the median radius at which noise alone moves the coefficients.

    It is the median of :math:`\|\frac1n \sum_i \xi_i a_i (x_i - \bar x)\|` over standard normal
    multipliers, :math:`a_i = \ell'(z_i)` at out-of-fold scores, over the Lipschitz constant; at
    order 2 over the root mean square of :math:`\ell'` at the best constant. n is ``information``:
    rows of one environment that tell the same average no noise away. Rows that no fold tested do
    not count, and those far out count as on a fence.
    """
    sample, loss, radii = evidence.sample, evidence.sample.loss, []
    norms = _euclidean_norms if evidence.cost.euclidean else _drawn_norms
    for k, y in enumerate(sample.ys):
        unit = loss.lipschitz
        if evidence.order == 2:
            b = loss.constant(y, sample.weights) if sample.fit_intercept else 0.0
            a = loss.derivative(full(len(y), b, y), y)
            unit = max(float(sample.weights @ a**2) ** 0.5, np.finfo(float).tiny)
        rows, z, share = evidence.folds.entries(k, sample.weights)
        square = share[:, None] * loss.derivative(z, y[rows, None]) ** 2
        n, xp = len(sample.weights), namespace(square)
        D = xp.stack([xp.bincount(rows, column, minlength=n) for column in square.T], axis=1)
        D *= sample.fence[1][:, None] ** 2
        radii.append(norms(evidence, D) / unit)
    return np.mean(radii, axis=0) / np.sqrt(evidence.information)


def _euclidean_norms(evidence: Evidence, D: Array) -> Array:
    """Return the median of |N(0, S)|, S = sum D (z - c)(z - c)', for each column of D (n, m).

    It needs the trace of S and that of S^2 only. The second, relative to the square of the first,
    varies slowly with delta: it is found at ``KNOTS`` deltas and interpolated.
    """
    sample, m = evidence.sample, D.shape[1]
    center = sample.fence[0] if sample.fit_intercept else None
    design = Design(sample.X, evidence.cost.factor(), center)
    trace = numpy(design.squared_norms() @ D)
    knots = np.unique(np.linspace(0, m - 1, KNOTS).round().astype(int))
    # divided before it is squared: residuals of an interpolated target are tiny
    unit = np.maximum(trace, np.finfo(float).tiny)
    squares = design.gram_squares(D[:, knots] / beside(unit[knots], D))
    share = np.interp(np.arange(m), knots, squares)
    # chi-square of equal mean and variance, by Wilson and Hilferty
    return np.asarray(np.sqrt(trace * (1 - 2 * share / 9) ** 3))


def _drawn_norms(evidence: Evidence, D: Array) -> Array:
    """Return the same under another norm, from draws."""
    sample = evidence.sample
    xi = np.random.default_rng(0).standard_normal((len(sample.weights), DRAWS))
    design = Design(sample.X, center=sample.fence[0] if sample.fit_intercept else None)
    pulls = (design.adjoint(xi * np.sqrt(column)[:, None]) for column in D.T)
    return np.array([np.median(evidence.cost.norm(pull.T)) for pull in pulls])


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
    def shrunken(self) -> Array:
        """The losses (G, m) moved to their mean by the share of their spread that is noise."""
        mean, noise = self.losses.mean(axis=0), self.errors**2
        spread = ((self.losses - mean) ** 2).sum(axis=0) / max(1, len(self.losses) - 1)
        between = np.maximum(spread - noise.mean(axis=0), 0.0)
        share = between / np.maximum(between + noise, np.finfo(float).tiny)
        return np.asarray(mean + share * (self.losses - mean))


def environment_losses(sample: Sample, folds: FoldScores, groups: Array) -> EnvironmentLosses:
    """Return what the folds say about every group of rows; weights have no part in the errors."""
    losses, weights = row_losses(sample, folds), numpy(sample.weights)
    seen = np.flatnonzero((weights > 0) & np.isfinite(losses[:, 0]))
    names, code, counts = np.unique(groups[seen], return_inverse=True, return_counts=True)
    losses, weights = losses[seen], weights[seen]

    def means(values: Array, share: Array) -> Array:
        total = np.zeros((len(names), values.shape[1]))
        np.add.at(total, code, share[:, None] * values)
        return np.asarray(total / np.bincount(code, share)[:, None])

    even = np.ones(len(seen))
    variance = means((losses - means(losses, even)[code]) ** 2, even)
    return EnvironmentLosses(
        names, counts, means(losses, weights), np.sqrt(variance / counts[:, None])
    )


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


def row_losses(sample: Sample, folds: FoldScores) -> Array:
    """Return the out-of-fold losses (n, m) of rows, over their folds and target vectors.

    They are NaN for a row that no fold tested.
    """
    rows = numpy(folds.tested[0])
    total = np.zeros((len(sample.weights), len(folds.mean)))
    for k, y in enumerate(sample.ys):
        z = folds.entries(k, sample.weights)[1]
        np.add.at(total, rows, numpy(sample.loss.value(z, pick(y, rows)[:, None])))
    times = np.bincount(rows, minlength=len(total)).astype(float)
    times[times == 0] = np.nan
    return total / (len(sample.ys) * times[:, None])


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
    z = []
    for rows, scores in zip(folds.rows, folds.z, strict=True):
        # the cross-entropy is log(1 + e^-m) of the margin m of the own class
        entropy, xp = sample.loss.value(scores[0], pick(y, rows)[:, None]), namespace(scores)
        entropy = xp.maximum(entropy, np.finfo(float).tiny)
        z.append(-(entropy + xp.log(-xp.expm1(-entropy)))[None])
    _, risk = sample.problem(y, sample.ball(Norm(2), 0.0, 1)).constant
    view = replace(sample, ys=[full(len(y), 1.0, y)], loss=TrueClass(K, risk))
    return view, replace(folds, z=z)
