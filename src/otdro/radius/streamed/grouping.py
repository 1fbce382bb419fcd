"""Groups of rows that come in chunks: folds of whole groups, and what each of them loses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...solvers.streamed import Folds, GroupSums
from ..environments import EnvironmentLosses, Environments, effect_of_sums
from ..splitting import at_most
from .fits import Fits
from .task import Task

Array = NDArray[Any]


def group_folds(folds: Folds, names: Array, counts: Array) -> Folds:
    """Return folds that leave whole groups out, with like numbers of rows of every class.

    ``counts`` (G, K) are the rows of each group by class. The largest groups come first, each into
    the fold that has the least of its classes so far; the seed decides between equal groups.
    """
    if len(names) < 2:
        raise ValueError(
            f"folds of whole groups need two groups, got one: {names[0]!r}. Leave groups out, or "
            "give a number as delta."
        )
    count = at_most(folds.count, len(names), "the sample", "group")
    share = counts / np.maximum(counts.sum(axis=0), 1)
    fold_of, load = np.zeros(len(names), dtype=int), np.zeros((count, counts.shape[1]))
    shuffled = np.random.default_rng(folds.seed).permutation(len(names))
    order = shuffled[np.argsort(-counts[shuffled].sum(axis=1), kind="stable")]
    for g in order:
        # sum over folds of load^2 grows by 2 load'share + share'share
        growth = load @ share[g]
        fold_of[g] = np.lexsort((load.sum(axis=1), growth.round(12)))[0]
        load[fold_of[g]] += share[g]
    return Folds(count, folds.seed, names, fold_of)


def environments_of(task: Task, found: list[Fits]) -> list[Environments | None]:
    """Return what the fits of every cost lose in each group, None without groups: one pass."""
    stream = task.stream
    if stream.folds.groups is None:
        return [None] * len(found)
    jobs = [_job(task, one) for one in found]
    sums = stream.chunks.total(*jobs)
    return [_environments(stream.folds.groups, *pair) for pair in zip(sums, found, strict=True)]


def _job(task: Task, one: Fits) -> GroupSums:
    stream, K, m = task.stream, len(one.solved), one.held.shape[1]
    positive = None if K == 1 else np.repeat(np.arange(K), m)
    return GroupSums(stream.blocks, stream.loss, one.in_folds, m, positive)


def _environments(names: Array, sums: dict[str, Any], one: Fits) -> Environments:
    """Return the mean losses of groups with weight, and their design effect."""
    kept = sums["weight"] > 0
    losses = sums["weighted"][kept] / sums["weight"][kept, None]
    rows, place = sums["rows"][kept], int(one.held.mean(axis=0).argmin())
    effect = effect_of_sums(rows, sums["loss"][kept, place], sums["square"][kept, place])
    return Environments(EnvironmentLosses(names[kept], rows.astype(int), losses), effect)
