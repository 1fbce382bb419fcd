"""Rules that choose delta from the folds: each maps the evidence to a place on the grid.

To add a rule, write a function from ``Evidence`` to ``Verdict`` and name it in ``RULES``. Below the
rules are their parts: the smoothed out-of-fold loss, and the radius at which noise alone moves the
coefficients, which is the unit of the prior for delta.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside, full, namespace, numpy
from ..costs import Cost
from ..design import Design
from ..fences import fenced, weighted_quantile
from ..problem import Ball, Sample
from .evidence import (
    BY_CHANCE,
    UNLIKE,
    Corrections,
    Evidence,
    environment_losses,
    information,
    radius,
)

Array = NDArray[Any]

#: Multiple of the profile's median that "profile" takes.
PROFILE_SHARE = 0.4
#: Multiple of the profile's median about which "smoothed" has its prior.
PRIOR_SHARE = 0.35
#: Precision of that prior, in the logarithm of the radius.
PRIOR_WEIGHT = 2.0
#: A loss this small, relative to the best constant's, is none.
NO_LOSS = 1e-12
#: The share of the mean loss of environments that their folds must promise to gain.
GAIN = 0.1
#: The share of the way, in the logarithm of delta, that is then taken.
WAY = 0.75
#: The share of the tested rows, those of the least margins, that say how far margins fall.
TAIL = 0.25
#: The share of wrong rows below which labels count as being without noise. On tables of rules
#: without noise the tail expects less from 50 rows on; on digits, the cleanest real ones, more.
NO_WRONG_ROWS = 1 / 2_000
#: The difference of the criterion of "smoothed" that divides a weight in a blend by e.
TEMPERATURE = 1.0
#: Rows up to which folds made from an int are repeated: their noise decides there.
REPEAT_UP_TO = 120
#: How often they are repeated.
REPEATS = 3
#: Distinct rows up to which "smoothed" replaces the out-of-fold margins by a Gaussian altogether.
SMOOTHING = 40
#: Nodes of the quadrature over that Gaussian.
NODES = 15
#: A share h of the Gaussian for which three nodes do.
HARDLY_SMOOTHED = 0.01
#: Draws behind the profile of norms that are not Euclidean.
DRAWS = 200
#: Deltas at which tr S^2 is found.
KNOTS = 5
#: Parts in which the draws are looked at, so that wide rows fit in memory.
DRAWN_PARTS = 10


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
    enough = radius(evidence) >= PROFILE_SHARE * profile_median(evidence)
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
    of one environment tell the same; where folds of rows chose before, ``moved_by_environments``
    decides. With a scorer of the user's, or a cost that is no norm (and
    so has no profile), it is the best mean score. Where the folds say that labels have no noise,
    it is the least delta.
    """
    if not (evidence.own_loss and evidence.cost.is_norm):
        return minimum(evidence)
    values = criterion(evidence)
    place = int(values.argmin())
    # d(n log L) = (n/L) dL
    loss = max(-float(evidence.folds.mean[place]), float(np.finfo(float).tiny))
    slope = float(information(evidence)) / loss
    verdict = Verdict(place, float(values[place]), TEMPERATURE, slope)
    if evidence.by_rows is not None and evidence.groups is not None:
        place = moved_by_environments(evidence, evidence.groups, evidence.by_rows, place)
        return verdict._replace(place=place)
    if labels_without_noise(evidence):
        return verdict._replace(place=len(values) - 1, beyond=True)
    return verdict


def moved_by_environments(evidence: Evidence, groups: Array, by_rows: int, place: int) -> int:
    """Return where to go from the choice of folds of rows to that of folds of environments.

    Few environments are few data: their folds are followed, most of the way, where the mean loss
    of environments falls by more than ``GAIN`` of it.
    """
    losses = environment_losses(evidence.sample, evidence.folds, groups).losses.mean(axis=0)
    if losses[place] >= (1 - GAIN) * losses[by_rows]:
        return by_rows
    return int(np.round(by_rows + WAY * (place - by_rows)))


def criterion(evidence: Evidence) -> Array:
    """Return the criterion that ``smoothed`` minimises, one value per delta."""
    n = information(evidence)
    noise = np.maximum(PRIOR_SHARE * profile_median(evidence), np.finfo(float).tiny)
    prior = np.log(np.maximum(radius(evidence), np.finfo(float).tiny) / noise) ** 2
    loss, flat = smoothed_loss(evidence, n)
    # constant targets leave no loss at all: then the prior decides
    least = max(NO_LOSS * flat, np.finfo(float).tiny)
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
    """Return L_h for every delta, and the loss of the best constant as its unit."""
    sample, losses = evidence.sample, []
    h = min(1.0, SMOOTHING / n) if sample.loss.task == "classification" else 0.0
    ball = Ball(evidence.cost, 0.0, evidence.order)
    flat = [sample.problem(y, ball).constant[1] for y in sample.ys]
    made = _corrections(evidence, n)
    for k, constant in enumerate(flat):
        found = _out_of_fold(evidence, k, h)
        if made is not None:
            share = made.share(n, h, float(found.min()) / max(constant, np.finfo(float).tiny))
            shift = made.mean(k, evidence.folds.shares(sample.weights))
            found = _out_of_fold(evidence, k, h, share * shift)
        losses.append(found)
    return np.mean(losses, axis=0), float(np.mean(flat))


def _corrections(evidence: Evidence, n: float) -> Corrections | None:
    """Return what rows without labels say, if they differ from tested ones by no more than chance.

    To all targets: a class that they are like is no reason to trust them.
    """
    folds, sample = evidence.folds, evidence.sample
    made = folds.corrections
    if made is None:
        return None
    shares = folds.shares(sample.weights)
    for k in range(len(sample.ys)):
        _, z, weights = folds.entries(k, sample.weights)
        if made.errors(sample.loss, made.mean(k, shares), z, weights, n) > BY_CHANCE:
            warnings.warn(UNLIKE, UserWarning, stacklevel=2)
            return None
    return made


def _out_of_fold(evidence: Evidence, k: int, h: float, shift: Array | None = None) -> Array:
    """Return the out-of-fold loss of the sample for the target k, smoothed by h, at every delta.

    ``shift`` (2, m) is added to the mean and the mean square of the margins. A row at k times its
    fence counts 1/k, with its score on the fence about the median: models fitted to such rows say
    nothing about others.
    """
    sample, folds, losses = evidence.sample, evidence.folds, []
    for columns in folds.blocks():
        rows, z, share = folds.entries(k, sample.weights, columns)
        inside = sample.fence[1][rows]
        if inside.min() < 1:
            c = weighted_quantile(z, share, 0.5)
            z, share = c + inside[:, None] * (z - c), share * inside / (share @ inside)
        more = None if shift is None else beside(shift[:, columns], z)
        losses.append(_smoothed(sample, z, sample.ys[k][rows, None], share, h, more))
    return np.concatenate(losses)


def _smoothed(
    sample: Sample, z: Array, y: Array, share: Array, h: float, correction: Array | None
) -> Array:
    """Return the mean loss at margins mu + sqrt(1 - h^2)(m - mu) + h s N(0, 1), by quadrature.

    The margins are fenced: one row far out must not decide on delta. A ``correction`` of their
    mean and mean square moves and stretches them first, to at least half of their deviation.
    """
    loss = sample.loss
    if h == 0:
        return numpy(share @ loss.value(z, y))
    margin = fenced(z * y, share)
    mu = share @ margin
    s = (share @ (margin - mu) ** 2) ** 0.5
    if correction is not None:
        xp, at = namespace(s), mu + correction[0]
        square = mu**2 + s**2 + correction[1] - at**2
        spread = xp.maximum(square, s**2 / 4) ** 0.5
        margin = at + spread / xp.where(s > 0, s, 1.0) * (margin - mu)
        mu, s = at, spread
    # the error of the quadrature is of order h^(2 nodes)
    nodes, mass = np.polynomial.hermite_e.hermegauss(NODES if h > HARDLY_SMOOTHED else 3)
    centre = mu + np.sqrt(1 - h**2) * (margin - mu)
    return sum(
        w * numpy(share @ loss.value((centre + h * s * float(x)) * y, y))
        for x, w in zip(nodes, mass / mass.sum(), strict=True)
    )


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
        radii.append(norms(evidence, k) / unit)
    return np.mean(radii, axis=0) / np.sqrt(information(evidence))


def _squares(evidence: Evidence, k: int, columns: slice) -> Array:
    """Return the weights a^2 (n, m) of the outer products of rows, on the fence, at some deltas."""
    sample = evidence.sample
    rows, z, share = evidence.folds.entries(k, sample.weights, columns)
    a = sample.loss.derivative(z, sample.ys[k][rows, None])
    square = share[:, None] * a**2
    n, xp = len(sample.weights), namespace(square)
    D = xp.stack([xp.bincount(rows, column, minlength=n) for column in square.T], axis=1)
    D *= sample.fence[1][:, None] ** 2
    return D


def _euclidean_norms(evidence: Evidence, k: int) -> Array:
    """Return the median of |N(0, S)|, S = sum D (z - c)(z - c)', at every delta.

    It needs the trace of S and that of S^2 only. The second, relative to the square of the first,
    varies slowly with delta: it is found at ``KNOTS`` deltas and interpolated.
    """
    sample, m = evidence.sample, len(evidence.deltas)
    center = sample.fence[0] if sample.fit_intercept else None
    design = Design(sample.X, evidence.cost.factor(), center)
    length, trace, shares = design.squared_norms(), np.zeros(m), {}
    knots = np.unique(np.linspace(0, m - 1, KNOTS).round().astype(int))
    for columns in evidence.folds.blocks():
        D = _squares(evidence, k, columns)
        trace[columns] = numpy(length @ D)
        for j in knots[(columns.start <= knots) & (knots < columns.stop)]:
            # divided before it is squared: residuals of an interpolated target are tiny
            unit = max(trace[j], np.finfo(float).tiny)
            shares[j] = design.gram_square(D[:, j - columns.start] / unit)
    share = np.interp(np.arange(m), knots, list(shares.values()))
    # chi-square of equal mean and variance, by Wilson and Hilferty
    median: Array = np.sqrt(trace * (1 - 2 * share / 9) ** 3)
    return median


def _drawn_norms(evidence: Evidence, k: int) -> Array:
    """Return the same under another norm, from draws."""
    sample = evidence.sample
    xi = np.random.default_rng(0).standard_normal((len(sample.weights), DRAWS))
    design = Design(sample.X, center=sample.fence[0] if sample.fit_intercept else None)
    draws = [np.ascontiguousarray(part) for part in np.array_split(xi, DRAWN_PARTS, axis=1)]

    def lengths(root: Array) -> Array:
        pulls = (design.adjoint(some * root) for some in draws)
        return np.concatenate([evidence.cost.norm(pull.T) for pull in pulls])

    found = [
        np.median(lengths(np.sqrt(column)[:, None]))
        for columns in evidence.folds.blocks()
        for column in _squares(evidence, k, columns).T
    ]
    return np.array(found)
