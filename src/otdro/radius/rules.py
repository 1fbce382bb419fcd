"""Rules that choose delta from the folds: each maps the evidence to a place on the grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from .environments import environment_losses
from .evidence import Evidence, information, radius
from .margin_loss import smoothed_loss
from .noise import profile_median

Array = NDArray[Any]

#: Multiple of the profile's median that "profile" takes.
PROFILE_SHARE = 0.4
#: Multiple of the profile's median about which "smoothed" has its prior, and its precision.
PRIOR_SHARE, PRIOR_WEIGHT = 0.35, 2.0
#: A loss this small, relative to the best constant's, is none.
NO_LOSS = 1e-12
#: The difference of the criterion of "smoothed" that divides a weight in a blend by e.
TEMPERATURE = 1.0
#: Rows up to which folds made from an int are repeated, and how often: their noise is the loss.
REPEAT_UP_TO, REPEATS = 120, 3


class Verdict(NamedTuple):
    """A place on the grid, and the ``value`` by which candidate costs are compared: less is better.

    A difference of ``unit`` divides the weight of a candidate in a blend by e. ``slope`` is how
    much the value changes with the mean score of the folds there.
    """

    place: int
    value: float
    unit: float
    slope: float = 1.0


Rule = Callable[[Evidence], Verdict]


def minimum(evidence: Evidence) -> Verdict:
    """The delta of the best mean score; of equal ones the largest."""
    return _scored(evidence, int(evidence.folds.mean.argmax()))


def one_standard_error(evidence: Evidence) -> Verdict:
    """The largest delta whose mean score is within one standard error of the best."""
    mean, se = evidence.folds.mean, evidence.folds.se
    best = int(mean.argmax())
    return _scored(evidence, int(np.flatnonzero(mean >= mean[best] - se[best])[0]))


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
    """The delta of the least loss in the worst environment."""
    if evidence.environments is not None:
        found = evidence.environments.losses
    elif evidence.groups is not None:
        found = environment_losses(evidence.sample, evidence.folds, evidence.groups)
    else:
        raise ValueError("rule='worst' needs the environments of the rows: fit(X, y, groups=...).")
    place = int(found.worst.argmin())
    spread = float(found.losses[:, place].std() / np.sqrt(len(found.names)))
    return Verdict(place, float(found.worst[place]), spread)


def smoothed(evidence: Evidence) -> Verdict:
    r"""The minimiser of :math:`n\log L_h(\delta) + 2\log^2(R/(0.35\,P))`.

    L_h is the out-of-fold loss with margins smoothed towards a Gaussian of equal mean and
    variance, by h = min(1, 40/n): at small n the rare large errors that decide are missing from
    the folds. R is the radius, P the profile's median: a log-normal prior that the first term
    outweighs as n grows. Margins far out count as on a fence; rows far out too, and the less the
    farther they are. n is the number of distinct
    rows; where folds leave out environments it is divided by their ``design_effect``, because rows
    of one environment tell the same. With a scorer of the user's, or a cost that is no norm (and
    so has no profile), it is the best mean score.
    """
    if not (evidence.own_loss and evidence.cost.is_norm):
        return minimum(evidence)
    values = criterion(evidence)
    place = int(values.argmin())
    # d(n log L) = (n/L) dL
    loss = max(-float(evidence.folds.mean[place]), float(np.finfo(float).tiny))
    slope = float(information(evidence)) / loss
    return Verdict(place, float(values[place]), TEMPERATURE, slope)


def criterion(evidence: Evidence) -> Array:
    """Return the criterion that ``smoothed`` minimises, one value per delta."""
    n = information(evidence)
    noise = np.maximum(PRIOR_SHARE * profile_median(evidence), np.finfo(float).tiny)
    prior = np.log(np.maximum(radius(evidence), np.finfo(float).tiny) / noise) ** 2
    loss, flat = smoothed_loss(evidence, n)
    # constant targets leave no loss at all: then the prior decides
    least = max(NO_LOSS * flat, np.finfo(float).tiny)
    return n * np.log(np.maximum(loss, least)) + PRIOR_WEIGHT * prior


RULES: dict[str, Rule] = {
    "auto": smoothed,
    "min": minimum,
    "1se": one_standard_error,
    "profile": profile,
    "smoothed": smoothed,
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
