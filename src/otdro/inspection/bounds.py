r"""Drift from below: what any plan that moves one sample onto another must pay at least.

With c = distance^p, the masses of each class moved within it and the classes weighted by share:

* mean: :math:`\|\bar u - \bar x\|^p`;
* score: :math:`W_p(v'x, v'u)^p / \|v\|_*^p` for every v, by sorting; v = beta is what a model sees;
* Gelbrich, for p = 2 and a Euclidean cost: the squared distance of the means plus
  :math:`\operatorname{tr}(A + B - 2(A^{1/2} B A^{1/2})^{1/2})` of the whitened covariances.

None of them suffers from dimension, as the transport cost of two samples does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Cost
from .pair import MatchedSamples

Array = NDArray[Any]


def lower_bounds(
    samples: MatchedSamples, cost: Cost, order: int, vectors: Array | None
) -> dict[str, float | None]:
    """Return the three bounds; None where one does not apply."""
    gelbrich = order == 2 and cost.euclidean
    return {
        "mean": mean_bound(samples, cost, order),
        "gelbrich": gelbrich_bound(samples, cost) if gelbrich else None,
        "score": None if vectors is None else score_bound(samples, cost, order, vectors),
    }


def mean_bound(samples: MatchedSamples, cost: Cost, order: int) -> float:
    """Return the mean over classes of ||mean difference||^p."""
    return sum(
        share * float(cost.norm(b @ V - a @ U)) ** order
        for share, (U, a), (V, b) in samples.by_class()
    )


def gelbrich_bound(samples: MatchedSamples, cost: Cost) -> float:
    """Return the mean over classes of the Gelbrich bound."""
    total = 0.0
    for share, (U, a), (V, b) in samples.by_class():
        m, A = _moments(cost.transform(U), a)
        n, B = _moments(cost.transform(V), b)
        # tr (A^1/2 B A^1/2)^1/2 is the sum of the singular values of A^1/2 B^1/2
        joint = np.linalg.svd(_root(A) @ _root(B), compute_uv=False).sum()
        spread = float(np.trace(A) + np.trace(B) - 2 * joint)
        total += share * (float(np.sum((n - m) ** 2)) + max(spread, 0.0))
    return total


def _moments(Z: Array, mass: Array) -> tuple[Array, Array]:
    """Return the mean and the covariance (over the masses, no correction) of rows."""
    center = mass @ Z
    half = Z - center
    half *= np.sqrt(mass)[:, None]
    return center, half.T @ half


def _root(A: Array) -> Array:
    values, vectors = np.linalg.eigh(A)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def score_bound(samples: MatchedSamples, cost: Cost, order: int, vectors: Array) -> float:
    """Return the largest bound from the scores along the given vectors (k, d)."""
    norms = cost.dual_norm(vectors)
    classes = list(samples.by_class())
    best = 0.0
    for v, norm in zip(vectors[norms > 0], norms[norms > 0], strict=True):
        lines = (s * line_distance(U @ v, a, V @ v, b, order) for s, (U, a), (V, b) in classes)
        best = max(best, sum(lines) / float(norm) ** order)
    return best


def line_distance(u: Array, a: Array, v: Array, b: Array, order: int) -> float:
    """Return W_p^p of two weighted samples of numbers: the quantiles are matched."""
    u, ends_u = _quantiles(u, a)
    v, ends_v = _quantiles(v, b)
    ends = np.concatenate([ends_u, ends_v])
    ends.sort(kind="stable")
    step = np.diff(ends, prepend=0.0)
    i = np.minimum(np.searchsorted(ends_u, ends, side="left"), len(u) - 1)
    j = np.minimum(np.searchsorted(ends_v, ends, side="left"), len(v) - 1)
    return float(step @ np.abs(u[i] - v[j]) ** order)


def _quantiles(u: Array, mass: Array) -> tuple[Array, Array]:
    """Return the sorted values and the cumulative masses at which each ends; the last is 1."""
    order = np.argsort(u, kind="stable")
    ends = np.cumsum(mass[order])
    ends /= ends[-1]
    return u[order], ends


def model_vectors(coef: Array, classes: Any) -> Array:
    """Return the directions a model sees: beta, or the differences of its classes' rows.

    Of many classes only those to the mean row are taken, one per class.
    """
    if classes is None:
        return coef
    K = len(coef)
    if K <= MANY:
        first, second = np.triu_indices(K, 1)
        return coef[first] - coef[second]
    return coef - coef.mean(axis=0)


#: Classes up to which all pairs of them are looked at.
MANY = 10
