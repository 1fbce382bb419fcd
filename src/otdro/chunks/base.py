"""The contract of rows that come in chunks: sums over all of them, one pass at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import SMALL, missing_entries

Array = NDArray[Any]

#: Bytes of X that are read at a time: large enough for the disk, small beside any memory.
CHUNK_BYTES = 2**25

#: What a job finds in a chunk: named parts that are added up over the chunks.
Sums = dict[str, Any]

#: What may come beside X, one entry per row: by its name in a chunk its name in ``fit``.
BESIDE = {"y": "y", "w": "sample_weight", "group": "groups"}


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows ``X`` (m, d), the first of them row ``start`` of all rows, and what comes beside them.

    ``y`` (m,) are the targets, ``w`` the weights, ``group`` the environments; None: there are none.
    """

    number: int
    start: int
    X: Array
    y: Array | None = None
    w: Array | None = None
    group: Array | None = None

    @property
    def name(self) -> str:
        """Its number and its rows, for messages."""
        return f"chunk {self.number} (rows {self.start} to {self.start + len(self.X) - 1})"

    def index(self, some: Array | slice = slice(None)) -> Array:
        """Return the numbers of its rows, or of some of them, among all rows."""
        if isinstance(some, slice):
            return self.start + np.arange(*some.indices(len(self.X)))
        return self.start + some

    def targets(self) -> Array:
        """Return the targets; refuse rows without them."""
        if self.y is None:
            raise ValueError("the rows have no targets: name the column or give y.")
        return self.y

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
        for name, part in (("the target", self.y), ("sample_weight", self.w)):
            if part is not None and part.dtype.kind == "f":
                text = f"{self.name} holds NaN or an infinite number in {name}, the first in"
                self._refuse(~np.isfinite(part), text, "leave out such rows.")
        if self.w is not None:
            text = f"sample_weight must be nonnegative, got {float(self.w.min(initial=0)):g} in"
            self._refuse(self.w < 0, text, "leave out such rows, or give them 0.")
        if self.y is not None and self.y.dtype.kind == "O":
            missing = missing_entries(self.y)
            of = f"{int(missing.sum())} of the {len(self.y)} rows of {self.name}, the first in"
            text = f"labels are missing (None, NaN or NA) in {of}"
            self._refuse(missing, text, "leave such rows out, or give them labels.")
        if self.group is not None:
            missing, text = missing_entries(self.group), "groups has no value (NaN or None) in"
            self._refuse(missing, text, "give every row a group, or leave such rows out.")

    def _refuse(self, bad: Array, text: str, remedy: str) -> None:
        """Refuse entries beside the rows, with the place of the first."""
        if bad.any():
            raise ValueError(f"{text} row {self.start + int(bad.argmax())}: {remedy}")


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
            require_alike(chunk, self.d, self.dtype)
            part = [job(chunk) for job in jobs]
            rows += len(chunk.X)
            found = part if found is None else add(found, part)
        if found is None or rows != self.n:
            raise ValueError(
                f"the rows changed while they were read: there were {self.n}, and now {rows} came. "
                "Fit again to rows that stay as they are."
            )
        self.passes += 1
        return found

    def selected(self, names: list[str]) -> Chunks:
        """Return the same rows with these columns; here only those that there are, in order."""
        if self.columns is not None and list(names) != self.columns:
            raise ValueError(
                f"the rows have the columns {self.columns}, and {list(names)} are needed: give "
                "rows with these, in this order."
            )
        return self


def require_alike(chunk: Chunk, d: int, dtype: np.dtype[Any]) -> None:
    """Refuse a chunk of other columns or numbers than the rest, or with parts of other lengths."""
    X = chunk.X
    if X.ndim != 2 or X.shape[1] != d:
        raise ValueError(
            f"{chunk.name} has shape {X.shape}, but the rows have {d} columns: write all chunks "
            "with the same columns."
        )
    if X.dtype != dtype:
        raise ValueError(
            f"{chunk.name} holds {X.dtype}, but the other chunks hold {dtype}: write all of them "
            "in the same type."
        )
    for part, name in BESIDE.items():
        beside = getattr(chunk, part)
        if beside is not None and beside.shape != (len(X),):
            raise ValueError(
                f"{chunk.name} has {len(X)} rows but {name} of shape {beside.shape}: give one "
                "entry per row."
            )


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


def is_dask(X: Any) -> bool:
    """Whether an object is a Dask collection, without importing dask."""
    return hasattr(X, "__dask_graph__")


def is_mapped(X: Any) -> bool:
    """Whether an array is, or is a view of, a file that numpy maps into memory."""
    return isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None


def in_chunks(X: Any) -> bool:
    """Whether X is read in chunks: a folder, a Dask collection, ``Chunks``, a large memmap."""
    if isinstance(X, Chunks | str | PathLike) or is_dask(X):
        return True
    return is_mapped(X) and X.nbytes > SMALL
