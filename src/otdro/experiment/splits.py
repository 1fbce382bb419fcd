"""The paper's splits: train, unlabelled and test rows of a data set, from one seed."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

Array = NDArray[Any]

#: Train, unlabelled and test rows of every data set in the paper's table.
SIZES = {
    "BC": (40, 200, 329),
    "BN": (20, 600, 752),
    "QSAR": (80, 500, 475),
    "Magic": (30, 9000, 9990),
    "MB": (30, 5000, 125034),
    "SB": (150, 1500, 2951),
}


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers."""

    train: Array
    unlabelled: Array
    test: Array


def seed_of(base: int, name: str, rep: int) -> int:
    """Return the seed of a replication; it depends on nothing but these three."""
    entropy = [base, zlib.crc32(name.encode()), rep]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def split(y: Array, sizes: tuple[int, int, int], seed: int) -> Split:
    """Draw the rows at random, again until every class has two training rows."""
    rng = np.random.default_rng(seed)
    train, unlabelled, test = sizes
    while True:
        rows = rng.permutation(len(y))
        if min(_counts(y[rows[:train]], np.unique(y))) >= 2:
            start = train + unlabelled
            return Split(rows[:train], rows[train:start], rows[start : start + test])


def folds(y: Array, seed: int | None, most: int = 5) -> StratifiedKFold:
    """Return five folds, or as many as the smallest class has rows."""
    least = min(_counts(y, np.unique(y)))
    return StratifiedKFold(max(2, min(most, least)), shuffle=True, random_state=seed)


def _counts(y: Array, classes: Array) -> list[int]:
    return [int((y == k).sum()) for k in classes]
