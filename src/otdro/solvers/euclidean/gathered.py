"""Batches that several fits ask for at the same time, minimised as one, on a device."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import beside, numpy
from ...design import Design
from ...losses import Loss
from .batch import Batch, Minimum
from .order_one import Start, minimise
from .stack import Stack

Array = NDArray[Any]

#: Entries of the rows of a batch, each problem with its own copy, that are on a device at a time.
ENTRIES = 2**25

#: What ``minimise`` is to the paths of small problems in this thread: fits side by side take turns.
MINIMISE: ContextVar[Callable[..., Minimum]] = ContextVar("MINIMISE", default=minimise)


@dataclass(frozen=True, eq=False)
class Asked:
    """The arguments of ``minimise``: a batch over the same rows, the gaps asked for, a start."""

    batch: Batch
    target: Array
    max_iter: int
    start: Start | None

    @property
    def stackable(self) -> bool:
        """Whether the problems can be stacked with those of other rows."""
        return stackable(self.batch.y, self.batch.loss)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What the problems of one batch have in common."""
        return (repr(self.batch.loss), self.batch.fit_intercept, self.max_iter)

    @property
    def entries(self) -> int:
        """The entries of the rows, one copy for each problem."""
        return len(self.target) * self.batch.design.n * self.batch.design.d


def stackable(y: Array, loss: Loss) -> bool:
    """Whether problems of these targets can be stacked with others: labels, in NumPy."""
    return isinstance(y, np.ndarray) and y.ndim == 1 and loss.task != "regression"


def minimise_together(asked: list[Asked], like: Any) -> list[Minimum]:
    """Return what ``minimise`` finds for each, as one batch where the array ``like`` is.

    The steps of a problem do not depend on its company, so that the answers are the same.
    """
    found: list[Minimum | None] = [None] * len(asked)
    for part in _parts(asked):
        for i, answer in zip(part, minimised([asked[i] for i in part], like), strict=True):
            found[i] = answer
    return [answer for answer in found if answer is not None]


def _parts(asked: list[Asked]) -> list[list[int]]:
    """Return the numbers of those that go into one batch: of one kind, ``ENTRIES`` at most."""
    parts: list[list[int]] = []
    room: dict[tuple[Any, ...], tuple[list[int], int]] = {}
    for i, each in enumerate(asked):
        part, taken = room.get(each.kind, ([], 0))
        if not part or taken + each.entries > ENTRIES:
            part, taken = [], 0
            parts.append(part)
        part.append(i)
        room[each.kind] = (part, taken + each.entries)
    return parts


def minimised(asked: list[Asked], like: Any) -> list[Minimum]:
    """Return the minima of batches of one kind."""
    sizes = [len(each.target) for each in asked]
    target = beside(np.concatenate([each.target for each in asked]), like)
    start = tuple(beside(part, like) for part in _starts(asked))
    found = minimise(_stacked(asked, like), target, asked[0].max_iter, start)
    theta, b, z, slope = (numpy(part) for part in (found.theta, found.b, found.z, found.slope))
    rest = [numpy(part) for part in (found.objective, found.gap, found.n_iter)]
    ends = np.cumsum(sizes)
    answers = []
    for each, end, size in zip(asked, ends.tolist(), sizes, strict=True):
        n, d, own = each.batch.design.n, each.batch.design.d, slice(end - size, end)
        rows = (theta[:d, own], b[own], z[:n, own], slope[:n, own])
        answers.append(Minimum(*rows, *(part[own] for part in rest)))
    return answers


def _stacked(asked: list[Asked], like: Any) -> Batch:
    """Return one batch; rows that only others have get no weight, and columns are zero there."""
    n = max(each.batch.design.n for each in asked)
    d = max(each.batch.design.d for each in asked)
    owner = np.repeat(np.arange(len(asked)), [len(each.target) for each in asked])
    Z, y, weights = np.zeros((len(asked), n, d)), np.ones((n, len(asked))), []
    for k, each in enumerate(asked):
        batch = each.batch
        assert isinstance(batch.design, Design)
        Z[k, : batch.design.n, : batch.design.d] = batch.design.dense()
        y[: batch.design.n, k] = batch.y
        weights.append(np.pad(batch.weights, ((0, n - batch.design.n), (0, 0))))
    owners, first = beside(owner, like), asked[0].batch
    rho = np.concatenate([each.batch.rho for each in asked])
    return Batch(
        Stack(beside(Z, like)[owners]),
        beside(y, like)[:, owners],
        beside(np.concatenate(weights, axis=1), like),
        first.loss,
        beside(rho, like),
        first.fit_intercept,
    )


def _starts(asked: list[Asked]) -> tuple[Array, Array]:
    """Return theta and b of every start; theta = 0 stands for none, as ``minimise`` has it."""
    B, d = sum(len(each.target) for each in asked), max(each.batch.design.d for each in asked)
    theta, b, begin = np.zeros((d, B)), np.zeros(B), 0
    for each in asked:
        own = slice(begin, begin + len(each.target))
        if each.start is not None:
            theta[: each.batch.design.d, own], b[own] = each.start[:2]
        begin = own.stop
    return theta, b
