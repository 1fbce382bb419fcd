"""The out-of-fold loss, with margins smoothed where rows are few."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import beside, namespace, numpy
from ..fences import fenced, weighted_quantile
from ..losses import Loss
from ..problem import Ball, Sample
from ..solvers.base import constant_risk
from .evidence import Evidence
from .unlabelled import BY_CHANCE, UNLIKE, Corrections

Array = NDArray[Any]

#: Distinct rows up to which "smoothed" replaces the out-of-fold margins by a Gaussian altogether.
SMOOTHING = 40
#: Nodes of the quadrature over that Gaussian at most.
NODES = 15
#: Nodes whose error, h^(2 nodes) times a constant below 1, is below rounding by itself.
FEW_NODES = 3
#: A share h of the Gaussian that changes the criterion by n h^2 = 40 h, a hundredth, or less: its
#: mean is enough.
HARDLY_SMOOTHED = 2.5e-4


def smoothed_loss(evidence: Evidence, n: float) -> tuple[Array, float]:
    """Return L_h for every delta, and the loss of the best constant as its unit."""
    sample, losses = evidence.sample, []
    h = min(1.0, SMOOTHING / n) if sample.loss.task == "classification" else 0.0
    ball = Ball(evidence.cost, 0.0, evidence.order)
    flat = [constant_risk(sample.problem(y, ball))[1] for y in sample.ys]
    made = _corrections(evidence, n)
    for k, constant in enumerate(flat):
        found = _out_of_fold(evidence, k, h)
        if evidence.losses is not None:
            # what smoothing changes, from the rows at hand
            found = evidence.losses + found - _out_of_fold(evidence, k, 0.0)
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

    ``shift`` (2, m) is added to the mean and the mean square of the margins.
    """
    sample, folds, found = evidence.sample, evidence.folds, []
    for columns in folds.blocks():
        rows, z, share = folds.entries(k, sample.weights, columns)
        z, share = _on_fence(z, share, sample.fence[1][rows])
        more = None if shift is None else beside(shift[:, columns], z)
        found.append(_smoothed(sample, z, sample.ys[k][rows, None], share, h, more))
    return np.concatenate(found)


def _on_fence(z: Array, share: Array, f: Array) -> tuple[Array, Array]:
    """Return the scores c + f (z - c) of rows on their fence, c the median, and Huber's weights.

    A row at k times the fence counts 1/k: models fitted to such rows say nothing about others.
    """
    if f.min() == 1:
        return z, share
    c = weighted_quantile(z, share, 0.5)
    return c + f[:, None] * (z - c), share * f / (share @ f)


def _smoothed(
    sample: Sample, z: Array, y: Array, share: Array, h: float, correction: Array | None
) -> Array:
    """Return the mean loss at margins mu + sqrt(1 - h^2)(m - mu) + h s N(0, 1), by quadrature.

    The margins are fenced: one row far out must not decide on delta. A ``correction`` of their
    mean and mean square moves and stretches them first.
    """
    if h == 0:
        return numpy(share @ sample.loss.value(z, y))
    margin = fenced(z * y, share)
    mu = share @ margin
    s = (share @ (margin - mu) ** 2) ** 0.5
    if correction is not None:
        at, spread = _corrected(mu, s, correction)
        margin = at + spread / namespace(s).where(s > 0, s, 1.0) * (margin - mu)
        mu, s = at, spread
    nodes, mass = np.polynomial.hermite_e.hermegauss(_nodes(sample.loss, h))
    centre = mu + np.sqrt(1 - h**2) * (margin - mu)
    return sum(
        w * numpy(share @ sample.loss.value((centre + h * s * float(x)) * y, y))
        for x, w in zip(nodes, mass / mass.sum(), strict=True)
    )


def _corrected(mu: Array, s: Array, correction: Array) -> tuple[Array, Array]:
    """Return the mean and deviation of corrected moments, this at least half of what it was."""
    at = mu + correction[0]
    square = mu**2 + s**2 + correction[1] - at**2
    return at, namespace(s).maximum(square, s**2 / 4) ** 0.5


def _nodes(loss: Loss, h: float) -> int:
    """Return how many nodes the quadrature needs: its error is of order h^(2 nodes) if smooth."""
    if h <= HARDLY_SMOOTHED:
        return 1
    if not np.isfinite(loss.smoothness) or h >= 0.5:
        return NODES
    # rounding is met as it is where few nodes do; else two more make up for the constant
    enough = int(np.ceil(np.log(np.finfo(float).eps) / (2 * np.log(h))))
    return enough if enough <= FEW_NODES else min(NODES, 2 + enough)
