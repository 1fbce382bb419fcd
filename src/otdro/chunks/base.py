"""The contract of rows that come in chunks: sums over all of them, one pass at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Bytes of X that are read at a time: large enough for the disk, small beside any memory.
CHUNK_BYTES = 2**25

#: What a job finds in a chunk: named parts that are added up over the chunks.
Sums = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows ``X`` (m, d) with targets ``y`` (m,), the first of them row ``start`` of all rows."""

    number: int
    start: int
    X: Array
    y: Array | None

    @property
    def name(self) -> str:
        """Its number and its rows, for messages."""
        return f"chunk {self.number} (rows {self.start} to {self.start + len(self.X) - 1})"

    def index(self) -> Array:
        """Return the numbers of its rows among all rows."""
        return np.arange(self.start, self.start + len(self.X))

    def require_finite(self) -> None:
        """Refuse NaN and infinite numbers, with the place of the first."""
        # a sum is finite unless an entry is not, or the sum overflows: then look
        if not np.isfinite(self.X.sum(dtype=float)):
            bad = ~np.isfinite(self.X)
            if bad.any():
                i, j = np.argwhere(bad)[0]
                raise ValueError(
                    f"{self.name} holds NaN or an infinite number, the first in row "
                    f"{self.start + int(i)}, column {int(j)}: fill or leave out such rows."
                )
        y = self.y
        if y is not None and y.dtype.kind == "f" and not np.isfinite(y).all():
            i = int(np.argmin(np.isfinite(y)))
            raise ValueError(
                f"{self.name} holds NaN or an infinite number in the target, the first in row "
                f"{self.start + i}: leave out such rows."
            )


Job = Callable[[Chunk], Sums]


class Chunks:
    """``n`` rows of ``d`` columns and their targets, which are read a chunk at a time.

    A subclass yields the chunks in order; ``total`` adds up what jobs find in them. ``passes``
    counts how often all rows were read. ``columns`` are their names, None if they have none.
    """

    n: int
    d: int
    dtype: np.dtype[Any]
    columns: list[str] | None = None
    passes: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, d) of all rows."""
        return self.n, self.d

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in the order of the rows."""
        raise NotImplementedError

    def total(self, *jobs: Job) -> list[Sums]:
        """Return what each job finds, added up over all chunks: one pass over the rows."""
        found: list[Sums] | None = None
        rows = 0
        for chunk in self:
            part = apply(jobs, self.checked(chunk))
            rows += len(chunk.X)
            found = part if found is None else add(found, part)
        if found is None or rows != self.n:
            raise ValueError(
                f"the rows changed while they were read: there were {self.n}, and now {rows} came."
            )
        self.passes += 1
        return found

    def checked(self, chunk: Chunk) -> Chunk:
        """Return a chunk whose columns and numbers are as those of all rows."""
        return checked(chunk, self.d, self.dtype)

    def selected(self, names: list[str]) -> Chunks:
        """Return the same rows with these columns; here only those that there are, in order."""
        if self.columns is not None and list(names) != self.columns:
            raise ValueError(
                f"the rows have the columns {self.columns}, and {list(names)} are needed."
            )
        return self


def checked(chunk: Chunk, d: int, dtype: np.dtype[Any]) -> Chunk:
    """Return a chunk; refuse one of other columns or numbers than the rest, or without targets."""
    X, y = chunk.X, chunk.y
    if X.ndim != 2 or X.shape[1] != d:
        raise ValueError(f"{chunk.name} has shape {X.shape}, but the rows have {d} columns.")
    if X.dtype != dtype:
        raise ValueError(
            f"{chunk.name} holds {X.dtype}, but the other chunks hold {dtype}: write all of them "
            "in the same type."
        )
    if y is not None and y.shape != (len(X),):
        raise ValueError(f"{chunk.name} has {len(X)} rows but targets of shape {y.shape}.")
    return chunk


def apply(jobs: tuple[Job, ...], chunk: Chunk) -> list[Sums]:
    """Return what each job finds in a chunk."""
    return [job(chunk) for job in jobs]


def add(first: list[Sums], second: list[Sums]) -> list[Sums]:
    """Return the sums of two lots of chunks: arrays add up, lists follow each other."""
    return [
        {name: part[name] + more[name] for name in part}
        for part, more in zip(first, second, strict=True)
    ]


def require_numbers(dtype: np.dtype[Any], where: str) -> None:
    """Refuse rows that hold no numbers."""
    if dtype.kind not in "fiub":
        raise ValueError(f"{where} holds {dtype}, not numbers: encode such columns first.")


def targets_of(y: Any, n: int) -> Array | None:
    """Return targets in memory as an array of one entry per row."""
    if y is None:
        return None
    y = y if isinstance(y, np.ndarray) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (n,):
        raise ValueError(f"X has {n} rows but y has shape {y.shape}: give one target per row.")
    return y
