"""Rules that choose delta from the folds: each maps the evidence to a place on the grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..design import Design
from .folds import FoldScores
from .grid import Sample

Array = NDArray[Any]

#: Multiple of the profile's median that the rule "profile" takes.
PROFILE_SHARE = 0.4


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a rule may look at: the sample, one cost with its deltas (descending), and its folds."""

    sample: Sample
    cost: Cost
    order: int
    deltas: Array
    folds: FoldScores
    own_loss: bool


Rule = Callable[[Evidence], int]


def minimum(evidence: Evidence) -> int:
    """The delta of the best mean score; of equal ones the largest."""
    return int(evidence.folds.mean.argmax())


def one_standard_error(evidence: Evidence) -> int:
    """The largest delta whose mean score is within one standard error of the best."""
    best = minimum(evidence)
    mean, se = evidence.folds.mean, evidence.folds.se
    return int(np.flatnonzero(mean >= mean[best] - se[best])[0])


def profile(evidence: Evidence) -> int:
    """The least delta that is at least ``PROFILE_SHARE`` times the profile's median there."""
    enough = evidence.deltas >= PROFILE_SHARE * profile_median(evidence)
    # from the largest delta down, the last before the condition first fails
    return max(0, int(np.argmin(enough)) - 1) if not enough.all() else len(enough) - 1


def profile_median(evidence: Evidence) -> Array:
    r"""Return, for each delta, the median radius at which noise alone moves the coefficients.

    It is the median of :math:`\|\sum_i \pi_i \xi_i a_i (x_i - \bar x)\|` over standard normal
    multipliers, :math:`a_i = \ell'(z_i)` at out-of-fold scores; at order 2 its square over
    :math:`E a^2`. Rows that no fold tested do not count.
    """
    sample = evidence.sample
    found = []
    for k, y in enumerate(sample.ys):
        z = evidence.folds.z[k]
        tested = np.isfinite(z[:, 0])
        rows = sample.rows(tested) if not tested.all() else sample
        a = sample.loss.derivative(z[tested], y[tested][:, None])
        noise = _median_norms(rows, evidence.cost, a)
        if evidence.order == 2:
            square = rows.weights @ a**2
            noise = noise**2 / np.maximum(square, np.finfo(float).tiny)
        else:
            noise = noise / sample.loss.lipschitz
        found.append(noise)
    return np.mean(found, axis=0)


def _median_norms(sample: Sample, cost: Cost, a: Array) -> Array:
    center = Design(sample.X).adjoint(sample.weights) if sample.fit_intercept else None
    spread = sample.weights[:, None] * a
    if not cost.euclidean:
        xi = np.random.default_rng(0).standard_normal((200, len(a)))
        design = Design(sample.X, center=center)
        draws = [cost.norm(design.adjoint(xi.T * column[:, None]).T) for column in spread.T]
        return np.median(np.array(draws), axis=1)
    design = Design(sample.X, cost.factor(), center)
    return np.array([_median_norm(design.gram(column**2)) for column in spread.T])


def _median_norm(S: Array) -> float:
    """Return the median of |N(0, S)|: a chi-square of equal mean and variance, by Wilson-Hilferty."""
    trace, square = float(np.trace(S)), float(np.sum(S * S))
    if trace == 0:
        return 0.0
    freedom = trace**2 / square
    return float(np.sqrt(trace * (1 - 2 / (9 * freedom)) ** 3))


RULES: dict[str, Rule] = {
    "auto": profile,
    "min": minimum,
    "1se": one_standard_error,
    "profile": profile,
}


def resolve(rule: Any) -> Rule:
    """Return the rule of a name."""
    if rule not in RULES:
        raise ValueError(f"unknown rule={rule!r}; known: {', '.join(RULES)}.")
    return RULES[rule]
