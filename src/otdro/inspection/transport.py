"""The transport cost of two samples, its noise floor, and how surprising a difference is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from ..worst_case import discrepancy
from .pair import MatchedSamples

Array = NDArray[Any]

#: Permutations behind a p-value: the least one is 1/(PERMUTATIONS + 1).
PERMUTATIONS = 499
#: What the order of a sum changes, relative to it.
ROUNDING = 1e-12


def transport_cost(samples: MatchedSamples, cost: Cost, order: int) -> float:
    """Return D_c of the two samples, exact on their rows."""
    P, Q = samples.reference, samples.new
    return discrepancy((P.rows, P.label, P.mass), (Q.rows, Q.label, Q.mass), cost, order)


def permutation_p_value(samples: MatchedSamples, cost: Cost, rng: np.random.RandomState) -> float:
    """Return the p-value of the energy distance in the cost's distance, by permutations.

    2 E d(x, u) - E d(x, x') - E d(u, u'), the mean over classes by share. Rows are permuted within
    their class, so that a change of class shares alone is no drift; where rows of a class are
    exchangeable the p-value is valid at every size.
    """
    observed = np.zeros(1)
    permuted = np.zeros(PERMUTATIONS)
    for share, (U, _), (V, _) in samples.by_class():
        rows = np.vstack([U, V])
        D = cost.distance(rows, rows)
        contrast = np.concatenate([np.full(len(U), 1 / len(U)), np.full(len(V), -1 / len(V))])
        drawn = np.stack([rng.permutation(contrast) for _ in range(PERMUTATIONS)], axis=1)
        observed += share * _energy(D, contrast[:, None])
        permuted += share * _energy(D, drawn)
    # equal values up to the rounding of their sums are ties, which count against a drift
    ties = observed * (1 - ROUNDING) if observed > 0 else observed
    return float((1 + np.count_nonzero(permuted >= ties)) / (PERMUTATIONS + 1))


def _energy(D: Array, contrast: Array) -> Array:
    """Return -s'Ds of every column s."""
    return -np.einsum("ij,ij->j", contrast, D @ contrast)
