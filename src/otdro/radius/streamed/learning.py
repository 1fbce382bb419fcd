"""Costs learned from rows in chunks: from their scatter where that is all a learner needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ...costs import Cost, Mahalanobis
from ...design import Design
from ...fences import ROW_FENCE, row_shares, weighted_quantile
from ...metrics import Candidate
from ...solvers.streamed import ScatterSums, Stream
from ..candidates import Candidates
from ..units import in_own_units
from .task import Task

Array = NDArray[Any]


def candidates_of(tried: Candidates) -> list[Candidate]:
    """Return the candidates in the order of their costs."""
    if tried.learned is not None:
        return tried.learned.candidates()
    return [] if tried.learner is None else [Candidate(tried.learner, tried.learner.shrinkage)]


def takes_covariance(candidate: Candidate) -> bool:
    """Whether the covariance of the rows is all that a learner needs."""
    return hasattr(candidate.learner, "of_covariance") and not candidate.needs_labels


def fence_of(stream: Stream, units: Array | None = None) -> tuple[Array, float]:
    """Return the centre of the rows and the distance from it, in units, at which they are held."""
    sample = stream.kept
    X = sample.X if units is None else sample.X / units
    center, _ = row_shares(X, sample.weights)
    distance = np.sqrt(Design(X, center=center).squared_norms())
    fence = ROW_FENCE * float(weighted_quantile(distance[:, None], sample.weights, 0.5)[0])
    return center if units is None else center * units, fence or np.inf


def scatter_job(stream: Stream, units: Array | None = None) -> ScatterSums:
    """Return the job that takes the covariance of the columns in units."""
    center, fence = fence_of(stream, units)
    return ScatterSums(replace(stream.blocks, center=center), fence, units)


def covariances(found: dict[str, Any]) -> list[Array]:
    """Return the covariance outside each fold, and that of all rows last."""
    total = found["second"].sum(axis=0)
    return [_covariance(total - part) for part in found["second"]] + [_covariance(total)]


def _covariance(second: Array) -> Array:
    """Return that of z from the sums of tt', t = (z, 1)."""
    mean = second / max(float(second[-1, -1]), 1.0)
    covariance: Array = mean[:-1, :-1] - np.outer(mean[-1, :-1], mean[-1, :-1])
    return covariance


def from_scatter(task: Task, tried: Candidates, costs: list[Cost], fold: int) -> list[Cost]:
    """Return the costs of the candidates, with the covariance of all training rows where it is
    what a learner needs."""
    units = tried.units
    covariance = task.covariance if units is None else task.covariance_in_units
    if covariance is None:
        return costs
    found = list(costs)
    for c, candidate in enumerate(candidates_of(tried)):
        if takes_covariance(candidate):
            learner = clone(candidate.learner).of_covariance(covariance[fold])
            matrix = learner.shrunk(candidate.shrinkage)
            found[c] = Mahalanobis(matrix if units is None else in_own_units(units, matrix))
    return found
