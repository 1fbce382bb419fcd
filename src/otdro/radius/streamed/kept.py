"""What the rows in memory choose for rows in chunks: their folds, and the price of a label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...solvers import Exact
from ...solvers.streamed import Stream
from ..prices import open_price
from ..selection import choose
from ..splitting import Split, usable
from ..trials import Settings

#: Rows in memory on which a price is chosen at most, evenly spaced.
PRICED_ON = 5_000


def kept_splits(stream: Stream, every: int = 1) -> list[Split]:
    """Return the folds of every such row in memory: those of its training and of its test rows."""
    fold = stream.kept_fold[::every]
    count = stream.folds.count
    return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]


def with_price(stream: Stream, settings: Settings, tol: float, max_iter: int) -> Stream:
    """Return the stream with a price "cv" chosen as a fit in memory to some rows chooses it."""
    name = open_price(stream.sample)
    if name is None:
        return stream
    every = -(-len(stream.rows.y) // PRICED_ON)
    some = np.arange(0, len(stream.rows.y), every)
    sample, splits = stream.sample.rows(some), kept_splits(stream, every)
    if not all(usable(sample, *pair) for pair in splits):
        raise ValueError(
            f"{name}='cv' is chosen on {len(sample.weights)} rows in memory, and a fold of them "
            f"lacks a class: give a number as {name}, or inf."
        )
    groups = None if stream.rows.group is None else stream.rows.group[::every]
    asked = replace(settings, cv=splits, y=settings.y[::every], groups=groups)
    ball = choose(sample, Exact(tol=tol, max_iter=max_iter), asked).ball
    return replace(stream, label_cost=ball.label_cost, target_cost=ball.target_cost)
