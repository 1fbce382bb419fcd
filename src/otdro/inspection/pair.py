"""Two samples whose transport is measured: labels stay, so that class shares are made equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Blocks of rows that every class has at least, if it has as many rows.
LEAST_BLOCKS = 10


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows (n, d), class numbers (n,) (all 0 where labels are unknown), masses with sum 1."""

    rows: Array
    label: Array
    mass: Array

    def part(self, label: int) -> tuple[Array, Array]:
        """Return the rows of a class and their masses, scaled to sum 1."""
        kept = self.label == label
        if kept.all():
            return self.rows, self.mass
        mass = self.mass[kept]
        return self.rows[kept], mass / mass.sum()


@dataclass(frozen=True, eq=False)
class MatchedSamples:
    """Samples of equal class shares, the ``reference`` weighted to those of ``new``."""

    reference: LabelledRows
    new: LabelledRows

    def by_class(self) -> Iterator[tuple[float, tuple[Array, Array], tuple[Array, Array]]]:
        """Yield the share of each class, and its rows and masses in both samples."""
        for label in np.unique(self.new.label):
            share = float(self.new.mass[self.new.label == label].sum())
            yield share, self.reference.part(label), self.new.part(label)

    def subsample(self, size: int, rng: np.random.RandomState) -> MatchedSamples:
        """Return at most ``size`` rows of each sample, drawn at random."""
        one, two = (
            rng.permutation(len(s.mass))[:size] if len(s.mass) > size else slice(None)
            for s in (self.reference, self.new)
        )
        U, V = self.reference, self.new
        return pair(U.rows[one], U.label[one], V.rows[two], V.label[two])

    def block_means(self, size: int, rng: np.random.RandomState) -> MatchedSamples:
        """Return means of random blocks of rows of one class, at most ``size`` per sample.

        They are as exchangeable between the samples as the rows, and keep what all rows say of
        the means. Blocks are small enough that every class has several in both samples.
        """
        samples = (self.reference, self.new)
        fewest = min(int(np.unique(s.label, return_counts=True)[1].min()) for s in samples)
        wanted = -(-max(len(s.mass) for s in samples) // size)
        block = max(1, min(wanted, fewest // LEAST_BLOCKS))
        parts = [_block_means(s, block, rng) for s in samples]
        return pair(*parts[0], *parts[1]).subsample(size, rng)


def _block_means(
    sample: LabelledRows, block: int, rng: np.random.RandomState
) -> tuple[Array, Array]:
    rows, label = [], []
    for c in np.unique(sample.label):
        index = rng.permutation(np.flatnonzero(sample.label == c))
        count = len(index) // block
        kept = sample.rows[index[: count * block]]
        rows.append(kept.reshape(count, block, kept.shape[1]).mean(axis=1))
        label.append(np.full(count, c))
    return np.vstack(rows), np.concatenate(label)


def pair(U: Array, own_u: Array, V: Array, own_v: Array) -> MatchedSamples:
    """Return the samples with the reference weighted to the class shares of the new one.

    Rows of a class that the other sample lacks are left out: no move reaches them.
    """
    common = np.intersect1d(own_u, own_v)
    if len(common) == 0:
        raise ValueError(
            "two samples, or two random parts of the reference, have no class in common: merge "
            "classes of few rows, or leave the labels out."
        )
    kept_u, kept_v = np.isin(own_u, common), np.isin(own_v, common)
    if not kept_u.all():
        U, own_u = U[kept_u], own_u[kept_u]
    if not kept_v.all():
        V, own_v = V[kept_v], own_v[kept_v]
    size = int(max(own_u.max(), own_v.max())) + 1
    counts = np.bincount(own_u, minlength=size)
    share = np.bincount(own_v, minlength=size) / len(own_v)
    mass = share[own_u] / counts[own_u]
    return MatchedSamples(
        LabelledRows(U, own_u, mass), LabelledRows(V, own_v, np.full(len(own_v), 1 / len(own_v)))
    )


def splits(
    U: Array, own: Array, size_new: int, count: int, rng: np.random.RandomState, most: int
) -> Iterator[MatchedSamples]:
    """Yield pairs of disjoint random parts of one sample, the second like a new one in size.

    It has ``size_new`` rows, or half of the sample if that is less; the first has the rest, at
    most ``most``.
    """
    n = len(own)
    second = min(size_new, n // 2)
    for _ in range(count):
        order = rng.permutation(n)
        b, a = order[:second], order[second : second + most]
        yield pair(U[a], own[a], U[b], own[b])
